//! Which pairs of source and destination prefix lengths a set has, and how many rules of each.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::Kind;
use super::profile::Profile;

/// Prefix lengths of source and destination.
pub(super) type Pair = (u32, u32);

/// The pairs of a set of `count` rules with their numbers of rules, the most common first. A kind
/// has the same pairs whatever the seed of the set.
pub(super) fn quotas(kind: Kind, v6: bool, profile: &Profile, count: usize) -> Vec<(Pair, usize)> {
    let sizes = sizes(profile, count);
    let pairs = pairs(kind, v6, profile, count, &sizes);
    pairs.into_iter().zip(sizes).collect()
}

/// How often each IPv6 prefix length, up to /48, is in the global routing table.
///
/// Counted in a full table of one large network: the 160,147 IPv6 prefixes of `prefixes.txt.gz` in
/// the tests of <https://github.com/gaissmai/bart>, as of 2024-01-27. The mean length of these is
/// 42.5; <https://bgp.potaroo.net/v6/as2.0/> says 43.0 of its table of 2024-04-27, with 208,062
/// prefixes.
const ROUTED: [(u32, u32); 30] = [
    (19, 1),
    (20, 16),
    (21, 3),
    (22, 7),
    (23, 8),
    (24, 30),
    (25, 8),
    (26, 15),
    (27, 20),
    (28, 193),
    (29, 4371),
    (30, 650),
    (31, 284),
    (32, 22_548),
    (33, 2926),
    (34, 2603),
    (35, 1043),
    (36, 5996),
    (37, 880),
    (38, 1617),
    (39, 1377),
    (40, 13_418),
    (41, 903),
    (42, 2301),
    (43, 1001),
    (44, 14_365),
    (45, 1553),
    (46, 3039),
    (47, 3153),
    (48, 75_488),
];

/// Longer IPv6 prefix lengths, and how common they are among each other. Nobody publishes what
/// networks have inside: the lengths are those of the standards, the shares are an assumption.
///
/// Sites get up to /60 (RFC 6177), subnets are /64 (RFC 4291), /96 translates (RFC 6052), /127 is a
/// link (RFC 6164), other long ones number servers and routers, /128 is one of them.
const INSIDE: [(u32, u32); 13] = [
    (52, 60),
    (56, 600),
    (60, 200),
    (62, 50),
    (63, 30),
    (64, 2600),
    (96, 40),
    (112, 60),
    (120, 60),
    (124, 40),
    (126, 120),
    (127, 140),
    (128, 1000),
];

/// Both, each as one half.
fn ipv6_lengths() -> Vec<(u32, f64)> {
    let half = |lengths: &[(u32, u32)]| {
        let sum: u32 = lengths.iter().map(|(_, count)| count).sum();
        let share = |&(length, count): &(u32, u32)| (length, f64::from(count) / f64::from(sum));
        lengths.iter().map(share).collect::<Vec<_>>()
    };
    [half(&ROUTED), half(&INSIDE)].concat()
}

/// How often each IPv4 length from /1 on is in the nested set of 23,749 rules, as source and as
/// destination.
const NESTED_LENGTHS: [u32; 32] = [
    783, 618, 418, 290, 191, 174, 176, 183, 211, 198, 190, 233, 287, 396, 548, 675, 761, 864, 912,
    1102, 1324, 1596, 2106, 2490, 2860, 3017, 3162, 3305, 3497, 3995, 4611, 5543,
];

