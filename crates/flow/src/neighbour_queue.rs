//! Packets that wait until their next hop's Ethernet address is known.

use core::fmt;
use core::time::Duration;
use std::net::IpAddr;

use arrayvec::ArrayVec;
use packet::{DropReason, Packet, Time};
use wire::{PortId, VrfId};

use crate::deadline::Deadlines;
use crate::shares::Shares;

/// The most next hops that are sought at once.
const MAX_NEXT_HOPS: usize = 1024;
/// The most packets that wait for one of them.
const MAX_PACKETS: usize = 32;
/// How often one is asked for (RFC 4861 section 10: MAX_MULTICAST_SOLICIT).
const MAX_ASKED: u8 = 3;
/// How long an answer is waited for each time (RFC 4861 section 10: RETRANS_TIMER).
const RETRANSMIT: Duration = Duration::from_secs(1);

/// What became of a packet given to [`NeighbourQueue::hold`].
#[derive(Debug)]
pub enum Held {
    /// It waits, and is the first to: the next hop must be asked for now.
    Ask,
    /// It waits with others.
    Waiting,
    /// There was no room. Of a full queue this is the packet that waited longest, and the new one
    /// waits (RFC 4861 section 7.2.2); where too many next hops are sought already it is the new
    /// one.
    Refused(Packet, DropReason),
}

/// Packets that wait for next hops: at most 1024 next hops are sought at once, and at most 32
/// packets wait for each.
///
/// A sender can fill this with packets to many absent stations, so it has three bounds:
///
/// - All packets together are at most as many as it was made for. Otherwise they could take every
///   buffer, and none would be left to receive the answers.
/// - One port and family seeks no more next hops than are left to all others: alone at most half,
///   the next one at most a quarter. So a scan of a link leaves room to the other ports, and to the
///   other family.
/// - Each next hop has room for one packet, however many wait for other next hops.
///
/// VRFs share it: where there is no room, a VRF that seeks fewer next hops than another one, or has
/// fewer packets behind others, gets the place of the one that has most.
pub struct NeighbourQueue {
    places: Box<[Sought]>,
    deadlines: Deadlines,
    /// Places in use, by port and next hop.
    order: Vec<u16>,
    free: Vec<u16>,
    /// Packets that wait behind another one.
    behind: usize,
    /// How many of those there may be.
    most_behind: usize,
    /// Next hops that VRFs seek.
    sought: Shares,
    /// Packets of VRFs that wait behind another one.
    queued: Shares,
}

struct Sought {
    vrf: VrfId,
    port: PortId,
    next_hop: IpAddr,
    asked: u8,
    packets: ArrayVec<Packet, MAX_PACKETS>,
    /// Whose each of them is: its sender's VRF, if somebody else than the gateway sent it.
    senders: ArrayVec<Option<VrfId>, MAX_PACKETS>,
}

impl NeighbourQueue {
    /// An empty queue for at most `packets` packets; half of them, or 1024, may be the first
    /// for their next hop.
    pub fn new(packets: usize) -> Self {
        let empty = || Sought {
            vrf: VrfId::MAIN,
            port: PortId(0),
            next_hop: [0; 4].into(),
            asked: 0,
            packets: ArrayVec::new(),
            senders: ArrayVec::new(),
        };
        let next_hops = MAX_NEXT_HOPS.min(packets / 2);
        Self {
            places: (0..next_hops).map(|_| empty()).collect(),
            deadlines: Deadlines::new(next_hops),
            order: Vec::with_capacity(next_hops),
            free: (0..next_hops as u16).rev().collect(),
            behind: 0,
            most_behind: packets - next_hops,
            sought: Shares::new(next_hops),
            queued: Shares::new(next_hops),
        }
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// When [`NeighbourQueue::advance`] has something to do.
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.earliest()
    }

