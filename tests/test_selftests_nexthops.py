"""`fib_nexthops.sh` of the Linux kernel, as far as a route can say it without nexthop objects.

hitpath is the script's `me`. The packets that the script's `me` sends itself are those of a host behind it here.
"""

import re

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway
from harness.netns import Topology
from harness.selftests import Script

pytestmark = pytest.mark.namespaces

SCRIPT = Script(
    "fib_nexthops.sh",
    238,
    {
        "`basic`, `basic_res`: nexthop objects and their buckets": 57,
        "`ipv4_fcnal`, `ipv6_fcnal`: what deletes routes by `nhid`, next hops without a port": 5,
        "`*_grp_fcnal`: groups that change under their routes, groups of groups, reference counts": 9,
        "`*_res_grp_fcnal`, `*_large_res_grp`, `*_torture`": 22,
        "`*_fdb_grp_fcnal`: bridges and VXLAN": 38,
        "`*_compat_mode`: what netlink tells of objects": 20,
        "`*_fcnal_runtime`: objects that are replaced under their routes": 8,
        "`ipv4_withv6_fcnal`, `ipv4_fcnal_runtime`: IPv6 next hops of IPv4 routes": 9,
        "`ipv4_fcnal_runtime`: MPLS": 4,
    },
)
ME = {"veth1": {4: "172.16.1.1", 6: "2001:db8:91::1"}, "veth3": {4: "172.16.2.1", 6: "2001:db8:92::1"}}
PEER = {"veth1": {4: "172.16.1.2", 6: "2001:db8:91::2"}, "veth3": {4: "172.16.2.2", 6: "2001:db8:92::2"}}
HOST = {4: ("172.16.3.1", "172.16.3.2"), 6: ("2001:db8:93::1", "2001:db8:93::2")}
REMOTE = {4: "172.16.101.1", 6: "2001:db8:101::1"}
# On no link of me.
FOREIGN = {4: "172.16.3.9", 6: "2001:db8:3::3"}
LENGTH = {4: 24, 6: 64}
families = pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])


def on(addresses):
    return [f"{addresses[family]}/{LENGTH[family]}" for family in (4, 6)]


@pytest.fixture(scope="module")
def world(root, tmp_path_factory):
    """The script's namespaces, and a host behind `me`."""
    with Topology() as made:
        me, peer, remote, host = (made.namespace(label) for label in ("me", "peer", "remote", "host"))
        for space in (peer, remote, host):
            for name in ("all", "default"):
                space.sysctl(f"net.ipv4.conf.{name}.rp_filter", 0)
            space.sysctl("net.ipv4.ip_forward", 1)
            space.sysctl("net.ipv6.conf.all.forwarding", 1)
        ports = []
        for port, far in (("veth1", "veth2"), ("veth3", "veth4")):
            made.link(me, port, peer, far)
            me.silence(port)
            peer.addresses(far, *on(PEER[port]))
            ports.append(Port(port, on(ME[port]), kind="af-packet", interface=port))
        made.link(remote, "veth5", peer, "veth6")
        remote.addresses("veth5", *on(REMOTE))
        peer.addresses("veth6", "172.16.101.2/24", "2001:db8:101::2/64")
        remote.ip("route", "add", "172.16.0.0/22", "via", "172.16.101.2")
        remote.ip("-6", "route", "add", "2001:db8:90::/40", "via", "2001:db8:101::2")
        made.link(me, "lan", host, "eth0")
        me.silence("lan")
        host.addresses("eth0", *(f"{HOST[family][1]}/{LENGTH[family]}" for family in (4, 6)))
        for family in (4, 6):
            host.ip(f"-{family}", "route", "add", "default", "via", HOST[family][0])
            to = {4: "172.16.3.0/24", 6: "2001:db8:93::/64"}[family]
            peer.ip(f"-{family}", "route", "add", to, "via", ME["veth1"][family])
        own = [f"{HOST[family][0]}/{LENGTH[family]}" for family in (4, 6)]
        ports.append(Port("lan", own, kind="af-packet", interface="lan"))
        with Gateway(me, Config(ports=ports), tmp_path_factory.mktemp("me")) as gateway:
            yield gateway, host


