use std::net::IpAddr;

use tables::{Change, Event, NextHop, NextHopId, NextHopState, Probe, RouteKind, Tables};
use types::{Mac, PortId, VrfId};

use super::*;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 10]);

fn seen(control: &Control, port: &str, address: &str, mac: Mac, solicited: bool) -> Event {
    let port = control.desired.ports[port].id;
    let since = since(control, port);
    Event::NeighbourSeen { port, since, address: address.parse().unwrap(), mac, solicited }
}

fn silent(control: &Control, port: &str, address: &str) -> Event {
    let port = control.desired.ports[port].id;
    let since = since(control, port);
    Event::NeighbourSilent { port, since, address: address.parse().unwrap() }
}

/// Since when a port is there and in its VRF.
pub(super) fn since(control: &Control, port: PortId) -> u64 {
    control.publisher.current().port(port).map_or(0, |port| port.since)
}

fn hear(control: &mut Control, address: &str, mac: Mac, solicited: bool, now: Time) {
    let event = seen(control, "lan", address, mac, solicited);
    control.event(event, now);
    consistent(control);
}

fn known(control: &Control, address: &str) -> Option<Mac> {
    let address: IpAddr = address.parse().unwrap();
    control.publisher.current().port_named("lan").unwrap().neighbours.lookup(address)
}

#[test]
fn an_answer_makes_a_neighbour_known_and_news_only_moves_it() {
    let mut control = running(BASE);
    hear(&mut control, "192.168.13.9", MAC, false, NOW);
    assert_eq!(known(&control, "192.168.13.9"), None);
    hear(&mut control, "192.168.13.9", MAC, true, NOW);
    assert_eq!(known(&control, "192.168.13.9"), Some(MAC));
    hear(&mut control, "192.168.13.9", OTHER, false, after(1));
    assert_eq!(known(&control, "192.168.13.9"), Some(OTHER));
    hear(&mut control, "fe80::9", MAC, true, NOW);
    assert_eq!(known(&control, "fe80::9"), Some(MAC));
    assert!(
        show(&mut control, "neigh show dev lan")
            .contains("192.168.13.9 dev lan lladdr 02:00:00:00:00:0a REACHABLE")
    );
}

/// A worker may tell of a station when the control thread has moved the port or given its number to another.
#[test]
fn what_was_seen_of_another_ports_time_teaches_nothing() {
    let mut control = running(BASE);
    let addresses = "addr add 192.168.13.1/24 dev lan";
    run(&mut control, "link add blue type vrf table 10").unwrap();
    let early = seen(&control, "lan", "192.168.13.9", MAC, true);
    let early_silence = silent(&control, "lan", "192.168.13.9");
    run(&mut control, "link set lan master blue").unwrap();
    // As before the move, or it could not be a neighbour at all.
    _ = run(&mut control, addresses);
    control.event(early, NOW);
    assert_eq!(known(&control, "192.168.13.9"), None);
    hear(&mut control, "192.168.13.9", MAC, true, NOW);
    assert_eq!(known(&control, "192.168.13.9"), Some(MAC));
    control.event(early_silence, NOW);
    assert_eq!(known(&control, "192.168.13.9"), Some(MAC), "it is silent in the other VRF");

    run(&mut control, "link add link lan name lan.10 type vlan id 10").unwrap();
    run(&mut control, "addr add 10.5.0.1/24 dev lan.10").unwrap();
    let early = seen(&control, "lan.10", "10.5.0.9", MAC, true);
    let number = control.desired.ports["lan.10"].id;
    run(&mut control, "link del lan.10").unwrap();
    run(&mut control, "link add link lan name lan.20 type vlan id 20").unwrap();
    run(&mut control, "addr add 10.5.0.1/24 dev lan.20").unwrap();
    assert_eq!(control.desired.ports["lan.20"].id, number, "the number is used again");
    control.event(early, NOW);
    let tables = control.publisher.current();
    assert_eq!(tables.port(number).unwrap().neighbours.lookup("10.5.0.9".parse().unwrap()), None);
    consistent(&control);
}

#[test]
fn what_cannot_be_a_neighbour_is_not_learned() {
    let mut control = running(BASE);
    let before = control.publisher.current().generation();
    for address in [
        "10.0.0.1",
        "192.168.13.1",
        "192.168.13.255",
        "192.168.11.2",
        "224.0.0.1",
        "2001:db8:99::1",
        "::",
    ] {
        hear(&mut control, address, MAC, true, NOW);
        assert_eq!(known(&control, address), None, "{address}");
    }
    hear(&mut control, "192.168.13.9", Mac::BROADCAST, true, NOW);
    hear(&mut control, "192.168.13.9", Mac([0; 6]), true, NOW);
    assert_eq!(known(&control, "192.168.13.9"), None);
    let nowhere = Event::NeighbourSeen {
        port: PortId(999),
        since: 0,
        address: "192.168.13.9".parse().unwrap(),
        mac: MAC,
        solicited: true,
    };
    control.event(nowhere, NOW);
    assert_eq!(control.publisher.current().generation(), before);
}

