//! Routes from one VRF into another: what packets meet on the way, and what their senders are told.

#[path = "fixture/built.rs"]
mod built;
mod fixture;

use std::time::Duration;

use built::flow;
use fixture::*;
use packet::DropReason;
use pipeline::{Action, Flow, Owner};
use tables::{PortSpec, RouteSpec, Tables, Vlan, VlanId, VlanTag, Wall};
use wire::ethernet;
use wire::{Headers, Mac, PortId, Upper, VrfId, headers};

const RED: VrfId = VrfId(1);
const GREEN: VrfId = VrfId(2);
const RED_PORT: PortId = PortId(1100);
const HOSTS: [&str; 2] = ["10.1.0.5", "fd01::5"];
const OWN: [&str; 2] = ["10.1.0.1", "fd01::1"];
const FAR: [&str; 2] = ["8.8.8.8", "2001:db8::8"];

/// The VRF red has a VLAN of the LAN; the WAN is in `main`, and red's packets leave by it.
fn leaking(spec: Option<&RouteSpec>) -> Tables {
    let mut tables = plain_tables();
    assert_eq!((tables.add_vrf("red"), tables.add_vrf("green")), (Ok(RED), Ok(GREEN)));
    let port = PortSpec {
        vrf: RED,
        addresses: OWN
            .map(|own| prefix(&format!("{own}/{}", if own.contains(':') { 64 } else { 24 })))
            .to_vec(),
        vlan: Some(Vlan::new(LAN, VlanTag::customer(VlanId::new(10).unwrap()))),
        ..PortSpec::new("red0", Mac::default())
    };
    tables.add_port(RED_PORT, port).unwrap();
    for host in HOSTS {
        tables.set_neighbour(RED_PORT, ip(host), HOST_MAC).unwrap();
    }
    for everywhere in ["0.0.0.0/0", "::/0"] {
        let spec = spec.cloned().unwrap_or(RouteSpec::Vrf { vrf: VrfId::MAIN });
        tables.set_route(RED, prefix(everywhere), spec).unwrap();
    }
    tables
}

fn push(gateway: &mut Gateway, packet: &[u8]) {
    let to = io::memory::MemoryOptions::ethernet("lan", LAN).mac;
    let mut bytes = frame(to, HOST_MAC, packet);
    bytes.splice(12..12, [0x81, 0x00, 0, 10]);
    assert!(gateway.lan.push(&bytes));
    gateway.poll();
}

/// The one IP packet that went to red.
fn told(gateway: &mut Gateway) -> (Headers, Vec<u8>) {
    let frame = gateway.lan.pop().unwrap_or_else(|| panic!("nothing: {:?}", gateway.drops()));
    assert_eq!(ethernet::Tag::parse(&frame, 14).unwrap().vlan, 10);
    assert!(gateway.lan.pop().is_none());
    (headers::parse(&frame[18..]).unwrap(), frame[18..].to_vec())
}

fn is_icmp(headers: &Headers, of_v4: (u8, u8), of_v6: (u8, u8)) -> bool {
    let wanted = if headers.addresses.is_v6() { of_v6 } else { of_v4 };
    matches!(headers.upper, Upper::Icmp { kind, code, .. } if (kind, code) == wanted)
}

#[test]
fn one_hop_is_taken_and_the_answer_finds_back() {
    for (host, far) in HOSTS.into_iter().zip(FAR) {
        let mut gateway = Gateway::new(leaking(None));
        for _ in 0..2 {
            push(&mut gateway, &udp(host, far, (1, 2), 100));
            let (mac, sent) = gateway.sent_one(WAN);
            assert_eq!((mac, headers::parse(&sent).unwrap().hop_limit), (PEER_MAC, 63));
        }
        // Nothing leads back before a route says so.
        gateway.receive(WAN, &udp(far, host, (2, 1), 100));
        assert!(gateway.lan.pop().is_none());
        gateway.change(|tables| {
            let spec = RouteSpec::Connected { port: RED_PORT };
            for net in ["10.1.0.0/24", "fd01::/64"] {
                tables.set_route(VrfId::MAIN, prefix(net), spec.clone()).unwrap();
            }
        });
        gateway.receive(WAN, &udp(far, host, (2, 1), 100));
        assert_eq!(told(&mut gateway).0.hop_limit, 63);
    }
}

#[test]
fn errors_are_from_the_port_that_the_packet_came_by() {
    for ((host, own), far) in HOSTS.into_iter().zip(OWN).zip(FAR) {
        let mut gateway = Gateway::new(leaking(None));
        let mut expiring = udp(host, far, (5000, 33434), 20);
        match expiring[0] >> 4 {
            4 => {
                expiring[8] = 1;
                wire::ipv4::fill_checksum(&mut expiring);
            }
            _ => expiring[7] = 1,
        }
        push(&mut gateway, &expiring);
        let (error, _) = told(&mut gateway);
        assert_eq!(error.addresses, addresses(ip(own), ip(host)));
        assert!(is_icmp(&error, (11, 0), (3, 0)));

        gateway.change(|tables| {
            let mut spec = tables.port(WAN).unwrap().spec.clone();
            spec.mtu = 1300;
            tables.update_port(WAN, spec).unwrap();
        });
        let mut whole = udp(host, far, (5000, 53), 1400);
        if whole[0] >> 4 == 4 {
            whole[6] = 0x40;
            wire::ipv4::fill_checksum(&mut whole);
        }
        push(&mut gateway, &whole);
        let (error, bytes) = told(&mut gateway);
        assert_eq!(error.addresses, addresses(ip(own), ip(host)));
        assert!(is_icmp(&error, (3, 4), (2, 0)));
        let mtu = if error.addresses.is_v6() { &bytes[46..48] } else { &bytes[26..28] };
        assert_eq!(u16::from_be_bytes([mtu[0], mtu[1]]), 1300);
        gateway.assert_nothing_lost();
    }
}

