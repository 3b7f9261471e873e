"""What other connection trackers were caught at with UDP, ICMP, fragments, full tables and changed
rules, each with a real gateway and packets made by hand."""

import time

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP, IPOption_RR, fragment
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6PacketTooBig,
    ICMPv6Unknown,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    PadN,
    fragment6,
)
from scapy.packet import Raw

from harness.wires import FAR, HEAD, MARKER, OUT, Talk, Wires

pytestmark = pytest.mark.namespaces

LEFT, RIGHT = "10.1.0.2", "10.2.0.2"
LEFT6, RIGHT6 = "fd01::2", "fd02::2"


@pytest.fixture
def wires(topology, tmp_path):
    with Wires(topology, tmp_path) as made:
        yield made


def there(sport=5000, dport=6000, data=b"there", **fields):
    """A datagram of the left."""
    return IP(src=LEFT, dst=RIGHT, **fields) / UDP(sport=sport, dport=dport) / data


def back(sport=6000, dport=5000, data=b"back", **fields):
    """Its answer."""
    return IP(src=RIGHT, dst=LEFT, **fields) / UDP(sport=sport, dport=dport) / data


def there6(sport=5000, dport=6000, data=b"there", between=None):
    upper = UDP(sport=sport, dport=dport) / data
    return IPv6(src=LEFT6, dst=RIGHT6) / (between / upper if between is not None else upper)


def back6(data=b"back", between=None):
    upper = UDP(sport=6000, dport=5000) / data
    return IPv6(src=RIGHT6, dst=LEFT6) / (between / upper if between is not None else upper)


# UDP

def test_udp_in_one_direction_stays_one_connection(topology, tmp_path):
    """It lives for as long as packets come, though nobody answers."""
    with Wires(topology, tmp_path, extra="[conntrack]\ntimeouts = { udp = 2 }\n") as wires:
        assert wires.passes("left", there())
        first = wires.connection()
        for _ in range(20):
            time.sleep(0.25)
            assert wires.passes("left", there())
        assert wires.connection()["id"] == first["id"]
        assert wires.statistics()["made"] == 1
        assert wires.statistics()["expired"] == 0


@pytest.mark.parametrize("together", [False, True], ids=["one-by-one", "in-one-batch"])
def test_a_bad_datagram_does_not_shut_out_good_ones(wires, together):
    """Whose checksum is wrong has the addresses and ports of others, perhaps by forgery."""
    pairs = [
        (there(sport=7, dport=8), UDP),
        (IP(src=LEFT, dst=RIGHT) / ICMP(type=8, id=9) / b"x", ICMP),
        (IP(src=LEFT, dst=RIGHT) / TCP(sport=7, dport=8, flags="S"), TCP),
    ]
    for good, layer in pairs:
        bad = good.copy()
        bad[layer].chksum = 0x1234
        script = [bad, bad, good, bad, good, good, bad]
        if together:
            assert len(wires.send("left", *script, together=True).right) == 3
        else:
            assert [wires.passes("left", packet) for packet in script] == [p is good for p in script]
    assert len(wires.connections()) == 3


# ICMP errors

def unreachable(quoted, source=RIGHT, destination=LEFT, kind=3, code=3, **fields):
    return IP(src=source, dst=destination) / ICMP(type=kind, code=code, **fields) / bytes(quoted)[:28]


def unreachable6(quoted, source=RIGHT6, destination=LEFT6):
    return IPv6(src=source, dst=destination) / ICMPv6DestUnreach(code=4) / bytes(quoted)


