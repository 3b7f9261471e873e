"""The same packets through NAT of Linux's nftables and of hitpath: what comes out, with its addresses
and ports, and every connection with both tuples, state and timeout.

Where both keep a port, it is compared. Where both choose one, each has to choose it from the same
range and for itself alone; it is called `chosen` then, and the rest is compared.
"""

import dataclasses
import difflib
import re
import time

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, IPv6
from scapy.layers.sctp import SCTP
from scapy.packet import Raw

from harness.gateway import ROOT
from harness.netfilter import Netfilter, need_netfilter
from harness.netns import Topology
from harness.wires import HEAD, Wires, demand_checksums
from test_beside_netfilter import ASSOCIATION, longest
from test_beside_netfilter import REASONS as WITHOUT_NAT

pytestmark = pytest.mark.namespaces

LEFT, OTHER, RIGHT, FAR, PUBLIC, OUTSIDE = "10.1.0.2", "10.1.0.3", "10.2.0.2", "10.2.0.3", "10.2.0.100", "10.2.0.1"
LEFT6, OTHER6, RIGHT6, PUBLIC6 = "fd01::2", "fd01::3", "fd02::2", "fd02::100"

SETTINGS = {
    "udp_timeout": 300, "udp_timeout_stream": 900, "icmp_timeout": 200, "icmpv6_timeout": 250,
    "sctp_timeout_cookie_wait": 100, "sctp_timeout_cookie_echoed": 100, "sctp_timeout_closed": 100,
    "tcp_timeout_last_ack": 100,
}
"""Timeouts that are long enough for a slow machine, for both."""

TIMEOUTS = sorted({60, 120, 210, 600, 432_000, *SETTINGS.values()})
"""Of what is tried here."""

INPUT = "chain input { type filter hook input priority 0; policy drop; udp dport MARKER accept; }\n"
"""Nothing is for the router, as in `HEAD`."""


def post(rule):
    return INPUT + f"chain post {{ type nat hook postrouting priority 100; udp dport MARKER accept; {rule}; }}\n"


def pre(rule):
    return INPUT + f"chain pre {{ type nat hook prerouting priority -100; udp dport MARKER accept; {rule}; }}\n"


def flow(match, actions):
    return f"table=1,priority=10,ct_state=+new+trk,{match} actions={actions},NORMAL\n"


@dataclasses.dataclass
class Rules:
    """What each of them is told."""

    kernel: str
    hitpath: str


