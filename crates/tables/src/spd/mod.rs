//! The security policy database of one VRF, and how the policy of a packet is found in it.

mod bound;
mod fast;
mod linear;
mod reads;
mod selector;

use core::cmp::Ordering;
use core::fmt;
use std::sync::Arc;

pub use types::LookupEngine;
use wire::{FlowKey, PacketFields};

pub use self::bound::LookupBound;
use self::fast::Index;
use self::linear::List;
use self::reads::Reads;
use crate::policy::{DefaultAction, Direction, Policy};

/// The policies of one VRF, ordered, by direction.
#[derive(Clone)]
pub struct Spd {
    lists: [List; 3],
    /// Policies of all directions.
    total: usize,
    defaults: [DefaultAction; 3],
    reads: Reads,
    /// Of [`LookupEngine::Fast`].
    indexes: Option<[Index; 3]>,
    secret: u64,
}

/// Up to so many policies are tried one after the other: that is faster than asking the index.
const FEW: usize = 32;

impl Spd {
    /// No policies. `secret` keys the index's hashes.
    pub(crate) fn new(engine: LookupEngine, secret: u64) -> Self {
        let mut spd = Self {
            lists: Default::default(),
            total: 0,
            defaults: Default::default(),
            reads: Reads::NOTHING,
            indexes: None,
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
        match self.index(direction) {
            Some(index) => index.lookup(key),
            None => self.lists[direction as usize].lookup(key).map(|(_, policy)| policy),
        }
    }

    /// Looks up a packet for each of `keys`, and writes its policy to the same position of `found`,
    /// which has the same length.
    #[inline]
    pub fn lookup_batch<'a>(
        &'a self,
        direction: Direction,
        keys: &[FlowKey],
        found: &mut [Option<&'a Arc<Policy>>],
    ) {
        if let Some(index) = self.index(direction) {
            index.lookup_batch(self.lists[direction as usize].len(), keys, found);
            return;
        }
        let list = &self.lists[direction as usize];
        for (key, found) in keys.iter().zip(found) {
            *found = list.lookup(key).map(|(_, policy)| policy);
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
        self.lists[direction as usize].lookup(key)
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

    /// What happens to packets of `direction` that no policy matches.
    #[inline]
    pub fn default_action(&self, direction: Direction) -> DefaultAction {
        self.defaults[direction as usize]
    }

    pub(crate) fn set_default_action(&mut self, direction: Direction, action: DefaultAction) {
        self.defaults[direction as usize] = action;
    }

    /// Changes the engine; with [`LookupEngine::Fast`] the index is built anew.
    pub(crate) fn set_engine(&mut self, engine: LookupEngine) {
        if self.engine() == engine {
            return;
        }
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
        if let Some(indexes) = &mut self.indexes {
            indexes[direction].insert(&policy);
        }
        self.reads.add(policy.spec.selector.fields);
        self.lists[direction].insert(policy);
        self.total += 1;
    }

    /// Takes a policy out.
    pub(crate) fn remove(&mut self, direction: Direction, place: Place) -> Option<Arc<Policy>> {
        let policy = Arc::clone(self.policy(direction, place)?);
        if let Some(indexes) = &mut self.indexes {
            indexes[direction as usize].remove(&policy);
        }
        self.reads.remove(policy.spec.selector.fields);
        self.total -= 1;
        Some(self.lists[direction as usize].remove(place))
    }

    /// The index, if there are enough policies for one.
    #[inline]
    fn index(&self, direction: Direction) -> Option<&Index> {
        let many = self.lists[direction as usize].len() > FEW;
        self.indexes
            .as_ref()
            .filter(|_| many)
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
