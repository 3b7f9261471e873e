//! Commands, line by line. What is read may hold keys, so that every copy of it is wiped.

use std::io::{self, ErrorKind, Read};

use thiserror::Error;
use zeroize::Zeroizing;

use super::wipe;

/// The longest command in bytes, its continuation lines included.
const MAX_LINE: usize = 16 * 1024;

/// Bytes read at once.
const READ: usize = 64 * 1024;

/// A file of commands.
///
/// As in iproute2's batch files, a command is a line, a backslash at its end continues it on the
/// next, and words may stand in single or double quotes. `#` at the beginning of a word begins a
/// comment.
pub(super) struct Lines<R> {
    source: R,
    buffer: Zeroizing<Vec<u8>>,
    start: usize,
    end: usize,
    /// The command.
    line: Zeroizing<Vec<u8>>,
    /// Lines begun so far.
    number: usize,
    /// Bytes taken so far.
    taken: u64,
}

/// Why a command cannot be read.
#[derive(Debug, Error)]
pub(crate) enum LineError {
    /// The system's reason.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// It is longer than any command is.
    #[error("the line is longer than {MAX_LINE} bytes")]
    TooLong,
    /// It is not UTF-8.
    #[error("this is not text (a file of commands is UTF-8)")]
    NoText,
    /// A quoted word without an end.
    #[error("the word that begins with {0} does not end (another {0} behind it)")]
    OpenQuote(char),
    /// A quoted word that goes on behind its end.
    #[error("the quoted word goes on behind its {0} (a space between words)")]
    GluedQuote(char),
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            buffer: Zeroizing::new(vec![0; READ]),
            start: 0,
            end: 0,
            // Never longer, so that it never moves and leaves a copy behind.
            line: Zeroizing::new(Vec::with_capacity(MAX_LINE)),
            number: 0,
            taken: 0,
        }
    }

    /// Reads the next command, blank ones included, and returns the number of its first line. None
    /// at the end of the file.
    pub(super) fn advance(&mut self) -> Result<Option<usize>, (usize, LineError)> {
        wipe(&mut self.line);
        let first = self.number + 1;
        while self.physical().map_err(|error| (first, error))? {
            self.number += 1;
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
            if self.line.last() != Some(&b'\\') {
                return Ok(Some(first));
            }
            self.line.pop();
            self.line.push(b' ');
        }
        Ok((self.number >= first).then_some(first))
    }

    /// The words of the command.
    pub(super) fn words(&self) -> Result<Vec<&str>, LineError> {
        split(str::from_utf8(&self.line).map_err(|_| LineError::NoText)?)
    }

    /// Bytes taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Appends a line without its end. False if there is none.
    fn physical(&mut self) -> Result<bool, LineError> {
        let mut any = false;
        loop {
            if self.start == self.end {
                self.start = 0;
                self.end = match self.source.read(&mut self.buffer) {
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error.into()),
                };
                if self.end == 0 {
                    return Ok(any);
                }
            }
            any = true;
            let waiting = &self.buffer[self.start..self.end];
            let end = waiting.iter().position(|byte| *byte == b'\n');
            let part = &waiting[..end.unwrap_or(waiting.len())];
            if self.line.len() + part.len() >= MAX_LINE {
                return Err(LineError::TooLong);
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.start += used;
            self.taken += used as u64;
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

/// The words of a line.
pub(crate) fn split(line: &str) -> Result<Vec<&str>, LineError> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        match first {
            '#' => break,
            '\'' | '"' => {
                let (word, behind) =
                    rest[1..].split_once(first).ok_or(LineError::OpenQuote(first))?;
                if behind.chars().next().is_some_and(|next| !next.is_whitespace()) {
                    return Err(LineError::GluedQuote(first));
                }
                words.push(word);
                rest = behind.trim_start();
            }
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                words.push(&rest[..end]);
                rest = rest[end..].trim_start();
            }
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, as a terminal might.
    struct Slow<'t>(&'t [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(&mut buffer[..1])
        }
    }

    fn commands(text: &[u8]) -> Vec<(usize, Vec<String>)> {
        let mut lines = Lines::new(Slow(text));
        let mut commands = Vec::new();
        while let Some(number) = lines.advance().unwrap() {
            let words = lines.words().unwrap();
            if !words.is_empty() {
                commands.push((number, words.into_iter().map(str::to_owned).collect()));
            }
        }
        assert_eq!(lines.taken(), text.len() as u64);
        commands
    }

    #[test]
    fn a_command_is_a_line_with_its_number() {
        let text = b"# comment\n\nroute add 10/8 # why\n  xfrm\\\n  state \\\n count\r\nvrf show";
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            commands(text),
            [(3, words("route add 10/8")), (4, words("xfrm state count")), (7, words("vrf show"))]
        );
        assert_eq!(commands(b""), []);
        assert_eq!(commands(b"\n\n"), []);
        assert_eq!(commands(b"vrf show \\"), [(1, words("vrf show"))]);
    }

    #[test]
    fn quotes_hold_words_together_and_comments_begin_words() {
        assert_eq!(
            split("enc 'cbc(aes)' \"a b\" '' x'y a#b #c d").unwrap(),
            ["enc", "cbc(aes)", "a b", "", "x'y", "a#b"]
        );
        assert!(matches!(split("a 'b c"), Err(LineError::OpenQuote('\''))));
        assert!(matches!(split("\"a\"b"), Err(LineError::GluedQuote('"'))));
    }

    #[test]
    fn what_is_no_command_is_refused_with_its_line() {
        let mut text = b"vrf show\n".to_vec();
        text.extend([b'x'; MAX_LINE]);
        let mut lines = Lines::new(&text[..]);
        assert_eq!(lines.advance().unwrap(), Some(1));
        assert!(matches!(lines.advance(), Err((2, LineError::TooLong))));
        let mut lines = Lines::new(&b"\xff\xfe"[..]);
        lines.advance().unwrap();
        assert!(matches!(lines.words(), Err(LineError::NoText)));
    }
}
