//! A change costs a miss to the flows that it concerns, and to nobody else.

mod fixture;

use fixture::*;
use flow::{Associativity, CacheMode, CacheSettings};
use packet::{Counter, Time};
use pipeline::{
    Action as FlowAction, Change as FlowChange, Field, Flow, Match, Owner, Pipeline, SetWord,
};
use tables::{
    Action, Direction, Ike, PolicySpec, RouteSpec, SaIdentity, SaSpec, Tables, Template,
    UpperSelector,
};
use wire::{Mac, PortId, PortRange, Protocol, Spi, VrfId};

const LARGE: CacheSettings =
    CacheSettings { mode: CacheMode::On, buckets: 1 << 14, associativity: Associativity::Four };

/// How packets were decided: found as they were, found and held against what changed, and decided
/// because something may have touched them, or because they were new.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Looked {
    hits: u64,
    restamped: u64,
    stale: u64,
    new: u64,
}

fn looked(gateway: &Gateway) -> Looked {
    let caches = &gateway.worker.statistics().caches;
    let sum = |count: fn(&flow::CacheStatistics) -> &Counter| {
        caches.iter().map(|cache| count(cache).read()).sum()
    };
    Looked {
        hits: sum(|cache| &cache.hits),
        restamped: sum(|cache| &cache.restamped),
        stale: sum(|cache| &cache.missed_stale),
        new: sum(|cache| &cache.missed_new) + sum(|cache| &cache.missed_evicted),
    }
}

/// Sends packets from the LAN and answers how they were decided.
fn send(gateway: &mut Gateway, packets: &[Vec<u8>]) -> Looked {
    let before = looked(gateway);
    for packet in packets {
        gateway.receive(LAN, packet);
        gateway.sent(LAN);
        gateway.sent(WAN);
    }
    let after = looked(gateway);
    Looked {
        hits: after.hits - before.hits,
        restamped: after.restamped - before.restamped,
        stale: after.stale - before.stale,
        new: after.new - before.new,
    }
}

/// A gateway that knows the flows.
fn knowing(tables: Tables, flows: &[Vec<u8>]) -> Gateway {
    let mut gateway = Gateway::with_caches(tables, [LARGE; 4], 7);
    let count = flows.len() as u64;
    assert_eq!(send(&mut gateway, flows), Looked { new: count, ..Looked::default() });
    assert_eq!(send(&mut gateway, flows), Looked { hits: count, ..Looked::default() });
    gateway
}

/// Changes something and sends the flows twice: `missing` of them are decided anew, once.
#[track_caller]
fn assert_missing(
    gateway: &mut Gateway,
    flows: &[Vec<u8>],
    missing: u64,
    change: impl FnOnce(&mut Tables),
) {
    gateway.change(change);
    let others = flows.len() as u64 - missing;
    // How many entries of the others are written to depends on where the change was.
    let seen = |looked: Looked| Looked { restamped: 0, ..looked };
    assert_eq!(
        seen(send(gateway, flows)),
        Looked { hits: others, stale: missing, ..Looked::default() }
    );
    assert_eq!(
        seen(send(gateway, flows)),
        Looked { hits: flows.len() as u64, ..Looked::default() }
    );
    gateway.assert_nothing_lost();
}

fn bypass(number: usize) -> PolicySpec {
    let net = format!("10.{}.{}.0/24", number / 256, number % 256);
    PolicySpec {
        priority: number as u32,
        ..policy(Direction::Out, "0.0.0.0/0", &net, Action::Bypass)
    }
}

fn to(number: usize, port: u16) -> Vec<u8> {
    udp("192.168.13.5", &format!("10.{}.{}.7", number / 256, number % 256), (port, 53), 20)
}

