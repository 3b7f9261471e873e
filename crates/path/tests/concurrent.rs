//! Two workers, and somebody who changes the tables all the time.
//!
//! The only things that they share are the snapshot's pointer, an SA's sequence numbers and
//! counters with one writer each; `tables` and `esp` test those on their own. This is about the
//! whole: whatever is in the cache, what leaves in a round was decided by tables that were current
//! at some time in that round, and all of it by the same.

mod fixture;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fixture::*;
use flow::{Associativity, CacheMode, CacheSettings};
use io::memory::{self, MemoryHandle, MemoryOptions};
use packet::Time;
use path::{Worker, WorkerSettings};
use tables::{Action, Direction, PolicySpec, Publisher, RouteSpec, Shared, Tables};
use wire::{Mac, Spi, VrfId};

const WORKERS: usize = 2;
/// Publications that every worker lives through.
const GENERATIONS: u64 = 150;
/// Rounds of all workers between two publications at least, so that what is known is used.
const BETWEEN: u64 = 5;
const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");

/// What packets show of the snapshot that decided them: who gets those in clear, whether those of
/// the second flow pass, and the SPI of those that are protected.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    mac: Mac,
    passes: bool,
    spi: u32,
}

fn mac(generation: u64) -> Mac {
    Mac([2, 0xbb, 0, 0, 0, (generation % 5) as u8])
}

/// The gateway's tables for so many workers, and what they show at first.
fn first() -> (Tables, Shown) {
    let mut tables = Tables::new(WORKERS, 7);
    let template_tables = tunnel_tables(OUTER, false);
    for port in template_tables.ports() {
        tables.add_port(port.id, port.spec.clone()).unwrap();
        port.neighbours
            .iter()
            .for_each(|(address, mac)| tables.set_neighbour(port.id, address, mac).unwrap());
    }
    let via = RouteSpec::Via { port: WAN, address: ip("192.168.11.1") };
    tables.set_route(VrfId::MAIN, prefix("0.0.0.0/0"), via).unwrap();
    add_sa(&mut tables, OUTER.0, OUTER.1, 0x1000, false);
    for (priority, net, action) in [
        (1, "192.168.12.0/24", Action::Protect(template(OUTER.0, OUTER.1))),
        (5, "8.8.8.8/32", Action::Bypass),
        (5, "9.9.9.9/32", Action::Bypass),
    ] {
        tables
            .add_policy(PolicySpec { priority, ..policy(Direction::Out, "0.0.0.0/0", net, action) })
            .unwrap();
    }
    (tables, Shown { mac: PEER_MAC, passes: true, spi: 0x1000 })
}

/// Changes the neighbour, the policy of the second flow, and the SA, all in one publication.
fn change(tables: &mut Tables, generation: u64, before: Shown, discard: &mut Option<u32>) -> Shown {
    tables.set_neighbour(WAN, ip("192.168.11.1"), mac(generation)).unwrap();
    match discard.take() {
        Some(index) => _ = tables.remove_policy(index).unwrap(),
        None => {
            let spec = policy(Direction::Out, "0.0.0.0/0", "9.9.9.9/32", Action::Discard);
            let mut spec = PolicySpec { priority: 2, ..spec };
            spec.selector.protocol = Some(wire::Protocol::UDP);
            *discard = Some(tables.add_policy(spec).unwrap());
        }
    }
    let spi = 0x1000 + generation as u32;
    add_sa(tables, OUTER.0, OUTER.1, spi, false);
    tables.remove_sa(VrfId::MAIN, ip(OUTER.1), Spi(before.spi)).unwrap();
    // Sometimes more than anybody goes through.
    for number in 0..if generation.is_multiple_of(7) { 100 } else { 0 } {
        tables.set_neighbour(LAN, ip("192.168.13.200"), Mac([2, 1, 0, 0, 0, number])).unwrap();
    }
    Shown { mac: mac(generation), passes: discard.is_none(), spi }
}

struct Running {
    worker: Worker,
    lan: MemoryHandle,
    wan: MemoryHandle,
    _news: rtrb::Consumer<tables::Event>,
}

fn running(index: usize, shared: &Shared, caches: CacheSettings) -> Running {
    let (events_in, events) = rtrb::RingBuffer::new(16);
    let (_, probes_out) = rtrb::RingBuffer::new(1);
    let settings = WorkerSettings {
        index,
        buffers: 1024,
        seed: [index as u8; 32],
        caches: [caches; 4],
        ticks: || 0,
        large_buffers: 64,
    };
    let mut worker = Worker::new(&settings, shared.reader(), events_in, probes_out).unwrap();
    let (lan_port, lan) = memory::port(MemoryOptions::ethernet("lan", LAN), 512);
    let (wan_port, wan) = memory::port(MemoryOptions::ethernet("wan", WAN), 512);
    worker.attach(LAN, Box::new(lan_port));
    worker.attach(WAN, Box::new(wan_port));
    Running { worker, lan, wan, _news: events }
}

