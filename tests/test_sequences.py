"""No key sends a sequence number or an IV twice, and nothing that was received is accepted again, however often
the gateway is killed."""

import contextlib
import os
import pathlib
import random
import re
import socket
import struct
import subprocess
import sys
import time

import pytest
from harness import flood, metrics
from harness.algorithms import CBC_SHA256, GCM, Sa
from harness.config import FIRST, Config, Neighbour, Policy, Port, Route
from harness.failure import CommandFailed
from harness.gateway import Gateway, binary
from harness.netns import run
from harness.slow_disk import SlowDisk
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

pytestmark = pytest.mark.namespaces

ROUNDS = int(os.environ.get("HITPATH_KILLS", "10"))
"""How often the gateway is killed in each test."""

HOST, EAST, WEST, FAR = "10.1.0.5", "192.0.2.1", "192.0.2.2", "10.2.0.5"
OTHER = "10.2.0.6"
"""A far address that has an SA of its own."""
FAR_MAC, HOST_MAC = "02:00:00:00:0f:05", "02:00:00:00:01:05"
MARK = b"sequence"


def gateway_config(sa, side, macs, state=None):
    """One of the two gateways of the tunnel, `east` that encrypts or `west` that decrypts."""
    east, other = side == "east", Sa(sa.algorithm, EAST, WEST, 0x1002, reqid=2)
    lan = Port("lan", ["10.1.0.1/24" if east else "10.2.0.1/24"], kind="af-packet", interface="lan")
    wan = Port("wan", [f"{EAST if east else WEST}/24"], kind="af-packet", interface="wan")
    there, via = ("10.2.0.0/24", WEST) if east else ("10.1.0.0/24", EAST)
    return Config(
        ports=[lan, wan],
        routes=[Route(there, via=via)],
        neighbours=[
            Neighbour("wan", via, macs["west" if east else "east"]),
            *[Neighbour("lan", *host) for host in ([(HOST, HOST_MAC)] if east else [(FAR, FAR_MAC), (OTHER, FAR_MAC)])],
        ],
        sas=[sa, other],
        policies=[
            Policy("out" if east else "in", "10.1.0.0/24", f"{OTHER}/32", sa=other, priority=FIRST - 1),
            Policy("out" if east else "in", "10.1.0.0/24", "10.2.0.0/24", sa=sa),
        ],
    )


class Capture:
    """What leaves `interface`, by tcpdump: the numbers and IVs of its ESP packets."""

    def __init__(self, namespace, interface, path):
        self._path, self._log = path, path.with_suffix(".log").open("w+")
        self._process = namespace.start(
            *("tcpdump", "-i", interface, "-s", "64", "-B", "65536", "-U", "-w", path, "ip proto 50"),
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )
        end = time.monotonic() + 10
        while "listening" not in self.said() and time.monotonic() < end:
            time.sleep(0.02)

    def said(self):
        """What tcpdump has said."""
        return pathlib.Path(self._log.name).read_text()

    def end(self):
        """Ends it. Returns the SPI, number and IV of each packet, in order."""
        time.sleep(2)  # The kernel hands frames over a block at a time.
        self._process.terminate()
        self._process.wait(10)
        self._log.close()
        data, at, packets = self._path.read_bytes(), 24, []
        while at + 16 <= len(data):
            length = struct.unpack_from("<I", data, at + 8)[0]
            esp = at + 16 + 14 + 20
            packets.append((data[esp : esp + 4], data[esp + 4 : esp + 8], data[esp + 8 : esp + 16]))
            at += 16 + length
        return packets


