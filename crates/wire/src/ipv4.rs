//! The IPv4 header (RFC 791 section 3.1): its bytes and its options. [`crate::headers::parse`] is
//! its judge.

use core::net::Ipv4Addr;

use crate::bytes::put;
use crate::checksum;
use crate::headers::Malformed;
use types::Protocol;

/// Length of a header without options, in bytes.
pub const HEADER_LENGTH: usize = 20;

/// Length of a header with as many options as fit, in bytes.
pub const MAX_HEADER_LENGTH: usize = 60;

/// The smallest MTU that a link may have (RFC 791 section 3.2).
pub const MIN_MTU: u16 = 68;

/// A header without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Length of header and payload, in bytes.
    pub total_length: u16,
    /// Names the datagram that fragments belong to.
    pub identification: u16,
    /// No router may fragment this packet.
    pub dont_fragment: bool,
    /// Not the last fragment.
    pub more_fragments: bool,
    /// Offset of the payload in its datagram, in bytes: a multiple of 8, lower bits are not sent.
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// What follows.
    pub protocol: Protocol,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

/// A whole packet without payload, with TTL 64 (RFC 1700), from and to nowhere.
impl Default for Header {
    fn default() -> Self {
        Self {
            traffic_class: 0,
            total_length: HEADER_LENGTH as u16,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: Protocol::default(),
            source: Ipv4Addr::UNSPECIFIED,
            destination: Ipv4Addr::UNSPECIFIED,
        }
    }
}

impl Header {
    /// The header's bytes, with its checksum.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LENGTH] {
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        let mut header = [0; HEADER_LENGTH];
        header[0] = 0x45;
        header[1] = self.traffic_class;
        put(&mut header, 2, &self.total_length.to_be_bytes());
        put(&mut header, 4, &self.identification.to_be_bytes());
        put(&mut header, 6, &(flags | (self.fragment_offset / 8)).to_be_bytes());
        header[8] = self.ttl;
        header[9] = self.protocol.0;
        put(&mut header, 12, &self.source.octets());
        put(&mut header, 16, &self.destination.octets());
        let checksum = !checksum::of_20(&header);
        put(&mut header, 10, &checksum.to_be_bytes());
        header
    }
}

/// Length of the header at the start of `packet` in bytes, options included, where the packet is
/// IPv4 and has that many.
#[inline]
pub fn header_length(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    let length = usize::from(first & 0xf) * 4;
    (first >> 4 == 4 && length >= HEADER_LENGTH && length <= packet.len()).then_some(length)
}

/// Sets DSCP and ECN, and brings the header's checksum along. Fewer bytes than a header has are
/// left as they are.
#[inline]
pub fn set_traffic_class(packet: &mut [u8], traffic_class: u8) {
    let Some(header) = packet.first_chunk_mut::<HEADER_LENGTH>() else { return };
    let old = u16::from_be_bytes([header[0], header[1]]);
    header[1] = traffic_class;
    update_checksum(header, old, u16::from_be_bytes([header[0], traffic_class]));
}

/// Sets the TTL, and brings the header's checksum along. Fewer bytes than a header has are left as
/// they are.
#[inline]
pub fn set_ttl(packet: &mut [u8], ttl: u8) {
    let Some(header) = packet.first_chunk_mut::<HEADER_LENGTH>() else { return };
    let old = u16::from_be_bytes([header[8], header[9]]);
    header[8] = ttl;
    update_checksum(header, old, u16::from_be_bytes([ttl, header[9]]));
}

/// Sets the total length, and brings the header's checksum along. Fewer bytes than a header has are
/// left as they are.
#[inline]
pub fn set_total_length(packet: &mut [u8], total_length: u16) {
    let Some(header) = packet.first_chunk_mut::<HEADER_LENGTH>() else { return };
    let old = u16::from_be_bytes([header[2], header[3]]);
    put(header, 2, &total_length.to_be_bytes());
    update_checksum(header, old, total_length);
}

/// Makes the packet go back to where it came from: swaps its addresses and sets its TTL, and brings
/// the header's checksum along. Fewer bytes than a header has are left as they are.
#[inline]
pub fn turn_around(packet: &mut [u8], ttl: u8) {
    let Some(header) = packet.first_chunk_mut::<HEADER_LENGTH>() else { return };
    // A sum does not care which address comes first.
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    put(header, 12, &[d0, d1, d2, d3, s0, s1, s2, s3]);
    let old = u16::from_be_bytes([header[8], header[9]]);
    header[8] = ttl;
    update_checksum(header, old, u16::from_be_bytes([ttl, header[9]]));
}

