//! Adding, changing and removing ports, with the routes that come and go with them; and their
//! neighbours.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use packet::LinkKind;
use wire::{IpPrefix, Mac, PortId, VrfId};

use super::Tables;
use crate::error::TableError;
use crate::limit::MAX_PORTS;
use crate::log::Change;
use crate::neighbour::MAX_NEIGHBOURS;
use crate::port::{Port, PortSpec, broadcast_of, is_routed, not_a_station, not_a_station_mac};
use crate::route::{Route, RouteKind};

impl Tables {
    /// Adds a port, its local routes and its connected routes.
    ///
    /// # Errors
    /// Whatever is wrong with the spec; an address or prefix that another port of the VRF has; a
    /// static route of the very prefix of a local or connected one.
    pub fn add_port(&mut self, id: PortId, spec: PortSpec) -> Result<(), TableError> {
        if self.port(id).is_some() {
            return Err(TableError::PortExists(id));
        }
        if self.ports().count() >= MAX_PORTS {
            return Err(TableError::Limit { what: "ports", limit: MAX_PORTS });
        }
        let mut next = self.clone();
        next.put_port(id, spec, None)?;
        next.port_changed(id, None);
        *self = next;
        Ok(())
    }

    /// Replaces what is known of a port: routes follow.
    ///
    /// Static routes that are no longer possible go with what made them so: all by this port where
    /// it moves to another VRF, those whose next hop is no longer on a prefix of the port.
    /// Neighbours are forgotten where the VRF or the kind of link changes.
    ///
    /// # Errors
    /// As [`Tables::add_port`].
    pub fn update_port(&mut self, id: PortId, spec: PortSpec) -> Result<(), TableError> {
        let old = self.existing_port(id)?.clone();
        let mut next = self.clone();
        next.withdraw_routes(&old)?;
        next.ports[usize::from(id.0)] = None;
        next.put_port(id, spec, Some(&old))?;
        next.remove_stranded_routes(&old)?;
        next.port_changed(id, Some(&old));
        *self = next;
        Ok(())
    }

    /// Removes a port, and the routes that use it, static ones included.
    ///
    /// # Errors
    /// [`TableError::NoPort`].
    pub fn remove_port(&mut self, id: PortId) -> Result<(), TableError> {
        let old = self.existing_port(id)?.clone();
        let mut next = self.clone();
        next.withdraw_routes(&old)?;
        next.ports[usize::from(id.0)] = None;
        next.remove_stranded_routes(&old)?;
        next.port_changed(id, Some(&old));
        *self = next;
        Ok(())
    }

    /// Makes a neighbour known.
    ///
    /// # Errors
    /// [`TableError::NoPort`], [`TableError::NoEthernet`], [`TableError::NeighbourAddress`],
    /// [`TableError::NeighbourMac`], [`TableError::NeighboursFull`].
    pub fn set_neighbour(
        &mut self,
        port: PortId,
        address: IpAddr,
        mac: Mac,
    ) -> Result<(), TableError> {
        let found = self.existing_port(port)?;
        if found.spec.link != LinkKind::Ethernet {
            return Err(TableError::NoEthernet(Arc::clone(&found.spec.name)));
        }
        let broadcast = |own| broadcast_of(own).is_some_and(|broadcast| broadcast == address);
        let why = match address {
            _ if found.owns(address) => Some("the port's own address"),
            _ if found.spec.addresses.iter().any(broadcast) => Some("a broadcast address"),
            _ => not_a_station(address),
        };
        if let Some(why) = why {
            return Err(TableError::NeighbourAddress { address, why });
        }
        if let Some(why) = not_a_station_mac(mac) {
            return Err(TableError::NeighbourMac { address, mac, why });
        }
        match found.neighbours.lookup(address) {
            Some(known) if known == mac => return Ok(()),
            None if found.neighbours.len() >= MAX_NEIGHBOURS => {
                return Err(TableError::NeighboursFull(Arc::clone(&found.spec.name)));
            }
            _ => {}
        }
        Arc::make_mut(&mut self.port_mut(port)?.neighbours).set(address, mac);
        self.changed(Change::Neighbour { port, address });
        Ok(())
    }

