//! Match-action tables, connections and NAT, with packets on their way through a whole gateway.

mod fixture;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use conntrack::{Connections, CtState, Settings};
use fixture::*;
use flow::CacheTable;
use packet::{DropReason, Time};
use pipeline::{
    Action, Change, Ct, Field, Flow, Match, NatEnd, NatNew, NatSpec, Owner, Pipeline, PortChoice,
};
use tables::Tables;
use wire::{PortId, Protocol, TcpFlags, VrfId, headers};

const HERE: &str = "192.168.13.5";
const THERE: &str = "192.168.12.7";

fn flow(table: u8, priority: u16, matches: &[(Field, u128, u128)], actions: &[Action]) -> Flow {
    let mut all = Match::ANY;
    for (field, value, mask) in matches {
        all.set(*field, *value, *mask);
    }
    Flow {
        vrf: VrfId::MAIN,
        table,
        priority,
        matches: all,
        actions: actions.to_vec(),
        cookie: 0,
        idle_timeout: 0,
        hard_timeout: 0,
    }
}

fn by(port: PortId) -> (Field, u128, u128) {
    (Field::InPort, port.0.into(), 0xffff)
}

/// These bits of ct_state set, and these not.
fn state(set: CtState, unset: CtState) -> (Field, u128, u128) {
    (Field::CtState, set.0.into(), (set.0 | unset.0).into())
}

const NO: CtState = CtState(0);

fn ct(commit: bool, table: Option<u8>, nat: Option<NatSpec>) -> Action {
    Action::Ct(Box::new(Ct {
        commit,
        force: false,
        zone: pipeline::Zone::Vrf,
        table,
        nat,
        exec: Vec::new(),
        alg: None,
        limit: None,
    }))
}

fn nat(end: NatEnd, addresses: &str, ports: Option<(u16, u16)>) -> NatSpec {
    NatSpec {
        new: Some(Arc::new(NatNew {
            end,
            addresses: Some(range(addresses)),
            ports,
            choice: None,
            persistent: false,
            endpoint_independent: false,
            blocks: None,
        })),
        twice: true,
    }
}

/// The firewall of the literature: what begins inside may go out and be answered.
fn seven_flows() -> Vec<Flow> {
    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    vec![
        flow(0, 1, &[], &[]),
        flow(0, 100, &[state(NO, CtState::TRK)], &[ct(false, Some(1), None)]),
        flow(1, 10, &[state(new, NO), by(LAN)], &[ct(true, None, None), Action::Output(WAN)]),
        flow(1, 10, &[state(new, NO), by(WAN)], &[]),
        flow(1, 10, &[state(est, NO), by(LAN)], &[Action::Output(WAN)]),
        flow(1, 10, &[state(est, NO), by(WAN)], &[Action::Output(LAN)]),
    ]
}

/// The same, with routes, and inside addresses translated to one outside.
fn masquerade(to: &str) -> Vec<Flow> {
    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let related = CtState::REL | CtState::TRK;
    let translated = Some(nat(NatEnd::Source, to, None));
    vec![
        flow(0, 100, &[], &[ct(false, Some(1), Some(NatSpec::default()))]),
        flow(1, 20, &[state(est, NO)], &[Action::Normal]),
        flow(1, 20, &[state(related, CtState::NEW)], &[Action::Normal]),
        flow(1, 10, &[state(new, NO), by(LAN)], &[ct(true, None, translated), Action::Normal]),
    ]
}

fn with_flows(mut tables: Tables, flows: Vec<Flow>, connections: u32) -> Tables {
    let settings = Settings { connections, ipv6_connections: connections, ..Settings::default() };
    let table = Connections::new(&settings, [1, 2], Time(1_000_000_000)).unwrap();
    tables.set_connections(Arc::new(table));
    let mut pipeline = Pipeline::new();
    for flow in flows {
        let change = Change::Add { flow, check_overlap: false };
        pipeline.apply(change, Owner::User).unwrap();
    }
    tables.set_pipeline(pipeline, Time(1_000_000_000)).unwrap();
    tables
}

