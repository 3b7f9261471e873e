//! Packets that leave by several ports, or by one several times.

mod fixture;
#[path = "fixture/flows.rs"]
mod flows;

use std::sync::Arc;
use std::time::Duration;

use fixture::*;
use flows::{counts, gateway};
use packet::DropReason;
use tables::{Qdisc, QdiscDevice};
use types::qdisc::Tbf;
use wire::{Addresses, Protocol, ethernet, headers};

const HERE: &str = "192.168.13.5";
const THERE: &str = "192.168.12.7";

/// Source, DSCP, TTL and ports of a UDP packet whose checksums are right.
fn look(packet: &[u8]) -> (String, u8, u8, u16) {
    let headers = headers::parse(packet).unwrap();
    let Addresses::V4 { source, .. } = headers.addresses else { panic!("{packet:?}") };
    let length = u32::try_from(packet.len() - 20).unwrap();
    let pseudo = wire::checksum::pseudo_header(&headers.addresses, Protocol::UDP, length);
    assert_eq!(wire::checksum::sum_with(&packet[20..], pseudo.into()), 0xffff);
    assert_eq!(wire::checksum::checksum(&packet[..20]), 0);
    let wire::Upper::Ports { destination, .. } = headers.upper else { panic!("{packet:?}") };
    (source.to_string(), packet[1] >> 2, packet[8], destination)
}

#[test]
fn each_copy_has_the_fields_of_the_moment_when_it_is_output() {
    let mut gateway = gateway(
        "udp,in_port=lan,actions=output:wan,mod_nw_tos:40,output:wan,mod_tp_dst:54,\
         mod_nw_src:10.9.9.9,NORMAL,mod_nw_ttl:9,IN_PORT",
    );
    let packet = udp(HERE, THERE, (5000, 53), 10);
    for _ in 0..20 {
        gateway.receive(LAN, &packet);
        let sent = gateway.sent(WAN);
        assert_eq!(sent.len(), 3, "{:?}", gateway.drops());
        assert_eq!(sent[0].1, packet);
        let looks: Vec<_> = sent.iter().map(|(_, packet)| look(packet)).collect();
        let here = || HERE.to_owned();
        assert!(looks.contains(&(here(), 0, 64, 53)) && looks.contains(&(here(), 10, 64, 53)));
        // The routed one has another hop behind it, and a header of its own.
        assert!(looks.contains(&("10.9.9.9".to_owned(), 10, 63, 54)), "{looks:?}");
        assert_eq!(sent.iter().filter(|(to, _)| *to == PEER_MAC).count(), 1);
        let (_, back) = gateway.sent_one(LAN);
        assert_eq!(look(&back), ("10.9.9.9".to_owned(), 10, 9, 54));
    }
    gateway.assert_nothing_lost();
    // The flow counts the packet, and not its copies.
    let tables = gateway.publisher.current();
    let id = tables.pipeline().sorted()[0].id;
    assert_eq!(tables.flow_meter(id).unwrap().counters.read().0, 20);
}

#[test]
fn the_two_ways_of_a_tracked_packet_are_two_copies() {
    let mut gateway = gateway(
        "udp,in_port=lan,actions=ct(commit,zone=1,table=1,nat(src=203.0.113.9)),output:wan
         table=1,udp,actions=output:wan
         udp,in_port=wan,actions=ct(zone=1,nat,table=2)
         table=2,ct_state=+est,udp,actions=ct(commit,zone=1,exec(load:1->ct_mark),table=3),output:lan
         table=3,ct_mark=1,udp,actions=output:lan",
    );
    let (out, back) = (udp(HERE, THERE, (5000, 53), 10), udp(THERE, "203.0.113.9", (53, 5000), 20));
    for _ in 0..5 {
        gateway.receive(LAN, &out);
        let sent = gateway.sent(WAN);
        assert_eq!(sent.len(), 2, "{:?}", gateway.drops());
        assert!(sent.iter().all(|(_, packet)| look(packet).0 == "203.0.113.9"));
        gateway.receive(WAN, &back);
        let sent = gateway.sent(LAN);
        assert_eq!(sent.len(), 2, "{:?}", gateway.drops());
        assert!(sent.iter().all(|(_, packet)| look(packet).3 == 5000));
    }
    assert_eq!(counts(&gateway).connections, 1);
    gateway.assert_nothing_lost();
}

#[test]
fn a_connection_is_made_if_one_copy_leaves() {
    let flows = |to| format!("udp,in_port=lan,actions=ct(commit),NORMAL,{to}");
    // Which no router sends on.
    let nowhere = udp(HERE, "169.254.7.7", (5000, 53), 10);
    let mut one = gateway(&flows("output:wan"));
    one.receive(LAN, &nowhere);
    one.sent_one(WAN);
    assert_eq!((one.drops(), counts(&one).connections), (vec![("link_local", 1)], 1));
    let mut none = gateway(&flows("NORMAL"));
    none.receive(LAN, &nowhere);
    assert_eq!((none.drops(), counts(&none).connections), (vec![("link_local", 2)], 0));
    one.assert_nothing_lost();
    none.assert_nothing_lost();
}

