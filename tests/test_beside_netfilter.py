"""The same packets through Linux's nftables and conntrack and through hitpath: what passes, what it
is then, and every connection with its state, marks and timeout."""

import contextlib
import pprint

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, IPv6
from scapy.layers.sctp import (
    SCTP,
    SCTPChunkAbort,
    SCTPChunkCookieAck,
    SCTPChunkCookieEcho,
    SCTPChunkData,
    SCTPChunkHeartbeatReq,
    SCTPChunkInit,
    SCTPChunkInitAck,
    SCTPChunkShutdown,
    SCTPChunkShutdownAck,
    SCTPChunkShutdownComplete,
)
from scapy.packet import Raw

from harness import beside, captures
from harness.gateway import ROOT
from harness.needs import need
from harness.netfilter import Netfilter, need_netfilter, read
from harness.netns import Topology
from harness.wires import HEAD, HOSTS, OUT, Talk, Wires

pytestmark = pytest.mark.namespaces

LEFT, RIGHT = "10.1.0.2", "10.2.0.2"
LEFT6, RIGHT6 = "fd01::2", "fd02::2"
TIMEOUTS = [3, 10, 30, 60, 120, 180, 210, 300, 600, 432_000]
"""Those that there are, in seconds."""


class Both:
    """Linux and hitpath, with one script of packets for both."""

    def __init__(self, kernel, hitpath):
        self.kernel, self.hitpath = kernel, hitpath
        self.passed = self.made = 0
        """Packets that Linux has passed, and connections that it had, where they were compared."""

    def send(self, side, packet):
        """What comes of a packet at each of them: octets of what came out at the other side."""
        return [beside.passed(one, side, packet) for one in (self.kernel, self.hitpath)]

    def entries(self):
        """The connections of each, `read`."""
        return [self.kernel.entries(), read(self.hitpath.gateway.run("conntrack", "-L").stdout.splitlines())]

    def flush(self):
        self.kernel.flush()
        self.hitpath.gateway.run("conntrack", "-F")

    def differences(self, script):
        """Runs a script: (side, packet) for (side, packet). Returns what differs, step by step."""
        said = []
        for step, (side, packet) in enumerate(script):
            said += self.verdicts(step, side, packet) + self.states(step)
        return said

    def verdicts(self, step, side, packet):
        """What differs in what becomes of a packet: the step, what Linux does, what hitpath does."""
        kernel, hitpath = self.send(side, packet)
        self.passed += bool(kernel)
        words = beside.difference(kernel, hitpath)
        return [(step, *words)] if words else []

    def states(self, step):
        """What differs in the connections: the step, what Linux has, what hitpath has."""
        said, (theirs, ours) = [], self.entries()
        self.made += len(theirs)
        for key in sorted(theirs.keys() | ours.keys()):
            one, other = theirs.get(key), ours.get(key)
            if one is None or other is None or one[0] != other[0]:
                said.append((step, *(" ".join(e[0]) or key[0] if e else "no connection" for e in (one, other))))
            elif longest(one[1]) != longest(other[1]):
                said.append((step, *(f"{longest(seconds)} s" for _, seconds in (one, other))))
        return said


def longest(seconds, timeouts=TIMEOUTS):
    """The timeout of a connection that ends in so many seconds, if that was set a moment ago. However slow the
    machine is, hardly so long ago that the next shorter one is meant."""
    return min(timeout for timeout in timeouts if timeout >= seconds)


@pytest.fixture(scope="module")
def both(root, tmp_path_factory):
    yield from pair(tmp_path_factory.mktemp("beside"), "", HEAD + OUT)


def pair(directory, chains, flows, extra=""):
    need_netfilter()
    with Topology() as topology:
        with Netfilter(topology, chains) as kernel, Wires(topology, directory, flows, extra) as hitpath:
            yield Both(kernel, hitpath)


class Scripted:
    """Stands for wires on which everything passes, to write scripts with `Talk`."""

    def __init__(self):
        self.script = []

    def passes(self, side, packet):
        self.script.append((side, packet))
        return True


def tcp(*steps, **options):
    """A script of TCP segments: `(who, flags)` or `(who, flags, fields)`."""
    wires = Scripted()
    talk = Talk(wires, **options)
    for step in steps:
        who, flags, fields = (*step, {})[:3]
        fields = dict(fields)
        for number in ("seq", "ack"):
            # Relative to what is right.
            if number in fields:
                own, other = (talk.seq, talk.ack) if who == "client" else (talk.ack, talk.seq)
                fields[number] += own if number == "seq" else other
        talk.says(who, flags, **fields)
    return wires.script


