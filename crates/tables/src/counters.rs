//! Packets and bytes of one policy or one SA, kept per worker.

use std::sync::Arc;

use packet::Counter;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    packets: Counter,
    bytes: Counter,
}

/// Packets and bytes, one cache line per worker, added up when read. Copies share what they count.
#[derive(Clone, Debug)]
pub struct FlowCounters(Arc<[Cell]>);

impl FlowCounters {
    /// Zeros for `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Cell::default()).collect())
    }

    /// Adds to the cell of `worker`, which alone may do so.
    #[inline]
    pub fn add(&self, worker: usize, packets: u64, bytes: u64) {
        let cell = &self.0[worker];
        cell.packets.add(packets);
        cell.bytes.add(bytes);
    }

    /// Asks for the memory that [`FlowCounters::add`] will want.
    #[inline]
    pub fn prefetch(&self, worker: usize) {
        packet::prefetch(&self.0[worker]);
    }

    /// Packets and bytes of all workers.
    pub fn read(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(packets, bytes), cell| {
            (packets + cell.packets.read(), bytes + cell.bytes.read())
        })
    }
}