def test_an_error_about_a_good_connection_passes_from_whoever_is_on_its_way(wires):
    assert wires.passes("left", there()) and wires.passes("left", there6())
    assert wires.passes("right", unreachable(there()))
    assert wires.passes("right", unreachable(there(), source="10.2.0.7"))
    assert wires.passes("right", unreachable(there(), kind=11, code=0))
    assert wires.passes("right", unreachable(there(), kind=3, code=4, nexthopmtu=1300))
    assert wires.passes("right", unreachable6(there6()))
    assert wires.passes("right", unreachable6(there6(), source="fd02::7"))
    assert wires.passes("right", IPv6(src=RIGHT6, dst=LEFT6) / ICMPv6PacketTooBig(mtu=1300) / bytes(there6()))
    # Of what the right has answered, the left may complain too.
    assert wires.passes("right", back())
    assert wires.passes("left", unreachable(back(), source=LEFT, destination=RIGHT))


def test_an_error_is_matched_by_all_that_it_says(wires):
    assert wires.passes("left", there()) and wires.passes("left", there6())
    wrong = {
        "another destination": unreachable(there(), destination="10.1.0.3"),
        "another protocol": unreachable(IP(src=LEFT, dst=RIGHT) / TCP(sport=5000, dport=6000)),
        "another port": unreachable(there(dport=6001)),
        "another port of the source": unreachable(there(sport=5001)),
        "a packet against the direction, which nobody has sent": unreachable(back(), destination=RIGHT),
        "the answer, to the left": unreachable(back()),
        "nothing": IP(src=RIGHT, dst=LEFT) / ICMP(type=3, code=3),
        "less than a header": IP(src=RIGHT, dst=LEFT) / ICMP(type=3, code=3) / bytes(there())[:19],
        "no ports": IP(src=RIGHT, dst=LEFT) / ICMP(type=3, code=3) / bytes(there())[:20],
        "a later fragment": unreachable(there(frag=5)),
        "IPv6 in IPv4": IP(src=RIGHT, dst=LEFT) / ICMP(type=3, code=3) / bytes(there6()),
        "another destination, IPv6": unreachable6(there6(), destination="fd01::3"),
        "another port, IPv6": unreachable6(there6(dport=6001)),
    }
    for what, packet in wrong.items():
        seen = wires.send("right", packet)
        assert not seen.left and not seen.right, what
    # From the inside, about what only the outside could complain of.
    assert not wires.passes("left", unreachable(back(), source=LEFT, destination=RIGHT))
    assert not wires.passes("left", unreachable(there(), source=LEFT, destination=RIGHT))
    # None of them has changed the connections.
    assert wires.passes("right", back()) and wires.passes("right", back6())
    assert len(wires.connections()) == 2


def test_a_forged_error_about_tcp_needs_a_number_on_its_way(wires):
    one = Talk(wires).opens()
    one.carries_data()
    good = one.segment("client", "PA", seq=one.seq - 4, data=b"data")
    assert wires.passes("right", unreachable(good))
    for far in (1 << 20, -(1 << 20), 1 << 31):
        bad = one.segment("client", "PA", seq=one.seq + far, data=b"data")
        assert not wires.passes("right", unreachable(bad)), far
    one.carries_data()


def test_an_error_never_answers_an_error(wires):
    """An error that quotes an error is about no connection."""
    assert wires.passes("left", there())
    assert not wires.passes("right", unreachable(unreachable(there(), LEFT, RIGHT)))


# ICMP queries

ANSWERS = {8: 0, 13: 14, 15: 16, 17: 18}
"""What answers what, of the queries that have identifiers."""


def test_only_the_answer_answers_a_query(wires):
    for query in ANSWERS:
        packet = IP(src=LEFT, dst=RIGHT) / ICMP(type=query, id=77, seq=1)
        assert wires.passes("left", packet), query
    passed = []
    for kind in range(256):
        # Errors have been asked about above; with this body they quote nothing.
        if wires.passes("right", IP(src=RIGHT, dst=LEFT, proto=1) / Raw(bytes(raw_icmp(kind, 77)))):
            passed.append(kind)
    assert passed == sorted(ANSWERS.values())
    other = IP(src=RIGHT, dst=LEFT) / ICMP(type=0, id=78)
    assert not wires.passes("right", other)


