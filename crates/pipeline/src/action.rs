//! What a flow does to a packet.

use std::sync::Arc;

use types::{PacketFields, PortId, RejectWith};

use crate::ct::{Ct, Zone};
use crate::field::{Field, Subfield};
use crate::matches::reads_of_field;

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends the packet out of a port, unless it came by that port.
    Output(PortId),
    /// Sends the packet back by the port that it came by.
    InPort,
    /// Treats the packet as a router without flows would.
    Normal,
    /// Connection tracking.
    Ct(Box<Ct>),
    /// Forgets what connection tracking has said.
    CtClear,
    /// Goes through a table, and continues here.
    Resubmit {
        /// The port that this one lookup takes for `in_port`.
        in_port: Option<PortId>,
        /// The table; this one if none is given.
        table: Option<u8>,
    },
    /// Continues in a later table.
    GotoTable(u8),
    /// Sets bits of a field.
    Set {
        /// The word that it is written with.
        word: SetWord,
        /// The field.
        field: Field,
        /// What the bits become.
        value: u128,
        /// Which bits.
        mask: u128,
    },
    /// Copies bits from one field to another.
    Move {
        /// From where.
        from: Subfield,
        /// To where; as many bits.
        to: Subfield,
    },
    /// Decrements TTL or hop limit. At 1 or 0 the flow's other actions are left out.
    DecTtl,
    /// Drops the packet, whatever stands before, and tells its sender. With
    /// [`RejectWith::TcpReset`] TCP is told by a reset and everything else by ICMP. Ours.
    Reject(RejectWith),
    /// Writes a line about the packet into the log, which begins with this. Ours.
    Log(Arc<str>),
    /// Does nothing.
    Note(Vec<u8>),
}

impl Action {
    /// The optional fields that it reads.
    pub fn reads(&self) -> PacketFields {
        match self {
            Self::Move { from, .. } => reads_of_field(from.field),
            Self::DecTtl => PacketFields::HOP_LIMIT,
            Self::Ct(ct) => {
                let zone = match ct.zone {
                    Zone::Field(part) => reads_of_field(part.field),
                    Zone::Vrf | Zone::Number(_) => PacketFields::NONE,
                };
                ct.exec.iter().fold(zone, |reads, action| reads | action.reads())
            }
            _ => PacketFields::NONE,
        }
    }
}

/// How a [`Action::Set`] is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetWord {
    /// `set_field:VALUE[/MASK]->FIELD`.
    SetField,
    /// `load:VALUE->NXM[FIRST..LAST]`.
    Load,
    /// `mod_FIELD:VALUE`.
    Mod,
}
