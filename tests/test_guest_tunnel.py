"""Tunnels between the gateway and the Linux kernel's own ESP: every algorithm, both families outside and inside."""

import contextlib

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP

from harness import ping, transfers
from harness.algorithms import ALGORITHMS, CBC_SHA256, GCM
from harness.capture import captured
from harness.gateway import Gateway
from harness.config import Route
from harness.site import in_vrf, site, together
from harness.tunnel import COMBINATIONS, GUEST_INNER, LAN, OUTER, Tunnel, connect

pytestmark = [pytest.mark.guest, pytest.mark.namespaces]

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)


@pytest.fixture(scope="module")
def world(guest_world):
    """The guest, the gateway's namespace, and the host behind the gateway with its addresses and routes."""
    guest, gw, lan = guest_world
    become_host(lan)
    return guest, gw, lan


def become_host(lan):
    """Gives a namespace the addresses and routes of the host behind the gateway."""
    lan.addresses("eth0", f"{LAN[4][2]}/24", f"{LAN[6][2]}/64")
    for family in (4, 6):
        lan.ip(f"-{family}", "route", "replace", "default", "via", LAN[family][1])


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
    # Seen only where the test fails: where packets were lost, if they were.
    print(guest.counters())
    print(gw.ip("-s", "link").stdout, lan.run("cat", "/proc/net/snmp", "/proc/net/snmp6").stdout)
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
    assert esp_and_policy_drops(gateway) == {}
    errors = guest.run("cat", "/proc/net/xfrm_stat").stdout.split()
    assert {
        name: count
        for name, count in zip(errors[::2], errors[1::2])
        if name.startswith("XfrmInState") and count != "0" and name != "XfrmInStateSeqError"
    } == {}


def esp_and_policy_drops(gateway):
    """Packets that the gateway has dropped because of what ESP or a policy says."""
    return {reason: count for reason, count in gateway.drops().items() if reason.startswith(("esp", "policy"))}


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("outer, inner", COMBINATIONS, ids=lambda family: f"v{family}")
def test_iperf3(tunnel_up, outer, inner, protocol):
    guest, gateway, lan = tunnel_up(Tunnel(GCM, outer))
    transfers.iperf3(lan, guest, GUEST_INNER[outer, inner][1], protocol)
    assert esp_and_policy_drops(gateway) == {}


@pytest.mark.parametrize("outer, inner", COMBINATIONS, ids=lambda family: f"v{family}")
def test_traceroute_shows_the_gateway_and_the_other_end(tunnel_up, outer, inner):
    guest, _, lan = tunnel_up(Tunnel(GCM, outer))
    for method in ([], ["-I"]):
        far = GUEST_INNER[outer, inner][1]
        assert transfers.hops(lan, far, *method) == [LAN[inner][1], far]
        # Its complaint about a packet out of the tunnel goes back into the tunnel, from the address on that side.
        assert transfers.hops(guest, LAN[inner][2], "-s", far, *method) == [LAN[inner][1], LAN[inner][2]]


def test_both_outer_families_with_different_algorithms_at_once(tunnel_up):
    guest, _, lan = tunnel_up(Tunnel(GCM, 4), Tunnel(CBC_SHA256, 6))
    for outer, inner in COMBINATIONS:
        lan.ping(GUEST_INNER[outer, inner][1])
        transfers.tcp(lan, LAN[inner][2], guest, GUEST_INNER[outer, inner][1], count=200_000)


def recorded(gw, guest, tunnel, count=5):
    """ESP packets of `count` pings from the guest, as they passed the gateway's `wan`.

    Nothing else of the guest has this SPI: the policies select the two inner networks, which leaves
    out neighbour discovery and multicast.
    """
    with captured(gw, "wan") as frames:
        source = GUEST_INNER[tunnel.outer, tunnel.outer][1]
        guest.ping_exactly(LAN[tunnel.outer][2], count, source)
    ours = [frame for frame in frames if ESP in frame and frame[ESP].spi == tunnel.to_gateway.spi]
    assert len(ours) == count
    return ours


def send_as_the_guest(guest, frames):
    """Sends whole frames from the guest's interface, byte by byte as given."""
    program = (
        "import socket,sys; s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW); s.bind((sys.argv[1],0))\n"
        "for line in sys.stdin: s.send(bytes.fromhex(line))"
    )
    # A few at a time, for a request to the guest has its limit.
    for at in range(0, len(frames), 5):
        lines = "".join(bytes(frame).hex() + "\n" for frame in frames[at : at + 5])
        guest.run("/usr/bin/python3", "-ISc", program, guest.interface, stdin=lines)


