"""Queueing disciplines of a gateway with several workers: each is one worker's, and the others hand it their frames."""

import json
import time

import pytest
from harness.transfers import wait_for_listener
from test_xfrm_links import hosts_of, site  # noqa: F401

pytestmark = [pytest.mark.namespaces, pytest.mark.alone]

WAN, RED, BLUE = 20, 12, 8
"""Mbit/s of the WAN, which everything leaves by in ESP, and of what leaves by each tenant's ports."""


def restart(gateway, workers):
    """Ends the gateway, and starts it with so many workers."""
    gateway.process.terminate()
    gateway.process.wait(20)
    gateway.kill()
    text = gateway.config_path.read_text()
    had = next(line for line in text.splitlines() if line.startswith("workers"))
    gateway.write(text.replace(had, f"workers = {workers}"))
    gateway.start_again()


def qdisc(gateway, *words):
    return gateway.run("qdisc", *" ".join(words).split())


def port_bytes(gateway, name):
    """What has left by a port."""
    ports = {port["name"]: port for port in gateway.json("show", "ports")}
    return ports[name]["statistics"]["tx_bytes"]


def rate(gateway, port, client, server, target, *options):
    """Mbit/s that leave by a port while iperf3 sends by TCP in several connections."""
    serving = server.start("iperf3", "-s", "-1", "-B", target)
    wait_for_listener(server, 5201)
    sending = client.start("iperf3", "-c", target, "-t", 9, "-P", 4, *options)
    time.sleep(2.5)
    before, began = port_bytes(gateway, port), time.monotonic()
    time.sleep(4)
    bits = 8 * (port_bytes(gateway, port) - before) / (time.monotonic() - began)
    for program in (sending, serving):
        program.kill()
        program.wait()
    return bits / 1e6


def in_order(client, server, target):
    """Sends datagrams below the rate, of which none may be late or lost."""
    serving = server.start("iperf3", "-s", "-1", "-B", target)
    wait_for_listener(server, 5201)
    said = client.run("iperf3", "-c", target, "-u", "-b", "4M", "-l", 1000, "-t", 3, "-J", timeout=30).stdout
    serving.wait(10)
    told = json.loads(said)["end"]
    assert told["sum"]["packets"] > 1000 and told["sum"]["lost_packets"] == 0, told["sum"]
    assert all(stream["udp"]["out_of_order"] == 0 for stream in told["streams"]), told["streams"]


def judge(hosts, gateway):
    """Every discipline holds its rate, with ESP before and behind it."""
    for tenant, (here, there) in hosts.items():
        target = hosts_of(2)[0]
        out = rate(gateway, "wan", here, there, target)
        assert abs(out / WAN - 1) < 0.05, f"{tenant}: {out:.2f} Mbit/s by the WAN"
        wanted = {"red": RED, "blue": BLUE}[tenant]
        back = rate(gateway, f"{tenant}0", here, there, target, "--reverse")
        assert abs(back / wanted - 1) < 0.05, f"{tenant}: {back:.2f} Mbit/s to the tenant"
        in_order(here, there, target)
        in_order(there, here, hosts_of(1)[0])


def adds_up(gateway):
    """What came to a discipline was sent, was dropped or waits, and all has left."""
    for row in gateway.json("qdisc", "show"):
        assert row["packets"] > 100, row
        assert (row["qlen"], row["backlog"]) == (0, 0), row


def test_rates_and_order_hold_with_esp_and_after_a_restart(site):  # noqa: F811
    hosts, (gateway, _) = site
    restart(gateway, workers=2)
    # A VRF, one that belongs to the other worker, and a port: each of them with queues of flows under it.
    for device, megabits in (("wan", WAN), ("red", RED), ("blue", BLUE)):
        qdisc(gateway, f"add dev {device} root handle 1: tbf rate {megabits}mbit burst 128kb limit 300kb")
        qdisc(gateway, f"add dev {device} parent 1: handle 2: fq_codel")
    for here, there in hosts.values():
        here.ping(hosts_of(2)[0])
        there.ping(hosts_of(1)[1])
    judge(hosts, gateway)
    time.sleep(1)
    adds_up(gateway)
    assert len(gateway.json("show", "workers")) == 2

    shown = [line for line in qdisc(gateway, "show").stdout.splitlines() if line.startswith("qdisc")]
    restart(gateway, workers=2)
    again = [line for line in qdisc(gateway, "show").stdout.splitlines() if line.startswith("qdisc")]
    assert again == shown
    for here, _ in hosts.values():
        here.ping(hosts_of(2)[0])
    judge(hosts, gateway)


def test_a_discipline_comes_and_goes_under_traffic(site):  # noqa: F811
    """From no shaping to the other worker's, and back: nothing stops, and no buffer is lost."""
    hosts, (gateway, _) = site
    restart(gateway, workers=2)
    here, there = hosts["red"]
    here.ping(hosts_of(2)[0])
    flood = here.start("ping", "-n", "-i", "0.01", "-c", "600", "-W", "2", hosts_of(2)[0])
    for _ in range(12):
        for device in ("wan", "red", "main"):
            qdisc(gateway, f"replace dev {device} root handle 1: tbf rate 50mbit burst 64kb limit 300kb")
        time.sleep(0.15)
        for device in ("wan", "red", "main"):
            qdisc(gateway, f"del dev {device} root")
        time.sleep(0.15)
    said, _ = flood.communicate(timeout=30)
    received = int(said.split(" received")[0].split()[-1])
    # What waits in a discipline goes with it.
    assert received >= 600 - gateway.drops().get("qdisc_flushed", 0), said
    time.sleep(1)
    rows = [row for worker in gateway.json("show", "workers") for row in worker["counters"]]
    assert [row["value"] for row in rows if row["name"] == "held"] == [0, 0]
