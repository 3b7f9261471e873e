//! Errors with their places.

use core::cmp::Ordering;
use core::fmt;
use std::collections::BTreeSet;

use thiserror::Error;
use types::IpPrefix;

/// The most errors that are told at once.
const MAX_DIAGNOSTICS: usize = 1000;

/// More notes about bits beyond the length of a prefix help nobody.
const MAX_HOST_BITS: usize = 50;

/// One error in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file's name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
}

/// All errors in a configuration file, in its order; of very many, the first thousand and a last
/// that says how many more there are.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct Diagnostics(pub Vec<Diagnostic>);

/// One line for each error: `gw.toml:3:7: what is wrong (what would be right)`.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, diagnostic) in self.0.iter().enumerate() {
            write!(f, "{}{diagnostic}", if at > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// Collects errors while a text is read.
#[derive(Debug)]
pub(super) struct Errors<'t> {
    text: &'t str,
    found: Vec<(usize, String, Option<String>)>,
    more: usize,
    /// What is right, and worth a note.
    notes: Vec<(usize, String, Option<String>)>,
    /// How many prefixes had bits beyond their length.
    with_host_bits: usize,
}

impl<'t> Errors<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, found: Vec::new(), more: 0, notes: Vec::new(), with_host_bits: 0 }
    }

    /// An error at byte `at` of the text.
    pub(super) fn add(&mut self, at: usize, message: impl Into<String>, hint: Option<String>) {
        if self.found.len() < MAX_DIAGNOSTICS {
            // What stands in a wrong place may be a key, whatever was expected there.
            let message = api::without_keys(&message.into()).into_owned();
            let hint = hint.map(|hint| api::without_keys(&hint).into_owned());
            self.found.push((at, message, hint));
        } else {
            self.more += 1;
        }
    }

    /// Something at byte `at` that is right, and worth a note.
    pub(super) fn note(&mut self, at: usize, message: impl Into<String>) {
        self.notes.push((at, message.into(), None));
    }

    /// A prefix of addresses to match has bits beyond its length: all of its network match.
    pub(super) fn note_host_bits(&mut self, at: usize, given: IpPrefix) {
        self.with_host_bits += 1;
        let network = given.network();
        match self.with_host_bits.cmp(&MAX_HOST_BITS) {
            Ordering::Less => self.note(at, format!("{given} matches all of {network}")),
            Ordering::Equal => {
                self.note(at, format!("{given} matches all of {network}; others are not noted"));
            }
            Ordering::Greater => {}
        }
    }

    /// The number of the line of byte `at`. Counting lines is not for free.
    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.text[..floor_boundary(self.text, at)].matches('\n').count()
    }

    /// Its line and column.
    pub(super) fn place(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..floor_boundary(self.text, at)];
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        (self.line(at), before[start..].chars().count() + 1)
    }

    /// An error at byte `at`: `what` was said already, at byte `first`.
    pub(super) fn add_duplicate(&mut self, at: usize, what: &str, first: usize) {
        // Counting lines is not for free, and more errors are not told.
        let line = if self.found.len() < MAX_DIAGNOSTICS { self.line(first) } else { 0 };
        self.add(
            at,
            format!("{what} is given twice"),
            Some(format!("the first is on line {line}")),
        );
    }

    /// Forgets the errors on the lines of these places, and at the very beginning.
    pub(super) fn forget_lines(&mut self, places: impl ExactSizeIterator<Item = usize>) {
        if places.len() == 0 {
            return;
        }
        let line = |at: usize| self.text[..floor_boundary(self.text, at)].rfind('\n');
        let lines: BTreeSet<_> = places.map(line).collect();
        let text = self.text;
        self.found.retain(|(at, ..)| {
            *at > 0 && !lines.contains(&text[..floor_boundary(text, *at)].rfind('\n'))
        });
    }

    pub(super) fn count(&self) -> usize {
        self.found.len() + self.more
    }

    /// What is worth a note, in the text's order, with lines and columns.
    pub(super) fn into_notes(self, file: &str) -> Diagnostics {
        Self { found: self.notes, notes: Vec::new(), ..self }.into_diagnostics(file)
    }

    /// The errors in the text's order, with lines and columns.
    pub(super) fn into_diagnostics(mut self, file: &str) -> Diagnostics {
        let text = self.text;
        self.found.sort_by_key(|(at, ..)| *at);
        // The parser says of every bracket that is open at the end that it is.
        self.found.dedup();
        let mut diagnostics = Vec::with_capacity(self.found.len() + 1);
        let (mut line, mut line_start, mut scanned) = (1, 0, 0);
        for (at, message, hint) in self.found {
            let at = floor_boundary(text, at);
            for (position, _) in text[scanned..at].match_indices('\n') {
                line += 1;
                line_start = scanned + position + 1;
            }
            scanned = at;
            let column = text[line_start..at].chars().count() + 1;
            diagnostics.push(Diagnostic { file: file.to_owned(), line, column, message, hint });
        }
        if let (true, Some(last)) = (self.more > 0, diagnostics.last().cloned()) {
            diagnostics.push(Diagnostic {
                message: format!("and {} more errors", self.more),
                hint: None,
                ..last
            });
        }
        Diagnostics(diagnostics)
    }
}

/// The nearest position up to `at` that is between two characters.
fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// The name among `names` that `given` was most likely meant to be.
pub(crate) fn nearest<'n>(
    given: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    near(given, names).into_iter().next()
}

/// The names among `names` that `given` may have been meant to be, the most likely one first.
pub fn near<'n>(given: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    // The distance of two long words takes long to find, and no name is that long.
    const TOO_LONG: usize = 64;
    let length = given.chars().count();
    let limit = (length / 3).max(1);
    let mut near: Vec<_> = names
        .into_iter()
        .filter(|name| length <= TOO_LONG && name.chars().count() <= TOO_LONG)
        .map(|name| (strsim::osa_distance(given, name), name))
        .filter(|(edits, _)| *edits <= limit)
        .collect();
    near.sort_by_key(|(edits, _)| *edits);
    near.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_lines_and_characters() {
        let text = "a = 1\nbé = 2\nc";
        let mut errors = Errors::new(text);
        errors.add(text.len(), "third", None);
        errors.add(text.find("= 2").unwrap(), "second", Some("hint".to_owned()));
        errors.add(0, "first", None);
        let told = errors.into_diagnostics("x.toml").to_string();
        assert_eq!(told, "x.toml:1:1: first\nx.toml:2:4: second (hint)\nx.toml:3:2: third");
    }

    #[test]
    fn no_more_errors_are_kept_than_anyone_reads() {
        let mut errors = Errors::new("");
        (0..MAX_DIAGNOSTICS + 7).for_each(|number| errors.add(0, format!("wrong {number}"), None));
        let told = errors.into_diagnostics("x");
        assert_eq!(told.0.len(), MAX_DIAGNOSTICS + 1);
        assert_eq!(told.0.last().unwrap().message, "and 7 more errors");
    }

    #[test]
    fn the_same_is_said_once() {
        let mut errors = Errors::new("a");
        (0..3).for_each(|_| errors.add(1, "unclosed array", None));
        assert_eq!(errors.into_diagnostics("x").to_string(), "x:1:2: unclosed array");
    }

    #[test]
    fn the_nearest_name_is_found_where_one_is_near() {
        let names = ["address", "mac", "port", "destination"];
        assert_eq!(nearest("adress", names), Some("address"));
        assert_eq!(nearest("prot", names), Some("port"));
        assert_eq!(nearest("destinatoin", names), Some("destination"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("", names), None);
    }
}
