"""The dashboard and the rules in docs/examples, asked of a real Prometheus that scrapes a real gateway with traffic."""

import json
import time
import urllib.parse

import pytest

from harness import metrics
from harness.algorithms import GCM
from harness.hosted import hosted
from harness.tunnel import Tunnel

EXAMPLES = metrics.ROOT / "docs/examples"
PORT = 9090
FIREWALL = """
[[firewall.zone]]
name = "inside"
ports = ["lan"]

[[firewall.zone]]
name = "outside"
ports = ["wan"]
masquerade = "ipv4"

[[firewall.zone]]
name = "office"
networks = ["192.168.12.0/24"]

[[firewall.policy]]
from = ["inside"]
to = ["outside", "office", "gateway"]
action = "accept"

[[route]]
to = "203.0.113.0/24"
via = "192.168.11.1"
"""
LINES = """\
neigh add 192.168.11.1 lladdr 02:00:00:00:00:09 dev wan
qdisc add dev wan root tbf rate 100mbit burst 32k latency 50ms
xfrm policy setdefault in accept out accept
"""


@pytest.fixture
def prometheus(topology, tmp_path):
    """A Prometheus with the rules, beside a gateway that encrypts, forwards, translates and drops. Returns how to ask it."""
    gateway, gw, lan = hosted(
        topology, tmp_path, [Tunnel(GCM, 4)], metrics={"address": "127.0.0.1:9464"}, conntrack={"connections": 1000}
    )
    gateway.write(gateway.config_path.read_text() + FIREWALL)
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{EXAMPLES / 'hitpath.rules.yml'}]\n"
        "scrape_configs:\n  - job_name: hitpath\n    static_configs: [{targets: ['127.0.0.1:9464']}]\n"
    )
    program = metrics.fetched("prometheus")
    with gateway:
        for line in LINES.splitlines():
            gateway.run(*line.split())
        sending = [
            lan.start("ping", "-q", "-i", "0.05", address)
            for address in ("192.168.12.7", "203.0.113.9", "192.168.99.1", "192.168.13.1")
        ]
        words = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}", f"--web.listen-address=127.0.0.1:{PORT}"]
        log = (tmp_path / "prometheus.log").open("w")
        server = gw.start(program, *words, stdout=log, stderr=log)

        def ask(path, **query):
            url = f"http://127.0.0.1:{PORT}/api/v1/{path}?{urllib.parse.urlencode(query)}"
            told = gw.run("curl", "-sS", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", url, timeout=40)
            reply = json.loads(told.stdout)
            assert reply["status"] == "success", (query, reply)
            return reply["data"]

        try:
            yield ask
        finally:
            for process in (*sending, server):
                process.terminate()
                process.communicate()
            log.close()


def test_every_question_of_the_dashboard_and_the_rules_has_an_answer(prometheus):
    dashboard = json.loads((EXAMPLES / "hitpath-dashboard.json").read_text())
    # As Grafana puts in place of its variables.
    said = {"$__rate_interval": "8s", '"$instance"': '".+"'}
    questions = {}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in said.items():
                text = text.replace(name, value)
            assert "$" not in text, text
            questions[target["expr"]] = (text, target["legendFormat"])

    def answers():
        return {of: prometheus("query", query=text)["result"] for of, (text, _) in questions.items()}

    end = time.monotonic() + 60
    while empty := [of for of, found in answers().items() if not found]:
        assert time.monotonic() < end, f"nothing is found by {empty}"
        time.sleep(1)
    found = answers()
    # What passes is more than nothing.
    for part in ("receive_bytes", "transmit_bytes", "forwarded", "encrypted", "dropped_packets", "cache_hits", "sa_packets"):
        (of,) = [of for of in questions if part in of]
        assert max(float(one["value"][1]) for one in found[of]) > 0, (of, found[of])
    # The names in the legends are labels of what is found.
    for of, (_, legend) in questions.items():
        for name in [part.split("}}")[0].strip() for part in legend.split("{{")[1:]]:
            assert all(name in one["metric"] for one in found[of]), (of, name, found[of][:1])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            name = variable["query"]["query"].removeprefix("label_values(").split(",")[0]
            (series,) = prometheus("series", **{"match[]": name})
            assert series["instance"] == "127.0.0.1:9464"
    groups = prometheus("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 5 and all(rule["health"] == "ok" for rule in rules), rules
    assert all(target["health"] == "up" for target in prometheus("targets")["activeTargets"])
