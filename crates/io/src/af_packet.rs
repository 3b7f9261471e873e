//! An interface that exists, over packet sockets.
//!
//! # Receiving
//! Frames come by a ring shared with the kernel, TPACKET_V2: its slots are handed over one by one,
//! so a frame is seen at once, where TPACKET_V3 hands over blocks and holds a lone ping back for a
//! millisecond or more. A slot is as large as a frame of the interface's MTU needs. The frames of
//! up to 64 KiB that a host on the same machine sends (see [`crate::offload`]) do not fit; the
//! kernel also queues the whole of such a frame on the socket (`PACKET_COPY_THRESH`) and it is
//! read from there with one `recv`, which cutting it into some forty packets pays for many times
//! over. Slots that hold any frame would need 68 KiB each. Measured on a veth pair with TCP and a
//! flood of small datagrams through a forwarder: TCP as fast either way (4.3 Gbit/s), but 2048
//! small slots (4 MiB) missed a third of the frames that 256 large ones (32 MiB) did, at the same
//! round-trip time of 0.08 ms. So the ring has 32 MiB in small slots unless told otherwise: 16,384
//! frames.
//!
//! The port's address is the interface's own unless another is configured, in which case the
//! interface is made promiscuous; [`crate::promiscuous`] does that for other reasons. All multicast is received, as neighbour discovery needs. What the
//! port itself sends is not received.
//!
//! The kernel's own stack sees the same frames. An interface that is given to the gateway should
//! have no addresses in the kernel, or both will answer.
//!
//! # Sending
//! One `sendmmsg` for each batch, straight from the packets' buffers. A TX ring (TPACKET_V2,
//! measured in batches of 256 over a veth on a busy machine, medians of three) is not cheaper:
//! frames of 64, 1514 and 9014 bytes took 1.8, 1.5 and 3.5 us of processor time by `sendmmsg` and
//! 1.9, 2.1 and 3.3 us by the ring, nearly all of it the kernel's way to the other end. And it is
//! not safe: the receiving stack gives its slots back (`skb_orphan` in `ip_rcv`) while it still
//! reads them, so on a veth frames would be overwritten in flight. `PACKET_QDISC_BYPASS` gained
//! nothing measurable and hides what is sent from tcpdump on the interface, so it is not used.
//!
//! # Down, up, gone
//! While the interface is down nothing is received and what is sent counts as `tx_down`; when it
//! comes up the port goes on. When it is deleted or moved to another network namespace the port is
//! lost. Longer frames than fitted when it was opened go by the socket's queue.
//!
//! # Counters
//! `rx_ring_full` has the kernel's own drops (`PACKET_STATISTICS`): the ring was full, or the
//! kernel could not describe a frame's offload. Each frame that cannot be sent is counted by what the
//! system says: `tx_dropped` (`EAGAIN`, `ENOBUFS`: a queue is full), `tx_too_long` (`EMSGSIZE`),
//! `tx_down` (`ENETDOWN`, `ENXIO`, `ENODEV`), `tx_errors`. What the device itself drops after that,
//! the system calls sent; its counters are in [`crate::links`].

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use packet::{Batch, LinkKind, Packet, Pool, Port, PortError, PortStatistics, ReceiveRing, Time};
use wire::{Mac, PortId};

use crate::error::{OpenError, check_options};
use crate::interface::{ETHERNET_HEADER, Interface, port_mtu};
use crate::offload::{
    Cutter, LONGEST, MAX_VLAN_TAGS, Refused, VLAN_TAG, VnetHeader, complete_checksum, insert_vlan,
};
use crate::room::Room;
use crate::sys::interface::Query;
use crate::sys::ring::{Frame, Ring, SLOT_OVERHEAD};
use crate::sys::socket::{PACKET_IGNORE_OUTGOING, PacketSocket};

