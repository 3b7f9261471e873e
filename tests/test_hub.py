"""A provider's hub: one WAN, and for each tenant a VRF whose tunnels go through it."""

import tomllib

import pytest
from harness import transfers
from harness.config import Config, Port
from harness.gateway import Gateway

pytestmark = pytest.mark.namespaces

TENANTS = {"red": 0x1000, "blue": 0x2000}
"""Tenant -> where the SPIs of its tunnel begin. Addresses, policies and reqids are the same."""

KEY = "0x00112233445566778899aabbccddeeff01020304"

SIDES = {"a": ("192.0.2.1", "10.1.0"), "b": ("192.0.2.2", "10.2.0")}
"""Gateway -> its address on the WAN, and its tenants' network."""


def commands(side):
    """What makes a side's tunnels: outer packets in `main`, those inside in the tenant's VRF."""
    other = "b" if side == "a" else "a"
    (here, mine), (there, theirs) = SIDES[side], SIDES[other]
    for tenant, spi in TENANTS.items():
        to_b, to_a = spi + 1, spi + 2
        out, inward = (to_b, to_a) if side == "a" else (to_a, to_b)
        for source, destination, number in [(here, there, out), (there, here, inward)]:
            yield (
                f"xfrm state add src {source} dst {destination} vrf main proto esp spi {number:#x} mode tunnel "
                f"reqid 1 replay-window 64 aead rfc4106(gcm(aes)) {KEY[:-4]}{number:04x} 128 vrf {tenant}"
            )
        mine_, theirs_ = f"{mine}.0/24", f"{theirs}.0/24"
        for direction, source, destination, first, last in [
            ("out", mine_, theirs_, here, there),
            ("in", theirs_, mine_, there, here),
        ]:
            yield (
                f"xfrm policy add src {source} dst {destination} dir {direction} vrf {tenant} "
                f"tmpl src {first} dst {last} vrf main proto esp reqid 1 mode tunnel"
            )


@pytest.fixture
def hub(topology, tmp_path):
    """Two gateways with a WAN between them, and each tenant's host at both: `(hosts by tenant, gateways)`."""
    gateways = {side: topology.namespace(side) for side in SIDES}
    topology.link(gateways["a"], "wan", gateways["b"], "wan")
    hosts, running = {tenant: [] for tenant in TENANTS}, []
    try:
        for side, (outer, network) in SIDES.items():
            config = Config(vrfs=list(TENANTS))
            config.ports = [Port("wan", [f"{outer}/24"], kind="af-packet", interface="wan")]
            gateways[side].silence("wan")
            for tenant in TENANTS:
                host = topology.namespace(f"{tenant}-{side}")
                topology.link(gateways[side], tenant, host, "eth0")
                gateways[side].silence(tenant)
                host.addresses("eth0", f"{network}.5/24")
                host.ip("route", "add", "default", "via", f"{network}.1")
                hosts[tenant].append(host)
                port = Port(f"{tenant}0", [f"{network}.1/24"], kind="af-packet", interface=tenant, vrf=tenant)
                config.ports.append(port)
            place = tmp_path / side
            place.mkdir()
            running.append(Gateway(gateways[side], config, place).__enter__())
            for command in commands(side):
                running[-1].run(*command.split())
        yield hosts, running
    finally:
        for gateway in running:
            gateway.__exit__(None, None, None)


def test_tenants_share_a_wan_and_nothing_else(hub):
    hosts, (a, b) = hub
    for tenant, (left, right) in hosts.items():
        left.ping("10.2.0.5")
        right.ping("10.1.0.5")
        transfers.tcp(left, "10.1.0.5", right, "10.2.0.5", count=2_000_000)
        for gateway in (a, b):
            packets = gateway.sa_packets()
            assert all(packets[TENANTS[tenant] + number] > 6 for number in (1, 2)), packets
    before = a.sa_packets()
    hosts["red"][0].ping("10.2.0.5")
    moved = {spi for spi, packets in a.sa_packets().items() if packets != before[spi]}
    assert moved == {TENANTS["red"] + 1, TENANTS["red"] + 2}
    # The route in the tenant's VRF is not needed: the outer packet's is.
    assert "no_route" not in a.drops()


