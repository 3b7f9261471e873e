//! What the table costs: nanoseconds and cycles of the time-stamp counter for a hit, a new
//! connection and one that expires. `cargo bench -p hitpath-conntrack`.
//!
//! The machine may be busy: what is shown is the median of pieces of a few hundred operations, and
//! the fastest tenth.
//!
//! Hits come in batches of 32 different connections, in a random order, as a worker has them; the
//! lines of a batch are asked for before it is handled.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::net::Ipv4Addr;

use conntrack::{Connections, Hit, New, Packet, Reference, Segment, Settings, Tuple};
use packet::Time;
use types::{Addresses, Protocol, TcpFlags};

const BATCH: usize = 32;

/// The times of pieces, in ticks for one operation.
struct Pieces {
    clock: quanta::Clock,
    ticks: Vec<f64>,
    start: u64,
}

impl Pieces {
    fn new() -> Self {
        Self { clock: quanta::Clock::new(), ticks: Vec::new(), start: 0 }
    }

    fn begin(&mut self) {
        self.start = self.clock.raw();
    }

    fn end(&mut self, operations: usize) {
        let ticks = self.clock.raw() - self.start;
        self.ticks.push(ticks as f64 / operations as f64);
    }

    fn report(mut self, what: &str, count: u32) {
        self.ticks.sort_by(f64::total_cmp);
        let at = |part: usize| self.ticks[(self.ticks.len() - 1) * part / 100];
        let (tenth, median) = (at(10), at(50));
        println!("{what:34} {count:>9}  {median:8.0} cycles  {tenth:8.0} fastest tenth");
    }
}

fn tuple(at: u32, protocol: Protocol) -> Tuple {
    let source = Ipv4Addr::from_bits(0x0a00_0000 + at);
    let destination = Ipv4Addr::from_bits(0x0808_0000 + at % 251);
    let addresses = Addresses::V4 { source, destination };
    Tuple::new(addresses, protocol, 1024 + (at % 60_000) as u16, 443)
}

fn segment(flags: u8, sequence: u32, acknowledgment: u32, length: u32) -> Segment {
    let flags = TcpFlags(flags);
    Segment { sequence, acknowledgment, window: 60_000, flags, length, scale: None, sacked: 0 }
}

/// A random order of all connections, the same in each run.
fn order(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for at in (1..order.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(at, (random % (at as u64 + 1)) as usize);
    }
    order
}

fn measure(count: u32, protocol: Protocol, workers: u32) {
    let name = if protocol == Protocol::TCP { "tcp" } else { "udp" };
    let settings = Settings {
        connections: count.max(1024),
        ipv6_connections: 0,
        workers,
        ..Settings::default()
    };
    let mut now = Time(1 << 40);
    let table = Connections::new(&settings, [3, 4], now).expect("memory for the table");
    let syn = match protocol {
        Protocol::TCP => Packet::Tcp(segment(2, 1000, 0, 0)),
        _ => Packet::Datagram,
    };
    let order = order(count);
    let mut pieces = Pieces::new();
    for piece in order.chunks(250) {
        pieces.begin();
        for at in piece {
            let new = New::plain(0, tuple(*at, protocol));
            table.commit(&new, &syn, 60, now, &mut |_| {}).expect("room");
        }
        pieces.end(piece.len());
    }
    pieces.report(&format!("{name}: commit"), count);

    // All established, and a reference for each direction.
    let mut references: Vec<[Reference; 2]> = Vec::new();
    let take = |tuple: &Tuple, packet: &Packet, now: Time| {
        let tracked = table.track(0, tuple, packet, now);
        let hit = table.hit(tracked.reference, packet, 60, now);
        assert!(matches!(hit, Hit::Valid { .. }));
        tracked.reference
    };
    let (answer, last) = match protocol {
        Protocol::TCP => {
            (Packet::Tcp(segment(0x12, 5000, 1001, 0)), Packet::Tcp(segment(0x10, 1001, 5001, 0)))
        }
        _ => (Packet::Datagram, Packet::Datagram),
    };
    for at in 0..count {
        let tuple = tuple(at, protocol);
        take(&tuple.reversed(), &answer, now);
        let original = take(&tuple, &last, now);
        references.push([original, take(&tuple.reversed(), &answer, now)]);
    }
    if protocol == Protocol::TCP {
        for at in 0..count {
            let ack = Packet::Tcp(segment(0x10, 5001, 1001, 0));
            references[at as usize][1] = take(&tuple(at, protocol).reversed(), &ack, now);
        }
    }
    let rounds = (4_000_000 / count).max(2);
    let mut valid = 0u64;
    let mut pieces = Pieces::new();
    for round in 0..rounds {
        now = Time(now.0 + 1_000_000);
        for batch in order.chunks(BATCH) {
            pieces.begin();
            for at in batch {
                table.prefetch(references[*at as usize][round as usize % 2]);
            }
            for at in batch {
                // Sequence numbers that move, in both directions.
                let sent = (round / 2) * 100;
                let packet = match (protocol, round % 2) {
                    (Protocol::TCP, 0) => Packet::Tcp(segment(0x10, 1001 + sent, 5001 + sent, 100)),
                    (Protocol::TCP, _) => Packet::Tcp(segment(0x10, 5001 + sent, 1101 + sent, 100)),
                    _ => Packet::Datagram,
                };
                let reference = references[*at as usize][round as usize % 2];
                let hit = table.hit(black_box(reference), black_box(&packet), 100, now);
                valid += u64::from(matches!(hit, Hit::Valid { .. }));
            }
            pieces.end(batch.len());
        }
    }
    let shared = if workers > 1 { ", many workers" } else { "" };
    pieces.report(&format!("{name}: hit{shared}"), count);
    assert_eq!(valid, u64::from(rounds * count));

    let mut pieces = Pieces::new();
    let packet = match protocol {
        Protocol::TCP => Packet::Tcp(segment(0x10, 1001, 5001, 0)),
        _ => Packet::Datagram,
    };
    for piece in order.chunks(250) {
        pieces.begin();
        for at in piece {
            black_box(table.track(0, &tuple(*at, protocol), &packet, now));
        }
        pieces.end(piece.len());
    }
    pieces.report(&format!("{name}: track, as decide does"), count);

    now = Time(now.0 + 1_000_000_000_000_000);
    let mut ended = 0u64;
    let mut pieces = Pieces::new();
    loop {
        pieces.begin();
        let looked = table.expire(now, 256, &mut |gone| ended += gone.len() as u64);
        pieces.end(256);
        if looked < 256 {
            break;
        }
    }
    pieces.report(&format!("{name}: expire, a step of 256"), count);
    assert_eq!(ended, u64::from(count));
}

fn main() {
    for protocol in [Protocol::UDP, Protocol::TCP] {
        for count in [1000, 100_000, 1_000_000] {
            measure(count, protocol, 1);
        }
    }
    measure(1000, Protocol::TCP, 2);
    measure(1_000_000, Protocol::TCP, 2);
}
