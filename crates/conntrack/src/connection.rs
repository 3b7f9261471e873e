//! A connection as it is shown.

use packet::Time;

use crate::ct_state::Handle;
use crate::timeout::{PolicyId, State};
use crate::tuple::Tuple;

/// What there is to know of a connection, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its name.
    pub handle: Handle,
    /// The conntrack zone.
    pub zone: u16,
    /// Packets of the original direction as they arrive.
    pub original: Tuple,
    /// Packets of the reply direction as they arrive. Without NAT, the original tuple reversed.
    pub reply: Tuple,
    /// State.
    pub state: State,
    /// Whether the reply direction was seen.
    pub is_replied: bool,
    /// Whether it stays when the table is full.
    pub is_assured: bool,
    /// Whether the source of the original direction is translated.
    pub is_snat: bool,
    /// Whether the destination of the original direction is translated.
    pub is_dnat: bool,
    /// The place of the connection that has expected this one, if it is there still or nobody has come to its
    /// place since.
    pub master: Option<u32>,
    /// Its timeout policy.
    pub policy: PolicyId,
    /// Mark.
    pub mark: u32,
    /// Label.
    pub label: u128,
    /// Number of its helper, 0 for none.
    pub helper: u16,
    /// The class whose limits it counts for, 0 for none.
    pub class: u16,
    /// What the caller keeps of its NAT: who has lent the port.
    pub binding: u64,
    /// When it was made.
    pub created: Time,
    /// It is dead from then on.
    pub deadline: Time,
    /// By direction; zero unless they are counted.
    pub counters: [DirectionCounters; 2],
}

/// What a direction has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub bytes: u64,
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It was not used for the timeout of its state.
    Expired,
    /// The table was full, and it had to make room.
    EarlyDrop,
    /// Its tuple is used for a new connection.
    Reused,
    /// Somebody asked for it.
    Deleted,
}

/// A connection has ended. Whatever names it by its handle is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Why.
    pub reason: Reason,
    /// Packets of the original direction as they arrived.
    pub original: Tuple,
    /// What the caller has kept of its NAT.
    pub binding: u64,
}
