"""The same frames through Open vSwitch of Debian, in user space, and through hitpath, by the same flows: what
passes, every octet of it, how many packets each flow has had, which is what ct_state they had; and the
connections."""

import contextlib
import pprint
import re
import tempfile

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.packet import Raw

from harness.beside import difference, passed, written_down
from harness.gateway import ROOT
from harness.netns import Topology
from harness.openvswitch import Switched, need_openvswitch
from harness.wires import MARKER, Talk, Wires
from test_beside_netfilter import LEFT, RIGHT, SCRIPTS, Scripted, error, ping, udp

pytestmark = pytest.mark.namespaces

SIDES = {"left": "right", "right": "left"}

PASS = {
    # Errors about a connection may come before it has been answered.
    f"rel {ip} {side}": f"priority=30,{ip},in_port={side},ct_state=+rel-new+trk actions=output:{other}"
    for ip in ("ip", "ipv6") for side, other in SIDES.items()
} | {
    f"{state} {ip} {side}": f"priority=20,{ip},in_port={side},ct_state={bits} actions=output:{other}"
    for state, bits in (("est", "+est-rpl+trk"), ("rpl", "+est+rpl+trk"))
    for ip in ("ip", "ipv6") for side, other in SIDES.items()
}

FLOWS = {
    f"marker {side}": f"table=0,priority=65000,udp,in_port={side},tp_dst={MARKER} actions=output:{other}"
    for side, other in SIDES.items()
} | {name: f"table=1,{flow}" for name, flow in PASS.items()} | {
    f"{name} {ip}": flow.replace("IP", ip) for ip in ("ip", "ipv6") for name, flow in {
        "ct": "table=0,priority=10,IP actions=ct(table=1)",
        "inv": "table=1,priority=100,IP,ct_state=+inv+trk actions=drop",
        "new": "table=1,priority=10,IP,ct_state=+new+trk,in_port=left actions=ct(commit),output:right",
        "new right": "table=1,priority=5,IP,ct_state=+new+trk,in_port=right actions=drop",
        "other": "table=1,priority=1,IP actions=drop",
    }.items()
}
"""Name -> flow."""

INSIDE, SERVER, OUTSIDE = LEFT, RIGHT, "10.2.0.100"

NAT = FLOWS | {
    "ct ip": "table=0,priority=10,ip actions=ct(table=1,nat)",
    "new ip": f"table=1,priority=10,ip,ct_state=+new+trk,in_port=left actions=ct(commit,nat(src={OUTSIDE})),output:right",
    "forwarded": f"table=1,priority=10,tcp,ct_state=+new+trk,in_port=right,nw_dst={OUTSIDE},tp_dst=8080 "
                 f"actions=ct(commit,nat(dst={INSIDE}:80)),output:left",
}
"""The same with the source of what the left opens translated, and a port forwarded to it."""


class Beside:
    """Open vSwitch and hitpath, with one script of frames for both."""

    def __init__(self, theirs, ours):
        self.theirs, self.ours = theirs, ours
        self.flows, self.passed = FLOWS, 0
        """The last script's flows, and how many of its packets Open vSwitch has passed."""

    def begin(self):
        """The flows anew, so that they have counted nothing, and no connections."""
        flows = [f"cookie={cookie},{flow}" for cookie, flow in enumerate(self.flows.values())]
        self.theirs.switch.replace_flows(flows)
        self.theirs.switch.flush()
        # Flows that stay keep what they have counted.
        self.ours.gateway.run("flow", "del-all")
        self.ours.replace("\n".join(flows))
        self.ours.gateway.run("conntrack", "-F")

    def differences(self, script, flows=FLOWS):
        """Runs a script: (side, packet) for (side, packet). Returns what differs: what passes, step by
        step, and in the end what the flows have counted and which connections there are."""
        said, self.flows, self.passed = [], flows, 0
        self.begin()
        for step, (side, packet) in enumerate(script):
            came = [passed(one, side, packet) for one in (self.theirs, self.ours)]
            self.passed += bool(came[0])
            if words := difference(*came):
                said.append((step, *words))
        return said + [("flow", *words) for words in self.counts()] + [("connection", *words) for words in self.made()]

    def counts(self):
        """The flows that have not had as many packets, and how many theirs and ours have had."""
        theirs = counted(self.theirs.switch.dump())
        ours = counted(self.ours.gateway.run("flow", "dump").stdout)
        assert len(theirs) == len(ours) == len(self.flows), (theirs, ours)
        return [(name, theirs[cookie], ours[cookie]) for cookie, name in enumerate(self.flows)
                if not name.startswith("marker") and theirs[cookie] != ours[cookie]]

    def made(self):
        """The connections that only one has."""
        theirs = sorted(tuples(line) for line in self.theirs.switch.connections())
        ours = sorted(map(as_theirs, self.ours.connections()))
        differ = [(one, "there", "not here") for one in theirs if one not in ours]
        return differ + [(one, "not there", "here") for one in ours if one not in theirs]


