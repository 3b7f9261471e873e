//! Several packets are decided together, so that their waits for memory overlap.

use std::sync::Arc;

use arrayvec::ArrayVec;
use conntrack::Reference;
use packet::{BATCH, Batch};
use tables::{Direction, Policy, Side, Spd, Tables, Vrf, fib};
use wire::common::Facts;
use wire::{Origin, VrfId};

use super::flows::Looked;
use super::megaflow::{self, Candidate, Ingress};
use super::{Beside, Decider, KeyView, LookedUp, Seen, decide_in, decide_plain};
use crate::batch::{Packets, Record};
use crate::cache::key;
use crate::cache::lookup::{Family, V4, V6};
use crate::connection::{self, Before};
use crate::decision::Decision;
use crate::extension::{Asked, Extensions, Further};

/// Fewer packets than this are not worth looking up together.
const TOGETHER: usize = 4;

/// How the packets of a VRF are decided.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    /// The VRF, if its policies are asked for several packets at once.
    together: Option<VrfId>,
    /// Whether its packets may have anything but a route and policies.
    is_featured: bool,
}

/// What is known of the connections of a single packet that is decided once more.
#[derive(Clone, Copy)]
struct Said<'s> {
    /// What connection tracking says.
    looked: Option<&'s Looked>,
    /// What it has changed.
    before: &'s [Before],
}

impl Said<'_> {
    const NOTHING: Self = Self { looked: None, before: &[] };
}

impl<'t> Decider<'t> {
    /// Decides the packets of one family that stand at these positions of a batch.
    #[inline]
    pub(crate) fn decide<const KEY: usize, F: Family<KEY>>(
        &self,
        list: &[u8],
        batch: &mut Packets,
        extensions: &mut Extensions,
    ) {
        let vrf_of = |at: u8| F::view(F::key(batch, at)).vrf();
        // Nearly all batches with packets of many VRFs begin and end with two of them.
        if let [first, .., last] = *list
            && list.len() >= TOGETHER
            && self.tables.has_many_vrfs()
            && vrf_of(first) != vrf_of(last)
        {
            self.prefetch_routes::<KEY, F>(list, batch);
        }
        self.decide_near::<KEY, F>(list, batch, extensions);
    }

    /// As [`Decider::decide`]. A function of its own, whose loops keep their registers.
    #[inline(never)]
    fn decide_near<const KEY: usize, F: Family<KEY>>(
        &self,
        list: &[u8],
        batch: &mut Packets,
        extensions: &mut Extensions,
    ) {
        let asks = self.tables.policy_count() > 0 && list.len() >= TOGETHER;
        if !asks && !self.tables.is_featured() {
            return self.decide_alone::<false, KEY, F>(list, Said::NOTHING, batch, extensions);
        }
        // Most often all are of one VRF.
        let vrf_of = |at: u8, batch: &Packets| F::view(F::key(batch, at)).vrf();
        let mut left = list;
        while let Some(&first) = left.first() {
            let vrf = vrf_of(first, batch);
            let kind = self.kind(vrf, asks);
            let is_other = |&at: &u8| {
                let other = vrf_of(at, batch);
                other != vrf && (kind.together.is_some() || self.kind(other, asks) != kind)
            };
            let others = left.iter().position(is_other);
            let (run, rest) = left.split_at(others.unwrap_or(left.len()));
            left = rest;
            let together = kind.together.and_then(|vrf| self.tables.vrf(vrf));
            match (together, kind.is_featured) {
                (Some(vrf), true) => {
                    self.decide_together::<true, KEY, F>(vrf, run, batch, extensions);
                }
                (Some(vrf), false) => {
                    self.decide_together::<false, KEY, F>(vrf, run, batch, extensions);
                }
                (None, true) => {
                    self.decide_alone::<true, KEY, F>(run, Said::NOTHING, batch, extensions);
                }
                (None, false) => {
                    self.decide_alone::<false, KEY, F>(run, Said::NOTHING, batch, extensions);
                }
            }
        }
    }

    /// `asks` says whether there are policies, and packets enough to ask for several at once.
    #[inline(always)]
    fn kind(&self, vrf: VrfId, asks: bool) -> Kind {
        let Some(vrf) = self.tables.vrf(vrf) else {
            return Kind { together: None, is_featured: false };
        };
        // What flows translate meets other policies than it looks like now.
        let is_asked = asks && !vrf.spd.is_empty() && !vrf.features.has_flows;
        Kind {
            together: is_asked.then_some(vrf.id),
            is_featured: vrf.features.any() || self.tables.may_be_tapped(vrf),
        }
    }

