"""VRFs in iproute2's words on a running gateway: tenants with the same addresses, ports that move under traffic."""

import dataclasses
import subprocess
import time

import pytest
from harness.config import Config, Port
from harness.gateway import Gateway
from test_namespaces import LEFT, RIGHT, attach
from test_vlans import host, switch, trunk  # noqa: F401

pytestmark = pytest.mark.namespaces

MANY = 4000


@pytest.fixture
def gateway(topology, switch, tmp_path):  # noqa: F811
    """Two trunks with the hosts of two tenants, whose VLANs are all in `main` and have no addresses yet."""
    gw = topology.namespace("gw")
    hosts = {"red": [], "blue": []}
    config = Config()
    for side in ("left", "right"):
        made = trunk(topology, switch, side)
        for tenant in hosts:
            hosts[tenant].append(host(topology, made, side, tenant))
        config.ports.append(Port(side, [], kind="af-packet", interface=side))
    with Gateway(gw, config, tmp_path) as running:
        yield running, hosts


def make(gateway, tenant, table, vlans):
    """A VRF with a VLAN on each side, all by commands."""
    gateway.run("link", "add", tenant, "type", "vrf", "table", str(table))
    gateway.run("link", "set", "dev", tenant, "up")
    for side, vlan, own in (("left", vlans[0], LEFT), ("right", vlans[1], RIGHT)):
        name = f"{side}.{vlan}"
        gateway.run("link", "add", "link", side, "name", name, "type", "vlan", "id", str(vlan))
        gateway.run("link", "set", name, "master", tenant)
        gateway.run("addr", "add", f"{own[4][0]}/24", "dev", name)
        gateway.run("addr", "add", f"{own[6][0]}/64", "dev", name)
        gateway.run("link", "set", name, "up")


def test_tenants_by_command(gateway, tmp_path):
    gateway, hosts = gateway
    make(gateway, "red", 10, (10, 110))
    make(gateway, "blue", 20, (20, 4094))
    for left, right in hosts.values():
        left.ping(RIGHT[4][1])
        right.ping(LEFT[6][1])
    shown = gateway.run("vrf", "show").stdout
    assert "red                  10" in shown and "blue                 20" in shown
    table = gateway.run("-4", "route", "show", "table", "10").stdout.splitlines()
    assert any(line.startswith(f"local {LEFT[4][0]} dev left.10") for line in table), table
    assert all(":" not in line.split()[0] for line in table), table
    assert not any("local" in line for line in gateway.run("route", "show", "vrf", "red").stdout.splitlines())
    brief = gateway.run("-br", "link", "show", "master", "red").stdout
    assert [line.split()[:2] for line in brief.splitlines()] == [["left.10@left", "UP"], ["right.110@right", "UP"]]
    links = {link["ifname"]: link for link in gateway.json("link", "show", "type", "vrf")}
    assert links["red"]["linkinfo"] == {"info_kind": "vrf", "info_data": {"table": 10}}
    assert links["red"]["stats64"]["rx"]["packets"] > 0
    assert "vrf_slave table 10" in gateway.run("-d", "link", "show", "left.10").stdout

    # A port that leaves takes nothing along of what it has counted.
    left, _ = hosts["red"]
    before = links["red"]["stats64"]
    gateway.run("link", "set", "left.10", "nomaster", "down")
    after = {link["ifname"]: link for link in gateway.json("link", "show", "type", "vrf")}["red"]["stats64"]
    assert after["rx"]["packets"] >= before["rx"]["packets"]
    assert left.ping(RIGHT[4][1], count=1, timeout=2, check=False).returncode != 0
    hosts["blue"][0].ping(RIGHT[4][1])

    # A VRF that goes leaves its ports down and bare.
    gateway.run("link", "del", "red")
    gone = {port["name"]: port for port in gateway.json("show", "ports")}
    assert (gone["right.110"]["vrf"], gone["right.110"]["up"]) == ("main", False)
    assert [own for own in gone["right.110"]["addresses"] if not own.startswith("fe80")] == []
    hosts["blue"][0].ping(RIGHT[4][1])
    refused = gateway.run("vrf", "exec", "blue", "ping", RIGHT[4][1], check=False)
    assert refused.returncode == 2 and "programs do not run in VRFs here" in refused.stderr


def test_ports_move_under_traffic(gateway):
    """Each reply comes by the tenant that asked; nothing stops for the other one."""
    gateway, hosts = gateway
    make(gateway, "red", 10, (10, 110))
    make(gateway, "blue", 20, (20, 4094))
    flood = hosts["blue"][0].start("ping", "-i", "0.02", "-c", "300", "-W", "2", RIGHT[4][1])
    for _ in range(10):
        gateway.run("link", "set", "right.110", "nomaster")
        gateway.run("link", "set", "right.110", "master", "red")
        time.sleep(0.1)
    out, _ = flood.communicate(timeout=30)
    assert " 0% packet loss" in out, out
    hosts["red"][0].ping(RIGHT[4][1])


