"""`hitpath top` in a terminal emulator, on a running gateway with traffic."""

import os
import re
import signal
import time

import pexpect
import pyte
import pytest

from harness.config import Config, Port
from harness.gateway import Gateway, binary
from harness.netns import run


class Screen:
    """`hitpath top` with a terminal emulator before it."""

    def __init__(self, socket, *words, rows=24, columns=80, env=()):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        env = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "HITPATH_SOCKET": str(socket)} | dict(env)
        self.child = pexpect.spawn(binary(), ["top", *words], env=env, dimensions=(rows, columns), timeout=10)

    def read(self, seconds=0.3):
        """Takes in what comes, and returns the lines of the screen."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                came = self.child.read_nonblocking(65536, 0.1)
                self.raw += came
                self.stream.feed(came)
            except pexpect.TIMEOUT:
                pass
            except pexpect.EOF:
                break
        return [line.rstrip() for line in self.screen.display]

    def until(self, true, seconds=8):
        """Waits until the screen is as it should be."""
        end = time.monotonic() + seconds
        while not true(lines := self.read(0.2)):
            assert time.monotonic() < end, "\n".join(lines)
        return lines

    def key(self, keys):
        """Presses keys."""
        self.child.send(keys)

    def end(self, act):
        """Ends it by `act`, and sees that the terminal is as it was."""
        import termios

        act(self)
        self.read(1.5)
        self.child.expect(pexpect.EOF)
        self.child.close()
        assert b"\x1b[?1049l" in self.raw and self.raw.rstrip().endswith(b"\x1b[?25h"), self.raw[-80:]
        return self.child.exitstatus


@pytest.fixture
def busy(topology, tmp_path):
    """A gateway with hosts on both sides, one of which pings the other."""
    gw, lan, wan = (topology.namespace(name) for name in ("gw", "lan", "wan"))
    for label, host, net in (("lan", lan, "192.0.2"), ("wan", wan, "198.51.100")):
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        host.run("ip", "addr", "add", f"{net}.2/24", "dev", "eth0")
        host.run("ip", "route", "add", "default", "via", f"{net}.1")
    ports = [
        Port("lan", ["192.0.2.1/24"], kind="af-packet", interface="lan"),
        Port("wan", ["198.51.100.1/24"], kind="af-packet", interface="wan"),
    ]
    with Gateway(gw, Config(ports=ports), tmp_path) as gateway:
        pinging = lan.start("ping", "-q", "-i", "0.02", "198.51.100.2")
        # What has no route is dropped.
        lost = lan.start("ping", "-q", "-i", "0.1", "203.0.113.9")
        yield gateway
        for process in (pinging, lost):
            process.kill()
            process.wait()


def rate(cell):
    """A number as it is shown."""
    digits, letter = re.fullmatch(r"([0-9.]+)([kMG]?)b?", cell).groups()
    return float(digits) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[letter]


def test_what_passes_is_shown_live(busy):
    top = Screen(busy.socket, "-d", "0.5")
    lines = top.until(lambda lines: any(re.match(r"lan +up +main +[1-9]", line) for line in lines))
    assert lines[0].startswith("hitpath top - 2 ports") and "q quit" in lines[23]
    lan = next(line.split() for line in lines if line.startswith("lan"))
    # Fifty and ten a second come, fifty answers leave; some slack for a busy machine.
    assert 30 < rate(lan[3]) < 80 and 25 < rate(lan[5]) < 80, lan
    top.key("2")
    lines = top.until(lambda lines: any(re.match(r"no_route +[1-9]", line) for line in lines))
    dropped = next(line.split() for line in lines if line.startswith("no_route"))
    assert 3 < rate(dropped[1]) < 20, dropped
    top.key("4")
    lines = top.until(lambda lines: any(re.search(r"ipv4-outbound .* ([89][0-9]|100)\.[0-9]%", line) for line in lines))
    top.key("6")
    top.until(lambda lines: any(re.match(r" *0 +\S+ +[1-9]", line) for line in lines))
    top.key("5")
    top.until(lambda lines: "connections" in lines[2])
    top.key("3")
    top.until(lambda lines: "0 security associations" in lines[2])
    top.key("1s?")
    top.until(lambda lines: any("another view" in line for line in lines))
    top.key("xp")
    top.until(lambda lines: "PAUSED" in lines[0])
    frozen = top.read(0.3)
    assert top.read(1.5) == frozen
    top.key("p/wan\r")
    top.until(lambda lines: not any(line.startswith("lan") for line in lines) and any(line.startswith("wan") for line in lines))
    assert top.end(lambda top: top.key("q")) == 0


@pytest.mark.parametrize("rows, columns", [(24, 80), (5, 20), (1, 1), (60, 200)])
def test_any_size_does_and_may_change(busy, rows, columns):
    top = Screen(busy.socket, "-d", "0.2", rows=rows, columns=columns)
    top.read(1)
    top.child.setwinsize(30, 100)
    top.screen.resize(30, 100)
    top.until(lambda lines: "h help" in lines[29] and any(line.startswith("lan") for line in lines))
    top.child.setwinsize(10, 40)
    top.screen.resize(10, 40)
    top.until(lambda lines: lines[9].startswith("q quit"))
    assert top.end(lambda top: top.key("\x03")) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_give_the_terminal_back(busy, number):
    top = Screen(busy.socket)
    top.until(lambda lines: any(line.startswith("lan") for line in lines))
    assert top.end(lambda top: os.kill(top.child.pid, number)) == 0


def test_a_daemon_that_stops_is_told_and_followed_when_it_is_back(busy):
    top = Screen(busy.socket, "-d", "0.3")
    top.until(lambda lines: any(re.match(r"lan +up +main +[1-9]", line) for line in lines))
    busy.kill()
    lines = top.until(lambda lines: lines[0].startswith("no answer: no daemon"))
    assert any(line.startswith("lan") for line in lines)
    busy.start_again()
    top.until(lambda lines: lines[0].startswith("hitpath top") and any(re.match(r"lan +up +main +[1-9]", line) for line in lines))
    assert top.end(lambda top: top.key("q")) == 0


def test_colours_are_left_out_if_nobody_wants_them(busy):
    for env, has in (({}, True), ({"NO_COLOR": "1"}, False)):
        top = Screen(busy.socket, env=env)
        top.until(lambda lines: any(line.startswith("lan") for line in lines))
        top.end(lambda top: top.key("q"))
        assert bool(re.search(rb"\x1b\[[0-9;]*(3[1-7]|38;5;[0-9]+)[;m]", top.raw)) is has, top.raw[:400]


def test_frames_are_plain_text_for_scripts(busy):
    said = busy.run("top", "-n", "2", "-d", "0.5").stdout
    assert said.count("PORT ") == 2 and "\x1b" not in said
    assert re.search(r"^lan +up +main +[1-9]", said, re.M), said
    said = busy.run("top", "drops", "--batch", "-n", "1", "-d", "0.3").stdout
    assert re.search(r"^no_route +[1-9]", said, re.M), said
    done = run([binary(), "--socket", "/nonexistent", "top", "-n", "1"], check=False)
    assert done.returncode == 3 and "is the daemon running" in done.stderr
    done = run([binary(), "--socket", str(busy.socket), "top"], check=False)
    assert done.returncode == 2 and "needs a terminal" in done.stderr
    for wrong in (["-d", "0"], ["-n", "0"], ["nonsense"]):
        assert busy.run("top", *wrong, check=False).returncode == 2
