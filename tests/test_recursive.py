"""Next hops that another route leads to, between hosts that are network namespaces."""

import pytest
from harness.config import Config, Port
from harness.gateway import Gateway

pytestmark = pytest.mark.namespaces

LINKS = {"left": "10.1.0", "one": "10.2.0", "two": "10.3.0"}
FAR = "203.0.113.1"
NEXT_HOP = "198.51.100.1"
"""On no link: what a BGP speaker behind both uplinks would say."""


def test_traffic_follows_the_route_to_the_next_hop(topology, tmp_path):
    gw, hosts, ports = topology.namespace("gw"), {}, []
    for label, net in LINKS.items():
        hosts[label] = host = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        host.addresses("eth0", f"{net}.2/24")
        host.ip("route", "add", "default", "via", f"{net}.1")
        ports.append(Port(label, [f"{net}.1/24"], kind="af-packet", interface=label))
        if label != "left":
            host.addresses("lo", f"{FAR}/32")

    def received(label):
        return int(hosts[label].run("cat", "/sys/class/net/eth0/statistics/rx_packets").stdout)

    def taken_by(label):
        before = received(label)
        hosts["left"].ping_exactly(FAR, 5)
        return received(label) - before >= 5

    config = Config(ports=ports)
    with Gateway(gw, config, tmp_path) as gateway:
        gateway.run("route", "add", f"{FAR}/32", "via", NEXT_HOP, "recursive")
        shown = gateway.run("route", "show", "exact", f"{FAR}/32").stdout
        assert "dead" in shown and f"unresolved: there is no route to {NEXT_HOP}" in shown, shown
        told = gateway.run("explain", f"udp 10.1.0.2 > {FAR} in left", check=False).stdout
        assert f"there is no route to {NEXT_HOP}" in told, told
        gateway.run("route", "add", f"{NEXT_HOP}/32", "via", "10.2.0.2", "metric", "10")
        gateway.run("route", "add", f"{NEXT_HOP}/32", "via", "10.3.0.2", "metric", "20")
        assert taken_by("one")
        hosts["one"].ip("link", "set", "eth0", "down")
        hosts["left"].ping(FAR, count=3)
        assert taken_by("two")
        shown = gateway.run("route", "show", "exact", f"{FAR}/32").stdout
        assert "resolved via 10.3.0.2 dev two" in shown, shown
        refused = gateway.run("route", "add", "10.9.0.0/16", "via", NEXT_HOP, check=False)
        assert refused.returncode != 0 and "is not on the link of any port" in refused.stderr, refused
        assert "recursive = true" in gateway.run("save").stdout
        before = gateway.run("route", "show").stdout
    with Gateway(gw, config, tmp_path) as gateway:
        assert gateway.run("route", "show").stdout == before
        assert taken_by("two")
