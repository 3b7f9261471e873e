"""Match-action flows, connections and NAT on live interfaces: hosts that are network namespaces."""

import json
import re
import subprocess
import time

import pytest
from harness import transfers
from harness.config import Config, Port
from harness.gateway import ROOT, Gateway
from test_links import wait_until
from test_namespaces import LEFT, RIGHT, attach

pytestmark = pytest.mark.namespaces

SEVEN = """
table=0, priority=1 actions=drop
table=0, priority=10,arp actions=NORMAL
table=0, priority=100,ct_state=-trk,ip actions=ct(table=1)
table=1, ct_state=+new+trk,ip,in_port=left actions=ct(commit),output:right
table=1, ct_state=+new+trk,ip,in_port=right actions=drop
table=1, ct_state=+est+trk,ip,in_port=left actions=output:right
table=1, ct_state=+est+trk,ip,in_port=right actions=output:left
"""
"""The published firewall."""

ROUTED = """
table=0, priority=1 actions=drop
table=0, priority=10,arp actions=NORMAL
table=0, priority=100,ip actions=ct(table=1,nat)
table=1, priority=30,ct_state=+rel+trk,ip actions=NORMAL
table=1, priority=20,ct_state=+est+trk,ip actions=NORMAL
"""
"""What all flows with routes begin with; new connections come behind."""

OUT = "table=1, priority=10,ct_state=+new+trk,ip,in_port=left actions=ct(commit),NORMAL\n"
MASQUERADE = (
    "table=1, priority=10,ct_state=+new+trk,ip,in_port=left "
    f"actions=ct(commit,nat(src={RIGHT[4][0]})),NORMAL\n"
)
FORWARD = (
    f"table=1, priority=10,ct_state=+new+trk,tcp,in_port=right,nw_dst={RIGHT[4][0]},tp_dst=8080 "
    f"actions=ct(commit,nat(dst={LEFT[4][1]}:80)),NORMAL\n"
)
SERVER = """
import socket, sys
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    print("ready", flush=True)
    connection, peer = server.accept()
    with connection:
        connection.sendall(peer[0].encode())
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 3) as connection:
    print(connection.recv(100).decode())
"""


@pytest.fixture
def hosts(topology, tmp_path):
    """Two hosts with the gateway between them: `(left, right, gateway, config)`."""
    topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    config = Config(ports=[left_port, right_port])
    with Gateway(topology["gw"], config, tmp_path) as gateway:
        yield left, right, gateway, config


def replace(gateway, flows):
    gateway.run("flow", "replace", "-", stdin=flows)


def connections(gateway, *words):
    return gateway.json("conntrack", "-L", *words)


def fails(host, target):
    assert "100% packet loss" in host.ping(target, count=2, timeout=2, check=False).stdout


