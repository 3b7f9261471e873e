"""Live traces: what became of real packets, in text and JSON, on the real daemon."""

import json
import signal
import subprocess
import time

import pytest
from harness.config import Config, Port
from harness.gateway import Gateway, binary
from test_namespaces import LEFT, RIGHT, both_families, hosts

pytestmark = pytest.mark.namespaces
__all__ = ["hosts"]

KEY = "0x" + "11" * 20


class Trace:
    """`hitpath trace add` in the background."""

    def __init__(self, gateway, *words, json=False):
        self.gateway, began = gateway, gateway.log().count("a trace begins")
        command = [binary(), "--socket", str(gateway.socket), *(["-j"] if json else []), "trace", "add"]
        command += map(str, words)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 10
        while gateway.log().count("a trace begins") == began:
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < end, "the trace does not begin"
            time.sleep(0.02)

    def wait(self, timeout=10):
        """Its packets or its text, what it said when it ended, and its exit code."""
        shown, said = self.process.communicate(timeout=timeout)
        return shown, said, self.process.returncode

    def packets(self):
        """The packets once it has ended by itself: lists of stages and texts."""
        shown, said, code = self.wait()
        assert code == 0 and "that many were wanted" in said, said
        return [stages for _, _, stages in blocks(shown)]

    def stop(self):
        """Ends it as Ctrl-C does, once what was sent has come."""
        time.sleep(0.5)
        self.process.send_signal(signal.SIGINT)
        return self.wait()


def blocks(shown):
    """What was printed of each packet: its number, whether it is what became of it later, stages and texts."""
    found = []
    for block in shown.strip("\n").split("\n\n") if shown.strip() else []:
        head, *lines = block.splitlines()
        word, number, rest = head.split(" ", 2)
        assert word == "Packet" and number.endswith(","), head
        found.append((int(number[:-1]), rest.startswith("later, "), [tuple(line.split(None, 1)) for line in lines]))
    return found


def text(packet, stage):
    """What the first step of a stage says."""
    return next((said for step, said in packet if step == stage), None)


@both_families
def test_a_new_flow_misses_and_then_hits(hosts, family):
    left, _, gateway = hosts
    left.ping(RIGHT[family][1], count=1)
    only = {4: "icmp[icmptype] == icmp-echo", 6: "icmp6 and ip6[40] == 128"}[family]
    trace = Trace(gateway, only, "and", "src", LEFT[family][1], "count", 4)
    left.ping(RIGHT[family][1], count=2)
    # The next ping has another identifier, and so is another flow.
    left.ping(RIGHT[family][1], count=2, options=("-e", "77"))
    packets = trace.packets()
    caches = [text(packet, "cache") for packet in packets]
    name = f"ipv{family}-outbound"
    assert caches == [f"miss in {name}: a new flow", f"hit in {name}"] * 2, caches
    for packet in packets:
        assert packet[0] == ("received", "98 bytes by left" if family == 4 else "118 bytes by left")
        assert text(packet, "verdict").startswith("forward in clear by right, packets up to 1500 bytes")
        assert packet[-1][0] == "sent" and "bytes by right: " in packet[-1][1], packet
        assert RIGHT[family][1] in text(packet, "flow")


def test_what_invalidated_a_flow_is_named(hosts):
    left, _, gateway = hosts
    # The first finds no neighbour, which is a change too once it has answered.
    left.ping(RIGHT[4][1], count=3, options=("-e", "77"))
    trace = Trace(gateway, "icmp[icmptype] == icmp-echo", "count", 2)
    gateway.run("route", "add", "203.0.113.0/24", "via", RIGHT[4][1])
    left.ping(RIGHT[4][1], count=1, options=("-e", "77"))
    gateway.run("route", "add", "blackhole", f"{RIGHT[4][1]}/32")
    left.ping(RIGHT[4][1], count=1, options=("-e", "77"), check=False, timeout=3)
    first, second = trace.packets()
    assert text(first, "cache").startswith("hit in ipv4-outbound; what changed"), first
    assert "invalidated, by a route to 10.2.0.2/32" in text(second, "cache"), second
    assert second[-1][0] == "drop" and second[-1][1].startswith("route_blackhole"), second


