//! Worlds in which everything that a decision reads comes, goes and changes. Addresses, prefixes,
//! selectors and tunnels are few, so that they meet.
#![allow(dead_code, reason = "the law and the unit test of validity use a part each")]

#[path = "flows.rs"]
mod flows;
#[path = "single.rs"]
mod single;

use std::net::IpAddr;
use std::sync::Arc;

use esp::{Algorithm, Cipher, InboundSa, Integrity, KeyMaterial, OutboundSa, WindowSize};
use packet::{LinkKind, Time};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{
    Action, DefaultAction, Direction, Dscp, FieldsSelector, FilterAction, FilterHook, FilterMatch,
    FilterPlace, FilterRule, FilterSpec, FilterTarget, FilterVerdict, IfId, Ike, Ipsec,
    LookupEngine, MarkBits, MemberSpec, MssClamp, Policy, PolicySpec, PortSpec, Qdisc,
    QdiscCounters, QdiscDevice, QdiscHandle, RejectWith, ReversePath, RouteSpec, Rule, RuleAction,
    RuleEntry, RuleSelector, Sa, SaIdentity, SaSpec, Selector, Side, TableId, TableRef, Tables,
    TapPoints, TapSpec, Template, UpperSelector, Vlan, VlanId, VlanTag,
};
use types::qdisc::{FqCodel, Pfifo, Tbf};
use wire::{IpPrefix, Mac, PortId, PortRange, Protocol, Spi, VrfId};

use self::single::{Single, single};

/// Two ports in each of four VRFs with the same addresses. Those of the third are VLANs of the
/// first two ports, and those of the fourth VLANs of these.
pub(crate) const PORTS: u16 = 8;
/// The first ports have a queue each; of these the last has no Ethernet.
pub(crate) const QUEUES: u16 = 4;
/// Behind these, xfrm links: in the second VRF and, once it was added, in the first.
const LINKS: [(PortId, VrfId, u32); 2] = [(PortId(8), RED, 8), (PortId(9), VrfId::MAIN, 9)];
const RED: VrfId = VrfId(1);
const BLUE: VrfId = VrfId(2);
const GREEN: VrfId = VrfId(3);
const VRFS: [VrfId; 4] = [VrfId::MAIN, RED, BLUE, GREEN];
/// By which port each VRF's routes leave.
const WAYS_OUT: [(VrfId, PortId); 4] =
    [(VrfId::MAIN, PortId(1)), (RED, PortId(3)), (BLUE, PortId(5)), (GREEN, PortId(7))];

/// Stations, and the gateway's own addresses; and what is not routed. By family, and the more usual
/// ones first.
const HOSTS: [[&str; 13]; 2] = [
    [
        "10.1.0.5",
        "10.3.0.5",
        "10.3.0.6",
        "10.2.0.9",
        "10.2.0.1",
        "10.1.0.6",
        "10.4.1.1",
        "10.1.0.1",
        "10.2.0.8",
        "172.16.0.1",
        "10.1.0.255",
        "224.0.0.1",
        "169.254.1.1",
    ],
    [
        "fd01::5", "fd03::5", "fd03::6", "fd02::9", "fd02::1", "fd01::6", "fd04::1", "fd01::1",
        "fd02::8", "fd99::1", "fe80::5", "ff02::1", "fe80::9",
    ],
];
const PREFIXES: [[&str; 8]; 2] = [
    [
        "0.0.0.0/0",
        "10.3.0.0/24",
        "10.3.0.4/31",
        "10.3.0.5/32",
        "10.2.0.9/32",
        "10.2.0.8/30",
        "10.4.0.0/16",
        "10.0.0.0/8",
    ],
    [
        "::/0",
        "fd03::/64",
        "fd03::4/127",
        "fd03::5/128",
        "fd02::9/128",
        "fd02::8/125",
        "fd04::/32",
        "fd00::/8",
    ],
];
const RANGES: [[&str; 9]; 2] = [
    [
        "0.0.0.0/0",
        "10.1.0.0/24",
        "10.3.0.0/24",
        "10.3.0.5/32",
        "10.1.0.5/32",
        "10.1.0.3-10.3.0.5",
        "10.2.0.1/32",
        "10.3.0.5-10.3.0.6",
        "10.2.0.0/24",
    ],
    [
        "::/0",
        "fd01::/64",
        "fd03::/64",
        "fd03::5/128",
        "fd01::5/128",
        "fd01::3-fd03::5",
        "fd02::1/128",
        "fd03::5-fd03::6",
        "fd02::/64",
    ],
];
/// The ends of tunnels, mine first. The second's far end is behind another station.
const TUNNELS: [(&str, &str); 4] = [
    ("10.2.0.1", "10.2.0.9"),
    ("10.2.0.1", "10.3.0.6"),
    ("fd02::1", "fd02::9"),
    ("10.1.0.1", "10.2.0.9"),
];
/// Of different sizes on the wire.
pub(crate) const ALGORITHMS: [Algorithm; 3] = [
    Algorithm::AesGcm128,
    Algorithm::separate(Cipher::AesCbc128, Integrity::HmacSha256_128),
    Algorithm::NullWithoutIntegrity,
];

