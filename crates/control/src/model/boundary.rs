//! The IPsec boundary in words: which port is on which side, and which VRF is closed.

use std::net::IpAddr;

use tables::{Port, Tables, Vrf};
use types::{Ipsec, Side};

use super::Control;

/// Names of ports that are listed of one side; of the others, how many there are.
const LISTED: usize = 8;

/// The IPsec boundary of one VRF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The name of the VRF.
    pub vrf: String,
    /// Whether it has no policies and must have some, so that nothing crosses its boundary.
    pub closed: bool,
    /// All of it in a sentence.
    pub text: String,
}

impl Control {
    /// The boundary of each VRF that is an IPsec gateway.
    pub fn boundaries(&self) -> Vec<Boundary> {
        of(&self.publisher.current())
    }
}

/// The boundary of each VRF that is an IPsec gateway.
pub(super) fn of(tables: &Tables) -> Vec<Boundary> {
    let gateways = tables.vrfs().filter(|vrf| vrf.ipsec == Ipsec::Required);
    let boundary = |vrf: &Vrf| Boundary {
        vrf: vrf.name.to_string(),
        closed: vrf.is_closed(),
        text: sentence(tables, vrf),
    };
    gateways.map(boundary).collect()
}

fn sentence(tables: &Tables, vrf: &Vrf) -> String {
    let mut parts = Vec::new();
    for side in [Side::Protected, Side::Unprotected, Side::Unset] {
        let ports = || tables.ports_of(vrf.id).filter(|port| port.side == side);
        let name = |port: &Port| match (port.spec.side, tables.tunnel_end_at(port.id)) {
            (Side::Unset, Some(end)) => named(&port.spec.name, end),
            _ => port.spec.name.to_string(),
        };
        let mut names: Vec<_> = ports().take(LISTED).map(name).collect();
        let more = ports().count() - names.len();
        if more > 0 {
            names.push(format!("{more} more"));
        }
        if !names.is_empty() {
            parts.push(format!("{side}: {}", names.join(", ")));
        }
    }
    if vrf.is_closed() {
        parts.insert(0, "closed, since it has no policies".to_owned());
    }
    format!("VRF {}: {}", vrf.name, parts.join("; "))
}

fn named(port: &str, end: IpAddr) -> String {
    format!("{port} (tunnel end {end})")
}
