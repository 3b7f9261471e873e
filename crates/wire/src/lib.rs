//! What bytes on the wire mean: header views, checksums, address types and the flow key.
//!
//! Nothing here does I/O, allocates, or keeps state. A *view* ([`ethernet`], [`ipv4`], ...) gives
//! names to byte positions; [`headers::parse`] is the one place where an IP packet is judged well
//! formed and its [`headers::Headers`] are found; [`key`] names the flow that it belongs to.
#![forbid(unsafe_code)]

pub mod address;
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
pub mod id;
pub mod ipv4;
pub mod ipv6;
pub mod key;
pub mod ndp;
pub mod tcp;
#[cfg(feature = "serde")]
mod text;
pub mod udp;

pub use address::{AddressError, IpPrefix, IpRange, Mac, PortRange};
pub use headers::{Headers, Malformed};
pub use id::{PortId, Protocol, SaSlot, Spi, VrfId};
pub use key::{Addresses, FlowKey, FragmentClass, Origin, Upper};
