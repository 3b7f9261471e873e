"""What becomes of connections of the firewall whose route leads elsewhere: two uplinks, one of which goes down and comes back."""

import contextlib
import re
import subprocess
import time

import pytest
from harness.gateway import ROOT, Gateway
from test_firewall import Firewalled
from test_namespaces import LEFT, attach, both_families
from test_xfrm_links import batch, hosts_of, site  # noqa: F401

pytestmark = pytest.mark.namespaces

UPLINKS = {
    "one": {4: ("10.11.0.1", "10.11.0.2"), 6: ("fd11::1", "fd11::2")},
    "two": {4: ("10.12.0.1", "10.12.0.2"), 6: ("fd12::1", "fd12::2")},
}
SERVER = {4: "203.0.113.9", 6: "2001:db8:9::9"}
"""An address that a host behind each uplink has."""

ECHO = """
import socket, sys
name, address = sys.argv[1:]
s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
s.bind((address, 5300))
print("ready", flush=True)
while True:
    _, peer = s.recvfrom(99)
    s.sendto(f"{name} {peer[0]}".encode(), peer)
"""

ASK = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5000))
s.connect((sys.argv[1], 5300))
s.settimeout(0.5)
for _ in sys.stdin:
    s.send(b"x")
    try:
        print(s.recv(99).decode(), flush=True)
    except OSError:
        print("nothing", flush=True)
"""

INSIDE = """
[firewall]
log-rerouted = "moved"
[[firewall.zone]]
name = "inside"
ports = ["left"]
"""

ONE_ALONE = (
    INSIDE
    + """
[[firewall.zone]]
name = "one"
ports = ["one"]
[[firewall.zone]]
name = "two"
ports = ["two"]
[[firewall.policy]]
from = ["inside"]
to = ["one"]
action = "accept"
"""
)


def together(masquerade):
    """Both uplinks in a zone."""
    return (
        INSIDE
        + f"""
[[firewall.zone]]
name = "outside"
ports = ["one", "two"]
{'masquerade = "both"' if masquerade else ""}
[[firewall.policy]]
from = ["inside"]
to = ["outside"]
action = "accept"
"""
    )


SAY = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5002))
s.sendto(b"x", (sys.argv[1], 5301))
"""


ASK_FROM = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 0))
s.settimeout(1)
s.sendto(b"x", (sys.argv[2], int(sys.argv[3])))
try:
    print(s.recv(99).decode())
except OSError:
    print("nothing")
"""

GATEWAY_IS_PINGED = """
[[firewall.policy]]
from = ["one", "two"]
to = ["gateway"]
rules = [{ services = ["ping"], action = "accept" }]
"""


class Stream:
    """A host inside that asks from one port again and again."""

    def __init__(self, host, server):
        command = ["/usr/bin/python3", "-c", ASK, server]
        self.process = host.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self):
        """Ends it."""
        self.process.kill()
        self.process.communicate()

    def ask(self):
        """Who has answered, and whom it has seen."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextlib.contextmanager
def streaming(topology, tmp_path, firewall, family):
    """`(stream, gateway)`: the stream has been answered by the first uplink."""
    gw = topology.namespace("gw")
    left, port = attach(topology, "left", LEFT)
    ports = [port]
    with contextlib.ExitStack() as stack:
        for name, addresses in UPLINKS.items():
            host, port = attach(topology, name, addresses)
            host.addresses("lo", f"{SERVER[4]}/32", f"{SERVER[6]}/128")
            ports.append(port)
            command = ["/usr/bin/python3", "-c", ECHO, name, SERVER[family]]
            server = host.start(*command, stdout=subprocess.PIPE, text=True)
            stack.callback(server.communicate)
            stack.callback(server.kill)
            assert server.stdout.readline() == "ready\n"
        gateway = stack.enter_context(Gateway(gw, Firewalled(ports=ports, firewall=firewall), tmp_path))
        batch(
            gateway,
            tmp_path,
            [
                f"route add {SERVER[each]}/{32 if each == 4 else 128} via {addresses[each][1]} metric {metric}"
                for metric, addresses in ((10, UPLINKS["one"]), (20, UPLINKS["two"]))
                for each in (4, 6)
            ],
        )
        stream = Stream(left, SERVER[family])
        stack.callback(stream.stop)
        assert stream.ask().startswith("one "), gateway.drops()
        yield stream, gateway


BY_TUNNEL = """
[firewall]
[[firewall.zone]]
name = "inside"
ports = ["red0"]
[[firewall.zone]]
name = "branch"
ports = ["ipsec7"]
[[firewall.zone]]
name = "elsewhere"
ports = ["ipsec70"]
[[firewall.policy]]
from = ["inside"]
to = ["branch"]
action = "accept"
"""