class Me:
    """`me`, in one family."""

    def __init__(self, gateway, host, family):
        self.gateway, self.host, self.family = gateway, host, family
        self.to = f"{REMOTE[family]}/{32 if family == 4 else 128}"
        self.one, self.two = (["via", PEER[port][family], "dev", port] for port in ("veth1", "veth3"))

    def route(self, *words, wrong=False):
        """A command about routes, which is refused if it is `wrong`; then nothing changes."""
        before = self.shown()
        done = self.gateway.run(f"-{self.family}", "route", *words, check=not wrong)
        if wrong:
            assert done.returncode in (1, 2) and done.stderr, words
            assert self.shown() == before
        return done

    def shown(self, *words):
        return self.gateway.run(f"-{self.family}", "route", "show", *words).stdout

    def line(self):
        """The route to the remote host, on one line."""
        return " ".join(self.shown("exact", self.to).split())

    def answers(self):
        """Whether the remote host answers."""
        said = self.host.run("ping", "-n", "-c", "1", "-W", "3", REMOTE[self.family], check=False)
        return said.returncode == 0

    def both(self, first=None, second=None):
        """Words of a route with two next hops."""
        return ["nexthop", *(first or self.one), "nexthop", *(second or self.two)]


@pytest.fixture
def me(world, family):
    gateway, host = world
    yield Me(gateway, host, family)
    for port in ("veth1", "veth3"):
        gateway.run("link", "set", port, "up", "rpf", "off")
    for prefix in ("default", f"{REMOTE[family]}", {4: "172.16.101.0/24", 6: "2001:db8:101::/64"}[family]):
        gateway.run(f"-{family}", "route", "flush", "exact", prefix, check=False)


def created(me):
    """A route by a next hop with its port."""
    me.route("add", me.to, *me.one)
    assert me.line().startswith(f"{REMOTE[me.family]} via {PEER['veth1'][me.family]} dev veth1")


def got(me):
    """It is found."""
    me.route("add", me.to, *me.one)
    (row,) = me.gateway.json("route", "show", "exact", me.to)
    assert (row["gateway"], row["dev"]) == (PEER["veth1"][me.family], "veth1")


def deleted(me):
    """It is gone once it is deleted."""
    me.route("add", me.to, *me.one)
    me.route("delete", me.to, *me.one)
    assert me.line() == ""


def next_hop_not_on_the_port(me):
    """A next hop that the port does not reach is refused."""
    me.route("add", me.to, "via", FOREIGN[me.family], "dev", "veth1", wrong=True)


def onlink(me):
    """Unless it is said to be on the link."""
    me.route("add", me.to, "via", FOREIGN[me.family], "dev", "veth1", "onlink")
    assert "onlink" in me.line()


def port_down(me):
    """A next hop of a port that is down is not used."""
    me.route("add", me.to, *me.one)
    assert me.answers()
    me.gateway.run("link", "set", "veth1", "down")
    assert "dead" in me.line() and not me.answers()


def delete_of_others(me):
    """A route is not deleted by next hops that it does not have."""
    me.route("add", me.to, *me.one)
    via = [{4: f"172.16.1.{last}", 6: f"2001:db8:91::{last}"}[me.family] for last in (7, 8)]
    me.route("del", me.to, *me.both(["via", via[0], "dev", "veth1"], ["via", via[1], "dev", "veth1"]), wrong=True)


def delete_by_prefix(me):
    """The prefix is enough."""
    me.route("add", me.to, *me.one)
    me.route("del", me.to)
    assert me.line() == ""


def group_of_one(me):
    """A group of one next hop."""
    me.route("add", me.to, "nexthop", *me.one)
    assert me.answers()


def group_is_shown(me):
    me.route("add", me.to, *me.both())
    line = me.line()
    assert line.count("nexthop via") == 2 and line.count("weight 1") == 2, line


