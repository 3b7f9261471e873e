//! The Ethernet II header (IEEE 802.3 clause 3.1) and its EtherTypes.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{array_at, put, u16_at};
use types::{Mac, VlanProtocol};

/// Length of the header in bytes, without VLAN tags.
pub const HEADER_LENGTH: usize = 14;

/// Length of one VLAN tag in bytes (IEEE 802.1Q clause 9.3).
pub const VLAN_TAG_LENGTH: usize = 4;

/// What a frame carries (IEEE registration authority). Below 0x0600 the field is an 802.3 length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// A customer VLAN tag follows (IEEE 802.1Q).
    pub const VLAN: Self = Self(VlanProtocol::Customer.ether_type());
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// A service VLAN tag follows (IEEE 802.1ad).
    pub const SERVICE_VLAN: Self = Self(VlanProtocol::Service.ether_type());

    /// What kind of VLAN tag follows, if one does.
    #[inline]
    pub const fn vlan_protocol(self) -> Option<VlanProtocol> {
        match self {
            Self::VLAN => Some(VlanProtocol::Customer),
            Self::SERVICE_VLAN => Some(VlanProtocol::Service),
            _ => None,
        }
    }

    /// The EtherType of an IP packet, told from the version in its first octet.
    pub fn of_ip(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Some(Self::IPV4),
            6 => Some(Self::IPV6),
            _ => None,
        }
    }
}

/// Shown in hexadecimal, as tcpdump does.
impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// A station's address, as the parser of common packets compares it.
#[inline]
pub fn station_word(Mac([a, b, c, d, e, f]): Mac) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) << NOT_COMPARED
}

/// Bits of the source address, behind its group bit, in the first word of a frame.
const NOT_COMPARED: u32 = 15;

/// Whether a frame is addressed to this one station (of [`station_word`]) and comes from one: the
/// destination, and the group bit of the source behind it, in one word.
#[inline(always)]
pub(crate) fn is_between_stations<const N: usize>(frame: &[u8; N], station: u64) -> bool {
    u64::from_le_bytes(array_at(frame, 0)) << NOT_COMPARED == station
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Who the frame is for.
    pub destination: Mac,
    /// Who sent it.
    pub source: Mac,
    /// What follows.
    pub ether_type: EtherType,
}

impl Header {
    /// Reads the header at the start of `frame`; nothing where the frame is shorter.
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LENGTH] = frame.first_chunk()?;
        Some(Self {
            destination: Mac(array_at(header, 0)),
            source: Mac(array_at(header, 6)),
            ether_type: EtherType(u16_at(header, 12)),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_LENGTH] {
        let mut header = [0; HEADER_LENGTH];
        put(&mut header, 0, &self.destination.0);
        put(&mut header, 6, &self.source.0);
        put(&mut header, 12, &self.ether_type.0.to_be_bytes());
        header
    }
}

/// What stands behind an EtherType that says that a VLAN tag follows (IEEE 802.1Q clause 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The VLAN's number, of 12 bits. 0 is none: the tag has a priority alone.
    pub vlan: u16,
    /// What follows the tag.
    pub ether_type: EtherType,
}

impl Tag {
    /// Reads the tag that begins `at` bytes into a frame, behind the EtherType that says so; nothing
    /// where the frame is shorter.
    #[inline]
    pub fn parse(frame: &[u8], at: usize) -> Option<Self> {
        let bytes: &[u8; VLAN_TAG_LENGTH] = frame.get(at..)?.first_chunk()?;
        let control = u16_at(bytes, 0);
        Some(Self { vlan: control & 0xfff, ether_type: EtherType(u16_at(bytes, 2)) })
    }
}

/// The MAC address that an IP multicast group is sent to; nothing for other addresses.
pub fn multicast_mac(group: IpAddr) -> Option<Mac> {
    match group {
        IpAddr::V4(group) if group.is_multicast() => Some(multicast_mac_v4(group)),
        IpAddr::V6(group) if group.is_multicast() => Some(multicast_mac_v6(group)),
        _ => None,
    }
}

/// The MAC address of an IPv4 multicast group: its low 23 bits behind 01:00:5e (RFC 1112 section
/// 6.4).
pub const fn multicast_mac_v4(group: Ipv4Addr) -> Mac {
    let [_, b, c, d] = group.octets();
    Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}

/// The MAC address of an IPv6 multicast group: its last 4 octets behind 33:33 (RFC 2464 section 7).
pub const fn multicast_mac_v6(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_where_the_standard_puts_them() {
        let frame = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45];
        let header = Header::parse(&frame).unwrap();
        assert_eq!(header.destination.to_string(), "02:00:00:00:00:01");
        assert_eq!(header.source.to_string(), "02:00:00:00:00:02");
        assert_eq!(header.ether_type, EtherType::IPV4);
        assert_eq!(Header::parse(&frame[..13]), None);
    }

    #[test]
    fn a_tag_is_behind_the_addresses() {
        // Priority 7, drop eligible, VLAN 100.
        let mut frame = [0; 18];
        frame[12..].copy_from_slice(&[0x81, 0x00, 0xf0, 100, 0x08, 0x06]);
        let tag = Tag { vlan: 100, ether_type: EtherType::ARP };
        assert_eq!(Tag::parse(&frame, HEADER_LENGTH), Some(tag));
        assert_eq!(Tag::parse(&frame[..17], HEADER_LENGTH), None);
        assert_eq!(Tag::parse(&frame, 19), None);
    }

    #[test]
    fn groups_map_to_their_macs() {
        // 224.128.0.251 differs from 224.0.0.251 in a bit that the mapping drops.
        assert_eq!(
            multicast_mac("224.128.0.251".parse().unwrap()).unwrap().to_string(),
            "01:00:5e:00:00:fb"
        );
        assert_eq!(
            multicast_mac("ff02::1:ff00:1".parse().unwrap()).unwrap().to_string(),
            "33:33:ff:00:00:01"
        );
        assert_eq!(multicast_mac("192.0.2.1".parse().unwrap()), None);
        assert_eq!(multicast_mac("2001:db8::1".parse().unwrap()), None);
    }

    #[test]
    fn ether_type_of_packets() {
        assert_eq!(EtherType::of_ip(&[0x45]), Some(EtherType::IPV4));
        assert_eq!(EtherType::of_ip(&[0x60]), Some(EtherType::IPV6));
        assert_eq!(EtherType::of_ip(&[0x50]), None);
        assert_eq!(EtherType::of_ip(&[]), None);
        assert_eq!(EtherType::IPV6.to_string(), "0x86dd");
        assert_eq!(EtherType::VLAN.vlan_protocol(), Some(VlanProtocol::Customer));
        assert_eq!(EtherType::SERVICE_VLAN.vlan_protocol(), Some(VlanProtocol::Service));
        assert_eq!(EtherType::ARP.vlan_protocol(), None);
    }

    proptest! {
        #[test]
        fn header_round_trips(bytes: [u8; HEADER_LENGTH]) {
            prop_assert_eq!(Header::parse(&bytes).unwrap().to_bytes(), bytes);
        }
    }
}
