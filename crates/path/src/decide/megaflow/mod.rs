//! Megaflows: decisions that are right for many flows, which differ only in what nobody reads.
//!
//! A decision is cached for a flow, and a packet that opens a connection is the first of its flow: it is
//! always a miss. But flows read little of the ends of packets, and what comes behind them depends on the
//! route. So the first packets of the first connections are decided, and what was decided is taken for
//! those that agree with them in everything that was read. Open vSwitch keeps such entries in its megaflow
//! cache, each with a mask of its own (Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI
//! 2015). Here the flows of a VRF have one mask together, so that a lookup is one probe.
//!
//! A megaflow is for packets of a VRF in which nothing but flows may look at sources, and whose connection
//! has no helper and was not announced. If their route has one next hop, this stands
//! in the megaflow's key, and of the destination what flows read; otherwise all of the destination does.
//! It is valid for one generation of the tables. What it says is what decide would say: builds with debug
//! assertions decide all the same, and compare.

mod candidate;
mod check;
mod ingress;

use conntrack::{CtState, New, Plain, Reference};
use flow::{CacheMode, CacheSettings};
use packet::KeyHasher;
use pipeline::EndReads;
use tables::Tables;
use wire::common::Facts;

pub(super) use self::candidate::Candidate;
use self::candidate::{KEY, WAY};
pub(super) use self::check::check_opened;
use self::check::{Watch, check, is_of_any_source};
pub(super) use self::ingress::Ingress;
use self::ingress::UNASKED;
use super::batch::number;
use super::flows::Seen;
use super::{Beside, KeyView, LookedUp, decide_by};
use crate::batch::table_of;
use crate::cache::key;
use crate::connection::Change;
use crate::decision::Decision;
use crate::extension::Extensions;

/// Megaflows that there may be: one in each place.
const PLACES: usize = 4096;

/// Megaflows are for packets of one zone, whose decisions need no key.
const UNKNOWN: Option<&[u64; key::V4]> = None;

/// A worker's megaflows.
pub(crate) struct Megaflows {
    /// By table of the decision cache: whether its packets have megaflows.
    is_on: [bool; 4],
    hasher: KeyHasher,
    /// By place: what was missing there last. A megaflow is made when it is missing for the second time.
    missing: Box<[u16]>,
    /// By place; empty until there is one.
    by_place: Vec<Option<Megaflow>>,
    /// How many were made.
    made: u64,
    /// Decisions taken from them that were not told yet.
    taken: u64,
}

struct Megaflow {
    /// No other megaflow has had it. Its place follows from it.
    id: u64,
    key: [u64; KEY],
    /// Of the tables, and of the numbers of extensions.
    validity: (u64, u64),
    /// For whatever connection. [`Decision::NONE`] if what was decided is not right for all of
    /// its packets: then they are decided, and nobody tries again.
    decision: Decision,
    /// What it asks of connections, for a packet of whatever tuple.
    change: Option<Change>,
    opened: Option<Opened>,
}

/// What is decided about a packet once it has opened the connection that its megaflow asks for: what the
/// megaflow of such packets says.
#[derive(Clone, Copy)]
struct Opened {
    ct_state: CtState,
    /// For whatever connection.
    decision: Decision,
}

impl Megaflow {
    /// Whether the megaflow that its packets have once their connection is there follows from it and from what
    /// connection tracking says then: of what it makes of a packet, flows read nothing.
    fn has_one_successor(&self, reads: &EndReads) -> bool {
        let asks_for_source = match &self.change {
            Some(Change::Make { new, destination: None, source: Some(_), .. }) => new.helper == 0,
            _ => false,
        };
        asks_for_source && reads.source == 0 && reads.ports >> 16 == 0
    }
}

impl Megaflows {
    pub(crate) fn new(caches: &[CacheSettings; 4], secret: u64) -> Self {
        Self {
            is_on: caches.each_ref().map(|settings| settings.mode != CacheMode::Off),
            hasher: KeyHasher::new([secret, 0]),
            missing: vec![0; PLACES].into(),
            by_place: Vec::new(),
            made: 0,
            taken: 0,
        }
    }

    /// How many decisions were taken from megaflows since this was last asked.
    #[inline(always)]
    pub(crate) fn taken(&mut self) -> u64 {
        core::mem::take(&mut self.taken)
    }

    /// The megaflow with this number, if it is still valid.
    #[inline(always)]
    fn valid(&mut self, id: u64, validity: (u64, u64)) -> Option<&mut Megaflow> {
        let megaflow = self.by_place.get_mut(id as usize % PLACES)?.as_mut();
        megaflow.filter(|megaflow| megaflow.id == id && megaflow.validity == validity)
    }

    /// From now on no packet has one.
    pub(crate) fn switch_off(&mut self) {
        self.is_on = [false; 4];
    }

    /// Whether a packet may have a megaflow, as far as its table of the decision cache is concerned.
    #[inline(always)]
    pub(super) fn may_have(&self, facts: Facts) -> bool {
        self.is_on[table_of(facts)]
    }
}

