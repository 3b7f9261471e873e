"""Policy rules in iproute2's words on a running gateway: by port, source and destination port, and from one VRF into another."""

import pytest
from harness.config import Config, Port
from harness.gateway import Gateway
from test_namespaces import LEFT, RIGHT
from test_vlans import host, switch, trunk  # noqa: F401
from test_vrfs import make

pytestmark = pytest.mark.namespaces

# Addresses that no route of a VRF leads to; the host on the right has them.
FAR = {4: "198.51.100.7", 6: "2001:db8:99::7"}


@pytest.fixture
def gateway(topology, switch, tmp_path):  # noqa: F811
    """Two tenants on VLANs of two trunks."""
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
        for left, right in hosts.values():
            for far in FAR.values():
                right.run("ip", "addr", "add", far, "dev", "lo")
        yield running, hosts


def fails(host, address):
    return host.ping(address, count=1, timeout=2, check=False)


def test_a_rule_names_the_table(gateway):
    gateway, hosts = gateway
    left, _ = hosts["red"]
    assert "Net Unreachable" in fails(left, FAR[4]).stdout.title()
    gateway.run("route", "add", FAR[4], "via", RIGHT[4][1], "dev", "right.110", "table", "100")
    gateway.run("route", "add", FAR[6], "via", RIGHT[6][1], "dev", "right.110", "table", "100")
    gateway.run("rule", "add", "iif", "red", "from", f"{LEFT[4][1]}/32", "lookup", "100")
    left.ping(FAR[4])
    assert fails(left, FAR[6]).returncode != 0
    gateway.run("-6", "rule", "add", "iif", "left.10", "lookup", "100")
    left.ping(FAR[6])
    # The tenant that the rule is not about has no such route.
    assert fails(hosts["blue"][0], FAR[4]).returncode != 0

    # What the table has no route to goes on to the next rule.
    left.ping(RIGHT[4][1])
    shown = gateway.run("rule", "show").stdout.splitlines()
    assert [line.split(":")[0] for line in shown] == ["0", "999", "1000", "32766"]
    assert shown[1] == f"999:\tfrom {LEFT[4][1]} iif red lookup 100"
    assert [rule["priority"] for rule in gateway.json("rule", "show")] == [0, 999, 1000, 32766]
    assert gateway.json("rule", "show", "priority", "999")[0]["table"] == "100"
    # A table is named as it was: by the VRF that has it.
    gateway.run("rule", "add", "from", "203.0.113.0/24", "lookup", "blue", "priority", "500")
    assert gateway.run("rule", "show", "priority", "500").stdout == "500:\tfrom 203.0.113.0/24 lookup blue\n"
    assert gateway.json("rule", "show", "priority", "500")[0]["table"] == "blue"
    gateway.run("rule", "del", "lookup", "20")

    # A rule in front decides, for this protocol alone; and is gone at once.
    gateway.run("rule", "add", "priority", "10", "iif", "left.10", "ipproto", "icmp", "prohibit")
    assert "Filtered" in fails(left, FAR[4]).stdout.title()
    explained = gateway.run("explain", f"icmp {LEFT[4][1]} > {FAR[4]} type 8 code 0 in left.10", check=False).stdout
    assert "10, prohibit" in explained, explained
    gateway.run("rule", "del", "priority", "10")
    left.ping(FAR[4])

    # Routes of the table come and go under cached flows.
    gateway.run("route", "del", FAR[4], "table", "100")
    assert fails(left, FAR[4]).returncode != 0
    gateway.run("rule", "flush")
    gateway.run("-6", "rule", "flush")
    assert fails(left, FAR[6]).returncode != 0
    left.ping(RIGHT[4][1])


