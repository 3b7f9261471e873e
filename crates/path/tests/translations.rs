//! NAT, with packets on their way through a whole gateway.

#[path = "fixture/built.rs"]
mod built;
mod fixture;

use std::collections::BTreeSet;
use std::sync::Arc;

use built::*;
use conntrack::CtState;
use fixture::*;
use packet::Time;
use pipeline::{Action, Change, Field, NatEnd, NatSpec, Owner, PortChoice};
use wire::Protocol;

#[test]
fn sources_are_translated_and_answers_find_their_way_back() {
    let mut gateway = gateway(masquerade("203.0.113.9"));
    for more in 0..3 {
        gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
        let (to, packet) = gateway.sent_one(WAN);
        assert_eq!((to, ends(&packet).as_str()), (PEER_MAC, "203.0.113.9:5000 192.168.12.7:53"));
        assert_checksums_are_right(&packet);
        gateway.receive(WAN, &udp(THERE, "203.0.113.9", (53, 5000), 10 + more));
        let (to, packet) = gateway.sent_one(LAN);
        assert_eq!((to, ends(&packet).as_str()), (HOST_MAC, "192.168.12.7:53 192.168.13.5:5000"));
        assert_checksums_are_right(&packet);
    }
    // Another host with the same port gets another one.
    gateway.receive(LAN, &udp("192.168.13.6", THERE, (5000, 53), 10));
    let (_, packet) = gateway.sent_one(WAN);
    assert_ne!(ends(&packet), "203.0.113.9:5000 192.168.12.7:53");
    assert!(ends(&packet).starts_with("203.0.113.9:"), "{}", ends(&packet));
    // TCP, and ping.
    gateway.receive(LAN, &segment((HERE, THERE), (4000, 80), 2, (1000, 0)));
    let (_, packet) = gateway.sent_one(WAN);
    assert_eq!(ends(&packet), "203.0.113.9:4000 192.168.12.7:80");
    assert_checksums_are_right(&packet);
    assert_eq!(counts(&gateway).connections, 3);
    // To the outside address, of nobody's connection.
    gateway.receive(WAN, &udp(THERE, "203.0.113.9", (54, 5000), 10));
    assert_eq!(gateway.drops(), [("flow_miss", 1)]);
    gateway.assert_nothing_lost();
}

#[test]
fn errors_about_translated_packets_reach_their_sender() {
    let mut gateway = gateway(masquerade("203.0.113.9"));
    gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
    let (_, translated) = gateway.sent_one(WAN);
    let mut error = vec![11, 0, 0, 0, 0, 0, 0, 0];
    error.extend(&translated[..28]);
    let sum = wire::checksum::checksum(&error);
    error[2..4].copy_from_slice(&sum.to_be_bytes());
    let error = packet(ip("198.51.100.1"), ip("203.0.113.9"), Protocol::ICMP, 64, &error);
    gateway.receive(WAN, &error);
    let (_, told) = gateway.sent_one(LAN);
    assert_eq!(told[12..20], [198, 51, 100, 1, 192, 168, 13, 5]);
    assert_eq!(wire::checksum::checksum(&told[20..]), 0);
    assert_eq!(told[40..48], [192, 168, 13, 5, 192, 168, 12, 7]);
    assert_eq!(told[48..52], [0x13, 0x88, 0, 53]);
    gateway.assert_nothing_lost();
}

#[test]
fn destinations_are_translated() {
    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let inside = Some(nat(NatEnd::Destination, HERE, Some((80, 80))));
    let mut gateway = gateway(vec![
        flow(0, 100, &[], &[ct(false, Some(1), Some(NatSpec::default()))]),
        flow(1, 20, &[state(est, NO)], &[Action::Normal]),
        flow(1, 10, &[state(new, NO), by(WAN)], &[ct(true, None, inside), Action::Normal]),
    ]);
    gateway.receive(WAN, &segment((THERE, "192.168.11.2"), (4000, 8080), 2, (1000, 0)));
    let (_, packet) = gateway.sent_one(LAN);
    assert_eq!(ends(&packet), "192.168.12.7:4000 192.168.13.5:80");
    assert_checksums_are_right(&packet);
    gateway.receive(LAN, &segment((HERE, THERE), (80, 4000), 0x12, (9000, 1001)));
    let (_, packet) = gateway.sent_one(WAN);
    assert_eq!(ends(&packet), "192.168.11.2:8080 192.168.12.7:4000");
    assert_checksums_are_right(&packet);
    gateway.assert_nothing_lost();
}