fn gateway(flows: Vec<Flow>) -> Gateway {
    Gateway::new(with_flows(plain_tables(), flows, 1024))
}

fn counts(gateway: &Gateway) -> conntrack::Counts {
    gateway.publisher.current().connections().unwrap().counts()
}

/// Packets that each flow has counted.
fn counted(gateway: &Gateway) -> Vec<u64> {
    let tables = gateway.publisher.current();
    let count = |id| tables.flow_meter(id).unwrap().counters.read().0;
    tables.pipeline().sorted().into_iter().map(|entry| count(entry.id)).collect()
}

fn segment(ends: (&str, &str), ports: (u16, u16), flags: u8, numbers: (u32, u32)) -> Vec<u8> {
    let (source, destination) = (ip(ends.0), ip(ends.1));
    let header = wire::tcp::Header {
        source: ports.0,
        destination: ports.1,
        sequence: numbers.0,
        acknowledgment: numbers.1,
        header_length: 20,
        flags: TcpFlags(flags),
        window: 8192,
        ..Default::default()
    };
    let mut segment = header.to_bytes().to_vec();
    wire::tcp::fill_checksum(&addresses(source, destination), &mut segment);
    packet(source, destination, Protocol::TCP, 64, &segment)
}

/// Source, destination, and their ports.
fn ends(packet: &[u8]) -> String {
    let headers = headers::parse(packet).unwrap();
    let addresses = headers.addresses;
    match headers.upper {
        wire::Upper::Ports { source, destination } => {
            format!("{}:{source} {}:{destination}", addresses.source(), addresses.destination())
        }
        other => format!("{} {} {other:?}", addresses.source(), addresses.destination()),
    }
}

#[track_caller]
fn assert_checksums_are_right(packet: &[u8]) {
    let headers = headers::parse(packet).unwrap();
    let upper = headers.upper_bytes(packet);
    let is_right = wire::checksum::upper_is_right(&headers.addresses, headers.protocol, upper);
    assert!(is_right, "{packet:02x?}");
}

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

#[test]
fn sources_are_translated_and_answers_find_their_way_back() {
    let mut gateway = gateway(masquerade("203.0.113.9"));
    for more in 0..3 {
        gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
        let (to, packet) = gateway.sent_one(WAN);
        assert_eq!((to, ends(&packet).as_str()), (PEER_MAC, "203.0.113.9:5000 192.168.12.7:53"));
        assert_checksums_are_right(&packet);
        gateway.receive(WAN, &udp(THERE, "203.0.113.9", (53, 5000), 10 + more));
        let (to, packet) = gateway.sent_one(LAN);
        assert_eq!((to, ends(&packet).as_str()), (HOST_MAC, "192.168.12.7:53 192.168.13.5:5000"));
        assert_checksums_are_right(&packet);
    }
    // Another host with the same port gets another one.
    gateway.receive(LAN, &udp("192.168.13.6", THERE, (5000, 53), 10));
    let (_, packet) = gateway.sent_one(WAN);
    assert_ne!(ends(&packet), "203.0.113.9:5000 192.168.12.7:53");
    assert!(ends(&packet).starts_with("203.0.113.9:"), "{}", ends(&packet));
    // TCP, and ping.
    gateway.receive(LAN, &segment((HERE, THERE), (4000, 80), 2, (1000, 0)));
    let (_, packet) = gateway.sent_one(WAN);
    assert_eq!(ends(&packet), "203.0.113.9:4000 192.168.12.7:80");
    assert_checksums_are_right(&packet);
    assert_eq!(counts(&gateway).connections, 3);
    // To the outside address, of nobody's connection.
    gateway.receive(WAN, &udp(THERE, "203.0.113.9", (54, 5000), 10));
    assert_eq!(gateway.drops(), [("flow_miss", 1)]);
    gateway.assert_nothing_lost();
}

