//! Packets that wait until their next hop's Ethernet address is known.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::net::IpAddr;

use arrayvec::ArrayVec;
use packet::{DropReason, Packet, Time};
use types::HighestShares;
use wire::{Origin, PortId, VrfId};

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
/// A sender can fill this with packets to many absent stations, so it has four bounds:
///
/// - All packets together are at most as many as it was made for. Otherwise they could take every
///   buffer, and none would be left to receive the answers.
/// - One port and family seeks no more next hops than are left to all others: alone at most half,
///   the next one at most a quarter. So a scan of a link leaves room to the other ports, and to the
///   other family.
/// - Each next hop has room for one packet, however many wait for other next hops.
/// - Large packets ([`Packet::is_large`]) are at most as many as it was made for, as there are few
///   buffers for them. A next hop whose only packet gives way to another large one is sought on.
///
/// VRFs share it: where there is no room, a VRF that seeks fewer next hops than another one, or has
/// fewer packets behind others, or fewer large ones, gets the place of the one that has most.
pub struct NeighbourQueue {
    places: Box<[Sought]>,
    deadlines: Deadlines,
    /// Places in use, by port and next hop.
    order: Vec<u16>,
    free: Vec<u16>,
    totals: Totals,
    /// Next hops that VRFs seek.
    sought: Shares,
}

/// What waits for all next hops together.
struct Totals {
    /// Packets that wait behind another one.
    behind: usize,
    /// How many of those there may be.
    most_behind: usize,
    /// Packets of VRFs that wait behind another one.
    queued: Shares,
    /// The place of each large packet, in the order in which they came.
    large: VecDeque<u16>,
    /// How many of those there may be.
    most_large: usize,
    /// Large packets of VRFs.
    large_of: Shares,
}

/// Who sent a packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Its VRF.
    pub vrf: VrfId,
    /// As what an error about it is sent.
    pub error: Origin,
    /// Source and destination as it sent them, each with its port, if they were translated since. Of
    /// ICMP the identifier is the port of the source.
    pub before: Option<[(IpAddr, u16); 2]>,
}

/// Packets that are given up, each with its sender.
pub type GivenUp<'a> = &'a mut dyn Iterator<Item = (Packet, Option<Sender>)>;

struct Sought {
    vrf: VrfId,
    port: PortId,
    next_hop: IpAddr,
    asked: u8,
    /// Whether the last question could not be sent.
    is_put_off: bool,
    packets: ArrayVec<Packet, MAX_PACKETS>,
    /// Whose each of them is, if somebody else than the gateway sent it.
    senders: ArrayVec<Option<Sender>, MAX_PACKETS>,
}

impl NeighbourQueue {
    /// How long a packet waits for a next hop that does not answer.
    pub const PATIENCE: Duration = RETRANSMIT.saturating_mul(MAX_ASKED as u32);

    /// An empty queue for at most `packets` packets, of these `large` large ones; half of them, or
    /// 1024, may be the first for their next hop.
    pub fn new(packets: usize, large: usize) -> Self {
        let empty = || Sought {
            vrf: VrfId::MAIN,
            port: PortId(0),
            next_hop: [0; 4].into(),
            asked: 0,
            is_put_off: false,
            packets: ArrayVec::new(),
            senders: ArrayVec::new(),
        };
        let next_hops = MAX_NEXT_HOPS.min(packets / 2);
        Self {
            places: (0..next_hops).map(|_| empty()).collect(),
            deadlines: Deadlines::new(next_hops),
            order: Vec::with_capacity(next_hops),
            free: (0..next_hops as u16).rev().collect(),
            totals: Totals {
                behind: 0,
                most_behind: packets - next_hops,
                queued: Shares::new(packets - next_hops),
                large: VecDeque::with_capacity(large),
                most_large: large,
                large_of: Shares::new(large),
            },
            sought: Shares::new(next_hops),
        }
    }