def counted(dump):
    """The packets of each flow by its cookie."""
    return {int(cookie, 16): int(packets) for cookie, packets in re.findall(r"cookie=(\w+),.*? n_packets=(\d+)", dump)}


def tuples(line):
    """Both tuples of a line of `dump-conntrack`."""
    return short(re.match(r"\w+,orig=\(.*?\),reply=\(.*?\)", line)[0])


def short(line):
    """The same with less words."""
    return re.sub(r"(orig|reply)=|\b(src|dst|sport|dport|id|type|code)=", "", line)


def as_theirs(connection):
    """A connection of ours in the words of `dump-conntrack`."""
    def side(of):
        words = [f"src={of['source']}", f"dst={of['destination']}"]
        names = {"source_port": "sport", "destination_port": "dport", "icmp_id": "id", "icmp_type": "type",
                 "icmp_code": "code"}
        words += [f"{name}={of[key]}" for key, name in names.items() if key in of]
        # It says that of protocols without ports as well.
        return "(" + ",".join(words if len(words) > 2 else [*words, "sport=0", "dport=0"]) + ")"
    protocol = {"ipv6-icmp": "icmpv6", "gre": "47"}.get(connection["protocol"], connection["protocol"])
    return short(f"{protocol},orig={side(connection['original'])},reply={side(connection['reply'])}")


@pytest.fixture(scope="module")
def beside(root, tmp_path_factory):
    need_openvswitch()
    directory = tmp_path_factory.mktemp("beside-ovs")
    with contextlib.ExitStack() as stack:
        topology = stack.enter_context(Topology())
        # In a directory with a short name, for the sockets.
        short = stack.enter_context(tempfile.TemporaryDirectory(prefix="ovs", dir="/tmp"))
        theirs = stack.enter_context(Switched(topology, short))
        ours = stack.enter_context(Wires(topology, directory, "\n".join(FLOWS.values())))
        yield Beside(theirs, ours)


def both_ways(protocol, left, right):
    """A connection as `short` has it."""
    return f"{protocol},({INSIDE},{SERVER},{left}),({SERVER},{INSIDE},{right})"


def only_theirs(protocol, left, right):
    return "connection", both_ways(protocol, left, right), "there", "not here"


def only_ours(protocol, left, right):
    return "connection", both_ways(protocol, left, right), "not there", "here"


SCTP = [only_theirs("sctp", "0,0", "0,0"), only_ours("sctp", "5000,6000", "6000,5000")]

