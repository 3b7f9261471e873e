"""Flows that send frames by a port: what the IPsec boundary says of them, and how their hosts find each other."""

import json

import pytest
from harness.algorithms import GCM, Sa
from harness.capture import captured
from harness.config import entry, sa_entry
from harness.wires import FAR, MARKER, Wires, demand_checksums
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.ipsec import ESP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

pytestmark = pytest.mark.namespaces

NORMAL = f"""
table=0,priority=65000,udp,tp_dst={MARKER} actions=NORMAL
table=0,priority=10,arp actions=NORMAL
"""

OUTPUT = NORMAL + """
table=0,priority=20,in_port=left,udp actions=output:right
table=0,priority=20,in_port=right,udp actions=output:left
"""
"""Both ports are joined: frames for other stations are taken by either."""

TRANSLATED = NORMAL + """
table=0,priority=20,ip actions=ct(table=1,nat)
table=1,priority=20,ct_state=+new+trk,in_port=left,udp actions=ct(commit,nat(src=10.2.0.100)),output:right
table=1,priority=20,ct_state=+est+trk,in_port=left,udp actions=output:right
"""

PACKET = IP(src="10.1.0.2", dst="10.2.0.2", ttl=9) / UDP(sport=4000, dport=5000) / Raw(b"as it came")
EXPLAINED = "udp 10.1.0.2:4000 > 10.2.0.2:5000 ttl 9 in left"
STRANGER = "02:00:00:00:77:77"
TO_RIGHT = Sa(GCM, "10.2.0.1", "10.2.0.2", 0x1001, reqid=1)
TEMPLATE = "tmpl src 10.2.0.1 dst 10.2.0.2 proto esp reqid 1 mode tunnel"


def policies():
    """Markers pass."""
    return "\n".join(
        f'[[policy]]\ndirection = "{way}"\nprotocol = "udp"\ndestination-ports = {MARKER}\naction = "bypass"\n'
        for way in ("in", "out")
    )


def outcome(wires, frame=None):
    """Sends the packet. Returns why it was dropped, or the frame that came out."""
    gateway = wires.gateway
    before = gateway.drops()
    came = wires.frames("left", frame or wires.frame("left", PACKET)).right
    new = {reason: count - before.get(reason, 0) for reason, count in gateway.drops().items()}
    dropped = [reason for reason, count in new.items() if count]
    assert len(came) + len(dropped) == 1, (came, new)
    return came[0] if came else dropped[0]


def explained(wires):
    """The same, as explain has it: the reason, or what becomes of it."""
    said = json.loads(wires.gateway.run("-j", "explain", EXPLAINED, check=False).stdout)
    return said[-1].get("reason") or said[-1]["fate"]


def does(wires, *commands):
    for command in commands:
        wires.gateway.run(*command.split())


CASES = {
    "the VRF is a router": ([], None, "sent"),
    "the VRF is closed": (["vrf set main ipsec required"], None, "ipsec_closed"),
    "no policy matches": (["link set dev left side protected"], "unprotected", "policy_no_match"),
    "a policy lets it pass": (
        ["link set dev left side protected", "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out"],
        "unprotected",
        "sent",
    ),
    "a policy discards it": (
        ["link set dev left side protected", "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out action block"],
        "unprotected",
        "policy_discard",
    ),
    "a policy that does not matter inside": (
        ["link set dev left side protected", "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out action block"],
        "protected",
        "sent",
    ),
    "no policy admits it": (
        ["link set dev left side unprotected", "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out"],
        "unprotected",
        "policy_no_match",
    ),
    "a policy admits it, and one lets it pass": (
        [
            "link set dev left side unprotected",
            "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir in",
            "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out",
        ],
        "unprotected",
        "sent",
    ),
    "it should have come encrypted": (
        [
            "link set dev left side unprotected",
            f"xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir in {TEMPLATE}",
            "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out",
        ],
        "unprotected",
        "policy_clear",
    ),
}
"""What is done -> the side of the port that it leaves by, if there are policies, and what becomes of it."""


@pytest.mark.parametrize("case", CASES)
def test_the_boundary_is_asked_as_for_a_routed_packet(topology, tmp_path, case):
    commands, side, wanted = CASES[case]
    with Wires(topology, tmp_path, OUTPUT, policies() if side else "") as wires:
        does(wires, *commands, *([f"link set dev right side {side}"] if side else []))
        if wanted == "ipsec_closed":
            # Markers do not pass either.
            wires.put("left", PACKET)
            wires.gateway.wait_for_drops(wanted, 1)
            assert explained(wires) == wanted
            return
        # For another station than the gateway.
        frame = bytes(Ether(src=FAR["left"], dst=STRANGER) / PACKET)
        came = outcome(wires, frame)
        assert came == (frame if wanted == "sent" else wanted)
        assert explained(wires) == ("sent-unchanged" if wanted == "sent" else wanted)


def test_what_a_policy_protects_is_encrypted(topology, tmp_path):
    with Wires(topology, tmp_path, OUTPUT, sa_entry(TO_RIGHT) + policies()) as wires:
        does(wires, "link set dev left side protected")
        does(wires, f"xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out {TEMPLATE}")
        outer = Ether(outcome(wires)).payload
        assert ESP in outer and (outer.src, outer.dst) == ("10.2.0.1", "10.2.0.2")
        inner = TO_RIGHT.scapy().decrypt(outer)
        assert (inner.src, inner.dst, bytes(inner[Raw])) == ("10.1.0.2", "10.2.0.2", b"as it came")
        assert explained(wires) == "sent-encrypted"


