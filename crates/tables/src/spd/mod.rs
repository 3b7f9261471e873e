//! The security policy database of one VRF, and how the policy of a packet is found in it.

mod bound;
mod compiled;
mod fast;
mod linear;
mod reads;
mod selector;
mod shadow;
mod structure;
mod words;

use core::cmp::Ordering;
use core::fmt;
use std::sync::Arc;

use arrayvec::ArrayVec;
/// What a lookup takes: places of the index or nodes of the trees, and policies compared.
pub use classifier::Count as LookupCount;
use classifier::Observer;
pub use types::LookupEngine;
use wire::{FlowKey, PacketFields};

pub use self::bound::LookupBound;
use self::compiled::Current;
pub use self::compiled::{Compiled, Wanted};
use self::fast::Index;
use self::linear::List;
use self::reads::Reads;
pub use self::shadow::{ShadowedSelectors, shadowed_selectors};
pub use self::structure::{LookupReason, LookupStructure};
pub(crate) use self::words::SelectorRule;
use self::words::{Family, Four, Six};
pub use self::words::{Header as PolicyHeader, Shown, V4_WORDS, V6_WORDS, upper_words};
use crate::policy::{Action, DefaultAction, Direction, Policy};

/// An IPv4 packet as policies see it.
pub(crate) fn header_of_v4(key: &FlowKey) -> Option<PolicyHeader<V4_WORDS>> {
    Four::header(key)
}

/// An IPv6 packet as policies see it.
pub(crate) fn header_of_v6(key: &FlowKey) -> Option<PolicyHeader<V6_WORDS>> {
    Six::header(key)
}

/// The policies of one VRF, ordered, by direction.
#[derive(Clone)]
pub struct Spd {
    lists: [List; 3],
    /// Policies of all directions.
    total: usize,
    defaults: [DefaultAction; 3],
    /// How many policies of each direction let packets pass in clear.
    bypasses: [usize; 3],
    reads: Reads,
    /// Of [`LookupEngine::Fast`].
    indexes: Option<[Index; 3]>,
    /// Trees of [`LookupEngine::Fast`], where there are some.
    compiled: [Option<Current>; 3],
    secret: u64,
}

/// Packets whose keys are made for the index together.
const TOGETHER: usize = 64;

/// Up to so many policies are tried one after the other: that is faster than asking the index.
const FEW: usize = 32;

impl Spd {
    /// No policies. `secret` keys the index's hashes.
    pub(crate) fn new(engine: LookupEngine, secret: u64) -> Self {
        let mut spd = Self {
            lists: Default::default(),
            total: 0,
            defaults: Default::default(),
            bypasses: [0; 3],
            reads: Reads::NOTHING,
            indexes: None,
            compiled: Default::default(),
            secret,
        };
        spd.set_engine(engine);
        spd
    }

    /// Whether there is no policy at all, in which case IPsec does not touch the VRF.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The policy of `direction` that decides the packet: the first in order of priority, then of
    /// insertion, that matches.
    #[inline]
    pub fn lookup(&self, direction: Direction, key: &FlowKey) -> Option<&Arc<Policy>> {
        self.lookup_observed(direction, key, &mut ())
    }

    /// As [`Spd::lookup`], with what it took: nodes of the trees or places of the index, and
    /// policies compared. What the index finds within a place by ports is no place more.
    pub fn lookup_counted(
        &self,
        direction: Direction,
        key: &FlowKey,
    ) -> (Option<&Arc<Policy>>, LookupCount) {
        let mut count = LookupCount::default();
        let found = self.lookup_observed(direction, key, &mut count);
        (found, count)
    }

    #[inline]
    fn lookup_observed(
        &self,
        direction: Direction,
        key: &FlowKey,
        observer: &mut impl Observer,
    ) -> Option<&Arc<Policy>> {
        if let Some(current) = self.current(direction)
            && let Ok(found) = current.lookup(key, observer)
        {
            return found;
        }
        self.lookup_without_trees(direction, key, observer)
    }

    fn lookup_without_trees(
        &self,
        direction: Direction,
        key: &FlowKey,
        observer: &mut impl Observer,
    ) -> Option<&Arc<Policy>> {
        match self.index(direction) {
            Some(index) => index.lookup(key, observer),
            None => self.lists[direction as usize].lookup(key, observer),
        }
    }

    /// Looks up each of these IPv4 packets, and writes its policy to the same position of `found`,
    /// which has the same length and nothing in it. `flow` returns the key of the packet in a
    /// position, which is rarely asked for.
    #[inline]
    pub fn lookup_batch_v4<'a>(
        &'a self,
        direction: Direction,
        headers: &[PolicyHeader<V4_WORDS>],
        flow: impl Fn(usize) -> FlowKey,
        found: &mut [Option<&'a Arc<Policy>>],
    ) {
        self.lookup_batch::<V4_WORDS, Four>(direction, headers, flow, found);
    }

