//! Adding, changing and removing ports, with the routes that come and go with them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use types::LinkKind;
use types::station::broadcast_of;
use wire::{IpPrefix, PortId, VrfId};

use super::Tables;
use crate::error::TableError;
use crate::filter::FilterTarget;
use crate::limit::{MAX_PORTS, MAX_SUB_PORTS};
use crate::log::Change;
use crate::next_hop::NextHop;
use crate::port::{Port, PortSpec, is_routed};
use crate::route::{Route, RouteKind};
use crate::routing_table::{RoutingTable, TableRef};
use crate::vlan::{NotAVlanParent, VlanCounters, VlanPort, VlanTable};

impl Tables {
    /// Adds a port, its own next hop, its local routes and its connected routes.
    ///
    /// # Errors
    /// Whatever is wrong with the spec; an address or prefix that another port of the VRF has; a
    /// static route of the very prefix of a local or connected one; [`TableError::Limit`].
    pub fn add_port(&mut self, id: PortId, spec: PortSpec) -> Result<(), TableError> {
        if self.port(id).is_some() {
            return Err(TableError::PortExists(id));
        }
        let (what, limit) = match spec.has_queues() {
            true => ("ports", MAX_PORTS),
            false => ("sub-ports", MAX_SUB_PORTS),
        };
        if self.port_counts[usize::from(!spec.has_queues())] >= limit {
            return Err(TableError::Limit { what, limit });
        }
        let spec = self.checked(id, spec)?;
        let mut next = self.clone();
        let is_queued = self.is_queued(id, &spec);
        if !spec.has_queues() {
            let counters = VlanCounters::new(&self.cells, spec.vlan.as_ref());
            next.port_counters.set(id.0.into(), counters);
        }
        let own = NextHop::new(id, (&spec, spec.side), None, None).queued_if(is_queued);
        let own = own.counted_in(next.frames_of(id, &spec));
        let next_hop = next.next_hops.add(own, || None)?;
        let (neighbours, vlans) = (self.no_neighbours(), VlanTable::default());
        let (vrf, side) = (spec.vrf, spec.side);
        let since = self.generation + 1;
        let port = Port { id, spec, side, neighbours, next_hop, vlans, is_queued, since };
        next.announce_routes(&port)?;
        next.put(id, Some(port));
        next.port_changed(id, None);
        next.judge_share(FilterTarget::Port(id))?;
        next.tunnels_may_lead_elsewhere(vrf)?;
        *self = next;
        Ok(())
    }

    /// Replaces what is known of a port: routes and next hops follow.
    ///
    /// Static routes that are no longer possible go with what made them so: all by this port where
    /// it moves to another VRF, those whose next hop is no longer on a prefix of the port.
    /// Neighbours are forgotten where the VRF or the kind of link changes. Sub-ports follow: they
    /// get the port's Ethernet address, an MTU of at most its MTU, and go down with it. They do not
    /// come up with it: that is the caller's to ask for.
    ///
    /// # Errors
    /// As [`Tables::add_port`].
    pub fn update_port(&mut self, id: PortId, spec: PortSpec) -> Result<(), TableError> {
        let old = self.existing_port(id)?;
        let stays = match (&spec.vlan, &old.spec.vlan) {
            (Some(new), Some(old)) => new.is(old),
            (new, old) => new.is_none() && old.is_none(),
        };
        if !stays {
            return Err(TableError::VlanStays(Arc::clone(&old.spec.name)));
        }
        if spec.if_id != old.spec.if_id {
            return Err(TableError::IfIdStays(Arc::clone(&old.spec.name)));
        }
        let mut next = self.clone();
        next.replace_port(id, spec)?;
        next.lead_sub_ports(id)?;
        *self = next;
        Ok(())
    }

    /// Makes the sub-ports of a port follow it, and theirs them.
    fn lead_sub_ports(&mut self, id: PortId) -> Result<(), TableError> {
        let parent = self.existing_port(id)?.clone();
        for (_, sub_port) in parent.vlans.iter() {
            let is = &self.existing_port(sub_port.port)?.spec;
            let mut spec = is.clone();
            spec.follow(&parent.spec);
            if spec != *is {
                self.replace_port(sub_port.port, spec)?;
                self.lead_sub_ports(sub_port.port)?;
            }
        }
        Ok(())
    }

