//! `hitpath bench conntrack`: the published firewall, both directions, by how many connections there
//! are, with the decision cache off, on and left to itself; the same behind eight tables with a
//! thousand flows; what a packet costs that opens a connection; and what established connections
//! keep of their rate under attack.

mod attack;
mod attacked;
mod established;
mod gateway;
mod lives;
mod openings;
mod pipelines;
mod sender;
mod view;

use flow::{Associativity, CacheMode, CacheSettings};
use packet::{BATCH, Time};
use serde_json::json;
use wire::{ethernet, ipv4};

use self::attack::Attack;
use self::established::Established;
use self::gateway::tables;
use self::lives::Lives;
use self::openings::Opened;
use self::pipelines::Work;
use crate::context::Context;
use crate::measure::Series;
use crate::row::Row;
use crate::variant::Mode;
pub(crate) use view::{charts, render, targets};

const NAME: &str = "conntrack";

/// Length of every frame.
const FRAME: usize = 64;
/// Bytes of data of a TCP segment.
const DATA: usize =
    FRAME - ethernet::HEADER_LENGTH - ipv4::HEADER_LENGTH - wire::tcp::HEADER_LENGTH;
/// When the benches begin.
const START: Time = Time(1_000_000_000);
/// Entries of the published cache.
const PUBLISHED_CACHE: u32 = 8192;

/// What flows a gateway has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Flows {
    /// None: plain forwarding
    Plain,
    /// The published seven flows: what begins on one side may go out and is answered
    Firewall,
    /// The same, and packets are routed
    Routed,
    /// The same, and sources are translated
    Nat,
}

impl Flows {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Firewall => "firewall",
            Self::Routed => "routed",
            Self::Nat => "nat",
        }
    }
}

/// What the connections carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Carried {
    /// Datagrams
    Udp,
    /// Datagrams that nobody answers
    UdpOneWay,
    /// Segments whose sequence numbers go on
    Tcp,
}

impl Carried {
    const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::UdpOneWay => "udp-one-way",
            Self::Tcp => "tcp",
        }
    }
}

/// The decision cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Cache {
    /// None
    Off,
    /// As published: 8,192 places, and every flow is kept
    Published,
    /// Used always
    On,
    /// Used while it pays
    Auto,
}

impl Cache {
    const fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Off => Mode::Off.name(),
            Self::On => Mode::On.name(),
            Self::Auto => Mode::Auto.name(),
        }
    }

    fn settings(self, flows: u32) -> [CacheSettings; 4] {
        // Two flows for each connection, one of each direction, and half as many places again: in a
        // table that is full to the brim, one flow in eight finds none.
        let buckets =
            (3 * flows).next_power_of_two().clamp(CacheSettings::DEFAULT_BUCKETS, 1 << 24);
        let settings = |mode, buckets| {
            let associativity = Associativity::Four;
            [CacheSettings { mode, buckets, associativity }; 4]
        };
        match self {
            Self::Off => [CacheSettings::OFF; 4],
            Self::Published => {
                [CacheSettings {
                    mode: CacheMode::On,
                    buckets: PUBLISHED_CACHE,
                    associativity: Associativity::Direct,
                }; 4]
            }
            Self::On => settings(CacheMode::On, buckets),
            Self::Auto => settings(CacheMode::Auto, buckets),
        }
    }
}

/// Packets after which the tables of a cache that are used if they pay, and do not, are given up.
fn time_to_judge(caches: &[CacheSettings; 4]) -> u64 {
    let tables = caches.iter().filter(|cache| cache.mode == CacheMode::Auto);
    tables.map(CacheSettings::time_to_judge).max().unwrap_or(0)
}

