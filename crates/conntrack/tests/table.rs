//! The table: beside a plain model, when it is full, when everything expires at once, by many
//! threads.

mod gate;

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use conntrack::nat::Lease;
use conntrack::{
    Connections, CtState, Direction, Hit, LimitKind, MOST_CONNECTIONS, New, NotMade, Packet,
    Reason, Reference, Refused, Settings, State, Tuple,
};
use gate::{EST, Gate, INV, NEW, REPLY, addresses, segment, settings, tcp, udp};
use packet::Time;
use proptest::prelude::*;
use types::{Addresses, Protocol};

const DATAGRAM: Packet = Packet::Datagram;

#[test]
fn udp_is_new_until_it_is_answered_and_a_stream_after_two_seconds() {
    let mut gate = Gate::new(&settings(8));
    let tuple = udp(1, 1000);
    for _ in 0..20 {
        // One way only, for ten minutes: one connection all the while, and its decision is kept.
        assert_eq!(gate.packet(tuple, &DATAGRAM), NEW);
        gate.wait(29);
    }
    assert_eq!(gate.table.counts().made, 1);
    assert_eq!(gate.packet(tuple.reversed(), &DATAGRAM), REPLY);
    assert_eq!(gate.packet(tuple, &DATAGRAM), EST);
    assert_eq!(gate.connection(&tuple).unwrap().state, State::UdpStream);
    gate.wait(119);
    assert!(gate.connection(&tuple).unwrap().is_assured);
    gate.wait(2);
    assert_eq!(gate.lookup(&tuple), None);
    // Dead, though nobody has taken it out: the next packet begins anew.
    assert_eq!(gate.packet(tuple.reversed(), &DATAGRAM), NEW);
    assert_eq!(gate.ended.len(), 1);
    assert_eq!(gate.ended[0].reason, Reason::Expired);

    // The first answer makes no stream, however late it comes.
    for (host, late) in [(2, 0), (3, 3)] {
        let tuple = udp(host, 1000);
        gate.packet(tuple, &DATAGRAM);
        gate.wait(late);
        gate.packet(tuple.reversed(), &DATAGRAM);
        let connection = gate.connection(&tuple).unwrap();
        assert_eq!((connection.state, connection.is_assured), (State::UdpReplied, false));
        gate.wait(29);
        assert!(gate.connection(&tuple).is_some());
        gate.wait(2);
        assert_eq!(gate.lookup(&tuple), None);
    }
}

#[test]
fn two_hosts_may_ping_each_other_with_one_identifier() {
    let mut gate = Gate::new(&settings(8));
    let (one, other) = (addresses(1, 2), addresses(2, 1));
    let icmp = |addresses, kind| Tuple::icmp(addresses, kind, 0, 5).unwrap();
    assert_eq!(gate.packet(icmp(one, 8), &DATAGRAM), NEW);
    assert_eq!(gate.packet(icmp(other, 8), &DATAGRAM), NEW);
    assert_eq!(gate.table.counts().connections, 2);
    assert_eq!(gate.packet(icmp(other, 0), &DATAGRAM), REPLY);
    assert_eq!(gate.packet(icmp(one, 8), &DATAGRAM), EST);
    // The answer to nothing.
    gate.commits = false;
    assert_eq!(gate.packet(Tuple::icmp(one, 14, 0, 5).unwrap(), &DATAGRAM), INV);
    let shown = gate.connection(&icmp(one, 8)).unwrap();
    assert_eq!((shown.original, shown.reply), (icmp(one, 8), icmp(other, 0)));
}

#[test]
fn zones_are_apart() {
    let mut gate = Gate::new(&settings(8));
    let tuple = udp(1, 1);
    gate.packet(tuple, &DATAGRAM);
    assert_eq!(gate.table.track(1, &tuple.reversed(), &DATAGRAM, gate.now).ct_state, NEW);
    assert_eq!(gate.table.track(0, &tuple.reversed(), &DATAGRAM, gate.now).ct_state, REPLY);
    let tcp = Tuple { protocol: Protocol::TCP, ..tuple };
    assert_eq!(gate.lookup(&tcp), None);
}

