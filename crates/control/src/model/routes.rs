//! Routes: which of those asked for are used, and the requests about them.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::{
    Family, MemberSpec, Origin, Refusal, RefusalCode, RouteFilter, RouteId, RouteKind as Kind,
    RouteSpec,
};
use tables::limit::MAX_LEAKS;
use tables::{
    MemberSpec as TableMember, Port, RouteKind, RouteSpec as TableRoute, TableError, TableId,
    TableRef, Tables,
};
use types::{IpPrefix, PortId, RouteProtocol, VrfId};

use super::Draft;
use super::desired::{Desired, DesiredPort, DesiredRoute};
use super::recursive::{self, Routes};
use super::refuse::{no_vrf, refusal};

/// The most routes of one prefix.
const MAX_ALTERNATIVES: usize = 16;

/// 0.0.0.0/0
const EVERYTHING: IpPrefix = match IpPrefix::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0) {
    Ok(prefix) => prefix,
    Err(_) => panic!("0 is a prefix length"),
};

/// ::/0
const EVERYTHING_V6: IpPrefix = match IpPrefix::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0) {
    Ok(prefix) => prefix,
    Err(_) => panic!("0 is a prefix length"),
};

impl Draft<'_> {
    pub(super) fn add_route(&mut self, spec: RouteSpec, origin: Origin) -> Result<(), Refusal> {
        let spec = self.as_meant(spec)?;
        let place = self.check_route(&spec)?;
        self.check_others(place, &spec)?;
        self.check_dependence(&spec)?;
        if self.alternatives(place).iter().any(|entry| entry.spec.metric == spec.metric) {
            let message =
                format!("there is a route to {} with metric {}", spec.destination, spec.metric);
            return Err(
                Refusal::new(RefusalCode::Exists, message).with_hint("replace, or another metric")
            );
        }
        self.put_route(place, DesiredRoute { spec, origin })
    }

    pub(super) fn replace_route(
        &mut self,
        spec: RouteSpec,
        only_change: bool,
    ) -> Result<(), Refusal> {
        let spec = self.as_meant(spec)?;
        let place = self.check_route(&spec)?;
        self.check_others(place, &spec)?;
        self.check_dependence(&spec)?;
        let old = self.alternatives(place).iter().find(|entry| entry.spec.metric == spec.metric);
        if only_change && old.is_none() {
            let message =
                format!("there is no route to {} with metric {}", spec.destination, spec.metric);
            return Err(Refusal::new(RefusalCode::NotFound, message).with_hint("add"));
        }
        let origin = old.map_or(self.origin, |entry| entry.origin);
        self.put_route(place, DesiredRoute { spec, origin })
    }

    /// Returns a warning if other routes lead nowhere without it.
    pub(super) fn delete_route(&mut self, id: &RouteId) -> Result<Option<String>, Refusal> {
        let before = self.tables.clone();
        self.delete_one_route(&id.clone().with_own_way())?;
        Ok(cut_off(&before, &self.tables, self.desired, id.destination))
    }

    fn delete_one_route(&mut self, id: &RouteId) -> Result<(), Refusal> {
        let table = self.desired.table(&self.tables, &id.vrf, id.table)?;
        let place = (table, id.destination);
        let wanted = |entry: &&DesiredRoute| {
            let spec = &entry.spec;
            id.kind.is_none_or(|kind| kind == spec.kind)
                && id.via.is_none_or(|via| Some(via) == spec.via)
                && id.port.as_deref().is_none_or(|port| self.way_out(table, spec) == Some(port))
                && id.nexthop_vrf.as_ref().is_none_or(|vrf| Some(vrf) == spec.nexthop_vrf.as_ref())
                && (id.nexthops.is_empty() || are_same(&id.nexthops, &spec.nexthops))
                && id.metric.is_none_or(|metric| metric == spec.metric)
                && id.protocol.is_none_or(|protocol| protocol == protocol_of(entry))
        };
        let Some(metric) =
            self.alternatives(place).iter().find(wanted).map(|entry| entry.spec.metric)
        else {
            let made = self.tables.routing_table(place.0);
            let made = made.and_then(|routes| routes.route_of(place.1));
            if made.is_some_and(|route| {
                route.prefix == place.1 && self.tables.comes_with_port(place.0, route)
            }) {
                let message =
                    format!("the route to {} comes with an address of a port", id.destination);
                return Err(
                    Refusal::new(RefusalCode::InUse, message).with_hint("delete the address")
                );
            }
            return Err(Refusal::new(
                RefusalCode::NotFound,
                format!("there is no such route to {} in {}", id.destination, named(id)),
            ));
        };
        self.drop_route(place, metric)
    }

    pub(super) fn flush_routes(&mut self, filter: &RouteFilter) -> Result<u64, Refusal> {
        let tables = of_filter(&self.tables, self.desired, filter)?;
        let all = tables.into_iter().flat_map(|table| {
            let all = self.desired.routes.from((table, EVERYTHING));
            all.take_while(move |((of, _), _)| *of == table)
        });
        let wanted: Vec<_> = all
            .flat_map(|(place, all)| all.iter().map(move |entry| (place, entry)))
            .filter(|(place, entry)| {
                let spec = &entry.spec;
                let several = spec.nexthops.iter();
                let several = several.map(|one| (one.dev.as_deref(), one.gateway));
                let by = self.way_out(place.0, spec);
                let ways: Vec<_> = several.chain([(by, spec.via)]).collect();
                matches(filter, spec.destination, spec.kind, &ways)
                    && filter.protocol.is_none_or(|protocol| protocol == protocol_of(entry))
            })
            .map(|(place, entry)| (*place, entry.spec.metric))
            .collect();
        for (place, metric) in &wanted {
            self.drop_route(*place, *metric)?;
        }
        Ok(wanted.len() as u64)
    }

    /// The port that a route leaves by, which it need not say, or the VRF that it leads to.
    fn way_out<'s>(&'s self, table: TableRef, spec: &'s RouteSpec) -> Option<&'s str> {
        let said = spec.port.as_deref().or(spec.nexthop_vrf.as_deref());
        said.or_else(|| match resolve(&self.tables, table, spec) {
            Ok(TableRoute::Via { port, .. }) if !spec.recursive => {
                self.tables.port(port).map(|port| &*port.spec.name)
            }
            _ => None,
        })
    }

    /// Puts a route among those of its prefix, in place of the one with its metric.
    pub(super) fn put_route(
        &mut self,
        place: (TableRef, IpPrefix),
        entry: DesiredRoute,
    ) -> Result<(), Refusal> {
        self.note(|journal| journal.put_route(entry.origin, &entry.spec));
        let mut alternatives = self.alternatives(place).to_vec();
        alternatives.retain(|other| other.spec.metric != entry.spec.metric);
        if alternatives.len() == MAX_ALTERNATIVES {
            return Err(Refusal::new(
                RefusalCode::Full,
                format!("there are {MAX_ALTERNATIVES} routes to {} already", place.1),
            ));
        }
        let at = alternatives.partition_point(|other| other.spec.metric < entry.spec.metric);
        alternatives.insert(at, entry);
        let routes = &self.desired.routes;
        settle(&mut self.tables, routes, place, &alternatives).map_err(|error| refusal(&error))?;
        self.desired.put_routes(place, alternatives);
        self.settle_dependents(place).map_err(|error| refusal(&error))
    }

    pub(super) fn drop_route(
        &mut self,
        place: (TableRef, IpPrefix),
        metric: u32,
    ) -> Result<(), Refusal> {
        let mut alternatives = self.alternatives(place).to_vec();
        if let Some(gone) = alternatives.iter().find(|other| other.spec.metric == metric) {
            let spec = gone.spec.clone();
            self.note(|journal| journal.delete_route(&spec));
        }
        alternatives.retain(|other| other.spec.metric != metric);
        let routes = &self.desired.routes;
        settle(&mut self.tables, routes, place, &alternatives).map_err(|error| refusal(&error))?;
        self.desired.put_routes(place, alternatives);
        self.settle_dependents(place).map_err(|error| refusal(&error))
    }

    /// Takes the routes of a VRF out of the tables that the addresses of ports, about to change,
    /// might be in the way of.
    pub(super) fn withdraw_routes(&mut self, vrf: VrfId) -> Result<(), TableError> {
        for place in places(self.desired, vrf.into()) {
            settle(&mut self.tables, &self.desired.routes, place, &[])?;
        }
        Ok(())
    }

    /// Chooses anew among the routes of every prefix of a VRF, after its ports have changed; and of
    /// tables that no VRF has, which may be by any port.
    pub(super) fn settle_routes(&mut self, vrf: VrfId) -> Result<(), TableError> {
        self.desired.touch_uses_in(vrf);
        let own = places(self.desired, vrf.into());
        for place in own.into_iter().chain(loose_places(self.desired)) {
            let alternatives = self.desired.routes.get(&place).map_or(&[][..], Vec::as_slice);
            settle(&mut self.tables, &self.desired.routes, place, alternatives)?;
        }
        self.settle_far_routes()
    }

    /// Chooses anew among the routes of prefixes that have one into another VRF.
    pub(super) fn settle_far_routes(&mut self) -> Result<(), TableError> {
        let far: Vec<_> = self.desired.far_routes.iter().copied().collect();
        for (prefix, table) in far {
            let place = (table, prefix);
            self.desired.touch_use(place);
            let alternatives = self.desired.routes.get(&place).map_or(&[][..], Vec::as_slice);
            settle(&mut self.tables, &self.desired.routes, place, alternatives)?;
            self.settle_dependents(place)?;
        }
        Ok(())
    }

    /// The route as it is meant. As with Linux, its `dev` may be a VRF. A route by a port of another
    /// VRF says which: if the port moves, the route does not lead to where it went.
    fn as_meant(&self, spec: RouteSpec) -> Result<RouteSpec, Refusal> {
        let mut spec = spec.with_own_way();
        if self.is_restoring {
            return Ok(spec);
        }
        let table = self.desired.table(&self.tables, &spec.vrf, spec.table)?;
        let elsewhere = |port: &DesiredPort| {
            let TableRef::Vrf(vrf) = table else { return None };
            let there = self.tables.vrf_named(&port.vrf)?;
            (there.id != vrf).then(|| port.vrf.clone())
        };
        for one in &mut spec.nexthops {
            let Some(name) = &one.dev else { continue };
            match self.desired.ports.get(name) {
                Some(port) if one.port_vrf.is_none() => one.port_vrf = elsewhere(port),
                None if self.desired.vrfs.contains_key(name) => {
                    let message =
                        format!("'{name}' is a VRF, and one of several next hops is by a port");
                    return Err(invalid(message).with_hint(
                        "a port of that VRF; dev VRF alone leads into its table, where there may be \
                        several next hops",
                    ));
                }
                _ => {}
            }
        }
        let Some(name) = spec.port.clone() else { return Ok(spec) };
        match self.desired.ports.get(&name) {
            Some(port) if spec.port_vrf.is_none() => spec.port_vrf = elsewhere(port),
            Some(_) => {}
            None if self.desired.vrfs.contains_key(&name) => {
                if spec.via.is_some() {
                    let message = format!("'{name}' is a VRF, and a next hop is on a port's link");
                    return Err(invalid(message).with_hint(
                        "the port that the next hop is on; or dev VRF without via, for its table \
                        to say where packets go",
                    ));
                }
                (spec.port, spec.nexthop_vrf) = (None, Some(name));
                crate::check::route(&spec)?;
            }
            None => {}
        }
        Ok(spec)
    }

    /// The route as it is desired: one of a VRF's table names the VRF.
    pub(super) fn in_its_vrf(&self, mut spec: RouteSpec) -> RouteSpec {
        let owner = spec.table.and_then(|table| self.tables.vrf_of_table(TableId(table)));
        if let Some(owner) = owner.and_then(|owner| self.tables.vrf(owner)) {
            (spec.vrf, spec.table) = (owner.name.to_string(), None);
        }
        spec
    }

    /// Checks a route by itself and against the ports. Returns its table and prefix.
    pub(super) fn check_route(&self, spec: &RouteSpec) -> Result<(TableRef, IpPrefix), Refusal> {
        crate::check::route(spec)?;
        let vrf = self.desired.table(&self.tables, &spec.vrf, spec.table)?;
        if self.is_restoring {
            // Its port or its link may have gone after it was added.
            return Ok((vrf, spec.destination));
        }
        for port in spec.nexthops.iter().filter_map(|one| one.dev.as_ref()).chain(&spec.port) {
            self.desired.port(port)?;
        }
        let wanted = match spec.via.filter(|_| spec.recursive) {
            None => resolve(&self.tables, vrf, spec)?,
            // One that comes to nothing yet may be resolved by a later route.
            Some(via) => {
                let place = (vrf, spec.destination);
                match recursive::resolve(&self.tables, &self.desired.routes, place, via) {
                    Ok(found) => found,
                    Err(_) => return Ok(place),
                }
            }
        };
        // Whether the tables would have it, whatever other routes of the prefix there are.
        let mut tables = self.tables.clone();
        let into = match wanted {
            TableRoute::Vrf { vrf } => Some(vrf),
            _ => None,
        };
        tables.set_route(vrf, spec.destination, wanted).map_err(|error| refusal(&error))?;
        if let TableRef::Vrf(vrf) = vrf {
            tables
                .set_route_source(vrf, spec.destination, spec.prefsrc)
                .map_err(|error| refusal(&error))?;
        }
        if let Some(into) = into {
            check_circle(&tables, into, spec)?;
        }
        Ok((vrf, spec.destination))
    }

    /// Refuses a route into the table of another VRF if packets of routes that lead to it would be
    /// led on too often, or without end.
    fn check_others(&self, place: (TableRef, IpPrefix), spec: &RouteSpec) -> Result<(), Refusal> {
        if self.is_restoring || spec.nexthop_vrf.is_none() {
            return Ok(());
        }
        let wanted = resolve(&self.tables, place.0, spec)?;
        let mut tables = self.tables.clone();
        tables.set_route(place.0, place.1, wanted).map_err(|error| refusal(&error))?;
        match cut_off(&self.tables, &tables, self.desired, place.1) {
            None => Ok(()),
            Some(told) => Err(invalid(told)
                .with_hint("lead those there first by which packets leave, or delete them")),
        }
    }

    fn alternatives(&self, place: (TableRef, IpPrefix)) -> &[DesiredRoute] {
        self.desired.routes.get(&place).map_or(&[], Vec::as_slice)
    }
}