def raw_icmp(kind, identifier):
    """An ICMP message of any type, as octets, with an identifier where an echo has it."""
    packet = IP(src=RIGHT, dst=LEFT) / ICMP(type=8, id=identifier, seq=1) / bytes(12)
    head = bytearray(bytes(packet)[20:])
    head[0], head[2:4] = kind, b"\0\0"
    total = sum(int.from_bytes(head[at : at + 2]) for at in range(0, len(head), 2))
    total = (total & 0xFFFF) + (total >> 16)
    head[2:4] = (0xFFFF - total).to_bytes(2)
    return head


@pytest.mark.parametrize("kind", [64, 72, 77, 79, 81, 128, 136, 200, 255])
def test_a_type_beyond_63_is_no_echo(wires, kind):
    """A table of 64 bits that is looked up by a shift takes type 72 for 8."""
    query = IP(src=LEFT, dst=RIGHT, proto=1) / Raw(bytes(raw_icmp(kind, 77)))
    wires.passes("left", query)
    assert not wires.passes("right", IP(src=RIGHT, dst=LEFT) / ICMP(type=0, id=77, seq=1))
    for answer in (kind, kind & 63, (kind & 63) - 8 & 255):
        packet = IP(src=RIGHT, dst=LEFT, proto=1) / Raw(bytes(raw_icmp(answer, 77)))
        assert not wires.passes("right", packet), answer
    assert wires.passes("left", IP(src=LEFT, dst=RIGHT) / ICMP(type=8, id=77, seq=1))
    assert wires.passes("right", IP(src=RIGHT, dst=LEFT) / ICMP(type=0, id=77, seq=1))


def test_icmpv6_types_of_no_query_open_nothing(wires):
    assert wires.passes("left", IPv6(src=LEFT6, dst=RIGHT6) / ICMPv6EchoRequest(id=77))
    assert wires.passes("right", IPv6(src=RIGHT6, dst=LEFT6) / ICMPv6EchoReply(id=77))
    assert not wires.passes("right", IPv6(src=RIGHT6, dst=LEFT6) / ICMPv6EchoReply(id=78))
    for kind in (0, 5, 64, 65, 127, 192, 193, 200, 255):
        packet = IPv6(src=RIGHT6, dst=LEFT6) / ICMPv6Unknown(type=kind, msgbody=b"\0\x4d\0\1")
        assert not wires.passes("right", packet), kind


# Fragments

def whole(packets):
    """The body of a datagram that came in fragments."""
    body = {}
    for packet in packets:
        if IPv6 in packet:
            head = packet[IPv6ExtHdrFragment]
            body[head.offset * 8] = bytes(head.payload)
        else:
            body[packet.frag * 8] = bytes(packet.payload)
    made = b""
    assert len(body) > 1, packets
    for offset in sorted(body):
        assert offset == len(made), (offset, len(made))
        made += body[offset]
    return made