#[test]
fn a_connection_is_found_by_both_tuples_of_its_translation() {
    let mut gate = Gate::new(&settings(8));
    let original = tcp(1, 4000);
    let translated = original.with_source("192.0.2.1".parse().unwrap(), 6000).unwrap();
    let translated = translated.with_destination("10.9.9.9".parse().unwrap(), 8080).unwrap();
    let (new, to) = (New::plain(0, original), Lease::of(translated));
    let all = |bits: u8| CtState(bits | 0x20);
    assert_eq!(gate.packet_to(&new, &to, &segment("S", 1000, 0, 0)), NEW);
    let (handle, direction) = gate.lookup(&translated.reversed()).unwrap();
    assert_eq!(direction, Direction::Reply);
    assert_eq!(gate.lookup(&original), Some((handle, Direction::Original)));
    assert_eq!(gate.lookup(&original.reversed()), None);
    let reply = gate.packet(translated.reversed(), &segment("SA", 5000, 1001, 0));
    assert_eq!(reply, all(0x0a | 0xc0));
    let kept = gate.packet(original, &segment("A", 1001, 5001, 0));
    assert_eq!(kept, all(0x02 | 0xc0));
    let out = gate.table.translation(handle, Direction::Original).unwrap();
    assert_eq!(out.tuple, translated);
    let back = gate.table.translation(handle, Direction::Reply).unwrap();
    assert_eq!(back.tuple, original.reversed());
    let hit = gate.table.track(0, &original, &segment("A", 1001, 5001, 0), gate.now);
    let hit = gate.table.hit(hit.reference, &segment("A", 1001, 5001, 0), 40, gate.now);
    assert_eq!(hit, Hit::Valid { translated: true });
    // Somebody else may not have these tuples.
    let other = tcp(2, 4000);
    let (new, syn) = (New::plain(0, other), segment("S", 1, 0, 0));
    let refused = gate.table.commit_translated(&new, &to, (&syn, 40), gate.now, &mut |_| {});
    assert_eq!(refused, Err(Refused::TupleTaken));
    let shown = gate.connection(&original).unwrap();
    assert_eq!((shown.original, shown.reply), (original, translated.reversed()));
    assert!(gate.table.remove(handle, gate.now, &mut |_| {}));
    assert_eq!(gate.lookup(&original), None);
    assert_eq!(gate.lookup(&translated.reversed()), None);
    assert_eq!(gate.table.counts().connections, 0);
}

/// Who opens a connection whose answers would look like packets of one that is translated is refused:
/// nobody could tell whose they are.
#[test]
fn answers_are_of_one_connection() {
    let gate = Gate::new(&settings(8));
    let (there, ends) = (udp(1, 1000), addresses(9, 8));
    // Translated, so that its own answers look like others.
    let reply = Tuple::new(ends, Protocol::UDP, 7, 7);
    let (new, to) = (New::plain(0, there), Lease::of(reply.reversed()));
    let packet = (&DATAGRAM, 100);
    gate.table.commit_translated(&new, &to, packet, gate.now, &mut |_| {}).unwrap();
    let plain = New::plain(0, there.reversed());
    let refused = gate.table.commit(&plain, &DATAGRAM, 100, gate.now, &mut |_| {});
    assert_eq!(refused, Err(Refused::TupleTaken));
    assert_eq!(gate.table.counts().connections, 1);
}

#[test]
fn ipv6_connections_have_places_of_their_own() {
    let settings = Settings { ipv6_connections: 3, ..settings(8) };
    let mut gate = Gate::new(&settings);
    let v6 = |at: u128| {
        let addresses = Addresses::V6 {
            source: Ipv6Addr::from_bits(at << 64 | 1),
            destination: Ipv6Addr::from_bits(at << 70 | 2),
        };
        Tuple::new(addresses, Protocol::TCP, 1, 2)
    };
    let open = |gate: &mut Gate, tuple: Tuple| {
        gate.packet(tuple, &segment("S", 1000, 0, 0));
        gate.packet(tuple.reversed(), &segment("SA", 5000, 1001, 0));
        gate.packet(tuple, &segment("A", 1001, 5001, 0))
    };
    for at in 0..5 {
        assert_eq!(open(&mut gate, tcp(at, 1)), EST);
    }
    for at in 1..=3 {
        assert_eq!(gate.table.would_refuse(&New::plain(0, v6(9)), gate.now), None);
        assert_eq!(open(&mut gate, v6(at)), EST);
    }
    let syn = segment("S", 1, 0, 0);
    let new = New::plain(0, v6(9));
    assert_eq!(gate.table.would_refuse(&new, gate.now), Some(Refused::Full));
    let refused = gate.table.commit(&new, &syn, 40, gate.now, &mut |_| {});
    assert_eq!(refused, Err(Refused::Full));
    for at in 1..=3 {
        assert_eq!(gate.packet(v6(at), &segment("A", 1001, 5001, 10)), EST);
        assert_eq!(gate.connection(&v6(at)).unwrap().original, v6(at));
    }
}