    /// As [`Spd::lookup_batch_v4`], for IPv6 packets.
    #[inline]
    pub fn lookup_batch_v6<'a>(
        &'a self,
        direction: Direction,
        headers: &[PolicyHeader<V6_WORDS>],
        flow: impl Fn(usize) -> FlowKey,
        found: &mut [Option<&'a Arc<Policy>>],
    ) {
        self.lookup_batch::<V6_WORDS, Six>(direction, headers, flow, found);
    }

    #[inline]
    fn lookup_batch<'a, const WORDS: usize, F: Family<WORDS>>(
        &'a self,
        direction: Direction,
        headers: &[PolicyHeader<WORDS>],
        flow: impl Fn(usize) -> FlowKey,
        found: &mut [Option<&'a Arc<Policy>>],
    ) {
        let list = &self.lists[direction as usize];
        if let Some(current) = self.current(direction) {
            return current.lookup_batch::<WORDS, F>(headers, &flow, found, |at, found| {
                *found = self.lookup_without_trees(direction, &flow(at), &mut ());
            });
        }
        if let Some(index) = self.index(direction) {
            for (part, found) in found.chunks_mut(TOGETHER).enumerate() {
                let keys = (0..found.len()).map(|at| flow(part * TOGETHER + at));
                let keys: ArrayVec<FlowKey, TOGETHER> = keys.collect();
                index.lookup_batch(list.len(), &keys, found);
            }
            return;
        }
        for (at, (header, found)) in headers.iter().zip(found).enumerate() {
            *found = list.lookup_header::<WORDS, F>(header, || flow(at));
        }
    }

    /// Looks up each of these packets, as [`Spd::lookup_batch_v4`] does.
    pub fn lookup_keys<'a>(
        &'a self,
        direction: Direction,
        keys: &[FlowKey],
        found: &mut [Option<&'a Arc<Policy>>],
    ) {
        let v4: Option<Vec<_>> = keys.iter().map(Four::header).collect();
        let v6: Option<Vec<_>> = keys.iter().map(Six::header).collect();
        match (v4, v6) {
            (Some(v4), _) => self.lookup_batch_v4(direction, &v4, |at| keys[at], found),
            (_, Some(v6)) => self.lookup_batch_v6(direction, &v6, |at| keys[at], found),
            _ => {
                for (key, found) in keys.iter().zip(found) {
                    *found = self.lookup(direction, key);
                }
            }
        }
    }

    /// The same answer as [`Spd::lookup`], by trying one policy after the other, with the policy's
    /// position among the direction's, from 1.
    #[inline]
    pub fn lookup_linear(
        &self,
        direction: Direction,
        key: &FlowKey,
    ) -> Option<(usize, &Arc<Policy>)> {
        self.lists[direction as usize].lookup_one_by_one(key)
    }

    /// How packets' policies are found.
    pub fn engine(&self) -> LookupEngine {
        if self.indexes.is_some() { LookupEngine::Fast } else { LookupEngine::Linear }
    }

    /// The most work that a lookup of `direction` can be, whatever the packet.
    pub fn bound(&self, direction: Direction) -> LookupBound {
        match self.index(direction) {
            Some(index) => index.bound(),
            None => {
                LookupBound { probes: 0, policies: self.lists[direction as usize].len() as u32 }
            }
        }
    }

    /// The policies of `direction`, in the order in which they are tried.
    pub fn policies(&self, direction: Direction) -> impl ExactSizeIterator<Item = &Arc<Policy>> {
        self.lists[direction as usize].iter()
    }

    /// How many policies `direction` has.
    #[inline(always)]
    pub fn count(&self, direction: Direction) -> usize {
        self.lists[direction as usize].len()
    }

    /// The bits of packets' optional fields that some policy reads, of whatever direction. Other
    /// bits make no difference to a lookup.
    #[inline(always)]
    pub fn reads(&self) -> PacketFields {
        self.reads.bits()
    }

    /// Whether some policy reads what is in packets' upper-layer headers, of whatever direction, so
    /// that it matters what a later fragment's datagram had there.
    #[inline(always)]
    pub fn reads_upper(&self) -> bool {
        self.reads.upper()
    }

    /// The direction whose policies a forwarded packet meets on its way in: Linux asks `fwd`, RFC 4301
    /// knows no such thing.
    #[inline(always)]
    pub fn of_forwarded(&self) -> Direction {
        match self.count(Direction::Fwd) {
            0 => Direction::In,
            _ => Direction::Fwd,
        }
    }

    /// What happens to packets of `direction` that no policy matches.
    #[inline]
    pub fn default_action(&self, direction: Direction) -> DefaultAction {
        self.defaults[direction as usize]
    }

    /// How many policies of `direction` let packets pass in clear.
    pub fn bypasses(&self, direction: Direction) -> usize {
        self.bypasses[direction as usize]
    }

    pub(crate) fn set_default_action(&mut self, direction: Direction, action: DefaultAction) {
        self.defaults[direction as usize] = action;
    }

