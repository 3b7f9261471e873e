"""Two tenants who have the same addresses, the same ends of their tunnels and the same SPIs, each in a VRF
with a VLAN of one trunk of its own.

    red left  --+              +-- red right
                a === trunk === b
    blue left --+              +-- blue right
"""

import contextlib
import ipaddress
import itertools

import pytest
from harness import transfers
from harness.algorithms import GCM, Sa
from harness.capture import captured
from harness.config import Config, Policy, Port, Route
from harness.gateway import Gateway
from harness.netns import Topology
from test_namespaces import both_families

pytestmark = pytest.mark.namespaces

TENANTS = {"red": 10, "blue": 20}
"""VRF -> its VLAN."""

OUTER = {"a": "192.0.2.1", "b": "192.0.2.2"}
LAN = {
    "a": {4: ("10.1.0.1", "10.1.0.2"), 6: ("fd01::1", "fd01::2")},
    "b": {4: ("10.2.0.1", "10.2.0.2"), 6: ("fd02::1", "fd02::2")},
}
"""Gateway -> family -> its address towards a tenant's host, and the host's."""

BITS = {4: 24, 6: 64}
SPIS = {"a": 0x1001, "b": 0x1002}
NAME = "import socket, sys\nwith socket.create_server((sys.argv[1], 7), family=int(sys.argv[3])) as s:\n c = s.accept()[0]\n c.sendall(sys.argv[2].encode())"
ASK = "import socket, sys\nprint(socket.create_connection((sys.argv[1], 7), timeout=10).recv(9).decode(), end='')"


class Tenants:
    """The hosts and gateways, once they run."""

    def __init__(self, topology, gateways):
        self.topology, self.gateways = topology, gateways

    def hosts(self, tenant):
        return self.topology[f"{tenant}-a"], self.topology[f"{tenant}-b"]

    @contextlib.contextmanager
    def alone(self, tenant):
        """Demands that nothing comes to other tenants' hosts, and that only this tenant's SAs count packets."""
        before = self.counted()
        with contextlib.ExitStack() as stack:
            others = [
                stack.enter_context(captured(host, "eth0"))
                for other in TENANTS if other != tenant for host in self.hosts(other)
            ]
            yield
        came = [frame for frames in others for frame in frames if any(map(frame.haslayer, ("TCP", "UDP", "ICMP")))]
        assert not came, came[:3]
        after = self.counted()
        for sa, packets in after.items():
            assert (packets > before[sa]) == (tenant in sa), (sa, before[sa], packets)

    def counted(self):
        """What each SA has counted."""
        return {
            (label, sa["vrf"], sa["spi"]): sa["packets"]
            for label, gateway in self.gateways.items() for sa in gateway.json("show", "sas")
        }


@pytest.fixture(scope="module", params=[(1, "on"), (2, "off")], ids=["cached", "two-workers"])
def tenants(request, root, tmp_path_factory):
    workers, cache = request.param
    with Topology() as topology, contextlib.ExitStack() as stack:
        for label in ("a", "b"):
            topology.namespace(label)
        topology.link(topology["a"], "trunk", topology["b"], "trunk")
        for label, tenant in itertools.product(("a", "b"), TENANTS):
            host = topology.namespace(f"{tenant}-{label}")
            topology.link(topology[label], tenant, host, "eth0")
            host.addresses("eth0", *(f"{LAN[label][family][1]}/{BITS[family]}" for family in (4, 6)))
            for family in (4, 6):
                host.ip(f"-{family}", "route", "add", "default", "via", LAN[label][family][0])
        running = {}
        for label in ("a", "b"):
            for interface in ("trunk", *TENANTS):
                topology[label].silence(interface)
            config = configuration(label, workers, cache)
            place = tmp_path_factory.mktemp(label)
            running[label] = stack.enter_context(Gateway(topology[label], config, place))
        yield Tenants(topology, running)


def configuration(label, workers, cache):
    other = {"a": "b", "b": "a"}[label]
    config = Config(vrfs=list(TENANTS), workers=workers)
    config.ipsec = {f"ipv{n}-{way}bound-spd-flow-cache": cache for n in (4, 6) for way in ("in", "out")}
    config.ports = [Port("trunk", [], kind="af-packet", interface="trunk")]
    for tenant, vlan in TENANTS.items():
        lan = [f"{LAN[label][family][0]}/{BITS[family]}" for family in (4, 6)]
        config.ports += [
            Port(tenant, lan, kind="af-packet", interface=tenant, vrf=tenant, side="protected"),
            Port(f"trunk.{vlan}", [f"{OUTER[label]}/24"], kind="vlan", parent="trunk", id=vlan, vrf=tenant,
                 side="unprotected"),
        ]
        # The same SPIs, and so the same keys.
        sas = {
            way: Sa(GCM, OUTER[way], OUTER[{"a": "b", "b": "a"}[way]], SPIS[way], vrf=tenant, replay_window=1024)
            for way in ("a", "b")
        }
        config.sas += sas.values()
        for family in (4, 6):
            mine, theirs = (network(LAN[way][family][0], family) for way in (label, other))
            config.routes.append(Route(theirs, via=OUTER[other], vrf=tenant) if family == 4 else
                                 Route(theirs, port=f"trunk.{vlan}", vrf=tenant))
            config.policies += [
                Policy("out", mine, theirs, sa=sas[label], vrf=tenant),
                Policy("in", theirs, mine, sa=sas[other], vrf=tenant),
            ]
    return config


def network(address, family):
    return str(ipaddress.ip_network(f"{address}/{BITS[family]}", strict=False))


@both_families
@pytest.mark.parametrize("tenant", TENANTS)
def test_a_tenant_reaches_its_own_hosts_alone(tenants, tenant, family):
    left, right = tenants.hosts(tenant)
    there = LAN["b"][family][1]
    with tenants.alone(tenant):
        left.ping(there)
        right.ping(LAN["a"][family][1])
        transfers.udp(left, LAN["a"][family][1], right, there)
        hops = transfers.hops(left, there)
    assert hops == [LAN["a"][family][0], LAN["b"][family][0], there], hops


@both_families
def test_both_at_once(tenants, family):
    """Who asks a host for its name is told that of its own tenant, all the while both send as fast as they can."""
    there = LAN["b"][family][1]
    numbers = {4: 2, 6: 10}
    for tenant in list(TENANTS) * 2:
        left, right = tenants.hosts(tenant)
        server = right.start("/usr/bin/python3", "-c", NAME, there, tenant, numbers[family])
        transfers.wait_for_listener(right, 7)
        assert left.run("/usr/bin/python3", "-c", ASK, there).stdout == tenant
        server.wait(10)
    for protocol in ("tcp", "udp"):
        others = [tenants.hosts(tenant) for tenant in TENANTS]
        (first, first_right), (second, second_right) = others
        pings = second.start("ping", "-i", "0.01", "-c", "200", "-q", there)
        transfers.iperf3(first, first_right, there, protocol)
        pings.wait(30)
        assert pings.returncode == 0
        transfers.iperf3(second, second_right, there, protocol)