#[test]
fn a_translated_connection_stays_if_one_copy_leaves() {
    let mut gateway = gateway(
        "udp,in_port=lan,actions=ct(commit,nat(src=203.0.113.9),table=2)
         table=2,ip,actions=output:wan,NORMAL",
    );
    gateway.receive(LAN, &udp(HERE, "169.254.7.7", (5000, 53), 10));
    let (_, sent) = gateway.sent_one(WAN);
    assert_eq!(look(&sent).0, "203.0.113.9");
    assert_eq!((gateway.drops(), counts(&gateway).connections), (vec![("link_local", 1)], 1));
    gateway.assert_nothing_lost();
}

#[test]
fn a_copy_that_leaves_as_it_is_opens_a_connection_whatever_its_hop_limit() {
    let mut packet = udp(HERE, THERE, (5000, 53), 10);
    (packet[8], packet[10], packet[11]) = (1, 0, 0);
    let sum = wire::checksum::checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut one = gateway("udp,in_port=lan,actions=ct(commit),output:wan,NORMAL");
    one.receive(LAN, &packet);
    assert_eq!(one.sent_one(WAN).1, packet);
    assert_eq!((one.dropped(DropReason::HopLimit), counts(&one).connections), (1, 1));
    let mut none = gateway("udp,in_port=lan,actions=ct(commit),NORMAL");
    none.receive(LAN, &packet);
    assert_eq!((none.dropped(DropReason::HopLimit), counts(&none).connections), (1, 0));
}

#[test]
fn a_datagram_for_the_gateway_itself_is_copied_once() {
    let mut gateway = gateway("ip,in_port=lan,actions=output:wan,NORMAL");
    let pieces = pieces_of(&udp(HERE, "192.168.13.1", (5000, 53), 2000), 1500);
    pieces.iter().for_each(|piece| gateway.receive(LAN, piece));
    assert_eq!(gateway.sent(WAN).len(), pieces.len(), "{:?}", gateway.drops());
    assert_eq!(gateway.worker.statistics().reassembled.read(), 1, "{:?}", gateway.drops());
    gateway.assert_nothing_lost();
}

#[test]
fn arp_leaves_several_times() {
    let mut gateway = gateway("arp,actions=output:wan,output:lan,output:wan");
    let mut request = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0xaa, 0, 0, 0, 1, 192, 168, 13, 5];
    request.extend([0, 0, 0, 0, 0, 0, 192, 168, 13, 9]);
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0xaa, 0, 0, 0, 1, 8, 6]);
    frame.extend(&request);
    assert!(gateway.lan.push(&frame));
    gateway.poll();
    let sent: Vec<_> = std::iter::from_fn(|| gateway.wan.pop()).collect();
    assert_eq!(sent.len(), 2, "{:?}", gateway.drops());
    for copy in sent {
        assert_eq!(copy[..ethernet::HEADER_LENGTH + request.len()], frame);
    }
    assert_eq!(gateway.lan.pop(), None);
    gateway.assert_nothing_lost();
}

/// Frames that flows send as they came pass queueing disciplines as all others do, whether one or
/// several times.
#[test]
fn frames_pass_the_disciplines_of_their_port() {
    let flows = "in_port=lan,udp,tp_dst=1 actions=output:wan\n\
        in_port=lan,udp,tp_dst=2 actions=output:wan,output:wan\n\
        in_port=lan,arp actions=output:wan";
    let mut gateway = gateway(flows);
    let device = QdiscDevice::Port(WAN);
    // Two frames of 1000 bytes at once, and one in a millisecond.
    let tbf = Tbf { rate: 1_000_000, burst: 2000, limit: 50_000 };
    let root = ("1:".parse().unwrap(), Qdisc::Tbf(tbf));
    gateway.change(|tables| tables.set_qdisc(device, root, None).unwrap());
    for port in [1, 1, 1, 2] {
        gateway.receive(LAN, &udp(HERE, THERE, (9, port), 1000 - 14 - 28));
    }
    let counters =
        Arc::clone(&gateway.publisher.current().qdiscs().on(device).unwrap().root.counters);
    assert_eq!((counters.packets.read(), counters.queued.read()), (2, 3));
    assert_eq!(gateway.sent(WAN).len(), 2);
    while gateway.worker.held() > 0 {
        gateway.wait(Duration::from_millis(1));
    }
    assert_eq!((counters.packets.read(), counters.queued.read()), (5, 0));
    assert_eq!(gateway.sent(WAN).len(), 3);
    gateway.assert_nothing_lost();
}
