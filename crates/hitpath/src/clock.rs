//! The one clock of the live gateway.

use std::time::Instant;

use packet::Time;

/// A monotonic clock that starts near zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Starts now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start; 584 years fit.
    pub(crate) fn now(&self) -> Time {
        Time(self.0.elapsed().as_nanos() as u64)
    }
}
