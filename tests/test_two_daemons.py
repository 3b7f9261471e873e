"""Several gateways on one machine, and signals: what one has no other takes, and what is left behind."""

import contextlib
import os
import pathlib
import signal
import time

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway, binary
from harness.netns import run
from harness.silent import Ended

pytestmark = pytest.mark.namespaces

CLAIMS = pathlib.Path("/run/hitpath")


def af_packet(name, address):
    """A port on the interface of the same name."""
    return Port(name, [address], kind="af-packet", interface=name)


@pytest.fixture
def gw(topology):
    """A namespace with the interfaces `one` and `two`."""
    gw = topology.namespace("gw")
    for label in ("one", "two"):
        topology.link(gw, label, topology.namespace(label), "eth0")
        gw.silence(label)
    return gw


def directory(tmp_path, name):
    """A directory of its own for each gateway."""
    made = tmp_path / name
    made.mkdir()
    return made


def start_refused(gw, config, directory, *options):
    """What a daemon says that refuses to start."""
    path = directory / "second.toml"
    path.write_text(config.render(directory / "second.sock"))
    command = ["ip", "netns", "exec", gw.name, binary(), "run", "--config", path]
    command += ["--state-directory", directory / "state", *options]
    refused = run(command, check=False, timeout=10)
    assert refused.returncode == 1, refused
    return refused.stderr


def test_an_interface_belongs_to_one(gw, tmp_path):
    config = Config(ports=[af_packet("one", "10.1.0.1/24")])
    with Gateway(gw, config, directory(tmp_path, "first")) as first:
        said = start_refused(gw, config, directory(tmp_path, "second"))
        assert "another daemon has interface one" in said
        assert f"pid {first.json('show', 'daemon')['pid']}" in said and str(first.config_path) in said
        # Another interface may be had, and the first one as soon as its daemon lets it go.
        other = Config(ports=[af_packet("two", "10.2.0.1/24")])
        with Gateway(gw, other, directory(tmp_path, "third")) as third:
            other.ports.append(af_packet("one", "10.1.0.1/24"))
            third.write(other)
            refused = third.run("reload", check=False)
            assert refused.returncode == 1 and "another daemon has interface one" in refused.stderr
            assert [port["name"] for port in third.json("show", "ports")] == ["two"]
            first.write(Config(ports=[Port("lo0", ["10.9.0.1/32"])]))
            first.run("reload")
            third.run("reload")
            assert {port["name"] for port in third.json("show", "ports")} == {"one", "two"}


def test_interfaces_of_one_name_in_two_namespaces_are_two(topology, gw, tmp_path):
    elsewhere = topology.namespace("elsewhere")
    topology.link(elsewhere, "one", topology.namespace("far"), "eth0")
    config = Config(ports=[af_packet("one", "10.1.0.1/24")])
    with Gateway(gw, config, directory(tmp_path, "first")):
        with Gateway(elsewhere, config, directory(tmp_path, "second")) as second:
            assert second.json("show", "ports")


def test_a_socket_belongs_to_one(gw, tmp_path):
    with Gateway(gw, Config(ports=[af_packet("one", "10.1.0.1/24")]), directory(tmp_path, "first")) as first:
        other = Config(ports=[af_packet("two", "10.2.0.1/24")])
        said = start_refused(gw, other, directory(tmp_path, "second"), "--socket", first.socket)
        assert "already listens" in said and str(first.config_path) in said
        assert f"pid {first.json('show', 'daemon')['pid']}" in said


def test_daemons_spread_over_processors(gw, tmp_path):
    def processor(gateway):
        return gateway.json("show", "workers")[0].get("processor")

    with Gateway(gw, Config(ports=[af_packet("one", "10.1.0.1/24")]), directory(tmp_path, "first")) as first:
        with Gateway(gw, Config(ports=[af_packet("two", "10.2.0.1/24")]), directory(tmp_path, "second")) as second:
            # Other tests may run at the same time, and have processors too.
            taken = processor(first), processor(second)
            assert taken[0] is None or taken[0] != taken[1], taken
            claims = CLAIMS / f"processor-{taken[0]}"
            if taken[0] is not None:
                assert str(first.config_path) in claims.read_text()


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPIPE"])
def test_signals_that_mean_nothing_do_nothing(gw, tmp_path, name):
    with Gateway(gw, Config(ports=[af_packet("one", "10.1.0.1/24")]), directory(tmp_path, "first")) as gateway:
        gateway.process.send_signal(getattr(signal, name))
        time.sleep(0.1)
        assert gateway.json("show", "ports")


def held_by(pid):
    """The claims of a daemon."""
    held = []
    for path in CLAIMS.iterdir():
        # Those of other tests come and go.
        with contextlib.suppress(OSError):
            if path.is_file() and f"pid {pid}," in path.read_text():
                held.append(path)
    return held


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGQUIT"])
def test_nothing_is_left_behind(gw, tun, tmp_path, name):
    config = Config(ports=[af_packet("one", "10.1.0.1/24"), Port("tap0", ["10.3.0.1/24"], kind="tap", interface="tap0")])
    with Gateway(gw, config, directory(tmp_path, "first")) as gateway:
        assert "tap0" in gw.ip("link").stdout
        pid = gateway.json("show", "daemon")["pid"]
        assert len(held_by(pid)) >= 2, held_by(pid)
        gateway.process.send_signal(getattr(signal, name))
        assert gateway.process.wait(10) == 0
        assert not gateway.socket.exists()
        assert "tap0" not in gw.ip("link").stdout
        # Another daemon may have them by now.
        assert held_by(pid) == []
        assert sorted(os.listdir(gateway.socket.parent)) == ["gateway.log", "gw.toml", "state"]
        gateway.process = Ended()
