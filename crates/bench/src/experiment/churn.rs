//! `hitpath bench churn`: forwarding while another thread changes policies, or the SAs of a tunnel.

mod change;
mod view;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use esp::Algorithm;
use flow::{Associativity, CacheSettings, CacheTable};
use serde_json::json;
use tables::{Direction, Reader, Tables};
use wire::Spi;

use crate::context::Context;
use crate::dut::{Clear, Dut};
use crate::frame::{Family, Frame};
use crate::measure::{Effort, Lookups, Meter, Sample, Series, percentile};
use crate::row::Row;
use crate::topology::{self, IN, STATION, Tunnel};
use crate::traffic::{Spread, Traffic};
use crate::variant;
use change::{Change, Policies, Rekeys, Requests};
use runtime::affinity;
pub(crate) use view::{charts, render, targets};

const NAME: &str = "churn";

/// Length of every frame.
const FRAME: usize = 64;

/// What rekeys are measured with.
const ALGORITHM: Algorithm = Algorithm::AesGcm128;

/// What is to be measured.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Changes of policies a second: one is deleted, then added again
    #[arg(long, value_delimiter = ',', default_value = "1,100,1000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    changes: Vec<u32>,
    /// How many policies there are
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    policies: u32,
    /// How many flows; each has a policy of its own, and it is those policies that change
    #[arg(long, value_delimiter = ',', default_value = "1000,10000", value_parser = clap::value_parser!(u32).range(1..=500_000))]
    flows: Vec<u32>,
    /// Rekeys a second of the tunnel that the packets take: a new SA comes, the old one goes
    #[arg(long, value_delimiter = ',', default_value = "10,100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rekeys: Vec<u32>,
    /// The decision cache: off, on, or auto
    #[arg(long, default_value = "auto", value_enum)]
    cache: variant::Mode,
    /// Also measure changes by requests that are kept, as the gateway keeps them, in a log in this
    /// directory. It is made with mode 0700; what was in it is replaced
    #[arg(long, value_name = "DIRECTORY")]
    log: Option<PathBuf>,
    /// Milliseconds of a run [default: 1000, quickly 300]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    milliseconds: Option<u32>,
}

/// Policies first, then SAs: each quiet, and with more and more changes a second.
pub(crate) fn run(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let bar = context.bar(2, &format!("{NAME}: {} policies, twice", options.policies));
    let base = change::policies(options.policies)?;
    bar.inc(1);
    let flows: Vec<u32> = options.flows.iter().map(|&flows| flows.min(options.policies)).collect();
    let first = flows.first().copied().unwrap_or(1);
    let mut requests = vec![("by requests", "requests", Requests::new(options.policies, first)?)];
    if let Some(directory) = &options.log {
        let mut kept = Requests::new(options.policies, first)?;
        kept.keep_in(directory)?;
        requests.push(("by requests, kept", "requests-kept", kept));
    }
    bar.finish_and_clear();
    let mut rows = Vec::new();
    for flows in flows {
        // By requests, once is enough.
        rows.extend(policies(context, options, &base, flows, std::mem::take(&mut requests))?);
    }
    rows.extend(rekeys(context, options, first)?);
    Ok(rows)
}

fn policies(
    context: &Context,
    options: &Options,
    base: &Tables,
    flows: u32,
    requests: Vec<(&'static str, &'static str, Requests)>,
) -> anyhow::Result<Vec<Row>> {
    let clear =
        || Clear { frame: frame(), traffic: Traffic::new(flows.into(), Spread::UNIFORM, 1) };
    let churn = |name: String, rate: u32, reader: Reader, change: Option<Box<dyn Change>>| {
        Churn::new(name, reader, rate, change, clear(), context, options)
    };
    let publisher = || change::published(base.clone());
    let mut series =
        vec![(churn("quiet".into(), 0, publisher().shared().reader(), None)?, "tables")];
    for &rate in &options.changes {
        let publisher = publisher();
        let reader = publisher.shared().reader();
        let change: Box<dyn Change> = Box::new(Policies::new(publisher, flows));
        series.push((churn(format!("{rate}/s"), rate, reader, Some(change))?, "tables"));
    }
    for (name, by, requests) in requests {
        let Some(&rate) = options.changes.last() else { continue };
        let reader = requests.shared().reader();
        let change: Box<dyn Change> = Box::new(requests);
        series.push((churn(format!("{rate}/s {name}"), rate, reader, Some(change))?, by));
    }
    measure(context, options, "policy", flows, series)
}

