//! A link allocates when it is made and never again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use io::memory::{MemoryHandle, MemoryOptions, pair, port};
use packet::{BATCH, Batch, Pool, Port, Time};
use wire::PortId;

struct Counting;

// Per thread, so that tests beside one another do not count each other's.
thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn memory_ports_do_not_allocate_per_packet() {
    let options = |id| MemoryOptions::ethernet("m", PortId(id));
    let (mut first, mut handle) = port(options(0), 2 * BATCH);
    let (mut left, mut right) = pair(options(1), options(2), 2 * BATCH);
    let (mut last, mut far) = port(options(3), 2 * BATCH);
    let (mut one, mut two) = (Pool::new(BATCH), Pool::new(BATCH));
    let mut batch = Batch::new();
    for _ in 0..BATCH {
        assert!(handle.push(&[7; 1514]));
    }
    let before = ALLOCATIONS.get();
    for round in 0..100 {
        first.receive(Time(round), &mut one, &mut batch).unwrap();
        left.transmit(Time(round), &mut one, &mut batch).unwrap();
        right.receive(Time(round), &mut two, &mut batch).unwrap();
        last.transmit(Time(round), &mut two, &mut batch).unwrap();
        assert_eq!((one.available(), two.available()), (BATCH, BATCH));
        assert_eq!(
            MemoryHandle::transfer(&mut far, &mut handle, BATCH, |packet| packet.bytes_mut()[0] =
                1),
            BATCH
        );
    }
    assert_eq!(ALLOCATIONS.get(), before);
}

#[test]
fn jumbo_frames_and_mixed_batches_do_not_allocate_either() {
    let options = |id| MemoryOptions { mtu: 9000, ..MemoryOptions::ethernet("m", PortId(id)) };
    let (mut port, mut handle) = port(options(0), BATCH);
    let mut pool = Pool::with_large(BATCH, BATCH);
    let mut batch = Batch::new();
    let before = ALLOCATIONS.get();
    for round in 0..100 {
        for length in [60, 9014, 2048, 2049] {
            assert!(handle.push(&FRAME[..length]));
        }
        assert_eq!(port.receive(Time(round), &mut pool, &mut batch).unwrap(), 4);
        port.transmit(Time(round), &mut pool, &mut batch).unwrap();
        while handle.pop_with(|_| ()).is_some() {}
    }
    assert_eq!(port.statistics().tx_packets.read(), 400);
    assert_eq!(ALLOCATIONS.get(), before);
}

static FRAME: [u8; 9014] = [7; 9014];
