"""Two uplinks with metrics between two gateways: a cable is pulled under traffic, and put back."""

import contextlib
import re
import time

import pytest
from harness.config import Config, Port
from harness.gateway import Gateway

pytestmark = pytest.mark.namespaces

KEY = "0x00112233445566778899aabbccddeeff0102"
INTERVAL = 0.02
"""Between two packets of a flow, in seconds."""
UPLINKS = ("up1", "up2")
SIDES = {
    "a": {4: ("10.1.0.0/24", "10.1.0.1", "10.1.0.5"), 6: ("fd01::/64", "fd01::1", "fd01::5")},
    "b": {4: ("10.2.0.0/24", "10.2.0.1", "10.2.0.5"), 6: ("fd02::/64", "fd02::1", "fd02::5")},
}
"""Gateway -> by family: the network behind it, its address there, and the host's."""
END = {"a": "192.0.2.1", "b": "192.0.2.2"}
"""Ends of the tunnel, on no uplink."""
NUMBER = {"a": 1, "b": 2}


def uplink(side, number, family):
    """A gateway's address on an uplink."""
    return f"10.10.{number}.{NUMBER[side]}" if family == 4 else f"fd10:{number}::{NUMBER[side]}"


def commands(side, has_tunnel):
    """Routes to the other side by both uplinks; with a tunnel, to its end."""
    other = "b" if side == "a" else "a"
    for family in (4, 6):
        targets = [SIDES[other][family][0]] + ([f"{END[other]}/32"] if has_tunnel and family == 4 else [])
        for number, metric in ((1, 10), (2, 20)):
            for target in targets:
                yield f"route add {target} via {uplink(other, number, family)} metric {metric}"
    if not has_tunnel:
        return
    # It is a tunnel end too, which would make the port an unprotected one.
    yield "link set lan side protected"
    for source, destination, spi in [(END["a"], END["b"], 0x1001), (END["b"], END["a"], 0x1002)]:
        yield (
            f"xfrm state add src {source} dst {destination} proto esp spi {spi:#x} mode tunnel reqid 1 "
            f"replay-window 64 aead rfc4106(gcm(aes)) {KEY}{spi:04x} 128"
        )
    for family in (4, 6):
        own, far = SIDES[side][family][0], SIDES[other][family][0]
        for direction, selector, ends in [("out", (own, far), (side, other)), ("in", (far, own), (other, side))]:
            yield (
                f"xfrm policy add src {selector[0]} dst {selector[1]} dir {direction} "
                f"tmpl src {END[ends[0]]} dst {END[ends[1]]} proto esp reqid 1 mode tunnel"
            )


@pytest.fixture(params=[False, True], ids=["clear", "tunnel"])
def world(request, topology, tmp_path):
    """Namespaces of the gateways, hosts and gateways, each by side."""
    spaces = {side: topology.namespace(side) for side in SIDES}
    for name in UPLINKS:
        topology.link(spaces["a"], name, spaces["b"], name)
    hosts, gateways = {}, {}
    with contextlib.ExitStack() as stack:
        for side, networks in SIDES.items():
            hosts[side] = host = topology.namespace(f"host-{side}")
            topology.link(spaces[side], "lan", host, "eth0")
            for name in (*UPLINKS, "lan"):
                spaces[side].silence(name)
            host.addresses("eth0", f"{networks[4][2]}/24", f"{networks[6][2]}/64")
            for family in (4, 6):
                host.ip(f"-{family}", "route", "add", "default", "via", networks[family][1])
            own = [f"{networks[4][1]}/24", f"{networks[6][1]}/64", f"{END[side]}/32"]
            ports = [Port("lan", own, kind="af-packet", interface="lan")]
            for number, name in enumerate(UPLINKS, 1):
                addresses = [f"{uplink(side, number, 4)}/24", f"{uplink(side, number, 6)}/64"]
                ports.append(Port(name, addresses, kind="af-packet", interface=name))
            place = tmp_path / side
            place.mkdir()
            gateways[side] = stack.enter_context(Gateway(spaces[side], Config(ports=ports), place))
            (place / "commands").write_text("\n".join(commands(side, request.param)) + "\n")
            gateways[side].run("batch", "--atomic", place / "commands")
        yield topology, spaces, hosts, gateways


