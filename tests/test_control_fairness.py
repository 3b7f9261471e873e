"""The control socket under clients who are slow, many, or do not read."""

import contextlib
import json
import os
import socket
import stat
import threading
import time

import pytest

from harness.config import Config, Port, Route
from harness.gateway import Gateway, Here
from harness.silent import Ended

HEAD = b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def gateway(tmp_path):
    """A gateway with a port in memory."""
    with Gateway(Here, Config(ports=[Port("lan", ["10.1.0.1/24"])]), tmp_path) as running:
        yield running


def connect(gateway, timeout=30):
    """A connection that asked for nothing yet."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(timeout)
    try:
        client.connect(str(gateway.socket))
    except OSError:
        client.close()
        raise
    return client


@contextlib.contextmanager
def many(gateway, count, timeout=30):
    """Connections, which are closed together."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(gateway, timeout)) for _ in range(count)]


def request(body, path=b"/v1"):
    """The bytes of a request."""
    body = json.dumps(body).encode()
    return HEAD % (path, len(body)) + body


def answer(client):
    """The status of an answer, and its body."""
    said = b""
    while piece := client.recv(1 << 20):
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def resident(gateway):
    """The daemon's memory in bytes."""
    pid = gateway.json("show", "daemon")["pid"]
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("sent", [b"", b"POST /v1 HT", HEAD % (b"/v1", 100) + b"{", HEAD % (b"/v1/batch", 100) + b"{"])
def test_the_slow_make_room(gateway, sent):
    with many(gateway, 600) as slow:
        for client in slow:
            with contextlib.suppress(BrokenPipeError):
                client.sendall(sent)
        start = time.monotonic()
        assert gateway.json("show", "ports")
        # Those before it have 5 seconds each, 256 at a time.
        assert time.monotonic() - start < 8


def test_a_body_that_does_not_arrive_is_refused_with_a_reason(gateway):
    with connect(gateway) as client:
        start = time.monotonic()
        client.sendall(HEAD % (b"/v1", 100) + b"{")
        status, body = answer(client)
        assert (status, time.monotonic() - start < 10) == (408, True)
        assert "nothing was done" in json.loads(body)["message"]


def test_replies_that_nobody_reads_are_bounded_together(gateway):
    routes = [
        {"do": "route_add", "with": {"destination": f"10.{a}.{b}.0/24", "port": "lan"}}
        for a in range(8, 88)
        for b in range(250)
    ]
    with connect(gateway) as client:
        client.sendall(request({"do": "batch", "with": {"on_refusal": "stop", "requests": routes}}, b"/v1/batch"))
        status, body = answer(client)
        assert (status, json.loads(body)["of"]["done"]) == (200, len(routes))
    with connect(gateway) as client:
        client.sendall(request({"do": "route_list", "with": {}}))
        size = len(answer(client)[1])
    before = resident(gateway)
    assert 200 * size > 500 << 20, f"a list of {size} bytes is too short for this test"
    with many(gateway, 200) as deaf:
        for client in deaf:
            client.sendall(request({"do": "route_list", "with": {}}))
        time.sleep(5)
        # Short replies pass by.
        assert gateway.json("show", "daemon")
        assert resident(gateway) - before < 400 << 20
        # Long ones too, behind those that came before: who does not read makes room.
        shown = gateway.run("route", "show", "-j", timeout=100)
        assert len(json.loads(shown.stdout)) > len(routes)


def test_a_reload_that_all_ask_for_runs_twice(gateway):
    config = Config(ports=[Port("lan", ["10.1.0.1/24"])])
    config.routes = [Route(f"10.{a}.{b}.0/24", port="lan") for a in range(8, 88) for b in range(250)]
    gateway.write(config)
    ready = request({"do": "reload", "with": {}})
    with many(gateway, 200) as clients:
        for client in clients:
            client.sendall(ready)
        answers = [answer(client) for client in clients]
    assert {status for status, _ in answers} == {200}
    changes = sorted(len(json.loads(body)["of"]["changes"]) for _, body in answers)
    assert gateway.json("show", "daemon")["reloads"] == 2
    # Of those whom the first reload is for, one gets all of the difference and the others its beginning.
    # The second finds nothing different.
    assert changes[-1] == len(config.routes)
    assert set(changes[:-1]) <= {0, 4097} and changes[0] == 0, changes


def test_several_who_ask_for_a_wrong_reload_are_all_told(gateway):
    gateway.write("[gateway]\nworkers = 0\n")
    with many(gateway, 20) as clients:
        for client in clients:
            client.sendall(request({"do": "reload", "with": {}}))
        for client in clients:
            status, body = answer(client)
            assert status == 400 and "workers" in json.loads(body)["message"]


def test_a_configuration_that_is_no_file_is_refused(gateway):
    path = gateway.config_path
    path.unlink()
    for make, word in (
        (lambda: os.mkfifo(path), "a FIFO"),
        (path.mkdir, "a directory"),
        (lambda: path.symlink_to("/dev/zero"), "a device"),
    ):
        make()
        start = time.monotonic()
        refused = gateway.run("reload", check=False)
        assert refused.returncode == 1 and word in refused.stderr and "regular file" in refused.stderr
        assert time.monotonic() - start < 5
        if stat.S_ISDIR(path.lstat().st_mode):
            path.rmdir()
        else:
            path.unlink()
    assert gateway.json("show", "ports")


def test_who_asks_while_the_gateway_stops_is_told(gateway):
    outcomes = []

    def ask():
        for _ in range(200):
            try:
                with connect(gateway) as client:
                    client.sendall(request({"do": "ports"}))
                    outcomes.append(answer(client))
            except (ConnectionError, FileNotFoundError):
                return

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    gateway.process.terminate()
    for thread in threads:
        thread.join(30)
    assert gateway.process.wait(10) == 0
    gateway.process = Ended()
    for status, body in outcomes:
        assert status == 200 or "nothing was done" in json.loads(body)["message"], (status, body)
