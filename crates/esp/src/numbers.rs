//! Sequence numbers for what is sent under one key, and how far they may be used.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The last sequence number there is. Extended sequence numbers are not used, so no packet follows
/// it (RFC 4303 section 3.3.3).
pub(crate) const LAST: u64 = u32::MAX as u64;

/// The sequence numbers of a key. All SAs with that key take theirs from here, so that none is
/// used twice; nothing is locked.
///
/// Either every number may be used, or those that were [allowed](Numbers::allow): whoever keeps the
/// numbers of keys over a restart allows what is written down already.
pub struct Numbers {
    /// The number given last. May pass [`LAST`], and then stands for it.
    last: AtomicU64,
    /// The last number that may be used.
    limit: AtomicU64,
    /// Above this one it is time to allow more.
    low: AtomicU64,
    /// Whether more were asked for since they were last allowed.
    has_asked: AtomicBool,
    /// Who allows more knows them by it.
    place: u32,
    iv_mask: u64,
}

/// Numbers taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The number before the first of them.
    pub(crate) before: u64,
    /// None above this one may be used.
    pub(crate) limit: u64,
    /// Whether it is time to allow more. Said once.
    pub(crate) asks: bool,
}

impl Numbers {
    /// Numbers after `last`, all of which may be used.
    ///
    /// IVs that must not repeat are the number exclusive-or `iv_mask`, as in Linux's seqiv (RFC
    /// 4106 section 3.1): where no number repeats, no IV does.
    pub fn unlimited(last: u32, iv_mask: u64) -> Self {
        Self::new(last.into(), u64::MAX, iv_mask, 0)
    }

    /// Numbers after `last`, none of which may be used before it is allowed. Whoever allows them
    /// knows them by `place`.
    pub fn reserved(last: u32, iv_mask: u64, place: u32) -> Self {
        Self::new(last.into(), last.into(), iv_mask, place)
    }

    fn new(last: u64, limit: u64, iv_mask: u64, place: u32) -> Self {
        Self {
            last: AtomicU64::new(last),
            limit: AtomicU64::new(limit),
            low: AtomicU64::new(limit),
            has_asked: AtomicBool::new(false),
            place,
            iv_mask,
        }
    }

    /// What they are known by.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// The number given last.
    pub fn last(&self) -> u32 {
        self.last.load(Ordering::Relaxed).min(LAST) as u32
    }

    /// The last number that may be used.
    pub fn allowed(&self) -> u32 {
        self.limit.load(Ordering::Relaxed).min(LAST) as u32
    }

    /// Gives no number up to `last` any more.
    pub fn skip(&self, last: u32) {
        self.last.fetch_max(last.into(), Ordering::Relaxed);
    }

