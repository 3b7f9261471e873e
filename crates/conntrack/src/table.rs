//! The connection table: lookup, hit, commit.

use core::fmt;
use core::time::Duration;

use packet::Time;
use siphasher::sip::SipHasher13;
use thiserror::Error;
use types::Protocol;

use crate::buckets::{self, Buckets, Slot};
use crate::connection::{Ended, Reason};
use crate::ct_state::{CtState, Direction, Handle, Named, Reference, Stamp};
use crate::entry::{Control, Entry, Flags, Line, Outcome, Side, cold, word};
use crate::evictable::Evictable;
use crate::expectation::{Expectation, Expectations, NotExpected};
use crate::limits::{LimitKind, Limits, SourceLimits};
use crate::packet::Packet;
use crate::places::Places;
use crate::rewrite::Translation;
use crate::sync::{AtomicU32, AtomicU64, Ordering, allocate};
use crate::timeout::{PolicyId, State, Timeouts, tick};
use crate::tuple::{Role, Tuple};
use crate::{datagram, sctp, tcp};

/// The most connections of a table.
pub const MOST_CONNECTIONS: u32 = 1 << 22;

/// How a table is made.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Connections that there may be, up to [`MOST_CONNECTIONS`].
    pub connections: u32,
    /// How many of them may be of IPv6.
    pub ipv6_connections: u32,
    /// Expectations that there may be.
    pub expectations: u32,
    /// Threads that handle packets. With one, hits need no atomic exchange.
    pub workers: u32,
    /// Whether packets and bytes are counted by direction.
    pub accounting: bool,
    /// Whether a TCP connection may be picked up in the middle (nf_conntrack_tcp_loose).
    pub pick_up: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 262_144,
            ipv6_connections: 262_144,
            expectations: 1024,
            workers: 1,
            accounting: false,
            pick_up: false,
        }
    }
}

/// Why a table was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotMade {
    /// No connections, or too many.
    #[error("{0} connections: a table has at least 1 and at most {MOST_CONNECTIONS}")]
    Size(u32),
    /// The system has not so much memory.
    #[error("no memory for a table of {0} connections, {1} of them IPv6")]
    Memory(u32, u32),
}

/// Why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// The packet may not open a connection.
    #[error("the packet opens no connection")]
    NotNew,
    /// Another packet has made it meanwhile: decide again.
    #[error("the connection is there already")]
    Exists,
    /// The reply direction's tuple is that of another connection: translate otherwise.
    #[error("another connection has the translated tuple")]
    TupleTaken,
    /// The table is full, and all connections are assured.
    #[error("the connection table is full")]
    Full,
    /// Both buckets of a tuple are full.
    #[error("the buckets of the connection's hash are full")]
    BucketFull,
    /// A limit is reached.
    #[error("the limit of connections is reached: {0}")]
    Limit(LimitKind),
    /// The tuples are of different families or protocols, or are an ICMP answer's.
    #[error("the tuples do not belong together")]
    Tuples,
}

/// What becomes of a packet that is tracked, as decide sees it. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// ct_state.
    pub ct_state: CtState,
    /// The connection, if there is one and the packet belongs to it.
    pub connection: Option<(Handle, Direction)>,
    /// What the decision depends on: its word 3.
    pub reference: Reference,
    /// Whether the decision may be kept at all.
    pub keep: bool,
    /// What has announced the connection that the packet may open.
    pub expected: Option<Expectation>,
}

/// Whether a decision that was kept is right for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// Yes, and the connection was updated.
    Valid {
        /// Whether the packet is to be translated: see [`Connections::translation`].
        translated: bool,
    },
    /// No, and nothing was changed: decide again.
    Stale,
}

/// A connection to make.
#[derive(Clone, Copy, Debug)]
pub struct New {
    /// The conntrack zone.
    pub zone: u16,
    /// The packet's tuple, as it arrived.
    pub original: Tuple,
    /// Tuple of the replies as they will arrive: `original.reversed()` without NAT.
    pub reply: Tuple,
    /// Timeouts.
    pub policy: PolicyId,
    /// Mark.
    pub mark: u32,
    /// Label.
    pub label: u128,
    /// Number of its helper, 0 for none.
    pub helper: u16,
    /// The connection that has expected it.
    pub master: Option<u32>,
    /// What the caller keeps of its NAT.
    pub binding: u64,
}