/// What is to be measured.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Which rows
    #[arg(long, value_delimiter = ',', default_value = "connections,pipelines,openings,attacks")]
    rows: Vec<Rows>,
    /// What flows the gateway has
    #[arg(long, value_delimiter = ',', default_value = "firewall,nat")]
    flows: Vec<Flows>,
    /// What the connections carry
    #[arg(long, value_delimiter = ',', default_value = "udp,tcp,udp-one-way")]
    protocols: Vec<Carried>,
    /// How many connections there are [default: 1 to 1000000, quickly 1,1000,100000]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=MOST))]
    connections: Vec<u32>,
    /// The decision cache
    #[arg(long, value_delimiter = ',', default_value = "off,published,on,auto")]
    cache: Vec<Cache>,
    /// One packet in ten is of a connection that begins and ends, too
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    mixed: bool,
    /// What eight tables with 1,000 flows do, and the fewest that do the same
    #[arg(long, value_delimiter = ',', default_value = "plain,nat,zones,zones-nat")]
    pipelines: Vec<Work>,
    /// How many connections are alive while each packet opens another one; 0 leaves that out
    /// [default: 1000000, quickly 100000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=MOST))]
    opened: Option<u32>,
    /// What is measured of connections that begin, and that begin and end
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "firewall,nat,firewall-each,nat-each,tcp,udp"
    )]
    openings: Vec<Opened>,
    /// Under which attacks [default: all]
    #[arg(long, value_delimiter = ',')]
    attacks: Vec<Attack>,
    /// How many connections are established while there is an attack [default: 1000,10000,100000,
    /// quickly 1000,10000]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    attacked: Vec<u32>,
}

/// The most connections that there may be: each may take two places of a table, one in each zone.
const MOST: i64 = 1_800_000;

/// Kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Rows {
    /// Established connections
    Connections,
    /// The same through eight tables with 1,000 flows
    Pipelines,
    /// Connections that begin, and that begin and end
    Openings,
    /// Established connections under attack
    Attacks,
}

/// The rows of each number of connections are measured against each other.
pub(crate) fn run(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let usual: &[u32] = match context.quick {
        true => &[1, 1000, 100_000],
        false => &[1, 10, 100, 1000, 10_000, 100_000, 1_000_000],
    };
    let numbers = if options.connections.is_empty() { usual } else { &options.connections };
    let has = |rows| options.rows.contains(&rows);
    let mut rows = Vec::new();
    for &connections in numbers.iter().filter(|_| has(Rows::Connections)) {
        rows.extend(connections_rows(context, options, connections)?);
    }
    for &connections in numbers.iter().filter(|_| has(Rows::Connections) && options.mixed) {
        // As in the table above; the least that others are measured by is a batch.
        if connections >= BATCH as u32 {
            rows.extend(mixed_rows(context, connections)?);
        }
    }
    for &connections in numbers.iter().filter(|_| has(Rows::Pipelines)) {
        for &work in &options.pipelines {
            rows.extend(pipelines::rows(context, work, &options.cache, connections)?);
        }
    }
    if has(Rows::Openings) {
        rows.extend(opening_rows(context, options)?);
    }
    let usual: &[u32] = if context.quick { &[1000, 10_000] } else { &[1000, 10_000, 100_000] };
    let numbers = if options.attacked.is_empty() { usual } else { &options.attacked };
    let usual: &[Attack] = <Attack as clap::ValueEnum>::value_variants();
    let attacks = if options.attacks.is_empty() { usual } else { &options.attacks };
    for &connections in numbers.iter().filter(|_| has(Rows::Attacks)) {
        for &attack in attacks.iter().filter(|attack| attack.is_possible(connections)) {
            rows.extend(attacked::rows(context, attack, connections)?);
        }
    }
    Ok(rows)
}

fn connections_rows(
    context: &Context,
    options: &Options,
    connections: u32,
) -> anyhow::Result<Vec<Row>> {
    let mut series: Vec<Box<dyn Series>> = Vec::new();
    let mut parameters = Vec::new();
    let mut add = |flows: Flows, carried: Carried, cache: Cache| -> anyhow::Result<()> {
        let name = format!("{}, {}, cache {}", flows.name(), carried.name(), cache.name());
        let tables = tables(flows, connections + connections / 8 + 64)?;
        series.push(Box::new(Established::new(name, tables, carried, cache, connections)?));
        parameters.push(json!({
            "flows": flows.name(),
            "protocol": carried.name(),
            "cache": cache.name(),
            "connections": connections,
            "frame_bytes": FRAME,
        }));
        Ok(())
    };
    add(Flows::Plain, Carried::Udp, Cache::Off)?;
    for &flows in &options.flows {
        for &carried in &options.protocols {
            for &cache in &options.cache {
                add(flows, carried, cache)?;
            }
        }
    }
    let costs = context.measure(&format!("conntrack, {connections}"), &mut series)?;
    let rows = series.iter().zip(parameters).zip(costs);
    Ok(rows
        .map(|((series, parameters), cost)| {
            Row::new(NAME, series.name(), parameters, Some(FRAME), cost)
        })
        .collect())
}