    /// Asks for what the routes of packets of many VRFs are found in. Where all are of one VRF, or of
    /// few, that is near.
    #[inline(never)]
    fn prefetch_routes<const KEY: usize, F: Family<KEY>>(&self, list: &[u8], batch: &Packets) {
        for some in list.chunks(fib::TOGETHER) {
            self.tables.prefetch_routes(some.iter().map(|&at| {
                let key = F::view(F::key(batch, at));
                (key.vrf(), key.destination())
            }));
        }
    }

    /// Decides a packet that has opened a connection, of which connection tracking says this now, if that
    /// is known by the megaflow.
    #[inline(always)]
    pub(crate) fn decide_opened<const KEY: usize, F: Family<KEY>>(
        &self,
        at: u8,
        tracked: &conntrack::Tracked,
        batch: &mut Packets,
        extensions: &mut Extensions,
    ) -> bool {
        let decision = &mut batch.records[usize::from(at)].decision;
        let said = (tracked.ct_state, tracked.reference);
        let is_known = megaflow::decide_opened((at, self.tables), said, decision, extensions);
        if cfg!(debug_assertions)
            && is_known
            && let Record { facts, decision, .. } = &batch.records[usize::from(at)]
            && let Some(seen) = seen(self, &batch.packets, *facts, at, None)
        {
            let words = F::key(batch, at);
            let key = (at, F::view(words), self.tables);
            megaflow::check_opened(key, words, &seen, decision, extensions);
        }
        is_known
    }

    /// See [`Pipeline::reads_opened`](pipeline::Pipeline::reads_opened), of the flows that a packet has met.
    #[inline(always)]
    pub(crate) fn reads_opened(&self, at: u8, batch: &Packets) -> bool {
        let vrf = match batch.records[usize::from(at)].facts.is(Facts::V6) {
            true => V6::view(V6::key(batch, at)).vrf(),
            false => V4::view(V4::key(batch, at)).vrf(),
        };
        self.tables.pipeline().reads_opened(vrf)
    }

    /// Decides a packet again, in whose VRF are flows, and of which connection tracking says this now.
    pub(crate) fn decide_looked<const KEY: usize, F: Family<KEY>>(
        &self,
        at: u8,
        looked: Looked,
        batch: &mut Packets,
        extensions: &mut Extensions,
    ) {
        let (words, facts) = (*F::key(batch, at), batch.records[usize::from(at)].facts);
        let (key, mut candidate) = (F::view(&words), Candidate::nothing());
        if let Some(seen) = seen(self, &batch.packets, facts, at, None)
            && extensions.megaflows.may_have(facts)
        {
            let seen = Seen { looked: Some(looked), ..seen };
            let decision = &mut batch.records[usize::from(at)].decision;
            if let Some(ingress) = Ingress::of(&words, self.tables)
                && candidate.assign(&ingress, (&words, key), &seen, &extensions.megaflows).is_some()
                && let key = (at, key, self.tables)
                && megaflow::take(key, (&candidate, &seen), decision, extensions)
            {
                megaflow::note_opened((at, self.tables), &candidate, decision, extensions);
                return;
            }
        }
        let known = Said { looked: Some(&looked), before: &[] };
        self.decide_alone::<true, KEY, F>(&[at], known, batch, extensions);
    }

    /// Decides a packet once more, in whose VRF are flows, after it has changed connections that were like
    /// this before.
    pub(crate) fn decide_after<const KEY: usize, F: Family<KEY>>(
        &self,
        at: u8,
        before: &[Before],
        batch: &mut Packets,
        extensions: &mut Extensions,
    ) {
        let said = Said { looked: None, before };
        self.decide_alone::<true, KEY, F>(&[at], said, batch, extensions);
    }

