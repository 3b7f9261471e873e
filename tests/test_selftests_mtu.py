"""Shell scripts of the Linux kernel's netfilter selftests that are about what is cut and joined on the way, with
hosts that are kernels: connections, translation and tunnels beside fragments and path MTU discovery."""

import json

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment

from harness import transfers
from harness.capture import captured
from harness.config import Config, Port, Route
from harness.gateway import Gateway
from harness.joined import LEFT, MIDDLE, RIGHT, WORDS, joined
from harness.selftests import Script
from test_namespaces import both_families, broken
from test_nat_tunnels import behind_the_tunnel, replace

pytestmark = pytest.mark.namespaces

TUNNEL = Script("netfilter/conntrack_ipip_mtu.sh", 2, {})
FLOWTABLE = Script("netfilter/nft_flowtable.sh", 25, {
    "IPIP and IP6IP6 tunnels, also by a VLAN": 6,
    "a bridge, also of VLANs": 4,
})

NARROW = 1400
"""The MTU between the gateways of a tunnel."""

SIZES = [1400] * 3 + [3000, 1200, 3000]
"""Of datagrams: what is cut in two, in three, and in none once its sender knows what fits the tunnel."""

DIGESTS = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as server:
    server.bind((sys.argv[1], 5000))
    while True:
        data, sender = server.recvfrom(65535)
        server.sendto(f"{sender[0]} {hashlib.sha256(data).hexdigest()}".encode(), sender)
"""
SENDER = """
import errno, hashlib, json, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
seen = set()
with socket.socket(family, socket.SOCK_DGRAM) as sender:
    sender.settimeout(10)
    sender.connect((sys.argv[1], 5000))
    sender.send(bytes(1400))
    try:
        sys.exit(f"an answer in place of an error: {sender.recv(100)}")
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
    for number, size in enumerate(json.loads(sys.argv[2])):
        data = hashlib.shake_128(b"%d" % number).digest(size)
        sender.send(data)
        peer, digest = sender.recv(100).decode().split()
        assert digest == hashlib.sha256(data).hexdigest(), (number, size)
        seen.add(peer)
print(*seen)
"""


def is_fragment(frame):
    """Whether a frame has a piece of an IP packet."""
    return IP in frame and bool(frame[IP].flags.MF or frame[IP].frag) or IPv6ExtHdrFragment in frame


def datagrams(net, family):
    """Datagrams of the left host, which sends pieces once it has been told what fits: each comes whole, and nothing
    is cut in the tunnel. Returns as whom the right host has seen it."""
    target = RIGHT[family][1]
    before = broken(net.a)
    serving = net.right.start("/usr/bin/python3", "-Ic", DIGESTS, target)
    try:
        transfers.wait_for_datagrams(net.right, 5000)
        with captured(net.left, "eth0") as sent, captured(net.spaces["a"], "wan") as outer, net.all_encrypted():
            seen = net.left.run("/usr/bin/python3", "-Ic", SENDER, target, json.dumps(SIZES)).stdout.split()
    finally:
        serving.kill()
    # 1400 bytes are two pieces, and 3000 are three.
    assert sum(map(is_fragment, sent)) == 3 * 2 + 2 * 3
    packets = [frame.payload for frame in outer if IP in frame or IPv6 in frame]
    assert max(map(len, packets)) <= NARROW and not any(map(is_fragment, outer))
    after = broken(net.a)
    grown = {reason: count - before.get(reason, 0) for reason, count in after.items() if count != before.get(reason)}
    assert grown == {"too_big": 1} and not broken(net.b), (grown, net.b.drops())
    return seen


def without_tracking(net, family):
    assert datagrams(net, family) == [LEFT[family][1]]


def with_tracking(net, family):
    """The pieces are joined to be tracked, and cut again; also where they are translated behind the tunnel."""
    word, new = WORDS[family], "table=1,priority=10,ct_state=+trk+new"
    replace(net.a, f"{new},{word},in_port=lan actions=ct(commit),NORMAL\n")
    for nat, source in (("", LEFT[family][1]), (f",nat(src={MIDDLE[family][0]})", MIDDLE[family][0])):
        replace(net.b, f"{new},{word},sa=any actions=ct(commit{nat}),NORMAL\n")
        net.left.ip(f"-{family}", "route", "flush", "cache")
        assert datagrams(net, family) == [source]
        for gateway in (net.a, net.b):
            assert gateway.json("conntrack", "-L", "-p", "udp", "--dport", 5000)


OF_TUNNEL = {"without": without_tracking, "with": with_tracking}


@both_families
@pytest.mark.parametrize("case", OF_TUNNEL.values(), ids=OF_TUNNEL)
def test_datagrams_by_a_tunnel(topology, tmp_path, case, family):
    with joined(topology, tmp_path, *behind_the_tunnel(family)) as net:
        for gateway in (net.a, net.b):
            gateway.run("link", "set", "wan", "mtu", NARROW)
        case(net, family)


ORIGINATOR = {4: ("10.0.1.1", "10.0.1.99"), 6: ("fd01::1", "fd01::99")}
BETWEEN = {4: ("192.168.10.1", "192.168.10.2"), 6: ("fd0a::1", "fd0a::2")}
RESPONDER = {4: ("10.0.2.1", "10.0.2.99"), 6: ("fd02::1", "fd02::99")}
"""Family -> the near address on a link, and the far one: the gateway is between the first two, and a Linux router
between the last two."""

LISTENER = 12345
FORWARDED = ("10.6.6.6", 1666)
"""What is led to the responder's port."""

