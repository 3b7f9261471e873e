//! The kernel on the same interface: an AF_PACKET port gets a copy of each frame, and the kernel
//! handles the frame too, unless it is told not to.
//!
//! [`seen`] finds out whether it does, [`own`] ends it and puts it back, and [`sockets`] says who
//! loses by that.

pub(crate) mod own;
mod record;
pub(crate) mod seen;
mod sockets;
mod sysctl;

use std::collections::BTreeSet;

use control::{PortKind, PortSettings};

/// The interfaces that ports share with the kernel, and the ports.
fn shared(ports: &[PortSettings]) -> impl Iterator<Item = (&PortSettings, &str)> {
    let mut known = BTreeSet::new();
    ports.iter().filter_map(move |port| {
        let interface = interface(port).filter(|name| known.insert(*name))?;
        Some((port, interface))
    })
}

/// The interface that a port shares with the kernel, if it is on such a one.
fn interface(port: &PortSettings) -> Option<&str> {
    match &port.kind {
        PortKind::AfPacket { interface, .. } => Some(interface),
        _ => None,
    }
}
