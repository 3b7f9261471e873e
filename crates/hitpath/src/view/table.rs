//! Columns of text.

/// A table with a heading; columns in which every cell is a number are set flush right. Ends with
/// an end of line.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let column = |at: usize| rows.iter().map(move |row| row[at].as_str());
    let layout: Vec<(usize, bool)> = heading
        .iter()
        .enumerate()
        .map(|(at, title)| {
            let width = column(at)
                .chain([*title])
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default();
            let numbers = !rows.is_empty()
                && column(at).all(|cell| cell.bytes().all(|byte| byte.is_ascii_digit()));
            (width, numbers)
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (cell, &(width, numbers)) in cells.zip(&layout) {
            let cell =
                if numbers { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
            line.push_str(&cell);
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    };
    let mut text = line(&mut heading.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
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
    }
}