#[test]
fn when_full_half_open_ones_go_and_established_ones_stay() {
    let size = 1000;
    let mut gate = Gate::new(&settings(size));
    let established: Vec<Tuple> = (0..size - 10).map(|at| tcp(at, 7)).collect();
    for tuple in &established {
        gate.packet(*tuple, &segment("S", 1000, 0, 0));
        gate.packet(tuple.reversed(), &segment("SA", 5000, 1001, 0));
        gate.packet(*tuple, &segment("A", 1001, 5001, 0));
    }
    // A flood of SYNs, each of which finds room.
    for at in 0..10_000 {
        assert_eq!(gate.table.would_refuse(&New::plain(0, tcp(at, 8)), gate.now), None);
        assert_eq!(gate.packet(tcp(at, 8), &segment("S", 1, 0, 0)), NEW);
    }
    assert_eq!(gate.ended.len(), 10_000 - 10);
    assert!(gate.ended.iter().all(|end| end.reason == Reason::EarlyDrop));
    assert!(gate.ended.iter().all(|end| end.original.source == 8));
    assert_eq!(gate.table.counts().early_drop, 10_000 - 10);
    for tuple in &established {
        assert_eq!(gate.packet(*tuple, &segment("A", 1001, 5001, 0)), EST);
    }
    // If all are established, the new one is refused, and it is counted.
    let left: Vec<u32> = (0..10_000).filter(|at| gate.lookup(&tcp(*at, 8)).is_some()).collect();
    assert_eq!(left.len(), 10);
    for at in left {
        gate.packet(tcp(at, 8).reversed(), &segment("SA", 5000, 2, 0));
        gate.packet(tcp(at, 8), &segment("A", 2, 5001, 0));
    }
    let table = &gate.table;
    let all = table.counts();
    let new = New::plain(0, tcp(1, 9));
    assert_eq!(table.would_refuse(&new, gate.now), Some(Refused::Full));
    // Unless some are dead that nobody has taken out yet.
    assert_eq!(table.would_refuse(&new, gate.now + Duration::from_secs(6 * 86_400)), None);
    let refused = table.commit(&new, &segment("S", 1, 0, 0), 40, gate.now, &mut |_| {});
    assert_eq!((refused, all.connections), (Err(Refused::Full), size));
    assert_eq!(table.counts().full, 1);
    // One that closes makes room.
    let closing = established[5];
    gate.packet(closing, &segment("R", 1001, 0, 0));
    assert_eq!(gate.packet(tcp(1, 9), &segment("S", 1, 0, 0)), NEW);
    assert_eq!(gate.ended.last().unwrap().original, closing);
}

/// The table is full of connections that may go.
#[test]
fn nobody_goes_for_a_connection_that_is_refused() {
    let size = 100;
    let mut gate = Gate::new(&settings(size));
    gate.table.limit_zone(0, size);
    for at in 0..size {
        assert_eq!(gate.packet(udp(at, 7), &DATAGRAM), NEW);
    }
    let commit_to = |gate: &Gate, new: &New, to: Tuple| {
        let gone = &mut |ended: &[conntrack::Ended]| panic!("{ended:?} went for nothing");
        let made =
            gate.table.commit_translated(new, &Lease::of(to), (&DATAGRAM, 40), gate.now, gone);
        made.map(|_| ())
    };
    let commit = |gate: &Gate, new: &New| commit_to(gate, new, new.original);
    // The second packet of a batch whose first has opened it.
    let there = New::plain(0, udp(5, 7));
    assert_eq!(commit(&gate, &there), Err(Refused::Exists));
    // One whose answers would look like another's packets.
    let (new, taken) = (New::plain(0, udp(size, 9)), udp(5, 7).reversed());
    assert_eq!(commit_to(&gate, &new, taken), Err(Refused::TupleTaken));
    let new = New::plain(0, udp(size, 7));
    assert_eq!(gate.table.would_refuse(&new, gate.now), Some(Refused::Limit(LimitKind::Zone)));
    assert_eq!(commit(&gate, &new), Err(Refused::Limit(LimitKind::Zone)));
    assert_eq!(gate.table.counts().connections, size);
    // For one that is made, somebody goes.
    gate.table.limit_zone(0, 0);
    let mut gone = 0;
    let made = gate.table.commit(&new, &DATAGRAM, 40, gate.now, &mut |ended| gone += ended.len());
    assert!(made.is_ok() && gone == 1);
}

