//! ICMP for IPv6 (RFC 4443): echo answers, and the errors that a router sends.

use core::net::Ipv6Addr;

use crate::bytes::array_at;
use crate::checksum;
use crate::headers::Headers;
use crate::ipv6;
use types::Protocol;
use types::{Addresses, Upper};

/// Length of a message's header in bytes, the second word included.
pub const HEADER_LENGTH: usize = 8;

/// An error message is part of an IP packet of at most this many bytes: the least MTU (RFC 4443
/// section 2.4 (c)).
pub const MAX_ERROR_PACKET: usize = ipv6::MIN_MTU as usize;

/// Destination unreachable.
pub const DESTINATION_UNREACHABLE: u8 = 1;
/// Packet too big.
pub const PACKET_TOO_BIG: u8 = 2;
/// Time exceeded.
pub const TIME_EXCEEDED: u8 = 3;
/// Parameter problem.
pub const PARAMETER_PROBLEM: u8 = 4;
/// Echo request. Types below are errors, from here on information.
pub const ECHO_REQUEST: u8 = 128;
/// Echo reply.
pub const ECHO_REPLY: u8 = 129;
/// Redirect (RFC 4861 section 4.5).
pub const REDIRECT: u8 = 137;

/// Why a destination cannot be reached: the codes of type 1 (RFC 4443 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unreachable {
    /// No route.
    NoRoute = 0,
    /// Communication is administratively prohibited.
    AdministrativelyProhibited = 1,
    /// The packet would leave the zone of its source address.
    BeyondScope = 2,
    /// The destination does not answer on its link.
    Address = 3,
    /// Nothing listens on the port.
    Port = 4,
    /// The source address failed ingress or egress policy.
    SourcePolicy = 5,
    /// The route says reject.
    RejectRoute = 6,
}

/// What is wrong in a header: the codes of type 4 (RFC 4443 section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ParameterProblem {
    /// An erroneous header field.
    Field = 0,
    /// A next header that is not recognized.
    NextHeader = 1,
    /// An IPv6 option that is not recognized.
    Option = 2,
    /// A first fragment without the whole header chain (RFC 7112 section 6).
    FirstFragment = 3,
}

/// An error that a router tells a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorMessage {
    /// The packet cannot be delivered.
    Unreachable(Unreachable),
    /// The packet is larger than the next link's MTU.
    PacketTooBig {
        /// MTU in bytes of the next hop.
        mtu: u32,
    },
    /// The hop limit ran out on the way.
    TimeExceeded,
    /// Fragments did not all arrive in time.
    ReassemblyTimeExceeded,
    /// A header field is wrong.
    ParameterProblem {
        /// What is wrong with it.
        code: ParameterProblem,
        /// Which octet of the packet.
        pointer: u32,
    },
}

impl ErrorMessage {
    /// Type and code.
    pub const fn kind_and_code(self) -> (u8, u8) {
        match self {
            Self::Unreachable(code) => (DESTINATION_UNREACHABLE, code as u8),
            Self::PacketTooBig { .. } => (PACKET_TOO_BIG, 0),
            Self::TimeExceeded => (TIME_EXCEEDED, 0),
            Self::ReassemblyTimeExceeded => (TIME_EXCEEDED, 1),
            Self::ParameterProblem { code, .. } => (PARAMETER_PROBLEM, code as u8),
        }
    }

    const fn second_word(self) -> u32 {
        match self {
            Self::PacketTooBig { mtu } => mtu,
            Self::ParameterProblem { pointer, .. } => pointer,
            _ => 0,
        }
    }

    /// Whether a packet to a multicast group may be answered so (RFC 4443 section 2.4 (e.3)).
    const fn is_told_to_multicasters(self) -> bool {
        matches!(
            self,
            Self::PacketTooBig { .. }
                | Self::ParameterProblem { code: ParameterProblem::Option, .. }
        )
    }
}

