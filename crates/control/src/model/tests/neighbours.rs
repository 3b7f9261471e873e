use std::net::IpAddr;

use tables::{Event, Probe};
use wire::{Mac, PortId};

use super::*;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 10]);

fn seen(control: &Control, port: &str, address: &str, mac: Mac, solicited: bool) -> Event {
    let port = control.wishes.ports[port].id;
    Event::NeighbourSeen { port, address: address.parse().unwrap(), mac, solicited }
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
        address: "192.168.13.9".parse().unwrap(),
        mac: MAC,
        solicited: true,
    };
    control.event(nowhere, NOW);
    assert_eq!(control.publisher.current().generation(), before);
}

#[test]
fn nothing_heard_changes_a_permanent_one() {
    let mut control = running(BASE);
    run(&mut control, "neigh add 192.168.13.9 lladdr 02:00:00:00:00:77 dev lan").unwrap();
    hear(&mut control, "192.168.13.9", MAC, true, NOW);
    let port = control.wishes.ports["lan"].id;
    control.event(Event::NeighbourSilent { port, address: "192.168.13.9".parse().unwrap() }, NOW);
    assert_eq!(known(&control, "192.168.13.9"), Some(Mac([2, 0, 0, 0, 0, 0x77])));
    assert_eq!(control.tick(after(1000)), []);
}

#[test]
fn an_old_one_is_asked_three_times_used_meanwhile_and_forgotten() {
    let mut control = running(BASE);
    hear(&mut control, "192.168.13.9", MAC, true, NOW);
    let probe = Probe {
        port: control.wishes.ports["lan"].id,
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
    let port = control.wishes.ports["lan"].id;
    control.event(Event::NeighbourSilent { port, address: "192.168.13.9".parse().unwrap() }, NOW);
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
    for number in 0..40_000_u32 {
        let address = IpAddr::from((0x0a01_0000 + number).to_be_bytes());
        let event = Event::NeighbourSeen {
            port: control.wishes.ports["lan"].id,
            address,
            mac: MAC,
            solicited: true,
        };
        control.event(event, NOW);
    }
    consistent(&control);
    let learned = control.publisher.current().port_named("lan").unwrap().neighbours.len();
    assert_eq!(learned, 32_768);
    run(&mut control, "neigh add 10.99.0.1 lladdr 02:00:00:00:00:77 dev lan").unwrap();
    assert!(control.tick(after(60)).len() <= 256);
}
