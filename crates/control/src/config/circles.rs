//! Routes that lead in a circle: into the tables of other VRFs, or by recursive next hops.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use api::RouteSpec;
use tables::limit::MAX_LEAKS;
use types::IpPrefix;

use super::Said;
use super::diagnostic::Errors;
use crate::check::circle::{Says, circle, fault};
use crate::settings::PortSettings;

/// Where the first of a prefix's routes in a VRF leads.
#[derive(Clone, Copy)]
struct Way<'t> {
    metric: u32,
    /// The VRF whose table says more, and the position of the route.
    into: Option<(&'t str, usize)>,
}

/// The routes of each VRF, as a packet finds them while all ports are up.
type Ways<'t> = HashMap<(&'t str, IpPrefix), Way<'t>>;

/// Refuses routes by which packets to the first of their destinations would be led on from VRF to
/// VRF without end, or more often than a packet is; each circle once. It is what the commands that
/// add routes refuse. What becomes of other destinations, each packet finds out.
pub(super) fn check(
    routes: &[Said<'_, RouteSpec>],
    ports: &[Said<'_, PortSettings>],
    errors: &mut Errors<'_>,
) {
    if routes.iter().all(|route| route.value.nexthop_vrf.is_none()) {
        return;
    }
    let ways = ways(routes, ports);
    let mut told = BTreeSet::new();
    for (at, route) in routes.iter().enumerate() {
        let Some(into) = &route.value.nexthop_vrf else { continue };
        let first = route.value.destination.network().address();
        let (mut vrf, mut names, mut on_way) = (into.as_str(), vec![], vec![at]);
        while names.len() < MAX_LEAKS {
            names.push(vrf);
            let Some((next, by)) = lookup(&ways, vrf, first) else { break };
            on_way.push(by);
            vrf = next;
        }
        // The last VRF's table has to lead somewhere.
        if on_way.len() <= MAX_LEAKS || on_way.iter().any(|by| told.contains(by)) {
            continue;
        }
        told.extend(on_way);
        let spec = &route.value;
        let of = spec.table.map_or_else(|| spec.vrf.clone(), |table| format!("table {table}"));
        let message = format!(
            "packets to {} would be led from VRF to VRF without end, or through more than \
            {MAX_LEAKS}: {of} > {}",
            spec.destination,
            names.join(" > ")
        );
        let hint = "a route in the last VRF that leaves by a port".to_owned();
        errors.add(route.table.place("nexthop-vrf"), message, Some(hint));
    }
}

fn ways<'t>(routes: &'t [Said<'_, RouteSpec>], ports: &'t [Said<'_, PortSettings>]) -> Ways<'t> {
    let mut ways = Ways::new();
    for (at, route) in routes.iter().enumerate() {
        let spec = &route.value;
        if spec.table.is_some() {
            continue;
        }
        let into = spec.nexthop_vrf.as_deref().map(|into| (into, at));
        let way = Way { metric: spec.metric, into };
        let known = ways.entry((&spec.vrf, spec.destination.network())).or_insert(way);
        if way.metric < known.metric {
            *known = way;
        }
    }
    // What comes with an address goes before all.
    for port in ports {
        for own in &port.value.addresses {
            for prefix in [own.network(), IpPrefix::host(own.address())] {
                ways.insert((&port.value.vrf, prefix), Way { metric: 0, into: None });
            }
        }
    }
    ways
}

/// By the longest prefix that holds an address.
fn lookup<'t>(ways: &Ways<'t>, vrf: &'t str, address: IpAddr) -> Option<(&'t str, usize)> {
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefixes = (0..=longest).rev().filter_map(|length| IpPrefix::new(address, length).ok());
    let mut found = prefixes.filter_map(|prefix| ways.get(&(vrf, prefix.network())));
    found.next()?.into
}

/// Routes of the file by VRF, table and prefix: their recursive next hops, or `None` for others.
type Recursive<'t> = HashMap<(&'t str, Option<u32>, IpPrefix), Vec<Option<IpAddr>>>;

/// Refuses recursive routes that depend on themselves; each circle once. It is what the commands
/// that add routes refuse.
pub(super) fn check_recursive(
    routes: &[Said<'_, RouteSpec>],
    ports: &[Said<'_, PortSettings>],
    errors: &mut Errors<'_>,
) {
    if !routes.iter().any(|route| route.value.recursive) {
        return;
    }
    let mut all = Recursive::new();
    for route in routes {
        let RouteSpec { vrf, table, destination, via, recursive, .. } = &route.value;
        let via = via.filter(|_| *recursive);
        all.entry((vrf, *table, destination.network())).or_default().push(via);
    }
    // What comes with an address goes before all.
    for port in ports {
        for own in &port.value.addresses {
            for prefix in [own.network(), IpPrefix::host(own.address())] {
                all.insert((&port.value.vrf, None, prefix), vec![None]);
            }
        }
    }
    let mut told = BTreeSet::new();
    for route in routes {
        let RouteSpec { vrf, table, destination, via, recursive: true, .. } = &route.value else {
            continue;
        };
        let says = |prefix| match all.get(&(vrf.as_str(), *table, prefix)) {
            None => Says::Nothing,
            Some(vias) => {
                vias.iter().copied().collect::<Option<_>>().map_or(Says::Ends, Says::Recursive)
            }
        };
        let Some(path) = via.and_then(|via| circle(*destination, via, says)) else { continue };
        if !path.iter().any(|prefix| told.contains(&(vrf, table, *prefix))) {
            route.table.fault(fault(*destination, &path), errors);
        }
        told.extend(path.into_iter().map(|prefix| (vrf, table, prefix)));
    }
}

#[cfg(test)]
mod tests {
    use crate::config::load;

    fn gateway(routes: &[(&str, &str, &str)]) -> String {
        let vrf = |name: &&str| {
            format!(
                "[[vrf]]\nname = \"{name}\"\n[[port]]\nname = \"{name}0\"\nkind = \"memory\"\n\
                vrf = \"{name}\"\naddresses = [\"10.9.0.1/24\"]\n"
            )
        };
        let route = |(vrf, to, into): &(&str, &str, &str)| {
            let way = match into.split_once(" via ") {
                Some((port, via)) => format!("port = \"{port}\"\nvia = \"{via}\""),
                None => format!("nexthop-vrf = \"{into}\""),
            };
            format!("[[route]]\nvrf = \"{vrf}\"\nto = \"{to}\"\n{way}\n")
        };
        let vrfs = ["a", "b", "c", "d", "e", "f"].iter().map(vrf);
        vrfs.chain(routes.iter().map(route)).collect()
    }

    #[test]
    fn a_circle_is_refused_once_and_what_ends_is_not() {
        let refused = |routes: &[(&str, &str, &str)]| {
            let told = load("gw.toml", &gateway(routes)).err().map(|error| error.to_string());
            told.unwrap_or_default()
        };
        let [to, wide, narrow] = ["10.1.0.0/16", "10.0.0.0/8", "10.1.0.0/24"];
        let circle = refused(&[("a", to, "b"), ("b", wide, "c"), ("c", to, "a")]);
        assert!(circle.contains("without end"), "{circle}");
        assert!(circle.contains("a > b > c > a > b"), "{circle}");
        assert!(circle.contains("nexthop-vrf") || circle.contains("gw.toml:"), "{circle}");
        assert_eq!(circle.matches("without end").count(), 1, "{circle}");
        // A longer prefix leaves by a port, or is on a link.
        let leaves = ("c", narrow, "c0 via 10.9.0.2");
        assert_eq!(refused(&[leaves, ("a", to, "b"), ("b", wide, "c"), ("c", to, "a")]), "");
        assert_eq!(refused(&[("a", "10.9.0.0/16", "b"), ("b", wide, "a")]), "");
        // As far as a packet is led on, and once more.
        let [one, two, three, four] =
            [("a", to, "b"), ("b", to, "c"), ("c", to, "d"), ("d", to, "e")];
        assert_eq!(refused(&[one, two, three, four]), "");
        let far = refused(&[one, two, three, four, ("e", to, "f")]);
        assert!(far.contains("a > b > c > d > e"), "{far}");
        // IPv6, by defaults.
        let both = refused(&[("a", "::/0", "b"), ("b", "::/0", "a")]);
        assert!(both.contains("packets to ::/0"), "{both}");
    }

    #[test]
    fn recursive_routes_that_depend_on_themselves_are_refused() {
        let file = |routes: &[(&str, &str)]| {
            let route = |(to, via): &(&str, &str)| match via.strip_suffix(" recursive") {
                Some(via) => {
                    format!("[[route]]\nto = \"{to}\"\nvia = \"{via}\"\nrecursive = true\n")
                }
                None => format!("[[route]]\nto = \"{to}\"\nvia = \"{via}\"\n"),
            };
            let port = "[[port]]\nname = \"wan\"\nkind = \"memory\"\naddresses = \
                [\"10.9.0.1/24\", \"2001:db8::1/64\"]\n";
            load("gw.toml", &format!("{port}{}", routes.iter().map(route).collect::<String>()))
        };
        // In any order, and whatever comes with an address ends the way.
        let one = ("10.0.0.0/8", "172.16.0.1 recursive");
        for good in [
            &[one, ("172.16.0.0/12", "10.9.0.2")][..],
            &[("172.16.0.0/12", "10.9.0.7 recursive"), one],
            &[one, ("172.16.0.0/12", "10.1.0.1 recursive"), ("10.1.0.0/24", "10.9.0.2")],
            &[("default", "10.1.0.1 recursive"), ("10.1.0.0/24", "10.9.0.2")],
            &[one],
        ] {
            file(good).unwrap_or_else(|told| panic!("{good:?}: {told}"));
        }
        for (bad, path) in [
            (&[("default", "10.1.0.1 recursive")][..], "0.0.0.0/0 > 0.0.0.0/0"),
            (&[("::/0", "2001:db8:1::1 recursive")], "::/0 > ::/0"),
            (
                &[one, ("172.16.0.0/12", "10.1.0.1 recursive")],
                "10.0.0.0/8 > 172.16.0.0/12 > 10.0.0.0/8",
            ),
        ] {
            let told = file(bad).unwrap_err().to_string();
            assert!(told.contains("would depend on itself") && told.contains(path), "{told}");
            assert_eq!(told.matches("depend on itself").count(), 1, "{told}");
            assert!(told.contains("gw.toml:"), "{told}");
        }
    }
}