#[test]
fn packets_and_bytes_are_counted_by_direction() {
    let mut gate = Gate::new(&Settings { accounting: true, ..settings(8) });
    let tuple = tcp(1, 1);
    gate.packet(tuple, &segment("S", 1000, 0, 0));
    gate.packet(tuple.reversed(), &segment("SA", 5000, 1001, 0));
    for at in 0..10 {
        gate.packet(tuple, &segment("A", 1001 + at * 10, 5001, 10));
    }
    // What is invalid counts for nobody.
    gate.packet(tuple, &segment("A", 900_000, 5001, 10));
    let [original, reply] = gate.connection(&tuple).unwrap().counters;
    assert_eq!((original.packets, original.bytes), (11, 1100));
    assert_eq!((reply.packets, reply.bytes), (1, 100));
}

/// The wheel looks at each when it is due, and not before.
#[test]
fn nobody_is_looked_at_who_is_not_due() {
    let mut gate = Gate::new(&settings(64));
    for at in 0..10 {
        gate.packet(udp(at, 9), &DATAGRAM);
        gate.packet(tcp(at, 9), &segment("S", 1000, 0, 0));
    }
    let looked = |gate: &mut Gate, seconds: u64| {
        gate.wait(seconds);
        gate.table.expire(gate.now, 1000, &mut |_| {})
    };
    assert_eq!(looked(&mut gate, 29), 0);
    assert_eq!(looked(&mut gate, 4), 10);
    assert_eq!(looked(&mut gate, 80), 0);
    assert_eq!(looked(&mut gate, 12), 10);
    assert_eq!(gate.table.counts().connections, 0);
}

#[test]
fn dead_ones_make_room_before_they_are_swept() {
    let mut gate = Gate::new(&settings(20));
    let open = |gate: &mut Gate, at: u32| {
        gate.packet(tcp(at, 7), &segment("S", 1000, 0, 0));
        gate.packet(tcp(at, 7).reversed(), &segment("SA", 5000, 1001, 0));
        gate.packet(tcp(at, 7), &segment("A", 1001, 5001, 0));
    };
    for at in 0..20 {
        open(&mut gate, at);
    }
    gate.wait(432_100);
    for at in 20..40 {
        open(&mut gate, at);
    }
    assert_eq!(gate.table.counts().full, 0);
    assert!(gate.ended.iter().all(|end| end.reason == Reason::Expired));
}

#[test]
fn a_handshake_survives_a_flood() {
    let mut gate = Gate::new(&settings(1000));
    for at in 0..1000 {
        gate.packet(tcp(at, 8), &segment("S", 1, 0, 0));
    }
    gate.wait(1);
    let tuple = tcp(77, 9);
    gate.packet(tuple, &segment("S", 1000, 0, 0));
    // Those used longest ago go first.
    for at in 0..400 {
        gate.packet(tcp(at, 10), &segment("S", 1, 0, 0));
    }
    assert_eq!(gate.packet(tuple.reversed(), &segment("SA", 5000, 1001, 0)), REPLY);
}

