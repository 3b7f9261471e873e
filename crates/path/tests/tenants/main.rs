//! The second law: a packet of one VRF leaves by a port of another one only where a rule or a route
//! that the configuration names leads there. No filter, tap, queue or tunnel of one VRF meets what
//! is another's, whatever becomes of VRFs, ports, leaks and tunnels while packets flow and wait.
//!
//! All VRFs have the same addresses, link-local ones, SPIs and keys. [`model`] says what the
//! configuration lets, by which port is where and what leads out of a VRF. `PROPTEST_CASES` runs it
//! longer.

mod changes;
#[path = "../fixture/mod.rs"]
mod fixture;
mod judge;
mod model;
mod packets;
mod single;
mod stations;
mod world;

use model::{COUNT, Target, VRFS};
use packets::{SITES, sending};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tables::FilterHook;
use world::{NewFrom, NewInto, NewLeak, Step, Tally, Verdict, World};

fn vrf() -> impl Strategy<Value = u16> {
    0..=VRFS
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![(0..COUNT).prop_map(Target::Port), vrf().prop_map(Target::Vrf)]
}

fn leak() -> impl Strategy<Value = NewLeak> {
    let from = prop_oneof![
        5 => vrf().prop_map(NewFrom::Vrf),
        1 => (0..COUNT).prop_map(NewFrom::Port),
        1 => Just(NewFrom::Own),
        1 => Just(NewFrom::All),
    ];
    let into = prop_oneof![3 => vrf().prop_map(NewInto::Vrf), 1 => Just(NewInto::Loose)];
    // Before and behind the VRFs' own tables.
    let rule = (select(vec![500, 40_000]).prop_map(Some), from, into);
    let from = prop_oneof![5 => vrf().prop_map(NewFrom::Vrf), 1 => Just(NewFrom::Loose)];
    let into = prop_oneof![vrf().prop_map(NewInto::Vrf), (2..COUNT).prop_map(NewInto::Port)];
    let route = (Just(None), from, into);
    let prefix = (any::<bool>(), prop_oneof![1 => Just(0), 1 => Just(1), 2 => 1..=SITES + 2]);
    (prop_oneof![1 => rule, 2 => route], prefix).prop_map(|((rule, from, into), prefix)| NewLeak {
        rule,
        from,
        into,
        prefix,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let place = || 0..COUNT;
    let site = || 0..=SITES;
    let verdict = prop_oneof![
        2 => Just(None),
        1 => Just(Some(Verdict::Pass)),
        1 => Just(Some(Verdict::Drop)),
        1 => Just(Some(Verdict::Reject)),
    ];
    prop_oneof![
        16 => prop::collection::vec(sending(), 1..8).prop_map(Step::Batch),
        6 => Just(Step::Again),
        3 => (place(), vrf(), site(), select(vec![1400u16, 1500]))
            .prop_map(|(place, vrf, site, mtu)| Step::Move(place, vrf, site, mtu)),
        1 => place().prop_map(Step::Delete),
        2 => (place(), vrf(), site()).prop_map(|(place, vrf, site)| Step::Create(place, vrf, site)),
        1 => (1..=VRFS).prop_map(Step::Remake),
        4 => place().prop_map(Step::Resolve),
        8 => leak().prop_map(Step::Leak),
        3 => any::<Index>().prop_map(Step::Unleak),
        2 => (target(), select(FilterHook::ALL.to_vec()), any::<bool>(), verdict)
            .prop_map(|(target, hook, is_v6, verdict)| Step::Filter(target, hook, is_v6, verdict)),
        2 => (target(), any::<bool>()).prop_map(|(target, is)| Step::Queue(target, is)),
        1 => (target(), any::<[bool; 3]>()).prop_map(|(target, points)| Step::Tap(target, points)),
        1 => (1..=VRFS, any::<bool>()).prop_map(|(vrf, is_there)| Step::Tunnel(vrf, is_there)),
        2 => select(vec![1u64, 50, 1000, 2000]).prop_map(Step::Wait),
    ]
}

/// Everything of a case, to its end.
fn holds(is_known: bool, steps: &[Step]) -> Result<Tally, TestCaseError> {
    let mut world = World::new();
    if is_known {
        (0..COUNT).for_each(|place| world.take(&Step::Resolve(place)));
    }
    for step in steps {
        world.take(step);
        world.judge()?;
    }
    // What still waits leaves, is answered, or is given up.
    for place in 0..COUNT {
        world.take(&Step::Resolve(place));
        world.judge()?;
    }
    for _ in 0..6 {
        world.take(&Step::Wait(1000));
        world.judge()?;
    }
    world.gateway.assert_nothing_lost();
    let caches = &world.gateway.worker.statistics().caches;
    let hits = caches.iter().map(|cache| cache.hits.read() as usize).sum();
    Ok(Tally { hits, ..world.tally })
}

fn more(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: ProptestConfig::default().cases.max(cases),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(more(512))]

    #[test]
    fn nothing_leaves_by_a_port_of_another_vrf(
        is_known in prop::bool::weighted(0.7),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        holds(is_known, &steps)?;
    }
}

/// What the law is about does happen in it.
#[test]
fn all_of_it_happens_in_these_cases() {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[14; 32]),
    );
    let mut tallies = Vec::new();
    for _ in 0..40 {
        let steps = prop::collection::vec(step(), 80).new_tree(&mut runner).unwrap().current();
        tallies.push(holds(true, &steps).unwrap());
    }
    let total = |count: fn(&Tally) -> usize| tallies.iter().map(count).sum::<usize>();
    let counts = [
        ("forwarded", total(|tally| tally.forwarded), 700),
        ("leaked", total(|tally| tally.leaked), 80),
        ("answers", total(|tally| tally.answers), 400),
        ("leaked answers", total(|tally| tally.leaked_answers), 8),
        ("fragments", total(|tally| tally.fragments), 100),
        ("sealed", total(|tally| tally.sealed), 300),
        ("opened", total(|tally| tally.opened), 150),
        ("by two tags", total(|tally| tally.by_two_tags), 400),
        ("late", total(|tally| tally.late), 40),
        ("copies", total(|tally| tally.copies), 200),
        ("questions", total(|tally| tally.questions), 40),
        ("hits", total(|tally| tally.hits), 800),
    ];
    for (what, count, least) in counts {
        assert!(count >= least, "{what}: {counts:?}");
    }
}
