"""What a running gateway's `explain` says of packets of connections, step by step, and what becomes of each."""

import dataclasses
import json
import random
import select
import time

import pytest
from harness.described import Packet
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import Ether
from test_explain_replay import by_name
from test_firewall import SERVER, hosts  # noqa: F401

pytestmark = pytest.mark.namespaces

INSIDES, OUTSIDES, OWN = ("10.1.0.50", "10.1.0.51"), ("10.2.0.50", "10.2.0.51"), "10.2.0.1"
"""Stations that no system answers for, and what those inside are masqueraded with."""

INSIDE, OUTSIDE = INSIDES[0], OUTSIDES[0]


class Stations:
    """Stations at the links of a gateway: what they send, and what comes to them."""

    def __init__(self, gateway, spaces):
        self.gateway = gateway
        self._macs = {port["name"]: port["mac"] for port in gateway.json("show", "ports")}
        self._links = {label: space.packet_socket("eth0") for label, space in spaces.items()}
        for label, addresses in (("left", INSIDES), ("right", OUTSIDES)):
            for address in addresses:
                gateway.run("neigh", "add", address, "lladdr", spaces[label].mac("eth0"), "dev", label)

    def close(self):
        for link in self._links.values():
            link.close()

    def fares(self, label, packet):
        """Asks what becomes of a packet and sends it. Returns the reason it was dropped for, or how it left."""
        done = self.gateway.run("-j", "explain", f"{packet.words()} in {label}", check=False)
        stages = json.loads(done.stdout)
        outcome = stages[-1]
        before = self.gateway.drops()
        for link in self._links.values():
            empty(link)
        self._links[label].send(bytes(Ether(dst=self._macs[label]) / packet.packet()))
        if outcome["fate"] == "dropped":
            self.gateway.wait_for_more_drops(outcome["reason"], before.get(outcome["reason"], 0))
            return outcome["reason"]
        if outcome["fate"] == "answered":
            return ("answered", *ends(self._came(label, dataclasses.replace(packet, ttl=65))))
        assert outcome["fate"] == "sent-in-clear", stages
        verdict = by_name(stages)["verdict"]
        left = self._came(verdict["port"], packet)
        opened = by_name(stages).get("connection", {})
        named = ("becomes_source", "becomes_destination", "becomes_source_port", "becomes_destination_port")
        for name, came in zip(named, ends(left)):
            assert opened.get(name, came) == came, (name, opened, left)
        return verdict["port"], *ends(left)

    def _came(self, label, packet):
        """The packet as it came to a link."""
        end = time.monotonic() + 5
        while (left := end - time.monotonic()) > 0 and select.select([self._links[label]], [], [], left)[0]:
            frame = Ether(self._links[label].recv(65535))
            if frame.src == self._macs[label] and IP in frame and frame[IP].proto == packet.number:
                assert frame[IP].ttl == packet.ttl - 1
                return frame[IP]
        raise AssertionError(f"{packet.words()} has not come to {label}: {self.gateway.drops()}")


def empty(link):
    while select.select([link], [], [], 0)[0]:
        link.recv(65535)


def ends(packet):
    """Addresses and ports, or what an ICMP error quotes of these."""
    if isinstance(packet.payload, ICMP):
        quoted = packet[ICMP].payload
        return packet.src, packet.dst, ends(quoted) if isinstance(quoted, IP) else packet[ICMP].id
    return packet.src, packet.dst, packet.payload.sport, packet.payload.dport


@pytest.fixture
def stations(hosts):  # noqa: F811
    left, server, right, gateway, _ = hosts
    # The gateway knows it then.
    server.ping(SERVER[4][0], count=1)
    made = Stations(gateway, {"left": left, "server": server, "right": right})
    yield made
    made.close()


def error(source, destination, quoted):
    """A report that a port is unreachable."""
    return Packet("icmp", source, destination, kind=3, code=3, about=quoted)


def test_a_datagram_its_answer_and_errors_about_both(stations):
    asked = Packet("udp", INSIDE, OUTSIDE, (4000, 53))
    answer = Packet("udp", OUTSIDE, OWN, (53, 4000))
    outside = Packet("udp", OWN, OUTSIDE, (4000, 53))
    # Nothing is known yet.
    assert stations.fares("right", answer) == "flow_drop"
    assert stations.fares("right", error(OUTSIDE, OWN, outside)) == "flow_drop"
    assert stations.fares("left", asked) == ("right", OWN, OUTSIDE, 4000, 53)
    assert stations.fares("right", answer) == ("left", OUTSIDE, INSIDE, 53, 4000)
    told = ("left", OUTSIDE, INSIDE, (INSIDE, OUTSIDE, 4000, 53))
    assert stations.fares("right", error(OUTSIDE, OWN, outside)) == told
    # By a router on the way, and one that quotes what was never sent.
    assert stations.fares("right", error("10.2.0.77", OWN, outside)) == ("left", "10.2.0.77", *told[2:])
    other = Packet("udp", OWN, OUTSIDE, (4001, 53))
    assert stations.fares("right", error(OUTSIDE, OWN, other)) == "flow_drop"
    # The other way round: about the answer.
    back = error(INSIDE, OUTSIDE, Packet("udp", OUTSIDE, INSIDE, (53, 4000)))
    assert stations.fares("left", back) == ("right", OWN, OUTSIDE, (OUTSIDE, OWN, 53, 4000))
    # Another port from outside is no answer, and the same source port of another host is free no more.
    assert stations.fares("right", Packet("udp", OUTSIDE, OWN, (54, 4000))) == "flow_drop"
    _, source, _, port, _ = stations.fares("left", Packet("udp", "10.1.0.51", OUTSIDE, (4000, 53)))
    assert source == OWN and port != 4000


