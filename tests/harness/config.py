"""The gateway's configuration: the only place of the tests that knows how it is spelled."""

import dataclasses
import json

from harness.algorithms import Sa, hexadecimal

FIRST, LAST = 100, 10000
"""Priorities: the smaller number wins, as in Linux."""


@dataclasses.dataclass
class Port:
    """A port of the gateway."""

    name: str
    addresses: list
    kind: str = "memory"
    interface: str = ""
    vrf: str = ""
    mac: str = ""
    mtu: int = 0
    parent: str = ""
    id: int = 0
    protocol: str = ""
    receive_ring: int = 0
    side: str = ""


@dataclasses.dataclass
class Route:
    """A static route."""

    to: str
    via: str = ""
    port: str = ""
    vrf: str = ""
    kind: str = ""


@dataclasses.dataclass
class Neighbour:
    """A static neighbour."""

    port: str
    address: str
    mac: str


@dataclasses.dataclass
class Policy:
    """A policy; with `sa`, one that protects with the SAs of that SA's ends and reqid."""

    direction: str
    source: str
    destination: str
    action: str = "protect"
    sa: Sa | None = None
    priority: int = FIRST
    protocol: str = ""
    destination_ports: str = ""
    vrf: str = ""


@dataclasses.dataclass
class Config:
    """A whole configuration."""

    ports: list = dataclasses.field(default_factory=list)
    routes: list = dataclasses.field(default_factory=list)
    neighbours: list = dataclasses.field(default_factory=list)
    sas: list = dataclasses.field(default_factory=list)
    policies: list = dataclasses.field(default_factory=list)
    vrfs: list = dataclasses.field(default_factory=list)
    workers: int = 1
    gateway: dict = dataclasses.field(default_factory=dict)
    """Other keys of `[gateway]`."""
    ipsec: dict = dataclasses.field(default_factory=dict)
    """The keys of `[ipsec]`."""

    def render(self, socket):
        """The configuration as TOML, with its control socket at `socket`."""
        text = [table("gateway", workers=self.workers, socket=str(socket), **self.gateway)]
        text += [table("ipsec", **self.ipsec)] if self.ipsec else []
        text += [entry("vrf", name=name) for name in self.vrfs]
        text += [
            entry(
                "port",
                name=p.name,
                kind=p.kind,
                interface=p.interface,
                parent=p.parent,
                protocol=p.protocol,
                id=p.id,
                vrf=p.vrf,
                mac=p.mac,
                mtu=p.mtu,
                side=p.side,
                **{"receive-ring": p.receive_ring},
                addresses=p.addresses,
            )
            for p in self.ports
        ]
        text += [entry("route", to=r.to, via=r.via, port=r.port, vrf=r.vrf, kind=r.kind) for r in self.routes]
        text += [entry("neighbour", port=n.port, address=n.address, mac=n.mac) for n in self.neighbours]
        text += [sa_entry(sa) for sa in self.sas]
        text += [policy_entry(policy) for policy in self.policies]
        return "\n".join(text)


def bypass_the_rest():
    """Policies that let everything pass that no other policy matches."""
    return [
        Policy(direction, network, network, "bypass", priority=LAST)
        for direction in ("out", "in")
        for network in ("0.0.0.0/0", "::/0")
    ]


def sa_entry(sa):
    """An SA, with its keys."""
    algorithm = sa.algorithm
    fields = {
        "source": sa.source,
        "destination": sa.destination,
        "spi": Raw(hex(sa.spi)),
        "reqid": sa.reqid,
        "replay-window": sa.replay_window,
        "vrf": sa.vrf,
    }
    if algorithm.is_aead:
        fields["aead"] = {
            "name": algorithm.kernel_cipher,
            "key": hexadecimal(sa.cipher_key),
            "icv-bits": algorithm.icv_bits,
        }
    else:
        fields["encryption"] = {"name": algorithm.kernel_cipher}
        if sa.cipher_key:
            fields["encryption"]["key"] = hexadecimal(sa.cipher_key)
        fields["authentication"] = {
            "name": algorithm.kernel_authenticator,
            "key": hexadecimal(sa.authenticator_key),
            "truncate-bits": algorithm.icv_bits,
        }
    return entry("sa", **fields)


def policy_entry(policy):
    """A policy, with its template where it protects."""
    fields = {
        "direction": policy.direction,
        "source": policy.source,
        "destination": policy.destination,
        "action": policy.action,
        "priority": policy.priority,
        "protocol": policy.protocol,
        "destination-ports": policy.destination_ports,
        "vrf": policy.vrf,
    }
    if policy.sa:
        fields["template"] = {
            "source": policy.sa.source,
            "destination": policy.sa.destination,
            "reqid": policy.sa.reqid,
        }
    return entry("policy", **fields)


class Raw(str):
    """A value that is TOML already."""


def entry(name, /, **fields):
    """One entry of an array of tables; empty fields are left out."""
    return "[" + table(name, **fields).replace("]\n", "]]\n", 1)


def table(name, /, **fields):
    """A table; empty fields are left out."""
    lines = [f"[{name}]"]
    lines += [f"{key} = {value(content)}" for key, content in fields.items() if content not in ("", None, 0)]
    return "\n".join(lines) + "\n"


def value(content):
    """A value as TOML."""
    if isinstance(content, Raw):
        return str(content)
    if isinstance(content, dict):
        return "{ " + ", ".join(f"{key} = {value(inner)}" for key, inner in content.items()) + " }"
    return json.dumps(content)
