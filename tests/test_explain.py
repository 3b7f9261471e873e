"""What `hitpath explain` says of packets and what becomes of them; lists of `hitpath show`."""

import json
import re
import time

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6ND_NS, IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from harness.config import Config, Port
from harness.gateway import Gateway

HOSTS = {4: "10.1.0.2", 6: "fd01::2"}
OWN = {4: "10.1.0.1", 6: "fd01::1"}
FAR = {4: "10.2.0.2", 6: "fd02::2"}


@pytest.fixture
def between(topology, tmp_path):
    """A gateway between two hosts, of which the right one has a narrow link."""
    gw = topology.namespace("gw")
    hosts, config = {}, Config()
    for number, (label, mtu) in enumerate((("left", 1500), ("right", 1400)), start=1):
        host = hosts[label] = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        addresses = [f"10.{number}.0.1/24", f"fd0{number}::1/64"]
        host.addresses("eth0", f"10.{number}.0.2/24", f"fd0{number}::2/64")
        for family, via in zip("46", addresses):
            host.ip(f"-{family}", "route", "add", "default", "via", via.split("/")[0])
        gw.ip("link", "set", label, "mtu", mtu)
        host.ip("link", "set", "eth0", "mtu", mtu)
        config.ports.append(Port(label, addresses, kind="af-packet", interface=label))
    with Gateway(gw, config, tmp_path) as gateway:
        for family in (4, 6):
            hosts["left"].run("ping", "-c", "1", "-W", "5", FAR[family])
        yield gateway, hosts


def explained(gateway, packet):
    """The stages of a packet by name, of several the last."""
    done = gateway.run("-j", "explain", f"{packet} in left", check=False)
    stages = {}
    for stage in json.loads(done.stdout):
        # What follows is about what the gateway sends.
        if stage["stage"] in stages and "generated" in stages and stage["stage"] != "outcome":
            continue
        stages[stage["stage"]] = stage
    assert done.returncode == (1 if stages["outcome"]["fate"] == "dropped" else 0)
    return stages


def counted(gateway):
    """Drops, and what workers have counted."""
    workers = gateway.json("show", "workers")
    counters = {counter["name"]: counter["value"] for counter in workers[0]["counters"]}
    return gateway.drops(), counters


def frame(hosts, gateway, packet):
    mac = next(port["mac"] for port in gateway.json("show", "ports") if port["name"] == "left")
    return bytes(Ether(dst=mac) / packet)


V4, V6 = IP(src=HOSTS[4], dst=OWN[4]), IPv6(src=HOSTS[6], dst=OWN[6])
TO4, TO6 = IP(src=HOSTS[4], dst=FAR[4]), IPv6(src=HOSTS[6], dst=FAR[6])

