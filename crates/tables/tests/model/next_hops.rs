//! Next hops against the model: which there are, what they are, that they keep their ids, and which
//! changes the log tells.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use packet::LinkKind;
use proptest::prelude::*;
use tables::{
    FlowHash, MemberSpec, NextHopId, NextHopState, PortSpec, RouteKind, RouteSpec, Side, Tables,
};
use wire::{IpPrefix, PortId};

use crate::reference::{Change, Model, ModelPort, derived_link_local};
use crate::world::addresses;

/// A next hop at an address by a port, or the port's own.
type Name = (PortId, Option<IpAddr>);

impl Model {
    /// Every next hop that there has to be.
    fn next_hops(&self) -> BTreeSet<Name> {
        let mut all = BTreeSet::new();
        for (&id, port) in &self.ports {
            all.insert((id, None));
            all.extend(port.neighbours.keys().map(|address| (id, Some(*address))));
        }
        for route in self.vrfs.values().flat_map(|vrf| vrf.routes.values()) {
            all.extend(members(route).map(|member| (member.port, member.address)));
        }
        all
    }

    /// What a next hop has to be: its state and link header.
    fn state(&self, (id, address): Name) -> (NextHopState, Vec<u8>) {
        let ModelPort { spec, neighbours } = &self.ports[&id];
        let mac = address.and_then(|address| Some((address, neighbours.get(&address)?)));
        match (spec.up, spec.link, address, mac) {
            (false, ..) => (NextHopState::Down, Vec::new()),
            (true, LinkKind::Ip, ..) => (NextHopState::Resolved, Vec::new()),
            (true, LinkKind::Ethernet, None, _) => (NextHopState::OnLink, Vec::new()),
            (true, LinkKind::Ethernet, Some(_), None) => (NextHopState::Pending, Vec::new()),
            (true, LinkKind::Ethernet, Some(_), Some((address, mac))) => {
                let kind = if address.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
                (NextHopState::Resolved, [&mac.0[..], &spec.mac.0, &kind].concat())
            }
        }
    }
}

/// The next hops that a route is by.
fn members(spec: &RouteSpec) -> impl Iterator<Item = MemberSpec> {
    let (one, many) = match spec {
        &RouteSpec::Via { port, address } => {
            let address = Some(address);
            (Some(MemberSpec { port, address, onlink: false, weight: 1 }), &[][..])
        }
        RouteSpec::Multipath(members) => (None, &**members),
        _ => (None, &[][..]),
    };
    one.into_iter().chain(many.iter().copied())
}

/// What is there is what the model says, and each name leads to it.
pub(crate) fn compare(tables: &Tables, model: &Model) -> Result<(), TestCaseError> {
    let expected = model.next_hops();
    let seen: BTreeMap<NextHopId, Name> =
        tables.next_hops().map(|(id, is)| (id, (is.port, is.address))).collect();
    prop_assert_eq!(seen.values().copied().collect::<BTreeSet<_>>(), expected.clone());
    prop_assert_eq!(tables.next_hop_count(), expected.len());
    prop_assert_eq!(seen.len(), expected.len());
    for (&id, &name) in &seen {
        let next_hop = tables.next_hop(id).unwrap();
        let (state, header) = model.state(name);
        prop_assert_eq!(next_hop.state, state, "{:?}", name);
        prop_assert_eq!(next_hop.link_header(), &header[..], "{:?}", name);
        prop_assert!(next_hop.link.padded()[header.len()..].iter().all(|octet| *octet == 0));
        prop_assert_eq!(next_hop.mtu, model.ports[&name.0].spec.mtu);
    }
    for &port in model.ports.keys() {
        prop_assert_eq!(seen[&tables.port(port).unwrap().next_hop], (port, None));
        for address in addresses() {
            let name = (port, Some(address).filter(|_| expected.contains(&(port, Some(address)))));
            prop_assert_eq!(seen[&tables.on_link_next_hop(port, address).unwrap()], name);
        }
    }
    for (vrf, in_model) in &model.vrfs {
        for (prefix, spec) in &in_model.routes {
            let route = tables.vrf(*vrf).unwrap().route_of(*prefix).unwrap();
            let next_hop = |port, address| tables.on_link_next_hop(port, address).unwrap();
            match (spec, route.kind) {
                (&RouteSpec::Via { port, address }, kind) => {
                    prop_assert_eq!(kind, RouteKind::Via { next_hop: next_hop(port, address) });
                }
                (RouteSpec::Multipath(members), RouteKind::Multipath { group }) => {
                    let group = tables.group(group).unwrap();
                    prop_assert_eq!(group.members().len(), members.len());
                    for (position, (seen, spec)) in
                        group.members().iter().zip(&**members).enumerate()
                    {
                        let expected = match spec.address {
                            Some(address) => next_hop(spec.port, address),
                            None => tables.port(spec.port).unwrap().next_hop,
                        };
                        prop_assert_eq!(seen.next_hop, expected);
                        prop_assert_eq!(seen.weight, spec.weight);
                        prop_assert_eq!(group.is_up(position), model.ports[&spec.port].spec.up);
                    }
                    for flow in 0..32 {
                        let chosen =
                            group.choose(FlowHash(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(flow)));
                        let is_up = |position| group.is_up(position);
                        prop_assert!(is_up(chosen) || !(0..members.len()).any(is_up));
                    }
                }
                (RouteSpec::Multipath(_), kind) => prop_assert!(false, "{:?}", kind),
                _ => {}
            }
        }
    }
    prop_assert_eq!(tables.on_link_next_hop(PortId(99), addresses()[0]), None);
    Ok(())
}

