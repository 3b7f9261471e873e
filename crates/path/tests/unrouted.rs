//! What flows send where nothing leads ends as it would without flows, and makes no connection.

#[path = "fixture/built.rs"]
mod built;
mod fixture;

use std::sync::Arc;

use built::{counts, ct, flow};
use fixture::*;
use packet::DropReason;
use pipeline::{Action, Field, Flow, NatEnd, NatNew, NatSpec};
use tables::{Direction, RouteSpec, Tables};
use wire::{IpPrefix, VrfId, headers};

const NOWHERE: [(&str, &str); 2] = [("192.168.13.5", "203.0.113.7"), ("fd13::5", "2001:db8:9::7")];
/// Where packets to the first of them are forwarded to.
const FORWARDED: &str = "198.51.100.7";

/// As a firewall has them, whose every packet may pass that leads anywhere.
fn flows(translates: Option<NatEnd>, to_nowhere: Action) -> Vec<Flow> {
    let new = |end| NatNew {
        end,
        addresses: Some(range(FORWARDED)),
        ports: None,
        choice: None,
        persistent: false,
        endpoint_independent: false,
        blocks: None,
    };
    let nat = translates.map(|end| NatSpec { new: Some(Arc::new(new(end))), twice: false });
    let on = match nat {
        None => Action::GotoTable(2),
        nat => ct(true, Some(2), nat),
    };
    let v4 = (Field::DlType, 0x0800, 0xffff);
    vec![
        flow(0, 1, &[], &[ct(false, Some(1), Some(NatSpec::default()))]),
        flow(1, 2, &[v4], &[on]),
        flow(1, 1, &[], &[Action::GotoTable(2)]),
        flow(2, 2, &[(Field::Oif, 0xffff, 0xffff)], &[to_nowhere]),
        flow(2, 1, &[], &[ct(true, None, None), Action::Normal]),
    ]
}

fn with_flows(tables: Tables, flows: Vec<Flow>) -> Gateway {
    Gateway::new(built::with_flows(tables, flows, 64))
}

fn without_routes() -> Tables {
    let mut tables = plain_tables();
    for all in ["0.0.0.0/0", "::/0"] {
        tables.remove_route(VrfId::MAIN, prefix(all)).unwrap();
    }
    tables
}

fn connections(gateway: &Gateway) -> u32 {
    counts(gateway).connections
}

/// Type and code of an ICMP error.
fn told(packet: &[u8]) -> (u8, u8) {
    let parsed = headers::parse(packet).unwrap();
    let bytes = parsed.upper_bytes(packet);
    (bytes[0], bytes[1])
}

fn all() -> [IpPrefix; 2] {
    ["0.0.0.0/0", "::/0"].map(prefix)
}

#[test]
fn a_packet_without_a_route_is_refused_until_one_comes() {
    for forwards in [false, true] {
        let mut gateway = with_flows(
            without_routes(),
            flows(forwards.then_some(NatEnd::Destination), Action::Unrouted),
        );
        let mut plain = Gateway::new(without_routes());
        for round in 1..=3 {
            for (source, destination) in NOWHERE {
                let packet = udp(source, destination, (5000, 53), 10);
                gateway.receive(LAN, &packet);
                plain.receive(LAN, &packet);
                let expected = if source.contains(':') { (1, 0) } else { (3, 0) };
                assert_eq!(told(&gateway.sent_one(LAN).1), expected);
                assert_eq!(told(&plain.sent_one(LAN).1), expected);
            }
            assert_eq!(gateway.drops(), [("no_route", 2 * round)]);
            assert_eq!(gateway.drops(), plain.drops());
        }
        assert_eq!(connections(&gateway), 0);
        gateway.change(|tables| {
            for (to, via) in all().into_iter().zip(["192.168.11.1", "fd11::1"]) {
                let via = RouteSpec::Via { port: WAN, address: ip(via) };
                tables.set_route(VrfId::MAIN, to, via).unwrap();
            }
        });
        for (number, (source, destination)) in (1..).zip(NOWHERE) {
            gateway.receive(LAN, &udp(source, destination, (5000, 53), 10));
            let (_, sent) = gateway.sent_one(WAN);
            let to = headers::parse(&sent).unwrap().addresses.destination();
            assert_eq!(to, ip(if forwards && number == 1 { FORWARDED } else { destination }));
            assert_eq!(connections(&gateway), number);
        }
        gateway.assert_nothing_lost();
    }
}

#[test]
fn a_route_that_leads_nowhere_says_how_it_ends() {
    for (route, reason) in [
        (RouteSpec::Blackhole, DropReason::RouteBlackhole),
        (RouteSpec::Unreachable, DropReason::RouteUnreachable),
        (RouteSpec::Prohibit, DropReason::RouteProhibit),
    ] {
        let mut gateway = with_flows(without_routes(), flows(None, Action::Unrouted));
        gateway.change(|tables| {
            tables.set_route(VrfId::MAIN, prefix("0.0.0.0/0"), route.clone()).unwrap();
        });
        gateway.receive(LAN, &udp(NOWHERE[0].0, NOWHERE[0].1, (5000, 53), 10));
        assert_eq!(gateway.drops(), [(reason.name(), 1)]);
        let is_told = reason != DropReason::RouteBlackhole;
        assert_eq!(gateway.sent(LAN).len(), usize::from(is_told));
        assert_eq!(connections(&gateway), 0);
    }
}

/// As a firewall has it for a forwarded port whose host is in no zone.
#[test]
fn what_would_go_somewhere_is_dropped_and_makes_no_connection() {
    let with = |end: NatEnd, last: Vec<Action>, reason: DropReason| {
        let mut flows = flows(Some(end), Action::Unrouted);
        flows.push(flow(2, 3, &[(Field::DlType, 0x0800, 0xffff)], &last));
        let mut gateway = with_flows(plain_tables(), flows);
        for _ in 0..3 {
            gateway.receive(LAN, &udp(NOWHERE[0].0, NOWHERE[0].1, (5000, 53), 10));
        }
        assert_eq!(gateway.drops(), [(reason.name(), 3)]);
        gateway.assert_nothing_lost();
        connections(&gateway)
    };
    for end in [NatEnd::Destination, NatEnd::Source] {
        assert_eq!(with(end, vec![Action::Unrouted], DropReason::FlowUnrouted), 0);
        assert_eq!(with(end, vec![], DropReason::FlowDrop), 1, "as in Open vSwitch");
    }
}

/// A packet needs no route to leave by a tunnel of a policy: a firewall that has no zone for it must
/// not let it pass for that.
#[test]
fn a_tunnel_does_not_lead_past_it() {
    let outer = ("192.168.11.2", "192.168.11.1");
    let inner = "192.168.12.7";
    for (to_nowhere, leaves) in [(Action::Normal, true), (Action::Unrouted, false)] {
        let mut tables = tunnel_tables(outer, false);
        for to in all() {
            tables.remove_route(VrfId::MAIN, to).unwrap();
        }
        accept(&mut tables, Direction::In);
        let mut gateway = with_flows(tables, flows(None, to_nowhere));
        gateway.receive(LAN, &udp("192.168.13.5", inner, (5000, 53), 10));
        assert_eq!(gateway.sent(WAN).len(), usize::from(leaves));
        assert_eq!(gateway.dropped(DropReason::FlowUnrouted), u64::from(!leaves));
        assert_eq!(connections(&gateway), 0);
        gateway.assert_nothing_lost();
    }
}
