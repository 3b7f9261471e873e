//! Jumbo frames: ports with an MTU of 9000, and workers with large buffers.

mod fixture;

use esp::{Algorithm, InboundSa, KeyMaterial, OutboundSa, WindowSize};
use fixture::*;
use flow::CacheSettings;
use io::memory::{self, MemoryOptions};
use packet::{DropReason, Time};
use path::{Worker, WorkerSettings};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{Action, Direction, Publisher, SaIdentity, SaSpec, Tables};
use wire::{FragmentClass, PortId, Protocol, Spi, Upper, VrfId, fragment, headers};

const MTU: u16 = 9000;
const OUTER: [(&str, &str); 2] = [("192.168.11.2", "192.168.11.1"), ("fd11::2", "fd11::1")];
const INNER: [(&str, &str); 2] = [("192.168.13.5", "192.168.12.7"), ("fd13::5", "fd12::7")];
const LARGE_BUFFERS: usize = 32;

/// A gateway whose LAN has such an MTU, and its WAN.
fn gateway(mut tables: Tables, mtus: [u16; 2]) -> Gateway {
    let port = |name, id: PortId| {
        let mtu = mtus[usize::from(id.0)];
        memory::port(MemoryOptions { mtu, ..MemoryOptions::ethernet(name, id) }, 256)
    };
    let ((lan_port, lan), (wan_port, wan)) = (port("lan", LAN), port("wan", WAN));
    for id in [LAN, WAN] {
        let mut spec = tables.port(id).unwrap().spec.clone();
        spec.mtu = mtus[usize::from(id.0)];
        tables.update_port(id, spec).unwrap();
    }
    let publisher = Publisher::new(tables);
    let (events_in, events) = rtrb::RingBuffer::new(256);
    let (probes, probes_out) = rtrb::RingBuffer::new(256);
    let settings = WorkerSettings {
        index: 0,
        buffers: 1024,
        large_buffers: LARGE_BUFFERS,
        seed: [7; 32],
        caches: [CacheSettings::default(); 4],
        ticks: || 0,
    };
    let reader = publisher.shared().reader();
    let mut worker = Worker::new(&settings, reader, events_in, probes_out).unwrap();
    worker.attach(LAN, Box::new(lan_port));
    worker.attach(WAN, Box::new(wan_port));
    Gateway { worker, publisher, events, probes, lan, wan, now: Time(1_000_000_000) }
}

fn key_material(algorithm: Algorithm) -> KeyMaterial {
    let hash: &[u8] = match algorithm {
        Algorithm::Separate { .. } => &[0xa5; 32],
        _ => &[],
    };
    (0..=64)
        .find_map(|length| KeyMaterial::new(algorithm, &vec![0x5a; length], hash).ok())
        .expect("a key of some length")
}

/// As [`tunnel_tables`], of any algorithm.
fn tunnel(outer: (&str, &str), algorithm: Algorithm) -> Tables {
    let keys = key_material(algorithm);
    let mut tables = plain_tables();
    let (me, remote) = outer;
    for (source, destination, spi) in [(me, remote, 0x1001), (remote, me, 0x1002)] {
        let identity = SaIdentity {
            vrf: VrfId::MAIN,
            inner: VrfId::MAIN,
            if_id: None,
            source: ip(source),
            destination: ip(destination),
            reqid: 1,
        };
        let spec = SaSpec { identity, spi: Spi(spi), no_ecn: false, no_pmtu_discovery: false };
        let outbound = OutboundSa::new(Spi(spi), &keys, 0, &mut StdRng::from_seed([1; 32]));
        let inbound = InboundSa::new(Spi(spi), &keys, WindowSize::new(64).unwrap(), 0);
        tables.add_sa(spec, outbound, inbound).unwrap();
    }
    for (mine, theirs) in [("192.168.13.0/24", "192.168.12.0/24"), ("fd13::/64", "fd12::/64")] {
        let out = Action::Protect(template(me, remote));
        tables.add_policy(policy(Direction::Out, mine, theirs, out)).unwrap();
        let inbound = Action::Protect(template(remote, me));
        tables.add_policy(policy(Direction::In, theirs, mine, inbound)).unwrap();
    }
    tables
}

/// Payload of a UDP packet of so many bytes.
fn payload_of(length: usize, addresses: (&str, &str)) -> usize {
    length - if addresses.0.contains(':') { 48 } else { 28 }
}

fn dont_fragment(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        packet[6] |= 0x40;
        wire::ipv4::fill_checksum(packet);
    }
}