/// Refuses a route into the table of another VRF if the first of its destinations comes back from
/// there, or is led on too often. What becomes of the others, and of all after later changes, each
/// packet finds out.
fn check_circle(tables: &Tables, into: VrfId, spec: &RouteSpec) -> Result<(), Refusal> {
    let steps: Vec<_> =
        tables.leak_steps(into, spec.destination.address()).take(MAX_LEAKS).collect();
    let leads_on = |route: &tables::Route| matches!(route.kind, RouteKind::Vrf { .. });
    if steps.last().is_none_or(|(_, route)| !route.is_some_and(leads_on)) {
        return Ok(());
    }
    let of = spec.table.map_or_else(|| spec.vrf.clone(), |table| format!("table {table}"));
    let names: Vec<_> = steps.iter().map(|(vrf, _)| &*vrf.name).collect();
    let message = format!(
        "packets to {} would be led from VRF to VRF without end, or through more than {MAX_LEAKS}: \
        {of} > {}",
        spec.destination,
        names.join(" > ")
    );
    Err(invalid(message).with_hint("a route in the last VRF that leaves by a port"))
}

/// The routes into tables of other VRFs whose first destination is in a prefix, and from which it
/// is led on too often or without end.
fn circles(tables: &Tables, desired: &Desired, within: IpPrefix) -> BTreeSet<(IpPrefix, TableRef)> {
    // Those of all lengths that begin there.
    let Ok(first) = IpPrefix::new(within.network().address(), 0) else { return BTreeSet::new() };
    let far = desired.far_routes.range((first, TableRef::Vrf(VrfId(0)))..);
    let far = far.take_while(|(prefix, _)| within.contains(prefix.address()));
    let leads_on = |route: Option<&tables::Route>| match route?.kind {
        RouteKind::Vrf { vrf } => Some(vrf),
        _ => None,
    };
    let is_circle = |(prefix, table): &&(IpPrefix, TableRef)| {
        let routes = tables.routing_table(*table);
        let into = leads_on(routes.and_then(|routes| routes.route_of(*prefix)));
        let last =
            into.and_then(|into| tables.leak_steps(into, prefix.address()).take(MAX_LEAKS).last());
        last.is_some_and(|(_, route)| leads_on(route).is_some())
    };
    far.filter(is_circle).copied().collect()
}