/// One thing that is done to the tables. What is refused is not done, in every world alike.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    AddPolicy(PolicySpec),
    /// Another that differs in one field.
    AddLike(Index, Edit),
    UpdatePolicy(Index, Edit),
    RemovePolicy(Index),
    Default(VrfId, Direction, DefaultAction),
    SetRoute(VrfId, IpPrefix, RouteSpec),
    RemoveRoute(VrfId, IpPrefix),
    SetNeighbour(PortId, IpAddr, u8),
    RemoveNeighbour(PortId, IpAddr),
    AddSa(SaSpec, Algorithm),
    RemoveSa(Index),
    /// Another SA in the slot of one that is there.
    AddSaLike(Index, Spi, Algorithm),
    /// The same, and the one that was there goes.
    Rekey(Index, Spi, Algorithm),
    UpdatePort(PortId, PortEdit),
    RemovePort(PortId),
    AddPort(PortId),
    Ipsec(VrfId, Ipsec),
    SetFilterRule(FilterSpec),
    RemoveFilterRule(FilterPlace, u32),
    Ike(VrfId, Ike),
    /// Puts a rule where the index says, if there are few.
    AddRule(Index, Rule),
    RemoveRule(Index),
    SetLooseRoute(u32, IpPrefix, RouteSpec),
    RemoveLooseRoute(u32, IpPrefix),
    /// At such points; tap N of a few.
    AddTap(u64, FilterTarget, [bool; 3]),
    RemoveTap(u64),
    /// What stands there, and under it.
    SetQdisc(QdiscDevice, Qdisc, Option<Qdisc>),
    RemoveQdisc(QdiscDevice),
    AddVrf,
    RemoveVrf(VrfId),
    /// Flows of this kind become those of a VRF, by two of its ports.
    SetFlows(VrfId, usize),
    /// One more, by its ports.
    AddFlow(VrfId, Single),
    /// One less.
    RemoveFlow(Index),
    /// Connection N of a few ends.
    RemoveConnection(u32),
    /// Its mark becomes another one.
    SetConnectionMark(u32, u32),
    /// So many changes that concern nobody.
    Noise(usize),
    /// So many policies that they are not tried one after the other.
    Crowd(VrfId, Direction),
}

#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Priority(u32),
    Selector(Selector),
    Action(Action),
    Direction(Direction),
    Vrf(VrfId),
    IfId(Option<IfId>),
}

#[derive(Clone, Debug)]
pub(crate) enum PortEdit {
    Up(bool),
    Mtu(u16),
    Vrf(VrfId),
    Mac(u8),
    Addresses(usize),
    Side(Side),
    ReversePath(ReversePath),
    Mss(MssClamp),
}

/// The tables, and every policy and SA that ever was, for their counters.
pub(crate) struct World {
    pub(crate) tables: Tables,
    pub(crate) policies: Vec<Arc<Policy>>,
    pub(crate) sas: Vec<Arc<Sa>>,
    pub(crate) filter_rules: Vec<FilterRule>,
    pub(crate) qdiscs: Vec<Arc<QdiscCounters>>,
    /// The kind of each VRF's flows.
    flows: [usize; VRFS.len()],
    pub(crate) now: Time,
}

fn parsed<T: std::str::FromStr<Err: core::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

pub(crate) fn keys(algorithm: Algorithm) -> KeyMaterial {
    let integrity = match algorithm {
        Algorithm::Separate { .. } => vec![0xa5; 32],
        _ => Vec::new(),
    };
    KeyMaterial::new(algorithm, &vec![0x5a; algorithm.encryption_key_length()], &integrity).unwrap()
}

pub(crate) fn port_link(id: PortId) -> LinkKind {
    if id.0 == 3 { LinkKind::Ip } else { LinkKind::Ethernet }
}

/// Which VLAN of which port it is: with a service tag, and with two customer tags too.
pub(crate) fn port_vlan(id: PortId) -> Option<Vlan> {
    let number = VlanId::new(100 + id.0).unwrap();
    Some(match id.0 {
        0..QUEUES | PORTS.. => return None,
        4 => Vlan::new(PortId(0), VlanTag::service(number)),
        5 => Vlan::new(PortId(1), VlanTag::customer(number)),
        _ => Vlan::new(PortId(id.0 - 2), VlanTag::customer(number)),
    })
}

pub(crate) fn ports_of(vrf: VrfId) -> [PortId; 2] {
    [PortId(2 * vrf.0), PortId(2 * vrf.0 + 1)]
}

fn port_spec(id: PortId) -> PortSpec {
    let link = LINKS.into_iter().find(|(link, ..)| *link == id);
    PortSpec {
        name: format!("port{}", id.0).into(),
        vrf: link.map_or_else(|| VRFS[usize::from(id.0 / 2)], |(_, vrf, _)| vrf),
        link: port_link(id),
        mac: Mac([2, 0, 0, 0, 0, id.0 as u8]),
        mtu: 1500,
        addresses: addresses(id, 0),
        up: true,
        vlan: port_vlan(id),
        if_id: link.and_then(|(_, _, if_id)| IfId::new(if_id)),
        side: Side::Unset,
        reverse_path: ReversePath::Off,
        mss: MssClamp::Off,
    }
}

fn addresses(id: PortId, which: usize) -> Vec<IpPrefix> {
    let all: [&[&str]; 4] = match id.0 % 2 {
        _ if id.0 >= PORTS => {
            [&["10.4.1.2/24", "fd04::2/64"], &["10.4.1.2/32"], &[], &["10.4.1.1/24"]]
        }
        0 => [
            &["10.1.0.1/24", "fd01::1/64"],
            &["10.1.0.1/25", "fd01::1/64"],
            &["10.1.0.1/24"],
            &["10.3.0.5/24", "fd01::1/64"],
        ],
        _ => [
            &["10.2.0.1/24", "fd02::1/64"],
            &["10.2.0.1/28", "fd02::1/120"],
            &["10.2.0.1/24"],
            &["10.2.0.8/24", "fd02::8/64"],
        ],
    };
    all[which].iter().map(|text| parsed(text)).collect()
}

