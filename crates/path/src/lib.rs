//! A packet's way through the gateway: the stages, [`decide()`], apply, and the [`Worker`] that
//! runs them.
//!
//! Two functions handle every packet. [`decide()`] consults policy and changes nothing; apply
//! changes the packet and consults nothing. What one tells the other is a [`Decision`].
#![forbid(unsafe_code)]

mod cached;
mod caches;
mod decide;
mod decision;
mod encapsulation;
mod graph;
mod host;
mod lane;
mod recent;
mod stage;
mod statistics;
mod trace;
mod validity;
mod worker;

pub use decide::decide;
pub use decision::{Decision, EthernetHeader, Exit, LinkHeader, Refusal, Verdict};
pub use graph::{Stage, graph};
pub use statistics::WorkerStatistics;
pub use trace::{Step, Trace};
pub use worker::{Worker, WorkerSettings};
