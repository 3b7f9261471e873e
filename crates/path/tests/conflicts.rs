//! Another station has one of the gateway's own addresses (RFC 5227 section 2.4, RFC 4862 section
//! 5.4.4): it is counted, told and defended, and nobody is learnt from it.

mod fixture;

use std::net::IpAddr;
use std::time::Duration;

use fixture::*;
use packet::{DropReason, LinkKind};
use path::{Arriving, Fate, foretell};
use tables::{Event, PortSpec, Vlan, VlanId, VlanTag};
use wire::arp::{self, Operation};
use wire::ethernet::{self, EtherType};
use wire::ndp::{self, Message};
use wire::{Mac, Origin, PacketFields, PortId, VrfId, headers};

const OTHER: Mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
const ALL_NODES: &str = "ff02::1";

fn arp_frame(operation: Operation, mac: Mac, sender: &str, target: &str) -> Vec<u8> {
    let message = arp::Packet {
        operation,
        sender_mac: mac,
        sender_ip: v4(sender),
        target_mac: Mac::default(),
        target_ip: v4(target),
    };
    let (destination, ether_type) = (Mac::BROADCAST, EtherType::ARP);
    let header = ethernet::Header { destination, source: mac, ether_type };
    [&header.to_bytes()[..], &message.to_bytes()].concat()
}

fn nd_frame(message: Message, mac: Mac, source: &str, destination: &str) -> Vec<u8> {
    let mut packet = [0; ndp::MAX_PACKET];
    let length = message.write_packet(v6(source), v6(destination), &mut packet).unwrap();
    frame(ethernet::multicast_mac_v6(v6(destination)), mac, &packet[..length])
}

fn advertisement(mac: Mac, target: &str) -> Message {
    Message::NeighbourAdvertisement {
        target: v6(target),
        router: false,
        solicited: false,
        override_cached: true,
        target_link: Some(mac),
    }
}

fn solicitation(source_link: Option<Mac>, target: &str) -> Message {
    Message::NeighbourSolicitation { target: v6(target), source_link }
}

/// What a station at `mac` sends that has the LAN's address of the family.
fn claims(mac: Mac, is_v6: bool) -> Vec<Vec<u8>> {
    if !is_v6 {
        let own = "192.168.13.1";
        return vec![
            arp_frame(Operation::Request, mac, own, own),
            arp_frame(Operation::Reply, mac, own, own),
            arp_frame(Operation::Request, mac, own, "192.168.13.77"),
            arp_frame(Operation::Reply, mac, own, "192.168.13.5"),
        ];
    }
    let group = ndp::solicited_node(v6("fd13::1")).to_string();
    vec![
        nd_frame(advertisement(mac, "fd13::1"), mac, "fd13::1", ALL_NODES),
        nd_frame(advertisement(mac, "fd13::1"), mac, "fe80::77", ALL_NODES),
        nd_frame(advertisement(mac, "fd13::77"), mac, "fd13::1", ALL_NODES),
        nd_frame(solicitation(Some(mac), "fd13::1"), mac, "fd13::1", &group),
        nd_frame(Message::RouterSolicitation { source_link: Some(mac) }, mac, "fd13::1", ALL_NODES),
    ]
}

fn own(gateway: &Gateway) -> Mac {
    gateway.worker.port(LAN).unwrap().mac()
}

fn hear(gateway: &mut Gateway, frame: &[u8]) {
    assert!(gateway.lan.push(frame));
    gateway.poll();
}

#[track_caller]
fn assert_told(gateway: &mut Gateway, address: &str) {
    let since = gateway.publisher.current().port(LAN).unwrap().since;
    let event = Event::AddressConflict { port: LAN, since, address: ip(address), mac: OTHER };
    assert_eq!(gateway.events.pop(), Ok(event));
    assert!(gateway.events.pop().is_err());
}

/// The gateway announces an address to everyone on the LAN.
#[track_caller]
fn assert_defended(gateway: &mut Gateway, address: &str) {
    let own = own(gateway);
    let (to, sent) = gateway.sent_one(LAN);
    match ip(address) {
        IpAddr::V4(address) => {
            assert_eq!(to, Mac::BROADCAST);
            assert_eq!(arp::Packet::parse(&sent), Ok(arp::Packet::request(own, address, address)));
        }
        IpAddr::V6(target) => {
            assert_eq!(to, ethernet::multicast_mac_v6(v6(ALL_NODES)));
            let parsed = headers::parse(&sent).unwrap();
            assert_eq!(parsed.addresses, addresses(target.into(), ip(ALL_NODES)));
            let message = ndp::parse(&parsed, parsed.upper_bytes(&sent)).unwrap();
            let told = Message::NeighbourAdvertisement {
                target,
                router: true,
                solicited: false,
                override_cached: true,
                target_link: Some(own),
            };
            assert_eq!(message, told);
        }
    }
}