REASONS = {
    "SYNs may cross": {
        "tcp-crossing": [
            *((step, "dropped", "1 passed") for step in (1, 2, 3)),
            ("flow", "est ip left", 0, 1), ("flow", "rpl ip right", 0, 2), ("flow", "inv ip", 2, 0), ("flow", "new right ip", 1, 0),
        ],
    },
    "A SYN-ACK or reset must answer the SYN": {
        name: [(1, "1 passed", "dropped"), ("flow", "rpl ip right", 2, 1), ("flow", "inv ip", 0, 1)]
        for name in ("tcp-synack-not-of-the-syn", "tcp-forged-synack", "tcp-forged-reset-to-syn")
    },
    "A server may answer a SYN anew": {
        "tcp-synack-anew": [
            *((step, "dropped", "1 passed") for step in (3, 4, 5, 6, 7)),
            ("flow", "est ip left", 1, 3), ("flow", "rpl ip right", 1, 4), ("flow", "inv ip", 5, 0),
        ],
    },
    "A SYN with another number reaches the server": {
        "tcp-syn-anew": [(2, "dropped", "1 passed"), ("flow", "est ip left", 0, 1), ("flow", "inv ip", 2, 1)],
    },
    "An ACK alone is no answer to a SYN": {
        "tcp-forged-ack": [("flow", "est ip left", 2, 1), ("flow", "new ip", 1, 2)],
    },
    "A SYN alone opens a connection": {
        "tcp-ack-first": [
            (0, "1 passed", "dropped"), (1, "1 passed", "dropped"),
            ("flow", "rpl ip right", 1, 0), ("flow", "inv ip", 0, 2), ("flow", "new ip", 1, 0),
            only_theirs("tcp", "40000,80", "80,40000"),
        ],
        **{f"tcp-flags-{flags}": [(0, "1 passed", "dropped"), ("flow", "inv ip", 0, 1), ("flow", "new ip", 2, 1)]
           for flags in ("RAP", "FAPU")},
    },
    "A SYN may be urgent": {
        "tcp-flags-SU": [
            (0, "dropped", "1 passed"), (4, "dropped", "1 passed"),
            ("flow", "est ip left", 1, 2), ("flow", "inv ip", 3, 1), ("flow", "new ip", 1, 2),
        ],
    },
    "A SYN-ACK in an established connection is invalid": {
        "tcp-flags-SAP": [(4, "1 passed", "dropped"), ("flow", "est ip left", 2, 1), ("flow", "inv ip", 1, 2)],
    },
    "A SYN in LAST_ACK opens the connection anew": {
        "tcp-again-in-last-ack": [(5, "dropped", "1 passed"), ("flow", "inv ip", 1, 0), ("flow", "new ip", 1, 2)],
    },
    "A reset in the window passes and ends nothing": {
        "tcp-reset-in-window": [(7, "dropped", "1 passed"), ("flow", "rpl ip right", 3, 4), ("flow", "inv ip", 1, 0)],
    },
    "Data of the last window passes": {
        "tcp-data-late": [(3, "dropped", "1 passed"), ("flow", "est ip left", 3, 4), ("flow", "inv ip", 1, 0)],
    },
    "An ACK of what was not sent is invalid": {
        "tcp-ack-of-nothing": [(3, "1 passed", "dropped"), ("flow", "rpl ip right", 4, 3), ("flow", "inv ip", 0, 1)],
    },
    "A datagram in fragments is counted once": {
        "udp-in-fragments": [("flow", "rpl ip right", 3, 1), ("flow", "ct ip", 6, 2), ("flow", "new ip", 3, 1)],
    },
    "Address masks are asked for": {
        "icmp-query-17": [
            (0, "dropped", "1 passed"), (1, "dropped", "1 passed"),
            ("flow", "rpl ip right", 0, 1), ("flow", "inv ip", 2, 0), ("flow", "new ip", 0, 1),
            only_ours("icmp", "77,17,0", "77,18,0"),
        ],
    },
    "An error is about what was sent": {
        "error-about-an-answer-that-was-not": [
            (1, "1 passed", "dropped"), ("flow", "rel ip left", 1, 0), ("flow", "inv ip", 0, 1),
        ],
        "error-about-tcp-out-of-window": [
            (7, "1 passed", "dropped"), ("flow", "rel ip right", 1, 0), ("flow", "inv ip", 0, 1),
        ],
    },
    "SCTP has ports and states": {
        **{name: SCTP for name in (
            "sctp-life", "sctp-abort", "sctp-heartbeat-first", "sctp-init-again", "sctp-restart", "sctp-restart-in-shutdown",
            "sctp-restart-while-it-ends", "sctp-restart-of-the-server",
        )},
        "sctp-wrong-tag": [(4, "1 passed", "dropped"), ("flow", "rpl ip right", 4, 3), ("flow", "inv ip", 0, 1), *SCTP],
        "sctp-data-first": [(0, "1 passed", "dropped"), ("flow", "inv ip", 0, 1), ("flow", "new ip", 1, 0), SCTP[0]],
    },
    "UDP-Lite has ports and a checksum": {
        "udp-lite-without-checksum": [
            (0, "1 passed", "dropped"), ("flow", "inv ip", 0, 1), ("flow", "new ip", 1, 0), only_theirs("udplite", "0,0", "0,0"),
        ],
    },
}
"""Why -> what differs for this reason: name -> what Open vSwitch does, what hitpath does."""

