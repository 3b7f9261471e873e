//! What is known of a next hop changes; what was decided does not, and no packet leaves by what was
//! known before.

mod fixture;

use fixture::*;
use flow::{Associativity, CacheMode, CacheSettings};
use io::memory::MemoryOptions;
use packet::DropReason;
use tables::PortSpec;
use wire::{Mac, PortId, Upper, arp, headers};

const FLOWS: u16 = 1000;
/// In one poll; fewer than wait for one next hop.
const TOGETHER: usize = 8;
const CACHE: CacheSettings =
    CacheSettings { mode: CacheMode::On, buckets: 1 << 13, associativity: Associativity::Four };
const FAMILIES: [(&str, &str, &str); 2] =
    [("192.168.13.5", "8.8.8.8", "192.168.11.1"), ("fd13::5", "2001:db8::8", "fd11::1")];

/// A gateway that knows its flows, of one family, which leave by the peer or by its tunnel.
struct Loaded {
    gateway: Gateway,
    frames: Vec<Vec<u8>>,
    next: usize,
    peer: &'static str,
    /// Misses and decisions so far.
    known: (u64, u64),
}

impl Loaded {
    fn new(tables: tables::Tables, from: &str, to: &str, peer: &'static str) -> Self {
        Self::with_payload(100, tables, from, to, peer)
    }

    fn with_payload(
        payload: usize,
        tables: tables::Tables,
        from: &str,
        to: &str,
        peer: &'static str,
    ) -> Self {
        let own = MemoryOptions::ethernet("", LAN).mac;
        let frames = (0..FLOWS)
            .map(|number| frame(own, HOST_MAC, &udp(from, to, (number, 53), payload)))
            .collect();
        let mut gateway = Gateway::with_caches(tables, [CACHE; 4], 7);
        let all: &Vec<Vec<u8>> = &frames;
        for part in all.chunks(packet::BATCH) {
            part.iter().for_each(|frame| assert!(gateway.lan.push(frame)));
            gateway.poll();
            assert_eq!(gateway.sent(WAN).len(), part.len());
        }
        let mut loaded = Self { gateway, frames, next: 0, peer, known: (0, 0) };
        loaded.known = loaded.looked();
        assert_eq!(loaded.known, (FLOWS.into(), FLOWS.into()));
        loaded
    }

    /// Packets that were not found in the cache, and those that were decided.
    fn looked(&self) -> (u64, u64) {
        let statistics = self.gateway.worker.statistics();
        let missed = statistics
            .caches
            .iter()
            .map(|c| c.missed_new.read() + c.missed_stale.read() + c.missed_evicted.read());
        (missed.sum(), statistics.decided.read())
    }

    /// Some of the flows' packets come, and the worker polls.
    fn send(&mut self, count: usize) {
        for _ in 0..count {
            assert!(self.gateway.lan.push(&self.frames[self.next % self.frames.len()]));
            self.next += 1;
        }
        self.gateway.poll();
    }

    /// The ports of the flows whose packets left, and to whom; questions for neighbours left out.
    fn left(&mut self) -> Vec<(Mac, u16)> {
        let mut all = Vec::new();
        for (mac, sent) in self.gateway.sent(WAN) {
            if let Ok(headers) = headers::parse(&sent)
                && let Upper::Ports { source, .. } = headers.upper
            {
                all.push((mac, source));
            } else if sent[0] >> 4 == 4 {
                panic!("{sent:?}");
            }
        }
        all
    }

    fn forget(&mut self) {
        let peer = ip(self.peer);
        self.gateway.change(|tables| _ = tables.remove_neighbour(WAN, peer).unwrap());
    }

    fn learn(&mut self, mac: Mac) {
        let peer = ip(self.peer);
        self.gateway.change(|tables| tables.set_neighbour(WAN, peer, mac).unwrap());
    }

    fn change_port(&mut self, id: PortId, change: impl FnOnce(&mut PortSpec)) {
        self.gateway.change(|tables| {
            let mut spec = tables.port(id).unwrap().spec.clone();
            change(&mut spec);
            tables.update_port(id, spec).unwrap();
        });
    }

    #[track_caller]
    fn assert_nothing_decided(&self) {
        assert_eq!(self.looked(), self.known, "misses and decisions");
        self.gateway.assert_nothing_lost();
    }
}

fn numbered(round: usize) -> Mac {
    Mac([2, 0xbb, 0, 0, (round >> 8) as u8, round as u8])
}

#[test]
fn a_neighbour_that_moves_and_is_lost_under_load_costs_no_miss() {
    for (from, to, peer) in FAMILIES {
        let mut loaded = Loaded::new(plain_tables(), from, to, peer);
        let mut expected = 0u16;
        for round in 0..400 {
            let mac = numbered(round);
            let mut told = Vec::new();
            if round % 3 == 2 {
                // Lost: its packets wait, over several rounds.
                loaded.forget();
                for _ in 0..2 {
                    loaded.send(TOGETHER);
                    assert_eq!(
                        loaded.left(),
                        [],
                        "round {round}: sent to a neighbour that is lost"
                    );
                }
                loaded.learn(mac);
                // What comes in the round in which it is known again leaves behind what waited.
                loaded.send(TOGETHER);
                told.extend(loaded.left());
                assert_eq!(told.len(), 3 * TOGETHER);
            } else {
                loaded.learn(mac);
                loaded.send(TOGETHER);
                told.extend(loaded.left());
                assert_eq!(told.len(), TOGETHER);
            }
            for (to, port) in told {
                assert_eq!((to, port), (mac, expected), "round {round}");
                expected = (expected + 1) % FLOWS;
            }
        }
        loaded.assert_nothing_decided();
        assert_eq!(loaded.gateway.drops(), []);
    }
}

