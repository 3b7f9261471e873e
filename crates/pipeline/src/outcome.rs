//! What becomes of a packet.

use arrayvec::ArrayVec;
use smallvec::SmallVec;
use types::{PacketFields, PortId, RejectWith};

use crate::action::Action;
use crate::ct::{Commit, CtFields};
use crate::evaluate::MOST_MATCHED;
use crate::fields::Fields;
use crate::flow::{Entry, FlowId};

/// What becomes of a packet.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// Where it goes, in order, as it is then.
    pub ends: SmallVec<[End; 1]>,
    /// Why it goes nowhere. `None` if, and only if, there are `ends`.
    pub drop: Option<DropReason>,
    /// The packet after the last action.
    pub fields: Fields,
    /// The connections that are to be made, in order. A packet that is dropped may make some; one
    /// that was dropped for a limit does not.
    pub commits: SmallVec<[Commit<'a>; 1]>,
    /// The flows that it has matched, in order: the first 64.
    pub matched: ArrayVec<FlowId, MOST_MATCHED>,
    /// Whether it has matched more flows than these.
    pub matched_more: bool,
    /// Whether an action was to decrement a TTL or hop limit of 1 or 0.
    pub ttl_exceeded: bool,
    /// Whether a line about it is to be logged.
    pub logs: bool,
    /// The optional fields that were written of the packet after the last action, whatever they were
    /// before.
    pub writes: PacketFields,
    /// The optional fields that were read: packets that differ in other bits have the same outcome.
    pub reads: PacketFields,
}

impl Outcome<'_> {
    /// What a copy of the packet is like that is sent, and which optional fields were written by then.
    #[inline]
    pub fn fields_of<'o>(&'o self, end: &'o End) -> (&'o Fields, PacketFields) {
        match &end.then {
            None => (&self.fields, self.writes),
            Some(then) => (&then.0, then.1),
        }
    }

    /// Of a packet of which nothing is known yet.
    pub fn new(fields: Fields) -> Self {
        Self {
            ends: SmallVec::new(),
            drop: None,
            fields,
            commits: SmallVec::new(),
            matched: ArrayVec::new(),
            matched_more: false,
            ttl_exceeded: false,
            logs: false,
            writes: PacketFields::NONE,
            reads: PacketFields::NONE,
        }
    }
}

/// A copy of a packet that is sent.
#[derive(Clone, PartialEq, Eq)]
pub struct End {
    /// Where to.
    pub to: To,
    /// What it was like, and which optional fields were written by then, if actions were left that
    /// may have changed the packet since. See [`Outcome::fields_of`].
    pub(crate) then: Option<Box<(Fields, PacketFields)>>,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// Out of a port.
    Port(PortId),
    /// Back by the port that it came by.
    InPort,
    /// The way of a packet without flows.
    Normal,
    /// The same, if that is the packet's end.
    Unrouted,
    /// Nowhere, as its connection's way is another one now.
    Rerouted {
        /// Whether the connection ends.
        ends: bool,
    },
}

/// Why a packet goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The flows say so.
    Explicit,
    /// The flows say so, and that its sender is told.
    Rejected(RejectWith),
    /// The last table that it came to has no flow that it matches.
    TableMiss,
    /// It was in more than 64 levels of tables that lead back.
    TooDeep,
    /// It came to more than 4,096 tables.
    TooManyResubmits,
    /// More than 64 copies of it were to be sent.
    TooManyOutputs,
    /// It was to make more than 16 connections.
    TooManyCommits,
    /// Its TTL or hop limit was 1 or 0, and to be decremented.
    TtlExceeded,
}

/// Is told what happens to a packet. `()` listens to nothing and costs nothing.
pub trait Trace {
    /// Something has happened.
    fn step(&mut self, step: &Step<'_>);
}

impl Trace for () {
    #[inline(always)]
    fn step(&mut self, _: &Step<'_>) {}
}

/// Something that has happened to a packet.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// It was looked up in a table.
    Lookup {
        /// How many flows have led to it, one from the other.
        depth: usize,
        /// The table.
        table: u8,
        /// The packet.
        fields: &'a Fields,
        /// The flow that it has matched.
        found: Option<&'a Entry>,
    },
    /// An action of the flow that was found in a table is done next.
    Action {
        /// The table.
        table: u8,
        /// The action.
        action: &'a Action,
        /// The packet before it.
        fields: &'a Fields,
    },
    /// A `ct` has asked connection tracking.
    Tracked {
        /// The table of the flow.
        table: u8,
        /// The zone.
        zone: u16,
        /// What connection tracking has said.
        ct: &'a CtFields,
        /// The packet after it.
        fields: &'a Fields,
    },
    /// It is not sent, since it came by this port.
    SameAsInPort(PortId),
}
