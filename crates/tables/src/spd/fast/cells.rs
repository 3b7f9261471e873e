//! The policies by pair of prefixes.

use std::sync::Arc;

use arrayvec::ArrayVec;
use classifier::Observer;
use packet::prefetch;

use super::directory::{Directory, NoRoom, Page};
use super::fat::Fat;
use crate::policy::Policy;
use crate::spd::Place;
use crate::spd::selector::{Address, Compact, Probe};

/// A cell is what policies have in common that are filed under one pair of prefixes. Cells lie in
/// pages by the hash of the pair.
#[derive(Clone)]
pub(super) struct Cells<A> {
    pages: Directory<CellPage<A>>,
    secret: u64,
}

/// Names a cell.
pub(super) struct Cell<A> {
    pub(super) hash: u64,
    /// What every packet of the cell matches, and no other does.
    pub(super) selector: Compact<A>,
}

/// A policy in a cell.
#[derive(Clone)]
pub(super) struct Entry<A> {
    pub(super) selector: Compact<A>,
    pub(super) place: Place,
    pub(super) policy: Arc<Policy>,
}

/// The first of a packet's policies that is known so far.
pub(super) struct Best<'a, A> {
    /// Of its place; after every other if there is none.
    pub(super) rank: u64,
    pub(super) entry: Option<&'a Entry<A>>,
}

impl<A> Best<'_, A> {
    pub(super) const NONE: Self = Self { rank: u64::MAX, entry: None };
}

/// A fat cell of a page.
#[derive(Clone, Copy)]
pub(super) struct FatCell<'a, A> {
    pub(super) all: &'a Vec<(u64, Arc<Fat<A>>)>,
    number: u16,
    /// Not after that of any of its policies.
    pub(super) rank: u64,
}

impl<'a, A> FatCell<'a, A> {
    #[inline(always)]
    pub(super) fn find(self) -> Option<&'a Arc<Fat<A>>> {
        self.all.get(usize::from(self.number)).map(|(_, fat)| fat)
    }
}

/// What a lookup reads lies together: two of the starts, and then entries side by side.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct CellPage<A> {
    /// Where the entries of each bucket begin; they end where the next one's begin.
    starts: [u8; BUCKETS + 1],
    /// By bucket, and by place within.
    entries: ArrayVec<Entry<A>, FULL>,
    /// Those of the entries' pairs.
    hashes: ArrayVec<u64, FULL>,
    /// The cells with many policies. An entry stands for each: its position is the number here and
    /// one, it selects what the cell does, and none of the cell's policies comes before its place.
    fat: Vec<(u64, Arc<Fat<A>>)>,
}

/// Buckets of a page: with more of them than entries, most hold no other cell.
const BUCKETS: usize = 256;
/// Entries of a page.
const FULL: usize = 64;
/// With more policies than this, a cell is fat.
const FAT: usize = 16;

impl<A: Address> Cells<A> {
    pub(super) fn new(secret: u64) -> Self {
        Self { pages: Directory::new(), secret }
    }

    #[inline(always)]
    pub(super) fn page(&self, hash: u64) -> &CellPage<A> {
        self.pages.page(hash)
    }

    /// Adds a policy to a cell. Returns how many of the cell's policies a lookup compared at most
    /// before, and compares at most now.
    pub(super) fn insert(&mut self, cell: &Cell<A>, entry: Entry<A>) -> Result<(u32, u32), NoRoom> {
        self.pages.make_room(cell.hash, 1)?;
        let secret = self.secret;
        Ok(self.pages.change(cell.hash, |page| page.insert(cell, entry, secret)))
    }

    /// Removes the policy with this selector from a cell. Returns the same as [`Cells::insert`].
    pub(super) fn remove(
        &mut self,
        hash: u64,
        selector: &Compact<A>,
        place: Place,
    ) -> Result<(u32, u32), NoRoom> {
        if self.pages.page(hash).is_barely_fat(hash) {
            self.pages.make_room(hash, FAT)?;
        }
        let costs = self.pages.change(hash, |page| page.remove(hash, selector, place));
        self.pages.tidy(hash);
        Ok(costs)
    }
}

