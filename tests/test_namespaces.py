"""The gateway on live interfaces: AF_PACKET and TAP ports, between hosts that are network namespaces."""

import re

import pytest

from harness import transfers
from harness.config import Config, Port
from harness.gateway import Gateway

pytestmark = pytest.mark.namespaces

LEFT = {4: ("10.1.0.1", "10.1.0.2"), 6: ("fd01::1", "fd01::2")}
RIGHT = {4: ("10.2.0.1", "10.2.0.2"), 6: ("fd02::1", "fd02::2")}
"""Family -> the gateway's address, and the host's."""

both_families = pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])


def attach(topology, label, side, vrf=""):
    """A host on a veth of its own, and the gateway's port to it."""
    host, gw = topology.namespace(label), topology["gw"]
    topology.link(gw, label, host, "eth0")
    gw.silence(label)
    host.addresses("eth0", f"{side[4][1]}/24", f"{side[6][1]}/64")
    for family in (4, 6):
        host.ip(f"-{family}", "route", "add", "default", "via", side[family][0])
    return host, Port(label, [f"{side[4][0]}/24", f"{side[6][0]}/64"], kind="af-packet", interface=label, vrf=vrf)


@pytest.fixture
def hosts(topology, tmp_path):
    """Two hosts with the gateway between them on AF_PACKET ports: `(left, right, gateway)`."""
    topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    with Gateway(topology["gw"], Config(ports=[left_port, right_port]), tmp_path) as gateway:
        yield left, right, gateway


@both_families
def test_ping_through_the_gateway_and_to_it(hosts, family):
    left, right, gateway = hosts
    left.ping(LEFT[family][0])
    left.ping(RIGHT[family][0])
    left.ping(RIGHT[family][1])
    right.ping(LEFT[family][1])
    for size in (0, 1, 13, 1400, 1452):
        left.ping(RIGHT[family][1], count=1, size=size)
    packets = {port["name"]: port for port in gateway.json("show", "ports")}
    assert set(packets) == {"left", "right"}


@both_families
def test_tcp_and_udp_arrive_whole(hosts, family):
    """The kernel's checksum and segmentation offloads are on at both hosts, as they are by default."""
    left, right, _ = hosts
    for here, source, there, target in ((left, LEFT, right, RIGHT), (right, RIGHT, left, LEFT)):
        transfers.tcp(here, source[family][1], there, target[family][1], count=5_000_000)
        transfers.udp(here, source[family][1], there, target[family][1])


@both_families
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_iperf3(hosts, family, protocol):
    left, right, _ = hosts
    transfers.iperf3(left, right, RIGHT[family][1], protocol)


@both_families
def test_traceroute_shows_the_gateway(hosts, family):
    left, _, _ = hosts
    for method in ([], ["-I"]):
        assert transfers.hops(left, RIGHT[family][1], *method) == [LEFT[family][0], RIGHT[family][1]]


@both_families
def test_unreachable_is_told(hosts, family):
    left, _, _ = hosts
    nowhere = {4: "203.0.113.7", 6: "2001:db8::7"}[family]
    shown = left.ping(nowhere, count=1, check=False, timeout=3).stdout
    assert f"From {LEFT[family][0]}" in shown and re.search("[Uu]nreachable|No route", shown), shown


@both_families
def test_fragments_are_forwarded(hosts, family):
    """The hosts cut pings into fragments; the gateway forwards those as they are."""
    left, right, _ = hosts
    left.ping(RIGHT[family][1], size=8000)
    right.ping(LEFT[family][1], size=20_000)


@both_families
def test_fragmented_pings_to_the_gateway_itself_are_answered_whole(hosts, family):
    """Everything that fits 1500 bytes when put together, as RFC 8200 section 5 asks for."""
    left, _, gateway = hosts
    left.ip(f"-{family}", "route", "add", LEFT[family][0], "dev", "eth0", "mtu", "1280")
    for size in (1300, 1452):
        left.ping(LEFT[family][0], size=size, options=["-M", "dont"])
    assert broken(gateway) == {}


def test_a_reassembled_ping_larger_than_the_mtu_is_answered_in_fragments(hosts):
    left, _, gateway = hosts
    left.ping(LEFT[4][0], size=1800)
    assert broken(gateway) == {}


def broken(gateway):
    """Drops that no healthy fragment ends in. Hosts' own announcements to groups are dropped at any time."""
    announced = {"not_unicast", "mld_ignored"}
    return {reason: count for reason, count in gateway.drops().items() if reason not in announced}


