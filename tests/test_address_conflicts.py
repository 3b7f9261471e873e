"""Another station has an address of the gateway: the log and a counter say so, and the gateway defends it."""

import re
import time

import pytest
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6NDOptDstLLAddr
from scapy.layers.l2 import ARP, Ether

from harness.config import Config
from harness.gateway import Gateway
from test_namespaces import LEFT, RIGHT, attach
from test_neighbour_floods import counter, flood, port

pytestmark = pytest.mark.namespaces

OTHER = "52:54:00:12:34:56"
"""The Ethernet address of the other station."""


@pytest.fixture
def hosts(topology, tmp_path):
    """Two hosts with the gateway between them, in a VRF: `(left, right, gateway)`."""
    topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT, "red")
    right, right_port = attach(topology, "right", RIGHT, "red")
    with Gateway(topology["gw"], Config(ports=[left_port, right_port], vrfs=["red"]), tmp_path) as gateway:
        yield left, right, gateway


def lines(gateway):
    """What the log says of conflicts: address, port, Ethernet address, and the rest of the line."""
    text = r"WARN another station has (\S+), an address of port (\S+): ([0-9a-f:]{17})(.*)"
    return re.findall(text, gateway.log())


def wait_for_lines(gateway, count):
    """Waits until the log has so many lines of conflicts, and returns them."""
    end = time.monotonic() + 5
    while len(lines(gateway)) < count and time.monotonic() < end:
        time.sleep(0.05)
    assert len(lines(gateway)) == count, gateway.log()
    return lines(gateway)


def received(sniffer, seconds=1):
    """The frames that come within so many seconds."""
    sniffer.settimeout(0.1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            yield Ether(sniffer.recv(2048))
        except TimeoutError:
            pass


def test_a_station_with_the_gateways_addresses_is_named_and_answered(hosts):
    left, _, gateway = hosts
    mac = port(gateway, "left")["mac"]
    for words in (("10.1.0.1/24",), ("fd01::1/64", "nodad")):
        left.ip("addr", "add", *words, "dev", "eth0")
    left.sysctl("net.ipv4.conf.eth0.arp_notify", 1)
    left.sysctl("net.ipv6.conf.eth0.ndisc_notify", 1)
    with left.packet_socket("eth0") as sniffer:
        # The kernel announces its addresses by a new Ethernet address.
        left.ip("link", "set", "eth0", "address", OTHER)
        seen = [frame for frame in received(sniffer) if frame.src == mac]
    told = wait_for_lines(gateway, 2)
    assert set(told) == {(own, "left", OTHER, ' vrf="red"') for own in ("10.1.0.1", "fd01::1")}
    gateway.wait_for_more_drops("address_conflict", 1)
    # Once for each address, as ARP announcement and as unsolicited advertisement.
    (announced,) = [frame[ARP] for frame in seen if ARP in frame and frame[ARP].psrc == frame[ARP].pdst]
    assert (announced.op, announced.hwsrc, announced.psrc) == (1, mac, "10.1.0.1")
    (advertised,) = [frame for frame in seen if ICMPv6ND_NA in frame and frame[ICMPv6ND_NA].S == 0]
    assert (advertised[ICMPv6ND_NA].tgt, advertised[ICMPv6ND_NA].O, advertised[ICMPv6ND_NA].R) == ("fd01::1", 1, 1)
    assert advertised[ICMPv6NDOptDstLLAddr].lladdr == mac
    # The gateway keeps its addresses.
    left.ip("addr", "del", "10.1.0.1/24", "dev", "eth0")
    left.ip("addr", "del", "fd01::1/64", "dev", "eth0")
    for family in (4, 6):
        left.ping(LEFT[family][0], count=1)
        left.ping(RIGHT[family][1], count=1)


def test_a_station_that_asks_first_does_not_get_the_address(hosts):
    left, _, gateway = hosts
    left.sysctl("net.ipv6.conf.eth0.accept_dad", 1)
    left.ip("addr", "add", "fd01::1/64", "dev", "eth0")
    end = time.monotonic() + 5
    while "dadfailed" not in (said := left.ip("addr", "show", "dev", "eth0").stdout) and time.monotonic() < end:
        time.sleep(0.1)
    assert "dadfailed" in said
    assert lines(gateway) == []
    assert "address_conflict" not in gateway.drops()


def test_a_flood_of_conflicts_is_one_line_and_loses_no_events(hosts):
    left, right, gateway = hosts
    own = port(gateway, "left")["mac"]
    claim = bytes(
        Ether(src=OTHER, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=OTHER, psrc="10.1.0.1", pdst="10.1.0.1")
    )
    looped = bytes(Ether(src=own, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=own, psrc="10.1.0.1", pdst="10.1.0.1"))
    flood(left, [claim] * 20_000)
    left.ping(RIGHT[4][1], count=1)
    right.ping(LEFT[6][1], count=1)
    assert gateway.wait_for_more_drops("address_conflict") > 1000
    assert counter(gateway, "events_lost") == 0
    assert [line[:3] for line in wait_for_lines(gateway, 1)] == [("10.1.0.1", "left", OTHER)]
    # What the gateway has sent itself is none.
    before = gateway.drops()
    flood(left, [looped] * 10)
    assert gateway.wait_for_more_drops("arp_malformed", 9) == 10
    assert gateway.drops()["address_conflict"] == before["address_conflict"]
