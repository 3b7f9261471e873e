//! How the rows are shown and judged.

use super::attack::Attack;
use super::attacked::Measured;
use super::openings::Opened;
use super::{FRAME, Flows};
use crate::plot::{Axis, Chart, Line, Scale};
use crate::published;
use crate::row::Row;
use crate::target::Target;
use crate::text;

/// What established connections keep of their rate.
const KEPT: f64 = 0.95;
/// Rows of which fewer hit are none of a decision that is kept.
const HITS: f64 = 0.99;

/// Cycles a packet by connections, of established ones and through eight tables, how many packets hit,
/// what the cache saves, what beginning costs, and what is kept under attack.
pub(crate) fn render(rows: &[&Row]) -> String {
    let (connections, pipelines) = (established(rows), pipelines(rows));
    let cycles = |row: &Row| format!("{:.0}{}", row.cost.cycles_per_packet, row.mark());
    let mut tables = String::new();
    for (title, first, rows, cell) in [
        (
            format!("Connections, {FRAME}-byte frames: cycles a packet by connections"),
            "flows",
            &connections,
            &cycles as &dyn Fn(&Row) -> String,
        ),
        (
            "Packets whose decision was remembered".to_owned(),
            "remembered",
            &with_cache(&connections),
            &text::hits,
        ),
        (
            "Eight tables with 1,000 flows, udp: cycles a packet by connections".to_owned(),
            "pipeline",
            &pipelines,
            &cycles,
        ),
        (
            "Eight tables: packets whose decision was remembered".to_owned(),
            "remembered",
            &with_cache(&pipelines),
            &text::hits,
        ),
    ] {
        tables += &by_connections(&title, first, rows, cell);
    }
    tables + &gains(&connections) + &openings(rows) + &attacks(rows)
}

/// Rows of established connections, and mixed.
fn established<'r>(rows: &[&'r Row]) -> Vec<&'r Row> {
    let is_one = |row: &&Row| row.number("connections").is_some() && row.text("work").is_empty();
    rows.iter().copied().filter(is_one).collect()
}

/// Rows of few and of many flows that do the same.
fn pipelines<'r>(rows: &[&'r Row]) -> Vec<&'r Row> {
    rows.iter().copied().filter(|row| !row.text("work").is_empty()).collect()
}

fn with_cache<'r>(rows: &[&'r Row]) -> Vec<&'r Row> {
    rows.iter().copied().filter(|row| row.text("cache") != "off").collect()
}

