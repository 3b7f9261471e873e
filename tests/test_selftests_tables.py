"""Shell scripts of the Linux kernel's netfilter selftests that are about the table of connections itself: what
is opened at once, zones, VRFs, limits, and lists while connections come and go."""

import collections
import itertools
import threading
import time

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP

from harness.selftests import Script
from harness.wires import HEAD, MARKER, Talk, Wires, demand_checksums

pytestmark = pytest.mark.namespaces

LEFT, RIGHT, ROUTER = "10.1.0.2", "10.2.0.2", "10.2.0.1"

CLASH = Script("netfilter/conntrack_clash.sh", 2, {})
REVERSE = Script("netfilter/conntrack_reverse_clash.sh", 1, {})
VRF = Script("netfilter/conntrack_vrf.sh", 5, {})
RESIZE = Script("netfilter/conntrack_resize.sh", 8, {"the table's size changes all the while": 1})
FLUSH = Script("netfilter/conntrack_dump_flush.sh", 3, {})
ZONES = Script("netfilter/nft_zones_many.sh", 6, {"connections that a command inserts": 3})


@pytest.fixture
def wires(root, request, topology, tmp_path):
    with Wires(topology, tmp_path, **getattr(request, "param", {})) as made:
        yield made


def load(wires, new, head=HEAD):
    wires.replace(head + new)
    wires.gateway.run("conntrack", "-F")


def count(wires):
    """How many connections there are, after `-C`."""
    return int(wires.gateway.run("conntrack", "-C").stdout)


def datagram(side, sport, dport, **fields):
    ends = (LEFT, RIGHT) if side == "left" else (RIGHT, LEFT)
    return IP(src=ends[0], dst=ends[1], **fields) / UDP(sport=sport, dport=dport) / b"foo"


AT_ONCE = 128
"""Datagrams of one socket that come together."""


def clash(actions, ports):
    """Datagrams that all open one connection: each comes out, and each answer."""

    def case(wires):
        load(wires, f"table=1,priority=10,udp,ct_state=+new+trk,in_port=left actions={actions},NORMAL\n")
        for sport in range(40000, 40005):
            came = wires.send("left", *[datagram("left", sport, 22111)] * AT_ONCE, together=True).right
            (port,) = {packet[UDP].dport for packet in came}
            assert len(came) == AT_ONCE and port in ports, (len(came), port)
            back = wires.send("right", *[datagram("right", port, sport)] * AT_ONCE, together=True).left
            assert len(back) == AT_ONCE and {packet[UDP].sport for packet in back} == {22111}
            demand_checksums(came[-1])
            demand_checksums(back[-1])
        assert count(wires) == 5

    return case


def reverse_clash(wires):
    """Both sides send at once, and the connection is ended all the while: no port is another one.
    There are two workers, so that both sides may open the connection."""
    rule = "table=1,priority=10,udp,ct_state=+new+trk actions=ct(commit,nat(src)),NORMAL\n"
    load(wires, rule)
    end, seen = time.monotonic() + 5, collections.Counter()

    def flush():
        while time.monotonic() < end:
            wires.gateway.run("conntrack", "-F")

    flushing = threading.Thread(target=flush)
    flushing.start()
    sent, late = 0, end + 20
    # A marker may overtake what the other worker has.
    while time.monotonic() < end or sum(seen.values()) < 2 * sent and time.monotonic() < late:
        if time.monotonic() < end:
            sent += 1
            with wires.one_batch():
                wires.put("left", datagram("left", 56789, 56790))
                wires.put("right", datagram("right", 56790, 56789))
        came = wires.send("left")
        for side, packets in (("right", came.right), ("left", came.left)):
            seen.update((side, packet.src, packet[UDP].sport, packet[UDP].dport) for packet in packets)
    flushing.join()
    assert seen == {("right", LEFT, 56789, 56790): sent, ("left", RIGHT, 56790, 56789): sent}, (seen, sent)


BLUE = {"vrf": "blue"}


def in_vrf(flows):
    """The same flows, of the VRF."""
    return "".join(f"vrf=blue,{line}\n" for line in flows.splitlines() if line.strip())