/// What a change is held against.
pub(crate) struct Before {
    model: Model,
    ids: BTreeMap<Name, NextHopId>,
    sides: BTreeMap<PortId, Side>,
    changes: usize,
}

fn sides(tables: &Tables) -> BTreeMap<PortId, Side> {
    tables.ports().map(|port| (port.id, port.side)).collect()
}

fn ids(tables: &Tables) -> BTreeMap<Name, NextHopId> {
    tables.next_hops().map(|(id, is)| ((is.port, is.address), id)).collect()
}

impl Before {
    pub(crate) fn of(tables: &Tables, model: &Model) -> Self {
        let changes = tables.latest_changes().count();
        Self { model: model.clone(), ids: ids(tables), sides: sides(tables), changes }
    }

    /// Next hops that are there before and after kept their ids, and the log tells of a change what
    /// decisions are concerned by, and no more.
    pub(crate) fn check(
        &self,
        change: &Change,
        allowed: bool,
        tables: &Tables,
        model: &Model,
    ) -> Result<(), TestCaseError> {
        for (name, id) in ids(tables) {
            prop_assert_eq!(self.ids.get(&name).copied().unwrap_or(id), id, "{:?}", name);
        }
        let count = tables.latest_changes().count() - self.changes;
        let told: Vec<_> = tables.latest_changes().take(count).map(|(_, change)| *change).collect();
        let expected = match change {
            _ if !allowed => Vec::new(),
            Change::AddPort(id, _)
            | Change::UpdatePort(id, _)
            | Change::TweakPort(id, _)
            | Change::RemovePort(id) => {
                let mut expected = port_changes(*id, &self.model, model);
                expected.extend(self.member_changes(*id, model, tables));
                expected.extend(self.stranded_leaks(*id, model));
                // Those by other ports, of multipath routes that went with this one.
                expected.extend(self.next_hop_changes(model).filter(
                    |change| matches!(change, tables::Change::NextHop { port, .. } if port != id),
                ));
                expected
            }
            Change::SetRoute(vrf, prefix, _) | Change::RemoveRoute(vrf, prefix) => {
                let mut expected: Vec<_> = self.next_hop_changes(model).collect();
                expected.push(tables::Change::Route { table: (*vrf).into(), prefix: *prefix });
                expected
            }
            Change::SetNeighbour(..) | Change::RemoveNeighbour(..) => {
                self.next_hop_changes(model).collect()
            }
            _ => return Ok(()),
        };
        let sorted = |changes: Vec<tables::Change>| {
            let mut lines: Vec<_> = changes.iter().map(|change| format!("{change:?}")).collect();
            lines.sort_unstable();
            // A port that moves from where one tunnel ends to where another one does changes sides on
            // the way, and what concerns it is told more than once.
            if !tables.sad().is_empty() {
                lines.dedup();
            }
            lines
        };
        let turned = |(id, side): (&PortId, &Side)| {
            let said = || tables.port(*id).map(|port| &port.spec.side);
            self.sides.get(id).or_else(said) != Some(side)
        };
        if sides(tables).iter().any(|(id, side)| turned((id, side))) {
            // Some port and its VRF besides.
            prop_assert!(expected.iter().all(|change| told.contains(change)), "{:?}", change);
            return Ok(());
        }
        prop_assert_eq!(sorted(told), sorted(expected), "{:?}", change);
        Ok(())
    }

