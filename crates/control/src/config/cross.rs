//! What the tables of a file say of each other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use api::{
    FilterSpec, FilterTarget, MAIN_VRF, NeighbourSpec, PolicySpec, QdiscSpec, RouteKind, RouteSpec,
    RuleAction, RuleSpec, StateSpec,
};
use types::station::is_v6_link_local;
use types::{IpPrefix, LinkKind};

use super::diagnostic::{Errors, nearest};
use super::reader::quoted;
use super::{MAX_FAMILY, Said, VrfSettings};
use super::{circles, flows};
use crate::check::{self, KeyUses};
use crate::settings::{GatewaySettings, PortSettings, needs_large_buffers};

/// The names that the tables of a file give themselves, where not all of it could be read.
#[derive(Default)]
pub(super) struct Unread<'t> {
    pub(super) vrfs: HashSet<&'t str>,
    pub(super) ports: HashSet<&'t str>,
    /// Whether ports and VRFs are not what could not be read.
    pub(super) is_read: bool,
}

/// Names that exist, with where each VRF was given, and what was said of each port, as far as that
/// could be read.
struct Names<'t> {
    vrfs: HashMap<&'t str, Option<usize>>,
    ports: HashMap<&'t str, Option<&'t Said<'t, PortSettings>>>,
    /// Whether all ports and VRFs could be read.
    whole: bool,
}

/// What could be read.
pub(super) struct Read<'t> {
    pub(super) vrfs: Vec<Said<'t, VrfSettings>>,
    pub(super) ports: Vec<Said<'t, PortSettings>>,
    pub(super) qdiscs: Vec<Said<'t, QdiscSpec>>,
    pub(super) routes: Vec<Said<'t, RouteSpec>>,
    pub(super) rules: Vec<Said<'t, RuleSpec>>,
    pub(super) neighbours: Vec<Said<'t, NeighbourSpec>>,
    pub(super) states: Vec<Said<'t, StateSpec>>,
    pub(super) policies: Vec<Said<'t, PolicySpec>>,
    pub(super) filters: Vec<Said<'t, FilterSpec>>,
    pub(super) flows: Vec<Said<'t, String>>,
}

/// `unread` is there where something could not be read. Nothing is missed that may be in it.
pub(super) fn check<'t>(read: &'t Read<'t>, unread: Option<Unread<'t>>, errors: &mut Errors<'_>) {
    let Read { vrfs, ports, qdiscs, routes, rules, neighbours, states, policies, filters, flows } =
        read;
    let mut names = Names::new(unread);
    let mut tables: HashMap<u32, &Said<'_, VrfSettings>> = HashMap::new();
    for vrf in vrfs {
        if let Some(Some(first)) = names.vrfs.insert(&vrf.value.name, Some(vrf.table.at)) {
            errors.add_duplicate(
                vrf.table.place("name"),
                &format!("VRF {}", vrf.value.name),
                first,
            );
        }
        if let Some(table) = vrf.value.table
            && let Some(first) = tables.insert(table, vrf)
        {
            errors.add(
                vrf.table.place("table"),
                format!("table {table} is that of VRF {}", first.value.name),
                Some("a table of its own for each VRF".to_owned()),
            );
        }
    }
    for port in ports {
        if let Some(Some(first)) = names.ports.insert(&port.value.name, Some(port)) {
            errors.add_duplicate(
                port.table.place("name"),
                &format!("port {}", port.value.name),
                first.table.at,
            );
        }
    }
    check_ports(ports, &names, errors);
    check_qdiscs(qdiscs, &names, errors);
    check_routes(routes, ports, &tables, &names, errors);
    circles::check(routes, ports, errors);
    circles::check_recursive(routes, ports, errors);
    check_rules(rules, &names, errors);
    check_neighbours(neighbours, &names, errors);
    check_states(states, &names, errors);
    check_policies(policies, &names, errors);
    check_filters(filters, &names, errors);
    if names.whole {
        flows::check(read, flows, errors);
    }
}

