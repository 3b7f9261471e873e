//! One address family's policies of one direction.

use std::sync::Arc;

use arrayvec::ArrayVec;
use packet::prefetch;

use super::GROUP;
use super::cells::{CellPage, Cells, Entry};
use super::directory::NoRoom;
use super::filter::{Filter, Levels};
use super::level::{Cover, Family, Level, pair};
use crate::map::Map;
use crate::policy::Policy;
use crate::spd::Place;
use crate::spd::bound::LookupBound;
use crate::spd::selector::{Compact, Probe};

/// The index proper.
#[derive(Clone)]
pub(super) struct Table<A> {
    filter: Filter,
    cells: Cells<A>,
    /// Levels that some policy's source or destination has; level 0, which holds every address, is in `every`.
    used: [ArrayVec<Level<A>, LEVELS>; 2],
    /// What the filter would say about level 0.
    every: [Pairs; 2],
    /// All levels.
    levels: Arc<[Vec<Level<A>>; 2]>,
    /// Policies by pair of levels.
    policies: [u32; LEVELS * LEVELS],
    /// Policies of the largest cell, by pair of levels.
    largest: [u32; LEVELS * LEVELS],
    /// How many cells of a pair of levels have so many policies.
    sizes: Map<u32, u32>,
}

/// The most levels of an address.
const LEVELS: usize = 16;
/// Looks that are prepared before the first is taken.
const LOOKS: usize = 128;

/// A place where a packet's policy may be.
struct Look<'a, A> {
    page: &'a CellPage<A>,
    hash: u64,
    /// The packet's number in its group.
    packet: u8,
}