class Site:
    """A host, two gateways and a host: `lan - east - wan - west - far`. Packets go from left to right."""

    def __init__(self, topology, directory, sa):
        self.directory, self.sa = directory, sa
        for label in ("host", "east", "west", "far"):
            topology.namespace(label)
        topology.link(topology["east"], "lan", topology["host"], "eth0")
        topology.link(topology["east"], "wan", topology["west"], "wan")
        topology.link(topology["west"], "lan", topology["far"], "eth0")
        for label in ("east", "west"):
            for interface in ("lan", "wan"):
                topology[label].silence(interface)
        self.spaces = topology
        self.macs = {side: topology[side].mac("wan") for side in ("east", "west")}
        self.gateways = {}
        for side in ("east", "west"):
            (directory / side).mkdir()
            self.gateways[side] = Gateway(topology[side], gateway_config(sa, side, self.macs), directory / side)
        self.far = topology["far"].packet_socket("eth0")
        self.far.settimeout(3)
        self.host = topology["host"].packet_socket("eth0")

    def frame(self, tag, to=FAR):
        """A frame from the host for the far one."""
        return (
            Ether(src=HOST_MAC, dst=self.spaces["east"].mac("lan"))
            / IP(src=HOST, dst=to)
            / UDP(sport=1, dport=2)
            / Raw(MARK + tag)
        )

    def flood(self, rate):
        """Sends at `rate` packets a second, or at full rate if that is 0, until the block ends."""
        return ended(
            self.spaces["host"].start(
                sys.executable, "-B", flood.__file__, "eth0", str(rate), bytes(self.frame(bytes(4))).hex()
            )
        )

    def arrives(self, tag, to=FAR):
        """Whether a packet that is sent once now comes to the far host. What was under way before is gone."""
        with contextlib.suppress(socket.timeout):
            self.far.settimeout(0.2)
            while True:
                self.far.recv(2048)
        self.far.settimeout(3)
        self.host.send(bytes(self.frame(tag, to)))
        with contextlib.suppress(socket.timeout):
            end = time.monotonic() + 3
            while time.monotonic() < end:
                if self.far.recv(2048).endswith(MARK + tag):
                    return True
        return False


