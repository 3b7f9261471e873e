"""Hostile and broken packets: each ends under a name, and the packets beside it are not lost."""

import random
import struct

import pytest
from scapy.layers.inet import ICMP, IP, UDP, IPOption
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from harness.algorithms import GCM
from harness.replay import replay
from harness.site import HOST_MAC, LAN_MAC, from_host, hop_later, outbound, site
from harness.tunnel import GUEST_INNER, LAN, Tunnel

HOST4, HOST6 = LAN[4][2], LAN[6][2]
FAR4, FAR6 = GUEST_INNER[4, 4][1], GUEST_INNER[4, 6][1]


def ipv4(**fields):
    """An IPv4 packet with a payload, with some fields as no sender should have them."""
    return bytes(IP(**({"src": HOST4, "dst": FAR4} | fields)) / UDP(sport=1, dport=2) / Raw(bytes(40)))


def ipv6(**fields):
    """An IPv6 packet likewise."""
    return bytes(IPv6(**({"src": HOST6, "dst": FAR6} | fields)) / UDP(sport=1, dport=2) / Raw(bytes(40)))


def frame(kind, payload=b"", source=HOST_MAC, destination=LAN_MAC):
    """An Ethernet frame with this EtherType."""
    return bytes(Ether(src=source, dst=destination, type=kind)) + payload


def chain(count):
    """An IPv6 packet with so many destination options headers."""
    packet = IPv6(src=HOST6, dst=FAR6)
    for _ in range(count):
        packet /= IPv6ExtHdrDestOpt()
    return bytes(packet / UDP(sport=1, dport=2))


def looped():
    """An IPv6 chain of headers that name their own kind on and on, to the last byte of the packet."""
    return bytes(IPv6(src=HOST6, dst=FAR6, nh=60) / Raw(bytes([60, 0, 1, 4, 0, 0, 0, 0]) * 180))


def overrunning(length):
    """An IPv6 extension header that says it is longer than the packet."""
    return bytes(IPv6(src=HOST6, dst=FAR6, nh=60) / Raw(bytes([17, length, 1, 4, 0, 0, 0, 0])))


LINK = {
    "empty": (b"", {"link_truncated"}),
    "short": (frame(0x0800)[:13], {"link_truncated"}),
    "all-zero": (bytes(60), {"link_not_for_us", "link_source", "link_protocol"}),
    "all-ones": (b"\xff" * 60, {"link_source", "link_protocol"}),
    "not-for-us": (frame(0x0800, ipv4(), destination="02:00:00:00:99:99"), {"link_not_for_us"}),
    "group-source": (frame(0x0800, ipv4(), source="01:00:5e:00:00:01"), {"link_source"}),
    "unknown-protocol": (frame(0x88CC, bytes(50)), {"link_protocol"}),
    "vlan": (bytes(Ether(src=HOST_MAC, dst=LAN_MAC) / Dot1Q(vlan=5) / IP(ipv4())), {"vlan_unknown"}),
    "arp-cut": (frame(0x0806, bytes(ARP())[:20]), {"arp_malformed"}),
    "arp-of-another-network": (frame(0x0806, bytes(ARP(hwtype=7))), {"arp_malformed"}),
}

