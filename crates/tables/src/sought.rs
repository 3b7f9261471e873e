//! Neighbours that were asked for and have not answered yet, for all workers.
//!
//! A reply may come to another worker than the one that asked. So that nobody can fill the table of
//! neighbours with stations that were never asked for, a worker reports a neighbour only if it is
//! in here, or known and moved.

use core::fmt;
use core::hash::Hash;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::hash::Hasher;
use std::net::IpAddr;

use packet::Time;
use siphasher::sip::SipHasher13;
use wire::PortId;

/// How long an answer is waited for. Longer than the packets wait that it is asked for, as a
/// gateway that has too much to do reads answers late.
const ANSWER: Duration = Duration::from_secs(8);

/// Slots for each worker, which seeks at most 1024 next hops at once: one in eight is used.
const SLOTS: usize = 8192;

/// Slots that a neighbour may be in.
const WAYS: usize = 4;

/// A slot has the upper bits of the neighbour's hash, and below them until when it is valid, in
/// units of 2^26 ns (67 ms). The time wraps around after 13 days.
const TIME_BITS: u32 = 24;
const TIME_UNIT: u32 = 26;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// A set of neighbours, each for a while. It may be read and written by several threads; a
/// neighbour that is lost because two threads wrote one slot is asked for again a second later.
pub struct Sought {
    slots: Box<[AtomicU64]>,
    hasher: SipHasher13,
}

impl Sought {
    /// An empty set for so many workers. `secret` keys the hash, so that no sender can choose who
    /// is taken for whom.
    pub(crate) fn new(workers: usize, secret: u64) -> Self {
        let slots = (SLOTS * workers.max(1)).next_power_of_two();
        Self {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            hasher: SipHasher13::new_with_keys(secret, secret.rotate_left(24)),
        }
    }

    /// Takes note that `address` on the link of `port` is asked for now. With the port is said its
    /// [`crate::Port::since`].
    pub fn ask(&self, now: Time, port: (PortId, u64), address: IpAddr) {
        let (tag, ways) = self.place(port, address);
        let until = (now + ANSWER).0 >> TIME_UNIT;
        let left = |slot: &&AtomicU64| {
            let word = slot.load(Ordering::Relaxed);
            if word & !TIME_MASK == tag { -1 } else { remaining(word, now) }
        };
        // Its own slot, or that whose time has run out or will first.
        if let Some(slot) = ways.iter().min_by_key(left) {
            slot.store(tag | until & TIME_MASK, Ordering::Relaxed);
        }
    }

    /// Whether `address` on the link of `port` has been asked for and not taken since. One answer
    /// to a question is enough. What was asked before [`crate::Port::since`] was asked by another
    /// port of this number, or in another VRF, and is no question of this one.
    pub fn take(&self, now: Time, port: (PortId, u64), address: IpAddr) -> bool {
        let (tag, ways) = self.place(port, address);
        ways.iter().any(|slot| {
            let word = slot.load(Ordering::Relaxed);
            word & !TIME_MASK == tag
                && remaining(word, now) > 0
                && slot.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }

    fn place(&self, port: (PortId, u64), address: IpAddr) -> (u64, &[AtomicU64]) {
        let mut hasher = self.hasher;
        (port, address).hash(&mut hasher);
        let hash = hasher.finish();
        let first = hash as usize & (self.slots.len() - 1) & !(WAYS - 1);
        (hash & !TIME_MASK, &self.slots[first..first + WAYS])
    }
}

/// How many units of time a slot is still valid, at least 0.
fn remaining(word: u64, now: Time) -> i64 {
    let left = (word & TIME_MASK).wrapping_sub(now.0 >> TIME_UNIT) & TIME_MASK;
    // What is farther away than any answer is in the past. An empty slot is so nearly always.
    if word == 0 || left > ANSWER.as_nanos() as u64 >> (TIME_UNIT - 1) { 0 } else { left as i64 }
}

impl fmt::Debug for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sought").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: (PortId, u64) = (PortId(3), 7);

    fn station(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn an_answer_is_taken_once_and_in_time() {
        let sought = Sought::new(1, 7);
        // Also where the time wraps around.
        for begin in [0, 50_000_000_000, (1 << (TIME_BITS + TIME_UNIT)) - 1_000_000_000] {
            let at = |milliseconds: u64| Time(begin + milliseconds * 1_000_000);
            assert!(!sought.take(at(0), PORT, station(1)));
            sought.ask(at(0), PORT, station(1));
            assert!(!sought.take(at(1), (PortId(4), 7), station(1)), "another port");
            assert!(!sought.take(at(1), (PortId(3), 8), station(1)), "the port in another VRF");
            assert!(!sought.take(at(1), PORT, station(2)));
            assert!(sought.take(at(1), PORT, station(1)));
            assert!(!sought.take(at(1), PORT, station(1)));

            sought.ask(at(0), PORT, station(1));
            sought.ask(at(1000), PORT, station(1));
            assert!(sought.take(at(8800), PORT, station(1)));
            assert!(!sought.take(at(8801), PORT, station(1)));
            sought.ask(at(0), PORT, station(1));
            assert!(!sought.take(at(8200), PORT, station(1)));
        }
    }

    #[test]
    fn all_that_may_be_sought_at_once_have_room() {
        let sought = Sought::new(2, 7);
        let now = Time(1_000_000_000);
        (0..2048).for_each(|number| sought.ask(now, PORT, station(number)));
        let found = (0..2048).filter(|number| sought.take(now, PORT, station(*number))).count();
        assert!(found >= 2040, "{found}");
        assert_eq!(
            (0..60_000).filter(|number| sought.take(now, PORT, station(*number))).count(),
            0
        );
    }
}