C, S = "client", "server"
OPEN = [(C, "S"), (S, "SA"), (C, "A")]
DATA = [(C, "PA", {"data": b"data"}), (S, "A"), (S, "PA", {"data": b"data"}), (C, "A")]
CLOSE = [(C, "FA"), (S, "A"), (S, "FA"), (C, "A")]


def sctp(*steps):
    """A script of SCTP chunks: `(side, tag, chunk)`."""
    made = []
    for side, tag, chunk in steps:
        ends = (LEFT, RIGHT) if side == "left" else (RIGHT, LEFT)
        ports = (5000, 6000) if side == "left" else (6000, 5000)
        made.append((side, IP(src=ends[0], dst=ends[1]) / SCTP(sport=ports[0], dport=ports[1], tag=tag) / chunk))
    return made


def init(kind, tag):
    return kind(init_tag=tag, a_rwnd=65535, n_out_streams=1, n_in_streams=1, init_tsn=1)


ASSOCIATION = [
    ("left", 0, init(SCTPChunkInit, 7)),
    ("right", 7, init(SCTPChunkInitAck, 9)),
    ("left", 9, SCTPChunkCookieEcho(cookie=b"cookie!!")),
    ("right", 7, SCTPChunkCookieAck()),
]


RESTART = [
    ("left", 0, init(SCTPChunkInit, 17)),
    ("right", 17, init(SCTPChunkInitAck, 19)),
    ("left", 19, SCTPChunkCookieEcho(cookie=b"cookie!!")),
    ("right", 17, SCTPChunkCookieAck()),
    ("left", 19, SCTPChunkData(tsn=1, data=b"data")),
    ("right", 17, SCTPChunkData(tsn=1, data=b"data")),
    ("left", 19, SCTPChunkShutdown(cumul_tsn_ack=1)),
    ("right", 17, SCTPChunkShutdownAck()),
    ("left", 19, SCTPChunkShutdownComplete()),
]


def turned(steps):
    """The same by the other side."""
    return [({"left": "right", "right": "left"}[side], tag, chunk) for side, tag, chunk in steps]


def udp(side, sport=5000, dport=6000, data=b"data", **fields):
    ends = (LEFT, RIGHT) if side == "left" else (RIGHT, LEFT)
    ports = (sport, dport) if side == "left" else (dport, sport)
    return side, IP(src=ends[0], dst=ends[1], **fields) / UDP(sport=ports[0], dport=ports[1]) / data


def ping(side, kind, number=77, **fields):
    ends = (LEFT, RIGHT) if side == "left" else (RIGHT, LEFT)
    return side, IP(src=ends[0], dst=ends[1], **fields) / ICMP(type=kind, id=number, seq=1) / b"ping"


def ping6(side, message):
    ends = (LEFT6, RIGHT6) if side == "left" else (RIGHT6, LEFT6)
    return side, IPv6(src=ends[0], dst=ends[1]) / message


def error(side, quoted, source=None, destination=None, kind=3, code=3):
    ends = (LEFT, RIGHT) if side == "left" else (RIGHT, LEFT)
    return side, IP(src=source or ends[0], dst=destination or ends[1]) / ICMP(type=kind, code=code) / bytes(quoted)


def whole(side, script):
    """The fragments of a script's datagram, sent together."""
    return side, fragment(script[1], 600)


