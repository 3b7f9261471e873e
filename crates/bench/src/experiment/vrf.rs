//! `hitpath bench vrf`: what a VRF costs, and what is switched on for one, of the same traffic
//! without a VRF; and what many VRFs and VLANs cost of one.

mod count;
mod device;
mod frames;
mod layout;
mod setup;
mod view;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::context::Context;
use crate::frame::Family;
use crate::measure::{Cost, Lookups};
use crate::pairs::{Compared, Pairs, Which};
use crate::row::Row;
use crate::variant::Mode;
use count::Count;
use device::{Device, Pattern, Workload};
use frames::{Transport, Use, packet_length};
use setup::{Configuration, Setup};
pub(crate) use view::{charts, render, targets};

use super::spd_out::Kind;

const NAME: &str = "vrf";

/// Entries of the decision cache: more than flows have decisions.
const BUCKETS: u32 = 1 << 18;

/// How many workers, and gateways, are made for the pairs of a row, one after the other: by where
/// their memory lies, they differ.
const INSTANCES: usize = 3;

/// What is to be measured.
///
/// Each row is one gateway held against another one, in pairs of short runs, A B, B A, of the same
/// worker, whose tables are exchanged. A figure is the speed of the second of the first: 1.000 is
/// as fast, 0.950 is 5 % slower. Behind it stand the bounds of its 95 % interval.
///
/// features: a VRF, and what is switched on for it, of no VRF.
/// vrfs: flows spread over many VRFs of --routes routes each, of one VRF with as many flows and
/// routes (of a table's 2,097,152 at most) and the same VLANs.
/// vlans: flows spread over many VLANs of each port, of one VLAN.
///
/// A target is reached if the interval is not wholly below it, over at least 30 pairs in one
/// state of the core (3 times --pairs are tried). If the interval is wider than 0.02 and has the
/// target in it, instructions decide, which callgrind counts if valgrind is there.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hitpath bench vrf --quick --rows features                  a VRF and its features, a minute
  hitpath bench vrf --traffic tcp-rr --families ipv6 --configurations defaults,detour
  hitpath bench vrf --rows vrfs,vlans --vrfs 4000 --cache on --pairs 100
  hitpath bench vrf --strict --json vrf.json --plot plots    everything; 1 if a target is missed")]
pub(crate) struct Options {
    /// Which rows
    #[arg(long, value_delimiter = ',', default_value = "features,vrfs,vlans", value_enum)]
    rows: Vec<Rows>,
    /// What traffic: full segments with acknowledgements coming back, or one request and its
    /// response at a time; UDP has TCP's lengths
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "tcp-stream,tcp-rr,udp-stream,udp-rr",
        value_enum
    )]
    traffic: Vec<Shape>,
    /// Of which families the packets are
    #[arg(long, value_delimiter = ',', default_value = "ipv4,ipv6", value_enum)]
    families: Vec<Kind>,
    /// What is held against no VRF [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    configurations: Vec<Configuration>,
    /// How many VRFs are held against one [default: 100,4000, quickly 100]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2..=4000))]
    vrfs: Vec<u16>,
    /// How many VLANs are held against one
    #[arg(long, value_delimiter = ',', default_value = "4000", value_parser = clap::value_parser!(u16).range(2..=4000))]
    vlans: Vec<u16>,
    /// The decision cache: off, on, or auto [default: off,on,auto, quickly auto]
    #[arg(long, value_delimiter = ',', value_enum)]
    cache: Vec<Mode>,
    /// How many flows with one VRF
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    flows: u32,
    /// How many flows over many VRFs or VLANs
    #[arg(long, default_value_t = 16_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    many_flows: u32,
    /// How many routes a VRF has, half of them to each side
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    routes: u32,
    /// With others: a round of the flows with features comes before one of so many of those
    /// without; 0 is never
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    others_every: u32,
    /// How many pairs of runs in one state of the core; fewer than 30 are no verdict
    #[arg(long, default_value_t = 36, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pairs: u32,
    /// For which rows instructions are counted, by valgrind's callgrind
    #[arg(long, default_value = "wide", value_enum)]
    instructions: Counted,
    /// One gateway of the first row, a few rounds for callgrind, and nothing else
    #[arg(long, hide = true, value_enum)]
    only: Option<Only>,
}

/// Kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Rows {
    Features,
    Vrfs,
    Vlans,
}

/// What the packets are, and how they follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shape {
    TcpStream,
    TcpRr,
    UdpStream,
    UdpRr,
}

/// For which rows instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Counted {
    /// None
    None,
    /// Those whose interval is wide and has the target in it
    Wide,
    /// All
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    Base,
    This,
}

impl Rows {
    const fn name(self) -> &'static str {
        match self {
            Self::Features => "features",
            Self::Vrfs => "vrfs",
            Self::Vlans => "vlans",
        }
    }
}

impl Shape {
    const fn name(self) -> &'static str {
        match self {
            Self::TcpStream => "tcp-stream",
            Self::TcpRr => "tcp-rr",
            Self::UdpStream => "udp-stream",
            Self::UdpRr => "udp-rr",
        }
    }

    const fn workload(self, family: Family, flows: u32, others_every: u64) -> Workload {
        let (pattern, transport) = match self {
            Self::TcpStream => (Pattern::Stream, Transport::Tcp),
            Self::TcpRr => (Pattern::Rr, Transport::Tcp),
            Self::UdpStream => (Pattern::Stream, Transport::Udp),
            Self::UdpRr => (Pattern::Rr, Transport::Udp),
        };
        Workload { pattern, transport, family, flows, others_every }
    }
}

/// Two gateways to be compared.
struct Comparison {
    rows: Rows,
    series: String,
    /// As in `--configurations`; empty with many VRFs or VLANs.
    configuration: String,
    wanted: Option<f64>,
    /// VRFs and VLANs of the second gateway.
    vrfs: u16,
    vlans: u16,
    setups: [Setup; 2],
}

/// What all comparisons of a table's line have in common.
#[derive(Clone, Copy)]
struct Line {
    shape: Shape,
    kind: Kind,
    cache: Mode,
}

/// Features of a VRF, then many VRFs, then many VLANs; for each family, traffic and cache.
pub(crate) fn run(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    if let Some(only) = options.only {
        return run_only(context, options, only).map(|()| Vec::new());
    }
    let mut count = Count::new(options);
    let mut rows = Vec::new();
    for &kind in &options.families {
        let family = kind.family();
        let title = format!("{NAME}, {}: gateways", family.name());
        let bar = context.bar((INSTANCES + 1) as u64, &title);
        let mut features = Vec::new();
        for _ in 0..INSTANCES {
            features.push(features_of(family, options)?);
            bar.inc(1);
        }
        let many = [many_of(context, family, options)?];
        bar.finish_and_clear();
        let usual: &[Mode] =
            if context.quick { &[Mode::Auto] } else { &[Mode::Off, Mode::On, Mode::Auto] };
        for &cache in if options.cache.is_empty() { usual } else { &options.cache } {
            for &shape in &options.traffic {
                let line = Line { shape, kind, cache };
                for (instances, flows) in
                    [(&features[..], options.flows), (&many[..], options.many_flows)]
                {
                    rows.extend(measure(context, options, line, instances, flows, &mut count)?);
                }
            }
        }
    }
    Ok(rows)
}

fn features_of(family: Family, options: &Options) -> anyhow::Result<Vec<Comparison>> {
    let wanted: &[Configuration] = match &options.configurations[..] {
        _ if !options.rows.contains(&Rows::Features) => &[],
        [] => Configuration::value_variants(),
        some => some,
    };
    wanted
        .iter()
        .map(|&configuration| {
            Ok(Comparison {
                rows: Rows::Features,
                series: configuration.name(),
                configuration: configuration.name(),
                wanted: configuration.wanted(),
                vrfs: configuration.vrfs(),
                vlans: 0,
                setups: setup::pair(family, configuration, options.routes)?,
            })
        })
        .collect()
}

