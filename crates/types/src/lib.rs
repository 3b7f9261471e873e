//! The vocabulary that all crates share: identifiers, addresses and ranges, the flow key, and the
//! enums that users name in commands and configuration.
//!
//! Each type is defined here once, with its text form ([`Display`](core::fmt::Display),
//! [`FromStr`](core::str::FromStr), and serde strings under the feature `serde`). Nothing here does
//! I/O, allocates, or keeps state.
#![forbid(unsafe_code)]

pub mod address;
mod cache;
mod dscp;
mod fields;
mod filter;
pub mod id;
pub mod key;
mod mss;
mod policy;
mod policy_name;
mod port;
mod protocol;
pub mod qdisc;
mod range;
mod route;
mod sa;
#[cfg(feature = "serde")]
mod serde;
mod share;
mod side;
pub mod station;
mod tcp_flags;
mod vlan;
mod word;
mod worker;

pub use address::{AddressError, Family, IpPrefix, IpRange, Mac};
pub use cache::{CacheMode, CacheTable};
pub use dscp::{Dscp, DscpError, DscpSelector};
pub use fields::{FieldsSelector, PacketFields};
pub use filter::{FilterHook, FilterProtocol, FilterVerdict, MarkBits, MarkError, RejectWith};
pub use id::{FilterSlot, IfId, PolicySlot, PortId, SaSlot, Spi, TableId, VrfId};
pub use key::{Addresses, FlowKey, FragmentClass, Origin, Upper};
pub use mss::{MssClamp, MssClampError};
pub use policy::{DefaultAction, Direction, LookupEngine, PolicyAction};
pub use policy_name::{PolicyName, PolicyNameError};
pub use port::LinkKind;
pub use protocol::{Protocol, UnknownProtocol};
pub use range::{OctetRange, PortRange};
pub use route::{RouteKind, RouteProtocol, UnknownRouteProtocol};
pub use sa::{SaFlag, SaMode};
pub use share::{HighestShares, Share};
pub use side::{Ike, Ipsec, ReversePath, Side};
pub use tcp_flags::{TcpFlags, TcpFlagsError, TcpFlagsSelector};
pub use vlan::{NotAVlanId, VlanId, VlanProtocol, VlanTag};
pub use word::{UnknownWord, Word};
pub use worker::{Idle, Seccomp};
