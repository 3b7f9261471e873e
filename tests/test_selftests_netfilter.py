"""Shell scripts of the Linux kernel's netfilter selftests: hitpath is the router, and the packets of the
hosts are made by hand. The left is where the script's clients are, and the right where its servers are."""

import time

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6PacketTooBig, IPv6
from scapy.layers.sctp import (
    SCTP,
    SCTPChunkCookieAck,
    SCTPChunkCookieEcho,
    SCTPChunkData,
    SCTPChunkInit,
    SCTPChunkInitAck,
)

from harness.netns import Topology
from harness.selftests import Script
from harness.wires import HEAD, OUT, Talk, Wires, demand_checksums

pytestmark = pytest.mark.namespaces

LEFT, RIGHT, ROUTER = "10.1.0.2", "10.2.0.2", "10.2.0.1"
LEFT6, RIGHT6, ROUTER6 = "fd01::2", "fd02::2", "fd02::1"

NAT = Script("netfilter/nft_nat.sh", 26, {
    "local DNAT: packets of programs on the router": 7,
    "DNAT to a program on the router (clash)": 1,
    "masquerade and redirect again, by rules of the family inet": 6,
})
RELATED = Script("netfilter/conntrack_icmp_related.sh", 2, {"redirects, as the host itself tracks them": 1})
HELPER = Script("netfilter/nft_conntrack_helper.sh", 8, {"the same of the second host's own tracker": 4})
UNREPLIED = Script("netfilter/conntrack_tcp_unreplied.sh", 1, {})
COLLISION = Script("netfilter/conntrack_sctp_collision.sh", 2, {})
ZONES = Script("netfilter/nft_nat_zones.sh", 3, {"a zone for one direction of a connection alone": 3})
PORTS = Script("netfilter/nf_nat_edemux.sh", 2, {})


@pytest.fixture(scope="module")
def wires(root, tmp_path_factory):
    # A SYN-SENT that is short, for `conntrack_tcp_unreplied.sh`.
    extra = "[conntrack]\ntimeouts = { tcp-syn-sent = 2 }\n"
    with Topology() as topology, Wires(topology, tmp_path_factory.mktemp("selftests"), extra=extra) as made:
        yield made


def load(wires, new, before=""):
    wires.replace(before + HEAD + new)
    wires.gateway.run("conntrack", "-F")


def new(match, actions):
    return f"table=1,priority=10,ct_state=+new+trk,{match} actions={actions}\n"


def one(packets):
    assert len(packets) == 1, packets
    demand_checksums(packets[0])
    return packets[0]


def echo(version, source, destination, is_reply=False, number=77):
    if version == 6:
        kind = ICMPv6EchoReply if is_reply else ICMPv6EchoRequest
        return IPv6(src=source, dst=destination) / kind(id=number, seq=1, data=bytes(56))
    return IP(src=source, dst=destination) / ICMP(type=0 if is_reply else 8, id=number, seq=1) / bytes(56)


ENDS = {4: (LEFT, RIGHT, ROUTER), 6: (LEFT6, RIGHT6, ROUTER6)}


def ping(wires, version):
    """A ping from the left to the right and its answer; who the right sees."""
    left, right, _ = ENDS[version]
    came = one(wires.send("left", echo(version, left, right)).right)
    number = came[ICMPv6EchoRequest].id if version == 6 else came[ICMP].id
    back = one(wires.send("right", echo(version, right, came.src, True, number)).left)
    assert (back.src, back.dst) == (right, left)
    assert (back[ICMPv6EchoReply].id if version == 6 else back[ICMP].id) == 77
    return came.src


def connectivity(wires):
    load(wires, OUT)
    assert [ping(wires, version) for version in (4, 6)] == [LEFT, LEFT6]


def masquerade(version, flags):
    def case(wires):
        left, _, router = ENDS[version]
        load(wires, OUT)
        assert ping(wires, version) == left
        kind = "ipv6" if version == 6 else "ip"
        load(wires, new(f"{kind},in_port=left", f"ct(commit,nat(src={router}{flags})),NORMAL"))
        assert ping(wires, version) == router and ping(wires, version) == router
        # The rule is gone: new connections are as before.
        load(wires, OUT)
        assert ping(wires, version) == left

    return case


