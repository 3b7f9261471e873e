//! Whether a table pays.
//!
//! A packet that is looked up costs the look; one that is not found costs a decision and its keeping as well. Without the table every
//! packet costs a decision. So with a share `h` of hits, the table saves `h * decide - look - (1 - h) * keep` a packet. The three costs are
//! measured on some batches, the share on all. A table that saves nothing is not used, and is tried again from time to time, for so
//! short that the trials cost little.

/// Measures, and says when a table is to be used.
#[derive(Clone, Debug)]
pub struct Controller {
    state: State,
    /// Ticks for 1024 packets; 0 until measured.
    costs: Costs,
    batches: u32,
    /// Measurements since one had a decision in it.
    undecided: u32,
    window: Window,
    /// Packets until the next trial, the time after this one.
    interval: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Using,
    /// So many packets still go by.
    Bypassing(u64),
    /// It is used to see whether it pays.
    Trying,
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
    /// Use the table.
    Use,
    /// Use the table, and tell [`Controller::measured`] how long it took.
    Measure,
}

/// What one batch cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measurement {
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
/// Measurements without a decision, after which one is wanted.
const UNDECIDED: u32 = 8;
/// Packets after which it is judged whether the table pays.
const WINDOW: u64 = 16_384;
/// Packets of a trial.
const TRIAL: u64 = 2_048;
/// Packets between the first trials, and between later ones at most. A trial costs a packet about half as much again, so that one in 128 costs less than
/// half a percent.
const INTERVAL: (u64, u64) = (16 * TRIAL, 128 * TRIAL);

impl Controller {
    /// One that begins by using the table.
    pub fn new() -> Self {
        Self {
            state: State::Using,
            costs: Costs::default(),
            batches: 0,
            undecided: 0,
            window: Window::default(),
            interval: INTERVAL.0,
        }
    }

    /// What to do with a batch of so many packets.
    #[inline]
    pub fn plan(&mut self, packets: u64) -> Plan {
        match &mut self.state {
            State::Bypassing(left) if *left > packets => {
                *left -= packets;
                Plan::Bypass
            }
            State::Bypassing(_) => {
                self.state = State::Trying;
                self.window = Window::default();
                Plan::Measure
            }
            State::Trying => Plan::Measure,
            State::Using => {
                self.batches = self.batches.wrapping_add(1);
                if self.batches.is_multiple_of(MEASURED) { Plan::Measure } else { Plan::Use }
            }
        }
    }

    /// Whether some packets should be decided though nothing is missed, as it was not seen for long what that costs.
    pub fn wants_decisions(&self) -> bool {
        self.undecided >= UNDECIDED
    }

    /// Whether the table is not used now.
    pub fn is_bypassing(&self) -> bool {
        matches!(self.state, State::Bypassing(_))
    }

    /// What was measured lately.
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// Takes note of what a measured batch cost.
    pub fn measured(&mut self, measurement: &Measurement) {
        let Measurement { probed, probe, decided, decide, inserted, insert } = *measurement;
        self.undecided = if decided == 0 { self.undecided + 1 } else { 0 };
        blend(&mut self.costs.probe, probe, probed);
        blend(&mut self.costs.decide, decide, decided);
        blend(&mut self.costs.insert, insert, inserted);
    }

    /// Takes note of how a batch that used the table went, and judges when there is enough to judge by.
    #[inline]
    pub fn used(&mut self, packets: u64, hits: u64) {
        self.window.packets += packets;
        self.window.hits += hits;
        let enough = if self.state == State::Trying { TRIAL } else { WINDOW };
        if self.window.packets >= enough {
            self.judge();
        }
    }

    fn judge(&mut self) {
        let Window { packets, hits } = core::mem::take(&mut self.window);
        let pays = self.saving(packets, hits) >= 0;
        self.state = match (pays, self.state) {
            (true, _) => {
                self.interval = INTERVAL.0;
                State::Using
            }
            (false, State::Trying) => {
                self.interval = (2 * self.interval).min(INTERVAL.1);
                State::Bypassing(self.interval)
            }
            (false, _) => State::Bypassing(self.interval),
        };
    }

