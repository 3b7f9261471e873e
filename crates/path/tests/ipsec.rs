//! Tunnels: what is protected, what comes out, and what does not get in.

mod fixture;

use fixture::*;
use packet::DropReason;
use tables::{Action, DefaultAction, Direction, PolicySpec, UpperSelector};
use wire::{PortRange, Protocol, Upper, VrfId, headers};

const OUTER_V4: (&str, &str) = ("192.168.11.2", "192.168.11.1");
const OUTER_V6: (&str, &str) = ("fd11::2", "fd11::1");
const INNER_V4: (&str, &str) = ("192.168.13.5", "192.168.12.7");
const INNER_V6: (&str, &str) = ("fd13::5", "fd12::7");

fn every_family(test: impl Fn((&str, &str), (&str, &str), bool)) {
    for outer in [OUTER_V4, OUTER_V6] {
        for inner in [INNER_V4, INNER_V6] {
            for cbc in [false, true] {
                test(outer, inner, cbc);
            }
        }
    }
}

#[test]
fn outbound_packets_are_sealed() {
    every_family(|outer, inner, cbc| {
        let mut gateway = Gateway::new(tunnel_tables(outer, cbc));
        let peer = peer_inbound(0x1001, cbc);
        for payload in [0, 1, 700, 1300] {
            let original = udp(inner.0, inner.1, (5000, 53), payload);
            gateway.receive(LAN, &original);
            let (mac, sent) = gateway.sent_one(WAN);
            assert_eq!(mac, PEER_MAC);
            let parsed = headers::parse(&sent).unwrap();
            assert_eq!(parsed.addresses, addresses(ip(outer.0), ip(outer.1)));
            let opened = open(&peer, &sent);
            assert_eq!(headers::parse(&opened).unwrap().hop_limit, 63);
            let header = if inner == INNER_V4 { 20 } else { 40 };
            assert_eq!(opened[header..], original[header..]);
        }
        let policy = gateway.publisher.current();
        let out = policy
            .vrf(VrfId::MAIN)
            .unwrap()
            .spd
            .policies(Direction::Out)
            .map(|policy| policy.counters.read().0);
        assert_eq!(out.sum::<u64>(), 4);
        gateway.assert_nothing_lost();
    });
}

#[test]
fn inbound_packets_are_opened_and_delivered() {
    every_family(|outer, inner, cbc| {
        let mut gateway = Gateway::new(tunnel_tables(outer, cbc));
        let peer = peer_outbound(0x1002, cbc);
        let original = udp(inner.1, inner.0, (53, 5000), 300);
        gateway.receive(WAN, &seal(&peer, outer.1, outer.0, &original));
        let (mac, sent) = gateway.sent_one(LAN);
        assert_eq!(mac, HOST_MAC);
        assert_eq!(sent[40..], original[40..]);
        assert_eq!(headers::parse(&sent).unwrap().hop_limit, 63);
        gateway.assert_nothing_lost();
    });
}

#[test]
fn everything_wrong_with_an_esp_packet_has_its_counter() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    let peer = peer_outbound(0x1002, false);
    let inner = udp(INNER_V4.1, INNER_V4.0, (53, 5000), 100);
    let packet = |inner: &[u8]| seal(&peer, OUTER_V4.1, OUTER_V4.0, inner);

    let good = packet(&inner);
    gateway.receive(WAN, &good);
    gateway.receive(WAN, &good);
    assert_eq!(gateway.dropped(DropReason::EspReplayed), 1);

    let mut corrupt = packet(&inner);
    *corrupt.last_mut().unwrap() ^= 1;
    gateway.receive(WAN, &corrupt);
    assert_eq!(gateway.dropped(DropReason::EspBadIcv), 1);

    let stranger = peer_outbound(0x9999, false);
    gateway.receive(WAN, &seal(&stranger, OUTER_V4.1, OUTER_V4.0, &inner));
    assert_eq!(gateway.dropped(DropReason::EspNoSa), 1);

    let stub = fixture::packet(
        ip(OUTER_V4.1),
        ip(OUTER_V4.0),
        Protocol::ESP,
        64,
        &[0, 0, 0x10, 0x02, 0, 0, 1, 0, 1, 2],
    );
    gateway.receive(WAN, &stub);
    assert_eq!(gateway.dropped(DropReason::EspTruncated), 1);

    let early = packet(&inner);
    for _ in 0..100 {
        gateway.receive(WAN, &packet(&inner));
    }
    gateway.receive(WAN, &early);
    assert_eq!(gateway.dropped(DropReason::EspTooOld), 1);

    // The same tunnel, and an inner packet that its policy does not cover (RFC 4301 section 5.2).
    gateway.receive(WAN, &packet(&udp("10.9.9.9", INNER_V4.0, (53, 5000), 100)));
    assert_eq!(gateway.dropped(DropReason::PolicyWrongSelector), 1);

    // Not ESP at all, though a policy says that it must be.
    gateway.receive(WAN, &inner);
    assert_eq!(gateway.dropped(DropReason::PolicyClear), 1);

    assert_eq!(gateway.sent(LAN).len(), 101);
    let sa = gateway.publisher.current();
    let sa = sa.sad().inbound(VrfId::MAIN, ip(OUTER_V4.0), wire::Spi(0x1002)).unwrap();
    // The packet outside the selectors was opened: it counts as decrypted, and as dropped.
    assert_eq!((sa.counters.read().0, sa.errors.read().0), (102, 4));
    gateway.assert_nothing_lost();
}

