//! Which groups can have a flow for a packet's addresses, so that a lookup passes over the others.

use std::sync::Arc;

use super::group::Group;
use super::seen::{Seen, fold};
use crate::fields::{Fields, WORDS, word};

/// Of source and of destination addresses: which groups have flows for which.
#[derive(Clone)]
pub(super) struct Ends([Side; 2]);

/// Where the sides' addresses are.
const PLACES: [usize; 2] = [word::SOURCE, word::DESTINATION];

/// The most masks that are told apart on a side. Groups with others are always looked at.
const MOST_LEVELS: usize = 32;

#[derive(Clone, Default)]
struct Side {
    levels: Vec<Level>,
    /// The groups that are always looked at, as bits.
    always: Vec<u64>,
}

/// The groups with the same mask of an address.
#[derive(Clone)]
struct Level {
    mask: [u32; 4],
    /// A bit for the hash of every address that a flow has, and maybe for others.
    seen: Arc<Seen>,
    /// The groups as bits.
    groups: Vec<u64>,
}

impl Ends {
    /// Of all flows.
    pub(super) fn new(groups: &[Arc<Group>]) -> Self {
        Self(PLACES.map(|place| {
            let mut side = Side::default();
            side.arrange(place, groups);
            side
        }))
    }

    /// The groups that can have a flow for a packet, in order.
    #[inline]
    pub(super) fn groups(&self, fields: &Fields) -> impl Iterator<Item = usize> {
        let [source, destination] = &self.0;
        let hits = [source.hits(word::SOURCE, fields), destination.hits(word::DESTINATION, fields)];
        (0..source.always.len()).flat_map(move |at| {
            let mut bits = source.groups(hits[0], at) & destination.groups(hits[1], at);
            core::iter::from_fn(move || {
                let group = (bits != 0).then(|| 64 * at + bits.trailing_zeros() as usize);
                bits &= bits.wrapping_sub(1);
                group
            })
        })
    }

    /// Notes a flow that has come to a group.
    pub(super) fn note(&mut self, group: &Group, value: &[u32; WORDS], groups: &[Arc<Group>]) {
        for (side, place) in self.0.iter_mut().zip(PLACES) {
            let mask = mask_of(group, place);
            let Some(level) = side.levels.iter_mut().find(|level| level.mask == mask) else {
                continue;
            };
            let is_full = Arc::make_mut(&mut level.seen).set(hash(place, &mask, value));
            if is_full {
                level.seen = seen_of(place, &mask, groups);
            }
        }
    }

    /// Puts right which groups are where. Masks that are new are laid out, and those of no group are gone.
    pub(super) fn arrange(&mut self, groups: &[Arc<Group>]) {
        for (side, place) in self.0.iter_mut().zip(PLACES) {
            side.arrange(place, groups);
        }
    }
}

impl Side {
    fn arrange(&mut self, place: usize, groups: &[Arc<Group>]) {
        let words = groups.len().div_ceil(64);
        self.always = vec![0; words];
        for level in &mut self.levels {
            level.groups.clear();
            level.groups.resize(words, 0);
        }
        for (at, group) in groups.iter().enumerate() {
            let mask = mask_of(group, place);
            let level = self.levels.iter().position(|level| level.mask == mask);
            let bits = match level {
                _ if mask == [0; 4] => &mut self.always,
                Some(level) => &mut self.levels[level].groups,
                None if self.levels.len() == MOST_LEVELS => &mut self.always,
                None => {
                    let seen = seen_of(place, &mask, groups);
                    self.levels.push(Level { mask, seen, groups: vec![0; words] });
                    let last = self.levels.len() - 1;
                    &mut self.levels[last].groups
                }
            };
            bits[at / 64] |= 1 << (at % 64);
        }
        self.levels.retain(|level| level.groups.iter().any(|bits| *bits != 0));
    }

    /// The levels that may have the packet's address, as bits.
    #[inline]
    fn hits(&self, place: usize, fields: &Fields) -> u32 {
        let levels = self.levels.iter().enumerate();
        levels.fold(0, |hits, (at, level)| {
            hits | u32::from(level.seen.has(hash(place, &level.mask, &fields.words))) << at
        })
    }

    /// Of 64 groups those that are on one of these levels, or always looked at.
    #[inline]
    fn groups(&self, mut hits: u32, at: usize) -> u64 {
        let mut groups = self.always[at];
        while hits != 0 {
            groups |= self.levels[hits.trailing_zeros() as usize].groups[at];
            hits &= hits - 1;
        }
        groups
    }
}

/// Of the flows of all groups with this mask.
fn seen_of(place: usize, mask: &[u32; 4], groups: &[Arc<Group>]) -> Arc<Seen> {
    let groups = groups.iter().filter(|group| mask_of(group, place) == *mask);
    let entries = groups.flat_map(|group| group.entries());
    let hashes = entries.map(|entry| hash(place, mask, &entry.flow.matches.value));
    let mut hashes: Vec<_> = hashes.collect();
    hashes.sort_unstable();
    hashes.dedup();
    let mut seen = Seen::for_hashes(hashes.len());
    hashes.into_iter().for_each(|hash| _ = seen.set(hash));
    Arc::new(seen)
}

/// What a group looks at of an address.
fn mask_of(group: &Group, place: usize) -> [u32; 4] {
    core::array::from_fn(|at| group.shape.mask[place + at])
}

#[inline]
fn hash(place: usize, mask: &[u32; 4], words: &[u32; WORDS]) -> u64 {
    let word = |at: usize| u64::from(words[place + at] & mask[at]);
    fold(fold(0, word(0) | word(1) << 32), word(2) | word(3) << 32)
}
