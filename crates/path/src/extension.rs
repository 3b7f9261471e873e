//! What few flows need beside their decision.
//!
//! A [`Decision`](crate::Decision) is four words. What belongs to features that few flows have is in
//! an [`Extension`], and a decision names it by a number. Flows with the same extension share one,
//! so there are few, and the others pay nothing for it.

use std::collections::BTreeMap;

use packet::BATCH;
use tables::FilterSlot;

/// What features do with the packets of a flow. It names rules and holds none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extension {
    /// The rules that decided, one more than their slots, 0 for none: of the filters of the port and
    /// of the VRF before routing, and of the VRF and of the port after it.
    rules: [u32; 4],
}

impl Extension {
    /// Nothing.
    pub const NONE: Self = Self { rules: [0; 4] };

    /// Notes the rule that decided in one of the four places.
    pub(crate) fn note_rule(&mut self, place: usize, slot: FilterSlot) {
        if let Some(rule) = self.rules.get_mut(place) {
            *rule = slot.0 + 1;
        }
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
}

impl Extensions {
    pub(crate) fn new() -> Self {
        let (all, passing) = (Vec::with_capacity(MOST), Vec::with_capacity(BATCH));
        Self { all, numbers: BTreeMap::new(), passing }
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

#[cfg(test)]
mod tests {
    use super::*;

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
