//! On which side of the IPsec boundary ports are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use types::{ReversePath, Side};
use wire::{IpPrefix, PortId, VrfId};

use super::Tables;
use crate::error::TableError;
use crate::log::Change;
use crate::route::{Route, RouteKind};
use crate::vrf::Vrf;

/// A port at the IPsec boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// On which side it is.
    pub side: Side,
    /// Whether sources of clear packets that come by it are held against the routes: its own `rpf`
    /// asks for that, or it is on the unprotected side and there are ports on the protected one.
    pub judges_sources: bool,
}

impl Tables {
    /// A port at the IPsec boundary; one that is not there has no side.
    #[inline(always)]
    pub fn boundary(&self, port: PortId) -> Boundary {
        self.boundary.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// Whether any port is on the protected side.
    #[inline(always)]
    pub fn has_protected_ports(&self) -> bool {
        self.protected_ports > 0
    }

    /// A tunnel's end that makes a port an unprotected one: one of its addresses, or the remote end
    /// of a tunnel that leaves by it.
    pub fn tunnel_end_at(&self, port: PortId) -> Option<IpAddr> {
        self.tunnel_ends.first_at(port)
    }

    /// The ports by which packets to an address may leave; none if they leave by none.
    pub fn ports_to<'t>(&'t self, vrf: &'t Vrf, address: IpAddr) -> impl Iterator<Item = PortId> {
        let last = self.leak_steps(vrf.id, address).last();
        let kind = last.and_then(|(_, route)| route).map(|route| route.kind);
        let next_hop = |id| self.next_hop(id).map(|next_hop| next_hop.port);
        let one = match kind {
            Some(RouteKind::Connected { port }) => Some(port),
            Some(RouteKind::Via { next_hop: id }) => next_hop(id),
            _ => None,
        };
        let members = match kind {
            Some(RouteKind::Multipath { group }) => self.group(group).map(|group| group.members()),
            _ => None,
        };
        let members = members.unwrap_or_default().iter();
        one.into_iter().chain(members.filter_map(move |member| next_hop(member.next_hop)))
    }

    /// One more SA or template names these ends of a tunnel.
    pub(super) fn hold_tunnel(
        &mut self,
        vrf: VrfId,
        ends: [Option<IpAddr>; 2],
    ) -> Result<(), TableError> {
        for end in ends.into_iter().flatten() {
            if Arc::make_mut(&mut self.tunnel_ends).hold(vrf, end) {
                self.tunnels_may_lead_elsewhere_to(vrf, IpPrefix::host(end))?;
            }
        }
        Ok(())
    }

    /// One SA or template less names these ends of a tunnel.
    pub(super) fn release_tunnel(
        &mut self,
        vrf: VrfId,
        ends: [Option<IpAddr>; 2],
    ) -> Result<(), TableError> {
        for end in ends.into_iter().flatten() {
            for port in Arc::make_mut(&mut self.tunnel_ends).release(vrf, end) {
                self.judge_side(port)?;
            }
        }
        Ok(())
    }

    /// The addresses or the routes of a VRF have changed.
    pub(super) fn tunnels_may_lead_elsewhere(&mut self, vrf: VrfId) -> Result<(), TableError> {
        self.place_tunnels(vrf, None)?;
        self.place_leaking_tunnels(vrf, None)
    }

    /// The route to these addresses of a VRF has changed.
    pub(super) fn tunnels_may_lead_elsewhere_to(
        &mut self,
        vrf: VrfId,
        prefix: IpPrefix,
    ) -> Result<(), TableError> {
        self.place_tunnels(vrf, Some(prefix))?;
        self.place_leaking_tunnels(vrf, Some(prefix))
    }

    /// The same for tunnels of other VRFs, whose routes may lead into this one.
    fn place_leaking_tunnels(
        &mut self,
        into: VrfId,
        prefix: Option<IpPrefix>,
    ) -> Result<(), TableError> {
        let leaks = |vrf: &VrfId| self.vrf(*vrf).is_some_and(|vrf| vrf.routes.has_leaks());
        let others: Vec<_> =
            self.tunnel_ends.vrfs().filter(|vrf| *vrf != into).filter(leaks).collect();
        others.into_iter().try_for_each(|vrf| self.place_tunnels(vrf, prefix))
    }

