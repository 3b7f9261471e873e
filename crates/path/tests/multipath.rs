//! Routes with several next hops: how flows are shared out, which of them move, what a change
//! costs, and what is counted for each next hop.

mod fixture;

use std::collections::BTreeMap;

use fixture::*;
use flow::{Associativity, CacheMode, CacheSettings};
use io::memory::MemoryOptions;
use packet::DropReason;
use tables::{MemberSpec, NextHopId, RouteKind, RouteSpec, Tables};
use wire::{Mac, PortId, Upper, VrfId, headers};

const FLOWS: u16 = 400;
const CACHE: CacheSettings =
    CacheSettings { mode: CacheMode::On, buckets: 1 << 12, associativity: Associativity::Four };
const OTHER_MAC: Mac = Mac([2, 0xbb, 0, 0, 0, 9]);
const BACK_MAC: Mac = Mac([2, 0xbb, 0, 0, 0, 8]);
/// By family: from where, to where, by which route, and its next hops: two on the WAN, one on the
/// LAN.
const FAMILIES: [(&str, &str, &str, [&str; 3]); 2] = [
    ("192.168.13.5", "8.8.8.8", "8.0.0.0/8", ["192.168.11.1", "192.168.11.9", "192.168.13.8"]),
    ("fd13::5", "2001:db8::8", "2001:db8::/32", ["fd11::1", "fd11::9", "fd13::8"]),
];
const WEIGHTS: [u16; 3] = [1, 2, 1];
const MACS: [Mac; 3] = [PEER_MAC, OTHER_MAC, BACK_MAC];

fn spec(next_hops: &[&str]) -> RouteSpec {
    let member = |(number, address): (usize, &&str)| MemberSpec {
        port: if number < 2 { WAN } else { LAN },
        address: Some(ip(address)),
        onlink: false,
        weight: WEIGHTS[number],
    };
    RouteSpec::Multipath(next_hops.iter().enumerate().map(member).collect())
}

fn multipath(mut tables: Tables, to: &str, next_hops: &[&str; 3]) -> Tables {
    for ((number, address), mac) in next_hops.iter().enumerate().zip(MACS) {
        let port = if number < 2 { WAN } else { LAN };
        tables.set_neighbour(port, ip(address), mac).unwrap();
    }
    tables.set_route(VrfId::MAIN, prefix(to), spec(next_hops)).unwrap();
    tables
}

fn ids(tables: &Tables, to: &str) -> Vec<NextHopId> {
    let route = tables.vrf(VrfId::MAIN).unwrap().route_of(prefix(to)).unwrap();
    let RouteKind::Multipath { group } = route.kind else { panic!("{route:?}") };
    tables.group(group).unwrap().members().iter().map(|member| member.next_hop).collect()
}

struct Loaded {
    gateway: Gateway,
    frames: Vec<Vec<u8>>,
}

impl Loaded {
    fn new(tables: Tables, from: &str, to: &str) -> Self {
        let own = MemoryOptions::ethernet("", LAN).mac;
        let of = |number| frame(own, HOST_MAC, &udp(from, to, (number, 53), 100));
        let frames = (0..FLOWS).map(of).collect();
        Self { gateway: Gateway::with_caches(tables, [CACHE; 4], 7), frames }
    }

    /// Each flow sends a packet. Returns to whom it went, by source port.
    fn send(&mut self) -> BTreeMap<u16, Mac> {
        let mut all = BTreeMap::new();
        for part in self.frames.chunks(packet::BATCH / 2) {
            part.iter().for_each(|frame| assert!(self.gateway.lan.push(frame)));
            self.gateway.poll();
            for (mac, sent) in [WAN, LAN].into_iter().flat_map(|port| self.gateway.sent(port)) {
                let headers = headers::parse(&sent).unwrap();
                let Upper::Ports { source, .. } = headers.upper else { panic!("{headers:?}") };
                assert_eq!(all.insert(source, mac), None);
            }
        }
        all
    }

