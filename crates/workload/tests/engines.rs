//! The fast lookup engine against the linear one: rule sets like published ones, sets made to
//! defeat an index, changes in between.

use std::net::IpAddr;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tables::{
    Action, Direction, FieldsSelector, LookupBound, LookupEngine, LookupStructure, PolicySpec,
    Selector, Spd, Tables, UpperSelector,
};
use types::{FlowKey, IpRange, PortRange, Protocol, VrfId};
use workload::rules::{self, Kind};
use workload::trace::{self, Locality};

const DIRECTION: Direction = Direction::Out;

fn spec(priority: u32, selector: Selector) -> PolicySpec {
    PolicySpec {
        vrf: VrfId::MAIN,
        direction: DIRECTION,
        if_id: None,
        priority,
        selector,
        action: Action::Bypass,
    }
}

fn spd(tables: &Tables) -> &Spd {
    &tables.vrf(VrfId::MAIN).unwrap().spd
}

fn loaded(selectors: &[Selector], secret: u64) -> Tables {
    let mut tables = Tables::new(1, secret);
    for (priority, selector) in selectors.iter().enumerate() {
        tables.add_policy(spec(priority as u32, *selector)).unwrap();
    }
    tables
}

/// Looks every key up alone, with others, and in order, and returns how many matched.
fn agree(tables: &Tables, keys: &[FlowKey]) -> usize {
    let spd = spd(tables);
    let bound = spd.bound(DIRECTION);
    let mut matched = 0;
    for keys in keys.chunks(97) {
        let mut together = vec![None; keys.len()];
        spd.lookup_keys(DIRECTION, keys, &mut together);
        for (key, together) in keys.iter().zip(together) {
            let expected = spd.lookup_linear(DIRECTION, key).map(|(_, policy)| policy.index);
            assert_eq!(together.map(|policy| policy.index), expected, "together: {key:?}");
            assert_eq!(
                spd.lookup(DIRECTION, key).map(|policy| policy.index),
                expected,
                "alone: {key:?}"
            );
            let (counted, count) = spd.lookup_counted(DIRECTION, key);
            assert_eq!(counted.map(|policy| policy.index), expected, "counted: {key:?}");
            assert!(count.rules > 0 || expected.is_none(), "{count:?}: {key:?}");
            let is_index = spd.compiled(DIRECTION).is_none();
            assert!(!is_index || count.probes <= bound.probes, "{count:?}, {bound:?}: {key:?}");
            matched += usize::from(expected.is_some());
        }
    }
    matched
}

fn headers(selectors: &[Selector], count: usize, seed: u64) -> Vec<FlowKey> {
    let options = trace::Options { headers: count, seed, locality: Locality::None, unmatched: 0.1 };
    trace::headers(selectors, &options)
}

/// The bound follows from the policies alone: neither from how they came to be, nor from the
/// secret.
fn assert_bound_is_as_if_new(tables: &Tables) {
    let mut anew = Tables::new(1, 99);
    for policy in spd(tables).policies(DIRECTION) {
        anew.add_policy(policy.spec).unwrap();
    }
    assert_eq!(spd(tables).bound(DIRECTION), spd(&anew).bound(DIRECTION));
}

/// A third of the rules at a time goes, comes back at another priority, or becomes another.
fn agree_under_changes(selectors: &[Selector], keys: &[FlowKey], seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut tables = loaded(selectors, seed);
    let mut absent: Vec<Selector> = Vec::new();
    let mut snapshots = Vec::new();
    for _ in 0..4 {
        assert!(
            agree(&tables, keys) > keys.len() / 4,
            "most keys find nothing, which proves little"
        );
        assert_bound_is_as_if_new(&tables);
        let mut compiled = tables.clone();
        compiled.compile();
        let family = usize::from(keys[0].addresses.is_v6());
        assert_eq!(spd(&compiled).structures(DIRECTION)[family], LookupStructure::Trees);
        agree(&compiled, &keys[..keys.len() / 4]);
        snapshots.push((tables.clone(), spd(&tables).bound(DIRECTION)));
        for _ in 0..selectors.len() / 3 {
            let indexes = spd(&tables).policies(DIRECTION).len();
            let some = spd(&tables)
                .policies(DIRECTION)
                .nth(random.random_range(0..indexes))
                .unwrap()
                .index;
            let priority = random.random_range(0..selectors.len() as u32);
            match (random.random_range(0..3), absent.pop()) {
                (0, Some(selector)) => drop(tables.add_policy(spec(priority, selector)).unwrap()),
                (1, Some(selector)) => {
                    absent.push(tables.policy_of_index(some).unwrap().spec.selector);
                    tables.update_policy(some, spec(priority, selector)).unwrap();
                }
                (_, kept) => {
                    absent.extend(kept);
                    absent.push(tables.remove_policy(some).unwrap().spec.selector);
                }
            }
        }
    }
    for (tables, bound) in &snapshots {
        agree(tables, &keys[..keys.len() / 10]);
        assert_eq!(spd(tables).bound(DIRECTION), *bound);
    }
    let indexes: Vec<_> = spd(&tables).policies(DIRECTION).map(|policy| policy.index).collect();
    for (left, index) in indexes.iter().enumerate().rev() {
        tables.remove_policy(*index).unwrap();
        if left % 400 == 3 {
            agree(&tables, &keys[..200]);
            assert_bound_is_as_if_new(&tables);
        }
    }
    assert_eq!(spd(&tables).bound(DIRECTION), LookupBound { probes: 0, policies: 0 });
}