SCRIPTS = {
    "tcp-life": tcp(*OPEN, *DATA, *CLOSE),
    "tcp-life-v6": tcp(*OPEN, *DATA, *CLOSE, client=LEFT6, server=RIGHT6),
    "tcp-server-closes": tcp(*OPEN, (S, "FA"), (C, "A"), (C, "PA", {"data": b"x"}), (S, "A"), (C, "FA"), (S, "A")),
    "tcp-both-close": tcp(*OPEN, (C, "FA"), (S, "FA", {"ack": -1}), (C, "A"), (S, "A")),
    "tcp-syn-again": tcp((C, "S"), (C, "S", {"seq": -1}), (S, "SA"), (S, "SA", {"seq": -1}), (C, "A")),
    "tcp-refused": tcp((C, "S"), (S, "RA"), (C, "S", {"seq": 1000}), (S, "RA", {"ack": 1001})),
    "tcp-syn-in-established": tcp(*OPEN, (C, "S", {"seq": 5000}), *DATA),
    "tcp-reset-exact": tcp(*OPEN, *DATA, (C, "R")),
    "tcp-reset-by-server": tcp(*OPEN, *DATA, (S, "RA")),
    "tcp-reset-wild": tcp(*OPEN, *DATA, (C, "R", {"seq": 1 << 20}), (S, "R", {"seq": 1 << 20}), *DATA),
    "tcp-reset-in-window": tcp(*OPEN, *DATA, (S, "R", {"seq": 100})),
    "tcp-fin-wild": tcp(*OPEN, *DATA, (C, "FA", {"seq": 1 << 20}), (S, "FA", {"seq": 1 << 20}), *DATA),
    "tcp-data-too-early": tcp(*OPEN, (C, "PA", {"seq": 70_000, "data": b"x"}), *DATA),
    "tcp-data-late": tcp(*OPEN, (C, "PA", {"seq": -70_000, "data": b"x"}), *DATA),
    "tcp-data-too-late": tcp(*OPEN, (C, "PA", {"seq": -200_000, "data": b"x"}), *DATA),
    "tcp-ack-of-nothing": tcp(*OPEN, (S, "A", {"ack": 10_000}), *DATA),
    "tcp-retransmission": tcp(*OPEN, DATA[0], (C, "PA", {"seq": -4, "data": b"data"}), *DATA[1:]),
    "tcp-keepalive": tcp(*OPEN, *DATA, (C, "A", {"seq": -1}), (S, "A"), (C, "A", {"seq": -1, "data": b"x"}), (S, "A")),
    "tcp-zero-window": tcp(*OPEN, *DATA, (S, "A", {"window": 0}), (C, "A", {"data": b"x"}), (S, "A", {"ack": -1, "window": 0}), (S, "A")),
    "tcp-crossing": tcp((C, "S"), (S, "S"), (C, "SA", {"seq": -1}), (S, "SA", {"seq": -1})),
    "tcp-fast-open": tcp((C, "S", {"data": b"GET"}), (S, "SA"), (C, "A"), *DATA),
    "tcp-scaled": tcp(
        (C, "S", {"options": [("WScale", 7)]}), (S, "SA", {"options": [("WScale", 7)]}), (C, "A"),
        (C, "A", {"seq": 400_000, "data": b"x"}), (S, "A", {"ack": 0}),
    ),
    "tcp-synack-not-of-the-syn": tcp((C, "S"), (S, "SA", {"ack": -1}), (S, "SA"), (C, "A")),
    "tcp-synack-anew": tcp(
        (C, "S"), (S, "SA"), (C, "S", {"seq": -1}), *[(S, "SA", {"seq": 900_000})] * 2,
        (C, "A", {"ack": 900_001}), (S, "PA", {"seq": 900_001, "data": b"data"}), (C, "A", {"ack": 900_005}),
    ),
    "tcp-syn-anew": tcp((C, "S"), (S, "SA"), (C, "S", {"seq": 77_000}), (S, "SA", {"seq": 900_000, "ack": 77_001})),
    "tcp-synack-first": tcp((S, "SA"), (C, "S")),
    "tcp-ack-first": tcp((C, "A"), (S, "A")),
    "tcp-forged-synack": tcp((C, "S"), (S, "SA", {"ack": 500, "seq": 9}), (S, "SA"), (C, "A")),
    "tcp-forged-ack": tcp((C, "S"), (S, "A", {"ack": 500, "seq": 9}), (C, "S", {"seq": -1}), (S, "SA"), (C, "A")),
    "tcp-forged-reset-to-syn": tcp((C, "S"), (S, "RA", {"ack": 500, "seq": 9}), (S, "SA"), (C, "A")),
    "tcp-again-after-time-wait": tcp(*OPEN, *CLOSE, (C, "S", {"seq": 100_000}), (S, "SA", {"seq": 100_000, "ack": 100_001})),
    "tcp-again-after-reset": tcp(*OPEN, (C, "R"), (C, "S", {"seq": 100_000}), (S, "SA", {"seq": 100_000, "ack": 100_001})),
    "tcp-again-in-last-ack": tcp(*OPEN, (C, "FA"), (S, "FA"), (C, "S", {"seq": 100_000})),
    **{f"tcp-flags-{flags or 'none'}": tcp((C, flags), *OPEN, (C, flags), (S, flags))
       for flags in ("", "FPU", "SF", "SR", "F", "FR", "P", "U", "FSRPAU", "SU", "SAP", "RAP", "FAPU")},
    "udp": [udp("left"), udp("left"), udp("right"), udp("left"), udp("right")],
    "udp-from-outside": [udp("right"), udp("left"), udp("right")],
    "udp-bad-checksum": [
        ("left", IP(src=LEFT, dst=RIGHT) / UDP(sport=5, dport=6, chksum=9) / b"x"),
        ("left", IP(src=LEFT, dst=RIGHT) / UDP(sport=5, dport=6) / b"x"),
    ],
    "udp-no-checksum": [("left", IP(src=LEFT, dst=RIGHT) / UDP(sport=5, dport=6, chksum=0) / b"x")],
    "udp-hop-limit": [udp("left", ttl=1)],
    "udp-short": [("left", IP(src=LEFT, dst=RIGHT) / UDP(sport=5, dport=6, len=100) / b"x")],
    "udp-in-fragments": [whole("left", udp("left", data=bytes(1600))), whole("right", udp("right", data=bytes(1600)))],
    "ping": [ping("left", 8), ping("right", 0), ping("left", 8), ping("right", 0), ping("right", 0, 78)],
    "ping-from-outside": [ping("right", 8), ping("right", 0)],
    "ping-both-ways": [ping("left", 8), ping("right", 8), ping("right", 0)],
    "icmp-types": [ping("left", kind) for kind in (0, 5, 6, 7, 9, 10, 14, 30, 42, 43, 64, 72, 255)],
    **{f"icmp-query-{kind}": [ping("left", kind), ping("right", kind + 1)] for kind in (13, 15, 17)},
    "ping6": [
        ping6("left", ICMPv6EchoRequest(id=77)), ping6("right", ICMPv6EchoReply(id=77)),
        ping6("right", ICMPv6EchoReply(id=78)), ping6("right", ICMPv6EchoRequest(id=77)),
    ],
    "error": [udp("left"), error("right", udp("left")[1]), udp("right"), error("left", udp("right")[1])],
    "error-elsewhere": [udp("left"), error("right", udp("left")[1], destination="10.1.0.3")],
    "error-of-a-router": [udp("left"), error("right", udp("left")[1], source="10.2.0.7", kind=11, code=0)],
    "error-wrong-way": [udp("left"), error("left", udp("left")[1])],
    "error-about-an-answer-that-was-not": [udp("left"), error("left", udp("right")[1])],
    "error-about-nothing": [error("right", udp("left")[1])],
    "error-about-tcp-out-of-window": [
        *tcp(*OPEN, *DATA), error("right", tcp(*OPEN, (C, "A", {"seq": 1 << 20}))[3][1]),
    ],
    "error-6": [
        ping6("left", UDP(sport=5, dport=6) / b"x"),
        ping6("right", ICMPv6DestUnreach(code=4) / bytes(IPv6(src=LEFT6, dst=RIGHT6) / UDP(sport=5, dport=6) / b"x")),
    ],
    "sctp-life": sctp(
        *ASSOCIATION,
        ("left", 9, SCTPChunkData(tsn=1, data=b"data")),
        ("left", 9, SCTPChunkShutdown(cumul_tsn_ack=1)),
        ("right", 7, SCTPChunkShutdownAck()),
        ("left", 9, SCTPChunkShutdownComplete()),
    ),
    "sctp-abort": sctp(*ASSOCIATION, ("right", 7, SCTPChunkAbort())),
    "sctp-wrong-tag": sctp(*ASSOCIATION, ("right", 8, SCTPChunkAbort()), ("right", 7, SCTPChunkData(tsn=1, data=b"data"))),
    "sctp-data-first": sctp(("left", 9, SCTPChunkData(tsn=1, data=b"data"))),
    "sctp-heartbeat-first": sctp(("left", 9, SCTPChunkHeartbeatReq()), ("right", 7, SCTPChunkHeartbeatReq())),
    "sctp-restart": sctp(*ASSOCIATION, *RESTART),
    "sctp-restart-in-shutdown": sctp(*ASSOCIATION, ("left", 9, SCTPChunkShutdown(cumul_tsn_ack=1)), *RESTART),
    "sctp-restart-while-it-ends": sctp(
        *ASSOCIATION, ("left", 9, SCTPChunkShutdown(cumul_tsn_ack=1)), ("right", 7, SCTPChunkShutdownAck()), RESTART[0],
        ("right", 7, SCTPChunkShutdownAck()), ("left", 7, SCTPChunkShutdownComplete(TCB=1)),
    ),
    "sctp-restart-of-the-server": sctp(*ASSOCIATION, *turned(RESTART)),
    "sctp-init-again": sctp(ASSOCIATION[0], ASSOCIATION[0], *ASSOCIATION[1:]),
    "gre": [("left", IP(src=LEFT, dst=RIGHT, proto=47) / Raw(bytes(12))), ("right", IP(src=RIGHT, dst=LEFT, proto=47) / Raw(bytes(12)))],
    "other-protocol": [
        ("left", IP(src=LEFT, dst=RIGHT, proto=99) / Raw(bytes(12))),
        ("right", IP(src=RIGHT, dst=LEFT, proto=99) / Raw(bytes(12))),
    ],
    "udp-lite-without-checksum": [
        ("left", IP(src=LEFT, dst=RIGHT, proto=136) / Raw(bytes(UDP(sport=5, dport=6, len=8, chksum=0)) + b"x")),
    ],
}
"""Name -> packets."""