def test_a_connection_of_tcp(stations):
    def segment(flags, here=INSIDE, there=OUTSIDE, ports=(4000, 80)):
        return Packet("tcp", here, there, ports, flags=flags)

    assert stations.fares("left", segment("syn,fin")) == "flow_drop"
    assert stations.fares("left", segment("syn")) == ("right", OWN, OUTSIDE, 4000, 80)
    assert stations.fares("right", segment("syn", OUTSIDE, OWN, (80, 4001))) == "flow_drop"
    # A forwarded port, under another one inside.
    came = stations.fares("right", segment("syn", OUTSIDE, OWN, (4000, 8080)))
    assert came == ("server", OUTSIDE, "10.3.0.2", 4000, 80)
    # What policies refuse, in either direction.
    assert stations.fares("left", segment("syn", ports=(4000, 6002))) == "flow_drop"
    assert stations.fares("left", segment("syn", ports=(4000, 6001))) == "flow_drop"
    assert stations.fares("right", segment("syn", OUTSIDE, INSIDE)) == "flow_drop"


def test_a_closed_connection_is_opened_anew(stations):
    asked = Packet("tcp", INSIDE, OUTSIDE, (4000, 80), flags="syn")
    assert stations.fares("left", asked) == ("right", OWN, OUTSIDE, 4000, 80)
    given_up = dataclasses.replace(asked, flags="rst")
    assert stations.fares("left", given_up) == ("right", OWN, OUTSIDE, 4000, 80)
    # The closed connection is none in its way.
    assert stations.fares("left", asked) == ("right", OWN, OUTSIDE, 4000, 80)


def test_hop_limits_and_sizes(stations):
    asked = Packet("udp", INSIDE, OUTSIDE, (4000, 53), ttl=1)
    assert stations.fares("left", asked) == "hop_limit"
    # It has opened no connection.
    assert stations.fares("right", Packet("udp", OUTSIDE, OWN, (53, 4000))) == "flow_drop"
    stations.gateway.run("link", "set", "right", "mtu", "1300")
    assert stations.fares("left", Packet("udp", INSIDE, OUTSIDE, (4000, 53), size=1301, df=True)) == "too_big"
    assert stations.fares("left", Packet("udp", INSIDE, OUTSIDE, (4000, 53), size=1300, df=True))[0] == "right"


def drawn(draw):
    """A packet of few connections, so that many are of one that is there."""
    label = draw.choice(["left", "right"])
    source, destination = draw.choice(INSIDES), draw.choice(OUTSIDES)
    if label == "right":
        source, destination = destination, draw.choice([OWN, OWN, OWN, source])
    ports = (4000, draw.choice([80, 53, 6001, 6002]))
    ports = (ports[0], draw.choice([8080, 8081])) if label == "right" and draw.random() < 0.2 else ports
    ports = ports[::-1] if label == "right" and draw.random() < 0.7 else ports
    kind = draw.choice(["udp", "udp", "tcp", "tcp", "tcp", "icmp", "error"])
    if kind == "tcp":
        flags = draw.choice(["syn", "syn", "syn,ack", "ack", "fin,ack", "rst", "psh,ack"])
        return label, Packet("tcp", source, destination, ports, flags=flags, ttl=draw.choice([64, 64, 64, 1]))
    if kind == "udp":
        return label, Packet("udp", source, destination, ports, ttl=draw.choice([64, 64, 64, 1]))
    if kind == "icmp":
        return label, Packet("icmp", source, destination, kind=draw.choice([8, 0]), id=draw.choice([7, 8]))
    quoted = Packet(draw.choice(["udp", "tcp"]), destination, source, ports[::-1], flags="ack")
    return label, error(source, destination, quoted)


@pytest.mark.parametrize("seed", range(1, 9))
def test_packets_at_random(stations, seed):
    draw = random.Random(seed)
    came = [stations.fares(*drawn(draw)) for _ in range(120)]
    # In both directions, and for several reasons not.
    assert {fate[0] for fate in came if isinstance(fate, tuple)} >= {"left", "right", "answered"}, came
    assert {fate for fate in came if isinstance(fate, str)} >= {"flow_drop", "hop_limit"}, came
