//! `hitpath bench spd-out`: packets that leave, by which policy they match and how many flows they
//! are of.

use esp::Algorithm;
use flow::{CacheSettings, CacheTable};
use serde_json::json;
use tables::{Action, Direction, Tables};
use wire::Spi;

use crate::context::Context;
use crate::dut::{Clear, Dut};
use crate::frame::{Family, Frame};
use crate::measure::Series;
use crate::plot::{Axis, Chart, Line, Scale};
use crate::published::{self, Published};
use crate::row::Row;
use crate::target::Target;
use crate::text::{self, Pivot};
use crate::topology::{self, IN, STATION, Tunnel};
use crate::traffic::{Spread, Traffic};
use crate::variant::VARIANTS;

const NAME: &str = "spd-out";

/// Length of every frame.
const FRAME: usize = 64;

/// What is to be measured.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Which policy the packets match: so many less one do not match before it
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000,100000", value_parser = clap::value_parser!(u32).range(1..=200_000))]
    indexes: Vec<u32>,
    /// How many flows, with the last of --policies matching
    #[arg(long, value_delimiter = ',', default_value = "1,1000,10000,100000,1000000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    flows: Vec<u32>,
    /// How many policies there are while flows are varied
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    policies: u32,
    /// What the policy does: bypass, or esp-null (a tunnel without encryption and without
    /// integrity, as published)
    #[arg(long, value_delimiter = ',', default_value = "bypass,esp-null", value_enum)]
    actions: Vec<MatchAction>,
    /// How many buckets each cache has (the published default)
    #[arg(long, default_value_t = 4_194_304, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    buckets: u32,
    /// Of which family the packets are
    #[arg(long, default_value = "ipv4", value_enum)]
    family: Kind,
}

/// What the matching policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MatchAction {
    /// Forward in clear.
    Bypass,
    /// Into an ESP tunnel that neither encrypts nor authenticates.
    EspNull,
}

/// An address family, as users name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Ipv4,
    Ipv6,
}

impl MatchAction {
    const fn name(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::EspNull => "esp-null",
        }
    }

    fn action(self) -> Action {
        match self {
            Self::Bypass => Action::Bypass,
            Self::EspNull => Tunnel::out(Algorithm::NullWithoutIntegrity).protect(),
        }
    }
}

impl Kind {
    pub(crate) const fn family(self) -> Family {
        match self {
            Self::Ipv4 => Family::V4,
            Self::Ipv6 => Family::V6,
        }
    }
}

/// First by policy index with one flow, then by flows at a fixed number of policies.
pub(crate) fn run(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &action in &options.actions {
        rows.extend(by_index(context, options, action)?);
    }
    if options.actions.contains(&MatchAction::Bypass) {
        rows.extend(by_flows(context, options)?);
    }
    Ok(rows)
}

fn by_index(context: &Context, options: &Options, action: MatchAction) -> anyhow::Result<Vec<Row>> {
    // One flow needs one bucket; a table that is never touched would only take time to make.
    let buckets = options.buckets.min(1 << 12);
    let (mut series, mut parameters): (Vec<Box<dyn Series>>, _) = (Vec::new(), Vec::new());
    for &index in &options.indexes {
        let tables = policies(options.family, action, index)?;
        for variant in VARIANTS {
            let caches = variant.caches(&[outbound(options.family)], buckets);
            series.push(Box::new(Dut::alone(
                variant.name,
                variant.tables(&tables),
                caches,
                feed(options.family, 1),
            )?));
            parameters.push(json!({
                "axis": "index", "action": action.name(), "index": index, "policies": index, "flows": 1,
                "family": options.family.family().name(), "frame_bytes": FRAME, "buckets": buckets,
            }));
        }
    }
    let costs =
        context.measure(&format!("{NAME}, {}, by policy index", action.name()), &mut series)?;
    let rows = series.iter().zip(parameters).zip(costs);
    Ok(rows
        .map(|((series, parameters), cost)| {
            Row::new(NAME, series.name(), parameters, Some(FRAME), cost)
        })
        .collect())
}

