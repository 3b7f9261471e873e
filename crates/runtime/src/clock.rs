//! The one clock of the live gateway.

use std::sync::LazyLock;
use std::time::Instant;

use packet::Time;

/// A monotonic clock that starts near zero.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start; 584 years fit.
    pub fn now(&self) -> Time {
        Time(self.0.elapsed().as_nanos() as u64)
    }
}

/// The time-stamp counter, or what the machine has of the kind: steady, and cheap to read. For
/// telling one cost from another.
pub fn ticks() -> u64 {
    CLOCK.raw()
}

/// How long so many [`ticks`] are.
pub fn nanoseconds(ticks: u64) -> f64 {
    // The clock answers whole nanoseconds, and a few ticks may be less than one.
    const MANY: u64 = 1 << 16;
    CLOCK.delta_as_nanos(0, ticks.saturating_mul(MANY)) as f64 / MANY as f64
}

/// How many [`ticks`] a second has.
pub fn ticks_per_second() -> f64 {
    1e9 / nanoseconds(1)
}

static CLOCK: LazyLock<quanta::Clock> = LazyLock::new(quanta::Clock::new);
