//! Packets of connections whose route leads elsewhere than when these began.

#[path = "fixture/built.rs"]
mod built;
mod fixture;
#[path = "fixture/flows.rs"]
mod flows;

use std::net::IpAddr;

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

/// Packets leave as flows translate what leaves by their port, also before anybody has answered.
#[test]
fn what_nobody_has_answered_is_made_anew_with_another_source() {
    const UP: &str = "nat(src=203.0.113.9)";
    const POOL: &str = "nat(src=203.0.113.10-203.0.113.11)";
    const NO_NAT: &str = "";
    let with = |anew: &str, nats: [&str; 2]| {
        let leaving = |port: &str, nat: &str| {
            let ct = if nat.is_empty() { "ct(commit" } else { "ct(commit," };
            format!(
                "table=1,priority=8,ct_state=+trk+new,in_port=lan,oif={port},ip,\
                 actions={ct}{nat}{anew}),NORMAL\n"
            )
        };
        let tracked = "priority=10,ip,actions=ct(nat,table=1)\n";
        let answers = "table=1,priority=9,ct_state=+trk+est,ip,actions=NORMAL\n";
        [tracked, answers, &leaving("wan", nats[0]), &leaving("lan", nats[1])].concat()
    };
    let fits = |nat: &str, source: IpAddr| match nat {
        UP => source == ip("203.0.113.9"),
        POOL => [ip("203.0.113.10"), ip("203.0.113.11")].contains(&source),
        _ => source == ip(HERE[0]),
    };
    for (nats, anew) in [
        ([UP, POOL], true),
        ([UP, NO_NAT], true),
        ([NO_NAT, POOL], true),
        ([POOL, UP], true),
        ([UP, POOL], false),
        ([UP, NO_NAT], false),
    ] {
        for mode in [CacheMode::On, CacheMode::Off] {
            let settings = CacheSettings { mode, ..CacheSettings::default() };
            let flows = with(if anew { ",anew" } else { "" }, nats);
            let mut gateway = Gateway::with_caches(flows::tables(&flows), [settings; 4], 7);
            let sent_from = |gateway: &mut Gateway, port| {
                gateway.receive(LAN, &out(0));
                let (_, sent) = gateway.sent_one(port);
                wire::headers::parse(&sent).unwrap().addresses.source()
            };
            for _ in 0..3 {
                let source = sent_from(&mut gateway, WAN);
                assert!(fits(nats[0], source), "{flows}: {source}");
            }
            assert_eq!(connections(&gateway).len(), 1);
            gateway.change(lead_back);
            let sources = [0, 1, 2].map(|_| sent_from(&mut gateway, LAN));
            let [connection] = &connections(&gateway)[..] else { panic!("one connection") };
            let answered = connection.reply.addresses.destination();
            if anew {
                assert!(
                    sources.iter().all(|source| fits(nats[1], *source)),
                    "{flows}: {sources:?}"
                );
                assert_eq!(sources, [answered; 3]);
            } else {
                assert_eq!(answered, ip("203.0.113.9"), "as in Open vSwitch");
            }
            gateway.assert_nothing_lost();
        }
    }
}

/// Who sends the same packets by another port does not take a connection over.
#[test]
fn a_connection_is_of_who_has_opened_it() {
    let with = |owner: &str| {
        format!(
            "priority=10,ip,actions=ct(nat,table=1)
            table=1,priority=9,ct_state=+trk+est,ip,actions=NORMAL
            table=1,priority=8,ct_state=+trk+new,ip,\
            actions=ct(commit,anew{owner},exec(move:NXM_OF_IN_PORT[]->NXM_NX_CT_LABEL[0..15])),NORMAL"
        )
    };
    for (owner, by) in [(",owner=0xffff", LAN), ("", WAN)] {
        for mode in [CacheMode::On, CacheMode::Off] {
            let settings = CacheSettings { mode, ..CacheSettings::default() };
            let mut tables = flows::tables(&with(owner));
            set_side(&mut tables, LAN, tables::Side::Unset);
            let mut gateway = Gateway::with_caches(tables, [settings; 4], 7);
            gateway.receive(LAN, &out(0));
            for _ in 0..3 {
                gateway.receive(WAN, &out(0));
            }
            assert_eq!(gateway.sent(WAN).len(), 4);
            let labels: Vec<_> = connections(&gateway).iter().map(|it| it.label).collect();
            assert_eq!(labels, [by.0.into()], "{owner}");
            gateway.assert_nothing_lost();
        }
    }
}