/// The datagram of fragments that came in order.
fn join(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut whole = Vec::new();
    for fragment in fragments {
        let parsed = headers::parse(fragment).unwrap();
        assert_ne!(parsed.fragment.class, FragmentClass::Whole);
        let is_v6 = fragment[0] >> 4 == 6;
        let header = if is_v6 { 48 } else { 20 };
        assert_eq!(usize::from(parsed.fragment.offset), whole.len());
        whole.extend(&fragment[header..usize::from(parsed.total_length)]);
    }
    whole
}

/// The fragments of a packet for an MTU.
fn cut(packet: &[u8], mtu: u16) -> Vec<Vec<u8>> {
    let is_v6 = packet[0] >> 4 == 6;
    let plan = if is_v6 { fragment::plan_v6(packet, mtu) } else { fragment::plan(packet, mtu) };
    plan.unwrap()
        .map(|piece| {
            let mut out = vec![0; piece.total_length()];
            match is_v6 {
                true => fragment::write_v6(packet, &piece, 7, &mut out).unwrap(),
                false => fragment::write(packet, &piece, &mut out).unwrap(),
            };
            out
        })
        .collect()
}

#[test]
fn jumbo_packets_are_forwarded_whole_and_share_few_large_buffers() {
    let mut gateway = gateway(plain_tables(), [MTU; 2]);
    for (from, to) in [("192.168.13.5", "8.8.8.8"), ("fd13::5", "2001:db8::8")] {
        for length in [1500, 2034, 2035, 2048, 2049, 8999, 9000] {
            for _ in 0..3 * LARGE_BUFFERS {
                let whole = udp(from, to, (1, 2), payload_of(length, (from, to)));
                gateway.receive(LAN, &whole);
                let (_, sent) = gateway.sent_one(WAN);
                assert_eq!(sent.len(), length);
                assert_eq!(sent[40..], whole[40..]);
            }
        }
    }
    assert_eq!(gateway.drops(), []);
    gateway.assert_nothing_lost();
}

#[test]
fn every_algorithm_carries_jumbo_packets_out_and_back() {
    for algorithm in Algorithm::ALL {
        for outer in OUTER {
            let mut gateway = gateway(tunnel(outer, algorithm), [MTU; 2]);
            let keys = key_material(algorithm);
            let window = WindowSize::new(64).unwrap();
            let inbound = InboundSa::new(Spi(0x1001), &keys, window, 0);
            let outbound = OutboundSa::new(Spi(0x1002), &keys, 0, &mut StdRng::from_seed([2; 32]));
            for inner in INNER {
                for length in [1990, 2048, 2100, 8899, 8900] {
                    let mut there = udp(inner.0, inner.1, (1, 2), payload_of(length, inner));
                    dont_fragment(&mut there);
                    gateway.receive(LAN, &there);
                    let (mac, sent) = gateway.sent_one(WAN);
                    assert_eq!(mac, PEER_MAC);
                    assert!(sent.len() > length && sent.len() <= usize::from(MTU));
                    let opened = open(&inbound, &sent);
                    assert_eq!(opened.len(), length);
                    assert_eq!(opened[40..], there[40..], "{algorithm}");

                    let mut back = udp(inner.1, inner.0, (2, 1), payload_of(length, inner));
                    dont_fragment(&mut back);
                    gateway.receive(WAN, &seal(&outbound, outer.1, outer.0, &back));
                    let (mac, sent) = gateway.sent_one(LAN);
                    assert_eq!((mac, sent.len()), (HOST_MAC, length));
                    assert_eq!(sent[40..], back[40..], "{algorithm}");
                }
            }
            assert_eq!(gateway.drops(), []);
            gateway.assert_nothing_lost();
        }
    }
}

/// The largest packet that the tunnel takes goes through; one byte more is refused, with that size.
#[test]
fn what_is_too_large_for_a_jumbo_tunnel_is_told_its_limit() {
    for algorithm in Algorithm::ALL {
        for outer in OUTER {
            let mut gateway = gateway(tunnel(outer, algorithm), [MTU; 2]);
            let header = if outer.0.contains(':') { 40 } else { 20 };
            let limit = algorithm.max_payload(usize::from(MTU) - header);
            assert!((8900..=8970).contains(&limit), "{algorithm}: {limit}");
            for inner in INNER {
                let mut fits = udp(inner.0, inner.1, (1, 2), payload_of(limit, inner));
                dont_fragment(&mut fits);
                gateway.receive(LAN, &fits);
                assert!(gateway.sent_one(WAN).1.len() <= usize::from(MTU));
                let mut large = udp(inner.0, inner.1, (1, 2), payload_of(limit + 1, inner));
                dont_fragment(&mut large);
                gateway.receive(LAN, &large);
                let (_, error) = gateway.sent_one(LAN);
                let told = match inner.0.contains(':') {
                    true => u32::from_be_bytes(error[44..48].try_into().unwrap()),
                    false => u16::from_be_bytes([error[26], error[27]]).into(),
                };
                let is_too_big = match headers::parse(&error).unwrap().upper {
                    Upper::Icmp { kind: 3, code: 4, .. } => !inner.0.contains(':'),
                    Upper::Icmp { kind: 2, code: 0, .. } => inner.0.contains(':'),
                    _ => false,
                };
                assert!(is_too_big);
                assert_eq!(told as usize, limit, "{algorithm}");
            }
            assert_eq!(gateway.dropped(DropReason::TooBig), 2);
            gateway.assert_nothing_lost();
        }
    }
}