    /// Decides one packet after the other. Without `FEATURES`, their VRFs have none. Of a single one, it
    /// may be known what connection tracking says.
    #[inline(never)]
    fn decide_alone<const FEATURES: bool, const KEY: usize, F: Family<KEY>>(
        &self,
        list: &[u8],
        said: Said<'_>,
        batch: &mut Packets,
        extensions: &mut Extensions,
    ) {
        let mut beside = FEATURES.then_some(Beside::NOTHING);
        let hashes = if FEATURES { self.tracked_hashes::<KEY, F>(list, batch) } else { None };
        let (looked_up, mut candidate) = (&LookedUp::NOTHING, Candidate::nothing());
        // Mostly those of the next packet too.
        let (mut vrf, mut ingress) = (None, None);
        for (place, &at) in list.iter().enumerate() {
            let words = *F::key(batch, at);
            let key = F::view(&words);
            let facts = batch.records[usize::from(at)].facts;
            let decision = &mut batch.records[usize::from(at)].decision;
            match &mut beside {
                Some(beside) => {
                    let hash = hashes.as_ref().and_then(|hashes| hashes[place]);
                    let mut seen = seen(self, &batch.packets, facts, at, hash);
                    if let Some(seen) = &mut seen {
                        (seen.looked, seen.before) = (said.looked.copied(), said.before);
                    }
                    if let Some(seen) = &seen
                        && seen.before.is_empty()
                        && extensions.megaflows.may_have(facts)
                        && let Some(ingress) = Ingress::of_next(&mut ingress, &words, self.tables)
                        && let megaflows = &extensions.megaflows
                        && candidate.assign(ingress, (&words, key), seen, megaflows).is_some()
                    {
                        let key = (at, key, self.tables);
                        if !megaflow::take(key, (&candidate, seen), decision, extensions) {
                            beside.seen = Some(*seen);
                            megaflow::decide_anew(key, &candidate, decision, beside, extensions);
                        }
                        continue;
                    }
                    beside.seen = seen;
                    let vrf = self.vrf_of(key, &mut vrf);
                    let key = (key, self.tables);
                    decide_in(vrf, key, looked_up, &mut (), decision, beside);
                    number(at, Some(&words), decision, beside, extensions);
                }
                None => {
                    let vrf = self.vrf_of(key, &mut vrf);
                    decide_plain(vrf, (key, self.tables), looked_up, &mut (), decision);
                }
            }
        }
    }

    /// The VRF of a packet, if it is there. `last` is that of the packet before.
    #[inline(always)]
    fn vrf_of(&self, key: impl KeyView, last: &mut Option<&'t Vrf>) -> Option<&'t Vrf> {
        if last.is_none_or(|last| last.id != key.vrf()) {
            *last = self.tables.vrf(key.vrf());
        }
        *last
    }

    /// The hashes that the packets' connections are looked up by, if there are flows, and asks for the
    /// memory that they are found in.
    #[cold]
    #[inline(never)]
    fn tracked_hashes<const KEY: usize, F: Family<KEY>>(
        &self,
        list: &[u8],
        batch: &Packets,
    ) -> Option<ArrayVec<Option<u64>, BATCH>> {
        let connections = self.connections().filter(|_| list.len() > 1)?;
        let hash = |at: &u8| {
            let words = F::key(batch, *at);
            let key = F::view(words);
            let tuple = match key::has_ports(words) {
                true => connection::tuple_of_ports(words, key),
                false => connection::tuple(&key.flow())?,
            };
            let hash = connections.hash_of(key.vrf().0, &tuple);
            connections.prefetch_hash(hash);
            Some(hash)
        };
        Some(list.iter().map(hash).collect())
    }

    /// Looks the policies of all packets up, and then decides each. Without `FEATURES`, their VRF has
    /// none.
    #[inline(never)]
    fn decide_together<const FEATURES: bool, const KEY: usize, F: Family<KEY>>(
        &self,
        vrf: &'t Vrf,
        list: &[u8],
        batch: &mut Packets,
        extensions: &mut Extensions,
    ) {
        let mut beside = FEATURES.then_some(Beside::NOTHING);
        let found = Policies::look_up::<KEY, F>(self.tables, vrf, list, batch);
        for (place, &at) in list.iter().enumerate() {
            let words = *F::key(batch, at);
            let key = F::view(&words);
            let key = (key, self.tables);
            let decision = &mut batch.records[usize::from(at)].decision;
            let looked_up = &found.of(place);
            match &mut beside {
                Some(beside) => {
                    decide_in(Some(vrf), key, looked_up, &mut (), decision, beside);
                    number(at, Some(&words), decision, beside, extensions);
                }
                None => decide_plain(Some(vrf), key, looked_up, &mut (), decision),
            }
        }
    }
}

/// What flows may ask for of a packet beside its key.
#[inline(always)]
fn seen<'p>(
    decider: &Decider<'_>,
    packets: &'p Batch,
    facts: Facts,
    at: u8,
    hash: Option<u64>,
) -> Option<Seen<'p>> {
    let packet = || packets[usize::from(at)].bytes();
    let seen = || Seen { hash, ..Seen::new(packet(), facts, decider.now) };
    decider.tables.has_flows().then(seen)
}

/// Gives a decision the number of its extension, if it has one, and notes what it asks of connections.
#[inline(always)]
pub(super) fn number<const WORDS: usize>(
    at: u8,
    words: Option<&[u64; WORDS]>,
    decision: &mut Decision,
    beside: &mut Beside<'_>,
    extensions: &mut Extensions,
) {
    let second = match words {
        Some(_) if decision.has_further() => pair(decision, beside, extensions),
        _ => None,
    };
    if decision.is_passing() {
        let packet = beside.seen.and_then(|seen| Some(seen.looked?.packet));
        extensions.asked[usize::from(at)] =
            Asked { change: beside.change.take(), packet, megaflow: 0 };
    }
    if decision.is_extended() {
        // What only counts is one for all packets of these flows, so that they stay a run.
        decision.set_extension(match decision.is_passing() && !decision.is_counted() {
            true => extensions.pass(&beside.extension, core::mem::take(&mut beside.copies)),
            false => extensions.number(&beside.extension),
        });
    }
    if let (Some(second), Some(words)) = (second, words) {
        extensions.pairs.keep(words, decision, second);
    }
}

