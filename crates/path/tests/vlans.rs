//! VLAN sub-ports: frames with a tag.

mod fixture;

use std::net::IpAddr;

use fixture::*;
use io::memory::MemoryOptions;
use packet::{DropReason, Time};
use pipeline::{Action, Change, Field, Flow, Match, Owner, Pipeline};
use tables::{PortSpec, RouteSpec, Tables, Vlan, VlanId, VlanTag};
use wire::ethernet::{self, EtherType};
use wire::ndp::Message;
use wire::{Mac, PortId, Protocol, VrfId, arp, headers};

/// VLAN 100 of the LAN, in a VRF of its own with the very addresses of the LAN.
const BLUE: PortId = PortId(1100);
/// VLAN 7 of the WAN, in the same VRF.
const BLUE_WAN: PortId = PortId(1007);
const BLUE_VRF: VrfId = VrfId(1);
const NOW: Time = Time(1_000_000_000);

fn vlan_spec(name: &str, parent: PortId, id: u16, addresses: &[&str]) -> PortSpec {
    PortSpec {
        vrf: BLUE_VRF,
        addresses: addresses.iter().map(|text| prefix(text)).collect(),
        vlan: Some(Vlan::new(parent, VlanTag::customer(VlanId::new(id).unwrap()))),
        ..PortSpec::new(name, Mac::default())
    }
}

/// [`plain_tables`], and the same once more on VLANs.
fn vlan_tables() -> Tables {
    let mut tables = plain_tables();
    assert_eq!(tables.add_vrf("blue"), Ok(BLUE_VRF));
    let lan = vlan_spec("lan.100", LAN, 100, &["192.168.13.1/24", "fd13::1/64"]);
    tables.add_port(BLUE, lan).unwrap();
    let wan = vlan_spec("wan.7", WAN, 7, &["192.168.11.2/24", "fd11::2/64"]);
    tables.add_port(BLUE_WAN, wan).unwrap();
    for (to, next_hop) in [("0.0.0.0/0", "192.168.11.1"), ("::/0", "fd11::1")] {
        let via = RouteSpec::Via { port: BLUE_WAN, address: ip(next_hop) };
        tables.set_route(BLUE_VRF, prefix(to), via).unwrap();
        tables.set_neighbour(BLUE_WAN, ip(next_hop), PEER_MAC).unwrap();
    }
    tables
}

fn lan_mac() -> Mac {
    MemoryOptions::ethernet("lan", LAN).mac
}

/// A frame from the host on the LAN with tags of these control fields.
fn tagged(tags: &[u16], packet: &[u8]) -> Vec<u8> {
    let mut bytes = frame(lan_mac(), HOST_MAC, packet);
    for control in tags.iter().rev() {
        let [high, low] = control.to_be_bytes();
        bytes.splice(12..12, [0x81, 0x00, high, low]);
    }
    bytes
}

/// What was sent: the VLAN, if there is a tag, the EtherType and what is behind it.
fn sent(gateway: &mut Gateway, port: PortId) -> Vec<(Option<u16>, EtherType, Vec<u8>)> {
    let handle = if port == LAN { &mut gateway.lan } else { &mut gateway.wan };
    let frames = std::iter::from_fn(|| handle.pop());
    frames
        .map(|frame| {
            let header = ethernet::Header::parse(&frame).unwrap();
            match header.ether_type {
                EtherType::VLAN => {
                    let tag = ethernet::Tag::parse(&frame, 14).unwrap();
                    (Some(tag.vlan), tag.ether_type, frame[18..].to_vec())
                }
                other => (None, other, frame[14..].to_vec()),
            }
        })
        .collect()
}

/// Packets of each family, and IPv4 ones that the straight path does not take.
fn packets() -> Vec<Vec<u8>> {
    let fragment = {
        let mut whole = udp("192.168.13.5", "8.8.8.8", (1, 2), 64);
        whole[6] = 0x20;
        wire::ipv4::fill_checksum(&mut whole);
        whole
    };
    vec![
        udp("192.168.13.5", "8.8.8.8", (1, 2), 10),
        udp("fd13::5", "2001:db8::8", (1, 2), 10),
        fragment,
    ]
}

