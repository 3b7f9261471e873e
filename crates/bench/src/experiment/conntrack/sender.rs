//! Who sends: frames of connections, with right checksums and sequence numbers that go on.

use wire::ethernet::{self, EtherType};
use wire::{Addresses, Protocol, TcpFlags, checksum, ipv4};

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
        let fields = Fields::of(Family::V4, number);
        let (std::net::IpAddr::V4(inside), std::net::IpAddr::V4(outside)) =
            (fields.source, fields.destination)
        else {
            return &[];
        };
        let place = number.checked_rem(self.ends.len() as u64).unwrap_or(0);
        let ends = match self.ends.get_mut(place as usize) {
            Some(ends) => ends,
            None => &mut Ends::default(),
        };
        if flags == TcpFlags::SYN && !is_answer {
            ends.next = [0; 2];
        }
        let (mut source, mut destination) = (inside.octets(), outside.octets());
        let mut ports = [fields.source_port.to_be_bytes(), fields.destination_port.to_be_bytes()];
        if is_answer {
            (source, destination) = (destination, ends.answered.0);
            ports = [ports[1], ends.answered.1];
        }
        let to = topology::mac(if is_answer { OUT } else { IN });
        let ethernet =
            ethernet::Header { destination: to, source: STATION, ether_type: EtherType::IPV4 };
        let (protocol, header) = match self.carried {
            Carried::Udp => (Protocol::UDP, 8),
            Carried::Tcp => (Protocol::TCP, wire::tcp::HEADER_LENGTH),
        };
        let upper = match self.carried {
            Carried::Udp => FRAME - ethernet::HEADER_LENGTH - ipv4::HEADER_LENGTH,
            Carried::Tcp => header + data,
        };
        let ip = ipv4::Header {
            total_length: (ipv4::HEADER_LENGTH + upper) as u16,
            protocol,
            source: source.into(),
            destination: destination.into(),
            ..ipv4::Header::default()
        };
        let (link, rest) = self.bytes.split_at_mut(ethernet::HEADER_LENGTH);
        link.copy_from_slice(&ethernet.to_bytes());
        let (front, bytes) = rest.split_at_mut(ipv4::HEADER_LENGTH);
        front.copy_from_slice(&ip.to_bytes());
        let bytes = &mut bytes[..upper];
        bytes.fill(0);
        bytes[..2].copy_from_slice(&ports[0]);
        bytes[2..4].copy_from_slice(&ports[1]);
        let addresses = Addresses::V4 { source: ip.source, destination: ip.destination };
        match self.carried {
            Carried::Udp => {
                bytes[4..6].copy_from_slice(&(upper as u16).to_be_bytes());
                wire::udp::fill_checksum(&addresses, bytes);
            }
            Carried::Tcp => {
                let (own, other) = (usize::from(is_answer), usize::from(!is_answer));
                let segment = wire::tcp::Header {
                    source: u16::from_be_bytes(ports[0]),
                    destination: u16::from_be_bytes(ports[1]),
                    sequence: ends.next[own],
                    acknowledgment: ends.next[other],
                    header_length: wire::tcp::HEADER_LENGTH as u8,
                    flags,
                    window: 60_000,
                    ..Default::default()
                };
                bytes[..header].copy_from_slice(&segment.to_bytes());
                wire::tcp::fill_checksum(&addresses, bytes);
                let more = data as u32 + u32::from(flags.0 & 3 != 0);
                ends.next[own] = ends.next[own].wrapping_add(more);
            }
        }
        debug_assert!(checksum::upper_is_right(&addresses, protocol, bytes));
        &self.bytes[..ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH + upper]
    }
}
