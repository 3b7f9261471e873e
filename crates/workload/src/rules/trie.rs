//! Where the addresses of a rule set come from.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::low_bits;
use crate::splitmix::scrambled;

/// How often the less likely of two children is taken.
const SKEW: f64 = 0.35;

/// A binary trie of addresses that is nowhere stored: whether a node has one child or two, and
/// which is the likelier, follows from a hash of the seed and the node. Prefixes of all lengths
/// that are drawn from one trie share its few branches, and so they nest as subnets do and some are
/// drawn much more often than others; this is how ClassBench characterises real sets too (branching
/// probability and skew by level).
#[derive(Clone, Copy, Debug)]
pub(super) struct Trie {
    seed: u64,
    v6: bool,
}

impl Trie {
    pub(super) fn new(seed: u64, v6: bool) -> Self {
        Self { seed, v6 }
    }

    /// Bits of an address.
    pub(super) fn width(&self) -> u32 {
        if self.v6 { 128 } else { 32 }
    }

    /// A prefix of `length` bits: the address with its lower bits cleared.
    pub(super) fn draw(&self, length: u32, random: &mut ChaCha8Rng) -> u128 {
        let width = self.width();
        // Global unicast addresses of IPv6 begin with 001 (RFC 4291 section 2.4).
        let mut path = if self.v6 { 0b001u128 } else { 0 };
        let start = if self.v6 { 3.min(length) } else { 0 };
        path >>= if self.v6 { 3 - start } else { 0 };
        for level in start..length {
            let place = scrambled(path as u64 ^ scrambled((path >> 64) as u64 ^ u64::from(level)));
            let node = scrambled(self.seed ^ place);
            let likelier = node & 1 == 1;
            let branches = (node >> 32) < u64::from(self.branching(level));
            let other = branches && random.random_bool(SKEW);
            path = path << 1 | u128::from(likelier != other);
        }
        path.checked_shl(width - length).unwrap_or(0) & !low_bits(width - length)
    }

    /// The probability that a node at `level` has two children, in units of 2^-32.
    fn branching(&self, level: u32) -> u32 {
        let percent = match (self.v6, level) {
            (false, 0..8) => 70,
            (false, 8..24) => 60,
            (false, _) => 75,
            (true, 0..64) => 30,
            (true, _) => 15,
        };
        u32::MAX / 100 * percent
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn prefixes_have_their_length_and_nest() {
        for v6 in [false, true] {
            let width = if v6 { 128 } else { 32 };
            let trie = Trie::new(7, v6);
            let mut random = ChaCha8Rng::seed_from_u64(1);
            let half: HashSet<_> = (0..4000).map(|_| trie.draw(width / 4, &mut random)).collect();
            let mut inside = 0;
            for _ in 0..1000 {
                let long = trie.draw(width, &mut random);
                inside += usize::from(half.contains(&(long & !low_bits(width - width / 4))));
                assert!(v6 || long >> 32 == 0);
                assert!(!v6 || long >> 125 == 1);
            }
            assert!(half.iter().all(|prefix| prefix & low_bits(width - width / 4) == 0));
            assert!(
                inside > 500,
                "{inside} of 1000 addresses lie in one of {} prefixes",
                half.len()
            );
            assert_eq!(trie.draw(0, &mut random), 0);
        }
    }
}