#[test]
fn one_policy_of_a_thousand() {
    let mut tables = plain_tables();
    let indexes: Vec<_> =
        (0..1000).map(|number| tables.add_policy(bypass(number)).unwrap()).collect();
    // Two flows for each of every third policy.
    let flows: Vec<_> =
        (0..1000).step_by(3).flat_map(|number| [to(number, 1), to(number, 2)]).collect();
    let mut gateway = knowing(tables, &flows);
    let discard = PolicySpec { action: Action::Discard, ..bypass(300) };
    assert_missing(&mut gateway, &flows, 2, |tables| {
        tables.update_policy(indexes[300], discard).unwrap();
    });
    // Nobody's.
    assert_missing(&mut gateway, &flows, 0, |tables| {
        tables.update_policy(indexes[301], bypass(2000)).unwrap();
    });
    assert_missing(&mut gateway, &flows, 2, |tables| {
        _ = tables.remove_policy(indexes[303]).unwrap();
    });
    // One flow of the two.
    assert_missing(&mut gateway, &flows, 1, |tables| {
        let mut narrow = bypass(306);
        narrow.selector.protocol = Some(Protocol::UDP);
        let source = PortRange::new(2, 2).unwrap();
        narrow.selector.upper = UpperSelector::Ports { source, destination: PortRange::ALL };
        tables.add_policy(narrow).unwrap();
    });
    // A policy moved from one net to another: those of both.
    assert_missing(&mut gateway, &flows, 4, |tables| {
        tables.update_policy(indexes[309], PolicySpec { priority: 0, ..bypass(312) }).unwrap_err();
        tables.remove_policy(indexes[312]).unwrap();
        tables.update_policy(indexes[309], bypass(312)).unwrap();
    });
    // Several in one publication.
    assert_missing(&mut gateway, &flows, 2 * 20, |tables| {
        (600..660).step_by(3).for_each(|number| _ = tables.remove_policy(indexes[number]).unwrap());
    });
}

/// Changes that name few addresses concern nobody else, however many they are. Of others, sixty-four
/// are gone through; with more, whoever comes is decided anew, once.
#[test]
fn very_many_changes_at_once_cost_everybody_a_miss() {
    let mut tables = plain_tables();
    let indexes: Vec<_> =
        (0..1000).map(|number| tables.add_policy(bypass(number)).unwrap()).collect();
    let flows: Vec<_> = (0..50).map(|number| to(number, 1)).collect();
    let mut gateway = knowing(tables, &flows);
    let remove = |from: usize, count: usize| {
        let indexes = indexes[from..from + count].to_vec();
        move |tables: &mut Tables| {
            indexes.iter().for_each(|&index| _ = tables.remove_policy(index).unwrap());
        }
    };
    assert_missing(&mut gateway, &flows, 0, remove(100, 64));
    assert_missing(&mut gateway, &flows, 0, remove(200, 65));
    let wide = |first: u32, count: u32| {
        move |tables: &mut Tables| {
            for number in first..first + count {
                let net = format!("11.{number}.0.0/16");
                let spec = policy(Direction::Out, "0.0.0.0/0", &net, Action::Bypass);
                tables.add_policy(PolicySpec { priority: number, ..spec }).unwrap();
            }
        }
    };
    assert_missing(&mut gateway, &flows, 0, wide(0, 64));
    assert_missing(&mut gateway, &flows, 50, wide(100, 65));
    // One after the other, as long as the flow's packets come in between.
    for number in 300..400 {
        gateway.change(remove(number, 1));
        let looked = send(&mut gateway, &flows[..1]);
        assert_eq!((looked.hits, looked.stale), (1, 0));
    }
}

