//! What holds for every discipline: nothing is lost unseen, flows stay in order, the rate is kept.

mod common;

use std::collections::HashMap;

use common::{Frame, MILLISECOND, Rig, SECOND, none, pfifo, tbf};
use proptest::prelude::*;
use qdisc::{Dropped, Next, Settings};
use types::qdisc::{FqCodel, Pfifo, Qdisc, Tbf};

#[derive(Clone, Debug)]
enum Step {
    Arrive {
        flow: u32,
        length: u32,
        speaks_ecn: bool,
        has_room: bool,
    },
    Leave,
    /// What has come of a flow may not leave any more.
    Move(u32),
    Pass(u64),
    Change(Qdisc, Option<Qdisc>),
    Flush,
}

fn queue() -> impl Strategy<Value = Qdisc> {
    let fq_codel = (1_u32..200, 1_u32..20, 256_u32..3000, any::<bool>(), 16_384_u32..400_000);
    prop_oneof![
        (1_u32..100).prop_map(|limit| Qdisc::Pfifo(Pfifo { limit })),
        fq_codel.prop_map(|(limit, flows, quantum, ecn, memory_limit)| {
            let usual = FqCodel::default();
            Qdisc::FqCodel(FqCodel { limit, flows, quantum, ecn, memory_limit, ..usual })
        }),
    ]
}

fn tree() -> impl Strategy<Value = (Qdisc, Option<Qdisc>)> {
    let bucket = (1_000_u64..100_000_000, 500_u32..20_000, 1_u32..50_000)
        .prop_map(|(rate, burst, limit)| Qdisc::Tbf(Tbf { rate, burst, limit }));
    prop_oneof![queue().prop_map(|queue| (queue, None)), (bucket, prop::option::of(queue())),]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0_u32..6, 64_u32..1515, any::<bool>(), prop::bool::weighted(0.95)).prop_map(
            |(flow, length, speaks_ecn, has_room)| Step::Arrive {
                flow: flow << 29, length, speaks_ecn, has_room
            }
        ),
        8 => Just(Step::Leave),
        1 => (0_u32..6).prop_map(|flow| Step::Move(flow << 29)),
        4 => (1..30 * MILLISECOND).prop_map(Step::Pass),
        1 => tree().prop_map(|(root, child)| Step::Change(root, child)),
        1 => Just(Step::Flush),
    ]
}

fn settings((root, child): &(Qdisc, Option<Qdisc>)) -> Settings {
    Settings::new(root, child.as_ref()).unwrap()
}

