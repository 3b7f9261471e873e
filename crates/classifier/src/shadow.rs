//! Rules that no header can match first, because an earlier one matches everything that they do.

use crate::chain::Chain;
use crate::classifier::Classifier;
use crate::group::LANES;
use crate::rule::Rule;
use crate::tree::{CompleteTree, Effort, Limits};

/// What [`shadowed`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shadowed {
    /// Rules that can never be the first match, each with the first earlier one that covers it, by
    /// their positions.
    pub rules: Vec<(u32, u32)>,
    /// So many rules were looked at, in order: all of them, unless there was too much work.
    pub checked: usize,
}

/// Finds the rules that a single earlier rule covers. `confirms` is asked whether an earlier rule
/// that matches [partly](Rule::is_partial) covers a later one, both by their positions, where the
/// words say so.
///
/// `work` is how many groups of rules and single rules may be compared, and becomes less by what
/// was. Compiling the rules comes on top, which [`Limits::of`] bounds.
pub fn shadowed<const WORDS: usize>(
    rules: &[Rule<WORDS>],
    work: &mut usize,
    confirms: impl FnMut(u32, u32) -> bool,
) -> Shadowed {
    match CompleteTree::new(rules, Limits::of(rules.len(), WORDS), Effort::Quick) {
        Ok(tree) => {
            let groups = 1 + tree.tree().statistics().compared;
            search(rules, &tree, |_| groups, work, confirms)
        }
        Err(_) => {
            let chain = Chain::new((0..).zip(rules.iter().copied()));
            search(rules, &chain, |rule| 1 + rule / LANES, work, confirms)
        }
    }
}

/// `groups` says how many groups are compared at most to find what is before a rule.
fn search<const WORDS: usize>(
    rules: &[Rule<WORDS>],
    all: &impl Classifier<WORDS>,
    groups: impl Fn(usize) -> usize,
    work: &mut usize,
    mut confirms: impl FnMut(u32, u32) -> bool,
) -> Shadowed {
    let mut found = Shadowed::default();
    for (number, rule) in (0_u32..).zip(rules) {
        let Some(left) = work.checked_sub(groups(number as usize)) else { return found };
        *work = left;
        let header = rule.header();
        // A rule that covers this one matches each header that this one matches.
        let mut covering = None;
        for other in all.matches(&header, |_| true).take_while(|other| *other < number) {
            let Some(left) = work.checked_sub(1) else { return found };
            *work = left;
            let earlier = &rules[other as usize];
            if earlier.covers(rule) && (!earlier.is_partial || confirms(other, number)) {
                covering = Some(other);
                break;
            }
        }
        found.rules.extend(covering.map(|covering| (number, covering)));
        found.checked += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rule::Header;
    use crate::tree::tests::rule;

    /// What stands for a condition that words cannot say.
    fn confirms(earlier: u32, rule: u32) -> bool {
        (earlier ^ rule) & 1 == 0
    }

    proptest! {
        #[test]
        fn every_rule_behind_one_that_covers_it_is_found(
            rules in proptest::collection::vec(rule::<4>(), 0..150),
        ) {
            let mut wanted = Vec::new();
            for (number, rule) in (0_u32..).zip(&rules) {
                let covering = (0..number).find(|other| {
                    let earlier = &rules[*other as usize];
                    earlier.covers(rule) && (!earlier.is_partial || confirms(*other, number))
                });
                wanted.extend(covering.map(|covering| (number, covering)));
            }
            let mut work = usize::MAX;
            let found = shadowed(&rules, &mut work, confirms);
            prop_assert_eq!(&found.rules, &wanted);
            prop_assert_eq!(found.checked, rules.len());
            // And where trees are refused.
            let chain = Chain::new((0..).zip(rules.iter().copied()));
            let found = search(&rules, &chain, |_| 1, &mut usize::MAX.clone(), confirms);
            prop_assert_eq!(found.rules, wanted);
        }

        /// Among few values, so that all headers can be tried.
        #[test]
        fn a_rule_covers_another_if_it_matches_whatever_that_one_does(
            pair in [(0..8_u32, 0..8_u32, 0..8_u32, 0..8_u32), (0..8, 0..8, 0..8, 0..8)],
        ) {
            let [earlier, later] = pair.map(|(value, mask, a, b)| {
                let (first, last) = (a.min(b), a.max(b));
                let mut rule = Rule::<4>::ANY;
                (rule.value[0], rule.mask[0]) = (value & mask, mask);
                (rule.value[2], rule.mask[2]) = (first << 16, (last - first) << 16 | 0xffff);
                rule
            });
            let mut headers = (0..64).map(|number| Header([number & 7, 0, number >> 3 << 16, 0]));
            let wanted = headers.all(|header| !later.matches(&header) || earlier.matches(&header));
            prop_assert_eq!(earlier.covers(&later), wanted);
        }
    }

    #[test]
    fn work_is_bounded_and_what_was_left_out_is_said() {
        let nested = |number: u32| {
            let mut rule = Rule::<4>::ANY;
            rule.value[2] = number << 16;
            rule.mask[2] = 40_000 << 16 | 0xffff;
            rule
        };
        // Every range overlaps every other, and none lies in another.
        let rules: Vec<_> = (0..5000).map(nested).collect();
        let mut work = 100_000;
        let found = shadowed(&rules, &mut work, |_, _| true);
        assert!((10..1000).contains(&found.checked), "{}", found.checked);
        assert_eq!(found.rules, []);
        let found = shadowed(&rules, &mut usize::MAX.clone(), |_, _| true);
        assert_eq!((found.checked, found.rules), (5000, vec![]));
    }
}
