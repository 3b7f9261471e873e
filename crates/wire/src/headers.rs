//! Judges an IP packet and finds its headers.

use thiserror::Error;

use crate::id::Protocol;
use crate::key::{Addresses, FragmentClass, Upper};

/// How many IPv6 extension headers are walked before a packet is refused. RFC 8200 section 4.1 recommends each at most
/// once and destination options twice, which makes eight with mobility, HIP and Shim6.
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
    /// Total or payload length smaller than the headers or larger than what arrived (RFC 1812 section 5.2.2).
    #[error("the length in the IP header is wrong")]
    TotalLength,
    /// IPv4 header checksum (RFC 1812 section 5.2.2).
    #[error("the IPv4 header checksum is wrong")]
    HeaderChecksum,
    /// An IPv4 option runs past the header, or has a length below 2.
    #[error("an IPv4 option is malformed")]
    Option,
    /// A source address that no packet may have (RFC 1812 section 5.3.7, RFC 4291 section 2.7).
    #[error("the source address is a multicast, broadcast or loopback address")]
    Source,
    /// A destination that may not be on the wire: loopback or this-network (RFC 1812 section 5.3.7, RFC 4291 section 2.5.3).
    #[error("the destination address may not appear on the wire")]
    Destination,
    /// Too many extension headers, or one out of its place (hop-by-hop not first).
    #[error("the IPv6 extension header chain is too long or out of order")]
    ExtensionChain,
    /// An extension header runs past the packet.
    #[error("an IPv6 extension header runs past the packet")]
    ExtensionTruncated,
    /// A fragment whose offset and length overflow 65,535, or a non-last fragment not a multiple of 8 long (RFC 8200
    /// section 4.5), or IPv4 reserved bit games.
    #[error("the fragment fields are inconsistent")]
    Fragment,
    /// A TCP first fragment too short for the ports, or a whole packet that ends inside its upper-layer header.
    #[error("the packet ends inside its upper-layer header")]
    UpperTruncated,
}

/// Where a fragment stands in its datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Whole, first or later.
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
    /// Upper-layer protocol, after any extension headers.
    pub protocol: Protocol,
    /// Ports, ICMP fields or SPI, where they are there.
    pub upper: Upper,
    /// Fragment position.
    pub fragment: Fragment,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN: the type-of-service or traffic-class octet.
    pub traffic_class: u8,
    /// IPv4's don't-fragment bit; always true for IPv6, where routers never fragment.
    pub dont_fragment: bool,
    /// IPv4 options are present.
    pub has_options: bool,
    /// Where the upper-layer header (or a later fragment's payload) begins, in bytes from the IP header.
    pub upper_offset: u16,
    /// Where the IPv6 fragment header begins, 0 where there is none.
    pub fragment_header_offset: u16,
    /// Length of the IP packet in bytes; what the link added behind it is not part of it.
    pub total_length: u16,
}

/// Checks an IP packet that starts at `packet[0]` and finds its headers.
///
/// # Errors
/// The first thing that is wrong, in the order of the header's fields. Never panics and never reads outside `packet`,
/// whatever the bytes.
pub fn parse(packet: &[u8]) -> Result<Headers, Malformed> {
    let _ = packet;
    todo!()
}
