//! Who sends: frames of connections, with right checksums and sequence numbers that go on.

use std::net::IpAddr;

use wire::ethernet::{self, EtherType};
use wire::{Addresses, PortId, Protocol, TcpFlags, checksum, ipv4};

use super::{Carried, FRAME};
use crate::frame::{Family, Fields};
use crate::topology::{self, IN, OUT, STATION};

/// A connection, as who sends its packets knows it.
#[derive(Clone, Copy, Default)]
pub(super) struct Ends {
    /// The next sequence number of each side.
    next: [u32; 2],
    /// Where answers go, as the gateway has translated it.
    pub(super) answered: ([u8; 4], [u8; 2]),
}

/// Makes the frames.
pub(super) struct Sender {
    pub(super) carried: Carried,
    bytes: [u8; FRAME],
    pub(super) ends: Vec<Ends>,
}

impl Sender {
    pub(super) fn new(carried: Carried, connections: u32) -> Self {
        Self { carried, bytes: [0; FRAME], ends: vec![Ends::default(); connections as usize] }
    }

    /// The frame of connection `number` that the one or the other side sends. As many connections as
    /// it was made for are remembered, the latest.
    pub(super) fn frame(
        &mut self,
        number: u64,
        is_answer: bool,
        flags: TcpFlags,
        data: usize,
    ) -> &[u8] {
        let Some(mut segment) = Segment::of(number) else { return &[] };
        let place = number.checked_rem(self.ends.len() as u64).unwrap_or(0);
        let ends = match self.ends.get_mut(place as usize) {
            Some(ends) => ends,
            None => &mut Ends::default(),
        };
        if flags == TcpFlags::SYN && !is_answer {
            ends.next = [0; 2];
        }
        if is_answer {
            (segment.source, segment.destination) = (segment.destination, ends.answered.0);
            segment.ports = [segment.ports[1], u16::from_be_bytes(ends.answered.1)];
        }
        let (own, other) = (usize::from(is_answer), usize::from(!is_answer));
        (segment.sequence, segment.acknowledgment) = (ends.next[own], ends.next[other]);
        (segment.flags, segment.data) = (flags, data);
        if self.carried == Carried::Tcp {
            let more = data as u32 + u32::from(flags.0 & 3 != 0);
            ends.next[own] = ends.next[own].wrapping_add(more);
        }
        self.write(if is_answer { OUT } else { IN }, &segment)
    }

    /// The next sequence number of the side that has opened connection `number`.
    pub(super) fn next_sequence(&self, number: u64) -> u32 {
        self.ends.get(number as usize).map_or(0, |ends| ends.next[0])
    }

    /// A frame that comes in by a port.
    pub(super) fn write(&mut self, by: PortId, segment: &Segment) -> &[u8] {
        let ethernet = ethernet::Header {
            destination: topology::mac(by),
            source: STATION,
            ether_type: EtherType::IPV4,
        };
        let (protocol, upper) = match self.carried {
            Carried::Udp | Carried::UdpOneWay => {
                (Protocol::UDP, FRAME - ethernet::HEADER_LENGTH - ipv4::HEADER_LENGTH)
            }
            Carried::Tcp => (Protocol::TCP, wire::tcp::HEADER_LENGTH + segment.data),
        };
        let ip = ipv4::Header {
            total_length: (ipv4::HEADER_LENGTH + upper) as u16,
            protocol,
            source: segment.source.into(),
            destination: segment.destination.into(),
            ..ipv4::Header::default()
        };
        let (link, rest) = self.bytes.split_at_mut(ethernet::HEADER_LENGTH);
        link.copy_from_slice(&ethernet.to_bytes());
        let (front, bytes) = rest.split_at_mut(ipv4::HEADER_LENGTH);
        front.copy_from_slice(&ip.to_bytes());
        let bytes = &mut bytes[..upper];
        bytes.fill(0);
        let addresses = Addresses::V4 { source: ip.source, destination: ip.destination };
        match self.carried {
            Carried::Udp | Carried::UdpOneWay => {
                bytes[..2].copy_from_slice(&segment.ports[0].to_be_bytes());
                bytes[2..4].copy_from_slice(&segment.ports[1].to_be_bytes());
                bytes[4..6].copy_from_slice(&(upper as u16).to_be_bytes());
                wire::udp::fill_checksum(&addresses, bytes);
            }
            Carried::Tcp => {
                let header = wire::tcp::Header {
                    source: segment.ports[0],
                    destination: segment.ports[1],
                    sequence: segment.sequence,
                    acknowledgment: segment.acknowledgment,
                    header_length: wire::tcp::HEADER_LENGTH as u8,
                    flags: segment.flags,
                    window: 60_000,
                    ..Default::default()
                };
                bytes[..wire::tcp::HEADER_LENGTH].copy_from_slice(&header.to_bytes());
                wire::tcp::fill_checksum(&addresses, bytes);
            }
        }
        debug_assert!(checksum::upper_is_right(&addresses, protocol, bytes));
        &self.bytes[..ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH + upper]
    }
}

/// What a frame says: a segment, or a datagram, which has addresses and ports alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) source: [u8; 4],
    pub(super) destination: [u8; 4],
    /// Source and destination.
    pub(super) ports: [u16; 2],
    pub(super) sequence: u32,
    pub(super) acknowledgment: u32,
    pub(super) flags: TcpFlags,
    /// Bytes of data.
    pub(super) data: usize,
}

impl Segment {
    /// A SYN that opens connection `number`.
    pub(super) fn of(number: u64) -> Option<Self> {
        let fields = Fields::of(Family::V4, number);
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (fields.source, fields.destination)
        else {
            return None;
        };
        Some(Self {
            source: source.octets(),
            destination: destination.octets(),
            ports: [fields.source_port, fields.destination_port],
            sequence: 0,
            acknowledgment: 0,
            flags: TcpFlags::SYN,
            data: 0,
        })
    }
}