#[test]
fn a_tagged_packet_goes_its_own_way_and_leaves_tagged() {
    for packet in packets() {
        let mut gateway = Gateway::new(vlan_tables());
        let bytes = tagged(&[100 | 0xb000], &packet);
        assert!(gateway.lan.push(&bytes));
        gateway.poll();
        let all = sent(&mut gateway, WAN);
        assert_eq!(all.len(), 1, "{:?}", gateway.drops());
        let (vlan, ether_type, inner) = &all[0];
        assert_eq!((*vlan, Some(*ether_type)), (Some(7), EtherType::of_ip(&packet)));
        assert_eq!(inner.len(), packet.len());
        assert!(sent(&mut gateway, LAN).is_empty());

        let tables = gateway.publisher.current();
        let counters = |port| tables.port_counters(port).unwrap();
        assert_eq!(counters(BLUE).received(), (1, bytes.len() as u64));
        assert_eq!(counters(BLUE).sent(), (0, 0));
        assert_eq!(counters(BLUE_WAN).sent(), (1, 18 + packet.len() as u64));
        gateway.assert_nothing_lost();
    }
}

/// Frames for any station go on as they came, with the tags of the VLAN that they leave by: from a VLAN to
/// another one, to a port, and from a port; one behind the other and many at once, whole and in fragments.
#[test]
fn flows_send_frames_on_by_other_vlans_and_by_ports() {
    let other = Mac([2, 0, 0, 0, 9, 9]);
    let as_frame = |to: Mac, tags: &[u16], packet: &[u8]| {
        let mut bytes = tagged(tags, packet);
        bytes[..6].copy_from_slice(&to.0);
        bytes
    };
    let ask = {
        let message = arp::Packet::request(HOST_MAC, v4("192.168.13.5"), v4("192.168.13.77"));
        let mut bytes = frame(Mac([0xff; 6]), HOST_MAC, &message.to_bytes());
        bytes[12..14].copy_from_slice(&EtherType::ARP.0.to_be_bytes());
        bytes
    };
    // By which VLAN of the LAN a frame comes, and by which of the WAN it leaves.
    for (from, to, tags, left) in [
        (BLUE, BLUE_WAN, &[100 | 0xb000][..], Some(7)),
        (BLUE, BLUE_WAN, &[0xe000, 100], Some(7)),
        (BLUE, WAN, &[100], None),
        (LAN, BLUE_WAN, &[], Some(7)),
        (LAN, BLUE_WAN, &[0xe000], Some(7)),
    ] {
        let vrf = if from == LAN { VrfId::MAIN } else { BLUE_VRF };
        let mut tables = vlan_tables();
        tables.set_pipeline(joined(vrf, from, to), NOW).unwrap();
        let mut gateway = Gateway::new(tables);
        let case = format!("{from:?} {to:?} {tags:?}");
        for packet in packets() {
            for (station, count) in [(lan_mac(), 1), (other, 1), (lan_mac(), 40), (other, 40)] {
                let bytes = as_frame(station, tags, &packet);
                (0..count).for_each(|_| assert!(gateway.lan.push(&bytes)));
                gateway.poll();
                for _ in 0..count {
                    let got =
                        gateway.wan.pop().unwrap_or_else(|| panic!("{case} {:?}", gateway.drops()));
                    let tag: Vec<u8> = left.map_or(vec![], |vlan| vec![0x81, 0, 0, vlan]);
                    let want = [&station.0, &HOST_MAC.0, &tag[..], &bytes[12 + 4 * tags.len()..]];
                    assert_eq!(got, want.concat(), "{case}");
                }
            }
        }
        // So does ARP for other addresses.
        let mut bytes = ask.clone();
        tags.iter().rev().for_each(|control| {
            let [high, low] = control.to_be_bytes();
            bytes.splice(12..12, [0x81, 0x00, high, low]);
        });
        assert!(gateway.lan.push(&bytes));
        gateway.poll();
        let (vlan, ether_type, inner) = sent(&mut gateway, WAN).remove(0);
        assert_eq!((vlan, ether_type), (left.map(u16::from), EtherType::ARP), "{case}");
        assert_eq!(inner[..28], ask[14..42]);
        assert_eq!(gateway.drops(), [], "{case}");
        // A VLAN that no flow names takes no frames for others, nor does what is no VLAN.
        let strange = if from == LAN { &[100][..] } else { &[] };
        for tags in [strange, &[99]] {
            assert!(gateway.lan.push(&as_frame(other, tags, &packets()[0])));
            gateway.poll();
        }
        let drops = match from == LAN {
            true => vec![("link_not_for_us", 1), ("vlan_unknown", 1)],
            false => vec![("link_not_for_us", 2)],
        };
        assert_eq!(gateway.drops(), drops, "{case}");
        gateway.assert_nothing_lost();
    }
}

