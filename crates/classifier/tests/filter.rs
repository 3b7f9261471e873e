//! A user with other fields than policies have: a filter on ingress port and register as well.

use classifier::{Chain, Classifier, CompleteTree, Effort, Header, Limits, Rule, Tree, linear};

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