    /// Replaces what is known of one port. If that is refused, part of it may be done.
    fn replace_port(&mut self, id: PortId, spec: PortSpec) -> Result<(), TableError> {
        let old = self.existing_port(id)?.clone();
        let spec = self.checked(id, spec)?;
        let (has_moved, has_routes_as_before) =
            (spec.vrf != old.spec.vrf, spec.addresses == old.spec.addresses);
        let neighbours = match has_moved {
            true => self.no_neighbours(),
            false => Arc::clone(&old.neighbours),
        };
        let is_queued = self.is_queued(id, &spec);
        let mut led_there = BTreeSet::new();
        let since = if has_moved { self.generation + 1 } else { old.since };
        let new = Port { spec, neighbours, is_queued, since, ..old.clone() };
        if has_moved || !has_routes_as_before {
            self.withdraw_routes(&old)?;
            self.put(id, None);
            self.announce_routes(&new)?;
            self.put(id, Some(new));
            led_there = self.remove_stranded_routes(&old)?;
        } else {
            self.put(id, Some(new));
        }
        if has_moved {
            self.remove_next_hops(&old);
            self.parted = self.generation + 1;
        }
        self.refresh_next_hops(&old)?;
        self.qdisc_follows(id);
        self.port_changed(id, Some(&old));
        if has_moved || self.existing_port(id)?.spec.mss != old.spec.mss {
            self.judge_share(FilterTarget::Port(id))?;
        }
        if has_moved {
            self.rules_follow_port(id, old.spec.vrf);
        }
        if has_moved || !has_routes_as_before {
            self.tunnels_may_lead_elsewhere(old.spec.vrf)?;
            self.tunnels_may_lead_elsewhere(self.existing_port(id)?.spec.vrf)?;
            led_there.into_iter().try_for_each(|vrf| self.tunnels_may_lead_elsewhere(vrf))?;
        }
        self.judge_side(id)
    }

    /// Puts a port into its place or takes it from there, and from its parent's table.
    fn put(&mut self, id: PortId, port: Option<Port>) {
        let received = self.port_counters(id).map(VlanCounters::received_id);
        let vlan = |port: &Port| {
            let PortSpec { vrf, up, vlan, .. } = port.spec;
            Some((vlan?, VlanPort { port: id, vrf, received: received.filter(|_| up) }))
        };
        let new = port.as_ref().and_then(vlan);
        let if_id = port.as_ref().map(|port| port.spec.if_id);
        let old = match port {
            Some(port) => self.ports.set(id.0.into(), Arc::new(port)),
            None => self.ports.remove(id.0.into()),
        };
        self.note_port(id, old.as_deref());
        match (if_id.flatten(), old.as_ref().and_then(|port| port.spec.if_id)) {
            (Some(if_id), _) => self.change_xfrm_link(if_id, |link| link.port = Some(id)),
            (None, Some(if_id)) => self.change_xfrm_link(if_id, |link| link.port = None),
            (None, None) => {}
        }
        let old = old.as_deref().and_then(vlan);
        if let Some((vlan, _)) = old.or(new)
            && old != new
            && let Ok(parent) = self.port_mut(vlan.parent)
        {
            match new {
                Some((_, port)) => parent.vlans.set(vlan.tag, port),
                None => parent.vlans.remove(vlan.tag),
            }
        }
    }

    /// Keeps up by what ports are found, after a port that was `old` was put into its place or taken
    /// from there.
    fn note_port(&mut self, id: PortId, old: Option<&Port>) {
        let found_by = |Port { spec, .. }: &Port| {
            (Arc::clone(&spec.name), spec.vrf, usize::from(!spec.has_queues()))
        };
        let (old, new) = (old.map(found_by), self.port(id).map(found_by));
        if old == new {
            return;
        }
        if let Some((name, vrf, kind)) = old {
            self.port_numbers.remove(id.0);
            self.port_names.remove(&name, id.0);
            self.port_counts[kind] -= 1;
            // A VRF that is gone had no ports.
            self.vrf_mut(vrf).into_iter().for_each(|vrf| _ = vrf.ports.remove(id));
        }
        if let Some((name, vrf, kind)) = new {
            self.port_numbers.add(id.0);
            self.port_names.add(&name, id.0);
            self.port_counts[kind] += 1;
            self.vrf_mut(vrf).into_iter().for_each(|vrf| _ = vrf.ports.set(id));
        }
    }

