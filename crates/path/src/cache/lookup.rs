//! A batch is looked up in the cache, and what is decided for the rest is kept.
//!
//! Packets are taken by the cache's tables: each table's are looked up together, those that were
//! not found are decided together, and what was decided is kept. A search takes three passes over
//! the packets, each asking for the memory of the next. Nothing is done to a packet before all are
//! decided, so that those of one flow stay in order.

use arrayvec::ArrayVec;
use flow::{CacheMode, CacheStatistics, Candidate, Measurement, Open, Plan};
use packet::{BATCH, wait_for_reads};
use wire::FlowKey;

use super::recent::Recent;
use super::{Cache, Half, PLACE_V4, PLACE_V6, key, validity};
use crate::batch::{Packets, table_of};
use crate::decide::{Decider, KeyView, LookUp};
use crate::decision::Decision;
use crate::extension::Extensions;
use crate::statistics::WorkerStatistics;

/// All positions of a batch.
const ALL: [u8; BATCH] = {
    let mut all = [0; BATCH];
    let mut at = 0;
    while at < BATCH {
        all[at] = at as u8;
        at += 1;
    }
    all
};

/// Positions in a batch.
type Positions = ArrayVec<u8, BATCH>;

/// An address family's keys.
pub(crate) trait Family<const KEY: usize>: LookUp<KEY> {
    /// A key as decide reads it.
    type View: KeyView;

    /// The key of a packet.
    fn key(batch: &Packets, at: u8) -> &[u64; KEY];
    /// The flow that a key names.
    fn flow(key: &[u64; KEY]) -> FlowKey;
    /// The same, as decide reads it.
    fn view(key: &[u64; KEY]) -> Self::View;
}

/// IPv4.
pub(crate) struct V4;
/// IPv6.
pub(crate) struct V6;

impl Family<{ key::V4 }> for V4 {
    type View = key::ViewV4;

    #[inline(always)]
    fn key(batch: &Packets, at: u8) -> &[u64; key::V4] {
        &batch.records[usize::from(at)].key
    }

    #[inline(always)]
    fn flow(key: &[u64; key::V4]) -> FlowKey {
        key::flow_v4(key)
    }

    #[inline(always)]
    fn view(key: &[u64; key::V4]) -> key::ViewV4 {
        key::ViewV4(*key)
    }
}

impl Family<{ key::V6 }> for V6 {
    type View = key::ViewV6;

    #[inline(always)]
    fn key(batch: &Packets, at: u8) -> &[u64; key::V6] {
        &batch.v6[usize::from(at)]
    }

    #[inline(always)]
    fn flow(key: &[u64; key::V6]) -> FlowKey {
        key::flow_v6(key)
    }

    #[inline(always)]
    fn view(key: &[u64; key::V6]) -> key::ViewV6 {
        key::ViewV6(*key)
    }
}

/// How looking packets up went.
#[derive(Default)]
struct Outcome {
    hits: u64,
    restamped: u64,
    new: u64,
    stale: u64,
    evicted: u64,
}

impl Cache {
    /// Fills in the decision of every packet of a batch.
    pub(crate) fn decide(
        &mut self,
        batch: &mut Packets,
        decider: Decider<'_>,
        extensions: &mut Extensions,
        statistics: &WorkerStatistics,
    ) {
        let count = batch.len();
        if let Some(table) = batch.table {
            let list = &ALL[..count];
            return self.decide_by_table(table, list, batch, decider, extensions, statistics);
        }
        let mut lists = core::mem::take(&mut self.scratch.lists);
        lists.iter_mut().for_each(ArrayVec::clear);
        for (record, at) in batch.records.iter().zip(&ALL[..count]) {
            lists[table_of(record.facts)].push(*at);
        }
        for (table, list) in lists.iter().enumerate() {
            self.decide_by_table(table, list, batch, decider, extensions, statistics);
        }
        self.scratch.lists = lists;
    }