impl<A: Family> Table<A> {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            filter: Filter::new(),
            cells: Cells::new(),
            used: Default::default(),
            every: Default::default(),
            levels: Arc::new([Level::all(secret, 0), Level::all(secret, 1)]),
            policies: [0; LEVELS * LEVELS],
            largest: [0; LEVELS * LEVELS],
            sizes: Map::new(secret),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.policies.iter().all(|policies| *policies == 0)
    }

    pub(super) fn insert(&mut self, bounds: [(A, A); 2], policy: &Arc<Policy>) -> Result<(), NoRoom> {
        let covers = Cover::both(bounds[0], bounds[1]);
        let levels = covers.map(|cover| cover.level);
        let selector = Compact::new(bounds[0], bounds[1], &policy.spec.selector, 0);
        for (hash, other) in self.prefixes(&covers) {
            self.filter.add(hash, other)?;
        }
        for hash in self.pairs(&covers) {
            let entry = Entry { selector, place: Place::of(policy), policy: Arc::clone(policy) };
            let length = self.cells.insert(hash, entry)?;
            self.resized(levels, length - 1, length);
        }
        self.count(levels, 1);
        Ok(())
    }

    pub(super) fn remove(&mut self, bounds: [(A, A); 2], policy: &Policy) {
        let covers = Cover::both(bounds[0], bounds[1]);
        let levels = covers.map(|cover| cover.level);
        for (hash, other) in self.prefixes(&covers) {
            self.filter.remove(hash, other);
        }
        for hash in self.pairs(&covers) {
            let left = self.cells.remove(hash, Place::of(policy));
            self.resized(levels, left + 1, left);
        }
        self.count(levels, -1);
    }

    pub(super) fn bound(&self) -> LookupBound {
        LookupBound {
            probes: self.policies.iter().filter(|policies| **policies > 0).count() as u32,
            policies: self.largest.iter().sum(),
        }
    }

    pub(super) fn lookup(&self, probe: &Probe<A>) -> Option<&Arc<Policy>> {
        let mut best: Option<&Entry<A>> = None;
        self.looks(probe, |hash| {
            let page = self.cells.page(hash);
            if let Some(found) = page.first(page.bucket(hash), probe)
                && best.is_none_or(|best| found.place < best.place)
            {
                best = Some(found);
            }
        });
        best.map(|entry| &entry.policy)
    }

    /// The policies of up to [`GROUP`] packets, each in its place; those that are nothing to this table are left out.
    #[inline(always)]
    pub(super) fn lookup_batch<'a>(
        &'a self,
        probes: impl Iterator<Item = Option<Probe<A>>>,
        found: &mut [Option<&'a Arc<Policy>>],
    ) {
        let probes: ArrayVec<_, GROUP> = probes.take(GROUP).collect();
        let mut best: [Option<&Entry<A>>; GROUP] = [None; GROUP];
        let mut looks = ArrayVec::<Look<'_, A>, LOOKS>::new();
        for (packet, probe) in probes.iter().enumerate() {
            let Some(probe) = probe else { continue };
            self.looks(probe, |hash| {
                let page = self.cells.page(hash);
                prefetch(page.start(hash));
                looks.push(Look { page, hash, packet: packet as u8 });
                if looks.is_full() {
                    take(&mut looks, &probes, &mut best);
                }
            });
        }
        take(&mut looks, &probes, &mut best);
        for (found, best) in found.iter_mut().zip(best) {
            if let Some(best) = best {
                *found = Some(&best.policy);
            }
        }
    }

    /// Calls `look` with the hash of every pair of prefixes where a policy for the packet may be.
    #[inline(always)]
    fn looks(&self, probe: &Probe<A>, mut look: impl FnMut(u64)) {
        let mut hashes = [[0; LEVELS]; 2];
        let mut seen = self.every;
        let addresses = [probe.source, probe.destination];
        for which in 0..2 {
            hashes[which][0] = self.levels[which][0].hash(addresses[which]);
            for level in &self.used[which] {
                let hash = level.hash(addresses[which]);
                hashes[which][usize::from(level.number) % LEVELS] = hash;
                seen[which].add::<A>(level.number, self.filter.levels(hash));
            }
        }
        let [sources, destinations] = seen;
        let blocks = if A::WIDE { 2 } else { 1 };
        for high in 0..blocks {
            for low in 0..blocks {
                let mut both = sources.0[2 * high + low] & transposed(destinations.0[2 * low + high]);
                while both != 0 {
                    let bit = both.trailing_zeros() as usize;
                    both &= both - 1;
                    look(pair(hashes[0][8 * high + bit / 8], hashes[1][8 * low + bit % 8]));
                }
            }
        }
    }

    /// The hashes of the prefixes that cover a policy's addresses, each with the other address's level; level 0 needs no filter.
    fn prefixes(&self, covers: &[Cover<A>; 2]) -> ArrayVec<(u64, u8), 16> {
        let of = |which: usize| {
            let level = &self.levels[which][usize::from(covers[which].level)];
            let other = covers[1 - which].level;
            let all = covers[which].addresses().map(move |address| (level.hash(address), other));
            all.filter(|_| level.number != 0)
        };
        of(0).chain(of(1)).collect()
    }

    fn pairs(&self, covers: &[Cover<A>; 2]) -> ArrayVec<u64, 16> {
        let [sources, destinations] = [0, 1].map(|which| {
            let level = self.levels[which][usize::from(covers[which].level)];
            covers[which].addresses().map(move |address| level.hash(address)).collect::<ArrayVec<_, 8>>()
        });
        sources.iter().flat_map(|source| destinations.iter().map(|destination| pair(*source, *destination))).collect()
    }

    /// A cell had so many policies and has so many now.
    fn resized(&mut self, [source, destination]: [u8; 2], before: usize, after: usize) {
        let number = usize::from(source) * LEVELS + usize::from(destination);
        let size = |policies: usize| (number as u32) << 24 | policies as u32;
        if after > 0 {
            let cells = self.sizes.get(&size(after)).copied().unwrap_or(0);
            self.sizes.insert(size(after), cells + 1);
        }
        if before > 0 {
            let cells = self.sizes.get(&size(before)).copied().unwrap_or(0);
            if cells > 1 {
                self.sizes.insert(size(before), cells - 1);
            } else {
                self.sizes.remove(&size(before));
            }
        }
        let largest = &mut self.largest[number];
        if after as u32 > *largest || before as u32 == *largest && self.sizes.get(&size(before)).is_none() {
            *largest = after as u32;
        }
    }

    /// So many policies more have these levels.
    fn count(&mut self, [source, destination]: [u8; 2], more: i32) {
        let policies = &mut self.policies[usize::from(source) * LEVELS + usize::from(destination)];
        let before = *policies;
        *policies = before.wrapping_add_signed(more);
        if (before == 0) == (*policies == 0) {
            return;
        }
        let any = |source: usize, destination: usize| self.policies[source * LEVELS + destination] > 0;
        let numbers = 0..self.levels[0].len();
        self.every = [
            Pairs::of::<A>(numbers.clone().filter(|other| any(0, *other)).fold(0, |levels, other| levels | 1 << other)),
            Pairs::of::<A>(numbers.clone().filter(|other| any(*other, 0)).fold(0, |levels, other| levels | 1 << other)),
        ];
        let sources = numbers.clone().skip(1).filter(|source| numbers.clone().any(|other| any(*source, other)));
        let destinations = numbers.clone().skip(1).filter(|source| numbers.clone().any(|other| any(other, *source)));
        self.used = [
            sources.map(|number| self.levels[0][number]).collect(),
            destinations.map(|number| self.levels[1][number]).collect(),
        ];
    }
}

