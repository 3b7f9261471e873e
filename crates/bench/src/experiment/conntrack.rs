//! `hitpath bench conntrack`: the published firewall, both directions, by how many connections there
//! are, with the decision cache off, on and left to itself; and what a packet costs that opens a
//! connection.

mod gateway;
mod lives;
mod openings;
mod sender;

use anyhow::ensure;
use flow::{Associativity, CacheMode, CacheSettings};
use io::memory::MemoryHandle;
use packet::{BATCH, Time};
use path::Worker;
use serde_json::json;
use wire::{TcpFlags, ethernet, ipv4};

use self::gateway::{tables, worker};
use self::lives::Lives;
use self::openings::Opened;
use self::sender::Sender;
use crate::context::Context;
use crate::dut::{SETTLING, dropped, lookups};
use crate::measure::{Effort, Lookups, Meter, Sample, Series, Stopwatch};
use crate::plot::{Axis, Chart, Line, Scale};
use crate::published;
use crate::row::Row;
use crate::target::Target;
use crate::text;
use crate::traffic::{Spread, Traffic};
use crate::variant::Mode;

/// Length of every frame.
const FRAME: usize = 64;
/// Bytes of data of a TCP segment.
const DATA: usize =
    FRAME - ethernet::HEADER_LENGTH - ipv4::HEADER_LENGTH - wire::tcp::HEADER_LENGTH;
/// When the benches begin.
const START: Time = Time(1_000_000_000);
/// So much time passes with a batch.
const BATCH_TIME: u64 = 25_600;
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
    /// Eight tables, and what the first two do in the published flows is done in the last two
    Tables,
}

impl Flows {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Firewall => "firewall",
            Self::Routed => "routed",
            Self::Nat => "nat",
            Self::Tables => "tables",
        }
    }
}

/// What the connections carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Carried {
    /// Datagrams
    Udp,
    /// Segments whose sequence numbers go on
    Tcp,
}

impl Carried {
    const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
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

/// What is to be measured.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// What flows the gateway has
    #[arg(long, value_delimiter = ',', default_value = "firewall,nat,tables")]
    flows: Vec<Flows>,
    /// What the connections carry
    #[arg(long, value_delimiter = ',', default_value = "udp,tcp")]
    protocols: Vec<Carried>,
    /// How many connections there are [default: 1 to 1000000, quickly 1,1000,100000]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    connections: Vec<u32>,
    /// The decision cache
    #[arg(long, value_delimiter = ',', default_value = "off,published,on,auto")]
    cache: Vec<Cache>,
    /// One packet in ten is of a connection that begins and ends, too
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    mixed: bool,
    /// How many connections are alive while each packet opens another one; 0 leaves that out
    /// [default: 1000000, quickly 100000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=4_000_000))]
    opened: Option<u32>,
    /// What is measured of connections that begin, and that begin and end
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "firewall,nat,firewall-each,nat-each,tcp,udp"
    )]
    openings: Vec<Opened>,
}

