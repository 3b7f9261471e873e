//! Filters beside a plain loop over their rules.

use proptest::prelude::*;
use tables::{
    FieldsSelector, FilterAction, FilterHook, FilterMatch, FilterPlace, FilterSpec, FilterTarget,
    FilterVerdict, MarkBits, RejectWith, Selector, Tables, UpperSelector,
};
use types::{
    Addresses, FlowKey, FragmentClass, IpRange, Origin, PacketFields, PortRange, Protocol, Upper,
    VrfId,
};

const PLACE: FilterPlace =
    FilterPlace { target: FilterTarget::Vrf(VrfId::MAIN), hook: FilterHook::Ingress };

/// Few values, so that rules overlap and packets meet them.
fn range_v4() -> impl Strategy<Value = IpRange> {
    prop::sample::select(vec!["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.0.3-10.1.0.9"])
        .prop_map(|text| text.parse().unwrap())
}

fn range_v6() -> impl Strategy<Value = IpRange> {
    prop::sample::select(vec!["::/0", "fd00::/8", "fd01::3-fd01::9"])
        .prop_map(|text| text.parse().unwrap())
}

fn upper(v6: bool) -> impl Strategy<Value = (Option<Protocol>, UpperSelector)> {
    let port = || {
        prop::sample::select(vec![(0, 65_535), (53, 53), (50, 60)])
            .prop_map(|(first, last)| PortRange::new(first, last).unwrap())
    };
    let icmp = if v6 { Protocol::ICMPV6 } else { Protocol::ICMP };
    prop_oneof![
        Just((None, UpperSelector::Any)),
        Just((Some(Protocol::TCP), UpperSelector::Any)),
        (port(), port()).prop_map(|(source, destination)| {
            (Some(Protocol::UDP), UpperSelector::Ports { source, destination })
        }),
        (0..3_u8).prop_map(move |kind| {
            (Some(icmp), UpperSelector::Icmp { kind: (kind, 8), code: (0, 255) })
        }),
    ]
}

fn fields() -> impl Strategy<Value = FieldsSelector> {
    prop_oneof![
        3 => Just(FieldsSelector::ANY),
        1 => Just(FieldsSelector::new(None, "ef".parse().ok(), None)),
        1 => Just(FieldsSelector::new(None, None, Some(64))),
    ]
}

fn mark() -> impl Strategy<Value = MarkBits> {
    prop::sample::select(vec![(0, 0), (1, 1), (2, 3), (0, 1)])
        .prop_map(|(value, mask)| MarkBits { value, mask })
}

fn selector(v6: bool) -> impl Strategy<Value = Option<Selector>> {
    let range = || if v6 { range_v6().boxed() } else { range_v4().boxed() };
    let selector = (range(), range(), upper(v6), fields()).prop_map(
        |(source, destination, (protocol, upper), fields)| Selector {
            source,
            destination,
            protocol,
            upper,
            fields,
        },
    );
    prop::option::weighted(0.8, selector)
}

#[derive(Clone, Debug)]
enum Step {
    Set(Box<FilterSpec>),
    Remove(u32),
}

fn step(preferences: u32) -> impl Strategy<Value = Step> {
    let action = FilterAction {
        verdict: FilterVerdict::Drop,
        reject_with: RejectWith::AdminProhibited,
        set_mark: None,
        log: false,
    };
    let set = (selector(false), selector(true), mark(), 0..preferences).prop_map(
        move |(v4, v6, mark, preference)| {
            let selects = FilterMatch { v4, v6, mark };
            Step::Set(Box::new(FilterSpec { place: PLACE, preference, selects, action }))
        },
    );
    prop_oneof![6 => set, 1 => (0..preferences).prop_map(Step::Remove)]
}

fn packet() -> impl Strategy<Value = (FlowKey, u32)> {
    let address =
        || prop::sample::select(vec![[10, 1, 0, 3], [10, 1, 0, 99], [10, 9, 9, 9], [9; 4]]);
    let v6 = || prop::sample::select(vec!["fd01::3", "fd01::99", "fe01::1"]);
    let port = || prop::sample::select(vec![53_u16, 55, 80]);
    let kind = prop::sample::select(vec![
        Protocol::TCP,
        Protocol::UDP,
        Protocol::ICMP,
        Protocol::ICMPV6,
        Protocol(47),
    ]);
    let fields = prop::sample::select(vec![(0_u8, 64_u8), (46 << 2, 64), (46 << 2, 1)]);
    (any::<bool>(), address(), address(), v6(), v6(), kind, (port(), port()), fields, 0..4_u32)
        .prop_map(|(is_v6, from, to, from_v6, to_v6, protocol, ports, fields, mark)| {
            let addresses = match is_v6 {
                false => Addresses::V4 { source: from.into(), destination: to.into() },
                true => Addresses::V6 {
                    source: from_v6.parse().unwrap(),
                    destination: to_v6.parse().unwrap(),
                },
            };
            let upper = match protocol {
                Protocol::TCP | Protocol::UDP => {
                    Upper::Ports { source: ports.0, destination: ports.1 }
                }
                Protocol::ICMP | Protocol::ICMPV6 => {
                    Upper::Icmp { kind: (ports.0 % 4) as u8, code: 0, identifier: 1 }
                }
                _ => Upper::None,
            };
            let dscp = types::Dscp::from_traffic_class(fields.0);
            let key = FlowKey {
                vrf: VrfId::MAIN,
                origin: Origin::Host,
                addresses,
                protocol,
                fragment: FragmentClass::Whole,
                upper,
                fields: PacketFields::new(types::TcpFlags(0), dscp, fields.1),
            };
            (key, mark)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// After any changes, the first rule in order that matches is found, in few rules and in many.
    #[test]
    fn the_first_rule_that_matches_is_found(
        steps in prop_oneof![
            prop::collection::vec(step(20), 1..40),
            prop::collection::vec(step(1000), 200..600),
        ],
        packets in prop::collection::vec(packet(), 1..40),
    ) {
        let mut tables = Tables::new(1, 7);
        let mut rules = std::collections::BTreeMap::new();
        for step in steps {
            match step {
                Step::Set(spec) => {
                    tables.set_filter_rule(*spec).unwrap();
                    rules.insert(spec.preference, *spec);
                }
                Step::Remove(preference) => {
                    let removed = tables.remove_filter_rule(PLACE, preference).is_ok();
                    prop_assert_eq!(removed, rules.remove(&preference).is_some());
                }
            }
        }
        if rules.len() >= 256 {
            prop_assert!(tables.filter(PLACE).is_some_and(tables::Filter::wants_compiling));
        }
        let count = tables.filter(PLACE).map_or(0, tables::Filter::len);
        prop_assert_eq!(count, rules.len());
        let mut compiled = tables.clone();
        compiled.compile();
        for (key, mark) in &packets {
            let fast = compiled.filter(PLACE).and_then(|filter| filter.lookup(key, *mark));
            let slow = tables.filter(PLACE).and_then(|filter| filter.lookup(key, *mark));
            prop_assert_eq!(fast.map(|rule| rule.slot), slow.map(|rule| rule.slot));
            let plain = rules.values().find(|rule| rule.selects.matches(key, *mark));
            let found = tables.filter(PLACE).and_then(|filter| filter.lookup(key, *mark));
            prop_assert_eq!(found.map(|rule| rule.spec), plain.copied());
            if let Some(rule) = found {
                prop_assert_eq!(tables.filter_rule(rule.slot).unwrap().spec, rule.spec);
            }
        }
    }
}
