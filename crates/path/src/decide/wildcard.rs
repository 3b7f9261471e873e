//! What was decided about packets that differ only in what nobody reads.
//!
//! A decision is kept for a flow, and a packet that opens a connection is the first of its flow: so it
//! is always decided. But of the ends of packets, flows read little, and the way behind them depends on the
//! route. So the first packets of the first connections are decided, and what was said of them is right
//! for others that are alike. Open vSwitch keeps such entries in its megaflow cache, each with a mask of
//! its own (Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI 2015). Here the flows of a
//! VRF have one mask together, so that a lookup is one probe.
//!
//! An entry is for packets of a VRF in which nothing but flows may look at sources, and whose connection
//! has no helper and was not announced. If their route has one next hop, this stands
//! in the entry's key, and of the destination what flows read; otherwise all of the destination does.
//! It is valid for one generation of the tables. What it says is what decide would say: builds with debug
//! assertions decide all the same, and compare.

use std::net::{IpAddr, Ipv4Addr};

use conntrack::{Connections, CtState, Direction, New, Plain, Reference, Tuple};
use flow::{CacheMode, CacheSettings};
use packet::KeyHasher;
use pipeline::{Action, EndReads, NatEnd, NatNew};
use tables::{RouteKind, Tables, Vrf};
use wire::common::Facts;
use wire::{Addresses, PortId, Protocol, VrfId};

use super::batch::number;
use super::flows::{Looked, Seen};
use super::question::Question;
use super::trace::{Step, Trace};
use super::way::judge_source;
use super::{Beside, KeyView, LookedUp, decide_by, is_link_local_v6};
use crate::batch::table_of;
use crate::cache::key;
use crate::connection::{self, Change};
use crate::decision::Decision;
use crate::extension::{Asked, Extension, Extensions};

/// Entries that there may be: one in each place.
const PLACES: usize = 4096;

/// Words of an entry's key: behind those of a flow, what was said of the connection, and the way that the
/// packet may go.
const STATE: usize = key::V6;
const WAY: usize = STATE + 1;
const SHORT: usize = WAY + 1;
/// Words behind these, of a connection that has them: its label, the addresses and ports that it makes of
/// the packet, and the way that this may go then. A bit of the state says whether there are any.
const LABEL: usize = SHORT;
const TRANSLATED: usize = LABEL + 2;
const WAY_THEN: usize = TRANSLATED + 5;
const KEY: usize = WAY_THEN + 1;
const IS_LONG: u64 = 1 << 12;

/// Entries are for packets of one zone, whose decisions need no key.
const UNKNOWN: Option<&[u64; key::V4]> = None;

/// A worker's entries.
pub(crate) struct Wildcards {
    /// By table of the decision cache: whether its packets have entries.
    is_on: [bool; 4],
    hasher: KeyHasher,
    /// By place: what was missing there last. An entry is made when it is missing for the second time.
    missing: Box<[u16]>,
    /// By place; empty until there is one.
    entries: Vec<Option<Entry>>,
    /// How many were made.
    made: u64,
    /// Decisions taken from entries that were not told yet.
    taken: u64,
}

struct Entry {
    /// No other entry has had it. Its place follows from it.
    id: u64,
    key: [u64; KEY],
    /// Of the tables, and of the numbers of extensions.
    validity: (u64, u64),
    /// For whatever connection. [`Decision::NONE`] if what was decided is not right for all that are
    /// alike: then they are decided, and nobody tries again.
    decision: Decision,
    /// What it asks of connections, for a packet of whatever tuple.
    change: Option<Change>,
    then: Option<Then>,
}

/// What is decided about a packet once it has opened the connection that its entry asks for: what the entry
/// of such packets says.
#[derive(Clone, Copy)]
struct Then {
    ct_state: CtState,
    /// For whatever connection.
    decision: Decision,
}

