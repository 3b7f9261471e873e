//! Routing, and life on a link.

mod fixture;

use std::time::Duration;

use fixture::*;
use packet::DropReason;
use tables::{Event, RouteSpec};
use wire::arp;
use wire::ethernet::EtherType;
use wire::ndp::Message;
use wire::{Mac, Protocol, Upper, VrfId, headers};

#[test]
fn forwards_by_the_longest_prefix_and_takes_one_hop() {
    for (source, destination) in [("192.168.13.5", "8.8.8.8"), ("fd13::5", "2001:db8::8")] {
        let mut gateway = Gateway::new(plain_tables());
        gateway.receive(LAN, &udp(source, destination, (5000, 53), 100));
        let (mac, sent) = gateway.sent_one(WAN);
        assert_eq!(mac, PEER_MAC);
        let mut expected = udp(source, destination, (5000, 53), 100);
        match expected[0] >> 4 {
            4 => wire::checksum::decrement_ttl_v4(&mut expected),
            _ => expected[7] -= 1,
        }
        assert_eq!(sent, expected);
        assert_eq!(headers::parse(&sent).unwrap().hop_limit, 63);
        gateway.assert_nothing_lost();
    }
}

#[test]
fn link_padding_is_not_forwarded() {
    let mut gateway = Gateway::new(plain_tables());
    let mut padded = udp("192.168.13.5", "8.8.8.8", (1, 2), 0);
    let length = padded.len();
    padded.resize(46, 0xee);
    gateway.receive(LAN, &padded);
    assert_eq!(gateway.sent_one(WAN).1.len(), length);
}

#[test]
fn hop_limit_ends_with_an_error_from_the_port_it_came_by() {
    for (source, destination, own) in
        [("192.168.13.5", "8.8.8.8", "192.168.13.1"), ("fd13::5", "2001:db8::8", "fd13::1")]
    {
        let mut gateway = Gateway::new(plain_tables());
        let mut expiring = udp(source, destination, (5000, 33434), 20);
        match expiring[0] >> 4 {
            4 => {
                expiring[8] = 1;
                wire::ipv4::fill_checksum(&mut expiring);
            }
            _ => expiring[7] = 1,
        }
        gateway.receive(LAN, &expiring);
        let (mac, error) = gateway.sent_one(LAN);
        let parsed = headers::parse(&error).unwrap();
        assert_eq!(mac, HOST_MAC);
        assert_eq!(parsed.addresses, addresses(ip(own), ip(source)));
        let time_exceeded = if own.contains(':') { 3 } else { 11 };
        assert!(matches!(parsed.upper, Upper::Icmp { kind, code: 0, .. } if kind == time_exceeded));
        assert_eq!(gateway.dropped(DropReason::HopLimit), 1);
        gateway.assert_nothing_lost();
    }
}

