//! A NAT pool that two workers lend from and return to.

use core::net::IpAddr;

use loom::sync::Mutex;

use super::*;
use crate::nat::{Lease, NotLent, Pool, PoolSettings};

const OUTSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// One address with the ports from 1 to `last`.
fn settings(last: u16) -> PoolSettings {
    let addresses = "192.0.2.1".parse().unwrap();
    PoolSettings { ports: Some(1..=last), groups: 1, ..PoolSettings::new(addresses) }
}

fn pool(settings: PoolSettings) -> Arc<Pool> {
    Arc::new(Pool::new(settings, [1, 2]).unwrap())
}

fn from(host: u8) -> Tuple {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, host), Ipv4Addr::new(10, 9, 9, 9));
    Tuple::new(Addresses::V4 { source, destination }, Protocol::UDP, 1000 + u16::from(host), 53)
}

/// The port of a lease and its binding, where no connection has the tuple.
fn lend(pool: &Pool, host: u8) -> Result<(u16, u64), NotLent> {
    pool.lend(0, &from(host), |lease: &Lease| Ok((lease.translated.source, lease.binding)))
}

/// All ports that can be lent now.
fn rest(pool: &Pool) -> Vec<u16> {
    let mut ports: Vec<_> = core::iter::from_fn(|| Some(lend(pool, 99).ok()?.0)).collect();
    ports.sort_unstable();
    ports
}

/// Three want one of two ports: no port is lent twice, and who gets none is counted.
#[test]
fn loom_no_port_is_lent_twice() {
    model(|| {
        let pool = pool(settings(2));
        let others = [1, 2].map(|host| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || lend(&pool, host).map(|(port, _)| port))
        });
        let here = lend(&pool, 3).map(|(port, _)| port);
        let [one, two] = others.map(|thread| thread.join().unwrap());
        let mut lent: Vec<_> = [one, two, here].into_iter().flatten().collect();
        lent.sort_unstable();
        assert_eq!(lent, [1, 2]);
        let counts = pool.counts();
        assert_eq!((counts.lent, counts.returned, counts.exhausted), (2, 0, 1));
    });
}

/// What two have borrowed and returned can be lent again, all of it.
#[test]
fn loom_what_is_returned_can_be_lent_again() {
    model(|| {
        let pool = pool(settings(2));
        let use_one = |pool: &Pool, host| pool.give(lend(pool, host).unwrap().1);
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || use_one(&other, 1));
        use_one(&pool, 2);
        thread.join().unwrap();
        assert_eq!(pool.counts().lent, pool.counts().returned);
        assert_eq!(rest(&pool), [1, 2]);
    });
}

/// The last port of a word is taken while another one of it is returned: the summary of full words
/// hides neither.
#[test]
fn loom_a_full_word_is_open_again() {
    model(|| {
        // Port 63 is of the word before, from which all others are looked for by the summary.
        let ports = 63..=127u16;
        let count = ports.len() as u8;
        let pool = pool(PoolSettings { ports: Some(ports), ..settings(1) });
        let all: Vec<_> = (0..count).map(|host| lend(&pool, host).unwrap()).collect();
        let binding = |wanted| all.iter().find(|(port, _)| *port == wanted).unwrap().1;
        assert_eq!(lend(&pool, 99), Err(NotLent::Exhausted));
        pool.give(binding(64));
        let (other, returned) = (Arc::clone(&pool), binding(65));
        let thread = thread::spawn(move || other.give(returned));
        let here = lend(&pool, 100).unwrap().0;
        thread.join().unwrap();
        assert!([64, 65].contains(&here));
        assert_eq!(rest(&pool), [if here == 64 { 65 } else { 64 }]);
    });
}

/// All ports are in use, one of them twice, as its destinations differ. It is tried for one of them
/// while the other worker's connection to that ends: it is not held to be in vain afterwards.
#[test]
fn loom_a_shared_port_is_not_forgotten() {
    model(|| {
        let pool = pool(PoolSettings { groups: 2, ..settings(1) });
        lend(&pool, 1).unwrap();
        // Whether a connection has the port and the destination.
        let taken = Arc::new(Mutex::new(false));
        let share = |pool: &Pool, taken: &Mutex<bool>| {
            pool.lend(0, &from(2), |lease| {
                let mut taken = taken.lock().unwrap();
                let is_taken = core::mem::replace(&mut *taken, true);
                if is_taken { Err(Refused::TupleTaken) } else { Ok(lease.binding) }
            })
        };
        let binding = share(&pool, &taken).unwrap();
        let (other, other_taken) = (Arc::clone(&pool), Arc::clone(&taken));
        let thread = thread::spawn(move || {
            *other_taken.lock().unwrap() = false;
            other.give(binding);
        });
        let here = share(&pool, &taken);
        thread.join().unwrap();
        if here.is_err() {
            assert!(share(&pool, &taken).is_ok());
        }
        assert_eq!(share(&pool, &taken), Err(NotLent::Exhausted));
    });
}

/// An inside address and port has one mapping, whoever asks for it, as long as somebody has it.
#[test]
fn loom_a_mapping_is_one_and_ends() {
    model(|| {
        let pool = pool(PoolSettings { endpoint_independent: true, ..settings(2) });
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || lend(&other, 1).unwrap());
        let (port, binding) = lend(&pool, 1).unwrap();
        let (same, again) = thread.join().unwrap();
        assert_eq!(port, same);
        let inside = |port| pool.inside(Protocol::UDP, OUTSIDE, port);
        // One is returned while another one comes.
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.give(again));
        let (same, third) = lend(&pool, 1).unwrap();
        thread.join().unwrap();
        assert_eq!(port, same);
        assert!(inside(port).is_some());
        pool.give(binding);
        assert!(inside(port).is_some());
        pool.give(third);
        assert_eq!(inside(port), None);
        let [first, second] = [2, 3].map(|host| lend(&pool, host).unwrap().0);
        assert_ne!(first, second);
        assert_eq!(lend(&pool, 4), Err(NotLent::Exhausted));
    });
}

/// A block of one port is returned while another source wants it: who has the block has its port, and
/// it is nobody's in the end.
#[test]
fn loom_a_block_comes_with_its_ports() {
    model(|| {
        let pool = pool(PoolSettings { block_size: Some(1), ..settings(1) });
        let (_, binding) = lend(&pool, 1).unwrap();
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.give(binding));
        let there = lend(&pool, 2);
        thread.join().unwrap();
        match there {
            Ok((_, binding)) => pool.give(binding),
            Err(why) => assert_eq!(why, NotLent::Exhausted),
        }
        let (port, _) = lend(&pool, 3).unwrap();
        assert_eq!(port, 1);
        let (events, lost) = pool.take_block_events();
        let assigned = events.iter().filter(|(_, event)| event.is_assigned).count();
        assert_eq!((lost, events.len() - assigned), (0, assigned - 1));
    });
}
