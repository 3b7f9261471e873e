"""Frames with 802.1ad tags and with two tags on live interfaces, between hosts that are network namespaces."""

import re
import time

import pytest
from harness import transfers
from harness.config import Config, Port
from harness.gateway import Gateway
from harness.vlan_switch import CUSTOMER, SERVICE
from test_namespaces import LEFT, RIGHT, both_families
from test_traces import Trace, text
from test_vlans import switch, trunk  # noqa: F401

pytestmark = pytest.mark.namespaces

TAGS = {
    "service": {"left": ((SERVICE, 10),), "right": ((SERVICE, 30),)},
    "inner": {"left": ((SERVICE, 10), (CUSTOMER, 20)), "right": ((SERVICE, 30), (CUSTOMER, 4094))},
    "double": {"left": ((CUSTOMER, 10), (CUSTOMER, 20)), "right": ((CUSTOMER, 30), (CUSTOMER, 20))},
}
"""Tenant -> the tags of its frames on each trunk."""
ROOM = 8
"""By how much a trunk's MTU has to be larger than that of a VLAN with two tags (packet(7))."""


def hosts_of(topology, made, side):
    """The tenants' hosts behind a switch, all with the same addresses."""
    own = {"left": LEFT, "right": RIGHT}[side]
    hosts = {}
    for tenant, tags in TAGS.items():
        here = hosts[tenant] = topology.namespace(f"{tenant}-{side}")
        made.access(tags[side], here)
        here.addresses("eth0", f"{own[4][1]}/24", f"{own[6][1]}/64")
        for family in (4, 6):
            here.ip(f"-{family}", "route", "add", "default", "via", own[family][0])
    return hosts


def ports(side, kind="af-packet"):
    """The gateway's ports on a side: the trunk, the VLANs that others are on, and the tenants'."""
    own = {"left": LEFT, "right": RIGHT}[side]
    addresses = [f"{own[4][0]}/24", f"{own[6][0]}/64"]
    service, double = (TAGS[tenant][side] for tenant in ("inner", "double"))
    vlan = {"kind": "vlan", "mtu": 1500}
    return [
        # Without it, 1500 is assumed where no interface can be asked.
        Port(side, [], kind=kind, interface=side, mtu=1500 + ROOM),
        Port(f"{side}.d.c", addresses, parent=f"{side}.d", id=double[1][1], vrf="double", **vlan),
        Port(f"{side}.d", [], parent=side, id=double[0][1], **vlan),
        Port(f"{side}.s", addresses, parent=side, id=service[0][1], protocol="802.1ad", vrf="service", **vlan),
        Port(f"{side}.s.c", addresses, parent=f"{side}.s", id=service[1][1], vrf="inner", **vlan),
    ]


@pytest.fixture
def stacks(topology, switch, tmp_path):  # noqa: F811
    """Two trunks with the tenants of `TAGS` on each: `({tenant: (left, right)}, topology, gateway)`."""
    gw = topology.namespace("gw")
    sides = [hosts_of(topology, trunk(topology, switch, side, 1500 + ROOM), side) for side in ("left", "right")]
    hosts = {tenant: [side[tenant] for side in sides] for tenant in TAGS}
    with Gateway(gw, Config(vrfs=list(TAGS), ports=ports("left") + ports("right")), tmp_path) as gateway:
        yield hosts, topology, gateway


@both_families
def test_tenants_stay_apart_and_full_packets_pass(stacks, family):
    hosts, _, gateway = stacks
    for left, right in hosts.values():
        left.ping(LEFT[family][0])
        right.ping(LEFT[family][1])
        left.ping(RIGHT[family][1], size=1472 if family == 4 else 1452, options=["-M", "do"])
    only = {4: "10.2.0.99", 6: "fd02::99"}[family]
    hosts["inner"][1].addresses("eth0", f"{only}/{24 if family == 4 else 64}")
    for tenant, (left, _) in hosts.items():
        done = left.ping(only, count=1, timeout=2, check=tenant == "inner")
        assert (done.returncode == 0) == (tenant == "inner"), tenant
    assert not {"vlan_unknown", "link_vlan", "link_protocol"} & set(gateway.drops())


