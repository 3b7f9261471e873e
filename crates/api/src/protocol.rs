//! Names of IP protocols, as /etc/protocols and so iproute2 have them.

use core::fmt;

use serde::{Deserializer, Serializer, de};
use wire::Protocol;

/// The names known, with their numbers. Where there are several of one number, the first is the one
/// shown.
const NAMES: &[(&str, u8)] = &[
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("ospf", 89),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("mobility-header", 135),
    ("udplite", 136),
];

/// The protocol that `text` names, by name or number.
pub fn parse(text: &str) -> Option<Protocol> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().map(Protocol);
    }
    NAMES.iter().find(|(name, _)| *name == text).map(|(_, number)| Protocol(*number))
}

/// The protocol's name, or its number.
pub fn name(protocol: Protocol) -> String {
    NAMES
        .iter()
        .find(|(_, number)| *number == protocol.0)
        .map_or_else(|| protocol.0.to_string(), |(name, _)| (*name).to_owned())
}

/// An optional protocol in serde formats: a name, or a number.
pub mod optional {
    use super::{Deserializer, Protocol, Serializer, Visitor, name};

    /// Writes the name.
    ///
    /// # Errors
    /// The format's own.
    pub fn serialize<S: Serializer>(
        protocol: &Option<Protocol>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match protocol {
            Some(protocol) => serializer.serialize_str(&name(*protocol)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a name or a number.
    ///
    /// # Errors
    /// Not a protocol.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Protocol>, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = Option<Protocol>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an IP protocol by name, as in \"tcp\", or by number from 0 to 255")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        parse(text).map(Some).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        match u8::try_from(number) {
            Ok(number) => Ok(Some(Protocol(number))),
            Err(_) => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_and_names_written() {
        assert_eq!(parse("tcp"), Some(Protocol::TCP));
        assert_eq!(parse("icmpv6"), Some(Protocol::ICMPV6));
        assert_eq!(parse("253"), Some(Protocol(253)));
        assert_eq!(parse("256"), None);
        assert_eq!(parse(""), None);
        assert_eq!(parse("tpc"), None);
        assert_eq!(name(Protocol::ICMPV6), "ipv6-icmp");
        assert_eq!(name(Protocol(253)), "253");
        for number in 0..=255 {
            assert_eq!(parse(&name(Protocol(number))), Some(Protocol(number)));
        }
    }
}