/// What is longer than the other VLAN's MTU does not fit, and nothing is routed.
#[test]
fn frames_that_do_not_fit_the_vlan_they_are_sent_on_by_are_dropped() {
    let mut tables = vlan_tables();
    let small = PortSpec { mtu: 1400, ..tables.port(BLUE_WAN).unwrap().spec.clone() };
    tables.update_port(BLUE_WAN, small).unwrap();
    tables.set_pipeline(joined(BLUE_VRF, BLUE, BLUE_WAN), NOW).unwrap();
    let mut gateway = Gateway::new(tables);
    for (length, fits) in [(1372, true), (1373, false)] {
        let packet = udp("192.168.13.5", "8.8.8.8", (1, 2), length);
        assert!(gateway.lan.push(&tagged(&[100], &packet)));
        gateway.poll();
        assert_eq!(gateway.wan.pop().is_some(), fits);
    }
    assert_eq!(gateway.drops(), [("too_big", 1)]);
    gateway.assert_nothing_lost();
}

/// Flows that send each other's frames.
fn joined(vrf: VrfId, one: PortId, other: PortId) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for (from, to) in [(one, other), (other, one)] {
        let mut matches = Match::ANY;
        matches.set(Field::InPort, from.0.into(), 0xffff);
        let (cookie, idle_timeout, hard_timeout) = (0, 0, 0);
        let (table, priority, actions) = (0, 1, vec![Action::Output(to)]);
        let flow =
            Flow { vrf, table, priority, matches, actions, cookie, idle_timeout, hard_timeout };
        pipeline.apply(Change::Add { flow, check_overlap: false }, Owner::User).unwrap();
    }
    pipeline
}

#[test]
fn a_priority_tag_is_the_ports_own() {
    for packet in packets() {
        let mut gateway = Gateway::new(vlan_tables());
        assert!(gateway.lan.push(&tagged(&[0xe000], &packet)));
        gateway.poll();
        let all = sent(&mut gateway, WAN);
        assert_eq!(all.len(), 1, "{:?}", gateway.drops());
        assert_eq!(all[0].0, None);
        gateway.assert_nothing_lost();
    }
}

#[test]
fn a_batch_of_many_vlans_stays_apart() {
    let mut tables = plain_tables();
    // 64 tenants with the same addresses; the VLAN on the WAN is another number.
    for number in 1..=64u16 {
        let vrf = tables.add_vrf(&format!("tenant{number}")).unwrap();
        let (lan, wan) = (PortId(2000 + number), PortId(3000 + number));
        let spec = |name: String, parent, id, own| PortSpec {
            vrf,
            ..vlan_spec(&name, parent, id, &[own])
        };
        tables.add_port(lan, spec(format!("lan{number}"), LAN, number, "192.168.13.1/24")).unwrap();
        let id = 1000 + number;
        tables.add_port(wan, spec(format!("wan{number}"), WAN, id, "192.168.11.2/24")).unwrap();
        let via = RouteSpec::Via { port: wan, address: ip("192.168.11.1") };
        tables.set_route(vrf, prefix("0.0.0.0/0"), via).unwrap();
        tables.set_neighbour(wan, ip("192.168.11.1"), PEER_MAC).unwrap();
    }
    let mut gateway = Gateway::new(tables);
    for round in 0..4u16 {
        for at in 0..250u16 {
            let payload = 20 + at;
            let packet = udp("192.168.13.5", "8.8.8.8", (at, round), payload.into());
            // Runs of different lengths, and untagged ones between them.
            let number = at / (1 + round * 3) * 7 % 65;
            let tags = if number == 0 { vec![] } else { vec![number] };
            assert!(gateway.lan.push(&tagged(&tags, &packet)));
        }
        gateway.poll();
        let all = sent(&mut gateway, WAN);
        assert_eq!(all.len(), 250, "{:?}", gateway.drops());
        for (vlan, _, packet) in all {
            let at = u16::from_be_bytes([packet[20], packet[21]]);
            let number = at / (1 + round * 3) * 7 % 65;
            let expected = (number != 0).then_some(1000 + number);
            assert_eq!((vlan, packet.len()), (expected, 28 + 20 + usize::from(at)), "{at}");
        }
    }
    let tables = gateway.publisher.current();
    let count = |port: &tables::Port| Some(tables.port_counters(port.id)?.received().0);
    let received: u64 = tables.ports().filter_map(count).sum();
    let sent = |port: &tables::Port| Some(tables.port_counters(port.id)?.sent().0);
    assert_eq!(received, tables.ports().filter_map(sent).sum());
    assert!(received > 900 && received < 1000);
    gateway.assert_nothing_lost();
}