#[test]
fn a_station_with_our_address_is_counted_told_and_answered() {
    for (is_v6, address) in [(false, "192.168.13.1"), (true, "fd13::1")] {
        for claim in claims(OTHER, is_v6) {
            let mut gateway = Gateway::new(plain_tables());
            hear(&mut gateway, &claim);
            assert_eq!(gateway.drops(), [("address_conflict", 1)], "{claim:02x?}");
            assert_told(&mut gateway, address);
            assert_defended(&mut gateway, address);
            gateway.assert_nothing_lost();
        }
    }
}

#[test]
fn an_address_is_defended_and_told_once_in_ten_seconds() {
    for (is_v6, address) in [(false, "192.168.13.1"), (true, "fd13::1")] {
        let mut gateway = Gateway::new(plain_tables());
        let claim = &claims(OTHER, is_v6)[0];
        for round in 1..=3 {
            hear(&mut gateway, claim);
            assert_defended(&mut gateway, address);
            assert_told(&mut gateway, address);
            for _ in 0..99 {
                gateway.now = gateway.now + Duration::from_millis(100);
                hear(&mut gateway, claim);
            }
            assert_eq!(gateway.sent(LAN), []);
            assert!(gateway.events.pop().is_err());
            assert_eq!(gateway.dropped(DropReason::AddressConflict), 100 * round);
            gateway.now = gateway.now + Duration::from_millis(100);
        }
        gateway.assert_nothing_lost();
    }
}

/// A copy of the gateway has its addresses of both families: one does not hide the other.
#[test]
fn each_address_is_a_conflict_of_its_own() {
    let mut gateway = Gateway::new(plain_tables());
    for (is_v6, address) in [(false, "192.168.13.1"), (true, "fd13::1")] {
        hear(&mut gateway, &claims(OTHER, is_v6)[0]);
        assert_defended(&mut gateway, address);
        assert_told(&mut gateway, address);
    }
}

/// A hub or a switch with a loop sends frames back to where they came from.
#[test]
fn our_own_frames_that_come_back_are_no_conflict() {
    for is_v6 in [false, true] {
        let mut gateway = Gateway::new(plain_tables());
        let own = own(&gateway);
        let claims = claims(own, is_v6);
        claims.iter().for_each(|claim| hear(&mut gateway, claim));
        let malformed = if is_v6 { "nd_malformed" } else { "arp_malformed" };
        let drops = gateway.drops();
        let known = |(name, _): &(&str, u64)| [malformed, "nd_not_for_us"].contains(name);
        assert!(drops.iter().all(known), "{drops:?}");
        assert_eq!(drops.iter().map(|(_, count)| count).sum::<u64>(), claims.len() as u64);
        assert_eq!(gateway.sent(LAN), []);
        assert!(gateway.events.pop().is_err());
        gateway.assert_nothing_lost();
    }
}

/// They get to know in that way that they must not take the address.
#[test]
fn who_asks_whether_our_address_is_free_is_answered() {
    let mut gateway = Gateway::new(plain_tables());
    hear(&mut gateway, &arp_frame(Operation::Request, OTHER, "0.0.0.0", "192.168.13.1"));
    let (to, sent) = gateway.sent_one(LAN);
    let reply = arp::Packet::parse(&sent).unwrap();
    assert_eq!((to, reply.operation), (OTHER, Operation::Reply));
    assert_eq!((reply.sender_mac, reply.sender_ip), (own(&gateway), v4("192.168.13.1")));
    let group = ndp::solicited_node(v6("fd13::1")).to_string();
    hear(&mut gateway, &nd_frame(solicitation(None, "fd13::1"), OTHER, "::", &group));
    assert_defended(&mut gateway, "fd13::1");
    assert_eq!(gateway.drops(), []);
    assert!(gateway.events.pop().is_err());
    gateway.assert_nothing_lost();
}

/// Nobody is learnt, also who is sought or known.
#[test]
fn nobody_is_learnt_from_a_conflict() {
    let mut gateway = Gateway::new(plain_tables());
    for (source, sought) in [("192.168.13.5", "192.168.13.77"), ("fd13::5", "fd13::77")] {
        gateway.receive(LAN, &udp(source, sought, (1, 2), 10));
    }
    let claims = [claims(OTHER, false), claims(OTHER, true)].concat();
    for claim in claims {
        hear(&mut gateway, &claim);
    }
    while let Ok(event) = gateway.events.pop() {
        assert!(matches!(event, Event::AddressConflict { .. }), "{event:?}");
    }
    assert_eq!(gateway.worker.statistics().neighbours_unasked.read(), 0);
}