def test_it_is_the_same_after_a_crash_and_in_a_file(hub, tmp_path):
    hosts, (a, _) = hub
    shown = a.run("xfrm", "state").stdout
    assert "src 192.0.2.1 dst 192.0.2.2 vrf main\n" in shown and "mode tunnel vrf red\n" in shown
    assert "tmpl src 192.0.2.1 dst 192.0.2.2 vrf main" in a.run("xfrm", "policy").stdout
    saved = a.run("save").stdout
    tables = tomllib.loads(saved)
    assert {sa["inner-vrf"] for sa in tables["sa"]} == set(TENANTS) if "sa" in tables else True
    assert {policy["template"]["vrf"] for policy in tables["policy"]} == {"main"}
    a.kill()
    a.start_again()
    assert a.run("xfrm", "policy").stdout.count("vrf main") == 4
    for left, right in hosts.values():
        # What may have been accepted before the crash is not accepted again: up to 64 packets of the peer.
        tries = (left.ping("10.2.0.5", count=1, timeout=1, check=False).returncode for _ in range(70))
        assert 0 in tries
        left.ping("10.2.0.5")
        right.ping("10.1.0.5")


def test_wrong_vrfs_are_refused_by_name(hub):
    _, (a, _) = hub
    state = "xfrm state add src 192.0.2.1 dst 192.0.2.9 vrf main proto esp spi 7 mode tunnel " f"aead rfc4106(gcm(aes)) {KEY} 128"
    for more, wanted in [("vrf green", "green"), ("vrf red vrf blue", "vrf")]:
        said = a.run(*state.split(), *more.split(), check=False)
        assert said.returncode != 0 and wanted in said.stderr, said.stderr
    policy = "xfrm policy add src 10.1.0.0/24 dst 10.9.0.0/24 dir out vrf red tmpl src 192.0.2.1 dst 192.0.2.9 vrf green proto esp reqid 1 mode tunnel"
    said = a.run(*policy.split(), check=False)
    assert said.returncode != 0 and "green" in said.stderr, said.stderr
    said = a.run("vrf", "del", "red", check=False)
    assert said.returncode != 0, said.stdout


def test_explain_is_told_whose_packet_it_is(hub):
    """All SAs have one reqid: which of them has decrypted a packet is to be said."""
    _, (a, _) = hub
    inside = "udp 10.2.0.5:5 > 10.1.0.5:6 in sa 1"
    said = a.run("explain", inside, check=False)
    assert said.returncode != 0, said.stdout
    for tenant in TENANTS:
        assert f"`in sa 1 vrf {tenant} if_id 0`" in said.stderr, said.stderr
    for tenant, spi in TENANTS.items():
        told = a.run("explain", f"esp 192.0.2.2 > 192.0.2.1 spi {spi + 2:#x} in wan", check=False).stdout
        [words] = [line for line in told.splitlines() if line.startswith("next")]
        assert f"`in sa 1 vrf {tenant} if_id 0`" in words, told
        for place in (f"vrf {tenant}", f"vrf {tenant} if_id 0"):
            told = a.run("explain", f"{inside} {place}", check=False).stdout
            assert f"{tenant}0" in told, told
            assert not any(f"{other}0" in told for other in set(TENANTS) - {tenant}), told
    for place, wanted in [("vrf green", "decrypts for VRF"), ("if_id 7", "and if_id 0x7")]:
        said = a.run("explain", f"{inside} {place}", check=False)
        assert said.returncode != 0 and wanted in said.stderr, said.stderr
    said = a.run("explain", "udp 10.1.0.5:5 > 10.2.0.5:6 in red0 vrf red", check=False)
    assert said.returncode != 0 and "of no SA" in said.stderr, said.stderr
    # Without another one the words are as short as before.
    a.run(*"xfrm state delete src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x2002".split())
    told = a.run("explain", "esp 192.0.2.2 > 192.0.2.1 spi 0x1002 in wan", check=False).stdout
    assert "`in sa 1`" in told, told
    assert "red0" in a.run("explain", inside, check=False).stdout