/// The rows of each number of connections are measured against each other.
pub(crate) fn run(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let usual: &[u32] = match context.quick {
        true => &[1, 1000, 100_000],
        false => &[1, 10, 100, 1000, 10_000, 100_000, 1_000_000],
    };
    let numbers = if options.connections.is_empty() { usual } else { &options.connections };
    let mut rows = Vec::new();
    for &connections in numbers {
        let mut series: Vec<Box<dyn Series>> = Vec::new();
        let mut parameters = Vec::new();
        let mut add = |flows: Flows, carried: Carried, cache: Cache| -> anyhow::Result<()> {
            series.push(Box::new(Dut::new(flows, carried, cache, connections)?));
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
        rows.extend(series.iter().zip(parameters).zip(costs).map(
            |((series, parameters), cost)| {
                Row::new("conntrack", series.name(), parameters, Some(FRAME), cost)
            },
        ));
    }
    for &connections in numbers {
        // As in the table above; the least that others are measured by is a batch.
        if !options.mixed || connections < BATCH as u32 {
            continue;
        }
        let caches = [Cache::Off, Cache::On, Cache::Auto];
        let mut series: Vec<Box<dyn Series>> = Vec::new();
        for cache in caches {
            series.push(Box::new(Lives::mixed(cache, connections)?));
        }
        let costs = context.measure(&format!("conntrack, mixed, {connections}"), &mut series)?;
        rows.extend(series.iter().zip(caches).zip(costs).map(|((series, cache), cost)| {
            let parameters = json!({
                "flows": "mixed",
                "protocol": "tcp",
                "cache": cache.name(),
                "connections": connections,
                "frame_bytes": FRAME,
            });
            Row::new("conntrack", series.name(), parameters, Some(FRAME), cost)
        }));
    }
    let opened = options.opened.unwrap_or(if context.quick { 100_000 } else { 1_000_000 });
    if opened > 0 {
        let mut series: Vec<Box<dyn Series>> = Vec::new();
        for kind in &options.openings {
            series.push(kind.series(opened)?);
        }
        let costs = context.measure("conntrack, opening", &mut series)?;
        rows.extend(series.iter().zip(&options.openings).zip(costs).map(
            |((series, kind), cost)| {
                let parameters = json!({
                    "flows": kind.flows().name(),
                    "cache": "auto",
                    "opened": opened,
                    "packets": kind.packets(),
                    "frame_bytes": FRAME,
                });
                Row::new("conntrack", series.name(), parameters, Some(FRAME), cost)
            },
        ));
    }
    Ok(rows)
}

/// The tables, one for each protocol and kind of flows: cycles a packet by connections.
pub(crate) fn render(rows: &[&Row]) -> String {
    let numbers = numbers(rows);
    let mut names: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| row.number("connections").is_some()) {
        if !names.contains(&name(row)) {
            names.push(name(row));
        }
    }
    let cells: Vec<Vec<String>> = names
        .iter()
        .map(|wanted| {
            let of = |number: &f64| {
                let found = rows
                    .iter()
                    .find(|row| row.number("connections") == Some(*number) && name(row) == *wanted);
                found.map_or_else(String::new, |row| {
                    format!("{:.0}{}", row.cost.cycles_per_packet, row.mark())
                })
            };
            [wanted.clone()].into_iter().chain(numbers.iter().map(of)).collect()
        })
        .collect();
    let heads: Vec<String> =
        numbers.iter().map(|number| text::grouped(&number.to_string())).collect();
    let heads: Vec<&str> = ["flows"].into_iter().chain(heads.iter().map(String::as_str)).collect();
    let title = format!(
        "Connections, {FRAME}-byte frames, both directions: cycles a packet by connections"
    );
    let opening: Vec<Vec<String>> = rows
        .iter()
        .filter_map(|row| {
            let alive = row.number("opened")?;
            let packets = row.number("packets")?;
            let each = format!("{:.0}{}", row.cost.cycles_per_packet, row.mark());
            let whole = format!("{:.0}{}", packets * row.cost.cycles_per_packet, row.mark());
            let (alive, packets) = (text::grouped(&alive.to_string()), packets.to_string());
            Some(vec![row.series.clone(), alive, packets, each, whole])
        })
        .collect();
    let mut tables = text::title(&title) + &text::table(&heads, &cells);
    let gains: Vec<Vec<String>> = kinds(rows)
        .into_iter()
        .map(|(flows, protocol)| {
            let of = |number: &f64| {
                let gain = gain(rows, &flows, &protocol, *number);
                gain.map_or_else(String::new, |gain| format!("{gain:.1}"))
            };
            let cells: Vec<String> = numbers.iter().map(of).collect();
            [format!("{flows}, {protocol}")].into_iter().chain(cells).collect()
        })
        .filter(|line: &Vec<String>| line[1..].iter().any(|cell| !cell.is_empty()))
        .collect();
    if !gains.is_empty() {
        let columns: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        let mut published = published::CONNTRACK_GAIN.line(&columns, 2);
        published.splice(..2, [published::CONNTRACK_GAIN.what.to_owned() + ", udp"]);
        let lines: Vec<Vec<String>> = gains.into_iter().chain([published]).collect();
        let title = "How many times as much it costs without the cache as with it";
        tables += &(text::title(title) + &text::table(&heads, &lines));
    }
    match opening.is_empty() {
        true => tables,
        false => {
            let heads = ["connections", "others alive", "packets", "cycles a packet", "in all"];
            tables
                + &text::title("Connections that begin, and that begin and end")
                + &text::table(&heads, &opening)
        }
    }
}

