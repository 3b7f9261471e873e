//! The policy rules that are desired, found by what they say and by what they name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::{Family, RuleAction, RuleSpec};
use tables::RuleId;

use super::desired::DesiredRule;

/// Rules in the order in which they are asked.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleList {
    rules: BTreeMap<RuleId, DesiredRule>,
    ids: HashMap<RuleSpec, RuleId>,
    /// By port or VRF: those that name it.
    named: BTreeMap<String, BTreeSet<RuleId>>,
    /// The number of the next one.
    next: u64,
}

impl RuleList {
    /// These, in the order in which they were added. Of equal ones, the first.
    pub(super) fn of(rules: impl IntoIterator<Item = DesiredRule>) -> Self {
        let mut list = Self::default();
        for rule in rules {
            if list.id_of(&rule.spec).is_none() {
                list.add(rule);
            }
        }
        list
    }

    /// Adds a rule that is not there.
    pub(super) fn add(&mut self, rule: DesiredRule) -> RuleId {
        let id = RuleId {
            is_v6: rule.spec.family == Some(Family::V6),
            priority: rule.spec.priority.unwrap_or(0),
            number: self.next,
        };
        self.next += 1;
        self.ids.insert(rule.spec.clone(), id);
        for name in names(&rule.spec) {
            self.named.entry(name.to_owned()).or_default().insert(id);
        }
        self.rules.insert(id, rule);
        id
    }

    pub(super) fn remove(&mut self, id: RuleId) -> Option<DesiredRule> {
        let gone = self.rules.remove(&id)?;
        self.ids.remove(&gone.spec);
        for name in names(&gone.spec) {
            if let Some(ids) = self.named.get_mut(name) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.named.remove(name);
                }
            }
        }
        Some(gone)
    }

    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(super) fn get(&self, id: RuleId) -> Option<&DesiredRule> {
        self.rules.get(&id)
    }

    /// The rule that says exactly this.
    pub(super) fn id_of(&self, spec: &RuleSpec) -> Option<RuleId> {
        self.ids.get(spec).copied()
    }

    /// The rule that says exactly this.
    pub(super) fn find(&self, spec: &RuleSpec) -> Option<&DesiredRule> {
        self.get(self.id_of(spec)?)
    }

    /// Every rule, those of IPv4 first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RuleId, &DesiredRule)> {
        self.rules.iter().map(|(id, rule)| (*id, rule))
    }

    /// Those of a family, and of a priority if one is said.
    pub(super) fn of_family(
        &self,
        family: Family,
        priority: Option<u32>,
    ) -> impl Iterator<Item = (RuleId, &DesiredRule)> {
        let is_v6 = family == Family::V6;
        let id = |priority, number| RuleId { is_v6, priority, number };
        let first = id(priority.unwrap_or(0), 0);
        let last = id(priority.unwrap_or(u32::MAX), u64::MAX);
        self.rules.range(first..=last).map(|(id, rule)| (*id, rule))
    }

    /// Those that name a port or VRF.
    pub(super) fn naming(&self, name: &str) -> impl Iterator<Item = RuleId> {
        self.named.get(name).into_iter().flatten().copied()
    }
}

/// The ports and VRFs that a rule names.
fn names(spec: &RuleSpec) -> impl Iterator<Item = &str> {
    let table = match &spec.action {
        Some(RuleAction::Vrf(vrf)) => Some(vrf.as_str()),
        _ => None,
    };
    [spec.iif.as_deref(), spec.oif.as_deref(), table].into_iter().flatten()
}
