"""The audit log: who changed what and what became of it, by records that nothing can forge, and that hold nothing up."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from harness.audit import parts, records, wait_for
from harness.config import Config, Port
from harness.gateway import Gateway, Here, binary
from harness.netns import run
from harness.site import site

KEY = "0x1c0cf2bb72ce67ba245b593076dfb27a"
SA = "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi {spi} mode tunnel reqid 1 enc cbc(aes) {key} auth sha1 {key}"


def audited(path, base=None):
    """The configuration of a gateway that writes its audit log there."""
    return lambda socket: f'{(base or site()).render(socket)}\n[audit]\nlog = "{path}"\n'


class Audited(Gateway):
    """A gateway with an audit log."""

    def __init__(self, directory, path, namespace=Here):
        super().__init__(namespace, "", directory)
        self.path = path
        self.config_path.write_text(audited(path)(self.socket))


@pytest.fixture
def gateway(tmp_path):
    """A gateway on memory ports with an audit log in a file."""
    with Audited(tmp_path, tmp_path / "audit.log") as running:
        yield running


def test_each_change_has_its_who_what_and_outcome(gateway):
    gateway.run("vrf", "add", "red")
    gateway.run("vrf", "add", "red", check=False)
    gateway.run("show", "ports")
    done, refused = wait_for(gateway.path, 2, command="vrf add red")
    assert done["event"] == "change" and done["outcome"] == "done"
    assert done["uid"] == os.geteuid() and done["process"] == "hitpath" and done["pid"] > 1
    assert refused["outcome"] == "refused" and "red" in refused["reason"]
    assert [record["seq"] for record in records(gateway.path)] == list(range(1, len(records(gateway.path)) + 1))
    assert not [record for record in records(gateway.path) if "show" in record.get("command", "")]
    (start,) = records(gateway.path, event="start")
    assert start["config"] == str(gateway.config_path) and start["digest"].startswith("sha256:")
    assert os.stat(gateway.path).st_mode & 0o777 == 0o640


def test_no_key_is_in_it_and_who_asks_for_keys_is(gateway):
    gateway.run(*SA.format(spi="0x100", key=KEY).split())
    gateway.run(*SA.format(spi="0x101", key=KEY).split())
    gateway.run("xfrm", "state", "show", "keys", check=False)
    gateway.run("xfrm", "state", "list", "keys", check=False)
    gateway.run("xfrm", "state", "flush")
    wait_for(gateway.path, 2, event="sa", what="removed")
    assert KEY[2:] not in gateway.path.read_text()
    first, second = records(gateway.path, event="sa", what="added")
    assert "spi 0x00000100" in first["sa"] and "instead-of" not in first
    assert second["instead-of"] == "0x00000100"
    assert records(gateway.path, event="keys-shown", outcome="done")
    (flush,) = wait_for(gateway.path, command="xfrm state flush vrf main")
    assert flush["count"] == 2


def test_a_change_of_connections_is_one_record_with_its_words(gateway):
    gateway.run("flow", "add", "table=0,ip,actions=ct(commit),NORMAL")
    gateway.run("conntrack", "-F")
    gateway.run("conntrack", "-D", "-s", "10.9.0.1", check=False)
    gateway.run("conntrack", "-U", "-s", "10.9.0.1", "-m", "1", check=False)
    gateway.run("flow", "replace", "-", stdin="actions=drop\npriority=1,actions=NORMAL\n")
    gateway.run("flow", "del-all")
    wait_for(gateway.path, command="flow del-all")
    changes = [(record["command"], record.get("count")) for record in records(gateway.path, event="change", outcome="done")]
    assert [change for change in changes if not change[0].startswith("flow add")] == [
        ("conntrack -F", 0),
        ("conntrack -D -s 10.9.0.1/32", 0),
        ("conntrack -U -s 10.9.0.1/32 -m 0x1", 0),
        ("flow replace of 2 flows", None),
        ("flow del-all", None),
    ]


def test_changes_of_neighbours_are_in_it(gateway):
    port = gateway.json("show", "ports")[0]["name"]
    neighbour = f"192.168.13.77 lladdr 02:00:00:00:00:77 dev {port}"
    for line in (f"neigh add {neighbour}", f"neigh add {neighbour}", f"neigh replace {neighbour}"):
        gateway.run(*line.split(), check=False)
    gateway.run("neigh", "del", "192.168.13.77", "dev", port)
    gateway.run("neigh", "flush", "dev", port, "nud", "permanent")
    wait_for(gateway.path, command=f"neigh flush dev {port} nud permanent")
    changes = [(record["command"], record["outcome"]) for record in records(gateway.path, event="change")]
    assert changes == [
        (f"neigh add {neighbour}", "done"),
        (f"neigh add {neighbour}", "refused"),
        (f"neigh replace {neighbour}", "done"),
        (f"neigh delete 192.168.13.77 dev {port}", "done"),
        (f"neigh flush dev {port} nud permanent", "done"),
    ]


def test_a_trace_too_many_is_in_it_and_what_is_no_request(gateway):
    env = os.environ | {"HITPATH_SOCKET": str(gateway.socket)}
    traces = [subprocess.Popen([binary(), "trace", "add"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) for _ in range(8)]
    try:
        wait_for(gateway.path, 8, command="trace add", outcome="done")
        assert gateway.run("trace", "add", check=False).returncode == 1
        (refused,) = wait_for(gateway.path, command="trace add", outcome="refused")
        assert refused["uid"] == os.geteuid() and "8 traces" in refused["reason"]
    finally:
        for trace in traces:
            trace.terminate()
            trace.communicate()
    for count, path in enumerate(("/v1/monitor", "/v1/conntrack", "/v1/tap", "/v1/trace"), 1):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(gateway.socket))
            asking.sendall(f"POST {path} HTTP/1.1\r\nhost: hitpath\r\ncontent-length: 3\r\n\r\n{{a}}".encode())
            assert b" 400 " in asking.recv(4096)
        wait_for(gateway.path, count, outcome="refused", reason="the request cannot be understood")


def test_no_key_is_told_of_commands_that_are_cut_off(gateway, tmp_path):
    key = "open-sesame-open-20b"
    ends = (f"aead 'rfc4106(gcm(aes))' {key} 128", f"enc aes {key} auth sha1 {key}", f"enc {key} aead {key} 128")
    head = "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x100 mode tunnel"
    lines = []
    for end in ends:
        words = f"{head} {end}".split()
        lines += [" ".join(words[:at]) for at in range(1, len(words) + 1)]
        lines += [" ".join(words[:at] + words[at + 1 :]) for at in range(len(words))]
    file = tmp_path / "commands"
    file.write_text("\n".join(lines) + "\n")
    for how in ([], ["-j"]):
        done = gateway.run(*how, "batch", "--force", file, check=False)
        told = done.stdout + done.stderr
        assert done.returncode == 1 and "is not complete" in told and "sesame" not in told
    for line in lines[::7]:
        done = gateway.run(*line.replace("'", "").split(), check=False)
        assert "sesame" not in done.stdout + done.stderr, done.stderr
    gateway.run("vrf", "add", "last")
    wait_for(gateway.path, command="vrf add last")
    assert "sesame" not in gateway.path.read_text() and "sesame" not in gateway.log()


@pytest.mark.parametrize("how, outcomes", [([], ["done", "refused"]), (["--force"], ["done", "refused", "done"]), (["--atomic"], ["refused"])])
def test_each_line_of_a_batch_has_its_own(gateway, tmp_path, how, outcomes):
    file = tmp_path / "commands"
    file.write_text("vrf add a\nvrf delete nobody\nvrf add c\n")
    gateway.run("batch", *how, file, check=False)
    (batch,) = wait_for(gateway.path, event="batch")
    assert batch["outcome"] == "refused" and batch["done"] == outcomes.count("done")
    lines = [record for record in records(gateway.path, event="change") if "line" in record]
    assert [line["outcome"] for line in lines] == outcomes
    (refused,) = [line for line in lines if line["outcome"] == "refused"]
    assert refused["command"] == "vrf delete nobody" and refused["line"] == 2 and "nobody" in refused["reason"]


def test_reloads_say_what_they_changed(gateway, tmp_path):
    text = gateway.config_path.read_text()
    gateway.write(f'{text}\n[[vrf]]\nname = "green"\n')
    gateway.process.send_signal(signal.SIGHUP)
    (reload,) = wait_for(gateway.path, event="reload", by="SIGHUP")
    assert reload["outcome"] == "done" and reload["changes"] == 1
    (change,) = records(gateway.path, event="reload-change")
    assert change["change"] == "+ vrf green"
    gateway.write(text)
    gateway.run("reload")
    (reload,) = wait_for(gateway.path, event="reload", command="reload")
    assert reload["uid"] == os.geteuid() and records(gateway.path, change="- vrf green")
    gateway.write("nonsense")
    gateway.run("reload", check=False)
    (refused,) = wait_for(gateway.path, event="reload", outcome="refused")
    assert "gw.toml" in refused["reason"]
    gateway.write(text)


def test_what_came_back_after_a_restart(tmp_path):
    gateway = Audited(tmp_path, tmp_path / "audit.log")
    with gateway:
        gateway.run("vrf", "add", "red")
        gateway.kill()
        gateway.start_again()
        restored = wait_for(gateway.path, 2, event="restore")
        assert [record["done"] for record in restored] == [0, 1]
    assert records(gateway.path, event="stop")


def test_nothing_that_is_named_looks_like_another_record(gateway):
    name = "x\" outcome=done\nseq=1"
    body = json.dumps({"do": "vrf_add", "with": {"name": name}})
    said = run(["curl", "-sS", "--unix-socket", gateway.socket, "http://hitpath/v1", "-d", body], check=False)
    assert said.stdout
    run(["curl", "-sS", "--unix-socket", gateway.socket, "http://hitpath/v1", "-d", "{nonsense"], check=False)
    refused = wait_for(gateway.path, 2, event="change", outcome="refused")
    assert refused[0]["command"] == f"vrf add {name}" and refused[0]["process"] == "curl"
    assert "cannot be understood" in refused[1]["reason"]


def test_others_are_refused_and_written_down_within_a_rate(gateway, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    os.chmod(tmp_path, 0o755)
    for parent in tmp_path.parents[:3]:
        os.chmod(parent, os.stat(parent).st_mode | 0o111)
    os.chmod(gateway.socket, 0o666)
    code = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for _ in range(400):\n"
        "    it = socket.socket(socket.AF_UNIX); it.connect(sys.argv[1]); it.close()\n"
    )
    run(["/usr/bin/python3", "-c", code, gateway.socket])
    refused = wait_for(gateway.path, 50, event="peer-refused")
    assert {record["uid"] for record in refused} == {65534}
    (*_, said) = wait_for(gateway.path, event="suppressed")
    assert said["class"] == "peer-refused"
    view = gateway.json("show", "daemon")["audit"]
    assert len(records(gateway.path, event="peer-refused")) + view["suppressed"] == 400


def test_a_full_disk_costs_records_and_nothing_else(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, for a file system of its own")
    place = tmp_path / "small"
    place.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place])
    try:
        with Audited(tmp_path, place / "audit.log") as gateway:
            file = tmp_path / "commands"
            file.write_text("".join(f"vrf add v{at}\nvrf delete v{at}\n" for at in range(1000)))
            gateway.run("batch", file)
            gateway.run("vrf", "add", "red")
            end = time.monotonic() + 10
            while (lost := gateway.json("show", "daemon")["audit"]["lost"]) < 1000:
                assert time.monotonic() < end, lost
                time.sleep(0.05)
            assert "audit records lost" in gateway.run("show", "daemon").stdout
            assert f"hitpath_audit_records_lost_total {lost}" in run(
                ["curl", "-sS", "--unix-socket", gateway.socket, "http://hitpath/metrics"]
            ).stdout
            assert gateway.log().count("cannot be written") == 1
            run(["mount", "-o", "remount,size=4m", place])
            (said,) = wait_for_torn(gateway.path, event="lost")
            assert said["count"] == lost
            gateway.run("vrf", "add", "blue")
            wait_for_torn(gateway.path, command="vrf add blue")
            assert "is written again" in gateway.log()
    finally:
        run(["umount", "-l", place])


def wait_for_torn(path, **wanted):
    """As `wait_for`, of a file in which one line was cut short."""
    end = time.monotonic() + 10
    while True:
        found, torn = [], 0
        for line in path.read_text().splitlines():
            try:
                record = parts(line)
            except (AssertionError, ValueError):
                torn += 1
                continue
            if all(record.get(name) == wanted[name] for name in wanted):
                found.append(record)
        assert torn <= 1
        if found:
            return found
        assert time.monotonic() < end, path.read_text()[-2000:]
        time.sleep(0.05)


def test_a_file_that_is_renamed_is_begun_anew(gateway, tmp_path):
    old = tmp_path / "audit.log.1"
    os.rename(gateway.path, old)
    gateway.run("reload")
    wait_for(gateway.path, event="reload")
    assert records(old, event="start") and not records(gateway.path, event="start")
    os.rename(gateway.path, tmp_path / "audit.log.2")
    time.sleep(1.1)
    gateway.run("vrf", "add", "red")
    wait_for(gateway.path, command="vrf add red")


def test_the_journal_gets_a_field_for_each_part(tmp_path):
    """A journal of the test's own stands in place of the system's, in a mount namespace."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for a mount namespace")
    folder = tmp_path / "journal"
    folder.mkdir()
    journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journal.bind(str(folder / "socket"))
    journal.settimeout(10)

    class Apart:
        """Programs that see this journal."""

        @staticmethod
        def start(*command, **options):
            """Starts a program."""
            mount = f"mkdir -p /run/systemd/journal && mount --bind {folder} /run/systemd/journal && exec \"$@\""
            words = ["unshare", "--mount", "sh", "-c", mount, "sh", *map(str, command)]
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, text=True, **options)

    gateway = Audited(tmp_path, "journal", Apart)
    with gateway:
        gateway.run("vrf", "add", "red")
        while True:
            entry = journal.recv(65536)
            fields = dict(line.split(b"=", 1) for line in entry.splitlines() if b"=" in line)
            if fields[b"HITPATH_EVENT"] == b"change":
                break
        assert fields[b"HITPATH_COMMAND"] == b"vrf add red" and fields[b"HITPATH_OUTCOME"] == b"done"
        assert fields[b"HITPATH_UID"] == b"0" and int(fields[b"HITPATH_PID"]) > 1
        assert fields[b"PRIORITY"] == b"6" and fields[b"MESSAGE"].startswith(b"seq=")
        # Nobody reads it from now on.
        file = tmp_path / "commands"
        file.write_text("".join(f"vrf add v{at}\nvrf delete v{at}\n" for at in range(2000)))
        begin = time.monotonic()
        gateway.run("batch", file)
        assert time.monotonic() - begin < 5
        end = time.monotonic() + 10
        while (lost := gateway.json("show", "daemon")["audit"]["lost"]) == 0:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert gateway.json("show", "daemon")["audit"]["log"] == "journal"
        journal.setblocking(False)
        said = b""
        while time.monotonic() < end and b"HITPATH_EVENT=lost" not in said:
            try:
                said = journal.recv(65536)
            except BlockingIOError:
                time.sleep(0.05)
        assert b"HITPATH_EVENT=lost" in said, lost
    journal.close()