impl World {
    /// Four VRFs, one of them with a tunnel.
    pub(crate) fn new(engine: LookupEngine) -> Self {
        let mut tables = Tables::new(1, 7);
        tables.set_lookup_engine(engine);
        tables.add_vrf("red").unwrap();
        tables.add_vrf("blue").unwrap();
        tables.add_vrf("green").unwrap();
        let mut world = Self {
            tables,
            policies: Vec::new(),
            sas: Vec::new(),
            filter_rules: Vec::new(),
            qdiscs: Vec::new(),
            flows: [0; VRFS.len()],
            now: Time(1_000_000_000),
        };
        world.tables.set_connections(flows::connections());
        (0..=PORTS).for_each(|id| world.apply(&Act::AddPort(PortId(id))));
        for (vrf, port) in WAYS_OUT {
            for (to, by) in
                [("0.0.0.0/0", "10.2.0.9"), ("::/0", "fd02::9"), ("10.3.0.0/24", "10.2.0.8")]
            {
                world.apply(&Act::SetRoute(
                    vrf,
                    parsed(to),
                    RouteSpec::Via { port, address: parsed(by) },
                ));
            }
        }
        for (vrf, port) in WAYS_OUT {
            for (family, prefixes) in PREFIXES.iter().enumerate() {
                let spec = multipath(family, PortId(port.0 - 1), [1, 2, 3, 1], [0; 4]);
                world.apply(&Act::SetRoute(vrf, parsed(prefixes[6]), spec));
            }
        }
        let sides = [[0, 5], [3, 8]];
        for port in [0, 1, 2, 4, 5, 6, 7] {
            let hosts = sides[usize::from(port % 2)];
            for host in hosts {
                HOSTS.iter().for_each(|family| {
                    world.apply(&Act::SetNeighbour(PortId(port), parsed(family[host]), host as u8));
                });
            }
        }
        let (mine, theirs) = TUNNELS[0];
        for (spi, source, destination) in [(300, mine, theirs), (301, theirs, mine)] {
            let (source, destination) = (parsed(source), parsed(destination));
            let identity = SaIdentity {
                vrf: VrfId::MAIN,
                inner: VrfId::MAIN,
                if_id: None,
                source,
                destination,
                reqid: 1,
            };
            let spec = SaSpec { identity, spi: Spi(spi), no_ecn: false, no_pmtu_discovery: false };
            world.apply(&Act::AddSa(spec, ALGORITHMS[0]));
            let exact =
                Template { vrf: None, source: Some(source), destination, reqid: 1, spi: None };
            // IPv6 by any SA to the peer, and from it by that one alone.
            let other = match spi {
                300 => Template { source: None, reqid: 0, ..exact },
                _ => Template { spi: Some(Spi(spi)), ..exact },
            };
            let direction = if spi == 300 { Direction::Out } else { Direction::In };
            for (family, template) in RANGES.into_iter().zip([exact, other]) {
                let (from, to) = if spi == 300 { (1, 2) } else { (2, 1) };
                let selector = Selector {
                    source: parsed(family[from]),
                    destination: parsed(family[to]),
                    protocol: None,
                    upper: UpperSelector::Any,
                    fields: FieldsSelector::ANY,
                };
                let action = Action::Protect(template);
                let spec = PolicySpec {
                    vrf: VrfId::MAIN,
                    direction,
                    if_id: None,
                    priority: 2,
                    selector,
                    action,
                };
                world.apply(&Act::AddPolicy(spec));
            }
        }
        world.add_tunnel_of_link();
        world
    }

    /// Everything that leaves or enters by the first link is protected, by way of the first VRF.
    fn add_tunnel_of_link(&mut self) {
        let (mine, theirs) = TUNNELS[0];
        let (_, _, number) = LINKS[0];
        let (vrf, inner, if_id) = (VrfId::MAIN, VrfId::MAIN, IfId::new(number));
        for (spi, source, destination, direction) in
            [(302, mine, theirs, Direction::Out), (303, theirs, mine, Direction::In)]
        {
            let (source, destination) = (parsed(source), parsed(destination));
            let identity = SaIdentity { vrf, inner, if_id, source, destination, reqid: 1 };
            let spec = SaSpec { identity, spi: Spi(spi), no_ecn: false, no_pmtu_discovery: false };
            self.apply(&Act::AddSa(spec, ALGORITHMS[0]));
            let template =
                Template { vrf: None, source: Some(source), destination, reqid: 1, spi: None };
            for family in RANGES {
                let selector = Selector {
                    source: parsed(family[0]),
                    destination: parsed(family[0]),
                    protocol: None,
                    upper: UpperSelector::Any,
                    fields: FieldsSelector::ANY,
                };
                let action = Action::Protect(template);
                let spec = PolicySpec { vrf, direction, if_id, priority: 2, selector, action };
                self.apply(&Act::AddPolicy(spec));
            }
        }
    }

    /// Takes other flows of no kind.
    fn change_flows(&mut self, pipeline: pipeline::Pipeline) {
        _ = self.tables.set_pipeline(pipeline, self.now);
    }

    fn set_flows(&mut self, vrf: VrfId, kind: usize) {
        let mut kinds = self.flows;
        kinds[usize::from(vrf.0)] = kind;
        let all: Vec<_> =
            VRFS.into_iter().zip(kinds).map(|(vrf, kind)| (vrf, kind, ports_of(vrf))).collect();
        if self.tables.set_pipeline(flows::pipeline(&all), self.now).is_ok() {
            self.flows = kinds;
        }
    }

