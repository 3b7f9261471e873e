//! Senders that mean harm: what they send must not harm anybody else.

mod fixture;

use fixture::*;
use packet::DropReason;
use tables::{Action, Direction, Event, PortSpec, RouteSpec, Side};
use wire::ndp::Message;
use wire::{Mac, Spi, Upper, VrfId, headers};

/// The gateway and its peer.
const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");

#[test]
fn packets_to_nobody_leave_buffers_for_everybody_else() {
    let mut tables = plain_tables();
    let mut spec = tables.port(LAN).unwrap().spec.clone();
    spec.addresses = vec![prefix("10.0.0.1/8")];
    tables.update_port(LAN, spec).unwrap();
    let mut gateway = Gateway::new(tables);
    for host in 0..200 {
        for _ in 0..40 {
            gateway.receive(WAN, &udp("8.8.8.8", &format!("10.1.1.{host}"), (1, 2), 10));
        }
        gateway.sent(LAN);
    }
    // The other port still resolves next hops, and packets still pass.
    gateway.change(|tables| _ = tables.remove_neighbour(WAN, ip("192.168.11.1")).unwrap());
    gateway.receive(LAN, &udp("10.0.0.5", "8.8.8.8", (1, 2), 10));
    gateway.sent_one(WAN);
    gateway.change(|tables| tables.set_neighbour(WAN, ip("192.168.11.1"), PEER_MAC).unwrap());
    gateway.poll();
    gateway.sent_one(WAN);
    assert!(gateway.worker.held() <= BUFFERS / 4, "{} held", gateway.worker.held());
    gateway.assert_nothing_lost();
}

/// The gateway of [`tunnel_tables`], with one tunnel for all of IPv6 and a peer that sends through
/// it.
fn all_v6_through_the_tunnel() -> (Gateway, esp::OutboundSa) {
    let mut tables = tunnel_tables(OUTER, false);
    let mine = Action::Protect(template(OUTER.0, OUTER.1));
    let theirs = Action::Protect(template(OUTER.1, OUTER.0));
    tables.add_policy(policy(Direction::Out, "::/0", "::/0", mine)).unwrap();
    tables.add_policy(policy(Direction::In, "::/0", "::/0", theirs)).unwrap();
    (Gateway::new(tables), peer_outbound(0x1002, false))
}

#[test]
fn what_came_protected_is_not_answered_in_clear_on_the_link() {
    let (mut gateway, peer) = all_v6_through_the_tunnel();
    for inner in [echo("fe80::99", "fd13::1", 56), udp("fe80::99", "fd13::1", (1, 2), 56)] {
        gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &inner));
        assert_eq!(gateway.sent(WAN), [], "neither an answer nor a question for its neighbour");
    }
    assert_eq!(gateway.dropped(DropReason::LinkLocal), 2);
    gateway.assert_nothing_lost();
}

#[test]
fn an_error_about_a_protected_packet_comes_from_an_address_that_is_known_there() {
    let (mut gateway, peer) = all_v6_through_the_tunnel();
    gateway.change(|tables| {
        let mut spec = tables.port(LAN).unwrap().spec.clone();
        spec.addresses.sort_by_key(|own| std::cmp::Reverse(own.address()));
        assert!(spec.addresses[0].to_string().starts_with("fe80:"));
        tables.update_port(LAN, spec).unwrap();
    });
    let mut inner = udp("2001:db8::7", "fd13::5", (53, 5000), 10);
    inner[7] = 1;
    gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &inner));
    let error = open(&peer_inbound(0x1001, false), &gateway.sent_one(WAN).1);
    assert_eq!(
        headers::parse(&error).unwrap().addresses,
        addresses(ip("fd13::1"), ip("2001:db8::7"))
    );
    gateway.assert_nothing_lost();
}

