"""`hitpath -j` beside `ip -j`: the same state in both, compared member by member.

Each member that only one of them has, and each whose value is another one, is listed here with the reason."""

import pytest

from harness.iproute2 import Pair

GIVEN = """\
addr add 10.1.0.1/24 dev eth0
addr add 10.2.0.1/24 dev eth1
addr add fd01::1/64 dev eth0 nodad
addr add fd02::1/64 dev eth1 nodad
neigh add 10.1.0.8 lladdr 02:00:00:00:00:08 dev eth0 nud permanent
neigh add fd01::8 lladdr 02:00:00:00:00:08 dev eth0 nud permanent
route add default via 10.1.0.2
route add 10.9.0.0/16 via 10.1.0.3 proto static metric 20
route add 10.10.0.0/16 dev eth1
route add 10.11.0.0/16 via 10.1.0.2 src 10.1.0.1
route add 10.12.0.0/16 via 172.31.0.1 dev eth1 onlink
route add 10.13.0.0/16 nexthop via 10.1.0.2 weight 3 nexthop via 10.2.0.2
route add 10.15.0.1 via 10.1.0.2
route add 10.18.0.0/16 nexthop via 10.1.0.2 weight 3
route add 10.16.0.0/16 via 10.1.0.2 table 100
route add blackhole 10.14.0.0/16
-6 route add fd09::/64 via fd01::2 metric 7
-6 route add default via fd01::2
-6 route add unreachable fd0a::/64
rule add from 10.0.0.0/8 lookup 100 priority 500
rule add to 10.3.0.1 fwmark 0x1/0xff ipproto tcp dport 80-89 lookup 101 priority 501
rule add iif eth0 sport 53 ipproto udp prohibit priority 502
-6 rule add from fd01::/64 lookup 100 priority 503
""".splitlines()

OWN = "beyond iproute2: docs/iproute2.md has what it says"

# The member, and why only iproute2 has it.
ONLY_IP = {
    "link": {
        "link": "the other end of a veth pair; here it is the port whose VLAN a link is",
        "qdisc": "hitpath qdisc show says it",
        "group": "links have no groups",
        "txqlen": "a property of the kernel's device",
        "linkmode": "a property of the kernel's device",
        "promiscuity": "a property of the kernel's device",
        "allmulti": "a property of the kernel's device",
        "min_mtu": "68 of every port",
        "max_mtu": "9216 of every port",
        "inet6_addr_gen_mode": "the gateway makes no addresses by itself",
        "num_tx_queues": "a property of the kernel's device",
        "num_rx_queues": "a property of the kernel's device",
        "gso_max_size": "a property of the kernel's device",
        "gso_max_segs": "a property of the kernel's device",
        "tso_max_size": "a property of the kernel's device",
        "tso_max_segs": "a property of the kernel's device",
        "gro_max_size": "a property of the kernel's device",
        "gso_ipv4_max_size": "a property of the kernel's device",
        "gro_ipv4_max_size": "a property of the kernel's device",
    },
    "address": {
        "link": "as of link",
        "qdisc": "as of link",
        "group": "as of link",
        "txqlen": "as of link",
    },
    "address info": {},
    "route": {"pref": "there is no preference of router advertisements"},
    "route get": {
        "uid": "packets of the network have no user",
        "cache": "the kernel's exceptions of routes; hitpath show cache is another thing",
    },
    "neighbour": {},
    "rule": {},
}

# The member, and why only hitpath has it.
ONLY_OURS = {
    "link": {"side": OWN, "rpf": OWN, "mss": OWN, "features": OWN},
    "address": {},
    "address info": {"vrf": OWN, "origin": OWN},
    "route": {
        "vrf": OWN,
        "origin": OWN,
        "active": OWN,
        "source": OWN,
        "table": "said of every table but main, and of main with -d, whichever was asked for",
    },
    "route get": {"vrf": OWN, "origin": OWN, "active": OWN, "source": OWN, "route": OWN, "metric": "of that route"},
    "neighbour": {"vrf": OWN, "origin": OWN},
    "rule": {"family": OWN, "origin": OWN},
}

# The member, and why its value is another one.
DIFFERENT = {
    "link": {
        "ifindex": "numbers of the gateway's own",
        "address": "Ethernet addresses are drawn",
        "flags": "a port has no group of stations to join by itself",
        "linkinfo": "a memory port is no veth",
        "stats64": "the kernel counts more kinds of errors",
        "operstate": "a memory port has no carrier to lose",
    },
    "address": {"ifindex": "as of link", "address": "as of link", "flags": "as of link", "operstate": "as of link"},
    "address info": {},
    "route": {
        "metric": "the kernel's default of IPv6 is 1024, and 256 of connected ones; hitpath's is 0, and not said",
        "dev": "the kernel says lo of an IPv6 route that sends nowhere",
    },
    "route get": {},
    "neighbour": {},
    "rule": {},
}


@pytest.fixture(scope="module")
def pair(root, tmp_path_factory):
    made = Pair(tmp_path_factory.mktemp("pair") / "gw", GIVEN)
    yield made
    made.end()


def by(records, key):
    """Records by what names them."""
    return {tuple(str(record.get(part)) for part in key): record for record in records}


