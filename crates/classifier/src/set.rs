//! Rules with ranks and values, and the rules of one owner beside those of all.

use core::iter;

use crate::chain::{Chain, first_observed};
use crate::classifier::Classifier;
use crate::count::Count;
use crate::rule::{Header, Rule};
use crate::tree::{CompleteTree, Effort, Limits, Refused};

/// Rules, each with a rank and a value. Does not change. Of the rules that match a header, the one
/// of the lowest rank is the best; among equal ranks, the one that was given first.
#[derive(Clone, Debug)]
pub struct RuleSet<const WORDS: usize, V> {
    /// Rules have their positions in `entries` for numbers.
    rules: Result<CompleteTree<WORDS>, (Refused, Chain<WORDS>)>,
    /// Ranks and values, in order.
    entries: Vec<(u64, V)>,
}

/// A rule that a header matches.
#[derive(Debug, PartialEq, Eq)]
pub struct Match<'a, V> {
    /// Its rank.
    pub rank: u64,
    /// Its value.
    pub value: &'a V,
}

impl<const WORDS: usize, V> RuleSet<WORDS, V> {
    /// Of rules with their ranks and values, in any order. They are compiled to trees within
    /// [`Limits::of`] them, or put into a chain where that is refused.
    pub fn new(rules: impl IntoIterator<Item = (u64, Rule<WORDS>, V)>, effort: Effort) -> Self {
        let mut all: Vec<_> = rules.into_iter().collect();
        all.sort_by_key(|(rank, ..)| *rank);
        let (rules, entries): (Vec<_>, Vec<_>) =
            all.into_iter().map(|(rank, rule, value)| (rule, (rank, value))).unzip();
        let tree = CompleteTree::new(&rules, Limits::of(rules.len(), WORDS), effort);
        Self { rules: tree.map_err(|why| (why, Chain::new((0..).zip(rules)))), entries }
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Why the rules are tried one after the other, if they are.
    pub fn refused(&self) -> Option<Refused> {
        self.rules.as_ref().err().map(|(why, _)| *why)
    }

    /// The best match. `confirms` is asked about the values of rules that match
    /// [partly](Rule::is_partial).
    pub fn lookup(
        &self,
        header: &Header<WORDS>,
        mut confirms: impl FnMut(&V) -> bool,
    ) -> Option<Match<'_, V>> {
        let confirms = |rule: u32| confirms(&self.entries[rule as usize].1);
        let found = match &self.rules {
            Ok(tree) => tree.lookup(header, confirms),
            Err((_, chain)) => chain.lookup(header, confirms),
        };
        found.map(|rule| self.entry(rule))
    }

    /// All matches, the best first.
    pub fn matches<'a>(
        &'a self,
        header: &'a Header<WORDS>,
        mut confirms: impl FnMut(&V) -> bool + 'a,
    ) -> impl Iterator<Item = Match<'a, V>> + 'a {
        let confirms = move |rule: u32| confirms(&self.entries[rule as usize].1);
        let (mut tree, mut chain) = (None, None);
        match &self.rules {
            Ok(all) => tree = Some(all.matches(header, confirms)),
            Err((_, all)) => chain = Some(all.matches(header, confirms)),
        }
        tree.into_iter().flatten().chain(chain.into_iter().flatten()).map(|rule| self.entry(rule))
    }

    /// The most that a lookup of the best match takes, whatever the header.
    pub fn bound(&self) -> Count {
        match &self.rules {
            Ok(tree) => tree.tree().bound(),
            Err((_, chain)) => Count { probes: 0, rules: chain.bound() as u32 },
        }
    }

    /// What a lookup of the best match takes.
    pub fn work(&self, header: &Header<WORDS>, mut confirms: impl FnMut(&V) -> bool) -> Count {
        let mut confirms = |rule: u32| confirms(&self.entries[rule as usize].1);
        let mut count = Count::default();
        match &self.rules {
            Ok(tree) => _ = tree.tree().lookup_observed(header, confirms, &mut count),
            Err((_, chain)) => {
                let confirms = |(), rule| confirms(rule);
                first_observed([(chain, ())], header, confirms, &mut count);
            }
        }
        count
    }

    fn entry(&self, rule: u32) -> Match<'_, V> {
        let (rank, value) = &self.entries[rule as usize];
        Match { rank: *rank, value }
    }
}

/// The rules of one owner, for example of a VRF, and those that all owners share.
///
/// Ranks decide across both; among equal ranks the owner's rule is better. No owner's rules are in
/// what another's lookup reads, so that none can make another's lookup slower.
#[derive(Debug)]
pub struct Scoped<'a, const WORDS: usize, V> {
    /// The owner's.
    pub own: &'a RuleSet<WORDS, V>,
    /// All owners'.
    pub shared: &'a RuleSet<WORDS, V>,
}

/// What a lookup takes among the owner's rules, and among all owners'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopedWork {
    /// Of the owner's.
    pub own: Count,
    /// Of all owners'.
    pub shared: Count,
}

impl<'a, const WORDS: usize, V> Scoped<'a, WORDS, V> {
    /// The best match. `confirms` is asked about the values of rules that match
    /// [partly](Rule::is_partial).
    pub fn lookup(
        &self,
        header: &Header<WORDS>,
        mut confirms: impl FnMut(&V) -> bool,
    ) -> Option<Match<'a, V>> {
        let found = [self.own, self.shared].map(|set| set.lookup(header, &mut confirms));
        found.into_iter().flatten().min_by_key(|found| found.rank)
    }

    /// All matches, the best first.
    pub fn matches(
        &self,
        header: &'a Header<WORDS>,
        confirms: impl FnMut(&V) -> bool + Clone + 'a,
    ) -> impl Iterator<Item = Match<'a, V>> + 'a {
        let mut own = self.own.matches(header, confirms.clone()).peekable();
        let mut shared = self.shared.matches(header, confirms).peekable();
        iter::from_fn(move || {
            let is_own = match (own.peek(), shared.peek()) {
                (Some(own), Some(shared)) => own.rank <= shared.rank,
                (own, _) => own.is_some(),
            };
            if is_own { own.next() } else { shared.next() }
        })
    }

    /// The most that a lookup of the best match reads, whatever the header.
    pub fn bound(&self) -> ScopedWork {
        ScopedWork { own: self.own.bound(), shared: self.shared.bound() }
    }

    /// What a lookup of the best match reads.
    pub fn work(&self, header: &Header<WORDS>, mut confirms: impl FnMut(&V) -> bool) -> ScopedWork {
        let [own, shared] = [self.own, self.shared].map(|set| set.work(header, &mut confirms));
        ScopedWork { own, shared }
    }
}