#[test]
fn a_vrf_with_policies_discards_what_none_matches_unless_told() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    let stray = udp(INNER_V4.0, "8.8.8.8", (1, 2), 10);
    gateway.receive(LAN, &stray);
    assert_eq!(gateway.dropped(DropReason::PolicyNoMatch), 1);
    gateway.change(|tables| {
        tables.set_default_action(VrfId::MAIN, Direction::Out, DefaultAction::Accept).unwrap();
    });
    gateway.receive(LAN, &stray);
    gateway.sent_one(WAN);
    gateway.change(|tables| {
        tables.set_default_action(VrfId::MAIN, Direction::Out, DefaultAction::Block).unwrap();
        tables
            .add_policy(policy(Direction::Out, "0.0.0.0/0", "8.0.0.0/8", Action::Bypass))
            .unwrap();
    });
    gateway.receive(LAN, &stray);
    assert_eq!(headers::parse(&gateway.sent_one(WAN).1).unwrap().protocol, Protocol::UDP);
    gateway.assert_nothing_lost();
}

#[test]
fn the_smaller_priority_wins_and_ties_go_to_the_first() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    let mut discard = policy(Direction::Out, "192.168.13.0/24", "192.168.12.7/32", Action::Discard);
    gateway.change(|tables| _ = tables.add_policy(discard).unwrap());
    gateway.receive(LAN, &udp(INNER_V4.0, INNER_V4.1, (1, 2), 10));
    gateway.sent_one(WAN);
    gateway.change(|tables| {
        let index = tables
            .vrf(VrfId::MAIN)
            .unwrap()
            .spd
            .policies(Direction::Out)
            .find(|policy| policy.spec.action == Action::Discard)
            .unwrap()
            .index;
        tables.remove_policy(index).unwrap();
        for policy in tables
            .vrf(VrfId::MAIN)
            .unwrap()
            .spd
            .policies(Direction::Out)
            .map(|p| (p.index, p.spec))
            .collect::<Vec<_>>()
        {
            let (index, mut spec) = policy;
            spec.priority = 10;
            tables.update_policy(index, spec).unwrap();
        }
        discard.priority = 9;
        tables.add_policy(discard).unwrap();
    });
    gateway.receive(LAN, &udp(INNER_V4.0, INNER_V4.1, (1, 2), 10));
    assert_eq!(gateway.dropped(DropReason::PolicyDiscard), 1);
    gateway.receive(LAN, &udp(INNER_V4.0, "192.168.12.8", (1, 2), 10));
    gateway.sent_one(WAN);
}

