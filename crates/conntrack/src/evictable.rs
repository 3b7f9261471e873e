//! Which connections may make room for others: a bit each, and a bit for each word of these that
//! has any, so that one is found in a few reads however few there are.

use crate::sync::{AtomicU64, Ordering, allocate};

pub(crate) struct Evictable {
    bits: Box<[AtomicU64]>,
    /// A bit for each word of `bits` that may have one set. It is cleared by who finds none.
    summary: Box<[AtomicU64]>,
}

impl Evictable {
    /// `None` without memory.
    pub(crate) fn new(count: u32) -> Option<Self> {
        let words = (count as usize).div_ceil(64);
        Some(Self { bits: allocate(words)?, summary: allocate(words.div_ceil(64))? })
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.bits) + size_of_val(&*self.summary)
    }

    pub(crate) fn set(&self, index: u32) {
        let word = index as usize / 64;
        self.bits[word].fetch_or(1 << (index % 64), Ordering::SeqCst);
        // Who clears it looks at the word afterwards, and does not miss this bit.
        let (summary, bit) = (&self.summary[word / 64], 1 << (word % 64));
        if summary.load(Ordering::SeqCst) & bit == 0 {
            summary.fetch_or(bit, Ordering::SeqCst);
        }
    }

    pub(crate) fn clear(&self, index: u32) {
        self.bits[index as usize / 64].fetch_and(!(1 << (index % 64)), Ordering::SeqCst);
    }

    /// The first from `from` on and below `limit`, or else the first of all below `limit`.
    pub(crate) fn next(&self, from: u32, limit: u32) -> Option<u32> {
        let from = if from < limit { from } else { 0 };
        self.within(from, limit).or_else(|| self.within(0, from))
    }

    fn within(&self, from: u32, limit: u32) -> Option<u32> {
        let mut at = from;
        while at < limit {
            let word = at as usize / 64;
            let set = self.bits[word].load(Ordering::SeqCst) & u64::MAX << (at % 64);
            if set != 0 {
                let found = word as u32 * 64 + set.trailing_zeros();
                return (found < limit).then_some(found);
            }
            at = (self.word_behind(word)? as u32).checked_mul(64)?;
        }
        None
    }

    /// The first word behind this one that has a bit set. Reads a word of the summary for 4,096
    /// connections.
    fn word_behind(&self, word: usize) -> Option<usize> {
        let mut next = word + 1;
        while next < self.bits.len() {
            let group = next / 64;
            let set = self.summary[group].load(Ordering::SeqCst) & u64::MAX << (next % 64);
            if set == 0 {
                next = (group + 1) * 64;
                continue;
            }
            let found = group * 64 + set.trailing_zeros() as usize;
            if self.bits.get(found)?.load(Ordering::SeqCst) != 0 {
                return Some(found);
            }
            // Cleared first and looked at again then: a bit that is set meanwhile is not missed.
            self.summary[group].fetch_and(!(1 << (found % 64)), Ordering::SeqCst);
            if self.bits[found].load(Ordering::SeqCst) != 0 {
                self.summary[group].fetch_or(1 << (found % 64), Ordering::SeqCst);
                return Some(found);
            }
            next = found + 1;
        }
        None
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_next_one_is_that_of_a_set(
            steps in proptest::collection::vec(
                (any::<bool>(), 0u32..10_000, 1u32..=10_000),
                0..200,
            ),
        ) {
            let (evictable, mut set) = (Evictable::new(10_000).unwrap(), BTreeSet::new());
            for (is_set, index, limit) in steps {
                match is_set {
                    true => { evictable.set(index); set.insert(index); }
                    false => { evictable.clear(index); set.remove(&index); }
                }
                let from = if index < limit { index } else { 0 };
                let below = || set.range(..limit);
                let expected = set.range(from..).find(|at| **at < limit).or(below().next());
                prop_assert_eq!(evictable.next(index, limit), expected.copied());
            }
        }
    }
}