RULES = {
    "address": Rules(
        post(f'oifname right snat ip to {PUBLIC}'),
        flow("ip,in_port=left", f"ct(commit,nat(src={PUBLIC}))"),
    ),
    "masquerade": Rules(
        post("oifname right ip version 4 masquerade"),
        flow("ip,in_port=left", f"ct(commit,nat(src={OUTSIDE}))"),
    ),
    "ports": Rules(
        post(f"oifname right meta l4proto {{ tcp, udp }} snat ip to {PUBLIC}:4000-4003"),
        flow("tcp,in_port=left", f"ct(commit,nat(src={PUBLIC}:4000-4003))")
        + flow("udp,in_port=left", f"ct(commit,nat(src={PUBLIC}:4000-4003))"),
    ),
    "random": Rules(
        post(f"oifname right snat ip to {PUBLIC} fully-random"),
        flow("ip,in_port=left", f"ct(commit,nat(src={PUBLIC},random))"),
    ),
    "addresses": Rules(
        post("oifname right snat ip to 10.2.0.100-10.2.0.103 persistent"),
        flow("ip,in_port=left", "ct(commit,nat(src=10.2.0.100-10.2.0.103,persistent))"),
    ),
    "v6": Rules(
        post(f"oifname right snat ip6 to {PUBLIC6}"),
        flow("ipv6,in_port=left", f"ct(commit,nat(src={PUBLIC6}))"),
    ),
    "service": Rules(
        pre(f"iifname right ip daddr {PUBLIC} tcp dport 8080 dnat ip to {LEFT}:80;"
            f"iifname right ip daddr {PUBLIC} udp dport 53 dnat ip to {LEFT};"
            f"iifname right ip daddr {PUBLIC} icmp type echo-request dnat ip to {LEFT}"),
        flow(f"tcp,in_port=right,nw_dst={PUBLIC},tp_dst=8080", f"ct(commit,nat(dst={LEFT}:80))")
        + flow(f"udp,in_port=right,nw_dst={PUBLIC},tp_dst=53", f"ct(commit,nat(dst={LEFT}))")
        + flow(f"icmp,in_port=right,nw_dst={PUBLIC}", f"ct(commit,nat(dst={LEFT}))"),
    ),
    "servers": Rules(
        pre(f"iifname right ip daddr {PUBLIC} udp dport 53 dnat ip to 10.1.0.2-10.1.0.5"),
        flow(f"udp,in_port=right,nw_dst={PUBLIC},tp_dst=53", "ct(commit,nat(dst=10.1.0.2-10.1.0.5))"),
    ),
    "server-ports": Rules(
        pre(f"iifname right ip daddr {PUBLIC} udp dport 50-60 dnat ip to {LEFT}:53-56"),
        flow(f"udp,in_port=right,nw_dst={PUBLIC},tp_dst=50-60", f"ct(commit,nat(dst={LEFT}:53-56))"),
    ),
    "service-v6": Rules(
        pre(f"iifname right ip6 daddr {PUBLIC6} udp dport 53 dnat ip6 to [{LEFT6}]:5353"),
        flow(f"udp6,in_port=right,ipv6_dst={PUBLIC6},tp_dst=53", f"ct(commit,nat(dst=[{LEFT6}]:5353))"),
    ),
    "hairpin": Rules(
        pre(f"iifname left ip daddr {PUBLIC} tcp dport 8080 dnat ip to {OTHER}:80")
        + "chain post { type nat hook postrouting priority 100; udp dport MARKER accept;"
        f" iifname left oifname left snat ip to {PUBLIC}; }}\n",
        flow(f"tcp,in_port=left,nw_dst={PUBLIC},tp_dst=8080",
             f"ct(commit,nat(dst={OTHER}:80)),ct(commit,nat(src={PUBLIC},twice))"),
    ),
    "twice": Rules(
        pre(f"iifname left ip daddr 10.2.0.200 dnat ip to {RIGHT}")
        + "chain post { type nat hook postrouting priority 100; udp dport MARKER accept;"
        f" oifname right snat ip to {PUBLIC}; }}\n",
        flow("ip,in_port=left,nw_dst=10.2.0.200", f"ct(commit,nat(dst={RIGHT})),ct(commit,nat(src={PUBLIC},twice))"),
    ),
}


