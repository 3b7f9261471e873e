//! How a bench measures: series in turn, A B A B, and the median of each.

use quanta::Clock;
use serde::Serialize;

/// Something whose cost per packet is measured.
pub(super) trait Series {
    /// What it is called in the table.
    fn name(&self) -> String;

    /// Handles a batch of packets. Only what lies between [`Watch::start`] and [`Watch::stop`] counts; answers how many packets
    /// that was.
    fn batch(&mut self, watch: &mut Watch<'_>) -> u64;
}

/// Sums the time between starts and stops.
pub(super) struct Watch<'a> {
    clock: &'a Clock,
    started: u64,
    ticks: u64,
}

impl Watch<'_> {
    pub(super) fn start(&mut self) {
        self.started = self.clock.raw();
    }

    pub(super) fn stop(&mut self) {
        self.ticks += self.clock.raw().saturating_sub(self.started);
    }
}

/// What one series cost. Cycles are of the time-stamp counter, which runs at a fixed rate whatever the core's clock does.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    /// Median over the runs.
    pub cycles_per_packet: f64,
    /// The cheapest run.
    pub cycles_min: f64,
    /// The dearest run.
    pub cycles_max: f64,
    /// Median.
    pub ns_per_packet: f64,
    /// Median.
    pub mpps: f64,
    /// How many runs.
    pub runs: usize,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Runs of each series, interleaved.
    pub runs: usize,
    /// Packets in a run.
    pub packets: u64,
}

impl Effort {
    pub(super) const fn new(quick: bool) -> Self {
        if quick { Self { runs: 5, packets: 20_000 } } else { Self { runs: 21, packets: 200_000 } }
    }
}

/// Runs all of `series` in turn, `effort.runs` times, after one round that does not count, and answers what each cost.
pub(super) fn measure(series: &mut [Box<dyn Series>], effort: Effort, mut done: impl FnMut()) -> Vec<Cost> {
    let clock = Clock::new();
    let mut samples = vec![Vec::with_capacity(effort.runs); series.len()];
    for run in 0..=effort.runs {
        for (series, samples) in series.iter_mut().zip(&mut samples) {
            let mut watch = Watch { clock: &clock, started: 0, ticks: 0 };
            let (mut packets, enough) = (0, if run == 0 { effort.packets / 10 } else { effort.packets });
            while packets < enough {
                packets += series.batch(&mut watch);
            }
            if run > 0 {
                samples.push((watch.ticks, packets));
            }
            done();
        }
    }
    samples.iter().map(|samples| cost(&clock, samples)).collect()
}

/// How often [`measure`] calls `done`.
pub(super) fn steps(series: usize, effort: Effort) -> u64 {
    (series * (effort.runs + 1)) as u64
}

fn cost(clock: &Clock, samples: &[(u64, u64)]) -> Cost {
    let mut cycles: Vec<f64> = samples.iter().map(|&(ticks, packets)| ticks as f64 / packets as f64).collect();
    cycles.sort_by(f64::total_cmp);
    let median = cycles[cycles.len() / 2];
    // A long stretch of ticks, so that the scaling's rounding does not show.
    let ns_per_tick = clock.delta_as_nanos(0, 1 << 32) as f64 / (1_u64 << 32) as f64;
    let ns_per_packet = median * ns_per_tick;
    Cost {
        cycles_per_packet: median,
        cycles_min: cycles[0],
        cycles_max: cycles[cycles.len() - 1],
        ns_per_packet,
        mpps: 1000.0 / ns_per_packet,
        runs: samples.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Costs whatever it is told to, in packets of one batch.
    struct Spin(u64);

    impl Series for Spin {
        fn name(&self) -> String {
            "spin".to_owned()
        }

        fn batch(&mut self, watch: &mut Watch<'_>) -> u64 {
            watch.start();
            for i in 0..self.0 * 100 {
                std::hint::black_box(i);
            }
            watch.stop();
            // Not counted.
            for i in 0..10_000_u64 {
                std::hint::black_box(i);
            }
            100
        }
    }

    #[test]
    fn a_series_that_does_more_costs_more_and_all_runs_count() {
        let mut series: Vec<Box<dyn Series>> = vec![Box::new(Spin(10)), Box::new(Spin(1000))];
        let effort = Effort { runs: 5, packets: 1000 };
        let mut steps_seen = 0;
        let costs = measure(&mut series, effort, || steps_seen += 1);
        assert_eq!(steps_seen, steps(2, effort));
        assert!(costs[1].cycles_per_packet > 5.0 * costs[0].cycles_per_packet, "{costs:?}");
        assert!(costs.iter().all(|cost| cost.cycles_min <= cost.cycles_per_packet && cost.runs == 5));
    }
}
