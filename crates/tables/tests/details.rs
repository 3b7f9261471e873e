//! What the model does not reach: names, groups, numbers, limits, and what errors say.

use std::net::IpAddr;

use esp::{Algorithm, InboundSa, KeyMaterial, OutboundSa, WindowSize};
use packet::LinkKind;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{
    Action, Change, Direction, FieldsSelector, MAX_NEIGHBOURS, MemberSpec, NextHop, NextHopId,
    NextHopState, PolicySpec, PortSpec, Publisher, RouteKind, RouteSpec, SaIdentity, SaSpec,
    Selector, TableError, TableId, TableRef, Tables, Template, UpperSelector, limit,
};
use wire::{Addresses, IpPrefix, IpRange, Mac, PortId, PortRange, Protocol, Spi, VrfId};

const MAIN: VrfId = VrfId::MAIN;
const P0: PortId = PortId(0);
const P1: PortId = PortId(1);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn spec(name: &str, addresses: &[&str]) -> PortSpec {
    PortSpec {
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        ..PortSpec::new(name, Mac([0x02, 0x00, 0x5e, 0x10, 0x20, 0x30]))
    }
}

fn with_port(addresses: &[&str]) -> Tables {
    let mut tables = Tables::new(2, 42);
    tables.add_port(P0, spec("wan", addresses)).unwrap();
    tables
}

fn says(answer: Result<impl std::fmt::Debug, TableError>, text: &str) {
    assert_eq!(answer.unwrap_err().to_string(), text);
}

/// RFC 6724 among all ports of a VRF, of which one is where the packet in question came by.
#[test]
fn own_addresses_are_chosen_among_all_ports_of_the_vrf() {
    let mut tables = with_port(&["192.0.2.1/24", "2001:db8:1::1/64"]);
    let other = |name: &str, addresses: &[&str]| PortSpec {
        mac: Mac([0x02, 0, 0, 0, 0, 0x09]),
        ..spec(name, addresses)
    };
    tables.add_port(P1, other("lan", &["198.51.100.1/24", "2001:db8:2::1/64"])).unwrap();
    let (bare, red_port, tun) = (PortId(2), PortId(3), PortId(4));
    tables.add_port(tun, other("tun", &["169.254.1.1/30"])).unwrap();
    tables.add_port(bare, other("bare", &[])).unwrap();
    let red = tables.add_vrf("red").unwrap();
    let theirs = other("red", &["203.0.113.1/24", "2001:db8:3::1/64"]);
    tables.add_port(red_port, PortSpec { vrf: red, ..theirs }).unwrap();
    for (vrf, port, peer, chosen) in [
        // Of the port itself, if it has one.
        (MAIN, P0, "2001:db8:9::1", Some("2001:db8:1::1")),
        (MAIN, P1, "2001:db8:9::1", Some("2001:db8:2::1")),
        (MAIN, P0, "192.0.2.9", Some("192.0.2.1")),
        (MAIN, P1, "192.0.2.9", Some("198.51.100.1")),
        // Rule 2 goes before rule 5: its link-local address is too small for a global peer.
        (MAIN, bare, "2001:db8:9::1", Some("2001:db8:1::1")),
        (MAIN, bare, "2001:db8:2::9", Some("2001:db8:2::1")),
        (MAIN, bare, "fe80::1", Some("fe80::ff:fe00:9")),
        // Without an IPv4 address, one of a port that reaches the peer, otherwise the first.
        (MAIN, bare, "198.51.100.9", Some("198.51.100.1")),
        (MAIN, bare, "8.8.8.8", Some("192.0.2.1")),
        // A link-local one is for those of its link, and for others if there is no better.
        (MAIN, tun, "169.254.1.2", Some("169.254.1.1")),
        (MAIN, tun, "169.254.9.9", Some("169.254.1.1")),
        (MAIN, tun, "198.51.100.9", Some("198.51.100.1")),
        (MAIN, tun, "8.8.8.8", Some("192.0.2.1")),
        // Other VRFs' addresses are none, whatever the port.
        (MAIN, red_port, "203.0.113.9", Some("192.0.2.1")),
        (MAIN, red_port, "2001:db8:3::9", Some("2001:db8:2::1")),
        (red, red_port, "192.0.2.9", Some("203.0.113.1")),
        (red, P0, "2001:db8:1::9", Some("2001:db8:3::1")),
        (VrfId(7), P0, "8.8.8.8", None),
    ] {
        let found = tables.source_in(vrf, port, ip(peer));
        assert_eq!(found, chosen.map(ip), "{vrf:?} {port:?} {peer}");
    }
}

