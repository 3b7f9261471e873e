//! What may be done to a world, as it is drawn.

use super::single::single;
use super::*;

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
        2 => (vrf(), of(&[None, Some(Wall::Drop), Some(Wall::Reject)])).prop_map(|(vrf, wall)| Act::Wall(vrf, wall)),
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