#[test]
fn link_local_addresses_and_groups_are_no_way_around_policies() {
    let mut gateway = Gateway::new(plain_tables());
    let own = gateway.publisher.current().port(LAN).unwrap().link_local().unwrap().to_string();
    gateway.change(|tables| {
        tables.set_neighbour(LAN, ip("fe80::5"), HOST_MAC).unwrap();
        set_side(tables, LAN, Side::Unset);
    });
    for (to, answers) in [(own.as_str(), 1), ("ff02::1", 1), ("224.0.0.1", 0)] {
        let from = if to.contains(':') { "fe80::5" } else { "192.168.13.5" };
        gateway.receive(LAN, &echo(from, to, 8));
        assert_eq!(gateway.sent(LAN).len(), answers, "{to} without policies");
    }
    assert_eq!(gateway.dropped(DropReason::LocalIcmp), 1);
    assert_eq!(gateway.worker.statistics().echo_replies.read(), 2);
    gateway.change(|tables| {
        tables.add_policy(policy(Direction::In, "::/0", "::/0", Action::Discard)).unwrap();
        tables
            .add_policy(policy(Direction::In, "0.0.0.0/0", "0.0.0.0/0", Action::Discard))
            .unwrap();
    });
    for (from, to) in
        [("fe80::5", own.as_str()), ("fe80::5", "ff02::1"), ("192.168.13.5", "224.0.0.1")]
    {
        gateway.receive(LAN, &echo(from, to, 8));
        assert_eq!(gateway.sent(LAN), [], "{to}");
    }
    assert_eq!(gateway.dropped(DropReason::PolicyDiscard), 3);
    gateway.assert_nothing_lost();
}

#[test]
fn link_local_destinations_of_ipv4_are_not_forwarded() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.receive(LAN, &udp("192.168.13.5", "169.254.169.254", (1, 80), 10));
    assert_eq!(gateway.sent(WAN), []);
    assert_eq!(gateway.dropped(DropReason::LinkLocal), 1);
    gateway.assert_nothing_lost();
}

#[test]
fn routes_that_refuse_tell_only_whom_policies_let_in() {
    let mut tables = tunnel_tables(OUTER, false);
    tables.set_route(VrfId::MAIN, prefix("192.168.13.128/25"), RouteSpec::Unreachable).unwrap();
    let mut gateway = Gateway::new(tables);
    let from_there = udp("192.168.12.7", "192.168.13.200", (1, 2), 10);
    gateway.receive(WAN, &from_there);
    assert_eq!((gateway.sent(WAN), gateway.dropped(DropReason::PolicyClear)), (vec![], 1));
    let peer = peer_outbound(0x1002, false);
    gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &from_there));
    let error = open(&peer_inbound(0x1001, false), &gateway.sent_one(WAN).1);
    assert_eq!(headers::parse(&error).unwrap().addresses.destination(), ip("192.168.12.7"));
    // Without policies, nothing decrypted is let in, and nothing of it told in clear.
    gateway.change(|tables| {
        let indexes: Vec<_> = Direction::ALL
            .iter()
            .flat_map(|direction| tables.vrf(VrfId::MAIN).unwrap().spd.policies(*direction))
            .map(|policy| policy.index)
            .collect();
        indexes.into_iter().for_each(|index| _ = tables.remove_policy(index).unwrap());
    });
    gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &from_there));
    assert_eq!((gateway.sent(WAN), gateway.dropped(DropReason::PolicyWrongSelector)), (vec![], 1));
    gateway.assert_nothing_lost();
}

