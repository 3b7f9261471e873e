//! Which short IPv4 prefixes occur in any policy, and with which levels of the other address.

use std::sync::Arc;

use crate::map::Map;

/// By the first 16 bits of an address, for the levels that these bits decide: the levels of the
/// other address that policies have together with the prefix that holds it. A byte is a level, 1 to
/// 3; no prefix is mistaken for another.
#[derive(Clone)]
pub(super) struct Direct {
    pages: Arc<[Arc<Page>; 256]>,
    /// Policies by prefix and level of the other address.
    policies: Map<u32, u32>,
}

type Page = [u32; 256];

impl Direct {
    pub(super) fn new(secret: u64) -> Self {
        let blank = Arc::new([0; 256]);
        Self {
            pages: Arc::new(core::array::from_fn(|_| Arc::clone(&blank))),
            policies: Map::new(secret),
        }
    }

    /// Of the address with these first 16 bits.
    #[inline(always)]
    pub(super) fn levels(&self, first: u16) -> u32 {
        self.pages[usize::from(first >> 8)][usize::from(first & 0xff)]
    }

    /// One policy more has this prefix, of 8 to 16 bits, at `level`, and the other address at level
    /// `other`.
    pub(super) fn add(&mut self, first: u16, length: u8, level: u8, other: u8) {
        let (key, shift) = Self::key(first, length, level, other);
        let before = self.policies.insert(key, 1);
        match before {
            Some(before) => drop(self.policies.insert(key, before + 1)),
            None => self.each(first, length, |levels| *levels |= 1 << shift),
        }
    }

    /// One policy fewer.
    pub(super) fn remove(&mut self, first: u16, length: u8, level: u8, other: u8) {
        let (key, shift) = Self::key(first, length, level, other);
        match self.policies.get(&key).copied() {
            Some(before) if before > 1 => drop(self.policies.insert(key, before - 1)),
            _ => {
                self.policies.remove(&key);
                self.each(first, length, |levels| *levels &= !(1 << shift));
            }
        }
    }

    fn key(first: u16, length: u8, level: u8, other: u8) -> (u32, u8) {
        let number = u32::from(first) >> (16 - length);
        (number << 16 | u32::from(level) << 8 | u32::from(other), 8 * level + other)
    }

    fn each(&mut self, first: u16, length: u8, change: impl FnMut(&mut u32)) {
        let count = 1 << (16 - length);
        let start = usize::from(first & 0xff) & !(count - 1);
        let page = &mut Arc::make_mut(&mut self.pages)[usize::from(first >> 8)];
        Arc::make_mut(page)[start..start + count].iter_mut().for_each(change);
    }
}