    fn place_tunnels(&mut self, id: VrfId, prefix: Option<IpPrefix>) -> Result<(), TableError> {
        if self.tunnel_ends.within(id, prefix).next().is_none() {
            return Ok(());
        }
        let vrf = self.existing_vrf(id)?;
        // Few ends are ours, and of many the same.
        let mut owners: BTreeMap<IpAddr, Option<PortId>> = BTreeMap::new();
        let owner = |end| self.ports_of(id).find(|port| port.owns(end)).map(|port| port.id);
        let mut ports_of = |end: IpAddr| -> Box<[PortId]> {
            let mut ports: Vec<_> = match vrf.route(end) {
                Some(Route { kind: RouteKind::Local, .. }) => {
                    (*owners.entry(end).or_insert_with(|| owner(end))).into_iter().collect()
                }
                _ => self.ports_to(vrf, end).collect(),
            };
            ports.sort_unstable();
            ports.dedup();
            ports.into()
        };
        let elsewhere: Vec<_> = self
            .tunnel_ends
            .within(id, prefix)
            .map(|(end, before)| (end, before, ports_of(end)))
            .filter(|(_, before, now)| **before != **now)
            .map(|(end, _, now)| (end, now))
            .collect();
        if elsewhere.is_empty() {
            return Ok(());
        }
        let mut concerned = Vec::new();
        let ends = Arc::make_mut(&mut self.tunnel_ends);
        for (end, now) in elsewhere {
            concerned.extend_from_slice(&now);
            concerned.extend(ends.place(id, end, &now));
        }
        concerned.sort_unstable();
        concerned.dedup();
        concerned.into_iter().try_for_each(|port| self.judge_side(port))
    }

    /// Makes a port's side what it is now. A port that is gone has none.
    pub(super) fn judge_side(&mut self, id: PortId) -> Result<(), TableError> {
        let Some(port) = self.port(id) else { return Ok(()) };
        let side = match port.spec.side {
            Side::Unset if self.tunnel_ends.are_at(id) => Side::Unprotected,
            configured => configured,
        };
        if port.side != side {
            let (old, vrf) = (port.clone(), port.spec.vrf);
            self.port_mut(id)?.side = side;
            self.refresh_next_hops(&old)?;
            self.changed(Change::Port(id));
            self.changed(Change::Vrf(vrf));
            self.draw_boundary(id);
        }
        Ok(())
    }

    /// Notes what decisions ask of a port that came, went or became another.
    pub(super) fn draw_boundary(&mut self, id: PortId) {
        let had_inside = self.has_protected_ports();
        let is_protected = |side| usize::from(side == Side::Protected);
        self.protected_ports -= is_protected(self.boundary(id).side);
        self.protected_ports += self.port(id).map_or(0, |port| is_protected(port.side));
        if had_inside != self.has_protected_ports() {
            // What is judged on the other side follows from it.
            let of = |number| self.boundary_of(PortId(number));
            self.boundary = (0..=u16::MAX).take(self.ports.places()).map(of).collect();
            return;
        }
        let boundary = self.boundary_of(id);
        if self.boundary(id) == boundary {
            return;
        }
        if self.boundary.len() < self.ports.places() {
            let more = self.ports.places() - self.boundary.len();
            let more = core::iter::repeat_n(Boundary::default(), more);
            self.boundary = self.boundary.iter().copied().chain(more).collect();
        }
        Arc::make_mut(&mut self.boundary)[usize::from(id.0)] = boundary;
    }

    /// One that is gone has no side.
    fn boundary_of(&self, id: PortId) -> Boundary {
        let Some(port) = self.port(id) else { return Boundary::default() };
        let judges_sources = port.spec.reverse_path != ReversePath::Off
            || (port.side == Side::Unprotected && self.has_protected_ports());
        Boundary { side: port.side, judges_sources }
    }
}
