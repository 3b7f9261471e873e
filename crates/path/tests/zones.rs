//! Packets that pass through connection tracking in several zones.

mod fixture;
#[path = "fixture/flows.rs"]
mod flows;

use std::time::Duration;

use fixture::*;
use flow::{CacheMode, CacheSettings};
use flows::{TWICE, counts, gateway};
use wire::{PortId, Protocol, headers};

const HERE: &str = "192.168.13.5";
const THERE: &str = "192.168.12.7";
/// What the zones translate to.
const MIDDLE: &str = "100.64.0.1";
const OUTSIDE: &str = "203.0.113.9";

/// How many packets were decided, kept decisions aside.
fn decided(gateway: &Gateway) -> u64 {
    let statistics = gateway.worker.statistics();
    statistics.decided.read() + statistics.decided_again.read()
}

fn ends(packet: &[u8]) -> String {
    let headers = headers::parse(packet).unwrap();
    let (source, destination) = (headers.addresses.source(), headers.addresses.destination());
    match headers.upper {
        wire::Upper::Ports { source: from, destination: to } => {
            format!("{source}:{from} {destination}:{to}")
        }
        wire::Upper::Icmp { identifier, .. } => format!("{source} {destination} id {identifier}"),
        _ => format!("{source} {destination}"),
    }
}

/// What a packet that comes by one port is when it leaves by the other.
fn through(gateway: &mut Gateway, by: PortId, packet: &[u8]) -> String {
    gateway.receive(by, packet);
    let (_, packet) = gateway.sent_one(if by == LAN { WAN } else { LAN });
    let headers = headers::parse(&packet).unwrap();
    if let Protocol::UDP | Protocol::TCP = headers.protocol {
        let pseudo = wire::checksum::pseudo_header(
            &headers.addresses,
            headers.protocol,
            u32::try_from(packet.len() - 20).unwrap(),
        );
        assert_eq!(wire::checksum::sum_with(&packet[20..], pseudo.into()), 0xffff);
    }
    assert_eq!(wire::checksum::checksum(&packet[..20]), 0);
    ends(&packet)
}

#[test]
fn a_packet_is_translated_in_two_zones_one_after_the_other() {
    let mut gateway = gateway(TWICE);
    let (out, back) = (udp(HERE, THERE, (5000, 53), 10), udp(THERE, OUTSIDE, (53, 5000), 20));
    let wanted = ["203.0.113.9:5000 192.168.12.7:53", "192.168.12.7:53 192.168.13.5:5000"];
    for _ in 0..3 {
        assert_eq!(through(&mut gateway, LAN, &out), wanted[0]);
        assert_eq!(through(&mut gateway, WAN, &back), wanted[1]);
    }
    assert_eq!(counts(&gateway).connections, 2);
    // Decisions are kept, and held against both connections.
    let before = decided(&gateway);
    for _ in 0..20 {
        assert_eq!(through(&mut gateway, LAN, &out), wanted[0]);
        assert_eq!(through(&mut gateway, WAN, &back), wanted[1]);
    }
    assert_eq!(decided(&gateway), before);
    gateway.assert_nothing_lost();
}

#[test]
fn identifiers_and_errors_are_translated_in_both_zones() {
    let mut gateway = gateway(TWICE);
    let echo = |kind: u8, from: &str, to: &str| {
        let mut bytes = vec![kind, 0, 0, 0, 0x12, 0x34, 0, 1, 9, 9];
        let sum = wire::checksum::checksum(&bytes);
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        packet(ip(from), ip(to), Protocol::ICMP, 64, &bytes)
    };
    let ping = through(&mut gateway, LAN, &echo(8, HERE, THERE));
    assert_eq!(ping, "203.0.113.9 192.168.12.7 id 4660");
    let pong = through(&mut gateway, WAN, &echo(0, THERE, OUTSIDE));
    assert_eq!(pong, "192.168.12.7 192.168.13.5 id 4660");

    gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
    let (_, translated) = gateway.sent_one(WAN);
    let mut error = vec![3, 1, 0, 0, 0, 0, 0, 0];
    error.extend(&translated[..28]);
    let sum = wire::checksum::checksum(&error);
    error[2..4].copy_from_slice(&sum.to_be_bytes());
    gateway.receive(WAN, &packet(ip("198.51.100.1"), ip(OUTSIDE), Protocol::ICMP, 64, &error));
    let (_, told) = gateway.sent_one(LAN);
    assert_eq!(told[12..20], [198, 51, 100, 1, 192, 168, 13, 5]);
    assert_eq!(wire::checksum::checksum(&told[20..]), 0);
    assert_eq!(told[40..48], [192, 168, 13, 5, 192, 168, 12, 7]);
    assert_eq!(told[48..52], [0x13, 0x88, 0, 53]);
    gateway.assert_nothing_lost();
}