#[test]
fn an_ethernet_port_gets_the_link_local_address_of_its_mac() {
    let mut tables = with_port(&["192.0.2.1/24"]);
    let derived = ip("fe80::5eff:fe10:2030");
    let port = tables.port(P0).unwrap();
    assert_eq!(port.link_local().map(IpAddr::from), Some(derived));
    assert!(port.owns(derived) && tables.is_local(MAIN, P0, derived));
    assert_eq!(port.source_for(ip("fe80::1")), Some(derived));
    assert_eq!(port.source_for(ip("192.0.2.77")), Some(ip("192.0.2.1")));
    assert!(tables.vrf(MAIN).unwrap().route(derived).is_none(), "not in the FIB");

    // Written back as it was read, with another Ethernet address: the derived address follows.
    let mut changed = port.spec.clone();
    changed.mac = Mac([0x02, 0, 0, 0, 0, 0x09]);
    tables.update_port(P0, changed).unwrap();
    assert_eq!(
        tables.port(P0).unwrap().link_local().map(IpAddr::from),
        Some(ip("fe80::ff:fe00:9"))
    );
    assert!(!tables.port(P0).unwrap().owns(derived));

    // Configured: that one and no other. Too small for IPv6, or no Ethernet: none.
    tables.update_port(P0, spec("wan", &["fe80::1/64"])).unwrap();
    assert_eq!(tables.port(P0).unwrap().spec.addresses, ["fe80::1/64".parse().unwrap()]);
    for without in [
        PortSpec { mtu: 1279, ..spec("wan", &[]) },
        PortSpec { link: LinkKind::Ip, ..spec("wan", &[]) },
    ] {
        tables.update_port(P0, without).unwrap();
        assert_eq!(tables.port(P0).unwrap().link_local(), None);
    }
}

#[test]
fn a_port_listens_to_its_groups_and_broadcasts() {
    let mut tables = with_port(&["192.0.2.1/24", "2001:db8::12:3456/64"]);
    tables.add_port(P1, spec("lan", &["198.51.100.1/31"])).unwrap();
    for address in [
        "192.0.2.1",
        "192.0.2.255",
        "255.255.255.255",
        "224.0.0.1",
        "2001:db8::12:3456",
        "ff02::1",
        "ff02::2",
        "ff02::1:ff12:3456",
        "ff02::1:ff10:2030",
    ] {
        assert!(tables.port(P0).unwrap().listens_to(ip(address)), "{address}");
        assert!(tables.is_local(MAIN, P0, ip(address)), "{address}");
    }
    for address in [
        "192.0.2.0",
        "192.0.2.2",
        "224.0.0.2",
        "2001:db8::1",
        "ff02::3",
        "ff02::1:ff12:3457",
        "fe80::1",
    ] {
        assert!(!tables.is_local(MAIN, P0, ip(address)), "{address}");
    }
    // Addresses of other ports are the gateway's as well; their groups are not.
    assert!(
        tables.is_local(MAIN, P1, ip("192.0.2.1"))
            && !tables.is_local(MAIN, P1, ip("ff02::1:ff12:3456"))
    );
    assert!(
        !tables.is_local(VrfId(1), P0, ip("192.0.2.1"))
            && !tables.is_local(MAIN, PortId(9), ip("ff02::1"))
    );
    // RFC 3021: no broadcast on a /31.
    assert!(!tables.is_local(MAIN, P1, ip("198.51.100.0")));
}

#[test]
fn refusals_say_what_is_wrong() {
    let mut tables = with_port(&["192.0.2.1/24", "2001:db8::1/64"]);
    let via = |address| RouteSpec::Via { port: P0, address: ip(address) };
    let mut route = |prefix: &str, kind| tables.set_route(MAIN, prefix.parse().unwrap(), kind);
    says(
        route("10.0.0.0/8", via("198.51.100.1")),
        "next hop 198.51.100.1 is not on any prefix of port 'wan'",
    );
    says(
        route("10.0.0.0/8", via("192.0.2.1")),
        "next hop 192.0.2.1 is one of the gateway's own addresses",
    );
    says(route("10.0.0.0/8", via("192.0.2.255")), "next hop 192.0.2.255 is a broadcast address");
    says(
        route("10.0.0.0/8", via("2001:db8::2")),
        "next hop 2001:db8::2 is not of the family of 10.0.0.0/8",
    );
    says(
        route("10.0.0.1/8", RouteSpec::Blackhole),
        "10.0.0.1/8 is no prefix: bits are set beyond its length; 10.0.0.0/8 would be one",
    );
    says(
        route("192.0.2.0/24", via("192.0.2.9")),
        "the route to 192.0.2.0/24 comes with an address of port 'wan', and goes with it",
    );
    says(
        route("fe80::/64", via("fe80::9")),
        "fe80::/64 cannot be routed: it is link-local, which is on every link",
    );
    assert!(route("0.0.0.0/0", via("192.0.2.9")).is_ok() && route("::/0", via("fe80::9")).is_ok());

    says(
        tables.add_port(P1, spec("lan", &["192.0.2.1/32"])),
        "port 'lan' cannot have the address 192.0.2.1: port 'wan' of the same VRF has it",
    );
    says(
        tables.add_port(P1, spec("lan", &["192.0.2.3/24"])),
        "port 'lan' cannot have the address 192.0.2.3/24: port 'wan' of the same VRF is on that \
        prefix",
    );
    says(
        tables.add_port(P1, spec("lan", &["10.0.0.255/24"])),
        "port 'lan' cannot have the address 10.0.0.255/24: it is its prefix's broadcast address",
    );
    says(
        tables.add_port(P1, PortSpec { mtu: 1000, ..spec("lan", &["2001:db8:1::1/64"]) }),
        "port 'lan' cannot have an MTU of 1000: 1280 to 9216 can be, since it has IPv6 addresses",
    );
    says(
        tables.set_neighbour(P0, ip("192.0.2.9"), Mac::BROADCAST),
        "192.0.2.9 cannot be at ff:ff:ff:ff:ff:ff: it is the broadcast address",
    );
    says(tables.add_vrf("main"), "a VRF 'main' exists");
    says(tables.remove_vrf(MAIN), "VRF 'main' cannot be removed");
    says(tables.remove_policy(9), "there is no policy with index 9");
}