CS3 = 96
"""The octet of the DSCP that is written."""

SMALL, LARGE = 300_000, 2_000_000


class Line:
    """Originator - gateway - router - responder, by links of three MTUs."""

    def __init__(self, topology, mtus):
        labels = ("originator", "gw", "router", "responder")
        self.originator, self.gw, self.router, self.responder = map(topology.namespace, labels)
        ends = [(self.originator, "eth0", self.gw, "v0"), (self.gw, "v1", self.router, "eth0"),
                (self.router, "eth1", self.responder, "eth0")]
        for (here, near, there, far), mtu in zip(ends, mtus):
            topology.link(here, near, there, far, mtu=mtu)
        for name in ("v0", "v1"):
            self.gw.silence(name)
        for host, link in ((self.originator, ORIGINATOR), (self.responder, RESPONDER)):
            host.addresses("eth0", *on(link, 1))
            host.sysctl("net.ipv4.tcp_no_metrics_save", 1)
            for family in (4, 6):
                host.ip(f"-{family}", "route", "add", "default", "via", link[family][0])
        self.router.addresses("eth0", *on(BETWEEN, 1))
        self.router.addresses("eth1", *on(RESPONDER, 0))
        self.router.sysctl("net.ipv4.ip_forward", 1)
        self.router.sysctl("net.ipv6.conf.all.forwarding", 1)
        for family in (4, 6):
            self.router.ip(f"-{family}", "route", "add", "default", "via", BETWEEN[family][0])
        self.config = Config(
            ports=[Port(name, on(link, 0), kind="af-packet", interface=name, mtu=mtu)
                   for name, link, mtu in (("v0", ORIGINATOR, mtus[0]), ("v1", BETWEEN, mtus[1]))],
            ipsec={f"ipv{family}-outbound-spd-flow-cache": "on" for family in (4, 6)},
            routes=[Route({4: "0.0.0.0/0", 6: "::/0"}[family], via=BETWEEN[family][1]) for family in (4, 6)],
        )

    def discover(self, is_on):
        """Whether the hosts find what fits the way, or have packets cut on it (IPv4)."""
        for host in (self.originator, self.responder):
            host.sysctl("net.ipv4.ip_no_pmtu_disc", int(not is_on))

    def hide_originator(self):
        """The responder reaches the gateway alone."""
        for family in (4, 6):
            self.responder.ip(f"-{family}", "route", "del", "default")
        self.responder.ip("route", "add", BETWEEN[4][0], "via", RESPONDER[4][0])

    def exchange(self, address, port=LISTENER, count=SMALL):
        """Sends that many bytes each way, to an address which the responder has; whom that has seen."""
        at = RESPONDER[6 if ":" in address else 4][1]
        return transfers.exchange(self.originator, address, port, self.responder, at, LISTENER, count=count)

    def pieces(self):
        """How many pieces of IPv4 packets have come to the responder, and how many the router has sent."""
        return counted(self.responder, "Ip", "ReasmReqds"), counted(self.router, "Ip", "FragCreates")


