//! Connections that others have announced: the data connections of FTP and TFTP.

use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};

use packet::Time;
use thiserror::Error;
use types::Protocol;

use crate::ct_state::Handle;
use crate::limits::Keyed;
use crate::sync::{AtomicU32, Mutex, Ordering, lock};
use crate::tuple::{Role, Tuple};

/// A connection that is expected. Its destination is known; its source may be anybody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The zone in which it will come.
    pub zone: u16,
    /// The connection that has announced it. The expectation ends with that.
    pub master: Handle,
    /// Upper-layer protocol.
    pub protocol: Protocol,
    /// Source address; `None` is any.
    pub source: Option<IpAddr>,
    /// Source port; `None` is any.
    pub source_port: Option<u16>,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination port.
    pub destination_port: u16,
    /// Where it is to be translated to, if it is.
    pub translated: Option<(IpAddr, u16)>,
    /// What its source address is to become, if it is to become another one.
    pub translated_source: Option<IpAddr>,
    /// Helper of the connection that comes, 0 for none.
    pub helper: u16,
    /// Whether several connections may come.
    pub is_permanent: bool,
    /// It is void from then on.
    pub until: Time,
}

/// Why a connection is not expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotExpected {
    /// All places are taken.
    #[error("the table of expectations is full")]
    Full,
    /// Another connection expects the same.
    #[error("another connection expects the same")]
    Clash,
    /// The master has ended.
    #[error("the connection that expects it has ended")]
    NoMaster,
}

/// How many an address and port may have, of different sources.
const AT_ONE_PLACE: usize = 16;

/// What has happened to expectations is remembered so far, for who follows it.
const REMEMBERED: usize = 1024;

/// What has happened to an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectationChange {
    /// It is there from now on.
    New(Expectation),
    /// It is void: fulfilled, too old, or without its master.
    Destroy(Expectation),
}

type Place = (u16, Protocol, IpAddr, u16);

struct Maps {
    by_place: HashMap<Place, Vec<Expectation>, Keyed>,
    /// Where those of a master are, by its place in the table, the oldest first.
    by_master: HashMap<u32, Vec<Place>, Keyed>,
    /// How many there are.
    count: u32,
    /// None of them is too old before.
    void_from: Time,
    log: Log,
}

/// The last changes, and how many there were in all.
#[derive(Default)]
struct Log {
    last: VecDeque<ExpectationChange>,
    count: u64,
}

impl Log {
    fn push(&mut self, change: ExpectationChange) {
        if self.last.len() >= REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(change);
        self.count += 1;
    }
}

pub(crate) struct Expectations {
    maps: Mutex<Maps>,
    /// How many there are, so that nobody locks to find none.
    count: AtomicU32,
    most: u32,
}

impl Expectation {
    /// Whether it is to be translated.
    pub fn is_translated(&self) -> bool {
        self.translated.is_some() || self.translated_source.is_some()
    }

    fn place(&self) -> Place {
        (self.zone, self.protocol, self.destination, self.destination_port)
    }

    fn is_of(&self, tuple: &Tuple, now: Time) -> bool {
        now < self.until
            && self.source.is_none_or(|source| source == tuple.addresses.source())
            && self.source_port.is_none_or(|port| port == tuple.source)
    }

    /// Whether a packet could be of both.
    fn clashes(&self, other: &Self) -> bool {
        let apart = |one: bool, other: bool, differ: bool| one && other && differ;
        !apart(self.source.is_some(), other.source.is_some(), self.source != other.source)
            && !apart(
                self.source_port.is_some(),
                other.source_port.is_some(),
                self.source_port != other.source_port,
            )
    }
}

