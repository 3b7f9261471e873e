//! What few flows need beside their decision.
//!
//! A [`Decision`](crate::Decision) is four words. What belongs to features that few flows have is in
//! an [`Extension`], and a decision names it by a number. Flows with the same extension share one,
//! so there are few, and the others pay nothing for it.

use std::collections::BTreeMap;

use flow::RateLimiter;
use packet::{BATCH, Time};
use tables::{FilterSlot, NextHopId, TapSet};

/// What features do with the packets of a flow. It names rules and holds none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extension {
    /// The rules that decided, one more than their slots, 0 for none: of the filters of the port and
    /// of the VRF before routing, and of the VRF and of the port after it.
    rules: [u32; 4],
    /// The taps that want copies.
    pub(crate) taps: TapSet,
    /// How the MSS that a SYN announces is lowered.
    pub(crate) mss: Option<MssWay>,
}

/// How the MSS that a SYN announces is lowered: as the ports on its way ask for, and as the largest
/// packets there and back allow. Apply knows these, as it knows the sizes of packets: neither is in
/// a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MssWay {
    /// By which outer packets of answers leave, if the SYN was decrypted and there is a way.
    pub back: Option<NextHopId>,
}

impl Extension {
    /// Nothing.
    pub const NONE: Self = Self { rules: [0; 4], taps: TapSet::NONE, mss: None };

    /// Notes the rule that decided in one of the four places.
    pub(crate) fn note_rule(&mut self, place: usize, slot: FilterSlot) {
        if let Some(rule) = self.rules.get_mut(place) {
            *rule = slot.0 + 1;
        }
    }

    /// The taps that want copies of packets.
    pub fn taps(&self) -> TapSet {
        self.taps
    }

    /// The rules that decided, in the order in which they were asked.
    pub fn rules(&self) -> impl Iterator<Item = FilterSlot> + use<> {
        self.rules.into_iter().filter_map(|rule| rule.checked_sub(1)).map(FilterSlot)
    }
}

/// The most extensions that stay. Decisions with further ones are not kept in the cache.
const MOST: usize = 16_384;

/// A worker's extensions, by number.
pub(crate) struct Extensions {
    all: Vec<Extension>,
    numbers: BTreeMap<Extension, u32>,
    /// Those that do not stay, numbered behind the others.
    passing: Vec<Extension>,
    pub(crate) log: FilterLog,
}

impl Extensions {
    pub(crate) fn new() -> Self {
        let (all, passing) = (Vec::with_capacity(MOST), Vec::with_capacity(BATCH));
        Self { all, numbers: BTreeMap::new(), passing, log: FilterLog::new() }
    }

    /// The number of an extension, which is the same for equal ones while they stay.
    pub(crate) fn number(&mut self, extension: &Extension) -> u32 {
        if let Some(number) = self.numbers.get(extension) {
            return *number;
        }
        if self.all.len() < MOST {
            let number = self.all.len() as u32;
            self.all.push(*extension);
            self.numbers.insert(*extension, number);
            return number;
        }
        let known = self.passing.iter().position(|passing| passing == extension);
        let place = known.unwrap_or(self.passing.len());
        if known.is_none() {
            self.passing.push(*extension);
        }
        (MOST + place) as u32
    }

    /// The extension of this number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Extension {
        let number = number as usize;
        let found = match number.checked_sub(MOST) {
            None => self.all.get(number),
            Some(passing) => self.passing.get(passing),
        };
        found.copied().unwrap_or(Extension::NONE)
    }

    /// Whether decisions with this number may be kept.
    #[inline(always)]
    pub(crate) const fn stays(number: u32) -> bool {
        (number as usize) < MOST
    }

    /// Forgets those that do not stay. No decision with one is in use any more.
    #[inline]
    pub(crate) fn forget_passing(&mut self) {
        self.passing.clear();
    }
}

/// So many packets of a rule are logged in a second.
const LOG_RATE: u32 = 10;

/// So many of all rules are told to the control thread in a second and at once, so that what it is
/// told of neighbours finds room.
const LOG_RATE_OF_ALL: u64 = 100;

/// How many rules may log at their full rate. Further ones share places with others.
const LOG_PLACES: usize = 1024;

/// Which packets are logged.
pub(crate) struct FilterLog {
    all: RateLimiter,
    places: Box<[LogPlace]>,
}

#[derive(Clone, Copy, Default)]
struct LogPlace {
    /// When the present second began.
    since: Time,
    /// How many packets were told in it.
    told: u32,
    /// How many were not, since one was told last.
    untold: u64,
}

impl FilterLog {
    fn new() -> Self {
        let places = vec![LogPlace::default(); LOG_PLACES].into();
        Self { all: RateLimiter::new(LOG_RATE_OF_ALL, LOG_RATE_OF_ALL), places }
    }

    /// Whether a packet of this rule is to be told, and if so how many were not before it.
    pub(crate) fn tell(&mut self, rule: FilterSlot, now: Time) -> Option<u64> {
        let place = &mut self.places[rule.0 as usize % LOG_PLACES];
        if place.told > 0 && now.since(place.since).as_secs() >= 1 {
            place.told = 0;
        }
        if place.told >= LOG_RATE || !self.all.allow(now) {
            place.untold += 1;
            return None;
        }
        if place.told == 0 {
            place.since = now;
        }
        place.told += 1;
        Some(core::mem::take(&mut place.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_packets_a_second_of_a_rule_are_told_and_the_rest_is_counted() {
        let (mut log, start) = (FilterLog::new(), Time(5_000_000_000));
        let at = |ms: u64| start + core::time::Duration::from_millis(ms);
        let told = |log: &mut FilterLog, rule, ms| log.tell(FilterSlot(rule), at(ms));
        let first: Vec<_> = (0..50).map(|ms| told(&mut log, 3, ms)).collect();
        assert_eq!(first[..10], [Some(0); 10]);
        assert!(first[10..].iter().all(Option::is_none));
        assert_eq!(told(&mut log, 4, 60), Some(0));
        assert_eq!(told(&mut log, 3, 999), None);
        assert_eq!(told(&mut log, 3, 1000), Some(41));
        assert_eq!(told(&mut log, 3, 1001), Some(0));
        // All rules together.
        let many = (0..1000).filter(|rule| told(&mut log, *rule, 1002).is_some()).count();
        assert!((85..=100).contains(&many), "{many}");
    }

    fn of(slot: u32) -> Extension {
        let mut extension = Extension::NONE;
        extension.note_rule(2, FilterSlot(slot));
        extension
    }

    #[test]
    fn equal_ones_share_a_number_and_those_beyond_the_limit_do_not_stay() {
        let mut extensions = Extensions::new();
        for slot in 0..MOST as u32 {
            assert_eq!(extensions.number(&of(slot)), slot);
        }
        assert_eq!(extensions.number(&of(7)), 7);
        let more = MOST as u32;
        let numbers = [more, more + 1, more].map(|slot| extensions.number(&of(slot)));
        assert_eq!(numbers, [more, more + 1, more]);
        assert!(Extensions::stays(more - 1) && !Extensions::stays(more));
        assert_eq!(extensions.get(more + 1), of(more + 1));
        extensions.forget_passing();
        assert_eq!(extensions.get(more), Extension::NONE);
        assert_eq!(extensions.number(&of(more + 9)), more);
        assert_eq!(extensions.get(5).rules().collect::<Vec<_>>(), [FilterSlot(5)]);
    }
}
