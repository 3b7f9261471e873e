//! `hitpath complete`: what a shell's completion asks.

use std::io::Read;

use anyhow::Context;
use clap::Args;

use crate::cli::Global;
use crate::complete::{self, Completion};
use runtime::exit::Exit;
use runtime::output;

/// The longest command line that is read. What is beyond that is completed by nothing.
const MAX_READ: u64 = 1 << 20;

/// Say what the last word of a command line may become, for the completions of shells
///
/// Each line has a kind, and behind a tab a word, and behind another what it means. The kinds are
/// `w`, a word; `p`, the beginning of a word; `f`, the name of a file; `h`, what is expected.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath complete -- route add 10.0.0.0/8 v      of `hitpath route add 10.0.0.0/8 v`
  hitpath complete -- link set ''
  printf '%s\\0' link set '' | hitpath complete --stdin

Completions of shells use --stdin: others see the arguments of a process, and a key may be among the
words.")]
pub(crate) struct Complete {
    /// Read the words from standard input, with a zero byte behind each
    #[arg(long, conflicts_with = "words")]
    stdin: bool,

    /// The words behind `hitpath`; the last one is being written, and may be empty
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

impl Complete {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let words = match self.stdin {
            true => read(std::io::stdin().lock())?,
            false => self.words.clone(),
        };
        let (last, before) = match words.split_last() {
            Some((last, before)) => (last.as_str(), before),
            None => ("", &[][..]),
        };
        output::text(&lines(&complete::complete(before, last, global.socket())))?;
        Ok(Exit::Done)
    }
}

/// The words in what is read. They are wiped with the heap.
fn read(from: impl Read) -> anyhow::Result<Vec<String>> {
    let mut text = String::new();
    from.take(MAX_READ).read_to_string(&mut text).context("reading the words")?;
    let words = text.strip_suffix('\0').unwrap_or(&text);
    Ok(words.split('\0').map(str::to_owned).collect())
}

fn lines(completion: &Completion) -> String {
    // What a daemon says is not to be taken for a line or a command of the terminal.
    let plain = |text: &str| text.replace(char::is_control, " ");
    let mut text = String::new();
    for candidate in &completion.candidates {
        if candidate.word.contains(char::is_control) {
            continue;
        }
        let kind = if candidate.goes_on { "p" } else { "w" };
        text += &format!("{kind}\t{}\t{}\n", candidate.word, plain(&candidate.meaning));
    }
    if completion.files {
        text += "f\t\t\n";
    }
    if let Some(hint) = &completion.hint {
        text += &format!("h\t\t{}\n", plain(hint));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::complete::Candidate;

    #[test]
    fn words_are_read_with_blanks_and_an_empty_last_one() {
        let words = |text: &str| read(text.as_bytes()).unwrap();
        assert_eq!(words("link\0set\0\0"), ["link", "set", ""]);
        assert_eq!(words("a b\0c"), ["a b", "c"]);
        assert_eq!(words(""), [""]);
        read(&b"\xff"[..]).unwrap_err();
    }

    #[test]
    fn nothing_that_is_said_ends_a_line() {
        let candidate = |word: &str, meaning: &str| Candidate {
            word: word.to_owned(),
            meaning: meaning.to_owned(),
            goes_on: false,
        };
        let completion = Completion {
            candidates: vec![candidate("a\nw\tb", ""), candidate("lan", "up\u{1b}[31m\nw\tx")],
            files: true,
            hint: None,
        };
        assert_eq!(lines(&completion), "w\tlan\tup [31m w x\nf\t\t\n");
    }
}