/// The next hop of the route to exactly `prefix`.
fn next_hop_of(tables: &Tables, prefix: &str) -> (NextHopId, NextHop) {
    let route = tables.vrf(MAIN).unwrap().route_of(prefix.parse().unwrap()).unwrap();
    let RouteKind::Via { next_hop } = route.kind else { panic!("{route:?}") };
    (next_hop, *tables.next_hop(next_hop).unwrap())
}

/// The changes that `change` adds to the log, the latest first.
fn changes(tables: &mut Tables, change: impl FnOnce(&mut Tables)) -> Vec<Change> {
    let before = tables.latest_changes().count();
    change(tables);
    let count = tables.latest_changes().count() - before;
    tables.latest_changes().take(count).map(|(_, change)| *change).collect()
}

#[test]
fn what_becomes_of_a_neighbour_or_its_port_is_seen_in_its_next_hop_alone() {
    let mut tables = with_port(&["192.0.2.1/24", "2001:db8::1/64", "fe80::1/64"]);
    let (v4, v6) = (ip("192.0.2.9"), ip("fe80::9"));
    let via = |address| RouteSpec::Via { port: P0, address };
    tables.set_route(MAIN, "10.0.0.0/8".parse().unwrap(), via(v4)).unwrap();
    tables.set_route(MAIN, "::/0".parse().unwrap(), via(v6)).unwrap();
    let (v4_id, is) = next_hop_of(&tables, "10.0.0.0/8");
    assert_eq!((is.port, is.address, is.mtu), (P0, Some(v4), 1500));
    assert_eq!((is.state, is.link_header()), (NextHopState::Pending, &[][..]));
    let (v6_id, _) = next_hop_of(&tables, "::/0");
    assert_ne!(v4_id, v6_id);
    let now = |tables: &Tables, id| {
        let next_hop = tables.next_hop(id).unwrap();
        let header: Vec<_> = next_hop.link_header().iter().map(|o| format!("{o:02x}")).collect();
        (next_hop.state, next_hop.mtu, header.concat())
    };

    let told = changes(&mut tables, |tables| {
        tables.set_neighbour(P0, v4, Mac([2, 0, 0, 0, 0, 9])).unwrap();
        tables.set_neighbour(P0, v6, Mac([2, 0, 0, 0, 0, 6])).unwrap();
        let header = "02000000000902005e1020300800";
        assert_eq!(now(tables, v4_id), (NextHopState::Resolved, 1500, header.into()));
        let header = "02000000000602005e10203086dd";
        assert_eq!(now(tables, v6_id), (NextHopState::Resolved, 1500, header.into()));

        tables.set_neighbour(P0, v4, Mac([2, 0, 0, 0, 0, 10])).unwrap();
        let changed = PortSpec { mtu: 1400, ..tables.port(P0).unwrap().spec.clone() };
        tables.update_port(P0, changed.clone()).unwrap();
        let header = "02000000000a02005e1020300800";
        assert_eq!(now(tables, v4_id), (NextHopState::Resolved, 1400, header.into()));

        let changed = PortSpec { mac: Mac([2; 6]), ..changed };
        tables.update_port(P0, changed.clone()).unwrap();
        let header = "02000000000a0202020202020800";
        assert_eq!(now(tables, v4_id), (NextHopState::Resolved, 1400, header.into()));

        tables.update_port(P0, PortSpec { up: false, ..changed.clone() }).unwrap();
        assert_eq!(now(tables, v4_id), (NextHopState::Down, 1400, String::new()));
        assert_eq!(now(tables, tables.port(P0).unwrap().next_hop).0, NextHopState::Down);
        tables.update_port(P0, changed).unwrap();
        assert_eq!(now(tables, v4_id), (NextHopState::Resolved, 1400, header.into()));

        tables.remove_neighbour(P0, v4).unwrap();
        assert_eq!(now(tables, v4_id), (NextHopState::Pending, 1400, String::new()));
        assert_eq!(next_hop_of(tables, "10.0.0.0/8").0, v4_id);
    });
    assert_eq!(told, [], "no decision is concerned");
}

