//! The hash of the decision cache, and of the connection table.

use siphasher::sip::SipHasher13;

/// Words that a key has at most, and one, so that their number may be odd.
const WORDS: usize = 18;

/// Hashes keys, with numbers that nobody outside knows.
///
/// The sum is NH (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: Fast and Secure Message
/// Authentication", 1999) over words of 64 bits: whatever two keys somebody chooses who does not
/// know the secrets, their sums of 128 bits are equal with a probability of 2^-64. The
/// multiplications that follow bring it down to 64 bits; they are not linear, so that who has found
/// two keys that share a bucket, by timing say, cannot make more of them from their difference.
#[derive(Clone)]
pub struct KeyHasher {
    secrets: [u64; WORDS],
    last: u64,
}

impl KeyHasher {
    /// With the numbers that follow from these.
    pub fn new(secret: [u64; 2]) -> Self {
        let expand = SipHasher13::new_with_keys(secret[0], secret[1]);
        let number = |at: u64| expand.hash(&at.to_le_bytes());
        Self { secrets: core::array::from_fn(|at| number(at as u64)), last: number(101) | 1 }
    }

    /// The hash of a key.
    #[inline(always)]
    pub fn hash<const KEY: usize>(&self, key: &[u64; KEY]) -> u64 {
        const { assert!(KEY < WORDS) };
        let mut sum = 0u128;
        let mut at = 0;
        while at < KEY {
            let first = key[at].wrapping_add(self.secrets[at]);
            let second = match at + 1 < KEY {
                true => key[at + 1].wrapping_add(self.secrets[at + 1]),
                false => self.secrets[at + 1],
            };
            sum = sum.wrapping_add(u128::from(first) * u128::from(second));
            at += 2;
        }
        let (high, low) = ((sum >> 64) as u64, sum as u64);
        let product = u128::from(low ^ high.rotate_left(32)) * u128::from(self.last);
        (product >> 64) as u64 ^ product as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that somebody found to fall into one bucket do so under this secret only.
    #[test]
    fn buckets_are_others_under_another_secret() {
        let (one, other) = (KeyHasher::new([1, 0]), KeyHasher::new([1, 1]));
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
        let hasher = KeyHasher::new([3, 9]);
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
        let hasher = KeyHasher::new([4, 9]);
        let mut buckets = vec![0u32; 1024];
        for at in 0..65_536u64 {
            buckets[(hasher.hash(&[at << 32 | 0x0a00_0001, at % 7, 0]) & 1023) as usize] += 1;
        }
        assert!(buckets.iter().all(|count| (20..=120).contains(count)), "{buckets:?}");
    }
}
