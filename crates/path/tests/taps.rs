//! Taps see what they are to see, where they are to see it, and nothing else.

mod fixture;
#[path = "fixture/flows.rs"]
mod flows;

use std::time::Duration;

use fixture::*;
use packet::DropReason;
use path::{TapDirection, TapReader, tap_ring};
use tables::bpf::{Instruction, Program};
use tables::{FilterTarget, RouteSpec, TapPoints, TapSpec};
use wire::{PortId, VrfId};

const IN: TapPoints = TapPoints { ingress: true, egress: false, drop: false };
const OUT: TapPoints = TapPoints { ingress: false, egress: true, drop: false };
const DROP: TapPoints = TapPoints { ingress: false, egress: false, drop: true };
const VRF: FilterTarget = FilterTarget::Vrf(VrfId::MAIN);

fn port(id: PortId) -> FilterTarget {
    FilterTarget::Port(id)
}

fn tap(id: u64, target: FilterTarget, points: TapPoints) -> TapSpec {
    TapSpec { id, target, points, snaplen: 65_535, rate: None, program: None }
}

/// A gateway with these taps, and what comes of them.
fn tapped(tables: tables::Tables, taps: &[TapSpec]) -> (Gateway, TapReader) {
    let mut gateway = Gateway::new(tables);
    let (writer, reader) = tap_ring(1 << 20);
    gateway.worker.set_taps(writer);
    gateway.change(|tables| taps.iter().for_each(|tap| tables.add_tap(tap.clone()).unwrap()));
    (gateway, reader)
}

/// Tap, direction, interface, comment and bytes of every copy.
fn copies(reader: &mut TapReader) -> Vec<(u64, TapDirection, String, String, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(record) = reader.read() {
        let (interface, comment) = (record.interface.to_owned(), record.comment.to_owned());
        all.push((record.tap, record.direction, interface, comment, record.bytes.to_vec()));
    }
    all
}

fn taps_of(reader: &mut TapReader) -> Vec<u64> {
    copies(reader).iter().map(|copy| copy.0).collect()
}

/// What flows send on as a frame is seen as packets are: from the IP header on, and by its port.
#[test]
fn a_frame_that_flows_send_on_is_seen_as_a_packet() {
    let tables = flows::tables("in_port=lan,ip,actions=output:wan");
    let (mut gateway, mut reader) =
        tapped(tables, &[tap(1, port(LAN), IN), tap(2, port(WAN), OUT)]);
    let packet = udp("192.168.13.5", "8.8.8.8", (5000, 53), 100);
    for _ in 0..3 {
        gateway.receive(LAN, &packet);
        gateway.sent_one(WAN);
        let seen = copies(&mut reader);
        let told: Vec<_> = seen.iter().map(|(tap, _, port, ..)| (*tap, port.as_str())).collect();
        assert_eq!(told, [(1, "lan"), (2, "wan")]);
        assert!(seen.iter().all(|(.., bytes)| *bytes == packet));
    }
}

#[test]
fn a_packet_is_seen_as_it_came_and_as_it_leaves() {
    let taps = [
        tap(1, port(LAN), IN),
        tap(2, port(WAN), OUT),
        tap(3, VRF, IN),
        tap(4, VRF, OUT),
        tap(5, VRF, DROP),
        tap(6, port(LAN), OUT),
        tap(7, port(WAN), IN),
    ];
    for (from, to) in [("192.168.13.5", "8.8.8.8"), ("fd13::5", "2001:db8::8")] {
        let (mut gateway, mut reader) = tapped(plain_tables(), &taps);
        let packet = udp(from, to, (5000, 53), 100);
        // Decided, and from the cache.
        for _ in 0..3 {
            gateway.receive(LAN, &packet);
            let (_, sent) = gateway.sent_one(WAN);
            let seen = copies(&mut reader);
            assert_eq!(seen.iter().map(|copy| copy.0).collect::<Vec<_>>(), [1, 3, 2, 4]);
            for (tap, direction, interface, comment, bytes) in seen {
                let leaves = [2, 4].contains(&tap);
                assert_eq!(bytes, if leaves { &*sent } else { &*packet });
                assert_eq!(interface, if leaves { "wan" } else { "lan" });
                assert_eq!(direction == TapDirection::Outbound, leaves);
                assert!(comment.starts_with("vrf main; forward in clear by wan"), "{comment}");
            }
        }
        gateway.assert_nothing_lost();
    }
}

