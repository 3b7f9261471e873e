"""Files of commands: many at once, all or nothing, with the line of every error, and packets that pass all the while."""

import json
import subprocess
import time

import pytest

from harness import ping
from harness.config import Config, Port
from harness.gateway import Gateway, Here, binary
from harness.netns import run
from harness.site import site

MANY = 100_000
KEY = "0x1c0cf2bb72ce67ba245b593076dfb27a"


def policies(count, action="block"):
    """Commands that add `count` policies, no two alike, of which the smallest number wins."""
    return [
        f"xfrm policy add src 10.{at >> 16}.{at >> 8 & 255}.{at & 255} dst 172.16.{at % 7}.0/24"
        f" proto udp dport {1 + at % 60000} dir out priority {1 + at % 5} action {action}"
        for at in range(count)
    ]


@pytest.fixture
def gateway(tmp_path):
    """A gateway on memory ports."""
    with Gateway(Here, site(), tmp_path) as running:
        yield running


def written(tmp_path, lines):
    """A file of these commands."""
    path = tmp_path / "commands.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def count(gateway):
    """How many policies there are."""
    words = gateway.run("xfrm", "policy", "count").stdout.split()
    return sum(int(words[words.index(name) + 1]) for name in ("IN", "OUT", "FWD"))


def compiled(gateway, policies):
    """What `show spd` says of the outbound policies, as soon as so many of them are in trees and nothing has changed since."""
    for _ in range(300):
        (spd,) = json.loads(gateway.run("-j", "show", "spd", "dir", "out").stdout)["spds"]
        trees = spd.get("compiled")
        if trees and sum(trees["ipv4"]["trees"]) == policies and (trees["added"], trees["removed"]) == (0, 0):
            return trees
        time.sleep(0.1)
    pytest.fail(f"{policies} policies were not compiled within half a minute: {trees}")


def test_policies_are_compiled_soon_after_they_have_changed(gateway, tmp_path):
    route = "route add 172.16.0.0/12 via 192.168.11.1"
    gateway.run("batch", written(tmp_path, [route, *policies(5000)]), timeout=60)
    trees = compiled(gateway, 5000)
    assert trees["ipv4"]["bytes"] > 5000 * 36 and trees["ipv6"]["trees"] == []
    assert "trees of" in gateway.run("show", "spd", "dir", "out").stdout.splitlines()[1]
    packet = "udp 10.0.0.7:9 > 172.16.0.9:8 in host"
    assert "dropped" in gateway.run("explain", packet, check=False).stdout.splitlines()[-1]
    # One that comes first, and one that is gone.
    gateway.run("xfrm", "policy", "add", "src", "10.0.0.7/32", "dir", "out", "priority", "0", "action", "allow")
    assert "sent" in gateway.run("explain", packet).stdout.splitlines()[-1]
    compiled(gateway, 5001)
    gateway.run("xfrm", "policy", "flush")
    gateway.run("batch", written(tmp_path, policies(33)))
    compiled(gateway, 33)


@pytest.mark.parametrize("options", [(), ("--atomic",)], ids=["in-turn", "atomic"])
def test_a_hundred_thousand_policies_are_loaded_and_decide(gateway, tmp_path, options):
    first = ["# the last word is said first", "", "route add 172.16.0.0/12 via 192.168.11.1", "xfrm policy add dir out priority 9"]
    lines = [*first, *policies(MANY)]
    told = json.loads(gateway.run("-j", "batch", *options, written(tmp_path, lines), timeout=120).stdout)
    assert (told["done"], told["refused"], told["errors"], told["warning"]) == (MANY + 2, 0, [], None)
    (lookup,) = told["lookups"]
    assert (lookup["vrf"], lookup["direction"], lookup["policies"]) == ("main", "out", MANY + 1)
    assert 0 < lookup["worst_case_policies"] < lookup["policies_limit"] and not lookup["over_limit"]
    assert count(gateway) == MANY + 1
    for at in (0, 1, 4711, MANY - 1):
        source = f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}"
        for port, outcome in ((1 + at % 60000, "dropped"), (60001, "sent")):
            packet = f"udp {source}:9 > 172.16.{at % 7}.9:{port} in host"
            assert outcome in gateway.run("explain", packet, check=False).stdout.splitlines()[-1], packet


