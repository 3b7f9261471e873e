//! Packets and bytes of many small objects, side by side.
//!
//! Each sub-port and each next hop has cells of its own, one for each worker. Those of a worker are
//! dense, four to a cache line, and who counts knows a cell by its number, which stands in what is
//! read anyway: so counting for one of thousands of objects waits for one line, once. What nearly
//! every packet of a sub-port counts in is a pair, two to a line, so that thousands of them leave
//! room in the processor's caches.

use core::fmt;
use core::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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

/// Cells of a line.
pub(crate) const LINE: usize = 4;

/// Names a cell of each worker, for as long as [`CellCounters`] with it are there: its block in the
/// highest bits, its place there in the others. The first block has number 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CellId(NonZeroU32);

/// Bits of a place.
const PLACE_BITS: u32 = 27;

/// Numbers of blocks. The first has [`FIRST`] cells of each worker, each other twice as many as the
/// one before.
const BLOCKS: usize = 1 << (u32::BITS - PLACE_BITS);
const FIRST: usize = 512;

impl CellId {
    /// The first place of the first block.
    const FIRST: Self = Self(NonZeroU32::MIN.saturating_add((1 << PLACE_BITS) - 1));

    #[inline(always)]
    const fn block(self) -> usize {
        (self.0.get() >> PLACE_BITS) as usize
    }

    /// Cells of each worker in its block.
    const fn size(self) -> usize {
        FIRST << (self.block() - 1)
    }

    /// Its place among those of its block.
    #[inline(always)]
    const fn place(self) -> usize {
        (self.0.get() & ((1 << PLACE_BITS) - 1)) as usize
    }

    /// The cell after `count` others of its line.
    const fn after(self, count: usize) -> Self {
        Self(self.0.saturating_add(count as u32))
    }

    /// The first of the next line.
    const fn next_line(self) -> Self {
        match self.place() + LINE < self.size() {
            true => self.after(LINE),
            false => self.after((1 << PLACE_BITS) - self.place()),
        }
    }
}

impl fmt::Debug for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CellId({}, {})", self.block(), self.place())
    }
}

/// All cells of a worker. A block is made when it is first needed.
#[derive(Default)]
pub struct WorkerCells([OnceLock<Box<[Line]>>; BLOCKS]);

impl WorkerCells {
    /// The cell of that name.
    #[inline(always)]
    pub fn get(&self, id: CellId) -> Option<&Cell> {
        let Line(line) = self.0[id.block()].get()?.get(id.place() / LINE)?;
        Some(&line[id.place() % LINE])
    }
}

/// All cells. Copies share them.
#[derive(Clone)]
pub(crate) struct Cells(Arc<Shared>);

struct Shared {
    workers: Box<[WorkerCells]>,
    unused: Mutex<Unused>,
}

/// Which numbers are nobody's.
struct Unused {
    cells: Vec<CellId>,
    /// The first of each pair of which both are.
    pairs: Vec<CellId>,
    /// The first of all further lines.
    next: CellId,
}

impl Unused {
    fn line(&mut self) -> CellId {
        // There are fewer ports and next hops than numbers.
        let next = self.next;
        self.next = next.next_line();
        next
    }

    fn pair(&mut self) -> CellId {
        self.pairs.pop().unwrap_or_else(|| {
            let first = self.line();
            self.pairs.push(first.after(2));
            first
        })
    }

    fn cell(&mut self) -> CellId {
        self.cells.pop().unwrap_or_else(|| {
            let first = self.line();
            self.cells.extend((1..LINE).rev().map(|at| first.after(at)));
            first
        })
    }
}

impl Cells {
    pub(crate) fn new(workers: usize) -> Self {
        let unused = Unused { cells: Vec::new(), pairs: Vec::new(), next: CellId::FIRST };
        let workers = (0..workers).map(|_| WorkerCells::default()).collect();
        Self(Arc::new(Shared { workers, unused: Mutex::new(unused) }))
    }

    /// The cells of a worker.
    pub(crate) fn of(&self, worker: usize) -> Option<&WorkerCells> {
        self.0.workers.get(worker)
    }

    /// A cell of each worker that is nobody else's, all zero.
    pub(crate) fn take(&self) -> CellCounters {
        let first = self.unused().cell();
        let taken = self.taken(first, 1);
        CellCounters { id: first, taken }
    }

