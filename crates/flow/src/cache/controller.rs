//! Whether a table pays.
//!
//! A packet that is looked up costs the look; one that is not found costs a decision and its
//! keeping as well. Without the table every packet costs a decision. So with a share `h` of hits,
//! the table saves `h * decide - look - (1 - h) * keep` a packet. The three costs are measured on
//! some batches, the share on all.
//!
//! A table that saves nothing is not used. To see when it would pay again, some batches use one
//! sixteenth of it, for the flows that belong there: as that part is to its flows what the whole is
//! to all, its share of hits is what the whole would have. A whole that promises to pay is given
//! time to fill before it is judged.

/// Measures, and says when a table is to be used.
#[derive(Clone, Debug)]
pub struct Controller {
    state: State,
    costs: Costs,
    batches: u32,
    /// Measurements so far, up to the few that are trusted least.
    measurements: u32,
    /// Packets since a decision was measured.
    undecided: u64,
    window: Window,
    /// How many flows the table can hold.
    buckets: u64,
    /// Packets for which it is not tried again after having disappointed; doubles each time.
    patience: u64,
    /// Whether the batch that was measured last was too short to tell what a decision costs while the
    /// table is used.
    is_short: bool,
    /// Packets since it was seen what decisions cost while the table is not used.
    unseen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is used, and may fill for so many more packets before it must pay.
    Using {
        left: u64,
        /// Whether it has paid already.
        has_paid: bool,
    },
    /// Only a part is used, of some batches; the whole is not tried before so many packets have
    /// gone by.
    Sampling(u64),
    /// It is left aside for so many more packets, to see what decisions cost then. Of the last
    /// [`WINDOW`] so many were hits.
    Looking { left: u64, hits: u64 },
}

/// What three things cost, in ticks for 1024 packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// To look a packet's flow up.
    pub probe: u64,
    /// To decide.
    pub decide: u64,
    /// To keep a decision.
    pub insert: u64,
}

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Decide every packet.
    Bypass,
    /// Use a part of the table, and tell [`Controller::measured`] and [`Controller::sampled`] how
    /// it went.
    Sample,
    /// Use the table, and tell [`Controller::used`] how it went.
    Use,
    /// As [`Plan::Use`], and tell [`Controller::measured`] how long it took.
    Measure,
}

/// What one batch cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measurement {
    /// Packets of the batch.
    pub packets: u64,
    /// Packets looked up.
    pub probed: u64,
    /// Ticks for that.
    pub probe: u64,
    /// Packets decided.
    pub decided: u64,
    /// Ticks for that.
    pub decide: u64,
    /// Decisions handed over to be kept.
    pub inserted: u64,
    /// Ticks for that.
    pub insert: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    packets: u64,
    hits: u64,
}

/// Of the batches that use the table, one in so many is measured.
const MEASURED: u32 = 16;
/// Of the batches that do not, one in so many uses a part of it.
const SAMPLED: u32 = 32;
/// Short batches are measured and sampled so many times more seldom, and count for as much more:
/// reading the clock costs a packet that comes alone as much as a batch.
const SHORT: u32 = 4;
/// The part that is used then: one in so many flows.
pub(super) const PART: u32 = 16;
/// Measurements that are not trusted yet.
const EARLY: u32 = 8;
/// Packets without a decision that was measured, after which some are wanted.
const UNDECIDED: u64 = 65_536;
/// Decisions that tell what one costs: a whole batch, as that is what is decided without the table.
const DECIDED: u64 = 256;
/// With fewer than this, each costs more than it would among many: their policies are looked up
/// together.
const MANY: u64 = 64;
/// Packets after which it is judged whether the table pays.
pub(super) const WINDOW: u64 = 16_384;
/// Packets of a part after which it is judged whether the whole would pay.
const SAMPLE: u64 = 1_024;
/// With short batches, packets after which it is looked anew what decisions cost without the table.
const UNSEEN: u64 = 1 << 24;
/// The least and the most time, in packets, for which a table that disappointed is not tried again.
const PATIENCE: (u64, u64) = (1 << 22, 1 << 34);

