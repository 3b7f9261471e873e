//! What a rule set is like, in numbers.

use std::collections::{BTreeSet, HashMap, HashSet};

use tables::{Selector, UpperSelector};
use types::IpRange;

use super::upper::is_true_range;
use super::{covering_prefix, low_bits};

/// Measurements of a rule set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// How many rules.
    pub rules: usize,
    /// Distinct pairs of source and destination prefix length. A range that is no prefix counts as
    /// the longest prefix that holds it.
    pub length_pairs: usize,
    /// How many of those pairs, the most common first, hold 90 % of the rules.
    pub length_pairs_of_90_percent: usize,
    /// Share of rules for any source address.
    pub any_source: f64,
    /// Share of rules for any destination address.
    pub any_destination: f64,
    /// Share of rules with a port range that is neither one port nor all ports.
    pub port_ranges: f64,
    /// Distinct source port ranges, single ports and "any" included.
    pub source_port_ranges: usize,
    /// Distinct destination port ranges, single ports and "any" included.
    pub destination_port_ranges: usize,
    /// Share of rules for any protocol.
    pub any_protocol: f64,
    /// The most rules that have one and the same source and destination.
    pub most_per_address_pair: usize,
    /// Distinct pairs of source and destination.
    pub address_pairs: usize,
    /// How many distinct prefixes lie in one another at most, for sources and for destinations. A
    /// range that is no prefix counts as the longest prefix that holds it.
    pub deepest: [usize; 2],
    /// Share of rules with a port range that is neither one port nor all nor a block of a power of
    /// two.
    pub misaligned_ports: f64,
    /// Share of rules with an address range that is no prefix.
    pub misaligned: f64,
}

/// Measures a rule set. All shares of an empty one are 0.
pub fn statistics(rules: &[Selector]) -> Statistics {
    let share = |of: &dyn Fn(&Selector) -> bool| {
        rules.iter().filter(|rule| of(rule)).count() as f64 / rules.len().max(1) as f64
    };
    let ports = |rule: &Selector| match rule.upper {
        UpperSelector::Ports { source, destination } => [source, destination],
        _ => [types::PortRange::ALL; 2],
    };
    let is_any = |range: &IpRange| [IpRange::ALL_V4, IpRange::ALL_V6].contains(range);
    let lengths = counts(
        rules
            .iter()
            .map(|rule| (covering_prefix(&rule.source).0, covering_prefix(&rule.destination).0)),
    );
    let addresses = counts(rules.iter().map(|rule| (rule.source, rule.destination)));
    let mut covered = 0;
    let head = lengths.iter().take_while(|&&size| {
        let before = covered;
        covered += size;
        before * 10 < rules.len() * 9
    });
    Statistics {
        rules: rules.len(),
        length_pairs_of_90_percent: head.count(),
        length_pairs: lengths.len(),
        any_source: share(&|rule| is_any(&rule.source)),
        any_destination: share(&|rule| is_any(&rule.destination)),
        port_ranges: share(&|rule| ports(rule).iter().any(is_true_range)),
        source_port_ranges: rules.iter().map(|rule| ports(rule)[0]).collect::<HashSet<_>>().len(),
        destination_port_ranges: rules
            .iter()
            .map(|rule| ports(rule)[1])
            .collect::<HashSet<_>>()
            .len(),
        any_protocol: share(&|rule| rule.protocol.is_none()),
        most_per_address_pair: addresses.first().copied().unwrap_or(0),
        address_pairs: addresses.len(),
        deepest: [
            deepest(rules.iter().map(|rule| &rule.source)),
            deepest(rules.iter().map(|rule| &rule.destination)),
        ],
        misaligned_ports: share(&|rule| ports(rule).iter().any(is_no_block)),
        misaligned: share(&|rule| {
            rule.source.as_prefix().is_none() || rule.destination.as_prefix().is_none()
        }),
    }
}

/// How many distinct prefixes, those that cover the ranges, lie in one another at most.
fn deepest<'a>(ranges: impl Iterator<Item = &'a IpRange>) -> usize {
    let mut prefixes: Vec<_> = ranges
        .map(|range| {
            let (length, first) = covering_prefix(range);
            (first, length, range.is_v6())
        })
        .collect();
    // What holds a prefix comes before it, and what comes between lies in that too.
    prefixes.sort_unstable_by_key(|&(first, length, v6)| (v6, first, length));
    prefixes.dedup();
    let mut around: Vec<(u128, u32, bool)> = Vec::new();
    let mut deepest = 0;
    for prefix in prefixes {
        while around.pop_if(|outer| !holds(outer, &prefix)).is_some() {}
        around.push(prefix);
        deepest = deepest.max(around.len());
    }
    deepest
}

/// The most distinct pairs of prefixes that lie around one of them, that one included. A range that
/// is no prefix counts as the longest prefix that holds it. Takes a second for 100,000 rules.
pub fn nested_pairs(rules: &[Selector]) -> usize {
    type Prefix = (u32, u128);
    let covering =
        |rule: &Selector| [covering_prefix(&rule.source), covering_prefix(&rule.destination)];
    let mut most = 0;
    for v6 in [false, true] {
        let width = if v6 { 128 } else { 32 };
        let pairs: HashSet<[Prefix; 2]> =
            rules.iter().filter(|rule| rule.source.is_v6() == v6).map(covering).collect();
        // By side: the distinct prefixes, and the lengths that occur.
        let prefixes = [0, 1].map(|side| {
            pairs.iter().map(|pair: &[Prefix; 2]| pair[side]).collect::<HashSet<Prefix>>()
        });
        let lengths = [0, 1].map(|side: usize| {
            prefixes[side].iter().map(|prefix| prefix.0).collect::<BTreeSet<u32>>()
        });
        let around = |side: usize, (length, bits): Prefix| -> Vec<Prefix> {
            let outer = lengths[side].iter().take_while(|outer| **outer <= length);
            let outer = outer.map(|&outer| (outer, bits & !low_bits(width - outer)));
            outer.filter(|outer| prefixes[side].contains(outer)).collect()
        };
        for pair in &pairs {
            let [sources, destinations] = [0, 1].map(|side| around(side, pair[side]));
            let both = sources
                .iter()
                .flat_map(|source| destinations.iter().map(|destination| [*source, *destination]));
            most = most.max(both.filter(|outer| pairs.contains(outer)).count());
        }
    }
    most
}

/// Whether a port range is not one that a value and a mask can say.
fn is_no_block(range: &types::PortRange) -> bool {
    let (first, last) = (u32::from(range.first()), u32::from(range.last()));
    let length = last - first + 1;
    !length.is_power_of_two() || first % length != 0
}

/// Whether one prefix lies in the other, or is equal.
fn holds(outer: &(u128, u32, bool), inner: &(u128, u32, bool)) -> bool {
    let width = if outer.2 { 128 } else { 32 };
    outer.2 == inner.2 && outer.1 <= inner.1 && inner.0 & !low_bits(width - outer.1) == outer.0
}

/// How often each distinct item occurs, descending.
fn counts<T: core::hash::Hash + Eq>(items: impl Iterator<Item = T>) -> Vec<usize> {
    let mut counts = HashMap::new();
    for item in items {
        *counts.entry(item).or_insert(0usize) += 1;
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}
