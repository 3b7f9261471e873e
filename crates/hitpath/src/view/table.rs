//! Columns of text.

/// A list of more rows than this, which a screen may not have, ends with how many there are.
pub(crate) const LONG: u64 = 20;

/// A table with a heading; columns in which every cell is a number, or `-` as there is none, are set
/// flush right. Ends with an end of line.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    Columns::of(heading, rows).rows(Some(heading), rows)
}

/// What is known of the cells of a column.
#[derive(Clone, Copy, Default)]
struct Column {
    width: usize,
    has_numbers: bool,
    has_words: bool,
}

/// The columns of a table, which may be printed part by part.
#[derive(Default)]
pub(crate) struct Columns {
    layout: Vec<Column>,
}

impl Columns {
    /// As wide as these rows need them.
    pub(crate) fn of(heading: &[&str], rows: &[Vec<String>]) -> Self {
        let column = |title: &&str| Column { width: title.chars().count(), ..Column::default() };
        let mut columns = Self { layout: heading.iter().map(column).collect() };
        columns.widen(rows);
        columns
    }

    /// Makes room for rows. Columns of numbers stay so as long as all cells are.
    fn widen(&mut self, rows: &[Vec<String>]) {
        for row in rows {
            for (cell, column) in row.iter().zip(&mut self.layout) {
                column.width = column.width.max(cell.chars().count());
                column.has_numbers |= is_number(cell);
                column.has_words |= !is_number(cell) && cell != "-";
            }
        }
    }

    /// More rows, wider ones too.
    pub(crate) fn rows(&mut self, heading: Option<&[&str]>, rows: &[Vec<String>]) -> String {
        self.widen(rows);
        let mut text = heading.map_or_else(String::new, |it| self.line(it.iter().copied()));
        for row in rows {
            text.push_str(&self.line(row.iter().map(String::as_str)));
        }
        text
    }

    fn line<'c>(&self, cells: impl Iterator<Item = &'c str>) -> String {
        let mut line = String::new();
        for (cell, column) in cells.zip(&self.layout) {
            let width = column.width;
            let cell = if column.has_numbers && !column.has_words {
                format!("{cell:>width$}  ")
            } else {
                format!("{cell:<width$}  ")
            };
            line.push_str(&cell);
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// Whether a cell is a whole or decimal number, with a percent sign or without.
fn is_number(cell: &str) -> bool {
    let number = cell.strip_suffix(" %").unwrap_or(cell);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole.strip_prefix('-').unwrap_or(whole)) && digits(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_flush_right() {
        let rows = [
            vec!["lan".to_owned(), "7".to_owned()],
            vec!["wide-one".to_owned(), "12345".to_owned()],
        ];
        assert_eq!(
            table(&["PORT", "RX"], &rows),
            "PORT         RX\nlan           7\nwide-one  12345\n"
        );
        assert_eq!(table(&["PORT", "RX"], &[]), "PORT  RX\n");
        for number in ["0", "12.5", "-2.5", "33.3 %", "7 %"] {
            assert!(is_number(number), "{number}");
        }
        for other in ["", "-", ".", "1.", "192.0.2.1", "0x10", "inf", "1-2", "%"] {
            assert!(!is_number(other), "{other}");
        }
        let rows = ["-", "9.5", "100.0"].map(|cell| vec![cell.to_owned()]);
        assert_eq!(table(&["NS"], &rows), "   NS\n    -\n  9.5\n100.0\n");
    }

    #[test]
    fn a_table_may_come_in_parts() {
        let row = |name: &str, count: &str| vec![vec![name.to_owned(), count.to_owned()]];
        let mut columns = Columns::of(&["PORT", "RX"], &row("lan", "77"));
        let text = columns.rows(Some(&["PORT", "RX"]), &row("lan", "77"))
            + &columns.rows(None, &row("wan", "5"))
            + &columns.rows(None, &row("wide-one", "123"));
        assert_eq!(text, "PORT  RX\nlan   77\nwan    5\nwide-one  123\n");
    }
}
