//! The text forms as serde strings.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::address::{IpPrefix, IpRange, Mac};
use crate::dscp::DscpSelector;
use crate::filter::MarkBits;
use crate::mss::MssClamp;
use crate::policy_name::PolicyName;
use crate::protocol::Protocol;
use crate::qdisc::QdiscHandle;
use crate::range::{OctetRange, PortRange};
use crate::route::RouteProtocol;
use crate::tcp_flags::TcpFlagsSelector;
use crate::word::UnknownWord;

struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(|why| E::custom(format_args!("'{text}': {why}")))
    }
}

macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text(PhantomData))
            }
        }
    )*};
}

as_text!(
    Mac,
    IpPrefix,
    IpRange,
    PortRange,
    DscpSelector,
    TcpFlagsSelector,
    QdiscHandle,
    MarkBits,
    MssClamp,
    PolicyName,
    RouteProtocol
);

/// An enum by its words. An unknown word is refused with the words there are.
macro_rules! as_word {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::serde::OneWord::new())
            }
        }
    };
}
pub(crate) use as_word;

pub(crate) struct OneWord<T>(PhantomData<T>);

impl<T> OneWord<T> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: FromStr<Err = UnknownWord>> de::Visitor<'_> for OneWord<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(|why: UnknownWord| E::unknown_variant(text, why.expected))
    }
}

/// A text, or a number for what is written as one. `$expecting` says what is right.
macro_rules! as_text_or_number {
    ($type:ident, $expecting:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
                    }

                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$type, E> {
                        u8::try_from(number)
                            .map(<$type>::from)
                            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

as_text_or_number!(OctetRange, "a number from 0 to 255, or a range of them as in \"0-8\"");
as_text_or_number!(Protocol, "an IP protocol by name, as in \"tcp\", or by number from 0 to 255");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheTable, Direction};

    #[test]
    fn values_are_strings_both_ways() {
        fn check<T: Serialize + for<'de> Deserialize<'de> + PartialEq + fmt::Debug>(
            value: &T,
            text: &str,
        ) {
            let json = format!("\"{text}\"");
            assert_eq!(serde_json::to_string(value).unwrap(), json);
            assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value);
        }
        check(&Mac([2, 0, 0, 0, 0, 0x1f]), "02:00:00:00:00:1f");
        check(&"192.0.2.1/24".parse::<IpPrefix>().unwrap(), "192.0.2.1/24");
        check(&"2001:db8::/32".parse::<IpPrefix>().unwrap(), "2001:db8::/32");
        check(&"192.0.2.1-192.0.2.9".parse::<IpRange>().unwrap(), "192.0.2.1-192.0.2.9");
        check(&"10.0.0.0/8".parse::<IpRange>().unwrap(), "10.0.0.0/8");
        check(&PortRange::new(53, 53).unwrap(), "53");
        check(&PortRange::new(1024, 65_535).unwrap(), "1024-65535");
        check(&OctetRange::new(0, 8).unwrap(), "0-8");
        check(&DscpSelector::new(46, 63).unwrap(), "ef");
        check(&"syn/syn,ack".parse::<TcpFlagsSelector>().unwrap(), "syn/syn,ack");
        check(&Protocol::TCP, "tcp");
        check(&Direction::Fwd, "fwd");
        check(&CacheTable::V6Inbound, "ipv6-inbound");
    }

    #[test]
    fn a_wrong_text_is_quoted_with_its_reason() {
        let wrong = serde_json::from_str::<IpPrefix>("\"10.0.0.0/33\"").unwrap_err().to_string();
        assert!(wrong.starts_with("'10.0.0.0/33': the prefix length must be 0 to 32"), "{wrong}");
        let wrong = serde_json::from_str::<PortRange>("443").unwrap_err().to_string();
        assert!(wrong.contains("expected a string"), "{wrong}");
    }

    #[test]
    fn protocols_and_octets_may_be_numbers() {
        assert_eq!(serde_json::from_str::<Protocol>("17").unwrap(), Protocol::UDP);
        assert_eq!(serde_json::from_str::<OctetRange>("8").unwrap(), OctetRange::from(8));
        assert_eq!(serde_json::from_str::<Option<Protocol>>("null").unwrap(), None);
        for wrong in ["256", "-1", "\"tpc\"", "1.5"] {
            assert!(serde_json::from_str::<Protocol>(wrong).is_err(), "{wrong}");
            assert!(serde_json::from_str::<OctetRange>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        let wrong = serde_json::from_str::<Direction>("\"inn\"").unwrap_err().to_string();
        assert!(
            wrong.starts_with("unknown variant `inn`, expected one of `in`, `out`, `fwd`"),
            "{wrong}"
        );
    }
}
