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
    by_master: HashMap<u32, Vec<Place>, Keyed>,
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
        if self.count() >= self.most {
            // At most as many as the table has, and only while it is full.
            maps.remove(|old| now >= old.until);
            self.count.store(maps.count(), Ordering::Release);
        }
        let place = new.place();
        if let Some(there) = maps.by_place.get(&place) {
            let live = || there.iter().filter(|old| now < old.until);
            if live().any(|old| old.clashes(&new) && old.master.index != new.master.index) {
                return Err(NotExpected::Clash);
            }
        }
        // The same again, and what is void at this place.
        maps.remove_at(&place, |old| now >= old.until || old.clashes(&new));
        if maps.by_place.get(&place).is_some_and(|there| there.len() >= AT_ONE_PLACE) {
            return Err(NotExpected::Full);
        }
        let index = new.master.index;
        let mut of_it = maps.by_master.remove(&index).unwrap_or_default();
        let maps = &mut *maps;
        of_it.retain(|place| {
            let there = maps.by_place.get(place);
            there.is_some_and(|there| there.iter().any(|old| old.master.index == index))
        });
        while of_it.len() >= of_master.max(1) {
            let oldest = of_it.remove(0);
            maps.remove_at(&oldest, |old| old.master.index == index);
        }
        let total = maps.count();
        if total >= self.most {
            self.count.store(total, Ordering::Release);
            maps.by_master.insert(index, of_it);
            return Err(NotExpected::Full);
        }
        of_it.push(place);
        maps.by_master.insert(index, of_it);
        maps.by_place.entry(place).or_default().push(new);
        maps.log.push(ExpectationChange::New(new));
        self.count.store(total + 1, Ordering::Release);
        Ok(())
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

    /// The connection that this master has announced has come. False if nobody expects it any more.
    pub(crate) fn fulfil(&self, master: u32, zone: u16, tuple: &Tuple, now: Time) -> bool {
        let place = (zone, tuple.protocol, tuple.addresses.destination(), tuple.destination);
        let mut maps = lock(&self.maps);
        let there = maps.by_place.get(&place);
        let is_it = |old: &Expectation| old.master.index == master && old.is_of(tuple, now);
        let Some(found) = there.and_then(|there| there.iter().find(|old| is_it(old))).copied()
        else {
            return false;
        };
        if !found.is_permanent {
            maps.remove_at(&place, |old| *old == found);
            self.count.store(maps.count(), Ordering::Release);
        }
        true
    }

    /// The connection at this place has ended.
    pub(crate) fn forget(&self, master: u32) {
        if self.count() == 0 {
            return;
        }
        let mut maps = lock(&self.maps);
        let Some(places) = maps.by_master.remove(&master) else { return };
        for place in places {
            maps.remove_at(&place, |old| old.master.index == master);
        }
        self.count.store(maps.count(), Ordering::Release);
    }

    /// Ends all.
    pub(crate) fn flush(&self) {
        let mut maps = lock(&self.maps);
        maps.remove(|_| true);
        self.count.store(0, Ordering::Release);
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
    fn count(&self) -> u32 {
        self.by_place.values().map(|there| there.len() as u32).sum()
    }

    fn remove_at(&mut self, place: &Place, is_void: impl Fn(&Expectation) -> bool) {
        let log = &mut self.log;
        if let Some(there) = self.by_place.get_mut(place) {
            there.retain(|old| stays(old, &is_void, log));
            if there.is_empty() {
                self.by_place.remove(place);
            }
        }
    }

    fn remove(&mut self, is_void: impl Fn(&Expectation) -> bool) {
        let log = &mut self.log;
        self.by_place.retain(|_, there| {
            there.retain(|old| stays(old, &is_void, log));
            !there.is_empty()
        });
        let by_place = &self.by_place;
        self.by_master.retain(|_, places| places.iter().any(|place| by_place.contains_key(place)));
    }
}

/// Whether one stays. That it does not is logged.
fn stays(old: &Expectation, is_void: &impl Fn(&Expectation) -> bool, log: &mut Log) -> bool {
    let is_void = is_void(old);
    if is_void {
        log.push(ExpectationChange::Destroy(*old));
    }
    !is_void
}
