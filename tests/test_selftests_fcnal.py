"""`fcnal-test.sh` of the Linux kernel, as far as it is about a router and not about sockets on it.

hitpath is the script's `ns-A`: `ns-B` pings it and connects to it, without a VRF and in one. The addresses that the
script has on `lo` and on the VRF's device are those of ports without a link here.
"""

import errno
import re
import socket
import time

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway
from harness.netns import Topology
from harness.selftests import Script

pytestmark = pytest.mark.namespaces

SCRIPT = Script(
    "fcnal-test.sh",
    888,
    {
        "ping out and local": 171,
        "ping again, with other settings of sockets": 24,
        "`ping in, blocked by rule`, without a VRF": 5,
        "TCP and UDP servers and clients on ns-A": 397,
        "TCP and UDP without a server, again, with other settings of sockets": 19,
        "TCP MD5": 68,
        "`addr_bind`": 49,
        "`runtime`: sockets, and ping out, while the VRF is deleted": 75,
        "`use_case_br`: a bridge on ns-A": 16,
        "`use_case_snat_on_vrf`": 2,
    },
)
NSA = {4: "172.16.1.1", 6: "2001:db8:1::1"}
NSB = {4: "172.16.1.2", 6: "2001:db8:1::2"}
NSA_LO = {4: "172.16.2.1", 6: "2001:db8:2::1"}
NSB_LO = {4: "172.16.2.2", 6: "2001:db8:2::2"}
VRF_IP = {4: "172.16.3.1", 6: "2001:db8:3::1"}
HOST_LENGTH = {4: 32, 6: 128}
ALL_NODES = "ff02::1"


class World:
    """The script's two namespaces. With a VRF, ns-A's `eth1` and an address of its own are in `red`."""

    def __init__(self, made, gateway, nsb, is_vrf):
        self.gateway, self.nsb, self.is_vrf = gateway, nsb, is_vrf
        ports = {port["name"]: port for port in gateway.json("show", "ports")}
        own = (address.split("/")[0] for address in ports["eth1"]["addresses"])
        self.linklocal = next(address for address in own if address.startswith("fe80"))
        self.table = ["vrf", "red"] if is_vrf else []

    def ping(self, address, *options):
        """Whether ns-A answers ns-B."""
        command = ["ping", "-n", "-c", "1", "-W", "2", *options, address]
        return self.nsb.run(*command, check=False).returncode == 0

    def run(self, family, *words):
        return self.gateway.run(f"-{family}", *words)

    def connect(self, family, address, kind):
        """What ns-B is told that sends to port 12345 of ns-A."""
        with self.nsb.entered():
            opened = socket.socket({4: socket.AF_INET, 6: socket.AF_INET6}[family], kind)
            scope = socket.if_nametoindex("eth1") if address.startswith("fe80") else 0
        opened.settimeout(3)
        with opened:
            try:
                opened.connect((address, 12345, 0, scope) if family == 6 else (address, 12345))
                if kind == socket.SOCK_DGRAM:
                    opened.send(b"question")
                    opened.recv(100)
            except TimeoutError:
                return "no answer"
            except OSError as error:
                return errno.errorcode[error.errno]
            return "connected"


def started(made, directory, is_vrf):
    nsa, nsb = made.namespace("ns-A"), made.namespace("ns-B")
    made.link(nsa, "eth1", nsb, "eth1")
    nsa.silence("eth1")
    nsb.addresses("eth1", f"{NSB[4]}/24", f"{NSB[6]}/64")
    nsb.addresses("lo", f"{NSB_LO[4]}/32", f"{NSB_LO[6]}/128")
    config = Config(
        ports=[
            Port("eth1", [f"{NSA[4]}/24", f"{NSA[6]}/64"], kind="af-packet", interface="eth1"),
            Port("lo", [f"{NSA_LO[family]}/{HOST_LENGTH[family]}" for family in (4, 6)]),
            Port("red0", [f"{VRF_IP[family]}/{HOST_LENGTH[family]}" for family in (4, 6)]),
        ]
    )
    gateway = Gateway(nsa, config, directory)
    with gateway:
        if is_vrf:
            gateway.run("link", "add", "red", "type", "vrf", "table", "1101")
            gateway.run("link", "set", "red", "up")
            for port in ("eth1", "red0"):
                gateway.run("link", "set", "dev", port, "vrf", "red")
        table = ["vrf", "red"] if is_vrf else []
        for family in (4, 6):
            gateway.run(f"-{family}", "route", "add", *table, "unreachable", "default", "metric", "8192")
            words = [f"{NSB_LO[family]}/{HOST_LENGTH[family]}", "via", NSB[family], "dev", "eth1"]
            gateway.run(f"-{family}", "route", "add", *table, *words)
            for far in (NSA_LO, VRF_IP):
                to = f"{far[family]}/{HOST_LENGTH[family]}"
                nsb.ip(f"-{family}", "route", "add", to, "via", NSA[family], "dev", "eth1")
        yield World(made, gateway, nsb, is_vrf)


