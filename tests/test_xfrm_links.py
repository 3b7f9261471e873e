"""Route-based tunnels: xfrm links between two gateways in a tenant's VRF, and beside Linux's own ESP."""

import contextlib
import re
import time
import tomllib

import pytest
import test_mss
import test_taps
from harness import transfers
from harness.config import Config, Port, Route
from harness.gateway import Gateway
from harness.tunnel import LAN, OUTER, connect
from test_links import wait_until

KEY = "0x00112233445566778899aabbccddeeff0102"
AEAD = "aead rfc4106(gcm(aes))"

SIDES = {"a": ("192.0.2.1", 1), "b": ("192.0.2.2", 2)}
"""Gateway -> its address on the WAN, and the number of its tenants' networks."""

TENANTS = {"red": 7, "blue": 8}
"""Tenant -> the `if_id` of its first link. Addresses, selectors, ends and reqids are the same."""

BACKUP = 70
"""The `if_id` of red's second link."""

ANY = {4: "0.0.0.0/0", 6: "::/0"}


def hosts_of(number):
    """The addresses of a tenant's host at a side, IPv4 and IPv6."""
    return f"10.{number}.0.5", f"fd0{number}::5"


def spis(if_id):
    """The SPIs of a link's tunnel: from a to b, and back."""
    return 0x1000 + 16 * if_id, 0x1001 + 16 * if_id


def tunnel(side, if_id):
    """States and policies of a link: everything by it is protected."""
    here, there = SIDES[side][0], SIDES["b" if side == "a" else "a"][0]
    out, back = spis(if_id) if side == "a" else reversed(spis(if_id))
    for source, destination, spi in [(here, there, out), (there, here, back)]:
        yield (
            f"xfrm state add src {source} dst {destination} proto esp spi {spi:#x} mode tunnel reqid 1 "
            f"replay-window 64 if_id {if_id} {AEAD} {KEY}{spi:04x} 128"
        )
    for every in ANY.values():
        for direction, first, last in [("out", here, there), ("in", there, here)]:
            yield (
                f"xfrm policy add src {every} dst {every} dir {direction} if_id {if_id} "
                f"tmpl src {first} dst {last} proto esp reqid 1 mode tunnel"
            )


def link(side, tenant, if_id, metric):
    """A link in a tenant's VRF, with routes to the other side's network by it."""
    own, far = SIDES[side][1], SIDES["b" if side == "a" else "a"][1]
    yield f"link add ipsec{if_id} up vrf {tenant} type xfrm dev wan if_id {if_id}"
    yield f"addr add 10.9.{if_id}.{own}/24 dev ipsec{if_id}"
    yield f"addr add fd09:{if_id}::{own}/64 dev ipsec{if_id}"
    for network in (f"10.{far}.0.0/24", f"fd0{far}::/64"):
        yield f"route add {network} dev ipsec{if_id} vrf {tenant} metric {metric}"
    yield from tunnel(side, if_id)


@pytest.fixture
def site(topology, tmp_path):
    """Two gateways with a WAN between them, and two tenants' hosts at both: `(hosts by tenant, gateways)`."""
    spaces = {side: topology.namespace(side) for side in SIDES}
    topology.link(spaces["a"], "wan", spaces["b"], "wan")
    hosts = {tenant: [] for tenant in TENANTS}
    with contextlib.ExitStack() as stack:
        running = []
        for side, (outer, number) in SIDES.items():
            config = Config(vrfs=list(TENANTS))
            config.ports = [Port("wan", [f"{outer}/24"], kind="af-packet", interface="wan")]
            spaces[side].silence("wan")
            for tenant in TENANTS:
                host = topology.namespace(f"{tenant}-{side}")
                topology.link(spaces[side], tenant, host, "eth0")
                spaces[side].silence(tenant)
                addresses = hosts_of(number)
                host.addresses("eth0", f"{addresses[0]}/24", f"{addresses[1]}/64")
                host.ip("route", "add", "default", "via", f"10.{number}.0.1")
                host.ip("-6", "route", "add", "default", "via", f"fd0{number}::1")
                hosts[tenant].append(host)
                own = [f"10.{number}.0.1/24", f"fd0{number}::1/64"]
                config.ports.append(Port(f"{tenant}0", own, kind="af-packet", interface=tenant, vrf=tenant))
            place = tmp_path / side
            place.mkdir()
            running.append(stack.enter_context(Gateway(spaces[side], config, place)))
            commands = [line for tenant, if_id in TENANTS.items() for line in link(side, tenant, if_id, 10)]
            commands += link(side, "red", BACKUP, 20)
            batch(running[-1], place, commands)
        yield hosts, running


