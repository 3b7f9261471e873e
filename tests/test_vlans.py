"""VLANs on live interfaces: tagged frames on AF_PACKET and TAP ports, between hosts that are network namespaces."""

import contextlib
import re
import time

import pytest
from harness import transfers
from harness.config import Config, Port
from harness.gateway import Gateway
from harness.vlan_switch import VlanSwitch
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from test_namespaces import GREETER, LEFT, LISTENER, RIGHT, both_families

pytestmark = pytest.mark.namespaces

VLANS = {"main": {}, "red": {"left": 10, "right": 110}, "blue": {"left": 20, "right": 4094}}
"""Tenant -> the VLAN on each trunk. The tenant `main` is untagged."""


@pytest.fixture
def switch(topology, tmp_path):
    """Makes switches whose trunk is an interface of a namespace, which end with the test."""
    with contextlib.ExitStack() as open_ones:
        yield lambda namespace, trunk: open_ones.enter_context(VlanSwitch(namespace, trunk, tmp_path))


def trunk(topology, switch, side, mtu=1500):
    """A link between the gateway and a switch, under the name of its side. Returns the switch."""
    topology.link(topology["gw"], side, topology.namespace(side), "eth0", mtu)
    topology["gw"].silence(side)
    return switch(topology[side], "eth0")


def host(topology, made, side, tenant, mtu=1500):
    """A tenant's host behind a switch, with the same addresses as the other tenants'."""
    here = topology[side]
    if vlan := VLANS[tenant].get(side):
        here = topology.namespace(f"{tenant}-{side}")
        made.access(vlan, here, mtu)
    addresses = {"left": LEFT, "right": RIGHT}[side]
    here.addresses("eth0", f"{addresses[4][1]}/24", f"{addresses[6][1]}/64")
    for family in (4, 6):
        here.ip(f"-{family}", "route", "add", "default", "via", addresses[family][0])
    return here


def ports(side, tenants):
    """The gateway's ports on a side: the untagged one, and a VLAN for each tenant."""
    own = {"left": LEFT, "right": RIGHT}[side]
    addresses = [f"{own[4][0]}/24", f"{own[6][0]}/64"]
    made = [Port(side, addresses, kind="af-packet", interface=side)]
    for tenant in tenants:
        vlan = VLANS[tenant][side]
        made.append(Port(f"{side}.{vlan}", addresses, kind="vlan", parent=side, id=vlan, vrf=tenant))
    return made


@pytest.fixture
def trunks(topology, switch, tmp_path):
    """Two trunks, each with an untagged host and two tenants in VLANs: `({tenant: (left, right)}, topology, gateway)`."""
    gw = topology.namespace("gw")
    hosts = {tenant: [] for tenant in VLANS}
    config = Config(vrfs=["red", "blue"])
    for side in ("left", "right"):
        made = trunk(topology, switch, side)
        for tenant in VLANS:
            hosts[tenant].append(host(topology, made, side, tenant))
        config.ports += ports(side, ["red", "blue"])
    with Gateway(gw, config, tmp_path) as gateway:
        yield hosts, topology, gateway


@both_families
def test_tenants_with_the_same_addresses_stay_apart(trunks, family):
    hosts, _, gateway = trunks
    for left, right in hosts.values():
        left.ping(LEFT[family][0])
        left.ping(RIGHT[family][1])
        right.ping(LEFT[family][1])
        left.ping(RIGHT[family][1], size=1452)
    answering = {
        tenant: right.start("/usr/bin/python3", "-Ic", GREETER, RIGHT[4][1], tenant)
        for tenant, (_, right) in hosts.items()
    }
    for tenant, (left, right) in hosts.items():
        transfers.wait_for_listener(right, 5003)
        assert left.run("/usr/bin/python3", "-Ic", LISTENER, RIGHT[4][1]).stdout.strip() == tenant
    for process in answering.values():
        process.kill()
    # What is there in one VLAN alone is there for that tenant alone.
    only = {4: "10.2.0.99", 6: "fd02::99"}[family]
    red = hosts["red"][1]
    red.addresses("eth0", f"{only}/{24 if family == 4 else 64}")
    for tenant, (left, _) in hosts.items():
        done = left.ping(only, count=1, timeout=2, check=tenant == "red")
        assert (done.returncode == 0) == (tenant == "red"), tenant
    assert "vlan_unknown" not in gateway.drops() and "link_vlan" not in gateway.drops()


@both_families
def test_tcp_and_udp_arrive_whole(trunks, family):
    """With the kernel's checksum and segmentation offloads, and tags that it keeps apart from the frames."""
    hosts, _, _ = trunks
    for tenant in ("red", "blue"):
        left, right = hosts[tenant]
        transfers.tcp(left, LEFT[family][1], right, RIGHT[family][1], count=5_000_000)
        transfers.tcp(right, RIGHT[family][1], left, LEFT[family][1], count=1_000_000)
        transfers.udp(left, LEFT[family][1], right, RIGHT[family][1])


