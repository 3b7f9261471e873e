"""Interfaces that go down, lose their carrier, go away and come back as others, under a running gateway."""

import contextlib
import signal
import threading
import time

import pytest

from harness.config import Config, Port, Raw
from harness.gateway import Gateway
from harness.selftests import Script
from harness.transfers import wait_for_listener
from test_monitor import Follower
from test_namespaces import LEFT, RIGHT, attach

pytestmark = pytest.mark.namespaces

RENAMED = Script("netfilter/nft_interface_stress.sh", 1, {})

BACK = 1.0
"""Traffic is back within so many seconds of the cable."""


@pytest.fixture
def hosts(topology, tmp_path):
    """Two hosts with the gateway between them: `(left, right, gateway)`."""
    topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    with Gateway(topology["gw"], Config(ports=[left_port, right_port]), tmp_path) as gateway:
        left.ping(RIGHT[4][1], count=1)
        left.ping(RIGHT[6][1], count=1)
        yield left, right, gateway


def port(gateway, name="right"):
    (found,) = [port for port in gateway.json("show", "ports") if port["name"] == name]
    return found


def wait_until(true, what, timeout=10.0):
    """Waits, and returns how many seconds it took."""
    begin = time.monotonic()
    while not true():
        assert time.monotonic() < begin + timeout, what
        time.sleep(0.01)
    return time.monotonic() - begin


def timed(action):
    """How many seconds something takes."""
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def wait_for_state(gateway, state, name="right"):
    """Waits, and returns how many seconds it took, less what asking costs on this machine."""
    asking = timed(lambda: port(gateway, name))

    def is_so():
        is_now = port(gateway, name)
        return (is_now.get("interface_state"), is_now["up"]) == (state, state == "up")

    return wait_until(is_so, f"port {name} is not {state}: {port(gateway, name)}") - 2 * asking


def back_within_a_second(left, target=RIGHT[4][1]):
    """Pings many times a second until one is answered. What a ping costs by itself does not count."""
    begin = time.monotonic()
    while left.run("ping", "-c1", "-W0.2", target, check=False).returncode != 0:
        assert time.monotonic() < begin + 5 * BACK, "no traffic"
    took = time.monotonic() - begin
    pinging = timed(lambda: left.run("ping", "-c1", "-W1", LEFT[4][0]))
    assert took < BACK + 2 * pinging, f"traffic was back after {took:.2f} s; a ping takes {pinging:.2f} s"


def make_right_anew(topology, left, right):
    """The interface `right` of the gateway comes, with a host behind it; traffic is back soon."""
    gw = topology["gw"]
    topology.link(gw, "right", right, "eth0")
    gw.silence("right")
    right.addresses("eth0", f"{RIGHT[4][1]}/24", f"{RIGHT[6][1]}/64")
    right.ip("-4", "route", "add", "default", "via", RIGHT[4][0])
    right.ip("-6", "route", "add", "default", "via", RIGHT[6][0])
    back_within_a_second(left)
    left.ping(RIGHT[6][1], count=1)


@contextlib.contextmanager
def sending(host, target, count):
    """`count` datagrams from a host of its own accord, at some 10,000 a second."""
    script = f"""
import socket, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range({count}):
    out.sendto(b"x" * 64, ("{target}", 9))
    if number % 100 == 99:
        time.sleep(0.005)
"""
    sender = threading.Thread(target=lambda: host.run("python3", "-c", script))
    sender.start()
    yield
    sender.join()


@pytest.mark.parametrize("where", ["here", "there"])
def test_nothing_is_sent_by_a_port_whose_link_is_down(hosts, topology, where):
    left, right, gateway = hosts
    end = (topology["gw"], "right") if where == "here" else (right, "eth0")
    state = "down" if where == "here" else "no-carrier"
    end[0].ip("link", "set", end[1], "down")
    assert wait_for_state(gateway, state) < BACK

    before, dropped = port(gateway)["statistics"], gateway.drops().get("port_down", 0)
    with sending(left, RIGHT[4][1], 9990):
        pass
    wait_until(
        lambda: gateway.drops().get("port_down", 0) - dropped >= 9990, f"not all were dropped: {gateway.drops()}"
    )
    after = port(gateway)["statistics"]
    assert (after["tx_packets"], after["tx_bytes"]) == (before["tx_packets"], before["tx_bytes"])

    told = gateway.run("explain", "udp", LEFT[4][1], ">", RIGHT[4][1], "in", "left", check=False).stdout
    why = "is down" if where == "here" else "has no carrier"
    assert f"interface right of port right {why}" in told and "dropped" in told, told
    assert why in gateway.log()

    end[0].ip("link", "set", end[1], "up")
    if where == "there":
        right.ip("-4", "route", "replace", "default", "via", RIGHT[4][0])
    back_within_a_second(left)
    assert port(gateway)["up"]


