//! Instructions per packet of the ports, to be counted by callgrind: `tests/instructions` runs
//! this, and compares the counts with those that were written down.
//!
//! Called with a name, it runs batches through a port. Only what happens in [`measured`] counts.
#![forbid(unsafe_code)]

use io::memory::{self, MemoryHandle, MemoryOptions, MemoryPort};
use packet::{BATCH, Batch, Pool, Port, Time};
use wire::PortId;

/// Batches that count, behind as many that do not.
const ROUNDS: u64 = 64;

const NAMES: [&str; 2] = ["memory-receive", "memory-transmit"];

fn main() {
    // Cargo adds an argument of its own.
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let Some(wanted) = wanted else {
        // What there is, and over how many packets a count goes.
        NAMES.iter().for_each(|name| println!("{name} {}", ROUNDS * BATCH as u64));
        return;
    };
    assert!(NAMES.contains(&wanted.as_str()), "one of the names that are listed without arguments");
    let mut setup = Setup::new();
    for _ in 0..ROUNDS {
        setup.round(Setup::receive, Setup::transmit);
    }
    for _ in 0..ROUNDS {
        match wanted.as_str() {
            "memory-receive" => {
                setup.round(|setup| measured(setup, Setup::receive), Setup::transmit);
            }
            _ => setup.round(Setup::receive, |setup| measured(setup, Setup::transmit)),
        }
    }
    assert_eq!(setup.port.statistics().tx_packets.read(), 2 * ROUNDS * BATCH as u64);
    assert_eq!(setup.pool.available(), setup.pool.size());
}

/// What is counted, with everything that it calls.
#[inline(never)]
fn measured(setup: &mut Setup, work: impl FnOnce(&mut Setup)) {
    work(setup);
}

/// A port whose frames of 64 bytes come from a handle and go back to it.
struct Setup {
    port: MemoryPort,
    handle: MemoryHandle,
    pool: Pool,
    batch: Batch,
}

impl Setup {
    fn new() -> Self {
        let (port, handle) = memory::port(MemoryOptions::ethernet("port", PortId(0)), 2 * BATCH);
        Self { port, handle, pool: Pool::new(2 * BATCH), batch: Batch::new() }
    }

    fn round(&mut self, receive: impl FnOnce(&mut Self), transmit: impl FnOnce(&mut Self)) {
        for _ in 0..BATCH {
            assert!(self.handle.push(&[7; 64]));
        }
        receive(self);
        assert_eq!(self.batch.len(), BATCH);
        transmit(self);
        while self.handle.pop_with(|_| ()).is_some() {}
    }

    fn receive(&mut self) {
        self.port.receive(Time(0), &mut self.pool, &mut self.batch).expect("it is never lost");
    }

    fn transmit(&mut self) {
        self.port.transmit(Time(0), &mut self.pool, &mut self.batch).expect("it is never lost");
    }
}