/// Whether the message's checksum is right under its pseudo header.
pub fn is_right(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> bool {
    let addresses = Addresses::V6 { source, destination };
    message.len() >= HEADER_LENGTH
        && checksum::upper_is_right(&addresses, Protocol::ICMPV6, message)
}

/// Computes the checksum of a whole message and puts it into its header. Fewer bytes than a header
/// has are left as they are.
pub fn fill_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &mut [u8]) {
    if message.len() >= HEADER_LENGTH {
        message[2..4].fill(0);
        let checksum =
            checksum::upper(&Addresses::V6 { source, destination }, Protocol::ICMPV6, message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Turns an echo request into its reply (RFC 4443 section 4.2), and brings the checksum along: a
/// wrong one stays wrong.
///
/// It is right for a reply whose addresses are the request's, swapped ([`ipv6::turn_around`]).
/// Where the request went to a group, the reply has another source address:
/// [`checksum::update_v6`].
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

/// Whether `headers` may be answered with `message` (RFC 4443 section 2.4 (e)): not an ICMPv6 error
/// or redirect or what may be one, not from an address that is no single node's, and, but for
/// packet too big and unrecognized options, not to a group.
///
/// The caller knows, and this does not: whether the frame was a link-layer multicast or broadcast,
/// to which the same two exceptions apply.
pub fn may_answer_with_error(message: ErrorMessage, headers: &Headers) -> bool {
    let Addresses::V6 { source, destination } = headers.addresses else { return false };
    let about_error = headers.protocol == Protocol::ICMPV6
        && !matches!(headers.upper, Upper::Icmp { kind, .. } if !is_error(kind));
    let to_many = destination.is_multicast() && !message.is_told_to_multicasters();
    let from_nobody = source.is_unspecified() || source.is_multicast() || source.is_loopback();
    !about_error && !to_many && !from_nobody
}

const fn is_error(kind: u8) -> bool {
    kind < ECHO_REQUEST || kind == REDIRECT
}

/// Writes an error message about the IP packet `offending` to the start of `out`: header, checksum,
/// and as much of the packet as a packet of [`MAX_ERROR_PACKET`] bytes has room for. Returns the
/// message's length.
///
/// The message goes from `source` to `destination`, which its checksum covers. Nothing where `out`
/// is too short or `offending` is no IPv6 packet. What the link added behind the packet is not
/// quoted.
#[must_use]
pub fn write_error(
    message: ErrorMessage,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    offending: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let quote = quoted(offending)?;
    let length = HEADER_LENGTH + quote.len();
    let out = out.get_mut(..length)?;
    let (kind, code) = message.kind_and_code();
    out[..4].copy_from_slice(&[kind, code, 0, 0]);
    out[4..8].copy_from_slice(&message.second_word().to_be_bytes());
    out[HEADER_LENGTH..].copy_from_slice(quote);
    fill_checksum(source, destination, out);
    Some(length)
}

/// As [`write_error`], with the IPv6 header in front: a whole packet from `from` to the sender of
/// `offending`. Answers its length, at most [`MAX_ERROR_PACKET`].
#[must_use]
pub fn write_error_packet(
    message: ErrorMessage,
    from: Ipv6Addr,
    offending: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let offending_header: &[u8; ipv6::HEADER_LENGTH] = offending.first_chunk()?;
    let to = Ipv6Addr::from(array_at::<16, _>(offending_header, 8));
    let (header, body) = out.split_first_chunk_mut::<{ ipv6::HEADER_LENGTH }>()?;
    let length = write_error(message, from, to, offending, body)?;
    *header = ipv6::Header {
        // At most 1240.
        payload_length: length as u16,
        next_header: Protocol::ICMPV6,
        source: from,
        destination: to,
        ..ipv6::Header::default()
    }
    .to_bytes();
    Some(ipv6::HEADER_LENGTH + length)
}

fn quoted(offending: &[u8]) -> Option<&[u8]> {
    const ROOM: usize = MAX_ERROR_PACKET - ipv6::HEADER_LENGTH - HEADER_LENGTH;
    let header: &[u8; ipv6::HEADER_LENGTH] = offending.first_chunk()?;
    let total_length = ipv6::HEADER_LENGTH + usize::from(crate::bytes::u16_at(header, 4));
    let length = offending.len().min(total_length).min(ROOM);
    if header[0] >> 4 == 6 { offending.get(..length) } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::headers;

    const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const ROUTER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe);
    const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

    fn packet(header: ipv6::Header, payload: &[u8]) -> Vec<u8> {
        let payload_length = payload.len() as u16;
        [ipv6::Header { payload_length, ..header }.to_bytes().as_slice(), payload].concat()
    }

    fn udp() -> ipv6::Header {
        ipv6::Header {
            next_header: Protocol::UDP,
            source: HOST,
            destination: FAR,
            ..Default::default()
        }
    }

    #[test]
    fn errors_have_their_types_codes_and_words() {
        let offending = packet(udp(), &[0, 7, 0, 9, 0, 8, 1, 2]);
        let problem = |code| ErrorMessage::ParameterProblem { code, pointer: 40 };
        let cases = [
            (ErrorMessage::Unreachable(Unreachable::NoRoute), [1, 0], 0),
            (ErrorMessage::Unreachable(Unreachable::RejectRoute), [1, 6], 0),
            (ErrorMessage::PacketTooBig { mtu: 1400 }, [2, 0], 1400u32),
            (ErrorMessage::TimeExceeded, [3, 0], 0),
            (ErrorMessage::ReassemblyTimeExceeded, [3, 1], 0),
            (problem(ParameterProblem::Field), [4, 0], 40),
            (problem(ParameterProblem::FirstFragment), [4, 3], 40),
        ];
        for (message, kind_and_code, word) in cases {
            let mut out = [0xee; 100];
            let length = write_error_packet(message, ROUTER, &offending, &mut out).unwrap();
            assert_eq!(length, 40 + 8 + offending.len());
            assert_eq!(out[40..42], kind_and_code, "{message:?}");
            assert_eq!(out[44..48], word.to_be_bytes(), "{message:?}");
            assert_eq!(out[48..length], offending);
            let headers = headers::parse(&out).unwrap();
            assert_eq!(headers.addresses, Addresses::V6 { source: ROUTER, destination: HOST });
            assert!(is_right(ROUTER, HOST, headers.upper_bytes(&out)));
            assert_eq!(out[length], 0xee);
        }
    }

    #[test]
    fn a_long_packet_is_quoted_up_to_1280_bytes() {
        let offending = packet(udp(), &[0x55; 1400]);
        let mut out = [0; 1500];
        let too_big = ErrorMessage::PacketTooBig { mtu: 1280 };
        assert_eq!(write_error_packet(too_big, ROUTER, &offending, &mut out), Some(1280));
        assert_eq!(out[48..1280], offending[..1232]);
        assert_eq!(write_error_packet(too_big, ROUTER, &offending, &mut out[..1279]), None);
        assert_eq!(write_error_packet(too_big, ROUTER, &[0x45; 60], &mut out), None);
    }

    #[test]
    fn padding_is_not_quoted() {
        let mut offending = packet(udp(), &[0; 8]);
        offending.resize(60, 0xff);
        assert_eq!(
            write_error(ErrorMessage::TimeExceeded, ROUTER, HOST, &offending, &mut [0; 100]),
            Some(56)
        );
    }

    #[test]
    fn only_single_nodes_packets_are_answered() {
        let time = ErrorMessage::TimeExceeded;
        let too_big = ErrorMessage::PacketTooBig { mtu: 1280 };
        let option = ErrorMessage::ParameterProblem { code: ParameterProblem::Option, pointer: 42 };
        let field = ErrorMessage::ParameterProblem { code: ParameterProblem::Field, pointer: 42 };
        let may = |message, header: ipv6::Header, payload: &[u8]| {
            may_answer_with_error(message, &headers::parse(&packet(header, payload)).unwrap())
        };
        assert!(may(time, udp(), &[0; 8]));
        let group = ipv6::Header { destination: "ff0e::1".parse().unwrap(), ..udp() };
        for (message, answered) in [(time, false), (field, false), (too_big, true), (option, true)]
        {
            assert_eq!(may(message, group, &[0; 8]), answered, "{message:?}");
        }
        let icmp = ipv6::Header { next_header: Protocol::ICMPV6, ..udp() };
        for kind in [128, 129, 135] {
            assert!(may(time, icmp, &[kind, 0, 0, 0, 0, 0, 0, 0]), "type {kind}");
        }
        for kind in [0, 1, 2, 3, 4, 127, 137] {
            assert!(!may(too_big, icmp, &[kind, 0, 0, 0, 0, 0, 0, 0]), "type {kind}");
        }
        let unspecified = ipv6::Header { source: Ipv6Addr::UNSPECIFIED, ..icmp };
        assert!(!may(too_big, unspecified, &[135, 0, 0, 0, 0, 0, 0, 0]));
        // A later fragment of ICMPv6 may be an error's; one of UDP is not.
        let fragmented = ipv6::Header { next_header: Protocol::FRAGMENT, ..udp() };
        assert!(!may(too_big, fragmented, &[58, 0, 0, 8, 0, 0, 0, 1, 128, 0, 0, 0, 0, 0, 0, 0]));
        assert!(may(too_big, fragmented, &[17, 0, 0, 8, 0, 0, 0, 1, 128, 0, 0, 0, 0, 0, 0, 0]));
    }

    proptest! {
        #[test]
        fn an_echo_reply_is_right_for_swapped_addresses(rest in proptest::collection::vec(any::<u8>(), 4..64)) {
            let mut message = [[ECHO_REQUEST, 0, 0, 0].as_slice(), &rest].concat();
            fill_checksum(HOST, ROUTER, &mut message);
            prop_assert!(is_right(HOST, ROUTER, &message));
            prop_assert!(echo_reply(&mut message));
            prop_assert!(is_right(ROUTER, HOST, &message));
            prop_assert_eq!(&message[..2], [ECHO_REPLY, 0]);
            prop_assert_eq!(&message[4..], rest);
            let before = message.clone();
            prop_assert!(!echo_reply(&mut message));
            prop_assert_eq!(message, before);
        }
    }
}
