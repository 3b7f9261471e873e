"""What other translators were caught at, each with a real gateway and packets made by hand."""

import time

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import ICMPv6DestUnreach, IPv6
from scapy.layers.sctp import SCTP, SCTPChunkInit, SCTPChunkInitAck

from harness.wires import HEAD, MARKER, Talk, Wires, demand_checksums

pytestmark = pytest.mark.namespaces

LEFT, RIGHT, PUBLIC = "10.1.0.2", "10.2.0.2", "10.2.0.100"
LEFT6, RIGHT6, PUBLIC6 = "fd01::2", "fd02::2", "fd02::100"

MASQUERADE = HEAD + f"""
table=1, priority=10,ip,ct_state=+new+trk,in_port=left actions=ct(commit,nat(src={PUBLIC})),NORMAL
table=1, priority=10,ipv6,ct_state=+new+trk,in_port=left actions=ct(commit,nat(src={PUBLIC6})),NORMAL
"""
BOTH = HEAD + f"""
table=1, priority=10,tcp,ct_state=+new+trk,in_port=left actions=ct(commit,nat(src={PUBLIC})),NORMAL
table=1, priority=10,tcp,ct_state=+new+trk,in_port=right,nw_dst={PUBLIC},tp_dst=8080 actions=ct(commit,nat(dst={LEFT}:80)),NORMAL
"""


@pytest.fixture
def wires(topology, tmp_path):
    with Wires(topology, tmp_path, MASQUERADE) as made:
        yield made


def one(packets):
    """The only packet, with right checksums."""
    assert len(packets) == 1, packets
    demand_checksums(packets[0])
    return packets[0]


def datagram(source=LEFT, sport=5000, dport=6000, data=b"there", **fields):
    return IP(src=source, dst=RIGHT, **fields) / UDP(sport=sport, dport=dport) / data


def opened(wires, **fields):
    """Opens a connection of UDP; the packet that came out."""
    return one(wires.send("left", datagram(**fields)).right)


def test_the_whole_range_of_ports_is_used(topology, tmp_path):
    """Sixty thousand connections to one place leave by one address, each with a port of its own.

    Eight hosts send from the same 7,500 ports, so that hardly any can keep its own.
    """
    settings = "[conntrack]\nconnections = 65536\ntimeouts = { udp = 600 }\n"
    wanted = 60_000
    with Wires(topology, tmp_path, MASQUERADE, settings) as wires:
        ports = set()
        for host in range(2, 10):
            source = f"10.1.0.{host}"
            first = wires.frame("left", IP(src=source, dst=RIGHT) / UDP(sport=1, dport=6000, chksum=0) / b"x")
            packets = [first[:34] + (2000 + at).to_bytes(2) + first[36:] for at in range(7500)]
            for start in range(0, 7500, 500):
                came = wires.frames("left", *packets[start : start + 500]).right
                assert {frame[26:30] for frame in came} == {bytes([10, 2, 0, 100])}
                ports |= {int.from_bytes(frame[34:36]) for frame in came}
        assert len(ports) == wanted
        assert min(ports) >= 1024
        assert wires.statistics()["connections"] == wanted
        assert not wires.gateway.drops().get("nat_exhausted")
        # Each answer finds its way back: of the first, a middle and the last port.
        for port in (min(ports), 30_000, max(ports)):
            if port in ports:
                answer = IP(src=RIGHT, dst=PUBLIC) / UDP(sport=6000, dport=port) / b"back"
                back = one(wires.send("right", answer).left)
                assert back.dst.startswith("10.1.0.") and 2000 <= back[UDP].dport < 9500


def test_exhausted_ports_are_counted_and_concern_nobody_else(topology, tmp_path):
    few = MASQUERADE.replace(f"nat(src={PUBLIC})", f"nat(src={PUBLIC}:4000-4007)")
    with Wires(topology, tmp_path, few) as wires:
        talks = [Talk(wires, sport=7000 + at) for at in range(8)]
        ports = set()
        for talk in talks:
            came = one(wires.send("left", talk.segment("client", "S")).right)
            ports.add(came[TCP].sport)
        assert ports == set(range(4000, 4008))
        for at in range(8, 20):
            assert not wires.send("left", Talk(wires, sport=7000 + at).segment("client", "S")).right
        assert wires.gateway.drops()["nat_exhausted"] == 12
        # Another destination is not concerned, as the tuples differ.
        assert wires.send("left", Talk(wires, sport=7000, server="10.2.0.3").segment("client", "S")).right
        assert len(wires.connections()) == 9


