//! Hashes, and which of them there may be.

/// A bit for each hash that there is, and maybe for others: a Bloom filter with one function.
#[derive(Clone, Default)]
pub(super) struct Seen {
    /// A power of two of words.
    bits: Vec<u64>,
    /// How many are set.
    count: usize,
}

/// Bits for each hash, when it is laid out. With half as many it is full.
const SPARSE: usize = 16;

impl Seen {
    /// Empty, with room for so many hashes.
    pub(super) fn for_hashes(count: usize) -> Self {
        let bits = (SPARSE * count).next_power_of_two().max(64);
        Self { bits: vec![0; bits / 64], count: 0 }
    }

    /// Notes a hash. Returns whether there are too many, so that it is to be laid out anew.
    pub(super) fn set(&mut self, hash: u64) -> bool {
        let (at, bit) = self.place(hash);
        if self.bits[at] & bit == 0 {
            self.bits[at] |= bit;
            self.count += 1;
        }
        self.count * SPARSE / 2 > self.bits.len() * 64
    }

    /// Whether a hash may have been noted.
    #[inline]
    pub(super) fn has(&self, hash: u64) -> bool {
        let (at, bit) = self.place(hash);
        self.bits[at] & bit != 0
    }

    #[inline]
    fn place(&self, hash: u64) -> (usize, u64) {
        ((hash >> 6) as usize & (self.bits.len() - 1), 1 << (hash % 64))
    }
}

/// Hashes one more word. It is not keyed: packets only look keys up, and what keys there are users
/// decide.
#[inline]
pub(super) fn fold(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x517c_c1b7_2722_0a95) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}
