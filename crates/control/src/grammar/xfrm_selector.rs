//! Selectors of policies.

use core::fmt::Display;
use core::str::FromStr;

use api::{Refusal, Selector};
use types::IpRange;

use super::words::{Words, prefix, shown};

/// The words that a selector is made of.
pub(super) const WORDS: &[&str] = &[
    "src",
    "dst",
    "proto",
    "sport",
    "dport",
    "type",
    "code",
    "dscp",
    "tcp-flags",
    "ttl",
    "hoplimit",
];

/// What parts are, and an example.
const PORTS: (&str, &str) = ("a port, or a range of them", "as in 53 or 5000-5999");
const OCTETS: (&str, &str) = ("a number, or a range of them", "as in 8 or 0-8");
const DSCP: (&str, &str) = ("a DSCP", "as in ef, 46 or 0x28/0x38");
const FLAGS: (&str, &str) = ("TCP flags and their mask", "as in syn/syn,ack");

/// Words of selectors that are not supported.
pub(super) const LATER: &[&str] = &["dev", "key"];

/// Which parts of a selector were given.
#[derive(Debug, Default)]
pub(super) struct SelectorWords {
    source: Option<Option<IpRange>>,
    destination: Option<Option<IpRange>>,
    selector: Selector,
}

impl SelectorWords {
    /// Takes a part of a selector, where the next word begins one.
    pub(super) fn take(&mut self, words: &mut Words<'_>) -> Result<bool, Refusal> {
        let selector = &mut self.selector;
        match words.peek() {
            Some("src") => take_addresses(words, "src", &mut self.source)?,
            Some("dst") => take_addresses(words, "dst", &mut self.destination)?,
            Some("proto") => {
                words.next();
                words.once("proto", &selector.protocol)?;
                let word = words.need("a protocol")?;
                selector.protocol = match word {
                    // Linux's number for any protocol.
                    "any" => None,
                    word => Some(word.parse().map_err(|_| {
                        words
                            .invalid(format!("there is no protocol '{}'", shown(word)))
                            .with_hint("a name, as in udp, or a number from 0 to 255")
                    })?),
                };
            }
            Some("sport") => take_text(words, "sport", &mut selector.source_ports, PORTS)?,
            Some("dport") => take_text(words, "dport", &mut selector.destination_ports, PORTS)?,
            Some("type") => take_text(words, "type", &mut selector.icmp_type, OCTETS)?,
            Some("code") => take_text(words, "code", &mut selector.icmp_code, OCTETS)?,
            Some("dscp") => take_text(words, "dscp", &mut selector.dscp, DSCP)?,
            Some("tcp-flags") => take_text(words, "tcp-flags", &mut selector.tcp_flags, FLAGS)?,
            // The same field of IPv4 and IPv6, under the name of either.
            Some(key @ ("ttl" | "hoplimit")) => {
                words.next();
                words.once(key, &selector.ttl)?;
                let number = words.number(key)?;
                selector.ttl = Some(u8::try_from(number).map_err(|_| {
                    words.invalid(format!("{key} '{number}'")).with_hint("a number from 0 to 255")
                })?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether nothing was given.
    pub(super) fn is_empty(&self) -> bool {
        self.source.is_none() && self.destination.is_none() && self.selector == Selector::default()
    }

    /// The selector, checked.
    pub(super) fn finish(&self, words: &Words<'_>) -> Result<Selector, Refusal> {
        let selector = self.unchecked();
        crate::check::selector(&selector).map_err(|fault| words.fault(fault))?;
        Ok(selector)
    }

    /// The selector as far as it was given.
    pub(super) fn unchecked(&self) -> Selector {
        Selector {
            source: self.source.flatten(),
            destination: self.destination.flatten(),
            ..self.selector
        }
    }
}

fn take_addresses(
    words: &mut Words<'_>,
    key: &str,
    into: &mut Option<Option<IpRange>>,
) -> Result<(), Refusal> {
    words.next();
    words.once(key, into)?;
    let word = words.need("addresses")?;
    *into = Some(match word {
        "any" | "all" | "default" => None,
        // A prefix first: it may be a short one, as in 10/8.
        word => Some(prefix(word).map(IpRange::from).or_else(|_| word.parse()).map_err(|why| {
            words
                .invalid(format!("{key} '{}': {why}", shown(word)))
                .with_hint("an address, a prefix, or a range as in 192.0.2.1-192.0.2.9")
        })?),
    });
    Ok(())
}

/// A part that has a text form of its own.
fn take_text<T: FromStr<Err: Display>>(
    words: &mut Words<'_>,
    key: &str,
    into: &mut Option<T>,
    (what, hint): (&str, &str),
) -> Result<(), Refusal> {
    words.next();
    words.once(key, into)?;
    let word = words.need(what)?;
    *into =
        Some(word.parse().map_err(|why| {
            words.invalid(format!("{key} '{}': {why}", shown(word))).with_hint(hint)
        })?);
    Ok(())
}