    /// Forgets a neighbour.
    ///
    /// # Errors
    /// [`TableError::NoPort`], [`TableError::NoNeighbour`].
    pub fn remove_neighbour(&mut self, port: PortId, address: IpAddr) -> Result<Mac, TableError> {
        let found = self.existing_port(port)?;
        if found.neighbours.lookup(address).is_none() {
            return Err(TableError::NoNeighbour { port: Arc::clone(&found.spec.name), address });
        }
        let removed = Arc::make_mut(&mut self.port_mut(port)?.neighbours).remove(address);
        self.changed(Change::Neighbour { port, address });
        removed.ok_or(TableError::NoPort(port))
    }

    /// A port came, went or became another. Its routes and addresses are its VRF's.
    fn port_changed(&mut self, id: PortId, old: Option<&Port>) {
        let new = self.port(id).map(|port| port.spec.vrf);
        let old = old.map(|port| port.spec.vrf).filter(|old| Some(*old) != new);
        self.changed(Change::Port(id));
        for vrf in old.into_iter().chain(new) {
            self.changed(Change::Vrf(vrf));
        }
    }

    fn port_mut(&mut self, id: PortId) -> Result<&mut Port, TableError> {
        let port = self.ports.get_mut(usize::from(id.0)).and_then(Option::as_mut);
        port.map(Arc::make_mut).ok_or(TableError::NoPort(id))
    }

    /// Puts a port, which is not there, in its place, and its routes with it. On refusal, part of
    /// that may be done: the caller has a copy to throw away.
    fn put_port(
        &mut self,
        id: PortId,
        spec: PortSpec,
        old: Option<&Port>,
    ) -> Result<(), TableError> {
        self.existing_vrf(spec.vrf)?;
        if self.port_named(&spec.name).is_some() {
            return Err(TableError::PortName(spec.name));
        }
        let spec = spec.checked(old)?;
        let same_link = old.filter(|old| old.spec.vrf == spec.vrf && old.spec.link == spec.link);
        let neighbours =
            same_link.map_or_else(|| self.no_neighbours(), |old| Arc::clone(&old.neighbours));
        let port = Port { id, spec, neighbours };
        self.announce_routes(&port)?;
        let place = usize::from(id.0);
        if self.ports.len() <= place {
            self.ports.resize(place + 1, None);
        }
        self.ports[place] = Some(Arc::new(port));
        Ok(())
    }