    /// Does what can be done.
    pub(crate) fn apply(&mut self, act: &Act) {
        let tables = &mut self.tables;
        match act {
            Act::AddPolicy(spec) => self.add_policy(*spec),
            Act::AddLike(which, edit) => {
                if let Some(policy) = self.policy(which) {
                    self.add_policy(edit.applied(policy.spec));
                }
            }
            Act::UpdatePolicy(which, edit) => {
                if let Some(policy) = self.policy(which) {
                    let _ = self.tables.update_policy(policy.index, edit.applied(policy.spec));
                }
            }
            Act::RemovePolicy(which) => {
                if let Some(policy) = self.policy(which) {
                    self.tables.remove_policy(policy.index).unwrap();
                }
            }
            Act::Default(vrf, direction, action) => {
                _ = tables.set_default_action(*vrf, *direction, *action);
            }
            Act::SetRoute(vrf, prefix, kind) => _ = tables.set_route(*vrf, *prefix, kind.clone()),
            Act::RemoveRoute(vrf, prefix) => _ = tables.remove_route(*vrf, *prefix),
            Act::SetNeighbour(port, address, mac) => {
                _ = tables.set_neighbour(*port, *address, Mac([2, 0xaa, 0, 0, 0, *mac]));
            }
            Act::RemoveNeighbour(port, address) => _ = tables.remove_neighbour(*port, *address),
            Act::AddSa(spec, algorithm) => self.add_sa(*spec, *algorithm),
            Act::RemoveSa(which) => {
                if let Some(sa) = self.sa(which) {
                    self.remove_sa(&sa);
                }
            }
            Act::AddSaLike(which, spi, algorithm) => {
                if let Some(sa) = self.sa(which) {
                    self.add_sa(SaSpec { spi: *spi, ..sa.spec }, *algorithm);
                }
            }
            Act::Rekey(which, spi, algorithm) => {
                if let Some(sa) = self.sa(which) {
                    self.add_sa(SaSpec { spi: *spi, ..sa.spec }, *algorithm);
                    self.remove_sa(&sa);
                }
            }
            Act::UpdatePort(id, edit) => {
                if let Some(port) = tables.port(*id) {
                    let spec = edit.applied(*id, port.spec.clone());
                    let _ = tables.update_port(*id, spec);
                }
            }
            Act::RemovePort(id) => _ = tables.remove_port(*id),
            Act::AddPort(id) => _ = tables.add_port(*id, port_spec(*id)),
            Act::Ipsec(vrf, ipsec) => _ = tables.set_ipsec(*vrf, *ipsec),
            Act::SetFilterRule(spec) => self.set_filter_rule(*spec),
            Act::RemoveFilterRule(place, preference) => {
                _ = tables.remove_filter_rule(*place, *preference);
            }
            Act::Ike(vrf, ike) => _ = tables.set_ike(*vrf, *ike),
            Act::AddRule(which, rule) => {
                if tables.rules().count() < 12 {
                    // It may be one that is there.
                    _ = tables.set_rule(which.index(20) as u64, *rule);
                }
            }
            Act::RemoveRule(which) => {
                let rules: Vec<_> = tables.rules().map(|(id, _)| id).collect();
                if !rules.is_empty() {
                    tables.remove_rule(rules[which.index(rules.len())]);
                }
            }
            Act::SetLooseRoute(table, prefix, kind) => {
                _ = tables.set_route(TableRef::Number(TableId(*table)), *prefix, kind.clone());
            }
            Act::RemoveLooseRoute(table, prefix) => {
                _ = tables.remove_route(TableRef::Number(TableId(*table)), *prefix);
            }
            Act::AddTap(id, target, [ingress, egress, drop]) => {
                let points = TapPoints { ingress: *ingress, egress: *egress, drop: *drop };
                let (target, id) = (*target, *id);
                let spec = TapSpec { id, target, points, snaplen: 96, rate: None, program: None };
                _ = tables.add_tap(spec);
            }
            Act::RemoveTap(id) => _ = tables.remove_taps(|tap| tap.id == *id),
            Act::SetQdisc(device, root, child) => self.set_qdisc(*device, root, child.as_ref()),
            Act::RemoveQdisc(device) => _ = tables.remove_qdisc(*device),
            Act::AddVrf => _ = tables.add_vrf("blue"),
            Act::RemoveVrf(vrf) => _ = tables.remove_vrf(*vrf),
            Act::SetFlows(vrf, kind) => self.set_flows(*vrf, *kind),
            Act::AddFlow(vrf, single) => {
                let more = single::with(tables.pipeline(), *vrf, single, ports_of(*vrf));
                self.change_flows(more);
            }
            Act::RemoveFlow(which) => {
                let fewer = single::without(tables.pipeline(), which);
                self.change_flows(fewer);
            }
            Act::RemoveConnection(index) => {
                let connections = Arc::clone(tables.connections().unwrap());
                if let Some(found) = connections.connection(*index, self.now) {
                    let ended = &mut |ended: &_| tables.connection_ended(ended);
                    connections.remove(found.handle, self.now, ended);
                }
            }
            Act::SetConnectionMark(index, mark) => {
                let connections = tables.connections().unwrap();
                if let Some(found) = connections.connection(*index, self.now) {
                    connections.set_mark(found.handle, *mark, 3);
                }
            }
            Act::Crowd(vrf, direction) => {
                for number in 0..40 {
                    let selector = Selector {
                        source: parsed("10.0.0.0/8"),
                        destination: parsed(&format!("10.200.{number}.0/24")),
                        protocol: None,
                        upper: UpperSelector::Any,
                        fields: FieldsSelector::ANY,
                    };
                    let action = Action::Bypass;
                    let _ = self.tables.add_policy(PolicySpec {
                        vrf: *vrf,
                        direction: *direction,
                        if_id: None,
                        priority: 1,
                        selector,
                        action,
                    });
                }
            }
            Act::Noise(count) => {
                for _ in 0..*count {
                    let nowhere = parsed("203.0.113.0/24");
                    let _ = tables.set_route(VrfId::MAIN, nowhere, RouteSpec::Blackhole);
                }
            }
        }
    }

    fn policy(&self, which: &Index) -> Option<Arc<Policy>> {
        let there: Vec<_> = self
            .policies
            .iter()
            .filter_map(|policy| self.tables.policy_of_index(policy.index))
            .collect();
        (!there.is_empty()).then(|| (*which.get(&there)).clone())
    }

    fn add_policy(&mut self, spec: PolicySpec) {
        if let Ok(index) = self.tables.add_policy(spec) {
            self.policies.push(Arc::clone(self.tables.policy_of_index(index).unwrap()));
        }
    }

