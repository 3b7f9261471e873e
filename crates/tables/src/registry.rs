//! Every policy of every VRF, by number and by selector.

use std::sync::Arc;

use types::PolicyName;

use crate::counters::FlowCounters;
use crate::error::TableError;
use crate::limit::MAX_POLICIES;
use crate::map::Map;
use crate::policy::{Direction, Policy, PolicyHandle, PolicySlot, SelectorKey};
use crate::slots::Slots;

/// Finds policies without their VRF.
#[derive(Clone)]
pub(crate) struct Registry {
    slots: Slots<Held>,
    /// Slots without a policy, numbered from 0.
    free: Slots<u32>,
    free_count: u32,
    /// Index to slot.
    by_index: Map<u32, u32>,
    /// Selector to index.
    by_selector: Map<SelectorKey, u32>,
    /// Index to name, of those that have one. Nothing that is decided depends on it, so a name
    /// changes without the policy.
    names: Map<u32, PolicyName>,
    /// Indexes given out so far.
    made: u32,
}

/// A policy, and its counters, so that who counts need not go by the policy.
#[derive(Clone)]
struct Held {
    policy: Arc<Policy>,
    counters: FlowCounters,
}

impl Held {
    fn new(policy: Arc<Policy>) -> Self {
        Self { counters: policy.counters.clone(), policy }
    }
}

impl Registry {
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            slots: Slots::new(),
            free: Slots::new(),
            free_count: 0,
            by_index: Map::new(secret),
            by_selector: Map::new(secret),
            names: Map::new(secret),
            made: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_index.len()
    }

    #[inline]
    pub(crate) fn of_handle(&self, handle: PolicyHandle) -> Option<&Arc<Policy>> {
        self.slots
            .get(handle.slot)
            .map(|held| &held.policy)
            .filter(|policy| policy.index == handle.index)
    }

    #[inline(always)]
    pub(crate) fn in_slot(&self, slot: PolicySlot) -> Option<&Arc<Policy>> {
        self.slots.get(slot.0).map(|held| &held.policy)
    }

    #[inline(always)]
    pub(crate) fn counters_in(&self, slot: PolicySlot) -> Option<&FlowCounters> {
        self.slots.get(slot.0).map(|held| &held.counters)
    }

    #[inline]
    pub(crate) fn prefetch(&self, slot: PolicySlot) {
        self.slots.prefetch(slot.0);
    }

    pub(crate) fn of_index(&self, index: u32) -> Result<&Arc<Policy>, TableError> {
        self.by_index
            .get(&index)
            .and_then(|slot| self.in_slot(PolicySlot(*slot)))
            .ok_or(TableError::NoPolicy(index))
    }

    pub(crate) fn of_selector(&self, key: &SelectorKey) -> Option<u32> {
        self.by_selector.get(key).copied()
    }

    pub(crate) fn name_of(&self, index: u32) -> Option<&PolicyName> {
        self.names.get(&index)
    }

    /// Names a policy that is there, or takes its name.
    pub(crate) fn set_name(&mut self, index: u32, name: Option<PolicyName>) {
        match name {
            Some(name) => drop(self.names.insert(index, name)),
            None => drop(self.names.remove(&index)),
        }
    }

    /// What the next policy of `direction` will be named. As in Linux, `index & 7` is the
    /// direction.
    pub(crate) fn next_handle(&self, direction: Direction) -> Result<PolicyHandle, TableError> {
        if self.len() >= MAX_POLICIES {
            return Err(TableError::Limit { what: "policies", limit: MAX_POLICIES });
        }
        let number = self
            .made
            .checked_add(1)
            .filter(|number| number >> 29 == 0)
            .ok_or(TableError::PolicyIndexes)?;
        let last = self.free_count.checked_sub(1).and_then(|last| self.free.get(last));
        let slot = last.copied().unwrap_or(self.len() as u32);
        Ok(PolicyHandle { slot, index: number << 3 | direction as u32 })
    }

    /// Adds the policy that has the next handle.
    pub(crate) fn add(&mut self, policy: Arc<Policy>) {
        let PolicyHandle { slot, index } = policy.handle;
        self.made += 1;
        self.free_count = self.free_count.saturating_sub(1);
        self.free.remove(self.free_count);
        self.by_index.insert(index, slot);
        self.by_selector.insert(SelectorKey::of(&policy.spec), index);
        self.slots.set(slot, Held::new(policy));
    }

    /// Puts another policy of the same handle in the place of `old`.
    pub(crate) fn replace(&mut self, old: &Policy, new: Arc<Policy>) {
        self.by_selector.remove(&SelectorKey::of(&old.spec));
        self.by_selector.insert(SelectorKey::of(&new.spec), new.index);
        self.slots.set(new.handle.slot, Held::new(new));
    }

    pub(crate) fn remove(&mut self, policy: &Policy) {
        self.by_index.remove(&policy.index);
        self.names.remove(&policy.index);
        self.by_selector.remove(&SelectorKey::of(&policy.spec));
        self.slots.remove(policy.handle.slot);
        self.free.set(self.free_count, policy.handle.slot);
        self.free_count += 1;
    }
}

/// The policies, by slot.
impl core::fmt::Debug for Registry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.slots.iter().map(|held| &held.policy)).finish()
    }
}
