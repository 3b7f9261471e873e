"""Filters on live interfaces: hosts that are network namespaces see what is dropped, rejected and reset."""

import json
import re

import pytest
from harness.config import Config
from harness.gateway import Gateway
from test_namespaces import LEFT, RIGHT, attach, both_families

pytestmark = pytest.mark.namespaces

CONNECT = """
import socket, sys
kind = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}[sys.argv[1]]
family = socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET
with socket.socket(family, kind) as s:
    s.settimeout(float(sys.argv[4]))
    try:
        s.connect((sys.argv[2], int(sys.argv[3])))
        if kind == socket.SOCK_DGRAM:
            s.send(b"?")
            s.recv(10)
        print("connected")
    except OSError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def hosts(topology, tmp_path):
    """Two hosts with the gateway between them: `(left, right, gateway, config)`."""
    topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    config = Config(ports=[left_port, right_port])
    with Gateway(topology["gw"], config, tmp_path) as gateway:
        yield left, right, gateway, config


def connect(host, protocol, address, port, timeout=5):
    """What a program on the host is told that connects."""
    return host.run("/usr/bin/python3", "-c", CONNECT, protocol, address, port, timeout).stdout.strip()


def add(gateway, words):
    gateway.run("filter", "add", *words.split())


def lost(host, target, options=()):
    """Pings for two seconds, demands that nothing come back, and returns how many were sent."""
    said = host.ping(target, count=3, timeout=2, check=False, options=options).stdout
    assert "100% packet loss" in said, said
    return int(re.search(r"(\d+) packets transmitted", said)[1])


def packets(gateway, *words):
    """Packets that each rule has decided, by preference."""
    shown = gateway.json("filter", "show", *words)
    return {rule["pref"]: rule["options"]["actions"][-1]["stats"]["packets"] for rule in shown}


@both_families
def test_dropped_pings_are_counted(hosts, family):
    left, _, gateway, _ = hosts
    there = RIGHT[family][1]
    left.ping(there)
    icmp = {4: "icmp type 8", 6: "icmpv6 type 128"}[family]
    add(gateway, f"dev left ingress pref 10 ip_proto {icmp} dst_ip {there} action drop")
    sent = lost(left, there)
    # Which waits for the last one: ping ends when it has sent it.
    gateway.wait_for_drops("filter_ingress", sent)
    assert packets(gateway, "dev", "left") == {10: sent}
    shown = gateway.run("filter", "show", "-s", "dev", "left", "ingress").stdout
    counted = rf"\tSent \d+ bytes {sent} pkt \(dropped {sent}\)"
    assert re.search(rf"action order 1: gact action drop\n\tAction statistics:\n{counted}", shown), shown
    # The gateway itself still answers, and the other way is open.
    left.ping(LEFT[family][0])
    gateway.run("filter", "del", "dev", "left", "ingress")
    left.ping(there)


@both_families
def test_rejected_connections_are_reset_and_told(hosts, family):
    left, right, gateway, _ = hosts
    there = RIGHT[family][1]
    add(gateway, "dev left ingress pref 10 ip_proto tcp dst_port 22 action reject with tcp-reset")
    add(gateway, "dev right egress pref 10 ip_proto udp dst_port 53 action reject with icmp-port-unreachable")
    add(gateway, "vrf main ingress pref 10 ip_proto tcp dst_port 23 action reject with icmp-host-unreachable")
    add(gateway, "vrf main ingress pref 20 ip_proto tcp dst_port 24 action drop")
    assert connect(left, "tcp", there, 22).startswith("ConnectionRefusedError")
    assert connect(left, "udp", there, 53).startswith("ConnectionRefusedError")
    assert "No route to host" in connect(left, "tcp", there, 23)
    assert connect(left, "tcp", there, 24, timeout=1).startswith("TimeoutError")
    assert packets(gateway, "dev", "left") == {10: 1}
    assert packets(gateway, "dev", "right") == {10: 1}
    # From the other side nothing of that is filtered: the host itself refuses.
    assert connect(right, "udp", LEFT[family][1], 53).startswith("ConnectionRefusedError")
    assert packets(gateway, "dev", "right") == {10: 1}


def test_marks_join_filters_and_explain_names_the_rules(hosts):
    left, _, gateway, _ = hosts
    add(gateway, "dev left ingress pref 7 dscp ef action skbedit mark 0x1/0xf action pass")
    add(gateway, "dev right egress pref 9 mark 1/0xf action drop log")
    left.ping(RIGHT[4][1])
    sent = lost(left, RIGHT[4][1], options=["-Q", "0xb8"])
    gateway.wait_for_drops("filter_egress", sent)
    assert packets(gateway) == {7: sent, 9: sent}
    packet = f"icmp {LEFT[4][1]} > {RIGHT[4][1]} dscp ef in left"
    # It would be dropped, which is a failure.
    steps = json.loads(gateway.run("explain", packet, "-j", check=False).stdout)
    told = [step for step in steps if step["stage"] == "filter"]
    marks = {"stage": "filter", "port": "left", "hook": "ingress", "preference": 7, "action": "pass", "log": False}
    drops = {"stage": "filter", "port": "right", "hook": "egress", "preference": 9, "action": "drop", "log": True}
    assert told == [marks | {"mark": "0x1/0xf"}, drops]
    line = f"filter dev right egress pref 9 drop: icmp {LEFT[4][1]} > {RIGHT[4][1]} type 8 code 0 in left vrf main, 84 bytes"
    lines = gateway.log().count(line)
    assert min(sent, 10) <= lines <= 40, gateway.log()
    unlogged = [int(count) for count in re.findall(r"\((\d+) more not logged\)", gateway.log())]
    assert lines + sum(unlogged) <= sent


def test_rules_survive_a_crash_and_a_reload_makes_the_difference(hosts, tmp_path):
    _, _, gateway, config = hosts
    lines = tmp_path / "lines"
    lines.write_text(
        "filter add dev left ingress pref 10 protocol ip flower src_ip 10.1.0.0-10.1.0.9 ip_proto tcp dst_port 5-9 "
        "tcp_flags syn/syn,ack action reject with tcp-reset log\n"
        "filter add dev main egress mark 3/7 ip_ttl 9 action skbedit mark 5 action pass\n"
        "filter add dev left ingress action drop\n"
        "filter del dev left ingress pref 9\n"
    )
    gateway.run("batch", lines)
    before = gateway.json("filter", "show")
    assert [rule["pref"] for rule in before] == [10, 49152]
    gateway.kill()
    gateway.start_again()
    assert gateway.json("filter", "show") == before
    assert gateway.run("diff", check=False).stdout.count("+ filter ") == 2

    rule = '[[filter]]\nport = "right"\nhook = "egress"\npreference = 5\nprotocol = "udp"\naction = "drop"\n'
    gateway.write(config.render(gateway.socket) + "\n" + rule)
    assert gateway.run("reload").stdout == "+ filter dev right egress pref 5 protocol all flower ip_proto udp action drop\n"
    assert len(gateway.json("filter", "show")) == 3
    gateway.write(config.render(gateway.socket))
    assert gateway.run("reload").stdout.startswith("- filter dev right egress pref 5")
    assert gateway.json("filter", "show") == before

    saved = tmp_path / "saved.toml"
    gateway.run("save", saved)
    gateway.write(saved.read_text())
    gateway.run("filter", "del", "dev", "left", "ingress")
    gateway.run("reload")
    origins = [{**rule, "origin": "runtime"} for rule in gateway.json("filter", "show")]
    assert origins == before, json.dumps(origins)


def test_wrong_words_change_nothing(hosts):
    _, _, gateway, _ = hosts
    for words, why in [
        ("dev lift ingress action drop", "there is no port or VRF 'lift'"),
        ("dev left ingress dst_port 5 action drop", "ip_proto tcp, udp"),
        ("dev left ingress pref 0 action drop", "1 to 65535"),
        ("dev left ingress protocol ipv6 src_ip 10/8 action drop", "protocol ip"),
        ("dev left ingress flower matchall action drop", "'matchall' is not supported"),
    ]:
        done = gateway.run("filter", "add", *words.split(), check=False)
        assert done.returncode != 0 and why in done.stderr, done.stderr
    assert gateway.json("filter", "show") == []


def test_bits_beyond_a_prefix_are_warned_of(hosts, tmp_path):
    gateway = hosts[2]
    rule = "dev left ingress pref 10 protocol ip flower src_ip 10.9.2.3/16 action drop"
    done = gateway.run("filter", "add", *rule.split())
    assert done.stderr.strip().endswith("warning: src_ip 10.9.2.3/16 matches all of 10.9.0.0/16"), done
    assert "src_ip 10.9.0.0/16" in gateway.run("filter", "show", "dev", "left", "ingress").stdout
    lines = tmp_path / "lines"
    lines.write_text("filter del dev left ingress\n" + 2 * f"filter replace {rule}\n")
    done = gateway.run("batch", lines)
    assert done.stderr.count("10.9.2.3/16 matches all of 10.9.0.0/16") == 1, done
    assert f"{lines}:2: warning: src_ip" in done.stderr, done
    assert json.loads(gateway.run("batch", "-j", lines).stdout)["warning"]["line"] == 2