def redirect(version):
    def case(wires):
        left, right, _ = ENDS[version]
        own = {4: "10.1.0.1", 6: "fd01::1"}[version]
        kind = "ipv6,nw_proto=58" if version == 6 else "icmp"
        load(wires, new(f"{kind},in_port=left", f"ct(commit,nat(dst={own})),NORMAL"))
        seen = wires.send("left", echo(version, left, right))
        assert not seen.right
        back = one(seen.left)
        assert (back.src, back.dst) == (right, left)

    return case


MASQUERADE = new("ip,in_port=left", f"ct(commit,nat(src={ROUTER})),NORMAL")


def shadowed(wires, rules, before=""):
    """Whether who is outside reaches a client by the port of a service of the router, after that client has sent
    from this port."""
    load(wires, rules, before)
    wires.send("left", IP(src=LEFT, dst=RIGHT) / UDP(sport=1405, dport=41404) / b"fake-entry")
    return bool(wires.send("right", IP(src=RIGHT, dst=ROUTER) / UDP(sport=41404, dport=1405) / b"data").left)


def port_shadow_default(wires):
    assert shadowed(wires, MASQUERADE)


def port_shadow_filter(wires):
    assert not shadowed(wires, MASQUERADE + "table=1,priority=50,udp,in_port=left,tp_src=1405 actions=drop\n")


def port_shadow_notrack(wires):
    assert not shadowed(wires, MASQUERADE, "table=0,priority=100,udp,in_port=right,tp_dst=1405 actions=NORMAL\n")


def port_shadow_pat(wires):
    others = new("ip,in_port=left", f"ct(commit,nat(src={ROUTER}:1406-65535,random)),NORMAL")
    assert not shadowed(wires, others)


def stateless(wires):
    """Addresses that are written without connections, also of fragments."""
    wires.replace(
        "table=0,priority=65000,udp,tp_dst=65001 actions=NORMAL\n"
        f"table=0,priority=10,ip,in_port=left,nw_src={LEFT},nw_dst={RIGHT} actions=mod_nw_src:10.1.0.8,NORMAL\n"
        f"table=0,priority=10,ip,in_port=right,nw_src={RIGHT},nw_dst=10.1.0.8 actions=mod_nw_dst:{LEFT},NORMAL\n"
    )
    assert ping(wires, 4) == "10.1.0.8"
    whole = IP(src=LEFT, dst=RIGHT, id=7) / UDP(sport=5000, dport=4233) / bytes(4096)
    pieces = fragment(whole, 1480)
    came = wires.send("left", *pieces).right
    assert len(came) == len(pieces) == 3
    assert {piece.src for piece in came} == {"10.1.0.8"}
    assert b"".join(bytes(piece.payload) for piece in came)[8:] == bytes(4096)
    # The checksum, in the first piece, is that of all with the new address.
    right = IP(bytes(IP(src="10.1.0.8", dst=RIGHT) / UDP(sport=5000, dport=4233) / bytes(4096)))[UDP].chksum
    assert int.from_bytes(bytes(came[0].payload)[6:8]) == right


def mtu_error_is_related(wires):
    """By a router behind, about a translated ping; the flow for related packets lets it through."""
    rules = "".join(new(f"{kind},in_port=left", f"ct(commit,nat(src={to})),NORMAL")
                    for kind, to in (("ip", ROUTER), ("ipv6", ROUTER6)))
    load(wires, rules)
    sent = echo(4, LEFT, RIGHT)
    sent.flags = "DF"
    came = one(wires.send("left", sent).right)
    error = IP(src="10.2.0.7", dst=ROUTER) / ICMP(type=3, code=4, nexthopmtu=1280) / bytes(came)
    seen = one(wires.send("right", error).left)
    assert (seen.dst, seen[ICMP].code, seen[ICMP].nexthopmtu) == (LEFT, 4, 1280)
    assert IP(bytes(seen[ICMP].payload)).src == LEFT
    came = one(wires.send("left", echo(6, LEFT6, RIGHT6)).right)
    error = IPv6(src="fd02::7", dst=ROUTER6) / ICMPv6PacketTooBig(mtu=1280) / bytes(came)
    seen = one(wires.send("right", error).left)
    assert (seen.dst, seen[ICMPv6PacketTooBig].mtu) == (LEFT6, 1280)
    dumped = wires.gateway.run("flow", "dump", "table=1,ct_state=+rel-new+trk,ip").stdout
    assert "n_packets=1," in dumped, dumped