    fn set_filter_rule(&mut self, spec: FilterSpec) {
        if self.tables.set_filter_rule(spec).is_ok() {
            let filter = self.tables.filter(spec.place).unwrap();
            let rule = filter.rule(spec.preference).unwrap();
            self.filter_rules.push(FilterRule::clone(rule));
        }
    }

    fn set_qdisc(&mut self, device: QdiscDevice, root: &Qdisc, child: Option<&Qdisc>) {
        let named = |name: &str, qdisc: &Qdisc| (parsed::<QdiscHandle>(name), *qdisc);
        let child = child.map(|child| named("2:", child));
        if self.tables.set_qdisc(device, named("1:", root), child).is_ok() {
            let placed = self.tables.qdiscs().on(device).unwrap();
            self.qdiscs.extend(
                [&placed.root]
                    .into_iter()
                    .chain(&placed.child)
                    .map(|node| Arc::clone(&node.counters)),
            );
        }
    }

    fn sa(&self, which: &Index) -> Option<Arc<Sa>> {
        let there: Vec<_> = self.tables.sad().iter().collect();
        (!there.is_empty()).then(|| (*which.get(&there)).clone())
    }

    pub(crate) fn add_sa(&mut self, spec: SaSpec, algorithm: Algorithm) {
        let keys = keys(algorithm);
        let outbound =
            OutboundSa::new(spec.spi, &keys, 0, &mut StdRng::from_seed([spec.spi.0 as u8; 32]));
        let inbound = InboundSa::new(spec.spi, &keys, WindowSize::new(1024).unwrap(), 0);
        self.sas.extend(self.tables.add_sa(spec, outbound, inbound));
    }

    fn remove_sa(&mut self, sa: &Sa) {
        let identity = &sa.spec.identity;
        self.tables.remove_sa(identity.vrf, identity.destination, sa.spec.spi).unwrap();
    }
}

impl Edit {
    fn applied(&self, spec: PolicySpec) -> PolicySpec {
        match *self {
            Self::Priority(priority) => PolicySpec { priority, ..spec },
            Self::Selector(selector) => PolicySpec { selector, ..spec },
            Self::Action(action) => PolicySpec { action, ..spec },
            Self::Direction(direction) => PolicySpec { direction, ..spec },
            Self::Vrf(vrf) => PolicySpec { vrf, ..spec },
            Self::IfId(if_id) => PolicySpec { if_id, ..spec },
        }
    }
}

impl PortEdit {
    fn applied(&self, id: PortId, spec: PortSpec) -> PortSpec {
        match *self {
            Self::Up(up) => PortSpec { up, ..spec },
            Self::Mtu(mtu) => PortSpec { mtu, ..spec },
            Self::Vrf(vrf) => PortSpec { vrf, ..spec },
            Self::Mac(octet) => PortSpec { mac: Mac([2, 0, 0, 0, octet, id.0 as u8]), ..spec },
            Self::Addresses(which) => PortSpec { addresses: addresses(id, which), ..spec },
            Self::Side(side) => PortSpec { side, ..spec },
            Self::ReversePath(reverse_path) => PortSpec { reverse_path, ..spec },
            Self::Mss(mss) => PortSpec { mss, ..spec },
        }
    }
}

fn of<T: Clone + core::fmt::Debug + 'static>(values: &[T]) -> impl Strategy<Value = T> + use<T> {
    select(values.to_vec())
}

fn of_text<T: std::str::FromStr<Err: core::fmt::Debug> + core::fmt::Debug>(
    values: &'static [&'static str],
) -> impl Strategy<Value = T> + use<T> {
    select(values).prop_map(|text| parsed(text))
}

/// The first VRF most of the time.
fn vrf() -> impl Strategy<Value = VrfId> {
    prop_oneof![6 => Just(VrfId::MAIN), 3 => Just(RED), 1 => Just(BLUE)]
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![3 => Just(Direction::Out), 3 => Just(Direction::In), 1 => Just(Direction::Fwd)]
}

fn port() -> impl Strategy<Value = PortId> {
    (0..PORTS).prop_map(PortId)
}

/// A link too.
fn any_port() -> impl Strategy<Value = PortId> {
    prop_oneof![4 => port(), 1 => (PORTS..PORTS + 2).prop_map(PortId)]
}

fn if_id() -> impl Strategy<Value = Option<IfId>> {
    prop::option::weighted(0.25, of(&LINKS).prop_map(|(_, _, if_id)| IfId::new(if_id).unwrap()))
}

fn family() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0usize), 1 => Just(1usize)]
}

/// A source and a destination of one family, often such as the first tunnel is for.
pub(crate) fn ends() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let host = || prop_oneof![8 => 0..5usize, 4 => 0..10usize, 1 => 0..13usize];
    let inside = prop_oneof![Just((0, 1)), Just((1, 0)), Just((0, 2)), Just((2, 0))];
    (family(), prop_oneof![2 => (host(), host()), 1 => inside])
        .prop_map(|(family, (from, to))| (parsed(HOSTS[family][from]), parsed(HOSTS[family][to])))
}

pub(crate) fn tunnel() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let towards = |(here, there): (&str, &str), back: bool| match back {
        false => (parsed(here), parsed(there)),
        true => (parsed(there), parsed(here)),
    };
    (prop_oneof![4 => 0..1usize, 2 => 0..4usize], any::<bool>())
        .prop_map(move |(at, back)| towards(TUNNELS[at], back))
}

pub(crate) fn spi() -> impl Strategy<Value = Spi> {
    (300..304u32).prop_map(Spi)
}

pub(crate) fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![3 => Just(ALGORITHMS[0]), 1 => of(&ALGORITHMS)]
}

