//! Replies as JSON with iproute2's member names, as `ip -j` has them; `ip -j xfrm` has none, so
//! those are the words of ip-xfrm(8). What has no place in iproute2's is beside them under names of
//! our own. The control socket's names are others: see the crate `api`.

use std::net::IpAddr;

use api::{
    AddressView, AlgorithmView, LinkView, MAIN_VRF, MemberView, MonitorView, NeighbourView,
    PolicyAction, PolicyView, Reply, Request, RouteFilter, RouteView, StateView, Template,
};
use serde_json::{Map, Value};
use types::{RouteKind, RouteProtocol};

use super::Options;
use crate::grammar::{Scope, scope_of};

/// iproute2's number for a lifetime without end.
const FOREVER: u32 = u32::MAX;

/// The answer to `request` for programs. `links` are those of an answer with addresses.
///
/// # Errors
/// If a part of it cannot be written as JSON.
pub fn json(
    request: &Request,
    reply: &Reply,
    links: &[LinkView],
    options: Options,
) -> serde_json::Result<Value> {
    let all = |views: Vec<serde_json::Result<Value>>| {
        views.into_iter().collect::<serde_json::Result<Vec<_>>>().map(Value::Array)
    };
    match reply {
        Reply::Routes(views) => {
            all(views.iter().map(|view| route(request, view, options)).collect())
        }
        Reply::Neighbours(views) => all(views.iter().map(neighbour).collect()),
        Reply::Addresses(views) => addresses(request, views, links, options),
        Reply::Links(views) if options.brief => {
            let brief = |view| Ok(Value::Object(in_brief(view, &["address", "flags"])?));
            all(views.iter().map(brief).collect())
        }
        Reply::States(views) => all(views.iter().map(state).collect()),
        Reply::Policies(views) => all(views.iter().map(policy).collect()),
        Reply::Count(count) => Ok(serde_json::json!({ "count": count })),
        _ => plain(reply),
    }
}

/// What has changed, with the members that [`json`] has of it. An address has its port as `dev`.
///
/// # Errors
/// As [`json`].
pub fn json_of_change(view: &MonitorView) -> serde_json::Result<Value> {
    match view {
        MonitorView::Link(view) => serde_json::to_value(view),
        MonitorView::Address(view) => {
            let mut object = address(view)?;
            if let Some(object) = object.as_object_mut() {
                object.insert("dev".to_owned(), view.port.clone().into());
            }
            Ok(object)
        }
        MonitorView::Route(view) => {
            route(&Request::RouteList(RouteFilter::default()), view, Options::default())
        }
        MonitorView::Neighbour(view) => neighbour(view),
        MonitorView::Rule(view) => serde_json::to_value(view),
        MonitorView::State(view) => state(view),
        MonitorView::Policy(view) => policy(view),
    }
}

/// The answer as the control socket has it, without the envelope if it is an object or a list.
///
/// # Errors
/// As [`json`].
pub fn plain(reply: &Reply) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(reply)?;
    Ok(match value.get_mut("of") {
        Some(of) if of.is_object() || of.is_array() => of.take(),
        _ => value,
    })
}

/// An object that is made member by member. What is absent is left out.
#[derive(Default)]
struct Object(Map<String, Value>);

