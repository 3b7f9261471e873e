//! The IP packet that a description stands for, byte by byte: what the stages would read.

use std::net::{IpAddr, Ipv6Addr};

use tables::Port;
use wire::quoted::is_error;
use wire::{
    Addresses, FragmentClass, Protocol, Spi, TcpFlags, Upper, checksum, icmpv4, icmpv6, ipv4, ipv6,
    ndp, sctp, tcp,
};

use super::description::{About, Description, DescriptionError};

/// Where a later fragment begins in its datagram, in bytes.
const OFFSET: u16 = 16;

/// Length of IPv6's fragment header.
const FRAGMENT_HEADER: usize = 8;

/// An option header of IPv6 with a router alert (RFC 2711) and padding, to be followed by ICMPv6.
const ROUTER_ALERT: [u8; 8] = [Protocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0];

/// Where link-local addresses begin.
const LINK_LOCAL: u128 = 0xfe80 << 112;

/// The option that fills up messages of neighbour discovery: a nonce (RFC 3971 section 5.3.2).
const NONCE: u8 = 14;

impl Description {
    /// Says which of a port's addresses a neighbour solicitation asks for, if it is to the group of
    /// one.
    pub(super) fn choose_target(&mut self, port: &Port) {
        let group = self.addresses.destination();
        self.target = port.spec.addresses.iter().find_map(|own| match own.address() {
            IpAddr::V6(own) if IpAddr::V6(ndp::solicited_node(own)) == group => Some(own),
            _ => None,
        });
    }

    /// The packet. Where it has no size, it is as short as it may be.
    ///
    /// # Errors
    /// It cannot have the size that is asked for.
    pub(crate) fn packet(&self) -> Result<Vec<u8>, DescriptionError> {
        let between = self.headers_between();
        let header = match self.addresses {
            Addresses::V4 { .. } => ipv4::HEADER_LENGTH,
            Addresses::V6 { .. } => ipv6::HEADER_LENGTH,
        } + between.len();
        let mut upper = self.upper_bytes()?;
        if self.fragment == FragmentClass::First {
            upper.resize(upper.len().next_multiple_of(8), 0);
        }
        let least = header + upper.len();
        if let Some(size) = self.size.map(usize::from) {
            let Some(more) = size.checked_sub(least) else {
                return Err(DescriptionError::new(
                    format!("size {size} is less than the headers of this packet"),
                    format!("it has {least} bytes at least"),
                ));
            };
            if self.fragment == FragmentClass::First && more % 8 != 0 {
                let right = size - more % 8;
                return Err(DescriptionError::new(
                    format!(
                        "size {size}: behind the IP header of a first fragment stands a multiple of 8 bytes"
                    ),
                    format!("say size {right} or {}", right + 8),
                ));
            }
            let most = usize::from(u16::MAX - OFFSET);
            if self.fragment == FragmentClass::Later && size > most {
                return Err(DescriptionError::new(
                    format!("size {size} is more than a later fragment may have"),
                    format!("it has {most} bytes at most"),
                ));
            }
            let fields = upper.len();
            upper.resize(fields + more, 0);
            if self.is_neighbour_discovery() && more >= 8 {
                (upper[fields], upper[fields + 1]) =
                    (NONCE, u8::try_from(more / 8).unwrap_or(u8::MAX));
            }
        }
        self.complete(&mut upper);
        let length = (header + upper.len()) as u16;
        let mut packet = self.ip_header(length);
        packet.extend(between);
        packet.extend(upper);
        Ok(packet)
    }

    /// What is between IPv6's own header and the upper layer's.
    fn headers_between(&self) -> Vec<u8> {
        if !self.addresses.is_v6() {
            return Vec::new();
        }
        let is_more = u16::from(self.fragment == FragmentClass::First);
        let offset = if self.fragment == FragmentClass::Later { OFFSET } else { 0 };
        let [high, low] = (offset | is_more).to_be_bytes();
        match self.fragment {
            FragmentClass::Whole if self.is_listener_discovery() => ROUTER_ALERT.to_vec(),
            FragmentClass::Whole => Vec::new(),
            FragmentClass::First | FragmentClass::Later => {
                let header: [u8; FRAGMENT_HEADER] = [self.protocol.0, 0, high, low, 0, 0, 0, 1];
                header.to_vec()
            }
        }
    }

    /// Messages of multicast listener discovery have a router alert (RFC 3810 section 5).
    fn is_listener_discovery(&self) -> bool {
        self.protocol == Protocol::ICMPV6
            && matches!(self.upper, Upper::Icmp { kind: 130..=132 | 143, .. })
            && self.fields.hop_limit() == 1
    }

