//! Policies compiled into decision trees, and what has changed since.
//!
//! Compiling takes from milliseconds to seconds, so it is done beside everything else, from a
//! snapshot. What is added meanwhile and later is tried from a list; when that grows, it is compiled
//! by itself, to a second layer. What is removed is marked, and a packet whose first policy in the
//! trees is a removed one is looked up without them.

use core::slice;
use std::sync::Arc;

use arrayvec::ArrayVec;
use classifier::{Effort, Header, Limits, Observer, Refused, Rule, Statistics, Tree};
use wire::FlowKey;

use super::linear::List;
use super::words::{self, Family, Four, SelectorRule, Six};
use super::{Place, Spd};
use crate::policy::{Direction, Policy};

/// With more policies in the list than this, trees are no longer used: trying those takes too long.
pub(super) const MOST_ADDED: usize = 512;

/// With more policies in the list than this, it is worth compiling them.
const MANY_ADDED: usize = 32;

/// Everything is compiled anew when so many policies have been added, or one for this many of those
/// that were compiled first.
const FEW_ADDED: usize = 1024;
const SHARE_ADDED: usize = 8;

/// What had best be compiled of a direction's policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of them.
    All,
    /// Those that were added since all were compiled: takes a few milliseconds.
    Added,
}

/// The policies of one direction, compiled.
#[derive(Debug)]
pub struct Compiled {
    pub(super) v4: Half<{ words::V4_WORDS }>,
    pub(super) v6: Half<{ words::V6_WORDS }>,
    /// What is compiled otherwise, if this is of [`Wanted::Added`].
    base: Option<Arc<Self>>,
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
        Self::of(spd.policies(direction), effort, None)
    }

    /// Compiles what was added to a direction since all was compiled. `None` if nothing is compiled.
    pub fn of_added(spd: &Spd, direction: Direction) -> Option<Self> {
        let current = spd.compiled[direction as usize].as_ref()?;
        let base = current.layers.first()?;
        let added = spd.policies(direction).filter(|policy| !base.has(policy));
        Some(Self::of(added, Effort::Quick, Some(Arc::clone(&base.compiled))))
    }

    fn of<'a>(
        policies: impl Iterator<Item = &'a Arc<Policy>>,
        effort: Effort,
        base: Option<Arc<Self>>,
    ) -> Self {
        let (mut v4, mut v6) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for policy in policies {
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
        let (v4, v6) = (Half::new(&v4.0, v4.1, effort), Half::new(&v6.0, v6.1, effort));
        Self { v4, v6, base }
    }

    fn len(&self) -> usize {
        self.v4.policies.len() + self.v6.policies.len()
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
    /// All that were there at some time; and those that came later, up to some time.
    layers: ArrayVec<Layer, 2>,
    /// What is in no layer.
    added: List,
}

/// What was compiled at one time, and what of it is no longer there.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) compiled: Arc<Compiled>,
    pub(super) removed_v4: Removed,
    pub(super) removed_v6: Removed,
}

impl Layer {
    fn new(compiled: &Arc<Compiled>) -> Self {
        let (removed_v4, removed_v6) = (Removed::default(), Removed::default());
        Self { compiled: Arc::clone(compiled), removed_v4, removed_v6 }
    }

    /// Whether a policy is compiled here and still there.
    fn has(&self, policy: &Arc<Policy>) -> bool {
        let is = |other: &Arc<Policy>| Arc::ptr_eq(other, policy);
        let (v4, v6) = (&self.compiled.v4, &self.compiled.v6);
        v4.position(policy).is_some_and(|position| is(&v4.policies[position]))
            || v6.position(policy).is_some_and(|position| is(&v6.policies[position]))
    }

    /// Its policies, to be gone through in order.
    fn walks(&self) -> [Walk<'_>; 2] {
        [&self.compiled.v4.policies, &self.compiled.v6.policies].map(|all| Walk(all.iter()))
    }

    /// Notes that a policy is no longer there. Returns false if it never was.
    fn remove(&mut self, policy: &Arc<Policy>) -> bool {
        let Self { compiled, removed_v4, removed_v6 } = self;
        removed_v4.note(&compiled.v4.policies, compiled.v4.position(policy), policy)
            || removed_v6.note(&compiled.v6.policies, compiled.v6.position(policy), policy)
    }

