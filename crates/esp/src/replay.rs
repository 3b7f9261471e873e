//! The anti-replay window (RFC 4303 section 3.4.3): lock-free and exact.

use core::fmt;

use thiserror::Error;

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::job::OpenError;

/// Sequence numbers in a block: as many as one word of the ring has bits for.
const BLOCK: u64 = 32;

/// How many sequence numbers back a packet may be late, itself included. Zero is no protection against replay.
///
/// RFC 4303 section 3.4.3 asks for 32 at least and prefers 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowSize(u16);

/// The window asked for is larger than is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a replay window is 0 (off) to {} packets, not {given}", WindowSize::MAX.0)]
pub struct WindowError {
    /// Size asked for.
    pub given: u32,
}

impl WindowSize {
    /// No protection against replay: every sequence number passes, any number of times (Linux `replay-window 0`).
    pub const OFF: Self = Self(0);

    /// The largest, which is also Linux's largest.
    pub const MAX: Self = Self(4096);

    /// A window of `size` packets.
    ///
    /// # Errors
    /// It is larger than [`WindowSize::MAX`].
    pub const fn new(size: u32) -> Result<Self, WindowError> {
        if size > Self::MAX.0 as u32 { Err(WindowError { given: size }) } else { Ok(Self(size as u16)) }
    }

    /// Size in packets.
    pub const fn packets(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for WindowSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Remembers which sequence numbers were seen, for any number of threads at once.
///
/// A ring of words, each for one *block* of 32 numbers: the block's index in the upper half, one bit for each number in the lower.
/// Naming the block in the word is what makes one compare-and-swap enough: a bit can never be set in, or read from, a block that
/// the ring has gone past. `top` follows behind and only ever widens what is refused as too old.
pub(crate) struct ReplayWindow {
    size: u64,
    /// Highest number accepted.
    top: AtomicU64,
    /// A power of two of them, enough that no two blocks that the window touches share a word.
    words: Box<[AtomicU64]>,
}

impl ReplayWindow {
    /// A window in which the numbers up to `seen` were all seen. Number 0 always counts as seen: no sender uses it (RFC 4303
    /// section 3.3.3).
    pub(crate) fn new(size: WindowSize, seen: u32) -> Self {
        let size = u64::from(size.0);
        let seen = u64::from(seen);
        // A window whose ends are in mid-block touches one block more than it would fill.
        let count = if size == 0 { 0 } else { (size.div_ceil(BLOCK) + 1).next_power_of_two() };
        let top_block = seen / BLOCK;
        let words = (0..count).map(|slot| {
            // The youngest block up to the top one that falls into this slot.
            let age = top_block.wrapping_sub(slot) % count;
            AtomicU64::new(match top_block.checked_sub(age) {
                Some(block) if age == 0 => word(block, u64::MAX >> (63 - seen % BLOCK)),
                Some(block) => word(block, u64::from(u32::MAX)),
                // Before the first block: the slot is free, and any block is younger.
                None => 0,
            })
        });
        Self { size, top: AtomicU64::new(seen), words: words.collect() }
    }

    /// Whether `sequence` could still be accepted: cheap, and asked before any cryptography.
    #[inline]
    pub(crate) fn check(&self, sequence: u32) -> Result<(), OpenError> {
        let Some((slot, block, bit)) = self.locate(sequence)? else { return Ok(()) };
        judge(slot.load(Ordering::Relaxed), block, bit).map(drop)
    }

    /// Accepts `sequence`, whose packet is authentic, unless it was accepted before or is too old by now. Of several threads with
    /// the same number exactly one is told to go on.
    #[inline]
    pub(crate) fn mark(&self, sequence: u32) -> Result<(), OpenError> {
        let Some((slot, block, bit)) = self.locate(sequence)? else { return Ok(()) };
        // Relaxed will do: the word is all that is decided, a compare-and-swap always sees its newest value, and nothing
        // else is published through it.
        let mut seen = slot.load(Ordering::Relaxed);
        loop {
            let marked = judge(seen, block, bit)?;
            match slot.compare_exchange_weak(seen, marked, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        let sequence = u64::from(sequence);
        if sequence > self.top.load(Ordering::Relaxed) {
            self.top.fetch_max(sequence, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Highest number accepted so far.
    pub(crate) fn top(&self) -> u32 {
        // Only 32-bit numbers are ever stored.
        self.top.load(Ordering::Relaxed) as u32
    }

    pub(crate) fn size(&self) -> WindowSize {
        // It was made from one.
        WindowSize(self.size as u16)
    }

    /// The number's word, block and bit; nothing where the window is off.
    #[inline]
    fn locate(&self, sequence: u32) -> Result<Option<(&AtomicU64, u64, u64)>, OpenError> {
        if self.size == 0 {
            return Ok(None);
        }
        let sequence = u64::from(sequence);
        if sequence + self.size <= self.top.load(Ordering::Relaxed) {
            return Err(OpenError::TooOld);
        }
        let block = sequence / BLOCK;
        let slot = &self.words[block as usize & (self.words.len() - 1)];
        Ok(Some((slot, block, 1 << (sequence % BLOCK))))
    }
}

impl fmt::Debug for ReplayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayWindow").field("size", &self.size).field("top", &self.top()).finish_non_exhaustive()
    }
}

fn word(block: u64, bits: u64) -> u64 {
    block << 32 | bits
}

/// What the word becomes when `bit` of `block` is accepted, or why it is not.
#[inline]
fn judge(seen: u64, block: u64, bit: u64) -> Result<u64, OpenError> {
    let held = seen >> 32;
    if held > block {
        // Another thread has gone a whole ring, and so more than a window, past this number since the top was read.
        Err(OpenError::TooOld)
    } else if held < block {
        Ok(word(block, bit))
    } else if seen & bit != 0 {
        Err(OpenError::Replayed)
    } else {
        Ok(seen | bit)
    }
}