impl Entry {
    /// Whether the entry that its packets have once their connection is there follows from it and from what
    /// connection tracking says then: of what it makes of a packet, flows read nothing.
    fn has_one_successor(&self, reads: &EndReads) -> bool {
        let asks_for_source = match &self.change {
            Some(Change::Make { new, destination: None, source: Some(_), .. }) => new.helper == 0,
            _ => false,
        };
        asks_for_source && reads.source == 0 && reads.ports >> 16 == 0
    }
}

impl Wildcards {
    pub(crate) fn new(caches: &[CacheSettings; 4], secret: u64) -> Self {
        Self {
            is_on: caches.each_ref().map(|settings| settings.mode != CacheMode::Off),
            hasher: KeyHasher::new([secret, 0]),
            missing: vec![0; PLACES].into(),
            entries: Vec::new(),
            made: 0,
            taken: 0,
        }
    }

    /// How many decisions were taken from entries since this was last asked.
    #[inline(always)]
    pub(crate) fn taken(&mut self) -> u64 {
        core::mem::take(&mut self.taken)
    }

    /// The entry with this number, if it is still valid.
    #[inline(always)]
    fn entry(&mut self, id: u64, validity: (u64, u64)) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(id as usize % PLACES)?.as_mut();
        entry.filter(|entry| entry.id == id && entry.validity == validity)
    }

    /// From now on no packet has one.
    pub(crate) fn switch_off(&mut self) {
        self.is_on = [false; 4];
    }

    /// Whether a packet may have an entry, as far as its table of the decision cache is concerned.
    #[inline(always)]
    pub(super) fn may_have(&self, facts: Facts) -> bool {
        self.is_on[table_of(facts)]
    }
}

/// What packets have in common that came to a VRF by one port, and may have entries.
pub(super) struct Lane<'t> {
    /// [`Lane::CLASS`] of their keys.
    class: u64,
    port: PortId,
    vrf: &'t Vrf,
    reads: &'t EndReads,
    connections: &'t Connections,
    tables: &'t Tables,
    /// Whether their sources are held against the routes.
    judges_sources: bool,
}

impl<'t> Lane<'t> {
    /// In a key's last word but one: the kinds of its fields, of fragment and of origin, and the VRF.
    const CLASS: u64 = 0xffff_003f;

    /// That of a packet. `None` if such packets have no entries: if they are not whole or have no ports, or
    /// something may look at their source that no entry knows of.
    #[inline(never)]
    pub(super) fn of<const WORDS: usize>(words: &[u64; WORDS], tables: &'t Tables) -> Option<Self> {
        let (class, port) = Self::key(words);
        // A whole packet with ports, that came by a port.
        if class & 0x3f != 1 {
            return None;
        }
        let vrf = tables.vrf(VrfId(key::vrf(class)))?;
        if !vrf.features.only_flows() || !vrf.spd.is_empty() || tables.is_tapped() {
            return None;
        }
        let reads = tables.pipeline().end_reads(vrf.id)?;
        let connections = tables.connections()?;
        let judges_sources = tables.boundary(port).judges_sources;
        Some(Self { class, port, vrf, reads, connections, tables, judges_sources })
    }

    fn key<const WORDS: usize>(words: &[u64; WORDS]) -> (u64, PortId) {
        (words[WORDS - 2] & Self::CLASS, PortId(words[WORDS - 1] as u16))
    }

    /// Whether a packet is one of these.
    #[inline(always)]
    pub(super) fn has<const WORDS: usize>(&self, words: &[u64; WORDS]) -> bool {
        (self.class, self.port) == Self::key(words)
    }

    /// Everything that a destination may have a say in behind the flows.
    #[inline(always)]
    fn way(&self, destination: IpAddr) -> u64 {
        const UNKNOWN: u64 = 2 << 32;
        const VIA: u64 = 3 << 32;
        const ON_LINK: u64 = 4 << 32;
        if !self.reads.routes {
            return UNASKED;
        }
        let is_broadcast = matches!(destination, IpAddr::V4(v4) if v4.is_broadcast());
        if is_of_link(destination) || destination.is_multicast() || is_broadcast {
            return ANY_WAY;
        }
        match self.vrf.route(destination).map(|route| route.kind) {
            None => UNKNOWN,
            Some(RouteKind::Via { next_hop }) => VIA | u64::from(next_hop.0),
            Some(RouteKind::Connected { port }) => self
                .tables
                .on_link_next_hop(port, destination)
                .map_or(ANY_WAY, |next_hop| ON_LINK | u64::from(next_hop.0)),
            Some(_) => ANY_WAY,
        }
    }
}

