//! What `ct` asks of connection tracking, and what that says.

use std::sync::Arc;

pub use conntrack::nat::PortChoice;
use conntrack::{CtState, Tuple};
use types::{IpRange, PacketFields};

use crate::action::Action;
use crate::field::Subfield;
use crate::fields::{Exit, Fields};
use crate::matches::reads_of_field;

/// The action `ct`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ct {
    /// Whether the connection is made, if there is none.
    pub commit: bool,
    /// Whether a connection that was opened from the other side is replaced. Needs `commit`.
    pub force: bool,
    /// Whether a connection that is there, that nobody has answered yet, and whose source is translated
    /// otherwise than it would be now, is made anew by the side that has opened it. Needs `commit`. An
    /// extension of ours.
    pub anew: bool,
    /// Bits of the label that say whose the connection is, or none: a packet that would write others there
    /// changes nothing of a connection that is there. Needs `commit`. An extension of ours.
    pub owner: u128,
    /// The zone.
    pub zone: Zone,
    /// Where the tracked packet goes on. Without it, it is tracked alone.
    pub table: Option<u8>,
    /// Translation.
    pub nat: Option<NatSpec>,
    /// What is written to mark and label of the connection. Needs `commit`.
    pub exec: Vec<Action>,
    /// The helper. Needs `commit`.
    pub alg: Option<Alg>,
    /// The class whose limits a new connection counts for. Needs `commit`. An extension of ours, for
    /// flows that `[firewall]` makes.
    pub limit: Option<Number>,
}

/// A number of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// This one.
    This(u16),
    /// What 16 bits of a field are.
    Field(Subfield),
}

impl Number {
    /// The optional fields that it reads.
    pub(crate) fn reads(self) -> PacketFields {
        match self {
            Self::Field(part) => reads_of_field(part.field),
            Self::This(_) => PacketFields::NONE,
        }
    }

    pub(crate) fn of(self, fields: &Fields) -> u16 {
        match self {
            Self::This(number) => number,
            Self::Field(part) => part.get(fields) as u16,
        }
    }
}

/// The zone of a `ct`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zone {
    /// That of the VRF, which has the VRF's number: 0 in the VRF `main`, as in Open vSwitch.
    #[default]
    Vrf,
    /// Another one.
    Number(Number),
}

/// A helper for a protocol that announces connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alg {
    /// FTP.
    Ftp,
    /// TFTP.
    Tftp,
}

/// The translation that `ct` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NatSpec {
    /// What is translated of a new connection. `None` translates packets of connections that are
    /// translated already.
    pub new: Option<Arc<NatNew>>,
    /// Whether it counts too for a connection whose other end a `ct` before it translates, of the same
    /// packet. An extension of ours: in Open vSwitch a connection that is there is translated no more.
    pub twice: bool,
}

/// The translation of a new connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NatNew {
    /// Source or destination.
    pub end: NatEnd,
    /// The addresses to choose from. `None` with `src` leaves the choice to the caller, and keeps
    /// the address.
    pub addresses: Option<IpRange>,
    /// The ports to choose from.
    pub ports: Option<(u16, u16)>,
    /// How a port is chosen, if it is not to be kept.
    pub choice: Option<PortChoice>,
    /// Whether a source has one address for all its destinations.
    pub persistent: bool,
    /// Whether a source's address and port are mapped alike for all destinations (RFC 4787 section
    /// 4.1). An extension of ours.
    pub endpoint_independent: bool,
    /// Whether a source has a block of ports. An extension of ours.
    pub blocks: Option<NatBlocks>,
}

/// Blocks of ports, of which each source has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NatBlocks {
    /// Ports of a block.
    pub ports: u16,
    /// The sources whose blocks follow from their addresses (RFC 7422). `None` assigns a block to
    /// any source when it needs one.
    pub subscribers: Option<IpRange>,
}

/// What is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatEnd {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// What connection tracking says of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CtFields {
    /// ct_state, with [`CtState::TRK`].
    pub state: CtState,
    /// The connection's mark.
    pub mark: u32,
    /// The connection's label.
    pub label: u128,
    /// The connection's tuple in its original direction.
    pub original: Option<Tuple>,
    /// The packet's tuple after translation, if it is translated.
    pub translated: Option<Tuple>,
}

/// Asks connection tracking and routes, for [`crate::Pipeline::evaluate`].
pub trait Track {
    /// What connection tracking says of a packet with these fields. `commit` says whether the `ct`
    /// makes connections. If `nat` is given, packets of translated connections are translated, and
    /// new ones as it says.
    fn track(
        &mut self,
        zone: u16,
        commit: bool,
        fields: &Fields,
        nat: Option<&NatSpec>,
    ) -> CtFields;

    /// Whether nothing can be said of the packet before more of it has come. It goes no further then, and
    /// no flow has matched it.
    fn waits(&self) -> bool {
        false
    }

    /// Where a packet with these fields would be routed to.
    fn exit(&mut self, fields: &Fields) -> Exit;
}

/// A connection that a `ct` wants to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Commit<'a> {
    /// The zone.
    pub zone: u16,
    /// What asks for it.
    pub ct: &'a Ct,
    /// The class whose limits it counts for, 0 for none.
    pub class: u16,
    /// The bits of the mark that are set, and which these are.
    pub mark: (u32, u32),
    /// The bits of the label that are set, and which these are.
    pub label: (u128, u128),
}
