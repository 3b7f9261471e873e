"""The two independent peers agree with one another, so that a disagreement with either is the gateway's fault."""

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6

from harness.algorithms import ALGORITHMS
from harness.forge import seal, trailer
from harness.scapy_peer import ScapyPeer
from harness.site import inbound
from harness.tunnel import COMBINATIONS, GUEST_INNER, LAN, OUTER, Tunnel, connect


@pytest.mark.guest
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
@pytest.mark.parametrize("outer, inner", COMBINATIONS, ids=lambda family: f"v{family}")
def test_a_ping_through_a_tunnel_between_the_kernel_and_scapy(guest_world, algorithm, outer, inner):
    guest, gw, _ = guest_world
    tunnel = Tunnel(algorithm, outer)
    connect(guest)
    tunnel.set_up(guest)
    peer = ScapyPeer(gw, "wan", OUTER[outer][1:], inbound=tunnel.to_gateway, outbound=tunnel.to_guest)
    try:
        source, target = GUEST_INNER[outer, inner][1], LAN[inner][2]
        guest.ping(target, count=2, source=source)
        headers = [packet[IP if inner == 4 else IPv6] for packet in peer.decrypted]
        assert len(headers) >= 2
        assert {(header.src, header.dst) for header in headers} == {(source, target)}
    finally:
        peer.stop()


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
@pytest.mark.parametrize("outer, inner", COMBINATIONS, ids=lambda family: f"v{family}")
def test_scapy_opens_packets_made_by_hand(algorithm, outer, inner):
    sa, clear = Tunnel(algorithm, outer).to_gateway, inbound(outer, inner, b"by hand")
    sealed = seal(sa, 5, trailer(bytes(clear), 4 if inner == 4 else 41, algorithm.block))
    assert bytes(sa.scapy().decrypt(sealed.__class__(bytes(sealed)))) == bytes(clear)
