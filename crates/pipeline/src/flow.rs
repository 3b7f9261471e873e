//! A flow: what it matches, and what becomes of the packets.

use core::cmp::Reverse;
use std::sync::Arc;

use conntrack::CtState;
use types::{PacketFields, PortId, VrfId};

use crate::action::Action;
use crate::ct::NatNew;
use crate::field::{Field, Needs};
use crate::matches::Match;

/// A flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The VRF whose packets it is for.
    pub vrf: VrfId,
    /// The table, 0 to 254.
    pub table: u8,
    /// Of the flows that match, the one of the highest priority counts.
    pub priority: u16,
    /// What it matches.
    pub matches: Match,
    /// What it does, in order. No action drops the packet.
    pub actions: Vec<Action>,
    /// A number of the user's.
    pub cookie: u64,
    /// Seconds without a packet after which it goes. 0 is never.
    pub idle_timeout: u16,
    /// Seconds after which it goes. 0 is never.
    pub hard_timeout: u16,
}

impl Flow {
    /// The priority of a flow that does not give one, as in ovs-ofctl.
    pub const DEFAULT_PRIORITY: u16 = 32_768;
    /// The highest table.
    pub const LAST_TABLE: u8 = 254;
    /// The most actions of one flow, with those of `exec`.
    pub const MOST_ACTIONS: usize = 256;

    /// The optional fields that its actions read.
    pub fn actions_read(&self) -> PacketFields {
        let of = |reads, action: &Action| reads | action.reads();
        self.actions.iter().fold(PacketFields::NONE, of)
    }

    /// What its `ct` translate of new connections.
    pub fn translations(&self) -> impl Iterator<Item = &Arc<NatNew>> {
        self.actions.iter().filter_map(|action| match action {
            Action::Ct(ct) => ct.nat.as_ref()?.new.as_ref(),
            _ => None,
        })
    }

    /// Whether it sends to a port.
    pub fn sends_to(&self, port: PortId) -> bool {
        self.actions.contains(&Action::Output(port))
    }

    /// The tables that it leads to.
    pub fn nexts(&self) -> impl Iterator<Item = u8> {
        self.actions.iter().filter_map(|action| match action {
            Action::Resubmit { table, .. } => Some(table.unwrap_or(self.table)),
            Action::GotoTable(table) => Some(*table),
            Action::Ct(ct) => ct.table,
            _ => None,
        })
    }

    /// Whether its actions make of the packet what its key does not say: they write addresses or ports,
    /// or have it come by another port.
    pub(crate) fn rewrites(&self) -> bool {
        use Field::{IpDscp, NwTos, NwTtl};
        let is_in_key = |field: Field| {
            let is_packets = field.needs() != Needs::Nothing || field == Field::InPort;
            is_packets && !matches!(field, NwTos | IpDscp | NwTtl)
        };
        self.actions.iter().any(|action| match action {
            Action::Set { field, .. } => is_in_key(*field),
            Action::Move { to, .. } => is_in_key(to.field),
            Action::Nptv6(_) | Action::Resubmit { in_port: Some(_), .. } => true,
            _ => false,
        })
    }

    /// Whether it may read the mark or the label of a connection of a packet that has opened it, if nothing
    /// has announced the connection. Such a packet is `+new+trk-est-rel-rpl-inv`.
    pub(crate) fn reads_opened(&self) -> bool {
        let opened = CtState::NEW | CtState::TRK;
        let (value, mask) = self.matches.get(Field::CtState);
        let differing = (value as u8 ^ opened.0) & mask as u8;
        let may_match = differing & !(CtState::SNAT | CtState::DNAT).0 == 0;
        may_match && (self.matches.reads_marks() || self.actions.iter().any(Action::reads_marks))
    }

    /// Whether it leads to its own table or an earlier one.
    pub(crate) fn leads_back(&self) -> bool {
        self.nexts().any(|next| next <= self.table)
    }

    /// Whether it drops each packet that comes to its table: it is for all, of the highest priority. It
    /// stands before all others of that priority, whichever came first, so that it closes the table.
    pub fn drops_all(&self) -> bool {
        self.priority == u16::MAX && self.actions.is_empty() && self.matches == Match::ANY
    }
}

/// Names a flow in a [`crate::Pipeline`], for counters. A number is given again only after 2^32
/// flows, and never while a flow has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// Who made a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A user.
    #[default]
    User,
    /// The compiler of `[firewall]`. Users cannot change the flow.
    Firewall,
}

/// A flow in a [`crate::Pipeline`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub id: FlowId,
    /// Who made it.
    pub owner: Owner,
    /// Later ones have higher numbers. 0 if it drops all of its table.
    pub(crate) order: u64,
    /// The flow.
    pub flow: Flow,
}

impl Entry {
    /// Of the flows that a packet matches, the one with the lowest rank counts: the highest
    /// priority, and among equal ones the oldest, behind one that drops all of the table.
    pub(crate) const fn rank(&self) -> (Reverse<u16>, u64) {
        (Reverse(self.flow.priority), self.order)
    }
}