#[test]
fn a_neighbour_on_the_link_has_a_next_hop_while_it_is_known() {
    let mut tables = with_port(&["192.0.2.1/24", "2001:db8::1/64"]);
    let own = tables.port(P0).unwrap().next_hop;
    let address = ip("192.0.2.9");
    let now = |tables: &Tables| tables.on_link_next_hop(P0, address).unwrap();
    assert_eq!(now(&tables), own);
    let is = tables.next_hop(own).unwrap();
    assert_eq!((is.state, is.address, is.port), (NextHopState::OnLink, None, P0));

    let came_or_went = [Change::NextHop { port: P0, address }];
    let set = |tables: &mut Tables| tables.set_neighbour(P0, address, Mac([2; 6])).unwrap();
    let remove = |tables: &mut Tables| _ = tables.remove_neighbour(P0, address).unwrap();
    assert_eq!(changes(&mut tables, set), came_or_went);
    let id = now(&tables);
    assert_ne!(id, own);
    assert_eq!(tables.next_hop(id).unwrap().state, NextHopState::Resolved);
    assert_eq!(changes(&mut tables, remove), came_or_went);
    assert_eq!(now(&tables), own);
    assert_eq!(tables.next_hop(id), None);

    // As long as a route leads to it, it is the route's as well.
    let prefix = "10.0.0.0/8".parse().unwrap();
    let route = Change::Route { table: MAIN.into(), prefix };
    let add = |tables: &mut Tables| {
        tables.set_route(MAIN, prefix, RouteSpec::Via { port: P0, address }).unwrap();
    };
    assert_eq!(changes(&mut tables, add), [route, came_or_went[0]]);
    assert_eq!(changes(&mut tables, set), []);
    assert_eq!(now(&tables), next_hop_of(&tables, "10.0.0.0/8").0);
    assert_eq!(changes(&mut tables, remove), []);
    let remove_route = |tables: &mut Tables| _ = tables.remove_route(MAIN, prefix).unwrap();
    assert_eq!(changes(&mut tables, remove_route), [came_or_went[0], route]);
    assert_eq!(now(&tables), own);
}

#[test]
fn routes_share_a_next_hop_and_the_last_takes_it_along() {
    let mut tables = with_port(&["192.0.2.1/24"]);
    let via = |address| RouteSpec::Via { port: P0, address: ip(address) };
    let set = |tables: &mut Tables, prefix: &str, spec| {
        tables.set_route(MAIN, prefix.parse().unwrap(), spec).unwrap();
    };
    set(&mut tables, "10.0.0.0/8", via("192.0.2.9"));
    set(&mut tables, "10.1.0.0/16", via("192.0.2.9"));
    let (id, _) = next_hop_of(&tables, "10.0.0.0/8");
    assert_eq!(next_hop_of(&tables, "10.1.0.0/16").0, id);
    // Asked for again, it stays.
    set(&mut tables, "10.1.0.0/16", via("192.0.2.9"));
    set(&mut tables, "10.0.0.0/8", via("192.0.2.8"));
    assert_eq!(next_hop_of(&tables, "10.1.0.0/16").0, id);
    let kept = tables.clone();
    set(&mut tables, "10.1.0.0/16", RouteSpec::Blackhole);
    assert_eq!(tables.next_hop(id), None);
    assert_eq!(tables.next_hop_count(), 2, "the other one, and the port's own");
    assert_eq!(kept.next_hop(id).unwrap().address, Some(ip("192.0.2.9")));
}

#[test]
fn a_next_hop_that_gets_a_used_id_begins_to_count_at_zero() {
    let mut tables = with_port(&["192.0.2.1/24"]);
    let learn = |tables: &mut Tables, address| {
        tables.set_neighbour(P0, ip(address), Mac([2; 6])).unwrap();
        tables.on_link_next_hop(P0, ip(address)).unwrap()
    };
    let first = learn(&mut tables, "192.0.2.9");
    tables.next_hop_counters(first).unwrap().add(1, 3, 300);
    // Another Ethernet address is no other next hop.
    tables.set_neighbour(P0, ip("192.0.2.9"), Mac([4; 6])).unwrap();
    assert_eq!(tables.next_hop_counters(first).unwrap().read(), (3, 300));
    let before = tables.clone();
    tables.remove_neighbour(P0, ip("192.0.2.9")).unwrap();
    assert!(tables.next_hop_counters(first).is_none());
    assert_eq!(learn(&mut tables, "192.0.2.10"), first);
    // Whoever has not seen the change yet counts for the former one.
    before.next_hop_counters(first).unwrap().add(1, 1, 100);
    assert_eq!(before.next_hop_counters(first).unwrap().read(), (4, 400));
    assert_eq!(tables.next_hop_counters(first).unwrap().read(), (0, 0));
}

