//! What senders can do to the decision cache, and what they cannot.

mod fixture;

use std::collections::HashMap;

use fixture::*;
use flow::{Associativity, CacheMode, CacheSettings, CacheTable};
use tables::{Action, Direction, Tables};
use wire::{Spi, headers};

const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");

const fn on(buckets: u32, associativity: Associativity) -> [CacheSettings; 4] {
    [CacheSettings { mode: CacheMode::On, buckets, associativity }; 4]
}

/// All IPv4 passes in clear, but to 192.168.12.0/24, which is behind the tunnel.
fn tables() -> Tables {
    let mut tables = tunnel_tables(OUTER, false);
    let mut rest = policy(Direction::Out, "0.0.0.0/0", "0.0.0.0/0", Action::Bypass);
    rest.priority = 9;
    tables.add_policy(rest).unwrap();
    tables
}

/// A packet of flow `flow`, of which it is the `number`th.
fn numbered(to: &str, flow: u16, number: u32) -> Vec<u8> {
    let mut packet = udp("192.168.13.5", to, (flow, 53), 8);
    let end = packet.len();
    packet[end - 4..].copy_from_slice(&number.to_be_bytes());
    packet
}

/// A generator of numbers that is the same everywhere.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Full batches in which packets of some flows are found, those of others not, and those of others
/// just replaced: each flow's packets leave in the order in which they came, in clear and through
/// the tunnel.
#[test]
fn packets_of_a_flow_keep_their_order() {
    let shapes = [
        on(1, Associativity::Direct),
        on(8, Associativity::Direct),
        on(4, Associativity::Four),
        on(16, Associativity::Four),
        on(1024, Associativity::Four),
    ];
    for shape in shapes {
        let mut gateway = Gateway::with_caches(tables(), shape, 7);
        let peer = peer_inbound(0x1001, false);
        let own = gateway.publisher.current().port(LAN).unwrap().spec.mac;
        let mut state = 1;
        let mut sent: HashMap<(bool, u16), u32> = HashMap::new();
        let mut seen: HashMap<(bool, u16), u32> = HashMap::new();
        for round in 0..60 {
            for _ in 0..256 {
                // Few flows often, and many once.
                let flow = match next(&mut state) % 4 {
                    0 => 100 + (next(&mut state) % 20_000) as u16,
                    _ => (next(&mut state) % 12) as u16,
                };
                let tunnel = next(&mut state).is_multiple_of(2);
                let number = sent.entry((tunnel, flow)).or_default();
                *number += 1;
                let to = if tunnel { "192.168.12.7" } else { "8.8.8.8" };
                assert!(gateway.lan.push(&frame(own, HOST_MAC, &numbered(to, flow, *number))));
            }
            // Something that makes every fourth round's entries old.
            if round % 4 == 3 {
                gateway.change(|tables| add_sa(tables, OUTER.1, OUTER.0, 0x9000 + round, false));
            }
            assert_eq!(gateway.poll(), 256);
            for (_, packet) in gateway.sent(WAN) {
                let tunnel = headers::parse(&packet).unwrap().protocol == wire::Protocol::ESP;
                let packet = if tunnel { open(&peer, &packet) } else { packet };
                let flow = u16::from_be_bytes([packet[20], packet[21]]);
                let number = u32::from_be_bytes(packet[packet.len() - 4..].try_into().unwrap());
                let last = seen.entry((tunnel, flow)).or_default();
                *last += 1;
                assert_eq!(number, *last, "{:?} tunnel {tunnel} flow {flow}", shape[0]);
            }
        }
        assert_eq!(seen, sent, "{:?}", shape[0]);
        let cache = gateway.cache(CacheTable::V4Outbound);
        assert!(cache.missed_new.read() + cache.missed_evicted.read() > 1000);
        assert!(shape[0].buckets < 1024 || cache.hits.read() > 5000);
        gateway.assert_nothing_lost();
    }
}

fn receive(gateway: &mut Gateway, packet: &[u8]) {
    gateway.receive(LAN, packet);
    gateway.sent(WAN);
}

fn hits(gateway: &Gateway) -> u64 {
    gateway.cache(CacheTable::V4Outbound).hits.read()
}

