"""Blocks of ports: which one a source has follows from its address if subscribers are named (RFC 7422)."""

import ipaddress
import re
import signal

import pytest
from harness.wires import HEAD, Wires
from scapy.layers.inet import IP, UDP
from test_links import wait_until

pytestmark = pytest.mark.namespaces

FIRST, BLOCK = 1024, 1000
OUTSIDE = [f"203.0.113.{n}" for n in range(1, 5)]
BLOCKS = (65536 - FIRST) // BLOCK
"""How many whole blocks an address has."""


def flow(nat):
    """The published flow, with this translation."""
    return HEAD + f"table=1,priority=10,ct_state=+trk+new,ip,in_port=left actions=ct(commit,nat(src={nat})),NORMAL\n"


DETERMINISTIC = flow(f"203.0.113.1-203.0.113.4:1024-65535,block={BLOCK},subscribers=100.64.0.0-100.64.0.255")


def block_of(number):
    """Address and ports of a subscriber: the first has the first ports of the first address, and so on."""
    address, block = divmod(number, BLOCKS)
    return OUTSIDE[address], range(FIRST + block * BLOCK, FIRST + (block + 1) * BLOCK)


def subscriber(number):
    return str(ipaddress.ip_address("100.64.0.0") + number)


def sends(wires, source, sport, dport=53):
    """Sends a datagram from a source to the right host. Returns the source that it comes out with, or None."""
    seen = wires.send("left", IP(src=source, dst="10.2.0.2") / UDP(sport=sport, dport=dport)).right
    assert len(seen) <= 1, seen
    return (seen[0].src, seen[0].sport) if seen else None


def pool(wires):
    (row,) = wires.gateway.json("show", "nat")
    return row


def test_a_block_follows_from_the_address(topology, tmp_path):
    assert BLOCKS == 64
    with Wires(topology, tmp_path, DETERMINISTIC) as wires:
        for number in (0, 1, 2, 63, 64, 65, 127, 128, 200, 254, 255):
            address, ports = block_of(number)
            had = {sends(wires, subscriber(number), sport, dport) for sport in (5, 4000, 65000) for dport in (53, 80)}
            assert {a for a, _ in had} == {address} and all(port in ports for _, port in had), (number, had)
        assert block_of(255) == ("203.0.113.4", range(64024, 65024))
        # Others get no port.
        assert sends(wires, "100.64.1.0", 4000) is None and sends(wires, "10.1.0.2", 4000) is None
        wires.gateway.wait_for_drops("nat_exhausted", 2)
        assert len(wires.connections("--src-nat")) == 11 * 6
        assert (pool(wires)["exhausted"], pool(wires)["no_subscriber"]) == (0, 2)
        # It needs no log, and has none.
        assert "port block" not in wires.gateway.log()
        # After a restart it is the same.
        before = sends(wires, subscriber(77), 4000)
        wires.gateway.kill()
        wires.gateway.start_again()
        assert sends(wires, subscriber(77), 4000)[0] == before[0] == block_of(77)[0]


def test_a_full_block_is_its_sources_own(topology, tmp_path):
    with Wires(topology, tmp_path, flow("203.0.113.1:2000-2015,block=4,subscribers=100.64.0.0-100.64.0.3")) as wires:
        had = {sends(wires, subscriber(1), 4000 + n) for n in range(4)}
        assert had == {("203.0.113.1", port) for port in range(2004, 2008)}
        assert sends(wires, subscriber(1), 5000) is None
        assert (pool(wires)["exhausted"], pool(wires)["block_full"]) == (0, 1)
        full = f"the port block of {subscriber(1)} zone 0 is full: its new connections get no port"
        wait_until(lambda: full in wires.gateway.log(), "a line about the full block")
        # To its neighbours nothing has happened.
        for number in (0, 2, 3):
            had = {sends(wires, subscriber(number), 4000 + n)[1] for n in range(4)}
            assert had == set(range(2000 + 4 * number, 2004 + 4 * number))
        wires.gateway.run("conntrack", "-D", "-s", subscriber(1))
        assert sends(wires, subscriber(1), 5000)[1] in range(2004, 2008)


def test_blocks_that_are_lent_are_logged_each_once(topology, tmp_path):
    """Several sources at once: each line of the log is about a block that the source's packets have had."""
    with Wires(topology, tmp_path, flow("203.0.113.1-203.0.113.2:1024-1087,block=16")) as wires:
        had = {}
        for number in range(8):
            for sport in range(4000, 4003):
                address, port = sends(wires, subscriber(number), sport)
                had.setdefault(subscriber(number), set()).add((address, (port - 1024) // 16))
        # One each, and no two have the same: these are all that there are.
        assert all(len(blocks) == 1 for blocks in had.values()), had
        assert len(set.union(*had.values())) == 8
        assert sends(wires, subscriber(8), 4000) is None
        assert pool(wires)["exhausted"] == 1

        def logged(what):
            line = rf"port block (\S+) ports (\d+)-(\d+) {what} (\S+) zone 0"
            return [
                (source, (address, (int(first) - 1024) // 16, int(last) - int(first)))
                for address, first, last, source in re.findall(line, wires.gateway.log())
            ]

        wanted = sorted((source, (*min(blocks), 15)) for source, blocks in had.items())
        wait_until(lambda: sorted(logged("assigned to")) == wanted, "a line for each block")
        assert logged("released by") == []
        # The last connection of a source gives its block back, and another one gets it.
        wires.gateway.run("conntrack", "-D", "-s", subscriber(3))
        wait_until(lambda: [s for s, _ in logged("released by")] == [subscriber(3)], "one block to be released")
        address, port = sends(wires, subscriber(8), 4000)
        assert {(address, (port - 1024) // 16)} == had[subscriber(3)]
        assert "NAT pool 203.0.113.1-203.0.113.2 ports 1024-1087 is exhausted" in wires.gateway.log()
        # Who stops the gateway ends all connections, and the log says whose blocks were until then.
        wires.gateway.process.send_signal(signal.SIGTERM)
        assert wires.gateway.process.wait(10) == 0
        assert sorted(logged("released by")) == sorted(logged("assigned to"))
        assert len(logged("released by")) == 9
        assert "port blocks: the gateway stops: all 8 that are assigned are released" in wires.gateway.log()
        wires.gateway.kill()
        wires.gateway.start_again()