@contextlib.contextmanager
def ended(process):
    """The process, which ends with the block."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def killed(gateway):
    """A gateway that is killed at the end of the block, as by SIGKILL of anybody."""
    gateway.__enter__()
    try:
        yield gateway
    finally:
        assert gateway.process.poll() is None, gateway.log()
        gateway.process.kill()
        gateway.process.wait()
        gateway._log.close()


@pytest.fixture
def site_with(topology, tmp_path):
    """Makes the site with an SA of an algorithm."""
    with contextlib.ExitStack() as sockets:

        def make(algorithm):
            site = Site(topology, tmp_path, Sa(algorithm, EAST, WEST, 0x1001))
            sockets.enter_context(site.far)
            sockets.enter_context(site.host)
            return site

        yield make


def forget(gateway):
    """The gateway has no state directory from now on."""
    text = gateway.config_path.read_text()
    gateway.write(text.replace("[gateway]\n", "[gateway]\nallow-sequence-reuse = true\n"))
    gateway.state_path = "off"


def eventually(what, is_so, timeout=60):
    """Waits until something is so."""
    end = time.monotonic() + timeout
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def no_repetition(packets, has_counter):
    """No number was sent twice under the key, and no IV either."""
    numbers = [number for _, number, _ in packets]
    assert len(set(numbers)) == len(numbers), f"{len(numbers) - len(set(numbers))} numbers of {len(numbers)} came again"
    ivs = [iv for _, _, iv in packets]
    if has_counter:
        assert len(set(ivs)) == len(ivs), f"{len(ivs) - len(set(ivs))} IVs of {len(ivs)} came again"


@pytest.mark.parametrize("rate", [20, 0], ids=["slow", "full-rate"])
@pytest.mark.parametrize("algorithm", [GCM, CBC_SHA256], ids=str)
def test_no_number_is_sent_twice_and_the_peer_takes_the_first_packet(site_with, topology, tmp_path, algorithm, rate):
    site = site_with(algorithm)
    forget(site.gateways["west"])  # A peer that has a window, and no disk.
    capture = Capture(topology["west"], "wan", tmp_path / "wire.pcap")
    with site.gateways["west"]:
        for number in range(ROUNDS):
            with killed(site.gateways["east"]):
                assert site.arrives(b"round" + number.to_bytes(4, "big")), f"the first packet of round {number}"
                with site.flood(rate):
                    time.sleep(random.uniform(0.05, 0.8))
        drops = site.gateways["west"].drops()
    packets = capture.end()
    assert len(packets) >= ROUNDS * (5000 if rate == 0 else 2), "it was no load"
    print(f"{len(packets)} packets in {ROUNDS} rounds; the peer dropped {drops}")
    no_repetition(packets, algorithm is GCM)
    assert "esp_replayed" not in drops and "esp_too_old" not in drops, drops


def test_a_peer_that_keeps_its_edge_loses_nothing_of_a_killed_sender(site_with):
    site = site_with(GCM)
    with site.gateways["west"] as west:
        for number in range(ROUNDS):
            with killed(site.gateways["east"]):
                tag = b"round" + number.to_bytes(4, "big")
                # Its first number is beyond the edge, but for the first time, and waits for the disk.
                assert all(site.arrives(tag + bytes([more])) for more in range(4)), f"round {number}: {west.drops()}"
        assert {why: count for why, count in west.drops().items() if why.startswith("esp_")} == {}


@pytest.mark.parametrize("delay", [0, 300], ids=["fast-disk", "slow-disk"])
@pytest.mark.parametrize("rate", [20, 0], ids=["slow", "full-rate"])
def test_a_killed_receiver_accepts_nothing_again(site_with, topology, tmp_path, rate, delay):
    """Killed at any moment: what it has accepted last may not be on the disk, if the disk is slow."""
    site, disk = site_with(GCM), SlowDisk(tmp_path)
    site.gateways["west"].env = disk.environment()
    with site.gateways["east"]:
        # Each waits until the sender has passed what was stored ahead.
        for number in range(max(3, ROUNDS // 5)):
            disk.mode(0)
            with topology["west"].packet_socket("wan") as wire:
                wire.setblocking(False)
                with killed(site.gateways["west"]) as west, site.flood(rate):
                    disk.mode(delay)
                    eventually(
                        f"nothing was accepted in round {number}", lambda: west.sa_packets()[site.sa.spi], timeout=120
                    )
                    time.sleep(random.uniform(0, 1))
                    # What waits in the ring when it is killed was not accepted.
                    accepted = max(sa["received_sequence"] for sa in west.json("show", "sas"))
                old = []
                with contextlib.suppress(BlockingIOError):
                    while len(old) < 20_000:
                        frame = wire.recv(2048)
                        number_sent = int.from_bytes(frame[38:42], "big")
                        old += [frame] if frame[23] == 50 and number_sent <= accepted else []
            assert old, "nothing was captured"
            disk.mode(0)
            with killed(site.gateways["west"]) as west, topology["east"].packet_socket("wan") as again:
                end, refused = time.monotonic() + 5, 0
                while not refused and time.monotonic() < end:
                    for frame in old[-2000:]:
                        again.send(frame)
                    time.sleep(0.3)
                    drops, packets = west.drops(), west.sa_packets()[site.sa.spi]
                    assert packets == 0, f"{packets} of {len(old)} old packets were accepted in round {number}"
                    refused = sum(drops.get(why, 0) for why in ("esp_too_old", "esp_replayed"))
                assert refused, f"round {number}, {len(old)} old packets: {drops} {west.json('show', 'ports')}"


def test_a_kill_costs_an_sa_that_was_fast_and_is_slow_now_a_few_packets(site_with):
    site = site_with(GCM)
    west = site.gateways["west"]

    def sa():
        return next(sa for sa in west.json("show", "sas") if sa["spi"] == site.sa.spi)

    with site.gateways["east"]:
        with killed(west):
            with site.flood(5000):
                time.sleep(2)
            assert sa()["received_sequence"] > 5000
            time.sleep(6)
            last = sa()["received_sequence"]
        with west:
            awaited = sa()["awaited_sequence"]
            assert 0 < awaited - last <= 33, (last, awaited)
            assert re.search(r"accept none .* before their peers have sent up to \d+ packets .* sas=1", west.log())
            assert f"awaits {awaited}" in west.run("show", "sas").stdout
            assert f"awaits seq {awaited:#x}" in west.run("-s", "xfrm", "state", "show").stdout
            assert "hitpath_sa_awaited_sequence_number{" in metrics.ask(west.socket)
            with site.flood(100):
                time.sleep(1)
            assert site.arrives(b"after"), west.drops()
            assert "awaited_sequence" not in sa()
            assert 0 < sum(west.drops().get(why, 0) for why in ("esp_too_old", "esp_replayed")) <= 33
        with west:
            assert "was not stopped but killed" not in west.log()


@pytest.mark.parametrize("mode", ["hang", "full"])
def test_a_disk_that_hangs_or_is_full_stops_one_sa_alone_until_it_is_back(site_with, tmp_path, mode):
    site, disk = site_with(GCM), SlowDisk(tmp_path)
    east = site.gateways["east"]
    east.env = disk.environment()
    with site.gateways["west"] as west, east:
        assert site.arrives(b"before") and site.arrives(b"before", OTHER)
        disk.mode(mode)
        with site.flood(0):
            eventually("it sends for ever", lambda: east.drops().get("esp_sequence_unreserved", 0) > 1000)
            sent = east.sa_packets()[site.sa.spi]
            begin = time.monotonic()
            for _ in range(5):
                assert site.arrives(b"during", OTHER), (east.drops(), west.drops())
            east.run("show", "ports")
            assert time.monotonic() - begin < 5, "somebody waits for the disk"
            assert east.sa_packets()[site.sa.spi] == sent, "numbers come from nowhere"
        disk.mode(0)
        eventually("no numbers come again", lambda: site.arrives(b"after"), timeout=15)
        assert site.arrives(b"after that")
        log, drops = east.log(), west.drops()
        assert ("sequence numbers are kept again" in log) == (mode == "full"), log
        assert not {"esp_replayed", "esp_too_old"} & drops.keys(), drops


@pytest.mark.parametrize("mode", ["hang", "full"])
def test_without_a_disk_a_receiver_takes_what_is_below_its_edge_and_no_more(site_with, tmp_path, mode):
    site, disk = site_with(GCM), SlowDisk(tmp_path)
    west = site.gateways["west"]
    west.env = disk.environment()
    with site.gateways["east"], west:
        assert site.arrives(b"before") and site.arrives(b"before", OTHER)
        disk.mode(mode)
        with site.flood(0):
            eventually("it accepts for ever", lambda: west.drops().get("esp_sequence_unstored", 0) > 1000)
            accepted = west.sa_packets()[site.sa.spi]
            for _ in range(5):
                # The flood may fill the ring of the gateway in front, which loses packets then.
                assert any(site.arrives(b"during", OTHER) for _ in range(3)), west.drops()
            assert west.sa_packets()[site.sa.spi] == accepted
        disk.mode(0)
        eventually("it accepts nothing more", lambda: site.arrives(b"after"), timeout=15)
        assert all(site.arrives(b"after" + bytes([more])) for more in range(3))


def test_numbers_go_on_over_reload_flush_delete_and_rekey(site_with, topology, tmp_path):
    site = site_with(GCM)
    words = site.sa.kernel_words()
    east = site.gateways["east"]
    capture = Capture(topology["west"], "wan", tmp_path / "wire.pcap")
    with site.gateways["west"], east, site.flood(2000):
        identity = ("dst", WEST, "proto", "esp", "spi", hex(site.sa.spi))
        for _ in range(ROUNDS):
            east.run("xfrm", "state", "delete", *identity)
            east.run("xfrm", "state", "add", *words)
            time.sleep(0.05)
            east.run("xfrm", "state", "flush")
            east.run("xfrm", "state", "add", *words)
            # The same key under another SPI, beside the first.
            east.run("xfrm", "state", "add", *[hex(0x2002) if word == hex(site.sa.spi) else word for word in words])
            time.sleep(0.05)
            east.run("xfrm", "state", "delete", "dst", WEST, "proto", "esp", "spi", "0x2002")
            east.run("reload")
            time.sleep(0.05)
        drops = east.drops()
    packets = capture.end()
    assert len({spi for spi, _, _ in packets}) == 2 and len(packets) > 100 * ROUNDS
    no_repetition(packets, has_counter=True)
    assert "esp_sequence_unreserved" not in drops, drops


def test_after_a_clean_stop_no_number_is_lost(site_with, topology, tmp_path):
    site = site_with(GCM)
    capture = Capture(topology["west"], "wan", tmp_path / "wire.pcap")
    with site.gateways["west"]:
        for number in range(3):
            with site.gateways["east"]:
                assert site.arrives(b"stop" + bytes([number]))
    assert [int.from_bytes(number, "big") for _, number, _ in capture.end()] == [1, 2, 3]


def test_a_full_disk_costs_new_keys_alone_until_there_is_room(site_with):
    site = site_with(GCM)
    east = site.gateways["east"]
    east.state_path.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", east.state_path])
    try:
        with site.gateways["west"], east:
            assert site.arrives(b"before")
            filler = east.state_path / "filler"
            with contextlib.suppress(OSError), filler.open("wb") as full:
                while True:
                    full.write(bytes(4096))
                    full.flush()
            # Places that the files have room for are given out first.
            with pytest.raises(CommandFailed, match="No space left"):
                for spi in range(0x3000, 0x3200):
                    other = Sa(GCM, EAST, "192.0.2.77", spi)
                    east.run("xfrm", "state", "add", *other.kernel_words())
            # What has a place is written meanwhile, which is no end of it.
            with site.flood(0):
                for spi in range(0x3300, 0x3304):
                    other = Sa(GCM, EAST, "192.0.2.77", spi)
                    assert east.run("xfrm", "state", "add", *other.kernel_words(), check=False).returncode == 1
                    time.sleep(0.5)
            assert site.arrives(b"during"), east.drops()
            assert east.log().count("sequence numbers cannot be kept") == 1, east.log()
            assert "sequence numbers are kept again" not in east.log()
            assert "No space left" in east.json("show", "daemon")["kept"]["sequences_failure"]
            filler.unlink()
            # Though nobody tries.
            eventually("it is over", lambda: "sequence numbers are kept again" in east.log(), timeout=10)
            eventually("it is shown", lambda: "sequences_failure" not in east.json("show", "daemon")["kept"], timeout=5)
            end = time.monotonic() + 20
            words = ["xfrm", "state", "add", *Sa(GCM, EAST, "192.0.2.77", 0x4000).kernel_words()]
            while east.run(*words, check=False).returncode and time.monotonic() < end:
                time.sleep(0.5)
            assert 0x4000 in east.sa_packets()
    finally:
        run(["umount", "-l", east.state_path])


def test_without_a_state_directory_gcm_is_refused_unless_it_is_allowed(site_with, topology):
    site = site_with(GCM)
    east = site.gateways["east"]
    off = ["ip", "netns", "exec", topology["east"].name, binary(), "run", "--config", east.config_path]
    done = run([*off, "--state-directory", "off"], check=False)
    assert done.returncode == 1 and "ready" not in done.stdout
    for word in ("aes-gcm-128", "0x00001001", "state-directory", "allow-sequence-reuse"):
        assert word in done.stderr, done.stderr
    forget(east)
    with site.gateways["west"], east:
        assert site.arrives(b"allowed")
        assert "begin anew with every start" in east.log()


def test_an_sa_that_is_refused_leaves_the_one_that_is_there(site_with):
    site = site_with(GCM)
    west = site.gateways["west"]
    with site.gateways["east"], west:
        assert site.arrives(b"before")
        words = list(site.sa.kernel_words())
        if "replay-window" in words:
            words[words.index("replay-window") + 1] = "128"
        else:
            words += ["replay-window", "128"]
        done = west.run("xfrm", "state", "add", *words, check=False)
        assert done.returncode == 1 and "exists" in done.stderr, done.stderr
        # Far beyond the edge that was stored when it was added.
        with site.flood(2000):
            time.sleep(2)
        assert all(site.arrives(b"after%d" % number) for number in range(4)), west.drops()


def test_a_reservation_that_was_given_up_is_made_again(site_with, tmp_path):
    site, disk = site_with(GCM), SlowDisk(tmp_path)
    east = site.gateways["east"]
    east.env = disk.environment()
    with site.gateways["west"], east:
        assert site.arrives(b"before")
        disk.mode("full")
        # More than half of what is reserved, so that more is asked for, and not all.
        with site.flood(2000):
            time.sleep(5.5)
        east.run("xfrm", "state", "delete", "dst", WEST, "proto", "esp", "spi", hex(site.sa.spi))
        time.sleep(4)
        disk.mode(0)
        time.sleep(3)
        east.run("xfrm", "state", "add", *site.sa.kernel_words())
        with site.flood(4000):
            time.sleep(6)
        assert all(site.arrives(b"end%d" % number) for number in range(3)), east.drops()


def test_a_file_that_was_removed_stops_its_sas_and_is_told(site_with):
    site = site_with(GCM)
    east = site.gateways["east"]
    with site.gateways["west"], east:
        assert site.arrives(b"before")
        (east.state_path / "sequences").unlink()
        with site.flood(5000):
            eventually("it is told", lambda: "the file of sequence numbers was removed" in east.log())
            eventually("the SA stops", lambda: east.drops().get("esp_sequence_unreserved", 0) > 0)
    # It does not count from 1 again unless it is told to.
    with pytest.raises(CommandFailed, match="hitpath state forget-sequences"):
        east.start_again()
    assert east.run("state", "forget-sequences", str(east.state_path)).stdout == "made; there was none\n"
    with east:
        pass
