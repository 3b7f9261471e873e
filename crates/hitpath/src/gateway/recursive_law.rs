//! The law of recursive routes: whatever changes beneath them under traffic, a gateway that keeps its
//! decisions does what one does that decides for each packet anew.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::CacheMode;
use packet::Time;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use wire::{Protocol, ipv4, ipv6};

use super::InMemory as World;

/// Prefixes of which each may hold a next hop of the others.
const PREFIXES: [&str; 10] = [
    "default",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "172.16.0.0/12",
    "172.16.0.1/32",
    "198.51.100.0/24",
    "2001:db8:a::/48",
    "2001:db8:b::/48",
    "2001:db8:b::1/128",
    "2001:db8:c::/48",
];

/// Next hops that are reached by another route.
const FAR: [&str; 6] =
    ["10.1.0.1", "172.16.0.1", "198.51.100.1", "2001:db8:a::1", "2001:db8:b::1", "2001:db8:c::1"];

/// Next hops on a link.
const NEAR: [&str; 4] = ["192.0.2.2", "203.0.113.2", "fd01::2", "fd02::2"];

/// Destinations of packets, each in one of the prefixes or in none.
const DESTINATIONS: [&str; 9] = [
    "10.0.0.9",
    "10.1.0.9",
    "172.16.0.9",
    "198.51.100.9",
    "8.8.8.8",
    "2001:db8:a::9",
    "2001:db8:b::9",
    "2001:db8:c::9",
    "2001:db8:d::9",
];

impl World {
    fn with_cache(mode: CacheMode) -> Self {
        let text = r#"
            [[port]]
            kind = "memory"
            name = "lan"
            addresses = ["192.168.13.1/24", "fd13::1/64"]
            [[port]]
            kind = "memory"
            name = "one"
            addresses = ["192.0.2.1/24", "fd01::1/64"]
            [[port]]
            kind = "memory"
            name = "two"
            addresses = ["203.0.113.1/24", "fd02::1/64"]
        "#;
        let mut config = control::config::load("law", text).unwrap();
        for cache in &mut config.gateway.ipsec.caches {
            (cache.mode, cache.buckets) = (mode, 1024);
        }
        config.gateway.buffers = 1024;
        let mut world = Self::new(config);
        for (address, port) in [("192.168.13.5", "lan"), ("fd13::5", "lan")]
            .into_iter()
            .chain(NEAR.into_iter().zip(["one", "two", "one", "two"]))
        {
            let line = format!("neigh add {address} lladdr {} dev {port}", Self::STATION);
            world.run(&line, Time(0)).unwrap_or_else(|why| panic!("{line}: {why}"));
        }
        world
    }
}

/// A change, most of which are done.
fn change(random: &mut StdRng) -> String {
    let mut pick = |all: &[&'static str]| *all.choose(random).unwrap();
    let prefix = pick(&PREFIXES);
    let is_same =
        |address: &&&str| prefix == "default" || prefix.contains(':') == address.contains(':');
    let far: Vec<_> = FAR.iter().filter(is_same).copied().collect();
    let near: Vec<_> = NEAR.iter().filter(is_same).copied().collect();
    let (far, near, other) = (pick(&far), pick(&near), pick(&near));
    let metric = pick(&["", " metric 5", " metric 9"]);
    match random.random_range(0..10) {
        0..4 => format!("route replace {prefix} via {far} recursive{metric}"),
        4..6 => format!("route replace {prefix} via {near}{metric}"),
        6 if near.contains(':') == other.contains(':') => {
            format!("route replace {prefix} nexthop via {near} nexthop via {other}{metric}")
        }
        7 => format!("route replace blackhole {prefix}{metric}"),
        8 => {
            let port = ["one", "two"].choose(random).unwrap();
            let state = ["up", "up", "down"].choose(random).unwrap();
            format!("link set {port} {state}")
        }
        _ => format!("route del {prefix}{metric}"),
    }
}

/// UDP from the host on the LAN.
fn udp(destination: IpAddr, source_port: u16) -> Vec<u8> {
    let mut udp = Vec::new();
    udp.extend(source_port.to_be_bytes());
    udp.extend(53_u16.to_be_bytes());
    udp.extend(20_u16.to_be_bytes());
    // A checksum is optional with IPv4, and with IPv6 none of the gateway's business.
    udp.extend([0; 14]);
    let mut packet = match destination {
        IpAddr::V4(destination) => {
            let header = ipv4::Header {
                total_length: 40,
                protocol: Protocol::UDP,
                source: Ipv4Addr::new(192, 168, 13, 5),
                destination,
                ..ipv4::Header::default()
            };
            header.to_bytes().to_vec()
        }
        IpAddr::V6(destination) => {
            let header = ipv6::Header {
                payload_length: 20,
                next_header: Protocol::UDP,
                source: Ipv6Addr::new(0xfd13, 0, 0, 0, 0, 0, 0, 5),
                destination,
                ..ipv6::Header::default()
            };
            header.to_bytes().to_vec()
        }
    };
    packet.extend(udp);
    packet
}

#[test]
fn recursive_routes_change_under_traffic_and_no_kept_decision_is_out_of_date() {
    let (mut done, mut ways) = (0, BTreeSet::new());
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut worlds = [CacheMode::On, CacheMode::Off].map(World::with_cache);
        let mut history = Vec::new();
        for round in 0..60_u64 {
            let now = Time(round * 10_000_000);
            let line = change(&mut random);
            let results = worlds.each_mut().map(|world| world.run(&line, now).is_ok());
            assert_eq!(results[0], results[1], "{line}");
            done += usize::from(results[0]);
            history.push(line);
            let frames: Vec<_> = DESTINATIONS
                .iter()
                .flat_map(|to| {
                    let to = to.parse().unwrap();
                    (0..3).map(move |flow| udp(to, 5000 + flow))
                })
                .map(|packet| worlds[0].frame(&packet))
                .collect();
            // Twice, so that the second time meets what the first has kept.
            for _ in 0..2 {
                let [kept, decided] = worlds.each_mut().map(|world| world.pass(&frames, now));
                assert_eq!(kept, decided, "seed {seed}: {history:#?}");
                ways.extend(kept.iter().map(|(port, _)| *port));
            }
        }
    }
    // The test would say nothing if all were refused or dropped.
    assert!(done > 1000, "{done} changes");
    assert_eq!(ways, BTreeSet::from([0, 1, 2]));
}
