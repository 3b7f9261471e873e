//! Authentic packets that wait until their sequence numbers may be accepted.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use packet::{Packet, Time};
use types::HighestShares;
use wire::VrfId;

use crate::shares::Shares;

/// The most packets that wait.
const MAX_PACKETS: usize = 1024;

/// No packet waits longer: the disk does not write.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long after one look whether packets may go on the next one is.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// Packets that wait in the order in which they came, each with `T`, by which their owner knows
/// whether they may go on.
///
/// VRFs share it: where there is no room, a VRF that has fewer packets than another one gets the
/// place of the oldest of the one that has most. So it is with large packets
/// ([`Packet::is_large`]), of which fewer may wait, as there are few buffers for them.
pub struct EdgeQueue<T> {
    packets: VecDeque<Waiting<T>>,
    most: usize,
    shares: Shares,
    large: usize,
    most_large: usize,
    shares_of_large: Shares,
    look: Time,
}

struct Waiting<T> {
    since: Time,
    vrf: VrfId,
    what: T,
    packet: Packet,
}

/// What is to become of a packet that waits.
#[derive(Debug)]
pub enum Release {
    /// It was taken.
    Taken,
    /// It waits on.
    Waits(Packet),
}

impl<T> EdgeQueue<T> {
    /// An empty queue for at most `packets` packets, or 1024, of these `large` large ones.
    pub fn new(packets: usize, large: usize) -> Self {
        let most = packets.min(MAX_PACKETS);
        let most_large = large.min(most);
        Self {
            packets: VecDeque::with_capacity(most),
            most,
            shares: Shares::new(most),
            large: 0,
            most_large,
            shares_of_large: Shares::new(most_large),
            look: Time(0),
        }
    }

    /// From now on no VRF takes more than its highest share.
    pub fn limit(&mut self, highest: &HighestShares) {
        self.shares.limit(highest);
        self.shares_of_large.limit(highest);
    }

    /// Whether no packet waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// When to look whether packets may go on.
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        (!self.packets.is_empty()).then_some(self.look)
    }

    /// Whether a packet of which this is true waits.
    pub fn any(&self, is_it: impl Fn(&T) -> bool) -> bool {
        self.packets.iter().any(|waiting| is_it(&waiting.what))
    }

    /// Lets a packet of `vrf` wait behind the others. Returns the one that gives way to it, or
    /// itself, if there is no room.
    pub fn hold(&mut self, now: Time, vrf: VrfId, what: T, packet: Packet) -> Option<(T, Packet)> {
        let is_large = packet.is_large();
        if self.shares.is_at_highest(vrf) || is_large && self.shares_of_large.is_at_highest(vrf) {
            return Some((what, packet));
        }
        let lacks_large = is_large && self.large == self.most_large;
        let mut given_up = None;
        if lacks_large || self.packets.len() == self.most {
            let shares = if lacks_large { &self.shares_of_large } else { &self.shares };
            let oldest = shares.gives_way_to(vrf).and_then(|from| {
                let gives_way = |waiting: &Waiting<T>| {
                    waiting.vrf == from && (!lacks_large || waiting.packet.is_large())
                };
                self.packets.iter().position(gives_way)
            });
            let Some(oldest) = oldest.and_then(|oldest| self.packets.remove(oldest)) else {
                return Some((what, packet));
            };
            self.left(oldest.vrf, oldest.packet.is_large());
            given_up = Some((oldest.what, oldest.packet));
        }
        if self.packets.is_empty() {
            self.look = now + LOOK_AGAIN;
        }
        self.shares.take(vrf);
        if is_large {
            self.large += 1;
            self.shares_of_large.take(vrf);
        }
        self.packets.push_back(Waiting { since: now, vrf, what, packet });
        given_up
    }

    /// Counts a packet that does not wait any more.
    fn left(&mut self, vrf: VrfId, is_large: bool) {
        self.shares.give_back(vrf, 1);
        if is_large {
            self.large -= 1;
            self.shares_of_large.give_back(vrf, 1);
        }
    }

    /// Offers each packet to `judge`, in the order in which they came, with whether it has waited
    /// for as long as it may.
    pub fn release(&mut self, now: Time, mut judge: impl FnMut(&T, bool, Packet) -> Release) {
        for _ in 0..self.packets.len() {
            let Some(Waiting { since, vrf, what, packet }) = self.packets.pop_front() else {
                break;
            };
            let is_large = packet.is_large();
            match judge(&what, now.since(since) >= PATIENCE, packet) {
                Release::Taken => self.left(vrf, is_large),
                Release::Waits(packet) => {
                    self.packets.push_back(Waiting { since, vrf, what, packet });
                }
            }
        }
        self.look = now + LOOK_AGAIN;
    }
}

