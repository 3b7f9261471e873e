//! A link inside the process.
//!
//! A link has two ends. An end is either a [`MemoryPort`], which a worker owns, or a
//! [`MemoryHandle`], by which a test or a bench puts frames in and takes them out. [`port`] makes a
//! link with one of each, [`pair`] one with two ports: two gateways of one process, connected
//! without root. The ends may be on different threads.
//!
//! # Whose buffers
//! Every worker has its own [`Pool`], and a buffer that moved from one pool into another would, in
//! the end, empty the one and overfill the other. Copying each frame would prevent that and cost
//! more than forwarding it. So the ends *exchange*: each direction of a link owns `depth` buffers
//! of its own, all empty at first. To send, the worker puts its full buffer in and gets an empty
//! one out for its pool; to receive, it takes the full buffer and leaves an empty one from its
//! pool. A small buffer is exchanged for a small one, and a large for a large: a direction in which
//! frames may be longer than a small buffer has `depth` large ones as well. So every pool has as
//! many of each kind after each call as before, and nothing is copied or allocated.
//!
//! When the other end does not read, the empty buffers run out and frames are dropped and counted,
//! like on a full transmit queue. If the receiver's pool has no large buffer to exchange, a frame
//! that is short enough is copied into a small one, and a longer one is counted as missed.
//!
//! # Cost
//! A batch of small buffers crosses with one update of each ring's index. Receiving and
//! transmitting together take 66 instructions per packet of a batch of 256
//! (`benches/instructions.rs`).

use std::sync::Arc;

use packet::{
    BATCH, Batch, HEADROOM, LinkKind, MAX_FRAME, MAX_LARGE_FRAME, Packet, Pool, Port, PortError,
    PortStatistics, Time,
};
use rtrb::{Consumer, Producer, RingBuffer};
use wire::{Mac, PortId};

use crate::interface::{frame_limit, is_too_long};
use crate::offload::{MAX_VLAN_TAGS, VLAN_TAG};

/// A depth of a link that holds some full batches. One less deep than a batch would drop from every
/// full one.
pub const DEFAULT_DEPTH: usize = 4 * BATCH;

/// What a [`MemoryPort`] says of itself.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The name users know it by.
    pub name: String,
    /// What its packets are stamped with.
    pub id: PortId,
    /// What frames begin with.
    pub link: LinkKind,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The largest IP packet in bytes that it sends. Longer ones are refused and counted, as an
    /// interface would.
    pub mtu: u16,
}

impl MemoryOptions {
    /// An Ethernet port called `name` with a locally administered address made from `id`, and an
    /// MTU of 1500.
    pub fn ethernet(name: &str, id: PortId) -> Self {
        let [high, low] = id.0.to_be_bytes();
        Self {
            name: name.to_owned(),
            id,
            link: LinkKind::Ethernet,
            mac: Mac([2, 0, 0, 0, high, low]),
            mtu: 1500,
        }
    }

    fn frame_limit(&self) -> usize {
        frame_limit(self.link, self.mtu)
    }
}

/// A port and the handle that is the other end of its link. Each direction holds up to `depth`
/// frames.
pub fn port(options: MemoryOptions, depth: usize) -> (MemoryPort, MemoryHandle) {
    let limit = options.frame_limit();
    let (sender, far_receiver) = direction(depth, limit);
    let (far_sender, receiver) = direction(depth, limit);
    (
        MemoryPort::new(options, sender, receiver),
        MemoryHandle { sender: far_sender, receiver: far_receiver },
    )
}

/// Two ports, back to back. Each direction holds up to `depth` frames.
pub fn pair(first: MemoryOptions, second: MemoryOptions, depth: usize) -> (MemoryPort, MemoryPort) {
    let (first_sender, second_receiver) = direction(depth, first.frame_limit());
    let (second_sender, first_receiver) = direction(depth, second.frame_limit());
    (
        MemoryPort::new(first, first_sender, first_receiver),
        MemoryPort::new(second, second_sender, second_receiver),
    )
}

