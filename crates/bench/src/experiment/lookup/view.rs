//! How the rows are shown and judged.

use crate::core_state::CoreState;
use crate::plot::{Axis, Chart, Line, Scale};
use crate::published::{self, Published};
use crate::row::Row;
use crate::target::{Target, figure};
use crate::text::{self, Pivot};

/// Nanoseconds by size beside the best published, cycles, and what an engine takes.
pub(crate) fn render(rows: &[&Row]) -> String {
    let pivot = Pivot { column: "rules", heading: "rules", by: &["family", "set"] };
    let columns = text::values(rows, "rules");
    let sets = text::values(rows, "set");
    let mut best = Vec::new();
    for published in others().filter(|published| sets.iter().any(|set| set == published.series)) {
        let mut line = vec![String::new(), published.series.to_owned(), published.what.to_owned()];
        line.extend(columns.iter().map(|column| cell(published.figures, column)));
        best.push(line);
    }
    let nanoseconds = |row: &Row| figure(row.cost.ns_per_packet);
    text::title("lookup: nanoseconds per first packet, distinct headers, shuffled")
        + &pivot.render(rows, nanoseconds, best)
        + &text::title("lookup: cycles per first packet, median (least-most)")
        + &pivot.render(rows, text::cycles, Vec::new())
        + &counts(rows)
        + &engines(rows)
}

/// What others' engines take.
fn others() -> impl Iterator<Item = &'static Published> {
    published::LOOKUP.iter().chain(&published::RTE_ACL)
}

/// A published figure under a column: the largest sets are shown under ours of 100,000.
fn cell(figures: &[(f64, f64)], column: &str) -> String {
    let at = |size: f64| figures.iter().find(|(rules, _)| *rules == size).map(|(_, ns)| *ns);
    match column.parse() {
        Ok(100_000.0) => at(6e4).map_or_else(String::new, |ns| format!("{ns} (60 k)")),
        Ok(size) => at(size).map_or_else(String::new, |ns: f64| ns.to_string()),
        Err(_) => String::new(),
    }
}

/// What finds the policies, and what a header takes.
fn counts(rows: &[&Row]) -> String {
    let counted = rows.iter().filter(|row| row.found("probes_mean").is_some());
    let cells: Vec<Vec<String>> = counted
        .map(|row| {
            let number = |what: &str| row.found(what).map_or_else(String::new, figure);
            vec![
                row.text("family"),
                row.text("set"),
                row.series.clone(),
                text::grouped(&row.text("policies")),
                row.text_found("structure").unwrap_or_default(),
                number("probes_mean"),
                number("probes_most"),
                number("compared_mean"),
                number("compared_most"),
            ]
        })
        .collect();
    let heading = [
        "family",
        "set",
        "engine",
        "policies",
        "structure, and why",
        "probes, mean",
        "most",
        "policies compared, mean",
        "most",
    ];
    text::title("lookup: what one header takes, counted") + &text::table(&heading, &cells)
}