def zone_of_the_port(wires):
    """The zone is what the flows say of the port that a packet came by, and not another one of the VRF."""
    wires.replace(in_vrf(f"""
table=0,priority=10,arp actions=NORMAL
table=0,priority=65000,udp,tp_dst={MARKER} actions=NORMAL
table=0,priority=10,icmp,in_port=left actions=ct(commit,zone=1),NORMAL
table=0,priority=5,icmp actions=ct(commit,zone=2),NORMAL
"""))
    wires.gateway.run("conntrack", "-F")
    (answer,) = wires.send("left", IP(src=LEFT, dst="10.1.0.1") / ICMP(id=77, seq=1) / bytes(56)).left
    assert answer[ICMP].type == 0
    assert wires.connection("-p", "icmp", "-s", LEFT, "-d", "10.1.0.1")["zone"] == 1


def masquerade(match, discipline=None):
    """What leaves is translated once, to another port."""

    def case(wires):
        if discipline:
            wires.gateway.run("qdisc", "add", "dev", "blue", "root", discipline)
        load(wires, in_vrf(f"table=1,priority=10,ip,in_port=left,{match}ct_state=+new+trk "
                           f"actions=ct(commit,nat(src={ROUTER}:1024-65535,random)),NORMAL\n"), in_vrf(HEAD))
        syn = IP(src=LEFT, dst=RIGHT) / TCP(sport=40000, dport=55555, flags="S", seq=1000)
        (came,) = wires.send("left", syn).right
        assert came.src == ROUTER and came[TCP].sport != 40000
        answer = IP(src=RIGHT, dst=ROUTER) / TCP(sport=55555, dport=came[TCP].sport, flags="SA", seq=9000, ack=1001)
        (back,) = wires.send("right", answer).left
        assert (back.src, back.dst, back[TCP].dport) == (RIGHT, LEFT, 40000)
        ack = IP(src=LEFT, dst=RIGHT) / TCP(sport=40000, dport=55555, flags="A", seq=1001, ack=9001)
        (again,) = wires.send("left", ack).right
        assert again[TCP].sport == came[TCP].sport
        demand_checksums(again)
        assert wires.connection()["state"] == "ESTABLISHED"
        assert "n_packets=1," in wires.gateway.run("flow", "dump", "vrf=blue,table=1,in_port=left,ct_state=+new+trk").stdout
        if discipline:
            (shown,) = wires.gateway.json("qdisc", "show", "dev", "blue")
            wires.gateway.run("qdisc", "del", "dev", "blue", "root")
            assert shown["kind"] == discipline and shown["packets"] >= 3, shown

    return case


def route_of_the_vrf(wires):
    """A flow that asks by which port a packet would leave its VRF, and does not track it."""
    wires.replace(in_vrf(f"""
table=0,priority=10,arp actions=NORMAL
table=0,priority=65000,udp,tp_dst={MARKER} actions=NORMAL
table=0,priority=10,icmp,in_port=left,nw_dst={RIGHT},oif=right actions=NORMAL
"""))
    wires.gateway.run("conntrack", "-F")
    assert wires.passes("left", IP(src=LEFT, dst=RIGHT) / ICMP(id=77, seq=1) / bytes(56))
    assert "n_packets=1," in wires.gateway.run("flow", "dump", "vrf=blue,table=0,icmp,oif=right").stdout
    assert count(wires) == 0


def handshakes(wires, number):
    """So many TCP connections are opened; whether each of them was."""
    opened = []
    for sport in range(20000, 20000 + number):
        talk = Talk(wires, sport=sport)
        opened.append(talk.says("client", "S") and talk.says("server", "SA") and talk.says("client", "A"))
    return opened


def bound_by_its_zone(wires):
    assert handshakes(wires, 2) == [True, False]
    assert count(wires) == 1


def bound_by_all(wires):
    """A limit of a zone that is over that of the table is none."""
    assert handshakes(wires, 101) == [True] * 100 + [False]
    assert count(wires) == 100


IN_ZONES = f"""
table=0,priority=65000,udp,tp_dst={MARKER} actions=NORMAL
table=0,priority=10,icmp actions=ct(commit,zone=1),NORMAL
table=0,priority=10,udp actions=ct(commit,zone=2),NORMAL
"""

