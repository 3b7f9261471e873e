"""Replays of captures that were not made for them: compressed, cooked, of a loopback, of a trunk, of other stations."""

import bz2
import gzip
import struct

import pytest
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether

from harness.algorithms import GCM
from harness.capture import RAW_IP, write_pcap, write_pcapng
from harness.gateway import binary
from harness.netns import run
from harness.replay import replay
from harness.site import LAN_MAC, from_host, hop_later, outbound, site
from harness.tunnel import Tunnel

NULL, LOOP, SLL, SLL2 = 0, 108, 113, 276
IP_OF = {4: 0x0800, 6: 0x86DD}


def clear():
    """Packets of the host behind the gateway, of both families, that leave by the tunnel."""
    packets = [outbound(4, inner, b"%d" % number) for number in range(10) for inner in (4, 6)]
    return [(4 if packet.version == 4 else 6, packet) for packet in packets]


def cooked(family, packet):
    """As `tcpdump -i any -y LINUX_SLL` has it."""
    return struct.pack(">HHH8sH", 0, 1, 6, b"\2\0\0\0\1\5", IP_OF[family]) + bytes(packet)


def cooked_2(family, packet):
    """As `tcpdump -i any` has it."""
    return struct.pack(">HHIHBB8s", IP_OF[family], 0, 2, 1, 0, 6, b"\2\0\0\0\1\5") + bytes(packet)


def loopback(order, six):
    """BSD's, in a byte order and with its number of IPv6."""
    return lambda family, packet: struct.pack(order + "I", 2 if family == 4 else six) + bytes(packet)


FORMS = {
    "null-macos": (NULL, loopback("<", 30)),
    "null-freebsd": (NULL, loopback("<", 28)),
    "null-netbsd-big-endian": (NULL, loopback(">", 24)),
    "loop-openbsd": (LOOP, loopback(">", 24)),
    "cooked": (SLL, cooked),
    "cooked-2": (SLL2, cooked_2),
}


def opened(result, tunnel):
    """What was in the packets that left by the tunnel."""
    peer = tunnel.to_guest.scapy()
    return [bytes(peer.decrypt(frame.payload.__class__(bytes(frame.payload)))) for frame in result.frames("wan")]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compressed", [False, True])
def test_every_header_leads_to_the_same_packets(tmp_path, form, compressed):
    link, wrapped = FORMS[form]
    path, tunnel = tmp_path / "in.pcap", Tunnel(GCM, 4)
    write_pcap(path, [wrapped(family, packet) for family, packet in clear()], link=link)
    if compressed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    result = replay(tmp_path, site([tunnel]), {"lan": path}, ["wan"])
    assert result.drops == {}
    assert opened(result, tunnel) == [hop_later(packet) for _, packet in clear()]


def test_pcapng_and_several_members_are_expanded(tmp_path):
    path, tunnel = tmp_path / "in.pcapng.gz", Tunnel(GCM, 4)
    write_pcapng(path, [packet for _, packet in clear()], link=RAW_IP)
    whole = path.read_bytes()
    # As pigz and bgzip write it.
    path.write_bytes(b"".join(gzip.compress(whole[at : at + 500]) for at in range(0, len(whole), 500)))
    result = replay(tmp_path, site([tunnel]), {"lan": path}, ["wan"])
    assert opened(result, tunnel) == [hop_later(packet) for _, packet in clear()]


def test_what_is_no_ip_is_skipped_and_counted(tmp_path):
    arp = struct.pack(">HHH8sH", 1, 1, 6, b"\2\0\0\0\1\5", 0x0806) + bytes(ARP())
    frames = [cooked(*clear()[0]), arp, b"short", cooked(*clear()[1])]
    path = tmp_path / "in.pcap"
    write_pcap(path, frames, link=SLL)
    result = replay(tmp_path, site([Tunnel(GCM, 4)]), {"lan": path}, ["wan"])
    assert len(result.frames("wan")) == 2
    (capture,) = result.report["captures"]
    assert (capture["port"], capture["skipped_not_ip"]) == ("lan", 2)


