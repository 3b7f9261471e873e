"""A disk that is slow, hangs or is full, as long as it is told to."""

import os
import pathlib
import subprocess

from harness.failure import CommandFailed

SOURCE = pathlib.Path(__file__).with_suffix(".c")


class SlowDisk:
    """What a gateway keeps its sequence numbers on: fast, until `mode` is called."""

    def __init__(self, directory):
        self._mode = directory / "disk.mode"
        self._library = directory / "slow_disk.so"
        words = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", self._library, SOURCE]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise CommandFailed(f"{SOURCE.name} does not compile:\n{done.stderr}")
        self.mode("0")

    def mode(self, mode):
        """A number of milliseconds that each synchronization takes, `hang` or `full`."""
        new = self._mode.with_suffix(".new")
        new.write_text(str(mode))
        new.rename(self._mode)

    def environment(self):
        """The environment of the gateway that has this disk."""
        return os.environ | {"LD_PRELOAD": str(self._library), "SLOW_DISK": str(self._mode)}