impl Controller {
    /// One for an empty table of so many buckets. It begins by using the table.
    pub fn new(buckets: u32) -> Self {
        let buckets = u64::from(buckets);
        Self {
            state: State::Using { left: time_to_fill(buckets), has_paid: false },
            costs: Costs::default(),
            batches: 0,
            measurements: 0,
            undecided: 0,
            window: Window::default(),
            buckets,
            patience: PATIENCE.0,
            is_short: false,
            unseen: u64::MAX,
        }
    }

    /// What to do with a batch of so many packets.
    #[inline]
    pub fn plan(&mut self, packets: u64) -> Plan {
        self.batches = self.batches.wrapping_add(1);
        self.undecided = self.undecided.saturating_add(packets);
        let short = if packets < MANY { SHORT } else { 1 };
        match &mut self.state {
            State::Using { .. } if is_one_of(self.batches, MEASURED * short) => Plan::Measure,
            State::Using { .. } => Plan::Use,
            State::Sampling(left) => {
                *left = left.saturating_sub(packets);
                if is_one_of(self.batches, SAMPLED * short) { Plan::Sample } else { Plan::Bypass }
            }
            State::Looking { left: left @ 1.., .. } => {
                *left = left.saturating_sub(packets);
                Plan::Sample
            }
            &mut State::Looking { hits, .. } => self.looked(hits),
        }
    }

    /// Whether the table is not used now, but for samples.
    pub fn is_bypassing(&self) -> bool {
        matches!(self.state, State::Sampling(_) | State::Looking { .. })
    }

    /// It was seen what decisions cost.
    #[cold]
    fn looked(&mut self, hits: u64) -> Plan {
        self.unseen = 0;
        self.window = Window::default();
        if self.pays(WINDOW, hits) {
            self.state = State::Using { left: 0, has_paid: true };
            Plan::Use
        } else {
            self.state = State::Sampling(0);
            Plan::Bypass
        }
    }

    /// How many packets should be decided though nothing is missed, as it was not seen for long
    /// what that costs. Each is decided twice, and it all costs no more than a tick for each packet
    /// since. Fewer than 64 tell too little: then it is waited until so many may be. Of short
    /// batches none are: each decision is made when what it reads is near as never, or far as never.
    pub fn wanted_decisions(&self) -> usize {
        if self.is_short {
            return 0;
        }
        let affordable = self.undecided / (2 * (self.costs.decide >> 10)).max(1);
        let is_enough = self.undecided >= UNDECIDED && affordable >= MANY;
        if is_enough { affordable.min(DECIDED) as usize } else { 0 }
    }

    /// What was measured lately.
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// Takes note of what a measured batch cost.
    pub fn measured(&mut self, measurement: &Measurement) {
        let Measurement { packets, probed, probe, decided, decide, inserted, insert } =
            *measurement;
        // A whole batch costs what it would cost without the table, however short it is.
        let is_many = decided >= MANY || packets > 0 && decided >= packets;
        if packets > 0 {
            self.is_short = packets < MANY;
        }
        // Of a short batch less was decided than wanted, and less is to be paid off.
        let paid = 2 * decided * (self.costs.decide >> 10);
        self.undecided = if decided >= MANY { 0 } else { self.undecided.saturating_sub(paid) };
        // Among the first ones, the least is most likely to be true.
        let is_early = self.measurements < EARLY;
        self.measurements += u32::from(is_early);
        let blend = |mean: &mut u64, ticks, packets| blend(mean, ticks, packets, is_early);
        let mut costs = self.costs;
        blend(&mut costs.decide, decide, decided);
        // Of few, only what is less than of many.
        if is_many || self.costs.decide == 0 || costs.decide < self.costs.decide {
            self.costs.decide = costs.decide;
        }
        blend(&mut costs.probe, probe, probed);
        blend(&mut costs.insert, insert, inserted);
        if self.is_bypassing() {
            // A few packets of a batch cost more each than all of them do, as fewer waits for
            // memory overlap: what was measured of all stands, unless even this is less.
            costs.probe = costs.probe.min(self.costs.probe);
            costs.insert = costs.insert.min(self.costs.insert);
        }
        self.costs = Costs { decide: self.costs.decide, ..costs };
    }

    /// Takes note of how a batch that used the table went, and judges when there is enough to judge
    /// by.
    #[inline]
    pub fn used(&mut self, packets: u64, hits: u64) {
        self.window.packets += packets;
        self.window.hits += hits;
        if self.window.packets >= WINDOW {
            self.judge();
        }
    }

