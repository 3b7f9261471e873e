"""Sources are translated to an address that the kernel has as well, as docs/interfaces.md says."""

import re
from pathlib import Path

import pytest
from harness.gateway import Gateway, binary
from test_shared_services import Text

pytestmark = pytest.mark.namespaces

PAGE = Path(__file__).parents[1] / "docs" / "interfaces.md"

CONFIG = """
[[port]]
name = "lan"
kind = "af-packet"
interface = "eth1"
addresses = ["10.0.0.1/24"]

[[port]]
name = "wan"
kind = "af-packet"
interface = "eth0"
addresses = ["192.0.2.1/24"]

[firewall]

[[firewall.zone]]
name = "inside"
ports = ["lan"]

[[firewall.zone]]
name = "outside"
ports = ["wan"]
masquerade = "ipv4"

[[firewall.policy]]
from = ["inside"]
to = ["outside"]
action = "accept"

[[firewall.policy]]
from = ["outside"]
to = ["gateway"]
rules = [{ services = ["ping", "bgp"], action = "accept" }]
"""

SERVE = """
import socket, sys, time
listening = socket.create_server(("", int(sys.argv[1])))
print("ready", flush=True)
while True:
    connection, peer = listening.accept()
    time.sleep(0.2)
    try:
        connection.sendall(peer[0].encode())
    except OSError:
        pass
    connection.close()
"""

ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as connection:
    print(connection.recv(99).decode())
"""


@pytest.fixture
def site(topology, tmp_path):
    gw, inside, outside = (topology.namespace(label) for label in ("gw", "inside", "outside"))
    topology.link(gw, "eth1", inside, "eth0")
    topology.link(gw, "eth0", outside, "eth0")
    for interface in ("eth0", "eth1"):
        gw.silence(interface)
    inside.addresses("eth0", "10.0.0.2/24")
    inside.ip("route", "add", "default", "via", "10.0.0.1")
    outside.addresses("eth0", "192.0.2.9/24")
    gw.addresses("eth0", "192.0.2.1/24")
    with Gateway(gw, Text(CONFIG), tmp_path) as gateway:
        serving = [
            space.start("/usr/bin/python3", "-c", SERVE, port, stdout=-1) for space, port in ((outside, 80), (gw, 179))
        ]
        for process in serving:
            process.stdout.readline()
        try:
            yield gateway, gw, inside, outside
        finally:
            for process in serving:
                process.kill()
                process.wait()


def ask(space, address, port):
    return space.run("/usr/bin/python3", "-c", ASK, address, port, check=False)


def test_the_table_keeps_the_kernel_from_resetting_translated_connections(site, tmp_path):
    gateway, gw, inside, outside = site
    told = gw.run(binary(), "check", "--live", gateway.config_path, check=False)
    line = "sources are translated to 192.0.2.1, which the kernel has on eth0 as well"
    assert told.returncode == 1 and line in told.stdout, told.stdout
    assert "ip address del 192.0.2.1/24 dev eth0" in told.stdout and "nftables" in told.stdout

    # The kernel's reset makes an end of it.
    failed = ask(inside, "192.0.2.9", 80)
    assert failed.stdout.strip() != "192.0.2.1", failed
    assert ask(outside, "192.0.2.1", 179).stdout.strip() == "192.0.2.9"

    (table,) = re.findall("```nft\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "table.nft").write_text(table)
    gw.run("nft", "-f", tmp_path / "table.nft")
    for _ in range(3):
        passed = ask(inside, "192.0.2.9", 80)
        assert passed.stdout.strip() == "192.0.2.1", passed
    # The daemon is reached still, and the gateway answers pings, once.
    assert ask(outside, "192.0.2.1", 179).stdout.strip() == "192.0.2.9"
    outside.ping("192.0.2.1", count=2)
    # No answer of the gateway's own enters the firewall: each ping counts, and its connection stays unreplied.
    listed = gateway.run("conntrack", "-L").stdout
    assert any("icmp" in row and "[UNREPLIED]" in row for row in listed.splitlines()), listed
    (policy,) = [row for row in gateway.json("firewall", "show")["policies"][1:]]
    assert policy[0]["packets"] >= 2, policy

    gw.ip("address", "del", "192.0.2.1/24", "dev", "eth0")
    told = gw.run(binary(), "check", "--live", gateway.config_path, check=False)
    assert "sources are translated" not in told.stdout, told.stdout
