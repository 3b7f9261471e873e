//! Match-action tables and connections, with packets on their way through a whole gateway.

#[path = "fixture/built.rs"]
mod built;
mod fixture;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use built::*;
use fixture::*;
use flow::CacheTable;
use packet::{DropReason, Time};
use pipeline::{Action, Change, Ct, Field, Flow, NatEnd, Owner, Pipeline};
use tables::Side;
use wire::{PortId, Protocol, VrfId};

#[test]
fn what_begins_inside_is_answered_and_nothing_else_comes_in() {
    let mut gateway = gateway(seven_flows());
    let (out, back) = (udp(HERE, THERE, (5000, 53), 10), udp(THERE, HERE, (53, 5000), 20));
    // Nobody asked.
    gateway.receive(WAN, &back);
    assert_eq!(gateway.drops(), [("flow_drop", 1)]);
    for _ in 0..3 {
        gateway.receive(LAN, &out);
        // The frame is as it was: TTL and addresses too.
        assert_eq!(gateway.sent_one(WAN).1, out);
    }
    for _ in 0..3 {
        gateway.receive(WAN, &back);
        assert_eq!(gateway.sent_one(LAN).1, back);
        gateway.receive(LAN, &out);
        gateway.sent_one(WAN);
    }
    gateway.receive(WAN, &udp(THERE, HERE, (54, 5000), 20));
    assert_eq!(gateway.dropped(DropReason::FlowDrop), 2);
    assert_eq!(counts(&gateway).connections, 1);
    // By table and priority: tracked, then new from inside, new from outside, established both ways.
    let all = counted(&gateway);
    assert_eq!(all[0], 11);
    assert_eq!(all[2..], [3, 2, 3, 3]);
    gateway.assert_nothing_lost();
}

#[test]
fn decisions_about_connections_are_kept() {
    let mut gateway = gateway(seven_flows());
    let (out, back) = (udp(HERE, THERE, (5000, 53), 10), udp(THERE, HERE, (53, 5000), 20));
    let decided = |gateway: &Gateway| {
        let statistics = gateway.worker.statistics();
        statistics.decided.read() + statistics.decided_again.read()
    };
    gateway.receive(LAN, &out);
    // It opened the connection, so its decision was for it alone.
    assert_eq!(decided(&gateway), 1);
    gateway.receive(LAN, &out);
    assert_eq!(decided(&gateway), 2);
    // One-way traffic is not decided again, though it is still new.
    for _ in 0..20 {
        gateway.receive(LAN, &out);
    }
    assert_eq!(decided(&gateway), 2);
    gateway.receive(WAN, &back);
    gateway.receive(LAN, &out);
    // Both directions are established now.
    assert_eq!(decided(&gateway), 4);
    for _ in 0..20 {
        gateway.receive(WAN, &back);
        gateway.receive(LAN, &out);
    }
    assert_eq!(decided(&gateway), 4);
    assert!(gateway.cache(CacheTable::V4Outbound).hits.read() > 50);
    gateway.sent(WAN);
    gateway.sent(LAN);
    // From its deadline on the connection is dead.
    gateway.wait(Duration::from_secs(400));
    gateway.receive(WAN, &back);
    assert_eq!(gateway.sent(LAN), []);
    assert_eq!(counts(&gateway).connections, 0);
    gateway.assert_nothing_lost();
}

#[test]
fn tcp_is_held_against_its_windows() {
    let mut gateway = gateway(seven_flows());
    let out = |flags, numbers| segment((HERE, THERE), (4000, 80), flags, numbers);
    let back = |flags, numbers| segment((THERE, HERE), (80, 4000), flags, numbers);
    gateway.receive(LAN, &out(2, (1000, 0)));
    gateway.receive(WAN, &back(0x12, (9000, 1001)));
    gateway.receive(LAN, &out(0x10, (1001, 9001)));
    for more in 0..10 {
        gateway.receive(LAN, &out(0x18, (1001 + more, 9001)));
    }
    assert_eq!((gateway.sent(WAN).len(), gateway.sent(LAN).len()), (12, 1));
    assert_eq!(gateway.drops(), []);
    // A reset with a wild sequence number is invalid, and no flow matches that.
    gateway.receive(WAN, &back(4, (5_000_000, 0)));
    assert_eq!(gateway.drops(), [("flow_miss", 1)]);
    gateway.receive(LAN, &out(0x10, (1011, 9001)));
    gateway.sent_one(WAN);
    // A right one ends the connection.
    gateway.receive(WAN, &back(4, (9001, 0)));
    gateway.sent_one(LAN);
    gateway.assert_nothing_lost();
}