fn rekeys(context: &Context, options: &Options, flows: u32) -> anyhow::Result<Vec<Row>> {
    let tunnel = Tunnel::out(ALGORITHM);
    let mut base = topology::tables(1)?;
    base.add_policy(topology::policy_for_all(Direction::Out, false, 2, tunnel.protect())?)?;
    let mut series = Vec::new();
    for rate in [0].iter().chain(&options.rekeys).copied() {
        let mut tables = base.clone();
        tunnel.add_sa(&mut tables, Spi(change::FIRST_SPI))?;
        let publisher = change::published(tables);
        let reader = publisher.shared().reader();
        let change: Option<Box<dyn Change>> =
            if rate == 0 { None } else { Some(Box::new(Rekeys::new(publisher, tunnel))) };
        let name = if rate == 0 { "quiet".to_owned() } else { format!("{rate}/s") };
        let feed =
            Clear { frame: frame(), traffic: Traffic::new(flows.into(), Spread::UNIFORM, 1) };
        series.push((Churn::new(name, reader, rate, change, feed, context, options)?, "tables"));
    }
    measure(context, options, "rekey", flows, series)
}

fn measure(
    context: &Context,
    options: &Options,
    what: &str,
    flows: u32,
    series: Vec<(Churn, &'static str)>,
) -> anyhow::Result<Vec<Row>> {
    let seen: Vec<_> =
        series.iter().map(|(churn, by)| (Arc::clone(&churn.seen), churn.rate, *by)).collect();
    let mut series: Vec<Box<dyn Series>> =
        series.into_iter().map(|(churn, _)| Box::new(churn) as Box<dyn Series>).collect();
    // A run is as long as there are changes to see, so that there need not be many.
    let runs = if context.quick { 3 } else { 7 };
    let effort = Effort { runs: context.effort.runs.min(runs), ..context.effort };
    let costs = context.measure_with(effort, &format!("{NAME}: {what}"), &mut series)?;
    let rows = series.iter().zip(seen).zip(costs).map(|((series, (seen, rate, by)), cost)| {
        let policies = if what == "policy" { options.policies } else { 1 };
        let parameters = json!({
            "change": what, "changes_per_second": rate, "by": by, "policies": policies, "flows": flows,
            "cache": options.cache.name(), "family": "ipv4", "frame_bytes": FRAME,
        });
        let found = seen.lock().unwrap_or_else(PoisonError::into_inner).found();
        Row::new(NAME, series.name(), parameters, Some(FRAME), cost).with(found)
    });
    Ok(rows.collect())
}

fn frame() -> Frame {
    Frame::new(Family::V4, FRAME, STATION, topology::mac(IN))
}

/// What was seen of the changes.
#[derive(Debug, Default)]
struct Seen {
    microseconds: Vec<f64>,
    /// Packets decided anew because of them.
    stale: u64,
    /// Seconds that the worker has forwarded meanwhile.
    seconds: f64,
    /// Cycles that a packet took the same worker before each run, when nothing changed.
    quiet: Vec<f64>,
}

impl Seen {
    fn found(&self) -> serde_json::Value {
        let mut sorted = self.microseconds.clone();
        sorted.sort_by(f64::total_cmp);
        let mut quiet = self.quiet.clone();
        quiet.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => json!({}),
            changes => json!({
                "changes": changes,
                "made_per_second": changes as f64 / self.seconds,
                "quiet_cycles_per_packet": percentile(&quiet, 0.5),
                "change_us_p50": percentile(&sorted, 0.5),
                "change_us_p99": percentile(&sorted, 0.99),
                "change_us_max": percentile(&sorted, 1.0),
                "misses_per_change": self.stale as f64 / changes as f64,
            }),
        }
    }
}

