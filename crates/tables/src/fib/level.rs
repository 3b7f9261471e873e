//! Eight bits of an address, decided by one read.

use std::sync::Arc;

/// Address bits that one level decides.
pub(super) const BITS: u8 = 8;

/// Prefixes of up to eight bits, and for each value of an octet the longest that holds it.
///
/// Prefixes are numbered as in a heap: 1 is the one of no bits, `2 n` and `2 n + 1` are `n` with a
/// bit more, 256 to 511 have all eight.
#[derive(Clone)]
pub(super) struct Level<V> {
    /// By octet: where the value of its longest prefix stands, plus 1; 0 if no prefix holds it.
    longest: [u16; 256],
    /// Which prefixes have a value.
    prefixes: [u64; 8],
    /// The values, in the prefixes' order.
    values: Arc<[V]>,
}

impl<V: Clone> Level<V> {
    pub(super) fn new() -> Self {
        Self { longest: [0; 256], prefixes: [0; 8], values: Arc::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of the longest prefix that holds `octet`.
    #[inline(always)]
    pub(super) fn lookup(&self, octet: u8) -> Option<&V> {
        // Of no prefix, this is past the end.
        self.values.get(usize::from(self.longest[usize::from(octet)].wrapping_sub(1)))
    }

    /// The value of the prefix of this number.
    pub(super) fn get(&self, number: u16) -> Option<&V> {
        self.has(number).then(|| &self.values[self.rank(number)])
    }

    /// Sets the value of a prefix. Returns the one it had.
    pub(super) fn insert(&mut self, number: u16, value: V) -> Option<V> {
        let at = self.rank(number);
        if self.has(number) {
            return Some(core::mem::replace(&mut Arc::make_mut(&mut self.values)[at], value));
        }
        self.prefixes[word(number)] |= bit(number);
        self.values = super::with_inserted(&self.values, at, value);
        self.find_longest();
        None
    }

    /// Removes a prefix. Returns the value it had.
    pub(super) fn remove(&mut self, number: u16) -> Option<V> {
        let value = self.get(number)?.clone();
        self.values = super::with_removed(&self.values, self.rank(number));
        self.prefixes[word(number)] &= !bit(number);
        self.find_longest();
        Some(value)
    }

    fn has(&self, number: u16) -> bool {
        self.prefixes[word(number)] & bit(number) != 0
    }

    /// Where the value of a prefix stands, or would stand.
    fn rank(&self, number: u16) -> usize {
        let before = self.prefixes[..word(number)].iter().map(|word| word.count_ones());
        let beside = self.prefixes[word(number)] & (bit(number) - 1);
        (before.sum::<u32>() + beside.count_ones()) as usize
    }

    fn find_longest(&mut self) {
        let mut longest = [0; 256];
        // Longer prefixes have higher numbers, so that they come later.
        for (at, number) in (1..512).filter(|number| self.has(*number)).enumerate() {
            let below = BITS - number.ilog2() as u8;
            let first = (usize::from(number) << below) - 256;
            longest[first..first + (1 << below)].fill(at as u16 + 1);
        }
        self.longest = longest;
    }
}

/// The number of the prefix of the first `length` bits, at most eight, of `octet`.
pub(super) fn number(octet: u8, length: u8) -> u16 {
    (256 + u16::from(octet)) >> (BITS - length)
}

/// The octet that the prefix of this number begins with, and its length.
pub(super) fn prefix(number: u16) -> (u8, u8) {
    let length = number.ilog2() as u8;
    ((number << (BITS - length)) as u8, length)
}

fn word(number: u16) -> usize {
    usize::from(number / 64)
}

fn bit(number: u16) -> u64 {
    1 << (number % 64)
}