#[test]
fn another_vrf_is_another_world() {
    let mut tables = plain_tables();
    let red = tables.add_vrf("red").unwrap();
    tables.add_policy(bypass(1)).unwrap();
    let flows: Vec<_> = (0..20).map(|port| to(1, port)).collect();
    let mut gateway = knowing(tables, &flows);
    assert_missing(&mut gateway, &flows, 0, |tables| {
        tables.add_policy(PolicySpec { vrf: red, ..bypass(1) }).unwrap();
        tables.set_route(red, prefix("0.0.0.0/0"), RouteSpec::Blackhole).unwrap();
        tables.set_default_action(red, Direction::Out, tables::DefaultAction::Accept).unwrap();
    });
    assert_missing(&mut gateway, &flows, 0, |tables| {
        tables.remove_route(red, prefix("0.0.0.0/0")).unwrap();
        let index = tables.vrf(red).unwrap().spd.policies(Direction::Out).next().unwrap().index;
        tables.remove_policy(index).unwrap();
        tables.remove_vrf(red).unwrap();
    });
    // What changes the rules for a whole VRF concerns all of it.
    assert_missing(&mut gateway, &flows, 20, |tables| {
        tables
            .add_policy(policy(Direction::Fwd, "1.2.3.4/32", "0.0.0.0/0", Action::Discard))
            .unwrap();
    });
}

const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");

/// Flows through the tunnel, of both families, and as many beside it.
fn tunnelled() -> (Tables, Vec<Vec<u8>>) {
    let mut tables = tunnel_tables(OUTER, false);
    tables
        .add_policy(PolicySpec {
            priority: 9,
            ..policy(Direction::Out, "0.0.0.0/0", "10.0.0.0/8", Action::Bypass)
        })
        .unwrap();
    let inside = |port: u16| {
        [udp("192.168.13.5", "192.168.12.7", (port, 1), 9), udp("fd13::5", "fd12::7", (port, 1), 9)]
    };
    let beside = |port: u16| [to(1, port), to(2, port)];
    (tables, (1..11).flat_map(|port| [inside(port), beside(port)].concat()).collect())
}

const IKE: [u16; 2] = [500, 4500];

/// Whether IKE is asked policies concerns IKE for the gateway alone.
#[test]
fn ike_concerns_ike() {
    let ike = |to, port: u16| udp("192.168.13.5", to, (port, port), 20);
    let (tables, mut flows) = tunnelled();
    flows.extend(IKE.map(|port| ike("192.168.13.1", port)));
    // Somebody else's.
    flows.extend(IKE.map(|port| ike("10.1.0.9", port)));
    let mut gateway = knowing(tables, &flows);
    for ike in [Ike::Policy, Ike::Bypass] {
        assert_missing(&mut gateway, &flows, 2, |tables| {
            tables.set_ike(VrfId::MAIN, ike).unwrap();
        });
        // To set what is set is no change.
        assert_missing(&mut gateway, &flows, 0, |tables| {
            tables.set_ike(VrfId::MAIN, ike).unwrap();
        });
    }
}

#[test]
fn a_rekey_costs_nobody_anything() {
    let (tables, flows) = tunnelled();
    let mut gateway = knowing(tables, &flows);
    assert_missing(&mut gateway, &flows, 0, |tables| {
        add_sa(tables, OUTER.0, OUTER.1, 0x2001, false);
    });
    assert_missing(&mut gateway, &flows, 0, |tables| {
        _ = tables.remove_sa(VrfId::MAIN, ip(OUTER.1), Spi(0x1001)).unwrap();
    });
    gateway.receive(LAN, &flows[0]);
    let (_, outer) = gateway.sent_one(WAN);
    assert_eq!(outer[20..24], 0x2001u32.to_be_bytes());
    // Both at once, and SAs of the way in.
    assert_missing(&mut gateway, &flows, 0, |tables| {
        add_sa(tables, OUTER.0, OUTER.1, 0x3001, false);
        tables.remove_sa(VrfId::MAIN, ip(OUTER.1), Spi(0x2001)).unwrap();
        add_sa(tables, OUTER.1, OUTER.0, 0x3002, false);
        tables.remove_sa(VrfId::MAIN, ip(OUTER.0), Spi(0x1002)).unwrap();
    });
    // An SA that leaves less room for what is inside: how large a packet may be is found when it is
    // sent, and no part of what was decided.
    assert_missing(&mut gateway, &flows, 0, |tables| {
        add_sa(tables, OUTER.0, OUTER.1, 0x4001, true);
    });
    // None at all is another matter, for those that it protects: half of all.
    assert_missing(&mut gateway, &flows, 20, |tables| {
        for spi in [0x3001, 0x4001] {
            tables.remove_sa(VrfId::MAIN, ip(OUTER.1), Spi(spi)).unwrap();
        }
    });
}