/// A route goes with one of its ports, and with it the next hop that it alone has needed in another VRF:
/// there, decisions name that one for what is on the link.
#[test]
fn the_next_hop_of_another_vrf_that_goes_with_a_route_is_noted() {
    let mut tables = with_port(&["192.0.2.1/24"]);
    let red = tables.add_vrf("red").unwrap();
    let lan = PortSpec { vrf: red, ..spec("lan", &["198.51.100.1/24"]) };
    tables.add_port(P1, lan).unwrap();
    let address = ip("198.51.100.9");
    let members = [(P0, ip("192.0.2.9")), (P1, address)].map(|(port, address)| MemberSpec {
        port,
        address: Some(address),
        onlink: false,
        weight: 1,
    });
    let prefix = "10.0.0.0/8".parse().unwrap();
    let gone = Change::NextHop { port: P1, address };
    let set = |tables: &mut Tables| {
        tables.set_route(MAIN, prefix, RouteSpec::Multipath(members.into())).unwrap();
    };
    assert!(changes(&mut tables, set).contains(&gone));
    let id = tables.on_link_next_hop(P1, address).unwrap();
    assert_ne!(id, tables.port(P1).unwrap().next_hop);
    let remove = |tables: &mut Tables| tables.remove_port(P0).unwrap();
    assert!(changes(&mut tables, remove).contains(&gone));
    assert_eq!(tables.next_hop(id), None);
    assert_eq!(tables.on_link_next_hop(P1, address), Some(tables.port(P1).unwrap().next_hop));
}

/// Nobody is held against so many changes.
#[test]
fn many_next_hops_that_go_down_at_once_are_one_change() {
    let mut tables = with_port(&["192.0.2.1/24"]);
    tables.add_port(P1, spec("lan", &["198.51.100.1/24"])).unwrap();
    let member = |(port, address)| {
        let address = Some(ip(address));
        MemberSpec { port, address, onlink: false, weight: 1 }
    };
    let both = [(P0, "192.0.2.9"), (P1, "198.51.100.9")].map(member);
    let down = |tables: &mut Tables, count: u8| {
        for number in 0..count {
            let prefix = format!("10.{number}.0.0/16").parse().unwrap();
            tables.set_route(MAIN, prefix, RouteSpec::Multipath(both.into())).unwrap();
        }
        let before = tables.latest_changes().count();
        for up in [false, true] {
            let port = PortSpec { up, ..tables.port(P0).unwrap().spec.clone() };
            tables.update_port(P0, port).unwrap();
        }
        let count = tables.latest_changes().count() - before;
        tables.latest_changes().take(count).map(|(_, change)| *change).collect::<Vec<_>>()
    };
    let few = down(&mut tables, 32);
    assert_eq!(few.len(), 64);
    assert!(few.iter().all(|change| matches!(change, Change::Member { .. })));
    assert_eq!(down(&mut tables, 33), [Change::Vrf(MAIN); 2]);
}

/// There is nobody to ask for an Ethernet address: everything can be sent at once.
#[test]
fn on_a_link_without_header_every_next_hop_is_resolved() {
    let mut tables = Tables::new(1, 0);
    let tunnel = PortSpec { link: LinkKind::Ip, ..spec("tun", &["192.0.2.1/24"]) };
    tables.add_port(P0, tunnel.clone()).unwrap();
    let prefix = "10.0.0.0/8".parse().unwrap();
    let via = RouteSpec::Via { port: P0, address: ip("192.0.2.9") };
    tables.set_route(MAIN, prefix, via).unwrap();
    let (id, is) = next_hop_of(&tables, "10.0.0.0/8");
    assert_eq!((is.state, is.link.length()), (NextHopState::Resolved, 0));
    let on_link = tables.on_link_next_hop(P0, ip("192.0.2.77")).unwrap();
    assert_eq!(on_link, tables.port(P0).unwrap().next_hop);
    assert_eq!(tables.next_hop(on_link).unwrap().state, NextHopState::Resolved);

    // The link becomes another: decisions are concerned, and the route's next hop stays its own.
    let ethernet = PortSpec { link: LinkKind::Ethernet, ..tunnel };
    let told = changes(&mut tables, |tables| tables.update_port(P0, ethernet).unwrap());
    assert_eq!(told, [Change::Vrf(MAIN), Change::Port(P0)]);
    assert_eq!(next_hop_of(&tables, "10.0.0.0/8").0, id);
    assert_eq!(tables.next_hop(id).unwrap().state, NextHopState::Pending);
}

