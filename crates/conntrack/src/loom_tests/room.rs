//! A full table, of which two workers want a place, or one while the other's packet says that a
//! connection is to stay.

use super::*;

/// Of a protocol without states: an answer assures it.
fn generic() -> Tuple {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 3));
    Tuple::new(Addresses::V4 { source, destination }, Protocol(253), 0, 0)
}

fn assured(table: &Connections) -> Handle {
    let handle = commit(table, generic()).unwrap();
    let answer = table.track(0, &generic().reversed(), &Packet::Datagram, NOW);
    assert!(matches!(table.hit(answer.reference, &Packet::Datagram, 60, NOW), Hit::Valid { .. }));
    handle
}

/// Those that there are, and that the counters say the same, of so many that were told to have ended.
fn living(table: &Connections, told: u64) -> usize {
    let all = (0..table.settings().connections).filter_map(|at| table.connection(at, NOW));
    let living = all.count();
    let counts = table.counts();
    assert_eq!(counts.connections as usize, living);
    assert_eq!(counts.expired + counts.early_drop + counts.reused + counts.deleted, told);
    assert_eq!(counts.made, living as u64 + told);
    living
}

/// Commits a datagram's connection, and says whether it is there and how many have ended for it.
fn crowd_in(table: &Connections, tuple: Tuple) -> (Result<Handle, Refused>, u64) {
    let mut told = 0;
    let new = New::plain(0, tuple);
    let made = table.commit(&new, &Packet::Datagram, 60, NOW, &mut |ended| {
        told += ended.len() as u64;
    });
    (made, told)
}

/// Two make room at once: each has its place, and the counters add up.
#[test]
fn loom_two_make_room() {
    model(|| {
        let table = table(2);
        commit(&table, tuple(5)).unwrap();
        commit(&table, tuple(6)).unwrap();
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || crowd_in(&other, tuple(8)));
        let (here, told_here) = crowd_in(&table, tuple(7));
        let (there, told_there) = thread.join().unwrap();
        assert!(here.is_ok() && there.is_ok());
        assert_eq!(living(&table, told_here + told_there), 2);
    });
}

/// A connection is answered while another one wants its place: it stays, or the answer comes too late.
#[test]
fn loom_who_is_assured_makes_no_room() {
    model(|| {
        let table = table(1);
        let first = commit(&table, generic()).unwrap();
        let answer = table.track(0, &generic().reversed(), &Packet::Datagram, NOW);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || crowd_in(&other, tuple(7)));
        let hit = table.hit(answer.reference, &Packet::Datagram, 60, NOW);
        let (made, told) = thread.join().unwrap();
        let stays = hit != Hit::Stale;
        assert_eq!(made.err(), stays.then_some(Refused::Full));
        assert_eq!(living(&table, told), 1);
        let shown = table.connection(0, NOW).unwrap();
        assert_eq!(shown.handle == first && shown.is_assured, stays);
    });
}

/// One that is there already is committed again in a full table, while another worker makes room:
/// nobody goes for the one that is refused.
#[test]
fn loom_nobody_goes_for_who_is_refused() {
    model(|| {
        let table = table(2);
        assured(&table);
        commit(&table, tuple(6)).unwrap();
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || crowd_in(&other, tuple(7)));
        let (again, told_again) = crowd_in(&table, generic().reversed());
        let (made, told) = thread.join().unwrap();
        assert_eq!((again, told_again), (Err(Refused::Exists), 0));
        assert!(made.is_ok());
        assert_eq!(told, 1);
        assert_eq!(living(&table, told), 2);
    });
}

/// A connection is assured, and ends before it is noted that it makes no more room: the next one at
/// its place still does.
#[test]
fn loom_who_comes_next_makes_room() {
    model(|| {
        let table = table(1);
        let first = commit(&table, generic()).unwrap();
        let answer = table.track(0, &generic().reversed(), &Packet::Datagram, NOW);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert!(other.remove(first, NOW, &mut |_| {}));
            commit(&other, tuple(6)).unwrap();
        });
        table.hit(answer.reference, &Packet::Datagram, 60, NOW);
        thread.join().unwrap();
        let (made, told) = crowd_in(&table, tuple(7));
        assert!(made.is_ok());
        assert_eq!(living(&table, 1 + told), 1);
    });
}
