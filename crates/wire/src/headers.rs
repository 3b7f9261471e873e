//! Judges an IP packet and finds its headers.

use core::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use crate::bytes::{u16_at, u32_at};
use crate::{checksum, ipv4};
use types::{Addresses, Dscp, FlowKey, FragmentClass, Origin, PacketFields, Upper};
use types::{Protocol, Spi, TcpFlags, VrfId};

/// How many IPv6 extension headers are walked before a packet is refused. RFC 8200 section 4.1
/// recommends each at most once and destination options twice, which makes eight with mobility, HIP
/// and Shim6.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// Why bytes are not a packet that may go on. Each is one drop reason and one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Shorter than the header that should be there.
    #[error("the packet ends inside its IP header")]
    Truncated,
    /// Version is neither 4 nor 6.
    #[error("the IP version is neither 4 nor 6")]
    Version,
    /// IPv4 header length below 5 words or past the packet (RFC 1812 section 5.2.2).
    #[error("the IPv4 header length is wrong")]
    HeaderLength,
    /// Total or payload length smaller than the headers or larger than what arrived (RFC 1812
    /// section 5.2.2), an IPv6 jumbogram (RFC 2675), or an IPv6 packet longer than 65,535 bytes as
    /// a whole.
    #[error("the length in the IP header is wrong")]
    TotalLength,
    /// IPv4 header checksum (RFC 1812 section 5.2.2).
    #[error("the IPv4 header checksum is wrong")]
    HeaderChecksum,
    /// An IPv4 option runs past the header, or has a length below 2.
    #[error("an IPv4 option is malformed")]
    Option,
    /// A source address that no packet may have: multicast, broadcast, loopback, this-network,
    /// class E, IPv4-mapped, or unspecified other than in ICMPv6 (RFC 1812 section 5.3.7, RFC 4291
    /// sections 2.5.2, 2.5.3 and 2.7, RFC 6890).
    #[error("the source address is one that no packet may have")]
    Source,
    /// A destination that may not be on the wire: loopback, this-network, unspecified, IPv4-mapped,
    /// or multicast of reserved or interface-local scope (RFC 1812 section 5.3.7, RFC 4291 sections
    /// 2.5.2, 2.5.3 and 2.7, RFC 6890).
    #[error("the destination address may not appear on the wire")]
    Destination,
    /// More than [`MAX_EXTENSION_HEADERS`], or one out of its place: hop-by-hop not first, or two
    /// fragment headers.
    #[error("the IPv6 extension header chain is too long or out of order")]
    ExtensionChain,
    /// An extension header runs past the packet.
    #[error("an IPv6 extension header runs past the packet")]
    ExtensionTruncated,
    /// A fragment whose offset and length overflow 65,535, or that is empty, or is not the last and
    /// not a multiple of 8 long (RFC 8200 section 4.5); a TCP fragment that would overwrite the
    /// flags (RFC 1858 section 3.2); IPv4's reserved bit set.
    #[error("the fragment fields are inconsistent")]
    Fragment,
    /// A whole packet or a first fragment that ends inside its upper-layer header (RFC 1858 section
    /// 3.2, RFC 7112).
    #[error("the packet ends inside its upper-layer header")]
    UpperTruncated,
}

/// Where a fragment stands in its datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Whole, first or later. An IPv6 packet whose fragment header says offset 0 and no more is
    /// whole (RFC 6946).
    pub class: FragmentClass,
    /// The datagram's identification: 16 bits for IPv4, 32 for IPv6.
    pub identification: u32,
    /// Offset of this fragment's payload in the datagram's, in bytes.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
}

/// What [`parse`] found: enough to key, decide and apply without looking at the header again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Source and destination.
    pub addresses: Addresses,
    /// Upper-layer protocol, after any extension headers. Of a later IPv6 fragment, what its
    /// fragment header says: the first header of the fragmentable part, which may itself be an
    /// extension header.
    pub protocol: Protocol,
    /// Ports, ICMP fields or SPI, where they are there.
    pub upper: Upper,
    /// None of what is not TCP, and of a later fragment, which has no TCP header.
    pub tcp_flags: TcpFlags,
    /// Fragment position.
    pub fragment: Fragment,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN: the type-of-service or traffic-class octet.
    pub traffic_class: u8,
    /// IPv4's don't-fragment bit; always true for IPv6, where routers never fragment.
    pub dont_fragment: bool,
    /// IPv4 options, or IPv6 extension headers other than the fragment header, are present.
    pub has_options: bool,
    /// Where the upper-layer header (or a later fragment's payload) begins, in bytes from the IP
    /// header.
    pub upper_offset: u16,
    /// Where the IPv6 fragment header begins, 0 where there is none.
    pub fragment_header_offset: u16,
    /// Length of the IP packet in bytes; what the link added behind it is not part of it.
    pub total_length: u16,
}

