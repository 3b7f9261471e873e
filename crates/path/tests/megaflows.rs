//! Packets of new flows that are not decided, as a megaflow says how.

mod fixture;
#[path = "fixture/flows.rs"]
mod flows;

use std::sync::Arc;
use std::time::Duration;

use conntrack::{Connections, Settings};
use fixture::*;
use flow::CacheSettings;
use flows::{counts, gateway, tables};
use io::memory::MemoryOptions;
use packet::{DropReason, Time};
use tables::{ReversePath, RouteSpec};
use wire::VrfId;

/// When the fixture begins.
const START: Time = Time(1_000_000_000);

const ROUTED: &str = "\
    table=0,priority=9,arp,actions=NORMAL
    table=0,ip,actions=ct(table=1)
    table=1,ct_state=+new,ip,in_port=lan,actions=ct(commit),NORMAL
    table=1,ct_state=-new+est,ip,actions=NORMAL";

fn by_megaflow(gateway: &Gateway) -> u64 {
    gateway.worker.statistics().decided_by_megaflow.read()
}

/// What many clients send to many servers, all different.
fn first_packets(count: u16) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|at| {
        let [high, low] = at.to_be_bytes();
        let (from, to) = (format!("10.1.{high}.{low}"), format!("198.18.{low}.{high}"));
        udp(&from, &to, (1000 + at, 2000 + at % 4), 20)
    })
}

/// How many of them leave by the WAN.
fn leave(gateway: &mut Gateway, packets: impl Iterator<Item = Vec<u8>>) -> usize {
    packets.for_each(|packet| gateway.receive(LAN, &packet));
    gateway.sent(WAN).len()
}

#[test]
fn of_many_with_one_megaflow_the_first_two_are_decided() {
    let mut gateway = gateway(ROUTED);
    assert_eq!(leave(&mut gateway, first_packets(500)), 500);
    assert_eq!((by_megaflow(&gateway), counts(&gateway).connections), (498, 500));
    // The same flows have counted them.
    let snapshot = gateway.publisher.current();
    let sorted = snapshot.pipeline().sorted().into_iter();
    let counted: Vec<u64> =
        sorted.map(|entry| snapshot.flow_meter(entry.id).unwrap().counters.read().0).collect();
    assert_eq!(counted, [500, 0, 500, 0]);
    gateway.assert_nothing_lost();
}

/// Flows that label what they open, as those of a firewall, and translate it.
const LABELLED: &str = "\
    table=0,priority=9,arp,actions=NORMAL
    table=0,ip,actions=ct(table=1,nat)
    table=1,ct_state=+new,ip,in_port=lan,actions=ct(commit,nat(src=203.0.113.1),\
    exec(set_field:0x1/0x1->ct_label)),NORMAL
    table=1,ct_state=+est+trk,ct_label=0x1/0x1,ip,actions=NORMAL
    table=1,ct_state=+new+rel+trk,ct_label=0x1/0x1,ip,actions=ct(commit,nat),NORMAL";

/// Its packet sees no label of a connection that it has opened; but none of these flows would read it.
#[test]
fn what_opens_labelled_connections_is_decided_by_two_megaflows() {
    let mut gateway = gateway(LABELLED);
    assert_eq!(leave(&mut gateway, first_packets(500)), 500);
    let statistics = gateway.worker.statistics();
    // Before its connection is there, and behind it.
    assert_eq!(by_megaflow(&gateway), 2 * 498);
    assert_eq!(statistics.decided_again.read(), 500);
    gateway.assert_nothing_lost();
}

/// Where a flow reads it of such packets too, they are decided by what was there before them.
#[test]
fn what_opens_labelled_connections_sees_no_label_of_its_own() {
    for flow in [
        "table=1,priority=40000,ip,ct_label=0x1/0x1,actions=drop",
        "table=1,priority=40000,ip,ct_state=+new-rel,ct_label=0x1/0x1,actions=drop",
    ] {
        let mut gateway = gateway(&format!("{LABELLED}\n{flow}"));
        assert_eq!(leave(&mut gateway, first_packets(50)), 50, "{flow}");
        // The next one sees it.
        assert_eq!(leave(&mut gateway, first_packets(50)), 0, "{flow}");
        assert_eq!(gateway.dropped(DropReason::FlowDrop), 50, "{flow}");
    }
}