    /// Lets `packet` wait for `next_hop` on `port`, which is in `vrf`; `sender` is the VRF of who sent
    /// it, if that is not the gateway. Packets of other VRFs that give way to it go to `give_way`.
    pub fn hold(
        &mut self,
        now: Time,
        (vrf, port): (VrfId, PortId),
        next_hop: IpAddr,
        (packet, sender): (Packet, Option<VrfId>),
        mut give_way: impl FnMut(Packet, DropReason),
    ) -> Held {
        let key = (port, next_hop);
        match self.order.binary_search_by_key(&key, |&place| self.places[usize::from(place)].key())
        {
            Ok(at) => {
                let place = usize::from(self.order[at]);
                if self.behind == self.most_behind
                    && !self.places[place].packets.is_full()
                    && let Some(from) = self.queued.gives_way_to(vrf)
                    && let Some(oldest) = self.take_behind(from)
                {
                    give_way(oldest, DropReason::NeighbourQueueFull);
                }
                let waiting = &mut self.places[place];
                let is_full = waiting.packets.is_full() || self.behind == self.most_behind;
                let oldest = if is_full { waiting.take_first() } else { None };
                if !is_full {
                    self.behind += 1;
                    self.queued.take(vrf);
                }
                waiting.push(packet, sender);
                match oldest {
                    Some(oldest) => Held::Refused(oldest, DropReason::NeighbourQueueFull),
                    None => Held::Waiting,
                }
            }
            Err(_) => {
                let kind = |place: u16| {
                    let sought = &self.places[usize::from(place)];
                    (sought.port, sought.next_hop.is_ipv6())
                };
                let own = (port, next_hop.is_ipv6());
                let sought = self.order.partition_point(|&place| kind(place) <= own)
                    - self.order.partition_point(|&place| kind(place) < own);
                let mut has_share = sought < self.free.len();
                if !has_share && let Some(from) = self.sought.gives_way_to(vrf) {
                    let reason = DropReason::NeighbourTableFull;
                    has_share = self.give_up_next_hop(from, |packet| give_way(packet, reason));
                }
                let Some(place) = self.free.pop_if(|_| has_share) else {
                    return Held::Refused(packet, DropReason::NeighbourTableFull);
                };
                // Another one may have gone, in front of it.
                let at = self
                    .order
                    .partition_point(|&place| self.places[usize::from(place)].key() < key);
                self.order.insert(at, place);
                self.sought.take(vrf);
                let place = usize::from(place);
                self.deadlines.set(place, Some(now + RETRANSMIT));
                let sought = &mut self.places[place];
                (sought.port, sought.next_hop, sought.asked) = (port, next_hop, 1);
                sought.vrf = vrf;
                sought.push(packet, sender);
                Held::Ask
            }
        }
    }

    /// Takes the oldest packet out of the longest line of a VRF, if one has several.
    fn take_behind(&mut self, vrf: VrfId) -> Option<Packet> {
        let places = &mut self.places;
        let of_vrf = self.order.iter().map(|&place| usize::from(place));
        let of_vrf = of_vrf.filter(|&place| places[place].vrf == vrf);
        let longest = of_vrf.max_by_key(|&place| places[place].packets.len())?;
        let line = &mut places[longest];
        let oldest = if line.packets.len() > 1 { line.take_first() } else { None };
        if oldest.is_some() {
            self.behind -= 1;
            self.queued.give_back(vrf, 1);
        }
        oldest
    }

    /// Gives up the next hop of a VRF that is due first. Returns whether there was one.
    fn give_up_next_hop(&mut self, vrf: VrfId, mut give_up: impl FnMut(Packet)) -> bool {
        let of_vrf =
            (0..self.order.len()).filter(|&at| self.places[usize::from(self.order[at])].vrf == vrf);
        let Some(at) = of_vrf.min_by_key(|&at| self.deadlines.get(usize::from(self.order[at])))
        else {
            return false;
        };
        let place = self.order.remove(at);
        self.vacate(place, &mut give_up);
        true
    }

    /// Frees a place that is out of the order.
    fn vacate(&mut self, place: u16, give_up: &mut impl FnMut(Packet)) {
        let sought = &mut self.places[usize::from(place)];
        let behind = sought.packets.len() - 1;
        self.behind -= behind;
        self.queued.give_back(sought.vrf, behind);
        self.sought.give_back(sought.vrf, 1);
        sought.take_all(|packet, _| give_up(packet));
        self.deadlines.set(usize::from(place), None);
        self.free.push(place);
    }

