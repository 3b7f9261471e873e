"""Commands that go on until they are told to end: they end too when their terminal or their reader goes away."""

import contextlib
import fcntl
import os
import re
import resource
import signal
import struct
import subprocess
import termios
import time

import pytest

from harness.gateway import Gateway, Here, binary
from harness.site import site

FOLLOWERS = [
    ("monitor",),
    ("xfrm", "monitor"),
    ("trace", "add"),
    ("conntrack", "-E"),
    ("tap", "add", "port", "lan", "-"),
    ("top", "--batch", "-d", "3600"),
]
"""Commands that print what comes, of which nothing comes here."""


@pytest.fixture
def gateway(tmp_path):
    """A gateway on memory ports, without traffic."""
    with Gateway(Here, site(), tmp_path) as running:
        yield running


def start(gateway, words, **options):
    """Starts a command in a session of its own, which has no controlling terminal: no SIGHUP comes."""
    env = os.environ | {"HITPATH_SOCKET": str(gateway.socket), "TERM": "xterm", "HOME": str(gateway.config_path.parent)}
    return subprocess.Popen([binary(), *words], env=env, start_new_session=True, **options)


def on_terminal(gateway, *words):
    """Starts a command on a pseudo-terminal. Returns it and the terminal's other end."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = start(gateway, words, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    return process, master


def read_until(master, text):
    """Reads what is printed until this is there."""
    came = b""
    end = time.monotonic() + 10
    while text not in came:
        assert time.monotonic() < end, came
        came += os.read(master, 65536)


def ended(process, seconds=8):
    """Waits until it ends. Returns its exit code."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def processor_time():
    """What ended children have used of processors, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_screen_ends_with_its_terminal_and_does_not_spin(gateway):
    for keys in (b"", b"p", b"/la", b"\x1b["):
        before = processor_time()
        process, master = on_terminal(gateway, "top")
        read_until(master, b"wan")
        os.write(master, keys)
        time.sleep(0.3)
        os.close(master)
        assert ended(process) == 0, keys
        assert processor_time() - before < 1, keys


def test_the_screen_ends_at_a_signal_though_its_terminal_takes_nothing(gateway):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        process, master = on_terminal(gateway, "top", "-d", "0.1")
        read_until(master, b"wan")
        # Help on and off, until the screen waits for somebody to read.
        os.set_blocking(master, False)
        for _ in range(200):
            try:
                os.write(master, b"h\x0cx\x0c" * 8)
            except BlockingIOError:
                break
            time.sleep(0.01)
        process.send_signal(number)
        assert ended(process) == 0, number
        os.close(master)


def test_a_list_ends_well_when_nobody_reads_on(gateway):
    """As by `conntrack -L | head -n 1`: what is left is not an error."""
    for words in (("conntrack", "-L"), ("-j", "conntrack", "-L"), ("show", "drops", "--all")):
        process = start(gateway, words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.close()
        with process.stderr as said:
            said = re.sub(r"(?m)^hitpath: \d+ flow entries have been shown\.\n", "", said.read())
        assert (process.wait(10), said) == (0, ""), words


def test_the_shell_ends_with_its_terminal(gateway):
    for command in (b"", b"top\r", b"monitor\r"):
        process, master = on_terminal(gateway, "shell")
        read_until(master, b"hitpath> ")
        os.write(master, command)
        time.sleep(1)
        os.close(master)
        ended(process)


@pytest.mark.parametrize("words", FOLLOWERS, ids=" ".join)
def test_who_follows_ends_with_its_terminal(gateway, words):
    process, master = on_terminal(gateway, *words)
    time.sleep(1)
    assert process.poll() is None
    os.close(master)
    ended(process)


@pytest.mark.parametrize("words", FOLLOWERS, ids=" ".join)
def test_who_follows_ends_with_its_reader_though_nothing_comes(gateway, words):
    process = start(gateway, words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1)
    assert process.poll() is None
    process.stdout.close()
    assert ended(process) == 0
    with process.stderr as said:
        assert b"rror" not in said.read()


def test_a_long_batch_says_how_far_it_is_and_how_long_it_will_take(gateway, tmp_path):
    many = 100_000
    path = tmp_path / "commands.txt"
    path.write_text("".join(f"xfrm policy add src 10.{at >> 16}.{at >> 8 & 255}.{at & 255} dir out\n" for at in range(many)))
    process, master = on_terminal(gateway, "batch", str(path))
    came = b""
    # Reading fails as soon as nobody has the other end.
    with contextlib.suppress(OSError):
        while data := os.read(master, 65536):
            came += data
    os.close(master)
    assert ended(process) == 0
    came = came.decode()
    told = re.findall(r"(\d+) % of [\d.]+ MiB, (\d+[smh]) to go", came)
    percents = [int(percent) for percent, _ in told]
    assert percents == sorted(percents) and len(set(percents)) >= 5, told
    assert percents[0] < 50 < percents[-1], told
    assert came.rstrip().endswith(f"{many} commands carried out"), came[-500:]
