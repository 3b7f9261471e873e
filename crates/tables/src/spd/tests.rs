//! Random policies, and random changes of them, against the plainest search.

use std::net::IpAddr;

use classifier::Effort;
use proptest::prelude::*;
use types::{FieldsSelector, TcpFlags, TcpFlagsSelector};
use wire::{Addresses, FragmentClass, IpRange, Origin, PortRange, Protocol, Upper, VrfId};

use super::*;
use crate::counters::FlowCounters;
use crate::policy::{Action, PolicyHandle, PolicySpec, Selector, UpperSelector};
use crate::snapshot::Tables;

const DIRECTION: Direction = Direction::Out;

fn policy(index: u32, priority: u32, selector: Selector) -> Arc<Policy> {
    let spec = PolicySpec {
        vrf: VrfId(0),
        direction: DIRECTION,
        if_id: None,
        priority,
        selector,
        action: Action::Bypass,
    };
    let counters = FlowCounters::new(1);
    Arc::new(Policy { handle: PolicyHandle { slot: 0, index }, index, spec, counters })
}

/// Few addresses, so that things meet, but at every length of prefix: multiples of these powers of
/// two, and those before.
const V4_SHIFTS: [u32; 5] = [0, 3, 8, 16, 28];
const V6_SHIFTS: [u32; 6] = [0, 7, 30, 64, 81, 120];

fn v4(number: u32, shift: usize, before: bool) -> IpAddr {
    IpAddr::V4((number << V4_SHIFTS[shift % V4_SHIFTS.len()]).saturating_sub(before.into()).into())
}

fn v6(number: u32, shift: usize, before: bool) -> IpAddr {
    IpAddr::V6(
        (u128::from(number) << V6_SHIFTS[shift % V6_SHIFTS.len()])
            .saturating_sub(before.into())
            .into(),
    )
}

fn small_range() -> impl Strategy<Value = IpRange> {
    let ends = || (0u32..6, 0u32..7, prop_oneof![3 => Just(0), 2 => 0usize..6], any::<bool>());
    let range = |a: IpAddr, b: IpAddr| IpRange::new(a.min(b), a.max(b)).unwrap();
    let v4 = ends()
        .prop_map(move |(a, b, shift, before)| range(v4(a, shift, false), v4(b, shift, before)));
    let v6 = ends()
        .prop_map(move |(a, b, shift, before)| range(v6(a, shift, false), v6(b, shift, before)));
    prop_oneof![3 => v4, 1 => v6, 1 => Just(IpRange::ALL_V4), 1 => Just(IpRange::ALL_V6)]
}

fn selector() -> impl Strategy<Value = Selector> {
    let ports =
        || (0u16..6, 0u16..6).prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).unwrap());
    let bytes = || (0u8..6, 0u8..6).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let upper = prop_oneof![
        Just(UpperSelector::Any),
        (ports(), ports())
            .prop_map(|(source, destination)| UpperSelector::Ports { source, destination }),
        (bytes(), bytes()).prop_map(|(kind, code)| UpperSelector::Icmp { kind, code }),
    ];
    let protocol = proptest::option::of((0u8..3).prop_map(Protocol));
    (small_range(), small_range(), protocol, upper, optional())
        .prop_map(|(source, destination, protocol, upper, fields)| Selector {
            source,
            destination,
            protocol,
            upper,
            // TCP has no messages.
            fields: match upper {
                UpperSelector::Icmp { .. } => FieldsSelector::ANY,
                _ => fields,
            },
        })
        .prop_filter("one family", |selector| {
            selector.source.is_v6() == selector.destination.is_v6()
        })
}