def served(server, port, client, address, to):
    """Connects, and returns by which address the server sees the client."""
    process = server.start(
        "/usr/bin/python3", "-c", SERVER, port, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        return client.run("/usr/bin/python3", "-c", CLIENT, address, to).stdout.strip()
    finally:
        process.kill()
        process.wait()


def test_the_published_firewall_word_for_word(topology, tmp_path):
    """Frames cross it unchanged: each host has the address of the gateway's port to the other one."""
    gw = topology.namespace("gw")
    addresses = {"left": "10.9.0.1", "right": "10.9.0.2"}
    hosts = {}
    for label in addresses:
        hosts[label] = topology.namespace(label)
        topology.link(gw, label, hosts[label], "eth0")
        gw.silence(label)
    for label, other in (("left", "right"), ("right", "left")):
        host = hosts[label]
        host.ip("link", "set", "eth0", "down")
        host.ip("link", "set", "eth0", "address", gw.mac(other))
        host.ip("link", "set", "eth0", "up")
        host.addresses("eth0", f"{addresses[label]}/24")
        host.ip("neigh", "replace", addresses[other], "lladdr", gw.mac(label), "dev", "eth0")
    config = Config(ports=[Port(label, [], kind="af-packet", interface=label) for label in addresses])
    left, right = hosts["left"], hosts["right"]
    def promiscuous():
        links = (json.loads(gw.ip("-d", "-j", "link", "show", "dev", label).stdout)[0] for label in addresses)
        return [link["promiscuity"] for link in links]

    with Gateway(gw, config, tmp_path) as gateway:
        # A network card would pass on no frame for the other host.
        assert promiscuous() == [0, 0]
        replace(gateway, SEVEN)
        wait_until(lambda: promiscuous() == [1, 1], "promiscuous interfaces")
        left.ping(addresses["right"])
        fails(right, addresses["left"])
        transfers.tcp(left, addresses["left"], right, addresses["right"], count=1_000_000)
        transfers.udp(left, addresses["left"], right, addresses["right"])
        dumped = gateway.run("flow", "dump", "table=1").stdout
        assert re.search(
            r"n_packets=[1-9]\d*, n_bytes=\d+, idle_age=\d+, ct_state=\+est\+trk,ip,in_port=left "
            r"actions=output:right",
            dumped,
        ), dumped
        shown = gateway.run("conntrack", "-L", "-p", "icmp").stdout
        assert re.search(
            r"^icmp     1 \d+ src=10.9.0.1 dst=10.9.0.2 type=8 code=0 id=\d+ src=10.9.0.2 "
            r"dst=10.9.0.1 type=0 code=0 id=\d+ mark=0 use=1$",
            shown,
            re.M,
        ), shown
        # Who attacks from outside makes no connection.
        assert not [c for c in connections(gateway) if c["original"]["source"] == "10.9.0.2"]
        gateway.run("flow", "del-all")
        wait_until(lambda: promiscuous() == [0, 0], "interfaces that are not promiscuous any more")


PUBLISHED = re.compile(r"^ *hitpath flow add '([^']+)'$", re.M)
"""How the help and the documentation show flows."""


def test_the_flows_of_the_help_and_the_documentation(topology, tmp_path):
    """Word for word, with no neighbour that is known: flows see ARP."""
    topology.namespace("gw")
    (inside, lan), (outside, wan) = attach(topology, "lan", LEFT), attach(topology, "wan", RIGHT)
    with Gateway(topology["gw"], Config(ports=[lan, wan]), tmp_path) as gateway:
        texts = gateway.run("flow", "--help").stdout, (ROOT / "docs" / "flows.md").read_text()
        for text in texts:
            flows = PUBLISHED.findall(text)
            assert len(flows) >= 4 and flows == PUBLISHED.findall(texts[0])
            gateway.run("flow", "del-all")
            for flow in flows:
                gateway.run("flow", "add", flow)
            for host, port in ((inside, "lan"), (outside, "wan")):
                host.ip("neigh", "flush", "all")
                gateway.run("neigh", "flush", "dev", port)
            inside.ping(RIGHT[4][1], count=2)
            fails(outside, LEFT[4][1])
        # Without the flow for ARP nothing passes, and explain knows.
        gateway.run("flow", "del", "arp")
        gateway.run("neigh", "flush", "dev", "wan")
        packet = f"icmp {LEFT[4][1]} > {RIGHT[4][1]} type 8 code 0 in lan"
        stages = {it["stage"]: it for it in json.loads(gateway.run("-j", "explain", packet, check=False).stdout)}
        assert stages["wait"]["arp"] == "flow_drop" and stages["outcome"]["reason"] == "neighbour_unresolved"
        said = gateway.run("explain", packet, check=False)
        assert "flows of VRF main drop ARP (flow_drop)" in said.stdout and said.returncode == 1
        assert said.stdout.splitlines()[-1].endswith("dropped (neighbour_unresolved)")
        fails(inside, RIGHT[4][1])
        end = time.monotonic() + 10
        while "neighbour_unresolved" not in gateway.drops():
            assert time.monotonic() < end, gateway.drops()
            time.sleep(0.1)


def test_connections_are_shown_changed_and_ended(hosts):
    left, right, gateway, _ = hosts
    replace(gateway, ROUTED + OUT)
    left.ping(RIGHT[4][1])
    fails(right, LEFT[4][1])
    (ping,) = connections(gateway, "-p", "icmp")
    assert ping["status"] == ["SEEN_REPLY"] or "SEEN_REPLY" in ping["status"]
    assert gateway.run("conntrack", "-C").stdout == "1\n"
    changed = gateway.run("conntrack", "-U", "-p", "icmp", "-m", "0x7")
    assert " mark=7 " in changed.stdout
    assert "1 flow entries have been updated" in changed.stderr
    assert connections(gateway, "-m", "7/0xf") and not connections(gateway, "-m", "8/0xf")
    assert connections(gateway, "-s", "10.1.0.0/24") and not connections(gateway, "-d", "10.1.0.0/24")
    found = gateway.run(
        *("conntrack", "-G", "-p", "icmp", "-s", LEFT[4][1], "-d", RIGHT[4][1]),
        *("--icmp-type", "8", "--icmp-id", ping["original"]["icmp_id"]),
    )
    assert found.stdout.startswith("icmp     1 ")
    ended = gateway.run("conntrack", "-D", "-s", LEFT[4][1])
    assert "1 flow entries have been deleted" in ended.stderr
    assert gateway.run("conntrack", "-D", "-s", LEFT[4][1], check=False).returncode == 1
    left.ping(RIGHT[4][1])
    gateway.run("conntrack", "-F")
    assert gateway.run("conntrack", "-C").stdout == "0\n"
    assert gateway.json("conntrack", "-S")["deleted"] == 2


def test_events_are_followed(hosts):
    left, _, gateway, _ = hosts
    replace(gateway, ROUTED + OUT)
    command = [*gateway.command()[:1], "--socket", gateway.socket, "conntrack", "-E"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)
    left.ping(RIGHT[4][1])
    time.sleep(0.5)
    gateway.run("conntrack", "-D", "-p", "icmp")
    time.sleep(0.5)
    follower.terminate()
    out, said = follower.communicate(timeout=5)
    kinds = re.findall(r"^ *\[(\w+)\] icmp     1 ", out, re.M)
    assert kinds[0] == "NEW" and kinds[-1] == "DESTROY", (out, said)
    assert f"{len(kinds)} flow events have been shown." in said


def test_explain_says_what_flows_are_and_do(hosts):
    left, _, gateway, _ = hosts

    def steps(packet):
        shown = gateway.run("explain", packet, check=False).stdout
        stages = json.loads(gateway.run("-j", "explain", packet, check=False).stdout)
        return shown, [stage for stage in stages if stage["stage"] == "flow"]

    replace(gateway, "cookie=0xf123456789abcdef,priority=9,ipv6 actions=nptv6(src=fd01::/48->2001:db8:1::/48),NORMAL\narp actions=NORMAL")
    shown, (found, nptv6, normal) = steps(f"udp [{LEFT[6][1]}]:5000 > [{RIGHT[6][1]}]:53 in left")
    assert found["match"] == "ipv6" and found["priority"] == 9 and found["cookie"] == "0xf123456789abcdef"
    assert found["actions"] == ["nptv6(src=fd01::/48->2001:db8:1::/48)", "NORMAL"] and normal["action"] == "NORMAL"
    assert nptv6["action"] == found["actions"][0] and nptv6["becomes"].startswith("2001:db8:1:")
    assert f"which becomes {nptv6['becomes']}" in shown
    assert "0xf123456789abcdef" in [flow["cookie"] for flow in gateway.json("flow", "show")]
    marked = OUT.replace("ct(commit)", "ct(commit,exec(set_field:0x7->ct_mark,set_field:0x5->ct_label))")
    assert marked != OUT
    replace(gateway, ROUTED + marked)
    left.ping(RIGHT[4][1])
    (ping,) = connections(gateway, "-p", "icmp")
    packet = f"icmp {LEFT[4][1]} > {RIGHT[4][1]} type 8 code 0 id {ping['original']['icmp_id']} in left"
    shown, of_flows = steps(packet)
    (tracked,) = [step for step in of_flows if "ct_mark" in step]
    assert (tracked["ct_mark"], tracked["ct_label"]) == (7, "0x5") and ", ct_mark 0x7, ct_label 0x5" in shown


def test_sources_are_translated_and_ports_forwarded(hosts):
    left, right, gateway, _ = hosts
    replace(gateway, ROUTED + MASQUERADE + FORWARD)
    left.ping(RIGHT[4][1])
    assert served(right, 7000, left, RIGHT[4][1], 7000) == RIGHT[4][0]
    assert served(left, 80, right, RIGHT[4][0], 8080) == RIGHT[4][1]
    shown = gateway.run("conntrack", "-L", "--dst-nat", LEFT[4][1]).stdout
    assert re.search(rf"dst={RIGHT[4][0]} sport=\d+ dport=8080 src={LEFT[4][1]} dst=", shown), shown
    assert connections(gateway, "--src-nat")
    assert not connections(gateway, "--src-nat", "192.0.2.9")
    assert transfers.hops(left, RIGHT[4][1], "-I")[-1] == RIGHT[4][1]


def test_path_mtu_is_told_through_nat(hosts):
    left, right, gateway, _ = hosts
    replace(gateway, ROUTED + MASQUERADE)
    gateway.run("link", "set", "right", "mtu", "1300")
    said = left.ping(RIGHT[4][1], count=2, size=1400, check=False, options=["-M", "do"]).stdout
    assert "mtu = 1300" in said or "mtu=1300" in said, said
    transfers.tcp(left, LEFT[4][1], right, RIGHT[4][1], count=500_000)


def test_flows_survive_a_restart_and_a_reload(hosts):
    left, right, gateway, config = hosts
    text = config.render(gateway.socket)
    said = [f'[[flow]]\nflow = "{line}"' for line in (ROUTED + OUT).strip().splitlines()]
    gateway.write(text + "\n" + "\n".join(said) + "\n")
    shown = gateway.run("reload").stdout
    assert shown.count("+ flow ") == len(said), shown
    gateway.run("flow", "add", "table=3,cookie=0x5,priority=7,udp,tp_dst=53 actions=drop")
    gateway.run("flow", "del", "--strict", "table=1,priority=30,ct_state=+rel+trk,ip")
    assert "+ flow cookie=0x5, table=3" in gateway.run("diff", check=False).stdout
    before = gateway.run("flow", "show").stdout
    gateway.kill()
    gateway.start_again()
    assert gateway.run("flow", "show").stdout == before
    left.ping(RIGHT[4][1])
    fails(right, LEFT[4][1])
    saved = gateway.run("save").stdout
    assert saved.count("[[flow]]") == len(said)
    shown = gateway.run("reload").stdout
    assert shown.splitlines() == ["+ flow table=1, priority=30,ct_state=+rel+trk,ip actions=NORMAL"]
    gateway.run("flow", "del-all")
    right.ping(LEFT[4][1])


def test_a_wrong_flow_is_refused_with_its_place_and_nothing_is_done(hosts):
    _, _, gateway, config = hosts
    wrong = gateway.run("flow", "add-flows", "-", stdin=OUT + "table=1,in_port=up actions=drop\n", check=False)
    assert wrong.returncode == 1 and "line 2: column 17: " in wrong.stderr, wrong.stderr
    assert gateway.run("flow", "show").stdout == ""
    wrong = gateway.run("flow", "add", "ip actions=learn(table=1)", check=False)
    assert "`learn` is not supported" in wrong.stderr, wrong.stderr
    gateway.write(config.render(gateway.socket) + '\n[[flow]]\nflow = "table=0,tcp,tp_dst=x actions=drop"\n')
    wrong = gateway.run("check", gateway.config_path, check=False)
    assert re.search(r"gw.toml:\d+:28: ", wrong.stderr + wrong.stdout), wrong.stderr


def test_flows_end_when_their_time_is_over(hosts):
    left, _, gateway, _ = hosts
    replace(gateway, "priority=5,idle_timeout=3 actions=NORMAL\nhard_timeout=2,priority=9,tcp actions=drop\n")
    end = time.monotonic() + 5
    while time.monotonic() < end:
        left.ping(RIGHT[4][1], count=1)
        time.sleep(0.3)
    shown = gateway.run("flow", "show").stdout
    assert shown == " table=0, idle_timeout=3, priority=5 actions=NORMAL\n"
    assert "the last flow" not in gateway.log()
    time.sleep(5)
    assert gateway.run("flow", "show").stdout == ""
    assert "the last flow of VRF main has gone by its timeout" in gateway.log()


def test_a_vrf_takes_its_flows_along_and_a_named_port_stays(hosts):
    _, _, gateway, _ = hosts
    gateway.run("vrf", "add", "blue")
    gateway.run("flow", "add", "vrf=blue,table=0 actions=drop")
    gateway.run("link", "add", "link", "left", "name", "left.7", "type", "vlan", "id", "7")
    gateway.run("flow", "add", "in_port=left.7 actions=drop")
    refused = gateway.run("link", "del", "left.7", check=False)
    assert "port left.7 is named by a flow" in refused.stderr, refused.stderr
    gateway.run("vrf", "del", "blue")
    assert gateway.run("flow", "show").stdout == ' table=0, in_port=left.7 actions=drop\n'
    gateway.run("flow", "del", "in_port=left.7")
    gateway.run("link", "del", "left.7")


def test_counts_go_on_unless_they_are_reset(hosts):
    left, _, gateway, _ = hosts
    replace(gateway, "table=0,priority=10,arp actions=NORMAL\npriority=5,icmp actions=NORMAL\npriority=4,udp actions=NORMAL\n")

    def counted():
        dumped = gateway.run("flow", "dump").stdout
        return {
            kind: (int(packets), int(octets), actions)
            for packets, octets, kind, actions in re.findall(
                r"n_packets=(\d+), n_bytes=(\d+), .*priority=\d+,(icmp|udp) actions=(\S+)", dumped
            )
        }

    left.ping_exactly(RIGHT[4][1], 3)
    assert counted() == {"icmp": (6, 6 * 84, "NORMAL"), "udp": (0, 0, "NORMAL")}
    # Modified, it counts on; packets of flows that are in the cache are counted by the same.
    gateway.run("flow", "mod", "icmp actions=ct(commit),NORMAL")
    left.ping_exactly(RIGHT[4][1], 1)
    assert counted()["icmp"] == (8, 8 * 84, "ct(commit),NORMAL")
    gateway.run("flow", "mod", "reset_counts,icmp actions=NORMAL")
    assert counted()["icmp"] == (0, 0, "NORMAL")
    left.ping_exactly(RIGHT[4][1], 2)
    assert counted()["icmp"] == (4, 4 * 84, "NORMAL")
    # Strictly, another priority is another flow, which is then added.
    gateway.run("flow", "mod", "--strict", "reset_counts,priority=6,icmp actions=NORMAL")
    assert gateway.run("flow", "show").stdout.count("icmp actions=NORMAL") == 2
    assert " n_packets=4, " in gateway.run("flow", "dump", "icmp").stdout
    gateway.run("flow", "mod", "--strict", "reset_counts,priority=5,icmp actions=NORMAL")
    assert " n_packets=4, " not in gateway.run("flow", "dump", "icmp").stdout
    # One that replaces another begins anew in any case.
    left.ping_exactly(RIGHT[4][1], 1)
    gateway.run("flow", "add", "priority=6,icmp actions=NORMAL")
    assert gateway.run("flow", "dump", "icmp").stdout.count(" n_packets=0, ") == 2