/// The same for the end of a tunnel: ESP packets wait, each of them once.
#[test]
fn a_lost_tunnel_end_costs_no_miss() {
    let outer = ("192.168.11.2", "192.168.11.1");
    let tables = tunnel_tables(outer, false);
    let mut loaded = Loaded::new(tables, "192.168.13.5", "192.168.12.7", outer.1);
    let mut sequence = u32::from(FLOWS);
    for round in 0..100 {
        loaded.forget();
        loaded.send(TOGETHER);
        for (_, question) in loaded.gateway.sent(WAN) {
            assert!(arp::Packet::parse(&question).is_ok(), "an ESP packet to nobody");
        }
        loaded.learn(numbered(round));
        loaded.send(TOGETHER);
        let sent = loaded.gateway.sent(WAN);
        assert_eq!(sent.len(), 2 * TOGETHER);
        for (mac, outer) in sent {
            sequence += 1;
            assert_eq!(mac, numbered(round));
            assert_eq!(outer[24..28], sequence.to_be_bytes(), "in order");
        }
    }
    loaded.assert_nothing_decided();
    assert_eq!(loaded.gateway.drops(), []);
}

#[test]
fn a_port_that_changes_costs_no_miss() {
    for (from, to, peer) in FAMILIES {
        let mut loaded = Loaded::new(plain_tables(), from, to, peer);
        let count = usize::from(FLOWS);
        // Another Ethernet address: the very next packets are from it.
        let mac = Mac([2, 0, 0, 0, 9, 9]);
        loaded.change_port(WAN, |spec| spec.mac = mac);
        for _ in 0..count / 200 {
            loaded.send(200);
            let frames: Vec<_> = std::iter::from_fn(|| loaded.gateway.wan.pop()).collect();
            assert_eq!(frames.len(), 200);
            assert!(frames.iter().all(|frame| frame[..6] == PEER_MAC.0 && frame[6..12] == mac.0));
        }
        loaded.assert_nothing_decided();

        // Down: counted, and nothing leaves or waits. Up again: as before.
        for cycle in 1..=3 {
            loaded.change_port(WAN, |spec| spec.up = false);
            loaded.send(200);
            assert_eq!(loaded.left(), []);
            assert_eq!(loaded.gateway.dropped(DropReason::PortDown), 200 * cycle);
            assert_eq!(loaded.gateway.worker.held(), 0);
            loaded.change_port(WAN, |spec| spec.up = true);
            loaded.send(200);
            assert_eq!(loaded.left().len(), 200);
            loaded.assert_nothing_decided();
        }
        // What comes in by a port that is down is not looked at.
        loaded.change_port(LAN, |spec| spec.up = false);
        loaded.send(100);
        assert_eq!(loaded.left(), []);
        assert_eq!(loaded.gateway.dropped(DropReason::PortDown), 700);
        loaded.change_port(LAN, |spec| spec.up = true);
        loaded.send(100);
        assert_eq!(loaded.left().len(), 100);
        loaded.assert_nothing_decided();
    }
}

#[test]
fn packets_that_wait_when_their_port_goes_down_are_dropped_and_counted() {
    let (from, to, peer) = FAMILIES[0];
    let mut loaded = Loaded::new(plain_tables(), from, to, peer);
    loaded.forget();
    loaded.send(TOGETHER);
    assert_eq!(loaded.gateway.worker.held(), TOGETHER);
    loaded.change_port(WAN, |spec| spec.up = false);
    loaded.gateway.poll();
    assert_eq!(loaded.gateway.dropped(DropReason::PortDown), TOGETHER as u64);
    assert_eq!(loaded.gateway.worker.held(), 0);
    loaded.assert_nothing_decided();
}

/// Packets of 1328 bytes, and an MTU below and above: cut, or refused, in the very next round.
#[test]
fn another_mtu_applies_at_once_and_costs_no_miss() {
    let (from, to, peer) = FAMILIES[0];
    let mut loaded = Loaded::with_payload(1300, plain_tables(), from, to, peer);
    for mtu in [1300, 1500, 1320, 1328, 1327] {
        loaded.change_port(WAN, |spec| spec.mtu = mtu);
        loaded.send(50);
        let sent = loaded.gateway.sent(WAN);
        let pieces = if mtu < 1328 { 2 } else { 1 };
        assert_eq!(sent.len(), 50 * pieces, "{mtu}");
        assert!(sent.iter().all(|(_, packet)| packet.len() <= usize::from(mtu)));
    }
    assert_eq!(loaded.gateway.worker.statistics().fragmented.read(), 150);
    loaded.assert_nothing_decided();

    // IPv6 is refused, and the sender told of the limit that holds now.
    let (from, to, peer) = FAMILIES[1];
    let mut loaded = Loaded::new(plain_tables(), from, to, peer);
    let own = MemoryOptions::ethernet("", LAN).mac;
    let large = frame(own, HOST_MAC, &udp(from, to, (1, 53), 1400));
    for (count, mtu) in (0..).zip([1300, 1440, 1280]) {
        loaded.change_port(WAN, |spec| spec.mtu = mtu);
        assert!(loaded.gateway.lan.push(&large));
        loaded.gateway.poll();
        let (_, error) = loaded.gateway.sent_one(LAN);
        assert!(matches!(headers::parse(&error).unwrap().upper, Upper::Icmp { kind: 2, .. }));
        assert_eq!(error[44..48], u32::from(mtu).to_be_bytes());
        assert_eq!(loaded.gateway.dropped(DropReason::TooBig), count + 1);
    }
    // The error is a flow of its own, decided once.
    let (misses, decided) = loaded.known;
    assert_eq!(loaded.looked(), (misses + 1, decided + 1));
    loaded.gateway.assert_nothing_lost();
}
