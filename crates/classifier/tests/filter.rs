//! A user with other fields than policies have: a filter on ingress port and register as well.

use std::collections::BTreeMap;

use classifier::{
    Chain, Classifier, CompleteTree, Effort, Header, Limits, Refused, Rule, RuleSet, Scoped, Tree,
    linear,
};

/// Ingress port, register, source, destination, ports, protocol.
const WORDS: usize = 6;
const INGRESS: usize = 0;
const REGISTER: usize = 1;
const SOURCE: usize = 2;
const DESTINATION: usize = 3;
const PROTOCOL: usize = 5;

const MANY: u32 = 10_000;

fn exactly(fields: &[(usize, u32)]) -> Rule<WORDS> {
    let mut rule = Rule::ANY;
    for &(word, value) in fields {
        (rule.value[word], rule.mask[word]) = (value, u32::MAX);
    }
    rule
}

fn compiled(rules: &[Rule<WORDS>]) -> Tree<WORDS> {
    Tree::new(rules, Limits::of(rules.len(), WORDS), Effort::Best).expect("trees")
}

/// Numbers that look like anything.
fn noise(number: u32) -> u32 {
    (number ^ number >> 7).wrapping_mul(0x9e37_79b1) ^ number.wrapping_mul(0x85eb_ca6b) >> 13
}

#[test]
fn rules_that_differ_in_port_and_register_cost_what_those_cost_that_differ_in_addresses() {
    let addresses: Vec<_> =
        (0..MANY).map(|n| exactly(&[(SOURCE, noise(n)), (DESTINATION, noise(!n))])).collect();
    let others: Vec<_> =
        (0..MANY).map(|n| exactly(&[(INGRESS, n % 100), (REGISTER, n / 100)])).collect();
    let (addresses, others) = (compiled(&addresses), compiled(&others));
    let (usual, cost) = (addresses.statistics().cost, others.statistics().cost);
    assert!(cost <= 2 * usual, "{cost} instead of {usual}");
    for n in (0..MANY).step_by(37) {
        let mut header = Header([7; WORDS]);
        (header.0[INGRESS], header.0[REGISTER]) = (n % 100, n / 100);
        assert_eq!(others.lookup(&header, |_| true), Some(n));
        header.0[INGRESS] = 100;
        assert_eq!(others.lookup(&header, |_| true), None);
    }
}

/// Every combination of fields, each given or left open.
#[test]
fn any_combination_of_fields_is_found() {
    let words = [INGRESS, REGISTER, SOURCE, DESTINATION, PROTOCOL];
    let rules: Vec<_> = (0..3000_u32)
        .map(|number| {
            let given = words.iter().enumerate().filter(|(bit, _)| noise(number) >> bit & 1 != 0);
            let fields: Vec<_> =
                given.map(|(bit, word)| (*word, noise(number + bit as u32) % 50)).collect();
            exactly(&fields)
        })
        .filter(|rule| *rule != Rule::ANY)
        .collect();
    let tree = compiled(&rules);
    let headers: Vec<_> = (0..20_000_u32)
        .map(|number| Header(core::array::from_fn(|word| noise(7 * number + word as u32) % 50)))
        .collect();
    let mut found = vec![0; headers.len()];
    tree.lookup_batch(&headers, &mut found, |_, _| true);
    let mut matched = 0;
    for (header, found) in headers.iter().zip(found) {
        let wanted = linear(&rules, header, |_| true).map_or(u32::MAX, |rule| rule as u32);
        assert_eq!(found, wanted, "{header:?}");
        matched += usize::from(found != u32::MAX);
    }
    assert!(matched > 1000, "{matched}");
}

fn all(classifier: &(impl Classifier<WORDS> + ?Sized), header: &Header<WORDS>) -> Vec<u32> {
    classifier.matches(header, |_| true).collect()
}

#[test]
fn all_matches_of_any_combination_of_fields_are_found_in_order() {
    let words = [INGRESS, REGISTER, SOURCE, DESTINATION, PROTOCOL];
    let rules: Vec<_> = (0..3000_u32)
        .map(|number| {
            let given = words.iter().enumerate().filter(|(bit, _)| noise(number) >> bit & 1 != 0);
            let fields: Vec<_> =
                given.map(|(bit, word)| (*word, noise(number + bit as u32) % 4)).collect();
            exactly(&fields)
        })
        .collect();
    let limits = Limits::of(rules.len(), WORDS);
    let tree = CompleteTree::new(&rules, limits, Effort::Best).expect("trees");
    let chain = Chain::new((0..).zip(rules.iter().copied()));
    let mut most = 0;
    for number in 0..5000_u32 {
        let header = Header(core::array::from_fn(|word| noise(7 * number + word as u32) % 5));
        let wanted = all(&rules[..], &header);
        assert_eq!(all(&tree, &header), wanted, "{header:?}");
        assert_eq!(all(&chain, &header), wanted, "{header:?}");
        most = most.max(wanted.len());
    }
    assert!(most > 50, "{most}");
}

/// What a filter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Pass(u32),
    Drop(u32),
}

type Ranked = (u64, Rule<WORDS>, Action);

/// A filter whose rules name a VRF, or are for all.
#[derive(Default)]
struct Filter {
    /// By VRF; of `None`, for all.
    rules: BTreeMap<Option<u32>, Vec<Ranked>>,
    sets: BTreeMap<Option<u32>, RuleSet<WORDS, Action>>,
}

