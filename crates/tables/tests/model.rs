//! The tables against the simplest model of them: random changes, possible and impossible ones. What the model allows is done and
//! seen, what it forbids is refused and leaves no trace, and snapshots taken on the way stay as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use esp::{Algorithm, InboundSa, KeyMaterial, OutboundSa, WindowSize};
use packet::LinkKind;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{
    Action, DefaultAction, Direction, PolicySpec, PortSpec, Route, RouteKind, SaIdentity, SaSpec, Selector, Tables,
    Template, UpperSelector,
};
use wire::{
    Addresses, FlowKey, FragmentClass, IpPrefix, IpRange, Mac, Origin, PortId, PortRange, Protocol, Spi, Upper, VrfId,
};

#[derive(Clone, Debug)]
enum Change {
    AddVrf(u8),
    RemoveVrf(VrfId),
    AddPort(PortId, PortSpec),
    UpdatePort(PortId, PortSpec),
    RemovePort(PortId),
    SetRoute(VrfId, IpPrefix, RouteKind),
    RemoveRoute(VrfId, IpPrefix),
    SetNeighbour(PortId, IpAddr, Mac),
    RemoveNeighbour(PortId, IpAddr),
    AddPolicy(PolicySpec),
    UpdatePolicy(prop::sample::Index, PolicySpec),
    RemovePolicy(prop::sample::Index),
    SetDefault(VrfId, Direction, DefaultAction),
    AddSa(SaSpec),
    RemoveSa(VrfId, IpAddr, Spi),
    Snapshot,
}

// The model. Everything is derived anew whenever it is asked for.

#[derive(Clone, Debug, Default)]
struct Model {
    vrfs: BTreeMap<VrfId, ModelVrf>,
    ports: BTreeMap<PortId, ModelPort>,
    /// In order of addition.
    policies: Vec<(u32, PolicySpec)>,
    policies_made: u32,
    /// In order of addition.
    sas: Vec<SaSpec>,
}

#[derive(Clone, Debug)]
struct ModelVrf {
    name: String,
    routes: BTreeMap<IpPrefix, RouteKind>,
    defaults: [DefaultAction; 3],
}

#[derive(Clone, Debug)]
struct ModelPort {
    spec: PortSpec,
    neighbours: BTreeMap<IpAddr, Mac>,
}

impl ModelPort {
    fn routed(&self) -> impl Iterator<Item = &IpPrefix> {
        self.spec.addresses.iter().filter(|own| !link_local(own.address()))
    }

    fn reaches(&self, next_hop: IpAddr) -> bool {
        link_local(next_hop) || self.routed().any(|own| !own.is_host() && own.contains(next_hop))
    }

    fn owns(&self, address: IpAddr) -> bool {
        self.spec.addresses.iter().any(|own| own.address() == address)
            || derived_link_local(&self.spec) == Some(address)
    }
}

fn link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The link-local address that a port gets besides those it was given.
fn derived_link_local(spec: &PortSpec) -> Option<IpAddr> {
    let given = spec.addresses.iter().any(|own| link_local(own.address()));
    let [a, b, c, d, e, f] = spec.mac.0.map(u128::from);
    let identifier = (a ^ 2) << 56 | b << 48 | c << 40 | 0xff << 32 | 0xfe << 24 | d << 16 | e << 8 | f;
    let address = IpAddr::V6((0xfe80 << 112 | identifier).into());
    (spec.link == LinkKind::Ethernet && spec.mtu >= 1280 && !given).then_some(address)
}

fn broadcast(own: &IpPrefix) -> Option<IpAddr> {
    (own.address().is_ipv4() && own.length() < 31).then(|| own.range().last())
}

fn is_station(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !matches!(address.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(address) => !address.is_multicast() && address.to_bits() > 1,
    }
}

impl Model {
    fn new() -> Self {
        let main = ModelVrf { name: "main".into(), routes: BTreeMap::new(), defaults: Default::default() };
        Self { vrfs: [(VrfId::MAIN, main)].into(), ..Self::default() }
    }

