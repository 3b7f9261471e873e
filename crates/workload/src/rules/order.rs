//! The priority order of a set.

use core::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tables::{Selector, UpperSelector};
use types::IpRange;

use super::{bits, covering_prefix, low_bits};

/// Puts rules into a random order in which each comes before every other that covers it, as
/// ClassBench does with its own: behind one that covers it, it could never match.
pub(super) fn specific_first(rules: Vec<Selector>, seed: u64) -> Vec<Selector> {
    let mut random = ChaCha8Rng::seed_from_u64(!seed);
    let mut groups: HashMap<(IpRange, IpRange), usize> = HashMap::new();
    let mut members: Vec<((IpRange, IpRange), Vec<Placed>)> = Vec::new();
    for rule in rules {
        let addresses = (rule.source, rule.destination);
        let at = *groups.entry(addresses).or_insert_with(|| {
            members.push((addresses, Vec::new()));
            members.len() - 1
        });
        members[at].1.push(Placed { place: wanted(&rule, &mut random), rule });
    }

    // From the widest addresses to the narrowest: all that cover a group have been placed when its
    // turn comes. Width of the source, then of the destination, is such an order, since what covers
    // is wider in one and not narrower in the other.
    members.sort_by_cached_key(|((source, destination), _)| {
        (Reverse((width(source), width(destination))), *source, *destination)
    });
    let mut placed = Covering::default();
    for ((source, destination), members) in &mut members {
        let before = placed.first_that_covers(source, destination);
        members.sort_by_key(|member| Reverse(upper_width(&member.rule)));
        let mut first = f64::INFINITY;
        for at in 0..members.len() {
            let (wider, rest) = members.split_at_mut(at);
            let covering = wider.iter().filter(|wider| covers_upper(&wider.rule, &rest[0].rule));
            rest[0].place =
                covering.map(|wider| wider.place).fold(rest[0].place.min(before), f64::min);
            first = first.min(rest[0].place);
        }
        placed.insert(*source, *destination, first);
    }

    let mut rules: Vec<_> = members.into_iter().flat_map(|(_, members)| members).collect();
    rules.sort_by(|a, b| {
        a.place.total_cmp(&b.place).then_with(|| volume(&a.rule).cmp(&volume(&b.rule)))
    });
    rules.into_iter().map(|placed| placed.rule).collect()
}

struct Placed {
    rule: Selector,
    /// From 0, first, to 1.
    place: f64,
}

/// Where a rule would like to be: wide ones towards the end, or else the many that they cover would
/// all crowd before them.
fn wanted(rule: &Selector, random: &mut ChaCha8Rng) -> f64 {
    let bits = if rule.source.is_v6() { 256.0 } else { 64.0 };
    let length = covering_prefix(&rule.source).0 + covering_prefix(&rule.destination).0;
    1.0 - random.random::<f64>() * f64::from(length) / bits
}

/// Length and bits.
type Prefix = (u32, u128);

/// Source, destination and the first place of their rules.
type PlacedPair = (IpRange, IpRange, f64);

/// Finds the address pairs that cover one, by the prefixes that cover theirs.
#[derive(Default)]
struct Covering {
    /// For each covering prefix of a source, those of the destinations that it was seen with.
    sources: HashMap<Prefix, HashMap<Prefix, Vec<PlacedPair>>>,
    /// The lengths in use.
    lengths: [BTreeSet<u32>; 2],
}

impl Covering {
    fn insert(&mut self, source: IpRange, destination: IpRange, place: f64) {
        let keys = [covering_prefix(&source), covering_prefix(&destination)];
        for (lengths, key) in self.lengths.iter_mut().zip(keys) {
            lengths.insert(key.0);
        }
        let destinations = self.sources.entry(keys[0]).or_default();
        destinations.entry(keys[1]).or_default().push((source, destination, place));
    }

    fn first_that_covers(&self, source: &IpRange, destination: &IpRange) -> f64 {
        let width = if source.is_v6() { 128 } else { 32 };
        let prefixes = |range: &IpRange, lengths| {
            let (longest, prefix) = covering_prefix(range);
            let within = BTreeSet::range(lengths, ..=longest);
            within.map(move |&length| (length, prefix & !low_bits(width - length)))
        };
        let mut first = f64::INFINITY;
        for destinations in
            prefixes(source, &self.lengths[0]).filter_map(|key| self.sources.get(&key))
        {
            for pairs in
                prefixes(destination, &self.lengths[1]).filter_map(|key| destinations.get(&key))
            {
                for (wider_source, wider_destination, place) in pairs {
                    if covers(wider_source, source) && covers(wider_destination, destination) {
                        first = first.min(*place);
                    }
                }
            }
        }
        first
    }
}

fn covers(wider: &IpRange, range: &IpRange) -> bool {
    wider.first() <= range.first() && range.last() <= wider.last()
}

fn covers_upper(wider: &Selector, rule: &Selector) -> bool {
    (wider.protocol.is_none() || wider.protocol == rule.protocol)
        && match (wider.upper, rule.upper) {
            (UpperSelector::Any, _) => true,
            (
                UpperSelector::Ports { source, destination },
                UpperSelector::Ports { source: narrow_source, destination: narrow_destination },
            ) => [(source, narrow_source), (destination, narrow_destination)].iter().all(
                |(wide, narrow)| wide.first() <= narrow.first() && narrow.last() <= wide.last(),
            ),
            (
                UpperSelector::Icmp { kind, code },
                UpperSelector::Icmp { kind: narrow_kind, code: narrow_code },
            ) => [(kind, narrow_kind), (code, narrow_code)]
                .iter()
                .all(|(wide, narrow)| wide.0 <= narrow.0 && narrow.1 <= wide.1),
            _ => false,
        }
}

/// Grows with what a rule covers: if one covers another, its volume is the greater.
fn volume(rule: &Selector) -> (u128, u128, [u32; 4]) {
    (width(&rule.source), width(&rule.destination), upper_width(rule))
}

fn width(range: &IpRange) -> u128 {
    bits(range.last()) - bits(range.first())
}

fn upper_width(rule: &Selector) -> [u32; 4] {
    let any_protocol = u32::from(rule.protocol.is_none());
    match rule.upper {
        UpperSelector::Any => [any_protocol, 1, 0, 0],
        UpperSelector::Ports { source, destination } => {
            let [source, destination] =
                [source, destination].map(|ports| u32::from(ports.last() - ports.first()));
            [any_protocol, 0, source, destination]
        }
        UpperSelector::Icmp { kind, code } => [
            any_protocol,
            0,
            u32::from(kind.1.abs_diff(kind.0)),
            u32::from(code.1.abs_diff(code.0)),
        ],
    }
}