    /// Adds the routes that a port's addresses make.
    fn announce_routes(&mut self, port: &Port) -> Result<(), TableError> {
        let vrf = port.spec.vrf;
        let name = || Arc::clone(&port.spec.name);
        let mut connected = BTreeSet::new();
        for own in &port.spec.addresses {
            let host = IpPrefix::host(own.address());
            let in_the_way =
                |route| TableError::RouteInTheWay { port: name(), address: *own, route };
            if !is_routed(own) {
                // Two link-local addresses of a port may not be one; those of other ports do not
                // matter.
                if port
                    .spec
                    .addresses
                    .iter()
                    .filter(|other| other.address() == own.address())
                    .count()
                    > 1
                {
                    return Err(TableError::AddressTaken {
                        port: name(),
                        address: own.address(),
                        owner: name(),
                    });
                }
                continue;
            }
            match self.existing_vrf(vrf)?.route_of(host).map(|route| route.kind) {
                None => {}
                Some(RouteKind::Local) => {
                    let owner = self
                        .ports()
                        .find(|other| other.spec.vrf == vrf && other.owns(own.address()));
                    let owner = owner.map_or_else(name, |owner| Arc::clone(&owner.spec.name));
                    return Err(TableError::AddressTaken {
                        port: name(),
                        address: own.address(),
                        owner,
                    });
                }
                Some(RouteKind::Broadcast) => {
                    let broadcast = own.address();
                    return Err(TableError::AddressIsBroadcast {
                        port: name(),
                        address: *own,
                        broadcast,
                    });
                }
                Some(_) => return Err(in_the_way(host)),
            }
            self.vrf_mut(vrf)?.set(Route { prefix: host, kind: RouteKind::Local })?;
            if own.is_host() {
                continue;
            }

            let network = own.network();
            if connected.insert(network) {
                match self.existing_vrf(vrf)?.route_of(network).map(|route| route.kind) {
                    None => {}
                    Some(RouteKind::Connected { port: other }) => {
                        let other = self.port(other).filter(|other| other.connects(network));
                        return Err(match other {
                            Some(other) => {
                                let other = Arc::clone(&other.spec.name);
                                TableError::PrefixTaken { port: name(), address: *own, other }
                            }
                            None => in_the_way(network),
                        });
                    }
                    Some(_) => return Err(in_the_way(network)),
                }
                let kind = RouteKind::Connected { port: port.id };
                self.vrf_mut(vrf)?.set(Route { prefix: network, kind })?;
            }

            let Some(broadcast) = broadcast_of(own).map(IpAddr::from) else { continue };
            let prefix = IpPrefix::host(broadcast);
            match self.existing_vrf(vrf)?.route_of(prefix).map(|route| route.kind) {
                None => self.vrf_mut(vrf)?.set(Route { prefix, kind: RouteKind::Broadcast })?,
                // Prefixes inside one another may end in the same address.
                Some(RouteKind::Broadcast) => {}
                Some(RouteKind::Local) => {
                    return Err(TableError::AddressIsBroadcast {
                        port: name(),
                        address: *own,
                        broadcast,
                    });
                }
                Some(_) => return Err(in_the_way(prefix)),
            }
        }
        Ok(())
    }

    /// Takes away the routes that a port's addresses made.
    fn withdraw_routes(&mut self, port: &Port) -> Result<(), TableError> {
        let others = |other: &&Port| other.id != port.id && other.spec.vrf == port.spec.vrf;
        let shared: BTreeSet<_> = self
            .ports()
            .filter(others)
            .flat_map(|other| &other.spec.addresses)
            .filter_map(broadcast_of)
            .collect();
        let vrf = self.vrf_mut(port.spec.vrf)?;
        for own in port.spec.addresses.iter().filter(|own| is_routed(own)) {
            vrf.remove(IpPrefix::host(own.address()));
            if !own.is_host() {
                vrf.remove(own.network());
            }
            if let Some(broadcast) =
                broadcast_of(own).filter(|broadcast| !shared.contains(broadcast))
            {
                vrf.remove(IpPrefix::host(broadcast.into()));
            }
        }
        Ok(())
    }

    /// Removes the static routes of the port's former VRF that it can no longer serve.
    fn remove_stranded_routes(&mut self, old: &Port) -> Result<(), TableError> {
        let port = self.port(old.id).filter(|port| port.spec.vrf == old.spec.vrf);
        let stranded = |route: &&Route| match route.kind {
            RouteKind::Connected { port: by } => by == old.id && port.is_none(),
            RouteKind::Via { port: by, next_hop } => {
                by == old.id && port.is_none_or(|port| !port.reaches(next_hop))
            }
            _ => false,
        };
        let vrf: VrfId = old.spec.vrf;
        let prefixes: Vec<_> =
            self.existing_vrf(vrf)?.routes().filter(stranded).map(|route| route.prefix).collect();
        if prefixes.is_empty() {
            return Ok(());
        }
        let vrf = self.vrf_mut(vrf)?;
        for prefix in prefixes {
            vrf.remove(prefix);
        }
        Ok(())
    }
}