    /// Keeps the decision of a packet, which was made after its batch was looked up.
    pub(crate) fn keep(
        &mut self,
        batch: &Packets,
        at: usize,
        decider: Decider<'_>,
        statistics: &WorkerStatistics,
    ) {
        match table_of(batch.records[at].facts) {
            table @ 0..2 => self.v4[table].keep::<V4>(batch, at, decider, statistics),
            table => self.v6[table - 2].keep::<V6>(batch, at, decider, statistics),
        }
    }

    fn decide_by_table(
        &mut self,
        table: usize,
        list: &[u8],
        batch: &mut Packets,
        decider: Decider<'_>,
        extensions: &mut Extensions,
        statistics: &WorkerStatistics,
    ) {
        let Self { v4: [v4_out, v4_in], v6: [v6_out, v6_in], scratch, recent, ticks } = self;
        let mut looking = Looking {
            list,
            batch,
            hashes: &mut scratch.hashes,
            candidates: &mut scratch.candidates,
            decider,
            extensions,
            is_busy: recent.is_busy(),
            recent,
            statistics,
            cache: &statistics.caches[table],
            ticks: *ticks,
        };
        match table {
            _ if list.is_empty() => {}
            0 => looking.look_up::<_, PLACE_V4, V4>(v4_out),
            1 => looking.look_up::<_, PLACE_V4, V4>(v4_in),
            2 => looking.look_up::<_, PLACE_V6, V6>(v6_out),
            _ => looking.look_up::<_, PLACE_V6, V6>(v6_in),
        }
    }
}

/// One table's packets of a batch.
struct Looking<'a, 't> {
    /// Where in the batch they are.
    list: &'a [u8],
    batch: &'a mut Packets,
    hashes: &'a mut [u64; BATCH],
    candidates: &'a mut [Candidate; BATCH],
    decider: Decider<'t>,
    extensions: &'a mut Extensions,
    recent: &'a Recent,
    /// See [`Recent::is_busy`].
    is_busy: bool,
    statistics: &'a WorkerStatistics,
    cache: &'a CacheStatistics,
    ticks: fn() -> u64,
}

impl Looking<'_, '_> {
    #[inline(never)]
    fn look_up<const KEY: usize, const PLACE: usize, F: Family<KEY>>(
        &mut self,
        half: &mut Half<KEY, PLACE>,
    ) {
        let list = self.list;
        let count = list.len() as u64;
        let plan = half.plan(count);
        let (Plan::Use | Plan::Measure | Plan::Sample, Some(table)) = (plan, &mut half.table)
        else {
            self.decider.decide::<KEY, F>(list, self.batch, self.extensions);
            self.cache.bypassed.add(count);
            return self.statistics.decided.add(count);
        };
        table.policies_changed(self.decider.policy_generation());
        let mut open = table.open();
        let is_measured = matches!(plan, Plan::Measure | Plan::Sample);
        let clock = self.ticks;
        let ticks = || match is_measured {
            true => {
                wait_for_reads();
                clock()
            }
            false => 0,
        };
        let mut missed = Positions::new();

        let begin = ticks();
        hash_all::<KEY, PLACE, F>(&open, list, self.batch, self.hashes);
        let (hashed, (outcome, looked, left)) = match plan {
            Plan::Sample => (ticks(), self.find_sampled::<KEY, PLACE, F>(&mut open, &mut missed)),
            _ => {
                let outcome = self.find::<KEY, PLACE, F>(&mut open, list, &mut missed);
                (begin, (outcome, count, Positions::new()))
            }
        };
        let found = ticks();

        let (unknown, left_out) = (missed.len(), left.len());
        missed.extend(left);
        // Deciding some of them anew tells what it costs, and must not tell anything else.
        let tried = if is_measured { half.controller.wanted_decisions() } else { 0 };
        let is_tried = unknown < tried && left_out == 0;
        if is_tried {
            let is_known = |at: &u8| !missed[..unknown].contains(at);
            let more: Positions = list.iter().copied().filter(is_known).collect();
            missed.extend(more.into_iter().take(tried - unknown));
        }
        let again: &[u8] = if cfg!(debug_assertions) { &missed[unknown + left_out..] } else { &[] };
        let known = self.known(again);
        if is_tried {
            // Once before, so that what deciding reads is as near as it would be without the table.
            self.decider.decide::<KEY, F>(&missed, self.batch, self.extensions);
        }
        let begun = ticks();
        self.decider.decide::<KEY, F>(&missed, self.batch, self.extensions);
        debug_assert!(
            known.iter().zip(self.known(again)).all(|(found, decided)| {
                // A connection may have changed since; then its decision is not used.
                let is_same_connection = found.reference() == decided.reference();
                !is_same_connection || found.is_of_several() || *found == decided
            }),
            "what is found is what is decided"
        );
        let decided = ticks();

        self.keep::<KEY, PLACE, F>(&mut open, &missed[..unknown]);
        let kept = ticks();
        if is_measured {
            // Of a sample, all were hashed and some looked up.
            let part = (hashed.saturating_sub(begin)).saturating_mul(looked) / count;
            half.controller.measured(&Measurement {
                packets: count,
                probed: looked,
                probe: part + found.saturating_sub(hashed),
                decided: missed.len() as u64,
                decide: decided.saturating_sub(begun),
                inserted: unknown as u64,
                insert: kept.saturating_sub(decided),
            });
        }
        match (half.mode, plan) {
            (CacheMode::Auto, Plan::Sample) => half.controller.sampled(looked, outcome.hits),
            (CacheMode::Auto, _) => half.controller.used(looked, outcome.hits),
            (CacheMode::On | CacheMode::Off, _) => {}
        }
        self.cache.bypassed.add(count - looked);
        self.statistics.decided.add(count - looked + unknown as u64);
        self.note(half, &outcome, is_measured);
    }

