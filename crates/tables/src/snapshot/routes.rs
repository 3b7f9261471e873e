//! Static routes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use types::station::{check_routable, check_station};
use wire::{IpPrefix, PortId, VrfId};

use super::Tables;
use crate::error::{NotAPeer, TableError};
use crate::group::{FlowHash, Group, GroupId, Member, PathKey, check_members};
use crate::log::Change;
use crate::next_hop::{NextHop, NextHopId, NextHopState};
use crate::port::Port;
use crate::route::{MemberSpec, Route, RouteKind, RouteSpec};
use crate::routing_table::TableRef;
use crate::vrf::Vrf;

/// If more next hops of multipath routes than this go up or down with a port, the whole VRF is said
/// to have changed: decisions are held against no more single changes than a few dozen.
const MANY_MEMBERS: usize = 32;

impl Tables {
    /// Adds or replaces the static route of a prefix. A route that comes with a port's address
    /// cannot be replaced. A route of a VRF's table may be by a port of another VRF, or lead into the
    /// table of another one: packets then leave there. Policy rules alone lead to tables that no VRF
    /// has.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::HostBits`], [`TableError::RouteIsLocal`],
    /// [`TableError::RouteIsConnected`], [`TableError::Limit`], and for routes by a port what is
    /// wrong with the port or the next hop.
    pub fn set_route(
        &mut self,
        table: impl Into<TableRef>,
        prefix: IpPrefix,
        spec: RouteSpec,
    ) -> Result<(), TableError> {
        let table = self.table_ref(table.into())?;
        if prefix.network() != prefix {
            return Err(TableError::HostBits { given: prefix, network: prefix.network() });
        }
        match &spec {
            &RouteSpec::Connected { port } => {
                self.route_port(prefix, port)?;
            }
            &RouteSpec::Via { port, address } => {
                let port = self.route_port(prefix, port)?;
                self.check_next_hop_on(port, prefix, address)?;
            }
            &RouteSpec::Onlink { port, address } => {
                let port = self.route_port(prefix, port)?;
                self.check_station_on(port, prefix, address)?;
            }
            &RouteSpec::Vrf { vrf } => {
                check_routable(prefix).map_err(|why| TableError::NotRoutable { prefix, why })?;
                let into = self.existing_vrf(vrf)?;
                if table == TableRef::Vrf(vrf) {
                    return Err(TableError::LeakToItself(Arc::clone(&into.name)));
                }
            }
            RouteSpec::Multipath(members) => {
                check_members(members)?;
                for member in &**members {
                    self.check_member(prefix, member)?;
                }
            }
            RouteSpec::Blackhole | RouteSpec::Unreachable | RouteSpec::Prohibit => {}
        }
        self.check_static(table, prefix)?;
        self.check_table_room(table, prefix)?;
        let old = self.routing_table(table).and_then(|routes| routes.route_of(prefix)).copied();
        let makes_room = old.is_some_and(|old| matches!(old.kind, RouteKind::Multipath { .. }));
        if matches!(spec, RouteSpec::Multipath(_)) && !makes_room {
            self.groups.check_room()?;
        }
        // The new next hop first: if it is the old one, its id stays.
        let kind = match spec {
            RouteSpec::Connected { port } => RouteKind::Connected { port },
            RouteSpec::Via { port, address } | RouteSpec::Onlink { port, address } => {
                RouteKind::Via { next_hop: self.hold_next_hop(port, address)? }
            }
            RouteSpec::Multipath(members) => {
                RouteKind::Multipath { group: self.hold_group((table, prefix), &members)? }
            }
            RouteSpec::Vrf { vrf } => RouteKind::Vrf { vrf },
            RouteSpec::Blackhole => RouteKind::Blackhole,
            RouteSpec::Unreachable => RouteKind::Unreachable,
            RouteSpec::Prohibit => RouteKind::Prohibit,
        };
        self.routing_table_mut(table)?.set(Route { prefix, kind })?;
        if let TableRef::Vrf(vrf) = table {
            let leaks = self.is_leak(vrf, kind);
            self.own_routes(vrf)?.note_leak(prefix, leaks);
        }
        self.route_changed(table, prefix, old)
    }

    /// Says from which own address of the VRF the gateway speaks to destinations of a prefix, which
    /// has a static route. No decision changes.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::SourceNotOwn`].
    pub fn set_route_source(
        &mut self,
        vrf: VrfId,
        prefix: IpPrefix,
        source: Option<IpAddr>,
    ) -> Result<(), TableError> {
        let is_own = |own: IpAddr| {
            own.is_ipv4() == prefix.address().is_ipv4()
                && self.ports_of(vrf).any(|port| port.owns(own))
        };
        if let Some(source) = source.filter(|source| !is_own(*source)) {
            let vrf = Arc::clone(&self.existing_vrf(vrf)?.name);
            return Err(TableError::SourceNotOwn { source_address: source, vrf });
        }
        self.own_routes(vrf)?.set_source(prefix, source);
        Ok(())
    }

