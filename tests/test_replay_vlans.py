"""Replays of captures with VLAN tags: they lead to the ports of the VLANs, as on a live trunk."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

from harness.config import Config, Neighbour, Port
from harness.replay import replay

TRUNK_MAC, FAR_MAC = "02:00:00:00:01:01", "02:00:00:00:01:05"

CHAINS = {
    "red": (("802.1Q", 100),),
    "blue": (("802.1Q", 200),),
    "green": (("802.1ad", 10), ("802.1Q", 20)),
    "white": (("802.1Q", 30), ("802.1Q", 20)),
}
"""VRF -> the tags of its frames, the outer one first. Addresses are the same in all."""

TAG = {"802.1Q": Dot1Q, "802.1ad": Dot1AD}
ETHERTYPE = {"802.1Q": 0x8100, "802.1ad": 0x88A8}


def name(side, chain):
    return ".".join([side, *(str(number) for _, number in chain)])


def trunks():
    """A gateway with two trunks, and on both a VLAN of each VRF; all routes lead from one to the other."""
    config = Config(vrfs=list(CHAINS))
    for number, side in enumerate(("left", "right"), 1):
        config.ports.append(Port(side, [], mac=TRUNK_MAC, mtu=1508))
        for vrf, chain in CHAINS.items():
            for depth in range(1, len(chain) + 1):
                protocol, tag = chain[depth - 1]
                is_last = depth == len(chain)
                addresses = [f"10.{number}.0.1/24", f"fd0{number}::1/64"] if is_last else []
                parent = name(side, chain[: depth - 1])
                config.ports.append(
                    Port(name(side, chain[:depth]), addresses, kind="vlan", parent=parent, id=tag, mtu=1500,
                         protocol=protocol, vrf=vrf if is_last else "")
                )
            for address in (f"10.{number}.0.2", f"fd0{number}::2"):
                config.neighbours.append(Neighbour(name(side, chain), address, FAR_MAC))
    return config


def tagged(tags, packet, priority=0):
    """A frame to the gateway's trunk with these tags."""
    frame = Ether(src=FAR_MAC, dst=TRUNK_MAC)
    for protocol, number in tags:
        frame /= TAG[protocol](vlan=number, prio=priority)
    frame /= packet
    return Ether(bytes(frame))


def packets(text):
    """One packet of each family from left to right."""
    return [
        layer / UDP(sport=4000, dport=5000) / Raw(text)
        for layer in (IP(src="10.1.0.2", dst="10.2.0.2"), IPv6(src="fd01::2", dst="fd02::2"))
    ]


def tags_of(frame):
    """The tags of a frame: `[(EtherType, number, priority)]`, and the payload behind."""
    found, layer, kind = [], frame.payload, frame.type
    while kind in ETHERTYPE.values():
        found.append((kind, layer.vlan, layer.prio))
        layer, kind = layer.payload, layer.type
    return found, layer


def test_one_tag_and_two_lead_to_the_ports_of_their_vlans(tmp_path):
    """Equal packets of all VRFs, one after the other: each leaves with the tags of its own."""
    wanted, frames = [], []
    for round_ in range(5):
        for vrf, chain in CHAINS.items():
            text = f"{vrf} {round_}".encode()
            frames += [tagged(chain, packet, priority=round_) for packet in packets(text)]
            # The priority in a tag is not kept.
            wanted += [([(ETHERTYPE[protocol], number, 0) for protocol, number in chain], text)] * 2
    result = replay(tmp_path, trunks(), {"left": frames}, ["right", "left"])
    assert result.drops == {} and result.frames("left") == []
    came = [tags_of(frame) for frame in result.frames("right")]
    assert [(tags, bytes(packet[Raw])) for tags, packet in came] == wanted
    counted = {port["name"]: port["statistics"] for port in result.report["ports"]}
    for chain in CHAINS.values():
        assert counted[name("left", chain)]["rx_packets"] == counted[name("right", chain)]["tx_packets"] == 10
    # The trunk counts the frames of all.
    assert counted["left"]["rx_packets"] == counted["right"]["tx_packets"] == len(frames)
    assert all("vlan" not in reason for reason in result.drops)


@pytest.mark.parametrize(
    "tags, reason",
    [
        ([("802.1Q", 300)], "vlan_unknown"),
        ([("802.1ad", 100)], "vlan_unknown"),
        ([("802.1ad", 10), ("802.1Q", 21)], "vlan_unknown"),
        ([("802.1Q", 10), ("802.1Q", 20)], "vlan_unknown"),
        ([("802.1Q", 100), ("802.1Q", 20)], "vlan_unknown"),
        ([("802.1ad", 10), ("802.1Q", 20), ("802.1Q", 5)], "link_vlan"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(f"{kind}={number}" for kind, number in value),
)
def test_other_tags_are_dropped_by_their_reason(tmp_path, tags, reason):
    """Another number, another kind of tag, another second tag, a third one."""
    frames = [tagged(tags, packet) for packet in packets(b"x")] + [tagged(CHAINS["red"], packets(b"y")[0])]
    result = replay(tmp_path, trunks(), {"left": frames}, ["right"])
    assert result.drops == {reason: 2}
    assert [bytes(frame[Raw]) for frame in result.frames("right")] == [b"y"]


def test_a_priority_tag_is_none(tmp_path):
    """A tag of number 0 has a priority and no VLAN: the frame is the trunk's own."""
    config = trunks()
    for port, number in ((config.ports[0], 1), (next(p for p in config.ports if p.name == "right"), 2)):
        port.addresses = [f"10.{number}.0.1/24", f"fd0{number}::1/64"]
        config.neighbours += [Neighbour(port.name, a, FAR_MAC) for a in (f"10.{number}.0.2", f"fd0{number}::2")]
    frames = [tagged([("802.1Q", 0)], packet, priority=5) for packet in packets(b"own")]
    result = replay(tmp_path, config, {"left": frames}, ["right"])
    assert result.drops == {}
    assert [tags_of(frame)[0] for frame in result.frames("right")] == [[], []]


def test_neighbours_are_asked_and_answer_with_the_tags(tmp_path):
    """Without neighbours in the file, the question leaves with both tags, and the answer in the capture counts."""
    config = trunks()
    config.neighbours = [n for n in config.neighbours if not n.port.startswith("right")]
    chain = CHAINS["green"]
    answer = tagged(chain, ARP(op=2, hwsrc=FAR_MAC, psrc="10.2.0.2", hwdst=TRUNK_MAC, pdst="10.2.0.1"))
    frames = [tagged(chain, packets(b"waits")[0])]
    result = replay(tmp_path, config, {"left": frames, "right": [Ether(bytes(answer))]}, ["right"])
    question, packet = result.frames("right")
    for frame in (question, packet):
        assert [tag[:2] for tag in tags_of(frame)[0]] == [(0x88A8, 10), (0x8100, 20)]
    assert tags_of(question)[1].op == 1 and bytes(packet[Raw]) == b"waits"
    # One without tags is another station's.
    bare = Ether(src=FAR_MAC, dst=TRUNK_MAC) / answer[ARP]
    result = replay(tmp_path / "bare", config, {"left": frames, "right": [Ether(bytes(bare))]}, ["right"])
    assert result.drops.get("neighbour_unresolved") == 1, result.drops