/// What is said of routes that led out by a port before a change of routes inside `within`, and
/// by which packets are led on without end, or too often, behind it.
pub(super) fn cut_off(
    before: &Tables,
    after: &Tables,
    desired: &Desired,
    within: IpPrefix,
) -> Option<String> {
    let is = circles(after, desired, within);
    if is.is_empty() {
        return None;
    }
    let was = circles(before, desired, within);
    let told: Vec<_> = is.difference(&was).map(|route| of_table(after, route)).collect();
    (!told.is_empty()).then(|| {
        format!(
            "packets by other routes would be led from VRF to VRF without end, or through more \
            than {MAX_LEAKS}: {}",
            listed(&told)
        )
    })
}

/// What is said of routes by which packets are led on without end, or too often.
pub(super) fn led_on_too_often(tables: &Tables, desired: &Desired) -> Option<String> {
    let all = [EVERYTHING, EVERYTHING_V6].map(|within| circles(tables, desired, within));
    let told: Vec<_> = all.iter().flatten().map(|route| of_table(tables, route)).collect();
    (!told.is_empty()).then(|| {
        format!(
            "packets are led from VRF to VRF without end, or through more than {MAX_LEAKS}: {}",
            listed(&told)
        )
    })
}

/// `10.0.0.0/8 of VRF red`
pub(super) fn of_table(tables: &Tables, (prefix, table): &(IpPrefix, TableRef)) -> String {
    match table {
        TableRef::Vrf(vrf) => {
            let name = tables.vrf(*vrf).map_or("", |vrf| &vrf.name);
            format!("{prefix} of VRF {name}")
        }
        TableRef::Number(number) => format!("{prefix} of table {number}"),
    }
}

