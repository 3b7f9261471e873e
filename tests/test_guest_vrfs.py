"""VRFs and policy rules beside Linux's: the same lines to the guest's `ip` and to `hitpath`, and the same packets.

`docs/vrf.md` lists where the two differ, and why; a test fails if there is another difference, or one less.
"""

import dataclasses
import json
import pathlib
import re

import pytest
import test_guest_vrf_errors

from harness.config import Config, Port
from harness.gateway import Gateway, Here
from harness.guest import GuestNamespace

pytestmark = [pytest.mark.guest, pytest.mark.namespaces]

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "vrf.md"

PORTS = ["p1", "p2", "p3", "p4"]
VRFS = """
link add red type vrf table 10
link add blue type vrf table 20
link set red up
link set blue up
link set p1 master red
link set p2 master red
link set p3 master blue
link set p1 up
link set p2 up
link set p3 up
link set p4 up
route add unreachable default metric 8192 vrf red
route add unreachable default metric 8192 vrf blue
"""
V4 = """
addr add 10.1.0.1/24 dev p1
addr add 10.2.0.1/24 dev p2
addr add 10.1.0.1/24 dev p3
addr add 10.4.0.1/24 dev p4
route add 198.51.100.0/24 via 10.2.0.2 vrf red
route add 198.51.100.0/25 via 10.1.0.3 vrf blue
route add 203.0.113.0/24 via 10.4.0.2
route add 198.18.0.0/16 via 10.1.0.9 dev p1 table 100
route add 0.0.0.0/0 via 10.2.0.9 dev p2 table 101
route add unreachable 198.18.1.0/24 table 100
"""
V6 = """
addr add fd01::1/64 dev p1
addr add fd02::1/64 dev p2
addr add fd01::1/64 dev p3
addr add fd04::1/64 dev p4
route add 2001:db8:1::/48 via fd02::2 vrf red
route add 2001:db8:1::/49 via fd01::3 vrf blue
route add 2001:db8:2::/48 via fd04::2
route add 2001:db8:3::/48 via fd01::9 dev p1 table 100
route add ::/0 via fd02::9 dev p2 table 101
route add unreachable 2001:db8:3:1::/64 table 100
"""
# IPv4 addresses of the cases, and what stands for them in IPv6.
TWINS = [
    ("10.1.0.0/24", "fd01::/64"),
    ("10.1.0.128/25", "fd01::8000/113"),
    ("10.1.0.130", "fd01::8002"),
    ("10.1.0.5", "fd01::5"),
    ("10.1.0.6", "fd01::6"),
    ("10.1.0.1", "fd01::1"),
    ("10.1.0.77", "fd01::77"),
    ("10.2.0.1", "fd02::1"),
    ("10.4.0.5", "fd04::5"),
    ("10.4.0.1", "fd04::1"),
    ("10.2.0.2", "fd02::2"),
    ("198.51.100.0/24", "2001:db8:1::/48"),
    ("198.51.100.200", "2001:db8:1:ffff::7"),
    ("198.51.100.7", "2001:db8:1::7"),
    ("203.0.113.0/24", "2001:db8:2::/48"),
    ("203.0.113.7", "2001:db8:2::7"),
    ("198.18.0.0/16", "2001:db8:3::/48"),
    ("198.18.1.7", "2001:db8:3:1::7"),
    ("198.18.0.7", "2001:db8:3:2::7"),
]


@dataclasses.dataclass
class Case:
    """Lines, and the packets that both are asked about."""

    lines: list
    packets: list


@dataclasses.dataclass(frozen=True)
class Packet:
    """A packet that comes by a port."""

    to: str
    source: str = "10.1.0.5"
    port: str = "p1"
    protocol: str = "udp"
    ends: tuple = (5000, 53)
    mark: int = 0


