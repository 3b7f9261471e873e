//! Small worlds, in which things meet.

use std::net::IpAddr;

use packet::LinkKind;
use proptest::prelude::*;
use tables::{
    Action, DefaultAction, Direction, FieldsSelector, MemberSpec, PolicySpec, PortSpec, RouteSpec,
    SaIdentity, SaSpec, Selector, Side, Template, UpperSelector,
};
use wire::{
    Addresses, FlowKey, FragmentClass, IpPrefix, IpRange, Mac, Origin, PacketFields, PortId,
    PortRange, Protocol, Spi, TcpFlags, Upper, VrfId,
};

use crate::reference::{Change, Tweak};

pub(crate) fn addresses() -> Vec<IpAddr> {
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
        let lengths =
            if address.is_ipv4() { [0, 16, 24, 25, 31, 32] } else { [0, 10, 48, 64, 127, 128] };
        IpPrefix::new(address, lengths[length]).unwrap()
    })
}

/// Few enough that a route often replaces another.
fn route_prefix() -> impl Strategy<Value = IpPrefix> + Clone {
    let usual = ["0.0.0.0/0", "10.1.0.0/16", "192.0.2.0/24", "::/0"];
    let usual = prop::sample::select(usual.map(|text| text.parse().unwrap()).to_vec());
    prop_oneof![3 => usual, 2 => prefix().prop_map(|prefix| prefix.network())]
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
    let usual = [
        "10.0.0.1/24",
        "10.0.0.2/24",
        "10.0.0.129/25",
        "10.0.0.2/31",
        "10.0.1.1/24",
        "2001:db8::1/64",
        "fe80::1/64",
    ];
    let usual = prop::sample::select(usual.map(|text| text.parse().unwrap()).to_vec());
    let own = prop_oneof![4 => usual, 1 => prefix().prop_filter("mostly possible", |own| own.length() > 15)];
    (0u8..3, vrf(), link, mac(), mtu, proptest::collection::vec(own, 0..4), any::<bool>()).prop_map(
        |(name, vrf, link, mac, mtu, addresses, up)| PortSpec {
            vrf,
            link,
            mtu,
            addresses,
            up,
            ..PortSpec::new(format!("port{name}"), mac)
        },
    )
}

fn route_spec() -> impl Strategy<Value = RouteSpec> {
    prop_oneof![
        8 => (port(), station()).prop_map(|(port, address)| RouteSpec::Via { port, address }),
        8 => proptest::collection::vec(member(), 1..5)
            .prop_map(|all| RouteSpec::Multipath(all.into())),
        2 => port().prop_map(|port| RouteSpec::Connected { port }),
        3 => vrf().prop_map(|vrf| RouteSpec::Vrf { vrf }),
        1 => Just(RouteSpec::Blackhole),
        1 => Just(RouteSpec::Prohibit),
    ]
}

fn member() -> impl Strategy<Value = MemberSpec> {
    let weight = prop_oneof![20 => Just(1), 10 => 1..=256u16, 1 => Just(0), 1 => Just(257)];
    let address = proptest::option::weighted(0.8, station());
    let member = |(port, address, weight)| MemberSpec { port, address, onlink: false, weight };
    (port(), address, weight).prop_map(member)
}

/// Neighbours that meet the next hops of routes, and things that can be neither.
fn station() -> impl Strategy<Value = IpAddr> {
    let usual = ["10.0.0.3", "10.0.0.2", "2001:db8::2", "fe80::2"];
    let usual = prop::sample::select(usual.map(|text| text.parse().unwrap()).to_vec());
    prop_oneof![4 => usual, 1 => address()]
}

