//! Filters: ordered rules that packets meet before and after routing.
//!
//! Each port and each VRF may have two, one for each [`FilterHook`]. The first rule that a packet
//! matches decides; a packet that matches none passes.

use core::fmt;
use std::sync::Arc;

use classifier::{Chain, Classifier, Effort, Header, Limits, Refused, Rule, Tree};
use types::{FilterHook, FilterSlot, FilterVerdict, MarkBits, PacketFields, RejectWith};
use wire::{FlowKey, PortId, VrfId};

use crate::counters::FlowCounters;
use crate::map::MapKey;
use crate::policy::{Selector, UpperSelector};
use crate::slots::Slots;
use crate::spd::{SelectorRule, V4_WORDS, V6_WORDS, header_of_v4, header_of_v6};

/// Whose filter it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilterTarget {
    /// Of packets that come or leave by a port.
    Port(PortId),
    /// Of packets that are routed in a VRF.
    Vrf(VrfId),
}

/// Where a filter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterPlace {
    /// Whose it is.
    pub target: FilterTarget,
    /// When it sees packets.
    pub hook: FilterHook,
}

impl MapKey for FilterPlace {
    type Words = [u64; 1];

    fn to_words(&self) -> [u64; 1] {
        let (kind, number) = match self.target {
            FilterTarget::Port(port) => (0, port.0),
            FilterTarget::Vrf(vrf) => (1, vrf.0),
        };
        [u64::from(number) << 2 | kind << 1 | self.hook as u64]
    }
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterAction {
    /// What becomes of the packet.
    pub verdict: FilterVerdict,
    /// How the sender of a rejected packet is told.
    pub reject_with: RejectWith,
    /// What the packet's mark becomes.
    pub set_mark: Option<MarkBits>,
    /// Whether packets are logged, within a rate limit.
    pub log: bool,
}

/// Which packets a rule is for: those that one of its selectors matches, with such a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterMatch {
    /// IPv4 packets, if it is for some.
    pub v4: Option<Selector>,
    /// IPv6 packets, if it is for some.
    pub v6: Option<Selector>,
    /// The mark that filters before it have given the packet.
    pub mark: MarkBits,
}

impl FilterMatch {
    /// Whether a packet is meant.
    pub fn matches(&self, key: &FlowKey, mark: u32) -> bool {
        let selector = if key.addresses.is_v6() { &self.v6 } else { &self.v4 };
        selector.is_some_and(|selector| selector.matches(key)) && self.mark.matches(mark)
    }

    /// Its selectors.
    pub fn selectors(&self) -> impl Iterator<Item = Selector> + use<> {
        [self.v4, self.v6].into_iter().flatten()
    }
}

/// What a rule is configured to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterSpec {
    /// In which filter.
    pub place: FilterPlace,
    /// Its place in the order, smaller first; no two rules of a filter have the same (tc's `pref`).
    pub preference: u32,
    /// Which packets.
    pub selects: FilterMatch,
    /// What happens to them.
    pub action: FilterAction,
}

/// A rule of a filter.
#[derive(Clone, Debug)]
pub struct FilterRule {
    /// How decisions name it.
    pub slot: FilterSlot,
    /// As configured.
    pub spec: FilterSpec,
    /// Packets and bytes that it decided, kept when it is replaced.
    pub counters: FlowCounters,
}

/// Words of a header as filters see it: that of policies, with the mark before the ports.
const V4: usize = V4_WORDS + 1;
const V6: usize = V6_WORDS + 1;

/// Rules that are copied together when one of them changes. Twice as many are split.
const CHUNK: usize = 64;

/// With at least so many rules, it is worth compiling them.
const MANY: usize = 4 * CHUNK;

/// One filter: its rules, in order.
#[derive(Clone, Default)]
pub struct Filter {
    /// None is empty.
    chunks: Vec<Arc<Chunk>>,
    /// The same as decision trees, if they were compiled since the last change.
    compiled: Option<Arc<CompiledFilter>>,
}

/// Rules side by side, of both families, which have their positions for numbers.
struct Chunk {
    rules: Vec<Arc<FilterRule>>,
    v4: Chain<V4>,
    v6: Chain<V6>,
    reads: (PacketFields, bool),
}

/// A filter compiled into decision trees. Compiling takes up to a second, so it is done beside
/// everything else, from a snapshot.
pub struct CompiledFilter {
    /// What was compiled.
    chunks: Vec<Arc<Chunk>>,
    v4: Half<V4>,
    v6: Half<V6>,
}

/// The rules of one family, which have their positions for numbers, as trees.
struct Half<const WORDS: usize> {
    tree: Result<Tree<WORDS>, Refused>,
    rules: Vec<Arc<FilterRule>>,
}

impl<const WORDS: usize> Half<WORDS> {
    fn new(rules: Vec<(Rule<WORDS>, Arc<FilterRule>)>) -> Self {
        let (words, rules): (Vec<_>, Vec<_>) = rules.into_iter().unzip();
        Self { tree: Tree::new(&words, Limits::of(rules.len(), WORDS), Effort::Quick), rules }
    }
}

