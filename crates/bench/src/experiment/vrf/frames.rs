//! Frames of the tenants' traffic, and which flow each is of.

use std::net::IpAddr;

use wire::ethernet::{self, EtherType};
use wire::{Mac, Protocol, checksum, ipv4, ipv6, tcp};

use super::layout::{Layout, Side};
use crate::frame::Family;

/// Bytes of a TCP header with the timestamps that most connections have (RFC 7323).
const TCP: usize = tcp::HEADER_LENGTH + 12;

/// The largest IP packet: what TCP's segments of a stream fill on Ethernet.
const MTU: usize = 1500;

/// Bytes of a request, and of its response.
const MESSAGE: usize = 64;

/// What the bytes behind the IP header are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    const fn protocol(self) -> Protocol {
        match self {
            Self::Tcp => Protocol::TCP,
            Self::Udp => Protocol::UDP,
        }
    }
}

/// What a frame is for. UDP has the lengths of TCP, so that the two compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// As long as the link takes.
    Segment,
    /// A header alone: what acknowledges segments.
    Ack,
    /// A request or a response.
    Message,
}

/// Length of an IP packet.
pub(crate) const fn packet_length(of: Use, family: Family) -> usize {
    let header = match family {
        Family::V4 => ipv4::HEADER_LENGTH,
        Family::V6 => ipv6::HEADER_LENGTH,
    };
    match of {
        Use::Segment => MTU,
        Use::Ack => header + TCP,
        Use::Message => header + TCP + MESSAGE,
    }
}

/// A flow between a client and a server of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub client: IpAddr,
    pub server: IpAddr,
    pub client_port: u16,
    pub server_port: u16,
}

/// One frame, into which one flow after the other is written.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    family: Family,
    bytes: Vec<u8>,
}

/// What is written where there are tags: `None` is for untagged frames.
type Tag = Option<u16>;

impl Template {
    /// A frame that has room for a VLAN tag in front, which untagged frames leave out.
    pub(crate) fn new(family: Family, transport: Transport, of: Use, to: Mac) -> Self {
        let length = packet_length(of, family);
        let source = crate::topology::STATION;
        let ether_type = if family == Family::V6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let mut bytes =
            ethernet::Header { destination: to, source, ether_type }.to_bytes().to_vec();
        let protocol = transport.protocol();
        match family {
            Family::V4 => {
                let total_length = length as u16;
                let header = ipv4::Header { total_length, protocol, ..ipv4::Header::default() };
                bytes.extend(header.to_bytes());
            }
            Family::V6 => {
                let payload_length = (length - ipv6::HEADER_LENGTH) as u16;
                let header =
                    ipv6::Header { payload_length, next_header: protocol, ..Default::default() };
                bytes.extend(header.to_bytes());
            }
        }
        let upper = bytes.len();
        bytes.resize(ethernet::HEADER_LENGTH + length, 0);
        match transport {
            // A header of eight words, and the flag ACK.
            Transport::Tcp => (bytes[upper + 12], bytes[upper + 13]) = ((TCP as u8 / 4) << 4, 0x10),
            Transport::Udp => {
                let rest = (bytes.len() - upper) as u16;
                bytes[upper + 4..upper + 6].copy_from_slice(&rest.to_be_bytes());
            }
        }
        Self { family, bytes }
    }