fn selector() -> impl Strategy<Value = Selector> {
    let port = || {
        prop_oneof![Just((0, u16::MAX)), Just((1000, 1000)), Just((1000, 1001)), Just((53, 999))]
    };
    let range = |(first, last)| PortRange::new(first, last).unwrap();
    let ports = (port(), port()).prop_map(move |(source, destination)| UpperSelector::Ports {
        source: range(source),
        destination: range(destination),
    });
    let has_ports = of(&[Protocol::UDP, Protocol::TCP, Protocol::SCTP]).prop_map(Some);
    let kinds = prop_oneof![Just((0, 255)), Just((8, 8)), Just((128, 129))];
    let icmp = kinds.prop_map(|kind| UpperSelector::Icmp { kind, code: (0, 255) });
    let upper = prop_oneof![
        4 => Just((None, UpperSelector::Any)),
        2 => of(&[Protocol::UDP, Protocol::TCP, Protocol::ICMP, Protocol::ICMPV6, Protocol(253)])
            .prop_map(|protocol| (Some(protocol), UpperSelector::Any)),
        3 => (has_ports, ports),
        1 => (Just(Some(Protocol::ICMP)), icmp),
    ];
    let optional = prop_oneof![
        3 => Just((None, None, None)),
        2 => (optional(FLAGS), optional(DSCP), prop::option::weighted(0.2, 63u8..65)),
    ];
    let ranges = (family(), 0..9usize, 0..9usize);
    (ranges, upper, optional).prop_map(|((family, from, to), (protocol, upper), optional)| {
        let protocol = match (family, protocol, upper) {
            (1, _, UpperSelector::Icmp { .. }) => Some(Protocol::ICMPV6),
            _ => protocol,
        };
        let (flags, dscp, limit) = optional;
        let flags = flags.filter(|_| protocol == Some(Protocol::TCP));
        let fields = FieldsSelector::new(flags.map(parsed), dscp.map(parsed), limit);
        Selector {
            source: parsed(RANGES[family][from]),
            destination: parsed(RANGES[family][to]),
            protocol,
            upper,
            fields,
        }
    })
}

/// What policies ask of packets' TCP flags.
const FLAGS: &[&str] = &["syn/syn", "none/syn", "syn/syn,ack", "ack/syn,ack,rst", "none/all"];
/// What they ask of the DSCP.
const DSCP: &[&str] = &["ef", "cs0", "0x20/0x20", "0/0x20", "af11"];

fn optional(texts: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    prop::option::weighted(0.5, select(texts))
}

fn action() -> impl Strategy<Value = Action> {
    let spi = prop::option::weighted(0.4, spi());
    let outer = prop::option::weighted(0.2, vrf());
    let template = (outer, tunnel(), any::<bool>(), 0..3u32, spi).prop_map(
        |(vrf, (source, destination), any_source, reqid, spi)| {
            Action::Protect(Template {
                vrf,
                source: (!any_source).then_some(source),
                destination,
                reqid,
                spi,
            })
        },
    );
    prop_oneof![2 => Just(Action::Bypass), 1 => Just(Action::Discard), 3 => template]
}

fn policy() -> impl Strategy<Value = PolicySpec> {
    (vrf(), direction(), if_id(), 0..4u32, selector(), action()).prop_map(
        |(vrf, direction, if_id, priority, selector, action)| PolicySpec {
            vrf,
            direction,
            if_id,
            priority,
            selector,
            action,
        },
    )
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (0..4u32).prop_map(Edit::Priority),
        selector().prop_map(Edit::Selector),
        action().prop_map(Edit::Action),
        direction().prop_map(Edit::Direction),
        vrf().prop_map(Edit::Vrf),
        if_id().prop_map(Edit::IfId),
    ]
}

fn route() -> impl Strategy<Value = (IpPrefix, RouteSpec)> {
    let next_hop = prop_oneof![Just(3usize), Just(8), Just(5), Just(0), Just(1)];
    let weights = select(vec![[1, 1, 1, 0], [1, 2, 0, 256], [0, 3, 1, 1], [7, 1, 1, 1]]);
    // By a station on the link, by one that is said to be, or by the port alone.
    let ways = select(vec![[0u8; 4], [0, 2, 0, 1], [1, 0, 2, 0], [2, 1, 1, 2]]);
    let kind = |what: usize, port: PortId, next_hop, members| match what {
        9..12 => members,
        12..15 => RouteSpec::Vrf { vrf: VRFS[usize::from(port.0 % 4)] },
        15 => RouteSpec::Onlink { port, address: next_hop },
        0..5 => RouteSpec::Via { port, address: next_hop },
        5 => RouteSpec::Connected { port },
        6 => RouteSpec::Blackhole,
        7 => RouteSpec::Unreachable,
        _ => RouteSpec::Prohibit,
    };
    // The tunnels' ends are of the most interest.
    let to = prop_oneof![0..8usize, 3..6usize];
    (family(), to, 0..16usize, any_port(), next_hop, (weights, ways)).prop_map(
        move |(family, to, what, port, next_hop, (weights, ways))| {
            let members = multipath(family, port, weights, ways);
            let next_hop = parsed(HOSTS[family][next_hop]);
            (parsed(PREFIXES[family][to]), kind(what, port, next_hop, members))
        },
    )
}

/// By two stations on each of two ports, of one VRF if the first port's number is even. Those without
/// a weight are left out.
fn multipath(family: usize, port: PortId, weights: [u16; 4], ways: [u8; 4]) -> RouteSpec {
    let ports = [port.0, (port.0 + 1) % PORTS];
    let stations = |port: u16| {
        if port.is_multiple_of(2) { [(port, 0), (port, 5)] } else { [(port, 3), (port, 8)] }
    };
    let members = ports.into_iter().flat_map(stations).zip(weights).zip(ways);
    let member = |(((port, host), weight), way): (((u16, usize), u16), u8)| MemberSpec {
        port: PortId(port),
        address: (way < 2).then(|| parsed(HOSTS[family][host])),
        onlink: way == 1,
        weight,
    };
    RouteSpec::Multipath(members.map(member).filter(|member| member.weight > 0).collect())
}

