//! What a flow does to a packet.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use conntrack::nat::{Nptv6, Nptv6Error};
use thiserror::Error;
use types::{IpPrefix, PacketFields, PortId, RejectWith};

use crate::ct::{Ct, NatEnd, Number, Zone};
use crate::field::{Field, Subfield};
use crate::fields::Fields;
use crate::matches::{EndReads, reads_of_field};

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends the packet out of a port, unless it came by that port.
    Output(PortId),
    /// Sends the packet back by the port that it came by.
    InPort,
    /// Treats the packet as a router without flows would.
    Normal,
    /// Ends the packet as a router without flows would that has no way for it: as its route says, or
    /// that there is none. One that has a way is dropped. Ours.
    Unrouted,
    /// Ends a packet of a connection whose way is another one than when that began. The connection stays
    /// as it is, or ends if this says so, and the flow does nothing else with the packet. Ours.
    Rerouted {
        /// Whether the connection ends.
        ends: bool,
    },
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
    /// Translates the prefix of an IPv6 address. Ours.
    Nptv6(Box<Prefixes>),
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
                    Zone::Number(zone) => zone.reads(),
                    Zone::Vrf => PacketFields::NONE,
                };
                let numbers = zone | ct.limit.map_or(PacketFields::NONE, Number::reads);
                ct.exec.iter().fold(numbers, |reads, action| reads | action.reads())
            }
            _ => PacketFields::NONE,
        }
    }

    /// Whether it asks for connections in another zone than that of the VRF.
    pub(crate) fn asks_elsewhere(&self) -> bool {
        matches!(self, Self::Ct(ct) if ct.zone != Zone::Vrf)
    }

    /// Whether it reads the mark or the label of a connection.
    pub(crate) fn reads_marks(&self) -> bool {
        let is_mark = |field: Field| matches!(field, Field::CtMark | Field::CtLabel);
        let of_number =
            |number: Number| matches!(number, Number::Field(part) if is_mark(part.field));
        match self {
            Self::Move { from, .. } => is_mark(from.field),
            Self::Ct(ct) => {
                matches!(ct.zone, Zone::Number(zone) if of_number(zone))
                    || ct.limit.is_some_and(of_number)
                    || ct.exec.iter().any(Self::reads_marks)
            }
            _ => false,
        }
    }

    /// What it reads of packets' ends.
    pub(crate) fn end_reads(&self) -> EndReads {
        let of_number = |number: Option<Number>| match number {
            Some(Number::Field(part)) => EndReads::of_field(part.field),
            Some(Number::This(_)) | None => EndReads::default(),
        };
        match self {
            Self::Move { from, .. } => EndReads::of_field(from.field),
            Self::Nptv6(prefixes) => EndReads::of_field(prefixes.field()),
            Self::Ct(ct) => {
                let zone = match ct.zone {
                    Zone::Number(zone) => Some(zone),
                    Zone::Vrf => None,
                };
                let numbers = of_number(zone) | of_number(ct.limit);
                ct.exec.iter().fold(numbers, |reads, action| reads | action.end_reads())
            }
            _ => EndReads::default(),
        }
    }
}

/// Which prefix becomes which, by [`Nptv6`] and so without a change of any checksum (RFC 6296).
/// Addresses of other prefixes stay. A packet whose address has no translation is dropped, and its
/// sender is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// Whether it is about the source or the destination.
    pub end: NatEnd,
    from: IpPrefix,
    to: IpPrefix,
    map: Nptv6,
}

/// Two prefixes that cannot stand for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoPrefixes {
    /// A prefix of IPv4.
    #[error("{0} is no prefix of IPv6")]
    Family(IpPrefix),
    /// They are not of one length.
    #[error("{0} and {1} are of different lengths")]
    Lengths(IpPrefix, IpPrefix),
    /// As [`Nptv6::new`] says.
    #[error(transparent)]
    Map(#[from] Nptv6Error),
}

impl Prefixes {
    /// That `from` becomes `to`.
    ///
    /// # Errors
    /// They are not both of IPv6, not of one length, or longer than 64 bits.
    pub fn new(end: NatEnd, from: IpPrefix, to: IpPrefix) -> Result<Self, NoPrefixes> {
        let address = |prefix: IpPrefix| match prefix.address() {
            IpAddr::V6(address) => Ok(address),
            IpAddr::V4(_) => Err(NoPrefixes::Family(prefix)),
        };
        let (inside, outside) = (address(from)?, address(to)?);
        if from.length() != to.length() {
            return Err(NoPrefixes::Lengths(from, to));
        }
        let map = Nptv6::new(inside, outside, from.length())?;
        Ok(Self { end, from, to, map })
    }

    /// The prefix that addresses have before, and the one that they have afterwards.
    pub const fn ends(&self) -> (IpPrefix, IpPrefix) {
        (self.from, self.to)
    }

    /// The field that is written.
    pub const fn field(&self) -> Field {
        match self.end {
            NatEnd::Source => Field::Ipv6Src,
            NatEnd::Destination => Field::Ipv6Dst,
        }
    }

    /// What an address becomes, if it is of the prefix; `Some(None)` if there is nothing that it can
    /// become.
    pub fn of(&self, address: u128) -> Option<Option<u128>> {
        let address = Ipv6Addr::from_bits(address);
        let is_of = self.from.contains(address.into());
        is_of.then(|| self.map.outward(address).map(Ipv6Addr::to_bits))
    }
}

impl Prefixes {
    /// What the address of a packet with these fields becomes, as [`Prefixes::of`] says; `None` if the
    /// packet has none.
    pub fn of_packet(&self, fields: &Fields) -> Option<Option<Ipv6Addr>> {
        let field = self.field();
        let address = field.is_in(fields).then(|| field.get(&fields.words))?;
        Some(self.of(address)?.map(Ipv6Addr::from_bits))
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