    /// Forgets which packets are of senders in VRFs that are gone: another one may get the number.
    pub fn forget_senders(&mut self, is_gone: impl Fn(VrfId) -> bool) {
        let senders = self.places.iter_mut().flat_map(|sought| &mut sought.senders);
        senders.filter(|sender| sender.is_some_and(&is_gone)).for_each(|sender| *sender = None);
    }

    /// Gives up what waits on ports that are gone or are in another VRF now.
    pub fn forget(&mut self, is_gone: impl Fn(PortId) -> bool, mut give_up: impl FnMut(Packet)) {
        let places = &self.places;
        let (gone, left) =
            self.order.iter().partition(|&&place| is_gone(places[usize::from(place)].port));
        self.order = left;
        let gone: Vec<u16> = gone;
        gone.into_iter().for_each(|place| self.vacate(place, &mut give_up));
    }

    /// Delivers what waits for next hops that `lookup` knows now, by port and next hop, in the
    /// order in which it came.
    pub fn take_resolved<T: Copy>(
        &mut self,
        lookup: impl Fn(PortId, IpAddr) -> Option<T>,
        mut deliver: impl FnMut(PortId, IpAddr, T, Packet),
    ) {
        let Self { places, deadlines, order, free, behind, sought: seeking, queued, .. } = self;
        order.retain(|&place| {
            let sought = &mut places[usize::from(place)];
            let (port, next_hop) = sought.key();
            let Some(found) = lookup(port, next_hop) else { return true };
            *behind -= sought.packets.len() - 1;
            queued.give_back(sought.vrf, sought.packets.len() - 1);
            seeking.give_back(sought.vrf, 1);
            sought.take_all(|packet, _| deliver(port, next_hop, found, packet));
            deadlines.set(usize::from(place), None);
            free.push(place);
            false
        });
    }

    /// Does what is due by `now`: asks again, after one second and after two; and gives up the
    /// packets that wait, after three, each with the VRF of its sender.
    pub fn advance(
        &mut self,
        now: Time,
        mut ask: impl FnMut(PortId, IpAddr),
        mut give_up: impl FnMut(PortId, IpAddr, (Packet, Option<VrfId>)),
    ) {
        let Self { places, deadlines, order, free, behind, sought: seeking, queued, .. } = self;
        order.retain(|&place| {
            let sought = &mut places[usize::from(place)];
            let (port, next_hop) = sought.key();
            let place_index = usize::from(place);
            if deadlines.get(place_index).is_none_or(|due| now < due) {
                return true;
            }
            if sought.asked < MAX_ASKED {
                sought.asked += 1;
                deadlines.set(place_index, Some(now + RETRANSMIT));
                ask(port, next_hop);
                return true;
            }
            *behind -= sought.packets.len() - 1;
            queued.give_back(sought.vrf, sought.packets.len() - 1);
            seeking.give_back(sought.vrf, 1);
            sought.take_all(|packet, sender| give_up(port, next_hop, (packet, sender)));
            deadlines.set(place_index, None);
            free.push(place);
            false
        });
    }
}

/// How many packets wait for which next hop.
impl fmt::Debug for NeighbourQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sought = self.order.iter().map(|&place| &self.places[usize::from(place)]);
        f.debug_map().entries(sought.map(|sought| (sought.key(), sought.packets.len()))).finish()
    }
}

impl Sought {
    fn push(&mut self, packet: Packet, sender: Option<VrfId>) {
        self.packets.push(packet);
        self.senders.push(sender);
    }

    fn take_first(&mut self) -> Option<Packet> {
        self.senders.pop_at(0);
        self.packets.pop_at(0)
    }

    fn take_all(&mut self, mut each: impl FnMut(Packet, Option<VrfId>)) {
        let packets = self.packets.drain(..).zip(self.senders.drain(..));
        packets.for_each(|(packet, sender)| each(packet, sender));
    }

