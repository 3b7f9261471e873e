//! What the stages cost.

use api::{Cost, CostReport, StageCost};

use super::table;

/// A line for each stage of each worker, and of all of them together if there are several.
pub(super) fn costs(report: &CostReport) -> String {
    let several = report.workers.len() > 1;
    let all: Vec<(String, &Cost)> = report
        .workers
        .iter()
        .map(|of| (of.worker.to_string(), &of.cost))
        .chain(several.then(|| ("all".to_owned(), &report.total)))
        .collect();
    if report.total.rounds == 0 {
        return "no round with packets was timed yet: it is one in about 256\n".to_owned();
    }
    let rounds = |(worker, cost): &(String, &Cost)| {
        let of_idle = mean(cost.idle_cycles, cost.idle_rounds);
        let packets = cost.cycles_per_packet;
        vec![
            worker.clone(),
            cost.rounds.to_string(),
            cost.packets.to_string(),
            decimal(mean(cost.packets, cost.rounds)),
            decimal(packets),
            decimal(packets.map(|cycles| cycles * 1e9 / report.cycles_per_second)),
            decimal(of_idle),
        ]
    };
    let heading = [
        "WORKER",
        "TIMED ROUNDS",
        "PACKETS",
        "PACKETS/ROUND",
        "CYCLES/PACKET",
        "NS/PACKET",
        "CYCLES/IDLE ROUND",
    ];
    let summary = table(&heading, &all.iter().map(rounds).collect::<Vec<_>>());
    let lines = all.iter().flat_map(|(worker, cost)| {
        let happened = |stage: &&StageCost| stage.cycles > 0;
        cost.stages.iter().filter(happened).map(move |stage| line(worker, stage))
    });
    let heading = ["WORKER", "STAGE", "CALLS", "PACKETS", "PACKETS/CALL", "CYCLES/PACKET", "SHARE"];
    let stages = table(&heading, &lines.collect::<Vec<_>>());
    format!("{summary}\n{stages}")
}

fn line(worker: &str, stage: &StageCost) -> Vec<String> {
    vec![
        worker.to_owned(),
        stage.stage.clone(),
        stage.calls.to_string(),
        stage.packets.to_string(),
        decimal(stage.packets_per_call),
        decimal(stage.cycles_per_packet),
        stage.share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share)),
    ]
}

/// Beyond 2^53 it is rounded.
#[allow(clippy::cast_precision_loss)]
fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

fn decimal(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.1}"))
}

#[cfg(test)]
mod tests {
    use api::WorkerCost;

    use super::*;

    fn report(rounds: u64) -> CostReport {
        let stage = |name: &str, packets, cycles| StageCost {
            stage: name.to_owned(),
            calls: rounds,
            packets,
            cycles,
            ..StageCost::default()
        };
        let cost = Cost {
            rounds,
            packets: 4 * rounds,
            idle_rounds: 2,
            idle_cycles: 300,
            stages: vec![
                stage("receive", 4 * rounds, 1000 * rounds),
                stage("seal", 0, 0),
                stage("beside", 0, 3000 * rounds),
            ],
            ..Cost::default()
        };
        CostReport::of(2e9, vec![WorkerCost { worker: 0, cost: cost.with_means() }])
    }

    #[test]
    fn stages_that_took_time_are_shown_with_what_a_packet_costs() {
        let text = costs(&report(3));
        assert_eq!(
            text,
            "WORKER  TIMED ROUNDS  PACKETS  PACKETS/ROUND  CYCLES/PACKET  NS/PACKET  CYCLES/IDLE \
            ROUND\n     0             3       12            4.0         1000.0      500.0\
            \x20             150.0\n\nWORKER  STAGE    CALLS  PACKETS  PACKETS/CALL  \
            CYCLES/PACKET   SHARE\n     0  receive      3       12           4.0          \
            250.0  25.0 %\n     0  beside       3        0           0.0              -  75.0 %\n"
        );
    }

    #[test]
    fn before_anything_was_timed_it_says_so() {
        assert!(costs(&report(0)).contains("one in about 256"));
    }
}
