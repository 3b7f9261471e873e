//! The second connections of decisions that were made for two.
//!
//! Where packets pass through two zones, a decision names the first connection, and the second is
//! found here, by everything that the decision was made of: the packet's key and the decision's own
//! words. So whoever finds one has found what the latest such decision for such packets says. A place
//! may be taken by another flow at any time: then the packet is decided again.

use conntrack::{Named, Reference};
use flow::{CacheMode, CacheSettings};
use packet::KeyHasher;

use crate::cache::key;
use crate::decision::Decision;
use crate::extension::Further;

/// Places that are looked at for a decision.
const WAYS: usize = 4;

/// On a cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Set {
    /// Hashes of all of what the decisions were made of, by way; 0 where there is none.
    checks: [u64; WAYS],
    references: [u64; WAYS],
}

/// A worker's.
pub(crate) struct Pairs {
    /// None until there is one, as most gateways track packets once.
    sets: Box<[Set]>,
    /// How many there are then, a power of two; 0 if no decision is kept.
    count: usize,
    hasher: KeyHasher,
}

impl Pairs {
    /// With room for as many flows as the largest of these tables.
    pub(crate) fn new(caches: &[CacheSettings; 4], secret: u64) -> Self {
        let places = |cache: &CacheSettings| match cache.mode {
            CacheMode::Off => 0,
            CacheMode::On | CacheMode::Auto => cache.buckets as usize,
        };
        let places = caches.iter().map(places).max().unwrap_or_default();
        let count = if places == 0 { 0 } else { places.div_ceil(WAYS).next_power_of_two() };
        Self { sets: Box::default(), count, hasher: KeyHasher::new([secret, 1]) }
    }

    /// What a decision is found by, which is for packets with these words for a key.
    #[inline]
    fn check<const WORDS: usize>(&self, words: &[u64; WORDS], decision: &Decision) -> u64 {
        let mut all = [0; key::V6 + 4];
        all[key::V6 - WORDS..key::V6].copy_from_slice(words);
        all[key::V6..].copy_from_slice(&decision.words());
        self.hasher.hash(&all).max(1)
    }

    /// Of the connections that a decision was made for, the second with whether it translates, if both are
    /// there, one of them translates at most, and there is room for such.
    pub(crate) fn second_of(
        &self,
        decision: &Decision,
        further: &Further,
    ) -> Option<(Reference, bool)> {
        let mut all = further.all(decision.reference());
        let ((first, is_first), (second, is_second)) = (all.next()?, all.next()?);
        let is_usual = all.next().is_none()
            && self.count > 0
            && matches!(first.named(), Named::Connection(..))
            && matches!(second.named(), Named::Connection(..))
            && !(is_first && is_second);
        is_usual.then_some((second, is_second))
    }

    /// Keeps the second connection of a decision.
    pub(crate) fn keep<const WORDS: usize>(
        &mut self,
        words: &[u64; WORDS],
        decision: &Decision,
        Reference(second): Reference,
    ) {
        if self.sets.is_empty() {
            self.sets = vec![Set::default(); self.count].into();
        }
        let check = self.check(words, decision);
        let last = self.sets.len().wrapping_sub(1);
        let Some(set) = self.sets.get_mut(check as usize & last) else { return };
        let place = |wanted: u64| set.checks.iter().position(|there| *there == wanted);
        let way = place(check).or_else(|| place(0)).unwrap_or((check >> 62) as usize);
        (set.checks[way], set.references[way]) = (check, second);
    }

    /// Asks for the memory that [`Pairs::find`] reads.
    #[inline]
    pub(crate) fn prefetch<const WORDS: usize>(&self, words: &[u64; WORDS], decision: &Decision) {
        let check = self.check(words, decision);
        if let Some(set) = self.sets.get(check as usize & self.sets.len().wrapping_sub(1)) {
            packet::prefetch(set);
        }
    }

    /// The second connection of a decision.
    #[inline]
    pub(crate) fn find<const WORDS: usize>(
        &self,
        words: &[u64; WORDS],
        decision: &Decision,
    ) -> Option<Reference> {
        let check = self.check(words, decision);
        let set = self.sets.get(check as usize & self.sets.len().wrapping_sub(1))?;
        let way = set.checks.iter().position(|there| *there == check)?;
        Some(Reference(set.references[way]))
    }

    /// Whether there may be any.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use flow::Associativity;
    use packet::DropReason;

    use super::*;

    fn pairs(buckets: u32) -> Pairs {
        let on = CacheSettings { mode: CacheMode::On, buckets, associativity: Associativity::Four };
        Pairs::new(&[CacheSettings::OFF, on, CacheSettings::OFF, CacheSettings::OFF], 7)
    }

    fn decision(number: u64) -> Decision {
        Decision::drop(DropReason::FlowDrop).of_connection(Reference(number))
    }

    #[test]
    fn one_is_found_by_its_key_and_its_decision_alone() {
        let mut pairs = pairs(64);
        assert!(pairs.is_empty());
        assert_eq!(pairs.find(&[1, 2, 3], &decision(9)), None);
        pairs.keep(&[1, 2, 3], &decision(9), Reference(50));
        assert!(!pairs.is_empty());
        assert_eq!(pairs.find(&[1, 2, 3], &decision(9)), Some(Reference(50)));
        assert_eq!(pairs.find(&[1, 2, 4], &decision(9)), None);
        assert_eq!(pairs.find(&[1, 2, 3], &decision(8)), None);
        // The latest counts.
        pairs.keep(&[1, 2, 3], &decision(9), Reference(51));
        assert_eq!(pairs.find(&[1, 2, 3], &decision(9)), Some(Reference(51)));
    }

    #[test]
    fn others_take_the_place_of_one() {
        let mut pairs = pairs(64);
        let key = |number: u64| [number, number * 7, 3, 4, 5, 6];
        for number in 0..1000 {
            pairs.keep(&key(number), &decision(number), Reference(number));
            let found = pairs.find(&key(number), &decision(number));
            assert_eq!(found, Some(Reference(number)));
        }
        let mut there = 0;
        for number in 0..1000 {
            if let Some(found) = pairs.find(&key(number), &decision(number)) {
                assert_eq!(found, Reference(number));
                there += 1;
            }
        }
        // Fewer than there are places, where hashes share sets.
        assert!((56..=64).contains(&there), "{there}");
    }
}
