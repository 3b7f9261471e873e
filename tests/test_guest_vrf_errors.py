"""ICMP errors of VRFs beside Linux's: the same lines to the guest's `ip` and to `hitpath`, and the same pings.

A host in the VRF `red` pings one in `blue`, through a router that leads packets from the one VRF into the other.
"""

import re

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway
from harness.guest import GuestNamespace
from harness.netns import Topology

pytestmark = [pytest.mark.guest, pytest.mark.namespaces]

ROUTER = {"p1": {4: "10.1.0.1", 6: "fd01::1"}, "p2": {4: "10.2.0.1", 6: "fd02::1"}}
HOSTS = {"p1": {4: "10.1.0.2", 6: "fd01::2"}, "p2": {4: "10.2.0.2", 6: "fd02::2"}}
FAR = {4: "198.51.100.1", 6: "2001:db8:1::1"}
SILENT = {4: "10.2.0.99", 6: "fd02::99"}
LENGTH = {4: 24, 6: 64}
families = pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])


def lines():
    """The router's configuration, in words that both take."""
    yield from (f"link add {vrf} type vrf table {table}" for vrf, table in (("red", 10), ("blue", 20)))
    yield from (f"link set {vrf} up" for vrf in ("red", "blue"))
    yield from ("link set p1 master red", "link set p2 master blue", "link set p2 mtu 1400")
    for port, own in ROUTER.items():
        yield from (f"addr add {own[family]}/{LENGTH[family]} dev {port}" for family in (4, 6))
        yield f"link set {port} up"
    for family in (4, 6):
        for vrf in ("red", "blue"):
            yield f"-{family} route add unreachable default metric 8192 vrf {vrf}"
        for to in (HOSTS["p2"], FAR, SILENT):
            yield f"-{family} route add {to[family]} vrf red dev blue"
        yield f"-{family} route add {FAR[family]} via {HOSTS['p2'][family]} vrf blue"
        yield f"-{family} route add {HOSTS['p1'][family]} vrf blue dev red"


def told(said):
    """What a ping was told, and by whom; or whether there was an answer."""
    if " 0% packet loss" in said:
        return "answered"
    error = re.search(r"^From (\S+?):? icmp_seq=\d+ (.*?)(?: \(mtu = (\d+)\)|: mtu=(\d+))?$", said, re.MULTILINE)
    return (error[1], error[2], error[3] or error[4]) if error else "nothing"


class Linux:
    """Namespaces of the guest."""

    def __init__(self, guest):
        self.guest, self.made = guest, ["router", "h1", "h2"]
        for name in self.made:
            guest.run("ip", "netns", "add", name)
        self.router, self.h1, self.h2 = (GuestNamespace(guest, name, "lo") for name in self.made)
        for setting in ("ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1", "ipv6/conf/default/accept_dad=0"):
            self.write(self.router, setting)
        for setting in ("keep_addr_on_down=1",):
            for name in ("all", "default"):
                self.write(self.router, f"ipv6/conf/{name}/{setting}")
        for name in ("all", "default"):
            self.write(self.router, f"ipv4/conf/{name}/rp_filter=0")
        # Linux limits errors by their receiver, who is the same in every case.
        for setting in ("ipv4/icmp_ratelimit=0", "ipv6/icmp/ratelimit=0"):
            self.write(self.router, setting)
        self.write(guest, "ipv4/route/error_cost=0")
        for port, host, label in (("p1", self.h1, "h1"), ("p2", self.h2, "h2")):
            self.write(host, "ipv6/conf/default/accept_dad=0")
            pair = ["link", "add", port, "netns", "router", "type", "veth", "peer", "name", "eth0", "netns", label]
            guest.batch([pair])
            host.batch(host_lines(port))
        self.do(lines())

    @staticmethod
    def write(space, setting):
        name, value = setting.split("=")
        space.run("sh", "-c", f"echo {value} > /proc/sys/net/{name}")

    def do(self, all_lines):
        for line in all_lines:
            self.router.run("ip", *line.split())

    def stop(self):
        for name in self.made:
            self.guest.run("ip", "netns", "delete", name)