def group_is_deleted(me):
    me.route("add", me.to, *me.both())
    me.route("del", me.to, *me.both(me.two, me.one))
    assert me.line() == ""


def group_with_a_port_alone(me):
    """One of the next hops is a port without an address."""
    me.route("add", me.to, *me.both(second=["dev", "veth1"]))
    assert "nexthop dev veth1" in me.line()


def weighted_group_with_a_port_alone(me):
    me.route("add", me.to, *me.both([*me.one, "weight", "2"], ["dev", "veth1", "weight", "4"]))
    assert "nexthop dev veth1 weight 4" in me.line()


def group_down(me):
    """All are of a port that is down."""
    second = {4: "172.16.1.3", 6: "2001:db8:91::3"}[me.family]
    me.route("add", me.to, *me.both(second=["via", second, "dev", "veth1"]))
    me.gateway.run("link", "set", "veth1", "down")
    assert me.line().count("dead") >= 2 and not me.answers()


def two_groups_of_the_same(me):
    other = {4: "172.16.101.0/24", 6: "2001:db8:101::/64"}[me.family]
    me.route("add", me.to, *me.both())
    me.route("add", other, *me.both())
    assert me.answers()
    me.route("del", me.to)
    assert me.answers()
    me.route("del", other)


def group_half_down(me):
    """Those of the other port are used."""
    me.route("add", me.to, *me.both())
    me.gateway.run("link", "set", "veth3", "down")
    assert me.line().count("dead") == 1 and me.answers()


def group_with_a_blackhole(me):
    """What is dropped has no next hops."""
    me.route("add", "blackhole", me.to, *me.both(), wrong=True)


def large_group(me):
    """32 next hops."""
    words = []
    for last in range(2, 34):
        words += ["nexthop", "via", {4: f"172.16.1.{last}", 6: f"2001:db8:91::{last:x}"}[me.family], "dev", "veth1"]
    me.route("add", me.to, *words)
    assert me.line().count("nexthop via") == 32


def ping(me):
    me.route("add", me.to, *me.one)
    assert me.answers()


def ping_multipath(me):
    me.route("replace", me.to, *me.one)
    me.route("replace", me.to, *me.both())
    assert me.answers()


def ping_blackhole(me):
    me.route("add", "blackhole", me.to)
    assert not me.answers()


def blackhole_replaced(me):
    me.route("add", "blackhole", me.to)
    me.route("replace", me.to, *me.one)
    assert me.answers()


def replaced_by_blackhole(me):
    me.route("add", me.to, *me.one)
    assert me.answers()
    me.route("replace", "blackhole", me.to)
    assert not me.answers()


def port_alone(me):
    """A route to a port without a next hop's address."""
    me.route("add", me.to, "dev", "veth1")
    assert me.line().startswith(f"{REMOTE[me.family]} dev veth1"), me.line()


def of_the_other_family(me):
    """A next hop of the other family."""
    other = {4: "2001:db8:91::2", 6: "172.16.1.2"}[me.family]
    return ["via", other, "dev", "veth1"]


def next_hop_of_the_other_family(me):
    me.route("add", me.to, *of_the_other_family(me), wrong=True)


def replace_by_the_other_family(me):
    me.route("add", me.to, *me.one)
    me.route("replace", me.to, *of_the_other_family(me), wrong=True)
    assert me.answers()


def replace_group_by_the_other_family(me):
    me.route("add", me.to, *me.both())
    me.route("replace", me.to, *me.both(of_the_other_family(me)), wrong=True)
    assert me.answers()


def group_of_both_families(me):
    me.route("add", me.to, *me.both(), "nexthop", *of_the_other_family(me), wrong=True)


def group_of_both_families_of_two(me):
    me.route("add", me.to, *me.both(second=of_the_other_family(me)), wrong=True)


def group_of_one_family(me):
    me.route("add", me.to, *me.both(second=of_the_other_family(me)), wrong=True)
    me.route("add", me.to, *me.both())
    assert me.answers()


def source_routing(me):
    me.route("add", me.to, *me.one, "from", HOST[me.family][1], wrong=True)


