//! Match-action tables in the words of Open vSwitch's ovs-ofctl: flows by tables and priorities,
//! and what they do to a packet.
//!
//! A [`Pipeline`] has the flows of all VRFs. [`Pipeline::evaluate`] takes the [`Fields`] of a
//! packet through the tables and returns the [`Outcome`]. It changes nothing: connections are asked
//! about by the trait [`Track`], and what is to be committed is part of the outcome.
//!
//! Nothing here does I/O, reads a clock, or sees the bytes of a packet.
#![forbid(unsafe_code)]

mod action;
mod change;
mod ct;
mod cycle;
mod evaluate;
mod field;
mod fields;
mod flow;
mod matches;
mod outcome;
mod packets;
mod pipeline;
mod table;
pub mod text;

pub use action::{Action, NoPrefixes, Prefixes, SetWord};
pub use change::{Change, Changed, Criteria, MOST_FLOWS, Refused};
pub use ct::{
    Alg, Commit, Ct, CtFields, NatBlocks, NatEnd, NatNew, NatSpec, Number, PortChoice, Track, Zone,
};
pub use evaluate::{MOST_COMMITS, MOST_ENDS, MOST_LEVELS, MOST_MATCHED, MOST_RESUBMITS};
pub use field::{Field, Needs, Subfield};
pub use fields::{ARP, Exit, Fields, IPV4, IPV6};
pub use flow::{Entry, Flow, FlowId, Owner};
pub use matches::{EndReads, Match, Range};
pub use outcome::{DropReason, End, Outcome, Step, To, Trace};
pub use packets::FlowPackets;
pub use pipeline::Pipeline;
pub use types::PacketFields;