@pytest.mark.parametrize("size", [1792, 3072, 8960])
@pytest.mark.parametrize("order", ["in-order", "reversed"])
def test_fragments_of_a_good_connection_pass(wires, order, size):
    body = bytes(range(256)) * (size // 256)
    for forth, answer, cut in (
        (there(data=body), back(data=body), lambda p: fragment(p, 600)),
        (there6(data=body), back6(data=body), lambda p: fragment6(fragmentable(p), 700)),
    ):
        for side, datagram in (("left", forth), ("right", answer), ("left", forth)):
            parts = cut(datagram)
            assert len(parts) > 2
            seen = wires.send(side, *(parts if order == "in-order" else parts[::-1]))
            came = seen.right if side == "left" else seen.left
            assert whole(came) == bytes(datagram)[-len(body) - 8 :]
    assert len(wires.connections()) == 2


def fragmentable(packet):
    head = packet.copy()
    upper = head.payload
    head.remove_payload()
    return head / IPv6ExtHdrFragment(id=5, nh=17) / upper


def test_fragments_of_no_connection_and_overlapping_ones_do_not_pass(wires):
    body = bytes(range(256)) * 7
    seen = wires.send("right", *fragment(back(data=body), 600))
    assert not seen.left
    assert wires.passes("left", there())
    assert wires.send("right", *fragment(back(data=body, id=8), 600)).left
    # A connection is no excuse: the second fragment writes over the end of the first.
    parts = fragment(back(data=body, id=9), 600)
    forged = parts[1].copy()
    forged.frag -= 1
    del forged.chksum
    seen = wires.send("right", parts[0], forged, *parts[2:])
    assert not seen.left and wires.gateway.drops()["reassembly_overlap"]
    # Each by itself is no datagram.
    seen = wires.send("right", parts[1])
    assert not seen.left


def test_an_error_about_a_fragmented_datagram_passes(wires):
    parts = fragment(there(data=bytes(1700)), 1000)
    assert wires.send("left", *parts).right
    assert wires.passes("right", unreachable(parts[0]))


# Offsets in a batch

def test_options_and_extension_headers_in_one_batch(wires):
    """The place of the upper header is each packet's own: batches of plain ones and others."""
    none = lambda: []
    four = lambda: [IPOption_NOP()] * 4
    many = lambda: [IPOption_RR(routers=["0.0.0.0"] * 9, length=39, pointer=4), IPOption_NOP()]
    shapes = [none, four, none, none, many, none, four, many] * 4
    packets = [there(sport=7000 + at, options=shape()) for at, shape in enumerate(shapes)]
    long = lambda: IPv6ExtHdrHopByHop(options=[PadN(optdata=bytes(20))])
    two = lambda: IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(36))])
    alone = lambda: IPv6ExtHdrFragment(id=3, nh=17)
    wide = [lambda: None, long, two, lambda: None, alone, two, long, alone] * 4
    packets += [there6(sport=8000 + at, between=shape()) for at, shape in enumerate(wide)]
    mixed = [packet for pair in zip(packets[:32], packets[32:]) for packet in pair]
    for _ in range(3):
        seen = wires.send("left", *mixed, together=True)
        assert sorted(packet[UDP].sport for packet in seen.right) == sorted(
            [*range(7000, 7032), *range(8000, 8032)]
        )
    made = wires.connections()
    assert sorted(c["original"]["source_port"] for c in made) == [*range(7000, 7032), *range(8000, 8032)]
    assert {c["original"]["destination_port"] for c in made} == {6000}


# Full tables and what expires together

SMALL = "[conntrack]\nconnections = 64\n"


def syn(number):
    source = f"10.1.0.{2 + number % 8}"
    return IP(src=source, dst=RIGHT) / TCP(sport=10_000 + number, dport=80, flags="S", seq=5)


def test_in_a_full_table_half_open_ones_go_and_established_ones_stay(topology, tmp_path):
    with Wires(topology, tmp_path, extra=SMALL) as wires:
        talks = [Talk(wires, sport=40_000 + at).opens() for at in range(32)]
        for start in range(0, 512, 64):
            seen = wires.send("left", *(syn(number) for number in range(start, start + 64)))
            assert len(seen.right) == 64
        assert {one.state() for one in talks} == {"ESTABLISHED"}
        for one in talks[::8]:
            one.carries_data()
        done = wires.statistics()
        assert done["connections"] <= 64 and done["early_drop"] >= 512 - 64
        # All are established: nobody goes, and a new one is refused and counted.
        talks += [Talk(wires, sport=41_000 + at).opens() for at in range(32)]
        refused = wires.gateway.drops().get("connection_full", 0)
        assert refused == 0
        told = wires.gateway.run("explain", f"tcp 10.1.0.2:10001 > {RIGHT}:80 in left", check=False).stdout
        assert "refused, as the connection table is full" in told, told
        assert not wires.passes("left", syn(1))
        assert wires.gateway.drops()["connection_full"] == 1
        assert wires.statistics()["full"] == 1
        assert {one.state() for one in talks} == {"ESTABLISHED"}
        # As soon as one has ended there is room.
        talks[0].closes()
        assert wires.passes("left", syn(1))


