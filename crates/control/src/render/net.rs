//! Ports, addresses, neighbours, routes and VRFs, as `ip` prints them.

use core::fmt::Write;
use std::net::IpAddr;

use api::{
    AddressView, InterfaceState, MemberView, NeighbourView, NextHopView, Origin, PortView, Request,
    RouteView, VrfView,
};
use types::{Ike, IpPrefix, LinkKind, ReversePath, RouteKind, Side};

use super::vrf;

pub(super) fn port(text: &mut String, view: &PortView) {
    let (flags, state) = match (view.link == LinkKind::Ethernet, view.up) {
        (true, true) => ("BROADCAST,MULTICAST,UP", "UP"),
        (true, false) if view.interface_state.is_some_and(|state| state != InterfaceState::Up) => {
            ("NO-CARRIER,BROADCAST,MULTICAST", "DOWN")
        }
        (true, false) => ("BROADCAST,MULTICAST", "DOWN"),
        (false, true) => ("POINTOPOINT,UP", "UP"),
        (false, false) => ("POINTOPOINT", "DOWN"),
    };
    let master =
        if view.vrf == api::MAIN_VRF { String::new() } else { format!(" master {}", view.vrf) };
    let on =
        view.interface.as_ref().map(|interface| format!(" on {interface}")).unwrap_or_default();
    let at = view.parent.as_ref().map(|parent| format!("@{parent}")).unwrap_or_default();
    let _ = writeln!(
        text,
        "{}: {}{at}: <{flags}> mtu {} {}{on}{master} state {state}",
        view.id, view.name, view.mtu, view.kind
    );
    if view.link == LinkKind::Ethernet {
        let _ = writeln!(text, "    link/ether {} brd ff:ff:ff:ff:ff:ff", view.mac);
    } else {
        let _ = writeln!(text, "    link/none");
    }
    if view.side != Side::Unset || view.rpf != ReversePath::Off {
        let by = view.tunnel_end.map(|end| format!(" (tunnel end {end})")).unwrap_or_default();
        let _ = writeln!(text, "    side {}{by} rpf {}", view.side, view.rpf);
    }
    if let Some(id) = view.vlan {
        let protocol = view.protocol.unwrap_or_default();
        let _ = writeln!(text, "    vlan protocol {protocol} id {id}");
    }
}

pub(super) fn addresses(text: &mut String, views: &[AddressView]) {
    let mut port = "";
    for view in views {
        if view.port != port {
            port = &view.port;
            let _ = writeln!(text, "{port}:{}", vrf(&view.vrf));
        }
        let (family, scope) = match view.address.address() {
            IpAddr::V4(_) => ("inet", "global"),
            IpAddr::V6(address) if address.is_unicast_link_local() => ("inet6", "link"),
            IpAddr::V6(_) => ("inet6", "global"),
        };
        let _ = writeln!(text, "    {family} {} scope {scope} {port}", view.address);
    }
}

pub(super) fn neighbour(text: &mut String, view: &NeighbourView) {
    let state = view.state.name().to_uppercase();
    let _ = writeln!(text, "{} dev {} lladdr {} {state}", view.address, view.port, view.mac);
}

pub(super) fn route(text: &mut String, request: &Request, view: &RouteView) {
    let asked = match request {
        Request::RouteGet(query) => Some(query.destination),
        _ => None,
    };
    if view.kind != RouteKind::Unicast {
        let _ = write!(text, "{} ", view.kind);
    }
    text.push_str(&asked.map_or_else(|| prefix(view.destination), |address| address.to_string()));
    if let Some(via) = view.via {
        let _ = write!(text, " via {via}");
    }
    if let Some(port) = &view.port {
        let _ = write!(text, " dev {port}");
    }
    if asked.is_none() {
        match view.origin {
            Origin::Gateway => text.push_str(" proto kernel"),
            Origin::Configuration => text.push_str(" proto static"),
            Origin::Runtime => {}
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
    if let Some(source) = view.source.filter(|_| asked.is_some() || view.origin == Origin::Gateway)
    {
        let _ = write!(text, " src {source}");
    }
    if view.metric != 0 && asked.is_none() {
        let _ = write!(text, " metric {}", view.metric);
    }
    text.push_str(&vrf(&view.vrf));
    if !view.usable {
        text.push_str(" dead");
    }
    text.push('\n');
    for MemberView { gateway, dev, weight, flags } in &view.nexthops {
        let _ = write!(text, "\tnexthop via {gateway}");
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
    let _ = writeln!(text, "Name              Table  IPsec\n------------------------------");
    for view in views {
        let closed = if view.closed { ", closed: no policies" } else { "" };
        let ike = match view.ike {
            Ike::Bypass => "",
            Ike::Policy => ", IKE by policy",
        };
        let _ = writeln!(text, "{:<16}  {:>5}  {}{closed}{ike}", view.name, view.id, view.ipsec);
    }
}

/// A prefix as iproute2 writes it: `default`, and one host without its length.
fn prefix(prefix: IpPrefix) -> String {
    match prefix.length() {
        0 => "default".to_owned(),
        _ if prefix.is_host() => prefix.address().to_string(),
        _ => prefix.to_string(),
    }
}
