//! What the flows of a bench look like: a flow is a number, and its packets' fields follow from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::ethernet::{self, EtherType};
use wire::{Mac, Protocol, checksum, ipv4, ipv6};

/// Length of ports and the rest of a UDP header.
const UDP: usize = 8;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// As the JSON and the series have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    const fn header_length(self) -> usize {
        match self {
            Self::V4 => ipv4::HEADER_LENGTH,
            Self::V6 => ipv6::HEADER_LENGTH,
        }
    }
}

/// What tells the packets of one flow from those of another. UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fields {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
}

impl Fields {
    /// The fields of flow `number`: no two of the first 2^32 flows have the same ports. Sources are
    /// in 10.128.0.0/9 or fd00:0:0:1::/64, destinations all over the 256 prefixes of
    /// [`crate::topology::tables`].
    pub(crate) fn of(family: Family, number: u64) -> Self {
        // An odd factor: one to one, and neighbours far apart.
        let [a, b, c, d] = (number as u32).wrapping_mul(0x9e37_79b1).to_be_bytes();
        let (source, destination) = match family {
            Family::V4 => {
                (Ipv4Addr::new(10, 128 | b, c, d).into(), Ipv4Addr::new(198, 18, a, b).into())
            }
            Family::V6 => {
                let source = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, a, b, c, d];
                let destination = [0x20, 0x01, 0x0d, 0xb8, 0, a, 0, 0, 0, 0, 0, 0, 0, b, c, d];
                (Ipv6Addr::from(source).into(), Ipv6Addr::from(destination).into())
            }
        };
        Self {
            source,
            destination,
            source_port: u16::from_be_bytes([c, d]),
            destination_port: u16::from_be_bytes([a, b]),
        }
    }
}

/// One frame, into which the fields of one flow after the other are written. There may be more
/// flows than frames fit in memory.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    family: Family,
    bytes: Vec<u8>,
}

impl Frame {
    /// The least that a frame may have: Ethernet, IPv6 and UDP headers.
    pub(crate) const SHORTEST: usize = ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH + UDP;

    /// A frame of `length` bytes, link header included and without frame check sequence, that is at
    /// least [`Frame::SHORTEST`].
    pub(crate) fn new(family: Family, length: usize, from: Mac, to: Mac) -> Self {
        let packet = length.max(Self::SHORTEST) - ethernet::HEADER_LENGTH;
        let upper = packet - family.header_length();
        let ether_type = if family == Family::V6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let mut bytes =
            ethernet::Header { destination: to, source: from, ether_type }.to_bytes().to_vec();
        match family {
            Family::V4 => bytes.extend(
                ipv4::Header {
                    total_length: packet as u16,
                    protocol: Protocol::UDP,
                    ..ipv4::Header::default()
                }
                .to_bytes(),
            ),
            Family::V6 => bytes.extend(
                ipv6::Header {
                    payload_length: upper as u16,
                    next_header: Protocol::UDP,
                    ..ipv6::Header::default()
                }
                .to_bytes(),
            ),
        }
        bytes.extend([0; 4]);
        bytes.extend((upper as u16).to_be_bytes());
        bytes.resize(ethernet::HEADER_LENGTH + packet, 0);
        Self { family, bytes }
    }

    /// The frame of flow `number`.
    pub(crate) fn of(&mut self, number: u64) -> &[u8] {
        let fields = Fields::of(self.family, number);
        let packet = &mut self.bytes[ethernet::HEADER_LENGTH..];
        match (fields.source, fields.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                packet[10..12].fill(0);
                packet[12..16].copy_from_slice(&source.octets());
                packet[16..20].copy_from_slice(&destination.octets());
                let sum = checksum::checksum(&packet[..ipv4::HEADER_LENGTH]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                packet[8..24].copy_from_slice(&source.octets());
                packet[24..40].copy_from_slice(&destination.octets());
            }
            // Both are of the frame's family.
            _ => {}
        }
        let upper = self.family.header_length();
        packet[upper..upper + 2].copy_from_slice(&fields.source_port.to_be_bytes());
        packet[upper + 2..upper + 4].copy_from_slice(&fields.destination_port.to_be_bytes());
        &self.bytes
    }

    /// Length in bytes, link header included.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use wire::{Origin, PacketFields, PortId, Upper, VrfId, headers};

    use super::*;

    #[test]
    fn frames_are_well_formed_and_say_what_their_flow_says() {
        for family in [Family::V4, Family::V6] {
            let mut frame = Frame::new(family, 64, Mac([2; 6]), Mac([4; 6]));
            for number in [0, 1, 77, u64::from(u32::MAX)] {
                let fields = Fields::of(family, number);
                let bytes = frame.of(number);
                let origin = Origin::Port(PortId(0));
                let headers = headers::parse(&bytes[14..]).unwrap();
                let key = headers.key(VrfId::MAIN, origin, PacketFields::NONE);
                assert_eq!(
                    (key.addresses.source(), key.addresses.destination()),
                    (fields.source, fields.destination)
                );
                let ports = Upper::Ports {
                    source: fields.source_port,
                    destination: fields.destination_port,
                };
                assert_eq!(key.upper, ports);
            }
            assert_eq!(frame.length(), 64);
        }
        assert_eq!(Frame::new(Family::V4, 1400, Mac([2; 6]), Mac([4; 6])).of(3).len(), 1400);
    }

    #[test]
    fn flows_differ() {
        for family in [Family::V4, Family::V6] {
            let flows: HashSet<_> = (0..100_000).map(|number| Fields::of(family, number)).collect();
            assert_eq!(flows.len(), 100_000);
        }
    }
}
