"""What `hitpath conntrack` shows of connections beside a line, which it finds, and what it changes of them."""

import re
import subprocess
import threading
import time

import pytest
from harness.wires import HEAD, Wires
from scapy.layers.inet import IP, UDP
from test_links import wait_until

pytestmark = pytest.mark.namespaces

NEW = "table=1,priority=10,ct_state=+new+trk,udp,in_port="

FLOWS = HEAD + f"""
{NEW}left,tp_dst=53 actions=ct(commit,exec(set_field:0x7->ct_mark,set_field:0x1234567890abcdef0000000000000001->ct_label)),NORMAL
{NEW}left,tp_dst=5000 actions=ct(commit,nat(src=10.2.0.100:7000-7000)),NORMAL
{NEW}right,nw_dst=10.2.0.100,tp_dst=80 actions=ct(commit,nat(dst=10.1.0.3:8080)),NORMAL
"""

GET = ["-G", "-p", "udp", "-d", "10.2.0.2", "--sport", "4000", "--dport", "53"]

PLAIN = IP(src="10.1.0.2", dst="10.2.0.2") / UDP(sport=4000, dport=53)
SOURCE = IP(src="10.1.0.2", dst="10.2.0.2") / UDP(sport=4000, dport=5000)
DESTINATION = IP(src="10.2.0.3", dst="10.2.0.100") / UDP(sport=4000, dport=80)


@pytest.fixture
def wires(topology, tmp_path):
    """One connection that has a label, one whose source is translated, one whose destination is."""
    with Wires(topology, tmp_path, FLOWS) as wires:
        assert wires.passes("left", PLAIN) and wires.passes("left", SOURCE) and wires.passes("right", DESTINATION)
        yield wires


def listed(wires, *words):
    """The lines of a list, by the port that its packets were first for."""
    lines = wires.gateway.run("conntrack", "-L", *words).stdout.splitlines()
    return {int(re.search(r"dport=(\d+)", line)[1]): line for line in lines}


def without_timeout(line):
    return re.sub(r"^((?:ipv4 +2 )?udp +17) \d+", r"\1", line)


def test_what_is_shown_beside(wires):
    plain = {port: without_timeout(line) for port, line in listed(wires).items()}
    assert set(plain) == {53, 5000, 80}
    assert plain[53] == (
        "udp      17 src=10.1.0.2 dst=10.2.0.2 sport=4000 dport=53 [UNREPLIED] "
        "src=10.2.0.2 dst=10.1.0.2 sport=53 dport=4000 mark=7 use=1"
    )
    ids = {c["original"]["destination_port"]: c["id"] for c in wires.connections()}
    assert len(set(ids.values())) == 3
    for port, line in listed(wires, "-o", "id").items():
        assert without_timeout(line) == f"{plain[port]} id={ids[port]}"
    for port, line in listed(wires, "-o", "extended,id").items():
        assert without_timeout(line) == f"ipv4     2 {plain[port]} id={ids[port]}"
    # Only one has a label.
    label = {53: " labels=0x1234567890abcdef0000000000000001", 5000: "", 80: ""}
    for port, line in listed(wires, "-o", "labels").items():
        assert without_timeout(line) == plain[port] + label[port]
    # Of a list it is nothing, as with conntrack: it says when an event was seen.
    assert {port: without_timeout(line) for port, line in listed(wires, "-o", "timestamp").items()} == plain


def test_the_age_of_connections(wires):
    def ages():
        lines = listed(wires, "-o", "ktimestamp")
        for line in lines.values():
            assert re.search(r" mark=\d+ delta-time=\d+ use=1$", line), line
        return {port: int(re.search(r"delta-time=(\d+)", line)[1]) for port, line in lines.items()}

    wait_until(lambda: min(ages().values()) >= 2, "connections to be two seconds old")
    assert wires.passes("left", PLAIN / b"again")
    before = ages()
    wires.gateway.run("conntrack", "-D", "-p", "udp", "--dport", "53")
    assert wires.passes("left", PLAIN)
    after = ages()
    # A packet makes no connection younger; one that is made anew is.
    assert after[53] < before[53] and all(after[port] >= before[port] for port in (5000, 80)), (before, after)


