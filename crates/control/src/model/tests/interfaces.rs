use api::InterfaceState::{Down, Gone, NoCarrier, Up};
use tables::{Event, NextHopState};
use types::{Mac, PortId, VrfId};

use super::*;
use crate::model::SeenInterface;

const STATION: Mac = Mac([2, 0, 0, 0, 0, 9]);

/// Two uplinks, a VLAN, no permanent neighbour.
const UPLINKS: &str = r#"
[[port]]
name = "lan"
kind = "memory"
addresses = ["192.168.13.1/24"]
[[port]]
name = "wan"
kind = "tap"
addresses = ["192.168.11.2/24"]
[[port]]
name = "wan.1"
kind = "vlan"
parent = "wan"
id = 1
addresses = ["10.1.1.1/24"]
[[port]]
name = "spare"
kind = "af-packet"
interface = "eth2"
addresses = ["192.168.12.2/24"]
[[route]]
to = "default"
via = "192.168.11.1"
[[route]]
to = "default"
via = "192.168.12.1"
metric = 9
[[route]]
to = "172.16.0.0/12"
via = "192.168.11.1"
[[route]]
to = "172.17.0.0/16"
via = "10.1.1.9"
"#;

fn id(control: &Control, port: &str) -> PortId {
    control.desired.ports[port].id
}

fn seen(control: &Control, port: &str) -> SeenInterface {
    let found = control.desired.ports[port].found;
    SeenInterface { state: Up, mac: found.mac, mtu: found.mtu, is_other_link: false }
}

#[track_caller]
fn see(control: &mut Control, port: &str, seen: SeenInterface) -> Result<(), String> {
    let done = control.interface(id(control, port), &seen).map_err(|error| error.to_string());
    consistent(control);
    done
}

#[track_caller]
fn set(control: &mut Control, port: &str, state: InterfaceState) {
    let seen = SeenInterface { state, ..seen(control, port) };
    see(control, port, seen).unwrap();
}

fn learn(control: &mut Control, port: &str, address: &str) {
    let (port, address) = (id(control, port), address.parse().unwrap());
    let since = neighbours::since(control, port);
    let seen = Event::NeighbourSeen { port, since, address, mac: STATION, solicited: true };
    control.event(seen, NOW);
    consistent(control);
}

fn knows(control: &Control, port: &str, address: &str) -> bool {
    let tables = control.publisher.current();
    tables.port_named(port).unwrap().neighbours.lookup(address.parse().unwrap()).is_some()
}

#[test]
fn a_port_sends_only_while_its_interface_can() {
    let mut control = running(UPLINKS);
    let default = |control: &mut Control| show(control, "route get 8.8.8.8");
    assert!(default(&mut control).contains("via 192.168.11.1"));
    for state in [Down, NoCarrier, Gone] {
        set(&mut control, "wan", state);
        let shown = show(&mut control, "link show wan");
        assert!(shown.contains("<NO-CARRIER,BROADCAST,MULTICAST>"), "{shown}");
        assert!(shown.contains("state DOWN"), "{shown}");
        assert!(show(&mut control, "link show wan.1").contains("state DOWN"));
        assert!(default(&mut control).contains("via 192.168.12.1"));
        let tables = control.publisher.current();
        let (_, port) = (tables, id(&control, "wan"));
        let tables = control.publisher.current();
        let own = tables.port(port).unwrap().next_hop;
        assert_eq!(tables.next_hop(own).unwrap().state, NextHopState::Down);

        set(&mut control, "wan", Up);
        assert!(default(&mut control).contains("via 192.168.11.1"));
        assert!(show(&mut control, "link show wan.1").contains("state UP"));
    }
}

#[test]
fn what_is_set_down_stays_down_and_what_is_gone_stays_gone_over_a_reload() {
    let mut control = running(UPLINKS);
    run(&mut control, "link set wan down").unwrap();
    set(&mut control, "wan", NoCarrier);
    set(&mut control, "wan", Up);
    assert!(show(&mut control, "link show wan").contains("state DOWN"));
    assert_eq!(reload(&mut control, UPLINKS).unwrap(), "~ port wan: up");
    assert!(show(&mut control, "link show wan").contains("state UP"));

    set(&mut control, "spare", Gone);
    assert_eq!(reload(&mut control, UPLINKS).unwrap(), "");
    assert!(show(&mut control, "link show spare").contains("state DOWN"));
    assert!(control.interface(PortId(999), &seen(&control, "wan")).is_err());
}

#[test]
fn neighbours_are_forgotten_with_the_link() {
    let mut control = running(UPLINKS);
    run(&mut control, "neigh add 192.168.11.7 lladdr 02:00:00:00:00:07 dev wan").unwrap();
    let mut go = |change: &mut dyn FnMut(&mut Control)| {
        learn(&mut control, "wan", "192.168.11.1");
        learn(&mut control, "wan.1", "10.1.1.9");
        learn(&mut control, "lan", "192.168.13.9");
        change(&mut control);
        assert!(!knows(&control, "wan", "192.168.11.1"));
        assert!(!knows(&control, "wan.1", "10.1.1.9"));
        assert!(knows(&control, "wan", "192.168.11.7") && knows(&control, "lan", "192.168.13.9"));
    };
    go(&mut |control| {
        set(control, "wan", NoCarrier);
        set(control, "wan", Up);
    });
    go(&mut |control| {
        let other = SeenInterface { is_other_link: true, ..seen(control, "wan") };
        see(control, "wan", other).unwrap();
    });
    go(&mut |control| {
        run(control, "link set wan down").unwrap();
        run(control, "link set wan up").unwrap();
    });
    learn(&mut control, "wan.1", "10.1.1.9");
    learn(&mut control, "wan", "192.168.11.1");
    run(&mut control, "link set wan.1 down").unwrap();
    assert!(!knows(&control, "wan.1", "10.1.1.9") && knows(&control, "wan", "192.168.11.1"));
}