fn neighbour() -> impl Strategy<Value = IpAddr> {
    (family(), of(&[0usize, 1, 2, 3, 5, 6, 8]))
        .prop_map(|(family, host)| parsed(HOSTS[family][host]))
}

fn sa() -> impl Strategy<Value = SaSpec> {
    let inner = prop::option::weighted(0.2, vrf());
    (vrf(), inner, if_id(), tunnel(), 0..3u32, spi(), any::<bool>()).prop_map(
        |(vrf, inner, if_id, (source, destination), reqid, spi, flag)| {
            let inner = inner.unwrap_or(vrf);
            let identity = SaIdentity { vrf, inner, if_id, source, destination, reqid };
            SaSpec { identity, spi, no_ecn: flag, no_pmtu_discovery: flag }
        },
    )
}

fn port_edit() -> impl Strategy<Value = PortEdit> {
    prop_oneof![
        3 => any::<bool>().prop_map(PortEdit::Up),
        1 => of(&[1280u16, 1400, 1500]).prop_map(PortEdit::Mtu),
        1 => vrf().prop_map(PortEdit::Vrf),
        1 => (0..2u8).prop_map(PortEdit::Mac),
        1 => (0..4usize).prop_map(PortEdit::Addresses),
        2 => of(&Side::ALL).prop_map(PortEdit::Side),
        2 => of(&ReversePath::ALL).prop_map(PortEdit::ReversePath),
        2 => of(&[MssClamp::Off, MssClamp::Pmtu, MssClamp::Most(900)]).prop_map(PortEdit::Mss),
    ]
}

fn filter_place() -> impl Strategy<Value = FilterPlace> {
    let target =
        prop_oneof![any_port().prop_map(FilterTarget::Port), vrf().prop_map(FilterTarget::Vrf)];
    (target, of(&FilterHook::ALL)).prop_map(|(target, hook)| FilterPlace { target, hook })
}

/// Few preferences, so that rules are replaced; passing and marking more often than the rest.
fn filter_rule() -> impl Strategy<Value = FilterSpec> {
    let mark = || {
        let bits = (0..3u32, of(&[1u32, 2, 3]));
        bits.prop_map(|(value, mask)| MarkBits { value: value & mask, mask })
    };
    let verdict = prop_oneof![
        4 => Just(FilterVerdict::Pass),
        1 => Just(FilterVerdict::Drop),
        1 => Just(FilterVerdict::Reject),
    ];
    let reject = of(&RejectWith::ALL);
    let action =
        (verdict, reject, prop::option::of(mark())).prop_map(|(verdict, reject_with, set_mark)| {
            FilterAction { verdict, reject_with, set_mark, log: false }
        });
    let asked = prop_oneof![3 => Just(MarkBits::default()), 1 => mark()];
    (filter_place(), 0..6u32, selector(), asked, action).prop_map(
        |(place, preference, selector, mark, action)| {
            let is_v6 = selector.source.is_v6();
            let (v4, v6) = ((!is_v6).then_some(selector), is_v6.then_some(selector));
            let selects = FilterMatch { v4, v6, mark };
            FilterSpec { place, preference, selects, action }
        },
    )
}

/// Tables of no VRF.
const LOOSE: [u32; 2] = [100, 101];

/// Few priorities, around those of the gateway's own rules.
fn rule() -> impl Strategy<Value = Rule> {
    let priority = of(&[500u32, 600, 1000, 1001, 2000, 32_766, 40_000]);
    let entry = prop_oneof![
        any_port().prop_map(RuleEntry::Port),
        vrf().prop_map(RuleEntry::Vrf),
        Just(RuleEntry::Own),
    ];
    let part = || prop_oneof![3 => Just(0usize), 2 => 0..8usize];
    let table = of(&[100u32, 101, 254, 1_000_001, 1_000_002]);
    let suppress = prop::option::weighted(0.2, of(&[0u8, 8, 24]));
    let action = prop_oneof![
        8 => (table, suppress)
            .prop_map(|(table, suppress)| RuleAction::Table { table: TableId(table), suppress }),
        1 => Just(RuleAction::L3mdev),
        2 => of(&[600u32, 1000, 1001, 40_000])
            .prop_map(|priority| RuleAction::Goto { priority, is_resolved: false }),
        1 => Just(RuleAction::Unreachable),
        1 => Just(RuleAction::Prohibit),
        1 => Just(RuleAction::Blackhole),
    ];
    let rare = |some: f64| prop::option::weighted(some, Just(()));
    let mark = prop_oneof![
        3 => Just(MarkBits::default()),
        1 => (0..3u32).prop_map(|value| MarkBits { value, mask: 3 }),
    ];
    let upper = (rare(0.2), rare(0.2), prop::option::weighted(0.2, of(&[0u8, 46, 10])));
    let own = prop::option::weighted(0.1, vrf());
    let who = (family(), part(), part(), prop::option::weighted(0.5, entry), own);
    (priority, who, mark, upper, action).prop_map(|(priority, who, mark, upper, action)| {
        let (family, from, to, entry, sent_in) = who;
        let (protocol, ports, dscp) = upper;
        let selects = RuleSelector {
            source: parsed(PREFIXES[family][from]),
            destination: parsed(PREFIXES[family][to]),
            entry,
            sent_in,
            mark,
            protocol: protocol.map(|()| Protocol::UDP),
            source_ports: ports.map(|()| PortRange::new(1000, 1000).unwrap()),
            destination_ports: None,
            dscp: dscp.map(|dscp| Dscp::try_from(dscp).unwrap()),
        };
        Rule { priority, selects, action }
    })
}