#[test]
fn an_sa_of_another_tunnel_costs_nobody_anything() {
    let (mut tables, flows) = tunnelled();
    let red = tables.add_vrf("red").unwrap();
    let mut gateway = knowing(tables, &flows);
    let add = |tables: &mut Tables, vrf, destination: &str, reqid, spi| {
        let identity = SaIdentity {
            vrf,
            inner: vrf,
            if_id: None,
            source: ip(OUTER.0),
            destination: ip(destination),
            reqid,
        };
        let spec = SaSpec { identity, spi: Spi(spi), no_ecn: false, no_pmtu_discovery: false };
        let (outbound, inbound) = (peer_outbound(spi, false), peer_inbound(spi, false));
        tables.add_sa(spec, outbound, inbound).unwrap();
    };
    assert_missing(&mut gateway, &flows, 0, |tables| {
        // To another peer, of another reqid, and of another VRF.
        add(tables, VrfId::MAIN, "192.168.11.77", 1, 0x5001);
        add(tables, VrfId::MAIN, OUTER.1, 2, 0x5002);
        add(tables, red, OUTER.1, 1, 0x5003);
    });
    assert_missing(&mut gateway, &flows, 0, |tables| {
        _ = tables.remove_sa(VrfId::MAIN, ip(OUTER.1), Spi(0x5002)).unwrap();
    });
}

#[test]
fn decrypted_flows_outlive_a_rekey_too() {
    let mut gateway = Gateway::with_caches(tunnel_tables(OUTER, false), [LARGE; 4], 7);
    let inner = udp("192.168.12.7", "192.168.13.5", (1, 2), 9);
    let receive = |gateway: &mut Gateway, peer: &esp::OutboundSa| {
        let before = looked(gateway);
        gateway.receive(WAN, &seal(peer, OUTER.1, OUTER.0, &inner));
        assert_eq!(gateway.sent_one(LAN).1.len(), inner.len());
        let after = looked(gateway);
        (after.hits - before.hits, after.stale + after.new - before.stale - before.new)
    };
    let peers = [0x1002, 0x2002].map(|spi| peer_outbound(spi, false));
    assert_eq!(receive(&mut gateway, &peers[0]), (0, 2), "the ESP flow, and what was inside");
    assert_eq!(receive(&mut gateway, &peers[0]), (2, 0));
    gateway.change(|tables| add_sa(tables, OUTER.1, OUTER.0, 0x2002, false));
    assert_eq!(receive(&mut gateway, &peers[0]), (2, 0));
    assert_eq!(
        receive(&mut gateway, &peers[1]),
        (1, 1),
        "another SPI is another ESP flow, and what is inside the same"
    );
    gateway.change(|tables| _ = tables.remove_sa(VrfId::MAIN, ip(OUTER.0), Spi(0x1002)).unwrap());
    assert_eq!(receive(&mut gateway, &peers[1]), (2, 0));
}

/// Exchanges flows of match-action tables.
fn change_flows(tables: &mut Tables, change: impl FnOnce(&mut Pipeline)) {
    let mut pipeline = tables.pipeline().clone();
    change(&mut pipeline);
    tables.set_pipeline(pipeline, Time(1_000_000_000)).unwrap();
}

