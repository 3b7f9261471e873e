"""Shell scripts of the Linux kernel's netfilter selftests that ask the routes about a packet: whether its source is
behind the port that it came by, and what its destination is."""

import re
import time

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6

from harness.config import Config
from harness.gateway import Gateway
from harness.selftests import Script
from harness.wires import Wires
from test_namespaces import LEFT, RIGHT, attach, both_families, broken

pytestmark = pytest.mark.namespaces

MARTIANS = Script("netfilter/rpath.sh", 1, {})
FIB = Script("netfilter/nft_fib.sh", 10, {
    "packets of a host to itself, over its loopback interface": 2,
    "the reverse path by policy rules": 1,
})
NEXTHOP = Script("netfilter/nft_fib_nexthop.sh", 3, {"a group of nexthop objects": 1})

BEHIND_RIGHT = {4: "10.2.0.9", 6: "fd02::9"}
"""Addresses of the left host that are of the right port's networks."""
BITS = {4: 32, 6: 128}


@pytest.fixture
def hosts(topology, tmp_path):
    """A host behind each port, of which the left one has addresses of the right port's networks as well."""
    topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    for family, address in BEHIND_RIGHT.items():
        left.ip("addr", "add", f"{address}/{BITS[family]}", "dev", "eth0", *(["nodad"] if family == 6 else []))
    with Gateway(topology["gw"], Config(ports=[left_port, right_port]), tmp_path) as gateway:
        yield left, right, gateway


def unanswered(host, target, source):
    """Pings once; nothing comes back."""
    done = host.run("ping", "-n", "-c", 1, "-W", 0.3, "-I", source, target, check=False)
    assert "1 packets transmitted, 0 received" in done.stdout, done.stdout


def regular_and_martian(left, gateway):
    """What is of the port's network is answered, ARP and neighbour discovery included, and nothing dropped; what says
    to be of another port's is dropped for that, and for nothing else."""
    for family in (4, 6):
        before = broken(gateway)
        left.ip("neigh", "flush", "all")
        gateway.run("neigh", "flush", "dev", "left")
        left.ping_exactly(LEFT[family][0], 1)
        assert broken(gateway) == before
        unanswered(left, RIGHT[family][0], BEHIND_RIGHT[family])
        gateway.wait_for_drops("reverse_path", before.get("reverse_path", 0) + 1)
        left.ping_exactly(LEFT[family][0], 1)
        assert broken(gateway) == before | {"reverse_path": before.get("reverse_path", 0) + 1}


@pytest.mark.parametrize("mode", ["strict", "feasible"])
def test_martians(hosts, mode):
    """As `rpath.sh`: in `main`, and with the port in a VRF."""
    left, _, gateway = hosts
    gateway.run("link", "set", "left", "rpf", mode)
    regular_and_martian(left, gateway)
    gateway.run("vrf", "add", "vrf0")
    gateway.run("link", "set", "left", "vrf", "vrf0")
    regular_and_martian(left, gateway)
    # No route of the VRF leads to the source, so even that is too much to ask.
    gateway.run("link", "set", "left", "rpf", "loose")
    regular_and_martian(left, gateway)
    gateway.run("link", "set", "left", "vrf", "main")
    dropped = gateway.drops()["reverse_path"]
    for family in (4, 6):
        unanswered(left, RIGHT[family][0], BEHIND_RIGHT[family])
        left.ping_exactly(LEFT[family][0], 1)
    assert gateway.drops()["reverse_path"] == dropped, "a route of main leads to the source"


def no_unwanted_drops(left, _, gateway):
    """Not of what is for the gateway's other port, nor of what is routed, and its answers."""
    for port in ("left", "right"):
        gateway.run("link", "set", port, "rpf", "strict")
    for family in (4, 6):
        for target in RIGHT[family]:
            left.ping_exactly(target, 1, source=LEFT[family][1])
    assert broken(gateway) == {}