MANY = 1000
"""Connections of a zone."""

NUMBERS = itertools.count()


def flood(wires, protocol, number):
    """Opens so many connections of the protocol's zone."""
    while number:
        part = min(number, 250)
        number -= part
        ids = [next(NUMBERS) % 60000 for _ in range(part)]
        wires.frames("left", *[
            IP(src=LEFT, dst=RIGHT) / (ICMP(id=n, seq=1) if protocol == "icmp" else UDP(sport=n + 1, dport=53)) for n in ids
        ])


def lines(wires, *words):
    """The tuples of the connections in a list: one of each, or the list has one twice."""
    listed = wires.gateway.run("conntrack", "-L", *words).stdout.splitlines()
    made = [" ".join(word for word in line.split() if "=" in word or word == line.split()[0]) for line in listed]
    twice = [line for line, times in collections.Counter(made).items() if times > 1]
    assert not twice, twice
    return made


def dump(zone, protocol):
    """The list of a zone is whole, and the same if the zone's protocol is asked for."""

    def case(wires):
        load(wires, IN_ZONES, "")
        for name in ("icmp", "udp"):
            flood(wires, name, MANY)
        listed = lines(wires, "-w", zone)
        assert sorted(listed) == sorted(lines(wires, "-w", zone, "-p", protocol)) == sorted(lines(wires, "-p", protocol))
        assert len(listed) == MANY and count(wires) == 2 * MANY

    return case