/// The first of many.
pub(super) fn listed(all: &[String]) -> String {
    const TOLD: usize = 10;
    let told = all.iter().take(TOLD).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(TOLD) {
        0 => told,
        more => format!("{told} and {more} more"),
    }
}

pub(super) fn places(desired: &Desired, table: TableRef) -> Vec<(TableRef, IpPrefix)> {
    // The first of all prefixes: IPv4 goes before IPv6, and addresses before lengths.
    let from = (table, EVERYTHING);
    let all = desired.routes.from(from).map(|(place, _)| *place);
    all.take_while(|(of, _)| *of == table).collect()
}

/// Those of tables that no VRF has.
pub(super) fn loose_places(desired: &Desired) -> Vec<(TableRef, IpPrefix)> {
    let from = (TableRef::Number(TableId(0)), EVERYTHING);
    desired.routes.from(from).map(|(place, _)| *place).collect()
}

/// The tables that a filter asks for.
pub(super) fn of_filter(
    tables: &Tables,
    desired: &Desired,
    filter: &RouteFilter,
) -> Result<BTreeSet<TableRef>, Refusal> {
    if filter.vrf.is_some() || filter.table.is_some() {
        let vrf = filter.vrf.as_deref().unwrap_or(api::MAIN_VRF);
        let table = desired.table(tables, vrf, filter.table)?;
        // As with Linux, which says it of a table that never had a route.
        if let TableRef::Number(number) = table
            && places(desired, table).is_empty()
        {
            let message = format!("there is no routing table {number}");
            return Err(Refusal::new(RefusalCode::NotFound, message)
                .with_hint("a table without a VRF is there while it has routes"));
        }
        return Ok(BTreeSet::from([table]));
    }
    let vrfs = desired.vrfs.values().map(|vrf| TableRef::Vrf(vrf.id));
    let loose = loose_places(desired).into_iter().filter(|_| filter.all).map(|(table, _)| table);
    Ok(vrfs.chain(loose).collect())
}

