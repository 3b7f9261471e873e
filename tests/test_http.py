"""Many short connections of real clients and servers through connection tracking and source NAT, with one worker and
with two, which both receive from both ports."""

import re
import subprocess

import pytest
from harness import transfers
from harness.config import Config
from harness.gateway import Gateway
from test_namespaces import LEFT, RIGHT, attach

pytestmark = pytest.mark.namespaces

FLOWS = f"""
table=0,priority=100,ip actions=ct(table=1,nat)
table=0,priority=110,icmp6 actions=NORMAL
table=0,priority=10,arp actions=NORMAL
table=1,priority=20,ct_state=+trk+est,ip actions=NORMAL
table=1,priority=10,ct_state=+trk+new,tcp,in_port=lan actions=ct(commit,nat(src={RIGHT[4][0]}:1024-65535)),NORMAL
"""

SERVER = """
import asyncio, sys

ANSWER = b"HTTP/1.0 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"

async def serve(reader, writer):
    try:
        await reader.readuntil(b"\\r\\n\\r\\n")
        writer.write(ANSWER)
        await writer.drain()
        sources.add(writer.get_extra_info("peername")[0])
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", 8000, backlog=1024)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    server.close()
    print(*sources, flush=True)

sources = set()
asyncio.run(main())
"""


@pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "two workers"])
def test_thousands_of_requests_each_by_a_connection_of_its_own(topology, tmp_path, workers):
    topology.namespace("gw")
    lan, lan_port = attach(topology, "lan", LEFT)
    wan, wan_port = attach(topology, "wan", RIGHT)
    config = Config(ports=[lan_port, wan_port], workers=workers)
    requests = 5000
    with Gateway(topology["gw"], config, tmp_path) as gateway:
        gateway.run("flow", "replace", "-", stdin=FLOWS)
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        server = wan.start("/usr/bin/python3", "-c", SERVER, **options)
        try:
            assert server.stdout.readline() == "ready\n"
            told = lan.run(
                "ab", "-q", "-r", "-s", 20, "-n", requests, "-c", 50, f"http://{RIGHT[4][1]}:8000/", timeout=120
            ).stdout
            server.stdin.write("\n")
            server.stdin.flush()
            assert server.stdout.readline().strip() == RIGHT[4][0], "somebody came untranslated"
        finally:
            server.kill()
            server.stdin.close()
            server.stdout.close()
            server.wait()
        print(re.search(r"Requests per second:.*", told)[0])
        found = {name: int(re.search(rf"{name} requests:\s+(\d+)", told)[1]) for name in ("Complete", "Failed")}
        assert found == {"Complete": requests, "Failed": 0}, told
        states = [connection["state"] for connection in gateway.json("conntrack", "-L", "-p", "tcp")]
        # Those that were reset are gone after ten seconds.
        assert gateway.json("conntrack", "-S")["made"] >= requests, "each had a connection"
        assert "ESTABLISHED" not in states, "each has ended"
        drops = {drop["reason"]: drop["packets"] for drop in gateway.json("show", "drops")}
        wrong = {reason: count for reason, count in drops.items() if count and reason.startswith(("connection_", "nat_"))}
        assert wrong == {}, "none was refused"
        if workers == 2:
            handled = [
                {row["name"]: row["value"] for row in worker["counters"]}["received"]
                for worker in gateway.json("show", "workers")
            ]
            assert min(handled) > requests, f"both workers had their part: {handled}"


EVERYTHING = f"table=1,priority=9,ct_state=+trk+new,ip,in_port=lan actions=ct(commit,nat(src={RIGHT[4][0]})),NORMAL\n"


@pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "two workers"])
def test_fragments_and_iperf3_are_tracked_and_translated(topology, tmp_path, workers):
    """The fragments of a datagram come to one worker, as the kernel chooses it by their addresses alone."""
    topology.namespace("gw")
    lan, lan_port = attach(topology, "lan", LEFT)
    wan, wan_port = attach(topology, "wan", RIGHT)
    config = Config(ports=[lan_port, wan_port], workers=workers)
    with Gateway(topology["gw"], config, tmp_path) as gateway:
        gateway.run("flow", "replace", "-", stdin=FLOWS + EVERYTHING)
        # Two cuts each, and whole packets of the same hosts between them.
        for size in (56, 4000, 1472, 2900, 56):
            lan.ping(RIGHT[4][1], count=3, size=size)
        for protocol in ("tcp", "udp"):
            transfers.iperf3(lan, wan, RIGHT[4][1], protocol)
        sources = {one["reply"]["destination"] for one in gateway.json("conntrack", "-L") if one["reply"]}
        assert sources == {RIGHT[4][0]}, "every one is translated"
        assert not [reason for reason in gateway.drops() if "fragment" in reason or "reassembly" in reason]


MARKING = f"""
table=0,priority=100,ip actions=ct(table=1,nat)
table=0,priority=10,arp actions=NORMAL
table=1,priority=40,ct_state=+trk+est,ct_mark=0,ip actions=drop
table=1,priority=30,ct_state=+trk+est-rpl,ct_mark=1,ip actions=ct(commit,exec(set_field:2->ct_mark)),NORMAL
table=1,priority=30,ct_state=+trk+est-rpl,ct_mark=2,ip actions=ct(commit,exec(set_field:1->ct_mark)),NORMAL
table=1,priority=29,ct_state=+trk+est+rpl,ip actions=ct(commit,exec(set_field:2->ct_mark)),NORMAL
table=1,priority=10,ct_state=+trk+new,ip,in_port=lan actions=ct(commit,nat(src={RIGHT[4][0]}),exec(set_field:1->ct_mark)),NORMAL
"""


@pytest.mark.parametrize("by_flows", [False, True], ids=["by commands", "by flows"])
def test_a_mark_that_changes_drops_nothing(topology, tmp_path, by_flows):
    """Packets that are on their way through a worker are translated as before, and flows see no mark that never was."""
    topology.namespace("gw")
    lan, lan_port = attach(topology, "lan", LEFT)
    wan, wan_port = attach(topology, "wan", RIGHT)
    config = Config(ports=[lan_port, wan_port], workers=2)
    with Gateway(topology["gw"], config, tmp_path) as gateway:
        gateway.run("flow", "replace", "-", stdin=MARKING if by_flows else FLOWS)
        job = wan.start("iperf3", "-s", "-1", "-B", RIGHT[4][1])
        transfers.wait_for_listener(wan, 5201)
        options = {"stdout": subprocess.PIPE, "text": True}
        inside = wan.start("tcpdump", "-Z", "root", "-nlqi", "eth0", "src", "host", LEFT[4][1], **options)
        amount = ["-P", 4, "-n", "150M", "--bidir"] if by_flows else ["-P", 2, "-n", "150M"]
        client = lan.start("iperf3", "-c", RIGHT[4][1], *amount, "-J", **options)
        marks = 0
        while client.poll() is None and not by_flows:
            gateway.run("conntrack", "-U", "-p", "tcp", "-m", 1000 + marks, check=False)
            marks += 1
        told = client.communicate(timeout=120)[0]
        job.kill()
        inside.terminate()
        assert (by_flows or marks > 1) and '"sum_received"' in told and '"error"' not in told, (marks, told)
        assert inside.communicate()[0].strip() == "", "none leaves untranslated"
        assert not {"connection_gone", "local_no_listener"} & set(gateway.drops()), gateway.drops()
        if by_flows:
            unmarked = gateway.run("flow", "dump", "table=1,ct_state=+trk+est,ct_mark=0,ip").stdout
            assert " n_packets=0, " in unmarked, unmarked