impl Headers {
    /// Of no packet: what a place holds before [`parse_into`] fills it.
    pub const NONE: Self = Self {
        addresses: Addresses::V4 {
            source: Ipv4Addr::UNSPECIFIED,
            destination: Ipv4Addr::UNSPECIFIED,
        },
        protocol: Protocol::NONE,
        upper: Upper::None,
        tcp_flags: TcpFlags(0),
        fragment: Fragment {
            class: FragmentClass::Whole,
            identification: 0,
            offset: 0,
            more: false,
        },
        hop_limit: 0,
        traffic_class: 0,
        dont_fragment: false,
        has_options: false,
        upper_offset: 0,
        fragment_header_offset: 0,
        total_length: 0,
    };

    /// The optional fields of the flow key.
    #[inline]
    pub const fn fields(&self) -> PacketFields {
        let dscp = Dscp::from_traffic_class(self.traffic_class);
        PacketFields::new(self.tcp_flags, dscp, self.hop_limit)
    }

    /// The flow that the packet belongs to, in a VRF whose policies read these bits of the optional
    /// fields.
    #[inline]
    pub fn key(&self, vrf: VrfId, origin: Origin, reads: PacketFields) -> FlowKey {
        FlowKey {
            vrf,
            origin,
            addresses: self.addresses,
            protocol: self.protocol,
            fragment: self.fragment.class,
            upper: self.upper,
            fields: self.fields() & reads,
        }
    }

    /// The upper-layer header and payload (or a later fragment's payload), without what the link
    /// added behind the packet.
    ///
    /// `packet` is what [`parse`] was given; empty where it is something shorter.
    #[inline]
    pub fn upper_bytes<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        packet
            .get(usize::from(self.upper_offset)..usize::from(self.total_length))
            .unwrap_or_default()
    }

    /// As [`Headers::upper_bytes`], to change.
    #[inline]
    pub fn upper_bytes_mut<'a>(&self, packet: &'a mut [u8]) -> &'a mut [u8] {
        packet
            .get_mut(usize::from(self.upper_offset)..usize::from(self.total_length))
            .unwrap_or_default()
    }
}

/// Checks an IP packet that starts at `packet[0]` and finds its headers.
///
/// `packet` may be longer than the IP packet: links pad short frames.
///
/// # Errors
/// The first thing that is wrong: lengths, then IPv4's checksum and options, then addresses,
/// fragment fields and extension headers, then the upper-layer header. Never panics and never reads
/// outside `packet`, whatever the bytes.
#[inline]
pub fn parse(packet: &[u8]) -> Result<Headers, Malformed> {
    let mut headers = Headers::NONE;
    parse_into(packet, &mut headers)?;
    Ok(headers)
}

/// As [`parse`], into a place that is there already: one copy less, which a packet notices. On an
/// error the place holds nothing of use.
///
/// # Errors
/// Those of [`parse`].
#[inline]
pub fn parse_into(packet: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => parse_v4(packet, headers),
        Some(6) => parse_v6(packet, headers),
        Some(_) => Err(Malformed::Version),
        None => Err(Malformed::Truncated),
    }
}

const V4_RESERVED: u16 = 0x8000;
const V4_DONT_FRAGMENT: u16 = 0x4000;
const V4_MORE_FRAGMENTS: u16 = 0x2000;
const V4_OFFSET: u16 = 0x1fff;