    /// Two that are in one line. Others have the pair when both of them are gone.
    pub(crate) fn take_pair(&self) -> [CellCounters; 2] {
        let first = self.unused().pair();
        let taken = self.taken(first, 2);
        [first, first.after(1)].map(|id| CellCounters { id, taken: Arc::clone(&taken) })
    }

    fn taken(&self, first: CellId, count: usize) -> Arc<Taken> {
        let lines = first.size() / LINE;
        for WorkerCells(blocks) in &self.0.workers {
            blocks[first.block()].get_or_init(|| (0..lines).map(|_| Line::default()).collect());
        }
        for id in (0..count).map(|at| first.after(at)) {
            self.of_all_workers(id).for_each(|cell| {
                cell.packets.set(0);
                cell.bytes.set(0);
            });
        }
        Arc::new(Taken { first, count, cells: self.clone() })
    }

    fn of_all_workers(&self, id: CellId) -> impl Iterator<Item = &Cell> {
        self.0.workers.iter().filter_map(move |worker| worker.get(id))
    }

    fn unused(&self) -> MutexGuard<'_, Unused> {
        self.0.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Packets and bytes of one object. Copies share what they count; when the last one is gone, and so
/// no snapshot is left in which a worker finds it, others may have its cells.
#[derive(Clone)]
pub struct CellCounters {
    id: CellId,
    taken: Arc<Taken>,
}

/// Cells one after the other that are given back together.
struct Taken {
    first: CellId,
    count: usize,
    cells: Cells,
}

impl CellCounters {
    /// What a worker finds its cell by.
    pub fn id(&self) -> CellId {
        self.id
    }

    /// Adds to the cell of `worker`, which alone may do so.
    pub fn add(&self, worker: usize, packets: u64, bytes: u64) {
        if let Some(cell) = self.taken.cells.of(worker).and_then(|cells| cells.get(self.id)) {
            cell.add(packets, bytes);
        }
    }

    /// Packets and bytes of all workers.
    pub fn read(&self) -> (u64, u64) {
        self.taken.cells.of_all_workers(self.id).fold((0, 0), |(packets, bytes), cell| {
            (packets + cell.packets.read(), bytes + cell.bytes.read())
        })
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
        let mut unused = self.cells.unused();
        match self.count {
            1 => unused.cells.push(self.first),
            _ => unused.pairs.push(self.first),
        }
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
                let cell = cells.of(worker).unwrap().get(counters.id()).unwrap();
                assert_eq!(cell.bytes.read(), 10 * number + worker as u64);
                lines.push(core::ptr::from_ref(cell).addr() / 64);
            }
        }
        assert!(cells.of(3).is_none(), "there is no such worker");
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
    fn a_pair_is_used_again_when_both_are_given_back() {
        let cells = Cells::new(1);
        let single = cells.take();
        let (pair, beside) = (cells.take_pair(), cells.take_pair());
        let first = pair[0].id();
        assert_eq!((first.place() % LINE, single.id().place() / LINE), (0, 0));
        let places = [&pair, &beside].map(|pair| pair.each_ref().map(|cell| cell.id().place()));
        assert_eq!(places.map(|it| it.map(|at| at - first.place())), [[0, 1], [2, 3]]);
        pair.iter().for_each(|cell| cell.add(0, 1, 1));
        let last = pair[1].clone();
        drop(pair);
        let other = cells.take_pair();
        assert_ne!(other[0].id(), first);
        drop(last);
        let again = cells.take_pair();
        assert_eq!((again[0].id(), again[1].read()), (first, (0, 0)));
        // The rest of a line of which one cell was wanted.
        let more = [cells.take(), cells.take(), cells.take()];
        assert!(more.iter().all(|cell| cell.id().place() / LINE == 0));
    }

    #[test]
    fn lines_fill_one_block_after_the_other() {
        let lines = core::iter::successors(Some(CellId::FIRST), |id| Some(id.next_line()));
        let all: Vec<_> = lines.map(|id| (id.block(), id.place())).take(7 * FIRST / LINE).collect();
        let places = |block| (0..FIRST << (block - 1)).step_by(LINE).map(move |at| (block, at));
        assert_eq!(all, (1..=3).flat_map(places).collect::<Vec<_>>());
    }
}