def memory(pid):
    """Bytes of memory that a process has."""
    with open(f"/proc/{pid}/status") as status:
        (line,) = (line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_four_thousand(gateway, tmp_path):
    gateway, hosts = gateway
    make(gateway, "red", 10, (10, 110))
    pid = gateway.json("show", "daemon")["pid"]
    before = memory(pid)
    lines = tmp_path / "vrfs.txt"
    lines.write_text("".join(f"link add t{number} type vrf table {number}\n" for number in range(1000, 1000 + MANY)))
    begin = time.monotonic()
    gateway.run("batch", str(lines), timeout=120)
    took = time.monotonic() - begin
    each = (memory(pid) - before) / MANY
    print(f"{MANY} VRFs in {took:.1f} s, {each:.0f} bytes each")
    assert each < 10_000
    assert took < 60
    assert len(gateway.json("vrf", "show")) == MANY + 2
    hosts["red"][0].ping(RIGHT[4][1])


def test_vrfs_survive_a_restart(topology, tmp_path):
    gw = topology.namespace("gw")
    config = Config(ports=[Port("lan", ["192.0.2.1/24"], kind="tap", interface="tap9")])
    with Gateway(gw, config, tmp_path) as running:
        running.run("link", "add", "blue", "type", "vrf", "table", "10")
        running.run("link", "set", "lan", "master", "blue")
        running.run("route", "add", "blackhole", "10.9.0.0/16", "table", "10")
        running.run("route", "add", "blackhole", "10.8.0.0/16", "table", "77")
        shown = running.run("route", "show", "table", "all").stdout
    with Gateway(gw, config, tmp_path) as running:
        assert running.run("route", "show", "table", "all").stdout == shown
        assert "master blue" in running.run("link", "show", "lan").stdout
        saved = running.run("save").stdout
        assert "table = 10" in saved and "table = 77" in saved
        diff = running.run("diff", check=False).stdout
        assert "blue table 10" in diff


NUMBERED = """
import socket, sys, time
name, address, seconds = sys.argv[1:]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end, number = time.monotonic() + float(seconds), 0
while time.monotonic() < end:
    number += 1
    s.sendto(f"{name} {number}".encode(), (address, 5201))
    time.sleep(0.002)
"""

GATHER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5201))
s.settimeout(4)
print("ready", flush=True)
while True:
    try:
        print(s.recv(99).decode(), flush=True)
    except TimeoutError:
        break
"""


def test_a_reload_that_exchanges_interfaces_gives_no_packet_to_both_tenants(topology, tmp_path):
    """The new port of an interface has what came to it meanwhile as well, which the former one has delivered."""
    gw = topology.namespace("gw")
    ports, senders, receivers = [], {}, {}
    for tenant in ("red", "blue"):
        senders[tenant], port = attach(topology, f"{tenant}-in", LEFT, vrf=tenant)
        ports.append(port)
        receivers[tenant], port = attach(topology, f"{tenant}-out", RIGHT, vrf=tenant)
        ports.append(port)
    config = Config(vrfs=["red", "blue"], ports=ports)
    other = {"red-in": "blue-in", "blue-in": "red-in"}
    exchanged = dataclasses.replace(
        config, ports=[dataclasses.replace(port, interface=other.get(port.interface, port.interface)) for port in ports]
    )
    with Gateway(gw, config, tmp_path) as gateway:
        for sender in senders.values():
            sender.ping(RIGHT[4][1])
        python, jobs = "/usr/bin/python3", {}
        for tenant, receiver in receivers.items():
            jobs[tenant] = receiver.start(python, "-c", GATHER, stdout=subprocess.PIPE, text=True)
            assert jobs[tenant].stdout.readline() == "ready\n"
        streams = [sender.start(python, "-c", NUMBERED, tenant, RIGHT[4][1], "4") for tenant, sender in senders.items()]
        for config_now in (exchanged, config, exchanged):
            time.sleep(0.7)
            gateway.write(config_now)
            gateway.run("reload")
        for stream in streams:
            stream.wait()
        got = {tenant: set(job.communicate(timeout=20)[0].split("\n")) - {""} for tenant, job in jobs.items()}
    for tenant, lines in got.items():
        both = {name: sum(line.startswith(name) for line in lines) for name in senders}
        assert min(both.values()) > 100, (tenant, both)
    assert not got["red"] & got["blue"], sorted(got["red"] & got["blue"])[:20]
