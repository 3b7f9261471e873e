//! A packet is handled alike whether it comes alone or among others, and packets of one flow leave
//! in the order in which they came.

mod fixture;

use std::collections::BTreeMap;
use std::time::Duration;

use fixture::*;
use flow::CacheSettings;
use io::memory::MemoryOptions;
use packet::{BATCH, DropReason};
use proptest::prelude::*;
use tables::{Action, Direction};
use wire::ethernet::{self, EtherType};
use wire::{Mac, PortId, Protocol, fragment, headers};

const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");

/// The gateway of [`tunnel_tables`], which lets some clear packets through as well.
fn tables() -> tables::Tables {
    let mut tables = tunnel_tables(OUTER, false);
    for (from, to) in [
        ("192.168.13.0/24", "8.8.0.0/16"),
        ("192.168.13.0/24", "192.168.13.0/24"),
        ("fd13::/64", "2001:db8::/32"),
        ("fd13::/64", "fd13::/64"),
    ] {
        for direction in [Direction::Out, Direction::In] {
            tables.add_policy(policy(direction, from, to, Action::Bypass)).unwrap();
        }
    }
    tables
}

/// What is sent: packets of the LAN, and of the peer, sealed or not.
#[derive(Clone, Debug)]
struct Sending {
    port: PortId,
    is_sealed: bool,
    packet: Vec<u8>,
    link: Link,
}

#[derive(Clone, Debug)]
struct Link {
    destination: Mac,
    ether_type: Option<u16>,
    tag: bool,
    padding: usize,
    cut: Option<prop::sample::Index>,
}

fn link(port: PortId) -> impl Strategy<Value = Link> {
    let own = MemoryOptions::ethernet("", port).mac;
    let destination = prop_oneof![
        12 => Just(own),
        1 => Just(Mac::BROADCAST),
        1 => Just(Mac([0x01, 0, 0x5e, 0, 0, 5])),
        1 => Just(Mac([0x33, 0x33, 0, 0, 0, 1])),
        1 => Just(Mac([2, 9, 9, 9, 9, 9])),
    ];
    let ether_type =
        prop::option::weighted(0.1, prop::sample::select(vec![0x0800, 0x86dd, 0x88cc]));
    let cut = prop::option::weighted(0.07, any::<prop::sample::Index>());
    let padding = prop_oneof![3 => Just(0), 1 => 1..60usize];
    (destination, ether_type, prop::bool::weighted(0.05), padding, cut).prop_map(
        |(destination, ether_type, tag, padding, cut)| Link {
            destination,
            ether_type,
            tag,
            padding,
            cut,
        },
    )
}

/// Nearly common packets. The last octet of a payload's pattern is the same for all, as it does not
/// matter.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let pairs = prop::sample::select(vec![
        ("192.168.13.5", "8.8.8.8"),
        ("192.168.13.5", "8.8.4.4"),
        ("192.168.13.5", "192.168.12.7"),
        ("192.168.13.5", "192.168.13.1"),
        ("192.168.13.5", "224.0.0.5"),
        ("127.0.0.1", "8.8.8.8"),
        ("0.0.0.0", "8.8.8.8"),
        ("fd13::5", "2001:db8::8"),
        ("fd13::5", "fd12::7"),
        ("fd13::5", "fd13::1"),
        ("fd13::5", "ff02::1"),
        ("::1", "2001:db8::8"),
        ("fe80::5", "fd13::1"),
    ]);
    let what = (0..8u8, 0..4u16, 0..1400usize);
    let changes = prop_oneof![
        2 => Just(Vec::new()),
        1 => prop::collection::vec((0..48usize, any::<u8>()), 1..3),
    ];
    let piece = prop::option::weighted(0.15, (100..800u16, any::<prop::sample::Index>()));
    (pairs, what, changes, any::<bool>(), piece).prop_map(
        |((from, to), (what, port, size), changes, is_summed, piece)| {
            let mut packet = match what {
                0 => echo(from, to, size.min(1000)),
                1 => options(&udp(from, to, (port, 53), size)),
                2 => packet(ip(from), ip(to), Protocol(47), 64, &[7; 30]),
                3 => packet(ip(from), ip(to), Protocol::ESP, 64, &[0, 0, 0x10, 2, 0, 0, 0, 9, 1]),
                4 => packet(ip(from), ip(to), Protocol::TCP, 64, &vec![port as u8; 20 + size]),
                _ => udp(from, to, (port, 53), size),
            };
            for (at, value) in changes {
                if let Some(byte) = packet.get_mut(at) {
                    *byte = value;
                }
            }
            if packet.first() == Some(&0x45) && is_summed {
                wire::ipv4::fill_checksum(&mut packet);
            }
            if let Some((mtu, index)) = piece {
                packet = one_fragment(&packet, mtu, index).unwrap_or(packet);
            }
            packet
        },
    )
}

