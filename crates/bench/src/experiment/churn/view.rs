//! How the rows are shown and judged.

use crate::plot::{Axis, Chart, Line, Scale};
use crate::row::Row;
use crate::target::{Target, figure};
use crate::text;

/// Throughput beside quiet, latency of changes, and how many packets they made be decided anew.
pub(crate) fn render(rows: &[&Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let number = |what: &str| row.found(what).map_or_else(String::new, figure);
            let ratio = of_quiet(row).map_or_else(String::new, |ratio| format!("{ratio:.3}"));
            vec![
                row.text("change"),
                row.series.clone() + row.mark(),
                text::grouped(&row.text("policies")),
                text::grouped(&row.text("flows")),
                text::mpps(row),
                ratio,
                text::cycles(row),
                text::hits(row),
                number("changes"),
                number("made_per_second"),
                number("change_us_p50"),
                number("change_us_p99"),
                number("change_us_max"),
                number("misses_per_change"),
            ]
        })
        .collect();
    let heading = [
        "change",
        "series",
        "policies",
        "flows",
        "Mpps",
        "of quiet",
        "cycles",
        "hits",
        "changes",
        "a second",
        "p50 µs",
        "p99 µs",
        "max µs",
        "misses per change",
    ];
    text::title("churn: forwarding while policies and SAs change") + &text::table(&heading, &cells)
}

/// Speed beside that of the same worker when nothing changed.
fn of_quiet(row: &Row) -> Option<f64> {
    if row.series == "quiet" {
        Some(1.0)
    } else {
        Some(row.found("quiet_cycles_per_packet")? / row.cost.cycles_per_packet)
    }
}

/// Speed by changes a second, for each number of flows.
pub(crate) fn charts(rows: &[&Row]) -> Vec<Chart> {
    let line = |change: &str, flows: &str, name: String| {
        let these = rows.iter().filter(|row| {
            row.text("change") == change && row.text("flows") == flows && row.text("by") == "tables"
        });
        let points =
            these.filter_map(|row| Some((row.number("changes_per_second")?, of_quiet(row)?)));
        Line::ours(name, points.collect())
    };
    let mut lines = Vec::new();
    for (change, what) in [("policy", "policies"), ("rekey", "SAs")] {
        let these: Vec<&Row> =
            rows.iter().copied().filter(|row| row.text("change") == change).collect();
        let flows = text::values(&these, "flows");
        lines.extend(
            flows.iter().map(|flows| {
                line(change, flows, format!("{what}, {} flows", text::grouped(flows)))
            }),
        );
    }
    vec![Chart {
        name: "churn".to_owned(),
        title: "Forwarding while the tables change".to_owned(),
        x: Axis::new("changes a second", Scale::Log),
        y: Axis::new("speed, of quiet", Scale::Linear),
        lines,
    }]
}

/// Changes are quick, and cost forwarding little.
pub(crate) fn targets(rows: &[&Row]) -> Vec<Target> {
    let mut targets = Vec::new();
    for row in rows.iter().filter(|row| row.text("change") == "policy" && row.series != "quiet") {
        let series = format!(
            "churn, {} policies, {} flows, {}",
            text::grouped(&row.text("policies")),
            text::grouped(&row.text("flows")),
            row.series
        );
        if let Some(p99) = row.found("change_us_p99") {
            targets.push(Target::at_most(format!("{series}: p99 of a change, in µs"), p99, 1000.0));
        }
        if row.number("changes_per_second") == Some(1000.0)
            && let (Some(ratio), Some(made)) = (of_quiet(row), row.found("made_per_second"))
        {
            targets.push(Target::at_least(format!("{series}: speed, of quiet"), ratio, 0.95));
            targets.push(Target::at_least(format!("{series}: changes made a second"), made, 980.0));
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::measure::{Cost, Meter};

    #[test]
    fn changes_are_held_against_quiet() {
        let meter = Meter::new();
        let row = |series: &str, rate: u32, cycles: f64, p99: f64| {
            let parameters = json!({ "change": "policy", "changes_per_second": rate, "policies": 100_000, "flows": 10, "by": "tables" });
            let found = json!({ "change_us_p99": p99, "quiet_cycles_per_packet": 100.0, "made_per_second": 0.99 * f64::from(rate) });
            let found = if rate > 0 { found } else { json!({}) };
            Row::new(
                "churn",
                series.to_owned(),
                parameters,
                Some(64),
                Cost::of(&meter, vec![cycles], 1),
            )
            .with(found)
        };
        let rows = [
            row("quiet", 0, 100.0, 0.0),
            row("100/s", 100, 101.0, 1500.0),
            row("1000/s", 1000, 104.0, 90.0),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let targets = targets(&rows);
        let reached: Vec<bool> = targets.iter().map(|target| target.reached).collect();
        assert_eq!(reached, [false, true, true, true], "{targets:?}");
        assert!((targets[2].found - 100.0 / 104.0).abs() < 1e-9);
        let charts = charts(&rows);
        assert_eq!(charts[0].lines[0].points.len(), 3);
        assert!(
            render(&rows).contains("| 0.962 |") || render(&rows).contains(" 0.962 "),
            "{}",
            render(&rows)
        );
    }
}
