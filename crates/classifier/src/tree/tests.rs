//! Trees find what trying one rule after the other finds.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::classifier::Classifier;
use crate::count::Count;
use crate::rule::linear;
use crate::{Chain, CompleteTree};

/// A prefix of a word, among few, so that rules nest and overlap.
fn prefix() -> impl Strategy<Value = (u32, u32)> {
    let value = prop_oneof![
        4 => (0..4_u32, 0..4_u32, 0..4_u32).prop_map(|(a, b, c)| a << 30 | b << 20 | c),
        1 => any::<u32>(),
    ];
    let length =
        prop_oneof![2 => Just(32), 2 => select(vec![8, 16, 24]), 2 => Just(0), 1 => 0..=32_u32];
    (value, length).prop_map(|(value, length)| {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        (value & mask, mask)
    })
}

fn range() -> impl Strategy<Value = (u16, u16)> {
    prop_oneof![
        3 => Just((0, u16::MAX)),
        3 => select(vec![53_u16, 80, 443]).prop_map(|port| (port, port)),
        1 => Just((1024, u16::MAX)),
        1 => (any::<u16>(), any::<u16>()).prop_map(|(a, b)| (a.min(b), a.max(b))),
    ]
}

pub(crate) fn rule<const WORDS: usize>() -> impl Strategy<Value = Rule<WORDS>> {
    let words = proptest::collection::vec(prefix(), WORDS);
    (words, range(), range(), 0..16_u8).prop_map(|(words, a, b, odd)| {
        let mut rule = Rule::ANY;
        for (word, (value, mask)) in words.into_iter().enumerate() {
            (rule.value[word], rule.mask[word]) = (value, mask);
        }
        let pair = Header::<WORDS>::PAIR;
        rule.value[pair] = Header::<WORDS>::pair(a.0, b.0);
        rule.mask[pair] = Header::<WORDS>::pair(a.1 - a.0, b.1 - b.0);
        rule.is_partial = odd == 0;
        rule
    })
}

/// Of a rule, with noise in some words.
pub(crate) fn header<const WORDS: usize>(
    rules: &[Rule<WORDS>],
    (number, noise): (usize, [u32; 4]),
) -> Header<WORDS> {
    let mut header = match rules.get(number % rules.len().max(1)) {
        Some(rule) => rule.header(),
        None => Header([0; WORDS]),
    };
    for (which, noise) in noise.into_iter().enumerate() {
        if noise % 3 == 0 {
            header.0[(noise as usize / 3 + which) % WORDS] ^= 1 << (noise >> 8 & 31);
        }
    }
    header
}

/// What stands for a condition that words cannot say.
pub(crate) fn confirms<const WORDS: usize>(rule: usize, header: &Header<WORDS>) -> bool {
    (rule as u32 ^ header.0[0] ^ header.0[WORDS - 1]) & 1 == 0
}

fn check<const WORDS: usize>(
    rules: &[Rule<WORDS>],
    probes: &[(usize, [u32; 4])],
    limits: Limits,
) -> Result<(), TestCaseError> {
    for effort in [Effort::Quick, Effort::Best] {
        if let Ok(tree) = Tree::new(rules, limits, effort) {
            check_tree(&tree, rules, probes, limits)?;
        }
        if let Ok(tree) = CompleteTree::new(rules, limits, effort) {
            check_tree(tree.tree(), rules, probes, limits)?;
            check_all(&tree, rules, probes)?;
        }
    }
    check_all(&Chain::new((0..).zip(rules.iter().copied())), rules, probes)
}

/// All matches, and the first few, in order.
pub(crate) fn all<const WORDS: usize>(
    classifier: &(impl Classifier<WORDS> + ?Sized),
    header: &Header<WORDS>,
    most: usize,
) -> Vec<u32> {
    let confirms = |rule: u32| confirms(rule as usize, header);
    classifier.matches(header, confirms).take(most).collect()
}

