//! Cuts a GSO frame into the segments that a network card would have made of it.

use packet::{MAX_LARGE_FRAME, Packet};
use wire::{Protocol, checksum};

use super::layout::Layout;
use super::{Refused, VnetHeader, written};

/// Cuts one frame. It keeps where it is, not the frame: that is given to each call anew.
///
/// The rules are those of the kernel's `tcp_gso_segment`, `__udp_gso_segment`, `inet_gso_segment`
/// and `ipv6_gso_segment`:
/// - every segment has the frame's headers and `gso_size` bytes of its payload, the last one what
///   is left;
/// - IPv4's total length and IPv6's payload length are the segment's; IPv4's identification counts
///   up by one;
/// - TCP's sequence number counts up by the payload; FIN and PSH stay on the last segment only, CWR
///   on the first only;
/// - UDP's length is the segment's;
/// - every checksum is complete, except that a UDP checksum of zero ("none") without offload stays
///   zero.
#[derive(Clone, Debug)]
pub struct Segmenter {
    layout: Layout,
    /// If the payload begins: length of all headers.
    payload: usize,
    size: usize,
    /// Payload bytes already cut.
    done: usize,
    index: u16,
    finished: bool,
    /// The sum of the pseudo-header without its length, or `None` for a UDP packet that has no
    /// checksum.
    pseudo_header: Option<u16>,
}

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

impl Segmenter {
    /// Judges whether `frame`, an Ethernet frame, can be cut as `header` says.
    ///
    /// # Errors
    /// [`Refused`] if it cannot.
    pub fn new(frame: &[u8], header: &VnetHeader) -> Result<Self, Refused> {
        let layout = Layout::find(frame).ok_or(Refused::Headers)?;
        let (protocol, is_ipv6) = match header.gso_type & !VnetHeader::GSO_ECN {
            VnetHeader::GSO_TCPV4 => (Protocol::TCP, false),
            VnetHeader::GSO_TCPV6 => (Protocol::TCP, true),
            VnetHeader::GSO_UDP_L4 if header.gso_type & VnetHeader::GSO_ECN == 0 => {
                (Protocol::UDP, layout.is_ipv6)
            }
            _ => return Err(Refused::Type),
        };
        // A tunnel's frame says TCP too, of the packet inside: then the outer headers differ.
        if layout.protocol != protocol || layout.is_ipv6 != is_ipv6 {
            return Err(Refused::Headers);
        }
        let upper = &frame[layout.upper..layout.end];
        let (upper_header, field) = if protocol == Protocol::TCP {
            (usize::from(upper.get(12).ok_or(Refused::Headers)? >> 4) * 4, TCP_CHECKSUM)
        } else {
            (8, UDP_CHECKSUM)
        };
        if upper_header < field + 2 || upper_header > upper.len() || header.gso_size == 0 {
            return Err(Refused::Headers);
        }
        let payload = layout.upper + upper_header;
        let size = usize::from(header.gso_size);
        if payload + size.min(layout.end - payload) > MAX_LARGE_FRAME {
            return Err(Refused::Length);
        }
        let checksum = u16::from_be_bytes([upper[field], upper[field + 1]]);
        let pseudo_header = if header.lacks_checksum() {
            if (usize::from(header.csum_start), usize::from(header.csum_offset))
                != (layout.upper, field)
            {
                return Err(Refused::Headers);
            }
            // The field holds the pseudo-header's sum with the whole packet's length. Adding the
            // complement takes the length out again. The addresses may not be those that count
            // (routing header), the field always is right.
            Some(checksum::combine(&[checksum, !(upper.len() as u16)]))
        } else if protocol == Protocol::UDP && checksum == 0 {
            None
        } else if layout.has_routing {
            return Err(Refused::Headers);
        } else {
            let addresses = if is_ipv6 {
                layout.network + 8..layout.network + 40
            } else {
                layout.network + 12..layout.network + 20
            };
            Some(checksum::combine(&[protocol.0.into(), checksum::sum(&frame[addresses])]))
        };
        Ok(Self { layout, payload, size, done: 0, index: 0, finished: false, pseudo_header })
    }

    /// Whether the last segment has been cut.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Length in bytes of the longest segment.
    pub fn longest(&self) -> usize {
        self.payload + self.size.min(self.layout.end - self.payload)
    }

    /// Length in bytes of the next segment.
    pub fn next_length(&self) -> usize {
        self.payload + self.size.min(self.layout.end - self.payload - self.done)
    }

    /// Leaves the next segment out, as if it had been cut and lost.
    pub fn skip_segment(&mut self) {
        self.advance(self.next_length() - self.payload);
    }

    fn advance(&mut self, count: usize) {
        self.done += count;
        self.index = self.index.wrapping_add(1);
        self.finished = self.done == self.layout.end - self.payload;
    }

    /// Puts the next segment of `frame`, the one given to [`Segmenter::new`], into `packet`.
    /// Returns false, and leaves the packet empty, after the last or if the packet is too short.
    pub fn next_segment(&mut self, frame: &[u8], packet: &mut Packet) -> bool {
        packet.clear();
        if self.finished || self.layout.end > frame.len() {
            self.finished = true;
            return false;
        }
        let rest = &frame[self.payload + self.done..self.layout.end];
        let data = &rest[..rest.len().min(self.size)];
        let is_last = data.len() == rest.len();
        let Some(bytes) = packet.append(self.payload + data.len()) else {
            self.finished = true;
            return false;
        };
        bytes[..self.payload].copy_from_slice(&frame[..self.payload]);
        bytes[self.payload..].copy_from_slice(data);
        self.fix_network(&mut bytes[self.layout.network..]);
        self.fix_upper(&mut bytes[self.layout.upper..], is_last);
        self.advance(data.len());
        true
    }

    fn fix_network(&self, packet: &mut [u8]) {
        if self.layout.is_ipv6 {
            let length = (packet.len() - 40) as u16;
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            return;
        }
        let length = packet.len() as u16;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        let identification = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(self.index);
        packet[4..6].copy_from_slice(&identification.to_be_bytes());
        packet[10..12].fill(0);
        let checksum = checksum::checksum(&packet[..self.layout.upper - self.layout.network]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn fix_upper(&self, packet: &mut [u8], is_last: bool) {
        let length = packet.len() as u16;
        let field = if self.layout.protocol == Protocol::TCP {
            let sequence = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]])
                .wrapping_add(self.done as u32);
            packet[4..8].copy_from_slice(&sequence.to_be_bytes());
            if !is_last {
                packet[13] &= !(TCP_FIN | TCP_PSH);
            }
            if self.index > 0 {
                packet[13] &= !TCP_CWR;
            }
            TCP_CHECKSUM
        } else {
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            UDP_CHECKSUM
        };
        let Some(pseudo_header) = self.pseudo_header else { return };
        packet[field..field + 2].fill(0);
        let checksum = written(!checksum::combine(&[pseudo_header, length, checksum::sum(packet)]));
        packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}