def test_what_expires_together_goes_while_packets_pass(topology, tmp_path):
    """Twenty thousand: the time that a million takes is measured in the unit tests."""
    settings = "[conntrack]\nconnections = 32768\ntimeouts = { udp = 3 }\n"
    with Wires(topology, tmp_path, extra=settings) as wires:
        one = Talk(wires).opens()
        first = wires.frame("left", IP(src=LEFT, dst=RIGHT) / UDP(sport=0, dport=6000, chksum=0) / b"x")
        for start in range(1024, 21024, 500):
            frames = [first[:34] + port.to_bytes(2) + first[36:] for port in range(start, start + 500)]
            assert len(wires.frames("left", *frames).right) == 500
        assert wires.statistics()["made"] == 20_001
        end = time.monotonic() + 30
        while wires.statistics()["connections"] > 1:
            assert time.monotonic() < end
            one.carries_data()
        assert wires.statistics()["expired"] == 20_000


# Changed rules

def test_changed_rules_are_for_old_connections_too(wires):
    allowed = HEAD + OUT
    denied = allowed + (
        "table=1, priority=50,tcp,ct_state=+est+trk,tp_dst=80 actions=drop\n"
        "table=1, priority=50,tcp,ct_state=+est+trk,tp_src=80 actions=drop\n"
    )
    one, other = Talk(wires).opens(), Talk(wires, sport=40001, dport=443).opens()
    one.carries_data()
    wires.replace(denied)
    assert not one.says("client", "PA", data=b"x") and not one.says("server", "PA", data=b"x")
    other.carries_data()
    wires.replace(allowed)
    one.carries_data()
    # A closed rule closes at once, and does not open again by itself.
    wires.gateway.run("flow", "del", "--strict", "table=1,priority=20,ip,ct_state=+est+trk")
    assert not other.says("client", "PA", data=b"x") and not other.says("server", "PA", data=b"x")
    wires.gateway.run("flow", "add", "table=1,priority=20,ip,ct_state=+est+trk actions=NORMAL")
    other.carries_data()


def test_a_deleted_connection_is_gone_for_packets_that_are_on_their_way(wires):
    one = Talk(wires).opens()
    one.carries_data()
    wires.gateway.run("conntrack", "-D", "-p", "tcp", "--dport", "80")
    assert not one.says("server", "PA", data=b"x") and not one.says("client", "PA", data=b"x")


ZONES = """
[firewall]
[[firewall.zone]]
name = "inside"
ports = ["left"]
[[firewall.zone]]
name = "outside"
ports = ["right"]
"""
"""Nothing passes from one side to the other."""

MARKED = f"table=0, priority=65000,udp,tp_dst={MARKER} actions=NORMAL\n"


@pytest.mark.parametrize("hop_limit", [64, 255])
@pytest.mark.parametrize("code", [0, 1])
def test_what_looks_like_neighbour_discovery_is_not_routed_past_the_firewall(topology, tmp_path, code, hop_limit):
    with Wires(topology, tmp_path, MARKED, ZONES) as wires:
        for kind in range(133, 138):
            there = IPv6(src=RIGHT6, dst=LEFT6, hlim=hop_limit)
            forged = there / ICMPv6Unknown(type=kind, code=code, msgbody=b"what nobody may know" * 50)
            assert not wires.passes("right", forged), kind
        dropped = wires.gateway.drops()
        assert dropped.get("flow_drop", 0) >= 5, dropped
        # The gateway itself is found all the same.
        ask = IPv6(src=RIGHT6, dst="fd02::1", hlim=255) / ICMPv6ND_NS(tgt="fd02::1")
        ask /= ICMPv6NDOptSrcLLAddr(lladdr=FAR["right"])
        answers = wires.send("right", ask).right
        assert [answer[ICMPv6ND_NA].tgt for answer in answers] == ["fd02::1"]