def batch(gateway, place, commands, **options):
    """Has a gateway carry commands out, all of them or none."""
    path = place / "commands"
    path.write_text("\n".join(commands) + "\n")
    return gateway.run("batch", "--atomic", path, **options)


def counts(gateway, if_id):
    """Packets that a link has received and sent."""
    (view,) = gateway.json("link", "show", f"ipsec{if_id}")
    return view["stats64"]["rx"]["packets"], view["stats64"]["tx"]["packets"]


def lose(host, address, count):
    """Sends exactly so many pings, none of which is answered."""
    done = host.run("ping", "-c", count, "-i", "0.2", "-W", "1", address, check=False)
    assert f"{count} packets transmitted, 0 received" in done.stdout, done.stdout


def moved(gateway, before):
    """The SPIs of the SAs that have had packets since."""
    return {spi for spi, packets in gateway.sa_packets().items() if packets != before.get(spi, 0)}


@pytest.mark.namespaces
def test_traffic_goes_through_the_tunnel_of_its_tenant(site):
    hosts, (a, b) = site
    for tenant, (left, right) in hosts.items():
        for near, far in zip(hosts_of(1), hosts_of(2)):
            before = a.sa_packets(), b.sa_packets()
            left.ping(far)
            right.ping(near)
            transfers.tcp(left, near, right, far)
            transfers.tcp(right, far, left, near)
            assert all(moved(gateway, was) == set(spis(TENANTS[tenant])) for gateway, was in zip((a, b), before))
        transfers.iperf3(left, right, hosts_of(2)[0], "tcp")
    for gateway in (a, b):
        drops = gateway.drops()
        # What a busy disk has made wait for too long is sent again by TCP.
        drops.pop("esp_sequence_unstored", None)
        assert not [reason for reason in drops if reason.startswith(("esp", "policy", "xfrm", "no_route"))], drops
        for if_id in TENANTS.values():
            received, sent = counts(gateway, if_id)
            packets = gateway.sa_packets()
            out, back = spis(if_id) if gateway is a else reversed(spis(if_id))
            assert (received, sent) == (packets[back], packets[out])
        assert counts(gateway, BACKUP) == (0, 0)
    # The link's own addresses answer, by the tunnel, and a traceroute shows the far one.
    left = hosts["red"][0]
    assert transfers.hops(left, hosts_of(2)[0]) == ["10.1.0.1", "10.9.7.2", hosts_of(2)[0]]
    assert transfers.hops(left, hosts_of(2)[1]) == ["fd01::1", "fd09:7::2", hosts_of(2)[1]]


@pytest.mark.namespaces
def test_a_tap_on_a_link_names_it(site, tmp_path):
    hosts, (a, _) = site
    left, far = hosts["red"][0], hosts_of(2)[0]
    left.ping(far)
    for place in (("port", "ipsec7"), ("vrf", "red")):
        file = tmp_path / f"{place[0]}.pcapng"
        tap = test_taps.Tap(a, *place, file, "icmp")
        left.ping(far, count=2)
        said, code = tap.stop()
        assert code == 0, said
        rows = test_taps.shown(file, "icmp.type", "frame.interface_name", "frame.packet_flags_direction")
        way = [(kind, interface, int(direction, 0)) for kind, interface, direction in rows]
        on_the_link = [("8", "ipsec7", 2), ("0", "ipsec7", 1)] * 2
        assert [step for step in way if step[1] != "red0"] == on_the_link, way
        assert place[0] == "vrf" or way == on_the_link


