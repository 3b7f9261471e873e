"""`monitor`: what changes is told as it changes, in iproute2's lines, and nobody is held up."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from harness.gateway import Gateway, Here, binary
from harness.site import site

KEY = "0x1c0cf2bb72ce67ba245b593076dfb27a"
SA = f"xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x100 mode tunnel reqid 1 enc cbc(aes) {KEY} auth sha1 {KEY}"


@pytest.fixture
def gateway(tmp_path):
    """A gateway on memory ports."""
    with Gateway(Here, site(), tmp_path) as running:
        yield running


class Follower:
    """`hitpath ... monitor` that runs, as a context manager."""

    def __init__(self, gateway, *words):
        env = os.environ | {"HITPATH_SOCKET": str(gateway.socket)}
        self.process = subprocess.Popen(
            [binary(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(10)
        self.process.stdout.close()
        self.process.stderr.close()

    def read(self):
        """What it has printed so far."""
        try:
            self.text += self.process.stdout.read() or ""
        except TypeError:
            pass
        return self.text

    def wait(self, pattern):
        """Waits until it has printed this."""
        end = time.monotonic() + 10
        while not (found := re.search(pattern, self.read(), re.M)):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < end, f"no {pattern} in {self.text}"
            time.sleep(0.02)
        return found


def begun(follower, gateway, add, delete, pattern):
    """Changes something again and again until the follower says so."""
    end = time.monotonic() + 10
    while not re.search(pattern, follower.read(), re.M):
        assert time.monotonic() < end, follower.text
        gateway.run(*add.split())
        gateway.run(*delete.split())
        time.sleep(0.05)
    return follower


def test_lines_are_those_of_iproute2(gateway):
    port = gateway.json("show", "ports")[0]["name"]
    with Follower(gateway, "monitor") as follower:
        begun(follower, gateway, "route add 10.99.0.0/16 dev " + port, "route del 10.99.0.0/16", r"^Deleted 10\.99")
        gateway.run("route", "add", "10.2.0.0/16", "dev", port, "metric", "5")
        follower.wait(rf"^10\.2\.0\.0/16 dev {port} scope link metric 5$")
        gateway.run("route", "del", "10.2.0.0/16", "metric", "5")
        follower.wait(rf"^Deleted 10\.2\.0\.0/16 dev {port} scope link metric 5$")
        gateway.run("addr", "add", "203.0.113.1/24", "dev", port)
        follower.wait(rf"^{port}:    inet 203\.0\.113\.1/24 scope global {port}$")
        gateway.run("neigh", "add", "203.0.113.9", "lladdr", "02:00:00:00:00:09", "dev", port)
        follower.wait(rf"^203\.0\.113\.9 dev {port} lladdr 02:00:00:00:00:09 PERMANENT")
        gateway.run("neigh", "del", "203.0.113.9", "dev", port)
        follower.wait(r"^Deleted 203\.0\.113\.9")
        gateway.run("addr", "del", "203.0.113.1/24", "dev", port)
        follower.wait(rf"^Deleted {port}:    inet 203\.0\.113\.1/24")
        gateway.run("rule", "add", "from", "10.0.0.0/8", "lookup", "10", "priority", "100")
        follower.wait(r"^100:\s+from 10\.0\.0\.0/8 lookup 10")
        gateway.run("rule", "del", "priority", "100")
        follower.wait(r"^Deleted 100:")
        gateway.run("link", "set", port, "down")
        follower.wait(rf"^\d+: {port}: <.*>.*state DOWN")
        gateway.run("link", "set", port, "up")
        follower.wait(rf"^\d+: {port}: <.*UP.*>")
        told = follower.read().count(f": {port}: <")
        # What is up already does not change, nor what is set to what it is.
        gateway.run("link", "set", port, "up")
        gateway.run("link", "set", port, "mtu", "1500")
        gateway.run("vrf", "add", "red")
        follower.wait(r"^\d+: red: ")
        assert follower.read().count(f": {port}: <") == told, follower.text
        gateway.run("vrf", "del", "red")
        follower.wait(r"^Deleted \d+: red: ")
        assert "proto esp" not in follower.text


def test_what_is_replaced_by_the_same_has_not_changed(gateway):
    lan = gateway.json("show", "ports")[0]["name"]
    policy = "src 10.1.0.0/16 dst 10.2.0.0/16 dir out"
    for line in (
        f"route add 10.2.0.0/16 dev {lan}",
        f"addr add 203.0.113.1/24 dev {lan}",
        f"neigh add 203.0.113.9 lladdr 02:00:00:00:00:09 dev {lan}",
        f"link add link {lan} name {lan}.5 type vlan id 5",
        f"xfrm policy add {policy}",
    ):
        gateway.run(*line.split())
    add, delete = "route add blackhole 10.99.0.0/16", "route del 10.99.0.0/16"
    with Follower(gateway, "monitor", "all", "SA", "policy") as follower:
        begun(follower, gateway, add, delete, r"Deleted blackhole 10\.99")
        # Told in their order: what comes between the two marks is what was told meanwhile.
        gateway.run(*"vrf add begin".split())
        for line in (
            f"route replace 10.2.0.0/16 dev {lan}",
            f"route change 10.2.0.0/16 dev {lan}",
            f"addr replace 203.0.113.1/24 dev {lan}",
            f"neigh replace 203.0.113.9 lladdr 02:00:00:00:00:09 dev {lan}",
            f"link set {lan} up",
            f"link set {lan}.5 down",
            f"link set {lan} nomaster mtu 1500 rpf off mss off",
            "vrf set begin ipsec auto",
            f"xfrm policy update {policy}",
            "reload",
        ):
            gateway.run(*line.split())
        gateway.run(*"vrf add end".split())
        follower.wait(r"\d+: end: ")
        between = re.search(r"\d+: begin: [^\[]*(.*)\[LINK\]\d+: end: ", follower.text, re.S)
        assert between and between[1] == "", follower.text


def test_who_reads_no_more_is_not_printed_for(gateway, tmp_path):
    """As by `| head -n 1`: the next change ends it."""
    env = os.environ | {"HITPATH_SOCKET": str(gateway.socket)}
    follower = subprocess.Popen([binary(), "monitor", "route"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    end = time.monotonic() + 10
    follower.stdout.close()
    while follower.poll() is None:
        assert time.monotonic() < end
        gateway.run(*"route add blackhole 10.99.0.0/16".split())
        gateway.run(*"route del 10.99.0.0/16".split())
        time.sleep(0.2)
    with follower.stderr as said:
        assert (follower.returncode, said.read()) == (0, b"")


def test_sas_and_policies_without_keys(gateway):
    policy = "src 10.1.0.0/16 dst 10.2.0.0/16 dir out"
    with Follower(gateway, "xfrm", "monitor") as follower:
        begun(follower, gateway, f"xfrm policy add {policy}", f"xfrm policy del {policy}", r"^Deleted src 10\.1")
        gateway.run(*SA.split())
        follower.wait(r"^src 192\.0\.2\.1 dst 192\.0\.2\.2\s*\n\tproto esp spi 0x00000100")
        gateway.run("xfrm", "state", "flush")
        follower.wait(r"^Deleted src 192\.0\.2\.1 dst 192\.0\.2\.2\s*\n\tproto esp spi 0x00000100")
        gateway.run(*f"xfrm policy add {policy}".split())
        gateway.run(*f"xfrm policy update {policy} priority 7".split())
        follower.wait(r"^Updated src 10\.1\.0\.0/16 dst 10\.2\.0\.0/16[^D]*priority 7")
        assert KEY[2:] not in follower.text


def test_what_a_batch_takes_back_is_not_told(gateway, tmp_path):
    file = tmp_path / "commands"
    file.write_text("route add blackhole 10.1.0.0/16\nroute add blackhole 10.2.0.0/16\nroute del 10.1.0.0/16\n")
    wrong = tmp_path / "wrong"
    wrong.write_text("route add blackhole 10.3.0.0/16\nroute del 10.4.0.0/16\n")
    with Follower(gateway, "-j", "route", "monitor") as follower:
        begun(follower, gateway, "route add blackhole 10.99.0.0/16", "route del 10.99.0.0/16", r'"deleted":true')
        gateway.run("batch", "--atomic", wrong, check=False)
        gateway.run("batch", file)
        follower.wait(r"10\.2\.0\.0/16")
        objects = [json.loads(line) for line in follower.text.splitlines()]
    destinations = [it["is"]["dst"] for it in objects if not it.get("deleted")]
    assert destinations[-1] == "10.2.0.0/16" and set(destinations) <= {"10.99.0.0/16", "10.2.0.0/16"}
    assert {it["object"] for it in objects} == {"route"} and all(it["time"] > 1.7e18 for it in objects)


def test_reloads_families_labels_and_times(gateway):
    with Follower(gateway, "-t", "monitor", "all", "-6") as follower:
        begun(follower, gateway, "route add blackhole 2001:db8:99::/48", "route del 2001:db8:99::/48", r"Deleted blackhole 2001")
        text = gateway.config_path.read_text()
        gateway.write(f'{text}\n[[route]]\nto = "2001:db8:7::/48"\nkind = "blackhole"\n[[route]]\nto = "10.7.0.0/16"\nkind = "blackhole"\n')
        gateway.run("reload")
        follower.wait(r"^\[20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\] \[ROUTE\]blackhole 2001:db8:7::/48 proto static")
        gateway.write(text)
        gateway.run("reload")
        follower.wait(r"\[ROUTE\]Deleted blackhole 2001:db8:7::/48")
        assert "10.7" not in follower.text


def test_a_reload_tells_what_commands_would(gateway):
    """Ports and policies that the file has otherwise now."""
    policy = "[[policy]]\ndirection = \"out\"\naction = \"discard\"\nsource = \"10.1.0.0/16\"\nname = \"{}\"\n"
    with Follower(gateway, "monitor", "all", "SA", "policy") as follower:
        begun(follower, gateway, "route add blackhole 10.99.0.0/16", "route del 10.99.0.0/16", r"Deleted blackhole 10\.99")
        text = gateway.config_path.read_text()
        port = gateway.json("show", "ports")[0]["name"]
        for name, more, pattern in (
            ("p1", "", r"^\[POLICY\]src 10\.1\.0\.0/16"),
            ("p2", "", r"^\[POLICY\]Updated src 10\.1\.0\.0/16[^\[]*p2"),
            ("p2", "mtu = 1300\n", rf"^\[LINK\]\d+: {port}: .* mtu 1300 "),
            ("p2", "mtu = 1300\nup = false\n", rf"^\[LINK\]\d+: {port}: .* state DOWN"),
        ):
            begin = text.index("name =", text.index("[[port]]"))
            gateway.write(text[:begin] + more + text[begin:] + policy.format(name))
            gateway.run("reload")
            follower.wait(pattern)


def test_objects_have_the_members_of_their_lists(gateway):
    port = gateway.json("show", "ports")[0]["name"]
    adds = (
        f"route add 10.2.0.0/16 dev {port} metric 5",
        f"addr add 203.0.113.1/24 dev {port}",
        f"neigh add 203.0.113.9 lladdr 02:00:00:00:00:09 dev {port}",
        "rule add from 10.0.0.0/8 lookup 10 priority 100",
        "vrf add red",
        SA,
        "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out",
    )
    with Follower(gateway, "-j", "monitor", "all", "SA", "policy") as follower:
        begun(follower, gateway, "route add blackhole 10.99.0.0/16", "route del 10.99.0.0/16", r'"deleted":true')
        for line in adds:
            gateway.run(*line.split())
        follower.wait(r'"object":"policy"')
        told = {it["object"]: it["is"] for it in map(json.loads, follower.read().splitlines())}
    addresses = next(it for it in gateway.json("addr", "show") if it["ifname"] == port)["addr_info"]
    (address,) = [it | {"dev": port} for it in addresses if it["local"] == "203.0.113.1"]
    assert told["address"] == address
    (policy,) = [it for it in gateway.json("xfrm", "policy", "list") if it["src"] == "10.1.0.0/16"]
    del policy["position"]
    assert told["policy"] == policy
    for kind, words, own in (
        ("route", "route show", {"dst": "10.2.0.0/16"}),
        ("neigh", "neigh show", {"dst": "203.0.113.9"}),
        ("rule", "rule show", {"priority": 100}),
        ("link", "link show", {"ifname": "red"}),
        ("state", "xfrm state list", {"dst": "192.0.2.2"}),
    ):
        (listed,) = [it for it in gateway.json(*words.split()) if own.items() <= it.items()]
        # How long it is there, and what its packets meet, is told in a list alone.
        for member in ("age_seconds", "features"):
            listed.pop(member, None)
        assert told[kind] == listed


def test_a_slow_reader_is_told_what_it_lost_and_holds_nothing_up(gateway, tmp_path):
    reader = socket.socket(socket.AF_UNIX)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(str(gateway.socket))
    body = b"{}"
    reader.sendall(b"POST /v1/monitor HTTP/1.1\r\nhost: hitpath\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    assert b"200" in reader.recv(64)
    file = tmp_path / "commands"
    count = 60_000
    file.write_text("".join(f"route add blackhole 10.{at >> 8 & 255}.{at & 255}.0/24\n" for at in range(count)))
    begin = time.monotonic()
    gateway.run("batch", file, timeout=60)
    assert time.monotonic() - begin < 30
    reader.settimeout(10)
    data = b""
    end = time.monotonic() + 20
    while not (found := [int(it) for it in re.findall(rb'"event":"status","lost":(\d+)', data) if int(it)]):
        assert time.monotonic() < end
        data += reader.recv(1 << 20)
        gateway.run("route", "add", "blackhole", "172.16.0.0/16")
        gateway.run("route", "del", "172.16.0.0/16")
    reader.close()
    told = len(re.findall(rb'"event":"change"', data))
    assert found[0] > 0 and told + found[0] >= count * 0.9


def test_what_is_not_there_is_refused_by_name(gateway):
    for words, said in (
        (["monitor", "nsid"], "namespaces"),
        (["monitor", "mroute"], "multicast"),
        (["xfrm", "monitor", "expire"], "lifetimes"),
        (["xfrm", "monitor", "acquire"], "key daemon"),
        (["monitor", "frobnicate"], "expected all"),
    ):
        refused = gateway.run(*words, check=False)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr


def test_a_link_that_is_deleted_is_told_as_it_was(gateway):
    lan, wan = (port["name"] for port in gateway.json("show", "ports"))
    with Follower(gateway, "monitor", "link") as follower:
        begun(follower, gateway, "vrf add red", "vrf del red", r"^Deleted \d+: red: ")
        for line in (
            "vrf add red",
            f"link add link {lan} name {lan}.5 type vlan id 5",
            f"link set {lan}.5 up mtu 1400 master red",
            f"link del {lan}.5",
            f"link add x0 type xfrm dev {wan} if_id 7",
            "link set x0 up mtu 1300",
            "link del x0",
        ):
            gateway.run(*line.split())
        follower.wait(rf"^Deleted \d+: {lan}\.5@{lan}: <BROADCAST,MULTICAST,UP> mtu 1400 vlan master red state UP")
        follower.wait(
            rf"^Deleted \d+: x0@{wan}: <POINTOPOINT,UP> mtu 1300 xfrm state UP\n    link/none\n    side protected rpf off\n"
        )


def test_routes_are_told_that_go_dead_and_come_back(gateway):
    """With their port, with the route that leads to their next hop, and of any table."""
    lan, wan = (port["name"] for port in gateway.json("show", "ports"))
    add, delete = "route add blackhole 10.99.0.0/16", "route del 10.99.0.0/16"
    for line in (
        "vrf add red table 10",
        f"route add 10.1.0.0/16 via 192.168.11.9 dev {wan}",
        f"route add 10.2.0.0/16 dev {lan}",
        f"route add 10.3.0.0/16 nexthop via 192.168.11.9 dev {wan} nexthop via 192.168.13.9 dev {lan}",
        "route add 10.4.0.0/16 via 10.1.0.1 recursive",
        f"route add 10.5.0.0/16 via 192.168.11.9 dev {wan} table 77",
        f"route add 10.6.0.0/16 via 192.168.11.9 dev {wan} port-vrf main vrf red",
    ):
        gateway.run(*line.split())

    def between(*lines):
        """What the follower prints while these are done."""
        with Follower(gateway, "-4", "route", "monitor") as follower:
            begun(follower, gateway, add, delete, r"Deleted blackhole 10\.99")
            gateway.run(*"route add blackhole 10.98.0.0/16".split())
            for line in lines:
                gateway.run(*line.split())
            gateway.run(*"route del 10.98.0.0/16".split())
            follower.wait(r"^Deleted blackhole 10\.98")
        told = re.search(r"^blackhole 10\.98\.0\.0/16\n(.*)^Deleted blackhole 10\.98", follower.text, re.S | re.M)[1]
        return [line for line in told.splitlines() if not re.match(r"192\.168\.1[24]\.", line)]

    alive = [
        f"10.1.0.0/16 via 192.168.11.9 dev {wan}",
        "10.3.0.0/16",
        f"\tnexthop via 192.168.11.9 dev {wan} weight 1",
        f"\tnexthop via 192.168.13.9 dev {lan} weight 1",
        "10.4.0.0/16 via 10.1.0.1 recursive",
        f"\tresolved via 192.168.11.9 dev {wan}",
        f"10.6.0.0/16 via 192.168.11.9 dev {wan} vrf red",
        f"10.5.0.0/16 via 192.168.11.9 dev {wan} table 77",
    ]
    dead = [line + " dead" if wan in line or "recursive" in line else line for line in alive]
    dead[5] = "\tunresolved: there is no route to 10.1.0.1"
    assert sorted(between(f"link set {wan} down")) == sorted(dead)
    assert sorted(between(f"link set {wan} up")) == sorted(alive)
    # What is back when it is told has not changed; nor does an MTU change routes.
    assert between(f"link set {wan} mtu 1400") == []
    # A route that leads to another's next hop goes: both are told.
    gone = between("route del 10.1.0.0/16")
    assert gone == ["Deleted " + alive[0], dead[4], dead[5]], gone
