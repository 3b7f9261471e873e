//! Routes and next hops as they are shown.

use std::net::IpAddr;

use api::{
    MemberSpec, MemberView, NextHopView, Origin, Refusal, RefusalCode, RouteFilter,
    RouteKind as Kind, RouteQuery, RouteSpec, RouteView,
};
use tables::{
    NextHopState, Port, RouteKind, RouteSpec as TableRoute, RuleAction, RuleFlow, TableId,
    TableRef, Tables, own_priority,
};
use types::{Dscp, IpPrefix, PortId, Protocol, RouteProtocol};

use super::desired::{Desired, DesiredRoute};
use super::recursive::{self, Routes};
use super::routes::{matches, member, of_filter, on_link, places, protocol_of, resolve, usable};

/// Routes as they are, by VRF, then prefix, then metric.
pub(super) fn list(
    tables: &Tables,
    desired: &Desired,
    filter: &RouteFilter,
) -> Result<Vec<RouteView>, Refusal> {
    let mut views = Vec::new();
    if let Some(port) = filter.port.as_ref().filter(|name| !desired.vrfs.contains_key(*name)) {
        desired.port(port)?;
    }
    for table in of_filter(tables, desired, filter)? {
        if let TableRef::Vrf(vrf) = table
            && let Some(found) = tables.vrf(vrf)
        {
            let made = found.routes().filter(|route| tables.comes_with_port(vrf, route));
            views.extend(made.map(|route| made_view(tables, found, route)));
        }
        for place in places(desired, table) {
            let alternatives = desired.routes.get(&place).map_or(&[][..], Vec::as_slice);
            let active = active(tables, &desired.routes, place, alternatives);
            views.extend(alternatives.iter().map(|entry| {
                let is_active = active == Some(entry.spec.metric);
                view(tables, &desired.routes, table, entry, is_active)
            }));
        }
    }
    views.retain(|view| {
        (filter.protocol.is_none() || filter.protocol == view.protocol)
            && (filter.all || !matches!(view.kind, Kind::Local | Kind::Broadcast))
            && {
                let several = view.nexthops.iter();
                let several = several.map(|one| (one.dev.as_deref(), one.gateway));
                let by = view.port.as_deref().or(view.nexthop_vrf.as_deref());
                let ways: Vec<_> = several.chain([(by, view.via)]).collect();
                matches(filter, view.destination, view.kind, &ways)
            }
    });
    views.sort_by(|a, b| {
        let key = |view: &RouteView| {
            (view.destination.address().is_ipv6(), view.destination, view.metric)
        };
        let of = |view: &RouteView| {
            let loose = if view.vrf.is_empty() { view.table } else { 0 };
            (loose, view.vrf != api::MAIN_VRF)
        };
        (of(a), &a.vrf, key(a)).cmp(&(of(b), &b.vrf, key(b)))
    });
    Ok(views)
}

/// The route that a destination takes.
pub(super) fn query(
    tables: &Tables,
    desired: &Desired,
    query: &RouteQuery,
) -> Result<RouteView, Refusal> {
    let Asked { of, rule, table: vrf, route } = match query.table {
        Some(number) => {
            let table = desired.table(tables, &query.vrf, query.table)?;
            let routes = tables.routing_table(table);
            let route = routes.and_then(|routes| routes.route(query.destination));
            Asked { of: format!("table {number}"), rule: None, table, route }
        }
        None => by_rules(tables, desired, query)?,
    };
    let none = || {
        let message = format!("{of} has no route to {}", query.destination);
        Refusal::new(RefusalCode::NotFound, message)
    };
    let route = route.ok_or_else(none)?;
    let owner = match vrf {
        TableRef::Vrf(vrf) => tables.vrf(vrf),
        TableRef::Number(_) => None,
    };
    let mut found = if let Some(owner) = owner.filter(|_| tables.comes_with_port(vrf, route)) {
        made_view(tables, owner, route)
    } else {
        let place = (vrf, route.prefix);
        let alternatives = desired.routes.get(&place).ok_or_else(none)?;
        let metric = active(tables, &desired.routes, place, alternatives).ok_or_else(none)?;
        let entry =
            alternatives.iter().find(|entry| entry.spec.metric == metric).ok_or_else(none)?;
        view(tables, &desired.routes, vrf, entry, true)
    };
    if let Some(what) = refuses(found.kind) {
        let to = query.destination;
        let by = rule.map(|rule| format!(", to which rule {rule} leads")).unwrap_or_default();
        let message = format!("{to} {what} by the route {}{by}", in_words(&found));
        return Err(Refusal::new(RefusalCode::NotFound, message));
    }
    if let Some(port) = found.port.as_ref().and_then(|name| tables.port_named(name)) {
        let usual = || match query.destination {
            IpAddr::V4(_) => port.source_for(found.via.unwrap_or(query.destination)),
            // RFC 6724 is about the destination, and not about the next hop.
            IpAddr::V6(_) => {
                let asking = desired.vrf(vrf_of(desired, query)).ok()?;
                tables.source_in(asking, port.id, query.destination)
            }
        };
        found.source = found.prefsrc.or_else(usual);
    }
    Ok(found)
}