#[test]
fn echo_and_errors_go_back_with_the_tag() {
    let mut gateway = Gateway::new(vlan_tables());
    let echoes = [echo("192.168.13.5", "192.168.13.1", 10), echo("fd13::5", "fd13::1", 10)];
    for host in ["192.168.13.5", "fd13::5"] {
        gateway.change(|tables| tables.set_neighbour(BLUE, ip(host), HOST_MAC).unwrap());
    }
    for request in echoes {
        assert!(gateway.lan.push(&tagged(&[100], &request)));
        gateway.poll();
        let all = sent(&mut gateway, LAN);
        assert_eq!(all.len(), 1, "{:?}", gateway.drops());
        assert_eq!(all[0].0, Some(100));
    }
    // No hop is left.
    for (source, destination) in [("192.168.13.5", "8.8.8.8"), ("fd13::5", "2001:db8::8")] {
        let (source, destination) = (ip(source), ip(destination));
        let upper = [0, 1, 0, 2, 0, 8, 0, 0];
        let expiring = packet(source, destination, Protocol::UDP, 1, &upper);
        assert!(gateway.lan.push(&tagged(&[100], &expiring)));
        gateway.poll();
        let all = sent(&mut gateway, LAN);
        assert_eq!(all.len(), 1, "{:?}", gateway.drops());
        assert_eq!(all[0].0, Some(100));
        let error = headers::parse(&all[0].2).unwrap();
        assert_eq!(error.addresses.destination(), source);
    }
    gateway.assert_nothing_lost();
}

#[test]
fn neighbours_are_asked_and_answered_with_the_tag() {
    let mut gateway = Gateway::new(vlan_tables());
    // Somebody on the VLAN asks for our address; the same address is the untagged port's too.
    let request = arp::Packet::request(HOST_MAC, v4("192.168.13.5"), v4("192.168.13.1"));
    let mut bytes = ethernet::Header {
        destination: Mac::BROADCAST,
        source: HOST_MAC,
        ether_type: EtherType::VLAN,
    }
    .to_bytes()
    .to_vec();
    bytes.extend([0, 100, 0x08, 0x06]);
    bytes.extend(request.to_bytes());
    assert!(gateway.lan.push(&bytes));
    gateway.poll();
    let all = sent(&mut gateway, LAN);
    assert_eq!((all[0].0, all[0].1), (Some(100), EtherType::ARP));

    // The gateway asks on the VLAN for whom it does not know there.
    let back =
        [udp("8.8.8.8", "192.168.13.9", (1, 2), 10), udp("2001:db8::8", "fd13::9", (1, 2), 10)];
    for packet in back {
        let destination: IpAddr = headers::parse(&packet).unwrap().addresses.destination();
        let mut bytes = frame(MemoryOptions::ethernet("wan", WAN).mac, PEER_MAC, &packet);
        bytes.splice(12..12, [0x81, 0x00, 0, 7]);
        assert!(gateway.wan.push(&bytes));
        gateway.poll();
        let all = sent(&mut gateway, LAN);
        assert_eq!(all.len(), 1, "{:?}", gateway.drops());
        assert_eq!(all[0].0, Some(100));
        match destination {
            IpAddr::V4(target) => {
                assert_eq!(arp::Packet::parse(&all[0].2).unwrap().target_ip, target);
            }
            IpAddr::V6(wanted) => {
                let headers = headers::parse(&all[0].2).unwrap();
                let upper = headers.upper_bytes(&all[0].2);
                let message = wire::ndp::parse(&headers, upper);
                let Ok(Message::NeighbourSolicitation { target, .. }) = message else {
                    panic!("{message:?}")
                };
                assert_eq!(target, wanted);
            }
        }
        // What waited leaves once the answer is there, tagged.
        gateway.change(|tables| tables.set_neighbour(BLUE, destination, HOST_MAC).unwrap());
        gateway.poll();
        let all = sent(&mut gateway, LAN);
        assert_eq!((all.len(), all[0].0), (1, Some(100)));
        assert_eq!(all[0].2.len(), packet.len());
    }
    gateway.assert_nothing_lost();
}