#[test]
fn a_rekey_is_used_at_once_and_the_old_sa_still_opens() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    gateway.change(|tables| {
        add_sa(tables, OUTER_V4.0, OUTER_V4.1, 0x2001, false);
        add_sa(tables, OUTER_V4.1, OUTER_V4.0, 0x2002, false);
    });
    gateway.receive(LAN, &udp(INNER_V4.0, INNER_V4.1, (1, 2), 10));
    let (_, sent) = gateway.sent_one(WAN);
    assert_eq!(headers::parse(&sent).unwrap().upper, Upper::Spi(wire::Spi(0x2001)));
    for spi in [0x1002, 0x2002] {
        let inner = udp(INNER_V4.1, INNER_V4.0, (2, 1), 10);
        gateway.receive(WAN, &seal(&peer_outbound(spi, false), OUTER_V4.1, OUTER_V4.0, &inner));
        gateway.sent_one(LAN);
    }
    gateway.change(|tables| {
        _ = tables.remove_sa(VrfId::MAIN, ip(OUTER_V4.1), wire::Spi(0x2001)).unwrap();
    });
    gateway.receive(LAN, &udp(INNER_V4.0, INNER_V4.1, (1, 2), 10));
    let (_, sent) = gateway.sent_one(WAN);
    assert_eq!(headers::parse(&sent).unwrap().upper, Upper::Spi(wire::Spi(0x1001)));
}

#[test]
fn an_esp_packet_in_fragments_is_reassembled_first() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    let inner = udp(INNER_V4.1, INNER_V4.0, (53, 5000), 1000);
    let whole = seal(&peer_outbound(0x1002, false), OUTER_V4.1, OUTER_V4.0, &inner);
    let mut fragments: Vec<Vec<u8>> = wire::fragment::plan(&whole, 576)
        .unwrap()
        .map(|piece| {
            let mut out = vec![0; piece.total_length()];
            wire::fragment::write(&whole, &piece, &mut out).unwrap();
            out
        })
        .collect();
    assert!(fragments.len() > 1);
    fragments.reverse();
    for fragment in &fragments {
        gateway.receive(WAN, fragment);
    }
    assert_eq!(gateway.sent_one(LAN).1[20..], inner[20..]);
    assert_eq!(gateway.worker.statistics().reassembled.read(), 1);
    gateway.assert_nothing_lost();
}

#[test]
fn a_packet_too_large_for_its_tunnel_is_cut_before_it_is_sealed() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    let peer = peer_inbound(0x1001, false);
    gateway.receive(LAN, &udp(INNER_V4.0, INNER_V4.1, (5000, 53), 1460));
    let sent = gateway.sent(WAN);
    assert_eq!(sent.len(), 2);
    for (_, outer) in &sent {
        assert!(outer.len() <= 1500);
        assert!(headers::parse(&open(&peer, outer)).is_ok());
    }
    // With DF, the sender learns what fits: one byte more would not.
    let mut kept_whole = udp(INNER_V4.0, INNER_V4.1, (5000, 53), 1460);
    kept_whole[6] = 0x40;
    wire::ipv4::fill_checksum(&mut kept_whole);
    gateway.receive(LAN, &kept_whole);
    let (_, error) = gateway.sent_one(LAN);
    let mtu = usize::from(u16::from_be_bytes([error[26], error[27]]));
    for (length, count) in [(mtu, 1), (mtu + 1, 0)] {
        let mut fitting = udp(INNER_V4.0, INNER_V4.1, (5000, 53), length - 28);
        fitting[6] = 0x40;
        wire::ipv4::fill_checksum(&mut fitting);
        gateway.receive(LAN, &fitting);
        assert_eq!(gateway.sent(WAN).len(), count, "{length}");
    }
    gateway.assert_nothing_lost();
}