    fn is_neighbour_discovery(&self) -> bool {
        self.protocol == Protocol::ICMPV6
            && self.fragment == FragmentClass::Whole
            && matches!(self.upper, Upper::Icmp { kind: 133..=137, .. })
    }

    /// What stands behind the first 8 bytes of a message of neighbour discovery (RFC 4861 section
    /// 4). A solicitation asks for its destination; an advertisement tells of its source.
    fn discovered(&self, kind: u8) -> Vec<u8> {
        let Addresses::V6 { source, destination } = self.addresses else { return Vec::new() };
        match kind {
            ndp::ROUTER_ADVERTISEMENT => vec![0; 8],
            ndp::NEIGHBOUR_SOLICITATION => {
                // One of no port's addresses that is of this group.
                let of_group = |group: Ipv6Addr| {
                    Ipv6Addr::from_bits(LINK_LOCAL | (group.to_bits() & 0xff_ffff))
                };
                let asked =
                    if destination.is_multicast() { of_group(destination) } else { destination };
                self.target.unwrap_or(asked).octets().to_vec()
            }
            ndp::NEIGHBOUR_ADVERTISEMENT => source.octets().to_vec(),
            icmpv6::REDIRECT => [destination.octets(), destination.octets()].concat(),
            _ => Vec::new(),
        }
    }

    fn ip_header(&self, length: u16) -> Vec<u8> {
        let traffic_class = self.fields.dscp().bits() << 2;
        match self.addresses {
            Addresses::V4 { source, destination } => {
                let header = ipv4::Header {
                    traffic_class,
                    total_length: length,
                    identification: 1,
                    dont_fragment: self.dont_fragment,
                    more_fragments: self.fragment == FragmentClass::First,
                    fragment_offset: if self.fragment == FragmentClass::Later { OFFSET } else { 0 },
                    ttl: self.fields.hop_limit(),
                    protocol: self.protocol,
                    source,
                    destination,
                };
                header.to_bytes().to_vec()
            }
            Addresses::V6 { source, destination } => ipv6::Header {
                traffic_class,
                payload_length: length - ipv6::HEADER_LENGTH as u16,
                next_header: match self.fragment {
                    FragmentClass::Whole if self.is_listener_discovery() => Protocol::HOP_BY_HOP,
                    FragmentClass::Whole => self.protocol,
                    FragmentClass::First | FragmentClass::Later => Protocol::FRAGMENT,
                },
                hop_limit: self.fields.hop_limit(),
                source,
                destination,
                ..ipv6::Header::default()
            }
            .to_bytes()
            .to_vec(),
        }
    }

    /// The upper layer's header, without its checksum; of a later fragment, what is of none.
    fn upper_bytes(&self) -> Result<Vec<u8>, DescriptionError> {
        let ports = |source: u16, destination: u16, rest: &[u8]| {
            [&source.to_be_bytes(), &destination.to_be_bytes(), rest].concat()
        };
        Ok(match (self.upper, self.protocol) {
            (Upper::Ports { source, destination }, Protocol::TCP) => {
                let flags = match self.fields.tcp_flags() {
                    // Of a packet whose flags nobody says, as of the first one of a connection.
                    TcpFlags(0) if !self.has_tcp_flags => TcpFlags::SYN,
                    flags => flags,
                };
                let sequence = self.sequence.unwrap_or(1).to_be_bytes();
                let rest = [0, 0, 0, 0, 0x50, flags.0, 0xff, 0xff, 0, 0, 0, 0];
                ports(source, destination, &[&sequence[..], &rest].concat())
            }
            (Upper::Ports { source, destination }, Protocol::SCTP) => {
                // INIT (RFC 9260 section 3.3.2), which opens a connection.
                let init = [
                    [0, 0, 0, 0],
                    [0, 0, 0, 0],
                    [1, 0, 0, 20],
                    [0, 0, 0, 1],
                    [0, 1, 0, 0],
                    [0, 1, 0, 1],
                    [0, 0, 0, 1],
                ];
                ports(source, destination, init.as_flattened())
            }
            (Upper::Ports { source, destination }, Protocol::DCCP) => {
                ports(source, destination, &[0; 8])
            }
            (Upper::Ports { source, destination }, _) => ports(source, destination, &[0; 4]),
            (Upper::Icmp { kind, code, identifier }, _) => {
                let [high, low] = identifier.to_be_bytes();
                let mut message = vec![kind, code, 0, 0, high, low, 0, 1];
                if is_error(self.protocol, kind) {
                    message[4..].fill(0);
                }
                if self.is_neighbour_discovery() {
                    message[7] = 0;
                    message.extend(self.discovered(kind));
                }
                message.extend(match &self.about {
                    None => Vec::new(),
                    Some(About::Esp(peer, spi)) => {
                        esp_to(*peer, self.addresses.destination(), *spi)
                    }
                    Some(About::Packet(quoted)) => quoted.packet()?,
                });
                message
            }
            (Upper::Spi(Spi(spi)), _) => [spi.to_be_bytes(), [0, 0, 0, 1]].concat(),
            (Upper::None, _) => vec![0; 8],
        })
    }