#[test]
fn what_is_no_ports_is_dropped_by_name() {
    let mut gateway = Gateway::new(vlan_tables());
    let down = |tables: &mut Tables| {
        let spec = tables.port(BLUE).unwrap().spec.clone();
        tables.update_port(BLUE, PortSpec { up: false, ..spec }).unwrap();
    };
    let packet = udp("192.168.13.5", "8.8.8.8", (1, 2), 10);
    let service = {
        let mut bytes = tagged(&[100], &packet);
        bytes[12..14].copy_from_slice(&[0x88, 0xa8]);
        bytes
    };
    let mut check = |bytes: &[u8], reason| {
        let before = gateway.dropped(reason);
        assert!(gateway.lan.push(bytes));
        gateway.poll();
        assert_eq!(gateway.dropped(reason), before + 1, "{reason}: {:?}", gateway.drops());
    };
    for number in [1, 99, 101, 4095] {
        check(&tagged(&[number], &packet), DropReason::VlanUnknown);
    }
    // The sub-port of the outer tag has none for the inner.
    check(&tagged(&[100, 100], &packet), DropReason::VlanUnknown);
    check(&tagged(&[0, 99], &packet), DropReason::VlanUnknown);
    check(&tagged(&[100, 0, 0], &packet), DropReason::LinkVlan);
    check(&tagged(&[0, 0, 100], &packet), DropReason::LinkVlan);
    // The same number in another kind of tag is another VLAN.
    check(&service, DropReason::VlanUnknown);
    check(&tagged(&[100], &packet)[..17], DropReason::LinkTruncated);
    check(&tagged(&[100], &packet)[..18], DropReason::IpTruncated);
    gateway.change(down);
    assert!(gateway.lan.push(&tagged(&[100], &packet)));
    gateway.poll();
    assert_eq!(gateway.dropped(DropReason::PortDown), 1);
    assert!(sent(&mut gateway, WAN).is_empty() && sent(&mut gateway, LAN).is_empty());
    gateway.assert_nothing_lost();
}

/// A service VLAN of the LAN, a VLAN of it, and a VLAN of [`BLUE`], in VRFs of their own; and the
/// first two on the WAN.
const SERVICE: PortId = PortId(1200);
const INNER: PortId = PortId(1201);
const DOUBLE: PortId = PortId(1202);
const SERVICE_WAN: PortId = PortId(1300);
const INNER_WAN: PortId = PortId(1301);

/// [`vlan_tables`] with frames of two tags.
fn stacked_tables() -> Tables {
    let mut tables = vlan_tables();
    let vrfs = ["service", "inner", "double"].map(|name| tables.add_vrf(name).unwrap());
    let service = |port, id| Some(Vlan::new(port, VlanTag::service(VlanId::new(id).unwrap())));
    let own = ["192.168.13.1/24", "fd13::1/64"];
    let wan = ["192.168.11.2/24", "fd11::2/64"];
    let mut add = |id, vrf, spec: PortSpec| {
        tables.add_port(id, PortSpec { vrf, ..spec }).unwrap();
    };
    let outer = vlan_spec("s10", LAN, 10, &own);
    add(SERVICE, vrfs[0], PortSpec { vlan: service(LAN, 10), ..outer });
    add(INNER, vrfs[1], vlan_spec("s10.20", SERVICE, 20, &own));
    add(DOUBLE, vrfs[2], vlan_spec("q100.20", BLUE, 20, &own));
    let outer = vlan_spec("w30", WAN, 30, &wan);
    add(SERVICE_WAN, vrfs[0], PortSpec { vlan: service(WAN, 30), ..outer });
    add(INNER_WAN, vrfs[1], vlan_spec("w30.40", SERVICE_WAN, 40, &wan));
    add(PortId(1302), vrfs[2], vlan_spec("w7.50", BLUE_WAN, 50, &wan));
    for (vrf, port) in vrfs.into_iter().zip([SERVICE_WAN, INNER_WAN, PortId(1302)]) {
        for (to, next_hop) in [("0.0.0.0/0", "192.168.11.1"), ("::/0", "fd11::1")] {
            let via = RouteSpec::Via { port, address: ip(next_hop) };
            tables.set_route(vrf, prefix(to), via).unwrap();
            tables.set_neighbour(port, ip(next_hop), PEER_MAC).unwrap();
        }
    }
    tables
}