def test_closed_connections_make_way_where_no_port_is_left(topology, tmp_path):
    """As in Linux and in a full table: a busy client would wait two minutes for each of a pool's ports."""
    few = MASQUERADE.replace(f"nat(src={PUBLIC})", f"nat(src={PUBLIC}:4000-4003)")
    with Wires(topology, tmp_path, few) as wires:

        def opened(sport):
            """The port that a connection gets."""
            came = wires.send("left", Talk(wires, sport=sport).segment("client", "S")).right
            return one(came)[TCP].sport if came else None

        def explained(sport):
            words = f"tcp {LEFT}:{sport} > {RIGHT}:80 tcp-flags syn in left"
            return wires.gateway.run("explain", words, check=False).stdout

        ports = [opened(7000 + at) for at in range(4)]
        assert sorted(ports) == [4000, 4001, 4002, 4003]
        assert "the NAT pool is exhausted" in explained(8000)
        assert opened(8000) is None
        # One host says that nobody is there, and one connection ends in order.
        refused = IP(src=RIGHT, dst=PUBLIC) / TCP(sport=80, dport=ports[1], flags="RA", ack=1001)
        assert wires.send("right", refused).left
        for by, flags, seq, ack in [("server", "SA", 5000, 1001), ("client", "A", 1001, 5001), ("client", "FA", 1001, 5001),
                                    ("server", "FA", 5001, 1002), ("client", "A", 1002, 5002)]:
            ends = (LEFT, RIGHT, 7002, 80) if by == "client" else (RIGHT, PUBLIC, 80, ports[2])
            segment = IP(src=ends[0], dst=ends[1]) / TCP(sport=ends[2], dport=ends[3], flags=flags, seq=seq, ack=ack)
            assert wires.passes("left" if by == "client" else "right", segment), (by, flags)
        assert sorted(c["state"] for c in wires.connections()) == ["CLOSE", "SYN_SENT", "SYN_SENT", "TIME_WAIT"]
        assert "in the place of a closed connection: no other port is left" in explained(8001)
        assert {opened(8001), opened(8002)} == {ports[1], ports[2]}
        assert opened(8003) is None
        counted = wires.statistics()
        assert (counted["early_drop"], counted["connections"]) == (2, 4)
        assert wires.gateway.drops()["nat_exhausted"] == 2
        # Those that were open are as they were.
        assert {c["original"]["source_port"] for c in wires.connections()} == {7000, 7003, 8001, 8002}


def test_a_checksum_of_zero_stays_zero_and_one_that_becomes_zero_is_written_as_ones(wires):
    came = one(wires.send("left", IP(src=LEFT, dst=RIGHT) / UDP(sport=5000, dport=6000, chksum=0) / b"x").right)
    assert came.src == PUBLIC and came[UDP].chksum == 0
    port = came[UDP].sport
    answer = IP(src=RIGHT, dst=PUBLIC) / UDP(sport=6000, dport=port, chksum=0) / b"y"
    back = one(wires.send("right", answer).left)
    assert back[UDP].chksum == 0 and back.dst == LEFT
    # What would be zero after the translation is sent as its other form, and so it stays.
    bare = IP(bytes(IP(src=PUBLIC, dst=RIGHT) / UDP(sport=port, dport=6000) / b"\0\0"))
    body = bare[UDP].chksum.to_bytes(2)
    assert IP(bytes(IP(src=PUBLIC, dst=RIGHT) / UDP(sport=port, dport=6000) / body))[UDP].chksum in (0, 0xFFFF)
    came = one(wires.send("left", datagram(data=body)).right)
    assert came[UDP].sport == port and came[UDP].chksum == 0xFFFF