#[test]
fn errors_about_translated_packets_reach_their_sender() {
    let mut gateway = gateway(masquerade("203.0.113.9"));
    gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
    let (_, translated) = gateway.sent_one(WAN);
    let mut error = vec![11, 0, 0, 0, 0, 0, 0, 0];
    error.extend(&translated[..28]);
    let sum = wire::checksum::checksum(&error);
    error[2..4].copy_from_slice(&sum.to_be_bytes());
    let error = packet(ip("198.51.100.1"), ip("203.0.113.9"), Protocol::ICMP, 64, &error);
    gateway.receive(WAN, &error);
    let (_, told) = gateway.sent_one(LAN);
    assert_eq!(told[12..20], [198, 51, 100, 1, 192, 168, 13, 5]);
    assert_eq!(wire::checksum::checksum(&told[20..]), 0);
    assert_eq!(told[40..48], [192, 168, 13, 5, 192, 168, 12, 7]);
    assert_eq!(told[48..52], [0x13, 0x88, 0, 53]);
    gateway.assert_nothing_lost();
}

#[test]
fn destinations_are_translated() {
    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let inside = Some(nat(NatEnd::Destination, HERE, Some((80, 80))));
    let mut gateway = gateway(vec![
        flow(0, 100, &[], &[ct(false, Some(1), Some(NatSpec::default()))]),
        flow(1, 20, &[state(est, NO)], &[Action::Normal]),
        flow(1, 10, &[state(new, NO), by(WAN)], &[ct(true, None, inside), Action::Normal]),
    ]);
    gateway.receive(WAN, &segment((THERE, "192.168.11.2"), (4000, 8080), 2, (1000, 0)));
    let (_, packet) = gateway.sent_one(LAN);
    assert_eq!(ends(&packet), "192.168.12.7:4000 192.168.13.5:80");
    assert_checksums_are_right(&packet);
    gateway.receive(LAN, &segment((HERE, THERE), (80, 4000), 0x12, (9000, 1001)));
    let (_, packet) = gateway.sent_one(WAN);
    assert_eq!(ends(&packet), "192.168.11.2:8080 192.168.12.7:4000");
    assert_checksums_are_right(&packet);
    gateway.assert_nothing_lost();
}

/// A port of the range is kept; one that is to be chosen follows from the packet's addresses and
/// ports, and not from its source's address alone.
#[test]
fn ports_of_destinations_are_kept_or_chosen() {
    let new = CtState::NEW | CtState::TRK;
    let ports = |choice: Option<PortChoice>| {
        let mut inside = nat(NatEnd::Destination, HERE, Some((8000, 8099)));
        Arc::make_mut(inside.new.as_mut().unwrap()).choice = choice;
        let mut gateway = gateway(vec![
            flow(0, 100, &[], &[ct(false, Some(1), Some(NatSpec::default()))]),
            flow(
                1,
                10,
                &[state(new, NO), by(WAN)],
                &[ct(true, None, Some(inside)), Action::Normal],
            ),
        ]);
        let mut ports = Vec::new();
        for source in 4000..4050 {
            gateway.receive(WAN, &udp(THERE, "192.168.11.2", (source, 8080), 10));
            let (_, packet) = gateway.sent_one(LAN);
            ports.push(u16::from_be_bytes([packet[22], packet[23]]));
        }
        gateway.assert_nothing_lost();
        ports
    };
    assert_eq!(ports(None), [8080; 50]);
    for choice in [PortChoice::Hash, PortChoice::Random] {
        let chosen = ports(Some(choice));
        assert!(chosen.iter().all(|port| (8000..8100).contains(port)), "{chosen:?}");
        let distinct: BTreeSet<_> = chosen.iter().collect();
        assert!(distinct.len() > 25, "{chosen:?}");
        assert_eq!(ports(Some(choice)), chosen, "the same of another gateway");
    }
}

