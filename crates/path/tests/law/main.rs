//! The law: with the cache, everything is as without it.
//!
//! Two and more gateways are made from the same events. One decides every packet, by trying policy
//! after policy; the others have caches of all sizes and shapes, the fast policy lookup, and spans of
//! routes. Whatever is done to their tables in between, and whatever comes in, the same bytes leave
//! by the same ports in the same order, the same is dropped for the same reasons, and every policy
//! and SA has counted the same. `PROPTEST_CASES` runs it longer.

mod cases;
mod clock;
#[path = "../fixture/mod.rs"]
mod fixture;
mod foretold;
mod own;
mod packets;
mod told;
mod twin;
mod two_workers;
mod world;

use flow::{Associativity, CacheMode, CacheSettings, CacheTable};
use packets::{Complaint, Peers, Sending, complaint, crowd, dialogue, sending};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tables::{Direction, LookupEngine};
use twin::Twin;
use wire::VrfId;
use world::Act;
use world::acts::{WITHOUT_POLICIES, act, flow_act, some_flows};

/// Something happens to all gateways.
#[derive(Clone, Debug)]
enum Happening {
    /// Some changes in one publication.
    Publication(Vec<Act>),
    /// Some of the case's packets come in at once.
    Batch(Vec<Index>),
    /// What has left last is answered, and the answers so on, so many times.
    Answers(u8),
    /// Stations send ICMP errors about what has left last.
    Complaints(Complaint),
    /// Milliseconds pass.
    Wait(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        5 => prop::collection::vec(act(), 1..4).prop_map(Happening::Publication),
        // So many that they are too many to go through.
        1 => prop::collection::vec(act(), 60..80).prop_map(Happening::Publication),
        9 => prop::collection::vec(any::<Index>(), 1..60).prop_map(Happening::Batch),
        1 => complaint().prop_map(Happening::Complaints),
        1 => (0..3000u64).prop_map(Happening::Wait),
    ]
}

/// What happens where flows change one by one.
fn flow_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => prop::collection::vec(flow_act(), 1..3).prop_map(Happening::Publication),
        4 => prop::collection::vec(any::<Index>(), 1..40).prop_map(Happening::Batch),
        4 => (1..4u8).prop_map(Happening::Answers),
        2 => complaint().prop_map(Happening::Complaints),
        1 => (0..3000u64).prop_map(Happening::Wait),
    ]
}

/// What happens where many packets come and little changes.
fn crowded_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        1 => prop::collection::vec(flow_act(), 1..3).prop_map(Happening::Publication),
        8 => prop::collection::vec(any::<Index>(), 10..60).prop_map(Happening::Batch),
        4 => (1..4u8).prop_map(Happening::Answers),
        1 => complaint().prop_map(Happening::Complaints),
        1 => (0..3000u64).prop_map(Happening::Wait),
    ]
}

/// What happens before any packet comes: sometimes so many policies that the fast lookup's index is
/// asked.
fn before() -> impl Strategy<Value = Vec<Act>> {
    let crowd = [Direction::Out, Direction::In]
        .map(|direction| Act::Crowd(VrfId::MAIN, direction))
        .to_vec();
    (prop::collection::vec(act(), 0..20), prop_oneof![Just(Vec::new()), Just(crowd)])
        .prop_map(|(acts, crowd)| [crowd, acts].concat())
}

fn settings(mode: CacheMode, buckets: u32, associativity: Associativity) -> [CacheSettings; 4] {
    [CacheSettings { mode, buckets, associativity }; 4]
}

fn reference() -> Twin {
    reference_of(1)
}

fn reference_of(workers: usize) -> Twin {
    Twin::of(workers, LookupEngine::Linear, [CacheSettings::OFF; 4])
}

/// What the gateways that are to be like [`reference()`] have for a cache.
const KINDS: [&str; 13] = [
    "one place",
    "two places",
    "eight places",
    "large and direct",
    "one set",
    "two sets",
    "large",
    "by the clock",
    "for some tables",
    "none",
    "large, with the linear lookup",
    "large, with spans",
    "none, with spans",
];