/// A port of the range is kept; one that is to be chosen follows from the packet's addresses and
/// ports, and not from its source's address alone.
#[test]
fn ports_of_destinations_are_kept_or_chosen() {
    let new = CtState::NEW | CtState::TRK;
    let ports = |choice: Option<PortChoice>| {
        let mut inside = nat(NatEnd::Destination, HERE, Some((8000, 8099)));
        Arc::make_mut(inside.new.as_mut().unwrap()).choice = choice;
        let mut gateway = gateway(vec![
            flow(0, 100, &[], &[ct(false, Some(1), Some(NatSpec::default()))]),
            flow(
                1,
                10,
                &[state(new, NO), by(WAN)],
                &[ct(true, None, Some(inside)), Action::Normal],
            ),
        ]);
        let mut ports = Vec::new();
        for source in 4000..4050 {
            gateway.receive(WAN, &udp(THERE, "192.168.11.2", (source, 8080), 10));
            let (_, packet) = gateway.sent_one(LAN);
            ports.push(u16::from_be_bytes([packet[22], packet[23]]));
        }
        gateway.assert_nothing_lost();
        ports
    };
    assert_eq!(ports(None), [8080; 50]);
    for choice in [PortChoice::Hash, PortChoice::Random] {
        let chosen = ports(Some(choice));
        assert!(chosen.iter().all(|port| (8000..8100).contains(port)), "{chosen:?}");
        let distinct: BTreeSet<_> = chosen.iter().collect();
        assert!(distinct.len() > 25, "{chosen:?}");
        assert_eq!(ports(Some(choice)), chosen, "the same of another gateway");
    }
}

/// By its key, the packet is none that the new flow matches.
#[test]
fn a_flow_that_matches_what_a_packet_is_translated_to_concerns_it() {
    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let inside = Some(nat(NatEnd::Destination, HERE, Some((80, 80))));
    let mut gateway = gateway(vec![
        flow(0, 100, &[], &[ct(false, Some(1), Some(NatSpec::default()))]),
        flow(1, 20, &[state(est, NO)], &[Action::Normal]),
        flow(1, 10, &[state(new, NO), by(WAN)], &[ct(true, None, inside), Action::Normal]),
    ]);
    let packets = || udp(THERE, "192.168.11.2", (4000, 8080), 10);
    gateway.receive(WAN, &packets());
    gateway.sent_one(LAN);
    gateway.receive(LAN, &udp(HERE, THERE, (80, 4000), 10));
    gateway.sent_one(WAN);
    for _ in 0..3 {
        gateway.receive(WAN, &packets());
        gateway.sent_one(LAN);
    }
    gateway.change(|tables| {
        let mut pipeline = tables.pipeline().clone();
        let here = (Field::NwDst, u128::from(v4(HERE).to_bits()), u128::from(u32::MAX));
        let drop = flow(1, 30, &[(Field::DlType, 0x0800, 0xffff), here], &[]);
        let change = Change::Add { flow: drop, check_overlap: false };
        pipeline.apply(change, Owner::User).unwrap();
        tables.set_pipeline(pipeline, Time(1_000_000_000)).unwrap();
    });
    gateway.receive(WAN, &packets());
    assert_eq!(gateway.sent(LAN), []);
    gateway.assert_nothing_lost();
}

/// As in Open vSwitch: what goes on behind `ct(table=1)` is the packet that the other way did not touch.
#[test]
fn a_packet_goes_on_untranslated_where_another_way_translates_it() {
    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let outside = Some(nat(NatEnd::Source, "203.0.113.9", None));
    let mut gateway = gateway(vec![
        flow(0, 100, &[], &[ct(false, Some(1), None), Action::Normal]),
        flow(1, 20, &[state(est, NO)], &[ct(false, Some(2), Some(NatSpec::default()))]),
        flow(1, 10, &[state(new, NO), by(LAN)], &[ct(true, None, outside)]),
    ]);
    let out = udp(HERE, THERE, (5000, 53), 10);
    for round in 0..4 {
        gateway.receive(LAN, &out);
        let (_, packet) = gateway.sent_one(WAN);
        assert_eq!(ends(&packet), "192.168.13.5:5000 192.168.12.7:53", "round {round}");
        if round == 0 {
            // Now it is established, and table 1 has the packet translated.
            gateway.receive(WAN, &udp(THERE, "203.0.113.9", (53, 5000), 10));
            gateway.sent(WAN);
        }
    }
    assert_eq!(counts(&gateway).connections, 1);
    gateway.assert_nothing_lost();
}

