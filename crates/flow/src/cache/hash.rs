//! The hash of the decision cache.

use siphasher::sip::SipHasher13;

/// Words of 32 bits that a key has at most.
const WORDS: usize = 12;

/// Hashes keys, with multipliers that nobody outside knows.
///
/// The sum is multilinear (Lemire, Kaser, "Strongly Universal String Hashing is Fast", 2014):
/// whatever two keys somebody chooses who does not know the multipliers, the upper halves of their
/// sums are equal with a probability of 2^-32. Who has found two keys that share a bucket, by
/// timing say, could make more of them from their difference, as the sum is linear; the
/// multiplication that follows is not, and only equal sums stay equal.
#[derive(Clone)]
pub(super) struct Hasher {
    multipliers: [u64; WORDS],
    addend: u64,
    last: u64,
}

impl Hasher {
    pub(super) fn new(secret: u64) -> Self {
        let expand = SipHasher13::new_with_keys(secret, 0x6869_7470_6174_6821);
        let number = |at: u64| expand.hash(&at.to_le_bytes());
        Self {
            multipliers: core::array::from_fn(|at| number(at as u64)),
            addend: number(100),
            last: number(101) | 1,
        }
    }

    #[inline(always)]
    pub(super) fn hash<const KEY: usize>(&self, key: &[u64; KEY]) -> u64 {
        const { assert!(2 * KEY <= WORDS) };
        let mut sum = self.addend;
        for (at, word) in key.iter().enumerate() {
            let (low, high) = (word & 0xffff_ffff, word >> 32);
            sum = sum.wrapping_add(low.wrapping_mul(self.multipliers[2 * at]));
            sum = sum.wrapping_add(high.wrapping_mul(self.multipliers[2 * at + 1]));
        }
        let product = u128::from(sum) * u128::from(self.last);
        (product >> 64) as u64 ^ product as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that somebody found to fall into one bucket do so under this secret only.
    #[test]
    fn buckets_are_others_under_another_secret() {
        let (one, other) = (Hasher::new(1), Hasher::new(2));
        let aimed: Vec<[u64; 3]> = (0..4_000_000u64)
            .map(|at| [at, at * 3, 7])
            .filter(|key| one.hash(key) % 4096 == 5)
            .take(512)
            .collect();
        assert_eq!(aimed.len(), 512);
        let mut buckets = vec![0; 4096];
        aimed.iter().for_each(|key| buckets[(other.hash(key) % 4096) as usize] += 1);
        assert!(buckets.iter().max() <= Some(&6), "{:?}", buckets.iter().max());
    }

    /// Every bit of a key matters, alone and with another.
    #[test]
    fn keys_that_differ_little_differ_in_hash() {
        let hasher = Hasher::new(3);
        let key = [0x0a00_0001_0a00_0002, 0x1234_0050_0600_0000, 0];
        for bit in 0..192 {
            let mut near = key;
            near[bit / 64] ^= 1 << (bit % 64);
            assert_ne!(hasher.hash(&near), hasher.hash(&key));
            for other in 0..bit {
                let mut nearer = near;
                nearer[other / 64] ^= 1 << (other % 64);
                assert_ne!(hasher.hash(&nearer) >> 32, hasher.hash(&near) >> 32, "{bit} {other}");
            }
        }
    }

    /// Addresses and ports in sequence fill buckets evenly.
    #[test]
    fn sequences_spread() {
        let hasher = Hasher::new(4);
        let mut buckets = vec![0u32; 1024];
        for at in 0..65_536u64 {
            buckets[(hasher.hash(&[at << 32 | 0x0a00_0001, at % 7, 0]) & 1023) as usize] += 1;
        }
        assert!(buckets.iter().all(|count| (20..=120).contains(count)), "{buckets:?}");
    }
}
