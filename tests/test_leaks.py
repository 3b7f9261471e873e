"""Routes from one VRF into another on a running gateway: into its table, and by one of its ports."""

import re
import shlex

import pytest
from harness.config import Config, Port
from harness.gateway import ROOT, Gateway
from harness.ping import all_answered
from test_firewall import Firewalled
from test_namespaces import LEFT, RIGHT, attach, both_families
from test_nat_tunnels import REFUSED
from test_vlans import host, switch, trunk  # noqa: F401
from test_vrfs import make

pytestmark = pytest.mark.namespaces

# What red's host on the left and blue's on the right have beside the addresses that all tenants have.
RED = {4: "10.77.0.1", 6: "fd77::1"}
BLUE = {4: "10.88.0.1", 6: "fd88::1"}


@pytest.fixture
def gateway(topology, switch, tmp_path):  # noqa: F811
    """Two tenants on VLANs of two trunks; each knows the way to its own host alone."""
    gw = topology.namespace("gw")
    hosts = {"red": [], "blue": []}
    config = Config()
    for side in ("left", "right"):
        made = trunk(topology, switch, side)
        for tenant in hosts:
            hosts[tenant].append(host(topology, made, side, tenant))
        config.ports.append(Port(side, [], kind="af-packet", interface=side))
    with Gateway(gw, config, tmp_path) as running:
        make(running, "red", 10, (10, 110))
        make(running, "blue", 20, (20, 4094))
        red, blue = hosts["red"][0], hosts["blue"][1]
        for family in (4, 6):
            red.run("ip", "addr", "add", RED[family], "dev", "lo")
            blue.run("ip", "addr", "add", BLUE[family], "dev", "lo")
            running.run("route", "add", RED[family], "via", LEFT[family][1], "vrf", "red")
            running.run("route", "add", BLUE[family], "via", RIGHT[family][1], "vrf", "blue")
        yield running, red, blue


def ping(host, own, to, *options):
    # With -W alone, no longer than two round trips are waited for the second answer.
    reply = host.run("ping", "-n", "-c", "2", "-i", "0.2", "-w", "2", *options, "-I", own, to, check=False)
    return reply.stdout


def answered(said):
    return all_answered(said, 2)


def lead(gateway, family, kind):
    """Leads red's packets to blue's host, and back."""
    if kind == "table":
        gateway.run("route", "add", BLUE[family], "vrf", "red", "dev", "blue")
        gateway.run("route", "add", RED[family], "vrf", "blue", "nexthop", "vrf", "red")
    else:
        gateway.run("route", "add", BLUE[family], "via", RIGHT[family][1], "dev", "right.4094", "vrf", "red")
        gateway.run("route", "add", RED[family], "via", LEFT[family][1], "dev", "left.10", "vrf", "blue")


@both_families
@pytest.mark.parametrize("kind", ["table", "port"])
def test_both_ways(gateway, family, kind):
    gateway, red, blue = gateway
    assert "100% packet loss" in ping(red, RED[family], BLUE[family])
    lead(gateway, family, kind)
    assert answered(ping(red, RED[family], BLUE[family]))
    assert answered(ping(blue, BLUE[family], RED[family]))

    # The gateway is one hop, and speaks from the port by which packets come, in either direction.
    for host, own, to, gate in ((red, RED, BLUE, LEFT), (blue, BLUE, RED, RIGHT)):
        expired = ping(host, own[family], to[family], "-t", "1")
        assert re.search(f"From {gate[family][0]}.*(Time to live exceeded|Hop limit)", expired), expired
        assert answered(ping(host, own[family], to[family], "-t", "2"))

    # A smaller link behind it is told, to the sender in its own VRF.
    gateway.run("link", "set", "right.4094", "mtu", "1300")
    told = ping(red, RED[family], BLUE[family], "-s", "1400", "-M", "do")
    assert re.search("(mtu = 1300|mtu=1300|Packet too big)", told), told
    gateway.run("link", "set", "right.4094", "mtu", "1500")


