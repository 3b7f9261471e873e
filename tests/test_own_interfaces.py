"""The kernel on the gateway's interfaces: it is seen, silenced by --own-interfaces, and gets everything back."""

import json
import os
import pathlib
import shutil
import signal
import socket
import tempfile
import time

import pytest

from harness.config import Config, Port, Route
from harness.failure import CommandFailed
from harness.gateway import Gateway, binary
from harness.netns import run

pytestmark = pytest.mark.namespaces

GATEWAY = {"left": ("10.1.0.1", "fd01::1"), "right": ("10.2.0.1", "fd02::1")}
HOST = {"left": ("10.1.0.2", "fd01::2"), "right": ("10.2.0.2", "fd02::2")}
"""Addresses of the kernel on the gateway's machine, and of the hosts."""

OURS = {"left": "10.101.0.1", "right": "10.102.0.1"}
THEIRS = {"left": "10.101.0.2", "right": "10.102.0.2"}
"""Addresses of the gateway itself, in networks that the kernel does not know, and other ones of the hosts."""

MANAGEMENT = "172.16.0.1"
"""An address of the kernel on an interface that is not the gateway's."""

SETTINGS = {
    "ipv4": {"forwarding": "0", "rp_filter": "1", "arp_ignore": "8"},
    "ipv6": {"forwarding": "0", "disable_ipv6": "1"},
}
"""What an interface has that is the gateway's alone."""

NOBODY = 65534
"""A user, and its group."""


@pytest.fixture
def machine(topology):
    """A machine whose kernel is a router between two hosts: `(gw, left, right)`."""
    gw = topology.namespace("gw")
    gw.sysctl("net.ipv4.ip_forward", 1)
    gw.sysctl("net.ipv6.conf.all.forwarding", 1)
    hosts = []
    for label in ("left", "right"):
        host = topology.namespace(label)
        topology.link(gw, label, host, "eth0")
        for sysctl in ("rp_filter", "arp_ignore"):
            gw.sysctl(f"net.ipv4.conf.{label}.{sysctl}", 0)
        gw.addresses(label, f"{GATEWAY[label][0]}/24", f"{GATEWAY[label][1]}/64")
        host.addresses("eth0", f"{HOST[label][0]}/24", f"{HOST[label][1]}/64", f"{THEIRS[label]}/24")
        for family, via in zip((4, 6), GATEWAY[label]):
            host.ip(f"-{family}", "route", "add", "default", "via", via)
        hosts.append(host)
    gw.sysctl("net.ipv4.conf.all.rp_filter", 0)
    gw.ip("addr", "add", f"{MANAGEMENT}/32", "dev", "lo")
    return gw, *hosts


def configuration():
    """Ports whose addresses the kernel has not. The gateway keeps silent about what the kernel forwards."""
    ports = [Port(label, [f"{OURS[label]}/24"], kind="af-packet", interface=label) for label in GATEWAY]
    return Config(ports=ports, routes=[Route("default", kind="blackhole")])


class Owner(Gateway):
    """A gateway that is run with options."""

    options = ["--own-interfaces"]

    def __init__(self, namespace, directory, *options):
        super().__init__(namespace, configuration(), directory)
        self.options = options or self.options

    def command(self):
        """What it is started by."""
        return [*super().command(), *self.options]

    def release(self, *options, check=True):
        """`hitpath release-interfaces`."""
        return self._namespace.run(binary(), "release-interfaces", self.state_path, *options, check=check)


@pytest.fixture
def make(machine, tmp_path):
    """Makes a gateway that is not running yet."""
    return lambda *options: Owner(machine[0], tmp_path, *options)


@pytest.fixture
def public_directory():
    """A directory that every user may go into, unlike pytest's own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        pathlib.Path(path).chmod(0o755)
        yield pathlib.Path(path)


def reached(host, *targets):
    """Those of the targets that answer a ping."""
    pings = {target: host.start("ping", "-c1", "-W1", target) for target in targets}
    return [target for target, process in pings.items() if process.wait(10) == 0]


def addresses(gw):
    """All addresses, without the seconds that are left of a lifetime."""
    listed = json.loads(gw.run("ip", "-j", "addr").stdout)
    for link in listed:
        for address in link["addr_info"]:
            for lifetime in ("valid_life_time", "preferred_life_time"):
                address[lifetime] = address[lifetime] // 1000
    return listed


def global_addresses(gw):
    """The addresses of each interface that are not the link's alone."""
    return {
        link["ifname"]: [own["local"] for own in link["addr_info"] if own["scope"] == "global"]
        for link in addresses(gw)
    }