fn cached(kind: &str) -> Twin {
    cached_of(1, kind)
}

fn cached_of(workers: usize, kind: &str) -> Twin {
    use Associativity::{Direct, Four};
    let mut for_some = settings(CacheMode::On, 8, Four);
    for_some[CacheTable::V4Inbound as usize] = CacheSettings::OFF;
    for_some[CacheTable::V6Outbound as usize] = CacheSettings::OFF;
    let caches = match kind {
        "one place" => settings(CacheMode::On, 1, Direct),
        "two places" => settings(CacheMode::On, 2, Direct),
        "eight places" => settings(CacheMode::On, 8, Direct),
        "large and direct" => settings(CacheMode::On, 4096, Direct),
        "one set" => settings(CacheMode::On, 4, Four),
        "two sets" => settings(CacheMode::On, 8, Four),
        "by the clock" => settings(CacheMode::Auto, 64, Four),
        "for some tables" => for_some,
        "none" | "none, with spans" => [CacheSettings::OFF; 4],
        _ => settings(CacheMode::On, 4096, Four),
    };
    let engine =
        if kind.ends_with("linear lookup") { LookupEngine::Linear } else { LookupEngine::Fast };
    let twin = Twin::of(workers, engine, caches);
    if kind.ends_with("with spans") { twin.with_spans() } else { twin }
}

