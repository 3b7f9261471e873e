//! How a bench measures: series in turn, A B A B, and the median of each.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use quanta::Clock;
use serde::Serialize;

use crate::core_state::{CoreMonitor, CoreState, Looks, runs_that_count};

/// Something whose cost per packet is measured.
pub(crate) trait Series {
    /// What it is called in the table.
    fn name(&self) -> String;

    /// Gets into the state in which it is to be measured. Called once, before the first run.
    ///
    /// # Errors
    /// If it cannot do its work.
    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()>;

    /// One run.
    ///
    /// # Errors
    /// If packets were lost or done wrong, for then nothing was measured.
    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample>;

    /// How many workers run side by side.
    fn workers(&self) -> usize {
        1
    }

    /// Whether a run may be done again and the first one forgotten: not if a series keeps what it
    /// found.
    fn can_repeat(&self) -> bool {
        true
    }

    /// What the decision cache has done so far. None if there is none.
    fn lookups(&self) -> Lookups {
        Lookups::default()
    }
}

/// A series that is batch after batch of the same.
pub(crate) trait Batches {
    /// What it is called in the table.
    fn name(&self) -> String;

    /// Handles a batch of packets. Only what lies between [`Stopwatch::start`] and [`Stopwatch::stop`]
    /// counts; returns how many packets that was.
    fn batch(&mut self, stopwatch: &mut Stopwatch<'_>) -> u64;
}

impl<B: Batches> Series for B {
    fn name(&self) -> String {
        Batches::name(self)
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        let effort = Effort { packets: effort.packets / 10, ..effort };
        meter.run(effort, |stopwatch| Ok(self.batch(stopwatch))).map(drop)
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        meter.run(effort, |stopwatch| Ok(self.batch(stopwatch)))
    }
}

/// What the decision cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lookups {
    /// Packets whose decision was remembered.
    pub hits: u64,
    /// All packets that it might have known.
    pub packets: u64,
    /// Packets decided anew because of a change of the tables.
    pub stale: u64,
}

impl Lookups {
    /// What was done since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(earlier.hits),
            packets: self.packets.saturating_sub(earlier.packets),
            stale: self.stale.saturating_sub(earlier.stale),
        }
    }

    /// These and others.
    pub(crate) fn add(&mut self, others: Self) {
        self.hits += others.hits;
        self.packets += others.packets;
        self.stale += others.stale;
    }

    /// Hits of all lookups, if there were any.
    pub(crate) fn ratio(self) -> Option<f64> {
        (self.packets > 0).then(|| self.hits as f64 / self.packets as f64)
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Cycles of the time-stamp counter that a packet took a worker.
    pub cycles_per_packet: f64,
}

/// Reads the time-stamp counter.
pub(crate) struct Meter {
    clock: Clock,
    ns_per_tick: f64,
}

/// Sums the time between starts and stops.
pub(crate) struct Stopwatch<'a> {
    clock: &'a Clock,
    started: u64,
    ticks: u64,
    total: u64,
}

impl Stopwatch<'_> {
    #[inline]
    pub(crate) fn start(&mut self) {
        self.started = self.clock.raw();
    }

    #[inline]
    pub(crate) fn stop(&mut self) {
        let ticks = self.clock.raw().saturating_sub(self.started);
        self.ticks += ticks;
        self.total += ticks;
    }

    /// Ticks of all that lay between starts and stops, what did not count in the end included.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

impl Meter {
    pub(crate) fn new() -> Self {
        let clock = Clock::new();
        // A long stretch of ticks, so that the scaling's rounding does not show.
        let ns_per_tick = clock.delta_as_nanos(0, 1 << 32) as f64 / (1_u64 << 32) as f64;
        Self { clock, ns_per_tick }
    }