/// Nothing most of the time, and few values otherwise.
fn optional() -> impl Strategy<Value = FieldsSelector> {
    let flags = (0u8..4, 1u8..4).prop_filter_map("within the mask", |(flags, mask)| {
        TcpFlagsSelector::new(TcpFlags(flags), TcpFlags(mask)).ok()
    });
    let dscp = prop::sample::select(vec!["cs0", "le", "0x01/0x01", "0x00/0x01"]);
    let dscp = dscp.prop_map(|text| text.parse().unwrap());
    let some = |flags, dscp, limit| FieldsSelector::new(flags, dscp, limit);
    prop_oneof![
        3 => Just(FieldsSelector::ANY),
        2 => (prop::option::of(flags), prop::option::of(dscp), prop::option::of(0u8..2))
            .prop_map(move |(flags, dscp, limit)| some(flags, dscp, limit)),
    ]
}

fn fields() -> impl Strategy<Value = PacketFields> {
    (0u8..4, 0u8..2, 0u8..2).prop_map(|(flags, dscp, limit)| {
        PacketFields::new(TcpFlags(flags), dscp.try_into().unwrap(), limit)
    })
}

fn key() -> impl Strategy<Value = FlowKey> {
    let upper = prop_oneof![
        Just(Upper::None),
        Just(Upper::Spi(wire::Spi(3))),
        (0u16..6, 0u16..6).prop_map(|(source, destination)| Upper::Ports { source, destination }),
        (0u8..6, 0u8..6).prop_map(|(kind, code)| Upper::Icmp { kind, code, identifier: 1 }),
    ];
    let address = || {
        (
            0u32..7,
            prop_oneof![2 => Just(0), 1 => 0usize..6],
            prop_oneof![3 => Just(false), 1 => Just(true)],
        )
    };
    (any::<bool>(), address(), address(), 0u8..3, upper, fields()).prop_map(
        |(is_v6, (a, b, c), (d, e, f), protocol, upper, fields)| {
            let addresses =
                if is_v6 { [v6(a, b, c), v6(d, e, f)] } else { [v4(a, b, c), v4(d, e, f)] };
            FlowKey {
                vrf: VrfId(0),
                origin: Origin::Host,
                addresses: match addresses {
                    [IpAddr::V4(source), IpAddr::V4(destination)] => {
                        Addresses::V4 { source, destination }
                    }
                    [IpAddr::V6(source), IpAddr::V6(destination)] => {
                        Addresses::V6 { source, destination }
                    }
                    _ => unreachable!("both are of one family"),
                },
                protocol: Protocol(protocol),
                fragment: FragmentClass::Whole,
                upper,
                fields,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Enough policies for many chunks; they come and go, at few or many priorities.
    #[test]
    fn the_first_that_matches_decides(
        selectors in proptest::collection::vec(selector(), 1..40),
        priorities in prop_oneof![proptest::collection::vec(0u32..4, 40), proptest::collection::vec(any::<u32>(), 40)],
        keys in proptest::collection::vec(key(), 60),
        removed in proptest::collection::vec(any::<prop::sample::Index>(), 0..900),
    ) {
        let mut spd = Spd::new(LookupEngine::Fast, 1);
        let mut naive: Vec<Arc<Policy>> = Vec::new();
        for index in 0..1000 {
            let at = index as usize;
            let priority = priorities[at % priorities.len()].wrapping_mul(index % 7 + 1);
            // The first of few matches nearly everything; most must match little, or the rest is
            // never reached.
            let selector = selectors[at * at % selectors.len()];
            let policy = policy(index, priority, selector);
            spd.insert(Arc::clone(&policy));
            naive.push(policy);
        }
        naive.sort_by_key(|policy| policy.spec.priority);
        let before = (spd.clone(), naive.clone());
        for which in removed {
            let policy = naive.remove(which.index(naive.len()));
            prop_assert!(spd.policy(DIRECTION, Place::of(&policy)).is_some());
            let taken = spd.remove(DIRECTION, Place::of(&policy)).unwrap();
            prop_assert!(Arc::ptr_eq(&taken, &policy));
            prop_assert!(spd.remove(DIRECTION, Place::of(&policy)).is_none());
        }
        for (spd, naive) in [&before, &(spd, naive)] {
            let listed: Vec<_> = spd.policies(DIRECTION).map(|policy| policy.index).collect();
            prop_assert_eq!(spd.policies(DIRECTION).len(), naive.len());
            prop_assert_eq!(listed, naive.iter().map(|policy| policy.index).collect::<Vec<_>>());
            prop_assert!(spd.lists[DIRECTION as usize].chunk_lengths().all(|length| (1..=linear::CHUNK).contains(&length)));
            prop_assert_eq!(spd.is_empty(), naive.is_empty());
            let masks = naive.iter().map(|policy| policy.spec.selector.fields.mask());
            prop_assert_eq!(spd.reads(), masks.fold(PacketFields::NONE, |all, mask| all | mask));
            let mut together = vec![None; keys.len()];
            spd.lookup_keys(DIRECTION, &keys, &mut together);
            for (key, together) in keys.iter().zip(together) {
                let found = spd.lookup_linear(DIRECTION, key).map(|(position, policy)| (position, policy.index));
                let first = naive.iter().position(|policy| policy.spec.selector.matches(key));
                prop_assert_eq!(found, first.map(|at| (at + 1, naive[at].index)));
                prop_assert_eq!(spd.lookup(DIRECTION, key).map(|policy| policy.index), found.map(|(_, index)| index));
                prop_assert_eq!(together.map(|policy| policy.index), found.map(|(_, index)| index));
                // What no policy reads makes no difference.
                let read = FlowKey { fields: key.fields & spd.reads(), ..*key };
                prop_assert_eq!(spd.lookup(DIRECTION, &read).map(|policy| policy.index), found.map(|(_, index)| index));
                prop_assert!(spd.lookup(Direction::In, key).is_none());
            }
        }
    }
}

/// Whether every packet that a selector matches matches another, field by field.
fn is_covered(earlier: &Selector, later: &Selector) -> bool {
    let addresses = |a: &IpRange, b: &IpRange| {
        a.is_v6() == b.is_v6() && a.first() <= b.first() && b.last() <= a.last()
    };
    let ports = |a: &PortRange, b: &PortRange| a.first() <= b.first() && b.last() <= a.last();
    let octets = |a: (u8, u8), b: (u8, u8)| a.0 <= b.0 && b.1 <= a.1;
    let (mask, later_mask) = (earlier.fields.mask().bits(), later.fields.mask().bits());
    let differs = earlier.fields.value().bits() ^ later.fields.value().bits();
    let upper = match (earlier.upper, later.upper) {
        // A packet whose flags are known has ports.
        (UpperSelector::Any, UpperSelector::Icmp { .. }) => !earlier.fields.asks_tcp_flags(),
        (UpperSelector::Any, _) => true,
        (
            UpperSelector::Ports { source, destination },
            UpperSelector::Ports { source: from, destination: to },
        ) => ports(&source, &from) && ports(&destination, &to),
        (UpperSelector::Icmp { kind, code }, UpperSelector::Icmp { kind: k, code: c }) => {
            octets(kind, k) && octets(code, c)
        }
        _ => false,
    };
    addresses(&earlier.source, &later.source)
        && addresses(&earlier.destination, &later.destination)
        && earlier.protocol.is_none_or(|protocol| later.protocol == Some(protocol))
        && mask & !later_mask == 0
        && differs & mask == 0
        && upper
}

proptest! {
    #[test]
    fn every_selector_behind_one_that_covers_it_is_found(
        selectors in proptest::collection::vec(selector(), 0..100),
        keys in proptest::collection::vec(key(), 50),
    ) {
        let mut wanted = Vec::new();
        for (at, later) in selectors.iter().enumerate() {
            let earlier = selectors[..at].iter().position(|earlier| is_covered(earlier, later));
            wanted.extend(earlier.map(|earlier| (at, earlier)));
        }
        let found = shadowed_selectors(&selectors, &mut usize::MAX.clone());
        prop_assert_eq!(&found, &ShadowedSelectors { selectors: wanted, unchecked: 0 });
        for key in keys {
            let first = selectors.iter().position(|selector| selector.matches(&key));
            prop_assert!(!found.selectors.iter().any(|(later, _)| Some(*later) == first));
        }
        if selectors.len() > 1 {
            let found = shadowed_selectors(&selectors, &mut 0);
            prop_assert_eq!(found.unchecked, selectors.len());
        }
    }
}

proptest! {
    #[test]
    fn selectors_cover_and_overlap_as_their_packets_say(
        selectors in proptest::collection::vec(selector(), 1..20),
        keys in proptest::collection::vec(key(), 50),
    ) {
        for one in &selectors {
            prop_assert!(one.covers(one) && one.overlaps(one));
            for other in &selectors {
                prop_assert!(!one.covers(other) || is_covered(one, other) && one.overlaps(other));
                for key in &keys {
                    let (first, second) = (one.matches(key), other.matches(key));
                    prop_assert!(!one.covers(other) || first || !second);
                    prop_assert!(one.overlaps(other) || !first || !second);
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(Selector, u32),
    Remove(prop::sample::Index),
    /// In place: the same priority and index.
    Replace(prop::sample::Index, Selector),
    /// Begins to compile what is there now.
    Compile,
    /// Begins to compile what came since.
    CompileAdded,
    /// One that was begun is done.
    Install(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    use prop::sample::Index;
    prop_oneof![
        8 => (selector(), 0u32..4).prop_map(|(selector, priority)| Step::Add(selector, priority)),
        6 => any::<Index>().prop_map(Step::Remove),
        3 => (any::<Index>(), selector()).prop_map(|(index, selector)| Step::Replace(index, selector)),
        2 => Just(Step::Compile),
        2 => Just(Step::CompileAdded),
        2 => any::<Index>().prop_map(Step::Install),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever is compiled when, and however late it is used.
    #[test]
    fn trees_find_what_is_there_now(
        first in proptest::collection::vec((selector(), 0u32..4), 20..80),
        steps in proptest::collection::vec(step(), 0..150),
        keys in proptest::collection::vec(key(), 30),
    ) {
        let mut spd = Spd::new(LookupEngine::Fast, 1);
        let mut policies: Vec<Arc<Policy>> = Vec::new();
        let mut begun: Vec<Arc<Compiled>> = Vec::new();
        let mut index = 0;
        let first = first.into_iter().map(|(selector, priority)| Step::Add(selector, priority));
        for step in first.chain(steps) {
            match step {
                Step::Add(selector, priority) => {
                    let policy = policy(index, priority, selector);
                    index += 1;
                    spd.insert(Arc::clone(&policy));
                    policies.push(policy);
                    continue;
                }
                Step::Remove(which) if !policies.is_empty() => {
                    let policy = policies.swap_remove(which.index(policies.len()));
                    spd.remove(DIRECTION, Place::of(&policy)).unwrap();
                }
                Step::Replace(which, selector) if !policies.is_empty() => {
                    let which = which.index(policies.len());
                    let place = Place::of(&policies[which]);
                    spd.remove(DIRECTION, place).unwrap();
                    policies[which] = policy(place.index, place.priority, selector);
                    spd.insert(Arc::clone(&policies[which]));
                }
                Step::Compile => begun.push(Arc::new(Compiled::new(&spd, DIRECTION, Effort::Quick))),
                Step::CompileAdded => {
                    begun.extend(Compiled::of_added(&spd, DIRECTION).map(Arc::new));
                }
                Step::Install(which) if !begun.is_empty() => {
                    let compiled = begun.swap_remove(which.index(begun.len()));
                    spd.install(DIRECTION, &compiled);
                }
                _ => continue,
            }
            for family in [false, true] {
                let is_of = |key: &&FlowKey| key.addresses.is_v6() == family;
                let keys: Vec<FlowKey> = keys.iter().filter(is_of).copied().collect();
                let mut together = vec![None; keys.len()];
                spd.lookup_keys(DIRECTION, &keys, &mut together);
                for (key, together) in keys.iter().zip(together) {
                    let wanted = spd.lookup_linear(DIRECTION, key).map(|(_, policy)| policy);
                    let same = |found: Option<&Arc<Policy>>| match (found, wanted) {
                        (Some(found), Some(wanted)) => Arc::ptr_eq(found, wanted),
                        (found, wanted) => found.is_none() && wanted.is_none(),
                    };
                    prop_assert!(same(together), "{:?}", key);
                    prop_assert!(same(spd.lookup(DIRECTION, key)), "{:?}", key);
                }
            }
        }
    }
}

/// What is worth compiling, as policies come.
#[test]
fn what_came_later_is_compiled_by_itself() {
    let mut spd = Spd::new(LookupEngine::Fast, 1);
    let host = |index: u32| {
        let address = IpAddr::V4(index.into());
        let range = IpRange::new(address, address).unwrap();
        let all =
            Selector::all_of(&Addresses::V4 { source: [0; 4].into(), destination: [0; 4].into() });
        policy(index, 1, Selector { source: range, ..all })
    };
    (0..10_000).for_each(|index| spd.insert(host(index)));
    let all = Arc::new(Compiled::new(&spd, DIRECTION, Effort::Quick));
    assert!(spd.install(DIRECTION, &all));
    let mut last = 10_000;
    let mut add = |spd: &mut Spd, count: u32| {
        (last..last + count).for_each(|index| spd.insert(host(index)));
        last += count;
    };
    let changes =
        |spd: &Spd| spd.compiled(DIRECTION).map(|(layers, changes)| (layers.count(), changes));
    add(&mut spd, 32);
    assert_eq!(spd.wants_compiling(DIRECTION), Some(Wanted::All));
    add(&mut spd, 1);
    // Until one in eight is of these.
    for round in 1..=37 {
        assert_eq!(spd.wants_compiling(DIRECTION), Some(Wanted::Added), "round {round}");
        let added = Arc::new(Compiled::of_added(&spd, DIRECTION).unwrap());
        // One comes and one goes meanwhile.
        add(&mut spd, 1);
        spd.remove(DIRECTION, Place { priority: 1, index: 10_000 + round }).unwrap();
        assert!(spd.install(DIRECTION, &added));
        assert_eq!(changes(&spd), Some((2, (1, 1))), "round {round}");
        add(&mut spd, 33);
    }
    assert_eq!(spd.wants_compiling(DIRECTION), Some(Wanted::All));
    let added = Arc::new(Compiled::of_added(&spd, DIRECTION).unwrap());
    let all = Arc::new(Compiled::new(&spd, DIRECTION, Effort::Quick));
    assert!(spd.install(DIRECTION, &all));
    assert_eq!((changes(&spd), spd.wants_compiling(DIRECTION)), (Some((1, (0, 0))), None));
    assert!(!spd.install(DIRECTION, &added), "what it was compiled on top of is used no more");
}

#[test]
fn too_many_added_policies_end_the_trees() {
    let mut spd = Spd::new(LookupEngine::Fast, 1);
    let all =
        Selector::all_of(&Addresses::V4 { source: [0; 4].into(), destination: [0; 4].into() });
    for index in 0..100 {
        spd.insert(policy(index, 1, all));
    }
    assert_eq!(spd.wants_compiling(DIRECTION), Some(Wanted::All));
    assert_eq!(spd.wants_compiling(Direction::In), None);
    let compiled = Arc::new(Compiled::new(&spd, DIRECTION, Effort::Quick));
    assert!(spd.install(DIRECTION, &compiled));
    assert_eq!(spd.wants_compiling(DIRECTION), None);
    let most = compiled::MOST_ADDED as u32;
    (100..100 + most).for_each(|index| spd.insert(policy(index, 1, all)));
    assert_eq!(spd.compiled(DIRECTION).map(|(_, changes)| changes), Some((most as usize, 0)));
    spd.insert(policy(100 + most, 1, all));
    assert!(spd.compiled(DIRECTION).is_none());
    assert_eq!(spd.wants_compiling(DIRECTION), Some(Wanted::All));
    assert!(!spd.install(DIRECTION, &compiled), "it is too old");
}

/// Trees of many policies are large, and of few none are ever compiled to take their place.
#[test]
fn trees_go_with_their_policies() {
    let mut spd = Spd::new(LookupEngine::Fast, 1);
    let all =
        Selector::all_of(&Addresses::V4 { source: [0; 4].into(), destination: [0; 4].into() });
    (0..100).for_each(|index| spd.insert(policy(index, 1, all)));
    let compiled = Arc::new(Compiled::new(&spd, DIRECTION, Effort::Quick));
    assert!(spd.install(DIRECTION, &compiled));
    let mut remove = |index| spd.remove(DIRECTION, Place { priority: 1, index }).unwrap();
    (0..67).for_each(|index| drop(remove(index)));
    assert!(spd.compiled(DIRECTION).is_some());
    spd.remove(DIRECTION, Place { priority: 1, index: 67 }).unwrap();
    assert!(spd.compiled(DIRECTION).is_none());
    assert!(!spd.install(DIRECTION, &compiled), "it comes late");
    assert_eq!(Arc::strong_count(&compiled), 1);
}

/// The policies of a VRF are one object of their own: whatever others have, a lookup reads the same
/// memory and takes the same steps.
#[test]
fn the_policies_of_one_vrf_cannot_make_the_lookups_of_another_slower() {
    let mut tables = Tables::new(1, 7);
    let [one, other] = ["one", "other"].map(|name| tables.add_vrf(name).unwrap());
    let all =
        Selector::all_of(&Addresses::V4 { source: [0; 4].into(), destination: [0; 4].into() });
    let add = |tables: &mut Tables, vrf, selector| {
        let (direction, action) = (DIRECTION, Action::Bypass);
        tables
            .add_policy(PolicySpec { vrf, direction, if_id: None, priority: 1, selector, action })
            .unwrap();
    };
    for host in 0..1000_u32 {
        let address = IpAddr::V4(host.into());
        let source = IpRange::new(address, address).unwrap();
        add(&mut tables, one, Selector { source, ..all });
    }
    tables.compile();
    let spd = |tables: &Tables, vrf| Arc::clone(&tables.vrf(vrf).unwrap().spd);
    let before = spd(&tables, one);
    let costs = |spd: &Spd| {
        let (layers, changes) = spd.compiled(DIRECTION).unwrap();
        let trees = layers.map(|layer| layer.statistics().map(|of| of.cloned()));
        (spd.bound(DIRECTION), trees.collect::<Vec<_>>(), changes)
    };
    let costs_before = costs(&before);
    // Ranges of ports that all overlap.
    let protocol = Some(Protocol::TCP);
    for number in 0..10_000_u16 {
        let range = |first: u16| PortRange::new(first, first + 20_000).unwrap();
        let upper = UpperSelector::Ports {
            source: range(1 + number % 100),
            destination: range(1 + number / 100),
        };
        add(&mut tables, other, Selector { protocol, upper, ..all });
    }
    tables.compile();
    assert_eq!(spd(&tables, other).bound(DIRECTION).policies, 10_000);
    assert!(Arc::ptr_eq(&spd(&tables, one), &before));
    assert_eq!(costs(&before), costs_before);
    // Its own would.
    let protocol = Some(Protocol::UDP);
    add(&mut tables, one, Selector { protocol, ..all });
    assert!(!Arc::ptr_eq(&spd(&tables, one), &before));
    assert_ne!(costs(&spd(&tables, one)), costs_before);
}
