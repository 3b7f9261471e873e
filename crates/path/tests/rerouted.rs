//! Packets of connections whose route leads elsewhere than when these began.

#[path = "fixture/built.rs"]
mod built;
mod fixture;
#[path = "fixture/flows.rs"]
mod flows;

use conntrack::Connection;
use fixture::*;
use flow::{CacheMode, CacheSettings};
use tables::{Action, Direction, PolicySpec, RouteSpec, Tables};
use wire::VrfId;

const HERE: [&str; 2] = ["192.168.13.5", "fd13::5"];
const THERE: [&str; 2] = ["192.168.12.7", "fd12::7"];

/// What begins at `lan` leaves by `wan`, and its answers by `lan`.
fn flows(otherwise: &str) -> String {
    let of_family = |family: &str| {
        format!(
            "
            priority=10,{family},actions=ct(nat,table=1)
            table=1,priority=9,ct_state=+trk+est,{family},actions=goto_table:2
            table=1,priority=8,ct_state=+trk+new,in_port=lan,oif=wan,{family},actions=ct(commit),NORMAL
            table=2,priority=2,in_port=lan,oif=wan,{family},actions=NORMAL
            table=2,priority=2,in_port=wan,oif=lan,{family},actions=NORMAL
            table=2,priority=1,{family},actions={otherwise}"
        )
    };
    ["ip", "ipv6"].map(of_family).concat()
}

fn gateways(otherwise: &str) -> [Gateway; 2] {
    [CacheMode::On, CacheMode::Off].map(|mode| {
        let settings = CacheSettings { mode, ..CacheSettings::default() };
        Gateway::with_caches(flows::tables(&flows(otherwise)), [settings; 4], 7)
    })
}

fn connections(gateway: &Gateway) -> Vec<Connection> {
    let tables = gateway.publisher.current();
    let table = tables.connections().unwrap();
    let all = 0..table.settings().connections;
    all.filter_map(|index| table.connection(index, gateway.now)).collect()
}

fn out(family: usize) -> Vec<u8> {
    udp(HERE[family], THERE[family], (5000, 53), 10)
}

fn back(family: usize) -> Vec<u8> {
    udp(THERE[family], HERE[family], (53, 5000), 10)
}

/// Leads to the other side by the port that its packets come by.
fn lead_back(tables: &mut Tables) {
    for (there, here) in THERE.into_iter().zip(HERE) {
        let spec = RouteSpec::Via { port: LAN, address: ip(here) };
        tables.set_route(VrfId::MAIN, prefix(there), spec).unwrap();
    }
}

fn lead_there(tables: &mut Tables) {
    for there in THERE {
        tables.remove_route(VrfId::MAIN, prefix(there)).unwrap();
    }
}

#[test]
fn a_connection_waits_for_its_way() {
    for mut gateway in gateways("rerouted") {
        for family in [0, 1] {
            gateway.receive(LAN, &out(family));
            gateway.receive(WAN, &back(family));
        }
        assert_eq!((gateway.sent(WAN).len(), gateway.sent(LAN).len()), (2, 2));
        let before = connections(&gateway);
        gateway.change(lead_back);
        // Again and again, so that the decision is kept. They do not keep the connection alive.
        for times in 1..=4 {
            (0..2).for_each(|family| gateway.receive(LAN, &out(family)));
            assert_eq!(gateway.drops(), [("connection_rerouted", 2 * times)]);
        }
        assert!(gateway.sent(LAN).is_empty() && gateway.sent(WAN).is_empty());
        assert_eq!(connections(&gateway), before);
        gateway.change(lead_there);
        for family in [0, 1] {
            gateway.receive(LAN, &out(family));
            gateway.receive(WAN, &back(family));
        }
        assert_eq!((gateway.sent(WAN).len(), gateway.sent(LAN).len()), (2, 2));
        assert_eq!(connections(&gateway).len(), 2);
        gateway.assert_nothing_lost();
    }
}

