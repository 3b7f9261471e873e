//! One address family's policies of one direction.

use std::sync::Arc;

use arrayvec::ArrayVec;
use classifier::Observer;
use packet::prefetch;
use wire::FlowKey;

use super::GROUP;
use super::cells::{Best, Cell, CellPage, Cells, Entry, FatCell, bucket};
use super::direct::Direct;
use super::directory::NoRoom;
use super::filter::{Filter, Levels};
use super::level::{Cover, Family, LEVELS, Level, PAIRS, pair};
use super::pairs;
use super::sizes::Sizes;
use crate::policy::Policy;
use crate::spd::Place;
use crate::spd::bound::LookupBound;
use crate::spd::selector::{Compact, Probe};

/// The index proper.
#[derive(Clone)]
pub(super) struct Table<A: Family> {
    /// By source and destination.
    direct: [Direct; 2],
    filter: Filter,
    cells: Cells<A>,
    levels: [[Level<A>; LEVELS]; 2],
    /// Levels that some policy's source has, and some destination.
    used: [Levels; 2],
    /// What the filter would say about level 0, which holds every address.
    every: [A::Pairs; 2],
    /// Policies by pair of levels.
    policies: [u32; LEVELS * LEVELS],
    /// Costs of cells, by pair of levels.
    costs: Sizes,
}

/// Looks that are prepared before the first is taken.
const LOOKS: usize = 128;

/// A packet of a group.
struct Packet<A> {
    probe: Probe<A>,
    /// Its place in the group.
    place: usize,
}

/// A place where a packet's policy may be.
struct Look<'a, A> {
    page: &'a CellPage<A>,
    bucket: u8,
    /// The packet's number among those of its family.
    packet: u8,
}

impl<A: Family> Table<A> {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            direct: [Direct::new(secret), Direct::new(secret)],
            filter: Filter::new(),
            cells: Cells::new(secret),
            levels: [Level::all(secret, 0), Level::all(secret, 1)],
            used: [0; 2],
            every: Default::default(),
            policies: [0; LEVELS * LEVELS],
            costs: Sizes::new(secret),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.policies.iter().all(|policies| *policies == 0)
    }

    pub(super) fn insert(
        &mut self,
        bounds: [(A, A); 2],
        policy: &Arc<Policy>,
    ) -> Result<(), NoRoom> {
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
                    level => self
                        .filter
                        .add(self.levels[which][usize::from(level)].hash(address), other)?,
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

    pub(super) fn remove(&mut self, bounds: [(A, A); 2], policy: &Policy) -> Result<(), NoRoom> {
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
                    level => self
                        .filter
                        .remove(self.levels[which][usize::from(level)].hash(address), other),
                }
            }
        }
        for cell in self.cells_of(&covers) {
            let (before, after) = self.cells.remove(cell.hash, &selector, Place::of(policy))?;
            self.costs.change(Self::number(&covers) as u8, before, after);
        }
        self.count(&covers, -1);
        Ok(())
    }

    pub(super) fn bound(&self) -> LookupBound {
        LookupBound {
            probes: self.policies.iter().filter(|policies| **policies > 0).count() as u32,
            policies: self.costs.sum(),
        }
    }

    #[inline]
    pub(super) fn lookup(
        &self,
        probe: &Probe<A>,
        observer: &mut impl Observer,
    ) -> Option<&Arc<Policy>> {
        let mut best = Best::NONE;
        self.each_hash(probe, self.candidates(probe), |hash| {
            observer.probe();
            let page = self.cells.page(hash);
            let (start, end) = page.range(bucket(hash));
            let entries = page.entries(start, end);
            page.first(entries, probe, &mut best, observer, |cell, best, observer| {
                if let Some(fat) = cell.find() {
                    fat.first(probe, best, observer);
                }
            });
        });
        best.entry.map(|entry| &entry.policy)
    }

    /// The policies of up to [`GROUP`] packets, each in its place; those are left out that have no
    /// addresses of this family.
    ///
    /// Each step is taken for all packets before the next one, and asks for the memory that the
    /// next one reads.
    #[inline(always)]
    pub(super) fn lookup_batch<'a>(
        &'a self,
        keys: &[FlowKey],
        found: &mut [Option<&'a Arc<Policy>>],
        addresses: impl Fn(&FlowKey) -> Option<(A, A)>,
    ) {
        let mut packets = ArrayVec::<Packet<A>, GROUP>::new();
        for (place, key) in keys.iter().take(GROUP).enumerate() {
            if let Some((source, destination)) = addresses(key) {
                packets.push(Packet { probe: Probe::new(source, destination, key), place });
            }
        }
        let candidates: ArrayVec<_, GROUP> =
            packets.iter().map(|packet| self.candidates(&packet.probe)).collect();
        let mut best = [const { Best::NONE }; GROUP];
        let mut looks = ArrayVec::<Look<'_, A>, LOOKS>::new();
        for (number, (packet, candidates)) in packets.iter().zip(candidates).enumerate() {
            self.each_hash(&packet.probe, candidates, |hash| {
                let (page, bucket) = (self.cells.page(hash), bucket(hash));
                prefetch(page.start(bucket));
                looks.push(Look { page, bucket, packet: number as u8 });
                if looks.is_full() {
                    take(&mut looks, &packets, &mut best);
                }
            });
        }
        take(&mut looks, &packets, &mut best);
        for (packet, best) in packets.iter().zip(best) {
            if let (Some(found), Some(best)) = (found.get_mut(packet.place), best.entry) {
                // A decision reads it next.
                prefetch(&best.policy.spec.action);
                *found = Some(&best.policy);
            }
        }
    }

    /// The pairs of levels at which there may be a policy for the packet.
    #[inline(always)]
    fn candidates(&self, probe: &Probe<A>) -> A::Pairs {
        let mut sources = self.seen(0, probe.source);
        let destinations = self.seen(1, probe.destination);
        pairs::both::<A>(&mut sources, &destinations);
        sources
    }

    /// The pairs of levels of the policies that have a prefix that holds the address.
    #[inline(always)]
    fn seen(&self, which: usize, address: A) -> A::Pairs {
        let mut seen = self.every[which];
        if A::DIRECT > 0 {
            seen.as_mut()[0] |= u64::from(self.direct[which].levels(address.first()));
        }
        let first = usize::from(A::DIRECT) + 1;
        let used = self.used[which] >> first;
        for (number, level) in self.levels[which][first..A::LENGTHS.len()].iter().enumerate() {
            if used & 1 << number != 0 {
                pairs::add::<A>(&mut seen, first + number, self.filter.levels(level.hash(address)));
            }
        }
        seen
    }

    /// Calls `each` with the hash of every candidate, those with the longest prefixes first: they
    /// tend to come first among policies.
    #[inline(always)]
    fn each_hash(&self, probe: &Probe<A>, candidates: A::Pairs, mut each: impl FnMut(u64)) {
        let [sources, destinations] = &self.levels;
        pairs::each::<A>(candidates, |source, destination| {
            let source = sources[source % LEVELS].hash(probe.source);
            let destination = destinations[destination % LEVELS].hash(probe.destination);
            each(pair(source, destination));
        });
    }

    fn cells_of(&self, covers: &[Cover<A>; 2]) -> ArrayVec<Cell<A>, PAIRS> {
        let [source, destination] =
            [0, 1].map(|which| &self.levels[which][usize::from(covers[which].level)]);
        let pairs =
            covers[0].addresses().flat_map(|from| covers[1].addresses().map(move |to| (from, to)));
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
        let any =
            |source: usize, destination: usize| self.policies[source * LEVELS + destination] > 0;
        let set = |is_in: &dyn Fn(usize) -> bool| {
            (0..LEVELS)
                .filter(|number| is_in(*number))
                .fold(0, |levels, number| levels | 1 << number)
        };
        self.every = [set(&|other| any(0, other)), set(&|other| any(other, 0))].map(|levels| {
            let mut pairs = A::Pairs::default();
            pairs::add::<A>(&mut pairs, 0, levels);
            pairs
        });
        self.used = [
            set(&|source| (0..LEVELS).any(|other| any(source, other))),
            set(&|destination| (0..LEVELS).any(|other| any(other, destination))),
        ];
    }
}

