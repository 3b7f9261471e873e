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
