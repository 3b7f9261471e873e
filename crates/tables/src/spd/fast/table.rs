//! One address family's policies of one direction.

use std::sync::Arc;

use arrayvec::ArrayVec;
use packet::prefetch;
use wire::FlowKey;

use super::GROUP;
use super::cells::{Cell, CellPage, Cells, Entry};
use super::direct::Direct;
use super::directory::NoRoom;
use super::filter::{Filter, Levels};
use super::level::{Cover, Family, LEVELS, Level, PAIRS, pair};
use super::sizes::Sizes;
use crate::policy::Policy;
use crate::spd::Place;
use crate::spd::bound::LookupBound;
use crate::spd::selector::{Compact, Probe};

/// The index proper.
#[derive(Clone)]
pub(super) struct Table<A> {
    /// By source and destination.
    direct: [Direct; 2],
    filter: Filter,
    cells: Cells<A>,
    levels: Arc<[[Level<A>; LEVELS]; 2]>,
    /// Levels that some policy's source has, and some destination.
    used: [Levels; 2],
    /// What the filter would say about level 0, which holds every address.
    every: [Pairs; 2],
    /// Policies by pair of levels.
    policies: [u32; LEVELS * LEVELS],
    /// Costs of cells, by pair of levels.
    costs: Sizes,
}

/// Looks that are prepared before the first is taken.
const LOOKS: usize = 128;

/// A place where a packet's policy may be.
struct Look<'a, A> {
    page: &'a CellPage<A>,
    hash: u64,
    /// The packet's number in its group.
    packet: usize,
}