/// How to open an interface.
#[derive(Clone, Debug)]
pub struct AfPacketOptions {
    /// The name users know the port by.
    pub name: String,
    /// The interface's name.
    pub interface: String,
    /// What its packets are stamped with.
    pub id: PortId,
    /// The port's Ethernet address if it is not the interface's own.
    pub mac: Option<Mac>,
    /// Queues, one for each worker. The kernel spreads flows over them by their hash.
    pub queues: u16,
    /// Memory of each queue's ring in bytes. It is rounded up to whole blocks of 64 KiB.
    pub ring_bytes: usize,
}

impl AfPacketOptions {
    /// One queue with a ring of [`DEFAULT_RING`] bytes on `interface`, called the same.
    pub fn new(interface: &str, id: PortId) -> Self {
        Self {
            name: interface.to_owned(),
            interface: interface.to_owned(),
            id,
            mac: None,
            queues: 1,
            ring_bytes: DEFAULT_RING,
        }
    }
}

/// Memory of a queue's ring unless told otherwise: 16,384 frames of an MTU of 1500, which arrive in
/// 16 ms at a million a second.
pub const DEFAULT_RING: usize = 32 << 20;

/// Opens an interface. Returns one port for each queue.
///
/// # Errors
/// If there is no such interface, it is not Ethernet, its MTU is more than [`packet::MAX_MTU`], or
/// the process has no `CAP_NET_RAW`. The error says what would be right.
pub fn open(options: &AfPacketOptions) -> Result<Vec<AfPacketPort>, OpenError> {
    let name = options.interface.as_str();
    let failed = |what| move |source| OpenError::system(name, what, "CAP_NET_RAW", source);
    let interface = Interface::named(name).map_err(failed("cannot read the interface"))?;
    if interface.hardware != libc::ARPHRD_ETHER {
        return Err(OpenError::refused(
            name,
            "not an Ethernet interface",
            "use a veth, a bridge port or a network card",
        ));
    }
    let mtu = port_mtu(&interface)?;
    check_options(name, options.queues, options.mac)?;
    let mut ports = Vec::new();
    let mut group = None;
    for _ in 0..options.queues {
        let port = AfPacketPort::open(options, &interface, mtu)?;
        if options.queues > 1 {
            let joined = join_fanout(&port.receiver, group)
                .map_err(failed("cannot spread flows over several queues"));
            group = Some(joined?);
        }
        ports.push(port);
    }
    Ok(ports)
}

/// One queue of an interface.
#[derive(Debug)]
pub struct AfPacketPort {
    name: String,
    id: PortId,
    mac: Mac,
    mtu: u16,
    index: i32,
    // The ring is unmapped before its socket is closed: fields are dropped in this order.
    ring: Ring,
    receiver: PacketSocket,
    sender: PacketSocket,
    query: Query,
    cutter: Cutter,
    statistics: Arc<PortStatistics>,
    looked_after: Time,
    /// The interface went down, and was not seen up since.
    is_down: bool,
}

/// How often the kernel's drop counter and the interface's state are read.
const LOOK_AFTER: Duration = Duration::from_millis(10);

/// Bytes of frames that did not fit their slots that may wait in the socket's queue.
const RECEIVE_BUFFER: libc::c_int = 16 << 20;

/// Bytes that may be on their way out.
const SEND_BUFFER: libc::c_int = 4 << 20;

