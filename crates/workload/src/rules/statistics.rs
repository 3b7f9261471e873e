//! What a rule set is like, in numbers.

use std::collections::{HashMap, HashSet};

use tables::{Selector, UpperSelector};
use types::IpRange;

use super::covering_prefix;
use super::upper::is_true_range;

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
        misaligned: share(&|rule| {
            rule.source.as_prefix().is_none() || rule.destination.as_prefix().is_none()
        }),
    }
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