@pytest.mark.parametrize("tags", [(), (Dot1Q(vlan=5),), (Dot1AD(vlan=7), Dot1Q(vlan=5))], ids=["none", "one", "two"])
def test_a_trunk_of_other_stations_is_taken_if_asked(tmp_path, tags):
    tunnel, packets = Tunnel(GCM, 4), [packet for _, packet in clear()]

    def frame(packet, destination):
        head = Ether(src="02:00:00:00:01:05", dst=destination)
        for tag in tags:
            head = head / tag.copy()
        return Ether(bytes(head / packet))

    frames = [frame(packet, "00:11:22:33:44:55") for packet in packets]
    options = ["--any-mac", "--skip-vlan"]
    taken = replay(tmp_path / "taken", site([tunnel]), {"lan": frames}, ["wan"], options)
    assert opened(taken, tunnel) == [hop_later(packet) for packet in packets]
    # Without, they are for another, or of a VLAN that nobody knows.
    left = replay(tmp_path / "left", site([tunnel]), {"lan": frames}, ["wan"], options[1:])
    assert left.drops == {"link_not_for_us": len(packets)}
    if tags:
        left = replay(tmp_path / "tagged", site([tunnel]), {"lan": frames}, ["wan"], options[:1])
        assert left.drops == {"vlan_unknown": len(packets)}
    own = [frame(packet, LAN_MAC) for packet in packets]
    taken = replay(tmp_path / "own", site([tunnel]), {"lan": own}, ["wan"], options[1:])
    assert len(taken.frames("wan")) == len(packets)


def test_frames_for_groups_stay_what_they_are(tmp_path):
    question = Ether(src="02:00:00:00:01:05", dst="ff:ff:ff:ff:ff:ff") / ARP(
        op=1, hwsrc="02:00:00:00:01:05", psrc="192.168.13.5", pdst="192.168.13.1"
    )
    result = replay(tmp_path, site(), {"lan": [question]}, ["lan"], ["--any-mac"])
    (answer,) = result.frames("lan")
    assert answer[ARP].hwsrc == LAN_MAC


def test_a_capture_of_any_interface_by_tcpdump(topology, tmp_path):
    host = topology.namespace("host")
    host.ip("addr", "add", "192.168.13.5/32", "dev", "lo")
    path = tmp_path / "any.pcap"
    capture = host.start("tcpdump", "-i", "any", "-c", "6", "-w", str(path), "udp", "and", "port", "9")
    try:
        assert "listening" in capture.stderr.readline() + capture.stderr.readline()
        sender = "import socket, time; s = socket.socket(2, 2); s.bind(('192.168.13.5', 0))\n"
        sender += "for _ in range(20): s.sendto(b'x' * 20, ('127.0.0.1', 9)); time.sleep(0.05)"
        host.run("/usr/bin/python3", "-c", sender, check=False)
        capture.wait(20)
    finally:
        capture.kill()
        capture.communicate()
    result = replay(tmp_path, site(), {"lan": path}, ["wan"])
    (lan,) = [port for port in result.report["ports"] if port["name"] == "lan"]
    # Link type 276 or 113, as its version likes; packets from host to loopback never pass.
    assert (lan["statistics"]["rx_packets"], sum(result.drops.values())) == (6, 6), result.report


def test_bombs_and_other_compression_are_refused(tmp_path):
    path = tmp_path / "in"
    config = tmp_path / "gw.toml"
    config.write_text(site().render(tmp_path / "s"))

    def told(content, code):
        path.write_bytes(content)
        done = run([binary(), "replay", "--config", config, "--in", f"lan={path}"], check=False, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stderr

    plain = tmp_path / "plain.pcap"
    write_pcap(plain, [from_host(outbound(4, 4, b""))])
    whole = gzip.compress(plain.read_bytes())
    assert "neither pcap nor pcapng" in told(gzip.compress(whole), 1)
    assert "neither pcap nor pcapng" in told(bz2.compress(plain.read_bytes()), 1)
    assert "only what came before the damage was replayed" in told(whole[:-20], 1)
    # Zeros are one packet of no length after the other, and costs no memory for it.
    head = plain.read_bytes()[:24]
    bomb = gzip.compress(head + bytes(16 << 20), 9)
    assert len(bomb) < 50_000
    told(bomb, 0)