/// Pairs of levels, as four blocks of eight by eight bits, of which the first is all that eight levels need. A byte is a level of one
/// address, its bits are levels of the other.
#[derive(Clone, Copy, Default)]
struct Pairs([u64; 4]);

impl Pairs {
    /// Level 0 with these levels of the other address.
    fn of<A: Family>(levels: Levels) -> Self {
        let mut pairs = Self::default();
        pairs.add::<A>(0, levels);
        pairs
    }

    #[inline(always)]
    fn add<A: Family>(&mut self, level: u8, others: Levels) {
        let (high, byte) = if A::WIDE { (usize::from(level >> 3 & 1), level & 7) } else { (0, level & 7) };
        self.0[2 * high] |= u64::from(others & 0xff) << (8 * byte);
        if A::WIDE {
            self.0[2 * high + 1] |= u64::from(others >> 8) << (8 * byte);
        }
    }
}

/// Rows for columns in eight rows of eight bits (Warren, "Hacker's Delight", 7-3).
#[inline(always)]
fn transposed(mut bits: u64) -> u64 {
    for (shift, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let swapped = (bits ^ bits >> shift) & mask;
        bits ^= swapped ^ swapped << shift;
    }
    bits
}

/// Takes the looks, all of them a step before the first takes the next.
#[inline(always)]
fn take<'a, A: Family>(
    looks: &mut ArrayVec<Look<'a, A>, LOOKS>,
    probes: &[Option<Probe<A>>],
    best: &mut [Option<&'a Entry<A>>; GROUP],
) {
    let mut buckets = ArrayVec::<(&CellPage<A>, &[Entry<A>], u8), LOOKS>::new();
    for look in looks.drain(..) {
        let bucket = look.page.bucket(look.hash);
        if let Some(first) = bucket.first() {
            prefetch(first);
            prefetch(&first.policy);
            buckets.push((look.page, bucket, look.packet));
        }
    }
    for (page, bucket, packet) in buckets {
        let best = &mut best[usize::from(packet) % GROUP];
        if let Some(Some(probe)) = probes.get(usize::from(packet))
            && let Some(found) = page.first(bucket, probe)
            && best.is_none_or(|best| found.place < best.place)
        {
            *best = Some(found);
        }
    }
}
