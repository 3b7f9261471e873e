//! The IPv6 header (RFC 8200 section 3). [`crate::headers::parse`] is its judge.

use core::net::Ipv6Addr;

use crate::bytes::put;
use crate::headers::MAX_EXTENSION_HEADERS;
use types::Protocol;

/// Length of the header in bytes, without extension headers.
pub const HEADER_LENGTH: usize = 40;

/// The smallest MTU that a link may have (RFC 8200 section 5).
pub const MIN_MTU: u16 = 1280;

/// The header, without extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label: 20 bits, higher ones are not sent (RFC 6437).
    pub flow_label: u32,
    /// Length of what follows the header, in bytes.
    pub payload_length: u16,
    /// What follows.
    pub next_header: Protocol,
    /// How many hops are left.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

/// A packet with nothing in it, with hop limit 64, from and to nowhere.
impl Default for Header {
    fn default() -> Self {
        Self {
            traffic_class: 0,
            flow_label: 0,
            payload_length: 0,
            next_header: Protocol::NONE,
            hop_limit: 64,
            source: Ipv6Addr::UNSPECIFIED,
            destination: Ipv6Addr::UNSPECIFIED,
        }
    }
}

impl Header {
    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LENGTH] {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0xf_ffff);
        let mut header = [0; HEADER_LENGTH];
        put(&mut header, 0, &first.to_be_bytes());
        put(&mut header, 4, &self.payload_length.to_be_bytes());
        header[6] = self.next_header.0;
        header[7] = self.hop_limit;
        put(&mut header, 8, &self.source.octets());
        put(&mut header, 24, &self.destination.octets());
        header
    }
}

/// The flow label of the header at the start of `packet`; nothing where the packet is shorter.
#[inline]
pub fn flow_label(packet: &[u8]) -> Option<u32> {
    let first: &[u8; 4] = packet.first_chunk()?;
    Some(u32::from_be_bytes(*first) & 0xf_ffff)
}

/// Sets the hop limit. Fewer bytes than a header has are left as they are.
#[inline]
pub fn set_hop_limit(packet: &mut [u8], hop_limit: u8) {
    if let Some(header) = packet.first_chunk_mut::<HEADER_LENGTH>() {
        header[7] = hop_limit;
    }
}

/// Takes one from the hop limit. A hop limit of 0, or fewer bytes than a header has, is left as it
/// is.
#[inline]
pub fn decrement_hop_limit(packet: &mut [u8]) {
    if let Some(header) = packet.first_chunk_mut::<HEADER_LENGTH>() {
        header[7] = header[7].saturating_sub(1);
    }
}

/// Makes the packet go back to where it came from: swaps its addresses and sets its hop limit.
/// Fewer bytes than a header has are left as they are.
#[inline]
pub fn turn_around(packet: &mut [u8], hop_limit: u8) {
    if let Some(header) = packet.first_chunk_mut::<HEADER_LENGTH>() {
        header[7] = hop_limit;
        let (source, destination) = header[8..].split_at_mut(16);
        source.swap_with_slice(destination);
    }
}

/// Sets DSCP and ECN. Fewer bytes than a header has are left as they are.
#[inline]
pub fn set_traffic_class(packet: &mut [u8], traffic_class: u8) {
    if let Some(header) = packet.first_chunk_mut::<HEADER_LENGTH>() {
        header[0] = header[0] & 0xf0 | traffic_class >> 4;
        header[1] = traffic_class << 4 | header[1] & 0x0f;
    }
}

/// Sets the payload length. Fewer bytes than a header has are left as they are.
#[inline]
pub fn set_payload_length(packet: &mut [u8], payload_length: u16) {
    if let Some(header) = packet.first_chunk_mut::<HEADER_LENGTH>() {
        put(header, 4, &payload_length.to_be_bytes());
    }
}

/// Whether the packet is IPv6 and asks to be routed by its sender's list: a routing header of the
/// deprecated type 0 with segments left (RFC 5095).
///
/// Looks through hop-by-hop and destination options only, at most [`MAX_EXTENSION_HEADERS`] of
/// them, since a routing header may stand behind no others (RFC 8200 section 4.1).
pub fn source_routed(packet: &[u8]) -> bool {
    let Some((header, mut rest)) = packet.split_at_checked(HEADER_LENGTH) else { return false };
    let mut next = Protocol(header[6]);
    for _ in 0..MAX_EXTENSION_HEADERS {
        let Some(&[following, words, kind, left]) = rest.first_chunk() else { return false };
        match next {
            Protocol::ROUTING if kind == 0 && left != 0 => return header[0] >> 4 == 6,
            Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS | Protocol::ROUTING => {}
            _ => return false,
        }
        next = Protocol(following);
        rest = rest.get((usize::from(words) + 1) * 8..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_where_rfc_8200_puts_them() {
        let header = Header {
            traffic_class: 0xab,
            flow_label: 0xc_def0,
            payload_length: 0x0102,
            next_header: Protocol::UDP,
            hop_limit: 3,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes[..8], [0x6a, 0xbc, 0xde, 0xf0, 1, 2, 17, 3]);
        assert_eq!(bytes[8..10], [0x20, 0x01]);
        assert_eq!((bytes[23], bytes[39]), (1, 2));
        assert_eq!(flow_label(&bytes), Some(0xc_def0));
    }

    #[test]
    fn routing_header_zero_is_found_behind_options() {
        let chain = |first: Protocol, headers: &[u8]| {
            let header = Header {
                next_header: first,
                payload_length: headers.len() as u16,
                ..Header::default()
            };
            [header.to_bytes().as_slice(), headers].concat()
        };
        let routing = |kind: u8, left: u8| [59, 0, kind, left, 0, 0, 0, 0];
        assert!(source_routed(&chain(Protocol::ROUTING, &routing(0, 1))));
        assert!(!source_routed(&chain(Protocol::ROUTING, &routing(0, 0))));
        assert!(!source_routed(&chain(Protocol::ROUTING, &routing(4, 1))));
        assert!(!source_routed(&chain(Protocol::UDP, &routing(0, 1))));
        let behind = [[43, 0, 1, 4, 0, 0, 0, 0], routing(0, 2)].concat();
        assert!(source_routed(&chain(Protocol::DESTINATION_OPTIONS, &behind)));
        assert!(!source_routed(&[0x60; 39]));
    }

    proptest! {
        #[test]
        fn turned_around_packets_go_back(source: u128, destination: u128, new: u8) {
            let (source, destination) = (source.into(), destination.into());
            let header = Header { source, destination, ..Header::default() };
            let mut bytes = header.to_bytes();
            turn_around(&mut bytes, new);
            let back = Header { source: destination, destination: source, hop_limit: new, ..header };
            prop_assert_eq!(bytes, back.to_bytes());
        }

        #[test]
        fn setters_change_their_field_alone(header: [u8; HEADER_LENGTH], traffic_class: u8, length: u16) {
            let mut changed = header;
            set_traffic_class(&mut changed, traffic_class);
            set_payload_length(&mut changed, length);
            decrement_hop_limit(&mut changed);
            prop_assert_eq!(changed[0] << 4 | changed[1] >> 4, traffic_class);
            prop_assert_eq!(changed[0] >> 4, header[0] >> 4);
            prop_assert_eq!(flow_label(&changed), flow_label(&header));
            prop_assert_eq!(u16::from_be_bytes([changed[4], changed[5]]), length);
            prop_assert_eq!(changed[7], header[7].saturating_sub(1));
            prop_assert_eq!(&changed[8..], &header[8..]);
        }
    }
}