impl AfPacketPort {
    fn open(options: &AfPacketOptions, interface: &Interface, mtu: u16) -> Result<Self, OpenError> {
        let name = interface.name.as_str();
        let failed = |what| move |source| OpenError::system(name, what, "CAP_NET_RAW", source);
        let query = Query::new().map_err(failed("cannot make a socket"))?;

        let receiver = PacketSocket::new().map_err(failed("cannot make a packet socket"))?;
        let receive_ring = |slots, slot_size| -> io::Result<Ring> {
            receiver.set_packet_option(
                libc::PACKET_VERSION,
                libc::tpacket_versions::TPACKET_V2 as libc::c_int,
            )?;
            receiver.set_packet_option(libc::PACKET_VNET_HDR, 1)?;
            receiver.set_packet_option(PACKET_IGNORE_OUTGOING, 1)?;
            receiver.set_packet_option(libc::PACKET_COPY_THRESH, LONGEST as libc::c_int)?;
            receiver.set_receive_buffer(RECEIVE_BUFFER)?;
            Ring::new(&receiver, slots, slot_size)
        };
        let longest = SLOT_OVERHEAD + ETHERNET_HEADER + MAX_VLAN_TAGS * VLAN_TAG + usize::from(mtu);
        let slot = longest.next_power_of_two().max(MIN_SLOT);
        let ring = receive_ring(options.ring_bytes.div_ceil(slot), slot)
            .map_err(failed("cannot make the receive ring"))?;
        receiver
            .add_membership(interface.index, libc::PACKET_MR_ALLMULTI)
            .map_err(failed("cannot receive all multicast"))?;
        let mac = options.mac.unwrap_or(interface.mac);
        // Though it may be the interface's own now: that may change.
        if options.mac.is_some() {
            receiver
                .add_membership(interface.index, libc::PACKET_MR_PROMISC)
                .map_err(failed("cannot make the interface promiscuous"))?;
        }
        receiver
            .bind(interface.index, libc::ETH_P_ALL as u16)
            .map_err(failed("cannot bind to the interface"))?;

        // A socket of its own, so that frames need no virtio-net header; with protocol 0 it
        // receives nothing.
        let sender = PacketSocket::new().map_err(failed("cannot make a packet socket"))?;
        sender.set_send_buffer(SEND_BUFFER).map_err(failed("cannot size the send buffer"))?;
        sender.bind(interface.index, 0).map_err(failed("cannot bind to the interface"))?;

        Ok(Self {
            name: options.name.clone(),
            id: options.id,
            mac,
            mtu,
            index: interface.index,
            ring,
            receiver,
            sender,
            query,
            cutter: Cutter::new(),
            statistics: Arc::default(),
            looked_after: Time::default(),
            is_down: false,
        })
    }

    /// Gives all that is in the ring back to the kernel. Returns how many frames that were.
    fn empty_ring(&mut self) -> u64 {
        let mut frames = 0;
        // As many as there were: others may come meanwhile.
        while frames < self.ring.size().frames as u64 && self.ring.frame().is_some() {
            self.ring.release();
            frames += 1;
        }
        frames
    }

    /// Takes the ring's oldest frame. Returns false if there is none, or no buffer for it now.
    #[inline]
    fn take_frame(&mut self, pool: &mut Pool, batch: &mut Batch, bytes: &mut u64) -> bool {
        let Some(frame) = self.ring.frame() else { return false };
        let header = VnetHeader::parse(frame.vnet);
        let is_short = !frame.queued && frame.bytes.len() >= frame.length && !header.is_segmented();
        if is_short {
            let tag = if frame.vlan.is_some() { VLAN_TAG } else { 0 };
            let mut packet = match Room::of(pool, batch, frame.bytes.len() + tag) {
                Room::Buffer(packet) => packet,
                Room::Later => return false,
                Room::Missed => {
                    self.statistics.rx_missed.add(1);
                    self.ring.release();
                    return true;
                }
                Room::TooLong => {
                    self.refuse(Refused::Length);
                    self.ring.release();
                    return true;
                }
            };
            match fill(&mut packet, &frame, &header) {
                Ok(()) => {
                    if header.lacks_checksum() {
                        self.statistics.rx_checksummed.add(1);
                    }
                    packet.set_port(self.id);
                    *bytes += packet.len() as u64;
                    batch.push(packet);
                }
                Err(refused) => {
                    self.refuse(refused);
                    pool.give(packet);
                }
            }
        } else if frame.bytes.len() < frame.length && !frame.queued {
            // It did not fit its slot, and the socket's queue was full: the gateway was too slow.
            self.statistics.rx_ring_full.add(1);
        } else {
            match load(&mut self.cutter, &self.receiver, &frame, &header, &mut self.is_down) {
                Ok(()) => self.statistics.rx_segmented.add(1),
                Err(refused) => self.refuse(refused),
            }
        }
        self.ring.release();
        true
    }