TO_RED, TO_BLUE, TO_MAIN = "198.51.100.200", "198.51.100.7", "203.0.113.7"
CASES = {
    # What a VRF is.
    "isolation": Case([], [Packet(to) for to in (TO_RED, TO_BLUE)] + [Packet(TO_BLUE, port="p3")]),
    "same-addresses": Case([], [Packet("10.1.0.77", source="10.1.0.6", port=port) for port in ("p1", "p3")]),
    "own": Case([], [Packet("10.1.0.1"), Packet("10.2.0.1"), Packet("10.1.0.1", port="p3")]),
    "own-of-others": Case([], [Packet("10.4.0.1")]),
    "main": Case([], [Packet(TO_MAIN, source="10.4.0.5", port="p4"), Packet(TO_RED, source="10.4.0.5", port="p4")]),
    "ends-in-the-vrf": Case([], [Packet(TO_MAIN), Packet("10.4.0.5")]),
    "falls-to-main": Case(["route del unreachable default metric 8192 vrf red"], [Packet(TO_MAIN), Packet(TO_RED)]),
    "broadcast": Case([], [Packet("10.1.0.255"), Packet("10.1.0.0"), Packet("255.255.255.255")]),
    # Rules.
    "from": Case(["rule add from 10.1.0.5 lookup 100"], [Packet("198.18.0.7"), Packet("198.18.0.7", "10.1.0.6")]),
    "to": Case(["rule add to 203.0.113.0/24 lookup 101"], [Packet(TO_MAIN), Packet(TO_RED)]),
    "iif-port": Case(["rule add iif p1 lookup 101"], [Packet(TO_MAIN), Packet(TO_MAIN, "10.1.0.5", "p3")]),
    "iif-vrf": Case(["rule add iif red lookup 101"], [Packet(TO_MAIN), Packet(TO_MAIN, "10.4.0.5", "p4")]),
    "oif-vrf": Case(["rule add oif red lookup 101"], [Packet(TO_MAIN), Packet(TO_RED)]),
    "fwmark": Case(["rule add fwmark 0x64 lookup 100"], [Packet("198.18.0.7", mark=0x64), Packet("198.18.0.7")]),
    "fwmark-mask": Case(["rule add fwmark 0x60/0xf0 lookup 100"], [Packet("198.18.0.7", mark=0x64)]),
    "ipproto": Case(["rule add ipproto tcp lookup 100"], [Packet("198.18.0.7", protocol=p) for p in ("tcp", "udp")]),
    "ports": Case(
        ["rule add ipproto udp sport 666 dport 700-800 lookup 100"],
        [Packet("198.18.0.7", ends=ends) for ends in ((666, 777), (666, 801), (667, 777))],
    ),
    "goto": Case(
        ["rule add pref 100 from 10.1.0.5 goto 300", "rule add pref 200 lookup 101", "rule add pref 300 lookup 100"],
        [Packet("198.18.0.7"), Packet("198.18.0.7", "10.1.0.6")],
    ),
    "goto-nowhere": Case(["rule add pref 100 from 10.1.0.5 goto 300"], [Packet(TO_RED)]),
    "suppressed": Case(["rule add lookup 101 suppress_prefixlength 0"], [Packet(TO_RED), Packet(TO_MAIN)]),
    "order": Case(
        ["rule add pref 100 to 203.0.113.0/24 lookup 101", "rule add pref 90 to 203.0.113.0/24 prohibit"],
        [Packet(TO_MAIN), Packet(TO_RED)],
    ),
    **{
        kind: Case([f"rule add from 10.1.0.5 {kind}"], [Packet(TO_RED), Packet(TO_RED, "10.1.0.6")])
        for kind in ("prohibit", "unreachable", "blackhole")
    },
    "before-own": Case(["rule add pref 1 prohibit"], [Packet("10.1.0.1"), Packet(TO_RED)]),
    "l3mdev": Case(["rule add pref 900 lookup 101"], [Packet(TO_RED)]),
    "no-route-goes-on": Case(["rule add from 10.1.0.5 lookup 100"], [Packet(TO_RED), Packet("198.18.0.7")]),
    "unreachable-ends": Case(["rule add lookup 101", "rule add from 10.1.0.5 lookup 100"], [Packet("198.18.1.7")]),
    # Out of the VRF.
    "rule-into-vrf": Case(["rule add from 10.1.0.5 to 198.51.100.7 lookup 20"], [Packet(TO_BLUE), Packet(TO_RED)]),
    "rule-to-own-of-vrf": Case(["rule add iif p4 lookup 10"], [Packet("10.2.0.1", "10.4.0.5", "p4")]),
    "leak": Case(["route add 198.51.100.7 vrf red dev blue"], [Packet(TO_BLUE), Packet(TO_RED)]),
    "leak-to-link": Case(["route add 10.1.0.130 vrf red dev blue"], [Packet("10.1.0.130")]),
    "leak-by-port": Case(["route add 10.1.0.130 dev p3 vrf red"], [Packet("10.1.0.130"), Packet("10.1.0.77")]),
    "leak-to-own": Case(["route add 10.4.0.1 dev p4 vrf red"], [Packet("10.4.0.1")]),
    # Changes.
    "port-moves": Case(
        ["link set p2 master blue"],
        [Packet(TO_RED), Packet("10.2.0.1"), Packet("10.2.0.1", port="p3"), Packet("10.2.0.2", port="p3")],
    ),
    "port-goes-back": Case(["link set p2 nomaster", "link set p2 master red"], [Packet(TO_RED), Packet("10.2.0.2")]),
    "port-down": Case(["link set p2 down"], [Packet(TO_RED), Packet("10.2.0.2")]),
    "vrf-deleted": Case(["link del red"], [Packet(TO_RED), Packet("10.1.0.77")]),
}
DIFFERENCES = {
    "falls-to-main": ("falls-to-main", {4, 6}),
    "own-of-others": ("own-of-others", {4, 6}),
    "rule-to-own-of-vrf": ("own-of-others", {4, 6}),
    "leak-to-own": ("own-of-others", {4, 6}),
    "before-own": ("before-own", {4, 6}),
    "iif-vrf": ("iif", {4}),
    "iif-port": ("iif", {6}),
    "port-down": ("port-down", {4, 6}),
    "port-goes-back": ("port-goes-back", {4, 6}),
    "vrf-deleted": ("vrf-deleted", {4, 6}),
}
"""Which of them differ, the name under which docs/vrf.md says why, and the families."""


