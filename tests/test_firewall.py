"""The firewall: zones, policies, masquerade, forwarded ports and what a change does to connections, with hosts that are network namespaces."""

import contextlib
import dataclasses
import re
import socket
import subprocess
import time

import pytest
from harness import transfers
from harness.config import Config, Port, Route
from harness.failure import CommandFailed
from harness.gateway import Gateway
from test_alg import WAYS, Vsftpd, curl, fetched, url
from test_flows import served
from test_namespaces import LEFT, RIGHT, attach
from test_xfrm_links import AEAD, KEY, batch, hosts_of, site  # noqa: F401

pytestmark = pytest.mark.namespaces

SERVER = {4: ("10.3.0.1", "10.3.0.2"), 6: ("fd03::1", "fd03::2")}
"""A host inside: family -> the gateway's address, and its own."""

FIREWALL = """
[firewall]
log = "denied"

[[firewall.zone]]
name = "inside"
ports = ["left", "server"]

[[firewall.zone]]
name = "outside"
ports = ["right"]
masquerade = "ipv4"

[[firewall.policy]]
from = ["inside"]
to = ["outside"]
rules = [
    { services = ["tcp/6001", "udp/6001"], action = "reject", log = "refused" },
    { services = ["tcp/6002"], action = "drop" },
]
action = "accept"

[[firewall.policy]]
from = ["inside", "outside"]
to = ["gateway"]
rules = [{ services = ["ping"], action = "accept" }]

[[firewall.forward]]
from = ["outside"]
hairpin = ["inside"]
service = "tcp/8080"
to = "10.3.0.2"
to-port = 80
"""


@dataclasses.dataclass
class Firewalled(Config):
    """A configuration with a firewall."""

    firewall: str = FIREWALL

    def render(self, socket):
        return super().render(socket) + self.firewall


@pytest.fixture
def hosts(topology, tmp_path):
    """Two hosts inside and one outside: `(left, server, right, gateway, config)`."""
    topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    server, server_port = attach(topology, "server", SERVER)
    right, right_port = attach(topology, "right", RIGHT)
    config = Firewalled(ports=[left_port, server_port, right_port])
    with Gateway(topology["gw"], config, tmp_path) as gateway:
        yield left, server, right, gateway, config


def reload(gateway, config, **changes):
    gateway.write(dataclasses.replace(config, **changes))
    return gateway.run("reload").stdout


def fails(host, target):
    assert "100% packet loss" in host.ping(target, count=2, timeout=2, check=False).stdout


def error_of(host, kind, address, port):
    """What comes of one TCP connection or UDP datagram."""
    code = (
        "import socket, sys\n"
        f"s = socket.socket(socket.AF_INET6 if ':' in '{address}' else socket.AF_INET, socket.SOCK_{kind})\n"
        "s.settimeout(2)\n"
        "try:\n"
        f"    s.connect(('{address}', {port}))\n"
        f"    if '{kind}' == 'DGRAM': s.send(b'x'); s.recv(9)\n"
        "    print('connected')\n"
        "except OSError as error:\n"
        "    print(error.errno if error.errno else 'timeout')\n"
    )
    return host.run("/usr/bin/python3", "-c", code).stdout.strip()


def test_inside_reaches_outside_and_not_the_other_way(hosts):
    left, server, right, gateway, _ = hosts
    left.ping(RIGHT[4][1])
    left.ping(RIGHT[6][1])
    fails(right, LEFT[4][1])
    fails(right, LEFT[6][1])
    # Of one zone, but nothing says that they may.
    fails(left, SERVER[4][1])
    right.ping(RIGHT[4][0])
    right.ping(RIGHT[6][0])
    left.ping(LEFT[4][0])
    transfers.tcp(left, LEFT[6][1], right, RIGHT[6][1])
    # IPv4 outside is the gateway's; IPv6 stays itself.
    assert served(right, 7000, left, RIGHT[4][1], 7000) == RIGHT[4][0]
    assert transfers.hops(left, RIGHT[4][1], "-I")[-1] == RIGHT[4][1]
    shown = gateway.json("firewall")
    assert shown["policies"][0][-1]["packets"] >= 4
    assert shown["masqueraded"][1]["packets"] >= 2
    assert shown["unnamed"]["packets"] >= 2
    text = gateway.run("firewall").stdout
    assert "from inside to outside:\n    reject log refused tcp/6001 udp/6001 (0 packets" in text
    assert "flow_drop" in gateway.drops() or "flow_miss" in gateway.drops()


