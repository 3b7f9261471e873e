"""Fragments of one datagram that come by different ports: those of one zone are joined, those of two never."""

import random
import socket

import pytest
from harness.gateway import Gateway
from scapy.layers.inet import IP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from test_firewall import Firewalled
from test_namespaces import LEFT, RIGHT, attach, both_families

pytestmark = pytest.mark.namespaces

SECOND = {4: ("10.4.0.1", "10.4.0.2"), 6: ("fd04::1", "fd04::2")}
"""Another uplink: family -> the gateway's address, and the host's."""

ZONES = """
[firewall]

[[firewall.zone]]
name = "inside"
ports = ["left"]

[[firewall.zone]]
name = "outside"
ports = ["right"{}]

[[firewall.zone]]
name = "other"
{}

[[firewall.policy]]
from = ["outside", "other"]
to = ["inside"]
rules = [{{ services = ["udp/5000"], action = "accept" }}]
"""
ONE = ZONES.format(', "second"', 'networks = ["10.99.0.0/16"]')
TWO = ZONES.format("", 'ports = ["second"]')


@pytest.fixture(params=[ONE, TWO], ids=["one-zone", "two-zones"])
def site(request, topology, tmp_path):
    """A host inside, two ways to it from outside, and whether these are of one zone."""
    topology.namespace("gw")
    made = [attach(topology, label, ends) for label, ends in (("left", LEFT), ("right", RIGHT), ("second", SECOND))]
    config = Firewalled(ports=[port for _, port in made], firewall=request.param)
    with Gateway(topology["gw"], config, tmp_path) as gateway:
        left, *outside = [host for host, _ in made]
        macs = {port["name"]: port["mac"] for port in gateway.json("show", "ports")}
        ways = [Way(host, macs[label]) for host, label in zip(outside, ("right", "second"))]
        yield left, ways, request.param is ONE
        for way in ways:
            way.socket.close()


class Way:
    """A host outside that sends what it likes to the gateway's port."""

    def __init__(self, host, mac):
        self.socket, self._mac = host.packet_socket("eth0"), mac

    def send(self, packet):
        self.socket.send(bytes(Ether(dst=self._mac) / packet))


def in_two(family, body):
    """A datagram from the host at the right to the one inside, in two fragments."""
    number = random.getrandbits(16)
    if family == 4:
        whole = IP(src=RIGHT[4][1], dst=LEFT[4][1], id=number) / UDP(sport=4000, dport=5000) / Raw(body)
        parts = fragment(whole, 1000)
    else:
        header = IPv6(src=RIGHT[6][1], dst=LEFT[6][1]) / IPv6ExtHdrFragment(id=number)
        parts = fragment6(header / UDP(sport=4000, dport=5000) / Raw(body), 1100)
    assert len(parts) == 2
    return parts


def received(opened):
    """What came to a socket."""
    came = []
    try:
        while True:
            came.append(opened.recv(65535))
    except TimeoutError:
        return came


@both_families
def test_fragments_are_joined_within_a_zone_alone(site, family):
    left, ways, is_one = site
    draw = random.Random(family)
    with left.entered():
        opened = socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET, socket.SOCK_DGRAM)
    with opened:
        opened.bind(("::" if family == 6 else "0.0.0.0", 5000))
        opened.settimeout(1.5)
        joined, split = [], []
        # By one port each fragment has its other; by both in either order only within a zone.
        for first, second, wanted in [(0, 0, joined), (1, 1, joined), (0, 1, split), (1, 0, split)] * 3:
            body = draw.randbytes(1500)
            wanted.append(body)
            parts = in_two(family, body)
            if draw.random() < 0.5:
                parts.reverse()
            ways[first].send(parts[0])
            ways[second].send(parts[1])
        came = received(opened)
    # Had any fragment passed by itself, the host inside would have joined it with its other.
    wanted = joined + split if is_one else joined
    assert sorted(came) == sorted(wanted), [len(body) for body in came]