/// How many rules each pair has, descending: `head` pairs hold 90 % of them and no fewer pairs do.
fn sizes(profile: &Profile, count: usize) -> Vec<usize> {
    let pairs = profile.pairs.min(count);
    let head = profile.head.min(pairs);
    let tail = pairs - head;
    let in_tail = if tail == 0 { 0 } else { (count / 10).clamp(tail, count - head) };
    let mut sizes = apportion(count - in_tail, head, 0.7);
    sizes.extend(apportion(in_tail, tail, 0.3));
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// Divides `total` into `parts` numbers that fall off as a power of their rank, and none of which
/// is 0 if that is possible.
fn apportion(total: usize, parts: usize, exponent: f64) -> Vec<usize> {
    let weight = |rank: usize| ((rank + 1) as f64).powf(-exponent);
    let sum: f64 = (0..parts).map(weight).sum();
    let spare = total.saturating_sub(parts);
    let mut sizes: Vec<_> =
        (0..parts).map(|rank| 1 + (spare as f64 * weight(rank) / sum) as usize).collect();
    let rest = total.saturating_sub(sizes.iter().sum());
    for at in 0..rest {
        sizes[at % parts] += 1;
    }
    sizes
}

/// The pairs for those sizes, so that as many rules have any source and any destination as the
/// profile says.
fn pairs(kind: Kind, v6: bool, profile: &Profile, count: usize, sizes: &[usize]) -> Vec<Pair> {
    let mut random = ChaCha8Rng::seed_from_u64(kind as u64);
    let lengths = weighted_lengths(kind, v6);
    let mut for_any_source =
        shuffled(&mut random, lengths.iter().map(|&(length, weight)| ((0, length), weight)));
    let mut for_any_destination =
        shuffled(&mut random, lengths.iter().map(|&(length, weight)| ((length, 0), weight)));
    let specific = shuffled(
        &mut random,
        lengths.iter().flat_map(|source| {
            lengths
                .iter()
                .map(move |destination| ((source.0, destination.0), source.1 * destination.1))
        }),
    );
    // IPv4's lengths are as the order has them.
    let mut missing = Missing::new(&lengths, profile, count, if v6 { 24 } else { 1 });

    let mut left = [profile.any_source, profile.any_destination]
        .map(|share| (share * count as f64).round() as usize);
    let mut pairs = vec![None; sizes.len()];
    // Firewalls and IP chains have rules for any address at all; they are few, since ports alone
    // tell them apart.
    if kind != Kind::Acl
        && let Some(&size) = sizes
            .last()
            .filter(|&&size| size <= profile.most && left.iter().all(|&left| size <= left))
    {
        pairs[sizes.len() - 1] = Some((0, 0));
        left = left.map(|left| left - size);
    }
    // First with restraint, so that not just the largest sizes are for any address; then whatever
    // still fits.
    for chance in [0.6, 1.0] {
        for (pair, &size) in pairs.iter_mut().zip(sizes).filter(|(pair, _)| pair.is_none()) {
            for (left, list) in left.iter_mut().zip([&mut for_any_source, &mut for_any_destination])
            {
                if pair.is_none() && size <= *left && random.random_bool(chance) {
                    *pair = missing.take(list, size);
                    *left -= if pair.is_some() { size } else { 0 };
                }
            }
        }
    }
    let hosts = if v6 { (128, 128) } else { (32, 32) };
    let pairs = pairs.into_iter().zip(sizes);
    // There may be fewer pairs of two lengths than are wanted.
    let mut lists = [specific, for_any_source, for_any_destination];
    let mut other = |size| lists.iter_mut().find_map(|list| missing.take(list, size));
    pairs.map(|(pair, &size)| pair.or_else(|| other(size)).unwrap_or(hosts)).collect()
}

/// How many rules each length lacks on either side, so that the large sizes go to the common
/// lengths, and lengths are as common among rules as they are to be.
struct Missing {
    lacks: [[f64; 129]; 2],
    /// Among how many of the likeliest pairs there is a choice.
    choice: usize,
}

impl Missing {
    fn new(lengths: &[(u32, f64)], profile: &Profile, count: usize, choice: usize) -> Self {
        let sum: f64 = lengths.iter().map(|(_, weight)| weight).sum();
        let lacks = [profile.any_source, profile.any_destination].map(|any| {
            let mut lacks = [0.0; 129];
            lacks[0] = any * count as f64;
            for (length, weight) in lengths {
                lacks[*length as usize] = (1.0 - any) * count as f64 * weight / sum;
            }
            lacks
        });
        Self { lacks, choice }
    }

    /// Takes one of the last pairs for `size` rules: that whose lengths lack the most.
    fn take(&mut self, list: &mut Vec<Pair>, size: usize) -> Option<Pair> {
        let lacks = |(source, destination): Pair| {
            self.lacks[0][source as usize].min(self.lacks[1][destination as usize])
        };
        let from = list.len().saturating_sub(self.choice);
        let at = (from..list.len()).max_by(|&a, &b| lacks(list[a]).total_cmp(&lacks(list[b])))?;
        let pair = list.remove(at);
        self.lacks[0][pair.0 as usize] -= size as f64;
        self.lacks[1][pair.1 as usize] -= size as f64;
        Some(pair)
    }
}

/// The prefix lengths that a kind's rules have, any address apart, and how common they are.
fn weighted_lengths(kind: Kind, v6: bool) -> Vec<(u32, f64)> {
    match (kind, v6) {
        (_, true) => ipv6_lengths(),
        (Kind::Nested | Kind::Chains, false) => (1..).zip(NESTED_LENGTHS.map(f64::from)).collect(),
        _ => (8..=32).map(|length| (length, weight(kind, length))).collect(),
    }
}

/// How common a prefix length of IPv4 is. Hosts, /24 and /16 lead in all published sets.
fn weight(kind: Kind, length: u32) -> f64 {
    let common = match length {
        32 => 12.0,
        24 => 7.0,
        16 => 3.0,
        28..=31 => 2.0,
        20..=27 => 1.5,
        9..=19 => 0.4,
        _ => 0.15,
    };
    // The more pairs a kind has, the less do the common ones stand out.
    match kind {
        Kind::Acl | Kind::Fw | Kind::Fw4 => common,
        _ => f64::sqrt(common),
    }
}

/// All items in random order, in which a heavier one is likely to be later, to be popped
/// (Efraimidis and Spirakis 2006).
fn shuffled(random: &mut ChaCha8Rng, items: impl Iterator<Item = (Pair, f64)>) -> Vec<Pair> {
    let mut keyed: Vec<_> =
        items.map(|(pair, weight)| (random.random::<f64>().powf(1.0 / weight), pair)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    keyed.into_iter().map(|(_, pair)| pair).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn quotas_add_up_and_pairs_are_distinct() {
        for (kind, v6) in Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            for count in [0, 1, 2, 3, 10, 100, 1000, 10_000, 100_000] {
                let quotas = quotas(kind, v6, &Profile::of(kind, count), count);
                assert_eq!(
                    quotas.iter().map(|quota| quota.1).sum::<usize>(),
                    count,
                    "{kind:?} {count}"
                );
                assert_eq!(
                    quotas.iter().map(|quota| quota.0).collect::<HashSet<_>>().len(),
                    quotas.len()
                );
                assert!(quotas.iter().all(|quota| quota.1 > 0));
            }
        }
    }

    #[test]
    fn ipv6_lengths_are_those_of_networks() {
        let lengths = ipv6_lengths();
        assert!(lengths.is_sorted_by(|a, b| a.0 < b.0));
        let share = |within: core::ops::RangeInclusive<u32>| -> f64 {
            let parts = lengths.iter().filter(|(length, _)| within.contains(length));
            parts.map(|(_, part)| part).sum()
        };
        for (within, wanted) in
            [(0..=48, 1.0), (49..=128, 1.0), (48..=48, 0.472), (32..=32, 0.141), (64..=64, 0.52)]
        {
            assert!((share(within.clone()) - wanted).abs() < 0.001, "{within:?}");
        }
        let routed = lengths.iter().filter(|(length, _)| *length <= 48);
        let mean: f64 = routed.map(|(length, part)| f64::from(*length) * part).sum();
        assert!((42.52..42.54).contains(&mean), "{mean}");
    }
}
