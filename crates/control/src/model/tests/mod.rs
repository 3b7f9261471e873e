use std::collections::BTreeSet;
use std::time::Duration;

use api::{InterfaceState, Refusal, Reply, Request};
use packet::Time;

use super::desired::DesiredPort;
use super::{Control, OpenedPort};
use crate::config::load;

mod another_file;
mod batch;
mod conntrack;
mod counts;
mod filters;
mod firewall;
mod firewall_packets;
mod firewall_routes;
mod flows;
mod follow;
mod interfaces;
mod lost;
mod neighbours;
mod qdiscs;
mod random;
mod recursive;
mod reload;
mod requests;
mod restore;
mod sequences;
mod unprotected;
mod vlans;
mod vrfs;
mod xfrm_links;

pub(super) const BASE: &str = r#"
[[port]]
name = "lan"
kind = "memory"
addresses = ["192.168.13.1/24", "2001:db8:13::1/64"]
[[port]]
name = "wan"
kind = "memory"
addresses = ["192.168.11.2/24"]
[[route]]
to = "default"
via = "192.168.11.1"
[[neighbour]]
port = "wan"
address = "192.168.11.1"
mac = "02:00:00:00:00:01"
[[policy]]
direction = "out"
source = "192.168.13.0/24"
destination = "192.168.12.0/24"
action = "protect"
template = { destination = "192.168.11.1", reqid = 1 }
[[sa]]
source = "192.168.11.2"
destination = "192.168.11.1"
spi = 0x1001
reqid = 1
aead = { name = "rfc4106(gcm(aes))", key = "0x000102030405060708090a0b0c0d0e0f10111213" }
"#;

pub(super) const NOW: Time = Time(1_000_000_000);

pub(super) fn after(seconds: u64) -> Time {
    NOW + Duration::from_secs(seconds)
}

/// A gateway that runs `text`.
pub(super) fn running(text: &str) -> Control {
    let mut control = Control::new(1, [7; 32]);
    reload(&mut control, text).unwrap();
    control
}

