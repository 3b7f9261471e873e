//! What is to be reached, held against what was measured.

use serde::Serialize;

/// One line of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    /// `target`, beside the rows of kind `cost`.
    kind: &'static str,
    /// What is to be.
    pub what: String,
    /// What was found.
    pub found: f64,
    /// `at least` or `at most`.
    pub bound: Bound,
    /// What there is to reach.
    pub wanted: f64,
    /// Whether it was.
    pub reached: bool,
}

/// On which side of the wanted figure is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Bound {
    #[serde(rename = "at least")]
    AtLeast,
    #[serde(rename = "at most")]
    AtMost,
}

impl Target {
    /// `found` is to be `wanted` or more.
    pub(crate) fn at_least(what: impl Into<String>, found: f64, wanted: f64) -> Self {
        Self {
            kind: "target",
            what: what.into(),
            found,
            bound: Bound::AtLeast,
            wanted,
            reached: found >= wanted,
        }
    }

    /// `found` is to be `wanted` or less.
    pub(crate) fn at_most(what: impl Into<String>, found: f64, wanted: f64) -> Self {
        Self {
            kind: "target",
            what: what.into(),
            found,
            bound: Bound::AtMost,
            wanted,
            reached: found <= wanted,
        }
    }

    /// `found` is to be `wanted` or more, and a verdict that is not by the figure alone says whether
    /// it counts as that.
    pub(crate) fn judged(what: impl Into<String>, found: f64, wanted: f64, reached: bool) -> Self {
        Self { reached, ..Self::at_least(what, found, wanted) }
    }

    /// In a line of the table: what, found, wanted, verdict.
    fn cells(&self) -> Vec<String> {
        let bound = if self.bound == Bound::AtLeast { "at least" } else { "at most" };
        let verdict = if self.reached { "pass" } else { "fall short" };
        vec![
            self.what.clone(),
            figure(self.found),
            format!("{bound} {}", figure(self.wanted)),
            verdict.to_owned(),
        ]
    }
}

/// A number with as many digits as say something.
pub(crate) fn figure(value: f64) -> String {
    let trimmed = |text: String| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => trimmed(format!("{value:.1}")),
        size if size >= 0.1 => trimmed(format!("{value:.3}")),
        _ => format!("{value:.2e}"),
    }
}

/// The table of them all; empty if there are none.
pub(crate) fn render(targets: &[Target]) -> String {
    if targets.is_empty() {
        return String::new();
    }
    let cells: Vec<_> = targets.iter().map(Target::cells).collect();
    let reached = targets.iter().filter(|target| target.reached).count();
    let table = crate::text::table(&["to reach", "found", "wanted", ""], &cells);
    format!("{}{table}\n{reached} of {} reached.\n", crate::text::title("Targets"), targets.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_itself_is_reached_and_nothing_is_not() {
        assert!(Target::at_least("", 1.0, 1.0).reached && !Target::at_least("", 0.99, 1.0).reached);
        assert!(Target::at_most("", 1.0, 1.0).reached && !Target::at_most("", 1.01, 1.0).reached);
        assert!(
            !Target::at_least("", f64::NAN, 1.0).reached
                && !Target::at_most("", f64::NAN, 1.0).reached
        );
    }

    #[test]
    fn the_table_says_what_was_reached() {
        let text =
            render(&[Target::at_least("fast", 5.25, 5.0), Target::at_most("small", 107.0, 106.5)]);
        assert!(
            text.contains("| fast") && text.contains(" 5.25 |") && text.contains("at least 5 "),
            "{text}"
        );
        assert!(
            text.contains("fall short")
                && text.contains("at most 106.5 ")
                && text.contains("1 of 2 reached"),
            "{text}"
        );
        assert_eq!(render(&[]), "");
    }
}
