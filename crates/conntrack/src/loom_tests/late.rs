//! A worker still has the name of a connection whose place another one frees and uses again.

use core::time::Duration;

use super::*;
use crate::entry::{Side, mark, word};
use crate::sync::Ordering;

fn tcp(port: u16) -> Tuple {
    Tuple { protocol: Protocol::TCP, ..tuple(port) }
}

fn segment(flags: u8, sequence: u32, acknowledgment: u32, length: u32) -> Packet {
    let (window, scale, sacked) = (60_000, None, 0);
    let flags = TcpFlags(flags);
    Packet::Tcp(Segment { sequence, acknowledgment, window, flags, length, scale, sacked })
}

fn open(table: &Connections, tuple: Tuple, sequence: u32) -> Handle {
    let syn = segment(2, sequence, 0, 0);
    table.commit(&New::plain(0, tuple), &syn, 60, NOW, &mut |_| {}).unwrap()
}

fn take(table: &Connections, tuple: &Tuple, packet: &Packet) -> crate::Reference {
    let tracked = table.track(0, tuple, packet, NOW);
    assert!(matches!(table.hit(tracked.reference, packet, 60, NOW), Hit::Valid { .. }));
    tracked.reference
}

fn sides(table: &Connections) -> [Side; 2] {
    table.entries[0].lines.each_ref().map(Side::load)
}

/// The answer to a SYN comes while its connection ends: the next one at its place has no answer.
#[test]
fn loom_a_late_answer_is_not_the_next_connections() {
    model(|| {
        let table = table(1);
        let first = open(&table, tcp(5), 1000);
        let answer = segment(0x12, 5000, 1001, 0);
        let reference = table.track(0, &tcp(5).reversed(), &answer, NOW).reference;
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert!(other.remove(first, NOW, &mut |_| {}));
            open(&other, tcp(6), 7000);
        });
        table.hit(reference, &answer, 60, NOW);
        thread.join().unwrap();
        let now = sides(&table);
        assert_eq!(now[0].end(), 7001);
        // Nothing was sent in this direction.
        let marks = now.each_ref().map(|side| side.seen & (mark::SENT | mark::ACKNOWLEDGED));
        let [.., answer] = now;
        assert_eq!(marks, [mark::SENT, 0]);
        assert_eq!((answer.end(), answer.most_window()), (0, 0));
    });
}

/// The end of a handshake comes while its connection ends: the next one at its place, which was opened
/// alike, has acknowledged nothing.
#[test]
fn loom_a_late_acknowledgment_is_not_the_next_connections() {
    model(|| {
        let table = table(1);
        let first = open(&table, tcp(5), 1000);
        take(&table, &tcp(5).reversed(), &segment(0x12, 5000, 1001, 0));
        let acknowledgment = segment(0x10, 1001, 5001, 0);
        let reference = table.track(0, &tcp(5), &acknowledgment, NOW).reference;
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert!(other.remove(first, NOW, &mut |_| {}));
            open(&other, tcp(6), 7000);
        });
        table.hit(reference, &acknowledgment, 60, NOW);
        thread.join().unwrap();
        let [own, _] = sides(&table);
        assert!(!own.has(mark::ACKNOWLEDGED));
        assert_eq!((own.end(), own.acknowledged()), (7001, 0));
    });
}

/// Data comes while its connection ends and another one is established at its place, of which it would
/// be right: it changes nothing there.
#[test]
fn loom_late_data_is_not_the_next_connections() {
    let establish = |table: &Connections, tuple: Tuple| {
        let handle = open(table, tuple, 1000);
        take(table, &tuple.reversed(), &segment(0x12, 5000, 1001, 0));
        let reference = take(table, &tuple, &segment(0x10, 1001, 5001, 0));
        (handle, reference)
    };
    model(move || {
        let table = table(1);
        let (first, reference) = establish(&table, tcp(5));
        take(&table, &tcp(5), &segment(0x10, 1001, 5001, 100));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert!(other.remove(first, NOW, &mut |_| {}));
            establish(&other, tcp(6));
        });
        let Packet::Tcp(data) = segment(0x10, 1101, 5001, 100) else { unreachable!() };
        let usual = table.hit_segment(reference, &data, 160, NOW);
        if usual.is_none() {
            table.hit(reference, &Packet::Tcp(data), 160, NOW);
        }
        thread.join().unwrap();
        assert_eq!(sides(&table).map(|side| side.end()), [1001, 5001]);
    });
}

/// What is counted late is a packet too much at most.
#[test]
fn loom_a_late_count_is_one_packet() {
    model(|| {
        let settings = Settings {
            connections: 1,
            ipv6_connections: 0,
            workers: 2,
            accounting: true,
            ..Settings::default()
        };
        let table = Arc::new(Connections::new(&settings, [1, 2], NOW).unwrap());
        let first = commit(&table, tuple(5)).unwrap();
        let reference = take(&table, &tuple(5), &Packet::Datagram);
        take(&table, &tuple(5), &Packet::Datagram);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert!(other.remove(first, NOW, &mut |_| {}));
            commit(&other, tuple(6)).unwrap();
        });
        table.hit(reference, &Packet::Datagram, 60, NOW);
        thread.join().unwrap();
        let [counted, _] = table.connection(0, NOW).unwrap().counters;
        assert!(counted.packets <= 2 && counted.bytes <= 120, "{counted:?}");
    });
}

/// A deadline is set while its connection ends: that of the next one is its own.
#[test]
fn loom_a_late_deadline_is_not_the_next_connections() {
    model(|| {
        let table = table(1);
        let first = commit(&table, tuple(5)).unwrap();
        let usual = table.connection(0, NOW).unwrap().deadline;
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert!(other.remove(first, NOW, &mut |_| {}));
            commit(&other, tuple(6)).unwrap();
        });
        table.set_deadline(first, NOW + Duration::from_secs(5000), NOW);
        thread.join().unwrap();
        assert_eq!(table.connection(0, NOW).unwrap().deadline, usual);
        let seen = table.entries[0].lines[0].0[word::SEEN].load(Ordering::Acquire);
        assert_eq!(seen >> 32, NOW.0 >> 26);
    });
}

/// A mark is set while its connection ends: the next one has none, and its name stays.
#[test]
fn loom_a_late_mark_is_not_the_next_connections() {
    model(|| {
        let table = table(1);
        let first = commit(&table, tuple(5)).unwrap();
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            // It has another name if it is marked already.
            let marked = other.connection(0, NOW).map_or(first, |one| one.handle);
            other.remove(marked, NOW, &mut |_| {}).then(|| commit(&other, tuple(6)).unwrap())
        });
        let marked = table.set_mark(first, 7, 0xff);
        let second = thread.join().unwrap();
        let shown = table.connection(0, NOW).unwrap();
        match second {
            Some(second) => assert_eq!((shown.handle, shown.mark), (second, 0)),
            None => assert_eq!((Some(shown.handle), shown.mark), (marked, 7)),
        }
    });
}
