//! Traces tell what became of packets, and change nothing.

mod fixture;

use std::collections::BTreeSet;
use std::time::Duration;

use fixture::*;
use flow::{CacheMode, CacheSettings};
use io::memory::{self, MemoryOptions};
use packet::{DropReason, Time};
use path::{TapDirection, TapReader, Worker, WorkerSettings, handovers, tap_ring};
use tables::bpf::{Instruction, Program};
use tables::{Publisher, Qdisc, QdiscDevice, RouteSpec, Tables, TraceSpec};
use types::qdisc::Tbf;
use wire::VrfId;

fn all(count: u32) -> TraceSpec {
    TraceSpec { id: 1, count, rate: 1_000_000, program: None }
}

/// Of packets whose octet `at` is `value`.
fn octet(at: u32, value: u32) -> Program {
    let lines = [(0x30, 0, 0, at), (0x15, 0, 1, value), (6, 0, 0, 1), (6, 0, 0, 0)];
    let instruction = |(code, jump_true, jump_false, constant)| Instruction {
        code,
        jump_true,
        jump_false,
        constant,
    };
    Program::new(lines.map(instruction).to_vec()).unwrap()
}

fn traced(tables: Tables, spec: TraceSpec) -> (Gateway, TapReader) {
    watched(Gateway::new(tables), spec)
}

fn watched(mut gateway: Gateway, spec: TraceSpec) -> (Gateway, TapReader) {
    let (writer, reader) = tap_ring(1 << 20);
    gateway.worker.set_taps(writer);
    gateway.change(|tables| tables.add_trace(spec).unwrap());
    (gateway, reader)
}

/// The steps of the next packet: its stages, and all lines.
fn next(reader: &mut TapReader) -> (Vec<String>, String) {
    let record = reader.read().expect("a packet was traced");
    assert_eq!(record.direction, TapDirection::Traced);
    let text = text(&record);
    let stages = text.lines().map(|line| line.split_once('\t').unwrap().0.to_owned());
    (stages.collect(), text)
}