/// Decides a packet by its megaflow, if it has one that says how.
#[inline(always)]
pub(super) fn take(
    (at, key, tables): (u8, impl KeyView, &Tables),
    (candidate, seen): (&Candidate, &Seen<'_>),
    decision: &mut Decision,
    extensions: &mut Extensions,
) -> bool {
    let Extensions { megaflows, asked, .. } = extensions;
    let megaflow = megaflows.by_place.get(candidate.place()).and_then(Option::as_ref);
    let validity = (tables.generation(), extensions.times_freed);
    let Some(megaflow) = megaflow.filter(|megaflow| candidate.is_of(megaflow, validity)) else {
        return false;
    };
    if megaflow.decision == Decision::NONE {
        return false;
    }
    *decision = megaflow.decision.of_connection(candidate.looked.reference);
    if decision.is_passing() {
        candidate.ask(megaflow, &mut asked[usize::from(at)]);
    }
    megaflows.taken += 1;
    if let Some(number) = decision.extension() {
        extensions.saw(number);
    }
    if cfg!(debug_assertions) {
        check((at, key, tables), (candidate, seen), decision, extensions);
    }
    true
}

/// Whether a connection is still as it was made, as far as a decision depends on it.
fn is_as_made(plain: &Plain, new: &New) -> bool {
    plain.mark == new.mark && plain.label == [new.label as u64, (new.label >> 64) as u64]
}

/// Decides a packet that has opened the connection that its megaflow has asked for, of which connection
/// tracking says this now, if it is known what is decided about such packets.
#[inline(always)]
pub(super) fn decide_opened(
    (at, tables): (u8, &Tables),
    (ct_state, reference): (CtState, Reference),
    decision: &mut Decision,
    extensions: &mut Extensions,
) -> bool {
    let validity = (tables.generation(), extensions.times_freed);
    let id = extensions.asked[usize::from(at)].megaflow;
    let opened = extensions.megaflows.valid(id, validity).and_then(|megaflow| megaflow.opened);
    let Some(opened) = opened.filter(|opened| opened.ct_state == ct_state) else { return false };
    *decision = opened.decision.of_connection(reference);
    extensions.megaflows.taken += 1;
    if let Some(number) = decision.extension() {
        extensions.saw(number);
    }
    true
}

/// Notes what a megaflow has said of a packet that has opened the connection that its former megaflow has asked
/// for.
#[inline(never)]
pub(super) fn note_opened(
    (at, tables): (u8, &Tables),
    candidate: &Candidate,
    decision: &Decision,
    extensions: &mut Extensions,
) {
    let Some(reads) = tables.pipeline().end_reads(candidate.vrf) else { return };
    let validity = (tables.generation(), extensions.times_freed);
    let id = extensions.asked[usize::from(at)].megaflow;
    let ct_state = candidate.looked.ct_state;
    if let Some(megaflow) = extensions.megaflows.valid(id, validity)
        && megaflow.has_one_successor(reads)
        // Another worker may have written a mark, which is seen before the generation that it gives.
        && let Some(Change::Make { new, .. }) = &megaflow.change
        && is_as_made(&candidate.plain, new)
        // Of an invalid packet it does not say whether it is translated.
        && ct_state != CtState::INVALID
        && !decision.is_passing()
    {
        let decision = decision.of_connection(Reference::NONE);
        megaflow.opened = Some(Opened { ct_state, decision });
    }
}

/// Decides a packet that might have a megaflow and has none, and gives the decision the number of its
/// extension.
#[inline(never)]
pub(super) fn decide_anew(
    (at, key, tables): (u8, impl KeyView, &Tables),
    candidate: &Candidate,
    decision: &mut Decision,
    beside: &mut Beside<'_>,
    extensions: &mut Extensions,
) {
    let validity = (tables.generation(), extensions.times_freed);
    let megaflows = &mut extensions.megaflows;
    let place = candidate.place();
    let megaflow = megaflows.by_place.get(place).and_then(Option::as_ref);
    beside.seen = beside.seen.map(|seen| Seen { looked: Some(candidate.looked), ..seen });
    // Nobody tries again.
    let is_not_for_all = megaflow.is_some_and(|megaflow| candidate.is_of(megaflow, validity));
    let tag = (candidate.hash >> 48) as u16 | 1;
    let is_wanted =
        !is_not_for_all && core::mem::replace(&mut megaflows.missing[place], tag) == tag;
    match is_wanted {
        true => make((at, key, tables), candidate, validity, decision, beside, extensions),
        false => {
            decide_by(key, tables, &LookedUp::NOTHING, &mut (), decision, beside);
            number(at, UNKNOWN, decision, beside, extensions);
        }
    }
}

/// Decides a packet, and makes a megaflow of what was decided if that is right for all its
/// packets.
#[cold]
#[inline(never)]
fn make(
    (at, key, tables): (u8, impl KeyView, &Tables),
    candidate: &Candidate,
    validity: (u64, u64),
    decision: &mut Decision,
    beside: &mut Beside<'_>,
    extensions: &mut Extensions,
) {
    let is_routed = candidate.key[WAY] != UNASKED || candidate.is_judged;
    let mut watch = Watch { vrf: candidate.vrf, is_routed, is_for_all: true };
    decide_by(key, tables, &LookedUp::NOTHING, &mut watch, decision, beside);
    let is_for_all = watch.is_for_all
        && decision.reference() == candidate.looked.reference
        && !decision.is_of_several()
        && beside.copies.is_empty()
        && (decision.is_counted() || !decision.is_extended())
        && beside.change.as_ref().is_none_or(is_of_any_source);
    // What was decided may be about another state than that in the key.
    if !candidate.is_as_it_was(tables) {
        return number(at, UNKNOWN, decision, beside, extensions);
    }
    let change = beside.change.clone().filter(|_| is_for_all);
    number(at, UNKNOWN, decision, beside, extensions);
    let is_for_all = is_for_all && decision.extension().is_none_or(Extensions::stays);
    let decided = match is_for_all {
        true => decision.of_connection(Reference::NONE),
        false => Decision::NONE,
    };
    let Megaflows { by_place, made, .. } = &mut extensions.megaflows;
    if by_place.is_empty() {
        by_place.resize_with(PLACES, || None);
    }
    *made += 1;
    let (place, key) = (candidate.place(), candidate.key);
    let id = *made * PLACES as u64 + place as u64;
    by_place[place] = Some(Megaflow { id, key, validity, decision: decided, change, opened: None });
}