def test_traceroute_and_errors_come_back_by_the_vlan(trunks):
    hosts, _, _ = trunks
    for left, _ in hosts.values():
        for family in (4, 6):
            assert transfers.hops(left, RIGHT[family][1]) == [LEFT[family][0], RIGHT[family][1]]
        shown = left.ping("203.0.113.7", count=1, check=False, timeout=3).stdout
        assert f"From {LEFT[4][0]}" in shown, shown


def test_tags_on_the_wire(trunks, tmp_path):
    """tcpdump at the far end sees the VLAN of each frame, and no other."""
    hosts, topology, gateway = trunks
    capture = tmp_path / "right.pcap"
    dump = topology["right"].start("tcpdump", "-Z", "root", "-i", "eth0", "--immediate-mode", "-U", "-w", capture)
    while "listening on" not in dump.stderr.readline():
        assert dump.poll() is None
    sizes = {"main": 100, "red": 200, "blue": 300}
    for tenant, (left, _) in hosts.items():
        for family in (4, 6):
            left.ping(RIGHT[family][1], count=2, size=sizes[tenant])
    time.sleep(0.5)
    dump.terminate()
    dump.wait()
    shown = topology["right"].run("tcpdump", "-e", "-nn", "-r", capture).stdout.splitlines()
    vlans = {"main": None, "red": "110", "blue": "4094"}
    for tenant, size in sizes.items():
        lines = [line for line in shown if "echo request" in line and f"length {size + 8}" in line]
        assert len(lines) == 4, (tenant, shown)
        for line in lines:
            tag = re.search(r"vlan (\d+), p (\d)", line)
            assert (tag and tag[1]) == vlans[tenant], line
            assert tag is None or tag[2] == "0", line
    asked = [line for line in shown if "who-has 10.2.0.2 " in line]
    assert {(found := re.search(r"vlan (\d+)", line)) and found[1] for line in asked} == set(vlans.values()), shown
    counted = {port["name"]: port for port in gateway.json("show", "ports")}
    for name, vlan in (("right.110", 110), ("right.4094", 4094)):
        port = counted[name]
        assert (port["kind"], port["parent"], port["vlan"]) == ("vlan", "right", vlan)
        assert 4 <= port["statistics"]["tx_packets"] < counted["right"]["statistics"]["tx_packets"]
        assert 4 <= port["statistics"]["rx_packets"] < counted["right"]["statistics"]["rx_packets"]


def test_frames_of_no_vlan_are_counted(trunks):
    hosts, topology, gateway = trunks
    left, _ = hosts["main"]
    mac = topology["gw"].mac("left")
    packet = IP(src=LEFT[4][1], dst=RIGHT[4][1]) / UDP(sport=1, dport=2) / bytes(20)
    before = gateway.drops().get("vlan_unknown", 0)
    with left.packet_socket("eth0") as sending:
        for vlan in (1, 99, 4095):
            sending.send(bytes(Ether(src=left.mac("eth0"), dst=mac) / Dot1Q(vlan=vlan) / packet))
        gateway.wait_for_drops("vlan_unknown", before + 3)
        # Two tags of which the port has the outer alone, and three.
        for tags, reason, count in ((2, "vlan_unknown", before + 4), (3, "link_vlan", 1)):
            frame = packet
            for _ in range(tags):
                frame = Dot1Q(vlan=10 if tags == 2 else 0) / frame
            sending.send(bytes(Ether(src=left.mac("eth0"), dst=mac) / frame))
            gateway.wait_for_drops(reason, count)
        # A tag with a priority and no VLAN is the untagged port's.
        sent = {port["name"]: port["statistics"]["tx_packets"] for port in gateway.json("show", "ports")}
        sending.send(bytes(Ether(src=left.mac("eth0"), dst=mac) / Dot1Q(vlan=0, prio=5) / packet))
        end = time.monotonic() + 3
        while time.monotonic() < end:
            now = {port["name"]: port["statistics"]["tx_packets"] for port in gateway.json("show", "ports")}
            if now["right"] > sent["right"]:
                break
            time.sleep(0.05)
    assert now["right"] > sent["right"]
    assert all(now[name] == sent[name] for name in ("right.110", "right.4094")), (sent, now)


def test_vlans_come_and_go_while_the_gateway_runs(topology, switch, tmp_path):
    gw = topology.namespace("gw")
    sides = ("left", "right")
    left, right = (host(topology, trunk(topology, switch, side), side, "red") for side in sides)
    config = Config(ports=ports("left", []) + ports("right", []))
    with Gateway(gw, config, tmp_path) as gateway:
        gateway.run("vrf", "add", "red")
        for side, own in (("left", LEFT), ("right", RIGHT)):
            name = f"{side}.v"
            vlan = str(VLANS["red"][side])
            gateway.run("link", "add", "link", side, "name", name, "vrf", "red", "type", "vlan", "id", vlan)
            gateway.run("addr", "add", f"{own[4][0]}/24", "dev", name)
            assert left.ping(RIGHT[4][1], count=1, timeout=1, check=False).returncode != 0
            gateway.run("link", "set", name, "up")
        left.ping(RIGHT[4][1])
        # The parent down and up again.
        gateway.run("link", "set", "right", "down")
        assert left.ping(RIGHT[4][1], count=1, timeout=1, check=False).returncode != 0
        gateway.run("link", "set", "right", "up")
        left.ping(RIGHT[4][1])
        right.ping(LEFT[4][1])
        gateway.run("link", "del", "right.v")
        assert left.ping(RIGHT[4][1], count=1, timeout=1, check=False).returncode != 0
        said = gateway.run("link", "add", "link", "left", "x", "type", "vlan", "id", "10", check=False)
        assert said.returncode != 0 and "left.v" in said.stderr, said


