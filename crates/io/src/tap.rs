//! A TAP device: a link whose other end is an interface of the kernel.
//!
//! What the kernel sends by the interface is received here, and the other way round. The interface
//! is made if there is none of its name, and goes when the port is closed; one that exists (`ip
//! tuntap add mode tap`) is attached to and stays.
//!
//! The device is opened with a virtio-net header and all offloads switched off (`TUNSETOFFLOAD` 0),
//! so the kernel hands over whole frames with all checksums and cuts what its own sockets left
//! uncut. If it hands over anything else, the header says so and [`crate::offload`] does it, as
//! for packet sockets.
//!
//! Frames that the kernel sends wait in its queue for the device until they are read. Those for
//! which it has no room are lost before the port sees them, and count as the device's
//! `tx_dropped` ([`crate::links`]).
//!
//! Two stations share the link, so the port's address is not the interface's. Unless one is
//! configured it is the interface's with one bit changed, which stays the same as long as the
//! interface has the same address.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use packet::{
    Batch, HEADROOM, LinkKind, MAX_FRAME, MAX_LARGE_FRAME, Packet, Pool, Port, PortError,
    PortStatistics, ReceiveRing, Time,
};
use wire::{Mac, PortId};

use crate::af_packet::DEFAULT_RING;
use crate::error::{OpenError, check_options};
use crate::interface::{self, Interface, port_mtu};
use crate::offload::{Cutter, Refused, VnetHeader, complete_checksum};
use crate::sys::tun::TapQueue;

/// How to open a TAP device.
#[derive(Clone, Debug)]
pub struct TapOptions {
    /// The name users know the port by.
    pub name: String,
    /// The device's name. A `%d` in it becomes the first free number.
    pub interface: String,
    /// What its packets are stamped with.
    pub id: PortId,
    /// The port's Ethernet address: that of this end of the link, not of the kernel's interface.
    pub mac: Option<Mac>,
    /// Queues, one for each worker. More than one make a multi-queue device.
    pub queues: u16,
    /// The MTU in bytes to give the interface; it is left alone where `None`.
    pub mtu: Option<u16>,
    /// Memory in bytes for the frames that wait to be read. The system counts frames, so each
    /// counts as [`TAP_FRAME`] bytes, whatever its length.
    pub ring_bytes: usize,
    /// Whether to set the interface up.
    pub up: bool,
}

impl TapOptions {
    /// One queue of `interface`, called the same, set up.
    pub fn new(interface: &str, id: PortId) -> Self {
        Self {
            name: interface.to_owned(),
            interface: interface.to_owned(),
            id,
            mac: None,
            queues: 1,
            mtu: None,
            ring_bytes: DEFAULT_RING,
            up: true,
        }
    }
}

/// What a frame that waits to be read counts for.
pub const TAP_FRAME: usize = 2048;

/// Opens a TAP device, which is made if there is none of the name. Returns one port for each
/// queue.
///
/// # Errors
/// If the process has no `CAP_NET_ADMIN`, the device is another program's or of another kind, or
/// its MTU is more than [`packet::MAX_MTU`]. The error says what would be right.
pub fn open(options: &TapOptions) -> Result<Vec<TapPort>, OpenError> {
    let wanted = options.interface.as_str();
    check_options(wanted, options.queues, options.mac)?;
    let mut name = wanted.to_owned();
    let mut queues = Vec::new();
    for _ in 0..options.queues {
        let (queue, given) =
            TapQueue::open(&name, options.queues > 1).map_err(|error| not_opened(wanted, error))?;
        name = given;
        queues.push(queue);
    }
    let failed = |what| {
        let name = name.as_str();
        move |source| OpenError::system(name, what, "CAP_NET_ADMIN", source)
    };
    if let Some(mtu) = options.mtu {
        interface::set_mtu(&name, mtu).map_err(failed("cannot set the MTU"))?;
    }
    // The kernel's own queue for each of the device's: 1000 frames unless told otherwise.
    let ring = (options.ring_bytes / TAP_FRAME).max(1);
    interface::set_queue_length(&name, ring).map_err(failed("cannot size the queue"))?;
    if options.up {
        interface::set_up(&name, true).map_err(failed("cannot set the interface up"))?;
    }
    let interface = Interface::named(&name).map_err(failed("cannot read the interface"))?;
    let mtu = port_mtu(&interface)?;
    let mac = options.mac.unwrap_or_else(|| other_end(interface.mac));
    let port = |queue| TapPort {
        name: if options.name == options.interface { name.clone() } else { options.name.clone() },
        id: options.id,
        mac,
        mtu,
        queue,
        ring,
        cutter: Cutter::new(),
        statistics: Arc::default(),
    };
    Ok(queues.into_iter().map(port).collect())
}

/// One queue of a TAP device.
#[derive(Debug)]
pub struct TapPort {
    name: String,
    id: PortId,
    mac: Mac,
    mtu: u16,
    queue: TapQueue,
    /// Frames that may wait to be read.
    ring: usize,
    cutter: Cutter,
    statistics: Arc<PortStatistics>,
}

