//! What is said to hold is what would be decided.

use std::collections::HashMap;
use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tables::{LookupEngine, Publisher, Tables};
use wire::{
    Addresses, FragmentClass, Headers, Origin, PacketFields, PortId, Protocol, SaSlot, TcpFlags,
    Upper, VrfId,
};

use super::*;
use crate::batch::Arrival;
use crate::cache::key::{self, Words};
use crate::cache::recent::Recent;
use crate::decide::question::{Asked, Question};
use crate::decide::trace::{Step, Trace};
use crate::decision::Verdict;
use crate::extension::Extension;

#[path = "../../../tests/law/world.rs"]
mod world;

use world::acts::act;
use world::{PORTS, World};

/// Flows as they may come by any way, ESP for the worlds' SAs among them.
fn key() -> impl Strategy<Value = FlowKey> {
    let ports = (select(vec![1000u16, 1001, 53]), select(vec![1000u16, 53, 500])).prop_map(
        |(source, destination)| {
            (select(vec![Protocol::UDP, Protocol::TCP]), Just(Upper::Ports { source, destination }))
        },
    );
    let icmp = select(vec![(Protocol::ICMP, 8u8), (Protocol::ICMPV6, 128), (Protocol::ICMP, 3)])
        .prop_map(|(protocol, kind)| (protocol, Upper::Icmp { kind, code: 0, identifier: 7 }));
    let upper = prop_oneof![
        4 => ports.prop_flat_map(|both| both),
        1 => icmp,
        1 => Just((Protocol(253), Upper::None)),
        1 => Just((Protocol::UDP, Upper::None)),
    ];
    let origin = prop_oneof![
        6 => (0..PORTS).prop_map(|port| Origin::Port(PortId(port))),
        4 => (0..6u32).prop_map(|slot| Origin::Sa(SaSlot(slot))),
        1 => Just(Origin::Host),
        1 => Just(Origin::HostProtected),
        1 => (0..PORTS).prop_map(|port| Origin::HostError(PortId(port))),
    ];
    let fragment = prop_oneof![6 => Just(FragmentClass::Whole), 1 => Just(FragmentClass::First), 1 => Just(FragmentClass::Later)];
    let vrf = prop_oneof![6 => Just(VrfId(0)), 3 => Just(VrfId(1)), 1 => Just(VrfId(2))];
    let clear = (world::acts::ends(), upper);
    let esp = (world::acts::tunnel(), world::acts::spi())
        .prop_map(|(ends, spi)| (ends, (Protocol::ESP, Upper::Spi(spi))));
    // Errors about ESP.
    let about = (world::acts::ends(), world::acts::spi()).prop_map(|(ends, spi)| {
        let icmp = if ends.0.is_ipv4() { Protocol::ICMP } else { Protocol::ICMPV6 };
        (ends, (icmp, Upper::Spi(spi)))
    });
    let what = prop_oneof![12 => clear, 2 => esp, 1 => about];
    let fields = (select(vec![0u8, 2, 0x10, 0x12]), select(vec![0u8, 46, 10]), 63u8..65).prop_map(
        |(flags, dscp, limit)| PacketFields::new(TcpFlags(flags), dscp.try_into().unwrap(), limit),
    );
    (vrf, origin, what, fragment, fields).prop_map(|(vrf, origin, what, fragment, fields)| {
        let (ends, (protocol, upper)) = what;
        let addresses = match ends {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
            _ => unreachable!("of one family"),
        };
        let has_flags = protocol == Protocol::TCP && matches!(upper, Upper::Ports { .. });
        let without = PacketFields::DSCP | PacketFields::HOP_LIMIT;
        let fields = if has_flags { fields } else { fields & without };
        FlowKey { vrf, origin, addresses, protocol, fragment, upper, fields }
    })
}

/// The key that a packet has in these tables: of its optional fields, what policies read.
fn read(key: &FlowKey, tables: &Tables) -> FlowKey {
    let reads = tables.vrf(key.vrf).map_or(PacketFields::NONE, tables::Vrf::reads);
    FlowKey { fields: key.fields & reads, ..*key }
}

