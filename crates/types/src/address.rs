//! Addresses, prefixes and ranges, with the text forms that users write.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use thiserror::Error;

use crate::word::words;

/// Why a text is not the address, prefix or range it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// Neither IPv4 nor IPv6.
    #[error("not an IPv4 or IPv6 address")]
    Address,
    /// The length after the slash is missing, not a number, or too large.
    #[error("the prefix length must be 0 to 32 for IPv4, 0 to 128 for IPv6")]
    Length,
    /// Bits are set to the right of the prefix.
    #[error("bits are set beyond the prefix length")]
    HostBits,
    /// The ends of a range are of two families.
    #[error("both ends of a range must be of one address family")]
    Families,
    /// The first is greater than the last.
    #[error("the first of a range must not be greater than the last")]
    Reversed,
    /// Not 0 to 65535.
    #[error("a port is a number from 0 to 65535")]
    Port,
    /// Not 0 to 255.
    #[error("a number from 0 to 255 is needed, or a range of them as in 0-8")]
    Octet,
    /// Not six hexadecimal octets.
    #[error("a MAC address is six hexadecimal octets, as in 02:00:00:00:00:01")]
    Mac,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

words!(Family { V4 = "ipv4", V6 = "ipv6" });

impl Family {
    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// ff:ff:ff:ff:ff:ff
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether the group bit is set: multicast or broadcast.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or(AddressError::Mac)?;
            if part.is_empty() || part.len() > 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(AddressError::Mac);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| AddressError::Mac)?;
        }
        if parts.next().is_some() {
            return Err(AddressError::Mac);
        }
        Ok(Self(octets))
    }
}

/// An address and a prefix length. The address is kept as given, so `192.0.2.1/24` can name an
/// interface's own address; [`IpPrefix::network`] clears the host bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    address: IpAddr,
    length: u8,
}

impl IpPrefix {
    /// A prefix of `length` bits, host bits allowed.
    ///
    /// # Errors
    /// [`AddressError::Length`] when `length` is greater than the family's bits.
    pub const fn new(address: IpAddr, length: u8) -> Result<Self, AddressError> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if length > bits {
            return Err(AddressError::Length);
        }
        Ok(Self { address, length })
    }

    /// The prefix that holds `address` alone.
    pub const fn host(address: IpAddr) -> Self {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }

    /// The address as given, host bits included.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The prefix length in bits.
    pub const fn length(&self) -> u8 {
        self.length
    }

    /// Whether the prefix holds one address only.
    pub const fn is_host(&self) -> bool {
        self.length == if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// The same prefix with the host bits cleared.
    pub fn network(&self) -> Self {
        Self { address: self.range().first(), length: self.length }
    }

    /// Refuses bits beyond the prefix length, as iproute2 does for routes.
    ///
    /// # Errors
    /// [`AddressError::HostBits`].
    pub fn without_host_bits(self) -> Result<Self, AddressError> {
        if self.network() == self { Ok(self) } else { Err(AddressError::HostBits) }
    }

    /// First and last address.
    pub fn range(&self) -> IpRange {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                let bits = address.to_bits();
                IpRange {
                    first: Ipv4Addr::from_bits(bits & mask).into(),
                    last: Ipv4Addr::from_bits(bits | !mask).into(),
                }
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                let bits = address.to_bits();
                IpRange {
                    first: Ipv6Addr::from_bits(bits & mask).into(),
                    last: Ipv6Addr::from_bits(bits | !mask).into(),
                }
            }
        }
    }

    /// Whether `address` is of the same family and inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.range().contains(address)
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// `ADDRESS/LENGTH`, or an address alone for that one host, as iproute2 reads it.
impl FromStr for IpPrefix {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once('/') {
            None => Ok(Self::host(text.parse().map_err(|_| AddressError::Address)?)),
            Some((address, length)) => {
                let address = address.parse().map_err(|_| AddressError::Address)?;
                if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(AddressError::Length);
                }
                Self::new(address, length.parse().map_err(|_| AddressError::Length)?)
            }
        }
    }
}

/// An inclusive range of addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpRange {
    first: IpAddr,
    last: IpAddr,
}

impl IpRange {
    /// Every IPv4 address.
    pub const ALL_V4: Self =
        Self { first: IpAddr::V4(Ipv4Addr::UNSPECIFIED), last: IpAddr::V4(Ipv4Addr::BROADCAST) };
    /// Every IPv6 address.
    pub const ALL_V6: Self = Self {
        first: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        last: IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)),
    };

    /// From `first` to `last`, both inside.
    ///
    /// # Errors
    /// [`AddressError::Families`] or [`AddressError::Reversed`].
    pub fn new(first: IpAddr, last: IpAddr) -> Result<Self, AddressError> {
        if first.is_ipv4() != last.is_ipv4() {
            Err(AddressError::Families)
        } else if first > last {
            Err(AddressError::Reversed)
        } else {
            Ok(Self { first, last })
        }
    }

    /// The lowest address.
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// The highest address.
    pub const fn last(&self) -> IpAddr {
        self.last
    }

    /// Whether the range is of IPv6 addresses.
    pub const fn is_v6(&self) -> bool {
        self.first.is_ipv6()
    }

    /// Whether `address` is of the same family and inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address, self.last) {
            (IpAddr::V4(first), IpAddr::V4(address), IpAddr::V4(last)) => {
                first <= address && address <= last
            }
            (IpAddr::V6(first), IpAddr::V6(address), IpAddr::V6(last)) => {
                first <= address && address <= last
            }
            _ => false,
        }
    }

    /// The one prefix that is exactly this range, if there is one.
    pub fn as_prefix(&self) -> Option<IpPrefix> {
        let length = match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                (first.to_bits() ^ last.to_bits()).leading_zeros()
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                (first.to_bits() ^ last.to_bits()).leading_zeros()
            }
            _ => return None,
        };
        let prefix = IpPrefix { address: self.first, length: u8::try_from(length).ok()? };
        (prefix.range() == *self).then_some(prefix)
    }
}