impl CompiledFilter {
    /// Compiles the rules of a filter.
    pub fn new(filter: &Filter) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for rule in filter.rules() {
            let (of_v4, of_v6) = words(&rule.spec.selects);
            v4.extend(of_v4.map(|words| (words, Arc::clone(rule))));
            v6.extend(of_v6.map(|words| (words, Arc::clone(rule))));
        }
        Self { chunks: filter.chunks.clone(), v4: Half::new(v4), v6: Half::new(v6) }
    }

    /// Whether it is of a filter as it is.
    fn is_of(&self, filter: &Filter) -> bool {
        let (ours, theirs) = (&self.chunks, &filter.chunks);
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

impl fmt::Debug for CompiledFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [v4, v6] = [
            self.v4.tree.as_ref().map(Tree::statistics),
            self.v6.tree.as_ref().map(Tree::statistics),
        ];
        f.debug_struct("CompiledFilter").field("v4", &v4).field("v6", &v6).finish()
    }
}

/// What a rule looks for, of each family.
fn words(selects: &FilterMatch) -> (Option<Rule<V4>>, Option<Rule<V6>>) {
    let of = |selector: Option<Selector>| Some(SelectorRule::of(&selector?));
    let v4 = match of(selects.v4) {
        Some(SelectorRule::V4(rule)) => Some(with_mark(&rule, selects.mark)),
        _ => None,
    };
    let v6 = match of(selects.v6) {
        Some(SelectorRule::V6(rule)) => Some(with_mark(&rule, selects.mark)),
        _ => None,
    };
    (v4, v6)
}

impl Chunk {
    fn new(rules: Vec<Arc<FilterRule>>) -> Self {
        let numbered = || (0..).zip(&rules);
        let v4 = numbered().filter_map(|(number, it)| Some((number, words(&it.spec.selects).0?)));
        let v6 = numbered().filter_map(|(number, it)| Some((number, words(&it.spec.selects).1?)));
        let (v4, v6) = (Chain::new(v4), Chain::new(v6));
        let selectors = rules.iter().flat_map(|rule| rule.spec.selects.selectors());
        let reads = selectors.fold((PacketFields::NONE, false), |(bits, upper), selector| {
            let reads = selector.fields.mask();
            let reads_upper = selector.upper != UpperSelector::Any
                || !(reads & PacketFields::TCP_FLAGS).is_empty();
            (bits | reads, upper || reads_upper)
        });
        Self { rules, v4, v6, reads }
    }
}

/// A selector's rule, which asks for a mark as well.
fn with_mark<const LESS: usize, const WORDS: usize>(
    rule: &Rule<LESS>,
    mark: MarkBits,
) -> Rule<WORDS> {
    let mut wider = Rule { is_partial: rule.is_partial, ..Rule::ANY };
    wider.value = with_mark_word(&rule.value, mark.value & mark.mask);
    wider.mask = with_mark_word(&rule.mask, mark.mask);
    wider
}

/// The words with one more before the last two.
fn with_mark_word<const LESS: usize, const WORDS: usize>(
    words: &[u32; LESS],
    mark: u32,
) -> [u32; WORDS] {
    let before = LESS - 2;
    core::array::from_fn(|at| match at.cmp(&before) {
        core::cmp::Ordering::Less => words[at],
        core::cmp::Ordering::Equal => mark,
        core::cmp::Ordering::Greater => words[at - 1],
    })
}

impl<const WORDS: usize> Half<WORDS> {
    fn lookup(
        &self,
        tree: &Tree<WORDS>,
        header: &Header<WORDS>,
        (key, mark): (&FlowKey, u32),
    ) -> Option<&Arc<FilterRule>> {
        let confirms = |at: u32| self.rules[at as usize].spec.selects.matches(key, mark);
        self.rules.get(tree.lookup(header, confirms)? as usize)
    }
}

impl Filter {
    /// The first rule that a packet with this mark matches.
    pub fn lookup(&self, key: &FlowKey, mark: u32) -> Option<&Arc<FilterRule>> {
        let confirms = |chunk: &Chunk, number: u32| {
            chunk.rules[number as usize].spec.selects.matches(key, mark)
        };
        if let Some(Header(words)) = header_of_v4(key) {
            let header: Header<V4> = Header(with_mark_word(&words, mark));
            if let Some(half) = self.compiled.as_ref().map(|compiled| &compiled.v4)
                && let Ok(tree) = &half.tree
            {
                return half.lookup(tree, &header, (key, mark));
            }
            self.first(|chunk| chunk.v4.lookup(&header, |number| confirms(chunk, number)))
        } else {
            let Header(words) = header_of_v6(key)?;
            let header: Header<V6> = Header(with_mark_word(&words, mark));
            if let Some(half) = self.compiled.as_ref().map(|compiled| &compiled.v6)
                && let Ok(tree) = &half.tree
            {
                return half.lookup(tree, &header, (key, mark));
            }
            self.first(|chunk| chunk.v6.lookup(&header, |number| confirms(chunk, number)))
        }
    }