def test_forwarded_port_is_reached_from_outside_and_inside(hosts):
    left, server, right, gateway, config = hosts
    outer = RIGHT[4][0]
    assert served(server, 80, right, outer, 8080) == RIGHT[4][1]
    # The answers go by the gateway, as the source is the gateway's.
    assert served(server, 80, left, outer, 8080) == SERVER[4][0]
    assert gateway.json("firewall")["forwards"][0]["packets"] >= 2
    # What is forwarded alone is: the host itself is not reached.
    assert error_of(right, "STREAM", SERVER[4][1], 80) == "timeout"
    limited = FIREWALL.replace('to-port = 80', 'to-port = 80\nsources = ["203.0.113.0/24"]')
    reload(gateway, config, firewall=limited)
    assert error_of(right, "STREAM", outer, 8080) == "timeout"


def test_a_rejected_sender_is_told_and_lines_are_logged(hosts):
    left, _, right, gateway, _ = hosts
    refused, unreachable = str(socket.errno.ECONNREFUSED), str(socket.errno.EHOSTUNREACH)
    assert error_of(left, "STREAM", RIGHT[4][1], 6001) == refused
    assert error_of(left, "STREAM", RIGHT[6][1], 6001) == refused
    assert error_of(left, "DGRAM", RIGHT[4][1], 6001) in (unreachable, str(socket.errno.EACCES))
    assert error_of(left, "STREAM", RIGHT[4][1], 6002) == "timeout"
    # An open way on which nobody listens.
    assert error_of(left, "STREAM", RIGHT[4][1], 6003) == refused
    fails(right, LEFT[4][1])
    deadline = time.monotonic() + 5
    while not re.search(r"denied.*10\.2\.0\.2", gateway.log()) and time.monotonic() < deadline:
        time.sleep(0.1)
    log = gateway.log()
    assert re.search(r"refused.*10\.1\.0\.2", log), log
    assert re.search(r"denied.*10\.2\.0\.2", log), log
    assert not gateway.json("conntrack", "-L", "-p", "udp"), "what is rejected makes no connection"


def test_what_has_no_route_is_told_as_without_a_firewall(hosts):
    left, server, right, gateway, _ = hosts
    nowhere = {4: "203.0.113.9", 6: "2001:db8::9"}
    packet = f"udp {LEFT[4][1]}:5000 > {nowhere[4]}:53 in left"
    explained = gateway.run("explain", packet, check=False).stdout
    assert "unrouted" in explained and "no_route" in explained, explained

    def told(address):
        return left.ping(address, count=1, timeout=2, check=False).stdout

    assert re.search(rf"From {LEFT[4][0]} .*Destination Net Unreachable", told(nowhere[4]))
    assert re.search(rf"From {LEFT[6][0]} .*Destination unreachable: No route", told(nowhere[6]))
    # ping may ask more than once.
    before = gateway.drops()["no_route"]
    assert before >= 2
    # A route goes with its port.
    gateway.run("route", "add", "198.51.100.0/24", "via", SERVER[4][1])
    server.ip("link", "set", "eth0", "down")
    gateway.wait_for_no_carrier("server")
    assert "Destination Net Unreachable" in told("198.51.100.9")
    assert gateway.drops()["no_route"] > before
    assert "flow_miss" not in gateway.drops(), gateway.drops()
    assert gateway.json("firewall")["unnamed"]["packets"] == 0
    assert not gateway.json("conntrack", "-L"), "what has no route makes no connection"
    # Connections are made as soon as there is a route.
    gateway.run("route", "add", "203.0.113.0/24", "via", RIGHT[4][1])
    right.addresses("lo", f"{nowhere[4]}/32")
    right.ip("route", "add", RIGHT[4][0], "dev", "eth0")
    left.ping(nowhere[4])