#[test]
fn a_tunnel_shows_the_inner_packet_to_the_vrf_and_the_outer_one_to_the_port() {
    let tables = tunnel_tables(("192.168.11.2", "192.168.11.1"), false);
    let (mut gateway, mut reader) = tapped(tables, &[tap(1, VRF, OUT), tap(2, port(WAN), OUT)]);
    let packet = udp("192.168.13.5", "192.168.12.7", (5000, 53), 100);
    // With others of the same tunnel around it, which wait to be encrypted.
    for _ in 0..3 {
        gateway.receive(LAN, &packet);
    }
    let sent = gateway.sent(WAN);
    let seen = copies(&mut reader);
    assert_eq!(seen.iter().map(|copy| copy.0).collect::<Vec<_>>(), [1, 2, 1, 2, 1, 2]);
    for (copy, (_, sent)) in seen.chunks(2).zip(&sent) {
        assert_eq!(copy[0].2, "vrf main");
        // The hop limit alone is another.
        assert_eq!(copy[0].4[12..], packet[12..]);
        assert_eq!(copy[0].4[8], packet[8] - 1);
        assert_eq!((&copy[1].2[..], &copy[1].4), ("wan", sent));
        assert!(copy[1].3.contains("encrypt and send by wan"), "{}", copy[1].3);
        assert_eq!(copy[1].4[9], 50);
    }
    gateway.assert_nothing_lost();
}

#[test]
fn dropped_packets_are_seen_with_their_reason_decided_or_later() {
    let mut tables = plain_tables();
    tables.set_route(VrfId::MAIN, prefix("10.1.0.0/16"), RouteSpec::Blackhole).unwrap();
    let (mut gateway, mut reader) = tapped(tables, &[tap(1, port(LAN), DROP)]);
    gateway.receive(LAN, &udp("192.168.13.5", "8.8.8.8", (1, 2), 10));
    assert_eq!(copies(&mut reader), []);
    let mut last_hop = udp("192.168.13.5", "8.8.8.8", (1, 2), 10);
    last_hop[8] = 1;
    wire::ipv4::fill_checksum(&mut last_hop);
    let mut large = udp("192.168.13.5", "8.8.8.8", (1, 2), 1400);
    large[6] = 0x40;
    wire::ipv4::fill_checksum(&mut large);
    for (packet, reason) in [
        (udp("192.168.13.5", "10.1.2.3", (1, 2), 10), DropReason::RouteBlackhole),
        (last_hop, DropReason::HopLimit),
        (large, DropReason::TooBig),
        (udp("192.168.13.5", "192.168.13.1", (1, 2), 10), DropReason::LocalNoListener),
    ] {
        if reason == DropReason::TooBig {
            gateway.change(|tables| {
                let mut spec = tables.port(WAN).unwrap().spec.clone();
                spec.mtu = 1300;
                tables.update_port(WAN, spec).unwrap();
            });
        }
        gateway.receive(LAN, &packet);
        assert_eq!(gateway.dropped(reason), 1);
        let seen = copies(&mut reader);
        assert_eq!(seen.len(), 1, "{reason:?}");
        assert_eq!(seen[0].2, "lan");
        let end = format!("; dropped: {}", reason.name());
        assert!(seen[0].3.ends_with(&end), "{}", seen[0].3);
        assert_eq!(seen[0].4[12..], packet[12..]);
    }
}

#[test]
fn what_was_decrypted_is_seen_in_its_vrf() {
    let (me, remote) = ("192.168.11.2", "192.168.11.1");
    let (mut gateway, mut reader) = tapped(tunnel_tables((me, remote), false), &[tap(1, VRF, IN)]);
    let inner = udp("192.168.12.7", "192.168.13.5", (53, 5000), 100);
    let outer = seal(&peer_outbound(0x1002, false), remote, me, &inner);
    gateway.receive(WAN, &outer);
    let seen = copies(&mut reader);
    assert_eq!(seen.len(), 2);
    assert_eq!((&seen[0].2[..], &seen[0].4), ("wan", &outer));
    assert!(seen[0].3.contains("decrypt"), "{}", seen[0].3);
    assert_eq!((&seen[1].2[..], &seen[1].4), ("vrf main", &inner));
    assert!(seen[1].3.contains("forward in clear by lan"), "{}", seen[1].3);
    gateway.assert_nothing_lost();
}

