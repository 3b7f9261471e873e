"""Tunnels between the gateway and the Linux kernel's own ESP: every algorithm, both families outside and inside."""

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from harness import transfers
from harness.algorithms import ALGORITHMS, CBC_SHA256, GCM, NULL_SHA256
from harness.capture import captured
from harness.gateway import Gateway
from harness.site import site
from harness.tunnel import COMBINATIONS, GUEST_INNER, LAN, OUTER, Tunnel, connect

pytestmark = [pytest.mark.guest, pytest.mark.namespaces]

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)


@pytest.fixture(scope="module")
def world(guest_world):
    """The guest, the gateway's namespace, and the host behind the gateway with its addresses and routes."""
    guest, gw, lan = guest_world
    lan.addresses("eth0", f"{LAN[4][2]}/24", f"{LAN[6][2]}/64")
    for family, everywhere in ((4, "default"), (6, "default")):
        lan.ip(f"-{family}", "route", "replace", everywhere, "via", LAN[family][1])
    return guest, gw, lan


@pytest.fixture
def tunnel_up(world, tmp_path):
    """A function that sets tunnels up at both ends; the gateway ends with the test."""
    guest, gw, lan = world
    running = []

    def set_up(*tunnels):
        connect(guest)
        for tunnel in tunnels:
            tunnel.set_up(guest)
        gateway = Gateway(gw, site(tunnels, live=True), tmp_path)
        running.append(gateway.__enter__())
        return guest, gateway, lan

    yield set_up
    for gateway in running:
        gateway.__exit__(None, None, None)


@every_algorithm
@pytest.mark.parametrize("outer", [4, 6], ids=["over-v4", "over-v6"])
def test_ping_tcp_and_udp_both_ways(tunnel_up, algorithm, outer):
    tunnel = Tunnel(algorithm, outer)
    guest, gateway, lan = tunnel_up(tunnel)
    for inner in (4, 6):
        far, near = GUEST_INNER[outer, inner][1], LAN[inner][2]
        guest.ping(near, source=far)
        lan.ping(far)
        for size in (0, 1, 700, 1300):
            lan.ping(far, count=1, size=size)
        transfers.tcp(guest, far, lan, near)
        transfers.tcp(lan, near, guest, far)
        transfers.udp(guest, far, lan, near)
        transfers.udp(lan, near, guest, far)
    counted = gateway.sa_packets()
    assert counted[tunnel.to_gateway.spi] > 500 and counted[tunnel.to_guest.spi] > 500
    bad = {reason: count for reason, count in gateway.drops().items() if reason.startswith(("esp", "policy"))}
    assert bad == {}
    errors = guest.run("cat", "/proc/net/xfrm_stat").stdout.split()
    assert {
        name: count
        for name, count in zip(errors[::2], errors[1::2])
        if name.startswith("XfrmInState") and count != "0" and name != "XfrmInStateSeqError"
    } == {}


def test_both_outer_families_with_different_algorithms_at_once(tunnel_up):
    guest, _, lan = tunnel_up(Tunnel(GCM, 4), Tunnel(CBC_SHA256, 6))
    for outer, inner in COMBINATIONS:
        lan.ping(GUEST_INNER[outer, inner][1])
        transfers.tcp(lan, LAN[inner][2], guest, GUEST_INNER[outer, inner][1], count=200_000)


def recorded(gw, guest, directory, tunnel, count=5):
    """ESP packets of `count` pings from the guest, as they passed the gateway's `wan`."""
    path = directory / "wan.pcap"
    with captured(gw, "wan", path):
        guest.ping(LAN[tunnel.outer][2], count=count, source=GUEST_INNER[tunnel.outer, tunnel.outer][1])
    frames = [Ether(bytes(frame)) for frame in rdpcap(str(path))]
    ours = [frame for frame in frames if ESP in frame and frame[ESP].spi == tunnel.to_gateway.spi]
    assert len(ours) == count
    return ours


def send_as_the_guest(guest, frames):
    """Sends whole frames from the guest's interface, byte by byte as given."""
    program = (
        "import socket,sys; s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW); s.bind(('vec0',0))\n"
        "for line in sys.stdin: s.send(bytes.fromhex(line))"
    )
    for frame in frames:
        guest.run("/usr/bin/python3", "-Ic", program, stdin=bytes(frame).hex() + "\n")