def test_a_port_that_is_in_no_zone_meets_the_default(hosts, topology, tmp_path):
    left, _, _, gateway, config = hosts
    management = {4: ("10.9.0.1", "10.9.0.2"), 6: ("fd09::1", "fd09::2")}
    host, port = attach(topology, "management", management)
    refused, timeout = str(socket.errno.ECONNREFUSED), "timeout"
    config.ports.append(port)
    said = "port management is in no zone of the firewall in VRF main: what comes by it, and what would leave by it, is "
    for default, becomes, outcome in (("drop", "dropped", timeout), ("reject", "rejected", refused)):
        firewall = FIREWALL.replace("[firewall]", f'[firewall]\ndefault = "{default}"', 1)
        reload(gateway, config, firewall=firewall)
        for checked in (gateway.run("check", gateway.config_path), gateway.run("firewall", "check", gateway.config_path)):
            assert said + becomes in checked.stdout and "right" in checked.stdout
        assert said + becomes in gateway.run("firewall").stdout
        for one, address in (
            (host, LEFT[4][1]),
            (host, LEFT[6][1]),
            (host, management[4][0]),
            (left, management[4][1]),
            (left, management[6][1]),
        ):
            unnamed = gateway.json("firewall")["unnamed"]["packets"]
            assert error_of(one, "STREAM", address, 6000) == outcome
            assert gateway.json("firewall")["unnamed"]["packets"] > unnamed
    assert "flow_miss" not in gateway.drops() and gateway.drops()["flow_drop"] >= 10, gateway.drops()
    assert not gateway.json("conntrack", "-L")
    for line in (r"denied.*10\.9\.0\.2.*10\.1\.0\.2", r"denied.*10\.1\.0\.2.*10\.9\.0\.2"):
        assert re.search(line, gateway.log()), gateway.log()


