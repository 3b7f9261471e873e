//! Flows that are looked up together: a hash table by the bits that all of them match.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::seen::{Seen, fold};
use super::shape::Shape;
use super::slot::Slot;
use crate::fields::{Fields, WORDS};
use crate::flow::Entry;
use crate::matches::{EndReads, Match};

/// Flows of one shape.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) shape: Shape,
    /// The words of its mask that have bits, and which.
    mask: Vec<(u8, u32)>,
    pub(super) highest: u16,
    /// How many flows have each priority.
    priorities: BTreeMap<u16, usize>,
    /// What is read of packets' ends.
    pub(super) ends: EndReads,
    /// How many flows read each of it.
    reading: BTreeMap<EndReads, usize>,
    /// How many flows there are.
    pub(super) len: usize,
    /// All of them by rank, if they are few: faster to compare than to look up.
    few: ArrayVec<Slot, FEW>,
    /// The hashes of their keys, if they are more: most packets match none of them.
    seen: Seen,
    /// All of them by the lowest bits of their keys' hashes.
    pages: Vec<Arc<Page>>,
}

/// As many flows of one shape are compared one after the other.
const FEW: usize = 4;

/// Flows of a page, on average, when pages become twice as many.
const FULL: usize = 16;

/// Flows that are copied together when one of them changes.
#[derive(Clone, Default)]
struct Page {
    /// The upper half of each key's hash, in order.
    hashes: Vec<u32>,
    /// Flows of one hash are in order of their ranks.
    slots: Vec<Slot>,
}

impl Group {
    pub(super) fn new(shape: Shape) -> Self {
        let (mask, ends) = (shape.sparse(), EndReads::default());
        let (few, seen, pages) = (ArrayVec::new(), Seen::default(), Vec::new());
        let (priorities, reading) = (BTreeMap::new(), BTreeMap::new());
        Self { shape, mask, highest: 0, priorities, ends, reading, len: 0, few, seen, pages }
    }

    /// The best flow of the group that a packet matches.
    #[inline]
    pub(super) fn lookup(&self, fields: &Fields) -> Option<&Slot> {
        if self.len <= FEW {
            return self.few.iter().find(|slot| slot.matches(&self.mask, fields));
        }
        let hash = self.hash(&fields.words);
        if !self.seen.has(hash) {
            return None;
        }
        self.page(hash)
            .of(hash)
            .iter()
            .find(|slot| slot.may_match(fields) && slot.confirms(&self.mask, fields))
    }

    /// The flow with this match and priority.
    pub(super) fn find(&self, matches: &Match, priority: u16) -> Option<&Arc<Entry>> {
        let slots = match self.len <= FEW {
            true => &self.few[..],
            false => {
                let hash = self.hash(&matches.value);
                self.page(hash).of(hash)
            }
        };
        let mut entries = slots.iter().map(|slot| &slot.entry);
        entries.find(|old| old.flow.priority == priority && old.flow.matches == *matches)
    }

