//! Addresses, prefixes and ranges as strings in serde formats.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::address::{IpPrefix, IpRange, Mac, PortRange};

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

as_text!(Mac, IpPrefix, IpRange, PortRange);

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn a_wrong_text_is_quoted_with_its_reason() {
        let wrong = serde_json::from_str::<IpPrefix>("\"10.0.0.0/33\"").unwrap_err().to_string();
        assert!(wrong.starts_with("'10.0.0.0/33': the prefix length must be 0 to 32"), "{wrong}");
        let wrong = serde_json::from_str::<PortRange>("443").unwrap_err().to_string();
        assert!(wrong.contains("expected a string"), "{wrong}");
    }
}