impl<T> fmt::Debug for EdgeQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeQueue").field("packets", &self.packets.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use packet::Pool;

    use super::*;

    const RED: VrfId = VrfId(1);
    const BLUE: VrfId = VrfId(2);

    /// What waits, in order.
    fn waiting(queue: &mut EdgeQueue<u32>) -> Vec<u32> {
        let mut seen = Vec::new();
        queue.release(Time(0), |number, _, packet| {
            seen.push(*number);
            Release::Waits(packet)
        });
        seen
    }

    #[test]
    fn packets_go_on_in_the_order_in_which_they_came() {
        let mut pool = Pool::new(8);
        let mut queue = EdgeQueue::new(8, 0);
        assert_eq!(queue.next_deadline(), None);
        for number in 0..6 {
            assert!(queue.hold(Time(1), RED, number, pool.take().unwrap()).is_none());
        }
        assert!(queue.any(|number| *number == 5) && !queue.any(|number| *number == 6));
        assert_eq!(queue.next_deadline(), Some(Time(1) + LOOK_AGAIN));
        let mut went = Vec::new();
        queue.release(Time(1) + PATIENCE, |number, is_late, packet| {
            assert!(is_late);
            if number % 2 == 0 {
                return Release::Waits(packet);
            }
            went.push(*number);
            pool.give(packet);
            Release::Taken
        });
        assert_eq!((went, waiting(&mut queue)), (vec![1, 3, 5], vec![0, 2, 4]));
    }

    #[test]
    fn who_has_most_gives_way() {
        let mut pool = Pool::new(16);
        let mut queue = EdgeQueue::new(4, 0);
        for number in 0..4 {
            assert!(queue.hold(Time(0), RED, number, pool.take().unwrap()).is_none());
        }
        // Its own do not: what came first goes on first.
        let refused = queue.hold(Time(0), RED, 9, pool.take().unwrap());
        assert_eq!(refused.map(|(number, packet)| (number, pool.give(packet)).0), Some(9));
        for (number, oldest) in [(10, 0), (11, 1)] {
            let gave_way = queue.hold(Time(0), BLUE, number, pool.take().unwrap());
            assert_eq!(
                gave_way.map(|(number, packet)| (number, pool.give(packet)).0),
                Some(oldest)
            );
        }
        let refused = queue.hold(Time(0), BLUE, 12, pool.take().unwrap());
        assert_eq!(refused.map(|(number, packet)| (number, pool.give(packet)).0), Some(12));
        assert_eq!(waiting(&mut queue), [2, 3, 10, 11]);
        queue.release(Time(0), |_, is_late, packet| {
            assert!(!is_late);
            pool.give(packet);
            Release::Taken
        });
        assert_eq!((queue.is_empty(), pool.available()), (true, 16));
        assert_eq!((queue.shares.of(RED), queue.shares.of(BLUE)), (0, 0));
    }

    #[test]
    fn who_has_most_large_packets_gives_way() {
        let mut pool = Pool::with_large(16, 16);
        let mut queue = EdgeQueue::new(8, 4);
        let mut hold = |queue: &mut EdgeQueue<u32>, vrf, number, is_large| {
            let packet = if is_large { pool.take_large() } else { pool.take() };
            let given_up = queue.hold(Time(0), vrf, number, packet.unwrap());
            given_up.map(|(number, packet)| (number, pool.give(packet)).0)
        };
        assert_eq!(hold(&mut queue, RED, 0, false), None);
        for number in 1..5 {
            assert_eq!(hold(&mut queue, RED, number, true), None);
        }
        assert_eq!(hold(&mut queue, RED, 9, true), Some(9), "its own do not");
        assert_eq!(hold(&mut queue, RED, 5, false), None, "small packets have room");
        assert_eq!(hold(&mut queue, BLUE, 10, true), Some(1));
        assert_eq!(hold(&mut queue, BLUE, 11, true), Some(2));
        assert_eq!(hold(&mut queue, BLUE, 12, true), Some(12));
        assert_eq!(hold(&mut queue, BLUE, 13, false), None);
        assert_eq!(hold(&mut queue, RED, 14, false), None);
        // Full of small ones, too: a large one gives way as any other does.
        for (number, oldest) in [(20, 0), (21, 3)] {
            assert_eq!(hold(&mut queue, VrfId(3), number, false), Some(oldest));
        }
        assert_eq!((queue.large, queue.shares_of_large.of(RED)), (3, 1));
        assert_eq!(waiting(&mut queue), [4, 5, 10, 11, 13, 14, 20, 21]);
        queue.release(Time(0), |_, _, packet| {
            pool.give(packet);
            Release::Taken
        });
        assert_eq!((queue.is_empty(), queue.large, pool.available()), (true, 0, 32));
        assert_eq!(queue.shares_of_large.largest(), None);
    }

    #[test]
    fn one_vrf_holds_no_more_than_its_highest_share() {
        let mut pool = Pool::with_large(16, 16);
        let mut queue = EdgeQueue::new(8, 4);
        queue.limit(&crate::shares::limited_to(50));
        let mut hold = |vrf, is_large| {
            let packet = if is_large { pool.take_large() } else { pool.take() };
            match queue.hold(Time(0), vrf, 0, packet.unwrap()) {
                Some((_, packet)) => {
                    pool.give(packet);
                    false
                }
                None => true,
            }
        };
        assert_eq!((0..4).filter(|_| hold(RED, true)).count(), 2, "half of the large ones");
        assert_eq!((0..9).filter(|_| hold(RED, false)).count(), 2, "and of all");
        assert_eq!((0..4).filter(|_| hold(BLUE, false)).count(), 4);
        queue.release(Time(0), |_, _, packet| {
            pool.give(packet);
            Release::Taken
        });
    }
}