def test_events_say_when_they_were_seen(wires):
    began = time.time()
    command = [*wires.gateway.command()[:1], "--socket", wires.gateway.socket, "conntrack", "-E", "-o", "timestamp,id,labels"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        # What there is when it begins is no event: until one is seen, connections are made anew.
        line = ""
        wires.gateway.run("conntrack", "-F")
        for number in range(200):
            assert wires.passes("left", IP(src="10.1.0.2", dst="10.2.0.2") / UDP(sport=4000 + number, dport=53))
            if number == 20:
                follower.terminate()
                break
            time.sleep(0.05)
        out, said = follower.communicate(timeout=10)
    finally:
        follower.kill()
    lines = [line for line in out.splitlines() if "[NEW]" in line]
    assert lines, (out, said)
    for line in lines:
        seen = re.fullmatch(
            r"\[(\d+\.\d{6})\]\t    \[NEW\] udp      17 \d+ src=10\.1\.0\.2 dst=10\.2\.0\.2 sport=\d+ dport=53 \[UNREPLIED\] "
            r"src=10\.2\.0\.2 dst=10\.1\.0\.2 sport=53 dport=\d+ mark=7 id=\d+ labels=0x1234567890abcdef0000000000000001",
            line,
        )
        assert seen and began <= float(seen[1]) <= time.time(), line


@pytest.mark.parametrize(
    "words, ports",
    [
        (["--src-nat"], {5000}),
        (["--dst-nat"], {80}),
        (["--any-nat"], {5000, 80}),
        (["--any-nat", "10.2.0.100"], {5000}),
        (["--any-nat", "10.2.0.100:7000"], {5000}),
        (["--any-nat", "10.2.0.100:7001"], set()),
        (["--any-nat", "10.1.0.3"], {80}),
        (["--any-nat", "10.1.0.3:8080"], {80}),
        (["--any-nat", "10.1.0.2"], set()),
        (["--any-nat", "10.1.0.3", "-s", "10.1.0.0/24"], set()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_translated_connections_are_found(wires, words, ports):
    assert set(listed(wires, *words)) == ports
    # Others are not deleted, and without a match it says so.
    deleted = wires.gateway.run("conntrack", "-D", *words, check=False)
    assert deleted.returncode == (0 if ports else 1)
    assert set(listed(wires)) == {53, 5000, 80} - ports


def test_a_connection_is_found_by_the_tuple_of_its_answers(wires):
    reply = ["-r", "10.2.0.2", "-q", "10.2.0.100", "--reply-port-src", "5000", "--reply-port-dst", "7000"]
    found = wires.gateway.run("conntrack", "-G", "-p", "udp", *reply).stdout
    assert found.count("\n") == 1 and " sport=4000 dport=5000 " in found, found
    original = ["-s", "10.1.0.2", "-d", "10.2.0.2", "--sport", "4000", "--dport", "5000"]
    assert wires.gateway.run("conntrack", "-G", "-p", "udp", *original).stdout.count("\n") == 1
    # Both are said, and do not belong together.
    other = wires.gateway.run("conntrack", "-G", "-p", "udp", *original, "-r", "10.2.0.3", check=False)
    assert other.returncode == 1 and "there is no such connection" in other.stderr, other
    part = wires.gateway.run("conntrack", "-G", "-p", "udp", *reply[:6], check=False)
    assert "the destination port is missing, --reply-port-dst" in part.stderr, part


def test_zones_are_those_of_vrfs_and_protocols_are_in_any_case(wires):
    assert set(listed(wires, "-w", "main")) == set(listed(wires, "-w", "0", "-p", "UDP")) == {53, 5000, 80}
    wires.gateway.run("vrf", "add", "green")
    assert listed(wires, "-w", "green") == {}


def test_all_that_end_at_once_are_counted_in_json(wires):
    assert wires.gateway.json("conntrack", "-F") == {"ended": 3}
    assert wires.gateway.json("conntrack", "-F", "expect") == {"ended": 0}


def test_the_end_of_a_connection_says_how_it_was_then(wires):
    command = [*wires.gateway.command()[:1], "--socket", wires.gateway.socket, "conntrack", "-E", "-e", "NEW,DESTROY"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    alarm = threading.Timer(60, follower.kill)
    alarm.start()

    def told(kind):
        """The mark in the next event of a kind about the connection."""
        for line in follower.stdout:
            if f"[{kind}]" in line and " dport=53 " in line:
                return int(re.search(r" mark=(\d+)", line)[1])
        pytest.fail("the follower has ended")

    try:
        # What there is when it begins is no event.
        time.sleep(1)
        wires.gateway.run("conntrack", "-D", "-p", "udp", "--dport", "53")
        for mark in range(100, 110):
            assert wires.passes("left", PLAIN)
            assert told("NEW") == 7
            # Of ten, some change and end between two looks of the thread.
            wires.gateway.run("conntrack", "-U", "-p", "udp", "--dport", "53", "-m", str(mark))
            wires.gateway.run("conntrack", "-D", "-p", "udp", "--dport", "53")
            assert told("DESTROY") == mark
    finally:
        alarm.cancel()
        follower.kill()
        follower.communicate()


def test_what_is_short_is_told_as_well(wires):
    """Ten times a second somebody looks at the connections; these are there for a few milliseconds."""
    wires.gateway.run("conntrack", "-D", "-p", "udp", "--dport", "53")
    command = [*wires.gateway.command()[:1], "--socket", wires.gateway.socket, "conntrack", "-E"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(1)
    for _ in range(20):
        assert wires.passes("left", PLAIN)
        wires.gateway.run("conntrack", "-D", "-p", "udp", "--dport", "53")
    time.sleep(1)
    follower.terminate()
    told, ended = follower.communicate(timeout=20)
    kinds = [line.split()[0] for line in told.splitlines() if " dport=53 " in line]
    assert kinds == ["[NEW]", "[DESTROY]"] * 20, told
    assert "lost" not in ended, ended


def timeouts(wires):
    return {c["original"]["destination_port"]: c["timeout"] for c in wires.connections()}


def test_a_timeout_is_set_until_packets_come(wires):
    changed = wires.gateway.run("conntrack", "-U", "-p", "udp", "--dport", "53", "-t", "500")
    assert "1 flow entries have been updated" in changed.stderr
    now = timeouts(wires)
    assert 490 < now[53] <= 500 and now[5000] <= 30 and now[80] <= 30, now
    # Packets of both sides set it to what is usual.
    assert wires.passes("left", PLAIN) and timeouts(wires)[53] > 490
    assert wires.passes("right", IP(src="10.2.0.2", dst="10.1.0.2") / UDP(sport=53, dport=4000))
    assert timeouts(wires)[53] <= 30
    # Those of the whole prefix end by it, with all that they are; a packet opens another one.
    wires.gateway.run("conntrack", "-U", "-s", "10.1.0.0/24", "-t", "1")
    wait_until(lambda: set(timeouts(wires)) == {80}, "two connections to end")
    wait_until(lambda: wires.statistics()["expired"] == 2, "them to be counted")
    assert wires.passes("left", PLAIN) and set(timeouts(wires)) == {53, 80}
    nobody = wires.gateway.run("conntrack", "-U", "-p", "tcp", "-t", "5", check=False)
    assert nobody.returncode == 1 and "0 flow entries have been updated" in nobody.stderr


@pytest.mark.parametrize(
    "words, says",
    [
        ([], "what is to be done? -L, -G, -D, -F, -C, -S, -U or -E"),
        (["-D", "-t", "5"], "-t SECONDS is for -U"),
        (["-L", "-e", "NEW"], "-e EVENTS is for -E"),
        (["-U", "-s", "10.1.0.2"], "what is to be changed?"),
        (["-U", "-t", "x"], "expected seconds from now, 0 to 4294967295"),
        (["-U", "-t", "-5"], "expected seconds from now, 0 to 4294967295"),
        (["-L", "--sport", "x"], "expected the number of a port, 0 to 65535"),
        (["-L", "-p", "tcp", "--dport", "https"], "expected the number of a port, 0 to 65535"),
        (["-L", "-w", "70000"], "expected a zone, 0 to 65535"),
        (["-L", "-w", "green"], "there is no VRF green; -w takes a zone, 0 to 65535, or a VRF"),
        (["-L", "-p", "icmp", "--icmp-type", "echo"], "expected the number of a type, as 8 of echo requests, 0 to 255"),
        (["-F", "-s", "10.1.0.2"], "-F ends all connections"),
        (["-L", "-o", "xml"], "-o xml is not supported"),
        (["-I", "-s", "10.1.0.2", "-d", "10.2.0.2", "-p", "tcp"], "-I, -A and -R are not supported: packets make connections"),
        (["-A", "-s", "10.1.0.2", "-d", "10.2.0.2", "-p", "tcp"], "-I, -A and -R are not supported"),
        (["-R", "-"], "-I, -A and -R are not supported: packets make connections"),
        (["-E", "-b", "65536"], "-b is not supported: the size of the queue is fixed"),
        (["-L", "-c", "3"], "-c is not supported: connections have no security marks"),
        (["-L", "-s", "10.1.0.0", "--mask-src", "255.255.0.0"], "-s and -d take prefixes, as in 10.1.0.0/16"),
        (["-D", "-d", "10.1.0.0", "--mask-dst", "255.255.0.0"], "-s and -d take prefixes, as in 10.1.0.0/16"),
        (["-L", "expect", "--tuple-src", "10.1.0.2"], "expectations are listed without conditions"),
        (["-L", "expect", "--tuple-dst", "10.1.0.2"], "expectations are listed without conditions"),
        (["-L", "--orig-zone", "1"], "a connection has one zone for both directions, -w ZONE"),
        (["-L", "--reply-zone", "1"], "a connection has one zone for both directions, -w ZONE"),
        (["-L", "-p", "sctp", "--orig-vtag", "1"], "addresses and ports name an association of SCTP"),
        (["-L", "-p", "gre", "--srckey", "1"], "GRE is a protocol without"),
        (["-L", "-u", "OFFLOAD"], "no connection has the status OFFLOAD; UNREPLIED, SEEN_REPLY"),
        (["-L", "-u", "offloaded"], "there is no status offloaded; EXPECTED, SEEN_REPLY"),
        (["-L", "-p", "tcp", "--state", "listen"], "no connection is in state listen; SYN_SENT"),
        ([*GET, "-s", "10.1.0.2", "-m", "7"], "-G names a connection by its tuple, without -m; -L takes that"),
        ([*GET, "-s", "10.1.0.2", "-u", "ASSURED"], "-G names a connection by its tuple, without -u; -L takes that"),
        ([*GET, "-s", "10.1.0.2", "--src-nat"], "-G names a connection by its tuple, without --src-nat; -L takes that"),
        ([*GET, "-s", "10.1.0.0/24"], "-G takes whole addresses, not 10.1.0.0/24; -L takes prefixes"),
        (["-L", "-z"], "-z is not supported: counters only grow"),
        (["-L", "-l", "voice"], "-l is not supported: labels have no names; -o labels shows them"),
        (["-U", "--label-add", "voice"], "labels cannot be changed by command: flows write them"),
        (["-L", "-p", "tcp", "--state", "BOGUS"], "there is no state BOGUS; SYN_SENT, SYN_SENT2, SYN_RECV"),
        (["-L", "-f", "ipv6", "-s", "10.0.0.1"], "-f is of IPv6 and -s of IPv4: no connection is both"),
        (["-D", "-s", "10.0.0.1", "-q", "2001:db8::1"], "-s is of IPv4 and -q of IPv6: no connection is both"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_belong_together_is_refused(wires, words, says):
    refused = wires.gateway.run("conntrack", *words, check=False)
    assert refused.returncode == 2 and says in refused.stderr, refused
    assert set(listed(wires)) == {53, 5000, 80}
