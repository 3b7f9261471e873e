//! Worlds in which everything that a decision reads comes, goes and changes. Addresses, prefixes,
//! selectors and tunnels are few, so that they meet.
#![allow(dead_code, reason = "the law and the unit test of validity use a part each")]

#[path = "acts.rs"]
pub(crate) mod acts;
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
    TapPoints, TapSpec, Template, UpperSelector, Vlan, VlanId, VlanTag, Wall,
};
use types::qdisc::{FqCodel, Pfifo, Tbf};
use wire::{IpPrefix, Mac, PortId, PortRange, Protocol, Spi, VrfId};

use self::single::Single;

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
    Wall(VrfId, Option<Wall>),
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
        vrf: link.map_or_else(|| VRFS[usize::from(id.0 / 2)], |(_, vrf, _)| vrf),
        link: port_link(id),
        addresses: addresses(id, 0),
        vlan: port_vlan(id),
        if_id: link.and_then(|(_, _, if_id)| IfId::new(if_id)),
        ..PortSpec::new(format!("port{}", id.0), Mac([2, 0, 0, 0, 0, id.0 as u8]))
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
        Self::of(1, engine)
    }

    /// The same for so many workers.
    pub(crate) fn of(workers: usize, engine: LookupEngine) -> Self {
        let mut tables = Tables::new(workers, 7);
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
        world.tables.set_connections(flows::connections(workers));
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

    /// How many of the VRFs' routes to stations are found in spans, and how many are not.
    pub(crate) fn found_in_spans(tables: &Tables) -> [usize; 2] {
        let hosts = || HOSTS.iter().flatten().map(|host| parsed::<IpAddr>(host));
        let all = tables.vrfs().flat_map(|vrf| hosts().map(move |host| (vrf, host)));
        let routed = all.filter(|(vrf, host)| vrf.route(*host).is_some());
        let (found, not): (Vec<_>, Vec<_>) =
            routed.partition(|(vrf, host)| tables.has_spans(vrf.id, *host));
        [found.len(), not.len()]
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
            Act::Wall(vrf, wall) => {
                let others = VRFS.into_iter().filter(|other| other != vrf);
                let others = others.filter_map(|other| Some((other, tables.wall(other)?)));
                let walls = others.chain(wall.map(|wall| (*vrf, wall))).collect();
                tables.set_walls(walls);
            }
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
