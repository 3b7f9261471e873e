//! Differentiated services code points (RFC 2474), with the text forms that users write.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// A differentiated services code point: the upper six bits of IPv4's type-of-service octet and
/// IPv6's traffic class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

/// The highest code point, and the mask of all bits.
const MAX: u8 = 0x3f;

/// RFC 2474 (class selectors), RFC 2597 (assured forwarding), RFC 3246 (expedited forwarding),
/// RFC 5865 (voice admit), RFC 8622 (lower effort).
const NAMES: [(&str, u8); 23] = [
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// A text that is no code point, or no condition on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DscpError {
    /// Neither a name nor a number.
    #[error(
        "expected a number from 0 to 63, or cs0 to cs7, af11 to af43, ef, va or le; or VALUE/MASK"
    )]
    Unknown,
    /// A mask that is no number of six bits.
    #[error("the mask must be a number from 1 to 63, as in 0x38")]
    Mask,
    /// Bits of the value that the mask leaves out, so that no packet could match.
    #[error("the value {value:#04x} has bits that the mask {mask:#04x} has not")]
    Outside {
        /// The value.
        value: u8,
        /// The mask.
        mask: u8,
    },
}

impl Dscp {
    /// Of a type-of-service or traffic-class octet, whose lower two bits are ECN (RFC 3168).
    #[inline(always)]
    pub const fn from_traffic_class(octet: u8) -> Self {
        Self(octet >> 2)
    }

    /// The number, 0 to 63.
    #[inline(always)]
    pub const fn bits(self) -> u8 {
        self.0
    }

    fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(_, value)| *value == self.0).map(|(name, _)| *name)
    }
}

/// The number is at most 63.
impl TryFrom<u8> for Dscp {
    type Error = DscpError;

    fn try_from(number: u8) -> Result<Self, DscpError> {
        if number <= MAX { Ok(Self(number)) } else { Err(DscpError::Unknown) }
    }
}

/// By name where it has one, otherwise as a decimal number.
impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A name in either case, or a number, which is hexadecimal with `0x`.
impl FromStr for Dscp {
    type Err = DscpError;

    fn from_str(text: &str) -> Result<Self, DscpError> {
        match NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            Some((_, value)) => Ok(Self(*value)),
            None => Self::try_from(number(text).ok_or(DscpError::Unknown)?),
        }
    }
}

/// A condition on a packet's code point: some of its bits, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DscpSelector {
    value: u8,
    mask: u8,
}

impl DscpSelector {
    /// The bits of `mask` are those of `value`.
    ///
    /// # Errors
    /// [`DscpError`].
    pub const fn new(value: u8, mask: u8) -> Result<Self, DscpError> {
        if mask == 0 || mask > MAX {
            Err(DscpError::Mask)
        } else if value & !mask != 0 {
            Err(DscpError::Outside { value, mask })
        } else {
            Ok(Self { value, mask })
        }
    }

    /// What the bits of the mask are to be.
    pub const fn value(self) -> u8 {
        self.value
    }

    /// The bits that are looked at.
    pub const fn mask(self) -> u8 {
        self.mask
    }
}

/// This code point.
impl From<Dscp> for DscpSelector {
    fn from(dscp: Dscp) -> Self {
        Self { value: dscp.0, mask: MAX }
    }
}

/// A code point, or `VALUE/MASK` in hexadecimal.
impl fmt::Display for DscpSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mask == MAX {
            Dscp(self.value).fmt(f)
        } else {
            write!(f, "{:#04x}/{:#04x}", self.value, self.mask)
        }
    }
}

/// A code point, or `VALUE/MASK`.
impl FromStr for DscpSelector {
    type Err = DscpError;

    fn from_str(text: &str) -> Result<Self, DscpError> {
        let Some((value, mask)) = text.split_once('/') else {
            return text.parse::<Dscp>().map(Self::from);
        };
        Self::new(value.parse::<Dscp>()?.bits(), number(mask).ok_or(DscpError::Mask)?)
    }
}

/// A decimal number, or a hexadecimal one with `0x`.
pub(crate) fn number(text: &str) -> Option<u8> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        // Some read it as octal.
        None if text.len() > 1 && text.starts_with('0') => return None,
        None => (text, 10),
    };
    // `from_str_radix` would take a sign.
    let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_number.then(|| u8::from_str_radix(digits, radix).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_the_rfcs() {
        let number = |text: &str| text.parse::<Dscp>().map(Dscp::bits);
        for class in 0..8 {
            assert_eq!(number(&format!("CS{class}")), Ok(8 * class));
        }
        // RFC 2597 section 6.
        for (class, drop) in (1..=4).flat_map(|class| (1..=3).map(move |drop| (class, drop))) {
            assert_eq!(number(&format!("af{class}{drop}")), Ok(8 * class + 2 * drop));
        }
        assert_eq!([number("EF"), number("va"), number("Le")], [Ok(46), Ok(44), Ok(1)]);
        assert_eq!([number("63"), number("0x2E")], [Ok(63), Ok(46)]);
        for wrong in ["", "64", "-1", "+1", "010", "0x", "0x40", "cs8", "af44", "2e", "ef "] {
            assert_eq!(number(wrong), Err(DscpError::Unknown), "{wrong}");
        }
    }

    #[test]
    fn selectors_may_have_a_mask() {
        let selector = |text: &str| text.parse::<DscpSelector>();
        assert_eq!(selector("ef"), DscpSelector::new(46, 63));
        assert_eq!(selector("ef/0x3f").unwrap().to_string(), "ef");
        assert_eq!(selector("cs5/0x38").unwrap().to_string(), "0x28/0x38");
        assert_eq!(selector("ef/0x38"), Err(DscpError::Outside { value: 46, mask: 0x38 }));
        assert_eq!(
            selector("ef/0x38").unwrap_err().to_string(),
            "the value 0x2e has bits that the mask 0x38 has not"
        );
        for wrong in ["0/0", "0/64", "0/", "0/ef"] {
            assert_eq!(selector(wrong), Err(DscpError::Mask), "{wrong}");
        }
        for wrong in ["", "/", "/3", "gold"] {
            assert_eq!(selector(wrong), Err(DscpError::Unknown), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn texts_are_read_as_written(value in 0u8..64, mask in 1u8..64) {
            let dscp = Dscp::try_from(value).unwrap();
            prop_assert_eq!(dscp.to_string().parse(), Ok(dscp));
            let selector = DscpSelector::new(value & mask, mask).unwrap();
            prop_assert_eq!(selector.to_string().parse(), Ok(selector));
        }
    }
}
