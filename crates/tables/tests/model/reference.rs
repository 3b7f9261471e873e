//! The model. Everything is derived anew whenever it is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use packet::LinkKind;
use proptest::prelude::*;
use tables::{
    Action, DefaultAction, Direction, PolicySpec, PortSpec, RouteSpec, SaIdentity, SaSpec, Side,
    UpperSelector,
};
use wire::{IpPrefix, Mac, PortId, Protocol, Spi, VrfId};

#[derive(Clone, Debug)]
pub(crate) enum Change {
    AddVrf(u8),
    RemoveVrf(VrfId),
    AddPort(PortId, PortSpec),
    UpdatePort(PortId, PortSpec),
    /// One part of a port becomes another, the rest stays as it is.
    TweakPort(PortId, Tweak),
    RemovePort(PortId),
    SetRoute(VrfId, IpPrefix, RouteSpec),
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

#[derive(Clone, Copy, Debug)]
pub(crate) enum Tweak {
    Mtu(u16),
    Mac(Mac),
    Up(bool),
    Link(LinkKind),
    Side(Side),
}

/// What a route does: one that was asked for, or one that comes with an address of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelRoute {
    Local,
    Broadcast,
    To(RouteSpec),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) vrfs: BTreeMap<VrfId, ModelVrf>,
    pub(crate) ports: BTreeMap<PortId, ModelPort>,
    /// In order of addition.
    pub(crate) policies: Vec<(u32, PolicySpec)>,
    pub(crate) policies_made: u32,
    /// In order of addition.
    pub(crate) sas: Vec<SaSpec>,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelVrf {
    pub(crate) name: String,
    pub(crate) routes: BTreeMap<IpPrefix, RouteSpec>,
    pub(crate) defaults: [DefaultAction; 3],
}

#[derive(Clone, Debug)]
pub(crate) struct ModelPort {
    pub(crate) spec: PortSpec,
    pub(crate) neighbours: BTreeMap<IpAddr, Mac>,
}

impl ModelPort {
    pub(crate) fn routed(&self) -> impl Iterator<Item = &IpPrefix> {
        self.spec.addresses.iter().filter(|own| !link_local(own.address()))
    }

    fn reaches(&self, next_hop: IpAddr) -> bool {
        link_local(next_hop) || self.routed().any(|own| !own.is_host() && own.contains(next_hop))
    }

    pub(crate) fn owns(&self, address: IpAddr) -> bool {
        self.spec.addresses.iter().any(|own| own.address() == address)
            || derived_link_local(&self.spec) == Some(address)
    }
}

fn link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The link-local address that a port gets besides those it was given.
pub(crate) fn derived_link_local(spec: &PortSpec) -> Option<IpAddr> {
    let given = spec.addresses.iter().any(|own| link_local(own.address()));
    let [a, b, c, d, e, f] = spec.mac.0.map(u128::from);
    let identifier =
        (a ^ 2) << 56 | b << 48 | c << 40 | 0xff << 32 | 0xfe << 24 | d << 16 | e << 8 | f;
    let address = IpAddr::V6((0xfe80 << 112 | identifier).into());
    (spec.link == LinkKind::Ethernet && spec.mtu >= 1280 && !given).then_some(address)
}

pub(crate) fn broadcast(own: &IpPrefix) -> Option<IpAddr> {
    (own.address().is_ipv4() && own.length() < 31).then(|| own.range().last())
}

fn is_station(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !matches!(address.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(address) => !address.is_multicast() && address.to_bits() > 1,
    }
}

impl Model {
    pub(crate) fn new() -> Self {
        let main =
            ModelVrf { name: "main".into(), routes: BTreeMap::new(), defaults: Default::default() };
        Self { vrfs: [(VrfId::MAIN, main)].into(), ..Self::default() }
    }