@every_algorithm
@pytest.mark.parametrize("outer", [4, 6], ids=["over-v4", "over-v6"])
def test_replayed_changed_and_unknown_packets_of_the_kernel_are_dropped_and_counted(
    tunnel_up, world, algorithm, outer
):
    tunnel = Tunnel(algorithm, outer)
    guest, gateway, lan = tunnel_up(tunnel)
    # The guest's answers have the same SPI as its pings: none may be on its way from here on.
    lan.ping_exactly(GUEST_INNER[outer, outer][1], 1)
    frames = recorded(world[1], guest, tunnel)

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
    assert gateway.drops().get("policy_clear", 0) >= 2


def test_the_kernel_never_sees_a_clear_packet(tunnel_up, world):
    """What leaves `wan` while hosts talk is ESP and address resolution, and nothing else."""
    tunnel = Tunnel(GCM, 4)
    _, _, lan = tunnel_up(tunnel)
    with captured(world[1], "wan") as frames:
        lan.ping(GUEST_INNER[4, 4][1])
        lan.ping(GUEST_INNER[4, 6][1])
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


def test_a_reload_under_traffic_loses_nothing(tunnel_up):
    """Reloads that change routes, and SAs and policies of others, while packets go through the tunnel both ways."""
    tunnel = Tunnel(GCM, 4)
    guest, gateway, lan = tunnel_up(tunnel)
    far, near = GUEST_INNER[4, 4][1], LAN[4][2]
    lan.ping(far)
    count = 300
    outwards = lan.start(*ping.command(far, count, deadline=30, interval=0.01))
    inwards = guest.start(*ping.command(near, count, source=far, deadline=30, interval=0.01))
    for turn in range(10):
        config = site([tunnel, Tunnel(CBC_SHA256, 6)] if turn % 2 == 0 else [tunnel], live=True)
        config.routes.append(Route(f"10.{turn}.0.0/16", via=OUTER[4][0]))
        gateway.write(config)
        shown = gateway.run("reload").stdout
        assert f"+ route 10.{turn}.0.0/16" in shown
    assert outwards.poll() is None, "the reloads were not under traffic"
    for told in (outwards.communicate(timeout=40)[0], inwards.finish(timeout=40).stdout):
        ping.demand_all(told, count)
    assert esp_and_policy_drops(gateway) == {}


@pytest.fixture
def two_vrfs(guest_world, topology, tmp_path):
    """Two sites with the same addresses and SPIs, in two VRFs; each is `(guest namespace, host, tunnel)`."""
    guest, gw, _ = guest_world
    tunnels = {"red": Tunnel(GCM, 4), "blue": Tunnel(CBC_SHA256, 4)}
    with contextlib.ExitStack() as stack:
        places = {}
        for at, (vrf, tunnel) in enumerate(tunnels.items(), start=1):
            host = topology.namespace(vrf)
            topology.link(gw, f"{vrf}-lan", host, "eth0")
            gw.silence(f"{vrf}-lan")
            become_host(host)
            far = stack.enter_context(guest.namespace(vrf, f"vec{at}"))
            connect(far)
            tunnel.set_up(far)
            places[vrf] = (far, host, tunnel)
        config = together(*(in_vrf(site([tunnel], live=True), vrf) for vrf, tunnel in tunnels.items()))
        gateway = stack.enter_context(Gateway(gw, config, tmp_path))
        yield gateway, places


def test_two_vrfs_with_the_same_addresses_and_spis(two_vrfs):
    """Each VRF's packets reach its own end, under its own keys; when one VRF has no SA left, the other goes on."""
    gateway, places = two_vrfs
    for far, host, tunnel in places.values():
        for inner in (4, 6):
            host.ping(GUEST_INNER[4, inner][1])
            far.ping(LAN[inner][2], source=GUEST_INNER[4, inner][1])
            transfers.tcp(host, LAN[inner][2], far, GUEST_INNER[4, inner][1])
            transfers.udp(far, GUEST_INNER[4, inner][1], host, LAN[inner][2])
    assert esp_and_policy_drops(gateway) == {}
    for name, (far, host, tunnel) in places.items():
        before = {sa["vrf"]: sa["packets"] for sa in gateway.json("show", "sas") if sa["spi"] == tunnel.to_guest.spi}
        host.ping_exactly(GUEST_INNER[4, 4][1], 3)
        after = {sa["vrf"]: sa["packets"] for sa in gateway.json("show", "sas") if sa["spi"] == tunnel.to_guest.spi}
        assert {vrf: after[vrf] - before[vrf] for vrf in after} == {vrf: 3 if vrf == name else 0 for vrf in places}
    gateway.run("xfrm", "state", "flush", "vrf", "red")
    _, red, _ = places["red"]
    _, blue, _ = places["blue"]
    assert red.ping(GUEST_INNER[4, 4][1], count=1, timeout=1, check=False).returncode == 1
    blue.ping(GUEST_INNER[4, 4][1])
    assert set(esp_and_policy_drops(gateway)) == {"esp_no_outbound_sa"}