    /// Allows the numbers up to `limit`. More are asked for once half of those left are used.
    pub fn allow(&self, limit: u32) {
        let limit = u64::from(limit).max(self.limit.load(Ordering::Relaxed));
        let left = limit.saturating_sub(self.last.load(Ordering::Relaxed));
        // Behind the last number of all, nothing is to be allowed any more: the SA is exhausted.
        let (limit, low) =
            if limit >= LAST { (u64::MAX, u64::MAX) } else { (limit, limit - left / 2) };
        self.low.store(low, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        self.has_asked.store(false, Ordering::Relaxed);
    }

    /// Takes the next `count` numbers. Relaxed: the number itself is all that threads agree on, and
    /// a limit that is seen late refuses a packet, and never lets one pass.
    #[inline]
    pub(crate) fn take(&self, count: u64) -> Taken {
        let limit = self.limit.load(Ordering::Relaxed);
        let last = self.last.load(Ordering::Relaxed);
        if last + count > self.low.load(Ordering::Relaxed) {
            return self.take_last(count, limit, last);
        }
        // Past the end this goes on counting, and would take longer than hardware lasts to wrap 64
        // bits. Past the limit it goes by a batch for each worker at most.
        Taken { before: self.last.fetch_add(count, Ordering::Relaxed), limit, asks: false }
    }

    /// The same, where more numbers are to be asked for. A number that may not be used is not
    /// taken, so that refused packets use none up.
    #[cold]
    fn take_last(&self, count: u64, limit: u64, last: u64) -> Taken {
        let asks = count > 0 && !self.has_asked.swap(true, Ordering::Relaxed);
        if last >= limit {
            return Taken { before: last, limit, asks };
        }
        Taken { before: self.last.fetch_add(count, Ordering::Relaxed), limit, asks }
    }

    /// The IV of a number, where it must not repeat and may be predicted.
    #[inline]
    pub(crate) fn iv(&self, number: u32) -> [u8; 8] {
        (u64::from(number) ^ self.iv_mask).to_be_bytes()
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers")
            .field("last", &self.last())
            .field("allowed", &self.allowed())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Takes one number, if it may be used.
    fn one(numbers: &Numbers) -> Option<u64> {
        let taken = numbers.take(1);
        (taken.before < taken.limit.min(LAST)).then_some(taken.before + 1)
    }

    #[test]
    fn only_what_is_allowed_is_used_and_refusals_use_nothing_up() {
        let numbers = Numbers::reserved(100, 0, 0);
        assert!((0..1000).all(|_| one(&numbers).is_none()));
        numbers.allow(103);
        let used: Vec<_> = (0..1000).filter_map(|_| one(&numbers)).collect();
        assert_eq!(used, [101, 102, 103]);
        assert_eq!((numbers.last(), numbers.allowed()), (103, 103));
        numbers.allow(104);
        assert_eq!((one(&numbers), one(&numbers)), (Some(104), None));
        // Less than before takes nothing away, and gives nothing.
        numbers.allow(7);
        assert_eq!(one(&numbers), None);
    }

    #[test]
    fn more_are_asked_for_once_and_in_time() {
        let numbers = Numbers::reserved(0, 0, 0);
        assert!(numbers.take(1).asks && !numbers.take(1).asks);
        numbers.allow(100);
        let asked: Vec<_> = (1..=100).filter(|_| numbers.take(1).asks).collect();
        assert_eq!(asked, [51]);
        numbers.allow(200);
        assert!((0..50).all(|_| !numbers.take(1).asks) && numbers.take(1).asks);
    }

    #[test]
    fn the_last_number_of_all_asks_for_nothing() {
        let numbers = Numbers::reserved(u32::MAX - 2, 0, 0);
        numbers.allow(u32::MAX);
        for _ in 0..2 {
            let taken = numbers.take(1);
            assert!(!taken.asks && taken.before < LAST);
        }
        let taken = numbers.take(1);
        assert!(taken.before >= LAST && taken.before < taken.limit, "exhausted, not unreserved");
    }

    #[test]
    fn what_is_skipped_is_never_given() {
        let numbers = Numbers::reserved(0, 0, 0);
        numbers.allow(100);
        numbers.skip(50);
        assert_eq!(one(&numbers), Some(51));
        numbers.skip(20);
        assert_eq!(one(&numbers), Some(52));
    }

    #[test]
    fn workers_never_share_a_number_nor_pass_the_limit() {
        let numbers = Numbers::reserved(0, 0, 0);
        let used: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let takes = |_| {
                scope.spawn(|| {
                    let mut used = Vec::new();
                    for _ in 0..20_000 {
                        let Taken { before, limit, asks } = numbers.take(7);
                        used.extend((before + 1..=before + 7).filter(|number| *number <= limit));
                        if asks {
                            numbers.allow(numbers.last() + 1000);
                        }
                    }
                    used
                })
            };
            let threads: Vec<_> = (0..4).map(takes).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let all: Vec<_> = used.concat();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert!(all.iter().all(|number| *number <= numbers.limit.load(Ordering::Relaxed)));
    }
}