/// A packet that may have an entry. It is written in place: it is large, and there is one for each packet
/// that opens a connection.
pub(super) struct Alike {
    key: [u64; KEY],
    hash: u64,
    vrf: VrfId,
    /// Whether its source is held against the routes. It is right.
    is_judged: bool,
    tuple: Tuple,
    plain: Plain,
    looked: Looked,
}

impl Alike {
    /// Of no packet yet.
    pub(super) fn nothing() -> Self {
        let (source, destination) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED);
        let tuple = Tuple::new(Addresses::V4 { source, destination }, Protocol(0), 0, 0);
        Self {
            key: [0; KEY],
            hash: 0,
            vrf: VrfId::MAIN,
            is_judged: false,
            tuple,
            plain: Plain::default(),
            looked: Looked::NOTHING,
        }
    }

    /// Becomes a packet with this key. `None` if it can have no entry, and then nothing here is about any: if
    /// its source is the gateway's own or means something on one link alone, if the routes say that it is
    /// wrong, or if its connection has a helper, was announced or has ended.
    #[inline(never)]
    pub(super) fn become_of<const WORDS: usize>(
        &mut self,
        lane: &Lane<'_>,
        (words, view): (&[u64; WORDS], impl KeyView),
        seen: &Seen<'_>,
        wildcards: &Wildcards,
    ) -> Option<()> {
        let &Lane { vrf, reads, connections, judges_sources, .. } = lane;
        let source = view.source();
        if (vrf.may_be_local(source) && vrf.is_local(source)) || is_of_link(source) {
            return None;
        }
        if judges_sources && judge_source(lane.port, source, vrf, lane.tables, &mut ()).is_some() {
            return None;
        }
        let [class, origin] = [words[WORDS - 2], words[WORDS - 1]];
        self.tuple = connection::tuple_of_ports(words, view);
        match &seen.looked {
            Some(looked) => self.looked = *looked,
            None => {
                let (tuple, looked) = (&self.tuple, &mut self.looked);
                looked.hash = seen.hash.unwrap_or_else(|| connections.hash_of(vrf.id.0, tuple));
                let addresses = key::address_sum(words);
                looked.packet =
                    connection::read_words(seen.packet, seen.facts, addresses, tuple.protocol);
                let (hash, packet) = (looked.hash, &looked.packet);
                looked.say(connections.track_by(hash, vrf.id.0, tuple, packet, seen.now))?;
            }
        }
        let Looked { ct_state, connection, keep, .. } = self.looked;
        let is_reply = match connection {
            None => {
                self.plain = Plain::default();
                false
            }
            Some((handle, direction)) => {
                connections.read_plain(handle, direction, &mut self.plain)?;
                direction == Direction::Reply
            }
        };
        let (key, plain) = (&mut self.key, &self.plain);
        let way = lane.way(view.destination());
        let read = Read::of(reads, way);
        key[..STATE].fill(0);
        let ends = read.of_key(words);
        key[..WORDS - 2].copy_from_slice(&ends[..WORDS - 2]);
        key[WORDS - 2] = class & (0xffff_ffff | u64::from(read.ports) << 32);
        key[WORDS - 1] = origin;
        let is_translated = plain.translated.is_some();
        let is_long = is_translated || plain.label != [0; 2];
        key[STATE] = u64::from(ct_state.0)
            | u64::from(keep) << 8
            | u64::from(connection.is_some()) << 9
            | u64::from(is_translated) << 10
            | u64::from(is_reply) << 11
            | (u64::from(is_long) * IS_LONG)
            | u64::from(plain.mark) << 32;
        key[WAY] = way;
        if is_long {
            key[LABEL..].fill(0);
            [key[LABEL], key[LABEL + 1]] = plain.label;
            if let Some(tuple) = &plain.translated {
                let way = lane.way(tuple.addresses.destination());
                key[TRANSLATED..WAY_THEN].copy_from_slice(&Read::of(reads, way).of_tuple(tuple));
                key[WAY_THEN] = way;
            }
        }
        self.hash = match (is_long, key.first_chunk::<SHORT>()) {
            (false, Some(short)) => wildcards.hasher.hash(short),
            _ => wildcards.hasher.hash(key),
        };
        (self.vrf, self.is_judged) = (vrf.id, judges_sources);
        Some(())
    }

    fn place(&self) -> usize {
        self.hash as usize % PLACES
    }

    /// Whether an entry is its own.
    #[inline(always)]
    fn is_of(&self, entry: &Entry, validity: (u64, u64)) -> bool {
        let differs = entry.key[..SHORT].iter().zip(&self.key).fold(0, |all, (a, b)| all | (a ^ b));
        entry.validity == validity
            && differs == 0
            && (self.key[STATE] & IS_LONG == 0 || entry.key[SHORT..] == self.key[SHORT..])
    }

    /// Whether its connection is still as it was: it may have ended, or have changed before that could be
    /// seen of its generation.
    fn is_as_it_was(&self, tables: &Tables) -> bool {
        self.looked.connection.is_none_or(|(handle, direction)| {
            let connections = tables.connections();
            connections.and_then(|it| it.plain(handle, direction)) == Some(self.plain)
        })
    }

    /// What an entry's packets ask of connections, as this one does. Where the last packet in its place was
    /// of the same entry, what they have in common is there already.
    #[inline(always)]
    fn ask(&self, entry: &Entry, asked: &mut Asked) {
        asked.packet = Some(self.looked.packet);
        let is_same = core::mem::replace(&mut asked.of, entry.id) == entry.id;
        let Some(Change::Make { new, .. }) = asked.change.as_mut().filter(|_| is_same) else {
            return self.ask_all(entry.change.as_ref(), asked);
        };
        new.original = self.tuple;
        (new.hash, new.vacant) = (Some(self.looked.hash), self.looked.vacant);
    }

    #[inline(never)]
    fn ask_all(&self, change: Option<&Change>, asked: &mut Asked) {
        let Some(Change::Make { new, destination, source, .. }) = change else {
            asked.change = change.cloned();
            return;
        };
        let (hash, vacant) = (Some(self.looked.hash), self.looked.vacant);
        asked.change = Some(Change::Make {
            new: New { original: self.tuple, hash, vacant, ..*new },
            destination: destination.clone(),
            source: source.clone(),
            expected: None,
            instead_of: None,
            has_more: false,
        });
    }
}