/// Stations of one VLAN hide nothing of another, and may have the addresses of the others.
#[test]
fn vlans_have_conflicts_of_their_own() {
    const VLAN: PortId = PortId(2);
    let mut tables = plain_tables();
    let mut spec = PortSpec::new("lan.7", tables.port(LAN).unwrap().spec.mac);
    spec.addresses = vec![prefix("10.7.0.1/24"), prefix("fd07::1/64")];
    spec.vlan = Some(Vlan::new(LAN, VlanTag::customer(VlanId::new(7).unwrap())));
    tables.add_port(VLAN, spec).unwrap();
    let mut gateway = Gateway::new(tables);
    let tagged = |frame: Vec<u8>, tags: &[u8]| {
        let tags: Vec<u8> = tags.iter().flat_map(|id| [0x81, 0, 0, *id]).collect();
        [&frame[..12], &tags, &frame[12..]].concat()
    };
    let is_told = |gateway: &mut Gateway| {
        std::iter::from_fn(|| gateway.events.pop().ok())
            .map(|event| match event {
                Event::AddressConflict { port, address, mac: OTHER, .. } => (port, address),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    let arp = |sender| arp_frame(Operation::Request, OTHER, sender, sender);
    let nd = |target| nd_frame(advertisement(OTHER, target), OTHER, "fe80::77", ALL_NODES);
    hear(&mut gateway, &arp("192.168.13.1"));
    hear(&mut gateway, &tagged(arp("10.7.0.1"), &[7]));
    hear(&mut gateway, &tagged(nd("fd07::1"), &[0, 7]));
    let of_vlan = [(VLAN, ip("10.7.0.1")), (VLAN, ip("fd07::1"))];
    assert_eq!(is_told(&mut gateway), [&[(LAN, ip("192.168.13.1"))], &of_vlan[..]].concat());
    let types: Vec<u16> = std::iter::from_fn(|| gateway.lan.pop())
        .map(|frame| u16::from_be_bytes([frame[12], frame[13]]))
        .collect();
    assert_eq!(types, [0x0806, 0x8100, 0x8100], "by the port that has the address");
    // The address of one is nobody's in the other. The frame's source is found behind its tags.
    hear(&mut gateway, &tagged(arp("192.168.13.1"), &[7]));
    hear(&mut gateway, &arp("10.7.0.1"));
    let own = own(&gateway);
    let back = nd_frame(advertisement(own, "fd07::1"), own, "fe80::77", ALL_NODES);
    hear(&mut gateway, &tagged(back, &[0, 7]));
    assert_eq!(is_told(&mut gateway), []);
    assert_eq!(gateway.dropped(DropReason::AddressConflict), 3);
}

/// Who claims every address of a port leaves room for what others have to tell.
#[test]
fn a_flood_of_conflicts_loses_no_event() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.change(|tables| {
        let mut spec = tables.port(LAN).unwrap().spec.clone();
        spec.addresses.extend((1..=200).map(|host| prefix(&format!("10.9.0.{host}/24"))));
        tables.update_port(LAN, spec).unwrap();
    });
    for _ in 0..20 {
        for host in 1..=200 {
            let own = format!("10.9.0.{host}");
            hear(&mut gateway, &arp_frame(Operation::Request, OTHER, &own, &own));
            gateway.sent(LAN);
        }
    }
    assert_eq!(gateway.events.slots(), 16);
    assert_eq!(gateway.worker.statistics().events_lost.read(), 0);
    assert_eq!(gateway.dropped(DropReason::AddressConflict), 4000);
    gateway.assert_nothing_lost();
}

/// A packet without a frame is one of another station, and of a link without frames no conflict.
#[test]
fn a_conflict_is_foretold() {
    let mut tables = plain_tables();
    let mut spec = PortSpec::new("tun", Mac::default());
    spec.addresses = vec![prefix("fd44::1/64")];
    spec.link = LinkKind::Ip;
    const TUN: PortId = PortId(4);
    tables.add_port(TUN, spec).unwrap();
    for (port, target, reason) in
        [(LAN, "fd13::1", DropReason::AddressConflict), (TUN, "fd44::1", DropReason::NdNotForUs)]
    {
        let frame = nd_frame(advertisement(OTHER, target), OTHER, "fe80::77", ALL_NODES);
        let arriving = Arriving {
            vrf: VrfId::MAIN,
            origin: Origin::Port(port),
            packet: &frame[14..],
            said: PacketFields::NONE,
            quotes_any_sequence: false,
            now: Default::default(),
        };
        assert_eq!(foretell(&arriving, &tables, &mut ()), Fate::Dropped(reason));
    }
}
