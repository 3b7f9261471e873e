//! Policies compiled into decision trees, and what has changed since.
//!
//! Compiling takes from milliseconds to seconds, so it is done beside everything else, from a
//! snapshot. What is added meanwhile and later is tried from a list; what is removed is marked. A
//! packet whose first policy in the trees is a removed one is looked up without them.

use std::sync::Arc;

use classifier::{Effort, Header, Limits, Refused, Rule, Statistics, Tree};
use wire::FlowKey;

use super::linear::List;
use super::words::{self, Family, Four, SelectorRule, Six};
use super::{Place, Spd};
use crate::policy::{Direction, Policy};

/// With more policies added than this, trees are no longer used: trying those takes too long.
pub(super) const MOST_ADDED: usize = 128;

/// The policies of one direction, compiled.
#[derive(Debug)]
pub struct Compiled {
    pub(super) v4: Half<{ words::V4_WORDS }>,
    pub(super) v6: Half<{ words::V6_WORDS }>,
}

/// Those of one family.
#[derive(Debug)]
pub(super) struct Half<const WORDS: usize> {
    tree: Result<Tree<WORDS>, Refused>,
    /// In order. Rules have their positions for numbers.
    policies: Vec<Arc<Policy>>,
}

impl Compiled {
    /// Compiles the policies of a direction. Takes up to seconds.
    pub fn new(spd: &Spd, direction: Direction, effort: Effort) -> Self {
        let (mut v4, mut v6) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for policy in spd.policies(direction) {
            match SelectorRule::of(&policy.spec.selector) {
                SelectorRule::V4(rule) => {
                    v4.0.push(rule);
                    v4.1.push(Arc::clone(policy));
                }
                SelectorRule::V6(rule) => {
                    v6.0.push(rule);
                    v6.1.push(Arc::clone(policy));
                }
            }
        }
        Self { v4: Half::new(&v4.0, v4.1, effort), v6: Half::new(&v6.0, v6.1, effort) }
    }

    /// What was built for IPv4 and IPv6, or why nothing was.
    pub fn statistics(&self) -> [Result<&Statistics, Refused>; 2] {
        [self.v4.statistics(), self.v6.statistics()]
    }
}

impl<const WORDS: usize> Half<WORDS> {
    fn new(rules: &[Rule<WORDS>], policies: Vec<Arc<Policy>>, effort: Effort) -> Self {
        Self { tree: Tree::new(rules, Limits::of(rules.len(), WORDS), effort), policies }
    }

    fn statistics(&self) -> Result<&Statistics, Refused> {
        self.tree.as_ref().map(Tree::statistics).map_err(|refused| *refused)
    }

    /// The position of a policy.
    fn position(&self, policy: &Policy) -> Option<usize> {
        let place = Place::of(policy);
        self.policies.binary_search_by_key(&place, |policy| Place::of(policy)).ok()
    }
}

/// Compiled policies, and what has changed since.
#[derive(Clone, Debug)]
pub(super) struct Current {
    compiled: Arc<Compiled>,
    added: List,
    pub(super) removed_v4: Removed,
    pub(super) removed_v6: Removed,
}

/// Which of a half's policies are no longer there.
#[derive(Clone, Debug, Default)]
pub(super) struct Removed {
    count: usize,
    /// Bits, as far as there is one.
    bits: Arc<[u64]>,
}

impl Removed {
    fn has(&self, position: u32) -> bool {
        let word = self.bits.get(position as usize / 64).copied().unwrap_or(0);
        word >> (position % 64) & 1 != 0
    }

    fn add(&mut self, position: usize, all: usize) {
        if self.bits.is_empty() {
            self.bits = vec![0; all.div_ceil(64)].into();
        }
        Arc::make_mut(&mut self.bits)[position / 64] |= 1 << (position % 64);
        self.count += 1;
    }
}

impl Current {
    /// What has changed since `spd` was compiled is found by comparing both. `None` if it is too
    /// much.
    pub(super) fn new(compiled: &Arc<Compiled>, now: &List) -> Option<Self> {
        let mut current = Self {
            compiled: Arc::clone(compiled),
            added: List::default(),
            removed_v4: Removed::default(),
            removed_v6: Removed::default(),
        };
        let (mut v4, mut v6) = (compiled.v4.policies.iter(), compiled.v6.policies.iter());
        let (mut next_v4, mut next_v6) = (v4.next(), v6.next());
        for policy in now.iter() {
            let place = Place::of(policy);
            // Those before this one are no longer there.
            while let Some(gone) = next_v4.filter(|other| Place::of(other) < place) {
                current.remove(gone);
                next_v4 = v4.next();
            }
            while let Some(gone) = next_v6.filter(|other| Place::of(other) < place) {
                current.remove(gone);
                next_v6 = v6.next();
            }
            if next_v4.is_some_and(|other| Arc::ptr_eq(other, policy)) {
                next_v4 = v4.next();
            } else if next_v6.is_some_and(|other| Arc::ptr_eq(other, policy)) {
                next_v6 = v6.next();
            } else if !current.add(policy) {
                return None;
            }
        }
        next_v4
            .into_iter()
            .chain(v4)
            .chain(next_v6)
            .chain(v6)
            .for_each(|gone| current.remove(gone));
        Some(current)
    }

