//! The law of gateways whose packets come to two workers, which share connections, NAT pools and
//! tables: each has a cache of its own, and what one makes of a connection concerns the other's.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::packets::{Peers, complaint, crowd, dialogue, sending};
use crate::world::acts::{WITHOUT_POLICIES, flow_act, some_flows};
use crate::{
    Happening, KINDS, before, cached_of, drawn, happening, holds_of, more, reference_of, run,
};

const WORKERS: usize = 2;

/// As where flows change one by one, and connections expire.
fn happening_of_two() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => prop::collection::vec(flow_act(), 1..3).prop_map(Happening::Publication),
        5 => prop::collection::vec(any::<Index>(), 1..40).prop_map(Happening::Batch),
        5 => (1..4u8).prop_map(Happening::Answers),
        2 => complaint().prop_map(Happening::Complaints),
        1 => (0..3000u64).prop_map(Happening::Wait),
        1 => (9000..190_000u64).prop_map(Happening::Wait),
    ]
}

proptest! {
    #![proptest_config(more(700))]

    #[test]
    fn two_workers_do_as_without_caches(
        before in some_flows(),
        sendings in prop::collection::vec(dialogue(WITHOUT_POLICIES), 1..20),
        happenings in prop::collection::vec(happening_of_two(), 1..40),
        kinds in prop::sample::subsequence(KINDS.to_vec(), 2),
    ) {
        holds_of(WORKERS, vec![before], &sendings, &happenings, &kinds)?;
    }
}

proptest! {
    #![proptest_config(more(200))]

    /// The same where most packets are the first ones of their connections.
    #[test]
    fn two_workers_do_as_without_caches_while_many_connections_open(
        before in some_flows(),
        sendings in prop::collection::vec(crowd(WITHOUT_POLICIES), 10..60),
        happenings in prop::collection::vec(happening_of_two(), 1..20),
        kinds in prop::sample::subsequence(KINDS.to_vec(), 2),
    ) {
        holds_of(WORKERS, vec![before], &sendings, &happenings, &kinds)?;
    }
}

proptest! {
    #![proptest_config(more(150))]

    /// The same of anything that may come and change.
    #[test]
    fn two_workers_do_as_without_caches_whatever_changes(
        before in before(),
        sendings in prop::collection::vec(sending(), 1..40),
        happenings in prop::collection::vec(happening(), 1..30),
        kinds in prop::sample::subsequence(KINDS.to_vec(), 2),
    ) {
        holds_of(WORKERS, before, &sendings, &happenings, &kinds)?;
    }
}

/// What the law is about does happen in it: connections are established, and both workers find
/// decisions in their caches that are no longer right.
#[test]
fn both_workers_meet_the_others_connections_in_these_cases() {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[14; 32]),
    );
    let (mut established, mut again, mut hits) = (0, [0; WORKERS], 0);
    for _ in 0..60 {
        let (mut reference, mut peers) = (reference_of(WORKERS), Peers::default());
        let mut twins = [("large", cached_of(WORKERS, "large"))];
        let before = Happening::Publication(vec![drawn(&mut runner, some_flows())]);
        let some = prop::collection::vec(dialogue(WITHOUT_POLICIES), 20);
        let sendings = drawn(&mut runner, some);
        let happenings = drawn(&mut runner, prop::collection::vec(happening_of_two(), 20));
        for happening in std::iter::once(before).chain(happenings) {
            run(&mut reference, &mut twins, &sendings, &mut peers, &happening).unwrap();
            established += reference.established();
        }
        // Those that were found, and decided again since their connections have changed.
        for (worker, again) in again.iter_mut().enumerate() {
            *again += twins[0].1.decided_again(worker);
        }
        hits += twins[0].1.looked().0;
    }
    assert!(established > 20 && hits > 2000, "{established} {hits}");
    assert!(again.iter().all(|again| *again > 500), "{again:?}");
}