    /// The routes that the addresses of the VRF's ports make, or nothing where they contradict each other.
    fn port_routes(&self, vrf: VrfId) -> Option<BTreeMap<IpPrefix, RouteKind>> {
        let mut routes = BTreeMap::new();
        let in_vrf = || self.ports.iter().filter(|(_, port)| port.spec.vrf == vrf);
        let addresses = || in_vrf().flat_map(|(_, port)| port.routed());
        for own in addresses() {
            if routes.insert(IpPrefix::host(own.address()), RouteKind::Local).is_some() {
                return None;
            }
        }
        for broadcast in addresses().filter_map(broadcast) {
            let before = routes.insert(IpPrefix::host(broadcast), RouteKind::Broadcast);
            if before.is_some_and(|before| before != RouteKind::Broadcast) {
                return None;
            }
        }
        for (&port, own) in in_vrf().flat_map(|(id, port)| port.routed().map(move |own| (id, own))) {
            let kind = RouteKind::Connected { port };
            if !own.is_host() && routes.insert(own.network(), kind).is_some_and(|before| before != kind) {
                return None;
            }
        }
        Some(routes)
    }

    fn routes(&self, vrf: VrfId) -> BTreeMap<IpPrefix, RouteKind> {
        let mut routes = self.port_routes(vrf).expect("the model is consistent");
        routes.extend(self.vrfs[&vrf].routes.clone());
        routes
    }

    fn spec_is_possible(spec: &PortSpec) -> bool {
        let addresses = &spec.addresses;
        let distinct = addresses.iter().map(IpPrefix::address).collect::<BTreeSet<_>>().len() == addresses.len();
        let possible = |own: &IpPrefix| {
            let edge = own.address().is_ipv4()
                && own.length() < 31
                && (own.address() == own.range().first() || own.address() == own.range().last());
            is_station(own.address()) && !edge && own.length() > 0
        };
        let v6 = addresses.iter().any(|own| own.address().is_ipv6());
        let most = if spec.link == LinkKind::Ethernet { 2034 } else { 2048 };
        let mac = spec.link == LinkKind::Ip || (!spec.mac.is_group() && spec.mac != Mac([0; 6]));
        distinct && addresses.iter().all(possible) && mac && spec.mtu >= if v6 { 1280 } else { 68 } && spec.mtu <= most
    }

    /// Puts a port, and takes the routes away that it does not serve any more. False where that cannot be.
    fn put_port(&mut self, id: PortId, spec: &PortSpec) -> bool {
        let old = self.ports.remove(&id);
        let name_taken = self.ports.values().any(|port| port.spec.name == spec.name);
        if !self.vrfs.contains_key(&spec.vrf) || name_taken || !Self::spec_is_possible(spec) {
            return false;
        }
        let mut spec = spec.clone();
        if let Some(old) = &old
            && old.spec.mac != spec.mac
            && let Some(derived) = derived_link_local(&PortSpec {
                addresses: Vec::new(),
                mtu: 1500,
                link: LinkKind::Ethernet,
                ..old.spec.clone()
            })
            && old.owns(derived)
        {
            spec.addresses.retain(|own| own.address() != derived);
        }
        let same_link = old.as_ref().filter(|old| old.spec.vrf == spec.vrf && old.spec.link == spec.link);
        let neighbours = same_link.map(|old| old.neighbours.clone()).unwrap_or_default();
        self.ports.insert(id, ModelPort { spec: spec.clone(), neighbours });
        let Some(made) = self.port_routes(spec.vrf) else { return false };
        if made.keys().any(|prefix| self.vrfs[&spec.vrf].routes.contains_key(prefix)) {
            return false;
        }
        self.strand(id);
        true
    }

