//! The tables against the simplest model of them: random changes, possible and impossible ones.
//! What the model allows is done and seen, what it forbids is refused and leaves no trace, and
//! snapshots taken on the way stay as they were.

mod next_hops;
mod reference;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use esp::{Algorithm, InboundSa, KeyMaterial, OutboundSa, WindowSize};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{
    Action, Boundary, Direction, Port, ReversePath, RouteKind, SaSpec, Side, TableError, Tables,
    Vrf,
};
use wire::{IpPrefix, PacketFields, Spi, VrfId};

use reference::{Change, Model, ModelRoute, broadcast, derived_link_local, longest, vrf_name};
use world::{addresses, change, flow_keys, templates};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn tables_are_the_model(changes in proptest::collection::vec(change(), 1..120), secret: u64) {
        let mut tables = Tables::new(2, secret);
        let mut model = Model::new();
        let mut snapshots = Vec::new();
        for change in &changes {
            let before = format!("{tables:?}");
            let next_hops = next_hops::Before::of(&tables, &model);
            let answer = apply(&mut tables, &model, change);
            let allowed = model.change(change);
            prop_assert_eq!(answer.is_ok(), allowed, "{:?}: {:?}", change, answer);
            if let Err(why) = answer {
                prop_assert_eq!(before, format!("{tables:?}"), "{}", why);
            }
            next_hops.check(change, allowed, &tables, &model)?;
            if matches!(change, Change::Snapshot) {
                snapshots.push((tables.clone(), format!("{tables:?}"), model.clone()));
            }
        }
        compare(&tables, &model)?;
        for (tables, dump, model) in &snapshots {
            prop_assert_eq!(dump, &format!("{tables:?}"));
            compare(tables, model)?;
        }
    }
}

/// Does the change to the real tables; the policies' indexes are the model's.
fn apply(tables: &mut Tables, model: &Model, change: &Change) -> Result<(), TableError> {
    let index =
        |which: &prop::sample::Index| model.index(which).map_or(1, |at| model.policies[at].0);
    match change {
        Change::AddVrf(number) => tables.add_vrf(&vrf_name(*number)).map(drop),
        Change::RemoveVrf(id) => tables.remove_vrf(*id),
        Change::AddPort(id, spec) => tables.add_port(*id, spec.clone()),
        Change::UpdatePort(id, spec) => tables.update_port(*id, spec.clone()),
        Change::TweakPort(id, tweak) => match model.tweaked(*id, *tweak) {
            Some(spec) => tables.update_port(*id, spec),
            None => Err(TableError::NoPort(*id)),
        },
        Change::RemovePort(id) => tables.remove_port(*id),
        Change::SetRoute(vrf, prefix, spec) => tables.set_route(*vrf, *prefix, spec.clone()),
        Change::RemoveRoute(vrf, prefix) => tables.remove_route(*vrf, *prefix).map(drop),
        Change::SetNeighbour(port, address, mac) => tables.set_neighbour(*port, *address, *mac),
        Change::RemoveNeighbour(port, address) => {
            tables.remove_neighbour(*port, *address).map(drop)
        }
        Change::AddPolicy(spec) => tables.add_policy(*spec).map(drop),
        Change::UpdatePolicy(which, spec) => tables.update_policy(index(which), *spec),
        Change::RemovePolicy(which) => tables.remove_policy(index(which)).map(drop),
        Change::SetDefault(vrf, direction, action) => {
            tables.set_default_action(*vrf, *direction, *action)
        }
        Change::AddSa(spec) => {
            let (outbound, inbound) = keys(spec.spi);
            tables.add_sa(*spec, outbound, inbound).map(drop)
        }
        Change::RemoveSa(vrf, destination, spi) => {
            tables.remove_sa(*vrf, *destination, *spi).map(drop)
        }
        Change::Snapshot => Ok(()),
    }
}

fn keys(spi: Spi) -> (OutboundSa, InboundSa) {
    let keys = KeyMaterial::new(Algorithm::NullWithoutIntegrity, &[], &[]).unwrap();
    let outbound = OutboundSa::new(spi, &keys, 0, &mut StdRng::seed_from_u64(0));
    (outbound, InboundSa::new(spi, &keys, WindowSize::default(), 0))
}