def test_a_rule_leads_into_another_vrf(gateway):
    """Both ways by rules, as each VRF has a route to its own hosts alone."""
    gateway, hosts = gateway
    red = hosts["red"][0]
    red.run("ip", "addr", "add", "10.77.0.1/32", "dev", "lo")
    # Blue reaches 10.77.0.1 behind red's host on the left; red reaches FAR behind blue's on the right.
    gateway.run("route", "add", "10.77.0.1", "via", LEFT[4][1], "vrf", "red")
    gateway.run("route", "add", FAR[4], "via", RIGHT[4][1], "vrf", "blue")
    assert fails(red, FAR[4]).returncode != 0
    gateway.run("rule", "add", "iif", "red", "to", FAR[4], "lookup", "blue")
    gateway.run("rule", "add", "iif", "blue", "to", "10.77.0.1", "lookup", "red")
    red.ping(FAR[4], count=2, source="10.77.0.1")
    # Whose hop limit ends in the gateway is told so, in the VRF that it came from.
    reply = red.run("ping", "-n", "-c", "1", "-W", "2", "-t", "1", "-I", "10.77.0.1", FAR[4], check=False)
    assert f"From {LEFT[4][0]}" in reply.stdout and "Time to live exceeded" in reply.stdout, reply.stdout

    # A VRF's own addresses are not those of another one.
    gateway.run("rule", "add", "iif", "red", "to", RIGHT[4][0], "priority", "5", "lookup", "blue")
    red.ping(RIGHT[4][0])

    # The VRF goes, and what asked its table is asked no more.
    gateway.run("link", "del", "blue")
    assert fails(red, FAR[4]).returncode != 0
    assert "[detached]" in gateway.run("rule", "show").stdout


def test_rules_survive_a_restart(topology, tmp_path):
    gw = topology.namespace("gw")
    config = Config(ports=[Port("lan", ["192.0.2.1/24"], kind="tap", interface="tap9")])
    rules = [
        ["from", "10.1.0.0/16", "to", "10.2.0.0/16", "iif", "lan", "lookup", "100"],
        ["priority", "500", "fwmark", "0x1/0xff", "ipproto", "tcp", "dport", "80-89", "dscp", "ef", "goto", "600"],
        ["priority", "600", "from", "2001:db8::/32", "unreachable"],
        ["priority", "700", "from", "all", "lookup", "100", "suppress_prefixlength", "8"],
    ]
    with Gateway(gw, config, tmp_path) as running:
        for rule in rules:
            running.run("rule", "add", *rule)
        shown = running.run("rule", "show").stdout, running.run("-6", "rule", "show").stdout
        assert "goto 600 [unresolved]" in shown[0]
        assert running.run("rule", "add", *rules[1], check=False).returncode != 0
        for wrong, message in (
            (["add", "not", "from", "10.0.0.0/8", "lookup", "100"], "'not' is not supported"),
            (["add", "from", "10.0.0.1/8", "lookup", "100"], "bits beyond"),
            (["add", "from", "10.0.0.0/8", "to", "2001:db8::/32", "lookup", "100"], "another address family"),
            (["add", "priority", "9", "goto", "9"], "not behind it"),
            (["add", "priority", "0", "lookup", "100"], "priority 0"),
            (["add", "lookup", "253"], "253"),
            (["add", "ipproto", "esp", "dport", "5", "lookup", "100"], "no ports"),
            (["add", "sport", "9-3", "lookup", "100"], "sport '9-3'"),
            (["add", "fwmark", "0x10/0xf", "lookup", "100"], "fwmark"),
            (["add", "iif", "wan", "lookup", "100"], "no port or VRF 'wan'"),
            (["add", "oif", "lan", "lookup", "100"], "oif lan"),
            (["add", "lookup", "nowhere"], "nowhere"),
            (["add", "dscp", "64", "lookup", "100"], "dscp '64'"),
            (["del", "priority", "32766"], "the gateway's own"),
            (["del"], "which rule?"),
        ):
            refused = running.run("rule", *wrong, check=False)
            assert refused.returncode != 0 and message in refused.stderr, (wrong, refused.stderr)
        assert (running.run("rule", "show").stdout, running.run("-6", "rule", "show").stdout) == shown
    with Gateway(gw, config, tmp_path) as running:
        assert (running.run("rule", "show").stdout, running.run("-6", "rule", "show").stdout) == shown
        saved = running.run("save").stdout
        assert saved.count("[[rule]]") == 4
        path = tmp_path / "saved.toml"
        path.write_text(saved)
        running.run("check", str(path))
        assert "rule" in running.run("diff", check=False).stdout