    fn strand(&mut self, id: PortId) {
        let port = self.ports.get(&id);
        for (vrf_id, vrf) in &mut self.vrfs {
            let port = port.filter(|port| port.spec.vrf == *vrf_id);
            vrf.routes.retain(|_, kind| match *kind {
                RouteKind::Connected { port: by } => by != id || port.is_some(),
                RouteKind::Via { port: by, next_hop } => by != id || port.is_some_and(|port| port.reaches(next_hop)),
                _ => true,
            });
        }
    }

    fn route_is_possible(&self, vrf: VrfId, prefix: IpPrefix, kind: RouteKind) -> bool {
        let Some(made) = self.vrfs.contains_key(&vrf).then(|| self.port_routes(vrf)).flatten() else { return false };
        let first = prefix.address();
        let everywhere = match first {
            IpAddr::V4(first) => first.is_multicast() && prefix.length() >= 4,
            IpAddr::V6(first) => {
                first.is_multicast() && prefix.length() >= 8 || first.is_unicast_link_local() && prefix.length() >= 10
            }
        };
        let port = |id: PortId| self.ports.get(&id).filter(|port| port.spec.vrf == vrf && !everywhere);
        let by = match kind {
            RouteKind::Local | RouteKind::Broadcast => false,
            RouteKind::Connected { port: by } => port(by).is_some(),
            RouteKind::Via { port: by, next_hop } => port(by).is_some_and(|port| {
                let host = longest(&made, next_hop).map(|route| route.kind);
                let ours = matches!(host, Some(RouteKind::Local | RouteKind::Broadcast)) || port.owns(next_hop);
                is_station(next_hop) && !ours && next_hop.is_ipv4() == first.is_ipv4() && port.reaches(next_hop)
            }),
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => true,
        };
        by && prefix == prefix.network() && !made.contains_key(&prefix)
    }

    fn policy_is_possible(&self, spec: &PolicySpec, but: Option<u32>) -> bool {
        let selector = &spec.selector;
        let families = selector.source.is_v6() == selector.destination.is_v6();
        let icmp = if selector.source.is_v6() { Protocol::ICMPV6 } else { Protocol::ICMP };
        let upper = match selector.upper {
            UpperSelector::Any => true,
            UpperSelector::Ports { .. } => selector.protocol.is_some_and(Protocol::has_ports),
            UpperSelector::Icmp { kind, code } => {
                selector.protocol == Some(icmp) && kind.0 <= kind.1 && code.0 <= code.1
            }
        };
        let template = match spec.action {
            Action::Protect(template) => {
                let source = template.source.unwrap_or(template.destination);
                source.is_ipv4() == template.destination.is_ipv4()
                    && is_station(source)
                    && is_station(template.destination)
                    && template.spi != Some(Spi(0))
            }
            Action::Bypass | Action::Discard => true,
        };
        let same = |other: &PolicySpec| {
            (other.vrf, other.direction, other.selector) == (spec.vrf, spec.direction, spec.selector)
        };
        let taken = self.policies.iter().any(|(index, other)| Some(*index) != but && same(other));
        self.vrfs.contains_key(&spec.vrf) && families && upper && template && !taken
    }

    /// Policies in the order in which they are tried.
    fn ordered(&self, vrf: VrfId, direction: Direction) -> Vec<(u32, PolicySpec)> {
        let wanted = |(_, spec): &&(u32, PolicySpec)| spec.vrf == vrf && spec.direction == direction;
        let mut ordered: Vec<_> = self.policies.iter().filter(wanted).copied().collect();
        ordered.sort_by_key(|(_, spec)| spec.priority);
        ordered
    }

    /// Does a change, or answers false with nothing changed.
    fn change(&mut self, change: &Change) -> bool {
        let before = self.clone();
        let done = self.try_change(change);
        if !done {
            *self = before;
        }
        done
    }