@both_families
def test_tcp_and_udp_arrive_whole(stacks, family):
    """With the kernel's checksum and segmentation offloads: one tag is beside the frame, the other in it."""
    hosts, _, gateway = stacks
    for left, right in hosts.values():
        transfers.tcp(left, LEFT[family][1], right, RIGHT[family][1], count=3_000_000)
        transfers.tcp(right, RIGHT[family][1], left, LEFT[family][1], count=1_000_000)
        transfers.udp(left, LEFT[family][1], right, RIGHT[family][1])
    left = next(port for port in gateway.json("show", "ports") if port["name"] == "left")
    assert left["statistics"]["rx_checksummed"] > 0 and left["statistics"]["rx_segmented"] > 0, left


@both_families
def test_with_tags_in_the_frames(stacks, family):
    """Without the kernel's VLAN offloads."""
    hosts, topology, _ = stacks
    for side in ("left", "right"):
        for here, device in ((topology["gw"], side), (topology[side], "eth0")):
            here.run("ethtool", "-K", device, "txvlan", "off", "rxvlan", "off", "tx-vlan-stag-hw-insert", "off")
    for left, right in hosts.values():
        left.ping(RIGHT[family][1], size=1452, options=["-M", "do"])
        transfers.tcp(left, LEFT[family][1], right, RIGHT[family][1], count=3_000_000)


def test_a_trace_names_both_tags(stacks):
    hosts, _, gateway = stacks
    left, right = LEFT[4][1], RIGHT[4][1]
    hosts["inner"][0].ping(right, count=1)
    trace = Trace(gateway, "src", left, "and", "dst", right, "count", 1)
    hosts["inner"][0].ping(right, count=1)
    (packet,) = trace.packets()
    outer, inner = (number for _, number in TAGS["inner"]["right"])
    assert text(packet, "sent").endswith(f", VLAN {outer}, VLAN {inner}"), packet


def test_tags_on_the_wire_and_in_show(stacks, tmp_path):
    hosts, topology, gateway = stacks
    capture = tmp_path / "right.pcap"
    dump = topology["right"].start("tcpdump", "-Z", "root", "-i", "eth0", "--immediate-mode", "-U", "-w", capture)
    while "listening on" not in dump.stderr.readline():
        assert dump.poll() is None
    sizes = {"service": 100, "inner": 200, "double": 300}
    for tenant, (left, _) in hosts.items():
        for family in (4, 6):
            left.ping(RIGHT[family][1], count=2, size=sizes[tenant])
    time.sleep(0.5)
    dump.terminate()
    dump.wait()
    shown = topology["right"].run("tcpdump", "-e", "-nn", "-r", capture).stdout.splitlines()
    for tenant, size in sizes.items():
        lines = [line for line in shown if "echo request" in line and f"length {size + 8}" in line]
        assert len(lines) == 4, (tenant, shown)
        numbers = [str(number) for _, number in TAGS[tenant]["right"]]
        first = "802.1Q-QinQ" if TAGS[tenant]["right"][0][0] == SERVICE else "802.1Q"
        for line in lines:
            assert re.findall(r"vlan (\d+), p 0", line) == numbers and f"ethertype {first} " in line, line
    links = gateway.run("link", "show").stdout
    assert "left.s@left: " in links and "vlan protocol 802.1ad id 10" in links, links
    assert "left.s.c@left.s: " in links and "vlan protocol 802.1Q id 20" in links, links
    counted = {port["name"]: port["statistics"] for port in gateway.json("show", "ports")}
    for counter in ("rx_packets", "tx_packets"):
        inner, outer, trunk = (counted[name][counter] for name in ("right.s.c", "right.s", "right"))
        assert 4 <= inner < outer < trunk, counted


