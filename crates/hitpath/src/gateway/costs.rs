//! What the stages cost, from what workers have timed to what users see.

use api::{Cost, CostReport, StageCost, WorkerCost};
use path::Costs;
use runtime::clock;

/// The stage that packets come in by.
const RECEIVE: &str = "receive";

/// What the stages of workers cost: `timed` has those of each worker.
pub(super) fn report<'c>(timed: impl Iterator<Item = &'c Costs>) -> CostReport {
    let workers = timed.enumerate().map(|(worker, costs)| WorkerCost { worker, cost: of(costs) });
    CostReport::of(clock::ticks_per_second(), workers.collect())
}

fn of(costs: &Costs) -> Cost {
    let stage = |(name, cost): (&str, &path::StageCost)| StageCost {
        stage: name.to_owned(),
        calls: cost.calls.read(),
        packets: cost.packets.read(),
        cycles: cost.ticks.read(),
        ..StageCost::default()
    };
    let stages: Vec<_> = costs.stages().map(stage).collect();
    let received = stages.iter().find(|stage| stage.stage == RECEIVE);
    let cost = Cost {
        rounds: costs.rounds.read(),
        packets: received.map_or(0, |stage| stage.packets),
        cycles_per_packet: None,
        idle_rounds: costs.idle_rounds.read(),
        idle_cycles: costs.idle_ticks.read(),
        stages,
    };
    cost.with_means()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_timed_is_told_by_stage_and_received_packets_share_it() {
        let timed: [Costs; 2] = Default::default();
        for (costs, times) in timed.iter().zip([1, 3]) {
            costs.rounds.add(times);
            for (name, cost) in costs.stages() {
                cost.calls.add(times);
                cost.packets.add(times * if name == RECEIVE { 4 } else { 8 });
                cost.ticks.add(times * 80);
            }
        }
        let report = report(timed.iter());
        assert_eq!(report.total.stages.len(), path::graph().len() + 1);
        assert!(report.total.stages.iter().any(|stage| stage.stage == path::BESIDE));
        assert_eq!((report.total.rounds, report.total.packets), (4, 16));
        // Eleven times 80 cycles for four packets.
        assert_eq!(report.total.cycles_per_packet, Some(220.0));
        assert_eq!(report.workers[1].cost.stages[0].cycles, 240);
        assert!(report.cycles_per_second > 1e6);
    }
}
