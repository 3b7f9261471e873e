"""The example of two tenants with identical networks who talk to each other: docs/examples/identical-networks.toml."""

from pathlib import Path

import pytest
from harness.capture import captured
from harness.gateway import Gateway
from scapy.layers.inet import IP
from test_shared_services import ASK, SERVE, Text, ask

pytestmark = pytest.mark.namespaces

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "identical-networks.toml"

SEEN = {"red": "100.64.1", "blue": "100.64.2"}
"""Tenant -> what its hosts' addresses begin with for the other one."""

HOSTS = (2, 3)

# Holds a connection, and sends on it when told to.
HOLD = """
import socket, sys
with socket.create_connection((sys.argv[1], 9), 5) as s:
    s.sendall(b"first")
    s.recv(9)
    print("connected", flush=True)
    sys.stdin.readline()
    s.sendall(b"second")
    print("sent", flush=True)
    sys.stdin.readline()
"""

ECHO = """
import socket
with socket.create_server(("", 9)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    while data := connection.recv(99):
        connection.sendall(data)
"""


@pytest.fixture
def tenants(topology, tmp_path):
    """The gateway, and the tenants' hosts: both of a tenant are one namespace."""
    gw = topology.namespace("gw")
    spaces, serving = {}, []
    for number, tenant in enumerate(SEEN, start=1):
        space = spaces[tenant] = topology.namespace(tenant)
        topology.link(gw, f"eth{number}", space, "eth0")
        gw.silence(f"eth{number}")
        space.addresses("eth0", *(f"10.0.0.{host}/24" for host in HOSTS))
        space.ip("route", "add", "default", "via", "10.0.0.1")
    with Gateway(gw, Text(EXAMPLE.read_text()), tmp_path) as gateway:
        for space in spaces.values():
            serving.append(space.start("/usr/bin/python3", "-c", SERVE, stdout=-1))
            serving[-1].stdout.readline()
        try:
            yield gateway, spaces
        finally:
            for process in serving:
                process.kill()
                process.wait()


@pytest.mark.parametrize("tenant, other", [("red", "blue"), ("blue", "red")])
def test_each_begins_and_is_answered(tenants, tenant, other):
    gateway, spaces = tenants
    # A host of the same address as its own, and the other one.
    for host in HOSTS:
        server = f"{SEEN[other]}.{host}"
        # The server's datagrams leave from its first address, whichever it was asked by.
        for protocol in ("udp", "tcp") if host == HOSTS[0] else ("tcp",):
            assert ask(spaces[tenant], protocol, server, 4000 + host) == [f"{SEEN[tenant]}.2", server]
        spaces[tenant].ping(server, count=2)
        pinged = spaces[tenant].run("ping", "-n", "-c", "1", "-W", "2", "-I", "10.0.0.3", server).stdout
        assert " 0% packet loss" in pinged, pinged
    # A port where nobody listens: the error goes back through both translations.
    nobody = ASK.replace(", 7)", ", 8)")
    refused = spaces[tenant].run(
        "/usr/bin/python3", "-c", nobody, "udp", f"{SEEN[other]}.2", 4001, check=False
    )
    assert "ConnectionRefusedError" in refused.stderr, refused.stderr
    # Hosts without an address for the other tenant do not get there, nor is one there that has none.
    lost = spaces[tenant].ping(f"{SEEN[other]}.9", count=1, timeout=1, check=False).stdout
    assert "100% packet loss" in lost, lost


# What takes a tenant's only route away.
LOST = {
    "address": ("addr del 10.0.0.1/24 dev {other}-lan",),
    "port": ("link set {other}-lan nomaster",),
    "vrf": ("flow del vrf={other}", "link set {other}-lan nomaster", "link del {other}"),
}


@pytest.mark.parametrize("tenant, other", [("red", "blue"), ("blue", "red")])
@pytest.mark.parametrize("lost", LOST)
def test_nothing_comes_back_to_the_sender_if_the_other_tenant_is_gone(tenants, lost, tenant, other):
    gateway, spaces = tenants
    server = f"{SEEN[other]}.3"
    python = ("/usr/bin/python3", "-c")
    holding = [spaces[other].start(*python, ECHO, stdout=-1)]
    try:
        assert holding[0].stdout.readline().strip() == "ready"
        holding.append(spaces[tenant].start(*python, HOLD, server, stdin=-1, stdout=-1))
        client = holding[1]
        assert client.stdout.readline().strip() == "connected"
        # The sender's own host of that address is known to the gateway, so that nothing waits.
        spaces[tenant].ping("10.0.0.1", count=1, source="10.0.0.3")
        for line in LOST[lost]:
            gateway.run(*line.format(other=other).split())
        with captured(spaces[tenant], "eth0") as frames:
            told = spaces[tenant].ping(server, count=2, timeout=1, check=False).stdout
            asked = spaces[tenant].run(*python, ASK, "udp", server, 4000, check=False)
            client.stdin.write("\n")
            client.stdin.flush()
            assert client.stdout.readline().strip() == "sent"
            spaces[tenant].ping("10.0.0.1", count=3)
        # What the gateway sends there is from its own address alone.
        came = [f for f in frames if f.haslayer(IP) and f.src != spaces[tenant].mac("eth0")]
        assert came and {f[IP].src for f in came} == {"10.0.0.1"}, came
        assert "100% packet loss" in told and "Destination Net Unreachable" in told, told
        assert asked.returncode != 0, asked
    finally:
        for process in holding:
            process.kill()
            process.wait()
            if process.stdin:
                process.stdin.close()


def test_explain_shows_both_translations(tenants):
    gateway, _ = tenants
    told = gateway.run("explain", "udp 10.0.0.2:4000 > 100.64.2.3:7 in red-lan", check=False).stdout
    assert "so the packet becomes udp 100.64.1.2:4000 > 10.0.0.3:7" in told, told
    assert "by blue-lan" in told.splitlines()[-2] + told.splitlines()[-3], told
