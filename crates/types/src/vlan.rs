//! VLANs (IEEE 802.1Q).

use core::fmt;
use core::str::FromStr;

/// A VLAN's number: 1 to 4094. IEEE 802.1Q clause 9.6 keeps 0 for frames that have a priority and
/// no VLAN, and reserves 4095.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanId(u16);

/// No VLAN may have this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAVlanId;

impl VlanId {
    /// The smallest.
    pub const MIN: u16 = 1;
    /// The largest.
    pub const MAX: u16 = 4094;
    /// Bytes that a tag adds to a frame.
    pub const TAG_LENGTH: usize = 4;

    /// The VLAN of this number.
    ///
    /// # Errors
    /// It is not one of 1 to 4094.
    pub const fn new(number: u16) -> Result<Self, NotAVlanId> {
        match number {
            Self::MIN..=Self::MAX => Ok(Self(number)),
            _ => Err(NotAVlanId),
        }
    }

    /// Its number.
    #[inline(always)]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for VlanId {
    type Err = NotAVlanId;

    fn from_str(text: &str) -> Result<Self, NotAVlanId> {
        Self::new(text.parse().map_err(|_| NotAVlanId)?)
    }
}

impl fmt::Display for NotAVlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a VLAN id, which is 1 to 4094")
    }
}

impl core::error::Error for NotAVlanId {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_1_to_4094_are_vlans() {
        for (number, right) in [(0, false), (1, true), (4094, true), (4095, false)] {
            assert_eq!(VlanId::new(number).is_ok(), right, "{number}");
            assert_eq!(number.to_string().parse::<VlanId>().is_ok(), right, "{number}");
        }
        assert_eq!("x".parse::<VlanId>(), Err(NotAVlanId));
        assert_eq!("100".parse::<VlanId>().unwrap().to_string(), "100");
    }
}