/// One end of a link, as a port.
#[derive(Debug)]
pub struct MemoryPort {
    options: MemoryOptions,
    sender: Sender,
    receiver: Receiver,
    statistics: Arc<PortStatistics>,
}

impl MemoryPort {
    fn new(options: MemoryOptions, sender: Sender, receiver: Receiver) -> Self {
        Self { options, sender, receiver, statistics: Arc::default() }
    }

    /// Sends a batch in which there are large buffers or frames longer than the MTU, perhaps by
    /// their tag.
    #[cold]
    fn transmit_mixed(&mut self, pool: &mut Pool, batch: &mut Batch) {
        let statistics = &self.statistics;
        for packet in batch.drain(..) {
            let length = packet.len();
            if is_too_long(self.options.link, self.options.mtu, packet.bytes()) {
                statistics.tx_too_long.add(1);
                pool.give(packet);
                continue;
            }
            match self.sender.exchange(packet) {
                Ok(empty) => {
                    statistics.tx_packets.add(1);
                    statistics.tx_bytes.add(length as u64);
                    pool.give(empty);
                }
                Err(packet) => {
                    statistics.tx_dropped.add(1);
                    pool.give(packet);
                }
            }
        }
    }

    /// Leaves an empty buffer for each packet that was received from `start` on, if some of them
    /// are in large buffers or are not where a received frame is.
    #[cold]
    fn exchange_mixed(&mut self, start: usize, pool: &mut Pool, batch: &mut Batch) {
        let received: Batch = batch.drain(start..).collect();
        for packet in received {
            let same_kind = if packet.is_large() { pool.take_large() } else { pool.take() };
            let (packet, empty) = match same_kind {
                Some(empty) => (packet, empty),
                None => match pool.take_copy(packet.bytes()) {
                    Some(mut copy) => {
                        copy.set_port(packet.port());
                        (copy, packet)
                    }
                    None => {
                        self.statistics.rx_missed.add(1);
                        self.receiver.give_back(packet);
                        continue;
                    }
                },
            };
            self.receiver.give_back(empty);
            match align(packet, pool) {
                Ok(packet) => batch.push(packet),
                Err(packet) => {
                    self.statistics.rx_missed.add(1);
                    pool.give(packet);
                }
            }
        }
    }
}

impl Port for MemoryPort {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn link(&self) -> LinkKind {
        self.options.link
    }

    fn mac(&self) -> Mac {
        self.options.mac
    }

    fn mtu(&self) -> u16 {
        self.options.mtu
    }

