//! The second connections of decisions that were made for two.
//!
//! Where packets pass through two zones, a decision names the first connection, and the second is
//! found here, by everything that the decision was made of: the packet's key and the decision's own
//! words. So whoever finds one has found what the latest such decision for such packets says. A place
//! may be taken by another flow at any time: then the packet is decided again.

use conntrack::{Named, Reference};
use flow::{CacheMode, CacheSettings, CacheTable, CacheTooLarge, Memory};
use packet::KeyHasher;

use crate::cache::key;
use crate::decision::Decision;
use crate::extension::Further;

/// Places that are looked at for a decision.
const WAYS: usize = 4;

/// Words of a set, which is a cache line: by way, the hash of all of what a decision was made of, 0 where
/// there is none; and behind these, by way, the second connection.
const WORDS: usize = 2 * WAYS;

/// A worker's.
pub(crate) struct Pairs {
    /// A power of two of sets. The system gives the memory when there is one: most gateways track packets
    /// once. None if no decision is kept.
    sets: Option<Memory<WORDS>>,
    /// Whether there was one.
    is_used: bool,
    hasher: KeyHasher,
}

impl Pairs {
    /// With room for twice as many flows as the largest of these tables: both directions are here.
    pub(crate) fn new(caches: &[CacheSettings; 4], secret: u64) -> Result<Self, CacheTooLarge> {
        use CacheTable::{V4Inbound, V4Outbound, V6Inbound, V6Outbound};
        let of = |cache: &CacheSettings| match cache.mode {
            CacheMode::Off => 0,
            CacheMode::On | CacheMode::Auto => u64::from(cache.buckets),
        };
        let tables = [V4Outbound, V4Inbound, V6Outbound, V6Inbound];
        let largest = caches.iter().map(of).zip(tables).max_by_key(|(buckets, _)| *buckets);
        let sets = match largest {
            None | Some((0, _)) => None,
            Some((buckets, table)) => {
                let count = (2 * buckets).div_ceil(WAYS as u64).next_power_of_two();
                let bytes = count * 8 * WORDS as u64;
                let refused = CacheTooLarge { table, buckets, bytes };
                Some(Memory::new(count).ok_or(refused)?)
            }
        };
        Ok(Self { sets, is_used: false, hasher: KeyHasher::new([secret, 1]) })
    }

    /// The set of a decision.
    #[inline]
    fn set(&self, check: u64) -> Option<&[u64; WORDS]> {
        let sets = self.sets.as_ref().filter(|_| self.is_used)?.read();
        sets.get(check as usize & sets.len().wrapping_sub(1))
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
            && self.sets.is_some()
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
        let check = self.check(words, decision);
        self.is_used = true;
        let Some(sets) = self.sets.as_mut().map(Memory::rows) else { return };
        let last = sets.len().wrapping_sub(1);
        let Some(set) = sets.get_mut(check as usize & last) else { return };
        let place = |wanted: u64| set[..WAYS].iter().position(|there| *there == wanted);
        let way = place(check).or_else(|| place(0)).unwrap_or((check >> 62) as usize);
        (set[way], set[WAYS + way]) = (check, second);
    }

    /// Asks for the memory that [`Pairs::find`] reads.
    #[inline]
    pub(crate) fn prefetch<const WORDS: usize>(&self, words: &[u64; WORDS], decision: &Decision) {
        if let Some(set) = self.set(self.check(words, decision)) {
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
        let set = self.set(check)?;
        let way = set[..WAYS].iter().position(|there| *there == check)?;
        Some(Reference(set[WAYS + way]))
    }

    /// Whether there may be any.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_used
    }
}

#[cfg(test)]
mod tests {
    use flow::Associativity;
    use packet::DropReason;

    use super::*;

    fn pairs(buckets: u32) -> Pairs {
        let on = CacheSettings { mode: CacheMode::On, buckets, associativity: Associativity::Four };
        Pairs::new(&[CacheSettings::OFF, on, CacheSettings::OFF, CacheSettings::OFF], 7).unwrap()
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
        assert!((112..=128).contains(&there), "{there}");
    }
}
