"""The running gateway's client: changes while packets pass, reloads that are whole or nothing, and who may ask."""

import os
import re
import signal
import socket
import subprocess
import time

import pytest

from harness import ping
from harness.algorithms import GCM
from harness.config import Config, Policy, Port, Route
from harness.gateway import Gateway, binary
from harness.failure import CommandFailed
from harness.netns import run
from harness.site import site
from harness.tunnel import Tunnel

LINES = """\
xfrm state add src {me} dst {remote} spi 1 proto esp mode tunnel reqid 1 auth sha1 {key} enc cbc(aes) {key}
xfrm state add dst {me} src {remote} spi 1 proto esp mode tunnel reqid 1 auth sha1 {key} enc cbc(aes) {key}
xfrm policy add src {local} dst {far} dir out tmpl dst {remote} proto esp mode tunnel reqid 1
xfrm policy add src {far} dst {local} dir in tmpl dst {me} proto esp mode tunnel reqid 1
""".format(
    me="192.168.11.2",
    remote="192.168.11.1",
    local="192.168.13.0/24",
    far="192.168.12.0/24",
    key="0x1c0cf2bb72ce67ba245b593076dfb27a",
)


@pytest.fixture
def alone(topology, tmp_path):
    """A gateway whose two ports lead to hosts that say nothing."""
    gw = topology.namespace("gw")
    for label in ("lan", "wan"):
        topology.link(gw, label, topology.namespace(label), "eth0")
        gw.silence(label)
    with Gateway(gw, site(live=True), tmp_path) as gateway:
        yield gateway


def test_what_linux_users_type_is_accepted_as_it_stands(alone):
    for line in LINES.splitlines():
        alone.run(*line.split())
    assert [sa["spi"] for sa in alone.json("show", "sas")] == [1, 1]
    assert len(alone.json("show", "policies")) == 2
    shown = alone.run("xfrm", "state", "show").stdout
    assert "src 192.168.11.2 dst 192.168.11.1" in shown and "proto esp spi 0x00000001" in shown
    alone.run("xfrm", "policy", "delete", "src", "192.168.13.0/24", "dst", "192.168.12.0/24", "dir", "out")
    assert len(alone.json("show", "policies")) == 1
    alone.run("xfrm", "policy", "flush")
    alone.run("xfrm", "state", "flush")
    assert alone.json("show", "policies") == alone.json("show", "sas") == []


def test_keys_are_not_shown_unless_asked_for(alone):
    for line in LINES.splitlines():
        alone.run(*line.split())
    said = [alone.run(*words).stdout for words in (["show", "sas"], ["show", "sas", "-j"], ["show", "policies", "-j"])]
    assert not any("1c0cf2bb72ce67ba" in text for text in said)


