//! FTP (RFC 959, RFC 2428): where the next data connection goes.
//!
//! Strict: only whole lines, only well-formed ones, only the addresses of the two ends. A client
//! that names another host (FTP bounce, RFC 2577) gets no expectation.

use core::net::{IpAddr, Ipv4Addr};
use core::ops::Range;

use thiserror::Error;

/// Who says it and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `PORT`: the client listens.
    Port,
    /// `EPRT`: the client listens.
    Eprt,
    /// `227`: the server listens.
    Pasv,
    /// `229`: the server listens, at the address of the control connection.
    Epsv,
}

/// Where a data connection will go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// How it is written.
    pub form: Form,
    /// The address that listens.
    pub address: IpAddr,
    /// The port that listens.
    pub port: u16,
    /// Where address and port stand in the payload.
    pub place: Range<usize>,
}

/// Why an announcement is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Distrusted {
    /// It names another host than the one that sends it.
    #[error("{0} announces a data connection to {1}")]
    OtherHost(IpAddr, IpAddr),
    /// A port of a well-known service, or none (RFC 2577 section 3).
    #[error("a data connection to port {0}")]
    Port(u16),
    /// A line that begins as an announcement and does not go on so.
    #[error("a malformed announcement")]
    Malformed,
}

/// What a payload says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The first announcement.
    pub announced: Option<Result<Announced, Distrusted>>,
    /// Whether it ends with a line. The next payload begins one only then.
    pub ends_line: bool,
}

/// Bytes and lines that are looked at.
const BYTES: usize = 4096;
const LINES: usize = 32;

/// Reads a payload that begins with a line. `sender` is who sends it.
pub fn read(payload: &[u8], from_client: bool, sender: IpAddr) -> Lines {
    let mut start = 0;
    let mut announced = None;
    let looked_at = &payload[..payload.len().min(BYTES)];
    for line in looked_at.split_inclusive(|byte| *byte == b'\n').take(LINES) {
        let (whole, begin) = (line.strip_suffix(b"\n"), start);
        start += line.len();
        let Some(line) = whole else { break };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        announced = match from_client {
            true => command(line, begin),
            false => reply(line, begin),
        };
        if announced.is_some() {
            break;
        }
    }
    let announced = announced.map(|found| match found {
        Some(found) => check(found, from_client, sender),
        None => Err(Distrusted::Malformed),
    });
    Lines { announced, ends_line: payload.last() == Some(&b'\n') }
}

fn check(found: Announced, from_client: bool, sender: IpAddr) -> Result<Announced, Distrusted> {
    let found = match found.form {
        Form::Epsv => Announced { address: sender, ..found },
        _ => found,
    };
    if found.address != sender {
        return Err(Distrusted::OtherHost(sender, found.address));
    }
    if found.port == 0 || from_client && found.port < 1024 {
        return Err(Distrusted::Port(found.port));
    }
    Ok(found)
}

/// `None` if it is another command, `Some(None)` if it is malformed.
fn command(line: &[u8], begin: usize) -> Option<Option<Announced>> {
    let (word, rest) = line.split_at_checked(5)?;
    let place = begin + 5..begin + line.len();
    let found = |form, ends: Option<(IpAddr, u16)>| {
        ends.map(|(address, port)| Announced { form, address, port, place })
    };
    match () {
        () if word.eq_ignore_ascii_case(b"PORT ") => Some(found(Form::Port, six_numbers(rest))),
        () if word.eq_ignore_ascii_case(b"EPRT ") => Some(found(Form::Eprt, extended(rest))),
        () => None,
    }
}

fn reply(line: &[u8], begin: usize) -> Option<Option<Announced>> {
    let form = match line.first_chunk()? {
        b"227 " => Form::Pasv,
        b"229 " => Form::Epsv,
        _ => return None,
    };
    let inner = || {
        let open = line.iter().position(|byte| *byte == b'(')? + 1;
        let close = open + line[open..].iter().position(|byte| *byte == b')')?;
        let (address, port) = match form {
            Form::Pasv => six_numbers(&line[open..close])?,
            _ => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), extended_port(&line[open..close])?),
        };
        Some(Announced { form, address, port, place: begin + open..begin + close })
    };
    Some(inner())
}