@pytest.fixture(scope="module")
def plain(root, tmp_path_factory):
    with Topology() as made:
        yield from started(made, tmp_path_factory.mktemp("plain"), False)


@pytest.fixture(scope="module")
def vrf(root, tmp_path_factory):
    with Topology() as made:
        yield from started(made, tmp_path_factory.mktemp("vrf"), True)


@pytest.fixture
def world(request, kind):
    return request.getfixturevalue(kind)


# What ns-B pings, by where it is. A name stands for an address that is known later.
PING_IN = [("plain", 4, NSA[4]), ("plain", 4, NSA_LO[4]), ("vrf", 4, NSA[4]), ("vrf", 4, VRF_IP[4])]
PING_IN += [("plain", 6, NSA[6]), ("plain", 6, NSA_LO[6]), ("plain", 6, "link-local"), ("plain", 6, ALL_NODES)]
PING_IN += [("vrf", 6, NSA[6]), ("vrf", 6, VRF_IP[6]), ("vrf", 6, "link-local"), ("vrf", 6, ALL_NODES)]


def names(cases):
    return ["-".join(str(word) for word in case) for case in cases]


@pytest.mark.parametrize(("kind", "family", "address"), PING_IN, ids=names(PING_IN))
def test_ping_in(world, family, address):
    if address == "link-local":
        address = f"{world.linklocal}%eth1"
    if address == ALL_NODES:
        # The host answers itself else.
        world.nsb.sysctl("net.ipv6.icmp.echo_ignore_multicast", 1)
        address += "%eth1"
    assert world.ping(address)


def routes(world, family, changes, undone):
    """No answer finds its way while `changes` are made."""
    assert world.ping(VRF_IP[family] if world.is_vrf else NSA_LO[family])
    for words in changes:
        world.run(family, *words)
    try:
        return world.ping(NSA_LO[family])
    finally:
        for words in undone:
            world.run(family, *words)


BLOCKED = [("plain", 4, "route"), ("plain", 6, "route")]
BLOCKED += [("vrf", family, why) for family in (4, 6) for why in ("rule", "no-route")]
BLOCKED += [("vrf", 6, "scope")]


@pytest.mark.parametrize(("kind", "family", "why"), BLOCKED, ids=names(BLOCKED))
def test_ping_in_blocked(world, family, why):
    """ns-A's address on `lo` is not in the VRF; and answers need a route."""
    to = f"{NSB_LO[family]}/{HOST_LENGTH[family]}"
    back = f"{NSB[family]}/{HOST_LENGTH[family]}"
    changes, undone = [], []
    if why == "route":
        changes = [["route", "replace", "unreachable", prefix] for prefix in (to, back)]
        undone = [["route", "del", back], ["route", "replace", to, "via", NSB[family], "dev", "eth1"]]
    elif why == "rule":
        rules = [["pref", "50", "to", NSB_LO[family], "prohibit"], ["pref", "51", "from", NSB[family], "prohibit"]]
        changes = [["rule", "add", *rule] for rule in rules]
        undone = [["rule", "del", *rule] for rule in rules]
    elif why == "no-route":
        changes = [["route", "del", *world.table, to]]
        undone = [["route", "add", *world.table, to, "via", NSB[family], "dev", "eth1"]]
    assert not routes(world, family, changes, undone)


@pytest.mark.parametrize("kind", ["vrf"])
@pytest.mark.parametrize("address", [NSA[6], VRF_IP[6]])
def test_ping_in_from_a_link_local_address(world, address):
    """ns-B has no other address; an answer to such a one goes to the link that the question came by."""
    nsb = world.nsb
    nsb.ip("-6", "addr", "del", f"{NSB[6]}/64", "dev", "eth1")
    nsb.ip("-6", "addr", "del", f"{NSB_LO[6]}/128", "dev", "lo")
    nsb.ip("-6", "route", "replace", f"{address}/128", "via", world.linklocal, "dev", "eth1")
    try:
        assert world.ping(address)
    finally:
        nsb.ip("-6", "route", "del", f"{address}/128")
        nsb.addresses("eth1", f"{NSB[6]}/64")
        nsb.addresses("lo", f"{NSB_LO[6]}/128")
        for far in (NSA_LO, VRF_IP):
            nsb.ip("-6", "route", "replace", f"{far[6]}/128", "via", NSA[6], "dev", "eth1")


LISTENERS = [("plain", NSA), ("plain", NSA_LO), ("vrf", NSA), ("vrf", VRF_IP)]
NO_SERVER = [(kind, family, addresses[family]) for kind, addresses in LISTENERS for family in (4, 6)]
NO_SERVER += [(kind, 6, "link-local") for kind in ("plain", "vrf")]
SOCKETS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