/// Everything that can be seen of the tables is as the model says.
fn compare(tables: &Tables, model: &Model) -> Result<(), TestCaseError> {
    let names: Vec<_> = tables.vrfs().map(|vrf| (vrf.id, vrf.name.to_string())).collect();
    let expected: Vec<_> = model.vrfs.iter().map(|(id, vrf)| (*id, vrf.name.clone())).collect();
    prop_assert_eq!(names, expected);
    for (id, model_vrf) in &model.vrfs {
        let vrf = tables.vrf(*id).unwrap();
        let routes = model.routes(*id);
        let does = |kind| match kind {
            RouteKind::Local => ModelRoute::Local,
            RouteKind::Broadcast => ModelRoute::Broadcast,
            kind => ModelRoute::To(tables.route_spec(kind).expect("it was asked for")),
        };
        let seen: BTreeMap<_, _> =
            vrf.routes().map(|route| (route.prefix, does(route.kind))).collect();
        prop_assert_eq!(&seen, &routes);
        prop_assert_eq!(vrf.route_count(), routes.len());
        for address in addresses() {
            let found = vrf.route(address).map(|route| (route.prefix, does(route.kind)));
            prop_assert_eq!(found, longest(&routes, address));
        }
        let read = model.policies.iter().filter(|(_, spec)| spec.vrf == *id);
        let read = read.map(|(_, spec)| spec.selector.fields.mask());
        prop_assert_eq!(vrf.spd.reads(), read.fold(PacketFields::NONE, |all, mask| all | mask));
        for direction in Direction::ALL {
            let seen: Vec<_> =
                vrf.spd.policies(direction).map(|policy| (policy.index, policy.spec)).collect();
            prop_assert_eq!(vrf.spd.policies(direction).len(), seen.len());
            let ordered = model.ordered(*id, direction);
            prop_assert_eq!(&seen, &ordered);
            prop_assert_eq!(
                vrf.spd.default_action(direction),
                model_vrf.defaults[direction as usize]
            );
            for key in flow_keys() {
                let found = vrf
                    .spd
                    .lookup_linear(direction, &key)
                    .map(|(position, policy)| (position, policy.index));
                let expected = ordered.iter().position(|(_, spec)| spec.selector.matches(&key));
                prop_assert_eq!(found, expected.map(|at| (at + 1, ordered[at].0)));
            }
        }
    }
    compare_policies(tables, model)?;
    compare_ports(tables, model)?;
    next_hops::compare(tables, model)?;
    compare_sas(tables, model)
}

fn compare_policies(tables: &Tables, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!(tables.policy_count(), model.policies.len());
    let mut slots = BTreeSet::new();
    for (index, spec) in &model.policies {
        let policy = tables.policy_of_index(*index).unwrap();
        prop_assert_eq!(policy.spec, *spec);
        prop_assert_eq!(tables.policy(policy.handle).map(|policy| policy.index), Some(*index));
        let by_selector = tables.policy_of_selector(spec.vrf, spec.direction, &spec.selector);
        prop_assert_eq!(by_selector.map(|policy| policy.index), Some(*index));
        prop_assert!(slots.insert(policy.handle.slot));
    }
    Ok(())
}

