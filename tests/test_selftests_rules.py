"""`fib_rule_tests.sh` of the Linux kernel: a rule is added, decides about the packets that it is about, and is deleted.

Commands are the script's. What it asks `ip route get`, `hitpath explain` is asked here, which runs the function that
decides about packets, and about a packet that the rule is not about besides.
"""

import json

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway, Here
from harness.selftests import Script

SCRIPT = Script(
    "fib_rule_tests.sh",
    50,
    {"`oif` of a port": 4, "`uidrange`": 4},
)
GATEWAY = {4: "192.51.100.2", 6: "2001:db8:1::2"}
SOURCE = {4: "192.51.100.3", 6: "2001:db8:1::3"}
# A packet of each family that no rule of the script is about.
PLAIN = {4: "udp 192.51.100.9:1 > 192.51.100.2:2", 6: "udp [2001:db8:1::9]:1 > [2001:db8:1::2]:2"}
PING = {
    4: "icmp 192.51.100.9 > 192.51.100.2 type 8 code 0",
    6: "icmp 2001:db8:1::9 > 2001:db8:1::2 type 128 code 0",
}
families = pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])


def ends(family, protocol, sport=1, dport=2, source=None):
    """A packet to the script's gateway."""
    wrap = (lambda address: address) if family == 4 else (lambda address: f"[{address}]")
    source = source or {4: "192.51.100.9", 6: "2001:db8:1::9"}[family]
    return f"{protocol} {wrap(source)}:{sport} > {wrap(GATEWAY[family])}:{dport}"


def tos(octet):
    """The DSCP of a packet with this octet; its ECN is not part of a decision."""
    return f" dscp {octet >> 2}"


MATCHES = {
    "from-iif": (
        lambda family: f"from {SOURCE[family]} iif dummy0",
        lambda family: ends(family, "udp", source=SOURCE[family]),
    ),
    **{
        f"tos-{octet:#x}": (lambda family: "tos 0x10", lambda family, octet=octet: PLAIN[family] + tos(octet))
        for octet in (0x10, 0x11, 0x12, 0x13)
    },
    "fwmark": (
        lambda family: "fwmark 0x64",
        lambda family: ends(family, "udp", source={4: "192.51.100.64", 6: "2001:db8:1::64"}[family]),
    ),
    "sport-dport": (lambda family: "sport 666 dport 777", lambda family: ends(family, "udp", 666, 777)),
    "ipproto-tcp": (lambda family: "ipproto tcp", lambda family: ends(family, "tcp")),
    "ipproto-icmp": (
        lambda family: {4: "ipproto icmp", 6: "ipproto ipv6-icmp"}[family],
        lambda family: PING[family],
    ),
}
"""Name -> the rule's selector, and a packet that it selects."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """The script's `dummy0` and its table 100. A filter makes the mark."""
    config = Config(ports=[Port("dummy0", ["192.51.100.1/24", "2001:db8:1::1/64"])])
    with Gateway(Here, config, tmp_path_factory.mktemp("rules")) as gateway:
        for family, source in ((4, "192.51.100.64"), (6, "2001:db8:1::64")):
            route = ["table", "100", "default", "via", GATEWAY[family], "dev", "dummy0", "onlink"]
            gateway.run(f"-{family}", "route", "add", *route)
            words = ["dev", "dummy0", "ingress", "src_ip", source, "action", "skbedit", "mark", "0x64"]
            gateway.run("filter", "add", *words, "action", "pass")
        yield gateway


def table(gateway, packet):
    """The rule that decides about a packet, and the route that it finds."""
    done = gateway.run("explain", "-j", f"{packet} in dummy0", check=False)
    stages = {stage["stage"]: stage for stage in json.loads(done.stdout)}
    return stages.get("rule", {}), stages["route"]


def rules(gateway, family, *words):
    return gateway.run(f"-{family}", "rule", "show", *words).stdout


@families
@pytest.mark.parametrize("name", MATCHES)
@pytest.mark.parametrize("case", ["check", "del-by-pref"])
def test_matches(gateway, name, family, case):
    selector, packet = (of(family) for of in MATCHES[name])
    before = rules(gateway, family)
    gateway.run(f"-{family}", "rule", "add", *selector.split(), "table", "100")
    try:
        shown = rules(gateway, family, *selector.split(), "table", "100").splitlines()
        if case == "check":
            rule, route = table(gateway, packet)
            assert rule["table"] == "100" and route["via"] == GATEWAY[family], (rule, route)
            # The others ask the table of their VRF.
            rule, _ = table(gateway, PLAIN[family])
            assert rule.get("table") != "100", rule
            assert len(shown) == 1, shown
    finally:
        preference = shown[0].split(":")[0]
        gateway.run(f"-{family}", "rule", "del", "pref", preference)
    assert rules(gateway, family) == before
    assert table(gateway, packet)[0].get("table") != "100"


@families
@pytest.mark.parametrize("octet", [1, 2, 3])
def test_ecn_is_refused(gateway, family, octet):
    before = rules(gateway, family)
    done = gateway.run(f"-{family}", "rule", "add", "dsfield", str(octet), "table", "100", check=False)
    assert done.returncode == 2 and "without the two bits of ECN" in done.stderr, done.stderr
    assert rules(gateway, family) == before


@families
@pytest.mark.parametrize("words", ["oif dummy0", "uidrange 100-100"])
def test_what_is_not_asked_for_is_refused(gateway, family, words):
    before = rules(gateway, family)
    done = gateway.run(f"-{family}", "rule", "add", *words.split(), "table", "100", check=False)
    assert done.returncode != 0 and words.split()[0] in done.stderr, done.stderr
    assert rules(gateway, family) == before


def test_every_case_is_counted():
    SCRIPT.demand_all_counted(passed=2 * (2 * len(MATCHES) + 3))
