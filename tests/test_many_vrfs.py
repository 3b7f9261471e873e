"""Thousands of tenants, each with a VLAN of one interface in a VRF of its own, made and changed under traffic.

`HITPATH_MANY_VRFS` says how many, if not 4000.
"""

import os
import re
import signal
import tempfile
import time

import pytest
from harness.config import Config, Port
from harness.gateway import Gateway
from test_namespaces import LEFT, RIGHT
from test_vlans import switch, trunk  # noqa: F401
from test_vrfs import memory

pytestmark = [pytest.mark.namespaces, pytest.mark.alone]

MANY = int(os.environ.get("HITPATH_MANY_VRFS", "4000"))

OWN, HOST = "10.50.0.1", "10.50.0.2"
"""The addresses of each tenant: all have the same."""

LONGEST = 1.0
"""Seconds for which the ping of the one tenant with traffic may wait, on a machine where others work too."""


class Ping:
    """A ping that goes on, and how long its longest silence was."""

    def __init__(self, host, target):
        # Not a pipe, which would be full before it is read.
        self._said = tempfile.TemporaryFile("w+")
        self._process = host.start("ping", "-n", "-D", "-i", "0.01", target, stdout=self._said)

    def end(self):
        """Returns how many were answered, of how many, and the longest time without an answer."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(20)
        with self._said:
            self._said.seek(0)
            said = self._said.read()
        times = [float(at) for at in re.findall(r"^\[([\d.]+)\] \d+ bytes from", said, re.M)]
        sent = int(re.search(r"(\d+) packets transmitted", said)[1])
        gap = max((later - before for before, later in zip(times, times[1:], strict=False)), default=1e9)
        return len(times), sent, gap


@pytest.fixture
def world(topology, switch, tmp_path):  # noqa: F811
    """A trunk on the left with an untagged host, a host on the right, and a gateway with no VRF but `main`."""
    gw = topology.namespace("gw")
    made = trunk(topology, switch, "left")
    topology.link(gw, "right", topology.namespace("right"), "eth0")
    gw.silence("right")
    config = Config()
    for side, addresses in (("left", LEFT), ("right", RIGHT)):
        host = topology[side]
        host.addresses("eth0", f"{addresses[4][1]}/24")
        host.ip("route", "add", "default", "via", addresses[4][0])
        config.ports.append(Port(side, [f"{addresses[4][0]}/24"], kind="af-packet", interface=side))
    with Gateway(gw, config, tmp_path) as gateway:
        yield gateway, made


def batch(gateway, path, lines):
    """Has the gateway carry commands out. Returns how many seconds it took."""
    path.write_text("".join(f"{line}\n" for line in lines))
    begin = time.monotonic()
    gateway.run("batch", str(path), timeout=550)
    return time.monotonic() - begin


def test_tenants_are_made_moved_and_removed_under_traffic(world, topology, tmp_path):
    gateway, made = world
    path = tmp_path / "commands.txt"
    sample = sorted({1, 2, MANY // 2, MANY - 1, MANY})
    hosts = {}
    for vlan in sample:
        hosts[vlan] = topology.namespace(f"tenant-{vlan}")
        made.access(vlan, hosts[vlan], 1500)
        hosts[vlan].addresses("eth0", f"{HOST}/24")
    topology["left"].ping(RIGHT[4][1])
    pid = gateway.json("show", "daemon")["pid"]
    traffic = Ping(topology["left"], RIGHT[4][1])

    before = memory(pid)
    took = batch(gateway, path, (f"link add t{number} type vrf table {1000 + number}" for number in range(1, MANY + 1)))
    empty = (memory(pid) - before) / MANY
    print(f"{MANY} VRFs in {took:.1f} s, {empty:.0f} bytes each")
    # Of few, what all share is most.
    assert empty < 10 * 1024 or MANY < 1000

    took = batch(
        gateway,
        path,
        (
            line
            for number in range(1, MANY + 1)
            for line in (
                f"link add link left name left.{number} type vlan id {number}",
                f"link set left.{number} master t{number}",
                f"addr add {OWN}/24 dev left.{number}",
                f"link set left.{number} up",
            )
        ),
    )
    print(f"{MANY} VLANs in {took:.1f} s, {(memory(pid) - before) / MANY:.0f} bytes each with its VRF")
    for vlan in sample:
        hosts[vlan].ping(OWN)
    alive, sent, gap = traffic.end()
    print(f"made: {alive} of {sent} answered, the longest gap {gap * 1000:.0f} ms")
    assert gap < LONGEST and sent - alive <= 1

    # Ports of the sample move to other VRFs, every second of the others' VRFs goes.
    traffic = Ping(topology["left"], RIGHT[4][1])
    last = Ping(hosts[MANY], OWN)
    moved = [vlan for vlan in sample if vlan != MANY]
    took = batch(
        gateway,
        path,
        [
            *(
                line
                for vlan in moved
                for line in (
                    f"link add m{vlan} type vrf table {9000 + vlan}",
                    f"link set left.{vlan} master m{vlan}",
                    f"link del t{vlan}",
                )
            ),
            *(f"link del t{number}" for number in range(1, MANY + 1, 2) if number not in sample),
        ],
    )
    for vlan in sample:
        hosts[vlan].ping(OWN)
    for name, ping in (("the one tenant", traffic), ("the last VRF", last)):
        alive, sent, gap = ping.end()
        print(f"removed in {took:.1f} s: {name}: {alive} of {sent} answered, the longest gap {gap * 1000:.0f} ms")
        assert gap < LONGEST and sent - alive <= 1
    ports = {port["name"]: port for port in gateway.json("show", "ports")}
    assert ports["left.3"]["vrf"] == "main" and not ports["left.3"]["up"]
    assert all(ports[f"left.{vlan}"]["vrf"] == f"m{vlan}" for vlan in moved)
    assert len(gateway.json("vrf", "show")) == 1 + MANY - len(range(1, MANY + 1, 2)) + sum(v % 2 for v in moved)