#[test]
fn a_million_that_expire_together_stall_nobody() {
    let count = 1 << 20;
    let mut gate = Gate::new(&settings(count));
    for at in 0..count {
        let new = New::plain(0, udp(at, 9));
        gate.table.commit(&new, &DATAGRAM, 40, gate.now, &mut |_| {}).unwrap();
    }
    gate.wait(40);
    assert_eq!(gate.lookup(&udp(5, 9)), None, "dead before it is swept");
    let (mut steps, mut ended) = (0u32, 0u32);
    while gate.table.counts().connections > 0 {
        let mut of_step = 0;
        let looked = gate.table.expire(gate.now, 256, &mut |gone| {
            assert!(gone.iter().all(|end| end.reason == Reason::Expired));
            of_step += gone.len() as u32;
        });
        assert!(looked <= 256 && of_step <= 256);
        ended += of_step;
        steps += 1;
        assert!(steps < count / 100, "{ended} after {steps} steps");
    }
    assert_eq!(ended, count);
    // All places are free again.
    for at in 0..count {
        let new = New::plain(0, udp(at, 10));
        gate.table.commit(&new, &DATAGRAM, 40, gate.now, &mut |_| {}).unwrap();
    }
    assert_eq!(gate.table.counts().early_drop, 0);
}

#[test]
fn what_is_used_is_not_swept() {
    let mut gate = Gate::new(&settings(64));
    let used = udp(1, 1);
    gate.packet(used, &DATAGRAM);
    gate.packet(used.reversed(), &DATAGRAM);
    let idle = udp(2, 1);
    gate.packet(idle, &DATAGRAM);
    for _ in 0..100 {
        gate.wait(25);
        assert_eq!(gate.packet(used, &DATAGRAM), EST);
        gate.expire();
    }
    assert_eq!(gate.table.counts().connections, 1);
    assert_eq!(gate.ended.len(), 1);
    assert_eq!(gate.ended[0].original, idle);
    gate.wait(100_000);
    gate.expire();
    assert_eq!(gate.table.counts().connections, 0);
}

#[test]
fn a_change_gives_a_new_generation() {
    let mut gate = Gate::new(&settings(8));
    let tuple = udp(1, 1);
    gate.packet(tuple, &DATAGRAM);
    gate.packet(tuple, &DATAGRAM);
    let kept = gate.cache[&tuple];
    let (handle, _) = gate.lookup(&tuple).unwrap();
    assert_eq!(gate.table.hit(kept, &DATAGRAM, 40, gate.now), Hit::Valid { translated: false });
    let marked = gate.table.set_mark(handle, 0xabcd, 0xff).unwrap();
    assert_eq!(gate.table.hit(kept, &DATAGRAM, 40, gate.now), Hit::Stale);
    assert_eq!(
        gate.table.set_mark(handle, 1, 1),
        Some(marked),
        "so already, and by its former name"
    );
    // Who has decided on what it was writes nothing over what it is.
    assert_eq!(gate.table.set_all(handle, (9, u32::MAX), (1, 1), 1), None);
    assert_eq!(gate.connection(&tuple).unwrap().mark, 0xcd);
    let labelled = gate.table.set_label(marked, 7 << 100 | 5, 7 << 100).unwrap();
    let helped = gate.table.set_helper(labelled, 3).unwrap();
    let shown = gate.connection(&tuple).unwrap();
    assert_eq!((shown.mark, shown.label, shown.helper), (0xcd, 7 << 100, 3));
    assert_eq!(shown.handle, helped);
    // Its deadline, by command.
    assert!(gate.table.set_deadline(helped, gate.now + Duration::from_secs(500), gate.now));
    gate.wait(499);
    gate.expire();
    assert!(gate.connection(&tuple).is_some());
    // The wheel's steps are a second long.
    gate.wait(6);
    assert!(!gate.table.set_deadline(helped, gate.now + Duration::from_secs(500), gate.now));
    gate.expire();
    assert_eq!(gate.table.counts().connections, 0);
    assert!(!gate.table.remove(helped, gate.now, &mut |_| {}));
}

#[test]
fn the_latest_deadline_is_two_years_ahead() {
    let mut gate = Gate::new(&settings(8));
    let tuple = udp(1, 1);
    gate.packet(tuple, &DATAGRAM);
    let (handle, _) = gate.lookup(&tuple).unwrap();
    let years = |years: u64| Duration::from_secs(years * 365 * 86_400);
    for wanted in [years(1), years(5), years(10), years(136)] {
        assert!(gate.table.set_deadline(handle, gate.now + wanted, gate.now));
        let deadline = gate.connection(&tuple).unwrap().deadline;
        let is = deadline.since(gate.now);
        assert!(is >= wanted.min(years(2)) - Duration::from_secs(1) && is <= years(3), "{is:?}");
        gate.wait(600);
        gate.expire();
        assert_eq!(gate.table.counts().connections, 1);
    }
}