class One:
    """One of them, with what was seen of it."""

    def __init__(self, name, wires, lines):
        self.name, self._wires, self._lines = name, wires, lines
        self.seen = []
        """A line for each thing that was seen."""
        self._chosen, self._entries = {}, []

    def send(self, side, packet, chooses=None):
        """Sends a packet. Returns what came out at the other side, or at the same if nothing did there.

        `chooses` are ports or addresses, of which the packet's source, or destination, is one now.
        """
        came = self._wires.send(side, packet)
        other = came.right if side == "left" else came.left
        back = came.left if side == "left" else came.right
        found = (other or back or [None])[0]
        if found is not None and chooses:
            self._note(found, chooses)
        for where, packets in (("on", other), ("back", back)):
            self.seen += [f"{where}: {self._shown(one)}" for one in packets]
        if not other + back:
            self.seen.append("dropped")
        self._look(packet)
        return found

    def says(self, what):
        self.seen.append(str(what))

    def _note(self, packet, chooses):
        values = {"src": packet.src, "dst": packet.dst, **ports(packet)}
        value = values[chooses.field]
        assert value in chooses.among, (self.name, chooses, value)
        self._chosen[protocol(describe(packet)), str(value)] = f"chosen{len(self._chosen)}"

    def _shown(self, packet):
        demand_checksums(packet)
        return self._named(describe(packet))

    def _look(self, packet):
        """Notes what connections there are, if these are others than before, and the timeout of the packet's."""
        words = {f"src={packet.src}", f"dst={packet.dst}"} | {f"{name}={port}" for name, port in ports(packet).items()}
        entries, timeouts = [], []
        for line in self._lines():
            line = re.sub(r" (mark|use|zone|id|delta-time)=\S+(?= mark| use|$)", "", line)
            name, _, seconds, *rest = line.split()
            entries.append(self._named(" ".join([name, *rest])))
            ends = [word for word in rest if "=" in word]
            half = len(ends) // 2
            if any(words <= set(end) for end in (ends[:half], ends[half:])):
                timeouts.append(f"timeout {longest(int(seconds), TIMEOUTS)}")
        if sorted(entries) != self._entries:
            self._entries = sorted(entries)
            self.seen += self._entries or ["no connection"]
        self.seen += sorted(timeouts)

    def _named(self, text):
        of = protocol(text)
        return re.sub(r"(?<==)[0-9a-f.:]+", lambda found: self._chosen.get((of, found[0]), found[0]), text)


def protocol(text):
    """Which protocol a packet or an entry is of. Two of them may choose the same number, by chance."""
    found = re.search(r"\b(tcp|udp|sctp|icmp)", text.lower())
    return found[1] if found else ""


@dataclasses.dataclass
class Chooses:
    """A field that both choose, and what may be chosen."""

    field: str
    among: object


def ports(packet):
    for layer in (TCP, UDP, SCTP):
        if layer in packet:
            return {"sport": packet[layer].sport, "dport": packet[layer].dport}
    for layer in (ICMP, ICMPv6EchoRequest, ICMPv6EchoReply):
        if layer in packet:
            return {"id": packet[layer].id}
    return {}


def describe(packet, quoted=False):
    """A packet as text, with all of it but its checksums, whose being right was looked at."""
    hop = packet.ttl if IP in packet else packet.hlim
    said = [f"src={packet.src} dst={packet.dst}" + ("" if quoted else f" hop {hop}")]
    upper = packet.payload
    inner = upper.payload
    if isinstance(upper, ICMP) and upper.type in (3, 4, 5, 11, 12):
        return f"{said[0]} type {upper.type} code {upper.code} about ({describe(IP(bytes(inner)), quoted=True)})"
    if isinstance(upper, ICMPv6DestUnreach):
        return f"{said[0]} type 1 code {upper.code} about ({describe(IPv6(bytes(inner)), quoted=True)})"
    said += [f"{name}={value}" for name, value in ports(packet).items()]
    if isinstance(upper, TCP):
        said.append(f"{upper.flags} {upper.seq} {upper.ack}")
    if isinstance(upper, UDP):
        said.append("no checksum" if upper.chksum == 0 else "")
    return " ".join(said) + f" {type(upper).__name__} {bytes(inner).hex()[:80]}"


@pytest.fixture(scope="module")
def both(root, tmp_path_factory):
    need_netfilter()
    with Topology() as topology:
        settings = "".join(f"{name.replace('_timeout', '').replace('_', '-')} = {seconds}\n" for name, seconds in SETTINGS.items())
        extra = f"[conntrack.timeouts]\n{settings}"
        with Netfilter(topology, INPUT) as kernel, Wires(topology, tmp_path_factory.mktemp("nat"), extra=extra) as hitpath:
            for name, seconds in SETTINGS.items():
                kernel.sysctl(f"net.netfilter.nf_conntrack_{name}", seconds)
            yield kernel, hitpath