def test_they_come_and_go_while_the_gateway_runs(topology, switch, tmp_path):  # noqa: F811
    gw = topology.namespace("gw")
    left, right = (hosts_of(topology, trunk(topology, switch, side), side)["inner"] for side in ("left", "right"))
    config = Config(ports=[Port(side, [], kind="af-packet", interface=side) for side in ("left", "right")])
    with Gateway(gw, config, tmp_path) as gateway:
        gateway.run("vrf", "add", "inner")
        for side, own in (("left", LEFT), ("right", RIGHT)):
            (_, outer), (_, inner) = TAGS["inner"][side]
            add = ["link", "add", "link"]
            gateway.run(*add, side, "name", f"{side}.s", "up", "type", "vlan", "proto", "802.1ad", "id", str(outer))
            name = f"{side}.c"
            gateway.run(*add, f"{side}.s", "name", name, "up", "vrf", "inner", "type", "vlan", "id", str(inner))
            gateway.run("addr", "add", f"{own[4][0]}/24", "dev", name)
        left.ping(RIGHT[4][1])
        # The kernel sends no longer frames by interfaces of an MTU of 1500: both ends are told.
        assert " mtu 1492 " in gateway.run("link", "show", "left.c").stdout
        assert gateway.run("link", "set", "left.c", "mtu", "1493", check=False).returncode != 0
        shown = left.ping(RIGHT[4][1], count=1, size=1472, options=["-M", "do"], check=False, timeout=2).stdout
        assert re.search(r"mtu ?= ?1492", shown), shown
        transfers.tcp(left, LEFT[4][1], right, RIGHT[4][1], count=1_000_000)
        statistics = {port["name"]: port["statistics"] for port in gateway.json("show", "ports")}
        assert statistics["right"]["tx_too_long"] == 0, statistics["right"]
        for port in ("right.s", "right"):
            gateway.run("link", "set", port, "down")
            assert left.ping(RIGHT[4][1], count=1, timeout=1, check=False).returncode != 0
            gateway.run("link", "set", port, "up")
            left.ping(RIGHT[4][1])
        # With room for the tags, both carry whole packets.
        for side in ("left", "right"):
            for here, device in ((gw, side), (topology[side], "eth0")):
                here.ip("link", "set", device, "mtu", str(1500 + ROOM))
            end = time.monotonic() + 5
            while gateway.run("link", "set", f"{side}.s", "mtu", "1500", check=False).returncode != 0:
                assert time.monotonic() < end
                time.sleep(0.05)
            gateway.run("link", "set", f"{side}.c", "mtu", "1500")
        # What it was told of the way.
        left.ip("route", "flush", "cache")
        left.ping(RIGHT[4][1], size=1472, options=["-M", "do"])
        gateway.run("link", "del", "right.s")
        assert "right.c" not in gateway.run("link", "show").stdout
        assert left.ping(RIGHT[4][1], count=1, timeout=1, check=False).returncode != 0


def test_a_tap_port(topology, switch, tun, tmp_path):  # noqa: F811
    gw, behind = topology.namespace("gw"), topology.namespace("behind")
    right = hosts_of(topology, trunk(topology, switch, "right", 1500 + ROOM), "right")
    config = Config(vrfs=list(TAGS), ports=ports("left", "tap") + ports("right"))
    config.ports[0].interface = "tap0"
    with Gateway(gw, config, tmp_path):
        gw.ip("link", "set", "tap0", "netns", behind.name)
        behind.silence("tap0")
        behind.ip("link", "set", "tap0", "up")
        left = hosts_of(topology, switch(behind, "tap0"), "left")
        for tenant in TAGS:
            for family in (4, 6):
                left[tenant].ping(RIGHT[family][1], size=1452, options=["-M", "do"])
                transfers.tcp(left[tenant], LEFT[family][1], right[tenant], RIGHT[family][1], count=300_000)
                transfers.tcp(right[tenant], RIGHT[family][1], left[tenant], LEFT[family][1], count=300_000)