/// A jumbo LAN and an ordinary WAN: cut where the sender allows it, before it is encrypted.
#[test]
fn jumbo_packets_are_cut_for_an_ordinary_link() {
    let mut gateway = gateway(plain_tables(), [MTU, 1500]);
    let whole = udp("192.168.13.5", "8.8.8.8", (1, 2), 8900);
    gateway.receive(LAN, &whole);
    let fragments: Vec<_> = gateway.sent(WAN).into_iter().map(|(_, packet)| packet).collect();
    assert_eq!(fragments.len(), 7);
    assert!(fragments.iter().all(|fragment| fragment.len() <= 1500));
    assert_eq!(join(&fragments), whole[20..]);
    // Into a jumbo link again they go as they are: a gateway does not make others' packets whole.
    for fragment in &fragments {
        gateway.receive(WAN, &turned(fragment));
    }
    assert_eq!(gateway.sent(LAN).len(), 7);
    gateway.receive(LAN, &udp("fd13::5", "2001:db8::8", (1, 2), 8900));
    let (_, error) = gateway.sent_one(LAN);
    assert_eq!(error[44..48], 1500u32.to_be_bytes());
    gateway.assert_nothing_lost();

    let mut gateway = self::gateway(tunnel(OUTER[0], Algorithm::AesGcm128), [MTU, 1500]);
    let peer = InboundSa::new(
        Spi(0x1001),
        &key_material(Algorithm::AesGcm128),
        WindowSize::new(64).unwrap(),
        0,
    );
    let whole = udp(INNER[0].0, INNER[0].1, (1, 2), 8900);
    gateway.receive(LAN, &whole);
    let opened: Vec<_> = gateway.sent(WAN).iter().map(|(_, outer)| open(&peer, outer)).collect();
    assert_eq!(opened.len(), 7);
    assert_eq!(join(&opened), whole[20..]);
    gateway.assert_nothing_lost();
}

/// The packet from the other side: only the addresses change places.
fn turned(packet: &[u8]) -> Vec<u8> {
    let mut out = packet.to_vec();
    out[12..20].rotate_left(4);
    out
}

/// Fragments of jumbo datagrams, each of them a jumbo frame itself, go through a tunnel and back.
#[test]
fn fragments_of_jumbo_datagrams_pass_tunnels() {
    for inner in INNER {
        let mut gateway = gateway(tunnel(OUTER[0], Algorithm::AesGcm128), [MTU; 2]);
        let keys = key_material(Algorithm::AesGcm128);
        let peer = InboundSa::new(Spi(0x1001), &keys, WindowSize::new(64).unwrap(), 0);
        let sealing = OutboundSa::new(Spi(0x1002), &keys, 0, &mut StdRng::from_seed([2; 32]));
        let header = if inner.0.contains(':') { 40 } else { 20 };
        let whole = udp(inner.0, inner.1, (1, 2), 20_000);
        let mut opened = Vec::new();
        for fragment in cut(&whole, 8900) {
            gateway.receive(LAN, &fragment);
            opened.push(open(&peer, &gateway.sent_one(WAN).1));
        }
        assert_eq!(opened.len(), 3);
        assert_eq!(join(&opened), whole[header..]);
        let back = udp(inner.1, inner.0, (2, 1), 20_000);
        let mut came = Vec::new();
        for fragment in cut(&back, 8900) {
            gateway.receive(WAN, &seal(&sealing, OUTER[0].1, OUTER[0].0, &fragment));
            came.push(gateway.sent_one(LAN).1);
        }
        assert_eq!(join(&came), back[header..]);
        assert_eq!(gateway.drops(), []);
        gateway.assert_nothing_lost();
    }
}