def test_an_error_to_the_translated_address_reaches_who_is_meant(wires):
    came = opened(wires)
    for source in (RIGHT, "10.2.0.7"):
        for kind, code in ((3, 3), (3, 4), (11, 0)):
            error = IP(src=source, dst=PUBLIC) / ICMP(type=kind, code=code) / bytes(came)
            seen = one(wires.send("right", error).left)
            assert (seen.src, seen.dst) == (source, LEFT)
            quoted = IP(bytes(seen[ICMP].payload))
            assert (quoted.src, quoted.dst) == (LEFT, RIGHT)
            assert (quoted[UDP].sport, quoted[UDP].dport) == (5000, 6000)
            demand_quoted_checksums(quoted)
    # Forged: to another address, about another port, or about the packet as the inside sent it.
    for wrong in (
        IP(src=RIGHT, dst=LEFT) / ICMP(type=3, code=3) / bytes(came),
        IP(src=RIGHT, dst=LEFT) / ICMP(type=3, code=3) / bytes(datagram(ttl=63)),
        IP(src=RIGHT, dst=PUBLIC) / ICMP(type=3, code=3) / bytes(datagram(ttl=63)),
        IP(src=RIGHT, dst=PUBLIC) / ICMP(type=3, code=3)
        / bytes(IP(src=PUBLIC, dst=RIGHT) / UDP(sport=came[UDP].sport ^ 1, dport=6000)),
    ):
        assert not wires.send("right", wrong).left


def demand_quoted_checksums(quoted):
    """Those of the quoted packet are right, too: some hosts look."""
    again = quoted.copy()
    del again.chksum
    if UDP in again:
        del again[UDP].chksum
    assert bytes(again) == bytes(quoted)


def test_an_error_of_ipv6_to_the_translated_address_reaches_who_is_meant(wires):
    sent = IPv6(src=LEFT6, dst=RIGHT6) / UDP(sport=5000, dport=6000) / b"there"
    came = one(wires.send("left", sent).right)
    assert came.src == PUBLIC6
    error = IPv6(src="fd02::7", dst=PUBLIC6) / ICMPv6DestUnreach(code=4) / bytes(came)
    seen = one(wires.send("right", error).left)
    quoted = IPv6(bytes(seen[ICMPv6DestUnreach].payload))
    assert (seen.dst, quoted.src, quoted.dst, quoted[UDP].sport) == (LEFT6, LEFT6, RIGHT6, 5000)


def test_an_error_of_a_host_inside_leaves_with_the_public_address(wires):
    came = opened(wires)
    answer = IP(src=RIGHT, dst=PUBLIC) / UDP(sport=6000, dport=came[UDP].sport) / b"back"
    inside = one(wires.send("right", answer).left)
    error = IP(src=LEFT, dst=RIGHT) / ICMP(type=3, code=3) / bytes(inside)
    seen = one(wires.send("left", error).right)
    quoted = IP(bytes(seen[ICMP].payload))
    assert (seen.src, seen.dst) == (PUBLIC, RIGHT)
    assert (quoted.src, quoted.dst, quoted[UDP].dport) == (RIGHT, PUBLIC, came[UDP].sport)
    demand_quoted_checksums(quoted)


def test_nothing_of_a_batch_leaves_untranslated(wires):
    """First packets, those right behind them in the same batch, and pieces of datagrams."""
    for number in range(20):
        ports = [5000 + number * 10 + at for at in range(4)]
        body = bytes(1600)
        batch = []
        for port in ports:
            batch += [datagram(sport=port)] * 3
            batch += fragment(datagram(sport=port, data=body, id=port), 800)
            batch.append(Talk(wires, sport=port).segment("client", "S"))
        seen = wires.send("left", *batch, together=True)
        assert {packet.src for packet in seen.right} == {PUBLIC}
        assert not seen.left
        whole = [packet for packet in seen.right if UDP in packet and packet.flags != "MF"]
        assert len(whole) == 4 * 3 and len(seen.right) == 4 * (3 + 3 + 1)
        for packet in whole:
            demand_checksums(packet)
    assert len(wires.connections("--src-nat")) == len(wires.connections()) == 20 * 8