fn many_of(
    context: &Context,
    family: Family,
    options: &Options,
) -> anyhow::Result<Vec<Comparison>> {
    let mut all = Vec::new();
    let usual: &[u16] = if context.quick { &[100] } else { &[100, 4000] };
    let vrfs = if options.vrfs.is_empty() { usual } else { &options.vrfs };
    for &vrfs in vrfs.iter().filter(|_| options.rows.contains(&Rows::Vrfs)) {
        all.push(Comparison {
            rows: Rows::Vrfs,
            series: format!("{vrfs} VRFs"),
            configuration: String::new(),
            wanted: Some(0.9),
            vrfs,
            vlans: vrfs,
            setups: setup::one_and_many(family, vrfs, options.routes)?,
        });
    }
    for &vlans in options.vlans.iter().filter(|_| options.rows.contains(&Rows::Vlans)) {
        all.push(Comparison {
            rows: Rows::Vlans,
            series: format!("{vlans} VLANs"),
            configuration: String::new(),
            wanted: Some(0.98),
            vrfs: 1,
            vlans,
            setups: setup::vlans(family, vlans)?,
        });
    }
    Ok(all)
}

/// The rows of a line: every comparison, with several instances of worker and gateways.
fn measure(
    context: &Context,
    options: &Options,
    line: Line,
    instances: &[Vec<Comparison>],
    flows: u32,
    count: &mut Count,
) -> anyhow::Result<Vec<Row>> {
    let Some(first) = instances.first().filter(|first| !first.is_empty()) else {
        return Ok(Vec::new());
    };
    let (family, wanted) = (line.kind.family(), options.pairs as usize);
    let workload = line.shape.workload(family, flows, options.others_every.into());
    let what =
        format!("{NAME}, {} {}, cache {}", line.shape.name(), family.name(), line.cache.name());
    let bar = context.bar((INSTANCES * first.len()) as u64, &what);
    let mut all = vec![(Pairs::default(), Lookups::default()); first.len()];
    let caches = device::caches(family, line.cache.mode(), BUCKETS);
    let device = || Device::new(workload, caches, runtime::clock::ticks);
    for part in 1..=INSTANCES {
        let mut shared = device()?;
        let comparisons = &instances[part % instances.len()];
        for (comparison, (pairs, lookups)) in comparisons.iter().zip(&mut all) {
            let named =
                |error: anyhow::Error| error.context(format!("{what}: {}", comparison.series));
            let mut one = |device: &mut Device, which| {
                let before = device.lookups();
                let sample = device.run(&context.meter, context.effort);
                if which == Which::This {
                    lookups.add(device.lookups().since(before));
                }
                sample
            };
            let wanted = wanted * part / INSTANCES;
            // A cache that adapts would take the loss of thousands of decisions, at each exchange
            // of the tables, for traffic that it is no good for.
            if line.cache == Mode::Auto && comparison.rows != Rows::Features {
                let mut both = [device()?, device()?];
                for (device, setup) in both.iter_mut().zip(&comparison.setups) {
                    device.become_like(setup, &context.meter).map_err(named)?;
                    device.settle(&context.meter, context.effort).map_err(named)?;
                }
                pairs.run(&context.meter, &context.monitor, wanted, |which| {
                    let device = &mut both[which as usize];
                    device.warm_up(&context.meter).map_err(named)?;
                    one(device, which).map_err(named)
                })?;
            } else {
                pairs.run(&context.meter, &context.monitor, wanted, |which| {
                    let setup = &comparison.setups[which as usize];
                    shared.become_like(setup, &context.meter).map_err(named)?;
                    one(&mut shared, which).map_err(named)
                })?;
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let compared = all
        .iter()
        .map(|(pairs, lookups)| (pairs.compared(context.monitor.best(), wanted), *lookups));
    first
        .iter()
        .zip(compared)
        .map(|(comparison, (compared, lookups))| {
            let is_wide = comparison.wanted.is_some_and(|wanted| compared.is_wide(wanted));
            let counted = match options.instructions {
                Counted::None => None,
                Counted::Wide if !is_wide => None,
                Counted::Wide | Counted::All => count.both(context, line, comparison, flows)?,
            };
            let mut row = row(context, options, (line, flows), comparison, &compared, counted);
            row.cost.hit_ratio = lookups.ratio();
            let (name, mark) = (&comparison.series, row.mark());
            let Compared { speed, low, high, .. } = compared;
            context.tell(&format!("{what}: {name} {speed:.3}{mark} ({low:.3} to {high:.3})"));
            Ok(row)
        })
        .collect()
}

fn row(
    context: &Context,
    options: &Options,
    (line, flows): (Line, u32),
    comparison: &Comparison,
    compared: &Compared,
    counted: Option<[f64; 2]>,
) -> Row {
    let [base, this] = &comparison.setups;
    let routes = |setup: &Setup| 2 * setup.layout.half * setup.layout.tenants;
    let parameters = json!({
        "rows": comparison.rows.name(), "traffic": line.shape.name(),
        "family": line.kind.family().name(), "cache": line.cache.name(),
        "configuration": comparison.configuration, "vrfs": comparison.vrfs,
        "vlans": comparison.vlans, "flows": flows, "routes": routes(this),
        "base_routes": routes(base), "pairs": options.pairs,
    });
    let cost = Cost { core: compared.core, ..Cost::of(&context.meter, compared.this.clone(), 1) };
    let bytes = mean_frame(line.shape, line.kind.family());
    let row =
        Row::new(NAME, comparison.series.clone(), parameters, Some(bytes), cost).with(json!({
            "speed": compared.speed, "speed_low": compared.low, "speed_high": compared.high,
            "pairs": compared.pairs, "base_cycles_per_packet": compared.base_cycles,
        }));
    let row = match counted {
        Some([base, this]) => row.and(json!({
            "instructions_per_packet": this, "base_instructions_per_packet": base,
            "instructions_speed": base / this,
        })),
        None => row,
    };
    let Some(wanted) = comparison.wanted else { return row };
    let verdict = compared.verdict(wanted, counted.map(|[base, this]| base / this));
    row.and(verdict_of(wanted, compared.is_wide(wanted), verdict))
}

fn verdict_of(wanted: f64, is_wide: bool, verdict: crate::pairs::Verdict) -> Value {
    use crate::pairs::Verdict::{FallShort, Pass, TooFew};
    let verdict = match verdict {
        Pass => "pass",
        FallShort => "fall short",
        TooFew => "too few pairs",
    };
    json!({ "wanted": wanted, "wide": is_wide, "verdict": verdict })
}

/// Bytes of a frame without tags, on average.
const fn mean_frame(shape: Shape, family: Family) -> usize {
    14 + match shape {
        Shape::TcpStream | Shape::UdpStream => {
            (2 * packet_length(Use::Segment, family) + packet_length(Use::Ack, family)) / 3
        }
        Shape::TcpRr | Shape::UdpRr => packet_length(Use::Message, family),
    }
}

/// For callgrind: one gateway of the first comparison, so many rounds as it knows of.
fn run_only(context: &Context, options: &Options, only: Only) -> anyhow::Result<()> {
    let nothing = || anyhow::anyhow!("--only wants a row, traffic, family and cache");
    let (&kind, &shape) =
        options.families.first().zip(options.traffic.first()).ok_or_else(nothing)?;
    let cache = options.cache.first().ok_or_else(nothing)?;
    let mut all = features_of(kind.family(), options)?;
    let flows = if all.is_empty() { options.many_flows } else { options.flows };
    if all.is_empty() {
        all = many_of(context, kind.family(), options)?;
    }
    let setup = &all.first().ok_or_else(nothing)?.setups[only as usize];
    let workload = shape.workload(kind.family(), flows, options.others_every.into());
    let caches = device::caches(kind.family(), cache.mode(), BUCKETS);
    let mut device = Device::new(workload, caches, count::steady_ticks)?;
    device.become_like(setup, &context.meter)?;
    device.count(count::rounds(workload.pattern), &context.meter)
}

#[cfg(test)]
mod tests;