def test_policies_and_icmp_errors_are_in_the_text(hosts):
    left, _, gateway = hosts
    left.ping(RIGHT[4][1], count=1)
    trace = Trace(gateway, "icmp", "count", 1)
    left.ping(RIGHT[4][1], count=1, check=False, timeout=3, options=("-t", "1"))
    shown, said, code = trace.wait()
    assert (said, code) == ("hitpath: 1 packets: that many were wanted\n", 0)
    lines = [line.split() for line in shown.splitlines()]
    assert lines[0][0:2] == ["Packet", "1,"] and "worker" in lines[0]
    stages = [words[0] for words in lines[1:] if words]
    assert stages[:3] == ["received", "flow", "cache"]
    assert stages.index("icmp-error") < stages.index("drop") < stages.index("generated")
    assert stages[-1] == "sent" and "hop_limit" in shown and "type 11 code 0" in shown
    for direction in ("in", "out"):
        gateway.run("xfrm", "policy", "add", "dst", "10.77.0.0/16", "dir", direction)
    gateway.run("xfrm", "policy", "add", "src", "10.1.0.0/24", "dir", "in", "action", "block")
    trace = Trace(gateway, "host", RIGHT[4][1], "count", 1)
    left.ping(RIGHT[4][1], count=1, check=False, timeout=3)
    (packet,) = trace.packets()
    assert "action" not in text(packet, "policy") and "discard" in text(packet, "policy"), packet
    assert packet[-1][0] == "drop" and packet[-1][1].startswith("policy_"), packet


def test_a_tunnel_is_shown_inside_and_outside(topology, tmp_path):
    """Two gateways: what the one encrypts, the other decrypts. One block each."""
    west, east = topology.namespace("gw1"), topology.namespace("gw2")
    hosts = []
    for number, (gw, label) in enumerate(((west, "left"), (east, "right")), start=1):
        host = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        host.addresses("eth0", f"10.{number}.0.2/24")
        host.ip("route", "add", "default", "via", f"10.{number}.0.1")
        hosts.append(host)
    topology.link(west, "wan", east, "wan")
    gateways = []
    for number, gw in enumerate((west, east), start=1):
        gw.silence("wan")
        inside = Port(("left", "right")[number - 1], [f"10.{number}.0.1/24"], kind="af-packet")
        inside.interface = inside.name
        outside = Port("wan", [f"192.0.2.{number}/24"], kind="af-packet", interface="wan")
        folder = tmp_path / str(number)
        folder.mkdir()
        gateways.append(Gateway(gw, Config(ports=[inside, outside]), folder))
    with gateways[0] as one, gateways[1] as two:
        for number, gateway in enumerate((one, two), start=1):
            here, there = number, 3 - number
            gateway.run("route", "add", f"10.{there}.0.0/24", "via", f"192.0.2.{there}")
            for source, target, spi in ((1, 2, "0x1001"), (2, 1, "0x1002")):
                state = f"xfrm state add src 192.0.2.{source} dst 192.0.2.{target} spi {spi} proto esp mode tunnel"
                state += f" reqid 1 aead rfc4106(gcm(aes)) {KEY} 128"
                gateway.run(*state.split())
            for direction, source, target in (("out", here, there), ("in", there, here)):
                policy = f"xfrm policy add src 10.{source}.0.0/24 dst 10.{target}.0.0/24 dir {direction}"
                policy += f" tmpl src 192.0.2.{source} dst 192.0.2.{target} proto esp mode tunnel reqid 1"
                gateway.run(*policy.split())
        hosts[0].ping("10.2.0.2", count=3)
        sealed = Trace(one, "src 10.1.0.2", "count", 1)
        # What is inside is asked for.
        opened = Trace(two, "icmp and src 10.1.0.2", "count", 1)
        hosts[0].ping("10.2.0.2", count=1)
        (out,), (back,) = sealed.packets(), opened.packets()
        assert "spi 0x00001001 from 192.0.2.1 to 192.0.2.2, reqid 1" in text(out, "sa"), out
        assert text(out, "verdict").startswith("encrypt and send by wan") and text(out, "encrypt") == "1 packet"
        assert "by wan: esp 192.0.2.1 > 192.0.2.2" in out[-1][1], out
        stages = [stage for stage, _ in back]
        assert stages.count("cache") == stages.count("verdict") == 2, back
        assert stages.index("decrypt") < stages.index("inside"), back
        assert "esp 192.0.2.1 > 192.0.2.2, spi 0x00001001" in text(back, "flow"), back
        assert "by right: icmp 10.1.0.2 > 10.2.0.2" in back[-1][1], back
        # An SA that is gone.
        two.run("xfrm", "state", "delete", "src", "192.0.2.1", "dst", "192.0.2.2", "spi", "0x1001", "proto", "esp")
        trace = Trace(two, "esp", "count", 1)
        hosts[0].ping("10.2.0.2", count=1, check=False, timeout=3)
        (packet,) = trace.packets()
        assert "invalidated, by the SA with spi 0x00001001" in text(packet, "cache"), packet
        assert packet[-1][1].startswith("esp_no_sa"), packet


