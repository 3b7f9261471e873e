//! IP protocol numbers and their names, as /etc/protocols and so iproute2 have them.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

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

impl From<u8> for Protocol {
    fn from(number: u8) -> Self {
        Self(number)
    }
}

/// The names known, with their numbers. If there are several of one number, the first is shown.
const NAMES: &[(&str, u8)] = &[
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("ospf", 89),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("mobility-header", 135),
    ("udplite", 136),
];

/// A text is neither the name of a protocol nor a number from 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("there is no such IP protocol")]
pub struct UnknownProtocol;

/// The protocol's name, or its number.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Reads a name or a number.
impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(text: &str) -> Result<Self, UnknownProtocol> {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().map(Self).map_err(|_| UnknownProtocol);
        }
        let known = NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, number)| Self(*number)).ok_or(UnknownProtocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_and_names_written() {
        assert_eq!("tcp".parse(), Ok(Protocol::TCP));
        assert_eq!("icmpv6".parse(), Ok(Protocol::ICMPV6));
        assert_eq!("253".parse(), Ok(Protocol(253)));
        for wrong in ["256", "", "tpc", "+6"] {
            assert_eq!(wrong.parse::<Protocol>(), Err(UnknownProtocol), "{wrong}");
        }
        assert_eq!(Protocol::ICMPV6.to_string(), "ipv6-icmp");
        assert_eq!(Protocol(253).to_string(), "253");
        for number in 0..=255 {
            assert_eq!(Protocol(number).to_string().parse(), Ok(Protocol(number)));
        }
    }
}
