//! What traffic builds: fragments on their way to being whole, packets that wait for a neighbour or
//! for the disk, rates.
//!
//! Everything here belongs to one worker and has a fixed size: its memory is allocated when it is
//! made, and when it is full something is dropped. Nothing here reads a clock.
#![forbid(unsafe_code)]

mod cache;
mod deadline;
mod edge_queue;
mod fragment_upper;
mod neighbour_queue;
mod rate;
mod reassembly;
mod shares;

pub use cache::{
    Associativity, CacheMode, CacheSettings, CacheStatistics, CacheTable, CacheTooLarge, Candidate,
    Controller, Costs, Counts, Found, Measurement, Memory, Open, Place, Plan, Table, Value,
};
pub use edge_queue::{EdgeQueue, Release};
pub use fragment_upper::{FragmentUpper, Recalled};
pub use neighbour_queue::{GivenUp, Held, NeighbourQueue, Sender};
pub use rate::{FairLimiter, RateLimiter};
pub use reassembly::{Group, Reassembled, Reassembly};
pub use shares::Guarantee;