proptest! {
    #[test]
    fn nothing_is_lost_and_flows_stay_in_order(
        first in tree(),
        steps in prop::collection::vec(step(), 1..600),
    ) {
        let mut discipline = Rig::new(settings(&first), 150);
        let (mut now, mut came) = (0, 0_u64);
        let (mut sent, mut dropped) = (Vec::<Frame>::new(), Vec::<(Frame, Dropped)>::new());
        let (mut in_order, mut moved) = (HashMap::new(), HashMap::new());
        for step in steps {
            let before = discipline.len();
            let drop = |frame, why| dropped.push((frame, why));
            match step {
                Step::Arrive { flow, length, speaks_ecn, has_room } => {
                    came += 1;
                    let frame = Frame { speaks_ecn, ..Frame::new(came, flow, length) };
                    discipline.enqueue(now, frame, has_room, drop);
                    prop_assert!(has_room || discipline.len() <= before);
                }
                Step::Leave => {
                    let next = discipline.next();
                    let may_leave = |frame: &Frame| moved.get(&frame.flow) < Some(&frame.number);
                    let in_vain = discipline.discipline.waits_in_vain(may_leave);
                    let flushed = |dropped: &[(Frame, Dropped)]| {
                        dropped.iter().filter(|(_, why)| *why == Dropped::Flushed).count()
                    };
                    let so_far = flushed(&dropped);
                    let left = discipline.dequeue_if(now, may_leave, |frame, why| {
                        dropped.push((frame, why));
                    });
                    let flushed = flushed(&dropped) - so_far;
                    prop_assert!(!in_vain || flushed > 0);
                    if flushed > 0 {
                        // One in a call, instead of another one.
                        prop_assert_eq!((left, flushed), (None, 1));
                        prop_assert!(!may_leave(&dropped[dropped.len() - 1].0));
                    } else if let Some(frame) = left {
                        prop_assert!(may_leave(&frame));
                        prop_assert!(matches!(next, Next::At(at) if at <= now), "{:?}", next);
                        // Of one flow, in the order in which they came.
                        let last = in_order.insert(frame.flow, frame.number);
                        prop_assert!(last < Some(frame.number));
                        prop_assert!(!frame.is_marked || frame.speaks_ecn);
                        sent.push(frame);
                    } else if let Next::At(at) = discipline.next() {
                        prop_assert!(at > now, "something may leave and did not");
                    }
                }
                Step::Move(flow) => _ = moved.insert(flow, came),
                Step::Pass(time) => now += time,
                Step::Change(root, child) => {
                    discipline.change(settings(&(root, child)), now, drop);
                }
                Step::Flush => {
                    discipline.flush(drop);
                    prop_assert!(discipline.discipline.is_empty());
                }
            }
            let counted = discipline.discipline.statistics();
            prop_assert!(discipline.len() <= 151);
            prop_assert_eq!(counted.queued, discipline.len() as u64);
            prop_assert_eq!(counted.packets, sent.len() as u64);
            prop_assert_eq!(counted.drops, dropped.len() as u64);
            prop_assert_eq!(came, counted.packets + counted.drops + counted.queued);
            let queue = discipline.discipline.queue_statistics();
            prop_assert_eq!((queue.queued, queue.backlog), (counted.queued, counted.backlog));
            prop_assert_eq!(discipline.discipline.is_empty(), discipline.next() == Next::Empty);
        }
        let bytes: u64 = sent.iter().map(|frame| u64::from(frame.length)).sum();
        prop_assert_eq!(discipline.discipline.statistics().bytes, bytes);
        discipline.flush(|frame, why| dropped.push((frame, why)));
        let mut all: Vec<u64> = sent.iter().map(|frame| frame.number).collect();
        all.extend(dropped.iter().map(|(frame, _)| frame.number));
        all.sort_unstable();
        prop_assert_eq!(all, (1..=came).collect::<Vec<_>>(), "each exactly once");
    }

    /// In no stretch of time more leaves than the rate and one burst; and what may leave does,
    /// at the very time that was told.
    #[test]
    fn the_rate_is_kept(
        rate in 1_000_u64..10_000_000_000,
        burst in 1_514_u32..200_000,
        lengths in prop::collection::vec(64_u32..1515, 2..300),
        pauses in prop::collection::vec(0..5 * MILLISECOND, 300),
    ) {
        let mut discipline = tbf(rate, burst, None);
        let (mut now, mut left) = (0, Vec::new());
        for (length, pause) in lengths.iter().zip(pauses) {
            now += pause;
            discipline.enqueue(now, Frame::new(1, 0, *length), true, none);
            while let Next::At(at) = discipline.next() {
                now = now.max(at);
                match discipline.dequeue(now, none) {
                    Some(frame) => left.push((now, u64::from(frame.length))),
                    None => prop_assert!(discipline.next() > Next::At(now)),
                }
            }
        }
        prop_assert_eq!(left.len(), lengths.len());
        for first in 0..left.len() {
            let mut bytes = 0_u128;
            for (at, length) in &left[first..] {
                bytes += u128::from(*length);
                let most = u128::from(at - left[first].0) * u128::from(rate) / u128::from(SECOND);
                prop_assert!(bytes <= most + u128::from(burst) + 1);
            }
        }
    }
}

/// With something to send all the time, the rate is reached to a packet.
#[test]
fn the_rate_is_reached() {
    let (rate, burst) = (12_500_000, 3028);
    let mut discipline = tbf(rate, burst, Some(Qdisc::Pfifo(Pfifo { limit: 1000 })));
    let (mut now, mut bytes) = (0, 0);
    while now < 10 * SECOND {
        discipline.enqueue(now, Frame::new(1, 0, 1514), true, |_, _| {});
        discipline.enqueue(now, Frame::new(1, 0, 1514), true, |_, _| {});
        if let Some(frame) = discipline.dequeue(now, none) {
            bytes += u64::from(frame.length);
        }
        if let Next::At(at) = discipline.next() {
            now = now.max(at);
        }
    }
    assert!(bytes.abs_diff(10 * rate + u64::from(burst)) <= 2 * 1514, "{bytes}");
}

