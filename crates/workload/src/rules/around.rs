//! Prefixes that lie around few addresses.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::lengths::Pair;
use super::trie::Trie;
use super::{Kind, Options, low_bits};
use crate::splitmix::scrambled;

/// How many rules of [`Kind::Chains`] there are for each pair of hosts.
const RULES_OF_HOSTS: usize = 14;

/// How often a rule of [`Kind::Chains`] has the source of one pair of hosts and the destination of
/// another.
const MIXED: f64 = 0.1;

/// How unevenly the rules of [`Kind::Chains`] lie around its pairs of hosts: 1 is evenly.
const SKEW: f64 = 3.0;

/// The rules that [`Kind::Nested`] was measured with at most.
const MEASURED: usize = 32_639;

/// Where prefixes come from.
pub(super) enum Around {
    /// Two tries.
    Nothing,
    /// Of each length there are few prefixes.
    Few([Few; 2]),
    /// The prefixes of these pairs of hosts.
    Hosts(Vec<[u128; 2]>),
}

impl Around {
    pub(super) fn new(options: &Options, tries: &[Trie; 2], random: &mut ChaCha8Rng) -> Self {
        match options.kind {
            Kind::Nested => {
                // Larger sets than the measured ones have more addresses of each length.
                let more = (options.count / MEASURED).max(1).ilog2().div_ceil(2) as usize;
                let few = |branches| Few { branches, seed: random.random(), v6: options.v6 };
                Self::Few([2, 3].map(|branches| branches + more).map(few))
            }
            Kind::Chains => {
                let width = if options.v6 { 128 } else { 32 };
                // At least so many that hosts alone make up small sets.
                let hosts = (options.count / RULES_OF_HOSTS).max(16);
                let pair = |_| tries.map(|trie| trie.draw(width, random));
                Self::Hosts((0..hosts).map(pair).collect())
            }
            _ => Self::Nothing,
        }
    }

    /// A source and a destination prefix of these lengths, with the lengths.
    pub(super) fn draw(
        &self,
        (source, destination): Pair,
        tries: &[Trie; 2],
        random: &mut ChaCha8Rng,
    ) -> [(u128, u32); 2] {
        let prefixes = match self {
            Self::Nothing => [tries[0].draw(source, random), tries[1].draw(destination, random)],
            Self::Few(few) => [few[0].draw(source, random), few[1].draw(destination, random)],
            Self::Hosts(hosts) => {
                let mut any = || {
                    let part = random.random::<f64>().powf(SKEW);
                    &hosts[((part * hosts.len() as f64) as usize).min(hosts.len() - 1)]
                };
                let pair = any();
                let other = any();
                let other = if random.random_bool(MIXED) { other } else { pair };
                let width = tries[0].width();
                [pair[0] & !low_bits(width - source), other[1] & !low_bits(width - destination)]
            }
        };
        [(prefixes[0], source), (prefixes[1], destination)]
    }
}

/// Prefixes of which there are few of each length. The shortest lengths branch, so that a prefix
/// lies in one of each of these, and in no other: as in the sets that ClassBench makes.
pub(super) struct Few {
    /// How many lengths branch.
    branches: usize,
    seed: u64,
    v6: bool,
}

impl Few {
    /// The lengths that branch: the shortest that there are; of IPv6, the shortest common ones.
    fn branching(&self) -> &'static [u32] {
        let lengths = if self.v6 { &[29, 32, 36, 40, 44, 48] } else { &[1, 2, 3, 4, 5, 6] };
        &lengths[..self.branches.min(lengths.len())]
    }

    /// A prefix of `length` bits: the address with its lower bits cleared.
    fn draw(&self, length: u32, random: &mut ChaCha8Rng) -> u128 {
        let width = if self.v6 { 128 } else { 32 };
        // Global unicast addresses of IPv6 begin with 001 (RFC 4291 section 2.4).
        let (mut bits, mut have) = if self.v6 { (0b001, 3) } else { (0, 0) };
        if length <= have {
            return 0;
        }
        for &branching in self.branching().iter().take_while(|branching| **branching <= length) {
            bits = self.host(bits, have) >> (width - branching) & !1
                | u128::from(random.random::<bool>());
            have = branching;
        }
        if have == length {
            return bits << (width - have);
        }
        // Up to its last bit it is as a host has it, so that those of other lengths lie beside it.
        let host = self.host(bits, have);
        (host ^ 1 << (width - length)) & !low_bits(width - length)
    }

    /// A host in a prefix: one and the same, from which prefixes in the prefix branch off.
    fn host(&self, bits: u128, length: u32) -> u128 {
        let place = scrambled(self.seed ^ scrambled(bits as u64 ^ scrambled(u64::from(length))));
        let noise = u128::from(scrambled(place)) << 64 | u128::from(place);
        let open = if self.v6 { 128 - length } else { 32 - length };
        bits << open | noise & low_bits(open)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn there_are_few_prefixes_of_each_length() {
        for (v6, lengths) in [
            (false, [(0, 1), (1, 2), (2, 4), (3, 8), (4, 8), (17, 8), (32, 8)]),
            (true, [(0, 1), (20, 1), (29, 2), (32, 4), (36, 8), (64, 8), (128, 8)]),
        ] {
            let few = Few { branches: 3, seed: 5, v6 };
            let mut random = ChaCha8Rng::seed_from_u64(1);
            let mut draw = |length| -> HashSet<u128> {
                (0..500).map(|_| few.draw(length, &mut random)).collect()
            };
            let width = if v6 { 128 } else { 32 };
            let branching = draw(few.branching()[2]);
            for (length, count) in lengths {
                let found = draw(length);
                assert_eq!(found.len(), count, "v6 {v6}: of length {length}");
                assert!(found.iter().all(|prefix| prefix & low_bits(width - length) == 0));
                assert!(v6 || found.iter().all(|prefix| prefix >> 32 == 0));
                assert!(!v6 || length == 0 || found.iter().all(|prefix| prefix >> 125 == 1));
                if length > few.branching()[2] {
                    let open = low_bits(width - few.branching()[2]);
                    let inside = found.iter().map(|prefix| prefix & !open).collect::<HashSet<_>>();
                    assert_eq!(inside, branching, "v6 {v6}: around those of length {length}");
                }
            }
        }
    }
}