def in_family(text, family):
    """What a line or an address of IPv4 is in the other family; `None` if it has no meaning there."""
    if family == 4:
        return text
    if "255" in text or text == "10.1.0.0":
        return None
    for old, new in TWINS:
        text = re.sub(rf"(?<![\d.]){re.escape(old)}(?![\d./])", new, text)
    assert not re.search(r"\d+\.\d+\.\d+\.\d+", text), text
    return text


class Linux:
    """A namespace of the guest with devices of these names."""

    ERRORS = {
        # What exactly a sender is told, test_guest_vrf_errors.py compares.
        "Network is unreachable": "unreachable",
        "No route to host": "unreachable",
        "Permission denied": "prohibited",
        "Invalid argument": "dropped",
    }
    V6_ERRORS = {-101: "unreachable", -113: "unreachable", -13: "prohibited", -22: "dropped"}

    def __init__(self, guest, family):
        self.guest, self.family = guest, family
        guest.run("ip", "netns", "add", "beside")
        self.inside = GuestNamespace(guest, "beside", "lo")
        settings = ["ipv4.ip_forward=1", "ipv6.conf.all.forwarding=1", "ipv6.conf.default.accept_dad=0"]
        # Else a port loses its IPv6 addresses when it gets into a VRF or out of it.
        settings += [f"ipv6.conf.{name}.keep_addr_on_down=1" for name in ("all", "default")]
        settings += [f"ipv4.conf.{name}.rp_filter=0" for name in ("all", "default")]
        for setting in settings:
            name, value = setting.split("=")
            self.inside.run("sh", "-c", f"echo {value} > /proc/sys/net/{name.replace('.', '/')}")
        self.inside.batch([["link", "add", port, "type", "dummy"] for port in PORTS])

    def do(self, lines):
        words = [f"-{self.family}", "-batch", "-"]
        self.inside.run("ip", *words, stdin="\n".join(lines) + "\n")

    def stop(self):
        self.guest.run("ip", "netns", "delete", "beside")

    def fate(self, packet):
        port = packet.port
        if self.family == 6:
            # To routing, IPv6 packets come by the device of the VRF; test_guest_vrf_errors.py shows it.
            (link,) = json.loads(self.inside.run("ip", "-j", "link", "show", port).stdout)
            port = link.get("master", port)
        words = ["from", packet.source, "iif", port, "ipproto", packet.protocol]
        words += ["sport", packet.ends[0], "dport", packet.ends[1]]
        words += ["mark", packet.mark] if packet.mark else []
        fate = self.lookup(packet.to, words)
        if fate[0] == "sent" and fate[2] in ("red", "blue"):
            # Sent by the device of a VRF, a packet is routed in that one.
            fate = self.lookup(packet.to, ["oif", fate[2]])
        return fate

    def lookup(self, to, words):
        done = self.inside.run("ip", f"-{self.family}", "-j", "route", "get", to, *words, check=False)
        if done.returncode != 0 and not done.stdout.strip():
            for text, fate in self.ERRORS.items():
                if text in done.stderr:
                    return (fate,)
            raise AssertionError(done.stderr)
        (row,) = json.loads(done.stdout)
        kind = row.get("type", "unicast")
        if kind in ("local", "broadcast"):
            return ({"local": "delivered", "broadcast": "dropped"}[kind],)
        if row.get("error") or kind != "unicast":
            named = {"unreachable": "unreachable", "prohibit": "prohibited", "blackhole": "dropped"}
            return (self.V6_ERRORS.get(row.get("error")) or named[kind],)
        return ("sent", row.get("gateway"), row["dev"])


