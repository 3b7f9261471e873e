"""Match-action tables beside Open vSwitch: the same flows and packets through both."""

import json
import random
import re
import subprocess
import tempfile

import pytest

from harness.openvswitch import OpenVSwitch, need_openvswitch
from harness.gateway import ROOT

SETS = 40
"""Sets of flows."""
PACKETS = 12
"""Packets through each."""


@pytest.fixture(scope="module")
def openvswitch():
    need_openvswitch()
    # In a directory with a short name, for the sockets.
    with tempfile.TemporaryDirectory(prefix="ovs", dir="/tmp") as directory, OpenVSwitch(directory) as switch:
        yield switch


@pytest.fixture(scope="module")
def flows():
    """The program that reads and traces flows with our tables."""
    built = subprocess.run(
        ["cargo", "build", "-q", "-p", "hitpath-pipeline", "--example", "flows", "--message-format", "json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    made = [json.loads(line) for line in built.stdout.splitlines()]
    program = next(line["executable"] for line in made if line.get("target", {}).get("name") == "flows")

    def run(*words, given):
        done = subprocess.run([program, *words], input=given, capture_output=True, text=True, timeout=60)
        assert not done.returncode, done.stderr
        return done.stdout.splitlines()

    return run


ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.1.1", "192.0.2.1"]
PREFIXES = ["10.0.0.0/24", "10.0.0.0/8", "10.0.0.1", "10.0.0.1/255.0.0.255", "10.0.0.8/29", "192.0.2.0/25"]
ADDRESSES_V6 = ["2001:db8::1", "2001:db8::2", "fd00::1"]
PREFIXES_V6 = ["2001:db8::/32", "2001:db8::1", "fd00::/8", "2001:db8::/ffff:ffff::1"]
PORTS = ["80", "0x50/0xfff0", "53", "1024/0xfc00", "0x1/0x1"]


class Flows:
    """Random flows that both know. No two of a table have the same priority: which of them counts
    is not defined."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        # Open vSwitch's trace goes on with the addresses from before a translation, though the
        # packet has new ones. So nothing follows one here.
        self.translates = self.some(0.4)

    def some(self, chance):
        return self.random.random() < chance

    def choice(self, values):
        return self.random.choice(values)

    def match(self, table):
        words = []
        protocol = self.choice(["", "ip", "ip", "tcp", "tcp", "udp", "icmp", "sctp", "ipv6", "tcp6", "icmp6", "arp"])
        if protocol:
            words.append(protocol)
        v4, v6 = protocol in ["ip", "tcp", "udp", "icmp", "sctp"], protocol in ["ipv6", "tcp6", "icmp6"]
        if self.some(0.3):
            words.append(f"in_port={self.choice([1, 2])}")
        for side in ["src", "dst"]:
            if v4 and self.some(0.3):
                words.append(f"nw_{side}={self.choice(PREFIXES)}")
            if v6 and self.some(0.3):
                words.append(f"ipv6_{side}={self.choice(PREFIXES_V6)}")
            if protocol in ["tcp", "udp", "sctp", "tcp6"] and self.some(0.25):
                words.append(f"tp_{side}={self.choice(PORTS)}")
        if v4 or v6:
            if self.some(0.1):
                words.append(f"nw_tos={self.choice([0, 184])}")
            if self.some(0.1):
                words.append(f"nw_ttl={self.choice([63, 64])}")
            if self.some(0.1):
                frag = self.choice(["no", "yes", "first", "not_later"])
                words.append(f"ip_frag={frag}")
        if protocol in ["tcp", "tcp6"] and self.some(0.3):
            words.append(f"tcp_flags={self.choice(['+syn-ack', '+ack', 'syn|ack', '0x2/0x17', '-rst'])}")
        if protocol in ["icmp", "icmp6"] and self.some(0.4):
            words.append(f"icmp_type={self.choice([8, 128, 0])}")
        if table and self.some(0.3):
            words.append(f"ct_state={self.choice(['+trk', '-trk', '+new+trk', '+est', '-est', 'new|trk'])}")
        if table and self.some(0.3):
            words.append(f"reg0={self.choice(['5', '0x5/0xf', '0', '0x100/0x100'])}")
        if self.some(0.1):
            words.append(f"pkt_mark={self.choice(['0', '7', '0x1/0x1'])}")
        return words, protocol, v4, v6

    def actions(self, table, protocol, v4, v6):
        made = []
        for _ in range(self.random.randint(0, 4)):
            later = [number for number in range(table + 1, 4)]
            kinds = ["output:1", "output:2", "output:3", "4", "IN_PORT", "load:5->NXM_NX_REG0[]",
                     "load:0x1->NXM_NX_REG0[8]", "set_field:7->pkt_mark", "ct_clear",
                     "move:NXM_NX_REG0[0..3]->NXM_NX_PKT_MARK[4..7]", "note:00.11"]
            if not self.translates:
                kinds += [f"resubmit(,{next})" for next in later]
                kinds += [f"resubmit({self.choice([1, 2])},{next})" for next in later]
            if v4:
                kinds += [f"mod_nw_src:{self.choice(ADDRESSES)}", f"set_field:{self.choice(ADDRESSES)}->nw_dst",
                          "load:0x1->NXM_OF_IP_DST[0..7]", "set_field:10.9.0.0/16->nw_src"]
            if v6:
                kinds += [f"set_field:{self.choice(ADDRESSES_V6)}->ipv6_src"]
            if v4 or v6:
                kinds += ["dec_ttl", "mod_nw_tos:184", "mod_nw_ttl:64", "set_field:3->ip_dscp", "ct(commit)",
                          "ct(commit,zone=NXM_NX_REG0[0..15])", "ct(commit,force,zone=9,exec(load:1->NXM_NX_CT_MARK[]))"]
                kinds += [f"ct(table={next})" for next in later] * 2
            if protocol in ["tcp", "tcp6"]:
                kinds += ["mod_tp_dst:80", "set_field:1024->tcp_src"]
            if protocol == "udp":
                kinds += ["mod_tp_src:53"]
            made.append(self.choice(kinds))
        if self.translates and table < 3 and (v4 or v6) and self.some(0.5):
            address = "10.0.0.9-10.0.0.11" if v4 else "fd00::9"
            if protocol in ["tcp", "udp", "sctp"] and self.some(0.5):
                address += ":80-90"
            end = self.choice(["src", "dst"])
            made.append(f"ct(commit,table={self.random.randint(table + 1, 3)},zone=3,nat({end}={address}))")
        elif table < 3 and self.some(0.15):
            made.append(f"goto_table:{self.random.randint(table + 1, 3)}")
        return ",".join(made) or "drop"

    def flow(self, number):
        table = self.choice([0, 0, 1, 1, 2, 3])
        words, *protocol = self.match(table)
        words = [f"table={table}", f"priority={1000 + number}", *words]
        return f"{','.join(words)} actions={self.actions(table, *protocol)}"

    def packet(self):
        protocol = self.choice(["tcp", "tcp", "udp", "icmp", "sctp", "tcp6", "icmp6", "arp"])
        words = [protocol, f"in_port={self.choice([1, 2])}", f"pkt_mark={self.choice([0, 1, 7])}"]
        if protocol == "arp":
            return ",".join(words)
        v6 = protocol.endswith("6")
        for side in ["src", "dst"]:
            words.append(f"ipv6_{side}={self.choice(ADDRESSES_V6)}" if v6 else f"nw_{side}={self.choice(ADDRESSES)}")
        words += [f"nw_tos={self.choice([0, 184])}", f"nw_ttl={self.choice([1, 63, 64, 64])}"]
        fragment = self.choice(["no", "no", "no", "first", "later"])
        words.append(f"ip_frag={fragment}")
        if fragment == "later":
            return ",".join(words)
        if protocol.startswith("icmp"):
            name = "icmpv6_type" if v6 else "icmp_type"
            return ",".join([*words, f"{name}={self.choice([0, 8, 128])}"])
        name = protocol.rstrip("6")
        words += [f"{name}_src={self.choice([80, 53, 1025])}", f"{name}_dst={self.choice([80, 81, 53, 2000])}"]
        if protocol.startswith("tcp"):
            words.append(f"tcp_flags={self.choice(['syn', 'syn|ack', 'ack', 'rst'])}")
        return ",".join(words)


def fields(text):
    """The fields of a packet by name, without those that are zero or only one of both writes."""
    found = {}
    for word in text.split(","):
        name, _, value = word.partition("=")
        found[name] = value
    zero = {"0", "0x0", "no", "0.0.0.0", "::"}
    left_out = {"vlan_tci", "dl_src", "dl_dst", "nw_ecn", "eth", "icmp_code", "ipv6_label",
                "arp_spa", "arp_tpa", "arp_op", "arp_sha", "arp_tha", "recirc_id", "metadata"}
    return {name: value for name, value in found.items() if name not in left_out and value not in zero}


def sorted_dump(lines):
    """Our flows as `dump-flows --no-stats` writes them, without actions."""
    return sorted(re.sub("^table=0, ", "", line.split(" actions=")[0]) for line in lines)


def test_random_flows_decide_the_same(openvswitch, flows, tmp_path):
    ways, drops, commits, translations = 0, 0, 0, 0
    for seed in range(SETS):
        made = Flows(seed)
        given = [made.flow(number) for number in range(made.random.randint(1, 40))]
        openvswitch.replace_flows(given)
        file = tmp_path / "flows"
        file.write_text("\n".join(given) + "\n")
        packets = [made.packet() for _ in range(PACKETS)]
        ours = flows("trace", file, given="\n".join(packets) + "\n")
        for packet, line in zip(packets, ours, strict=True):
            theirs, final, text = openvswitch.trace(packet)
            why = f"seed {seed}\n{chr(10).join(given)}\n{packet}\nours: {line}\n{text}"
            in_port = re.search(r"in_port=(\d)", packet)[1]
            ends = re.findall(r"(\d|in_port)\[[^]]*\]", line.split(" final[")[0])
            assert sorted(int(in_port if end == "in_port" else end) for end in ends) == theirs, why
            assert ("drop:" in line) == (not theirs), why
            last = line.rpartition("final[")[2].rstrip("]")
            if "nat(" not in text and final != "unchanged":
                assert fields(last) == fields(final), why
            ways += len(theirs)
            drops += not theirs
            commits += "ct(commit" in text
            translations += "to simulate NAT" in text
    # The sets are such that much happens.
    assert ways > SETS * PACKETS / 4 and min(drops, commits, translations) > 10, (ways, drops, commits, translations)


def test_random_flows_are_read_the_same(openvswitch, flows):
    for seed in range(10):
        made = Flows(1000 + seed)
        given = [made.flow(number) for number in range(60)]
        openvswitch.replace_flows(given)
        ours = flows("parse", given="\n".join(given) + "\n")
        assert not [line for line in ours if line.startswith("error")]
        assert sorted_dump(ours) == [re.sub("^ ", "", line) for line in openvswitch.dump_flows()]


WRONG = """\
priority=65536,actions=drop
ip,nw_src=10.0.0.1/33,actions=drop
ipv6,ipv6_src=2001:db8::/129,actions=drop
tcp,tp_dst=65536,actions=drop
in_port=p77,actions=drop
ct_state=+trk+foo,actions=drop
ip,ct_mark=0x100000000,actions=drop
reg0=0x100000000,actions=drop
foo=1,actions=drop
ip
actions=drop,output:1
actions=output:1,drop
actions=foo
actions=ct(commit)
ip,actions=ct(force)
ip,actions=ct(table=255)
ip,actions=ct(commit,nat(src=10.0.0.1,dst=10.0.0.2))
ip,actions=ct(commit,nat(src=10.0.0.9-10.0.0.1))
ip,actions=ct(commit,exec(load:1->NXM_NX_REG0[]))
ip,actions=ct(exec(load:1->NXM_NX_CT_MARK[]))
ip,actions=ct(nat(src=10.0.0.1))
udp,actions=ct(commit,alg=ftp)
tcp,actions=ct(commit,alg=tftp)
ip,ct_nw_src=10.0.0.1,actions=drop
ip,ct_state=+inv+trk,actions=ct(commit)
ip,actions=load:0x100->NXM_NX_REG0[0..7]
ip,actions=load:1->NXM_NX_REG0[0..32]
ip,actions=load:1->NXM_NX_REG0[8..0]
ip,actions=move:NXM_NX_REG0[0..7]->NXM_NX_REG1[0..6]
ip,actions=set_field:80->tcp_dst
tcp,actions=set_field:80->udp_dst
actions=mod_nw_src:10.0.0.1
actions=dec_ttl
actions=load:1->NXM_NX_CT_STATE[]
table=1,actions=goto_table:1
table=1,actions=goto_table:0
actions=goto_table:1,output:1
actions=resubmit(,)
actions=resubmit(,256)
actions=note:0
"""


def test_what_one_refuses_the_other_does(openvswitch, flows):
    given = WRONG.splitlines()
    ours = flows("parse", given=WRONG)
    for text, line in zip(given, ours, strict=True):
        openvswitch.run("ovs-ofctl", "del-flows", openvswitch.bridge)
        openvswitch.run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", openvswitch.bridge, text, check=False)
        assert line.startswith("error: column "), text
        assert not openvswitch.dump_flows(), text
