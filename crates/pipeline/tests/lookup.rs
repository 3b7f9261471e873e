//! The lookup beside one that tries every flow, and changes beside what they mean.

mod random;

use pipeline::text::{ShownFields, ShownFlow};
use pipeline::{
    Change, Criteria, CtFields, Entry, Fields, Flow, FlowId, Match, Owner, PacketFields, Pipeline,
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
        pipeline.replace(VrfId::MAIN, flows.clone(), Owner::User).unwrap();
        let before: Vec<_> = pipeline.sorted().into_iter().map(|entry| entry.id).collect();
        let none = pipeline.replace(VrfId::MAIN, flows.clone(), Owner::User).unwrap();
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
        pipeline.replace(VrfId::MAIN, more.clone(), Owner::User).unwrap();
        prop_assert_eq!(pipeline.len(), unique(&more));
        for entry in pipeline.sorted() {
            prop_assert!(more.contains(&entry.flow), "{}", ShownFlow(&entry.flow, &Called));
        }
    }
}