def test_a_packet_is_an_object_with_the_members_of_each_stage(hosts):
    left, right, gateway = hosts
    left.ping(RIGHT[4][1], count=1)
    gateway.run(*"filter add dev left ingress pref 7 ip_proto icmp action pass log".split())
    only = ("icmp[icmptype] == icmp-echo and src", LEFT[4][1])
    trace, shown_trace = Trace(gateway, *only, "count", 1, json=True), Trace(gateway, *only, "count", 1)
    left.ping(RIGHT[4][1], count=1)
    shown, said, code = trace.wait()
    assert code == 0 and shown.count("\n") == 1, said
    packet = json.loads(shown)
    assert (packet["number"], packet["port"], packet["length"]) == (1, "left", 98)
    assert all("text" not in stage for stage in packet["stages"])
    # The same stages as for people, each with its members.
    (told,) = shown_trace.packets()
    assert [stage["stage"] for stage in packet["stages"]] == [stage for stage, _ in told]
    stages = {stage["stage"]: stage for stage in packet["stages"]}
    assert stages["received"] == {"stage": "received", "length": 98, "port": "left"}
    assert (stages["cache"]["table"], stages["cache"]["result"], stages["cache"]["why"]) == ("ipv4-outbound", "miss", "new")
    assert (stages["flow"]["source"], stages["flow"]["destination"]) == (LEFT[4][1], RIGHT[4][1])
    assert (stages["filter"]["preference"], stages["filter"]["action"], stages["filter"]["log"]) == (7, "pass", True)
    assert stages["route"]["port"] == "right" and stages["route"]["kind"] == "connected"
    assert stages["verdict"]["verdict"] == "forward" and stages["verdict"]["limit"] == 1500
    sent = stages["sent"]
    assert (sent["port"], sent["protocol"], sent["destination"], sent["mac"]) == ("right", "icmp", RIGHT[4][1], right.mac("eth0"))
    # What explain has of the same stages is the same.
    packet = f"icmp {LEFT[4][1]} > {RIGHT[4][1]} type 8 code 0 in left"
    explained = {stage["stage"]: stage for stage in gateway.json("explain", packet)}
    for name in ("vrf", "route", "filter", "neighbour"):
        assert explained[name] == stages[name], name

    trace = Trace(gateway, "dst 203.0.113.9", "count", 1, json=True)
    left.run("ping", "-c", "1", "-W", "1", "203.0.113.9", check=False)
    (packet,) = [json.loads(line) for line in trace.wait()[0].splitlines()]
    (drop,) = [stage for stage in packet["stages"] if stage["stage"] == "drop"]
    assert drop["reason"] == "no_route" and drop["packets"] == 1 and drop["meaning"]


