"""Metrics: the values of `show`, in a format that Prometheus takes, whoever asks and however."""

import json
import os
import re
import socket
import time

import pytest

from harness import metrics
from harness.gateway import Gateway, Here, binary
from harness.hosted import hosted
from harness.netns import run

PORT = 9464
TOKEN = "a-token-of-sufficient-length"
KEY = "0x1c0cf2bb72ce67ba245b593076dfb27a"
LINES = f"""\
xfrm state add src 192.168.11.2 dst 192.168.11.1 spi 1 proto esp mode tunnel reqid 1 auth sha1 {KEY} enc cbc(aes) {KEY}
xfrm state add dst 192.168.11.2 src 192.168.11.1 spi 2 proto esp mode tunnel reqid 1 auth sha1 {KEY} enc cbc(aes) {KEY}
xfrm policy add src 192.168.13.0/24 dst 192.168.12.0/24 dir out tmpl dst 192.168.11.1 proto esp mode tunnel reqid 1
xfrm policy add src 192.168.99.0/24 dst 192.168.13.0/24 dir in action allow name from-99
filter add dev lan ingress pref 10 ip_proto udp dst_port 53 action pass
filter add vrf main egress pref 20 protocol ip src_ip 192.168.13.0/24 action drop
qdisc add dev wan root tbf rate 100mbit burst 32k latency 50ms
vrf add blue
"""


@pytest.fixture
def gateway_with(topology, tmp_path):
    """Makes a gateway between two hosts that say what they are told to, with these keys of `[metrics]`."""

    return lambda **keys: hosted(topology, tmp_path, metrics=keys)


def selector(said):
    """A selector as `hitpath xfrm policy` takes it."""
    return f"src {said['source']} dst {said['destination']}"


