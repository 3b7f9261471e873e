//! What bytes on the wire mean: header views and checksums.
//!
//! Nothing here does I/O, allocates, or keeps state. A *view* ([`ethernet`], [`ipv4`], ...) gives
//! names to byte positions; [`headers::parse`] is the one place where an IP packet is judged well
//! formed and its [`headers::Headers`] are found; their [`FlowKey`] names the flow it belongs to.
#![forbid(unsafe_code)]

pub mod arp;
mod bytes;
pub mod checksum;
pub mod common;
pub mod esp;
pub mod ethernet;
pub mod fragment;
pub mod headers;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod mld;
pub mod ndp;
pub mod quoted;
pub mod sctp;
pub mod tcp;
pub mod udp;

pub use headers::{Headers, Malformed};
// The vocabulary of packets, for those who read them.
pub use types::{
    AddressError, Addresses, Dscp, FlowKey, FragmentClass, IpPrefix, IpRange, Mac, Origin,
    PacketFields, PortId, PortRange, Protocol, SaSlot, Spi, TcpFlags, TcpFlagsError, Upper, VrfId,
    address, id, key,
};