    /// One for each next hop of a multipath route that went down or came up with its port.
    fn member_changes(&self, id: PortId, model: &Model, tables: &Tables) -> Vec<tables::Change> {
        let is_up = |model: &Model| model.ports.get(&id).map(|port| port.spec.up);
        let (Some(was), Some(up)) = (is_up(&self.model), is_up(model)) else { return Vec::new() };
        let mut changes = Vec::new();
        for (vrf, in_model) in &model.vrfs {
            for (prefix, spec) in &in_model.routes {
                let RouteSpec::Multipath(members) = spec else { continue };
                for member in members.iter().filter(|member| member.port == id && was != up) {
                    let own = || Some(tables.port(id)?.next_hop);
                    let next_hop = match member.address {
                        Some(address) => tables.on_link_next_hop(id, address).unwrap(),
                        None => own().unwrap(),
                    };
                    let (vrf, prefix) = (*vrf, *prefix);
                    changes.push(tables::Change::Member {
                        table: vrf.into(),
                        prefix,
                        next_hop,
                        up,
                    });
                }
            }
        }
        changes
    }

    /// One for each route that went in another VRF than the port was in.
    fn stranded_leaks(&self, id: PortId, model: &Model) -> Vec<tables::Change> {
        let Some(port) = self.model.ports.get(&id) else { return Vec::new() };
        let others = self.model.vrfs.iter().filter(|(vrf, _)| **vrf != port.spec.vrf);
        let routes = others.flat_map(|(vrf, of)| of.routes.keys().map(move |it| (*vrf, *it)));
        let gone = routes.filter(|(vrf, prefix)| !model.vrfs[vrf].routes.contains_key(prefix));
        gone.map(|(vrf, prefix)| tables::Change::Route { table: vrf.into(), prefix }).collect()
    }

    /// One for each next hop that came or went.
    fn next_hop_changes(&self, model: &Model) -> impl Iterator<Item = tables::Change> + use<> {
        let (before, after) = (self.model.next_hops(), model.next_hops());
        let concerned: Vec<_> = before.symmetric_difference(&after).copied().collect();
        concerned
            .into_iter()
            .filter_map(|(port, address)| Some(tables::Change::NextHop { port, address: address? }))
    }
}

fn port_changes(id: PortId, before: &Model, after: &Model) -> Vec<tables::Change> {
    let all = |spec: &PortSpec| -> BTreeSet<IpPrefix> {
        let derived = derived_link_local(spec).map(|own| IpPrefix::new(own, 64).unwrap());
        spec.addresses.iter().copied().chain(derived).collect()
    };
    let routed = |port: &ModelPort| port.routed().copied().collect::<BTreeSet<_>>();
    let vrfs: BTreeSet<_> =
        [before, after].iter().filter_map(|model| Some(model.ports.get(&id)?.spec.vrf)).collect();
    let everything = match (before.ports.get(&id), after.ports.get(&id)) {
        (Some(old), Some(new)) => {
            vrfs.len() > 1 || old.spec.link != new.spec.link || routed(old) != routed(new)
        }
        _ => true,
    };
    let addresses = |model: &Model| model.ports.get(&id).map(|port| all(&port.spec));
    let mut changes = Vec::new();
    if everything {
        changes.extend(vrfs.into_iter().map(tables::Change::Vrf));
    }
    if everything || addresses(before) != addresses(after) {
        changes.push(tables::Change::Port(id));
    }
    changes
}
