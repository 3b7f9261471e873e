//! Packet buffers, made once and used again and again.

use core::fmt;

use crate::slab::{self, Packet, Pages};

/// Bytes free in front of a received frame: room for an outer IPv6 header, an ESP header with its
/// IV, and a new link header.
pub const HEADROOM: usize = 192;

/// The longest frame that a small buffer takes in, link header included, with the headroom in
/// front still free.
pub const MAX_FRAME: usize = 2048;

/// The largest IP packet in bytes that any port carries.
pub const MAX_MTU: u16 = 9216;

/// The longest frame that a large buffer takes in: [`MAX_MTU`] and a link header of up to 22 bytes.
pub const MAX_LARGE_FRAME: usize = 9280;

/// All bytes of a small buffer: headroom, frame, and room behind for an ESP trailer and ICV.
///
/// An odd number of cache lines, so that the same part of each buffer does not always fall into
/// the same few sets of the processor's caches.
pub const CAPACITY: usize = HEADROOM + MAX_FRAME + 128;

/// All bytes of a large buffer.
pub const LARGE_CAPACITY: usize = HEADROOM + MAX_LARGE_FRAME + 64;

const _: () = assert!(CAPACITY % 128 == 64 && LARGE_CAPACITY % 128 == 64);
const _: () = assert!(MAX_LARGE_FRAME >= MAX_MTU as usize + 22 && LARGE_CAPACITY < 1 << 16);

impl Packet {
    /// Empties the packet and puts the full headroom back in front. Bytes of earlier use stay in
    /// the buffer's unused parts.
    #[inline]
    pub fn clear(&mut self) {
        self.set_range(HEADROOM, HEADROOM);
    }

    /// Replaces the contents with `bytes`.
    ///
    /// Returns false, and leaves the packet empty, if they are more than [`Packet::longest_frame`].
    #[must_use]
    pub fn fill(&mut self, bytes: &[u8]) -> bool {
        self.clear();
        if bytes.len() > self.longest_frame() {
            return false;
        }
        match self.append(bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
            None => return false,
        }
        true
    }

    /// The longest frame that the buffer takes in: [`MAX_FRAME`], or [`MAX_LARGE_FRAME`].
    #[inline]
    pub fn longest_frame(&self) -> usize {
        if self.is_large() { MAX_LARGE_FRAME } else { MAX_FRAME }
    }

    /// The whole buffer, used and unused, with the used part's start and length. Whoever moves the
    /// used part tells [`Packet::set_used`].
    #[inline]
    pub fn buffer_mut(&mut self) -> (&mut [u8], usize, usize) {
        let (start, end) = self.used();
        (self.all_mut(), start, end - start)
    }

    /// Says which part of the buffer is used now.
    ///
    /// # Panics
    /// If the part is not inside the buffer: a mistake of the caller's, never of a packet's.
    #[inline]
    pub fn set_used(&mut self, start: usize, length: usize) {
        self.set_range(start, start + length);
    }

    /// Length in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        let (start, end) = self.used();
        end - start
    }

    /// Whether there are no bytes.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes free in front.
    #[inline(always)]
    pub fn headroom(&self) -> usize {
        self.used().0
    }

    /// Bytes free behind.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.capacity() - self.used().1
    }

    /// Grows by `count` bytes in front and returns them, or `None` if the headroom is smaller.
    #[inline(always)]
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        let start = self.headroom().checked_sub(count)?;
        self.set_start(start);
        Some(&mut self.bytes_mut()[..count])
    }

    /// Grows by `count` bytes in front and returns all bytes, or `None` if the headroom is smaller.
    #[inline(always)]
    pub fn grow_front(&mut self, count: usize) -> Option<&mut [u8]> {
        let start = self.headroom().checked_sub(count)?;
        self.set_start(start);
        Some(self.bytes_mut())
    }

    /// Grows by `count` bytes behind and returns them, or `None` if the tailroom is smaller.
    #[inline]
    pub fn append(&mut self, count: usize) -> Option<&mut [u8]> {
        let (start, end) = self.used();
        if count > self.capacity() - end {
            return None;
        }
        self.set_range(start, end + count);
        Some(&mut self.bytes_mut()[end - start..])
    }

    /// Removes `count` bytes in front; all of them if there are fewer.
    #[inline(always)]
    pub fn strip(&mut self, count: usize) {
        let (start, end) = self.used();
        self.set_start(start.saturating_add(count).min(end));
    }

    /// Keeps the first `length` bytes; all of them if there are fewer.
    #[inline(always)]
    pub fn truncate(&mut self, length: usize) {
        let (start, end) = self.used();
        self.cut_end(start.saturating_add(length).min(end));
    }
}