fn compare_ports(tables: &Tables, model: &Model) -> Result<(), TestCaseError> {
    let ids: Vec<_> = tables.ports().map(|port| port.id).collect();
    prop_assert_eq!(ids, model.ports.keys().copied().collect::<Vec<_>>());
    for (id, expected) in &model.ports {
        let port = tables.port(*id).unwrap();
        let mut spec = expected.spec.clone();
        spec.addresses
            .extend(derived_link_local(&spec).map(|address| IpPrefix::new(address, 64).unwrap()));
        prop_assert_eq!(&port.spec, &spec);
        prop_assert_eq!(port.side, side(tables, model, port), "{}", spec.name);
        let own = tables.next_hop(port.next_hop).map(|next_hop| next_hop.side);
        prop_assert_eq!(own, Some(port.side));
        let inside = tables.ports().any(|port| port.side == Side::Protected);
        prop_assert_eq!(tables.has_protected_ports(), inside);
        let judges = port.spec.reverse_path != ReversePath::Off
            || (inside && port.side == Side::Unprotected);
        prop_assert_eq!(tables.boundary(*id), Boundary { side: port.side, judges_sources: judges });
        for (_, next_hop) in tables.next_hops() {
            prop_assert_eq!(Some(next_hop.side), tables.port(next_hop.port).map(|port| port.side));
        }
        let neighbours: BTreeMap<_, _> = port.neighbours.iter().collect();
        prop_assert_eq!(&neighbours, &expected.neighbours);
        for address in addresses() {
            prop_assert_eq!(
                port.neighbours.lookup(address),
                expected.neighbours.get(&address).copied()
            );
            let local = model.vrfs.contains_key(&spec.vrf)
                && model.ports.values().any(|port| {
                    let routed = port
                        .routed()
                        .any(|own| own.address() == address || broadcast(own) == Some(address));
                    port.spec.vrf == spec.vrf && routed
                });
            let everyone = address == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
            let listened = everyone || spec.addresses.iter().any(|own| own.address() == address);
            prop_assert_eq!(
                tables.is_local(spec.vrf, *id, address),
                local || listened,
                "{}",
                address
            );
        }
    }
    Ok(())
}

/// On which side a port is: if nobody says, on the unprotected one if any tunnel ends in one of its
/// addresses or leaves by it.
fn side(tables: &Tables, model: &Model, port: &Port) -> Side {
    let templates = model.policies.iter().filter_map(|(_, spec)| match spec.action {
        Action::Protect(template) => {
            Some((template.outer_vrf(spec.vrf), template.source, template.destination))
        }
        _ => None,
    });
    let sas = model.sas.iter().map(|spec| {
        let identity = spec.identity;
        (identity.vrf, Some(identity.source), identity.destination)
    });
    let is_at_port = |vrf: &Vrf, end: IpAddr| match vrf.route(end).map(|route| route.kind) {
        Some(RouteKind::Local) => vrf.id == port.spec.vrf && port.owns(end),
        _ => tables.ports_to(vrf, end).any(|by| by == port.id),
    };
    let has_end = templates.chain(sas).any(|(vrf, source, destination)| {
        let vrf = tables.vrf(vrf).unwrap();
        is_at_port(vrf, destination) || source.is_some_and(|source| is_at_port(vrf, source))
    });
    match port.spec.side {
        Side::Unset if has_end => Side::Unprotected,
        side => side,
    }
}

fn compare_sas(tables: &Tables, model: &Model) -> Result<(), TestCaseError> {
    let sad = tables.sad();
    prop_assert_eq!(sad.len(), model.sas.len());
    prop_assert_eq!(sad.iter().count(), model.sas.len());
    for spec in &model.sas {
        let identity = spec.identity;
        let sa = sad.inbound(identity.vrf, identity.destination, spec.spi).unwrap();
        prop_assert_eq!(&sa.spec, spec);
        let slot = sad.slot(sa.slot).unwrap();
        prop_assert_eq!(slot.identity, identity);
        let serving: Vec<_> =
            model.sas.iter().filter(|sa| sa.identity == identity).copied().collect();
        prop_assert_eq!(slot.sas.iter().map(|sa| sa.spec).collect::<Vec<_>>(), serving);
    }
    for template in templates() {
        for vrf in [0, 1].map(VrfId) {
            let admitted = |sa: &&SaSpec| template.admits(vrf, &sa.identity);
            let newest = model
                .sas
                .iter()
                .rev()
                .filter(admitted)
                .find(|sa| template.spi.is_none_or(|spi| spi == sa.spi));
            prop_assert_eq!(tables.outbound_sa(vrf, &template).map(|sa| &sa.spec), newest);
            // The slot's newest is the SA itself, unless a template insists on an older one.
            let newest_of_slot = newest.filter(|sa| {
                model.sas.iter().rev().find(|other| other.identity == sa.identity) == Some(*sa)
            });
            let resolved = tables.resolve(vrf, &template).and_then(|slot| sad.outbound(slot));
            prop_assert_eq!(resolved.map(|sa| &sa.spec), newest_of_slot);
        }
    }
    Ok(())
}
