"""What the gateway leaves to other programs: router advertisements and DHCP, and what listens on addresses of the system.

docs/interfaces.md says how they go.
"""

import errno
import socket
import threading
import time

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway, Here, binary
from harness.netns import run
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.dhcp6 import DHCP6_Solicit
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import ICMPv6ND_RA, ICMPv6ND_RS, ICMPv6NDOptPrefixInfo, IPv6
from scapy.layers.l2 import Ether

LEFT, RIGHT = {"own": "fd01::1", "host": "fd01::2"}, {"own": "fd02::1", "host": "fd02::2"}
RA, DHCP_WORDS = "hitpath neither sends router advertisements nor takes any", "hitpath is no DHCP server, relay or client"


@pytest.mark.parametrize(
    ("words", "message", "instead"),
    [
        (["ra", "on"], RA, "radvd or dnsmasq"),
        (["accept_ra", "2"], RA, "radvd or dnsmasq"),
        (["router-advertisement", "on"], RA, "radvd or dnsmasq"),
        (["dhcp", "on"], DHCP_WORDS, "dnsmasq or dhcrelay"),
        (["up", "dhcp-relay", "192.0.2.9"], DHCP_WORDS, "dnsmasq or dhcrelay"),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else None,
)
def test_the_words_are_refused_by_name(tmp_path, words, message, instead):
    with Gateway(Here, Config(ports=[Port("lan", ["192.0.2.1/24"])]), tmp_path) as gateway:
        before = gateway.run("save").stdout
        refused = gateway.run("link", "set", "lan", *words, check=False)
        assert refused.returncode == 2 and message in refused.stderr, refused.stderr
        assert instead in refused.stderr and "docs/interfaces.md" in refused.stderr
        assert gateway.run("save").stdout == before


@pytest.mark.parametrize(("verb", "message"), [("ra", RA), ("dhcp", DHCP_WORDS), ("dhcp-relay", DHCP_WORDS)])
def test_the_verbs_are_refused_by_name(verb, message):
    refused = run([binary(), verb, "lan"], check=False)
    assert refused.returncode == 2 and message in refused.stderr, refused.stderr
    assert "docs/interfaces.md" in refused.stderr and "unrecognized" not in refused.stderr


@pytest.mark.parametrize("key", ["ra", "router-advertisement", "accept-ra", "dhcp", "dhcp-relay", "dhcpv6-relay"])
def test_the_keys_are_refused_by_name(tmp_path, key):
    path = tmp_path / "gw.toml"
    config = Config(ports=[Port("lan", ["192.0.2.1/24"])]).render(tmp_path / "sock")
    path.write_text(f"{config}\n{key} = true\n")
    refused = run([binary(), "check", path], check=False)
    said = refused.stdout + refused.stderr
    assert refused.returncode == 1 and f'port has no key "{key}"' in said, said
    assert (RA if "ra" in key.split("-") or "router" in key else DHCP_WORDS) in said, said


def multicast(address):
    return "33:33:" + ":".join(f"{byte:02x}" for byte in socket.inet_pton(socket.AF_INET6, address)[12:])


QUESTIONS = {
    "router-solicitation": (
        Ether(dst=multicast("ff02::2")) / IPv6(src="fe80::99", dst="ff02::2") / ICMPv6ND_RS(),
        "nd_not_for_us",
    ),
    "dhcp-discover": (
        Ether(dst="ff:ff:ff:ff:ff:ff")
        / IP(src="0.0.0.0", dst="255.255.255.255")
        / UDP(sport=68, dport=67)
        / BOOTP(chaddr=b"\x02\0\0\0\0\x05")
        / DHCP(options=[("message-type", "discover"), "end"]),
        "not_unicast",
    ),
    "dhcp6-solicit": (
        Ether(dst=multicast("ff02::1:2"))
        / IPv6(src="fe80::99", dst="ff02::1:2")
        / UDP(sport=546, dport=547)
        / DHCP6_Solicit(),
        "not_unicast",
    ),
}


@pytest.mark.namespaces
@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_are_counted(topology, tmp_path, name):
    """Nothing answers, and each is in one counter."""
    gw, lan = topology.namespace("gw"), topology.namespace("lan")
    topology.link(gw, "lan", lan, "eth0")
    gw.silence("lan")
    lan.silence("eth0")
    config = Config(ports=[Port("lan", ["192.0.2.1/24", "fd01::1/64"], kind="af-packet", interface="lan")])
    frame, reason = QUESTIONS[name]
    with Gateway(gw, config, tmp_path) as gateway, lan.packet_socket("eth0") as station:
        time.sleep(0.5)
        frame[Ether].src = lan.mac("eth0")
        before = gateway.drops().get(reason, 0)
        station.send(bytes(frame))
        gateway.wait_for_drops(reason, before + 1)


@pytest.mark.namespaces
def test_router_advertisements_from_the_same_interface(topology, tmp_path):
    """A program like radvd sends them from the kernel's link-local address; the gateway forwards what stations send."""
    gw, left, right = (topology.namespace(label) for label in ("gw", "left", "right"))
    for label, host in (("left", left), ("right", right)):
        topology.link(gw, label, host, "eth0")
    gw.silence("right")
    # The kernel has IPv6 on the interface and says that it is a router, but forwards nothing, and says nothing about
    # what it has no route to.
    gw.sysctl("net.ipv6.conf.all.forwarding", 0)
    for setting, value in (("accept_ra", 0), ("disable_ipv6", 0), ("forwarding", 1)):
        gw.sysctl(f"net.ipv6.conf.left.{setting}", value)
    gw.ip("-6", "route", "add", "blackhole", "default", "metric", "9999")
    left.sysctl("net.ipv6.conf.eth0.accept_ra", 1)
    right.addresses("eth0", f"{RIGHT['host']}/64")
    right.ip("-6", "route", "add", "default", "via", RIGHT["own"])
    ports = [
        Port(label, [f"{side['own']}/64"], kind="af-packet", interface=label)
        for label, side in (("left", LEFT), ("right", RIGHT))
    ]
    with Gateway(gw, Config(ports=ports), tmp_path) as gateway:
        told = gateway.log()
        assert "the kernel handles its packets too" in told and "forwards IPv6" not in told, told
        with gw.entered():
            kernel = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
            index = socket.if_nametoindex("left")
        with kernel:
            kernel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
            kernel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            prefix = ICMPv6NDOptPrefixInfo(prefix="fd01::", prefixlen=64, validlifetime=600, preferredlifetime=600)
            message = bytes(IPv6(src="fe80::1", dst="ff02::1") / ICMPv6ND_RA(routerlifetime=600) / prefix)[40:]
            end = time.monotonic() + 10
            while "fd01::" not in left.ip("-6", "addr", "show", "dev", "eth0").stdout:
                assert time.monotonic() < end, "the station takes no address"
                # The kernel fills in the checksum.
                kernel.sendto(message, ("ff02::1", 0, 0, index))
                time.sleep(0.2)
        assert "default via fe80::" in left.ip("-6", "route", "show").stdout
        left.ping(RIGHT["host"])
        left.ping(LEFT["own"])


OWN, HOST = {4: "192.0.2.1", 6: "fd01::1"}, {4: "192.0.2.2", 6: "fd01::2"}
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


def connect(lan, family, kind, port):
    """What a station is told that sends to the gateway's address, and what it is answered."""
    with lan.entered():
        opened = socket.socket(FAMILIES[family], kind)
    opened.settimeout(1)
    with opened:
        try:
            opened.connect((OWN[family], port))
            opened.send(b"question")
            return opened.recv(100).decode()
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return errno.errorcode[error.errno]


def serve(gw, family, kind, port):
    """A program of the system that answers one question on the gateway's address."""
    with gw.entered():
        server = socket.socket(FAMILIES[family], kind)
    server.bind((OWN[family], port))
    if kind == socket.SOCK_STREAM:
        server.listen()

    def answer():
        if kind == socket.SOCK_STREAM:
            client, _ = server.accept()
            with client:
                client.send(client.recv(100)[::-1])
        else:
            question, client = server.recvfrom(100)
            server.sendto(question[::-1], client)
        server.close()

    threading.Thread(target=answer, daemon=True).start()


@pytest.mark.namespaces
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])
def test_addresses_that_the_system_has_too(topology, tmp_path, family, kind):
    """Who listens there is the system's to know: the gateway ends no connection of it, and refuses what it alone has."""
    gw, lan = topology.namespace("gw"), topology.namespace("lan")
    topology.link(gw, "lan", lan, "eth0")
    gw.sysctl("net.ipv6.conf.lan.disable_ipv6", 0)
    lan.addresses("eth0", *(f"{HOST[f]}/{length}" for f, length in ((4, 24), (6, 64))))
    own = [f"{OWN[4]}/24", f"{OWN[6]}/64"]
    with Gateway(gw, Config(ports=[Port("lan", own, kind="af-packet", interface="lan")]), tmp_path) as gateway:
        # The gateway has it alone.
        assert connect(lan, family, kind, 7777) == "ECONNREFUSED"
        refused = gateway.drops()["local_no_listener"]
        protocol = {socket.SOCK_STREAM: "tcp", socket.SOCK_DGRAM: "udp"}[kind]
        ends = [f"[{a}]" if family == 6 else a for a in (HOST[family], OWN[family])]
        asked = ["explain", f"{protocol} {ends[0]}:40000 > {ends[1]}:7777 in lan"]
        assert f"nobody listens on {OWN[family]}" in gateway.run(*asked, check=False).stdout
        # Now the system has it as well.
        gw.ip("addr", "add", own[family == 6], "dev", "lan", *(["nodad"] if family == 6 else []))
        time.sleep(1)
        assert f"the system has {OWN[family]} too" in gateway.run(*asked).stdout
        serve(gw, family, kind, 7777)
        assert connect(lan, family, kind, 7777) == "noitseuq"
        gateway.wait_for_more_drops("local_left_to_system")
        assert gateway.drops()["local_no_listener"] == refused
        # Where nobody listens, the system says so.
        assert connect(lan, family, kind, 7778) == "ECONNREFUSED"
        assert gateway.drops()["local_no_listener"] == refused
        # It lets go of the address: the gateway has it alone again.
        gw.ip("addr", "del", own[family == 6], "dev", "lan")
        time.sleep(1)
        assert connect(lan, family, kind, 7778) == "ECONNREFUSED"
        gateway.wait_for_more_drops("local_no_listener", refused)