/// A port whose frames are longer than any buffer would receive nothing.
pub(super) fn check_buffers(
    gateway: &GatewaySettings,
    ports: &[Said<'_, PortSettings>],
    errors: &mut Errors<'_>,
) {
    for port in ports {
        if gateway.large_buffers != Some(0) {
            continue;
        }
        let parent_of = |port: &PortSettings| {
            let (parent, _) = port.kind.vlan()?;
            ports.iter().map(|other| &other.value).find(|other| other.name == parent)
        };
        // More parents than that are refused elsewhere.
        let first = Some(&port.value);
        let family = || std::iter::successors(first, |port| parent_of(port)).take(MAX_FAMILY);
        if let Some(mtu) = family().find_map(|port| port.mtu)
            && needs_large_buffers(port.value.kind.link(), family().count() - 1, mtu)
        {
            errors.add(
                port.table.place("mtu"),
                format!("mtu = {mtu}, and [gateway] has large-buffers = 0"),
                Some("large-buffers of 256 or more, or a smaller mtu".to_owned()),
            );
        }
    }
}

fn check_rules(rules: &[Said<'_, RuleSpec>], names: &Names<'_>, errors: &mut Errors<'_>) {
    for (at, rule) in rules.iter().enumerate() {
        let spec = &rule.value;
        if let Some(first) = rules[..at].iter().find(|other| other.value == *spec) {
            let place = rule.table.place("priority");
            errors.add_duplicate(place, &crate::describe::rule(spec), first.table.at);
        }
        if let Some(iif) = spec.iif.as_deref().filter(|iif| *iif != "lo")
            && !names.vrfs.contains_key(iif)
        {
            names.check_port_of(rule, "iif", iif, errors);
        }
        if spec.iif.as_deref() == Some("lo") && names.ports.contains_key("lo") {
            errors.note(rule.table.at, check::LO_IS_NO_PORT);
        }
        if let Some(oif) = &spec.oif {
            names.check_vrf_at(rule, "oif", oif, errors);
        }
        if let Some(RuleAction::Vrf(vrf)) = &spec.action {
            names.check_vrf_at(rule, "vrf", vrf, errors);
        }
    }
}

fn check_ports(ports: &[Said<'_, PortSettings>], names: &Names<'_>, errors: &mut Errors<'_>) {
    let mut interfaces = HashMap::new();
    let mut addresses: HashMap<(&str, IpAddr), (&str, usize)> = HashMap::new();
    let mut links: HashMap<(&str, IpPrefix), &str> = HashMap::new();
    let (mut vlans, mut if_ids) = (HashMap::new(), HashMap::new());
    for port in ports {
        let settings = &port.value;
        names.check_vrf(port, &settings.vrf, errors);
        if let Some((dev, if_id)) = settings.kind.xfrm() {
            let of = names.check_port_of(port, "dev", dev, errors);
            if of.is_some_and(|of| of.kind.xfrm().is_some()) {
                errors.add(
                    port.table.place("dev"),
                    format!("port {dev} is an xfrm link, which outer packets never leave by"),
                    Some("a port that has frames".to_owned()),
                );
            }
            if let Some(first) = if_ids.insert(if_id, port.table.at) {
                let what = format!("if-id {}", if_id.number());
                errors.add_duplicate(port.table.place("if-id"), &what, first);
            }
        }
        if let Some((parent, tag)) = settings.kind.vlan() {
            check_vlan(port, parent, names, errors);
            if let Some(first) = vlans.insert((parent, tag), port.table.at) {
                let what = format!("{tag} of port {parent}");
                errors.add_duplicate(port.table.place("id"), &what, first);
            }
        }
        if let Some(interface) = settings.kind.interface()
            && let Some(first) = interfaces.insert(interface, port.table.at)
        {
            let at = if port.table.has("interface") {
                port.table.place("interface")
            } else {
                port.table.place("name")
            };
            errors.add_duplicate(at, &format!("interface {interface}"), first);
        }
        let at = port.table.place("addresses");
        for address in &settings.addresses {
            let own = address.address();
            // Every link has the same link-local prefix, and may have the same link-local addresses
            // (RFC 4291 section 2.5.6).
            if is_v6_link_local(own) {
                if settings.kind.xfrm().is_some()
                    && let Err(fault) = check::xfrm_address("addresses", *address)
                {
                    port.table.fault(fault, errors);
                }
                continue;
            }
            if let Some((other, first)) =
                addresses.insert((&settings.vrf, own), (&settings.name, at))
            {
                errors.add_duplicate(
                    at,
                    &format!("address {own} of port {other} in VRF {}", settings.vrf),
                    first,
                );
            } else if let Some(other) =
                links.insert((&settings.vrf, address.network()), &settings.name)
                && other != settings.name
            {
                errors.add(
                    at,
                    format!("{} is on the link of port {other} already", address.network()),
                    Some(
                        "two links of one VRF need two prefixes; or put the ports in two VRFs"
                            .to_owned(),
                    ),
                );
            }
        }
    }
}

/// Whether a port can have this VLAN, as far as that is known before it is opened.
fn check_vlan(
    port: &Said<'_, PortSettings>,
    parent: &str,
    names: &Names<'_>,
    errors: &mut Errors<'_>,
) {
    let Some(settings) = names.check_port_of(port, "parent", parent, errors) else { return };
    let at = port.table.place("parent");
    let above = settings.kind.vlan().and_then(|(above, _)| names.ports.get(above).copied());
    if above.flatten().is_some_and(|above| above.value.kind.vlan().is_some()) {
        let message =
            format!("port {parent} is a VLAN of a VLAN itself, and frames have two tags at most");
        errors.add(at, message, Some("the port whose VLAN that one is".to_owned()));
    } else if settings.kind.link() != LinkKind::Ethernet {
        errors.add(at, format!("port {parent} has no Ethernet, so no VLANs"), None);
    }
    if let (Some(mtu), Some(most)) = (port.value.mtu, settings.mtu)
        && mtu > most
    {
        let message = format!("mtu = {mtu}, and port {parent} has an mtu of {most}");
        errors.add(port.table.place("mtu"), message, Some(format!("{most} at most")));
    }
}

fn check_routes(
    routes: &[Said<'_, RouteSpec>],
    ports: &[Said<'_, PortSettings>],
    tables: &HashMap<u32, &Said<'_, VrfSettings>>,
    names: &Names<'_>,
    errors: &mut Errors<'_>,
) {
    let mut connected: HashMap<&str, Vec<(IpPrefix, &str)>> = HashMap::new();
    for port in ports {
        let links = connected.entry(&port.value.vrf).or_default();
        links.extend(
            port.value.addresses.iter().map(|address| (*address, port.value.name.as_str())),
        );
    }
    let mut seen = HashMap::new();
    for route in routes {
        let spec = &route.value;
        let vrf = names.check_vrf(route, &spec.vrf, errors);
        if let Some((number, owner)) = spec.table.and_then(|table| tables.get_key_value(&table)) {
            let name = &owner.value.name;
            let message = format!("table {number} is that of VRF {name}");
            errors.add(route.table.place("table"), message, Some(format!("vrf = \"{name}\"")));
            continue;
        }
        let place = (&spec.vrf, spec.table, spec.destination, spec.metric);
        if let Some(first) = seen.insert(place, route.table.at) {
            let what = format!("route {} with metric {}", spec.destination, spec.metric);
            errors.add_duplicate(route.table.place("to"), &what, first);
        }
        let of_members = spec.nexthops.iter().map(|one| ("next-hops", &one.port_vrf));
        let one = [("port-vrf", &spec.port_vrf), ("nexthop-vrf", &spec.nexthop_vrf)];
        for (part, other) in one.into_iter().chain(of_members) {
            if let Some(other) = other {
                names.check_vrf_at(route, part, other, errors);
            }
        }
        let own = connected.get(spec.vrf.as_str()).map_or(&[][..], Vec::as_slice);
        if let Some(source) = spec.prefsrc.filter(|_| vrf && names.whole && spec.table.is_none())
            && own.iter().all(|(own, _)| own.address() != source)
        {
            let message = format!("src {source} is no address of a port of VRF {}", spec.vrf);
            let hint = "an address of the gateway in the route's VRF".to_owned();
            errors.add(route.table.place("src"), message, Some(hint));
        }
        if spec.nexthop_vrf.is_some() {
            continue;
        }
        let links = connected.get(spec.vrf.as_str()).map_or(&[][..], Vec::as_slice);
        // Local and connected routes stand in the tables of VRFs.
        let made = links.iter().find(|(own, _)| made_by(own, spec.destination));
        if let Some((_, port)) = made.filter(|_| spec.table.is_none()) {
            let message =
                format!("the route to {} comes with an address of port {port}", spec.destination);
            errors.add(route.table.place("to"), message, Some("leave the route out".to_owned()));
        }
        let one = spec.nexthops.is_empty().then_some(Way {
            port: spec.port.as_deref(),
            port_vrf: spec.port_vrf.as_deref(),
            via: spec.via,
            onlink: spec.onlink,
            part: "port",
        });
        let several = spec.nexthops.iter().map(|one| Way {
            port: one.dev.as_deref(),
            port_vrf: one.port_vrf.as_deref(),
            via: one.gateway,
            onlink: one.onlink,
            part: "next-hops",
        });
        for Way { port, port_vrf, via, onlink, part } in one.into_iter().chain(several) {
            // Where its port is.
            let in_vrf = port_vrf.unwrap_or(&spec.vrf);
            let links = connected.get(in_vrf).map_or(&[][..], Vec::as_slice);
            let port = match port {
                None => None,
                Some(name) => match names.check_port(route, name, errors) {
                    None => continue,
                    Some(port) if port.vrf != in_vrf && spec.table.is_none() => {
                        let hint = match port_vrf {
                            None => format!(
                                "a port of the route's VRF; or port-vrf = \"{}\", for packets to \
                                leave there",
                                port.vrf
                            ),
                            Some(_) => "a port of that VRF".to_owned(),
                        };
                        let message = match port_vrf {
                            Some(said) => {
                                format!("port {name} is in VRF {}, and not in {said}", port.vrf)
                            }
                            None => format!(
                                "port {name} is in VRF {}, the route in {}",
                                port.vrf, spec.vrf
                            ),
                        };
                        errors.add(route.table.place(part), message, Some(hint));
                        continue;
                    }
                    Some(port) => Some(port),
                },
            };
            // A table that no VRF has may lead to ports of any.
            let links = match port.filter(|_| spec.table.is_some()) {
                Some(port) => connected.get(port.vrf.as_str()).map_or(&[][..], Vec::as_slice),
                None => links,
            };
            if let (true, RouteKind::Unicast, Some(via)) =
                (vrf && !onlink && !spec.recursive, spec.kind, via)
            {
                check_next_hop(route, via, (port, in_vrf), links, names.whole, errors);
            }
        }
    }
}

/// One way that a route leads, and the key that says it.
struct Way<'a> {
    port: Option<&'a str>,
    port_vrf: Option<&'a str>,
    via: Option<IpAddr>,
    onlink: bool,
    part: &'static str,
}

/// Whether a port's address makes the route to `prefix` itself: the address, its link, and the
/// link's broadcast address.
fn made_by(own: &IpPrefix, prefix: IpPrefix) -> bool {
    let is_broadcast = || {
        prefix.is_host()
            && own.address().is_ipv4()
            && own.length() < 31
            && own.range().last() == prefix.address()
    };
    !is_v6_link_local(own.address())
        && (own.network() == prefix || IpPrefix::host(own.address()) == prefix || is_broadcast())
}

fn check_next_hop(
    route: &Said<'_, RouteSpec>,
    via: IpAddr,
    (port, in_vrf): (Option<&PortSettings>, &str),
    links: &[(IpPrefix, &str)],
    whole: bool,
    errors: &mut Errors<'_>,
) {
    let is_one = route.value.nexthops.is_empty();
    let at = route.table.place(if is_one { "via" } else { "next-hops" });
    let on_link = |(prefix, name): &&(IpPrefix, &str)| {
        prefix.contains(via) && port.is_none_or(|port| port.name == *name)
    };
    let link_local = is_v6_link_local(via) && port.is_some();
    if !link_local && links.iter().find(on_link).is_none() {
        // It may be on a link whose address could not be read.
        if !whole {
            return;
        }
        let hint = match (port, links.iter().find(|(prefix, _)| prefix.contains(via))) {
            (Some(_), Some((_, other))) => format!("it is on the link of port {other}"),
            (Some(_), None) => "an address inside a prefix of the port".to_owned(),
            (None, _) => "an address inside a prefix of a port of the VRF".to_owned(),
        };
        let of = port.map_or_else(
            || format!("any port of VRF {in_vrf}"),
            |port| format!("port {}", port.name),
        );
        errors.add(at, format!("next hop {via} is not on the link of {of}"), Some(hint));
    } else if links.iter().any(|(own, _)| own.address() == via) {
        errors.add(
            at,
            format!("next hop {via} is the gateway itself"),
            Some("the address of another station".to_owned()),
        );
    }
}

fn check_qdiscs(qdiscs: &[Said<'_, QdiscSpec>], names: &Names<'_>, errors: &mut Errors<'_>) {
    let mut seen = HashMap::new();
    for qdisc in qdiscs {
        let QdiscSpec { dev, parent, .. } = &qdisc.value;
        if !names.ports.contains_key(dev.as_str()) && !names.vrfs.contains_key(dev.as_str()) {
            let known = names.ports.keys().chain(names.vrfs.keys()).copied();
            let hint = match nearest(dev, known) {
                Some(near) => format!("did you mean {near}?"),
                None => "the name of a port or VRF".to_owned(),
            };
            let message = format!("there is no port or VRF {}", quoted(dev));
            errors.add(qdisc.table.place("dev"), message, Some(hint));
        }
        let port = names.ports.get(dev.as_str()).copied().flatten();
        if port.is_some_and(|port| port.value.kind.xfrm().is_some()) {
            let message = format!("{dev} is an xfrm link: its packets leave by other ports");
            let hint = "a qdisc on the port that they leave by, encrypted".to_owned();
            errors.add(qdisc.table.place("dev"), message, Some(hint));
        }
        if let Some(first) = seen.insert((dev, parent.is_some()), qdisc.table.at) {
            let place = parent.map_or("root".to_owned(), |parent| format!("parent {parent}"));
            let what = format!("qdisc of {dev} {place}");
            errors.add_duplicate(qdisc.table.at, &what, first);
        }
    }
}

fn check_neighbours(
    neighbours: &[Said<'_, NeighbourSpec>],
    names: &Names<'_>,
    errors: &mut Errors<'_>,
) {
    let mut seen = HashMap::new();
    for neighbour in neighbours {
        let spec = &neighbour.value;
        let Some(port) = names.check_port(neighbour, &spec.port, errors) else { continue };
        if port.kind.link() != LinkKind::Ethernet {
            let message = format!("port {} has no Ethernet, so no neighbours", spec.port);
            errors.add(neighbour.table.place("port"), message, None);
        }
        if port.addresses.iter().any(|own| own.address() == spec.address) {
            let message = format!("{} is the port's own address", spec.address);
            errors.add(
                neighbour.table.place("address"),
                message,
                Some("the address of another station".to_owned()),
            );
        }
        if let Some(first) = seen.insert((&spec.port, spec.address), neighbour.table.at) {
            let what = format!("neighbour {} of port {}", spec.address, spec.port);
            errors.add_duplicate(neighbour.table.place("address"), &what, first);
        }
    }
}

fn check_states(states: &[Said<'_, StateSpec>], names: &Names<'_>, errors: &mut Errors<'_>) {
    let mut seen = HashMap::new();
    for state in states {
        let spec = &state.value;
        names.check_vrf(state, &spec.vrf, errors);
        if let Some(inner) = &spec.inner_vrf {
            names.check_vrf_at(state, "inner-vrf", inner, errors);
        }
        if let Some(first) = seen.insert((&spec.vrf, spec.destination, spec.spi), state.table.at) {
            let what = format!("the SA to {} with SPI {:#x}", spec.destination, spec.spi);
            errors.add_duplicate(state.table.place("spi"), &what, first);
        }
    }
}

/// Notes keys that somebody should know about: each kind of doubt once, at the first SA.
pub(super) fn note_keys(states: &[Said<'_, StateSpec>], errors: &mut Errors<'_>) {
    // The digests live as long as this call.
    let mut uses = KeyUses::new([0; 16]);
    let mut all: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for state in states {
        let shared = uses.add(&state.value).then(|| check::SHARED.to_owned());
        for doubt in check::doubts(&state.value).into_iter().chain(shared) {
            all.entry(doubt).or_insert((state.table.at, 0)).1 += 1;
        }
    }
    for (doubt, (at, count)) in all {
        match count {
            1 => errors.note(at, doubt),
            _ => errors.note(at, format!("{doubt}; so it is with {count} SAs, this is the first")),
        }
    }
}

fn check_policies(policies: &[Said<'_, PolicySpec>], names: &Names<'_>, errors: &mut Errors<'_>) {
    let mut seen = HashMap::new();
    for policy in policies {
        let spec = &policy.value;
        names.check_vrf(policy, &spec.vrf, errors);
        if let Some(outer) = spec.template.as_ref().and_then(|template| template.vrf.as_ref()) {
            names.check_vrf_at(policy, "template", outer, errors);
        }
        // Each was checked by itself before.
        let Ok(selector) = check::selector(&spec.selector) else { continue };
        let place = (&spec.vrf, spec.if_id, spec.direction, selector);
        if let Some(first) = seen.insert(place, policy.table.at) {
            let what = format!("a policy of direction {} with this selector", spec.direction);
            errors.add_duplicate(policy.table.at, &what, first);
        }
    }
}

fn check_filters(filters: &[Said<'_, FilterSpec>], names: &Names<'_>, errors: &mut Errors<'_>) {
    let mut seen = HashMap::new();
    for filter in filters {
        let spec = &filter.value;
        match &spec.target {
            FilterTarget::Dev(port) => _ = names.check_port(filter, port, errors),
            FilterTarget::Vrf(vrf) => _ = names.check_vrf(filter, vrf, errors),
        }
        let place = (&spec.target, spec.hook, spec.pref);
        if let Some(first) = seen.insert(place, filter.table.at) {
            let id = crate::describe::filter_id(&spec.target, spec.hook, spec.pref);
            let what = format!("the rule of {id}");
            errors.add_duplicate(filter.table.place("preference"), &what, first);
        }
    }
}

impl<'t> Names<'t> {
    /// With the names that `unread` has besides, of what could not be read.
    fn new(unread: Option<Unread<'t>>) -> Self {
        let whole = unread.as_ref().is_none_or(|unread| unread.is_read);
        let Unread { vrfs, ports, .. } = unread.unwrap_or_default();
        Self {
            vrfs: vrfs.into_iter().chain([MAIN_VRF]).map(|name| (name, None)).collect(),
            ports: ports.into_iter().map(|name| (name, None)).collect(),
            whole,
        }
    }

    fn check_vrf<T>(&self, said: &Said<'_, T>, name: &str, errors: &mut Errors<'_>) -> bool {
        self.check_vrf_at(said, "vrf", name, errors)
    }

    /// As [`Names::check_vrf`], of a VRF that another key names.
    fn check_vrf_at<T>(
        &self,
        said: &Said<'_, T>,
        key: &'static str,
        name: &str,
        errors: &mut Errors<'_>,
    ) -> bool {
        let known = self.vrfs.contains_key(name);
        if !known {
            let hint = match nearest(name, self.vrfs.keys().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("[[vrf]] with name = {}", quoted(name)),
            };
            errors.add(
                said.table.place(key),
                format!("there is no VRF {}", quoted(name)),
                Some(hint),
            );
        }
        known
    }

    fn check_port<T>(
        &self,
        said: &Said<'_, T>,
        name: &str,
        errors: &mut Errors<'_>,
    ) -> Option<&'t PortSettings> {
        self.check_port_of(said, "port", name, errors)
    }

    /// What was said of the port that the value of `key` names, which is to be there.
    fn check_port_of<T>(
        &self,
        said: &Said<'_, T>,
        key: &str,
        name: &str,
        errors: &mut Errors<'_>,
    ) -> Option<&'t PortSettings> {
        let known = self.ports.get(name);
        if known.is_none() {
            let hint = match nearest(name, self.ports.keys().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("[[port]] with name = {}", quoted(name)),
            };
            // Of several next hops, it is a part of one of them.
            let is_member = key == "port" && said.table.has("next-hops");
            let part = if is_member { "next-hops" } else { key };
            errors.add(
                said.table.place(part),
                format!("there is no port {}", quoted(name)),
                Some(hint),
            );
        }
        known.copied().flatten().map(|said| &said.value)
    }
}