def run(both, rules, case):
    """What is seen of a case at each of them."""
    kernel, hitpath = both
    kernel.replace(RULES[rules].kernel)
    hitpath.replace(HEAD + RULES[rules].hitpath)
    kernel.flush()
    hitpath.gateway.run("conntrack", "-F")
    ones = [
        One("linux", kernel, kernel.lines),
        One("hitpath", hitpath, lambda: hitpath.gateway.run("conntrack", "-L").stdout.splitlines()),
    ]
    for one in ones:
        case(one)
    return [one.seen for one in ones]


def udp(source=LEFT, sport=5000, destination=RIGHT, dport=6000, data=b"data", **fields):
    network = IPv6 if ":" in source else IP
    return network(src=source, dst=destination, **fields) / UDP(sport=sport, dport=dport) / Raw(data)


def tcp(source=LEFT, sport=5000, destination=RIGHT, dport=80, flags="S", seq=1, ack=0):
    return IP(src=source, dst=destination) / TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack)


def echo(source=LEFT, destination=RIGHT, kind=8, number=77):
    return IP(src=source, dst=destination) / ICMP(type=kind, id=number, seq=1) / b"ping"


def answer(packet, data=b"back"):
    """A datagram that answers what came out."""
    network = IPv6 if IPv6 in packet else IP
    return network(src=packet.dst, dst=packet.src) / UDP(sport=packet[UDP].dport, dport=packet[UDP].sport) / Raw(data)


def error(about, source=None, kind=3, code=3):
    """An ICMP error of who got a packet, or of a router on its way."""
    if IPv6 in about:
        return IPv6(src=source or about.dst, dst=about.src) / ICMPv6DestUnreach(code=4) / bytes(about)
    return IP(src=source or about.dst, dst=about.src) / ICMP(type=kind, code=code) / bytes(about)


HIGH, MIDDLE, LOW = range(1024, 65536), range(600, 1024), range(1, 512)


def talks(one, client="left", **fields):
    """A datagram, its answer and another one."""
    server = "right" if client == "left" else "left"
    came = one.send(client, udp(**fields))
    one.send(server, answer(came))
    one.send(client, udp(**fields))


def handshake(one, client="left", source=LEFT, **fields):
    """A TCP connection from SYN to TIME_WAIT."""
    server = "right" if client == "left" else "left"
    came = one.send(client, tcp(source, **fields))
    back = {"source": came.dst, "sport": came[TCP].dport, "destination": came.src, "dport": came[TCP].sport}
    one.send(server, tcp(**back, flags="SA", seq=100, ack=2))
    one.send(client, tcp(source, **fields, flags="A", seq=2, ack=101))
    one.send(client, tcp(source, **fields, flags="FA", seq=2, ack=101))
    one.send(server, tcp(**back, flags="FA", seq=101, ack=3))
    one.send(client, tcp(source, **fields, flags="A", seq=3, ack=102))


def keeps(one):
    """Ports and identifiers that nobody else has are kept."""
    for sport in (1, 80, 511, 512, 700, 1023, 1024, 5000, 65535):
        talks(one, sport=sport)
    handshake(one)
    for number in (0, 77, 65535):
        came = one.send("left", echo(number=number))
        one.send("right", echo(RIGHT, came.src, 0, came[ICMP].id))


def collides(one):
    """A second host with the same port, to the same destination, in each class of ports."""
    for sport, among in ((100, LOW), (700, MIDDLE), (5000, HIGH)):
        one.send("left", udp(sport=sport))
        came = one.send("left", udp(OTHER, sport), Chooses("sport", among))
        one.send("right", answer(came))
        one.send("left", tcp(sport=sport))
        came = one.send("left", tcp(OTHER, sport), Chooses("sport", among))
        one.send("right", tcp(RIGHT, 80, came.src, came[TCP].sport, "SA", 100, 2))


def collides_echo(one):
    one.send("left", echo())
    came = one.send("left", echo(OTHER), Chooses("id", range(65536)))
    one.send("right", echo(RIGHT, came.src, 0, came[ICMP].id))
    one.send("right", echo(RIGHT, came.src, 0, 77))