fn by_flows(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let tables = policies(options.family, MatchAction::Bypass, options.policies)?;
    let mut rows = Vec::new();
    for &flows in &options.flows {
        let feed = || feed(options.family, flows);
        let plain =
            Dut::alone("no policies", topology::tables(1)?, [CacheSettings::OFF; 4], feed())?;
        let mut series: Vec<Box<dyn Series>> = vec![Box::new(plain)];
        for variant in VARIANTS {
            let caches = variant.caches(&[outbound(options.family)], options.buckets);
            series.push(Box::new(Dut::alone(
                variant.name,
                variant.tables(&tables),
                caches,
                feed(),
            )?));
        }
        let costs = context.measure(&format!("{NAME}, bypass, {flows} flows"), &mut series)?;
        for (series, cost) in series.iter().zip(costs) {
            let parameters = json!({
                "axis": "flows", "action": "bypass", "index": options.policies, "policies": options.policies, "flows": flows,
                "family": options.family.family().name(), "frame_bytes": FRAME, "buckets": options.buckets,
            });
            rows.push(Row::new(NAME, series.name(), parameters, Some(FRAME), cost));
        }
    }
    Ok(rows)
}

/// Tables whose policy number `index`, the last, is the first that matches.
fn policies(family: Kind, action: MatchAction, index: u32) -> anyhow::Result<Tables> {
    let v6 = family == Kind::Ipv6;
    let mut tables = topology::tables(1)?;
    if action == MatchAction::EspNull {
        Tunnel::out(Algorithm::NullWithoutIntegrity).add_sa(&mut tables, Spi(0x1000))?;
    }
    topology::add_unmatched_policies(
        &mut tables,
        Direction::Out,
        v6,
        index as usize - 1,
        Action::Bypass,
    )?;
    tables.add_policy(topology::policy_for_all(Direction::Out, v6, 2, action.action())?)?;
    Ok(tables)
}

fn outbound(family: Kind) -> CacheTable {
    match family {
        Kind::Ipv4 => CacheTable::V4Outbound,
        Kind::Ipv6 => CacheTable::V6Outbound,
    }
}

fn feed(family: Kind, flows: u32) -> Clear {
    let traffic = Traffic::new(flows.into(), Spread::UNIFORM, 1);
    Clear { frame: Frame::new(family.family(), FRAME, STATION, topology::mac(IN)), traffic }
}

fn on_axis<'a>(rows: &[&'a Row], axis: &str, action: &str) -> Vec<&'a Row> {
    rows.iter()
        .copied()
        .filter(|row| row.text("axis") == axis && row.text("action") == action)
        .collect()
}

/// The published table, and ours in the same shape; then cycles, and then by flows.
pub(crate) fn render(rows: &[&Row]) -> String {
    let mut out = String::new();
    let by_index = Pivot { column: "index", heading: "policy", by: &["action"] };
    for action in text::values(rows, "action") {
        let rows = on_axis(rows, "index", &action);
        let columns = text::values(&rows, "index");
        let published: &[Published] = if action == "esp-null" { &published::SPD_OUT } else { &[] };
        let published = published.iter().map(|published| published.line(&columns, 2)).collect();
        out += &text::title(&format!(
            "spd-out, {action}: Mpps by matching policy index, one flow, {FRAME} bytes"
        ));
        out += &by_index.render(&rows, text::mpps, published);
        out += &text::title(&format!("spd-out, {action}: cycles per packet, median (least-most)"));
        out += &by_index.render(&rows, text::cycles, Vec::new());
    }
    let rows = on_axis(rows, "flows", "bypass");
    if let Some(first) = rows.first() {
        let by_flows = Pivot { column: "flows", heading: "flows", by: &["action"] };
        let columns = text::values(&rows, "flows");
        let published =
            published::SPD_OUT_FLOWS.iter().map(|published| published.line(&columns, 2)).collect();
        let policies = text::grouped(&first.text("policies"));
        out += &text::title(&format!(
            "spd-out, bypass: cycles per packet by flows, {policies} policies"
        ));
        out += &by_flows.render(&rows, text::cycles, published);
        out += &text::title("spd-out, bypass: hits of all packets by flows");
        out += &by_flows.render(&rows, text::hits, Vec::new());
    }
    out
}