    fn first(&self, lookup: impl Fn(&Chunk) -> Option<u32>) -> Option<&Arc<FilterRule>> {
        self.chunks.iter().find_map(|chunk| chunk.rules.get(lookup(chunk)? as usize))
    }

    /// Whether it is worth compiling the rules: there are many, and they have changed since.
    pub fn wants_compiling(&self) -> bool {
        self.compiled.is_none() && self.len() >= MANY
    }

    /// Uses what was compiled. Returns false if the rules have changed since.
    pub(crate) fn install(&mut self, compiled: &Arc<CompiledFilter>) -> bool {
        let is_ours = compiled.is_of(self);
        if is_ours {
            self.compiled = Some(Arc::clone(compiled));
        }
        is_ours
    }

    /// The rules, in order.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<FilterRule>> {
        self.chunks.iter().flat_map(|chunk| &chunk.rules)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.rules.len()).sum()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The rule of a preference.
    pub fn rule(&self, preference: u32) -> Option<&Arc<FilterRule>> {
        let chunk = self.chunks.get(self.chunk_of(preference))?;
        let rule = chunk.rules.binary_search_by_key(&preference, |rule| rule.spec.preference);
        chunk.rules.get(rule.ok()?)
    }

    /// Puts a rule into its place, instead of the one that is there.
    pub(crate) fn set(&mut self, rule: Arc<FilterRule>) {
        let at = self.chunk_of(rule.spec.preference);
        let mut rules = self.chunks.get(at).map_or(Vec::new(), |chunk| chunk.rules.clone());
        match rules.binary_search_by_key(&rule.spec.preference, |rule| rule.spec.preference) {
            Ok(place) => rules[place] = rule,
            Err(place) => rules.insert(place, rule),
        }
        self.replace(at, rules);
    }

    /// Takes a rule out.
    pub(crate) fn remove(&mut self, preference: u32) {
        let at = self.chunk_of(preference);
        let Some(chunk) = self.chunks.get(at) else { return };
        let mut rules = chunk.rules.clone();
        rules.retain(|rule| rule.spec.preference != preference);
        self.replace(at, rules);
    }

    /// Puts these rules in the place of a chunk.
    fn replace(&mut self, at: usize, mut rules: Vec<Arc<FilterRule>>) {
        let rest = match rules.len() > 2 * CHUNK {
            true => rules.split_off(CHUNK),
            false => Vec::new(),
        };
        let parts = [rules, rest].into_iter().filter(|part| !part.is_empty());
        let replaced = at..(at + 1).min(self.chunks.len());
        self.compiled = None;
        self.chunks.splice(replaced, parts.map(|part| Arc::new(Chunk::new(part))));
    }

    /// The chunk that a preference belongs to: the first whose last rule is not before it, else the
    /// last one.
    fn chunk_of(&self, preference: u32) -> usize {
        let is_before = |chunk: &Arc<Chunk>| {
            chunk.rules.last().is_some_and(|last| last.spec.preference < preference)
        };
        self.chunks.partition_point(is_before).min(self.chunks.len().saturating_sub(1))
    }

    /// What of packets its rules read: bits of optional fields, and whether upper-layer fields.
    pub(crate) fn reads(&self) -> (PacketFields, bool) {
        let all = self.chunks.iter().map(|chunk| chunk.reads);
        all.fold((PacketFields::NONE, false), |(bits, upper), (reads, reads_upper)| {
            (bits | reads, upper || reads_upper)
        })
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rules()).finish()
    }
}

/// Every rule of every filter, by slot.
#[derive(Clone)]
pub(crate) struct FilterRules {
    slots: Slots<Arc<FilterRule>>,
    /// Slots without a rule, numbered from 0.
    free: Slots<u32>,
    free_count: u32,
    count: usize,
}

impl FilterRules {
    pub(crate) const fn new() -> Self {
        Self { slots: Slots::new(), free: Slots::new(), free_count: 0, count: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn get(&self, slot: FilterSlot) -> Option<&Arc<FilterRule>> {
        self.slots.get(slot.0)
    }

    /// The slot that the next new rule gets.
    pub(crate) fn next_slot(&self) -> FilterSlot {
        let last = self.free_count.checked_sub(1).and_then(|last| self.free.get(last));
        FilterSlot(last.copied().unwrap_or(self.count as u32))
    }

    /// Adds the rule that has the next slot, or replaces the one that has its slot.
    pub(crate) fn set(&mut self, rule: Arc<FilterRule>) {
        if self.get(rule.slot).is_none() {
            self.count += 1;
            if self.free_count > 0 {
                self.free_count -= 1;
                self.free.remove(self.free_count);
            }
        }
        self.slots.set(rule.slot.0, rule);
    }

    pub(crate) fn remove(&mut self, slot: FilterSlot) {
        if self.slots.remove(slot.0).is_some() {
            self.count -= 1;
            self.free.set(self.free_count, slot.0);
            self.free_count += 1;
        }
    }
}
