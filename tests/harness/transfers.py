"""Proof that data crosses: TCP with a hash at both ends, and UDP datagrams that must each come back whole."""

import json
import re
import time

from harness.failure import CommandFailed
from harness.guest import TRAFFIC
from harness.netns import Namespace

sent_again = []
"""Which UDP datagrams were sent again, as sentences."""


def tcp(sender, source, receiver, address, count=1_000_000, port=5001):
    """Sends that many bytes over TCP, and demands that they arrive as they were."""
    with _Job(receiver, "receive", address, port) as receiving:
        sent = sender.run(TRAFFIC, "send", source, address, port, count, timeout=40).stdout.split()
        received = receiving.finish().split()
    assert received == sent and received[0] == str(count), f"sent {sent}, received {received}"


def exchange(client, address, port, server, at, listening, count=300_000):
    """Sends that many bytes over TCP both ways, and demands that they arrive as they were. Returns by which
    address the server, who listens `at` an address and on a port, sees the client, who connects to others.
    """
    with _Job(server, "serve", at, listening, count) as serving:
        wait_for_listener(server, listening)
        sent, came = client.run(TRAFFIC, "fetch", address, port, count, timeout=40).stdout.split()
        peer, received, answered = serving.finish().split()
    assert (received, came) == (sent, answered)
    return peer


def udp(sender, source, receiver, address, count=120, port=5002, at=None):
    """Sends that many datagrams of many sizes, and demands that each come back as it was.
    The receiver is `at` another address if that is translated."""
    with _Job(receiver, "echo", at or address, port):
        told = sender.run(TRAFFIC, "ask", source, address, port, count, timeout=40).stdout
    numbers = re.fullmatch(rf"{count} datagrams, sent again:((?: \d+)*)\n", told)[1].split()
    if numbers:
        which = f"number {', '.join(numbers)} of 0 to {count - 1}"
        said = f"UDP {source} > {address}: no answer at first to {which}"
        assert not (isinstance(sender, Namespace) and isinstance(receiver, Namespace)), said
        sent_again.append(said)


def iperf3(client, server, address, protocol):
    """Has iperf3 send each way, bytes over TCP or datagrams over UDP, of which none may be lost.

    On a busy machine iperf3 may not read for longer than its socket has room. What the receiving
    kernel counts as lost there has arrived.
    """
    size, datagram = (20_000_000, 0) if protocol == "tcp" else (1_200_000, 1200)
    options = ["-n", size] if protocol == "tcp" else ["-n", size, "-u", "-b", "10M", "-l", datagram]
    for direction, receiver in (([], server), (["--reverse"], client)):
        before = overflowed(receiver)
        job = server.start("iperf3", "-s", "-1", "-B", address)
        wait_for_listener(server, 5201)
        told = json.loads(client.run("iperf3", "-c", address, "-J", *options, *direction, timeout=60).stdout)
        job.kill()
        end = told["end"]
        if protocol == "tcp":
            # At the end iperf3 does not read what is still in the sockets' buffers, which are some megabytes.
            assert end["sum_received"]["bytes"] >= size // 2, told
        else:
            unread = overflowed(receiver) - before
            # Of datagrams that are missing at the very end iperf3 does not know.
            assert end["sum"]["packets"] + unread >= size // datagram, (unread, told)
            assert end["sum"]["lost_packets"] <= unread, (unread, told)


def overflowed(place):
    """How many datagrams the kernel there has dropped because a UDP socket was full."""
    older = place.run("cat", "/proc/net/snmp").stdout
    names, values = (line.split()[1:] for line in older.splitlines() if line.startswith("Udp:"))
    newer = place.run("cat", "/proc/net/snmp6").stdout
    for_v6 = re.search(r"^Udp6RcvbufErrors\s+(\d+)", newer, re.MULTILINE)
    return int(dict(zip(names, values))["RcvbufErrors"]) + int(for_v6[1])


def wait_for_listener(place, port):
    """Waits until something listens on a TCP port."""
    end = time.monotonic() + 10
    while f":{port} " not in place.run("ss", "-Hltn").stdout:
        assert time.monotonic() < end, f"nothing listens on {port}"
        time.sleep(0.05)


def wait_for_datagrams(place, port):
    """Waits until something has a UDP port."""
    end = time.monotonic() + 10
    while f":{port} " not in place.run("ss", "-Hlun").stdout:
        assert time.monotonic() < end, f"nothing has port {port}"
        time.sleep(0.05)


def hops(place, address, *method):
    """The stations on the way to `address`, as traceroute shows them; six at most.

    A traceroute whose stations fall silent is followed by another one from there. With `-I` one socket
    serves all of them, and the kernel hands it an error in two steps: the error, then `sk_err` (`raw_err`).
    If traceroute takes the error between the two, poll says POLLERR for good, and traceroute looks for
    errors alone and reads no answer any more.
    """
    family = 6 if ":" in address else 4
    stations = []
    while True:
        # One probe at a time: of many at once, a kernel answers only some.
        probes = ["-n", "-N", "1", "-q", "1", "-w", "4", "-f", len(stations) + 1, "-m", "6"]
        shown = place.run("traceroute", f"-{family}", *probes, *method, address).stdout
        more = re.findall(r"^ *\d+ +([0-9a-f.:*]+)", shown, re.MULTILINE)
        answered = more.index("*") if "*" in more else len(more)
        if answered in (0, len(more)):
            return stations + more
        stations += more[:answered]


def icmp_counters(*places):
    """What the kernel of each place counts of ICMP, errors and bad checksums too, but nothing that is zero."""
    shown = {}
    for place in places:
        lines = place.run("cat", "/proc/net/snmp").stdout.splitlines()
        names, values = (line.split()[1:] for line in lines if line.startswith("Icmp:"))
        shown[place.name] = {name: value for name, value in zip(names, values) if value != "0"}
    return shown


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
