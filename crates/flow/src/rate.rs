//! How often something may be done.

use core::fmt;
use core::hash::Hash;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::net::IpAddr;

use packet::Time;
use siphasher::sip::SipHasher13;
use types::HighestShares;
use wire::VrfId;

use crate::shares::Guarantee;

/// One permission, in the unit that credit is counted in: billionths, so that a nanosecond at one a
/// second is 1.
const ONE: u128 = 1_000_000_000;

/// A token bucket, as RFC 4443 section 2.4 (f) asks for ICMPv6 errors and RFC 1812 section 4.3.2.8
/// for ICMP errors: so many a second in the long run, and so many at once.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    /// Per second, which is billionths per nanosecond.
    rate: u128,
    most: u128,
    credit: u128,
    counted: Option<Time>,
}

impl RateLimiter {
    /// Permits `rate` a second, and `burst` at once after a pause. Begins with a full burst.
    pub fn new(rate: u64, burst: u64) -> Self {
        let most = u128::from(burst) * ONE;
        Self { rate: rate.into(), most, credit: most, counted: None }
    }

    /// Whether it may be done now; if so, that is counted. Time that goes backwards stands still.
    pub fn allow(&mut self, now: Time) -> bool {
        let counted = self.counted.map_or(now, |counted| counted.max(now));
        let passed = self.counted.map_or(0, |before| counted.since(before).as_nanos());
        self.counted = Some(counted);
        self.credit = self.credit.saturating_add(passed.saturating_mul(self.rate)).min(self.most);
        match self.credit.checked_sub(ONE) {
            Some(left) => {
                self.credit = left;
                true
            }
            None => false,
        }
    }
}

/// How many groups senders are sorted into.
const GROUPS: usize = 256;
/// A group gets this part of the whole rate, and half of the burst.
const SHARE: u64 = 8;

/// A [`RateLimiter`] for replies to senders. No group of senders gets more than an eighth of the
/// rate and half of the burst, so that a sender who provokes many replies leaves some for the
/// others. A sender's group follows from its VRF and address by a keyed hash; of an IPv6 address
/// only the upper half counts, since a sender can choose the lower one.
///
/// Each VRF is guaranteed ten a second and ten at once, whatever senders of other VRFs provoke. They
/// count for the whole rate too, and go beyond it if that is used up. A VRF may have less than the
/// whole rate as its highest share.
pub struct FairLimiter {
    all: RateLimiter,
    groups: Box<[RateLimiter]>,
    hasher: SipHasher13,
    guaranteed: Guarantee,
    /// For all, and at once.
    whole: (usize, usize),
    highest: HighestShares,
    /// By VRF that may not have the whole: when the next is due at its rate.
    due: BTreeMap<VrfId, u64>,
}

/// What each VRF is guaranteed a second, and at once.
const GUARANTEED: u64 = 10;

impl FairLimiter {
    /// Permits `rate` a second, and `burst` at once after a pause; `secret` keys the hash by which
    /// senders are sorted.
    pub fn new(rate: u64, burst: u64, secret: u64) -> Self {
        Self {
            all: RateLimiter::new(rate, burst),
            groups: vec![RateLimiter::new((rate / SHARE).max(1), (burst / 2).max(1)); GROUPS]
                .into(),
            hasher: SipHasher13::new_with_keys(secret, secret.rotate_left(32)),
            guaranteed: Guarantee::new(GUARANTEED, GUARANTEED),
            whole: (rate as usize, burst as usize),
            highest: HighestShares::default(),
            due: BTreeMap::new(),
        }
    }

    /// From now on no VRF provokes more than its highest share, of the rate and of the burst.
    pub fn limit(&mut self, highest: &HighestShares) {
        self.highest = HighestShares::clone(highest);
        self.due =
            highest.keys().map(|vrf| (*vrf, self.due.get(vrf).copied().unwrap_or(0))).collect();
    }

    /// Whether `sender`, a station of `vrf`, may get a reply now; if so, it is counted.
    pub fn allow(&mut self, now: Time, vrf: VrfId, sender: IpAddr) -> bool {
        let limited = self.highest.get(&vrf).zip(self.due.get_mut(&vrf));
        let limited = limited.map(|(share, due)| {
            let (rate, burst) = (share.of(self.whole.0), share.of(self.whole.1));
            let interval = 1_000_000_000 / rate.max(1) as u64;
            (due, interval, interval * (burst as u64).saturating_sub(1))
        });
        if limited.as_ref().is_some_and(|(due, _, burst)| now.0 < due.saturating_sub(*burst)) {
            return false;
        }
        let mut hasher = self.hasher;
        vrf.hash(&mut hasher);
        match sender {
            IpAddr::V4(address) => address.hash(&mut hasher),
            IpAddr::V6(address) => ((address.to_bits() >> 64) as u64).hash(&mut hasher),
        }
        let is_of_pool =
            self.groups[hasher.finish() as usize % GROUPS].allow(now) && self.all.allow(now);
        let is_guaranteed = self.guaranteed.allow(now, vrf);
        let is_allowed = is_of_pool || is_guaranteed;
        if let (true, Some((due, interval, _))) = (is_allowed, limited) {
            *due = (*due).max(now.0) + interval;
        }
        is_allowed
    }
}