def test_learned_neighbours_do_not_outlive_the_link(hosts):
    """Another station with the same address takes the place of the first."""
    left, right, gateway = hosts
    right.ip("link", "set", "eth0", "down")
    wait_for_state(gateway, "no-carrier")
    assert not [row for row in gateway.json("show", "neighbours") if row["port"] == "right"]
    right.ip("link", "set", "eth0", "address", "02:00:00:00:99:99")
    right.ip("link", "set", "eth0", "up")
    right.ip("-4", "route", "replace", "default", "via", RIGHT[4][0])
    back_within_a_second(left)
    (known,) = [row for row in gateway.json("show", "neighbours") if row["address"] == RIGHT[4][1]]
    assert known["mac"] == "02:00:00:00:99:99"


def test_an_interface_that_comes_back_as_another_is_used(hosts, topology):
    """Deleted and made anew: another index, another address, another peer."""
    left, right, gateway = hosts
    gw = topology["gw"]
    before = port(gateway)
    gw.ip("link", "del", "right")
    assert wait_for_state(gateway, "gone") < BACK
    told = gateway.run("explain", "udp", LEFT[4][1], ">", RIGHT[4][1], "in", "left", check=False).stdout
    assert "interface right of port right is gone" in told, told
    assert gateway.run("reload").returncode == 0, "a reload has nothing against a port that is gone"

    make_right_anew(topology, left, right)
    after = port(gateway)
    assert after["mac"] == gw.mac("right") and after["mac"] != before["mac"]
    assert after["statistics"]["rx_packets"] > before["statistics"]["rx_packets"], "its counters go on"


def test_an_interface_that_comes_after_the_start_is_used(hosts, topology):
    """The gateway starts without it, as one whose interface has gone, and opens it when it comes."""
    left, right, gateway = hosts
    gw = topology["gw"]
    gw.ip("link", "del", "right")
    gateway.kill()
    gateway.start_again()
    log = gateway.log()
    missing = [line for line in log.splitlines() if "WARN" in line and "interface right" in line]
    assert len(missing) == 1 and "there is no interface right" in missing[0], log
    assert port(gateway)["interface_state"] == "gone" and not port(gateway)["up"]
    told = gateway.run("explain", "udp", LEFT[4][1], ">", RIGHT[4][1], "in", "left", check=False).stdout
    assert "interface right of port right is gone" in told and "port_down" in told, told
    # The rest of it works.
    left.ping(LEFT[4][0], count=1)
    assert gateway.run("reload").returncode == 0

    make_right_anew(topology, left, right)
    assert port(gateway)["mac"] == gw.mac("right") and port(gateway)["mtu"] == 1500
    assert "opened, as its interface has come" in gateway.log()


def test_an_exchange_while_nobody_looks_is_noticed(hosts, topology):
    """Gone and back again faster than anything could react to it."""
    left, right, gateway = hosts
    gw = topology["gw"]
    script = f"""
set -e
ip link del right
ip link add right netns {gw.name} type veth peer name eth0 netns {right.name}
ip link set right up
"""
    gw.run("sh", "-c", script)
    gw.silence("right")
    right.addresses("eth0", f"{RIGHT[4][1]}/24")
    right.ip("-4", "route", "add", "default", "via", RIGHT[4][0])
    back_within_a_second(left)


def test_the_interfaces_own_address_is_followed(hosts, topology):
    left, right, gateway = hosts
    topology["gw"].ip("link", "set", "right", "address", "02:00:00:00:77:77")
    wait_until(lambda: port(gateway)["mac"] == "02:00:00:00:77:77", "another address")
    right.ip("neigh", "flush", "dev", "eth0")
    back_within_a_second(left)
    back_within_a_second(left, RIGHT[6][1])