# A packet, its description, its fate, and the counter that its sender is told by.
CASES = {
    "echo": (V4 / ICMP(), "icmp 10.1.0.2 > 10.1.0.1", "answered", "echo_replies"),
    "echo-with-code": (
        V4 / ICMP(code=3),
        "icmp 10.1.0.2 > 10.1.0.1 type 8 code 3",
        "local_icmp",
        None,
    ),
    "solicitation-of-a-router": (
        IPv6(src="fe80::1", dst="ff02::1:ff00:1", hlim=64) / ICMPv6ND_NS(tgt="fd01::1"),
        "icmp fe80::1 > ff02::1:ff00:1 type 135 ttl 64",
        "nd_malformed",
        None,
    ),
    "echo-v6": (V6 / ICMPv6EchoRequest(), "icmp fd01::2 > fd01::1", "answered", "echo_replies"),
    "tcp": (V4 / TCP(sport=9, dport=22), "tcp 10.1.0.2:9 > 10.1.0.1:22", "local_no_listener", "tcp_resets"),
    "tcp-v6": (V6 / TCP(sport=9, dport=22), "tcp [fd01::2]:9 > [fd01::1]:22", "local_no_listener", "tcp_resets"),
    "udp": (V4 / UDP(sport=9, dport=53), "udp 10.1.0.2:9 > 10.1.0.1:53", "local_no_listener", "icmp_errors"),
    "gre": (V4.copy(), "47 10.1.0.2 > 10.1.0.1", "local_no_listener", "icmp_errors"),
    "ike": (V4 / UDP(sport=500, dport=500), "udp 10.1.0.2:500 > 10.1.0.1:500", "local_ike", None),
    "fits": (TO4 / UDP(sport=9, dport=9) / Raw(bytes(1372)), "udp 10.1.0.2:9 > 10.2.0.2:9 size 1400", "sent-in-clear", None),
    "cut": (
        TO4 / UDP(sport=9, dport=9) / Raw(bytes(1400)),
        "udp 10.1.0.2:9 > 10.2.0.2:9 size 1428",
        "sent-in-clear",
        "fragmented",
    ),
    "df": (
        IP(src=HOSTS[4], dst=FAR[4], flags="DF") / UDP(sport=9, dport=9) / Raw(bytes(1400)),
        "udp 10.1.0.2:9 > 10.2.0.2:9 size 1428 df",
        "too_big",
        "icmp_errors",
    ),
    "too-big-v6": (
        TO6 / UDP(sport=9, dport=9) / Raw(bytes(1400)),
        "udp [fd01::2]:9 > [fd02::2]:9 size 1448",
        "too_big",
        "icmp_errors",
    ),
    "hop-limit": (
        IP(src=HOSTS[4], dst=FAR[4], ttl=1) / UDP(sport=9, dport=9),
        "udp 10.1.0.2:9 > 10.2.0.2:9 ttl 1",
        "hop_limit",
        "icmp_errors",
    ),
    "silent": (
        IP(src=HOSTS[4], dst="10.2.0.77") / UDP(sport=9, dport=9),
        "udp 10.1.0.2:9 > 10.2.0.77:9",
        "sent-once-resolved",
        None,
    ),
}


def test_packets_fare_as_explained(between):
    for name in CASES:
        fares_as_explained(*between, name)


def fares_as_explained(gateway, hosts, name):
    packet, description, fate, counter = CASES[name]
    if name == "gre":
        packet = IP(src=HOSTS[4], dst=OWN[4], proto=47) / Raw(bytes(8))
    drops, counters = counted(gateway)
    stages = explained(gateway, description)
    # Asking changes nothing. Hosts report their groups meanwhile.
    reasons = set(drops) | set(counted(gateway)[0])
    assert all(counted(gateway)[0][reason] == drops.get(reason) for reason in reasons - {"mld_ignored"})
    outcome = stages["outcome"]
    assert fate in (outcome["fate"], outcome.get("reason")), stages
    with hosts["left"].packet_socket("eth0") as opened:
        opened.send(frame(hosts, gateway, packet))
    deadline = time.monotonic() + 5
    reason = outcome.get("reason")
    while time.monotonic() < deadline:
        now_drops, now = counted(gateway)
        is_dropped = reason is None or now_drops.get(reason, 0) > drops.get(reason, 0)
        is_told = counter is None or now[counter] > counters[counter]
        if is_dropped and is_told:
            break
        time.sleep(0.05)
    else:
        raise AssertionError((stages, drops, now_drops))
    if counter in ("tcp_resets", "icmp_errors"):
        assert stages["told"]["told"] is True
    if fate == "too_big":
        assert stages["told"]["mtu"] == 1400 and stages["size"]["mtu"] == 1400
    if name == "cut":
        assert stages["size"]["fragments"] == [1396, 52]
    if name == "silent":
        # What it waits for does not come, and then it fares as was said.
        wait = stages["wait"]
        assert (wait["address"], wait["port"], wait["told"]) == ("10.2.0.77", "right", True)
        before = drops.get("neighbour_unresolved", 0)
        # It is asked for three times, a second apart.
        gateway.wait_for_drops("neighbour_unresolved", before + 1, timeout=10)