@both_families
def test_one_way_is_not_the_other(gateway, family):
    """Asymmetric: blue has no route back, so nothing is answered; errors of the gateway find back all the same."""
    gateway, red, _ = gateway
    gateway.run("route", "add", BLUE[family], "vrf", "red", "dev", "blue")
    assert "100% packet loss" in ping(red, RED[family], BLUE[family])
    expired = ping(red, RED[family], BLUE[family], "-t", "1")
    assert f"From {LEFT[family][0]}" in expired, expired
    # Back by a port, while it goes there by a table.
    gateway.run("route", "add", RED[family], "via", LEFT[family][1], "dev", "left.10", "vrf", "blue")
    assert answered(ping(red, RED[family], BLUE[family]))
    # A next hop that does not answer is told in the VRF of the sender.
    silent = {4: "10.2.0.99", 6: "fd02::99"}[family]
    gateway.run("route", "add", silent, "vrf", "red", "dev", "blue")
    told = red.run("ping", "-n", "-c", "1", "-W", "6", silent, check=False).stdout
    assert re.search(f"From {LEFT[family][0]}.*[Uu]nreachable", told), told


def test_what_becomes_of_leaks(gateway):
    gateway, red, _ = gateway
    lead(gateway, 4, "port")
    shown = gateway.run("route", "show", "vrf", "red").stdout
    assert f"{BLUE[4]} via {RIGHT[4][1]} dev right.4094" in shown
    # The port leaves blue: nothing follows it to where it goes.
    gateway.run("link", "set", "right.4094", "nomaster")
    assert "dead" in gateway.run("route", "show", "vrf", "red", "exact", BLUE[4]).stdout
    assert "100% packet loss" in ping(red, RED[4], BLUE[4])
    gateway.run("link", "set", "right.4094", "master", "blue")
    assert answered(ping(red, RED[4], BLUE[4]))

    # By the table, until the VRF goes; and a VRF of that name has its routes again.
    gateway.run("route", "replace", BLUE[4], "vrf", "red", "dev", "blue")
    assert answered(ping(red, RED[4], BLUE[4]))
    explained = gateway.run("explain", f"icmp {RED[4]} > {BLUE[4]} type 8 code 0 in left.10", check=False).stdout
    assert "by the table of VRF blue" in explained, explained
    gateway.run("link", "del", "blue")
    assert "dead" in gateway.run("route", "show", "vrf", "red", "exact", BLUE[4]).stdout
    assert "100% packet loss" in ping(red, RED[4], BLUE[4])
    gateway.run("link", "add", "blue", "type", "vrf", "table", "21")
    assert "dead" not in gateway.run("route", "show", "vrf", "red", "exact", BLUE[4]).stdout
    gateway.run("route", "del", BLUE[4], "dev", "blue", "vrf", "red")


def test_refusals_and_circles(gateway):
    gateway, red, _ = gateway
    gateway.run("vrf", "add", "green")
    for wrong, message in (
        (["10.5.0.0/16", "dev", "red", "vrf", "red"], "same VRF"),
        (["10.5.0.0/16", "via", "10.1.0.2", "dev", "blue", "vrf", "red"], "is a VRF"),
        (["10.5.0.0/16", "nexthop", "vrf", "grey", "vrf", "red"], "there is no VRF 'grey'"),
        (["10.5.0.0/16", "nexthop", "vrf", "blue", "dev", "left.10", "vrf", "red"], "the table of VRF blue"),
        (["10.5.0.0/16", "nexthop", "vrf"], "the name of a VRF"),
        (["blackhole", "10.5.0.0/16", "nexthop", "vrf", "blue"], "sends nowhere"),
        (["10.5.0.0/16", "dev", "right.4094", "port-vrf", "green", "vrf", "red"], "is not in VRF 'green'"),
        (["10.5.0.0/16", "dev", "nothing", "vrf", "red"], "there is no port 'nothing'"),
    ):
        refused = gateway.run("route", "add", *wrong, check=False)
        assert refused.returncode != 0 and message in refused.stderr, (wrong, refused.stderr)
    gateway.run("route", "add", "10.5.0.0/16", "vrf", "red", "dev", "blue")
    gateway.run("route", "add", "10.5.0.0/16", "vrf", "blue", "dev", "green")
    refused = gateway.run("route", "add", "10.5.0.0/16", "vrf", "green", "dev", "red", check=False)
    assert refused.returncode != 0 and "without end" in refused.stderr, refused.stderr
    # A circle that a route makes of others.
    gateway.run("route", "add", "10.5.1.0/24", "vrf", "red", "dev", "blue")
    into_red = ["route", "add", "10.4.0.0/15", "vrf", "green", "dev", "red"]
    refused = gateway.run(*into_red, check=False)
    assert refused.returncode != 0 and "10.5.1.0/24 of VRF red" in refused.stderr, refused.stderr
    # One that was there and is uncovered: each packet finds its end.
    gateway.run("route", "add", "blackhole", "10.5.0.0/16", "vrf", "green")
    gateway.run(*into_red)
    warned = gateway.run("route", "del", "10.5.0.0/16", "vrf", "green").stdout
    assert warned.startswith("warning: ") and "10.5.1.0/24 of VRF red" in warned, warned
    told = red.run("ping", "-n", "-c", "1", "-W", "3", "10.5.1.1", check=False).stdout
    assert "Host Unreachable" in told, told
    assert gateway.drops().get("route_loop", 0) > 0, gateway.drops()