#[inline(always)]
fn parse_v4(packet: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    let header: &[u8; ipv4::HEADER_LENGTH] = packet.first_chunk().ok_or(Malformed::Truncated)?;
    let header_length = usize::from(header[0] & 0xf) * 4;
    if header_length < ipv4::HEADER_LENGTH || header_length > packet.len() {
        return Err(Malformed::HeaderLength);
    }
    let total_length = u16_at(header, 2);
    let packet = packet.get(..usize::from(total_length)).ok_or(Malformed::TotalLength)?;
    let (whole_header, payload) =
        packet.split_at_checked(header_length).ok_or(Malformed::TotalLength)?;
    let has_options = header_length > ipv4::HEADER_LENGTH;
    if has_options {
        check_v4_options(whole_header)?;
    } else if !checksum::is_right_of_20(header) {
        return Err(Malformed::HeaderChecksum);
    }

    let source = Ipv4Addr::from_bits(u32_at(header, 12));
    let destination = Ipv4Addr::from_bits(u32_at(header, 16));
    if v4_source_is_martian(source) {
        return Err(Malformed::Source);
    }
    if v4_destination_is_martian(destination) {
        return Err(Malformed::Destination);
    }

    let protocol = Protocol(header[9]);
    let fragment_word = u16_at(header, 6);
    let fragment = if fragment_word & !V4_DONT_FRAGMENT == 0 {
        Fragment { identification: u32::from(u16_at(header, 4)), ..Fragment::default() }
    } else {
        v4_fragment(header, fragment_word, protocol, header_length, payload.len())?
    };
    let (upper, tcp_flags) = match fragment.class {
        FragmentClass::Later => (Upper::None, TcpFlags::default()),
        FragmentClass::Whole | FragmentClass::First => {
            (upper_fields(protocol, Protocol::ICMP, payload)?, tcp_flags(protocol, payload))
        }
    };
    *headers = Headers {
        addresses: Addresses::V4 { source, destination },
        protocol,
        upper,
        tcp_flags,
        fragment,
        hop_limit: header[8],
        traffic_class: header[1],
        dont_fragment: fragment_word & V4_DONT_FRAGMENT != 0,
        has_options,
        // At most 60.
        upper_offset: header_length as u16,
        fragment_header_offset: 0,
        total_length,
    };
    Ok(())
}

#[cold]
fn check_v4_options(header: &[u8]) -> Result<(), Malformed> {
    if checksum::sum(header) != 0xffff {
        return Err(Malformed::HeaderChecksum);
    }
    ipv4::options(header).try_for_each(|option| option.map(|_| ()))
}

/// RFC 1812 section 5.3.7, and the source limits of RFC 1122 section 3.2.1.3.
#[inline]
fn v4_source_is_martian(source: Ipv4Addr) -> bool {
    // 224 and up: multicast, class E and the limited broadcast address.
    matches!(source.to_bits() >> 24, 0 | 127 | 224..)
}

/// RFC 1812 section 5.3.7; and class E, from which nothing may come either.
#[inline]
fn v4_destination_is_martian(destination: Ipv4Addr) -> bool {
    matches!(destination.to_bits() >> 24, 0 | 127 | 240..) && !destination.is_broadcast()
}

#[cold]
fn v4_fragment(
    header: &[u8; ipv4::HEADER_LENGTH],
    word: u16,
    protocol: Protocol,
    header_length: usize,
    payload_length: usize,
) -> Result<Fragment, Malformed> {
    // RFC 791 section 3.1: the reserved bit must be zero.
    if word & V4_RESERVED != 0 {
        return Err(Malformed::Fragment);
    }
    let offset = (word & V4_OFFSET) * 8;
    let more = word & V4_MORE_FRAGMENTS != 0;
    // The datagram that the fragments make has a header too.
    check_fragment(protocol, offset, more, payload_length, header_length)?;
    Ok(Fragment {
        class: fragment_class(offset, more),
        identification: u32::from(u16_at(header, 4)),
        offset,
        more,
    })
}

fn fragment_class(offset: u16, more: bool) -> FragmentClass {
    match (offset, more) {
        (0, false) => FragmentClass::Whole,
        (0, true) => FragmentClass::First,
        _ => FragmentClass::Later,
    }
}

/// `beside` is what counts against the reassembled datagram's 65,535 bytes besides the payload.
fn check_fragment(
    protocol: Protocol,
    offset: u16,
    more: bool,
    payload_length: usize,
    beside: usize,
) -> Result<(), Malformed> {
    let empty = payload_length == 0;
    let ragged = more && !payload_length.is_multiple_of(8);
    let overflows = beside + usize::from(offset) + payload_length > usize::from(u16::MAX);
    // RFC 1858 section 3.2 and RFC 3128: a fragment at 8 bytes would overwrite the TCP flags that a
    // filter has judged.
    let rewrites_tcp = protocol == Protocol::TCP && offset == 8;
    if empty || ragged || overflows || rewrites_tcp { Err(Malformed::Fragment) } else { Ok(()) }
}

