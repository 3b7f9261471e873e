//! The memory of a worker's packets: one mapping, cut into buffers.
//!
//! At the front stand the packets' metadata, sixteen bytes each, four to a cache line; behind them
//! the small buffers, then the large ones. A stage that only asks for lengths and offsets reads
//! the metadata's lines and leaves the packets' bytes alone.
//!
//! JUSTIFICATION of the unsafe code: a [`Packet`] owns its buffer as a `Box` would, but its memory
//! is part of a mapping, so that all buffers stand in huge pages and a port can give the mapping
//! to the kernel. The standard library has no owner of a part of a mapping. Everything that
//! touches raw memory is in this file.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use memmap2::{Advice, MmapMut, MmapOptions};
use wire::PortId;

use crate::buffer::{CAPACITY, HEADROOM, LARGE_CAPACITY};

/// Metadata that share one [`Group`] header.
const GROUP: usize = 1023;
const HUGE_PAGE: usize = 2 << 20;

/// What pages a slab's memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages that the system had reserved (`vm.nr_hugepages`).
    Huge,
    /// Ordinary ones, of which the system was asked to make huge ones (`madvise`).
    Transparent,
    /// Ordinary ones: this kernel has no transparent huge pages, or they are switched off.
    Ordinary,
}

/// Owned by all packets that were cut from it, together. The last one frees it.
struct Slab {
    packets: AtomicUsize,
    _memory: MmapMut,
}

/// In front of the metadata of up to [`GROUP`] packets.
#[repr(C, align(16))]
struct Group {
    slab: NonNull<Slab>,
}

/// What is known of a packet beside its bytes.
#[repr(C, align(16))]
struct Metadata {
    /// The first byte of the buffer.
    bytes: NonNull<u8>,
    start: u16,
    end: u16,
    port: PortId,
    /// Position in its group, from 1: so many times its size behind the group's header. With
    /// [`LARGE`] if the buffer is a large one.
    number: u16,
}

/// A bit of [`Metadata::number`] that no position needs, so that a packet's kind is known without
/// its group's header.
const LARGE: u16 = 1 << 15;
const _: () = assert!(GROUP < LARGE as usize);

const _: () = assert!(size_of::<Group>() == 16 && size_of::<Metadata>() == 16);

/// One packet: a buffer from a [`crate::Pool`] and the part of it that holds bytes now.
///
/// It owns the buffer. Moving it moves a pointer.
pub struct Packet(NonNull<Metadata>);

// SAFETY: a packet is the only one that reaches its metadata and its buffer; what packets of one
// slab share (the group's header and the slab) is written before the first of them exists, but for
// an atomic counter.
unsafe impl Send for Packet {}

/// Makes `small` packets of [`CAPACITY`] bytes and `large` ones of [`LARGE_CAPACITY`], in one
/// mapping.
///
/// # Panics
/// If the system does not give the address space. Memory is given when a buffer is first used.
pub(crate) fn cut(small: usize, large: usize) -> (Vec<Packet>, Vec<Packet>, Pages) {
    let metadata = |count: usize| (count + count.div_ceil(GROUP)) * size_of::<Metadata>();
    let front = (metadata(small) + metadata(large)).next_multiple_of(64);
    let size = front + small * CAPACITY + large * LARGE_CAPACITY;
    if small + large == 0 {
        return (Vec::new(), Vec::new(), Pages::Ordinary);
    }
    let (mut memory, pages) = map(size);
    let base = NonNull::new(memory.as_mut_ptr()).expect("a mapping is never at address zero");
    let slab = Box::new(Slab { packets: AtomicUsize::new(small + large), _memory: memory });
    let slab = NonNull::from(Box::leak(slab));
    // SAFETY: every address that `carve` is given is inside the mapping: `front` bytes hold all
    // groups and metadata, and behind them there is room for all buffers. The mapping begins at a
    // page, so that groups and metadata are aligned, as their sizes are. No two parts overlap.
    unsafe {
        let buffers = base.add(front);
        let small_packets = carve(slab, base, buffers, small, CAPACITY);
        let large_metadata = base.add(metadata(small));
        let large_buffers = buffers.add(small * CAPACITY);
        let large_packets = carve(slab, large_metadata, large_buffers, large, LARGE_CAPACITY);
        (small_packets, large_packets, pages)
    }
}

fn map(size: usize) -> (MmapMut, Pages) {
    let huge = size.next_multiple_of(HUGE_PAGE);
    if size >= HUGE_PAGE
        && let Ok(memory) = MmapOptions::new().len(huge).huge(Some(21)).map_anon()
    {
        return (memory, Pages::Huge);
    }
    let memory = MmapOptions::new().len(size).map_anon();
    let memory = memory.unwrap_or_else(|why| panic!("no memory for packets, {size} bytes: {why}"));
    let pages = match memory.advise(Advice::HugePage) {
        Ok(()) => Pages::Transparent,
        Err(_) => Pages::Ordinary,
    };
    (memory, pages)
}

/// # Safety
/// `metadata` has room for `count` metadata and their groups' headers and is aligned for them;
/// `buffers` for `count` times `capacity` bytes; both live as long as `slab` and nobody else
/// uses them.
unsafe fn carve(
    slab: NonNull<Slab>,
    metadata: NonNull<u8>,
    buffers: NonNull<u8>,
    count: usize,
    capacity: usize,
) -> Vec<Packet> {
    let mut packets = Vec::with_capacity(count);
    let kind = if capacity == LARGE_CAPACITY { LARGE } else { 0 };
    for at in 0..count {
        let (group, number) = (at / GROUP, at % GROUP + 1);
        // SAFETY: as the caller promises.
        unsafe {
            let header = metadata.add(group * (GROUP + 1) * size_of::<Metadata>());
            if number == 1 {
                header.cast().write(Group { slab });
            }
            let place = header.cast::<Metadata>().add(number);
            place.write(Metadata {
                bytes: buffers.add(at * capacity),
                start: HEADROOM as u16,
                end: HEADROOM as u16,
                port: PortId(0),
                number: number as u16 | kind,
            });
            packets.push(Packet(place));
        }
    }
    packets
}

