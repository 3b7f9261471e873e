//! Virtual reassembly: what the first fragment of a forwarded datagram said, for those that follow.

use core::cmp::Reverse;
use core::hash::Hash;
use core::time::Duration;
use std::collections::BTreeMap;
use std::hash::Hasher;

use packet::Time;
use siphasher::sip::SipHasher13;
use types::HighestShares;
use wire::{Addresses, FlowKey, Origin, Protocol, TcpFlags, Upper, VrfId};

use crate::shares::Shares;

/// Datagrams that compete for the same places.
const WAYS: usize = 4;
/// Groups of places; a power of two.
const SETS: usize = 4096;
/// Datagrams of a VRF that are forgotten at once since their time is over.
const SWEPT: usize = 16;
/// How long a first fragment speaks for later ones, and must not be contradicted by another one.
/// Fragments of a datagram follow each other; a sender who uses an identification again after this
/// time has begun another datagram. It is short since a later fragment that overtakes its own first
/// is taken for one of whatever first came before, and that may be forged.
const LIFETIME: Duration = Duration::from_secs(2);

/// Remembers the upper-layer fields and TCP flags of first fragments, so that later ones, which do not have them,
/// are keyed alike.
///
/// Of 4096 groups of four places each, a datagram's is found with a keyed hash; in a full group the
/// oldest of the VRF that has most of all places makes room, or one whose time is over. A VRF that has
/// its highest share forgets the oldest of all that it has. A fragment is a later one of the same
/// datagram where VRF, origin, addresses, protocol and identification agree; IPv6 would let the protocols differ (RFC 8200 section 4.5),
/// but then nothing would tell which policy the later fragment falls under.
///
/// If two first fragments of one datagram contradict each other, one of them is forged, and nobody
/// knows which: neither it nor any other fragment of the datagram is good for anything.
pub struct FragmentUpper {
    hasher: SipHasher13,
    sets: Box<[[Option<First>; WAYS]]>,
    shares: Shares,
    /// The places of VRFs that have a highest share.
    by_age: ByAge,
}

#[derive(Clone, Copy)]
struct First {
    datagram: Datagram,
    learned: Time,
    upper: Upper,
    tcp_flags: TcpFlags,
    /// Another first fragment said something else.
    contradicted: bool,
}

/// What is known of a fragment's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recalled {
    /// Its first fragment said this.
    First(Upper, TcpFlags),
    /// No first fragment came within the last two seconds.
    Unknown,
    /// Two first fragments came, and they contradict each other.
    Contradicted,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Datagram {
    vrf: VrfId,
    origin: Origin,
    addresses: Addresses,
    protocol: Protocol,
    identification: u32,
}

impl FragmentUpper {
    /// An empty table; `secret` keys the hash, so that a sender cannot aim at a group.
    pub fn new(secret: u64) -> Self {
        Self {
            hasher: SipHasher13::new_with_keys(secret, secret.rotate_left(32)),
            sets: vec![[None; WAYS]; SETS].into(),
            shares: Shares::new(WAYS * SETS),
            by_age: ByAge::default(),
        }
    }

    /// From now on no VRF takes more than its highest share.
    pub fn limit(&mut self, highest: &HighestShares) {
        self.shares.limit(highest);
        let places = self.sets.as_flattened().iter().enumerate();
        let places = places.filter_map(|(place, first)| Some((place, first.as_ref()?)));
        self.by_age
            .limit(highest, places.map(|(at, first)| (first.datagram.vrf, first.learned, at)));
    }

