"""Open vSwitch's `system-traffic.at` with hitpath in the place of the switch: each case becomes a program
of bash, which runs in namespaces of its own."""

import os
import pathlib
import re
import subprocess
import tarfile

from harness import captures
from harness.gateway import binary

HERE = pathlib.Path(__file__).resolve().parent.parent / "system_traffic"
VERSION, SUITE = "4.0.0", "sid"


def unpack(directory):
    """The files of Open vSwitch's tests that cases need. Why they are not there, or None."""
    archive, why = captures.source("openvswitch", VERSION, SUITE)
    if why:
        return why
    wanted = ("system-traffic.at", "system-common-macros.at", "test-l7.py", "sendpkt.py")
    with tarfile.open(archive) as opened:
        for member in opened:
            name = member.name.rsplit("/", 1)[-1]
            if member.isfile() and "/tests/" in member.name and name in wanted:
                (directory / name).write_bytes(opened.extractfile(member).read())
    # The servers' program finds it beside itself.
    (directory / "tftpy.py").symlink_to(HERE / "tftpy.py")
    return None


def cases(directory):
    """Name -> text of the cases about connections, in their order."""
    text = (directory / "system-traffic.at").read_text()
    found = re.findall(r"^AT_SETUP\(\[(conntrack - [^$\n]+?)\]\)\n(.*?)^AT_CLEANUP", text, re.MULTILINE | re.DOTALL)
    return dict(found)


def run(sources, directory, text, timeout=400):
    """Runs a case: `("passed" | "failed" | "left out", what it said)`."""
    directory.mkdir()
    # What OVS defines and hitpath's prelude defines otherwise: the latter counts.
    prelude = (HERE / "prelude.m4").read_text()
    common = re.sub(r"^OVS_START_SHELL_HELPERS.*", "", (sources / "system-common-macros.at").read_text(),
                    flags=re.MULTILINE | re.DOTALL)
    given = f"m4_changequote([,]){prelude}\n{common}\n{prelude.split('m4_divert(-1)', 1)[1]}\nm4_divert(0)m4_dnl\n{text}\nexit 0\n"
    made = subprocess.run(["m4", "-P"], input=given, capture_output=True, text=True)
    if made.returncode:
        return "failed", f"m4: {made.stderr}"
    shims = directory / "bin"
    shims.mkdir()
    for name in ("ovs", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"):
        (shims / name).symlink_to(HERE / "ovs")
    (directory / "case").write_text(f". {HERE}/case.sh\n{made.stdout}")
    environment = os.environ | {
        "CASE": str(directory), "SHIMS": str(shims), "PATH": f"{shims}:{os.environ['PATH']}:/usr/sbin:/sbin",
        "HITPATH": binary(), "PYTHON3": "/usr/bin/python3", "srcdir": str(sources), "LC_ALL": "C",
    }
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "case"]
    try:
        done = subprocess.run(words, cwd=directory, capture_output=True, text=True, errors="replace",
                              timeout=timeout, env=environment, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return "failed", f"no end after {timeout} s"
    said = done.stdout + done.stderr
    if done.returncode == 77:
        noted = directory / "left-out"
        return "left out", noted.read_text().splitlines()[0] if noted.exists() else "a condition of its own"
    return ("passed" if done.returncode == 0 else "failed"), said