    /// Removes a port, and the routes that use it, static ones included.
    ///
    /// # Errors
    /// [`TableError::NoPort`], [`TableError::PortHasVlans`].
    pub fn remove_port(&mut self, id: PortId) -> Result<(), TableError> {
        let old = self.existing_port(id)?.clone();
        if let Some((_, sub_port)) = old.vlans.iter().next() {
            let sub_port = Arc::clone(&self.existing_port(sub_port.port)?.spec.name);
            return Err(TableError::PortHasVlans { port: old.spec.name, sub_port });
        }
        let mut next = self.clone();
        next.withdraw_routes(&old)?;
        next.put(id, None);
        let led_there = next.remove_stranded_routes(&old)?;
        next.remove_next_hops(&old);
        next.next_hops.remove(old.next_hop);
        next.port_counters.remove(id.0.into());
        next.parted = next.generation + 1;
        next.qdisc_follows(id);
        next.port_changed(id, Some(&old));
        next.remove_filters(FilterTarget::Port(id));
        next.remove_taps(|tap| tap.target == FilterTarget::Port(id));
        next.judge_share(FilterTarget::Port(id))?;
        next.rules_follow_port(id, old.spec.vrf);
        next.tunnels_may_lead_elsewhere(old.spec.vrf)?;
        led_there.into_iter().try_for_each(|vrf| next.tunnels_may_lead_elsewhere(vrf))?;
        *self = next;
        Ok(())
    }

    /// The spec as it goes into the snapshot, unless something is wrong with it by itself or its
    /// VRF or name with what there is.
    fn checked(&self, id: PortId, mut spec: PortSpec) -> Result<PortSpec, TableError> {
        self.existing_vrf(spec.vrf)?;
        if self.port_named(&spec.name).is_some_and(|other| other.id != id) {
            return Err(TableError::PortName(spec.name));
        }
        if let Some(vlan) = spec.vlan {
            let parent = self.existing_port(vlan.parent)?;
            let taken = parent.vlans.get(vlan.tag.protocol, vlan.tag.id.number());
            let taken = taken.filter(|other| other.port != id);
            let why = match taken {
                _ if parent.spec.link != LinkKind::Ethernet => Some(NotAVlanParent::NoEthernet),
                _ if parent.spec.vlan.is_some_and(|it| it.is_inner()) => {
                    Some(NotAVlanParent::IsInnerVlan)
                }
                Some(other) => {
                    let owner = &self.existing_port(other.port)?.spec.name;
                    Some(NotAVlanParent::Taken(Arc::clone(owner)))
                }
                None => None,
            };
            if let Some(why) = why {
                let parent = Arc::clone(&parent.spec.name);
                return Err(TableError::VlanParent { port: spec.name, tag: vlan.tag, parent, why });
            }
            spec.follow(&parent.spec);
        }
        if let Some(if_id) = spec.if_id
            && let Some(other) = self.xfrm_link(if_id).filter(|other| other.id != id)
        {
            let owner = Arc::clone(&other.spec.name);
            return Err(TableError::IfIdTaken { port: spec.name, if_id, owner });
        }
        spec.checked(self.port(id))
    }

    /// Notes that a port came, went or became another, as far as decisions are concerned.
    fn port_changed(&mut self, id: PortId, old: Option<&Port>) {
        let new = self.port(id);
        let link = |port: &Port| (port.spec.vrf, port.spec.link);
        // Whole VRFs: what is on the link, and the routes that addresses make.
        let is_other_link = new.map(link) != old.map(link);
        let is_otherwise_routed = addresses(new, is_routed) != addresses(old, is_routed);
        let listens_as_before = addresses(new, |_| true) == addresses(old, |_| true);
        let vrfs: BTreeSet<_> =
            [old, new].into_iter().flatten().map(|port| port.spec.vrf).collect();
        let judges = |port: &Port| port.spec.reverse_path;
        let judges_as_before = new.map(judges) == old.map(judges);
        // What leaves or enters by an xfrm link is dropped while that is down.
        let is_up = |port: &Port| port.spec.up || port.spec.if_id.is_none();
        let is_up_as_before = new.map(is_up) == old.map(is_up);
        self.draw_boundary(id);
        if is_other_link || !listens_as_before || !judges_as_before {
            self.changed(Change::Port(id));
        }
        if is_other_link || is_otherwise_routed || !is_up_as_before {
            vrfs.into_iter().for_each(|vrf| self.changed(Change::Vrf(vrf)));
        }
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
                    let owner = self.ports_of(vrf).find(|other| other.owns(own.address()));
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
            self.own_routes(vrf)?.set(Route { prefix: host, kind: RouteKind::Local })?;
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
                self.own_routes(vrf)?.set(Route { prefix: network, kind })?;
            }

            let Some(broadcast) = broadcast_of(*own).map(IpAddr::from) else { continue };
            let prefix = IpPrefix::host(broadcast);
            match self.existing_vrf(vrf)?.route_of(prefix).map(|route| route.kind) {
                None => self.own_routes(vrf)?.set(Route { prefix, kind: RouteKind::Broadcast })?,
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
        let broadcasts = port.spec.addresses.iter().filter_map(|own| broadcast_of(*own));
        let shared: BTreeSet<_> =
            broadcasts.filter(|broadcast| self.others_have_broadcast(port, *broadcast)).collect();
        let vrf = self.own_routes(port.spec.vrf)?;
        for own in port.spec.addresses.iter().filter(|own| is_routed(own)) {
            vrf.remove(IpPrefix::host(own.address()));
            if !own.is_host() {
                vrf.remove(own.network());
            }
            if let Some(broadcast) =
                broadcast_of(*own).filter(|broadcast| !shared.contains(broadcast))
            {
                vrf.remove(IpPrefix::host(broadcast.into()));
            }
        }
        Ok(())
    }

