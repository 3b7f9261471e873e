//! A cable allocates when it is made and never again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use io::memory::{MemoryHandle, MemoryOptions, pair, port};
use packet::{BATCH, Batch, Pool, Port, Time};
use wire::PortId;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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
    let before = ALLOCATIONS.load(Ordering::Relaxed);
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
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
}
