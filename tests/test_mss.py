"""TCP through a tunnel whose packets are smaller than the hosts think, where no ICMP error tells them."""

import contextlib
import time

import pytest
from harness import transfers
from harness.config import Config, Port
from harness.failure import CommandFailed
from harness.gateway import Gateway
from harness.guest import TRAFFIC
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

pytestmark = pytest.mark.namespaces

KEY = "0x00112233445566778899aabbccddeeff0102"
WAN_MTU = 1400
SIDES = {
    "a": ("192.0.2.1", {4: ("10.1.0.0/24", "10.1.0.1", "10.1.0.5"), 6: ("fd01::/64", "fd01::1", "fd01::5")}),
    "b": ("192.0.2.2", {4: ("10.2.0.0/24", "10.2.0.1", "10.2.0.5"), 6: ("fd02::/64", "fd02::1", "fd02::5")}),
}
"""Gateway -> its end of the tunnel, and by family the network behind it, its address there, and the host's."""
HEADERS = {4: 40, 6: 60}
"""What an IP and a TCP header take."""
TUNNEL_LIMIT = WAN_MTU - 20 - 8 - 8 - 16 - 2
"""Less the outer header, ESP's header, its IV, its ICV, and the two bytes that end it; no padding is left over."""


def tunnel(here, there):
    """States and policies of one gateway."""
    (end, networks), (far_end, far_networks) = SIDES[here], SIDES[there]
    for source, destination, spi in [("192.0.2.1", "192.0.2.2", 0x1001), ("192.0.2.2", "192.0.2.1", 0x1002)]:
        yield (
            f"xfrm state add src {source} dst {destination} proto esp spi {spi:#x} mode tunnel reqid 1 "
            f"replay-window 64 aead rfc4106(gcm(aes)) {KEY}{spi:04x} 128"
        )
    for family in (4, 6):
        own, far = networks[family][0], far_networks[family][0]
        for direction, selector, ends in [("out", (own, far), (end, far_end)), ("in", (far, own), (far_end, end))]:
            yield (
                f"xfrm policy add src {selector[0]} dst {selector[1]} dir {direction} "
                f"tmpl src {ends[0]} dst {ends[1]} proto esp reqid 1 mode tunnel"
            )
        yield f"route add {far} dev wan" if family == 6 else f"route add {far} via {far_end}"


@pytest.fixture
def world(topology, tmp_path):
    """Two gateways with a tunnel by a link of a small MTU: the hosts and the gateways by side."""
    spaces = {side: topology.namespace(side) for side in SIDES}
    topology.link(spaces["a"], "wan", spaces["b"], "wan")
    hosts, gateways = {}, {}
    with contextlib.ExitStack() as stack:
        for side, (end, networks) in SIDES.items():
            hosts[side] = host = topology.namespace(f"host-{side}")
            topology.link(spaces[side], "lan", host, "eth0")
            for port in ("wan", "lan"):
                spaces[side].silence(port)
            host.addresses("eth0", f"{networks[4][2]}/24", f"{networks[6][2]}/64")
            for family in (4, 6):
                host.ip(f"-{family}", "route", "add", "default", "via", networks[family][1])
            lan = [f"{networks[4][1]}/24", f"{networks[6][1]}/64"]
            ports = [
                Port("wan", [f"{end}/24"], kind="af-packet", interface="wan"),
                Port("lan", lan, kind="af-packet", interface="lan"),
            ]
            (tmp_path / side).mkdir()
            gateway = stack.enter_context(Gateway(spaces[side], Config(ports=ports), tmp_path / side))
            gateways[side] = gateway
            gateway.run("link", "set", "wan", "mtu", str(WAN_MTU))
            commands = tmp_path / side / "commands"
            # What would tell the hosts that a packet was too large is lost.
            blocked = [
                "filter add dev lan egress pref 1 ip_proto icmp type 3 action drop",
                "filter add dev lan egress pref 2 ip_proto icmpv6 type 2 action drop",
            ]
            commands.write_text("\n".join([*tunnel(side, "b" if side == "a" else "a"), *blocked]) + "\n")
            gateway.run("batch", "--atomic", commands)
        yield hosts, gateways


