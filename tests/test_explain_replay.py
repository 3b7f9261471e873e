"""What `hitpath explain` says of packets is what a replay of them shows: the examples of docs/, packets at random."""

import collections
import dataclasses
import ipaddress
import json
import random
import re
import struct
import tomllib
from typing import NamedTuple

import pytest
from harness import forge
from harness.algorithms import GCM, Sa
from harness.described import Packet
from harness.gateway import ROOT, binary
from harness.netns import run
from harness.replay import replay
from harness.site import site
from harness.tunnel import Tunnel
from scapy.layers.inet import IP
from scapy.layers.inet6 import ICMPv6ND_NS, IPv6
from scapy.layers.ipsec import ESP
from scapy.layers.l2 import Ether

PACKETS = 40
"""For each configuration and seed."""

EXAMPLES = {path.stem: path for path in sorted((ROOT / "docs" / "examples").glob("*.toml"))}
ODD = {
    4: "198.51.100.7 203.0.113.10 10.77.0.1 127.0.0.1 224.0.0.5 255.255.255.255 0.0.0.0".split(),
    6: "2001:db8:77::1 2001:db8:78::1 fe80::1 ff02::1 ff05::2 ::1 ::".split(),
}
SERVICES = [21, 22, 25, 53, 69, 80, 123, 161, 443, 500, 2222, 4500, 6881, 9100]
FLAGS = ["syn"] * 4 + ["ack", "syn,ack", "rst", "fin,ack", "syn,fin", "psh,ack", "fin,psh,urg"]
QUERIES = {4: [(8, 0)] * 4 + [(0, 0), (42, 0), (8, 1)], 6: [(128, 0)] * 4 + [(129, 0), (128, 1), (144, 0)]}
ERRORS = {
    4: [(3, 0), (3, 1), (3, 3), (3, 4), (3, 13), (11, 0), (11, 1), (12, 0)],
    6: [(1, 0), (1, 4), (2, 0), (3, 0), (4, 1)],
}
FORGED = "esp with nothing but zeros"
STATION = "02:00:00:00:01:05"


@dataclasses.dataclass(frozen=True)
class WithKey(Sa):
    """An SA whose key is in a configuration."""

    key: bytes = b""

    @property
    def cipher_key(self):
        """The key, with its salt."""
        return self.key


def with_key(sa):
    """An SA as a configuration has it."""
    ends = (sa["source"], sa["destination"])
    return WithKey(GCM, *ends, sa["spi"], sa["reqid"], key=bytes.fromhex(sa["aead"]["key"][2:]))