    fn try_change(&mut self, change: &Change) -> bool {
        match change {
            Change::AddVrf(number) => {
                let name = vrf_name(*number);
                let free = (0..).map(VrfId).find(|id| !self.vrfs.contains_key(id)).unwrap();
                let taken = name.is_empty() || self.vrfs.values().any(|vrf| vrf.name == name);
                !taken
                    && self
                        .vrfs
                        .insert(free, ModelVrf { name, routes: BTreeMap::new(), defaults: Default::default() })
                        .is_none()
            }
            Change::RemoveVrf(id) => {
                let used = self.ports.values().any(|port| port.spec.vrf == *id)
                    || self.policies.iter().any(|(_, spec)| spec.vrf == *id)
                    || self.sas.iter().any(|sa| sa.identity.vrf == *id);
                *id != VrfId::MAIN && !used && self.vrfs.remove(id).is_some()
            }
            Change::AddPort(id, spec) => !self.ports.contains_key(id) && self.put_port(*id, spec),
            Change::UpdatePort(id, spec) => self.ports.contains_key(id) && self.put_port(*id, spec),
            Change::RemovePort(id) => {
                let there = self.ports.remove(id).is_some();
                self.strand(*id);
                there
            }
            Change::SetRoute(vrf, prefix, kind) => {
                let possible = self.route_is_possible(*vrf, *prefix, *kind);
                if possible {
                    self.vrfs.get_mut(vrf).unwrap().routes.insert(*prefix, *kind);
                }
                possible
            }
            Change::RemoveRoute(vrf, prefix) => {
                self.vrfs.get_mut(vrf).is_some_and(|vrf| vrf.routes.remove(prefix).is_some())
            }
            Change::SetNeighbour(port, address, mac) => {
                let Some(port) = self.ports.get_mut(port) else { return false };
                let ours = port.owns(*address) || port.routed().filter_map(broadcast).any(|own| own == *address);
                let possible = port.spec.link == LinkKind::Ethernet
                    && is_station(*address)
                    && !ours
                    && !mac.is_group()
                    && *mac != Mac([0; 6]);
                if possible {
                    port.neighbours.insert(*address, *mac);
                }
                possible
            }
            Change::RemoveNeighbour(port, address) => {
                self.ports.get_mut(port).is_some_and(|port| port.neighbours.remove(address).is_some())
            }
            Change::AddPolicy(spec) => {
                let possible = self.policy_is_possible(spec, None);
                if possible {
                    self.policies_made += 1;
                    self.policies.push((self.policies_made * 8 + spec.direction as u32, *spec));
                }
                possible
            }
            Change::UpdatePolicy(which, spec) => {
                let Some(at) = self.index(which) else { return false };
                let (index, old) = self.policies[at];
                let possible = (old.vrf, old.direction) == (spec.vrf, spec.direction)
                    && self.policy_is_possible(spec, Some(index));
                if possible {
                    self.policies[at].1 = *spec;
                }
                possible
            }
            Change::RemovePolicy(which) => self.index(which).map(|at| self.policies.remove(at)).is_some(),
            Change::SetDefault(vrf, direction, action) => match self.vrfs.get_mut(vrf) {
                Some(vrf) => {
                    vrf.defaults[*direction as usize] = *action;
                    true
                }
                None => false,
            },
            Change::AddSa(spec) => {
                let SaIdentity { vrf, source, destination, .. } = spec.identity;
                let same = |other: &SaSpec| {
                    (other.identity.vrf, other.identity.destination, other.spi) == (vrf, destination, spec.spi)
                };
                let possible = self.vrfs.contains_key(&vrf)
                    && source.is_ipv4() == destination.is_ipv4()
                    && is_station(source)
                    && is_station(destination)
                    && spec.spi != Spi(0)
                    && !self.sas.iter().any(same);
                if possible {
                    self.sas.push(*spec);
                }
                possible
            }
            Change::RemoveSa(vrf, destination, spi) => {
                let at = self
                    .sas
                    .iter()
                    .position(|sa| (sa.identity.vrf, sa.identity.destination, sa.spi) == (*vrf, *destination, *spi));
                at.map(|at| self.sas.remove(at)).is_some()
            }
            Change::Snapshot => true,
        }
    }

