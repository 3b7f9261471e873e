//! Trees find what trying one rule after the other finds.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

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
        work in 0..1_000_000_usize,
    ) {
        check(&rules, &probes, Limits { bytes, inner, work })?;
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

/// Rules that take much looking at: building is given up for that, and before a style that takes
/// less would have been.
#[test]
fn work_is_bounded() {
    let rules: Vec<_> = (1..=3000_u32)
        .map(|number| {
            let mut rule = Rule::<10>::ANY;
            for word in 0..8 {
                // Some bits here, some there: each window has few rules that it tells apart.
                let bits = number.wrapping_mul(0x9e37_79b9).rotate_left(3 * word as u32);
                rule.mask[word] = bits & bits.rotate_left(7) & bits.rotate_left(11);
                rule.value[word] = number.wrapping_mul(0x85eb_ca6b) & rule.mask[word];
            }
            (rule.value[9], rule.mask[9]) = (number & 0xff, 0xff);
            rule
        })
        .collect();
    let all = Limits::of(rules.len(), 10);
    for work in [1, 10_000, 1_000_000] {
        for effort in [Effort::Quick, Effort::Best] {
            let limits = Limits { work, ..all };
            assert_eq!(Tree::new(&rules, limits, effort).unwrap_err(), Refused::Time, "{work}");
        }
    }
}

/// Trees of both styles, with all matches and without, and a chain, for many headers. How many, and
/// the seed, come from the environment: see docs/testing.md.
#[test]
fn trees_of_every_style_find_the_same() {
    let number = |name: &str, otherwise: u64| {
        let text = std::env::var(name).unwrap_or_default().replace('_', "");
        if text.is_empty() { otherwise } else { text.parse().expect(name) }
    };
    let headers = number("HITPATH_TEST_LOOKUPS", 400_000);
    let seed = number("HITPATH_TEST_SEED", 1);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), random);
    let mut counts = Counts::default();
    for round in 0_usize.. {
        if counts.headers >= headers {
            break;
        }
        let size = [60, 2000, 10, 300][round % 4];
        if round % 3 == 2 {
            compare::<10>(&mut runner, size, &mut counts);
        } else {
            compare::<4>(&mut runner, size, &mut counts);
        }
        println!("seed {seed}: {counts:?}");
    }
    assert!(counts.found > counts.headers / 4, "{counts:?}");
    assert!(counts.trees.into_iter().all(|trees| trees > 0), "{counts:?}");
}

#[derive(Debug, Default)]
struct Counts {
    headers: u64,
    lookups: u64,
    by_oracle: u64,
    found: u64,
    /// Built, by style; first those that find the first match only.
    trees: [u32; 4],
}

fn compare<const WORDS: usize>(runner: &mut TestRunner, size: usize, counts: &mut Counts) {
    const HEADERS: usize = 20_000;
    let rules = proptest::collection::vec(rule::<WORDS>(), size);
    let rules = rules.new_tree(runner).unwrap().current();
    let chain = Chain::new((0..).zip(rules.iter().copied()));
    let patterns: Vec<_> = rules.iter().map(build::Pattern::of).collect();
    let limits = Limits::of(rules.len(), WORDS);
    let (mut trees, mut complete) = (Vec::new(), Vec::new());
    for (number, (keep, style)) in [Keep::First, Keep::Every]
        .into_iter()
        .flat_map(|keep| build::STYLES.map(|style| (keep, style)))
        .enumerate()
    {
        let tree = build::Builder::new(&rules, &patterns, limits, style, keep).build();
        counts.trees[number] += u32::from(tree.is_ok());
        match (keep, tree) {
            (_, Err(_)) => {}
            (Keep::First, Ok(tree)) => trees.push(tree),
            (Keep::Every, Ok(tree)) => complete.push(CompleteTree(tree)),
        }
    }
    let headers: Vec<_> = (0..HEADERS)
        .map(|_| {
            let random = runner.rng();
            let noise = [0; 4].map(|_| random.next_u32());
            header(&rules, (random.next_u32() as usize, noise))
        })
        .collect();
    let confirms = |rule: u32, header: &Header<WORDS>| confirms(rule as usize, header);
    let wanted: Vec<_> = headers
        .iter()
        .map(|header| chain.lookup(header, |rule| confirms(rule, header)).unwrap_or(NONE))
        .collect();
    let mut found = vec![7; headers.len()];
    for tree in trees.iter().chain(complete.iter().map(CompleteTree::tree)) {
        tree.lookup_batch(&headers, &mut found, |at, rule| confirms(rule, &headers[at]));
        for ((header, found), wanted) in headers.iter().zip(&found).zip(&wanted) {
            assert_eq!(found, wanted, "together: {header:?}");
        }
        for (header, wanted) in headers.iter().zip(&wanted).step_by(4) {
            let found = tree.lookup(header, |rule| confirms(rule, header));
            assert_eq!(found.unwrap_or(NONE), *wanted, "alone: {header:?}");
        }
        counts.lookups += (headers.len() + headers.len() / 4) as u64;
    }
    for (header, wanted) in headers.iter().zip(&wanted).step_by(1 + size / 16) {
        assert_eq!(rules.lookup(header, |rule| confirms(rule, header)).unwrap_or(NONE), *wanted);
        let all_of = all(&rules[..], header, usize::MAX);
        assert_eq!(all(&chain, header, usize::MAX), all_of, "{header:?}");
        for tree in &complete {
            assert_eq!(all(tree, header, usize::MAX), all_of, "{header:?}");
        }
        counts.by_oracle += 1;
    }
    counts.headers += headers.len() as u64;
    counts.lookups += headers.len() as u64;
    counts.found += wanted.iter().filter(|rule| **rule != NONE).count() as u64;
}
