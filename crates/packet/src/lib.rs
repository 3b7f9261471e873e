//! What a packet is while it is inside: its buffer, the batch it travels in, the reasons it may be
//! dropped for, and the port it comes from and leaves by.
#![deny(unsafe_code)]

mod batch;
mod buffer;
mod counter;
mod drop;
mod hash;
mod large_pages;
mod port;
mod prefetch;
mod slab;
mod time;

pub use batch::{BATCH, Batch};
pub use buffer::{CAPACITY, HEADROOM, LARGE_CAPACITY, MAX_FRAME, MAX_LARGE_FRAME, MAX_MTU, Pool};
pub use counter::Counter;
pub use drop::{DropCounters, DropReason};
pub use hash::KeyHasher;
pub use large_pages::{allocate, allocate_zeroed};
pub use port::{LinkKind, Port, PortError, PortStatistics, ReceiveRing};
pub use prefetch::{prefetch, prefetch_at, prefetch_whole, wait_for_reads};
pub use slab::{Packet, Pages};
pub use time::Time;