    /// The same, and how many of them were decided anew.
    fn send_and_count(&mut self) -> (BTreeMap<u16, Mac>, u64) {
        let decided = || self.gateway.worker.statistics().decided.read();
        let before = decided();
        let all = self.send();
        (all, self.gateway.worker.statistics().decided.read() - before)
    }

    fn set_up(&mut self, port: PortId, up: bool) {
        self.gateway.change(|tables| {
            let mut spec = tables.port(port).unwrap().spec.clone();
            spec.up = up;
            tables.update_port(port, spec).unwrap();
        });
    }
}

fn of(all: &BTreeMap<u16, Mac>, mac: Mac) -> u64 {
    all.values().filter(|to| **to == mac).count() as u64
}

#[test]
fn only_the_flows_of_a_next_hop_that_goes_move_and_are_decided() {
    for (from, to, route, next_hops) in FAMILIES {
        let mut loaded = Loaded::new(multipath(plain_tables(), route, &next_hops), from, to);
        let (first, decided) = loaded.send_and_count();
        assert_eq!((first.len(), decided), (FLOWS.into(), FLOWS.into()));
        // Quarters, halves, quarters; the hash is fixed, and 40 is over four standard deviations.
        for (mac, weight) in MACS.into_iter().zip(WEIGHTS) {
            assert!(of(&first, mac).abs_diff(u64::from(FLOWS * weight / 4)) < 40, "{first:?}");
        }
        assert_eq!(loaded.send_and_count(), (first.clone(), 0));

        // Out of the route. The flows are decided anew, and those of the others stay.
        let without = spec(&next_hops[..2]);
        loaded.gateway.change(|t| t.set_route(VrfId::MAIN, prefix(route), without).unwrap());
        let (then, decided) = loaded.send_and_count();
        assert_eq!((decided, of(&then, BACK_MAC)), (FLOWS.into(), 0));
        for (flow, mac) in &first {
            assert!(*mac == BACK_MAC || then[flow] == *mac, "{flow}");
        }
        loaded
            .gateway
            .change(|t| t.set_route(VrfId::MAIN, prefix(route), spec(&next_hops)).unwrap());
        assert_eq!(loaded.send_and_count(), (first.clone(), FLOWS.into()));

        // The flows by the WAN move with it, and they alone are decided; then they come back.
        loaded.set_up(WAN, false);
        let (then, decided) = loaded.send_and_count();
        assert_eq!((then.len(), of(&then, BACK_MAC)), (FLOWS.into(), FLOWS.into()));
        assert_eq!(decided, u64::from(FLOWS) - of(&first, BACK_MAC));
        assert_eq!(loaded.send_and_count().1, 0);
        loaded.set_up(WAN, true);
        assert_eq!(loaded.send_and_count(), (first, FLOWS.into()));
        loaded.gateway.assert_nothing_lost();
    }
}

#[test]
fn a_neighbour_that_is_not_known_makes_no_flow_move() {
    let (from, to, route, next_hops) = FAMILIES[0];
    let mut loaded = Loaded::new(multipath(plain_tables(), route, &next_hops), from, to);
    let first = loaded.send();
    let moved = ip(next_hops[1]);
    loaded.gateway.change(|t| t.set_neighbour(WAN, moved, numbered(1)).unwrap());
    let (then, decided) = loaded.send_and_count();
    assert_eq!((of(&then, numbered(1)), decided), (of(&first, OTHER_MAC), 0));
}

fn numbered(number: u8) -> Mac {
    Mac([2, 0xcc, 0, 0, 0, number])
}

