//! The tables, the plots, and what is to be reached.

use crate::plot::{Axis, Chart, Line, Scale};
use crate::published;
use crate::row::Row;
use crate::target::Target;
use crate::text;

/// Percent of no VRF by traffic and what is switched on, beside what was published; then percent of
/// one VRF or VLAN by how many there are; for each state of the cache.
pub(crate) fn render(rows: &[&Row]) -> String {
    let mut out = String::new();
    for cache in text::values(rows, "cache") {
        let of_cache = |kinds: &[&str]| -> Vec<&Row> {
            let is_meant = |row: &&&Row| {
                row.text("cache") == cache && kinds.contains(&row.text("rows").as_str())
            };
            rows.iter().filter(is_meant).copied().collect()
        };
        let features = of_cache(&["features"]);
        if !features.is_empty() {
            out += &text::title(&format!(
                "vrf, cache {cache}: speed in percent of no VRF (95 % interval)"
            ));
            out += &table_of_features(&features);
        }
        let many = of_cache(&["vrfs", "vlans"]);
        if !many.is_empty() {
            out += &text::title(&format!(
                "vrf, cache {cache}: speed in percent of one VRF, or of one VLAN (95 % interval)"
            ));
            out += &table_of_many(&many);
        }
    }
    out + &instructions(rows)
}

/// A line for each traffic and family, a column for each series, beside what was published.
fn table_of_features(rows: &[&Row]) -> String {
    let mut series: Vec<&str> = Vec::new();
    let mut lines: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        if !series.contains(&row.series.as_str()) {
            series.push(&row.series);
        }
        let label = label(row);
        match lines.iter_mut().find(|(known, _)| *known == label) {
            Some((_, line)) => line.push(row),
            None => lines.push((label, vec![row])),
        }
    }
    let ours = lines.iter().map(|(label, line)| {
        let base = line[0].found("base_cycles_per_packet").unwrap_or(f64::NAN);
        let of = |series: &&str| line.iter().find(|row| row.series == *series);
        let ratios = series.iter().map(|series| of(series).map_or(String::new(), |row| cell(row)));
        [label.clone(), format!("{base:.0}")].into_iter().chain(ratios).collect()
    });
    let others = published::VRF.iter().map(|published| {
        let figure = match published.figures {
            [(_, low), (_, high)] => format!("{:.0}-{:.0}", 100.0 * low, 100.0 * high),
            _ => String::new(),
        };
        let places = series.iter().map(|series| match *series == published.series {
            true => figure.clone(),
            false => String::new(),
        });
        [published.what.to_owned(), String::new()].into_iter().chain(places).collect()
    });
    let cells: Vec<Vec<String>> = ours.chain(others).collect();
    let heading: Vec<&str> =
        ["traffic", "cycles without"].into_iter().chain(series.iter().copied()).collect();
    text::table(&heading, &cells)
}

/// A line for each row: what it is held against is another one each time.
fn table_of_many(rows: &[&Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let base = row.found("base_cycles_per_packet").unwrap_or(f64::NAN);
            let cycles = [base, row.cost.cycles_per_packet].map(|cycles| format!("{cycles:.0}"));
            let names = [label(row), row.series.clone()];
            names.into_iter().chain(cycles).chain([text::hits(row), cell(row)]).collect()
        })
        .collect();
    text::table(
        &["traffic", "flows over", "cycles with one", "with many", "hits", "percent"],
        &cells,
    )
}

fn label(row: &Row) -> String {
    format!("{} {}", row.text("traffic"), row.text("family"))
}

fn cell(row: &Row) -> String {
    let percent = |what| 100.0 * row.found(what).unwrap_or(f64::NAN);
    let (speed, low, high) = (percent("speed"), percent("speed_low"), percent("speed_high"));
    format!("{speed:.1} ({low:.1}-{high:.1}){}", row.mark())
}