def test_a_hop_limit_that_ends_here_is_told_in_the_senders_words(wires):
    came = opened(wires)
    seen = wires.send("left", datagram(ttl=1))
    assert not seen.right
    error = one(seen.left)
    assert (error.dst, error[ICMP].type) == (LEFT, 11)
    assert IP(bytes(error[ICMP].payload)).src == LEFT
    answer = IP(src=RIGHT, dst=PUBLIC, ttl=1) / UDP(sport=6000, dport=came[UDP].sport) / b"back"
    seen = wires.send("right", answer)
    assert not seen.left
    quoted = IP(bytes(one(seen.right)[ICMP].payload))
    assert (quoted.src, quoted.dst) == (RIGHT, PUBLIC)


@pytest.mark.parametrize("what", [UDP, TCP, ICMP])
def test_a_silent_neighbour_is_told_to_who_has_sent(wires, what):
    """The packet waits as it would leave, and its sender hears of it as it was sent."""
    upper = {UDP: UDP(sport=5000, dport=6000), TCP: TCP(sport=5000, dport=80), ICMP: ICMP(id=77)}[what]
    sent = IP(bytes(IP(src=LEFT, dst="10.2.0.77") / upper))
    came, end = wires.send("left", sent), time.monotonic() + 30
    while not came.left and time.monotonic() < end:
        assert not came.right
        time.sleep(0.2)
        came = wires.send("left")
    error = one(came.left)
    assert (error.src, error.dst, error[ICMP].type, error[ICMP].code) == ("10.1.0.1", LEFT, 3, 1)
    quoted = IP(bytes(error[ICMP].payload))
    assert quoted.ttl == sent.ttl - 1
    demand_quoted_checksums(quoted)
    quoted.ttl, quoted.chksum = sent.ttl, sent.chksum
    assert bytes(quoted) == bytes(sent)


def association(tag, chunk, source=LEFT, destination=RIGHT, sport=5000, dport=7000):
    return IP(src=source, dst=destination) / SCTP(sport=sport, dport=dport, tag=tag) / chunk


def test_the_checksum_of_sctp_covers_its_ports(wires):
    """A port that is translated makes another checksum, both ways."""
    opens = SCTPChunkInit(init_tag=7, a_rwnd=65535, n_out_streams=1, n_in_streams=1, init_tsn=1)
    first = one(wires.send("left", association(0, opens)).right)
    assert (first.src, first[SCTP].sport) == (PUBLIC, 5000)
    second = one(wires.send("left", association(0, opens, source="10.1.0.3")).right)
    assert second.src == PUBLIC and second[SCTP].sport != 5000
    answer = SCTPChunkInitAck(init_tag=9, a_rwnd=65535, n_out_streams=1, n_in_streams=1, init_tsn=1)
    back = association(7, answer, RIGHT, PUBLIC, 7000, second[SCTP].sport)
    back = one(wires.send("right", back).left)
    assert (back.dst, back[SCTP].dport) == ("10.1.0.3", 5000)


def test_a_wrong_checksum_of_sctp_is_invalid(wires):
    opens = SCTPChunkInit(init_tag=7, a_rwnd=65535, n_out_streams=1, n_in_streams=1, init_tsn=1)
    wrong = association(0, opens)
    wrong[SCTP].chksum = 0x12345678
    assert not wires.send("left", wrong).right
    assert not wires.connections("-p", "sctp") and wires.statistics()["invalid"] == 1
    one(wires.send("left", association(0, opens)).right)


def test_both_translations_stand_beside_each_other(topology, tmp_path):
    with Wires(topology, tmp_path, BOTH) as wires:
        out = one(wires.send("left", Talk(wires, sport=7000).segment("client", "S")).right)
        assert (out.src, out[TCP].sport) == (PUBLIC, 7000)
        into = IP(src=RIGHT, dst=PUBLIC) / TCP(sport=9000, dport=8080, flags="S", seq=1)
        inside = one(wires.send("right", into).left)
        assert (inside.dst, inside[TCP].dport) == (LEFT, 80)
        answer = IP(src=LEFT, dst=RIGHT) / TCP(sport=80, dport=9000, flags="SA", seq=5, ack=2)
        outside = one(wires.send("left", answer).right)
        assert (outside.src, outside[TCP].sport) == (PUBLIC, 8080)
        # What is for nobody inside stays outside.
        other = IP(src=RIGHT, dst=PUBLIC) / TCP(sport=9000, dport=8081, flags="S", seq=1)
        assert not wires.send("right", other).left