impl fmt::Debug for FairLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairLimiter").field("all", &self.all).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const RED: VrfId = VrfId(1);
    const BLUE: VrfId = VrfId(2);

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut limiter = RateLimiter::new(10, 3);
        let mut allowed = |now| limiter.allow(Time(now));
        assert_eq!([0, 0, 0, 0].map(&mut allowed), [true, true, true, false]);
        assert_eq!(
            [SECOND / 10 - 1, SECOND / 10, SECOND / 10].map(&mut allowed),
            [false, true, false]
        );
        // A long pause fills the bucket and no more.
        assert_eq!([9 * SECOND; 4].map(&mut allowed), [true, true, true, false]);
        // Backwards is no time at all, and does not count twice.
        assert_eq!(
            [0, 9 * SECOND + 1, 9 * SECOND + SECOND / 10].map(allowed),
            [false, false, true]
        );
    }

    #[test]
    fn nobody_takes_everything() {
        let mut limiter = FairLimiter::new(1000, 100, 7);
        let (greedy, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert_eq!((0..1000).filter(|_| limiter.allow(Time(0), RED, greedy)).count(), 50);
        assert_eq!((0..40).filter(|_| limiter.allow(Time(0), RED, other)).count(), 40);
        // Ten a millisecond for ten seconds get one in eight of the rate, and the other still gets
        // an answer each time.
        let (mut told, mut told_other) = (0, 0);
        for millisecond in 1..=10_000_u64 {
            let now = Time(millisecond * 1_000_000);
            told += (0..10).filter(|_| limiter.allow(now, RED, greedy)).count();
            told_other += usize::from(millisecond % 100 == 0 && limiter.allow(now, RED, other));
        }
        // And what its VRF is guaranteed.
        assert_eq!(told_other, 100);
        assert!((1250..=1350).contains(&told), "{told}");
    }

    #[test]
    fn one_vrf_provokes_no_more_than_its_highest_share() {
        let mut limiter = FairLimiter::new(1000, 100, 7);
        limiter.limit(&crate::shares::limited_to(5));
        let sender = |number: u64| IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
        let at_once = (0..1000).filter(|number| limiter.allow(Time(1), RED, sender(*number)));
        assert_eq!(at_once.count(), 5, "of the burst");
        let mut told = 0;
        for number in 1..=40_000_u64 {
            let now = Time(number * SECOND / 4000);
            told += usize::from(limiter.allow(now, RED, sender(number)));
        }
        assert!((490..=510).contains(&told), "{told} in ten seconds");
        limiter.limit(&HighestShares::default());
        assert!((0..50).all(|number| limiter.allow(Time(20 * SECOND), RED, sender(number))));
    }

    #[test]
    fn a_network_of_ipv6_is_one_stranger_and_all_together_have_a_limit() {
        let mut limiter = FairLimiter::new(1000, 100, 7);
        let inside =
            |low: u64| IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(low)));
        assert_eq!((0..1000).filter(|low| limiter.allow(Time(0), RED, inside(*low))).count(), 50);
        let crowd = (0..1000)
            .filter(|count| limiter.allow(Time(0), RED, Ipv4Addr::from_bits(*count).into()))
            .count();
        assert_eq!(crowd, 50);
    }

    #[test]
    fn a_flood_in_one_vrf_leaves_another_its_share() {
        let mut limiter = FairLimiter::new(1000, 100, 7);
        let sender = IpAddr::from([10, 0, 0, 1]);
        let mut told = 0;
        // From every address, the other tenant's among them, a million a second.
        for microsecond in 0..2_000_000_u64 {
            let now = Time(microsecond * 1000);
            let from = Ipv4Addr::from_bits(0x0a00_0000 | (microsecond % 65536) as u32);
            limiter.allow(now, RED, from.into());
            told += usize::from(microsecond % 100_000 == 0 && limiter.allow(now, BLUE, sender));
        }
        assert_eq!(told, 20, "ten a second are guaranteed");
    }

    #[test]
    fn never_and_always() {
        assert!(!RateLimiter::new(1000, 0).allow(Time(u64::MAX)));
        let mut none = RateLimiter::new(0, 1);
        assert!(none.allow(Time(0)) && !none.allow(Time(u64::MAX)));
        let mut all = RateLimiter::new(u64::MAX, u64::MAX);
        assert!((0..1000).all(|_| all.allow(Time(u64::MAX))));
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate(rate in 0u64..2000, burst in 0u64..50, gaps in proptest::collection::vec(0u64..SECOND / 50, 1..300)) {
            let mut limiter = RateLimiter::new(rate, burst);
            let mut now = 0;
            let mut allowed = 0;
            for gap in gaps {
                now += gap;
                allowed += u64::from(limiter.allow(Time(now)));
                prop_assert!(allowed <= burst + now * rate / SECOND);
            }
        }

        #[test]
        fn no_less_than_the_rate_where_asked_often_enough(rate in 1u64..500, seconds in 1u64..4) {
            let mut limiter = RateLimiter::new(rate, 1);
            let step = SECOND / 1000;
            let allowed = (0..=1000 * seconds).filter(|tick| limiter.allow(Time(tick * step))).count() as u64;
            // Asked a thousand times a second, it loses at most what a millisecond is worth each
            // time it waits.
            prop_assert!(allowed > rate * seconds / 2 && allowed <= rate * seconds + 1, "{}", allowed);
        }
    }
}
