//! The index of [`LookupEngine::Fast`](super::LookupEngine::Fast): a tuple space of few levels, of
//! which a packet looks only where a policy can be.
//!
//! **Tuple space search** (Srinivasan, Suri, Varghese, "Packet Classification using Tuple Space
//! Search", 1999) files each rule under the lengths of its two prefixes, and in each such tuple
//! finds rules by a hash of the prefixes' bits. A change touches one hash bucket, but real rule
//! sets have hundreds of tuples, and a lookup asks all of them. Here:
//!
//! - Prefixes are cut to a few **levels** of length ([`level`]), as TupleMerge does (Daly et al.,
//!   "TupleMerge: Fast Software Packet Processing for Online Packet Classification", 2019), but to
//!   the same ones whatever the rules: nothing is ever merged again, and the index follows from the
//!   policies alone, not from how they came. A range that is no prefix is covered by up to eight
//!   prefixes of the finest level where so many do; the policy is filed under each, and the exact
//!   ranges are compared in the end.
//! - A **filter** tells, of each address, which levels the policies have that its prefixes occur in
//!   ([`filter`], and [`direct`] for short IPv4 prefixes). A byte for each level of the source,
//!   with a bit for each level of the destination, and the reverse for the destination: what is in
//!   both is where to look (the pruning that the tuple space's authors propose, by bits). One to
//!   four looks are left of up to 64, in published kinds of rule sets. The filter mistakes few
//!   prefixes for others, and then the look is in vain.
//! - A look finds a **cell**, the policies of one pair of prefixes, in a page of cells by a keyed
//!   hash ([`cells`]). Policies lie in it by place, as they are compared, with nothing between them
//!   and the packet. A policy behind the best one known is not compared.
//! - A cell with many policies is **fat** ([`fat`]): those that name one port are found by it, the
//!   others are tried in order.
//!
//! Pages hang in an extendible hash [`directory`] of two levels, so snapshots share nearly
//! everything, and no change copies more than a few pages or ever rehashes a table. All hashes are
//! keyed with a secret: who sends packets, or may have policies added, cannot aim at a bucket.
//!
//! Where the index is larger than a core's own cache, a batch is looked up in steps, each taken for
//! all packets before the next, so that their waits for memory overlap.
//!
//! What a lookup can cost is bounded: by the pairs of levels in use, and the largest cells'
//! policies ([`super::LookupBound`]).

mod cells;
mod direct;
mod directory;
mod fat;
mod filter;
mod level;
mod ordered;
mod pairs;
mod sizes;
mod table;

use std::sync::Arc;

use classifier::Observer;
use packet::prefetch;
use wire::{Addresses, FlowKey};

use self::directory::NoRoom;
use self::table::Table;
use super::bound::LookupBound;
use super::selector::{Probe, v4_bounds, v6_bounds};
use crate::policy::{Policy, Selector};

/// The index of one direction's policies.
#[derive(Clone)]
pub(super) struct Index {
    secret: u64,
    v4: Option<Arc<Table<u32>>>,
    v6: Option<Arc<Table<u128>>>,
    /// The hashes of this secret do not spread: as good as impossible, and then there is no index.
    useless: bool,
}

/// Packets that are looked up together: enough for their waits for memory to overlap, and few
/// enough for what they wait for to stay near.
const GROUP: usize = 32;

/// The index of up to so many policies stays in a core's own cache. Then there is nothing to wait
/// for, and taking steps together costs more than it saves. Tests have few policies, and want both
/// ways.
const NEAR: usize = if cfg!(test) { 500 } else { 8192 };

impl Index {
    pub(super) fn new(secret: u64) -> Self {
        Self { secret, v4: None, v6: None, useless: false }
    }

    /// Whether lookups can use it.
    #[inline]
    pub(super) fn is_useful(&self) -> bool {
        !self.useless
    }