def test_the_interfaces_mtu_is_followed(hosts, topology):
    left, right, gateway = hosts
    gw = topology["gw"]

    def ping(size):
        return left.ping(RIGHT[4][1], count=1, size=size, options=["-M", "do"], check=False, timeout=2).stdout

    assert "1 received" in ping(1472)
    gw.ip("link", "set", "right", "mtu", "1300")
    wait_until(lambda: port(gateway)["mtu"] == 1300, "an MTU of 1300")
    assert "mtu = 1300" in ping(1472) or "mtu=1300" in ping(1472)
    gw.ip("link", "set", "right", "mtu", "1500")
    wait_until(lambda: port(gateway)["mtu"] == 1500, "an MTU of 1500")
    left.ip("route", "flush", "cache")
    assert "1 received" in ping(1472)

    gw.ip("link", "set", "right", "mtu", "9000")
    wait_until(lambda: port(gateway)["mtu"] == 9000, "an MTU of 9000")


def test_an_mtu_without_buffers_for_it_is_not_followed(topology, tmp_path):
    gw = topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    config = Config(ports=[left_port, right_port], gateway={"large-buffers": Raw("0")})
    with Gateway(gw, config, tmp_path) as gateway:
        left.ping(RIGHT[4][1], count=1)
        gw.ip("link", "set", "right", "mtu", "9000")
        wait_until(lambda: "large-buffers" in gateway.log(), "a word about the buffers that are missing")
        assert port(gateway)["mtu"] == 1500


def test_a_tap_device_that_is_deleted_is_made_again(topology, tmp_path):
    gw = topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    config = Config(ports=[left_port, Port("tap0", [f"{RIGHT[4][0]}/24"], kind="tap")])
    with Gateway(gw, config, tmp_path) as gateway:

        def address():
            gw.ip("addr", "add", f"{RIGHT[4][1]}/24", "dev", "tap0")
            gw.ip("route", "replace", f"{LEFT[4][1]}/32", "via", RIGHT[4][0])

        address()
        left.ping(RIGHT[4][1], count=1)
        gw.ip("link", "set", "tap0", "down")
        assert wait_for_state(gateway, "down", "tap0") < BACK
        gw.ip("link", "set", "tap0", "up")
        assert wait_for_state(gateway, "up", "tap0") < BACK
        gw.ip("route", "replace", f"{LEFT[4][1]}/32", "via", RIGHT[4][0])
        back_within_a_second(left)

        gw.ip("link", "del", "tap0")
        wait_for_state(gateway, "gone", "tap0")
        wait_for_state(gateway, "up", "tap0")
        address()
        back_within_a_second(left)


def test_a_port_without_carrier_at_the_start_waits_for_it(topology, tmp_path):
    gw = topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    right.ip("link", "set", "eth0", "down")
    with Gateway(gw, Config(ports=[left_port, right_port]), tmp_path) as gateway:
        assert port(gateway)["interface_state"] == "no-carrier"
        right.ip("link", "set", "eth0", "up")
        right.ip("-4", "route", "replace", "default", "via", RIGHT[4][0])
        back_within_a_second(left)


def test_many_changes_of_other_interfaces_do_not_hold_the_gateway_up(hosts, topology):
    left, _, gateway = hosts
    script = "for n in $(seq 200); do ip link add x type veth peer name y; ip link set x up; ip link del x; done"
    with contextlib.ExitStack() as stack:
        churn = threading.Thread(target=lambda: topology["gw"].run("sh", "-c", script, timeout=60))
        churn.start()
        stack.callback(churn.join)
        while churn.is_alive():
            begin = time.monotonic()
            gateway.json("show", "ports")
            assert time.monotonic() - begin < BACK
        left.ping(RIGHT[4][1], count=3)


RENAME = """
rename() {
    ip link set $1 name $2 2>/dev/null && return
    # Before Linux 6.2 only what is down gets another name.
    ip link set $1 down && ip link set $1 name $2 && ip link set $2 up
}
"""


def rename(space, *names):
    """Interfaces get other names, one after the other: of each two names, the old one and the new one."""
    steps = "\n".join(f"rename {old} {new}" for old, new in zip(names[::2], names[1::2]))
    space.run("sh", "-c", f"set -e\n{RENAME}\n{steps}", timeout=60)


def test_an_interface_that_is_renamed_is_gone_until_it_has_its_name_again(hosts, topology):
    left, right, gateway = hosts
    gw, before = topology["gw"], port(gateway)
    rename(gw, "right", "right0")
    wait_for_state(gateway, "gone")
    assert left.run("ping", "-n", "-c1", "-W0.3", RIGHT[4][1], check=False).returncode != 0
    gateway.wait_for_more_drops("port_down")
    told = gateway.run("explain", "udp", LEFT[4][1], ">", RIGHT[4][1], "in", "left", check=False).stdout
    assert "interface right of port right is gone" in told and "port_down" in told, told
    left.ping(LEFT[4][0], count=1)
    rename(gw, "right0", "right")
    wait_for_state(gateway, "up")
    left.ping(RIGHT[4][1], count=1)
    left.ping(RIGHT[6][1], count=1)
    after = port(gateway)
    assert after["mac"] == before["mac"]
    assert after["statistics"]["rx_packets"] > before["statistics"]["rx_packets"], "its counters go on"