#[test]
fn policies_are_numbered_as_linux_numbers_them() {
    let mut tables = Tables::new(1, 0);
    let policy = |direction, priority| PolicySpec {
        vrf: MAIN,
        direction,
        if_id: None,
        priority,
        selector: Selector {
            source: IpRange::ALL_V4,
            destination: IpRange::ALL_V4,
            protocol: None,
            upper: UpperSelector::Any,
            fields: FieldsSelector::ANY,
        },
        action: Action::Discard,
    };
    let indexes = Direction::ALL.map(|direction| tables.add_policy(policy(direction, 5)).unwrap());
    assert_eq!(indexes.map(|index| index & 7), [0, 1, 2]);
    says(
        tables.add_policy(policy(Direction::Out, 99)),
        &format!("a policy of direction out with the same selector exists: index {}", indexes[1]),
    );
    // A removed policy's index never comes back, its slot does; whoever remembers the handle gets
    // nothing.
    let handle = tables.policy_of_index(indexes[1]).unwrap().handle;
    tables.remove_policy(indexes[1]).unwrap();
    let again = tables.add_policy(policy(Direction::Out, 5)).unwrap();
    assert!(again > indexes[1]);
    assert_eq!(tables.policy_of_index(again).unwrap().handle.slot, handle.slot);
    assert!(tables.policy(handle).is_none());

    // Counters survive an update.
    let counters = |tables: &Tables| tables.policy_of_index(again).unwrap().counters.read();
    tables.policy_of_index(again).unwrap().counters.add(0, 3, 300);
    tables
        .update_policy(again, PolicySpec { action: Action::Bypass, ..policy(Direction::Out, 1) })
        .unwrap();
    assert_eq!(counters(&tables), (3, 300));
    says(
        tables.update_policy(again, policy(Direction::In, 1)),
        &format!(
            "policy {again} cannot be moved to another VRF or direction: remove it and add another"
        ),
    );

    let ports = UpperSelector::Ports { source: PortRange::ALL, destination: PortRange::ALL };
    let mut odd = policy(Direction::Out, 1);
    odd.selector.upper = ports;
    says(tables.add_policy(odd), "any protocol has no ports to select by");
    odd.selector.upper = UpperSelector::Any;
    odd.selector.fields = FieldsSelector::new("syn/syn,ack".parse().ok(), None, None);
    says(tables.add_policy(odd), "only TCP has flags to select by, not any protocol");
    odd.selector = Selector {
        fields: FieldsSelector::ANY,
        protocol: Some(Protocol::ICMPV6),
        upper: UpperSelector::Icmp { kind: (0, 1), code: (0, 0) },
        ..odd.selector
    };
    says(
        tables.add_policy(odd),
        "only ICMP messages have types and codes: icmp here, not protocol ipv6-icmp",
    );
}

/// A change of what the VRF's policies read concerns every packet of the VRF.
#[test]
fn what_policies_read_is_known_and_its_change_told() {
    let mut publisher = Publisher::new(Tables::new(1, 0));
    let policy = |dscp: Option<&str>, port| {
        let addresses = Addresses::V4 { source: [0; 4].into(), destination: [0; 4].into() };
        let dscp = dscp.map(|text| text.parse().unwrap());
        let ports = PortRange::new(port, port).unwrap();
        let selector = Selector {
            protocol: Some(Protocol::UDP),
            upper: UpperSelector::Ports { source: ports, destination: ports },
            fields: FieldsSelector::new(None, dscp, None),
            ..Selector::all_of(&addresses)
        };
        let (direction, action) = (Direction::Out, Action::Bypass);
        PolicySpec { vrf: MAIN, direction, if_id: None, priority: 1, selector, action }
    };
    let mut change = |change: &mut dyn FnMut(&mut Tables)| {
        let before = publisher.current().generation();
        let mut tables = Tables::clone(&publisher.current());
        change(&mut tables);
        publisher.publish(tables);
        let tables = publisher.current();
        let is_vrf = |change: &Change| matches!(change, Change::Vrf(MAIN));
        let concerns_all = tables.changes_since(before).unwrap().any(is_vrf);
        let reads = tables.vrf(MAIN).unwrap().spd.reads();
        (reads.bits() >> 8, concerns_all)
    };
    let mut indexes = Vec::new();
    let mut add = |dscp, port| {
        change(&mut |tables| indexes.push(tables.add_policy(policy(dscp, port)).unwrap()))
    };
    assert_eq!(add(None, 1), (0, true), "the first policy of all");
    assert_eq!(add(None, 2), (0, false));
    assert_eq!(add(Some("0x20/0x20"), 3), (0x20, true));
    assert_eq!(add(Some("0/0x20"), 4), (0x20, false));
    assert_eq!(add(Some("ef"), 5), (0x3f, true));
    let mut update = |at: usize, dscp, port| {
        change(&mut |tables| tables.update_policy(indexes[at], policy(dscp, port)).unwrap())
    };
    assert_eq!(update(4, Some("cs1"), 5), (0x3f, false));
    assert_eq!(update(4, Some("8/8"), 5), (0x28, true));
    let mut remove =
        |at: usize| change(&mut |tables| drop(tables.remove_policy(indexes[at]).unwrap()));
    assert_eq!(remove(2), (0x28, false), "another reads the same");
    assert_eq!(remove(3), (8, true));
    assert_eq!(remove(4), (0, true));
    assert_eq!(remove(1), (0, false));
}

fn sa(source: &str, destination: &str, reqid: u32, spi: u32) -> SaSpec {
    let identity = SaIdentity {
        vrf: MAIN,
        inner: MAIN,
        if_id: None,
        source: ip(source),
        destination: ip(destination),
        reqid,
    };
    SaSpec { identity, spi: Spi(spi), no_ecn: false, no_pmtu_discovery: false }
}