/// A firewall is about all that leaves by its VRF's ports, whoever sends it.
#[test]
fn a_vrf_with_a_firewall_is_not_entered_from_one_without() {
    let walls = |tables: &mut Tables, walls: &[(VrfId, Wall)]| {
        tables.set_walls(walls.iter().copied().collect());
    };
    for (host, far) in HOSTS.into_iter().zip(FAR) {
        let packet = udp(host, far, (1, 2), 100);
        let mut gateway = Gateway::new(leaking(None));
        push(&mut gateway, &packet);
        assert_eq!(gateway.sent(WAN).len(), 1);
        // What was decided does not count any more.
        gateway.change(|tables| walls(tables, &[(VrfId::MAIN, Wall::Drop)]));
        push(&mut gateway, &packet);
        assert_eq!(gateway.drops(), [("firewall_other_vrf", 1)]);
        assert!(gateway.sent(WAN).is_empty() && gateway.lan.pop().is_none());
        gateway.change(|tables| walls(tables, &[(VrfId::MAIN, Wall::Reject)]));
        push(&mut gateway, &packet);
        assert!(gateway.sent(WAN).is_empty());
        assert!(is_icmp(&told(&mut gateway).0, (3, 13), (1, 1)));
        // That of another VRF is no concern of it, and that of its own neither.
        gateway.change(|tables| walls(tables, &[(GREEN, Wall::Drop), (RED, Wall::Drop)]));
        push(&mut gateway, &packet);
        assert_eq!(gateway.sent(WAN).len(), 1);
        // What flows of red let go is said by hand.
        gateway.change(|tables| {
            let flow = Flow { vrf: RED, ..flow(0, 1, &[], &[Action::Normal]) };
            let mut pipeline = tables.pipeline().clone();
            pipeline.replace(vec![flow], Owner::User).unwrap();
            tables.set_pipeline(pipeline, packet::Time::default()).unwrap();
            walls(tables, &[(VrfId::MAIN, Wall::Drop)]);
        });
        push(&mut gateway, &packet);
        assert_eq!(gateway.sent(WAN).len(), 1, "{:?}", gateway.drops());
    }
}

#[test]
fn a_circle_ends() {
    for (host, far) in HOSTS.into_iter().zip(FAR) {
        let mut gateway = Gateway::new(leaking(Some(&RouteSpec::Vrf { vrf: GREEN })));
        push(&mut gateway, &udp(host, far, (1, 2), 100));
        assert!(is_icmp(&told(&mut gateway).0, (3, 0), (1, 0)), "green has no route");
        gateway.change(|tables| {
            for everywhere in ["0.0.0.0/0", "::/0"] {
                let back = RouteSpec::Vrf { vrf: RED };
                tables.set_route(GREEN, prefix(everywhere), back).unwrap();
            }
        });
        push(&mut gateway, &udp(host, far, (1, 2), 100));
        assert!(is_icmp(&told(&mut gateway).0, (3, 1), (1, 3)));
        assert_eq!(gateway.dropped(DropReason::RouteLoop), 1);
        gateway.change(|tables| {
            for everywhere in ["0.0.0.0/0", "::/0"] {
                let on = RouteSpec::Vrf { vrf: VrfId::MAIN };
                tables.set_route(GREEN, prefix(everywhere), on).unwrap();
            }
        });
        push(&mut gateway, &udp(host, far, (1, 2), 100));
        gateway.sent_one(WAN);
        gateway.assert_nothing_lost();
    }
}

/// Of the VRF into which a route leads, only what is behind its ports is reached.
#[test]
fn own_addresses_of_the_other_vrf_are_unreachable() {
    for (host, there) in HOSTS.into_iter().zip(["192.168.13.1", "fd13::1"]) {
        let mut gateway = Gateway::new(leaking(None));
        push(&mut gateway, &echo(host, there, 8));
        assert!(is_icmp(&told(&mut gateway).0, (3, 1), (1, 3)));
        assert_eq!(gateway.dropped(DropReason::RouteUnreachable), 1);
        gateway.assert_nothing_lost();
    }
}

/// What waits for a next hop in another VRF is given up with an error in its own.
#[test]
fn a_silent_next_hop_is_told() {
    for (host, there) in HOSTS.into_iter().zip(["192.168.13.77", "fd13::77"]) {
        let mut gateway = Gateway::new(leaking(None));
        push(&mut gateway, &udp(host, there, (1, 2), 100));
        (0..5).for_each(|_| gateway.wait(Duration::from_secs(1)));
        let frames: Vec<_> = std::iter::from_fn(|| gateway.lan.pop()).collect();
        let tagged = frames.iter().filter(|frame| frame[12..14] == [0x81, 0x00]);
        let errors: Vec<_> = tagged.filter_map(|frame| headers::parse(&frame[18..]).ok()).collect();
        assert_eq!(errors.len(), 1, "{:?}", gateway.drops());
        assert!(is_icmp(&errors[0], (3, 1), (1, 3)));
        gateway.assert_nothing_lost();
    }
}