def test_leaks_survive_a_restart(topology, tmp_path):
    gw = topology.namespace("gw")
    config = Config(
        vrfs=["red", "blue"],
        ports=[
            Port("lan", ["192.0.2.1/24"], kind="tap", interface="tap8", vrf="red"),
            Port("wan", ["198.51.100.1/24"], kind="tap", interface="tap9", vrf="blue"),
        ],
    )
    lines = [
        "10.1.0.0/16 via 198.51.100.2 dev wan",
        "10.2.0.0/16 dev blue scope link",
    ]
    with Gateway(gw, config, tmp_path) as running:
        running.run("route", "add", "10.1.0.0/16", "via", "198.51.100.2", "dev", "wan", "vrf", "red")
        running.run("route", "add", "10.2.0.0/16", "dev", "blue", "vrf", "red")
        before = running.run("route", "show", "vrf", "red").stdout
        assert all(line in before for line in lines), before
        saved = running.run("save").stdout
        assert 'port-vrf = "blue"' in saved and 'nexthop-vrf = "blue"' in saved, saved
    with Gateway(gw, config, tmp_path) as running:
        assert running.run("route", "show", "vrf", "red").stdout == before


@both_families
def test_own_address_and_next_hop_on_the_link(gateway, topology, family):
    """`src` is what errors come from; `onlink` is a next hop that no prefix of the port holds."""
    gateway, red, _ = gateway
    own = {4: "10.99.0.1", 6: "fd99::1"}[family]
    gateway.run("addr", "add", f"{own}/{32 if family == 4 else 128}", "dev", "right.110")
    gateway.run("route", "replace", RED[family], "via", LEFT[family][1], "src", own, "vrf", "red")
    assert f"src {own}" in gateway.run("route", "show", "vrf", "red", "exact", RED[family]).stdout
    gateway.run("route", "add", BLUE[family], "vrf", "red", "dev", "blue")
    assert f"From {own}" in ping(red, RED[family], BLUE[family], "-t", "1")
    # Without the address, the route is not used.
    gateway.run("addr", "del", f"{own}/{32 if family == 4 else 128}", "dev", "right.110")
    assert "dead" in gateway.run("route", "show", "vrf", "red", "exact", RED[family]).stdout
    refused = gateway.run("route", "add", "default", "dev", "left.10", "src", "10.9.9.9", "vrf", "red", check=False)
    assert refused.returncode != 0 and "10.9.9.9 is not an address of VRF" in refused.stderr, refused.stderr

    far, to = {4: ("192.0.2.7", "198.51.100.1"), 6: ("2001:db8:7::7", "2001:db8:8::1")}[family]
    red.run("ip", "addr", "add", far, "dev", "eth0")
    red.run("ip", "addr", "add", to, "dev", "lo")
    command = ["route", "add", to, "via", far, "dev", "left.10", "vrf", "red"]
    refused = gateway.run(*command, check=False)
    assert refused.returncode != 0 and "is not on any prefix of port" in refused.stderr, refused.stderr
    gateway.run(*command, "onlink")
    assert " onlink" in gateway.run("route", "show", "vrf", "red", "exact", to).stdout
    flow = {4: "icmp {} > {} type 8 code 0", 6: "ipv6-icmp {} > {} type 128 code 0"}[family]
    flow = flow.format(RIGHT[family][1], to) + " in right.110"
    explained = gateway.run("explain", flow, check=False).stdout
    assert f"via {far} on left.10" in explained, explained
    # Nobody has said where the next hop is: it is asked for, and packets pass.
    asker = topology["red-right"]
    assert answered(ping(asker, RIGHT[family][1], to))
    # The same of a host that a route alone says is on the link.
    gateway.run("route", "del", to, "vrf", "red")
    gateway.run("neigh", "flush", "dev", "left.10")
    gateway.run("route", "add", far, "dev", "left.10", "vrf", "red")
    assert answered(ping(asker, RIGHT[family][1], far))


