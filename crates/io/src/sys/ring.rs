//! The ring of received frames that a packet socket shares with the kernel (TPACKET_V2,
//! Documentation/networking/packet_mmap.rst in the kernel's sources).

use std::io;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use packet::ReceiveRing;

use super::socket::PacketSocket;

/// The kernel's header of a frame: a `tpacket2_hdr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    status: u32,
    length: u32,
    captured: u32,
    mac: u16,
    net: u16,
    seconds: u32,
    nanoseconds: u32,
    vlan_tci: u16,
    vlan_tpid: u16,
    padding: [u8; 4],
}

const _: () = assert!(size_of::<Header>() == 32);

const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1 << 0;
const STATUS_COPY: u32 = 1 << 1;
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

/// Bytes of a slot in front of a frame's Ethernet header: the kernel's header, a `sockaddr_ll`,
/// alignment, and the virtio-net header.
pub(crate) const SLOT_OVERHEAD: usize = 76;

/// Length of the virtio-net header in front of a frame.
pub(crate) const VNET_HEADER: usize = 10;

/// A received frame in its slot. The kernel does not touch the slot until [`Ring::release`].
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    /// What is in the slot, from the Ethernet header on.
    pub(crate) bytes: &'a [u8],
    /// The frame's whole length.
    pub(crate) length: usize,
    /// The virtio-net header.
    pub(crate) vnet: [u8; VNET_HEADER],
    /// Whether the frame did not fit the slot and the whole of it waits in the socket's queue.
    pub(crate) queued: bool,
    /// The VLAN tag that the kernel took out: TPID and TCI.
    pub(crate) vlan: Option<(u16, u16)>,
}

/// The mapped ring. Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Ring {
    map: NonNull<u8>,
    length: usize,
    slot_size: usize,
    slots: usize,
    head: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Ring {}

/// Bytes of one block, the unit in which the kernel allocates. Slots divide it.
const BLOCK: usize = 1 << 16;

impl Ring {
    /// Gives `socket` a ring of at least `slots` slots of `slot_size` bytes (a power of two from
    /// 128 to 65,536) and maps it. The socket's version must be TPACKET_V2 and its virtio-net
    /// header switched on before.
    pub(crate) fn new(socket: &PacketSocket, slots: usize, slot_size: usize) -> io::Result<Self> {
        let invalid =
            || io::Error::new(io::ErrorKind::InvalidInput, "slot size or count of the ring");
        if !slot_size.is_power_of_two() || !(128..=BLOCK).contains(&slot_size) {
            return Err(invalid());
        }
        let per_block = BLOCK / slot_size;
        let blocks = slots.div_ceil(per_block).max(1);
        let slots = blocks * per_block;
        let length = blocks.checked_mul(BLOCK).ok_or_else(invalid)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: u32::try_from(blocks).map_err(|_| invalid())?,
            tp_frame_size: slot_size as u32,
            tp_frame_nr: u32::try_from(slots).map_err(|_| invalid())?,
        };
        socket.set_receive_ring(&request)?;
        // SAFETY: a new mapping, at a place the kernel chooses, of a descriptor that is open; its
        // length is the ring's.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.descriptor(),
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast()).ok_or_else(invalid)?;
        Ok(Self { map, length, slot_size, slots, head: 0 })
    }

    /// How much it holds.
    pub(crate) fn size(&self) -> ReceiveRing {
        ReceiveRing { frames: self.slots, bytes: self.length }
    }

    /// The oldest frame that was not released yet.
    #[inline]
    pub(crate) fn frame(&self) -> Option<Frame<'_>> {
        let slot = self.slot();
        let status = self.status().load(Ordering::Acquire);
        if status & STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is inside the mapping and aligned to its size, of at least 128 bytes.
        // The kernel wrote the header before it set the status (seen with Acquire) and leaves the
        // slot alone while the status says so.
        let header = unsafe { slot.cast::<Header>().read() };
        // The kernel keeps both inside the slot; holding it to that keeps this function safe on its
        // own.
        let start = usize::from(header.mac).clamp(VNET_HEADER, self.slot_size);
        let captured = (header.captured as usize).min(self.slot_size - start);
        // SAFETY: start and length were held to the slot, which the kernel leaves alone as long as
        // the frame is borrowed: release needs the ring mutably.
        let (vnet, bytes) = unsafe {
            (
                slot.add(start - VNET_HEADER).cast::<[u8; VNET_HEADER]>().read(),
                std::slice::from_raw_parts(slot.add(start).as_ptr(), captured),
            )
        };
        let tpid = if status & STATUS_VLAN_TPID_VALID != 0 { header.vlan_tpid } else { 0x8100 };
        Some(Frame {
            bytes,
            length: header.length as usize,
            vnet,
            queued: status & STATUS_COPY != 0,
            vlan: (status & STATUS_VLAN_VALID != 0).then_some((tpid, header.vlan_tci)),
        })
    }

    /// Gives the oldest frame's slot back to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.status().store(STATUS_KERNEL, Ordering::Release);
        self.head += 1;
        if self.head == self.slots {
            self.head = 0;
        }
    }

    #[inline]
    fn slot(&self) -> NonNull<u8> {
        // SAFETY: the head is below the number of slots, and all slots are inside the mapping.
        unsafe { self.map.add(self.head * self.slot_size) }
    }

    #[inline]
    fn status(&self) -> &AtomicU32 {
        // SAFETY: a slot begins with its status, is inside the mapping and aligned; the kernel and
        // this process both access it atomically.
        unsafe { AtomicU32::from_ptr(self.slot().cast::<u32>().as_ptr()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.length) };
    }
}
