//! The clear linear engine: policies in order, tried one after the other.
//!
//! What a try needs lies side by side in memory, by address family; chunks of up to 128 policies are
//! shared between snapshots, and a change copies one.

use core::slice;
use std::sync::Arc;

use classifier::{Chain, Header, Observer, first_observed};
use wire::{Addresses, FlowKey};

use super::Place;
use super::selector::{Compact, Probe, first_match, v4_bounds, v6_bounds};
use super::words::{self, Family, Four, SelectorRule, Six};
use crate::policy::Policy;

/// Policies in a chunk at most.
pub(super) const CHUNK: usize = 128;

/// The policies of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    /// None is empty.
    chunks: Vec<Arc<Chunk>>,
    length: usize,
}

impl List {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// The policies, in order.
    pub(super) fn iter(&self) -> Policies<'_> {
        Policies { chunks: self.chunks.iter(), current: [].iter(), left: self.length }
    }

    /// The policy of this priority and index.
    pub(super) fn policy(&self, place: Place) -> Option<&Arc<Policy>> {
        let (chunk, at) = self.find(place);
        self.chunks.get(chunk)?.policies.get(at).filter(|policy| Place::of(policy) == place)
    }

    /// The first that matches, eight tried at once. `flow` is asked for if words do not tell all.
    #[inline]
    pub(super) fn lookup_header<const WORDS: usize, F: Family<WORDS>>(
        &self,
        header: &Header<WORDS>,
        flow: impl Fn() -> FlowKey,
    ) -> Option<&Arc<Policy>> {
        self.lookup_observed::<WORDS, F>(header, flow, &mut ())
    }

    /// As [`List::lookup_header`]. `observer` is told what is done.
    #[inline]
    pub(super) fn lookup_observed<const WORDS: usize, F: Family<WORDS>>(
        &self,
        header: &Header<WORDS>,
        flow: impl Fn() -> FlowKey,
        observer: &mut impl Observer,
    ) -> Option<&Arc<Policy>> {
        let chains = self.chunks.iter().map(|chunk| (F::chain(chunk), &**chunk));
        let policy = |chunk: &'_ Chunk, rule: u32| chunk.policies[rule as usize].spec.selector;
        let confirms = |chunk, rule| policy(chunk, rule).matches(&flow());
        let found = first_observed(chains, header, confirms, observer);
        found.map(|(chunk, rule)| &chunk.policies[rule as usize])
    }

    /// As [`List::lookup_observed`], of a key.
    #[inline]
    pub(super) fn lookup(
        &self,
        key: &FlowKey,
        observer: &mut impl Observer,
    ) -> Option<&Arc<Policy>> {
        if let Some(header) = Four::header(key) {
            return self.lookup_observed::<{ words::V4_WORDS }, Four>(&header, || *key, observer);
        }
        self.lookup_observed::<{ words::V6_WORDS }, Six>(&Six::header(key)?, || *key, observer)
    }

    /// The first that matches, one tried after the other, with its position, from 1.
    #[inline]
    pub(super) fn lookup_one_by_one(&self, key: &FlowKey) -> Option<(usize, &Arc<Policy>)> {
        match key.addresses {
            Addresses::V4 { source, destination } => {
                let probe = Probe::new(source.to_bits(), destination.to_bits(), key);
                self.scan(|chunk| first_match(&chunk.v4, &probe))
            }
            Addresses::V6 { source, destination } => {
                let probe = Probe::new(source.to_bits(), destination.to_bits(), key);
                self.scan(|chunk| first_match(&chunk.v6, &probe))
            }
        }
    }

    #[inline]
    fn scan(&self, try_chunk: impl Fn(&Chunk) -> Option<u16>) -> Option<(usize, &Arc<Policy>)> {
        let mut before = 0;
        for chunk in &self.chunks {
            if let Some(at) = try_chunk(chunk) {
                let at = usize::from(at);
                return Some((before + at + 1, &chunk.policies[at]));
            }
            before += chunk.policies.len();
        }
        None
    }

    /// The chunk where the policy of `place` is or belongs, and its position there.
    fn find(&self, place: Place) -> (usize, usize) {
        let after = self.chunks.partition_point(|chunk| Place::of(&chunk.policies[0]) <= place);
        let chunk = after.saturating_sub(1);
        let at = self
            .chunks
            .get(chunk)
            .map_or(0, |chunk| chunk.policies.partition_point(|p| Place::of(p) < place));
        (chunk, at)
    }

    /// Puts a policy in its place.
    pub(super) fn insert(&mut self, policy: Arc<Policy>) {
        let (chunk, at) = self.find(Place::of(&policy));
        self.length += 1;
        match self.chunks.get_mut(chunk) {
            None => self.chunks.push(Arc::new(Chunk::new(vec![policy]))),
            Some(found) if found.policies.len() < CHUNK => {
                let found = Arc::make_mut(found);
                found.policies.insert(at, policy);
                found.index();
            }
            // Behind the last one of a full chunk a new one begins, so that policies added in order
            // fill their chunks.
            Some(_) if at == CHUNK => {
                self.chunks.insert(chunk + 1, Arc::new(Chunk::new(vec![policy])));
            }
            Some(found) => {
                let mut policies = found.policies.clone();
                policies.insert(at, policy);
                let second = policies.split_off(policies.len() / 2);
                *found = Arc::new(Chunk::new(policies));
                self.chunks.insert(chunk + 1, Arc::new(Chunk::new(second)));
            }
        }
    }

    /// Takes a policy out, which is there.
    pub(super) fn remove(&mut self, place: Place) -> Arc<Policy> {
        let (chunk, at) = self.find(place);
        self.length -= 1;
        let policy = Arc::make_mut(&mut self.chunks[chunk]).policies.remove(at);
        let left = self.chunks[chunk].policies.len();
        if left == 0 {
            self.chunks.remove(chunk);
            return policy;
        }
        let next = self.chunks.get(chunk + 1).map_or(CHUNK, |next| next.policies.len());
        let joined = (left + next <= CHUNK / 2).then(|| self.chunks.remove(chunk + 1));
        let found = Arc::make_mut(&mut self.chunks[chunk]);
        found.policies.extend(joined.iter().flat_map(|next| next.policies.iter().cloned()));
        found.index();
        policy
    }
}

