"""The extended register state (XSAVE area) of this machine, and the library that completes it.

Linux takes the area of a traced process only as a whole. The guest's kernel, which traces its
processes, knows no component after PKRU and hands over less than a processor with AMX has.
"""

import json
import os
import pathlib
import subprocess

from harness.failure import CommandFailed

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "tests" / "guest" / "xstate.c"
PROBE = ROOT / "tests" / "guest" / "xstate.py"
LIBRARY = ROOT / ".cache" / "guest-xstate" / "xstate.so"

GUEST_AREA = 2696
"""Bytes that user-mode-linux 6.1 hands over."""

VARIABLE = "HITPATH_TEST_XSTATE"
"""Environment variable that decides in place of the machine."""

CHOICES = ("complete", "as-it-is")


def area():
    """How many bytes the whole area has on this machine. None if the processor has no XSAVE."""
    done = subprocess.run([PROBE, "area"], capture_output=True, text=True)
    if done.returncode == 0:
        return int(done.stdout)
    if "No such device" in done.stderr:
        return None
    raise CommandFailed(f"the size of the XSAVE area cannot be read: {done.stderr.strip()}")


def must_be_completed():
    """Whether the guest's kernel hands over less than this machine's kernel takes."""
    asked = os.environ.get(VARIABLE, "")
    if asked and asked not in CHOICES:
        raise CommandFailed(f"{VARIABLE} is '{asked}'; it can be {' or '.join(CHOICES)}, or unset")
    return asked == "complete" if asked else (area() or 0) > GUEST_AREA


def library():
    """The library's path. It is compiled if it is not there or is older than its source."""
    if LIBRARY.exists() and LIBRARY.stat().st_mtime >= SOURCE.stat().st_mtime:
        return LIBRARY
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    # Two runs at once must not see half a file.
    unfinished = LIBRARY.with_suffix(f".{os.getpid()}")
    words = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    words += ["-o", unfinished, SOURCE]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError:
        raise CommandFailed(f"gcc is missing, which compiles {SOURCE.name}") from None
    if done.returncode != 0:
        raise CommandFailed(f"{SOURCE.name} does not compile:\n{done.stderr}")
    unfinished.rename(LIBRARY)
    return LIBRARY


def set_first(count, preloaded):
    """Sets the first `count` bytes of a stopped child's area, and says what came of it."""
    env = os.environ | ({"LD_PRELOAD": str(library())} if preloaded else {})
    done = subprocess.run([PROBE, "set", str(count)], capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise CommandFailed(done.stderr.strip())
    return json.loads(done.stdout) | {"said": done.stderr}
