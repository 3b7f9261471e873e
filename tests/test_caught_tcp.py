"""What other connection trackers were caught at with TCP, each with a real gateway and segments made
by hand."""

import pytest
from scapy.layers.inet import IP, TCP, UDP

from harness.wires import HEAD, OUT, Talk, Wires

pytestmark = pytest.mark.namespaces

FAMILIES = pytest.mark.parametrize(
    "ends",
    [("10.1.0.2", "10.2.0.2"), ("fd01::2", "fd02::2")],
    ids=["v4", "v6"],
)
WILD = [1 << 20, 1 << 31, -(1 << 20)]
"""How far a number is from what is right."""


@pytest.fixture
def wires(topology, tmp_path):
    with Wires(topology, tmp_path) as made:
        yield made


def talk(wires, ends=("10.1.0.2", "10.2.0.2"), **options):
    return Talk(wires, client=ends[0], server=ends[1], **options)


@FAMILIES
@pytest.mark.parametrize("flags", ["R", "RA", "FA"])
@pytest.mark.parametrize("by", ["client", "server"])
def test_a_wild_reset_or_fin_ends_nothing(wires, ends, by, flags):
    one = talk(wires, ends).opens()
    before = wires.gateway.drops().get("flow_drop", 0)
    for far in WILD:
        own = one.seq if by == "client" else one.ack
        assert not one.says(by, flags, seq=own + far), far
        assert one.state() == "ESTABLISHED"
    one.carries_data()
    assert wires.gateway.drops()["flow_drop"] == before + len(WILD)


def test_a_reset_in_the_window_is_left_to_the_receiver(wires):
    """RFC 5961: the receiver answers it with a challenge ACK, and only one at the very number ends."""
    one = talk(wires).opens()
    assert one.says("server", "R", seq=one.ack + 100)
    one.carries_data()
    assert one.says("client", "A")
    assert one.says("server", "R", seq=one.ack)
    assert one.state() == "CLOSE"


@FAMILIES
def test_a_syn_that_is_sent_again_removes_nothing(wires, ends):
    one = talk(wires, ends)
    assert one.says("client", "S")
    # Sent again before and after the answer, by the client and by somebody who guesses.
    assert one.says("client", "S", seq=one.seq - 1)
    assert one.says("server", "SA")
    assert one.says("client", "S", seq=one.seq - 1)
    assert one.says("client", "A") and one.state() == "ESTABLISHED"
    one.says("client", "S", seq=one.seq - 1)
    one.says("client", "S", seq=one.seq + (1 << 30))
    one.carries_data()
    assert len(wires.connections()) == 1


def test_a_forged_answer_from_outside_blocks_no_syn(wires):
    """Who guesses a connection that is about to be: neither before its SYN nor after."""
    one = talk(wires)
    for flags in ("A", "SA", "R", "RA", "FA"):
        assert not one.says("server", flags, seq=7, ack=99)
    assert wires.connections() == []
    assert one.says("client", "S")
    for flags in ("SA", "RA", "FA"):
        assert not one.says("server", flags, seq=7, ack=99), flags
    # It might be the challenge ACK of a host that has an older connection (RFC 9293 section 3.10.7.3).
    one.says("server", "A", seq=7, ack=99)
    assert one.says("client", "S", seq=one.seq - 1)
    assert one.says("server", "SA") and one.says("client", "A")
    one.carries_data()


@pytest.mark.parametrize("step", ["last-ack", "time-wait", "close"])
def test_a_port_is_used_again_right_after_the_end(wires, step):
    one = talk(wires).opens()
    if step == "close":
        assert one.says("client", "R")
    else:
        assert one.says("client", "FA") and one.says("server", "FA")
        if step == "time-wait":
            assert one.says("client", "A")
    states = {"last-ack": "LAST_ACK", "time-wait": "TIME_WAIT", "close": "CLOSE"}
    assert one.state() == states[step]
    again = talk(wires, seq=one.seq + 200_000, answer=5_000_000).opens()
    again.carries_data()
    # What is left of the one before ends nothing.
    assert not again.says("server", "FA", seq=one.ack, ack=one.seq)
    assert not again.says("server", "R", seq=one.ack)
    again.carries_data()
    again.closes()
    assert again.state() == "TIME_WAIT"


