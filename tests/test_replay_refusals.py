"""What the gateway must not let through: each refusal has its name and its count, and the packets beside it pass."""

import pytest

from harness.algorithms import ALGORITHMS, CBC_SHA256, GCM, NULL_SHA256
from harness.config import Policy
from harness.forge import seal, trailer, wrap
from harness.replay import replay
from harness.site import datagram, from_host, from_peer, hop_later, inbound, outbound, site
from harness.tunnel import GUEST_INNER, LAN, Tunnel

IPV4, IPV6, NO_NEXT_HEADER, TCP = 4, 41, 59, 6

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)


class Conversation:
    """Honest packets of one tunnel with forged ones among them, in the order of arrival."""

    def __init__(self, algorithm=GCM, outer=4, inner=4):
        self.tunnel, self.outer, self.inner = Tunnel(algorithm, outer), outer, inner
        self.frames, self.honest = [], []

    def open(self, sequence):
        """An honest packet, sealed."""
        clear = inbound(self.outer, self.inner, b"honest %d" % sequence)
        return clear, self.seal(sequence, bytes(clear), IPV4 if self.inner == 4 else IPV6)

    def seal(self, sequence, payload, next_header, **lies):
        """A packet with a right ICV around what need not be right."""
        return seal(
            self.tunnel.to_gateway, sequence, trailer(payload, next_header, self.tunnel.algorithm.block, **lies)
        )

    def good(self, sequence):
        """Adds an honest packet, which must come out."""
        clear, sealed = self.open(sequence)
        self.honest.append(hop_later(clear))
        self.frames.append(from_peer(sealed))
        return sealed

    def bad(self, packet):
        """Adds a packet that must not come out."""
        self.frames.append(from_peer(packet))

    def check(self, directory, drops, config=None):
        """Replays, and demands these drops, and the honest packets whole and in order."""
        result = replay(directory, config or site([self.tunnel]), {"wan": self.frames}, ["lan", "wan"])
        assert result.drops == drops
        assert [bytes(frame.payload) for frame in result.frames("lan")] == self.honest


def spoiled(packet, position):
    """`packet` with one bit of its payload turned over."""
    data = bytearray(bytes(packet.payload))
    data[position] ^= 0x01
    return wrapped_like(packet, bytes(data))


def wrapped_like(packet, body):
    """`body` behind the outer header of `packet`."""
    copy = packet.copy()
    copy.remove_payload()
    for field in ("len", "plen", "chksum"):
        if field in copy.fields:
            delattr(copy, field)
    return copy / body


