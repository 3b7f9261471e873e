"""Taps: pcapng files that tshark and tcpdump read, of packets of a port, a VRF, or a filter."""

import re
import select
import signal
import subprocess
import time

import pytest
from harness.gateway import binary
from test_links import wait_until
from test_namespaces import LEFT, RIGHT, both_families, hosts

pytestmark = pytest.mark.namespaces
__all__ = ["hosts"]


class Tap:
    """`hitpath tap add` in the background."""

    def __init__(self, gateway, *words):
        self.gateway = gateway
        before = running(gateway)
        command = [binary(), "--socket", str(gateway.socket), "tap", "add", *map(str, words)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 10
        while not (new := running(gateway).keys() - before.keys()):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < end, "the tap does not begin"
            time.sleep(0.02)
        (self.id,) = new

    def wait(self, timeout=10):
        """What it said when it ended, and its exit code."""
        _, said = self.process.communicate(timeout=timeout)
        return said.decode(), self.process.returncode

    def stop(self):
        """Ends it as Ctrl-C does, once what was sent is in the file."""
        time.sleep(0.5)
        self.process.send_signal(signal.SIGINT)
        return self.wait()


def running(gateway):
    """The taps that run, by number."""
    return {tap["id"]: tap for tap in gateway.json("tap", "show") if "ended" not in tap}


def shown(file, *fields, only="ip or ipv6"):
    """Fields of a file's packets, by tshark."""
    asked = [word for field in fields for word in ("-e", field)]
    command = ["tshark", "-r", str(file), "-Y", only, "-T", "fields", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [line.split("\t") for line in done.stdout.splitlines()]


@both_families
def test_tshark_reads_port_direction_and_decision(hosts, tmp_path, family):
    left, _, gateway = hosts
    left.ping(RIGHT[family][1], count=1)
    file = tmp_path / "a.pcapng"
    tap = Tap(gateway, "vrf", "main", file, "icmp or icmp6")
    left.ping(RIGHT[family][1], count=3)
    said, code = tap.stop()
    assert code == 0, said
    kind = {4: "icmp.type", 6: "icmpv6.type"}[family]
    request, reply = {4: ("8", "0"), 6: ("128", "129")}[family]
    rows = shown(file, kind, "frame.interface_name", "frame.packet_flags_direction", "frame.comment")
    rows = [row for row in rows if row[0] in (request, reply)]
    assert len(rows) == 12, rows
    way = [(kind, interface, int(direction, 0)) for kind, interface, direction, _ in rows]
    assert way[:4] == [(request, "left", 1), (request, "right", 2), (reply, "right", 1), (reply, "left", 2)]
    for _, _, _, comment in rows:
        assert re.match("vrf main; forward in clear by (left|right), packets up to 1500 bytes", comment), comment


def test_dropped_packets_have_their_reason(hosts, tmp_path):
    left, _, gateway = hosts
    gateway.run("route", "add", "blackhole", "198.51.100.0/24")
    file = tmp_path / "drops.pcapng"
    tap = Tap(gateway, "port", "left", "drop", file)
    left.ping(RIGHT[4][1], count=1)
    left.ping("198.51.100.1", count=2, check=False, timeout=4)
    left.ping(RIGHT[4][1], count=1, check=False, timeout=4, options=("-t", "1"))
    tap.stop()
    comments = [comment for (comment,) in shown(file, "frame.comment")]
    counted = gateway.drops()
    for reason in ("route_blackhole", "hop_limit"):
        seen = sum(comment.endswith(f"; dropped: {reason}") for comment in comments)
        assert seen == counted[reason] > 0, (reason, counted, comments)
    assert len(comments) == counted["route_blackhole"] + counted["hop_limit"]


def test_filters_find_what_libpcap_finds(hosts, tmp_path):
    """tcpdump reads the file of all packets with the filter; the gateway's own interpreter found the same."""
    left, right, gateway = hosts
    filters = [
        "udp",
        "tcp port 5001",
        "icmp[icmptype] == icmp-echo and ip[8] < 64",
        "ip6 and not icmp6",
        "len > 600",
        "host 10.2.0.2 and (greater 100 or tcp[tcpflags] & tcp-syn != 0)",
        "udp[8:4] % 3 = 1 and udp[9] * 2 > 20",
        "ip[6:2] & 0x3fff != 0",
        "net 10.1.0.0/24 and src portrange 4000-4100",
    ]
    for family in (4, 6):
        left.ping(RIGHT[family][1], count=1)
    everything = Tap(gateway, "vrf", "main", tmp_path / "all")
    taps = [Tap(gateway, "vrf", "main", tmp_path / f"filter{n}", text) for n, text in enumerate(filters)]
    sender = (
        "import random, socket, sys\n"
        "for n in range(300):\n"
        "    family, to = random.choice([(socket.AF_INET, sys.argv[1]), (socket.AF_INET6, sys.argv[2])])\n"
        "    s = socket.socket(family, socket.SOCK_DGRAM)\n"
        "    s.bind(('', random.choice([4000, 4101, 0])))\n"
        "    s.sendto(random.randbytes(random.choice([0, 1, 4, 9, 100, 700, 2000])), (to, random.randint(1, 9000)))\n"
    )
    left.run("/usr/bin/python3", "-Ic", sender, RIGHT[4][1], RIGHT[6][1])
    connect = "import socket, sys; socket.socket().connect_ex((sys.argv[1], 5001))"
    left.run("/usr/bin/python3", "-Ic", connect, RIGHT[4][1])
    for family in (4, 6):
        left.ping(RIGHT[family][1], count=2, size=700)
    time.sleep(0.5)
    for tap in [everything, *taps]:
        gateway.run("tap", "del", str(tap.id))
        said, code = tap.wait()
        assert code == 0 and "deleted by command" in said and "lost" not in said, said

    def packets(file, *text):
        command = ["tcpdump", "-nn", "-tt", "-x", "-r", str(file), *text]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    for number, text in enumerate(filters):
        wanted = packets(tmp_path / "all", text)
        assert packets(tmp_path / f"filter{number}") == wanted, text
        assert number == 7 or wanted, text
    assert packets(tmp_path / "all").count("\n") > 600


def test_bounds_hold_and_files_are_used_in_turn(hosts, tmp_path):
    left, _, gateway = hosts
    counted = Tap(gateway, "port", "left", "in", tmp_path / "counted", "count", 3, "snaplen", 40)
    sized = Tap(gateway, "port", "left", "in", tmp_path / "sized", "size", "4K")
    turned = Tap(gateway, "port", "left", "in", tmp_path / "turned", "size", "4K", "files", 2)
    slow = Tap(gateway, "port", "left", "in", tmp_path / "slow", "rate", "10/s")
    left.ping(RIGHT[4][1], count=100, options=("-i", "0.01"))
    said, code = counted.wait()
    assert (said.strip(), code) == ("hitpath: 3 packets: that many were wanted", 0)
    assert [row for row in shown(tmp_path / "counted", "frame.cap_len", "frame.len")] == [["40", "84"]] * 3
    said, code = sized.wait()
    assert "the file has its size" in said and (tmp_path / "sized").stat().st_size <= 4096
    turned.stop()
    assert sorted(path.name for path in tmp_path.glob("turned*")) == ["turned.1", "turned.2"]
    sequences = sorted(int(row[0]) for n in (1, 2) for row in shown(tmp_path / f"turned.{n}", "icmp.seq"))
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
    assert sequences[-1] >= 100
    slow.stop()
    copied = len(shown(tmp_path / "slow", "frame.len"))
    views = {tap["id"]: tap for tap in gateway.json("tap", "show")}
    assert copied < 60 and views[slow.id]["limited"] >= 100 - copied
    end = time.monotonic() + 5
    while running(gateway):
        assert time.monotonic() < end, "a tap outlives its client"
        time.sleep(0.1)
    ended = {view["id"]: view["ended"] for view in gateway.json("tap", "show") if view["state"] == "ended"}
    assert ended == {
        tap.id: "that many were wanted" if tap is counted else "its client has gone"
        for tap in (counted, sized, turned, slow)
    }


def test_a_full_disk_and_a_client_that_does_not_read_end_or_lose_and_nothing_else(hosts, tmp_path):
    left, _, gateway = hosts
    full = Tap(gateway, "port", "left", "/dev/full")
    stuck = Tap(gateway, "vrf", "main", "-")
    left.ping(RIGHT[4][1], count=2)
    said, code = full.wait()
    assert code == 1 and "writing /dev/full: No space left" in said, said
    # Nobody reads its pipe. The flood is more than all buffers on the way.
    left.ping(RIGHT[4][1], count=3000, size=1400, timeout=60, options=("-i", "0.002"))
    view = running(gateway)[stuck.id]
    assert view["lost"] > 0 and view["copied"] > 0 and view["state"] == "running", view
    assert view["lost"] + view["copied"] >= 12_000
    left.ping(RIGHT[4][1], count=3)
    gateway.run("tap", "del", str(stuck.id))
    stuck.process.kill()
    stuck.wait()
    left.ping(RIGHT[4][1], count=3)


@pytest.mark.parametrize(
    "reader",
    [["tshark", "-l", "-n", "-i", "-"], ["tcpdump", "-l", "-n", "-r", "-"]],
    ids=["tshark", "tcpdump"],
)
def test_a_pipe_is_read_while_packets_come(hosts, reader):
    """A packet is shown before the next one is sent, and the reader ends when the tap does."""
    left, _, gateway = hosts
    left.ping(RIGHT[4][1], count=1)
    tap = Tap(gateway, "port", "left", "in", "-", "icmp")
    shows = subprocess.Popen(reader, stdin=tap.process.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # The end of the pipe has to be the reader's alone.
    tap.process.stdout.close()
    try:
        for _ in range(3):
            left.ping_exactly(RIGHT[4][1], 1)
            assert select.select([shows.stdout], [], [], 20)[0], "nothing is shown"
            line = shows.stdout.readline().decode()
            assert LEFT[4][1] in line and RIGHT[4][1] in line and "cho" in line, line
        gateway.run("tap", "del", str(tap.id))
        assert tap.process.wait(10) == 0
        rest, said = shows.communicate(timeout=10)
        assert rest == b"" and shows.returncode == 0, (rest, said)
        assert b"3 packets: deleted by command" in tap.process.stderr.read()
    finally:
        shows.kill()
        shows.wait()
        tap.process.stderr.close()


def test_the_reader_of_a_pipe_ends_the_tap(hosts):
    """As `| head -1` does."""
    left, _, gateway = hosts
    tap = Tap(gateway, "port", "left", "in", "-", "icmp")
    tap.process.stdout.close()
    left.ping(RIGHT[4][1], count=1)
    said = tap.process.stderr.read().decode()
    assert tap.process.wait(10) == 0 and said.endswith("nobody reads any more\n"), said
    tap.process.stderr.close()
    end = time.monotonic() + 5
    while running(gateway):
        assert time.monotonic() < end, "a tap outlives its client"
        time.sleep(0.1)
    left.ping(RIGHT[4][1], count=1)


def test_what_is_wrong_is_said(hosts, tmp_path):
    _, _, gateway = hosts
    file = str(tmp_path / "never")
    for words, says in [
        (["port", "nowhere", file], "there is no port nowhere"),
        (["vrf", "nowhere", file], "there is no VRF nowhere"),
        (["port", "left", file, "hsot", "10.0.0.1"], "is not understood: tcpdump: "),
        (["port", "left", file, "vlan", "5"], "is not understood: tcpdump: "),
        (["port", "left", str(tmp_path / "no" / "folder")], "No such file"),
        (["port", "left", file, "rate", "0"], "rate 0"),
    ]:
        done = gateway.run("tap", "add", *words, check=False)
        assert done.returncode in (1, 2) and says in done.stderr, done.stderr
    # One was asked for before its file could not be made.
    end = time.monotonic() + 5
    while running(gateway):
        assert time.monotonic() < end, "a tap outlives its client"
        time.sleep(0.1)
    assert "there is no tap 99" in gateway.run("tap", "del", "99", check=False).stderr


def test_explain_names_taps_and_queueing_disciplines(hosts, tmp_path):
    left, _, gateway = hosts
    left.ping(RIGHT[4][1], count=1)
    packet = f"udp {LEFT[4][1]}:7 > {RIGHT[4][1]}:9 in left"
    plain = {stage["stage"] for stage in gateway.json("explain", packet)}
    assert not plain & {"tap", "qdisc"}, plain
    gateway.run(*"qdisc add dev right root handle 1: tbf rate 20mbit burst 16kb limit 200kb".split())
    gateway.run(*"qdisc add dev right parent 1: handle 10: fq_codel".split())
    gateway.run(*"qdisc add dev main root handle 2: pfifo limit 50".split())
    first = Tap(gateway, "vrf", "main", tmp_path / "a.pcapng")
    second = Tap(gateway, "port", "right", "out", tmp_path / "b.pcapng", "udp")
    text = gateway.run("explain", packet).stdout
    says = f"copied by tap {first.id} of vrf main (in out), tap {second.id} of right (out) if its filter matches"
    assert says in text, text
    assert "through pfifo 2: of vrf main, then tbf 1: of right with fq_codel 10: under it" in text, text
    stages = {stage["stage"]: stage for stage in gateway.json("explain", packet)}
    assert stages["tap"]["taps"] == [
        {"vrf": "main", "id": first.id, "when": ["in", "out"], "filtered": False},
        {"port": "right", "id": second.id, "when": ["out"], "filtered": True},
    ]
    assert stages["qdisc"]["qdiscs"] == [
        {"vrf": "main", "kind": "pfifo", "handle": "2:"},
        {"port": "right", "kind": "tbf", "handle": "1:", "child": "fq_codel"},
    ]
    # Counted there, one after the other. That of the VRF has what leaves by the other port as well.
    left.run("/usr/bin/python3", "-c", "import socket, sys\n"
             "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], 9))", RIGHT[4][1])

    def counted():
        rows = {row["handle"]: row["packets"] for row in gateway.json("-s", "qdisc", "show")}
        return rows["2:"] >= rows["1:"] == rows["10:"] == 1

    wait_until(counted, "the packet in all three disciplines")
    for tap in (first, second):
        tap.stop()