/// What becomes of a destination by a route that leads nowhere. As with `ip`, asking for the route
/// is an error then.
fn refuses(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Prohibit => Some("is prohibited"),
        Kind::Blackhole => Some("is dropped"),
        Kind::Unreachable => Some("is made unreachable"),
        _ => None,
    }
}

/// A route that leads nowhere, and whose it is.
fn in_words(route: &RouteView) -> String {
    let metric = match route.metric {
        0 => String::new(),
        metric => format!(" metric {metric}"),
    };
    let of = match &*route.vrf {
        "" => format!("table {}", route.table),
        vrf => format!("VRF {vrf}"),
    };
    format!("{} {}{metric} of {of}", route.kind, route.destination)
}

/// The route that a question finds.
struct Asked<'t> {
    /// What was asked, in words.
    of: String,
    /// Which policy rule finds it, if rules were asked.
    rule: Option<u32>,
    /// In which table.
    table: TableRef,
    route: Option<&'t tables::Route>,
}

/// The VRF that asks: in which the packet came, or in which the gateway sends.
fn vrf_of<'a>(desired: &'a Desired, query: &'a RouteQuery) -> &'a str {
    match &query.iif {
        Some(iif) => desired.ports.get(iif).map_or(iif, |port| &port.vrf),
        None => &query.vrf,
    }
}

/// The route that policy rules find for a packet.
fn by_rules<'t>(
    tables: &'t Tables,
    desired: &Desired,
    query: &RouteQuery,
) -> Result<Asked<'t>, Refusal> {
    let mut name = query.vrf.as_str();
    let mut port = None;
    if let Some(iif) = &query.iif {
        match desired.ports.get(iif) {
            Some(found) => (name, port) = (&found.vrf, Some(found.id)),
            None if desired.vrfs.contains_key(iif) => name = iif,
            None => _ = desired.port(iif)?,
        }
        if query.vrf != api::MAIN_VRF && query.vrf != name {
            let message = format!("what comes by {iif} is in VRF {name}, and not in {}", query.vrf);
            return Err(Refusal::new(RefusalCode::Invalid, message).with_hint("leave vrf out"));
        }
    }
    let id = desired.vrf(name)?;
    let of = format!("VRF {name}");
    let Some(vrf) = tables.vrf(id) else {
        return Ok(Asked { of, rule: None, table: id.into(), route: None });
    };
    let nobody = match query.destination {
        IpAddr::V4(_) => IpAddr::V4(0.into()),
        IpAddr::V6(_) => IpAddr::V6(0.into()),
    };
    let flow = RuleFlow {
        vrf: id,
        port,
        is_own: query.iif.is_none(),
        source: query.from.unwrap_or(nobody),
        destination: query.destination,
        protocol: Protocol(0),
        ports: None,
        dscp: Dscp::default(),
    };
    let ruled = tables.ruled_route(vrf, &flow, query.mark);
    let action = ruled.rule.map(|rule| (rule.action, rule.priority));
    let is_own =
        |route: &tables::Route| matches!(route.kind, RouteKind::Local | RouteKind::Broadcast);
    match (action, ruled.kind) {
        (Some((_, priority)), Some(RouteKind::Unreachable)) if ruled.route.is_some_and(is_own) => {
            let to = query.destination;
            let message =
                format!("{to}, to which rule {priority} leads, is an own address of another VRF");
            Err(Refusal::new(RefusalCode::NotFound, message))
        }
        (Some((RuleAction::Table { table, .. }, priority)), _) => {
            let table = tables.vrf_of_table(table).map_or(TableRef::Number(table), TableRef::Vrf);
            Ok(Asked { of, rule: Some(priority), table, route: ruled.route })
        }
        (Some((_, priority)), Some(kind)) if ruled.route.is_none() => {
            let what = refuses(match kind {
                RouteKind::Prohibit => Kind::Prohibit,
                RouteKind::Blackhole => Kind::Blackhole,
                _ => Kind::Unreachable,
            });
            let what = what.unwrap_or_default();
            let message = format!("{} {what} by rule {priority}", query.destination);
            Err(Refusal::new(RefusalCode::NotFound, message))
        }
        (action, _) => {
            let rule = Some(action.map_or(own_priority(id), |(_, priority)| priority));
            Ok(Asked { of, rule, table: id.into(), route: ruled.route })
        }
    }
}

