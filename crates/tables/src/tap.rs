//! Taps: who wants copies of which packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::Time;

use crate::bpf::Program;
use crate::filter::FilterTarget;

/// The most taps at once: a flow's are bits of a word.
pub const MAX_TAPS: usize = 32;

/// The most bytes of a packet that a tap copies.
pub const MAX_SNAPLEN: u32 = 65_535;

/// Packets that a tap with a rate copies at once, as a part of a second.
const BURST: u64 = 10;

/// When a tap sees packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapPoints {
    /// As they were received or decrypted.
    pub ingress: bool,
    /// As they leave.
    pub egress: bool,
    /// If they are dropped.
    pub drop: bool,
}

/// What a tap is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSpec {
    /// Its number, unique while the gateway runs.
    pub id: u64,
    /// Whose packets.
    pub target: FilterTarget,
    /// When.
    pub points: TapPoints,
    /// At most so many bytes of each.
    pub snaplen: u32,
    /// At most so many packets a second.
    pub rate: Option<u32>,
    /// Those alone that it matches.
    pub program: Option<Program>,
}

/// A tap.
#[derive(Debug)]
pub struct Tap {
    /// As it was asked for.
    pub spec: TapSpec,
    /// What it has done.
    pub meter: TapMeter,
}

/// What a tap has done. Workers add to it.
#[derive(Debug, Default)]
pub struct TapMeter {
    copied: AtomicU64,
    limited: AtomicU64,
    lost: AtomicU64,
    /// When the packets that passed would have come one after the other at the rate.
    next: AtomicU64,
}

impl TapMeter {
    /// Packets that were copied.
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Packets that were left out because of the rate.
    pub fn limited(&self) -> u64 {
        self.limited.load(Ordering::Relaxed)
    }

    /// Packets that were lost because nobody took copies fast enough.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts a packet that was copied.
    pub fn count_copied(&self) {
        self.copied.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a packet that was lost.
    pub fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tap {
    /// Whether it wants a packet by its filter and its rate.
    pub fn wants(&self, packet: &[u8], now: Time) -> bool {
        if self.spec.program.as_ref().is_some_and(|program| !program.matches(packet)) {
            return false;
        }
        let is_within = self.spec.rate.is_none_or(|rate| is_within(&self.meter.next, rate, now));
        if !is_within {
            self.meter.limited.fetch_add(1, Ordering::Relaxed);
        }
        is_within
    }
}

/// Whether a packet keeps to a rate of so many a second: the generic cell rate algorithm (ITU-T
/// I.371), for all workers together. `next` is when the packets that passed would have come one
/// after the other at the rate.
pub(crate) fn is_within(next: &AtomicU64, rate: u32, now: Time) -> bool {
    const SECOND: u64 = 1_000_000_000;
    let step = SECOND / u64::from(rate.max(1));
    let tolerance = SECOND / BURST;
    let advance = |next: u64| {
        let next = next.max(now.0);
        (next - now.0 <= tolerance).then_some(next.saturating_add(step))
    };
    next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance).is_ok()
}

/// The taps, by place.
pub(crate) type Taps = [Option<Arc<Tap>>; MAX_TAPS];

/// Which of the taps concern packets of a flow, as bits by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TapSet {
    /// Copies as they came.
    pub ingress: u32,
    /// Copies as they leave in clear, or before they are encrypted.
    pub egress: u32,
    /// Copies after they were encrypted.
    pub encrypted: u32,
    /// Copies if they are dropped.
    pub drop: u32,
}

impl TapSet {
    /// None.
    pub const NONE: Self = Self { ingress: 0, egress: 0, encrypted: 0, drop: 0 };
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::VrfId;

    #[test]
    fn a_rate_is_kept_over_time_and_a_tenth_of_a_second_may_come_at_once() {
        let spec = TapSpec {
            id: 1,
            target: FilterTarget::Vrf(VrfId::MAIN),
            points: TapPoints::default(),
            snaplen: 100,
            rate: Some(100),
            program: None,
        };
        let tap = Tap { spec, meter: TapMeter::default() };
        let wanted = |now| (0..1000).filter(|_| tap.wants(&[], Time(now))).count();
        assert_eq!(wanted(0), 11);
        assert_eq!(wanted(1_000_000_000), 11);
        assert_eq!(wanted(1_010_000_000), 1);
        assert_eq!(tap.meter.limited(), 3000 - 23);
        // Over ten seconds at 1000 a second.
        let passed = (2000..12_000).filter(|at| tap.wants(&[], Time(at * 1_000_000))).count();
        assert!((1000..=1011).contains(&passed), "{passed}");
    }
}
