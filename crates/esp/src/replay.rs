//! The anti-replay window (RFC 4303 section 3.4.3): lock-free and exact.

use core::fmt;

use thiserror::Error;

#[cfg(not(all(test, feature = "loom")))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(all(test, feature = "loom"))]
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::job::OpenError;
use crate::numbers::LAST;

/// Sequence numbers in a block: as many as one word of the ring has bits for.
const BLOCK: u64 = 32;

/// How many sequence numbers back a packet may be late, itself included. Zero is no protection
/// against replay.
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
    /// No protection against replay: every sequence number passes, any number of times (Linux
    /// `replay-window 0`).
    pub const OFF: Self = Self(0);

    /// The largest, which is also Linux's largest.
    pub const MAX: Self = Self(4096);

    /// A window of `size` packets.
    ///
    /// # Errors
    /// It is larger than [`WindowSize::MAX`].
    pub const fn new(size: u32) -> Result<Self, WindowError> {
        if size > Self::MAX.0 as u32 {
            Err(WindowError { given: size })
        } else {
            Ok(Self(size as u16))
        }
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

/// Larger than any number.
const NEVER: u64 = u64::MAX;

/// Remembers which sequence numbers were seen, for any number of threads at once.
///
/// A ring of words, each for one *block* of 32 numbers: the block's index in the upper half, one
/// bit for each number in the lower. Naming the block in the word is what makes one
/// compare-and-swap enough: a bit can never be set in, or read from, a block that the ring has gone
/// past. `top` follows behind and only ever widens what is refused as too old.
///
/// Either every number may be accepted, or those up to an *edge*: whoever keeps windows over a
/// restart writes down where the next one begins, and moves the edge once that is on the disk.
pub struct ReplayWindow {
    size: u64,
    /// Highest number accepted.
    top: AtomicU64,
    /// No number above this one is accepted.
    edge: AtomicU64,
    /// From this one on it is time to move the edge; [`NEVER`] if that was said.
    low: AtomicU64,
    /// The largest authentic number that was refused for being above the edge.
    beyond: AtomicU64,
    /// Packets that were authentic: accepted, or above the edge. Kept only if there is an edge.
    authentic: AtomicU64,
    /// Whoever moves the edge knows the window by it.
    place: u32,
    /// The number that it began with, if numbers up to there may never have been received.
    left_out: Option<u32>,
    /// A power of two of them, enough that no two blocks that the window touches share a word.
    words: Box<[AtomicU64]>,
}

impl ReplayWindow {
    /// A window in which the numbers up to `seen` were all seen. Number 0 always counts as seen: no
    /// sender uses it (RFC 4303 section 3.3.3).
    pub fn new(size: WindowSize, seen: u32) -> Self {
        Self::make(size, seen, NEVER, 0)
    }

    /// The same, which accepts no number above `edge` before that is [moved](Self::move_edge).
    /// Whoever moves it knows the window by `place`.
    pub fn with_edge(size: WindowSize, seen: u32, edge: u32, place: u32) -> Self {
        let window = Self::make(size, seen, edge.into(), place);
        window.move_edge(edge);
        window
    }

    fn make(size: WindowSize, seen: u32, edge: u64, place: u32) -> Self {
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
        Self {
            size,
            top: AtomicU64::new(seen),
            edge: AtomicU64::new(edge),
            low: AtomicU64::new(NEVER),
            beyond: AtomicU64::new(0),
            authentic: AtomicU64::new(0),
            place,
            left_out: None,
            words: words.collect(),
        }
    }

    /// The same window, whose first number is the edge of one that a crash has ended: the peer may
    /// not have got so far.
    #[must_use]
    pub fn behind_crash(mut self) -> Self {
        self.left_out = Some(self.top());
        self
    }

    /// The lowest number that can be accepted, if the window began behind a crash and no packet
    /// with such a number has come yet.
    pub fn awaits(&self) -> Option<u32> {
        let left_out = self.left_out.filter(|began| self.highest() <= u64::from(*began))?;
        Some(left_out.saturating_add(1))
    }

    /// What it is known by.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// No number above this one is accepted.
    pub fn edge(&self) -> u32 {
        self.edge.load(Ordering::Relaxed).min(LAST) as u32
    }

    /// Accepts numbers up to `edge` from now on: it is on the disk that a window begins there after
    /// a restart. The window asks for another once half of them are used.
    pub fn move_edge(&self, edge: u32) {
        let (edge, highest) = (u64::from(edge), self.highest());
        let (edge, low) = match edge {
            // There is nothing behind it.
            LAST.. => (NEVER, NEVER),
            // Too little already: the next packet asks.
            _ if highest > edge => (edge, 0),
            // Not before there is another authentic one.
            _ => (edge, (edge - (edge - highest) / 2).max(highest + 1)),
        };
        self.edge.store(edge, Ordering::Relaxed);
        self.low.store(low, Ordering::Relaxed);
    }

    /// Accepts no number above `edge` any more, if the edge is larger. A worker that has compared a
    /// number with the former edge may still accept it: wait before that one is forgotten.
    pub fn lower_edge(&self, edge: u32) {
        let (edge, top) = (u64::from(edge), self.highest());
        if self.edge.fetch_min(edge, Ordering::Relaxed) > edge && edge < LAST {
            self.low.store(edge - edge.saturating_sub(top) / 2, Ordering::Relaxed);
        }
    }

    /// The highest number of an authentic packet, accepted or above the edge.
    pub fn wanted(&self) -> u32 {
        self.highest() as u32
    }

    /// How many packets were authentic: accepted, or above the edge. Those that were accepted are
    /// counted by `Self::count`.
    pub fn authentic(&self) -> u64 {
        self.authentic.load(Ordering::Relaxed)
    }

    fn highest(&self) -> u64 {
        self.top.load(Ordering::Relaxed).max(self.beyond.load(Ordering::Relaxed))
    }

    /// Takes note of `accepted` packets. Returns whether it is time to move the edge; that is said
    /// once for each edge.
    #[inline]
    pub(crate) fn count(&self, accepted: u64) -> bool {
        let low = self.low.load(Ordering::Relaxed);
        if self.edge.load(Ordering::Relaxed) != NEVER {
            self.authentic.fetch_add(accepted, Ordering::Relaxed);
        }
        self.top.load(Ordering::Relaxed) >= low
            && low != NEVER
            && self.low.swap(NEVER, Ordering::Relaxed) != NEVER
    }

    /// Takes note of an authentic number that is to be [accepted](Self::accept) in its turn.
    #[cold]
    pub(crate) fn defer(&self, sequence: u32) -> OpenError {
        if u64::from(sequence) > self.edge.load(Ordering::Relaxed) {
            return self.refuse(sequence.into());
        }
        self.note(sequence.into());
        OpenError::Unstored
    }

    /// Counts an authentic packet that is not accepted yet. Its copies are not counted, as anybody
    /// on the way can make them.
    fn note(&self, sequence: u64) {
        let before = self.beyond.fetch_max(sequence, Ordering::Relaxed);
        if sequence > before.max(self.top.load(Ordering::Relaxed)) {
            self.authentic.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Accepts a number that was [above the edge](OpenError::Unstored) when its packet was opened,
    /// as [opening](crate::InboundSa::open) would.
    ///
    /// # Errors
    /// It is above the edge still; or it was accepted meanwhile, or is too old.
    #[cold]
    pub fn accept(&self, sequence: u32) -> Result<(), OpenError> {
        match u64::from(sequence) > self.edge.load(Ordering::Relaxed) {
            // That was taken note of.
            true => Err(OpenError::Unstored),
            false => self.mark(sequence),
        }
    }

    /// Whether it is time to move the edge; that is said once.
    #[cold]
    pub fn asks(&self) -> bool {
        self.count(0)
    }

    /// Takes note of an authentic number above the edge.
    #[cold]
    fn refuse(&self, sequence: u64) -> OpenError {
        self.note(sequence);
        // It asks, unless it has.
        let low = self.low.load(Ordering::Relaxed);
        if low != NEVER {
            let _ = self.low.compare_exchange(low, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        OpenError::Unstored
    }

    /// Whether `sequence` could still be accepted: cheap, and asked before any cryptography.
    #[inline]
    pub(crate) fn check(&self, sequence: u32) -> Result<(), OpenError> {
        let Some((slot, block, bit)) = self.locate(sequence)? else { return Ok(()) };
        judge(slot.load(Ordering::Relaxed), block, bit).map(drop)
    }

    /// Accepts `sequence`, whose packet is authentic, unless it was accepted before, is too old by
    /// now or is above the edge. Of several threads with the same number exactly one is told to go
    /// on.
    #[inline]
    pub(crate) fn mark(&self, sequence: u32) -> Result<(), OpenError> {
        let Some((slot, block, bit)) = self.locate(sequence)? else { return Ok(()) };
        // An edge that is seen late refuses a packet.
        if u64::from(sequence) > self.edge.load(Ordering::Relaxed) {
            return Err(self.refuse(sequence.into()));
        }
        // Relaxed will do: the word is all that is decided, a compare-and-swap always sees its
        // newest value, and nothing else is published through it.
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
    pub fn top(&self) -> u32 {
        // Only 32-bit numbers are ever stored.
        self.top.load(Ordering::Relaxed) as u32
    }

    /// How many numbers back it looks.
    pub fn size(&self) -> WindowSize {
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
        f.debug_struct("ReplayWindow")
            .field("size", &self.size)
            .field("top", &self.top())
            .finish_non_exhaustive()
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
        // Another thread has gone a whole ring, and so more than a window, past this number since
        // the top was read.
        Err(OpenError::TooOld)
    } else if held < block {
        Ok(word(block, bit))
    } else if seen & bit != 0 {
        Err(OpenError::Replayed)
    } else {
        Ok(seen | bit)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use proptest::prelude::*;

    use super::*;

    /// RFC 4303 section 3.4.3 as it is written: remember everything, refuse what is left of the
    /// window or was seen.
    struct Reference {
        size: u64,
        top: u64,
        seen: HashSet<u32>,
    }

    impl Reference {
        fn mark(&mut self, sequence: u32) -> Result<(), OpenError> {
            if self.size == 0 {
                return Ok(());
            }
            if u64::from(sequence) + self.size <= self.top {
                return Err(OpenError::TooOld);
            }
            if sequence == 0 || !self.seen.insert(sequence) {
                return Err(OpenError::Replayed);
            }
            self.top = self.top.max(u64::from(sequence));
            Ok(())
        }
    }

    /// Numbers as attackers and networks make them: around the window's edges, jumps of all sizes,
    /// repeats.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Ahead(u32),
        Behind(u32),
        Anywhere(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0u32..3).prop_map(Step::Ahead),
            2 => (0u32..200).prop_map(Step::Ahead),
            1 => (0u32..20_000).prop_map(Step::Ahead),
            5 => (0u32..200).prop_map(Step::Behind),
            2 => (0u32..10_000).prop_map(Step::Behind),
            1 => any::<u32>().prop_map(Step::Anywhere),
        ];
        prop::collection::vec(step, 1..400)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn the_window_is_a_set(
            size in prop_oneof![0u32..200, 200u32..=4096],
            first in prop_oneof![Just(0u32), 0u32..10_000, (u32::MAX - 10_000)..=u32::MAX],
            steps in steps(),
        ) {
            let window = ReplayWindow::new(WindowSize::new(size).unwrap(), first);
            let mut reference = Reference {
                size: u64::from(size),
                top: u64::from(first),
                seen: (first.saturating_sub(5000)..=first).collect(),
            };
            for step in steps {
                let top = reference.top as u32;
                let sequence = match step {
                    Step::Ahead(by) => top.saturating_add(by),
                    Step::Behind(by) => top.saturating_sub(by),
                    Step::Anywhere(sequence) => sequence,
                };
                let checked = window.check(sequence);
                let marked = window.mark(sequence);
                prop_assert_eq!(checked, marked, "check and mark of {} with {} on top", sequence, top);
                prop_assert_eq!(marked, reference.mark(sequence), "{} with {} on top", sequence, top);
                prop_assert_eq!(u64::from(window.top()), reference.top);
            }
        }
    }

    #[test]
    fn every_number_is_accepted_by_exactly_one_thread() {
        const THREADS: usize = 4;
        const NUMBERS: u32 = 50_000;
        // Threads run apart by less than the window here, so that nothing is ever too old and all
        // must be accepted.
        const STRIDE: u32 = 1000;
        let window = ReplayWindow::new(WindowSize::MAX, 0);
        let accepted: Vec<_> = (0..=NUMBERS).map(|_| AtomicUsize::new(0)).collect();
        let barrier = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (window, accepted, barrier) = (&window, &accepted, &barrier);
                scope.spawn(move || {
                    for from in (1..=NUMBERS).step_by(STRIDE as usize) {
                        barrier.wait();
                        let mut numbers: Vec<_> = (from..from + STRIDE).collect();
                        if thread % 2 == 1 {
                            numbers.reverse();
                        }
                        for number in numbers {
                            match window.check(number).and_then(|()| window.mark(number)) {
                                Ok(()) => {
                                    accepted[number as usize].fetch_add(1, Ordering::Relaxed);
                                }
                                Err(why) => assert_eq!(why, OpenError::Replayed),
                            }
                        }
                    }
                });
            }
        });
        assert!(accepted[1..].iter().all(|count| count.load(Ordering::Relaxed) == 1));
        assert_eq!(window.top(), NUMBERS);
    }

    #[test]
    fn threads_far_apart_never_accept_twice() {
        let window = ReplayWindow::new(WindowSize::new(32).unwrap(), 0);
        let accepted: Vec<_> = (0..100_001).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for number in 1..=100_000 {
                        if window.mark(number).is_ok() {
                            accepted[number as usize].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(accepted.iter().all(|count| count.load(Ordering::Relaxed) <= 1));
        assert_eq!(window.top(), 100_000);
    }

    #[test]
    fn nothing_above_the_edge_is_accepted_and_it_asks_in_time() {
        let sizes = WindowSize::new(64).unwrap();
        let free = ReplayWindow::new(sizes, 10);
        free.mark(u32::MAX).unwrap();
        assert!(!free.count(1), "nobody moves its edge");

        let window = ReplayWindow::with_edge(sizes, 10, 10, 0);
        assert_eq!(window.mark(10), Err(OpenError::Replayed));
        assert!(!window.count(0), "nothing authentic came");
        assert_eq!(window.mark(1000), Err(OpenError::Unstored));
        assert!(window.count(0) && !window.count(0), "said once");
        assert_eq!((window.top(), window.wanted(), window.authentic()), (10, 1000, 1));
        // Refused is not seen: it may come again.
        window.move_edge(1064);
        window.mark(1000).unwrap();
        assert!(!window.count(1));
        window.mark(1031).unwrap();
        assert!(!window.count(1));
        window.mark(1032).unwrap();
        assert!(window.count(1) && !window.count(0));
        assert_eq!(window.mark(1065), Err(OpenError::Unstored));
        assert!(!window.count(0), "asked for already");
        assert_eq!(window.mark(1066), Err(OpenError::Unstored));
        window.move_edge(1065);
        assert!(window.count(0), "used up when it was moved");
        window.mark(1065).unwrap();
        assert_eq!(window.authentic(), 6);

        window.move_edge(9000);
        window.lower_edge(2000);
        assert_eq!((window.mark(2001), window.edge()), (Err(OpenError::Unstored), 2000));
        window.lower_edge(3000);
        assert_eq!(window.edge(), 2000);
        window.move_edge(u32::MAX);
        window.mark(u32::MAX).unwrap();
        assert!(!window.count(1), "nothing is behind the last number");
    }

    #[test]
    fn behind_a_crash_it_says_what_it_awaits_until_that_comes() {
        let size = WindowSize::new(32).unwrap();
        assert_eq!(ReplayWindow::with_edge(size, 70, 70, 0).awaits(), None);
        let window = ReplayWindow::with_edge(size, 70, 70, 0).behind_crash();
        assert_eq!(window.awaits(), Some(71));
        assert_eq!(window.check(30), Err(OpenError::TooOld));
        assert_eq!(window.mark(60), Err(OpenError::Replayed));
        assert_eq!(window.awaits(), Some(71));
        assert_eq!(window.mark(75), Err(OpenError::Unstored));
        assert_eq!(window.awaits(), None, "it has come, and waits for the disk");
    }

    #[test]
    fn without_a_window_there_is_no_edge() {
        let window = ReplayWindow::with_edge(WindowSize::OFF, 10, 10, 0);
        assert_eq!((window.mark(1000), window.mark(5)), (Ok(()), Ok(())));
    }

    #[test]
    fn sizes_are_bounded_and_the_error_says_how() {
        assert_eq!(WindowSize::new(4096), Ok(WindowSize::MAX));
        let error = WindowSize::new(4097).unwrap_err();
        assert_eq!(error.to_string(), "a replay window is 0 (off) to 4096 packets, not 4097");
    }
}

/// Every interleaving of a few threads, by loom: `cargo test -p hitpath-esp --features loom --lib
/// loom`.
#[cfg(all(test, feature = "loom"))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// How often each of `numbers` was accepted when two threads bring all of them at once.
    fn race(size: u32, first: u32, numbers: &'static [u32]) {
        loom::model(move || {
            let window = Arc::new(ReplayWindow::new(WindowSize::new(size).unwrap(), first));
            let other = Arc::clone(&window);
            let accept = move |window: &ReplayWindow| {
                numbers.iter().map(|n| window.mark(*n).is_ok()).collect::<Vec<_>>()
            };
            let thread = thread::spawn(move || accept(&other));
            let here = accept(&window);
            let there = thread.join().unwrap();
            for ((number, here), there) in numbers.iter().zip(here).zip(there) {
                assert!(!(here && there), "{number} was accepted twice");
                let highest = numbers.iter().max().unwrap();
                if number + size > *highest {
                    assert!(here || there, "{number} is in the window and nobody accepted it");
                }
            }
            assert_eq!(window.top(), *numbers.iter().max().unwrap().max(&first));
        });
    }

    #[test]
    fn loom_same_block() {
        race(32, 0, &[1, 2]);
    }

    #[test]
    fn loom_neighbouring_blocks() {
        race(32, 30, &[31, 33]);
    }

    #[test]
    fn loom_the_ring_comes_round() {
        // Two words in the ring: 1 and 65 share one.
        race(32, 0, &[1, 65]);
    }
}
