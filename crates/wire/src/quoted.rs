//! The packet that an ICMP error is about.

use std::net::{Ipv4Addr, Ipv6Addr};

use types::{Addresses, FragmentClass, Protocol, Spi, Upper};

use crate::headers::{Headers, has_identifier, is_extension_header};
use crate::{icmpv4, icmpv6, ipv4};

/// Bytes of an ICMP header; what an error is about begins behind it.
const ICMP_HEADER: usize = 8;
/// Extension headers that are looked behind.
const MAX_EXTENSION_HEADERS: usize = 8;

/// Whether messages of this protocol and type quote the packet that they are about. Redirects do
/// too, and are never forwarded.
pub const fn is_error(protocol: Protocol, kind: u8) -> bool {
    match protocol {
        Protocol::ICMP => matches!(
            kind,
            icmpv4::DESTINATION_UNREACHABLE
                | icmpv4::SOURCE_QUENCH
                | icmpv4::TIME_EXCEEDED
                | icmpv4::PARAMETER_PROBLEM
        ),
        Protocol::ICMPV6 => matches!(
            kind,
            icmpv6::DESTINATION_UNREACHABLE
                | icmpv6::PACKET_TOO_BIG
                | icmpv6::TIME_EXCEEDED
                | icmpv6::PARAMETER_PROBLEM
        ),
        _ => false,
    }
}

/// The flow that an ICMP error is about, the other way round: from where that packet was going to
/// its sender. RFC 4301 section 6.2 judges errors by it, Linux where a state has `flag icmp`.
///
/// `None` if the packet is no ICMP error (RFC 792, RFC 4443), quotes too little, a later fragment,
/// or a packet of somebody else than the one it is sent to.
pub fn reversed(packet: &[u8], headers: &Headers) -> Option<(Addresses, Protocol, Upper)> {
    let (addresses, protocol, rest) = quote(packet, headers)?;
    Some((addresses, protocol, upper(protocol, headers.protocol, rest)?))
}

/// The addresses, the other way round, and the SPI of the ESP packet that an ICMP error is about.
///
/// `None` where [`reversed`] is, and if the error is about something else or quotes no SPI.
pub fn esp(packet: &[u8], headers: &Headers) -> Option<(Addresses, Spi)> {
    let (addresses, Protocol::ESP, rest) = quote(packet, headers)? else { return None };
    Some((addresses, Spi(u32::from_be_bytes(*rest.first_chunk()?))))
}

/// The packet that an ICMP error quotes, as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Its addresses.
    pub addresses: Addresses,
    /// Its upper-layer protocol.
    pub protocol: Protocol,
    /// Its upper-layer fields.
    pub upper: Upper,
    /// Its sequence number, if it is TCP.
    pub sequence: Option<u32>,
    /// Where the ICMP header, the quoted IP header and the header behind that begin in the packet.
    pub places: [usize; 3],
}

impl Quoted {
    /// `None` where [`reversed`] is.
    pub fn read(packet: &[u8], headers: &Headers) -> Option<Self> {
        let (turned, protocol, rest) = quote(packet, headers)?;
        let addresses = match turned {
            Addresses::V4 { source, destination } => {
                Addresses::V4 { source: destination, destination: source }
            }
            Addresses::V6 { source, destination } => {
                Addresses::V6 { source: destination, destination: source }
            }
        };
        let upper = match upper(protocol, headers.protocol, rest)? {
            Upper::Ports { source, destination } => {
                Upper::Ports { source: destination, destination: source }
            }
            other => other,
        };
        let sequence = match protocol {
            Protocol::TCP => {
                rest.get(4..8).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes)
            }
            _ => None,
        };
        let bytes = headers.upper_bytes(packet);
        let icmp = usize::from(headers.upper_offset);
        let places = [icmp, icmp + ICMP_HEADER, icmp + bytes.len() - rest.len()];
        Some(Self { addresses, protocol, upper, sequence, places })
    }
}

/// What is quoted: the addresses, the other way round, the protocol, and what follows the IP
/// header.
fn quote<'p>(packet: &'p [u8], headers: &Headers) -> Option<(Addresses, Protocol, &'p [u8])> {
    let Upper::Icmp { kind, .. } = headers.upper else { return None };
    if headers.fragment.class != FragmentClass::Whole || !is_error(headers.protocol, kind) {
        return None;
    }
    let quote = headers.upper_bytes(packet).get(ICMP_HEADER..)?;
    let (addresses, protocol, rest) = match (headers.protocol, headers.addresses) {
        (Protocol::ICMP, Addresses::V4 { .. }) => v4(quote)?,
        (Protocol::ICMPV6, Addresses::V6 { .. }) => v6(quote)?,
        _ => return None,
    };
    (addresses.destination() == headers.addresses.destination())
        .then_some((addresses, protocol, rest))
}

fn v4(quote: &[u8]) -> Option<(Addresses, Protocol, &[u8])> {
    let header: &[u8; ipv4::HEADER_LENGTH] = quote.first_chunk()?;
    let length = ipv4::header_length(quote)?;
    let later = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    let protocol = Protocol(header[9]);
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let addresses = Addresses::V4 { source: address(16), destination: address(12) };
    let rest = quote.get(length..)?;
    (!later).then_some((addresses, protocol, rest))
}