def on(link, end):
    """The addresses of one end of a link, with the lengths of their networks."""
    return [f"{link[family][end]}/{24 if family == 4 else 64}" for family in (4, 6)]


def counted(place, protocol, name):
    """What the kernel there counts of a protocol of IPv4."""
    lines = place.run("cat", "/proc/net/snmp").stdout.splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith(f"{protocol}:"))
    return int(dict(zip(names, values))[name])


def forwarding(new="", is_hidden=False, ingress="", egress="", forward=""):
    """Flows that track everything and have the originator open connections. Each mark is an action in front of others:
    of what comes by v0, of what leaves by v1, and of what leaves by v1 and is established."""
    source = f",nat(src={BETWEEN[4][0]})" if is_hidden else ""
    return f"""
table=0,priority=10,arp actions=NORMAL
table=0,priority=10,ip actions=ct(table=1,nat)
table=0,priority=10,ipv6 actions=ct(table=1,nat)
table=0,priority=20,ip,in_port=v0 actions={ingress}ct(table=1,nat)
table=1,priority=30,ip,ct_state=+rel-new+trk actions=NORMAL
table=1,priority=30,ipv6,ct_state=+rel-new+trk actions=NORMAL
table=1,priority=25,ip,ct_state=+est+trk,in_port=v0 actions={forward or egress}NORMAL
table=1,priority=20,ip,ct_state=+est+trk actions=NORMAL
table=1,priority=20,ipv6,ct_state=+est+trk actions=NORMAL
table=1,priority=10,ip,ct_state=+new+trk,in_port=v0 actions=ct(commit{source}),{egress}NORMAL
table=1,priority=10,ipv6,ct_state=+new+trk,in_port=v0 actions=ct(commit),NORMAL
{new}"""


LED = (
    f"table=1,priority=15,tcp,ct_state=+new+trk,in_port=v0,nw_dst={FORWARDED[0]},tp_dst={FORWARDED[1]} "
    f"actions=ct(commit,nat(dst={RESPONDER[4][1]}:{LISTENER})),ct(commit,nat(src={BETWEEN[4][0]},twice)),NORMAL\n"
)


def load(gateway, flows):
    gateway.run("flow", "replace", "-", stdin=flows)


def demand_pieces(line, gateway, is_discovered):
    """Packets of both hosts were cut on the way, and come whole nevertheless; or none was, as the hosts were told."""
    arrived, made = line.pieces()
    if is_discovered:
        assert (arrived, made) == (0, 0)
        assert list(broken(gateway)) == ["too_big"], gateway.drops()
    else:
        assert arrived > 50 and made > 50, (arrived, made)
        assert broken(gateway) == {}


def tracked(family):
    def case(line, gateway):
        line.discover(False)
        load(gateway, forwarding())
        assert line.exchange(RESPONDER[family][1]) == ORIGINATOR[family][1]
        if family == 4:
            demand_pieces(line, gateway, is_discovered=False)
        else:
            # No router cuts packets of IPv6.
            demand_pieces(line, gateway, is_discovered=True)

    return case


def translated(target, port, is_discovered):
    """The responder sees the gateway. Where nothing is cut, next to all packets are as the cache remembers."""

    def case(line, gateway):
        line.discover(is_discovered)
        line.hide_originator()
        load(gateway, forwarding(LED, is_hidden=True))
        assert line.exchange(target, port, LARGE if is_discovered else SMALL) == BETWEEN[4][0]
        demand_pieces(line, gateway, is_discovered)
        if is_discovered:
            totals = gateway.json("show", "cache")["totals"]
            hits = sum(row["hits"] for row in totals)
            misses = sum(sum(row["misses"].values()) for row in totals)
            assert hits > LARGE / 1500 and misses < hits / 20, (hits, misses)

    return case


