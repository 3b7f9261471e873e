"""Open vSwitch's own cases of connections and NAT (`tests/system-traffic.at`), with hitpath in the place of
the switch. A case is what the file counts as one; docs/testing.md has the numbers and the reasons."""

import collections
import concurrent.futures
import importlib.util
import pprint
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from harness import system_traffic
from harness.gateway import ROOT
from harness.needs import need

pytestmark = pytest.mark.namespaces

PROGRAMS = {
    "m4": "m4", "nc": "ncat", "netstat": "net-tools", "arp": "net-tools", "curl": "curl",
    "ethtool": "ethtool", "tcpdump": "tcpdump", "in.tftpd": "tftpd-hpa", "ovs-ofctl": "openvswitch-switch",
}
"""What cases run -> the Debian package that has it."""

AT_ONCE = 6
"""Cases that run at the same time: they wait most of it."""

PASSED = {
    "IPv4 ping", "IPv6 ping", "preserve registers", "invalid", "zones", "zones from field", "ct_mark",
    "ct_mark bit-fiddling", "ct_mark from register", "ct_label", "ct_label bit-fiddling", "generic IP protocol",
    "ICMP related NAT with single port", "IPv4 fragmentation expiry", "IPv6 fragmentation expiry",
    "IPv6 fragmentation with fragments specified", "IPv4 HTTP", "simple SNAT", "SNAT with port range",
    "SNAT with port range using ICMP", "more complex SNAT", "simple DNAT", "more complex DNAT",
    "IPv4 fragmentation", "IPv6 fragmentation", "IPv4 Fragmentation + NAT", "IPv6 HTTP with DNAT", "IPv6 ICMP6 Related with SNAT", "ICMPv6 related NAT with single port",
    "multiple zones", "ct metadata, multiple zones", "IPv4 fragmentation with ct orig match",
    "IPv6 fragmentation with ct orig match", "SNAT with ct_mark change on reply", "DNAT with additional SNAT",
    "all-zero IP SNAT", "new connections", "ICMP related", "ICMP related to original direction",
    "ICMP from different source related with NAT", "Flush many conntrack entries by port",
    "FTP", "FTP non-standard port", "FTP with expectation dump", "FTP over IPv6", "IPv6 FTP Passive", "TFTP",
    "IPv4 FTP Passive with SNAT", "IPv4 FTP Passive with DNAT", "IPv4 FTP Passive with DNAT 2",
    "IPv4 FTP Active with DNAT", "IPv4 FTP Active with DNAT with reverse skew", "IPv6 FTP with SNAT",
    "IPv6 FTP Passive with SNAT", "IPv4 TFTP with SNAT",
}

FAILED = {
    "A translated identifier is a random one": {"SNAT with icmp_id"},
    "`NORMAL` is a router's": {"IPv6 HTTP", "resubmit to ct multiple times"},
    "A port takes frames for other stations only if a flow sends by it": {"Multiple ICMP traverse"},
    "A connection with a helper has one zone": {"FTP with multiple expectations"},
    "A related connection is matched by its own tuple": {"IPv6 FTP with SNAT - orig tuple"},
}
"""Why -> which cases fail for this reason."""

PARTS = {
    "packets of a controller, and `packet-out` with actions of its own": r"a controller|packet-out",
    "other commands of Open vSwitch": r"ovs-|compose-packet|dump-flows|a bridge without ports",
    "frames with VLAN tags": r"VLAN",
    "the local stack, other trackers, several bridges": r"local stack|another tracker|several bridges",
    "Ethernet addresses, neighbour discovery and `metadata` in flows": r"flows: `(nd_|eth_|metadata)",
}
"""What is not asked for -> what says so of a case that is left out."""


@pytest.fixture(scope="module")
def results(root):
    """Name -> `("passed" | "failed" | "left out", what was said)`."""
    need(importlib.util.find_spec("pyftpdlib"), "the Debian package python3-pyftpdlib")
    missing = {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    need(not missing, f"the Debian packages {', '.join(sorted(missing))}")
    # Names of sockets are short.
    with tempfile.TemporaryDirectory(prefix="ovs", dir="/tmp") as directory:
        sources = Path(directory) / "sources"
        sources.mkdir()
        if why := system_traffic.unpack(sources):
            # Nowhere is it for ever: Debian's sid goes on, and the numbers are of this version.
            pytest.skip(why)
        cases = system_traffic.cases(sources)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            made = [
                pool.submit(system_traffic.run, sources, Path(directory) / str(number), text)
                for number, text in enumerate(cases.values())
            ]
            yield {
                name.removeprefix("conntrack - "): one.result()
                for name, one in zip(cases, made)
            }


def test_each_case_ends_as_it_is_written_down(results):
    wanted = {name: "passed" for name in PASSED} | {name: "failed" for of in FAILED.values() for name in of}
    wrong = {
        name: (result, said[-3000:]) for name, (result, said) in results.items()
        if result != wanted.get(name, "left out")
    }
    pprint.pprint(wrong, width=150)
    assert not wrong and not wanted.keys() - results.keys()


def test_every_case_is_counted(results):
    ended = collections.Counter(result for result, _ in results.values())
    left_out = collections.Counter()
    for name, (result, said) in results.items():
        if result == "left out":
            parts = [part for part, pattern in PARTS.items() if re.search(pattern, said)]
            assert parts, (name, said)
            left_out[parts[0]] += 1
    text = (ROOT / "docs" / "testing.md").read_text()
    row = " | ".join(str(count) for count in (len(results), *(ended[word] for word in ("passed", "failed", "left out"))))
    assert f"| `system-traffic.at` | {row} |" in text, (ended, left_out)
    section = text.split("\n### system-traffic.at\n", 1)[1].split("\n### ", 1)[0]
    rows = {part: int(count) for part, count in re.findall(r"^\| (.+?) \| (\d+) \| .+ \|$", section, re.MULTILINE)}
    failed = {why: len(names) for why, names in FAILED.items()}
    assert rows == failed | dict(left_out), dict(left_out)
