//! VLAN sub-ports and their parents.

use std::collections::BTreeMap;

use packet::LinkKind;
use proptest::prelude::*;
use tables::{NextHopState, PortSpec, ReversePath, Side, Tables, Vlan, VlanId, VlanPort};
use wire::{Mac, PortId, VrfId};

const PARENTS: u16 = 2;
const PORTS: u16 = 7;

fn vlan(parent: u16, id: u16) -> Option<Vlan> {
    Some(Vlan { parent: PortId(parent), id: VlanId::new(id).unwrap() })
}

fn spec(name: &str, vlan: Option<Vlan>) -> PortSpec {
    PortSpec {
        name: name.into(),
        vrf: VrfId::MAIN,
        link: LinkKind::Ethernet,
        mac: Mac([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        addresses: Vec::new(),
        up: true,
        vlan,
        side: Side::Unset,
        reverse_path: ReversePath::Off,
    }
}

#[derive(Clone, Debug)]
enum Act {
    Add(PortId, PortSpec),
    Update(PortId, PortSpec),
    Remove(PortId),
    Neighbour(PortId, Mac),
}

fn act() -> impl Strategy<Value = Act> {
    let id = || (0..PORTS).prop_map(PortId);
    let parts = (
        (0..PORTS, 0..2u16),
        prop::sample::select(vec![LinkKind::Ethernet, LinkKind::Ethernet, LinkKind::Ip]),
        prop::sample::select(vec![1500u16, 1400, 1279]),
        (1..4u8, any::<bool>()),
        (0..PORTS, 1..4u16),
    );
    let any_spec =
        parts.prop_map(|((name, vrf), link, mtu, (mac, up), (parent, number))| PortSpec {
            vrf: VrfId(vrf),
            link,
            mac: Mac([2, 0, 0, 0, 0, mac]),
            mtu,
            addresses: vec![format!("10.{name}.0.1/24").parse().unwrap()],
            up,
            ..spec(&format!("port{name}"), vlan(parent, number).filter(|_| name >= PARENTS))
        });
    prop_oneof![
        4 => (id(), any_spec.clone()).prop_map(|(id, spec)| Act::Add(id, spec)),
        4 => (id(), any_spec).prop_map(|(id, spec)| Act::Update(id, spec)),
        1 => id().prop_map(Act::Remove),
        2 => (id(), 1..4u8).prop_map(|(id, mac)| Act::Neighbour(id, Mac([2, 9, 0, 0, 0, mac]))),
    ]
}

/// Sub-ports and parents say the same of each other, and next hops what both say.
fn check(tables: &Tables) -> Result<(), TestCaseError> {
    for port in tables.ports() {
        let of_port = |sub: &&tables::Port| sub.spec.vlan.is_some_and(|it| it.parent == port.id);
        let expected: BTreeMap<_, _> = tables
            .ports()
            .filter(of_port)
            .map(|sub| {
                let entry = VlanPort { port: sub.id, vrf: sub.spec.vrf, up: sub.spec.up };
                (sub.spec.vlan.unwrap().id.number(), entry)
            })
            .collect();
        let found: BTreeMap<_, _> = port.vlans.iter().map(|(id, sub)| (id, *sub)).collect();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(port.vlans.is_empty(), expected.is_empty());
        prop_assert_eq!(port.counters.is_some(), port.spec.vlan.is_some());
        if let Some(vlan) = port.spec.vlan {
            let parent = tables.port(vlan.parent).unwrap();
            prop_assert_eq!(parent.spec.link, LinkKind::Ethernet);
            prop_assert!(parent.spec.vlan.is_none());
            prop_assert_eq!((port.spec.mac, port.queue()), (parent.spec.mac, parent.id));
            prop_assert!(port.spec.mtu <= parent.spec.mtu && port.spec.up <= parent.spec.up);
        }
    }
    for (_, next_hop) in tables.next_hops() {
        let port = tables.port(next_hop.port).unwrap();
        prop_assert_eq!((next_hop.queue, next_hop.mtu), (port.queue(), port.spec.mtu));
        prop_assert_eq!(next_hop.state == NextHopState::Down, !port.spec.up);
        let header = next_hop.link_header();
        match port.spec.vlan {
            Some(vlan) if next_hop.state == NextHopState::Resolved => {
                prop_assert_eq!(&header[6..12], &port.spec.mac.0[..]);
                prop_assert_eq!(&header[12..16], &[0x81, 0, 0, vlan.id.number() as u8]);
                prop_assert_eq!(&header[16..], &[0x08, 0x00]);
            }
            _ => prop_assert!([0, 14].contains(&header.len())),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn sub_ports_follow_their_parents(acts in prop::collection::vec(act(), 1..80)) {
        let mut tables = Tables::new(1, 7);
        tables.add_vrf("red").unwrap();
        for act in acts {
            let before = format!("{tables:?}");
            let done = match act {
                Act::Add(id, spec) => tables.add_port(id, spec),
                Act::Update(id, spec) => tables.update_port(id, spec),
                Act::Remove(id) => tables.remove_port(id),
                Act::Neighbour(id, mac) => {
                    let address = format!("10.{}.0.9", id.0).parse().unwrap();
                    tables.set_neighbour(id, address, mac)
                }
            };
            if done.is_err() {
                prop_assert_eq!(before, format!("{tables:?}"), "what is refused changes nothing");
            }
            check(&tables)?;
        }
    }
}

#[track_caller]
fn says<T>(result: Result<T, tables::TableError>, text: &str) {
    assert_eq!(result.err().map(|error| error.to_string()).as_deref(), Some(text));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let mut tables = Tables::new(1, 7);
    let (wan, vlan_100) = (PortId(0), PortId(1));
    tables.add_port(wan, spec("wan", None)).unwrap();
    tables.add_port(vlan_100, spec("wan.100", vlan(0, 100))).unwrap();
    says(
        tables.add_port(PortId(2), spec("again", vlan(0, 100))),
        "port 'again' cannot be VLAN 100 of port 'wan': port 'wan.100' is that VLAN already",
    );
    says(
        tables.add_port(PortId(2), spec("two-tags", vlan(1, 5))),
        "port 'two-tags' cannot be VLAN 5 of port 'wan.100': that is a VLAN itself, and two tags \
        (802.1ad) are not supported",
    );
    says(tables.add_port(PortId(2), spec("x", vlan(2, 5))), "there is no port number 2");
    let tunnel = PortSpec { link: LinkKind::Ip, ..spec("tun", None) };
    tables.add_port(PortId(2), tunnel).unwrap();
    says(
        tables.add_port(PortId(3), spec("x", vlan(2, 5))),
        "port 'x' cannot be VLAN 5 of port 'tun': that has no Ethernet, so no VLANs",
    );
    let stays = "port 'wan.100' cannot change its VLAN or its parent: remove it and add it anew";
    says(tables.update_port(vlan_100, spec("wan.100", vlan(0, 101))), stays);
    says(tables.update_port(vlan_100, spec("wan.100", None)), stays);
    says(tables.remove_port(wan), "port 'wan' cannot be removed: it has the sub-port 'wan.100'");
    let no_ethernet = PortSpec { link: LinkKind::Ip, ..spec("wan", None) };
    says(
        tables.update_port(wan, no_ethernet),
        "port 'wan.100' cannot be VLAN 100 of port 'wan': that has no Ethernet, so no VLANs",
    );
    // A sub-port's IPv6 address holds its parent's MTU up.
    let v6 = PortSpec {
        addresses: vec!["2001:db8::1/64".parse().unwrap()],
        ..spec("wan.100", vlan(0, 100))
    };
    tables.update_port(vlan_100, v6).unwrap();
    says(
        tables.update_port(wan, PortSpec { mtu: 1000, ..spec("wan", None) }),
        "port 'wan.100' cannot have an MTU of 1000: 1280 to 9216 can be, since it has IPv6 \
        addresses",
    );
    tables.remove_port(vlan_100).unwrap();
    tables.remove_port(wan).unwrap();
}

/// A parent with all the VLANs that there are, each in its place; and a change of the parent, which
/// all of them follow.
#[test]
fn one_parent_has_4094() {
    let mut tables = Tables::new(1, 7);
    tables.add_port(PortId(0), spec("wan", None)).unwrap();
    for id in VlanId::MIN..=VlanId::MAX {
        tables.add_port(PortId(1024 + id), spec(&format!("wan.{id}"), vlan(0, id))).unwrap();
    }
    let parent = PortSpec { mtu: 1400, mac: Mac([2, 0, 0, 0, 0, 9]), ..spec("wan", None) };
    tables.update_port(PortId(0), parent).unwrap();
    let found = &tables.port(PortId(0)).unwrap().vlans;
    for id in VlanId::MIN..=VlanId::MAX {
        let port = found.get(id).unwrap().port;
        assert_eq!(port, PortId(1024 + id));
        let spec = &tables.port(port).unwrap().spec;
        assert_eq!((spec.mtu, spec.mac), (1400, Mac([2, 0, 0, 0, 0, 9])));
    }
}