/// The flows of the literature with its lines for ARP.
fn seven_flows_with_arp() -> Vec<Flow> {
    let arp = (Field::DlType, pipeline::ARP.into(), 0xffff);
    let mut flows = seven_flows();
    flows[1].matches.set(Field::DlType, pipeline::IPV4.into(), 0xffff);
    flows.push(flow(0, 10, &[arp], &[Action::Normal]));
    flows
}

const OTHER_MAC: wire::Mac = wire::Mac([2, 0xcc, 0, 0, 0, 7]);

fn arp_request(sender: &str, target: &str) -> Vec<u8> {
    let request = wire::arp::Packet {
        operation: wire::arp::Operation::Request,
        sender_mac: HOST_MAC,
        sender_ip: v4(sender),
        target_mac: wire::Mac([0; 6]),
        target_ip: v4(target),
    };
    let header = wire::ethernet::Header {
        destination: wire::Mac([0xff; 6]),
        source: HOST_MAC,
        ether_type: wire::ethernet::EtherType::ARP,
    };
    [&header.to_bytes()[..], &request.to_bytes()].concat()
}

#[test]
fn frames_for_other_stations_go_where_flows_send_them() {
    let mut gateway = gateway(seven_flows_with_arp());
    let out = frame(OTHER_MAC, HOST_MAC, &udp(HERE, THERE, (5000, 53), 10));
    let back = frame(HOST_MAC, OTHER_MAC, &udp(THERE, HERE, (53, 5000), 10));
    for _ in 0..3 {
        assert!(gateway.lan.push(&out));
        gateway.poll();
        assert_eq!(gateway.wan.pop().as_deref(), Some(&out[..]));
        assert!(gateway.wan.push(&back));
        gateway.poll();
        assert_eq!(gateway.lan.pop().as_deref(), Some(&back[..]));
    }
    // Who asks for another station is heard by the others, and who asks for us is answered.
    let ask = arp_request("192.168.13.5", "192.168.13.77");
    assert!(gateway.lan.push(&ask));
    gateway.poll();
    assert_eq!(gateway.wan.pop().as_deref(), Some(&ask[..]));
    assert!(gateway.lan.push(&arp_request("192.168.13.5", "192.168.13.1")));
    gateway.poll();
    assert_eq!(gateway.wan.pop(), None);
    assert_eq!(gateway.lan.pop().unwrap()[21], 2);
    assert_eq!(gateway.drops(), []);
    gateway.assert_nothing_lost();
}

/// A frame with a priority and no VLAN (IEEE 802.1Q) leaves without the tag, and not damaged.
#[test]
fn priority_tagged_frames_go_where_flows_send_them() {
    let mut gateway = gateway(seven_flows_with_arp());
    let out = frame(OTHER_MAC, HOST_MAC, &udp(HERE, THERE, (5000, 53), 10));
    let ask = arp_request("192.168.13.5", "192.168.13.77");
    let with = |frame: &[u8], tags: &[u8]| [&frame[..12], tags, &frame[12..]].concat();
    let (c_tag, s_tag) = ([0x81, 0, 0xa0, 0], [0x88, 0xa8, 0x60, 0]);
    let twice = [s_tag, c_tag].concat();
    for tags in [&c_tag[..], &s_tag, &twice] {
        for frame in [&out, &ask] {
            // Alone, and as the second of its flow.
            for count in [1, 5, 40] {
                (0..count).for_each(|_| assert!(gateway.lan.push(&with(frame, tags))));
                gateway.poll();
                for _ in 0..count {
                    assert_eq!(gateway.wan.pop().as_deref(), Some(&frame[..]), "{tags:?}");
                }
            }
        }
    }
    assert_eq!(gateway.drops(), []);
    gateway.assert_nothing_lost();
}

/// A router forwards no frame that is for somebody else, whatever flows make of those for it.
#[test]
fn frames_for_other_stations_are_not_routed() {
    let mut flows = masquerade("203.0.113.9");
    flows.push(flow(9, 1, &[], &[Action::Output(WAN), Action::Output(LAN)]));
    let mut gateway = gateway(flows);
    let packet = udp(HERE, THERE, (5000, 53), 10);
    assert!(gateway.lan.push(&frame(OTHER_MAC, HOST_MAC, &packet)));
    gateway.poll();
    assert_eq!(gateway.drops(), [("link_not_for_us", 1)]);
    assert_eq!(counts(&gateway).connections, 0, "what is dropped opens none");
    gateway.receive(LAN, &packet);
    gateway.sent_one(WAN);
    // The same flow, from the cache.
    assert!(gateway.lan.push(&frame(OTHER_MAC, HOST_MAC, &packet)));
    gateway.poll();
    assert_eq!(gateway.sent(WAN), []);
    assert_eq!(gateway.dropped(DropReason::LinkNotForUs), 2);
    gateway.assert_nothing_lost();
}

