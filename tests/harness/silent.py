"""A gateway whose log goes where a test says, and cannot be read by the harness."""

import signal
import time

from harness.failure import CommandFailed
from harness.gateway import Gateway


class SilentGateway(Gateway):
    """A gateway that writes to `output`: a file or a descriptor."""

    def __init__(self, namespace, config, directory, output):
        super().__init__(namespace, config, directory)
        self._output = output

    def __enter__(self):
        self.process = self._namespace.start(*self.command(), stdout=self._output, stderr=self._output)
        self._wait_until(lambda: self.run("show", "ports", check=False).returncode == 0, "to answer")
        return self

    def __exit__(self, kind, error, _):
        alive = self.process.poll() is None
        if alive:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(10)
        if kind is None and (not alive or code != 0):
            raise CommandFailed(f"the gateway ended with {code}")

    def log(self):
        """Nothing can be known of it."""
        return ""

    def lost_lines(self):
        """Log lines that could not be written."""
        return self.json("show", "daemon")["log_lines_dropped"]

    def wait_for_lost_lines(self, more_than, timeout=10):
        """Waits until more lines were lost."""
        end = time.monotonic() + timeout
        while self.lost_lines() <= more_than:
            assert time.monotonic() < end, "no log line was lost"
            time.sleep(0.05)


class Ended:
    """The process of a gateway that a test has ended on purpose: the harness asks no more of it."""

    returncode = 0

    def poll(self):
        """Nothing went wrong."""

    def send_signal(self, _):
        """Nothing is left to be stopped."""

    def wait(self, _=None):
        """It has ended as it should."""
        return 0