/// Stages and what they did, without the members, of which each line has an object.
fn text(record: &path::TapRecord<'_>) -> String {
    let lines = record.comment.lines().map(|line| {
        let parts: Vec<_> = line.split('\t').collect();
        let [stage, text, members] = parts[..] else { panic!("{line}") };
        assert!(members.starts_with('{') && members.ends_with('}'), "{line}");
        format!("{stage}\t{text}\n")
    });
    lines.collect()
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_forwarded_packet_misses_and_then_hits_and_a_change_that_concerns_it_is_named() {
    for (from, to, hops, elsewhere, table) in [
        ("192.168.13.5", "8.8.8.8", "8.8.8.0/24", "9.0.0.0/8", "ipv4-outbound"),
        ("fd13::5", "2001:db8::8", "2001:db8::/32", "2001:db9::/32", "ipv6-outbound"),
    ] {
        let (mut gateway, mut reader) = traced(plain_tables(), all(10));
        let packet = udp(from, to, (5000, 53), 100);
        gateway.receive(LAN, &packet);
        let (stages, text) = next(&mut reader);
        assert_eq!(stages.first().unwrap(), "received");
        assert_eq!(stages.last().unwrap(), "sent");
        assert_has(
            &text,
            &[
                &format!("cache\tmiss in {table}: a new flow"),
                "flow\tudp ",
                "vrf\tmain",
                "route\t",
                "verdict\tforward in clear by wan",
                &format!("bytes by wan: udp {from} > {to}, to {PEER_MAC}"),
            ],
        );
        gateway.receive(LAN, &packet);
        assert_has(&next(&mut reader).1, &[&format!("cache\thit in {table}\n")]);
        // Neither is about it.
        let blackhole = |net: &str| (VrfId::MAIN, prefix(net), RouteSpec::Blackhole);
        for net in [elsewhere, hops] {
            let (vrf, prefix, spec) = blackhole(net);
            gateway.change(|tables| tables.set_route(vrf, prefix, spec).unwrap());
            gateway.receive(LAN, &packet);
            let (stages, text) = next(&mut reader);
            if net == elsewhere {
                assert_has(&text, &["cache\thit in ", "is not about it"]);
                continue;
            }
            let why = format!("cache\tmiss in {table}: invalidated, by a route to {net}, vrf main");
            assert_has(&text, &[&why, "drop\troute_blackhole"]);
            assert_eq!(stages.last().unwrap(), "drop");
        }
        assert_eq!(gateway.dropped(DropReason::RouteBlackhole), 1);
        gateway.assert_nothing_lost();
    }
}

#[test]
fn what_is_told_of_the_cache_is_what_the_cache_counted() {
    let off = CacheSettings { mode: CacheMode::Off, ..CacheSettings::default() };
    let gateway = Gateway::with_caches(plain_tables(), [off; 4], 1);
    let (mut gateway, mut reader) = watched(gateway, all(100));
    let packet = udp("192.168.13.5", "8.8.8.8", (5000, 53), 100);
    gateway.receive(LAN, &packet);
    assert_has(&next(&mut reader).1, &["cache\toff: ipv4-outbound is not used"]);

    let (mut gateway, mut reader) = traced(plain_tables(), all(100));
    let mut told = [0; 2];
    for number in 0..60 {
        gateway.receive(LAN, &udp("192.168.13.5", "8.8.8.8", (5000 + number % 7, 53), 10));
        let (_, text) = next(&mut reader);
        told[0] += u64::from(text.contains("cache\thit in ipv4-outbound\n"));
        told[1] += u64::from(text.contains("a new flow"));
    }
    let cache = gateway.cache(flow::CacheTable::V4Outbound);
    assert_eq!(told, [cache.hits.read(), cache.missed_new.read()]);
    assert_eq!(told, [53, 7]);
}

#[test]
fn a_tunnel_is_one_trace_with_the_packet_inside_and_outside() {
    let (me, remote) = ("192.168.11.2", "192.168.11.1");
    let (mut gateway, mut reader) = traced(tunnel_tables((me, remote), false), all(10));
    gateway.receive(LAN, &udp("192.168.13.5", "192.168.12.7", (5000, 53), 100));
    let (stages, text) = next(&mut reader);
    assert_has(
        &text,
        &[
            "sa\tspi 0x00001001 from 192.168.11.2 to 192.168.11.1",
            "verdict\tencrypt and send by wan",
            "encrypt\t1 packet\n",
            "bytes by wan: esp 192.168.11.2 > 192.168.11.1",
        ],
    );
    assert_eq!(stages.last().unwrap(), "sent");
    let inner = udp("192.168.12.7", "192.168.13.5", (53, 5000), 100);
    let outer = seal(&peer_outbound(0x1002, false), remote, me, &inner);
    gateway.receive(WAN, &outer);
    let (stages, text) = next(&mut reader);
    assert_has(
        &text,
        &[
            "flow\tesp 192.168.11.1 > 192.168.11.2, spi 0x00001002",
            "verdict\tdecrypt, and handle the inner packet anew\ndecrypt\t1 packet\ninside\t128 bytes",
            "flow\tudp 192.168.12.7 > 192.168.13.5, ports 53 > 5000",
            "bytes by lan: udp 192.168.12.7 > 192.168.13.5",
        ],
    );
    assert_eq!(stages.iter().filter(|stage| *stage == "cache").count(), 2);
    // Again: a replay.
    gateway.receive(WAN, &outer);
    let (stages, text) = next(&mut reader);
    assert_has(&text, &["drop\tesp_replayed"]);
    assert_eq!(stages.last().unwrap(), "drop");
    assert!(reader.read().is_none());
    gateway.assert_nothing_lost();
}

#[test]
fn a_filter_finds_packets_as_they_came_and_as_they_were_decrypted() {
    let (me, remote) = ("192.168.11.2", "192.168.11.1");
    let udp_alone = TraceSpec { program: Some(octet(9, 17)), ..all(10) };
    let (mut gateway, mut reader) = traced(tunnel_tables((me, remote), false), udp_alone);
    let peer = peer_outbound(0x1002, false);
    for inner in [
        echo("192.168.12.7", "192.168.13.5", 10),
        udp("192.168.12.7", "192.168.13.5", (53, 5000), 100),
    ] {
        gateway.receive(WAN, &seal(&peer, remote, me, &inner));
    }
    gateway.receive(LAN, &echo("192.168.13.5", "192.168.12.7", 10));
    let (_, text) = next(&mut reader);
    assert_has(&text, &["flow\tesp", "flow\tudp 192.168.12.7"]);
    assert!(reader.read().is_none());
    gateway.assert_nothing_lost();
}

#[test]
fn errors_about_a_packet_are_told_with_it_and_damaged_ones_have_their_reason() {
    let (mut gateway, mut reader) = traced(plain_tables(), all(10));
    let mut last_hop = udp("192.168.13.5", "8.8.8.8", (1, 2), 10);
    last_hop[8] = 1;
    wire::ipv4::fill_checksum(&mut last_hop);
    gateway.receive(LAN, &last_hop);
    let (stages, text) = next(&mut reader);
    assert_has(
        &text,
        &[
            "icmp-error\tthe sender is told\ndrop\thop_limit",
            "generated\t",
            "flow\ticmp 192.168.13.1 > 192.168.13.5, type 11 code 0",
            "bytes by lan: icmp 192.168.13.1 > 192.168.13.5",
        ],
    );
    assert_eq!(stages.last().unwrap(), "sent");
    let mut damaged = last_hop;
    damaged[10] ^= 1;
    gateway.receive(LAN, &damaged);
    let (stages, text) = next(&mut reader);
    assert_eq!(stages, ["received", "drop"], "{text}");
    // The gateway itself answers.
    gateway.receive(LAN, &echo("192.168.13.5", "192.168.13.1", 10));
    let (stages, _) = next(&mut reader);
    assert!(stages.contains(&"deliver".to_owned()), "{stages:?}");
    assert_eq!(stages.last().unwrap(), "sent");
    gateway.assert_nothing_lost();
}

#[test]
fn a_packet_that_waits_says_for_whom() {
    let (mut gateway, mut reader) = traced(plain_tables(), all(10));
    gateway.receive(LAN, &udp("192.168.13.5", "192.168.11.77", (1, 2), 10));
    let (stages, text) = next(&mut reader);
    assert_has(&text, &["bytes by wan: ARP", "held\tuntil "]);
    assert_eq!(stages.last().unwrap(), "held");
}

/// The tickets of what waits of the next packet, and its lines.
fn next_waiting(reader: &mut TapReader) -> (Vec<u64>, String) {
    let record = reader.read().expect("a packet was traced");
    assert_eq!(record.direction, TapDirection::Traced);
    (record.tickets().collect(), text(&record))
}

/// What became of a packet that waited.
fn next_end(reader: &mut TapReader) -> (u64, String) {
    let record = reader.read().expect("a packet that waited has ended");
    assert_eq!(record.direction, TapDirection::Ended);
    (record.tap, text(&record))
}

#[test]
fn a_packet_that_waited_for_a_neighbour_is_told_of_when_it_is_sent_or_given_up() {
    let (mut gateway, mut reader) = traced(plain_tables(), all(10));
    for (number, station) in [77, 78].into_iter().enumerate() {
        let to = format!("192.168.11.{station}");
        gateway.receive(LAN, &udp("192.168.13.5", &to, (1, 2), 10));
        let (tickets, text) = next_waiting(&mut reader);
        assert_has(&text, &["held\tuntil "]);
        let [ticket] = tickets[..] else { panic!("{tickets:?}") };
        assert!(reader.read().is_none());
        if number == 0 {
            // Asked for once more.
            gateway.wait(Duration::from_millis(1500));
            gateway.change(|tables| tables.set_neighbour(WAN, ip(&to), HOST_MAC).unwrap());
            gateway.poll();
            let (ended, text) = next_end(&mut reader);
            assert_eq!(ended, ticket);
            let sent = format!("bytes by wan: udp 192.168.13.5 > {to}, to {HOST_MAC}");
            assert_has(&text, &["waited\t1.500 s\nsent\t", &sent]);
        } else {
            (0..4).for_each(|_| gateway.wait(Duration::from_secs(1)));
            let (ended, text) = next_end(&mut reader);
            assert_eq!(ended, ticket);
            let wanted = "icmp-error\tthe sender is told\ndrop\tneighbour_unresolved: ";
            assert_has(&text, &["waited\t3.000 s\n", wanted]);
        }
        assert!(reader.read().is_none());
    }
    // One that no trace wants waits in the place of one that did.
    gateway.change(|tables| assert!(tables.remove_trace(1)));
    let some = TraceSpec { id: 2, program: Some(octet(9, 1)), ..all(10) };
    gateway.change(|tables| tables.add_trace(some).unwrap());
    gateway.receive(LAN, &udp("192.168.13.5", "192.168.11.79", (1, 2), 10));
    (0..4).for_each(|_| gateway.wait(Duration::from_secs(1)));
    assert!(reader.read().is_none());
    gateway.assert_nothing_lost();
}

/// Sent in time, dropped where there is no room, and dropped when the discipline goes.
#[test]
fn packets_in_a_queueing_discipline_are_told_of_when_they_leave_it() {
    let tbf = Tbf { rate: 100_000, burst: 2000, limit: 20_000 };
    let mut tables = plain_tables();
    let device = QdiscDevice::Port(WAN);
    tables.set_qdisc(device, ("1:".parse().unwrap(), Qdisc::Tbf(tbf)), None).unwrap();
    let (mut gateway, mut reader) = traced(tables, all(1000));
    let mut waiting = BTreeSet::new();
    let mut ends = [0; 3];
    let mut note = |reader: &mut TapReader, waiting: &mut BTreeSet<u64>| {
        while let Some(record) = reader.read() {
            let text = &text(&record);
            if record.direction == TapDirection::Traced {
                match record.tickets().next() {
                    Some(ticket) => {
                        assert!(waiting.insert(ticket));
                        assert_has(text, &["queued\tin tbf 1: of wan\n"]);
                        assert!(!text.contains("drop\t"), "{text}");
                    }
                    None => {
                        assert_has(text, &["drop\tqdisc_overlimit: "]);
                        assert!(!text.contains("another one"), "{text}");
                        ends[0] += 1;
                    }
                }
            } else {
                assert!(waiting.remove(&record.tap), "{text}");
                ends[1] += usize::from(text.contains("sent\t1000 bytes by wan: udp"));
                ends[2] += usize::from(text.contains("drop\tqdisc_flushed: "));
            }
        }
        ends
    };
    let packet = udp("192.168.13.5", "8.8.8.8", (1, 53), 958);
    (0..30).for_each(|_| gateway.receive(LAN, &packet));
    assert_eq!(note(&mut reader, &mut waiting), [7, 2, 0]);
    (0..5).for_each(|_| gateway.wait(Duration::from_millis(10)));
    assert_eq!(note(&mut reader, &mut waiting), [7, 7, 0]);
    // What waits for the neighbour first waits in the discipline then, and is told of once.
    gateway.receive(LAN, &udp("192.168.13.5", "192.168.11.77", (1, 2), 10));
    let (tickets, text) = next_waiting(&mut reader);
    assert_has(&text, &["held\tuntil "]);
    // The question waits in the discipline, too.
    assert_eq!(tickets.len(), 2);
    waiting.extend(tickets);
    gateway.change(|tables| {
        tables.set_neighbour(WAN, ip("192.168.11.77"), HOST_MAC).unwrap();
    });
    gateway.poll();
    assert_eq!(note(&mut reader, &mut waiting), [7, 7, 0]);
    assert_eq!(waiting.len(), 18);
    gateway.change(|tables| assert_eq!(tables.remove_qdisc(device), Ok(true)));
    gateway.poll();
    assert_eq!(note(&mut reader, &mut waiting), [7, 7, 18]);
    assert!(waiting.is_empty());
    gateway.assert_nothing_lost();
}

/// Where a port has fewer queues than there are workers, one hands packets to the other.
#[test]
fn packets_that_another_worker_sends_are_told_of_by_that_one() {
    let mut tables = Tables::new(2, 7);
    let plain = plain_tables();
    plain.ports().for_each(|port| tables.add_port(port.id, port.spec.clone()).unwrap());
    let via = RouteSpec::Via { port: WAN, address: ip("192.168.11.1") };
    tables.set_route(VrfId::MAIN, prefix("0.0.0.0/0"), via).unwrap();
    tables.set_neighbour(WAN, ip("192.168.11.1"), PEER_MAC).unwrap();
    let tbf = Tbf { rate: 100_000, burst: 2000, limit: 200_000 };
    let root = ("1:".parse().unwrap(), Qdisc::Tbf(tbf));
    tables.set_qdisc(QdiscDevice::Port(WAN), root, None).unwrap();
    tables.add_trace(all(1000)).unwrap();
    let publisher = Publisher::new(tables);
    let mut ends = handovers(2, 64).into_iter();
    let mut workers: Vec<_> = (0..2)
        .map(|index| {
            let (events, _) = rtrb::RingBuffer::new(16);
            let (_, probes) = rtrb::RingBuffer::new(16);
            let settings = WorkerSettings {
                index,
                buffers: 1024,
                seed: [index as u8; 32],
                caches: [CacheSettings::default(); 4],
                ticks: || 0,
                large_buffers: 16,
            };
            let reader = publisher.shared().reader();
            let mut worker = Worker::new(&settings, reader, events, probes).unwrap();
            let (lan_port, lan) = memory::port(MemoryOptions::ethernet("lan", LAN), 64);
            let (wan_port, wan) = memory::port(MemoryOptions::ethernet("wan", WAN), 64);
            worker.attach(LAN, Box::new(lan_port));
            worker.attach(WAN, Box::new(wan_port));
            worker.join(ends.next().unwrap());
            let (writer, records) = tap_ring(1 << 20);
            worker.set_taps(writer);
            (worker, lan, wan, records)
        })
        .collect();
    let current = publisher.current();
    let owner = current.qdiscs().on(QdiscDevice::Port(WAN)).unwrap().worker;
    let other = 1 - owner;
    let mac = MemoryOptions::ethernet("lan", LAN).mac;
    let packet = udp("192.168.13.5", "8.8.8.8", (1, 53), 958);
    (0..20).for_each(|_| assert!(workers[other].1.push(&frame(mac, HOST_MAC, &packet))));
    let (mut began, mut ended) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..30 {
        for worker in [other, owner] {
            let (worker, .., records) = &mut workers[worker];
            worker.poll(Time(round * 10_000_000)).unwrap();
            while let Some(record) = records.read() {
                match record.direction {
                    TapDirection::Ended => _ = ended.insert(record.tap),
                    _ => began.extend(record.tickets()),
                }
            }
        }
    }
    assert_eq!((began.len(), &began), (20, &ended));
}

#[test]
fn packets_of_a_batch_keep_their_order_whether_traced_or_not() {
    let some = TraceSpec { program: Some(octet(23, 3)), ..all(100) };
    let (mut traced_one, mut reader) = traced(plain_tables(), some);
    let mut plain = Gateway::new(plain_tables());
    let packets: Vec<_> = (0..200)
        .map(|n: u16| udp("192.168.13.5", "8.8.8.8", (5000, n % 5), 10 + usize::from(n)))
        .collect();
    for gateway in [&mut plain, &mut traced_one] {
        for packet in &packets {
            let bytes = frame(MemoryOptions::ethernet("", LAN).mac, HOST_MAC, packet);
            assert!(gateway.lan.push(&bytes));
        }
        gateway.poll();
    }
    assert_eq!(traced_one.sent(WAN), plain.sent(WAN));
    let count = core::iter::from_fn(|| reader.read().map(|_| ())).count();
    assert_eq!(count, 40);
    traced_one.assert_nothing_lost();
}

#[test]
fn a_trace_has_as_many_packets_as_it_wants_and_changes_no_decision() {
    let (mut gateway, mut reader) = traced(plain_tables(), all(3));
    let packet = udp("192.168.13.5", "8.8.8.8", (5000, 53), 100);
    (0..10).for_each(|_| gateway.receive(LAN, &packet));
    let count = core::iter::from_fn(|| reader.read().map(|_| ())).count();
    assert_eq!(count, 3);
    assert_eq!(gateway.worker.statistics().decided.read(), 1);
    gateway.change(|tables| assert!(tables.remove_trace(1)));
    gateway.change(|tables| tables.add_trace(TraceSpec { id: 2, ..all(3) }).unwrap());
    gateway.receive(LAN, &packet);
    assert_has(&next(&mut reader).1, &["cache\thit"]);
    assert_eq!(gateway.worker.statistics().decided.read(), 1);

    // Nobody reads.
    let (writer, _reader) = tap_ring(100);
    gateway.worker.set_taps(writer);
    gateway.receive(LAN, &packet);
    let tables = gateway.publisher.current();
    assert_eq!(tables.traces()[0].lost(), 1);
}