/// What may not leave any more takes no tokens, no turn of its flow, and is not counted as sent.
#[test]
fn what_may_not_leave_delays_nothing() {
    let codel = || Some(Qdisc::FqCodel(FqCodel::default()));
    for child in [None, Some(Qdisc::Pfifo(Pfifo { limit: 2000 })), codel()] {
        let mut discipline = tbf(1_000_000, 2000, child);
        for number in 1..=1000 {
            discipline.enqueue(0, Frame::new(number, 0, 1000), true, none);
        }
        let first: Vec<_> = core::iter::from_fn(|| discipline.dequeue(0, none)).collect();
        assert_eq!((first.len(), discipline.len()), (2, 998));
        // Of the same flow and of another one, at 1 ms for each.
        for number in 1001..=1010 {
            discipline.enqueue(0, Frame::new(number, 0, 1000), true, none);
            discipline.enqueue(0, Frame::new(number, 1 << 31, 1000), true, none);
        }
        assert!(discipline.discipline.waits_in_vain(|frame| frame.number > 1000));
        let (mut now, mut left, mut flushed) = (0, [0_u32; 2], 0);
        while let Next::At(at) = discipline.next() {
            if !discipline.discipline.waits_in_vain(|frame| frame.number > 1000) {
                now = now.max(at);
            }
            let frame = discipline.dequeue_if(
                now,
                |frame| frame.number > 1000,
                |frame, why| {
                    assert!(frame.number <= 1000 && why == Dropped::Flushed);
                    flushed += 1;
                },
            );
            if let Some(frame) = frame {
                left[usize::from(frame.flow > 0)] += 1;
                // As fair as if nothing else had waited: to two quanta.
                assert!(left[0].abs_diff(left[1]) <= 3, "{left:?}");
            }
        }
        assert_eq!((flushed, left, now), (998, [10; 2], 20 * MILLISECOND));
        for counted in
            [discipline.discipline.statistics(), discipline.discipline.queue_statistics()]
        {
            assert_eq!((counted.packets, counted.bytes), (22, 22_000));
            assert_eq!((counted.drops, counted.queued, counted.backlog), (998, 0, 0));
        }
    }
}

#[test]
fn what_no_bucket_holds_is_dropped_and_not_waited_for() {
    let mut discipline = tbf(1000, 1000, None);
    let mut told = Vec::new();
    discipline.enqueue(0, Frame::new(1, 0, 1001), true, |_, why| told.push(why));
    assert_eq!((told.as_slice(), discipline.next()), (&[Dropped::TooLong][..], Next::Empty));
    // The bucket becomes smaller while one waits.
    discipline.enqueue(0, Frame::new(2, 0, 1000), true, none);
    discipline.enqueue(0, Frame::new(3, 0, 900), true, none);
    assert_eq!(discipline.dequeue(0, none).unwrap().number, 2);
    assert!(discipline.dequeue(0, none).is_none());
    let smaller = Qdisc::Tbf(Tbf { rate: 1000, burst: 800, limit: 1 << 20 });
    let smaller = Settings::new(&smaller, None).unwrap();
    let mut told = Vec::new();
    discipline.change(smaller, 0, |frame, why| told.push((frame.number, why)));
    assert_eq!((told.as_slice(), discipline.next()), (&[(3, Dropped::TooLong)][..], Next::Empty));
}

#[test]
fn a_change_keeps_what_fits() {
    let mut discipline = pfifo(100);
    (1..=50).for_each(|number| discipline.enqueue(0, Frame::new(number, 0, 100), true, none));
    let mut told = Vec::new();
    let ten = Settings::new(&Qdisc::Pfifo(Pfifo { limit: 10 }), None).unwrap();
    discipline.change(ten, 0, |frame, _| told.push(frame.number));
    assert_eq!(told, (11..=50).collect::<Vec<_>>());
    let codel = Settings::new(&Qdisc::FqCodel(FqCodel::default()), None).unwrap();
    discipline.change(codel, 0, none);
    let left: Vec<_> = core::iter::from_fn(|| discipline.dequeue(0, none)).collect();
    assert_eq!(
        left.iter().map(|frame| frame.number).collect::<Vec<_>>(),
        (1..=10).collect::<Vec<_>>()
    );
}

#[test]
fn what_cannot_stand_under_another_is_refused() {
    let tbf = Qdisc::Tbf(Tbf { rate: 1000, burst: 1600, limit: 3000 });
    let fifo = Qdisc::Pfifo(Pfifo { limit: 10 });
    assert!(Settings::new(&tbf, Some(&tbf)).is_none());
    assert!(Settings::new(&fifo, Some(&fifo)).is_none());
    assert!(Settings::new(&fifo, Some(&tbf)).is_none());
}