@pytest.mark.parametrize(
    "line, word",
    [
        ("xfrm state add src 1.1.1.1 dst 2.2.2.2 proto ah spi 1 mode tunnel auth sha1 0x00", "ah"),
        ("xfrm state add src 1.1.1.1 dst 2.2.2.2 proto esp spi 1 mode transport enc cbc(aes) 0x00", "transport"),
        ("xfrm state add src 1.1.1.1 dst 2.2.2.2 proto esp spi 1 mode tunnel enc cbc(des) 0x0011223344556677", "des"),
        ("xfrm state add src 1.1.1.1 dst fd00::1 proto esp spi 1 mode tunnel", ""),
        ("xfrm policy add src 10.0.0.0/8 dst 11.0.0.0/8 dir sideways", "sideways"),
        ("xfrm frobnicate", "frobnicate"),
        ("route add 10.0.0.0/33 via 1.1.1.1", "10.0.0.0/33"),
        ("route add 10.0.0.0/8 via 1.1.1.1 flavour sweet", "flavour"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(alone, line, word):
    before = [alone.json("show", what) for what in ("sas", "policies", "routes")]
    done = alone.run(*line.split(), check=False)
    assert done.returncode in (1, 2) and word in done.stderr
    assert [alone.json("show", what) for what in ("sas", "policies", "routes")] == before


def test_every_table_can_be_shown_both_ways(alone):
    for what in ("ports", "workers", "drops", "policies", "sas", "routes", "neighbours"):
        assert isinstance(alone.json("show", what), list)
        assert "\x1b" not in alone.run("show", what).stdout


def test_only_the_owner_may_ask(alone, tmp_path):
    assert alone.socket_mode() == 0o600
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:-2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    # Even where the file's mode is opened by hand, the peer's credentials are checked.
    os.chmod(alone.socket, 0o666)
    asked = run(
        [
            "setpriv",
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "/usr/bin/python3",
            "-Ic",
            ASK,
            alone.socket,
        ],
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    assert "403" in asked.stdout and "interface" not in asked.stdout, asked.stdout
    assert alone.json("show", "ports")


ASK = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.settimeout(3)
client.connect(sys.argv[1])
body = b'{"do": "ports"}'
head = b'POST /v1 HTTP/1.1\\r\\nHost: h\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n'
client.sendall(head % len(body) + body)
print(client.recv(65536).decode())
"""


def test_garbage_on_the_socket_harms_nobody(alone):
    for garbage in (
        b"",
        b"\0" * 70000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1 HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"{" * 10000,
    ):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(alone.socket))
            try:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                client.recv(65536)
            except OSError:  # It may hang up on us.
                pass
    idle = [socket.socket(socket.AF_UNIX) for _ in range(20)]
    for client in idle:
        client.connect(str(alone.socket))
    assert alone.json("show", "ports")
    for client in idle:
        client.close()


def test_without_a_gateway_the_client_says_so(tmp_path):
    done = run([binary(), "--socket", tmp_path / "nobody", "show", "ports"], check=False)
    assert done.returncode == 3 and "nobody" in done.stderr


def test_the_socket_is_gone_after_the_gateway(topology, tmp_path):
    gw = topology.namespace("gw")
    for label in ("lan", "wan"):
        topology.link(gw, label, topology.namespace(label), "eth0")
    with Gateway(gw, site(live=True), tmp_path) as gateway:
        assert gateway.socket.exists()
    assert not gateway.socket.exists()


def test_a_second_gateway_does_not_take_the_first_ones_socket(alone, topology):
    command = [binary(), "run", "--config", alone.config_path, "--state-directory", "off"]
    second = run(["ip", "netns", "exec", topology["gw"].name, *command], check=False)
    assert second.returncode == 1 and str(alone.socket) in second.stderr
    assert alone.json("show", "ports")


def test_explain_tells_every_step_and_sends_nothing(alone):
    for line in LINES.splitlines():
        alone.run(*line.split())
    alone.run("neigh", "add", "192.168.11.1", "lladdr", "02:00:00:00:00:77", "dev", "wan")
    before = alone.json("show", "sas")
    shown = alone.run("explain", "udp 192.168.13.5:5000 > 192.168.12.7:53 in lan").stdout
    for word in ("main", "192.168.12.0/24", "192.168.11.1", "0x00000001", "02:00:00:00:00:77", "wan"):
        assert word in shown, shown
    assert alone.json("show", "sas") == before


def test_a_reload_is_whole_or_nothing_and_prints_the_difference(alone):
    config = site([Tunnel(GCM, 4)], live=True)
    alone.write(config)
    shown = alone.run("reload").stdout
    assert re.search(r"^\+ .*policy", shown, re.MULTILINE) and re.search(r"^\+ ", shown, re.MULTILINE)
    assert len(alone.json("show", "policies")) == 4
    tables = [alone.json("show", what) for what in ("policies", "routes")]
    config.routes.append(Route("10.9.0.0/16", via="192.168.11.9"))
    alone.write(config.render(alone.socket) + '\n[[route]]\nto = "10.0.0.0/99"\nvia = "192.168.11.1"\n')
    refused = alone.run("reload", check=False)
    assert refused.returncode == 1 and "10.0.0.0/99" in refused.stderr
    assert [alone.json("show", what) for what in ("policies", "routes")] == tables
    alone.write(site(live=True))
    alone.process.send_signal(signal.SIGHUP)
    for _ in range(100):
        if not alone.json("show", "policies"):
            break
        time.sleep(0.05)
    assert alone.json("show", "policies") == []


def vrfs(*tables):
    """VRFs by name and table, each with a route of its own that a rule could lead to."""
    return "".join(
        f'\n[[vrf]]\nname = "{name}"\ntable = {table}\n\n[[route]]\nto = "10.{at}.0.0/16"\nkind = "blackhole"\nvrf = "{name}"\n'
        for name, table, at in tables
    )


def test_a_reload_swaps_tables_and_check_says_who_knows_more(alone):
    text = site(live=True).render(alone.socket)
    alone.write(text + vrfs(("red", 10, 1), ("blue", 20, 2)))
    alone.run("reload")
    alone.write(text + vrfs(("red", 20, 1), ("green", 10, 3)))
    told = alone.run("reload", "--dry-run").stdout
    assert told == alone.run("reload").stdout and "~ vrf red: table 10 -> 20" in told, told
    shown = {table: alone.run("route", "show", "table", str(table)).stdout.split()[1] for table in (10, 20)}
    assert shown == {10: "10.3.0.0/16", 20: "10.1.0.0/16"}
    # What a command has added stands in the way, which the file alone does not show.
    alone.run("vrf", "add", "mine", "table", "30")
    alone.write(text + vrfs(("red", 30, 1), ("green", 10, 3)))
    checked = alone.run("check", alone.config_path).stdout
    assert ": right, " in checked and "`hitpath reload --dry-run` tells" in checked, checked
    assert alone.json("check", alone.config_path)["running"] == [str(alone.config_path)]
    for words in (["reload", "--dry-run"], ["reload"]):
        refused = alone.run(*words, check=False)
        assert refused.returncode == 1 and "table 30 is that of VRF 'mine'" in refused.stderr, refused
    assert alone.run("route", "show", "table", "20").stdout.split()[1] == "10.1.0.0/16"


def test_what_no_file_can_say_is_left_out_of_what_is_saved(alone, tmp_path):
    for line in (
        "link add red type vrf table 10",
        "rule add from 10.0.0.0/8 lookup red priority 7",
        "rule add from 10.4.0.0/16 lookup 77 priority 8",
        "link del red",
    ):
        alone.run(*line.split())
    assert alone.run("rule", "show", "priority", "7").stdout == "7:\tfrom 10.0.0.0/8 lookup red [detached]\n"
    file = tmp_path / "saved.toml"
    done = alone.run("save", file)
    assert done.returncode == 0 and "left out: rule priority 7" in done.stderr and "red" in done.stderr, done
    lines = file.read_text().splitlines()
    assert any(line.startswith("# left out: rule priority 7 ") for line in lines), lines
    assert lines.count("[[rule]]") == 1 and "priority = 8" in lines
    run([binary(), "check", file])


def test_a_reload_under_traffic_loses_nothing(topology, tmp_path):
    gw = topology.namespace("gw")
    hosts = []
    config = Config()
    for number, label in enumerate(("left", "right"), start=1):
        host = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        host.addresses("eth0", f"10.{number}.0.2/24")
        host.ip("route", "add", "default", "via", f"10.{number}.0.1")
        config.ports.append(Port(label, [f"10.{number}.0.1/24"], kind="af-packet", interface=label))
        hosts.append(host)
    with Gateway(gw, config, tmp_path) as gateway:
        hosts[0].ping("10.2.0.2", count=1)
        pinging = hosts[0].start(*ping.command("10.2.0.2", count=300, deadline=20, interval=0.01))
        for turn in range(10):
            config.routes = [Route(f"10.{100 + turn}.0.0/16", via="10.2.0.2")]
            config.policies = [Policy(direction, "0.0.0.0/0", "0.0.0.0/0", "bypass") for direction in ("in", "out")]
            gateway.write(config)
            gateway.run("reload")
            gateway.run(
                "xfrm",
                "policy",
                "add",
                "src",
                "172.16.0.0/16",
                "dst",
                f"172.17.{turn}.0/24",
                "dir",
                "out",
                "action",
                "block",
            )
        assert pinging.poll() is None, "the reloads were not under traffic"
        ping.demand_all(pinging.communicate(timeout=30)[0], count=300)


WRONG = {
    "not-toml": ("[gateway\n", "1:"),
    "unknown-table": ("[[prot]]\nname = 'x'\n", "prot"),
    "unknown-key": ("[[port]]\nname = 'a'\nkind = 'memory'\nadresses = []\n", "adresses"),
    "bad-address": ("[[port]]\nname = 'a'\nkind = 'memory'\naddresses = ['10.0.0.1/33']\n", "10.0.0.1/33"),
    "bad-key": (
        "[[sa]]\nsource = '1.1.1.1'\ndestination = '2.2.2.2'\nspi = 1000\n"
        "aead = { name = 'rfc4106(gcm(aes))', key = '0x00', icv-bits = 128 }\n",
        "key",
    ),
    "bad-algorithm": (
        "[[sa]]\nsource = '1.1.1.1'\ndestination = '2.2.2.2'\nspi = 1000\n"
        "aead = { name = 'rot13', key = '0x00', icv-bits = 128 }\n",
        "rot13",
    ),
    "same-name-twice": ("[[port]]\nname = 'a'\nkind = 'memory'\n[[port]]\nname = 'a'\nkind = 'memory'\n", "a"),
    "no-such-vrf": ("[[port]]\nname = 'a'\nkind = 'memory'\nvrf = 'nowhere'\n", "nowhere"),
    "no-such-port": ("[[neighbour]]\nport = 'nowhere'\naddress = '10.0.0.1'\nmac = '02:00:00:00:00:01'\n", "nowhere"),
    "families-mixed": (
        "[[policy]]\ndirection = 'out'\nsource = '10.0.0.0/8'\ndestination = 'fd00::/8'\naction = 'bypass'\n",
        "fd00::/8",
    ),
    "reversed-range": (
        "[[policy]]\ndirection = 'out'\nsource = '10.0.0.9-10.0.0.1'\ndestination = '10.0.0.0/8'\naction = 'bypass'\n",
        "10.0.0.9-10.0.0.1",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_configuration_is_refused_with_its_place(tmp_path, case):
    text, word = WRONG[case]
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    done = run([binary(), "check", path], check=False)
    assert done.returncode == 1
    assert re.search(r"wrong\.toml:\d+:\d+", done.stderr + done.stdout), done.stderr + done.stdout
    assert word in done.stderr + done.stdout and "panicked" not in done.stderr


def test_check_tells_all_errors_at_once(tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text("\n".join(WRONG[case][0] for case in ("bad-address", "no-such-port", "reversed-range")))
    done = run([binary(), "check", path], check=False)
    lines = set(re.findall(r"wrong\.toml:(\d+):\d+", done.stderr + done.stdout))
    assert done.returncode == 1 and len(lines) >= 3


def test_check_accepts_what_is_right(tmp_path):
    path = tmp_path / "gw.toml"
    path.write_text(site([Tunnel(GCM, 4), Tunnel(GCM, 6)]).render("/tmp/unused.sock"))
    run([binary(), "check", path])


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xfe\x00", b"[" * 100_000, b"a = " + b"[" * 5000, b"a = '" + b"x" * 2_000_000],
    ids=["empty", "not-utf-8", "brackets", "deep", "long"],
)
def test_hostile_configurations_are_refused(tmp_path, data):
    path = tmp_path / "hostile.toml"
    path.write_bytes(data)
    done = run([binary(), "run", "--config", path, "--state-directory", "off"], check=False)
    assert done.returncode == 1 and "hostile.toml" in done.stderr and "panicked" not in done.stderr


def test_a_missing_interface_is_named(tmp_path, topology):
    gw = topology.namespace("gw")
    config = Config(ports=[Port("lan", ["10.0.0.1/24"], kind="af-packet", interface="nowhere0")])
    with Gateway(gw, config, tmp_path) as gateway:
        assert "nowhere0" in gateway.log()
        told = gw.run(binary(), "check", "--live", gateway.config_path, check=False)
        assert told.returncode == 1 and "there is no interface nowhere0" in told.stdout
        # Who asks for another one by a reload can correct it.
        config.ports.append(Port("wan", ["10.0.1.1/24"], kind="af-packet", interface="nowhere1"))
        gateway.write(config)
        refused = gateway.run("reload", check=False)
        assert refused.returncode == 1 and "nowhere1" in refused.stderr


def test_an_interface_that_cannot_be_a_port_is_refused(tmp_path, topology):
    gw = topology.namespace("gw")
    config = Config(ports=[Port("lan", ["10.0.0.1/24"], kind="af-packet", interface="lo")])
    with pytest.raises(CommandFailed, match="port lo: not an Ethernet interface"):
        with Gateway(gw, config, tmp_path):
            pass


def test_completions_and_manual_pages_come_from_the_program(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        assert "hitpath" in run([binary(), "completions", shell]).stdout
    done = subprocess.run([binary(), "man", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    help_text = run([binary(), "--help"]).stdout
    for verb in (
        "run",
        "check",
        "reload",
        "replay",
        "show",
        "xfrm",
        "route",
        "neigh",
        "addr",
        "link",
        "vrf",
        "batch",
        "explain",
    ):
        assert re.search(rf"^ +{verb} ", help_text, re.MULTILINE), verb
