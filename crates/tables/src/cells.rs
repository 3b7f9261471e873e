//! Packets and bytes of many small objects, side by side.
//!
//! Each sub-port and each next hop has cells of its own, one for each worker. Those of a worker are
//! dense, four to a cache line, and who counts knows a cell by its number, which stands in what is
//! read anyway: so counting for one of thousands of objects waits for one line, once.

use core::fmt;
use core::num::NonZeroU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use packet::Counter;

/// Packets and bytes, counted by one worker.
#[derive(Debug, Default)]
#[repr(align(16))]
pub struct Cell {
    packets: Counter,
    bytes: Counter,
}

impl Cell {
    /// Adds. Only the worker whose cell it is may do so.
    #[inline(always)]
    pub fn add(&self, packets: u64, bytes: u64) {
        self.packets.add(packets);
        self.bytes.add(bytes);
    }
}

/// Cells of one worker: no two write to one line.
#[derive(Default)]
#[repr(align(64))]
struct Line([Cell; LINE]);

const LINE: usize = 4;

/// Names a cell of each worker, for as long as [`CellCounters`] with it are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CellId(NonZeroU32);

/// Numbers begin here, so that the highest bit of one says in which block it is.
const FIRST: u32 = 1 << FIRST_BITS;
const FIRST_BITS: u32 = 9;

/// Blocks of [`FIRST`] cells for each worker, of twice as many, and so on.
const BLOCKS: usize = (u32::BITS - FIRST_BITS) as usize;

impl CellId {
    #[inline(always)]
    const fn block(self) -> usize {
        (u32::BITS - 1 - FIRST_BITS - self.0.leading_zeros()) as usize
    }

    /// Cells of each worker in its block.
    #[inline(always)]
    const fn size(self) -> usize {
        (FIRST as usize) << self.block()
    }

    /// Its place among those of a worker.
    #[inline(always)]
    const fn place(self) -> usize {
        self.0.get() as usize & (self.size() - 1)
    }
}

impl fmt::Debug for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CellId({})", self.0)
    }
}

/// All cells. Copies share them.
#[derive(Clone)]
pub(crate) struct Cells(Arc<Shared>);

struct Shared {
    workers: usize,
    /// Each made when it is first needed. The cells of a worker stand together.
    blocks: [OnceLock<Box<[Line]>>; BLOCKS],
    unused: Mutex<Unused>,
}

/// Which numbers are nobody's.
struct Unused {
    given_back: Vec<CellId>,
    /// All from here on.
    next: CellId,
}

impl Cells {
    pub(crate) fn new(workers: usize) -> Self {
        let next = CellId(NonZeroU32::MIN.saturating_add(FIRST - 1));
        let unused = Mutex::new(Unused { given_back: Vec::new(), next });
        Self(Arc::new(Shared { workers, blocks: [const { OnceLock::new() }; BLOCKS], unused }))
    }

    /// The cell of a worker.
    #[inline(always)]
    pub(crate) fn get(&self, id: CellId, worker: usize) -> Option<&Cell> {
        let block = self.0.blocks.get(id.block())?.get()?;
        let Line(line) = block.get((worker * id.size() + id.place()) / LINE)?;
        Some(&line[id.place() % LINE])
    }

    /// Cells that are nobody else's, all zero.
    pub(crate) fn take(&self) -> CellCounters {
        let id = {
            let mut unused = self.0.unused.lock().unwrap_or_else(PoisonError::into_inner);
            let next = unused.next;
            unused.given_back.pop().unwrap_or_else(|| {
                // There are fewer ports and next hops than numbers.
                unused.next = CellId(next.0.saturating_add(1));
                next
            })
        };
        let lines = self.0.workers * id.size() / LINE;
        self.0.blocks[id.block()].get_or_init(|| (0..lines).map(|_| Line::default()).collect());
        let taken = CellCounters(Arc::new(Taken { id, cells: self.clone() }));
        taken.cells().for_each(|cell| {
            cell.packets.set(0);
            cell.bytes.set(0);
        });
        taken
    }
}