/// A flow that has packets routed, or drops them.
fn table_flow(priority: u16, matches: &[(Field, u128)], actions: &[FlowAction]) -> Flow {
    let mut all = Match::ANY;
    for (field, value) in matches.iter().copied() {
        all.set(field, value, field.max());
    }
    let (vrf, table, matches, actions) = (VrfId::MAIN, 0, all, actions.to_vec());
    let (cookie, idle_timeout, hard_timeout) = (0, 0, 0);
    Flow { vrf, table, priority, matches, actions, cookie, idle_timeout, hard_timeout }
}

fn add_flow(pipeline: &mut Pipeline, flow: Flow) {
    pipeline.apply(FlowChange::Add { flow, check_overlap: false }, Owner::User).unwrap();
}

#[test]
fn a_flow_of_tables_concerns_the_packets_that_it_may_match() {
    let udp = [(Field::DlType, 0x800), (Field::NwProto, 17)];
    let from = |port: u128| [&udp[..], &[(Field::UdpSrc, port)]].concat();
    let by = |port: PortId| [&udp[..], &[(Field::InPort, port.0.into())]].concat();
    let to_net = |number: u128| {
        let net = [(Field::DlType, 0x800), (Field::NwDst, 0x0a00_0007 | number << 8)];
        table_flow(9, &net, &[])
    };
    let mut tables = plain_tables();
    change_flows(&mut tables, |all| add_flow(all, table_flow(1, &[], &[FlowAction::Normal])));
    let flows: Vec<_> = (0..20).flat_map(|number| [to(number, 1), to(number, 2)]).collect();
    let mut gateway = knowing(tables, &flows);
    let mut missing = |count, change: &dyn Fn(&mut Pipeline)| {
        assert_missing(&mut gateway, &flows, count, |tables| change_flows(tables, change));
    };
    missing(2, &|all| add_flow(all, to_net(3)));
    missing(20, &|all| add_flow(all, table_flow(5, &from(2), &[FlowAction::Normal])));
    missing(0, &|all| add_flow(all, table_flow(5, &from(3), &[])));
    missing(0, &|all| add_flow(all, table_flow(5, &by(WAN), &[])));
    missing(40, &|all| add_flow(all, table_flow(5, &by(LAN), &[FlowAction::Normal])));
    // More than are told one by one.
    missing(6, &|all| (4..7).for_each(|number| add_flow(all, to_net(number))));
    missing(40, &|all| (50..70).for_each(|number| add_flow(all, to_net(number))));
    // Another port that frames for all stations go to.
    let output = [FlowAction::Output(LAN)];
    missing(40, &|all| add_flow(all, table_flow(5, &by(WAN), &output)));
    // What one flow writes, others may match.
    let word = SetWord::Mod;
    let write = FlowAction::Set { word, field: Field::NwDst, value: 7, mask: 0xffff_ffff };
    missing(40, &|all| add_flow(all, table_flow(8, &from(9), core::slice::from_ref(&write))));
    missing(40, &|all| add_flow(all, to_net(80)));
}

#[test]
fn a_neighbour_that_moves_concerns_no_flow() {
    let (mut tables, flows) = tunnelled();
    tables.set_neighbour(WAN, ip("192.168.11.40"), PEER_MAC).unwrap();
    tables
        .set_route(
            VrfId::MAIN,
            prefix("10.0.2.0/24"),
            RouteSpec::Via { port: WAN, address: ip("192.168.11.40") },
        )
        .unwrap();
    // Now the tunnel and half of the others go by the peer.
    let mut gateway = knowing(tables, &flows);
    let elsewhere = Mac([2, 0xbb, 0, 0, 0, 9]);
    assert_missing(&mut gateway, &flows, 0, |tables| {
        tables.set_neighbour(WAN, ip("192.168.11.40"), elsewhere).unwrap();
    });
    assert_missing(&mut gateway, &flows, 0, |tables| {
        tables.set_neighbour(WAN, ip("192.168.11.1"), elsewhere).unwrap();
    });
    // Unknown for a while: packets wait, and their decisions hold.
    assert_missing(&mut gateway, &flows, 0, |tables| {
        tables.remove_neighbour(WAN, ip("192.168.11.1")).unwrap();
    });
    assert_missing(&mut gateway, &flows, 0, |tables| {
        tables.set_neighbour(WAN, ip("192.168.11.1"), PEER_MAC).unwrap();
    });
    // The same station under another address, on another port, or unknown until now.
    assert_missing(&mut gateway, &flows, 0, |tables| {
        tables.set_neighbour(WAN, ip("fd11::1"), elsewhere).unwrap();
        tables.set_neighbour(LAN, ip("192.168.13.5"), elsewhere).unwrap();
        tables.set_neighbour(WAN, ip("192.168.11.41"), elsewhere).unwrap();
    });
    assert_missing(&mut gateway, &flows, 0, |tables| {
        _ = tables.remove_neighbour(WAN, ip("192.168.11.41")).unwrap();
    });
}