def marks(line, gateway, is_discovered, **flows):
    """The octets of DSCP with which TCP packets come to the responder: of SYNs, and of the others."""
    line.discover(is_discovered)
    line.hide_originator()
    load(gateway, forwarding(is_hidden=True, **flows))
    with captured(line.responder, "eth0") as frames:
        assert line.exchange(RESPONDER[4][1]) == BETWEEN[4][0]
    demand_pieces(line, gateway, is_discovered)
    came = [frame for frame in frames if IP in frame and (frame[IP].dst, frame[IP].proto) == (RESPONDER[4][1], 6)]
    opening = [frame for frame in came if TCP in frame and frame[TCP].flags.S]
    assert opening and len(came) > 100
    return {frame[IP].tos for frame in opening}, {frame[IP].tos for frame in came if frame not in opening}


def marked(is_discovered, opening, others, **flows):
    def case(line, gateway):
        assert marks(line, gateway, is_discovered, **flows) == ({opening}, {others})

    return case


MARK = f"mod_nw_tos:{CS3},"

OF_FLOWTABLE = {
    "v4": tracked(4),
    "v6": tracked(6),
    "dscp-none": marked(False, 0, 0),
}
for is_discovered, way in ((False, "cut"), (True, "discovered")):
    OF_FLOWTABLE |= {
        f"dscp-ingress-{way}": marked(is_discovered, CS3, CS3, ingress=MARK),
        f"dscp-egress-{way}": marked(is_discovered, CS3, CS3, egress=MARK),
        f"dscp-forward-{way}": marked(is_discovered, 0, CS3, forward=MARK),
        f"masquerade-{way}": translated(RESPONDER[4][1], LISTENER, is_discovered),
        f"dnat-{way}": translated(*FORWARDED, is_discovered),
    }

MTUS = (9000, 1500, 2000)
OTHER_MTUS = [(8000, 1280, 3000), (3000, 1400, 9000)]


def run(topology, directory, mtus, case):
    line = Line(topology, mtus)
    with Gateway(line.gw, line.config, directory) as gateway:
        case(line, gateway)


@pytest.mark.parametrize("case", OF_FLOWTABLE.values(), ids=OF_FLOWTABLE)
def test_transfers_by_links_of_different_mtus(topology, tmp_path, case):
    run(topology, tmp_path, MTUS, case)


@pytest.mark.parametrize("mtus", OTHER_MTUS, ids=str)
@pytest.mark.parametrize("name", ["v4", "dnat-discovered"])
def test_transfers_by_links_of_other_mtus(topology, tmp_path, name, mtus):
    run(topology, tmp_path, mtus, OF_FLOWTABLE[name])


@both_families
def test_transfers_by_a_tunnel(topology, tmp_path, family):
    """Connections that are tracked before encryption and behind decryption, by links that take less than the hosts'."""
    with joined(topology, tmp_path, *behind_the_tunnel(family)) as net:
        word, new = WORDS[family], "table=1,priority=10,ct_state=+trk+new"
        replace(net.a, f"{new},{word},in_port=lan actions=ct(commit),NORMAL\n")
        replace(net.b, f"{new},{word},sa=any actions=ct(commit),NORMAL\n")
        target = RIGHT[family][1]
        with net.all_encrypted():
            seen = transfers.exchange(net.left, target, LISTENER, net.right, target, LISTENER, count=SMALL)
        assert seen == LEFT[family][1]
        for gateway in (net.a, net.b):
            (one,) = gateway.json("conntrack", "-L", "-p", "tcp")
            assert "ASSURED" in one["status"]
            # Each host is told what fits the tunnel.
            assert list(broken(gateway)) == ["too_big"], gateway.drops()


CASES = {TUNNEL: OF_TUNNEL, FLOWTABLE: [*OF_FLOWTABLE, "ipsec-v4", "ipsec-v6"]}


@pytest.mark.parametrize("script", CASES, ids=lambda script: script.name)
def test_every_case_is_counted(script):
    script.demand_all_counted(passed=len(CASES[script]))
