"""Attacks on the table of connections: what is established goes on, memory stays what it was, and every
refusal is counted and said."""

import itertools
import os
import random
import struct
import zlib

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP

from harness.wires import HEAD, Talk, Wires
from test_links import wait_until

pytestmark = [pytest.mark.namespaces, pytest.mark.alone]

LEFT, RIGHT = "10.1.0.2", "10.2.0.2"
SIZE = 1024
"""Connections that the table has room for."""

OPEN = HEAD + """
table=1, priority=10,ip,ct_state=+new+trk actions=ct(commit),NORMAL
"""
"""Both sides may open connections: a server behind the gateway, for example."""

BATCH = 256
"""Packets that are sent without waiting: fewer than a port's ring takes."""


@pytest.fixture
def wires(topology, tmp_path):
    with Wires(topology, tmp_path, OPEN, f"[conntrack]\nconnections = {SIZE}\n") as made:
        yield made


def memory(wires):
    """The gateway's resident memory, in octets."""
    with open(f"/proc/{daemon(wires)}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def daemon(wires):
    """The process id of the gateway: its starter is replaced by it."""
    return wires.gateway.process.pid


def frames(wires, side, kind, count, sources=1, seed=1):
    """Frames with random ports, of `sources` addresses; nobody at these answers."""
    dice, heads = random.Random(seed), []
    here, there = ("10.1.0", RIGHT) if side == "left" else ("10.2.0", LEFT)
    for number in range(sources):
        upper = TCP(sport=0, dport=0, flags="S", chksum=0) if kind == "tcp" else UDP(sport=0, dport=0, chksum=0)
        heads.append(wires.frame(side, IP(src=f"{here}.{20 + number}", dst=there) / upper))
    made = []
    for number in range(count):
        head, ports = heads[number % sources], struct.pack("!HH", dice.randrange(1, 65536), dice.randrange(1, 65000))
        frame = head[:34] + ports + head[38:]
        # UDP needs no checksum.
        made.append(frame if kind == "udp" else frame[:50] + checksum(frame) + frame[52:])
    return made


def checksum(frame):
    """The checksum of a frame's TCP segment."""
    octets = frame[26:34] + struct.pack("!HH", 6, len(frame) - 34) + frame[34:]
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", 0xFFFF - (total & 0xFFFF) - (total >> 16))


def flood(wires, side, made):
    """Sends frames in batches. Returns how many came out at the other side."""
    passed = 0
    for start in range(0, len(made), BATCH):
        seen = wires.frames(side, *made[start : start + BATCH])
        passed += len(seen.right if side == "left" else seen.left)
    return passed


def said_once(wires, text):
    """Whether the log has said something, as a warning. It says it once, however many packets there are."""
    lines = [line for line in wires.gateway.log().splitlines() if f"WARN {text}" in line]
    assert len(lines) <= 1, lines
    return bool(lines)


def established(wires, count=8):
    return [Talk(wires, sport=40_000 + at).opens() for at in range(count)]


def demand_alive(talks):
    for talk in talks:
        talk.carries_data()


def demand_all_said(wires, sent, passed, before):
    """What did not pass was dropped, and counted under a reason."""
    now = wires.gateway.drops()
    dropped = {name: count - before.get(name, 0) for name, count in now.items() if count != before.get(name, 0)}
    assert sent == passed + sum(dropped.values()), (sent, passed, dropped)
    shown = wires.gateway.run("show", "drops").stdout
    assert all(name in shown for name in dropped)
    return dropped


@pytest.mark.parametrize("kind", ["tcp", "udp"])
@pytest.mark.parametrize("sources", [1, 60], ids=["one-source", "many-sources"])
@pytest.mark.parametrize("side", ["left", "right"], ids=["inside", "outside"])
def test_a_flood_costs_no_established_connection(wires, kind, sources, side):
    """Ten times as many new connections as there is room for."""
    talks = established(wires)
    # What the gateway takes at first, for its cache of decisions too, it has after one flood.
    flood(wires, side, frames(wires, side, kind, 10 * SIZE, sources, seed=2))
    before, size, start = wires.gateway.drops(), memory(wires), wires.statistics()
    made = frames(wires, side, kind, 10 * SIZE, sources)
    passed = flood(wires, side, made)
    demand_alive(talks)
    dropped = demand_all_said(wires, len(made), passed, before)
    said = wires.statistics()
    assert said["connections"] <= SIZE
    # Half-open ones made room for half-open ones: each new one passed, and each eviction is counted.
    evicted = said["early_drop"] - start["early_drop"]
    assert evicted >= len(made) - SIZE and passed == len(made) and not dropped, (said, dropped)
    assert memory(wires) < size + (32 << 20)


def test_a_scan_of_ports_leaves_nothing_behind(topology, tmp_path):
    """Everything that is not allowed makes no connection, whatever its flags are."""
    with Wires(topology, tmp_path) as wires:
        talks = established(wires)
        for flags in ("S", "A", "F", "", "FPU", "SA", "R"):
            made = [
                wires.frame("right", IP(src=RIGHT, dst=LEFT) / TCP(sport=999, dport=port, flags=flags))
                for port in range(1, BATCH + 1)
            ]
            before = wires.gateway.drops()
            assert flood(wires, "right", made) == 0
            demand_all_said(wires, len(made), 0, before)
        assert len(wires.connections()) == len(talks)
        demand_alive(talks)


def test_forged_errors_end_nothing(wires):
    """Errors for other people's connections with guessed numbers, of every kind that ends or slows."""
    talks = established(wires)
    dice, made = random.Random(7), []
    for number in range(2000):
        talk = talks[number % len(talks)]
        quoted = talk.segment("client", "PA", seq=talk.seq + dice.randrange(1 << 20, 1 << 31), data=b"data")
        kind, code = dice.choice([(3, 1), (3, 2), (3, 3), (3, 4), (4, 0), (11, 0), (12, 0)])
        error = IP(src=dice.choice([RIGHT, "10.2.0.7"]), dst=LEFT) / ICMP(type=kind, code=code) / bytes(quoted)[:28]
        made.append(wires.frame("right", error))
    before = wires.gateway.drops()
    assert flood(wires, "right", made) == 0
    assert demand_all_said(wires, len(made), 0, before) == {"flow_drop": len(made)}
    demand_alive(talks)


def test_forged_segments_end_nothing(wires):
    """A blind attacker who knows addresses and ports."""
    talks = established(wires)
    demand_alive(talks)
    dice, made = random.Random(8), []
    for number in range(2000):
        talk = talks[number % len(talks)]
        flags = dice.choice(["R", "RA", "S", "SA", "FA", "PA", "A"])
        far = dice.randrange(1 << 20, 1 << 31)
        made.append(wires.frame("right", talk.segment("server", flags, seq=talk.ack + far, data=b"x" * (flags == "PA"))))
    flood(wires, "right", made)
    assert {talk.state() for talk in talks} == {"ESTABLISHED"}
    demand_alive(talks)


def test_a_table_full_of_established_connections_refuses_and_says_so(wires):
    talks = established(wires, 8)
    # Datagrams both ways are not assured before two seconds, so handshakes fill it.
    more = [Talk(wires, sport=1024 + at, client="10.1.0.3") for at in range(SIZE - 8)]
    for by, flags in (("client", "S"), ("server", "SA"), ("client", "A")):
        for start in range(0, len(more), BATCH):
            part = more[start : start + BATCH]
            side = "left" if by == "client" else "right"
            seen = wires.frames(side, *(wires.frame(side, talk.segment(by, flags)) for talk in part))
            assert len(seen.right if side == "left" else seen.left) == len(part)
        for talk in more:
            talk.seq += by == "client" and "S" in flags
            talk.ack += by == "server"
    assert wires.statistics()["connections"] == SIZE
    before = wires.gateway.drops()
    made = frames(wires, "right", "tcp", 4 * BATCH, 60)
    passed = flood(wires, "right", made)
    dropped = demand_all_said(wires, len(made), passed, before)
    assert passed == 0 and dropped == {"connection_full": len(made)}
    assert wires.statistics()["full"] == len(made)
    demand_alive(talks + more[::100])
    assert "full" in wires.gateway.run("conntrack", "-S").stdout
    wait_until(lambda: said_once(wires, f"no room for more connections ({SIZE} of {SIZE} are in use)"), "a line in the log")


def with_equal_crc():
    """Pairs of ports whose CRC-32 ends in the same ten bits."""
    ports = ((source, destination) for source in range(1024, 65536) for destination in range(1024, 1024 + 256))
    return (pair for pair in ports if zlib.crc32(struct.pack("!HH", *pair)) & 0x3FF == 0)


AIMED = {
    "sum": lambda: ((port, 0x8000 - port & 0xFFFF) for port in range(1024, 65536)),
    "xor": lambda: ((port, port ^ 0x5555) for port in range(1024, 65536)),
    "crc": with_equal_crc,
}


@pytest.mark.parametrize("hashed", AIMED)
def test_keys_aimed_at_a_bucket_need_a_secret(wires, hashed):
    """Tuples that collide under hashes without a secret are spread like others."""
    pairs = itertools.islice(AIMED[hashed](), SIZE // 2)
    made = [
        wires.frame("left", IP(src=LEFT, dst=RIGHT) / UDP(sport=source, dport=destination) / b"x")
        for source, destination in pairs
    ]
    assert len(made) == SIZE // 2
    assert flood(wires, "left", made) == len(made)
    said = wires.statistics()
    assert said["connections"] == len(made) and said["bucket_full"] == 0


def test_limits_hold_under_a_flood(topology, tmp_path):
    settings = f"[conntrack]\nconnections = {SIZE}\nlimits = [{{ zone = 0, connections = 100 }}]\n"
    with Wires(topology, tmp_path, OPEN, settings) as wires:
        talks = established(wires)
        before = wires.gateway.drops()
        made = frames(wires, "right", "udp", 4 * BATCH, 60)
        passed = flood(wires, "right", made)
        dropped = demand_all_said(wires, len(made), passed, before)
        assert wires.statistics()["connections"] == 100 and passed == 100 - len(talks)
        assert dropped == {"connection_limit": len(made) - passed}
        assert wires.statistics()["limit"] == len(made) - passed
        demand_alive(talks)
        wait_until(lambda: said_once(wires, "a limit of connections is reached, 100 of conntrack zone 0:"), "a line in the log")