    #[cold]
    fn refuse(&self, refused: Refused) {
        self.statistics.rx_errors.add(1);
        tracing::debug!(port = self.name, %refused, "frame refused");
    }

    /// Reads the kernel's drop counter and takes note of the interface going away. Not for every
    /// batch: each is a system call.
    #[cold]
    fn look_after(&mut self) -> Result<(), PortError> {
        if let Ok((_, drops)) = self.receiver.statistics() {
            self.statistics.rx_ring_full.add(drops.into());
        }
        // Reading the error clears it, without which the descriptor would be readable for ever.
        self.is_down |= !matches!(self.receiver.take_error(), Ok(None));
        if self.is_down { self.check_existence() } else { Ok(()) }
    }

    /// An interface that is down may come up again. One that is gone does not, even if another
    /// takes its name.
    fn check_existence(&mut self) -> Result<(), PortError> {
        match self.query.is_up(self.index) {
            Ok(Some(is_up)) => {
                self.is_down = !is_up;
                Ok(())
            }
            Ok(None) => Err(PortError {
                port: self.name.clone(),
                what: "the interface was deleted or moved to another network namespace",
                source: io::Error::from_raw_os_error(libc::ENODEV),
            }),
            Err(_) => Ok(()),
        }
    }
}

/// What is in the ring when the port is closed has been received and is lost. It is counted, as far
/// as it came before the socket stopped receiving.
impl Drop for AfPacketPort {
    fn drop(&mut self) {
        // Without a protocol it receives no more. A member of a group is not bound anew; what comes
        // to it until it is closed is not seen.
        let _ = self.receiver.bind(self.index, 0);
        let missed = self.empty_ring();
        self.statistics.rx_missed.add(missed);
        if let Ok((_, drops)) = self.receiver.statistics() {
            self.statistics.rx_ring_full.add(drops.into());
        }
    }
}

/// A slot takes any frame of an MTU of 1500 with room to spare.
const MIN_SLOT: usize = 2048;

impl Port for AfPacketPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> LinkKind {
        LinkKind::Ethernet
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn receive(
        &mut self,
        now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<usize, PortError> {
        if now.since(self.looked_after) >= LOOK_AFTER {
            self.looked_after = now;
            self.look_after()?;
        }
        let (before, mut bytes) = (batch.len(), 0);
        // Frames that come to nothing count too, so that a flood of them cannot hold the worker
        // here.
        for _ in 0..packet::BATCH {
            if self.cutter.is_busy() {
                bytes += self.cutter.cut(self.id, pool, batch, &self.statistics);
            }
            if self.cutter.is_busy() || batch.is_full() || !self.take_frame(pool, batch, &mut bytes)
            {
                break;
            }
        }
        if self.cutter.is_busy() {
            bytes += self.cutter.cut(self.id, pool, batch, &self.statistics);
        }
        let received = batch.len() - before;
        if received > 0 {
            self.statistics.rx_packets.add(received as u64);
            self.statistics.rx_bytes.add(bytes);
        }
        Ok(received)
    }

    fn transmit(
        &mut self,
        _now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<(), PortError> {
        let mut is_down = false;
        let mut rest = batch.as_slice();
        while !rest.is_empty() {
            match self.sender.send(rest) {
                Ok(sent) => {
                    let (done, waiting) = rest.split_at(sent.min(rest.len()));
                    self.statistics.tx_packets.add(done.len() as u64);
                    self.statistics
                        .tx_bytes
                        .add(done.iter().map(|packet| packet.len() as u64).sum());
                    rest = waiting;
                }
                Err(error) => {
                    let count = rest.len() as u64;
                    match error.raw_os_error() {
                        Some(libc::EINTR) => continue,
                        // The socket's buffer is full, and stays so for the rest of the batch.
                        Some(libc::EAGAIN) => {
                            self.statistics.tx_dropped.add(count);
                            break;
                        }
                        // The queueing discipline dropped this one.
                        Some(libc::ENOBUFS) => self.statistics.tx_dropped.add(1),
                        Some(libc::EMSGSIZE) => self.statistics.tx_too_long.add(1),
                        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                            self.statistics.tx_down.add(count);
                            is_down = true;
                            break;
                        }
                        _ => self.statistics.tx_errors.add(1),
                    }
                    rest = &rest[1..];
                }
            }
        }
        pool.give_all(batch.drain(..));
        if is_down { self.check_existence() } else { Ok(()) }
    }

    fn forget_waiting(&mut self) {
        self.empty_ring();
    }

    fn ring(&self) -> Option<ReceiveRing> {
        Some(self.ring.size())
    }

    fn waits_for_buffers(&self) -> bool {
        self.cutter.is_busy()
    }

    fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
    }