/// Tracked in two zones and not translated.
const BOTH: &str = "
    priority=1,actions=drop
    priority=10,in_port=lan,ip,actions=ct(commit,zone=1),ct(commit,zone=2),NORMAL
    priority=10,in_port=wan,ct_state=-trk,ip,actions=ct(zone=1,table=1)
    table=1,ct_state=+trk+est,ip,actions=ct(zone=2,table=2)
    table=2,ct_state=+trk+est,ip,actions=NORMAL";

/// Two zones, the second of which translates what begins inside.
const SECOND: &str = "
    priority=1,actions=drop
    priority=10,in_port=lan,ip,actions=ct(commit,zone=1),ct(zone=2,nat,table=1)
    table=1,ct_state=+trk+new,ip,actions=ct(commit,zone=2,nat(src=203.0.113.9)),NORMAL
    table=1,priority=9,ct_state=+trk-new-inv,ip,actions=NORMAL
    priority=10,in_port=wan,ip,actions=ct(zone=2,nat,table=5)
    table=5,ct_state=+trk-new-inv,ip,actions=ct(zone=1,table=6)
    table=6,ct_state=+trk+est,ip,actions=NORMAL";

/// Decisions of two connections are kept for more flows than there are extensions.
#[test]
fn many_flows_pass_through_two_zones_and_hit() {
    for (text, outside) in [(BOTH, HERE), (SECOND, OUTSIDE)] {
        let on = CacheSettings { mode: CacheMode::On, ..CacheSettings::default() };
        let mut gateway = Gateway::with_caches(flows::tables_for(text, 1 << 16), [on; 4], 7);
        let ports = || (1..9u16).flat_map(|low| (0..1_125).map(move |high| (high + 2_000, low)));
        let pass = |gateway: &mut Gateway| {
            for (from, to) in ports() {
                let there = through(gateway, LAN, &udp(HERE, THERE, (from, to), 10));
                assert_eq!(there, format!("{outside}:{from} {THERE}:{to}"));
                let back = through(gateway, WAN, &udp(THERE, outside, (to, from), 20));
                assert_eq!(back, format!("{THERE}:{to} {HERE}:{from}"));
            }
        };
        (0..3).for_each(|_| pass(&mut gateway));
        assert_eq!(counts(&gateway).connections, 18_000);
        let before = decided(&gateway);
        pass(&mut gateway);
        // A few have lost their places to others, of 18,000 packets.
        assert!(decided(&gateway) - before < 100, "{}", decided(&gateway) - before);
        assert_eq!(gateway.worker.statistics().features_not_kept.read(), 0);
        gateway.assert_nothing_lost();
    }
}

#[test]
fn a_connection_that_goes_in_one_zone_ends_what_was_decided_for_both() {
    let mut gateway = gateway(BOTH);
    let (out, back) = (udp(HERE, THERE, (5000, 53), 10), udp(THERE, HERE, (53, 5000), 20));
    for (zone, dropped) in [(1, 1), (2, 2)] {
        for _ in 0..4 {
            through(&mut gateway, LAN, &out);
            through(&mut gateway, WAN, &back);
        }
        let before = decided(&gateway);
        through(&mut gateway, WAN, &back);
        assert_eq!((decided(&gateway), counts(&gateway).connections), (before, 2));
        let tables = gateway.publisher.current();
        let connections = tables.connections().unwrap();
        let now = gateway.now;
        let gone = (0..1024).filter_map(|index| connections.connection(index, now));
        let gone = gone.filter(|it| it.zone == zone).collect::<Vec<_>>();
        assert_eq!(gone.len(), 1);
        assert!(connections.remove(gone[0].handle, now, &mut |_| ()));
        gateway.receive(WAN, &back);
        assert_eq!(gateway.sent(LAN), []);
        assert_eq!(gateway.drops(), [("flow_miss", dropped)]);
    }
    // From their deadlines on both are dead.
    through(&mut gateway, LAN, &out);
    gateway.wait(Duration::from_secs(400));
    gateway.receive(WAN, &back);
    assert_eq!(gateway.sent(LAN), []);
    assert_eq!(gateway.drops(), [("flow_miss", 3)]);
    gateway.assert_nothing_lost();
}