def without_a_route(family, target, count):
    """The host has an address of another port's network alone: each of its packets is dropped."""

    def case(left, _, gateway):
        gateway.run("link", "set", "left", "rpf", "strict")
        station, own = LEFT[family]
        left.ip("neigh", "replace", station, "lladdr", mac_of(gateway, "left"), "dev", "eth0")
        left.ip("addr", "del", f"{own}/{24 if family == 4 else 64}", "dev", "eth0")
        left.ip(f"-{family}", "route", "replace", "default", "via", station, "dev", "eth0", "onlink")
        for number in range(count):
            assert broken(gateway).get("reverse_path", 0) == number
            unanswered(left, target, BEHIND_RIGHT[family])
            gateway.wait_for_drops("reverse_path", number + 1)
        assert broken(gateway) == {"reverse_path": count}

    return case


def mac_of(gateway, name):
    (found,) = [port for port in gateway.json("show", "ports") if port["name"] == name]
    return found["mac"]


OF_HOSTS = {
    "no-unwanted-drops": no_unwanted_drops,
    "without-a-route-v4": without_a_route(4, "1.1.1.1", 1),
    "without-a-route-v6": without_a_route(6, "1c3::c01d", 3),
}


@pytest.mark.parametrize("case", OF_HOSTS.values(), ids=OF_HOSTS)
def test_reverse_path_of_hosts(hosts, case):
    case(*hosts)


OTHER = """
[[vrf]]
name = "tvrf"

[[port]]
name = "dummy0"
kind = "memory"
vrf = "tvrf"
addresses = ["10.9.0.1/24", "fd09::1/64"]
"""
"""A port in a VRF, beside those of the wires."""


@pytest.fixture
def wires(topology, tmp_path):
    with Wires(topology, tmp_path, extra=OTHER) as made:
        made.gateway.run("flow", "del-all")
        yield made


KINDS = ("LOCAL", "NONE", "left", "right", "dummy0")


def counting(vrf):
    """A flow for each thing that the destination of a ping by the left port can be."""
    return "".join(
        f"vrf={vrf},priority=10,{ping},in_port=left,oif={kind} actions=NORMAL\n"
        for kind in KINDS for ping in ("icmp,icmp_type=8", "icmp6,icmp_type=128")
    )


def counts(wires):
    """How many packets each flow has seen, by what the destination is."""
    found = dict.fromkeys(KINDS, 0)
    for line in wires.gateway.run("flow", "dump").stdout.splitlines():
        if kind := re.search(r"[ ,]oif=(\w+)", line):
            found[kind[1]] += int(re.search(r"n_packets=(\d+)", line)[1])
    return found


def kind_of(wires, address):
    """What the flows say of a ping's destination."""
    if ":" in address:
        sent = IPv6(src="fd01::2", dst=address) / ICMPv6EchoRequest(id=77, seq=1)
    else:
        sent = IP(src="10.1.0.2", dst=address) / ICMP(id=77, seq=1)
    before, end = counts(wires), time.monotonic() + 10
    wires.put("left", sent)
    while (after := counts(wires)) == before:
        assert time.monotonic() < end, f"no flow has seen a ping to {address}"
    (seen,) = [kind for kind in KINDS for _ in range(after[kind] - before[kind])]
    return seen


def demand_kinds(wires, **wanted):
    """What each address is: `2.1` is 10.2.0.1 and fd02::1."""
    for kind, networks in wanted.items():
        for network in networks:
            link, host = network.split(".")
            for address in (f"10.{link}.0.{host}", f"fd0{link}::{host}"):
                assert kind_of(wires, address) == kind, address


def default_table(wires):
    """An address of the port, one of another port, one of a host, and one that no route leads to."""
    wires.replace(counting("main"))
    demand_kinds(wires, LOCAL=["1.1", "2.1"], right=["2.2"], left=["1.3"], NONE=["9.9"])


