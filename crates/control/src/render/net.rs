//! Ports, addresses, neighbours, routes and VRFs, as `ip` prints them.

use api::{
    AddressFilter, AddressView, LinkCounts, LinkData, LinkView, MemberView, NeighbourView,
    NextHopView, Origin, Request, RouteView, RuleView, VrfView,
};
use core::fmt::Write;
use types::{Ike, IpPrefix, MssClamp, ReversePath, RouteKind, RouteProtocol, Side};

use super::{Options, vrf};
use crate::grammar::scope_of;

pub(super) fn link(text: &mut String, view: &LinkView, options: Options) {
    link_head(text, view);
    if view.side != Side::Unset || view.rpf != ReversePath::Off {
        let by = view.tunnel_end.map(|end| format!(" (tunnel end {end})")).unwrap_or_default();
        let _ = writeln!(text, "    side {}{by} rpf {}", view.side, view.rpf);
    }
    if view.mss != MssClamp::Off {
        let _ = writeln!(text, "    mss {}", view.mss);
    }
    if !view.features.is_empty() {
        let _ = writeln!(text, "    with {}", view.features.join(" "));
    }
    if let Some(if_id) = view.linkinfo.info_data.as_ref().and_then(|data| data.if_id.as_ref()) {
        let _ = writeln!(text, "    xfrm if_id {if_id}");
    }
    if let Some(LinkData { protocol: Some(protocol), id: Some(id), .. }) = &view.linkinfo.info_data
    {
        let _ = writeln!(text, "    vlan protocol {protocol} id {id}");
    }
    if options.details {
        let table = |data: &Option<LinkData>| data.as_ref().and_then(|data| data.table);
        if let Some(table) = table(&view.linkinfo.info_data) {
            let _ = writeln!(text, "    vrf table {table}");
        }
        if let Some(table) = table(&view.linkinfo.info_slave_data) {
            let _ = writeln!(text, "    vrf_slave table {table}");
        }
    }
    if options.statistics {
        for (direction, counts) in [("RX", view.stats64.rx), ("TX", view.stats64.tx)] {
            let LinkCounts { bytes, packets, errors, dropped } = counts;
            let heading = format!("{direction}:");
            let _ = writeln!(
                text,
                "    {heading} {:>13} {:>12} {:>7} {:>7}\n        {bytes:>13} {packets:>12} \
                {errors:>7} {dropped:>7}",
                "bytes", "packets", "errors", "dropped"
            );
        }
    }
}

/// The lines of a link that stand above its addresses, too.
fn link_head(text: &mut String, view: &LinkView) {
    let kind = &view.linkinfo.info_kind;
    let master = view.master.as_ref().map(|vrf| format!(" master {vrf}")).unwrap_or_default();
    let on =
        view.interface.as_ref().map(|interface| format!(" on {interface}")).unwrap_or_default();
    let _ = writeln!(
        text,
        "{}: {}: <{}> mtu {} {kind}{on}{master} state {}",
        view.ifindex,
        name_at(view),
        view.flags.join(","),
        view.mtu,
        view.operstate
    );
    match (view.address, view.broadcast) {
        (Some(address), Some(broadcast)) => {
            let _ = writeln!(text, "    link/{} {address} brd {broadcast}", view.link_type);
        }
        _ => _ = writeln!(text, "    link/{}", view.link_type),
    }
}

pub(super) fn link_in_brief(text: &mut String, view: &LinkView) {
    let address = view.address.map(|address| format!("{address} ")).unwrap_or_default();
    let flags = view.flags.join(",");
    let _ = writeln!(text, "{:<16} {:<14} {address}<{flags}>", name_at(view), view.operstate);
}

/// `wan.100@wan`
fn name_at(view: &LinkView) -> String {
    let at = view.link.as_ref().map(|parent| format!("@{parent}")).unwrap_or_default();
    view.ifname.clone() + &at
}

/// Links with their addresses. As with iproute2, those without addresses are among them unless
/// addresses of one family or prefix were asked for.
pub(super) fn links_with_addresses<'v>(
    request: &Request,
    views: &'v [AddressView],
    links: &'v [LinkView],
) -> Vec<(&'v LinkView, Vec<&'v AddressView>)> {
    let asks = |filter: &AddressFilter| filter.family.is_some() || filter.within.is_some();
    let has_some = matches!(request, Request::AddressList(filter) if asks(filter));
    let own = |link: &LinkView| views.iter().filter(|it| it.port == link.ifname).collect();
    let all = links.iter().map(|link| -> (_, Vec<_>) { (link, own(link)) });
    all.filter(|(_, own)| !has_some || !own.is_empty()).collect()
}

