//! Queueing disciplines: what waits before a link, in which order it leaves, and when.
//!
//! A [`Discipline`] is fq_codel (RFC 8290) or a FIFO, with or without a token bucket in front. It
//! knows items and no packets, reads no clock ([`Nanoseconds`] are an argument), and does no I/O.
//! Its memory is allocated when it is made or changed, and that of what waits, [`Slots`], once for
//! all disciplines of a thread; nothing is allocated for an item.
#![forbid(unsafe_code)]

mod codel;
mod discipline;
mod fifo;
mod fq_codel;
mod slots;
mod tbf;

pub use discipline::{Discipline, Next, Settings};
pub use fq_codel::FlowStatistics;
pub use slots::Slots;

/// A time in nanoseconds, since whatever the caller counts from.
pub type Nanoseconds = u64;

/// What waits.
pub trait Item {
    /// Bytes that it takes on the link. Stays the same while it waits.
    fn length(&self) -> u32;

    /// Bytes of memory that it takes. Stays the same while it waits.
    fn memory(&self) -> u32;

    /// A hash of its flow, which a sender must not be able to aim.
    fn flow(&self) -> u32;

    /// Marks it as having met congestion (RFC 3168). Returns false if its sender does not
    /// understand that.
    fn mark(&mut self) -> bool;
}

/// Why an item was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// There was no room.
    Overlimit,
    /// It had waited too long all the time.
    Congestion,
    /// It is longer than the token bucket.
    TooLong,
    /// The discipline was emptied, or the item may not leave any more.
    Flushed,
}

/// What a discipline has done, and what waits in it.
///
/// What came in is what was sent, was dropped or waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Items sent.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Items dropped, for whatever reason.
    pub drops: u64,
    /// How often it had to wait for its rate.
    pub overlimits: u64,
    /// Bytes that wait.
    pub backlog: u64,
    /// Items that wait.
    pub queued: u64,
}
