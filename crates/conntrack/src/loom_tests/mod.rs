//! What workers share, under every order of a few threads' steps (loom preempts twice at most). Who only
//! reads is the thread that is spawned: of a word that its writer reads first, loom remembers no other
//! reader, and would let nobody write before that.
//!
//! `cargo test -p hitpath-conntrack --features loom --lib -- loom`.

mod expecting;
mod late;
mod lending;
mod room;

use core::net::Ipv4Addr;

use loom::sync::Arc;
use loom::thread;
use packet::Time;
use types::{Addresses, Protocol, TcpFlags};

use crate::nat::Lease;
use crate::{
    Connections, CtState, Direction, Handle, Hit, New, Packet, Refused, Segment, Settings, Tuple,
};

const NOW: Time = Time(1 << 40);

fn model(body: impl Fn() + Sync + Send + 'static) {
    model_of(2, body);
}

fn model_of(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(body);
}

fn table(connections: u32) -> Arc<Connections> {
    let settings = Settings { connections, ipv6_connections: 0, workers: 2, ..Settings::default() };
    Arc::new(Connections::new(&settings, [1, 2], NOW).unwrap())
}

fn tuple(port: u16) -> Tuple {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    Tuple::new(Addresses::V4 { source, destination }, Protocol::UDP, port, 9)
}

fn commit(table: &Connections, tuple: Tuple) -> Result<Handle, Refused> {
    table.commit(&New::plain(0, tuple), &Packet::Datagram, 60, NOW, &mut |_| {})
}

/// Both directions open the same connection at once: there is one afterwards.
#[test]
fn loom_two_open_the_same() {
    model(|| {
        let table = table(2);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || commit(&other, tuple(5).reversed()).is_ok());
        let here = commit(&table, tuple(5)).is_ok();
        let there = thread.join().unwrap();
        assert!(here ^ there);
        assert_eq!(table.counts().connections, 1);
        let (_, direction) = table.lookup(0, &tuple(5), NOW).unwrap();
        assert_eq!(direction == Direction::Original, here);
    });
}

/// The same, of packets that were tracked while there was no connection.
#[test]
fn loom_two_open_what_was_vacant() {
    model(|| {
        let table = table(2);
        let open = |table: &Connections, tuple: Tuple| {
            let tracked = table.track(0, &tuple, &Packet::Datagram, NOW);
            let new = New { vacant: tracked.vacant, ..New::plain(0, tuple) };
            table.commit(&new, &Packet::Datagram, 60, NOW, &mut |_| {}).is_ok()
        };
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || open(&other, tuple(5).reversed()));
        let here = open(&table, tuple(5));
        let there = thread.join().unwrap();
        assert!(here ^ there);
        assert_eq!(table.counts().connections, 1);
    });
}

/// Two whose packets become the same: one is opened.
#[test]
fn loom_two_are_translated_to_the_same() {
    model(|| {
        let table = table(2);
        let open = |table: &Connections, port: u16| {
            let original = tuple(port);
            let tracked = table.track(0, &original, &Packet::Datagram, NOW);
            let to = Lease::of(original.with_source([10, 0, 0, 9].into(), 40).unwrap());
            let new = New { vacant: tracked.vacant, ..New::plain(0, original) };
            let packet = (&Packet::Datagram, 60);
            table.commit_translated(&new, &to, packet, NOW, &mut |_| {}).is_ok()
        };
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || open(&other, 5));
        let here = open(&table, 6);
        let there = thread.join().unwrap();
        assert!(here ^ there);
        assert_eq!(table.counts().connections, 1);
    });
}

/// Frees the place of the first connection and takes it for another one.
fn change_hands(table: &Connections, first: Handle) -> Handle {
    assert!(table.remove(first, NOW, &mut |_| {}));
    commit(table, tuple(6)).unwrap()
}

/// A place is freed and taken for another connection while somebody looks the first one up: that is
/// found, or nothing.
#[test]
fn loom_a_lookup_meets_a_place_that_changes_hands() {
    model(|| {
        let table = table(1);
        let first = commit(&table, tuple(5)).unwrap();
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || other.lookup(0, &tuple(5), NOW));
        let second = change_hands(&table, first);
        let found = thread.join().unwrap();
        assert!(found.is_none_or(|(handle, _)| handle == first));
        assert_ne!(first.generation, second.generation);
        assert_eq!(table.lookup(0, &tuple(5), NOW), None);
    });
}