/// A frame from the host on the LAN with these tags.
fn stacked(tags: &[(u16, u16)], packet: &[u8]) -> Vec<u8> {
    let mut bytes = frame(lan_mac(), HOST_MAC, packet);
    for (protocol, control) in tags.iter().rev() {
        bytes.splice(12..12, [protocol.to_be_bytes(), control.to_be_bytes()].concat());
    }
    bytes
}

/// EtherType and number of each.
type Tags = Vec<(u16, u16)>;

/// What was sent: its tags, and what is behind them.
fn sent_stacked(gateway: &mut Gateway, port: PortId) -> Vec<(Tags, Vec<u8>)> {
    let handle = if port == LAN { &mut gateway.lan } else { &mut gateway.wan };
    let frames = std::iter::from_fn(|| handle.pop());
    frames
        .map(|frame| {
            let word = |at| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let mut tags = Vec::new();
            while [0x8100, 0x88a8].contains(&word(12 + 4 * tags.len())) {
                let at = 12 + 4 * tags.len();
                tags.push((word(at), word(at + 2)));
            }
            let behind = frame[14 + 4 * tags.len()..].to_vec();
            (tags, behind)
        })
        .collect()
}

const Q: u16 = 0x8100;
const AD: u16 = 0x88a8;

#[test]
fn frames_with_two_tags_are_of_the_inner_vlan() {
    let cases: [(&[_], &[_], &[_]); 7] = [
        (&[(AD, 10)], &[(AD, 30)], &[SERVICE]),
        (&[(AD, 10), (Q, 20)], &[(AD, 30), (Q, 40)], &[SERVICE, INNER]),
        (&[(AD, 0xb00a), (Q, 0x7014)], &[(AD, 30), (Q, 40)], &[SERVICE, INNER]),
        (&[(Q, 100), (Q, 20)], &[(Q, 7), (Q, 50)], &[BLUE, DOUBLE]),
        // Tags without a VLAN, of either kind, stay where they are.
        (&[(AD, 0xe000)], &[], &[]),
        (&[(Q, 0xe000), (AD, 10)], &[(AD, 30)], &[SERVICE]),
        (&[(AD, 10), (Q, 0xe000)], &[(AD, 30)], &[SERVICE]),
    ];
    for packet in packets() {
        for (tags, expected, entered) in cases {
            let mut gateway = Gateway::new(stacked_tables());
            let bytes = stacked(tags, &packet);
            assert!(gateway.lan.push(&bytes));
            gateway.poll();
            let all = sent_stacked(&mut gateway, WAN);
            assert_eq!(all.len(), 1, "{tags:x?}: {:?}", gateway.drops());
            assert_eq!((&all[0].0[..], all[0].1.len()), (expected, packet.len()), "{tags:x?}");
            let tables = gateway.publisher.current();
            for port in tables.ports() {
                let Some(counters) = tables.port_counters(port.id) else { continue };
                let of = |is: bool, bytes| if is { (1, bytes as u64) } else { (0, 0) };
                let came = of(entered.contains(&port.id), bytes.len());
                assert_eq!(counters.received(), came, "{tags:x?} {}", port.spec.name);
                let length = 14 + 4 * expected.len() + packet.len();
                let is_of = |(at, (protocol, id)): (usize, &(u16, u16))| {
                    port.spec.vlan.unwrap().tags().count() == at + 1
                        && port.spec.vlan.unwrap().queue() == WAN
                        && port.spec.vlan.unwrap().tag.protocol.ether_type() == *protocol
                        && port.spec.vlan.unwrap().tag.id.number() == *id
                };
                let left = of(expected.iter().enumerate().any(is_of), length);
                assert_eq!(counters.sent(), left, "{tags:x?} {}", port.spec.name);
            }
            gateway.assert_nothing_lost();
        }
    }
}