/// Whether an address means something on one link only, or nothing.
#[inline(always)]
fn is_of_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(v6) => is_link_local_v6(address) || v6.is_unspecified(),
    }
}

/// Not known: all of the destination stands for it.
const ANY_WAY: u64 = 0;
/// Nobody asks.
const UNASKED: u64 = 1 << 32;

/// The bits of addresses and ports that are read of a packet.
struct Read {
    source: u128,
    destination: u128,
    ports: u32,
}

impl Read {
    /// Of a packet that may go this way.
    #[inline(always)]
    fn of(reads: &EndReads, way: u64) -> Self {
        let &EndReads { source, destination, ports, .. } = reads;
        match way {
            ANY_WAY => Self { source, destination: u128::MAX, ports: ports | 0xffff },
            _ => Self { source, destination, ports },
        }
    }

    /// Of the addresses of a flow's key, which stand first in it.
    #[inline(always)]
    fn of_key<const WORDS: usize>(&self, words: &[u64; WORDS]) -> [u64; 4] {
        let [a, b, c, d] = core::array::from_fn(|at| words[at.min(WORDS - 3)]);
        match WORDS {
            key::V6 => {
                let [high, low] = halves(self.source);
                let [to_high, to_low] = halves(self.destination);
                [a & high, b & low, c & to_high, d & to_low]
            }
            _ => [
                a & (u64::from(self.source as u32) << 32 | u64::from(self.destination as u32)),
                0,
                0,
                0,
            ],
        }
    }