/// No prefix of the port holds them.
#[test]
fn stations_that_routes_lead_to_are_learned() {
    for (routes, address) in [
        (&["route add 10.9.0.0/16 via 172.16.0.9 dev lan onlink"][..], "172.16.0.9"),
        (&["route add 172.16.0.9 dev lan"], "172.16.0.9"),
        (&["route add 172.16.0.0/16 dev lan table 100"], "172.16.0.9"),
        (&["route add 172.16.0.0/16 nexthop dev lan nexthop dev wan"], "172.16.0.9"),
        (&["vrf add red", "route add 172.16.0.0/16 dev lan vrf red"], "172.16.0.9"),
        (&["route add 2001:db8:9::/48 via 2001:db8:77::9 dev lan onlink"], "2001:db8:77::9"),
    ] {
        let mut control = running(BASE);
        hear(&mut control, address, MAC, true, NOW);
        assert_eq!(known(&control, address), None, "{routes:?}");
        for route in routes {
            run(&mut control, route).unwrap_or_else(|why| panic!("{route}: {why}"));
        }
        hear(&mut control, address, MAC, true, NOW);
        assert_eq!(known(&control, address), Some(MAC), "{routes:?}");
        // Another address of the port is nothing to it.
        run(&mut control, "addr add 192.168.99.1/24 dev lan").unwrap();
        run(&mut control, "addr del 192.168.99.1/24 dev lan").unwrap();
        assert_eq!(known(&control, address), Some(MAC), "{routes:?}");
        consistent(&control);
    }
}

#[test]
fn nothing_heard_changes_a_permanent_one() {
    let mut control = running(BASE);
    run(&mut control, "neigh add 192.168.13.9 lladdr 02:00:00:00:00:77 dev lan").unwrap();
    hear(&mut control, "192.168.13.9", MAC, true, NOW);
    control.event(silent(&control, "lan", "192.168.13.9"), NOW);
    assert_eq!(known(&control, "192.168.13.9"), Some(Mac([2, 0, 0, 0, 0, 0x77])));
    assert_eq!(control.tick(after(1000)), []);
}

#[test]
fn an_old_one_is_asked_three_times_used_meanwhile_and_forgotten() {
    let mut control = running(BASE);
    hear(&mut control, "192.168.13.9", MAC, true, NOW);
    let probe = Probe {
        port: control.desired.ports["lan"].id,
        address: "192.168.13.9".parse().unwrap(),
        mac: MAC,
    };
    assert_eq!(control.tick(after(59)), []);
    assert_eq!(control.tick(after(60)), [probe]);
    assert_eq!(control.tick(after(60)), []);
    assert!(show(&mut control, "neigh show dev lan").contains("PROBE"));
    assert_eq!(control.tick(after(61)), [probe]);
    assert_eq!(known(&control, "192.168.13.9"), Some(MAC));
    assert_eq!(control.tick(after(62)), [probe]);
    assert_eq!(control.tick(after(63)), []);
    assert_eq!(known(&control, "192.168.13.9"), None);
    consistent(&control);
}

#[test]
fn an_answer_makes_it_young_again() {
    let mut control = running(BASE);
    hear(&mut control, "192.168.13.9", MAC, true, NOW);
    assert_eq!(control.tick(after(60)).len(), 1);
    let before = control.publisher.current().generation();
    hear(&mut control, "192.168.13.9", MAC, true, after(61));
    assert_eq!(
        control.publisher.current().generation(),
        before,
        "nothing that workers see has changed"
    );
    assert_eq!(control.tick(after(120)), []);
    assert_eq!(control.tick(after(121)).len(), 1);
}

#[test]
fn a_silent_one_is_forgotten() {
    let mut control = running(BASE);
    hear(&mut control, "192.168.13.9", MAC, true, NOW);
    control.event(silent(&control, "lan", "192.168.13.9"), NOW);
    assert_eq!(known(&control, "192.168.13.9"), None);
    assert_eq!(control.tick(after(100)), []);
}

#[test]
fn it_goes_with_its_link_and_survives_a_reload() {
    let mut control = running(BASE);
    hear(&mut control, "192.168.13.9", MAC, true, NOW);
    reload(&mut control, &BASE.replace("via = \"192.168.11.1\"", "via = \"192.168.11.9\""))
        .unwrap();
    assert_eq!(known(&control, "192.168.13.9"), Some(MAC));
    run(&mut control, "addr del 192.168.13.1/24 dev lan").unwrap();
    assert_eq!(known(&control, "192.168.13.9"), None);
}