impl Packet {
    #[inline(always)]
    fn metadata(&self) -> &Metadata {
        // SAFETY: the metadata live as long as the packet, which alone reaches them.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn metadata_mut(&mut self) -> &mut Metadata {
        // SAFETY: as above, and the packet is borrowed to be changed.
        unsafe { self.0.as_mut() }
    }

    #[inline(always)]
    fn group(&self) -> &Group {
        let number = self.metadata().number & !LARGE;
        // SAFETY: the group's header stands so many metadata in front; `cut` put it there, and
        // nobody changes it.
        unsafe { self.0.sub(usize::from(number)).cast().as_ref() }
    }

    /// Which bytes of the buffer are used, first and last but one.
    #[inline(always)]
    pub(crate) fn used(&self) -> (usize, usize) {
        let metadata = self.metadata();
        (usize::from(metadata.start), usize::from(metadata.end))
    }

    /// Says which bytes of the buffer are used.
    ///
    /// # Panics
    /// If they are not inside the buffer or end before they begin.
    #[inline(always)]
    pub(crate) fn set_range(&mut self, start: usize, end: usize) {
        assert!(start <= end && end <= self.capacity());
        let metadata = self.metadata_mut();
        metadata.start = start as u16;
        metadata.end = end as u16;
    }

    /// Moves the start, to an offset that is not behind the end.
    ///
    /// # Panics
    /// If it is behind the end.
    #[inline(always)]
    pub(crate) fn set_start(&mut self, start: usize) {
        let metadata = self.metadata_mut();
        // [`Packet::bytes`] relies on it.
        assert!(start <= usize::from(metadata.end));
        metadata.start = start as u16;
    }

    /// Moves the end to the front, to an offset that is not before the start.
    #[inline(always)]
    pub(crate) fn cut_end(&mut self, end: usize) {
        let metadata = self.metadata_mut();
        metadata.end = metadata.end.min(end as u16).max(metadata.start);
    }

    /// Removes `front` bytes in front and keeps `length` of the rest.
    ///
    /// What of these bytes is not there is not removed or kept: the packet is then shorter.
    #[inline(always)]
    pub fn narrow(&mut self, front: usize, length: usize) {
        let (start, end) = self.used();
        let first = start.saturating_add(front);
        let last = first.saturating_add(length);
        if last > end {
            return self.narrow_to_what_is_there(first, last);
        }
        let metadata = self.metadata_mut();
        (metadata.start, metadata.end) = (first as u16, last as u16);
    }

    #[cold]
    fn narrow_to_what_is_there(&mut self, first: usize, last: usize) {
        let (_, end) = self.used();
        self.set_range(first.min(end), last.min(end));
    }

    /// All of the buffer's bytes, used or not.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        if self.is_large() { LARGE_CAPACITY } else { CAPACITY }
    }

    /// Whether the buffer is one of the large ones.
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.metadata().number & LARGE != 0
    }

    /// The packet's bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        let (start, end) = self.used();
        // SAFETY: every function that moves one of them keeps start <= end <= capacity, and the
        // buffer is this packet's alone.
        unsafe {
            let first = self.metadata().bytes.add(start);
            core::slice::from_raw_parts(first.as_ptr(), end - start)
        }
    }

    /// The packet's bytes, to change.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, end) = self.used();
        // SAFETY: as in [`Packet::bytes`], and the packet is borrowed to be changed.
        unsafe {
            let first = self.metadata().bytes.add(start);
            core::slice::from_raw_parts_mut(first.as_ptr(), end - start)
        }
    }

    /// The whole buffer, used and unused.
    #[inline(always)]
    pub(crate) fn all_mut(&mut self) -> &mut [u8] {
        let capacity = self.capacity();
        // SAFETY: the buffer has so many bytes, all of them initialised (zero at first), and is
        // this packet's alone, which is borrowed to be changed.
        unsafe { core::slice::from_raw_parts_mut(self.metadata().bytes.as_ptr(), capacity) }
    }

    /// Tells it from all other packets that there are, as long as it has an owner. Never 0.
    pub fn identity(&self) -> usize {
        self.0.addr().get()
    }

    /// The port it came in by.
    #[inline(always)]
    pub fn port(&self) -> PortId {
        self.metadata().port
    }

    /// Notes by which port it came in.
    #[inline(always)]
    pub fn set_port(&mut self, port: PortId) {
        self.metadata_mut().port = port;
    }

    /// Asks for the memory of its first bytes.
    #[inline(always)]
    pub fn prefetch_bytes(&self) {
        crate::prefetch(self.bytes());
    }

    /// Asks for the memory of its metadata.
    #[inline(always)]
    pub fn prefetch(&self) {
        crate::prefetch(self.metadata());
    }
}

/// Frees the slab with its last packet. A packet that goes back to its pool is not dropped.
impl Drop for Packet {
    #[cold]
    fn drop(&mut self) {
        let slab = self.group().slab;
        // SAFETY: the slab lives until the last of its packets has counted itself out, which each
        // does once. Release and acquire order every use of the memory before its end.
        unsafe {
            if slab.as_ref().packets.fetch_sub(1, Ordering::Release) == 1 {
                core::sync::atomic::fence(Ordering::Acquire);
                drop(Box::from_raw(slab.as_ptr()));
            }
        }
    }
}