    /// Of a tuple, the ports last.
    fn of_tuple(&self, tuple: &Tuple) -> [u64; 5] {
        let ports = (u32::from(tuple.source) << 16 | u32::from(tuple.destination)) & self.ports;
        let (source, destination) = match tuple.addresses {
            Addresses::V4 { source, destination } => {
                (source.to_bits().into(), destination.to_bits().into())
            }
            Addresses::V6 { source, destination } => (source.to_bits(), destination.to_bits()),
        };
        let [a, b] = halves(source & self.source);
        let [c, d] = halves(destination & self.destination);
        [a, b, c, d, ports.into()]
    }
}

fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

/// Decides a packet by its entry, if it has one that says how.
#[inline(always)]
pub(super) fn decide_by_entry(
    (at, key, tables): (u8, impl KeyView, &Tables),
    (alike, seen): (&Alike, &Seen<'_>),
    decision: &mut Decision,
    extensions: &mut Extensions,
) -> bool {
    let Extensions { wildcards, asked, .. } = extensions;
    let entry = wildcards.entries.get(alike.place()).and_then(Option::as_ref);
    let validity = (tables.generation(), extensions.times_freed);
    let Some(entry) = entry.filter(|entry| alike.is_of(entry, validity)) else { return false };
    if entry.decision == Decision::NONE {
        return false;
    }
    *decision = entry.decision.of_connection(alike.looked.reference);
    if decision.is_passing() {
        alike.ask(entry, &mut asked[usize::from(at)]);
    }
    wildcards.taken += 1;
    if let Some(number) = decision.extension() {
        extensions.saw(number);
    }
    if cfg!(debug_assertions) {
        check((at, key, tables), (alike, seen), decision, extensions);
    }
    true
}

/// Whether a connection is still as it was made, as far as a decision depends on it.
fn is_as_made(plain: &Plain, new: &New) -> bool {
    plain.mark == new.mark && plain.label == [new.label as u64, (new.label >> 64) as u64]
}

/// Decides a packet that has opened the connection that its entry has asked for, of which connection
/// tracking says this now, if it is known what is decided about such packets.
#[inline(always)]
pub(super) fn decide_opened(
    (at, tables): (u8, &Tables),
    (ct_state, reference): (CtState, Reference),
    decision: &mut Decision,
    extensions: &mut Extensions,
) -> bool {
    let validity = (tables.generation(), extensions.times_freed);
    let id = extensions.asked[usize::from(at)].of;
    let then = extensions.wildcards.entry(id, validity).and_then(|entry| entry.then);
    let Some(then) = then.filter(|then| then.ct_state == ct_state) else { return false };
    *decision = then.decision.of_connection(reference);
    extensions.wildcards.taken += 1;
    if let Some(number) = decision.extension() {
        extensions.saw(number);
    }
    true
}

/// Notes what an entry has said of a packet that has opened the connection that its former entry has asked
/// for.
#[inline(never)]
pub(super) fn note_opened(
    (at, tables): (u8, &Tables),
    alike: &Alike,
    decision: &Decision,
    extensions: &mut Extensions,
) {
    let Some(reads) = tables.pipeline().end_reads(alike.vrf) else { return };
    let validity = (tables.generation(), extensions.times_freed);
    let id = extensions.asked[usize::from(at)].of;
    let ct_state = alike.looked.ct_state;
    if let Some(entry) = extensions.wildcards.entry(id, validity)
        && entry.has_one_successor(reads)
        // Another worker may have written a mark, which is seen before the generation that it gives.
        && let Some(Change::Make { new, .. }) = &entry.change
        && is_as_made(&alike.plain, new)
        // Of an invalid packet it does not say whether it is translated.
        && ct_state != CtState::INVALID
        && !decision.is_passing()
    {
        let decision = decision.of_connection(Reference::NONE);
        entry.then = Some(Then { ct_state, decision });
    }
}

/// Holds what was known of a packet that has opened a connection against what decide says.
pub(super) fn check_opened<const WORDS: usize>(
    (at, key, tables): (u8, impl KeyView, &Tables),
    words: &[u64; WORDS],
    seen: &Seen<'_>,
    found: &Decision,
    extensions: &Extensions,
) {
    let mut alike = Alike::nothing();
    let lane = Lane::of(words, tables);
    let is_alike = lane.is_some_and(|lane| {
        alike.become_of(&lane, (words, key), seen, &extensions.wildcards).is_some()
    });
    if let Some(Change::Make { new, .. }) = &extensions.asked[usize::from(at)].change
        && is_alike
        && is_as_made(&alike.plain, new)
    {
        check((at, key, tables), (&alike, seen), found, extensions);
    }
}

/// Decides a packet that might have an entry and has none, and gives the decision the number of its
/// extension.
#[inline(never)]
pub(super) fn decide_anew(
    (at, key, tables): (u8, impl KeyView, &Tables),
    alike: &Alike,
    decision: &mut Decision,
    beside: &mut Beside<'_>,
    extensions: &mut Extensions,
) {
    let validity = (tables.generation(), extensions.times_freed);
    let wildcards = &mut extensions.wildcards;
    let place = alike.place();
    let entry = wildcards.entries.get(place).and_then(Option::as_ref);
    beside.seen = beside.seen.map(|seen| Seen { looked: Some(alike.looked), ..seen });
    // Nobody tries again.
    let is_not_for_all = entry.is_some_and(|entry| alike.is_of(entry, validity));
    let tag = (alike.hash >> 48) as u16 | 1;
    let is_wanted =
        !is_not_for_all && core::mem::replace(&mut wildcards.missing[place], tag) == tag;
    match is_wanted {
        true => make((at, key, tables), alike, validity, decision, beside, extensions),
        false => {
            decide_by(key, tables, &LookedUp::NOTHING, &mut (), decision, beside);
            number(at, UNKNOWN, decision, beside, extensions);
        }
    }
}

/// Decides a packet, and makes an entry of what was decided if that is right for all that are alike.
#[cold]
#[inline(never)]
fn make(
    (at, key, tables): (u8, impl KeyView, &Tables),
    alike: &Alike,
    validity: (u64, u64),
    decision: &mut Decision,
    beside: &mut Beside<'_>,
    extensions: &mut Extensions,
) {
    let is_routed = alike.key[WAY] != UNASKED || alike.is_judged;
    let mut watch = Watch { vrf: alike.vrf, is_routed, is_for_all: true };
    decide_by(key, tables, &LookedUp::NOTHING, &mut watch, decision, beside);
    let is_for_all = watch.is_for_all
        && decision.reference() == alike.looked.reference
        && !decision.is_of_several()
        && beside.copies.is_empty()
        && (decision.is_counted() || !decision.is_extended())
        && beside.change.as_ref().is_none_or(is_of_any_source);
    // What was decided may be about another state than that in the key.
    if !alike.is_as_it_was(tables) {
        return number(at, UNKNOWN, decision, beside, extensions);
    }
    let change = beside.change.clone().filter(|_| is_for_all);
    number(at, UNKNOWN, decision, beside, extensions);
    let is_for_all = is_for_all && decision.extension().is_none_or(Extensions::stays);
    let decided = match is_for_all {
        true => decision.of_connection(Reference::NONE),
        false => Decision::NONE,
    };
    let Wildcards { entries, made, .. } = &mut extensions.wildcards;
    if entries.is_empty() {
        entries.resize_with(PLACES, || None);
    }
    *made += 1;
    let (place, key) = (alike.place(), alike.key);
    let id = *made * PLACES as u64 + place as u64;
    entries[place] = Some(Entry { id, key, validity, decision: decided, change, then: None });
}

/// Whether the packets of all sources ask for the same.
fn is_of_any_source(change: &Change) -> bool {
    match change {
        Change::Make { destination, expected: None, instead_of: None, has_more: false, .. } => {
            destination.as_ref().is_none_or(|nat| is_one(nat))
        }
        Change::Make { .. } | Change::Write { .. } => false,
    }
}

/// Whether packets of all sources get the same destination. Of several, the source says which.
fn is_one(nat: &NatNew) -> bool {
    nat.end == NatEnd::Source
        || nat.addresses.is_none_or(|range| range.first() == range.last())
            && nat.ports.is_none_or(|(first, last)| first == last)
}

/// Sees whether anything was asked that entries know nothing of.
struct Watch {
    vrf: VrfId,
    is_routed: bool,
    is_for_all: bool,
}

impl Trace for Watch {
    fn step<'a>(&mut self, step: impl FnOnce() -> Step<'a>) {
        self.is_for_all &= match step() {
            Step::Flow(pipeline::Step::Tracked { zone, .. }, _) => zone == self.vrf.0,
            // Also if nothing comes of it, as the packet is dropped.
            Step::Flow(pipeline::Step::Action { action: Action::Ct(ct), .. }, _) => {
                let new = ct.nat.as_ref().and_then(|nat| nat.new.as_ref());
                new.is_none_or(|nat| is_one(nat))
            }
            Step::Key(_)
            | Step::Vrf(_)
            | Step::Route { .. }
            | Step::Source { .. }
            | Step::NoPolicies { .. }
            | Step::Inside { .. }
            | Step::Flow(..)
            | Step::Ike { .. }
            | Step::Neighbour { .. }
            | Step::Host { .. }
            | Step::Verdict { .. } => true,
            // By more than its destination.
            _ => false,
        };
    }

    fn asks(&mut self, question: impl FnOnce() -> Question) {
        self.is_for_all &= match question() {
            Question::Route { vrf, .. } => self.is_routed && vrf == self.vrf,
            Question::OnLink(_) => self.is_routed,
            Question::Vrf(vrf)
            | Question::Policies(vrf)
            | Question::Filters(vrf)
            | Question::Flows(vrf)
            | Question::Ike(vrf) => vrf == self.vrf,
            _ => false,
        };
    }
}

