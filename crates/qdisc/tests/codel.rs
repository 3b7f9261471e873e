//! fq_codel's control of delay against the pseudocode of RFC 8289, and its fairness.

mod common;

use std::collections::VecDeque;

use common::{Frame, MILLISECOND, Rig, SECOND, fq_codel, none};
use proptest::prelude::*;
use qdisc::Dropped;
use types::qdisc::FqCodel;

/// One queue as in RFC 8289 sections 5.3 to 5.6, line by line, with RFC 3168 marks.
#[derive(Default)]
struct Reference {
    queue: VecDeque<(Frame, u64)>,
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    maxpacket: u64,
    dropped: Vec<u64>,
}

const TARGET: u64 = 5 * MILLISECOND;
const INTERVAL: u64 = 100 * MILLISECOND;

impl Reference {
    fn enqueue(&mut self, now: u64, frame: Frame) {
        self.maxpacket = self.maxpacket.max(frame.length.into());
        self.queue.push_back((frame, now));
    }

    fn bytes(&self) -> u64 {
        self.queue.iter().map(|(frame, _)| u64::from(frame.length)).sum()
    }

    fn dodequeue(&mut self, now: u64) -> (Option<Frame>, bool) {
        let mut ok_to_drop = false;
        let Some((frame, tstamp)) = self.queue.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        let sojourn_time = now - tstamp;
        if sojourn_time < TARGET || self.bytes() <= self.maxpacket {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + INTERVAL;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(frame), ok_to_drop)
    }

    fn control_law(t: u64, count: u32) -> u64 {
        t + (INTERVAL as f64 / f64::from(count).sqrt()) as u64
    }

