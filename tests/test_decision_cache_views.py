"""What users set and see of the decision cache and the policy lookup: `[ipsec]`, `show spd`, `show cache`."""

import time

import pytest

from harness import ping
from harness.config import Config, Policy, Port, Raw
from harness.failure import CommandFailed
from harness.gateway import Gateway, Here, binary
from harness.netns import run
from harness.site import site

TABLES = ["ipv4-outbound", "ipv4-inbound", "ipv6-outbound", "ipv6-inbound"]


def with_keys(**ipsec):
    """A gateway on memory ports with these keys of `[ipsec]`."""
    config = site()
    config.ipsec = {key.replace("_", "-"): value for key, value in ipsec.items()}
    return config


def checked(tmp_path, config):
    """What `hitpath check` says to it."""
    path = tmp_path / "gw.toml"
    path.write_text(config if isinstance(config, str) else config.render("/tmp/unused.sock"))
    return run([binary(), "check", path], check=False)


def test_the_cache_is_as_configured(tmp_path):
    config = with_keys(
        ipv4_outbound_spd_flow_cache="on",
        ipv4_outbound_spd_flow_cache_hash_buckets=64,
        ipv4_inbound_spd_flow_cache="off",
        ipv6_outbound_spd_flow_cache=Raw("true"),
        ipv6_outbound_spd_hash_buckets=1000,
        spd_flow_cache_associativity=1,
        policy_lookup="linear",
    )
    config.workers = 2
    with Gateway(Here, config, tmp_path) as gateway:
        report = gateway.json("show", "cache")
        seen = [(row["worker"], row["table"], row["mode"], row["state"]) for row in report["workers"]]
        modes = [("on", "in-use"), ("off", "off"), ("on", "in-use"), ("auto", "in-use")]
        assert seen == [(worker, table, *mode) for worker in (0, 1) for table, mode in zip(TABLES, modes)]
        assert [row["buckets"] for row in report["workers"][:3]] == [64, 0, 1024]
        assert [row["buckets"] for row in report["totals"][:3]] == [128, 0, 2048]
        assert {row["associativity"] for row in report["workers"]} == {1}
        assert report["workers"][0]["bytes"] >= 64 * 64 and report["workers"][1]["bytes"] == 0
        shown = gateway.run("show", "cache").stdout
        assert all(word in shown for word in ("ipv4-outbound", "in use", "off", "BYPASSED", "SAVED NS", "all"))
        assert "1000 is rounded up to 1024" in gateway.log()
        (spd,) = gateway.json("show", "spd", "vrf", "main", "dir", "in")["spds"]
        assert spd["engine"] == "linear"


def test_a_change_waits_for_the_next_start(tmp_path):
    with Gateway(Here, site(), tmp_path) as gateway:
        gateway.write(with_keys(ipv6_inbound_spd_flow_cache="off", policy_lookup="linear"))
        for options in (["--dry-run"], [], []):
            said = gateway.run("reload", *options).stdout.splitlines()
            assert said == [
                "! ipsec ipv6-inbound-spd-flow-cache auto -> off (when the gateway is started again)",
                "! ipsec policy-lookup fast -> linear (when the gateway is started again)",
            ]
        assert {row["mode"] for row in gateway.json("show", "cache")["totals"]} == {"auto"}


def test_a_check_says_what_is_rounded(tmp_path):
    done = checked(tmp_path, with_keys(ipv4_inbound_spd_flow_cache_hash_buckets=4097))
    assert done.returncode == 0 and "4097 is rounded up to 8192" in done.stdout
    assert "rounded" not in checked(tmp_path, with_keys(ipv4_inbound_spd_flow_cache_hash_buckets=4096)).stdout


@pytest.mark.parametrize(
    "line, word",
    [
        ('ipv4-outbound-spd-flow-cache = "yes"', '("on")'),
        ("ipv4-outbound-spd-flow-cache on", '(ipv4-outbound-spd-flow-cache = "on")'),
        ("ipv4-outbound-spd-flow-cache-hash-buckets = 0", "(1 to 1073741824)"),
        ("ipv4-outbound-spd-flow-cache-hash-buckets = -4", "(1 to 1073741824)"),
        ("ipv4-outbound-spd-flow-cache-hash-buckets = 1073741825", "(1 to 1073741824)"),
        ("ipv5-outbound-spd-flow-cache = true", "(did you mean ipv4-outbound-spd-flow-cache?)"),
        ("spd-flow-cache-associativity = 2", "(1 or 4)"),
        ("ipv4-outbound-spd-fast-path = true", '(policy-lookup = "fast"'),
    ],
)
def test_a_wrong_key_is_told_what_would_be_right(tmp_path, line, word):
    done = checked(tmp_path, f"[ipsec]\n{line}\n{site().render('/tmp/unused.sock')}")
    assert done.returncode == 1 and any(":2:" in said and word in said for said in done.stdout.splitlines()), done.stdout