/// By its key, the packet is none that the new flow matches.
#[test]
fn a_flow_that_matches_what_a_packet_is_translated_to_concerns_it() {
    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let inside = Some(nat(NatEnd::Destination, HERE, Some((80, 80))));
    let mut gateway = gateway(vec![
        flow(0, 100, &[], &[ct(false, Some(1), Some(NatSpec::default()))]),
        flow(1, 20, &[state(est, NO)], &[Action::Normal]),
        flow(1, 10, &[state(new, NO), by(WAN)], &[ct(true, None, inside), Action::Normal]),
    ]);
    let packets = || udp(THERE, "192.168.11.2", (4000, 8080), 10);
    gateway.receive(WAN, &packets());
    gateway.sent_one(LAN);
    gateway.receive(LAN, &udp(HERE, THERE, (80, 4000), 10));
    gateway.sent_one(WAN);
    for _ in 0..3 {
        gateway.receive(WAN, &packets());
        gateway.sent_one(LAN);
    }
    gateway.change(|tables| {
        let mut pipeline = tables.pipeline().clone();
        let here = (Field::NwDst, u128::from(v4(HERE).to_bits()), u128::from(u32::MAX));
        let drop = flow(1, 30, &[(Field::DlType, 0x0800, 0xffff), here], &[]);
        let change = Change::Add { flow: drop, check_overlap: false };
        pipeline.apply(change, Owner::User).unwrap();
        tables.set_pipeline(pipeline, Time(1_000_000_000)).unwrap();
    });
    gateway.receive(WAN, &packets());
    assert_eq!(gateway.sent(LAN), []);
    gateway.assert_nothing_lost();
}

/// As in Open vSwitch: what goes on behind `ct(table=1)` is the packet that the other way did not touch.
#[test]
fn a_packet_goes_on_untranslated_where_another_way_translates_it() {
    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let outside = Some(nat(NatEnd::Source, "203.0.113.9", None));
    let mut gateway = gateway(vec![
        flow(0, 100, &[], &[ct(false, Some(1), None), Action::Normal]),
        flow(1, 20, &[state(est, NO)], &[ct(false, Some(2), Some(NatSpec::default()))]),
        flow(1, 10, &[state(new, NO), by(LAN)], &[ct(true, None, outside)]),
    ]);
    let out = udp(HERE, THERE, (5000, 53), 10);
    for round in 0..4 {
        gateway.receive(LAN, &out);
        let (_, packet) = gateway.sent_one(WAN);
        assert_eq!(ends(&packet), "192.168.13.5:5000 192.168.12.7:53", "round {round}");
        if round == 0 {
            // Now it is established, and table 1 has the packet translated.
            gateway.receive(WAN, &udp(THERE, "203.0.113.9", (53, 5000), 10));
            gateway.sent(WAN);
        }
    }
    assert_eq!(counts(&gateway).connections, 1);
    gateway.assert_nothing_lost();
}