/// By the port alone, flows go to their destination itself, whose neighbour may come and go.
#[test]
fn flows_by_a_port_alone_go_to_their_destination() {
    for (from, to, route, next_hops) in FAMILIES {
        let mut tables = plain_tables();
        tables.set_neighbour(WAN, ip(next_hops[0]), PEER_MAC).unwrap();
        tables.set_neighbour(LAN, ip(to), BACK_MAC).unwrap();
        // On the link of the WAN by its word alone.
        let far = ip(next_hops[2]);
        let members =
            [(WAN, Some(ip(next_hops[0])), false), (LAN, None, false), (WAN, Some(far), true)];
        let members =
            members.map(|(port, address, onlink)| MemberSpec { port, address, onlink, weight: 1 });
        tables.set_neighbour(WAN, far, OTHER_MAC).unwrap();
        tables.set_route(VrfId::MAIN, prefix(route), RouteSpec::Multipath(members.into())).unwrap();
        let mut loaded = Loaded::new(tables, from, to);
        let (first, decided) = loaded.send_and_count();
        assert_eq!((first.len(), decided), (FLOWS.into(), FLOWS.into()));
        let third = u64::from(FLOWS) / 3;
        MACS.iter().for_each(|mac| assert!(of(&first, *mac).abs_diff(third) < 40, "{first:?}"));
        assert_eq!(loaded.send_and_count(), (first.clone(), 0));

        // The flows by the WAN move with it, and come back.
        loaded.set_up(WAN, false);
        let (then, decided) = loaded.send_and_count();
        assert_eq!(
            (of(&then, BACK_MAC), decided),
            (FLOWS.into(), u64::from(FLOWS) - of(&first, BACK_MAC))
        );
        loaded.set_up(WAN, true);
        assert_eq!(loaded.send(), first);

        // The destination moves: one object changes, and no decision.
        loaded.gateway.change(|t| t.set_neighbour(LAN, ip(to), numbered(7)).unwrap());
        let (then, decided) = loaded.send_and_count();
        assert_eq!((of(&then, numbered(7)), decided), (of(&first, BACK_MAC), 0));

        // The port goes, and its routes with it.
        loaded.gateway.change(|t| t.remove_port(WAN).unwrap());
        let tables = loaded.gateway.publisher.current();
        assert!(tables.vrf(VrfId::MAIN).unwrap().route_of(prefix(route)).is_none());
    }
}

/// The flows of a port without a next hop's address are decided anew when it goes down.
#[test]
fn a_port_alone_that_goes_down_moves_its_flows() {
    for (from, to, route, next_hops) in FAMILIES {
        let mut tables = plain_tables();
        tables.set_neighbour(LAN, ip(next_hops[2]), BACK_MAC).unwrap();
        tables.set_neighbour(WAN, ip(to), PEER_MAC).unwrap();
        let members = [(LAN, Some(ip(next_hops[2]))), (WAN, None)];
        let members =
            members.map(|(port, address)| MemberSpec { port, address, onlink: false, weight: 1 });
        tables.set_route(VrfId::MAIN, prefix(route), RouteSpec::Multipath(members.into())).unwrap();
        let mut loaded = Loaded::new(tables, from, to);
        let first = loaded.send();
        let moved = of(&first, PEER_MAC);
        assert!(moved > 0 && of(&first, BACK_MAC) > 0);
        loaded.set_up(WAN, false);
        let (then, decided) = loaded.send_and_count();
        assert_eq!((of(&then, BACK_MAC), decided), (FLOWS.into(), moved));
        loaded.set_up(WAN, true);
        assert_eq!(loaded.send_and_count(), (first, FLOWS.into()));
        loaded.gateway.assert_nothing_lost();
    }
}