/// Who made a route: what was said, or else what iproute2 says of routes of that origin.
pub(super) fn protocol_of(entry: &DesiredRoute) -> RouteProtocol {
    entry.spec.protocol.unwrap_or(match entry.origin {
        Origin::Configuration => RouteProtocol::STATIC,
        Origin::Runtime => RouteProtocol::BOOT,
        Origin::Gateway => RouteProtocol::KERNEL,
    })
}

/// A route as a file says it: routes of a file that say no protocol are `static`.
pub(super) fn as_of_file(entry: &DesiredRoute) -> RouteSpec {
    let protocol = match entry.origin {
        Origin::Configuration => entry.spec.protocol,
        Origin::Runtime | Origin::Gateway => Some(protocol_of(entry)),
    };
    RouteSpec { protocol, ..entry.spec.clone() }
}

/// Whether a file asks for the route that is there: in the words of the command that added it, or
/// in those that [`as_of_file`] has for it.
pub(super) fn is_as_said(entry: &DesiredRoute, said: &RouteSpec) -> bool {
    entry.spec == *said || as_of_file(entry) == *said
}

/// `VRF blue` or `table 10`
fn named(id: &RouteId) -> String {
    match id.table {
        Some(table) => format!("table {table}"),
        None => format!("VRF {}", id.vrf),
    }
}

