"""Routes with several next hops, between hosts that are network namespaces."""

import contextlib
import re
import socket
import time

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway

pytestmark = pytest.mark.namespaces

SIDES = {
    "left": {4: ("10.1.0.1", "10.1.0.2"), 6: ("fd01::1", "fd01::2")},
    "one": {4: ("10.2.0.1", "10.2.0.2"), 6: ("fd02::1", "fd02::2")},
    "two": {4: ("10.3.0.1", "10.3.0.2"), 6: ("fd03::1", "fd03::2")},
    "three": {4: ("10.4.0.1", "10.4.0.2"), 6: ("fd04::1", "fd04::2")},
}
"""Host -> family -> the gateway's address, and the host's."""
FAR = {4: "203.0.113.1", 6: "2001:db8::1"}
"""What hosts one, two and three all have on their loopback."""
WEIGHTS = {"one": 4, "two": 2, "three": 2}
FLOWS = range(20_000, 20_400)
TARGET = 5000


def made(topology, tmp_path, vrfs):
    """The hosts by name, and the gateway between them, whose ports are in these VRFs."""
    gw, hosts, ports = topology.namespace("gw"), {}, []
    for label, side in SIDES.items():
        hosts[label] = host = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        host.addresses("eth0", f"{side[4][1]}/24", f"{side[6][1]}/64")
        for family in (4, 6):
            host.ip(f"-{family}", "route", "add", "default", "via", side[family][0])
        own = [f"{side[4][0]}/24", f"{side[6][0]}/64"]
        ports.append(Port(label, own, kind="af-packet", interface=label, vrf=vrfs.get(label, "")))
        if label != "left":
            host.addresses("lo", f"{FAR[4]}/32", f"{FAR[6]}/128")
    with Gateway(gw, Config(ports=ports, vrfs=sorted(set(vrfs.values()))), tmp_path) as gateway:
        yield hosts, gateway


@pytest.fixture
def world(topology, tmp_path):
    yield from made(topology, tmp_path, {})


@pytest.fixture
def apart(topology, tmp_path):
    """The left host in a VRF of its own, the others in two more and in `main`."""
    yield from made(topology, tmp_path, {"left": "red", "one": "blue", "two": "green"})


def udp(family):
    """A socket that does not wait."""
    opened = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    opened.setblocking(False)
    return opened


class Flows:
    """A socket for each flow at the left host, and one at each host behind the gateway."""

    def __init__(self, stack, hosts, family):
        self.family, self.receivers, self.senders = family, {}, []
        for label in WEIGHTS:
            with hosts[label].entered():
                self.receivers[label] = stack.enter_context(udp(family))
            self.receivers[label].bind((FAR[family], TARGET))
        with hosts["left"].entered():
            for port in FLOWS:
                self.senders.append(stack.enter_context(udp(family)))
                self.senders[-1].bind((SIDES["left"][family][1], port))

    def spread(self):
        """Which host each flow's packet comes to, by source port. Demands that every packet comes, and once."""
        arrived = {}
        for number, sender in enumerate(self.senders):
            sender.sendto(b"flow", (FAR[self.family], TARGET))
            # Receivers' buffers are of a limited size.
            if number % 50 == 49:
                self.receive(arrived, number + 1)
        assert set(arrived) == set(FLOWS)
        return arrived

    def receive(self, arrived, count):
        """Waits until `count` have arrived."""
        until = time.monotonic() + 5
        while len(arrived) < count and time.monotonic() < until:
            for label, receiver in self.receivers.items():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        _, (_, port, *_) = receiver.recvfrom(100)
                        assert port not in arrived, port
                        arrived[port] = label
            time.sleep(0.005)


def sent(gateway, family):
    """What the gateway says that it sent to each host."""
    by = {row["address"]: row["packets"] for row in gateway.json("show", "next-hops")}
    return {label: by[SIDES[label][family][1]] for label in WEIGHTS}