/// A worker that forwards, and a thread that changes its tables meanwhile.
struct Churn {
    dut: Dut,
    rate: u32,
    change: Option<Box<dyn Change>>,
    long: Duration,
    processor: Option<usize>,
    seen: Arc<Mutex<Seen>>,
}

impl Churn {
    fn new(
        name: String,
        reader: Reader,
        rate: u32,
        change: Option<Box<dyn Change>>,
        feed: Clear,
        context: &Context,
        options: &Options,
    ) -> anyhow::Result<Self> {
        let cache = options.cache.mode().map(|mode| (mode, Associativity::Four));
        let caches =
            variant::caches(cache, &[CacheTable::V4Outbound], CacheSettings::DEFAULT_BUCKETS);
        let dut = Dut::new(name, 0, reader, caches, feed)?;
        let milliseconds = options.milliseconds.unwrap_or(if context.quick { 300 } else { 1000 });
        // The worker runs on the last one.
        let processor =
            context.processors.first().copied().filter(|_| context.processors.len() > 1);
        let long = Duration::from_millis(milliseconds.into());
        Ok(Self { dut, rate, change, long, processor, seen: Arc::default() })
    }
}

impl Series for Churn {
    fn name(&self) -> String {
        self.dut.name()
    }

    /// What the changes took is kept, and cannot be taken back.
    fn can_repeat(&self) -> bool {
        false
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        self.dut.settle(meter, effort)
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        let effort = Effort { packets: u64::MAX, longest: self.long, ..effort };
        let Some(change) = &mut self.change else { return self.dut.run(meter, effort) };
        // Two workers of the same kind differ by where their memory lies; so each is held against
        // itself.
        let quiet = self.dut.run(meter, effort)?.cycles_per_packet;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.quiet.push(quiet);
        let pace = Pace {
            done: AtomicBool::new(false),
            forwarded: AtomicU64::new(0),
            before: Duration::from_secs_f64(seen.seconds),
            made: seen.microseconds.len(),
            every: Duration::from_secs(1) / self.rate,
        };
        let (before, processor, dut) = (self.dut.lookups(), self.processor, &mut self.dut);
        let (sample, changed) = thread::scope(|scope| {
            let pace = &pace;
            let changing = scope.spawn(move || changes(&mut **change, pace, processor));
            let sample = meter.run(effort, |stopwatch| {
                let packets = dut.round(stopwatch)?;
                let nanoseconds = stopwatch.total() as f64 * meter.ns_per_tick();
                pace.forwarded.store(nanoseconds as u64, Ordering::Relaxed);
                Ok(packets)
            });
            pace.done.store(true, Ordering::Relaxed);
            (
                sample,
                changing
                    .join()
                    .unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that changes has ended"))),
            )
        });
        seen.microseconds.extend(changed?);
        seen.seconds = pace.forwarded().as_secs_f64();
        // What the last changes cause comes with the next packets.
        self.dut.run(meter, Effort { packets: 1, ..effort })?;
        seen.stale += self.dut.lookups().since(before).stale;
        sample
    }

    fn lookups(&self) -> Lookups {
        self.dut.lookups()
    }
}

/// When changes are due: by the time that the worker has forwarded, for what it is fed with takes
/// time as well.
struct Pace {
    /// Whether there is to be no more.
    done: AtomicBool,
    /// Nanoseconds forwarded in this run.
    forwarded: AtomicU64,
    /// Time forwarded in the runs before.
    before: Duration,
    /// Changes made in the runs before.
    made: usize,
    /// From one change to the next.
    every: Duration,
}