    pub(super) fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// Policies that were added and removed since.
    pub(super) fn changes(&self) -> (usize, usize) {
        (self.added.len(), self.removed_v4.count + self.removed_v6.count)
    }

    /// Notes a policy that was not there. Returns whether these are still few enough.
    #[must_use]
    pub(super) fn add(&mut self, policy: &Arc<Policy>) -> bool {
        self.added.insert(Arc::clone(policy));
        self.added.len() <= MOST_ADDED
    }

    /// Notes that a policy is no longer there.
    pub(super) fn remove(&mut self, policy: &Arc<Policy>) {
        let place = Place::of(policy);
        // One that was replaced has the place of the one that replaced it.
        if self.added.policy(place).is_some_and(|added| Arc::ptr_eq(added, policy)) {
            self.added.remove(place);
            return;
        }
        let Self { compiled, removed_v4, removed_v6, .. } = self;
        let (v4, v6) = (&compiled.v4, &compiled.v6);
        if let Some(position) = v4.position(policy) {
            removed_v4.add(position, v4.policies.len());
        } else if let Some(position) = v6.position(policy) {
            removed_v6.add(position, v6.policies.len());
        }
    }

    /// The first policy, or `Err` if the trees do not know.
    #[inline]
    pub(super) fn lookup(&self, key: &FlowKey) -> Result<Option<&Arc<Policy>>, Unknown> {
        if let Some(header) = Four::header(key) {
            return self.lookup_one::<{ words::V4_WORDS }, Four>(&header, key);
        }
        match Six::header(key) {
            Some(header) => self.lookup_one::<{ words::V6_WORDS }, Six>(&header, key),
            None => Ok(None),
        }
    }

    #[inline]
    fn lookup_one<const WORDS: usize, F: Family<WORDS>>(
        &self,
        header: &Header<WORDS>,
        key: &FlowKey,
    ) -> Result<Option<&Arc<Policy>>, Unknown> {
        let half = F::half(&self.compiled);
        let tree = half.tree.as_ref().map_err(|_| Unknown)?;
        let confirms = |rule: u32| half.policies[rule as usize].spec.selector.matches(key);
        let found = tree.lookup(header, confirms);
        if found.is_some_and(|rule| F::removed(self).has(rule)) {
            return Err(Unknown);
        }
        let found = found.map(|rule| &half.policies[rule as usize]);
        Ok(first(found, self.added.lookup_header::<WORDS, F>(header, || *key)))
    }

    /// As [`Spd::lookup_batch`]. Calls `unknown` with the positions for which the trees do not know.
    #[inline]
    pub(super) fn lookup_batch<'a, const WORDS: usize, F: Family<WORDS>>(
        &'a self,
        headers: &[Header<WORDS>],
        flow: &impl Fn(usize) -> FlowKey,
        found: &mut [Option<&'a Arc<Policy>>],
        mut unknown: impl FnMut(usize, &mut Option<&'a Arc<Policy>>),
    ) {
        let half = F::half(&self.compiled);
        let Ok(tree) = &half.tree else {
            found.iter_mut().enumerate().for_each(|(at, found)| unknown(at, found));
            return;
        };
        let removed = F::removed(self);
        let mut rules = [u32::MAX; GROUP];
        let groups = headers.chunks(GROUP).zip(found.chunks_mut(GROUP)).enumerate();
        for (group, (headers, found)) in groups {
            let begin = group * GROUP;
            let rules = &mut rules[..headers.len()];
            tree.lookup_batch(headers, rules, |at, rule| {
                half.policies[rule as usize].spec.selector.matches(&flow(begin + at))
            });
            for (at, (rule, found)) in rules.iter().zip(found).enumerate() {
                *found = half.policies.get(*rule as usize);
                if let Some(policy) = *found {
                    packet::prefetch(&policy.spec.action);
                }
                if removed.count > 0 && removed.has(*rule) {
                    unknown(begin + at, found);
                } else if self.added.len() > 0 {
                    let key = || flow(begin + at);
                    *found = first(*found, self.added.lookup_header::<WORDS, F>(&headers[at], key));
                }
            }
        }
    }
}

/// Packets whose policies are taken from trees together.
const GROUP: usize = 64;

/// The trees do not know.
pub(super) struct Unknown;

/// Whichever comes first.
#[inline(always)]
fn first<'a>(
    one: Option<&'a Arc<Policy>>,
    other: Option<&'a Arc<Policy>>,
) -> Option<&'a Arc<Policy>> {
    match (one, other) {
        (Some(a), Some(b)) if Place::of(b) < Place::of(a) => Some(b),
        (None, other) => other,
        (one, _) => one,
    }
}