@pytest.mark.namespaces
def test_what_no_policy_protects_is_dropped(site):
    hosts, (a, b) = site
    left, right = hosts["red"]
    far = hosts_of(2)[0]
    left.ping(far)
    policy = "src 0.0.0.0/0 dst 0.0.0.0/0 dir {} if_id 7"
    a.run(*f"xfrm policy delete {policy.format('out')}".split())
    sent = counts(a, 7)[1]
    lose(left, far, 3)
    a.wait_for_drops("policy_no_match", 3)
    assert counts(a, 7)[1] == sent
    # IPv6 has a policy of its own, and the other tenant its own link.
    left.ping(hosts_of(2)[1])
    hosts["blue"][0].ping(far)
    explained = a.run("explain", f"icmp {hosts_of(1)[0]} > {far} in red0", check=False).stdout
    assert "leaves by ipsec7; the policies with if_id 0x7 are asked" in explained and "policy_no_match" in explained
    assert "no policies of its own; no inbound policy asked" in explained and "IPsec does not touch" not in explained
    # One that lets pass in clear protects nothing.
    a.run(*f"xfrm policy add {policy.format('out')} action allow".split())
    lose(left, far, 2)
    a.wait_for_drops("policy_no_match", 5)
    here, there = SIDES["a"][0], SIDES["b"][0]
    template = f"tmpl src {here} dst {there} proto esp reqid 1 mode tunnel"
    a.run(*f"xfrm policy update {policy.format('out')} {template}".split())
    left.ping(far)
    # What b decrypts has to match a policy of the link too.
    b.run(*f"xfrm policy delete {policy.format('in')}".split())
    lose(left, far, 3)
    b.wait_for_drops("policy_wrong_selector", 3)
    hosts["blue"][0].ping(far)


@pytest.mark.namespaces
def test_a_link_goes_and_the_second_route_takes_over(site):
    hosts, (a, b) = site
    left, right = hosts["red"]
    first, second = set(spis(7)), set(spis(BACKUP))

    def by(spis_):
        for near, far in zip(hosts_of(1), hosts_of(2)):
            before = a.sa_packets()
            left.ping(far)
            right.ping(near)
            assert moved(a, before) == spis_

    by(first)
    for gateway in (a, b):
        gateway.run("link", "set", "ipsec7", "down")
    by(second)
    # What still comes for a link that is down is dropped and counted.
    a.run("link", "set", "ipsec7", "up")
    lose(left, hosts_of(2)[0], 2)
    b.wait_for_drops("xfrm_link_down", 2)
    b.run("link", "set", "ipsec7", "up")
    by(first)
    # Under traffic, and for good.
    job = left.start("ping", "-i", "0.01", "-c", "400", "-W", "1", hosts_of(2)[0])
    for gateway in (a, b):
        gateway.run("link", "del", "ipsec7")

    # A batch that a worker has at hand may still leave by the link.
    def is_left():
        before = a.sa_packets()
        time.sleep(0.1)
        return not moved(a, before) & first

    wait_until(is_left, "packets by a link that is gone")
    by(second)
    job.wait(30)
    shown = a.run("link", "show").stdout
    assert not re.search(r"ipsec7\b", shown), shown
    # Its policies wait for it, and so do its routes.
    lines = [line for line in link("a", "red", 7, 10) if not line.startswith(("xfrm", "route"))]
    lines_of_b = [line for line in link("b", "red", 7, 10) if not line.startswith(("xfrm", "route"))]
    for gateway, commands in ((a, lines), (b, lines_of_b)):
        for line in commands:
            gateway.run(*line.split())
    by(first)
    hosts["blue"][0].ping(hosts_of(2)[0])


