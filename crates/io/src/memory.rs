//! A cable inside the process.
//!
//! A cable has two ends. An end is either a [`MemoryPort`], which a worker owns, or a
//! [`MemoryHandle`], by which a test or a bench puts frames in and takes them out. [`port`] makes a
//! cable with one of each, [`pair`] one with two ports: two gateways of one process, wired together
//! without root. The ends may be on different threads.
//!
//! # Whose buffers
//! Every worker has its own [`Pool`], and a buffer that wandered from one pool into another would,
//! in the end, empty the one and overfill the other. Copying each frame would prevent that and cost
//! more than forwarding it. So the ends *exchange*: each direction of a cable owns `depth` buffers
//! of its own, all empty at first. To send, the worker puts its full buffer in and gets an empty
//! one out for its pool; to receive, it takes the full buffer and leaves an empty one from its
//! pool. Buffers are all alike, every pool has as many after each call as before, nothing is copied
//! and nothing allocated. When the other end does not read, the empty buffers run out and frames
//! are dropped and counted, like on a full transmit queue.

use std::sync::Arc;

use packet::{
    BATCH, Batch, HEADROOM, LinkKind, MAX_FRAME, Packet, Pool, Port, PortError, PortStatistics,
    Time,
};
use rtrb::{Consumer, Producer, RingBuffer};
use wire::{Mac, PortId};

use crate::interface::frame_limit;

/// A depth of a cable that holds some full batches. One less deep than a batch would drop from
/// every full one.
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
}

/// A port and the handle that is the other end of its cable. Each direction holds up to `depth`
/// frames.
pub fn port(options: MemoryOptions, depth: usize) -> (MemoryPort, MemoryHandle) {
    let (sender, far_receiver) = direction(depth);
    let (far_sender, receiver) = direction(depth);
    (
        MemoryPort::new(options, sender, receiver),
        MemoryHandle { sender: far_sender, receiver: far_receiver },
    )
}

/// Two ports, back to back. Each direction holds up to `depth` frames.
pub fn pair(first: MemoryOptions, second: MemoryOptions, depth: usize) -> (MemoryPort, MemoryPort) {
    let (first_sender, second_receiver) = direction(depth);
    let (second_sender, first_receiver) = direction(depth);
    (
        MemoryPort::new(first, first_sender, first_receiver),
        MemoryPort::new(second, second_sender, second_receiver),
    )
}

/// One end of a cable, as a port.
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
        now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<usize, PortError> {
        let (before, mut bytes, mut errors) = (batch.len(), 0, 0);
        let count =
            self.receiver.filled.slots().min(batch.remaining_capacity()).min(pool.available());
        for _ in 0..count {
            let (Some(empty), Ok(mut packet)) = (pool.take(), self.receiver.filled.pop()) else {
                break;
            };
            if !align(&mut packet) {
                errors += 1;
                self.receiver.give_back(packet);
                pool.give(empty);
                continue;
            }
            self.receiver.give_back(empty);
            packet.set_port(self.options.id);
            bytes += packet.len() as u64;
            batch.push(packet);
        }
        let received = batch.len() - before;
        if received + errors > 0 {
            self.statistics.rx_packets.add(received as u64);
            self.statistics.rx_bytes.add(bytes);
            self.statistics.rx_errors.add(errors as u64);
        }
        Ok(received)
    }

    fn transmit(
        &mut self,
        _now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<(), PortError> {
        let limit = frame_limit(self.options.link, self.options.mtu);
        let (mut packets, mut bytes, mut dropped, mut errors) = (0, 0, 0, 0);
        for packet in batch.drain(..) {
            if packet.len() > limit {
                errors += 1;
                pool.give(packet);
                continue;
            }
            let length = packet.len() as u64;
            match self.sender.exchange(packet) {
                Ok(empty) => {
                    packets += 1;
                    bytes += length;
                    pool.give(empty);
                }
                Err(packet) => {
                    dropped += 1;
                    pool.give(packet);
                }
            }
        }
        self.statistics.tx_packets.add(packets);
        self.statistics.tx_bytes.add(bytes);
        self.statistics.tx_dropped.add(dropped);
        self.statistics.tx_errors.add(errors);
        Ok(())
    }

    fn statistics(&self) -> &Arc<PortStatistics> {
        &self.statistics
    }
}

/// One end of a cable, in the hand of a test or a bench.
#[derive(Debug)]
pub struct MemoryHandle {
    sender: Sender,
    receiver: Receiver,
}

impl MemoryHandle {
    /// Puts a frame in. Answers false where it is longer than [`MAX_FRAME`] or the cable is full.
    #[must_use]
    pub fn push(&mut self, frame: &[u8]) -> bool {
        if frame.len() > MAX_FRAME || self.sender.filled.is_full() {
            return false;
        }
        let Ok(mut packet) = self.sender.empty.pop() else { return false };
        let _ = packet.fill(frame);
        self.sender.put(packet);
        true
    }

