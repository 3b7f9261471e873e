//! A place in a line, and the columns that follow it.

use core::net::{IpAddr, Ipv4Addr};
use core::str::FromStr;

use types::{AddressError, IpPrefix, IpRange, PortRange, Protocol};

use super::MAX_LINE;
use super::error::{ParseError, Problem};

/// Reads a line column by column. Places are always between characters.
pub(super) struct Cursor<'t> {
    number: usize,
    line: &'t str,
    /// Where the next column is looked for, in bytes.
    at: usize,
    /// Where the last column began.
    column: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(number: usize, line: &'t str) -> Self {
        Self { number, line, at: 0, column: 0 }
    }

    pub(super) fn is_blank(&self) -> bool {
        self.line.bytes().all(is_blank)
    }

    /// An error about the column that was read last.
    pub(super) fn error(&self, problem: Problem) -> ParseError {
        let column = self.line[..self.column].chars().count() + 1;
        ParseError { line: self.number, column, problem }
    }

    /// An error about the line as a whole.
    pub(super) fn error_at_start(&self, problem: Problem) -> ParseError {
        ParseError { line: self.number, column: 1, problem }
    }

    pub(super) fn check_length(&self) -> Result<(), ParseError> {
        if self.line.len() <= MAX_LINE {
            return Ok(());
        }
        let column = self.line.char_indices().take_while(|(at, _)| *at < MAX_LINE).count() + 1;
        Err(ParseError { line: self.number, column, problem: Problem::Long })
    }

    /// Passes a character that must come next.
    pub(super) fn mark(&mut self, mark: char, expected: &'static str) -> Result<(), ParseError> {
        self.skip_blanks();
        self.column = self.at;
        if !self.rest().starts_with(mark) {
            let found = self.word();
            return Err(self.unexpected(found, expected));
        }
        self.at += mark.len_utf8();
        Ok(())
    }

    pub(super) fn prefix(&mut self, what: &'static str) -> Result<IpRange, ParseError> {
        let word = self.column(what)?;
        match IpPrefix::from_str(word) {
            Ok(prefix) if word.contains('/') => Ok(prefix.range()),
            Ok(prefix) => Err(self.error(Problem::NoLength {
                what,
                text: shortened(word),
                host: prefix.length(),
            })),
            Err(why) => Err(self.error(Problem::Prefix { what, text: shortened(word), why })),
        }
    }

    /// An address as a decimal number of 32 bits, or in the text form of either family.
    pub(super) fn address(&mut self, what: &'static str) -> Result<IpAddr, ParseError> {
        let word = self.column(what)?;
        let read = match decimal::<u32>(word) {
            Some(bits) => Ok(Ipv4Addr::from_bits(bits).into()),
            None => word.parse().map_err(|_| AddressError::Address),
        };
        read.map_err(|_| self.error(Problem::Address { what, text: shortened(word) }))
    }

    /// `LOW : HIGH`, with or without blanks around the colon.
    pub(super) fn ports(
        &mut self,
        low: &'static str,
        high: &'static str,
    ) -> Result<PortRange, ParseError> {
        let first = self.port(low)?;
        self.mark(':', "':' between the ends of a port range")?;
        let last = self.port(high)?;
        PortRange::new(first, last).map_err(|_| self.error(Problem::Reversed { first, last }))
    }

    /// `0x06/0xFF`; the mask says whether the protocol matters.
    pub(super) fn protocol(&mut self) -> Result<Option<Protocol>, ParseError> {
        const EXPECTED: &str = "the protocol and its mask, as in 0x06/0xFF";
        let word = self.column(EXPECTED)?;
        let read = word
            .split_once('/')
            .and_then(|(protocol, mask)| Some((number(protocol)?, number(mask)?)));
        match read.and_then(|(protocol, mask)| {
            Some((u8::try_from(protocol).ok()?, u8::try_from(mask).ok()?))
        }) {
            Some((protocol, 0xff)) => Ok(Some(Protocol(protocol))),
            Some((_, 0)) => Ok(None),
            Some((_, mask)) => Err(self.error(Problem::Mask(mask))),
            None => Err(self.unexpected(word, EXPECTED)),
        }
    }

    /// The last column of a rule: flags and their mask, zeros if it is missing.
    pub(super) fn flags(&mut self) -> Result<(u16, u16), ParseError> {
        let mut flags = (0, 0);
        if let Some(word) = self.next_word() {
            let half = |text| u16::try_from(number(text)?).ok();
            let read =
                word.split_once('/').and_then(|(flags, mask)| Some((half(flags)?, half(mask)?)));
            flags = read.ok_or_else(|| {
                self.unexpected(
                    word,
                    "TCP flags and their mask, as in 0x0000/0x0000, or the line's end",
                )
            })?;
        }
        match self.next_word() {
            None => Ok(flags),
            Some(word) => Err(self.unexpected(word, "the line's end")),
        }
    }

    /// A decimal number.
    pub(super) fn decimal<N: FromStr>(&mut self, expected: &'static str) -> Result<N, ParseError> {
        let word = self.column(expected)?;
        decimal(word).ok_or_else(|| self.unexpected(word, expected))
    }

    /// The remaining columns of a header: flags, and the number of a rule. Returns the flags, or 0
    /// if there are none; a number alone is that of a rule.
    pub(super) fn flags_of_header(&mut self) -> Result<u32, ParseError> {
        let (mut first, mut columns) = (0, 0);
        while let Some(word) = self.next_word() {
            let Some(number) = number(word) else {
                return Err(self.unexpected(word, "a number, or the line's end"));
            };
            first = if columns == 0 { number } else { first };
            columns += 1;
        }
        Ok(if columns > 1 { first } else { 0 })
    }

    /// A port, which a colon may follow at once.
    fn port(&mut self, expected: &'static str) -> Result<u16, ParseError> {
        self.skip_blanks();
        self.column = self.at;
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        match decimal(&self.rest()[..digits]) {
            Some(port) => {
                self.at += digits;
                Ok(port)
            }
            None => {
                let found = self.word();
                Err(self.unexpected(found, expected))
            }
        }
    }

    fn column(&mut self, expected: &'static str) -> Result<&'t str, ParseError> {
        self.next_word().ok_or_else(|| self.error(Problem::End { expected }))
    }

    /// The characters up to the next blank, passed; nothing at the line's end.
    fn next_word(&mut self) -> Option<&'t str> {
        self.skip_blanks();
        self.column = self.at;
        let word = self.word();
        self.at += word.len();
        (!word.is_empty()).then_some(word)
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().bytes().take_while(|&byte| is_blank(byte)).count();
    }

    /// The characters up to the next blank.
    fn word(&self) -> &'t str {
        let rest = self.rest();
        &rest[..rest.bytes().position(is_blank).unwrap_or(rest.len())]
    }

    fn rest(&self) -> &'t str {
        &self.line[self.at..]
    }

    fn unexpected(&self, found: &str, expected: &'static str) -> ParseError {
        self.error(match found {
            "" => Problem::End { expected },
            found => Problem::Unexpected { found: shortened(found), expected },
        })
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// A number in decimal digits alone: `parse` would take a sign too.
fn decimal<N: FromStr>(word: &str) -> Option<N> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) { word.parse().ok() } else { None }
}

/// A number in decimal, or in hexadecimal with `0x`.
fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u32::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None => decimal(word),
    }
}

/// As much of a text as an error shows, control characters escaped.
fn shortened(text: &str) -> String {
    const LIMIT: usize = 48;
    let mut shown: String = text.chars().take(LIMIT).flat_map(char::escape_debug).collect();
    if text.chars().nth(LIMIT).is_some() {
        shown.push_str("...");
    }
    shown
}