    /// Looks up only the flows that belong to the part that is used for sampling. Returns how many
    /// these were, and where the others are.
    #[cold]
    fn find_sampled<const KEY: usize, const PLACE: usize, F: Family<KEY>>(
        &mut self,
        table: &mut Open<'_, KEY, PLACE>,
        missed: &mut Positions,
    ) -> (Outcome, u64, Positions) {
        let (mut sampled, mut left) = (Positions::new(), Positions::new());
        for &at in self.list {
            match table.is_sampled(self.hashes[usize::from(at)]) {
                true => sampled.push(at),
                false => left.push(at),
            }
        }
        let outcome = self.find::<KEY, PLACE, F>(table, &sampled, missed);
        (outcome, sampled.len() as u64, left)
    }

    /// The second and the third pass; notes the positions of packets whose flow is not known.
    fn find<const KEY: usize, const PLACE: usize, F: Family<KEY>>(
        &mut self,
        table: &mut Open<'_, KEY, PLACE>,
        list: &[u8],
        missed: &mut Positions,
    ) -> Outcome {
        let is_all = self.batch_is(list);
        match table.is_direct() {
            true => probe_all::<true, _, _>(table, list, is_all, self.hashes, self.candidates),
            false => probe_all::<false, _, _>(table, list, is_all, self.hashes, self.candidates),
        }
        let mut outcome = Outcome::default();
        let mut left = list;
        loop {
            let found = match self.is_busy {
                true => self.find_run::<true, KEY, PLACE, F>(table, left),
                false => self.find_run::<false, KEY, PLACE, F>(table, left),
            };
            let Some((&at, rest)) = left[found..].split_first() else { break };
            left = rest;
            if !self.find_uncommon::<KEY, PLACE, F>(table, at, &mut outcome) {
                missed.push(at);
            }
        }
        outcome.hits = list.len() as u64 - outcome.new - outcome.evicted - outcome.stale;
        outcome
    }

