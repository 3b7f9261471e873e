//! Which pairs of source and destination prefix lengths a set has, and how many rules of each.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::Kind;
use super::profile::Profile;

/// Prefix lengths of source and destination, in IPv4's terms.
pub(super) type Pair = (u32, u32);

/// The pairs of a set of `count` rules with their numbers of rules, the most common first. A kind
/// has the same pairs whatever the seed of the set.
pub(super) fn quotas(kind: Kind, profile: &Profile, count: usize) -> Vec<(Pair, usize)> {
    let sizes = sizes(profile, count);
    let pairs = pairs(kind, profile, count, &sizes);
    pairs.into_iter().zip(sizes).collect()
}

/// The length that a prefix has in an IPv6 set: 0 stays, 8, 16, 24 and 32 become 32, 48, 64 and
/// 128, and the others lie evenly between.
pub(super) fn stretched(length: u32) -> u32 {
    match length {
        0 => 0,
        1..=24 => 16 + 2 * length,
        _ => 8 * length - 128,
    }
}

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
fn pairs(kind: Kind, profile: &Profile, count: usize, sizes: &[usize]) -> Vec<Pair> {
    let mut random = ChaCha8Rng::seed_from_u64(kind as u64);
    let mut for_any_source =
        shuffled(&mut random, (8..=32).map(|length| ((0, length), weight(kind, length))));
    let mut for_any_destination =
        shuffled(&mut random, (8..=32).map(|length| ((length, 0), weight(kind, length))));
    let both = (8..=32).flat_map(|source| (8..=32).map(move |destination| (source, destination)));
    let mut specific =
        shuffled(&mut random, both.map(|pair| (pair, weight(kind, pair.0) * weight(kind, pair.1))));

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
                    *pair = list.pop();
                    *left -= if pair.is_some() { size } else { 0 };
                }
            }
        }
    }
    pairs.into_iter().map(|pair| pair.or_else(|| specific.pop()).unwrap_or((32, 32))).collect()
}

/// How common a prefix length is. Hosts, /24 and /16 lead in all published sets.
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
        Kind::Acl2 | Kind::Ipc | Kind::Spd => f64::sqrt(common),
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
        for kind in Kind::ALL {
            for count in [0, 1, 2, 3, 10, 100, 1000, 10_000, 100_000] {
                let quotas = quotas(kind, &Profile::of(kind, count), count);
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
    fn ipv6_lengths_keep_their_order() {
        let lengths: Vec<_> = (0..=32).map(stretched).collect();
        assert!(lengths.is_sorted_by(|a, b| a < b), "{lengths:?}");
        assert_eq!([8, 16, 24, 32].map(stretched), [32, 48, 64, 128]);
    }
}