/// A VRF that has flows answers nobody they do not let through.
#[test]
fn arp_that_no_flow_matches_is_not_answered() {
    let mut gateway = gateway(seven_flows());
    assert!(gateway.lan.push(&arp_request("192.168.13.5", "192.168.13.1")));
    gateway.poll();
    assert_eq!(gateway.drops(), [("flow_miss", 1)]);
    assert_eq!(gateway.lan.pop(), None);
}

#[test]
fn what_flows_write_stands_in_the_packet() {
    let to = v4("192.168.12.99").to_bits().into();
    let mut gateway = gateway(vec![flow(
        0,
        1,
        &[],
        &[
            set(Field::NwDst, to),
            set(Field::UdpDst, 5353),
            set(Field::NwTos, 0x28),
            set(Field::NwTtl, 9),
            Action::Normal,
        ],
    )]);
    for _ in 0..3 {
        gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
        let (_, packet) = gateway.sent_one(WAN);
        assert_eq!(ends(&packet), "192.168.13.5:5000 192.168.12.99:5353");
        assert_eq!((packet[1], packet[8]), (0x28, 8));
        assert_eq!(wire::checksum::checksum(&packet[..20]), 0);
        assert_checksums_are_right(&packet);
    }
    assert_eq!(gateway.drops(), []);
    gateway.assert_nothing_lost();
}

#[test]
fn what_is_not_done_is_refused_when_it_is_asked_for() {
    let refuses = |ct: Ct| {
        let mut pipeline = Pipeline::new();
        let flow = flow(0, 1, &[], &[Action::Ct(Box::new(ct))]);
        pipeline.apply(Change::Add { flow, check_overlap: false }, Owner::User).unwrap();
        let mut tables = plain_tables();
        tables.set_pipeline(pipeline, Time(0)).unwrap_err().to_string()
    };
    let plain = Ct { commit: true, ..Ct::default() };
    // Blocks that are too large, too many, or for more sources than there are.
    let blocks = |ports, subscribers: Option<&str>| {
        let mut blocks = nat(NatEnd::Source, HERE, Some((1024, 2047)));
        let subscribers = subscribers.map(range);
        let wanted = pipeline::NatBlocks { ports, subscribers };
        Arc::make_mut(blocks.new.as_mut().unwrap()).blocks = Some(wanted);
        refuses(Ct { nat: Some(blocks), ..plain.clone() })
    };
    assert!(blocks(1025, None).starts_with("blocks of 1025 ports"));
    let few = blocks(512, Some("100.64.0.1-100.64.0.3"));
    assert!(few.starts_with("3 subscribers need 2 addresses of 2 blocks"), "{few}");
    assert!(blocks(512, Some("2001:db8::1-2001:db8::2")).starts_with("there may be 1 to"));
}