/// Memory, building and changes.
fn engines(rows: &[&Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .filter(|row| row.found("build_ms").is_some())
        .map(|row| {
            let number = |what: &str| row.found(what).map_or_else(String::new, figure);
            let times = |what: &str| {
                let parts = ["p50", "p99", "max"].map(|part| number(&format!("{what}_us_{part}")));
                // The core was looked at around these by itself.
                let mark = match row.text_found("changes_core").as_deref() {
                    None | Some("alone") => "",
                    Some("shared") => CoreState::Shared.mark(),
                    Some(_) => CoreState::Mixed.mark(),
                };
                parts.join(" / ") + mark
            };
            let policies = row.number("policies").unwrap_or(f64::NAN);
            let bytes = row.found("memory_bytes").unwrap_or(f64::NAN);
            vec![
                row.text("family"),
                row.text("set"),
                row.series.clone(),
                text::grouped(&row.text("policies")),
                number("build_ms"),
                number("compile_ms"),
                figure(bytes / 1e6),
                figure(bytes / policies),
                times("insert"),
                times("delete"),
                match row.series.as_str() {
                    // A probe for each group, at most.
                    "flows" => number("groups"),
                    _ => number("most_probes"),
                },
                number("most_policies_compared"),
            ]
        })
        .collect();
    let heading = [
        "family",
        "set",
        "engine",
        "policies",
        "build ms",
        "compile ms",
        "MB",
        "bytes each",
        "insert µs p50 / p99 / max",
        "delete µs p50 / p99 / max",
        "most probes",
        "most compared",
    ];
    text::title(
        "lookup: memory with the policies themselves, building, and changes with copy and \
        publication",
    ) + &text::table(&heading, &cells)
}

/// Nanoseconds by size: a chart for each set and family.
pub(crate) fn charts(rows: &[&Row]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for family in text::values(rows, "family") {
        for set in text::values(rows, "set") {
            let these: Vec<&Row> = rows
                .iter()
                .copied()
                .filter(|row| row.text("family") == family && row.text("set") == set)
                .collect();
            let mut lines = Line::by_series(&these, "rules", |row| row.cost.ns_per_packet);
            if lines.is_empty() {
                continue;
            }
            if family == "ipv4" {
                let published = others().filter(|published| published.series == set);
                lines.extend(published.map(|published| Line::published(published, "")));
            }
            // A set out of a file has a name of another person's choosing.
            let safe: String = set
                .chars()
                .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
                .collect();
            charts.push(Chart {
                name: format!("lookup-{safe}-{family}"),
                title: format!("Policy lookup, {set}, {family}"),
                x: Axis::new("policies", Scale::Log),
                y: Axis::new("ns per first packet", Scale::Log),
                lines,
            });
        }
    }
    charts
}

/// The fast engine beside linear, beside the best published, and its changes.
pub(crate) fn targets(rows: &[&Row]) -> Vec<Target> {
    let mut targets = Vec::new();
    for fast in rows.iter().filter(|row| row.series == "fast") {
        let rules = fast.number("rules").unwrap_or_default();
        let (family, set) = (fast.text("family"), fast.text("set"));
        let name = format!("lookup, {set}, {family}, {} rules", text::grouped(&fast.text("rules")));
        let linear =
            rows.iter().find(|row| row.series == "linear" && row.parameters == fast.parameters);
        // Not slower: three in a hundred are what two runs of the same differ by.
        let wanted = [(10.0, 0.97), (1000.0, 5.0), (10_000.0, 50.0)]
            .into_iter()
            .find(|(size, _)| *size == rules);
        if let (Some(linear), Some((_, wanted))) = (linear, wanted) {
            let ratio = linear.cost.ns_per_packet / fast.cost.ns_per_packet;
            targets.push(Target::at_least(
                format!("{name}: speed of fast, of linear"),
                ratio,
                wanted,
            ));
        }
        let published =
            published::LOOKUP.iter().find(|published| published.series == set && family == "ipv4");
        let size = if rules == 100_000.0 { 6e4 } else { rules };
        let best = published
            .and_then(|published| published.figures.iter().find(|(rules, _)| *rules == size));
        if let Some((_, best)) = best {
            let what = format!("{name}: ns per first packet, of the best published");
            targets.push(Target::at_most(what, fast.cost.ns_per_packet, *best));
        }
        for change in ["insert", "delete"] {
            if let Some(p99) = fast.found(&format!("{change}_us_p99")) {
                targets.push(Target::at_most(
                    format!("{name}: p99 of {change}, in µs"),
                    p99,
                    100.0,
                ));
            }
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
    fn fast_is_held_against_linear_and_the_best_published() {
        let meter = Meter::new();
        let row = |series: &str, rules: u32, ns: f64| {
            let cost = Cost { ns_per_packet: ns, ..Cost::of(&meter, vec![1.0], 1) };
            let parameters =
                json!({ "set": "acl", "rules": rules, "policies": rules, "family": "ipv4" });
            Row::new("lookup", series.to_owned(), parameters, None, cost)
        };
        let rows = [
            row("linear", 1000, 300.0),
            row("fast", 1000, 30.0),
            row("linear", 100_000, 30_000.0),
            row("fast", 100_000, 70.0).with(json!({ "insert_us_p99": 101.0, "build_ms": 1.0 })),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let found: Vec<(f64, f64, bool)> = targets(&rows)
            .iter()
            .map(|target| (target.found, target.wanted, target.reached))
            .collect();
        let expected =
            [(10.0, 5.0, true), (30.0, 27.0, false), (70.0, 75.0, true), (101.0, 100.0, false)];
        assert_eq!(found, expected);
        let text = render(&rows);
        assert!(
            text.contains("75 (60 k)")
                && text.contains("184 (60 k)")
                && text.contains("rules 1,000 |"),
            "{text}"
        );
        assert_eq!(charts(&rows)[0].lines.len(), 4);
    }
}
