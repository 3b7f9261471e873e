//! Between whom a packet in words is: `udp 192.168.13.5:5000 > 192.168.12.7:53`.

use std::net::{IpAddr, Ipv6Addr};

use api::shown;
use wire::{Addresses, Dscp, FragmentClass, PacketFields, Protocol, TcpFlags};

use super::description::{Description, DescriptionError, Fields, OriginName, TTL};

/// The protocol of a packet, and between whom it is.
pub(super) struct Ends {
    pub(super) addresses: Addresses,
    pub(super) protocol: Protocol,
    /// Of the source and of the destination, if they were said.
    pub(super) ports: [Option<u16>; 2],
}

impl Ends {
    /// Understands `PROTO SRC[:PORT] > DST[:PORT]`, of which `protocol` is the first word.
    pub(super) fn parse<'w>(
        protocol: &str,
        next: &mut impl FnMut(&str) -> Result<&'w str, DescriptionError>,
    ) -> Result<Self, DescriptionError> {
        let (source, source_port) = endpoint(next("a source address")?)?;
        let arrow = next("`>`")?;
        if arrow != ">" {
            return Err(DescriptionError::new(
                format!("`{}` stands where `>` should", shown(arrow)),
                "say `SRC > DST`",
            ));
        }
        let (destination, destination_port) = endpoint(next("a destination address")?)?;
        let addresses = Addresses::new(source, destination).ok_or_else(|| {
            DescriptionError::new(
                format!("{source} and {destination} are of different families"),
                "both must be IPv4 or both IPv6",
            )
        })?;
        let protocol = parse_protocol(protocol, &addresses)?;
        Ok(Self { addresses, protocol, ports: [source_port, destination_port] })
    }

    /// The packet between them that an error quotes: one in the middle of a connection.
    pub(super) fn quoted(self, fields: &Fields) -> Result<Description, DescriptionError> {
        let Self { addresses, protocol, ports } = self;
        let upper = fields.upper(protocol, FragmentClass::Whole, ports).map_err(|why| {
            DescriptionError::new(
                format!("of the quoted packet: {}", why.wrong),
                format!("{}; what is the error's own stands before `about`", why.right),
            )
        })?;
        if fields.sequence.is_some() && protocol != Protocol::TCP {
            return Err(DescriptionError::new(
                format!("of the quoted packet: {protocol} has no sequence number"),
                "leave it out: TCP has one",
            ));
        }
        Ok(Description {
            addresses,
            protocol,
            fragment: FragmentClass::Whole,
            upper,
            fields: PacketFields::new(TcpFlags::ACK, Dscp::default(), TTL),
            has_tcp_flags: true,
            dont_fragment: !addresses.is_v6(),
            size: None,
            sequence: fields.sequence,
            about: None,
            target: None,
            origin: OriginName::Host,
        })
    }
}

/// Whether a word is a protocol, in one family or the other.
pub(super) fn is_protocol(word: &str) -> bool {
    let [source, destination] = [Ipv6Addr::UNSPECIFIED; 2];
    parse_protocol(word, &Addresses::V6 { source, destination }).is_ok()
}

fn parse_protocol(word: &str, addresses: &Addresses) -> Result<Protocol, DescriptionError> {
    let protocol = match word {
        "tcp" => Protocol::TCP,
        "udp" => Protocol::UDP,
        "icmp" | "ping" if addresses.is_v6() => Protocol::ICMPV6,
        "icmp" | "ping" => Protocol::ICMP,
        "icmp6" | "icmpv6" | "ipv6-icmp" => Protocol::ICMPV6,
        "esp" => Protocol::ESP,
        "ah" => Protocol::AH,
        "sctp" => Protocol::SCTP,
        "dccp" => Protocol::DCCP,
        "udplite" | "udp-lite" => Protocol::UDP_LITE,
        "ipencap" | "ipip" => Protocol::IPV4,
        "ipv6" => Protocol::IPV6,
        other => match other.strip_prefix("proto-").unwrap_or(other).parse() {
            Ok(number) => Protocol(number),
            Err(_) => {
                return Err(DescriptionError::new(
                    format!("`{}` is not a protocol", shown(other)),
                    "say tcp, udp, icmp, esp, ah, sctp, dccp, udplite, or a number up to 255",
                ));
            }
        },
    };
    Ok(protocol)
}

/// `192.0.2.1`, `192.0.2.1:53`, `2001:db8::1` or `[2001:db8::1]:53`.
pub(super) fn endpoint(word: &str) -> Result<(IpAddr, Option<u16>), DescriptionError> {
    let wrong = || {
        DescriptionError::new(
            format!("`{}` is not an address", shown(word)),
            "say `192.0.2.1`, `192.0.2.1:53`, `2001:db8::1` or `[2001:db8::1]:53`",
        )
    };
    if let Ok(address) = word.parse() {
        return Ok((address, None));
    }
    if let Some(rest) = word.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or_else(wrong)?;
        let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
        return match port.strip_prefix(':') {
            None if port.is_empty() => Ok((address.into(), None)),
            None => Err(wrong()),
            Some(port) => Ok((address.into(), Some(number("port", port, u16::MAX.into())? as u16))),
        };
    }
    let (address, port) = word.split_once(':').ok_or_else(wrong)?;
    let address: std::net::Ipv4Addr = address.parse().map_err(|_| wrong())?;
    Ok((address.into(), Some(number("port", port, u16::MAX.into())? as u16)))
}

/// A decimal number, or a hexadecimal one with `0x`.
pub(super) fn number(what: &str, word: &str, limit: u32) -> Result<u32, DescriptionError> {
    let value = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => word.parse(),
    };
    value.ok().filter(|&value| value <= limit).ok_or_else(|| {
        DescriptionError::new(
            format!("`{}` is not a {what}", shown(word)),
            format!("it is a number from 0 to {limit}"),
        )
    })
}