REASONS = {
    "A handshake is over when both SYNs are acknowledged": {
        "tcp-crossing": [(3, "SYN_RECV", "ESTABLISHED [ASSURED]")],
    },
    "TIME_WAIT begins when both FINs are acknowledged": {
        "tcp-both-close": [(5, "TIME_WAIT [ASSURED]", "LAST_ACK [ASSURED]")],
    },
    "A SYN in LAST_ACK opens the connection anew": {
        "tcp-again-in-last-ack": [(5, "LAST_ACK [ASSURED]", "SYN_SENT [UNREPLIED]")],
    },
    "A SYN-ACK must acknowledge the SYN": {
        "tcp-synack-not-of-the-syn": [
            (1, "1 passed", "dropped"), (1, "SYN_RECV", "SYN_SENT [UNREPLIED]"),
            (3, "dropped", "1 passed"), (3, "SYN_RECV", "ESTABLISHED [ASSURED]"),
        ],
    },
    "A SYN with another number does not count once the first is answered": {
        "tcp-syn-anew": [(3, "1 passed", "dropped")],
    },
    "An ACK alone is no answer to a SYN": {
        "tcp-forged-ack": [(step, "SYN_SENT", "SYN_SENT [UNREPLIED]") for step in (1, 2)],
        "of10_pf5240.pcap": [
            (47, "no connection", "CLOSE [UNREPLIED]"), (47, "SYN_SENT", "SYN_SENT [UNREPLIED]"),
            (47, "no connection", "CLOSE [UNREPLIED]"),
        ],
    },
    "A refused connection is shown as CLOSE": {
        "tcp-refused": [(step, "no connection", "CLOSE [UNREPLIED]") for step in (1, 3)],
        "of10_7050sx_bsn.pcap": [(52, "no connection", "CLOSE [UNREPLIED]")],
    },
    "What is out of the window changes no timeout": {
        "tcp-reset-wild": [(8, "300 s", "432000 s")],
        "tcp-fin-wild": [(8, "300 s", "432000 s")],
        "tcp-reset-in-window": [(7, "10 s", "432000 s")],
    },
    "A closed window changes no timeout": {"tcp-zero-window": [(7, "300 s", "432000 s")]},
    "Data much older than a window is invalid": {"tcp-data-too-late": [(3, "1 passed", "dropped")]},
    "An error is about what was sent": {
        "error-about-an-answer-that-was-not": [(1, "1 passed", "dropped")],
        "error-about-tcp-out-of-window": [(7, "1 passed", "dropped")],
    },
    "SCTP that restarts keeps its state until the cookie comes": {
        "sctp-restart-in-shutdown": [
            (0, "CLOSED [UNREPLIED]", "COOKIE_WAIT [UNREPLIED]"),
            (5, "CLOSED [ASSURED]", "SHUTDOWN_SENT [ASSURED]"),
            (6, "COOKIE_WAIT [ASSURED]", "SHUTDOWN_SENT [ASSURED]"),
        ],
        "sctp-restart-while-it-ends": [
            (0, "CLOSED [UNREPLIED]", "COOKIE_WAIT [UNREPLIED]"),
            (8, "dropped", "1 passed"),
            (8, "SHUTDOWN_ACK_SENT [ASSURED]", "CLOSED [ASSURED]"),
        ],
    },
    "SCTP begins in COOKIE_WAIT": {
        **{name: [(0, "CLOSED [UNREPLIED]", "COOKIE_WAIT [UNREPLIED]")]
           for name in ("sctp-life", "sctp-abort", "sctp-wrong-tag", "sctp-restart", "sctp-restart-of-the-server")},
        "sctp-init-again": [(step, "CLOSED [UNREPLIED]", "COOKIE_WAIT [UNREPLIED]") for step in (0, 1)],
    },
    "Other protocols are assured by an answer": {
        "other-protocol": [(1, "unknown", "[ASSURED]")],
        "EIGRP_adjacency.pcap": [(8, "unknown", "[ASSURED]")],
        "EIGRP_subnet_down.pcap": [(6, "unknown", "[ASSURED]")],
        "EIGRP_subnet_up.pcap": [(2, "unknown", "[ASSURED]")],
        "PIM_register_register-stop.pcap": [(1, "unknown", "[ASSURED]")],
        "mrinfo_query.pcap": [(1, "unknown", "[ASSURED]")],
        "pim-packet-assortment.pcap": [(23, "unknown", "[ASSURED]")],
    },
    "GRE is a protocol like others": {
        "gre": [(0, "30 s", "600 s"), (1, "gre", "[ASSURED]")],
        "isis-infinite-loop.pcap": [(0, "30 s", "600 s")],
        "pptp.pcap": [(22, "30 s", "600 s")],
    },
    "DCCP is a protocol like others": {
        "dccp_options-oobr.pcap": [
            (6, "dccp", "no connection"), (6, "no connection", "[ASSURED]"),
            (6, "no connection", "[UNREPLIED]"),
        ],
        **{f"dccp_partial_csum_{name}.pcap": [(step, "dccp", "no connection"), (step, "no connection", "[ASSURED]")]
           for name, step in (("v4_longer", 14), ("v4_simple", 6), ("v6_longer", 8), ("v6_simple", 6))},
    },
    "The checksum of UDP is that of its length": {
        f"dns-zlip-{number}.pcap": [(0, "1 passed", "dropped"), (0, "[UNREPLIED]", "no connection")]
        for number in (1, 2, 3)
    },
}
"""Why -> what differs for this reason: name -> the step, what Linux does, what hitpath does."""

