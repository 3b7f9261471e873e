"""Linux's nftables and conntrack between two wires, as `harness.wires` has hitpath between two."""

import re
import shutil

from harness.needs import need
from harness.wires import FAR, HOSTS, MARKER, OWN, Ends

FORWARD = """
    chain forward {
        type filter hook forward priority 0; policy drop;
        udp dport MARKER accept
        ct state invalid drop
        ct state established,related accept
        ct state new iifname left accept
        ct status dnat accept
    }
"""
"""What `wires.HEAD` and `wires.OUT` say, in the words of nft."""

SETTINGS = {
    # As hitpath's default.
    "net.netfilter.nf_conntrack_tcp_loose": 0,
    "net.ipv4.conf.all.rp_filter": 0,
    "net.ipv4.conf.left.rp_filter": 0,
    "net.ipv4.conf.right.rp_filter": 0,
    "net.ipv4.conf.all.send_redirects": 0,
    "net.ipv4.conf.left.send_redirects": 0,
    "net.ipv4.conf.right.send_redirects": 0,
    "net.ipv4.icmp_ratelimit": 0,
    "net.ipv4.ip_forward": 1,
    "net.ipv6.conf.all.forwarding": 1,
}


def need_netfilter():
    """Skips, or fails in CI, where the kernel or the tools for it are missing."""
    for program, package in (("nft", "nftables"), ("conntrack", "conntrack")):
        need(shutil.which(program), f"the Debian package {package}")


class Netfilter(Ends):
    """A Linux router with connection tracking, as a context manager."""

    def __init__(self, topology, chains=""):
        self._middle = middle = self._attach(topology, "kernel", "kernel-")
        for side in FAR:
            middle.addresses(side, *OWN[side])
            for address in HOSTS[side]:
                self.neighbour(side, address)
        self.replace(chains)
        for name, value in SETTINGS.items():
            middle.sysctl(name, value)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._close()

    def replace(self, chains):
        """Makes the rules these, beside what `FORWARD` says."""
        text = (FORWARD + chains).replace("MARKER", str(MARKER))
        rules = f"""
        table inet gate
        delete table inet gate
        table inet gate {{
            chain raw {{ type filter hook prerouting priority -300; udp dport {MARKER} notrack; }}
            {text}
        }}"""
        done = self._middle.run("nft", "-f", "-", stdin=rules, check=False)
        need(done.returncode == 0, f"a kernel with nf_tables and nf_conntrack; nft: {done.stderr.strip()}")

    def neighbour(self, side, address):
        self._middle.ip("neigh", "replace", address, "lladdr", FAR[side], "dev", side, "nud", "permanent")

    def route(self, side, address):
        """Routes an address to a wire's far end."""
        self._middle.ip("route", "replace", address, "via", HOSTS[side][8 if ":" in str(address) else 0], "dev", side)

    def sysctl(self, name, value):
        self._middle.sysctl(name, value)

    def entries(self):
        """The connections as `read` has them."""
        return read(self.lines())

    def lines(self):
        """The connections as conntrack prints them."""
        lines = []
        for family in ("ipv4", "ipv6"):
            lines += self._middle.run("conntrack", "-L", "-f", family).stdout.splitlines()
        return lines

    def flush(self):
        self._middle.run("conntrack", "-F")


def read(lines):
    """Lines of `conntrack -L`: the tuples of a connection -> state, marks and timeout."""
    entries = {}
    for line in lines:
        words = line.split()
        tuples = tuple(word for word in words if re.match(r"(src|dst|sport|dport|type|code|id)=", word))
        state = [word for word in words[3:4] if "=" not in word]
        marks = sorted(word for word in words if word.startswith("["))
        entries[(words[0], *tuples)] = (*state, *marks), int(words[2])
    return entries