#[test]
fn too_large_with_df_is_refused_and_without_is_cut() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.change(|tables| {
        let mut spec = tables.port(WAN).unwrap().spec.clone();
        spec.mtu = 1300;
        tables.update_port(WAN, spec).unwrap();
    });
    let whole = udp("192.168.13.5", "8.8.8.8", (5000, 53), 1400);
    let mut kept_whole = whole.clone();
    kept_whole[6] = 0x40;
    wire::ipv4::fill_checksum(&mut kept_whole);
    gateway.receive(LAN, &kept_whole);
    let (_, error) = gateway.sent_one(LAN);
    let parsed = headers::parse(&error).unwrap();
    assert!(matches!(parsed.upper, Upper::Icmp { kind: 3, code: 4, .. }));
    assert_eq!(u16::from_be_bytes([error[26], error[27]]), 1300);

    gateway.receive(LAN, &whole);
    let fragments = gateway.sent(WAN);
    assert_eq!(fragments.len(), 2);
    let mut payload = vec![0; 1408];
    for (_, fragment) in &fragments {
        assert!(fragment.len() <= 1300);
        let parsed = headers::parse(fragment).unwrap();
        let offset = usize::from(parsed.fragment.offset);
        let bytes = parsed.upper_bytes(fragment);
        payload[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    assert_eq!(payload, whole[20..]);

    gateway.receive(LAN, &udp("fd13::5", "2001:db8::8", (5000, 53), 1400));
    let (_, error) = gateway.sent_one(LAN);
    assert!(matches!(headers::parse(&error).unwrap().upper, Upper::Icmp { kind: 2, code: 0, .. }));
    assert_eq!(u32::from_be_bytes(error[44..48].try_into().unwrap()), 1300);
    gateway.assert_nothing_lost();
}

#[test]
fn routes_that_refuse_say_so_or_do_not() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.change(|tables| {
        for (to, kind) in [
            ("10.1.0.0/16", RouteSpec::Blackhole),
            ("10.2.0.0/16", RouteSpec::Unreachable),
            ("10.3.0.0/16", RouteSpec::Prohibit),
        ] {
            tables.set_route(VrfId::MAIN, prefix(to), kind).unwrap();
        }
        tables.remove_route(VrfId::MAIN, prefix("0.0.0.0/0")).unwrap();
    });
    for (to, reason, code) in [
        ("10.1.0.1", DropReason::RouteBlackhole, None),
        ("10.2.0.1", DropReason::RouteUnreachable, Some(1)),
        ("10.3.0.1", DropReason::RouteProhibit, Some(13)),
        ("10.4.0.1", DropReason::NoRoute, Some(0)),
    ] {
        gateway.receive(LAN, &udp("192.168.13.5", to, (1, 2), 10));
        assert_eq!(gateway.dropped(reason), 1, "{to}");
        match code {
            None => assert!(gateway.sent(LAN).is_empty()),
            Some(expected) => {
                let (_, error) = gateway.sent_one(LAN);
                assert!(
                    matches!(headers::parse(&error).unwrap().upper, Upper::Icmp { kind: 3, code, .. } if code == expected)
                );
            }
        }
    }
    gateway.assert_nothing_lost();
}

#[test]
fn errors_are_rate_limited() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.change(|tables| _ = tables.remove_route(VrfId::MAIN, prefix("0.0.0.0/0")).unwrap());
    for _ in 0..500 {
        gateway.receive(LAN, &udp("192.168.13.5", "9.9.9.9", (1, 2), 10));
    }
    let told = gateway.sent(LAN).len() as u64;
    assert!((50..=200).contains(&told), "{told}");
    let statistics = gateway.worker.statistics();
    assert_eq!(statistics.icmp_errors_limited.read(), 500 - told);
    assert_eq!(gateway.dropped(DropReason::NoRoute), 500);
}

#[test]
fn echo_requests_are_answered_on_every_own_address() {
    let mut gateway = Gateway::new(plain_tables());
    for (from, to) in
        [("192.168.13.5", "192.168.13.1"), ("192.168.13.5", "192.168.11.2"), ("fd13::5", "fd13::1")]
    {
        gateway.receive(LAN, &echo(from, to, 56));
        let (mac, reply) = gateway.sent_one(LAN);
        let parsed = headers::parse(&reply).unwrap();
        assert_eq!((mac, parsed.addresses), (HOST_MAC, addresses(ip(to), ip(from))));
        let kind = if from.contains(':') { 129 } else { 0 };
        assert!(
            matches!(parsed.upper, Upper::Icmp { kind: k, identifier: 0x1234, .. } if k == kind)
        );
        let checked = match kind {
            0 => wire::checksum::sum(parsed.upper_bytes(&reply)) == 0xffff,
            _ => wire::checksum::upper_is_right(
                &parsed.addresses,
                Protocol::ICMPV6,
                parsed.upper_bytes(&reply),
            ),
        };
        assert!(checked);
    }
    gateway.assert_nothing_lost();
}