def expected(gateway):
    """What the metrics should be, by `show`."""
    values = {}

    def is_(name, value, /, **labels):
        values[name, tuple(sorted((label, str(text)) for label, text in labels.items()))] = float(value)

    for drop in gateway.json("show", "drops"):
        is_("hitpath_dropped_packets_total", drop["packets"], reason=drop["reason"])
    for port in gateway.json("show", "ports"):
        of = {"port": port["name"]}
        is_("hitpath_port_up", port["up"], **of)
        is_("hitpath_port_mtu_bytes", port["mtu"], **of)
        counted = port["statistics"]
        is_("hitpath_port_receive_packets_total", counted["rx_packets"], **of)
        is_("hitpath_port_receive_bytes_total", counted["rx_bytes"], **of)
        is_("hitpath_port_receive_ring_full_packets_total", counted["rx_ring_full"], **of)
        is_("hitpath_port_transmit_packets_total", counted["tx_packets"], **of)
        is_("hitpath_port_transmit_bytes_total", counted["tx_bytes"], **of)
        is_("hitpath_port_device_receive_packets_total", port["device"]["rx_packets"], **of)
        is_("hitpath_port_device_transmit_bytes_total", port["device"]["tx_bytes"], **of)
        is_("hitpath_port_ipv4_neighbours", port["neighbours"]["ipv4"], **of)
    for worker in gateway.json("show", "workers"):
        for counter in worker["counters"]:
            # These go on while nothing passes.
            if counter["name"] not in ("rounds", "idle_rounds", "held"):
                is_(f"hitpath_worker_{counter['name']}_total", counter["value"], worker=worker["index"])
        is_("hitpath_worker_dropped_total", worker["drops"], worker=worker["index"])
    for cache in gateway.json("show", "cache")["workers"]:
        of = {"worker": cache["worker"], "table": cache["table"]}
        is_("hitpath_cache_hits_total", cache["hits"], **of)
        is_("hitpath_cache_inserted_total", cache["inserted"], **of)
        is_("hitpath_cache_buckets", cache["buckets"], **of)
        for reason, packets in cache["misses"].items():
            is_("hitpath_cache_misses_total", packets, reason=reason, **of)
    for sa in gateway.json("show", "sas"):
        of = {name: sa[name] for name in ("vrf", "source", "destination", "reqid")}
        of |= {"spi": f"{sa['spi']:#010x}", "if_id": sa.get("if_id", 0)}
        is_("hitpath_sa_packets_total", sa["packets"], **of)
        is_("hitpath_sa_bytes_total", sa["bytes"], **of)
        is_("hitpath_sa_error_packets_total", sa["errors"]["packets"], **of)
        is_("hitpath_sa_sent_sequence_number", sa["sent_sequence"], **of)
    for policy in gateway.json("show", "policies"):
        of = {name: policy[name] for name in ("vrf", "direction", "action", "index")}
        of |= {"if_id": policy.get("if_id", 0), "name": policy.get("name", ""), "selector": selector(policy["selector"])}
        is_("hitpath_policy_packets_total", policy["packets"], **of)
        is_("hitpath_policy_bytes_total", policy["bytes"], **of)
    for rule in gateway.json("filter", "show"):
        place = {"dev": "", "vrf": "", "hook": rule["hook"]} | rule["target"]
        counted = next(action["stats"] for action in rule["options"]["actions"] if "stats" in action)
        for name, value in (("", counted["packets"]), ("dropped_", counted["drops"])):
            is_(f"hitpath_filter_{name}packets_total", value, protocol=rule["protocol"], pref=rule["pref"], **place)
    for flow in gateway.json("flow", "show"):
        of = {"vrf": flow["vrf"], "table": flow["table"], "priority": flow["priority"], "match": flow["matches"]}
        is_("hitpath_flow_packets_total", flow["n_packets"], cookie=flow["cookie"], **of)
    for vrf in gateway.json("show", "vrfs"):
        is_("hitpath_vrf_routes", vrf["routes"], vrf=vrf["name"])
        is_("hitpath_vrf_policies", vrf["policies"], vrf=vrf["name"])
        is_("hitpath_vrf_closed", vrf["closed"], vrf=vrf["name"])
    for hop in gateway.json("show", "next-hops"):
        of = {"id": hop["id"], "vrf": hop["vrf"], "port": hop["port"], "address": hop["address"] or ""}
        is_("hitpath_next_hop_packets_total", hop["packets"], **of)
    for qdisc in gateway.json("qdisc", "show"):
        if qdisc["kind"] == "tbf":
            of = {"dev": qdisc["dev"], "handle": qdisc["handle"], "parent": "", "kind": "tbf"}
            is_("hitpath_qdisc_packets_total", qdisc["packets"], **of)
    firewall = gateway.json("firewall", "show")
    # There may be none.
    policies = zip(firewall["spec"]["policies"], firewall["policies"]) if "spec" in firewall else []
    for at, (policy, counts) in enumerate(policies):
        zones = {"from": " ".join(policy["from"]), "to": " ".join(policy["to"]), "number": at + 1}
        for number, counted in enumerate(counts):
            is_rule = number < len(policy.get("rules", []))
            of = zones | ({"kind": "rule", "rule": number + 1} if is_rule else {"kind": "rest", "rule": ""})
            is_("hitpath_firewall_packets_total", counted["packets"], **of)
            is_("hitpath_firewall_bytes_total", counted["bytes"], **of)
    for kind in ("unnamed", "invalid", "rerouted") if "spec" in firewall else ():
        empty = {"number": "", "rule": "", "from": "", "to": ""}
        is_("hitpath_firewall_packets_total", firewall[kind]["packets"], kind=kind, **empty)
    counted = gateway.json("show", "connections")
    is_("hitpath_connections", counted["connections"])
    is_("hitpath_connections_made_total", counted["made"])
    return values


def agreed(gateway):
    """The values of `show` and all of the metrics. ARP and neighbour discovery may still count meanwhile, so a moment is
    waited for that is the same for both."""
    end = time.monotonic() + 30
    while True:
        wanted = expected(gateway)
        values = metrics.samples(metrics.ask(gateway.socket))
        different = {key: (value, values.get(key)) for key, value in wanted.items() if values.get(key) != value}
        if not different:
            return wanted, values
        assert time.monotonic() < end, f"(show, metrics): {different}"
        time.sleep(1.1)