impl Pace {
    /// Time forwarded so far, in all runs.
    fn forwarded(&self) -> Duration {
        self.before + Duration::from_nanos(self.forwarded.load(Ordering::Relaxed))
    }
}

/// Makes changes until it is done, the very first at once. Returns how many microseconds each took.
fn changes(
    change: &mut dyn Change,
    pace: &Pace,
    processor: Option<usize>,
) -> anyhow::Result<Vec<f64>> {
    if let Some(processor) = processor {
        affinity::pin(processor)?;
    }
    let mut took = Vec::new();
    loop {
        let due = pace.every * (pace.made + took.len()) as u32;
        loop {
            // A run too short for its first change has that one nevertheless.
            if pace.done.load(Ordering::Relaxed) && pace.made + took.len() > 0 {
                return Ok(took);
            }
            let early = due.saturating_sub(pace.forwarded());
            if early.is_zero() {
                break;
            }
            // In short naps, so that the end is not slept through.
            thread::sleep(early.min(Duration::from_millis(5)));
        }
        let start = Instant::now();
        change.change()?;
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_made_and_seen_and_no_packet_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let options = Options {
            changes: vec![1, 1000],
            policies: 50,
            flows: vec![20, 10],
            rekeys: vec![100],
            cache: variant::Mode::Auto,
            log: Some(log.clone()),
            milliseconds: Some(5),
        };
        let rows = run(&Context::tiny(), &options).unwrap();
        let named: Vec<(String, &str)> =
            rows.iter().map(|row| (row.text("change"), row.series.as_str())).collect();
        let expected = [
            ("policy", "quiet"),
            ("policy", "1/s"),
            ("policy", "1000/s"),
            ("policy", "1000/s by requests"),
            ("policy", "1000/s by requests, kept"),
            ("policy", "quiet"),
            ("policy", "1/s"),
            ("policy", "1000/s"),
            ("rekey", "quiet"),
            ("rekey", "100/s"),
        ];
        assert_eq!(named, expected.map(|(change, series)| (change.to_owned(), series)));
        for row in rows.iter().filter(|row| row.series != "quiet") {
            assert!(
                row.found("changes").unwrap() >= 1.0 && row.found("change_us_p99").unwrap() > 0.0,
                "{row:?}"
            );
            assert!(row.found("change_us_p50") <= row.found("change_us_p99"), "{row:?}");
            assert!(
                row.found("made_per_second").unwrap() > 0.0
                    && row.found("quiet_cycles_per_packet").unwrap() > 0.0
            );
        }
        let rows: Vec<&Row> = rows.iter().collect();
        assert!(render(&rows).contains("1000/s by requests"));
    }

    #[test]
    fn as_many_changes_are_made_as_are_due_by_the_time_forwarded() {
        struct Count<'a>(&'a AtomicU64);
        impl Change for Count<'_> {
            fn change(&mut self) -> anyhow::Result<()> {
                self.0.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
        let every = Duration::from_millis(1);
        // Five milliseconds were forwarded before, with five changes; in this run a little more
        // than ten.
        let (before, made) = (5 * every, 5);
        let forwarded = AtomicU64::new(10_100_000);
        let pace = Pace { done: AtomicBool::new(false), forwarded, before, made, every };
        let made = AtomicU64::new(0);
        let took = thread::scope(|scope| {
            let changing = scope.spawn(|| changes(&mut Count(&made), &pace, None));
            while made.load(Ordering::Relaxed) < 11 {
                thread::yield_now();
            }
            // However long it waits: without anything forwarded nothing more is due.
            thread::sleep(Duration::from_millis(20));
            pace.done.store(true, Ordering::Relaxed);
            changing.join().unwrap()
        });
        assert_eq!(took.unwrap().len(), 11);
        assert_eq!(made.into_inner(), 11);
    }
}