class World:
    """A configuration, and the addresses that are of interest in it."""

    def __init__(self, name, narrow):
        tunnels = [Tunnel(GCM, 4), Tunnel(GCM, 6)]
        self.text = EXAMPLES[name].read_text() if name in EXAMPLES else site(tunnels).render("/run/none")
        config = tomllib.loads(self.text)
        self.ports = [port["name"] for port in config["port"] if port["kind"] != "xfrm"]
        if narrow is not None:
            # What leaves by it has to be cut.
            port = self.ports[narrow % len(self.ports)]
            self.text = self.text.replace(f'[[port]]\nname = "{port}"\n', f'[[port]]\nname = "{port}"\nmtu = 1300\n')
            self.text = self.text.replace("\nmtu = 1500\n", "\n")
        self.sas = {sa["spi"]: with_key(sa) for sa in config.get("sa", []) if "aead" in sa}
        self.own = {
            port["name"]: [ipaddress.ip_interface(own) for own in port.get("addresses", [])]
            for port in config["port"]
        }
        own = {address.ip for addresses in self.own.values() for address in addresses}
        self.inbound = [sa for sa in self.sas.values() if ipaddress.ip_address(sa.destination) in own]
        self.places = {4: ODD[4][:2], 6: ODD[6][:2]}
        for word in re.findall(r"[0-9a-f]*[.:][0-9a-f.:]+(?:/\d+)?", self.text):
            try:
                place = ipaddress.ip_interface(word)
            except ValueError:
                continue
            network = place.network
            for address in (place.ip, network[min(5, network.num_addresses - 1)], network[-1]):
                self.places[network.version].append(str(address))

    def drawn(self, draw):
        """A packet, and where it comes from: a port, or an SA that has decrypted it."""
        if self.inbound and draw.random() < 0.3:
            sa, near = draw.choice(self.inbound), []
            port = next(name for name, own in self.own.items() if any(sa.destination == str(one.ip) for one in own))
        else:
            sa, port = None, draw.choice(self.ports)
            networks = [own.network for own in self.own[port] if own.network.num_addresses > 25]
            near = [str(network[draw.choice([5, 9, 25])]) for network in networks]
        family = draw.choice(sorted({ipaddress.ip_address(one).version for one in near} | {4}))
        near = [one for one in near if ipaddress.ip_address(one).version == family]
        places = self.places[family]
        source = draw.choice(near if near and draw.random() < 0.8 else places)
        return port, sa, self.packet(draw, family, source, draw.choice(places if draw.random() < 0.95 else ODD[family]))

    def packet(self, draw, family, source, destination):
        """A packet between two addresses."""
        protocol = draw.choice(["tcp", "tcp", "udp", "udp", "icmp", "icmp", "error", "esp", "47", "89"])
        fields = {"protocol": protocol, "source": source, "destination": destination}
        if protocol in ("tcp", "udp"):
            service, other = draw.choice(SERVICES), draw.choice([4000, 50000, draw.choice(SERVICES)])
            fields["ports"] = (other, service) if draw.random() < 0.8 else (service, other)
        if protocol == "tcp":
            fields["flags"] = draw.choice(FLAGS)
        if protocol == "icmp":
            fields["kind"], fields["code"] = draw.choice(QUERIES[family])
            fields["id"] = draw.randint(1, 65535)
        if protocol == "esp":
            fields["spi"] = draw.choice([0x77777, *self.sas])
        if protocol == "error":
            kind, code = draw.choice(ERRORS[family])
            # What is quoted went the other way, mostly.
            back = (destination, source) if draw.random() < 0.7 else draw.choices(self.places[family], k=2)
            quoted = Packet("udp", *back, ports=(draw.choice(SERVICES), 4000))
            return Packet("icmp", source, destination, kind=kind, code=code, about=quoted)
        fields["ttl"] = draw.choice([64] * 6 + [1, 1, 2, 255, 0])
        fields["dscp"] = draw.choice([0, 0, 46, 10])
        what = draw.random()
        if what < 0.12:
            fields["fragment"] = draw.choice(["first", "later"])
        elif what < 0.4:
            fields["size"] = draw.choice([200, 1280, 1290, 1301, 1446, 1447, 1500])
            fields["df"] = family == 4 and draw.random() < 0.4
        if fields.get("fragment") == "later":
            for name in ("ports", "flags", "kind", "code", "id", "spi"):
                fields.pop(name, None)
        return Packet(**fields)


class Sent(NamedTuple):
    """A packet that leaves."""

    port: str
    tunnel: tuple | None
    source: str
    destination: str
    upper: tuple | None
    """Ports, or type and code. Not of a later fragment."""
    length: int
    ttl: int


def foretold(packet, stages, answers):
    """What `explain` says: reasons of drops, what leaves, and whether the sender is told. `answers` if
    all stations are there."""
    at = next((n for n, stage in enumerate(stages) if stage["stage"] == "generated"), len(stages))
    main, generated, outcome = by_name(stages[:at]), by_name(stages[at:-1]), stages[-1]
    fate, is_told = outcome["fate"], main.get("told", {}).get("told", False)
    drops, sent = [outcome["reason"]] if fate in ("dropped", "left-to-system") else [], []
    if fate == "reassembled":
        drops.append("reassembly_timeout")
    elif fate == "decrypted":
        drops.append(FORGED)
    elif fate == "sent-once-resolved" and not answers:
        # Each part waits, and only the fate of the packet is foretold.
        drops += ["neighbour_unresolved"] * len(leaving(packet, main))
        is_told = main["wait"]["told"]
    elif fate.startswith("sent"):
        sent = leaving(packet, main)
    if generated:
        # What is not answered is dropped for the reason of its answer.
        drops = drops if is_told else []
        if (reason := generated.get("verdict", {}).get("reason")):
            drops.append(reason)
        elif "wait" in generated and not answers:
            drops += ["neighbour_unresolved"] * len(made(packet, main.get("told"), stages[at:], generated))
        else:
            sent += made(packet, main.get("told"), stages[at:], generated)
    return sorted(drops), sorted(sent, key=str), is_told


