//! What the stages of a packet's way cost.

use serde::{Deserialize, Serialize};

/// What the stages have cost, in the rounds that were timed: one in about 256 of those with packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostReport {
    /// How many cycles of the clock make a second. It is the processor's time-stamp counter, which
    /// goes at its nominal frequency, whatever that of the core is now.
    pub cycles_per_second: f64,
    /// By worker.
    pub workers: Vec<WorkerCost>,
    /// All workers together.
    pub total: Cost,
}

/// What the stages of a worker have cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerCost {
    /// The worker's number, from 0.
    pub worker: usize,
    /// What was timed.
    #[serde(flatten)]
    pub cost: Cost,
}

/// What was timed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Rounds with packets that were timed.
    pub rounds: u64,
    /// Packets received in them.
    pub packets: u64,
    /// What such a round took for each packet that it received. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_packet: Option<f64>,
    /// Rounds without packets that were timed, and the cycles that they took.
    pub idle_rounds: u64,
    /// See there.
    pub idle_cycles: u64,
    /// The stages as `hitpath graph` has them, and `beside`: what a round does besides.
    pub stages: Vec<StageCost>,
}

/// What a stage has cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageCost {
    /// Its name.
    pub stage: String,
    /// How often it had packets.
    pub calls: u64,
    /// Its packets. One that is decrypted passes the stages twice.
    pub packets: u64,
    /// What it took, the times without packets included.
    pub cycles: u64,
    /// Absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_packet: Option<f64>,
    /// How many packets share what a call costs. Absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_call: Option<f64>,
    /// Its part of what the rounds took, from 0 to 1. Absent before anything was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl CostReport {
    /// What was timed since `before`. Of a worker that has counted less since then, as the daemon
    /// was started again, everything.
    pub fn since(&self, before: &Self) -> Self {
        let of = |worker: &WorkerCost| {
            before.workers.iter().find(|was| was.worker == worker.worker).map(|was| &was.cost)
        };
        let workers = self.workers.iter().map(|now| WorkerCost {
            worker: now.worker,
            cost: of(now).and_then(|was| now.cost.since(was)).unwrap_or_else(|| now.cost.clone()),
        });
        let workers: Vec<_> = workers.collect();
        Self::of(self.cycles_per_second, workers)
    }

    /// The report of some workers.
    pub fn of(cycles_per_second: f64, workers: Vec<WorkerCost>) -> Self {
        let mut total = Cost::default();
        for WorkerCost { cost, .. } in &workers {
            total.add(cost);
        }
        Self { cycles_per_second, total: total.with_means(), workers }
    }
}

impl Cost {
    /// With the means that follow from the counts.
    #[must_use]
    pub fn with_means(mut self) -> Self {
        let all: u64 = self.stages.iter().map(|stage| stage.cycles).sum();
        self.cycles_per_packet = ratio(all, self.packets);
        for stage in &mut self.stages {
            stage.cycles_per_packet = ratio(stage.cycles, stage.packets);
            stage.packets_per_call = ratio(stage.packets, stage.calls);
            stage.share = ratio(stage.cycles, all);
        }
        self
    }

    fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.packets += other.packets;
        self.idle_rounds += other.idle_rounds;
        self.idle_cycles += other.idle_cycles;
        if self.stages.is_empty() {
            self.stages.clone_from(&other.stages);
            return;
        }
        // Every worker has the same stages, in the same order.
        for (sum, stage) in self.stages.iter_mut().zip(&other.stages) {
            sum.calls += stage.calls;
            sum.packets += stage.packets;
            sum.cycles += stage.cycles;
        }
    }

    fn since(&self, before: &Self) -> Option<Self> {
        let stage = |(now, was): (&StageCost, &StageCost)| {
            Some(StageCost {
                stage: now.stage.clone(),
                calls: now.calls.checked_sub(was.calls)?,
                packets: now.packets.checked_sub(was.packets)?,
                cycles: now.cycles.checked_sub(was.cycles)?,
                ..StageCost::default()
            })
        };
        let cost = Self {
            rounds: self.rounds.checked_sub(before.rounds)?,
            packets: self.packets.checked_sub(before.packets)?,
            cycles_per_packet: None,
            idle_rounds: self.idle_rounds.checked_sub(before.idle_rounds)?,
            idle_cycles: self.idle_cycles.checked_sub(before.idle_cycles)?,
            stages: self.stages.iter().zip(&before.stages).map(stage).collect::<Option<_>>()?,
        };
        Some(cost.with_means())
    }
}

/// Beyond 2^53 it is rounded.
#[allow(clippy::cast_precision_loss)]
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, [calls, packets, cycles]: [u64; 3]) -> StageCost {
        StageCost { stage: name.to_owned(), calls, packets, cycles, ..StageCost::default() }
    }

    fn cost(worker: usize, times: u64) -> WorkerCost {
        let cost = Cost {
            rounds: times,
            packets: 4 * times,
            idle_rounds: times,
            idle_cycles: 7 * times,
            stages: vec![
                stage("receive", [times, 4 * times, 100 * times]),
                stage("seal", [0, 0, 0]),
                stage("apply", [times, 4 * times, 300 * times]),
            ],
            ..Cost::default()
        };
        WorkerCost { worker, cost: cost.with_means() }
    }

    #[test]
    fn means_follow_from_counts_and_what_did_not_happen_has_none() {
        let report = CostReport::of(1e9, vec![cost(0, 1), cost(1, 3)]);
        assert_eq!((report.total.rounds, report.total.packets), (4, 16));
        assert_eq!(report.total.cycles_per_packet, Some(100.0));
        let [receive, seal, apply] = &report.total.stages[..] else { panic!() };
        assert_eq!((receive.cycles_per_packet, receive.packets_per_call), (Some(25.0), Some(4.0)));
        assert_eq!((receive.share, apply.share, seal.share), (Some(0.25), Some(0.75), Some(0.0)));
        assert_eq!((seal.cycles_per_packet, seal.packets_per_call), (None, None));
        assert_eq!(CostReport::of(1e9, Vec::new()).total, Cost::default());
    }

    #[test]
    fn a_difference_is_what_was_timed_in_between() {
        let before = CostReport::of(1e9, vec![cost(0, 10), cost(1, 10)]);
        let after = CostReport::of(1e9, vec![cost(0, 15), cost(1, 11)]);
        let between = after.since(&before);
        assert_eq!(between.workers, [cost(0, 5), cost(1, 1)]);
        assert_eq!(between.total.rounds, 6);
        // The daemon was started again in between.
        assert_eq!(before.since(&after).workers, [cost(0, 10), cost(1, 10)]);
        assert_eq!(after.since(&after).total.cycles_per_packet, None);
    }
}
