//! Undoes the offloads of hosts on the same machine.
//!
//! A host behind a veth leaves the last steps of sending to a network card: transport checksums are
//! not filled in (`CHECKSUM_PARTIAL`) and TCP or UDP data come in one frame of up to 64 KiB to be
//! cut later (GSO). There is no card; the frame goes from the host's stack straight to us. The
//! kernel says what was left undone in a virtio-net header (Virtual I/O Device 1.3, section 5.1.6;
//! linux/virtio_net.h) and this module does it, with the kernel's own rules.
//!
//! What cannot be undone with certainty is refused, never passed on half done: tunnels with inner
//! segmentation, UFO, unknown types, and headers that contradict the virtio-net header.

mod cutter;
mod layout;
mod segment;

use packet::Packet;
use thiserror::Error;
use wire::{Protocol, checksum};

pub(crate) use cutter::{Cutter, LONGEST};
use layout::Layout;
pub use segment::Segmenter;

/// Why a frame's offload cannot be undone. Ports count such frames as `rx_errors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// A segmentation type that this code does not know: UFO, a tunnel, or one from the future.
    #[error("unknown segmentation type")]
    Type,
    /// The headers are not those that the segmentation type or the checksum fields say.
    #[error("the headers contradict the offload")]
    Headers,
    /// A segment would not fit a buffer.
    #[error("a segment would be longer than a buffer")]
    Length,
}

/// What the sender left undone: a virtio-net header in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// `VIRTIO_NET_HDR_F_*`.
    pub flags: u8,
    /// `VIRTIO_NET_HDR_GSO_*`.
    pub gso_type: u8,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// If the bytes to be summed begin, from the frame's start.
    pub csum_start: u16,
    /// If the checksum goes, from there.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Length in bytes.
    pub const LENGTH: usize = 10;

    const NEEDS_CSUM: u8 = 1;
    const GSO_NONE: u8 = 0;
    const GSO_TCPV4: u8 = 1;
    const GSO_TCPV6: u8 = 4;
    const GSO_UDP_L4: u8 = 5;
    /// A flag beside the TCP types: CWR is set, and belongs to the first segment.
    const GSO_ECN: u8 = 0x80;

    /// Reads the header as packet sockets and TAP devices write it, in host byte order. (`hdr_len`,
    /// bytes 2 and 3, is a hint that must not be relied on, so it is not kept.)
    pub fn parse(bytes: [u8; Self::LENGTH]) -> Self {
        let [flags, gso_type, _, _, a, b, c, d, e, f] = bytes;
        let [gso_size, csum_start, csum_offset] = [[a, b], [c, d], [e, f]].map(u16::from_ne_bytes);
        Self { flags, gso_type, gso_size, csum_start, csum_offset }
    }

    /// Whether the frame is as it would be on the wire.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.gso_type == Self::GSO_NONE && self.flags & Self::NEEDS_CSUM == 0
    }

    /// Whether the frame is to be cut into segments.
    #[inline]
    pub fn is_segmented(&self) -> bool {
        self.gso_type != Self::GSO_NONE
    }

    /// Whether the checksum is missing.
    #[inline]
    pub fn lacks_checksum(&self) -> bool {
        self.flags & Self::NEEDS_CSUM != 0
    }
}

/// Fills in the checksum that `header` says is missing.
///
/// # Errors
/// [`Refused::Headers`] if the place is outside the frame.
pub fn complete_checksum(frame: &mut [u8], header: &VnetHeader) -> Result<(), Refused> {
    let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
    let field = start + offset;
    if field + 2 > frame.len() {
        return Err(Refused::Headers);
    }
    // The one transport whose checksum is not a sum. The header cannot say so, but nothing else is
    // SCTP here.
    const SCTP_CHECKSUM: usize = 8;
    if offset == SCTP_CHECKSUM && layout_is_sctp(frame, start) {
        return match wire::sctp::complete(&mut frame[start..]) {
            true => Ok(()),
            false => Err(Refused::Headers),
        };
    }
    // The field holds the sum of the pseudo-header, so summing it along is what is wanted.
    let checksum = written(!checksum::sum(&frame[start..]));
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Length of a VLAN tag in bytes.
pub(crate) const VLAN_TAG: usize = 4;
/// The most VLAN tags of a frame that are taken for such.
pub(crate) const MAX_VLAN_TAGS: usize = 2;

/// Puts a VLAN tag back that the kernel took out of the frame. Returns false if there is no
/// room.
pub fn insert_vlan(packet: &mut Packet, tpid: u16, tci: u16) -> bool {
    const ADDRESSES: usize = 12;
    if packet.len() < ADDRESSES || packet.tailroom() < VLAN_TAG {
        return false;
    }
    let length = packet.len();
    if packet.append(VLAN_TAG).is_none() {
        return false;
    }
    let bytes = packet.bytes_mut();
    bytes.copy_within(ADDRESSES..length, ADDRESSES + VLAN_TAG);
    bytes[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tpid.to_be_bytes());
    bytes[ADDRESSES + 2..ADDRESSES + VLAN_TAG].copy_from_slice(&tci.to_be_bytes());
    true
}

/// A TCP or UDP checksum as it is written. Zero becomes 0xffff, which is the same number in ones'
/// complement and does not mean "none" in UDP; the kernel writes both so.
fn written(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

fn layout_is_sctp(frame: &[u8], start: usize) -> bool {
    Layout::find(frame)
        .is_some_and(|layout| layout.protocol == Protocol::SCTP && layout.upper == start)
}

#[cfg(test)]
mod tests;
