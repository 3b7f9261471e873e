//! Token bucket: a rate, and a burst above it after a pause.

use types::qdisc::Tbf;

use crate::Nanoseconds;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// The bucket. Tokens are billionths of a byte, so that nothing is lost by rounding: a burst of
/// 2^32 bytes has less than 2^62 of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    rate: u64,
    burst: u32,
    tokens: u64,
    last: Nanoseconds,
}

impl Bucket {
    /// A full one.
    pub(crate) fn new(settings: &Tbf, now: Nanoseconds) -> Self {
        let (rate, burst) = (settings.rate.max(1), settings.burst);
        Self { rate, burst, tokens: u64::from(burst) * SECOND, last: now }
    }

    /// Sets another rate and burst from `now` on.
    pub(crate) fn change(&mut self, settings: &Tbf, now: Nanoseconds) {
        self.fill(now);
        let last = self.last;
        let Self { rate, burst, tokens, .. } = Self::new(settings, last);
        *self = Self { rate, burst, tokens: self.tokens.min(tokens), last };
    }

    fn fill(&mut self, now: Nanoseconds) {
        let passed = now.saturating_sub(self.last);
        let most = u128::from(self.burst) * u128::from(SECOND);
        let come = u128::from(passed) * u128::from(self.rate);
        self.tokens = (u128::from(self.tokens) + come).min(most) as u64;
        self.last = self.last.max(now);
    }

    /// Whether an item of so many bytes may ever leave.
    pub(crate) fn takes(&self, length: u32) -> bool {
        length <= self.burst
    }

    /// Takes the tokens for an item of so many bytes. Returns false if there are not enough.
    pub(crate) fn take(&mut self, length: u32, now: Nanoseconds) -> bool {
        self.fill(now);
        let needed = u64::from(length) * SECOND;
        match self.tokens.checked_sub(needed) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }

    /// When there will be enough tokens for an item of so many bytes.
    pub(crate) fn time_of(&self, length: u32) -> Nanoseconds {
        let missing = (u64::from(length) * SECOND).saturating_sub(self.tokens);
        self.last.saturating_add(missing.div_ceil(self.rate))
    }
}