fn tweak() -> impl Strategy<Value = Tweak> {
    prop_oneof![
        3 => prop::sample::select(vec![1500, 1400, 1279, 67]).prop_map(Tweak::Mtu),
        3 => mac().prop_map(Tweak::Mac),
        3 => any::<bool>().prop_map(Tweak::Up),
        1 => prop::sample::select(vec![LinkKind::Ethernet, LinkKind::Ip]).prop_map(Tweak::Link),
        2 => prop::sample::select(Side::ALL.to_vec()).prop_map(Tweak::Side),
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
    (range(), range(), protocol, upper, fields()).prop_map(
        |(source, destination, protocol, upper, fields)| Selector {
            source,
            destination,
            protocol,
            upper,
            fields,
        },
    )
}

/// Nothing most of the time.
fn fields() -> impl Strategy<Value = FieldsSelector> {
    let fields = |flags: Option<&str>, dscp: Option<&str>, limit| {
        FieldsSelector::new(
            flags.map(|text| text.parse().unwrap()),
            dscp.map(|text| text.parse().unwrap()),
            limit,
        )
    };
    prop::sample::select(vec![
        FieldsSelector::ANY,
        FieldsSelector::ANY,
        FieldsSelector::ANY,
        fields(Some("syn/syn,ack"), None, None),
        fields(Some("none/syn"), None, None),
        fields(None, Some("ef"), None),
        fields(None, Some("0/0x20"), None),
        fields(None, None, Some(64)),
        fields(Some("ack/syn,ack"), Some("ef"), Some(64)),
    ])
}

fn policy() -> impl Strategy<Value = PolicySpec> {
    let template = prop::sample::select(templates());
    let action = prop_oneof![
        Just(Action::Bypass),
        Just(Action::Discard),
        template.prop_map(Action::Protect)
    ];
    let direction =
        prop_oneof![3 => Just(Direction::Out), 1 => Just(Direction::In), 1 => Just(Direction::Fwd)];
    (vrf(), direction, 0u32..3, selector(), action).prop_map(
        |(vrf, direction, priority, selector, action)| PolicySpec {
            vrf,
            direction,
            if_id: None,
            priority,
            selector,
            action,
        },
    )
}

fn ends() -> Vec<IpAddr> {
    ["192.0.2.1", "192.0.2.2", "2001:db8::1"].iter().map(|text| text.parse().unwrap()).collect()
}

pub(crate) fn templates() -> Vec<Template> {
    let mut templates = Vec::new();
    for destination in ends() {
        for source in ends().into_iter().map(Some).chain([None]) {
            for (reqid, spi) in
                [(0, None), (1, None), (2, None), (0, Some(Spi(1))), (1, Some(Spi(2)))]
            {
                for vrf in [None, Some(VrfId(1))] {
                    templates.push(Template { vrf, source, destination, reqid, spi });
                }
            }
        }
    }
    templates
}

fn sa() -> impl Strategy<Value = SaSpec> {
    let end = prop_oneof![8 => prop::sample::select(ends()), 1 => address()];
    (vrf(), vrf(), end.clone(), end, 0u32..3, 0u32..6).prop_map(
        |(vrf, inner, source, destination, reqid, spi)| SaSpec {
            identity: SaIdentity { vrf, inner, if_id: None, source, destination, reqid },
            spi: Spi(spi),
            no_ecn: false,
            no_pmtu_discovery: false,
        },
    )
}

/// Packets to look policies up for.
pub(crate) fn flow_keys() -> Vec<FlowKey> {
    let pairs =
        [("10.0.0.1", "10.0.0.2"), ("10.0.0.255", "192.0.2.1"), ("2001:db8::1", "2001:db8::2")];
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
        for (number, (protocol, upper)) in uppers.into_iter().enumerate() {
            let ends = (source.parse().unwrap(), destination.parse().unwrap());
            let addresses = Addresses::new(ends.0, ends.1).unwrap();
            let origin = Origin::Port(PortId(0));
            keys.push(FlowKey {
                vrf: VrfId(0),
                origin,
                addresses,
                protocol,
                fragment: FragmentClass::Whole,
                upper,
                fields: PacketFields::new(
                    TcpFlags([2, 0x10, 0][number % 3]),
                    [46, 0][number % 2].try_into().unwrap(),
                    [64, 1][number % 2],
                ),
            });
        }
    }
    keys
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        1 => (0u8..4).prop_map(Change::AddVrf),
        1 => vrf().prop_map(Change::RemoveVrf),
        4 => (port(), port_spec()).prop_map(|(port, spec)| Change::AddPort(port, spec)),
        4 => (port(), port_spec()).prop_map(|(port, spec)| Change::UpdatePort(port, spec)),
        8 => (port(), tweak()).prop_map(|(port, tweak)| Change::TweakPort(port, tweak)),
        1 => port().prop_map(Change::RemovePort),
        12 => (vrf(), route_prefix(), route_spec())
            .prop_map(|(vrf, prefix, spec)| Change::SetRoute(vrf, prefix, spec)),
        1 => (vrf(), prefix(), route_spec()).prop_map(|(vrf, prefix, spec)| Change::SetRoute(vrf, prefix, spec)),
        3 => (vrf(), route_prefix()).prop_map(|(vrf, prefix)| Change::RemoveRoute(vrf, prefix)),
        8 => (port(), station(), mac())
            .prop_map(|(port, address, mac)| Change::SetNeighbour(port, address, mac)),
        4 => (port(), station()).prop_map(|(port, address)| Change::RemoveNeighbour(port, address)),
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