def dumps_beside_a_flood(wires):
    """Lists end, and have no connection twice, while connections come and go."""
    load(wires, IN_ZONES, "")
    flood(wires, "udp", MANY)
    steady, ending, said = set(lines(wires, "-p", "udp")), threading.Event(), []

    def beside(work):
        try:
            while not ending.is_set():
                work()
        except BaseException as error:
            said.append(error)

    flushing = threading.Thread(target=beside, args=[lambda: wires.gateway.run("conntrack", "-D", "-w", 1, check=False)])
    listing = threading.Thread(target=beside, args=[lambda: said.extend(steady - set(lines(wires)))])
    for thread in (flushing, listing):
        thread.start()
    try:
        for _ in range(20):
            flood(wires, "icmp", MANY // 5)
    finally:
        ending.set()
        for thread in (flushing, listing):
            thread.join()
    assert not said, said[:3]
    assert wires.gateway.process.poll() is None and "panicked" not in wires.gateway.log()


def without_tracking(wires):
    """Where no flow tracks, packets pass and leave no connection."""
    load(wires, IN_ZONES.replace("ct(commit,zone=1),", ""), "")
    flood(wires, "icmp", 250)
    assert count(wires) == 0


def with_tracking(wires):
    load(wires, IN_ZONES.replace("ct(commit,zone=1),", ""), "")
    flood(wires, "icmp", 250)
    flood(wires, "udp", 1)
    assert count(wires) == 1


TEST_ZONE = 123
OF_ZONE = {TEST_ZONE: 2, TEST_ZONE + 1: 3, TEST_ZONE + 2: 4, 0: 5}
"""Zone -> the last number of its hosts' addresses."""


def zones(wires):
    """How many connections each zone has."""
    return {zone: len(wires.connections("-w", zone)) for zone in OF_ZONE}


def connections_in_zones(wires):
    """A connection of each family in each zone."""
    flows = HEAD
    for zone, host in OF_ZONE.items():
        for kind, field, net in (("tcp", "nw", "10.{}.0.{}"), ("tcp6", "ipv6", "fd0{}::{}")):
            ends = f"{field}_src={net.format(1, host)}", f"{field}_dst={net.format(1, host)}"
            flows += "".join(f"table=0,priority=20,{kind},{end} actions=ct(commit,zone={zone}),NORMAL\n" for end in ends)
    load(wires, flows, "")
    for host in OF_ZONE.values():
        for net in ("10.{}.0.{}", "fd0{}::{}"):
            Talk(wires, 12345, 443, client=net.format(1, host), server=net.format(2, host)).opens()
    assert zones(wires) == dict.fromkeys(OF_ZONE, 2)


def dump_by_zone(wires):
    connections_in_zones(wires)
    assert {one["zone"] for one in wires.connections("-w", TEST_ZONE)} == {TEST_ZONE}


def flush_by_zone(zone):
    def case(wires):
        connections_in_zones(wires)
        wires.gateway.run("conntrack", "-D", "-w", zone)
        assert zones(wires) == dict.fromkeys(OF_ZONE, 2) | {zone: 0}

    return case


BY_FIELDS = f"""
table=0,priority=65000,udp,tp_dst={MARKER} actions=NORMAL
table=0,priority=10,udp,in_port=left actions=move:NXM_NX_IP_TTL[]->NXM_NX_REG0[0..7],\
move:NXM_OF_IP_TOS[2..7]->NXM_NX_REG0[8..13],ct(commit,zone=NXM_NX_REG0[0..15]),NORMAL
"""
"""A zone for each TTL and DSCP: datagrams that are equal but for these have zones of their own."""


def thousands_of_zones(thousands, is_total=False):
    def case(wires):
        load(wires, BY_FIELDS, "")
        ways = [(ttl, tos) for tos in range(8, 8 + 8 * thousands) for ttl in range(10, 135)]
        for at in range(0, len(ways), 250):
            part = [datagram("left", 12345, 12345, ttl=ttl, tos=tos << 2) for ttl, tos in ways[at : at + 250]]
            assert len(wires.send("left", *part).right) == len(part)
        assert count(wires) == 1000 * thousands
        found = wires.connections("-p", "udp", "--sport", 12345)
        assert {one["zone"] for one in found} == {tos << 8 | ttl for ttl, tos in ways}
        if is_total:
            assert len({str(one["original"]) for one in found}) == 1
            # Each of them goes on by itself.
            wires.gateway.run("conntrack", "-D", "-w", ways[0][1] << 8 | ways[0][0])
            assert count(wires) == 1000 * thousands - 1

    return case


def limited(zone, table):
    return {"extra": f"[conntrack]\nconnections = {table}\nlimits = [{{ zone = 0, connections = {zone} }}]\n"}


LONG = {"extra": "[conntrack]\ntimeouts = { udp = 3600, icmp = 3600 }\n"}
"""So that no connection ends by itself."""

CASES = {
    CLASH: {
        "nat": (LONG, clash(f"ct(commit,nat(dst={RIGHT}:9000-9002,random))", range(9000, 9003))),
        "no-nat": (LONG, clash("ct(commit)", [22111])),
    },
    REVERSE: {"null-binding": ({"workers": 2}, reverse_clash)},
    VRF: {
        "zone": (BLUE, zone_of_the_port),
        "masquerade": (BLUE, masquerade("")),
        "masquerade-pfifo": (BLUE, masquerade("", "pfifo")),
        "masquerade-port": (BLUE, masquerade("oif=right,")),
        "route": (BLUE, route_of_the_vrf),
    },
    RESIZE: {
        "zone-limit": (limited(1, 1000), bound_by_its_zone),
        "table-limit": (limited(200, 100), bound_by_all),
        "dump-icmp": (LONG, dump(1, "icmp")),
        "dump-udp": (LONG, dump(2, "udp")),
        "parallel-dumps": (LONG, dumps_beside_a_flood),
        "disabled": (LONG, without_tracking),
        "enabled": (LONG, with_tracking),
    },
    FLUSH: {
        "dump": ({}, dump_by_zone),
        "flush": ({}, flush_by_zone(TEST_ZONE)),
        "flush-default": ({}, flush_by_zone(0)),
    },
    ZONES: {
        "first": (LONG, thousands_of_zones(1)),
        "second": (LONG, thousands_of_zones(2)),
        "total": (LONG, thousands_of_zones(2, is_total=True)),
    },
}
ALL = {f"{script.name.split('/')[1]}-{name}": case for script, cases in CASES.items() for name, case in cases.items()}


@pytest.mark.parametrize(("wires", "case"), ALL.values(), ids=ALL, indirect=["wires"])
def test_cases_of_the_scripts(wires, case):
    case(wires)


@pytest.mark.parametrize("script", CASES, ids=lambda script: script.name)
def test_every_case_is_counted(script):
    script.demand_all_counted(passed=len(CASES[script]))