impl Expectations {
    pub(crate) fn new(most: u32, secret: [u64; 2]) -> Self {
        let keyed = Keyed(secret);
        let maps = Maps {
            by_place: HashMap::with_hasher(keyed),
            by_master: HashMap::with_hasher(keyed),
            count: 0,
            void_from: Time(u64::MAX),
            log: Log::default(),
        };
        Self { maps: Mutex::new(maps), count: AtomicU32::new(0), most }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds one. `of_master` is how many the master may have; its oldest one makes room.
    pub(crate) fn add(
        &self,
        new: Expectation,
        of_master: usize,
        now: Time,
    ) -> Result<(), NotExpected> {
        let mut maps = lock(&self.maps);
        let added = maps.add(new, of_master, self.most, now);
        self.count.store(maps.count, Ordering::Release);
        added
    }

    /// Which one a packet without connection is of.
    #[inline]
    pub(crate) fn find(&self, zone: u16, tuple: &Tuple, now: Time) -> Option<Box<Expectation>> {
        if self.count.load(Ordering::Acquire) == 0 || tuple.role != Role::None {
            return None;
        }
        self.find_there(zone, tuple, now).map(Box::new)
    }

    #[cold]
    fn find_there(&self, zone: u16, tuple: &Tuple, now: Time) -> Option<Expectation> {
        let place = (zone, tuple.protocol, tuple.addresses.destination(), tuple.destination);
        let maps = lock(&self.maps);
        let there = maps.by_place.get(&place)?;
        there.iter().find(|expected| expected.is_of(tuple, now)).copied()
    }

    /// Whether a connection that this master has announced is still expected.
    pub(crate) fn expects(&self, master: u32, zone: u16, tuple: &Tuple, now: Time) -> bool {
        lock(&self.maps).of_master(master, zone, tuple, now).is_some()
    }

    /// The connection that this master has announced has come. False if nobody expects it any more.
    pub(crate) fn fulfil(&self, master: u32, zone: u16, tuple: &Tuple, now: Time) -> bool {
        let mut maps = lock(&self.maps);
        let Some(found) = maps.of_master(master, zone, tuple, now) else { return false };
        let place = found.place();
        if !found.is_permanent {
            maps.remove_at(&place, |old| *old == found);
            self.count.store(maps.count, Ordering::Release);
        }
        true
    }

    /// The connection at this place has ended.
    pub(crate) fn forget(&self, master: u32) {
        if self.count() == 0 {
            return;
        }
        let mut maps = lock(&self.maps);
        while let Some(&place) = maps.by_master.get(&master).and_then(|places| places.first()) {
            maps.remove_at(&place, |old| old.master.index == master);
        }
        self.count.store(maps.count, Ordering::Release);
    }

    /// Ends all.
    pub(crate) fn flush(&self) {
        let mut maps = lock(&self.maps);
        maps.remove(|_| true);
        self.count.store(maps.count, Ordering::Release);
    }

    /// The changes after the first `since`, as far as they are remembered, and how many there were.
    pub(crate) fn changes(&self, since: u64) -> (Vec<ExpectationChange>, u64) {
        let maps = lock(&self.maps);
        let new = maps.log.count.saturating_sub(since);
        let skipped = maps.log.last.len().saturating_sub(new.try_into().unwrap_or(usize::MAX));
        (maps.log.last.iter().skip(skipped).copied().collect(), maps.log.count)
    }

    pub(crate) fn all(&self) -> Vec<Expectation> {
        lock(&self.maps).by_place.values().flatten().copied().collect()
    }
}

impl Maps {
    /// The one of a master that a packet is of.
    fn of_master(&self, master: u32, zone: u16, tuple: &Tuple, now: Time) -> Option<Expectation> {
        let place = (zone, tuple.protocol, tuple.addresses.destination(), tuple.destination);
        let there = self.by_place.get(&place)?;
        there.iter().find(|old| old.master.index == master && old.is_of(tuple, now)).copied()
    }

    fn add(
        &mut self,
        new: Expectation,
        of_master: usize,
        most: u32,
        now: Time,
    ) -> Result<(), NotExpected> {
        if self.count >= most && now >= self.void_from {
            // At most as many as the table has, and only when one of them is too old.
            self.remove(|old| now >= old.until);
        }
        let (place, master) = (new.place(), new.master.index);
        if let Some(there) = self.by_place.get(&place) {
            let live = || there.iter().filter(|old| now < old.until);
            if live().any(|old| old.clashes(&new) && old.master.index != master) {
                return Err(NotExpected::Clash);
            }
        }
        // The same again, and what is void at this place.
        self.remove_at(&place, |old| now >= old.until || old.clashes(&new));
        if self.by_place.get(&place).is_some_and(|there| there.len() >= AT_ONE_PLACE) {
            return Err(NotExpected::Full);
        }
        while let Some(places) = self.by_master.get(&master)
            && places.len() >= of_master.max(1)
        {
            let oldest = places[0];
            self.remove_at(&oldest, |old| old.master.index == master);
        }
        if self.count >= most {
            return Err(NotExpected::Full);
        }
        self.by_place.entry(place).or_default().push(new);
        self.by_master.entry(master).or_default().push(place);
        self.count += 1;
        self.void_from = self.void_from.min(new.until);
        self.log.push(ExpectationChange::New(new));
        Ok(())
    }

    /// Removes those at one place that are void.
    fn remove_at(&mut self, place: &Place, is_void: impl Fn(&Expectation) -> bool) {
        let Some(there) = self.by_place.get_mut(place) else { return };
        let gone: Vec<_> = there.extract_if(.., |old| is_void(old)).collect();
        if there.is_empty() {
            self.by_place.remove(place);
        }
        gone.into_iter().for_each(|old| self.removed(old));
    }

