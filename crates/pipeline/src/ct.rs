//! What `ct` asks of connection tracking, and what that says.

use conntrack::{CtState, Tuple};
use types::IpRange;

use crate::action::Action;
use crate::field::Subfield;
use crate::fields::Fields;

/// The action `ct`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ct {
    /// Whether the connection is made, if there is none.
    pub commit: bool,
    /// Whether a connection that was opened from the other side is replaced. Needs `commit`.
    pub force: bool,
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
}

/// The zone of a `ct`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zone {
    /// That of the VRF, which has the VRF's number: 0 in the VRF `main`, as in Open vSwitch.
    #[default]
    Vrf,
    /// This one.
    Number(u16),
    /// What 16 bits of a field are.
    Field(Subfield),
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
    pub new: Option<NatNew>,
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
    /// How a port is chosen.
    pub choice: Option<PortChoice>,
    /// Whether the choice outlives a restart.
    pub persistent: bool,
}

/// What is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatEnd {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// How a port is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortChoice {
    /// By a hash of addresses and ports.
    Hash,
    /// At random.
    Random,
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

/// Asks connection tracking, for [`crate::Pipeline::evaluate`].
pub trait Track {
    /// What connection tracking says of a packet with these fields. `force` is that of a `ct` that
    /// commits. If `nat` is given, packets of translated connections are translated, and new ones
    /// as it says.
    fn track(&mut self, zone: u16, force: bool, fields: &Fields, nat: Option<&NatSpec>)
    -> CtFields;
}

/// A connection that a `ct` wants to be there.
#[derive(Clone, PartialEq, Eq)]
pub struct Commit {
    /// The zone.
    pub zone: u16,
    /// The packet as it was before this `ct` translated it.
    pub fields: Fields,
    /// What connection tracking said then.
    pub ct: CtFields,
    /// Whether a connection that was opened from the other side is replaced.
    pub force: bool,
    /// Translation.
    pub nat: Option<NatSpec>,
    /// The bits of the mark that are set, and which these are.
    pub mark: (u32, u32),
    /// The bits of the label that are set, and which these are.
    pub label: (u128, u128),
    /// The helper.
    pub alg: Option<Alg>,
}
