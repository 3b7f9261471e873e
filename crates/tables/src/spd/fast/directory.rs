//! A hash table of pages that snapshots share.
//!
//! Extendible hashing (Fagin, Nievergelt, Pippenger, Strong, "Extendible Hashing: A Fast Access
//! Method for Dynamic Files", 1979): the first bits of a hash name an entry of the directory, which
//! names a page. A page that is full is split in two, and only a page that is split or joined is
//! written anew, so no change ever rehashes the table. The directory is doubled when a page needs
//! one bit more than it tells apart. It has two levels: cloning it copies a word for 32 pages, and
//! a change copies one branch of 32 words, and one page.

use std::sync::Arc;

/// What a directory's hashes lead to.
pub(super) trait Page: Clone + Default {
    /// Whether so many entries more go in.
    fn has_room(&self, more: usize) -> bool;
    /// The page's contents, by whether their hashes have `bit`.
    fn split(&self, bit: u64) -> [Self; 2];
    /// Both pages' contents in one, if that is far from full.
    fn join(&self, other: &Self) -> Option<Self>;
}

/// Directory bits that pick an entry of a branch.
const BRANCH_BITS: u32 = 5;
/// Page numbers of more bits than this say that hashes do not spread; there would be more pages
/// than memory.
const MAX_DEPTH: u32 = 28;

type Branch<P> = [Arc<Leaf<P>>; 1 << BRANCH_BITS];

#[derive(Clone)]
pub(super) struct Directory<P> {
    branches: Vec<Arc<Branch<P>>>,
    /// How many bits of a hash number an entry.
    depth: u32,
    /// 64 less that.
    shift: u32,
    /// Pages that need all of them.
    deepest: usize,
    blank: Arc<Leaf<P>>,
}

#[derive(Clone, Default)]
struct Leaf<P> {
    page: P,
    /// How many first bits the page's hashes share: the page has as many entries of the directory
    /// as the other bits can number.
    depth: u32,
}

/// A page is full whose hashes cannot be told apart.
#[derive(Debug)]
pub(super) struct NoRoom;

impl<P: Page> Directory<P> {
    pub(super) fn new() -> Self {
        let blank = Arc::new(Leaf::default());
        let branch = core::array::from_fn(|_| Arc::clone(&blank));
        Self {
            branches: vec![Arc::new(branch)],
            depth: BRANCH_BITS,
            shift: 64 - BRANCH_BITS,
            deepest: 0,
            blank,
        }
    }

    /// The page of this hash.
    #[inline(always)]
    pub(super) fn page(&self, hash: u64) -> &P {
        &self.leaf(hash).page
    }

    /// Changes the page of this hash.
    pub(super) fn change<R>(&mut self, hash: u64, change: impl FnOnce(&mut P) -> R) -> R {
        let entries = self.entries(hash);
        let mut leaf = Arc::clone(self.leaf(hash));
        // Where the page has several entries, they would look like other snapshots.
        for entry in entries.clone() {
            let blank = Arc::clone(&self.blank);
            *self.entry_mut(entry) = blank;
        }
        let result = change(&mut Arc::make_mut(&mut leaf).page);
        self.put(entries, &leaf);
        result
    }

    /// Splits the page of this hash until so many entries more go in.
    pub(super) fn make_room(&mut self, hash: u64, more: usize) -> Result<(), NoRoom> {
        while !self.page(hash).has_room(more) {
            let depth = self.leaf(hash).depth;
            if depth == MAX_DEPTH {
                return Err(NoRoom);
            }
            if depth == self.depth {
                self.double();
            }
            let entries = self.entries(hash);
            let pages = self.leaf(hash).page.split(1 << (63 - depth));
            let middle = entries.start + entries.len() / 2;
            let [low, high] = pages.map(|page| Arc::new(Leaf { page, depth: depth + 1 }));
            self.put(entries.start..middle, &low);
            self.put(middle..entries.end, &high);
            self.deepest += if depth + 1 == self.depth { 2 } else { 0 };
        }
        Ok(())
    }

    /// Joins the page of this hash with its neighbour while there is little in both.
    pub(super) fn tidy(&mut self, hash: u64) {
        loop {
            let leaf = self.leaf(hash);
            if leaf.depth == 0 {
                return;
            }
            let other = self.leaf(hash ^ 1 << (64 - leaf.depth));
            if other.depth != leaf.depth {
                return;
            }
            let Some(page) = leaf.page.join(&other.page) else { return };
            let depth = leaf.depth - 1;
            self.deepest -= if leaf.depth == self.depth { 2 } else { 0 };
            let start = (hash >> (64 - self.depth)) as usize;
            let length = 1 << (self.depth - depth);
            let start = start & !(length - 1);
            self.put(start..start + length, &Arc::new(Leaf { page, depth }));
            if self.deepest == 0 && self.depth > BRANCH_BITS {
                self.halve();
            }
        }
    }

    #[inline(always)]
    fn leaf(&self, hash: u64) -> &Arc<Leaf<P>> {
        let entry = (hash >> (self.shift & 63)) as usize;
        &self.branches[entry >> BRANCH_BITS][entry & ((1 << BRANCH_BITS) - 1)]
    }

    fn entry_mut(&mut self, entry: usize) -> &mut Arc<Leaf<P>> {
        &mut Arc::make_mut(&mut self.branches[entry >> BRANCH_BITS])
            [entry & ((1 << BRANCH_BITS) - 1)]
    }

    /// The entries of the page of this hash.
    fn entries(&self, hash: u64) -> core::ops::Range<usize> {
        let length = 1 << (self.depth - self.leaf(hash).depth);
        let start = (hash >> (64 - self.depth)) as usize & !(length - 1);
        start..start + length
    }

    fn put(&mut self, entries: core::ops::Range<usize>, leaf: &Arc<Leaf<P>>) {
        for entry in entries {
            *self.entry_mut(entry) = Arc::clone(leaf);
        }
    }

    fn double(&mut self) {
        let half = |branch: &Arc<Branch<P>>, from: usize| {
            Arc::new(core::array::from_fn(|entry| Arc::clone(&branch[from + entry / 2])))
        };
        let middle = 1 << (BRANCH_BITS - 1);
        self.branches = self
            .branches
            .iter()
            .flat_map(|branch| [half(branch, 0), half(branch, middle)])
            .collect();
        self.depth += 1;
        self.shift -= 1;
        self.deepest = 0;
    }

    fn halve(&mut self) {
        let both = |pair: &[Arc<Branch<P>>]| {
            let entry =
                |entry: usize| &pair[entry >> BRANCH_BITS][entry & ((1 << BRANCH_BITS) - 1)];
            Arc::new(core::array::from_fn(|at| Arc::clone(entry(2 * at))))
        };
        self.branches = self.branches.chunks_exact(2).map(both).collect();
        self.depth -= 1;
        self.shift += 1;
        self.deepest = self.count_deepest();
    }

    fn count_deepest(&self) -> usize {
        self.branches
            .iter()
            .flat_map(|branch| branch.iter())
            .filter(|leaf| leaf.depth == self.depth)
            .count()
    }
}