def both(pair, key, *words, wanted=lambda record: True):
    """The records of both sides in pairs, which have to be the same ones."""
    sides = []
    for side in (pair.linux, pair.hitpath):
        records = [record for record in side.json(*words) if wanted(record)]
        sides.append(by(records, key))
    assert sides[0].keys() == sides[1].keys() and sides[0], (words, *sides)
    return [(sides[0][name], sides[1][name]) for name in sides[0]]


def compare(kind, pairs, seen):
    """Every member of every pair. `seen` collects what was different."""
    for theirs, ours in pairs:
        for member in theirs.keys() | ours.keys():
            where = f"{kind}: {member}: ip {theirs}; hitpath {ours}"
            if member not in ours:
                # A metric that is left out is that of the kernel's choice.
                reasons = DIFFERENT if member in DIFFERENT[kind] else ONLY_IP
            elif member not in theirs:
                reasons = ONLY_OURS
            elif theirs[member] != ours[member]:
                reasons = DIFFERENT
            else:
                continue
            assert member in reasons[kind], where
            seen.add((id(reasons), kind, member))


def test_members_are_those_of_iproute2(pair):
    seen = set()

    def is_ours(link):
        return link["ifname"] in ("eth0", "eth1")

    compare("link", both(pair, ["ifname"], "-d", "-s", "link", "show", wanted=is_ours), seen)
    addresses = both(pair, ["ifname"], "addr", "show", wanted=is_ours)
    for theirs, ours in addresses:
        # The namespace's interfaces were told to have no link-local addresses; every port of a gateway has one.
        infos = [
            by([info for info in side.pop("addr_info") if info["scope"] != "link"], ["local"])
            for side in (theirs, ours)
        ]
        assert infos[0].keys() == infos[1].keys() and infos[0]
        compare("address info", [(infos[0][local], infos[1][local]) for local in infos[0]], seen)
    compare("address", addresses, seen)
    for family in ("-4", "-6"):
        for table in ([], ["table", "100"]):
            # The kernel makes routes of its own for link-local addresses and groups.
            routes = [family, "route", "show", *table]
            if family == "-6" and table:
                continue
            compare("route", both(pair, ["dst"], *routes), seen)
            compare("route", both(pair, ["dst"], "-d", *routes), seen)
        compare("neighbour", both(pair, ["dst"], family, "neigh", "show"), seen)

        def is_given(rule):
            return rule["priority"] in range(500, 504)

        compare("rule", both(pair, ["priority"], family, "rule", "show", wanted=is_given), seen)
    for to in ("10.9.1.1", "10.10.1.1", "10.77.1.1", "10.11.1.1"):
        compare("route get", both(pair, ["dst"], "route", "get", to), seen)
    # No reason without what it is about.
    for reasons in (ONLY_IP, ONLY_OURS, DIFFERENT):
        for kind, members in reasons.items():
            newer = {"gso_ipv4_max_size", "gro_ipv4_max_size", "metric", "operstate"}
            unused = {member for member in members if (id(reasons), kind, member) not in seen} - newer
            assert not unused, (kind, unused)


def test_what_is_brief_has_the_members_of_iproute2(pair):
    def is_ours(link):
        return link["ifname"] in ("eth0", "eth1")

    for theirs, ours in both(pair, ["ifname"], "-br", "addr", "show", wanted=is_ours):
        infos = [side.pop("addr_info") for side in (theirs, ours)]
        assert ours.keys() <= theirs.keys() and {"ifname", "operstate"} <= ours.keys()
        assert all(info.keys() == {"local", "prefixlen"} for info in infos[1]) and infos[1]
        assert [info for info in infos[0] if info in infos[1]] == infos[0]
    for theirs, ours in both(pair, ["ifname"], "-br", "link", "show", wanted=is_ours):
        assert ours.keys() <= theirs.keys() and ours.keys() == {"ifname", "operstate", "address", "flags"}


def test_next_hops_of_a_route_are_those_of_iproute2(pair):
    ((theirs, ours),) = both(pair, ["dst"], "route", "show", "10.13.0.0/16")
    assert theirs["nexthops"] == ours["nexthops"]


def test_xfrm_has_no_json_in_iproute2(pair):
    line = "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out action block"
    for side in (pair.linux, pair.hitpath):
        assert side.run(line.split()).returncode == 0
    assert pair.linux.run(["-j", "xfrm", "policy"]).stdout.startswith("src 10.1.0.0/16")
    (policy,) = pair.hitpath.json("xfrm", "policy")
    assert policy.items() >= {"src": "10.1.0.0/16", "dst": "10.2.0.0/16", "dir": "out", "action": "block"}.items()
    assert pair.linux.state() & pair.hitpath.state() >= {
        fact for fact in pair.linux.state() if fact[0] == "policy"
    }


def test_batches_answer_with_the_same_names(pair):
    import json

    done = pair.hitpath.gateway.run("-j", "batch", "-", stdin="route show 10.9.0.0/16\naddr show eth0\n")
    answers = json.loads(done.stdout)["answers"]
    assert answers[0]["answer"][0]["gateway"] == "10.1.0.3"
    assert {info["local"] for info in answers[1]["answer"][0]["addr_info"]} >= {"10.1.0.1", "fd01::1"}
