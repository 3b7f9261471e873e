"""Queueing disciplines on live interfaces: rates, delay under load, statistics that add up, and restarts."""

import json
import re
import statistics
import time

import pytest
from harness.failure import CommandFailed
from harness.transfers import wait_for_listener
from test_namespaces import LEFT, RIGHT, hosts  # noqa: F401

pytestmark = [pytest.mark.namespaces, pytest.mark.alone]

RATE = 20_000_000
"""Bits a second."""


def qdisc(gateway, *words):
    return gateway.run("qdisc", *" ".join(words).split())


def shape(gateway, child="", burst="16kb"):
    qdisc(gateway, f"replace dev right root handle 1: tbf rate 20mbit burst {burst} limit 200kb")
    if child:
        qdisc(gateway, "replace dev right parent 1:", child)


def rows(gateway):
    return {row["handle"]: row for row in gateway.json("qdisc", "show", "dev", "right")}


def sent(gateway):
    """Bytes that have left by `right`."""
    return {port["name"]: port["statistics"]["tx_bytes"] for port in gateway.json("show", "ports")}["right"]


def flood(left, right, seconds, *options):
    """Starts iperf3 from left to right. Returns its ends."""
    server = right.start("iperf3", "-s", "-1", "-B", RIGHT[4][1])
    wait_for_listener(right, 5201)
    client = left.start("iperf3", "-c", RIGHT[4][1], "-t", seconds, *options)
    return client, server


def end(*programs):
    for program in programs:
        program.kill()
        program.wait()


@pytest.mark.parametrize("options", [[], ["-u", "-b", "60M", "-l", "1400"]], ids=["tcp", "udp"])
def test_tbf_holds_its_rate(hosts, options):
    left, right, gateway = hosts
    # 52 ms of the rate, for which a busy machine may not run the worker.
    shape(gateway, burst="128kb")
    programs = flood(left, right, 12, *options)
    time.sleep(2)
    before, began = sent(gateway), time.monotonic()
    time.sleep(6)
    bits = 8 * (sent(gateway) - before) / (time.monotonic() - began)
    end(*programs)
    assert abs(bits / RATE - 1) < 0.03, f"{bits / 1e6:.2f} Mbit/s"


def delay(left, right, gateway, child):
    """The median of round-trip times in milliseconds while TCP fills the link."""
    shape(gateway, child)
    programs = flood(left, right, 12, "-P", "4")
    time.sleep(3)
    told = left.run("ping", "-n", "-i", "0.05", "-c", "80", RIGHT[4][1], timeout=30, check=False).stdout
    end(*programs)
    times = [float(time) for time in re.findall(r"time=([\d.]+)", told)]
    assert len(times) >= 40, told
    return statistics.median(times)


def test_fq_codel_keeps_delay_low_and_pfifo_does_not(hosts):
    left, right, gateway = hosts
    fifo = delay(left, right, gateway, "pfifo limit 300")
    codel = delay(left, right, gateway, "fq_codel")
    # A FIFO of 300 packets is up to 180 ms of this rate; the target of fq_codel is 5 ms.
    assert codel < 10 and fifo > 25, f"pfifo {fifo} ms, fq_codel {codel} ms"


def test_statistics_add_up(hosts):
    left, right, gateway = hosts
    shape(gateway, "handle 10: fq_codel limit 50")
    end(*flood(left, right, 5, "-u", "-b", "40M", "-l", "1200"))
    time.sleep(5)
    programs = flood(left, right, 4, "-u", "-b", "40M", "-l", "1200")
    programs[0].wait(timeout=30)
    end(programs[1])
    time.sleep(1)
    tbf, codel = (rows(gateway)[handle] for handle in ("1:", "10:"))
    assert (tbf["kind"], codel["kind"], codel["parent"]) == ("tbf", "fq_codel", "1:1")
    assert (tbf["qlen"], tbf["backlog"]) == (0, 0) and tbf["overlimits"] > 0
    assert tbf["drops"] == codel["drops"] > 0 and tbf["packets"] == codel["packets"] > 1000
    assert codel["drop_overlimit"] > 0 and tbf["options"]["rate"] == RATE // 8
    drops = gateway.drops()
    assert drops.get("qdisc_overlimit", 0) == codel["drop_overlimit"]
    assert drops.get("qdisc_overlimit", 0) + drops.get("qdisc_codel", 0) == tbf["drops"]
    ports = {port["name"]: port["statistics"] for port in gateway.json("show", "ports")}
    assert ports["right"]["tx_bytes"] >= tbf["bytes"]
    text = gateway.run("-s", "qdisc", "show").stdout
    assert re.search(r"^qdisc tbf 1: dev right root rate 20Mbit burst 16Kb lat ", text)
    assert f" Sent {tbf['bytes']} bytes {tbf['packets']} pkt (dropped {tbf['drops']}, " in text
    assert qdisc(gateway, "show").stdout.splitlines() == [
        line for line in text.splitlines() if line.startswith("qdisc ")
    ]


def test_wrong_words_are_refused(hosts):
    _, _, gateway = hosts
    for words, message in [
        ("add dev right root tbf rate 0 burst 2kb latency 1s", "rate of 0"),
        ("add dev right root tbf rate 1mbit burst 1 latency 1s", "right sends frames of 1514"),
        ("add dev right parent 1: fq_codel", "right has no qdisc 1:"),
        ("add dev right root htb", "qdisc 'htb' is not supported"),
    ]:
        with pytest.raises(CommandFailed, match=re.escape(message)):
            qdisc(gateway, words)
    assert json.loads(gateway.run("qdisc", "show", "-j").stdout) == []


def test_lists_are_filtered_as_by_tc(hosts):
    *_, gateway = hosts
    shape(gateway, "handle 10: fq_codel")

    def shown(*words):
        return [row["handle"] for row in gateway.json("qdisc", "show", *words)]

    assert shown() == shown("dev", "right", "invisible") == ["1:", "10:"]
    assert shown("root") == shown("dev", "right", "root") == ["1:"]
    assert shown("dev", "right", "handle", "10:") == shown("parent", "1:") == ["10:"]
    assert shown("ingress") == shown("dev", "left", "root") == shown("clsact") == []


def test_what_waits_goes_with_the_cable(hosts, topology):
    left, right, gateway = hosts
    qdisc(gateway, "add dev right root tbf rate 80kbit burst 2kb limit 100kb")
    left.ping(RIGHT[4][1])
    programs = flood(left, right, 20, "-u", "-b", "2M", "-l", "1000")
    time.sleep(2)
    assert next(iter(rows(gateway).values()))["qlen"] > 10
    topology["gw"].ip("link", "set", "right", "down")
    time.sleep(1)
    end(*programs)
    shown = next(iter(rows(gateway).values()))
    assert (shown["qlen"], shown["backlog"]) == (0, 0)
    assert gateway.drops()["qdisc_flushed"] > 10
    topology["gw"].ip("link", "set", "right", "up")
    qdisc(gateway, "del dev right root")
    time.sleep(2)
    left.ping(RIGHT[4][1])
