"""The gateway that most tests look at: a port `lan` with a host behind it, a port `wan` with the tunnel's other end."""

from dataclasses import replace

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from harness.config import Config, Neighbour, Policy, Port, Route
from harness.tunnel import GUEST_INNER, LAN, OUTER

LAN_MAC, WAN_MAC = "02:00:00:00:01:01", "02:00:00:00:02:01"
HOST_MAC, PEER_MAC = "02:00:00:00:01:05", "02:00:00:00:02:02"


def site(tunnels=(), live=False):
    """The gateway's configuration with these tunnels; `live` for interfaces instead of capture files."""
    config = Config(
        ports=[
            Port("lan", [f"{LAN[4][1]}/24", f"{LAN[6][1]}/64"], mac="" if live else LAN_MAC),
            Port("wan", [f"{OUTER[4][1]}/24", f"{OUTER[6][1]}/64"], mac="" if live else WAN_MAC),
        ]
    )
    if live:
        for port in config.ports:
            port.kind, port.interface = "af-packet", port.name
    else:
        config.neighbours = [Neighbour("lan", LAN[family][2], HOST_MAC) for family in (4, 6)]
        config.neighbours += [Neighbour("wan", OUTER[family][0], PEER_MAC) for family in (4, 6)]
    config.routes = [Route(network, via=OUTER[inner][0]) for (_, inner), (network, _) in GUEST_INNER.items()]
    for tunnel in tunnels:
        config.sas += [tunnel.to_gateway, tunnel.to_guest]
        for inner in (4, 6):
            here, there = LAN[inner][0], GUEST_INNER[tunnel.outer, inner][0]
            config.policies += [
                Policy("out", here, there, sa=tunnel.to_guest),
                Policy("in", there, here, sa=tunnel.to_gateway),
            ]
    return config


def in_vrf(config, vrf):
    """The same site in a VRF of its own, on ports and interfaces that are called after it."""
    return Config(
        vrfs=[vrf],
        ports=[
            replace(port, name=f"{vrf}-{port.name}", interface=f"{vrf}-{port.interface}", vrf=vrf)
            for port in config.ports
        ],
        routes=[replace(route, vrf=vrf) for route in config.routes],
        sas=[replace(sa, vrf=vrf) for sa in config.sas],
        policies=[replace(policy, vrf=vrf) for policy in config.policies],
    )


def together(*configs):
    """One gateway for several sites."""
    tables = ("vrfs", "ports", "routes", "sas", "policies")
    return Config(**{name: [row for config in configs for row in getattr(config, name)] for name in tables})


def from_host(packet):
    """A frame from the host behind `lan` to the gateway."""
    return Ether(src=HOST_MAC, dst=LAN_MAC) / packet


def from_peer(packet):
    """A frame from the tunnel's other end to the gateway."""
    return Ether(src=PEER_MAC, dst=WAN_MAC) / packet


def datagram(source, destination, payload, hops=64, sport=4000, dport=5000):
    """A UDP packet, built whole, so that no field is left for later."""
    header = (
        IPv6(src=source, dst=destination, hlim=hops)
        if ":" in source
        else IP(src=source, dst=destination, ttl=hops, id=7)
    )
    packet = header / UDP(sport=sport, dport=dport) / Raw(payload)
    return packet.__class__(bytes(packet))


def outbound(outer, inner, payload, **fields):
    """From the host behind the gateway to the network behind the tunnel."""
    return datagram(LAN[inner][2], GUEST_INNER[outer, inner][1], payload, **fields)


def inbound(outer, inner, payload, **fields):
    """From the network behind the tunnel to the host behind the gateway."""
    return datagram(GUEST_INNER[outer, inner][1], LAN[inner][2], payload, **fields)


def hop_later(packet):
    """The bytes of `packet` after one router: a hop fewer, a checksum to match."""
    later = packet.copy()
    if IPv6 in later:
        later.hlim -= 1
    else:
        later.ttl -= 1
        del later.chksum
    return bytes(later)