def invalid_metric(me):
    me.route("add", me.to, *me.one, "congctl", "lock", "foo", wrong=True)


def scope_conflict(me):
    me.route("add", me.to, *me.one, "scope", "host", wrong=True)


def default_and_reverse_path(me):
    """Answers are expected where the default route leads."""
    me.gateway.run("link", "set", "veth1", "rpf", "strict")
    me.route("add", "default", *me.one)
    assert me.answers()
    me.route("replace", "default", *me.two)
    assert not me.answers(), "the answers come by veth1"


def multipath_default_and_reverse_path(me):
    me.gateway.run("link", "set", "veth1", "rpf", "feasible")
    me.route("add", "default", *me.both())
    assert me.answers()


def two_defaults(me, first, second):
    silent = "172.16.1.3"
    me.route("add", "default", "via", {"good": PEER["veth1"][4], "silent": silent}[first], "dev", "veth1")
    words = ["via", {"good": PEER["veth1"][4], "silent": silent}[second], "dev", "veth1"]
    me.route("add", "default", *words, "metric", "20")


def two_defaults_first(me):
    """The default route with the lower metric is used."""
    two_defaults(me, "good", "silent")
    assert me.answers()


def two_defaults_second(me):
    """The order in which they came does not matter."""
    me.route("add", "default", "via", "172.16.1.3", "dev", "veth1", "metric", "30")
    me.route("add", "default", *me.one, "metric", "20")
    assert me.answers()


BOTH = [
    # ipv4_fcnal, ipv6_fcnal
    *(created, got, deleted, next_hop_not_on_the_port, onlink, port_down),
    # ipv4_grp_fcnal, ipv6_grp_fcnal
    *(group_of_one, group_is_shown, group_is_deleted, group_down, two_groups_of_the_same, group_half_down),
    group_with_a_blackhole,
    # ipv4_large_grp, ipv6_large_grp
    large_group,
]
V4 = [
    *(delete_of_others, delete_by_prefix),
    # ipv4_fcnal_runtime
    *(created, deleted, scope_conflict, invalid_metric, ping, ping_multipath, two_defaults_first, two_defaults_second),
    *(ping_blackhole, blackhole_replaced, replaced_by_blackhole, port_alone),
]
V6 = [
    # ipv6_fcnal_runtime
    *(created, deleted, ping, ping_multipath, ping_blackhole, blackhole_replaced, replaced_by_blackhole, port_alone),
    *(next_hop_of_the_other_family, replace_by_the_other_family, replace_group_by_the_other_family),
    *(group_of_both_families, group_of_both_families_of_two, group_of_one_family, source_routing, invalid_metric),
    *(default_and_reverse_path, multipath_default_and_reverse_path),
]
PASSED = [(family, case) for case in BOTH for family in (4, 6)]
PASSED += [(4, case) for case in V4] + [(6, case) for case in V6]
# The last is of both `*_fcnal_runtime`.
WITHOUT_VIA = [group_with_a_port_alone, weighted_group_with_a_port_alone, group_with_a_port_alone]
PASSED += [(family, case) for case in WITHOUT_VIA for family in (4, 6)]


def names(cases):
    return [f"v{family}-{case.__name__}" for family, case in cases]


@pytest.mark.parametrize(("family", "case"), PASSED, ids=names(PASSED))
def test_routes(me, case):
    case(me)


@pytest.mark.parametrize("family", [4])
def test_what_is_not_asked_for_is_refused(me):
    """IPv6 next hops of IPv4 routes, encapsulation, and nexthop objects."""
    me.route("add", me.to, "via", "inet6", "2001:db8:91::2", "dev", "veth1", wrong=True)
    me.route("add", me.to, "nhid", "7", wrong=True)
    refused = me.route("add", me.to, "encap", "mpls", "101", *me.one, wrong=True)
    assert re.search("'encap' is not supported", refused.stderr), refused.stderr


def test_every_case_is_counted():
    SCRIPT.demand_all_counted(passed=len(PASSED), failed=0)