const V6_HEADER_LENGTH: usize = crate::ipv6::HEADER_LENGTH;

#[inline(always)]
fn parse_v6(packet: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    let header: &[u8; V6_HEADER_LENGTH] = packet.first_chunk().ok_or(Malformed::Truncated)?;
    let payload_length = u16_at(header, 4);
    let next = Protocol(header[6]);
    // RFC 2675: a payload length of 0 with a hop-by-hop header says jumbogram.
    if payload_length == 0 && next == Protocol::HOP_BY_HOP {
        return Err(Malformed::TotalLength);
    }
    let total_length =
        payload_length.checked_add(V6_HEADER_LENGTH as u16).ok_or(Malformed::TotalLength)?;
    let packet = packet.get(..usize::from(total_length)).ok_or(Malformed::TotalLength)?;

    let source = v6_address(header, 8);
    let destination = v6_address(header, 24);
    if source.is_multicast() || v6_is_loopback_or_mapped(source) {
        return Err(Malformed::Source);
    }
    if v6_destination_is_martian(destination) {
        return Err(Malformed::Destination);
    }

    let chain = walk_extension_headers(packet, next)?;
    // RFC 4291 section 2.5.2: for a node that does not have its address yet, which is neighbour
    // discovery and MLD.
    if source.is_unspecified() && chain.protocol != Protocol::ICMPV6 {
        return Err(Malformed::Source);
    }
    let payload = packet.get(chain.offset..).unwrap_or_default();
    let (upper, tcp_flags) = match chain.fragment.class {
        FragmentClass::Later => (Upper::None, TcpFlags::default()),
        FragmentClass::Whole | FragmentClass::First => (
            upper_fields(chain.protocol, Protocol::ICMPV6, payload)?,
            tcp_flags(chain.protocol, payload),
        ),
    };
    *headers = Headers {
        addresses: Addresses::V6 { source, destination },
        protocol: chain.protocol,
        upper,
        tcp_flags,
        fragment: chain.fragment,
        hop_limit: header[7],
        traffic_class: (header[0] << 4) | (header[1] >> 4),
        dont_fragment: true,
        has_options: chain.has_options,
        // Both are at most the total length.
        upper_offset: chain.offset as u16,
        fragment_header_offset: chain.fragment_header_offset as u16,
        total_length,
    };
    Ok(())
}

#[inline]
fn v6_address(header: &[u8; V6_HEADER_LENGTH], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[at..at + 16]);
    Ipv6Addr::from(octets)
}

/// RFC 4291 section 2.5.3; and RFC 6890 table 20, since `::ffff:127.0.0.1` would fool whoever
/// judges addresses by family.
#[inline]
fn v6_is_loopback_or_mapped(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    bits == 1 || bits >> 32 == 0xffff
}

#[inline]
fn v6_destination_is_martian(destination: Ipv6Addr) -> bool {
    let octets = destination.octets();
    // RFC 4291 section 2.7: scope 0 is reserved and to be dropped, scope 1 never leaves an
    // interface.
    let multicast_for_no_link = octets[0] == 0xff && octets[1] & 0xf <= 1;
    destination.is_unspecified() || v6_is_loopback_or_mapped(destination) || multicast_for_no_link
}

struct Chain {
    protocol: Protocol,
    offset: usize,
    fragment: Fragment,
    fragment_header_offset: usize,
    has_options: bool,
}

