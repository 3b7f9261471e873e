//! The policies by pair of prefixes.

use std::sync::Arc;

use arrayvec::ArrayVec;

use super::directory::{Directory, NoRoom, Page};
use super::fat::Fat;
use crate::policy::Policy;
use crate::spd::Place;
use crate::spd::selector::{Address, Compact, Probe};

/// A cell is what policies have in common that are filed under one pair of prefixes. Cells lie in pages by the hash of the pair.
#[derive(Clone)]
pub(super) struct Cells<A>(Directory<CellPage<A>>);

/// A policy in a cell.
#[derive(Clone)]
pub(super) struct Entry<A> {
    pub(super) selector: Compact<A>,
    pub(super) place: Place,
    pub(super) policy: Arc<Policy>,
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
    /// The cells with many policies. The first of each stands among the entries in their stead.
    fat: Vec<(u64, Arc<Fat<A>>)>,
}

/// Buckets of a page: with more of them than entries, most hold no other cell.
const BUCKETS: usize = 128;
/// Entries of a page.
const FULL: usize = 64;
/// With more policies than this, a cell is fat.
const FAT: usize = 16;

impl<A: Address> Cells<A> {
    pub(super) fn new() -> Self {
        Self(Directory::new())
    }

    #[inline(always)]
    pub(super) fn page(&self, hash: u64) -> &CellPage<A> {
        self.0.page(hash)
    }

    /// Adds a policy to the cell of this hash, and answers how many it has now.
    pub(super) fn insert(&mut self, hash: u64, entry: Entry<A>) -> Result<usize, NoRoom> {
        self.0.make_room(hash)?;
        Ok(self.0.change(hash, |page| page.insert(hash, entry)))
    }

    /// Takes a policy out of the cell of this hash, and answers how many are left.
    pub(super) fn remove(&mut self, hash: u64, place: Place) -> usize {
        let left = self.0.change(hash, |page| page.remove(hash, place));
        self.0.tidy(hash);
        left
    }
}

impl<A: Address> CellPage<A> {
    /// What to have brought near before [`CellPage::bucket`].
    #[inline(always)]
    pub(super) fn start(&self, hash: u64) -> &u8 {
        &self.starts[bucket(hash)]
    }

    /// The entries among which the cell's are.
    #[inline(always)]
    pub(super) fn bucket(&self, hash: u64) -> &[Entry<A>] {
        let bucket = bucket(hash);
        let (start, end) = (self.starts[bucket].into(), self.starts[bucket + 1].into());
        self.entries.get(start..end).unwrap_or_default()
    }

    /// The first entry of the bucket that matches.
    #[inline(always)]
    pub(super) fn first<'a>(&'a self, bucket: &'a [Entry<A>], probe: &Probe<A>) -> Option<&'a Entry<A>> {
        let mut best: Option<&Entry<A>> = None;
        for entry in bucket {
            if entry.selector.position == 0 {
                if entry.selector.matches(probe) {
                    return match best {
                        Some(best) if best.place < entry.place => Some(best),
                        _ => Some(entry),
                    };
                }
            } else if let Some((_, fat)) = self.fat.get(usize::from(entry.selector.position) - 1)
                && let Some(found) = fat.first(probe)
                && best.is_none_or(|best| found.place < best.place)
            {
                best = Some(found);
            }
        }
        best
    }

    fn insert(&mut self, hash: u64, entry: Entry<A>) -> usize {
        if let Some(number) = self.fat_number(hash) {
            let fat = Arc::make_mut(&mut self.fat[number].1);
            fat.insert(entry);
            let length = fat.len();
            self.mark(hash, number);
            return length;
        }
        let same = self.hashes.iter().filter(|other| **other == hash).count();
        if same < FAT {
            self.put(hash, entry);
            return same + 1;
        }
        let mut fat = Fat::new();
        while let Some(at) = self.hashes.iter().position(|other| *other == hash) {
            fat.insert(self.take(at));
        }
        fat.insert(entry);
        let length = fat.len();
        self.fat.push((hash, Arc::new(fat)));
        self.mark(hash, self.fat.len() - 1);
        length
    }

    fn remove(&mut self, hash: u64, place: Place) -> usize {
        let Some(number) = self.fat_number(hash) else {
            let found = self.hashes.iter().zip(&self.entries).position(|(h, entry)| *h == hash && entry.place == place);
            if let Some(at) = found {
                self.take(at);
            }
            return self.hashes.iter().filter(|other| **other == hash).count();
        };
        let fat = Arc::make_mut(&mut self.fat[number].1);
        fat.remove(place);
        let length = fat.len();
        if length > FAT / 2 {
            self.mark(hash, number);
            return length;
        }
        // The page may have no room for all of them; they stay fat until it has, or until none is left.
        if length > 0 && self.entries.len() + length > FULL {
            self.mark(hash, number);
            return length;
        }
        self.unmark(hash);
        let (_, fat) = self.fat.swap_remove(number);
        if let Some((moved, _)) = self.fat.get(number) {
            self.mark(*moved, number);
        }
        for entry in fat.iter() {
            self.put(hash, entry.clone());
        }
        length
    }

    fn fat_number(&self, hash: u64) -> Option<usize> {
        self.fat.iter().position(|(other, _)| *other == hash)
    }

    /// Has the first policy of a fat cell stand for it.
    fn mark(&mut self, hash: u64, number: usize) {
        self.unmark(hash);
        let first = self.fat[number].1.iter().next().cloned();
        if let Some(mut entry) = first {
            entry.selector.position = number as u16 + 1;
            self.put(hash, entry);
        }
    }

    fn unmark(&mut self, hash: u64) {
        if let Some(at) = self.hashes.iter().position(|other| *other == hash) {
            self.take(at);
        }
    }

    /// There is room.
    fn put(&mut self, hash: u64, entry: Entry<A>) {
        let bucket = bucket(hash);
        let (start, end) = (usize::from(self.starts[bucket]), usize::from(self.starts[bucket + 1]));
        let at = start + self.entries[start..end].partition_point(|other| other.place < entry.place);
        self.entries.insert(at, entry);
        self.hashes.insert(at, hash);
        self.starts[bucket + 1..].iter_mut().for_each(|start| *start += 1);
    }

    fn take(&mut self, at: usize) -> Entry<A> {
        let bucket = bucket(self.hashes.remove(at));
        self.starts[bucket + 1..].iter_mut().for_each(|start| *start -= 1);
        self.entries.remove(at)
    }
}

impl<A: Address> Default for CellPage<A> {
    fn default() -> Self {
        Self { starts: [0; BUCKETS + 1], entries: ArrayVec::new(), hashes: ArrayVec::new(), fat: Vec::new() }
    }
}

impl<A: Address> Page for CellPage<A> {
    fn is_full(&self) -> bool {
        self.entries.is_full()
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

/// The directory has the hash's first bits.
#[inline(always)]
fn bucket(hash: u64) -> usize {
    hash as usize & (BUCKETS - 1)
}
