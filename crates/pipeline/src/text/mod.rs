//! Flows as text, in ovs-ofctl's words, both ways.

mod actions;
mod change;
mod complete;
mod ct;
mod matches;
mod refused;
mod scan;
mod show;
mod value;

use types::{PortId, SaSlot, VrfId};

pub use change::{Command, parse_change, parse_criteria, parse_flow};
pub use complete::{Offer, complete};
pub use scan::{LONGEST, ParseError};
pub use show::{Counters, ShownAction, ShownEntry, ShownFields, ShownFlow, ShownMatch};

/// The names that users know ports, VRFs and SAs by.
pub trait Names {
    /// The port of a name.
    fn port(&self, name: &str) -> Option<PortId>;
    /// The name of a port.
    fn port_name(&self, port: PortId) -> Option<String>;
    /// The VRF of a name.
    fn vrf(&self, name: &str) -> Option<VrfId>;
    /// The name of a VRF.
    fn vrf_name(&self, vrf: VrfId) -> Option<String>;
    /// The slot that a user means by a text that is neither `any` nor `none`.
    fn sa(&self, text: &str) -> Option<SaSlot>;
    /// The text for a slot.
    fn sa_name(&self, slot: SaSlot) -> Option<String>;
}
