"""A guest that does not start or that ends: one failure that says what to do, and no waiting."""

import os
import pathlib
import re
import subprocess
import time

import pytest

from harness import guest as guest_kernel
from harness import xstate

TESTS = pathlib.Path(__file__).resolve().parent

pytestmark = pytest.mark.namespaces

ENDS_AT_ONCE = """#!/bin/sh
echo 'booting'
echo 'userspace - ptrace set fp regs failed, errno = 14'
# A process of the guest that outlives its kernel, and keeps its pipes open.
sleep 60 &
exit 1
"""

ENDS_AFTER_ITS_START = """#!/bin/bash
# Its answers go to the second descriptor of con1=fd:IN,fd:OUT.
for word; do
    case $word in con1=*) echo '{"ready": true}' >&"${word##*:}" ;; esac
done
echo 'Kernel panic - not syncing: Attempted to kill init!'
exit 134
"""


@pytest.mark.parametrize(
    "kernel, area, told",
    [
        (ENDS_AT_ONCE, "as-it-is", ["not start; its exit code is 1", "XSTATE=complete"]),
        (ENDS_AFTER_ITS_START, "as-it-is", ["Attempted to kill init", "testing.md"]),
        (ENDS_AFTER_ITS_START, "complete", ["runs without the library"]),
        (ENDS_AT_ONCE, "half", ["complete or as-it-is"]),
    ],
    ids=["at-once", "after-its-start", "without-the-library", "wrong-variable"],
)
def test_all_guest_tests_together_fail_once(root, tun, tmp_path, kernel, area, told):
    fake = tmp_path / "linux.uml"
    fake.write_text(kernel)
    fake.chmod(0o755)
    start = time.monotonic()
    done = subprocess.run(
        ["/usr/bin/python3", "-B", "-m", "pytest", "-q", "-c", TESTS / "pytest.ini"]
        + ["--rootdir", TESTS, TESTS / "test_guest_and_scapy.py", "-m", "guest"],
        env=os.environ | {guest_kernel.KERNEL: str(fake), xstate.VARIABLE: area},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert time.monotonic() - start < 25
    assert done.returncode == 1
    counts = re.search(r"(\d+) skipped.*, 1 error in|1 failed, (\d+) skipped.* in", done.stdout)
    assert counts and int(counts[1] or counts[2]) > 20, done.stdout
    for words in told:
        assert re.search(words, done.stdout), done.stdout