#[test]
fn congestion_is_carried_in_unless_the_sa_says_otherwise() {
    // RFC 6040 figure 4: outer, inner, and what comes out.
    let normal = [
        (0b00, 0b10, Some(0b10)),
        (0b01, 0b10, Some(0b01)),
        (0b10, 0b01, Some(0b01)),
        (0b01, 0b00, Some(0b00)),
        (0b11, 0b10, Some(0b11)),
        (0b11, 0b11, Some(0b11)),
        (0b01, 0b11, Some(0b11)),
        (0b11, 0b00, None),
    ];
    for no_ecn in [false, true] {
        for (source, destination) in [("192.168.12.7", "192.168.13.5"), ("fd12::7", "fd13::5")] {
            let mut gateway = Gateway::new(tunnel_tables(OUTER, false));
            gateway.change(|tables| {
                let old = tables.remove_sa(VrfId::MAIN, ip(OUTER.0), Spi(0x1002)).unwrap();
                let spec = tables::SaSpec { no_ecn, ..old.spec };
                tables
                    .add_sa(spec, peer_outbound(0x1002, false), peer_inbound(0x1002, false))
                    .unwrap();
            });
            let peer = peer_outbound(0x1002, false);
            for (outside, inside, expected) in normal {
                let mut inner = udp(source, destination, (53, 5000), 10);
                match inner[0] >> 4 {
                    4 => wire::ipv4::set_traffic_class(&mut inner, 0xb8 | inside),
                    _ => wire::ipv6::set_traffic_class(&mut inner, 0xb8 | inside),
                }
                let mut outer = seal(&peer, OUTER.1, OUTER.0, &inner);
                wire::ipv4::set_traffic_class(&mut outer, outside);
                gateway.receive(WAN, &outer);
                let came = gateway
                    .sent(LAN)
                    .first()
                    .map(|(_, packet)| headers::parse(packet).unwrap().traffic_class);
                let expected = if no_ecn { Some(inside) } else { expected };
                assert_eq!(
                    came,
                    expected.map(|ecn| 0xb8 | ecn),
                    "{outside:02b} {inside:02b} {no_ecn}"
                );
            }
            gateway.assert_nothing_lost();
        }
    }
}

