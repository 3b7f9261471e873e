//! Completion for the line editor.

use std::path::PathBuf;

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::complete;

/// What the line editor asks at the key of completion.
pub(super) struct Words {
    /// The daemon's socket.
    pub(super) socket: PathBuf,
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let written = Written::read(&line[..position]);
        let completion = complete::complete(&written.words, written.last, &self.socket);
        let width = completion.candidates.iter().map(|one| one.word.len()).max().unwrap_or(0);
        let mut pairs: Vec<_> = completion
            .candidates
            .iter()
            .map(|candidate| Pair {
                display: match candidate.meaning.is_empty() {
                    true => candidate.word.clone(),
                    false => format!("{:width$}  {}", candidate.word, candidate.meaning),
                },
                replacement: written.replacement(&candidate.word, candidate.goes_on),
            })
            .collect();
        if completion.files {
            pairs.extend(files(written.last).into_iter().map(|file| {
                let goes_on = file.ends_with('/');
                Pair { replacement: written.replacement(&file, goes_on), display: file }
            }));
        }
        Ok((written.start, pairs))
    }
}

impl Hinter for Words {
    type Hint = String;
}
impl Highlighter for Words {}
impl Validator for Words {}
impl Helper for Words {}

/// A line as far as it is written, in words as `batch` reads them.
#[derive(Debug, PartialEq, Eq)]
struct Written<'l> {
    /// The words that are whole, without `hitpath` in front.
    words: Vec<String>,
    /// Where the last one begins, behind its quote.
    start: usize,
    /// The last one, which may be empty.
    last: &'l str,
    /// The quote that it stands in.
    quote: Option<char>,
}

impl<'l> Written<'l> {
    fn read(line: &'l str) -> Self {
        let mut words = Vec::new();
        let mut at = 0;
        let (start, quote) = loop {
            at += line[at..].len() - line[at..].trim_start().len();
            let rest = &line[at..];
            let quote = rest.chars().next().filter(|first| matches!(first, '\'' | '"'));
            let begin = at + quote.map_or(0, char::len_utf8);
            let end = match quote {
                Some(quote) => line[begin..].find(quote),
                None => line[begin..].find(char::is_whitespace),
            };
            let Some(length) = end else { break (begin, quote) };
            words.push(line[begin..begin + length].to_owned());
            at = begin + length + quote.map_or(0, char::len_utf8);
        };
        if words.first().is_some_and(|word| word == "hitpath") {
            words.remove(0);
        }
        Self { words, start, last: &line[start..], quote }
    }

    /// What a word becomes in the line, with what has to stand behind it.
    fn replacement(&self, word: &str, goes_on: bool) -> String {
        match (self.quote, goes_on) {
            (_, true) => word.to_owned(),
            (Some(quote), false) => format!("{word}{quote} "),
            (None, false) if word.contains(char::is_whitespace) && !self.last.contains(' ') => {
                format!("'{word}' ")
            }
            (None, false) => format!("{word} "),
        }
    }
}

/// Files whose names begin with `last`; folders have a slash behind them.
fn files(last: &str) -> Vec<String> {
    let (folder, name) = last
        .rsplit_once('/')
        .map_or(("", last), |(folder, name)| (if folder.is_empty() { "/" } else { folder }, name));
    let before = &last[..last.len() - name.len()];
    let Ok(entries) = std::fs::read_dir(if folder.is_empty() { "." } else { folder }) else {
        return Vec::new();
    };
    let mut all: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let is_hidden = file.starts_with('.') && !name.starts_with('.');
            let fits = file.starts_with(name) && !is_hidden && !file.contains(char::is_control);
            let slash = if entry.path().is_dir() { "/" } else { "" };
            fits.then(|| format!("{before}{file}{slash}"))
        })
        .take(1000)
        .collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (Vec<String>, usize, &str) {
        let written = Written::read(line);
        (written.words, written.start, written.last)
    }

    #[test]
    fn the_word_that_is_written_is_found() {
        let words = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(read(""), (words(&[]), 0, ""));
        assert_eq!(read("route ad"), (words(&["route"]), 6, "ad"));
        assert_eq!(read("  route  "), (words(&["route"]), 9, ""));
        assert_eq!(read("hitpath sh"), (words(&[]), 8, "sh"));
        assert_eq!(read("flow add 'table=0,é"), (words(&["flow", "add"]), 10, "table=0,é"));
        assert_eq!(read("flow add 'a b' "), (words(&["flow", "add", "a b"]), 15, ""));
        assert_eq!(Written::read("flow add 'tab").replacement("table", false), "table' ");
        assert_eq!(Written::read("flow add tab").replacement("table=", true), "table=");
        assert_eq!(Written::read("sh").replacement("show", false), "show ");
    }

    #[test]
    fn files_are_found_in_their_folder() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().to_str().unwrap();
        for name in ["gw.toml", "gw2.toml", ".gw", "other"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        std::fs::create_dir(directory.path().join("gws")).unwrap();
        let all = ["gw.toml", "gw2.toml", "gws/"].map(|name| format!("{at}/{name}"));
        assert_eq!(files(&format!("{at}/gw")), all);
        assert!(files("/nonexistent/x").is_empty());
    }
}