@pytest.mark.parametrize("algorithm", [GCM, CBC_SHA256, NULL_SHA256], ids=str)
@pytest.mark.parametrize("outer", [4, 6], ids=["over-v4", "over-v6"])
def test_replayed_changed_and_unknown_packets_of_the_kernel_are_dropped_and_counted(
    tunnel_up, world, tmp_path, algorithm, outer
):
    tunnel = Tunnel(algorithm, outer)
    guest, gateway, lan = tunnel_up(tunnel)
    lan.ping(GUEST_INNER[outer, outer][1])
    frames = recorded(world[1], guest, tmp_path, tunnel)

    send_as_the_guest(guest, frames)
    gateway.wait_for_drops("esp_replayed", len(frames))

    def changed(frame, position, bits, sequence=0):
        """`frame` with a new sequence number, so that it is not a replay, and one byte changed."""
        data = bytearray(bytes(frame))
        start = data.index(tunnel.to_gateway.spi.to_bytes(4, "big"))
        if sequence:
            data[start + 4 : start + 8] = sequence.to_bytes(4, "big")
        data[start + position if position >= 0 else position] ^= bits
        return bytes(data)

    last = frames[-1][ESP].seq
    send_as_the_guest(guest, [changed(frames[0], -1, 0x80, last + 1), changed(frames[0], 12, 0x01, last + 2)])
    gateway.wait_for_drops("esp_bad_icv", 2)
    send_as_the_guest(guest, [changed(frames[0], 3, 0x80)])
    gateway.wait_for_drops("esp_no_sa", 1)

    guest.ping(LAN[outer][2], source=GUEST_INNER[outer, outer][1])
    lan.ping(GUEST_INNER[outer, outer][1])


def test_clear_packets_that_must_be_protected_are_dropped(tunnel_up):
    guest, gateway, _ = tunnel_up(Tunnel(GCM, 4))
    guest.run("ip", "xfrm", "policy", "flush")
    far = GUEST_INNER[4, 4][1]
    assert guest.ping(LAN[4][2], count=2, source=far, timeout=2, check=False).returncode != 0
    gateway.wait_for_drops("policy_clear", gateway.drops()["policy_clear"])
    assert gateway.drops()["policy_clear"] >= 2


def test_the_kernel_never_sees_a_clear_packet(tunnel_up, world, tmp_path):
    """What leaves `wan` while hosts talk is ESP and address resolution, and nothing else."""
    tunnel = Tunnel(GCM, 4)
    _, _, lan = tunnel_up(tunnel)
    with captured(world[1], "wan", tmp_path / "wan.pcap"):
        lan.ping(GUEST_INNER[4, 4][1])
        lan.ping(GUEST_INNER[4, 6][1])
    frames = [Ether(bytes(frame)) for frame in rdpcap(str(tmp_path / "wan.pcap"))]
    talk = [frame for frame in frames if IP in frame or (IPv6 in frame and frame[IPv6].nh not in (0, 58))]
    assert len(talk) >= 12
    assert all(ESP in frame and {frame[IP].src, frame[IP].dst} == set(OUTER[4]) for frame in talk)


def test_a_rekey_loses_nothing(tunnel_up):
    """New SAs beside the old ones, then the old ones away, while datagrams must each come back."""
    old = Tunnel(GCM, 4)
    guest, gateway, lan = tunnel_up(old)
    far = GUEST_INNER[4, 4][1]
    lan.ping(far)
    new = [
        type(sa)(sa.algorithm, sa.source, sa.destination, sa.spi + 0x100, sa.reqid)
        for sa in (old.to_gateway, old.to_guest)
    ]
    for sa in new:
        guest.run("ip", "xfrm", "state", "add", *sa.kernel_words())
        gateway.run("xfrm", "state", "add", *sa.kernel_words())
    transfers.udp(lan, LAN[4][2], guest, far)
    for sa in (old.to_gateway, old.to_guest):
        words = ["xfrm", "state", "delete", "src", sa.source, "dst", sa.destination, "proto", "esp", "spi", hex(sa.spi)]
        gateway.run(*words)
        guest.run("ip", *words)
    transfers.udp(lan, LAN[4][2], guest, far)
    lan.ping(far)
    assert set(gateway.sa_packets()) == {sa.spi for sa in new}
    assert gateway.drops().get("esp_no_sa", 0) == 0
