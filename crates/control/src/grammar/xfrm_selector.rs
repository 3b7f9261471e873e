//! Selectors of policies and of filters' rules.

use core::fmt::Display;
use core::str::FromStr;

use api::{Refusal, Selector};
use types::{DscpSelector, IpRange};

use super::words::{Words, number};

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

/// Protocols that are often meant.
pub(super) const PROTOCOLS: &[&str] =
    &["tcp", "udp", "icmp", "ipv6-icmp", "sctp", "esp", "gre", "ospf", "any"];

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
    /// Whether `sport 0` and `dport 0` mean any port, as in policies.
    is_policy: bool,
}

/// A part of a selector.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Source,
    Destination,
    Protocol,
    SourcePorts,
    DestinationPorts,
    IcmpType,
    IcmpCode,
    Dscp,
    TcpFlags,
    Ttl,
}

/// The part that a word of iproute2's begins.
pub(super) fn part(word: &str) -> Option<Part> {
    Some(match word {
        "src" => Part::Source,
        "dst" => Part::Destination,
        "proto" => Part::Protocol,
        "sport" => Part::SourcePorts,
        "dport" => Part::DestinationPorts,
        "type" => Part::IcmpType,
        "code" => Part::IcmpCode,
        "dscp" => Part::Dscp,
        "tcp-flags" => Part::TcpFlags,
        // The same field of IPv4 and IPv6, under the name of either.
        "ttl" | "hoplimit" => Part::Ttl,
        _ => return None,
    })
}

impl SelectorWords {
    /// Of a policy, in which port 0 means any, as with iproute2.
    pub(super) fn of_policy() -> Self {
        Self { is_policy: true, ..Self::default() }
    }

    /// Takes a part of a selector, where the next word begins one.
    pub(super) fn take(&mut self, words: &mut Words<'_>) -> Result<bool, Refusal> {
        match words.peek().and_then(|word| Some((word, part(word)?))) {
            Some((word, part)) => self.take_part(words, word, part).map(|()| true),
            None => Ok(false),
        }
    }

    /// Takes a part of a selector, which begins with the next word.
    pub(super) fn take_part(
        &mut self,
        words: &mut Words<'_>,
        key: &str,
        part: Part,
    ) -> Result<(), Refusal> {
        let selector = &mut self.selector;
        let is_any_port = self.is_policy
            && matches!(part, Part::SourcePorts | Part::DestinationPorts)
            && words.after_next().and_then(number) == Some(0);
        match part {
            _ if is_any_port => {
                words.next();
                words.next();
                Ok(())
            }
            Part::Source => take_addresses(words, key, &mut self.source),
            Part::Destination => take_addresses(words, key, &mut self.destination),
            Part::Protocol => {
                words.next();
                words.once(key, &selector.protocol)?;
                words.offers(PROTOCOLS);
                let word = words.need("a protocol")?;
                selector.protocol = match word {
                    // Linux's number for any protocol.
                    "any" => None,
                    word => Some(word.parse().map_err(|_| {
                        words
                            .invalid(format!("there is no protocol '{}'", words.shown(word)))
                            .with_hint("a name, as in udp, or a number from 0 to 255")
                    })?),
                };
                Ok(())
            }
            Part::SourcePorts => take_text(words, key, &mut selector.source_ports, PORTS),
            Part::DestinationPorts => take_text(words, key, &mut selector.destination_ports, PORTS),
            Part::IcmpType => take_text(words, key, &mut selector.icmp_type, OCTETS),
            Part::IcmpCode => take_text(words, key, &mut selector.icmp_code, OCTETS),
            Part::Dscp => take_text(words, key, &mut selector.dscp, DSCP),
            Part::TcpFlags => take_text(words, key, &mut selector.tcp_flags, FLAGS),
            Part::Ttl => {
                words.next();
                words.once(key, &selector.ttl)?;
                let word = words.need("a number from 0 to 255")?;
                let ttl = number(word).and_then(|number| u8::try_from(number).ok());
                selector.ttl = Some(ttl.ok_or_else(|| {
                    words
                        .invalid(format!("{key} '{}'", words.shown(word)))
                        .with_hint("a number from 0 to 255")
                })?);
                Ok(())
            }
        }
    }

    /// Takes a DSCP as tc says it, by the whole octet that it is in.
    pub(super) fn take_octet(&mut self, words: &mut Words<'_>, key: &str) -> Result<(), Refusal> {
        words.next();
        words.once(key, &self.selector.dscp)?;
        let word = words.need("VALUE/MASK")?;
        let refuse = |why: String| {
            let hint = "as in 0xb8/0xfc, or dscp ef; the lower two bits are ECN, which rules do \
                not read";
            words.invalid(format!("{key} '{}': {why}", words.shown(word))).with_hint(hint)
        };
        let octet = |word: &str| {
            let number = number(word).and_then(|number| u8::try_from(number).ok());
            number.ok_or_else(|| refuse("expected a number from 0 to 0xff".to_owned()))
        };
        let Some((value, mask)) = word.split_once('/') else {
            octet(word)?;
            return Err(refuse("without a mask it means ECN too".to_owned()));
        };
        let (value, mask) = (octet(value)?, octet(mask)?);
        if (value | mask) & 3 != 0 {
            return Err(refuse("it means ECN too".to_owned()));
        }
        let dscp = DscpSelector::new(value >> 2, mask >> 2);
        self.selector.dscp = Some(dscp.map_err(|why| refuse(why.to_string()))?);
        Ok(())
    }

    /// Whether it has nothing but prefixes that hold every address.
    pub(super) fn is_everything(&self) -> bool {
        let every = |range: Option<Option<IpRange>>| {
            range.flatten().is_none()
                || ["0.0.0.0/0", "::/0"].iter().any(|all| all.parse().ok() == range.flatten())
        };
        self.selector == Selector::default() && every(self.source) && every(self.destination)
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
    *into = Some(words.range_or_all(key)?);
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
    *into = Some(word.parse().map_err(|why| {
        words.invalid(format!("{key} '{}': {why}", words.shown(word))).with_hint(hint)
    })?);
    Ok(())
}