#[test]
fn another_mac_is_the_ports() {
    let mut control = running(UPLINKS);
    let mac = Mac([2, 0, 0, 0, 0xab, 0xcd]);
    let other = SeenInterface { mac, ..seen(&control, "wan") };
    see(&mut control, "wan", other).unwrap();
    for port in ["wan", "wan.1"] {
        let shown = show(&mut control, &format!("link show {port}"));
        assert!(shown.contains("link/ether 02:00:00:00:ab:cd"), "{shown}");
        assert!(show(&mut control, "addr show dev wan").contains("fe80::ff:fe00:abcd/64"));
    }
    let broken = SeenInterface { mac: Mac([0xff; 6]), state: NoCarrier, ..other };
    assert!(see(&mut control, "wan", broken).is_err());
    let shown = show(&mut control, "link show wan");
    assert!(shown.contains("02:00:00:00:ab:cd") && shown.contains("state DOWN"), "{shown}");
}

#[test]
fn an_mtu_is_followed_unless_another_was_asked_for() {
    let mut control = running(&format!("[gateway]\nlarge-buffers = 0\n{UPLINKS}"));
    let mtu = |control: &mut Control, port: &str| {
        let shown = show(control, &format!("link show {port}"));
        shown.split("mtu ").nth(1).unwrap().split(' ').next().unwrap().parse::<u16>().unwrap()
    };
    let resize = |control: &mut Control, mtu| {
        let other = SeenInterface { mtu, ..seen(control, "wan") };
        see(control, "wan", other)
    };
    resize(&mut control, 1400).unwrap();
    assert_eq!((mtu(&mut control, "wan"), mtu(&mut control, "wan.1")), (1400, 1400));
    resize(&mut control, 1600).unwrap();
    assert_eq!((mtu(&mut control, "wan"), mtu(&mut control, "wan.1")), (1600, 1500));

    run(&mut control, "link set wan mtu 1450").unwrap();
    resize(&mut control, 1700).unwrap();
    assert_eq!(mtu(&mut control, "wan"), 1450);
    resize(&mut control, 1300).unwrap();
    assert_eq!(mtu(&mut control, "wan"), 1300);
    resize(&mut control, 1500).unwrap();
    assert_eq!(mtu(&mut control, "wan"), 1450);

    // Without IPv6 addresses the port may have less than IPv6 needs; with them it may not.
    let resize_spare = |control: &mut Control, mtu| {
        let other = SeenInterface { mtu, ..seen(control, "spare") };
        see(control, "spare", other)
    };
    resize_spare(&mut control, 1000).unwrap();
    assert_eq!(mtu(&mut control, "spare"), 1000);
    resize_spare(&mut control, 1500).unwrap();
    run(&mut control, "addr add 2001:db8::1/64 dev spare").unwrap();
    let refused = resize_spare(&mut control, 1000).unwrap_err();
    assert!(refused.contains("1280"), "{refused}");
    assert_eq!(mtu(&mut control, "spare"), 1500);

    // The workers have no buffers for it.
    run(&mut control, "link set wan mtu 1500").unwrap();
    let refused = resize(&mut control, 9000).unwrap_err();
    assert!(refused.contains("large-buffers"), "{refused}");
    assert_eq!(mtu(&mut control, "wan"), 1500);
}

#[test]
fn it_is_said_why_a_port_is_down_and_a_route_not_used() {
    let mut control = running(UPLINKS);
    let to = |control: &Control, address: &str| {
        control.routes_not_used(VrfId::MAIN, address.parse().unwrap())
    };
    assert_eq!(control.why_down(id(&control, "wan")), None);
    assert_eq!(to(&control, "172.17.0.1"), [""; 0]);

    set(&mut control, "wan", NoCarrier);
    let why = "interface wan of port wan has no carrier";
    assert_eq!(control.why_down(id(&control, "wan")).unwrap(), why);
    assert_eq!(control.why_down(id(&control, "wan.1")).unwrap(), format!("{why}, with VLAN wan.1"));
    assert_eq!(
        to(&control, "172.17.0.1"),
        [
            format!("172.17.0.0/16 via 10.1.1.9 is not used: {why}, with VLAN wan.1"),
            format!("172.16.0.0/12 via 192.168.11.1 is not used: {why}"),
            format!("0.0.0.0/0 via 192.168.11.1 is not used: {why}"),
        ]
    );
    assert_eq!(to(&control, "192.168.13.7"), [""; 0], "a better route is in use");
    assert_eq!(to(&control, "2001:db8::1"), [""; 0]);

    set(&mut control, "spare", Gone);
    let why = "interface eth2 of port spare is gone";
    assert_eq!(control.why_down(id(&control, "spare")).unwrap(), why);
    set(&mut control, "spare", Down);
    run(&mut control, "link set lan down").unwrap();
    assert_eq!(control.why_down(id(&control, "lan")).unwrap(), "port lan is set down");
}