EXPECTED = {name: said for of in REASONS.values() for name, said in of.items()}


def test_every_difference_is_written_down():
    assert beside.written_down(ROOT / "docs" / "conntrack.md", "Differences from Linux") == list(REASONS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_do_the_same(both, name):
    both.flush()
    found = both.differences(SCRIPTS[name])
    assert found == EXPECTED.get(name, []), found


MOST = 60
"""Packets of a capture."""

OF_CAPTURES = {name: said for name, said in EXPECTED.items() if name.endswith(".pcap")}
COMPARED = {"strict": (921, 111), "loose": (938, 121)}
"""Packets that passed, and connections, of all captures."""


@pytest.mark.parametrize("loose", COMPARED)
def test_captures_of_others_are_the_same_to_both(root, tmp_path, loose):
    """The captures that tcpdump is tested with, malformed ones among them, with their own addresses."""
    files, why = captures.tcpdump(tmp_path)
    need(files, why)
    (tmp_path / "gateway").mkdir()
    extra = f"[conntrack]\nloose = {str(loose == 'loose').lower()}\n"
    with contextlib.contextmanager(pair)(tmp_path / "gateway", "", HEAD + OUT, extra) as both:
        both.kernel.sysctl("net.netfilter.nf_conntrack_tcp_loose", int(loose == "loose"))
        found = {name: said for name, path in files.items() if (said := capture(both, path))}
    # Whole, as pytest shortens it.
    pprint.pprint(found, width=150)
    assert found == OF_CAPTURES
    assert (both.passed, both.made) == COMPARED[loose]


def capture(both, path):
    """What differs in a capture."""
    of, script = captures.sides(captures.packets(path, MOST))
    for address, side in of.items():
        both.kernel.route(side, address)
        via = HOSTS[side][8 if address.version == 6 else 0]
        both.hitpath.gateway.run(f"-{address.version}", "route", "replace", address, "via", via, "dev", side)
    said = []
    for step, (side, packet) in enumerate(script):
        said += both.verdicts(step, side, packet)
    if script:
        said += both.states(len(script) - 1)
        both.flush()
    return said
