//! How the rows are shown and judged.

use crate::plot::{Axis, Chart, Line, Scale};
use crate::published;
use crate::row::Row;
use crate::target::Target;
use crate::text::{self, Pivot};

/// What a line of flows has in common.
const BY: [&str; 4] = ["algorithm", "frame_bytes", "policies", "traffic"];

/// The published table in Mbit/s by workers, then one worker by flows.
pub(crate) fn render(rows: &[&Row]) -> String {
    let mut out = String::new();
    let with =
        |test: fn(&Row) -> bool| rows.iter().copied().filter(|row| test(row)).collect::<Vec<_>>();
    let tunnels = with(|row| row.text("algorithm") != "bypass" && row.text("traffic") == "uniform");
    if !tunnels.is_empty() {
        let pivot = Pivot {
            column: "workers",
            heading: "workers",
            by: &["algorithm", "frame_bytes", "flows_per_worker"],
        };
        let columns = text::values(&tunnels, "workers");
        let published = published::XFRM.iter().map(|published| {
            let mut line = published.line(&columns, 4);
            // Its labels stand under the algorithm.
            line[0] = format!("aes-cbc-128 hmac-sha1-96, {}", line[2]);
            line[1] = "64".to_owned();
            line[2] = String::new();
            line
        });
        let megabits = |row: &Row| format!("{:.0}", 1000.0 * row.gbps.unwrap_or_default());
        out += &text::title("xfrm: Mbit/s through an ESP tunnel, by workers and flows of each");
        out += &pivot.render(&tunnels, megabits, published.collect());
    }
    let alone = with(|row| row.text("workers") == "1");
    if !alone.is_empty() {
        let pivot = Pivot {
            column: "flows_per_worker",
            heading: "flows",
            by: &["algorithm", "frame_bytes", "policies", "traffic"],
        };
        out += &text::title("xfrm: Mpps of one worker, by flows (new: each packet begins one)");
        out += &pivot.render(&alone, text::mpps, Vec::new());
        out += &text::title("xfrm: cycles per packet of one worker, median (least-most)");
        out += &pivot.render(&alone, text::cycles, Vec::new());
        out += &text::title("xfrm: hits of all packets");
        let cached: Vec<&Row> =
            alone.into_iter().filter(|row| row.cost.hit_ratio.is_some()).collect();
        out += &pivot.render(&cached, text::hits, Vec::new());
    }
    out
}

/// Mpps by flows: a chart for each kind of traffic that was measured with some numbers of them.
pub(crate) fn charts(rows: &[&Row]) -> Vec<Chart> {
    let case = |row: &Row| BY.map(|parameter| row.text(parameter));
    let alone: Vec<&Row> = rows.iter().copied().filter(|row| row.text("workers") == "1").collect();
    let mut seen = Vec::new();
    let mut charts = Vec::new();
    for row in &alone {
        let this = case(row);
        if seen.contains(&this) {
            continue;
        }
        let same: Vec<&Row> = alone.iter().copied().filter(|row| case(row) == this).collect();
        seen.push(this.clone());
        let lines = Line::by_series(&same, "flows_per_worker", |row| row.cost.mpps);
        if lines.iter().any(|line| line.points.len() > 1) {
            let [algorithm, bytes, policies, traffic] = this;
            let plural = if policies == "1" { "policy" } else { "policies" };
            charts.push(Chart {
                name: format!("xfrm-{}-{bytes}-{policies}-{traffic}", algorithm.replace(' ', "-")),
                title: format!(
                    "{algorithm}, {bytes} bytes, {} {plural}, {traffic}",
                    text::grouped(&policies)
                ),
                x: Axis::new("flows of the worker", Scale::Log),
                y: Axis::new("Mpps", Scale::Linear),
                lines,
            });
        }
    }
    charts
}

/// A cache left to itself is hardly worse than none with too many flows, and than one that is
/// always on with few.
pub(crate) fn targets(rows: &[&Row]) -> Vec<Target> {
    let mut targets = Vec::new();
    for auto in rows.iter().filter(|row| row.series == "cache auto") {
        let other = |series: &str| {
            let same = |row: &&&Row| row.series == series && row.parameters == auto.parameters;
            rows.iter().find(same).map(|row| auto.cost.mpps / row.cost.mpps)
        };
        let flows = auto.text("flows_per_worker");
        let against = match (flows.as_str(), auto.text("traffic").as_str()) {
            ("4", "uniform") => "on",
            ("16384" | "1000000" | "10000000", "uniform") | (_, "flood") => "off",
            _ => continue,
        };
        if let Some(ratio) = other(&format!("cache {against}")) {
            let what = format!(
                "xfrm, {}, {} bytes, workers {}, policies {}, {} flows {}: speed of auto, of \
                {against}",
                auto.text("algorithm"),
                auto.text("frame_bytes"),
                auto.text("workers"),
                text::grouped(&auto.text("policies")),
                text::grouped(&flows),
                auto.text("traffic"),
            );
            targets.push(Target::at_least(what, ratio, 0.97));
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::measure::{Cost, Meter};

    fn rows() -> Vec<Row> {
        let meter = Meter::new();
        let row = |series: &str,
                   algorithm: &str,
                   flows: u64,
                   traffic: &str,
                   workers: usize,
                   cycles: f64| {
            let flows = if traffic == "flood" { json!("new") } else { json!(flows) };
            let parameters = json!({
                "algorithm": algorithm, "workers": workers, "flows_per_worker": flows, "traffic": traffic,
                "frame_bytes": 64, "policies": 1,
            });
            let cost = Cost { hit_ratio: Some(0.5), ..Cost::of(&meter, vec![cycles], workers) };
            Row::new("xfrm", series.to_owned(), parameters, Some(64), cost)
        };
        let mut rows = Vec::new();
        for (series, few, many, flood) in [
            ("cache off", 130.0, 130.0, 130.0),
            ("cache on", 100.0, 200.0, 250.0),
            ("cache auto", 102.0, 150.0, 131.0),
        ] {
            rows.push(row(series, "bypass", 4, "uniform", 1, few));
            rows.push(row(series, "bypass", 16_384, "uniform", 1, many));
            rows.push(row(series, "bypass", 1, "flood", 1, flood));
            rows.push(row(series, "aes-cbc-128 hmac-sha1-96", 4, "uniform", 2, 500.0));
        }
        rows
    }

    #[test]
    fn auto_is_held_against_on_with_few_flows_and_against_off_with_many() {
        let rows = rows();
        let targets = targets(&rows.iter().collect::<Vec<_>>());
        let found: Vec<bool> = targets.iter().map(|target| target.reached).collect();
        assert_eq!(found, [true, false, true, true], "{targets:?}");
        assert!((targets[1].found - 130.0 / 150.0).abs() < 1e-9);
    }

    #[test]
    fn tables_and_charts_have_every_row() {
        let rows = rows();
        let rows: Vec<&Row> = rows.iter().collect();
        let text = render(&rows);
        assert!(
            text.contains("Linux, 4 flows")
                && text.contains(" new |")
                && text.contains("flows 4 | 16,384"),
            "{text}"
        );
        let charts = charts(&rows);
        assert_eq!(charts.len(), 1);
        assert_eq!(
            (charts[0].name.as_str(), charts[0].lines.len()),
            ("xfrm-bypass-64-1-uniform", 3)
        );
    }
}
