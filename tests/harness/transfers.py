"""Proof that data crosses: TCP with a hash at both ends, and UDP datagrams that must each come back whole."""

from harness.guest import TRAFFIC
from harness.netns import CommandFailed


def tcp(sender, source, receiver, address, count=1_000_000, port=5001):
    """Sends that many bytes over TCP, and demands that they arrive as they were."""
    with _Job(receiver, "receive", address, port) as receiving:
        sent = sender.run(TRAFFIC, "send", source, address, port, count, timeout=40).stdout.split()
        received = receiving.finish().split()
    assert received == sent and received[0] == str(count), f"sent {sent}, received {received}"


def udp(sender, source, receiver, address, count=120, port=5002):
    """Sends that many datagrams of many sizes, and demands that each come back as it was."""
    with _Job(receiver, "echo", address, port):
        sender.run(TRAFFIC, "ask", source, address, port, count, timeout=40)


class _Job:
    """A program at one end, in a namespace or in the guest, as long as the block lasts."""

    def __init__(self, place, *words):
        self._job = place.start(TRAFFIC, *words)
        self._ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self._ended:
            self._job.kill()
            if hasattr(self._job, "communicate"):
                self._job.communicate()

    def finish(self):
        """What it says at its end."""
        self._ended = True
        if hasattr(self._job, "communicate"):
            out, err = self._job.communicate(timeout=20)
            if self._job.returncode != 0:
                raise CommandFailed(err)
            return out
        return self._job.finish().stdout