/// Flows found, by trying, to share the bucket of one another in one worker's cache are spread over
/// another's.
#[test]
fn what_is_aimed_at_one_secret_misses_another() {
    let shape = on(64, Associativity::Direct);
    let mut spied = Gateway::with_caches(tables(), shape, 7);
    let flow =
        |number: u32| udp("192.168.13.5", "8.8.8.8", (number as u16, (number >> 16) as u16), 8);
    let target = flow(0);
    let mut aimed = Vec::new();
    for number in 1..4000 {
        receive(&mut spied, &target);
        receive(&mut spied, &flow(number));
        let before = hits(&spied);
        receive(&mut spied, &target);
        if hits(&spied) == before {
            aimed.push(flow(number));
        }
    }
    assert!((30..130).contains(&aimed.len()), "{}", aimed.len());
    let mut occupied = Vec::new();
    for seed in [7, 8, 9] {
        let mut gateway = Gateway::with_caches(tables(), shape, seed);
        aimed.iter().for_each(|flow| receive(&mut gateway, flow));
        occupied.push(gateway.cache(CacheTable::V4Outbound).occupied.read());
    }
    assert_eq!(occupied[0], 1, "the one that was spied on");
    assert!(occupied[1] > 15 && occupied[2] > 15, "{occupied:?}");
}

/// Flows in use, and fifty packets of flows that come once for each of theirs.
#[test]
fn a_flood_does_not_push_out_who_stays() {
    let mut gateway = Gateway::with_caches(tables(), on(1024, Associativity::Four), 7);
    let own = gateway.publisher.current().port(LAN).unwrap().spec.mac;
    let elephants: Vec<_> = (0..300)
        .map(|port| frame(own, HOST_MAC, &udp("192.168.13.5", "8.8.8.8", (port, 1), 8)))
        .collect();
    // Sends the elephants once and answers what share of them was found; `between` packets come
    // before each.
    let mut state = 5;
    let round = |gateway: &mut Gateway, between: usize, state: &mut u64| {
        let mut found = 0;
        for elephant in &elephants {
            for _ in 0..between {
                let (ports, host) = (next(state), next(state) % 60_000);
                let mouse = udp(
                    "192.168.13.5",
                    &format!("9.9.{}.{}", host / 250, host % 250 + 1),
                    (ports as u16, (ports >> 16) as u16),
                    8,
                );
                assert!(gateway.lan.push(&frame(own, HOST_MAC, &mouse)));
            }
            gateway.poll();
            let before = hits(gateway);
            assert!(gateway.lan.push(elephant));
            gateway.poll();
            found += hits(gateway) - before;
            gateway.sent(WAN);
        }
        found * 100 / elephants.len() as u64
    };
    for _ in 0..4 {
        round(&mut gateway, 0, &mut state);
    }
    assert!(round(&mut gateway, 0, &mut state) >= 95);
    let during: Vec<_> = (0..8).map(|_| round(&mut gateway, 50, &mut state)).collect();
    assert!(during.iter().sum::<u64>() / 8 >= 80, "{during:?}");
    for _ in 0..3 {
        round(&mut gateway, 0, &mut state);
    }
    assert!(round(&mut gateway, 0, &mut state) >= 95, "and after it");
    let cache = gateway.cache(CacheTable::V4Outbound);
    assert!(cache.refused.read() > 50_000, "{}", cache.refused.read());
    assert_eq!(cache.occupied.read(), 1024);
    gateway.assert_nothing_lost();
}

/// ESP with made-up SPIs is forgotten as it came: what it leaves is a decision, of which there are
/// as many as places.
#[test]
fn made_up_spis_fill_no_more_than_the_table() {
    let mut gateway = Gateway::with_caches(tables(), on(64, Associativity::Four), 7);
    for spi in 1..3000u32 {
        let upper = [&Spi(spi << 4).0.to_be_bytes()[..], &[0; 40]].concat();
        let packet = packet(ip(OUTER.1), ip(OUTER.0), wire::Protocol::ESP, 64, &upper);
        gateway.receive(WAN, &packet);
    }
    let cache = gateway.cache(CacheTable::V4Inbound);
    assert_eq!((cache.occupied.read(), cache.live.read()), (64, 64));
    assert_eq!(gateway.dropped(packet::DropReason::EspNoSa), 2999);
    gateway.assert_nothing_lost();
}