class Hitpath:
    """Namespaces of the machine around a gateway."""

    def __init__(self, made, directory):
        router = made.namespace("router")
        ports = []
        for port, label in (("p1", "h1"), ("p2", "h2")):
            host = made.namespace(label)
            made.link(router, port, host, "eth0")
            router.silence(port)
            for words in host_lines(port):
                host.ip(*words)
            ports.append(Port(port, [], kind="af-packet", interface=port))
        self.h1, self.h2 = made["h1"], made["h2"]
        self.gateway = Gateway(router, Config(ports=ports), directory)
        self.gateway.__enter__()
        self.do(lines())

    def do(self, all_lines):
        for line in all_lines:
            self.gateway.run(*line.split())

    def stop(self):
        self.gateway.__exit__(None, None, None)


def host_lines(port):
    """What a host has: its address, a default route, and at the far end an address of its own."""
    made = [["link", "set", "eth0", "up"]]
    for family in (4, 6):
        nodad = ["nodad"] if family == 6 else []
        made.append(["addr", "add", f"{HOSTS[port][family]}/{LENGTH[family]}", "dev", "eth0", *nodad])
        made.append(["route", "add", "default", "via", ROUTER[port][family]])
        if port == "p2":
            made.append(["addr", "add", FAR[family], "dev", "lo"])
    return made


@pytest.fixture(scope="module")
def beside(guest_world, tmp_path_factory):
    guest, _, _ = guest_world
    with Topology() as made:
        linux, hitpath = Linux(guest), Hitpath(made, tmp_path_factory.mktemp("router"))
        yield linux, hitpath
        hitpath.stop()
        linux.stop()


CASES = {
    "through": (FAR, [], []),
    "on-the-link": (HOSTS["p2"], [], []),
    "hop-limit": (FAR, ["-t", "1"], []),
    "too-big": (FAR, ["-M", "do", "-s", "1390"], []),
    "silent": (SILENT, [], []),
    "no-route": ({4: "203.0.113.1", 6: "2001:db8:2::1"}, [], []),
    "unreachable-route": (FAR, [], ["route replace unreachable {far} vrf red"]),
    "prohibit-route": (FAR, [], ["route replace prohibit {far} vrf red"]),
    "blackhole-route": (FAR, [], ["route replace blackhole {far} vrf red"]),
    "prohibit-rule": (FAR, [], ["rule add pref 900 to {far} prohibit"]),
    "unreachable-rule": (FAR, [], ["rule add pref 900 to {far} unreachable"]),
    "blackhole-rule": (FAR, [], ["rule add pref 900 to {far} blackhole"]),
    "iif-vrf-rule": (FAR, [], ["rule add pref 900 iif red prohibit"]),
    "iif-port-rule": (FAR, [], ["rule add pref 900 iif p1 prohibit"]),
    "port-out-of-its-vrf": (FAR, [], ["link set p2 nomaster"]),
}
"""Name -> what is pinged, how, and lines in front of that."""
DIFFERENCES = {
    "too-big": ("error-source", {4, 6}),
    "silent": ("error-source", {4, 6}),
    "iif-vrf-rule": ("iif", {4}),
    "iif-port-rule": ("iif", {6}),
    "port-out-of-its-vrf": ("silent-leak", {4, 6}),
}
"""Which of them differ, the name under which docs/vrf.md says why, and the families."""
UNDO = {
    "route": "route replace {far} vrf red dev blue",
    "rule": "rule del pref 900",
    "link": "link set p2 master blue",
}


@families
@pytest.mark.parametrize("name", CASES)
def test_pings(beside, name, family):
    target, options, changes = CASES[name]
    fates = []
    for side in beside:
        changed = [f"-{family} {line.format(far=FAR[family])}" for line in changes]
        side.do(changed)
        said = side.h1.run("ping", "-n", "-c", "1", "-W", "6", *options, target[family], check=False).stdout
        side.do(f"-{family} {UNDO[line.split()[0]].format(far=FAR[family])}" for line in changes)
        fates.append(told(said))
    linux, hitpath = fates
    if family in DIFFERENCES.get(name, ("", ()))[1]:
        assert linux != hitpath, f"there is no difference any more: {linux}"
        print(f"Linux {linux}, hitpath {hitpath}")
    else:
        assert linux == hitpath