def made(packet, told, stages, last):
    """What the gateway makes because of a packet, as it leaves. What is for a link-local address leaves by its link."""
    key = next((stage for stage in stages if stage["stage"] == "key"), {})
    source, destination = key.get("source", packet.destination), key.get("destination", packet.source)
    if told:
        source = told["from"]
    if "source_port" in key:
        upper = (key["source_port"], key["destination_port"])
    else:
        upper = (told["type"], told["code"]) if told else (129 if packet.is_v6 else 0, 0)
    port, way = (last["verdict"]["port"], tunnel(last)) if "verdict" in last else (last["neighbour"]["port"], None)
    lengths = last.get("size", {}).get("fragments") or [last["generated"]["length"]]
    return parts(Sent(port, way, source, destination, upper, 0, 64), lengths)


def leaving(packet, stages):
    """The packet as it leaves: its parts, with what becomes of its addresses, ports and hop limit."""
    opened, size = stages.get("connection", {}), stages.get("size", {})
    ends = [opened.get(f"becomes_{end}", getattr(packet, end)) for end in ("source", "destination")]
    upper = None
    if packet.fragment != "later":
        upper = tuple(
            opened.get(f"becomes_{end}_port", port) for end, port in zip(("source", "destination"), packet.ports)
        ) or (None if packet.kind is None else (packet.kind, packet.code))
    lengths = size.get("fragments") or [size.get("length", len(packet.packet()))]
    return parts(Sent(stages["verdict"]["port"], tunnel(stages), *ends, upper, 0, packet.ttl - 1), lengths)


def parts(whole, lengths):
    """A packet in fragments of these lengths."""
    return [whole._replace(length=length, upper=None if n else whole.upper) for n, length in enumerate(lengths)]


def tunnel(stages):
    """The tunnel that a packet leaves by."""
    sa = stages["sa"] if stages["verdict"]["verdict"] == "protect" else None
    return sa and (sa["source"], sa["destination"], int(sa["spi"], 16))


def by_name(stages):
    """Stages by their names, of several of one name the last."""
    return {stage["stage"]: stage for stage in stages}


def seen(world, result):
    """What a replay has shown, in the words of `foretold`."""
    sent = []
    for port in world.ports:
        for packet in (frame.payload for frame in result.frames(port)):
            if not isinstance(packet, (IP, IPv6)) or isinstance(packet.payload, ICMPv6ND_NS):
                continue
            way = None
            sa = world.sas.get(packet.payload.spi) if isinstance(packet.payload, ESP) else None
            if sa and (packet.src, packet.dst) == (sa.source, sa.destination):
                way, packet = (packet.src, packet.dst, sa.spi), sa.scapy().decrypt(packet)
            ttl = packet.hlim if IPv6 in packet else packet.ttl
            sent.append(Sent(port, way, packet.src, packet.dst, upper_of(packet), len(packet), ttl))
    drops = [
        FORGED if reason in ("esp_truncated", "esp_bad_icv") else reason
        for reason, count in result.drops.items() for _ in range(count)
    ]
    counters = {counter["name"]: counter["value"] for counter in result.report["counters"]}
    is_told = counters["icmp_errors"] + counters["tcp_resets"] > 0
    return sorted(drops), sorted(sent, key=str), is_told


def upper_of(packet):
    """Ports, or type and code."""
    number, body = packet.nh if IPv6 in packet else packet.proto, bytes(packet.payload)
    if number == 44:
        number, offset, body = body[0], int.from_bytes(body[2:4]) >> 3, body[8:]
    else:
        offset = 0 if IPv6 in packet else packet.frag
    if offset or number not in (1, 6, 17, 58):
        return None
    return struct.unpack("!BB" if number in (1, 58) else "!HH", body[: 2 if number in (1, 58) else 4])


