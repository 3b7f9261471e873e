"""The example of a server that two tenants with equal addresses reach: docs/examples/shared-services.toml."""

import re
from pathlib import Path

import pytest
from harness.capture import captured
from harness.gateway import Gateway
from scapy.layers.inet import IP

pytestmark = pytest.mark.namespaces

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "shared-services.toml"

SERVER = "192.0.2.10"
TENANTS = {"red": (SERVER, "198.51.100.1"), "blue": ("203.0.113.10", "198.51.100.2")}
"""Tenant -> where its hosts see the server, and what they look like to it."""

HOST = "10.0.0.5"

# Says what the peer looks like, over UDP and TCP.
SERVE = """
import socket, threading
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("", 7))
tcp = socket.create_server(("", 7))
def datagrams():
    while True:
        data, peer = udp.recvfrom(99)
        udp.sendto(peer[0].encode(), peer)
threading.Thread(target=datagrams, daemon=True).start()
print("ready", flush=True)
while True:
    connection, peer = tcp.accept()
    connection.sendall(peer[0].encode())
    connection.close()
"""

ASK = """
import socket, sys
kind = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}[sys.argv[1]]
with socket.socket(socket.AF_INET, kind) as s:
    s.settimeout(5)
    s.bind(("", int(sys.argv[3])))
    s.connect((sys.argv[2], 7))
    if kind == socket.SOCK_DGRAM:
        s.send(b"?")
    print(s.recv(99).decode(), s.getpeername()[0])
"""


class Text:
    """A configuration that is a text."""

    def __init__(self, text):
        self.text = text

    def render(self, socket):
        return f'[gateway]\nsocket = "{socket}"\n{self.text}'


@pytest.fixture
def hub(topology, tmp_path):
    """The gateway, the tenants' hosts, and the server."""
    gw = topology.namespace("gw")
    text = EXAMPLE.read_text()
    spaces = {}
    for number, label in enumerate(("red", "blue", "server"), start=1):
        space = spaces[label] = topology.namespace(label)
        topology.link(gw, f"eth{number}", space, "eth0")
        gw.silence(f"eth{number}")
        own, gate = (SERVER, "192.0.2.1") if label == "server" else (HOST, "10.0.0.1")
        space.addresses("eth0", f"{own}/24")
        space.ip("route", "add", "default", "via", gate)
    with Gateway(gw, Text(text), tmp_path) as gateway:
        serving = spaces["server"].start("/usr/bin/python3", "-c", SERVE, stdout=-1)
        serving.stdout.readline()
        # The network of blue's own that the server's address is in, too.
        gateway.run("route", "add", "192.0.2.0/24", "via", "10.0.0.9", "vrf", "blue")
        try:
            yield gateway, spaces
        finally:
            serving.kill()
            serving.wait()


def ask(space, protocol, address, port=4000):
    return space.run("/usr/bin/python3", "-c", ASK, protocol, address, port).stdout.split()


def test_both_tenants_reach_the_server_and_nobody_else(hub):
    gateway, spaces = hub
    for protocol in ("udp", "tcp"):
        for tenant, (server, seen) in TENANTS.items():
            # The same address and port of both at once, and none sees anything of the other.
            other = spaces["blue" if tenant == "red" else "red"]
            with captured(other, "eth0") as frames:
                assert ask(spaces[tenant], protocol, server) == [seen, server]
            assert not [frame for frame in frames if frame.haslayer(IP)], frames
    for tenant, (server, _) in TENANTS.items():
        spaces[tenant].ping(server, count=2)
    # Neither side begins anything else.
    for address in ("198.51.100.1", "198.51.100.2", HOST):
        lost = spaces["server"].ping(address, count=1, timeout=1, check=False).stdout
        assert "100% packet loss" in lost, lost
    assert "100% packet loss" in spaces["blue"].ping(SERVER, count=1, timeout=1, check=False).stdout
    assert "100% packet loss" in spaces["red"].ping("203.0.113.10", count=1, timeout=1, check=False).stdout


def test_what_does_not_fit_and_who_does_not_listen_is_told(hub):
    gateway, spaces = hub
    # A port where nobody listens: the server's error goes back through the translation.
    for tenant, (server, _) in TENANTS.items():
        refused = spaces[tenant].run(
            "/usr/bin/python3", "-c", ASK.replace(", 7)", ", 8)"), "udp", server, 4001, check=False
        )
        assert "ConnectionRefusedError" in refused.stderr, refused.stderr
    # A small link on the way to the server is told to who has sent, in the tenant's VRF.
    gateway.run("link", "set", "servers", "mtu", "1300")
    for tenant, (server, _) in TENANTS.items():
        told = spaces[tenant].run(
            "ping", "-n", "-c", "1", "-W", "2", "-s", "1400", "-M", "do", server, check=False
        ).stdout
        assert re.search("mtu ?= ?1300", told), told


@pytest.mark.parametrize(
    "lines", [("addr del 192.0.2.1/24 dev servers",), ("link set servers nomaster", "link del shared")]
)
def test_nothing_goes_to_a_tenants_own_network_if_the_server_is_gone(hub, lines):
    gateway, spaces = hub
    # The router of blue's own network with the server's address.
    spaces["blue"].addresses("eth0", "10.0.0.9/24")
    spaces["blue"].ping("10.0.0.1", count=1, source="10.0.0.9")
    gateway.run("flow", "del", "vrf=shared")
    for line in lines:
        gateway.run(*line.split())
    with captured(spaces["blue"], "eth0") as frames:
        told = spaces["blue"].ping(TENANTS["blue"][0], count=1, timeout=1, check=False).stdout
        spaces["blue"].ping("10.0.0.1", count=2)
    came = [f for f in frames if f.haslayer(IP) and f.src != spaces["blue"].mac("eth0")]
    assert came and {f[IP].src for f in came} == {"10.0.0.1"}, came
    assert "Unreachable" in told, told


def test_explain_shows_the_way_and_errors_about_it(hub):
    gateway, spaces = hub
    ask(spaces["blue"], "udp", "203.0.113.10")
    shown = gateway.run("explain", f"udp {HOST}:4000 > 203.0.113.10:7 in blue-lan", check=False).stdout
    assert "sent-in-clear" in shown and "forward in clear by servers" in shown, shown
    error = f"icmp {SERVER} > 198.51.100.2 type 3 code 3 about udp 198.51.100.2:4000 > {SERVER}:7 in servers"
    shown = gateway.run("explain", error, check=False).stdout
    assert "sent-in-clear" in shown and "ct_state rel|" in shown and "by blue-lan" in shown, shown