fn qdisc_device() -> impl Strategy<Value = QdiscDevice> {
    prop_oneof![3 => port().prop_map(QdiscDevice::Port), 1 => vrf().prop_map(QdiscDevice::Vrf)]
}

/// What holds some packets for milliseconds and drops others.
fn set_qdisc() -> impl Strategy<Value = Act> {
    let codel = || Qdisc::FqCodel(FqCodel { limit: 5, ..FqCodel::default() });
    let leaf = || prop_oneof![Just(codel()), Just(Qdisc::Pfifo(Pfifo { limit: 4 }))];
    let tbf = of(&[5_000, 1_000_000])
        .prop_map(|rate| Qdisc::Tbf(Tbf { rate, burst: 3_000, limit: 6_000 }));
    let both = prop_oneof![
        3 => (tbf, prop::option::of(leaf())),
        1 => (leaf(), Just(None)),
    ];
    (qdisc_device(), both).prop_map(|(device, (root, child))| Act::SetQdisc(device, root, child))
}

/// A VRF without policies.
pub(crate) const WITHOUT_POLICIES: VrfId = RED;

/// What is done to its flows and their connections alone.
pub(crate) fn flow_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => single().prop_map(|single| Act::AddFlow(WITHOUT_POLICIES, single)),
        2 => any::<Index>().prop_map(Act::RemoveFlow),
        1 => (0..5u32).prop_map(Act::RemoveConnection),
        1 => (0..5u32, 0..4u32).prop_map(|(index, mark)| Act::SetConnectionMark(index, mark)),
    ]
}

/// Its flows become those of any kind.
pub(crate) fn some_flows() -> impl Strategy<Value = Act> {
    (1..flows::KINDS).prop_map(|kind| Act::SetFlows(WITHOUT_POLICIES, kind))
}

/// Anything that may be done.
pub(crate) fn act() -> impl Strategy<Value = Act> {
    let default = prop_oneof![Just(DefaultAction::Accept), Just(DefaultAction::Block)];
    prop_oneof![
        6 => policy().prop_map(Act::AddPolicy),
        3 => (any::<Index>(), edit()).prop_map(|(which, edit)| Act::AddLike(which, edit)),
        4 => (any::<Index>(), edit()).prop_map(|(which, edit)| Act::UpdatePolicy(which, edit)),
        7 => any::<Index>().prop_map(Act::RemovePolicy),
        1 => (vrf(), direction(), default).prop_map(|(vrf, direction, action)| Act::Default(vrf, direction, action)),
        5 => (vrf(), route()).prop_map(|(vrf, (prefix, kind))| Act::SetRoute(vrf, prefix, kind)),
        3 => (vrf(), route()).prop_map(|(vrf, (prefix, _))| Act::RemoveRoute(vrf, prefix)),
        5 => (port(), neighbour(), 0..4u8).prop_map(|(port, address, mac)| Act::SetNeighbour(port, address, mac)),
        2 => (port(), neighbour()).prop_map(|(port, address)| Act::RemoveNeighbour(port, address)),
        6 => (sa(), algorithm()).prop_map(|(spec, algorithm)| Act::AddSa(spec, algorithm)),
        4 => any::<Index>().prop_map(Act::RemoveSa),
        4 => (any::<Index>(), spi(), algorithm()).prop_map(|(which, spi, algorithm)| Act::AddSaLike(which, spi, algorithm)),
        4 => (any::<Index>(), spi(), algorithm()).prop_map(|(which, spi, algorithm)| Act::Rekey(which, spi, algorithm)),
        5 => (any_port(), port_edit()).prop_map(|(port, edit)| Act::UpdatePort(port, edit)),
        1 => any_port().prop_map(Act::RemovePort),
        3 => any_port().prop_map(Act::AddPort),
        1 => (vrf(), of(&Ipsec::ALL)).prop_map(|(vrf, ipsec)| Act::Ipsec(vrf, ipsec)),
        2 => (0..4_u64, filter_place(), any::<[bool; 3]>())
            .prop_map(|(id, place, points)| Act::AddTap(id, place.target, points)),
        2 => (0..4_u64).prop_map(Act::RemoveTap),
        2 => set_qdisc(),
        3 => qdisc_device().prop_map(Act::RemoveQdisc),
        3 => filter_rule().prop_map(Act::SetFilterRule),
        3 => (filter_place(), 0..6u32).prop_map(|(place, preference)| Act::RemoveFilterRule(place, preference)),
        1 => (vrf(), of(&Ike::ALL)).prop_map(|(vrf, ike)| Act::Ike(vrf, ike)),
        4 => (any::<Index>(), rule()).prop_map(|(which, rule)| Act::AddRule(which, rule)),
        3 => any::<Index>().prop_map(Act::RemoveRule),
        3 => (of(&LOOSE), route()).prop_map(|(table, (prefix, kind))| Act::SetLooseRoute(table, prefix, kind)),
        2 => (of(&LOOSE), route()).prop_map(|(table, (prefix, _))| Act::RemoveLooseRoute(table, prefix)),
        1 => Just(Act::AddVrf),
        1 => of(&VRFS).prop_map(Act::RemoveVrf),
        4 => (vrf(), 0..flows::KINDS).prop_map(|(vrf, kind)| Act::SetFlows(vrf, kind)),
        4 => (vrf(), single()).prop_map(|(vrf, single)| Act::AddFlow(vrf, single)),
        2 => any::<Index>().prop_map(Act::RemoveFlow),
        2 => (0..5u32).prop_map(Act::RemoveConnection),
        2 => (0..5u32, 0..4u32).prop_map(|(index, mark)| Act::SetConnectionMark(index, mark)),
        1 => of(&[10usize, 70, 1200]).prop_map(Act::Noise),
        1 => (vrf(), direction()).prop_map(|(vrf, direction)| Act::Crowd(vrf, direction)),
    ]
}
