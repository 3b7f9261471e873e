"""NAT as docs/nat.md has it: every example is loaded, and what is particular is tried."""

import pathlib
import re
import subprocess
import time

import pytest
from harness.config import Config
from harness.gateway import Gateway
from test_flows import served
from test_namespaces import LEFT, RIGHT, attach

pytestmark = pytest.mark.namespaces

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "nat.md"


@pytest.fixture
def hosts(topology, tmp_path):
    """Two hosts with the gateway between them: `(lan, wan, gateway, config)`."""
    topology.namespace("gw")
    lan, lan_port = attach(topology, "lan", LEFT)
    wan, wan_port = attach(topology, "wan", RIGHT)
    config = Config(ports=[lan_port, wan_port])
    with Gateway(topology["gw"], config, tmp_path) as gateway:
        yield lan, wan, gateway, config


def examples(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)


def example(word):
    """The flows that have a word, with the addresses of this network."""
    (found,) = [flows for flows in examples("flows") if word in flows]
    return found.replace("203.0.113.1", RIGHT[4][0])


def replace(gateway, flows):
    gateway.run("flow", "replace", "-", stdin=flows)


def connections(gateway, count):
    """The connections of UDP, once there are so many."""
    for _ in range(50):
        found = gateway.json("conntrack", "-L", "-p", "udp")
        if len(found) == count:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{len(found)} connections, not {count}: {found}")


def test_every_example_is_loaded(hosts):
    *_, gateway, config = hosts
    flows = examples("flows")
    assert len(flows) >= 8
    for text in flows:
        replace(gateway, text)
        assert gateway.run("flow", "show").stdout.count("\n") == text.count("\n")
    (settings,) = examples("toml")
    gateway.write(config.render(gateway.socket) + settings)
    shown = gateway.run("reload").stdout
    assert "source-limits.connections none -> 500" in shown, shown
    saved = gateway.run("save").stdout
    assert "connections = 500, prefix-connections = 5000, ipv4-prefix = 24, ipv6-prefix = 64" in saved


def test_an_inside_host_reaches_the_forwarded_port(hosts):
    lan, _, gateway, _ = hosts
    replace(gateway, example("in_port=lan,nw_dst="))
    assert served(lan, 80, lan, RIGHT[4][0], 8080) == RIGHT[4][0]


MAPPED = """
import socket, sys
sockets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sockets.bind((sys.argv[1], 4000))
for port in sys.argv[3:]:
    sockets.sendto(b"x", (sys.argv[2], int(port)))
"""


def test_endpoint_independent_mappings(hosts):
    lan, _, gateway, _ = hosts
    base, new = example("endpoint_independent").rsplit("table=1", 1)
    replace(gateway, base + "table=1" + new.replace(")),", ",random)),"))
    lan.run("/usr/bin/python3", "-c", MAPPED, LEFT[4][1], RIGHT[4][1], *range(7000, 7020))
    found = connections(gateway, 20)
    assert len({c["reply"]["destination_port"] for c in found}) == 1, found


def test_blocks_are_logged_and_bounded(hosts):
    lan, _, gateway, _ = hosts
    replace(
        gateway,
        "table=0,priority=10,arp actions=NORMAL\n"
        "table=0,priority=100,ip actions=ct(table=1,nat)\n"
        "table=1,priority=9,ct_state=+trk+new,ip,in_port=lan "
        f"actions=ct(commit,nat(src={RIGHT[4][0]}:2000-2015,block=8)),NORMAL\n",
    )
    many = MAPPED.replace("4000", "0")
    for _ in range(12):
        lan.run("/usr/bin/python3", "-c", many, LEFT[4][1], RIGHT[4][1], 7000)
    found = connections(gateway, 8)
    ports = sorted(c["reply"]["destination_port"] for c in found)
    assert len(ports) == 8 and ports[0] in (2000, 2008) and ports[-1] - ports[0] == 7, ports
    gateway.wait_for_drops("nat_exhausted", 4)
    gateway.run("conntrack", "-F")
    time.sleep(1.5)
    log = gateway.log()
    line = rf"port block {RIGHT[4][0]} ports {ports[0]}-{ports[-1]}"
    assert len(re.findall(rf"{line} assigned to {LEFT[4][1]} zone 0", log)) == 1, log
    assert len(re.findall(rf"{line} released by {LEFT[4][1]} zone 0", log)) == 1, log
    # The pool has another block, so that it is not exhausted.
    full = rf"WARN NAT pool {RIGHT[4][0]}/32 ports 2000-2015: the port block of {LEFT[4][1]} zone 0 is full:"
    assert len(re.findall(full, log)) == 1 and "exhausted:" not in log, log


def test_sources_are_limited(hosts):
    lan, _, gateway, config = hosts
    gateway.write(config.render(gateway.socket) + "[conntrack]\nsource-limits = { connections = 5 }\n")
    gateway.run("reload")
    replace(gateway, "priority=1,ip actions=ct(commit),NORMAL\npriority=1,arp actions=NORMAL\n")
    lan.run("/usr/bin/python3", "-c", MAPPED, LEFT[4][1], RIGHT[4][1], *range(7000, 7009))
    gateway.wait_for_drops("connection_limit", 4)
    connections(gateway, 5)


def test_translation_between_families_is_refused_by_name(hosts):
    *_, gateway, _ = hosts
    for match, address in (("ip", "64:ff9b::1"), ("ipv6", "192.0.2.1:80")):
        refused = gateway.run("flow", "add", f"{match} actions=ct(commit,nat(src={address}))", check=False)
        assert refused.returncode != 0 and "NAT64" in refused.stderr, refused.stderr


REFUSED = """
import socket, sys
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
    sender.settimeout(5)
    sender.connect((sys.argv[1], 9))
    sender.send(b"x")
    try:
        sender.recv(1)
    except ConnectionRefusedError:
        print("refused")
"""

HEARD = """
import socket
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as receiver:
    receiver.bind(("::", 7))
    receiver.settimeout(10)
    print("ready", flush=True)
    text, sender = receiver.recvfrom(10)
    receiver.sendto(text, sender)
    print(sender[0])
"""

ASKED = """
import socket, sys
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
    sender.settimeout(5)
    sender.sendto(b"x", (sys.argv[1], 7))
    print(sender.recvfrom(10)[1][0])
"""


def test_prefixes_are_translated_without_connections(hosts):
    lan, wan, gateway, _ = hosts
    text = example("nptv6").replace("fd00:1::/48", "fd01::/64").replace("2001:db8:1::/48", "2001:db8:1::/64")
    replace(gateway, text)
    # The sums of the prefixes, 0xfd01 and 0x2dba, differ by 0xcf47 (RFC 6296 section 3.5).
    outside = "2001:db8:1:0:cf47::2"
    lan.ping(RIGHT[6][1])
    wan.ping(outside)
    server = wan.start("/usr/bin/python3", "-c", HEARD, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline() == "ready\n"
        assert lan.run("/usr/bin/python3", "-c", ASKED, RIGHT[6][1]).stdout.strip() == RIGHT[6][1]
        assert server.stdout.readline().strip() == outside
    finally:
        server.kill()
        server.stdout.close()
        server.wait()
    # What an error quotes is translated too: the host takes it for its own.
    assert lan.run("/usr/bin/python3", "-c", REFUSED, RIGHT[6][1]).stdout.strip() == "refused"
    assert wan.run("/usr/bin/python3", "-c", REFUSED, outside).stdout.strip() == "refused"
    assert gateway.json("conntrack", "-L") == []