#[test]
fn there_are_four_connections_of_one_packet_and_no_more() {
    let commits = |zones: u16| (1..=zones).map(|zone| format!("ct(commit,zone={zone}),"));
    let flows = |zones| format!("ip,actions={}NORMAL", commits(zones).collect::<String>());
    let out = udp(HERE, THERE, (5000, 53), 10);
    let mut four = gateway(&flows(4));
    for _ in 0..5 {
        through(&mut four, LAN, &out);
    }
    assert_eq!(counts(&four).connections, 4);
    let before = decided(&four);
    through(&mut four, LAN, &out);
    assert_eq!(decided(&four), before);
    four.assert_nothing_lost();

    let mut five = gateway(&flows(5));
    five.receive(LAN, &out);
    assert_eq!(five.drops(), [("flow_zones", 1)]);
    assert_eq!(counts(&five).connections, 0);
    five.assert_nothing_lost();
}

#[test]
fn the_address_stays_and_the_port_changes_if_another_connection_has_it() {
    let mut gateway = gateway(
        "priority=2,udp,nw_dst=198.51.100.1,actions=ct(commit,nat(dst=192.168.12.7)),NORMAL
         priority=1,udp,in_port=lan,actions=ct(commit,nat(src=0.0.0.0)),NORMAL
         priority=1,udp,in_port=wan,actions=ct(nat,table=1)
         table=1,ct_state=+est,ip,actions=NORMAL",
    );
    let to = |address| udp(HERE, address, (5000, 53), 10);
    assert_eq!(through(&mut gateway, LAN, &to(THERE)), "192.168.13.5:5000 192.168.12.7:53");
    gateway.wait(Duration::from_secs(400));
    // Now somebody else's packets are so translated.
    let other = to("198.51.100.1");
    assert_eq!(through(&mut gateway, LAN, &other), "192.168.13.5:5000 192.168.12.7:53");
    let ends = through(&mut gateway, LAN, &to(THERE));
    assert_ne!(ends, "192.168.13.5:5000 192.168.12.7:53");
    let port = ends.strip_prefix("192.168.13.5:").and_then(|ends| ends.split_once(' ')).unwrap().0;
    let port: u16 = port.parse().unwrap();
    assert!(port >= 1024);
    let back = through(&mut gateway, WAN, &udp(THERE, HERE, (53, port), 10));
    assert_eq!(back, "192.168.12.7:53 192.168.13.5:5000");
    gateway.assert_nothing_lost();
}

#[test]
fn the_second_nat_of_a_packet_counts_if_it_says_so() {
    let flows = |twice: &str| {
        format!(
            "udp,in_port=lan,actions=ct(commit,nat(dst=192.168.12.7:54),table=1)
             table=1,udp,actions=ct(commit,nat(src={MIDDLE}{twice}),exec(load:7->ct_mark),table=2)
             table=2,udp,ct_mark=7,actions=NORMAL",
        )
    };
    let out = udp(HERE, "198.51.100.1", (5000, 53), 10);
    for (twice, wanted) in
        [("", "192.168.13.5:5000 192.168.12.7:54"), (",twice", "100.64.0.1:5000 192.168.12.7:54")]
    {
        let mut gateway = gateway(&flows(twice));
        for _ in 0..3 {
            assert_eq!(through(&mut gateway, LAN, &out), wanted);
        }
        gateway.assert_nothing_lost();
    }
}
