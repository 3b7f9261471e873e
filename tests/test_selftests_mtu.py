"""Shell scripts of the Linux kernel's netfilter selftests that are about what is cut and joined on the way, with
hosts that are kernels: connections, translation and tunnels beside fragments and path MTU discovery."""

import json

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment

from harness.capture import captured
from harness.joined import LEFT, MIDDLE, RIGHT, WORDS, joined
from harness.selftests import Script
from harness.transfers import wait_for_datagrams
from test_namespaces import both_families, broken
from test_nat_tunnels import behind_the_tunnel, replace

pytestmark = pytest.mark.namespaces

TUNNEL = Script("netfilter/conntrack_ipip_mtu.sh", 2, {})

NARROW = 1400
"""The MTU between the gateways of a tunnel."""

SIZES = [1400] * 3 + [3000, 1200, 3000]
"""Of datagrams: what is cut in two, in three, and in none once its sender knows what fits the tunnel."""

DIGESTS = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as server:
    server.bind((sys.argv[1], 5000))
    while True:
        data, sender = server.recvfrom(65535)
        server.sendto(f"{sender[0]} {hashlib.sha256(data).hexdigest()}".encode(), sender)
"""
SENDER = """
import errno, hashlib, json, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
seen = set()
with socket.socket(family, socket.SOCK_DGRAM) as sender:
    sender.settimeout(10)
    sender.connect((sys.argv[1], 5000))
    sender.send(bytes(1400))
    try:
        sys.exit(f"an answer in place of an error: {sender.recv(100)}")
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
    for number, size in enumerate(json.loads(sys.argv[2])):
        data = hashlib.shake_128(b"%d" % number).digest(size)
        sender.send(data)
        peer, digest = sender.recv(100).decode().split()
        assert digest == hashlib.sha256(data).hexdigest(), (number, size)
        seen.add(peer)
print(*seen)
"""


def is_fragment(frame):
    """Whether a frame has a piece of an IP packet."""
    return IP in frame and bool(frame[IP].flags.MF or frame[IP].frag) or IPv6ExtHdrFragment in frame


def datagrams(net, family):
    """Datagrams of the left host, which sends pieces once it has been told what fits: each comes whole, and nothing
    is cut in the tunnel. Returns as whom the right host has seen it."""
    target = RIGHT[family][1]
    before = broken(net.a)
    serving = net.right.start("/usr/bin/python3", "-Ic", DIGESTS, target)
    try:
        wait_for_datagrams(net.right, 5000)
        with captured(net.left, "eth0") as sent, captured(net.spaces["a"], "wan") as outer, net.all_encrypted():
            seen = net.left.run("/usr/bin/python3", "-Ic", SENDER, target, json.dumps(SIZES)).stdout.split()
    finally:
        serving.kill()
    # 1400 bytes are two pieces, and 3000 are three.
    assert sum(map(is_fragment, sent)) == 3 * 2 + 2 * 3
    packets = [frame.payload for frame in outer if IP in frame or IPv6 in frame]
    assert max(map(len, packets)) <= NARROW and not any(map(is_fragment, outer))
    after = broken(net.a)
    grown = {reason: count - before.get(reason, 0) for reason, count in after.items() if count != before.get(reason)}
    assert grown == {"too_big": 1} and not broken(net.b), (grown, net.b.drops())
    return seen


def without_tracking(net, family):
    assert datagrams(net, family) == [LEFT[family][1]]


def with_tracking(net, family):
    """The pieces are joined to be tracked, and cut again; also where they are translated behind the tunnel."""
    word, new = WORDS[family], "table=1,priority=10,ct_state=+trk+new"
    replace(net.a, f"{new},{word},in_port=lan actions=ct(commit),NORMAL\n")
    for nat, source in (("", LEFT[family][1]), (f",nat(src={MIDDLE[family][0]})", MIDDLE[family][0])):
        replace(net.b, f"{new},{word},sa=any actions=ct(commit{nat}),NORMAL\n")
        net.left.ip(f"-{family}", "route", "flush", "cache")
        assert datagrams(net, family) == [source]
        for gateway in (net.a, net.b):
            assert gateway.json("conntrack", "-L", "-p", "udp", "--dport", 5000)


OF_TUNNEL = {"without": without_tracking, "with": with_tracking}


@both_families
@pytest.mark.parametrize("case", OF_TUNNEL.values(), ids=OF_TUNNEL)
def test_datagrams_by_a_tunnel(topology, tmp_path, case, family):
    with joined(topology, tmp_path, *behind_the_tunnel(family)) as net:
        for gateway in (net.a, net.b):
            gateway.run("link", "set", "wan", "mtu", NARROW)
        case(net, family)


CASES = {TUNNEL: OF_TUNNEL}


@pytest.mark.parametrize("script", CASES, ids=lambda script: script.name)
def test_every_case_is_counted(script):
    script.demand_all_counted(passed=len(CASES[script]))
