//! ICMP for IPv4 (RFC 792): echo answers, and the errors that a router sends (RFC 1812 section
//! 4.3).

use core::net::Ipv4Addr;

use crate::checksum;
use crate::headers::Headers;
use crate::ipv4;
use types::Protocol;
use types::{Addresses, FragmentClass, Upper};

/// Length of a message's header in bytes, the second word included.
pub const HEADER_LENGTH: usize = 8;

/// An error message is part of an IP packet of at most this many bytes (RFC 1812 section 4.3.2.3).
pub const MAX_ERROR_PACKET: usize = 576;

/// Echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Destination unreachable.
pub const DESTINATION_UNREACHABLE: u8 = 3;
/// Source quench, deprecated (RFC 6633).
pub const SOURCE_QUENCH: u8 = 4;
/// Redirect.
pub const REDIRECT: u8 = 5;
/// Echo request.
pub const ECHO_REQUEST: u8 = 8;
/// Time exceeded.
pub const TIME_EXCEEDED: u8 = 11;
/// Parameter problem.
pub const PARAMETER_PROBLEM: u8 = 12;

/// Why a destination cannot be reached: the codes of type 3 (RFC 792, RFC 1122 section 3.2.2.1, RFC
/// 1812 section 5.2.7.1), without fragmentation needed, which is
/// [`ErrorMessage::FragmentationNeeded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unreachable {
    /// No route.
    Network = 0,
    /// The destination is on a connected network and does not answer there.
    Host = 1,
    /// The destination does not know the protocol.
    Protocol = 2,
    /// Nothing listens on the port.
    Port = 3,
    /// A source route that was not followed.
    SourceRouteFailed = 5,
    /// Communication with the network is administratively prohibited.
    NetworkProhibited = 9,
    /// Communication with the host is administratively prohibited.
    HostProhibited = 10,
    /// Communication is administratively prohibited by filtering.
    AdministrativelyProhibited = 13,
}

/// An error that a router tells a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorMessage {
    /// The packet cannot be delivered.
    Unreachable(Unreachable),
    /// The packet is larger than the next link's MTU in bytes and may not be fragmented (RFC 1191
    /// section 4).
    FragmentationNeeded {
        /// MTU in bytes of the next hop.
        mtu: u16,
    },
    /// The TTL ran out on the way.
    TimeExceeded,
    /// Fragments did not all arrive in time.
    ReassemblyTimeExceeded,
    /// A header field is wrong.
    ParameterProblem {
        /// Which octet of the packet.
        pointer: u8,
    },
}

impl ErrorMessage {
    /// Type and code.
    pub const fn kind_and_code(self) -> (u8, u8) {
        match self {
            Self::Unreachable(code) => (DESTINATION_UNREACHABLE, code as u8),
            Self::FragmentationNeeded { .. } => (DESTINATION_UNREACHABLE, 4),
            Self::TimeExceeded => (TIME_EXCEEDED, 0),
            Self::ReassemblyTimeExceeded => (TIME_EXCEEDED, 1),
            Self::ParameterProblem { .. } => (PARAMETER_PROBLEM, 0),
        }
    }

    const fn second_word(self) -> [u8; 4] {
        match self {
            Self::FragmentationNeeded { mtu } => {
                let [high, low] = mtu.to_be_bytes();
                [0, 0, high, low]
            }
            Self::ParameterProblem { pointer } => [pointer, 0, 0, 0],
            _ => [0; 4],
        }
    }
}

/// Whether the message's checksum is right.
pub fn is_right(message: &[u8]) -> bool {
    message.len() >= HEADER_LENGTH && checksum::sum(message) == 0xffff
}