impl From<IpPrefix> for IpRange {
    fn from(prefix: IpPrefix) -> Self {
        prefix.range()
    }
}

/// A prefix where the range is one, otherwise `FIRST-LAST`.
impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_prefix() {
            Some(prefix) => prefix.fmt(f),
            None => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// `ADDRESS`, `ADDRESS/LENGTH` or `FIRST-LAST`. Host bits of a prefix are ignored, as in iproute2's
/// selectors.
impl FromStr for IpRange {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once('-') {
            None => Ok(text.parse::<IpPrefix>()?.range()),
            Some((first, last)) => Self::new(
                first.parse().map_err(|_| AddressError::Address)?,
                last.parse().map_err(|_| AddressError::Address)?,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> Result<IpPrefix, AddressError> {
        text.parse()
    }

    fn range(text: &str) -> Result<IpRange, AddressError> {
        text.parse()
    }

    #[test]
    fn macs_are_six_octets() {
        assert_eq!("2:0:0:0:0:F".parse(), Ok(Mac([2, 0, 0, 0, 0, 15])));
        for wrong in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "02:00:00:00:00:0g",
            "02:00:00:00:00:+1",
            "02-00",
        ] {
            assert_eq!(wrong.parse::<Mac>(), Err(AddressError::Mac), "{wrong}");
        }
        assert!(Mac::BROADCAST.is_group() && !Mac([2, 0, 0, 0, 0, 1]).is_group());
    }

    #[test]
    fn prefixes_keep_their_host_bits() {
        let own = prefix("192.0.2.1/24").unwrap();
        assert_eq!(own.to_string(), "192.0.2.1/24");
        assert_eq!(own.network().to_string(), "192.0.2.0/24");
        assert_eq!(own.without_host_bits(), Err(AddressError::HostBits));
        assert_eq!(own.network().without_host_bits(), Ok(own.network()));
        assert!(
            own.contains("192.0.2.255".parse().unwrap())
                && !own.contains("192.0.3.0".parse().unwrap())
        );
        assert!(!own.contains("::1".parse().unwrap()));
        assert_eq!(prefix("192.0.2.1"), prefix("192.0.2.1/32"));
        assert!(prefix("2001:db8::1").unwrap().is_host());
        assert_eq!(prefix("0.0.0.0/0").unwrap().range(), IpRange::ALL_V4);
        assert_eq!(prefix("::/0").unwrap().range(), IpRange::ALL_V6);
    }

    #[test]
    fn wrong_prefixes_are_told_apart() {
        for (wrong, why) in [
            ("192.0.2/24", AddressError::Address),
            ("/24", AddressError::Address),
            ("192.0.2.0/", AddressError::Length),
            ("192.0.2.0/33", AddressError::Length),
            ("192.0.2.0/+8", AddressError::Length),
            ("192.0.2.0/256", AddressError::Length),
            ("2001:db8::/129", AddressError::Length),
        ] {
            assert_eq!(prefix(wrong), Err(why), "{wrong}");
        }
    }

    #[test]
    fn ranges_are_prefixes_where_they_can_be() {
        assert_eq!(range("192.0.2.0-192.0.2.255").unwrap().to_string(), "192.0.2.0/24");
        assert_eq!(range("192.0.2.1-192.0.2.255").unwrap().to_string(), "192.0.2.1-192.0.2.255");
        assert_eq!(range("192.0.2.255-192.0.3.0").unwrap().as_prefix(), None);
        assert_eq!(range("192.0.2.1/24"), range("192.0.2.0/24"));
        assert_eq!(range("192.0.2.2-192.0.2.1"), Err(AddressError::Reversed));
        assert_eq!(range("192.0.2.2-::1"), Err(AddressError::Families));
        assert!(IpRange::ALL_V6.is_v6() && !IpRange::ALL_V4.is_v6());
    }

    proptest! {
        #[test]
        fn texts_are_read_as_written(v4: (u32, u32), v6: (u128, u128), length in 0u8..=128, mac: [u8; 6]) {
            let (low, high) = (Ipv4Addr::from_bits(v4.0.min(v4.1)), Ipv4Addr::from_bits(v4.0.max(v4.1)));
            let narrow = IpRange::new(low.into(), high.into()).unwrap();
            prop_assert_eq!(narrow.to_string().parse(), Ok(narrow));
            let (low, high) = (Ipv6Addr::from_bits(v6.0.min(v6.1)), Ipv6Addr::from_bits(v6.0.max(v6.1)));
            let wide = IpRange::new(low.into(), high.into()).unwrap();
            prop_assert_eq!(wide.to_string().parse(), Ok(wide));
            let prefix = IpPrefix::new(low.into(), length).unwrap();
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
            prop_assert_eq!(prefix.range().as_prefix(), Some(prefix.network()));
            prop_assert_eq!(Mac(mac).to_string().parse(), Ok(Mac(mac)));
        }

        #[test]
        fn a_prefix_holds_what_shares_its_bits(address: u32, other: u32, length in 0u8..=32, near: bool) {
            // A near address differs in one of the last bits, so that both answers come up.
            let other = if near { address ^ 1 << (other % 32) } else { other };
            let prefix = IpPrefix::new(Ipv4Addr::from_bits(address).into(), length).unwrap();
            let shared = (0..length).all(|bit| (address ^ other) << bit >> 31 == 0);
            prop_assert_eq!(prefix.contains(Ipv4Addr::from_bits(other).into()), shared);
        }
    }
}
