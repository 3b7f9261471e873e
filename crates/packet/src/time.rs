//! Time as an argument.

use core::ops::Add;
use core::time::Duration;

/// Nanoseconds since an epoch of the caller's choosing. Live, that is a monotonic clock; in replay,
/// the capture's clock. Nothing below the binary reads a clock, so the same packets at the same
/// times give the same result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// How long since `earlier`; zero where `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)))
    }
}