/// Mpps by index for each action, and cycles by flows beside VPP's.
pub(crate) fn charts(rows: &[&Row]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for action in text::values(rows, "action") {
        let rows = on_axis(rows, "index", &action);
        if rows.is_empty() {
            continue;
        }
        let mut lines = Line::by_series(&rows, "index", |row| row.cost.mpps);
        if action == "esp-null" {
            lines.extend(
                published::SPD_OUT[4..]
                    .iter()
                    .map(|published| Line::published(published, "VPP 2021, ")),
            );
        }
        charts.push(Chart {
            name: format!("spd-out-{action}"),
            title: format!("Outbound policies, {action}, one flow, {FRAME} bytes"),
            x: Axis::new("index of the policy that matches", Scale::Log),
            y: Axis::new("Mpps", Scale::Log),
            lines,
        });
    }
    let rows = on_axis(rows, "flows", "bypass");
    if !rows.is_empty() {
        let mut lines = Line::by_series(&rows, "flows", |row| row.cost.cycles_per_packet);
        lines.extend(
            published::SPD_OUT_FLOWS[..2].iter().map(|published| Line::published(published, "")),
        );
        charts.push(Chart {
            name: "spd-out-flows".to_owned(),
            title: "Outbound SPD, bypass, by number of flows".to_owned(),
            x: Axis::new("flows", Scale::Log),
            y: Axis::new("cycles per packet", Scale::Log),
            lines,
        });
    }
    charts
}