/// Puts the best of `alternatives` that can be used into the tables, or takes the prefix's route
/// out where there is none. Routes that come with an address of a port go before all.
pub(super) fn settle(
    tables: &mut Tables,
    routes: &Routes,
    (vrf, prefix): (TableRef, IpPrefix),
    alternatives: &[DesiredRoute],
) -> Result<(), TableError> {
    let current = tables.routing_table(vrf).and_then(|routes| routes.route_of(prefix)).copied();
    if current.is_some_and(|route| tables.comes_with_port(vrf, &route)) {
        return Ok(());
    }
    for entry in alternatives {
        let Some(wanted) = usable(tables, routes, vrf, &entry.spec) else { continue };
        let is_there =
            current.and_then(|route| tables.route_spec(route.kind)).as_ref() == Some(&wanted);
        let set = if is_there { Ok(()) } else { tables.set_route(vrf, prefix, wanted) };
        match set {
            Ok(()) => {
                if let TableRef::Vrf(vrf) = vrf {
                    tables.set_route_source(vrf, prefix, entry.spec.prefsrc)?;
                }
                return Ok(());
            }
            Err(error @ TableError::Limit { .. }) => return Err(error),
            Err(_) => {}
        }
    }
    if current.is_some() {
        tables.remove_route(vrf, prefix)?;
    }
    Ok(())
}

/// What a route does in the tables' terms, if its port is up and its next hop is on the link.
///
/// Of several next hops, those that are on the link of their port; whether that is up, the tables
/// look after, since it moves the flows of these alone.
pub(super) fn usable(
    tables: &Tables,
    routes: &Routes,
    vrf: TableRef,
    spec: &RouteSpec,
) -> Option<TableRoute> {
    if let Some(via) = spec.via.filter(|_| spec.recursive) {
        let is_own = spec.prefsrc.is_none_or(|source| is_own(tables, vrf, source));
        let found = recursive::resolve(tables, routes, (vrf, spec.destination), via);
        return found.ok().filter(|_| is_own);
    }
    if !spec.nexthops.is_empty() {
        let is_up = |member: &TableMember| tables.port(member.port).is_some_and(|is| is.spec.up);
        let there = spec.nexthops.iter().filter_map(|one| on_link(tables, vrf, spec, one));
        let mut members: Vec<TableMember> = Vec::with_capacity(spec.nexthops.len());
        for member in there {
            // Without its port, a next hop may have come to be another's.
            let same = |other: &TableMember| (other.port, other.address);
            if !members.iter().any(|other| same(other) == same(&member)) {
                members.push(member);
            }
        }
        return members.iter().any(is_up).then(|| TableRoute::Multipath(members.into()));
    }
    let wanted = resolve(tables, vrf, spec).ok()?;
    if spec.prefsrc.is_some_and(|source| !is_own(tables, vrf, source)) {
        return None;
    }
    let reaches = match wanted {
        TableRoute::Via { port, address } => {
            tables.port(port).is_some_and(|port| port.spec.up && port.reaches(address))
        }
        TableRoute::Connected { port } | TableRoute::Onlink { port, .. } => {
            tables.port(port).is_some_and(|port| port.spec.up)
        }
        _ => true,
    };
    reaches.then_some(wanted)
}