/// What one round's packets show; `None` where they do not agree.
fn shown(frames: &[Vec<u8>]) -> Option<Shown> {
    let clear = |to: [u8; 4]| {
        frames.iter().filter(move |frame| frame[14 + 9] == 17 && frame[14 + 16..14 + 20] == to)
    };
    let sealed: Vec<_> = frames.iter().filter(|frame| frame[14 + 9] == 50).collect();
    let mac = |frame: &Vec<u8>| Mac(frame[..6].try_into().unwrap());
    let spi = |frame: &&Vec<u8>| u32::from_be_bytes(frame[14 + 20..14 + 24].try_into().unwrap());
    let first = Shown {
        mac: mac(frames.first()?),
        passes: clear([9; 4]).count() > 0,
        spi: spi(sealed.first()?),
    };
    let agree = frames.iter().all(|frame| mac(frame) == first.mac)
        && sealed.iter().all(|frame| spi(frame) == first.spi)
        && clear([8; 4]).count() == FLOWS
        && sealed.len() == FLOWS
        && [0, FLOWS].contains(&clear([9; 4]).count());
    agree.then_some(first)
}

/// Flows of each kind.
const FLOWS: usize = 8;

fn runs_right(caches: CacheSettings) {
    let (tables, at_first) = first();
    let mut publisher = Publisher::new(tables);
    // What every generation shows, written down before it is published; and which is current.
    let history = Mutex::new(vec![at_first]);
    let done = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    let shared = publisher.shared();
    thread::scope(|scope| {
        let (history, done, rounds) = (&history, &done, &rounds);
        let workers: Vec<_> = (0..WORKERS)
            .map(|index| {
                let mut running = running(index, &shared, caches);
                let mut reader = shared.reader();
                scope.spawn(move || {
                    let own = MemoryOptions::ethernet("", LAN).mac;
                    let flows: Vec<_> = ["8.8.8.8", "9.9.9.9", "192.168.12.7"]
                        .iter()
                        .flat_map(|to| {
                            (0..FLOWS as u16)
                                .map(|port| udp("192.168.13.5", to, (port, index as u16), 9))
                        })
                        .map(|packet| frame(own, HOST_MAC, &packet))
                        .collect();
                    while reader.load().generation() < GENERATIONS {
                        let round = rounds.fetch_add(1, Ordering::Relaxed);
                        flows.iter().for_each(|flow| assert!(running.lan.push(flow)));
                        let before = reader.load().generation();
                        let now = Time(round * 1000);
                        assert_eq!(running.worker.poll(now).unwrap(), flows.len());
                        if running.worker.has_put_off() {
                            assert_eq!(running.worker.poll(now).unwrap(), flows.len());
                        }
                        assert!(!running.worker.has_put_off(), "once at most");
                        let frames: Vec<_> = std::iter::from_fn(|| running.wan.pop()).collect();
                        let after = reader.load().generation();
                        let seen = shown(&frames).expect("packets of one round that agree");
                        let history = history.lock().unwrap();
                        let candidates = &history[before as usize..=after as usize];
                        assert!(
                            candidates.contains(&seen),
                            "worker {index}: {seen:?} in {before}..={after}"
                        );
                    }
                    let caches = &running.worker.statistics().caches;
                    caches.iter().map(|cache| cache.hits.read()).sum::<u64>()
                })
            })
            .collect();
        let publishing = scope.spawn(move || {
            let mut discard = None;
            while !done.load(Ordering::Relaxed) {
                let mut tables = Tables::clone(&publisher.current());
                let generation = tables.generation() + 1;
                let before = *history.lock().unwrap().last().unwrap();
                let shown = change(&mut tables, generation, before, &mut discard);
                history.lock().unwrap().push(shown);
                publisher.publish(tables);
                let last = rounds.load(Ordering::Relaxed);
                while rounds.load(Ordering::Relaxed) < last + BETWEEN
                    && !done.load(Ordering::Relaxed)
                {
                    thread::sleep(Duration::from_micros(20));
                }
            }
            publisher
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        let mut publisher = publishing.join().unwrap();
        for result in results {
            let hits = result.unwrap();
            assert_eq!(caches.mode == CacheMode::Off, hits == 0);
        }
        publisher.reap();
        // Counters of policies that stayed: every packet of every round, whoever counted it.
        let sent = rounds.load(Ordering::Relaxed) * FLOWS as u64;
        let tables = publisher.current();
        let counts: Vec<_> = tables
            .vrf(VrfId::MAIN)
            .unwrap()
            .spd
            .policies(Direction::Out)
            .map(|p| p.counters.read().0)
            .collect();
        assert_eq!(counts[0], sent, "the tunnel's policy");
        assert!(counts.contains(&sent), "the first flow's");
    });
}

#[test]
fn what_leaves_was_decided_by_tables_of_its_time() {
    for caches in [
        CacheSettings::OFF,
        CacheSettings { mode: CacheMode::On, buckets: 8, associativity: Associativity::Direct },
        CacheSettings { mode: CacheMode::On, buckets: 1024, associativity: Associativity::Four },
        CacheSettings { mode: CacheMode::Auto, buckets: 1024, associativity: Associativity::Four },
    ] {
        runs_right(caches);
    }
}
