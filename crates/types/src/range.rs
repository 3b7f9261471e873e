//! Ranges of ports and of ICMP types and codes, with the text forms that users write.

use core::fmt;
use core::str::FromStr;

use crate::address::AddressError;

/// An inclusive range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// An inclusive range of ICMP types or codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OctetRange {
    first: u8,
    last: u8,
}

/// What both ranges can do. `$wrong` is the error for a text that is no number of the range.
macro_rules! range {
    ($range:ident, $number:ty, $wrong:expr) => {
        impl $range {
            /// Every number.
            pub const ALL: Self = Self { first: 0, last: <$number>::MAX };

            /// From `first` to `last`, both inside.
            ///
            /// # Errors
            /// [`AddressError::Reversed`].
            pub const fn new(first: $number, last: $number) -> Result<Self, AddressError> {
                if first > last { Err(AddressError::Reversed) } else { Ok(Self { first, last }) }
            }

            /// The lowest.
            pub const fn first(&self) -> $number {
                self.first
            }

            /// The highest.
            pub const fn last(&self) -> $number {
                self.last
            }

            /// Whether every number is inside.
            pub const fn is_all(&self) -> bool {
                self.first == 0 && self.last == <$number>::MAX
            }

            /// Whether `number` is inside.
            pub const fn contains(&self, number: $number) -> bool {
                self.first <= number && number <= self.last
            }
        }

        /// The range that holds one number.
        impl From<$number> for $range {
            fn from(number: $number) -> Self {
                Self { first: number, last: number }
            }
        }

        /// `NUMBER`, or `FIRST-LAST`.
        impl fmt::Display for $range {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.first == self.last {
                    write!(f, "{}", self.first)
                } else {
                    write!(f, "{}-{}", self.first, self.last)
                }
            }
        }

        impl FromStr for $range {
            type Err = AddressError;

            fn from_str(text: &str) -> Result<Self, AddressError> {
                let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
                    true => text.parse().map_err(|_| $wrong),
                    false => Err($wrong),
                };
                match text.split_once('-') {
                    None => number(text).map(|number| Self { first: number, last: number }),
                    Some((first, last)) => Self::new(number(first)?, number(last)?),
                }
            }
        }
    };
}

range!(PortRange, u16, AddressError::Port);
range!(OctetRange, u8, AddressError::Octet);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_and_their_ranges() {
        let ports = |text: &str| text.parse::<PortRange>();
        assert_eq!(ports("0-65535"), Ok(PortRange::ALL));
        assert!(ports("80-443").unwrap().contains(443) && !ports("80-443").unwrap().contains(79));
        assert_eq!(ports("443-80"), Err(AddressError::Reversed));
        for wrong in ["", "65536", "+1", "80-", "http"] {
            assert_eq!(ports(wrong), Err(AddressError::Port), "{wrong}");
        }
    }

    #[test]
    fn octets_and_their_ranges() {
        let octets = |text: &str| text.parse::<OctetRange>();
        assert_eq!(octets("0-255"), Ok(OctetRange::ALL));
        assert_eq!(octets("8"), OctetRange::new(8, 8));
        assert_eq!(octets("8-0"), Err(AddressError::Reversed));
        for wrong in ["", "256", "+1", "8-", "echo"] {
            assert_eq!(octets(wrong), Err(AddressError::Octet), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn texts_are_read_as_written(ports: (u16, u16), octets: (u8, u8)) {
            let ports = PortRange::new(ports.0.min(ports.1), ports.0.max(ports.1)).unwrap();
            prop_assert_eq!(ports.to_string().parse(), Ok(ports));
            let octets = OctetRange::new(octets.0.min(octets.1), octets.0.max(octets.1)).unwrap();
            prop_assert_eq!(octets.to_string().parse(), Ok(octets));
        }
    }
}