/// Computes the checksum of the header at the start of `packet` anew. Bytes that are no header are
/// left as they are.
pub fn fill_checksum(packet: &mut [u8]) {
    let Some(length) = header_length(packet) else { return };
    if let Some(header) = packet.get_mut(..length) {
        header[10..12].fill(0);
        let checksum = checksum::checksum(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Whether the packet is IPv4 and asks to be routed by its sender's list: loose or strict source
/// route (RFC 7126 sections 4.3 and 4.4).
pub fn source_routed(packet: &[u8]) -> bool {
    options(packet)
        .map_while(Result::ok)
        .any(|option| matches!(option.kind, OPTION_LSRR | OPTION_SSRR))
}

/// The options in the header at the start of `packet`, without padding. None where it is no IPv4
/// header.
///
/// Yields [`Malformed::Option`] and ends where an option runs past the header or says a length
/// below 2.
pub fn options(packet: &[u8]) -> Options<'_> {
    let rest = header_length(packet).and_then(|length| packet.get(HEADER_LENGTH..length));
    Options { rest: rest.unwrap_or_default() }
}

/// End of option list.
pub const OPTION_END: u8 = 0;
/// No operation.
pub const OPTION_NOP: u8 = 1;
/// Loose source and record route.
pub const OPTION_LSRR: u8 = 131;
/// Strict source and record route.
pub const OPTION_SSRR: u8 = 137;

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpOption<'a> {
    /// Copied flag, class and number, in one octet.
    pub kind: u8,
    /// The whole option, with its kind and length octets.
    pub bytes: &'a [u8],
}

impl IpOption<'_> {
    /// Whether every fragment has the option, and not the first alone (RFC 791 section 3.1).
    pub const fn is_copied(&self) -> bool {
        self.kind & 0x80 != 0
    }
}

/// See [`options`].
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<IpOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [OPTION_NOP, rest @ ..] = self.rest {
            self.rest = rest;
        }
        let rest = core::mem::take(&mut self.rest);
        let (&kind, behind) = rest.split_first()?;
        if kind == OPTION_END {
            return None;
        }
        let length = behind.first().map_or(0, |&length| usize::from(length));
        match rest.split_at_checked(length) {
            Some((bytes, rest)) if length >= 2 => {
                self.rest = rest;
                Some(Ok(IpOption { kind, bytes }))
            }
            _ => Some(Err(Malformed::Option)),
        }
    }
}

#[inline]
fn update_checksum(header: &mut [u8; HEADER_LENGTH], old: u16, new: u16) {
    let checksum = checksum::update_u16(u16::from_be_bytes([header[10], header[11]]), old, new);
    put(header, 10, &checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_known_header_with_its_checksum() {
        let header = Header {
            total_length: 115,
            identification: 0,
            dont_fragment: true,
            ttl: 64,
            protocol: Protocol::UDP,
            source: Ipv4Addr::new(192, 168, 0, 1),
            destination: Ipv4Addr::new(192, 168, 0, 199),
            ..Header::default()
        };
        let expected = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(header.to_bytes(), expected);
    }

    fn with_options(options: &[u8]) -> Vec<u8> {
        let mut packet = Header::default().to_bytes().to_vec();
        packet.extend(options);
        packet[0] = 0x40 | (packet.len() / 4) as u8;
        packet
    }

    #[test]
    fn options_are_found_between_padding() {
        let packet = with_options(&[1, 131, 3, 4, 1, 7, 4, 4, 9, 0, 255, 255]);
        let found: Vec<_> = options(&packet).collect();
        let loose = IpOption { kind: 131, bytes: &[131, 3, 4] };
        let record = IpOption { kind: 7, bytes: &[7, 4, 4, 9] };
        assert_eq!(found, [Ok(loose), Ok(record)]);
        assert!(loose.is_copied() && !record.is_copied());
        assert!(source_routed(&packet));
        assert!(source_routed(&with_options(&[137, 4, 4, 0])));
        assert!(!source_routed(&with_options(&[7, 4, 4, 9])));
        // Behind the end of the list, bytes are padding.
        assert!(!source_routed(&with_options(&[0, 131, 3, 4])));
        let mut v6 = packet;
        v6[0] = 0x68;
        assert!(!source_routed(&v6));
    }

    #[test]
    fn malformed_options_end_the_list() {
        for bad in [[131, 0, 0, 0], [131, 1, 0, 0], [131, 5, 0, 0], [1, 1, 1, 131]] {
            assert_eq!(
                options(&with_options(&bad)).collect::<Vec<_>>(),
                [Err(Malformed::Option)],
                "{bad:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn setters_keep_the_checksum_right(
            traffic_class: u8, total_length: u16, identification: u16, ttl: u8, source: u32,
        ) {
            let header = Header { identification, ttl, source: source.into(), ..Header::default() };
            let mut bytes = header.to_bytes();
            set_traffic_class(&mut bytes, traffic_class);
            set_total_length(&mut bytes, total_length);
            let anew = Header { traffic_class, total_length, ..header }.to_bytes();
            prop_assert_eq!(bytes, anew);
            bytes[10..12].fill(0x77);
            fill_checksum(&mut bytes);
            prop_assert_eq!(bytes, anew);
        }

        #[test]
        fn turned_around_packets_go_back(source: u32, destination: u32, ttl: u8, new: u8) {
            let (source, destination) = (source.into(), destination.into());
            let header = Header { source, destination, ttl, ..Header::default() };
            let mut bytes = header.to_bytes();
            turn_around(&mut bytes, new);
            let back = Header { source: destination, destination: source, ttl: new, ..header };
            prop_assert_eq!(bytes, back.to_bytes());
        }

        #[test]
        fn options_never_pass_the_header(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let length: usize = options(&bytes).map_while(Result::ok).map(|option| option.bytes.len()).sum();
            prop_assert!(length <= header_length(&bytes).unwrap_or(HEADER_LENGTH) - HEADER_LENGTH);
        }
    }
}