@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
def test_flows_are_shared_out_by_weight_and_move_only_with_their_next_hop(world, family):
    hosts, gateway = world
    route = f"{FAR[family]}/{32 if family == 4 else 128}"
    members = []
    for label, weight in WEIGHTS.items():
        members += ["nexthop", "via", SIDES[label][family][1], "dev", label, "weight", str(weight)]
        # All are known, so that nothing waits.
        gateway.run("neigh", "add", SIDES[label][family][1], "lladdr", hosts[label].mac("eth0"), "dev", label)
    gateway.run("route", "add", route, *members)
    with contextlib.ExitStack() as stack:
        flows = Flows(stack, hosts, family)
        before = sent(gateway, family)
        first = flows.spread()
        after = sent(gateway, family)
        for label, weight in WEIGHTS.items():
            count = list(first.values()).count(label)
            # Five standard deviations, which are ten flows at most.
            assert abs(count - len(FLOWS) * weight / 8) < 50, (label, count)
            assert after[label] - before[label] == count
        assert flows.spread() == first

        gateway.run("link", "set", "two", "down")
        then = flows.spread()
        assert "two" not in then.values()
        assert {port: to for port, to in then.items() if first[port] != "two"} == {
            port: to for port, to in first.items() if to != "two"
        }
        assert {to for port, to in then.items() if first[port] == "two"} == {"one", "three"}
        shown = gateway.run("route", "show", route).stdout
        assert f"\tnexthop via {SIDES['two'][family][1]} dev two weight 2 dead\n" in shown
        (row,) = gateway.json("route", "show", route)
        assert [(m["gateway"], m["dev"], m["weight"], m["flags"]) for m in row["nexthops"]] == [
            (SIDES[label][family][1], label, weight, ["dead"] if label == "two" else [])
            for label, weight in WEIGHTS.items()
        ]
        gateway.run("link", "set", "two", "up")
        assert flows.spread() == first

        # Explain says of a flow what has become of it.
        near, far = (
            address if family == 4 else f"[{address}]" for address in (SIDES["left"][family][1], FAR[family])
        )
        for port in FLOWS[:10]:
            explained = gateway.json("explain", f"udp {near}:{port} > {far}:{TARGET} in left")
            (taken,) = (step for step in explained if step["stage"] == "next-hop")
            label = first[port]
            assert (taken["via"], taken["port"]) == (SIDES[label][family][1], label), taken
            assert taken["weight"] == WEIGHTS[label] and len(taken["of"]) == 3, taken
            assert re.fullmatch(r"[0-9a-f]{16}", taken["hash"]), taken

        # One goes out of the route for good.
        gateway.run("route", "replace", route, *members[:14])
        then = flows.spread()
        assert "three" not in then.values()
        assert all(then[port] == to for port, to in first.items() if to != "three")
        gateway.run("route", "del", route, *members[:14])
        assert gateway.run("route", "show", route).stdout == ""


@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
def test_next_hops_by_ports_of_other_vrfs(apart, family):
    """Flows are shared out among VRFs, and those alone move whose port goes down or out of its VRF."""
    hosts, gateway = apart
    route = f"{FAR[family]}/{32 if family == 4 else 128}"
    members = []
    for label, weight in WEIGHTS.items():
        members += ["nexthop", "via", SIDES[label][family][1], "dev", label, "weight", str(weight)]
        gateway.run("neigh", "add", SIDES[label][family][1], "lladdr", hosts[label].mac("eth0"), "dev", label)
    gateway.run("route", "add", route, "vrf", "red", *members)
    with contextlib.ExitStack() as stack:
        flows = Flows(stack, hosts, family)
        before = sent(gateway, family)
        first = flows.spread()
        after = sent(gateway, family)
        for label, weight in WEIGHTS.items():
            count = list(first.values()).count(label)
            assert abs(count - len(FLOWS) * weight / 8) < 50, (label, count)
            assert after[label] - before[label] == count
        # Others have no such route.
        explained = gateway.run("explain", f"udp {ends(family)} in one", check=False).stdout
        assert "no route" in explained, explained
        gateway.run("link", "set", "two", "down")
        then = flows.spread()
        assert {port for port in FLOWS if then[port] != first[port]} == {port for port in FLOWS if first[port] == "two"}
        assert "two" not in then.values()
        gateway.run("link", "set", "two", "up")
        gateway.run("neigh", "replace", SIDES["two"][family][1], "lladdr", hosts["two"].mac("eth0"), "dev", "two")
        assert flows.spread() == first


def ends(family):
    """A packet from host one to the others' address, in the words of `explain`."""
    source, destination = SIDES["one"][family][1], FAR[family]
    return f"{source}:1 > {destination}:{TARGET}" if family == 4 else f"[{source}]:1 > [{destination}]:{TARGET}"