/// The metric of the route that packets take, of all of one prefix.
pub(super) fn active(
    tables: &Tables,
    routes: &Routes,
    (vrf, prefix): (TableRef, IpPrefix),
    alternatives: &[DesiredRoute],
) -> Option<u32> {
    let table = tables.routing_table(vrf)?;
    let current = table.route_of(prefix);
    let current = current.filter(|route| !tables.comes_with_port(vrf, route))?;
    let current = tables.route_spec(current.kind)?;
    let source = table.source_of(prefix);
    let used = |entry: &&DesiredRoute| {
        entry.spec.prefsrc == source
            && usable(tables, routes, vrf, &entry.spec).as_ref() == Some(&current)
    };
    alternatives.iter().find(used).map(|entry| entry.spec.metric)
}

pub(super) fn view(
    tables: &Tables,
    routes: &Routes,
    vrf: TableRef,
    entry: &DesiredRoute,
    active: bool,
) -> RouteView {
    let spec = &entry.spec;
    let found = spec
        .via
        .filter(|_| spec.recursive)
        .map(|via| recursive::resolve(tables, routes, (vrf, spec.destination), via));
    let port = match resolve(tables, vrf, spec) {
        _ if spec.recursive => None,
        Ok(TableRoute::Via { port, .. } | TableRoute::Connected { port }) => tables.port(port),
        _ => None,
    };
    // RFC 6724 is about the destination, and not about the next hop.
    let peer = spec.via.filter(IpAddr::is_ipv4).unwrap_or_else(|| spec.destination.address());
    let (name, number) = match vrf {
        TableRef::Vrf(vrf) => {
            (spec.vrf.clone(), tables.vrf(vrf).map_or(TableId::MAIN, |vrf| vrf.table))
        }
        TableRef::Number(number) => (String::new(), number),
    };
    RouteView {
        vrf: name,
        table: number.0,
        destination: spec.destination,
        kind: spec.kind,
        via: spec.via,
        port: port.map(|port| port.spec.name.to_string()).or_else(|| spec.port.clone()),
        port_vrf: spec.port_vrf.clone(),
        onlink: spec.onlink,
        recursive: spec.recursive,
        resolved: match &found {
            Some(Ok(found)) => resolved_view(tables, found),
            _ => Vec::new(),
        },
        unresolved: found.and_then(Result::err).map(|why| why.to_string()),
        prefsrc: spec.prefsrc,
        nexthop_vrf: spec.nexthop_vrf.clone(),
        source: spec.prefsrc.or_else(|| port.and_then(|port| port.source_for(peer))),
        nexthops: spec.nexthops.iter().map(|one| member_view(tables, vrf, spec, one)).collect(),
        metric: spec.metric,
        active,
        usable: usable(tables, routes, vrf, spec).is_some(),
        origin: entry.origin,
        protocol: Some(protocol_of(entry)),
    }
}

