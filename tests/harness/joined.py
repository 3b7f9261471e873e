"""Two gateways with a tunnel between them, and a host at each end; in front of the one on the right
is a router with a narrow link.

    left --- a === b --- router --- right
"""

import contextlib
import dataclasses
import ipaddress

from harness.algorithms import GCM, Sa
from harness.capture import captured
from harness.config import Config, Policy, Port, Route
from harness.gateway import Gateway
from harness.netns import run

OUTER = {"a": {4: "192.0.2.1", 6: "2001:db8::1"}, "b": {4: "192.0.2.2", 6: "2001:db8::2"}}
"""Gateway -> the ends of its tunnels, of each family."""

LEFT = {4: ("10.1.0.1", "10.1.0.2"), 6: ("fd01::1", "fd01::2")}
"""Family -> a's address towards the left host, and the host's."""

MIDDLE = {4: ("10.2.0.1", "10.2.0.2"), 6: ("fd02::1", "fd02::2")}
"""Family -> b's address towards the router, and the router's."""

RIGHT = {4: ("10.3.0.1", "10.3.0.2"), 6: ("fd03::1", "fd03::2")}
"""Family -> the router's address towards the right host, and the host's."""

NARROW = 1300
"""The MTU between router and host."""

BITS = {4: 24, 6: 64}

FLOWS = """
table=0,priority=1 actions=drop
table=0,priority=200,ip,nw_proto=50 actions=NORMAL
table=0,priority=200,ipv6,nw_proto=50 actions=NORMAL
table=0,priority=10,arp actions=NORMAL
table=0,priority=100,ip actions=ct(table=1,nat)
table=0,priority=100,ipv6 actions=ct(table=1,nat)
table=1,priority=30,ct_state=+trk+rel,ip actions=NORMAL
table=1,priority=30,ct_state=+trk+rel,ipv6 actions=NORMAL
table=1,priority=20,ct_state=+trk+est,ip actions=NORMAL
table=1,priority=20,ct_state=+trk+est,ipv6 actions=NORMAL
"""
"""What flows that translate begin with; what opens connections comes behind."""




class Word(str):
    """A family in the words of flows, with those for its protocols and for a destination."""

    tcp = property(lambda self: {"ip": "tcp", "ipv6": "tcp6"}[self])
    udp = property(lambda self: {"ip": "udp", "ipv6": "udp6"}[self])
    src = property(lambda self: {"ip": "nw_src", "ipv6": "ipv6_src"}[self])
    dst = property(lambda self: {"ip": "nw_dst", "ipv6": "ipv6_dst"}[self])


WORDS = {4: Word("ip"), 6: Word("ipv6")}


def network(address):
    """The network of a host."""
    bits = BITS[6 if ":" in address else 4]
    return str(ipaddress.ip_network(f"{address}/{bits}", strict=False))


def sa(source, destination, family):
    """The SA from one gateway to the other for one inner family, with ends of that family."""
    spi = {"a": 0x1000, "b": 0x2000}[source] + family
    return Sa(GCM, OUTER[source][family], OUTER[destination][family], spi, reqid=family, replay_window=1024)


@dataclasses.dataclass
class Joined:
    """The namespaces and gateways, once they run."""

    left: object
    right: object
    router: object
    a: Gateway
    b: Gateway
    spaces: dict

    @contextlib.contextmanager
    def all_encrypted(self):
        """Demands that packets cross the WAN meanwhile, all of them ESP."""
        with captured(self.spaces["a"], "wan") as frames:
            yield
        protocols = {frame[14:][9] if frame[12:14] == b"\x08\x00" else frame[14:][6] for frame in map(bytes, frames)
                     if frame[12:14] in (b"\x08\x00", b"\x86\xdd") and not frame[0] & 1}
        # Gateways ask each other for their addresses now and then.
        assert protocols - {58} == {50}, protocols


def protecting(gateway, theirs, mine, family):
    """The policies of a gateway for what is between two networks."""
    other = {"a": "b", "b": "a"}[gateway]
    return [
        Policy("out", mine, theirs, sa=sa(gateway, other, family)),
        Policy("in", theirs, mine, sa=sa(other, gateway, family)),
    ]


@contextlib.contextmanager
def joined(topology, directory, a, b, right=RIGHT, workers=1, cache="on"):
    """Runs the gateways with the routes and policies of `a` and `b`, two `Config`s, beside their ports and SAs."""
    spaces = {label: topology.namespace(label) for label in ("left", "a", "b", "router", "right")}
    links = [("a", "lan", "left", "eth0"), ("a", "wan", "b", "wan"), ("b", "lan", "router", "eth0")]
    for here, near, there, far in links:
        topology.link(spaces[here], near, spaces[there], far)
    topology.link(spaces["router"], "eth1", spaces["right"], "eth0")
    for label in ("a", "b"):
        for name in ("lan", "wan"):
            spaces[label].silence(name)
    _host(spaces["left"], LEFT)
    _host(spaces["right"], right)
    _router(spaces["router"], right)
    with contextlib.ExitStack() as stack:
        running = {}
        for label, own, config in (("a", LEFT, a), ("b", MIDDLE, b)):
            config.workers = workers
            config.ipsec = {f"ipv{n}-{way}bound-spd-flow-cache": cache for n in (4, 6) for way in ("in", "out")}
            lan = [f"{own[family][0]}/{BITS[family]}" for family in (4, 6)]
            wan = [f"{OUTER[label][family]}/{BITS[family]}" for family in (4, 6)]
            config.ports = [
                Port(name, addresses, kind="af-packet", interface=name, side=side)
                for name, addresses, side in (("lan", lan, "protected"), ("wan", wan, "unprotected"))
            ]
            config.sas = [sa(*ends, family) for ends in ("ab", "ba") for family in (4, 6)]
            place = directory / label
            place.mkdir()
            running[label] = stack.enter_context(Gateway(spaces[label], config, place))
        yield Joined(spaces["left"], spaces["right"], spaces["router"], running["a"], running["b"], spaces)


def towards(label, destination):
    """A route by the other gateway, or from b by the router."""
    family = 6 if ":" in destination else 4
    via = MIDDLE[family][1] if label == "router" else OUTER[label][family]
    return Route(destination, via=via)


def _host(space, side):
    space.addresses("eth0", *(f"{side[family][1]}/{BITS[family]}" for family in (4, 6)))
    for family in (4, 6):
        space.ip(f"-{family}", "route", "add", "default", "via", side[family][0])


def _router(space, right):
    space.addresses("eth0", *(f"{MIDDLE[family][1]}/{BITS[family]}" for family in (4, 6)))
    space.addresses("eth1", *(f"{right[family][0]}/{BITS[family]}" for family in (4, 6)))
    for family in (4, 6):
        space.ip(f"-{family}", "route", "add", "default", "via", MIDDLE[family][0])
    space.sysctl("net.ipv4.ip_forward", 1)
    space.sysctl("net.ipv6.conf.all.forwarding", 1)
    # A kernel limits the errors of one kind to one destination; the tests ask for several at once.
    space.sysctl("net.ipv4.icmp_ratelimit", 0)
    space.sysctl("net.ipv6.icmp.ratelimit", 0)
