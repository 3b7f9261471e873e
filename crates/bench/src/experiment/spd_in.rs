//! `hitpath bench spd-in`: packets that come in by a tunnel, by which inbound policy they match
//! once they are decrypted.

use esp::Algorithm;
use flow::CacheTable;
use serde_json::json;
use tables::{Direction, Tables};
use wire::Spi;

use crate::context::Context;
use crate::dut::Dut;
use crate::frame::{Family, Frame};
use crate::measure::Series;
use crate::plot::{Axis, Chart, Line, Scale};
use crate::published;
use crate::row::Row;
use crate::sealed::Sealed;
use crate::target::Target;
use crate::text::{self, Pivot};
use crate::topology::{self, IN, STATION, Tunnel};
use crate::traffic::{Spread, Traffic};
use crate::variant::VARIANTS;

const NAME: &str = "spd-in";

/// Length of an inner packet's frame: sealed, it has the published 94 bytes.
const FRAME: usize = 64;

/// As published: the cost of decryption would hide that of the policies.
const ALGORITHM: Algorithm = Algorithm::NullWithoutIntegrity;

const SPI: Spi = Spi(0x1000);

/// What is to be measured.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Which policy the packets match: so many less one do not match before it
    #[arg(long, value_delimiter = ',', default_value = "2,10,100,1000,10000,100000", value_parser = clap::value_parser!(u32).range(1..=200_000))]
    indexes: Vec<u32>,
    /// How many flows are inside the tunnel
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    flows: u32,
    /// How many buckets each cache has
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    buckets: u32,
}

/// By the index of the policy that the decrypted packets match.
pub(crate) fn run(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let (mut series, mut rows): (Vec<Box<dyn Series>>, Vec<_>) = (Vec::new(), Vec::new());
    for &index in &options.indexes {
        for variant in VARIANTS {
            // Each has an SA of its own, and with it a replay window.
            let tables = variant.tables(&policies(index)?);
            let caches = variant.caches(&[CacheTable::V4Inbound], options.buckets);
            let feed = feed(options.flows)?;
            let bytes = feed.length();
            series.push(Box::new(Dut::alone(variant.name, tables, caches, feed)?));
            let parameters = json!({
                "index": index, "policies": index, "flows": options.flows, "algorithm": ALGORITHM.to_string(),
                "family": "ipv4", "frame_bytes": bytes, "buckets": options.buckets,
            });
            rows.push((parameters, bytes));
        }
    }
    let costs = context.measure(&format!("{NAME}, by policy index"), &mut series)?;
    let rows = series.iter().zip(rows).zip(costs);
    Ok(rows
        .map(|((series, (parameters, bytes)), cost)| {
            Row::new(NAME, series.name(), parameters, Some(bytes), cost)
        })
        .collect())
}

/// Tables whose inbound policy number `index`, the last, is the first that matches.
fn policies(index: u32) -> anyhow::Result<Tables> {
    let tunnel = Tunnel::inward(ALGORITHM);
    let mut tables = topology::tables(1)?;
    tunnel.add_sa(&mut tables, SPI)?;
    topology::add_unmatched_policies(
        &mut tables,
        Direction::In,
        false,
        index as usize - 1,
        tunnel.protect(),
    )?;
    tables.add_policy(topology::policy_for_all(Direction::In, false, 2, tunnel.protect())?)?;
    Ok(tables)
}

fn feed(flows: u32) -> anyhow::Result<Sealed> {
    let traffic = Traffic::new(flows.into(), Spread::UNIFORM, 1);
    let frame = Frame::new(Family::V4, FRAME, STATION, topology::mac(IN));
    Sealed::new(frame, traffic, Tunnel::inward(ALGORITHM), SPI)
}

