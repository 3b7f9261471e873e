"""The packetdrill scripts of the Linux kernel's netfilter selftests: the segments of each, with hitpath
between the two hosts. The kernel is one of the hosts there, so a line `>` is the client's here."""

import pytest

from harness.selftests import Script
from harness.wires import FAR, HEAD, OUT, Talk, Wires
from test_links import wait_until
from test_namespaces import both_families

pytestmark = pytest.mark.namespaces

SCRIPT = Script("netfilter/packetdrill", 12, {})

ENDS = {4: {"client": "10.1.0.2", "server": "10.2.0.2"}, 6: {"client": "fd01::2", "server": "fd02::2"}}
MTU = {4: 1500, 6: 1520}
"""Of the links, as in the script: so that a segment of 1460 bytes fits."""


@pytest.fixture
def wires(topology, tmp_path, family):
    with Wires(topology, tmp_path, HEAD + OUT) as made:
        for side in FAR:
            for label, interface in ((side, "eth0"), ("gw", side)):
                topology[label].ip("link", "set", interface, "mtu", MTU[family])
        wait_until(lambda: {row["mtu"] for row in made.gateway.json("show", "ports")} == {MTU[family]}, "the MTU")
        yield made


def invalid(wires):
    """How many packets the flow for invalid ones has dropped, which the table has counted as well."""
    dropped = wires.gateway.drops().get("flow_drop", 0)
    assert wires.statistics()["invalid"] == dropped
    return dropped


def conntrack_ack_loss_stall(wires, ends):
    """What is acknowledged already is let through when it is sent again: the ACKs were lost behind us."""
    one = Talk(wires, seq=0, answer=0, **ends)
    assert one.says("client", "S", window=32792) and one.says("server", "SA", window=65535)
    assert one.says("client", "A", window=65535)
    for _ in range(46):
        assert one.says("client", "PA", data=bytes(1460), window=257)
        assert one.says("server", "A", window=65535)
    assert one.seq == 67161
    assert one.says("client", "PA", seq=1, data=bytes(1460), window=257)
    assert one.says("server", "A", window=65535)
    assert invalid(wires) == 0


def conntrack_inexact_rst(wires, ends):
    """A reset that is not at the very number, once the connection closes, is not invalid."""
    one = Talk(wires, seq=0, answer=1, **ends)
    assert one.says("client", "S", window=65535) and one.says("server", "SA", window=65535)
    assert one.says("client", "A", window=65535)
    for _ in range(3):
        assert one.says("server", "A", data=bytes(1000), window=65535)
    assert one.says("client", "A", window=65535)
    assert one.says("client", "PA", data=bytes(1000), window=65535)
    assert one.says("server", "FA", window=65535) and one.says("client", "A", window=65535)
    assert one.state() == "CLOSE_WAIT"
    assert one.says("client", "RA", window=65535)
    assert one.state() == "CLOSE"
    assert one.says("server", "R", seq=one.ack - 1001, window=0)
    assert invalid(wires) == 0


def conntrack_rst_invalid(wires, ends):
    """Resets out of the window end nothing, and one at the very number does."""
    one = Talk(wires, seq=0, answer=1, **ends)
    assert one.says("client", "S", window=65535) and one.says("server", "SA", window=65535)
    assert one.says("client", "A", window=65535)
    for _ in range(3):
        assert one.says("server", "A", data=bytes(1000), window=65535)
    assert one.says("client", "A", window=65535)
    for number in (0, 1_000_000, 42):
        assert not one.says("server", "R", seq=number, window=0)
        assert one.state() == "ESTABLISHED"
    assert one.says("client", "PA", data=bytes(1000), window=65535)
    assert one.says("server", "A", window=65535)
    assert not one.says("server", "RA", seq=one.ack - 1, window=0)
    assert one.state() == "ESTABLISHED"
    assert one.says("server", "RA", window=0)
    assert one.state() == "CLOSE" and invalid(wires) == 4


def conntrack_syn_challenge_ack(wires, ends):
    """The challenge ACK of an older connection, and the reset that answers it, pass."""
    one = Talk(wires, seq=0, answer=0, **ends)
    assert one.says("client", "S", window=65535)
    assert one.says("server", "A", seq=145824453, ack=643160523, window=240)
    assert one.says("client", "R", seq=643160523, window=0)
    entry = one.entry()
    assert entry["state"] == "SYN_SENT" and "SEEN_REPLY" not in entry["status"]
    assert one.says("client", "S", seq=0, window=65535)
    assert one.says("server", "SA", window=250) and one.says("client", "A", window=256)
    assert one.entry()["state"] == "ESTABLISHED" and "ASSURED" in one.entry()["status"]
    assert invalid(wires) == 0


def conntrack_synack_old(wires, ends):
    """A SYN-ACK of an older connection is invalid, and the right one after it opens this."""
    one = Talk(wires, seq=0, answer=145758918, **ends)
    assert one.says("client", "S", window=65535)
    assert not one.says("server", "SA", seq=145824453, ack=643160523, window=240)
    assert one.says("client", "S", seq=0, window=65535)
    entry = one.entry()
    assert entry["state"] == "SYN_SENT" and "SEEN_REPLY" not in entry["status"]
    assert one.says("server", "SA", window=250)
    assert one.says("client", "PA", data=b"x", window=256)
    assert one.entry()["state"] == "ESTABLISHED" and "ASSURED" in one.entry()["status"]
    assert invalid(wires) == 1


def conntrack_synack_reuse(wires, ends):
    """A SYN in an established connection: challenge ACK, reset, and then a new connection."""
    one = Talk(wires, seq=0, answer=0, **ends)
    assert one.says("client", "S", window=32792) and one.says("server", "SA", window=65535)
    assert one.says("client", "A", window=257)
    assert one.says("client", "PA", data=bytes(100), window=257) and one.says("server", "A", window=256)
    assert one.says("client", "S", seq=2000, window=32792)
    assert one.says("server", "A", window=256)
    assert one.says("client", "RA", seq=101, window=257)
    again = Talk(wires, seq=2000, answer=700_000, **ends)
    assert again.says("client", "S", window=32792) and again.says("server", "SA", window=65535)
    assert again.state() == "SYN_RECV" and invalid(wires) == 0


CASES = [
    conntrack_ack_loss_stall,
    conntrack_inexact_rst,
    conntrack_rst_invalid,
    conntrack_syn_challenge_ack,
    conntrack_synack_old,
    conntrack_synack_reuse,
]


@both_families
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_segments_of_packetdrill(wires, case, family):
    case(wires, ENDS[family])


def test_every_case_is_counted():
    SCRIPT.demand_all_counted(passed=2 * len(CASES))