/// The packet with IPv4 options that say nothing, or an empty extension header.
fn options(packet: &[u8]) -> Vec<u8> {
    let mut out = packet.to_vec();
    match packet[0] >> 4 {
        4 => {
            out.splice(20..20, [1, 1, 1, 0]);
            out[0] = 0x46;
            let length = out.len() as u16;
            wire::ipv4::set_total_length(&mut out, length);
            wire::ipv4::fill_checksum(&mut out);
        }
        _ => {
            out.splice(40..40, [packet[6], 0, 1, 4, 0, 0, 0, 0]);
            out[6] = 60;
            let length = out.len() as u16 - 40;
            wire::ipv6::set_payload_length(&mut out, length);
        }
    }
    out
}

fn one_fragment(packet: &[u8], mtu: u16, index: prop::sample::Index) -> Option<Vec<u8>> {
    let is_v6 = packet.first()? >> 4 == 6;
    let plan = if is_v6 { fragment::plan_v6(packet, mtu) } else { fragment::plan(packet, mtu) };
    let pieces: Vec<_> = plan.ok()?.collect();
    let piece = pieces.get(index.index(pieces.len()))?;
    let mut out = vec![0; piece.total_length()];
    match is_v6 {
        true => fragment::write_v6(packet, piece, 3, &mut out)?,
        false => fragment::write(packet, piece, &mut out)?,
    };
    Some(out)
}

fn sending() -> impl Strategy<Value = Sending> {
    let port = prop_oneof![3 => Just(LAN), 1 => Just(WAN)];
    (port, any::<bool>(), packets()).prop_flat_map(|(port, is_sealed, packet)| {
        link(port).prop_map(move |link| Sending { port, is_sealed, packet: packet.clone(), link })
    })
}

/// The frames as they come to each gateway, sealed by a peer of its own.
fn frames(sendings: &[Sending]) -> Vec<(PortId, Vec<u8>)> {
    let peer = peer_outbound(0x1002, false);
    sendings
        .iter()
        .map(|sending| {
            let Sending { port, is_sealed, packet, link } = sending;
            let packet = match (*port == WAN && *is_sealed, packet.first()) {
                (true, Some(_)) => seal(&peer, OUTER.1, OUTER.0, &turned(packet)),
                _ => packet.clone(),
            };
            let from = if *port == LAN { HOST_MAC } else { PEER_MAC };
            let mut bytes = frame(link.destination, from, &packet);
            if let Some(ether_type) = link.ether_type {
                bytes[12..14].copy_from_slice(&ether_type.to_be_bytes());
            }
            if link.tag {
                bytes.splice(12..12, [0x81, 0, 0, 5]);
            }
            bytes.resize(bytes.len() + link.padding, 0xee);
            if let Some(cut) = link.cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            (*port, bytes)
        })
        .collect()
}

/// The packet the other way round, as the host behind the peer would answer it.
fn turned(packet: &[u8]) -> Vec<u8> {
    let mut out = packet.to_vec();
    let (at, length) = if packet[0] >> 4 == 6 { (8, 16) } else { (12, 4) };
    if packet.len() >= at + 2 * length {
        out[at..at + 2 * length].rotate_left(length);
    }
    out
}

/// A frame that left, without what depends on the order among flows: of ESP the inner packet and the
/// outer header but for its identification.
fn plain(peer: &esp::InboundSa, frame: &[u8]) -> Vec<u8> {
    let is_esp = frame.len() > 34
        && frame[12..14] == [8, 0]
        && frame[23] == 50
        && frame[30..34] == [192, 168, 11, 1];
    if !is_esp {
        return frame.to_vec();
    }
    let mut plain = frame[..34].to_vec();
    plain[18..20].fill(0);
    plain[24..26].fill(0);
    plain.extend(open(peer, &frame[14..]));
    plain
}

