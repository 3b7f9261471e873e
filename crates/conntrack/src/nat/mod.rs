//! Which address and port a connection gets.

mod blocks;
mod dynamic;
mod foretell;
mod likely;
mod making_way;
mod mappings;
mod nptv6;
mod pool;
mod ports;
mod sequence;

pub use blocks::{BadBlocks, PortBlocks};
pub use dynamic::BlockEvent;
pub use likely::Likely;
pub use nptv6::{Nptv6, Nptv6Error};
pub use pool::{BadPool, Lease, NotLent, Pool, PoolCounts, PoolSettings, PortChoice};
pub use sequence::SequenceShift;