    fn receive(
        &mut self,
        _now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<usize, PortError> {
        let start = batch.len();
        let count = self.receiver.filled.slots();
        let count = count.min(batch.remaining_capacity()).min(pool.small_available());
        if count == 0 {
            return Ok(0);
        }
        // There are that many, as the ring has just said.
        let Ok(filled) = self.receiver.filled.read_chunk(count) else { return Ok(0) };
        filled.into_iter().for_each(|packet| batch.push(packet));

        // The sender may have used up headroom, or filled a small buffer to its end.
        let (mut is_mixed, mut bytes) = (false, 0);
        for packet in &mut batch[start..] {
            let (from, length) = (packet.headroom(), packet.len());
            is_mixed |= packet.is_large() | (from < HEADROOM) | (from + length > FRAME_END);
            bytes += length as u64;
            packet.set_port(self.options.id);
        }
        if is_mixed {
            self.exchange_mixed(start, pool, batch);
            bytes = bytes_of(&batch[start..]);
        } else {
            self.receiver.give_back_small(count, pool);
        }
        let received = batch.len() - start;
        self.statistics.rx_packets.add(received as u64);
        self.statistics.rx_bytes.add(bytes);
        Ok(received)
    }

    fn transmit(
        &mut self,
        _now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<(), PortError> {
        let limit = self.options.frame_limit();
        let (mut is_mixed, mut bytes) = (false, 0);
        for packet in batch.iter() {
            let length = packet.len();
            is_mixed |= packet.is_large() | (length > limit);
            bytes += length as u64;
        }
        if is_mixed {
            self.transmit_mixed(pool, batch);
            return Ok(());
        }
        let sent = self.sender.exchange_small(pool, batch);
        self.statistics.tx_packets.add(sent as u64);
        self.statistics.tx_dropped.add(batch.len() as u64);
        self.statistics.tx_bytes.add(bytes - bytes_of(batch));
        pool.give_all(batch.drain(..));
        Ok(())
    }

    fn statistics(&self) -> &Arc<PortStatistics> {
        &self.statistics
    }
}

/// If a received frame in a small buffer ends at the latest: behind it there is room for an ESP
/// trailer.
const FRAME_END: usize = HEADROOM + MAX_FRAME;

fn bytes_of(packets: &[Packet]) -> u64 {
    packets.iter().map(|packet| packet.len() as u64).sum()
}

/// One end of a link, for a test or a bench.
#[derive(Debug)]
pub struct MemoryHandle {
    sender: Sender,
    receiver: Receiver,
}

impl MemoryHandle {
    /// Puts a frame in. Returns false if it is longer than the link's buffers or the link is full.
    #[must_use]
    pub fn push(&mut self, frame: &[u8]) -> bool {
        if frame.len() > MAX_LARGE_FRAME {
            return false;
        }
        let is_small = frame.len() <= MAX_FRAME;
        let stock = if is_small { &mut self.sender.small } else { &mut self.sender.large };
        let Ok(mut packet) = stock.pop() else { return false };
        let _ = packet.fill(frame);
        self.sender.put(packet);
        true
    }

    /// Takes the oldest frame that the port sent, shows it to `look` and returns what that returns.
    pub fn pop_with<R>(&mut self, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let packet = self.receiver.filled.pop().ok()?;
        let result = look(packet.bytes());
        self.receiver.give_back(packet);
        Some(result)
    }

    /// Takes a copy of the oldest frame that the port sent.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        self.pop_with(<[u8]>::to_vec)
    }

    /// Frames that the port sent and that wait here.
    pub fn waiting(&self) -> usize {
        self.receiver.filled.slots()
    }

    /// Frames of up to [`MAX_FRAME`] bytes that can be pushed before the link is full.
    pub fn room(&self) -> usize {
        self.sender.small.slots()
    }

    /// Moves up to `count` of the frames that wait at `from` to the input of `to`, each after
    /// `change`: a bench that sends the same buffers round and round without copying them. Stops at
    /// a frame for which `to` has no buffer of the same kind to exchange. Returns how many were
    /// moved.
    pub fn transfer(
        from: &mut Self,
        to: &mut Self,
        count: usize,
        mut change: impl FnMut(&mut Packet),
    ) -> usize {
        for moved in 0..count {
            let Ok(next) = from.receiver.filled.peek() else { return moved };
            let Ok(empty) = to.sender.stock(next).pop() else { return moved };
            let Ok(mut packet) = from.receiver.filled.pop() else { return moved };
            change(&mut packet);
            to.sender.put(packet);
            from.receiver.give_back(empty);
        }
        count
    }
}

/// The sending end of one direction: full buffers out, empty ones back.
#[derive(Debug)]
struct Sender {
    filled: Producer<Packet>,
    small: Consumer<Packet>,
    large: Consumer<Packet>,
}

impl Sender {
    /// Empty buffers of the same kind as the packet's.
    fn stock(&mut self, packet: &Packet) -> &mut Consumer<Packet> {
        if packet.is_large() { &mut self.large } else { &mut self.small }
    }

    /// Sends the packets at the front of `batch`, all of them in small buffers, as far as there are
    /// empty ones to exchange, which go to `pool`. Returns how many were sent; the others stay in
    /// `batch`.
    #[inline]
    fn exchange_small(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let count = batch.len().min(self.small.slots());
        // There are `count` empty buffers, and a place in the other ring for each of them (see
        // `put`).
        let (Ok(empty), Ok(places)) =
            (self.small.read_chunk(count), self.filled.write_chunk_uninit(count))
        else {
            return 0;
        };
        // The empty ones are out of their ring before the full ones can be seen: the receiver leaves
        // as many there as soon as it sees these, and must find their places free.
        pool.give_small(count, empty.into_iter());
        places.fill_from_iter(batch.drain(..count));
        count
    }

