"""`vrf_route_leaking.sh` of the Linux kernel: ICMP errors about packets that a route leads from one VRF into another.

hitpath is the script's `r1`, with its commands. Where the script has a bridge at a host, the host has two links here.
"""

import re

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway
from harness.netns import Topology
from harness.selftests import Script

pytestmark = pytest.mark.namespaces

SCRIPT = Script("vrf_route_leaking.sh", 20, {})
H1, R1N1, R2N1 = ({4: f"172.16.1.{last}", 6: f"2001:db8:16:1::{last}"} for last in (1, 253, 254))
H2, R1N2, R2N2 = ({4: f"172.16.2.{last}", 6: f"2001:db8:16:2::{last}"} for last in (2, 253, 254))
N1, N2 = ({4: f"172.16.{n}.0/24", 6: f"2001:db8:16:{n}::/64"} for n in (1, 2))
LENGTH = {4: 24, 6: 64}
FAMILIES = [-4, -6]


def on(address):
    """An address with the length of its link's prefix, in both families."""
    return [f"{address[family]}/{LENGTH[family]}" for family in (4, 6)]


def host(made, label, own):
    """A host with a link to r1."""
    space = made.namespace(label)
    for name in ("all", "default"):
        space.sysctl(f"net.ipv4.conf.{name}.rp_filter", 0)
    made.link(made["r1"], label, space, "eth0")
    made["r1"].silence(label)
    space.addresses("eth0", *on(own))
    return space


def route(space, family, to, via, *words):
    space.ip(f"-{family}", "route", "add", to, "via", via, *words)


def symmetric(made, h1, h2):
    """Both hosts send by r1."""
    for family in (4, 6):
        route(h1, family, N2[family], R1N1[family], "dev", "eth0")
        route(h2, family, "default", R1N2[family], "dev", "eth0")


def asymmetric(made, h1, h2):
    """h2 answers by r2, a Linux kernel that both hosts have a link to."""
    r2 = made.namespace("r2")
    for setting in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
        r2.sysctl(setting, 1)
    for name in ("all", "default"):
        r2.sysctl(f"net.ipv4.conf.{name}.rp_filter", 0)
    for space, label, own, of_r2 in ((h1, "h1", H1, R2N1), (h2, "h2", H2, R2N2)):
        made.link(r2, label, space, "eth1")
        r2.addresses(label, *on(of_r2))
        # A station answers for its addresses of other links by ARP, but not by neighbour discovery.
        r2.ip("neigh", "replace", own[6], "lladdr", space.mac("eth1"), "dev", label)
    for family in (4, 6):
        route(h1, family, N2[family], R1N1[family], "dev", "eth0")
    route(h2, 4, "default", R2N2[4], "dev", "eth1", "onlink")
    # To h2, the prefix is that of its other link.
    shown = r2.ip("-6", "-br", "addr", "show", "dev", "h2").stdout
    route(h2, 6, "default", re.search(r"fe80::[0-9a-f:]+", shown)[0], "dev", "eth1")


@pytest.fixture(scope="module")
def world(request, root, tmp_path_factory):
    """The hosts, and the script's VRFs and leaks on r1."""
    with Topology() as made:
        made.namespace("r1")
        h1, h2 = host(made, "h1", H1), host(made, "h2", H2)
        {"sym": symmetric, "asym": asymmetric}[request.param](made, h1, h2)
        config = Config(ports=[Port(name, [], kind="af-packet", interface=name) for name in ("h1", "h2")])
        with Gateway(made["r1"], config, tmp_path_factory.mktemp("r1")) as r1:
            for vrf, number in (("blue", 1101), ("red", 1102)):
                r1.run("link", "add", vrf, "type", "vrf", "table", number)
                r1.run("link", "set", vrf, "up")
                for family in FAMILIES:
                    r1.run(family, "route", "add", "vrf", vrf, "unreachable", "default", "metric", "8192")
            r1.run("link", "set", "mtu", "1400", "dev", "h2")
            for port, vrf, own in (("h1", "blue", R1N1), ("h2", "red", R1N2)):
                r1.run("link", "set", port, "vrf", vrf, "up")
                for address in on(own):
                    r1.run("addr", "add", "dev", port, address)
            for family in (4, 6):
                r1.run(f"-{family}", "route", "add", "vrf", "blue", N2[family], "dev", "red")
                if request.param == "sym":
                    r1.run(f"-{family}", "route", "add", "vrf", "red", N1[family], "dev", "blue")
            yield h1


CASES = {
    "ping-ttl": (["ping", "-t1", "-c1", "-W2"], r"Time to live exceeded|Time exceeded: Hop limit"),
    "traceroute": (["traceroute", "-n", "-q1", "-w2", "-m3"], None),
    "ping-frag": (["ping", "-s", "1450", "-Mdo", "-c1", "-W2"], r"Frag needed|Packet too big"),
}
"""Name -> what h1 runs, and what it is to print; or the address of r1 on h1's link."""


# Without a route back in r1, the script does not try the MTU.
TRIED = [("sym", name) for name in CASES] + [("asym", name) for name in CASES if name != "ping-frag"]


@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
@pytest.mark.parametrize(("world", "name"), TRIED, indirect=["world"], ids=map("-".join, TRIED))
@pytest.mark.parametrize("case", ["connectivity", "error"])
def test_errors(world, name, family, case):
    h1 = world
    if case == "connectivity":
        h1.ping(H2[family], count=1)
        return
    command, pattern = CASES[name]
    said = h1.run(*command, H2[family], check=False).stdout
    assert re.search(pattern or re.escape(R1N1[family]), said), said
    # By the address that the sender's own link has.
    assert R1N1[family] in said, said


def test_every_case_is_counted():
    # Connectivity comes first in each, in both families.
    SCRIPT.demand_all_counted(passed=2 * 2 * len(TRIED))