#[test]
fn flows_ask_where_a_packet_would_be_routed() {
    use pipeline::Exit;
    use types::RejectWith;

    let reject = |with| [Action::Log("no way".into()), Action::Reject(with)];
    let flows = vec![
        flow(0, 9, &[to(Exit::Port(WAN)), by(LAN)], &[Action::Normal]),
        flow(0, 9, &[to(Exit::Port(LAN))], &[]),
        flow(0, 9, &[to(Exit::Local)], &[Action::Normal]),
        flow(0, 1, &[], &reject(RejectWith::TcpReset)),
    ];
    let mut gateway = gateway(flows);
    let echo = |to: &str| {
        let mut message = vec![8, 0, 0, 0, 0, 1, 0, 1];
        let sum = wire::checksum::checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        packet(ip(HERE), ip(to), Protocol::ICMP, 64, &message)
    };
    for _ in 0..3 {
        gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
        gateway.sent_one(WAN);
        gateway.receive(LAN, &echo("192.168.13.1"));
        assert_eq!(gateway.sent_one(LAN).1[20], 0);
        gateway.receive(LAN, &udp(HERE, "192.168.13.9", (5000, 53), 10));
        gateway.receive(WAN, &segment((THERE, "198.51.100.1"), (4000, 80), 2, (1000, 0)));
        let (_, reset) = gateway.sent_one(WAN);
        assert_eq!(ends(&reset), "198.51.100.1:80 192.168.12.7:4000");
        assert_eq!(reset[33] & 4, 4);
        gateway.receive(WAN, &udp(THERE, "198.51.100.1", (5000, 53), 10));
        let (_, told) = gateway.sent_one(WAN);
        // Communication administratively prohibited.
        assert_eq!(told[20..22], [3, 13]);
    }
    assert_eq!(gateway.dropped(DropReason::FlowDrop), 9);
    let events = std::iter::from_fn(|| gateway.events.pop().ok());
    let logged = events.filter_map(|event| match event {
        tables::Event::Logged(packet) => Some(packet),
        _ => None,
    });
    let logged: Vec<_> = logged.collect();
    assert_eq!(logged.len(), 6);
    assert!(logged.iter().all(|packet| packet.verdict == tables::FilterVerdict::Reject));
    // A route changes, and with it what flows say.
    let hits = gateway.cache(CacheTable::V4Outbound).hits.read();
    assert!(hits > 6, "{hits}");
    gateway.change(|tables| {
        let (vrf, inside) = (VrfId::MAIN, tables::RouteSpec::Via { port: LAN, address: ip(HERE) });
        tables.set_route(vrf, prefix("192.168.12.0/24"), inside).unwrap();
    });
    gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
    assert_eq!(gateway.dropped(DropReason::FlowDrop), 10);
    gateway.assert_nothing_lost();
}

#[test]
fn what_is_dropped_behind_the_flows_makes_no_connection() {
    for flows in
        [masquerade("203.0.113.9"), vec![flow(0, 1, &[], &[ct(true, None, None), Action::Normal])]]
    {
        let mut gateway = gateway(flows);
        gateway.change(|tables| {
            let kind = tables::RouteSpec::Blackhole;
            tables.set_route(VrfId::MAIN, prefix("198.51.100.0/24"), kind).unwrap();
        });
        for port in 0..20 {
            gateway.receive(LAN, &udp(HERE, "198.51.100.1", (5000 + port, 53), 10));
            gateway.receive(LAN, &udp(HERE, "198.51.100.1", (5000 + port, 53), 10));
        }
        assert_eq!(gateway.drops(), [("route_blackhole", 40)]);
        assert_eq!(counts(&gateway).connections, 0);
        // A route that leads on comes later.
        gateway.change(|tables| {
            let via = tables::RouteSpec::Via { port: WAN, address: ip("192.168.11.1") };
            tables.set_route(VrfId::MAIN, prefix("198.51.100.0/24"), via).unwrap();
        });
        gateway.receive(LAN, &udp(HERE, "198.51.100.1", (5000, 53), 10));
        gateway.sent_one(WAN);
        assert_eq!(counts(&gateway).connections, 1);
        gateway.assert_nothing_lost();
    }
}

#[test]
fn fragments_are_frames_again_where_flows_send_frames() {
    let mut gateway = gateway(seven_flows());
    let pieces = pieces_of(&udp(HERE, THERE, (5000, 53), 2000), 700);
    let pieces: Vec<_> = pieces.iter().map(|piece| frame(OTHER_MAC, HOST_MAC, piece)).collect();
    for piece in pieces.iter().rev() {
        assert!(gateway.lan.push(piece));
        gateway.poll();
    }
    let sent: Vec<_> = std::iter::from_fn(|| gateway.wan.pop()).collect();
    assert_eq!(sent.len(), 3, "{:?}", gateway.drops());
    for (sent, came) in sent.iter().zip(&pieces) {
        assert_eq!(sent, came);
    }
    gateway.assert_nothing_lost();
}

