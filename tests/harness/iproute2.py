"""The same command in iproute2's `ip` and in hitpath, and what became of each: its state in the same terms."""

import ipaddress
import json
import re
import shlex

from harness.config import Config, Port
from harness.gateway import Gateway, Here
from harness.netns import Namespace, run

PORTS = ("eth0", "eth1")

KERNEL_CANNOT = re.compile(
    r"Unknown device type|Requested type not found|algorithm not found|Operation not supported|"
    r"Protocol not supported|lwtunnel encapsulation .*not supported|lwt encapsulation|address-family not supported"
)
"""What `ip` says where the kernel of this machine was built without what a command needs."""


TOS = {"lowdelay": 16, "throughput": 8, "reliability": 4}
DSCP = {"le": 1, "cs1": 8, "cs2": 16, "cs4": 32, "af11": 10, "ef": 46}


SHOWN = ("route show table all", "rule", "addr", "link", "neigh show nud permanent")


class Linux:
    """A network namespace with two interfaces, and `ip`."""

    def __init__(self):
        self.space = Namespace("ip")
        for port in PORTS:
            self.space.ip("link", "add", port, "type", "veth", "peer", "name", f"{port}p")
            for end in (port, f"{port}p"):
                self.space.ip("link", "set", end, "addrgenmode", "none")
                self.space.ip("link", "set", end, "up")

    def run(self, words):
        """Runs `ip` with these words."""
        return self.space.ip(*words, check=False)

    def json(self, *words):
        """What `ip -j` says."""
        return json.loads(self.space.ip("-j", *words).stdout or "[]")

    def state(self):
        """Everything that commands can change, as a set of facts."""
        routes, rules, *rest = _documents(self.batch("-j", "-batch", *SHOWN))
        facts = facts_of("route", [route for route in routes if route.get("table") != "local"])
        facts |= facts_of("rule", rules) | facts_of("rule", self.json("-6", "rule"), "-6")
        for kind, records in zip(("address", "link", "neighbour"), rest, strict=True):
            facts |= facts_of(kind, records)
        facts |= states_of_text(self.batch("-batch", "xfrm state"))
        policies, _, defaults = self.batch("-batch", "xfrm policy", "xfrm policy getdefault").partition("Default")
        return facts | policies_of_text(policies) | defaults_of_text(defaults)

    def batch(self, *options_and_lines):
        """What `ip` says to lines in one go; options come first."""
        options = [word for word in options_and_lines if word.startswith("-")]
        lines = "\n".join(line for line in options_and_lines if not line.startswith("-")) + "\n"
        return run(["ip", "-n", self.space.name, *options, "-"], stdin=lines).stdout

    def records(self, kind, words):
        """What a command that shows something shows, as facts of this kind."""
        if kind in ("policy", "state"):
            text = self.space.ip(*words).stdout
            return policies_of_text(text) if kind == "policy" else states_of_text(text)
        if kind == "neighbour" and "get" in words:
            # iproute2 6.1 has no JSON of it.
            return facts_of(kind, [_neighbour_of_text(self.space.ip(*words).stdout)])
        return facts_of(kind, self.json(*words), "-6" if "-6" in words else "-4")

    def end(self):
        """Removes it."""
        self.space.remove()


class Hitpath:
    """A running gateway with two memory ports of the same names."""

    def __init__(self, directory):
        directory.mkdir()
        ports = [Port(name, []) for name in PORTS]
        self.gateway = Gateway(Here, Config(ports=ports), directory).__enter__()

    def run(self, words):
        """Runs `hitpath` with these words."""
        return self.gateway.run(*words, check=False)

    def json(self, *words):
        """What `hitpath -j` says."""
        return self.gateway.json(*words)

    def state(self):
        """Everything that commands can change, as a set of facts."""
        lines = [*SHOWN, "xfrm state", "xfrm policy", "xfrm policy getdefault"]
        done = self.gateway.run("-j", "batch", "-", stdin="\n".join(lines) + "\n")
        routes, rules, *rest, default = [one["answer"] for one in json.loads(done.stdout)["answers"]]
        facts = facts_of("route", [route for route in routes if route.get("type") not in ("local", "broadcast")])
        facts |= facts_of("rule", rules) | facts_of("rule", self.json("-6", "rule"), "-6")
        for kind, records in zip(("address", "link", "neighbour", "state", "policy"), rest, strict=True):
            facts |= facts_of(kind, records)
        return facts | {("default", way, default[way]) for way in ("in", "fwd", "out")}

    def records(self, kind, words):
        """What a command that shows something shows, as facts of this kind."""
        return facts_of(kind, self.json(*words), "-6" if "-6" in words else "-4")

    def end(self):
        """Stops it."""
        self.gateway.process.terminate()
        assert self.gateway.process.wait(10) == 0, self.gateway.log()
        self.gateway._log.close()