    pub(super) fn insert(&mut self, policy: &Arc<Policy>) {
        if self.useless {
            return;
        }
        let secret = self.secret;
        let done = match bounds(&policy.spec.selector) {
            Bounds::V4(bounds) => {
                change(&mut self.v4, secret, |table| table.insert(bounds, policy))
            }
            Bounds::V6(bounds) => {
                change(&mut self.v6, secret, |table| table.insert(bounds, policy))
            }
        };
        if done.is_err() {
            self.give_up();
        }
    }

    pub(super) fn remove(&mut self, policy: &Policy) {
        let done = match bounds(&policy.spec.selector) {
            Bounds::V4(bounds) => take(&mut self.v4, |table| table.remove(bounds, policy)),
            Bounds::V6(bounds) => take(&mut self.v6, |table| table.remove(bounds, policy)),
        };
        if done.is_err() {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        *self = Self { useless: true, ..Self::new(self.secret) };
    }

    #[inline]
    pub(super) fn lookup(
        &self,
        key: &FlowKey,
        observer: &mut impl Observer,
    ) -> Option<&Arc<Policy>> {
        match key.addresses {
            Addresses::V4 { source, destination } => {
                let probe = Probe::new(source.to_bits(), destination.to_bits(), key);
                self.v4.as_deref()?.lookup(&probe, observer)
            }
            Addresses::V6 { source, destination } => {
                let probe = Probe::new(source.to_bits(), destination.to_bits(), key);
                self.v6.as_deref()?.lookup(&probe, observer)
            }
        }
    }

    /// Each key's policy, in its place. `policies` is how many there are.
    #[inline]
    pub(super) fn lookup_batch<'a>(
        &'a self,
        policies: usize,
        keys: &[FlowKey],
        found: &mut [Option<&'a Arc<Policy>>],
    ) {
        if policies <= NEAR {
            for (key, found) in keys.iter().zip(found) {
                *found = self.lookup(key, &mut ());
                if let Some(policy) = found {
                    prefetch(&policy.spec.action);
                }
            }
            return;
        }
        for (keys, found) in keys.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            found.fill(None);
            if let Some(table) = self.v4.as_deref() {
                table.lookup_batch(keys, found, |key| match key.addresses {
                    Addresses::V4 { source, destination } => {
                        Some((source.to_bits(), destination.to_bits()))
                    }
                    Addresses::V6 { .. } => None,
                });
            }
            if let Some(table) = self.v6.as_deref() {
                table.lookup_batch(keys, found, |key| match key.addresses {
                    Addresses::V6 { source, destination } => {
                        Some((source.to_bits(), destination.to_bits()))
                    }
                    Addresses::V4 { .. } => None,
                });
            }
        }
    }

    pub(super) fn bound(&self) -> LookupBound {
        let bounds = [self.v4.as_deref().map(Table::bound), self.v6.as_deref().map(Table::bound)];
        bounds
            .into_iter()
            .flatten()
            .max_by_key(|bound| (bound.policies, bound.probes))
            .unwrap_or_default()
    }
}

/// A selector's ranges of addresses, first and last.
enum Bounds {
    V4([(u32, u32); 2]),
    V6([(u128, u128); 2]),
}

fn bounds(selector: &Selector) -> Bounds {
    match (v4_bounds(&selector.source), v4_bounds(&selector.destination)) {
        (Some(source), Some(destination)) => Bounds::V4([source, destination]),
        _ => Bounds::V6([v6_bounds(&selector.source), v6_bounds(&selector.destination)]),
    }
}

fn change<A: level::Family>(
    table: &mut Option<Arc<Table<A>>>,
    secret: u64,
    change: impl FnOnce(&mut Table<A>) -> Result<(), NoRoom>,
) -> Result<(), NoRoom> {
    change(Arc::make_mut(table.get_or_insert_with(|| Arc::new(Table::new(secret)))))
}

/// A table without policies is none.
fn take<A: level::Family>(
    table: &mut Option<Arc<Table<A>>>,
    change: impl FnOnce(&mut Table<A>) -> Result<(), NoRoom>,
) -> Result<(), NoRoom> {
    let Some(found) = table else { return Ok(()) };
    let found = Arc::make_mut(found);
    change(found)?;
    if found.is_empty() {
        *table = None;
    }
    Ok(())
}
