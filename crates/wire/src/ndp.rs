//! IPv6 neighbour discovery over Ethernet (RFC 4861): solicitations and advertisements.

use core::net::Ipv6Addr;

use thiserror::Error;

use crate::bytes::array_at;
use crate::headers::Headers;
use crate::icmpv6;
use crate::ipv6;
use types::Mac;
use types::Protocol;
use types::{Addresses, FragmentClass, Upper};

/// Router solicitation.
pub const ROUTER_SOLICITATION: u8 = 133;
/// Router advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// Neighbour solicitation.
pub const NEIGHBOUR_SOLICITATION: u8 = 135;
/// Neighbour advertisement.
pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// The longest packet that [`Message::write_packet`] writes, in bytes.
pub const MAX_PACKET: usize = ipv6::HEADER_LENGTH + TARGET_END + OPTION_LENGTH;

/// How many options are read before a message is refused: more than any standard defines.
pub const MAX_OPTIONS: usize = 16;

/// Only a neighbour can send with this hop limit (RFC 4861 section 3.1).
const HOP_LIMIT: u8 = 255;
const ROUTER_SOLICITATION_LENGTH: usize = 8;
const TARGET_END: usize = 24;
const OPTION_LENGTH: usize = 8;
const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;

/// Why a message may not be acted on (RFC 4861 sections 6.1.1, 7.1.1 and 7.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// No solicitation and no neighbour advertisement, or a fragment (RFC 6980 section 5).
    #[error("not a neighbour solicitation, neighbour advertisement or router solicitation")]
    Kind,
    /// The hop limit is not 255: it came through a router.
    #[error("the hop limit is not 255")]
    HopLimit,
    /// The ICMPv6 checksum is wrong.
    #[error("the checksum is wrong")]
    Checksum,
    /// The code is not 0.
    #[error("the code is not 0")]
    Code,
    /// Shorter than its fields.
    #[error("the message is too short")]
    Length,
    /// An option is of length 0 or runs past the message, or there are more than [`MAX_OPTIONS`].
    #[error("an option is malformed")]
    Option,
    /// The target is a multicast, unspecified or loopback address.
    #[error("the target is not a node's address")]
    Target,
    /// The unspecified source with a destination or an option that it does not go with.
    #[error("the source address does not go with the rest")]
    Source,
    /// A solicited advertisement to a group.
    #[error("a solicited advertisement was sent to a group")]
    Destination,
    /// A link-layer address that is a group's or zero.
    #[error("the link-layer address is not a node's")]
    LinkAddress,
}

/// A neighbour discovery message that is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Who has the target address? From the unspecified address: does anyone, for I want it (RFC
    /// 4862 section 5.4)?
    NeighbourSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// Who asks.
        source_link: Option<Mac>,
    },
    /// The sender has the target address.
    NeighbourAdvertisement {
        /// The address told of.
        target: Ipv6Addr,
        /// The sender is a router.
        router: bool,
        /// Answers a solicitation.
        solicited: bool,
        /// Replaces what is cached.
        override_cached: bool,
        /// Where the target is.
        target_link: Option<Mac>,
    },
    /// Which routers are there?
    RouterSolicitation {
        /// Who asks.
        source_link: Option<Mac>,
    },
}