def test_bounds_hold_and_a_killed_client_ends_its_trace(hosts):
    left, _, gateway = hosts
    none = Trace(gateway, "tcp port 9")
    slow = Trace(gateway, "icmp", "rate", "10/s", "count", 10_000)
    left.ping(RIGHT[4][1], count=100, options=("-i", "0.01"))
    shown, said, code = none.stop()
    assert (shown, said, code) == ("", "hitpath: 0 packets: stopped\n", 0)
    time.sleep(1.2)
    shown, said, code = slow.stop()
    assert 10 <= len(blocks(shown)) < 60 and "left out because of the rate" in said, said
    killed = Trace(gateway)
    killed.process.kill()
    killed.wait()
    end = time.monotonic() + 5
    while gateway.log().count("the trace has ended: its client has gone") < 3:
        assert time.monotonic() < end, gateway.log()
        left.ping(RIGHT[4][1], count=1)
    # As many as there may be, each with its own.
    all_of_them = [Trace(gateway, "icmp", "count", 2) for _ in range(8)]
    refused = gateway.run("trace", "add", check=False)
    assert refused.returncode == 1 and "8 traces already" in refused.stderr
    left.ping(RIGHT[4][1], count=2)
    assert [len(trace.packets()) for trace in all_of_them] == [2] * 8
    stopped = Trace(gateway)
    gateway.kill()
    shown, said, code = stopped.wait()
    assert code == 1 and "has gone" in said, said
    gateway.start_again()
    left.ping(RIGHT[4][1], count=1)


def later(trace):
    """The packets of a trace once it has ended by itself, and what became of those that waited, by their numbers."""
    shown, said, code = trace.wait(timeout=20)
    assert code == 0 and "that many were wanted" in said, said
    packets, ends = {}, {}
    for number, is_later, stages in blocks(shown):
        found = ends if is_later else packets
        assert number not in found, "told of twice"
        found[number] = stages
    return packets, ends


def test_a_packet_that_waits_for_a_neighbour_is_followed_to_its_end(hosts):
    left, right, gateway = hosts
    absent = RIGHT[4][1].rsplit(".", 1)[0] + ".77"
    trace = Trace(gateway, "dst", absent, "count", 2)
    left.run("ping", "-n", "-c", "1", "-W", "1", absent, check=False)
    time.sleep(3)
    # It comes while the next packet waits.
    ping = left.start("ping", "-n", "-c", "1", "-W", "5", absent)
    time.sleep(0.5)
    (row,) = gateway.json("trace", "show")[-1:]
    assert (row["told"], row["waiting"], row["trace"]["filter"]) == (2, 1, f"dst {absent}"), row
    right.addresses("eth0", f"{absent}/24")
    packets, ends = later(trace)
    ping.communicate(timeout=10)
    assert [packets[number][-1][0] for number in (1, 2)] == ["held", "held"]
    assert [step for step, _ in ends[1]] == ["waited", "icmp-error", "drop"], ends
    assert ends[1][0][1].startswith("3.") and ends[1][2][1].startswith("neighbour_unresolved"), ends
    assert [step for step, _ in ends[2]] == ["waited", "sent"] and f"> {absent}" in ends[2][1][1], ends


def burst(host, count):
    """Pings of 928 bytes, faster than they may leave."""
    host.run("ping", "-n", "-c", count, "-i", "0.002", "-s", "900", "-W", "1", RIGHT[4][1], check=False)


def test_packets_in_a_queueing_discipline_are_followed_to_their_end(hosts):
    left, _, gateway = hosts
    left.ping(RIGHT[4][1], count=1)
    gateway.run(*"qdisc add dev right root handle 1: tbf rate 200kbit burst 2kb limit 4kb".split())
    trace = Trace(gateway, "icmp", "and", "dst", RIGHT[4][1], "count", 20)
    burst(left, 20)
    packets, ends = later(trace)
    last = {number: packet[-1] for number, packet in packets.items()}
    queued = {number for number, (step, _) in last.items() if step == "queued"}
    dropped = {number for number, (step, said) in last.items() if step == "drop" and "qdisc_overlimit" in said}
    assert queued and dropped and len(queued | dropped) == 20, last
    assert {said for step, said in last.values() if step == "queued"} == {"in tbf 1: of right"}
    assert set(ends) == queued
    for end in ends.values():
        assert [step for step, _ in end] == ["waited", "sent"] and "by right: icmp" in end[1][1], end
    # The longest wait is that of the limit: 4 kB at 200 kbit/s are 160 ms.
    waits = [float(end[0][1].split()[0]) for end in ends.values()]
    assert 0.05 < max(waits) < 1, waits
    # What still waits is dropped with its discipline.
    trace = Trace(gateway, "icmp", "and", "dst", RIGHT[4][1], "count", 4)
    gateway.run(*"qdisc replace dev right root handle 1: tbf rate 8kbit burst 2kb limit 4kb".split())
    burst(left, 4)
    gateway.run(*"qdisc del dev right root".split())
    _, ends = later(trace)
    assert ends and {end[1][0] for end in ends.values()} <= {"drop", "sent"}, ends
    assert any("qdisc_flushed" in end[1][1] for end in ends.values()), ends