#[test]
fn what_a_longer_timeout_revives_is_decided_again() {
    let mut gate = Gate::new(&settings(8));
    let tuple = udp(1, 1);
    gate.packet(tuple, &DATAGRAM);
    // Dead, and not taken out yet.
    gate.wait(40);
    gate.commits = false;
    assert_eq!(gate.packet(tuple, &DATAGRAM), NEW);
    let kept = gate.cache[&tuple];
    assert_eq!(gate.table.hit(kept, &DATAGRAM, 40, gate.now), Hit::Valid { translated: false });
    let usual = [(State::UdpUnreplied, Duration::from_secs(500))].into();
    gate.table.set_timeouts(&usual, &[]);
    assert!(gate.connection(&tuple).is_some());
    assert_eq!(gate.table.hit(kept, &DATAGRAM, 40, gate.now), Hit::Stale);
}

#[test]
fn what_was_decided_without_a_connection_is_decided_again_when_one_comes() {
    let mut gate = Gate::new(&settings(8));
    gate.commits = false;
    let (inside, outside) = (tcp(1, 1), tcp(1, 1).reversed());
    let ack = segment("A", 5001, 1001, 0);
    assert_eq!(gate.packet(outside, &ack), INV);
    let kept = gate.cache[&outside];
    assert!(matches!(gate.table.hit(kept, &ack, 40, gate.now), Hit::Valid { .. }));
    // Another kind of packet of the same flow.
    assert_eq!(gate.table.hit(kept, &segment("S", 1, 0, 0), 40, gate.now), Hit::Stale);
    gate.commits = true;
    gate.packet(tcp(77, 5), &segment("S", 1, 0, 0));
    assert!(matches!(gate.table.hit(kept, &ack, 40, gate.now), Hit::Valid { .. }));
    gate.packet(inside, &segment("S", 1000, 0, 0));
    assert_eq!(gate.table.hit(kept, &ack, 40, gate.now), Hit::Stale);
    let kept = gate.table.track(0, &tcp(9, 9), &ack, gate.now).reference;
    gate.table.raise_all_stamps();
    assert_eq!(gate.table.hit(kept, &ack, 40, gate.now), Hit::Stale);
    assert_eq!(
        gate.table.hit(Reference::NONE, &ack, 40, gate.now),
        Hit::Valid { translated: false }
    );
}

#[test]
fn a_datagram_with_a_wrong_checksum_speaks_for_no_other() {
    let mut gate = Gate::new(&settings(8));
    for tuple in [udp(1, 1), udp(1, 2).reversed()] {
        assert_eq!(gate.packet(tuple, &Packet::Malformed), INV);
        assert_eq!(gate.packet(tuple, &Packet::Datagram), NEW);
        assert_eq!(gate.packet(tuple, &Packet::Malformed), INV);
    }
    assert_eq!(gate.table.counts().connections, 2);
}

#[test]
fn a_table_has_a_size() {
    for wrong in [0, MOST_CONNECTIONS + 1] {
        let made = Connections::new(&settings(wrong), [0; 2], Time(0));
        assert_eq!(made.err(), Some(NotMade::Size(wrong)));
    }
    let ipv4 = Settings { ipv6_connections: 0, ..settings(262_144) };
    let ipv4 = Connections::new(&ipv4, [0; 2], Time(0)).unwrap().bytes() as f64;
    let both = Connections::new(&settings(262_144), [0; 2], Time(0)).unwrap().bytes() as f64;
    assert!(ipv4 / 262_144.0 < 233.0, "{}", ipv4 / 262_144.0);
    assert!(both / 262_144.0 < 297.0, "{}", both / 262_144.0);
}

/// A slow table: what is known of a UDP connection, by both tuples.
#[derive(Default)]
struct Model {
    connections: HashMap<Tuple, (u64, u64, bool, bool)>,
}

