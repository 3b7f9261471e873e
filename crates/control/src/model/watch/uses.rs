//! Routes that stay as they were asked for, and that are shown otherwise as their ports or next
//! hops have changed: `dead`, by another port, resolved by another next hop.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use api::{RouteKind, RouteView};
use tables::{TableRef, Tables};
use types::VrfId;

use crate::model::desired::{Desired, DesiredRoute, Place};
use crate::model::recursive::Routes;
use crate::model::route_views::{active, view};
use crate::model::routes::{loose_places, places};

/// Which routes that may concern.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses {
    /// All routes, when nothing had changed yet.
    before: Routes,
    /// Those of these VRFs, and those of tables without a VRF.
    vrfs: BTreeSet<VrfId>,
    /// And these.
    places: BTreeSet<Place>,
}

impl Desired {
    /// Ports of a VRF have changed, by which its routes are, or those of tables without a VRF.
    pub(in crate::model) fn touch_uses_in(&mut self, vrf: VrfId) {
        if self.watch.is_on() {
            self.watch.uses.vrfs.insert(vrf);
        }
    }

    /// What the routes of a prefix are reached by may be about to change.
    pub(in crate::model) fn touch_use(&mut self, place: Place) {
        if self.watch.is_on() {
            self.watch.uses.places.insert(place);
        }
    }
}

impl Uses {
    /// Those that change from now on.
    pub(super) fn since(routes: &Routes) -> Self {
        Self { before: routes.clone(), ..Self::default() }
    }

    /// The routes that are shown otherwise than before, though what was asked for is the same.
    pub(super) fn changed(
        mut self,
        before: &Tables,
        tables: &Tables,
        desired: &Desired,
    ) -> Vec<RouteView> {
        if !self.vrfs.is_empty() {
            self.places.extend(loose_places(desired));
        }
        for vrf in core::mem::take(&mut self.vrfs) {
            self.places.extend(places(desired, vrf.into()));
        }
        let mut views = Vec::new();
        // Thousands of routes are by few next hops.
        let mut by_way: HashMap<Way<'_>, bool> = HashMap::new();
        for place in &self.places {
            let (was, is) = (self.before.get(place), desired.routes.get(place));
            let (Some(was), Some(is)) = (was, is) else { continue };
            for entry in is.iter().filter(|entry| was.contains(entry)) {
                let differs = || {
                    let then = shown(before, &self.before, *place, entry);
                    then != shown(tables, &desired.routes, *place, entry)
                };
                let differs = match Way::of(place.0, entry) {
                    Some(way) => *by_way.entry(way).or_insert_with(differs),
                    None => differs(),
                };
                if differs {
                    let metric = active(tables, &desired.routes, *place, is);
                    let active = metric == Some(entry.spec.metric);
                    views.push(view(tables, &desired.routes, place.0, entry, active));
                }
            }
        }
        views
    }
}

/// What says how a route is shown beside what it says itself, if it has one next hop that is on a link.
#[derive(PartialEq, Eq, Hash)]
struct Way<'d> {
    table: TableRef,
    vrf: &'d str,
    is_v6: bool,
    kind: RouteKind,
    via: Option<IpAddr>,
    port: Option<&'d str>,
    port_vrf: Option<&'d str>,
    nexthop_vrf: Option<&'d str>,
    is_onlink: bool,
    prefsrc: Option<IpAddr>,
}

impl<'d> Way<'d> {
    fn of(table: TableRef, entry: &'d DesiredRoute) -> Option<Self> {
        let spec = &entry.spec;
        let has_one = !spec.recursive && spec.nexthops.is_empty();
        has_one.then(|| Self {
            table,
            vrf: &spec.vrf,
            is_v6: spec.destination.address().is_ipv6(),
            kind: spec.kind,
            via: spec.via,
            port: spec.port.as_deref(),
            port_vrf: spec.port_vrf.as_deref(),
            nexthop_vrf: spec.nexthop_vrf.as_deref(),
            is_onlink: spec.onlink,
            prefsrc: spec.prefsrc,
        })
    }
}

/// A route without what `ip` does not show: that another one of its prefix is used, and which
/// address the gateway would send from.
fn shown(tables: &Tables, routes: &Routes, place: Place, entry: &DesiredRoute) -> RouteView {
    RouteView { source: None, ..view(tables, routes, place.0, entry, false) }
}
