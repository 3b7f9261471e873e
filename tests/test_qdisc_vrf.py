"""The queueing discipline of a VRF: what leaves by all of its ports together has its rate, whichever port it is."""

import time

import pytest
from harness.config import Config, Port
from harness.gateway import Gateway
from harness.transfers import wait_for_listener

pytestmark = [pytest.mark.namespaces, pytest.mark.alone]

HOSTS = {"left": "blue", "one": "blue", "two": "blue", "out": "red", "in": "red"}
"""Host -> the VRF of its port."""

JOINT, OWN = 20, 5
"""Mbit/s of the VRF `blue`, and of its port `two` alone."""


@pytest.fixture(params=[1, 2], ids=["one-worker", "two-workers"])
def site(request, topology, tmp_path):
    """Hosts on five ports of two VRFs: `(hosts, gateway)`."""
    gw, hosts, config = topology.namespace("gw"), {}, Config(vrfs=["blue", "red"], workers=request.param)
    for number, (label, vrf) in enumerate(HOSTS.items(), 1):
        hosts[label] = host = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        host.addresses("eth0", f"10.{number}.0.2/24")
        host.ip("route", "add", "default", "via", f"10.{number}.0.1")
        config.ports.append(Port(label, [f"10.{number}.0.1/24"], kind="af-packet", interface=label, vrf=vrf))
    with Gateway(gw, config, tmp_path) as gateway:
        yield hosts, gateway


def address(label):
    return f"10.{list(HOSTS).index(label) + 1}.0.2"


def shape(gateway, device, megabits):
    """Gives a port or VRF a rate, which flows share."""
    gateway.run(*f"qdisc add dev {device} root handle 1: tbf rate {megabits}mbit burst 128kb limit 200kb".split())
    gateway.run(*f"qdisc add dev {device} parent 1: handle 2: fq_codel".split())


def shaper(gateway, device):
    """What its token bucket has counted."""
    return next(row for row in gateway.json("qdisc", "show", "dev", device) if row["handle"] == "1:")


def sent(gateway):
    """Bytes that have left, by port."""
    return {port["name"]: port["statistics"]["tx_bytes"] for port in gateway.json("show", "ports")}


def rates(gateway, hosts, *ways):
    """Mbit/s that leave by the ports while 40 Mbit/s of UDP come for each of these: `(from, to)`."""
    servers = [hosts[to].start("iperf3", "-s", "-1", "-B", address(to)) for _, to in ways]
    for _, to in ways:
        wait_for_listener(hosts[to], 5201)
    clients = [
        hosts[origin].start("iperf3", "-c", address(to), "-t", 12, "-u", "-b", "40M", "-l", "1200")
        for origin, to in ways
    ]
    time.sleep(2)
    before, began = sent(gateway), time.monotonic()
    time.sleep(6)
    after, took = sent(gateway), time.monotonic() - began
    for program in (*clients, *servers):
        program.kill()
        program.wait()
    return {to: 8 * (after[to] - before[to]) / took / 1e6 for _, to in ways}


@pytest.mark.parametrize("ports", [["one"], ["one", "two"]], ids=["by-one", "by-two"])
def test_ports_share_the_rate_of_their_vrf(site, ports):
    hosts, gateway = site
    shape(gateway, "blue", JOINT)
    found = rates(gateway, hosts, *(("left", port) for port in ports), ("out", "in"))
    assert abs(sum(found[port] for port in ports) / JOINT - 1) < 0.03, found
    for port in ports:
        assert abs(found[port] / (JOINT / len(ports)) - 1) < 0.1, found
    # The other VRF has no limit.
    assert found["in"] > 1.5 * JOINT, found
    row = shaper(gateway, "blue")
    assert row["drops"] > 0 and row["packets"] > 10_000


def test_a_ports_own_rate_comes_behind_that_of_its_vrf(site):
    hosts, gateway = site
    shape(gateway, "blue", JOINT)
    shape(gateway, "two", OWN)
    found = rates(gateway, hosts, ("left", "one"), ("left", "two"))
    # What the port's own discipline drops has passed that of the VRF, whose rate it has taken.
    assert abs(found["two"] / OWN - 1) < 0.03, found
    assert abs(found["one"] / (JOINT / 2) - 1) < 0.1, found
    two = shaper(gateway, "two")
    passed = two["packets"] + two["drops"] + two["qlen"]
    assert shaper(gateway, "blue")["packets"] > passed > 1.5 * two["packets"]


@pytest.mark.parametrize("way", ["moved", "down"])
@pytest.mark.parametrize("child", ["", "fq_codel"], ids=["fifo", "fq-codel"])
def test_what_may_not_leave_any_more_is_not_sent(site, child, way):
    """It is dropped at once and takes none of the rate of what comes behind it."""
    hosts, gateway = site
    # Ten seconds of this rate come at once below.
    gateway.run(*"qdisc add dev blue root handle 1: tbf rate 160kbit burst 4kb limit 300kb".split())
    if child:
        gateway.run(*f"qdisc add dev blue parent 1: handle 2: {child}".split())
    for host in ("one", "two"):
        hosts["left"].ping(address(host))
    before, on_wire_before = shaper(gateway, "blue"), frames(gateway)
    flood = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        f"[s.sendto(bytes(958), ('{address('one')}', 9)) for _ in range(200)]"
    )
    hosts["left"].run("python3", "-c", flood)
    wait_until(lambda: shaper(gateway, "blue")["qlen"] > 150)
    gateway.run(*("link set one master red" if way == "moved" else "link set one down").split())
    # Behind those that wait this would take eight seconds.
    began = time.monotonic()
    hosts["left"].ping(address("two"), count=1)
    assert time.monotonic() - began < 2
    # Under fq_codel, the others' turn may come first.
    wait_until(lambda: shaper(gateway, "blue")["qlen"] == 0, timeout=1)
    after, on_wire = shaper(gateway, "blue"), frames(gateway) - on_wire_before
    packets, drops = (after[key] - before[key] for key in ("packets", "drops"))
    # Beside the 200 there are pings, their answers, and ARP. What the port says in the other VRF is not counted here.
    assert on_wire - 5 <= packets <= on_wire, (on_wire, after)
    assert 202 <= packets + drops <= 230, after
    counted = gateway.drops()
    assert drops == counted["qdisc_flushed"] + counted.get("qdisc_codel", 0) > 140, counted
    if child:
        rows = {row["handle"]: row for row in gateway.json("qdisc", "show", "dev", "blue")}
        for key in ("packets", "bytes", "drops", "qlen", "backlog"):
            assert rows["1:"][key] == rows["2:"][key], rows


def frames(gateway):
    """Frames that have left by the ports that were in the VRF `blue` at first."""
    blue = [host for host, vrf in HOSTS.items() if vrf == "blue"]
    return sum(row["statistics"]["tx_packets"] for row in gateway.json("show", "ports") if row["name"] in blue)


def wait_until(true, timeout=5):
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