    /// Fills in lengths and checksums.
    fn complete(&self, upper: &mut [u8]) {
        if self.fragment != FragmentClass::Whole {
            return;
        }
        match (self.protocol, self.addresses) {
            (Protocol::TCP, addresses) => tcp::fill_checksum(&addresses, upper),
            (Protocol::UDP | Protocol::UDP_LITE, addresses) => {
                // UDP-Lite has its coverage there: all of it is 0 (RFC 3828 section 3.1).
                if self.protocol == Protocol::UDP {
                    let length = (upper.len() as u16).to_be_bytes();
                    upper[4..6].copy_from_slice(&length);
                }
                let sum = match checksum::upper(&addresses, self.protocol, upper) {
                    0 => 0xffff,
                    sum => sum,
                };
                upper[6..8].copy_from_slice(&sum.to_be_bytes());
            }
            (Protocol::SCTP, _) => _ = sctp::complete(upper),
            (Protocol::ICMP, _) => icmpv4::fill_checksum(upper),
            (Protocol::ICMPV6, Addresses::V6 { source, destination }) => {
                icmpv6::fill_checksum(source, destination, upper);
            }
            _ => {}
        }
    }
}

/// The begin of an ESP packet, as an ICMP error quotes it.
fn esp_to(peer: IpAddr, from: IpAddr, Spi(spi): Spi) -> Vec<u8> {
    let body = [spi.to_be_bytes(), [0, 0, 0, 1]].concat();
    let (source, destination) = match (from, peer) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = ipv4::Header {
                total_length: (ipv4::HEADER_LENGTH + body.len()) as u16,
                protocol: Protocol::ESP,
                source,
                destination,
                ..ipv4::Header::default()
            };
            return [&header.to_bytes()[..], &body].concat();
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => (source, destination),
        // It quotes what cannot be: about nothing that the gateway has sent.
        _ => (Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED),
    };
    let header = ipv6::Header {
        payload_length: body.len() as u16,
        next_header: Protocol::ESP,
        source,
        destination,
        ..ipv6::Header::default()
    };
    [&header.to_bytes()[..], &body].concat()
}

#[cfg(test)]
mod tests {
    use wire::headers;
    use wire::quoted::Quoted;

    use super::*;