@pytest.mark.parametrize("source, wanted", [("10.2.0.100", "sent"), ("10.1.0.2", "policy_no_match")])
def test_policies_see_what_is_translated(topology, tmp_path, source, wanted):
    """As routed packets, they are asked `in` as they came and `out` as they leave."""
    with Wires(topology, tmp_path, TRANSLATED, policies()) as wires:
        does(
            wires,
            "link set dev left side unprotected",
            "link set dev right side unprotected",
            "xfrm policy add src 10.1.0.2 dst 10.2.0.2 dir in",
            f"xfrm policy add src {source} dst 10.2.0.2 dir out",
        )
        came = outcome(wires)
        if wanted != "sent":
            assert came == wanted
            return
        packet = Ether(came).payload
        assert (packet.src, packet.dst, packet.ttl) == ("10.2.0.100", "10.2.0.2", 9)
        demand_checksums(packet)
        # And a packet of the connection that is there.
        assert Ether(outcome(wires)).payload.src == "10.2.0.100" and explained(wires) == "sent-unchanged"


def test_what_a_policy_refuses_opens_no_connection(topology, tmp_path):
    """As of a routed packet: it would only fill the table."""
    flows = NORMAL + "table=0,priority=20,in_port=left,udp actions=ct(commit),output:right\n"
    with Wires(topology, tmp_path, flows, policies()) as wires:
        does(wires, "link set dev left side protected", "link set dev right side unprotected")
        assert outcome(wires) == "policy_no_match" and wires.connections() == []
        does(wires, "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out")
        assert Ether(outcome(wires)).payload.ttl == 9 and len(wires.connections()) == 1


JOINED = NORMAL + """
table=0,priority=20,in_port=left,ip actions=output:right
table=0,priority=20,in_port=right,ip actions=output:left
table=0,priority=20,icmp6,icmp_type=135 actions=NORMAL
table=0,priority=20,icmp6,icmp_type=136 actions=NORMAL
"""

BROADCAST = "ff:ff:ff:ff:ff:ff"


def asks(family, address):
    """The frame by which the left station asks for an address."""
    mac, own = FAR["left"], {4: "10.1.0.2", 6: "fd01::2"}[family]
    if family == 4:
        return Ether(src=mac, dst=BROADCAST) / ARP(hwsrc=mac, psrc=own, pdst=address)
    group = int.from_bytes(bytes(IPv6(dst=address))[-3:])
    ether = Ether(src=mac, dst="33:33:ff:" + ":".join(f"{octet:02x}" for octet in group.to_bytes(3)))
    packet = IPv6(src=own, dst=f"ff02::1:ff{group >> 16:02x}:{group & 0xFFFF:x}", hlim=255)
    return ether / packet / ICMPv6ND_NS(tgt=address) / ICMPv6NDOptSrcLLAddr(lladdr=mac)


def answers(family, address, mac, to):
    """The frame by which a station answers."""
    ether = Ether(src=mac, dst=to)
    if family == 4:
        return ether / ARP(op=2, hwsrc=mac, psrc=address, hwdst=to, pdst="10.1.0.2")
    packet = IPv6(src=address, dst="fd01::2", hlim=255)
    return ether / packet / ICMPv6ND_NA(tgt=address, R=0, S=1, O=1) / ICMPv6NDOptDstLLAddr(lladdr=mac)


def about_neighbours(frames):
    """Those that are ARP or neighbour discovery, as octets."""
    return [bytes(frame) for frame in frames if ARP in frame or ICMPv6ND_NS in frame or ICMPv6ND_NA in frame]


@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
def test_hosts_of_joined_ports_find_each_other(topology, tmp_path, family):
    """Questions about others go on to the ports that flows join, as they came; those about the gateway are answered."""
    third = entry("port", **{"name": "third", "kind": "af-packet", "interface": "third", "addresses": ["10.3.0.1/24"]})
    wires = Wires(topology, tmp_path, JOINED, third)
    gw = topology["gw"]
    topology.link(gw, "third", topology.namespace("third"), "eth0")
    for space in (gw, topology["third"]):
        space.silence("third" if space is gw else "eth0")

    def heard(side, *frames):
        """What is heard of neighbours at the far ends when a station says something."""
        with (
            captured(topology["left"], "eth0") as left,
            captured(topology["right"], "eth0") as right,
            captured(topology["third"], "eth0") as apart,
        ):
            wires.put(side, *map(bytes, frames))
            wires.send(side)
        told = {"left": left, "right": right, "third": apart}
        # What a far end has sent itself is captured too.
        said = set(map(bytes, frames))
        return {at: [f for f in about_neighbours(these) if at != side or f not in said] for at, these in told.items()}

    other, own = {4: ("10.1.0.77", "10.1.0.1"), 6: ("fd01::77", "fd01::1")}[family]
    with wires:
        question = asks(family, other)
        assert heard("left", question) == {"left": [], "right": [bytes(question)], "third": []}
        # The answer is for the asker alone, whose frame it reaches as it was sent.
        answer = answers(family, other, STRANGER, FAR["left"])
        assert heard("right", answer) == {"left": [bytes(answer)], "right": [], "third": []}
        # For the gateway's own address, the gateway answers, and nobody else is asked.
        came = heard("left", asks(family, own))
        (reply,) = came["left"]
        assert came["right"] == came["third"] == []
        frame = Ether(reply)
        told = frame[ARP].hwsrc if family == 4 else frame[ICMPv6NDOptDstLLAddr].lladdr
        assert frame.src == told == gw.mac("left") and frame.dst == FAR["left"]
        # Ports that no flow joins do not hear of each other.
        wires.replace(NORMAL + "table=0,priority=1 actions=NORMAL\n")
        assert heard("left", question) == {"left": [], "right": [], "third": []}