fn decide(key: &FlowKey, tables: &Tables) -> (Decision, Extension) {
    crate::decide(key, tables, None, &mut ())
}

/// Whether the short ways say that nothing which changed since concerns the flow.
fn is_spared(recent: &Recent, key: &FlowKey, generation: u64) -> bool {
    let FlowKey { vrf, origin, addresses, protocol, fragment, upper, fields } = *key;
    let (tcp_flags, traffic_class) = (fields.tcp_flags(), fields.dscp().bits() << 2);
    let hop_limit = fields.hop_limit();
    let headers = Headers { addresses, protocol, upper, tcp_flags, ..Headers::NONE };
    let mut headers = Headers { traffic_class, hop_limit, ..headers };
    headers.fragment.class = fragment;
    let arrival = Arrival::new(vrf, origin);
    match key::words(&headers, arrival, fields) {
        Words::V6(key) => generation >= recent.last_change(&key) || recent.spares(&key, generation),
        Words::V4(key) => generation >= recent.last_change(&key) || recent.spares(&key, generation),
    }
}

/// Everything that decide asks.
#[derive(Default)]
struct Questions(Vec<Question>);

impl Trace for Questions {
    fn step<'a>(&mut self, _: impl FnOnce() -> Step<'a>) {}

    fn asks(&mut self, question: impl FnOnce() -> Question) {
        self.0.push(question());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2000), ..ProptestConfig::default() })]

    /// Remembered decisions, as old as may be, beside decisions made anew after each publication.
    #[test]
    fn what_holds_is_what_would_be_decided(
        engine in select(vec![LookupEngine::Linear, LookupEngine::Fast]),
        keys in vec(key(), 60),
        before in vec(act(), 0..30),
        has_spans in any::<bool>(),
        publications in vec((vec(act(), 1..4), any::<[bool; 2]>()), 1..40),
    ) {
        let mut world = World::new(engine);
        if has_spans {
            world.tables.set_few_vrfs(0);
        }
        before.iter().for_each(|act| world.apply(act));
        let mut publisher = Publisher::new(world.tables.clone());
        let mut known: HashMap<FlowKey, ((Decision, Extension), u64)> = HashMap::new();
        let mut recent = Recent::new();
        for (acts, [looks, settles]) in &publications {
            if *settles {
                publisher.settle();
            }
            let tables = publisher.current();
            recent.advance(&tables);
            // What came by a port is in the port's VRF. What was decrypted is its SA's VRF's or its
            // link's, and is there while the SA's slot is.
            let may_be = |key: &FlowKey| match key.origin {
                Origin::Sa(slot) => tables.sad().slot(slot).is_some_and(|slot| match slot.identity.if_id {
                    Some(if_id) => tables.xfrm_link(if_id).is_some_and(|link| link.spec.vrf == key.vrf),
                    None => slot.identity.inner == key.vrf,
                }),
                Origin::Port(port) => tables.port(port).is_none_or(|port| port.spec.vrf == key.vrf),
                _ => true,
            };
            for key in keys.iter().filter(|key| *looks && may_be(key)) {
                // Of all that the packet has; what is remembered is found by what is read of it.
                let wanted = decide(key, &tables);
                let key = &read(key, &tables);
                if let Some((decision, generation)) = known.get(key) {
                    let holds = holds(key, &decision.0, *generation, Decider::new(&tables, packet::Time(0)));
                    // What was said of the packet's connection is compared when it is used.
                    let is_used = !decision.0.is_passing()
                        && decision.0.reference() == wanted.0.reference();
                    if is_used && (holds || is_spared(&recent, key, *generation)) {
                        prop_assert_eq!(decision, &wanted, "{:?}, decided from generation {}", key, generation);
                    }
                }
                prop_assert_eq!(Decision::from_words(wanted.0.words()), wanted.0);
                known.insert(*key, (wanted, tables.generation()));
            }
            world.tables = Tables::clone(&tables);
            acts.iter().for_each(|act| world.apply(act));
            publisher.publish(world.tables.clone());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2000), ..ProptestConfig::default() })]

    /// What decide asks is what validity believes that it asked: a question that is missing in the
    /// list would be a change that nobody is held against.
    #[test]
    fn every_question_is_listed(
        keys in vec(key(), 30),
        acts in vec(act(), 0..60),
    ) {
        let mut world = World::new(LookupEngine::Fast);
        acts.iter().for_each(|act| world.apply(act));
        for key in &keys {
            let mut asked = Questions::default();
            let (decision, _) = crate::decide(key, &world.tables, None, &mut asked);
            // What was asked for copies as well is for one packet alone, and nothing that is kept.
            if decision.is_copied() {
                continue;
            }
            let listed = Asked::new(key, &decision, &world.tables);
            let Some(listed) = listed.questions() else {
                // One that makes its connection is for its packet alone, and what is dropped before
                // that is held against every change.
                let is_unknown = decision.is_rewritten() || decision.is_translated();
                prop_assert!(is_unknown, "its policies are there");
                continue;
            };
            for question in asked.0 {
                let is_elsewhere = listed.iter().any(|listed| match (*listed, question) {
                    (Question::Elsewhere(_), Question::Vrf(_)) => true,
                    (Question::Elsewhere(to), Question::Route { address, .. }) => to == address,
                    _ => false,
                });
                prop_assert!(
                    listed.contains(&question) || is_elsewhere,
                    "{:?} of {:?}", question, key
                );
            }
        }
    }
}