#[test]
fn datagrams_whose_lengths_are_wrong_make_no_connection() {
    let mut gateway = gateway(seven_flows());
    let filled = |protocol: Protocol, length: u16, sum: bool| {
        let mut datagram = vec![0; 30];
        datagram[..8].copy_from_slice(&[0x13, 0x88, 0, 53, 0, 0, 0, 0]);
        datagram[4..6].copy_from_slice(&length.to_be_bytes());
        let (source, destination) = (ip(HERE), ip(THERE));
        let covered: u16 = match (protocol, length) {
            (Protocol::UDP_LITE, 0) => 30,
            (_, length) => length.min(30),
        };
        if sum {
            let of = if protocol == Protocol::UDP { covered } else { 30 };
            let pseudo =
                wire::checksum::pseudo_header(&addresses(source, destination), protocol, of.into());
            let sum = !wire::checksum::sum_with(&datagram[..covered.into()], pseudo.into());
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        packet(source, destination, protocol, 64, &datagram)
    };
    let lite = Protocol::UDP_LITE;
    for (packet, passes) in [
        (filled(Protocol::UDP, 30, true), true),
        (filled(Protocol::UDP, 20, true), true),
        (filled(Protocol::UDP, 31, true), false),
        (filled(Protocol::UDP, 31, false), false),
        (filled(Protocol::UDP, 7, false), false),
        (filled(lite, 0, true), true),
        (filled(lite, 8, true), true),
        (filled(lite, 30, true), true),
        (filled(lite, 31, true), false),
        (filled(lite, 7, true), false),
        (filled(lite, 8, false), false),
    ] {
        gateway.receive(LAN, &packet);
        assert_eq!(gateway.sent(WAN).len(), usize::from(passes), "{packet:02x?}");
    }
    gateway.assert_nothing_lost();
}

#[test]
fn connections_that_end_together_go_without_a_packet_too() {
    const COUNT: u16 = 1000;
    let mut gateway = Gateway::new(with_flows(plain_tables(), masquerade("203.0.113.9"), 2048));
    for port in 1..=COUNT {
        gateway.receive(LAN, &udp(HERE, THERE, (port, 53), 10));
        gateway.sent_one(WAN);
    }
    assert_eq!((counts(&gateway).connections, gateway.worker.next_deadline()), (1000, None));
    gateway.wait(Duration::from_secs(60));
    let rounds = (1..).take_while(|_| {
        let is_due = gateway.worker.next_deadline().is_some_and(|due| due <= gateway.now);
        gateway.poll();
        is_due
    });
    // A bounded number in each.
    assert!((2..100).contains(&rounds.count()));
    assert_eq!((counts(&gateway).connections, gateway.worker.next_deadline()), (0, None));
}

/// While there is a trace, its packets open connections and are translated as all others.
#[test]
fn traced_packets_have_connections_too() {
    let mut gateway = gateway(masquerade("203.0.113.9"));
    let (writer, _reader) = path::tap_ring(1 << 20);
    gateway.worker.set_taps(writer);
    let spec = tables::TraceSpec { id: 1, count: 100, rate: 1_000_000, program: None };
    gateway.change(|tables| tables.add_trace(spec).unwrap());
    for _ in 0..3 {
        gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
        assert_eq!(ends(&gateway.sent_one(WAN).1), "203.0.113.9:5000 192.168.12.7:53");
        gateway.receive(WAN, &udp(THERE, "203.0.113.9", (53, 5000), 20));
        assert_eq!(ends(&gateway.sent_one(LAN).1), "192.168.12.7:53 192.168.13.5:5000");
    }
    assert_eq!(counts(&gateway).made, 1);
    gateway.assert_nothing_lost();
}

/// An outsider who guesses the identification of a datagram from inside must not add to it.
#[test]
fn fragments_of_ports_that_flows_tell_apart_are_no_datagram() {
    let pieces = pieces_of(&udp(HERE, THERE, (5000, 53), 100), 68);
    let [first, rest @ ..] = &pieces[..] else { panic!("it is cut") };
    let zones = |of: &[(PortId, u16)]| of.iter().copied().collect::<BTreeMap<_, _>>();
    for (zones, second, expected) in [
        (zones(&[]), WAN, 1),
        (zones(&[]), LAN, 0),
        // Uplinks of one zone may share a datagram.
        (zones(&[(LAN, 1), (WAN, 1)]), LAN, 1),
        (zones(&[(LAN, 1), (WAN, 2)]), LAN, 0),
        (zones(&[(LAN, 1), (WAN, 2)]), WAN, 1),
    ] {
        let flows = vec![
            flow(0, 1, &[], &[ct(false, Some(1), None)]),
            flow(1, 1, &[], &[ct(true, None, None), Action::Normal]),
        ];
        let mut tables = with_flows(plain_tables(), flows, 1024);
        tables.set_firewall_zones(zones);
        // Another side would keep them apart as well.
        set_side(&mut tables, LAN, Side::Unset);
        let mut gateway = Gateway::new(tables);
        gateway.receive(WAN, first);
        rest.iter().for_each(|piece| gateway.receive(second, piece));
        assert_eq!(gateway.sent(WAN).len(), expected, "{second:?}: {:?}", gateway.drops());
        assert_eq!(counts(&gateway).connections, u32::from(expected > 0));
    }
}
