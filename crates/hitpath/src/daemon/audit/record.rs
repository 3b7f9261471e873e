//! A record of the audit log, as a line and as an entry of the systemd journal.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::SystemTime;

/// The most bytes of one value. Commands may be as long as a request; what is cut is said.
const MAX_VALUE: usize = 16 << 10;

/// How much a record matters, as syslog(3) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Somebody should look.
    Warning = 4,
    /// Not what happens all the time.
    Notice = 5,
    /// What is expected.
    Info = 6,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// One of few words of the program's own.
    Word(&'static str),
    /// A number.
    Number(u64),
    /// Whatever somebody has written.
    Text(String),
}

/// What happened: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(super) time: SystemTime,
    pub(super) priority: Priority,
    pub(super) event: &'static str,
    pub(super) fields: Vec<(&'static str, Value)>,
}

impl Record {
    /// A record of what happens now.
    pub(crate) fn now(event: &'static str, priority: Priority) -> Self {
        Self { time: SystemTime::now(), priority, event, fields: Vec::new() }
    }

    /// The same with a field more.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// The same with a field more, if there is a value.
    #[must_use]
    pub(crate) fn with_some<V: Into<Value>>(self, name: &'static str, value: Option<V>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// About how much memory it takes.
    pub(super) fn size(&self) -> usize {
        let value = |(_, value): &(_, Value)| match value {
            Value::Text(text) => 64 + text.len(),
            _ => 64,
        };
        64 + self.fields.iter().map(value).sum::<usize>()
    }

    /// Adds the line of a text file: time, number, event, and the fields.
    pub(super) fn line(&self, number: u64, to: &mut String) {
        runtime::utc::add(self.time, to);
        to.push_str(" hitpath-audit ");
        self.body(number, to);
        to.push('\n');
    }

    fn body(&self, number: u64, to: &mut String) {
        // A string takes everything that is written to it.
        let _ = write!(to, "seq={number} event={}", self.event);
        for (name, value) in &self.fields {
            let _ = match value {
                Value::Word(word) => write!(to, " {name}={word}"),
                Value::Number(number) => write!(to, " {name}={number}"),
                Value::Text(text) => {
                    let _ = write!(to, " {name}=");
                    quote(text, to);
                    Ok(())
                }
            };
        }
    }

    /// Makes `to` the datagram that systemd-journald takes as one entry
    /// (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL>).
    pub(super) fn entry(&self, number: u64, to: &mut Vec<u8>) {
        to.clear();
        let mut message = String::with_capacity(256);
        self.body(number, &mut message);
        let mut add = |name: &str, value: &str| {
            // A vector takes everything that is written to it.
            to.extend_from_slice(name.as_bytes());
            if value.contains('\n') {
                to.push(b'\n');
                to.extend_from_slice(&(value.len() as u64).to_le_bytes());
                to.extend_from_slice(value.as_bytes());
            } else {
                let _ = write!(to, "={value}");
            }
            to.push(b'\n');
        };
        add("MESSAGE", &message);
        add("PRIORITY", &(self.priority as u8).to_string());
        add("SYSLOG_IDENTIFIER", "hitpath-audit");
        add("HITPATH_EVENT", self.event);
        add("HITPATH_SEQ", &number.to_string());
        for (name, value) in &self.fields {
            let name = format!("HITPATH_{}", name.replace('-', "_").to_ascii_uppercase());
            match value {
                Value::Word(word) => add(&name, word),
                Value::Number(number) => add(&name, &number.to_string()),
                Value::Text(text) => add(&name, &cut(text)),
            }
        }
    }
}

/// A word of the program's own. With blanks it is text.
impl From<&'static str> for Value {
    fn from(word: &'static str) -> Self {
        match word.contains(|it: char| !it.is_ascii_alphanumeric() && it != '-') {
            true => Self::Text(word.to_owned()),
            false => Self::Word(word),
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// What is said of a long value.
fn cut(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= MAX_VALUE {
        return text.into();
    }
    let end = (0..=MAX_VALUE).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    format!("{} ... ({} bytes in all)", &text[..end], text.len()).into()
}

/// Adds `text` in quotes, as a string of JSON. What could end the line, or look like something else
/// on a terminal, is escaped.
fn quote(text: &str, to: &mut String) {
    to.push('"');
    for character in cut(text).chars() {
        match character {
            '"' | '\\' => {
                to.push('\\');
                to.push(character);
            }
            ' '..='~' => to.push(character),
            character if character.is_alphanumeric() => to.push(character),
            character => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(to, "\\u{unit:04x}");
                }
            }
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn record() -> Record {
        Record {
            time: UNIX_EPOCH + Duration::from_micros(1_795_455_891_123_456),
            priority: Priority::Warning,
            event: "change",
            fields: Vec::new(),
        }
    }

    #[test]
    fn a_line_says_everything_and_stays_one() {
        let record = record()
            .with("uid", 0u32)
            .with("process", "a\"b\\c\nseq=9 event=change\u{202e}\u{1f600}é".to_owned())
            .with("outcome", "done")
            .with_some("reason", None::<String>);
        let mut line = String::new();
        record.line(7, &mut line);
        assert_eq!(
            line,
            "2026-11-23T17:44:51.123456Z hitpath-audit seq=7 event=change uid=0 \
            process=\"a\\\"b\\\\c\\u000aseq=9 event=change\\u202e\\ud83d\\ude00é\" outcome=done\n"
        );
        let quoted = &line[line.find("=\"").unwrap() + 1..line.rfind(" outcome").unwrap()];
        let read: String = serde_json::from_str(quoted).unwrap();
        assert_eq!(read, "a\"b\\c\nseq=9 event=change\u{202e}\u{1f600}é");
    }

    #[test]
    fn an_entry_of_the_journal_has_a_field_for_each() {
        let record = record()
            .with("command", "vrf add a\nHITPATH_UID=0".to_owned())
            .with("batch-line", 3u64);
        let mut entry = Vec::new();
        record.entry(7, &mut entry);
        let text = String::from_utf8_lossy(&entry);
        assert!(
            text.starts_with(
                "MESSAGE=seq=7 event=change command=\"vrf add a\\u000aHITPATH_UID=0\""
            ),
            "{text}"
        );
        for field in ["\nPRIORITY=4\n", "\nHITPATH_EVENT=change\n", "\nHITPATH_BATCH_LINE=3\n"] {
            assert!(text.contains(field), "{text}");
        }
        // With its length in front, so that nobody can add a field.
        let framed = b"\nHITPATH_COMMAND\n\x17\0\0\0\0\0\0\0vrf add a\nHITPATH_UID=0\n";
        assert!(entry.windows(framed.len()).any(|window| window == framed), "{text}");
    }

    #[test]
    fn a_long_value_is_cut_and_says_so() {
        let text = "é".repeat(MAX_VALUE);
        let mut quoted = String::new();
        quote(&text, &mut quoted);
        assert!(quoted.len() < MAX_VALUE + 100);
        assert!(quoted.ends_with(&format!("é ... ({} bytes in all)\"", 2 * MAX_VALUE)));
    }
}