@both_families
def test_what_is_too_large_to_be_put_together_is_dropped_and_counted(hosts, family):
    left, _, gateway = hosts
    left.ping(LEFT[family][0], size=9000)
    assert left.ping(LEFT[family][0], size=9600, count=1, timeout=1, check=False).returncode == 1
    assert gateway.drops().get("reassembly_too_big", 0) > 0
    left.ping(LEFT[family][0])


@both_families
def test_path_mtu(topology, tmp_path, family):
    """A narrower link behind the gateway: senders are told, and TCP gets through."""
    gw = topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    gw.ip("link", "set", "right", "mtu", "1300")
    right.ip("link", "set", "eth0", "mtu", "1300")
    right_port.mtu = 1300
    with Gateway(gw, Config(ports=[left_port, right_port]), tmp_path):
        shown = left.ping(RIGHT[family][1], count=1, size=1400, options=["-M", "do"], check=False, timeout=2).stdout
        assert re.search(r"mtu ?= ?1300", shown), shown
        transfers.tcp(left, LEFT[family][1], right, RIGHT[family][1])


def test_two_vrfs_with_the_same_addresses(topology, tmp_path):
    gw = topology.namespace("gw")
    config = Config(vrfs=["red", "blue"])
    hosts = {}
    for vrf in ("red", "blue"):
        left, left_port = attach(topology, f"{vrf}-left", LEFT, vrf)
        right, right_port = attach(topology, f"{vrf}-right", RIGHT, vrf)
        config.ports += [left_port, right_port]
        hosts[vrf] = (left, right)
    with Gateway(gw, config, tmp_path):
        answering = {vrf: hosts[vrf][1].start("/usr/bin/python3", "-Ic", GREETER, RIGHT[4][1], vrf) for vrf in hosts}
        for vrf, (left, _) in hosts.items():
            for family in (4, 6):
                left.ping(RIGHT[family][1])
            transfers.wait_for_listener(hosts[vrf][1], 5003)
            assert left.run("/usr/bin/python3", "-Ic", LISTENER, RIGHT[4][1]).stdout.strip() == vrf
        for process in answering.values():
            process.kill()
        hosts["red"][1].ip("link", "set", "eth0", "down")
        assert hosts["red"][0].ping(RIGHT[4][1], count=1, timeout=1, check=False).returncode != 0
        hosts["blue"][0].ping(RIGHT[4][1])


GREETER = """
import socket, sys
server = socket.create_server((sys.argv[1], 5003))
while True:
    connection, _ = server.accept()
    with connection:
        connection.sendall(sys.argv[2].encode())
"""

LISTENER = """
import socket, sys
with socket.create_connection((sys.argv[1], 5003), 5) as connection:
    print(connection.recv(100).decode())
"""


@both_families
def test_a_tap_port(topology, tun, tmp_path, family):
    """The TAP interface that the gateway makes is a host's way to the host behind the other port."""
    gw, left = topology.namespace("gw"), topology.namespace("left")
    right, right_port = attach(topology, "right", RIGHT)
    tap = Port("left", [f"{LEFT[4][0]}/24", f"{LEFT[6][0]}/64"], kind="tap", interface="tap0")
    with Gateway(gw, Config(ports=[tap, right_port]), tmp_path):
        # A kernel takes what is for one of its addresses from any interface, so it must not have the other port's.
        gw.ip("link", "set", "tap0", "netns", left.name)
        left.addresses("tap0", f"{LEFT[4][1]}/24", f"{LEFT[6][1]}/64")
        left.ip(f"-{family}", "route", "add", "default", "via", LEFT[family][0])
        left.ping(RIGHT[family][1])
        right.ping(LEFT[family][1])
        transfers.tcp(left, LEFT[family][1], right, RIGHT[family][1])
        transfers.tcp(right, RIGHT[family][1], left, LEFT[family][1])
        transfers.udp(left, LEFT[family][1], right, RIGHT[family][1])


def test_the_hosts_learn_and_forget_no_one_else(hosts):
    """Address resolution answers for the gateway's own addresses only."""
    left, _, gateway = hosts
    left.ping(LEFT[4][0], count=1)
    assert left.ping("10.1.0.77", count=1, timeout=2, check=False).returncode != 0
    entry = left.ip("neigh", "show", "10.1.0.77").stdout
    assert "lladdr" not in entry
    assert [n for n in gateway.json("show", "neighbours") if n["address"] == LEFT[4][1]]


def test_a_host_that_is_not_there(hosts):
    """Packets wait for an answer for a while, are dropped under a name, and the sender is told."""
    left, _, gateway = hosts
    shown = left.ping("10.2.0.77", count=1, timeout=6, check=False, options=["-W", "6"]).stdout
    assert f"From {LEFT[4][0]}" in shown and "Unreachable" in shown
    assert gateway.drops()["neighbour_unresolved"] >= 1