    fn packet(text: &str) -> Vec<u8> {
        let described = Description::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        described.packet().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    /// What is read from the bytes is what was described.
    #[test]
    fn a_packet_is_as_described() {
        for text in [
            "udp 10.0.0.1:5000 > 10.0.0.2:53 in lan",
            "udp [fd00::1]:5000 > [fd00::2]:53 size 1500 in lan",
            "udplite 10.0.0.1:5000 > 10.0.0.2:53 in lan",
            "tcp 10.0.0.1:5000 > 10.0.0.2:53 tcp-flags ack dscp ef ttl 3 in lan",
            "tcp [fd00::1]:5000 > [fd00::2]:53 tcp-flags syn in lan",
            "sctp 10.0.0.1:5000 > 10.0.0.2:53 in lan",
            "dccp [fd00::1]:5000 > [fd00::2]:53 in lan",
            "icmp 10.0.0.1 > 10.0.0.2 id 7 size 84 in lan",
            "icmp fd00::1 > fd00::2 id 7 in lan",
            "icmp fe80::1 > ff02::16 type 143 ttl 1 in lan",
            "icmp fe80::1 > ff02::2 type 133 in lan",
            "icmp fe80::1 > ff02::1 type 134 size 72 in lan",
            "icmp fe80::1 > ff02::1:ff00:2 type 135 in lan",
            "icmp fe80::1 > fe80::2 type 135 size 72 in lan",
            "icmp fe80::1 > fe80::2 type 136 in lan",
            "icmp fe80::1 > fe80::2 type 137 in lan",
            "icmp 10.0.0.1 > 10.0.0.2 type 3 code 4 about 10.0.0.9 spi 0x1001 in wan",
            "icmp fd00::1 > fd00::2 type 2 about fd00::9 spi 0x1001 in wan",
            "icmp 10.0.0.1 > 10.0.0.2 type 3 about tcp 10.0.0.2:1 > 10.0.0.3:2 seq 9 in wan",
            "icmp fd00::1 > fd00::2 type 3 about icmp fd00::2 > fd00::3 id 7 in wan",
            "esp 10.0.0.1 > 10.0.0.2 spi 0x1001 in wan",
            "ah 10.0.0.1 > 10.0.0.2 in wan",
            "47 fd00::1 > fd00::2 in wan",
            "udp 10.0.0.1:5000 > 10.0.0.2:53 fragment first size 1500 in lan",
            "tcp 10.0.0.1:5000 > 10.0.0.2:53 tcp-flags syn fragment first in lan",
            "udp fd00::1 > fd00::2 fragment first in lan",
            "tcp 10.0.0.1 > 10.0.0.2 fragment later in lan",
            "udp fd00::1 > fd00::2 fragment later size 1280 in lan",
        ] {
            let described = Description::parse(text).unwrap();
            let packet = packet(text);
            let read = headers::parse(&packet).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(read.addresses, described.addresses, "{text}");
            assert_eq!(read.protocol, described.protocol, "{text}");
            assert_eq!(read.upper, described.upper, "{text}");
            assert_eq!(read.fragment.class, described.fragment, "{text}");
            assert_eq!(read.fields(), described.fields, "{text}");
            assert_eq!(usize::from(read.total_length), packet.len(), "{text}");
            if let Some(size) = described.size {
                assert_eq!(read.total_length, size, "{text}");
            }
        }
    }

    #[test]
    fn checksums_are_right() {
        for (protocol, is_v6) in [("tcp", false), ("udp", true), ("udp", false), ("icmp", true)] {
            let ends = if is_v6 { "fd00::1 > fd00::2" } else { "10.0.0.1 > 10.0.0.2" };
            let packet = packet(&format!("{protocol} {ends} size 201 in lan"));
            let read = headers::parse(&packet).unwrap();
            let upper = read.upper_bytes(&packet);
            assert!(
                checksum::upper_is_right(&read.addresses, read.protocol, upper),
                "{protocol} {ends}"
            );
        }
        let packet = packet("icmp 10.0.0.1 > 10.0.0.2 size 99 in lan");
        assert!(icmpv4::is_right(&packet[20..]));
    }

    /// What an error quotes is read as it was described.
    #[test]
    fn the_quoted_packet_is_as_described() {
        for quoted in [
            "tcp 10.0.0.2:1 > 10.0.0.3:2 seq 9",
            "udp 10.0.0.2:1 > 10.0.0.3:2",
            "icmp 10.0.0.2 > 10.0.0.3 type 0 id 7",
            "47 10.0.0.2 > 10.0.0.3",
            "tcp [fd00::2]:1 > [fd00::3]:2 seq 9",
            "icmp fd00::2 > fd00::3 id 7",
        ] {
            let ends =
                if quoted.contains("fd00") { "fd00::1 > fd00::2" } else { "10.0.0.1 > 10.0.0.2" };
            let packet = packet(&format!("icmp {ends} type 3 about {quoted} in wan"));
            let read = Quoted::read(&packet, &headers::parse(&packet).unwrap()).unwrap();
            let sequence = quoted.contains("seq").then_some(9);
            let alone = quoted.replace(" seq 9", "");
            let alone = Description::parse(&format!("{alone} in host")).unwrap();
            let expected = (alone.addresses, alone.protocol, alone.upper, sequence);
            let is = (read.addresses, read.protocol, read.upper, read.sequence);
            assert_eq!(is, expected, "{quoted}");
        }
    }

    #[test]
    fn df_and_sizes() {
        let df = |text: &str| headers::parse(&packet(text)).unwrap().dont_fragment;
        assert!(df("udp 10.0.0.1 > 10.0.0.2 df in lan"));
        assert!(!df("udp 10.0.0.1 > 10.0.0.2 in lan"));
        for (text, why) in [
            ("udp 10.0.0.1 > 10.0.0.2 size 27 in lan", "28 bytes at least"),
            ("udp 10.0.0.1 > 10.0.0.2 fragment first size 1499 in lan", "size 1492 or 1500"),
            ("udp 10.0.0.1 > 10.0.0.2 fragment later size 65535 in lan", "at most"),
        ] {
            let error = Description::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!(packet("udp 10.0.0.1 > 10.0.0.2 size 65535 in lan").len(), 65535);
    }
}