@pytest.mark.namespaces
def test_it_is_the_same_after_a_crash_and_in_a_file(site, tmp_path):
    hosts, (a, b) = site
    left, right = hosts["red"]
    left.ping(hosts_of(2)[0])
    told = a.run("diff", check=False).stdout
    assert re.search(r"^\+ port ipsec7 .*dev wan if_id 0x7", told, re.MULTILINE), told

    def links(gateway):
        views = gateway.json("link", "show", "type", "xfrm")
        return [(view["ifname"], view["link"], view["master"], view["linkinfo"]["info_data"]) for view in views]

    before = links(a), a.run("xfrm", "policy", "list").stdout.count("if_id")
    assert before[0][0] == ("ipsec7", "wan", "red", {"if_id": "0x7"}) and before[1] == 12
    a.kill()
    a.start_again()
    assert (links(a), a.run("xfrm", "policy", "list").stdout.count("if_id")) == before
    # What may have been accepted before the crash is not accepted again: up to 64 packets of the peer.
    tries = (left.ping(hosts_of(2)[0], count=1, timeout=1, check=False).returncode for _ in range(70))
    assert 0 in tries
    left.ping(hosts_of(2)[0])
    right.ping(hosts_of(1)[1])
    saved = tomllib.loads(a.run("save").stdout)
    ports = {port["name"]: port for port in saved["port"] if port["kind"] == "xfrm"}
    assert set(ports) == {"ipsec7", "ipsec8", "ipsec70"}
    assert (ports["ipsec7"]["dev"], ports["ipsec7"]["if-id"], ports["ipsec7"]["vrf"]) == ("wan", 7, "red")
    assert {policy["if-id"] for policy in saved["policy"]} == {7, 8, 70}
    # A reload of the file that began it all keeps what commands have made.
    a.run("reload")
    assert links(a) == before[0]
    left.ping(hosts_of(2)[0])


@pytest.mark.namespaces
def test_what_is_wrong_is_refused_and_nothing_is_half_done(site, tmp_path):
    _, (a, _) = site
    before = a.run("save").stdout
    for command, said in [
        ("link add x type xfrm dev wan", "if_id"),
        ("link add x type xfrm dev wan if_id 0", "if_id"),
        ("link add x type xfrm dev wan if_id 4294967296", "if_id"),
        ("link add x type xfrm dev wan if_id 7", "ipsec7"),
        ("link add x type xfrm dev wen if_id 9", "did you mean wan?"),
        ("link add x type xfrm dev ipsec7 if_id 9", "xfrm link"),
        ("link add x type xfrm if_id 9", "dev"),
        ("link add x type xfrm external", "external"),
        ("link add link ipsec7 name x type vlan id 5", "no Ethernet"),
        ("link set ipsec7 side unprotected", "protected side"),
        ("qdisc add dev ipsec7 root pfifo limit 10", "xfrm link"),
        ("neigh add 10.9.7.9 lladdr 02:00:00:00:00:09 dev ipsec7", "ipsec7"),
        ("xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 dir in if_id 7 action block vrf red", "red"),
    ]:
        refused = a.run(*command.split(), check=False)
        assert refused.returncode != 0 and said in refused.stderr, (command, refused.stderr)
    refused = batch(a, tmp_path, [*link("a", "blue", 99, 5), "link add x type xfrm dev wan if_id 7"], check=False)
    assert refused.returncode != 0
    assert a.run("save").stdout == before