#[test]
fn rule_sets_like_published_ones_v4() {
    for (seed, kind) in Kind::ALL.into_iter().enumerate() {
        let selectors = rules::generate(&rules::Options {
            kind,
            v6: false,
            count: 1500,
            seed: seed as u64,
            misaligned: None,
        });
        agree_under_changes(&selectors, &headers(&selectors, 60_000, 1), seed as u64);
    }
}

#[test]
fn rule_sets_like_published_ones_v6() {
    for (seed, kind) in Kind::ALL.into_iter().enumerate() {
        let selectors = rules::generate(&rules::Options {
            kind,
            v6: true,
            count: 1500,
            seed: seed as u64,
            misaligned: None,
        });
        agree_under_changes(&selectors, &headers(&selectors, 60_000, 1), seed as u64);
    }
}

/// Of any kind, with a third of the rules for ranges that are no prefixes.
#[test]
fn misaligned_ranges() {
    for (seed, kind) in Kind::ALL.into_iter().enumerate() {
        for v6 in [false, true] {
            let selectors = rules::generate(&rules::Options {
                kind,
                v6,
                count: 600,
                seed: seed as u64,
                misaligned: Some(0.3),
            });
            let no_prefix = |rule: &&Selector| {
                rule.source.as_prefix().is_none() || rule.destination.as_prefix().is_none()
            };
            assert!(selectors.iter().filter(no_prefix).count() > 120, "{kind:?} v6 {v6}");
            agree_under_changes(&selectors, &headers(&selectors, 10_000, 1), seed as u64);
        }
    }
}

/// So many that batches are looked up in steps.
#[test]
fn many_policies() {
    for (seed, (kind, v6)) in
        [(Kind::Spd, false), (Kind::Fw4, false), (Kind::Spd, true)].into_iter().enumerate()
    {
        let selectors = rules::generate(&rules::Options {
            kind,
            v6,
            count: 12_000,
            seed: seed as u64,
            misaligned: (kind == Kind::Spd).then_some(0.2),
        });
        let mut tables = loaded(&selectors, 5);
        let keys = headers(&selectors, 15_000, 2);
        agree(&tables, &keys);
        assert!(
            !spd(&tables).bound(DIRECTION).is_over_limit(),
            "{:?}",
            spd(&tables).bound(DIRECTION)
        );
        let snapshot = tables.clone();
        let indexes: Vec<_> =
            spd(&tables).policies(DIRECTION).map(|policy| policy.index).step_by(5).collect();
        for index in indexes {
            let policy = tables.remove_policy(index).unwrap();
            if index % 3 == 0 {
                tables.add_policy(spec(policy.spec.priority / 2, policy.spec.selector)).unwrap();
            }
        }
        agree(&tables, &keys);
        assert_bound_is_as_if_new(&tables);
        agree(&snapshot, &keys[..5000]);
    }
}

#[test]
fn packets_of_both_families_in_one_batch() {
    let set = |v6| {
        rules::generate(&rules::Options {
            kind: Kind::Spd,
            v6,
            count: 300,
            seed: 3,
            misaligned: Some(0.2),
        })
    };
    let (v4, v6) = (set(false), set(true));
    let tables = loaded(&[v4.clone(), v6.clone()].concat(), 1);
    let pairs = headers(&v4, 20_000, 1).into_iter().zip(headers(&v6, 20_000, 1));
    let keys: Vec<_> = pairs.flat_map(|(a, b)| [a, b]).collect();
    assert!(agree(&tables, &keys) > 20_000);
    agree_under_changes(&[v4, v6].concat(), &keys[..8000], 8);
}

fn v4(first: u32, last: u32) -> IpRange {
    IpRange::new(IpAddr::V4(first.into()), IpAddr::V4(last.into())).unwrap()
}

fn selector(source: IpRange, destination: IpRange) -> Selector {
    let (upper, fields) = (UpperSelector::Any, FieldsSelector::ANY);
    Selector { source, destination, protocol: None, upper, fields }
}

