"""Stations that speak unasked keep nobody else from being found."""

import pytest
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from harness.config import Config
from harness.gateway import Gateway
from test_namespaces import LEFT, RIGHT, attach

pytestmark = pytest.mark.namespaces

MANY = 60_000


@pytest.fixture
def hosts(topology, tmp_path):
    """Two hosts with the gateway between them; the left network has 65,534 addresses."""
    gw = topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    left_port.addresses = [f"{LEFT[4][0]}/16", f"{LEFT[6][0]}/64"]
    with Gateway(gw, Config(ports=[left_port, right_port]), tmp_path) as gateway:
        yield left, right, gateway


def port(gateway, name):
    (found,) = [port for port in gateway.json("show", "ports") if port["name"] == name]
    return found


def counter(gateway, name):
    (worker,) = gateway.json("show", "workers")
    (value,) = [row["value"] for row in worker["counters"] if row["name"] == name]
    return value


def flood(host, frames):
    """Sends whole frames as fast as the socket takes them."""
    with host.packet_socket("eth0") as out:
        for frame in frames:
            out.send(frame)


def test_arp_replies_that_nobody_asked_for_are_not_remembered(hosts):
    left, right, gateway = hosts
    own, mac = port(gateway, "left")["mac"], "02:00:00:00:66:66"
    template = Ether(src=mac, dst=own) / ARP(op=2, hwsrc=mac, psrc="10.1.1.1", hwdst=own, pdst=LEFT[4][0])
    frame = bytearray(bytes(template))
    at = bytes(frame).index(bytes([10, 1, 1, 1]))

    def frames():
        for number in range(MANY):
            frame[at + 2 : at + 4] = (number + 1024).to_bytes(2, "big")
            yield frame

    flood(left, frames())
    assert port(gateway, "left")["neighbours"]["ipv4"] == 0
    assert counter(gateway, "neighbours_unasked") > 0
    assert counter(gateway, "events_lost") == 0
    # Real stations are found, on this port and on the other.
    left.ping(LEFT[4][0], count=1)
    right.ping(RIGHT[4][0], count=1)
    left.ping(RIGHT[4][1], count=1)
    right.ping(LEFT[4][1], count=1)
    known = {row["address"] for row in gateway.json("show", "neighbours")}
    assert {LEFT[4][1], RIGHT[4][1]} <= known and len(known) < 10


def test_advertisements_that_nobody_asked_for_are_not_remembered(hosts):
    left, right, gateway = hosts
    own, mac = port(gateway, "left")["mac"], "02:00:00:00:66:66"

    def frames():
        for number in range(2000):
            target = f"fd01::6:{number:x}"
            yield bytes(
                Ether(src=mac, dst=own)
                / IPv6(src=target, dst=LEFT[6][0], hlim=255)
                / ICMPv6ND_NA(tgt=target, R=0, S=1, O=1)
                / ICMPv6NDOptDstLLAddr(lladdr=mac)
            )

    flood(left, frames())
    assert port(gateway, "left")["neighbours"]["ipv6"] == 0
    assert counter(gateway, "neighbours_unasked") > 1000
    left.ping(RIGHT[6][1], count=1)


def test_a_station_that_moves_all_the_time_loses_no_other_ones_events(hosts):
    left, right, gateway = hosts
    left.ping(RIGHT[4][1], count=1)
    own = port(gateway, "left")["mac"]

    frames = [
        bytes(
            Ether(src=f"02:00:00:00:77:{number:02x}", dst=own)
            / ARP(op=2, hwsrc=f"02:00:00:00:77:{number:02x}", psrc=LEFT[4][1], hwdst=own, pdst=LEFT[4][0])
        )
        for number in range(2)
    ]
    flood(left, frames * (MANY // 8))
    assert counter(gateway, "neighbour_moves_limited") > 0
    assert counter(gateway, "events_lost") == 0
    right.ip("addr", "add", "10.2.0.77/24", "dev", "eth0")
    right.ping(RIGHT[4][0], count=1, source="10.2.0.77")