#[test]
fn a_tunnel_takes_one_path() {
    let from = FAMILIES[0].0;
    let mut tables = tunnel_tables(("192.168.11.2", "192.168.11.1"), false);
    for (number, mac) in [(1, PEER_MAC), (9, OTHER_MAC)] {
        tables.set_neighbour(WAN, ip(&format!("192.168.11.{number}")), mac).unwrap();
    }
    let all = ["192.168.11.1", "192.168.11.9"];
    // To the peer itself, which is on the link otherwise.
    tables.set_route(VrfId::MAIN, prefix("192.168.11.1/32"), spec(&all)).unwrap();
    let own = MemoryOptions::ethernet("", LAN).mac;
    let mut gateway = Gateway::new(tables);
    for port in 0..64 {
        assert!(gateway.lan.push(&frame(
            own,
            HOST_MAC,
            &udp(from, "192.168.12.7", (port, 53), 100)
        )));
    }
    gateway.poll();
    let mut macs: Vec<_> = gateway.sent(WAN).into_iter().map(|(mac, _)| mac).collect();
    assert_eq!(macs.len(), 64);
    macs.dedup();
    assert_eq!(macs.len(), 1, "{macs:?}");
    let counted: Vec<_> = {
        let tables = gateway.publisher.current();
        let ids = ids(&tables, "192.168.11.1/32");
        ids.iter().map(|id| tables.next_hop_counters(*id).unwrap().read().0).collect()
    };
    assert!(counted == [64, 0] || counted == [0, 64], "{counted:?}");
}

#[test]
fn what_was_sent_is_counted_for_its_next_hop_alone() {
    let (from, to, route, next_hops) = FAMILIES[0];
    let mut loaded = Loaded::new(multipath(plain_tables(), route, &next_hops), from, to);
    let read = |loaded: &Loaded| -> Vec<(u64, u64)> {
        let tables = loaded.gateway.publisher.current();
        let ids = ids(&tables, route);
        ids.iter().map(|id| tables.next_hop_counters(*id).unwrap().read()).collect()
    };
    let bytes = (loaded.frames[0].len() - 14) as u64;
    let sent = loaded.send();
    loaded.send();
    let expected: Vec<_> =
        MACS.iter().map(|mac| 2 * of(&sent, *mac)).map(|n| (n, n * bytes)).collect();
    assert_eq!(read(&loaded), expected);

    // What waits is counted when it leaves.
    let waiting = ip(next_hops[2]);
    loaded.gateway.change(|t| _ = t.remove_neighbour(LAN, waiting).unwrap());
    let own = loaded.frames.iter().zip(0u16..).find(|(_, flow)| sent[flow] == BACK_MAC);
    assert!(loaded.gateway.lan.push(own.unwrap().0));
    loaded.gateway.poll();
    assert_eq!(read(&loaded), expected);
    loaded.gateway.change(|t| t.set_neighbour(LAN, waiting, BACK_MAC).unwrap());
    loaded.gateway.poll();
    let (packets, all) = expected[2];
    assert_eq!(read(&loaded)[2], (packets + 1, all + bytes));

    // What is dropped is not.
    loaded.set_up(WAN, false);
    let before = read(&loaded);
    let lan = MemoryOptions::ethernet("", LAN).mac;
    let default = frame(lan, HOST_MAC, &udp(from, "9.9.9.9", (1, 53), 100));
    assert!(loaded.gateway.lan.push(&default));
    loaded.gateway.poll();
    assert_eq!(loaded.gateway.dropped(DropReason::PortDown), 1);
    assert_eq!(read(&loaded), before);

    // One that comes in the place of another begins at zero.
    let old = ids(&loaded.gateway.publisher.current(), route);
    loaded.gateway.change(|t| {
        t.remove_route(VrfId::MAIN, prefix(route)).unwrap();
        t.remove_neighbour(LAN, waiting).unwrap();
        let address = ip("192.168.13.77");
        let next_hop = RouteSpec::Via { port: LAN, address };
        t.set_route(VrfId::MAIN, prefix("9.0.0.0/8"), next_hop).unwrap();
        let id = t.on_link_next_hop(LAN, address).unwrap();
        assert_eq!(id, old[2], "the id is used again");
        assert_eq!(t.next_hop_counters(id).unwrap().read(), (0, 0));
    });
}