    /// Removes the static route of a prefix.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::NoRoute`], [`TableError::RouteIsLocal`],
    /// [`TableError::RouteIsConnected`].
    pub fn remove_route(
        &mut self,
        table: impl Into<TableRef>,
        prefix: IpPrefix,
    ) -> Result<Route, TableError> {
        let table = self.table_ref(table.into())?;
        let found = self.routing_table(table).and_then(|routes| routes.route_of(prefix)).copied();
        let Some(removed) = found.filter(|_| prefix.network() == prefix) else {
            return Err(match table {
                TableRef::Vrf(vrf) => {
                    TableError::NoRoute { vrf: Arc::clone(&self.existing_vrf(vrf)?.name), prefix }
                }
                TableRef::Number(table) => TableError::NoRouteInTable { table, prefix },
            });
        };
        self.check_static(table, prefix)?;
        self.routing_table_mut(table)?.remove(prefix);
        self.drop_empty_table(table);
        self.route_changed(table, prefix, Some(removed))?;
        Ok(removed)
    }

    /// What follows from a change of a route that was `old`. Tunnels do not follow tables that no VRF
    /// has.
    fn route_changed(
        &mut self,
        table: TableRef,
        prefix: IpPrefix,
        old: Option<Route>,
    ) -> Result<(), TableError> {
        if self.is_read(table) {
            self.changed(Change::Route { table, prefix });
        }
        let TableRef::Vrf(vrf) = table else { return self.release_route(old) };
        self.release_route(old)?;
        self.judge_leaks(vrf);
        self.tunnels_may_lead_elsewhere_to(vrf, prefix)
    }