@pytest.mark.parametrize("place", [1, 3, 1000, 1001, 2500])
def test_an_error_is_told_with_its_line_and_ends_the_batch(gateway, tmp_path, place):
    lines = policies(3000)
    for wrong, word in (("xfrm policy add src 10.0.0.0/33 dir out", "10.0.0.0/33"), ("vrf del red", "no VRF 'red'")):
        lines[place - 1] = wrong
        path = written(tmp_path, lines)
        done = gateway.run("batch", path, check=False)
        assert done.returncode == 1 and f"{path}:{place}: " in done.stderr and word in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert count(gateway) == place - 1
        gateway.run("xfrm", "policy", "flush")


@pytest.mark.parametrize("wrong", ["xfrm policy add src 10.0.0.0/33 dir out", "vrf del red", "xfrm policy list"])
def test_all_or_nothing_leaves_everything_as_it_was(gateway, tmp_path, wrong):
    gateway.run("xfrm", "policy", "add", "src", "192.0.2.0/24", "dir", "in")
    before = [gateway.json("show", what) for what in ("spd", "routes", "vrfs", "sas")]
    lines = ["vrf add blue", "route add blackhole 10.99.0.0/16", "xfrm policy flush", *policies(5000)]
    lines.insert(4000, wrong)
    path = written(tmp_path, lines)
    done = gateway.run("batch", "--atomic", path, check=False)
    assert done.returncode == 1 and f"{path}:4001: " in done.stderr, done.stderr
    assert [gateway.json("show", what) for what in ("spd", "routes", "vrfs", "sas")] == before
    told = json.loads(gateway.run("-j", "batch", "--atomic", path, check=False).stdout)
    assert (told["done"], told["refused"], [error["line"] for error in told["errors"]]) == (0, 1, [4001])


def test_force_goes_on_behind_errors(gateway, tmp_path):
    lines = policies(2500)
    wrong = (1, 2, 1500, 2500)
    for place in wrong:
        lines[place - 1] = "route add 10.0.0.0/8 via nowhere"
    path = written(tmp_path, lines)
    for option in ("--force", "-force"):
        done = gateway.run("batch", option, path, check=False)
        assert done.returncode == 1
        told = [line.split(": ")[1] for line in done.stderr.splitlines()]
        assert told == [f"{path}:{place}" for place in wrong]
        assert count(gateway) == 2500 - len(wrong)
        gateway.run("xfrm", "policy", "flush")
    told = json.loads(gateway.run("-j", "batch", "--force", path, check=False).stdout)
    assert (told["done"], told["refused"]) == (2496, 4)
    assert [error["line"] for error in told["errors"]] == list(wrong)


def test_lines_are_read_as_iproute2_reads_them(gateway):
    said = f"""\
# a tunnel
xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 proto esp mode tunnel reqid 1 \\
    auth sha1 {KEY} enc 'cbc(aes)' "{KEY}"   # with a comment

xfrm policy add src 10.0.0.0/8 dst 11.0.0.0/8 dir out tmpl dst 192.0.2.2 proto esp mode tunnel reqid 1
xfrm policy count
route get 192.168.11.1
"""
    done = gateway.run("batch", "-", stdin=said)
    assert "SPD IN  0 OUT 1 FWD 0" in done.stdout and "192.168.11.1 dev wan" in done.stdout
    assert done.stdout.endswith("4 commands carried out\n")
    assert [sa["spi"] for sa in gateway.json("show", "sas")] == [1]
    again = gateway.run("batch", "-", stdin=said, check=False)
    assert again.returncode == 1 and "standard input:2: " in again.stderr
    for line, word in (
        ("ip route show", "'ip' is not a part of the command"),
        ("hitpath route show", "'hitpath' is not a part of the command"),
        ("route add 'blackhole", "does not end"),
        ("route add " + "x" * 20000, "longer than"),
    ):
        refused = gateway.run("batch", "-", stdin=f"\n{line}\n", check=False)
        assert refused.returncode == 1 and word in refused.stderr and "standard input:2: " in refused.stderr, line


