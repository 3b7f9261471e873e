//! Next hops that are on no link and are reached by another route of the same table, as those are
//! that BGP speaks of.
//!
//! What a recursive next hop comes to follows from the routes that are desired and from the ports
//! alone, never from the order in which routes came. So a route needs to be looked at again if its
//! next hop is in a prefix that has changed, or in that of a recursive route that has; no other
//! does.

use core::fmt;
use std::collections::BTreeSet;
use std::net::IpAddr;

use tables::{
    MAX_WEIGHT, MemberSpec, RouteKind, RouteSpec as TableRoute, TableError, TableRef, Tables,
};
use types::{IpPrefix, PortId};

use api::{Refusal, RouteSpec};

use super::Draft;
use super::desired::{DesiredRoute, Place};
use super::route_views::active;
use super::routes::{settle, usable};
use super::tree::Tree;
use crate::check::circle::{Says, circle, fault};

/// One recursive route may be reached by another one, in all so many.
const MAX_DEPTH: usize = 8;

/// So many routes are looked at for one next hop.
const MAX_LOOKS: usize = 1024;

/// By table and prefix.
pub(super) type Routes = Tree<Place, Vec<DesiredRoute>>;

/// What is said of a route that leads to the gateway itself.
const OWN: &str = "is that to an own address";

/// Why a recursive next hop comes to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    NoRoute(IpAddr),
    /// The route is reached by this one, and this one by it.
    Itself(IpPrefix),
    TooDeep(IpAddr),
    /// The route to it leads to no next hop.
    Ends(IpAddr, &'static str),
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoute(via) => write!(f, "there is no route to {via}"),
            Self::Itself(prefix) => write!(f, "it depends on itself, by the route to {prefix}"),
            Self::TooDeep(via) => {
                write!(f, "{via} is reached by more than {MAX_DEPTH} recursive routes in turn")
            }
            Self::Ends(via, what) => write!(f, "the route to {via} {what}"),
        }
    }
}

/// What packets to the recursive next hop `via` of a route take.
pub(super) fn resolve(
    tables: &Tables,
    routes: &Routes,
    (table, prefix): Place,
    via: IpAddr,
) -> Result<TableRoute, Unresolved> {
    Resolver { tables, routes, table, on_way: vec![prefix], looks: 0 }.resolve(via)
}

/// By which routes the recursive next hop of a route is reached, if that is one: each next hop with
/// the prefix of the route that leads to it, which may be recursive itself.
pub(super) fn reached_by(
    tables: &Tables,
    routes: &Routes,
    (table, mut prefix): Place,
) -> Vec<(IpAddr, IpPrefix)> {
    let mut steps = Vec::new();
    while steps.len() <= MAX_DEPTH
        && let Some(via) = active_via(tables, routes, (table, prefix))
    {
        let mut resolver = Resolver { tables, routes, table, on_way: vec![prefix], looks: 0 };
        let Ok((by, _)) = resolver.find(via) else { break };
        steps.push((via, by));
        prefix = by;
    }
    steps
}

/// The next hop of the route of a prefix that is in use, if it is recursive.
fn active_via(tables: &Tables, routes: &Routes, place: Place) -> Option<IpAddr> {
    let all = routes.get(&place)?;
    let metric = active(tables, routes, place, all)?;
    let entry = all.iter().find(|entry| entry.spec.metric == metric)?;
    entry.spec.via.filter(|_| entry.spec.recursive)
}

struct Resolver<'a> {
    tables: &'a Tables,
    routes: &'a Routes,
    table: TableRef,
    /// The prefixes of the routes that wait for this one.
    on_way: Vec<IpPrefix>,
    looks: usize,
}