    /// Remembers what the first fragment of a datagram says. Returns false if that contradicts
    /// another one.
    pub fn learn(
        &mut self,
        now: Time,
        key: &FlowKey,
        identification: u32,
        (upper, tcp_flags): (Upper, TcpFlags),
    ) -> bool {
        let datagram = Datagram::of(key, identification);
        let place = self.place(&datagram);
        let is_it = |place: &Option<First>| place.is_some_and(|it| it.datagram == datagram);
        let known = self.sets[place].iter().position(is_it);
        if known.is_none() && self.shares.is_at_highest(datagram.vrf) {
            self.make_room_in(datagram.vrf, now);
        }
        let (set, shares) = (&self.sets[place], &self.shares);
        let contradicted = known.and_then(|way| set[way]).is_some_and(|first| {
            let differs = (first.upper, first.tcp_flags) != (upper, tcp_flags);
            now < first.learned + LIFETIME && (first.contradicted || differs)
        });
        // Free places first, then those whose time is over; then, of the VRF that has most, the
        // oldest.
        let worth = |way: usize| {
            set[way].map(|first| {
                let is_live = now < first.learned + LIFETIME;
                let used = if is_live { shares.of(first.datagram.vrf) } else { usize::MAX };
                (Reverse(used), first.learned)
            })
        };
        let way = known.or_else(|| (0..WAYS).min_by_key(|&way| worth(way))).unwrap_or(0);
        let at = place * WAYS + way;
        self.take(at);
        let vrf = datagram.vrf;
        self.sets[place][way] =
            Some(First { datagram, learned: now, upper, tcp_flags, contradicted });
        self.shares.take(vrf);
        self.by_age.push(vrf, at);
        !contradicted
    }

    /// What the first fragment of the datagram said, within the last two seconds.
    pub fn recall(&self, now: Time, key: &FlowKey, identification: u32) -> Recalled {
        let datagram = Datagram::of(key, identification);
        let mut known = self.sets[self.place(&datagram)].iter().flatten();
        match known.find(|first| first.datagram == datagram) {
            Some(first) if now >= first.learned + LIFETIME => Recalled::Unknown,
            Some(first) if first.contradicted => Recalled::Contradicted,
            Some(first) => Recalled::First(first.upper, first.tcp_flags),
            None => Recalled::Unknown,
        }
    }

    /// Forgets the datagrams of VRFs that are gone. Another VRF may get the number of one of them.
    pub fn forget(&mut self, is_gone: impl Fn(VrfId) -> bool) {
        for at in 0..WAYS * SETS {
            if self.first(at).is_some_and(|first| is_gone(first.datagram.vrf)) {
                self.take(at);
            }
        }
    }

    /// Forgets what is over of a VRF, or else its oldest datagram.
    fn make_room_in(&mut self, vrf: VrfId, now: Time) {
        for _ in 0..SWEPT {
            let Some(at) = self.by_age.oldest(vrf) else { return };
            let is_over = self.first(at).is_none_or(|first| now >= first.learned + LIFETIME);
            if !is_over && !self.shares.is_at_highest(vrf) {
                return;
            }
            self.take(at);
            if !is_over {
                return;
            }
        }
    }

    fn first(&self, at: usize) -> Option<&First> {
        self.sets[at / WAYS][at % WAYS].as_ref()
    }

    /// Empties a place.
    fn take(&mut self, at: usize) {
        if let Some(old) = self.sets[at / WAYS][at % WAYS].take() {
            self.shares.give_back(old.datagram.vrf, 1);
            self.by_age.remove(old.datagram.vrf, at);
        }
    }

    fn place(&self, datagram: &Datagram) -> usize {
        let mut hasher = self.hasher;
        datagram.hash(&mut hasher);
        hasher.finish() as usize % SETS
    }
}

/// The places of each VRF that has a highest share, in the order in which they were taken.
#[derive(Default)]
struct ByAge {
    ends: BTreeMap<VrfId, Ends>,
    /// By place; none while no VRF has a highest share.
    links: Box<[Link]>,
}

#[derive(Clone, Copy)]
struct Ends {
    oldest: u16,
    newest: u16,
}

/// The neighbours of a place in its list.
#[derive(Clone, Copy)]
struct Link {
    older: u16,
    newer: u16,
}

