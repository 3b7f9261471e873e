//! Static routes.

use std::net::IpAddr;
use std::sync::Arc;

use types::station::{check_routable, check_station};
use wire::{IpPrefix, PortId, VrfId};

use super::Tables;
use crate::error::{NotAPeer, TableError};
use crate::log::Change;
use crate::next_hop::NextHop;
use crate::port::Port;
use crate::route::{Route, RouteKind, RouteSpec};
use crate::vrf::Vrf;

impl Tables {
    /// Adds or replaces the static route of a prefix. A route that comes with a port's address
    /// cannot be replaced.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::HostBits`], [`TableError::RouteIsLocal`],
    /// [`TableError::RouteIsConnected`], [`TableError::Limit`], and for routes by a port what is
    /// wrong with the port or the next hop.
    pub fn set_route(
        &mut self,
        vrf: VrfId,
        prefix: IpPrefix,
        spec: RouteSpec,
    ) -> Result<(), TableError> {
        let found = self.existing_vrf(vrf)?;
        if prefix.network() != prefix {
            return Err(TableError::HostBits { given: prefix, network: prefix.network() });
        }
        match spec {
            RouteSpec::Connected { port } => {
                self.route_port(found, prefix, port)?;
            }
            RouteSpec::Via { port, address } => {
                let port = self.route_port(found, prefix, port)?;
                check_next_hop(found, port, prefix, address)?;
            }
            RouteSpec::Blackhole | RouteSpec::Unreachable | RouteSpec::Prohibit => {}
        }
        self.check_static(found, prefix)?;
        found.check_room(prefix)?;
        let old = found.route_of(prefix).copied();
        // The new next hop first: if it is the old one, its id stays.
        let kind = match spec {
            RouteSpec::Connected { port } => RouteKind::Connected { port },
            RouteSpec::Via { port, address } => {
                RouteKind::Via { next_hop: self.hold_next_hop(port, address)? }
            }
            RouteSpec::Blackhole => RouteKind::Blackhole,
            RouteSpec::Unreachable => RouteKind::Unreachable,
            RouteSpec::Prohibit => RouteKind::Prohibit,
        };
        self.vrf_mut(vrf)?.set(Route { prefix, kind })?;
        self.changed(Change::Route { vrf, prefix });
        self.release_route(old)
    }

    /// Removes the static route of a prefix.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::NoRoute`], [`TableError::RouteIsLocal`],
    /// [`TableError::RouteIsConnected`].
    pub fn remove_route(&mut self, vrf: VrfId, prefix: IpPrefix) -> Result<Route, TableError> {
        let found = self.existing_vrf(vrf)?;
        let missing = TableError::NoRoute { vrf: Arc::clone(&found.name), prefix };
        if prefix.network() != prefix || found.route_of(prefix).is_none() {
            return Err(missing);
        }
        self.check_static(found, prefix)?;
        let removed = self.vrf_mut(vrf)?.remove(prefix).ok_or(missing)?;
        self.changed(Change::Route { vrf, prefix });
        self.release_route(Some(removed))?;
        Ok(removed)
    }

    /// What a route was asked to do; `None` for one that only comes with an address of a port.
    pub fn route_spec(&self, kind: RouteKind) -> Option<RouteSpec> {
        Some(match kind {
            RouteKind::Local | RouteKind::Broadcast => return None,
            RouteKind::Connected { port } => RouteSpec::Connected { port },
            RouteKind::Via { next_hop } => {
                let &NextHop { port, address, .. } = self.next_hop(next_hop)?;
                RouteSpec::Via { port, address: address? }
            }
            RouteKind::Blackhole => RouteSpec::Blackhole,
            RouteKind::Unreachable => RouteSpec::Unreachable,
            RouteKind::Prohibit => RouteSpec::Prohibit,
        })
    }

    /// Lets go of the next hop of a route that went.
    fn release_route(&mut self, route: Option<Route>) -> Result<(), TableError> {
        match route.map(|route| route.kind) {
            Some(RouteKind::Via { next_hop }) => self.release_next_hop(next_hop),
            _ => Ok(()),
        }
    }

    /// Whether a route comes with an address of a port, rather than from [`Tables::set_route`].
    pub fn comes_with_port(&self, vrf: VrfId, route: &Route) -> bool {
        self.vrf(vrf).is_some_and(|vrf| self.check_static(vrf, route.prefix).is_err())
    }

    /// Refuses prefixes whose route comes with an address of a port.
    fn check_static(&self, vrf: &Vrf, prefix: IpPrefix) -> Result<(), TableError> {
        match vrf.route_of(prefix).map(|route| route.kind) {
            Some(RouteKind::Local | RouteKind::Broadcast) => Err(TableError::RouteIsLocal(prefix)),
            Some(RouteKind::Connected { port }) => {
                match self.port(port).filter(|port| port.connects(prefix)) {
                    Some(port) => Err(TableError::RouteIsConnected {
                        prefix,
                        port: Arc::clone(&port.spec.name),
                    }),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// The port that a route to `prefix` is to lead to.
    fn route_port(&self, vrf: &Vrf, prefix: IpPrefix, port: PortId) -> Result<&Port, TableError> {
        check_routable(prefix).map_err(|why| TableError::NotRoutable { prefix, why })?;
        let port = self.existing_port(port)?;
        if port.spec.vrf != vrf.id {
            return Err(TableError::PortElsewhere {
                port: Arc::clone(&port.spec.name),
                vrf: Arc::clone(&vrf.name),
            });
        }
        Ok(port)
    }
}

fn check_next_hop(
    vrf: &Vrf,
    port: &Port,
    prefix: IpPrefix,
    next_hop: IpAddr,
) -> Result<(), TableError> {
    if next_hop.is_ipv4() != prefix.address().is_ipv4() {
        return Err(TableError::NextHopFamily { next_hop, prefix });
    }
    let refused = |why| Err(TableError::NextHop { next_hop, why });
    if let Err(why) = check_station(next_hop) {
        return refused(NotAPeer::Station(why));
    }
    if port.has_broadcast(next_hop) {
        return refused(NotAPeer::Broadcast);
    }
    if vrf.is_local(next_hop) || port.owns(next_hop) {
        return refused(NotAPeer::Own);
    }
    if !port.reaches(next_hop) {
        return Err(TableError::NextHopUnreachable { next_hop, port: Arc::clone(&port.spec.name) });
    }
    Ok(())
}
