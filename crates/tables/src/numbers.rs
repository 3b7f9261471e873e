//! Which numbers are in use, so that the lowest free one is found without a look at what has them.

use std::sync::Arc;

/// A set of numbers, a bit for each. A copy shares them; a change copies 8 KiB at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Arc<Vec<u64>>);

impl Numbers {
    pub(crate) fn add(&mut self, number: u16) {
        let (word, bit) = place(number);
        let words = Arc::make_mut(&mut self.0);
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        words[word] |= bit;
    }

    pub(crate) fn remove(&mut self, number: u16) {
        let (word, bit) = place(number);
        if let Some(word) = Arc::make_mut(&mut self.0).get_mut(word) {
            *word &= !bit;
        }
    }

    /// The lowest number from `first` on that is not in the set, if there is one.
    pub(crate) fn lowest_free(&self, first: u16) -> Option<u16> {
        let (word, bit) = place(first);
        // Those below the first one count as used.
        let used = |at: usize| match self.0.get(at).copied().unwrap_or(0) {
            bits if at == word => bits | (bit - 1),
            bits => bits,
        };
        let last = usize::from(u16::MAX) / BITS;
        let at = (word..=last).find(|at| used(*at) != u64::MAX)?;
        u16::try_from(at * BITS + used(at).trailing_ones() as usize).ok()
    }
}

const BITS: usize = u64::BITS as usize;

fn place(number: u16) -> (usize, u64) {
    let number = usize::from(number);
    (number / BITS, 1 << (number % BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_lowest_free_number_is_found(
            steps in proptest::collection::vec((prop_oneof![0..200_u16, 65_400..=u16::MAX], any::<bool>()), 0..400),
            firsts in proptest::collection::vec(prop_oneof![0..200_u16, 65_400..=u16::MAX], 10),
        ) {
            let (mut numbers, mut naive) = (Numbers::default(), BTreeSet::new());
            for (number, is_added) in steps {
                match is_added {
                    true => (numbers.add(number), naive.insert(number)),
                    false => (numbers.remove(number), naive.remove(&number)),
                };
            }
            for first in firsts {
                let expected = (first..=u16::MAX).find(|number| !naive.contains(number));
                prop_assert_eq!(numbers.lowest_free(first), expected);
            }
        }
    }

    #[test]
    fn all_numbers_may_be_used() {
        let mut numbers = Numbers::default();
        (0..=u16::MAX).for_each(|number| numbers.add(number));
        assert_eq!(numbers.lowest_free(0), None);
        numbers.remove(u16::MAX);
        assert_eq!(numbers.lowest_free(1024), Some(u16::MAX));
    }
}