@both_families
def test_jumbo_frames(topology, switch, tmp_path, family):
    gw = topology.namespace("gw")
    sides = ("left", "right")
    left, right = (host(topology, trunk(topology, switch, side, 9000), side, "red", 9000) for side in sides)
    config = Config(vrfs=["red"], ports=ports("left", ["red"]) + ports("right", ["red"]))
    with Gateway(gw, config, tmp_path) as gateway:
        left.ping(RIGHT[family][1], size=8952, options=["-M", "do"])
        transfers.tcp(left, LEFT[family][1], right, RIGHT[family][1], count=5_000_000)
        # A VLAN with a smaller MTU than its parent.
        gateway.run("link", "set", "right.110", "mtu", "1400")
        shown = left.ping(RIGHT[family][1], count=1, size=2000, options=["-M", "do"], check=False, timeout=2).stdout
        assert re.search(r"mtu ?= ?1400", shown), shown


def test_a_tap_port_with_a_vlan(topology, switch, tun, tmp_path):
    """The kernel puts the tags into the frames that it gives a TAP device, and takes them from there."""
    gw, behind = topology.namespace("gw"), topology.namespace("behind")
    left = topology.namespace("left")
    right = host(topology, trunk(topology, switch, "right"), "right", "main")
    tap = Port("left", [], kind="tap", interface="tap0")
    vlan = Port("left.10", [f"{LEFT[4][0]}/24", f"{LEFT[6][0]}/64"], kind="vlan", parent="left", id=10)
    with Gateway(gw, Config(ports=[tap, vlan, *ports("right", [])]), tmp_path):
        gw.ip("link", "set", "tap0", "netns", behind.name)
        behind.silence("tap0")
        behind.ip("link", "set", "tap0", "up")
        switch(behind, "tap0").access(10, left)
        left.addresses("eth0", f"{LEFT[4][1]}/24", f"{LEFT[6][1]}/64")
        for family in (4, 6):
            left.ip(f"-{family}", "route", "add", "default", "via", LEFT[family][0])
            left.ping(RIGHT[family][1], size=1452)
            transfers.tcp(left, LEFT[family][1], right, RIGHT[family][1])
            transfers.tcp(right, RIGHT[family][1], left, LEFT[family][1])


JOINED = """
vrf=red,table=0,priority=10,arp,in_port=left.10 actions=output:right.110
vrf=red,table=0,priority=10,arp,in_port=right.110 actions=output:left.10
vrf=red,table=0,priority=9,ip,ct_state=-trk actions=ct(table=1)
vrf=red,table=1,ip,ct_state=+trk+new,in_port=left.10 actions=ct(commit),output:right.110
vrf=red,table=1,ip,ct_state=+trk+est,in_port=left.10 actions=output:right.110
vrf=red,table=1,ip,ct_state=+trk+est,in_port=right.110 actions=output:left.10
"""


def test_flows_join_two_vlans_as_a_bridge_does(topology, switch, tmp_path):
    """One network in VLANs of two numbers: frames leave with the other one's tag, and hosts see each other's addresses."""
    gw = topology.namespace("gw")
    config = Config(vrfs=["red"])
    hosts = []
    for side, address in (("left", "10.50.0.1"), ("right", "10.50.0.2")):
        made = trunk(topology, switch, side)
        here = host(topology, made, side, "red")
        here.addresses("eth0", f"{address}/24")
        hosts.append((here, address))
        vlan = VLANS["red"][side]
        config.ports += [
            Port(side, [], kind="af-packet", interface=side),
            Port(f"{side}.{vlan}", [], kind="vlan", parent=side, id=vlan, vrf="red"),
        ]
    (left, left_address), (right, right_address) = hosts
    with Gateway(gw, config, tmp_path) as gateway:
        gateway.run("flow", "replace", "-", stdin=JOINED)
        left.ping(right_address)
        assert right.mac("eth0") in left.ip("neigh", "show", right_address).stdout
        answer = right.ping(left_address, count=2, timeout=2, check=False)
        assert answer.returncode != 0, "nothing may begin there"
        transfers.tcp(left, left_address, right, right_address, count=1_000_000)
        transfers.udp(left, left_address, right, right_address)
        # Frames that came whole leave whole, and fragments as such.
        left.ping(right_address, size=4000)
        drops = {drop["reason"]: drop["packets"] for drop in gateway.json("show", "drops")}
        assert drops["flow_unsupported"] == 0, drops