def queries(kind):
    """Two hosts that ask with identifiers of their own, and a third with one that is taken."""
    def ask(one):
        for source, number in ((LEFT, 77), (OTHER, 78)):
            one.send("left", echo(source, kind=kind, number=number))
        for number in (78, 77):
            one.send("right", echo(RIGHT, PUBLIC, kind + 1, number))
        came = one.send("left", echo(OTHER, kind=kind), Chooses("id", range(65536)))
        one.send("right", echo(RIGHT, came.src, kind + 1, came[ICMP].id))
    return ask


def shares(one):
    """The same port of several hosts, each to another destination: all keep it."""
    for host, destination in enumerate(("10.2.0.2", "10.2.0.3", "10.2.0.4", "10.2.0.5"), 2):
        for dport in (6000, 6001):
            one.send("left", udp(f"10.1.0.{host}", 5000, destination, dport + 10 * host))


def errors(one):
    """ICMP errors from where the packet went, from a router, and from inside about the answer."""
    came = one.send("left", udp())
    one.send("right", error(came))
    one.send("right", error(came, "10.2.0.7", 11, 0))
    one.send("right", error(came, "10.2.0.7", 3, 4))
    inside = one.send("right", answer(came))
    one.send("left", error(inside))
    one.send("left", error(inside, "10.1.0.7", 11, 0))
    # About the packet as it was inside, and to the address inside.
    one.send("right", error(udp()))
    one.send("right", IP(src=RIGHT, dst=LEFT) / ICMP(type=3, code=3) / bytes(came))
    # About another port.
    one.send("right", error(udp(came.src, came[UDP].sport ^ 1)))


def errors_of_others(one):
    """Errors about TCP and about echo."""
    came = one.send("left", tcp())
    one.send("right", error(came))
    came = one.send("left", echo())
    one.send("right", error(came, code=1))


def errors_v6(one):
    came = one.send("left", udp(LEFT6, 5000, RIGHT6))
    one.send("right", error(came))
    one.send("right", error(came, "fd02::7"))
    inside = one.send("right", answer(came))
    one.send("left", error(inside))


def strangers(one):
    """Who was not asked gets nothing through."""
    came = one.send("left", udp())
    for stranger in (udp(FAR, 6000, came.src, 5000), udp(RIGHT, 6001, came.src, 5000), udp(RIGHT, 6000, came.src, 5001),
                     udp(RIGHT, 6000, LEFT, 5000), echo(RIGHT, came.src), tcp(RIGHT, 6000, came.src, 5000)):
        one.send("right", stranger)


def few_ports(one):
    """Four ports for six connections to one destination, and for one to another."""
    taken = []
    for sport in range(7000, 7006):
        came = one.send("left", udp(sport=sport), Chooses("sport", range(4000, 4004)) if len(taken) < 4 else None)
        if came is not None:
            taken.append(came[UDP].sport)
    one.says(f"{len(set(taken))} ports for {len(taken)} connections")


def kept_in_range(one):
    one.send("left", udp(sport=4002))
    one.send("left", tcp(sport=4003))


def at_random(one):
    for sport in (100, 5000, 5001):
        came = one.send("left", udp(sport=sport), Chooses("sport", range(1, 65536)))
        one.says(f"kept {came[UDP].sport == sport}") if sport == 5000 else None


def several_addresses(one):
    """A source has one address for all its destinations, and keeps its ports."""
    among = [f"10.2.0.{at}" for at in range(100, 104)]
    first = one.send("left", udp(), Chooses("src", among))
    others = [one.send("left", udp(sport=5001 + at, destination=to)).src for at, to in enumerate((RIGHT, FAR, FAR))]
    one.says(f"one address: {set(others) == {first.src}}")
    one.send("right", answer(first))