#[test]
fn frames_of_many_vlans_in_one_batch_are_each_counted_where_they_came() {
    const VLANS: u16 = 30;
    let mut tables = vlan_tables();
    for number in 0..VLANS {
        let spec = vlan_spec(&format!("lan.{}", 200 + number), LAN, 200 + number, &[]);
        tables.add_port(PortId(2000 + number), spec).unwrap();
    }
    let mut gateway = Gateway::new(tables);
    let packet = udp("192.168.13.5", "8.8.8.8", (1, 2), 10);
    let bytes = tagged(&[200], &packet).len() as u64;
    // Runs of one frame to three, and between them some of no port's tag.
    let runs = (0..60_u16).map(|run| match run % 13 {
        12 => (900, 1),
        _ => (200 + run * 7 % VLANS, 1 + run % 3),
    });
    let mut expected = [0; VLANS as usize];
    let mut unknown = 0;
    for (number, length) in runs {
        for _ in 0..length {
            assert!(gateway.lan.push(&tagged(&[number], &packet)));
        }
        match expected.get_mut(usize::from(number - 200)) {
            Some(frames) => *frames += u64::from(length),
            None => unknown += u64::from(length),
        }
    }
    gateway.poll();
    assert_eq!(gateway.dropped(DropReason::VlanUnknown), unknown);
    let tables = gateway.publisher.current();
    for (number, frames) in (0..).zip(expected) {
        let counters = tables.port_counters(PortId(2000 + number)).unwrap();
        assert_eq!(counters.received(), (frames, frames * bytes), "VLAN {}", 200 + number);
    }
    assert_eq!(sent(&mut gateway, WAN).len() as u64, expected.iter().sum());
    gateway.assert_nothing_lost();
}

/// One uncommon frame ends what is done for many together, wherever it stands; with one tag and two.
#[test]
fn uncommon_frames_among_those_of_many_vlans_are_counted_too() {
    const VLANS: u16 = 40;
    let [common, other_family, fragment] = packets().try_into().unwrap();
    for (parent, outer) in [(LAN, &[][..]), (BLUE, &[100][..])] {
        let mut tables = vlan_tables();
        for number in 0..VLANS {
            let spec = vlan_spec(&format!("sub{number}"), parent, 200 + number, &[]);
            tables.add_port(PortId(2000 + number), spec).unwrap();
        }
        let mut gateway = Gateway::new(tables);
        let (mut expected, mut all) = ([(0, 0); VLANS as usize], 0);
        for distance in [1, 2, 5, 16, 17, 100] {
            for at in 0..200_u16 {
                let number = at * 7 % VLANS;
                let packet = match at % distance {
                    _ if at % 11 == 0 => &other_family,
                    0 => &fragment,
                    _ => &common,
                };
                let bytes = tagged(&[outer, &[200 + number]].concat(), packet);
                assert!(gateway.lan.push(&bytes));
                let (frames, sum) = &mut expected[usize::from(number)];
                (*frames, *sum) = (*frames + 1, *sum + bytes.len() as u64);
            }
            gateway.poll();
            all += sent(&mut gateway, WAN).len() as u64;
        }
        let tables = gateway.publisher.current();
        for (number, expected) in (0..).zip(expected) {
            let counters = tables.port_counters(PortId(2000 + number)).unwrap();
            assert_eq!(counters.received(), expected, "VLAN {} of {parent:?}", 200 + number);
        }
        assert_eq!(all, expected.iter().map(|(frames, _)| frames).sum());
        gateway.assert_nothing_lost();
    }
}