fn add_sa(tables: &mut Tables, spec: SaSpec) -> Result<wire::SaSlot, TableError> {
    let keys = KeyMaterial::new(Algorithm::NullWithoutIntegrity, &[], &[]).unwrap();
    let outbound = OutboundSa::new(spec.spi, &keys, 0, &mut StdRng::seed_from_u64(0));
    let inbound = InboundSa::new(spec.spi, &keys, WindowSize::default(), 0);
    tables.add_sa(spec, outbound, inbound).map(|sa| sa.slot)
}

#[test]
fn a_rekey_keeps_the_slot() {
    let mut tables = Tables::new(1, 0);
    let slot = add_sa(&mut tables, sa("192.0.2.1", "192.0.2.2", 1, 100)).unwrap();
    let template =
        Template { vrf: None, source: None, destination: ip("192.0.2.2"), reqid: 0, spi: None };
    let current = |tables: &Tables| {
        tables.sad().outbound(tables.resolve(MAIN, &template).unwrap()).unwrap().spec.spi
    };
    assert_eq!(current(&tables), Spi(100));
    assert_eq!(add_sa(&mut tables, sa("192.0.2.1", "192.0.2.2", 1, 101)).unwrap(), slot);
    assert_eq!(current(&tables), Spi(101));
    tables.remove_sa(MAIN, ip("192.0.2.2"), Spi(100)).unwrap();
    assert_eq!((current(&tables), tables.resolve(MAIN, &template)), (Spi(101), Some(slot)));

    says(
        add_sa(&mut tables, sa("198.51.100.1", "192.0.2.2", 7, 101)),
        "an SA with SPI 0x00000065 to 192.0.2.2 exists in VRF 'main'",
    );
    says(
        add_sa(&mut tables, sa("2001:db8::1", "192.0.2.2", 7, 102)),
        "the tunnel's ends 2001:db8::1 and 192.0.2.2 are of two address families",
    );
    says(
        add_sa(&mut tables, sa("192.0.2.1", "224.0.0.5", 7, 102)),
        "224.0.0.5 cannot be the end of a tunnel: it is a multicast group",
    );
    says(
        tables.remove_sa(MAIN, ip("192.0.2.2"), Spi(100)),
        "there is no SA with SPI 0x00000064 to 192.0.2.2 in VRF 'main'",
    );
}

#[test]
fn a_slot_that_was_given_up_names_nothing_for_long() {
    let mut tables = Tables::new(1, 0);
    let spec = |reqid| sa("192.0.2.1", "192.0.2.2", reqid, 1);
    let first = add_sa(&mut tables, spec(1)).unwrap();
    tables.remove_sa(MAIN, ip("192.0.2.2"), Spi(1)).unwrap();
    assert!(tables.sad().slot(first).is_none() && tables.sad().is_empty());
    let mut others = 0;
    loop {
        let slot = add_sa(&mut tables, spec(others + 2)).unwrap();
        tables.remove_sa(MAIN, ip("192.0.2.2"), Spi(1)).unwrap();
        if slot == first {
            break;
        }
        others += 1;
        assert!(others <= 65_536, "memory is bounded");
    }
    assert_eq!(others, 65_536);
}