NOTHING_PASSES = ["udp-short", "ping-from-outside", "icmp-types", "icmp-query-17", "error-about-nothing"]

EXPECTED = {name: said for of in REASONS.values() for name, said in of.items()}


def test_every_difference_is_written_down():
    assert written_down(ROOT / "docs" / "conntrack.md", "Differences from Open vSwitch") == list(REASONS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_do_the_same(beside, name):
    found = beside.differences(SCRIPTS[name])
    pprint.pprint(found, width=150)
    assert found == EXPECTED.get(name, []), found
    assert (beside.passed == 0) == (name in NOTHING_PASSES), beside.passed


def answers(*packets):
    """Packets of the server to the address outside."""
    return [("right", IP(src=SERVER, dst=OUTSIDE) / packet) for packet in packets]


def translated(script):
    """A script of both sides, of which the right knows the left by the address outside."""
    made = []
    for side, packet in script:
        packet = packet.copy()
        if side == "right" and packet.dst == INSIDE:
            packet.dst = OUTSIDE
        made.append((side, packet))
    return made


def forwarded():
    """A connection from the right to the forwarded port, whose answers come from the port behind it."""
    server = dict(src=INSIDE, dst=SERVER)
    segment = lambda flags, seq, ack: TCP(sport=40000, dport=8080, flags=flags, seq=seq, ack=ack)
    answer = lambda flags, seq, ack: TCP(sport=80, dport=40000, flags=flags, seq=seq, ack=ack)
    outer = IP(src=SERVER, dst=OUTSIDE)
    return [
        ("right", outer / segment("S", 1000, 0)),
        ("left", IP(**server) / answer("SA", 5000, 1001)),
        ("right", outer / segment("A", 1001, 5001)),
        ("right", outer / segment("PA", 1001, 5001) / Raw(b"GET")),
        ("left", IP(**server) / answer("PA", 5001, 1004) / Raw(b"200 OK")),
        ("left", IP(**server) / ICMP(type=3, code=4, nexthopmtu=1400) / bytes(IP(src=SERVER, dst=INSIDE) / TCP(sport=40000, dport=80, seq=1001))),
        ("right", outer / TCP(sport=40000, dport=8081, flags="S", seq=1)),
    ]


TRANSLATED = {
    name: translated(SCRIPTS[name])
    for name in ("tcp-life", "tcp-server-closes", "tcp-reset-exact", "tcp-fast-open", "tcp-scaled", "tcp-retransmission",
                 "udp", "udp-from-outside", "ping", "other-protocol")
} | {
    "error": [
        udp("left"),
        *answers(ICMP(type=3, code=3) / bytes(IP(src=OUTSIDE, dst=SERVER) / UDP(sport=5000, dport=6000) / b"data")),
        # Nobody has sent that.
        *answers(ICMP(type=3, code=3) / bytes(IP(src=OUTSIDE, dst=SERVER) / UDP(sport=5001, dport=6000) / b"data")),
    ],
    "two-destinations": [udp("left", dport=6000), udp("left", dport=6001), *answers(UDP(sport=6000, dport=5000) / b"x", UDP(sport=6001, dport=5000) / b"y")],
    "forwarded": forwarded(),
}
"""Name -> packets, of which sources and destinations are translated."""


@pytest.mark.parametrize("name", TRANSLATED)
def test_both_translate_the_same(beside, name):
    found = beside.differences(TRANSLATED[name], NAT)
    pprint.pprint(found, width=150)
    assert found == [], found
    assert beside.passed, "nothing was compared"