pub(super) fn addresses_in_brief(text: &mut String, link: &LinkView, own: &[&AddressView]) {
    let all: Vec<_> = own.iter().map(|view| view.address.to_string()).collect();
    let _ = writeln!(text, "{:<16} {:<14} {}", name_at(link), link.operstate, all.join(" "));
}

pub(super) fn addresses_by_line(text: &mut String, link: &LinkView, own: &[&AddressView]) {
    for view in own {
        let _ = write!(text, "{}: {}    ", link.ifindex, link.ifname);
        address(text, view);
    }
}

/// An address by itself, as `ip monitor` prints it.
pub(super) fn address_of_port(text: &mut String, view: &AddressView) {
    let _ = write!(text, "{}:    ", view.port);
    address(text, view);
}

pub(super) fn neighbour_in_brief(text: &mut String, view: &NeighbourView) {
    let _ = writeln!(text, "{:<39} {:<16} {}", view.address.to_string(), view.port, view.mac);
}

pub(super) fn addresses(text: &mut String, link: &LinkView, own: &[&AddressView]) {
    link_head(text, link);
    for view in own {
        text.push_str("    ");
        address(text, view);
    }
}

fn address(text: &mut String, view: &AddressView) {
    let is_v4 = view.address.address().is_ipv4();
    let (family, name) = if is_v4 { ("inet", view.port.as_str()) } else { ("inet6", "nodad") };
    let scope = scope_of(view.address).name();
    let _ = writeln!(
        text,
        "{family} {} scope {scope} {name}\n       valid_lft forever preferred_lft forever",
        view.address
    );
}

pub(super) fn neighbour(text: &mut String, view: &NeighbourView) {
    let state = view.state.name().to_uppercase();
    let _ = writeln!(text, "{} dev {} lladdr {} {state}", view.address, view.port, view.mac);
}

pub(super) fn rule(text: &mut String, view: &RuleView) {
    let with = |length: Option<u8>| length.map(|it| format!("/{it}")).unwrap_or_default();
    let _ = write!(text, "{}:\tfrom {}{}", view.priority, view.src, with(view.srclen));
    if let Some(to) = &view.dst {
        let _ = write!(text, " to {to}{}", with(view.dstlen));
    }
    if let Some(mark) = &view.fwmark {
        let mask = view.fwmask.as_ref().map(|mask| format!("/{mask}")).unwrap_or_default();
        let _ = write!(text, " fwmark {mark}{mask}");
    }
    let detached = |is: bool| if is { " [detached]" } else { "" };
    if let Some(iif) = &view.iif {
        let _ = write!(text, " iif {iif}{}", detached(view.iif_detached));
    }
    if let Some(oif) = &view.oif {
        let _ = write!(text, " oif {oif}{}", detached(view.oif_detached));
    }
    if let Some(protocol) = &view.ipproto {
        let _ = write!(text, " ipproto {protocol}");
    }
    for (key, one, first, last) in [
        ("sport", view.sport, view.sport_start, view.sport_end),
        ("dport", view.dport, view.dport_start, view.dport_end),
    ] {
        match (one, first.zip(last)) {
            (Some(port), _) => _ = write!(text, " {key} {port}"),
            (None, Some((first, last))) => _ = write!(text, " {key} {first}-{last}"),
            (None, None) => {}
        }
    }
    if let Some(dscp) = &view.dscp {
        let _ = write!(text, " dscp {dscp}");
    }
    if let Some(table) = &view.table {
        let _ = write!(text, " lookup {table}{}", detached(view.table_detached));
    }
    if let Some(length) = view.suppress_prefixlen {
        let _ = write!(text, " suppress_prefixlength {length}");
    }
    if view.l3mdev {
        text.push_str(" lookup [l3mdev-table]");
    }
    if let Some(to) = view.goto {
        let _ = write!(text, " goto {to}{}", if view.unresolved { " [unresolved]" } else { "" });
    }
    if let Some(action) = &view.action {
        let _ = write!(text, " {action}");
    }
    if view.origin == Origin::Configuration {
        text.push_str(" proto static");
    }
    text.push('\n');
}

