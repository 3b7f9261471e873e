//! VLAN sub-ports and their parents.

use std::collections::BTreeMap;

use packet::LinkKind;
use proptest::prelude::*;
use tables::{NextHopState, PortSpec, Tables, Vlan, VlanId, VlanPort, VlanProtocol, VlanTag};
use wire::{Mac, PortId, VrfId};

const PARENTS: u16 = 2;
const PORTS: u16 = 7;

fn customer(id: u16) -> VlanTag {
    VlanTag::customer(VlanId::new(id).unwrap())
}

fn service(id: u16) -> VlanTag {
    VlanTag::service(VlanId::new(id).unwrap())
}

fn vlan(parent: u16, id: u16) -> Option<Vlan> {
    Some(Vlan::new(PortId(parent), customer(id)))
}

fn service_vlan(parent: u16, id: u16) -> Option<Vlan> {
    Some(Vlan::new(PortId(parent), service(id)))
}

fn spec(name: &str, vlan: Option<Vlan>) -> PortSpec {
    PortSpec { vlan, ..PortSpec::new(name, Mac([2, 0, 0, 0, 0, 1])) }
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
        (0..PORTS, prop::sample::select(vec![customer(1), customer(2), service(1)])),
    );
    let any_spec = parts.prop_map(|((name, vrf), link, mtu, (mac, up), (parent, tag))| PortSpec {
        vrf: VrfId(vrf),
        link,
        mac: Mac([2, 0, 0, 0, 0, mac]),
        mtu,
        addresses: vec![format!("10.{name}.0.1/24").parse().unwrap()],
        up,
        ..spec(
            &format!("port{name}"),
            Some(Vlan::new(PortId(parent), tag)).filter(|_| name >= PARENTS),
        )
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
                let counted = tables.port_counters(sub.id).unwrap().received_id();
                let received = sub.spec.up.then_some(counted);
                let entry = VlanPort { port: sub.id, vrf: sub.spec.vrf, received };
                (sub.spec.vlan.unwrap().tag, entry)
            })
            .collect();
        let found: BTreeMap<_, _> = port.vlans.iter().map(|(tag, sub)| (tag, *sub)).collect();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(port.vlans.is_empty(), expected.is_empty());
        let is_counted = tables.port_counters(port.id).is_some();
        prop_assert_eq!(is_counted, port.spec.vlan.is_some());
        if let Some(vlan) = port.spec.vlan {
            let parent = tables.port(vlan.parent).unwrap();
            prop_assert_eq!(parent.spec.link, LinkKind::Ethernet);
            let above = parent.spec.vlan;
            prop_assert!(above.is_none_or(|above| tables.port(above.parent).is_some()));
            prop_assert_eq!((port.spec.mac, port.queue()), (parent.spec.mac, parent.queue()));
            let tags: Vec<_> = above.map(|above| above.tag).into_iter().chain([vlan.tag]).collect();
            prop_assert_eq!(vlan.tags().collect::<Vec<_>>(), tags);
            prop_assert_eq!(vlan.is_inner(), above.is_some());
            prop_assert!(tables.port(port.queue()).unwrap().spec.vlan.is_none());
            prop_assert!(port.spec.mtu <= parent.spec.mtu && port.spec.up <= parent.spec.up);
        }
    }
    for (_, next_hop) in tables.next_hops() {
        let port = tables.port(next_hop.port).unwrap();
        let of = |port| Some(tables.port_counters(port)?.sent_id());
        let parent = port.spec.vlan.filter(|vlan| vlan.is_inner()).and_then(|vlan| of(vlan.parent));
        let [own, outer] = next_hop.frames;
        prop_assert_eq!(outer, parent);
        // Of first next hops, what they count says it.
        prop_assert!(own.is_none_or(|own| Some(own) == of(port.id)));
        prop_assert_eq!((next_hop.queue, next_hop.mtu), (port.queue(), port.spec.mtu));
        prop_assert_eq!(next_hop.state == NextHopState::Down, !port.spec.up);
        let header = next_hop.link_header();
        match port.spec.vlan {
            Some(vlan) if next_hop.state == NextHopState::Resolved => {
                prop_assert_eq!(&header[6..12], &port.spec.mac.0[..]);
                let tags = vlan.tags().flat_map(|tag| match tag.protocol {
                    VlanProtocol::Customer => [0x81, 0, 0, tag.id.number() as u8],
                    VlanProtocol::Service => [0x88, 0xa8, 0, tag.id.number() as u8],
                });
                let expected: Vec<u8> = tags.chain([0x08, 0x00]).collect();
                prop_assert_eq!(&header[12..], &expected[..]);
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
    tables.add_port(PortId(2), spec("wan.100.5", vlan(1, 5))).unwrap();
    says(
        tables.add_port(PortId(3), spec("three-tags", vlan(2, 5))),
        "port 'three-tags' cannot be VLAN 5 of port 'wan.100.5': that is a VLAN of a VLAN itself, \
        and frames have two tags at most",
    );
    says(
        tables.add_port(PortId(3), spec("again", vlan(1, 5))),
        "port 'again' cannot be VLAN 5 of port 'wan.100': port 'wan.100.5' is that VLAN already",
    );
    says(
        tables.remove_port(vlan_100),
        "port 'wan.100' cannot be removed: it has the sub-port 'wan.100.5'",
    );
    tables.remove_port(PortId(2)).unwrap();
    // The same number in a tag of another kind is another VLAN.
    tables.add_port(PortId(2), spec("s100", service_vlan(0, 100))).unwrap();
    says(
        tables.add_port(PortId(3), spec("again", service_vlan(0, 100))),
        "port 'again' cannot be 802.1ad VLAN 100 of port 'wan': port 's100' is that VLAN already",
    );
    says(
        tables.update_port(PortId(2), spec("s100", vlan(0, 100))),
        "port 's100' cannot change its \
        VLAN or its parent: remove it and add it anew",
    );
    tables.remove_port(PortId(2)).unwrap();
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

/// What a port is, its sub-ports' sub-ports are too.
#[test]
fn both_levels_follow() {
    let mut tables = Tables::new(1, 7);
    tables.add_port(PortId(0), spec("wan", None)).unwrap();
    tables.add_port(PortId(1), spec("wan.10", service_vlan(0, 10))).unwrap();
    tables.add_port(PortId(2), spec("wan.10.20", vlan(1, 20))).unwrap();
    let address = "10.2.0.9".parse().unwrap();
    let own = vec!["10.2.0.1/24".parse().unwrap()];
    let inner = PortSpec { addresses: own, ..spec("wan.10.20", vlan(1, 20)) };
    tables.update_port(PortId(2), inner.clone()).unwrap();
    tables.set_neighbour(PortId(2), address, Mac([2, 9, 0, 0, 0, 1])).unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    tables.update_port(PortId(0), PortSpec { mac, mtu: 1400, ..spec("wan", None) }).unwrap();
    let is = tables.port(PortId(2)).unwrap();
    assert_eq!((is.spec.mac, is.spec.mtu, is.queue()), (mac, 1400, PortId(0)));
    let found = tables.next_hops().find(|(_, it)| it.address == Some(address)).unwrap().1;
    assert_eq!(found.queue, PortId(0));
    let tags = [0x88, 0xa8, 0, 10, 0x81, 0, 0, 20, 0x08, 0x00];
    assert_eq!(found.link_header()[12..], tags);
    // The one between them goes down.
    let middle = |up| PortSpec { up, ..spec("wan.10", service_vlan(0, 10)) };
    tables.update_port(PortId(1), middle(false)).unwrap();
    assert!(!tables.port(PortId(2)).unwrap().spec.up);
    tables.update_port(PortId(2), inner.clone()).unwrap();
    assert!(!tables.port(PortId(2)).unwrap().spec.up, "not without its parent");
    tables.update_port(PortId(1), middle(true)).unwrap();
    tables.update_port(PortId(2), inner).unwrap();
    assert!(tables.port(PortId(2)).unwrap().spec.up);
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
        let port = found.get(VlanProtocol::Customer, id).unwrap().port;
        assert_eq!(port, PortId(1024 + id));
        let spec = &tables.port(port).unwrap().spec;
        assert_eq!((spec.mtu, spec.mac), (1400, Mac([2, 0, 0, 0, 0, 9])));
    }
}

#[test]
fn a_frame_that_leaves_is_counted_once_whichever_next_hop_it_leaves_by() {
    let mut tables = Tables::new(2, 1);
    tables.add_port(PortId(0), spec("port0", None)).unwrap();
    let vlan = Vlan::new(PortId(0), VlanTag::customer(VlanId::new(7).unwrap()));
    let with = |addresses: &[&str]| PortSpec {
        addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        ..spec("port7", Some(vlan))
    };
    let id = PortId(1024);
    tables.add_port(id, with(&["10.7.0.1/24"])).unwrap();
    for host in 2..6 {
        let address = format!("10.7.0.{host}").parse().unwrap();
        tables.set_neighbour(id, address, Mac([2, 9, 0, 0, 0, host])).unwrap();
        let next_hop = tables.on_link_next_hop(id, address).unwrap();
        let next_hop = *tables.next_hop(next_hop).unwrap();
        // As the worker counts it.
        let cells = tables.cells_of(1).unwrap();
        cells.get(next_hop.counted.unwrap()).unwrap().add(1, 100);
        for cell in next_hop.frames.into_iter().flatten() {
            cells.get(cell).unwrap().add(1, 118);
        }
        let frames = u64::from(host) - 1;
        assert_eq!(tables.port_counters(id).unwrap().sent(), (frames, 118 * frames));
        assert_eq!(next_hop.frames[0].is_none(), host < 4, "the first two count for the port");
    }
    assert_eq!(tables.port_counters(id).unwrap().received(), (0, 0));
}
