"""Log lines that cannot be written: they are counted, and packets pass."""

import os
import pty
import signal
import subprocess

import pytest

from harness.config import Config, Port
from harness.gateway import binary
from harness.silent import SilentGateway

pytestmark = pytest.mark.namespaces

LEFT, RIGHT = "10.1.0", "10.2.0"


@pytest.fixture
def world(topology):
    """Two hosts on the ports of a gateway to come: `(gw, left, right, config)`."""
    gw, config, hosts = topology.namespace("gw"), Config(), []
    for label, net in (("left", LEFT), ("right", RIGHT)):
        host = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        host.addresses("eth0", f"{net}.2/24")
        host.ip("route", "add", "default", "via", f"{net}.1")
        config.ports.append(Port(label, [f"{net}.1/24"], kind="af-packet", interface=label))
        hosts.append(host)
    return gw, *hosts, config


def reload_by_signal(gateway):
    """What is logged for it cannot be written, and the gateway goes on."""
    before = gateway.lost_lines()
    gateway.process.send_signal(signal.SIGHUP)
    gateway.wait_for_lost_lines(before)


def test_a_full_disk_ends_nothing(world, tmp_path):
    gw, left, _, config = world
    with open("/dev/full", "w") as full, SilentGateway(gw, config, tmp_path, full) as gateway:
        left.ping(f"{RIGHT}.2")
        reload_by_signal(gateway)
        left.ping(f"{RIGHT}.2")
        assert "log lines dropped" in gateway.run("show", "daemon").stdout


def test_a_closed_pipe_ends_nothing(world, tmp_path):
    gw, left, _, config = world
    reader, writer = os.pipe()
    with SilentGateway(gw, config, tmp_path, writer) as gateway:
        os.close(writer)
        left.ping(f"{RIGHT}.2")
        os.close(reader)
        reload_by_signal(gateway)
        left.ping(f"{RIGHT}.2")


def test_a_pipe_that_nobody_reads_holds_nothing_up(world, tmp_path):
    gw, left, _, config = world
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with SilentGateway(gw, config, tmp_path, writer) as gateway:
        try:
            while os.write(writer, b"x" * 4096):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(writer, True)
        reload_by_signal(gateway)
        left.ping(f"{RIGHT}.2")
        lost = gateway.lost_lines()
        # The reader is back: the next line says how many it has missed.
        os.set_blocking(reader, False)
        try:
            while os.read(reader, 65536):
                pass
        except BlockingIOError:
            pass
        gateway.process.send_signal(signal.SIGHUP)
        gateway.run("reload")
        said = os.read(reader, 65536).decode()
        assert f"{lost} log lines before this one were lost" in said
        assert gateway.lost_lines() == lost
    os.close(reader)
    os.close(writer)


def test_a_refused_start_says_so_by_its_code(world, tmp_path):
    gw, _, _, config = world
    config.ports[0].addresses = ["10.1.0.1/99"]
    with open("/dev/full", "w") as full:
        gateway = SilentGateway(gw, config, tmp_path, full)
        process = gw.start(*gateway.command(), stdout=full, stderr=full)
        assert process.wait(10) == 1


def test_no_color_is_honoured_on_a_terminal(tmp_path):
    file = tmp_path / "gw.toml"
    file.write_text(f'[gateway]\nsocket = "{tmp_path}/s"\n[[port]]\nname = "p"\nkind = "memory"\n')

    def logged(**more):
        """What the daemon logs on a terminal until it is ready."""
        ours, theirs = pty.openpty()
        env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"} | more
        command = [binary(), "run", "--config", file, "--state-directory", "off"]
        daemon = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        said = b""
        try:
            while b"ready" not in said and (more_said := os.read(ours, 4096)):
                said += more_said
        finally:
            daemon.terminate()
            daemon.wait(30)
            os.close(ours)
        return said

    assert b"\x1b[" in logged()
    assert b"\x1b[" not in logged(NO_COLOR="1")