/// An ESP packet of jumbo size that came in ordinary fragments is put together in a large buffer,
/// decrypted there, and what was inside goes on whole.
#[test]
fn a_jumbo_esp_packet_in_fragments_is_put_together_first() {
    for outer in OUTER {
        let mut gateway = gateway(tunnel(outer, Algorithm::AesGcm128), [MTU; 2]);
        let keys = key_material(Algorithm::AesGcm128);
        let sealing = OutboundSa::new(Spi(0x1002), &keys, 0, &mut StdRng::from_seed([2; 32]));
        for round in 0..2 * LARGE_BUFFERS {
            let back = udp(INNER[0].1, INNER[0].0, (2, 1), 8800);
            let sealed = seal(&sealing, outer.1, outer.0, &back);
            let mut fragments = cut(&sealed, 1500);
            if round % 2 == 1 {
                fragments.reverse();
            }
            fragments.iter().for_each(|fragment| gateway.receive(WAN, fragment));
            assert_eq!(gateway.sent_one(LAN).1[20..], back[20..]);
        }
        assert_eq!(gateway.drops(), []);
        assert_eq!(gateway.worker.held(), 0);
        gateway.assert_nothing_lost();
    }
}

/// A request of 9,000 bytes, whole or in fragments, is answered: whole by a port that takes it.
#[test]
fn long_echo_requests_to_the_gateway_are_answered() {
    for (host, own, header) in [("192.168.13.5", "192.168.13.1", 20), ("fd13::5", "fd13::1", 40)] {
        let request = echo(host, own, usize::from(MTU) - header - 8);
        assert_eq!(request.len(), usize::from(MTU));
        for mtus in [[MTU; 2], [1500, MTU]] {
            let mut gateway = gateway(plain_tables(), mtus);
            let requests = match mtus[0] {
                MTU => vec![vec![request.clone()], cut(&request, 1500)],
                _ => vec![cut(&request, 1500)],
            };
            for request in requests {
                for _ in 0..2 * LARGE_BUFFERS {
                    request.iter().for_each(|fragment| gateway.receive(LAN, fragment));
                    let sent: Vec<_> = gateway.sent(LAN).into_iter().map(|(_, p)| p).collect();
                    let reply = match mtus[0] {
                        MTU => {
                            assert_eq!((sent.len(), sent[0].len()), (1, usize::from(MTU)));
                            sent[0][header..].to_vec()
                        }
                        _ => {
                            assert_eq!(sent.len(), 7);
                            assert!(sent.iter().all(|fragment| fragment.len() <= 1500));
                            join(&sent)
                        }
                    };
                    let payload = usize::from(MTU) - header - 8;
                    assert_eq!(reply[8..], echo(host, own, payload)[header + 8..]);
                }
            }
            assert_eq!(gateway.worker.statistics().echo_replies.read() % 64, 0);
            assert_eq!(gateway.drops(), []);
            gateway.assert_nothing_lost();
        }
    }
}

/// Without large buffers for all, packets wait in the port or are counted as missed; nothing is
/// lost silently, and small packets pass.
#[test]
fn few_large_buffers_do_not_stop_small_packets() {
    let mut gateway = gateway(plain_tables(), [MTU; 2]);
    gateway.change(|tables| _ = tables.remove_neighbour(WAN, ip("192.168.11.1")).unwrap());
    let own = MemoryOptions::ethernet("", LAN).mac;
    // All large buffers but some wait for a neighbour.
    for number in 0..100 {
        let large = udp("192.168.13.5", "8.8.8.8", (1, number), 8900);
        assert!(gateway.lan.push(&frame(own, HOST_MAC, &large)));
    }
    gateway.poll();
    gateway.sent(WAN);
    gateway.receive(LAN, &udp("fd13::5", "2001:db8::8", (1, 2), 100));
    assert_eq!(gateway.sent_one(WAN).1[6], Protocol::UDP.0);
    gateway.change(|tables| tables.set_neighbour(WAN, ip("192.168.11.1"), PEER_MAC).unwrap());
    gateway.poll();
    assert!(!gateway.sent(WAN).is_empty());
    gateway.receive(LAN, &udp("192.168.13.5", "8.8.8.8", (1, 2), 8900));
    assert_eq!(gateway.sent_one(WAN).1.len(), 8928);
    gateway.assert_nothing_lost();
}

#[test]
fn large_packets_to_absent_stations_leave_buffers_for_others() {
    let mut gateway = gateway(plain_tables(), [MTU; 2]);
    let absent = 10..70;
    for number in absent.clone() {
        let to = format!("192.168.11.{number}");
        gateway.receive(LAN, &udp("192.168.13.5", &to, (1, 2), 8900));
        assert_eq!(gateway.sent_one(WAN).1.len(), 28, "each is asked for");
        gateway.receive(LAN, &udp("192.168.13.5", "8.8.8.8", (1, 2), 8900));
        assert_eq!(gateway.sent_one(WAN).1.len(), 8928);
    }
    let waiting = LARGE_BUFFERS / 8;
    let given_up = (absent.len() - waiting) as u64;
    assert_eq!(gateway.drops(), [(DropReason::NeighbourQueueFull.name(), given_up)]);
    assert_eq!(gateway.worker.held(), waiting);
    gateway.assert_nothing_lost();
}