/// Ranges that begin and end anywhere, all within one prefix, so that no cutting to prefixes tells
/// them apart well.
#[test]
fn misaligned_ranges_under_one_prefix() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut range = |most: u32| {
        let first = 0x0a00_0000 + random.random_range(0..0xffff);
        v4(first, first + random.random_range(1..most))
    };
    let selectors: Vec<_> =
        (0..3000).map(|number| selector(range(2 + number), range(90_000 - 30 * number))).collect();
    let keys = headers(&selectors, 20_000, 1);
    agree_under_changes(&selectors, &keys, 1);
}

/// Policies that an index over addresses and single ports cannot tell apart: all are compared, the
/// answer is right, and it is said.
#[test]
fn a_set_that_defeats_the_index_is_reported() {
    let upper = |number: u16| UpperSelector::Ports {
        source: PortRange::new(number, number + 1).unwrap(),
        destination: PortRange::new(100, 200 + number % 7).unwrap(),
    };
    let selectors: Vec<_> = (0..LookupBound::POLICIES_LIMIT as u16 + 1)
        .map(|number| Selector {
            protocol: Some(Protocol::UDP),
            upper: upper(number),
            ..selector(v4(0x0a00_0000, 0x0a00_00ff), v4(0x0a01_0000, 0x0a01_00ff))
        })
        .collect();
    let mut tables = loaded(&selectors, 1);
    agree(&tables, &headers(&selectors, 2000, 1));
    let bound = spd(&tables).bound(DIRECTION);
    assert_eq!(bound, LookupBound { probes: 1, policies: selectors.len() as u32 });
    assert!(bound.is_over_limit());
    let first = spd(&tables).policies(DIRECTION).next().unwrap().index;
    tables.remove_policy(first).unwrap();
    assert!(!spd(&tables).bound(DIRECTION).is_over_limit());
    agree(&tables, &headers(&selectors, 2000, 2));
}

/// Policies of one pair of subnets that differ in a port each are found by it.
#[test]
fn single_ports_are_told_apart() {
    let upper = |number: u16| UpperSelector::Ports {
        source: PortRange::ALL,
        destination: PortRange::new(number, number).unwrap(),
    };
    let selectors: Vec<_> = (0..5000)
        .map(|number| Selector {
            protocol: Some(if number % 2 == 0 { Protocol::TCP } else { Protocol::UDP }),
            upper: upper(number / 2),
            ..selector(v4(0x0a00_0000, 0x0a00_00ff), IpRange::ALL_V4)
        })
        .collect();
    let tables = loaded(&selectors, 1);
    assert_eq!(spd(&tables).bound(DIRECTION), LookupBound { probes: 1, policies: 1 });
    agree_under_changes(&selectors[..1000], &headers(&selectors[..1000], 5000, 1), 1);
    agree(&tables, &headers(&selectors, 5000, 1));
}

#[test]
fn the_engine_can_be_changed() {
    let selectors = rules::generate(&rules::Options {
        kind: Kind::Acl,
        v6: false,
        count: 500,
        seed: 1,
        misaligned: None,
    });
    let keys = headers(&selectors, 2000, 1);
    let mut tables = loaded(&selectors, 1);
    assert_eq!(tables.lookup_engine(), LookupEngine::Fast);
    let fast = spd(&tables).bound(DIRECTION);
    assert!(fast.policies < 500 && fast.probes > 1);
    tables.set_lookup_engine(LookupEngine::Linear);
    assert_eq!(
        (tables.lookup_engine(), spd(&tables).engine()),
        (LookupEngine::Linear, LookupEngine::Linear)
    );
    assert_eq!(
        spd(&tables).bound(DIRECTION),
        LookupBound { probes: 0, policies: selectors.len() as u32 }
    );
    agree(&tables, &keys);
    let red = tables.add_vrf("red").unwrap();
    assert_eq!(tables.vrf(red).unwrap().spd.engine(), LookupEngine::Linear);
    tables.set_lookup_engine(LookupEngine::Fast);
    assert_eq!(tables.vrf(red).unwrap().spd.engine(), LookupEngine::Fast);
    assert_eq!(spd(&tables).bound(DIRECTION), fast);
    agree(&tables, &keys);
}

/// Few policies are tried one after the other, and answers do not change if the index takes
/// over.
#[test]
fn few_policies_and_one_more() {
    let selectors = rules::generate(&rules::Options {
        kind: Kind::Fw,
        v6: false,
        count: 80,
        seed: 1,
        misaligned: None,
    });
    let keys = headers(&selectors, 500, 1);
    let mut tables = Tables::new(1, 1);
    let mut with_index = 0;
    for (priority, selector) in selectors.iter().enumerate() {
        tables.add_policy(spec(priority as u32, *selector)).unwrap();
        agree(&tables, &keys);
        with_index += usize::from(spd(&tables).bound(DIRECTION).probes > 0);
    }
    assert!((20..70).contains(&with_index), "{with_index}");
}
