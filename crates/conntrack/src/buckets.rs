//! The hash table: from a tuple to where its connection stands.
//!
//! A bucket is a cache line of sixteen slots. A hash has two buckets, both of one shard. Lookups
//! read; who writes holds the shard's lock.

use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, allocate, lock};

pub(crate) const SLOTS: usize = 16;

#[derive(Default)]
#[repr(C, align(64))]
struct Bucket([AtomicU32; SLOTS]);

/// The directions of a connection that a slot is for, and where the connection is.
///
/// Bits 0-21 index, 22 original direction, 23 reply direction, 24-31 part of the hash; 0 is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

pub(crate) const ORIGINAL: u32 = 1 << 22;
pub(crate) const REPLY: u32 = 1 << 23;

impl Slot {
    fn new(hash: u64, index: u32, directions: u32) -> Self {
        Self(tag(hash) | directions | index)
    }

    pub(crate) fn index(self) -> u32 {
        self.0 & (ORIGINAL - 1)
    }

    pub(crate) fn is_for(self, direction: u32) -> bool {
        self.0 & direction != 0
    }
}

fn tag(hash: u64) -> u32 {
    (hash as u32) << 24
}

/// Maps a number of 32 bits to one below `count`.
fn scale(number: u32, count: u32) -> u32 {
    ((u64::from(number) * u64::from(count)) >> 32) as u32
}

pub(crate) struct Buckets {
    all: Box<[Bucket]>,
    shards: Box<[Mutex<()>]>,
    /// Buckets of a shard.
    each: u32,
}

/// What keeps shards locked.
pub(crate) type Locked<'a> = (MutexGuard<'a, ()>, Option<MutexGuard<'a, ()>>);

impl Buckets {
    /// For so many connections with two slots each, half of all slots. `None` without memory.
    pub(crate) fn new(connections: u32) -> Option<Self> {
        let buckets = (connections.saturating_mul(4) as usize).div_ceil(SLOTS).max(1) as u32;
        let shards = (buckets / 64).clamp(1, 64).next_power_of_two();
        let each = buckets.div_ceil(shards);
        let mut locks = Vec::new();
        locks.resize_with(shards as usize, || Mutex::new(()));
        Some(Self { all: allocate((each * shards) as usize)?, shards: locks.into(), each })
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.all)
    }

    fn shard(&self, hash: u64) -> usize {
        (hash >> 56) as usize & (self.shards.len() - 1)
    }

    #[inline]
    fn pair(&self, hash: u64) -> [&Bucket; 2] {
        let base = self.shard(hash) as u32 * self.each;
        let at = |part: u64| &self.all[(base + scale(part as u32, self.each)) as usize];
        [at(hash >> 8), at(hash >> 24)]
    }

    /// Locks the shards of two hashes, in order, so that two threads never wait for each other.
    pub(crate) fn lock(&self, hashes: [u64; 2]) -> Locked<'_> {
        let [one, other] = hashes.map(|hash| self.shard(hash));
        let first = lock(&self.shards[one.min(other)]);
        let second = (one != other).then(|| lock(&self.shards[one.max(other)]));
        (first, second)
    }

    /// Asks for the memory that the buckets of a hash are in.
    pub(crate) fn prefetch(&self, hash: u64) {
        for bucket in self.pair(hash) {
            packet::prefetch(bucket);
        }
    }

    /// The first slot of this hash that `accept` takes. At most 32 have its part of the hash.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        hash: u64,
        mut accept: impl FnMut(Slot) -> Option<T>,
    ) -> Option<T> {
        let (tag, [first, second]) = (tag(hash), self.pair(hash));
        packet::prefetch(second);
        for bucket in [first, second] {
            for slot in &bucket.0 {
                let slot = slot.load(Ordering::Acquire);
                if (slot ^ tag) >> 24 == 0
                    && slot & (ORIGINAL | REPLY) != 0
                    && let Some(found) = accept(Slot(slot))
                {
                    return Some(found);
                }
            }
            if core::ptr::eq(first, second) {
                break;
            }
        }
        None
    }

    /// Puts a slot into the emptier bucket. False if both are full. The shard is locked.
    pub(crate) fn insert(&self, hash: u64, index: u32, directions: u32) -> bool {
        let empty = |bucket: &Bucket| {
            let all = bucket.0.iter().enumerate();
            let mut empty = all.filter(|(_, slot)| slot.load(Ordering::Relaxed) == 0);
            empty.next().map(|(at, _)| (empty.count(), at))
        };
        let [first, second] = self.pair(hash);
        let (bucket, at) = match (empty(first), empty(second)) {
            (Some(one), Some(other)) if other.0 > one.0 => (second, other.1),
            (Some(one), _) => (first, one.1),
            (None, Some(other)) => (second, other.1),
            (None, None) => return false,
        };
        bucket.0[at].store(Slot::new(hash, index, directions).0, Ordering::Release);
        true
    }

    /// Takes a slot out. The shard is locked.
    pub(crate) fn remove(&self, hash: u64, index: u32, directions: u32) {
        let slot = Slot::new(hash, index, directions).0;
        for bucket in self.pair(hash) {
            if let Some(place) = bucket.0.iter().find(|place| place.load(Ordering::Relaxed) == slot)
            {
                place.store(0, Ordering::Release);
                return;
            }
        }
    }
}