def rerouted(gateway):
    """What `hitpath firewall` and the drops say of such packets, which is the same."""
    dropped = gateway.drops().get("connection_rerouted", 0)
    assert gateway.json("firewall")["rerouted"]["packets"] == dropped
    shown = gateway.run("firewall").stdout
    assert re.search(rf"^rerouted: drop.* \({dropped} packet", shown, re.MULTILINE), shown
    return dropped


def is_logged(gateway, address):
    """Whether such a packet to this address was logged."""
    deadline = time.monotonic() + 5
    while not (found := re.search(rf"moved.*{address}", gateway.log())) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found is not None


def identities(gateway):
    """The connections that there are."""
    return [row["id"] for row in gateway.json("conntrack", "-L", "-o", "id")]


@both_families
def test_nothing_goes_to_a_zone_that_the_connection_is_not_for(topology, tmp_path, family):
    with streaming(topology, tmp_path, ONE_ALONE, family) as (stream, gateway):
        source = LEFT[family][1]
        assert stream.ask() == f"one {source}"
        known = identities(gateway)
        gateway.run("link", "set", "one", "down")
        assert [stream.ask() for _ in range(3)] == ["nothing"] * 3
        assert rerouted(gateway) == 3
        assert is_logged(gateway, SERVER[family]), gateway.log()
        ends = ("{}:{}", "[{}]:{}")[family == 6]
        packet = f"udp {ends.format(source, 5000)} > {ends.format(SERVER[family], 5300)} in left"
        told = gateway.run("explain", packet, check=False).stdout
        assert "rerouted" in told and "connection_rerouted" in told.splitlines()[-1], told
        gateway.run("link", "set", "one", "up")
        assert stream.ask() == f"one {source}"
        assert identities(gateway) == known
        # The same of a route that goes and comes back.
        length = 32 if family == 4 else 128
        route = [f"{SERVER[family]}/{length}", "via", UPLINKS["one"][family][1], "metric", "10"]
        gateway.run("route", "del", *route)
        assert stream.ask() == "nothing"
        assert rerouted(gateway) == 4
        gateway.run("route", "add", *route)
        assert stream.ask() == f"one {source}"
        assert identities(gateway) == known


@both_families
def test_a_connection_moves_within_its_zone(topology, tmp_path, family):
    with streaming(topology, tmp_path, together(False), family) as (stream, gateway):
        known = identities(gateway)
        gateway.run("link", "set", "one", "down")
        assert stream.ask() == f"two {LEFT[family][1]}"
        gateway.run("link", "set", "one", "up")
        assert stream.ask() == f"one {LEFT[family][1]}"
        assert rerouted(gateway) == 0
        assert identities(gateway) == known


@both_families
def test_a_masqueraded_connection_is_opened_anew_by_the_other_uplink(topology, tmp_path, family):
    with streaming(topology, tmp_path, together(True), family) as (stream, gateway):
        gateway.run("link", "set", "one", "down")
        assert stream.ask() == "nothing"
        assert rerouted(gateway) == 1
        assert is_logged(gateway, SERVER[family]), gateway.log()
        assert stream.ask() == f"two {UPLINKS['two'][family][0]}"
        gateway.run("link", "set", "one", "up")
        assert stream.ask() == "nothing"
        assert stream.ask() == f"one {UPLINKS['one'][family][0]}"
        assert rerouted(gateway) == 2
        labels = [int(row["label"], 16) for row in gateway.json("conntrack", "-L", "-o", "labels")]
        assert all(label >> 32 == 3 for label in labels), labels


@both_families
def test_what_nobody_answers_leaves_with_the_address_of_its_uplink(topology, tmp_path, family):
    with streaming(topology, tmp_path, together(True), family) as (_, gateway):
        left = topology["left"]

        def said():
            left.run("/usr/bin/python3", "-c", SAY, SERVER[family])
            of_port = "--orig-port-dst", "5301"
            (connection,) = gateway.json("conntrack", "-L", "-p", "udp", *of_port)
            return connection["reply"]["destination"]

        assert [said(), said()] == [UPLINKS["one"][family][0]] * 2
        gateway.run("link", "set", "one", "down")
        assert [said(), said()] == [UPLINKS["two"][family][0]] * 2
        assert rerouted(gateway) == 0


BOTH_FORWARD = """
[firewall]
[[firewall.zone]]
name = "inside"
ports = ["left"]
[[firewall.zone]]
name = "one"
ports = ["one"]
masquerade = "ipv4"
[[firewall.zone]]
name = "two"
ports = ["two"]
masquerade = "ipv4"
[[firewall.forward]]
from = ["one", "two"]
service = "udp/5353"
to = "{server}"
to-port = 5300
"""


def recipe():
    """What the documentation says of ports that are forwarded from several uplinks, with the names and addresses here."""
    text = (ROOT / "docs" / "firewall.md").read_text().split("### Ports forwarded from several uplinks\n", 1)[1]
    text = text.split("```toml\n", 1)[1].split("```", 1)[0]
    for theirs, ours in (("198.51.100.2", "10.12.0.1"), ("198.51.100.1", "10.12.0.2"), ("wan2", "two"), ("dmz", "left")):
        assert theirs in text
        text = text.replace(theirs, ours)
    return text