def test_values_are_those_that_show_prints(gateway_with):
    gateway, _, lan = gateway_with()
    with gateway:
        lan.run("ping", "-c", "3", "-i", "0.2", "192.168.13.1")
        for line in LINES.splitlines():
            gateway.run(*line.split())
        # Nobody answers there; each way of dropping is counted all the same.
        lan.run("ping", "-c", "2", "-i", "0.2", "-W", "1", "192.168.12.7", check=False)
        lan.run("ping", "-c", "2", "-i", "0.2", "-W", "1", "203.0.113.9", check=False)
        wanted, values = agreed(gateway)
        assert metrics.of(values, "hitpath_port_receive_packets_total", port="lan") >= 3
        assert metrics.of(values, "hitpath_objects", kind="sa") == 2
        assert len(wanted) > 150
        # A name and a selector tell policies apart.
        (named,) = [policy for policy in gateway.json("show", "policies") if "name" in policy]
        of = {"selector": "src 192.168.99.0/24 dst 192.168.13.0/24", "name": "from-99", "index": named["index"]}
        of |= {"vrf": "main", "if_id": 0, "direction": "in", "action": "bypass"}
        assert metrics.of(values, "hitpath_policy_packets_total", **of) == 0
        assert metrics.of(values, "hitpath_filter_dropped_packets_total", dev="", vrf="main", hook="egress", protocol="ip", pref=20) > 0


FIREWALL = """
[[firewall.zone]]
name = "inside"
ports = ["lan"]

[[firewall.zone]]
name = "outside"
ports = ["wan"]

[[firewall.policy]]
from = ["inside"]
to = ["outside"]
rules = [{ services = ["icmp/8"], action = "accept" }, { services = ["tcp/22"], action = "drop" }]

[[firewall.policy]]
from = ["inside"]
to = ["gateway"]
rules = [{ services = ["ping"], action = "accept" }]
"""


def test_values_of_the_firewall_and_its_flows_are_those_that_show_prints(gateway_with):
    gateway, _, lan = gateway_with()
    gateway.write(gateway.config_path.read_text() + FIREWALL)
    with gateway:
        gateway.run("flow", "add", "table=0,priority=60000,udp,tp_dst=9,actions=drop")
        lan.run("ping", "-c", "3", "-i", "0.2", "192.168.13.1")
        lan.run("ping", "-c", "2", "-i", "0.2", "-W", "1", "192.168.11.1", check=False)
        for port in (22, 23):
            lan.run("timeout", "1", "bash", "-c", f"echo > /dev/tcp/192.168.11.1/{port}", check=False)
        lan.run("bash", "-c", "for at in 1 2 3; do echo x > /dev/udp/192.168.11.1/9; done", check=False)
        wanted, values = agreed(gateway)
        counted = {key: value for key, value in wanted.items() if value > 0}

        def at_least(most, name, **labels):
            found = [value for (of, said), value in counted.items() if of == name and labels.items() <= dict(said).items()]
            assert found and max(found) >= most, (name, labels, counted)

        at_least(1, "hitpath_firewall_packets_total", kind="rule", number="1", rule="1")
        at_least(1, "hitpath_firewall_packets_total", kind="rule", number="2", rule="1")
        at_least(3, "hitpath_flow_packets_total", priority="60000")
        assert len([key for key in wanted if key[0] == "hitpath_flow_packets_total"]) == metrics.of(values, "hitpath_objects", kind="flow")


def test_promtool_and_its_own_page_know_every_metric(gateway_with):
    gateway, _, _ = gateway_with()
    with gateway:
        for line in LINES.splitlines():
            gateway.run(*line.split())
        text = metrics.ask(gateway.socket)
        told = metrics.promtool("check", "metrics", stdin=text)
        assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
        page = (metrics.ROOT / "docs/metrics.md").read_text()
        for name, _ in metrics.samples(text):
            assert f"| `{name}` |" in page, name
        openmetrics = metrics.ask(gateway.socket, "-H", "Accept: application/openmetrics-text; version=1.0.0")
        assert openmetrics.endswith("\n# EOF\n")
        assert metrics.samples(openmetrics).keys() == metrics.samples(text).keys()


