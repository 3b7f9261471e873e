//! Helpers for FTP and TFTP, with packets on their way through a whole gateway.

mod fixture;

use std::sync::Arc;
use std::time::Duration;

use conntrack::{Connections, CtState, Settings};
use fixture::*;
use flow::CacheTable;
use packet::{DropReason, Time};
use pipeline::{
    Action, Alg, Change, Ct, Field, Flow, Match, NatEnd, NatNew, NatSpec, Owner, Pipeline,
};
use wire::{Protocol, TcpFlags, VrfId, headers};

const CLIENT: &str = "192.168.13.5";
const SERVER: &str = "192.168.12.7";
const OUTSIDE: &str = "203.0.113.99";
const CONTROL: (u16, u16) = (40_000, 21);

type Condition = (Field, u128, u128);

fn flow(table: u8, priority: u16, conditions: &[Condition], actions: &[Action]) -> Flow {
    let mut matches = Match::ANY;
    for (field, value, mask) in conditions {
        matches.set(*field, *value, *mask);
    }
    let (vrf, actions) = (VrfId::MAIN, actions.to_vec());
    let (cookie, idle_timeout, hard_timeout) = (0, 0, 0);
    Flow { vrf, table, priority, matches, actions, cookie, idle_timeout, hard_timeout }
}

fn ct(commit: bool, table: Option<u8>, nat: Option<NatSpec>, alg: Option<Alg>) -> Action {
    Action::Ct(Box::new(Ct { commit, table, nat, alg, ..Ct::default() }))
}

fn has(state: CtState) -> Condition {
    (Field::CtState, (state.0 | CtState::TRK.0).into(), (state.0 | CtState::TRK.0).into())
}

/// Control connections from inside, with a source that is translated to this if one is given, and
/// what they announce.
fn gateway(outside: Option<&str>) -> Gateway {
    let inside: Condition = (Field::InPort, LAN.0.into(), 0xffff);
    let new = outside.map(|address| NatSpec {
        new: Some(Arc::new(NatNew {
            end: NatEnd::Source,
            addresses: Some(range(address)),
            ports: None,
            choice: None,
            persistent: false,
            endpoint_independent: false,
            blocks: None,
        })),
        twice: true,
    });
    let control = |number: u8, alg: Alg, (field, port): (Field, u128)| {
        let to: [Condition; 2] = [(Field::NwProto, number.into(), 0xff), (field, port, 0xffff)];
        let conditions = [has(CtState::NEW), inside, to[0], to[1]];
        flow(1, 10, &conditions, &[ct(true, None, new.clone(), Some(alg)), Action::Normal])
    };
    let related = CtState(CtState::NEW.0 | CtState::REL.0);
    let nat = Some(NatSpec::default());
    let flows = vec![
        flow(0, 100, &[], &[ct(false, Some(1), nat.clone(), None)]),
        flow(1, 30, &[has(related)], &[ct(true, None, nat, None), Action::Normal]),
        flow(1, 25, &[has(CtState::REL)], &[Action::Normal]),
        flow(1, 20, &[has(CtState::EST)], &[Action::Normal]),
        control(6, Alg::Ftp, (Field::TcpDst, 21)),
        control(17, Alg::Tftp, (Field::UdpDst, 69)),
    ];
    let mut tables = plain_tables();
    let settings = Settings { connections: 1024, ipv6_connections: 1024, ..Settings::default() };
    let table = Connections::new(&settings, [1, 2], Time(1_000_000_000)).unwrap();
    tables.set_connections(Arc::new(table));
    let mut pipeline = Pipeline::new();
    for flow in flows {
        pipeline.apply(Change::Add { flow, check_overlap: false }, Owner::User).unwrap();
    }
    tables.set_pipeline(pipeline, Time(1_000_000_000)).unwrap();
    Gateway::new(tables)
}

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;
const PUSH: u8 = 0x18;