def helper(version, port):
    """The helper of a rule is shown with the connection; port 21 has none by itself."""

    def case(wires):
        client, server, _ = ENDS[version]
        kind = "tcp6" if version == 6 else "tcp"
        load(wires, f"table=1,priority=11,ct_state=+new+trk,{kind},in_port=left,tp_dst=2121 "
                    "actions=ct(commit,alg=ftp),NORMAL\n" + OUT)
        Talk(wires, client=client, server=server, dport=port).opens()
        listed = wires.gateway.run("conntrack", "-L", "-p", "tcp", "--dport", port).stdout
        assert ("helper=ftp" in listed) == (port == 2121), listed

    return case


def unreplied(wires):
    """A SYN that goes on being sent and is not answered keeps its connection no longer than that lasts, so that a
    translation that comes later is used."""
    load(wires, OUT)
    syn = IP(src=LEFT, dst="10.2.0.8") / TCP(sport=40000, dport=80, flags="S", seq=1)
    assert one(wires.send("left", syn).right).dst == "10.2.0.8"
    wires.replace(HEAD + new("tcp,in_port=left", f"ct(commit,nat(dst={RIGHT}:8080)),NORMAL"))
    end = time.monotonic() + 30
    while (came := one(wires.send("left", syn).right)).dst != RIGHT:
        assert time.monotonic() < end, "the connection is used for ever"
        time.sleep(0.1)
    assert came[TCP].dport == 8080


CLIENT_TAG, SERVER_TAG, STALE_TAG = 2017837359, 1187206187, 164579970


def chunk(wires, side, tag, made):
    ends = (LEFT, RIGHT) if side == "left" else (RIGHT, LEFT)
    return wires.passes(side, IP(src=ends[0], dst=ends[1]) / SCTP(sport=1234, dport=1234, tag=tag) / made)


def init(kind, tag):
    return kind(init_tag=tag, a_rwnd=65535, n_out_streams=1, n_in_streams=1, init_tsn=1)


def collision(is_init_late):
    """Both begin; the answer to one INIT, and perhaps that INIT, come when the association is up."""

    def case(wires):
        load(wires, OUT + new("sctp,in_port=right", "ct(commit),NORMAL"))
        if not is_init_late:
            assert chunk(wires, "left", 0, init(SCTPChunkInit, CLIENT_TAG))
        assert chunk(wires, "right", 0, init(SCTPChunkInit, SERVER_TAG))
        assert chunk(wires, "left", SERVER_TAG, init(SCTPChunkInitAck, CLIENT_TAG))
        assert chunk(wires, "right", CLIENT_TAG, SCTPChunkCookieEcho(cookie=b"cookie!!"))
        assert chunk(wires, "left", SERVER_TAG, SCTPChunkCookieAck())
        if is_init_late:
            chunk(wires, "left", 0, init(SCTPChunkInit, CLIENT_TAG))
        chunk(wires, "right", CLIENT_TAG, init(SCTPChunkInitAck, STALE_TAG))
        for _ in range(2):
            assert chunk(wires, "left", SERVER_TAG, SCTPChunkData(tsn=1, data=b"data"))
            assert chunk(wires, "right", CLIENT_TAG, SCTPChunkData(tsn=1, data=b"data"))
        assert wires.connection("-p", "sctp")["state"] == "ESTABLISHED"

    return case


VIRTUAL = "10.2.0.200"
"""An address of nobody, which is translated to that of the server."""