/// A flood of connections that nobody answers takes as many places as live at once, and not the table.
#[test]
fn as_many_end_as_are_opened() {
    const EACH_SECOND: u16 = 256;
    let settings = Settings { connections: 16_384, ipv6_connections: 1, ..Settings::default() };
    let mut tables = tables(ROUTED);
    tables.set_connections(Arc::new(Connections::new(&settings, [1, 2], START).unwrap()));
    let mut gateway = Gateway::new(tables);
    let mac = MemoryOptions::ethernet("", LAN).mac;
    for second in 0..400 {
        for at in 0..EACH_SECOND {
            let packet = udp(&format!("10.1.0.{at}"), "198.18.0.1", (1000 + second, 53), 20);
            assert!(gateway.lan.push(&frame(mac, HOST_MAC, &packet)));
        }
        gateway.wait(Duration::from_secs(1));
        assert_eq!(gateway.sent(WAN).len(), EACH_SECOND.into());
    }
    // They live for 30 seconds, and are found dead a step of the wheel or two later.
    let counts = counts(&gateway);
    assert!(counts.connections <= 33 * u32::from(EACH_SECOND), "{counts:?}");
    assert_eq!(counts.early_drop, 0);
    gateway.assert_nothing_lost();
}

#[test]
fn without_a_decision_cache_each_is_decided() {
    let mut gateway = Gateway::with_caches(tables(ROUTED), [CacheSettings::OFF; 4], 7);
    assert_eq!(leave(&mut gateway, first_packets(50)), 50);
    assert_eq!(by_megaflow(&gateway), 0);
}

#[test]
fn what_flows_read_of_the_ends_tells_packets_apart() {
    for (flow, drops) in [
        ("table=1,priority=40000,udp,tp_src=1030,actions=drop", 1),
        ("table=1,priority=40000,udp,tp_src=1000-1019,actions=drop", 20),
        ("table=1,priority=40000,udp,tp_dst=2003,actions=drop", 50),
        ("table=1,priority=40000,ip,nw_src=10.1.0.64/26,actions=drop", 64),
        ("table=1,priority=40000,ip,nw_dst=198.18.0.0/18,actions=drop", 64),
        ("table=1,priority=40000,ip,oif=wan,actions=drop", 200),
    ] {
        let mut gateway = gateway(&format!("{ROUTED}\n{flow}"));
        assert_eq!(leave(&mut gateway, first_packets(200)), 200 - drops, "{flow}");
        assert_eq!(gateway.dropped(DropReason::FlowDrop), drops as u64, "{flow}");
        let most = if flow.contains("tp_src") { 0..198 } else { 1..198 };
        assert!(
            most.contains(&by_megaflow(&gateway)) || drops == 200,
            "{flow}: {}",
            by_megaflow(&gateway)
        );
    }
}

#[test]
fn what_actions_read_of_the_ends_keeps_packets_from_sharing_a_megaflow() {
    for flow in [
        "table=0,priority=40000,udp,actions=move:NXM_OF_UDP_SRC[]->NXM_NX_REG0[0..15],ct(table=1)",
        "table=0,priority=40000,udp,actions=ct(table=1,zone=NXM_OF_UDP_SRC[])",
        "table=0,priority=40000,udp,actions=ct(table=1,zone=5)",
        "table=1,priority=40000,udp,ct_state=+new,ct_nw_src=10.9.0.0/16,actions=drop",
    ] {
        let mut gateway = gateway(&format!("{ROUTED}\n{flow}"));
        assert_eq!(leave(&mut gateway, first_packets(50)), 50, "{flow}");
        assert_eq!(by_megaflow(&gateway), 0, "{flow}");
    }
}

#[test]
fn packets_with_other_ways_have_other_megaflows() {
    let mut gateway = gateway(ROUTED);
    gateway.change(|tables| {
        let (blackhole, other) = (prefix("198.18.9.0/24"), prefix("198.18.10.0/24"));
        tables.set_route(VrfId::MAIN, blackhole, RouteSpec::Blackhole).unwrap();
        let via = RouteSpec::Via { port: LAN, address: ip("192.168.13.5") };
        tables.set_route(VrfId::MAIN, other, via).unwrap();
    });
    assert_eq!(leave(&mut gateway, first_packets(200)), 198);
    assert_eq!(gateway.sent(LAN).len(), 1);
    assert_eq!(gateway.drops(), [("route_blackhole", 1)]);
    // No connection of what is dropped behind the flows.
    assert_eq!(counts(&gateway).connections, 199);
    assert!(by_megaflow(&gateway) >= 190);
}