    /// Notes all that are not among these, which are in order.
    fn keep_only(&mut self, now: &List) {
        let Self { compiled, removed_v4, removed_v6 } = self;
        removed_v4.note_missing(&compiled.v4.policies, now);
        removed_v6.note_missing(&compiled.v6.policies, now);
    }
}

/// Policies in order, gone through beside others in order.
struct Walk<'a>(slice::Iter<'a, Arc<Policy>>);

impl Walk<'_> {
    /// Whether a policy is among them. It is behind those that were asked for before.
    fn has(&mut self, policy: &Arc<Policy>) -> bool {
        let place = Place::of(policy);
        loop {
            match self.0.as_slice().first() {
                Some(next) if Place::of(next) < place => _ = self.0.next(),
                next => return next.is_some_and(|next| Arc::ptr_eq(next, policy)),
            }
        }
    }
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

    /// Notes a policy by its position among all, if it is the one that stands there.
    fn note(&mut self, all: &[Arc<Policy>], position: Option<usize>, policy: &Arc<Policy>) -> bool {
        let is_here =
            |position: &usize| Arc::ptr_eq(&all[*position], policy) && !self.has(*position as u32);
        match position.filter(is_here) {
            Some(position) => {
                self.add(position, all.len());
                true
            }
            None => false,
        }
    }

    /// Notes those of all that are not among these. Both are in order.
    fn note_missing(&mut self, all: &[Arc<Policy>], now: &List) {
        let mut now = now.iter().peekable();
        for (position, policy) in all.iter().enumerate() {
            let place = Place::of(policy);
            while now.next_if(|other| Place::of(other) < place).is_some() {}
            if !now.peek().is_some_and(|other| Arc::ptr_eq(other, policy)) {
                self.add(position, all.len());
            }
        }
    }
}

impl Current {
    /// What has changed since `compiled` was compiled is found by comparing. `None` if it is too
    /// much, or what it was compiled on top of is no longer used.
    pub(super) fn new(compiled: &Arc<Compiled>, now: &List, before: Option<&Self>) -> Option<Self> {
        let mut layers: ArrayVec<Layer, 2> = ArrayVec::new();
        if let Some(base) = &compiled.base {
            let used = before?.layers.first()?;
            if !Arc::ptr_eq(base, &used.compiled) {
                return None;
            }
            layers.push(used.clone());
        }
        let mut layer = Layer::new(compiled);
        layer.keep_only(now);
        layers.push(layer);
        let mut walks: ArrayVec<Walk<'_>, 4> = layers.iter().flat_map(Layer::walks).collect();
        let mut added = List::default();
        for policy in now.iter().filter(|policy| !walks.iter_mut().any(|walk| walk.has(policy))) {
            if added.len() == MOST_ADDED {
                return None;
            }
            added.insert(Arc::clone(policy));
        }
        drop(walks);
        Some(Self { layers, added })
    }

    /// What is compiled, all and what came later.
    pub(super) fn compiled(&self) -> impl Iterator<Item = &Compiled> {
        self.layers.iter().map(|layer| &*layer.compiled)
    }

    /// Policies that were added and removed since.
    pub(super) fn changes(&self) -> (usize, usize) {
        let removed = |layer: &Layer| layer.removed_v4.count + layer.removed_v6.count;
        (self.added.len(), self.layers.iter().map(removed).sum())
    }