/// A decimal number without sign, of three or five digits at most.
fn number(text: &[u8], most: u32) -> Option<u16> {
    let digits = if most > 255 { 5 } else { 3 };
    if text.is_empty() || text.len() > digits || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = text.iter().fold(0u32, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    (number <= most).then_some(number as u16)
}

/// `h1,h2,h3,h4,p1,p2`.
fn six_numbers(text: &[u8]) -> Option<(IpAddr, u16)> {
    let mut numbers = [0u8; 6];
    let mut parts = text.split(|byte| *byte == b',');
    for place in &mut numbers {
        *place = number(parts.next()?, 255)? as u8;
    }
    if parts.next().is_some() {
        return None;
    }
    let [a, b, c, d, high, low] = numbers;
    Some((IpAddr::V4(Ipv4Addr::new(a, b, c, d)), u16::from_be_bytes([high, low])))
}

/// `|1|address|port|`, with any printable delimiter (RFC 2428 section 2).
fn extended(text: &[u8]) -> Option<(IpAddr, u16)> {
    let delimiter = *text.first().filter(|byte| byte.is_ascii_graphic())?;
    let parts: [&[u8]; 5] = parts(text, delimiter)?;
    let [before, family, address, port, after] = parts;
    let address: IpAddr = core::str::from_utf8(address).ok()?.parse().ok()?;
    let is_right = match family {
        b"1" => address.is_ipv4(),
        b"2" => address.is_ipv6(),
        _ => false,
    };
    let is_alone = before.is_empty() && after.is_empty();
    (is_right && is_alone).then_some((address, number(port, 65_535)?))
}

/// `|||port|` (RFC 2428 section 3).
fn extended_port(text: &[u8]) -> Option<u16> {
    let delimiter = *text.first().filter(|byte| byte.is_ascii_graphic())?;
    let [a, b, c, port, after] = parts(text, delimiter)?;
    let is_alone = [a, b, c, after].iter().all(|part| part.is_empty());
    if is_alone { number(port, 65_535) } else { None }
}

/// Exactly so many parts.
fn parts<const COUNT: usize>(text: &[u8], delimiter: u8) -> Option<[&[u8]; COUNT]> {
    let mut split = text.split(|byte| *byte == delimiter);
    let mut all = [&b""[..]; COUNT];
    for place in &mut all {
        *place = split.next()?;
    }
    split.next().is_none().then_some(all)
}

impl Announced {
    /// What to write at [`Announced::place`] when address and port are translated.
    pub fn translated(&self, address: IpAddr, port: u16) -> String {
        match (self.form, address) {
            (Form::Port | Form::Pasv, IpAddr::V4(address)) => {
                let [a, b, c, d] = address.octets();
                format!("{a},{b},{c},{d},{},{}", port >> 8, port & 255)
            }
            (Form::Epsv, _) => format!("|||{port}|"),
            (_, IpAddr::V4(address)) => format!("|1|{address}|{port}|"),
            (_, IpAddr::V6(address)) => format!("|2|{address}|{port}|"),
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn client(line: &str, sender: &str) -> Option<Result<(IpAddr, u16), Distrusted>> {
        let lines = read(line.as_bytes(), true, ip(sender));
        lines.announced.map(|found| found.map(|found| (found.address, found.port)))
    }

    fn server(line: &str, sender: &str) -> Option<Result<(IpAddr, u16), Distrusted>> {
        let lines = read(line.as_bytes(), false, ip(sender));
        lines.announced.map(|found| found.map(|found| (found.address, found.port)))
    }

    #[test]
    fn announcements_are_read() {
        let found = Some(Ok((ip("10.0.0.5"), 4660)));
        assert_eq!(client("PORT 10,0,0,5,18,52\r\n", "10.0.0.5"), found);
        assert_eq!(client("NOOP\r\nport 10,0,0,5,18,52\n", "10.0.0.5"), found);
        assert_eq!(client("EPRT |1|10.0.0.5|4660|\r\n", "10.0.0.5"), found);
        let v6 = client("EPRT |2|2001:db8::5|4660|\r\n", "2001:db8::5");
        assert_eq!(v6, Some(Ok((ip("2001:db8::5"), 4660))));
        let passive = server("227 Entering Passive Mode (10,0,0,5,0,80).\r\n", "10.0.0.5");
        assert_eq!(passive, Some(Ok((ip("10.0.0.5"), 80))));
        let passive = server("229 Extended (|||4660|)\r\n", "2001:db8::5");
        assert_eq!(passive, Some(Ok((ip("2001:db8::5"), 4660))));
        assert_eq!(server("226 Transfer (10,0,0,5,1,2)\r\n", "10.0.0.5"), None);
        assert_eq!(client("227 (10,0,0,5,18,52)\r\n", "10.0.0.5"), None);
    }

    #[test]
    fn strangers_and_services_are_not_believed() {
        let other = Distrusted::OtherHost(ip("10.0.0.5"), ip("10.0.0.6"));
        assert_eq!(client("PORT 10,0,0,6,18,52\r\n", "10.0.0.5"), Some(Err(other)));
        assert_eq!(client("EPRT |1|10.0.0.6|4660|\r\n", "10.0.0.5"), Some(Err(other)));
        assert_eq!(server("227 (10,0,0,6,18,52)\r\n", "10.0.0.5"), Some(Err(other)));
        let port = Some(Err(Distrusted::Port(25)));
        assert_eq!(client("PORT 10,0,0,5,0,25\r\n", "10.0.0.5"), port);
        assert_eq!(server("229 (|||0|)\r\n", "10.0.0.5"), Some(Err(Distrusted::Port(0))));
    }

    #[test]
    fn what_is_malformed_or_unfinished_is_not_guessed() {
        let malformed = Some(Err(Distrusted::Malformed));
        let wrong = [
            "PORT 10,0,0,5,18\r\n",
            "PORT 10,0,0,5,18,52,1\r\n",
            "PORT 10,0,0,5,18,256\r\n",
            "PORT 10,0,0,5,18,+5\r\n",
            "PORT 10,0,0,5,18,0052\r\n",
            "PORT 10,0,0,5,18,52 \r\n",
            "EPRT |1|10.0.0.5|65536|\r\n",
            "EPRT |2|10.0.0.5|4660|\r\n",
            "EPRT |1|10.0.0.5|4660\r\n",
            "EPRT 1|10.0.0.5|4660|\r\n",
        ];
        for line in wrong {
            assert_eq!(client(line, "10.0.0.5"), malformed, "{line}");
        }
        for line in ["227 Entering\r\n", "229 (|||x|)\r\n", "229 (||4660|)\r\n", "227 (1,2\r\n"] {
            assert_eq!(server(line, "10.0.0.5"), malformed, "{line}");
        }
        // The rest of the line comes in the next segment.
        let lines = read(b"PORT 10,0,0,5,18,5", true, ip("10.0.0.5"));
        assert_eq!(lines, Lines { announced: None, ends_line: false });
    }

    proptest! {
        #[test]
        fn no_payload_is_too_strange(payload: Vec<u8>, from_client: bool) {
            read(&payload, from_client, ip("10.0.0.5"));
            let line = [&b"EPRT "[..], &payload, b"\r\n"].concat();
            read(&line, true, ip("10.0.0.5"));
        }

        #[test]
        fn what_is_translated_reads_so(address: u32, port in 1024u16.., form in 0usize..3) {
            let address = IpAddr::V4(address.into());
            let line: &str = ["PORT 10,0,0,5,18,52\r\n", "EPRT |1|10.0.0.5|4660|\r\n",
                "227 Entering Passive Mode (10,0,0,5,18,52).\r\n"][form];
            let lines = read(line.as_bytes(), form < 2, ip("10.0.0.5"));
            let found = lines.announced.unwrap().unwrap();
            let mut text = line.to_string();
            text.replace_range(found.place.clone(), &found.translated(address, port));
            let again = read(text.as_bytes(), form < 2, address).announced.unwrap().unwrap();
            prop_assert_eq!((again.address, again.port), (address, port));
        }
    }
}