#[test]
fn a_flood_of_answers_is_bounded() {
    let text =
        BASE.replace("192.168.13.1/24", "10.0.0.1/8").replace("192.168.13.0/24", "10.0.0.0/8");
    let mut control = running(&text);
    let port = control.desired.ports["lan"].id;
    let since = since(&control, port);
    for number in 0..40_000_u32 {
        let address = IpAddr::from((0x0a01_0000 + number).to_be_bytes());
        control
            .event(Event::NeighbourSeen { port, since, address, mac: MAC, solicited: true }, NOW);
    }
    consistent(&control);
    let learned = control.publisher.current().port_named("lan").unwrap().neighbours.len();
    assert_eq!(learned, 16_384);
    run(&mut control, "neigh add 10.99.0.1 lladdr 02:00:00:00:00:77 dev lan").unwrap();
    assert!(control.tick(after(60)).len() <= 256);
}

/// The next hop of the route to 0.0.0.0/0.
fn default_next_hop(tables: &Tables) -> (NextHopId, NextHop) {
    let route = tables.vrf(VrfId::MAIN).unwrap().route("203.0.113.1".parse().unwrap()).unwrap();
    let RouteKind::Via { next_hop } = route.kind else { panic!("{route:?}") };
    (next_hop, *tables.next_hop(next_hop).unwrap())
}

/// From the command to the object that the default route names, which stays the same one; and no
/// decision made before is concerned.
#[test]
fn what_becomes_of_a_next_hop_concerns_no_decision() {
    let mut control = running(BASE);
    let before = control.publisher.current();
    let (id, is) = default_next_hop(&before);
    assert_eq!((is.state, is.link_header().get(5)), (NextHopState::Resolved, Some(&1)));
    let now = |control: &Control| {
        let tables = control.publisher.current();
        assert!(tables.generation() > before.generation());
        let told: Vec<_> = tables.changes_since(before.generation()).unwrap().collect();
        assert_eq!(told, Vec::<&Change>::new());
        let (is, next_hop) = default_next_hop(&tables);
        assert_eq!(is, id);
        (next_hop.state, next_hop.mtu, next_hop.link_header().get(5).copied())
    };
    run(&mut control, "neigh replace 192.168.11.1 lladdr 02:00:00:00:00:02 dev wan").unwrap();
    assert_eq!(now(&control), (NextHopState::Resolved, 1500, Some(2)));
    run(&mut control, "neigh del 192.168.11.1 dev wan").unwrap();
    assert_eq!(now(&control), (NextHopState::Pending, 1500, None));
    control.event(seen(&control, "wan", "192.168.11.1", MAC, true), NOW);
    assert_eq!(now(&control), (NextHopState::Resolved, 1500, Some(9)));
    control.event(seen(&control, "wan", "192.168.11.1", OTHER, false), NOW);
    assert_eq!(now(&control), (NextHopState::Resolved, 1500, Some(10)));
    control.event(silent(&control, "wan", "192.168.11.1"), NOW);
    assert_eq!(now(&control), (NextHopState::Pending, 1500, None));
    run(&mut control, "link set wan mtu 1400").unwrap();
    assert_eq!(now(&control), (NextHopState::Pending, 1400, None));
    // What the file says again: the MTU it does not name, and the neighbour.
    reload(&mut control, BASE).unwrap();
    assert_eq!(now(&control), (NextHopState::Resolved, 1500, Some(1)));
    reload(&mut control, &BASE.replacen("\"wan\"\nkind", "\"wan\"\nmtu = 1300\nkind", 1)).unwrap();
    assert_eq!(now(&control), (NextHopState::Resolved, 1300, Some(1)));
}

#[test]
fn a_station_on_the_link_gets_a_next_hop_with_its_first_answer() {
    let mut control = running(BASE);
    let port = control.desired.ports["lan"].id;
    let address: IpAddr = "192.168.13.9".parse().unwrap();
    let state = |control: &Control| {
        let tables = control.publisher.current();
        tables.next_hop(tables.on_link_next_hop(port, address).unwrap()).unwrap().state
    };
    let before = control.publisher.current().generation();
    assert_eq!(state(&control), NextHopState::OnLink);
    hear(&mut control, "192.168.13.9", MAC, true, NOW);
    assert_eq!(state(&control), NextHopState::Resolved);
    hear(&mut control, "192.168.13.9", OTHER, false, NOW);
    control.event(silent(&control, "lan", "192.168.13.9"), NOW);
    assert_eq!(state(&control), NextHopState::OnLink);
    let tables = control.publisher.current();
    let told: Vec<_> = tables.changes_since(before).unwrap().collect();
    let came_or_went = &Change::NextHop { port, address };
    assert_eq!(told, [came_or_went, came_or_went], "that it moved concerns nobody");
}