INTO_NETWORKS = """
[firewall]
[[firewall.zone]]
name = "inside"
ports = ["left"]
[[firewall.zone]]
name = "elsewhere"
networks = ["10.2.0.0/24", "fd02::/64"]
[[firewall.policy]]
from = ["inside"]
to = ["elsewhere"]
action = "accept"
"""


def documented():
    """The commands by which, as the documentation says, answers come into a VRF with a firewall."""
    text = (ROOT / "docs" / "firewall.md").read_text().split("Flows of that VRF let them in", 1)[1]
    text = text.split("```sh\n", 1)[1].split("```", 1)[0]
    return [shlex.split(line)[1:] for line in text.splitlines() if line.strip()]


@both_families
def test_answers_into_a_vrf_with_a_firewall(topology, tmp_path, family):
    """What a policy for networks has let out into a VRF without flows is answered by flows there alone."""
    gw = topology.namespace("gw")
    left, inside = attach(topology, "left", LEFT)
    right, outside = attach(topology, "right", RIGHT, vrf="blue")
    config = Firewalled(ports=[inside, outside], vrfs=["blue"], firewall=INTO_NETWORKS)
    of_left, of_right = {4: ("10.1.0.0/24", "10.2.0.0/24"), 6: ("fd01::/64", "fd02::/64")}[family]
    host, server = LEFT[family][1], RIGHT[family][1]
    with Gateway(gw, config, tmp_path) as gateway:
        gateway.run("route", "add", of_right, "nexthop", "vrf", "blue")
        gateway.run("route", "add", of_left, "vrf", "blue", "nexthop", "vrf", "main")

        def pings(host, to):
            return host.run("ping", "-c1", "-W1", to, check=False).returncode == 0

        def is_told():
            asked = left.run("/usr/bin/python3", "-Ic", REFUSED, server, "9", check=False)
            return asked.stdout == "refused\n"

        assert not pings(left, server)
        assert gateway.drops().get("firewall_other_vrf", 0) == 1, gateway.drops()
        commands = documented()
        assert len(commands) == 4, commands
        [about] = [at for at, words in enumerate(commands) if "+rel" in words[-1]]
        errors = commands.pop(about)
        for words in commands:
            gateway.run(*of_family(words, family))
        if family == 6:
            gateway.run("flow", "add", "vrf=blue,priority=10,icmp6,icmp_type=136 actions=NORMAL")
        assert pings(left, server), gateway.drops()
        # Errors about what was let out.
        assert not is_told()
        gateway.run(*of_family(errors, family))
        assert is_told(), gateway.drops()
        # Nobody there opens anything.
        before = gateway.drops().get("flow_miss", 0)
        assert not pings(right, host)
        assert gateway.drops().get("flow_miss", 0) > before, gateway.drops()


def of_family(words, family):
    """A command of the documentation, which are about IPv4, for IPv6: as said there."""
    if family == 4:
        return words
    return [re.sub(r",ip ", ",ipv6 ", word).replace(",arp ", ",icmp6,icmp_type=135 ") for word in words]
