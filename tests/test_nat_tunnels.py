"""NAT and tunnels on one gateway: translated behind a tunnel, before it, and twice for two networks that are the same."""

import re

import pytest
from harness import transfers
from harness.config import Config
from harness.joined import FLOWS, LEFT, MIDDLE, NARROW, OUTER, RIGHT, WORDS, joined, network, protecting, towards
from test_namespaces import both_families

pytestmark = pytest.mark.namespaces

TUNNEL_MTU = {4: 1446, 6: 1426}
"""What fits 1500 bytes with AES-GCM, by the family of both packets."""

REFUSED = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as sender:
    sender.settimeout(5)
    sender.connect((sys.argv[1], int(sys.argv[2])))
    sender.send(b"x")
    try:
        print(sender.recv(1))
    except ConnectionRefusedError:
        print("refused")
"""

with_each_cache = pytest.mark.parametrize(
    "way",
    [{"workers": workers, "cache": cache} for workers, cache in ((1, "on"), (1, "off"), (2, "on"))],
    ids=["cached", "uncached", "two-workers"],
)


def refused(host, address, port):
    """Whether a datagram is answered by a port unreachable that the host takes for its own."""
    return host.run("/usr/bin/python3", "-Ic", REFUSED, address, port).stdout == "refused\n"


def told_mtu(host, address, size):
    """The MTU that the host is told of when it sends such a ping that may not be cut."""
    family = 6 if ":" in address else 4
    host.ip(f"-{family}", "route", "flush", "cache")
    done = host.ping(address, count=1, size=size, check=False, timeout=4, options=["-M", "do"])
    found = re.findall(r"mtu ?[=:] ?(\d+)", done.stdout + done.stderr)
    assert found, done.stdout + done.stderr
    return int(found[0])


def learned_mtu(host, address):
    """The path MTU that the host's kernel has noted for a destination."""
    shown = host.ip("route", "get", address).stdout
    return int(re.search(r"mtu (\d+)", shown)[1])


def narrow(net):
    """Makes the link between router and right host one of less than the tunnel."""
    net.router.ip("link", "set", "eth1", "mtu", NARROW)
    net.right.ip("link", "set", "eth0", "mtu", NARROW)


def replace(gateway, text):
    gateway.run("flow", "replace", "-", stdin=FLOWS + text)


def opened(gateway, *words):
    """The connections that the words name: `(source, destination, of the answers source, destination)`."""
    return {
        (c["original"]["source"], c["original"]["destination"], c["reply"]["source"], c["reply"]["destination"])
        for c in gateway.json("conntrack", "-L", *words)
    }


def pings_datagrams_and_tcp(net, family, target, seen, listener):
    """From the left host to `target`, which is the right host at `listener`, who sees `seen`."""
    with net.all_encrypted():
        net.left.ping(target)
        transfers.udp(net.left, LEFT[family][1], net.right, target, at=listener)
        assert transfers.exchange(net.left, target, 5001, net.right, listener, 5001) == seen
        assert refused(net.left, target, 9)


def errors(net, family, target, hops):
    """What routers say about the left host's packets to `target`: too big for the tunnel and for a
    link behind it, and their names."""
    assert told_mtu(net.left, target, 1450) == TUNNEL_MTU[family]
    narrow(net)
    assert told_mtu(net.left, target, 1350) == NARROW
    net.left.ip(f"-{family}", "route", "flush", "cache")
    for method in ([], ["-I"]):
        told = transfers.hops(net.left, target, *method)
        assert told == hops, (method, told, net.a.drops(), transfers.icmp_counters(net.left, net.router, net.right))


def behind_the_tunnel(family):
    """The tunnel is between the networks of the hosts; gateway b translates what comes out of it."""
    mine, theirs = network(LEFT[family][1]), network(RIGHT[family][1])
    a = Config(policies=protecting("a", theirs, mine, family), routes=[towards("b", theirs)])
    b = Config(policies=protecting("b", mine, theirs, family))
    b.routes = [towards("a", mine), towards("router", theirs)]
    return a, b