IP_LAYER = {
    "v4-cut": (frame(0x0800, ipv4()[:19]), {"ip_truncated"}),
    "v4-nothing": (frame(0x0800), {"ip_truncated"}),
    "v4-version": (frame(0x0800, b"\x65" + ipv4()[1:]), {"ip_version"}),
    "v4-under-the-name-of-v6": (frame(0x86DD, ipv4()), {"ip_version", "ip_truncated"}),
    "v6-under-the-name-of-v4": (frame(0x0800, ipv6()), {"ip_version"}),
    "v4-header-length-small": (frame(0x0800, b"\x44" + ipv4()[1:]), {"ip_header_length"}),
    "v4-header-length-past-end": (
        frame(0x0800, b"\x4f" + ipv4()[1:30]),
        {"ip_header_length", "ip_truncated", "ip_total_length"},
    ),
    "v4-total-length-large": (frame(0x0800, ipv4(len=1000)), {"ip_total_length"}),
    "v4-total-length-small": (frame(0x0800, ipv4(len=19)), {"ip_total_length"}),
    "v4-total-length-zero": (frame(0x0800, ipv4(len=0)), {"ip_total_length"}),
    "v4-checksum": (frame(0x0800, ipv4(chksum=0x1234)), {"ip_header_checksum"}),
    "v4-source-loopback": (frame(0x0800, ipv4(src="127.0.0.1")), {"ip_source"}),
    "v4-source-multicast": (frame(0x0800, ipv4(src="224.0.0.1")), {"ip_source"}),
    "v4-source-broadcast": (frame(0x0800, ipv4(src="255.255.255.255")), {"ip_source"}),
    "v4-destination-loopback": (frame(0x0800, ipv4(dst="127.0.0.1")), {"ip_destination"}),
    "v4-destination-zero": (frame(0x0800, ipv4(dst="0.0.0.0")), {"ip_destination"}),
    "v4-option-past-header": (frame(0x0800, ipv4(options=[Raw(b"\x07\xff\x04\x00")])), {"ip_option"}),
    "v4-option-length-one": (frame(0x0800, ipv4(options=[Raw(b"\x07\x01\x04\x00")])), {"ip_option"}),
    "v4-option-checksum": (
        frame(0x0800, ipv4(options=[Raw(b"\x07\x03\x04\x00")], chksum=0x1234)),
        {"ip_header_checksum"},
    ),
    "v4-all-zero": (frame(0x0800, bytes(46)), {"ip_version"}),
    "v6-cut": (frame(0x86DD, ipv6()[:39]), {"ip_truncated"}),
    "v6-length-large": (frame(0x86DD, ipv6(plen=1000)), {"ip_total_length"}),
    "v6-all-zero": (frame(0x86DD, bytes(60)), {"ip_version"}),
    "v6-source-multicast": (frame(0x86DD, ipv6(src="ff02::1")), {"ip_source"}),
    "v6-source-loopback": (frame(0x86DD, ipv6(src="::1")), {"ip_source"}),
    "v6-destination-unspecified": (frame(0x86DD, ipv6(dst="::")), {"ip_destination"}),
    "v6-chain-too-long": (frame(0x86DD, chain(60)), {"ip_extension_chain"}),
    "v6-chain-looped": (frame(0x86DD, looped()), {"ip_extension_chain"}),
    "v6-header-past-end": (frame(0x86DD, overrunning(1)), {"ip_extension_truncated"}),
    "v6-header-far-past-end": (frame(0x86DD, overrunning(255)), {"ip_extension_truncated"}),
    "v6-hop-by-hop-not-first": (
        frame(0x86DD, bytes(IPv6(src=HOST6, dst=FAR6) / IPv6ExtHdrDestOpt() / IPv6ExtHdrHopByHop() / UDP())),
        {"ip_extension_chain"},
    ),
    "v6-upper-cut": (frame(0x86DD, bytes(IPv6(src=HOST6, dst=FAR6, nh=17) / Raw(b"\0\1\0"))), {"upper_truncated"}),
    "v4-upper-cut": (frame(0x0800, bytes(IP(src=HOST4, dst=FAR4, proto=6) / Raw(bytes(5)))), {"upper_truncated"}),
    "v4-fragment-past-65535": (frame(0x0800, ipv4(frag=8190)), {"ip_fragment"}),
    "v6-fragment-past-65535": (
        frame(0x86DD, bytes(IPv6(src=HOST6, dst=FAR6) / IPv6ExtHdrFragment(offset=8190, m=0) / Raw(bytes(100)))),
        {"ip_fragment"},
    ),
    "v6-fragment-not-of-eight": (
        frame(0x86DD, bytes(IPv6(src=HOST6, dst=FAR6) / IPv6ExtHdrFragment(offset=0, m=1, nh=17) / Raw(bytes(101)))),
        {"ip_fragment"},
    ),
}