#[test]
fn an_advertisement_that_does_not_override_moves_no_neighbour() {
    let mut gateway = Gateway::new(plain_tables());
    let elsewhere = Mac([2, 0xee, 0, 0, 0, 1]);
    let mut hear = |target_link: Option<Mac>, override_cached: bool, target: &str| {
        let target = v6(target);
        let message = Message::NeighbourAdvertisement {
            target,
            router: false,
            solicited: true,
            override_cached,
            target_link,
        };
        let mut bytes = [0; wire::ndp::MAX_PACKET];
        let length = message.write_packet(target, v6("fd13::1"), &mut bytes).unwrap();
        let now = gateway.now;
        gateway.change(|tables| {
            let of = (LAN, tables.port(LAN).unwrap().since);
            tables.sought().ask(now, of, target.into());
        });
        gateway.receive(LAN, &bytes[..length]);
        let heard = gateway.events.pop().ok();
        heard.map(|event| match event {
            Event::NeighbourSeen { mac, .. } => mac,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(hear(Some(elsewhere), false, "fd13::5"), None);
    assert_eq!(hear(Some(HOST_MAC), false, "fd13::5"), Some(HOST_MAC));
    assert_eq!(hear(None, false, "fd13::5"), Some(HOST_MAC));
    assert_eq!(hear(None, true, "fd13::5"), Some(HOST_MAC));
    assert_eq!(hear(Some(elsewhere), true, "fd13::5"), Some(elsewhere));
    assert_eq!(hear(Some(elsewhere), false, "fd13::6"), Some(elsewhere));
    assert_eq!(hear(None, true, "fd13::6"), None);
}

#[test]
fn what_was_asked_before_a_port_moved_is_no_question_in_its_new_vrf() {
    for moves in [false, true] {
        let mut gateway = Gateway::new(plain_tables());
        // Ports that are there from the first are as old as those of the first change.
        gateway.change(|_| {});
        gateway.receive(WAN, &udp("8.8.8.8", "192.168.13.30", (1, 2), 10));
        assert_eq!(gateway.sent(LAN).len(), 1, "it is asked for");
        gateway.change(|tables| {
            let vrf = tables.add_vrf("blue").unwrap();
            let spec = tables.port(LAN).unwrap().spec.clone();
            let vrf = if moves { vrf } else { spec.vrf };
            tables.update_port(LAN, PortSpec { vrf, ..spec }).unwrap();
        });
        let own = (gateway.worker.port(LAN).unwrap().mac(), v4("192.168.13.1"));
        let reply = wire::arp::Packet {
            operation: wire::arp::Operation::Reply,
            sender_mac: HOST_MAC,
            sender_ip: v4("192.168.13.30"),
            target_mac: own.0,
            target_ip: own.1,
        };
        let header = wire::ethernet::Header {
            destination: own.0,
            source: HOST_MAC,
            ether_type: wire::ethernet::EtherType::ARP,
        };
        assert!(gateway.lan.push(&[&header.to_bytes()[..], &reply.to_bytes()].concat()));
        gateway.poll();
        assert_eq!(gateway.events.pop().is_err(), moves);
        assert_eq!(gateway.worker.statistics().neighbours_unasked.read(), u64::from(moves));
    }
}

#[test]
fn only_who_was_asked_for_is_learned_and_moves_are_limited() {
    let mut gateway = Gateway::new(plain_tables());
    let say = |gateway: &mut Gateway, operation, station: u32, mac: Mac| {
        let address = std::net::Ipv4Addr::from_bits(0xc0a8_0d00 + station);
        let own = (gateway.worker.port(LAN).unwrap().mac(), v4("192.168.13.1"));
        let message = wire::arp::Packet {
            operation,
            sender_mac: mac,
            sender_ip: address,
            target_mac: own.0,
            target_ip: own.1,
        };
        let header = wire::ethernet::Header {
            destination: own.0,
            source: mac,
            ether_type: wire::ethernet::EtherType::ARP,
        };
        let frame = [&header.to_bytes()[..], &message.to_bytes()].concat();
        assert!(gateway.lan.push(&frame));
        gateway.poll();
        gateway.sent(LAN);
    };
    let mac = |last: u8| Mac([2, 0xee, 0, 0, 0, last]);
    let unasked = |gateway: &Gateway| gateway.worker.statistics().neighbours_unasked.read();
    for operation in [wire::arp::Operation::Reply, wire::arp::Operation::Request] {
        for station in 20..200 {
            say(&mut gateway, operation, station, mac(1));
        }
    }
    assert!(gateway.events.pop().is_err());
    assert_eq!(unasked(&gateway), 360);

    // A packet to a station makes the gateway ask for it; the first answer counts.
    let packet = udp("8.8.8.8", "192.168.13.30", (1, 2), 10);
    gateway.receive(WAN, &packet);
    say(&mut gateway, wire::arp::Operation::Reply, 30, mac(2));
    say(&mut gateway, wire::arp::Operation::Reply, 30, mac(3));
    let address = "192.168.13.30".parse().unwrap();
    let since = gateway.publisher.current().port(LAN).unwrap().since;
    let seen = |mac, solicited| Event::NeighbourSeen { port: LAN, since, address, mac, solicited };
    assert_eq!(gateway.events.pop(), Ok(seen(mac(2), true)));
    assert!(gateway.events.pop().is_err());
    assert_eq!(unasked(&gateway), 361);

    // Known, it may move, so often: 256 times as the port's, 64 times as its VRF's.
    gateway.change(|tables| tables.set_neighbour(LAN, address, mac(2)).unwrap());
    (0..600).for_each(|_| say(&mut gateway, wire::arp::Operation::Reply, 30, mac(4)));
    let moved = std::iter::from_fn(|| gateway.events.pop().ok()).collect::<Vec<_>>();
    assert_eq!((moved[0], moved.len()), (seen(mac(4), false), 320));
    let limited = &gateway.worker.statistics().neighbour_moves_limited;
    assert_eq!(limited.read(), 280);
    gateway.assert_nothing_lost();
}

#[test]
fn a_full_batch_of_everything_at_once_overfills_nothing() {
    let mut tables = tunnel_tables(OUTER, false);
    let mut spec = tables.port(WAN).unwrap().spec.clone();
    (spec.mtu, spec.addresses) = (200, vec![prefix("192.168.11.2/24")]);
    tables.remove_port(WAN).unwrap();
    tables.add_port(WAN, spec).unwrap();
    tables.set_neighbour(WAN, ip("192.168.11.1"), PEER_MAC).unwrap();
    tables
        .add_policy(policy(Direction::In, "192.168.13.0/24", "192.168.13.0/24", Action::Bypass))
        .unwrap();
    let mut gateway = Gateway::new(tables);
    let own = gateway.publisher.current().port(LAN).unwrap().spec.mac;
    for round in 0..8 {
        for count in 0..packet::BATCH {
            let packet = match (count + round) % 4 {
                0 => udp("192.168.13.5", "192.168.12.7", (1, 2), 1400),
                1 => echo("192.168.13.5", "192.168.13.1", 1400),
                2 => udp("192.168.13.5", "192.168.13.1", (1, 2), 1400),
                _ => udp("192.168.13.5", &format!("192.168.13.{}", count % 100 + 100), (1, 2), 10),
            };
            assert!(gateway.lan.push(&frame(own, HOST_MAC, &packet)));
        }
        assert_eq!(gateway.poll(), packet::BATCH);
        gateway.assert_nothing_lost();
        assert!(gateway.sent(LAN).len() >= 64);
        assert!(gateway.sent(WAN).iter().all(|(_, outer)| outer.len() <= 200));
        gateway.now = gateway.now + std::time::Duration::from_millis(700);
    }
}

#[test]
fn esp_in_esp_ends() {
    let mut tables = tunnel_tables(OUTER, false);
    tables
        .add_policy(policy(
            Direction::In,
            "0.0.0.0/0",
            "0.0.0.0/0",
            Action::Protect(template(OUTER.1, OUTER.0)),
        ))
        .unwrap();
    let mut gateway = Gateway::new(tables);
    let peer = peer_outbound(0x1002, false);
    for depth in 1..10 {
        let inner = udp("192.168.12.7", "192.168.13.5", (53, 5000), 10);
        let packet = (0..depth).fold(inner, |packet, _| seal(&peer, OUTER.1, OUTER.0, &packet));
        gateway.receive(WAN, &packet);
        assert_eq!(
            gateway.sent(LAN).len(),
            usize::from(depth <= 4),
            "{depth}: {:?}",
            gateway.drops()
        );
        gateway.assert_nothing_lost();
    }
    assert_eq!(gateway.dropped(DropReason::EspNested), 5);
}

#[test]
fn one_sender_does_not_use_up_what_others_are_told() {
    let mut gateway = Gateway::new(plain_tables());
    for _ in 0..100 {
        let mut expiring = udp("192.168.13.66", "8.8.8.8", (5000, 33434), 20);
        expiring[8] = 1;
        wire::ipv4::fill_checksum(&mut expiring);
        gateway.wait(std::time::Duration::from_millis(10));
        for _ in 0..20 {
            gateway.receive(LAN, &expiring);
        }
        gateway.sent(LAN);
    }
    let mut too_big = udp("192.168.13.5", "8.8.8.8", (5000, 53), 1473);
    too_big[6] = 0x40;
    wire::ipv4::fill_checksum(&mut too_big);
    gateway.receive(LAN, &too_big);
    assert!(matches!(
        headers::parse(&gateway.sent_one(LAN).1).unwrap().upper,
        Upper::Icmp { kind: 3, code: 4, .. }
    ));
    gateway.assert_nothing_lost();
}

#[test]
fn an_inbound_policy_with_an_spi_wants_that_sa() {
    let mut gateway = Gateway::new(tunnel_tables(OUTER, false));
    let peer = peer_outbound(0x1002, false);
    for (spi, passes) in [(0x1002, 1), (0x5555, 0)] {
        gateway.change(|tables| {
            let found =
                tables.vrf(VrfId::MAIN).unwrap().spd.policies(Direction::In).next().unwrap();
            let (index, mut spec) = (found.index, found.spec);
            spec.action = Action::Protect(tables::Template {
                spi: Some(Spi(spi)),
                ..template(OUTER.1, OUTER.0)
            });
            tables.update_policy(index, spec).unwrap();
        });
        let inner = udp("192.168.12.7", "192.168.13.5", (53, 5000), 10);
        gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &inner));
        assert_eq!(gateway.sent(LAN).len(), passes, "{spi:#x}");
    }
    assert_eq!(gateway.dropped(DropReason::PolicyWrongSelector), 1);
}

/// What the fragments of one datagram make.
fn join(fragments: &[(Mac, Vec<u8>)], header: usize) -> Vec<u8> {
    let mut whole = fragments[0].1[..header].to_vec();
    for (_, fragment) in fragments {
        let parsed = headers::parse(fragment).unwrap();
        assert_eq!(usize::from(parsed.fragment.offset) + header, whole.len());
        whole.extend_from_slice(parsed.upper_bytes(fragment));
    }
    assert!(!headers::parse(&fragments.last().unwrap().1).unwrap().fragment.more);
    whole
}

#[test]
fn long_echo_requests_of_ipv6_get_their_whole_reply() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.change(|tables| tables.set_neighbour(LAN, ip("fe80::5"), HOST_MAC).unwrap());
    let link_local =
        gateway.publisher.current().port(LAN).unwrap().link_local().unwrap().to_string();
    for (from, to) in [("fd13::5", "fd13::1"), ("fe80::5", link_local.as_str())] {
        let request = echo(from, to, 1900);
        let pieces = wire::fragment::plan_v6(&request, 1500).unwrap();
        for piece in pieces {
            let mut fragment = vec![0; piece.total_length()];
            wire::fragment::write_v6(&request, &piece, 7, &mut fragment).unwrap();
            gateway.receive(LAN, &fragment);
        }
        let sent = gateway.sent(LAN);
        assert_eq!(sent.len(), 2, "{to}: {:?}", gateway.drops());
        assert!(sent.iter().all(|(mac, fragment)| *mac == HOST_MAC && fragment.len() <= 1500));
        let reply = join(&sent, 40);
        assert_eq!(reply[40..42], [129, 0]);
        assert_eq!(reply[44..], request[44..]);
        let addresses = addresses(ip(to), ip(from));
        assert!(wire::checksum::upper_is_right(&addresses, wire::Protocol::ICMPV6, &reply[40..]));
        gateway.assert_nothing_lost();
    }
}