fn mixed_rows(context: &Context, connections: u32) -> anyhow::Result<Vec<Row>> {
    let caches = [Cache::Off, Cache::On, Cache::Auto];
    let mut series: Vec<Box<dyn Series>> = Vec::new();
    for cache in caches {
        series.push(Box::new(Lives::mixed(cache, connections)?));
    }
    let costs = context.measure(&format!("conntrack, mixed, {connections}"), &mut series)?;
    let rows = series.iter().zip(caches).zip(costs);
    Ok(rows
        .map(|((series, cache), cost)| {
            let parameters = json!({
                "flows": "mixed",
                "protocol": "tcp",
                "cache": cache.name(),
                "connections": connections,
                "frame_bytes": FRAME,
            });
            Row::new(NAME, series.name(), parameters, Some(FRAME), cost)
        })
        .collect())
}

fn opening_rows(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let opened = options.opened.unwrap_or(if context.quick { 100_000 } else { 1_000_000 });
    if opened == 0 {
        return Ok(Vec::new());
    }
    let mut series: Vec<Box<dyn Series>> = Vec::new();
    for kind in &options.openings {
        series.push(kind.series(opened)?);
    }
    let costs = context.measure("conntrack, opening", &mut series)?;
    let rows = series.iter().zip(&options.openings).zip(costs);
    Ok(rows
        .map(|((series, kind), cost)| {
            let parameters = json!({
                "flows": kind.flows().name(),
                "cache": "auto",
                "opened": opened,
                "packets": kind.packets(),
                "frame_bytes": FRAME,
            });
            Row::new(NAME, series.name(), parameters, Some(FRAME), cost)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::attacked::Measured;
    use super::*;

    /// A dut fails if a packet is lost; so a row is a proof.
    #[test]
    fn every_packet_of_every_row_is_forwarded() {
        let options = Options {
            rows: Rows::value_variants().to_vec(),
            flows: vec![Flows::Firewall, Flows::Routed, Flows::Nat],
            protocols: Carried::value_variants().to_vec(),
            connections: vec![1, 600],
            cache: vec![Cache::Off, Cache::Published, Cache::On, Cache::Auto],
            mixed: true,
            pipelines: vec![Work::Plain, Work::ZonesNat],
            opened: Some(1000),
            openings: Opened::value_variants().to_vec(),
            attacks: vec![Attack::SynFlood, Attack::Others],
            attacked: vec![500],
        };
        let rows = run(&Context::tiny(), &options).unwrap();
        let (connections, pipelines) = (2 * (1 + 3 * 3 * 4) + 3, 2 * 2 * 2 * 4);
        assert_eq!(rows.len(), connections + pipelines + 6 + 2 * Measured::ALL.len());
        let all: Vec<&Row> = rows.iter().collect();
        let text = render(&all);
        for expected in [
            "nat, tcp, cache auto",
            "nat, udp-one-way, cache on",
            "OVS-DPDK, 2017, udp",
            "8 tables, 1000 flows",
            "SYN flood",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let lines: Vec<_> = charts(&all).iter().map(|chart| chart.lines.len()).collect();
        assert_eq!(lines, [15, 11, 4, 2]);
        assert!(!targets(&all).is_empty());
    }

    /// Packets of connections that nobody answers stay new, and their decision is kept.
    #[test]
    fn what_goes_one_way_hits_the_cache_and_opens_once() {
        for flows in [Flows::Firewall, Flows::Nat] {
            for cache in [Cache::On, Cache::Auto] {
                let tables = tables(flows, 2000).unwrap();
                let connections = tables.connections().unwrap().clone();
                let name = String::new();
                let carried = Carried::UdpOneWay;
                let mut one_way = Established::new(name, tables, carried, cache, 1000).unwrap();
                let context = Context::tiny();
                one_way.warm_up(&context.meter, context.effort).unwrap();
                let before = one_way.lookups();
                let mut stopwatch = context.meter.stopwatch();
                for _ in 0..40 {
                    one_way.round(&mut stopwatch).unwrap();
                }
                let found = one_way.lookups().since(before);
                assert_eq!(
                    (found.hits, found.packets),
                    (40 * 256, 40 * 256),
                    "{flows:?} {cache:?}"
                );
                assert_eq!(connections.counts().made, 1000);
                let unreplied = (0..2000).filter_map(|at| connections.connection(at, START));
                assert!(unreplied.into_iter().all(|connection| !connection.is_replied));
            }
        }
    }
}
