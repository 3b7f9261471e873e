//! The connection table: lookup, hit, commit.

use core::fmt;

use packet::{KeyHasher, Time};
use thiserror::Error;

use crate::buckets::Buckets;
use crate::ct_state::{CtState, Direction, Handle, Reference, Stamp};
use crate::endings::Endings;
use crate::entry::{Control, Entry, Line, Side, word};
use crate::evictable::Evictable;
use crate::expectation::{Expectation, ExpectationChange, Expectations, NotExpected};
use crate::helper::Helpers;
use crate::limits::{ClassLimits, LimitKind, Limits, ReachedLimit, SourceLimits};
use crate::places::Places;
use crate::policies::Policies;
use crate::refused::RefusedOnes;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, allocate};
use crate::timeout::Timeouts;
use crate::tuple::Tuple;

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
    /// Another packet has come in its stead, or the connection that expected it has ended: decide
    /// again.
    #[error("the connection is not expected any more")]
    NotExpected,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// ct_state.
    pub ct_state: CtState,
    /// The connection, if there is one and the packet belongs to it.
    pub connection: Option<(Handle, Direction)>,
    /// What the decision depends on: its word 3.
    pub reference: Reference,
    /// Whether the decision may be kept at all.
    pub keep: bool,
    /// What has announced the connection that the packet may open. Few are.
    pub expected: Option<Box<Expectation>>,
    /// If no entry has the hash of the tuple, for either of its directions, be it alive or dead.
    pub vacant: Option<Stamp>,
}

/// What a decision may depend on of a connection without a helper, beside its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain {
    /// Its mark.
    pub mark: u32,
    /// Its label, the lower half first.
    pub label: [u64; 2],
    /// What packets of the direction become, if it is translated.
    pub translated: Option<Tuple>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct New {
    /// The conntrack zone.
    pub zone: u16,
    /// The packet's tuple, as it arrived.
    pub original: Tuple,
    /// Mark.
    pub mark: u32,
    /// Label.
    pub label: u128,
    /// Number of its helper, 0 for none.
    pub helper: u16,
    /// The class whose limits it counts for, 0 for none.
    pub class: u16,
    /// The connection that expects it.
    pub master: Option<u32>,
    /// [`Connections::hash_of`] the packet's tuple, if it is known.
    pub hash: Option<u64>,
    /// [`Tracked::vacant`] of the packet, if it was tracked: it is not looked for again while that holds.
    pub vacant: Option<Stamp>,
}

