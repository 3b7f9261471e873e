//! The lookup beside one that tries every flow, and changes beside what they mean.

mod random;

use pipeline::text::{ShownFields, ShownFlow};
use pipeline::{
    Change, Criteria, CtFields, Entry, Field, Fields, Flow, FlowId, IPV4, Match, Owner,
    PacketFields, Pipeline,
};
use proptest::collection::vec;
use proptest::prelude::*;
use random::{Called, Says};
use types::VrfId;

/// The flow that counts in table 0, by trying one after the other.
fn linear<'a>(flows: &[&'a Entry], fields: &Fields) -> Option<&'a Entry> {
    let of_vrf = |entry: &&&Entry| entry.flow.vrf == fields.vrf() && entry.flow.table == 0;
    flows.iter().filter(of_vrf).find(|entry| entry.flow.matches.matches(fields)).copied()
}

fn flows_of_few_priorities() -> impl Strategy<Value = Vec<Flow>> {
    vec(random::flow(), 1..40).prop_map(|mut flows| {
        for (at, flow) in flows.iter_mut().enumerate() {
            flow.table = 0;
            flow.vrf = VrfId(flow.vrf.0.min(1));
            flow.priority = [1, 5, 9][at % 3];
            flow.actions.clear();
        }
        flows
    })
}

fn add(pipeline: &mut Pipeline, flow: Flow) -> FlowId {
    let change = Change::Add { flow, check_overlap: false };
    pipeline.apply(change, Owner::User).unwrap().added[0]
}

fn matched(pipeline: &Pipeline, fields: &Fields) -> Option<FlowId> {
    let mut says = Says(CtFields::default());
    pipeline.evaluate(fields, &mut says, &mut ()).matched.first().copied()
}

type Noise = [(usize, u128); 2];

/// Flows of an access list: prefixes of all lengths of few addresses, ports and ranges of them, some
/// with optional fields. Many share a group, and there are many groups.
fn access_list() -> impl Strategy<Value = Vec<Flow>> {
    let address = (0_u128..4, 0_u128..512, 0_u32..=32);
    let port = (0_u128..40, 0_u128..40, 0..4);
    let one = (address.clone(), address, port.clone(), port, 0..6, 0_u16..60);
    let flow = one.prop_map(|(source, destination, from, to, optional, priority)| {
        let mut matches = Match::ANY;
        matches.set(Field::DlType, IPV4.into(), 0xffff);
        for (field, (high, low, length)) in [(Field::NwSrc, source), (Field::NwDst, destination)] {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            matches.set(field, 0x0a00_0000 | high << 16 | low, mask.into());
        }
        if from.2 + to.2 < 6 {
            matches.set(Field::NwProto, 6, 0xff);
            for (field, (a, b, kind)) in [(Field::TcpSrc, from), (Field::TcpDst, to)] {
                match kind {
                    0 => {}
                    1 => matches.set(field, a, 0xffff),
                    2 => matches.set_range(field, a.min(b), a.max(b)),
                    _ => matches.set(field, a, 0xfff0 | b),
                }
            }
            if optional == 0 {
                matches.set(Field::TcpFlags, 2, 2);
            }
        }
        if optional == 1 {
            matches.set(Field::NwTtl, 64, 0xff);
        }
        let (vrf, table, actions) = (VrfId::MAIN, 0, Vec::new());
        let (cookie, idle_timeout, hard_timeout) = (0, 0, 0);
        Flow { vrf, table, priority, matches, actions, cookie, idle_timeout, hard_timeout }
    });
    vec(flow, 1..400)
}