@both_families
@with_each_cache
def test_translated_behind_the_tunnel(topology, tmp_path, way, family):
    """Decrypted packets leave with the gateway's address, and answers are encrypted."""
    outside, word = MIDDLE[family][0], WORDS[family]
    host, target = LEFT[family][1], RIGHT[family][1]
    inside = f"[{host}]" if family == 6 else host
    with joined(topology, tmp_path, *behind_the_tunnel(family), **way) as net:
        replace(
            net.b,
            "table=1,priority=11,sa=reqid:77 actions=drop\n"
            f"table=1,priority=10,ct_state=+trk+new,{word},sa=reqid:{family} actions=ct(commit,nat(src={outside})),NORMAL\n"
            f"table=1,priority=10,ct_state=+trk+new,{word.tcp},in_port=lan,{word.dst}={outside},tp_dst=8080 "
            f"actions=ct(commit,nat(dst={inside}:80)),NORMAL\n"
            f"table=1,priority=10,ct_state=+trk+new,{word.udp},in_port=lan,{word.dst}={outside},tp_dst=9090 "
            f"actions=ct(commit,nat(dst={inside}:90)),NORMAL\n",
        )
        pings_datagrams_and_tcp(net, family, target, outside, target)
        assert opened(net.b) == {(host, target, target, outside)}
        # The right host's answers had to fit the tunnel, and it was told so about what it had sent to b.
        assert learned_mtu(net.right, outside) == TUNNEL_MTU[family]
        # To the forwarded port, and what the host behind it says of one where nobody is.
        with net.all_encrypted():
            assert transfers.exchange(net.right, outside, 8080, net.left, host, 80) == target
            assert refused(net.right, outside, 9090)
        assert (target, outside, host, target) in opened(net.b, "-p", "tcp")
        assert net.right.ping(outside, check=False, count=1, timeout=1).returncode != 0
        # b has no address in the selectors; that of the link that its error leaves by is one that a knows.
        errors(net, family, target, [LEFT[family][0], OUTER["b"][family], MIDDLE[family][1], target])
        assert opened(net.b) == {(host, target, target, outside), (target, outside, host, target)}


INSIDE_TUNNEL = {4: "10.100.0.1", 6: "fd64::1"}
"""What sources become before the tunnel: an address of nobody, but in the tunnel's selectors."""


def before_the_tunnel(family):
    """The tunnel is between the right host's network and that of translated sources, and for nothing else."""
    theirs, mine = network(RIGHT[family][1]), network(INSIDE_TUNNEL[family])
    a = Config(policies=protecting("a", theirs, mine, family), routes=[towards("b", theirs)])
    b = Config(policies=protecting("b", mine, theirs, family))
    b.routes = [towards("a", mine), towards("router", theirs)]
    return a, b


@both_families
@with_each_cache
def test_translated_before_the_tunnel(topology, tmp_path, way, family):
    """Outbound policies see translated sources, inbound ones what was decrypted."""
    outside, word = INSIDE_TUNNEL[family], WORDS[family]
    host, target = LEFT[family][1], RIGHT[family][1]
    inside = f"[{host}]" if family == 6 else host
    with joined(topology, tmp_path, *before_the_tunnel(family), **way) as net:
        new = "table=1,priority=10,ct_state=+trk+new"
        # As they are, packets are in no policy.
        replace(net.a, f"{new},{word},in_port=lan actions=ct(commit),NORMAL\n")
        assert net.left.ping(target, check=False, count=1, timeout=1).returncode != 0
        assert net.a.drops().get("policy_no_match", 0) >= 1, net.a.drops()
        replace(
            net.a,
            f"{new},{word},in_port=lan actions=ct(commit,nat(src={outside})),NORMAL\n"
            f"{new},{word.tcp},sa=any,{word.dst}={outside},tp_dst=8080 actions=ct(commit,nat(dst={inside}:80)),NORMAL\n"
            f"{new},{word.udp},sa=any,{word.dst}={outside},tp_dst=9090 actions=ct(commit,nat(dst={inside}:90)),NORMAL\n",
        )
        pings_datagrams_and_tcp(net, family, target, outside, target)
        assert opened(net.a) == {(host, target, target, outside)}
        with net.all_encrypted():
            assert transfers.exchange(net.right, outside, 8080, net.left, host, 80) == target
            assert refused(net.right, outside, 9090)
        assert (target, outside, host, target) in opened(net.a, "-p", "tcp")
        # b told the right host of the tunnel, which knows nothing of what is translated at its other end.
        assert learned_mtu(net.right, outside) == TUNNEL_MTU[family]
        errors(net, family, target, [LEFT[family][0], OUTER["b"][family], MIDDLE[family][1], target])
        # No error has opened one, whatever it quotes.
        assert opened(net.a) == {(host, target, target, outside), (target, outside, host, target)}


@with_each_cache
def test_prefixes_translated_before_the_tunnel(topology, tmp_path, way):
    """Without connections: each packet by itself, and so what errors quote."""
    # The first word behind the prefix takes what the prefix's sum changes by, 0xfd01 - 0xfd64 (RFC 6296 section 3.5).
    outside, target = "fd64::ff9c:0:0:2", RIGHT[6][1]
    esp = "".join(f"table=0,priority=200,{word},nw_proto=50 actions=NORMAL\n" for word in WORDS.values())
    with joined(topology, tmp_path, *before_the_tunnel(6), **way) as net:
        net.a.run("flow", "replace", "-", stdin=esp + (
            "table=0,priority=10,arp actions=NORMAL\n"
            "table=0,priority=10,ipv6,in_port=lan,ipv6_src=fd01::/64 actions=nptv6(src=fd01::/64->fd64::/64),NORMAL\n"
            "table=0,priority=10,ipv6,sa=any,ipv6_dst=fd64::/64 actions=nptv6(dst=fd64::/64->fd01::/64),NORMAL\n"
        ))
        pings_datagrams_and_tcp(net, 6, target, outside, target)
        net.right.ping(outside)
        assert refused(net.right, outside, 9)
        errors(net, 6, target, [LEFT[6][0], OUTER["b"][6], MIDDLE[6][1], target])
        assert opened(net.a) == set()


