"""What one tenant's flood leaves to another, with and without a highest share, on the real daemon."""

import pytest
from harness.config import Config, Port
from harness.gateway import Gateway
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import Ether

pytestmark = pytest.mark.namespaces

OWN, HOST = "10.1.0.1", "10.1.0.2"
"""Of each tenant: both have the same."""

DATAGRAMS = 256
"""Datagrams that a worker puts together at once, of all VRFs."""
SOUGHT = 1024
"""Next hops that a worker asks for at once."""
FLOOD = 3000


@pytest.fixture
def tenants(topology, tmp_path):
    """The tenants' hosts by VRF, and the gateway between them, with one worker."""
    gw, hosts, ports = topology.namespace("gw"), {}, []
    for vrf in ("red", "blue"):
        hosts[vrf] = host = topology.namespace(vrf)
        topology.link(gw, f"{vrf}0", host, "eth0")
        gw.silence(f"{vrf}0")
        host.addresses("eth0", f"{HOST}/16")
        host.ip("route", "add", "default", "via", OWN)
        ports.append(Port(f"{vrf}0", [f"{OWN}/16"], kind="af-packet", interface=f"{vrf}0", vrf=vrf))
    with Gateway(gw, Config(ports=ports, vrfs=list(hosts)), tmp_path) as gateway:
        for host in hosts.values():
            host.ping(OWN)
        yield hosts, gateway


def flood(gateway, host, packet, change):
    """Sends frames whose packets differ by number. Returns for what reasons how many were dropped."""
    own = next(port["mac"] for port in gateway.json("show", "ports") if port["name"] == "red0")
    frames = []
    for number in range(FLOOD):
        change(packet, number)
        frames.append(bytes(Ether(src=host.mac("eth0"), dst=own) / packet))
    before = gateway.drops()
    with host.packet_socket("eth0") as out:
        for frame in frames:
            out.send(frame)
    host.ping(OWN)
    return {reason: count - before.get(reason, 0) for reason, count in gateway.drops().items()}


@pytest.mark.parametrize("share", [100, 10])
def test_datagrams_that_are_never_whole(tenants, share):
    hosts, gateway = tenants
    gateway.run("vrf", "set", "red", "highest-share", str(share))
    packet = IP(src=HOST, dst=OWN, flags="MF") / UDP(sport=1, dport=2) / bytes(512)
    dropped = flood(gateway, hosts["red"], packet, lambda packet, number: setattr(packet, "id", number + 1))
    left = FLOOD - dropped["reassembly_full"] - dropped.get("reassembly_timeout", 0)
    assert 0 < left <= DATAGRAMS * share // 100, dropped
    # The other tenant's fragments are put together at once.
    hosts["blue"].ping(OWN, size=3000)


@pytest.mark.parametrize("share", [100, 10])
def test_stations_that_are_not_there(tenants, share):
    hosts, gateway = tenants
    gateway.run("vrf", "set", "red", "highest-share", str(share))
    packet = IP(src=HOST, dst=OWN) / UDP(sport=1, dport=2)

    def change(packet, number):
        packet.dst = f"10.1.{1 + number // 250}.{1 + number % 250}"

    dropped = flood(gateway, hosts["red"], packet, change)
    held = FLOOD - dropped.get("neighbour_table_full", 0) - dropped.get("neighbour_unresolved", 0)
    # One VRF alone may seek half of what there is, by one port and family.
    assert 0 < held <= min(SOUGHT // 2, SOUGHT * share // 100), dropped
    # The other tenant finds a station of its own that was not known.
    host = hosts["blue"]
    host.ip("addr", "add", "10.1.0.3/16", "dev", "eth0")
    host.ping(OWN, source="10.1.0.3")


@pytest.mark.parametrize("share", [100, 10])
def test_errors_that_are_sent(tenants, share):
    hosts, gateway = tenants
    gateway.run("vrf", "set", "red", "highest-share", str(share))
    packet = IP(src=HOST, dst="203.0.113.9") / ICMP()

    def errors():
        (worker,) = gateway.json("show", "workers")
        return next(row["value"] for row in worker["counters"] if row["name"] == "icmp_errors")

    before = errors()
    flood(gateway, hosts["red"], packet, lambda packet, number: setattr(packet[ICMP], "id", number))
    told = errors() - before
    # A burst, and what a second or two of a busy machine add to it.
    assert 0 < told <= (100 + 2 * 1000) * share // 100 + 10, told
    told = hosts["blue"].run("ping", "-n", "-c", "3", "-i", "0.2", "203.0.113.9", check=False).stdout
    assert told.count("From 10.1.0.1") == 3, told