    /// From now on no VRF takes more than its highest share.
    pub fn limit(&mut self, highest: &HighestShares) {
        let Totals { queued, large_of, .. } = &mut self.totals;
        [queued, large_of, &mut self.sought].into_iter().for_each(|pool| pool.limit(highest));
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

    /// Lets `packet` wait for `next_hop` on `port`, which is in `vrf`; `sender` is who sent it, if
    /// that is not the gateway. Packets that give way to it go to `give_way`: those of other
    /// VRFs, and of large ones those of its own, too.
    pub fn hold(
        &mut self,
        now: Time,
        (vrf, port): (VrfId, PortId),
        next_hop: IpAddr,
        (packet, sender): (Packet, Option<Sender>),
        mut give_way: impl FnMut(Packet, DropReason),
    ) -> Held {
        if packet.is_large() && !self.totals.may_take_large(vrf) {
            return Held::Refused(packet, DropReason::NeighbourQueueFull);
        }
        let key = (port, next_hop);
        match self.order.binary_search_by_key(&key, |&place| self.places[usize::from(place)].key())
        {
            Ok(at) => {
                let place = self.order[at];
                let line = &self.places[usize::from(place)].packets;
                if self.totals.behind == self.totals.most_behind
                    && !self.totals.queued.is_at_highest(vrf)
                    && !line.is_empty()
                    && !line.is_full()
                    && let Some(from) = self.totals.queued.gives_way_to(vrf)
                    && let Some(oldest) = self.take_behind(from)
                {
                    give_way(oldest, DropReason::NeighbourQueueFull);
                }
                let waiting = &mut self.places[usize::from(place)];
                let is_full = waiting.packets.is_full()
                    || self.totals.behind == self.totals.most_behind
                    || self.totals.queued.is_at_highest(vrf);
                let oldest = if is_full { self.totals.take(place, waiting, 0) } else { None };
                self.push(place, (packet, sender), &mut give_way);
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
                let is_at_highest = self.sought.is_at_highest(vrf);
                let mut has_share = sought < self.free.len() && !is_at_highest;
                if !has_share
                    && !is_at_highest
                    && let Some(from) = self.sought.gives_way_to(vrf)
                {
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
                self.deadlines.set(usize::from(place), Some(now + RETRANSMIT));
                let sought = &mut self.places[usize::from(place)];
                (sought.port, sought.next_hop, sought.asked) = (port, next_hop, 1);
                (sought.vrf, sought.is_put_off) = (vrf, false);
                self.push(place, (packet, sender), &mut give_way);
                Held::Ask
            }
        }
    }

    /// The question for `next_hop` on `port`, which [`Held::Ask`] has asked for, could not be sent.
    pub fn put_off(&mut self, port: PortId, next_hop: IpAddr) {
        let key = (port, next_hop);
        let places = &mut self.places;
        let found =
            self.order.binary_search_by_key(&key, |&place| places[usize::from(place)].key());
        if let Ok(at) = found {
            places[usize::from(self.order[at])].is_put_off = true;
        }
    }

    /// Questions that could not be sent may be sent now: [`NeighbourQueue::advance`] asks them at
    /// once, and as often as if they were the first.
    pub fn ask_put_off(&mut self) {
        for &place in &self.order {
            let place = usize::from(place);
            let sought = &mut self.places[place];
            if core::mem::take(&mut sought.is_put_off) {
                sought.asked = 0;
                self.deadlines.set(place, Some(Time::default()));
            }
        }
    }

    /// Puts a packet at the end of a line. If it is one large packet too many, the oldest large one
    /// of the VRF that has most gives way, or of its own if no other has more.
    fn push(
        &mut self,
        place: u16,
        (packet, sender): (Packet, Option<Sender>),
        give_way: &mut impl FnMut(Packet, DropReason),
    ) {
        let Self { places, totals, .. } = self;
        let own = places[usize::from(place)].vrf;
        let is_at_highest = totals.large_of.is_at_highest(own);
        if packet.is_large() && (is_at_highest || totals.large.len() >= totals.most_large) {
            let largest = totals.large_of.gives_way_to(own).filter(|_| !is_at_highest);
            let from = largest.unwrap_or(own);
            let mut all = totals.large.iter().copied();
            if let Some(first) = all.find(|&place| places[usize::from(place)].vrf == from) {
                let line = &mut places[usize::from(first)];
                let at = line.packets.iter().position(Packet::is_large);
                if let Some(oldest) = at.and_then(|at| totals.take(first, line, at)) {
                    give_way(oldest, DropReason::NeighbourQueueFull);
                }
            }
        }
        totals.push(place, &mut places[usize::from(place)], packet, sender);
    }

    /// Takes the oldest packet out of the longest line of a VRF, if one has several.
    fn take_behind(&mut self, vrf: VrfId) -> Option<Packet> {
        let Self { places, order, totals, .. } = self;
        let of_vrf = order.iter().filter(|&&place| places[usize::from(place)].vrf == vrf);
        let longest = *of_vrf.max_by_key(|&&place| places[usize::from(place)].packets.len())?;
        let line = &mut places[usize::from(longest)];
        if line.packets.len() > 1 { totals.take(longest, line, 0) } else { None }
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
        self.sought.give_back(sought.vrf, 1);
        self.totals.take_all(place, sought).for_each(|(packet, _)| give_up(packet));
        self.deadlines.set(usize::from(place), None);
        self.free.push(place);
    }

    /// Forgets which packets are of senders in VRFs that are gone: another one may get the number.
    pub fn forget_senders(&mut self, is_gone: impl Fn(VrfId) -> bool) {
        let senders = self.places.iter_mut().flat_map(|sought| &mut sought.senders);
        senders
            .filter(|sender| sender.is_some_and(|sender| is_gone(sender.vrf)))
            .for_each(|sender| *sender = None);
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
        let Self { places, deadlines, order, free, totals, sought: seeking } = self;
        order.retain(|&place| {
            let sought = &mut places[usize::from(place)];
            let (port, next_hop) = sought.key();
            let Some(found) = lookup(port, next_hop) else { return true };
            seeking.give_back(sought.vrf, 1);
            let all = totals.take_all(place, sought);
            all.for_each(|(packet, _)| deliver(port, next_hop, found, packet));
            deadlines.set(usize::from(place), None);
            free.push(place);
            false
        });
    }

    /// Does what is due by `now`: asks again, after one second and after two; and gives up the
    /// packets that wait for one, after three, each with its sender. There may be none. `ask` returns
    /// whether it could send the question.
    pub fn advance(
        &mut self,
        now: Time,
        mut ask: impl FnMut(PortId, IpAddr) -> bool,
        mut give_up: impl FnMut(PortId, IpAddr, GivenUp<'_>),
    ) {
        let Self { places, deadlines, order, free, totals, sought: seeking } = self;
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
                sought.is_put_off = !ask(port, next_hop);
                return true;
            }
            seeking.give_back(sought.vrf, 1);
            give_up(port, next_hop, &mut totals.take_all(place, sought));
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

impl Totals {
    /// Whether there is room for a large packet of `vrf`, or another one would give way to it.
    fn may_take_large(&self, vrf: VrfId) -> bool {
        self.large.len() < self.most_large
            || self.large_of.of(vrf) > 0
            || self.large_of.gives_way_to(vrf).is_some()
    }

    fn push(&mut self, place: u16, line: &mut Sought, packet: Packet, sender: Option<Sender>) {
        if !line.packets.is_empty() {
            self.behind += 1;
            self.queued.take(line.vrf);
        }
        if packet.is_large() {
            self.large.push_back(place);
            self.large_of.take(line.vrf);
        }
        line.packets.push(packet);
        line.senders.push(sender);
    }

    /// Takes a packet out of a line: the first one, or the first large one.
    fn take(&mut self, place: u16, line: &mut Sought, at: usize) -> Option<Packet> {
        let packet = line.packets.pop_at(at)?;
        line.senders.pop_at(at);
        if !line.packets.is_empty() {
            self.behind -= 1;
            self.queued.give_back(line.vrf, 1);
        }
        if packet.is_large() {
            let first = self.large.iter().position(|&of| of == place);
            first.map(|first| self.large.remove(first));
            self.large_of.give_back(line.vrf, 1);
        }
        Some(packet)
    }

    /// Empties a line.
    fn take_all<'a>(
        &mut self,
        place: u16,
        line: &'a mut Sought,
    ) -> impl Iterator<Item = (Packet, Option<Sender>)> + use<'a> {
        let behind = line.packets.len().saturating_sub(1);
        self.behind -= behind;
        self.queued.give_back(line.vrf, behind);
        let large = line.packets.iter().filter(|packet| packet.is_large()).count();
        if large > 0 {
            self.large.retain(|&of| of != place);
            self.large_of.give_back(line.vrf, large);
        }
        line.packets.drain(..).zip(line.senders.drain(..))
    }
}

impl Sought {
    fn key(&self) -> (PortId, IpAddr) {
        (self.port, self.next_hop)
    }
}

#[cfg(test)]
mod tests;
