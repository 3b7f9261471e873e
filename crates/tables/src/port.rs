//! What the tables know of a port.

use std::net::IpAddr;
use std::sync::Arc;

use packet::LinkKind;
use wire::{IpPrefix, Mac, PortId, VrfId};

use crate::neighbour::Neighbours;

/// A port as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Its name.
    pub name: Arc<str>,
    /// The VRF it is in.
    pub vrf: VrfId,
    /// What its frames begin with.
    pub link: LinkKind,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The largest IP packet in bytes.
    pub mtu: u16,
    /// Its own addresses with their prefix lengths; each makes a connected route.
    pub addresses: Vec<IpPrefix>,
    /// Whether it may send and receive.
    pub up: bool,
}

/// A port in the snapshot.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number.
    pub id: PortId,
    /// As it was asked for, and the IPv6 link-local address that every Ethernet port has besides.
    pub spec: PortSpec,
    /// Who is known on its link.
    pub neighbours: Arc<Neighbours>,
}

impl Port {
    /// Whether `address` is one of the port's own.
    pub fn owns(&self, address: IpAddr) -> bool {
        self.spec.addresses.iter().any(|own| own.address() == address)
    }

    /// The port's own address from which to speak to `peer`: one whose prefix holds it, else the first of the family that
    /// is not link-local unless `peer` is.
    pub fn source_for(&self, peer: IpAddr) -> Option<IpAddr> {
        let own = || self.spec.addresses.iter().filter(|own| own.address().is_ipv4() == peer.is_ipv4());
        let local = is_link_local(peer);
        own()
            .find(|own| own.contains(peer))
            .or_else(|| own().find(|own| is_link_local(own.address()) == local))
            .or_else(|| own().next())
            .map(IpPrefix::address)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