/// Makes of a decision with an extension that names a second connection one that is found with the
/// worker's pairs, if that can be. Returns the second connection then.
#[cold]
#[inline(never)]
fn pair(
    decision: &mut Decision,
    beside: &mut Beside<'_>,
    extensions: &Extensions,
) -> Option<Reference> {
    let further = &beside.extension.further;
    // What is for one packet has an extension for it alone.
    let usual = extensions.pairs.second_of(decision, further).filter(|_| !decision.is_passing());
    let (second, by_second) = usual?;
    beside.extension.further = Further::NONE;
    let (only_counts, is_none) = (beside.extension.only_counts(), beside.extension.is_none());
    *decision = decision.paired(by_second, only_counts, is_none);
    Some(second)
}

/// How a family's packets of a batch are looked up.
pub(crate) trait LookUp<const KEY: usize> {
    /// Looks up the packets in these positions, in their order.
    fn look_up<'t>(
        spd: &'t Spd,
        direction: Direction,
        list: &[u8],
        batch: &Packets,
        found: &mut [Option<&'t Arc<Policy>>],
    );
}

macro_rules! look_up {
    ($family:ident, $words:expr, $header:path, $lookup:ident) => {
        impl LookUp<{ $words }> for $family {
            #[inline(always)]
            fn look_up<'t>(
                spd: &'t Spd,
                direction: Direction,
                list: &[u8],
                batch: &Packets,
                found: &mut [Option<&'t Arc<Policy>>],
            ) {
                let headers: ArrayVec<_, BATCH> =
                    list.iter().map(|&at| $header(Self::key(batch, at))).collect();
                let flow = |number: usize| Self::flow(Self::key(batch, list[number]));
                spd.$lookup(direction, &headers, flow, found);
            }
        }
    };
}

look_up!(V4, key::V4, key::header_v4, lookup_batch_v4);
look_up!(V6, key::V6, key::header_v6, lookup_batch_v6);

/// The policies of several packets of one VRF.
struct Policies<'t> {
    admission: Direction,
    /// Of the way in, if that was looked up.
    admitting: Option<Found<'t>>,
    /// Of the way out.
    outbound: Option<Found<'t>>,
}

/// By the packets' order.
type Found<'t> = [Option<&'t Arc<Policy>>; BATCH];

impl<'t> Policies<'t> {
    /// Looks up what most packets will be asked for; what else is wanted is looked up when it is.
    #[inline(always)]
    fn look_up<const KEY: usize, F: Family<KEY>>(
        tables: &Tables,
        vrf: &'t Vrf,
        list: &[u8],
        batch: &Packets,
    ) -> Self {
        let admission = vrf.spd.of_forwarded();
        let mut policies = Self { admission, admitting: None, outbound: None };
        for (direction, found) in [
            (policies.admission, &mut policies.admitting),
            (Direction::Out, &mut policies.outbound),
        ] {
            let asks = |at: &u8| may_ask(F::view(F::key(batch, *at)), direction, tables);
            // No policy is quickly not found, and one packet's turn is not worth everybody's.
            if vrf.spd.count(direction) > 0 && list.iter().any(asks) {
                let found = found.insert([None; BATCH]);
                F::look_up(&vrf.spd, direction, list, batch, &mut found[..list.len()]);
            }
        }
        policies
    }

    /// Those of the packet in this place.
    #[inline(always)]
    fn of(&self, number: usize) -> LookedUp<'t> {
        let found = |found: &Option<Found<'t>>| found.as_ref().map(|found| found[number % BATCH]);
        LookedUp {
            admission: found(&self.admitting).map(|found| (self.admission, found)),
            outbound: found(&self.outbound),
        }
    }
}

/// Whether deciding a packet may take a lookup in this direction's policies.
fn may_ask(key: impl KeyView, direction: Direction, tables: &Tables) -> bool {
    let owes = match (direction, key.origin()) {
        (Direction::Out, _) | (_, Origin::Sa(_)) => true,
        (_, Origin::Port(port)) => tables.boundary(port).side != Side::Protected,
        (_, Origin::Host | Origin::HostError(_) | Origin::HostProtected) => false,
    };
    owes && key.esp().is_none()
}