/// No place.
const NONE: u16 = u16::MAX;
const _: () = assert!(WAYS * SETS <= NONE as usize);

impl ByAge {
    /// Keeps the lists of these VRFs from now on, of the places that are taken: VRF, when, and place.
    fn limit(
        &mut self,
        highest: &HighestShares,
        taken: impl Iterator<Item = (VrfId, Time, usize)>,
    ) {
        let is_same = self.ends.keys().eq(highest.keys());
        if is_same {
            return;
        }
        let none = Link { older: NONE, newer: NONE };
        self.links = if highest.is_empty() { [].into() } else { vec![none; WAYS * SETS].into() };
        let nothing = Ends { oldest: NONE, newest: NONE };
        self.ends = highest.keys().map(|vrf| (*vrf, nothing)).collect();
        let mut taken: Vec<_> = taken.filter(|(vrf, ..)| self.ends.contains_key(vrf)).collect();
        taken.sort_by_key(|(_, learned, _)| *learned);
        taken.into_iter().for_each(|(vrf, _, at)| self.push(vrf, at));
    }

    fn oldest(&self, vrf: VrfId) -> Option<usize> {
        let ends = self.ends.get(&vrf)?;
        (ends.oldest != NONE).then_some(usize::from(ends.oldest))
    }

    /// A place was taken that is in no list.
    fn push(&mut self, vrf: VrfId, at: usize) {
        let Some(ends) = self.ends.get_mut(&vrf) else { return };
        let place = at as u16;
        self.links[at] = Link { older: ends.newest, newer: NONE };
        match ends.newest {
            NONE => ends.oldest = place,
            newest => self.links[usize::from(newest)].newer = place,
        }
        ends.newest = place;
    }

    /// A place is not taken any more.
    fn remove(&mut self, vrf: VrfId, at: usize) {
        let Some(ends) = self.ends.get_mut(&vrf) else { return };
        let Link { older, newer } = self.links[at];
        match older {
            NONE => ends.oldest = newer,
            older => self.links[usize::from(older)].newer = newer,
        }
        match newer {
            NONE => ends.newest = older,
            newer => self.links[usize::from(newer)].older = older,
        }
    }
}

impl core::fmt::Debug for FragmentUpper {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FragmentUpper").finish_non_exhaustive()
    }
}