def test_a_packet_that_is_queued_says_where(hosts):
    """In the discipline of the VRF, though the port has none, and then in the port's."""
    left, _, gateway = hosts
    left.ping(RIGHT[4][1], count=1)

    def told():
        trace = Trace(gateway, "icmp", "and", "dst", RIGHT[4][1], "count", 1, json=True)
        left.ping(RIGHT[4][1], count=1)
        shown, said, code = trace.wait()
        assert code == 0, said
        (packet,) = [json.loads(line) for line in shown.splitlines() if "stages" in line]
        return packet["stages"][-1]

    gateway.run(*"qdisc add dev main root handle 1: tbf rate 1mbit burst 20kb limit 40kb".split())
    of_vrf = {"vrf": "main", "kind": "tbf", "handle": "1:"}
    assert told() == {"stage": "queued", "port": "right", "qdiscs": [of_vrf]}
    gateway.run(*"qdisc add dev main parent 1: handle 2: fq_codel".split())
    gateway.run(*"qdisc add dev right root handle 3: pfifo limit 5".split())
    of_port = {"port": "right", "kind": "pfifo", "handle": "3:"}
    assert told() == {"stage": "queued", "port": "right", "qdiscs": [of_vrf | {"child": "fq_codel"}, of_port]}
    trace = Trace(gateway, "icmp", "and", "dst", RIGHT[4][1], "count", 1)
    left.ping(RIGHT[4][1], count=1)
    packets, _ = later(trace)
    assert packets[1][-1] == ("queued", "in tbf 1: of vrf main with fq_codel 2: under it, then pfifo 3: of right")


def test_traces_are_listed_and_deleted(hosts):
    left, _, gateway = hosts
    left.ping(RIGHT[4][1], count=1)
    trace = Trace(gateway, "icmp", "count", 7)
    left.ping(RIGHT[4][1], count=1)
    # The thread that takes traces from the workers has had its turn.
    time.sleep(0.5)
    (row,) = [row for row in gateway.json("trace", "show") if "ended" not in row]
    assert (row["told"], row["trace"]["count"], row["trace"]["filter"]) == (2, 7, "icmp"), row
    shown = gateway.run("trace", "show").stdout
    assert "running" in shown and shown.splitlines()[0].split()[:3] == ["ID", "TOLD", "COUNT"], shown
    gateway.run("trace", "del", str(row["id"]))
    shown, said, code = trace.wait()
    assert code == 0 and "deleted by command" in said and len(blocks(shown)) == 2, said
    last = gateway.json("trace", "show")[-1]
    assert (last["state"], last["ended"]) == ("ended", "deleted by command")
    assert (last["limited"], last["lost"]) == (0, 0) and "losses" not in last, last
    for words, code, says in [
        (["del", str(row["id"])], 1, f"trace {row['id']} has ended: deleted by command"),
        (["del", str(row["id"] + 1)], 1, "there is no trace"),
        (["del", "x"], 2, "no number of a trace"),
        (["del"], 2, "trace del ID"),
        (["show", "x"], 2, "trace show"),
    ]:
        done = gateway.run("trace", *words, check=False)
        assert done.returncode == code and says in done.stderr, done.stderr


def test_what_is_wrong_is_said(hosts):
    _, _, gateway = hosts
    for words, says in [
        (["hsot", "10.0.0.1"], "is not understood: tcpdump: "),
        (["count", "0"], "1 to 10000"),
        (["icmp", "count", "10001"], "1 to 10000"),
        (["icmp", "rate"], "missing behind rate"),
    ]:
        done = gateway.run("trace", "add", *words, check=False)
        assert done.returncode == 2 and says in done.stderr, done.stderr
    help_text = gateway.run("trace", "--help").stdout
    assert "FILTER" in help_text and "count 5" in help_text