impl<A: Address> CellPage<A> {
    /// What to have brought near before [`CellPage::entries`].
    #[inline(always)]
    pub(super) fn start(&self, bucket: u8) -> &u8 {
        &self.starts[usize::from(bucket) % BUCKETS]
    }

    /// The numbers of the bucket's first entry and of the one after its last.
    #[inline(always)]
    pub(super) fn range(&self, bucket: u8) -> (u8, u8) {
        let bucket = usize::from(bucket) % BUCKETS;
        (self.starts[bucket], self.starts[bucket + 1])
    }

    /// Has what [`CellPage::first`] reads of this entry brought near.
    #[inline(always)]
    pub(super) fn prefetch_entry(&self, number: u8) {
        if let Some(entry) = self.entries.get(usize::from(number)) {
            prefetch(entry);
            prefetch(&entry.policy);
        }
    }

    /// The entries of a bucket.
    #[inline(always)]
    pub(super) fn entries(&self, start: u8, end: u8) -> &[Entry<A>] {
        self.entries.get(start.into()..end.into()).unwrap_or_default()
    }

    /// Finds the first entry of the bucket that matches, unless one before it is known. Calls `fat`
    /// with the fat cells in which there may be one, too.
    #[inline(always)]
    pub(super) fn first<'a, O: Observer>(
        &'a self,
        bucket: &'a [Entry<A>],
        probe: &Probe<A>,
        best: &mut Best<'a, A>,
        observer: &mut O,
        mut fat: impl FnMut(FatCell<'a, A>, &mut Best<'a, A>, &mut O),
    ) {
        for entry in bucket {
            if entry.place.rank() > best.rank {
                return;
            }
            observer.compare(|| 1);
            if entry.selector.matches_all(probe) {
                if entry.selector.position == 0 {
                    *best = Best { rank: entry.place.rank(), entry: Some(entry) };
                    return;
                }
                let number = entry.selector.position - 1;
                let cell = FatCell { all: &self.fat, number, rank: entry.place.rank() };
                fat(cell, best, observer);
            }
        }
    }

    fn insert(&mut self, cell: &Cell<A>, entry: Entry<A>, secret: u64) -> (u32, u32) {
        let hash = cell.hash;
        if let Some(number) = self.fat_number(hash) {
            let fat = Arc::make_mut(&mut self.fat[number].1);
            let (before, place) = (fat.cost(), entry.place);
            fat.insert(entry);
            let after = fat.cost();
            self.remark(hash, |mark| mark.place = mark.place.min(place));
            return (before, after);
        }
        let same = self.hashes.iter().filter(|other| **other == hash).count();
        if same < FAT {
            self.put(hash, entry);
            return (same as u32, same as u32 + 1);
        }
        let mut fat = Fat::new(secret);
        let mut mark = Entry { selector: cell.selector, ..entry.clone() };
        fat.insert(entry);
        while let Some(at) = self.hashes.iter().position(|other| *other == hash) {
            let entry = self.take(at);
            mark.place = mark.place.min(entry.place);
            fat.insert(entry);
        }
        let cost = fat.cost();
        self.fat.push((hash, Arc::new(fat)));
        mark.selector.position = self.fat.len() as u16;
        self.put(hash, mark);
        (same as u32, cost)
    }

    fn remove(&mut self, hash: u64, selector: &Compact<A>, place: Place) -> (u32, u32) {
        let Some(number) = self.fat_number(hash) else {
            let found = self
                .hashes
                .iter()
                .zip(&self.entries)
                .position(|(h, entry)| *h == hash && entry.place == place);
            if let Some(at) = found {
                self.take(at);
            }
            let left = self.hashes.iter().filter(|other| **other == hash).count() as u32;
            return (left + u32::from(found.is_some()), left);
        };
        let fat = Arc::make_mut(&mut self.fat[number].1);
        let before = fat.cost();
        fat.remove(selector, place);
        let length = fat.len();
        if length > FAT {
            let (after, first, any) = (fat.cost(), fat.first_place(), fat.iter().next().cloned());
            self.remark(hash, |mark| {
                if mark.place == place {
                    mark.place = first.unwrap_or(place);
                }
                if let Some(any) = any.filter(|_| Place::of(&mark.policy) == place) {
                    mark.policy = any.policy;
                }
            });
            return (before, after);
        }
        if let Some(at) = self.hashes.iter().position(|other| *other == hash) {
            self.take(at);
        }
        let (_, fat) = self.fat.swap_remove(number);
        let moved = self.fat.len() as u16 + 1;
        let renumbered = self.entries.iter_mut().filter(|entry| entry.selector.position == moved);
        renumbered.for_each(|entry| entry.selector.position = number as u16 + 1);
        for entry in fat.iter() {
            self.put(hash, entry.clone());
        }
        (before, length as u32)
    }

    /// Whether one policy less makes the cell an ordinary one.
    fn is_barely_fat(&self, hash: u64) -> bool {
        self.fat_number(hash).is_some_and(|number| self.fat[number].1.len() == FAT + 1)
    }

    fn fat_number(&self, hash: u64) -> Option<usize> {
        self.fat.iter().position(|(other, _)| *other == hash)
    }

    /// Changes the entry that stands for a fat cell.
    fn remark(&mut self, hash: u64, change: impl FnOnce(&mut Entry<A>)) {
        if let Some(at) = self.hashes.iter().position(|other| *other == hash) {
            let mut mark = self.take(at);
            change(&mut mark);
            self.put(hash, mark);
        }
    }

    /// There is room.
    fn put(&mut self, hash: u64, entry: Entry<A>) {
        let bucket = usize::from(bucket(hash));
        let (start, end) = (usize::from(self.starts[bucket]), usize::from(self.starts[bucket + 1]));
        let at =
            start + self.entries[start..end].partition_point(|other| other.place < entry.place);
        self.entries.insert(at, entry);
        self.hashes.insert(at, hash);
        self.starts[bucket + 1..].iter_mut().for_each(|start| *start += 1);
    }

    fn take(&mut self, at: usize) -> Entry<A> {
        let bucket = usize::from(bucket(self.hashes.remove(at)));
        self.starts[bucket + 1..].iter_mut().for_each(|start| *start -= 1);
        self.entries.remove(at)
    }
}