/// A segment with SACK blocks and data.
fn segment(
    ends: (&str, &str),
    ports: (u16, u16),
    flags: u8,
    numbers: (u32, u32),
    sacked: Option<(u32, u32)>,
    data: &str,
) -> Vec<u8> {
    let (source, destination) = (ip(ends.0), ip(ends.1));
    let mut options = Vec::new();
    if let Some((left, right)) = sacked {
        options.extend([1, 1, 5, 10]);
        options.extend(left.to_be_bytes());
        options.extend(right.to_be_bytes());
    }
    let header = wire::tcp::Header {
        source: ports.0,
        destination: ports.1,
        sequence: numbers.0,
        acknowledgment: numbers.1,
        header_length: 20 + options.len() as u8,
        flags: TcpFlags(flags),
        window: 8192,
        ..Default::default()
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend(options);
    bytes.extend(data.as_bytes());
    wire::tcp::fill_checksum(&addresses(source, destination), &mut bytes);
    packet(source, destination, Protocol::TCP, 64, &bytes)
}

/// What there is to know of a segment that has left: ends, numbers, and data.
#[track_caller]
fn read(packet: &[u8]) -> (String, (u32, u32), String) {
    let headers = headers::parse(packet).unwrap();
    assert_eq!(usize::from(headers.total_length), packet.len());
    let upper = headers.upper_bytes(packet);
    let is_right = wire::checksum::upper_is_right(&headers.addresses, headers.protocol, upper);
    assert!(is_right && wire::checksum::checksum(&packet[..20]) == 0, "{packet:02x?}");
    let header = wire::tcp::Header::parse(upper).unwrap();
    let (source, destination) = (headers.addresses.source(), headers.addresses.destination());
    let ends = format!("{source}:{} {destination}:{}", header.source, header.destination);
    let data = String::from_utf8(upper[header.header_length.into()..].to_vec()).unwrap();
    (ends, (header.sequence, header.acknowledgment), data)
}

fn client(flags: u8, numbers: (u32, u32), data: &str) -> Vec<u8> {
    segment((CLIENT, SERVER), CONTROL, flags, numbers, None, data)
}

fn server(to: &str, flags: u8, numbers: (u32, u32), data: &str) -> Vec<u8> {
    segment((SERVER, to), (CONTROL.1, CONTROL.0), flags, numbers, None, data)
}

/// Opens the control connection: the client's next number is 1001, the server's 9001.
fn open(gateway: &mut Gateway, outside: &str) {
    gateway.receive(LAN, &client(SYN, (1000, 0), ""));
    gateway.receive(WAN, &server(outside, SYN_ACK, (9000, 1001), ""));
    gateway.receive(LAN, &client(ACK, (1001, 9001), ""));
    assert_eq!((gateway.sent(WAN).len(), gateway.sent(LAN).len()), (2, 1));
}

fn table(gateway: &Gateway) -> Arc<Connections> {
    Arc::clone(gateway.publisher.current().connections().unwrap())
}

fn drops(gateway: &Gateway) -> Vec<(&'static str, u64)> {
    gateway.drops()
}

#[test]
fn an_announcement_is_translated_and_the_numbers_behind_it() {
    let mut gateway = gateway(Some(OUTSIDE));
    open(&mut gateway, OUTSIDE);
    let line = "PORT 192,168,13,5,18,52\r\n";
    let written = "PORT 203,0,113,99,18,52\r\n";
    assert_eq!(line.len(), written.len());
    gateway.receive(LAN, &client(PUSH, (1001, 9001), line));
    let (_, sent) = gateway.sent_one(WAN);
    let ends = "203.0.113.99:40000 192.168.12.7:21";
    assert_eq!(read(&sent), (ends.into(), (1001, 9001), written.into()));

    let line = "EPRT |1|192.168.13.5|4661|\r\n";
    let written = "EPRT |1|203.0.113.99|4661|\r\n";
    gateway.receive(WAN, &server(OUTSIDE, ACK, (9001, 1026), ""));
    gateway.receive(LAN, &client(PUSH, (1026, 9001), line));
    let (_, sent) = gateway.sent_one(WAN);
    assert_eq!(read(&sent).2, written);
    assert_eq!(table(&gateway).expectations().len(), 1);
    gateway.sent(LAN);
    gateway.assert_nothing_lost();
}

#[test]
fn sequence_numbers_are_shifted_both_ways_and_sent_again_alike() {
    let outside = "9.9.9.9";
    let mut gateway = gateway(Some(outside));
    open(&mut gateway, outside);
    let line = "PORT 192,168,13,5,18,52\r\n";
    let written = "PORT 9,9,9,9,18,52\r\n";
    let (long, short) = (line.len() as u32, written.len() as u32);
    for _ in 0..3 {
        // Sent again, it is the same.
        gateway.receive(LAN, &client(PUSH, (1001, 9001), line));
        let (_, sent) = gateway.sent_one(WAN);
        let (_, numbers, data) = read(&sent);
        assert_eq!((numbers, &*data), ((1001, 9001), written));
    }
    assert_eq!(table(&gateway).expectations().len(), 1);
    // What the client sends behind it before it is acknowledged.
    gateway.receive(LAN, &client(PUSH, (1001 + long, 9001), "LIST\r\n"));
    let (_, sent) = gateway.sent_one(WAN);
    assert_eq!(read(&sent).1, (1001 + short, 9001));
    // The server has the line behind, and not the announcement.
    let ends = (SERVER, outside);
    let sacked = Some((1001 + short, 1007 + short));
    gateway.receive(WAN, &segment(ends, (21, 40_000), ACK, (9001, 1001), sacked, ""));
    let (_, sent) = gateway.sent_one(LAN);
    assert_eq!(read(&sent).1, (9001, 1001));
    assert_eq!(sent[44..48], (1001 + long).to_be_bytes());
    assert_eq!(sent[48..52], (1007 + long).to_be_bytes());
    // It answers.
    gateway.receive(WAN, &server(outside, PUSH, (9001, 1007 + short), "200 PORT\r\n"));
    let (_, sent) = gateway.sent_one(LAN);
    assert_eq!(read(&sent).1, (9001, 1007 + long));
    gateway.receive(LAN, &client(ACK, (1007 + long, 9011), ""));
    let (_, sent) = gateway.sent_one(WAN);
    assert_eq!(read(&sent).1, (1007 + short, 9011));
    // An acknowledgment of what was never sent is invalid, with the shift in mind.
    gateway.receive(WAN, &server(outside, ACK, (9011, 1008 + short), ""));
    assert_eq!(drops(&gateway), [("flow_miss", 1)]);
    gateway.receive(WAN, &server(outside, ACK, (9011, 1007 + short), ""));
    gateway.sent_one(LAN);
    // A second one, longer or shorter than the first.
    let line = "PORT 192,168,13,5,4,7\r\n";
    gateway.receive(LAN, &client(PUSH, (1007 + long, 9011), line));
    let (_, sent) = gateway.sent_one(WAN);
    let (_, numbers, data) = read(&sent);
    assert_eq!((numbers, &*data), ((1007 + short, 9011), "PORT 9,9,9,9,4,7\r\n"));
    gateway.receive(WAN, &server(outside, ACK, (9011, 1007 + short + 18), ""));
    let (_, sent) = gateway.sent_one(LAN);
    assert_eq!(read(&sent).1, (9011, 1007 + long + 23));
    gateway.assert_nothing_lost();
}

/// A router behind the gateway knows no numbers but those that have left, and the client those alone that it
/// has used.
#[test]
fn an_error_about_a_shifted_segment_quotes_what_its_sender_has_sent() {
    let outside = "9.9.9.9";
    let mut gateway = gateway(Some(outside));
    open(&mut gateway, outside);
    let line = "PORT 192,168,13,5,18,52\r\n";
    gateway.receive(LAN, &client(PUSH, (1001, 9001), line));
    gateway.sent_one(WAN);
    let list = client(PUSH, (1001 + line.len() as u32, 9001), "LIST\r\n");
    gateway.receive(LAN, &list);
    let (_, went) = gateway.sent_one(WAN);
    // Fragmentation needed, with all of the segment or with 8 bytes of it, as RFC 1812 and RFC 792 say.
    for length in [went.len(), 28] {
        let error = |to: &str, quoted: &[u8]| {
            let mut rest = vec![3, 4, 0, 0, 0, 0, 2, 64];
            rest.extend(&quoted[..length]);
            let sum = wire::checksum::checksum(&rest);
            rest[2..4].copy_from_slice(&sum.to_be_bytes());
            packet(ip("198.51.100.1"), ip(to), Protocol::ICMP, 64, &rest)
        };
        gateway.receive(WAN, &error(outside, &went));
        let (_, told) = gateway.sent_one(LAN);
        let mut wanted = error(CLIENT, &list);
        // The gateway's own hop, out and back.
        wanted[8] -= 1;
        wanted[10..12].fill(0);
        let sum = wire::checksum::checksum(&wanted[..20]);
        wanted[10..12].copy_from_slice(&sum.to_be_bytes());
        wanted[36] -= 1;
        wanted[38..40].copy_from_slice(&told[38..40]);
        wanted[22..24].copy_from_slice(&told[22..24]);
        assert_eq!(told, wanted);
        assert_eq!(wire::checksum::checksum(&told[20..]), 0);
        assert_eq!(wire::checksum::checksum(&told[28..48]), 0);
    }
    // About one that was never sent, with the shift in mind.
    let mut stranger = went.clone();
    stranger[24..28].copy_from_slice(&(1001u32 + 60).to_be_bytes());
    let mut rest = vec![3, 4, 0, 0, 0, 0, 2, 64];
    rest.extend(&stranger[..28]);
    let sum = wire::checksum::checksum(&rest);
    rest[2..4].copy_from_slice(&sum.to_be_bytes());
    gateway.receive(WAN, &packet(ip("198.51.100.1"), ip(outside), Protocol::ICMP, 64, &rest));
    assert_eq!(drops(&gateway), [("flow_miss", 1)]);
    gateway.assert_nothing_lost();
}

#[test]
fn packets_of_control_connections_are_read_from_the_cache_too() {
    let mut gateway = gateway(None);
    open(&mut gateway, CLIENT);
    let mut next = 1001;
    for more in 0..20 {
        let line = format!("NOOP {more:02}\r\n");
        gateway.receive(LAN, &client(PUSH, (next, 9001), &line));
        next += line.len() as u32;
    }
    let statistics = gateway.worker.statistics();
    let decided = statistics.decided.read() + statistics.decided_again.read();
    assert!(gateway.cache(CacheTable::V4Outbound).hits.read() >= 19);
    gateway.receive(LAN, &client(PUSH, (next, 9001), "EPRT |1|192.168.13.5|4660|\r\n"));
    let statistics = gateway.worker.statistics();
    assert_eq!(statistics.decided.read() + statistics.decided_again.read(), decided);
    let expected = table(&gateway).expectations();
    assert_eq!(expected.len(), 1);
    assert_eq!((expected[0].destination, expected[0].destination_port), (ip(CLIENT), 4660));
    gateway.sent(WAN);
    gateway.assert_nothing_lost();
}

#[test]
fn a_data_connection_comes_once_and_is_related() {
    let mut gateway = gateway(Some(OUTSIDE));
    open(&mut gateway, OUTSIDE);
    gateway.receive(LAN, &client(PUSH, (1001, 9001), "PORT 192,168,13,5,18,52\r\n"));
    gateway.sent_one(WAN);
    // From another host than the server, and to another port: nobody has announced these.
    let data = |from: &str, ports| segment((from, OUTSIDE), ports, SYN, (5000, 0), None, "");
    gateway.receive(WAN, &data("192.168.12.8", (20, 4660)));
    gateway.receive(WAN, &data(SERVER, (20, 4661)));
    assert_eq!(drops(&gateway), [("flow_miss", 2)]);
    gateway.receive(WAN, &data(SERVER, (20, 4660)));
    let (to, sent) = gateway.sent_one(LAN);
    assert_eq!((to, &*read(&sent).0), (HOST_MAC, "192.168.12.7:20 192.168.13.5:4660"));
    let answer = segment((CLIENT, SERVER), (4660, 20), SYN_ACK, (7000, 5001), None, "");
    gateway.receive(LAN, &answer);
    let (_, sent) = gateway.sent_one(WAN);
    assert_eq!(read(&sent).0, "203.0.113.99:4660 192.168.12.7:20");
    // Once: another one from there is not expected any more.
    gateway.receive(WAN, &data(SERVER, (2000, 4660)));
    assert_eq!(drops(&gateway), [("flow_miss", 3)]);
    assert_eq!(table(&gateway).expectations(), []);
    assert_eq!(table(&gateway).helper_counts().followed, 1);
    gateway.assert_nothing_lost();
}

/// What leads elsewhere does not use up what was announced: it comes again.
#[test]
fn a_data_connection_that_is_rerouted_is_expected_yet() {
    let mut gateway = gateway(Some(OUTSIDE));
    open(&mut gateway, OUTSIDE);
    gateway.receive(LAN, &client(PUSH, (1001, 9001), "PORT 192,168,13,5,18,52\r\n"));
    gateway.sent_one(WAN);
    let before = gateway.publisher.current().pipeline().clone();
    let related = CtState(CtState::NEW.0 | CtState::REL.0);
    let through = ct(true, Some(5), Some(NatSpec::default()), None);
    let mut elsewhere = before.clone();
    for flow in [
        flow(1, 31, &[has(related)], &[through]),
        flow(5, 1, &[], &[Action::Rerouted { ends: false }]),
    ] {
        elsewhere.apply(Change::Add { flow, check_overlap: false }, Owner::User).unwrap();
    }
    gateway.change(|tables| tables.set_pipeline(elsewhere, Time(2_000_000_000)).unwrap());
    let data = segment((SERVER, OUTSIDE), (20, 4660), SYN, (5000, 0), None, "");
    for times in 1..3 {
        gateway.receive(WAN, &data);
        assert_eq!(drops(&gateway), [("connection_rerouted", times)]);
        assert_eq!(table(&gateway).expectations().len(), 1);
        assert_eq!(table(&gateway).counts().connections, 1);
    }
    gateway.change(|tables| tables.set_pipeline(before, Time(2_000_000_000)).unwrap());
    gateway.receive(WAN, &data);
    let (_, sent) = gateway.sent_one(LAN);
    assert_eq!(read(&sent).0, "192.168.12.7:20 192.168.13.5:4660");
    assert_eq!(table(&gateway).expectations(), []);
    gateway.assert_nothing_lost();
}

/// They are decided together, when nobody has come yet.
#[test]
fn one_data_connection_comes_of_those_that_come_at_once() {
    let mut gateway = gateway(Some(OUTSIDE));
    open(&mut gateway, OUTSIDE);
    gateway.receive(LAN, &client(PUSH, (1001, 9001), "PORT 192,168,13,5,18,52\r\n"));
    gateway.sent_one(WAN);
    let data = |port| segment((SERVER, OUTSIDE), (port, 4660), SYN, (5000, 0), None, "");
    let all: Vec<_> = (20..26).map(data).collect();
    gateway.receive_all(WAN, all.iter().map(Vec::as_slice));
    let (_, sent) = gateway.sent_one(LAN);
    assert_eq!(read(&sent).0, "192.168.12.7:20 192.168.13.5:4660");
    assert_eq!(drops(&gateway), [("flow_miss", 5)]);
    let counts = table(&gateway).counts();
    assert_eq!((counts.connections, counts.exists), (2, 5));
    gateway.assert_nothing_lost();
}

#[test]
fn strangers_and_services_are_not_expected() {
    let mut gateway = gateway(Some(OUTSIDE));
    open(&mut gateway, OUTSIDE);
    let mut next = 1001;
    for line in ["PORT 192,168,13,6,18,52\r\n", "PORT 192,168,13,5,0,25\r\n", "PORT 1,2,3\r\n"] {
        gateway.receive(LAN, &client(PUSH, (next, 9001), line));
        let (_, sent) = gateway.sent_one(WAN);
        assert_eq!(read(&sent).2, line);
        next += line.len() as u32;
    }
    // Within a line it is no announcement, and neither is what somebody else echoes.
    gateway.receive(LAN, &client(PUSH, (next, 9001), "STOR "));
    gateway.receive(LAN, &client(PUSH, (next + 5, 9001), "PORT 192,168,13,5,18,52\r\n"));
    gateway.receive(WAN, &server(OUTSIDE, PUSH, (9001, next), "PORT 192,168,12,7,18,52\r\n"));
    assert_eq!(table(&gateway).expectations(), []);
    let counts = table(&gateway).helper_counts();
    assert_eq!((counts.followed, counts.distrusted, counts.refused), (0, 3, 0));
    gateway.sent(WAN);
    gateway.sent(LAN);
    gateway.assert_nothing_lost();
}

#[test]
fn what_is_expected_ends_with_its_control_connection_and_by_itself() {
    let mut gateway = gateway(None);
    open(&mut gateway, CLIENT);
    gateway.receive(LAN, &client(PUSH, (1001, 9001), "PORT 192,168,13,5,18,52\r\n"));
    let data = segment((SERVER, CLIENT), (20, 4660), SYN, (5000, 0), None, "");
    let table = table(&gateway);
    assert_eq!(table.expectations().len(), 1);
    let now = Time(1_100_000_000);
    let master = (0..1024).find_map(|index| table.connection(index, now)).unwrap();
    assert!(table.remove(master.handle, now, &mut |_| {}));
    assert_eq!(table.expectations(), []);
    gateway.receive(WAN, &data);
    assert_eq!(drops(&gateway), [("flow_miss", 1)]);
    // Again, and nobody comes for five minutes.
    open_again(&mut gateway);
    gateway.wait(Duration::from_secs(301));
    gateway.receive(WAN, &data);
    assert_eq!(gateway.dropped(DropReason::FlowMiss), 2);
    gateway.sent(WAN);
    gateway.assert_nothing_lost();
}

fn open_again(gateway: &mut Gateway) {
    gateway.sent(WAN);
    open(gateway, CLIENT);
    gateway.receive(LAN, &client(PUSH, (1001, 9001), "PORT 192,168,13,5,18,52\r\n"));
    assert_eq!(table(gateway).expectations().len(), 1);
}

#[test]
fn tftp_answers_come_from_any_port_of_the_server() {
    let mut gateway = gateway(Some(OUTSIDE));
    let request = |name: &str| {
        let payload = [&b"\0\x01"[..], name.as_bytes(), b"\0octet\0"].concat();
        let mut bytes = udp(CLIENT, SERVER, (5000, 69), payload.len());
        bytes[28..].copy_from_slice(&payload);
        // No checksum (RFC 768).
        bytes[26..28].fill(0);
        bytes
    };
    gateway.receive(LAN, &request("boot"));
    gateway.sent_one(WAN);
    let answer = |from: &str, port| udp(from, OUTSIDE, (port, 5000), 100);
    gateway.receive(WAN, &answer("192.168.12.8", 3000));
    assert_eq!(drops(&gateway), [("flow_miss", 1)]);
    gateway.receive(WAN, &answer(SERVER, 3000));
    let (_, sent) = gateway.sent_one(LAN);
    assert_eq!(sent[12..24], [192, 168, 12, 7, 192, 168, 13, 5, 11, 184, 19, 136]);
    gateway.receive(LAN, &udp(CLIENT, SERVER, (5000, 3000), 4));
    let (_, sent) = gateway.sent_one(WAN);
    assert_eq!(sent[12..24], [203, 0, 113, 99, 192, 168, 12, 7, 19, 136, 11, 184]);
    // One answer for one request.
    gateway.receive(WAN, &answer(SERVER, 3001));
    assert_eq!(gateway.dropped(DropReason::FlowMiss), 2);
    gateway.assert_nothing_lost();
}
