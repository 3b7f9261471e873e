//! Connections that others have announced, of which the announcing one may end meanwhile.

use core::net::IpAddr;

use loom::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{Expectation, NotExpected};

const DATA: u16 = 77;

fn expecting() -> Arc<Connections> {
    let settings = Settings {
        connections: 4,
        ipv6_connections: 0,
        workers: 2,
        expectations: 4,
        ..Settings::default()
    };
    Arc::new(Connections::new(&settings, [1, 2], NOW).unwrap())
}

fn expect(table: &Connections, master: Handle) -> Result<(), NotExpected> {
    let expected = Expectation {
        zone: 0,
        master,
        protocol: Protocol::UDP,
        source: None,
        source_port: None,
        destination: IpAddr::from([10, 0, 0, 2]),
        destination_port: DATA,
        translated: None,
        translated_source: None,
        helper: 0,
        is_permanent: false,
        until: Time(NOW.0 + (1 << 40)),
    };
    table.expect(expected, 1, NOW)
}

fn data(port: u16) -> Tuple {
    Tuple { destination: DATA, ..tuple(port) }
}

/// What is expected comes, if it is found to be. Returns whether it is a connection then.
fn come(table: &Connections, port: u16, before: impl FnOnce()) -> Option<Result<Handle, Refused>> {
    let tracked = table.track(0, &data(port), &Packet::Datagram, NOW);
    let expected = tracked.expected?;
    let new = New {
        master: Some(expected.master.index),
        vacant: tracked.vacant,
        ..New::plain(0, data(port))
    };
    before();
    Some(table.commit(&new, &Packet::Datagram, 60, NOW, &mut |_| {}))
}

/// Two come for one that is expected: it is one of them.
#[test]
fn loom_an_expectation_is_used_once() {
    model(|| {
        let table = expecting();
        let master = commit(&table, tuple(5)).unwrap();
        expect(&table, master).unwrap();
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || come(&other, 100, || {}));
        let here = come(&table, 101, || {});
        let there = thread.join().unwrap();
        let made = [here, there].into_iter().flatten().filter(Result::is_ok).count();
        assert_eq!(made, 1);
        assert_eq!(table.expectations(), []);
        assert_eq!(table.counts().connections, 2);
    });
}

/// A connection announces another one while it ends, and its place is used again: nothing is expected
/// any more.
#[test]
fn loom_nothing_is_expected_by_who_has_ended() {
    model(|| {
        let table = table(1);
        let master = commit(&table, tuple(5)).unwrap();
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert!(other.remove(master, NOW, &mut |_| {}));
            commit(&other, tuple(6)).unwrap();
        });
        _ = expect(&table, master);
        thread.join().unwrap();
        assert_eq!(table.expectations(), []);
        assert_eq!(table.track(0, &data(100), &Packet::Datagram, NOW).expected, None);
    });
}

/// Who announced it ends while it comes: it is not taken for expected once that is over.
#[test]
fn loom_what_comes_late_is_not_expected() {
    model(|| {
        let table = expecting();
        let master = commit(&table, tuple(5)).unwrap();
        expect(&table, master).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (other, over) = (Arc::clone(&table), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            assert!(other.remove(master, NOW, &mut |_| {}));
            over.store(true, Ordering::Release);
        });
        let mut was_over = false;
        let come = come(&table, 100, || was_over = is_over.load(Ordering::Acquire));
        assert!(!(was_over && matches!(come, Some(Ok(_)))));
        thread.join().unwrap();
        assert_eq!(table.expectations(), []);
    });
}

/// It is announced while its packet comes: what was said of that without is void afterwards.
#[test]
fn loom_what_was_not_expected_is_decided_again() {
    model(|| {
        let table = expecting();
        let master = commit(&table, tuple(5)).unwrap();
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || expect(&other, master).unwrap());
        let tracked = table.track(0, &data(100), &Packet::Datagram, NOW);
        thread.join().unwrap();
        if tracked.expected.is_none() {
            let hit = table.hit(tracked.reference, &Packet::Datagram, 60, NOW);
            assert_eq!(hit, Hit::Stale);
        }
    });
}