def test_many_objects_are_counted_and_not_listed(gateway_with, tmp_path):
    gateway, _, _ = gateway_with(objects=100)
    with gateway:
        lines = tmp_path / "lines"
        policy = "xfrm policy add src 10.{}.{}.0/24 dst 10.200.0.0/16 dir out action block\n"
        lines.write_text("".join(policy.format(at // 256, at % 256) for at in range(20_000)))
        gateway.run("batch", lines, timeout=120)
        text = metrics.ask(gateway.socket)
        values = metrics.samples(text)
        assert metrics.of(values, "hitpath_objects", kind="policy") == 20_000
        assert metrics.of(values, "hitpath_objects_left_out", kind="policy") == 20_000
        assert metrics.of(values, "hitpath_vrf_policies", vrf="main") == 20_000
        assert metrics.of(values, "hitpath_objects_left_out", kind="port") == 0
        assert "hitpath_policy_packets_total" not in text
        assert len(text) < 200_000


def test_a_token_is_asked_for_and_nothing_else_is_there(gateway_with, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    gateway, gw, _ = gateway_with(address=f"0.0.0.0:{PORT}", **{"token-file": "token"})
    with gateway:
        assert f"metrics are served in clear text at 0.0.0.0:{PORT}" in gateway.log()

        def status(path, *options):
            url = f"http://127.0.0.1:{PORT}{path}"
            return gw.run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", *options, url).stdout

        bearer = ("-H", f"Authorization: Bearer {TOKEN}")
        assert status("/metrics") == status("/metrics", "-H", f"Authorization: Bearer {TOKEN}x") == "401"
        assert status("/metrics", *bearer) == "200"
        assert status("/v1", *bearer, "-d", '{"do":"version"}') == status("/", *bearer) == "404"
        assert status("/metrics", *bearer, "-X", "DELETE") == "405"


def test_an_address_for_everybody_has_to_be_meant(tmp_path):
    file = tmp_path / "gw.toml"
    port = '[[port]]\nname = "p"\nkind = "memory"\n'
    file.write_text(f'[metrics]\naddress = "0.0.0.0:9464"\n{port}')
    told = run([binary(), "check", file], check=False)
    assert told.returncode == 1
    assert "gw.toml:2:11: whoever reaches 0.0.0.0:9464 could read" in told.stderr + told.stdout


def test_clients_that_hang_cost_nobody_else(gateway_with):
    gateway, gw, lan = gateway_with(address=f"127.0.0.1:{PORT}")
    with gateway:
        flood = """
import socket, sys
held = []
for at in range(200):
    one = socket.create_connection(("127.0.0.1", %d))
    # Nothing, half a request, or a request whose reply is not read.
    one.sendall([b"", b"GET /metr", b"GET /metrics HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"][at %% 3])
    held.append(one)
print("held", flush=True)
sys.stdin.read()
""" % PORT
        hostile = gw.start("python3", "-c", flood, stdin=-1)
        assert hostile.stdout.readline() == "held\n"
        assert "hitpath_build_info" in gw.run("curl", "-sS", "--max-time", "60", f"http://127.0.0.1:{PORT}/metrics", timeout=70).stdout
        assert "hitpath_build_info" in metrics.ask(gateway.socket)
        lan.ping("192.168.13.1", count=5)
        # Its standard input ends, and so does it.
        hostile.communicate(timeout=30)


@pytest.fixture
def manager(tmp_path):
    """A socket that a service manager would listen on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(30)
        yield listener


def test_a_service_manager_is_told_how_the_gateway_is(manager, tmp_path):
    config = '[gateway]\nworkers = 2\nsocket = "{}"\n[[port]]\nname = "p"\nkind = "memory"\n'
    gateway = Gateway(Here, "", tmp_path)
    gateway.write(config.format(gateway.socket))
    gateway.env = os.environ | {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "4000000"}
    with gateway:
        told = {}
        # In this order or another: the first tick may come before the gateway says that it is ready.
        while told.get("WATCHDOG=1", 0) < 3 or "READY=1" not in told:
            for line in manager.recv(4096).decode().splitlines():
                told[line] = told.get(line, 0) + 1
        assert told["READY=1"] == 1 and "STATUS=packets pass, by 2 workers" in told
    while "STOPPING=1" not in manager.recv(4096).decode():
        pass


def test_rules_and_dashboard_name_metrics_that_there_are():
    examples = metrics.ROOT / "docs/examples"
    told = metrics.promtool("check", "rules", examples / "hitpath.rules.yml")
    assert told.returncode == 0, told.stdout + told.stderr
    page = (metrics.ROOT / "docs/metrics.md").read_text()
    dashboard = json.loads((examples / "hitpath-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) > 10 and len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for text in [(examples / "hitpath.rules.yml").read_text(), *queries]:
        for name in re.findall(r"\bhitpath_\w+", text):
            assert f"| `{name}` |" in page, name