class Both:
    """Asks `explain` about packets, and replays them."""

    def __init__(self, world, directory):
        self._world, self._directory, self.config = world, directory, directory / "explained.toml"
        self.config.write_text(world.text)

    def compare(self, port, sa, packet, answers):
        """The stages of a packet, and how what becomes of it differs from them."""
        words = f"{packet.words()} in {f'sa {sa.reqid}' if sa else port}"
        done = run([binary(), "explain", "-j", "--config", self.config, words], check=False)
        assert done.returncode in (0, 1), (words, done.stderr)
        stages, received = json.loads(done.stdout), packet.packet()
        if sa:
            received = forge.seal(sa, 1, forge.trailer(bytes(received), 41 if packet.is_v6 else 4, 4))
        frame = Ether(src=STATION, dst="02:00:00:00:09:09") / received
        options = ["--any-mac", *(["--assume-neighbours"] if answers else [])]
        world = self._world
        result = replay(self._directory / "replay", world.text, {port: [frame]}, world.ports, options)
        said, shown = foretold(packet, stages, answers), seen(world, result)
        if not answers and said[2] and stages[-1]["fate"] == "sent-once-resolved":
            shown = without_error(said, shown)
        differs = "" if said == shown else f"{words}\n    {stages[-1]}\n    {said}\n    {shown}"
        return stages, differs


def without_error(said, shown):
    """What becomes of the error about a packet that has waited in vain is not foretold, only that there is one."""
    (foretold_drops, _, _), (drops, sent, is_told) = said, shown
    more = collections.Counter(drops) - collections.Counter(foretold_drops)
    is_one = more.total() + len(sent) == 1 and len(drops) == len(foretold_drops) + more.total()
    return (foretold_drops, [], is_told) if is_one else shown


@pytest.mark.parametrize("answers", [True, False], ids=["answered", "silent"])
@pytest.mark.parametrize("narrow", [None, 0, 1])
@pytest.mark.parametrize("name", [*EXAMPLES, "site"])
def test_packets_fare_as_explained(tmp_path, name, narrow, answers):
    draw = random.Random(f"{name} {narrow} {answers}")
    world = World(name, narrow)
    both = Both(world, tmp_path)
    compared = [both.compare(*world.drawn(draw), answers) for _ in range(PACKETS)]
    fates = collections.Counter(stages[-1]["fate"] for stages, _ in compared)
    assert len(fates) > 1, fates
    differ = [differs for _, differs in compared if differs]
    assert not differ, "\n".join([f"{len(differ)} of {fates}", *differ])


# By configuration: where a packet comes by, and source and destination as it leaves.
TRANSLATED = {
    "firewall": [
        ("lan", "udp", "10.1.0.9", "198.51.100.7", (5000, 53), "192.0.2.1", "198.51.100.7"),
        ("lan", "tcp", "10.1.0.9", "192.0.2.1", (5000, 443), "10.1.0.9", "10.3.0.2"),
        ("wan", "tcp", "198.51.100.7", "192.0.2.1", (5000, 443), "198.51.100.7", "10.3.0.2"),
        ("wan", "tcp", "198.51.100.7", "192.0.2.1", (5000, 2222), "198.51.100.7", "10.3.0.2"),
        ("dmz", "tcp", "10.3.0.2", "192.0.2.1", (5000, 443), "10.3.0.1", "10.3.0.2"),
        ("dmz", "tcp", "10.3.0.25", "198.51.100.7", (5000, 25), "192.0.2.25", "198.51.100.7"),
    ],
    "identical-networks": [
        ("red-lan", "tcp", "10.0.0.2", "100.64.2.3", (5000, 80), "100.64.1.2", "10.0.0.3"),
        ("blue-lan", "udp", "10.0.0.3", "100.64.1.2", (5000, 53), "100.64.2.3", "10.0.0.2"),
    ],
    "shared-services": [
        ("red-lan", "tcp", "10.0.0.9", "192.0.2.10", (5000, 80), "198.51.100.1", "192.0.2.10"),
        ("blue-lan", "tcp", "10.0.0.9", "203.0.113.10", (5000, 80), "198.51.100.2", "192.0.2.10"),
    ],
}


@pytest.mark.parametrize("name", TRANSLATED)
def test_translated_packets_leave_as_explained(tmp_path, name):
    both = Both(World(name, None), tmp_path)
    for port, protocol, source, destination, ports, *ends in TRANSLATED[name]:
        packet = Packet(protocol, source, destination, ports, flags="syn" if protocol == "tcp" else "")
        stages, differs = both.compare(port, None, packet, answers=True)
        assert not differs, differs
        opened = by_name(stages)["connection"]
        assert [opened["becomes_source"], opened["becomes_destination"]] == ends, opened