    /// The routes that the addresses of the VRF's ports make, or nothing where they contradict each
    /// other.
    fn port_routes(&self, vrf: VrfId) -> Option<BTreeMap<IpPrefix, ModelRoute>> {
        let mut routes = BTreeMap::new();
        let in_vrf = || self.ports.iter().filter(|(_, port)| port.spec.vrf == vrf);
        let addresses = || in_vrf().flat_map(|(_, port)| port.routed());
        for own in addresses() {
            if routes.insert(IpPrefix::host(own.address()), ModelRoute::Local).is_some() {
                return None;
            }
        }
        for broadcast in addresses().filter_map(broadcast) {
            let before = routes.insert(IpPrefix::host(broadcast), ModelRoute::Broadcast);
            if before.is_some_and(|before| before != ModelRoute::Broadcast) {
                return None;
            }
        }
        for (&port, own) in in_vrf().flat_map(|(id, port)| port.routed().map(move |own| (id, own)))
        {
            let kind = ModelRoute::To(RouteSpec::Connected { port });
            if !own.is_host()
                && routes.insert(own.network(), kind.clone()).is_some_and(|before| before != kind)
            {
                return None;
            }
        }
        Some(routes)
    }

    pub(crate) fn routes(&self, vrf: VrfId) -> BTreeMap<IpPrefix, ModelRoute> {
        let mut routes = self.port_routes(vrf).expect("the model is consistent");
        let of_others = self.vrfs[&vrf].routes.iter();
        routes.extend(of_others.map(|(prefix, spec)| (*prefix, ModelRoute::To(spec.clone()))));
        routes
    }

    fn spec_is_possible(spec: &PortSpec) -> bool {
        let addresses = &spec.addresses;
        let distinct = addresses.iter().map(IpPrefix::address).collect::<BTreeSet<_>>().len()
            == addresses.len();
        let possible = |own: &IpPrefix| {
            let edge = own.address().is_ipv4()
                && own.length() < 31
                && (own.address() == own.range().first() || own.address() == own.range().last());
            is_station(own.address()) && !edge && own.length() > 0
        };
        let v6 = addresses.iter().any(|own| own.address().is_ipv6());
        let mac = spec.link == LinkKind::Ip || (!spec.mac.is_group() && spec.mac != Mac([0; 6]));
        distinct
            && addresses.iter().all(possible)
            && mac
            && spec.mtu >= if v6 { 1280 } else { 68 }
            && spec.mtu <= 9216
    }

