"""A gateway with a host behind its port `lan`, on interfaces; on `wan` nobody answers."""

import json

from harness.gateway import Gateway
from harness.site import site


def hosted(topology, directory, tunnels=(), **sections):
    """The gateway, its namespace and that of the host, who takes it for the way to everywhere: `(gateway, gw, lan)`.
    `sections` are further ones of the configuration file, as in `page={"address": "127.0.0.1:8080"}`."""
    gw, lan = topology.namespace("gw"), topology.namespace("lan")
    topology.link(gw, "lan", lan, "eth0")
    topology.link(gw, "wan", topology.namespace("wan"), "eth0")
    for label in ("lan", "wan"):
        gw.silence(label)
    lan.ip("addr", "add", "192.168.13.5/24", "dev", "eth0")
    lan.ip("route", "add", "default", "via", "192.168.13.1")
    gateway = Gateway(gw, "", directory)
    gateway.write(configured(gateway.socket, tunnels, **sections))
    return gateway, gw, lan


def configured(socket, tunnels=(), live=True, **sections):
    """The configuration of such a gateway."""
    text = site(tunnels, live=live).render(socket)
    for name, keys in sections.items():
        lines = "".join(f"{key.replace('_', '-')} = {json.dumps(value)}\n" for key, value in keys.items())
        text += f"\n[{name}]\n{lines}"
    return text