/// By connections: what a packet costs with the cache left to itself, beside VPP; and how many times
/// as much it costs without, beside what was published.
pub(crate) fn charts(rows: &[&Row]) -> Vec<Chart> {
    let chart = |name: &str, title: &str, y: Axis, lines: Vec<Line>| Chart {
        name: name.to_owned(),
        title: title.to_owned(),
        x: Axis::new("connections", Scale::Log),
        y,
        lines,
    };
    let is_shown = |row: &&&Row| matches!(row.text("cache").as_str(), "auto") || is_plain(row);
    let shown: Vec<&Row> = rows.iter().filter(is_shown).copied().collect();
    let mut cycles = Line::by_series(&shown, "connections", |row| row.cost.cycles_per_packet);
    let gains: Vec<Line> = kinds(rows)
        .into_iter()
        .map(|(flows, protocol)| {
            let gain = |number: &f64| Some((*number, gain(rows, &flows, &protocol, *number)?));
            let points = numbers(rows).iter().filter_map(gain).collect();
            Line::ours(format!("{flows}, {protocol}"), points)
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    let mut charts = Vec::new();
    if !cycles.is_empty() {
        cycles.extend(published::CONNTRACK.iter().map(|other| Line::published(other, "")));
        let y = Axis::new("cycles per packet (VPP's: of a counter of 2.0 GHz)", Scale::Linear);
        charts.push(chart("conntrack-cycles", "Established connections, 64 bytes", y, cycles));
    }
    if !gains.is_empty() {
        let published = [Line::published(&published::CONNTRACK_GAIN, "")];
        let lines = gains.into_iter().chain(published).collect();
        let y = Axis::new("cycles without the cache / with it", Scale::Linear);
        charts.push(chart("conntrack-gain", "What the decision cache saves", y, lines));
    }
    charts
}

fn is_plain(row: &Row) -> bool {
    row.text("flows") == Flows::Plain.name()
}

/// The kinds of flows and protocols that were measured.
fn kinds(rows: &[&Row]) -> Vec<(String, String)> {
    let mut kinds = Vec::new();
    for row in rows.iter().filter(|row| !is_plain(row) && row.number("connections").is_some()) {
        let kind = (row.text("flows"), row.text("protocol"));
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

fn found<'r>(
    rows: &[&'r Row],
    flows: &str,
    protocol: &str,
    cache: &str,
    number: f64,
) -> Option<&'r Row> {
    let mut rows = rows.iter().copied();
    rows.find(|row| {
        row.text("flows") == flows
            && row.text("protocol") == protocol
            && row.text("cache") == cache
            && row.number("connections") == Some(number)
    })
}

fn cycles(rows: &[&Row], flows: &str, protocol: &str, cache: &str, number: f64) -> Option<f64> {
    found(rows, flows, protocol, cache, number).map(|row| row.cost.cycles_per_packet)
}

/// How many times as much a packet costs without the cache as with it.
fn gain(rows: &[&Row], flows: &str, protocol: &str, number: f64) -> Option<f64> {
    let of = |cache| cycles(rows, flows, protocol, cache, number);
    Some(of("off")? / of("on")?)
}

/// Never slower than without the cache, TCP near UDP, and what a hit and an opening packet may cost.
pub(crate) fn targets(rows: &[&Row]) -> Vec<Target> {
    let cycles = |flows: &str, protocol: &str, cache: &str, number: f64| {
        cycles(rows, flows, protocol, cache, number)
    };
    let mut targets = Vec::new();
    for number in numbers(rows) {
        let count = text::grouped(&number.to_string());
        for protocol in ["udp", "tcp"] {
            if let (Some(off), Some(auto)) = (
                cycles("firewall", protocol, "off", number),
                cycles("firewall", protocol, "auto", number),
            ) {
                let what = format!("off to auto, {protocol}, {count} connections");
                let wanted = if number >= 1e4 { 1.3 } else { 1.0 };
                targets.push(Target::at_least(what, off / auto, wanted));
            }
        }
        let mixed = |cache| cycles("mixed", "tcp", cache, number);
        if let (Some(off), Some(auto)) = (mixed("off"), mixed("auto")) {
            let what = format!("off to auto, mixed, {count} connections");
            targets.push(Target::at_least(what, off / auto, 0.97));
        }
        if let (Some(udp), Some(tcp)) =
            (cycles("firewall", "udp", "auto", number), cycles("firewall", "tcp", "auto", number))
        {
            let what = format!("UDP to TCP, {count} connections");
            targets.push(Target::at_least(what, udp / tcp, 0.9));
        }
        if let (Some(two), Some(eight)) =
            (cycles("firewall", "udp", "on", number), cycles("tables", "udp", "on", number))
        {
            let what = format!("eight tables to two, {count} connections");
            targets.push(Target::at_most(what, eight / two, 1.05));
        }
        // The peers' figures are of a counter of 2.0 GHz.
        let units = |row: &Row| row.cost.ns_per_packet * 2.0;
        let tcp = found(rows, "firewall", "tcp", "auto", number).map(units);
        if let Some(tcp) = tcp {
            let wanted = match number as u64 {
                0..=1 => 80.0,
                2..=1000 => 85.0,
                1001..=10_000 => 100.0,
                10_001..=100_000 => 150.0,
                _ => 170.0,
            };
            let what = format!("TCP, cycles of 2.0 GHz, {count} connections");
            targets.push(Target::at_most(what, tcp, wanted));
            if let Some(nat) = found(rows, "nat", "tcp", "auto", number).map(units) {
                let what = format!("NAT, more than TCP, {count} connections");
                targets.push(Target::at_most(what, nat - tcp, 20.0));
            }
        }
    }
    // A packet that opens a connection, and whole connections, of 2.0 GHz as above.
    for (kind, wanted) in [
        (Opened::Firewall, 900.0),
        (Opened::Nat, 900.0),
        (Opened::Tcp, 3500.0),
        (Opened::Udp, 1200.0),
    ] {
        let name = kind.name();
        let row = rows.iter().find(|row| row.series == name);
        let cost = row.and_then(|row| Some(row.number("packets")? * row.cost.ns_per_packet * 2.0));
        targets.extend(cost.map(|cost| Target::at_most(format!("{name}, in all"), cost, wanted)));
    }
    targets
}

fn name(row: &Row) -> String {
    match row.text("flows").as_str() {
        "plain" => "plain forwarding".to_owned(),
        flows => format!("{flows}, {}, cache {}", row.text("protocol"), row.text("cache")),
    }
}

fn numbers(rows: &[&Row]) -> Vec<f64> {
    let mut numbers: Vec<f64> = rows.iter().filter_map(|row| row.number("connections")).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    numbers
}

/// A worker between two ports, with packets both ways.
struct Dut {
    name: String,
    worker: Worker,
    ports: [MemoryHandle; 2],
    sender: Sender,
    traffic: Traffic,
    connections: u32,
    is_answer: bool,
    now: Time,
    cached: [bool; 4],
}

impl Dut {
    fn new(flows: Flows, carried: Carried, cache: Cache, connections: u32) -> anyhow::Result<Self> {
        let name = format!("{}, {}, cache {}", flows.name(), carried.name(), cache.name());
        let tables = tables(flows, connections + connections / 8 + 64)?;
        let caches = cache.settings(connections);
        let (mut worker, ports) = worker(tables, caches)?;
        if cache == Cache::Published {
            worker.decide_each();
        }
        let cached = caches.map(|cache| cache.mode != CacheMode::Off);
        let traffic = Traffic::new(connections.into(), Spread::UNIFORM, 1);
        let (sender, is_answer) = (Sender::new(carried, connections), false);
        Ok(Self {
            name,
            worker,
            ports,
            sender,
            traffic,
            connections,
            is_answer,
            now: START,
            cached,
        })
    }

    /// Opens the connections.
    fn open(&mut self) -> anyhow::Result<()> {
        let all: Vec<u64> = (0..self.connections.into()).collect();
        for part in all.chunks(BATCH) {
            let (syn, ack) = (TcpFlags::SYN, TcpFlags::ACK);
            let rounds = match self.sender.carried {
                Carried::Udp => vec![(false, syn), (true, syn), (false, syn)],
                Carried::Tcp => vec![(false, syn), (true, TcpFlags(syn.0 | ack.0)), (false, ack)],
            };
            for (is_answer, flags) in rounds {
                for &number in part {
                    let frame = self.sender.frame(number, is_answer, flags, 0);
                    ensure!(self.ports[usize::from(is_answer)].push(frame), "the port is full");
                }
                self.poll(part.len())?;
                for &number in part {
                    let (ends, out) =
                        (&mut self.sender.ends, &mut self.ports[usize::from(!is_answer)]);
                    let seen = out.pop_with(|frame| {
                        let answered = &frame[ethernet::HEADER_LENGTH..];
                        let mut address = [0; 4];
                        address.copy_from_slice(&answered[12..16]);
                        (address, [answered[20], answered[21]])
                    });
                    ensure!(seen.is_some(), "{}: {}", self.name, dropped(&self.worker));
                    if let Some(seen) = seen.filter(|_| !is_answer) {
                        ends[number as usize].answered = seen;
                    }
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self, count: usize) -> anyhow::Result<()> {
        self.now = Time(self.now.0 + BATCH_TIME);
        let received = self.worker.poll(self.now);
        let received =
            received.map_err(|(port, error)| anyhow::anyhow!("port {}: {error}", port.0))?;
        ensure!(received == count, "of {count} packets {received} were received");
        Ok(())
    }

    fn round(&mut self, stopwatch: &mut Stopwatch<'_>) -> anyhow::Result<u64> {
        let is_answer = self.is_answer;
        self.is_answer = !is_answer;
        for _ in 0..BATCH {
            let number = self.traffic.next_flow();
            let frame = self.sender.frame(number, is_answer, TcpFlags::ACK, DATA);
            ensure!(self.ports[usize::from(is_answer)].push(frame), "the port is full");
        }
        self.now = Time(self.now.0 + BATCH_TIME);
        stopwatch.start();
        let received = self.worker.poll(self.now);
        stopwatch.stop();
        ensure!(received.ok() == Some(BATCH), "not every packet was received");
        let mut sent = 0;
        while self.ports[usize::from(!is_answer)].pop_with(|_| ()).is_some() {
            sent += 1;
        }
        ensure!(sent == BATCH, "{}: {sent} of {BATCH} sent; {}", self.name, dropped(&self.worker));
        Ok(BATCH as u64)
    }
}

impl Series for Dut {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        self.open()?;
        let all = Effort {
            packets: 2 * u64::from(self.connections),
            longest: std::time::Duration::MAX,
            ..effort
        };
        meter.run(all, |stopwatch| self.round(stopwatch))?;
        let long = Effort {
            packets: SETTLING * effort.packets,
            longest: SETTLING as u32 * effort.longest,
            ..effort
        };
        meter.run(long, |stopwatch| self.round(stopwatch))?;
        Ok(())
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        meter.run(effort, |stopwatch| self.round(stopwatch))
    }

    fn lookups(&self) -> Lookups {
        lookups(&self.worker, self.cached)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// A dut fails if a packet is lost; so a row is a proof.
    #[test]
    fn every_packet_of_every_row_is_forwarded() {
        let options = Options {
            flows: vec![Flows::Firewall, Flows::Routed, Flows::Nat, Flows::Tables],
            protocols: vec![Carried::Udp, Carried::Tcp],
            connections: vec![1, 600],
            cache: vec![Cache::Off, Cache::Published, Cache::On, Cache::Auto],
            mixed: true,
            opened: Some(1000),
            openings: Opened::value_variants().to_vec(),
        };
        let rows = run(&Context::tiny(), &options).unwrap();
        assert_eq!(rows.len(), 2 * (1 + 4 * 2 * 4) + 3 + 6);
        let all: Vec<&Row> = rows.iter().collect();
        assert!(render(&all).contains("nat, tcp, cache auto"));
        assert!(render(&all).contains("OVS-DPDK, 2017, udp"));
        assert_eq!(
            charts(&all).iter().map(|chart| chart.lines.len()).collect::<Vec<_>>(),
            [14, 10]
        );
        assert!(!targets(&all).is_empty());
    }
}