/// Times are in milliseconds.
impl Model {
    fn track(&mut self, tuple: &Tuple, now: u64) -> CtState {
        let live = |model: &Self, tuple: &Tuple| {
            model.connections.get(tuple).is_some_and(|(_, seen, _, stream)| {
                now < seen + if *stream { 120_000 } else { 30_000 }
            })
        };
        let is_reply = live(self, &tuple.reversed());
        let key = if is_reply { tuple.reversed() } else { *tuple };
        if !live(self, &key) {
            self.connections.remove(&tuple.reversed());
            self.connections.insert(key, (now, now, false, false));
            return NEW;
        }
        let (began, seen, replied, stream) = self.connections.get_mut(&key).unwrap();
        let state = match (is_reply, *replied) {
            (true, _) => REPLY,
            (false, true) => EST,
            (false, false) => NEW,
        };
        // The first answer alone makes none.
        *stream |= *replied && now >= *began + 2000;
        *replied |= is_reply;
        *seen = now;
        state
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Within two ticks of a deadline the model is exact and the table is not.
    #[test]
    fn the_table_is_a_map(
        steps in proptest::collection::vec((0u32..6, 0u16..3, any::<bool>(), 0u64..4), 1..400),
        sweeps: bool,
    ) {
        let (mut gate, mut model, mut now) = (Gate::new(&settings(64)), Model::default(), 0);
        for (host, port, reverse, pause) in steps {
            let mut pause = [0, 0, 7, 41][pause as usize] * 1000 + 300;
            // Never near a deadline.
            let is_near = |now: u64| {
                let gap = |a: u64, b: u64| a.abs_diff(b) < 200;
                model.connections.values().any(|(began, seen, _, stream)| {
                    let timeout = if *stream { 120_000 } else { 30_000 };
                    gap(now, seen + timeout) || gap(now, began + 2000)
                })
            };
            while is_near(now + pause) {
                pause += 100;
            }
            now += pause;
            gate.now = gate.now + Duration::from_millis(pause);
            if sweeps {
                gate.expire();
            }
            let tuple = udp(host, port);
            let tuple = if reverse { tuple.reversed() } else { tuple };
            let expected = model.track(&tuple, now);
            prop_assert_eq!(gate.packet(tuple, &DATAGRAM), expected, "{:?} at {}", tuple, now);
        }
    }
}

#[test]
fn threads_that_open_use_and_end_connections_leave_a_whole_table() {
    let settings = Settings { workers: 4, ..settings(512) };
    let table = Connections::new(&settings, [5, 6], Time(0)).unwrap();
    let now = Time(1 << 40);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let table = &table;
            scope.spawn(move || {
                let mut random = thread.wrapping_mul(0x9e37_79b9) | 1;
                for _ in 0..40_000 {
                    random ^= random << 13;
                    random ^= random >> 17;
                    random ^= random << 5;
                    let tuple = udp(random >> 8 & 255, (random & 3) as u16);
                    let tuple = if random & 4 == 0 { tuple } else { tuple.reversed() };
                    let tracked = table.track(0, &tuple, &DATAGRAM, now);
                    match tracked.connection {
                        Some((handle, _)) if random & 0x70 == 0 => {
                            table.remove(handle, now, &mut |_| {});
                        }
                        Some((handle, _)) if random & 0x70 == 0x10 => {
                            table.set_mark(handle, random, u32::MAX);
                        }
                        Some(_) => {
                            table.hit(tracked.reference, &DATAGRAM, 100, now);
                        }
                        None => match table.commit(
                            &New::plain(0, tuple),
                            &DATAGRAM,
                            1,
                            now,
                            &mut |_| {},
                        ) {
                            Ok(_) | Err(Refused::Exists | Refused::Full) => {}
                            Err(why) => panic!("{why}"),
                        },
                    }
                }
            });
        }
    });
    let counts = table.counts();
    let live: Vec<_> = (0..512).filter_map(|index| table.connection(index, now)).collect();
    assert_eq!(live.len(), counts.connections as usize);
    for connection in &live {
        let found = table.lookup(0, &connection.original, now);
        assert_eq!(found, Some((connection.handle, Direction::Original)));
    }
    // All places come back.
    for connection in live {
        assert!(table.remove(connection.handle, now, &mut |_| {}));
    }
    for at in 0..512 {
        table.commit(&New::plain(0, udp(at, 99)), &DATAGRAM, 1, now, &mut |_| {}).unwrap();
    }
    assert_eq!(table.counts().early_drop, counts.early_drop);
}