#[test]
fn a_tunnel_carries_what_every_link_of_ipv6_must() {
    for (outer, mtu, header) in [(OUTER, 700, 20), (("fd11::2", "fd11::1"), 1280, 40)] {
        let mut tables = tunnel_tables(outer, false);
        let mut spec = tables.port(WAN).unwrap().spec.clone();
        spec.mtu = mtu;
        if header == 20 {
            spec.addresses.retain(|own| own.address().is_ipv4());
        }
        tables.update_port(WAN, spec).unwrap();
        tables.set_neighbour(WAN, ip(outer.1), PEER_MAC).unwrap();
        let mut gateway = Gateway::new(tables);
        let peer = peer_inbound(0x1001, false);
        let original = udp("fd13::5", "fd12::7", (5000, 53), 1280 - 48);
        gateway.receive(LAN, &original);
        let sent = gateway.sent(WAN);
        assert_eq!(sent.len(), 2, "{:?}", gateway.drops());
        assert!(sent.iter().all(|(_, fragment)| fragment.len() <= usize::from(mtu)));
        let mut whole = join(&sent, header);
        match header {
            20 => {
                whole[6..8].fill(0);
                let length = whole.len() as u16;
                wire::ipv4::set_total_length(&mut whole, length);
                wire::ipv4::fill_checksum(&mut whole);
            }
            _ => {
                whole[6] = wire::Protocol::ESP.0;
                let length = whole.len() as u16 - 40;
                wire::ipv6::set_payload_length(&mut whole, length);
            }
        }
        assert_eq!(open(&peer, &whole)[8..], original[8..]);
        // A byte more, and the sender is told what does fit.
        gateway.receive(LAN, &udp("fd13::5", "fd12::7", (5000, 53), 1280 - 47));
        assert_eq!(gateway.sent(WAN), []);
        let (_, error) = gateway.sent_one(LAN);
        assert!(matches!(headers::parse(&error).unwrap().upper, Upper::Icmp { kind: 2, .. }));
        assert_eq!(error[44..48], 1280_u32.to_be_bytes());
        gateway.assert_nothing_lost();
    }
}