#[test]
fn a_hop_limit_that_runs_out_is_told_of_the_packet_as_it_came() {
    let mut gateway = gateway(masquerade("203.0.113.9"));
    let mut last = udp(HERE, THERE, (5000, 53), 10);
    last[8] = 1;
    wire::ipv4::fill_checksum(&mut last);
    gateway.receive(LAN, &last);
    assert_eq!(gateway.sent(WAN), []);
    let (_, told) = gateway.sent_one(LAN);
    assert_eq!(told[28 + 12..28 + 20], [192, 168, 13, 5, 192, 168, 12, 7]);
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
fn fragments_of_a_translated_connection_are_made_whole_and_cut_again() {
    // No longer than they came, and not at all if they are shorter than any link needs.
    for (length, limit, expected) in
        [(2000, 1500, vec![1500, 548]), (1300, 640, vec![636, 636, 96]), (100, 68, vec![128])]
    {
        cut_again(length, limit, &expected);
    }
}

fn cut_again(length: usize, limit: u16, expected: &[usize]) {
    let mut gateway = gateway(masquerade("203.0.113.9"));
    let mut whole = udp(HERE, THERE, (5000, 53), length);
    whole[6] = 0;
    wire::ipv4::fill_checksum(&mut whole);
    let plan = wire::fragment::plan(&whole, limit).unwrap();
    let pieces: Vec<Vec<u8>> = plan
        .map(|piece| {
            let mut bytes = vec![0; piece.total_length()];
            wire::fragment::write(&whole, &piece, &mut bytes).unwrap();
            bytes
        })
        .collect();
    for piece in pieces.iter().rev() {
        gateway.receive(LAN, piece);
    }
    let sent = gateway.sent(WAN);
    let lengths: Vec<_> = sent.iter().map(|(_, piece)| piece.len()).collect();
    assert_eq!(lengths, expected, "{:?}", gateway.drops());
    for (_, piece) in &sent {
        assert_eq!(piece[12..16], [203, 0, 113, 9]);
    }
    gateway.assert_nothing_lost();
}

fn set(field: Field, value: u128) -> Action {
    Action::Set { word: pipeline::SetWord::Mod, field, value, mask: field.max() }
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
    let plain = Ct {
        commit: true,
        force: false,
        zone: pipeline::Zone::Vrf,
        table: None,
        nat: None,
        exec: Vec::new(),
        alg: None,
        limit: None,
    };
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

/// By which port the packet would be routed.
fn to(exit: pipeline::Exit) -> (Field, u128, u128) {
    let number = match exit {
        pipeline::Exit::None => 0xffff,
        pipeline::Exit::Local => 0xfffe,
        pipeline::Exit::Port(port) => port.0,
    };
    (Field::Oif, number.into(), 0xffff)
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
fn a_destination_is_translated_before_flows_see_its_route_and_then_the_source() {
    use pipeline::Exit;

    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let inside = Some(nat(NatEnd::Destination, "192.168.13.80", Some((80, 80))));
    let own = Some(nat(NatEnd::Source, "192.168.13.1", None));
    let outside = (Field::NwDst, u128::from(v4("203.0.113.9").to_bits()), u128::from(u32::MAX));
    let server = (Field::NwDst, u128::from(v4("192.168.13.80").to_bits()), u128::from(u32::MAX));
    let ip4 = (Field::DlType, 0x0800, 0xffff);
    let mut gateway = gateway(vec![
        flow(0, 100, &[], &[ct(false, Some(1), Some(NatSpec::default()))]),
        flow(1, 30, &[state(est, NO)], &[Action::Normal]),
        flow(1, 20, &[state(new, NO), ip4, outside], &[ct(true, Some(2), inside)]),
        flow(
            2,
            10,
            &[state(new | CtState::DNAT, NO), ip4, server, to(Exit::Port(LAN))],
            &[ct(true, None, own), Action::Normal],
        ),
    ]);
    gateway.change(|tables| {
        tables.set_neighbour(LAN, ip("192.168.13.80"), PEER_MAC).unwrap();
    });
    for round in 0..3 {
        let flags = if round == 0 { 2 } else { 0x10 };
        let number = 1000 + u32::from(round > 0);
        let out = segment((HERE, "203.0.113.9"), (4000, 8080), flags, (number, 9001));
        gateway.receive(LAN, &out);
        let (to, packet) = gateway.sent_one(LAN);
        assert_eq!(ends(&packet), "192.168.13.1:4000 192.168.13.80:80");
        assert_eq!(to, PEER_MAC);
        assert_checksums_are_right(&packet);
        let flags = if round == 0 { 0x12 } else { 0x10 };
        let number = 9000 + u32::from(round > 0);
        let back = segment(("192.168.13.80", "192.168.13.1"), (80, 4000), flags, (number, 1001));
        gateway.receive(LAN, &back);
        let (to, packet) = gateway.sent_one(LAN);
        assert_eq!(ends(&packet), "203.0.113.9:8080 192.168.13.5:4000");
        assert_eq!(to, HOST_MAC);
        assert_checksums_are_right(&packet);
    }
    assert_eq!(counts(&gateway).connections, 1);
    assert_eq!(gateway.drops(), []);
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
    let mut whole = udp(HERE, THERE, (5000, 53), 2000);
    whole[6] = 0;
    wire::ipv4::fill_checksum(&mut whole);
    let plan = wire::fragment::plan(&whole, 700).unwrap();
    let pieces: Vec<Vec<u8>> = plan
        .map(|piece| {
            let mut bytes = vec![0; piece.total_length()];
            wire::fragment::write(&whole, &piece, &mut bytes).unwrap();
            frame(OTHER_MAC, HOST_MAC, &bytes)
        })
        .collect();
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