/// The published table in Mbit/s, ours in the same shape, and cycles.
pub(crate) fn render(rows: &[&Row]) -> String {
    let pivot = Pivot { column: "index", heading: "policy", by: &["algorithm"] };
    let columns = text::values(rows, "index");
    let published = published::SPD_IN.iter().map(|published| published.line(&columns, 2)).collect();
    let megabits = |row: &Row| format!("{:.0}", 1000.0 * row.gbps.unwrap_or_default());
    let bytes = rows.first().map(|row| row.text("frame_bytes")).unwrap_or_default();
    text::title(&format!(
        "spd-in: Mbit/s by matching policy index, decrypt then inbound policy, {bytes} bytes"
    )) + &pivot.render(rows, megabits, published)
        + &text::title("spd-in: cycles per packet, median (least-most)")
        + &pivot.render(rows, text::cycles, Vec::new())
}

/// Mbit/s by index, beside the published.
pub(crate) fn charts(rows: &[&Row]) -> Vec<Chart> {
    let mut lines = Line::by_series(rows, "index", |row| 1000.0 * row.gbps.unwrap_or_default());
    lines
        .extend(published::SPD_IN.iter().map(|published| Line::published(published, "VPP 2022, ")));
    vec![Chart {
        name: NAME.to_owned(),
        title: "Inbound policies, after decryption".to_owned(),
        x: Axis::new("index of the policy that matches", Scale::Log),
        y: Axis::new("Mbit/s", Scale::Log),
        lines,
    }]
}

/// The cache keeps far policies as near as the first.
pub(crate) fn targets(rows: &[&Row]) -> Vec<Target> {
    let cycles = |series: &str, index: f64| {
        let row =
            rows.iter().find(|row| row.series == series && row.number("index") == Some(index))?;
        Some(row.cost.cycles_per_packet)
    };
    let mut targets = Vec::new();
    if let (Some(linear), Some(cached)) = (cycles("linear", 2.0), cycles("fast+cache", 2.0)) {
        let what = "spd-in: speed with cache at index 2, of linear without cache";
        targets.push(Target::at_least(what, linear / cached, 1.0));
    }
    if let (Some(near), Some(far)) = (cycles("fast+cache", 2.0), cycles("fast+cache", 100_000.0)) {
        let what = "spd-in: cost with cache at index 100,000, of that at index 2";
        targets.push(Target::at_most(what, far / near, 1.03));
    }
    targets
}

#[cfg(test)]
mod tests {
    use wire::VrfId;

    use super::*;

    #[test]
    fn each_packet_is_decrypted_and_counted_by_the_policy_of_its_index() {
        for variant in VARIANTS {
            let tables = variant.tables(&policies(300).unwrap());
            let caches = variant.caches(&[CacheTable::V4Inbound], 64);
            let mut dut =
                Dut::alone(variant.name, tables.clone(), caches, feed(10).unwrap()).unwrap();
            for _ in 0..3 {
                dut.round(&mut Context::tiny().meter.stopwatch()).unwrap();
            }
            let policies = tables.vrf(VrfId::MAIN).unwrap().spd.policies(Direction::In);
            let counts: Vec<u64> = policies.map(|policy| policy.counters.read().0).collect();
            assert_eq!((counts.len(), counts[299]), (300, 3 * 256), "{variant:?}");
            assert!(counts[..299].iter().all(|count| *count == 0));
            let statistics = dut.worker().statistics();
            assert_eq!((statistics.decrypted.read(), statistics.drops.total()), (3 * 256, 0));
        }
    }

    #[test]
    fn there_is_a_row_for_each_series_and_index_of_the_published_length() {
        let options = Options { indexes: vec![2, 1000], flows: 1, buckets: 64 };
        let rows = run(&Context::tiny(), &options).unwrap();
        let rows: Vec<&Row> = rows.iter().collect();
        assert_eq!(rows.len(), 8);
        assert!(rows.iter().all(|row| row.number("frame_bytes") == Some(94.0)));
        assert!(render(&rows).contains("| ThunderX2"), "{}", render(&rows));
        assert_eq!((charts(&rows)[0].lines.len(), targets(&rows).len()), (6, 1));
    }
}
