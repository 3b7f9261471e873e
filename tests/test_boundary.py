"""The IPsec boundary as users see it: which port is on which side, and a gateway that lost its policies."""

import json
import time

import pytest
from scapy.layers.inet import ICMP, IP

from harness import ping
from harness.algorithms import GCM, NULL_SHA256, Sa
from harness.config import Config, Policy, Port
from harness.gateway import Gateway, binary
from harness.netns import run
from harness.site import site
from harness.tunnel import Tunnel


@pytest.fixture
def between(topology, tmp_path):
    """A gateway between two hosts, with policies that let everything pass."""
    gw = topology.namespace("gw")
    hosts, config = [], Config()
    for number, label in enumerate(("left", "right"), start=1):
        host = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        host.addresses("eth0", f"10.{number}.0.2/24")
        host.ip("route", "add", "default", "via", f"10.{number}.0.1")
        config.ports.append(Port(label, [f"10.{number}.0.1/24"], kind="af-packet", interface=label))
        hosts.append(host)
    config.policies = [Policy(direction, "0.0.0.0/0", "0.0.0.0/0", "bypass") for direction in ("in", "out")]
    with Gateway(gw, config, tmp_path) as gateway:
        yield gateway, hosts


def passes(hosts):
    """Whether the first host reaches the other."""
    done = hosts[0].run(*ping.command("10.2.0.2", count=2, deadline=2), check=False)
    return done.returncode == 0


def more(gateway, before, *reasons):
    """How many packets were dropped for each of the reasons since then."""
    now = gateway.drops()
    return [now.get(reason, 0) - before.get(reason, 0) for reason in reasons]


def explained(gateway, packet):
    """What `explain` says of a packet."""
    return gateway.run("explain", packet, check=False).stdout


def said(gateway, text):
    """Whether the gateway's log says so within two seconds."""
    end = time.monotonic() + 2
    while text not in gateway.log() and time.monotonic() < end:
        time.sleep(0.05)
    return text in gateway.log()


def test_a_gateway_without_policies_forwards_nothing(between):
    gateway, hosts = between
    assert passes(hosts)
    told = gateway.run("xfrm", "policy", "flush")
    assert "vrf set main ipsec auto" in told.stdout + told.stderr
    assert not passes(hosts)
    assert gateway.drops()["ipsec_closed"] >= 2
    assert said(gateway, "VRF main: closed")
    (vrf,) = gateway.json("show", "vrfs")
    assert (vrf["ipsec"], vrf["closed"]) == ("required", True)
    told = gateway.run("-j", "explain", "icmp 10.1.0.2 > 10.2.0.2 in left", check=False)
    steps = json.loads(told.stdout)
    assert any(step["stage"] == "policy" and step["closed"] for step in steps)
    # It answers for itself.
    hosts[0].ping("10.1.0.1", count=1)
    # A reload that fails opens nothing, and neither does one whose file says nothing.
    gateway.run("vrf", "set", "main", "ipsec", "auto")
    assert passes(hosts)
    gateway.run("vrf", "set", "main", "ipsec", "required")
    assert not passes(hosts)
    for direction in ("in", "out"):
        gateway.run("xfrm", "policy", "add", "src", "0.0.0.0/0", "dir", direction)
    assert passes(hosts)
    refused = gateway.run("vrf", "set", "main", "ipsec", "off", check=False)
    assert refused.returncode == 1 and "remove its policies" in refused.stderr


def test_sides_are_asked_for_shown_and_followed(between):
    gateway, hosts = between
    gateway.run("xfrm", "policy", "delete", "src", "0.0.0.0/0", "dir", "in")
    assert not passes(hosts)
    # What goes inside owes no outbound policy, what comes from there no inbound one.
    for port in ("left", "right"):
        gateway.run("link", "set", port, "side", "protected")
    assert passes(hosts)
    assert {port["name"]: port["side"] for port in gateway.json("show", "ports")} == {
        "left": "protected",
        "right": "protected",
    }
    steps = gateway.json("explain", "icmp 10.1.0.2 > 10.2.0.2 in left")
    assert [step["stage"] for step in steps].count("side") == 2
    assert said(gateway, "protected: left, right")
    # The source is inside, and comes by a port that is not.
    gateway.run("link", "set", "left", "side", "unset")
    gateway.run("link", "set", "right", "side", "unprotected")
    gateway.run("link", "set", "left", "side", "protected", "rpf", "strict")
    hosts[1].ip("addr", "add", "10.1.0.77/32", "dev", "eth0")
    hosts[1].run("ping", "-c", "2", "-W", "1", "-I", "10.1.0.77", "10.1.0.2", check=False)
    assert gateway.drops()["source_protected"] >= 1
    hosts[0].ip("addr", "add", "10.2.0.77/32", "dev", "eth0")
    hosts[0].run("ping", "-c", "2", "-W", "1", "-I", "10.2.0.77", "10.2.0.2", check=False)
    assert gateway.drops()["reverse_path"] >= 1