pub(super) fn route(text: &mut String, request: &Request, view: &RouteView) {
    let query = match request {
        Request::RouteGet(query) => Some(query),
        _ => None,
    };
    let asked = query.map(|query| query.destination);
    if view.kind != RouteKind::Unicast {
        let _ = write!(text, "{} ", view.kind);
    }
    text.push_str(&asked.map_or_else(|| prefix(view.destination), |address| address.to_string()));
    if let Some(from) = query.and_then(|query| query.from) {
        let _ = write!(text, " from {from}");
    }
    if let Some(via) = view.via {
        let _ = write!(text, " via {via}");
    }
    // As iproute2 does for a route into the table of a VRF.
    if let Some(port) = view.port.as_ref().or(view.nexthop_vrf.as_ref()) {
        let _ = write!(text, " dev {port}");
    }
    if asked.is_none() {
        if let Some(protocol) = view.protocol.filter(|it| *it != RouteProtocol::BOOT) {
            let _ = write!(text, " proto {protocol}");
        }
        match (view.kind, view.via) {
            (RouteKind::Local, _) => text.push_str(" scope host"),
            _ if !view.nexthops.is_empty() => {}
            (RouteKind::Broadcast, _) | (RouteKind::Unicast, None) => text.push_str(" scope link"),
            _ => {}
        }
    }
    // As iproute2 does, the source address is told where it is asked for and where it comes with
    // the link.
    if let Some(source) = view.prefsrc.filter(|_| asked.is_none()) {
        let _ = write!(text, " src {source}");
    }
    // What comes by a port has a source already.
    let is_own = query.map_or(view.origin == Origin::Gateway, |query| query.iif.is_none());
    if let Some(source) = view.source.filter(|_| is_own) {
        let _ = write!(text, " src {source}");
    }
    if view.metric != 0 && asked.is_none() {
        let _ = write!(text, " metric {}", view.metric);
    }
    match view.vrf.is_empty() {
        false => text.push_str(&vrf(&view.vrf)),
        // Of a table that was asked for, iproute2 does not say it.
        true if !matches!(request, Request::RouteList(filter) if filter.table.is_some()) => {
            let _ = write!(text, " table {}", view.table);
        }
        true => {}
    }
    if let Some(query) = query {
        if query.mark != 0 {
            let _ = write!(text, " mark {:#x}", query.mark);
        }
        if let Some(iif) = &query.iif {
            let _ = write!(text, " iif {iif}");
        }
    }
    if view.onlink && asked.is_none() {
        text.push_str(" onlink");
    }
    if view.recursive {
        text.push_str(" recursive");
    }
    if !view.usable {
        text.push_str(" dead");
    }
    text.push('\n');
    for MemberView { gateway, dev, flags, .. } in &view.resolved {
        text.push_str("\tresolved");
        if let Some(gateway) = gateway {
            let _ = write!(text, " via {gateway}");
        }
        let _ = write!(text, " dev {}", dev.as_deref().unwrap_or("?"));
        flags.iter().for_each(|flag| _ = write!(text, " {flag}"));
        text.push('\n');
    }
    if let Some(why) = &view.unresolved {
        let _ = writeln!(text, "\tunresolved: {why}");
    }
    for MemberView { gateway, dev, weight, flags, .. } in &view.nexthops {
        text.push_str("\tnexthop");
        if let Some(gateway) = gateway {
            let _ = write!(text, " via {gateway}");
        }
        if let Some(port) = dev {
            let _ = write!(text, " dev {port}");
        }
        let _ = write!(text, " weight {weight}");
        flags.iter().for_each(|flag| _ = write!(text, " {flag}"));
        text.push('\n');
    }
}

pub(super) fn next_hop(text: &mut String, view: &NextHopView) {
    let address = view.address.map_or_else(|| "on-link".to_owned(), |to| to.to_string());
    let _ = writeln!(
        text,
        "id {} {address} dev {}{} {} mtu {} packets {} bytes {}",
        view.id,
        view.port,
        vrf(&view.vrf),
        view.state,
        view.mtu,
        view.packets,
        view.bytes
    );
}

pub(super) fn vrfs(text: &mut String, views: &[VrfView]) {
    let width = views.iter().map(|view| view.table.to_string().len()).fold(5, usize::max);
    let _ =
        writeln!(text, "{:<16}  {:>width$}  IPsec\n{}", "Name", "Table", "-".repeat(25 + width));
    for view in views {
        let closed = if view.closed { ", closed: no policies" } else { "" };
        let ike = match view.ike {
            Ike::Bypass => "",
            Ike::Policy => ", IKE by policy",
        };
        let share = match view.highest_share {
            100 => String::new(),
            share => format!(", at most {share} % of what VRFs share"),
        };
        let with = match view.features.as_slice() {
            [] => String::new(),
            features => format!(", with {}", features.join(" ")),
        };
        let (name, table, ipsec) = (&view.name, view.table, view.ipsec);
        let _ = writeln!(text, "{name:<16}  {table:>width$}  {ipsec}{closed}{ike}{share}{with}");
    }
}

/// A prefix as iproute2 writes it: `default`, and one host without its length.
pub(super) fn prefix(prefix: IpPrefix) -> String {
    match prefix.length() {
        0 => "default".to_owned(),
        _ if prefix.is_host() => prefix.address().to_string(),
        _ => prefix.to_string(),
    }
}