SAME = {4: ("10.1.0.1", "10.1.0.2"), 6: ("fd01::1", "fd01::2")}
"""Family -> router and right host, in a network with the addresses of the left host's."""

LEFT_SEEN = {4: "10.101.0.2", 6: "fd65::2"}
RIGHT_SEEN = {4: "10.102.0.2", 6: "fd66::2"}
"""As what each host is seen by the other."""


def both_ways(net, family, hops):
    """Each host reaches the other under the other's address elsewhere, and is seen under its own there.
    `hops` are the stations between a and the right host, as the left host is told of them."""
    left, right = LEFT[family][1], SAME[family][1]
    assert left == right
    pings_datagrams_and_tcp(net, family, RIGHT_SEEN[family], LEFT_SEEN[family], right)
    with net.all_encrypted():
        net.right.ping(LEFT_SEEN[family])
        transfers.udp(net.right, right, net.left, LEFT_SEEN[family], at=left)
        assert transfers.exchange(net.right, LEFT_SEEN[family], 5001, net.left, left, 5001) == RIGHT_SEEN[family]
        assert refused(net.right, LEFT_SEEN[family], 9)
    assert learned_mtu(net.right, LEFT_SEEN[family]) == TUNNEL_MTU[family]
    errors(net, family, RIGHT_SEEN[family], [LEFT[family][0], *hops, RIGHT_SEEN[family]])


@both_families
@with_each_cache
def test_two_sites_with_the_same_network(topology, tmp_path, way, family):
    """Each gateway translates its own host, by source and by destination."""
    here, there = network(LEFT_SEEN[family]), network(RIGHT_SEEN[family])
    a = Config(policies=protecting("a", there, here, family), routes=[towards("b", there)])
    b = Config(policies=protecting("b", here, there, family))
    b.routes = [towards("a", here), towards("router", network(SAME[family][1]))]
    word, host = WORDS[family], LEFT[family][1]
    with joined(topology, tmp_path, a, b, right=SAME, **way) as net:
        for gateway, mine, other in ((net.a, LEFT_SEEN, there), (net.b, RIGHT_SEEN, here)):
            replace(
                gateway,
                f"table=1,priority=10,ct_state=+trk+new,{word},in_port=lan,{word.dst}={other} "
                f"actions=ct(commit,nat(src={mine[family]})),NORMAL\n"
                f"table=1,priority=10,ct_state=+trk+new,{word},sa=any,{word.dst}={mine[family]} "
                f"actions=ct(commit,nat(dst={host})),NORMAL\n",
            )
        # What b has translated the destination of is answered by that address, whoever answers, as with Linux.
        both_ways(net, family, [OUTER["b"][family], RIGHT_SEEN[family]])


@both_families
@with_each_cache
def test_one_gateway_translates_both_sites(topology, tmp_path, way, family):
    """Twice NAT: b and what is behind it know nothing of it, and see the left host under another address."""
    here, same = network(LEFT_SEEN[family]), network(SAME[family][1])
    a = Config(policies=protecting("a", same, here, family))
    b = Config(policies=protecting("b", here, same, family))
    b.routes = [towards("a", here), towards("router", same)]
    word, host, new = WORDS[family], LEFT[family][1], "table=1,priority=10,ct_state=+trk+new"
    with joined(topology, tmp_path, a, b, right=SAME, **way) as net:
        # Its own network is on the link; what comes from there goes to the one behind the tunnel.
        other = towards("b", same)
        net.a.run("route", "add", other.to, "via", other.via, "table", "100")
        net.a.run("rule", "add", *(["-6"] if family == 6 else []), "iif", "lan", "to", same, "lookup", "100")
        replace(
            net.a,
            f"{new},{word},in_port=lan,{word.dst}={RIGHT_SEEN[family]} "
            f"actions=ct(commit,nat(dst={host})),ct(commit,nat(src={LEFT_SEEN[family]},twice)),NORMAL\n"
            f"{new},{word},sa=any,{word.dst}={LEFT_SEEN[family]} "
            f"actions=ct(commit,nat(dst={host})),ct(commit,nat(src={RIGHT_SEEN[family]},twice)),NORMAL\n",
        )
        both_ways(net, family, [RIGHT_SEEN[family]] * 2)