#[test]
fn what_changes_is_asked_anew() {
    let mut gateway = gateway(ROUTED);
    let mut packets = first_packets(400);
    assert_eq!(leave(&mut gateway, packets.by_ref().take(100)), 100);
    gateway.change(|tables| {
        tables.set_route(VrfId::MAIN, prefix("0.0.0.0/0"), RouteSpec::Prohibit).unwrap();
    });
    assert_eq!(leave(&mut gateway, packets.by_ref().take(100)), 0);
    gateway.change(|tables| {
        let via = RouteSpec::Via { port: WAN, address: ip("192.168.11.1") };
        tables.set_route(VrfId::MAIN, prefix("0.0.0.0/0"), via).unwrap();
    });
    assert_eq!(leave(&mut gateway, packets), 200);
    assert_eq!(counts(&gateway).connections, 300);
}

#[test]
fn sources_that_are_wrong_are_found_among_those_that_are_right() {
    let own = || udp("192.168.11.2", "198.18.0.1", (1, 2), 20);
    let of_link = || udp("169.254.1.1", "198.18.0.1", (1, 2), 20);
    let mut gateway = gateway(ROUTED);
    assert_eq!(leave(&mut gateway, first_packets(20)), 20);
    assert_eq!(leave(&mut gateway, [own(), of_link()].into_iter()), 0);
    assert_eq!(gateway.drops(), [("source_own", 1), ("link_local", 1)]);
    // By the routes.
    gateway.change(|tables| {
        let mut spec = tables.port(LAN).unwrap().spec.clone();
        spec.reverse_path = ReversePath::Strict;
        tables.update_port(LAN, spec).unwrap();
        let via = RouteSpec::Via { port: LAN, address: ip("192.168.13.5") };
        tables.set_route(VrfId::MAIN, prefix("10.1.0.0/16"), via).unwrap();
    });
    let before = by_megaflow(&gateway);
    let wrong = || (0..20).map(|at| udp("10.2.0.1", "198.18.0.1", (at, 2), 20));
    let mixed = first_packets(220).skip(20).take(20).chain(wrong());
    assert_eq!(leave(&mut gateway, mixed), 20);
    assert_eq!(gateway.dropped(DropReason::ReversePath), 20);
    assert!(by_megaflow(&gateway) >= before + 18);
}

#[test]
fn answers_and_translated_packets_have_megaflows_too() {
    let flows = "\
        table=0,priority=9,arp,actions=NORMAL
        table=0,ip,actions=ct(table=1,nat)
        table=1,ct_state=+new,ip,in_port=lan,actions=ct(commit,nat(src=203.0.113.9)),NORMAL
        table=1,ct_state=-new+est,ip,actions=NORMAL";
    for (flows, decided) in [(ROUTED, 100), (flows, 300)] {
        let mut gateway = gateway(flows);
        for (at, packet) in first_packets(100).enumerate() {
            gateway.receive(LAN, &packet);
            let (_, out) = gateway.sent_one(WAN);
            let headers = wire::headers::parse(&out).unwrap();
            let (from, to) = (headers.addresses.destination(), headers.addresses.source());
            assert_eq!(to.to_string() == "203.0.113.9", decided == 300);
            let wire::Upper::Ports { source, destination } = headers.upper else { panic!() };
            let answer = udp(&from.to_string(), &to.to_string(), (destination, source), 20);
            gateway.receive(WAN, &answer);
            // Clients are behind the WAN too.
            gateway.sent_one(WAN);
            assert_eq!(counts(&gateway).connections as usize, 1 + at);
        }
        assert!(by_megaflow(&gateway) >= decided - 8, "{}", by_megaflow(&gateway));
    }
}

