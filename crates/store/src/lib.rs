//! The state directory: what commands have changed, in a log that survives power loss.
//!
//! ```text
//! lock     who runs on this directory
//! log      changes as commands, each write with its length and checksum
//! keys.N   the keys that the log names by number
//! NAME     records that are written as a whole, by [`Directory::write_record`]
//! ```
//!
//! [`Directory::open`] locks it, [`Directory::read`] returns what was kept, and [`Log::start`]
//! goes on from there. The log is written by a thread of its own, many changes with one fsync, so
//! that whoever makes changes never waits for the disk.
#![forbid(unsafe_code)]

mod directory;
mod frame;
mod log;
mod record;
mod saved;

pub use directory::{Directory, StoreError};
pub use log::{Done, Log, Snapshot};
pub use saved::{Dropped, Repaired, Saved};
