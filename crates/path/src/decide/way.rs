//! By which port a packet leaves, and by which it may have come: the ways out that routes lead to,
//! and the sides of the boundary on which their ports are.

use std::net::IpAddr;

use packet::DropReason;
use tables::limit::MAX_LEAKS;
use tables::{
    GroupId, NextHop, NextHopId, PathKey, PolicySlot, ReversePath, Route, RouteKind, SaIdentity,
    Side, TableRef, Tables, Vrf,
};
use wire::{Addresses, FlowKey, Origin, PortId, Upper, VrfId};

use super::question::Question;
use super::trace::{Step, Trace};
use super::{KeyView, is_link_local_v6};
use crate::decision::{Decision, Refusal, Verdict};

/// Where a packet goes that leaves in clear.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// No route leads there.
    None,
    NextHop(NextHopId),
    /// To a station on the port's link.
    OnLink(PortId, IpAddr),
}

/// A packet as it is routed, if it looks like `after` when it leaves: sources are translated after
/// that.
pub(super) fn routed(after: &FlowKey, received: &FlowKey) -> FlowKey {
    let upper = match (received.upper, after.upper) {
        (Upper::Ports { source, .. }, Upper::Ports { destination, .. }) => {
            Upper::Ports { source, destination }
        }
        (received, _) => received,
    };
    let addresses = match (received.addresses, after.addresses) {
        (Addresses::V4 { source, .. }, Addresses::V4 { destination, .. }) => {
            Addresses::V4 { source, destination }
        }
        (Addresses::V6 { source, .. }, Addresses::V6 { destination, .. }) => {
            Addresses::V6 { source, destination }
        }
        (_, after) => after,
    };
    FlowKey { addresses, upper, ..*after }
}

/// Where a route leads into the table of another VRF: there, and no further than
/// [`MAX_LEAKS`] VRFs. Policy rules are asked for the first lookup alone, and own
/// addresses are those of the packet's VRF alone.
///
/// Beside [`Deciding`](super::Deciding), as what calls it need not be in memory then.
#[cold]
#[inline(never)]
pub(super) fn led_on(
    into: VrfId,
    destination: IpAddr,
    (key, tunnel): (impl KeyView, Option<&SaIdentity>),
    tables: &Tables,
    trace: &mut impl Trace,
) -> Result<Way, Verdict> {
    let mut last = None;
    for (vrf, route) in tables.leak_steps(into, destination).take(MAX_LEAKS) {
        trace.asks(|| Question::Route { vrf: vrf.id, address: destination });
        tell_route(destination, || (vrf.id.into(), route), tables, trace);
        last = route;
    }
    let refuse = |why, how| Err(Verdict::Refuse(why, how));
    match last.map(|route| route.kind) {
        None => Ok(Way::None),
        Some(RouteKind::Connected { port }) => Ok(Way::OnLink(port, destination)),
        Some(RouteKind::Via { next_hop }) => Ok(Way::NextHop(next_hop)),
        Some(RouteKind::Multipath { group }) => {
            Ok(one_of(group, destination, key, tunnel, tables, trace))
        }
        Some(RouteKind::Vrf { .. }) => refuse(DropReason::RouteLoop, Refusal::HostUnreachable),
        Some(RouteKind::Local) => refuse(DropReason::RouteUnreachable, Refusal::HostUnreachable),
        Some(kind @ (RouteKind::Unreachable | RouteKind::NetworkUnreachable)) => {
            refuse(DropReason::RouteUnreachable, told_of(kind, destination))
        }
        Some(RouteKind::Prohibit) => refuse(DropReason::RouteProhibit, Refusal::Prohibited),
        Some(RouteKind::Broadcast) => Err(Verdict::Drop(DropReason::NotUnicast)),
        Some(RouteKind::Blackhole) => Err(Verdict::Drop(DropReason::RouteBlackhole)),
    }
}

/// What a sender is told of a route or rule that is unreachable, as by Linux: of an IPv4 route that
/// the host is (`RTN_UNREACHABLE`, `-EHOSTUNREACH`), of a rule that the network is
/// (`-ENETUNREACH`), and of both for IPv6 that there is no route (`ip6_pkt_discard`).
#[cold]
pub(super) fn told_of(kind: RouteKind, destination: IpAddr) -> Refusal {
    match (kind, destination) {
        (RouteKind::Unreachable, IpAddr::V4(_)) => Refusal::HostUnreachable,
        _ => Refusal::NoRoute,
    }
}

#[inline(always)]
pub(super) fn tell_route<'t>(
    destination: IpAddr,
    found: impl FnOnce() -> (TableRef, Option<&'t Route>),
    tables: &'t Tables,
    trace: &mut impl Trace,
) {
    trace.step(|| {
        let (table, route) = found();
        let next_hop = || match route?.kind {
            RouteKind::Via { next_hop } => tables.next_hop(next_hop),
            _ => None,
        };
        let port = || match route?.kind {
            RouteKind::Connected { port } => tables.port(port),
            RouteKind::Via { .. } => tables.port(next_hop()?.port),
            _ => None,
        };
        Step::Route {
            destination,
            route,
            table,
            port: match route.map(|route| route.kind) {
                Some(RouteKind::Vrf { vrf }) => tables.vrf(vrf).map(|vrf| &*vrf.name),
                _ => port().map(|port| &*port.spec.name),
            },
            via: next_hop().and_then(|next_hop| next_hop.address),
        }
    });
}

