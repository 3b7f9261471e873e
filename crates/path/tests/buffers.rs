//! Buffers cross between the threads of workers that come and go, and none is lost, freed early or
//! used by two.

mod fixture;

use std::sync::mpsc;
use std::thread;

use fixture::*;
use flow::CacheSettings;
use io::memory::{self, MemoryHandle, MemoryOptions};
use packet::{BATCH, Time};
use path::{Worker, WorkerSettings};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tables::{PortSpec, Publisher, RouteSpec, Tables};
use wire::{Mac, PortId, VrfId};

/// Workers in a row, each of which forwards to the next.
const WORKERS: usize = 3;
const MTU: u16 = 9000;
/// Packets between the ends at once: every one of them could be in a large buffer.
const UNDER_WAY: u32 = 32;

fn options(worker: usize, port: PortId) -> MemoryOptions {
    let mac = Mac([2, 0, 0, 0, worker as u8, port.0 as u8]);
    MemoryOptions { mtu: MTU, mac, ..MemoryOptions::ethernet("port", port) }
}

/// A worker that sends all that comes from the left to the next one's Ethernet address.
fn worker(number: usize) -> (Worker, Publisher, rtrb::Producer<tables::Probe>) {
    let mut tables = Tables::new(1, 7);
    for (id, name) in [(LAN, "left"), (WAN, "right")] {
        let address = format!("10.{number}.{}.1/24", id.0);
        let spec = PortSpec {
            mtu: MTU,
            addresses: vec![prefix(&address)],
            ..PortSpec::new(name, options(number, id).mac)
        };
        tables.add_port(id, spec).unwrap();
    }
    let next = ip(&format!("10.{number}.{}.2", WAN.0));
    let via = RouteSpec::Via { port: WAN, address: next };
    tables.set_route(VrfId::MAIN, prefix("0.0.0.0/0"), via).unwrap();
    tables.set_neighbour(WAN, next, options(number + 1, LAN).mac).unwrap();
    let publisher = Publisher::new(tables);
    let (events_in, _) = rtrb::RingBuffer::new(16);
    let (probes, probes_out) = rtrb::RingBuffer::new(16);
    let settings = WorkerSettings {
        index: 0,
        buffers: 700,
        large_buffers: 40,
        seed: [number as u8; 32],
        caches: [CacheSettings { buckets: 64, ..CacheSettings::default() }; 4],
        ticks: || 0,
    };
    let reader = publisher.shared().reader();
    (Worker::new(&settings, reader, events_in, probes_out).unwrap(), publisher, probes)
}

/// A packet whose bytes all follow from its number.
fn numbered(number: u32) -> Vec<u8> {
    let size = if number.is_multiple_of(7) {
        2100 + number as usize % 6000
    } else {
        4 + number as usize % 900
    };
    let mut packet = udp("192.168.1.1", "192.168.2.2", (number as u16, 9), size);
    for (at, byte) in packet[28..].iter_mut().enumerate() {
        *byte = (number as usize + at) as u8;
    }
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    frame(options(0, LAN).mac, HOST_MAC, &packet)
}

#[track_caller]
fn assert_whole(frame: &[u8]) -> u32 {
    let number = u32::from_be_bytes(frame[42..46].try_into().unwrap());
    let expected = numbered(number);
    assert_eq!(frame.len(), expected.len());
    assert_eq!(frame[42..], expected[42..], "packet {number}");
    number
}

/// What one end of the row sends and the other receives, while the workers run on their threads.
fn feed(first: &mut MemoryHandle, last: &mut MemoryHandle, packets: u32) -> u32 {
    let (mut next, mut came, mut idle) = (0, 0, 0);
    while came < packets && idle < 1_000_000 {
        while next < packets && next - came < UNDER_WAY && first.push(&numbered(next)) {
            next += 1;
        }
        let before = came;
        while let Some(frame) = last.pop() {
            let number = assert_whole(&frame);
            assert_eq!(number, came, "in order");
            came += 1;
        }
        idle = if came == before { idle + 1 } else { 0 };
        thread::yield_now();
    }
    came
}

#[test]
fn buffers_outlive_their_workers_in_any_order() {
    let packets = 2_500;
    for round in 0..6u64 {
        let mut order: Vec<usize> = (0..WORKERS).collect();
        order.shuffle(&mut StdRng::seed_from_u64(round));
        let (first_port, mut first) = memory::port(options(0, LAN), 64);
        let (last_port, mut last) = memory::port(options(WORKERS - 1, WAN), 64);
        let mut left = vec![first_port];
        let mut right = Vec::new();
        for number in 0..WORKERS - 1 {
            let (one, other) = memory::pair(options(number, WAN), options(number + 1, LAN), BATCH);
            right.push(one);
            left.push(other);
        }
        right.push(last_port);
        let threads: Vec<_> = left
            .into_iter()
            .zip(right)
            .enumerate()
            .map(|(number, (left, right))| {
                let (stop, stopped) = mpsc::channel::<()>();
                let running = thread::spawn(move || {
                    let (mut worker, _publisher, _probes) = worker(number);
                    worker.attach(LAN, Box::new(left));
                    worker.attach(WAN, Box::new(right));
                    let mut now = 0;
                    while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                        now += 1000;
                        worker.poll(Time(now)).unwrap();
                        thread::yield_now();
                    }
                    // Sometimes a port outlives its worker, with the buffers that are in it.
                    (number % 2 == 0).then(|| worker.detach(WAN))
                });
                (stop, Some(running))
            })
            .collect();
        let mut threads = threads;
        let came = feed(&mut first, &mut last, packets);
        assert_eq!(came, packets);
        // One after the other goes while packets still come; what is under way is freed with the
        // last that holds it.
        let mut ports = Vec::new();
        for number in order {
            (0..50).for_each(|more| _ = first.push(&numbered(packets + more)));
            let (stop, running) = &mut threads[number];
            stop.send(()).unwrap();
            ports.push(running.take().unwrap().join().unwrap());
            while let Some(frame) = last.pop() {
                assert_whole(&frame);
            }
        }
        drop(first);
        drop(ports);
        while let Some(frame) = last.pop() {
            assert_whole(&frame);
        }
    }
}