#[test]
fn a_connection_ends_where_flows_say_so() {
    for mut gateway in gateways("rerouted(end)") {
        for family in [0, 1] {
            gateway.receive(LAN, &out(family));
            gateway.receive(WAN, &back(family));
        }
        assert_eq!((gateway.sent(WAN).len(), gateway.sent(LAN).len()), (2, 2));
        gateway.change(lead_back);
        (0..2).for_each(|family| gateway.receive(LAN, &out(family)));
        assert_eq!(gateway.drops(), [("connection_rerouted", 2)]);
        assert!(connections(&gateway).is_empty());
        // What comes next would open one, which flows do not let it do there.
        (0..2).for_each(|family| gateway.receive(LAN, &out(family)));
        assert_eq!(gateway.drops(), [("flow_miss", 2), ("connection_rerouted", 2)]);
        gateway.change(lead_there);
        (0..2).for_each(|family| gateway.receive(LAN, &out(family)));
        assert_eq!(gateway.sent(WAN).len(), 2);
        assert!(connections(&gateway).iter().all(|it| !it.is_replied));
        gateway.assert_nothing_lost();
    }
}

/// Nobody ends a connection by packets that may not pass anyway, or that were for another station.
#[test]
fn a_connection_does_not_end_for_what_may_not_pass() {
    for mut gateway in gateways("rerouted(end)") {
        gateway.receive(LAN, &out(0));
        gateway.receive(WAN, &back(0));
        let before = connections(&gateway);
        gateway.change(|tables| {
            lead_back(tables);
            let all = policy(Direction::In, HERE[0], "0.0.0.0/0", Action::Discard);
            tables.add_policy(PolicySpec { priority: 0, ..all }).unwrap();
            set_side(tables, LAN, tables::Side::Unprotected);
        });
        for times in 1..=3 {
            gateway.receive(LAN, &out(0));
            assert_eq!(gateway.drops(), [("policy_discard", times)]);
        }
        assert_eq!(connections(&gateway), before);
        gateway.assert_nothing_lost();
    }
}

/// What has no route ends by that: its connection stays, and its sender is told.
#[test]
fn what_has_no_route_ends_by_that() {
    for otherwise in ["rerouted", "rerouted(end)"] {
        for mut gateway in gateways(otherwise) {
            gateway.receive(LAN, &out(0));
            gateway.receive(WAN, &back(0));
            _ = (gateway.sent(WAN), gateway.sent(LAN));
            let before = connections(&gateway);
            gateway.change(|tables| {
                tables.remove_route(VrfId::MAIN, prefix("0.0.0.0/0")).unwrap();
            });
            gateway.receive(LAN, &out(0));
            assert_eq!(gateway.drops(), [("no_route", 1)]);
            assert_eq!(gateway.sent(LAN).len(), 1, "an ICMP error");
            assert_eq!(connections(&gateway), before);
        }
    }
}

/// Its packets leave with the address of the port that they leave by, also before anybody has answered.
#[test]
fn what_nobody_has_answered_is_made_anew_with_another_source() {
    let with = |anew: &str| {
        let leaving = |port: &str, source: &str| {
            format!(
                "table=1,priority=8,ct_state=+trk+new,in_port=lan,oif={port},ip,\
                 actions=ct(commit,nat(src={source}{anew})),NORMAL\n"
            )
        };
        let tracked = "priority=10,ip,actions=ct(nat,table=1)\n";
        let answers = "table=1,priority=9,ct_state=+trk+est,ip,actions=NORMAL\n";
        [tracked, answers, &leaving("wan", "203.0.113.9"), &leaving("lan", "203.0.113.10")].concat()
    };
    for (anew, source) in [(",anew", "203.0.113.10"), ("", "203.0.113.9")] {
        for mode in [CacheMode::On, CacheMode::Off] {
            let settings = CacheSettings { mode, ..CacheSettings::default() };
            let mut gateway = Gateway::with_caches(flows::tables(&with(anew)), [settings; 4], 7);
            let sent_from = |gateway: &mut Gateway, port| {
                gateway.receive(LAN, &out(0));
                let (_, sent) = gateway.sent_one(port);
                wire::headers::parse(&sent).unwrap().addresses.source()
            };
            for _ in 0..3 {
                assert_eq!(sent_from(&mut gateway, WAN), ip("203.0.113.9"));
            }
            let accounted = connections(&gateway);
            gateway.change(lead_back);
            for _ in 0..3 {
                assert_eq!(sent_from(&mut gateway, LAN), ip(source), "{anew}");
            }
            assert_eq!((accounted.len(), connections(&gateway).len()), (1, 1));
            gateway.assert_nothing_lost();
        }
    }
}