impl Datagram {
    fn of(key: &FlowKey, identification: u32) -> Self {
        Self {
            vrf: key.vrf,
            origin: key.origin,
            addresses: key.addresses,
            protocol: key.protocol,
            identification,
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{FragmentClass, PacketFields, PortId, SaSlot};

    use super::*;

    const PORTS: Upper = Upper::Ports { source: 1, destination: 2 };
    const SYN: TcpFlags = TcpFlags::SYN;

    fn later() -> FlowKey {
        FlowKey {
            vrf: VrfId(1),
            origin: Origin::Port(PortId(3)),
            addresses: Addresses::V4 {
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
            },
            protocol: Protocol::UDP,
            fragment: FragmentClass::Later,
            upper: Upper::None,
            fields: PacketFields::NONE,
        }
    }

    fn first() -> FlowKey {
        FlowKey { fragment: FragmentClass::First, upper: PORTS, ..later() }
    }

    #[test]
    fn a_later_fragment_gets_what_the_first_said() {
        let mut table = FragmentUpper::new(1);
        let now = Time(5);
        assert_eq!(table.recall(now, &later(), 7), Recalled::Unknown);
        table.learn(now, &first(), 7, (PORTS, SYN));
        assert_eq!(table.recall(now, &later(), 7), Recalled::First(PORTS, SYN));
        let newer = (Upper::Ports { source: 3, destination: 4 }, TcpFlags::FIN);
        let now = now + LIFETIME;
        assert!(table.learn(now, &first(), 7, newer));
        assert_eq!(table.recall(now, &later(), 7), Recalled::First(newer.0, newer.1));
    }

    #[test]
    fn nothing_of_another_datagram() {
        let mut table = FragmentUpper::new(2);
        table.learn(Time(0), &first(), 7, (PORTS, SYN));
        let reversed =
            Addresses::V4 { source: [10, 0, 0, 2].into(), destination: [10, 0, 0, 1].into() };
        let others = [
            FlowKey { vrf: VrfId(2), ..later() },
            FlowKey { origin: Origin::Sa(SaSlot(3)), ..later() },
            FlowKey { origin: Origin::Port(PortId(4)), ..later() },
            FlowKey { addresses: reversed, ..later() },
            FlowKey { protocol: Protocol::TCP, ..later() },
        ];
        for other in others {
            assert_eq!(table.recall(Time(0), &other, 7), Recalled::Unknown, "{other:?}");
        }
        assert_eq!(table.recall(Time(0), &later(), 8), Recalled::Unknown);
    }

    #[test]
    fn firsts_that_contradict_each_other_are_worth_nothing() {
        let mut table = FragmentUpper::new(5);
        let forged = (Upper::Ports { source: 1, destination: 53 }, SYN);
        assert!(table.learn(Time(0), &first(), 7, (PORTS, SYN)));
        assert!(table.learn(Time(1), &first(), 7, (PORTS, SYN)), "sent twice");
        assert!(!table.learn(Time(2), &first(), 7, forged));
        assert_eq!(table.recall(Time(3), &later(), 7), Recalled::Contradicted);
        // Neither does the right one help any more, nor the forged one again.
        assert!(!table.learn(Time(4), &first(), 7, (PORTS, SYN)));
        assert!(!table.learn(Time(5), &first(), 7, forged));
        assert_eq!(table.recall(Time(6), &later(), 7), Recalled::Contradicted);
        // The number is used again for another datagram.
        let next = Time(5) + LIFETIME;
        assert!(table.learn(next, &first(), 7, (PORTS, SYN)));
        assert_eq!(table.recall(next, &later(), 7), Recalled::First(PORTS, SYN));
    }

    #[test]
    fn forgotten_after_two_seconds() {
        let mut table = FragmentUpper::new(3);
        table.learn(Time(0), &first(), 7, (PORTS, SYN));
        assert_eq!(table.recall(Time(1_999_999_999), &later(), 7), Recalled::First(PORTS, SYN));
        assert_eq!(table.recall(Time(2_000_000_000), &later(), 7), Recalled::Unknown);
    }

    #[test]
    fn a_flood_costs_old_ones_and_never_gives_wrong_answers() {
        let mut table = FragmentUpper::new(4);
        let said = |id: u32| {
            let upper = Upper::Ports { source: id as u16, destination: (id >> 16) as u16 };
            (upper, TcpFlags(id as u8))
        };
        let all = 100_000;
        for id in 0..all {
            table.learn(Time(id.into()), &first(), id, said(id));
        }
        let kept: Vec<_> = (0..all)
            .filter(|&id| table.recall(Time(all.into()), &later(), id) != Recalled::Unknown)
            .collect();
        assert!(kept.iter().all(|&id| table.recall(Time(all.into()), &later(), id)
            == Recalled::First(said(id).0, said(id).1)));
        // Full but for chance, and of each group the four newest.
        assert!(kept.len() > SETS * WAYS * 99 / 100 && kept.len() <= SETS * WAYS, "{}", kept.len());
        assert!((all - 1000..all).all(|id| kept.binary_search(&id).is_ok()));
    }

    /// One VRF has a quarter of the places at most, of which what is over counts no longer.
    #[test]
    fn one_vrf_has_no_more_than_its_highest_share() {
        let mut table = FragmentUpper::new(4);
        table.limit(&crate::shares::limited_to(25));
        let key = first();
        assert_eq!(key.vrf, VrfId(1));
        let most = WAYS * SETS / 4;
        for id in 0..50_000 {
            assert!(table.learn(Time(0), &key, id, (PORTS, SYN)));
            assert!(table.shares.of(VrfId(1)) <= most);
        }
        assert_eq!(table.shares.of(VrfId(1)), most);
        // Another VRF is not held to that, and takes none of it while there is room.
        let other = FlowKey { vrf: VrfId(2), ..first() };
        (0..1000).for_each(|id| _ = table.learn(Time(0), &other, id, (PORTS, SYN)));
        assert_eq!(table.shares.of(VrfId(2)), 1000);
        let now = Time(0) + LIFETIME;
        let fresh = 60_000..60_000 + most as u32 / 2;
        fresh.clone().for_each(|id| _ = table.learn(now, &key, id, (PORTS, SYN)));
        let is_known = |id: &u32| table.recall(now, &later(), *id) == Recalled::First(PORTS, SYN);
        assert!(fresh.clone().filter(is_known).count() > fresh.len() * 9 / 10);
    }

    /// Of all that a VRF has, the oldest makes room, wherever it is.
    #[test]
    fn a_vrf_at_its_highest_share_forgets_exactly_its_oldest() {
        let mut table = FragmentUpper::new(4);
        let other = FlowKey { vrf: VrfId(2), ..first() };
        let other_later = FlowKey { vrf: VrfId(2), ..later() };
        (0..1000).for_each(|id| _ = table.learn(Time(0), &other, id, (PORTS, SYN)));
        // What was there before it was limited is known by its age.
        (0..100).for_each(|id| _ = table.learn(Time(id.into()), &first(), id, (PORTS, SYN)));
        table.limit(&crate::shares::limited_to(1));
        let most = (WAYS * SETS / 100) as u32;
        for id in 100_u32..3000 {
            let now = Time(id.into());
            // Sent twice, one is as new as the last.
            let again = id.saturating_sub(most / 2);
            table.learn(now, &first(), again, (PORTS, SYN));
            table.learn(now, &first(), id, (PORTS, SYN));
        }
        let now = Time(3000);
        let is_known = |id: &u32| table.recall(now, &later(), *id) != Recalled::Unknown;
        let known: Vec<_> = (0..3000).filter(is_known).collect();
        assert_eq!(known.len(), most as usize);
        assert!((3000 - most / 2..3000).all(|id| known.contains(&id)), "{known:?}");
        assert!(known[0] >= 3000 - most - 1, "{known:?}");
        let kept = (0..1000).filter(|id| table.recall(now, &other_later, *id) != Recalled::Unknown);
        assert!(kept.count() > 990, "no other VRF pays for it");
        // Gone and limited anew, nothing is left in the list.
        table.forget(|vrf| vrf == VrfId(1));
        assert_eq!((table.by_age.oldest(VrfId(1)), table.shares.of(VrfId(1))), (None, 0));
        table.limit(&HighestShares::default());
        assert!(table.learn(now, &first(), 1, (PORTS, SYN)));
    }

    /// One that sends more datagrams than its share has places loses the oldest, not the newest.
    #[test]
    fn a_vrf_at_its_highest_share_remembers_what_came_last() {
        for percent in [1, 10, 25, 100] {
            let mut table = FragmentUpper::new(4);
            table.limit(&crate::shares::limited_to(percent));
            let most = (WAYS * SETS * usize::from(percent) / 100) as u32;
            let mut recalled = 0;
            for id in 0..20_000 {
                let now = Time(u64::from(id) * 1_000);
                table.learn(now, &first(), id, (PORTS, SYN));
                // The later fragment comes a few datagrams behind.
                let before = id.saturating_sub(most / 50);
                let known = table.recall(now, &later(), before);
                recalled += u32::from(known == Recalled::First(PORTS, SYN));
            }
            assert!(recalled > 19_500, "{percent} %: {recalled} of 20000");
        }
    }
}