/// Computes the checksum of a whole message and puts it into its header. Fewer bytes than a header
/// has are left as they are.
pub fn fill_checksum(message: &mut [u8]) {
    if message.len() >= HEADER_LENGTH {
        message[2..4].fill(0);
        let checksum = checksum::checksum(message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Turns an echo request into its reply (RFC 792, RFC 1122 section 3.2.2.6), and brings the
/// checksum along: a wrong one stays wrong. The addresses of the IP header are the caller's
/// ([`ipv4::turn_around`]).
///
/// Returns false, and changes nothing, if the message is no echo request.
#[must_use]
pub fn echo_reply(message: &mut [u8]) -> bool {
    let Some(header) = message.first_chunk_mut::<HEADER_LENGTH>() else { return false };
    let [kind @ ECHO_REQUEST, code @ 0, high, low, ..] = *header else { return false };
    let old = u16::from_be_bytes([kind, code]);
    let new = u16::from_be_bytes([ECHO_REPLY, code]);
    let checksum = checksum::update_u16(u16::from_be_bytes([high, low]), old, new);
    header[0] = ECHO_REPLY;
    header[2..4].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// Whether `headers` may be answered with an error (RFC 1122 section 3.2.2, RFC 1812 section
/// 4.3.2.7): not an ICMP error or redirect or what may be one, not a later fragment, not to a
/// multicast or broadcast address, not from an address that is no single host's.
///
/// The caller knows, and this does not: whether the frame was a link-layer broadcast, and whether
/// the destination is a connected network's directed broadcast.
pub fn may_answer_with_error(headers: &Headers) -> bool {
    let Addresses::V4 { source, destination } = headers.addresses else { return false };
    let about_error = headers.protocol == Protocol::ICMP
        && !matches!(headers.upper, Upper::Icmp { kind, .. } if !is_error(kind));
    let to_many = destination.is_multicast() || destination.is_broadcast();
    let from_nobody = matches!(source.octets()[0], 0 | 127 | 224..);
    headers.fragment.class != FragmentClass::Later && !about_error && !to_many && !from_nobody
}

/// Whether the type is of an error message or a redirect. Types without meaning count as errors:
/// better no answer than a storm of them.
const fn is_error(kind: u8) -> bool {
    // Echo, router discovery, timestamp, information, address mask and extended echo: the queries
    // and their answers.
    !matches!(kind, ECHO_REPLY | ECHO_REQUEST | 9 | 10 | 13..=18 | 42 | 43)
}

/// Writes an error message about the IP packet `offending` to the start of `out`: header, checksum,
/// and as much of the packet as a packet of [`MAX_ERROR_PACKET`] bytes has room for. Returns the
/// message's length.
///
/// Nothing where `out` is too short or `offending` is no IPv4 packet. What the link added behind
/// the packet is not quoted.
#[must_use]
pub fn write_error(message: ErrorMessage, offending: &[u8], out: &mut [u8]) -> Option<usize> {
    let quote = quoted(offending)?;
    let length = HEADER_LENGTH + quote.len();
    let out = out.get_mut(..length)?;
    let (kind, code) = message.kind_and_code();
    out[..4].copy_from_slice(&[kind, code, 0, 0]);
    out[4..8].copy_from_slice(&message.second_word());
    out[HEADER_LENGTH..].copy_from_slice(quote);
    fill_checksum(out);
    Some(length)
}

/// As [`write_error`], with the IPv4 header in front: a whole packet from `from` to the sender of
/// `offending`. Answers its length, at most [`MAX_ERROR_PACKET`].
///
/// The precedence is internetwork control and the rest of the type of service is the offending
/// packet's (RFC 1812 section 4.3.2.5). The packet is atomic (RFC 6864 section 4).
#[must_use]
pub fn write_error_packet(
    message: ErrorMessage,
    from: Ipv4Addr,
    offending: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let (header, body) = out.split_first_chunk_mut::<{ ipv4::HEADER_LENGTH }>()?;
    let length = write_error(message, offending, body)? + ipv4::HEADER_LENGTH;
    let offending: &[u8; ipv4::HEADER_LENGTH] = offending.first_chunk()?;
    *header = ipv4::Header {
        traffic_class: 0xc0 | offending[1] & 0x1e,
        // At most 576.
        total_length: length as u16,
        dont_fragment: true,
        protocol: Protocol::ICMP,
        source: from,
        destination: Ipv4Addr::from(crate::bytes::array_at::<4, _>(offending, 12)),
        ..ipv4::Header::default()
    }
    .to_bytes();
    Some(length)
}

fn quoted(offending: &[u8]) -> Option<&[u8]> {
    const ROOM: usize = MAX_ERROR_PACKET - ipv4::HEADER_LENGTH - HEADER_LENGTH;
    let header_length = ipv4::header_length(offending)?;
    let total_length =
        usize::from(u16::from_be_bytes([offending[2], offending[3]])).max(header_length);
    offending.get(..offending.len().min(total_length).min(ROOM))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::headers;

    fn packet(header: ipv4::Header, payload: &[u8]) -> Vec<u8> {
        let total_length = (ipv4::HEADER_LENGTH + payload.len()) as u16;
        [ipv4::Header { total_length, ..header }.to_bytes().as_slice(), payload].concat()
    }

    fn udp() -> ipv4::Header {
        ipv4::Header {
            protocol: Protocol::UDP,
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(198, 51, 100, 1),
            ..Default::default()
        }
    }

    #[test]
    fn errors_have_their_types_codes_and_words() {
        let offending = packet(udp(), &[0, 7, 0, 9, 0, 8, 0, 0]);
        let cases = [
            (ErrorMessage::Unreachable(Unreachable::Network), [3, 0, 0, 0, 0, 0]),
            (
                ErrorMessage::Unreachable(Unreachable::AdministrativelyProhibited),
                [3, 13, 0, 0, 0, 0],
            ),
            (ErrorMessage::FragmentationNeeded { mtu: 1400 }, [3, 4, 0, 0, 0x05, 0x78]),
            (ErrorMessage::TimeExceeded, [11, 0, 0, 0, 0, 0]),
            (ErrorMessage::ReassemblyTimeExceeded, [11, 1, 0, 0, 0, 0]),
            (ErrorMessage::ParameterProblem { pointer: 20 }, [12, 0, 20, 0, 0, 0]),
        ];
        for (message, [kind, code, word @ ..]) in cases {
            let mut out = [0xee; 600];
            let length = write_error(message, &offending, &mut out).unwrap();
            assert_eq!(length, 8 + offending.len());
            assert_eq!((out[0], out[1]), (kind, code), "{message:?}");
            assert_eq!(out[4..8], word, "{message:?}");
            assert_eq!(out[8..length], offending);
            assert!(is_right(&out[..length]));
            assert_eq!(out[length], 0xee);
        }
    }

    #[test]
    fn a_long_packet_is_quoted_up_to_576_bytes() {
        let offending = packet(ipv4::Header { traffic_class: 0x2e, ..udp() }, &[0x55; 1400]);
        let mut out = [0; 1500];
        let from = Ipv4Addr::new(192, 0, 2, 254);
        let length =
            write_error_packet(ErrorMessage::TimeExceeded, from, &offending, &mut out).unwrap();
        assert_eq!(length, 576);
        let error = headers::parse(&out).unwrap();
        assert_eq!(error.total_length, 576);
        assert_eq!(error.traffic_class, 0xce);
        assert_eq!(
            error.addresses,
            Addresses::V4 { source: from, destination: Ipv4Addr::new(192, 0, 2, 1) }
        );
        assert_eq!(error.upper, Upper::Icmp { kind: 11, code: 0, identifier: 0 });
        assert!(is_right(error.upper_bytes(&out)));
        assert_eq!(error.upper_bytes(&out)[8..], offending[..548]);
    }

    #[test]
    fn padding_is_not_quoted_and_short_room_is_refused() {
        let mut offending = packet(udp(), &[0; 8]);
        offending.resize(46, 0xff);
        let mut out = [0; 36];
        assert_eq!(write_error(ErrorMessage::TimeExceeded, &offending, &mut out), Some(36));
        assert_eq!(write_error(ErrorMessage::TimeExceeded, &offending, &mut out[..35]), None);
        assert_eq!(write_error(ErrorMessage::TimeExceeded, &[0x60; 60], &mut out), None);
        // A total length of nonsense: the header is quoted all the same.
        offending[2..4].fill(0);
        assert_eq!(write_error(ErrorMessage::TimeExceeded, &offending, &mut out), Some(28));
        assert_eq!(
            write_error_packet(
                ErrorMessage::TimeExceeded,
                Ipv4Addr::LOCALHOST,
                &offending,
                &mut out
            ),
            None
        );
    }

    #[test]
    fn only_single_hosts_packets_are_answered() {
        let may = |header: ipv4::Header, payload: &[u8]| {
            may_answer_with_error(&headers::parse(&packet(header, payload)).unwrap())
        };
        let icmp = ipv4::Header { protocol: Protocol::ICMP, ..udp() };
        assert!(may(udp(), &[0; 8]));
        assert!(may(ipv4::Header { more_fragments: true, ..udp() }, &[0; 8]));
        assert!(!may(ipv4::Header { fragment_offset: 8, ..udp() }, &[0; 8]));
        assert!(!may(ipv4::Header { destination: Ipv4Addr::new(224, 0, 0, 9), ..udp() }, &[0; 8]));
        assert!(!may(ipv4::Header { destination: Ipv4Addr::BROADCAST, ..udp() }, &[0; 8]));
        for kind in [0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 42, 43] {
            assert!(may(icmp, &[kind, 0, 0, 0, 0, 0, 0, 0]), "type {kind}");
        }
        for kind in [3, 4, 5, 11, 12, 200] {
            assert!(!may(icmp, &[kind, 0, 0, 0, 0, 0, 0, 0]), "type {kind}");
        }
        // What parse refuses may still arrive here from elsewhere.
        let mut nobody = headers::parse(&packet(udp(), &[0; 8])).unwrap();
        for source in [
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::LOCALHOST,
            Ipv4Addr::BROADCAST,
            Ipv4Addr::new(224, 0, 0, 1),
        ] {
            nobody.addresses = Addresses::V4 { source, destination: Ipv4Addr::new(192, 0, 2, 1) };
            assert!(!may_answer_with_error(&nobody));
        }
    }

    #[test]
    fn other_messages_are_not_turned_into_replies() {
        for mut message in [[0; 8], [8, 1, 0, 0, 0, 0, 0, 0], [13, 0, 0, 0, 0, 0, 0, 0]] {
            let before = message;
            assert!(!echo_reply(&mut message));
            assert_eq!(message, before);
        }
        assert!(!echo_reply(&mut [8, 0, 0, 0, 0, 0, 0]));
    }

    proptest! {
        #[test]
        fn an_echo_reply_is_the_request_with_another_type(rest in proptest::collection::vec(any::<u8>(), 4..64)) {
            let mut message = [[ECHO_REQUEST, 0, 0, 0].as_slice(), &rest].concat();
            fill_checksum(&mut message);
            prop_assert!(is_right(&message));
            prop_assert!(echo_reply(&mut message));
            prop_assert!(is_right(&message));
            prop_assert_eq!(&message[..2], [ECHO_REPLY, 0]);
            prop_assert_eq!(&message[4..], rest);
        }

        #[test]
        fn any_bytes_are_quoted_or_refused(offending in proptest::collection::vec(any::<u8>(), 0..700), version: bool) {
            let mut offending = offending;
            if let (Some(first), true) = (offending.first_mut(), version) {
                *first = 0x40 | *first & 0xf;
            }
            let mut out = [0; MAX_ERROR_PACKET];
            if let Some(length) = write_error_packet(ErrorMessage::TimeExceeded, Ipv4Addr::LOCALHOST, &offending, &mut out) {
                prop_assert!(length <= MAX_ERROR_PACKET);
                prop_assert!(is_right(&out[ipv4::HEADER_LENGTH..length]));
            }
        }
    }
}