    /// Takes note of how the part of a batch went that used a part of the table.
    pub fn sampled(&mut self, packets: u64, hits: u64) {
        if matches!(self.state, State::Looking { .. }) {
            return;
        }
        let weight = if self.is_short { u64::from(SHORT) } else { 1 };
        self.window.packets += weight * packets;
        self.window.hits += weight * hits;
        if self.window.packets < SAMPLE {
            return;
        }
        let Window { packets, hits } = core::mem::take(&mut self.window);
        if self.state == State::Sampling(0) && self.pays(packets, hits) {
            self.state = State::Using { left: time_to_fill(self.buckets), has_paid: false };
        }
    }

    fn judge(&mut self) {
        let Window { packets, hits } = core::mem::take(&mut self.window);
        let pays = self.pays(packets, hits);
        let State::Using { left, has_paid } = self.state else { return };
        let has_paid = has_paid || pays;
        if pays {
            self.patience = PATIENCE.0;
        }
        self.unseen = self.unseen.saturating_add(packets);
        // Nothing more is to be won by filling it.
        let is_full = hits >= packets - packets / 16;
        // Packets that come alone do not tell what decisions cost: that is seen without the table.
        let is_over = is_full || left <= packets;
        if self.is_short && self.unseen > UNSEEN && is_over {
            self.state = State::Looking { left: WINDOW, hits: hits * WINDOW / packets };
            // What was measured so far counts for nothing, and the first ones are not trusted.
            (self.costs.decide, self.measurements) = (0, 0);
            return;
        }
        let left = if is_full && !pays { 0 } else { left.saturating_sub(packets) };
        self.state = match left {
            0 if pays => State::Using { left: 0, has_paid },
            0 if has_paid => State::Sampling(0),
            0 => {
                let patience = self.patience;
                self.patience = (2 * patience).min(PATIENCE.1);
                State::Sampling(patience)
            }
            left => State::Using { left, has_paid },
        };
    }

    /// Whether the table saves an eighth of what decisions cost, over so many packets. Less may be
    /// a loss: a table in use takes room in the processor's caches from everything else, and the
    /// few that are missed of a batch cost more each than a whole batch's decisions do. What was
    /// not measured yet costs nothing.
    fn pays(&self, packets: u64, hits: u64) -> bool {
        let cost = |packets: u64, cost: u64| i128::from(packets) * i128::from(cost);
        let Costs { probe, decide, insert } = self.costs;
        let saving = cost(hits, decide) - cost(packets, probe) - cost(packets - hits, insert);
        decide == 0 || saving >= cost(packets, decide) / 8
    }
}

/// Whether a batch is one of the one in `many` that are looked at. Batches of two kinds take turns,
/// where what one brings is decrypted and comes back as the next, or where two ports are busy: of
/// each kind of one length as many are looked at as there are of it. So they are not every
/// so-manieth, but where
/// the multiples of the golden ratio fall (Knuth, "The Art of Computer Programming", 6.4, theorem
/// S).
#[inline(always)]
fn is_one_of(batch: u32, many: u32) -> bool {
    batch.wrapping_mul(0x9e37_79b9) < u32::MAX / many
}

/// In packets. Every flow must come once, in whatever order; but who sends nothing but new flows
/// must not have the table filled for him for long.
pub(super) fn time_to_fill(buckets: u64) -> u64 {
    (2 * buckets).max(4 * WINDOW)
}