/// The same while a packet of the first one is tracked: what is said of it is not right afterwards.
#[test]
fn loom_a_packet_meets_a_place_that_changes_hands() {
    model(|| {
        let table = table(1);
        let first = commit(&table, tuple(5)).unwrap();
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || other.track(0, &tuple(5), &Packet::Datagram, NOW));
        change_hands(&table, first);
        let tracked = thread.join().unwrap();
        assert!(tracked.connection.is_none_or(|(handle, _)| handle == first));
        assert_eq!(tracked.ct_state, CtState::NEW | CtState::TRK);
        if tracked.connection.is_some() {
            assert_eq!(table.hit(tracked.reference, &Packet::Datagram, 60, NOW), Hit::Stale);
        }
    });
}

/// The same while the place is shown: as one of them whole, or as nobody's.
#[test]
fn loom_a_list_meets_a_place_that_changes_hands() {
    // So many words are read that two take minutes.
    model_of(1, || {
        let table = table(1);
        let first = commit(&table, tuple(5)).unwrap();
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || other.connection(0, NOW));
        change_hands(&table, first);
        let shown = thread.join().unwrap();
        if let Some(shown) = shown {
            let port = if shown.handle == first { 5 } else { 6 };
            assert_eq!(shown.original, tuple(port));
            assert_eq!(shown.reply, tuple(port).reversed());
        }
    });
}

/// What was decided without a connection is never held to be right after one is found.
#[test]
fn loom_a_stamp_is_raised_behind_a_connection() {
    model(|| {
        let table = table(1);
        let tracked = table.track(0, &tuple(5).reversed(), &Packet::Datagram, NOW);
        let other = Arc::clone(&table);
        let thread =
            thread::spawn(move || other.track(0, &tuple(5).reversed(), &Packet::Datagram, NOW));
        commit(&table, tuple(5)).unwrap();
        let again = thread.join().unwrap();
        let stale = table.hit(tracked.reference, &Packet::Datagram, 60, NOW);
        assert_eq!(stale, Hit::Stale);
        // Decided while it came: with it, or with a stamp that is void by now.
        match again.connection {
            Some((_, direction)) => assert_eq!(direction, Direction::Reply),
            None => {
                let hit = table.hit(again.reference, &Packet::Datagram, 60, NOW);
                assert_eq!(hit, Hit::Stale);
            }
        }
    });
}

/// Two packets of one direction on two workers, and one of the other direction: the latest sequence
/// number stays, and no packet is invalid.
#[test]
fn loom_two_workers_have_one_direction() {
    let segment = |flags: u8, sequence, acknowledgment, length| {
        let flags = TcpFlags(flags);
        let (window, scale, sacked) = (60_000, None, 0);
        Packet::Tcp(Segment { sequence, acknowledgment, window, flags, length, scale, sacked })
    };
    model(move || {
        let table = table(1);
        let original = Tuple { protocol: Protocol::TCP, ..tuple(5) };
        let take = |tuple: &Tuple, packet: &Packet| {
            let tracked = table.track(0, tuple, packet, NOW);
            assert!(matches!(table.hit(tracked.reference, packet, 60, NOW), Hit::Valid { .. }));
            tracked.reference
        };
        let new = New::plain(0, original);
        table.commit(&new, &segment(2, 1000, 0, 0), 60, NOW, &mut |_| {}).unwrap();
        take(&original.reversed(), &segment(0x12, 5000, 1001, 0));
        let reference = take(&original, &segment(0x10, 1001, 5001, 0));
        let other = Arc::clone(&table);
        let thread =
            thread::spawn(move || other.hit(reference, &segment(0x10, 1001, 5001, 100), 160, NOW));
        let here = table.hit(reference, &segment(0x10, 1101, 5001, 100), 160, NOW);
        let there = thread.join().unwrap();
        for hit in [here, there] {
            assert!(matches!(hit, Hit::Valid { .. }));
        }
        // All of it is acknowledged, and nothing more can be.
        let ask = |acknowledgment| {
            let packet = segment(0x10, 5001, acknowledgment, 0);
            table.track(0, &original.reversed(), &packet, NOW).ct_state
        };
        assert!(ask(1201).contains(CtState::EST));
        assert_eq!(ask(1202), CtState::INVALID);
    });
}

/// A hit and the end of its connection.
#[test]
fn loom_a_hit_meets_the_end() {
    model(|| {
        let table = table(1);
        let first = commit(&table, tuple(5)).unwrap();
        let answer = tuple(5).reversed();
        let reference = table.track(0, &answer, &Packet::Datagram, NOW).reference;
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert!(other.remove(first, NOW, &mut |_| {}));
            commit(&other, tuple(6)).unwrap();
        });
        table.hit(reference, &Packet::Datagram, 60, NOW);
        thread.join().unwrap();
        // The answer was not counted as one to the connection that came afterwards.
        assert!(!table.connection(0, NOW).unwrap().is_replied);
        assert_eq!(table.counts().connections, 1);
    });
}