def several_servers(one):
    among = [f"10.1.0.{at}" for at in range(2, 6)]
    first = one.send("right", udp(RIGHT, 5000, PUBLIC, 53), Chooses("dst", among))
    one.send("left", answer(first))
    one.send("right", udp(RIGHT, 5000, PUBLIC, 53))
    again = one.send("right", udp(RIGHT, 5001, PUBLIC, 53))
    one.says(f"a client has one server: {again.dst == first.dst}")


def several_server_ports(one):
    one.send("right", udp(RIGHT, 5000, PUBLIC, 55))
    came = one.send("right", udp(RIGHT, 5000, PUBLIC, 59), Chooses("dport", range(53, 57)))
    one.send("left", answer(came))


def service(one):
    handshake(one, "right", RIGHT, destination=PUBLIC, dport=8080)
    came = one.send("right", udp(RIGHT, 5000, PUBLIC, 53))
    one.send("left", answer(came))
    one.send("left", error(came))
    one.send("right", error(udp(PUBLIC, 53, RIGHT, 5000)))
    came = one.send("right", echo(RIGHT, PUBLIC))
    one.send("left", echo(LEFT, RIGHT, 0))
    # What is not forwarded.
    one.send("right", tcp(RIGHT, 5000, PUBLIC, 81))
    one.send("right", udp(RIGHT, 5000, LEFT, 53))


def service_v6(one):
    talks(one, "right", source=RIGHT6, sport=5000, destination=PUBLIC6, dport=53)


def v6(one):
    talks(one, source=LEFT6, destination=RIGHT6)
    one.send("left", udp(LEFT6, 700, RIGHT6))
    came = one.send("left", udp(OTHER6, 700, RIGHT6), Chooses("sport", MIDDLE))
    one.send("right", answer(came))
    came = one.send("left", IPv6(src=LEFT6, dst=RIGHT6) / ICMPv6EchoRequest(id=77, data=b"ping"))
    one.send("right", IPv6(src=RIGHT6, dst=came.src) / ICMPv6EchoReply(id=77, data=b"ping"))


def hairpin(one):
    came = one.send("left", tcp(destination=PUBLIC, dport=8080))
    one.send("left", tcp(came.dst, 80, came.src, came[TCP].sport, "SA", 100, 2))
    one.send("left", tcp(destination=PUBLIC, dport=8080, flags="A", seq=2, ack=101))


def twice(one):
    talks(one, destination="10.2.0.200")
    came = one.send("left", udp(sport=5001, destination="10.2.0.200"))
    one.send("right", error(came))


def hop_limits(one):
    """Errors of the router itself, about a packet of a connection, both ways."""
    came = one.send("left", udp())
    one.send("left", udp(ttl=1))
    back = answer(came)
    back.ttl = 1
    one.send("right", back)


def without_checksum(one):
    packet = udp()
    packet[UDP].chksum = 0
    came = one.send("left", packet)
    back = answer(came)
    back[UDP].chksum = 0
    one.send("right", back)


def other_protocols(one):
    for source in (LEFT, OTHER):
        one.send("left", IP(src=source, dst=RIGHT, proto=99) / Raw(bytes(12)))
    one.send("right", IP(src=RIGHT, dst=PUBLIC, proto=99) / Raw(bytes(12)))


def association(one):
    """SCTP."""
    for side, tag, chunk in ASSOCIATION:
        ends = (LEFT, RIGHT, 5000, 6000) if side == "left" else (RIGHT, PUBLIC, 6000, 5000)
        one.send(side, IP(src=ends[0], dst=ends[1]) / SCTP(sport=ends[2], dport=ends[3], tag=tag) / chunk)


def stream(one):
    """The timeout of a connection that lasts for more than two seconds."""
    talks(one)
    time.sleep(2.5)
    talks(one)