/// Whether an address is one of a port of the VRF whose table this is.
fn is_own(tables: &Tables, table: TableRef, address: IpAddr) -> bool {
    let TableRef::Vrf(vrf) = table else { return false };
    tables.ports_of(vrf).any(|port| port.owns(address))
}

/// One of several next hops of a route in the tables' terms, if it is on the link of its port.
pub(super) fn on_link(
    tables: &Tables,
    table: TableRef,
    spec: &RouteSpec,
    one: &MemberSpec,
) -> Option<TableMember> {
    let member = member(tables, table, spec, one).ok()?;
    tables.check_member(spec.destination, &member).ok()?;
    Some(member)
}

/// One of several next hops of a route in the tables' terms, wherever its port is.
pub(super) fn member(
    tables: &Tables,
    table: TableRef,
    spec: &RouteSpec,
    one: &MemberSpec,
) -> Result<TableMember, Refusal> {
    let (table, vrf_name) = port_table(tables, (table, &spec.vrf), one.port_vrf.as_ref())?;
    let port = match (one.gateway, one.dev.as_deref()) {
        (Some(address), dev) => port_to(tables, table, vrf_name, address, dev)?,
        (None, Some(dev)) => port_of(tables, table, vrf_name, dev)?,
        (None, None) => return Err(invalid("a next hop needs an address or a port".to_owned())),
    };
    let reaches = |address| tables.port(port).is_some_and(|port| port.reaches(address));
    let onlink = one.onlink && !one.gateway.is_some_and(reaches);
    Ok(TableMember { port, address: one.gateway, onlink, weight: one.weight })
}

/// The table of the VRF in which a route's port is, with the VRF's name: the route's own, unless it
/// says another one.
fn port_table<'a>(
    tables: &Tables,
    own: (TableRef, &'a String),
    port_vrf: Option<&'a String>,
) -> Result<(TableRef, &'a String), Refusal> {
    let Some(name) = port_vrf else { return Ok(own) };
    let known = || tables.vrfs().map(|vrf| &*vrf.name);
    let there = tables.vrf_named(name).ok_or_else(|| no_vrf(name, known()))?;
    Ok((TableRef::Vrf(there.id), name))
}

/// What a route does in the tables' terms.
pub(super) fn resolve(
    tables: &Tables,
    vrf: TableRef,
    spec: &RouteSpec,
) -> Result<TableRoute, Refusal> {
    match spec.kind {
        Kind::Blackhole => return Ok(TableRoute::Blackhole),
        Kind::Unreachable => return Ok(TableRoute::Unreachable),
        Kind::Prohibit => return Ok(TableRoute::Prohibit),
        Kind::Local | Kind::Broadcast => {
            return Err(refusal(&TableError::RouteIsLocal(spec.destination)));
        }
        Kind::Unicast => {}
    }
    if let Some(name) = &spec.nexthop_vrf {
        let known = || tables.vrfs().map(|vrf| &*vrf.name);
        let into = tables.vrf_named(name).ok_or_else(|| no_vrf(name, known()))?;
        return Ok(TableRoute::Vrf { vrf: into.id });
    }
    if !spec.nexthops.is_empty() {
        let members = spec.nexthops.iter().map(|one| member(tables, vrf, spec, one));
        return Ok(TableRoute::Multipath(members.collect::<Result<_, Refusal>>()?));
    }
    let port = spec.port.as_deref();
    let (vrf, vrf_name) = port_table(tables, (vrf, &spec.vrf), spec.port_vrf.as_ref())?;
    match (spec.via, port) {
        (Some(address), port) => {
            let port = port_to(tables, vrf, vrf_name, address, port)?;
            let reaches = tables.port(port).is_some_and(|port| port.reaches(address));
            Ok(match reaches || !spec.onlink {
                true => TableRoute::Via { port, address },
                false => TableRoute::Onlink { port, address },
            })
        }
        (None, Some(port)) => {
            Ok(TableRoute::Connected { port: port_of(tables, vrf, vrf_name, port)? })
        }
        (None, None) => Err(invalid("a route needs a next hop or a port".to_owned())),
    }
}