impl Filter {
    fn set(&mut self, vrf: Option<u32>, rules: Vec<Ranked>) {
        self.sets.insert(vrf, RuleSet::new(rules.iter().copied(), Effort::Best));
        self.rules.insert(vrf, rules);
    }

    fn of(&self, vrf: u32) -> Scoped<'_, WORDS, Action> {
        Scoped { own: &self.sets[&Some(vrf)], shared: &self.sets[&None] }
    }

    /// All that match, by trying each.
    fn linear(&self, vrf: u32, header: &Header<WORDS>) -> Vec<(u64, Action)> {
        let all = [Some(vrf), None].into_iter().flat_map(|of| &self.rules[&of]);
        let matching = all.filter(|(_, rule, _)| rule.matches(header));
        let mut found: Vec<_> = matching.map(|(rank, _, action)| (*rank, *action)).collect();
        found.sort_by_key(|(rank, _)| *rank);
        found
    }
}

/// Rules on any fields, with ranks that many have in common.
fn ranked(seed: u32, count: u32) -> Vec<Ranked> {
    let words = [INGRESS, REGISTER, SOURCE, DESTINATION, PROTOCOL];
    (seed..seed + count)
        .map(|number| {
            let given = words.iter().enumerate().filter(|(bit, _)| noise(number) >> bit & 1 != 0);
            let fields: Vec<_> =
                given.map(|(bit, word)| (*word, noise(number + bit as u32) % 8)).collect();
            let action = if number % 3 == 0 { Action::Pass } else { Action::Drop };
            (u64::from(noise(number) >> 8 & 0xff), exactly(&fields), action(number))
        })
        .collect()
}

/// Ranges of ports that all overlap, so that nothing but trying each helps.
fn hostile(count: u32) -> Vec<Ranked> {
    let rule = |number: u32| {
        let mut rule = Rule::<WORDS>::ANY;
        let (a, b) = ((number % 250) as u16, (number / 250) as u16);
        rule.value[Header::<WORDS>::PAIR] = Header::<WORDS>::pair(a, b);
        rule.mask[Header::<WORDS>::PAIR] = Header::<WORDS>::pair(40_000, 40_000);
        (u64::from(number), rule, Action::Drop(number))
    };
    (0..count).map(rule).collect()
}

fn some_headers() -> impl Iterator<Item = Header<WORDS>> {
    let word = |number: u32, word: usize| noise(7 * number + word as u32) % 9;
    (0..3000_u32).map(move |number| Header(core::array::from_fn(|at| word(number, at))))
}

#[test]
fn ranks_decide_between_the_rules_of_a_vrf_and_those_of_all() {
    let mut filter = Filter::default();
    filter.set(None, ranked(10_000, 300));
    filter.set(Some(1), ranked(20_000, 400));
    filter.set(Some(2), Vec::new());
    filter.set(Some(3), hostile(3000));
    let (mut own, mut shared) = (0, 0);
    for (vrf, header) in some_headers().flat_map(|header| (1..=3).map(move |vrf| (vrf, header))) {
        let wanted = filter.linear(vrf, &header);
        let scoped = filter.of(vrf);
        let found: Vec<_> =
            scoped.matches(&header, |_| true).map(|found| (found.rank, *found.value)).collect();
        assert_eq!(found, wanted, "{vrf} {header:?}");
        let best = scoped.lookup(&header, |_| true).map(|found| (found.rank, *found.value));
        assert_eq!(best, wanted.first().copied(), "{vrf} {header:?}");
        let is_own = |(_, action): &(u64, Action)| {
            let (Action::Pass(number) | Action::Drop(number)) = action;
            *number >= 20_000
        };
        if let (1, Some(best)) = (vrf, wanted.first()) {
            *(if is_own(best) { &mut own } else { &mut shared }) += 1;
        }
    }
    assert!(own > 300 && shared > 300, "{own} {shared}");
}

#[test]
fn the_rules_of_one_vrf_cannot_make_the_lookups_of_another_slower() {
    let mut filter = Filter::default();
    filter.set(None, ranked(10_000, 100));
    filter.set(Some(1), ranked(20_000, 1000));
    filter.set(Some(2), Vec::new());
    let work = |filter: &Filter, vrf| {
        let scoped = filter.of(vrf);
        let each: Vec<_> = some_headers().map(|header| scoped.work(&header, |_| true)).collect();
        let bound = scoped.bound();
        for work in &each {
            assert!(work.own.probes <= bound.own.probes && work.own.rules <= bound.own.rules);
            assert!(work.shared.probes <= bound.shared.probes);
            assert!(work.shared.rules <= bound.shared.rules);
        }
        (bound, each)
    };
    let before = work(&filter, 1);
    filter.set(Some(2), hostile(10_000));
    assert_eq!(work(&filter, 1), before);
    // It is that VRF's own lookups that are slow, and its own bound says so.
    let scoped = filter.of(2);
    assert_eq!(scoped.own.refused(), Some(Refused::Leaf));
    assert_eq!((scoped.bound().own.rules, scoped.bound().shared), (10_000, before.0.shared));
    let header = Header([0, 0, 0, 0, Header::<WORDS>::pair(60_000, 60_000), 0]);
    assert_eq!(scoped.work(&header, |_| true).own.rules, 10_000);
    // Among the rules of all they would reach everybody.
    filter.set(None, hostile(10_000));
    assert_ne!(work(&filter, 1), before);
}