impl New {
    /// Without mark, label, helper, class or master.
    pub fn plain(zone: u16, original: Tuple) -> Self {
        Self {
            zone,
            original,
            mark: 0,
            label: 0,
            helper: 0,
            class: 0,
            master: None,
            hash: None,
            vacant: None,
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
    /// Packets that were found invalid.
    pub invalid: u64,
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
    /// How often one made room in the full table, or none could.
    pub without_place: u64,
    /// The same of IPv6 where there were free places, but none that may be of IPv6.
    pub ipv6_full: u64,
}

/// Numbers of [`Counts`] that only grow.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) made: AtomicU64,
    pub(crate) invalid: AtomicU64,
    pub(crate) ended: [AtomicU64; 4],
    pub(crate) refused: [AtomicU64; 6],
    pub(crate) without_place: AtomicU64,
    pub(crate) ipv6_full: AtomicU64,
}

/// Places of stamps.
pub(crate) const STAMPS: usize = if cfg!(all(test, feature = "loom")) { 2 } else { 1 << 16 };

/// Where the stamp of a hash is. Hashes of one place are of one shard, whose lock whoever raises it holds.
#[inline(always)]
pub(crate) fn stamp_place(hash: u64) -> usize {
    (hash >> 48) as usize % STAMPS
}

/// All connections. See the crate's documentation.
pub struct Connections {
    pub(crate) settings: Settings,
    pub(crate) entries: Box<[Entry]>,
    /// The addresses of IPv6 connections: those that the original direction's packets get, and
    /// those that the reply direction's get.
    pub(crate) wide: Box<[Line]>,
    pub(crate) buckets: Buckets,
    pub(crate) places: Places,
    pub(crate) evictable: Evictable,
    /// The connection that is asked first whether it makes room.
    pub(crate) hand: AtomicU32,
    /// How many were made when somebody asked last how many were since.
    pub(crate) made_before: AtomicU64,
    /// The pool of places that is looked at next.
    pub(crate) turn: AtomicU32,
    pub(crate) timeouts: Timeouts,
    pub(crate) policies: Mutex<Policies>,
    pub(crate) limits: Limits,
    pub(crate) expectations: Expectations,
    pub(crate) helpers: Helpers,
    pub(crate) endings: Endings,
    /// Raised when a connection with such a tuple comes.
    pub(crate) stamps: Box<[AtomicU32]>,
    /// Part of all stamps.
    pub(crate) stamp_of_all: AtomicU32,
    pub(crate) hasher: KeyHasher,
    pub(crate) counters: Counters,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Connections {
    /// A table, with a secret that nobody outside knows. All its memory is allocated and written
    /// to.
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
                made_before: AtomicU64::new(0),
                turn: AtomicU32::new(0),
                timeouts: Timeouts::new()?,
                policies: Mutex::new(Policies::new()),
                limits: Limits::new(secret),
                expectations: Expectations::new(settings.expectations, secret),
                helpers: Helpers::new(secret),
                endings: Endings::new(),
                stamps: allocate(STAMPS)?,
                stamp_of_all: AtomicU32::new(0),
                hasher: KeyHasher::new(secret),
                counters: Counters::default(),
            })
        };
        table().ok_or(NotMade::Memory(count, wide))
    }

    /// How it was made.
    pub const fn settings(&self) -> &Settings {
        &self.settings
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

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [expired, early_drop, reused, deleted] = self.counters.ended.each_ref().map(load);
        let made = load(&self.counters.made);
        let [not_new, exists, tuple_taken, full, bucket_full, limit] =
            self.counters.refused.each_ref().map(load);
        Counts {
            // One may end before it is counted as made, or be made while this is read.
            connections: made
                .saturating_sub(expired + early_drop + reused + deleted)
                .min(self.settings.connections.into()) as u32,
            made,
            invalid: load(&self.counters.invalid),
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
            without_place: load(&self.counters.without_place),
            ipv6_full: load(&self.counters.ipv6_full),
        }
    }

    /// Expects a connection, until `until` or until the master ends. `of_master` is how many the
    /// master may have at once; its oldest one makes room. The tuple of the packets to come is the
    /// one that they arrive with.
    ///
    /// # Errors
    /// There is no place, or somebody else expects the same.
    pub fn expect(&self, new: Expectation, of_master: usize, now: Time) -> Result<(), NotExpected> {
        if new.master.index >= self.settings.connections {
            return Err(NotExpected::NoMaster);
        }
        // The master does not end meanwhile: who ends it later takes this one out before its place is
        // another connection's.
        let add = || self.expectations.add(new, of_master, now);
        self.under_locks(new.master, add).ok_or(NotExpected::NoMaster)??;
        self.raise_all_stamps();
        Ok(())
    }

    /// All expectations, also those that are void and were not taken out yet.
    pub fn expectations(&self) -> Vec<Expectation> {
        self.expectations.all()
    }

    /// Ends all expectations.
    pub fn flush_expectations(&self) {
        self.expectations.flush();
    }

    /// What has happened to expectations after the first `since` changes, as far as it is
    /// remembered: the last 1,024 changes. Returns how many there were so far as well.
    pub fn expectation_changes(&self, since: u64) -> (Vec<ExpectationChange>, u64) {
        self.expectations.changes(since)
    }

    /// The words of a connection, as a packet of this direction finds them. The control word is read
    /// last: the place may be another connection's by now, and then that says so. A side of one that has
    /// just come allows whatever the former one's packet says.
    #[inline(always)]
    pub(crate) fn view(entry: &Entry, direction: Direction) -> (Control, Side, Side) {
        let own = Side::load(&entry.lines[direction.at()]);
        let peer = Side::load(&entry.lines[direction.opposite().at()]);
        let control = Control(entry.lines[0].0[word::CONTROL].load(Ordering::Acquire));
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

    /// Limits the connections of a zone. 0 is no limit.
    pub fn limit_zone(&self, zone: u16, limit: u32) {
        self.limits.set_zone(zone, limit);
    }

    /// Limits the connections of classes, and of no others. Those that there are already stay.
    pub fn limit_classes(&self, limits: impl IntoIterator<Item = (u16, ClassLimits)>) {
        self.limits.set_classes(limits);
    }

    /// How many connections of a class there are.
    pub fn connections_of(&self, class: u16) -> u32 {
        self.limits.of_class(class)
    }

    /// Which limits have refused connections since this was last asked, and how many each.
    pub fn take_reached_limits(&self) -> RefusedOnes<ReachedLimit> {
        self.limits.take_refused()
    }

    /// Limits the connections of sources and prefixes, in each zone by itself.
    pub fn limit_sources(&self, limits: SourceLimits) {
        self.limits.set_source(limits);
    }

    /// Has all decisions that were made without a connection made again: an expectation has come,
    /// or a setting has changed that concerns packets that open connections.
    pub fn raise_all_stamps(&self) {
        self.stamp_of_all.fetch_add(1, Ordering::AcqRel);
    }
}
