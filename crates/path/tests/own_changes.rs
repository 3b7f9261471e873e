//! A packet meets the flows that change its own connection, as it was when the packet came, and goes on as
//! they say. So do Open vSwitch's: the cases are held against it.

mod fixture;
#[path = "fixture/flows.rs"]
mod flows;

use std::slice;

use conntrack::Connection;
use fixture::*;
use flows::{counts, gateway};
use packet::{DropReason, Time};

const INSIDE: &str = "192.168.13.5";
const OUTSIDE: &str = "192.168.12.7";

const FIRST: &str = "table=0,priority=100,ip,actions=ct(table=1,nat)";

fn there(port: u16) -> Vec<u8> {
    udp(INSIDE, OUTSIDE, (port, 53), 20)
}

fn back(port: u16) -> Vec<u8> {
    udp(OUTSIDE, INSIDE, (53, port), 20)
}

/// Packets that each flow has counted, by the order of their lines.
fn counted(gateway: &Gateway, flows: &str) -> Vec<u64> {
    let tables = gateway.publisher.current();
    let mut entries: Vec<_> = tables.pipeline().entries().collect();
    entries.sort_by_key(|entry| entry.id);
    assert_eq!(entries.len(), flows.lines().count());
    let count = |id| tables.flow_meter(id).unwrap().counters.read().0;
    entries.into_iter().map(|entry| count(entry.id)).collect()
}

fn connections(gateway: &Gateway) -> Vec<Connection> {
    let tables = gateway.publisher.current();
    let table = tables.connections().unwrap();
    (0..table.settings().connections)
        .filter_map(|at| table.connection(at, Time(1_000_000_000)))
        .collect()
}

/// How many of some packets leave by the other port, one after the other.
fn leave(gateway: &mut Gateway, from: wire::PortId, packets: &[Vec<u8>]) -> usize {
    packets.iter().for_each(|packet| gateway.receive(from, packet));
    gateway.sent(if from == LAN { WAN } else { LAN }).len()
}

#[test]
fn an_answer_that_writes_a_mark_passes() {
    let flows = [
        FIRST,
        "table=1,priority=10,ct_state=+trk+new,ip,in_port=lan,actions=ct(commit),NORMAL",
        "table=1,priority=20,ct_state=+trk+est,ct_mark=0,ip,in_port=wan,actions=ct(commit,exec(set_field:1->ct_mark)),NORMAL",
        "table=1,priority=20,ct_state=+trk+est,ct_mark=1,ip,in_port=wan,actions=drop",
    ]
    .join("\n");
    let mut gateway = gateway(&flows);
    assert_eq!(leave(&mut gateway, LAN, &[there(7)]), 1);
    assert_eq!(leave(&mut gateway, WAN, &[back(7)]), 1);
    assert_eq!(connections(&gateway)[0].mark, 1);
    assert_eq!(leave(&mut gateway, WAN, &[back(7), back(7)]), 0);
    assert_eq!(counted(&gateway, &flows), [4, 1, 1, 2]);
    assert_eq!(gateway.dropped(DropReason::FlowDrop), 2);
    gateway.assert_nothing_lost();
}

/// An error is of its connection too.
#[test]
fn an_error_that_writes_a_mark_passes() {
    let flows = [
        FIRST,
        "table=1,priority=10,ct_state=+trk+new,ip,in_port=lan,actions=ct(commit),NORMAL",
        "table=1,priority=20,ct_state=+trk+rel,ct_mark=0,icmp,actions=ct(commit,exec(set_field:1->ct_mark)),NORMAL",
        "table=1,priority=20,ct_state=+trk+rel,ct_mark=1,icmp,actions=drop",
    ]
    .join("\n");
    let mut gateway = gateway(&flows);
    gateway.receive(LAN, &there(7));
    let (_, went) = gateway.sent_one(WAN);
    let mut error = vec![3, 1, 0, 0, 0, 0, 0, 0];
    error.extend(&went[..28]);
    let sum = wire::checksum::checksum(&error);
    error[2..4].copy_from_slice(&sum.to_be_bytes());
    let error = packet(ip("198.51.100.1"), ip(INSIDE), wire::Protocol::ICMP, 64, &error);
    assert_eq!(leave(&mut gateway, WAN, slice::from_ref(&error)), 1);
    assert_eq!(connections(&gateway)[0].mark, 1);
    assert_eq!(leave(&mut gateway, WAN, slice::from_ref(&error)), 0);
    assert_eq!(counted(&gateway, &flows), [3, 1, 1, 1]);
    assert_eq!(gateway.drops(), [("flow_drop", 1)]);
    gateway.assert_nothing_lost();
}

#[test]
fn a_mark_may_turn_with_every_packet() {
    let flows = [
        FIRST,
        "table=1,priority=10,ct_state=+trk+new,ip,in_port=lan,actions=ct(commit,nat(src=192.168.12.9)),NORMAL",
        "table=1,priority=20,ct_state=+trk+est,ct_mark=0,ip,actions=ct(commit,exec(set_field:1->ct_mark)),NORMAL",
        "table=1,priority=20,ct_state=+trk+est,ct_mark=1,ip,actions=ct(commit,exec(set_field:0->ct_mark)),NORMAL",
    ]
    .join("\n");
    let mut gateway = gateway(&flows);
    assert_eq!(leave(&mut gateway, LAN, &[there(7)]), 1);
    let answer = udp(OUTSIDE, "192.168.12.9", (53, 7), 20);
    for turn in 0..6 {
        assert_eq!(connections(&gateway)[0].mark, turn % 2, "{turn}");
        gateway.receive(WAN, &answer);
        let (_, sent) = gateway.sent_one(LAN);
        let headers = wire::headers::parse(&sent).unwrap();
        assert_eq!(headers.addresses.destination(), ip(INSIDE), "{turn}");
    }
    assert_eq!(counted(&gateway, &flows), [7, 1, 3, 3]);
    gateway.assert_nothing_lost();
}