def target(family):
    """The far host's address."""
    return SIDES["b"][family][2]


class Traffic:
    """Pings of both families from host a to host b, while something happens."""

    def __init__(self, hosts):
        self.jobs = {
            family: hosts["a"].start("ping", "-n", "-i", INTERVAL, target(family), stdout=-1) for family in (4, 6)
        }

    def end(self):
        """The longest time without an answer, by family, in seconds."""
        longest = {}
        for family, job in self.jobs.items():
            job.send_signal(2)
            told, _ = job.communicate(timeout=10)
            seen = [int(number) for number in re.findall(r"bytes from .* icmp_seq=(\d+)", told)]
            assert len(seen) > 10, told
            # What was under way at the end counts for nothing.
            gaps = [later - earlier for earlier, later in zip(seen, seen[1:])]
            sent = int(re.search(r"(\d+) packets transmitted", told)[1])
            longest[family] = max([*gaps, sent - seen[-1] - 5]) * INTERVAL
        return longest


def sent_by(gateway):
    """IP packets that left by each uplink."""
    return {row["ifname"]: row["stats64"]["tx"]["packets"] for row in gateway.json("link", "show") if row["ifname"] in UPLINKS}


def used(gateway, seconds=0.4):
    """By which uplinks what is under way leaves."""
    before = sent_by(gateway)
    time.sleep(seconds)
    after = sent_by(gateway)
    # Questions for neighbours are no flow.
    return {name for name in UPLINKS if after[name] - before[name] > 5}


def pull(topology, spaces, how):
    """Takes the first uplink away in one of several ways; returns what puts it back."""
    if how == "down":
        spaces["a"].ip("link", "set", "up1", "down")
        return lambda: spaces["a"].ip("link", "set", "up1", "up")
    if how == "peer":
        spaces["b"].ip("link", "set", "up1", "down")
        return lambda: spaces["b"].ip("link", "set", "up1", "up")
    spaces["a"].ip("link", "del", "up1")

    def back():
        topology.link(spaces["a"], "up1", spaces["b"], "up1")
        for side in spaces:
            spaces[side].silence("up1")

    return back


@pytest.mark.parametrize("how", ["down", "peer", "removed"])
def test_flows_are_back_within_a_second_and_return(world, how):
    topology, spaces, hosts, gateways = world
    for family in (4, 6):
        hosts["a"].ping(target(family), count=2)
    traffic = Traffic(hosts)
    time.sleep(0.5)
    assert used(gateways["a"]) == used(gateways["b"]) == {"up1"}
    put_back = pull(topology, spaces, how)
    time.sleep(1.2)
    assert used(gateways["a"]) == used(gateways["b"]) == {"up2"}
    shown = gateways["a"].run("route", "show", "exact", SIDES["b"][4][0]).stdout
    assert "dead" in next(line for line in shown.splitlines() if "metric 10" in line), shown
    put_back()
    time.sleep(1.5)
    assert used(gateways["a"]) == used(gateways["b"]) == {"up1"}
    longest = traffic.end()
    assert max(longest.values()) < 1, longest


def test_a_next_hop_that_is_silent_while_its_link_is_up_keeps_its_route(world):
    """As with Linux, only the link tells that a route is dead."""
    _, spaces, hosts, gateways = world
    hosts["a"].ping(target(4), count=2)
    # The far gateway's port does not answer any more, and its cable is in.
    gateways["b"].run("link", "set", "up1", "down")
    hosts["a"].ping(target(4), count=2, check=False)
    shown = gateways["a"].run("route", "show", "exact", SIDES["b"][4][0]).stdout
    assert "dead" not in shown, shown
    # Whoever knows takes the route away, and the next one is used at once.
    gateways["a"].run("link", "set", "up1", "down")
    hosts["a"].ping(target(4), count=3)