/// A moving mean, in which a batch of few packets counts for little, and one that is far off, as
/// when the system took the processor away, for as much as one that is half or twice the mean.
fn blend(mean: &mut u64, ticks: u64, packets: u64, is_early: bool) {
    if packets == 0 {
        return;
    }
    let sample = (ticks.min(1 << 32) << 10) / packets;
    let weight = packets.min(32);
    *mean = match *mean {
        0 => sample,
        mean if is_early => mean.min(sample),
        mean => {
            (mean * (256 - weight) + sample.clamp(mean / 2, mean.saturating_mul(2)) * weight) / 256
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a packet costs in a world where a share of flows is known to a table that had time to
    /// fill.
    struct World {
        /// Of 256.
        hits: u64,
        probe: u64,
        decide: u64,
        insert: u64,
        /// Packets that used the table before hits come.
        fill: u64,
    }

    /// Runs so many packets, and answers the share of them for which the table was used in the last
    /// half.
    fn run(controller: &mut Controller, packets: u64, world: &World) -> f64 {
        let (mut used, mut seen, mut filled, mut part_filled) = (0u32, 0u32, 0, 0);
        for batch in 0..packets / 256 {
            let plan = controller.plan(256);
            let (looked, is_full) = match plan {
                Plan::Bypass => (0, false),
                Plan::Sample => {
                    part_filled += 256;
                    (16, part_filled >= world.fill)
                }
                Plan::Use | Plan::Measure => {
                    filled += 256;
                    (256, filled >= world.fill)
                }
            };
            let hits = if is_full { world.hits * looked / 256 } else { 0 };
            if matches!(plan, Plan::Measure | Plan::Sample) {
                let missed = 256 - hits;
                // Where nothing is missed, a few are decided to see what it costs.
                let decided = if missed == 0 { 16 } else { missed };
                controller.measured(&Measurement {
                    packets: 256,
                    probed: looked,
                    probe: world.probe * looked,
                    decided,
                    decide: world.decide * decided,
                    inserted: looked - hits,
                    insert: world.insert * (looked - hits),
                });
            }
            match plan {
                Plan::Bypass => {}
                Plan::Sample => controller.sampled(looked, hits),
                Plan::Use | Plan::Measure => controller.used(looked, hits),
            }
            if batch > packets / 512 {
                seen += 1;
                used += u32::from(matches!(plan, Plan::Use | Plan::Measure));
            }
        }
        f64::from(used) / f64::from(seen)
    }

    const GOOD: World = World { hits: 256, probe: 30, decide: 80, insert: 40, fill: 1 << 16 };

    #[test]
    fn a_table_is_used_while_it_pays() {
        let mut controller = Controller::new(1 << 16);
        assert_eq!(run(&mut controller, 1 << 22, &GOOD), 1.0);
        assert!(controller.costs().probe.abs_diff(30 << 10) < 100, "{:?}", controller.costs());
        // Half hits: 40 saved, 30 for looking, 20 for keeping.
        assert_eq!(run(&mut controller, 1 << 24, &World { hits: 128, fill: 0, ..GOOD }), 0.0);
        assert!(controller.is_bypassing());
        // And back, when the part has filled.
        assert_eq!(run(&mut controller, 1 << 24, &GOOD), 1.0);
        // Dear decisions make half hits worth it.
        assert_eq!(run(&mut controller, 1 << 24, &World { hits: 128, decide: 800, ..GOOD }), 1.0);
    }

    #[test]
    fn a_flood_is_not_looked_up() {
        let mut controller = Controller::new(1 << 16);
        assert_eq!(run(&mut controller, 1 << 24, &World { hits: 0, decide: 500, ..GOOD }), 0.0);
    }

    /// A part that promises what the whole does not keep: it is tried ever more seldom.
    #[test]
    fn a_table_that_disappoints_is_tried_less_and_less() {
        let mut controller = Controller::new(1 << 12);
        let (mut used, mut later) = (0, 0);
        for batch in 0..1u64 << 20 {
            match controller.plan(256) {
                Plan::Bypass => {}
                Plan::Sample => {
                    let decided = 240;
                    controller.measured(&Measurement {
                        probed: 16,
                        probe: 160,
                        decided,
                        decide: 50 * decided,
                        ..Default::default()
                    });
                    controller.sampled(16, 16);
                }
                Plan::Use | Plan::Measure => {
                    used += 1;
                    later += u64::from(batch > 1 << 19);
                    controller.measured(&Measurement {
                        probed: 256,
                        probe: 256 * 100,
                        decided: 256,
                        decide: 50 * 256,
                        ..Default::default()
                    });
                    controller.used(256, 0);
                }
            }
        }
        assert!(used * 50 < 1 << 20, "{used}");
        assert!(later * 100 < 1 << 19, "{later}");
    }

    /// ESP takes turns with what it brings, whose decisions alone are dear; whichever comes first.
    #[test]
    fn batches_of_two_kinds_that_take_turns_are_both_seen() {
        for first in 0..2 {
            let mut controller = Controller::new(1 << 12);
            for batch in 0..1u64 << 14 {
                let plan = controller.plan(256);
                let (hits, decide) = if batch % 2 == first { (256, 33) } else { (240, 2000) };
                let looked = if plan == Plan::Sample { 16 } else { 256 };
                let hits = hits * looked / 256;
                let decided = (looked - hits).max(controller.wanted_decisions() as u64);
                let measurement = Measurement {
                    packets: 256,
                    probed: looked,
                    probe: 30 * looked,
                    decided,
                    decide: decide * decided,
                    inserted: looked - hits,
                    insert: 60 * (looked - hits),
                };
                match plan {
                    Plan::Bypass => {}
                    Plan::Sample => {
                        controller.measured(&measurement);
                        controller.sampled(looked, hits);
                    }
                    Plan::Use => controller.used(looked, hits),
                    Plan::Measure => {
                        controller.measured(&measurement);
                        controller.used(looked, hits);
                    }
                }
            }
            assert!(!controller.is_bypassing(), "{:?}", controller.costs());
            assert!(controller.costs().decide > 250 << 10, "{:?}", controller.costs());
        }
    }

    /// Of what a flood and a few flows bring in turns, half is found, and that is more than enough.
    #[test]
    fn a_flood_that_takes_turns_with_few_flows_does_not_hide_them() {
        for first in 0..2 {
            let mut controller = Controller::new(1 << 12);
            let flood = World { hits: 0, decide: 400, ..GOOD };
            assert_eq!(run(&mut controller, 1 << 24, &flood), 0.0);
            let mut used = 0;
            for batch in 0..1u64 << 16 {
                let plan = controller.plan(256);
                let looked = match plan {
                    Plan::Bypass => continue,
                    Plan::Sample => 16,
                    Plan::Use | Plan::Measure => 256,
                };
                used += u64::from(looked == 256);
                let hits = if batch % 2 == first { looked } else { 0 };
                match plan {
                    Plan::Sample => controller.sampled(looked, hits),
                    _ => controller.used(looked, hits),
                }
            }
            assert!(used > 1 << 15, "{used}");
        }
    }

    /// Whatever a decision costs, and however few packets come at once.
    #[test]
    fn what_is_decided_to_see_its_cost_costs_a_tick_a_packet_at_most() {
        for (decide, batch) in [(80, 256), (1200, 256), (2400, 256), (1200, 10), (90_000, 256)] {
            let mut controller = Controller::new(1 << 12);
            let measurement = |decided| Measurement {
                probed: batch,
                probe: 30 * batch,
                decided,
                decide: decide * decided,
                ..Default::default()
            };
            controller.measured(&measurement(batch));
            let (mut packets, mut ticks) = (0, 0);
            while packets < 1 << 26 {
                packets += batch;
                if controller.plan(batch) == Plan::Measure {
                    let decided = (controller.wanted_decisions() as u64).min(batch);
                    ticks += 2 * decided * decide;
                    controller.measured(&measurement(decided));
                }
                controller.used(batch, batch);
            }
            assert!(ticks <= packets, "{decide}, {batch}: {ticks} for {packets}");
            assert!(ticks > 0, "{decide}, {batch}");
        }
    }

    /// One packet at a time, of so many flows that all of what a decision reads is far away. While the
    /// table is used, a decision is measured when all that is near, as little as it then costs; but
    /// when it is not used, it is seen what each costs.
    #[test]
    fn packets_that_come_alone_are_measured_as_they_are() {
        for (bypassed, least, most) in [(2500, 0.99, 1.0), (200, 0.0, 0.01)] {
            let mut controller = Controller::new(1 << 12);
            let (mut used, mut seen, mut measured) = (0u64, 0u64, 0u64);
            for packet in 0..1u64 << 24 {
                let plan = controller.plan(1);
                let is_measured = matches!(plan, Plan::Sample | Plan::Measure);
                measured += u64::from(is_measured);
                let looked = match plan {
                    Plan::Sample => u64::from(packet / 32 % 16 == 0),
                    Plan::Bypass => 0,
                    Plan::Use | Plan::Measure => 1,
                };
                let tried = controller.wanted_decisions().min(1) as u64;
                let (decided, each) = match plan {
                    Plan::Sample => (1 - looked, bypassed),
                    _ => (tried, 200),
                };
                if is_measured {
                    controller.measured(&Measurement {
                        packets: 1,
                        probed: looked,
                        probe: 500 * looked,
                        decided,
                        decide: each * decided,
                        ..Default::default()
                    });
                }
                match plan {
                    Plan::Bypass => {}
                    Plan::Sample => controller.sampled(looked, looked),
                    Plan::Use | Plan::Measure => controller.used(1, 1),
                }
                seen += u64::from(packet > 1 << 22);
                used += u64::from(packet > 1 << 22 && matches!(plan, Plan::Use | Plan::Measure));
            }
            let share = used as f64 / seen as f64;
            assert!((least..=most).contains(&share), "{bypassed}: {share}");
            assert!(measured * 60 < 1 << 24, "{bypassed}: {measured}");
        }
    }

    /// Long and short batches take turns, and what is found of one kind is not found of the other.
    #[test]
    fn short_batches_count_for_as_much_as_long_ones() {
        for (hits_of_short, hits_of_long) in [(63, 0), (0, 64)] {
            let mut controller = Controller::new(1 << 12);
            let (mut used, mut seen) = (0u32, 0u32);
            for batch in 0..1u64 << 21 {
                let (packets, known) =
                    if batch % 2 == 0 { (63, hits_of_short) } else { (64, hits_of_long) };
                let plan = controller.plan(packets);
                let looked = match plan {
                    Plan::Sample => 4,
                    Plan::Bypass => 0,
                    Plan::Use | Plan::Measure => packets,
                };
                // At first nothing is found, so that the table is left aside.
                let hits = if batch < 1 << 19 { 0 } else { known * looked / packets };
                let decided = if looked == packets { packets - hits } else { packets - looked };
                if matches!(plan, Plan::Sample | Plan::Measure) {
                    controller.measured(&Measurement {
                        packets,
                        probed: looked,
                        probe: 30 * looked,
                        decided,
                        decide: 200 * decided,
                        inserted: looked - hits,
                        insert: 40 * (looked - hits),
                    });
                }
                match plan {
                    Plan::Bypass => {}
                    Plan::Sample => controller.sampled(looked, hits),
                    Plan::Use | Plan::Measure => controller.used(looked, hits),
                }
                let is_late = batch > 3 << 19;
                seen += u32::from(is_late);
                used += u32::from(is_late && looked == packets);
            }
            assert!(used > seen / 10 * 9, "{hits_of_short}, {hits_of_long}: {used} of {seen}");
        }
    }

    /// Without a clock nothing can be known, and the table is used.
    #[test]
    fn a_clock_that_stands_still_leaves_it_on() {
        let mut controller = Controller::new(16);
        assert_eq!(
            run(
                &mut controller,
                1 << 20,
                &World { hits: 0, probe: 0, decide: 0, insert: 0, fill: 0 }
            ),
            1.0
        );
    }

    /// The system takes the processor away in the middle of a measurement, again and again.
    #[test]
    fn a_clock_that_jumps_is_forgiven() {
        let mut controller = Controller::new(1 << 12);
        let mut used = 0;
        for batch in 0..1u64 << 16 {
            let plan = controller.plan(256);
            let taken_away = if batch % 512 < 16 { 1 << 24 } else { 0 };
            let looked = match plan {
                Plan::Bypass => continue,
                Plan::Sample => 16,
                Plan::Use | Plan::Measure => 256,
            };
            used += u64::from(looked == 256);
            if plan != Plan::Use {
                controller.measured(&Measurement {
                    probed: looked,
                    probe: 30 * looked + taken_away,
                    decided: 16,
                    decide: 80 * 16,
                    ..Default::default()
                });
            }
            match plan {
                Plan::Sample => controller.sampled(looked, looked),
                _ => controller.used(looked, looked),
            }
        }
        assert!(used > (1 << 16) * 9 / 10, "{used}");
        // The greatest numbers that there are.
        let most = u64::MAX;
        controller.measured(&Measurement {
            packets: 1,
            probed: 1,
            probe: most,
            decided: 1,
            decide: most,
            inserted: 1,
            insert: most,
        });
        controller.used(WINDOW, 0);
    }

    /// Nothing but a first measurement that is far off.
    #[test]
    fn a_first_measurement_that_is_far_off_is_forgotten() {
        let mut controller = Controller::new(1 << 12);
        controller.measured(&Measurement {
            probed: 256,
            probe: 1 << 30,
            decided: 256,
            decide: 256 * 80,
            ..Default::default()
        });
        assert_eq!(run(&mut controller, 1 << 24, &GOOD), 1.0);
    }
}