/// The next hop of a multipath route that packets of a flow take, or those of a tunnel. That it may
/// be another one after a change belongs to [`Question::Route`].
///
/// Apart, so that routes with one next hop have nothing of it.
#[cold]
#[inline(never)]
pub(super) fn one_of(
    group: GroupId,
    destination: IpAddr,
    key: impl KeyView,
    tunnel: Option<&SaIdentity>,
    tables: &Tables,
    trace: &mut impl Trace,
) -> Way {
    let Some(group) = tables.group(group) else { return Way::None };
    let hash = tables.path_hash(&match tunnel {
        Some(tunnel) => PathKey::of_tunnel(tunnel.source, tunnel.destination),
        None => PathKey::of(&key.flow()),
    });
    let chosen = group.choose(hash);
    trace.step(|| Step::Member { group, hash, chosen, tables });
    let Some(member) = group.members().get(chosen) else { return Way::None };
    match tables.next_hop(member.next_hop) {
        Some(&NextHop { port, address: None, .. }) => Way::OnLink(port, destination),
        _ => Way::NextHop(member.next_hop),
    }
}

/// Whether a packet crosses the boundary of a VRF that is closed. What the gateway itself answers
/// does not.
#[cold]
#[inline(never)]
pub(super) fn crosses(key: impl KeyView, way: Way, tables: &Tables) -> bool {
    let leaves_inside = exit_side(way, tables) == Some(Side::Protected);
    match key.origin() {
        Origin::Host => false,
        Origin::HostError(port) => exit_port(way, tables) != Some(port) && !leaves_inside,
        Origin::Port(_) => entry_side(key, tables) != Some(Side::Protected) || !leaves_inside,
        Origin::Sa(_) | Origin::HostProtected => !leaves_inside,
    }
}

/// The side of the port that a clear packet came by.
#[inline(always)]
pub(super) fn entry_side(key: impl KeyView, tables: &Tables) -> Option<Side> {
    match key.origin() {
        Origin::Port(port) => Some(tables.boundary(port).side),
        Origin::Sa(_) | Origin::Host | Origin::HostError(_) | Origin::HostProtected => None,
    }
}

/// The side of the port by which a packet leaves in clear; none if no route leads there.
#[inline(always)]
pub(super) fn exit_side(way: Way, tables: &Tables) -> Option<Side> {
    match way {
        Way::None => None,
        Way::NextHop(next_hop) => Some(tables.next_hop(next_hop)?.side),
        Way::OnLink(port, _) => Some(tables.boundary(port).side),
    }
}

/// The port by which a packet leaves in clear.
pub(super) fn exit_port(way: Way, tables: &Tables) -> Option<PortId> {
    match way {
        Way::None => None,
        Way::NextHop(next_hop) => Some(tables.next_hop(next_hop)?.port),
        Way::OnLink(port, _) => Some(port),
    }
}

/// Why a clear packet's source is none that its port may receive from, as the routes have it.
#[cold]
#[inline(never)]
pub(super) fn judge_source(
    port: PortId,
    source: IpAddr,
    vrf: &Vrf,
    tables: &Tables,
    trace: &mut impl Trace,
) -> Option<DropReason> {
    let port = tables.port(port)?;
    if is_link_local_v6(source) {
        return None;
    }
    for (vrf, _) in tables.leak_steps(vrf.id, source) {
        trace.asks(|| Question::Route { vrf: vrf.id, address: source });
    }
    let leads_by = || tables.ports_to(vrf, source);
    let is_inside = port.side == Side::Unprotected
        && leads_by().any(|port| tables.boundary(port).side == Side::Protected);
    let leads_back = match port.spec.reverse_path {
        ReversePath::Off => true,
        ReversePath::Loose => leads_by().next().is_some(),
        ReversePath::Feasible => leads_by().any(|by| by == port.id),
        ReversePath::Strict => leads_by().next().is_some() && leads_by().all(|by| by == port.id),
    };
    trace.step(|| Step::Source { source, port, is_inside, leads_back });
    match (is_inside, leads_back) {
        (true, _) => Some(DropReason::SourceProtected),
        (false, false) => Some(DropReason::ReversePath),
        (false, true) => None,
    }
}

/// The packet leaves in clear. A function beside [`Deciding`](super::Deciding), which so need not be
/// in memory.
#[inline(always)]
pub(super) fn clear(
    way: Way,
    inbound: Option<PolicySlot>,
    outbound: Option<PolicySlot>,
    tables: &Tables,
    trace: &mut impl Trace,
    decision: &mut Decision,
) {
    match next_hop(way, tables, trace) {
        Ok(next_hop) => *decision = Decision::new(Verdict::Forward(next_hop), inbound, outbound),
        Err(verdict) => *decision = Decision::new(verdict, inbound, outbound),
    }
}

/// The object that stands for a way out, or what becomes of a packet that has none.
#[inline(always)]
pub(super) fn next_hop(
    way: Way,
    tables: &Tables,
    trace: &mut impl Trace,
) -> Result<NextHopId, Verdict> {
    let next_hop = match way {
        Way::None => return Err(Verdict::Refuse(DropReason::NoRoute, Refusal::NoRoute)),
        Way::NextHop(next_hop) => next_hop,
        Way::OnLink(port, address) => {
            trace.asks(|| Question::OnLink(address));
            let next_hop = tables.on_link_next_hop(port, address);
            next_hop.ok_or(Verdict::Drop(DropReason::PortDown))?
        }
    };
    trace.step_if(|| {
        let on_link = match way {
            Way::OnLink(_, address) => Some(address),
            Way::None | Way::NextHop(_) => None,
        };
        Step::neighbour(next_hop, on_link, tables)
    });
    Ok(next_hop)
}
