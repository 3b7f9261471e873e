//! Named timeout policies, and which connections have which.
//!
//! A connection has the number of its policy in its control word, so that its timeouts are found
//! without looking for its zone. When the policy of a zone changes, its connections are given the
//! new number.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::entry::word;
use crate::sync::{Ordering, lock};
use crate::table::Connections;
use crate::timeout::{NUMBERS, PolicyId, State};

/// The most policies with names. Of all numbers there are twice as many, so that those which come
/// need no number of one that goes, which connections have for a moment longer.
pub const MOST_POLICIES: usize = (NUMBERS - 1) / 2;

/// A timeout policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeoutPolicy {
    /// Its name.
    pub name: Arc<str>,
    /// The zones whose connections have it.
    pub zones: BTreeSet<u16>,
    /// Its timeouts. Others are those of the connections without a policy.
    pub timeouts: BTreeMap<State, Duration>,
}

/// What was set, and the names of policies by their numbers.
pub(crate) struct Policies {
    usual: BTreeMap<State, Duration>,
    all: Vec<TimeoutPolicy>,
    names: [Option<Arc<str>>; NUMBERS],
}

impl Policies {
    pub(crate) const fn new() -> Self {
        Self { usual: BTreeMap::new(), all: Vec::new(), names: [const { None }; NUMBERS] }
    }

    fn number(&self, name: &str) -> Option<PolicyId> {
        let number = self.names.iter().position(|there| there.as_deref() == Some(name))?;
        Some(PolicyId(number as u8))
    }

    /// Number 0 is nobody's.
    fn add(&mut self, name: &Arc<str>) -> Option<PolicyId> {
        let number = (1..NUMBERS).find(|number| self.names[*number].is_none())?;
        self.names[number] = Some(Arc::clone(name));
        Some(PolicyId(number as u8))
    }
}

impl Connections {
    /// Sets all timeouts: those of connections whose zone has no policy, nf_conntrack's where nothing
    /// is said; and the policies. Connections that there are have the new ones at once. Reads all
    /// connections if a zone has another policy than before. Of two policies with one zone the later
    /// one has it; there are at most [`MOST_POLICIES`].
    pub fn set_timeouts(&self, usual: &BTreeMap<State, Duration>, policies: &[TimeoutPolicy]) {
        let mut there = lock(&self.policies);
        (there.usual, there.all) = (usual.clone(), policies.to_vec());
        let usual = |state: State| timeout_of(usual, state);
        let mut is_shorter = false;
        let mut set = |policy: PolicyId, state: State, timeout: Duration| {
            is_shorter |= self.timeouts.set(policy, state, timeout);
        };
        for state in State::ALL {
            set(PolicyId::default(), *state, usual(*state));
        }
        let mut zones = BTreeMap::new();
        for policy in policies.iter().take(MOST_POLICIES) {
            let number = there.number(&policy.name).or_else(|| there.add(&policy.name));
            let Some(number) = number else { continue };
            for state in State::ALL {
                let timeout = policy.timeouts.get(state).copied();
                set(number, *state, timeout.unwrap_or_else(|| usual(*state)));
            }
            zones.extend(policy.zones.iter().map(|zone| (*zone, number)));
        }
        let are_other_zones = self.timeouts.set_zones(&zones);
        if are_other_zones {
            self.follow_zones();
        }
        if is_shorter || are_other_zones {
            // The wheel would look at them by the deadlines that they had.
            (0..self.settings.connections).for_each(|index| self.places.look_soon(index));
        }
        // A longer timeout revives connections that were dead and not taken out yet.
        self.raise_all_stamps();
        // No connection has these numbers any more.
        for name in &mut there.names {
            let is_there = |name: &Arc<str>| policies.iter().any(|policy| policy.name == *name);
            if !name.as_ref().is_some_and(is_there) {
                *name = None;
            }
        }
    }

    /// The name of a connection's timeout policy, if it has not the default one.
    pub fn policy_name(&self, policy: PolicyId) -> Option<Arc<str>> {
        lock(&self.policies).names.get(usize::from(policy.0))?.clone()
    }

    /// What [`Connections::set_timeouts`] has set: all timeouts of connections whose zone has no policy;
    /// and the policies, with what they do not say themselves as well.
    pub fn timeouts(&self) -> (BTreeMap<State, Duration>, Vec<TimeoutPolicy>) {
        let there = lock(&self.policies);
        let all = |said: &BTreeMap<State, Duration>| {
            let of = |state: State| said.get(&state).copied();
            let of = |state| of(state).unwrap_or_else(|| timeout_of(&there.usual, state));
            State::ALL.iter().map(|state| (*state, of(*state))).collect()
        };
        let policy = |policy: &TimeoutPolicy| TimeoutPolicy {
            timeouts: all(&policy.timeouts),
            ..policy.clone()
        };
        (all(&there.usual), there.all.iter().map(policy).collect())
    }

    /// Gives every connection the policy of its zone.
    fn follow_zones(&self) {
        // Whoever has read an old policy of a zone has inserted the connection after this.
        self.buckets.wait_for_locks();
        for (index, entry) in (0..).zip(&self.entries) {
            loop {
                let from = self.control(index);
                let identity = entry.lines[1].0[word::IDENTITY].load(Ordering::Acquire);
                let policy = self.timeouts.of_zone((identity >> 48) as u16);
                // If the zone is that of another generation, the change fails.
                let is_done = !from.is_live() || from.policy() == policy.0;
                if is_done || self.change(index, from, from.with_policy(policy.0)) {
                    break;
                }
            }
        }
    }
}

fn timeout_of(said: &BTreeMap<State, Duration>, state: State) -> Duration {
    said.get(&state).copied().unwrap_or_else(|| state.default_timeout())
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_numbers() {
        let mut names = Policies::new();
        let name = |number: usize| Arc::<str>::from(format!("policy {number}"));
        let numbers: Vec<_> = (0..255).map(|number| names.add(&name(number)).unwrap()).collect();
        assert!(!numbers.contains(&PolicyId::default()));
        assert_eq!(names.add(&name(255)), None);
        names.names[7] = None;
        assert_eq!(names.add(&name(256)), Some(PolicyId(7)));
        assert_eq!(names.number("policy 9"), Some(numbers[9]));
    }
}