/// Those rows whose instructions were counted.
fn instructions(rows: &[&Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .filter_map(|row| {
            let this = row.found("instructions_per_packet")?;
            let base = row.found("base_instructions_per_packet")?;
            let figures = [format!("{base:.1}"), format!("{this:.1}")];
            let percent = format!("{:.1}", 100.0 * base / this);
            let names = [row.text("cache"), label(row), row.series.clone()];
            Some(names.into_iter().chain(figures).chain([percent, cell(row)]).collect())
        })
        .collect();
    if cells.is_empty() {
        return String::new();
    }
    let heading = ["cache", "traffic", "series", "without", "with", "percent", "speed, percent"];
    text::title("vrf: instructions per packet") + &text::table(&heading, &cells)
}

/// Percent by traffic, a line for each series; and percent by the number of VRFs, a line for each
/// traffic.
pub(crate) fn charts(rows: &[&Row]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for cache in text::values(rows, "cache") {
        let of = |kind: &str| -> Vec<&Row> {
            let is_meant = |row: &&&Row| row.text("cache") == cache && row.text("rows") == kind;
            rows.iter().filter(is_meant).copied().collect()
        };
        let features = of("features");
        if !features.is_empty() {
            let mut labels: Vec<String> = Vec::new();
            let mut lines: Vec<Line> = Vec::new();
            for row in &features {
                let label = label(row);
                if !labels.contains(&label) {
                    labels.push(label.clone());
                }
                let x = 1 + labels.iter().position(|known| *known == label).unwrap_or(0);
                add(&mut lines, row.series.clone(), (x as f64, percent(row)));
            }
            let last = labels.len() as f64;
            lines.extend(published::VRF.iter().flat_map(|published| {
                published.figures.iter().map(move |(_, figure)| Line {
                    name: format!("{}, {}", published.what, 100.0 * figure),
                    points: vec![(1.0, 100.0 * figure), (last, 100.0 * figure)],
                    is_reference: true,
                })
            }));
            let numbered: Vec<String> =
                (1..).zip(&labels).map(|(at, label)| format!("{at} {label}")).collect();
            charts.push(Chart {
                name: format!("vrf-features-{cache}"),
                title: format!("A VRF and its features, cache {cache}"),
                x: Axis::new(abbreviated(&numbered), Scale::Linear),
                y: Axis::new("percent of the speed without a VRF", Scale::Linear),
                lines,
            });
        }
        let many = of("vrfs");
        if !many.is_empty() {
            let mut lines: Vec<Line> = Vec::new();
            for row in &many {
                let Some(vrfs) = row.number("vrfs") else { continue };
                add(&mut lines, label(row), (vrfs, percent(row)));
            }
            charts.push(Chart {
                name: format!("vrf-many-{cache}"),
                title: format!("Flows over many VRFs of 1,000 routes each, cache {cache}"),
                x: Axis::new("VRFs", Scale::Log),
                y: Axis::new("percent of the speed of one VRF", Scale::Linear),
                lines,
            });
        }
    }
    charts
}

/// The names of a few places of an axis.
fn abbreviated(labels: &[String]) -> String {
    match labels {
        [first, .., last] if labels.len() > 4 => format!("traffic, from {first} to {last}"),
        _ => labels.join(", "),
    }
}

fn add(lines: &mut Vec<Line>, name: String, point: (f64, f64)) {
    match lines.iter_mut().find(|line| line.name == name) {
        Some(line) => line.points.push(point),
        None => lines.push(Line::ours(name, vec![point])),
    }
}

fn percent(row: &Row) -> f64 {
    100.0 * row.found("speed").unwrap_or(f64::NAN)
}

/// Each row that has a target.
pub(crate) fn targets(rows: &[&Row]) -> Vec<Target> {
    rows.iter()
        .filter_map(|row| {
            let (wanted, verdict) = (row.found("wanted")?, row.text_found("verdict")?);
            let note = match (verdict.as_str(), row.found.get("wide")?.as_bool()?) {
                ("too few pairs", _) => " (too few pairs in one state of the core)",
                (_, false) => "",
                _ if row.found("instructions_speed").is_some() => " (wide: by instructions)",
                _ => " (wide, and instructions not counted)",
            };
            let what = format!(
                "vrf, cache {}, {}: {}, speed{note}",
                row.text("cache"),
                label(row),
                row.series
            );
            Some(Target::judged(what, row.found("speed")?, wanted, verdict == "pass"))
        })
        .collect()
}
