//! VLANs (IEEE 802.1Q, and IEEE 802.1ad for those of a provider).

use core::fmt;
use core::str::FromStr;

use crate::word::words;

/// What kind of tag frames of a VLAN have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VlanProtocol {
    /// A customer tag (IEEE 802.1Q), of EtherType 0x8100.
    #[default]
    Customer,
    /// A service tag (IEEE 802.1ad), of EtherType 0x88a8.
    Service,
}

words!(VlanProtocol { Customer = "802.1Q", Service = "802.1ad" });

impl VlanProtocol {
    /// The EtherType in front of the tag (IEEE 802.1Q clause 9.5).
    pub const fn ether_type(self) -> u16 {
        match self {
            Self::Customer => 0x8100,
            Self::Service => 0x88a8,
        }
    }
}

/// What tells frames of a VLAN from others on the link: the kind of tag, and the number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanTag {
    /// The kind.
    pub protocol: VlanProtocol,
    /// The number.
    pub id: VlanId,
}

impl VlanTag {
    /// The customer tag of a VLAN.
    pub const fn customer(id: VlanId) -> Self {
        Self { protocol: VlanProtocol::Customer, id }
    }

    /// The service tag of a VLAN.
    pub const fn service(id: VlanId) -> Self {
        Self { protocol: VlanProtocol::Service, id }
    }
}

/// `VLAN 100`, and of a service tag `802.1ad VLAN 100`.
impl fmt::Display for VlanTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            VlanProtocol::Customer => write!(f, "VLAN {}", self.id),
            VlanProtocol::Service => write!(f, "{} VLAN {}", self.protocol, self.id),
        }
    }
}

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
    /// The most tags of a frame: a VLAN, and a VLAN of that (IEEE 802.1ad).
    pub const MAX_TAGS: usize = 2;

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
        let id = VlanId::new(10).unwrap();
        assert_eq!(VlanTag::customer(id).to_string(), "VLAN 10");
        assert_eq!(VlanTag::service(id).to_string(), "802.1ad VLAN 10");
    }
}