    /// What the table saves over so many packets, in 1024ths of ticks. What was not measured yet costs nothing.
    fn saving(&self, packets: u64, hits: u64) -> i128 {
        let cost = |packets: u64, cost: u64| i128::from(packets) * i128::from(cost);
        if self.costs.decide == 0 {
            return 0;
        }
        cost(hits, self.costs.decide) - cost(packets, self.costs.probe) - cost(packets - hits, self.costs.insert)
    }
}

impl Default for Controller {
    fn default() -> Self {
        Self::new()
    }
}

/// A moving mean, in which a batch of few packets counts for little.
fn blend(mean: &mut u64, ticks: u64, packets: u64) {
    if packets == 0 {
        return;
    }
    // Whatever the clock says, one batch cannot spoil the mean for long.
    let sample = (ticks.min(1 << 32) << 10) / packets;
    let weight = packets.min(32);
    *mean = if *mean == 0 { sample } else { (*mean * (256 - weight) + sample * weight) / 256 };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `packets` packets of which every batch has a share of hits, with these costs a packet, and answers the share of packets for
    /// which the table was used in the last half.
    fn run(controller: &mut Controller, packets: u64, hits: u64, probe: u64, decide: u64, insert: u64) -> f64 {
        let (mut used, mut seen) = (0, 0);
        for batch in 0..packets / 256 {
            let plan = controller.plan(256);
            if plan == Plan::Measure {
                let missed = 256 - hits;
                // Where nothing is missed, a few are decided to see what it costs.
                let decided = if missed == 0 { 16 } else { missed };
                controller.measured(&Measurement {
                    probed: 256,
                    probe: probe * 256,
                    decided,
                    decide: decide * decided,
                    inserted: missed,
                    insert: insert * missed,
                });
            }
            if plan != Plan::Bypass {
                controller.used(256, hits);
            }
            if batch > packets / 512 {
                seen += 1;
                used += u64::from(plan != Plan::Bypass);
            }
        }
        used as f64 / seen as f64
    }

    #[test]
    fn a_table_is_used_while_it_pays() {
        let mut controller = Controller::new();
        assert_eq!(run(&mut controller, 1 << 20, 256, 30, 80, 40), 1.0);
        assert!(controller.costs().probe.abs_diff(30 << 10) < 100, "{:?}", controller.costs());
        // Half hits: 40 saved, 30 for looking, 20 for keeping.
        assert!(run(&mut controller, 1 << 24, 128, 30, 80, 40) < 0.03);
        assert!(controller.is_bypassing());
        // And back.
        assert_eq!(run(&mut controller, 1 << 22, 256, 30, 80, 40), 1.0);
        // Dear decisions make half hits worth it.
        assert_eq!(run(&mut controller, 1 << 24, 128, 30, 800, 40), 1.0);
    }

    #[test]
    fn a_flood_is_not_looked_up() {
        let mut controller = Controller::new();
        assert!(run(&mut controller, 1 << 24, 0, 20, 500, 20) < 0.01);
    }

    /// Without a clock nothing can be known, and the table is used.
    #[test]
    fn a_clock_that_stands_still_leaves_it_on() {
        let mut controller = Controller::new();
        assert_eq!(run(&mut controller, 1 << 20, 0, 0, 0, 0), 1.0);
    }

    /// A clock that jumps does not panic, and is forgiven.
    #[test]
    fn a_clock_that_jumps_is_forgiven() {
        let mut controller = Controller::new();
        controller.measured(&Measurement {
            probed: 1,
            probe: u64::MAX,
            decided: 1,
            decide: 1,
            inserted: 1,
            insert: u64::MAX,
        });
        controller.used(WINDOW, WINDOW);
        assert!(controller.is_bypassing());
        assert_eq!(run(&mut controller, 1 << 24, 256, 30, 80, 40), 1.0);
    }
}