    /// Puts a port, and takes the routes away that it does not serve any more. False where that
    /// cannot be.
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
        let same_link =
            old.as_ref().filter(|old| old.spec.vrf == spec.vrf && old.spec.link == spec.link);
        let neighbours = same_link.map(|old| old.neighbours.clone()).unwrap_or_default();
        self.ports.insert(id, ModelPort { spec: spec.clone(), neighbours });
        let Some(made) = self.port_routes(spec.vrf) else { return false };
        if made.keys().any(|prefix| self.vrfs[&spec.vrf].routes.contains_key(prefix)) {
            return false;
        }
        let stays = old.is_some_and(|old| old.spec.vrf == spec.vrf);
        self.strand(id, stays);
        true
    }

    /// Takes routes away by a port that does not reach their next hops, or that `stays` not in its
    /// VRF.
    fn strand(&mut self, id: PortId, stays: bool) {
        let port = self.ports.get(&id).filter(|_| stays);
        for vrf in self.vrfs.values_mut() {
            let reaches =
                |by: PortId, address| by != id || port.is_some_and(|port| port.reaches(address));
            vrf.routes.retain(|_, kind| match kind {
                RouteSpec::Connected { port: by } => *by != id || port.is_some(),
                RouteSpec::Via { port: by, address } => reaches(*by, *address),
                RouteSpec::Multipath(members) => {
                    members.iter().all(|member| match member.address {
                        Some(address) => reaches(member.port, address),
                        None => member.port != id || port.is_some(),
                    })
                }
                _ => true,
            });
        }
    }

    /// The port as it is to be asked for, if it is there.
    pub(crate) fn tweaked(&self, id: PortId, tweak: Tweak) -> Option<PortSpec> {
        let mut spec = self.ports.get(&id)?.spec.clone();
        match tweak {
            Tweak::Mtu(mtu) => spec.mtu = mtu,
            Tweak::Mac(mac) => spec.mac = mac,
            Tweak::Up(up) => spec.up = up,
            Tweak::Link(link) => spec.link = link,
            Tweak::Side(side) => spec.side = side,
        }
        Some(spec)
    }

    fn route_is_possible(&self, vrf: VrfId, prefix: IpPrefix, spec: &RouteSpec) -> bool {
        let Some(made) = self.vrfs.contains_key(&vrf).then(|| self.port_routes(vrf)).flatten()
        else {
            return false;
        };
        let first = prefix.address();
        let everywhere = match first {
            IpAddr::V4(first) => {
                prefix.length() > 0 && (first.is_multicast() || first.is_broadcast())
            }
            IpAddr::V6(first) => {
                first.is_multicast() && prefix.length() > 0
                    || first.is_unicast_link_local() && prefix.length() >= 10
            }
        };
        let port = |id: PortId| self.ports.get(&id).filter(|_| !everywhere);
        let via = |by: PortId, address: IpAddr| {
            port(by).is_some_and(|port| {
                let there = self.port_routes(port.spec.vrf).expect("the model is consistent");
                let host = longest(&there, address).map(|(_, kind)| kind);
                let ours = matches!(host, Some(ModelRoute::Local | ModelRoute::Broadcast))
                    || port.owns(address);
                is_station(address)
                    && !ours
                    && address.is_ipv4() == first.is_ipv4()
                    && port.reaches(address)
            })
        };
        let by = match spec {
            RouteSpec::Connected { port: by } => port(*by).is_some(),
            RouteSpec::Via { port: by, address } => via(*by, *address),
            RouteSpec::Multipath(members) => {
                let names: BTreeSet<_> =
                    members.iter().map(|member| (member.port, member.address)).collect();
                (1..=64).contains(&members.len())
                    && names.len() == members.len()
                    && members.iter().all(|member| {
                        let leads = match member.address {
                            Some(address) => via(member.port, address),
                            None => port(member.port).is_some(),
                        };
                        (1..=256).contains(&member.weight) && leads
                    })
            }
            RouteSpec::Blackhole | RouteSpec::Unreachable | RouteSpec::Prohibit => true,
            RouteSpec::Vrf { vrf: into } => {
                *into != vrf && self.vrfs.contains_key(into) && !everywhere
            }
            RouteSpec::Onlink { .. } => unreachable!("is not in these worlds"),
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
        let fields = !selector.fields.asks_tcp_flags() || selector.protocol == Some(Protocol::TCP);
        let template = match spec.action {
            Action::Protect(template) => {
                let source = template.source.unwrap_or(template.destination);
                source.is_ipv4() == template.destination.is_ipv4()
                    && is_station(source)
                    && is_station(template.destination)
                    && template.spi != Some(Spi(0))
                    && self.vrfs.contains_key(&template.outer_vrf(spec.vrf))
            }
            Action::Bypass | Action::Discard => true,
        };
        let same = |other: &PolicySpec| {
            (other.vrf, other.direction, other.selector)
                == (spec.vrf, spec.direction, spec.selector)
        };
        let taken = self.policies.iter().any(|(index, other)| Some(*index) != but && same(other));
        self.vrfs.contains_key(&spec.vrf) && families && upper && fields && template && !taken
    }

    /// Policies in the order in which they are tried.
    pub(crate) fn ordered(&self, vrf: VrfId, direction: Direction) -> Vec<(u32, PolicySpec)> {
        let wanted =
            |(_, spec): &&(u32, PolicySpec)| spec.vrf == vrf && spec.direction == direction;
        let mut ordered: Vec<_> = self.policies.iter().filter(wanted).copied().collect();
        ordered.sort_by_key(|(_, spec)| spec.priority);
        ordered
    }

    /// Does a change, or answers false with nothing changed.
    pub(crate) fn change(&mut self, change: &Change) -> bool {
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
                        .insert(
                            free,
                            ModelVrf {
                                name,
                                routes: BTreeMap::new(),
                                defaults: Default::default(),
                            },
                        )
                        .is_none()
            }
            Change::RemoveVrf(id) => {
                let used = self.ports.values().any(|port| port.spec.vrf == *id)
                    || self.policies.iter().any(|(_, spec)| {
                        let outer = match spec.action {
                            Action::Protect(template) => template.outer_vrf(spec.vrf),
                            Action::Bypass | Action::Discard => spec.vrf,
                        };
                        [spec.vrf, outer].contains(id)
                    })
                    || self.sas.iter().any(|sa| [sa.identity.vrf, sa.identity.inner].contains(id));
                let gone = *id != VrfId::MAIN && !used && self.vrfs.remove(id).is_some();
                if gone {
                    let leads_there = |spec: &RouteSpec| *spec == RouteSpec::Vrf { vrf: *id };
                    let tables = self.vrfs.values_mut();
                    tables.for_each(|vrf| vrf.routes.retain(|_, spec| !leads_there(spec)));
                }
                gone
            }
            Change::AddPort(id, spec) => !self.ports.contains_key(id) && self.put_port(*id, spec),
            Change::UpdatePort(id, spec) => self.ports.contains_key(id) && self.put_port(*id, spec),
            Change::TweakPort(id, tweak) => {
                self.tweaked(*id, *tweak).is_some_and(|spec| self.put_port(*id, &spec))
            }
            Change::RemovePort(id) => {
                let there = self.ports.remove(id).is_some();
                self.strand(*id, false);
                there
            }
            Change::SetRoute(vrf, prefix, spec) => {
                let possible = self.route_is_possible(*vrf, *prefix, spec);
                if possible {
                    self.vrfs.get_mut(vrf).unwrap().routes.insert(*prefix, spec.clone());
                }
                possible
            }
            Change::RemoveRoute(vrf, prefix) => {
                self.vrfs.get_mut(vrf).is_some_and(|vrf| vrf.routes.remove(prefix).is_some())
            }
            Change::SetNeighbour(port, address, mac) => {
                let Some(port) = self.ports.get_mut(port) else { return false };
                let ours = port.owns(*address)
                    || port.routed().filter_map(broadcast).any(|own| own == *address);
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
            Change::RemoveNeighbour(port, address) => self
                .ports
                .get_mut(port)
                .is_some_and(|port| port.neighbours.remove(address).is_some()),
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
            Change::RemovePolicy(which) => {
                self.index(which).map(|at| self.policies.remove(at)).is_some()
            }
            Change::SetDefault(vrf, direction, action) => match self.vrfs.get_mut(vrf) {
                Some(vrf) => {
                    vrf.defaults[*direction as usize] = *action;
                    true
                }
                None => false,
            },
            Change::AddSa(spec) => {
                let SaIdentity { vrf, inner, source, destination, .. } = spec.identity;
                let same = |other: &SaSpec| {
                    (other.identity.vrf, other.identity.destination, other.spi)
                        == (vrf, destination, spec.spi)
                };
                let possible = self.vrfs.contains_key(&vrf)
                    && self.vrfs.contains_key(&inner)
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
                let at = self.sas.iter().position(|sa| {
                    (sa.identity.vrf, sa.identity.destination, sa.spi) == (*vrf, *destination, *spi)
                });
                at.map(|at| self.sas.remove(at)).is_some()
            }
            Change::Snapshot => true,
        }
    }

    pub(crate) fn index(&self, which: &prop::sample::Index) -> Option<usize> {
        (!self.policies.is_empty()).then(|| which.index(self.policies.len()))
    }
}

pub(crate) fn longest(
    routes: &BTreeMap<IpPrefix, ModelRoute>,
    address: IpAddr,
) -> Option<(IpPrefix, ModelRoute)> {
    let holding = routes.iter().filter(|(prefix, _)| prefix.contains(address));
    holding.max_by_key(|(prefix, _)| prefix.length()).map(|(&prefix, kind)| (prefix, kind.clone()))
}

pub(crate) fn vrf_name(number: u8) -> String {
    // The first cannot be a name, the second is taken from the start.
    ["", "main", "red", "blue"][usize::from(number) % 4].into()
}