#[test]
fn a_route_concerns_its_destinations_and_the_tunnels_through_it() {
    let (mut tables, flows) = tunnelled();
    // The tunnel's far end is behind a router.
    let far = "172.16.9.9";
    let tables = {
        for index in tables
            .vrf(VrfId::MAIN)
            .unwrap()
            .spd
            .policies(Direction::Out)
            .map(|policy| policy.index)
            .collect::<Vec<_>>()
        {
            let mut spec = tables.policy_of_index(index).unwrap().spec;
            if let Action::Protect(_) = spec.action {
                spec.action = Action::Protect(Template {
                    vrf: None,
                    source: None,
                    destination: ip(far),
                    reqid: 1,
                    spi: None,
                });
                tables.update_policy(index, spec).unwrap();
            }
        }
        add_sa(&mut tables, OUTER.0, far, 0x6001, false);
        tables
    };
    let mut gateway = knowing(tables, &flows);
    let main = VrfId::MAIN;
    let via = RouteSpec::Via { port: WAN, address: ip("192.168.11.1") };
    // To one of the two nets beside the tunnel.
    assert_missing(&mut gateway, &flows, 10, |tables| {
        tables.set_route(main, prefix("10.0.1.0/24"), via.clone()).unwrap();
    });
    assert_missing(&mut gateway, &flows, 10, |tables| {
        tables.set_route(main, prefix("10.0.1.0/24"), RouteSpec::Blackhole).unwrap();
    });
    assert_missing(&mut gateway, &flows, 10, |tables| {
        _ = tables.remove_route(main, prefix("10.0.1.0/24")).unwrap();
    });
    // To nobody, of either family.
    assert_missing(&mut gateway, &flows, 0, |tables| {
        tables.set_route(main, prefix("10.0.3.0/24"), via.clone()).unwrap();
        tables.set_route(main, prefix("fd99::/64"), RouteSpec::Blackhole).unwrap();
        tables.set_route(main, prefix("172.16.8.0/24"), RouteSpec::Blackhole).unwrap();
    });
    // To the tunnel's far end: all that it protects.
    assert_missing(&mut gateway, &flows, 20, |tables| {
        tables.set_route(main, prefix("172.16.9.0/24"), via.clone()).unwrap();
    });
    assert_missing(&mut gateway, &flows, 20, |tables| {
        tables.set_route(main, prefix("172.16.9.9/32"), RouteSpec::Blackhole).unwrap();
    });
    // To what is behind it: whoever sends there, protected or not.
    assert_missing(&mut gateway, &flows, 10, |tables| {
        tables.set_route(main, prefix("192.168.12.0/24"), via.clone()).unwrap();
    });
    assert_missing(&mut gateway, &flows, 40, |tables| {
        tables.set_route(main, prefix("0.0.0.0/0"), via.clone()).unwrap();
        tables
            .set_route(main, prefix("::/0"), RouteSpec::Via { port: WAN, address: ip("fd11::1") })
            .unwrap();
    });
}