/// Shows the bytes in use, in hexadecimal.
impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({:?}, {} bytes: ", self.port(), self.len())?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// A worker's stock of packets, in one mapping that is made with it.
///
/// Most are small ([`MAX_FRAME`]); a few large ones carry frames of up to [`MAX_LARGE_FRAME`].
#[derive(Debug)]
pub struct Pool {
    small: Vec<Packet>,
    large: Vec<Packet>,
    size: usize,
    has_large: bool,
    pages: Pages,
}

impl Pool {
    /// A pool of `size` small packets.
    pub fn new(size: usize) -> Self {
        Self::with_large(size, 0)
    }

    /// A pool of `small` and `large` packets.
    ///
    /// # Panics
    /// If the system does not give the address space.
    pub fn with_large(small: usize, large: usize) -> Self {
        let (size, has_large) = (small + large, large > 0);
        let (small, large, pages) = slab::cut(small, large);
        Self { small, large, size, has_large, pages }
    }

    /// An empty small packet, or `None` if all are in use.
    #[inline]
    pub fn take(&mut self) -> Option<Packet> {
        let mut packet = self.small.pop()?;
        packet.clear();
        Some(packet)
    }

    /// An empty large packet, or `None` if all are in use.
    #[inline]
    pub fn take_large(&mut self) -> Option<Packet> {
        let mut packet = self.large.pop()?;
        packet.clear();
        Some(packet)
    }

    /// An empty packet for a frame of `length` bytes: a small one if that is enough.
    ///
    /// `None` if all of that kind are in use, or no buffer is long enough.
    #[inline]
    pub fn take_for(&mut self, length: usize) -> Option<Packet> {
        if length <= MAX_FRAME {
            self.take()
        } else if length <= MAX_LARGE_FRAME {
            self.take_large()
        } else {
            None
        }
    }

    /// A packet with a copy of `frame`, in a small buffer if that is enough.
    ///
    /// `None` if all of that kind are in use, or no buffer is long enough.
    #[inline]
    pub fn take_copy(&mut self, frame: &[u8]) -> Option<Packet> {
        let mut packet = self.take_for(frame.len())?;
        let is_filled = packet.fill(frame);
        debug_assert!(is_filled, "take_for returns a packet that is long enough");
        Some(packet)
    }

    /// Takes `count` small packets, or as many as are free.
    ///
    /// They are as their last user left them: whoever uses one clears it first. This is for ports
    /// that give them away in exchange for received ones.
    #[inline]
    pub fn take_small(&mut self, count: usize) -> impl ExactSizeIterator<Item = Packet> {
        let rest = self.small.len().saturating_sub(count);
        self.small.drain(rest..)
    }

    /// Takes a packet back.
    #[inline(always)]
    pub fn give(&mut self, packet: Packet) {
        let stock = if packet.is_large() { &mut self.large } else { &mut self.small };
        stock.push(packet);
    }

    /// Takes many packets back.
    #[inline]
    pub fn give_all(&mut self, packets: impl IntoIterator<Item = Packet>) {
        packets.into_iter().for_each(|packet| self.give(packet));
    }

    /// Takes many small packets back, without looking at each.
    #[inline]
    pub fn give_small(&mut self, count: usize, packets: impl Iterator<Item = Packet>) {
        self.small.reserve(count);
        packets.for_each(|packet| {
            debug_assert!(!packet.is_large());
            self.small.push(packet);
        });
    }

    /// Packets free now, small and large.
    pub fn available(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// Small packets free now.
    #[inline]
    pub fn small_available(&self) -> usize {
        self.small.len()
    }

    /// The longest frame that a packet of the pool takes in.
    pub fn longest_frame(&self) -> usize {
        if self.has_large { MAX_LARGE_FRAME } else { MAX_FRAME }
    }

    /// Packets there are in all.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What pages their memory is made of.
    pub fn pages(&self) -> Pages {
        self.pages
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
        assert_eq!(packet.grow_front(1).map(|bytes| bytes.len()), Some(12));
        packet.strip(1);
        packet.strip(2);
        packet.truncate(7);
        assert_eq!(packet.bytes(), b"payload");
        packet.narrow(1, 3);
        assert_eq!(packet.bytes(), b"ayl");
        packet.narrow(1, 100);
        assert_eq!(packet.bytes(), b"yl");
        packet.narrow(1, usize::MAX);
        assert_eq!(packet.bytes(), b"l");
        packet.strip(100);
        assert!(packet.is_empty());
        pool.give(packet);
        assert_eq!((pool.available(), pool.size()), (1, 1));
    }

    #[test]
    fn a_packet_never_grows_past_its_buffer() {
        let mut packet = Pool::new(1).take().unwrap();
        assert!(packet.prepend(HEADROOM + 1).is_none());
        assert!(packet.grow_front(HEADROOM + 1).is_none());
        assert!(packet.append(CAPACITY).is_none());
        assert!(packet.is_empty());
        assert!(!packet.fill(&[0; MAX_FRAME + 1]));
        assert!(packet.is_empty());
        assert!(packet.fill(&[0; MAX_FRAME]));
        assert_eq!(packet.headroom(), HEADROOM);
    }

    #[test]
    fn a_frame_gets_a_buffer_of_its_size() {
        let mut pool = Pool::with_large(1, 1);
        assert!(pool.take_for(MAX_LARGE_FRAME + 1).is_none());
        let mut large = pool.take_for(MAX_FRAME + 1).unwrap();
        assert!(pool.take_for(MAX_LARGE_FRAME).is_none());
        assert!(large.fill(&[7; MAX_LARGE_FRAME]) && large.headroom() == HEADROOM);
        let small = pool.take_for(MAX_FRAME).unwrap();
        assert!(pool.take_for(0).is_none());
        pool.give_all([small, large]);
        assert_eq!((pool.available(), pool.small_available()), (2, 1));
        assert!(pool.take_large().unwrap().is_large() && !pool.take().unwrap().is_large());
    }

    #[test]
    fn many_small_packets_are_taken_and_given_at_once() {
        let mut pool = Pool::with_large(3, 1);
        let taken: Vec<Packet> = pool.take_small(2).collect();
        assert_eq!((taken.len(), pool.small_available(), pool.available()), (2, 1, 2));
        assert_eq!(pool.take_small(5).len(), 1, "as many as are free");
        pool.give_small(2, taken.into_iter());
        assert_eq!((pool.small_available(), pool.available()), (2, 3));
    }

    #[test]
    fn a_copy_is_in_a_buffer_of_its_size() {
        let mut pool = Pool::with_large(1, 1);
        let large = pool.take_copy(&[7; MAX_FRAME + 1]).unwrap();
        assert!(large.is_large() && large.bytes() == [7; MAX_FRAME + 1]);
        assert!(pool.take_copy(&[7; MAX_LARGE_FRAME]).is_none());
        assert_eq!(pool.take_copy(b"frame").unwrap().bytes(), b"frame");
        assert!(pool.take_copy(b"").is_none());
    }

    /// Every byte of every buffer is its own, and keeps what was written into it while packets
    /// wander through other pools and threads.
    #[test]
    fn buffers_do_not_overlap_and_outlive_their_pool() {
        let mut pool = Pool::with_large(3000, 7);
        let mut packets: Vec<Packet> = core::iter::from_fn(|| pool.take()).collect();
        packets.extend(core::iter::from_fn(|| pool.take_large()));
        assert_eq!(packets.len(), 3007);
        drop(pool);
        for (number, packet) in packets.iter_mut().enumerate() {
            let (all, ..) = packet.buffer_mut();
            all.fill(number as u8);
            packet.set_port(wire::PortId(number as u16));
        }
        let packets = std::thread::spawn(move || packets).join().unwrap();
        let mut other = Pool::new(1);
        for (number, mut packet) in packets.into_iter().enumerate() {
            let (all, ..) = packet.buffer_mut();
            let expected = if number < 3000 { CAPACITY } else { LARGE_CAPACITY };
            assert_eq!(all.len(), expected);
            assert!(all.iter().all(|byte| *byte == number as u8), "{number}");
            assert_eq!(packet.port().0, number as u16);
            other.give(packet);
        }
        assert_eq!((other.available(), other.size()), (3008, 1));
    }
}