def test_identifiers_of_pings_are_told_apart(wires):
    """Two hosts ping the same one with the same identifier."""
    ids = {}
    for host in ("10.1.0.2", "10.1.0.3", "10.1.0.4"):
        query = IP(src=host, dst=RIGHT) / ICMP(type=8, id=77, seq=1) / b"ping"
        came = one(wires.send("left", query).right)
        assert came.src == PUBLIC
        ids[came[ICMP].id] = host
    assert len(ids) == 3
    for number, host in ids.items():
        back = one(wires.send("right", IP(src=RIGHT, dst=PUBLIC) / ICMP(type=0, id=number, seq=1) / b"ping").left)
        assert (back.dst, back[ICMP].id) == (host, 77)


def test_a_reset_with_a_translated_connection_closes_it_at_both_ends(wires):
    talk = Talk(wires, sport=7000)
    came = one(wires.send("left", talk.segment("client", "S")).right)
    port = came[TCP].sport
    refused = IP(src=RIGHT, dst=PUBLIC) / TCP(sport=80, dport=port, flags="RA", seq=0, ack=talk.seq + 1)
    back = one(wires.send("right", refused).left)
    assert (back.dst, back[TCP].dport) == (LEFT, 7000)
    assert talk.state() == "CLOSE"
    again = one(wires.send("left", talk.segment("client", "S", seq=99_999)).right)
    assert again.src == PUBLIC and len(wires.connections()) == 1


def test_a_changed_translation_is_for_new_connections(wires):
    """An existing one keeps what it has, as its peer knows it by that, until it ends."""
    first = opened(wires)
    wires.replace(MASQUERADE.replace(PUBLIC + ")", "10.2.0.101)"))
    assert opened(wires)[UDP].sport == first[UDP].sport
    assert opened(wires).src == PUBLIC
    assert opened(wires, sport=5001).src == "10.2.0.101"
    wires.gateway.run("conntrack", "-F")
    assert opened(wires).src == "10.2.0.101"


FORWARDED = """
[firewall]
[[firewall.zone]]
name = "inside"
ports = ["left"]
[[firewall.zone]]
name = "outside"
ports = ["right"]
[[firewall.forward]]
from = ["outside"]
service = "udp/8022"
to = "10.1.0.3"
to-port = 22
"""


def test_one_client_reaches_a_forwarded_port_by_two_addresses_from_one_port(topology, tmp_path):
    """Both look the same to the server, unless one gets another source port."""
    marked = f"table=0, priority=65000,udp,tp_dst={MARKER} actions=NORMAL\n"
    with Wires(topology, tmp_path, marked, FORWARDED) as wires:
        outer, ports = ("10.2.0.1", PUBLIC), []
        for to in outer:
            asked = IP(src=RIGHT, dst=to) / UDP(sport=5555, dport=8022) / b"ask"
            came = one(wires.send("right", asked).left)
            assert (came[IP].src, came[IP].dst, came[UDP].dport) == (RIGHT, "10.1.0.3", 22)
            ports.append(came[UDP].sport)
        assert ports[0] == 5555 and ports[1] != 5555, ports
        for to, port in zip(outer, ports):
            answer = IP(src="10.1.0.3", dst=RIGHT) / UDP(sport=22, dport=port) / b"answer"
            back = one(wires.send("left", answer).right)
            assert (back[IP].src, back[UDP].sport, back[UDP].dport) == (to, 8022, 5555)
        # They stay with rules that leave them alone.
        wires.gateway.run("firewall", "replace", "-", stdin=FORWARDED + 'log = "forwarded"\n')
        assert len(wires.connections("-p", "udp", "--orig-port-dst", "8022")) == 2
