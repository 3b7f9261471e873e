//! Packet buffers, made once and passed from hand to hand.

use core::fmt;

use crate::time::Time;
use wire::PortId;

/// Bytes free in front of a received frame: room for an outer IPv6 header, an ESP header with its
/// IV, and a new link header.
pub const HEADROOM: usize = 192;

/// The longest frame a buffer takes in, link header included, with the headroom in front still
/// free.
pub const MAX_FRAME: usize = 2048;

/// All of a buffer's bytes: headroom, frame, and room behind for an ESP trailer and ICV.
pub const CAPACITY: usize = HEADROOM + MAX_FRAME + 64;

/// One packet: a buffer from a [`Pool`] and the part of it that holds bytes now.
///
/// Moving it moves a pointer.
pub struct Packet(Box<Buffer>);

#[repr(C, align(64))]
struct Buffer {
    start: u16,
    end: u16,
    port: PortId,
    /// Of the IP header, from `start`.
    network_offset: u16,
    received: Time,
    bytes: [u8; CAPACITY],
}

impl Packet {
    fn new() -> Self {
        Self(Box::new(Buffer {
            start: HEADROOM as u16,
            end: HEADROOM as u16,
            port: PortId(0),
            network_offset: 0,
            received: Time(0),
            bytes: [0; CAPACITY],
        }))
    }

    /// Empties the packet and puts the full headroom back in front. Bytes of earlier use stay in
    /// the buffer's unused parts.
    pub fn clear(&mut self) {
        self.0.start = HEADROOM as u16;
        self.0.end = HEADROOM as u16;
        self.0.network_offset = 0;
    }

    /// Replaces the contents with `bytes`.
    ///
    /// Answers false, and leaves the packet empty, where they are more than [`MAX_FRAME`].
    #[must_use]
    pub fn fill(&mut self, bytes: &[u8]) -> bool {
        self.clear();
        match self.append(bytes.len()) {
            Some(room) if bytes.len() <= MAX_FRAME => {
                room.copy_from_slice(bytes);
                true
            }
            _ => {
                self.clear();
                false
            }
        }
    }

    /// The packet's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes[usize::from(self.0.start)..usize::from(self.0.end)]
    }

    /// The packet's bytes, to change.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0.bytes[usize::from(self.0.start)..usize::from(self.0.end)]
    }

    /// The whole buffer, used and unused, with the used part's start and length. Whoever moves the
    /// used part tells [`Packet::set_used`].
    #[inline]
    pub fn buffer_mut(&mut self) -> (&mut [u8], usize, usize) {
        let (start, end) = (usize::from(self.0.start), usize::from(self.0.end));
        (&mut self.0.bytes, start, end - start)
    }

    /// Says which part of the buffer is used now.
    ///
    /// # Panics
    /// Where the part is not inside the buffer: a mistake of the caller's, never of a packet's.
    #[inline]
    pub fn set_used(&mut self, start: usize, length: usize) {
        assert!(start <= CAPACITY && length <= CAPACITY - start);
        self.0.start = start as u16;
        self.0.end = (start + length) as u16;
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.0.end - self.0.start)
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.start == self.0.end
    }

    /// Bytes free in front.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.0.start)
    }

    /// Bytes free behind.
    #[inline]
    pub fn tailroom(&self) -> usize {
        CAPACITY - usize::from(self.0.end)
    }

    /// Grows by `count` bytes in front and answers them, or `None` where the headroom is smaller.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        let start = usize::from(self.0.start).checked_sub(count)?;
        self.0.start = start as u16;
        Some(&mut self.0.bytes[start..start + count])
    }

    /// Grows by `count` bytes behind and answers them, or `None` where the tailroom is smaller.
    #[inline]
    pub fn append(&mut self, count: usize) -> Option<&mut [u8]> {
        let end = usize::from(self.0.end);
        if count > CAPACITY - end {
            return None;
        }
        self.0.end = (end + count) as u16;
        Some(&mut self.0.bytes[end..end + count])
    }

    /// Removes `count` bytes in front; all of them where there are fewer.
    #[inline]
    pub fn strip(&mut self, count: usize) {
        let start = (usize::from(self.0.start) + count).min(usize::from(self.0.end));
        self.0.start = start as u16;
    }

    /// Keeps the first `length` bytes; all of them where there are fewer.
    #[inline]
    pub fn truncate(&mut self, length: usize) {
        let end = (usize::from(self.0.start) + length).min(usize::from(self.0.end));
        self.0.end = end as u16;
    }

    /// The port it came in by.
    #[inline]
    pub fn port(&self) -> PortId {
        self.0.port
    }

    /// When it came in.
    #[inline]
    pub fn received(&self) -> Time {
        self.0.received
    }

    /// Notes where and when it came in.
    #[inline]
    pub fn set_arrival(&mut self, port: PortId, received: Time) {
        self.0.port = port;
        self.0.received = received;
    }
}

/// Shows the bytes in use, in hexadecimal.
impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({:?}, {} bytes: ", self.0.port, self.len())?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// A worker's stock of packets. All of its memory is allocated when it is made.
#[derive(Debug)]
pub struct Pool {
    free: Vec<Packet>,
    size: usize,
}

impl Pool {
    /// A pool of `size` packets.
    pub fn new(size: usize) -> Self {
        Self { free: (0..size).map(|_| Packet::new()).collect(), size }
    }

    /// An empty packet, or `None` where all are in use.
    #[inline]
    pub fn take(&mut self) -> Option<Packet> {
        let mut packet = self.free.pop()?;
        packet.clear();
        Some(packet)
    }

    /// Takes a packet back.
    #[inline]
    pub fn give(&mut self, packet: Packet) {
        self.free.push(packet);
    }

    /// Takes many packets back.
    #[inline]
    pub fn give_all(&mut self, packets: impl IntoIterator<Item = Packet>) {
        self.free.extend(packets);
    }

    /// Packets free now.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Packets there are in all.
    pub fn size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_grows_and_shrinks_at_both_ends() {
        let mut pool = Pool::new(1);
        let mut packet = pool.take().unwrap();
        assert!(pool.take().is_none());
        assert!(packet.fill(b"payload"));
        packet.prepend(2).unwrap().copy_from_slice(b"h-");
        packet.append(2).unwrap().copy_from_slice(b"-t");
        assert_eq!(packet.bytes(), b"h-payload-t");
        packet.strip(2);
        packet.truncate(7);
        assert_eq!(packet.bytes(), b"payload");
        packet.strip(100);
        assert!(packet.is_empty());
        pool.give(packet);
        assert_eq!((pool.available(), pool.size()), (1, 1));
    }

    #[test]
    fn a_packet_never_grows_past_its_buffer() {
        let mut packet = Pool::new(1).take().unwrap();
        assert!(packet.prepend(HEADROOM + 1).is_none());
        assert!(packet.append(CAPACITY).is_none());
        assert!(packet.is_empty());
        assert!(!packet.fill(&[0; MAX_FRAME + 1]));
        assert!(packet.is_empty());
        assert!(packet.fill(&[0; MAX_FRAME]));
        assert_eq!(packet.headroom(), HEADROOM);
    }
}
