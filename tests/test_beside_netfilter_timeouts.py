"""The same packets through Linux's conntrack with timeout policies of nftables (`ct timeout`), and through
hitpath with a timeout policy of the zone that has the same values: what each connection has after each packet.
nft has such policies for TCP and UDP."""

import contextlib
import pprint
import time

import pytest

from harness.gateway import ROOT
from harness.wires import HEAD, OUT
from test_beside_netfilter import DATA, OPEN, SCRIPTS, C, S, longest, pair, tcp, udp

pytestmark = pytest.mark.namespaces

TCP = {
    "syn_sent": ("tcp-syn-sent", 1000), "syn_sent2": ("tcp-syn-sent", 1000), "syn_recv": ("tcp-syn-recv", 2000),
    "established": ("tcp-established", 20_000), "fin_wait": ("tcp-fin-wait", 4000),
    "close_wait": ("tcp-close-wait", 5000), "last_ack": ("tcp-last-ack", 6000), "time_wait": ("tcp-time-wait", 7000),
    "close": ("tcp-close", 8000), "unack": ("tcp-unacknowledged", 15_000), "retrans": ("tcp-unacknowledged", 15_000),
}
UDP = {"unreplied": ("udp", 9000), "replied": ("udp-stream", 10_000)}
"""What nft calls a timeout -> what hitpath does, and the seconds."""

VALUES = sorted({seconds for _, seconds in (TCP | UDP).values()})


def policy(name, protocol, of, family):
    said = ", ".join(f"{key}: {seconds}" for key, (_, seconds) in of.items())
    return f"ct timeout {name} {{ protocol {protocol}; l3proto {family}; policy = {{ {said} }}; }}\n"


CHAINS = "".join(
    policy(f"{protocol}-{family}", protocol, of, family)
    for protocol, of in (("tcp", TCP), ("udp", UDP)) for family in ("ip", "ip6")
) + """
chain policies {
    type filter hook prerouting priority -150;
    meta nfproto ipv4 meta l4proto tcp ct timeout set "tcp-ip"
    meta nfproto ipv6 meta l4proto tcp ct timeout set "tcp-ip6"
    meta nfproto ipv4 udp dport != MARKER ct timeout set "udp-ip"
    meta nfproto ipv6 udp dport != MARKER ct timeout set "udp-ip6"
}
"""

POLICY = """
[[conntrack.timeout-policy]]
name = "same"
zones = [0]
timeouts = { %s }
""" % ", ".join(f"{key} = {seconds}" for key, seconds in dict((TCP | UDP).values()).items())

PAUSE = "a stream of UDP begins after two seconds"

CASES = {
    name: script for name, script in SCRIPTS.items()
    if name in ("tcp-life", "tcp-life-v6", "tcp-server-closes", "tcp-both-close", "tcp-syn-again", "tcp-refused",
                "tcp-reset-exact", "tcp-reset-by-server", "tcp-reset-wild", "tcp-fin-wild", "tcp-crossing", "tcp-retransmission",
                "tcp-zero-window", "tcp-again-after-time-wait", "tcp-again-after-reset", "tcp-again-in-last-ack", "udp", "udp-in-fragments")
} | {
    "tcp-unacknowledged": tcp(*OPEN, *DATA, (C, "PA", {"data": b"data"}), (S, "A")),
    "udp-stream": [udp("left"), udp("right"), PAUSE, udp("left"), udp("right")],
    "udp-late-answer": [udp("left"), PAUSE, udp("right"), udp("left")],
    "udp-one-way": [udp("left"), PAUSE, udp("left")],
}
"""Name -> packets."""

EXPECTED = {
    "tcp-both-close": [(5, [("tcp", "TIME_WAIT", "[ASSURED]", 7000)], [("tcp", "LAST_ACK", "[ASSURED]", 6000)])],
    "tcp-refused": [(step, [], [("tcp", "CLOSE", "[UNREPLIED]", 8000)]) for step in (1, 3)],
    **{name: [(step, [("tcp", "ESTABLISHED", "[ASSURED]", 15_000)], [("tcp", "ESTABLISHED", "[ASSURED]", 20_000)])]
       for name, step in (("tcp-reset-wild", 8), ("tcp-fin-wild", 8), ("tcp-zero-window", 7))},
    "tcp-crossing": [(3, [("tcp", "SYN_RECV", 2000)], [("tcp", "ESTABLISHED", "[ASSURED]", 20_000)])],
    "tcp-again-in-last-ack": [(5, [("tcp", "LAST_ACK", "[ASSURED]", 6000)], [("tcp", "SYN_SENT", "[UNREPLIED]", 1000)])],
}
"""What differs: the states and timeouts that the document lists as differences from Linux, and nothing else."""

SHORT = [
    (1, [("tcp", "SYN_RECV", 500)], [("tcp", "SYN_RECV", 2000)]),
    (7, [("tcp", "FIN_WAIT", "[ASSURED]", 500)], [("tcp", "FIN_WAIT", "[ASSURED]", 4000)]),
    (9, [("tcp", "LAST_ACK", "[ASSURED]", 500)], [("tcp", "LAST_ACK", "[ASSURED]", 6000)]),
]
"""Of `tcp-life`, where unacknowledged data has the shortest timeout of all."""


def beside(directory, unacknowledged="15000"):
    """Linux and hitpath with these policies."""
    chains, settings = (text.replace("15000", unacknowledged) for text in (CHAINS, POLICY))
    return contextlib.contextmanager(pair)(directory, chains, HEAD + OUT, settings)


@pytest.fixture(scope="module")
def both(root, tmp_path_factory):
    with beside(tmp_path_factory.mktemp("timeouts")) as made:
        yield made


def differences(both, script, values=VALUES):
    """What differs after each packet: the step, what Linux has, what hitpath has; and how much was compared."""
    said, compared = [], 0
    for step, packet in enumerate(script):
        if packet == PAUSE:
            time.sleep(2.2)
            continue
        both.send(*packet)
        shown = [sorted((key[0], *state, longest(seconds, values)) for key, (state, seconds) in of.items())
                 for of in both.entries()]
        compared += len(shown[0])
        if shown[0] != shown[1]:
            said.append((step, *shown))
    return said, compared


@pytest.mark.parametrize("name", CASES)
def test_both_have_the_same_timeouts(both, name):
    both.flush()
    found, compared = differences(both, CASES[name])
    pprint.pprint(found, width=150)
    assert found == EXPECTED.get(name, [])
    assert compared


def test_data_that_is_not_acknowledged_shortens_the_timeout_of_an_established_connection_alone(root, tmp_path):
    with beside(tmp_path, "500") as both:
        found, _ = differences(both, CASES["tcp-life"], sorted([*VALUES, 500]))
    pprint.pprint(found, width=150)
    assert found == SHORT
    assert "shortens only the timeout of an established connection" in (ROOT / "docs" / "conntrack.md").read_text()
