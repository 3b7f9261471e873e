//! How long a connection may be unused, by its state.

use core::time::Duration;
use std::collections::BTreeMap;

use packet::Time;

use crate::sync::{AtomicU8, AtomicU32, Ordering, allocate};

/// Time of last use and timeouts are in ticks of 2^26 nanoseconds, 67 milliseconds, which go round
/// in nine years.
pub(crate) const TICK_BITS: u32 = 26;

/// The longest timeout: a quarter of the round, so that differences of ticks are never ambiguous.
pub(crate) const LONGEST: u32 = 1 << 30;

#[inline(always)]
pub(crate) const fn tick(now: Time) -> u32 {
    (now.0 >> TICK_BITS) as u32
}

/// In ticks, and never less than asked for: one more than it is long, since a tick that has begun
/// counts whole.
fn ticks(timeout: Duration) -> u32 {
    let ticks = timeout.as_nanos().div_ceil(1 << TICK_BITS) + 1;
    u32::try_from(ticks).unwrap_or(u32::MAX).min(LONGEST)
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $seconds:literal),* $(,)?) => {
        /// The state of a connection. The numbers are of no meaning outside.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum State {
            $($(#[$doc])* $name,)*
        }

        impl State {
            /// All.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The timeout that it has unless another one is set: nf_conntrack's.
            pub const fn default_timeout(self) -> Duration {
                Duration::from_secs(self.default_seconds() as u64)
            }

            /// The same in seconds.
            const fn default_seconds(self) -> u32 {
                match self { $(Self::$name => $seconds),* }
            }
        }
    };
}

states! {
    /// Of a protocol without states.
    #[default]
    Generic = 600,
    /// TCP: a SYN was seen.
    SynSent = 120,
    /// TCP: SYNs crossed.
    SynSent2 = 120,
    /// TCP: SYN and SYN-ACK were seen.
    SynRecv = 60,
    /// TCP: both SYNs are acknowledged.
    Established = 432_000,
    /// TCP: established, and data that was sent is not acknowledged, or picked up and not answered
    /// yet. Only a timeout, never a state.
    Unacknowledged = 300,
    /// TCP: one side has sent a FIN.
    FinWait = 120,
    /// TCP: this FIN is acknowledged.
    CloseWait = 60,
    /// TCP: both sides have sent a FIN.
    LastAck = 30,
    /// TCP: both FINs are acknowledged.
    TimeWait = 120,
    /// TCP: reset.
    Close = 10,
    /// UDP and UDP-Lite: packets in one direction only.
    UdpUnreplied = 30,
    /// UDP: packets in both directions, for less than two seconds.
    UdpReplied = 30,
    /// UDP: packets in both directions for longer.
    UdpStream = 120,
    /// SCTP: aborted or shut down.
    SctpClosed = 10,
    /// SCTP: an INIT was seen.
    SctpCookieWait = 3,
    /// SCTP: a COOKIE ECHO was seen.
    SctpCookieEchoed = 3,
    /// SCTP: the association is up.
    SctpEstablished = 210,
    /// SCTP: a SHUTDOWN was seen in the original direction.
    SctpShutdownSent = 3,
    /// SCTP: a SHUTDOWN was seen in the reply direction.
    SctpShutdownReceived = 3,
    /// SCTP: a SHUTDOWN ACK was seen.
    SctpShutdownAckSent = 3,
    /// SCTP: a heartbeat on another path of an association that was not seen to open.
    SctpHeartbeatSent = 30,
    /// ICMP queries.
    Icmp = 30,
    /// ICMPv6 queries.
    Icmpv6 = 30,
}

impl State {
    #[inline(always)]
    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Generic)
    }

    /// Whether the connection is about to end by itself, so that it may make room for others.
    pub(crate) const fn is_closing(self) -> bool {
        matches!(
            self,
            Self::LastAck
                | Self::TimeWait
                | Self::Close
                | Self::SctpClosed
                | Self::SctpShutdownAckSent
        )
    }

    /// Whether both ends have done with the connection, or one has reset it.
    pub(crate) const fn is_closed(self) -> bool {
        matches!(self, Self::TimeWait | Self::Close | Self::SctpClosed)
    }
}

/// The number of a timeout policy. 0 is the default one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicyId(pub(crate) u8);

/// Numbers of policies. Loom has one, as it keeps account of each atomic.
pub(crate) const NUMBERS: usize = if cfg!(all(test, feature = "loom")) { 1 } else { 256 };

/// All timeout policies, and which one each zone has.
pub(crate) struct Timeouts {
    policies: Box<[[AtomicU32; STATES]]>,
    zones: Box<[AtomicU8]>,
}

/// Loom has one.
const ZONES: usize = if cfg!(all(test, feature = "loom")) { 1 } else { 1 << 16 };

/// A policy is two cache lines.
const STATES: usize = 32;
const _: () = assert!(State::ALL.len() <= STATES);

impl Timeouts {
    /// With nf_conntrack's defaults in each.
    pub(crate) fn new() -> Option<Self> {
        let all = Self { policies: allocate(NUMBERS)?, zones: allocate(ZONES)? };
        for policy in 0..NUMBERS {
            for state in State::ALL {
                all.set(PolicyId(policy as u8), *state, state.default_timeout());
            }
        }
        Some(all)
    }

    /// Returns whether it was longer before.
    pub(crate) fn set(&self, policy: PolicyId, state: State, timeout: Duration) -> bool {
        let place = &self.policies[usize::from(policy.0)][state as usize % STATES];
        place.swap(ticks(timeout), Ordering::Relaxed) > ticks(timeout)
    }

    #[inline(always)]
    pub(crate) fn ticks(&self, policy: u8, state: State) -> u32 {
        self.policies[usize::from(policy)][state as usize % STATES].load(Ordering::Relaxed)
    }

    /// The policy of a zone.
    pub(crate) fn of_zone(&self, zone: u16) -> PolicyId {
        PolicyId(self.zones[usize::from(zone) % ZONES].load(Ordering::Relaxed))
    }

    /// Gives these zones policies, and all others the default one. Returns whether one has changed.
    pub(crate) fn set_zones(&self, policies: &BTreeMap<u16, PolicyId>) -> bool {
        let mut is_changed = false;
        for (zone, place) in (0..=u16::MAX).zip(&self.zones) {
            let policy = policies.get(&zone).copied().unwrap_or_default();
            is_changed |= place.swap(policy.0, Ordering::Relaxed) != policy.0;
        }
        is_changed
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_never_shorter_than_asked_for() {
        for nanos in [0, 1, (1 << TICK_BITS) - 1, 1 << TICK_BITS, 10_000_000_000, 1 << 60] {
            let timeout = ticks(Duration::from_nanos(nanos));
            // Used at the very end of a tick.
            for used in [Time(0), Time((1 << TICK_BITS) - 1)] {
                let last = used + Duration::from_nanos(nanos.saturating_sub(1));
                let is_dead = tick(last).wrapping_sub(tick(used)) >= timeout;
                assert!(!is_dead || timeout == LONGEST, "{nanos}");
            }
        }
        assert_eq!(ticks(Duration::MAX), LONGEST);
    }

    #[test]
    fn states_are_their_numbers() {
        for (number, state) in State::ALL.iter().enumerate() {
            assert_eq!(State::from_number(number as u8), *state);
        }
    }
}