/// Holds what an entry says against what decide says. A connection may have changed since it was asked
/// about; then its decision is not used.
fn check(
    (at, key, tables): (u8, impl KeyView, &Tables),
    (alike, seen): (&Alike, &Seen<'_>),
    found: &Decision,
    extensions: &Extensions,
) {
    let mut decided = Decision::NONE;
    let mut beside = Beside::NOTHING;
    // From the start.
    beside.seen = Some(Seen { looked: None, hash: None, ..*seen });
    decide_by(key, tables, &LookedUp::NOTHING, &mut (), &mut decided, &mut beside);
    if decided.reference() != found.reference() || !alike.is_as_it_was(tables) {
        return;
    }
    let none = Extension::NONE;
    let extension = found.extension().map_or(&none, |number| extensions.get(number));
    if let Some(number) = found.extension() {
        decided.set_extension(number);
    }
    assert_eq!((found, extension), (&decided, &beside.extension), "{:?}", key.flow());
    let asked = &extensions.asked[usize::from(at)];
    let change = asked.change.clone().filter(|_| found.is_passing());
    // Entries of other tuples may have come or gone meanwhile.
    let compared = |change: Option<Change>| match change {
        Some(Change::Make { mut new, destination, source, expected, instead_of, has_more }) => {
            new.vacant = None;
            Some(Change::Make { new, destination, source, expected, instead_of, has_more })
        }
        other => other,
    };
    assert_eq!(compared(change), compared(beside.change), "{:?}", key.flow());
    assert!(beside.copies.is_empty(), "{:?}", key.flow());
}