def led_to_one_service(twice=True):
    """Flows that translate the destination to port 5201 of the server, and the source's port if it is taken."""
    source = ",ct(commit,nat(src,twice))" if twice else ""
    return "".join(
        f"table=1,priority=15,tcp,ct_state=+new+trk,in_port=left,{match} "
        f"actions=ct(commit,nat(dst={RIGHT}:5201)){source},NORMAL\n"
        for match in (f"nw_dst={VIRTUAL},tp_dst=443", "tp_dst=5202", "tp_dst=5203")
    )


def handshake(wires, to, port):
    """The client opens a connection from port 10000 to where it is led to the server's port 5201, which sees the
    source port that is returned; the connection is established."""
    syn = one(wires.send("left", IP(src=LEFT, dst=to) / TCP(sport=10000, dport=port, flags="S", seq=100)).right)
    assert (syn.src, syn.dst, syn[TCP].dport) == (LEFT, RIGHT, 5201)
    seen = syn[TCP].sport
    answer = IP(src=RIGHT, dst=LEFT) / TCP(sport=5201, dport=seen, flags="SA", seq=900, ack=101)
    back = one(wires.send("right", answer).left)
    assert (back.src, back.dst, back[TCP].sport, back[TCP].dport) == (to, LEFT, port, 10000)
    ack = IP(src=LEFT, dst=to) / TCP(sport=10000, dport=port, flags="A", seq=101, ack=901)
    assert one(wires.send("left", ack).right)[TCP].sport == seen
    words = ("-p", "tcp", "--orig-port-src", 10000, "--orig-port-dst", port)
    assert wires.connection(*words)["state"] == "ESTABLISHED"
    return seen


def taken_port(wires):
    """What is led to a server has another source port if the client has a connection to that server from its own."""
    load(wires, led_to_one_service() + OUT)
    first = Talk(wires, 10000, 5201).opens()
    assert handshake(wires, VIRTUAL, 443) != 10000
    first.carries_data()
    # If the flow translates the destination alone, the source's port stays, and the packet is dropped.
    load(wires, led_to_one_service(twice=False) + OUT)
    first = Talk(wires, 10000, 5201).opens()
    before = wires.gateway.drops().get("nat_exhausted", 0)
    assert not wires.passes("left", IP(src=LEFT, dst=VIRTUAL) / TCP(sport=10000, dport=443, flags="S", seq=100))
    assert wires.gateway.drops()["nat_exhausted"] == before + 1
    first.carries_data()


def taken_ports(wires):
    """Four connections from one port to one service, each with a port of its own there."""
    load(wires, led_to_one_service() + OUT)
    first = Talk(wires, 10000, 5201).opens()
    ends = {10000} | {handshake(wires, to, port) for to, port in ((VIRTUAL, 443), (RIGHT, 5202), (RIGHT, 5203))}
    assert len(ends) == 4, ends
    first.carries_data()


CASES = {
    NAT: {
        "connectivity": connectivity,
        **{f"masquerade-v{version}{flags}": masquerade(version, flags)
           for version in (4, 6) for flags in ("", ",random")},
        **{f"redirect-v{version}": redirect(version) for version in (4, 6)},
        "port-shadow-default": port_shadow_default,
        "port-shadow-filter": port_shadow_filter,
        "port-shadow-notrack": port_shadow_notrack,
        "port-shadow-pat": port_shadow_pat,
        "stateless": stateless,
    },
    RELATED: {"mtu-error": mtu_error_is_related},
    HELPER: {f"{port}-v{version}": helper(version, port) for port in (2121, 21) for version in (4, 6)},
    UNREPLIED: {"unreplied": unreplied},
    COLLISION: {"init-ack": collision(False), "init": collision(True)},
    ZONES: {},
    PORTS: {"virtual-address": taken_port, "redirected-ports": taken_ports},
}
ALL = {f"{script.name.split('/')[1]}-{name}": case for script, cases in CASES.items() for name, case in cases.items()}


@pytest.mark.parametrize("name", ALL)
def test_cases_of_the_scripts(wires, name):
    ALL[name](wires)


@pytest.mark.parametrize("script", CASES, ids=lambda script: script.name)
def test_every_case_is_counted(script):
    script.demand_all_counted(passed=len(CASES[script]))
