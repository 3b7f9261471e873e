//! Virtual reassembly: what the first fragment of a forwarded datagram said, for those that follow.

use core::cmp::Reverse;
use core::hash::Hash;
use core::time::Duration;
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
/// Groups that are looked through at once.
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
/// oldest of the VRF that has most of all places makes room, or one whose time is over. A fragment is a later one of the same datagram where VRF, origin, addresses,
/// protocol and identification agree; IPv6 would let the protocols differ (RFC 8200 section 4.5),
/// but then nothing would tell which policy the later fragment falls under.
///
/// If two first fragments of one datagram contradict each other, one of them is forged, and nobody
/// knows which: neither it nor any other fragment of the datagram is good for anything.
pub struct FragmentUpper {
    hasher: SipHasher13,
    sets: Box<[[Option<First>; WAYS]]>,
    shares: Shares,
    /// The next group that is looked through for what is over.
    next: usize,
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
            next: 0,
        }
    }

    /// From now on no VRF takes more than its highest share.
    pub fn limit(&mut self, highest: &HighestShares) {
        self.shares.limit(highest);
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
        let is_limited = self.shares.is_at_highest(datagram.vrf);
        if is_limited {
            self.sweep(now);
        }
        let (set, shares) = (&mut self.sets[place], &mut self.shares);
        let known =
            set.iter().position(|place| place.is_some_and(|first| first.datagram == datagram));
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
        let is_own = |way: &usize| set[*way].is_some_and(|it| it.datagram.vrf == datagram.vrf);
        // Of a VRF that has its highest share, its own.
        let own_only = is_limited && shares.is_at_highest(datagram.vrf);
        let ways = (0..WAYS).filter(|way| !own_only || is_own(way));
        let Some(way) = known.or_else(|| ways.min_by_key(|&way| worth(way))) else {
            return !contradicted;
        };
        if known.is_none() {
            if let Some(old) = set[way] {
                shares.give_back(old.datagram.vrf, 1);
            }
            shares.take(datagram.vrf);
        }
        set[way] = Some(First { datagram, learned: now, upper, tcp_flags, contradicted });
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
        for place in self.sets.iter_mut().flatten() {
            if let Some(gone) = place.take_if(|first| is_gone(first.datagram.vrf)) {
                self.shares.give_back(gone.datagram.vrf, 1);
            }
        }
    }

    /// Forgets what is over in some of the groups: those that are not met by chance would count for
    /// the share of their VRF for ever.
    fn sweep(&mut self, now: Time) {
        for _ in 0..SWEPT {
            let set = &mut self.sets[self.next];
            self.next = (self.next + 1) % SETS;
            for place in set {
                if let Some(gone) = place.take_if(|first| now >= first.learned + LIFETIME) {
                    self.shares.give_back(gone.datagram.vrf, 1);
                }
            }
        }
    }

    fn place(&self, datagram: &Datagram) -> usize {
        let mut hasher = self.hasher;
        datagram.hash(&mut hasher);
        hasher.finish() as usize % SETS
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
}