#[test]
fn a_first_packet_does_not_meet_the_mark_that_it_gets() {
    for more in ["nat(src=192.168.12.9),", "alg=tftp,", "nat(dst=192.168.12.8),", ""] {
        let flows = [
            FIRST,
            "table=1,priority=50,ct_state=+trk,ct_mark=1,ip,in_port=lan,actions=drop",
            &format!(
                "table=1,priority=10,ct_state=+trk+new,udp,in_port=lan,\
                actions=ct(commit,{more}exec(set_field:1->ct_mark,set_field:0x5->ct_label)),NORMAL"
            ),
        ]
        .join("\n");
        let mut gateway = gateway(&flows);
        assert_eq!(leave(&mut gateway, LAN, &[there(7)]), 1, "{more}");
        let [connection] = &connections(&gateway)[..] else { panic!("{more}") };
        assert_eq!((connection.mark, connection.label), (1, 5));
        assert_eq!(leave(&mut gateway, LAN, &[there(7)]), 0, "{more}");
        assert_eq!(counted(&gateway, &flows), [2, 1, 1], "{more}");
        gateway.assert_nothing_lost();
    }
}

#[test]
fn a_first_packet_goes_on_into_a_second_zone_by_the_marks_that_it_came_with() {
    let flows = [
        FIRST,
        "table=1,priority=50,ct_state=+trk,ct_mark=1,ip,in_port=lan,actions=drop",
        "table=1,priority=10,ct_state=+trk+new,ip,in_port=lan,actions=ct(commit,exec(set_field:1->ct_mark)),ct(table=2,zone=9)",
        "table=2,priority=50,ct_state=+trk,ct_mark=2,ip,in_port=lan,actions=drop",
        "table=2,priority=10,ct_state=+trk+new,ip,in_port=lan,actions=ct(commit,zone=9,exec(set_field:2->ct_mark)),NORMAL",
    ]
    .join("\n");
    let mut gateway = gateway(&flows);
    assert_eq!(leave(&mut gateway, LAN, &[there(7)]), 1);
    let mut marks: Vec<_> = connections(&gateway).iter().map(|it| (it.zone, it.mark)).collect();
    marks.sort_unstable();
    assert_eq!(marks, [(0, 1), (9, 2)]);
    assert_eq!(leave(&mut gateway, LAN, &[there(7)]), 0);
    assert_eq!(counted(&gateway, &flows), [2, 1, 1, 0, 1]);
    gateway.assert_nothing_lost();
}

/// The new one would be that of addresses that the packet did not come with.
#[test]
fn a_translated_answer_begins_no_connection_anew() {
    let flows = [
        "table=0,priority=9,arp,actions=NORMAL",
        "table=0,priority=1,ip,actions=ct(table=1,nat)",
        "table=1,priority=10,ct_state=+trk+new,ip,in_port=lan,\
        actions=ct(commit,nat(src=203.0.113.5)),NORMAL",
        "table=1,priority=20,ct_state=+trk+rpl,ip,in_port=wan,actions=ct(commit,force),NORMAL",
    ]
    .join("\n");
    let mut gateway = gateway(&flows);
    assert_eq!(leave(&mut gateway, LAN, &[there(7)]), 1);
    let before = connections(&gateway);
    let answer = udp(OUTSIDE, "203.0.113.5", (53, 7), 20);
    assert_eq!(leave(&mut gateway, WAN, &[answer]), 0);
    assert_eq!(gateway.dropped(DropReason::FlowUnsupported), 1);
    assert_eq!(connections(&gateway).len(), 1);
    assert_eq!(connections(&gateway)[0].handle, before[0].handle);
    gateway.assert_nothing_lost();
}

#[test]
fn an_answer_may_begin_the_connection_anew() {
    for nat in ["", ",nat(src=192.168.13.9)"] {
        let flows = [
            FIRST,
            "table=1,priority=10,ct_state=+trk+new,ip,in_port=lan,actions=ct(commit),NORMAL",
            &format!(
                "table=1,priority=20,ct_state=+trk+rpl,ip,in_port=wan,\
                actions=ct(commit,force{nat}),NORMAL"
            ),
            "table=1,priority=20,ct_state=+trk+est-rpl,ip,in_port=wan,actions=NORMAL",
        ]
        .join("\n");
        let mut gateway = gateway(&flows);
        assert_eq!(leave(&mut gateway, LAN, &[there(7)]), 1);
        assert_eq!(leave(&mut gateway, WAN, &[back(7)]), 1, "{nat}");
        let [connection] = &connections(&gateway)[..] else { panic!("{nat}") };
        assert_eq!(connection.original.addresses.source(), ip(OUTSIDE));
        assert!(!connection.is_replied);
        assert_eq!(counted(&gateway, &flows), [2, 1, 1, 0], "{nat}");
        assert_eq!(counts(&gateway).connections, 1);
        gateway.assert_nothing_lost();
    }
}