    /// The third pass for packets whose flows are known and valid, up to the first that is not.
    /// Returns how many these are.
    #[inline(never)]
    fn find_run<const BUSY: bool, const KEY: usize, const PLACE: usize, F: Family<KEY>>(
        &mut self,
        table: &Open<'_, KEY, PLACE>,
        list: &[u8],
    ) -> usize {
        let is_all = self.batch_is(list);
        let since = match BUSY {
            true => self.recent.confirmed_since(),
            false => self.decider.generation(),
        };
        let (batch, candidates) = (&mut *self.batch, &*self.candidates);
        let find = |at: usize| {
            let key = F::key(batch, at as u8);
            let since = if BUSY { since.max(self.recent.last_change(key)) } else { since };
            let value = table.find_valid(candidates[at], key, since);
            value.map(|value| batch.records[at].decision = Decision::from_words(value)).is_none()
        };
        let missing = match is_all {
            true => (0..list.len().min(BATCH)).position(find),
            false => list.iter().map(|&at| usize::from(at)).position(find),
        };
        missing.unwrap_or(list.len())
    }

    /// Whether a list of positions is of all packets: then positions are counted and not read.
    fn batch_is(&self, list: &[u8]) -> bool {
        list.len() == self.batch.len()
    }

    /// The third pass for a packet whose flow is not known, was not used lately, or was stamped before
    /// the last change.
    /// Returns whether its decision was found.
    #[inline(never)]
    fn find_uncommon<const KEY: usize, const PLACE: usize, F: Family<KEY>>(
        &mut self,
        table: &mut Open<'_, KEY, PLACE>,
        at: u8,
        outcome: &mut Outcome,
    ) -> bool {
        let (hash, candidate) = (self.hashes[usize::from(at)], self.candidates[usize::from(at)]);
        let key = F::key(self.batch, at);
        let Some(found) = table.find(hash, candidate, key) else {
            match table.was_turned_away(hash) {
                true => outcome.evicted += 1,
                false => outcome.new += 1,
            }
            return false;
        };
        let decision = Decision::from_words(table.value(found.place));
        if found.stamp != self.decider.generation() {
            if found.stamp < self.recent.last_change(key)
                && !self.recent.spares(key, found.stamp)
                && !validity::holds(&F::flow(key), &decision, found.stamp, self.decider)
            {
                outcome.stale += 1;
                return false;
            }
            table.stamp(found.place, self.decider.generation());
            outcome.restamped += 1;
        }
        self.batch.records[usize::from(at)].decision = decision;
        true
    }

    /// Keeps what was decided.
    fn keep<const KEY: usize, const PLACE: usize, F: Family<KEY>>(
        &self,
        table: &mut Open<'_, KEY, PLACE>,
        missed: &[u8],
    ) {
        let generation = self.decider.generation();
        for &at in missed {
            let decision = &self.batch.records[usize::from(at)].decision;
            if may_stay(decision, self.statistics) {
                let key = F::key(self.batch, at);
                table.insert(self.hashes[usize::from(at)], key, generation, &decision.words());
            }
        }
    }

    /// The decisions of packets.
    fn known(&self, positions: &[u8]) -> ArrayVec<Decision, BATCH> {
        positions.iter().map(|&at| self.batch.records[usize::from(at)].decision).collect()
    }

    fn note<const KEY: usize, const PLACE: usize>(
        &self,
        half: &Half<KEY, PLACE>,
        outcome: &Outcome,
        is_measured: bool,
    ) {
        let statistics = self.cache;
        statistics.hits.add(outcome.hits);
        statistics.restamped.add(outcome.restamped);
        statistics.missed_new.add(outcome.new);
        statistics.missed_stale.add(outcome.stale);
        statistics.missed_evicted.add(outcome.evicted);
        let Some(table) = &half.table else { return };
        tell(&table.counts, statistics);
        let is_bypassing = half.mode == CacheMode::Auto && half.controller.is_bypassing();
        statistics.bypassing.set(is_bypassing.into());
        if is_measured {
            let costs = half.controller.costs();
            statistics.probe_cost.set(costs.probe);
            statistics.decide_cost.set(costs.decide);
            statistics.insert_cost.set(costs.insert);
        }
    }
}