fn v6(quote: &[u8]) -> Option<(Addresses, Protocol, &[u8])> {
    const HEADER: usize = 40;
    let header: &[u8; HEADER] = quote.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        Ipv6Addr::from(octets)
    };
    let addresses = Addresses::V6 { source: address(24), destination: address(8) };
    let (mut protocol, mut offset) = (Protocol(header[6]), HEADER);
    for _ in 0..MAX_EXTENSION_HEADERS {
        if !is_extension_header(protocol) {
            return Some((addresses, protocol, quote.get(offset..)?));
        }
        let extension: &[u8; 8] = quote.get(offset..)?.first_chunk()?;
        let is_fragment = protocol == Protocol::FRAGMENT;
        if is_fragment && u16::from_be_bytes([extension[2], extension[3]]) & 0xfff8 != 0 {
            return None;
        }
        offset += if is_fragment { 8 } else { (usize::from(extension[1]) + 1) * 8 };
        protocol = Protocol(extension[0]);
    }
    None
}

/// The upper-layer fields of the packet's answer. Of a message of ICMP, type, code and identifier
/// are those of the packet, as Linux has it.
fn upper(protocol: Protocol, icmp: Protocol, bytes: &[u8]) -> Option<Upper> {
    if !protocol.has_ports() && protocol != icmp && protocol != Protocol::ESP {
        return Some(Upper::None);
    }
    // RFC 792 quotes 64 bits of it at least.
    let header: &[u8; 8] = bytes.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Some(if protocol.has_ports() {
        Upper::Ports { source: word(2), destination: word(0) }
    } else if protocol == icmp {
        let identifier = if has_identifier(icmp, header[0]) { word(4) } else { 0 };
        Upper::Icmp { kind: header[0], code: header[1], identifier }
    } else {
        Upper::None
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::headers;

    proptest! {
        /// Whatever is quoted, nothing panics, and what is returned is about who gets the error.
        #[test]
        fn any_bytes(kind: u8, v6: bool, mut bytes in prop::collection::vec(any::<u8>(), 0..120), fit: bool) {
            let mut packet = if v6 { vec![0; 40] } else { vec![0; 20] };
            let length = packet.len() + 8 + bytes.len();
            if v6 {
                packet[0] = 0x60;
                packet[4..6].copy_from_slice(&((8 + bytes.len()) as u16).to_be_bytes());
                (packet[6], packet[7]) = (58, 64);
                (packet[8], packet[24], packet[39]) = (0xfd, 0xfd, 1);
                if fit && bytes.len() >= 40 {
                    bytes[0] = 0x60;
                    let destination: Vec<u8> = packet[24..40].to_vec();
                    bytes[8..24].copy_from_slice(&destination);
                }
            } else {
                packet[0] = 0x45;
                packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
                (packet[8], packet[9]) = (64, 1);
                packet[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 7]);
                if fit && bytes.len() >= 20 {
                    bytes[0] = 0x45;
                    bytes[12..16].copy_from_slice(&[198, 51, 100, 7]);
                }
            }
            packet.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
            packet.extend(bytes);
            if !v6 {
                ipv4::fill_checksum(&mut packet);
            }
            let Ok(headers) = headers::parse(&packet) else { return Ok(()) };
            if let Some((addresses, ..)) = reversed(&packet, &headers) {
                prop_assert_eq!(addresses.destination(), headers.addresses.destination());
            }
            if let Some((addresses, _)) = esp(&packet, &headers) {
                prop_assert_eq!(addresses.destination(), headers.addresses.destination());
            }
        }
    }

    #[test]
    fn the_spi_of_quoted_esp() {
        let mut packet =
            vec![0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 203, 0, 113, 9, 192, 0, 2, 1];
        packet.extend([3, 4, 0, 0, 0, 0, 5, 0]);
        packet.extend([0x45, 0, 5, 0, 0, 0, 0, 0, 9, 50, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
        packet.extend([0, 0, 0x10, 1, 0, 0, 0, 9]);
        ipv4::fill_checksum(&mut packet);
        let is = |packet: &[u8]| esp(packet, &headers::parse(packet).unwrap());
        let addresses =
            Addresses::V4 { source: [198, 51, 100, 7].into(), destination: [192, 0, 2, 1].into() };
        assert_eq!(is(&packet), Some((addresses, Spi(0x1001))));
        // Of a first fragment too. Not a redirect, UDP, a later fragment, somebody else's packet.
        for (at, octet, is_some) in
            [(34, 0x20, true), (20, 5, false), (37, 17, false), (35, 1, false), (40, 193, false)]
        {
            let mut other = packet.clone();
            other[at] = octet;
            assert_eq!(is(&other).is_some(), is_some, "{at}");
        }
        // Three bytes of the SPI.
        packet.truncate(51);
        packet[3] = 51;
        ipv4::fill_checksum(&mut packet);
        assert_eq!(is(&packet), None);
    }

    #[test]
    fn the_quoted_flow_is_turned_round() {
        let mut packet =
            vec![0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 203, 0, 113, 9, 192, 0, 2, 1];
        packet.extend([3, 1, 0, 0, 0, 0, 0, 0]);
        packet.extend([0x45, 0, 5, 0, 0, 0, 0, 0, 9, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
        packet.extend([0, 53, 0x13, 0x88, 0, 8, 0, 0]);
        ipv4::fill_checksum(&mut packet);
        let headers = headers::parse(&packet).unwrap();
        let expected = (
            Addresses::V4 { source: [198, 51, 100, 7].into(), destination: [192, 0, 2, 1].into() },
            Protocol::UDP,
            Upper::Ports { source: 5000, destination: 53 },
        );
        assert_eq!(reversed(&packet, &headers), Some(expected));
        // A redirect is not one, nor what quotes a packet of somebody else or a later fragment.
        for (at, octet) in [(20, 5), (40, 193), (35, 1)] {
            let mut other = packet.clone();
            other[at] = octet;
            let headers = headers::parse(&other).unwrap();
            assert_eq!(reversed(&other, &headers), None, "{at}");
        }
    }
}
