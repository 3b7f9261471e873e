//! Tables for people, in a form that Markdown takes as it is.

use std::collections::BTreeSet;

use crate::row::Row;

/// A title over a table.
pub(crate) fn title(text: &str) -> String {
    format!("\n## {text}\n\n")
}

/// A Markdown table with its columns set straight. Columns of figures are flush right.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let figures: Vec<bool> = (0..heading.len())
        .map(|at| {
            rows.iter()
                .filter_map(|row| row.get(at))
                .all(|cell| cell.is_empty() || starts_as_figure(cell))
        })
        .collect();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain([heading[at].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cell: &dyn Fn(usize) -> String| {
        let cells = (0..heading.len()).map(|at| match (figures[at], widths[at]) {
            (true, width) => format!(" {:>width$} |", cell(at)),
            (false, width) => format!(" {:<width$} |", cell(at)),
        });
        format!("|{}\n", cells.collect::<String>())
    };
    let mut text = line(&|at| heading[at].to_owned());
    text.push_str(&line(&|at| {
        let dashes = "-".repeat(widths[at] - 1);
        if figures[at] { format!("{dashes}:") } else { format!("-{dashes}") }
    }));
    for row in rows {
        text.push_str(&line(&|at| row.get(at).cloned().unwrap_or_default()));
    }
    text
}

fn starts_as_figure(cell: &str) -> bool {
    cell == "-"
        || cell.strip_prefix('-').unwrap_or(cell).starts_with(|first: char| first.is_ascii_digit())
}

/// Rows of one experiment as a table: a line for each series and set of other parameters, a column
/// for each value of `column`.
pub(crate) struct Pivot<'a> {
    /// The parameter whose values are the columns.
    pub column: &'static str,
    /// What is said of it in the heading.
    pub heading: &'static str,
    /// The parameters that lines are told apart by, beside their series.
    pub by: &'a [&'static str],
}

impl Pivot<'_> {
    /// The table, with `cell` of each row in its place and its mark, and `more` lines behind.
    pub(crate) fn render(
        &self,
        rows: &[&Row],
        cell: impl Fn(&Row) -> String,
        more: Vec<Vec<String>>,
    ) -> String {
        let mut columns: Vec<String> = Vec::new();
        let mut lines: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for row in rows {
            let column = row.text(self.column);
            let at = columns.iter().position(|known| *known == column).unwrap_or_else(|| {
                columns.push(column);
                columns.len() - 1
            });
            let label: Vec<String> = self
                .by
                .iter()
                .map(|parameter| row.text(parameter))
                .chain([row.series.clone()])
                .collect();
            let line = lines.iter().position(|(known, _)| *known == label).unwrap_or_else(|| {
                lines.push((label, Vec::new()));
                lines.len() - 1
            });
            let cells = &mut lines[line].1;
            cells.resize(cells.len().max(at + 1), String::new());
            cells[at] = cell(row) + row.mark();
        }
        let first = self.by.len();
        let mut heading: Vec<String> =
            self.by.iter().map(|parameter| parameter.replace('_', " ")).collect();
        heading.push("series".to_owned());
        heading.extend(columns.iter().map(|column| grouped(column)));
        if let Some(column) = heading.get_mut(first + 1) {
            *column = format!("{} {column}", self.heading);
        }
        let lines = lines.into_iter().map(|(label, cells)| [label, cells].concat());
        let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
        table(&heading, &lines.chain(more).collect::<Vec<_>>())
    }
}

/// Cycles: the median, the least and the most.
pub(crate) fn cycles(row: &Row) -> String {
    let cost = &row.cost;
    format!("{:.0} ({:.0}-{:.0})", cost.cycles_per_packet, cost.cycles_min, cost.cycles_max)
}

/// Million packets a second.
pub(crate) fn mpps(row: &Row) -> String {
    rate(row.cost.mpps)
}

/// A rate with three digits that say something.
pub(crate) fn rate(mpps: f64) -> String {
    match mpps {
        rate if rate >= 10.0 => format!("{rate:.1}"),
        rate if rate >= 1.0 => format!("{rate:.2}"),
        rate => format!("{rate:.4}"),
    }
}

/// Hits of all packets, in percent.
pub(crate) fn hits(row: &Row) -> String {
    row.cost.hit_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio))
}

/// `1000000` as `1,000,000`.
pub(crate) fn grouped(number: &str) -> String {
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return number.to_owned();
    }
    let mut text = String::new();
    for (at, digit) in number.chars().enumerate() {
        if at > 0 && (number.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The values of a parameter, each once, in order.
pub(crate) fn values(rows: &[&Row], parameter: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    rows.iter().map(|row| row.text(parameter)).filter(|value| seen.insert(value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::measure::{Cost, Meter};

    fn row(series: &str, index: u64, cycles: f64) -> Row {
        let cost = Cost::of(&Meter::new(), vec![cycles], 1);
        Row::new(
            "test",
            series.to_owned(),
            json!({ "index": index, "action": "bypass" }),
            Some(64),
            cost,
        )
    }

    #[test]
    fn a_pivot_has_a_line_for_each_series_and_a_column_for_each_value() {
        let rows = [row("a", 1, 10.0), row("b", 1, 20.0), row("a", 1000, 30.0)];
        let rows: Vec<&Row> = rows.iter().collect();
        let pivot = Pivot { column: "index", heading: "policy", by: &["action"] };
        let more = vec![vec!["published".to_owned(), "c".to_owned(), "7".to_owned()]];
        let text = pivot.render(&rows, |row| format!("{:.0}", row.cost.cycles_per_packet), more);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| action    | series | policy 1 | 1,000 |");
        assert_eq!(lines[1], "| --------- | ------ | -------: | ----: |");
        assert_eq!(lines[2], "| bypass    | a      |       10 |    30 |");
        assert_eq!(lines[3], "| bypass    | b      |       20 |       |");
        assert_eq!(lines[4], "| published | c      |        7 |       |");
    }

    #[test]
    fn figures_of_a_core_that_was_not_alone_are_marked() {
        let mut rows = [row("a", 1, 10.0), row("a", 2, 20.0), row("a", 3, 30.0)];
        rows[1].cost.core = crate::core_state::CoreState::Shared;
        rows[2].cost.core = crate::core_state::CoreState::Mixed;
        let rows: Vec<&Row> = rows.iter().collect();
        let pivot = Pivot { column: "index", heading: "policy", by: &[] };
        let text = pivot.render(&rows, |row| format!("{:.0}", row.cost.cycles_per_packet), vec![]);
        assert_eq!(text.lines().nth(2).unwrap(), "| a      |       10 | 20 † | 30 ‡ |");
    }

    #[test]
    fn numbers_are_grouped_and_words_are_not() {
        for (number, text) in [
            ("1", "1"),
            ("999", "999"),
            ("1000", "1,000"),
            ("1234567", "1,234,567"),
            ("acl", "acl"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
