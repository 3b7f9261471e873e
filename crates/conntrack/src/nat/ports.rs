//! The ports of an address that are in use: a bit each, and a bit for each word of these that is
//! full.

use core::ops::RangeInclusive;

use crate::sync::{AtomicU64, Ordering};

const WORDS: usize = if cfg!(all(test, feature = "loom")) { 2 } else { 1024 };
const SUMMARY: usize = WORDS.div_ceil(64);

/// Zeros are no ports in use.
#[cfg_attr(not(all(test, feature = "loom")), derive(zerocopy::FromZeros))]
pub(super) struct Ports {
    bits: [AtomicU64; WORDS],
    full: [AtomicU64; SUMMARY],
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            bits: core::array::from_fn(|_| AtomicU64::new(0)),
            full: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Ports {
    /// Takes a port. False if it is in use.
    pub(super) fn take(&self, port: u16) -> bool {
        let (word, bit) = (usize::from(port) / 64, 1u64 << (port % 64));
        let before = self.bits[word].fetch_or(bit, Ordering::SeqCst);
        if before & bit == 0 && before | bit == u64::MAX {
            let flag = 1 << (word % 64);
            self.full[word / 64].fetch_or(flag, Ordering::SeqCst);
            // One was given back between.
            if self.bits[word].load(Ordering::SeqCst) != u64::MAX {
                self.full[word / 64].fetch_and(!flag, Ordering::SeqCst);
            }
        }
        before & bit == 0
    }

    /// Asks for the memory that says whether a port is in use.
    pub(super) fn prefetch(&self, port: u16) {
        packet::prefetch(&self.bits[usize::from(port) / 64]);
    }

    pub(super) fn give(&self, port: u16) {
        let word = usize::from(port) / 64;
        let before = self.bits[word].fetch_and(!(1 << (port % 64)), Ordering::SeqCst);
        // Who has made it full looks again behind the flag, and sees this port.
        if before == u64::MAX {
            self.full[word / 64].fetch_and(!(1 << (word % 64)), Ordering::SeqCst);
        }
    }

    /// Takes a free port of a range, the first from `from` on, or else the first of all. Reads
    /// sixteen words of the summary at most, and a few words of ports.
    pub(super) fn take_any(&self, range: &RangeInclusive<u16>, from: u16) -> Option<u16> {
        let (first, last) = (*range.start(), *range.end());
        let from = if range.contains(&from) { from } else { first };
        self.take_within(from, last).or_else(|| self.take_within(first, from))
    }

    fn take_within(&self, first: u16, last: u16) -> Option<u16> {
        let mut word = usize::from(first) / 64;
        let end = usize::from(last) / 64;
        while word <= end {
            let mut mask = u64::MAX;
            if word == usize::from(first) / 64 {
                mask &= u64::MAX << (first % 64);
            }
            if word == end {
                mask &= u64::MAX >> (63 - last % 64);
            }
            // Others take ports of this word meanwhile: as often as it has ports.
            for _ in 0..64 {
                let free = !self.bits[word].load(Ordering::SeqCst) & mask;
                if free == 0 {
                    break;
                }
                let port = (word * 64) as u16 + free.trailing_zeros() as u16;
                if self.take(port) {
                    return Some(port);
                }
            }
            word = self.not_full(word + 1)?;
        }
        None
    }

    /// The first word from this one on that has a free port.
    fn not_full(&self, mut word: usize) -> Option<usize> {
        while word < WORDS {
            let open = !self.full[word / 64].load(Ordering::SeqCst) & u64::MAX << (word % 64);
            if open != 0 {
                return Some(word / 64 * 64 + open.trailing_zeros() as usize);
            }
            word = (word / 64 + 1) * 64;
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
        fn ports_are_a_set(
            steps in proptest::collection::vec(
                (0u8..4, any::<u16>(), any::<u16>(), 0u16..300),
                0..300,
            ),
        ) {
            let (ports, mut set) = (Ports::default(), BTreeSet::new());
            for (what, port, from, length) in steps {
                let port = port % 2048;
                match what {
                    0 => prop_assert_eq!(ports.take(port), set.insert(port)),
                    1 => { ports.give(port); set.remove(&port); }
                    _ => {
                        let range = port..=port + length;
                        let from = port + from % (length + 1);
                        let expected = (from..=port + length)
                            .chain(port..=from)
                            .find(|port| !set.contains(port));
                        prop_assert_eq!(ports.take_any(&range, from), expected);
                        set.extend(expected);
                    }
                }
            }
        }
    }

    #[test]
    fn all_ports_are_given_out_once() {
        let (ports, mut seen) = (Ports::default(), BTreeSet::new());
        let range = 0..=u16::MAX;
        for at in 0..=u16::MAX {
            assert!(seen.insert(ports.take_any(&range, at.wrapping_mul(40_503)).unwrap()));
        }
        assert_eq!(ports.take_any(&range, 7), None);
        ports.give(77);
        assert_eq!(ports.take_any(&range, 78), Some(77));
    }
}
