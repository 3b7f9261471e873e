//! Connection tracking and NAT: the table of connections, what the trackers make of packets, and
//! how ports are lent.
//!
//! Nothing here reads a clock or the environment: time, secrets and sizes are arguments. Memory is
//! allocated when a table is made. One table serves all workers: lookups and hits take no lock, but for the
//! one by which a connection begins to end.
//!
//! [`Connections::track`] is what decide asks; it changes nothing. [`Connections::hit`] and
//! [`Connections::commit`] are what apply does.
#![forbid(unsafe_code)]

mod buckets;
mod commit;
mod connection;
mod ct_state;
mod datagram;
mod endings;
mod entry;
mod evictable;
mod expectation;
pub mod helper;
mod hit;
mod lifecycle;
mod limits;
pub mod nat;
mod packet;
mod places;
mod policies;
mod refused;
mod related;
mod rewrite;
mod sctp;
mod sync;
mod table;
mod tcp;
mod timeout;
mod track;
mod tuple;

#[cfg(all(test, feature = "loom"))]
mod loom_tests;

pub use connection::{Connection, DirectionCounters, Ended, Reason};
pub use ct_state::{CtState, Direction, Handle, Named, Reference, Stamp};
pub use expectation::{Expectation, ExpectationChange, NotExpected};
pub use limits::{ClassLimits, LimitKind, ReachedLimit, SourceLimits};
pub use packet::{Chunks, Packet, Segment};
pub use policies::{MOST_POLICIES, TimeoutPolicy};
pub use refused::RefusedOnes;
pub use related::{QuotedSequence, Related};
pub use rewrite::{NotTranslated, Translation};
pub use table::{
    Connections, Counts, Hit, MOST_CONNECTIONS, New, NotMade, Plain, Refused, Settings, Tracked,
};
pub use timeout::{PolicyId, State};
pub use tuple::{Role, Tuple};