class Hitpath:
    """A gateway with ports of these names. A filter makes the mark of a packet from its source port."""

    REASONS = {
        "no_route": "unreachable",
        "route_unreachable": "unreachable",
        "route_prohibit": "prohibited",
        "route_blackhole": "dropped",
        "not_unicast": "dropped",
        "port_down": "dropped",
    }

    def __init__(self, directory, family):
        self.family = family
        self.gateway = Gateway(Here, Config(ports=[Port(name, []) for name in PORTS]), directory)
        self.gateway.__enter__()

    def do(self, lines):
        for line in lines:
            self.gateway.run(f"-{self.family}", *line.split())

    def stop(self):
        self.gateway.__exit__(None, None, None)

    def fate(self, packet):
        if packet.mark:
            words = ["dev", packet.port, "ingress", "pref", 1, "action", "skbedit", "mark", packet.mark]
            self.gateway.run("filter", "replace", *words, "action", "pass")
        wrap = (lambda address: address) if self.family == 4 else (lambda address: f"[{address}]")
        ends = f"{wrap(packet.source)}:{packet.ends[0]} > {wrap(packet.to)}:{packet.ends[1]}"
        done = self.gateway.run("explain", "-j", f"{packet.protocol} {ends} in {packet.port}", check=False)
        if packet.mark:
            self.gateway.run("filter", "delete", "dev", packet.port, "ingress")
        steps = json.loads(done.stdout)
        # The last one of each, if one route leads on to the next.
        told = {step["stage"]: step for step in steps}
        outcome = told["outcome"]
        if outcome["fate"] == "answered" or outcome.get("reason", "").startswith("local_"):
            return ("delivered",)
        if outcome["fate"] == "dropped":
            return (self.REASONS[outcome["reason"]],)
        assert outcome["fate"].startswith("sent"), told
        return ("sent", told["route"].get("via"), told["route"]["port"])


def undo(lines):
    """The lines that take additions back, the last first."""
    other = {"add": "del", "del": "add"}
    return [re.sub(r"^(\w+) (add|del) ", lambda words: f"{words[1]} {other[words[2]]} ", line) for line in lines[::-1]]


class Beside:
    """Both, with the lines that all cases have. Made anew after a case that cannot be taken back."""

    def __init__(self, guest, directory, family):
        self.guest, self.directory, self.family, self.count = guest, directory, family, 0
        self.sides = []

    def up(self):
        if not self.sides:
            lines = [*VRFS.strip().splitlines(), *{4: V4, 6: V6}[self.family].strip().splitlines()]
            self.count += 1
            folder = self.directory / str(self.count)
            folder.mkdir()
            for side in (Linux(self.guest, self.family), Hitpath(folder, self.family)):
                self.sides.append(side)
                side.do(lines)
        return self.sides

    def down(self):
        for side in self.sides:
            side.stop()
        self.sides.clear()

    def differences(self, case):
        """The packets whose fates differ, and their fates."""
        lines = [in_family(line, self.family) for line in case.lines]
        linux, hitpath = self.up()
        for side in (linux, hitpath):
            side.do(lines)
        found = self.asked(case, linux, hitpath)
        if any(line.startswith("link") for line in lines):
            self.down()
        else:
            for side in (linux, hitpath):
                side.do(undo(lines))
        return found

    def asked(self, case, linux, hitpath):
        """The packets whose fates differ."""
        found = []
        for packet in case.packets:
            to, source = in_family(packet.to, self.family), in_family(packet.source, self.family)
            if to is None:
                continue
            translated = dataclasses.replace(packet, to=to, source=source)
            theirs, ours = linux.fate(translated), hitpath.fate(translated)
            if theirs != ours:
                found.append(f"{translated}: Linux {theirs}, hitpath {ours}")
        return found


@pytest.fixture(scope="module")
def beside(guest_world, tmp_path_factory):
    """Family -> both, with these VRFs."""
    guest, _, _ = guest_world
    running = {}

    def of(family):
        for other, sides in running.items():
            if other != family:
                sides.down()
        if family not in running:
            running[family] = Beside(guest, tmp_path_factory.mktemp(f"v{family}"), family)
        return running[family]

    yield of
    for sides in running.values():
        sides.down()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
def test_lookups(beside, family, name):
    both = beside(family)
    try:
        found = both.differences(CASES[name])
    except Exception:
        # What the next case begins with is not known any more.
        both.down()
        raise
    if family in DIFFERENCES.get(name, ("", ()))[1]:
        assert found, "there is no difference any more"
        print("\n".join(found))
    else:
        assert not found, "\n".join(found)


def test_the_document_lists_the_differences():
    section = DOCUMENT.read_text().split("## What differs from Linux", 1)[1]
    rows = re.findall(r"^\| `([a-z-]+)` \| ", section, re.MULTILINE)
    listed = [*DIFFERENCES.values(), *test_guest_vrf_errors.DIFFERENCES.values()]
    assert sorted(rows) == sorted({name for name, _ in listed})