    fn index(&self, which: &prop::sample::Index) -> Option<usize> {
        (!self.policies.is_empty()).then(|| which.index(self.policies.len()))
    }
}

fn longest(routes: &BTreeMap<IpPrefix, RouteKind>, address: IpAddr) -> Option<Route> {
    let holding = routes.iter().filter(|(prefix, _)| prefix.contains(address));
    holding.max_by_key(|(prefix, _)| prefix.length()).map(|(&prefix, &kind)| Route { prefix, kind })
}

fn vrf_name(number: u8) -> String {
    // The first cannot be a name, the second is taken from the start.
    ["", "main", "red", "blue"][usize::from(number) % 4].into()
}

/// Does the change to the real tables; the policies' indexes are the model's.
fn apply(tables: &mut Tables, model: &Model, change: &Change) -> Result<(), tables::TableError> {
    let index = |which: &prop::sample::Index| model.index(which).map_or(1, |at| model.policies[at].0);
    match change {
        Change::AddVrf(number) => tables.add_vrf(&vrf_name(*number)).map(drop),
        Change::RemoveVrf(id) => tables.remove_vrf(*id),
        Change::AddPort(id, spec) => tables.add_port(*id, spec.clone()),
        Change::UpdatePort(id, spec) => tables.update_port(*id, spec.clone()),
        Change::RemovePort(id) => tables.remove_port(*id),
        Change::SetRoute(vrf, prefix, kind) => tables.set_route(*vrf, *prefix, *kind),
        Change::RemoveRoute(vrf, prefix) => tables.remove_route(*vrf, *prefix).map(drop),
        Change::SetNeighbour(port, address, mac) => tables.set_neighbour(*port, *address, *mac),
        Change::RemoveNeighbour(port, address) => tables.remove_neighbour(*port, *address).map(drop),
        Change::AddPolicy(spec) => tables.add_policy(*spec).map(drop),
        Change::UpdatePolicy(which, spec) => tables.update_policy(index(which), *spec),
        Change::RemovePolicy(which) => tables.remove_policy(index(which)).map(drop),
        Change::SetDefault(vrf, direction, action) => tables.set_default_action(*vrf, *direction, *action),
        Change::AddSa(spec) => {
            let (outbound, inbound) = keys(spec.spi);
            tables.add_sa(*spec, outbound, inbound).map(drop)
        }
        Change::RemoveSa(vrf, destination, spi) => tables.remove_sa(*vrf, *destination, *spi).map(drop),
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
        let seen: BTreeMap<_, _> = vrf.routes().map(|route| (route.prefix, route.kind)).collect();
        prop_assert_eq!(&seen, &routes);
        prop_assert_eq!(vrf.route_count(), routes.len());
        for address in addresses() {
            prop_assert_eq!(vrf.route(address).copied(), longest(&routes, address));
        }
        for direction in Direction::ALL {
            let seen: Vec<_> = vrf.spd.policies(direction).map(|policy| (policy.index, policy.spec)).collect();
            prop_assert_eq!(vrf.spd.policies(direction).len(), seen.len());
            let ordered = model.ordered(*id, direction);
            prop_assert_eq!(&seen, &ordered);
            prop_assert_eq!(vrf.spd.default_action(direction), model_vrf.defaults[direction as usize]);
            for key in flow_keys() {
                let found = vrf.spd.lookup(direction, &key).map(|(position, policy)| (position, policy.index));
                let expected = ordered.iter().position(|(_, spec)| spec.selector.matches(&key));
                prop_assert_eq!(found, expected.map(|at| (at + 1, ordered[at].0)));
            }
        }
    }
    compare_policies(tables, model)?;
    compare_ports(tables, model)?;
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
        spec.addresses.extend(derived_link_local(&spec).map(|address| IpPrefix::new(address, 64).unwrap()));
        prop_assert_eq!(&port.spec, &spec);
        let neighbours: BTreeMap<_, _> = port.neighbours.iter().collect();
        prop_assert_eq!(&neighbours, &expected.neighbours);
        for address in addresses() {
            prop_assert_eq!(port.neighbours.lookup(address), expected.neighbours.get(&address).copied());
            let local = model.vrfs.contains_key(&spec.vrf)
                && model.ports.values().any(|port| {
                    let routed = port.routed().any(|own| own.address() == address || broadcast(own) == Some(address));
                    port.spec.vrf == spec.vrf && routed
                });
            let everyone = address == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
            let listened = everyone || spec.addresses.iter().any(|own| own.address() == address);
            prop_assert_eq!(tables.is_local(spec.vrf, *id, address), local || listened, "{}", address);
        }
    }
    Ok(())
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
        let serving: Vec<_> = model.sas.iter().filter(|sa| sa.identity == identity).copied().collect();
        prop_assert_eq!(slot.sas.iter().map(|sa| sa.spec).collect::<Vec<_>>(), serving);
    }
    for template in templates() {
        for vrf in [0, 1].map(VrfId) {
            let admitted = |sa: &&SaSpec| sa.identity.vrf == vrf && template.admits(&sa.identity);
            let newest =
                model.sas.iter().rev().filter(admitted).find(|sa| template.spi.is_none_or(|spi| spi == sa.spi));
            prop_assert_eq!(tables.outbound_sa(vrf, &template).map(|sa| &sa.spec), newest);
            // The slot's newest is the SA itself, unless a template insists on an older one.
            let newest_of_slot =
                newest.filter(|sa| model.sas.iter().rev().find(|other| other.identity == sa.identity) == Some(*sa));
            let resolved = tables.resolve(vrf, &template).and_then(|slot| sad.outbound(slot));
            prop_assert_eq!(resolved.map(|sa| &sa.spec), newest_of_slot);
        }
    }
    Ok(())
}

