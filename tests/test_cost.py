"""What stages cost while packets pass: `show cost`, and the same as metrics."""

import json
import time

import pytest

from harness import metrics
from harness.algorithms import GCM
from harness.gateway import Gateway, Here
from harness.hosted import hosted
from harness.site import site
from harness.tunnel import Tunnel


@pytest.fixture
def busy(topology, tmp_path):
    """A gateway with a tunnel, whose host sends many packets into it."""
    gateway, _, lan = hosted(topology, tmp_path, [Tunnel(GCM, 4)])
    with gateway:
        gateway.run("neigh", "add", "192.168.11.1", "lladdr", "02:00:00:00:00:09", "dev", "wan")
        # Nobody answers there: packets leave encrypted.
        sender = lan.start("ping", "-q", "-i", "0.0005", "-s", "1000", "192.168.12.7")
        try:
            yield gateway
        finally:
            sender.terminate()
            sender.communicate()


def test_each_stage_is_shown_with_what_a_packet_costs(busy):
    end = time.monotonic() + 240
    while (report := busy.json("show", "cost"))["total"]["rounds"] < 5:
        assert time.monotonic() < end, report
        time.sleep(0.5)
    stages = {stage["stage"]: stage for stage in report["total"]["stages"]}
    order = [stage["name"] for stage in json.loads(busy.run("graph", "-j").stdout)]
    assert list(stages) == [*order, "beside"]
    for name in ("receive", "parse", "decide", "apply", "seal", "transmit"):
        stage = stages[name]
        assert stage["packets"] >= stage["calls"] > 0 and stage["cycles"] > 0, stage
        assert abs(stage["cycles_per_packet"] - stage["cycles"] / stage["packets"]) < 0.01
    assert stages["open"]["packets"] == 0 and "cycles_per_packet" not in stages["open"]
    assert abs(sum(stage["share"] for stage in stages.values()) - 1) < 1e-6
    assert report["workers"][0]["worker"] == 0 and report["cycles_per_second"] > 1e8
    # What leaves is what was encrypted, and a packet takes microseconds and no seconds.
    assert 1e2 < report["total"]["cycles_per_packet"] < 1e8

    text = busy.run("show", "cost").stdout
    assert "CYCLES/PACKET" in text and "\n     0  seal " in text and " %\n" in text, text

    over = busy.json("show", "cost", "--over", "2")
    now = busy.json("show", "cost")
    assert over["total"]["rounds"] < now["total"]["rounds"]
    assert over["total"]["packets"] <= now["total"]["packets"] - report["total"]["packets"]

    values = metrics.samples(metrics.ask(busy.socket))
    assert metrics.of(values, "hitpath_stage_packets_total", worker="0", stage="seal") >= stages["seal"]["packets"]
    assert metrics.of(values, "hitpath_timed_rounds_total", worker="0") >= now["total"]["rounds"]


def test_before_there_are_packets_it_says_so_and_over_is_for_cost_alone(tmp_path):
    with Gateway(Here, site(), tmp_path) as gateway:
        assert "no round with packets was timed yet" in gateway.run("show", "cost").stdout
        for words, why in (
            (["drops", "--over", "1"], "--over is for `show cost`"),
            (["cost", "--over", "0"], "0 is not in 1..=3600"),
            (["cost", "lan"], "one word too many"),
        ):
            refused = gateway.run("show", *words, check=False)
            assert refused.returncode == 2 and why in refused.stderr, refused.stderr