#[test]
fn limits() {
    let mut tables = Tables::new(1, 0);
    for number in 1..limit::MAX_VRFS {
        assert_eq!(tables.add_vrf(&format!("vrf{number}")).unwrap(), VrfId(number as u16));
    }
    says(tables.add_vrf("more"), "there are 4096 VRFs already, and there may not be more");
    tables.remove_vrf(VrfId(17)).unwrap();
    assert_eq!(tables.add_vrf("again"), Ok(VrfId(17)));

    for number in 0..limit::MAX_PORTS as u16 {
        tables.add_port(PortId(number), spec(&format!("port{number}"), &[])).unwrap();
    }
    let more = tables.add_port(PortId(5000), spec("more", &[]));
    says(more, "there are 1024 ports already, and there may not be more");

    let many: Vec<String> =
        (0..=limit::MAX_ADDRESSES).map(|n| format!("10.{}.{}.1/32", n / 256, n % 256)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    tables.update_port(P0, spec("port0", &many[1..])).unwrap();
    says(
        tables.update_port(P0, spec("port0", &many)),
        "there are 256 addresses of a port already, and there may not be more",
    );

    for number in 0..MAX_NEIGHBOURS as u32 {
        let address = std::net::Ipv4Addr::from_bits(0x0b00_0000 + number).into();
        tables.set_neighbour(P1, address, Mac([2; 6])).unwrap();
    }
    says(
        tables.set_neighbour(P1, ip("192.0.2.1"), Mac([2; 6])),
        "port 'port1' has 65536 neighbours already, and there may not be more",
    );
    tables.set_neighbour(P1, ip("11.0.0.1"), Mac([4; 6])).unwrap();
    assert_eq!(tables.port(P1).unwrap().neighbours.lookup(ip("11.0.0.1")), Some(Mac([4; 6])));
}

#[test]
fn tables_without_a_vrf() {
    let mut tables = with_port(&["192.0.2.1/24"]);
    let (number, prefix): (_, IpPrefix) = (TableId(100), "10.77.0.0/16".parse().unwrap());
    let table = TableRef::Number(number);
    assert!(tables.routing_table(table).is_none());
    tables.set_route(table, prefix, RouteSpec::Blackhole).unwrap();
    assert_eq!(tables.routing_table(table).unwrap().route_count(), 1);
    assert!(tables.vrf(MAIN).unwrap().route_of(prefix).is_none(), "no VRF reads it");
    // It may not become a VRF's as it is, nor may two VRFs have one.
    assert_eq!(
        tables.add_vrf_with_table("red", number).unwrap_err(),
        TableError::TableInUse(number)
    );
    let taken = tables.add_vrf_with_table("red", TableId::MAIN).unwrap_err();
    assert_eq!(taken.to_string(), "table 254 is that of VRF 'main'");
    assert_eq!(
        tables.remove_route(table, "10.78.0.0/16".parse().unwrap()).unwrap_err().to_string(),
        "table 100 has no route to 10.78.0.0/16"
    );
    tables.remove_route(table, prefix).unwrap();
    assert!(tables.routing_table(table).is_none(), "an empty one is none");
    let red = tables.add_vrf_with_table("red", number).unwrap();
    assert_eq!(tables.vrf_of_table(number), Some(red));
    // From now on the number names the VRF's.
    tables.set_route(table, prefix, RouteSpec::Blackhole).unwrap();
    assert!(tables.vrf(red).unwrap().route_of(prefix).is_some());
    tables.renumber_tables(&[(red, TableId(7))]).unwrap();
    assert_eq!(tables.vrf_of_table(number), None);
    assert!(tables.routing_table(TableRef::Number(TableId(7))).unwrap().route_of(prefix).is_some());
    tables.remove_vrf(red).unwrap();
    assert!(tables.routing_table(TableRef::Number(TableId(7))).is_none());
    assert_eq!(tables.loose_tables().count(), 0);
}

#[test]
fn vrfs_exchange_tables_or_nothing_changes() {
    let mut tables = with_port(&["192.0.2.1/24"]);
    let prefix: IpPrefix = "10.77.0.0/16".parse().unwrap();
    let [red, blue] = [("red", 7), ("blue", 8)]
        .map(|(name, table)| tables.add_vrf_with_table(name, TableId(table)).unwrap());
    tables.set_route(red, prefix, RouteSpec::Blackhole).unwrap();
    tables.renumber_tables(&[(red, TableId(8)), (blue, TableId(7))]).unwrap();
    assert_eq!([7, 8].map(|it| tables.vrf_of_table(TableId(it))), [Some(blue), Some(red)]);
    assert!(tables.vrf(red).unwrap().route_of(prefix).is_some(), "routes follow their VRF");
    let before = [red, blue].map(|vrf| tables.vrf(vrf).unwrap().table);
    for (wanted, why) in [
        ([(red, TableId(9)), (blue, TableId::MAIN)], "table 254 is that of VRF 'main'"),
        ([(red, TableId(9)), (blue, TableId(9))], "table 9 is that of VRF 'red'"),
        ([(red, TableId(9)), (VrfId(9), TableId(10))], "there is no VRF number 9"),
    ] {
        assert_eq!(tables.renumber_tables(&wanted).unwrap_err().to_string(), why);
        assert_eq!([red, blue].map(|vrf| tables.vrf(vrf).unwrap().table), before);
        assert_eq!(tables.vrf_of_table(TableId(9)), None);
    }
}

#[test]
fn who_has_left_a_vrf_is_told_once() {
    let mut publisher = Publisher::new(with_port(&["192.0.2.1/24"]));
    let first = publisher.current();
    let mut tables = Tables::clone(&first);
    let red = tables.add_vrf("red").unwrap();
    publisher.publish(tables);
    let second = publisher.current();
    assert!(
        second.ports_moved_since(&first).is_empty() && second.vrfs_gone_since(&first).is_empty()
    );
    // Away, and another VRF takes the number.
    let mut tables = Tables::clone(&second);
    let port = tables.ports().next().unwrap().clone();
    tables.remove_vrf(red).unwrap();
    assert_eq!(tables.add_vrf("blue").unwrap(), red);
    let spec = PortSpec { vrf: red, ..port.spec.clone() };
    tables.update_port(port.id, spec).unwrap();
    publisher.publish(tables);
    let third = publisher.current();
    assert_eq!(third.vrfs_gone_since(&second).into_iter().collect::<Vec<_>>(), [red]);
    assert_eq!(third.ports_moved_since(&second).into_iter().collect::<Vec<_>>(), [port.id]);
    assert!(third.ports_moved_since(&third).is_empty());
    // There and back again within one change: nobody has seen it elsewhere.
    let mut tables = Tables::clone(&third);
    tables.update_port(port.id, port.spec.clone()).unwrap();
    tables.update_port(port.id, third.port(port.id).unwrap().spec.clone()).unwrap();
    publisher.publish(tables);
    assert!(publisher.current().ports_moved_since(&third).is_empty());
}
