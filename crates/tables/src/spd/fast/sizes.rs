//! Which is the largest of many things.

use crate::map::Map;

/// How many things of a kind have which size. A change is little work, and copies are cheap.
#[derive(Clone)]
pub(super) struct Sizes {
    /// By kind and size, from 1.
    counts: Map<u32, u32>,
    /// By kind.
    largest: Map<u32, u32>,
}

impl Sizes {
    pub(super) fn new(secret: u64) -> Self {
        Self { counts: Map::new(secret), largest: Map::new(secret) }
    }

    /// The size of the largest thing of this kind, or 0.
    pub(super) fn largest(&self, kind: u8) -> u32 {
        self.largest.get(&kind.into()).copied().unwrap_or(0)
    }

    /// The sum over all kinds of what the largest is.
    pub(super) fn sum(&self) -> u32 {
        self.largest.iter().map(|(_, size)| size).sum()
    }

    /// A thing of this kind had a size, or was not there if that is 0, and has another.
    pub(super) fn change(&mut self, kind: u8, before: u32, after: u32) {
        if before == after {
            return;
        }
        let key = |size: u32| u32::from(kind) << 24 | size;
        if after > 0 {
            let count = self.counts.get(&key(after)).copied().unwrap_or(0);
            self.counts.insert(key(after), count + 1);
        }
        if before > 0 {
            let count = self.counts.get(&key(before)).copied().unwrap_or(0);
            if count > 1 {
                self.counts.insert(key(before), count - 1);
            } else {
                self.counts.remove(&key(before));
            }
        }
        let largest = self.largest(kind);
        let now = if after > largest {
            after
        } else if before == largest {
            // Sizes change in small steps, so this does not go far down.
            (after..=before).rev().find(|size| self.counts.get(&key(*size)).is_some()).unwrap_or(0)
        } else {
            return;
        };
        if now == 0 {
            self.largest.remove(&kind.into());
        } else {
            self.largest.insert(kind.into(), now);
        }
    }
}