def no_server(world, family, protocol, address):
    """Who connects is told at once."""
    address = world.linklocal if address == "link-local" else address
    return world.connect(family, address, SOCKETS[protocol])


@pytest.mark.parametrize(("kind", "family", "address"), NO_SERVER, ids=names(NO_SERVER))
def test_no_udp_server(world, family, address):
    assert no_server(world, family, "udp", address) == "ECONNREFUSED"


@pytest.mark.parametrize(("kind", "family", "address"), NO_SERVER, ids=names(NO_SERVER))
def test_no_tcp_server(world, family, address):
    assert no_server(world, family, "tcp", address) == "ECONNREFUSED"


REJECTED = [
    (family, protocol, how, address)
    for family in (4, 6)
    for protocol, how in (("tcp", "tcp-reset"), ("tcp", "icmp-port-unreachable"), ("udp", "icmp-port-unreachable"))
    for address in (NSA[family], VRF_IP[family])
]


@pytest.mark.parametrize("kind", ["vrf"])
@pytest.mark.parametrize(("family", "protocol", "how", "address"), REJECTED, ids=names(REJECTED))
def test_rejected(world, family, protocol, how, address):
    """As if nobody listened; the filter has counted it."""
    match = ["protocol", {4: "ip", 6: "ipv6"}[family], "ip_proto", protocol, "dst_port", "12345"]
    world.gateway.run("filter", "add", "dev", "eth1", "ingress", "pref", "1", *match, "action", "reject", "with", how)
    try:
        assert world.connect(family, address, SOCKETS[protocol]) == "ECONNREFUSED"
        (rule,) = world.gateway.json("-s", "filter", "show", "dev", "eth1", "ingress")
        assert rule["options"]["actions"][-1]["stats"]["packets"] > 0, rule
    finally:
        world.gateway.run("filter", "del", "dev", "eth1", "ingress")


DELETED = [(4, NSA[4]), (4, VRF_IP[4]), (6, NSA[6])]


@pytest.mark.parametrize(("family", "address"), DELETED, ids=names(DELETED))
def test_vrf_deleted_under_traffic(root, tmp_path, family, address):
    """A flood of pings is answered until the VRF goes; ns-A then goes on in `main`."""
    with Topology() as made:
        steps = started(made, tmp_path, True)
        world = next(steps)
        flood = world.nsb.start("ping", "-n", "-i", "0.002", "-w", "3", address)
        time.sleep(1)
        world.gateway.run("link", "del", "red")
        said, _ = flood.communicate(timeout=10)
        sent, got = map(int, re.search(r"(\d+) packets transmitted, (\d+) received", said).groups())
        assert 100 < got < sent, said
        # The port is down and bare, as with every VRF that goes.
        world.gateway.run("addr", "add", f"{NSA[4]}/24", "dev", "eth1")
        world.gateway.run("link", "set", "eth1", "up")
        assert world.ping(NSA[4])
        assert next(steps, None) is None


@pytest.fixture(scope="module")
def three(root, tmp_path_factory):
    """ns-A with links to ns-B and ns-C in one VRF, and link-local addresses alone."""
    with Topology() as made:
        nsa, stations, ports = made.namespace("ns-A"), [], []
        for label, port in (("ns-B", "eth1"), ("ns-C", "eth2")):
            station = made.namespace(label)
            made.link(nsa, port, station, "eth0")
            nsa.silence(port)
            station.sysctl("net.ipv6.icmp.echo_ignore_multicast", 1)
            stations.append(station)
            ports.append(Port(port, [], kind="af-packet", interface=port, vrf="red"))
        with Gateway(nsa, Config(ports=ports, vrfs=["red"]), tmp_path_factory.mktemp("lla")) as gateway:
            for station in stations:
                # Until the links are up: one answer, however many questions.
                station.run("ping", "-n", "-c", "1", "-w", "10", "-i", "0.1", f"{ALL_NODES}%eth0")
            yield gateway, stations


@pytest.mark.parametrize("station", [0, 1], ids=["ns-B", "ns-C"])
@pytest.mark.parametrize("cycled", [None, "eth1", "eth2"])
def test_link_local_on_several_ports(three, station, cycled):
    """ns-A answers each of them, before and after a port was down."""
    gateway, stations = three
    if cycled:
        gateway.run("link", "set", cycled, "down")
        gateway.run("link", "set", cycled, "up")
    said = stations[station].run("ping", "-n", "-c", "1", "-W", "3", f"{ALL_NODES}%eth0", check=False)
    assert said.returncode == 0, said.stdout


PASSED = [PING_IN, BLOCKED, [NSA, VRF_IP], NO_SERVER, NO_SERVER, REJECTED, DELETED, range(6)]


def test_every_case_is_counted():
    SCRIPT.demand_all_counted(passed=sum(map(len, PASSED)), failed=0)