def test_no_error_shows_a_key(gateway, tmp_path):
    line = f"xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 proto esp mode tunnel enc cbc(aes) {KEY} auth sha1"
    for wrong in (line, f"{line} {KEY}00 {KEY}", f"{line} {KEY} reqid {KEY}", f"{line} '{KEY}", f"{line} {KEY}\n" * 2):
        for options in ([], ["-j"], ["--atomic"], ["--force", "-vv"]):
            done = gateway.run("batch", *options, "-", stdin=wrong, check=False)
            assert KEY[2:] not in done.stdout + done.stderr, done.stdout + done.stderr
            gateway.run("xfrm", "state", "flush")
    assert KEY[2:] not in gateway.log()


def test_a_file_that_is_not_there_and_a_gateway_that_is_not_there_are_named(gateway, tmp_path):
    done = gateway.run("batch", tmp_path / "nowhere.txt", check=False)
    assert done.returncode == 1 and "nowhere.txt" in done.stderr
    path = written(tmp_path, policies(3))
    done = run([binary(), "--socket", tmp_path / "nobody", "batch", path], check=False)
    assert done.returncode == 3 and "nobody" in done.stderr


def test_iproute2s_option_is_the_verb(gateway, tmp_path):
    path = written(tmp_path, ["vrf del red", *policies(3)])
    done = gateway.run("-force", "-batch", path, check=False)
    assert done.returncode == 1 and done.stdout == "3 commands carried out, 1 refused\n", done
    done = gateway.run("-batch", check=False)
    assert done.returncode == 2 and "<FILE>" in done.stderr, done
    # Other verbs have such an option, and other faults.
    done = gateway.run("top", "--batch", "--nosuch", check=False)
    assert done.returncode == 2 and "--nosuch" in done.stderr and "batch FILE" not in done.stderr


def test_others_are_answered_while_a_batch_is_carried_out(gateway, tmp_path):
    path = written(tmp_path, policies(MANY))
    loading = subprocess.Popen(
        [binary(), "--socket", gateway.socket, "batch", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    seen = []
    while loading.poll() is None:
        seen.append(count(gateway))
        gateway.run("route", "replace", "blackhole", f"10.200.{len(seen) % 256}.0/24")
    assert loading.communicate()[1] == "" and loading.returncode == 0
    assert seen == sorted(seen) and any(0 < number < MANY for number in seen)
    assert count(gateway) == MANY
    blackholes = [route for route in gateway.json("show", "routes") if route["destination"].startswith("10.200.")]
    assert len(blackholes) == min(len(seen), 256)


@pytest.mark.parametrize("options", [(), ("--atomic",)], ids=["in-turn", "atomic"])
def test_packets_pass_all_the_while(topology, tmp_path, options):
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
    path = written(tmp_path, policies(MANY))
    with Gateway(gw, config, tmp_path) as gateway:
        for direction in ("in", "out"):
            all_hosts = ("src", "10.0.0.0/14", "dst", "10.0.0.0/14", "dir", direction, "priority", "0")
            gateway.run("xfrm", "policy", "add", *all_hosts)
        hosts[0].ping("10.2.0.2", count=1)
        pinging = hosts[0].start(*ping.command("10.2.0.2", count=400, deadline=60, interval=0.01))
        gateway.run("batch", *options, path, timeout=120)
        assert count(gateway) == MANY + 2
        ping.demand_all(pinging.communicate(timeout=90)[0], count=400)


def test_policies_that_defeat_their_lookup_are_told_once(tmp_path):
    config = site()
    config.ipsec = {"policy-lookup": "linear"}
    with Gateway(Here, config, tmp_path) as gateway:
        path = written(tmp_path, policies(6000))
        done = gateway.run("batch", path)
        said = done.stderr.splitlines()
        limit = gateway.json("show", "spd", "dir", "out")["spds"][0]["policies_limit"]
        assert len(said) == 2 and f"{path}:{limit + 1}: warning: " in said[0] and "6000 policies" in said[1], done.stderr
        told = gateway.run("xfrm", "policy", "add", "src", "192.0.2.0/24", "dir", "out")
        assert "warning" in told.stderr and "policy-lookup" in told.stderr
        (spd,) = gateway.json("show", "spd", "dir", "out")["spds"]
        assert spd["over_limit"] and spd["worst_case_policies"] == 6001 and spd["engine"] == "linear"
        assert "over the limit" in gateway.run("show", "spd", "dir", "out").stdout