def send(hosts, family, port, timeout):
    """Sends 200 kB from host a to host b, which says what came."""
    source, target = (SIDES[side][1][family][2] for side in ("a", "b"))
    receiving = hosts["b"].start(TRAFFIC, "receive", target, str(port))
    transfers.wait_for_listener(hosts["b"], port)
    try:
        sent = hosts["a"].run(TRAFFIC, "send", source, target, port, 200_000, timeout=timeout).stdout
        received, _ = receiving.communicate(timeout=timeout)
        assert received.split() == sent.split()
    finally:
        receiving.kill()


def announced(frames):
    """The MSS of each SYN among frames, by whether it is an answer."""
    found = {}
    for frame in frames:
        packet = Ether(frame)
        if TCP in packet and packet[TCP].flags & 2:
            options = dict(packet[TCP].options)
            found[bool(packet[TCP].flags & 0x10)] = options["MSS"]
            before = packet[TCP].chksum
            rebuilt = packet[IP if IP in packet else IPv6].copy()
            del rebuilt[TCP].chksum
            rebuilt = rebuilt.__class__(bytes(rebuilt))
            assert rebuilt[TCP].chksum == before, "the checksum of a clamped SYN"
    return found


def frames_of(opened):
    """What has come to a socket that does not wait."""
    opened.setblocking(False)
    frames = []
    with contextlib.suppress(BlockingIOError):
        while True:
            frames.append(opened.recv(9000))
    return frames


@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
@pytest.mark.parametrize("port", ["wan", "lan"])
def test_tcp_passes_where_no_icmp_error_does_if_one_gateway_clamps(world, family, port):
    hosts, gateways = world
    for side in hosts:
        hosts[side].run("ethtool", "-K", "eth0", "tx", "off", check=False)
    with pytest.raises(CommandFailed, match="no end after"):
        send(hosts, family, 5001, timeout=4)
    assert gateways["a"].drops().get("too_big")

    gateways["a"].run("link", "set", port, "mss", "pmtu")
    assert "mss pmtu" in gateways["a"].run("link", "show", port).stdout
    with contextlib.ExitStack() as stack:
        ends = {side: stack.enter_context(hosts[side].packet_socket("eth0")) for side in hosts}
        send(hosts, family, 5002, timeout=20)
        time.sleep(0.1)
        seen = {side: announced(frames_of(opened)) for side, opened in ends.items()}
    wanted = TUNNEL_LIMIT - HEADERS[family]
    own = 1500 - HEADERS[family]
    # Each host has sent its own, and has received what fits the tunnel.
    assert seen["a"] == {False: own, True: wanted}
    assert seen["b"] == {False: wanted, True: own}

    # A number, and a saved file that says it.
    gateways["a"].run("link", "set", port, "mss", "900")
    assert "mss-clamp = 900" in gateways["a"].run("save").stdout
    with hosts["b"].packet_socket("eth0") as opened:
        send(hosts, family, 5003, timeout=20)
        assert announced(frames_of(opened))[False] == 900
    source, target = (SIDES[side][1][family][2] for side in ("a", "b"))
    asked = "tcp {}:40000 > {}:80 tcp-flags syn in lan".format(
        *(f"[{address}]" if family == 6 else address for address in (source, target))
    )
    told = gateways["a"].run("explain", asked).stdout
    assert "its MSS becomes at most 900" in told, told
    gateways["a"].run("link", "set", port, "mss", "off")
    assert "mss" not in gateways["a"].run("link", "show", port).stdout


def test_wrong_words_are_refused(world):
    _, gateways = world
    for words in (["mss"], ["mss", "47"], ["mss", "65536"], ["mss", "on"], ["mss", "900", "mss", "800"]):
        done = gateways["a"].run("link", "set", "wan", *words, check=False)
        assert done.returncode != 0 and "mss" in done.stderr, done
    gateways["a"].run("vrf", "add", "red")
    done = gateways["a"].run("link", "set", "red", "mss", "pmtu", check=False)
    assert "red is a VRF, which has no mss" in done.stderr, done
