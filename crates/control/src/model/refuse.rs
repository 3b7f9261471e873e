//! What the tables refuse, as refusals of requests.

use api::{Refusal, RefusalCode};
use tables::TableError;

/// A refusal that says what the tables said.
pub(super) fn refusal(error: &TableError) -> Refusal {
    use TableError as E;
    let (code, hint) = match error {
        E::NoVrf(_)
        | E::NoPort(_)
        | E::NoRoute { .. }
        | E::NoNeighbour { .. }
        | E::NoPolicy(_)
        | E::NoFilterRule(_)
        | E::NoSa { .. } => (RefusalCode::NotFound, None),
        E::VrfExists(_) | E::PortExists(_) | E::PortName(_) | E::RouteIsConnected { .. } => {
            (RefusalCode::Exists, None)
        }
        E::AddressTaken { .. } | E::PrefixTaken { .. } => {
            (RefusalCode::Exists, Some("ports in different VRFs may have it both"))
        }
        E::SaExists { .. } => (RefusalCode::Exists, Some("a rekey adds an SA with another SPI")),
        E::TableTaken { .. } => (RefusalCode::Exists, Some("a table of its own for each VRF")),
        E::PolicyExists { .. } => (RefusalCode::Exists, Some("update changes it")),
        E::VrfInUse { .. } | E::TableInUse(_) | E::RouteInTheWay { .. } => {
            (RefusalCode::InUse, None)
        }
        E::Limit { .. } | E::NeighboursFull(_) | E::PolicyIndexes => (RefusalCode::Full, None),
        _ => (RefusalCode::Invalid, None),
    };
    Refusal { code, message: error.to_string(), hint: hint.map(str::to_owned) }
}

pub(super) fn no_vrf<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Refusal {
    missing("VRF", name, known)
}

pub(super) fn no_port<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Refusal {
    missing("port", name, known)
}

/// What is changed, removed and shown as a link may be a port of any kind or a VRF.
pub(super) fn no_link<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Refusal {
    missing("port, VLAN, xfrm link or VRF", name, known)
}

pub(super) fn missing<'n>(what: &str, name: &str, known: impl Iterator<Item = &'n str>) -> Refusal {
    let refusal =
        Refusal::new(RefusalCode::NotFound, format!("there is no {what} '{}'", api::shown(name)));
    match crate::config::nearest(name, known) {
        Some(near) => refusal.with_hint(format!("did you mean {near}?")),
        None => refusal,
    }
}