@every_algorithm
def test_a_changed_packet_has_a_bad_icv(tmp_path, algorithm):
    talk = Conversation(algorithm)
    talk.good(1)
    _, sealed = talk.open(2)
    length = len(sealed.payload)
    places = [9, length // 2, length - algorithm.icv_bytes - 1, length - algorithm.icv_bytes, length - 1]
    for place in places:
        talk.bad(spoiled(sealed, place))
    talk.good(2)
    talk.good(3)
    talk.check(tmp_path, {"esp_bad_icv": len(places)})


def test_a_forged_sequence_number_neither_passes_nor_moves_the_window(tmp_path):
    talk = Conversation()
    talk.good(1)
    _, sealed = talk.open(2)
    talk.bad(spoiled(sealed, 4))  # The top bits of the sequence number: far right of the window.
    talk.good(2)
    talk.check(tmp_path, {"esp_bad_icv": 1})


@every_algorithm
@pytest.mark.parametrize("outer", [4, 6], ids=["over-v4", "over-v6"])
def test_a_replayed_packet_is_dropped(tmp_path, algorithm, outer):
    talk = Conversation(algorithm, outer=outer, inner=outer)
    sealed = [talk.good(sequence) for sequence in (1, 2, 3)]
    talk.bad(sealed[0])
    talk.bad(sealed[2])
    talk.good(4)
    talk.bad(sealed[1])
    talk.check(tmp_path, {"esp_replayed": 3})


def test_packets_out_of_order_pass_inside_the_window_and_not_left_of_it(tmp_path):
    talk = Conversation()
    talk.good(100)
    for sequence in (99, 50, 37):
        talk.good(sequence)
    for sequence in (36, 35, 1):
        talk.bad(talk.open(sequence)[1])
    talk.good(101)
    talk.bad(talk.open(37)[1])
    talk.check(tmp_path, {"esp_too_old": 4})


def test_sequence_number_zero_is_never_valid(tmp_path):
    talk = Conversation()
    talk.bad(talk.open(0)[1])
    talk.good(1)
    result = replay(tmp_path, site([talk.tunnel]), {"wan": talk.frames}, ["lan"])
    assert sum(result.drops.values()) == 1
    assert [bytes(frame.payload) for frame in result.frames("lan")] == talk.honest


@every_algorithm
def test_too_short_for_esp(tmp_path, algorithm):
    talk = Conversation(algorithm)
    talk.good(1)
    _, sealed = talk.open(2)
    body = bytes(sealed.payload)
    lengths = [8, 9, 8 + algorithm.icv_bytes - 1]
    for length in lengths:
        talk.bad(wrapped_like(sealed, body[:length]))
    talk.good(2)
    talk.check(tmp_path, {"esp_truncated": len(lengths)})


@pytest.mark.parametrize("length", range(8))
def test_an_esp_header_that_is_not_whole(tmp_path, length):
    talk = Conversation()
    talk.good(1)
    talk.bad(wrapped_like(talk.open(2)[1], bytes(talk.open(2)[1].payload)[:length]))
    talk.good(2)
    result = replay(tmp_path, site([talk.tunnel]), {"wan": talk.frames}, ["lan"])
    assert sum(result.drops.values()) == 1
    assert set(result.drops) <= {"esp_truncated", "upper_truncated"}
    assert [bytes(frame.payload) for frame in result.frames("lan")] == talk.honest


def test_cipher_text_that_is_not_whole_blocks(tmp_path):
    talk = Conversation(CBC_SHA256)
    sealed = talk.good(1)
    talk.bad(wrapped_like(sealed, bytes(sealed.payload)[:-7]))
    talk.good(2)
    talk.check(tmp_path, {"esp_truncated": 1})


@pytest.mark.parametrize("algorithm", [GCM, CBC_SHA256, NULL_SHA256], ids=str)
def test_bad_padding(tmp_path, algorithm):
    talk = Conversation(algorithm)
    talk.good(1)
    clear = bytes(talk.open(2)[0])
    size = -(len(clear) + 2) % algorithm.block + algorithm.block
    right = bytes(range(1, size + 1))
    talk.bad(talk.seal(2, clear, IPV4, pad=b"\xff" + right[1:]))
    talk.bad(talk.seal(3, clear, IPV4, pad=right[:-1] + b"\x00"))
    talk.bad(talk.seal(4, clear, IPV4, pad=bytes(size)))
    talk.bad(talk.seal(5, clear, IPV4, pad=right, pad_length=255))
    talk.good(6)
    talk.check(tmp_path, {"esp_bad_padding": 4})


def test_long_padding_is_legal(tmp_path):
    talk = Conversation()
    clear = inbound(4, 4, b"padded")
    size = 254 - (len(clear) + 254 + 2) % 4
    talk.honest.append(hop_later(clear))
    talk.frames.append(from_peer(talk.seal(1, bytes(clear), IPV4, pad=bytes(range(1, size + 1)))))
    talk.check(tmp_path, {})


def test_what_is_inside_is_neither_ipv4_nor_ipv6(tmp_path):
    talk = Conversation()
    talk.good(1)
    talk.bad(talk.seal(2, bytes(talk.open(2)[0]), TCP))
    talk.bad(talk.seal(3, bytes(100), NO_NEXT_HEADER))
    talk.good(4)
    talk.check(tmp_path, {"esp_next_header": 1, "esp_dummy": 1})


def test_a_decrypted_packet_is_checked_like_any_other(tmp_path):
    talk = Conversation()
    talk.good(1)
    clear = bytes(talk.open(2)[0])
    talk.bad(talk.seal(2, clear[:12], IPV4))
    talk.bad(talk.seal(3, clear[:-1], IPV4))
    talk.bad(talk.seal(4, clear[:10] + b"\xde\xad" + clear[12:], IPV4))
    talk.bad(talk.seal(5, clear, IPV6))
    talk.good(6)
    talk.check(tmp_path, {"ip_truncated": 1, "ip_total_length": 1, "ip_header_checksum": 1, "ip_version": 1})


@pytest.mark.parametrize(
    "source, destination",
    [("192.168.99.1", LAN[4][2]), (GUEST_INNER[4, 4][1], "192.168.11.1"), (GUEST_INNER[6, 4][1], LAN[4][2])],
    ids=["source", "destination", "of-another-policy"],
)
def test_a_decrypted_packet_outside_its_policy(tmp_path, source, destination):
    talk = Conversation()
    talk.good(1)
    talk.bad(talk.seal(2, bytes(datagram(source, destination, b"smuggled")), IPV4))
    talk.good(3)
    other = Tunnel(CBC_SHA256, 6)
    talk.check(tmp_path, {"policy_wrong_selector": 1}, site([talk.tunnel, other]))


def test_no_sa_for_the_spi(tmp_path):
    talk = Conversation()
    talk.good(1)
    _, sealed = talk.open(2)
    talk.bad(spoiled(sealed, 3))
    talk.bad(wrap(talk.tunnel.to_gateway, bytes(64)))
    talk.good(2)
    talk.check(tmp_path, {"esp_no_sa": 2})


@pytest.mark.parametrize("outer, inner", [(4, 4), (4, 6)], ids=["v4", "v6"])
def test_a_clear_packet_that_must_be_protected(tmp_path, outer, inner):
    talk = Conversation(outer=outer, inner=inner)
    talk.good(1)
    talk.bad(inbound(outer, inner, b"clear"))
    talk.good(2)
    talk.check(tmp_path, {"policy_clear": 1})


def outbound_drops(directory, config, packet):
    """Drops by reason when the host sends `packet` between two that the tunnel takes."""
    honest = outbound(4, 4, b"honest")
    result = replay(
        directory, config, {"lan": [from_host(honest), from_host(packet), from_host(honest)]}, ["wan", "lan"]
    )
    assert len(result.frames("wan")) == 2
    return result.drops


def test_discard_no_match_and_no_sa_on_the_way_out(tmp_path):
    tunnel, without_sa = Tunnel(GCM, 4), Tunnel(GCM, 6)
    config = site([tunnel, without_sa])
    config.sas.remove(without_sa.to_guest)
    config.policies.insert(0, Policy("out", "0.0.0.0/0", "192.168.12.200/32", "discard", priority=1))
    cases = {
        "discard": (datagram(LAN[4][2], "192.168.12.200", b""), "policy_discard"),
        "no-match": (datagram(LAN[4][2], "192.168.11.1", b""), "policy_no_match"),
        "no-sa": (outbound(6, 4, b""), "esp_no_outbound_sa"),
    }
    for name, (packet, reason) in cases.items():
        assert outbound_drops(tmp_path / name, config, packet) == {reason: 1}, name


def test_the_smaller_priority_number_wins(tmp_path):
    config = site([Tunnel(GCM, 4)])
    config.policies.append(Policy("out", "0.0.0.0/0", "0.0.0.0/0", "discard", priority=10000))
    assert outbound_drops(tmp_path, config, datagram(LAN[4][2], "192.168.11.1", b"")) == {"policy_discard": 1}