    /// Writes the flow's packet from `from`, with a VLAN tag if its frames have one, into `frame`.
    pub(crate) fn write(&self, flow: &Flow, from: Side, tag: Tag, frame: &mut Vec<u8>) {
        let (header, packet) = self.bytes.split_at(ethernet::HEADER_LENGTH);
        let (addresses, ether_type) = header.split_at(12);
        frame.clear();
        frame.extend_from_slice(addresses);
        if let Some(number) = tag {
            frame.extend_from_slice(&[0x81, 0x00]);
            frame.extend_from_slice(&number.to_be_bytes());
        }
        frame.extend_from_slice(ether_type);
        let start = frame.len();
        frame.extend_from_slice(packet);
        let packet = &mut frame[start..];
        let (ends, ports) = match from {
            Side::Client => ((flow.client, flow.server), [flow.client_port, flow.server_port]),
            Side::Server => ((flow.server, flow.client), [flow.server_port, flow.client_port]),
        };
        let upper = match ends {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                packet[10..12].fill(0);
                packet[12..16].copy_from_slice(&source.octets());
                packet[16..20].copy_from_slice(&destination.octets());
                let sum = checksum::checksum(&packet[..ipv4::HEADER_LENGTH]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
                ipv4::HEADER_LENGTH
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                packet[8..24].copy_from_slice(&source.octets());
                packet[24..40].copy_from_slice(&destination.octets());
                ipv6::HEADER_LENGTH
            }
            // Both are of the template's family.
            _ => return,
        };
        packet[upper..upper + 2].copy_from_slice(&ports[0].to_be_bytes());
        packet[upper + 2..upper + 4].copy_from_slice(&ports[1].to_be_bytes());
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }
}

impl Flow {
    /// Flow `number`, which is of `tenant`.
    pub(crate) fn of(layout: &Layout, family: Family, tenant: u32, number: u64) -> Self {
        // An odd factor: one to one, and neighbours far apart.
        let hash = (number as u32).wrapping_mul(0x9e37_79b1);
        let place = (number / u64::from(layout.tenants)) as u32;
        // The hosts of a prefix, its own address and the last one left out.
        let host = 1 + hash % 250;
        let [.., low] = hash.to_be_bytes();
        let end = |side| layout.address(family, side, tenant, place % layout.half, host);
        Self {
            client: end(Side::Client),
            server: end(Side::Server),
            client_port: (hash >> 16) as u16 | 0x8000,
            server_port: 1024 + u16::from(low),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use wire::{Origin, PacketFields, PortId, Upper, VrfId, headers};

    use super::*;
    use crate::experiment::vrf::layout::Links;

    fn layout(tenants: u32, overlap: bool) -> Layout {
        Layout { tenants, links: Links::Vlans(tenants as u16), overlap, half: 500 }
    }

    #[test]
    fn frames_are_well_formed_and_of_their_flow_in_both_directions() {
        for family in [Family::V4, Family::V6] {
            for transport in [Transport::Tcp, Transport::Udp] {
                for of in [Use::Segment, Use::Ack, Use::Message] {
                    let template = Template::new(family, transport, of, Mac([2; 6]));
                    let flow = Flow::of(&layout(7, true), family, 3, 1234);
                    let mut frame = Vec::new();
                    template.write(&flow, Side::Server, Some(77), &mut frame);
                    assert_eq!(frame[12..16], [0x81, 0, 0, 77]);
                    assert_eq!(frame.len(), 18 + packet_length(of, family));
                    template.write(&flow, Side::Client, None, &mut frame);
                    assert_eq!(frame.len(), 14 + packet_length(of, family));
                    let headers = headers::parse(&frame[14..]).unwrap();
                    let origin = Origin::Port(PortId(0));
                    let key = headers.key(VrfId::MAIN, origin, PacketFields::NONE);
                    assert_eq!(key.addresses.source(), flow.client);
                    assert_eq!(key.addresses.destination(), flow.server);
                    assert_eq!(key.protocol, transport.protocol());
                    let (source, destination) = (flow.client_port, flow.server_port);
                    assert_eq!(key.upper, Upper::Ports { source, destination });
                }
            }
        }
    }

    #[test]
    fn flows_differ_and_tenants_share_prefixes_if_they_overlap() {
        for family in [Family::V4, Family::V6] {
            let all: HashSet<Flow> =
                (0..16_000).map(|number| Flow::of(&layout(1, false), family, 0, number)).collect();
            assert_eq!(all.len(), 16_000);
            let server =
                |overlap, tenant| Flow::of(&layout(4000, overlap), family, tenant, 4000 * 3).server;
            assert_eq!(server(true, 1), server(true, 2));
            assert_ne!(server(false, 1), server(false, 2));
        }
    }
}