    /// A stopwatch that has seen nothing yet.
    pub(crate) fn stopwatch(&self) -> Stopwatch<'_> {
        Stopwatch { clock: &self.clock, started: 0, ticks: 0, total: 0 }
    }

    /// Nanoseconds between two ticks of the time-stamp counter.
    pub(crate) fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick
    }

    /// Batches until there were packets enough, or time is up. The first few do not count: whatever
    /// ran before has left its own data in the processor's caches. Nor does a stretch in which the
    /// system gave the processor to another thread, unless there are nearly only such.
    ///
    /// # Errors
    /// Those of `batch`.
    pub(crate) fn run(
        &self,
        effort: Effort,
        mut batch: impl FnMut(&mut Stopwatch<'_>) -> anyhow::Result<u64>,
    ) -> anyhow::Result<Sample> {
        let ticks = |time: Duration| (time.as_nanos() as f64 / self.ns_per_tick) as u64;
        let (limit, stretch) = (ticks(effort.longest), ticks(STRETCH));
        let mut stopwatch = self.stopwatch();
        let mut packets = 0;
        while packets < REWARM.min(effort.packets / 4) && stopwatch.ticks < limit / 10 {
            packets += batch(&mut stopwatch)?;
        }
        let (mut sum, mut spoiled) = ((0, 0), 0);
        while sum.1 == 0 || (sum.1 < effort.packets && sum.0 < limit) {
            (stopwatch.ticks, packets) = (0, 0);
            let before = interruptions();
            while packets == 0 || (stopwatch.ticks < stretch && sum.1 + packets < effort.packets) {
                packets += batch(&mut stopwatch)?;
            }
            if interruptions() != before && spoiled < limit.saturating_mul(3) {
                spoiled += stopwatch.ticks;
                continue;
            }
            sum = (sum.0 + stopwatch.ticks, sum.1 + packets);
        }
        Ok(Sample { cycles_per_packet: sum.0 as f64 / sum.1 as f64 })
    }
}

/// How often the system has taken the processor from this thread.
pub(crate) fn interruptions() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

/// What one series cost. Cycles are of the time-stamp counter, which runs at a fixed rate whatever
/// the core's clock does.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cost {
    /// Of all workers together. Median.
    pub mpps: f64,
    /// Of one worker. Median.
    pub ns_per_packet: f64,
    /// Of one worker. Median over the runs.
    pub cycles_per_packet: f64,
    /// The cheapest run.
    pub cycles_min: f64,
    /// The dearest run.
    pub cycles_max: f64,
    /// Packets whose decision was remembered, of all, over the measured runs. None without a
    /// decision cache.
    pub hit_ratio: Option<f64>,
    /// How many runs counted.
    pub runs: usize,
    /// What the core was like in the runs that counted.
    pub core: CoreState,
    /// Ticks of a step of [`CoreMonitor`]'s chains, before or after a run, whichever were more.
    /// Median of the runs that counted; null if nobody looked.
    pub core_ticks: Option<f64>,
    /// How many runs were done again because the core was not alone.
    pub repeated: usize,
}

/// What is looked at as a whole: shorter than the system's time slices.
const STRETCH: Duration = Duration::from_micros(500);

/// Packets at the beginning of a run that do not count.
const REWARM: u64 = 2048;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Runs of each series, interleaved.
    pub runs: usize,
    /// Packets in a run.
    pub packets: u64,
    /// The longest that a run may take, as far as it is measured. What is slow has fewer packets.
    pub longest: Duration,
}

impl Effort {
    pub(crate) const fn new(quick: bool) -> Self {
        if quick {
            Self { runs: 11, packets: 20_000, longest: Duration::from_millis(4) }
        } else {
            Self { runs: 31, packets: 50_000, longest: Duration::from_millis(20) }
        }
    }
}