/// What is to be reached of the cache and of the fast lookup, and beside VPP.
pub(crate) fn targets(rows: &[&Row]) -> Vec<Target> {
    let cycles = |axis: &str, action: &str, series: &str, parameter: &str, value: f64| {
        let rows = on_axis(rows, axis, action);
        let row = rows
            .into_iter()
            .find(|row| row.series == series && row.number(parameter) == Some(value))?;
        Some(row.cost.cycles_per_packet)
    };
    let mut targets = Vec::new();
    for action in ["bypass", "esp-null"] {
        let at = |series, index| cycles("index", action, series, "index", index);
        if let (Some(linear), Some(cached)) = (at("linear", 1.0), at("fast+cache", 1.0)) {
            let what =
                format!("spd-out, {action}: speed with cache at index 1, of linear without cache");
            targets.push(Target::at_least(what, linear / cached, 1.0));
        }
        if let (Some(first), Some(last)) = (at("fast+cache", 1.0), at("fast+cache", 100_000.0)) {
            let what =
                format!("spd-out, {action}: cost with cache at index 100,000, of that at index 1");
            targets.push(Target::at_most(what, last / first, 1.03));
        }
    }
    let wanted: [(f64, &str, f64); 3] =
        [(10.0, "10", 0.97), (1000.0, "1,000", 5.0), (10_000.0, "10,000", 50.0)];
    for (index, text, wanted) in wanted {
        let at = |series| cycles("index", "bypass", series, "index", index);
        if let (Some(linear), Some(fast)) = (at("linear"), at("fast")) {
            let what =
                format!("spd-out, bypass: speed of fast at index {text}, of linear, whole way");
            targets.push(Target::at_least(what, linear / fast, wanted));
        }
    }
    for (flows, text, wanted) in [(1.0, "1 flow", 106.5), (1e6, "1 M flows", 160.0)] {
        // Only of the same work.
        let same = |row: &&Row| row.text("policies") == "1000" && row.text("family") == "ipv4";
        let all_same = on_axis(rows, "flows", "bypass").iter().all(same);
        if let Some(ours) =
            cycles("flows", "bypass", "fast+cache", "flows", flows).filter(|_| all_same)
        {
            let what = format!("spd-out, bypass, 1,000 policies: cycles per packet at {text}");
            targets.push(Target::at_most(what, ours, wanted));
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(family: Kind) -> Options {
        Options {
            indexes: vec![1, 30],
            flows: vec![1, 50],
            policies: 40,
            actions: vec![MatchAction::Bypass, MatchAction::EspNull],
            buckets: 64,
            family,
        }
    }

    #[test]
    fn each_packet_is_counted_by_the_policy_of_the_index_that_it_should_match() {
        for family in [Kind::Ipv4, Kind::Ipv6] {
            for action in [MatchAction::Bypass, MatchAction::EspNull] {
                let base = policies(family, action, 1000).unwrap();
                for variant in VARIANTS {
                    let tables = variant.tables(&base);
                    let caches = variant.caches(&[outbound(family)], 64);
                    let counts = || -> Vec<u64> {
                        let policies =
                            tables.vrf(wire::VrfId::MAIN).unwrap().spd.policies(Direction::Out);
                        policies.map(|policy| policy.counters.read().0).collect()
                    };
                    let before = counts();
                    let mut dut =
                        Dut::alone(variant.name, tables.clone(), caches, feed(family, 10)).unwrap();
                    dut.round(&mut Context::tiny().meter.stopwatch()).unwrap();
                    assert_eq!(
                        (before.len(), counts()[999] - before[999]),
                        (1000, 256),
                        "{variant:?}"
                    );
                    assert!(counts()[..999].iter().all(|count| *count == 0));
                    let encrypted = if action == MatchAction::EspNull { 256 } else { 0 };
                    let statistics = dut.worker().statistics();
                    assert_eq!(
                        (statistics.encrypted.read(), statistics.drops.total()),
                        (encrypted, 0)
                    );
                }
            }
        }
    }

    #[test]
    fn there_is_a_row_for_each_series_and_place() {
        let rows = run(&Context::tiny(), &options(Kind::Ipv4)).unwrap();
        assert_eq!(rows.len(), 2 * 2 * 4 + 2 * 5);
        let rows: Vec<&Row> = rows.iter().collect();
        assert!(rows.iter().all(|row| row.cost.mpps > 0.0 && row.gbps.is_some()));
        let text = render(&rows);
        assert!(
            text.contains("Neoverse N1")
                && text.contains("VPP, Zen 3")
                && text.contains("fast+cache"),
            "{text}"
        );
        let charts = charts(&rows);
        assert_eq!(
            charts.iter().map(|chart| &*chart.name).collect::<Vec<_>>(),
            ["spd-out-bypass", "spd-out-esp-null", "spd-out-flows"]
        );
        assert_eq!(charts[0].lines.len(), 4);
        assert!(charts[0].lines.iter().all(|line| line.points.len() == 2));
    }

    #[test]
    fn targets_are_ratios_of_what_was_measured() {
        let meter = crate::measure::Meter::new();
        let row = |series: &str, axis: &str, index: u32, flows: u32, cycles: f64| {
            let cost = crate::measure::Cost::of(&meter, vec![cycles], 1);
            let parameters = json!({
                "axis": axis, "action": "bypass", "index": index, "policies": index, "flows": flows, "family": "ipv4",
            });
            Row::new(NAME, series.to_owned(), parameters, Some(FRAME), cost)
        };
        let rows = [
            row("linear", "index", 1, 1, 100.0),
            row("fast+cache", "index", 1, 1, 80.0),
            row("fast+cache", "index", 100_000, 1, 88.0),
            row("linear", "index", 10_000, 1, 6000.0),
            row("fast", "index", 10_000, 1, 100.0),
            row("fast+cache", "flows", 1000, 1_000_000, 150.0),
        ];
        let targets = targets(&rows.iter().collect::<Vec<_>>());
        let found: Vec<(f64, bool)> =
            targets.iter().map(|target| (target.found, target.reached)).collect();
        assert_eq!(found, [(1.25, true), (1.1, false), (60.0, true), (150.0, true)]);
    }
}