def test_answers_find_the_uplink_that_the_question_came_by(topology, tmp_path):
    gw = topology.namespace("gw")
    left, port = attach(topology, "left", LEFT)
    ports, outside = [port], {}
    for name, addresses in UPLINKS.items():
        outside[name], port = attach(topology, name, addresses)
        outside[name].addresses("lo", f"{SERVER[4]}/32")
        ports.append(port)
    forwards = BOTH_FORWARD.format(server=LEFT[4][1])
    echo = left.start("/usr/bin/python3", "-c", ECHO, "left", LEFT[4][1], stdout=subprocess.PIPE, text=True)

    def asked(name):
        command = "/usr/bin/python3", "-c", ASK_FROM, SERVER[4], UPLINKS[name][4][0], "5353"
        return outside[name].run(*command).stdout.strip()

    def pings(name):
        done = outside[name].run("ping", "-c1", "-W1", "-I", SERVER[4], UPLINKS[name][4][0], check=False)
        return done.returncode == 0

    try:
        assert echo.stdout.readline() == "ready\n"
        for text, of_second in ((forwards, "nothing"), (forwards + recipe(), f"left {SERVER[4]}")):
            (tmp_path / of_second[:4]).mkdir()
            config = Firewalled(ports=ports, firewall=text + GATEWAY_IS_PINGED)
            with Gateway(gw, config, tmp_path / of_second[:4]) as gateway:
                route = ["route", "add", f"{SERVER[4]}/32", "via", UPLINKS["one"][4][1]]
                gateway.run(*route)
                assert asked("one") == f"left {SERVER[4]}", gateway.drops()
                assert asked("two") == of_second, gateway.drops()
                assert (rerouted(gateway) == 0) == (of_second != "nothing")
                assert [pings("one"), pings("two")] == [True, of_second != "nothing"]
    finally:
        echo.kill()
        echo.communicate()


@both_families
def test_connections_wait_for_their_tunnel(site, tmp_path, family):  # noqa: F811
    """Whose route another link stands in for, in a zone that they are not for."""
    hosts, (gateway, _) = site
    here, there = hosts["red"]
    address = hosts_of(2)[family == 6]
    file = tmp_path / "fw.toml"
    file.write_text(BY_TUNNEL)
    gateway.run("firewall", "replace", file)
    with contextlib.ExitStack() as stack:
        command = ["/usr/bin/python3", "-c", ECHO, "branch", address]
        server = there.start(*command, stdout=subprocess.PIPE, text=True)
        stack.callback(server.communicate)
        stack.callback(server.kill)
        assert server.stdout.readline() == "ready\n"
        stream = Stream(here, address)
        stack.callback(stream.stop)
        assert stream.ask().startswith("branch ")
        known = identities(gateway)
        assert "ipsec70" in gateway.run("route", "show", "vrf", "red").stdout
        gateway.run("link", "set", "ipsec7", "down")
        assert [stream.ask() for _ in range(2)] == ["nothing"] * 2
        assert rerouted(gateway) == 2
        gateway.run("link", "set", "ipsec7", "up")
        assert stream.ask().startswith("branch ")
        assert identities(gateway) == known


@both_families
@pytest.mark.parametrize("first", ["one", "two"], ids=["masqueraded", "not-masqueraded"])
def test_what_nobody_answers_is_translated_as_its_zone_is(topology, tmp_path, family, first):
    """Of two zones, of which one is masqueraded: a stream that has begun by the one goes on by the other."""
    both = together(False).replace('ports = ["one", "two"]', 'ports = ["one"]\nmasquerade = "both"')
    both += '[[firewall.zone]]\nname = "branch"\nports = ["two"]\n'
    both += '[[firewall.policy]]\nfrom = ["inside"]\nto = ["branch"]\naction = "accept"\n'
    sources = {"one": UPLINKS["one"][family][0], "two": LEFT[family][1]}
    other = "two" if first == "one" else "one"
    with streaming(topology, tmp_path, both, family) as (stream, gateway):
        route = [f"{SERVER[family]}/{32 if family == 4 else 128}", "via"]
        gateway.run("route", "replace", *route, UPLINKS[first][family][1], "metric", "5")
        left = topology["left"]

        def said():
            left.run("/usr/bin/python3", "-c", SAY, SERVER[family])
            (connection,) = gateway.json("conntrack", "-L", "-p", "udp", "--orig-port-dst", "5301")
            return connection["reply"]["destination"]

        assert [said(), said()] == [sources[first]] * 2
        gateway.run("route", "replace", *route, UPLINKS[other][family][1], "metric", "5")
        assert [said(), said()] == [sources[other]] * 2
        # One that is answered is opened anew by the other, if it was masqueraded.
        assert rerouted(gateway) == 0