    /// All flows, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.slots().map(|slot| &slot.entry)
    }

    /// The flows that are not in the same memory as another group's.
    pub(super) fn uncopied<'a>(
        &'a self,
        other: Option<&'a Self>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        let others = other.map_or(&[][..], |other| &other.pages);
        let is_same = move |at: usize, page: &Arc<Page>| {
            others.len() == self.pages.len() && Arc::ptr_eq(page, &others[at])
        };
        let pages = self.pages.iter().enumerate();
        let pages = pages.filter(move |(at, page)| !is_same(*at, page));
        let slots = pages.flat_map(|(_, page)| &page.slots);
        self.few.iter().chain(slots).map(|slot| &slot.entry)
    }

    pub(super) fn insert(&mut self, entry: &Arc<Entry>) {
        let slot = Slot::new(&self.shape.mask, entry);
        let (priority, reads) = (entry.flow.priority, entry.flow.matches.end_reads());
        *self.priorities.entry(priority).or_default() += 1;
        *self.reading.entry(reads).or_default() += 1;
        (self.highest, self.ends) = (self.highest.max(priority), self.ends | reads);
        self.len += 1;
        if self.len <= FEW {
            let place = self.few.partition_point(|old| old.rank < slot.rank);
            self.few.insert(place, slot);
        } else if self.pages.is_empty() {
            let slots = self.few.take().into_iter().chain([slot]).collect();
            self.lay_out(1, slots);
        } else if self.len > FULL * self.pages.len() {
            let slots = self.slots().cloned().chain([slot]).collect();
            self.lay_out(2 * self.pages.len(), slots);
        } else {
            let hash = self.hash(&entry.flow.matches.value);
            self.page_mut(hash).insert(hash, slot);
            // Hashes of flows that have gone are still among them.
            if self.seen.set(hash) {
                let slots = self.slots().cloned().collect();
                self.lay_out(self.pages.len(), slots);
            }
        }
    }

    /// Removes a flow, which must be there.
    pub(super) fn remove(&mut self, entry: &Entry) {
        self.len -= 1;
        if self.pages.is_empty() {
            self.few.retain(|slot| slot.entry.id != entry.id);
        } else {
            let page = self.page_mut(self.hash(&entry.flow.matches.value));
            if let Some(at) = page.slots.iter().position(|slot| slot.entry.id == entry.id) {
                page.slots.remove(at);
                page.hashes.remove(at);
            }
        }
        if self.len == FEW {
            let mut slots: Vec<_> = self.slots().cloned().collect();
            slots.sort_unstable_by_key(|slot| slot.rank);
            self.pages.clear();
            self.seen = Seen::default();
            self.few = slots.into_iter().collect();
        }
        forget(&mut self.priorities, &entry.flow.priority);
        self.highest = self.priorities.last_key_value().map_or(0, |(priority, _)| *priority);
        if forget(&mut self.reading, &entry.flow.matches.end_reads()) {
            let left = self.reading.keys();
            self.ends = left.fold(EndReads::default(), |all, reads| all | *reads);
        }
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.few.iter().chain(self.pages.iter().flat_map(|page| &page.slots))
    }

    /// Puts flows into so many pages.
    fn lay_out(&mut self, pages: usize, mut slots: Vec<Slot>) {
        let mut new = vec![Page::default(); pages];
        self.seen = Seen::for_hashes(FULL * pages);
        slots.sort_unstable_by_key(|slot| slot.rank);
        for slot in slots {
            let hash = self.hash(&slot.entry.flow.matches.value);
            new[hash as usize & (pages - 1)].insert(hash, slot);
            self.seen.set(hash);
        }
        self.pages = new.into_iter().map(Arc::new).collect();
    }

    #[inline]
    fn page(&self, hash: u64) -> &Page {
        &self.pages[hash as usize & (self.pages.len() - 1)]
    }

    fn page_mut(&mut self, hash: u64) -> &mut Page {
        let at = hash as usize & (self.pages.len() - 1);
        Arc::make_mut(&mut self.pages[at])
    }

    #[inline]
    fn hash(&self, words: &[u32; WORDS]) -> u64 {
        let bits = |(word, mask): &(u8, u32)| words[usize::from(*word)] & mask;
        self.mask.iter().fold(0, |hash, word| fold(hash, bits(word).into()))
    }
}

/// Counts one less. Returns whether it was the last.
fn forget<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(key);
    }
    is_last
}

impl Page {
    /// The flows of a hash, and seldom others.
    #[inline]
    fn of(&self, hash: u64) -> &[Slot] {
        let hash = (hash >> 32) as u32;
        let from = self.hashes.partition_point(|other| *other < hash);
        let count = self.hashes[from..].iter().take_while(|other| **other == hash).count();
        &self.slots[from..from + count]
    }

    fn insert(&mut self, hash: u64, slot: Slot) {
        let hash = (hash >> 32) as u32;
        let from = self.hashes.partition_point(|other| *other < hash);
        let same = self.hashes[from..].iter().zip(&self.slots[from..]);
        let before = |(other, old): &(&u32, &Slot)| **other == hash && old.rank < slot.rank;
        let at = from + same.take_while(before).count();
        self.hashes.insert(at, hash);
        self.slots.insert(at, slot);
    }
}