/// A line for each name, a column for each number of connections.
fn by_connections(
    title: &str,
    first: &str,
    rows: &[&Row],
    cell: &dyn Fn(&Row) -> String,
) -> String {
    let numbers = numbers(rows);
    let mut names: Vec<String> = Vec::new();
    for name in rows.iter().map(|row| name(row)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let line = |wanted: &String| {
        let of = |number: &f64| {
            let is_it =
                |row: &&&Row| row.number("connections") == Some(*number) && name(row) == *wanted;
            rows.iter().find(is_it).map_or_else(String::new, |row| cell(row))
        };
        [wanted.clone()].into_iter().chain(numbers.iter().map(of)).collect()
    };
    let cells: Vec<Vec<String>> = names.iter().map(line).collect();
    let heads: Vec<String> =
        numbers.iter().map(|number| text::grouped(&number.to_string())).collect();
    let heads: Vec<&str> = [first].into_iter().chain(heads.iter().map(String::as_str)).collect();
    text::title(title) + &text::table(&heads, &cells)
}

fn name(row: &Row) -> String {
    match row.text("flows").as_str() {
        "plain" => "plain forwarding".to_owned(),
        "mixed" => format!("mixed, tcp, cache {}", row.text("cache")),
        _ => row.series.clone(),
    }
}

/// How many times as much it costs without the cache as with it, beside what was published.
fn gains(rows: &[&Row]) -> String {
    let numbers = numbers(rows);
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
    if gains.is_empty() {
        return String::new();
    }
    let columns: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    let mut published = published::CONNTRACK_GAIN.line(&columns, 2);
    published.splice(..2, [published::CONNTRACK_GAIN.what.to_owned() + ", udp"]);
    let lines: Vec<Vec<String>> = gains.into_iter().chain([published]).collect();
    let heads: Vec<String> = columns.iter().map(|column| text::grouped(column)).collect();
    let heads: Vec<&str> =
        ["cache off / on"].into_iter().chain(heads.iter().map(String::as_str)).collect();
    let title = "How many times as much it costs without the cache as with it";
    text::title(title) + &text::table(&heads, &lines)
}

fn openings(rows: &[&Row]) -> String {
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
    if opening.is_empty() {
        return String::new();
    }
    let heads = ["connections", "others alive", "packets", "cycles a packet", "in all"];
    text::title("Connections that begin, and that begin and end") + &text::table(&heads, &opening)
}

/// A line for each attack: what a packet of established connections takes, and what is kept.
fn attacks(rows: &[&Row]) -> String {
    let line = |(attack, number): &(Attack, f64)| {
        let row = |measured| attacked(rows, *attack, *number, measured);
        let cycles = |measured| {
            let row = row(measured)?;
            Some(format!("{:.0}{}", row.cost.cycles_per_packet, row.mark()))
        };
        let kept = |measured| Some(format!("{:.3}", row(measured)?.found("kept")?));
        let passed = row(Measured::Attack).and_then(|row| {
            let part = row.found("forwarded")? / row.found("attack_packets")?;
            Some(format!("{:.1} %", 100.0 * part))
        });
        let mixed = row(Measured::Mixed)
            .and_then(|row| row.found("established_cycles_per_packet"))
            .map(|cycles| format!("{cycles:.0}"));
        [
            Some(attack.title().to_owned()),
            Some(text::grouped(&number.to_string())),
            cycles(Measured::Quiet),
            cycles(Measured::Between),
            kept(Measured::Between),
            row(Measured::Between).map(text::hits),
            mixed,
            kept(Measured::Mixed),
            cycles(Measured::Attack),
            passed,
        ]
        .map(Option::unwrap_or_default)
        .to_vec()
    };
    let cells: Vec<Vec<String>> = under_attack(rows).iter().map(line).collect();
    if cells.is_empty() {
        return String::new();
    }
    let heads = [
        "attack",
        "established",
        "quiet",
        "between",
        "kept",
        "hits",
        "mixed",
        "kept, mixed",
        "attack's own",
        "of it forwarded",
    ];
    let title =
        "Established TCP under attack: cycles a packet of theirs, and what is kept of their rate";
    text::title(title) + &text::table(&heads, &cells)
}

/// The attacks that were measured, and with how many established connections.
fn under_attack(rows: &[&Row]) -> Vec<(Attack, f64)> {
    let mut found = Vec::new();
    for row in rows {
        let names = <Attack as clap::ValueEnum>::value_variants();
        let attack = names.iter().find(|attack| attack.name() == row.text("attack"));
        if let (Some(&attack), Some(number)) = (attack, row.number("established"))
            && !found.contains(&(attack, number))
        {
            found.push((attack, number));
        }
    }
    found
}

fn attacked<'r>(
    rows: &[&'r Row],
    attack: Attack,
    number: f64,
    measured: Measured,
) -> Option<&'r Row> {
    rows.iter().copied().find(|row| {
        row.text("attack") == attack.name()
            && row.text("measured") == measured.name()
            && row.number("established") == Some(number)
    })
}