impl Object {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    fn some(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    fn text(&mut self, name: &str, value: Option<impl ToString>) {
        self.some(name, value.map(|value| value.to_string()));
    }

    /// What is said only if it is so.
    fn flag(&mut self, name: &str, is: bool) {
        if is {
            self.put(name, true);
        }
    }

    fn done(self) -> serde_json::Result<Value> {
        Ok(Value::Object(self.0))
    }
}

fn route(request: &Request, view: &RouteView, options: Options) -> serde_json::Result<Value> {
    let query = match request {
        Request::RouteGet(query) => Some(query),
        _ => None,
    };
    let mut object = Object::default();
    if view.kind != RouteKind::Unicast || options.details {
        object.put("type", view.kind.name());
    }
    object.put(
        "dst",
        query.map_or_else(
            || super::net::prefix(view.destination),
            |query| query.destination.to_string(),
        ),
    );
    object.text("from", query.and_then(|query| query.from));
    object.text("gateway", view.via);
    object.some("dev", view.port.clone().or_else(|| view.nexthop_vrf.clone()));
    let protocol = view.protocol.filter(|it| options.details || *it != RouteProtocol::BOOT);
    let scope = match view.kind {
        RouteKind::Local => Some("host"),
        RouteKind::Unicast if !view.nexthops.is_empty() => None,
        RouteKind::Broadcast => Some("link"),
        RouteKind::Unicast if view.via.is_none() => Some("link"),
        _ => None,
    };
    let is_v4 = view.destination.address().is_ipv4();
    let scope = scope.filter(|_| is_v4).or(options.details.then_some("global"));
    let is_main = view.vrf == MAIN_VRF;
    if !is_main || options.details {
        // As iproute2 has it, a number in quotes.
        let table = if is_main { MAIN_VRF.to_owned() } else { view.table.to_string() };
        object.put("table", table);
    }
    if query.is_none() {
        object.text("protocol", protocol);
        object.some("scope", scope);
        let source = view.prefsrc.or_else(|| {
            view.source.filter(|_| is_v4 && view.protocol == Some(RouteProtocol::KERNEL))
        });
        object.text("prefsrc", source);
        if view.metric != 0 {
            object.put("metric", view.metric);
        }
    } else {
        object.text("prefsrc", view.source.filter(|_| query.is_some_and(|it| it.iif.is_none())));
        object.some("iif", query.and_then(|query| query.iif.clone()));
        object.some(
            "mark",
            query.filter(|query| query.mark != 0).map(|query| format!("{:#x}", query.mark)),
        );
    }
    let mut flags = Vec::new();
    flags.extend(view.onlink.then_some("onlink"));
    flags.extend((!view.usable).then_some("dead"));
    object.put("flags", flags);
    if !view.nexthops.is_empty() {
        object.put("nexthops", members(&view.nexthops));
    }
    // Beyond iproute2.
    if !view.vrf.is_empty() {
        object.put("vrf", view.vrf.clone());
    }
    object.some("port_vrf", view.port_vrf.clone());
    object.some("nexthop_vrf", view.nexthop_vrf.clone());
    object.flag("recursive", view.recursive);
    if !view.resolved.is_empty() {
        object.put("resolved", members(&view.resolved));
    }
    object.some("unresolved", view.unresolved.clone());
    object.text("source", view.source);
    if query.is_some() {
        object.put("route", super::net::prefix(view.destination));
        if view.metric != 0 {
            object.put("metric", view.metric);
        }
    }
    object.put("active", view.active);
    object.put("origin", serde_json::to_value(view.origin)?);
    object.done()
}

fn members(all: &[MemberView]) -> Vec<Value> {
    let one = |MemberView { gateway, dev, port_vrf, weight, flags }: &MemberView| {
        let mut object = Object::default();
        object.text("gateway", *gateway);
        object.some("dev", dev.clone());
        object.put("weight", *weight);
        object.put("flags", flags.clone());
        object.some("port_vrf", port_vrf.clone());
        Value::Object(object.0)
    };
    all.iter().map(one).collect()
}

fn neighbour(view: &NeighbourView) -> serde_json::Result<Value> {
    let mut object = Object::default();
    object.put("dst", view.address.to_string());
    object.put("dev", view.port.clone());
    object.put("lladdr", view.mac.to_string());
    object.put("state", vec![view.state.name().to_uppercase()]);
    // Beyond iproute2.
    object.put("vrf", view.vrf.clone());
    object.put("origin", serde_json::to_value(view.origin)?);
    object.some("age_ms", view.age_ms);
    object.done()
}

/// What `-br` has of a link, with these members besides.
fn in_brief(link: &LinkView, more: &[&str]) -> serde_json::Result<Map<String, Value>> {
    let Value::Object(mut object) = serde_json::to_value(link)? else { return Ok(Map::new()) };
    object.retain(|name, _| {
        ["link", "ifname", "operstate"].contains(&name.as_str()) || more.contains(&name.as_str())
    });
    Ok(object)
}

/// Links with their addresses.
fn addresses(
    request: &Request,
    views: &[AddressView],
    links: &[LinkView],
    options: Options,
) -> serde_json::Result<Value> {
    let mut objects = Vec::new();
    for (link, own) in super::net::links_with_addresses(request, views, links) {
        if options.brief {
            let mut object = in_brief(link, &[])?;
            let brief = |view: &AddressView| {
                let (address, length) = (view.address.address(), view.address.length());
                serde_json::json!({ "local": address, "prefixlen": length })
            };
            object.insert("addr_info".to_owned(), own.into_iter().map(brief).collect());
            objects.push(Value::Object(object));
            continue;
        }
        let mut object = serde_json::to_value(link)?;
        let infos: serde_json::Result<Vec<_>> = own.into_iter().map(address).collect();
        if let Some(object) = object.as_object_mut() {
            // What `ip addr` does not have; `link show` does.
            for name in ["linkinfo", "stats64", "side", "tunnel_end", "rpf", "mss", "features"] {
                object.remove(name);
            }
            object.insert("addr_info".to_owned(), Value::Array(infos?));
        }
        objects.push(object);
    }
    Ok(Value::Array(objects))
}

fn address(view: &AddressView) -> serde_json::Result<Value> {
    let mut object = Object::default();
    let address = view.address.address();
    object.put("family", if address.is_ipv4() { "inet" } else { "inet6" });
    object.put("local", address.to_string());
    object.put("prefixlen", view.address.length());
    object.put("scope", scope_of(view.address).name());
    if scope_of(view.address) == Scope::Global && address.is_ipv4() {
        object.put("label", view.port.clone());
    }
    if address.is_ipv6() {
        object.put("nodad", true);
    }
    object.put("valid_life_time", FOREVER);
    object.put("preferred_life_time", FOREVER);
    // Beyond iproute2.
    object.put("vrf", view.vrf.clone());
    object.put("origin", serde_json::to_value(view.origin)?);
    object.done()
}

fn state(view: &StateView) -> serde_json::Result<Value> {
    let mut object = Object::default();
    object.put("src", view.source.to_string());
    object.put("dst", view.destination.to_string());
    object.put("proto", "esp");
    object.put("spi", view.spi);
    object.put("reqid", view.reqid);
    object.put("mode", view.mode.name());
    object.put("replay_window", view.replay_window);
    let flags: Vec<_> = view.flags.iter().map(|flag| flag.name()).collect();
    object.put("flag", flags);
    object.some("auth_trunc", algorithm(view.authentication.as_ref())?);
    object.some("enc", algorithm(view.encryption.as_ref())?);
    object.some("aead", algorithm(view.aead.as_ref())?);
    object.put("replay_seq", view.received_sequence);
    object.put("replay_oseq", view.sent_sequence);
    object.some("if_id", if_id(view.if_id));
    // Beyond iproute2.
    object.some("awaited_seq", view.awaited_sequence);
    object.put("vrf", view.vrf.clone());
    object.some("inner_vrf", view.inner_vrf.clone());
    object.put("newest", view.newest);
    object.some("age_seconds", view.age_seconds);
    object.put("origin", serde_json::to_value(view.origin)?);
    object.put("packets", view.traffic.packets);
    object.put("bytes", view.traffic.bytes);
    object.put("errors", serde_json::to_value(view.errors)?);
    object.done()
}

/// With the key, if it was asked for.
fn algorithm(view: Option<&AlgorithmView>) -> serde_json::Result<Option<Value>> {
    view.map(serde_json::to_value).transpose()
}

/// As iproute2 has it for links: in hexadecimal, and not at all if there is none.
fn if_id(number: u32) -> Option<String> {
    (number != 0).then(|| format!("{number:#x}"))
}

fn policy(view: &PolicyView) -> serde_json::Result<Value> {
    let spec = &view.spec;
    let selector = &spec.selector;
    let mut object = Object::default();
    object.text("src", selector.source);
    object.text("dst", selector.destination);
    object.text("proto", selector.protocol);
    object.text("sport", selector.source_ports);
    object.text("dport", selector.destination_ports);
    object.text("type", selector.icmp_type);
    object.text("code", selector.icmp_code);
    object.text("dscp", selector.dscp);
    object.text("tcp_flags", selector.tcp_flags);
    object.some("ttl", selector.ttl);
    object.put("dir", spec.direction.name());
    let is_block = spec.action == PolicyAction::Discard;
    object.put("action", if is_block { "block" } else { "allow" });
    object.put("index", view.index);
    object.put("priority", spec.priority);
    object.put("ptype", "main");
    // A list, as Linux may have several.
    object.put("tmpl", spec.template.iter().map(template).collect::<Vec<_>>());
    object.some("if_id", if_id(spec.if_id));
    // Beyond iproute2.
    object.text("name", spec.name);
    if spec.if_id == 0 {
        object.put("vrf", spec.vrf.clone());
    }
    object.put("does", spec.action.name());
    object.some("position", (view.position != 0).then_some(view.position));
    object.put("origin", serde_json::to_value(view.origin)?);
    object.put("packets", view.traffic.packets);
    object.put("bytes", view.traffic.bytes);
    object.done()
}

fn template(template: &Template) -> Value {
    let any = match template.destination {
        IpAddr::V4(_) => "0.0.0.0",
        IpAddr::V6(_) => "::",
    };
    let mut object = Object::default();
    object.put("src", template.source.map_or_else(|| any.to_owned(), |it| it.to_string()));
    object.put("dst", template.destination.to_string());
    object.some("vrf", template.vrf.clone());
    object.put("proto", "esp");
    object.some("spi", template.spi);
    object.put("reqid", template.reqid);
    object.put("mode", template.mode.name());
    Value::Object(object.0)
}