#[test]
fn a_hop_limit_that_runs_out_is_told_of_the_packet_as_it_came() {
    let mut gateway = gateway(masquerade("203.0.113.9"));
    let mut last = udp(HERE, THERE, (5000, 53), 10);
    last[8] = 1;
    wire::ipv4::fill_checksum(&mut last);
    gateway.receive(LAN, &last);
    assert_eq!(gateway.sent(WAN), []);
    let (_, told) = gateway.sent_one(LAN);
    assert_eq!(told[28 + 12..28 + 20], [192, 168, 13, 5, 192, 168, 12, 7]);
    gateway.assert_nothing_lost();
}

#[test]
fn fragments_of_a_translated_connection_are_made_whole_and_cut_again() {
    // No longer than they came, and not at all if they are shorter than any link needs.
    for (length, limit, expected) in
        [(2000, 1500, vec![1500, 548]), (1300, 640, vec![636, 636, 96]), (100, 68, vec![128])]
    {
        cut_again(length, limit, &expected);
    }
}

fn cut_again(length: usize, limit: u16, expected: &[usize]) {
    let mut gateway = gateway(masquerade("203.0.113.9"));
    for piece in pieces_of(&udp(HERE, THERE, (5000, 53), length), limit).iter().rev() {
        gateway.receive(LAN, piece);
    }
    let sent = gateway.sent(WAN);
    let lengths: Vec<_> = sent.iter().map(|(_, piece)| piece.len()).collect();
    assert_eq!(lengths, expected, "{:?}", gateway.drops());
    for (_, piece) in &sent {
        assert_eq!(piece[12..16], [203, 0, 113, 9]);
    }
    gateway.assert_nothing_lost();
}

#[test]
fn a_destination_is_translated_before_flows_see_its_route_and_then_the_source() {
    use pipeline::Exit;

    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let inside = Some(nat(NatEnd::Destination, "192.168.13.80", Some((80, 80))));
    let own = Some(nat(NatEnd::Source, "192.168.13.1", None));
    let outside = (Field::NwDst, u128::from(v4("203.0.113.9").to_bits()), u128::from(u32::MAX));
    let server = (Field::NwDst, u128::from(v4("192.168.13.80").to_bits()), u128::from(u32::MAX));
    let ip4 = (Field::DlType, 0x0800, 0xffff);
    let mut gateway = gateway(vec![
        flow(0, 100, &[], &[ct(false, Some(1), Some(NatSpec::default()))]),
        flow(1, 30, &[state(est, NO)], &[Action::Normal]),
        flow(1, 20, &[state(new, NO), ip4, outside], &[ct(true, Some(2), inside)]),
        flow(
            2,
            10,
            &[state(new | CtState::DNAT, NO), ip4, server, to(Exit::Port(LAN))],
            &[ct(true, None, own), Action::Normal],
        ),
    ]);
    gateway.change(|tables| {
        tables.set_neighbour(LAN, ip("192.168.13.80"), PEER_MAC).unwrap();
    });
    for round in 0..3 {
        let flags = if round == 0 { 2 } else { 0x10 };
        let number = 1000 + u32::from(round > 0);
        let out = segment((HERE, "203.0.113.9"), (4000, 8080), flags, (number, 9001));
        gateway.receive(LAN, &out);
        let (to, packet) = gateway.sent_one(LAN);
        assert_eq!(ends(&packet), "192.168.13.1:4000 192.168.13.80:80");
        assert_eq!(to, PEER_MAC);
        assert_checksums_are_right(&packet);
        let flags = if round == 0 { 0x12 } else { 0x10 };
        let number = 9000 + u32::from(round > 0);
        let back = segment(("192.168.13.80", "192.168.13.1"), (80, 4000), flags, (number, 1001));
        gateway.receive(LAN, &back);
        let (to, packet) = gateway.sent_one(LAN);
        assert_eq!(ends(&packet), "203.0.113.9:8080 192.168.13.5:4000");
        assert_eq!(to, HOST_MAC);
        assert_checksums_are_right(&packet);
    }
    assert_eq!(counts(&gateway).connections, 1);
    assert_eq!(gateway.drops(), []);
    gateway.assert_nothing_lost();
}