/// Up to [`CHUNK`] policies, in order.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    policies: Vec<Arc<Policy>>,
    pub(super) chain_v4: Chain<{ words::V4_WORDS }>,
    pub(super) chain_v6: Chain<{ words::V6_WORDS }>,
    v4: Vec<Compact<u32>>,
    v6: Vec<Compact<u128>>,
}

impl Chunk {
    fn new(policies: Vec<Arc<Policy>>) -> Self {
        let (v4, v6) = (Vec::new(), Vec::new());
        let (chain_v4, chain_v6) = (Chain::default(), Chain::default());
        let mut chunk = Self { policies, chain_v4, chain_v6, v4, v6 };
        chunk.index();
        chunk
    }

    /// Makes the selectors follow the policies.
    fn index(&mut self) {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (position, policy) in (0..).zip(&self.policies) {
            match SelectorRule::of(&policy.spec.selector) {
                SelectorRule::V4(rule) => v4.push((position, rule)),
                SelectorRule::V6(rule) => v6.push((position, rule)),
            }
        }
        (self.chain_v4, self.chain_v6) = (Chain::new(v4), Chain::new(v6));
        self.v4.clear();
        self.v6.clear();
        for (position, policy) in self.policies.iter().enumerate() {
            let selector = &policy.spec.selector;
            match (v4_bounds(&selector.source), v4_bounds(&selector.destination)) {
                (Some(source), Some(destination)) => {
                    self.v4.push(Compact::new(source, destination, selector, position as u16));
                }
                _ => {
                    let (source, destination) =
                        (v6_bounds(&selector.source), v6_bounds(&selector.destination));
                    self.v6.push(Compact::new(source, destination, selector, position as u16));
                }
            }
        }
    }
}

/// See [`List::iter`].
pub(super) struct Policies<'a> {
    chunks: slice::Iter<'a, Arc<Chunk>>,
    current: slice::Iter<'a, Arc<Policy>>,
    left: usize,
}

impl<'a> Iterator for Policies<'a> {
    type Item = &'a Arc<Policy>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(policy) = self.current.next() {
                self.left -= 1;
                return Some(policy);
            }
            self.current = self.chunks.next()?.policies.iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Policies<'_> {}

#[cfg(test)]
impl List {
    /// How many policies each chunk holds.
    pub(super) fn chunk_lengths(&self) -> impl Iterator<Item = usize> {
        self.chunks.iter().map(|chunk| chunk.policies.len())
    }
}