/// Walks to the upper-layer header, at most [`MAX_EXTENSION_HEADERS`] steps.
///
/// Mobility, HIP and Shim6 headers that are followed by nothing are themselves what RFC 4301
/// section 4.4.1.1 calls the next layer protocol; with something behind them they are extension
/// headers (RFC 8200 section 4).
#[inline(always)]
fn walk_extension_headers(packet: &[u8], first: Protocol) -> Result<Chain, Malformed> {
    let mut chain = Chain {
        protocol: first,
        offset: V6_HEADER_LENGTH,
        fragment: Fragment::default(),
        fragment_header_offset: 0,
        has_options: false,
    };
    let mut walked = 0;
    while is_extension_header(chain.protocol) {
        let header: &[u8; 8] = packet
            .get(chain.offset..)
            .and_then(<[u8]>::first_chunk)
            .ok_or(Malformed::ExtensionTruncated)?;
        let next = Protocol(header[0]);
        let last_resort =
            matches!(chain.protocol, Protocol::MOBILITY | Protocol::HIP | Protocol::SHIM6);
        if last_resort && next == Protocol::NONE {
            break;
        }
        // RFC 8200 section 4.1: hop-by-hop options come right behind the IPv6 header, or not at
        // all.
        let misplaced = next == Protocol::HOP_BY_HOP;
        let fragmented_twice =
            chain.protocol == Protocol::FRAGMENT && chain.fragment_header_offset != 0;
        if walked == MAX_EXTENSION_HEADERS || misplaced || fragmented_twice {
            return Err(Malformed::ExtensionChain);
        }
        walked += 1;
        if chain.protocol == Protocol::FRAGMENT {
            chain.fragment_header_offset = chain.offset;
            chain.offset += header.len();
            chain.fragment = v6_fragment(header, chain.offset, packet.len())?;
            chain.protocol = next;
            if chain.fragment.class == FragmentClass::Later {
                break;
            }
        } else {
            chain.has_options = true;
            chain.offset += (usize::from(header[1]) + 1) * 8;
            chain.protocol = next;
            if chain.offset > packet.len() {
                return Err(Malformed::ExtensionTruncated);
            }
        }
    }
    Ok(chain)
}

#[inline]
pub(crate) fn is_extension_header(protocol: Protocol) -> bool {
    matches!(
        protocol,
        Protocol::HOP_BY_HOP
            | Protocol::ROUTING
            | Protocol::FRAGMENT
            | Protocol::DESTINATION_OPTIONS
            | Protocol::MOBILITY
            | Protocol::HIP
            | Protocol::SHIM6
    )
}

fn v6_fragment(
    header: &[u8; 8],
    payload_offset: usize,
    packet_length: usize,
) -> Result<Fragment, Malformed> {
    let word = u16_at(header, 2);
    let (offset, more) = (word & 0xfff8, word & 1 != 0);
    let class = fragment_class(offset, more);
    if class != FragmentClass::Whole {
        // RFC 8200 section 4.5: what is in front of the fragment header counts, the fragment header
        // does not.
        let beside = payload_offset - header.len() - V6_HEADER_LENGTH;
        check_fragment(Protocol(header[0]), offset, more, packet_length - payload_offset, beside)?;
    }
    Ok(Fragment { class, identification: u32_at(header, 4), offset, more })
}

/// Whether messages of this type have an identifier, by which queries of hosts behind one address
/// are told apart: echo, timestamps, information requests and address masks (RFC 792, RFC 950,
/// RFC 4443 section 4), and their answers.
#[inline(always)]
pub(crate) const fn has_identifier(icmp: Protocol, kind: u8) -> bool {
    match icmp {
        Protocol::ICMP => matches!(kind, 0 | 8 | 13..=18),
        _ => matches!(kind, 128 | 129),
    }
}

/// The fields that selectors name, from an upper-layer header that must be there whole.
#[inline(always)]
fn upper_fields(protocol: Protocol, icmp: Protocol, payload: &[u8]) -> Result<Upper, Malformed> {
    let shortest = match protocol {
        Protocol::UDP | Protocol::UDP_LITE | Protocol::ESP => 8,
        Protocol::TCP => 20,
        Protocol::SCTP | Protocol::DCCP => 12,
        other if other == icmp => 8,
        _ => return Ok(Upper::None),
    };
    let header: &[u8; 8] = match payload.first_chunk() {
        Some(header) if payload.len() >= shortest => header,
        _ => return Err(Malformed::UpperTruncated),
    };
    Ok(if protocol.has_ports() {
        Upper::Ports { source: u16_at(header, 0), destination: u16_at(header, 2) }
    } else if protocol == Protocol::ESP {
        Upper::Spi(Spi(u32_at(header, 0)))
    } else {
        let kind = header[0];
        let identifier = if has_identifier(icmp, kind) { u16_at(header, 4) } else { 0 };
        Upper::Icmp { kind, code: header[1], identifier }
    })
}

/// The flags of a TCP header that is there.
#[inline(always)]
fn tcp_flags(protocol: Protocol, payload: &[u8]) -> TcpFlags {
    match payload.get(13) {
        Some(&flags) if protocol == Protocol::TCP => TcpFlags(flags),
        _ => TcpFlags::default(),
    }
}