class Pair:
    """Both, in the same state."""

    def __init__(self, directory, given):
        self.linux, self.hitpath = Linux(), None
        self.cannot = False
        """Whether the kernel could not be brought into the state."""
        self.known = None
        """The state of both, while nothing has changed it."""
        try:
            self.hitpath = Hitpath(directory)
            for line in given:
                self.cannot |= self.both(line)
        except BaseException:
            self.end()
            raise

    def both(self, line):
        """Has both do a line, which has to be done. Returns whether the kernel cannot."""
        cannot = False
        for side in (self.linux, self.hitpath):
            done = side.run(shlex.split(line))
            cannot |= side is self.linux and bool(KERNEL_CANNOT.search(done.stderr))
            assert done.returncode == 0 or cannot and side is self.linux, f"{line}: {done.stderr}"
        return cannot

    def end(self):
        """Ends both."""
        self.linux.end()
        if self.hitpath:
            self.hitpath.end()


def _documents(text):
    """The JSON documents of a text, one behind the other."""
    found = []
    while text := text.strip():
        one, end = json.JSONDecoder().raw_decode(text)
        found.append(one)
        text = text[end:]
    return found


def facts_of(kind, records, family="-4"):
    """Records of `-j` as facts."""
    return {fact for record in records for fact in FACTS[kind](record, family)}


def _prefix(text):
    """A prefix in one way: that of one host without its length, all by its length."""
    network = ipaddress.ip_network({"default": "0.0.0.0/0"}.get(text, text), strict=False)
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


def _route(route, _):
    gateway = route.get("gateway") or route.get("via", {}).get("host")
    hops = frozenset((hop.get("gateway"), hop.get("dev"), hop["weight"]) for hop in route.get("nexthops", []))
    destination = route["dst"]
    is_v6 = ":" in destination + (gateway or "") or any(":" in (hop[0] or "") for hop in hops)
    if destination == "default" and (is_v6 or route.get("pref")):
        destination = "::/0"
    destination = _prefix(destination)
    if destination.startswith(("fe80:", "ff00:")):
        return
    kind, metric = route.get("type", "unicast"), route.get("metric", 0)
    # The kernel gives IPv6 routes a metric of their own where none is said, and routes that send nowhere the
    # device lo.
    metric = 0 if ":" in destination and metric in (256, 1024) else metric
    device = route.get("dev") if kind == "unicast" else None
    table = route.get("table", "main")
    source = route.get("prefsrc") if route.get("protocol") != "kernel" else None
    protocol = route.get("protocol", "boot")
    yield ("route", destination, kind, gateway, device, table, metric, source, protocol, hops)


ROUTE = ["", "", "", "via", "dev", "table", "", "src", "proto", ""]
"""The words by which routes are chosen, in the order of their facts: what is chosen, `ip` leaves out."""


def without_the_chosen(facts, words):
    """Routes and neighbours without what is the same in all of them."""
    left = {word for word in words if word in ROUTE} | ({"src"} if {"proto", "from"} & set(words) else set())
    left |= {"table"} if "vrf" in words else set()
    left -= {"table"} if "all" in words else set()
    if "dev" in words:
        facts = {(*fact[:2], None, *fact[3:]) if fact[0] == "neighbour" else fact for fact in facts}
    return {
        tuple(None if name in left else part for name, part in zip(ROUTE, fact, strict=True))
        if fact[0] == "route"
        else fact
        for fact in facts
    }


def _rule(rule, family):
    # Those that are there from the beginning.
    if rule["priority"] in (0, 32767) or rule.get("l3mdev") and rule["priority"] == 1000:
        return
    left_out = {"protocol", "family", "origin"}
    values = {name: str(value) for name, value in rule.items() if name not in left_out}
    # iproute2 says it by a member without a value.
    values |= {"l3mdev": "True"} if "l3mdev" in rule else {}
    # The same six bits, by the names of rt_dsfield or by those of the RFCs.
    if octet := values.pop("tos", None):
        values["dscp"] = str((TOS[octet] if octet in TOS else int(octet, 16)) >> 2)
    elif name := values.pop("dscp", None):
        values["dscp"] = str(DSCP[name] if name in DSCP else int(name, 0))
    yield ("rule", family, frozenset(values.items()))