def routes(gw):
    """All routes of all tables."""
    listed = [gw.run("ip", f"-{family}", "-j", "route", "show", "table", "all").stdout for family in (4, 6)]
    known = [route | {"expires": route.get("expires", 0) // 1000} for text in listed for route in json.loads(text)]
    return sorted(json.dumps(route, sort_keys=True) for route in known)


def settings(gw, label):
    """The kernel's settings of an interface."""
    return {
        (family, name): gw.run("cat", f"/proc/sys/net/{family}/conf/{label}/{name}").stdout.strip()
        for family, name in OWNED
    }


OWNED = {(family, name): value for family in SETTINGS for name, value in SETTINGS[family].items()}


def everything(gw):
    """What is to be as it was, once the kernel has nothing to add: it makes IPv6 routes in its own time."""

    def now():
        return addresses(gw), routes(gw), [settings(gw, label) for label in GATEWAY]

    before, after = None, now()
    while before != after:
        time.sleep(0.5)
        before, after = after, now()
    return after


def silent(machine):
    """The kernel neither answers nor forwards."""
    gw, left, right = machine
    for label, host, other in (("left", left, "right"), ("right", right, "left")):
        assert settings(gw, label) == OWNED
        host.ip("neigh", "flush", "all")
        # As somebody would who knows where to send it.
        assert reached(host, *GATEWAY[label], MANAGEMENT) == []
        for address in (*GATEWAY[label], *HOST[other]):
            host.ip("neigh", "replace", address, "lladdr", gw.mac(label), "dev", "eth0")
        assert reached(host, *GATEWAY[label], MANAGEMENT, *HOST[other]) == []
        for address in (*GATEWAY[label], *HOST[other]):
            host.ip("neigh", "del", address, "dev", "eth0")


def test_without_owning_the_kernel_answers_and_forwards_and_is_seen(machine, make):
    gw, left, _ = machine
    before = everything(gw)
    with make("--verbose") as gateway:
        targets = [*GATEWAY["left"], *GATEWAY["right"], *HOST["right"], MANAGEMENT]
        assert reached(left, *targets) == targets
        log = gateway.log()
        for label in GATEWAY:
            assert log.count(f"interface {label} of port {label}: the kernel handles its packets too") == 1, log
            for said in (
                f"it answers for {GATEWAY[label][0]}/24",
                f"it answers for {GATEWAY[label][1]}/64",
                "it forwards IPv4 packets",
                "it forwards IPv6 packets",
                f"addresses of other interfaces: {GATEWAY['right' if label == 'left' else 'left'][0]}",
                f"`ip -4 address flush dev {label}`",
            ):
                assert said in log, said
    assert everything(gw) == before, "a gateway that only looks has changed something"


def test_the_commands_that_are_told_mend_it(machine, make):
    """After them nothing is left to be told, and the kernel is silent."""
    gw, *_ = machine
    gateway = make()
    told = gw.run(binary(), "check", "--live", "-j", gateway.config_path, check=False)
    assert told.returncode == 1
    (live,) = json.loads(told.stdout)["live"]
    assert [seen["interface"] for seen in live["kernel"]] == ["left", "right"]
    for seen in live["kernel"]:
        assert seen["port"] == seen["interface"] and len(seen["problems"]) == 5
        for command in seen["commands"]:
            gw.run(*command.split())
    told = gw.run(binary(), "check", "--live", gateway.config_path)
    assert "kernel" not in told.stdout, told.stdout
    with make("--verbose") as running:
        assert "the kernel handles" not in running.log()
        # All but what nobody was told, as IPv6 is off.
        gw.sysctl("net.ipv6.conf.left.forwarding", 0)
        gw.sysctl("net.ipv6.conf.right.forwarding", 0)
        silent(machine)


def test_an_interface_that_is_missing_is_listed(machine, make):
    gw, *_ = machine
    gateway = make()
    gw.ip("link", "del", "right")
    told = gw.run(binary(), "check", "--live", gateway.config_path, check=False)
    assert told.returncode == 1 and "port right: there is no interface right" in told.stdout
    assert gw.run(binary(), "check", gateway.config_path).returncode == 0


def test_owned_interfaces_are_the_gateways_alone_and_all_comes_back(machine, make):
    gw, left, right = machine
    # Whatever the kernel has to say of an address and a route.
    for words in (
        "addr add 10.1.0.7/24 brd + dev left label left:old",
        "addr add 10.11.0.1/16 dev left valid_lft 100500 preferred_lft 50500",
        "addr add 10.12.0.1 peer 10.12.0.2/32 dev left scope link",
        "addr add 10.13.0.1/24 dev left noprefixroute metric 77",
        "addr add fd01::7/64 dev left nodad",
        "addr add fd11::1/64 dev left nodad valid_lft 100500 preferred_lft 0",
        f"route add default via {HOST['right'][0]} metric 7 src {GATEWAY['left'][0]}",
        f"route add 10.99.0.0/16 via {HOST['left'][0]} dev left mtu 1300",
        "route add 10.98.0.0/16 via 10.99.0.1 dev left onlink table 100",
        f"route add 10.97.0.0/16 nexthop via {HOST['left'][0]} weight 3 nexthop via {HOST['right'][0]}",
        "route add 10.96.0.0/16 dev left scope link",
        f"-6 route add fd99::/48 via {HOST['left'][1]} dev left metric 5",
    ):
        gw.ip(*words.split())
    gw.sysctl("net.ipv4.conf.left.rp_filter", 2)
    before = everything(gw)
    with make() as gateway:
        silent(machine)
        left.ping(OURS["left"], count=1)
        left.ip("route", "add", f"{THEIRS['right']}/32", "via", OURS["left"])
        right.ip("route", "add", f"{THEIRS['left']}/32", "via", OURS["right"])
        left.ping(THEIRS["right"], count=1, source=THEIRS["left"])
        assert "the kernel handles its packets too" not in gateway.log()
        refused = gateway.release(check=False)
        assert refused.returncode == 1 and "hitpath run" in refused.stderr and "stop that one first" in refused.stderr
        silent(machine)
    silent(machine)
    gateway.release()
    assert everything(gw) == before
    again = gateway.release(check=False)
    assert again.returncode == 1 and "nothing is recorded" in again.stderr
    assert everything(gw) == before
    left.ip("neigh", "flush", "all")
    left.ping(HOST["right"][0], count=1)


def test_nothing_is_forwarded_after_a_crash_and_another_start_forgets_nothing(machine, make):
    gw, left, right = machine
    before = everything(gw)
    gateway = make()
    with gateway:
        gateway.kill()
        silent(machine)
        # Somebody switches forwarding on for all interfaces, as programs do that manage containers.
        gw.sysctl("net.ipv4.ip_forward", 0)
        gw.sysctl("net.ipv4.ip_forward", 1)
        for host, label, other in ((left, "left", "right"), (right, "right", "left")):
            host.ip("neigh", "replace", GATEWAY[label][0], "lladdr", gw.mac(label), "dev", "eth0")
            assert reached(host, HOST[other][0], GATEWAY[label][0], MANAGEMENT) == []
            host.ip("neigh", "del", GATEWAY[label][0], "dev", "eth0")
        gateway.start_again()
        silent(machine)
        gateway.kill()
        gateway.release()
        assert everything(gw) == before
        gateway.start_again()
    gateway.release()
    assert everything(gw) == before


def test_addresses_that_somebody_adds_meanwhile_stay(machine, make):
    gw, *_ = machine
    before = addresses(gw)
    with make() as gateway:
        gw.ip("addr", "add", "10.55.0.1/24", "dev", "left")
    gateway.release()
    gw.ip("addr", "del", "10.55.0.1/24", "dev", "left")
    assert addresses(gw) == before


def test_a_lifetime_that_is_over_is_not_given_again(machine, make):
    gw, *_ = machine
    gw.ip("addr", "add", "10.55.0.1/24", "dev", "left", "valid_lft", "2", "preferred_lft", "2")
    with make() as gateway:
        time.sleep(2.1)
    assert "lifetime of address 10.55.0.1/24 is over" in gateway.release().stderr
    assert "10.55.0.1" not in gw.ip("addr").stdout


def test_who_loses_is_said_first(machine, make):
    gw, left, _ = machine
    with gw.entered():
        server = socket.create_server((GATEWAY["left"][0], 2222))
        everywhere = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        everywhere.bind(("0.0.0.0", 500))
    with left.entered():
        client = socket.create_connection((GATEWAY["left"][0], 2222), 5)
    connection, remote = server.accept()
    with server, everywhere, client, connection:
        comm = pathlib.Path("/proc/self/comm").read_text().strip()
        who = f"of {comm} (pid {os.getpid()})"
        expected = [
            f"the tcp connection {GATEWAY['left'][0]}:2222 to {remote[0]}:{remote[1]} {who}",
            f"tcp {GATEWAY['left'][0]}:2222 {who}",
            f"udp port 500 of all addresses {who}, on these addresses",
        ]
        gateway = make()
        told = gw.run(binary(), "check", "--live", gateway.config_path, check=False).stdout
        with gateway:
            log = gateway.log()
            for line in expected:
                assert f"`hitpath run --own-interfaces` ends {line}\n" in told
                assert log.index(f"taking the interfaces over ends {line}") < log.index("is the gateway's alone")


def test_interfaces_that_are_gone_stay_recorded_until_they_are_forgotten(machine, make):
    gw, left, right = machine
    kept = global_addresses(gw)
    with make() as gateway:
        pass
    gw.ip("link", "del", "right")
    refused = gateway.release(check=False)
    assert refused.returncode == 1 and "interface right is not there" in refused.stderr
    assert "interface left is the kernel's again" in refused.stdout
    left.ping(GATEWAY["left"][0], count=1)

    # It is back, as another one.
    run(["ip", "link", "add", "right", "netns", gw.name, "type", "veth", "peer", "name", "eth0", "netns", right.name])
    gw.ip("link", "set", "right", "up")
    right.addresses("eth0", f"{HOST['right'][0]}/24", f"{HOST['right'][1]}/64")
    gateway.release()
    for address in GATEWAY["right"]:
        right.ping(address, count=1)
    assert global_addresses(gw) == kept

    with gateway:
        pass
    gw.ip("link", "del", "right")
    assert gateway.release("--forget").returncode == 0
    assert "nothing is recorded" in gateway.release(check=False).stderr


def test_interfaces_that_have_another_name_get_their_own_addresses(machine, make):
    gw, *_ = machine
    before = everything(gw)
    with make():
        pass
    for old, new in (("left", "spare"), ("right", "left"), ("spare", "right")):
        gw.ip("link", "set", old, "down")
        gw.ip("link", "set", old, "name", new)
        gw.ip("link", "set", new, "up")
    released = make().release()
    assert "interface left is called right now" in released.stdout + released.stderr
    assert global_addresses(gw)["left"] == list(GATEWAY["right"])
    assert global_addresses(gw)["right"] == list(GATEWAY["left"])
    for old, new in (("left", "spare"), ("right", "left"), ("spare", "right")):
        gw.ip("link", "set", old, "down")
        gw.ip("link", "set", old, "name", new)
        gw.ip("link", "set", new, "up")
    assert settings(gw, "left") == before[2][0] and settings(gw, "right") == before[2][1]


@pytest.mark.parametrize("names", [{"left": "wan0", "right": "right"}, {"left": "right", "right": "left"}])
def test_interfaces_that_were_renamed_and_taken_again_get_their_own_back(machine, make, names):
    gw, *_ = machine
    # What tells them apart.
    gw.sysctl("net.ipv4.conf.left.rp_filter", 2)
    before, kept = {label: settings(gw, label) for label in GATEWAY}, global_addresses(gw)
    assert before["left"] != before["right"]

    def rename(names):
        for old in names:
            gw.ip("link", "set", old, "down")
            gw.ip("link", "set", old, "name", f"{old}-old")
        for old, new in names.items():
            gw.ip("link", "set", f"{old}-old", "name", new)
            gw.ip("link", "set", new, "up")

    gateway = make()
    with gateway:
        pass
    rename(names)
    config = configuration()
    for port in config.ports:
        port.interface = names[port.name]
    gateway.write(config)
    with gateway:
        assert all(settings(gw, label) == OWNED for label in names.values())
    released = gateway.release()
    assert sorted(released.stdout.split("\n")[:-1]) == [
        f"interface {label} is the kernel's again" for label in sorted(names.values())
    ]
    after = global_addresses(gw)
    for old, new in names.items():
        assert settings(gw, new) == before[old]
        assert sorted(after[new]) == sorted(kept[old])


def refused(machine, gateway, *options, wrap=()):
    """What a daemon says that refuses to start, and has changed nothing."""
    gw = machine[0]
    before = everything(gw)
    words = [*wrap, binary(), "run", "--config", gateway.config_path, "--own-interfaces", *options]
    said = gw.run(*words, check=False, timeout=10)
    assert said.returncode == 1, said
    assert everything(gw) == before
    return said.stderr


def test_what_cannot_be_put_back_is_not_taken(machine, make):
    gw, *_ = machine
    gateway = make()
    state = ["--state-directory", gateway.state_path]
    assert "needs a state directory" in refused(machine, gateway, "--state-directory", "off")
    read_only = ["unshare", "-m", "sh", "-c", 'mount -o bind,ro /proc/sys /proc/sys && exec "$@"', "sh"]
    said = refused(machine, gateway, *state, wrap=read_only)
    assert "/proc/sys/net/ipv4/conf/left/forwarding" in said and "Read-only" in said
    weak = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
    assert "needs CAP_NET_ADMIN" in refused(machine, gateway, *state, wrap=weak)
    full = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=4k,mode=0700 none "$0" && exec "$@"']
    said = refused(machine, gateway, *state, wrap=[*full, gateway.state_path])
    assert "No space" in said, said


def test_a_damaged_record_is_refused_by_its_name(machine, make):
    gw, *_ = machine
    with make() as gateway:
        pass
    record = gateway.state_path / "interfaces"
    whole = record.read_bytes()
    assert GATEWAY["left"][0].encode() in whole, "people can read it"
    record.write_bytes(whole[: len(whole) // 2])
    for said in (gateway.release(check=False), start(gw, gateway)):
        assert said.returncode == 1 and f"{record}: damaged" in said.stderr, said
    record.write_bytes(whole)
    gateway.release()


def start(gw, gateway):
    """A start that is refused."""
    options = ["--state-directory", gateway.state_path, "--own-interfaces"]
    return gw.run(binary(), "run", "--config", gateway.config_path, *options, check=False, timeout=10)


def test_a_gateway_without_the_directory_keeps_its_interfaces(machine, make, tmp_path):
    """A gateway with another state directory has the interfaces, which the former one had taken."""
    gw, *_ = machine
    with make() as gateway:
        pass
    other = tmp_path / "other"
    other.mkdir()
    with Gateway(gw, configuration(), other):
        said = gateway.release(check=False)
        assert said.returncode == 1 and "a daemon has interface" in said.stderr, said
        assert str(other / "gw.toml") in said.stderr
        silent(machine)
        # Nor can a second one take them over.
        assert "another daemon has interface left" in start(gw, gateway).stderr
    gateway.release()


def test_a_record_of_another_namespace_is_refused(machine, make, topology):
    gw, left, _ = machine
    with make() as gateway:
        pass
    said = left.run(binary(), "release-interfaces", gateway.state_path, check=False)
    assert said.returncode == 1 and "another network namespace" in said.stderr
    assert f"release-interfaces --forget {gateway.state_path}" in said.stderr
    gateway.release()


def test_the_record_of_a_namespace_that_is_gone_can_be_dropped(machine, make, topology):
    """As a container that is started again with the volume of the former one."""
    gw, *_ = machine
    with make() as gateway:
        pass
    again = topology.namespace("again")
    for label in GATEWAY:
        topology.link(again, label, topology.namespace(f"{label}2"), "eth0")
    said = start(again, gateway)
    assert said.returncode == 1 and f"release-interfaces --forget {gateway.state_path}" in said.stderr
    said = again.run(binary(), "release-interfaces", gateway.state_path, "--forget")
    assert "the record of left, right in network namespace" in said.stderr
    with Owner(again, gateway.state_path.parent):
        assert settings(again, "left") == OWNED


def test_nothing_is_taken_over_before_all_is_read(machine, make):
    gateway = make()
    with gateway:
        pass
    gateway.release()
    sequences = gateway.state_path / "sequences"
    whole = sequences.read_bytes()
    state = ["--state-directory", gateway.state_path]
    sequences.write_bytes(b"damaged" + whole[7:])
    assert f"{sequences} is damaged" in refused(machine, gateway, *state)
    sequences.write_bytes(whole)

    # More than the system gives is known only when the port is opened.
    config = configuration()
    config.ports[0].mtu = 9000
    gateway.write(config)
    said = start(machine[0], gateway)
    assert said.returncode == 1
    assert f"the interfaces stay taken over; `hitpath release-interfaces {gateway.state_path}`" in said.stderr, said
    gateway.release()


def test_a_crash_in_the_middle_can_be_put_back(machine, make):
    """Recorded, and killed while it was done: whatever was done goes back."""
    gw, *_ = machine
    before = everything(gw)
    for number in range(8):
        gateway = make()
        process = gw.start(*gateway.command(), stdout=None, stderr=None)
        record = gateway.state_path / "interfaces"
        end = time.monotonic() + 10
        while not record.exists():
            assert time.monotonic() < end and process.poll() is None
        time.sleep(number * 0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        gateway.release()
        assert everything(gw) == before, f"killed after {number} ms"


def test_root_gives_back_as_the_user_that_the_state_belongs_to(machine, make, public_directory):
    """A service has a user of its own, which has to be able to use its state afterwards."""
    gw, *_ = machine
    before = everything(gw)
    gateway = make()
    with gateway:
        pass
    state = public_directory / "state"
    shutil.copytree(gateway.state_path, state)
    shutil.rmtree(gateway.state_path)
    for path in [state, *state.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    assert gw.run(binary(), "state", "show", state).stdout == ""
    said = gw.run(binary(), "release-interfaces", state)
    assert said.stdout.count("is the kernel's again") == len(GATEWAY)
    assert pathlib.Path("/run/hitpath").stat().st_uid == 0
    assert everything(gw) == before
    assert {path.stat().st_uid for path in [state, *state.rglob("*")]} == {NOBODY}
    # It is not root that works there: links of the other user lead nowhere that is not its own.
    secret = public_directory / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    (state / "lock").unlink()
    (state / "lock").symlink_to(secret)
    refused_link = r"as user nobody \(65534\), whose directory it is: .* opening its lock: Too many levels of symbolic links"
    with pytest.raises(CommandFailed, match=refused_link):
        gw.run(binary(), "state", "drop", state)
    assert secret.read_text() == "root's"


def test_ports_that_a_reload_adds_are_looked_at(machine, make, topology):
    gw, *_ = machine
    with make() as gateway:
        topology.link(gw, "new", topology.namespace("new"), "eth0")
        gw.addresses("new", "10.77.0.1/24")
        config = configuration()
        config.ports.append(Port("new", ["10.77.0.9/24"], kind="af-packet", interface="new"))
        gateway.write(config)
        gateway.run("reload")
        assert "interface new of port new: the kernel handles its packets too" in gateway.log()
    gateway.release()


def make_anew(gw, label, host, *addresses):
    """Deletes an interface and makes another one of the same name, which has its addresses from the first."""
    gw.ip("link", "del", label)
    make_new(gw, label, host, *addresses)


def make_new(gw, label, host, *addresses):
    """Makes an interface of a name, which has its addresses from the first."""
    run(["ip", "link", "add", "anew", "netns", gw.name, "type", "veth", "peer", "name", "eth0", "netns", host.name])
    gw.addresses("anew", *addresses)
    host.addresses("eth0", f"{HOST[label][0]}/24", f"{HOST[label][1]}/64", f"{THEIRS[label]}/24")
    for family, via in zip((4, 6), GATEWAY[label]):
        host.ip(f"-{family}", "route", "add", "default", "via", via)
    gw.ip("link", "set", "anew", "down")
    gw.ip("link", "set", "anew", "name", label)
    gw.ip("link", "set", label, "up")


def wait_for_log(gateway, text, count=1, timeout=10):
    """Waits until the gateway has said so, so many times."""
    end = time.monotonic() + timeout
    while gateway.log().count(text) < count:
        assert time.monotonic() < end, f"not said {count} times: {text}\n{gateway.log()}"
        time.sleep(0.05)


def test_an_interface_that_is_made_anew_is_taken_over_again(machine, make):
    gw, left, right = machine
    taken = "interface right is the gateway's alone"
    with make() as gateway:
        for count in (1, 2):
            # Its addresses are others than those of the first one.
            make_anew(gw, "right", right, f"10.2.{count}.1/24")
            wait_for_log(gateway, "INFO opened again", count)
            log = gateway.log()
            assert log.count(taken) == 1 + count
            assert log.rindex(taken) < log.rindex("opened again"), "it is taken over before it is opened"
            silent(machine)
            assert "10.2." not in gw.ip("addr", "show", "dev", "right").stdout
        right.ping(OURS["right"], count=1)
        assert "the kernel handles its packets too" not in gateway.log()
    silent(machine)
    gateway.release()
    # Those of all that had the name.
    assert sorted(global_addresses(gw)["right"]) == ["10.2.0.1", "10.2.1.1", "10.2.2.1", GATEWAY["right"][1]]
    assert settings(gw, "right")[("ipv4", "forwarding")] == "1"
    right.ping(GATEWAY["right"][0], count=1)
    left.ping(HOST["right"][0], count=1)


def test_an_interface_that_comes_after_the_start_is_taken_over(machine, make):
    gw, left, right = machine
    gateway = make()
    gw.ip("link", "del", "right")
    with gateway:
        assert "there is no interface right" in gateway.log()
        left.ping(OURS["left"], count=1)
        make_new(gw, "right", right, "10.2.1.1/24")
        wait_for_log(gateway, "INFO opened, as its interface has come")
        log = gateway.log()
        assert log.index("interface right is the gateway's alone") < log.index("INFO opened, as"), log
        silent(machine)
        right.ping(OURS["right"], count=1)
    gateway.release()
    assert "10.2.1.1" in global_addresses(gw)["right"]


def test_what_an_interface_made_anew_gets_in_the_next_moment_is_taken_too(machine, make):
    """As `ip link add` is followed by `ip addr add`, and udev applies sysctl.d to what is new."""
    gw, _, right = machine
    with make() as gateway:
        make_anew(gw, "right", right)
        wait_for_log(gateway, "INFO opened again")
        gw.ip("addr", "add", "10.2.1.1/24", "dev", "right")
        gw.sysctl("net.ipv4.conf.right.forwarding", 1)
        wait_for_log(gateway, "interface right is the gateway's alone", 3)
        silent(machine)
    gateway.release()
    assert "10.2.1.1" in global_addresses(gw)["right"]


def test_an_interface_that_cannot_be_taken_over_again_is_not_opened(machine, make):
    gw, _, right = machine
    with make() as gateway:
        record = gateway.state_path / "interfaces"
        whole = record.read_bytes()
        record.write_bytes(b"damaged")
        make_anew(gw, "right", right, "10.2.1.1/24")
        wait_for_log(gateway, "the interface was made anew and cannot be taken over again")
        assert f"{record}: damaged" in gateway.log()
        assert "INFO opened again" not in gateway.log()
        record.write_bytes(whole)
        wait_for_log(gateway, "INFO opened again")
        silent(machine)
    gateway.release()


def test_one_that_cannot_be_taken_in_the_next_moment_is_closed_again(machine, make):
    gw, _, right = machine
    with make() as gateway:
        record = gateway.state_path / "interfaces"
        make_anew(gw, "right", right)
        wait_for_log(gateway, "INFO opened again")
        whole = record.read_bytes()
        record.write_bytes(b"damaged")
        gw.sysctl("net.ipv4.conf.right.forwarding", 1)
        wait_for_log(gateway, "cannot be opened again, and is tried each second")
        assert gateway.json("link", "show", "right")[0]["operstate"] != "UP"
        record.write_bytes(whole)
        wait_for_log(gateway, "INFO opened again", 2)
        silent(machine)
        right.ping(OURS["right"], count=1)
    gateway.release()


def test_an_interface_that_is_made_anew_is_warned_of_where_none_is_owned(machine, make):
    gw, _, right = machine
    said = "interface right of port right: the kernel handles its packets too: it answers for 10.2.1.1/24"
    with make("--verbose") as gateway:
        make_anew(gw, "right", right, "10.2.1.1/24")
        wait_for_log(gateway, said)
        assert "it forwards IPv4 packets" in gateway.log()[gateway.log().index(said) :]
        # The same one is told of once.
        gw.ip("link", "set", "right", "down")
        gw.ip("link", "set", "right", "up")
        time.sleep(0.5)
        assert gateway.log().count(said) == 1


def test_a_directory_that_is_not_there(machine, tmp_path):
    with pytest.raises(CommandFailed, match="there is no state directory"):
        machine[0].run(binary(), "release-interfaces", tmp_path / "nowhere")


@pytest.mark.parametrize("family, host", [(4, HOST["left"][0]), (6, HOST["left"][1])])
@pytest.mark.parametrize("compatible", [1, 0])
def test_a_route_by_a_nexthop_object_is_refused_until_it_is_removed(machine, make, family, host, compatible):
    gw, *_ = machine
    gw.sysctl("net.ipv4.nexthop_compat_mode", compatible)
    to = {4: "10.95.0.0/16", 6: "fd95::/48"}[family]
    gw.ip(f"-{family}", "nexthop", "add", "id", "10", "via", host, "dev", "left")
    gw.ip(f"-{family}", "route", "add", to, "nhid", "10", "metric", "7")
    gateway = make()
    said = refused(machine, gateway, "--state-directory", gateway.state_path)
    command = f"ip -{family} route del {to} nhid 10 table 254 metric 7"
    assert f"route {to}" in said and f"`{command}`" in said, said
    gw.run(*command.split())
    before = everything(gw)
    with gateway:
        silent(machine)
    gateway.release()
    assert everything(gw) == before


def test_a_route_that_cannot_be_put_back_holds_up_nothing(machine, make):
    gw, *_ = machine
    gw.ip("link", "add", "more", "type", "veth", "peer", "name", "most")
    gw.ip("link", "set", "more", "up")
    gw.ip("addr", "add", "10.66.0.1/24", "dev", "more")
    gw.ip("route", "add", "10.96.0.0/16", "nexthop", "via", HOST["left"][0], "nexthop", "via", "10.66.0.2")
    kept = global_addresses(gw)
    with make() as gateway:
        pass
    gw.ip("link", "del", "more")
    said = gateway.release(check=False)
    assert said.returncode == 1 and "interface left: route 10.96.0.0/16: " in said.stderr, said
    assert "interface right is the kernel's again" in said.stdout
    kept.pop("more"), kept.pop("most")
    assert global_addresses(gw) == kept
    said = gateway.release("--forget")
    assert "route 10.96.0.0/16" in said.stderr and "it is forgotten" in said.stderr
    assert "interface left is the kernel's again" in said.stdout
    assert "nothing is recorded" in gateway.release(check=False).stderr


def test_permanent_and_proxy_neighbours_come_back(machine, make):
    gw, *_ = machine
    for words in (
        "neigh add 10.1.0.9 lladdr 02:00:00:00:00:09 dev left nud permanent",
        "-6 neigh add fd01::9 lladdr 02:00:00:00:00:09 dev left nud permanent",
        "neigh add proxy 10.1.0.77 dev left",
        "-6 neigh add proxy fd01::77 dev left",
    ):
        gw.ip(*words.split())

    def neighbours():
        asked = ("nud permanent dev left", "proxy dev left")
        return [gw.ip(f"-{family}", "neigh", "show", *words.split()).stdout for family in (4, 6) for words in asked]

    before = neighbours()
    assert all(before)
    with make() as gateway:
        for what in ("permanent neighbour 10.1.0.9", "proxy neighbour fd01::77"):
            assert f"taking the interfaces over ends the kernel's {what} on left" in gateway.log()
        assert not any(neighbours())
    gateway.release()
    assert neighbours() == before