/// Reads and checks a neighbour discovery message: `message` is the packet's upper-layer part
/// ([`Headers::upper_bytes`]).
///
/// # Errors
/// The first of [`Invalid`] that is wrong.
pub fn parse(headers: &Headers, message: &[u8]) -> Result<Message, Invalid> {
    let Addresses::V6 { source, destination } = headers.addresses else {
        return Err(Invalid::Kind);
    };
    let (kind, code) = match headers.upper {
        Upper::Icmp { kind, code, .. } if headers.protocol == Protocol::ICMPV6 => (kind, code),
        _ => return Err(Invalid::Kind),
    };
    // RFC 6980 section 5: not even in one piece with a fragment header.
    let fragmented =
        headers.fragment.class != FragmentClass::Whole || headers.fragment_header_offset != 0;
    if !matches!(kind, ROUTER_SOLICITATION | NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT)
        || fragmented
    {
        return Err(Invalid::Kind);
    }
    if headers.hop_limit != HOP_LIMIT {
        return Err(Invalid::HopLimit);
    }
    if !icmpv6::is_right(source, destination, message) {
        return Err(Invalid::Checksum);
    }
    if code != 0 {
        return Err(Invalid::Code);
    }
    match kind {
        ROUTER_SOLICITATION => {
            let options = message.get(ROUTER_SOLICITATION_LENGTH..).ok_or(Invalid::Length)?;
            let source_link = link_address(options, SOURCE_LINK)?;
            check_asker(source, source_link)?;
            Ok(Message::RouterSolicitation { source_link })
        }
        NEIGHBOUR_SOLICITATION => {
            let (target, options) = target_and_options(message)?;
            let source_link = link_address(options, SOURCE_LINK)?;
            check_asker(source, source_link)?;
            if source.is_unspecified() && !is_solicited_node(destination) {
                return Err(Invalid::Source);
            }
            Ok(Message::NeighbourSolicitation { target, source_link })
        }
        _ => {
            let (target, options) = target_and_options(message)?;
            let flags = message[4];
            let solicited = flags & 0x40 != 0;
            if solicited && destination.is_multicast() {
                return Err(Invalid::Destination);
            }
            let target_link = link_address(options, TARGET_LINK)?;
            let (router, override_cached) = (flags & 0x80 != 0, flags & 0x20 != 0);
            Ok(Message::NeighbourAdvertisement {
                target,
                router,
                solicited,
                override_cached,
                target_link,
            })
        }
    }
}

/// The group that a node with `address` listens on for solicitations (RFC 4291 section 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let bits = address.to_bits() & 0xff_ffff;
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | bits)
}

impl Message {
    /// Writes the message as a whole IPv6 packet to the start of `out`. Answers its length, at most
    /// [`MAX_PACKET`]; nothing where `out` is too short.
    #[must_use]
    pub fn write_packet(
        &self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        out: &mut [u8],
    ) -> Option<usize> {
        let (kind, flags, target, option) = match *self {
            Self::NeighbourSolicitation { target, source_link } => {
                (NEIGHBOUR_SOLICITATION, 0, Some(target), source_link.map(|mac| (SOURCE_LINK, mac)))
            }
            Self::NeighbourAdvertisement {
                target,
                router,
                solicited,
                override_cached,
                target_link,
            } => {
                let flags = u8::from(router) << 7
                    | u8::from(solicited) << 6
                    | u8::from(override_cached) << 5;
                (
                    NEIGHBOUR_ADVERTISEMENT,
                    flags,
                    Some(target),
                    target_link.map(|mac| (TARGET_LINK, mac)),
                )
            }
            Self::RouterSolicitation { source_link } => {
                (ROUTER_SOLICITATION, 0, None, source_link.map(|mac| (SOURCE_LINK, mac)))
            }
        };
        let fields = if target.is_some() { TARGET_END } else { ROUTER_SOLICITATION_LENGTH };
        let length = fields + option.map_or(0, |_| OPTION_LENGTH);
        let (header, message) =
            out.get_mut(..ipv6::HEADER_LENGTH + length)?.split_first_chunk_mut()?;
        *header = ipv6::Header {
            payload_length: length as u16,
            next_header: Protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            source,
            destination,
            ..ipv6::Header::default()
        }
        .to_bytes();
        message[..ROUTER_SOLICITATION_LENGTH].copy_from_slice(&[kind, 0, 0, 0, flags, 0, 0, 0]);
        if let Some(target) = target {
            message[8..TARGET_END].copy_from_slice(&target.octets());
        }
        if let Some((kind, Mac([a, b, c, d, e, f]))) = option {
            message[fields..].copy_from_slice(&[kind, 1, a, b, c, d, e, f]);
        }
        icmpv6::fill_checksum(source, destination, message);
        Some(ipv6::HEADER_LENGTH + length)
    }
}

fn target_and_options(message: &[u8]) -> Result<(Ipv6Addr, &[u8]), Invalid> {
    let (fields, options) = message.split_first_chunk::<TARGET_END>().ok_or(Invalid::Length)?;
    let target = Ipv6Addr::from(array_at::<16, _>(fields, 8));
    if target.is_multicast() || target.is_unspecified() || target.is_loopback() {
        return Err(Invalid::Target);
    }
    Ok((target, options))
}