def test_ike_passes_until_the_vrf_says_policy(between):
    gateway, hosts = between
    gateway.run("xfrm", "policy", "delete", "src", "0.0.0.0/0", "dir", "in")

    def counted():
        """What became of one packet of IKE, and of one like it."""
        before = gateway.drops()
        for port in (500, 501):
            program = f"import socket; socket.socket(2, 2).sendto(b'x' * 40, ('10.1.0.1', {port}))"
            hosts[0].run("/usr/bin/python3", "-ISc", program)
        end = time.monotonic() + 2
        while (came := more(gateway, before, "local_ike", "policy_no_match")) and sum(came) < 2:
            assert time.monotonic() < end, came
            time.sleep(0.05)
        return came

    assert counted() == [1, 1]
    gateway.run("vrf", "set", "main", "ike", "policy")
    assert counted() == [0, 2]
    (vrf,) = gateway.json("show", "vrfs")
    assert vrf["ike"] == "policy"
    assert "(ike policy)" in explained(gateway, "udp 10.1.0.2:500 > 10.1.0.1:500 in left")
    gateway.run("vrf", "set", "main", "ike", "bypass")
    assert counted() == [1, 1]
    assert "(ike bypass)" in explained(gateway, "udp 10.1.0.2:500 > 10.1.0.1:500 in left")


def test_errors_about_our_esp_are_heard(between):
    gateway, hosts = between
    gateway.run("xfrm", "policy", "delete", "src", "0.0.0.0/0", "dir", "in")
    gateway.run("xfrm", "state", "add", *Sa(NULL_SHA256, "10.2.0.1", "10.2.0.2", 0x1001).kernel_words())
    before = gateway.drops()
    for spi in (0x1001, 0x1002):
        esp = IP(src="10.2.0.1", dst="10.2.0.2", proto=50, len=120) / spi.to_bytes(4, "big") / bytes(4)
        message = bytes(ICMP(type=3, code=4, nexthopmtu=1400) / bytes(esp)).hex()
        program = f"import socket; socket.socket(2, 3, 1).sendto(bytes.fromhex('{message}'), ('10.2.0.1', 0))"
        hosts[1].run("/usr/bin/python3", "-ISc", program)
    end = time.monotonic() + 2
    while sum(more(gateway, before, "local_esp_error", "policy_no_match")) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert more(gateway, before, "local_esp_error", "policy_no_match") == [1, 1]
    error = "icmp 10.2.0.2 > 10.2.0.1 type 3 code 4 about 10.2.0.2 spi {} in right"
    assert "about ESP that the gateway sent" in explained(gateway, error.format("0x1001"))
    assert "none matches" in explained(gateway, error.format("0x1002"))


def test_listener_discovery_is_explained(between):
    gateway, _ = between
    packet = "icmp fe80::5 > ff02::16 type 143 ttl {} in left"
    assert "mld_ignored" in explained(gateway, packet.format(1))
    assert "mld_ignored" not in explained(gateway, packet.format(64))


def test_check_says_which_port_is_on_which_side(tmp_path):
    path = tmp_path / "gw.toml"
    path.write_text(site([Tunnel(GCM, 4)]).render(tmp_path / "sock"))
    told = run([binary(), "check", path]).stdout
    assert "VRF main: unprotected: wan (tunnel end" in told and "unset: lan" in told, told
    notes = json.loads(run([binary(), "check", "-j", path]).stdout)["notes"]
    assert any("unprotected: wan" in note["message"] for note in notes)