def test_interfaces_that_exchange_their_names_exchange_their_ports(hosts, topology):
    left, right, gateway = hosts
    gw = topology["gw"]
    macs = {name: gw.mac(name) for name in ("left", "right")}

    def ports():
        return {name: port(gateway, name)["mac"] for name in macs if port(gateway, name)["up"]}

    exchange = ("left", "spare", "right", "left", "spare", "right")
    rename(gw, *exchange)
    wait_until(lambda: ports() == {"left": macs["right"], "right": macs["left"]}, "each port on the other's interface")
    # The right host is a station of the left port now.
    right.ip("addr", "add", "10.1.0.3/24", "dev", "eth0")
    right.ping(LEFT[4][0], count=1, source="10.1.0.3")
    assert left.run("ping", "-n", "-c1", "-W0.3", LEFT[4][0], check=False).returncode != 0
    right.ip("addr", "del", "10.1.0.3/24", "dev", "eth0")
    rename(gw, *exchange)
    wait_until(lambda: ports() == macs, "each port on its interface")
    for family in (4, 6):
        left.ping(RIGHT[family][1], count=1)
        right.ping(LEFT[family][1], count=1)


SEND = """
import signal, socket, sys, time
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
sent = 0
with socket.create_connection((sys.argv[1], 5001), 10) as out:
    out.settimeout(60)
    while not ended:
        out.sendall(bytes(4096))
        sent += 4096
        time.sleep(0.001)
print(sent)
"""
TAKE = """
import socket, sys
with socket.create_server((sys.argv[1], 5001)) as server:
    taken, _ = server.accept()
came = 0
while piece := taken.recv(1 << 16):
    came += len(piece)
print(came)
"""
TRACKED = """
priority=10,arp actions=NORMAL
priority=10,ip actions=ct(commit),NORMAL
priority=10,ipv6 actions=ct(commit),NORMAL
"""


def test_renamed_all_the_while_beside_tcp_and_lists(hosts, topology):
    """As `nft_interface_stress.sh`: one connection goes on, lists end, and who follows changes is told of all."""
    left, right, gateway = hosts
    gw, ending, failed = topology["gw"], threading.Event(), []
    gateway.run("flow", "replace", "-", stdin=TRACKED)

    def list_all():
        while not ending.is_set():
            for words in (["flow", "dump"], ["conntrack", "-L"], ["show", "ports"]):
                done = gateway.run(*words, check=False)
                if done.returncode != 0:
                    failed.append(done)

    def came():
        return int(right.run("cat", "/sys/class/net/eth0/statistics/rx_bytes").stdout)

    taking = right.start("/usr/bin/python3", "-Ic", TAKE, RIGHT[4][1])
    wait_for_listener(right, 5001)
    sending_one = left.start("/usr/bin/python3", "-Ic", SEND, RIGHT[4][1])
    lists = threading.Thread(target=list_all)
    lists.start()
    try:
        with Follower(gateway, "monitor", "link") as follower:
            for _ in range(5):
                before = came()
                wait_until(lambda: came() > before + 20_000, "the connection goes on")
                rename(gw, "right", "right0")
                wait_for_state(gateway, "gone")
                rename(gw, "right0", "right")
                wait_for_state(gateway, "up")
            # Faster than anything could follow.
            rename(gw, *["right", "right0", "right0", "right"] * 40)
            wait_for_state(gateway, "up")
            before = came()
            wait_until(lambda: came() > before + 20_000, "the connection goes on", timeout=30)
            follower.wait(r"^\d+: right: <.*>.*state DOWN(.*\n)*\d+: right: <.*UP.*>")
            assert follower.process.poll() is None
    finally:
        ending.set()
        lists.join()
    sending_one.send_signal(signal.SIGTERM)
    sent, _ = sending_one.communicate(timeout=60)
    received, _ = taking.communicate(timeout=60)
    assert sent == received and int(sent) > 0
    assert not failed, failed[0]
    assert " ERROR " not in gateway.log() and "panicked" not in gateway.log()
    assert port(gateway)["mac"] == gw.mac("right")


def test_every_case_is_counted():
    RENAMED.demand_all_counted(passed=1)