    /// Whether another port of the same VRF has this broadcast address. Its prefix is one of the few
    /// that end there, and each prefix of a port has a connected route.
    fn others_have_broadcast(&self, port: &Port, broadcast: Ipv4Addr) -> bool {
        let Some(vrf) = self.vrf(port.spec.vrf) else { return false };
        let prefixes = (1..=30).filter_map(|length| IpPrefix::new(broadcast.into(), length).ok());
        let routes = prefixes.filter_map(|prefix| vrf.route_of(prefix.network()));
        let connected = routes.filter_map(|route| match route.kind {
            RouteKind::Connected { port } => self.port(port),
            _ => None,
        });
        let mut others = connected.filter(|it| it.id != port.id && it.spec.vrf == port.spec.vrf);
        others.any(|other| other.has_broadcast(broadcast.into()))
    }

    /// Removes the static routes of the port's former VRF, and of tables that no VRF has, that it
    /// can no longer serve.
    fn remove_stranded_routes(&mut self, old: &Port) -> Result<BTreeSet<VrfId>, TableError> {
        let vrf: VrfId = old.spec.vrf;
        let port = self.port(old.id).filter(|port| port.spec.vrf == vrf);
        let is_gone = port.is_none();
        let next_hops: BTreeMap<_, _> = old
            .neighbours
            .all()
            .filter(|(address, neighbour)| {
                // What was `onlink` was on no prefix before, and stays.
                let was_reached = |port: &Port| old.reaches(*address) && !port.reaches(*address);
                neighbour.routes > 0 && port.is_none_or(was_reached)
            })
            .map(|(address, neighbour)| (neighbour.next_hop, *address))
            .collect();
        if !is_gone && next_hops.is_empty() {
            return Ok(BTreeSet::new());
        }
        // Which next hops and routes go is not noted: the VRF has changed, which says it all. That is
        // noted with the port, unless no route of its own is another one.
        let is_noted = port
            .is_none_or(|port| addresses(Some(port), is_routed) != addresses(Some(old), is_routed));
        if !is_noted {
            self.changed(Change::Vrf(vrf));
        }
        // A route with a next hop less would be another one than was asked for.
        let goes = |id| next_hops.contains_key(&id) || is_gone && id == old.next_hop;
        let stranded: BTreeSet<_> = self.groups.with(goes).into_iter().collect();
        let is_stranded = |route: &&Route| match route.kind {
            RouteKind::Connected { port: by } => by == old.id && is_gone,
            RouteKind::Via { next_hop } => next_hops.contains_key(&next_hop),
            RouteKind::Multipath { group } => stranded.contains(&group),
            _ => false,
        };
        let loose = self.loose_tables().map(|(number, _)| TableRef::Number(number));
        for table in loose.chain([vrf.into()]).collect::<Vec<_>>() {
            let routes = self.routing_table(table).into_iter().flat_map(RoutingTable::routes);
            let prefixes: Vec<_> = routes.filter(is_stranded).map(|route| route.prefix).collect();
            for prefix in prefixes {
                self.routing_table_mut(table)?.remove(prefix);
            }
            self.drop_empty_table(table);
        }
        let led_there = self.remove_stranded_leaks(vrf, &is_stranded)?;
        for group in &stranded {
            let group = *group;
            let Some(group) = self.groups.remove(group) else { continue };
            // The others may be in another VRF, in which it is noted that they go.
            let others = group.members().iter().map(|member| member.next_hop);
            for next_hop in others.filter(|id| !next_hops.contains_key(id)) {
                self.release_next_hop(next_hop)?;
            }
        }
        if is_gone {
            return Ok(led_there);
        }
        // Each of them has lost all its routes.
        for address in next_hops.into_values() {
            self.change_neighbour(old.id, address, |wanted| wanted.routes = 0)?;
        }
        Ok(led_there)
    }
}

/// Those of a port's addresses, in order.
fn addresses(port: Option<&Port>, which: impl Fn(&IpPrefix) -> bool) -> BTreeSet<IpPrefix> {
    let all = port.into_iter().flat_map(|port| &port.spec.addresses);
    all.copied().filter(which).collect()
}