def test_lists_are_whole_and_end_with_a_summary(between, tmp_path):
    gateway, _ = between
    ports = gateway.run("show", "ports").stdout.splitlines()
    assert ports[0].split()[:7] == ["PORT", "KIND", "VRF", "STATE", "SIDE", "MTU", "MAC"]
    right = next(line.split() for line in ports if line.startswith("right "))
    assert (right[4], right[5]) == ("unset", "1400") and len(right[6].split(":")) == 6
    # More than two pages.
    count = 2345
    lines = [f"xfrm policy add src 10.{n >> 8}.{n & 255}.0/24 dst 172.16.0.0/12 dir out" for n in range(count)]
    path = tmp_path / "policies"
    path.write_text("\n".join([*lines, "xfrm policy add src 0.0.0.0/0 dst 0.0.0.0/0 dir in"]) + "\n")
    gateway.run("batch", path, timeout=60)
    listed = gateway.run("show", "policies").stdout.splitlines()
    assert [line.split()[2] for line in listed[2 : count + 2]] == [str(n) for n in range(1, count + 1)]
    assert listed[-1] == f"{count + 1} policies: 1 in, {count} out, 0 fwd; 0 packets, 0 bytes", listed[-1]
    spd = gateway.run("show", "spd").stdout.splitlines()
    assert f"{count + 1} policies: 1 in, {count} out, 0 fwd; 0 packets, 0 bytes" in spd
    views = gateway.json("show", "policies")
    report = gateway.json("show", "spd")
    assert [view["position"] for view in views] == [1, *range(1, count + 1)]
    assert [view for database in report["spds"] for view in database["list"]] == views
    assert len(report["flow_cache"]) == 4
    told = explained(gateway, "udp 10.1.0.2:9 > 172.16.0.1:9")
    assert told["policy"]["selector"] == "src 10.1.0.0/24 dst 172.16.0.0/12", told
    gateway.run("xfrm", "policy", "flush")


def test_sentences_and_errors(between):
    gateway, _ = between
    told = gateway.run("explain", "tcp 10.1.0.2:9 > 10.1.0.1:22 in left", check=False).stdout
    assert "nobody listens on 10.1.0.1; the sender is told: a TCP reset" in told
    assert "the sender is told by 10.1.0.1: a TCP reset" in told
    assert told.endswith("outcome    dropped (local_no_listener)\n"), told
    told = gateway.run("explain", "udp 10.1.0.2 > 10.2.0.2 size 1428 in left").stdout
    assert "1428 bytes are more than the 1400 of this way (MTU of right 1400): cut into 2 fragments" in told
    for words, why in (
        ("udp 10.1.0.2 > 10.2.0.2 size 5 in left", "28 bytes at least"),
        ("udp fd01::2 > fd02::2 df in left", "IPv6 has no `df`"),
        ("udp 10.1.0.2 > 10.2.0.2 size x in left", "is not a size"),
        ("udp 10.1.0.2 > 10.2.0.2 size 70000 in left", "0 to 65535"),
    ):
        done = gateway.run("explain", words, check=False)
        assert done.returncode == 2 and why in done.stderr, done.stderr


def test_who_reads_a_field_is_named(between):
    """Decisions depend on a TTL since a filter reads it: the policies have nothing to do with it."""
    gateway, _ = between

    def of_vrf():
        lines = gateway.run("explain", "udp 10.1.0.2:5 > 10.2.0.2:6 in left", check=False).stdout
        return re.search(r"main(;.* read .*)?$", lines, re.M)[0]

    assert of_vrf() == "main"
    gateway.run("filter", "add", "dev", "left", "ingress", "pref", "1", "flower", "ip_ttl", "5", "action", "drop")
    assert of_vrf() == "main; filters read TTL or hop limit"
    gateway.run("xfrm", "policy", "add", "dscp", "46", "dir", "in", "action", "allow")
    assert of_vrf() == "main; its policies read DSCP; filters read TTL or hop limit"
    gateway.run("filter", "del", "dev", "left", "ingress", "pref", "1")
    assert of_vrf() == "main; its policies read DSCP"


def test_what_comes_by_a_port_that_is_down_is_dropped(between):
    gateway, _ = between
    gateway.run("link", "set", "left", "down")
    done = gateway.run("explain", "udp 10.1.0.2:5 > 10.2.0.2:6 in left", check=False)
    assert done.returncode == 1
    assert "it comes by a port that is down" in done.stdout
    assert "dropped (port_down)" in done.stdout
    gateway.run("link", "set", "left", "up")
    told = gateway.run("explain", "udp 10.1.0.2:5 > 10.2.0.2:6 in left", check=False).stdout
    assert "port_down" not in told