#[test]
fn taps_come_and_go_and_no_other_flow_is_decided_anew() {
    let (mut gateway, mut reader) = tapped(plain_tables(), &[]);
    let out = udp("192.168.13.5", "8.8.8.8", (1, 2), 10);
    let back = udp("192.168.11.1", "192.168.11.2", (3, 4), 10);
    let own = udp("192.168.11.1", "192.168.11.2", (500, 500), 10);
    for packet in [&out, &out] {
        gateway.receive(LAN, packet);
    }
    gateway.receive(WAN, &back);
    gateway.receive(WAN, &own);
    gateway.receive(WAN, &own);
    let decided = gateway.worker.statistics().decided.read();
    // What came by the WAN for the gateway itself is none of this tap's.
    gateway.change(|tables| tables.add_tap(tap(1, port(LAN), IN)).unwrap());
    gateway.receive(WAN, &own);
    assert_eq!(gateway.worker.statistics().decided.read(), decided);
    gateway.receive(LAN, &out);
    assert_eq!(taps_of(&mut reader), [1]);
    assert_eq!(gateway.worker.statistics().decided.read(), decided + 1);
    // In the same place.
    gateway.change(|tables| {
        assert_eq!(tables.remove_taps(|tap| tap.id == 1), 1);
        tables.add_tap(tap(2, port(WAN), OUT)).unwrap();
    });
    gateway.receive(LAN, &out);
    assert_eq!(taps_of(&mut reader), [2]);
    gateway.change(|tables| _ = tables.remove_taps(|_| true));
    gateway.receive(LAN, &out);
    assert_eq!(copies(&mut reader), []);
    assert!(!gateway.publisher.current().is_tapped());
}

#[test]
fn filter_rate_and_length_bound_what_is_copied_and_what_finds_no_room_is_counted() {
    let is_udp = [(0x30, 0, 0, 9), (0x15, 0, 1, 17), (6, 0, 0, 1), (6, 0, 0, 0)];
    let instruction = |(code, jump_true, jump_false, constant)| Instruction {
        code,
        jump_true,
        jump_false,
        constant,
    };
    let program = Program::new(is_udp.map(instruction).to_vec()).unwrap();
    let mut filtered = tap(1, VRF, IN);
    filtered.program = Some(program);
    filtered.snaplen = 30;
    let mut slow = tap(2, VRF, IN);
    slow.rate = Some(10);
    let (mut gateway, mut reader) = tapped(plain_tables(), &[filtered, slow]);
    gateway.receive(LAN, &udp("192.168.13.5", "8.8.8.8", (1, 2), 10));
    gateway.receive(LAN, &echo("192.168.13.5", "8.8.8.8", 10));
    let seen = copies(&mut reader);
    assert_eq!(seen.iter().map(|copy| copy.0).collect::<Vec<_>>(), [1, 2, 2]);
    assert_eq!(seen[0].4.len(), 30);
    for _ in 0..100 {
        gateway.now = gateway.now + Duration::from_millis(10);
        gateway.receive(LAN, &echo("192.168.13.5", "8.8.8.8", 10));
    }
    let copied = copies(&mut reader).len();
    assert!((9..=11).contains(&copied), "{copied}");

    // Nobody reads.
    let (writer, mut reader) = tap_ring(1000);
    gateway.worker.set_taps(writer);
    gateway.change(|tables| {
        tables.remove_taps(|_| true);
        tables.add_tap(tap(3, VRF, IN)).unwrap();
    });
    for _ in 0..50 {
        gateway.receive(LAN, &udp("192.168.13.5", "8.8.8.8", (1, 2), 100));
    }
    let kept = taps_of(&mut reader).len() as u64;
    let tables = gateway.publisher.current();
    assert_eq!(tables.taps().next().unwrap().meter.lost(), 50 - kept);
    assert!((1..10).contains(&kept), "{kept}");
    gateway.assert_nothing_lost();
}

#[test]
fn there_are_32_taps_and_no_more_and_a_port_takes_its_taps_along() {
    let mut tables = plain_tables();
    for id in 0..32 {
        tables.add_tap(tap(id, port(WAN), IN)).unwrap();
    }
    assert!(tables.add_tap(tap(32, VRF, IN)).is_err());
    assert!(tables.add_tap(tap(32, FilterTarget::Vrf(VrfId(9)), IN)).is_err());
    tables.remove_port(WAN).unwrap();
    assert!(!tables.is_tapped());
    assert!(tables.add_tap(tap(32, port(WAN), IN)).is_err());
}