    /// What had best be compiled, if anything.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        let base = self.layers.first().map_or(0, |layer| layer.compiled.len());
        let young = self.layers.get(1).map_or(0, |layer| layer.compiled.len());
        let is_little = young + self.added.len() <= FEW_ADDED.max(base / SHARE_ADDED);
        match self.changes() {
            (0, 0) if young == 0 => None,
            (added, _) if added > MANY_ADDED && is_little => Some(Wanted::Added),
            _ => Some(Wanted::All),
        }
    }

    /// Notes a policy that was not there. Returns whether these are still few enough.
    #[must_use]
    pub(super) fn add(&mut self, policy: &Arc<Policy>) -> bool {
        self.added.insert(Arc::clone(policy));
        self.added.len() <= MOST_ADDED
    }

    /// Notes that a policy is no longer there.
    pub(super) fn remove(&mut self, policy: &Arc<Policy>) {
        if self.layers.iter_mut().any(|layer| layer.remove(policy)) {
            return;
        }
        let place = Place::of(policy);
        if self.added.policy(place).is_some_and(|added| Arc::ptr_eq(added, policy)) {
            self.added.remove(place);
        }
    }

    /// The first policy, or `Err` if the trees do not know.
    #[inline]
    pub(super) fn lookup(
        &self,
        key: &FlowKey,
        observer: &mut impl Observer,
    ) -> Result<Option<&Arc<Policy>>, Unknown> {
        if let Some(header) = Four::header(key) {
            return self.lookup_one::<{ words::V4_WORDS }, Four>(&header, key, observer);
        }
        match Six::header(key) {
            Some(header) => self.lookup_one::<{ words::V6_WORDS }, Six>(&header, key, observer),
            None => Ok(None),
        }
    }

    #[inline]
    fn lookup_one<const WORDS: usize, F: Family<WORDS>>(
        &self,
        header: &Header<WORDS>,
        key: &FlowKey,
        observer: &mut impl Observer,
    ) -> Result<Option<&Arc<Policy>>, Unknown> {
        let mut found = self.added.lookup_observed::<WORDS, F>(header, || *key, observer);
        for layer in &self.layers {
            let half = F::half(&layer.compiled);
            let tree = half.tree.as_ref().map_err(|_| Unknown)?;
            let confirms = |rule: u32| half.policies[rule as usize].spec.selector.matches(key);
            let Some(rule) = tree.lookup_observed(header, confirms, observer) else { continue };
            if F::removed(layer).has(rule) {
                return Err(Unknown);
            }
            found = first(found, Some(&half.policies[rule as usize]));
        }
        Ok(found)
    }

    /// As [`Spd::lookup_batch_v4`], of either family. Calls `unknown` with the positions for which
    /// the trees do not know.
    #[inline]
    pub(super) fn lookup_batch<'a, const WORDS: usize, F: Family<WORDS>>(
        &'a self,
        headers: &[Header<WORDS>],
        flow: &impl Fn(usize) -> FlowKey,
        found: &mut [Option<&'a Arc<Policy>>],
        mut unknown: impl FnMut(usize, &mut Option<&'a Arc<Policy>>),
    ) {
        if self.layers.iter().any(|layer| F::half(&layer.compiled).tree.is_err()) {
            found.iter_mut().enumerate().for_each(|(at, found)| unknown(at, found));
            return;
        }
        let mut rules = [u32::MAX; GROUP];
        let groups = headers.chunks(GROUP).zip(found.chunks_mut(GROUP)).enumerate();
        for (group, (headers, found)) in groups {
            let begin = group * GROUP;
            let rules = &mut rules[..headers.len()];
            // Those whose first policy of some layer is no longer there.
            let mut in_vain = 0_u64;
            for (number, layer) in self.layers.iter().enumerate() {
                let (half, removed) = (F::half(&layer.compiled), F::removed(layer));
                let Ok(tree) = &half.tree else { return };
                tree.lookup_batch(headers, rules, |at, rule| {
                    half.policies[rule as usize].spec.selector.matches(&flow(begin + at))
                });
                for (rule, found) in rules.iter().zip(&mut *found) {
                    let policy = half.policies.get(*rule as usize);
                    if let Some(policy) = policy {
                        packet::prefetch(&policy.spec.action);
                    }
                    *found = if number == 0 { policy } else { first(*found, policy) };
                }
                if removed.count > 0 {
                    for (at, rule) in rules.iter().enumerate() {
                        in_vain |= u64::from(removed.has(*rule)) << at;
                    }
                }
            }
            if in_vain == 0 && self.added.len() == 0 {
                continue;
            }
            for (at, found) in found.iter_mut().enumerate() {
                if in_vain >> at & 1 != 0 {
                    unknown(begin + at, found);
                } else {
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