impl Resolver<'_> {
    fn resolve(&mut self, via: IpAddr) -> Result<TableRoute, Unresolved> {
        self.find(via).map(|(_, found)| found)
    }

    /// The same, with the prefix of the route that leads there.
    fn find(&mut self, via: IpAddr) -> Result<(IpPrefix, TableRoute), Unresolved> {
        let longest = if via.is_ipv4() { 32 } else { 128 };
        for length in (0..=longest).rev() {
            let Ok(prefix) = IpPrefix::new(via, length) else { continue };
            let prefix = prefix.network();
            if let Some(found) = self.by(prefix, via)? {
                return Ok((prefix, found));
            }
        }
        Err(Unresolved::NoRoute(via))
    }

    /// By the routes of one prefix, if one of them can be used.
    fn by(&mut self, prefix: IpPrefix, via: IpAddr) -> Result<Option<TableRoute>, Unresolved> {
        let found = self.tables.routing_table(self.table).and_then(|it| it.route_of(prefix));
        if let Some(made) = found.filter(|it| self.tables.comes_with_port(self.table, it)) {
            return match made.kind {
                RouteKind::Connected { port } => {
                    let is_up = self.tables.port(port).is_some_and(|port| port.spec.up);
                    let wanted = TableRoute::Via { port, address: via };
                    is_up
                        .then_some(Some(wanted))
                        .ok_or(Unresolved::Ends(via, "is by a port that is down"))
                }
                _ => Err(Unresolved::Ends(via, OWN)),
            };
        }
        // One that is about to be added is not among the routes yet.
        if self.on_way.contains(&prefix) {
            return Err(Unresolved::Itself(prefix));
        }
        let Some(alternatives) = self.routes.get(&(self.table, prefix)) else { return Ok(None) };
        self.looks += 1;
        if self.on_way.len() > MAX_DEPTH || self.looks > MAX_LOOKS {
            return Err(Unresolved::TooDeep(via));
        }
        let mut refused = None;
        for entry in alternatives {
            let found = match (entry.spec.recursive, entry.spec.via) {
                (true, Some(next)) => {
                    self.on_way.push(prefix);
                    let found = self.resolve(next);
                    self.on_way.pop();
                    found.map_err(|why| refused = Some(why)).ok()
                }
                _ => usable(self.tables, self.routes, self.table, &entry.spec),
            };
            if let Some(found) = found {
                return self.through(found, via).map(Some);
            }
        }
        match refused {
            // A circle that goes through a route which waits for this one.
            Some(Unresolved::Itself(closed)) if self.on_way.contains(&closed) => {
                Err(Unresolved::Itself(closed))
            }
            Some(why @ Unresolved::TooDeep(_)) => Err(why),
            _ => Ok(None),
        }
    }

    fn reaches(&self, port: PortId, address: IpAddr) -> bool {
        self.tables.port(port).is_some_and(|port| port.reaches(address))
    }

    /// Whether an address is no other station's on a port's link: the route may be another VRF's.
    fn is_own(&self, port: PortId, address: IpAddr) -> bool {
        self.tables.port(port).is_some_and(|port| {
            let vrf = self.tables.vrf(port.spec.vrf);
            port.owns(address) || vrf.is_some_and(|vrf| vrf.is_local(address))
        })
    }

    /// What packets to `via` take by a route that can be used.
    fn through(&self, route: TableRoute, via: IpAddr) -> Result<TableRoute, Unresolved> {
        match route {
            TableRoute::Via { .. } | TableRoute::Onlink { .. } => Ok(route),
            TableRoute::Multipath(members) => {
                let mut all: Vec<MemberSpec> = Vec::with_capacity(members.len());
                for one in members.iter() {
                    // By a port alone, `via` is on the link itself.
                    let address = one.address.unwrap_or(via);
                    if one.address.is_none() && self.is_own(one.port, via) {
                        continue;
                    }
                    let onlink = one.onlink || !self.reaches(one.port, address);
                    let one = MemberSpec { address: Some(address), onlink, ..*one };
                    let same = |it: &MemberSpec| (it.port, it.address);
                    match all.iter_mut().find(|other| same(other) == same(&one)) {
                        Some(other) => other.weight = MAX_WEIGHT.min(other.weight + one.weight),
                        None => all.push(one),
                    }
                }
                match all.is_empty() {
                    true => Err(Unresolved::Ends(via, OWN)),
                    false => Ok(TableRoute::Multipath(all.into())),
                }
            }
            TableRoute::Connected { port } if self.is_own(port, via) => {
                Err(Unresolved::Ends(via, OWN))
            }
            TableRoute::Connected { port } => Ok(match self.reaches(port, via) {
                true => TableRoute::Via { port, address: via },
                false => TableRoute::Onlink { port, address: via },
            }),
            TableRoute::Vrf { .. } => {
                Err(Unresolved::Ends(via, "leads into the table of another VRF"))
            }
            TableRoute::Blackhole | TableRoute::Unreachable | TableRoute::Prohibit => {
                Err(Unresolved::Ends(via, "sends nowhere"))
            }
        }
    }
}

impl Draft<'_> {
    /// Refuses a recursive route that depends on itself, as the routes are now.
    pub(super) fn check_dependence(&self, spec: &RouteSpec) -> Result<(), Refusal> {
        let Some(via) = spec.via.filter(|_| spec.recursive && !self.is_restoring) else {
            return Ok(());
        };
        let table = self.desired.table(&self.tables, &spec.vrf, spec.table)?;
        let says = |prefix| {
            let made = self.tables.routing_table(table).and_then(|it| it.route_of(prefix));
            if made.is_some_and(|made| self.tables.comes_with_port(table, made)) {
                return Says::Ends;
            }
            let Some(all) = self.desired.routes.get(&(table, prefix)) else { return Says::Nothing };
            let recursive = |entry: &DesiredRoute| entry.spec.via.filter(|_| entry.spec.recursive);
            all.iter().map(recursive).collect::<Option<_>>().map_or(Says::Ends, Says::Recursive)
        };
        match circle(spec.destination, via, says) {
            Some(path) => Err(fault(spec.destination, &path).into()),
            None => Ok(()),
        }
    }

    /// Chooses anew among the routes of prefixes that depend on that of `place`, which has changed.
    pub(super) fn settle_dependents(&mut self, place: Place) -> Result<(), TableError> {
        let (table, changed) = place;
        let (mut seen, mut left) = (BTreeSet::from([changed]), vec![changed]);
        while let Some(prefix) = left.pop() {
            let range = prefix.range();
            let (from, to) = ((table, range.first()), (table, range.last()));
            let within = self.desired.recursive.from(from).take_while(|(via, _)| **via <= to);
            let within: Vec<_> =
                within.flat_map(|(_, prefixes)| prefixes.keys()).copied().collect();
            for dependent in within {
                if seen.insert(dependent) {
                    let place = (table, dependent);
                    self.desired.touch_use(place);
                    let all = self.desired.routes.get(&place).map_or(&[][..], Vec::as_slice);
                    settle(&mut self.tables, &self.desired.routes, place, all)?;
                    left.push(dependent);
                }
            }
        }
        Ok(())
    }
}