#[test]
fn a_damaged_echo_request_is_not_answered() {
    let mut gateway = Gateway::new(plain_tables());
    for (from, to) in [("192.168.13.5", "192.168.13.1"), ("fd13::5", "fd13::1")] {
        let mut damaged = echo(from, to, 56);
        *damaged.last_mut().unwrap() ^= 1;
        gateway.receive(LAN, &damaged);
        assert!(gateway.sent(LAN).is_empty());
    }
    assert_eq!(gateway.dropped(DropReason::LocalChecksum), 2);
    gateway.assert_nothing_lost();
}

#[test]
fn udp_to_the_gateway_is_told_that_nobody_listens() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.receive(LAN, &udp("192.168.13.5", "192.168.13.1", (5000, 33434), 20));
    let (_, error) = gateway.sent_one(LAN);
    assert!(matches!(headers::parse(&error).unwrap().upper, Upper::Icmp { kind: 3, code: 3, .. }));
    assert_eq!(gateway.dropped(DropReason::LocalNoListener), 1);
}

#[test]
fn arp_requests_for_us_are_answered_and_others_not() {
    let mut gateway = Gateway::new(plain_tables());
    let ask = |gateway: &mut Gateway, target: &str| {
        let stranger = Mac([2, 0xcc, 0, 0, 0, 9]);
        let request = arp::Packet::request(stranger, v4("192.168.13.77"), v4(target));
        let header = wire::ethernet::Header {
            destination: Mac::BROADCAST,
            source: stranger,
            ether_type: EtherType::ARP,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(request.to_bytes());
        assert!(gateway.lan.push(&bytes));
        gateway.poll();
    };
    ask(&mut gateway, "192.168.13.1");
    let (mac, reply) = gateway.sent_one(LAN);
    let reply = arp::Packet::parse(&reply).unwrap();
    assert_eq!(mac, Mac([2, 0xcc, 0, 0, 0, 9]));
    assert_eq!((reply.operation, reply.sender_ip), (arp::Operation::Reply, v4("192.168.13.1")));
    // A stranger is not news; a known station that moved is.
    assert!(gateway.events.pop().is_err());
    gateway.change(|tables| {
        tables.set_neighbour(LAN, ip("192.168.13.77"), Mac([2, 0xcc, 0, 0, 0, 8])).unwrap();
    });
    ask(&mut gateway, "192.168.13.1");
    let (address, mac) = (ip("192.168.13.77"), Mac([2, 0xcc, 0, 0, 0, 9]));
    let since = gateway.publisher.current().port(LAN).unwrap().since;
    assert_eq!(
        gateway.events.pop(),
        Ok(Event::NeighbourSeen { port: LAN, since, address, mac, solicited: false })
    );
    gateway.change(|tables| tables.set_neighbour(LAN, address, mac).unwrap());
    gateway.sent(LAN);
    ask(&mut gateway, "192.168.13.200");
    assert!(gateway.sent(LAN).is_empty());
    assert!(gateway.events.pop().is_err());
    assert_eq!(gateway.dropped(DropReason::ArpNotForUs), 1);
    gateway.assert_nothing_lost();
}

#[test]
fn solicitations_for_us_are_answered() {
    let mut gateway = Gateway::new(plain_tables());
    let mut request = [0; wire::ndp::MAX_PACKET];
    let message =
        Message::NeighbourSolicitation { target: v6("fd13::1"), source_link: Some(HOST_MAC) };
    let group = wire::ndp::solicited_node(v6("fd13::1"));
    let length = message.write_packet(v6("fd13::5"), group, &mut request).unwrap();
    let bytes = frame(wire::ethernet::multicast_mac_v6(group), HOST_MAC, &request[..length]);
    assert!(gateway.lan.push(&bytes));
    gateway.poll();
    let (mac, reply) = gateway.sent_one(LAN);
    let parsed = headers::parse(&reply).unwrap();
    let message = wire::ndp::parse(&parsed, parsed.upper_bytes(&reply)).unwrap();
    assert_eq!(mac, HOST_MAC);
    let Message::NeighbourAdvertisement { target, router, solicited, target_link, .. } = message
    else {
        panic!("{message:?}")
    };
    assert_eq!((target, router, solicited), (v6("fd13::1"), true, true));
    assert_eq!(target_link, gateway.publisher.current().port(LAN).map(|port| port.spec.mac));
    gateway.assert_nothing_lost();
}

#[test]
fn packets_wait_for_their_next_hop_and_leave_in_order() {
    for (source, destination) in [("192.168.13.5", "192.168.13.66"), ("fd13::5", "fd13::66")] {
        let mut gateway = Gateway::new(plain_tables());
        for payload in [10, 20, 30] {
            gateway.receive(LAN, &udp(source, destination, (1, 2), payload));
        }
        // The question is asked once, however many wait.
        let (mac, question) = gateway.sent_one(LAN);
        match destination.contains(':') {
            false => {
                assert_eq!(mac, Mac::BROADCAST);
                assert_eq!(arp::Packet::parse(&question).unwrap().target_ip, v4("192.168.13.66"));
            }
            true => {
                assert!(headers::parse(&question).unwrap().addresses.destination().is_multicast());
            }
        }
        let answerer = Mac([2, 0xdd, 0, 0, 0, 1]);
        gateway.change(|tables| tables.set_neighbour(LAN, ip(destination), answerer).unwrap());
        gateway.poll();
        let lengths: Vec<_> = gateway
            .sent(LAN)
            .iter()
            .map(|(mac, packet)| (*mac, headers::parse(packet).unwrap().upper_bytes(packet).len()))
            .collect();
        assert_eq!(lengths, [(answerer, 18), (answerer, 28), (answerer, 38)]);
        gateway.assert_nothing_lost();
    }
}

/// At a start the ports come one after the other.
#[test]
fn a_worker_that_gets_a_port_late_asks_for_its_neighbours_at_once() {
    for (source, destination) in [("8.8.8.8", "192.168.13.66"), ("2001:db8::8", "fd13::66")] {
        let mut gateway = Gateway::new(plain_tables());
        let lan = gateway.worker.detach(LAN).unwrap();
        gateway.receive(WAN, &udp(source, destination, (1, 2), 10));
        assert_eq!((gateway.worker.held(), gateway.drops()), (1, vec![]));
        gateway.worker.attach(LAN, lan);
        assert!(gateway.worker.next_deadline().is_some_and(|due| due <= gateway.now));
        gateway.poll();
        gateway.sent_one(LAN);
        gateway.change(|tables| tables.set_neighbour(LAN, ip(destination), HOST_MAC).unwrap());
        gateway.poll();
        assert_eq!(gateway.sent_one(LAN).0, HOST_MAC);
        gateway.assert_nothing_lost();
    }
}

#[test]
fn a_silent_next_hop_is_given_up_and_the_sender_told() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.receive(LAN, &udp("192.168.13.5", "192.168.13.66", (1, 2), 10));
    let mut questions = gateway.sent(LAN).len();
    for _ in 0..50 {
        gateway.wait(Duration::from_millis(100));
        for (_, sent) in gateway.sent(LAN) {
            match arp::Packet::parse(&sent) {
                Ok(_) => questions += 1,
                Err(_) => assert!(matches!(
                    headers::parse(&sent).unwrap().upper,
                    Upper::Icmp { kind: 3, code: 1, .. }
                )),
            }
        }
    }
    assert_eq!(questions, 3);
    assert_eq!(gateway.dropped(DropReason::NeighbourUnresolved), 1);
    assert_eq!(gateway.worker.statistics().icmp_errors.read(), 1);
    let since = gateway.publisher.current().port(LAN).unwrap().since;
    assert_eq!(
        gateway.events.pop(),
        Ok(Event::NeighbourSilent { port: LAN, since, address: ip("192.168.13.66") })
    );
    gateway.assert_nothing_lost();
}