    /// Takes the oldest frame that the port sent, shows it to `look` and answers what that answers.
    pub fn pop_with<R>(&mut self, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let packet = self.receiver.filled.pop().ok()?;
        let answer = look(packet.bytes());
        self.receiver.give_back(packet);
        Some(answer)
    }

    /// Takes a copy of the oldest frame that the port sent.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        self.pop_with(<[u8]>::to_vec)
    }

    /// Frames that the port sent and that wait here.
    pub fn waiting(&self) -> usize {
        self.receiver.filled.slots()
    }

    /// Frames that can be pushed before the cable is full.
    pub fn room(&self) -> usize {
        self.sender.empty.slots()
    }

    /// Moves up to `count` of the frames that wait at `from` to the input of `to`, each after
    /// `change`: a bench that sends the same buffers round and round without copying them. Answers
    /// how many were moved.
    pub fn transfer(
        from: &mut Self,
        to: &mut Self,
        count: usize,
        mut change: impl FnMut(&mut Packet),
    ) -> usize {
        let count = count.min(from.waiting()).min(to.room());
        for _ in 0..count {
            let (Ok(mut packet), Ok(empty)) = (from.receiver.filled.pop(), to.sender.empty.pop())
            else {
                break;
            };
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
    empty: Consumer<Packet>,
}

impl Sender {
    /// Puts a full buffer in and answers an empty one for it; the full one itself where there is no
    /// room.
    #[inline]
    fn exchange(&mut self, packet: Packet) -> Result<Packet, Packet> {
        match self.empty.pop() {
            Ok(empty) => {
                self.put(packet);
                Ok(empty)
            }
            Err(_) => Err(packet),
        }
    }

    #[inline]
    fn put(&mut self, packet: Packet) {
        // There are as many buffers in a direction as its rings have slots, and this one's place
        // was just taken from the other ring, so there is always room.
        let put = self.filled.push(packet);
        debug_assert!(put.is_ok());
    }
}

/// The receiving end of one direction.
#[derive(Debug)]
struct Receiver {
    filled: Consumer<Packet>,
    empty: Producer<Packet>,
}

impl Receiver {
    #[inline]
    fn give_back(&mut self, empty: Packet) {
        let put = self.empty.push(empty);
        debug_assert!(put.is_ok());
    }
}

fn direction(depth: usize) -> (Sender, Receiver) {
    let (filled_in, filled_out) = RingBuffer::new(depth);
    let (mut empty_in, empty_out) = RingBuffer::new(depth);
    let mut stock = Pool::new(depth);
    while let Some(packet) = stock.take() {
        let put = empty_in.push(packet);
        debug_assert!(put.is_ok());
    }
    (
        Sender { filled: filled_in, empty: empty_out },
        Receiver { filled: filled_out, empty: empty_in },
    )
}

/// Puts the bytes where a received frame's bytes are: the sender may have used up headroom. False
/// where they are longer than a received frame may be.
#[inline]
fn align(packet: &mut Packet) -> bool {
    if packet.len() > MAX_FRAME {
        return false;
    }
    if packet.headroom() != HEADROOM {
        let (buffer, start, length) = packet.buffer_mut();
        buffer.copy_within(start..start + length, HEADROOM);
        packet.set_used(HEADROOM, length);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(7);

    #[test]
    fn frames_cross_in_order_and_pools_keep_their_size() {
        let (mut port, mut handle) = port(MemoryOptions::ethernet("m0", PortId(3)), 4);
        let (mut pool, mut batch) = (Pool::new(8), Batch::new());
        for round in 0..100_u8 {
            assert!(handle.push(&[round; 60]) && handle.push(&[round; 61]));
            assert_eq!(port.receive(NOW, &mut pool, &mut batch).unwrap(), 2);
            assert_eq!((batch[0].port(), batch[0].received()), (PortId(3), NOW));
            assert_eq!((batch[0].bytes(), batch[1].bytes()), (&[round; 60][..], &[round; 61][..]));
            port.transmit(NOW, &mut pool, &mut batch).unwrap();
            assert!(batch.is_empty());
            assert_eq!(handle.pop().unwrap(), [round; 60]);
            assert_eq!(handle.pop().unwrap(), [round; 61]);
            assert_eq!(handle.pop(), None);
            assert_eq!(pool.available(), 8);
        }
        let statistics = port.statistics();
        assert_eq!((statistics.rx_packets.read(), statistics.rx_bytes.read()), (200, 12_100));
        assert_eq!((statistics.tx_packets.read(), statistics.tx_bytes.read()), (200, 12_100));
    }

    #[test]
    fn a_full_cable_drops_and_counts() {
        let (mut port, mut handle) = port(MemoryOptions::ethernet("m0", PortId(0)), 2);
        let (mut pool, mut batch) = (Pool::new(8), Batch::new());
        for _ in 0..3 {
            let mut packet = pool.take().unwrap();
            assert!(packet.fill(b"frame"));
            batch.push(packet);
        }
        port.transmit(NOW, &mut pool, &mut batch).unwrap();
        assert_eq!(
            (port.statistics().tx_packets.read(), port.statistics().tx_dropped.read()),
            (2, 1)
        );
        assert_eq!((pool.available(), handle.waiting()), (8, 2));
        assert!(handle.push(b"a") && handle.push(b"b") && !handle.push(b"c"));
        assert!(!handle.push(&[0; MAX_FRAME + 1]));
    }

    #[test]
    fn without_free_buffers_frames_wait() {
        let (mut port, mut handle) = port(MemoryOptions::ethernet("m0", PortId(0)), 8);
        let (mut pool, mut batch) = (Pool::new(1), Batch::new());
        assert!(handle.push(b"one") && handle.push(b"two"));
        assert_eq!(port.receive(NOW, &mut pool, &mut batch).unwrap(), 1);
        assert_eq!(port.receive(NOW, &mut pool, &mut batch).unwrap(), 0);
        pool.give_all(batch.drain(..));
        assert_eq!(port.receive(NOW, &mut pool, &mut batch).unwrap(), 1);
        assert_eq!(batch[0].bytes(), b"two");
    }

    #[test]
    fn a_frame_longer_than_the_mtu_is_refused() {
        let (mut port, mut handle) = port(MemoryOptions::ethernet("m0", PortId(0)), 8);
        let (mut pool, mut batch) = (Pool::new(2), Batch::new());
        for length in [1514, 1515] {
            let mut packet = pool.take().unwrap();
            assert!(packet.fill(&vec![0; length]));
            batch.push(packet);
        }
        port.transmit(NOW, &mut pool, &mut batch).unwrap();
        assert_eq!(
            (port.statistics().tx_packets.read(), port.statistics().tx_errors.read()),
            (1, 1)
        );
        assert_eq!((handle.pop().unwrap().len(), pool.available()), (1514, 2));
    }

    #[test]
    fn received_frames_have_their_full_headroom_again() {
        let (mut one, mut two) = pair(
            MemoryOptions::ethernet("a", PortId(0)),
            MemoryOptions::ethernet("b", PortId(1)),
            8,
        );
        let (mut pool, mut batch) = (Pool::new(2), Batch::new());
        let mut packet = pool.take().unwrap();
        assert!(packet.fill(b"inner"));
        packet.prepend(6).unwrap().copy_from_slice(b"outer-");
        batch.push(packet);
        one.transmit(NOW, &mut pool, &mut batch).unwrap();
        assert_eq!(two.receive(NOW, &mut pool, &mut batch).unwrap(), 1);
        assert_eq!((batch[0].bytes(), batch[0].headroom()), (&b"outer-inner"[..], HEADROOM));
    }

    #[test]
    fn two_workers_on_two_threads_keep_their_pools() {
        const FRAMES: u32 = 200_000;
        let (mut one, mut two) = pair(
            MemoryOptions::ethernet("a", PortId(0)),
            MemoryOptions::ethernet("b", PortId(1)),
            256,
        );
        let receiving = std::thread::spawn(move || {
            let (mut pool, mut batch, mut expected) = (Pool::new(64), Batch::new(), 0_u32);
            while expected < FRAMES {
                if two.receive(NOW, &mut pool, &mut batch).unwrap() == 0 {
                    std::thread::yield_now();
                }
                for packet in batch.drain(..) {
                    assert_eq!(packet.bytes(), expected.to_be_bytes());
                    expected += 1;
                    pool.give(packet);
                }
                assert_eq!(pool.available(), 64);
            }
        });
        let (mut pool, mut batch, mut sent) = (Pool::new(64), Batch::new(), 0_u32);
        while sent < FRAMES {
            let room = one.sender.empty.slots().min(64).min((FRAMES - sent) as usize);
            for _ in 0..room {
                let mut packet = pool.take().unwrap();
                assert!(packet.fill(&sent.to_be_bytes()));
                batch.push(packet);
                sent += 1;
            }
            one.transmit(NOW, &mut pool, &mut batch).unwrap();
            assert_eq!(pool.available(), 64);
            if room == 0 {
                std::thread::yield_now();
            }
        }
        receiving.join().unwrap();
        assert_eq!(one.statistics().tx_dropped.read(), 0);
    }

    #[test]
    fn transfer_sends_the_same_buffers_round() {
        let (mut port, mut handle) = port(MemoryOptions::ethernet("m0", PortId(0)), 8);
        let (_, mut other) = self::port(MemoryOptions::ethernet("m1", PortId(1)), 8);
        let (mut pool, mut batch) = (Pool::new(8), Batch::new());
        assert!(handle.push(b"1") && handle.push(b"2"));
        port.receive(NOW, &mut pool, &mut batch).unwrap();
        port.transmit(NOW, &mut pool, &mut batch).unwrap();
        let moved =
            MemoryHandle::transfer(&mut handle, &mut other, 9, |packet| packet.bytes_mut()[0] += 1);
        assert_eq!((moved, handle.waiting(), other.room()), (2, 0, 6));
    }
}