/// By connections: what a packet costs with the cache left to itself, beside VPP; how many times as much
/// it costs without, beside what was published; the same through eight tables; and what is kept under
/// attack.
pub(crate) fn charts(rows: &[&Row]) -> Vec<Chart> {
    let (all, rows) = (rows, &established(rows)[..]);
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
    let is_shown = |row: &&Row| row.text("cache") == "on";
    let shown: Vec<&Row> = pipelines(all).into_iter().filter(is_shown).collect();
    let cycles = Line::by_series(&shown, "connections", |row| row.cost.cycles_per_packet);
    if !cycles.is_empty() {
        let y = Axis::new("cycles per packet", Scale::Linear);
        charts.push(chart("conntrack-tables", "Eight tables with 1,000 flows, UDP", y, cycles));
    }
    let mut kept: Vec<Line> = Vec::new();
    for (attack, number) in under_attack(all) {
        let row = attacked(all, attack, number, Measured::Between);
        let Some(ratio) = row.and_then(|row| row.found("kept")) else { continue };
        match kept.iter_mut().find(|line| line.name == attack.title()) {
            Some(line) => line.points.push((number, ratio)),
            None => kept.push(Line::ours(attack.title(), vec![(number, ratio)])),
        }
    }
    if !kept.is_empty() {
        let y = Axis::new("rate of established connections, of quiet", Scale::Linear);
        charts.push(chart("conntrack-attacks", "Established TCP under attack", y, kept));
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

/// Never slower than without the cache, TCP near UDP, what a hit and an opening packet may cost, one-way
/// connections that hit, eight tables that cost what few do, and what is kept under attack.
pub(crate) fn targets(rows: &[&Row]) -> Vec<Target> {
    let mut targets = established_targets(&established(rows));
    targets.extend(pipeline_targets(&pipelines(rows)));
    targets.extend(opening_targets(rows));
    targets.extend(attack_targets(rows));
    targets
}

fn established_targets(rows: &[&Row]) -> Vec<Target> {
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
        for flows in ["firewall", "nat"] {
            let row = found(rows, flows, "udp-one-way", "on", number);
            if let Some(hits) = row.and_then(|row| row.cost.hit_ratio) {
                let what = format!("{flows}, one-way UDP that hits, {count} connections");
                targets.push(Target::at_least(what, hits, HITS));
            }
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
    targets
}

/// Many flows of few that do the same, both with the cache: also of rows that do not hit, which is said.
fn pipeline_targets(rows: &[&Row]) -> Vec<Target> {
    let mut targets = Vec::new();
    let is_on = |row: &&&Row| row.text("cache") == "on";
    let is = |row: &Row, many: bool| row.text("is_many") == many.to_string();
    for many in rows.iter().filter(is_on).filter(|row| is(row, true)) {
        let (work, number) = (many.text("work"), many.number("connections"));
        let is_base = |row: &&&Row| {
            is(row, false) && row.text("work") == work && row.number("connections") == number
        };
        let Some(few) = rows.iter().filter(is_on).find(is_base) else { continue };
        let hits = [few, many].map(|row| row.cost.hit_ratio.unwrap_or(0.0));
        let hits = hits[0].min(hits[1]);
        let mut what = format!(
            "eight tables to few, {work}, {} connections",
            text::grouped(&number.unwrap_or_default().to_string())
        );
        if hits < HITS {
            what += &format!(", of which {:.0} % hit", 100.0 * hits);
        }
        let ratio = many.cost.cycles_per_packet / few.cost.cycles_per_packet;
        targets.push(Target::at_most(what, ratio, 1.05));
    }
    targets
}

fn opening_targets(rows: &[&Row]) -> Vec<Target> {
    let mut targets = Vec::new();
    // A packet that opens a connection, and whole connections, of a counter of 2.0 GHz.
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

fn attack_targets(rows: &[&Row]) -> Vec<Target> {
    let mut targets = Vec::new();
    for (attack, number) in under_attack(rows) {
        for (measured, how) in [(Measured::Between, "between"), (Measured::Mixed, "mixed")] {
            let row = attacked(rows, attack, number, measured);
            let Some(kept) = row.and_then(|row| row.found("kept")) else { continue };
            if attack != Attack::Others {
                let count = text::grouped(&number.to_string());
                let what = format!("kept, {}, {how}, {count} established", attack.title());
                targets.push(Target::at_least(what, kept, KEPT));
            }
        }
    }
    targets
}

fn numbers(rows: &[&Row]) -> Vec<f64> {
    let mut numbers: Vec<f64> = rows.iter().filter_map(|row| row.number("connections")).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::NAME;
    use super::*;
    use crate::measure::{Cost, Meter};

    fn row(series: &str, parameters: Value, cycles: f64, hits: f64) -> Row {
        let cost = Cost { hit_ratio: Some(hits), ..Cost::of(&Meter::new(), vec![cycles], 1) };
        Row::new(NAME, series.to_owned(), parameters, Some(64), cost)
    }

    fn judged(rows: &[Row]) -> Vec<(String, f64, bool)> {
        let rows: Vec<&Row> = rows.iter().collect();
        let of = |target: Target| (target.what, target.found, target.reached);
        targets(&rows).into_iter().map(of).collect()
    }

    #[test]
    fn eight_tables_are_held_against_few_that_do_the_same() {
        let row = |work: &str, many: bool, cache: &str, cycles, hits| {
            let parameters = json!({
                "work": work, "is_many": many, "cache": cache, "connections": 1000, "flows": 5,
            });
            row(&format!("{work} {many} {cache}"), parameters, cycles, hits)
        };
        let rows = [
            row("nat", false, "off", 300.0, 0.0),
            row("nat", true, "off", 900.0, 0.0),
            row("nat", false, "on", 100.0, 1.0),
            row("plain", false, "on", 90.0, 1.0),
            row("nat", true, "on", 104.0, 1.0),
            row("plain", true, "on", 99.0, 0.123),
        ];
        let expected = [
            ("eight tables to few, nat, 1,000 connections".to_owned(), 1.04, true),
            (
                "eight tables to few, plain, 1,000 connections, of which 12 % hit".to_owned(),
                1.1,
                false,
            ),
        ];
        assert_eq!(judged(&rows), expected);
        let rows: Vec<&Row> = rows.iter().collect();
        assert_eq!(established(&rows).len(), 0, "they are not in the table of the others");
        assert!(render(&rows).contains(" 12.3 % |"), "{}", render(&rows));
    }

    #[test]
    fn one_way_connections_are_to_hit() {
        let row = |hits| {
            let parameters = json!({
                "flows": "nat", "protocol": "udp-one-way", "cache": "on", "connections": 10,
            });
            row("nat, udp-one-way, cache on", parameters, 50.0, hits)
        };
        let what = "nat, one-way UDP that hits, 10 connections".to_owned();
        assert_eq!(judged(&[row(0.98)]), [(what.clone(), 0.98, false)]);
        assert_eq!(judged(&[row(1.0)]), [(what, 1.0, true)]);
    }

    #[test]
    fn what_is_kept_is_judged_of_attacks_alone() {
        let rows_of = |attack: Attack| {
            Measured::ALL.map(|measured| {
                let parameters = json!({
                    "attack": attack.name(), "measured": measured.name(), "established": 1000,
                });
                let found = match measured {
                    Measured::Between => json!({ "kept": 0.96 }),
                    Measured::Mixed => {
                        json!({ "kept": 0.94, "established_cycles_per_packet": 106 })
                    }
                    _ => json!({ "attack_packets": 200, "forwarded": 50 }),
                };
                row(measured.name(), parameters, 100.0, 0.999).with(found)
            })
        };
        assert_eq!(judged(&rows_of(Attack::Others)), []);
        let title = Attack::PortScan.title();
        let expected = [
            (format!("kept, {title}, between, 1,000 established"), 0.96, true),
            (format!("kept, {title}, mixed, 1,000 established"), 0.94, false),
        ];
        let rows = rows_of(Attack::PortScan);
        assert_eq!(judged(&rows), expected);
        let rows: Vec<&Row> = rows.iter().collect();
        let text = render(&rows);
        let line = text.lines().find(|line| line.contains(title)).unwrap();
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert_eq!(
            cells[2..11],
            ["1,000", "100", "100", "0.960", "99.9 %", "106", "0.940", "100", "25.0 %"]
        );
        assert_eq!(charts(&rows)[0].lines[0].points, [(1000.0, 0.96)]);
    }
}