fn check_all<const WORDS: usize>(
    classifier: &impl Classifier<WORDS>,
    rules: &[Rule<WORDS>],
    probes: &[(usize, [u32; 4])],
) -> Result<(), TestCaseError> {
    for probe in probes {
        let header = header(rules, *probe);
        let wanted = all(rules, &header, usize::MAX);
        prop_assert_eq!(&all(classifier, &header, usize::MAX), &wanted);
        prop_assert_eq!(&all(classifier, &header, 2), &wanted[..wanted.len().min(2)]);
        let confirms = |rule: u32| confirms(rule as usize, &header);
        prop_assert_eq!(classifier.lookup(&header, confirms), wanted.first().copied());
        prop_assert_eq!(rules.lookup(&header, confirms), wanted.first().copied());
    }
    Ok(())
}

fn check_tree<const WORDS: usize>(
    tree: &Tree<WORDS>,
    rules: &[Rule<WORDS>],
    probes: &[(usize, [u32; 4])],
    limits: Limits,
) -> Result<(), TestCaseError> {
    let statistics = tree.statistics();
    let headers: Vec<_> = probes.iter().map(|probe| header(rules, *probe)).collect();
    let mut found = vec![7; headers.len()];
    tree.lookup_batch(&headers, &mut found, |at, rule| confirms(rule as usize, &headers[at]));
    for (header, found) in headers.iter().zip(found) {
        let wanted = linear(rules, header, |rule| confirms(rule, header)).map(|rule| rule as u32);
        prop_assert_eq!(wanted, (found != u32::MAX).then_some(found));
        prop_assert_eq!(wanted, tree.lookup(header, |rule| confirms(rule as usize, header)));
        // On a processor without AVX2.
        let mut confirm = |rule: u32| confirms(rule as usize, header);
        let mut count = Count::default();
        prop_assert_eq!(wanted, tree.find_one(header, &mut confirm, &mut count, Portable));
        prop_assert!(count.probes as usize <= statistics.steps);
        prop_assert!(count.rules as usize <= statistics.compared * statistics.lanes);
        prop_assert!(wanted.is_none() || count.rules > 0);
        let mut again = Count::default();
        tree.lookup_observed(header, confirm, &mut again);
        prop_assert_eq!(count, again);
    }
    prop_assert_eq!(statistics.trees.iter().sum::<usize>(), rules.len());
    prop_assert!(statistics.bytes <= limits.bytes);
    Ok(())
}

proptest! {
    #[test]
    fn four_words_as_one_by_one(
        rules in proptest::collection::vec(rule::<4>(), 0..300),
        probes in proptest::collection::vec(any::<(usize, [u32; 4])>(), 1..100),
    ) {
        check(&rules, &probes, Limits::of(rules.len(), 4))?;
    }

    #[test]
    fn ten_words_as_one_by_one(
        rules in proptest::collection::vec(rule::<10>(), 0..120),
        probes in proptest::collection::vec(any::<(usize, [u32; 4])>(), 1..100),
    ) {
        check(&rules, &probes, Limits::of(rules.len(), 10))?;
    }

    /// Whatever the limits: refused, or right.
    #[test]
    fn limits_are_kept(
        rules in proptest::collection::vec(rule::<4>(), 0..300),
        probes in proptest::collection::vec(any::<(usize, [u32; 4])>(), 1..20),
        bytes in 0..100_000_usize,
        inner in 0..50_usize,
    ) {
        check(&rules, &probes, Limits { bytes, inner })?;
    }
}

#[test]
fn no_rules_find_nothing() {
    let tree = Tree::<4>::new(&[], Limits::of(0, 4), Effort::Best).unwrap();
    assert_eq!(tree.lookup(&Header([1, 2, 3, 4]), |_| true), None);
}

#[test]
fn more_rules_alike_than_a_leaf_can_have_are_refused() {
    // Ranges of ports that have no bit in common and all overlap.
    let alike = |number: u16| {
        let mut rule = Rule::<4>::ANY;
        rule.value[2] = Header::<4>::pair(number, 0);
        rule.mask[2] = Header::<4>::pair(u16::MAX - 2 * number, u16::MAX);
        rule.is_partial = true;
        rule
    };
    let rules: Vec<_> = (1..3000).map(alike).collect();
    assert_eq!(
        Tree::new(&rules, Limits::of(rules.len(), 4), Effort::Best).unwrap_err(),
        Refused::Leaf
    );
    let few = &rules[..500];
    let tree = Tree::new(few, Limits::of(few.len(), 4), Effort::Best).unwrap();
    let header = Header([0, 0, Header::<4>::pair(400, 7), 0]);
    assert_eq!(tree.lookup(&header, |_| true), Some(0));
    assert_eq!(tree.lookup(&header, |rule| rule == 399), Some(399));
    assert_eq!(tree.lookup(&header, |rule| rule == 400), None, "its ports begin at 401");
}