def test_a_start_that_fails_has_an_end(topology, tmp_path):
    gw, host = topology.namespace("gw"), topology.namespace("host")
    topology.link(gw, "lan", host, "eth0")
    config = Config(ports=[Port("lan", ["10.1.0.1/24"], kind="af-packet", interface="lan")])
    with Gateway(gw, config, tmp_path):
        path, second = tmp_path / "second.log", tmp_path / "second.toml"
        socket_path = tmp_path / "second.sock"
        second.write_text(audited(path, config)(socket_path))
        said = gw.run(binary(), "run", "--config", second, "--state-directory", "off", check=False)
        assert said.returncode == 1 and "another daemon has interface lan" in said.stderr, said
        assert [record["event"] for record in records(path)] == ["start", "stop"]
        assert records(path)[1]["reason"] == "could not start"


def test_ports_that_go_down_and_come_back(topology, tmp_path):
    gw = topology.namespace("gw")
    hosts = {}
    for label in ("lan", "wan"):
        hosts[label] = topology.namespace(label)
        topology.link(gw, label, hosts[label], "eth0")
        gw.silence(label)
    path = tmp_path / "audit.log"
    with Gateway(gw, audited(path, site(live=True))(tmp_path / "hitpath.sock"), tmp_path) as gateway:
        hosts["lan"].ip("link", "set", "eth0", "down")
        (down,) = wait_for(path, event="link", port="lan", state="down")
        assert down["reason"]
        hosts["lan"].ip("link", "set", "eth0", "up")
        wait_for(path, event="link", port="lan", state="up")
        gw.ip("link", "del", "wan")
        wait_for(path, event="link", port="wan", state="down")
        assert gateway.json("show", "ports")


def test_a_place_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    gateway = Audited(tmp_path, tmp_path / "nowhere" / "audit.log")
    said = run(gateway.command(), check=False)
    assert said.returncode == 1 and "[audit]" in said.stderr
    gateway.config_path.write_text(audited("audit.log")(gateway.socket))
    said = run(gateway.command(), check=False)
    assert said.returncode == 1 and 'log "audit.log" is nowhere' in said.stderr
