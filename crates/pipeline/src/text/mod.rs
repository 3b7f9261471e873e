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

use types::{PortId, VrfId};

pub use change::{Command, parse_change, parse_criteria, parse_flow};
pub use complete::{Offer, complete};
pub use scan::{LONGEST, ParseError};
pub use show::{Counters, ShownAction, ShownEntry, ShownFields, ShownFlow, ShownMatch};

/// The names that users know ports and VRFs by. Who implements it says which there are: by
/// default nothing has a name, and no name means anything.
pub trait Names {
    /// The port of a name.
    fn port(&self, _name: &str) -> Option<PortId> {
        None
    }
    /// The name of a port.
    fn port_name(&self, _port: PortId) -> Option<String> {
        None
    }
    /// The VRF of a name.
    fn vrf(&self, _name: &str) -> Option<VrfId> {
        None
    }
    /// The name of a VRF.
    fn vrf_name(&self, _vrf: VrfId) -> Option<String> {
        None
    }
}