    /// Puts a full buffer in and returns an empty one for it, or the full one itself if there is no
    /// room. A large buffer for which there is no other is copied into a small one if that is
    /// enough.
    fn exchange(&mut self, packet: Packet) -> Result<Packet, Packet> {
        if let Ok(empty) = self.stock(&packet).pop() {
            self.put(packet);
            return Ok(empty);
        }
        if packet.is_large()
            && packet.len() <= MAX_FRAME
            && let Ok(mut small) = self.small.pop()
        {
            let _ = small.fill(packet.bytes());
            self.put(small);
            // Returned to the pool that it is from: nothing was exchanged.
            return Ok(packet);
        }
        Err(packet)
    }

    #[inline]
    fn put(&mut self, packet: Packet) {
        // The ring has as many places as the direction has buffers, and this one was just taken out
        // of another ring, so there is always room.
        let put = self.filled.push(packet);
        debug_assert!(put.is_ok());
    }
}

/// The receiving end of one direction.
#[derive(Debug)]
struct Receiver {
    filled: Consumer<Packet>,
    small: Producer<Packet>,
    large: Producer<Packet>,
}

impl Receiver {
    #[inline]
    fn give_back(&mut self, empty: Packet) {
        let stock = if empty.is_large() { &mut self.large } else { &mut self.small };
        let put = stock.push(empty);
        debug_assert!(put.is_ok());
    }

    /// Leaves `count` small buffers from `pool`, which has them.
    #[inline]
    fn give_back_small(&mut self, count: usize, pool: &mut Pool) {
        // There are places: the sender takes a buffer out of this ring before it sends one.
        let places = self.small.write_chunk_uninit(count);
        debug_assert!(places.is_ok());
        if let Ok(places) = places {
            places.fill_from_iter(pool.take_small(count));
        }
    }
}

/// One direction, whose sender sends frames of up to `limit` bytes and perhaps two tags.
fn direction(depth: usize, limit: usize) -> (Sender, Receiver) {
    let large_depth = if limit + MAX_VLAN_TAGS * VLAN_TAG > MAX_FRAME { depth } else { 0 };
    let (filled_in, filled_out) = RingBuffer::new(depth + large_depth);
    let (small_in, small_out) = RingBuffer::new(depth);
    let (large_in, large_out) = RingBuffer::new(large_depth);
    let sender = Sender { filled: filled_in, small: small_out, large: large_out };
    let mut receiver = Receiver { filled: filled_out, small: small_in, large: large_in };
    let mut stock = Pool::with_large(depth, large_depth);
    core::iter::from_fn(|| stock.take()).for_each(|empty| receiver.give_back(empty));
    core::iter::from_fn(|| stock.take_large()).for_each(|empty| receiver.give_back(empty));
    (sender, receiver)
}

/// Puts the bytes where a received frame's bytes are, with the full headroom in front. A frame that
/// fills a small buffer beyond [`MAX_FRAME`] goes into a large one. Returns the packet itself if
/// there is none free.
fn align(mut packet: Packet, pool: &mut Pool) -> Result<Packet, Packet> {
    let (length, longest) = (packet.len(), packet.longest_frame());
    if length <= longest {
        if packet.headroom() < HEADROOM || packet.headroom() + length > HEADROOM + longest {
            let (buffer, start, length) = packet.buffer_mut();
            buffer.copy_within(start..start + length, HEADROOM);
            packet.set_used(HEADROOM, length);
        }
        return Ok(packet);
    }
    match pool.take_copy(packet.bytes()) {
        Some(mut large) => {
            large.set_port(packet.port());
            pool.give(packet);
            Ok(large)
        }
        None => Err(packet),
    }
}

#[cfg(test)]
mod tests;
