"""Replays: the forms of capture files, sameness of two runs, and what is said of files that are broken."""

import struct

import pytest
from scapy.layers.l2 import ARP
from scapy.utils import rdpcap

from harness.algorithms import CBC_SHA1, GCM
from harness.capture import RAW_IP, START, write_pcap, write_pcapng
from harness.gateway import binary
from harness.netns import run
from harness.replay import replay
from harness.site import from_host, from_peer, hop_later, inbound, outbound, site
from harness.tunnel import Tunnel

FORMS = {
    "pcap-micro": (write_pcap, {}),
    "pcap-nano": (write_pcap, {"nano": True}),
    "pcap-big-endian": (write_pcap, {"order": ">"}),
    "pcap-nano-big-endian": (write_pcap, {"nano": True, "order": ">"}),
    "pcapng-micro": (write_pcapng, {}),
    "pcapng-nano": (write_pcapng, {"nano": True}),
    "pcapng-big-endian": (write_pcapng, {"order": ">"}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("link", ["ethernet", "raw-ip"])
def test_every_form_of_capture_leads_to_the_same_packets(tmp_path, form, link):
    write, options = FORMS[form]
    clear = [outbound(4, 4, b"%d" % number) for number in range(20)]
    clear += [outbound(4, 6, b"%d" % number) for number in range(20)]
    path = tmp_path / "in.capture"
    if link == "raw-ip":
        write(path, clear, link=RAW_IP, **options)
    else:
        write(path, [from_host(packet) for packet in clear], **options)
    tunnel = Tunnel(GCM, 4)
    result = replay(tmp_path, site([tunnel]), {"lan": path}, ["wan"])
    assert result.drops == {}
    peer = tunnel.to_guest.scapy()
    opened = [bytes(peer.decrypt(frame.payload.__class__(bytes(frame.payload)))) for frame in result.frames("wan")]
    assert opened == [hop_later(packet) for packet in clear]


def test_time_is_the_captures(tmp_path):
    frames = [from_host(outbound(4, 4, b"")) for _ in range(10)]
    path = tmp_path / "in.pcap"
    write_pcap(path, frames, nano=True, spacing=1_234_567)
    result = replay(tmp_path, site([Tunnel(GCM, 4)]), {"lan": path}, ["wan"])
    times = [frame.time for frame in rdpcap(str(result.files["wan"]))]
    assert len(times) == 10
    assert all(abs(float(time) - START - number * 1_234_567e-9) < 1e-3 for number, time in enumerate(times))


def test_two_replays_with_one_seed_are_byte_identical(tmp_path):
    tunnel = Tunnel(CBC_SHA1, 4)
    peer = tunnel.to_gateway.scapy()
    inputs = {
        "lan": [from_host(outbound(4, 4, bytes(number))) for number in range(300)],
        "wan": [from_peer(peer.encrypt(inbound(4, 4, bytes(number)))) for number in range(300)],
    }
    results = [
        replay(tmp_path / name, site([tunnel]), inputs, ["lan", "wan"], ["--seed", seed])
        for name, seed in (("first", 7), ("second", 7), ("other", 8))
    ]
    files = [[result.files[port].read_bytes() for port in ("lan", "wan")] for result in results]
    assert files[0] == files[1]
    assert results[0].drops == results[1].drops == {}
    assert files[0][0] == files[2][0], "what is decrypted does not depend on the seed"
    assert files[0][1] != files[2][1], "initialisation vectors do"
    assert len(results[0].frames("lan")) == len(results[0].frames("wan")) == 300


def test_neighbours_may_be_assumed(tmp_path):
    config = site([Tunnel(GCM, 4)])
    config.neighbours = []
    frames = [from_host(outbound(4, 4, b""))] * 5
    assumed = replay(tmp_path / "assumed", config, {"lan": frames}, ["wan"], ["--assume-neighbours"])
    assert len(assumed.frames("wan")) == 5
    resolved = replay(tmp_path / "resolved", config, {"lan": frames}, ["wan"])
    assert [frame[ARP].pdst for frame in resolved.frames("wan")][:1] == ["192.168.11.1"]
    assert all(ARP in frame for frame in resolved.frames("wan"))


def test_what_a_person_reads_names_every_counter_that_moved(tmp_path):
    tunnel = Tunnel(GCM, 4)
    replay(
        tmp_path,
        site([tunnel]),
        {"lan": [from_host(outbound(4, 4, b""))], "wan": [from_peer(inbound(4, 4, b""))]},
        ["wan"],
    )
    shown = run(
        [
            binary(),
            "replay",
            "--config",
            tmp_path / "gw.toml",
            "--in",
            f"lan={tmp_path / 'lan-in.pcap'}",
            "--in",
            f"wan={tmp_path / 'wan-in.pcap'}",
            "--out",
            f"wan={tmp_path / 'again.pcap'}",
        ]
    ).stdout
    for word in ("policy_clear", "lan", "wan", "0x00002004"):
        assert word in shown
    assert "\x1b" not in shown


def good_capture(directory, write=write_pcap):
    """The bytes of an honest capture."""
    path = directory / "good"
    write(path, [from_host(outbound(4, 4, bytes(100)))] * 3)
    return path.read_bytes()


BROKEN = {
    "empty": lambda pcap, ng: b"",
    "not-a-capture": lambda pcap, ng: b"#!/bin/sh\necho hello\n" * 5,
    "header-cut": lambda pcap, ng: pcap[:20],
    "record-header-cut": lambda pcap, ng: pcap[: 24 + 9],
    "record-cut": lambda pcap, ng: pcap[:-1],
    "record-length-huge": lambda pcap, ng: pcap[:32] + struct.pack("<II", 0xFFFFFFF0, 0xFFFFFFF0) + pcap[40:],
    "unknown-link": lambda pcap, ng: pcap[:20] + struct.pack("<I", 147) + pcap[24:],
    "pcapng-cut": lambda pcap, ng: ng[:-5],
    "pcapng-block-length-zero": lambda pcap, ng: ng[:28] + struct.pack("<II", 1, 0) + ng[36:],
    "pcapng-block-length-huge": lambda pcap, ng: ng[:28] + struct.pack("<II", 1, 0xFFFFFFFC) + ng[36:],
    "pcapng-lengths-differ": lambda pcap, ng: ng[:-4] + struct.pack("<I", 4),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_capture_is_refused_with_its_name(tmp_path, case):
    broken = tmp_path / "broken.capture"
    broken.write_bytes(BROKEN[case](good_capture(tmp_path), good_capture(tmp_path, write_pcapng)))
    done = replay(tmp_path, site([Tunnel(GCM, 4)]), {"lan": broken}, ["wan"], check=False)
    assert done.returncode not in (0, 101) and done.returncode > 0
    assert "broken.capture" in done.stderr
    assert "panicked" not in done.stderr


@pytest.mark.parametrize(
    "wrong, word",
    [
        (["--in", "lan=/nowhere/in.pcap"], "/nowhere/in.pcap"),
        (["--in", "dmz=/dev/null"], "dmz"),
        (["--in", "lan"], "lan"),
    ],
    ids=["no-file", "no-port", "no-equals-sign"],
)
def test_wrong_arguments_are_refused_by_name(tmp_path, wrong, word):
    config = tmp_path / "gw.toml"
    config.write_text(site().render(tmp_path / "socket"))
    done = run([binary(), "replay", "--config", config, *wrong], check=False)
    assert done.returncode > 0 and word in done.stderr and "panicked" not in done.stderr


def test_an_output_is_not_left_half_written_over_its_input(tmp_path):
    """Reading and writing the same file would destroy it: that is refused, and the file is as it was."""
    path = tmp_path / "same.pcap"
    path.write_bytes(good_capture(tmp_path))
    config = tmp_path / "gw.toml"
    config.write_text(site().render(tmp_path / "socket"))
    done = run([binary(), "replay", "--config", config, "--in", f"lan={path}", "--out", f"wan={path}"], check=False)
    assert done.returncode > 0 and "same.pcap" in done.stderr
    assert path.read_bytes() == good_capture(tmp_path)


def test_the_report_has_counters_by_reason_policy_sa_and_port(tmp_path):
    result = replay(tmp_path, site([Tunnel(GCM, 4)]), {"lan": [from_host(outbound(4, 4, bytes(100)))] * 3}, ["wan"])
    assert {"drops", "policies", "sas", "ports"} <= set(result.report)
    assert result.sa_packets[0x2004] == 3
    assert 3 in [policy["packets"] for policy in result.report["policies"]]