impl<A: Address> Default for CellPage<A> {
    fn default() -> Self {
        Self {
            starts: [0; BUCKETS + 1],
            entries: ArrayVec::new(),
            hashes: ArrayVec::new(),
            fat: Vec::new(),
        }
    }
}

impl<A: Address> Page for CellPage<A> {
    fn has_room(&self, more: usize) -> bool {
        self.entries.len() + more <= FULL
    }

    fn split(&self, bit: u64) -> [Self; 2] {
        let mut halves = [Self::default(), Self::default()];
        for (hash, entry) in self.hashes.iter().zip(&self.entries) {
            let half = &mut halves[usize::from(hash & bit != 0)];
            half.adopt(*hash, entry, self);
        }
        halves
    }

    fn join(&self, other: &Self) -> Option<Self> {
        if self.entries.len() + other.entries.len() > FULL / 2 {
            return None;
        }
        let mut joined = self.clone();
        for (hash, entry) in other.hashes.iter().zip(&other.entries) {
            joined.adopt(*hash, entry, other);
        }
        Some(joined)
    }
}

impl<A: Address> CellPage<A> {
    /// Takes over another page's entry, and what it stands for.
    fn adopt(&mut self, hash: u64, entry: &Entry<A>, from: &Self) {
        let mut entry = entry.clone();
        if entry.selector.position != 0 {
            self.fat.push(from.fat[usize::from(entry.selector.position) - 1].clone());
            entry.selector.position = self.fat.len() as u16;
        }
        self.put(hash, entry);
    }
}

/// The bucket of a hash in its page. The directory has the hash's first bits.
#[inline(always)]
pub(super) fn bucket(hash: u64) -> u8 {
    hash as u8 & (BUCKETS - 1) as u8
}