STRANGE = {
    "null": "",
    "xmas": "FPU",
    "full-xmas": "FSRPAU",
    "syn-fin": "SF",
    "syn-rst": "SR",
    "fin": "F",
    "fin-rst": "FR",
    "psh": "P",
    "urg": "U",
}


@FAMILIES
@pytest.mark.parametrize("kind", STRANGE)
def test_flags_that_nobody_sends_pass_nowhere(wires, ends, kind):
    one = talk(wires, ends)
    assert not one.says("client", STRANGE[kind])
    assert wires.connections() == []
    one.opens()
    assert not one.says("client", STRANGE[kind])
    assert not one.says("server", STRANGE[kind])
    one.carries_data()
    assert wires.gateway.drops()["flow_drop"] == 3


def test_both_may_open_at_once(wires):
    wires.replace(HEAD + OUT + OUT.replace("left", "right"))
    one = talk(wires)
    assert one.says("client", "S") and one.says("server", "S")
    assert one.says("client", "SA", seq=one.seq - 1) and one.says("server", "SA", seq=one.ack - 1)
    one.carries_data()


def test_data_that_came_too_early_or_too_late_passes_nowhere(wires):
    one = talk(wires).opens()
    for by in ("client", "server"):
        own = one.seq if by == "client" else one.ack
        assert not one.says(by, "PA", seq=own + 70_000, data=b"x")
        assert not one.says(by, "PA", seq=own - 200_000, data=b"x")
        assert not one.says(by, "A", ack=(one.ack if by == "client" else one.seq) + 10_000)
    one.carries_data()


def test_a_closed_window_is_probed_and_a_silent_peer_asked(wires):
    one = talk(wires).opens()
    one.carries_data()
    assert one.says("server", "A", window=0)
    assert one.says("client", "A", data=b"x")
    assert one.says("server", "A", ack=one.seq - 1, window=0)
    # Keepalives are one before what comes next, with and without an octet.
    assert one.says("client", "A", seq=one.seq - 2, data=b"x")
    assert one.says("client", "A", seq=one.seq - 2)
    assert one.says("server", "A", window=8192)
    one.carries_data()


def test_windows_are_scaled(wires):
    one = talk(wires)
    scale = lambda shift: [("MSS", 1460), ("WScale", shift)]
    assert one.says("client", "S", options=scale(7)) and one.says("server", "SA", options=scale(9))
    assert one.says("client", "A", window=1000) and one.says("server", "A", window=1000)
    # 512,000 and 128,000 octets are allowed; the window by itself would be 1,000.
    assert one.says("client", "A", seq=one.seq + 400_000, data=b"x", window=1000)
    assert one.says("server", "A", seq=one.ack + 100_000, data=b"x", window=1000)
    assert not one.says("server", "A", seq=one.ack + 600_000, data=b"x")
    assert one.state() == "ESTABLISHED"


@pytest.mark.parametrize("loose", [False, True])
def test_a_connection_in_the_middle_is_picked_up_if_that_is_wanted(topology, tmp_path, loose):
    with Wires(topology, tmp_path, extra=f"[conntrack]\nloose = {str(loose).lower()}\n") as wires:
        one = talk(wires)
        assert one.says("client", "A", data=b"in the middle") == loose
        assert one.says("server", "PA", data=b"answer") == loose
        assert one.state() == ("ESTABLISHED" if loose else None)


def test_data_may_come_with_the_syn(wires):
    """TCP Fast Open (RFC 7413): the server may take the data or not."""
    one = talk(wires)
    first = one.seq
    assert one.says("client", "S", data=b"GET /")
    assert one.says("server", "SA", ack=first + 1)
    one.seq = first + 1
    assert one.says("client", "PA", data=b"GET /")
    one.carries_data()
    two = talk(wires, sport=40001)
    assert two.says("client", "S", data=b"GET /")
    assert two.says("server", "SA", data=b"200") and two.says("client", "A")
    two.carries_data()


def test_a_bad_checksum_changes_no_state(wires):
    """A packet that its receiver will not take must not move the state either."""
    one = talk(wires).opens()
    packet = one.segment("server", "R")
    packet[TCP].chksum = 0x1234
    assert not wires.send("right", packet).left
    one.carries_data()
    udp = IP(src="10.1.0.2", dst="10.2.0.2") / UDP(sport=5, dport=6, chksum=0x1234) / b"x"
    assert not wires.send("left", udp).right
    assert wires.connection("-p", "udp") is None
