//! The hash table: from a tuple to where its connection stands.
//!
//! A bucket is a cache line of twelve slots, in front of which stand their parts of the hash, so
//! that a lookup compares eight at once. A hash has two buckets, both of one shard. Lookups read; who
//! writes holds the shard's lock.

use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, allocate, lock};

pub(crate) const SLOTS: usize = 12;

#[derive(Default)]
#[repr(C, align(64))]
struct Bucket {
    /// A byte for each slot, 0 if it is empty. A slot is written before its byte, and has it too.
    tags: [AtomicU64; 2],
    slots: [AtomicU32; SLOTS],
}

/// A bit for each byte of a word.
const BYTES: u64 = 0x0101_0101_0101_0101;
/// The bytes of [`Bucket::tags`] that have no slot.
const NO_SLOTS: [u64; 2] = [0, !0 << 32];

/// The highest bits of those bytes of a word that are zero.
const fn zeros(word: u64) -> u64 {
    let low = 0x7f * BYTES;
    !(((word & low) + low) | word | low)
}

impl Bucket {
    /// The first slot with this part of a hash that `accept` takes, which says what of it, and where it is.
    #[inline(always)]
    fn find<T>(&self, tag: u32, mut accept: impl FnMut(Slot) -> Option<T>) -> Option<(usize, T)> {
        let wanted = u64::from(tag >> 24) * BYTES;
        for (number, word) in self.tags.iter().enumerate() {
            let mut bits = zeros(word.load(Ordering::Acquire) ^ wanted);
            while bits != 0 {
                let place = number * 8 + bits.trailing_zeros() as usize / 8;
                bits &= bits - 1;
                let Some(slot) = self.slots.get(place) else { continue };
                let slot = slot.load(Ordering::Acquire);
                if (slot ^ tag) >> 24 == 0
                    && let Some(found) = accept(Slot(slot))
                {
                    return Some((place, found));
                }
            }
        }
        None
    }

    /// Which slots are empty: a bit each, in the byte of its tag. The shard is locked.
    #[inline(always)]
    fn empty(&self) -> [u64; 2] {
        [0, 1].map(|number| zeros(self.tags[number].load(Ordering::Relaxed) | NO_SLOTS[number]))
    }

    /// Writes a slot, or 0. The shard is locked.
    fn set(&self, place: usize, slot: u32) {
        self.slots[place].store(slot, Ordering::Release);
        let (word, shift) = (&self.tags[place / 8], 8 * (place % 8));
        let others = word.load(Ordering::Relaxed) & !(0xff << shift);
        word.store(others | u64::from(slot >> 24) << shift, Ordering::Release);
    }
}

/// The directions of a connection that a slot is for, and where the connection is.
///
/// Bits 0-21 index, 22 original direction, 23 reply direction, 24-31 part of the hash, which is not
/// 0; 0 is empty.
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
    u32::from((hash as u8).max(1)) << 24
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
        self.places(hash).map(|place| &self.all[place])
    }

    /// Where the two buckets of a hash are.
    #[inline]
    pub(crate) fn places(&self, hash: u64) -> [usize; 2] {
        let base = self.shard(hash) as u32 * self.each;
        let at = |part: u64| (base + scale(part as u32, self.each)) as usize;
        [at(hash >> 8), at(hash >> 24)]
    }

    /// Locks the shards of two hashes, in order, so that two threads never wait for each other.
    pub(crate) fn lock(&self, hashes: [u64; 2]) -> Locked<'_> {
        let [one, other] = hashes.map(|hash| self.shard(hash));
        let first = lock(&self.shards[one.min(other)]);
        let second = (one != other).then(|| lock(&self.shards[one.max(other)]));
        (first, second)
    }

    /// Returns when everybody who held a lock at the call has given it back.
    pub(crate) fn wait_for_locks(&self) {
        for shard in &self.shards {
            drop(lock(shard));
        }
    }

    /// Asks for the memory that the buckets of a hash are in.
    pub(crate) fn prefetch(&self, hash: u64) {
        for bucket in self.pair(hash) {
            packet::prefetch(bucket);
        }
    }

    /// The first slot of this hash that `accept` takes. At most 24 have its part of the hash.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        hash: u64,
        mut accept: impl FnMut(Slot) -> Option<T>,
    ) -> Option<T> {
        let (tag, [first, second]) = (tag(hash), self.pair(hash));
        packet::prefetch(second);
        for bucket in [first, second] {
            if let Some((_, found)) = bucket.find(tag, &mut accept) {
                return Some(found);
            }
            if core::ptr::eq(first, second) {
                break;
            }
        }
        None
    }

    /// Puts a slot into the emptier bucket. False if both are full. The shard is locked.
    pub(crate) fn insert(&self, hash: u64, index: u32, directions: u32) -> bool {
        let [first, second] = self.pair(hash).map(|bucket| (bucket, bucket.empty()));
        // The lowest bits of bytes are free for the other word's.
        let count = |[one, other]: [u64; 2]| (one | other >> 7).count_ones();
        let (bucket, [one, other]) = if count(second.1) > count(first.1) { second } else { first };
        let place = match (one, other) {
            (0, 0) => return false,
            (0, other) => 8 + other.trailing_zeros() / 8,
            (one, _) => one.trailing_zeros() / 8,
        };
        bucket.set(place as usize, Slot::new(hash, index, directions).0);
        true
    }

    /// Takes a slot out. The shard is locked.
    pub(crate) fn remove(&self, hash: u64, index: u32, directions: u32) {
        let slot = Slot::new(hash, index, directions);
        let is_it = |there| (there == slot).then_some(());
        for bucket in self.pair(hash) {
            if let Some((place, ())) = bucket.find(slot.0, is_it) {
                return bucket.set(place, 0);
            }
        }
    }
}