    /// Removes all that are void.
    fn remove(&mut self, is_void: impl Fn(&Expectation) -> bool) {
        let mut gone = Vec::new();
        self.by_place.retain(|_, there| {
            gone.extend(there.extract_if(.., |old| is_void(old)));
            !there.is_empty()
        });
        gone.into_iter().for_each(|old| self.removed(old));
        let left = self.by_place.values().flatten().map(|old| old.until);
        self.void_from = left.min().unwrap_or(Time(u64::MAX));
    }

    /// One is not at its place any more.
    fn removed(&mut self, old: Expectation) {
        let (place, master) = (old.place(), old.master.index);
        if let Some(places) = self.by_master.get_mut(&master) {
            if let Some(at) = places.iter().position(|of_it| *of_it == place) {
                places.remove(at);
            }
            if places.is_empty() {
                self.by_master.remove(&master);
            }
        }
        self.count -= 1;
        self.log.push(ExpectationChange::Destroy(old));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use types::Addresses;

    use super::*;

    const MOST: u32 = 6;

    #[derive(Clone, Debug)]
    enum Act {
        Add { master: u32, source: Option<u8>, port: u16, lasts: u64, of_master: usize },
        Fulfil { master: u32, source: u8, port: u16 },
        Forget(u32),
        Wait(u64),
        Flush,
    }

    fn act() -> impl Strategy<Value = Act> {
        let (master, port) = (0..4_u32, 0..4_u16);
        prop_oneof![
            6 => (master.clone(), proptest::option::of(0..3_u8), port.clone(), 0..40_u64, 0..4_usize)
                .prop_map(|(master, source, port, lasts, of_master)| Act::Add {
                    master, source, port, lasts, of_master
                }),
            3 => (master.clone(), 0..3_u8, port)
                .prop_map(|(master, source, port)| Act::Fulfil { master, source, port }),
            1 => master.prop_map(Act::Forget),
            2 => (0..20_u64).prop_map(Act::Wait),
            1 => Just(Act::Flush),
        ]
    }

    fn host(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    proptest! {
        /// What is known of a master is what is there of it, and nothing that has ended takes room.
        #[test]
        fn places_and_masters_say_the_same(acts in vec(act(), 1..80)) {
            let expectations = Expectations::new(MOST, [1, 2]);
            let (mut now, mut added, mut seen) = (Time(0), 0, 0);
            for act in acts {
                match act {
                    Act::Add { master, source, port, lasts, of_master } => {
                        let new = Expectation {
                            zone: 0,
                            master: Handle { index: master, generation: 1 },
                            protocol: Protocol::TCP,
                            source: source.map(host),
                            source_port: None,
                            destination: host(9),
                            destination_port: port,
                            translated: None,
                            translated_source: None,
                            helper: 0,
                            is_permanent: port == 3,
                            until: Time(now.0 + lasts),
                        };
                        let there = expectations.all();
                        let live = there.iter().filter(|old| now < old.until).count();
                        match expectations.add(new, of_master, now) {
                            Ok(()) => added += 1,
                            Err(NotExpected::Full) => prop_assert!(live >= MOST as usize),
                            Err(why) => prop_assert_eq!(why, NotExpected::Clash),
                        }
                    }
                    Act::Fulfil { master, source, port } => {
                        let addresses = Addresses::V4 {
                            source: [10, 0, 0, source].into(),
                            destination: [10, 0, 0, 9].into(),
                        };
                        let tuple = Tuple::new(addresses, Protocol::TCP, 1000, port);
                        expectations.fulfil(master, 0, &tuple, now);
                    }
                    Act::Forget(master) => {
                        expectations.forget(master);
                        prop_assert!(expectations.all().iter().all(|it| it.master.index != master));
                    }
                    Act::Wait(time) => now = Time(now.0 + time),
                    Act::Flush => expectations.flush(),
                }
                let (all, maps) = (expectations.all(), lock(&expectations.maps));
                prop_assert!(all.len() <= MOST as usize);
                prop_assert_eq!(all.len(), maps.count as usize);
                prop_assert_eq!(maps.count, expectations.count());
                prop_assert!(all.iter().all(|it| maps.void_from <= it.until));
                let mut of_masters: Vec<_> = maps
                    .by_master
                    .iter()
                    .flat_map(|(master, places)| places.iter().map(|place| (*master, *place)))
                    .collect();
                let mut there: Vec<_> =
                    all.iter().map(|it| (it.master.index, it.place())).collect();
                of_masters.sort_by_key(|(master, place)| (*master, place.3));
                there.sort_by_key(|(master, place)| (*master, place.3));
                prop_assert_eq!(of_masters, there);
                prop_assert!(maps.by_master.values().all(|places| !places.is_empty()));
                seen = maps.log.count;
            }
            let ended = seen - added;
            prop_assert_eq!(added - ended, u64::from(expectations.count()));
        }
    }
}