impl<A: Family> Table<A> {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            direct: [Direct::new(secret), Direct::new(secret)],
            filter: Filter::new(),
            cells: Cells::new(secret),
            levels: Arc::new([Level::all(secret, 0), Level::all(secret, 1)]),
            used: [0; 2],
            every: Default::default(),
            policies: [0; LEVELS * LEVELS],
            costs: Sizes::new(secret),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.policies.iter().all(|policies| *policies == 0)
    }

    pub(super) fn insert(&mut self, bounds: [(A, A); 2], policy: &Arc<Policy>) -> Result<(), NoRoom> {
        let covers = Cover::both(bounds[0], bounds[1]);
        let selector = Compact::new(bounds[0], bounds[1], &policy.spec.selector, 0);
        for which in 0..2 {
            let (cover, other) = (covers[which], covers[1 - which].level);
            for address in cover.addresses() {
                match cover.level {
                    0 => {}
                    level if level <= A::DIRECT => {
                        self.direct[which].add(address.first(), cover.length(), level, other);
                    }
                    level => self.filter.add(self.levels[which][usize::from(level)].hash(address), other)?,
                }
            }
        }
        for cell in self.cells_of(&covers) {
            let entry = Entry { selector, place: Place::of(policy), policy: Arc::clone(policy) };
            let (before, after) = self.cells.insert(&cell, entry)?;
            self.costs.change(Self::number(&covers) as u8, before, after);
        }
        self.count(&covers, 1);
        Ok(())
    }

    pub(super) fn remove(&mut self, bounds: [(A, A); 2], policy: &Policy) {
        let covers = Cover::both(bounds[0], bounds[1]);
        let selector = Compact::new(bounds[0], bounds[1], &policy.spec.selector, 0);
        for which in 0..2 {
            let (cover, other) = (covers[which], covers[1 - which].level);
            for address in cover.addresses() {
                match cover.level {
                    0 => {}
                    level if level <= A::DIRECT => {
                        self.direct[which].remove(address.first(), cover.length(), level, other);
                    }
                    level => self.filter.remove(self.levels[which][usize::from(level)].hash(address), other),
                }
            }
        }
        for cell in self.cells_of(&covers) {
            let (before, after) = self.cells.remove(cell.hash, &selector, Place::of(policy));
            self.costs.change(Self::number(&covers) as u8, before, after);
        }
        self.count(&covers, -1);
    }

    pub(super) fn bound(&self) -> LookupBound {
        LookupBound {
            probes: self.policies.iter().filter(|policies| **policies > 0).count() as u32,
            policies: self.costs.sum(),
        }
    }

    #[inline]
    pub(super) fn lookup(&self, probe: &Probe<A>) -> Option<&Arc<Policy>> {
        let mut best: Option<&Entry<A>> = None;
        self.looks(probe, |hash| {
            let page = self.cells.page(hash);
            best = page.first(page.bucket(hash), probe, best);
        });
        best.map(|entry| &entry.policy)
    }

    /// The policies of up to [`GROUP`] packets, each in its place; those are left out that have no addresses of this family.
    #[inline(always)]
    pub(super) fn lookup_batch<'a>(
        &'a self,
        keys: &[FlowKey],
        found: &mut [Option<&'a Arc<Policy>>],
        addresses: impl Fn(&FlowKey) -> Option<(A, A)>,
    ) {
        let mut probes = ArrayVec::<(Probe<A>, usize), GROUP>::new();
        for (place, key) in keys.iter().take(GROUP).enumerate() {
            if let Some((source, destination)) = addresses(key) {
                probes.push((Probe::new(source, destination, key), place));
            }
        }
        let mut best: [Option<&Entry<A>>; GROUP] = [None; GROUP];
        let mut looks = ArrayVec::<Look<'_, A>, LOOKS>::new();
        for (packet, (probe, _)) in probes.iter().enumerate() {
            self.looks(probe, |hash| {
                let page = self.cells.page(hash);
                prefetch(page.start(hash));
                looks.push(Look { page, hash, packet });
                if looks.is_full() {
                    take(&mut looks, &probes, &mut best);
                }
            });
        }
        take(&mut looks, &probes, &mut best);
        for ((_, place), best) in probes.iter().zip(best) {
            if let (Some(found), Some(best)) = (found.get_mut(*place), best) {
                *found = Some(&best.policy);
            }
        }
    }

    /// Calls `look` with the hash of every pair of prefixes where a policy for the packet may be, the longest first.
    #[inline(always)]
    fn looks(&self, probe: &Probe<A>, mut look: impl FnMut(u64)) {
        let addresses = [probe.source, probe.destination];
        let levels = &*self.levels;
        let mut seen = self.every;
        for which in 0..2 {
            if A::DIRECT > 0 {
                seen[which].0[0] |= u64::from(self.direct[which].levels(addresses[which].first()));
            }
            let indirect = levels[which].iter().enumerate().take(A::LENGTHS.len()).skip(usize::from(A::DIRECT) + 1);
            for (number, level) in indirect {
                if self.used[which] & 1 << number != 0 {
                    seen[which].add::<A>(number, self.filter.levels(level.hash(addresses[which])));
                }
            }
        }
        let [sources, destinations] = seen;
        let blocks = if A::WIDE { 2 } else { 1 };
        for high in (0..blocks).rev() {
            for low in (0..blocks).rev() {
                let mut both = sources.0[2 * high + low] & transposed(destinations.0[2 * low + high]);
                while both != 0 {
                    let bit = 63 - both.leading_zeros() as usize;
                    both ^= 1 << bit;
                    let source = levels[0][8 * high + bit / 8].hash(addresses[0]);
                    let destination = levels[1][8 * low + bit % 8].hash(addresses[1]);
                    look(pair(source, destination));
                }
            }
        }
    }

    fn cells_of(&self, covers: &[Cover<A>; 2]) -> ArrayVec<Cell<A>, PAIRS> {
        let [source, destination] = [0, 1].map(|which| &self.levels[which][usize::from(covers[which].level)]);
        let pairs = covers[0].addresses().flat_map(|from| covers[1].addresses().map(move |to| (from, to)));
        let cell = |(from, to): (A, A)| Cell {
            hash: pair(source.hash(from), destination.hash(to)),
            selector: Compact::of_addresses(from.prefix(source.mask), to.prefix(destination.mask)),
        };
        pairs.map(cell).collect()
    }

    /// The number of a pair of levels.
    fn number(covers: &[Cover<A>; 2]) -> usize {
        usize::from(covers[0].level) * LEVELS + usize::from(covers[1].level)
    }

    /// So many policies more have these levels.
    fn count(&mut self, covers: &[Cover<A>; 2], more: i32) {
        let policies = &mut self.policies[Self::number(covers)];
        let before = *policies;
        *policies = before.wrapping_add_signed(more);
        if (before == 0) == (*policies == 0) {
            return;
        }
        let any = |source: usize, destination: usize| self.policies[source * LEVELS + destination] > 0;
        let set = |is_in: &dyn Fn(usize) -> bool| {
            (0..LEVELS).filter(|number| is_in(*number)).fold(0, |levels, number| levels | 1 << number)
        };
        self.every = [set(&|other| any(0, other)), set(&|other| any(other, 0))].map(Pairs::of::<A>);
        self.used = [
            set(&|source| (0..LEVELS).any(|other| any(source, other))),
            set(&|destination| (0..LEVELS).any(|other| any(other, destination))),
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
    fn add<A: Family>(&mut self, level: usize, others: Levels) {
        let (high, byte) = if A::WIDE { (level >> 3 & 1, level & 7) } else { (0, level & 7) };
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
    probes: &[(Probe<A>, usize)],
    best: &mut [Option<&'a Entry<A>>; GROUP],
) {
    let mut buckets = ArrayVec::<(&CellPage<A>, &[Entry<A>], usize), LOOKS>::new();
    for look in looks.drain(..) {
        let bucket = look.page.bucket(look.hash);
        if let Some(first) = bucket.first() {
            prefetch(first);
            prefetch(&first.policy);
            buckets.push((look.page, bucket, look.packet));
        }
    }
    for (page, bucket, packet) in buckets {
        if let (Some((probe, _)), Some(best)) = (probes.get(packet), best.get_mut(packet)) {
            *best = page.first(bucket, probe, *best);
        }
    }
}