FORWARDING = {
    "no-route": (from_host(IP(src=HOST4, dst="203.0.113.1") / ICMP()), {"no_route"}),
    "hop-limit-1": (from_host(outbound(4, 4, b"", hops=1)), {"hop_limit"}),
    "hop-limit-0": (from_host(outbound(4, 6, b"", hops=0)), {"hop_limit"}),
    "multicast": (from_host(IP(src=HOST4, dst="239.1.2.3") / UDP() / b"x"), {"not_unicast", "link_not_for_us"}),
    "broadcast": (from_host(IP(src=HOST4, dst="255.255.255.255") / UDP() / b"x"), {"not_unicast", "local_no_listener"}),
    "link-local": (from_host(IPv6(src="fe80::5", dst=FAR6) / UDP() / b"x"), {"link_local"}),
    "source-route": (
        from_host(IP(src=HOST4, dst=FAR4, options=[IPOption(b"\x83\x07\x04\x0a\x00\x00\x01\x00")]) / UDP()),
        {"source_route", "ip_option"},
    ),
    "nobody-listens": (from_host(IP(src=HOST4, dst=LAN[4][1]) / UDP(dport=9) / b"x"), {"local_no_listener"}),
    "echo-with-bad-checksum": (from_host(IP(src=HOST4, dst=LAN[4][1]) / ICMP(chksum=1) / b"x"), {"local_checksum"}),
}


@pytest.mark.parametrize("case", [*LINK, *IP_LAYER])
def test_a_broken_packet_has_a_name_and_its_neighbours_pass(tmp_path, case):
    broken, reasons = (LINK | IP_LAYER)[case]
    result = between_good_ones(tmp_path, broken, tunnels=[Tunnel(GCM, 4)])
    assert sum(result.drops.values()) == 1, result.drops
    assert set(result.drops) <= reasons


@pytest.mark.parametrize("case", FORWARDING)
def test_a_packet_that_is_not_to_be_forwarded_has_a_name(tmp_path, case):
    broken, reasons = FORWARDING[case]
    result = between_good_ones(tmp_path, broken)
    assert sum(result.drops.values()) == 1, result.drops
    assert set(result.drops) <= reasons


def between_good_ones(directory, broken, tunnels=()):
    """Replays `broken` between honest packets of both families, which must all come out."""
    good = [outbound(4, 4, b"four"), outbound(4, 6, b"six")]
    before = [from_host(packet) for packet in good]
    result = replay(directory, site(tunnels), {"lan": [*before, broken, *before]}, ["wan", "lan"])
    frames = result.frames("wan")
    assert len(frames) == 4, result.drops
    if not tunnels:
        assert [bytes(frame.payload) for frame in frames] == [hop_later(packet) for packet in good] * 2
    return result


def test_padding_of_short_frames_is_not_part_of_the_packet(tmp_path):
    short = outbound(4, 4, b"")
    result = replay(tmp_path, site(), {"lan": [bytes(from_host(short)) + bytes(18)]}, ["wan"])
    (sent,) = result.frames("wan")
    assert bytes(sent.payload)[: len(short)] == hop_later(short)
    assert sent[IP].len == len(short)


def test_a_legal_chain_of_extension_headers_passes(tmp_path):
    packet = (
        IPv6(src=HOST6, dst=FAR6) / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / UDP(sport=1, dport=2) / Raw(b"legal")
    )
    packet = IPv6(bytes(packet))
    result = replay(tmp_path, site(), {"lan": [from_host(packet)]}, ["wan"])
    assert result.drops == {}
    assert [bytes(frame.payload) for frame in result.frames("wan")] == [hop_later(packet)]