/// RFC 4861 sections 6.1.1 and 7.1.1: who has no address yet cannot be answered at one.
fn check_asker(source: Ipv6Addr, source_link: Option<Mac>) -> Result<(), Invalid> {
    if source.is_unspecified() && source_link.is_some() { Err(Invalid::Source) } else { Ok(()) }
}

fn is_solicited_node(address: Ipv6Addr) -> bool {
    solicited_node(address) == address
}

/// The link-layer address in the first option of type `wanted`. Every option is checked, whatever
/// its type.
fn link_address(options: &[u8], wanted: u8) -> Result<Option<Mac>, Invalid> {
    let mut found = None;
    let mut rest = options;
    for _ in 0..MAX_OPTIONS {
        let [kind, words, ..] = *rest else { break };
        let (option, behind) =
            rest.split_at_checked(usize::from(words) * 8).ok_or(Invalid::Option)?;
        let header: &[u8; OPTION_LENGTH] = option.first_chunk().ok_or(Invalid::Option)?;
        if kind == wanted && found.is_none() {
            // RFC 2464 section 6: an Ethernet address takes 8 octets with type and length.
            if words != 1 {
                return Err(Invalid::Option);
            }
            let mac = Mac(array_at(header, 2));
            if mac.is_group() || mac == Mac::default() {
                return Err(Invalid::LinkAddress);
            }
            found = Some(mac);
        }
        rest = behind;
    }
    if rest.is_empty() { Ok(found) } else { Err(Invalid::Option) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::headers;

    const ASKER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const TARGET: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0x12, 0x3456, 0x789a);
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn written(message: Message, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let mut out = [0xee; MAX_PACKET];
        let length = message.write_packet(source, destination, &mut out).unwrap();
        out[..length].to_vec()
    }

    fn read(packet: &[u8]) -> Result<Message, Invalid> {
        let headers = headers::parse(packet).unwrap();
        parse(&headers, headers.upper_bytes(packet))
    }

    fn solicitation() -> Vec<u8> {
        let message = Message::NeighbourSolicitation { target: TARGET, source_link: Some(MAC) };
        written(message, ASKER, solicited_node(TARGET))
    }

    /// The packet with one byte changed and the checksum right again.
    fn changed(mut packet: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
        packet[at] = value;
        let source = Ipv6Addr::from(<[u8; 16]>::try_from(&packet[8..24]).unwrap());
        let destination = Ipv6Addr::from(<[u8; 16]>::try_from(&packet[24..40]).unwrap());
        icmpv6::fill_checksum(source, destination, &mut packet[40..]);
        packet
    }

    #[test]
    fn the_solicited_node_group() {
        // RFC 4291 section 2.7.1.
        let address = "4037::01:800:200e:8c6c".parse().unwrap();
        assert_eq!(solicited_node(address).to_string(), "ff02::1:ff0e:8c6c");
    }

    #[test]
    fn a_solicitation_is_laid_out_as_in_rfc_4861() {
        let packet = solicitation();
        assert_eq!(packet.len(), 72);
        assert_eq!(packet[7], 255);
        assert_eq!(packet[40..42], [135, 0]);
        assert_eq!(packet[44..48], [0; 4]);
        assert_eq!(packet[48..64], TARGET.octets());
        assert_eq!(packet[64..], [1, 1, 2, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn an_advertisement_has_its_flags() {
        let message = Message::NeighbourAdvertisement {
            target: TARGET,
            router: true,
            solicited: true,
            override_cached: false,
            target_link: Some(MAC),
        };
        let packet = written(message, TARGET, ASKER);
        assert_eq!(packet[44], 0xc0);
        assert_eq!(packet[64..66], [2, 1]);
        assert_eq!(read(&packet), Ok(message));
        assert_eq!(
            read(&written(message, TARGET, "ff02::1".parse().unwrap())),
            Err(Invalid::Destination)
        );
    }

    #[test]
    fn each_wrong_field_has_its_name() {
        assert!(read(&solicitation()).is_ok());
        let mut bad_checksum = solicitation();
        bad_checksum[42] ^= 1;
        assert_eq!(read(&bad_checksum), Err(Invalid::Checksum));
        for (at, value, why) in [
            (7, 254, Invalid::HopLimit),
            (40, 134, Invalid::Kind),
            (40, 128, Invalid::Kind),
            (41, 1, Invalid::Code),
            (48, 0xff, Invalid::Target),
            (65, 0, Invalid::Option),
            (65, 2, Invalid::Option),
            (66, 1, Invalid::LinkAddress),
        ] {
            assert_eq!(read(&changed(solicitation(), at, value)), Err(why), "byte {at} = {value}");
        }
        let mut short = solicitation();
        short.truncate(63);
        assert_eq!(read(&changed(short, 5, 23)), Err(Invalid::Length));
        let mut ragged = solicitation();
        ragged.push(0);
        assert_eq!(read(&changed(ragged, 5, 33)), Err(Invalid::Option));
    }

    #[test]
    fn who_has_no_address_asks_the_group_without_a_link_address() {
        let probe = Message::NeighbourSolicitation { target: TARGET, source_link: None };
        let nobody = Ipv6Addr::UNSPECIFIED;
        assert_eq!(read(&written(probe, nobody, solicited_node(TARGET))), Ok(probe));
        assert_eq!(read(&written(probe, nobody, TARGET)), Err(Invalid::Source));
        let telling = Message::NeighbourSolicitation { target: TARGET, source_link: Some(MAC) };
        assert_eq!(read(&written(telling, nobody, solicited_node(TARGET))), Err(Invalid::Source));
        let routers = "ff02::2".parse().unwrap();
        let telling = Message::RouterSolicitation { source_link: Some(MAC) };
        assert_eq!(read(&written(telling, nobody, routers)), Err(Invalid::Source));
    }

    #[test]
    fn a_solicitation_with_a_fragment_header_is_not_read() {
        let packet = solicitation();
        let atomic = [&[58, 0, 0, 0, 0, 0, 0, 1], &packet[40..]].concat();
        let header = ipv6::Header {
            payload_length: atomic.len() as u16,
            next_header: Protocol::FRAGMENT,
            hop_limit: 255,
            source: ASKER,
            destination: solicited_node(TARGET),
            ..Default::default()
        };
        assert_eq!(read(&[header.to_bytes().as_slice(), &atomic].concat()), Err(Invalid::Kind));
    }

    #[test]
    fn targets_are_nodes() {
        for target in ["ff02::1", "::", "::1"] {
            let target = target.parse().unwrap();
            let message = Message::NeighbourSolicitation { target, source_link: Some(MAC) };
            assert_eq!(read(&written(message, ASKER, TARGET)), Err(Invalid::Target), "{target}");
        }
    }

    #[test]
    fn the_first_link_address_counts() {
        let mut packet = solicitation();
        packet.extend([1, 1, 2, 0, 0, 0, 0, 9]);
        assert_eq!(read(&changed(packet, 5, 40)), read(&solicitation()));
    }

    #[test]
    fn unknown_options_are_passed_over_up_to_a_bound() {
        let with_unknown = |count: usize| {
            let mut packet = solicitation();
            for _ in 0..count {
                packet.extend([14, 1, 0, 0, 0, 0, 0, 0]);
            }
            let payload_length = (packet.len() - 40) as u8;
            let low = (packet.len() - 40) as u16;
            packet[4] = (low >> 8) as u8;
            changed(packet, 5, payload_length)
        };
        assert_eq!(read(&with_unknown(MAX_OPTIONS - 1)), read(&solicitation()));
        assert_eq!(read(&with_unknown(MAX_OPTIONS)), Err(Invalid::Option));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            bits: u128, mac: [u8; 6], link: bool, router: bool, solicited: bool, override_cached: bool, kind in 0..3,
        ) {
            let mut mac = mac;
            mac[0] = 2;
            let link = link.then_some(Mac(mac));
            // 2000::/3, a node's.
            let target = Ipv6Addr::from_bits(bits >> 3 | 1 << 125);
            let message = match kind {
                0 => Message::NeighbourSolicitation { target, source_link: link },
                1 => Message::RouterSolicitation { source_link: link },
                _ => Message::NeighbourAdvertisement { target, router, solicited, override_cached, target_link: link },
            };
            let packet = written(message, ASKER, target);
            prop_assert_eq!(read(&packet), Ok(message));
            let mut out = vec![0; packet.len() - 1];
            prop_assert_eq!(message.write_packet(ASKER, target, &mut out), None);
        }
    }
}