def test_a_table_that_finds_no_memory_ends_the_start_and_is_named(tmp_path):
    path = tmp_path / "gw.toml"
    config = with_keys(ipv6_outbound_spd_flow_cache_hash_buckets=1 << 30)
    path.write_text(config.render(tmp_path / "hitpath.sock"))
    done = run(["prlimit", f"--as={8 << 30}", binary(), "run", "--config", path, "--state-directory", "off"], check=False)
    assert done.returncode == 1 and "ready" not in done.stdout and "panicked" not in done.stderr
    for word in ("ipv6-outbound", "1073741824 buckets", "bytes"):
        assert word in done.stderr, done.stderr
    assert not (tmp_path / "hitpath.sock").exists()


def test_what_is_no_database_is_refused(tmp_path):
    with Gateway(Here, site(), tmp_path) as gateway:
        for words, code, word in (
            (["vrf", "blue"], 1, "blue"),
            (["dir", "up"], 2, "in, out or fwd"),
            (["vrf"], 2, "needed"),
            (["blue"], 2, "not expected"),
        ):
            done = gateway.run("show", "spd", *words, check=False)
            assert done.returncode == code and word in done.stderr, done.stderr
        with pytest.raises(CommandFailed, match="one word too many"):
            gateway.run("show", "ports", "lan")


def test_policies_and_live_entries_are_counted(topology, tmp_path):
    gw = topology.namespace("gw")
    hosts, config = [], Config(ipsec={f"{table}-spd-flow-cache": "on" for table in TABLES})
    for number, label in enumerate(("left", "right"), start=1):
        host = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        gw.silence(label)
        host.addresses("eth0", f"10.{number}.0.2/24")
        host.ip("route", "add", "default", "via", f"10.{number}.0.1")
        config.ports.append(Port(label, [f"10.{number}.0.1/24"], kind="af-packet", interface=label))
        hosts.append(host)
    config.policies = [
        Policy("out", "172.16.0.0/16", "0.0.0.0/0", "discard", priority=1),
        Policy("out", "10.1.0.0/24", "0.0.0.0/0", "bypass", priority=2),
        Policy("out", "0.0.0.0/0", "0.0.0.0/0", "bypass", priority=3),
        Policy("in", "0.0.0.0/0", "0.0.0.0/0", "bypass", priority=3),
    ]
    with Gateway(gw, config, tmp_path) as gateway:

        def live():
            report = gateway.json("show", "spd")
            return {row["table"]: row["entries"] for row in report["flow_cache"]}

        # Neighbours are found first, so that nothing but the flow is counted afterwards.
        hosts[0].ping("10.2.0.2", count=1)
        before = live()["ipv4-outbound"]
        ping.demand_all(hosts[0].run(*ping.command("10.2.0.2", count=20)).stdout, count=20)
        # One flow there and one back.
        assert live()["ipv4-outbound"] == before + 2
        assert live()["ipv4-inbound"] == 0
        spds = gateway.json("show", "spd", "vrf", "main", "dir", "out")["spds"]
        (spd,) = spds
        assert (spd["policies"], spd["engine"], spd["over_limit"]) == (3, "fast", False)
        packets = [policy["packets"] for policy in spd["list"]]
        assert packets[0] == 0 and packets[1] >= 20 and packets[2] >= 20, packets
        assert [policy["position"] for policy in spd["list"]] == [1, 2, 3]
        shown = gateway.run("show", "spd").stdout
        assert "vrf main dir out: 3 policies, lookup fast" in shown
        assert f"ipv4-outbound-spd-flow-cache-entries: {before + 2}" in shown

        (total,) = [row for row in gateway.json("show", "cache")["totals"] if row["table"] == "ipv4-outbound"]
        assert total["live"] == before + 2 and total["occupied"] == before + 2
        assert total["hits"] >= 38 and total["misses"]["bypassed"] == 0
        looked_up = total["hits"] + sum(total["misses"].values())
        assert total["hit_ratio"] == pytest.approx(total["hits"] / looked_up)

        # A change of a policy sets the count to zero; what it does not touch counts again from its next packet on.
        gateway.run("xfrm", "policy", "add", "src", "172.17.0.0/16", "dir", "out", "priority", "1")
        end = time.monotonic() + 5
        while any(live().values()) and time.monotonic() < end:
            time.sleep(0.01)
        assert set(live().values()) == {0}
        ping.demand_all(hosts[0].run(*ping.command("10.2.0.2", count=1)).stdout, count=1)
        assert live()["ipv4-outbound"] == 2