/// Runs all of `series` in turn, `effort.runs` times, and returns what each cost. A run is repeated
/// if the core was not this thread's alone, so often that all takes twice as long at most.
///
/// # Errors
/// Those of the series.
pub(crate) fn measure(
    meter: &Meter,
    monitor: &CoreMonitor,
    series: &mut [Box<dyn Series + '_>],
    effort: Effort,
    mut done: impl FnMut(),
) -> anyhow::Result<Vec<Cost>> {
    let mut samples: Vec<Vec<Run>> = vec![Vec::with_capacity(effort.runs); series.len()];
    let mut spare = effort.runs * series.len();
    for series in series.iter_mut() {
        series.warm_up(meter, effort)?;
        done();
    }
    let before: Vec<_> = series.iter().map(|series| series.lookups()).collect();
    for _ in 0..effort.runs {
        for (series, samples) in series.iter_mut().zip(&mut samples) {
            let tries = if series.can_repeat() { 1 + spare } else { 1 };
            let run = monitor.steadily(meter, tries, || series.run(meter, effort))?;
            spare -= run.repeated;
            samples.push(Run {
                cycles: run.result.cycles_per_packet,
                looks: run.looks,
                repeated: run.repeated,
            });
            done();
        }
    }
    let costs = series.iter().zip(samples).zip(before).map(|((series, samples), before)| {
        let hit_ratio = series.lookups().since(before).ratio();
        Cost { hit_ratio, ..Cost::of_runs(meter, &samples, monitor.best(), series.workers()) }
    });
    Ok(costs.collect())
}

/// One run, with looks at the core.
#[derive(Clone, Copy, Debug)]
struct Run {
    cycles: f64,
    looks: Looks,
    repeated: usize,
}

/// How often [`measure`] calls `done`.
pub(crate) fn steps(series: usize, effort: Effort) -> u64 {
    (series * (effort.runs + 1)) as u64
}

impl Cost {
    /// From those of the runs that count, if the quickest step of the monitor's chains takes `best`.
    fn of_runs(meter: &Meter, runs: &[Run], best: f64, workers: usize) -> Self {
        let states: Vec<CoreState> = runs.iter().map(|run| run.looks.state(best)).collect();
        let (counts, core) = runs_that_count(&states);
        let counted =
            || runs.iter().zip(&counts).filter(|(_, counts)| **counts).map(|(run, _)| run);
        let mut ticks: Vec<f64> =
            counted().map(|run| run.looks.before.max(run.looks.after)).collect();
        ticks.sort_by(f64::total_cmp);
        Self {
            core,
            core_ticks: Some(percentile(&ticks, 0.5)),
            repeated: runs.iter().map(|run| run.repeated).sum(),
            ..Self::of(meter, counted().map(|run| run.cycles).collect(), workers)
        }
    }

    /// Judges the core again, when a quicker step than any before has been seen since.
    pub(crate) fn judge_again(&mut self, best: f64) {
        if let Some(ticks) = self.core_ticks
            && self.core == CoreState::Alone
        {
            self.core = Looks { before: ticks, after: ticks }.state(best);
        }
    }

    /// From the cycles that a packet took a worker in each run, of which there is at least one.
    pub(crate) fn of(meter: &Meter, mut cycles: Vec<f64>, workers: usize) -> Self {
        cycles.sort_by(f64::total_cmp);
        let cycles_per_packet = percentile(&cycles, 0.5);
        let ns_per_packet = cycles_per_packet * meter.ns_per_tick;
        Self {
            mpps: workers as f64 * 1000.0 / ns_per_packet,
            ns_per_packet,
            cycles_per_packet,
            cycles_min: percentile(&cycles, 0.0),
            cycles_max: percentile(&cycles, 1.0),
            hit_ratio: None,
            runs: cycles.len(),
            core: CoreState::Alone,
            core_ticks: None,
            repeated: 0,
        }
    }
}

/// The smallest of `sorted` that `part` (0 to 1) of them do not exceed; half of them is the median.
/// NaN of nothing.
pub(crate) fn percentile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Costs whatever it is told to, in packets of one batch.
    struct Spin(u64);

    impl Batches for Spin {
        fn name(&self) -> String {
            "spin".to_owned()
        }

        fn batch(&mut self, stopwatch: &mut Stopwatch<'_>) -> u64 {
            stopwatch.start();
            for i in 0..self.0 * 100 {
                std::hint::black_box(i);
            }
            stopwatch.stop();
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
        let effort = Effort { runs: 5, packets: 1000, longest: Duration::from_secs(1) };
        let mut steps_seen = 0;
        let meter = Meter::new();
        let monitor = CoreMonitor::new(&meter, Duration::ZERO);
        let costs = measure(&meter, &monitor, &mut series, effort, || steps_seen += 1).unwrap();
        assert_eq!(steps_seen, steps(2, effort));
        assert!(costs[1].cycles_per_packet > 5.0 * costs[0].cycles_per_packet, "{costs:?}");
        assert!(
            costs
                .iter()
                .all(|cost| cost.cycles_min <= cost.cycles_per_packet
                    && (1..=5).contains(&cost.runs))
        );
        assert!(costs.iter().all(|cost| cost.hit_ratio.is_none()));
    }

    #[test]
    fn a_run_ends_when_its_time_is_up() {
        let effort = Effort { runs: 1, packets: u64::MAX, longest: Duration::from_micros(50) };
        let mut batches = 0;
        let sample = Meter::new()
            .run(effort, |stopwatch| {
                stopwatch.start();
                std::thread::sleep(Duration::from_micros(20));
                stopwatch.stop();
                batches += 1;
                Ok(1)
            })
            .unwrap();
        // How many depends on what else the machine does.
        assert!((1..1000).contains(&batches), "{batches}");
        assert!(sample.cycles_per_packet > 0.0);
    }

    #[test]
    fn only_runs_with_the_core_alone_count_if_there_are_enough() {
        let run = |cycles, before, after| Run {
            cycles,
            looks: Looks { before, after },
            repeated: usize::from(after > 2.0),
        };
        let meter = Meter::new();
        let runs = [run(100.0, 1.6, 1.7), run(150.0, 2.4, 2.5), run(102.0, 1.6, 1.6)];
        let mut cost = Cost::of_runs(&meter, &runs, 1.6, 1);
        assert_eq!((cost.cycles_per_packet, cost.cycles_max, cost.runs), (100.0, 102.0, 2));
        assert_eq!((cost.core, cost.core_ticks, cost.repeated), (CoreState::Alone, Some(1.6), 1));
        cost.judge_again(1.5);
        assert_eq!(cost.core, CoreState::Alone);
        cost.judge_again(1.2);
        assert_eq!(cost.core, CoreState::Shared);
        let cost = Cost::of_runs(&meter, &runs[1..2], 1.6, 1);
        assert_eq!((cost.cycles_per_packet, cost.core), (150.0, CoreState::Shared));
    }

    #[test]
    fn percentiles_are_of_the_values_themselves() {
        let of = |values: &[f64], part| percentile(values, part);
        assert_eq!(of(&[1.0, 2.0, 3.0], 0.5), 2.0);
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.0);
        assert_eq!(of(&[7.0], 0.99), 7.0);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (of(&hundred, 0.0), of(&hundred, 0.5), of(&hundred, 0.99), of(&hundred, 1.0)),
            (1.0, 50.0, 99.0, 100.0)
        );
        assert!(of(&[], 0.5).is_nan());
    }

    #[test]
    fn more_workers_are_faster_together_and_not_each() {
        let meter = Meter::new();
        let (one, two) = (Cost::of(&meter, vec![100.0], 1), Cost::of(&meter, vec![100.0], 2));
        assert_eq!(two.mpps, 2.0 * one.mpps);
        assert_eq!(two.ns_per_packet, one.ns_per_packet);
    }

    #[test]
    fn hit_ratios_are_of_what_was_measured() {
        let before = Lookups { hits: 10, packets: 20, stale: 1 };
        let after = Lookups { hits: 40, packets: 60, stale: 4 };
        assert_eq!(after.since(before), Lookups { hits: 30, packets: 40, stale: 3 });
        assert_eq!(after.since(before).ratio(), Some(0.75));
        assert_eq!(Lookups::default().ratio(), None);
    }
}