impl<const KEY: usize, const PLACE: usize> Half<KEY, PLACE> {
    /// See [`Cache::keep`].
    fn keep<F: Family<KEY>>(
        &mut self,
        batch: &Packets,
        at: usize,
        decider: Decider<'_>,
        statistics: &WorkerStatistics,
    ) {
        let is_used = self.mode == CacheMode::On || !self.controller.is_bypassing();
        let decision = &batch.records[at].decision;
        let Some(table) = self.table.as_mut().filter(|_| is_used) else { return };
        if may_stay(decision, statistics) {
            let (mut open, key) = (table.open(), F::key(batch, at as u8));
            open.insert(open.hash(key), key, decider.generation(), &decision.words());
            tell(&table.counts, &statistics.caches[table_of(batch.records[at].facts)]);
        }
    }
}

/// Tells what a table has counted.
#[inline(always)]
fn tell(counts: &flow::Counts, statistics: &CacheStatistics) {
    statistics.inserted.set(counts.inserted);
    statistics.evicted.set(counts.evicted);
    statistics.refused.set(counts.refused);
    statistics.live.set(counts.live);
    statistics.occupied.set(counts.occupied);
}

/// Whether a decision may be kept.
#[inline(always)]
fn may_stay(decision: &Decision, statistics: &WorkerStatistics) -> bool {
    if !decision.is_extended() && !decision.is_passing() {
        return true;
    }
    let stays = decision.extension().is_none_or(Extensions::stays);
    if !stays && !decision.is_passing() {
        statistics.features_not_kept.add(1);
    }
    stays && !decision.is_passing()
}

/// The first pass: hashes the keys and asks for the sets' words.
#[inline(never)]
fn hash_all<const KEY: usize, const PLACE: usize, F: Family<KEY>>(
    table: &Open<'_, KEY, PLACE>,
    list: &[u8],
    batch: &Packets,
    hashes: &mut [u64; BATCH],
) {
    let each = |at: usize| {
        let hash = table.hash(F::key(batch, at as u8));
        hashes[at] = hash;
        table.prefetch(hash);
    };
    match list.len() == batch.len() {
        true => (0..list.len().min(BATCH)).for_each(each),
        false => list.iter().map(|&at| usize::from(at)).for_each(each),
    }
}

/// The second pass: reads the sets' words and asks for the places.
#[inline(never)]
fn probe_all<const DIRECT: bool, const KEY: usize, const PLACE: usize>(
    table: &Open<'_, KEY, PLACE>,
    list: &[u8],
    is_all: bool,
    hashes: &[u64; BATCH],
    candidates: &mut [Candidate; BATCH],
) {
    let mut is_any_unknown = false;
    let each = |at: usize| {
        candidates[at] = table.candidate::<DIRECT>(hashes[at]);
        is_any_unknown |= candidates[at] == Candidate::NONE;
    };
    match is_all {
        true => (0..list.len().min(BATCH)).for_each(each),
        false => list.iter().map(|&at| usize::from(at)).for_each(each),
    }
    if is_any_unknown && !DIRECT {
        probe_second(table, list, hashes, candidates);
    }
}

/// The second pass once more, for the packets whose flows are not in their first sets.
#[inline(never)]
fn probe_second<const KEY: usize, const PLACE: usize>(
    table: &Open<'_, KEY, PLACE>,
    list: &[u8],
    hashes: &[u64; BATCH],
    candidates: &mut [Candidate; BATCH],
) {
    let unknown = |at: &u8| candidates[usize::from(*at)] == Candidate::NONE;
    let unknown: Positions = list.iter().copied().filter(unknown).collect();
    for &at in &unknown {
        table.prefetch_second(hashes[usize::from(at)]);
    }
    for &at in &unknown {
        candidates[usize::from(at)] = table.second_candidate(hashes[usize::from(at)]);
    }
}