def _address(link, _):
    for info in link.get("addr_info", []):
        local = info.get("local")
        # Every port of a gateway has a link-local address; the namespace's interfaces were told to have none.
        if link["ifname"] in PORTS and local and not local.startswith("fe80:"):
            yield ("address", link["ifname"], f"{ipaddress.ip_address(info['local'])}/{info['prefixlen']}")


def _link(link, _):
    name = link.get("ifname", "lo")
    # `ip -j link show type` has empty objects in place of the others.
    if name == "lo" or name in [f"{port}p" for port in PORTS] or link.get("linkinfo", {}).get("info_kind") == "vrf":
        return
    yield ("link", name, link.get("mtu"), "UP" in link.get("flags", []), link.get("master"))


def _neighbour(neighbour, _):
    states = frozenset(neighbour["state"])
    yield ("neighbour", neighbour["dst"], neighbour.get("dev"), neighbour.get("lladdr"), states)


def _state(state, _):
    yield ("state", state["src"], state["dst"], state["spi"], state["reqid"], state["mode"], state["replay_window"])


def _policy(policy, _):
    templates = tuple(
        (tmpl["src"], tmpl["dst"], tmpl.get("spi", 0), tmpl["reqid"], tmpl["mode"]) for tmpl in policy["tmpl"]
    )
    ports = tuple(policy.get(name) for name in ("proto", "sport", "dport", "type", "code"))
    ends = (_prefix(policy["src"]), _prefix(policy["dst"]))
    rest = (policy["dir"], policy["priority"], policy["action"], policy.get("if_id"))
    yield ("policy", *ends, *ports, *rest, templates)


FACTS = {
    "route": _route,
    "rule": _rule,
    "address": _address,
    "link": _link,
    "neighbour": _neighbour,
    "state": _state,
    "policy": _policy,
}


def _records(text):
    """The records of `ip xfrm`, each as one line: `-o` has them with backslashes, and as they are without."""
    for record in re.split(r"\n(?=src )", text.strip()):
        if record.startswith("src "):
            yield " ".join(record.replace("\\", " ").split())


def _word(record, name, default=None):
    found = re.search(rf"(?:^| ){name} (\S+)", record)
    return found.group(1) if found else default


def _neighbour_of_text(text):
    return {
        "dst": text.split()[0],
        "dev": _word(text, "dev"),
        "lladdr": _word(text, "lladdr"),
        "state": [text.split()[-1]],
    }


def policies_of_text(text):
    """The policies that `ip xfrm policy` prints."""
    found = []
    for record in _records(text):
        selector, _, rest = record.partition(" dir ")
        head, *templates = re.split(r" tmpl ", f"dir {rest}")
        policy = {name: _word(selector, name) for name in ("src", "dst", "proto", "sport", "dport", "type", "code")}
        policy |= {"dir": _word(head, "dir"), "priority": int(_word(head, "priority"))}
        policy |= {"action": _word(head, "action", "allow"), "if_id": _word(rest, "if_id")}
        policy["tmpl"] = [
            {
                "src": _word(tmpl, "src"),
                "dst": _word(tmpl, "dst"),
                "spi": int(_word(tmpl, "spi", "0"), 0),
                "reqid": int(_word(tmpl, "reqid")),
                "mode": _word(tmpl, "mode"),
            }
            for tmpl in templates
        ]
        found.append(policy)
    return facts_of("policy", found)


def states_of_text(text):
    """The SAs that `ip xfrm state` prints."""
    return {
        (
            "state",
            _word(record, "src"),
            _word(record, "dst"),
            int(_word(record, "spi"), 0),
            int(_word(record, "reqid")),
            _word(record, "mode"),
            int(_word(record, "replay-window", "0")),
        )
        for record in _records(text)
    }


def defaults_of_text(text):
    """What `ip xfrm policy getdefault` prints."""
    return {("default", *pair) for pair in re.findall(r"^ (in|fwd|out): +(\w+)$", text, re.M)}