@pytest.mark.guest
@pytest.mark.namespaces
def test_the_other_end_may_be_linux(guest_world, tmp_path):
    """The guest's kernel has no xfrm interfaces: what it has is the other end of the tunnel, by policies."""
    guest, gw, lan = guest_world
    lan.addresses("eth0", f"{LAN[4][2]}/24", f"{LAN[6][2]}/64")
    for family in (4, 6):
        lan.ip(f"-{family}", "route", "replace", "default", "via", LAN[family][1])
    its, ours = OUTER[4]
    out, back = spis(7)
    states = [
        f"xfrm state add src {source} dst {destination} proto esp spi {spi:#x} mode tunnel reqid 1 "
        f"replay-window 64 flag af-unspec {AEAD} {KEY}{spi:04x} 128"
        for source, destination, spi in [(ours, its, out), (its, ours, back)]
    ]
    far = {4: "192.168.12.1", 6: "fd12::1"}
    connect(guest)
    lines = [state.split() for state in states]
    for family, address in far.items():
        lines.append(["addr", "add", address, "dev", "lo"])
        near = LAN[family][0]
        for direction, source, destination, first, last in [
            ("out", address, near, its, ours),
            ("in", near, address, ours, its),
        ]:
            template = f"tmpl src {first} dst {last} proto esp reqid 1 mode tunnel"
            lines.append(f"xfrm policy add src {source} dst {destination} dir {direction} {template}".split())
    guest.batch(lines)
    config = Config(vrfs=["red"])
    inside = [f"{LAN[4][1]}/24", f"{LAN[6][1]}/64"]
    config.ports = [
        Port("wan", [f"{ours}/24"], kind="af-packet", interface="wan"),
        Port("lan", inside, kind="af-packet", interface="lan", vrf="red"),
    ]
    with Gateway(gw, config, tmp_path) as gateway:
        gateway.run(*"link add ipsec7 up vrf red type xfrm dev wan if_id 7".split())
        for network in ("192.168.12.0/24", "fd12::/64"):
            gateway.run(*f"route add {network} dev ipsec7 vrf red".split())
        for state in states:
            gateway.run(*state.split(), "if_id", "7")
        for every in ANY.values():
            for direction, first, last in [("out", ours, its), ("in", its, ours)]:
                policy = f"xfrm policy add src {every} dst {every} dir {direction} if_id 7"
                template = f"tmpl src {first} dst {last} proto esp reqid 1 mode tunnel"
                gateway.run(*policy.split(), *template.split())
        for family, address in far.items():
            near = LAN[family][2]
            lan.ping(address)
            guest.ping(near, source=address)
            transfers.tcp(lan, near, guest, address)
            transfers.tcp(guest, address, lan, near)
        packets = gateway.sa_packets()
        assert counts(gateway, 7) == (packets[back], packets[out]) and packets[out] > 500


@pytest.mark.namespaces
@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
def test_a_link_clamps_the_mss_both_ways(site, family):
    """What fits the tunnel, or a smaller MTU of the link's own; and the other tenant's link clamps nothing."""
    hosts, (a, _) = site
    headers = {4: 40, 6: 60}[family]
    near, far = hosts_of(1)[family == 6], hosts_of(2)[family == 6]

    def clamped(tenant, port):
        left, right = hosts[tenant]
        for host in (left, right):
            # Checksums are then whole when they are looked at.
            host.run("ethtool", "-K", "eth0", "tx", "off", check=False)
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(host.packet_socket("eth0")) for host in (left, right)]
            transfers.tcp(left, near, right, far, port=port)
            time.sleep(0.1)
            return [test_mss.announced(test_mss.frames_of(one)) for one in opened]

    # Outer header, ESP header, IV, ICV, and the two bytes that end it; no padding is left over.
    fits = 1500 - 20 - 8 - 8 - 16 - 2
    for limit, words in [(fits, []), (1300, ["mtu", "1300"]), (1200 + headers, ["mss", "1200"])]:
        a.run("link", "set", "ipsec7", *(["mss", "pmtu", *words] if "mss" not in words else words))
        # As the sender said it, and as it was when it had passed gateway a.
        said_left, said_right = clamped("red", 5000 + limit)
        assert said_left[False] == said_right[True] == 1500 - headers, (said_left, said_right)
        assert said_right[False] == said_left[True] == limit - headers, (said_left, said_right)
    said_left, said_right = clamped("blue", 7001)
    assert said_left == said_right == {False: 1500 - headers, True: 1500 - headers}