def test_connections_that_a_reload_does_not_allow_fall(hosts):
    left, server, right, gateway, config = hosts
    code = (
        "import socket, sys\n"
        "s = socket.create_server(('0.0.0.0', 7100)); print('ready', flush=True)\n"
        "c, _ = s.accept()\n"
        "while data := c.recv(100): c.sendall(data)\n"
    )
    client = (
        "import socket, sys\n"
        f"s = socket.create_connection(('{RIGHT[4][1]}', 7100), 3); s.settimeout(2)\n"
        "for line in sys.stdin:\n"
        "    try: s.sendall(line.encode()); print(s.recv(100).decode().strip(), flush=True)\n"
        "    except OSError: print('lost', flush=True)\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    there = right.start("/usr/bin/python3", "-c", code, **pipes)
    assert there.stdout.readline() == "ready\n"
    here = left.start("/usr/bin/python3", "-c", client, **pipes)

    def say(word):
        here.stdin.write(word + "\n")
        here.stdin.flush()
        return here.stdout.readline().strip()

    try:
        assert say("one") == "one"
        # Another rule that does not concern it.
        told = reload(gateway, config, firewall=FIREWALL.replace("tcp/6002", "tcp/6005"))
        assert "~ firewall" in told and "not allow" not in told, told
        assert say("two") == "two"
        told = reload(gateway, config, firewall=FIREWALL.replace("tcp/6002", "tcp/7000-7200"))
        ended = "1 connection ended: the firewall does not allow it any more, or translates it otherwise"
        assert f"- conntrack {ended}" in told, told
        assert say("three") == "lost"
        assert gateway.json("firewall")["fell"] == 1
        assert not gateway.json("conntrack", "-L", "-p", "tcp", "--state", "ESTABLISHED")
    finally:
        for process in (here, there):
            process.kill()
            # Closes its pipes.
            process.communicate()


def test_a_zone_has_limits(hosts):
    """Also of connections that were there before, and they stay."""
    left, server, right, gateway, config = hosts

    def open_one(host, port):
        # From ports of their own, so that each is a connection; nobody answers.
        code = (
            "import socket\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            f"s.bind(('', {port})); s.sendto(b'x', ('{RIGHT[4][1]}', 9000))\n"
        )
        host.run("/usr/bin/python3", "-c", code)

    def counts(*wanted):
        end = time.monotonic() + 5
        while (counted := gateway.json("firewall")["connections"]) != list(wanted):
            assert time.monotonic() < end, counted
            time.sleep(0.02)

    for port in (5001, 5002):
        open_one(left, port)
    limits = 'ports = ["left", "server"]\nmax-connections = 4\nmax-connections-per-source = 3\n'
    reload(gateway, config, firewall=FIREWALL.replace('ports = ["left", "server"]\n', limits))
    counts(2, 0)
    open_one(left, 5003)
    counts(3, 0)
    open_one(left, 5004)
    gateway.wait_for_drops("connection_limit", 1)
    # What is there goes on.
    open_one(left, 5001)
    open_one(server, 5001)
    open_one(server, 5002)
    gateway.wait_for_drops("connection_limit", 2)
    counts(4, 0)
    assert "max-connections 4 max-connections-per-source 3 (4 connections" in gateway.run("firewall").stdout
    gateway.run("conntrack", "-D", "-p", "udp", "-s", LEFT[4][1])
    counts(1, 0)
    open_one(left, 5004)
    counts(2, 0)


def test_commands_replace_it_and_it_survives_a_crash(hosts, tmp_path):
    left, _, right, gateway, config = hosts
    file = tmp_path / "fw.toml"
    file.write_text(FIREWALL.replace('action = "accept"\n\n', 'action = "drop"\n\n', 1))
    left.ping(RIGHT[4][1])
    told = gateway.run("firewall", "replace", file).stdout
    assert re.search(r"\d+ flows added, \d+ removed; (1 connection|[1-9]\d* connections) fell", told), told
    fails(left, RIGHT[4][1])
    assert "~ firewall" in gateway.run("diff", check=False).stdout
    gateway.kill()
    gateway.start_again()
    fails(left, RIGHT[4][1])
    right.ping(RIGHT[4][0])
    saved = gateway.run("firewall", "save").stdout
    assert [zone["name"] for zone in gateway.json("firewall", "save")["zones"]] == ["inside", "outside"]
    file.write_text(saved)
    assert gateway.run("firewall", "replace", file).stdout.startswith("0 flows added, 0 removed")
    # By hand they are not changed.
    with pytest.raises(CommandFailed, match=r"made by \[firewall\]"):
        gateway.run("flow", "del", "table=243,tcp")
    with pytest.raises(CommandFailed, match=r"made by \[firewall\]"):
        gateway.run("flow", "del", "table=243")
    assert " # firewall\n" in gateway.run("flow", "show", "table=243").stdout
    gateway.run("reload")
    left.ping(RIGHT[4][1])
    gateway.run("firewall", "delete")
    right.ping(LEFT[4][1])
    assert gateway.run("flow", "show").stdout == ""


def test_one_that_does_not_come_back_leaves_nothing_open(hosts, tmp_path):
    left, _, right, gateway, config = hosts
    file = tmp_path / "fw.toml"
    file.write_text(FIREWALL)
    reload(gateway, config, firewall="")
    gateway.run("firewall", "replace", file)
    gateway.kill()
    # Without the port of a zone it cannot be made.
    gateway.write(dataclasses.replace(config, firewall="", ports=[config.ports[0], config.ports[2]]))
    gateway.start_again()
    assert 'there is no port "server"' in gateway.log() and "drops everything" in gateway.log()
    fails(right, LEFT[4][1])
    fails(left, RIGHT[4][1])
    # There is one again, and what the lowest flow drops it does not come to.
    gateway.run("firewall", "replace", "-", stdin=FIREWALL.replace(', "server"', "").replace('"server"', ""))
    # Nobody has answered what they asked by ARP.
    for host in (left, right):
        host.ip("neigh", "flush", "all")
    left.ping(RIGHT[4][1])
    fails(right, LEFT[4][1])
    gateway.run("firewall", "delete")
    fails(left, RIGHT[4][1])
    gateway.run("flow", "del", "--strict", "vrf=main,table=0,priority=0")
    for host in (left, right):
        host.ip("neigh", "flush", "all")
    right.ping(LEFT[4][1])


def test_a_new_address_is_masqueraded_with(hosts):
    left, _, right, gateway, _ = hosts
    gateway.run("addr", "add", "10.2.0.77/24", "dev", "right")
    gateway.run("addr", "del", f"{RIGHT[4][0]}/24", "dev", "right")
    right.ip("neigh", "flush", "all")
    right.ip("route", "replace", "default", "via", "10.2.0.77")
    assert served(right, 7000, left, RIGHT[4][1], 7000) == "10.2.0.77"


def test_what_is_wrong_is_said_with_its_line(hosts, tmp_path):
    _, _, _, gateway, config = hosts
    for before, after, message in [
        ('ports = ["left", "server"]', 'ports = ["left", "sever"]', 'there is no port "sever"'),
        ('to = ["outside"]', 'to = ["outsite"]', 'there is no zone "outsite"'),
        ('"tcp/6002"', '"htpp"', 'there is no service "htpp" (did you mean http'),
        ('from = ["inside"]', 'from = ["gateway"]', "does not enter the firewall"),
        ('log = "denied"', 'log = "two words"', "letters, digits"),
        ("to-port = 80", "to-port = 0", "1 to 65535"),
    ]:
        text = FIREWALL.replace(before, after, 1)
        gateway.write(dataclasses.replace(config, firewall=text))
        with pytest.raises(CommandFailed) as failed:
            gateway.run("reload")
        said = str(failed.value)
        assert message in said, said
        lines = gateway.config_path.read_text().split("\n")
        line = int(re.search(r"gw\.toml:(\d+):\d+: ", said)[1])
        assert after.split("\n")[0] in "\n".join(lines[line - 1 : line + 1]) or after in lines[line - 1], said
    file = tmp_path / "fw.toml"
    file.write_text(FIREWALL)
    alone = " (it has no [[port]]: the names of ports and VRFs were not looked at)"
    assert gateway.run("firewall", "check", file).stdout.endswith(f"right, every rule can match{alone}\n")
    assert gateway.run("firewall", "check", "-", stdin=FIREWALL).stdout == f"-: right, every rule can match{alone}\n"
    assert gateway.json("firewall", "check", file)["names_not_looked_at"] == [str(file)]
    # Of a whole configuration, the names of ports as well.
    whole = config.render(gateway.socket)
    assert gateway.run("firewall", "check", "-", stdin=whole).stdout == "-: right, every rule can match\n"
    wrong = gateway.run("firewall", "check", "-", stdin=whole.replace('"left", "server"]', '"left", "sever"]'), check=False)
    assert wrong.returncode == 1 and re.match(r'-:\d+:\d+: there is no port "sever"', wrong.stdout), wrong
    # Zones of two VRFs: nothing goes from one to the other.
    across = whole.replace('[firewall]', '[[vrf]]\nname = "red"\n[firewall]') + (
        '[[firewall.zone]]\nname = "tenant"\nvrfs = ["red"]\n'
        '[[firewall.policy]]\nfrom = ["tenant"]\nto = ["inside"]\naction = "accept"\n'
    )
    never = gateway.run("firewall", "check", "-", stdin=across, check=False)
    assert never.returncode == 1 and "policy 3 never matches a packet: no zone of `from` (tenant)" in never.stdout, never
    file.write_text(FIREWALL.replace("to-port = 80", "to-port = 0", 1))
    for wrong in [file, gateway.config_path.with_name("none.toml")]:
        refused = gateway.run("firewall", "replace", wrong, check=False)
        assert refused.returncode == 1, refused
    rules = '{ services = ["tcp/6002"], action = "drop" },'
    file.write_text(FIREWALL.replace(rules, rules + '\n    { services = ["tcp/6001-6002"], action = "accept" },'))
    told = gateway.run("firewall", "check", file, check=False)
    assert told.returncode == 1
    line = 1 + file.read_text().split("\n").index('    { services = ["tcp/6001-6002"], action = "accept" },')
    wanted = f"fw.toml:{line}:5: this rule never matches a packet: those on lines {line - 2} and {line - 1} come first"
    assert wanted in told.stdout, told.stdout


TUNNEL = """
[firewall]
[[firewall.zone]]
name = "inside"
ports = ["red0"]
[[firewall.zone]]
name = "far"
ports = ["ipsec7", "ipsec70"]
[[firewall.zone]]
name = "outside"
ports = ["wan"]
[[firewall.policy]]
from = ["far"]
to = ["inside"]
rules = [{ services = ["ping"], action = "accept" }]
action = "reject"
"""


def test_zones_of_tunnels(site, tmp_path):
    """What an xfrm link brings comes from its zone; ESP itself passes, and a VRF without zones is left alone."""
    hosts, (_, gateway) = site
    near, far = hosts["red"][1], hosts["red"][0]
    (near4, near6), (far4, far6) = hosts_of(2), hosts_of(1)
    file = tmp_path / "fw.toml"
    file.write_text(TUNNEL)
    gateway.run("firewall", "replace", file)
    far.ping(near4)
    far.ping(near6)
    fails(near, far4)
    assert error_of(far, "STREAM", near4, 7000) == str(socket.errno.ECONNREFUSED)
    hosts["blue"][1].ping(far4)
    hosts["blue"][0].ping(near4)
    assert gateway.run("flow", "show", "vrf=blue").stdout == ""
    shown = gateway.json("firewall")
    assert [count["packets"] > 0 for count in shown["policies"][0]] == [True, True]
    file.write_text(TUNNEL.replace('from = ["far"]\nto = ["inside"]', 'from = ["inside"]\nto = ["far"]'))
    gateway.run("firewall", "replace", file)
    near.ping(far4)
    fails(far, near4)


NETWORKS = """
[firewall]
[[firewall.zone]]
name = "inside"
ports = ["lan"]
[[firewall.zone]]
name = "far"
networks = ["10.1.0.0/24"]
[[firewall.zone]]
name = "outside"
ports = ["wan"]
masquerade = "ipv4"
[[firewall.policy]]
from = ["inside"]
to = ["far", "outside"]
action = "accept"
[[firewall.policy]]
from = ["far"]
to = ["inside"]
rules = [{ services = ["ping"], action = "accept" }]
"""


def test_networks_behind_a_policy_based_tunnel(topology, tmp_path):
    """They are a zone of their own, and what goes there is not masqueraded."""
    ends = {"a": ("192.0.2.1", "10.1.0"), "b": ("192.0.2.2", "10.2.0")}
    spaces = {side: topology.namespace(side) for side in ends}
    topology.link(spaces["a"], "wan", spaces["b"], "wan")
    hosts = {}
    with contextlib.ExitStack() as stack:
        for side, other in (("a", "b"), ("b", "a")):
            (here, net), (there, far) = ends[side], ends[other]
            host = hosts[side] = topology.namespace(f"host-{side}")
            topology.link(spaces[side], "lan", host, "eth0")
            spaces[side].silence("lan")
            spaces[side].silence("wan")
            host.addresses("eth0", f"{net}.5/24")
            host.ip("route", "add", "default", "via", f"{net}.1")
            ports = [
                Port("lan", [f"{net}.1/24"], kind="af-packet", interface="lan"),
                Port("wan", [f"{here}/24"], kind="af-packet", interface="wan"),
            ]
            routes = [Route(f"{far}.0/24", via=there)]
            config = Firewalled(ports=ports, routes=routes, firewall=NETWORKS if side == "b" else "")
            place = tmp_path / side
            place.mkdir()
            gateway = stack.enter_context(Gateway(spaces[side], config, place))
            commands = []
            for source, destination, spi in [(here, there, 1), (there, here, 2)]:
                spi = spi if side == "a" else 3 - spi
                commands.append(
                    f"xfrm state add src {source} dst {destination} proto esp spi {0x1000 + spi:#x} mode tunnel "
                    f"reqid 1 replay-window 64 {AEAD} {KEY}{spi:04x} 128"
                )
            for direction, first, last, source, destination in [
                ("out", here, there, net, far),
                ("in", there, here, far, net),
            ]:
                commands.append(
                    f"xfrm policy add src {source}.0/24 dst {destination}.0/24 dir {direction} "
                    f"tmpl src {first} dst {last} proto esp reqid 1 mode tunnel"
                )
            batch(gateway, place, commands)
        hosts["a"].ping("10.2.0.5")
        hosts["b"].ping("10.1.0.5")
        assert served(hosts["a"], 7000, hosts["b"], "10.1.0.5", 7000) == "10.2.0.5"
        assert error_of(hosts["a"], "STREAM", "10.2.0.5", 7000) == "timeout"
        # The gateway itself is a zone of its own.
        fails(hosts["a"], "10.2.0.1")
        assert gateway.json("firewall")["masqueraded"][2]["packets"] == 0


@pytest.mark.parametrize("way", WAYS)
def test_ftp_by_name_has_its_data_connections(hosts, tmp_path, way):
    """Through masquerade; and of a forwarded port, whose server is inside."""
    left, server, right, gateway, config = hosts
    text = FIREWALL.replace('action = "accept"\n\n[[firewall.policy]]', 'action = "drop"\n\n[[firewall.policy]]', 1)
    text = text.replace('{ services = ["tcp/6002"], action = "drop" }', '{ services = ["SERVICE"], action = "accept" }')
    text += '\n[[firewall.forward]]\nfrom = ["outside"]\nservice = "ftp"\nto = "10.3.0.2"\n'
    reload(gateway, config, firewall=text.replace("SERVICE", "ftp"))
    with Vsftpd(right, tmp_path / "right") as ftp, Vsftpd(server, tmp_path / "server") as inside:
        assert fetched(left, tmp_path / "got", *WAYS[way], url(RIGHT[4][1], "big")) == ftp.big
        assert fetched(right, tmp_path / "in", *WAYS[way], url(RIGHT[4][0], "big")) == inside.big
        # The control connection alone.
        reload(gateway, config, firewall=text.replace("SERVICE", "tcp/21"))
        with pytest.raises((CommandFailed, subprocess.TimeoutExpired)):
            curl(left, "-m", "4", *WAYS[way], url(RIGHT[4][1], "big"))
