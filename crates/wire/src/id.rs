//! Identifiers. Each is a newtype, so that a VRF is never taken for a port.

use core::fmt;

/// A virtual routing and forwarding instance. Zero is the VRF `main`, which always exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VrfId(pub u16);

impl VrfId {
    /// The VRF every port is in unless told otherwise.
    pub const MAIN: Self = Self(0);
}

/// A port of the gateway: where packets come in and leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// The place in the SAD that successive SAs of one tunnel share.
///
/// A slot is named by VRF, tunnel endpoints, protocol, mode and reqid; a rekey puts a new SA into
/// the slot and whatever names the slot stays valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaSlot(pub u32);

/// Security parameters index (RFC 4301 section 4.1). 0 never appears on the wire and 1..=255 are
/// reserved by IANA, though Linux accepts those for manually keyed SAs and so do we.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spi(pub u32);

/// Shown as Linux shows it: eight hexadecimal digits with `0x`.
impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// IP protocol number, which is also the IPv6 next-header number (IANA "Assigned Internet Protocol
/// Numbers").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: Self = Self(0);
    /// Internet Control Message Protocol for IPv4.
    pub const ICMP: Self = Self(1);
    /// IPv4 in IP (tunnel mode, inner IPv4).
    pub const IPV4: Self = Self(4);
    /// Transmission Control Protocol.
    pub const TCP: Self = Self(6);
    /// User Datagram Protocol.
    pub const UDP: Self = Self(17);
    /// IPv6 in IP (tunnel mode, inner IPv6).
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header.
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header.
    pub const FRAGMENT: Self = Self(44);
    /// Encapsulating Security Payload.
    pub const ESP: Self = Self(50);
    /// Authentication Header.
    pub const AH: Self = Self(51);
    /// Internet Control Message Protocol for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// IPv6 "no next header"; inside ESP, a dummy packet (RFC 4303 section 2.6).
    pub const NONE: Self = Self(59);
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// Datagram Congestion Control Protocol.
    pub const DCCP: Self = Self(33);
    /// Stream Control Transmission Protocol.
    pub const SCTP: Self = Self(132);
    /// IPv6 mobility header.
    pub const MOBILITY: Self = Self(135);
    /// UDP-Lite.
    pub const UDP_LITE: Self = Self(136);
    /// Host Identity Protocol, an IPv6 extension header.
    pub const HIP: Self = Self(139);
    /// Shim6, an IPv6 extension header.
    pub const SHIM6: Self = Self(140);

    /// Whether the protocol's header starts with a source and a destination port.
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::DCCP | Self::SCTP | Self::UDP_LITE)
    }
}

/// The protocol's keyword as iproute2 prints it, or its number.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::ICMP => "icmp",
            Self::IPV4 => "ipencap",
            Self::TCP => "tcp",
            Self::UDP => "udp",
            Self::DCCP => "dccp",
            Self::IPV6 => "ipv6",
            Self::ESP => "esp",
            Self::AH => "ah",
            Self::ICMPV6 => "ipv6-icmp",
            Self::SCTP => "sctp",
            Self::UDP_LITE => "udplite",
            other => return write!(f, "{}", other.0),
        };
        f.write_str(name)
    }
}