/// Takes the looks.
#[inline(always)]
fn take<'a, A: Family>(
    looks: &mut ArrayVec<Look<'a, A>, LOOKS>,
    packets: &[Packet<A>],
    best: &mut [Best<'a, A>; GROUP],
) {
    let Some(any) = looks.first() else { return };
    // Empty ones are overwritten by the next: whether there is something is not to be guessed.
    let mut buckets = [(any.page, 0, 0, 0); LOOKS];
    let mut length = 0;
    for look in &*looks {
        let (start, end) = look.page.range(look.bucket);
        look.page.prefetch_entry(start);
        buckets[length % LOOKS] = (look.page, start, end, look.packet);
        length += usize::from(start < end);
    }
    // What is in fat cells waits until all else has been seen: often it is not needed then.
    let mut fat = ArrayVec::<(FatCell<'_, A>, u8), LOOKS>::new();
    for &(page, start, end, number) in &buckets[..length.min(LOOKS)] {
        if let Some((packet, best)) = of(number, packets, best) {
            let entries = page.entries(start, end);
            page.first(entries, &packet.probe, best, &mut (), |cell, best, observer| {
                prefetch(cell.all);
                if fat.try_push((cell, number)).is_err() {
                    let find = cell.find().into_iter();
                    find.for_each(|fat| fat.first(&packet.probe, best, observer));
                }
            });
        }
    }
    for (cell, _) in &fat {
        cell.find().into_iter().for_each(prefetch);
    }
    for (cell, _) in &fat {
        cell.find().into_iter().for_each(|fat| prefetch(&**fat));
    }
    for (cell, number) in fat {
        if let Some((packet, best)) = of(number, packets, best)
            && cell.rank < best.rank
            && let Some(fat) = cell.find()
        {
            fat.first(&packet.probe, best, &mut ());
        }
    }
    looks.clear();
}

/// The packet of this number, and its best policy so far.
#[inline(always)]
fn of<'b, 'a, A>(
    number: u8,
    packets: &'b [Packet<A>],
    best: &'b mut [Best<'a, A>; GROUP],
) -> Option<(&'b Packet<A>, &'b mut Best<'a, A>)> {
    packets.get(usize::from(number)).zip(best.get_mut(usize::from(number)))
}
