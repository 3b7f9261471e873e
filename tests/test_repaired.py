"""What passes through a gateway whose log was repaired: nothing where parts may be lost, until it is opened."""

import dataclasses
from concurrent import futures

import pytest
from harness.config import Config
from harness.gateway import Gateway, binary
from harness.netns import run
from test_namespaces import LEFT, RIGHT, attach

pytestmark = pytest.mark.namespaces

VRFS = ("main", "blue", "green")
POLICY = "src 10.0.0.0/8 dst 10.0.0.0/8 {} vrf blue"
KEY = "0x00112233445566778899aabbccddeeff01020304"
SA = f"src 10.2.0.1 dst 10.2.0.2 proto esp spi 0x1001 mode tunnel reqid 1 aead rfc4106(gcm(aes)) {KEY} 128"


@dataclasses.dataclass
class WithPlainRouter(Config):
    """A configuration with a VRF `blue`, and `green` that is said to be no IPsec gateway."""

    def render(self, socket):
        return super().render(socket) + '\n[[vrf]]\nname = "blue"\n\n[[vrf]]\nname = "green"\nipsec = "off"\n'


@pytest.fixture
def site(topology, tmp_path):
    """Two hosts in each VRF, the same addresses in each: `(hosts, gateway)`."""
    topology.namespace("gw")
    hosts, config = {}, WithPlainRouter()
    for vrf in VRFS:
        pair = [attach(topology, f"{side}-{vrf}", ends, vrf) for side, ends in (("l", LEFT), ("r", RIGHT))]
        hosts[vrf] = [host for host, _ in pair]
        config.ports += [dataclasses.replace(port, vrf="" if vrf == "main" else vrf) for _, port in pair]
    with Gateway(topology["gw"], config, tmp_path) as gateway:
        # Blue has policies by command alone.
        for direction in ("in", "out"):
            gateway.run("xfrm", "policy", "add", *POLICY.format(f"dir {direction} action allow").split())
        gateway.run("xfrm", "state", "add", *SA.split())
        assert passing(hosts) == {"main": "through", "blue": "through", "green": "through"}
        yield hosts, gateway


def passing(hosts):
    """How far pings of each VRF come: `through` the gateway, `to` it, or `nowhere`."""
    for host in (host for pair in hosts.values() for host in pair):
        # What was dropped meanwhile may have been ARP.
        host.ip("neigh", "flush", "all")
    with futures.ThreadPoolExecutor(len(hosts)) as pool:
        return dict(zip(hosts, pool.map(how_far, hosts.values())))


def how_far(pair):
    left, right = pair
    came = {
        where: {host.ping(ends[4][at], count=2, timeout=2, check=False).returncode == 0 for host, ends in asked}
        for where, at, asked in (
            ("through", 1, [(left, RIGHT), (right, LEFT)]),
            ("to", 0, [(left, LEFT), (right, RIGHT)]),
        )
    }
    words = {(True, True): "through", (False, True): "to", (False, False): "nowhere"}
    assert all(len(both) == 1 for both in came.values()), came
    return words[came["through"].pop(), came["to"].pop()]


def repaired(gateway, file, damage):
    """Ends the gateway, damages a file of its state, repairs it, and starts it again. Returns what was said."""
    gateway.kill()
    (path,) = gateway.state_path.glob(file)
    path.write_bytes(damage(path.read_bytes()))
    said = run([binary(), "state", "repair", gateway.state_path]).stdout
    gateway.start_again()
    return said


def without_policies(log):
    """A log in which the policies cannot be read."""
    assert log.count(b"xfrm policy add") == 2
    return log.replace(b"xfrm policy add", b"Xfrm policy add")


def open_flow(gateway, vrf):
    gateway.run("flow", "del", "--strict", f"vrf={vrf},table=0,priority=0")


def test_nothing_passes_where_parts_may_be_lost(site):
    hosts, gateway = site
    assert "may be lost" in repaired(gateway, "log", without_policies)
    for _ in range(2):
        assert passing(hosts) == {"main": "nowhere", "blue": "nowhere", "green": "nowhere"}
        drops = gateway.drops()
        assert drops["flow_drop"] > 0 and "ipsec_closed" not in drops, drops
        # Nor after the next start, whether it is asked for or not.
        gateway.kill()
        gateway.start_again()
    # By the flow alone the plain router is closed; the others must have policies besides.
    for vrf in VRFS:
        open_flow(gateway, vrf)
    assert passing(hosts) == {"main": "to", "blue": "to", "green": "through"}
    assert gateway.drops()["ipsec_closed"] > 0
    gateway.run("vrf", "set", "main", "ipsec", "auto")
    assert passing(hosts) == {"main": "through", "blue": "to", "green": "through"}
    # What was lost is there again.
    for direction in ("in", "out"):
        gateway.run("xfrm", "policy", "add", *POLICY.format(f"dir {direction} action allow").split())
    assert passing(hosts) == {"main": "through", "blue": "through", "green": "through"}
    gateway.kill()
    gateway.start_again()
    assert passing(hosts) == {"main": "through", "blue": "through", "green": "through"}


def test_everything_passes_after_a_last_write_that_was_cut_short(site):
    hosts, gateway = site
    gateway.run("route", "add", "198.51.100.0/24", "via", "10.2.0.2")
    assert "may be lost" not in repaired(gateway, "log", lambda log: log[:-7])
    assert "198.51.100.0" not in gateway.run("route", "show").stdout
    assert passing(hosts) == {"main": "through", "blue": "through", "green": "through"}


def test_keys_that_are_lost_close_nothing(site):
    hosts, gateway = site
    said = repaired(gateway, "keys.*", lambda keys: keys[: len(keys) // 2] + b"X" + keys[len(keys) // 2 + 1 :])
    assert "key" in said and "policies, flows" not in said, said
    assert gateway.sa_packets() == {}
    assert passing(hosts) == {"main": "through", "blue": "through", "green": "through"}