/// What a gateway did: the frames by port, its drops, its counters and those of policies and SAs.
#[derive(Debug, PartialEq)]
struct Done {
    frames: Vec<(PortId, Vec<u8>)>,
    drops: Vec<(&'static str, u64)>,
    counters: BTreeMap<&'static str, u64>,
    policies: Vec<(u64, u64)>,
    held: usize,
}

fn run(frames: &[(PortId, Vec<u8>)], at_once: usize, caches: CacheSettings) -> Done {
    let mut gateway = Gateway::with_caches(tables(), [caches; 4], 7);
    let peer = peer_inbound(0x1001, false);
    let mut out = Vec::new();
    for batch in frames.chunks(BATCH / 2) {
        // Ports are read one after the other, so that fragments by two of them have no other order.
        let mut batch = batch.to_vec();
        batch.sort_by_key(|(port, _)| *port);
        for part in batch.chunks(at_once) {
            for (port, bytes) in part {
                let handle = if *port == LAN { &mut gateway.lan } else { &mut gateway.wan };
                assert!(handle.push(bytes));
            }
            gateway.poll();
            for (port, handle) in [(LAN, &mut gateway.lan), (WAN, &mut gateway.wan)] {
                let sent = std::iter::from_fn(|| handle.pop());
                out.extend(sent.map(|frame| (port, plain(&peer, &frame))));
            }
        }
        gateway.wait(Duration::from_secs(1));
    }
    gateway.assert_nothing_lost();
    out.sort();
    let statistics = gateway.worker.statistics();
    let of_rounds = ["rounds", "idle_rounds", "batches", "decided"];
    let tables = gateway.publisher.current();
    let spd = &tables.vrf(wire::VrfId::MAIN).unwrap().spd;
    Done {
        frames: out,
        drops: gateway.drops(),
        counters: statistics
            .entries()
            .filter(|(name, ..)| !of_rounds.contains(name))
            .map(|(name, _, value)| (name, value))
            .collect(),
        policies: [Direction::Out, Direction::In, Direction::Fwd]
            .into_iter()
            .flat_map(|direction| spd.policies(direction).map(|p| p.counters.read()))
            .collect(),
        held: gateway.worker.held(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Frames that the fast parser knows, and such as it nearly knows: alone, some and many at
    /// once.
    #[test]
    fn alone_and_among_others(sendings in prop::collection::vec(sending(), 1..200), some in 2..40usize) {
        let frames = frames(&sendings);
        let alone = run(&frames, 1, CacheSettings::default());
        prop_assume!(alone.counters["icmp_errors_limited"] == 0);
        for (at_once, caches) in
            [(BATCH, CacheSettings::default()), (some, CacheSettings::OFF)]
        {
            let together = run(&frames, at_once, caches);
            prop_assert_eq!(&together, &alone);
        }
    }
}

/// How a packet of a flow is handled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Handling {
    Clear,
    /// In clear, by another policy.
    OtherPolicy,
    /// In clear, by another next hop.
    OtherNextHop,
    /// The hop limit ends.
    Expired,
    /// In clear, by the slow parser and apply's single packets.
    Options,
    Sealed,
    /// It is dropped by its policy.
    Discarded,
    /// It is dropped while it is parsed, and leaves a gap in the batch.
    Malformed,
    /// Larger than the port's MTU.
    Cut,
}

fn handling() -> impl Strategy<Value = Handling> {
    use Handling::*;
    prop::sample::select(vec![
        Clear,
        Clear,
        Clear,
        Clear,
        OtherPolicy,
        OtherNextHop,
        Expired,
        Options,
        Sealed,
        Discarded,
        Malformed,
        Cut,
    ])
}

/// A packet that carries its number behind the upper-layer header.
fn numbered(handling: Handling, is_v6: bool, number: u32) -> Vec<u8> {
    use Handling::*;
    let from = if is_v6 { "fd13::5" } else { "192.168.13.5" };
    let to = match (handling, is_v6) {
        (OtherPolicy, false) => "8.8.4.4",
        (OtherPolicy, true) => "2001:db8:4::4",
        (OtherNextHop, false) => "192.168.13.6",
        (OtherNextHop, true) => "fd13::6",
        (Sealed, false) => "192.168.12.7",
        (Sealed, true) => "fd12::7",
        (Discarded, false) => "9.9.9.9",
        (Discarded, true) => "2001:db9::9",
        (_, false) => "8.8.8.8",
        (_, true) => "2001:db8::8",
    };
    let size = if handling == Cut { 1490 } else { 12 };
    let mut upper = [&[0, 7, 0, 53, 0, 0, 0, 0][..], &vec![0; size]].concat();
    let length = upper.len() as u16;
    upper[4..6].copy_from_slice(&length.to_be_bytes());
    upper[8..12].copy_from_slice(&number.to_be_bytes());
    let hop_limit = if handling == Expired { 1 } else { 64 };
    let whole = packet(ip(from), ip(to), Protocol::UDP, hop_limit, &upper);
    match handling {
        Options => options(&whole),
        Malformed => whole[..19].to_vec(),
        _ => whole,
    }
}

/// The number of a packet that [`numbered`] made, if it is a whole one or a first fragment.
fn number(packet: &[u8]) -> Option<u32> {
    let parsed = headers::parse(packet).ok()?;
    let is_numbered = parsed.protocol == Protocol::UDP && parsed.fragment.offset == 0;
    let bytes = parsed.upper_bytes(packet);
    is_numbered.then(|| u32::from_be_bytes(bytes[8..12].try_into().unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Runs of common packets with all kinds of others in between: each packet's policies, next
    /// hop, SA and order are its own, so that nothing known of one packet is applied to another.
    #[test]
    fn mixed_batches_keep_every_packet_and_its_record_together(
        runs in prop::collection::vec((handling(), any::<bool>(), 1..20usize), 1..60),
    ) {
        let mut tables = tables();
        for address in ["192.168.13.6", "fd13::6"] {
            tables.set_neighbour(LAN, ip(address), Mac([2, 0xaa, 0, 0, 0, 6])).unwrap();
        }
        for (from, to) in [("192.168.13.0/24", "8.8.4.4/32"), ("fd13::/64", "2001:db8:4::/48")] {
            let spec = policy(Direction::Out, from, to, Action::Bypass);
            let spec = tables::PolicySpec { priority: 0, ..spec };
            tables.add_policy(spec).unwrap();
        }
        let mut gateway = Gateway::new(tables);
        let peer = peer_inbound(0x1001, false);
        let own = MemoryOptions::ethernet("", LAN).mac;
        let mut expected: BTreeMap<(u8, bool), Vec<u32>> = BTreeMap::new();
        let mut seen: BTreeMap<(u8, bool), Vec<u32>> = BTreeMap::new();
        let mut number_of: BTreeMap<u32, (Handling, bool)> = BTreeMap::new();
        let mut waiting = 0;
        let mut collect = |gateway: &mut Gateway, number_of: &BTreeMap<u32, (Handling, bool)>| {
            gateway.poll();
            for port in [LAN, WAN] {
                for (mac, sent) in gateway.sent(port) {
                    let parsed = headers::parse(&sent).unwrap();
                    let (inner, is_sealed) = match parsed.protocol {
                        Protocol::ESP => (open(&peer, &sent), true),
                        _ => (sent.clone(), false),
                    };
                    let Some(number) = number(&inner) else { continue };
                    let (handling, is_v6) = number_of[&number];
                    prop_assert_eq!(is_sealed, handling == Handling::Sealed);
                    let to = match handling {
                        Handling::OtherNextHop => (LAN, Mac([2, 0xaa, 0, 0, 0, 6])),
                        _ => (WAN, PEER_MAC),
                    };
                    prop_assert_eq!((port, mac), to, "{:?}", handling);
                    let inner = headers::parse(&inner).unwrap();
                    prop_assert_eq!((inner.addresses.is_v6(), inner.hop_limit), (is_v6, 63));
                    prop_assert!(sent.len() <= 1500);
                    seen.entry((handling as u8, is_v6)).or_default().push(number);
                }
            }
            Ok(())
        };
        let mut next = 0;
        for (handling, is_v6, count) in runs {
            for _ in 0..count {
                let packet = numbered(handling, is_v6, next);
                prop_assert!(gateway.lan.push(&frame(own, HOST_MAC, &packet)));
                number_of.insert(next, (handling, is_v6));
                let is_refused = matches!(
                    handling,
                    Handling::Expired | Handling::Discarded | Handling::Malformed
                );
                // IPv6 packets are cut by their senders alone.
                if !(is_refused || (handling == Handling::Cut && is_v6)) {
                    expected.entry((handling as u8, is_v6)).or_default().push(next);
                }
                next += 1;
                waiting += 1;
                if waiting == BATCH {
                    collect(&mut gateway, &number_of)?;
                    waiting = 0;
                }
            }
        }
        collect(&mut gateway, &number_of)?;
        prop_assert_eq!(seen, expected);
        // Every packet counted for its own policy.
        let count = |wanted: Handling, is_v6| {
            number_of.values().filter(|(h, v6)| *h == wanted && *v6 == is_v6).count() as u64
        };
        let tables = gateway.publisher.current();
        for policy in tables.vrf(wire::VrfId::MAIN).unwrap().spd.policies(Direction::Out) {
            let is_v6 = policy.spec.selector.source.first().is_ipv6();
            let to = policy.spec.selector.destination.first().to_string();
            let sum: u64 = match to.as_str() {
                "8.8.0.0" | "2001:db8::" => [
                    Handling::Clear, Handling::OtherPolicy, Handling::Expired, Handling::Options,
                    Handling::Cut,
                ].iter().map(|handling| count(*handling, is_v6)).sum(),
                "192.168.12.0" | "fd12::" => count(Handling::Sealed, is_v6),
                _ => continue,
            };
            prop_assert_eq!(policy.counters.read().0, sum, "{}", to);
        }
        gateway.assert_nothing_lost();
    }
}

/// The link header of IPv6 behind one of IPv4 is its own.
#[test]
fn families_take_turns() {
    let mut gateway = Gateway::new(plain_tables());
    let own = MemoryOptions::ethernet("", LAN).mac;
    for number in 0..BATCH {
        let packet = match number % 2 {
            0 => udp("192.168.13.5", "8.8.8.8", (1, number as u16), 10),
            _ => udp("fd13::5", "2001:db8::8", (1, number as u16), 10),
        };
        assert!(gateway.lan.push(&frame(own, HOST_MAC, &packet)));
    }
    gateway.poll();
    let mut ports = [Vec::new(), Vec::new()];
    while let Some(frame) = gateway.wan.pop() {
        let header = ethernet::Header::parse(&frame).unwrap();
        let parsed = headers::parse(&frame[14..]).unwrap();
        let is_v6 = parsed.addresses.is_v6();
        let ether_type = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        assert_eq!(header.ether_type, ether_type);
        let wire::Upper::Ports { destination, .. } = parsed.upper else { panic!("{parsed:?}") };
        ports[usize::from(is_v6)].push(destination);
    }
    for (family, ports) in (0..).zip(ports) {
        assert_eq!(ports, (0..BATCH as u16).filter(|n| n % 2 == family).collect::<Vec<_>>());
    }
}

/// Each of several ports brings a full batch for one other port in one round.
#[test]
fn full_batches_from_two_ports_leave_by_one() {
    let mut gateway = Gateway::new(plain_tables());
    for round in 0..3 {
        for (port, from) in [(LAN, "192.168.13.5"), (WAN, "192.168.11.1")] {
            let own = MemoryOptions::ethernet("", port).mac;
            let bytes = frame(own, HOST_MAC, &udp(from, "8.8.8.8", (1, 2), 10));
            let handle = if port == LAN { &mut gateway.lan } else { &mut gateway.wan };
            (0..BATCH).for_each(|_| assert!(handle.push(&bytes)));
        }
        assert_eq!(gateway.poll(), 2 * BATCH, "round {round}");
        assert_eq!(gateway.sent(WAN).len(), 2 * BATCH);
    }
    gateway.assert_nothing_lost();
}

/// A full batch for a port, and in the same round a packet of the gateway's own by it.
#[test]
fn a_packet_of_our_own_leaves_behind_a_full_batch() {
    let mut gateway = Gateway::new(plain_tables());
    let own = MemoryOptions::ethernet("", LAN).mac;
    let bytes = frame(own, HOST_MAC, &udp("192.168.13.5", "8.8.8.8", (1, 2), 10));
    (0..BATCH).for_each(|_| assert!(gateway.lan.push(&bytes)));
    gateway.receive(WAN, &echo("192.168.11.1", "192.168.11.2", 8));
    let sent = gateway.sent(WAN);
    assert_eq!(sent.len(), BATCH + 1);
    assert_eq!(headers::parse(&sent[BATCH].1).unwrap().protocol, Protocol::ICMP);
    assert_eq!(gateway.dropped(DropReason::NoBuffer), 0);
    gateway.assert_nothing_lost();
}