impl TapPort {
    /// Reads one frame. Returns false if none waits or there is no buffer.
    ///
    /// Its first bytes go into a small buffer, and what is longer into the cutter, with one system
    /// call: how long a frame is shows only when it is read.
    fn take_frame(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        bytes: &mut u64,
    ) -> Result<bool, PortError> {
        let Some(mut packet) = pool.take() else { return Ok(false) };
        let mut vnet = [0; VnetHeader::LENGTH];
        let overflow = &mut self.cutter.buffer_mut()[VnetHeader::LENGTH + MAX_FRAME..];
        let room = &mut packet.buffer_mut().0[HEADROOM..HEADROOM + MAX_FRAME];
        let length = match self.queue.read(&mut vnet, room, overflow) {
            Ok(length) => length.saturating_sub(VnetHeader::LENGTH),
            Err(error) => {
                pool.give(packet);
                return match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) => Ok(false),
                    Some(libc::EBADFD) => Err(self.lost(error)),
                    _ => {
                        self.statistics.rx_errors.add(1);
                        Ok(false)
                    }
                };
            }
        };
        let header = VnetHeader::parse(vnet);
        packet.set_used(HEADROOM, length.min(MAX_FRAME));
        match self.finish(packet, length, &header, pool) {
            Ok(Some(mut packet)) => {
                packet.set_port(self.id);
                *bytes += length as u64;
                batch.push(packet);
            }
            Ok(None) => {}
            Err(refused) => {
                self.statistics.rx_errors.add(1);
                tracing::debug!(port = self.name, %refused, "frame refused");
            }
        }
        Ok(true)
    }

    /// Does what the kernel left undone, and returns the whole frame. `packet` has the beginning of
    /// a frame of `length` bytes, the cutter the rest. Returns `None` if the frame is to be cut, or
    /// was counted as missed.
    fn finish(
        &mut self,
        packet: Packet,
        length: usize,
        header: &VnetHeader,
        pool: &mut Pool,
    ) -> Result<Option<Packet>, Refused> {
        let mut packet = packet;
        if header.is_segmented() || length > MAX_FRAME {
            let loaded = self.cutter.load(packet.bytes());
            pool.give(packet);
            loaded?;
            if header.is_segmented() {
                self.cutter.start(length, header, None)?;
                self.statistics.rx_segmented.add(1);
                return Ok(None);
            }
            if length > MAX_LARGE_FRAME {
                return Err(Refused::Length);
            }
            let Some(large) = pool.take_copy(self.cutter.frame(length)?) else {
                self.statistics.rx_missed.add(1);
                return Ok(None);
            };
            packet = large;
        }
        if header.lacks_checksum() {
            if let Err(refused) = complete_checksum(packet.bytes_mut(), header) {
                pool.give(packet);
                return Err(refused);
            }
            self.statistics.rx_checksummed.add(1);
        }
        Ok(Some(packet))
    }

    fn lost(&self, source: io::Error) -> PortError {
        PortError { port: self.name.clone(), what: "the TAP device was deleted", source }
    }
}

impl Port for TapPort {
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
        _now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<usize, PortError> {
        let (before, mut bytes) = (batch.len(), 0);
        let mut result = Ok(());
        for _ in 0..packet::BATCH {
            if self.cutter.is_busy() {
                bytes += self.cutter.cut(self.id, pool, batch, &self.statistics);
            }
            if self.cutter.is_busy() || batch.is_full() {
                break;
            }
            match self.take_frame(pool, batch, &mut bytes) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if self.cutter.is_busy() {
            bytes += self.cutter.cut(self.id, pool, batch, &self.statistics);
        }
        let received = batch.len() - before;
        self.statistics.rx_packets.add(received as u64);
        self.statistics.rx_bytes.add(bytes);
        result.map(|()| received)
    }

    fn transmit(
        &mut self,
        _now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<(), PortError> {
        let (mut packets, mut bytes, mut dropped, mut errors) = (0, 0, 0, 0);
        let (mut too_long, mut down) = (0, 0);
        let mut result = Ok(());
        for packet in batch.iter() {
            // The device takes any length, and would give the kernel what no wire of this MTU could
            // carry.
            if interface::is_too_long(LinkKind::Ethernet, self.mtu, packet.bytes()) {
                too_long += 1;
                continue;
            }
            match self.queue.write(&[0; VnetHeader::LENGTH], packet.bytes()) {
                Ok(_) => {
                    packets += 1;
                    bytes += packet.len() as u64;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS) => dropped += 1,
                    Some(libc::EBADFD) => {
                        down += 1;
                        result = Err(self.lost(error));
                    }
                    // The interface is down.
                    Some(libc::EIO) => down += 1,
                    _ => errors += 1,
                },
            }
        }
        self.statistics.tx_packets.add(packets);
        self.statistics.tx_bytes.add(bytes);
        self.statistics.tx_dropped.add(dropped);
        self.statistics.tx_too_long.add(too_long);
        self.statistics.tx_down.add(down);
        self.statistics.tx_errors.add(errors);
        pool.give_all(batch.drain(..));
        result
    }

    fn ring(&self) -> Option<ReceiveRing> {
        Some(ReceiveRing { frames: self.ring, bytes: self.ring * TAP_FRAME })
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
        Some(self.queue.descriptor())
    }
}

/// An address for the port's end of the link, made from that of the interface's end.
fn other_end(Mac(mut octets): Mac) -> Mac {
    octets[0] = octets[0] & !1 | 2;
    octets[4] ^= 0x80;
    Mac(octets)
}

fn not_opened(name: &str, error: io::Error) -> OpenError {
    let what = "cannot open the TAP device";
    let advice = match error.raw_os_error() {
        Some(libc::ENOENT) => {
            "there is no /dev/net/tun: `modprobe tun`, or `mknod /dev/net/tun c 10 200`".to_owned()
        }
        Some(libc::EBUSY) => format!("another program has `{name}` open"),
        Some(libc::EINVAL) => format!(
            "`{name}` exists and is not a TAP device of this many queues: delete it, or make it \
            with `ip tuntap add {name} \
             mode tap` (and `multi_queue` for several queues)"
        ),
        Some(libc::E2BIG) => "the device has no more queues".to_owned(),
        _ => return OpenError::system(name, what, "CAP_NET_ADMIN", error),
    };
    OpenError { port: name.to_owned(), what, advice, source: Some(error) }
}