/// Lets something happen to all.
fn run(
    reference: &mut Twin,
    twins: &mut [(&'static str, Twin)],
    sendings: &[Sending],
    peers: &mut Peers,
    happening: &Happening,
) -> Result<(), TestCaseError> {
    let mut packets = Vec::new();
    let mut milliseconds = 0;
    match happening {
        Happening::Publication(acts) => {
            reference.publish(acts);
            twins.iter_mut().for_each(|(_, twin)| twin.publish(acts));
            return Ok(());
        }
        Happening::Batch(which) => {
            for sending in which.iter().map(|which| which.get(sendings)) {
                packets.extend(
                    sending.packets(peers).into_iter().map(|packet| (sending.port, packet)),
                );
            }
        }
        Happening::Answers(times) => {
            for _ in 1..*times {
                run(reference, twins, sendings, peers, &Happening::Answers(1))?;
            }
            packets = peers.answers();
        }
        Happening::Complaints(how) => packets = peers.complaints(how),
        Happening::Wait(time) => milliseconds = *time,
    }
    let batches = peers.spread(&packets, reference.workers());
    let wanted = reference.receive_by(milliseconds, &batches);
    peers.told = wanted.frames().to_vec();
    for (name, twin) in twins.iter_mut() {
        let seen = twin.receive_by(milliseconds, &batches);
        if let Some(how) = wanted.difference(&seen) {
            return Err(TestCaseError::fail(format!("{name}: {how}")));
        }
        let (want, have) = (reference.audit(), twin.audit());
        if want != have {
            return Err(TestCaseError::fail(format!("{name}: considered {want} {have}")));
        }
    }
    Ok(())
}

/// That gateways with caches of these kinds do as the one without, whatever happens.
fn holds(
    before: Vec<Act>,
    sendings: &[Sending],
    happenings: &[Happening],
    kinds: &[&'static str],
) -> Result<(), TestCaseError> {
    holds_of(1, before, sendings, happenings, kinds)
}

/// The same of gateways of so many workers.
fn holds_of(
    workers: usize,
    before: Vec<Act>,
    sendings: &[Sending],
    happenings: &[Happening],
    kinds: &[&'static str],
) -> Result<(), TestCaseError> {
    let mut twins: Vec<_> = kinds.iter().map(|kind| (*kind, cached_of(workers, kind))).collect();
    let (mut reference, mut peers) = (reference_of(workers), Peers::default());
    let before = Happening::Publication(before);
    for happening in std::iter::once(&before).chain(happenings) {
        run(&mut reference, &mut twins, sendings, &mut peers, happening)?;
    }
    Ok(())
}

fn more(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: ProptestConfig::default().cases.max(cases),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(more(400))]

    #[test]
    fn everything_is_as_without_a_cache(
        before in before(),
        sendings in prop::collection::vec(sending(), 1..40),
        happenings in prop::collection::vec(happening(), 1..30),
        kinds in prop::sample::subsequence(KINDS.to_vec(), 3),
    ) {
        holds(before, &sendings, &happenings, &kinds)?;
    }
}

proptest! {
    #![proptest_config(more(1500))]

    /// The same of flows that come and go one by one while packets are tracked and translated.
    #[test]
    fn everything_is_as_without_a_cache_while_single_flows_change(
        before in some_flows(),
        sendings in prop::collection::vec(dialogue(WITHOUT_POLICIES), 1..20),
        happenings in prop::collection::vec(flow_happening(), 1..30),
        kinds in prop::sample::subsequence(KINDS.to_vec(), 2),
    ) {
        holds(vec![before], &sendings, &happenings, &kinds)?;
    }
}

proptest! {
    #![proptest_config(more(700))]

    /// The same of flows whose packets are mostly the first ones, so that what was decided about others is
    /// right for them.
    #[test]
    fn everything_is_as_without_a_cache_while_many_connections_open(
        before in some_flows(),
        sendings in prop::collection::vec(crowd(WITHOUT_POLICIES), 10..60),
        happenings in prop::collection::vec(crowded_happening(), 1..20),
        kinds in prop::sample::subsequence(KINDS.to_vec(), 2),
    ) {
        holds(vec![before], &sendings, &happenings, &kinds)?;
    }
}

/// What the law above is about does happen in it.
#[test]
fn connections_open_by_megaflows_in_these_cases() {
    let mut runner = runner(12);
    let mut by_megaflow = 0;
    for _ in 0..20 {
        let (mut reference, mut peers) = (reference(), Peers::default());
        let mut twins = [("large", cached("large"))];
        let before = Happening::Publication(vec![drawn(&mut runner, some_flows())]);
        let some = prop::collection::vec(crowd(WITHOUT_POLICIES), 40);
        let sendings = drawn(&mut runner, some);
        let happenings = drawn(&mut runner, prop::collection::vec(crowded_happening(), 20));
        for happening in std::iter::once(before).chain(happenings) {
            run(&mut reference, &mut twins, &sendings, &mut peers, &happening).unwrap();
        }
        by_megaflow += twins[0].1.by_megaflow();
    }
    assert!(by_megaflow > 1000, "{by_megaflow}");
}

/// Routes are found in spans in these cases, and are not where they have just changed.
#[test]
fn routes_are_found_in_spans_in_these_cases() {
    let mut runner = runner(14);
    let mut found = [[0, 0]; 2];
    for _ in 0..20 {
        let (mut reference, mut peers) = (reference(), Peers::default());
        let mut twins = [("none, with spans", cached("none, with spans"))];
        let before = Happening::Publication(drawn(&mut runner, before()));
        let sendings = drawn(&mut runner, prop::collection::vec(sending(), 40));
        let happenings = drawn(&mut runner, prop::collection::vec(happening(), 20));
        for happening in std::iter::once(before).chain(happenings) {
            run(&mut reference, &mut twins, &sendings, &mut peers, &happening).unwrap();
            if let Happening::Batch(_) = happening {
                for (found, twin) in found.iter_mut().zip([&reference, &twins[0].1]) {
                    let [in_spans, elsewhere] = twin.found_in_spans();
                    *found = [found[0] + in_spans, found[1] + elsewhere];
                }
            }
        }
    }
    let [[none, _], [in_spans, elsewhere]] = found;
    assert!(none == 0 && in_spans > 1000 && elsewhere > 500, "{found:?}");
}

/// Twenty things that happen to a gateway behind `before`, each of which is looked at.
fn dialogues(
    runner: &mut TestRunner,
    before: Act,
    mut look: impl FnMut(&Happening, &Twin, &Peers),
) {
    let (mut reference, mut peers) = (reference(), Peers::default());
    let sendings = drawn(runner, prop::collection::vec(dialogue(WITHOUT_POLICIES), 20));
    let happenings = drawn(runner, prop::collection::vec(flow_happening(), 20));
    for happening in std::iter::once(Happening::Publication(vec![before])).chain(happenings) {
        run(&mut reference, &mut [], &sendings, &mut peers, &happening).unwrap();
        look(&happening, &reference, &peers);
    }
}

fn runner(seed: u8) -> TestRunner {
    let seeded = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    TestRunner::new_with_rng(Config::default(), seeded)
}

/// What comes of TCP in these cases is more than segments that are dropped as damaged.
#[test]
fn tcp_connections_are_established_in_these_cases() {
    let (mut runner, mut established) = (runner(13), 0);
    for _ in 0..60 {
        let before = drawn(&mut runner, some_flows());
        dialogues(&mut runner, before, |_, twin, _| established += twin.established());
    }
    assert!(established > 20, "{established}");
}

/// Helpers' connections come, and errors go on to the senders of what they quote, in these cases.
#[test]
fn what_helpers_expect_comes_and_errors_are_related_in_these_cases() {
    let (mut runner, mut expected, mut related) = (runner(15), 0, 0);
    for kind in [2, 4, 5, 23, 24, 25].repeat(10) {
        let before = Act::SetFlows(WITHOUT_POLICIES, kind);
        dialogues(&mut runner, before, |happening, twin, peers| {
            expected += twin.expected();
            if let Happening::Complaints(_) = happening {
                related += peers.told.iter().map(Vec::len).sum::<usize>();
            }
        });
    }
    assert!(expected > 50 && related > 100, "{expected} {related}");
}

/// The same, over so many packets that the worker finds out that its cache does not pay, as too
/// much changes, and goes on by samples.
#[test]
fn everything_is_as_without_a_cache_while_the_worker_changes_its_mind() {
    use Associativity::{Direct, Four};
    let auto =
        |buckets, how| Twin::new(LookupEngine::Fast, settings(CacheMode::Auto, buckets, how));
    let mut twins = vec![("auto", auto(2048, Four)), ("auto, direct", auto(2048, Direct))];
    let mut reference = reference();
    let mut runner = runner(11);
    let mut peers = Peers::default();
    let sendings = drawn(&mut runner, prop::collection::vec(sending(), 300));
    let mut looked = vec![vec![(0, 0); twins.len()]];
    for (noise, batches) in [(None, 100), (Some(Act::Noise(70)), 900), (None, 400)] {
        for batch in 0..batches {
            let some = (batch % 16 == 15).then(|| drawn(&mut runner, act()));
            // All ports stay, or less and less would come in.
            let some = some.filter(|act| !matches!(act, Act::UpdatePort(..) | Act::RemovePort(_)));
            let acts: Vec<_> = some.into_iter().chain(noise.clone()).collect();
            // More than a worker takes at once.
            let which = drawn(&mut runner, prop::collection::vec(any::<Index>(), 330));
            for happening in [Happening::Publication(acts), Happening::Batch(which)] {
                run(&mut reference, &mut twins, &sendings, &mut peers, &happening).unwrap();
            }
        }
        looked.push(twins.iter().map(|(_, twin)| twin.looked()).collect());
    }
    for (number, (name, _)) in twins.iter().enumerate() {
        let (hits, bypassed): (Vec<u64>, Vec<u64>) =
            looked.iter().map(|phase| phase[number]).unzip();
        // A short batch has it look at what decisions cost without the cache, for a window.
        assert!(hits[1] > 0 && bypassed[1] <= 2 * 16_384, "{name}: {looked:?}");
        assert!(bypassed[3] > 2 * bypassed[1], "{name}: {looked:?}");
        // At least the samples.
        assert!(hits[3] > hits[2], "{name}: {looked:?}");
    }
}

fn drawn<T>(runner: &mut TestRunner, strategy: impl Strategy<Value = T>) -> T {
    strategy.new_tree(runner).unwrap().current()
}
