//! Match-action tables, connections and NAT, with packets on their way through a whole gateway.

mod fixture;

use std::sync::Arc;
use std::time::Duration;

use conntrack::{Connections, CtState, Settings};
use fixture::*;
use flow::CacheTable;
use packet::{DropReason, Time};
use pipeline::{Action, Change, Ct, Field, Flow, Match, NatEnd, NatNew, NatSpec, Owner, Pipeline};
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
    }))
}

fn nat(end: NatEnd, addresses: &str, ports: Option<(u16, u16)>) -> NatSpec {
    NatSpec {
        new: Some(NatNew {
            end,
            addresses: Some(range(addresses)),
            ports,
            choice: None,
            persistent: false,
        }),
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
    let mut gateway = gateway(masquerade("203.0.113.9"));
    let mut whole = udp(HERE, THERE, (5000, 53), 2000);
    whole[6] = 0;
    wire::ipv4::fill_checksum(&mut whole);
    let plan = wire::fragment::plan(&whole, 1500).unwrap();
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
    assert_eq!(sent.len(), 2, "{:?}", gateway.drops());
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
    };
    let helper = refuses(Ct { alg: Some(pipeline::Alg::Ftp), ..plain.clone() });
    assert!(helper.starts_with("`alg` is not supported"), "{helper}");
    let mut nowhere = nat(NatEnd::Source, HERE, None);
    nowhere.new.as_mut().unwrap().addresses = None;
    let nowhere = refuses(Ct { nat: Some(nowhere), ..plain });
    assert!(nowhere.starts_with("`nat(src)` needs addresses"), "{nowhere}");
}