#[test]
fn tags_of_no_port_are_dropped_by_name() {
    let mut gateway = Gateway::new(stacked_tables());
    let packet = udp("192.168.13.5", "8.8.8.8", (1, 2), 10);
    let mut check = |tags: &[(u16, u16)], reason, length: Option<usize>| {
        let before = gateway.dropped(reason);
        let mut bytes = stacked(tags, &packet);
        bytes.truncate(length.unwrap_or(bytes.len()));
        assert!(gateway.lan.push(&bytes));
        gateway.poll();
        assert_eq!(gateway.dropped(reason), before + 1, "{tags:x?}: {:?}", gateway.drops());
    };
    for tags in [
        &[(AD, 11)][..],
        &[(AD, 100)],
        &[(Q, 10)],
        &[(AD, 4095)],
        &[(AD, 10), (Q, 21)],
        &[(AD, 10), (AD, 20)],
        &[(AD, 11), (Q, 20)],
        &[(Q, 20), (AD, 10)],
        &[(AD, 10), (Q, 4095)],
    ] {
        check(tags, DropReason::VlanUnknown, None);
    }
    check(&[(AD, 10), (Q, 20), (Q, 20)], DropReason::LinkVlan, None);
    check(&[(0x9100, 10)], DropReason::LinkProtocol, None);
    check(&[(AD, 10), (Q, 20)], DropReason::LinkTruncated, Some(21));
    check(&[(AD, 10), (Q, 20)], DropReason::IpTruncated, Some(22));
    // What came with an outer tag of ours is counted there.
    let tables = gateway.publisher.current();
    let received = |port| tables.port_counters(port).unwrap().received().0;
    assert_eq!((received(SERVICE), received(INNER)), (6, 2));
    for port in [INNER, SERVICE] {
        gateway.change(|tables| {
            let spec = tables.port(port).unwrap().spec.clone();
            tables.update_port(port, PortSpec { up: false, ..spec }).unwrap();
        });
        let before = gateway.dropped(DropReason::PortDown);
        assert!(gateway.lan.push(&stacked(&[(AD, 10), (Q, 20)], &packet)));
        gateway.poll();
        assert_eq!(gateway.dropped(DropReason::PortDown), before + 1);
    }
    assert!(sent(&mut gateway, WAN).is_empty() && sent(&mut gateway, LAN).is_empty());
    gateway.assert_nothing_lost();
}

#[test]
fn the_gateway_speaks_with_two_tags() {
    let mut gateway = Gateway::new(stacked_tables());
    let tags = [(AD, 10), (Q, 20)];
    // ARP, echo, and an ICMP error.
    let request = arp::Packet::request(HOST_MAC, v4("192.168.13.5"), v4("192.168.13.1"));
    let mut bytes = stacked(&tags, &[]);
    bytes[..6].copy_from_slice(&[0xff; 6]);
    bytes.truncate(20);
    bytes.extend([0x08, 0x06]);
    bytes.extend(request.to_bytes());
    let expiring = {
        let upper = [0, 1, 0, 2, 0, 8, 0, 0];
        packet(ip("192.168.13.5"), ip("8.8.8.8"), Protocol::UDP, 1, &upper)
    };
    let echoes = [echo("192.168.13.5", "192.168.13.1", 10), echo("fd13::5", "fd13::1", 10)];
    gateway.change(|tables| tables.set_neighbour(INNER, ip("fd13::5"), HOST_MAC).unwrap());
    gateway.change(|tables| tables.set_neighbour(INNER, ip("192.168.13.5"), HOST_MAC).unwrap());
    let packets = echoes.iter().chain([&expiring]).map(|packet| stacked(&tags, packet));
    for bytes in [bytes].into_iter().chain(packets) {
        assert!(gateway.lan.push(&bytes));
        gateway.poll();
        let all = sent_stacked(&mut gateway, LAN);
        assert_eq!(all.len(), 1, "{:?}", gateway.drops());
        assert_eq!(all[0].0, tags);
    }
    gateway.assert_nothing_lost();
}

#[test]
fn a_parent_that_goes_down_takes_its_vlans_along() {
    let mut gateway = Gateway::new(vlan_tables());
    let set = |gateway: &mut Gateway, port, up| {
        gateway.change(|tables| {
            let spec = tables.port(port).unwrap().spec.clone();
            tables.update_port(port, PortSpec { up, ..spec }).unwrap();
        });
    };
    let packet = udp("192.168.13.5", "8.8.8.8", (1, 2), 10);
    let send = |gateway: &mut Gateway| {
        assert!(gateway.lan.push(&tagged(&[100], &packet)));
        gateway.poll();
        sent(gateway, WAN).len()
    };
    assert_eq!(send(&mut gateway), 1);
    set(&mut gateway, WAN, false);
    assert!(!gateway.publisher.current().port(BLUE_WAN).unwrap().spec.up);
    assert_eq!((send(&mut gateway), gateway.dropped(DropReason::PortDown)), (0, 1));
    // It comes up when it is asked to, and only with its parent.
    set(&mut gateway, BLUE_WAN, true);
    assert_eq!(send(&mut gateway), 0);
    set(&mut gateway, WAN, true);
    assert_eq!(send(&mut gateway), 0);
    set(&mut gateway, BLUE_WAN, true);
    assert_eq!(send(&mut gateway), 1);
    gateway.assert_nothing_lost();
}
