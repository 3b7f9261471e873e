//! Routes that lead from one VRF into another: by a port of another one, or into its table.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use wire::{PortId, VrfId};

use super::Tables;
use crate::error::TableError;
use crate::limit::MAX_LEAKS;
use crate::log::Change;
use crate::next_hop::NextHopId;
use crate::route::{Route, RouteKind};
use crate::routing_table::TableRef;
use crate::vrf::Vrf;

impl Tables {
    /// The routes to `address` in the table of `vrf`, and, while the route there is one into the
    /// table of another VRF, in that one. If the last route is such a one too, more than
    /// [`MAX_LEAKS`] VRFs follow, as they do if the routes lead in a circle.
    pub fn leak_steps(
        &self,
        vrf: VrfId,
        address: IpAddr,
    ) -> impl Iterator<Item = (&Vrf, Option<&Route>)> {
        let step = move |vrf| {
            let vrf = self.vrf(vrf)?;
            Some((vrf, vrf.route(address)))
        };
        let next = move |(_, route): &(&Vrf, Option<&Route>)| match route.map(|route| route.kind) {
            Some(RouteKind::Vrf { vrf }) => step(vrf),
            _ => None,
        };
        core::iter::successors(step(vrf), next).take(MAX_LEAKS + 1)
    }

    /// Whether packets may leave by ports of other VRFs than theirs, as rules or routes say.
    pub fn leaves_elsewhere(&self) -> bool {
        self.has_leaks() || self.has_rules()
    }

    /// Whether there are routes from one VRF into another.
    pub fn has_leaks(&self) -> bool {
        !self.leaking.is_empty()
    }

    /// Whether a route in the table of a VRF leads into another one.
    pub(super) fn is_leak(&self, vrf: VrfId, kind: RouteKind) -> bool {
        let is_elsewhere = |port: PortId| self.port(port).is_some_and(|port| port.spec.vrf != vrf);
        let by = |id: NextHopId| self.next_hop(id).is_some_and(|it| is_elsewhere(it.port));
        match kind {
            RouteKind::Vrf { .. } => true,
            RouteKind::Connected { port } => is_elsewhere(port),
            RouteKind::Via { next_hop } => by(next_hop),
            RouteKind::Multipath { group } => self
                .group(group)
                .is_some_and(|group| group.members().iter().any(|member| by(member.next_hop))),
            RouteKind::Local
            | RouteKind::Broadcast
            | RouteKind::Blackhole
            | RouteKind::Unreachable
            | RouteKind::NetworkUnreachable
            | RouteKind::Prohibit => false,
        }
    }

    /// The VRFs with routes into others.
    pub(super) fn leaking_vrfs(&self) -> impl Iterator<Item = VrfId> {
        let all = self.leaking.iter().filter_map(|vrf| self.vrf(*vrf));
        all.filter(|vrf| vrf.routes.has_leaks()).map(|vrf| vrf.id)
    }

    /// A route of a VRF came or went: its packets may leave elsewhere now, or no longer.
    pub(super) fn judge_leaks(&mut self, id: VrfId) {
        let Some(vrf) = self.vrf(id) else { return };
        let leaks = vrf.routes.has_leaks();
        if leaks == vrf.features.is_leaking {
            return;
        }
        let could = self.leaves_elsewhere();
        match leaks {
            true => Arc::make_mut(&mut self.leaking).insert(id),
            false => Arc::make_mut(&mut self.leaking).remove(&id),
        };
        if could != self.leaves_elsewhere() {
            self.egress_reads = self.reads_at_egress();
        }
        let Ok(vrf) = self.vrf_mut(id) else { return };
        let before = vrf.features.any();
        vrf.features.is_leaking = leaks;
        let after = vrf.features.any();
        self.count_featured(before, after);
        self.judge_rules(id);
    }

    /// Removes the routes of a VRF that goes which lead into others, and those of others into it.
    pub(super) fn remove_leaks(&mut self, id: VrfId) -> Result<(), TableError> {
        let own: Vec<_> = self.existing_vrf(id)?.routes.leaks().collect();
        for prefix in own {
            self.remove_route(id, prefix)?;
        }
        let is_into = |route: &&Route| route.kind == RouteKind::Vrf { vrf: id };
        let of_loose = self.loose_tables().flat_map(|(number, table)| {
            let into = table.routes().filter(is_into);
            into.map(move |route| (TableRef::Number(number), route.prefix))
        });
        let of_vrfs = self.leaking_vrfs().filter_map(|vrf| self.vrf(vrf)).flat_map(|vrf| {
            let leaks = vrf.routes.leaks().filter_map(|prefix| vrf.routes.route_of(prefix));
            leaks.filter(is_into).map(|route| (TableRef::Vrf(vrf.id), route.prefix))
        });
        for (table, prefix) in of_loose.chain(of_vrfs).collect::<Vec<_>>() {
            self.remove_route(table, prefix)?;
        }
        Ok(())
    }

    /// Removes routes in the tables of VRFs that led to a port which is gone from another one, and
    /// notes it. Their next hops are still held.
    pub(super) fn remove_stranded_leaks(
        &mut self,
        of: VrfId,
        is_stranded: &impl Fn(&&Route) -> bool,
    ) -> Result<BTreeSet<VrfId>, TableError> {
        let others: BTreeSet<_> = self.leaking_vrfs().filter(|vrf| *vrf != of).collect();
        let mut touched = BTreeSet::new();
        for vrf in others {
            let table = &self.existing_vrf(vrf)?.routes;
            let leaks = table.leaks().filter_map(|prefix| table.route_of(prefix));
            let stranded: Vec<_> = leaks.filter(is_stranded).map(|route| route.prefix).collect();
            for prefix in stranded {
                self.own_routes(vrf)?.remove(prefix);
                self.changed(Change::Route { table: vrf.into(), prefix });
                touched.insert(vrf);
            }
        }
        touched.iter().for_each(|vrf| self.judge_leaks(*vrf));
        Ok(touched)
    }
}