    /// What a route was asked to do; `None` for one that only comes with an address of a port.
    pub fn route_spec(&self, kind: RouteKind) -> Option<RouteSpec> {
        Some(match kind {
            RouteKind::Local | RouteKind::Broadcast | RouteKind::NetworkUnreachable => return None,
            RouteKind::Connected { port } => RouteSpec::Connected { port },
            RouteKind::Via { next_hop } => {
                let &NextHop { port, address, .. } = self.next_hop(next_hop)?;
                let address = address?;
                match self.port(port)?.reaches(address) {
                    true => RouteSpec::Via { port, address },
                    false => RouteSpec::Onlink { port, address },
                }
            }
            RouteKind::Vrf { vrf } => RouteSpec::Vrf { vrf },
            RouteKind::Multipath { group } => {
                let member = |member: &Member| {
                    let &NextHop { port, address, .. } = self.next_hop(member.next_hop)?;
                    let found = self.port(port)?;
                    let onlink = address.is_some_and(|address| !found.reaches(address));
                    Some(MemberSpec { port, address, onlink, weight: member.weight })
                };
                let members = self.group(group)?.members().iter().map(member);
                RouteSpec::Multipath(members.collect::<Option<_>>()?)
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
            Some(RouteKind::Multipath { group }) => self.release_group(group),
            _ => Ok(()),
        }
    }

    /// Whether one of several next hops of a route may be this.
    ///
    /// # Errors
    /// What is wrong with the port or the next hop, as of [`Tables::set_route`].
    pub fn check_member(&self, prefix: IpPrefix, member: &MemberSpec) -> Result<(), TableError> {
        let port = self.route_port(prefix, member.port)?;
        match member.address {
            Some(address) if member.onlink => self.check_station_on(port, prefix, address),
            Some(address) => self.check_next_hop_on(port, prefix, address),
            None => Ok(()),
        }
    }

    /// The next hops of a multipath route.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id)
    }

    /// What the member of a multipath route is chosen by, for [`Group::choose`].
    pub fn path_hash(&self, key: &PathKey) -> FlowHash {
        self.groups.hasher().flow(key)
    }

    /// The group of a new route. On refusal nothing is changed.
    fn hold_group(
        &mut self,
        place: (TableRef, IpPrefix),
        members: &[MemberSpec],
    ) -> Result<GroupId, TableError> {
        let mut held: Vec<NextHopId> = Vec::with_capacity(members.len());
        for member in members {
            let next_hop = match member.address {
                Some(address) => self.hold_next_hop(member.port, address),
                None => self.existing_port(member.port).map(|port| port.next_hop),
            };
            match next_hop {
                Ok(next_hop) => held.push(next_hop),
                Err(error) => {
                    held.into_iter().try_for_each(|held| self.release_next_hop(held))?;
                    return Err(error);
                }
            }
        }
        let group = self.groups.add(place, members, &held);
        self.refresh_group(group);
        Ok(group)
    }

    /// Lets go of the next hops of a route that went.
    fn release_group(&mut self, group: GroupId) -> Result<(), TableError> {
        let Some(group) = self.groups.remove(group) else { return Ok(()) };
        group.members().iter().try_for_each(|member| self.release_next_hop(member.next_hop))
    }

    /// Makes a group what its next hops are now. Returns those that went down or came up.
    fn refresh_group(&mut self, id: GroupId) -> Vec<(NextHopId, bool)> {
        let next_hops = &self.next_hops;
        let is_up = |id| next_hops.get(id).is_some_and(|is| is.state != NextHopState::Down);
        self.groups.get_mut(id).map(|group| group.set_up(is_up)).unwrap_or_default()
    }

    /// Makes the groups with next hops by this port what the port is now, up or down.
    pub(super) fn refresh_groups(&mut self, port: PortId) {
        let is_by = |id| self.next_hop(id).is_some_and(|is| is.port == port);
        let mut changes = Vec::new();
        let mut vrfs = BTreeSet::new();
        for id in self.groups.with(is_by) {
            let changed = self.refresh_group(id);
            let Some(&Group { table, prefix, .. }) = self.group(id) else { continue };
            if !self.is_read(table) {
                continue;
            }
            let change = |(next_hop, up)| Change::Member { table, prefix, next_hop, up };
            changes.extend(changed.into_iter().map(change));
            // A change of any VRF concerns whoever asks a table that is no VRF's.
            vrfs.insert(match table {
                TableRef::Vrf(vrf) => vrf,
                TableRef::Number(_) => VrfId::MAIN,
            });
        }
        match changes.len() > MANY_MEMBERS {
            true => vrfs.into_iter().for_each(|vrf| self.changed(Change::Vrf(vrf))),
            false => changes.into_iter().for_each(|change| self.changed(change)),
        }
    }

    /// Whether a decision may read the routes of a table. One that no VRF has is read by rules alone.
    fn is_read(&self, table: TableRef) -> bool {
        matches!(table, TableRef::Vrf(_)) || self.has_rules()
    }

    /// Whether a route comes with an address of a port, rather than from [`Tables::set_route`].
    pub fn comes_with_port(&self, table: impl Into<TableRef>, route: &Route) -> bool {
        self.check_static(table.into(), route.prefix).is_err()
    }

    /// Refuses prefixes whose route comes with an address of a port, as in a VRF's table some do.
    fn check_static(&self, table: TableRef, prefix: IpPrefix) -> Result<(), TableError> {
        let TableRef::Vrf(vrf) = table else { return Ok(()) };
        let found = self.vrf(vrf).and_then(|vrf| vrf.route_of(prefix));
        match found.map(|route| route.kind) {
            Some(RouteKind::Local | RouteKind::Broadcast) => Err(TableError::RouteIsLocal(prefix)),
            Some(RouteKind::Connected { port }) => {
                // One that leads to a port of another VRF is none of these.
                let is_own = |port: &&Port| port.spec.vrf == vrf && port.connects(prefix);
                match self.port(port).filter(is_own) {
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

    /// Whether packets may be for `address` on the link of a port: as a prefix of the port holds it, as it
    /// is a next hop there (perhaps `onlink`), or as a route says that it is on the link.
    pub fn may_be_on_link(&self, port: &Port, address: IpAddr) -> bool {
        let is_next_hop = || port.neighbours.get(address).is_some_and(|known| known.routes > 0);
        if port.reaches(address) || is_next_hop() {
            return true;
        }
        let own = self.vrf(port.spec.vrf).map(Vrf::routing_table);
        let loose = self.loose_tables().map(|(_, table)| table);
        let leaking = self.leaking_vrfs().filter_map(|vrf| self.vrf(vrf)).map(Vrf::routing_table);
        let mut tables = own.into_iter().chain(loose).chain(leaking);
        tables.any(|table| match table.route(address).map(|route| route.kind) {
            Some(RouteKind::Connected { port: by }) => by == port.id,
            Some(RouteKind::Multipath { group }) => self.group(group).is_some_and(|group| {
                group.members().iter().any(|member| member.next_hop == port.next_hop)
            }),
            _ => false,
        })
    }

    /// The port that a route to `prefix` is to lead to.
    fn route_port(&self, prefix: IpPrefix, port: PortId) -> Result<&Port, TableError> {
        check_routable(prefix).map_err(|why| TableError::NotRoutable { prefix, why })?;
        self.existing_port(port)
    }

    fn check_next_hop_on(
        &self,
        port: &Port,
        prefix: IpPrefix,
        next_hop: IpAddr,
    ) -> Result<(), TableError> {
        self.check_station_on(port, prefix, next_hop)?;
        if !port.reaches(next_hop) {
            let port = Arc::clone(&port.spec.name);
            return Err(TableError::NextHopUnreachable { next_hop, port });
        }
        Ok(())
    }

    /// The same, for a next hop that is said to be on the link.
    fn check_station_on(
        &self,
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
        if self.existing_vrf(port.spec.vrf)?.is_local(next_hop) || port.owns(next_hop) {
            return refused(NotAPeer::Own);
        }
        Ok(())
    }
}
