//! A packet's way through the gateway: the stages, [`decide()`], apply, and the [`Worker`] that
//! runs them.
//!
//! Two functions handle every packet. [`decide()`] consults policy and changes nothing; apply
//! changes the packet and consults nothing. What one tells the other is a [`Decision`].
#![forbid(unsafe_code)]

mod batch;
mod cache;
mod connection;
mod cost;
mod decide;
mod decision;
mod encapsulation;
mod extension;
mod follower;
mod foretell;
mod graph;
mod host;
mod members;
mod mss;
mod outputs;
mod pairs;
mod stage;
mod statistics;
mod tap;
mod worker;

pub use cost::{BESIDE, Costs, StageCost};
pub use decide::question::Question;
pub use decide::trace::{Exit, FoundPolicy, Step, Trace, WithoutPolicies};
pub use decide::{Seen, decide};
pub use decision::{Decision, Refusal, Verdict};
pub use extension::{Extension, MatchedFlows};
pub use foretell::{Arriving, Fate, Opened, Parsed, Size, Told, Unheard, Untold, Wait, foretell};
pub use graph::{Stage, graph};
pub use host::Delivery;
pub use host::errors::IcmpError;
pub use members::{Json, Members};
pub use stage::oversize::Fit;
pub use stage::queue::{Handover, handovers};
pub use statistics::WorkerStatistics;
pub use tap::{TapDirection, TapReader, TapRecord, TapWriter, tap_ring};
pub use worker::{Worker, WorkerSettings};