/// Packets and bytes of one object. Copies share what they count; when the last one is gone, and so
/// no snapshot is left in which a worker finds it, others may have its cells.
#[derive(Clone)]
pub struct CellCounters(Arc<Taken>);

struct Taken {
    id: CellId,
    cells: Cells,
}

impl CellCounters {
    /// What a worker finds its cell by.
    #[inline(always)]
    pub fn id(&self) -> CellId {
        self.0.id
    }

    /// Adds to the cell of `worker`, which alone may do so.
    pub fn add(&self, worker: usize, packets: u64, bytes: u64) {
        if let Some(cell) = self.0.cells.get(self.0.id, worker) {
            cell.add(packets, bytes);
        }
    }

    /// Packets and bytes of all workers.
    pub fn read(&self) -> (u64, u64) {
        self.cells().fold((0, 0), |(packets, bytes), cell| {
            (packets + cell.packets.read(), bytes + cell.bytes.read())
        })
    }

    /// Those of all workers.
    fn cells(&self) -> impl Iterator<Item = &Cell> {
        let Taken { id, cells } = &*self.0;
        (0..cells.0.workers).filter_map(|worker| cells.get(*id, worker))
    }
}

impl fmt::Debug for CellCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (packets, bytes) = self.read();
        f.debug_struct("CellCounters").field("packets", &packets).field("bytes", &bytes).finish()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let unused = self.cells.0.unused.lock();
        unused.unwrap_or_else(PoisonError::into_inner).given_back.push(self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Two blocks.
    const MANY: u64 = 3 * FIRST as u64;

    #[test]
    fn every_object_counts_for_itself_and_every_worker_in_lines_of_its_own() {
        let cells = Cells::new(3);
        let taken: Vec<_> = (0..MANY).map(|_| cells.take()).collect();
        for (number, counters) in (0..).zip(&taken) {
            for worker in 0..3 {
                counters.add(worker, number, 10 * number + worker as u64);
            }
        }
        let mut lines = [const { Vec::new() }; 3];
        for (number, counters) in (0..).zip(&taken) {
            assert_eq!(counters.read(), (3 * number, 30 * number + 3));
            for (worker, lines) in lines.iter_mut().enumerate() {
                let cell = cells.get(counters.id(), worker).unwrap();
                assert_eq!(cell.bytes.read(), 10 * number + worker as u64);
                lines.push(core::ptr::from_ref(cell).addr() / 64);
            }
            assert!(cells.get(counters.id(), 3).is_none(), "there is no such worker");
        }
        let all: HashSet<_> = lines.iter().flatten().collect();
        assert_eq!(all.len(), 3 * MANY as usize / LINE);
        assert!(lines.iter().all(|of_worker| of_worker.len() == MANY as usize));
    }

    #[test]
    fn cells_are_used_again_when_nobody_has_them_and_begin_at_zero() {
        let cells = Cells::new(1);
        let (first, second) = (cells.take(), cells.take());
        first.add(0, 3, 300);
        let kept = first.clone();
        drop(first);
        let third = cells.take();
        assert_ne!(third.id(), kept.id(), "somebody may still count");
        let id = kept.id();
        drop(kept);
        let fourth = cells.take();
        assert_eq!((fourth.id(), fourth.read()), (id, (0, 0)));
        assert_ne!(second.id(), third.id());
    }

    #[test]
    fn numbers_fill_one_block_after_the_other() {
        let id = |number| CellId(NonZeroU32::new(number).unwrap());
        let places = [FIRST, 2 * FIRST - 1, 2 * FIRST, 4 * FIRST - 1, u32::MAX].map(|number| {
            let id = id(number);
            (id.block(), id.size() as u32, id.place() as u32)
        });
        let (first, second, last) = (FIRST, 2 * FIRST, 1 << 31);
        let expected = [
            (0, first, 0),
            (0, first, first - 1),
            (1, second, 0),
            (1, second, second - 1),
            (BLOCKS - 1, last, last - 1),
        ];
        assert_eq!(places, expected);
    }
}