/// What is decided in these cases is decided by routes in spans, and by others where they have
/// changed.
#[test]
fn decisions_ask_spans_in_these_cases() {
    let mut runner = TestRunner::deterministic();
    let mut drawn = |strategy: BoxedStrategy<_>| strategy.new_tree(&mut runner).unwrap().current();
    let mut found = [0, 0];
    for _ in 0..20 {
        let (keys, acts) = drawn((vec(key(), 60), vec(act(), 0..30)).boxed());
        let mut world = World::new(LookupEngine::Fast);
        world.tables.set_few_vrfs(0);
        world.tables = Tables::clone(&Publisher::new(world.tables).current());
        acts.iter().for_each(|act| world.apply(act));
        let mut asked = Questions::default();
        for key in &keys {
            crate::decide(key, &world.tables, None, &mut asked);
        }
        for question in asked.0 {
            if let Question::Route { vrf, address } = question {
                found[usize::from(world.tables.has_spans(vrf, address))] += 1;
            }
        }
    }
    assert!(found.iter().all(|count| *count > 100), "{found:?}");
}

/// Nothing is said to hold that is older than the log.
#[test]
fn what_was_forgotten_holds_for_nobody() {
    let mut world = World::new(LookupEngine::Fast);
    let mut publisher = Publisher::new(world.tables.clone());
    let key = FlowKey {
        vrf: VrfId::MAIN,
        origin: Origin::Port(PortId(0)),
        addresses: Addresses::V4 {
            source: [10, 1, 0, 5].into(),
            destination: [10, 3, 0, 5].into(),
        },
        protocol: Protocol::UDP,
        fragment: FragmentClass::Whole,
        upper: Upper::Ports { source: 1, destination: 2 },
        fields: PacketFields::NONE,
    };
    publisher.publish(Tables::clone(&publisher.current()));
    let (decision, _) = decide(&key, &publisher.current());
    assert!(matches!(decision.verdict(), Verdict::Protect(..)));
    for (noise, holding) in
        [(10, true), (MOST_CHANGES, true), (MOST_CHANGES + 1, false), (2000, false)]
    {
        let generation = publisher.current().generation();
        world.tables = Tables::clone(&publisher.current());
        world.apply(&world::Act::Noise(noise));
        publisher.publish(world.tables.clone());
        assert_eq!(
            holds(&key, &decision, generation, Decider::new(&publisher.current(), packet::Time(0))),
            holding,
            "{noise} changes"
        );
    }
}