def policy_routing(wires):
    """A rule leads what comes by the port to a table, and what is local stays so."""
    for version, network in ((4, "10.9.0.0/24"), (6, "fd09::/64")):
        via = {4: "10.2.0.2", 6: "fd02::2"}[version]
        wires.gateway.run(f"-{version}", "rule", "add", "pref", "100", "iif", "left", "lookup", "129")
        wires.gateway.run(f"-{version}", "route", "add", network, "via", via, "dev", "right", "table", "129")
    wires.replace(counting("main"))
    demand_kinds(wires, LOCAL=["1.1", "2.1"], right=["2.2", "9.9"], left=["1.3"])


def port_beside_the_vrf(wires):
    """What is in a VRF of which the port is none is not found: the default route is."""
    for via in ("10.2.0.2", "fd02::2"):
        wires.gateway.run("route", "add", "default", "via", via)
    wires.replace(counting("main"))
    demand_kinds(wires, LOCAL=["1.1", "2.1"], right=["2.2", "9.1", "9.9"])


def port_in_the_vrf(wires):
    """What is in the VRF is found, and of `main` nothing, its default route included."""
    for via in ("10.2.0.2", "fd02::2"):
        wires.gateway.run("route", "add", "default", "via", via)
    wires.gateway.run("link", "set", "left", "vrf", "tvrf")
    wires.replace(counting("tvrf"))
    demand_kinds(wires, LOCAL=["1.1", "9.1"], dummy0=["9.9"], left=["1.3"], NONE=["2.1", "2.2"])


OF_KINDS = {
    "kinds-default-table": default_table,
    "kinds-policy-routing": policy_routing,
    "kinds-iif-not-in-vrf": port_beside_the_vrf,
    "kinds-iif-in-vrf": port_in_the_vrf,
}


@pytest.mark.parametrize("case", OF_KINDS.values(), ids=OF_KINDS)
def test_kinds_of_destinations(wires, case):
    case(wires)


REMOTE = {4: "172.30.0.1", 6: "fd30::1"}
NETWORK = {4: "172.30.0.0/24", 6: "fd30::/64"}
BY = {
    "left": {4: ["via", "10.1.0.2", "dev", "left"], 6: ["via", "fd01::2", "dev", "left"]},
    "right": {4: ["via", "10.2.0.2", "dev", "right"], 6: ["via", "fd02::2", "dev", "right"]},
}


def three_from(wires, family):
    """Three datagrams by the left port from behind the route; how many come out."""
    to = {4: "10.2.0.3", 6: "fd02::3"}[family]
    sent = [{4: IP, 6: IPv6}[family](src=REMOTE[family], dst=to) / UDP(sport=n, dport=9) for n in (1, 2, 3)]
    return len(wires.send("left", *sent).right)


def single(wires, family):
    """A route with one next hop, by the port."""
    wires.gateway.run("route", "add", NETWORK[family], *BY["left"][family])
    wires.gateway.run("link", "set", "left", "rpf", "feasible")
    assert three_from(wires, family) == 3
    assert broken(wires.gateway) == {}


def multipath(wires, family):
    """The port is that of the second of the next hops; that each of them is by it is more than there is."""
    hops = [word for port in ("right", "left") for word in ("nexthop", *BY[port][family])]
    wires.gateway.run("route", "add", NETWORK[family], *hops)
    wires.gateway.run("link", "set", "left", "rpf", "feasible")
    assert three_from(wires, family) == 3
    assert broken(wires.gateway) == {}
    wires.gateway.run("link", "set", "left", "rpf", "strict")
    assert three_from(wires, family) == 0
    assert broken(wires.gateway) == {"reverse_path": 3}


OF_NEXTHOPS = {"single": single, "multipath": multipath}


@both_families
@pytest.mark.parametrize("case", OF_NEXTHOPS.values(), ids=OF_NEXTHOPS)
def test_reverse_path_by_next_hops(wires, case, family):
    case(wires, family)


PASSED = {MARTIANS: 1, FIB: len(OF_HOSTS) + len(OF_KINDS), NEXTHOP: len(OF_NEXTHOPS)}


@pytest.mark.parametrize("script", PASSED, ids=lambda script: script.name)
def test_every_case_is_counted(script):
    script.demand_all_counted(passed=PASSED[script])