CASES = {
    "keeps": ("address", keeps),
    "collides": ("address", collides),
    "collides-echo": ("address", collides_echo),
    **{f"queries-{kind}": ("address", queries(kind)) for kind in (13, 15, 17)},
    "shares": ("address", shares),
    "errors": ("address", errors),
    "errors-of-others": ("address", errors_of_others),
    "strangers": ("address", strangers),
    "hop-limits": ("address", hop_limits),
    "without-checksum": ("address", without_checksum),
    "other-protocols": ("address", other_protocols),
    "association": ("address", association),
    "stream": ("address", stream),
    "masquerade-keeps": ("masquerade", keeps),
    "masquerade-collides": ("masquerade", collides),
    "masquerade-errors": ("masquerade", errors),
    "masquerade-strangers": ("masquerade", strangers),
    "few-ports": ("ports", few_ports),
    "kept-in-range": ("ports", kept_in_range),
    "random": ("random", at_random),
    "several-addresses": ("addresses", several_addresses),
    "several-servers": ("servers", several_servers),
    "several-server-ports": ("server-ports", several_server_ports),
    "service": ("service", service),
    "service-v6": ("service-v6", service_v6),
    "v6": ("v6", v6),
    "errors-v6": ("v6", errors_v6),
    "hairpin": ("hairpin", hairpin),
    "twice": ("twice", twice),
}
"""Name -> the rules, and what is sent."""

END = "src=10.1.0.2 dst=10.2.0.2"
REASONS = {
    "An error of the gateway has the gateway's address": {
        "hop-limits": [
            "- back: src=10.2.0.100 dst=10.2.0.2 hop 64 type 11 code 0"
            " about (src=10.2.0.2 dst=10.2.0.100 sport=6000 dport=5000  UDP 6261636b)",
            "+ back: src=10.2.0.1 dst=10.2.0.2 hop 64 type 11 code 0"
            " about (src=10.2.0.2 dst=10.2.0.100 sport=6000 dport=5000  UDP 6261636b)",
        ],
    },
}
"""Why -> what differs for this reason: name -> lines of Linux (-) and of hitpath (+)."""

BY_HAND = (
    "Masquerade on a port with several networks",
    "A masqueraded connection before its answer, whose route moves",
)
"""Differences that need more networks than the ports of this file have."""

OF_CONNECTIONS = {
    "Other protocols are assured by an answer": {
        "other-protocols": [
            f"- unknown {END} src=10.2.0.2 dst=10.2.0.100",
            f"+ unknown {END} src=10.2.0.2 dst=10.2.0.100 [ASSURED]",
        ],
    },
    "SCTP begins in COOKIE_WAIT": {
        "association": [
            f"- sctp CLOSED {END} sport=5000 dport=6000 [UNREPLIED] src=10.2.0.2 dst=10.2.0.100 sport=6000 dport=5000",
            f"+ sctp COOKIE_WAIT {END} sport=5000 dport=6000 [UNREPLIED] src=10.2.0.2 dst=10.2.0.100 sport=6000 dport=5000",
        ],
    },
}
"""The same for reasons that have nothing to do with NAT."""

EXPECTED = {name: said for all_of in (REASONS, OF_CONNECTIONS) for of in all_of.values() for name, said in of.items()}


def test_every_difference_is_written_down():
    text = (ROOT / "docs" / "nat.md").read_text()
    section = text.split("## Differences from Linux\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (.+?) \| .+ \| .+ \|$", section, re.MULTILINE)
    assert rows[2:] == [*REASONS, *BY_HAND]
    assert OF_CONNECTIONS.keys() <= WITHOUT_NAT.keys()


@pytest.mark.parametrize("name", CASES)
def test_both_translate_alike(both, name):
    linux, hitpath = run(both, *CASES[name])
    assert any("chosen" in line or PUBLIC in line or OUTSIDE in line or PUBLIC6 in line for line in linux), linux
    found = differences(linux, hitpath)
    assert found == EXPECTED.get(name, []), "\n".join([name, *found])


def differences(linux, hitpath):
    """Lines of the one (-) and of the other (+) alone."""
    return [line for line in difflib.ndiff(linux, hitpath) if line[0] in "-+"]