    fn statistics(&self) -> &Arc<PortStatistics> {
        &self.statistics
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.receiver.descriptor())
    }
}

/// Makes a packet of a frame that is no longer than a buffer.
#[inline]
fn fill(packet: &mut Packet, frame: &Frame<'_>, header: &VnetHeader) -> Result<(), Refused> {
    if !packet.fill(frame.bytes) {
        return Err(Refused::Length);
    }
    if header.lacks_checksum() {
        complete_checksum(packet.bytes_mut(), header)?;
    }
    if let Some((tpid, tci)) = frame.vlan
        && !(packet.len() + VLAN_TAG <= packet.longest_frame() && insert_vlan(packet, tpid, tci))
    {
        return Err(Refused::Length);
    }
    Ok(())
}

/// Has a frame that is to be cut, or is longer than its slot, wait in the cutter.
fn load(
    cutter: &mut Cutter,
    socket: &PacketSocket,
    frame: &Frame<'_>,
    header: &VnetHeader,
    is_down: &mut bool,
) -> Result<(), Refused> {
    if frame.queued {
        read_queued(cutter.buffer_mut(), socket, frame, is_down)?;
    } else {
        cutter.load(frame.bytes)?;
    }
    cutter.start(frame.length, header, frame.vlan)
}

/// Reads the whole of `frame` from the socket's queue, where it is the first unless an earlier one
/// could not be read.
fn read_queued(
    buffer: &mut [u8],
    socket: &PacketSocket,
    frame: &Frame<'_>,
    is_down: &mut bool,
) -> Result<(), Refused> {
    const TRIES: usize = 64;
    for _ in 0..TRIES {
        match socket.receive(buffer) {
            Ok(length) => {
                let begin = &buffer[VnetHeader::LENGTH..];
                if length == VnetHeader::LENGTH + frame.length && begin.starts_with(frame.bytes) {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // Told once, before what is queued.
            Err(error) => *is_down |= error.raw_os_error() == Some(libc::ENETDOWN),
        }
    }
    Err(Refused::Length)
}

/// Puts a bound socket into the fanout `group`, or into a new one. Returns the group.
fn join_fanout(socket: &PacketSocket, group: Option<u32>) -> io::Result<u32> {
    const FLAG_UNIQUE_ID: u32 = 0x2000;
    // A group receives for its members, and does not honour their own PACKET_IGNORE_OUTGOING.
    const FLAG_IGNORE_OUTGOING: u32 = 0x4000;
    let (group, flags) = match group {
        Some(group) => (group, FLAG_IGNORE_OUTGOING),
        None => (0, FLAG_IGNORE_OUTGOING | FLAG_UNIQUE_ID),
    };
    let mode = libc::PACKET_FANOUT_HASH | flags;
    socket.set_packet_option(libc::PACKET_FANOUT, (group | mode << 16) as libc::c_int)?;
    Ok(socket.fanout()? & 0xffff)
}