def test_too_big_is_told_to_the_sender(tmp_path):
    config = site()
    config.ports[1].mtu = 1280
    big4 = IP(bytes(IP(src=HOST4, dst=FAR4, flags="DF") / UDP(sport=1, dport=2) / Raw(bytes(1300))))
    big6 = IPv6(bytes(IPv6(src=HOST6, dst=FAR6) / UDP(sport=1, dport=2) / Raw(bytes(1300))))
    result = replay(tmp_path, config, {"lan": [from_host(big4), from_host(big6)]}, ["wan", "lan"])
    assert result.drops == {"too_big": 2}
    four, six = result.frames("lan")
    assert (four[ICMP].type, four[ICMP].code, four[ICMP].nexthopmtu) == (3, 4, 1280)
    assert six.payload.payload.mtu == 1280
    assert result.frames("wan") == []


def test_garbage_of_every_length_ends_under_a_name(tmp_path):
    """Changed and cut packets of every kind: nothing is lost without a count, and nothing honest is lost at all."""
    chance = random.Random(1)
    good, frames = outbound(4, 4, b"honest"), []
    for _ in range(3000):
        kind = chance.choice([0x0800, 0x86DD, 0x0806, 0x8100, chance.randrange(65536)])
        data = bytearray(chance.choice([ipv4(), ipv6(), chain(3), bytes(ARP()), chance.randbytes(100)]))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        frames.append(frame(kind, bytes(data)[: chance.randrange(len(data) + 1)], destination="02:00:00:00:99:99"))
        frames.append(frame(kind, bytes(data)[: chance.randrange(len(data) + 1)]))
        frames.append(bytes(from_host(good)))
    result = replay(tmp_path, site(), {"lan": frames}, ["wan", "lan"])
    sent = [bytes(frame.payload) for frame in result.frames("wan")]
    assert sent.count(hop_later(good)) == 3000
    assert sum(result.drops.values()) >= 3000
    assert len(sent) + sum(result.drops.values()) >= len(frames) - 10


@pytest.mark.parametrize("size", [1515, 2000, 9000, 65535, 200_000])
def test_oversized_frames(tmp_path, size):
    """Frames beyond what an IP packet can be, and beyond what a buffer holds."""
    good = outbound(4, 4, b"honest")
    huge = frame(0x0800, struct.pack("!BBH", 0x45, 0, min(size, 65535)) + bytes(size))
    result = replay(tmp_path, site(), {"lan": [from_host(good), huge, from_host(good)]}, ["wan"])
    assert [bytes(sent.payload) for sent in result.frames("wan")] == [hop_later(good)] * 2
    (errors,) = [port["statistics"]["rx_errors"] for port in result.report["ports"] if port["name"] == "lan"]
    if size <= 9000:
        assert result.drops == {"ip_header_checksum": 1} and errors == 0
    else:
        # It never became a packet: the port counts it.
        assert result.drops == {} and errors == 1
        (capture,) = result.report["captures"]
        assert (capture["port"], capture["skipped_too_long"]) == ("lan", 1)


@pytest.mark.parametrize("family", [4, 6])
def test_pings_to_the_gateway_itself_are_answered(tmp_path, family):
    request = (
        IP(src=HOST4, dst=LAN[4][1]) / ICMP(id=7, seq=9) / Raw(b"hello")
        if family == 4
        else IPv6(src=HOST6, dst=LAN[6][1]) / ICMPv6EchoRequest(id=7, seq=9, data=b"hello")
    )
    result = replay(tmp_path, site(), {"lan": [from_host(request)]}, ["lan"])
    (answer,) = result.frames("lan")
    assert (answer.payload.src, answer.payload.dst) == (request.dst, request.src)
    assert (answer.payload.payload.id, answer.payload.payload.seq) == (7, 9)
    assert answer.payload.payload.type == (0 if family == 4 else 129)
    rebuilt = answer.payload.copy()
    checksum = "chksum" if family == 4 else "cksum"
    original = getattr(rebuilt.payload, checksum)
    delattr(rebuilt.payload, checksum)
    assert getattr(rebuilt.__class__(bytes(rebuilt)).payload, checksum) == original