#[test]
fn what_may_not_be_forwarded_is_not() {
    let mut gateway = Gateway::new(plain_tables());
    for (source, destination, reason) in [
        ("192.168.13.5", "224.0.1.1", DropReason::NotUnicast),
        ("192.168.13.5", "192.168.11.255", DropReason::NotUnicast),
        ("192.168.13.5", "255.255.255.255", DropReason::NotUnicast),
        ("169.254.3.4", "8.8.8.8", DropReason::LinkLocal),
        ("fe80::9", "2001:db8::1", DropReason::LinkLocal),
        ("fd13::5", "fe80::9", DropReason::LinkLocal),
        ("127.0.0.1", "8.8.8.8", DropReason::IpSource),
        ("192.168.13.5", "127.0.0.1", DropReason::IpDestination),
    ] {
        let before = gateway.dropped(reason);
        gateway.receive(LAN, &udp(source, destination, (1, 2), 10));
        assert_eq!(
            gateway.dropped(reason),
            before + 1,
            "{source} > {destination}: {:?}",
            gateway.drops()
        );
        assert!(gateway.sent(WAN).is_empty());
    }
    gateway.assert_nothing_lost();
}

#[test]
fn two_vrfs_with_the_same_addresses_do_not_meet() {
    let mut tables = plain_tables();
    let red = tables.add_vrf("red").unwrap();
    let mut spec = tables.port(WAN).unwrap().spec.clone();
    tables.remove_port(WAN).unwrap();
    spec.vrf = red;
    spec.addresses = vec![prefix("192.168.13.1/24")];
    tables.add_port(WAN, spec).unwrap();
    tables.set_neighbour(WAN, ip("192.168.13.5"), PEER_MAC).unwrap();
    let mut gateway = Gateway::new(tables);
    gateway.receive(LAN, &echo("192.168.13.5", "192.168.13.1", 8));
    assert_eq!(gateway.sent_one(LAN).0, HOST_MAC);
    gateway.receive(WAN, &echo("192.168.13.5", "192.168.13.1", 8));
    assert_eq!(gateway.sent_one(WAN).0, PEER_MAC);
    gateway.assert_nothing_lost();
}