    fn key(&self) -> (PortId, IpAddr) {
        (self.port, self.next_hop)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wire::Mac;

    use packet::Pool;
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const PORT: PortId = PortId(2);
    /// More than can wait.
    const PACKETS: usize = MAX_NEXT_HOPS * MAX_PACKETS;

    /// Of one VRF.
    fn hold(
        queue: &mut NeighbourQueue,
        now: Time,
        port: PortId,
        next_hop: IpAddr,
        packet: Packet,
    ) -> Held {
        queue.hold(now, (VrfId(1), port), next_hop, (packet, None), |_, _| {
            panic!("there is no other VRF")
        })
    }

    #[test]
    fn a_flood_in_one_vrf_leaves_another_its_share() {
        let mut pool = Pool::new(4 * MAX_NEXT_HOPS);
        let mut queue = NeighbourQueue::new(2 * MAX_NEXT_HOPS);
        let given = std::cell::RefCell::new(Vec::new());
        let give_way = |packet: Packet, _| given.borrow_mut().push(packet);
        let mut hold = |vrf: u16, port: u16, to: u32| {
            let packet = numbered(&mut pool, u32::from(vrf));
            let held =
                queue.hold(Time(0), (VrfId(vrf), PortId(port)), hop(to), (packet, None), give_way);
            let held = match held {
                Held::Refused(packet, _) => {
                    pool.give(packet);
                    false
                }
                Held::Ask | Held::Waiting => true,
            };
            for packet in given.borrow_mut().drain(..) {
                assert_eq!(number(&packet), 1, "the flood gives way");
                pool.give(packet);
            }
            held
        };
        // By many ports, until nothing more is taken; and the first of them with long lines.
        for port in 0..40 {
            (0..1024).for_each(|to| _ = hold(1, port, to));
        }
        (0..40).for_each(|to| (0..100).for_each(|_| _ = hold(1, 0, to)));
        // The other VRF seeks as many as the flood is left with, and has lines of its own.
        let sought = (0..1024).filter(|to| hold(2, 100, *to)).count();
        assert!((500..=512).contains(&sought), "{sought}");
        assert!((0..400).all(|to| hold(2, 100, to)), "behind others");
        let moved = |port: PortId| port == PortId(100);
        queue.forget(moved, |packet| {
            assert_eq!(number(&packet), 2);
            pool.give(packet);
        });
        queue.forget(|_| true, |packet| pool.give(packet));
        assert_eq!((queue.behind, pool.available()), (0, pool.size()));
        assert!(queue.is_empty() && queue.next_deadline().is_none());
    }

    fn hop(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn numbered(pool: &mut Pool, number: u32) -> Packet {
        let mut packet = pool.take().unwrap();
        assert!(packet.fill(&number.to_be_bytes()));
        packet
    }

    fn number(packet: &Packet) -> u32 {
        u32::from_be_bytes(packet.bytes().try_into().unwrap())
    }

    #[test]
    fn asks_three_times_a_second_apart_and_then_gives_up() {
        let mut pool = Pool::new(2);
        let mut queue = NeighbourQueue::new(PACKETS);
        let start = Time(5 * SECOND);
        assert!(matches!(hold(&mut queue, start, PORT, hop(1), numbered(&mut pool, 1)), Held::Ask));
        assert!(matches!(
            hold(&mut queue, start, PORT, hop(1), numbered(&mut pool, 2)),
            Held::Waiting
        ));
        let mut told = Vec::new();
        let mut advance = |queue: &mut NeighbourQueue, now| {
            let log = std::cell::RefCell::new(Vec::new());
            queue.advance(
                Time(now),
                |port, to| log.borrow_mut().push((port, to, None)),
                |port, to, (packet, _)| log.borrow_mut().push((port, to, Some(number(&packet)))),
            );
            told.push((now, log.into_inner()));
        };
        for now in [
            6 * SECOND - 1,
            6 * SECOND,
            6 * SECOND,
            7 * SECOND,
            8 * SECOND - 1,
            8 * SECOND,
            9 * SECOND,
        ] {
            advance(&mut queue, now);
        }
        let asked = vec![(PORT, hop(1), None)];
        assert_eq!(
            told,
            [
                (6 * SECOND - 1, vec![]),
                (6 * SECOND, asked.clone()),
                (6 * SECOND, vec![]),
                (7 * SECOND, asked),
                (8 * SECOND - 1, vec![]),
                (8 * SECOND, vec![(PORT, hop(1), Some(1)), (PORT, hop(1), Some(2))]),
                (9 * SECOND, vec![]),
            ]
        );
        assert!(queue.is_empty() && queue.next_deadline().is_none());
    }

    #[test]
    fn a_full_queue_gives_back_the_packet_that_waited_longest() {
        let mut pool = Pool::new(MAX_PACKETS + 1);
        let mut queue = NeighbourQueue::new(PACKETS);
        for count in 0..MAX_PACKETS as u32 {
            let packet = numbered(&mut pool, count);
            assert!(matches!(
                hold(&mut queue, Time(0), PORT, hop(1), packet),
                Held::Ask | Held::Waiting
            ));
        }
        match hold(&mut queue, Time(0), PORT, hop(1), numbered(&mut pool, 99)) {
            Held::Refused(packet, DropReason::NeighbourQueueFull) => assert_eq!(number(&packet), 0),
            other => panic!("{other:?}"),
        }
        let mut delivered = Vec::new();
        queue.take_resolved(
            |_, _| Some(Mac([2; 6])),
            |_, _, _, packet| delivered.push(number(&packet)),
        );
        assert_eq!(delivered, (1..MAX_PACKETS as u32).chain([99]).collect::<Vec<_>>());
    }

    #[test]
    fn only_so_many_next_hops() {
        let mut pool = Pool::new(MAX_NEXT_HOPS + 5);
        let mut queue = NeighbourQueue::new(PACKETS);
        let is_refused = |held| matches!(held, Held::Refused(packet, DropReason::NeighbourTableFull) if number(&packet) == 7);
        // A port has half of the places, another half of the rest, and so on.
        for (port, share) in [(PORT, 512), (PortId(1), 256), (PortId(9), 128), (PortId(7), 64)] {
            for count in 0..share {
                assert!(matches!(
                    hold(&mut queue, Time(0), port, hop(count), numbered(&mut pool, count)),
                    Held::Ask
                ));
            }
            assert!(is_refused(hold(&mut queue, Time(0), port, hop(5000), numbered(&mut pool, 7))));
        }
        let v6 = |number: u128| IpAddr::from(std::net::Ipv6Addr::from_bits(number));
        for count in 0..32 {
            let held = hold(&mut queue, Time(0), PORT, v6(count), numbered(&mut pool, 0));
            assert!(matches!(held, Held::Ask), "the other family of the port");
        }
        assert!(is_refused(hold(&mut queue, Time(0), PORT, v6(5000), numbered(&mut pool, 7))));
        queue.take_resolved(
            |port, to| ((port, to) == (PORT, hop(3))).then_some(Mac([2; 6])),
            |_, _, _, _| {},
        );
        assert!(is_refused(hold(&mut queue, Time(0), PORT, hop(5000), numbered(&mut pool, 7))));
        let other = hold(&mut queue, Time(0), PortId(3), hop(5000), numbered(&mut pool, 8));
        assert!(matches!(other, Held::Ask), "room for the others");
    }

    #[test]
    fn only_so_many_packets_and_one_for_each_next_hop() {
        let mut pool = Pool::new(200);
        // Eight next hops, eight packets behind others.
        let mut queue = NeighbourQueue::new(16);
        let mut waiting = 0;
        for count in 0..100 {
            match hold(&mut queue, Time(0), PORT, hop(count % 3), numbered(&mut pool, count)) {
                Held::Ask | Held::Waiting => waiting += 1,
                Held::Refused(packet, reason) => {
                    assert_eq!(reason, DropReason::NeighbourQueueFull);
                    assert_eq!(number(&packet) % 3, count % 3, "it makes room in its own line");
                    pool.give(packet);
                }
            }
        }
        assert_eq!(waiting, 3 + 8);
        assert!(matches!(
            hold(&mut queue, Time(0), PORT, hop(3), numbered(&mut pool, 100)),
            Held::Ask
        ));
        assert!(matches!(
            hold(&mut queue, Time(0), PortId(1), hop(3), numbered(&mut pool, 100)),
            Held::Ask
        ));
        // Given up or delivered, they make room.
        queue.take_resolved(
            |_, to| (to == hop(0)).then_some(Mac([2; 6])),
            |_, _, _, packet| pool.give(packet),
        );
        assert!(matches!(
            hold(&mut queue, Time(0), PORT, hop(1), numbered(&mut pool, 101)),
            Held::Waiting
        ));
        for second in 1..=3 {
            queue.advance(Time(second * SECOND), |_, _| {}, |_, _, (packet, _)| pool.give(packet));
        }
        assert!(queue.is_empty());
        assert_eq!((queue.behind, pool.available()), (0, pool.size()));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Hold(u16, u32),
        Resolve(u16, u32),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u16..3, 0u32..4).prop_map(|(port, to)| Step::Hold(port, to)),
            1 => (0u16..3, 0u32..4).prop_map(|(port, to)| Step::Resolve(port, to)),
            2 => (0..SECOND * 3 / 2).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #[test]
        fn is_a_map_of_queues(steps in proptest::collection::vec(step(), 0..200)) {
            let mut pool = Pool::new(1000);
            let mut queue = NeighbourQueue::new(PACKETS);
            // By port and next hop: asked how often, due when, and the packets.
            let mut naive: BTreeMap<(PortId, IpAddr), (u8, Time, Vec<u32>)> = BTreeMap::new();
            let mut now = Time(0);
            for (count, step) in (0..).zip(steps) {
                match step {
                    Step::Hold(port, to) => {
                        let key = (PortId(port), hop(to));
                        let held = hold(&mut queue, now, key.0, key.1, numbered(&mut pool, count));
                        let new = !naive.contains_key(&key);
                        let (_, _, packets) = naive.entry(key).or_insert((1, now + RETRANSMIT, Vec::new()));
                        packets.push(count);
                        match held {
                            Held::Ask => prop_assert!(new),
                            Held::Waiting => prop_assert!(!new),
                            Held::Refused(packet, reason) => {
                                prop_assert_eq!(reason, DropReason::NeighbourQueueFull);
                                prop_assert_eq!(packets.len(), MAX_PACKETS + 1);
                                prop_assert_eq!(number(&packet), packets.remove(0));
                                pool.give(packet);
                            }
                        }
                    }
                    Step::Resolve(port, to) => {
                        let key = (PortId(port), hop(to));
                        let mut delivered = Vec::new();
                        let lookup = |port, to| ((port, to) == key).then_some(Mac([2; 6]));
                        queue.take_resolved(lookup, |port, to, _, packet| {
                            assert_eq!((port, to), key);
                            delivered.push(number(&packet));
                            pool.give(packet);
                        });
                        prop_assert_eq!(delivered, naive.remove(&key).map(|(_, _, packets)| packets).unwrap_or_default());
                    }
                    Step::Wait(time) => {
                        now = now + Duration::from_nanos(time);
                        let mut asked = Vec::new();
                        let mut given_up = Vec::new();
                        queue.advance(now, |port, to| asked.push((port, to)), |port, to, (packet, _)| {
                            given_up.push(((port, to), number(&packet)));
                            pool.give(packet);
                        });
                        let mut expect_asked = Vec::new();
                        let mut expect_given_up = Vec::new();
                        naive.retain(|key, (asked, due, packets)| {
                            if *due > now {
                                return true;
                            }
                            if *asked == MAX_ASKED {
                                expect_given_up.extend(packets.iter().map(|packet| (*key, *packet)));
                                return false;
                            }
                            *asked += 1;
                            *due = now + RETRANSMIT;
                            expect_asked.push(*key);
                            true
                        });
                        prop_assert_eq!(asked, expect_asked);
                        prop_assert_eq!(given_up, expect_given_up);
                    }
                }
                prop_assert_eq!(queue.next_deadline(), naive.values().map(|(_, due, _)| *due).min());
                prop_assert_eq!(queue.is_empty(), naive.is_empty());
                let waiting: usize = naive.values().map(|(_, _, packets)| packets.len()).sum();
                prop_assert_eq!(pool.available() + waiting, pool.size(), "no packet is lost");
            }
        }
    }
}