/// The next hops on links that a recursive one comes to.
fn resolved_view(tables: &Tables, found: &TableRoute) -> Vec<MemberView> {
    let one = |port: PortId, gateway: Option<IpAddr>, weight: u16| {
        let port = tables.port(port);
        let is_up = port.is_some_and(|port| port.spec.up);
        MemberView {
            gateway,
            dev: port.map(|port| port.spec.name.to_string()),
            port_vrf: None,
            weight,
            flags: if is_up { Vec::new() } else { vec!["dead".to_owned()] },
        }
    };
    match found {
        TableRoute::Via { port, address } | TableRoute::Onlink { port, address } => {
            vec![one(*port, Some(*address), 1)]
        }
        TableRoute::Multipath(members) => {
            members.iter().map(|it| one(it.port, it.address, it.weight)).collect()
        }
        _ => Vec::new(),
    }
}

fn member_view(tables: &Tables, vrf: TableRef, spec: &RouteSpec, one: &MemberSpec) -> MemberView {
    let port = member(tables, vrf, spec, one).ok().and_then(|member| tables.port(member.port));
    let is_up = port.is_some_and(|port| port.spec.up);
    let is_alive = is_up && on_link(tables, vrf, spec, one).is_some();
    let flags = [(one.onlink, "onlink"), (!is_alive, "dead")];
    MemberView {
        gateway: one.gateway,
        dev: port.map(|port| port.spec.name.to_string()).or_else(|| one.dev.clone()),
        port_vrf: one.port_vrf.clone(),
        weight: one.weight,
        flags: flags.iter().filter(|(is, _)| *is).map(|(_, flag)| (*flag).to_owned()).collect(),
    }
}

/// Every next hop, by VRF, port and address, and what was sent by it.
pub(super) fn next_hops(tables: &Tables) -> Vec<NextHopView> {
    let view = |(id, next_hop): (tables::NextHopId, &tables::NextHop)| {
        let port = tables.port(next_hop.port)?;
        let (packets, bytes) = tables.next_hop_counters(id)?.read();
        let state = match next_hop.state {
            NextHopState::Resolved | NextHopState::Queued => "resolved",
            NextHopState::Pending => "pending",
            NextHopState::OnLink => "on-link",
            NextHopState::Down => "down",
        };
        Some(NextHopView {
            id: id.0,
            vrf: tables.vrf(port.spec.vrf)?.name.to_string(),
            port: port.spec.name.to_string(),
            address: next_hop.address,
            state: state.to_owned(),
            mtu: next_hop.mtu,
            packets,
            bytes,
        })
    };
    let mut views: Vec<_> = tables.next_hops().filter_map(view).collect();
    views.sort_by(|a, b| {
        let is_other = |view: &NextHopView| view.vrf != api::MAIN_VRF;
        (is_other(a), &a.vrf, &a.port, a.address).cmp(&(is_other(b), &b.vrf, &b.port, b.address))
    });
    views
}

/// A route that comes with an address of a port.
fn made_view(tables: &Tables, vrf: &tables::Vrf, route: &tables::Route) -> RouteView {
    let address = route.prefix.address();
    let (kind, port) = match route.kind {
        RouteKind::Connected { port } => (Kind::Unicast, tables.port(port)),
        RouteKind::Broadcast => (Kind::Broadcast, None),
        _ => (Kind::Local, None),
    };
    let in_vrf = |port: &&Port| port.spec.vrf == vrf.id;
    let port = port.or_else(|| {
        tables.ports().filter(in_vrf).find(|port| match kind {
            Kind::Local => port.owns(address),
            _ => port
                .spec
                .addresses
                .iter()
                .any(|own| own.address().is_ipv4() && own.range().last() == address),
        })
    });
    let up = port.is_none_or(|port| port.spec.up);
    RouteView {
        vrf: vrf.name.to_string(),
        table: vrf.table.0,
        destination: route.prefix,
        kind,
        via: None,
        port: port.map(|port| port.spec.name.to_string()),
        port_vrf: None,
        onlink: false,
        prefsrc: None,
        recursive: false,
        resolved: Vec::new(),
        unresolved: None,
        nexthop_vrf: None,
        source: if kind == Kind::Local {
            Some(address)
        } else {
            port.and_then(|port| port.source_for(address))
        },
        nexthops: Vec::new(),
        metric: 0,
        active: up,
        usable: up,
        origin: Origin::Gateway,
        protocol: Some(RouteProtocol::KERNEL),
    }
}
