//! Packets and bytes of one policy, SA or flow, kept per worker.

use std::sync::Arc;

use packet::{Counter, Time};

#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    packets: Counter,
    bytes: Counter,
    /// When something was counted last, in nanoseconds, if that is noted.
    last: Counter,
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

    /// The same, and notes that the last packet came then.
    #[inline]
    pub(crate) fn add_at(&self, worker: usize, packets: u64, bytes: u64, last: Time) {
        self.add(worker, packets, bytes);
        let noted = &self.0[worker].last;
        noted.set(last.0.max(noted.read()));
    }

    /// When the last packet came, as was noted.
    pub(crate) fn last(&self) -> Time {
        Time(self.0.iter().map(|cell| cell.last.read()).max().unwrap_or_default())
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