fn invalid(message: String) -> Refusal {
    Refusal::new(RefusalCode::Invalid, message)
}

/// The port called `name`, which has to be in the route's VRF.
fn port_of(tables: &Tables, vrf: TableRef, vrf_name: &str, name: &str) -> Result<PortId, Refusal> {
    let port = tables
        .port_named(name)
        .ok_or_else(|| Refusal::new(RefusalCode::NotFound, format!("there is no port '{name}'")))?;
    if matches!(vrf, TableRef::Vrf(vrf) if port.spec.vrf != vrf) {
        return Err(invalid(format!("port '{name}' is not in VRF '{vrf_name}'"))
            .with_hint("a port of the route's VRF"));
    }
    Ok(port.id)
}

/// The port to a next hop: the one that is named, or the one on whose link it is.
pub(super) fn port_to(
    tables: &Tables,
    table: TableRef,
    vrf_name: &str,
    next_hop: IpAddr,
    name: Option<&str>,
) -> Result<PortId, Refusal> {
    if let Some(name) = name {
        return port_of(tables, table, vrf_name, name);
    }
    // As with Linux, where a table without a VRF does not say it, the VRF main does.
    let vrf = match table {
        TableRef::Vrf(vrf) => vrf,
        TableRef::Number(_) => VrfId::MAIN,
    };
    let best = |port: &&Port| {
        let own = port.spec.addresses.iter();
        let lengths = own.filter(|own| !own.is_host() && own.contains(next_hop));
        lengths.map(|own| own.length()).max()
    };
    let on_link = tables.ports_of(vrf).filter(|port| best(port).is_some());
    match on_link.min_by_key(|port| Reverse(best(port))) {
        Some(port) => Ok(port.id),
        None => Err(invalid(format!(
            "next hop {next_hop} is not on the link of any port of VRF '{vrf_name}'"
        ))
        .with_hint("an address inside a prefix of a port of the VRF")),
    }
}

/// Whether these are the same next hops, in any order. As with Linux, a weight of 1 in `wanted` is
/// any.
fn are_same(wanted: &[MemberSpec], members: &[MemberSpec]) -> bool {
    let is_wanted = |wanted: &MemberSpec, member: &MemberSpec| {
        wanted.gateway == member.gateway
            && (wanted.dev.is_none() || wanted.dev == member.dev)
            && [1, member.weight].contains(&wanted.weight)
    };
    wanted.len() == members.len()
        && members.iter().all(|member| wanted.iter().any(|wanted| is_wanted(wanted, member)))
}

pub(super) fn matches(
    filter: &RouteFilter,
    destination: IpPrefix,
    kind: Kind,
    ways: &[(Option<&str>, Option<IpAddr>)],
) -> bool {
    let inside = |outer: IpPrefix, inner: IpPrefix| {
        outer.length() <= inner.length() && outer.contains(inner.address())
    };
    filter.family.is_none_or(|family| family == Family::of(destination.address()))
        && filter.destination.is_none_or(|wanted| wanted == destination)
        && filter.within.is_none_or(|outer| inside(outer, destination))
        && filter.holding.is_none_or(|inner| inside(destination, inner))
        && filter.kind.is_none_or(|wanted| wanted == kind)
        && ways.iter().any(|(port, via)| {
            filter.port.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == *port)
                && filter.via.is_none_or(|wanted| Some(wanted) == *via)
        })
}