#[test]
fn later_fragments_follow_the_policy_of_their_first() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    gateway.change(|tables| {
        let mut discard =
            policy(Direction::Out, "192.168.13.0/24", "192.168.12.0/24", Action::Discard);
        discard.selector.protocol = Some(Protocol::UDP);
        discard.selector.upper = UpperSelector::Ports {
            source: PortRange::ALL,
            destination: PortRange::new(53, 53).unwrap(),
        };
        for p in tables
            .vrf(VrfId::MAIN)
            .unwrap()
            .spd
            .policies(Direction::Out)
            .map(|p| (p.index, p.spec))
            .collect::<Vec<_>>()
        {
            let (index, mut spec) = p;
            spec.priority = 10;
            tables.update_policy(index, spec).unwrap();
        }
        tables.add_policy(discard).unwrap();
    });
    let cut = |whole: &[u8]| -> Vec<Vec<u8>> {
        wire::fragment::plan(whole, 576)
            .unwrap()
            .map(|piece| {
                let mut out = vec![0; piece.total_length()];
                wire::fragment::write(whole, &piece, &mut out).unwrap();
                out
            })
            .collect()
    };
    // Payload bytes of the later fragments would read as port 53 and others if they were taken for
    // ports.
    for fragment in cut(&udp(INNER_V4.0, INNER_V4.1, (5000, 53), 1400)) {
        gateway.receive(LAN, &fragment);
    }
    assert_eq!(gateway.dropped(DropReason::PolicyDiscard), 3);
    assert!(gateway.sent(WAN).is_empty());
    let mut other = udp(INNER_V4.0, INNER_V4.1, (5000, 54), 1400);
    other[4..6].copy_from_slice(&[7, 7]);
    wire::ipv4::fill_checksum(&mut other);
    let fragments = cut(&other);
    for fragment in &fragments {
        gateway.receive(LAN, fragment);
    }
    assert_eq!(gateway.sent(WAN).len(), 3);
    // Without its first, nobody knows.
    other[4..6].copy_from_slice(&[9, 9]);
    wire::ipv4::fill_checksum(&mut other);
    gateway.receive(LAN, &cut(&other)[1]);
    assert_eq!(gateway.dropped(DropReason::FragmentUnknown), 1);
    gateway.assert_nothing_lost();
}

#[test]
fn an_error_about_a_decrypted_packet_goes_back_through_the_tunnel() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    let mut inner = udp(INNER_V4.1, INNER_V4.0, (53, 5000), 100);
    inner[8] = 1;
    wire::ipv4::fill_checksum(&mut inner);
    gateway.receive(WAN, &seal(&peer_outbound(0x1002, false), OUTER_V4.1, OUTER_V4.0, &inner));
    let (_, sent) = gateway.sent_one(WAN);
    let error = open(&peer_inbound(0x1001, false), &sent);
    let parsed = headers::parse(&error).unwrap();
    assert_eq!(parsed.addresses, addresses(ip("192.168.13.1"), ip(INNER_V4.1)));
    assert!(matches!(parsed.upper, Upper::Icmp { kind: 11, .. }));
    gateway.assert_nothing_lost();
}

#[test]
fn congestion_seen_on_the_way_is_told_or_the_packet_dropped() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    let peer = peer_outbound(0x1002, false);
    for (ecn, expected) in [(0b10, Some(0b11)), (0b01, Some(0b11)), (0b00, None)] {
        let mut inner = udp(INNER_V4.1, INNER_V4.0, (53, 5000), 100);
        wire::ipv4::set_traffic_class(&mut inner, ecn);
        let mut outer = seal(&peer, OUTER_V4.1, OUTER_V4.0, &inner);
        wire::ipv4::set_traffic_class(&mut outer, 0b11);
        gateway.receive(WAN, &outer);
        let sent = gateway.sent(LAN);
        assert_eq!(
            sent.first().map(|(_, packet)| headers::parse(packet).unwrap().traffic_class & 3),
            expected
        );
    }
    assert_eq!(gateway.dropped(DropReason::EspCongestion), 1);
    gateway.assert_nothing_lost();
}

/// A forged first fragment does not speak for a datagram that is on its way: whatever it says, no
/// fragment leaves by its policy.
#[test]
fn firsts_that_contradict_each_other_take_their_datagram_along() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    gateway.change(|tables| {
        let mut clear =
            policy(Direction::Out, "192.168.13.0/24", "192.168.12.0/24", Action::Bypass);
        clear.priority = 0;
        clear.selector.protocol = Some(Protocol::UDP);
        clear.selector.upper = UpperSelector::Ports {
            source: PortRange::ALL,
            destination: PortRange::new(53, 53).unwrap(),
        };
        tables.add_policy(clear).unwrap();
        let all: Vec<_> = tables
            .vrf(VrfId::MAIN)
            .unwrap()
            .spd
            .policies(Direction::Out)
            .map(|policy| (policy.index, policy.spec))
            .collect();
        for (index, spec) in all.into_iter().filter(|(_, spec)| spec.action != Action::Bypass) {
            tables.update_policy(index, PolicySpec { priority: 10, ..spec }).unwrap();
        }
    });
    let cut = |ports| -> Vec<Vec<u8>> {
        let whole = udp(INNER_V4.0, INNER_V4.1, ports, 1400);
        let plan = wire::fragment::plan(&whole, 576).unwrap();
        plan.map(|piece| {
            let mut out = vec![0; piece.total_length()];
            wire::fragment::write(&whole, &piece, &mut out).unwrap();
            out
        })
        .collect()
    };
    let (real, forged) = (cut((5000, 54)), cut((5000, 53)));
    gateway.receive(LAN, &real[0]);
    assert_eq!(gateway.sent(WAN).len(), 1);
    for fragment in [&forged[0], &real[1], &real[2], &real[0]] {
        gateway.receive(LAN, fragment);
        assert_eq!(gateway.sent(WAN), []);
    }
    assert_eq!(gateway.dropped(DropReason::FragmentContradicted), 4);
    gateway.assert_nothing_lost();
}