#[test]
fn marks_of_connections_tell_packets_apart() {
    let flows = "\
        table=0,ip,actions=ct(table=1)
        table=1,priority=50000,ct_state=+trk-inv,ct_mark=7,actions=drop
        table=1,priority=40000,ct_state=+new,udp,in_port=lan,tp_dst=2001,actions=ct(commit,exec(load:7->NXM_NX_CT_MARK[])),NORMAL
        table=1,ct_state=+new,ip,in_port=lan,actions=ct(commit),NORMAL
        table=1,ct_state=-new+est,ip,actions=NORMAL";
    let mut gateway = gateway(flows);
    let packet = |from, to| udp("10.1.0.1", "198.18.0.1", (from, to), 20);
    for at in 0..40 {
        for to in [2000, 2001] {
            gateway.receive(LAN, &packet(1000 + at, to));
        }
    }
    assert_eq!(gateway.sent(WAN).len(), 80);
    for at in 0..40 {
        for to in [2000, 2001] {
            gateway.receive(LAN, &packet(1000 + at, to));
        }
    }
    assert_eq!((gateway.sent(WAN).len(), gateway.dropped(DropReason::FlowDrop)), (40, 40));
    assert!(by_megaflow(&gateway) > 140, "{}", by_megaflow(&gateway));
}

#[test]
fn labels_of_connections_tell_packets_apart() {
    let flows = "\
        table=0,ip,actions=ct(table=1)
        table=1,priority=50000,ct_state=+trk-inv,ct_label=7,actions=drop
        table=1,priority=40000,ct_state=+new,udp,in_port=lan,tp_dst=2001,actions=ct(commit,exec(load:7->NXM_NX_CT_LABEL[])),NORMAL
        table=1,ct_state=+new,ip,in_port=lan,actions=ct(commit),NORMAL";
    let mut gateway = gateway(flows);
    let packet = |from, to| udp("10.1.0.1", "198.18.0.1", (from, to), 20);
    let all = || (0..40).flat_map(|at| [2000, 2001].map(|to| packet(1000 + at, to)));
    assert_eq!(leave(&mut gateway, all()), 80);
    assert_eq!(leave(&mut gateway, all()), 40);
    assert_eq!(gateway.dropped(DropReason::FlowDrop), 40);
    assert!(by_megaflow(&gateway) > 140, "{}", by_megaflow(&gateway));
}

/// Which one of several destinations it is follows from the source, and so does what becomes of the
/// packet.
#[test]
fn destinations_that_the_source_chooses_have_no_megaflow() {
    let dnat = "ct(commit,nat(dst=10.9.0.5-10.9.0.6)";
    let routed = format!(
        "table=0,ip,actions=ct(table=1)
        table=1,udp,ct_state=+new,actions={dnat}),NORMAL"
    );
    let refused = format!(
        "table=0,ip,actions=ct(table=1)
        table=1,udp,ct_state=+new,actions={dnat},table=2)
        table=2,priority=9,ip,nw_dst=10.9.0.6,actions=drop
        table=2,priority=8,ip,actions=NORMAL"
    );
    for flows in [routed, refused] {
        let mut gateway = gateway(&flows);
        gateway.change(|tables| {
            let dead = prefix("10.9.0.6/32");
            tables.set_route(VrfId::MAIN, dead, RouteSpec::Blackhole).unwrap();
        });
        let left = leave(&mut gateway, first_packets(200));
        assert!((60..140).contains(&left), "{flows}: {left}");
        assert!(counts(&gateway).connections as usize >= left, "{flows}");
    }
}

#[test]
fn packets_of_both_directions_that_are_invalid_share_no_megaflow() {
    let mut gateway = gateway("table=0,ip,actions=ct(commit,force),NORMAL");
    let broken = |from: &str, to: &str, ports| {
        let mut packet = udp(from, to, ports, 20);
        // A wrong checksum.
        packet[26..28].copy_from_slice(&[0xab, 0xcd]);
        packet
    };
    let ends = |at: u16| (format!("10.1.0.{at}"), format!("198.18.0.{at}"));
    for at in 1..20 {
        let (from, to) = ends(at);
        gateway.receive(LAN, &udp(&from, &to, (1000, 2000), 20));
        gateway.receive(WAN, &udp(&to, &from, (5000, 6000), 20));
    }
    let before = counts(&gateway).connections;
    for at in 1..20 {
        let (from, to) = ends(at);
        gateway.receive(LAN, &broken(&from, &to, (1000, 2000)));
        gateway.receive(LAN, &broken(&from, &to, (6000, 5000)));
    }
    assert_eq!(before, 38);
    gateway.assert_nothing_lost();
}