#[test]
fn frames_for_others_and_of_other_protocols_are_dropped_by_name() {
    let mut gateway = Gateway::new(plain_tables());
    let own = gateway.publisher.current().port(LAN).unwrap().spec.mac;
    let whole = udp("192.168.13.5", "8.8.8.8", (1, 2), 10);
    let tagged = |tags: &[u8]| {
        let mut bytes = frame(own, HOST_MAC, &whole);
        bytes.splice(12..12, tags.iter().copied());
        bytes
    };
    let mut other = frame(own, HOST_MAC, &whole);
    other[12..14].copy_from_slice(&[0x88, 0xcc]);
    let mut wrong_version = frame(own, HOST_MAC, &whole);
    wrong_version[12..14].copy_from_slice(&[0x86, 0xdd]);
    for (bytes, reason) in [
        (frame(Mac([2, 9, 9, 9, 9, 9]), HOST_MAC, &whole), DropReason::LinkNotForUs),
        (frame(own, Mac::BROADCAST, &whole), DropReason::LinkSource),
        (frame(Mac::BROADCAST, HOST_MAC, &whole), DropReason::NotUnicast),
        (vec![1, 2, 3], DropReason::LinkTruncated),
        (tagged(&[0x81, 0x00, 0, 100]), DropReason::VlanUnknown),
        (tagged(&[0x81, 0x00, 0, 0].repeat(3)), DropReason::LinkVlan),
        (other, DropReason::LinkProtocol),
        (wrong_version, DropReason::IpVersion),
        (frame(own, HOST_MAC, &whole[..15]), DropReason::IpTruncated),
    ] {
        assert!(gateway.lan.push(&bytes));
        gateway.poll();
        assert_eq!(gateway.dropped(reason), 1, "{reason}: {:?}", gateway.drops());
    }
    gateway.assert_nothing_lost();
}