/// Where no policy asks for ports, the order of fragments does not matter.
#[test]
fn fragments_in_any_order_pass_where_no_policy_asks_for_ports() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    let whole = udp(INNER_V4.0, INNER_V4.1, (5000, 54), 1400);
    let mut fragments: Vec<Vec<u8>> = wire::fragment::plan(&whole, 576)
        .unwrap()
        .map(|piece| {
            let mut out = vec![0; piece.total_length()];
            wire::fragment::write(&whole, &piece, &mut out).unwrap();
            out
        })
        .collect();
    fragments.reverse();
    for fragment in &fragments {
        gateway.receive(LAN, fragment);
    }
    assert_eq!(gateway.sent(WAN).len(), fragments.len());
    assert_eq!(gateway.drops(), []);
}

/// An error from a router that no selector knows goes where an answer to the packet goes that it is
/// about: through the tunnel, or by a bypass policy, or nowhere (RFC 4301 section 6.2).
#[test]
fn icmp_errors_are_judged_by_what_they_quote() {
    let error = |from: &str, to: &str, quoted: &[u8]| {
        let mut rest = vec![3, 1, 0, 0, 0, 0, 0, 0];
        rest.extend(&quoted[..28.min(quoted.len())]);
        let sum = wire::checksum::checksum(&rest);
        rest[2..4].copy_from_slice(&sum.to_be_bytes());
        packet(ip(from), ip(to), Protocol::ICMP, 64, &rest)
    };
    let mut gateway = Gateway::new(tunnel_tables(OUTER_V4, false));
    gateway.change(|tables| set_side(tables, LAN, tables::Side::Unset));
    // About a packet that came by the tunnel, from a router behind the LAN that is in no selector.
    let came = udp(INNER_V4.1, INNER_V4.0, (53, 5000), 20);
    gateway.receive(LAN, &error("172.16.0.1", INNER_V4.1, &came));
    let (_, outer) = gateway.sent_one(WAN);
    let inner = open(&peer_inbound(0x1001, false), &outer);
    assert_eq!(inner[12..20], [172, 16, 0, 1, 192, 168, 12, 7]);
    // The same by the tunnel, about a packet that went out by it.
    let went = udp(INNER_V4.0, INNER_V4.1, (5000, 53), 20);
    let peer = peer_outbound(0x1002, false);
    let sealed = seal(&peer, OUTER_V4.1, OUTER_V4.0, &error("172.16.0.1", INNER_V4.0, &went));
    gateway.receive(WAN, &sealed);
    assert_eq!(gateway.sent(LAN).len(), 1);
    // In clear it is none of the tunnel's, whatever it quotes.
    gateway.receive(WAN, &error("172.16.0.1", INNER_V4.0, &went));
    assert_eq!(gateway.dropped(DropReason::PolicyClear), 1);
    // About a packet of somebody else, about one that no policy knows, and what is no error.
    let strange = udp("198.51.100.1", "203.0.113.1", (1, 2), 20);
    gateway.receive(LAN, &error("172.16.0.1", INNER_V4.1, &strange));
    let unknown = udp(INNER_V4.1, "172.16.0.9", (53, 5000), 20);
    gateway.receive(LAN, &error("172.16.0.1", INNER_V4.1, &unknown));
    gateway.receive(LAN, &echo("172.16.0.1", INNER_V4.1, 20));
    assert_eq!(gateway.dropped(DropReason::PolicyNoMatch), 3);
    assert_eq!((gateway.sent(LAN).len(), gateway.sent(WAN).len()), (0, 0));
    gateway.assert_nothing_lost();
}