// Small worlds, in which things meet.

fn addresses() -> Vec<IpAddr> {
    let texts = [
        "10.0.0.0",
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.127",
        "10.0.0.128",
        "10.0.0.255",
        "10.0.1.1",
        "10.1.0.255",
        "192.0.2.1",
        "255.255.255.255",
        "0.0.0.0",
        "127.0.0.1",
        "2001:db8::1",
        "2001:db8::2",
        "2001:db8:1::1",
        "fe80::1",
        "fe80::2",
        "fe80::ff:fe00:1",
        "fe80::ff:fe00:2",
        "::",
    ];
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn address() -> impl Strategy<Value = IpAddr> + Clone {
    prop::sample::select(addresses())
}

fn prefix() -> impl Strategy<Value = IpPrefix> + Clone {
    (address(), 0..6usize).prop_map(|(address, length)| {
        let lengths = if address.is_ipv4() { [0, 16, 24, 25, 31, 32] } else { [0, 10, 48, 64, 127, 128] };
        IpPrefix::new(address, lengths[length]).unwrap()
    })
}

fn vrf() -> impl Strategy<Value = VrfId> + Clone {
    prop_oneof![6 => Just(VrfId(0)), 3 => Just(VrfId(1)), 1 => Just(VrfId(2))]
}

fn port() -> impl Strategy<Value = PortId> + Clone {
    (0u16..3).prop_map(PortId)
}

fn mac() -> impl Strategy<Value = Mac> + Clone {
    prop_oneof![
        5 => Just(Mac([2, 0, 0, 0, 0, 1])),
        5 => Just(Mac([2, 0, 0, 0, 0, 2])),
        1 => Just(Mac([0; 6])),
        1 => Just(Mac([3, 0, 0, 0, 0, 1])),
    ]
}

fn port_spec() -> impl Strategy<Value = PortSpec> {
    let link = prop_oneof![4 => Just(LinkKind::Ethernet), 1 => Just(LinkKind::Ip)];
    let mtu = prop_oneof![8 => Just(1500u16), 1 => Just(1279), 1 => Just(67), 1 => Just(2035)];
    let usual =
        ["10.0.0.1/24", "10.0.0.2/24", "10.0.0.129/25", "10.0.0.2/31", "10.0.1.1/24", "2001:db8::1/64", "fe80::1/64"];
    let usual = prop::sample::select(usual.map(|text| text.parse().unwrap()).to_vec());
    let own = prop_oneof![4 => usual, 1 => prefix().prop_filter("mostly possible", |own| own.length() > 15)];
    (0u8..3, vrf(), link, mac(), mtu, proptest::collection::vec(own, 0..4), any::<bool>()).prop_map(
        |(name, vrf, link, mac, mtu, addresses, up)| PortSpec {
            name: format!("port{name}").into(),
            vrf,
            link,
            mac,
            mtu,
            addresses,
            up,
        },
    )
}

fn route_kind() -> impl Strategy<Value = RouteKind> {
    prop_oneof![
        6 => (port(), address()).prop_map(|(port, next_hop)| RouteKind::Via { port, next_hop }),
        2 => port().prop_map(|port| RouteKind::Connected { port }),
        1 => Just(RouteKind::Blackhole),
        1 => Just(RouteKind::Prohibit),
        1 => Just(RouteKind::Local),
    ]
}

fn range() -> impl Strategy<Value = IpRange> {
    prop_oneof![
        2 => Just(IpRange::ALL_V4),
        1 => Just(IpRange::ALL_V6),
        3 => prefix().prop_map(|prefix| prefix.range()),
    ]
}

fn selector() -> impl Strategy<Value = Selector> {
    let ports = prop::sample::select(vec![(0, u16::MAX), (53, 53), (1000, 2000)])
        .prop_map(|(first, last)| PortRange::new(first, last).unwrap());
    let upper = prop_oneof![
        3 => Just(UpperSelector::Any),
        2 => (ports.clone(), ports).prop_map(|(source, destination)| UpperSelector::Ports { source, destination }),
        2 => (0u8..10, 0u8..10).prop_map(|(a, b)| UpperSelector::Icmp { kind: (a, b), code: (0, 255) }),
    ];
    let protocol = prop::sample::select(vec![
        None,
        Some(Protocol::UDP),
        Some(Protocol::TCP),
        Some(Protocol::ICMP),
        Some(Protocol::ICMPV6),
        Some(Protocol(0)),
    ]);
    (range(), range(), protocol, upper).prop_map(|(source, destination, protocol, upper)| Selector {
        source,
        destination,
        protocol,
        upper,
    })
}

fn policy() -> impl Strategy<Value = PolicySpec> {
    let template = prop::sample::select(templates());
    let action = prop_oneof![Just(Action::Bypass), Just(Action::Discard), template.prop_map(Action::Protect)];
    let direction = prop_oneof![3 => Just(Direction::Out), 1 => Just(Direction::In), 1 => Just(Direction::Fwd)];
    (vrf(), direction, 0u32..3, selector(), action).prop_map(|(vrf, direction, priority, selector, action)| {
        PolicySpec { vrf, direction, priority, selector, action }
    })
}

fn ends() -> Vec<IpAddr> {
    ["192.0.2.1", "192.0.2.2", "2001:db8::1"].iter().map(|text| text.parse().unwrap()).collect()
}

fn templates() -> Vec<Template> {
    let mut templates = Vec::new();
    for destination in ends() {
        for source in ends().into_iter().map(Some).chain([None]) {
            for (reqid, spi) in [(0, None), (1, None), (2, None), (0, Some(Spi(1))), (1, Some(Spi(2)))] {
                templates.push(Template { source, destination, reqid, spi });
            }
        }
    }
    templates
}

fn sa() -> impl Strategy<Value = SaSpec> {
    let end = prop_oneof![8 => prop::sample::select(ends()), 1 => address()];
    (vrf(), end.clone(), end, 0u32..3, 0u32..6).prop_map(|(vrf, source, destination, reqid, spi)| SaSpec {
        identity: SaIdentity { vrf, source, destination, reqid },
        spi: Spi(spi),
        no_ecn: false,
        no_pmtu_discovery: false,
    })
}

/// Packets to look policies up for.
fn flow_keys() -> Vec<FlowKey> {
    let pairs = [("10.0.0.1", "10.0.0.2"), ("10.0.0.255", "192.0.2.1"), ("2001:db8::1", "2001:db8::2")];
    let uppers = [
        (Protocol::UDP, Upper::Ports { source: 1500, destination: 53 }),
        (Protocol::TCP, Upper::Ports { source: 53, destination: 53 }),
        (Protocol::UDP, Upper::None),
        (Protocol::ICMP, Upper::Icmp { kind: 8, code: 0, identifier: 1 }),
        (Protocol::ICMPV6, Upper::Icmp { kind: 3, code: 1, identifier: 0 }),
        (Protocol::ESP, Upper::Spi(Spi(7))),
        (Protocol(0), Upper::None),
    ];
    let mut keys = Vec::new();
    for (source, destination) in pairs {
        for (protocol, upper) in uppers {
            let addresses = match (source.parse().unwrap(), destination.parse().unwrap()) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
                (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
                _ => unreachable!(),
            };
            let origin = Origin::Port(PortId(0));
            keys.push(FlowKey { vrf: VrfId(0), origin, addresses, protocol, fragment: FragmentClass::Whole, upper });
        }
    }
    keys
}

fn change() -> impl Strategy<Value = Change> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        1 => (0u8..4).prop_map(Change::AddVrf),
        1 => vrf().prop_map(Change::RemoveVrf),
        4 => (port(), port_spec()).prop_map(|(port, spec)| Change::AddPort(port, spec)),
        4 => (port(), port_spec()).prop_map(|(port, spec)| Change::UpdatePort(port, spec)),
        1 => port().prop_map(Change::RemovePort),
        8 => (vrf(), prefix(), route_kind()).prop_map(|(vrf, prefix, kind)| Change::SetRoute(vrf, prefix.network(), kind)),
        1 => (vrf(), prefix(), route_kind()).prop_map(|(vrf, prefix, kind)| Change::SetRoute(vrf, prefix, kind)),
        2 => (vrf(), prefix()).prop_map(|(vrf, prefix)| Change::RemoveRoute(vrf, prefix)),
        3 => (port(), address(), mac()).prop_map(|(port, address, mac)| Change::SetNeighbour(port, address, mac)),
        1 => (port(), address()).prop_map(|(port, address)| Change::RemoveNeighbour(port, address)),
        8 => policy().prop_map(Change::AddPolicy),
        3 => (which(), policy()).prop_map(|(which, spec)| Change::UpdatePolicy(which, spec)),
        2 => which().prop_map(Change::RemovePolicy),
        1 => (vrf(), prop::sample::select(Direction::ALL.to_vec()), any::<bool>()).prop_map(|(vrf, direction, accept)| {
            Change::SetDefault(vrf, direction, if accept { DefaultAction::Accept } else { DefaultAction::Block })
        }),
        8 => sa().prop_map(Change::AddSa),
        3 => sa().prop_map(|sa| Change::RemoveSa(sa.identity.vrf, sa.identity.destination, sa.spi)),
        1 => Just(Change::Snapshot),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn tables_are_the_model(changes in proptest::collection::vec(change(), 1..120), secret: u64) {
        let mut tables = Tables::new(2, secret);
        let mut model = Model::new();
        let mut snapshots = Vec::new();
        for change in &changes {
            let before = format!("{tables:?}");
            let answer = apply(&mut tables, &model, change);
            let allowed = model.change(change);
            prop_assert_eq!(answer.is_ok(), allowed, "{:?}: {:?}", change, answer);
            if let Err(why) = answer {
                prop_assert_eq!(before, format!("{tables:?}"), "{}", why);
            }
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
