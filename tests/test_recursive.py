"""Next hops that another route leads to, between hosts that are network namespaces."""

import json

import pytest
from harness.config import Config, Port
from harness.gateway import Gateway

pytestmark = pytest.mark.namespaces

LINKS = {4: {"left": "10.1.0.", "one": "10.2.0.", "two": "10.3.0."}, 6: {"left": "fd01::", "one": "fd02::", "two": "fd03::"}}
LENGTH = {4: 24, 6: 64}
HOST = {4: 32, 6: 128}
FAR = {4: "203.0.113.1", 6: "2001:db8:113::1"}
NEXT_HOP = {4: "198.51.100.1", 6: "2001:db8:100::1"}
"""On no link: what a BGP speaker behind both uplinks would say."""
OTHER = {4: "10.9.0.0/16", 6: "fd09::/16"}
families = pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])


@families
def test_traffic_follows_the_route_to_the_next_hop(topology, tmp_path, family):
    gw, hosts, ports = topology.namespace("gw"), {}, []
    far, next_hop = FAR[family], NEXT_HOP[family]
    to, through = f"{far}/{HOST[family]}", f"{next_hop}/{HOST[family]}"
    for label, net in LINKS[family].items():
        hosts[label] = host = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        # It would lose its addresses when the cable is pulled.
        host.sysctl("net.ipv6.conf.eth0.keep_addr_on_down", 1)
        host.addresses("eth0", f"{net}2/{LENGTH[family]}")
        host.ip(f"-{family}", "route", "add", "default", "via", f"{net}1")
        ports.append(Port(label, [f"{net}1/{LENGTH[family]}"], kind="af-packet", interface=label))
        if label != "left":
            host.addresses("lo", to)
    left, one, two = (LINKS[family][label] for label in ("left", "one", "two"))

    def received(label):
        return int(hosts[label].run("cat", "/sys/class/net/eth0/statistics/rx_packets").stdout)

    def taken_by(label):
        before = received(label)
        hosts["left"].ping_exactly(far, 5)
        return received(label) - before >= 5

    config = Config(ports=ports)
    with Gateway(gw, config, tmp_path) as gateway:
        gateway.run("route", "add", to, "via", next_hop, "recursive")
        shown = gateway.run(f"-{family}", "route", "show", "exact", to).stdout
        assert "dead" in shown and f"unresolved: there is no route to {next_hop}" in shown, shown
        ends = {4: f"{left}2 > {far}", 6: f"[{left}2] > [{far}]"}[family]
        told = gateway.run("explain", f"udp {ends} in left", check=False).stdout
        assert f"there is no route to {next_hop}" in told, told
        gateway.run("route", "add", through, "via", f"{one}2", "metric", "10")
        gateway.run("route", "add", through, "via", f"{two}2", "metric", "20")
        assert taken_by("one")
        hosts["one"].ip("link", "set", "eth0", "down")
        # What is sent before the gateway knows is lost in the cable.
        gateway.wait_for_no_carrier("one")
        hosts["left"].ping(far, count=3)
        assert taken_by("two")
        shown = gateway.run(f"-{family}", "route", "show", "exact", to).stdout
        assert f"resolved via {two}2 dev two" in shown, shown
        told = gateway.run("explain", f"udp {ends} in left", check=False).stdout
        assert f"route      {far} by {to} via {two}2 on two; recursive: {next_hop} is reached by {through}\n" in told, told
        stages = json.loads(gateway.run("-j", "explain", f"udp {ends} in left", check=False).stdout)
        (route,) = [stage for stage in stages if stage["stage"] == "route" and "recursive" in stage]
        assert route["recursive"] == [{"via": next_hop, "prefix": through}], route
        refused = gateway.run("route", "add", OTHER[family], "via", next_hop, check=False)
        assert refused.returncode != 0 and "is not on the link of any port" in refused.stderr, refused
        # One that would depend on itself changes nothing.
        before = gateway.run("route", "show", "table", "all").stdout
        refused = gateway.run("route", "add", through, "via", far, "recursive", "metric", "5", check=False)
        assert refused.returncode != 0 and f"{through} > {to} > {through}" in refused.stderr, refused
        assert gateway.run("route", "show", "table", "all").stdout == before
        assert "recursive = true" in gateway.run("save").stdout
    with Gateway(gw, config, tmp_path) as gateway:
        assert gateway.run("route", "show", "table", "all").stdout == before
        assert taken_by("two")


@families
def test_a_file_with_a_circle_is_refused_whole(topology, tmp_path, family):
    gw = topology.namespace("gw")
    net = LINKS[family]["left"]
    config = Config(ports=[Port("left", [f"{net}1/{LENGTH[family]}"])])
    with Gateway(gw, config, tmp_path) as gateway:
        good = gateway.config_path.read_text()
        route = '[[route]]\nto = "{}/{}"\nvia = "{}"\nrecursive = true\n'
        circle = [(FAR, NEXT_HOP), (NEXT_HOP, FAR)]
        circle = "".join(route.format(to[family], HOST[family], via[family]) for to, via in circle)
        harmless = f'[[route]]\nto = "{OTHER[family]}"\nkind = "blackhole"\n'
        gateway.config_path.write_text(good + harmless + circle)
        for words in (["check", gateway.config_path], ["reload"]):
            refused = gateway.run(*words, check=False)
            said = refused.stdout + refused.stderr
            assert refused.returncode != 0 and "would depend on itself" in said, said
        assert gateway.run("route", "show", "table", "all").stdout.count("blackhole") == 0
        gateway.config_path.write_text(good + harmless)
        gateway.run("reload")
        assert "blackhole" in gateway.run("route", "show", "table", "all").stdout