    /// Changes the engine; with [`LookupEngine::Fast`] the index is built anew.
    pub(crate) fn set_engine(&mut self, engine: LookupEngine) {
        if self.engine() == engine {
            return;
        }
        self.compiled = Default::default();
        self.indexes = (engine == LookupEngine::Fast).then(|| {
            Direction::ALL.map(|direction| {
                let mut index = Index::new(self.secret);
                self.policies(direction).for_each(|policy| index.insert(policy));
                index
            })
        });
    }

    /// The policy of this direction, priority and index.
    pub(crate) fn policy(&self, direction: Direction, place: Place) -> Option<&Arc<Policy>> {
        self.lists[direction as usize].policy(place)
    }

    /// Puts a policy in its place.
    pub(crate) fn insert(&mut self, policy: Arc<Policy>) {
        let direction = policy.spec.direction as usize;
        if let Some(current) = &mut self.compiled[direction]
            && !current.add(&policy)
        {
            self.compiled[direction] = None;
        }
        if let Some(indexes) = &mut self.indexes {
            indexes[direction].insert(&policy);
        }
        self.bypasses[direction] += usize::from(policy.spec.action == Action::Bypass);
        self.reads.add(&policy.spec.selector);
        self.lists[direction].insert(policy);
        self.total += 1;
    }

    /// Takes a policy out.
    pub(crate) fn remove(&mut self, direction: Direction, place: Place) -> Option<Arc<Policy>> {
        let policy = Arc::clone(self.policy(direction, place)?);
        if let Some(current) = &mut self.compiled[direction as usize] {
            current.remove(&policy);
        }
        if let Some(indexes) = &mut self.indexes {
            indexes[direction as usize].remove(&policy);
        }
        let is_bypass = policy.spec.action == Action::Bypass;
        self.bypasses[direction as usize] -= usize::from(is_bypass);
        self.reads.remove(&policy.spec.selector);
        self.total -= 1;
        let removed = self.lists[direction as usize].remove(place);
        // Of so few nothing is compiled anew, and what was compiled of many is large.
        if !self.is_many(direction) {
            self.compiled[direction as usize] = None;
        }
        Some(removed)
    }

    /// What of a direction's policies had best be compiled, if there are many and they have changed
    /// since.
    pub fn wants_compiling(&self, direction: Direction) -> Option<Wanted> {
        if self.engine() != LookupEngine::Fast || !self.is_many(direction) {
            return None;
        }
        self.compiled[direction as usize].as_ref().map_or(Some(Wanted::All), Current::wanted)
    }

    /// What is compiled of a direction's policies: all that were there at some time, then those that
    /// came later. And how many were added and removed since.
    pub fn compiled(
        &self,
        direction: Direction,
    ) -> Option<(impl Iterator<Item = &Compiled>, (usize, usize))> {
        let current = self.compiled[direction as usize].as_ref()?;
        Some((current.compiled(), current.changes()))
    }

    /// Uses what was compiled of this or an earlier state of the policies. Returns false if too much
    /// has changed since, or too few policies are left.
    pub(crate) fn install(&mut self, direction: Direction, compiled: &Arc<Compiled>) -> bool {
        if self.engine() != LookupEngine::Fast || !self.is_many(direction) {
            return false;
        }
        let before = self.compiled[direction as usize].as_ref();
        let current = Current::new(compiled, &self.lists[direction as usize], before);
        let is_used = current.is_some();
        if is_used {
            self.compiled[direction as usize] = current;
        }
        is_used
    }

    /// The trees, if there are enough policies for them.
    #[inline]
    fn current(&self, direction: Direction) -> Option<&Current> {
        self.compiled[direction as usize].as_ref().filter(|_| self.is_many(direction))
    }

    /// Whether there are more policies than are tried one after the other.
    #[inline]
    fn is_many(&self, direction: Direction) -> bool {
        self.lists[direction as usize].len() > FEW
    }

    /// The index, if there are enough policies for one.
    #[inline]
    fn index(&self, direction: Direction) -> Option<&Index> {
        self.indexes
            .as_ref()
            .filter(|_| self.is_many(direction))
            .map(|indexes| &indexes[direction as usize])
            .filter(|index| index.is_useful())
    }
}

/// Policies and what is done without one; not the index, which follows from them and from a secret.
impl fmt::Debug for Spd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = Direction::ALL.map(|direction| self.policies(direction).collect::<Vec<_>>());
        f.debug_struct("Spd")
            .field("lists", &lists)
            .field("defaults", &self.defaults)
            .field("engine", &self.engine())
            .finish()
    }
}

/// Where a policy stands among those of its direction. Indexes grow, so among equal priorities the
/// one added first is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) priority: u32,
    pub(crate) index: u32,
}

impl Place {
    pub(crate) fn of(policy: &Policy) -> Self {
        Self { priority: policy.spec.priority, index: policy.index }
    }
}

impl Place {
    /// As a number: one comparison instead of two.
    #[inline(always)]
    pub(crate) const fn rank(self) -> u64 {
        (self.priority as u64) << 32 | self.index as u64
    }
}

impl PartialOrd for Place {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

#[cfg(test)]
mod tests;