/// A rule that matches everything ends every leaf: what is behind it is in none.
#[test]
fn what_is_never_found_takes_no_place() {
    let host = |number: u32| {
        let mut rule = Rule::<4>::ANY;
        (rule.value[0], rule.mask[0]) = (number, u32::MAX);
        rule
    };
    let mut rules: Vec<_> = (0..1000).map(host).collect();
    rules.insert(0, Rule::ANY);
    let tree = Tree::new(&rules, Limits::of(rules.len(), 4), Effort::Best).unwrap();
    assert_eq!(tree.statistics().groups, 1);
    assert_eq!(tree.lookup(&Header([500, 0, 0, 0]), |_| true), Some(0));
}

/// What is never found first is found among all.
#[test]
fn all_matches_are_found_behind_a_rule_that_matches_everything() {
    let host = |number: u32| {
        let mut rule = Rule::<4>::ANY;
        (rule.value[0], rule.mask[0]) = (number, u32::MAX);
        rule
    };
    let mut rules: Vec<_> = (0..1000).map(host).collect();
    rules.insert(0, Rule::ANY);
    rules.push(Rule::ANY);
    let tree = CompleteTree::new(&rules, Limits::of(rules.len(), 4), Effort::Best).unwrap();
    assert_eq!(all(&tree, &Header([500, 0, 0, 0]), 9), [0, 501, 1001]);
    assert_eq!(all(&tree, &Header([5000, 0, 0, 0]), 9), [0, 1001]);
}

/// Each header matches all of them, so that a leaf that has all would have too many.
#[test]
fn more_matches_than_a_leaf_can_have_are_refused() {
    let rules = vec![Rule::<4>::ANY; 2000];
    let limits = Limits::of(rules.len(), 4);
    assert!(Tree::new(&rules, limits, Effort::Best).is_ok());
    let refused = CompleteTree::new(&rules, limits, Effort::Best).unwrap_err();
    assert_eq!(refused, Refused::Leaf);
}

/// A node's window is chosen by a sample of its rules. Here those in the sample have all bits of an
/// octet, and all others have none and so would stand in each of 256 lists, at each depth again.
#[test]
fn rules_that_no_sample_shows_take_no_more_memory_than_there_may_be() {
    const SAMPLE: usize = 192;
    let open = |number: usize| {
        let mut rule = Rule::<10>::ANY;
        let (a, b) = ((number % 200) as u16 + 1, (number / 200) as u16 + 1);
        rule.value[8] = Header::<10>::pair(a, b);
        rule.mask[8] = Header::<10>::pair(40_000, 40_000);
        rule
    };
    let mut rules: Vec<_> = (0..20_000).map(open).collect();
    for depth in (0..8).rev() {
        let step = (rules.len() + SAMPLE).div_ceil(SAMPLE);
        let mut others = rules.into_iter();
        rules = Vec::new();
        for number in 0..SAMPLE as u32 {
            let mut rule = open(number as usize);
            for octet in 0..=depth {
                rule.mask[octet / 4] |= 0xff << (24 - 8 * (octet % 4));
            }
            rule.value[depth / 4] = (number + 1) << (24 - 8 * (depth % 4));
            rules.push(rule);
            rules.extend(others.by_ref().take(step - 1));
        }
        rules.extend(others);
    }
    let limits = Limits { bytes: 8 << 20, ..Limits::of(rules.len(), 10) };
    for effort in [Effort::Quick, Effort::Best] {
        assert_eq!(Tree::new(&rules, limits, effort).unwrap_err(), Refused::Bytes);
    }
}