/// A packet near those that a flow matches.
fn near(flow: &Flow, (low, ports, optional): (u32, u32, u32)) -> Fields {
    let mut like = flow.matches.clone();
    let free = |field: Field, bits: u128| {
        let (value, mask) = like.get(field);
        (field, value | bits & !mask)
    };
    let bits = [
        free(Field::DlType, IPV4.into()),
        free(Field::NwProto, 6),
        free(Field::NwSrc, 0x0a00_0000 | u128::from(low & 0x301ff)),
        free(Field::NwDst, 0x0a00_0000 | u128::from(low >> 8 & 0x301ff)),
        free(Field::TcpSrc, u128::from(ports % 40)),
        free(Field::TcpDst, u128::from(ports / 40 % 40)),
        free(Field::TcpFlags, u128::from(optional & 2)),
        free(Field::NwTtl, u128::from(optional & 0x40)),
    ];
    for (field, value) in bits {
        like.set(field, value, u128::MAX);
    }
    like.example(flow.vrf)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn lookup_finds_what_trying_all_finds(
        flows in flows_of_few_priorities(),
        packets in vec((any::<usize>(), any::<Noise>()), 30),
        gone in vec(any::<usize>(), 0..20),
    ) {
        let mut pipeline = Pipeline::new();
        for flow in &flows {
            add(&mut pipeline, flow.clone());
        }
        let kept = pipeline.clone();
        for round in [false, true] {
            if round {
                let ids: Vec<_> = pipeline.sorted().iter().map(|entry| entry.id).collect();
                let ids: Vec<_> = gone.iter().map(|at| ids[at % ids.len()]).collect();
                pipeline.remove(&ids);
                prop_assert!(pipeline.sorted().iter().all(|entry| !ids.contains(&entry.id)));
            }
            let sorted = pipeline.sorted();
            prop_assert_eq!(sorted.len(), pipeline.len());
            let sorted: Vec<&Entry> = sorted.into_iter().map(|entry| &**entry).collect();
            for (at, noise) in &packets {
                let flow = &flows[at % flows.len()];
                let fields = random::packet(&flow.matches, flow.vrf, *noise);
                let expected = linear(&sorted, &fields).map(|entry| entry.id);
                prop_assert_eq!(
                    matched(&pipeline, &fields), expected,
                    "{}", ShownFields(&fields, &Called)
                );
            }
        }
        // A clone does not see what became of the other.
        let left = flows.iter().filter(|flow| {
            kept.sorted().iter().any(|entry| entry.flow.matches == flow.matches)
        });
        prop_assert_eq!(left.count(), flows.len());
    }

    #[test]
    fn what_was_not_read_does_not_count(
        flows in flows_of_few_priorities(),
        at: usize,
        noise: Noise,
        other: u32,
    ) {
        let mut pipeline = Pipeline::new();
        flows.iter().for_each(|flow| _ = add(&mut pipeline, flow.clone()));
        let flow = &flows[at % flows.len()];
        let fields = random::packet(&flow.matches, flow.vrf, noise);
        let mut says = Says(CtFields::default());
        let outcome = pipeline.evaluate(&fields, &mut says, &mut ());
        // The other packet differs in optional fields that were not read.
        let read = outcome.reads.bits();
        let bits = fields.packet_fields().bits() & read | other & !read;
        let mut like = fields.clone();
        like.set_packet_fields(PacketFields::from_bits(bits) & PacketFields::ALL);
        prop_assert_eq!(&pipeline.evaluate(&like, &mut says, &mut ()).matched, &outcome.matched);
        let all = pipeline.reads(flow.vrf);
        prop_assert_eq!(all & outcome.reads, outcome.reads);
    }

    #[test]
    fn covering_and_overlapping_are_what_packets_say(
        one in random::matches(),
        two in random::matches(),
        noise: [Noise; 8],
    ) {
        let packets: Vec<_> = noise.iter().flat_map(|noise| {
            [&one, &two].map(|matches| random::packet(matches, VrfId::MAIN, *noise))
        }).collect();
        for fields in &packets {
            let (first, second) = (one.matches(fields), two.matches(fields));
            prop_assert!(!(first && second) || one.overlaps(&two) && two.overlaps(&one));
            prop_assert!(!second || first || !one.covers(&two));
            prop_assert!(!first || second || !two.covers(&one));
        }
        prop_assert!(one.covers(&one) && Match::ANY.covers(&one));
        prop_assert!(!one.covers(&two) || one.overlaps(&two));
    }

    #[test]
    fn deleting_takes_what_asks_for_as_much(flows in flows_of_few_priorities(), at: usize) {
        let mut pipeline = Pipeline::new();
        flows.iter().for_each(|flow| _ = add(&mut pipeline, flow.clone()));
        let matches = flows[at % flows.len()].matches.clone();
        let criteria = Criteria { matches: matches.clone(), ..Criteria::all(None) };
        let before = pipeline.len();
        let changed = pipeline.apply(Change::Delete { criteria }, Owner::User).unwrap();
        prop_assert!(changed.removed.iter().all(|entry| matches.covers(&entry.flow.matches)));
        let left = pipeline.sorted();
        prop_assert!(left.iter().all(|entry| !matches.covers(&entry.flow.matches)));
        prop_assert_eq!(left.len() + changed.removed.len(), before);
        prop_assert!(!changed.removed.is_empty());
    }

    #[test]
    fn replacing_keeps_what_is_the_same(
        flows in flows_of_few_priorities(),
        more in flows_of_few_priorities(),
    ) {
        let of_main = |flows: &[Flow]| -> Vec<Flow> {
            flows.iter().map(|flow| Flow { vrf: VrfId::MAIN, ..flow.clone() }).collect()
        };
        let (flows, more) = (of_main(&flows), of_main(&more));
        let mut pipeline = Pipeline::new();
        pipeline.replace(flows.clone(), Owner::User).unwrap();
        let before: Vec<_> = pipeline.sorted().into_iter().map(|entry| entry.id).collect();
        let none = pipeline.replace(flows.clone(), Owner::User).unwrap();
        let unique = |flows: &[Flow]| {
            let last = |at: &usize| {
                !flows[at + 1..].iter().any(|later| {
                    later.priority == flows[*at].priority && later.matches == flows[*at].matches
                })
            };
            (0..flows.len()).filter(last).count()
        };
        if unique(&flows) == flows.len() {
            prop_assert_eq!(none, pipeline::Changed::default());
            let after: Vec<_> = pipeline.sorted().into_iter().map(|entry| entry.id).collect();
            prop_assert_eq!(before, after);
        }
        pipeline.replace(more.clone(), Owner::User).unwrap();
        prop_assert_eq!(pipeline.len(), unique(&more));
        for entry in pipeline.sorted() {
            prop_assert!(more.contains(&entry.flow), "{}", ShownFlow(&entry.flow, &Called));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// As flows come and go, and no more optional fields are read than by flows that could have
    /// counted.
    #[test]
    fn an_access_list_is_what_trying_all_finds(
        flows in access_list(),
        packets in vec((any::<usize>(), any::<(u32, u32, u32)>()), 60),
        gone in vec(any::<usize>(), 0..300),
    ) {
        let mut pipeline = Pipeline::new();
        let mut before = Pipeline::new();
        for step in 0..3 {
            match step {
                1 => {
                    let ids: Vec<_> = pipeline.sorted().iter().map(|entry| entry.id).collect();
                    let ids: Vec<_> = gone.iter().map(|at| ids[at % ids.len()]).collect();
                    pipeline.remove(&ids);
                }
                _ => flows.iter().for_each(|flow| _ = add(&mut pipeline, flow.clone())),
            }
            let sorted: Vec<&Entry> = pipeline.sorted().into_iter().map(|it| &**it).collect();
            for (at, noise) in &packets {
                let fields = near(&flows[at % flows.len()], *noise);
                let mut says = Says(CtFields::default());
                let outcome = pipeline.evaluate(&fields, &mut says, &mut ());
                let expected = linear(&sorted, &fields);
                prop_assert_eq!(
                    outcome.matched.first().copied(), expected.map(|entry| entry.id),
                    "{}", ShownFields(&fields, &Called)
                );
                let lowest = expected.map_or(0, |entry| entry.flow.priority);
                let could = sorted.iter().filter(|entry| entry.flow.priority >= lowest);
                let could = could.fold(PacketFields::NONE, |all, it| all | it.flow.matches.reads());
                // A shape's flows read the same.
                prop_assert_eq!(could | outcome.reads, could);
            }
            // What another pipeline lacks, or has as others, is what is not in the same memory.
            let known: std::collections::HashSet<_> =
                before.entries().map(std::sync::Arc::as_ptr).collect();
            let mut new: Vec<_> = pipeline.unshared(&before).map(|entry| entry.id).collect();
            new.sort_unstable();
            let is_new = |entry: &&Entry| !known.contains(&std::ptr::from_ref(*entry));
            let mut expected: Vec<_> =
                sorted.iter().copied().filter(is_new).map(|entry| entry.id).collect();
            expected.sort_unstable();
            prop_assert_eq!(new, expected);
            before = pipeline.clone();
        }
    }
}
