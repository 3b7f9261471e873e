"""ESP through capture files: scapy and tshark read what the gateway writes, and the other way round."""

import subprocess

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP

from harness.algorithms import ALGORITHMS
from harness.replay import replay
from harness.site import HOST_MAC, LAN_MAC, PEER_MAC, WAN_MAC, from_host, from_peer, hop_later, inbound, outbound, site
from harness.tunnel import COMBINATIONS, OUTER, Tunnel

SIZES = [0, 1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 500, 1000, 1300]
PAYLOADS = [bytes(i & 0xFF for i in range(size)) for size in SIZES]

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
every_family = pytest.mark.parametrize("outer, inner", COMBINATIONS, ids=lambda family: f"v{family}")


def encrypted_by_us(directory, algorithm, outer, inner):
    """Packets of many sizes, and what the gateway makes of them on its `wan` side."""
    tunnel = Tunnel(algorithm, outer)
    clear = [outbound(outer, inner, payload) for payload in PAYLOADS]
    result = replay(directory, site([tunnel]), {"lan": [from_host(packet) for packet in clear]}, ["wan", "lan"])
    return tunnel, clear, result


@every_algorithm
@every_family
def test_scapy_decrypts_what_we_encrypt(tmp_path, algorithm, outer, inner):
    tunnel, clear, result = encrypted_by_us(tmp_path, algorithm, outer, inner)
    assert result.drops == {}
    frames = result.frames("wan")
    assert len(frames) == len(clear)
    assert {(frame.src, frame.dst) for frame in frames} == {(WAN_MAC, PEER_MAC)}
    peer, header = tunnel.to_guest.scapy(), IP if outer == 4 else IPv6
    for sequence, (frame, packet) in enumerate(zip(frames, clear), start=1):
        sealed = frame[header]
        assert (sealed.src, sealed.dst) == (OUTER[outer][1], OUTER[outer][0])
        assert (sealed[ESP].spi, sealed[ESP].seq) == (tunnel.to_guest.spi, sequence)
        if outer == 4:
            rebuilt = sealed.copy()
            del rebuilt.chksum
            assert sealed.chksum == IP(bytes(rebuilt)).chksum
        assert bytes(peer.decrypt(sealed.__class__(bytes(sealed)))) == hop_later(packet)
    assert result.sa_packets[tunnel.to_guest.spi] == len(clear)


@every_algorithm
@every_family
def test_we_decrypt_what_scapy_encrypts(tmp_path, algorithm, outer, inner):
    tunnel = Tunnel(algorithm, outer)
    clear = [inbound(outer, inner, payload) for payload in PAYLOADS]
    peer = tunnel.to_gateway.scapy()
    sealed = [from_peer(peer.encrypt(packet)) for packet in clear]
    result = replay(tmp_path, site([tunnel]), {"wan": sealed}, ["lan", "wan"])
    assert result.drops == {}
    frames = result.frames("lan")
    assert [bytes(frame.payload) for frame in frames] == [hop_later(packet) for packet in clear]
    assert {(frame.src, frame.dst) for frame in frames} == {(LAN_MAC, HOST_MAC)}
    assert result.frames("wan") == []
    assert result.sa_packets[tunnel.to_gateway.spi] == len(clear)


@every_algorithm
@every_family
def test_tshark_decrypts_what_we_encrypt(tmp_path, algorithm, outer, inner):
    tunnel, _, result = encrypted_by_us(tmp_path, algorithm, outer, inner)
    shown = subprocess.run(
        [
            "tshark",
            "-r",
            result.files["wan"],
            # UDP port 4000 is ICQ's; a payload that is none would end the dissection before the ICV is judged.
            "--disable-protocol",
            "icq",
            "-o",
            "esp.enable_encryption_decode:TRUE",
            "-o",
            "esp.enable_authentication_check:TRUE",
            "-o",
            f"uat:esp_sa:{tunnel.to_guest.tshark_row()}",
            "-T",
            "fields",
            "-e",
            "esp.icv_good",
            "-e",
            "udp.srcport",
            "-e",
            "udp.dstport",
            "-e",
            "udp.length",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    assert shown == [f"1\t4000\t5000\t{8 + size}" for size in SIZES]


def test_every_algorithm_at_once(tmp_path):
    """Many SAs in one gateway do not disturb each other: both outer families, packets of both interleaved."""
    tunnels = [Tunnel(ALGORITHMS[0], 4), Tunnel(ALGORITHMS[4], 6)]
    clear = [outbound(outer, inner, payload) for payload in PAYLOADS for outer, inner in COMBINATIONS]
    result = replay(tmp_path, site(tunnels), {"lan": [from_host(packet) for packet in clear]}, ["wan"])
    assert result.drops == {}
    frames = result.frames("wan")
    assert len(frames) == len(clear)
    opened = []
    for tunnel in tunnels:
        peer = tunnel.to_guest.scapy()
        ours = [frame for frame in frames if frame[ESP].spi == tunnel.to_guest.spi]
        assert [frame[ESP].seq for frame in ours] == list(range(1, len(ours) + 1))
        opened += [bytes(peer.decrypt(frame.payload.__class__(bytes(frame.payload)))) for frame in ours]
    assert sorted(opened) == sorted(hop_later(packet) for packet in clear)
