"""Every packet ends in exactly one count, also where far more come than the machine can take."""

import contextlib
import os
import threading
import time

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway
from test_namespaces import LEFT, RIGHT, attach

pytestmark = pytest.mark.namespaces

SECONDS = float(os.environ.get("HITPATH_FLOOD_SECONDS", "5"))
"""How long the flood lasts."""

UNSENT = ("tx_dropped", "tx_too_long", "tx_down", "tx_errors")
LOST = ("rx_ring_full", "rx_missed", "rx_errors")

FLOOD = """
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.connect((sys.argv[1], 9))
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for _ in range(1000):
        try:
            out.send(b"x" * 64)
        except OSError:
            pass
"""


class Counts:
    """Everything that is counted, at one moment."""

    def __init__(self, gateway):
        self.ports = {port["name"]: port for port in gateway.json("show", "ports")}
        self.dropped = sum(gateway.drops().values())
        workers = gateway.json("show", "workers")
        counters = [{row["name"]: row["value"] for row in worker["counters"]} for worker in workers]
        self.counters = {name: sum(each[name] for each in counters) for name in counters[0]}

    def port(self, name, *counters):
        """The sum of a port's own counters."""
        return sum(self.ports[name]["statistics"][counter] for counter in counters)

    def all_ports(self, *counters):
        """The sum of all ports' own counters."""
        return sum(self.port(name, *counters) for name in self.ports)

    def device(self, name, *counters):
        """The sum of the counters of a port's interface."""
        return sum(self.ports[name]["device"][counter] for counter in counters)

    def went(self):
        """Packets that have ended in the gateway, or are in it."""
        return (
            self.all_ports("tx_packets") + self.dropped + self.counters["consumed"] + self.counters["held"]
        )

    def came(self):
        """Packets that came into the gateway or were made there."""
        return self.all_ports("rx_packets") + self.counters["generated"]


def settled(gateway):
    """The counts, once nothing changes any more."""
    end = time.monotonic() + 30
    before = Counts(gateway)
    while time.monotonic() < end:
        time.sleep(0.7)
        now = Counts(gateway)
        if (now.came(), now.went(), now.all_ports(*LOST)) == (before.came(), before.went(), before.all_ports(*LOST)):
            return now
        before = now
    raise AssertionError("packets come without an end")


@contextlib.contextmanager
def flood(host, target, senders=2):
    """Senders on `host`, all at once."""
    def send():
        host.run("python3", "-c", FLOOD, target, SECONDS, timeout=SECONDS + 60)

    threads = [threading.Thread(target=send) for _ in range(senders)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def host_counter(host, counter):
    return int(host.run("cat", f"/sys/class/net/eth0/statistics/{counter}").stdout)


@pytest.mark.parametrize(
    ("workers", "ring"), [(1, 65536), (1, 0), (2, 131072)], ids=["small ring", "default ring", "two workers"]
)
def test_a_flood_ends_in_exactly_one_count_each(topology, tmp_path, workers, ring):
    gw = topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    left_port.receive_ring = right_port.receive_ring = ring
    with Gateway(gw, Config(ports=[left_port, right_port], workers=workers), tmp_path) as gateway:
        left.ping(RIGHT[4][1], count=1)
        left.ping(RIGHT[6][1], count=1)
        before = settled(gateway)
        sent_before, got_before = host_counter(left, "tx_packets"), host_counter(right, "rx_packets")
        with flood(left, RIGHT[4][1]):
            time.sleep(SECONDS / 2)
            (during,) = [port for port in gateway.json("show", "ports") if port["name"] == "left"]
        after = settled(gateway)

        def change(of):
            return of(after) - of(before)

        offered = change(lambda counts: counts.device("left", "rx_packets"))
        taken = change(lambda counts: counts.port("left", "rx_packets"))
        lost = change(lambda counts: counts.port("left", *LOST))
        assert offered == host_counter(left, "tx_packets") - sent_before
        assert offered == taken + lost, "received by the interface = taken + lost in the ring"
        assert change(Counts.came) == change(Counts.went), "every packet that came is somewhere"
        for name in ("left", "right"):
            handed = change(lambda counts, name=name: counts.port(name, "tx_packets"))
            left_by = change(lambda counts, name=name: counts.device(name, "tx_packets", "tx_dropped"))
            assert handed == left_by, f"sent by port {name} = sent and dropped by its interface"
        got = host_counter(right, "rx_packets") - got_before
        assert got == change(lambda counts: counts.device("right", "tx_packets"))
        assert offered > 10_000 and taken > 1000
        print(f"offered {offered}, taken {taken}, lost in the ring {lost}, got {got}")

        # Under overload the ring drops, and nothing behind it.
        if ring:
            assert lost > 0, "the ring never was full: is this machine so fast?"
        assert change(lambda counts: counts.all_ports(*UNSENT)) == 0
        shown = during["ring"]
        assert shown["queues"] == workers and shown["bytes"] == (ring or 32 << 20)
        assert shown["rate"] > 0 and shown["holds_ms"] == shown["frames"] * 1000 // shown["rate"]
        assert "HOLDS MS" in gateway.run("show", "ports").stdout


def test_what_a_tap_port_is_too_slow_for_is_shown(topology, tun, tmp_path):
    gw = topology.namespace("gw")
    right, right_port = attach(topology, "right", RIGHT)
    tap = Port("left", [f"{LEFT[4][0]}/24"], kind="tap", interface="tap0", receive_ring=65536)
    with Gateway(gw, Config(ports=[tap, right_port]), tmp_path) as gateway:
        gw.ip("addr", "add", f"{LEFT[4][1]}/24", "dev", "tap0")
        gw.ip("route", "add", f"{RIGHT[4][1]}/32", "via", LEFT[4][0])
        gw.ping(RIGHT[4][1], count=1)
        before = settled(gateway)
        with flood(gw, RIGHT[4][1]):
            pass
        after = settled(gateway)
        read = after.port("left", "rx_packets") - before.port("left", "rx_packets")
        assert read == after.device("left", "tx_packets") - before.device("left", "tx_packets")
        unread = after.device("left", "tx_dropped")
        assert unread > 0, "the queue of 32 frames never was full: is this machine so fast?"
        (line,) = [line for line in gateway.run("show", "ports").stdout.splitlines() if line.startswith("left   tap ")]
        assert str(unread) in line.split(), line
        assert after.ports["left"]["ring"]["frames"] == 32
        assert after.came() - before.came() == after.went() - before.went()