impl New {
    /// Without NAT, mark, label, helper or master, with the default timeouts.
    pub fn plain(zone: u16, original: Tuple) -> Self {
        let reply = original.reversed();
        let policy = PolicyId::default();
        Self {
            zone,
            original,
            reply,
            policy,
            mark: 0,
            label: 0,
            helper: 0,
            master: None,
            binding: 0,
        }
    }
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names of [`Refused`] and [`Reason`].
pub struct Counts {
    /// Connections that there are.
    pub connections: u32,
    /// Connections that were made.
    pub made: u64,
    pub expired: u64,
    pub early_drop: u64,
    pub reused: u64,
    pub deleted: u64,
    pub not_new: u64,
    pub exists: u64,
    pub tuple_taken: u64,
    pub full: u64,
    pub bucket_full: u64,
    pub limit: u64,
}

/// Numbers of [`Counts`] that only grow.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU32,
    pub(crate) made: AtomicU64,
    pub(crate) ended: [AtomicU64; 4],
    refused: [AtomicU64; 6],
}

/// Places of stamps.
const STAMPS: usize = if cfg!(all(test, feature = "loom")) { 1 } else { 1 << 16 };

/// All connections. See the crate's documentation.
pub struct Connections {
    pub(crate) settings: Settings,
    pub(crate) entries: Box<[Entry]>,
    /// The addresses of IPv6 connections: those that the original direction's packets get, and those
    /// that the reply direction's get.
    pub(crate) wide: Box<[Line]>,
    pub(crate) buckets: Buckets,
    pub(crate) places: Places,
    pub(crate) evictable: Evictable,
    /// The connection that is asked first whether it makes room.
    pub(crate) hand: AtomicU32,
    /// The pool of places that is looked at next.
    pub(crate) turn: AtomicU32,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) expectations: Expectations,
    /// Raised when a connection with such a tuple comes.
    stamps: Box<[AtomicU32]>,
    /// Part of all stamps.
    stamp_of_all: AtomicU32,
    hasher: SipHasher13,
    pub(crate) counters: Counters,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Connections {
    /// A table, with a secret that nobody outside knows. All its memory is allocated and written to.
    ///
    /// # Errors
    /// The size is out of range, or there is not so much memory.
    pub fn new(settings: &Settings, secret: [u64; 2], now: Time) -> Result<Self, NotMade> {
        let count = settings.connections;
        if !(1..=MOST_CONNECTIONS).contains(&count) {
            return Err(NotMade::Size(count));
        }
        let wide = settings.ipv6_connections.min(count);
        let table = || {
            Some(Self {
                settings: Settings { ipv6_connections: wide, ..*settings },
                entries: allocate(count as usize)?,
                wide: allocate(wide as usize)?,
                buckets: Buckets::new(count)?,
                places: Places::new(count, wide, now)?,
                evictable: Evictable::new(count)?,
                hand: AtomicU32::new(0),
                turn: AtomicU32::new(0),
                timeouts: Timeouts::new()?,
                limits: Limits::new(secret),
                expectations: Expectations::new(settings.expectations, secret),
                stamps: allocate(STAMPS)?,
                stamp_of_all: AtomicU32::new(0),
                hasher: SipHasher13::new_with_keys(secret[0], secret[1]),
                counters: Counters::default(),
            })
        };
        table().ok_or(NotMade::Memory(count, wide))
    }

    /// Bytes that the table takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.entries)
            + size_of_val(&*self.wide)
            + self.buckets.bytes()
            + self.places.bytes()
            + self.evictable.bytes()
            + size_of_val(&*self.stamps)
    }

    /// Sets a timeout, also for connections that there are.
    pub fn set_timeout(&self, policy: PolicyId, state: State, timeout: Duration) {
        self.timeouts.set(policy, state, timeout);
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [expired, early_drop, reused, deleted] = self.counters.ended.each_ref().map(load);
        let [not_new, exists, tuple_taken, full, bucket_full, limit] =
            self.counters.refused.each_ref().map(load);
        Counts {
            connections: self.counters.connections.load(Ordering::Relaxed),
            made: load(&self.counters.made),
            expired,
            early_drop,
            reused,
            deleted,
            not_new,
            exists,
            tuple_taken,
            full,
            bucket_full,
            limit,
        }
    }

    /// What connection tracking says of a packet. Changes nothing: decide asks this.
    pub fn track(&self, zone: u16, tuple: &Tuple, packet: &Packet, now: Time) -> Tracked {
        let hash = tuple.hash(&self.hasher, zone);
        // Before the lookup: a connection that comes afterwards makes the stamp another one.
        let stamp = self.stamp(hash);
        let Some((handle, direction)) = self.find(hash, zone, tuple, now) else {
            return self.untracked(zone, tuple, packet, Some(stamp), now);
        };
        let entry = &self.entries[handle.index as usize];
        let (control, own, peer) = Self::view(entry, direction);
        let outcome = match control.generation() == handle.generation {
            true => self.judge(control, own, peer, direction, packet, tick(now)),
            // It has ended since it was found. The next packet will see it.
            false => Outcome::Renew,
        };
        let ct_state = match outcome {
            Outcome::Invalid => CtState::INVALID,
            Outcome::Renew => return self.untracked(zone, tuple, packet, None, now),
            Outcome::Pass | Outcome::Update(..) => control.ct_state(direction),
        };
        let reference = Reference::new(Named::Connection(handle, direction, ct_state));
        let connection = Some((handle, direction));
        Tracked { ct_state, connection, reference, keep: true, expected: None }
    }

    /// What is said of a packet that belongs to no connection, or opens one anew. Without a stamp it
    /// is said for this packet alone.
    fn untracked(
        &self,
        zone: u16,
        tuple: &Tuple,
        packet: &Packet,
        stamp: Option<Stamp>,
        now: Time,
    ) -> Tracked {
        let opens = self.open(tuple, packet, 0).is_some();
        let expected = match opens {
            true => self.expectations.find(zone, tuple, now),
            false => None,
        };
        let ct_state = match (opens, expected) {
            (false, _) => CtState::INVALID,
            (true, None) => CtState::NEW | CtState::TRK,
            (true, Some(_)) => CtState::NEW | CtState::REL | CtState::TRK,
        };
        // An expectation ends by time, which no stamp says.
        let (keep, reference) = match stamp {
            Some(stamp) if expected.is_none() => {
                (true, Reference::new(Named::Absent(stamp, ct_state)))
            }
            _ => (false, Reference::NONE),
        };
        Tracked { ct_state, connection: None, reference, keep, expected }
    }

    /// Expects a connection, until `until` or until the master ends. `of_master` is how many the
    /// master may have at once; its oldest one makes room. The tuple of the packets to come is the
    /// one that they arrive with.
    ///
    /// # Errors
    /// There is no place, or somebody else expects the same.
    pub fn expect(&self, new: Expectation, of_master: usize, now: Time) -> Result<(), NotExpected> {
        let is_there = |handle: Handle| {
            handle.index < self.settings.connections && {
                let control = self.control(handle.index);
                control.is_live() && control.generation() == handle.generation
            }
        };
        if !is_there(new.master) {
            return Err(NotExpected::NoMaster);
        }
        self.expectations.add(new, of_master, now)?;
        // It has ended meanwhile, and did not see this one.
        if !self.control(new.master.index).is_live() {
            self.expectations.forget(new.master.index);
            return Err(NotExpected::NoMaster);
        }
        self.raise_all_stamps();
        Ok(())
    }

    /// All expectations, also those that are void and were not taken out yet.
    pub fn expectations(&self) -> Vec<Expectation> {
        self.expectations.all()
    }

    /// Whether a decision that was made for `reference` is right for a packet of its flow; if so, its
    /// connection is updated. `length` is of the IP packet, in bytes.
    #[inline]
    pub fn hit(&self, reference: Reference, packet: &Packet, length: u32, now: Time) -> Hit {
        match reference.0 >> 62 {
            1 => self.hit_connection(reference, packet, length, now),
            3 => self.hit_nothing(reference, packet),
            0 => Hit::Valid { translated: false },
            _ => Hit::Stale,
        }
    }

    /// Asks for the memory that [`Connections::hit`] will read.
    #[inline(always)]
    pub fn prefetch(&self, reference: Reference) {
        if reference.0 >> 62 == 1 {
            let index = (reference.0 >> 32) as u32 & (MOST_CONNECTIONS - 1);
            if let Some(entry) = self.entries.get(index as usize) {
                packet::prefetch(&entry.lines[0]);
                packet::prefetch(&entry.lines[1]);
            }
        }
    }

    #[inline]
    fn hit_connection(&self, reference: Reference, packet: &Packet, length: u32, now: Time) -> Hit {
        let index = (reference.0 >> 32) as u32 & (MOST_CONNECTIONS - 1);
        let Some(entry) = self.entries.get(index as usize) else { return Hit::Stale };
        let (direction, tick) = (reference.direction(), tick(now));
        // Again if somebody else has written meanwhile, which is rare, and not for ever.
        for _ in 0..8 {
            let (control, own, peer) = Self::view(entry, direction);
            let is_another = control.generation() != reference.0 as u32;
            if is_another || !control.is_live() || self.is_dead(control, &own, &peer, tick) {
                return Hit::Stale;
            }
            let (state, written) = match self.judge(control, own, peer, direction, packet, tick) {
                Outcome::Update(to, next) => (control.ct_state(direction), Some((to, next))),
                Outcome::Pass => (control.ct_state(direction), None),
                Outcome::Invalid => (CtState::INVALID, None),
                Outcome::Renew => return Hit::Stale,
            };
            if state != reference.ct_state() {
                return Hit::Stale;
            }
            if let Some((to, next)) = written {
                let line = &entry.lines[direction.at()];
                if !self.write(index, [control, to], line, [own, next], tick) {
                    continue;
                }
                if self.settings.accounting {
                    count(line, length);
                }
            }
            let nat = Flags::SNAT.0 | Flags::DNAT.0;
            return Hit::Valid { translated: control.flags().0 & nat != 0 };
        }
        Hit::Stale
    }

    fn hit_nothing(&self, reference: Reference, packet: &Packet) -> Hit {
        let Named::Absent(stamp, expected) = reference.named() else { return Hit::Stale };
        let place = &self.stamps[stamp.place as usize % STAMPS];
        let number = place.load(Ordering::Acquire);
        let number = number.wrapping_add(self.stamp_of_all.load(Ordering::Acquire));
        let is_same = match packet {
            Packet::Tcp(_) | Packet::Sctp(_) | Packet::Malformed => {
                self.ct_state_of_new_packet(packet) == expected
            }
            // The tuple says it, and is the same.
            Packet::Datagram => true,
        };
        match number == stamp.number && is_same {
            true => Hit::Valid { translated: false },
            false => Hit::Stale,
        }
    }

    /// Makes a connection of the packet that opens it, or counts why not. A connection that has ended
    /// or makes room for it is told to `ended`.
    ///
    /// # Errors
    /// Why there is no new connection; see [`Refused`].
    pub fn commit(
        &self,
        new: &New,
        packet: &Packet,
        length: u32,
        now: Time,
        ended: &mut dyn FnMut(&Ended),
    ) -> Result<Handle, Refused> {
        let result = self.try_commit(new, packet, length, now, ended);
        if let Err(why) = result {
            let which = match why {
                Refused::NotNew | Refused::Tuples => 0,
                Refused::Exists => 1,
                Refused::TupleTaken => 2,
                Refused::Full => 3,
                Refused::BucketFull => 4,
                Refused::Limit(_) => 5,
            };
            self.counters.refused[which].fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    fn try_commit(
        &self,
        new: &New,
        packet: &Packet,
        length: u32,
        now: Time,
        ended: &mut dyn FnMut(&Ended),
    ) -> Result<Handle, Refused> {
        let (original, reply) = (&new.original, &new.reply);
        let belong = original.protocol == reply.protocol
            && original.addresses.is_v6() == reply.addresses.is_v6()
            && original.role != Role::Answer
            && original.reversed().role == reply.role;
        if !belong {
            return Err(Refused::Tuples);
        }
        let (state, flags, own) = self.open(original, packet, tick(now)).ok_or(Refused::NotNew)?;
        let is_wide = original.addresses.is_v6();
        // Without translation both tuples have one hash, and one lookup finds either.
        let is_paired = original.reversed() != *reply;
        let hash = original.hash(&self.hasher, new.zone);
        let hashes = match is_paired {
            true => [hash, reply.hash(&self.hasher, new.zone)],
            false => [hash; 2],
        };
        self.buckets.prefetch(hash);
        // A place first, outside of the locks of the buckets: making room takes such locks.
        let index = self.place(hashes[0] as u32, is_wide, now, ended).ok_or(Refused::Full)?;
        let entry = &self.entries[index as usize];
        for line in [&entry.lines[0], &entry.lines[1], &entry.cold] {
            packet::prefetch(line);
        }
        let source = original.addresses.source();
        let counted = match self.limits.take(new.zone, source) {
            Ok(counted) => counted,
            Err(which) => {
                self.places.give(index);
                return Err(Refused::Limit(which));
            }
        };
        let flags = match counted {
            true => flags.with(Flags::COUNTED),
            false => flags,
        };
        let result = (0..4).find_map(|_| {
            let locked = self.buckets.lock(hashes);
            let others = [original, reply].into_iter().zip(hashes).take(1 + usize::from(is_paired));
            let taken = |(tuple, hash)| self.find_any(hash, new.zone, tuple);
            let Some((other, direction, is_original)) = others
                .enumerate()
                .find_map(|(at, pair)| taken(pair).map(|(other, way)| (other, way, at == 0)))
            else {
                return Some(self.insert(index, new, hashes, (state, flags, own), length, now));
            };
            // The lock goes before another connection does, which may be in other shards.
            drop(locked);
            let entry = &self.entries[other.index as usize];
            let (control, own, peer) = Self::view(entry, direction);
            let reason = if self.is_dead(control, &own, &peer, tick(now)) {
                Reason::Expired
            } else if is_original
                && self.judge(control, own, peer, direction, packet, tick(now)) == Outcome::Renew
            {
                Reason::Reused
            } else if is_original {
                return Some(Err(Refused::Exists));
            } else {
                return Some(Err(Refused::TupleTaken));
            };
            self.end(other, reason, now, ended);
            None
        });
        let result = result.unwrap_or(Err(Refused::Exists));
        if result.is_err() {
            if counted {
                self.limits.give(new.zone, source);
            }
            self.places.give(index);
        }
        result
    }

    /// Writes a connection whose tuples are nobody's. The shards are locked.
    fn insert(
        &self,
        index: u32,
        new: &New,
        hashes: [u64; 2],
        (state, mut flags, own): (State, Flags, Side),
        length: u32,
        now: Time,
    ) -> Result<Handle, Refused> {
        let entry = &self.entries[index as usize];
        // Packets of the original direction become this, and those of the reply direction that.
        let become_of = [new.reply.reversed(), new.original.reversed()];
        let before = [new.original, new.reply];
        if become_of[0] != new.original {
            flags = flags.with(Flags::PAIRED);
        }
        if become_of[0].source_end() != new.original.source_end() {
            flags = flags.with(Flags::SNAT);
        }
        if become_of[0].destination_end() != new.original.destination_end() {
            flags = flags.with(Flags::DNAT);
        }
        if new.master.is_some() {
            flags = flags.with(Flags::EXPECTED);
        }
        if new.original.addresses.is_v6() {
            flags = flags.with(Flags::V6);
            for (at, tuple) in become_of.iter().enumerate() {
                let line = &self.wide[index as usize];
                for (place, word) in line.0[at * 4..].iter().zip(tuple.address_words()) {
                    place.store(word, Ordering::Release);
                }
            }
        }
        let ticks = u64::from(tick(now)) << 32;
        for at in 0..2 {
            let store =
                |word: usize, value| entry.lines[at].0[word].store(value, Ordering::Release);
            let side = if at == 0 { own } else { Side::default() };
            store(word::SEEN, side.seen & 0xffff_ffff | ticks);
            store(word::SENT, side.sent);
            store(word::WINDOW, side.window);
            store(word::ADDRESSES, become_of[at].address_words()[0]);
            let deltas = crate::rewrite::deltas(&before[at], &become_of[at]);
            store(word::PORTS, become_of[at].port_word() | deltas);
            let first = self.settings.accounting && at == 0;
            store(word::PACKETS, first.into());
            store(word::BYTES, if first { length.into() } else { 0 });
        }
        let is_icmp = u64::from(new.original.role != Role::None);
        let identity = u64::from(new.zone) << 48
            | u64::from(new.original.protocol.0) << 40
            | is_icmp << 32
            | u64::from(new.mark);
        entry.lines[1].0[word::IDENTITY].store(identity, Ordering::Release);
        let store = |word: usize, value| entry.cold.0[word].store(value, Ordering::Release);
        store(cold::LABEL_LOW, new.label as u64);
        store(cold::LABEL_HIGH, (new.label >> 64) as u64);
        store(cold::CREATED, now.0);
        store(cold::BINDING, new.binding);
        store(cold::MASTER, new.master.map_or(0, |master| u64::from(master) + 1));
        store(cold::HELPER, new.helper.into());

        // The slots lead nowhere until the entry is live, so both directions come at once.
        let is_paired = flags.has(Flags::PAIRED);
        let directions = match is_paired {
            true => [buckets::ORIGINAL, buckets::REPLY],
            false => [buckets::ORIGINAL | buckets::REPLY, 0],
        };
        if !self.buckets.insert(hashes[0], index, directions[0]) {
            return Err(Refused::BucketFull);
        }
        if is_paired && !self.buckets.insert(hashes[1], index, directions[1]) {
            self.buckets.remove(hashes[0], index, directions[0]);
            return Err(Refused::BucketFull);
        }
        let generation = self.control(index).generation();
        let flags = flags.with(Flags::LIVE);
        let control = Control::new(generation, new.policy.0, flags, state);
        entry.lines[0].0[word::CONTROL].store(control.0, Ordering::Release);
        if control.may_go() {
            self.evictable.set(index);
        }
        self.places.schedule(index, self.deadline(control, &own, &own, now), now);
        for hash in hashes.iter().take(1 + usize::from(is_paired)) {
            self.stamps[*hash as usize % STAMPS].fetch_add(1, Ordering::AcqRel);
        }
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        self.counters.made.fetch_add(1, Ordering::Relaxed);
        self.expectations.fulfil(new.zone, &new.original, now);
        Ok(Handle { index, generation })
    }

    /// The connection of a tuple, and the direction, if it lives.
    pub fn lookup(&self, zone: u16, tuple: &Tuple, now: Time) -> Option<(Handle, Direction)> {
        self.find(tuple.hash(&self.hasher, zone), zone, tuple, now)
    }

    #[inline]
    fn find(&self, hash: u64, zone: u16, tuple: &Tuple, now: Time) -> Option<(Handle, Direction)> {
        let (handle, direction) = self.find_any(hash, zone, tuple)?;
        let (control, own, peer) = Self::view(&self.entries[handle.index as usize], direction);
        (!self.is_dead(control, &own, &peer, tick(now))).then_some((handle, direction))
    }

    /// As [`Connections::find`], also if the connection is dead and was not taken out yet.
    #[inline]
    fn find_any(&self, hash: u64, zone: u16, tuple: &Tuple) -> Option<(Handle, Direction)> {
        // What a direction's packets become is what the other's look like, reversed.
        let wanted = tuple.reversed();
        let (addresses, ports) = (wanted.address_words(), wanted.port_word());
        let is_icmp = u64::from(tuple.role != Role::None);
        let identity = u64::from(zone) << 48 | u64::from(tuple.protocol.0) << 40 | is_icmp << 32;
        let is_v6 = tuple.addresses.is_v6();
        self.buckets.find(hash, |slot: Slot| {
            let index = slot.index();
            let entry = self.entries.get(index as usize)?;
            packet::prefetch(&entry.lines[1]);
            let control = self.control(index);
            if !control.is_live() || control.flags().has(Flags::V6) != is_v6 {
                return None;
            }
            let load = |at: usize, word: usize| entry.lines[at].0[word].load(Ordering::Acquire);
            let is_of = |direction: Direction| {
                let other = direction.opposite().at();
                load(other, word::PORTS) >> 32 == ports >> 32
                    && match is_v6 {
                        false => load(other, word::ADDRESSES) == addresses[0],
                        true => self.wide_words(index, direction.opposite()) == addresses,
                    }
            };
            let can_be = |direction| match (tuple.role, direction) {
                (Role::None, _) => true,
                (role, Direction::Original) => role == Role::Query,
                (role, Direction::Reply) => role == Role::Answer,
            };
            let direction =
                [(Direction::Original, buckets::ORIGINAL), (Direction::Reply, buckets::REPLY)]
                    .into_iter()
                    .find(|(way, bit)| slot.is_for(*bit) && can_be(*way) && is_of(*way))?
                    .0;
            let is_of_zone = load(1, word::IDENTITY) & !0xffff_ffff == identity;
            // The same generation as before: what was read is of one connection.
            let generation = self.control(index).generation();
            (is_of_zone && generation == control.generation())
                .then_some((Handle { index, generation }, direction))
        })
    }

    /// The words of a connection, as a packet of this direction finds them.
    #[inline(always)]
    pub(crate) fn view(entry: &Entry, direction: Direction) -> (Control, Side, Side) {
        let control = Control(entry.lines[0].0[word::CONTROL].load(Ordering::Acquire));
        let own = Side::load(&entry.lines[direction.at()]);
        let peer = Side::load(&entry.lines[direction.opposite().at()]);
        (control, own, peer)
    }

    #[inline(always)]
    pub(crate) fn control(&self, index: u32) -> Control {
        let entry = &self.entries[index as usize];
        Control(entry.lines[0].0[word::CONTROL].load(Ordering::Acquire))
    }

    pub(crate) fn wide_words(&self, index: u32, direction: Direction) -> [u64; 4] {
        let line = self.wide.get(index as usize);
        core::array::from_fn(|at| {
            line.map_or(0, |line| line.0[direction.at() * 4 + at].load(Ordering::Acquire))
        })
    }

    #[inline(always)]
    fn judge(
        &self,
        control: Control,
        own: Side,
        peer: Side,
        direction: Direction,
        packet: &Packet,
        tick: u32,
    ) -> Outcome {
        match packet {
            Packet::Tcp(segment) => tcp::judge(control, own, peer, direction, segment),
            Packet::Datagram => {
                let original = if direction == Direction::Original { &own } else { &peer };
                datagram::judge(control, own, original, direction, tick)
            }
            Packet::Sctp(chunks) => sctp::judge(control, own, peer, direction, chunks),
            Packet::Malformed => Outcome::Invalid,
        }
    }

    /// The first state of a connection that a packet opens.
    fn open(&self, tuple: &Tuple, packet: &Packet, tick: u32) -> Option<(State, Flags, Side)> {
        match packet {
            Packet::Tcp(segment) if tuple.protocol == Protocol::TCP => {
                tcp::open(segment, self.settings.pick_up)
            }
            Packet::Sctp(chunks) if tuple.protocol == Protocol::SCTP => {
                sctp::open(chunks).map(|(state, own)| (state, Flags::default(), own))
            }
            Packet::Datagram if !matches!(tuple.protocol, Protocol::TCP | Protocol::SCTP) => {
                let own = Side { sent: tick.into(), ..Side::default() };
                let may_open = tuple.role != Role::Answer;
                may_open.then(|| (datagram::first(tuple.protocol), Flags::default(), own))
            }
            _ => None,
        }
    }

    fn ct_state_of_new_packet(&self, packet: &Packet) -> CtState {
        let opens = match packet {
            Packet::Tcp(segment) => tcp::open(segment, self.settings.pick_up).is_some(),
            Packet::Sctp(chunks) => sctp::open(chunks).is_some(),
            Packet::Datagram => true,
            Packet::Malformed => false,
        };
        if opens { CtState::NEW | CtState::TRK } else { CtState::INVALID }
    }

    /// Writes what a packet has changed. False if somebody else has written since it was read; then
    /// what was written is no more than a packet that came before.
    #[inline(always)]
    fn write(
        &self,
        index: u32,
        [from, to]: [Control; 2],
        line: &Line,
        [own, next]: [Side; 2],
        tick: u32,
    ) -> bool {
        if to != from && !self.change(index, from, to) {
            return false;
        }
        let seen = next.seen & 0xffff_ffff | u64::from(tick) << 32;
        let is_shared = self.settings.workers > 1;
        let exchange = |word: usize, old: u64, new: u64| {
            let place = &line.0[word];
            if old == new {
                return true;
            }
            if is_shared {
                return place
                    .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok();
            }
            place.store(new, Ordering::Release);
            true
        };
        exchange(word::SENT, own.sent, next.sent)
            && exchange(word::WINDOW, own.window, next.window)
            && exchange(word::SEEN, own.seen, seen)
    }

    /// Exchanges the control word, and notes whether the connection may still make room.
    #[cold]
    pub(crate) fn change(&self, index: u32, from: Control, to: Control) -> bool {
        let place = &self.entries[index as usize].lines[0].0[word::CONTROL];
        let exchanged = place.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_err() {
            return false;
        }
        match (from.may_go(), to.may_go()) {
            (false, true) => self.evictable.set(index),
            (true, false) => self.evictable.clear(index),
            _ => {}
        }
        true
    }

    /// What becomes of packets of a direction of a connection. `None` if it is not there.
    #[inline]
    pub fn translation(&self, handle: Handle, direction: Direction) -> Option<Translation> {
        let line = &self.entries.get(handle.index as usize)?.lines[direction.at()];
        let control = self.control(handle.index);
        let is_v6 = control.flags().has(Flags::V6);
        let words = match is_v6 {
            true => self.wide_words(handle.index, direction),
            false => [line.0[word::ADDRESSES].load(Ordering::Acquire), 0, 0, 0],
        };
        let ports = line.0[word::PORTS].load(Ordering::Acquire);
        let identity = &self.entries[handle.index as usize].lines[1].0[word::IDENTITY];
        let identity = identity.load(Ordering::Acquire);
        let role = match (identity >> 32 & 1, direction) {
            (0, _) => Role::None,
            (_, Direction::Original) => Role::Query,
            (_, Direction::Reply) => Role::Answer,
        };
        let tuple = Tuple {
            addresses: Tuple::addresses_of(words, is_v6),
            protocol: Protocol((identity >> 40) as u8),
            source: (ports >> 48) as u16,
            destination: (ports >> 32) as u16,
            role,
        };
        let is_same = control.is_live()
            && control.generation() == handle.generation
            && self.control(handle.index).generation() == handle.generation;
        let is_source = match direction {
            Direction::Original => control.flags().has(Flags::SNAT),
            Direction::Reply => control.flags().has(Flags::DNAT),
        };
        is_same.then(|| Translation::new(tuple, ports as u32, is_source))
    }

    /// Limits the connections of a zone. 0 is no limit.
    pub fn limit_zone(&self, zone: u16, limit: u32) {
        self.limits.set_zone(zone, limit);
    }

    /// Limits the connections of sources and prefixes, in each zone by itself.
    pub fn limit_sources(&self, limits: SourceLimits) {
        self.limits.set_source(limits);
    }

    /// What stands for "no connection has a tuple with this hash".
    fn stamp(&self, hash: u64) -> Stamp {
        let place = hash as usize % STAMPS;
        let number = self.stamps[place].load(Ordering::Acquire);
        let of_all = self.stamp_of_all.load(Ordering::Acquire);
        Stamp { place: place as u32, number: number.wrapping_add(of_all) }
    }

    /// Has all decisions that were made without a connection made again: an expectation has come,
    /// or a setting has changed that concerns packets that open connections.
    pub fn raise_all_stamps(&self) {
        self.stamp_of_all.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn hash(&self, zone: u16, tuple: &Tuple) -> u64 {
        tuple.hash(&self.hasher, zone)
    }
}

/// Counts a packet of a direction.
#[inline(always)]
fn count(line: &Line, length: u32) {
    let add = |word: usize, more: u64| {
        let place = &line.0[word];
        place.store(place.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    };
    add(word::PACKETS, 1);
    add(word::BYTES, length.into());
}
