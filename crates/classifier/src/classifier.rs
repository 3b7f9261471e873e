//! The first match and all matches, whatever rules are kept in.

use crate::rule::{Header, Rule, linear};

/// Rules in order, of which the first or all that a header matches can be asked for.
///
/// `confirms` is asked about rules that match [partly](Rule::is_partial).
pub trait Classifier<const WORDS: usize> {
    /// The number of the first rule that matches a header.
    fn lookup(&self, header: &Header<WORDS>, confirms: impl FnMut(u32) -> bool) -> Option<u32>;

    /// The numbers of all rules that match a header, in order.
    fn matches<'a>(
        &'a self,
        header: &'a Header<WORDS>,
        confirms: impl FnMut(u32) -> bool + 'a,
    ) -> impl Iterator<Item = u32> + 'a;
}

/// Tries one rule after the other. Rules have their positions for numbers.
impl<const WORDS: usize> Classifier<WORDS> for [Rule<WORDS>] {
    fn lookup(&self, header: &Header<WORDS>, mut confirms: impl FnMut(u32) -> bool) -> Option<u32> {
        linear(self, header, |rule| confirms(rule as u32)).map(|rule| rule as u32)
    }

    fn matches<'a>(
        &'a self,
        header: &'a Header<WORDS>,
        mut confirms: impl FnMut(u32) -> bool + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        (0..).zip(self).filter_map(move |(number, rule)| {
            let is_match = rule.matches(header) && (!rule.is_partial || confirms(number));
            is_match.then_some(number)
        })
    }
}