    fn dequeue(&mut self, now: u64) -> Option<Frame> {
        let (mut p, mut ok_to_drop) = self.dodequeue(now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.count += 1;
                if p.as_ref().is_some_and(|frame| frame.speaks_ecn) {
                    p.as_mut().unwrap().is_marked = true;
                    self.drop_next = Self::control_law(self.drop_next, self.count);
                    break;
                }
                self.dropped.extend(p.map(|frame| frame.number));
                (p, ok_to_drop) = self.dodequeue(now);
                if ok_to_drop {
                    self.drop_next = Self::control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            if p.as_ref().is_some_and(|frame| frame.speaks_ecn) {
                p.as_mut().unwrap().is_marked = true;
            } else {
                self.dropped.extend(p.map(|frame| frame.number));
                (p, _) = self.dodequeue(now);
            }
            self.dropping = true;
            let delta = self.count.saturating_sub(self.lastcount);
            self.count = 1;
            if delta > 1 && now.saturating_sub(self.drop_next) < 16 * INTERVAL {
                self.count = delta;
            }
            self.drop_next = Self::control_law(now, self.count);
            self.lastcount = self.count;
        }
        p
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { length: u32, speaks_ecn: bool },
    Leave,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (64_u32..1515, prop::bool::weighted(0.3))
            .prop_map(|(length, speaks_ecn)| Step::Arrive { length, speaks_ecn }),
        4 => Just(Step::Leave),
        2 => (1..8 * MILLISECOND).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Whatever comes and whenever it may leave, the same items leave, are marked and are dropped
    /// as the RFC says.
    #[test]
    fn one_queue_does_what_the_rfc_says(steps in prop::collection::vec(step(), 1..3000)) {
        let mut queue = fq_codel(FqCodel { flows: 1, quantum: 1 << 20, ..FqCodel::default() });
        let (mut reference, mut now, mut number) = (Reference::default(), 1, 0);
        let mut dropped = Vec::new();
        for step in steps {
            match step {
                Step::Arrive { length, speaks_ecn } => {
                    number += 1;
                    let frame = Frame { speaks_ecn, ..Frame::new(number, 7, length) };
                    reference.enqueue(now, frame);
                    queue.enqueue(now, frame, true, none);
                }
                Step::Leave => {
                    let frame = queue.dequeue(now, |frame, why| {
                        assert_eq!(why, Dropped::Congestion);
                        dropped.push(frame.number);
                    });
                    prop_assert_eq!(frame, reference.dequeue(now));
                }
                Step::Pass(time) => now += time,
            }
            prop_assert_eq!(&dropped, &reference.dropped);
        }
    }
}

/// A sender that never slows down, at twice the rate of the link: RFC 8289 section 3.3 has the
/// first item dropped after an interval above the target, and the next ones at times whose
/// distance is the interval over the square root of how many were dropped.
#[test]
fn drops_come_faster_with_the_square_root_of_their_number() {
    let mut queue = fq_codel(FqCodel { ecn: false, ..FqCodel::default() });
    let (mut times, mut number) = (Vec::new(), 0);
    // A link of 12 Mbit/s: one packet of 1500 bytes in a millisecond.
    for tick in 0..2000 {
        let now = tick * MILLISECOND;
        for _ in 0..2 {
            number += 1;
            queue.enqueue(now, Frame::new(number, 7, 1500), true, none);
        }
        queue.dequeue(now, |_, _| times.push(now));
    }
    // The second packet of tick 5 or so waits more than the target; an interval later, the first
    // drop.
    assert!((100..=115).contains(&(times[0] / MILLISECOND)), "{:?}", &times[..4]);
    let mut expected = times[0] as f64;
    for (count, pair) in (1_u32..).zip(times.windows(2)).take(100) {
        expected += 100e6 / f64::from(count).sqrt();
        let late = pair[1] as f64 - expected;
        assert!((-1e6..=1.1e6).contains(&late), "drop {count} at {} not {expected}", pair[1]);
    }
}

/// Senders that answer each drop by sending less, as TCP does: delay comes down to the target.
#[test]
fn delay_comes_down_to_the_target() {
    let mut queue = fq_codel(FqCodel { ecn: false, ..FqCodel::default() });
    // Packets in flight, as a window with Reno's growth and halving, and 50 ms of way besides.
    let (mut window, mut number, mut lost, mut worst) = (100.0_f64, 0, 0, Vec::new());
    let mut acknowledged: VecDeque<u64> = VecDeque::new();
    let mut arrived = std::collections::HashMap::new();
    let mut in_flight = 0.0;
    for tick in 0..60_000 {
        let now = tick * MILLISECOND;
        while acknowledged.front().is_some_and(|at| *at <= now) {
            acknowledged.pop_front();
            in_flight -= 1.0;
            window += 1.0 / window;
        }
        while in_flight < window.floor() {
            number += 1;
            in_flight += 1.0;
            arrived.insert(number, now);
            queue.enqueue(now, Frame::new(number, 7, 1500), true, none);
        }
        let left = queue.dequeue(now, |_, _| {
            lost += 1;
            in_flight -= 1.0;
            window = (window / 2.0).max(2.0);
        });
        if let Some(frame) = left {
            acknowledged.push_back(now + 50 * MILLISECOND);
            if tick > 20_000 {
                worst.push(now - arrived[&frame.number]);
            }
        }
    }
    worst.sort_unstable();
    let median = worst[worst.len() / 2];
    assert!(lost > 10, "{lost}");
    assert!(median < 15 * MILLISECOND, "half of the packets wait {median} ns");
    // One sender that halves its window needs more than the target waiting to fill a link.
    assert!(worst.len() > 30_000, "the link is used: {} of 40000", worst.len());
}

/// Flows that always have something get the same share in bytes, whatever their packets' lengths
/// (RFC 8290 section 3), and one that sends little goes first.
#[test]
fn flows_get_the_same_share() {
    let settings = FqCodel { ecn: false, target: u32::MAX, ..FqCodel::default() };
    let mut queue = fq_codel(settings);
    let flow = |index: u32| index << 22;
    let lengths = [64, 300, 1514, 1000];
    let mut sent = [0_u64; 4];
    let mut number = 0;
    let mut fill = |queue: &mut Rig, at: usize| {
        number += 1;
        queue.enqueue(1, Frame::new(number, flow(at as u32), lengths[at]), true, none);
    };
    for at in 0..lengths.len() {
        (0..100).for_each(|_| fill(&mut queue, at));
    }
    for round in 0..20_000 {
        let frame = queue.dequeue(1, none).unwrap();
        let at = (frame.flow >> 22) as usize;
        sent[at] += u64::from(frame.length);
        fill(&mut queue, at);
        // A packet of a flow that had none overtakes all that wait.
        if round % 1000 == 999 {
            queue.enqueue(1, Frame::new(0, flow(900), 100), true, none);
            let waited = (0..5).position(|_| queue.dequeue(1, none).unwrap().number == 0);
            assert!(waited.is_some_and(|turns| turns <= 1), "{waited:?}");
        }
    }
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least <= 3 * 1514 + 50 * 1514, "{sent:?}");
}

/// One that sends more than all others pays for it: the others lose nothing.
#[test]
fn a_full_queue_drops_of_the_fattest_flow() {
    let mut queue = fq_codel(FqCodel { limit: 100, ..FqCodel::default() });
    let mut dropped = Vec::new();
    for number in 0..1000 {
        let flow = if number % 10 == 0 && number < 200 { 5 << 22 } else { 9 << 22 };
        queue.enqueue(1, Frame::new(number, flow, 1000), true, |frame, why| {
            assert_eq!(why, Dropped::Overlimit);
            dropped.push(frame.flow);
        });
        assert!(queue.len() <= 100);
    }
    assert!(dropped.len() >= 900 && dropped.iter().all(|flow| *flow == 9 << 22));
    let counted = queue.flow_statistics();
    assert_eq!((counted.drop_overlimit, counted.drop_overmemory), (dropped.len() as u64, 0));
}

#[test]
fn memory_is_bounded() {
    let mut queue = fq_codel(FqCodel { memory_limit: 100 * 2368, ..FqCodel::default() });
    for number in 0..1000 {
        queue.enqueue(1, Frame::new(number, 0, 64), true, |_, _| {});
        assert!(queue.flow_statistics().memory_used <= 100 * 2368);
    }
    assert!(queue.flow_statistics().drop_overmemory > 0);
}

#[test]
fn what_waits_longer_than_the_threshold_is_marked() {
    let settings = FqCodel { ce_threshold: Some(1000), ..FqCodel::default() };
    let mut queue = fq_codel(settings);
    for (number, speaks_ecn) in [(1, true), (2, false), (3, true)] {
        queue.enqueue(0, Frame { speaks_ecn, ..Frame::new(number, 7, 100) }, true, none);
    }
    assert!(!queue.dequeue(MILLISECOND, none).unwrap().is_marked, "not longer, as long");
    assert!(!queue.dequeue(SECOND, none).unwrap().is_marked);
    assert!(queue.dequeue(SECOND, none).unwrap().is_marked);
    assert_eq!(queue.flow_statistics().ce_mark, 1);
}
