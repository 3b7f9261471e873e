//! Splits text into keys and values, and reads numbers.

use core::fmt;

use thiserror::Error;

/// The longest text of a flow, in bytes.
pub const LONGEST: usize = 65_536;

/// What was wrong in a text, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("column {column}: {what}{}", Right(right))]
pub struct ParseError {
    /// The first character that is wrong, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What would be right. Empty if the text can only be left out.
    pub right: String,
}

struct Right<'a>(&'a str);

impl fmt::Display for Right<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; {}", self.0) }
    }
}

/// As [`ParseError`], with the place as the part of the text that is wrong.
#[derive(Debug)]
pub(crate) struct Wrong<'t> {
    at: &'t str,
    what: String,
    right: String,
}

pub(crate) type Result<'t, T> = core::result::Result<T, Wrong<'t>>;

/// Says what is wrong at a part of the text.
pub(crate) fn wrong(at: &str, what: impl Into<String>) -> Wrong<'_> {
    Wrong { at, what: what.into(), right: String::new() }
}

impl Wrong<'_> {
    /// Says what would be right.
    pub(crate) fn right(mut self, right: impl Into<String>) -> Self {
        self.right = right.into();
        self
    }

    /// With the column in `text`, which has the part that is wrong.
    pub(crate) fn within(self, text: &str) -> ParseError {
        let start = self.at.as_ptr() as usize;
        let offset = start.saturating_sub(text.as_ptr() as usize).min(text.len());
        let before = text.get(..offset).unwrap_or(text);
        ParseError { column: before.chars().count() + 1, what: self.what, right: self.right }
    }
}

/// A key, with the value that belongs to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'t> {
    pub(crate) key: &'t str,
    /// `None` if the key stands alone.
    pub(crate) value: Option<&'t str>,
    /// Whether the value was in parentheses.
    pub(crate) in_parentheses: bool,
}

impl<'t> Pair<'t> {
    /// The value, which must be there.
    pub(crate) fn value(&self, right: &str) -> Result<'t, &'t str> {
        match self.value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(wrong(self.key, format!("`{}` needs a value", self.key)).right(right)),
        }
    }

    /// Sees that there is no value.
    pub(crate) fn alone(&self) -> Result<'t, ()> {
        match self.value {
            None => Ok(()),
            Some(value) => Err(wrong(value, format!("`{}` takes no value", self.key))),
        }
    }
}

/// Splits `KEY`, `KEY=VALUE`, `KEY:VALUE` and `KEY(VALUE)` with commas or blanks between.
pub(crate) struct Pairs<'t> {
    rest: &'t str,
}

const BETWEEN: [char; 5] = [',', ' ', '\t', '\r', '\n'];

impl<'t> Pairs<'t> {
    pub(crate) const fn new(text: &'t str) -> Self {
        Self { rest: text }
    }

    /// The text that was not read yet, from the next key on.
    pub(crate) fn rest(&mut self) -> &'t str {
        self.rest = self.rest.trim_start_matches(BETWEEN);
        self.rest
    }

    pub(crate) fn next(&mut self) -> Result<'t, Option<Pair<'t>>> {
        let text = self.rest();
        if text.is_empty() {
            return Ok(None);
        }
        let is_end = |c: char| BETWEEN.contains(&c) || matches!(c, ':' | '=' | '(');
        let length = match text.starts_with('"') {
            true => quoted(text)?,
            false => text.find(is_end).unwrap_or(text.len()),
        };
        let (key, after) = text.split_at(length);
        let pair = match after.chars().next() {
            Some('(') => {
                let length = value_length(&after[1..], Some(')'))?;
                let value = Some(&after[1..=length]);
                self.rest = &after[length + 2..];
                // As in check_pkt_larger(200)->reg0[0], which is refused by its name.
                if self.rest.starts_with("->") {
                    self.rest = &self.rest[value_length(self.rest, None)?..];
                }
                if !self.rest.is_empty() && !self.rest.starts_with(BETWEEN) {
                    return Err(wrong(self.rest, "expected a comma, a blank or the end"));
                }
                Pair { key, value, in_parentheses: true }
            }
            Some(':' | '=') => {
                let length = value_length(&after[1..], None)?;
                self.rest = &after[length + 1..];
                Pair { key, value: Some(&after[1..=length]), in_parentheses: false }
            }
            Some(c) if !BETWEEN.contains(&c) => {
                return Err(wrong(after, "expected a comma, a blank or the end"));
            }
            _ => {
                self.rest = after;
                Pair { key, value: None, in_parentheses: false }
            }
        };
        if pair.key.is_empty() {
            return Err(wrong(text, "a name is missing"));
        }
        Ok(Some(pair))
    }
}

/// The bytes of a value up to `end`, or up to a comma, a blank or the end of the text. Parentheses
/// and quotation marks inside belong together.
fn value_length(text: &str, end: Option<char>) -> Result<'_, usize> {
    let mut depth = 0_usize;
    let mut skip = 0;
    for (at, c) in text.char_indices() {
        if at < skip {
            continue;
        }
        match c {
            '"' => skip = at + quoted(&text[at..])?,
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ')' if end.is_none() => return Err(wrong(&text[at..], "a `)` without its `(`")),
            _ if depth > 0 => {}
            _ if end == Some(c) || end.is_none() && BETWEEN.contains(&c) => return Ok(at),
            _ => {}
        }
    }
    match (depth, end) {
        (0, None) => Ok(text.len()),
        _ => Err(wrong(&text[text.len()..], "a `)` is missing")),
    }
}

/// The bytes of a text in quotation marks, with these.
fn quoted(text: &str) -> Result<'_, usize> {
    match text[1..].find('"') {
        Some(length) => Ok(length + 2),
        None => Err(wrong(text, "the closing `\"` is missing")),
    }
}

/// A name without its quotation marks.
pub(crate) fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// A number from 0 to `max`, decimal or hexadecimal with `0x`.
pub(crate) fn number(text: &str, max: u128) -> Result<'_, u128> {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => digits_of(digits, 16),
        // Open vSwitch reads it as octal.
        None if text.len() > 1 && text.starts_with('0') => None,
        None => digits_of(text, 10),
    };
    value.filter(|value| *value <= max).ok_or_else(|| {
        let max: &dyn fmt::Display = match max <= u64::MAX.into() {
            true => &max,
            false => &format_args!("{max:#x}"),
        };
        wrong(text, format!("`{}` is no number from 0 to {max}", short(text)))
            .right("numbers are decimal, or hexadecimal with 0x")
    })
}

fn digits_of(text: &str, radix: u32) -> Option<u128> {
    // `from_str_radix` would take a sign.
    match text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        true => u128::from_str_radix(text, radix).ok(),
        false => None,
    }
}

/// A number from 0 to 65535.
pub(crate) fn number_of_16_bits(text: &str) -> Result<'_, u16> {
    number(text, u16::MAX.into()).map(|number| number as u16)
}

/// A table.
pub(crate) fn table(text: &str) -> Result<'_, u8> {
    match number(text, (u8::MAX - 1).into()) {
        Ok(table) => Ok(table as u8),
        Err(_) => {
            Err(wrong(text, format!("there is no table {}", short(text)))
                .right("tables are 0 to 254"))
        }
    }
}

/// As much of a text as an error shows.
pub(crate) fn short(text: &str) -> String {
    let more = if text.chars().nth(60).is_some() { "..." } else { "" };
    let start: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    start + more
}