/// Reloads `text`, with ports that turn out as imagined, and answers the difference.
#[track_caller]
pub(super) fn reload(control: &mut Control, text: &str) -> Result<String, Refusal> {
    let config = load("test.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    let plan = control.plan(config);
    let (expected, refusal) = (plan.difference().to_string(), plan.refusal().cloned());
    let opened: Vec<OpenedPort> = plan.imagined(&control.desired);
    assert_eq!(opened.len(), plan.ports_to_open().len());
    let difference = control.apply(plan, &opened, NOW).map(|difference| difference.to_string());
    match &difference {
        Ok(difference) => assert_eq!(*difference, expected, "the plan told another difference"),
        Err(error) => assert_eq!(Some(error), refusal.as_ref(), "the plan told another refusal"),
    }
    consistent(control);
    difference
}

/// The request of a command, split at white space.
#[track_caller]
pub(super) fn request(line: &str) -> Request {
    let words: Vec<_> = line.split_whitespace().collect();
    crate::grammar::parse(&words).unwrap_or_else(|refusal| panic!("{line}: {refusal}"))
}

/// Carries out a command, split at white space.
#[track_caller]
pub(super) fn run(control: &mut Control, line: &str) -> Result<Reply, Refusal> {
    handle(control, request(line), NOW)
}

/// Carries out a request, and checks that nothing changed where it was refused, and that all fits
/// together.
#[track_caller]
pub(super) fn handle(control: &mut Control, request: Request, now: Time) -> Result<Reply, Refusal> {
    let state = |control: &Control| {
        (format!("{:?}", control.desired), control.publisher.current().generation())
    };
    let before = state(control);
    let only_reads = request.only_reads();
    let reply = control.handle(request, now);
    if reply.is_err() || only_reads {
        assert_eq!(state(control), before, "it was refused, and something changed");
    }
    consistent(control);
    reply
}

/// What a command shows.
#[track_caller]
pub(super) fn show(control: &mut Control, line: &str) -> String {
    let request = request(line);
    let reply =
        control.handle(request.clone(), NOW).unwrap_or_else(|refusal| panic!("{line}: {refusal}"));
    let links = match control.handle(Request::LinkList(api::LinkFilter::default()), NOW) {
        Ok(Reply::Links(links)) => links,
        other => panic!("{other:?}"),
    };
    crate::render::reply_with_links(&request, &reply, &links, crate::render::Options::default())
}

/// Checks that the tables are what follows from the desired state.
#[track_caller]
pub(super) fn consistent(control: &Control) {
    let (tables, desired) = (&*control.publisher.current(), &control.desired);

    let mut vrfs: Vec<_> = tables.vrfs().map(|vrf| (vrf.name.to_string(), vrf.id)).collect();
    vrfs.sort();
    assert_eq!(
        vrfs,
        desired.vrfs.iter().map(|(name, vrf)| (name.clone(), vrf.id)).collect::<Vec<_>>()
    );

    assert_eq!(tables.ports().count(), desired.ports.len());
    for (name, port) in &desired.ports {
        let found = tables.port(port.id).unwrap();
        let parent = desired.parent(port);
        let family = || std::iter::successors(Some(port), |port| desired.parent(port));
        let mtu = family().map(|port| port.mtu.min(port.found.mtu)).min().unwrap();
        let up = family().all(|port| port.up && port.interface == InterfaceState::Up);
        assert_eq!(
            (&*found.spec.name, found.spec.mtu, found.spec.up, found.spec.mac),
            (name.as_str(), mtu, up, port.found.mac)
        );
        assert_eq!(
            found.spec.vlan.map(|vlan| (vlan.parent, vlan.tag)),
            parent.map(|parent| (parent.id, port.settings.kind.vlan().unwrap().1))
        );
        assert_eq!(found.queue(), family().last().unwrap().id);
        assert_eq!(found.spec.vrf, desired.vrf(&port.vrf).unwrap());
        for (own, _) in &port.addresses {
            assert!(found.spec.addresses.contains(own), "{own}");
        }
        assert!(
            found.spec.addresses.len() <= port.addresses.len() + 1,
            "more than the link-local address was added"
        );
    }

    // What is kept up to find ports by finds what a look at all of them does.
    let ports = &desired.ports;
    let names = |is: &dyn Fn(&DesiredPort) -> bool| {
        let all = ports.iter().filter(|(_, port)| is(port));
        all.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    for vrf in desired.vrfs.keys() {
        let of_vrf: Vec<_> = ports.of_vrf(vrf).cloned().collect();
        assert_eq!(of_vrf, names(&|port| port.vrf == *vrf));
    }
    for (name, port) in ports {
        assert_eq!(ports.name_of(port.id), Some(name.as_str()));
        let vlans: Vec<_> = ports.vlans_of(name).cloned().collect();
        let is_vlan = |port: &DesiredPort| port.settings.kind.vlan().is_some_and(|it| it.0 == name);
        assert_eq!(vlans, names(&is_vlan));
        let links: Vec<_> = ports.xfrm_links_of(name).cloned().collect();
        let is_link = |port: &DesiredPort| port.settings.kind.xfrm().is_some_and(|it| it.0 == name);
        assert_eq!(links, names(&is_link));
    }

    for vrf in tables.vrfs() {
        for route in vrf.routes().filter(|route| !tables.comes_with_port(vrf.id, route)) {
            assert!(
                desired.routes.contains_key(&(vrf.id.into(), route.prefix)),
                "{route:?} was not asked for"
            );
        }
    }
    // A route is used exactly if it is the first of its prefix that can be.
    let all = super::route_views::list(
        tables,
        desired,
        &api::RouteFilter { all: true, ..Default::default() },
    )
    .unwrap();
    for (place, alternatives) in &desired.routes {
        assert!(!alternatives.is_empty());
        assert!(alternatives.is_sorted_by(|a, b| a.spec.metric < b.spec.metric));
        let of_prefix = |view: &&api::RouteView| {
            let number = view.vrf.is_empty().then_some(view.table);
            desired.table(tables, &view.vrf, number).unwrap() == place.0
                && view.destination == place.1
        };
        let active: Vec<_> = all
            .iter()
            .filter(of_prefix)
            .filter(|view| view.active)
            .map(|view| (view.origin, view.metric))
            .collect();
        assert!(active.len() <= 1, "{place:?}: {active:?}");
        let found = tables.routing_table(place.0).and_then(|routes| routes.route_of(place.1));
        let in_tables = found.is_some();
        let made = found.is_some_and(|route| tables.comes_with_port(place.0, route));
        assert_eq!(
            in_tables && !made,
            active.iter().any(|(origin, _)| *origin != api::Origin::Gateway),
            "{place:?}"
        );
    }

    let mut known = 0;
    for (port, address, neighbour) in desired.neighbours.iter() {
        let found = tables.port(port).unwrap();
        match found.neighbours.lookup(address) {
            Some(mac) => {
                assert_eq!(mac, neighbour.mac);
                known += 1;
            }
            None => assert_eq!(neighbour.state(), api::NeighbourState::Permanent),
        }
    }
    assert_eq!(known, tables.ports().map(|port| port.neighbours.len()).sum::<usize>());

    // A next hop for each port, each neighbour that is known, and each that a route leads to.
    let mut next_hops: BTreeSet<_> = tables.ports().map(|port| (port.id, None)).collect();
    for port in tables.ports() {
        next_hops.extend(port.neighbours.iter().map(|(address, _)| (port.id, Some(address))));
    }
    let loose = tables.loose_tables().flat_map(|(_, table)| table.routes());
    for route in tables.vrfs().flat_map(tables::Vrf::routes).chain(loose) {
        if let tables::RouteKind::Via { next_hop } = route.kind {
            let next_hop = tables.next_hop(next_hop).unwrap();
            let port = tables.port(next_hop.port).unwrap();
            let mac = port.neighbours.lookup(next_hop.address.unwrap());
            let is_resolved = next_hop.is_resolved();
            assert_eq!(
                is_resolved,
                mac.is_some() || port.spec.link == types::LinkKind::Ip,
                "{next_hop:?}: a route is used, so its port is up"
            );
            next_hops.insert((next_hop.port, next_hop.address));
        }
        if let tables::RouteKind::Multipath { group } = route.kind {
            let group = tables.group(group).unwrap();
            assert!((0..group.members().len()).any(|at| group.is_up(at)), "it would not be used");
            for (at, member) in group.members().iter().enumerate() {
                let next_hop = tables.next_hop(member.next_hop).unwrap();
                assert_eq!(group.is_up(at), tables.port(next_hop.port).unwrap().spec.up);
                next_hops.insert((next_hop.port, next_hop.address));
            }
        }
    }
    let found: Vec<_> = tables.next_hops().map(|(_, is)| (is.port, is.address)).collect();
    assert_eq!(found.len(), next_hops.len());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), next_hops);

    assert_eq!(tables.sad().len(), desired.states.len());
    for ((vrf, destination, spi), entry) in &desired.states {
        let sa = tables.sad().inbound(*vrf, *destination, *spi).unwrap();
        assert_eq!(
            (sa.spec.identity.source, sa.spec.identity.reqid),
            (entry.spec.source, entry.spec.reqid)
        );
    }

    let rules = tables.filters().map(|(_, filter)| filter.len());
    assert_eq!(rules.sum::<usize>(), desired.filters.len());
    for (key, entry) in &desired.filters {
        let place = desired.filter_place(&key.target, key.hook).unwrap();
        let rule = tables.filter(place).unwrap().rule(key.pref).unwrap();
        let checked = crate::check::filter(&entry.spec).unwrap();
        assert_eq!((rule.spec.selects, rule.spec.action), (checked.selects, checked.action));
    }

    assert_eq!(tables.policy_count(), desired.policies.len());
    for (index, entry) in &desired.policies {
        let policy = tables.policy_of_index(*index).unwrap();
        assert_eq!(policy.spec.priority, entry.spec.priority);
        assert_eq!(tables.policy_name(*index), entry.spec.name.as_ref());
        assert_eq!(policy.spec.vrf, desired.vrf(&entry.spec.vrf).unwrap());
        assert_eq!(Some(policy.spec.selector.source), entry.spec.selector.source);
    }
}
