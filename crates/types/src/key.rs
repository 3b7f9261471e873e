//! The flow key: every field of a packet that a decision may depend on.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fields::PacketFields;
use crate::id::{PortId, SaSlot, Spi, VrfId};
use crate::protocol::Protocol;

/// Where a packet came from, which decides the checks it owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Received in clear on a port.
    Port(PortId),
    /// Just decrypted by an SA of this slot.
    Sa(SaSlot),
    /// Built by the gateway itself, about nothing that was protected: answers.
    Host,
    /// An ICMP error built by the gateway itself, about a packet that came in clear by this port:
    /// it goes back the way that packet came.
    HostError(PortId),
    /// Built by the gateway itself about a packet that was protected, or may have been, and so not
    /// to leave in clear unless a policy says so.
    HostProtected,
}

/// Source and destination, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source address.
        source: Ipv6Addr,
        /// Destination address.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// From one address to another one, if both are of one family.
    pub const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }

    /// The source address, of either family.
    pub const fn source(&self) -> IpAddr {
        match *self {
            Self::V4 { source, .. } => IpAddr::V4(source),
            Self::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// The destination address, of either family.
    pub const fn destination(&self) -> IpAddr {
        match *self {
            Self::V4 { destination, .. } => IpAddr::V4(destination),
            Self::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }

    /// Whether both addresses are IPv6.
    pub const fn is_v6(&self) -> bool {
        matches!(self, Self::V6 { .. })
    }
}

/// What part of a datagram a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FragmentClass {
    /// The whole datagram.
    #[default]
    Whole,
    /// The first fragment, which has the upper-layer header.
    First,
    /// A later fragment: upper-layer fields are not there and are never read out of its payload.
    Later,
}

/// The upper-layer fields that selectors may name (RFC 4301 section 4.4.1.1), only where they are
/// really there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Upper {
    /// None: another protocol, or a later fragment (RFC 4301 calls the fields OPAQUE).
    #[default]
    None,
    /// TCP, UDP, UDP-Lite, SCTP or DCCP ports.
    Ports {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// ICMP or ICMPv6.
    Icmp {
        /// Message type.
        kind: u8,
        /// Message code.
        code: u8,
        /// Identifier of echo messages, otherwise 0.
        identifier: u16,
    },
    /// ESP's security parameters index; of ICMP, that it is an error about an ESP packet with this
    /// SPI which the gateway has sent.
    Spi(Spi),
}

/// Names a flow: two packets with equal keys get the same decision from the same tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The VRF whose tables apply.
    pub vrf: VrfId,
    /// Where the packet came from.
    pub origin: Origin,
    /// Source and destination.
    pub addresses: Addresses,
    /// Upper-layer protocol, after any IPv6 extension headers.
    pub protocol: Protocol,
    /// Whole, first or later fragment.
    pub fragment: FragmentClass,
    /// Ports, ICMP fields or SPI.
    pub upper: Upper,
    /// Of the optional fields, what the VRF's policies read; the other bits are zero.
    pub fields: PacketFields,
}
