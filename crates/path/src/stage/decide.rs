//! Decide: for every packet, what happens to it: from the cache, or else by [`crate::decide()`].
//!
//! Packets are sorted by the cache's tables, and each table's are looked up together, then those
//! that were not found are decided together, then what was decided is kept. Nothing is done to a
//! packet before all are decided, so that those of one flow stay in order.

use std::sync::Arc;

use arrayvec::ArrayVec;
use flow::{CacheMode, Measurement, Plan};
use packet::BATCH;
use tables::{Direction, LookupEngine, Policy, Tables, Vrf};
use wire::{FlowKey, Headers, Origin, Protocol, Upper, VrfId};

use crate::cached;
use crate::caches::{Caches, Room};
use crate::decide::{Looked, decide_by};
use crate::lane::{Arrival, Flight, Flights};
use crate::validity;
use crate::worker::Round;

/// As many policies as the processor's caches hold. Tests are to go both ways with few.
const NEAR: usize = if cfg!(debug_assertions) { 4 } else { 8_192 };
/// Fewer packets than this are not worth looking up together.
const TOGETHER: usize = 4;

/// All packets of a batch.
const ALL: [u8; BATCH] = {
    let mut all = [0; BATCH];
    let mut at = 0;
    while at < BATCH {
        all[at] = at as u8;
        at += 1;
    }
    all
};

/// Positions in a table's list of packets.
type Positions = ArrayVec<u8, BATCH>;

/// How looking a list's packets up went.
#[derive(Default)]
struct Outcome {
    hits: u64,
    restamped: u64,
    new: u64,
    stale: u64,
    evicted: u64,
}

impl Round<'_> {
    pub(crate) fn decide(&mut self, batch: &mut Flights) {
        let Flights { packets, flights } = batch;
        let flights = &mut flights[..packets.len()];
        let Some(mut caches) = self.worker.caches.take() else {
            return flights.iter_mut().for_each(|flight| {
                flight.decision = crate::decide(&flight.key(), self.tables, &mut ())
            });
        };
        let Caches { v4, v6, tables, lists, keys } = &mut *caches;
        let (only, count) = (self.sort(flights, tables), flights.len());
        let [v4_outbound, v4_inbound] = v4;
        let [v6_outbound, v6_inbound] = v6;
        let mut look = |table: usize, list: &[u8]| match table {
            0 => self.look(0, v4_outbound, list, flights, keys, cached::key_v4),
            1 => self.look(1, v4_inbound, list, flights, keys, cached::key_v4),
            2 => self.look(2, v6_outbound, list, flights, keys, cached::key_v6),
            _ => self.look(3, v6_inbound, list, flights, keys, cached::key_v6),
        };
        match only {
            Some(table) => look(table, &ALL[..count]),
            None => {
                lists.iter_mut().for_each(ArrayVec::clear);
                for (at, table) in tables[..count].iter().enumerate() {
                    lists[usize::from(*table)].push(at as u8);
                }
                lists.iter().enumerate().for_each(|(table, list)| look(table, list));
            }
        }
        self.worker.caches = Some(caches);
    }

    /// Which table each packet's flow belongs to; answers it where that is one for all.
    fn sort(&self, flights: &[Flight], tables: &mut [u8; BATCH]) -> Option<usize> {
        let mut others = 0;
        let mut last: Option<(VrfId, bool)> = None;
        for (at, flight) in flights.iter().take(BATCH).enumerate() {
            let Flight { headers, arrival, .. } = flight;
            let is_inbound = match arrival.origin {
                Origin::Sa(_) => true,
                Origin::Port(_) | Origin::Host | Origin::HostProtected => {
                    let clear = match last {
                        Some((vrf, clear)) if vrf == arrival.vrf => clear,
                        _ => self.tables.vrf(arrival.vrf).is_some_and(clear_is_inbound),
                    };
                    last = Some((arrival.vrf, clear));
                    clear || is_esp(headers)
                }
            };
            tables[at] = u8::from(headers.addresses.is_v6()) << 1 | u8::from(is_inbound);
            others |= tables[at] ^ tables[0];
        }
        (others == 0).then_some(usize::from(tables[0]))
    }

    /// Decides one table's packets.
    #[inline]
    fn look<const KEY: usize>(
        &mut self,
        which: usize,
        room: &mut Room<KEY>,
        list: &[u8],
        flights: &mut [Flight],
        keys: &mut ArrayVec<FlowKey, BATCH>,
        key_of: impl Fn(&Headers, Arrival) -> [u64; KEY],
    ) {
        if list.is_empty() {
            return;
        }
        let count = list.len() as u64;
        let plan = room.plan(count);
        if plan == Plan::Bypass {
            self.decide_missed(&ALL[..list.len()], list, flights, keys);
            self.worker.statistics.caches[which].bypassed.add(count);
            return self.worker.statistics.decided.add(count);
        }
        let is_measured = matches!(plan, Plan::Measure | Plan::Sample);
        let ticks = || if is_measured { (self.worker.ticks)() } else { 0 };
        let mut missed = Positions::new();
        let begin = ticks();
        self.hash(room, list, flights, key_of);
        let hashed = ticks();
        let (outcome, looked, left) = match plan {
            Plan::Sample => self.find_sampled(room, list, flights, &mut missed),
            _ => (
                self.find(room, 0..list.len(), list, flights, &mut missed),
                count,
                Positions::new(),
            ),
        };
        let found = ticks();
        let unknown = missed.len();
        missed.extend(left);
        // Deciding some of them anew tells what it costs, and must not tell anything else.
        let tried =
            if is_measured && missed.is_empty() { room.controller.wanted_decisions() } else { 0 };
        missed.extend(ALL[..list.len().min(tried)].iter().copied());
        let known: ArrayVec<_, BATCH> = match cfg!(debug_assertions) && tried > 0 {
            true => missed
                .iter()
                .map(|&position| flights[usize::from(list[usize::from(position)])].decision)
                .collect(),
            false => ArrayVec::new(),
        };
        self.decide_missed(&missed, list, flights, keys);
        let decided = ticks();
        for (known, &position) in known.iter().zip(&missed) {
            debug_assert_eq!(*known, flights[usize::from(list[usize::from(position)])].decision);
        }
        self.keep(room, &missed[..unknown], list, flights);
        let kept = ticks();
        if is_measured {
            let part = (hashed.saturating_sub(begin)).saturating_mul(looked) / count;
            room.controller.measured(&Measurement {
                probed: looked,
                probe: part + found.saturating_sub(hashed),
                decided: missed.len() as u64,
                decide: decided.saturating_sub(found),
                inserted: unknown as u64,
                insert: kept.saturating_sub(decided),
            });
        }
        match (room.mode, plan) {
            (CacheMode::Auto, Plan::Sample) => room.controller.sampled(looked, outcome.hits),
            (CacheMode::Auto, _) => room.controller.used(count, outcome.hits),
            _ => {}
        }
        let bypassed = count - looked;
        self.worker.statistics.caches[which].bypassed.add(bypassed);
        self.worker.statistics.decided.add(bypassed + unknown as u64);
        self.note(which, room, &outcome, is_measured);
    }

    /// Fills in what the packets' flows are looked up by.
    #[inline]
    fn hash<const KEY: usize>(
        &self,
        room: &mut Room<KEY>,
        list: &[u8],
        flights: &[Flight],
        key_of: impl Fn(&Headers, Arrival) -> [u64; KEY],
    ) {
        let Room { table: Some(table), packets, .. } = room else { return };
        for (looking, &at) in packets.iter_mut().zip(list) {
            let flight = &flights[usize::from(at)];
            looking.key = key_of(&flight.headers, flight.arrival);
            looking.hash = table.hash(&looking.key);
            table.prefetch(looking.hash);
        }
    }

    /// Looks up only the flows that belong to the part that is used for sampling. Answers how many
    /// these were, and where the others are.
    #[cold]
    fn find_sampled<const KEY: usize>(
        &self,
        room: &mut Room<KEY>,
        list: &[u8],
        flights: &mut [Flight],
        missed: &mut Positions,
    ) -> (Outcome, u64, Positions) {
        let (mut sampled, mut left) = (Positions::new(), Positions::new());
        if let Room { table: Some(table), packets, .. } = &*room {
            for (looking, &position) in packets.iter().zip(&ALL[..list.len()]) {
                if table.is_sampled(looking.hash) {
                    sampled.push(position)
                } else {
                    left.push(position)
                }
            }
        }
        let outcome =
            self.find(room, sampled.iter().map(|&position| position.into()), list, flights, missed);
        (outcome, sampled.len() as u64, left)
    }

    /// Looks flows up; notes the positions of those that are not known.
    #[inline]
    fn find<const KEY: usize>(
        &self,
        room: &mut Room<KEY>,
        positions: impl Iterator<Item = usize> + Clone,
        list: &[u8],
        flights: &mut [Flight],
        missed: &mut Positions,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let Room { table: Some(table), packets, .. } = room else { return outcome };
        let generation = self.tables.generation();
        table.policies_changed(self.tables.policy_generation());
        let packets = &mut packets[..list.len()];
        for position in positions.clone() {
            let looking = &mut packets[position];
            looking.candidates = table.candidates(looking.hash);
        }
        for position in positions {
            let looking = &packets[position];
            let flight = &mut flights[usize::from(list[position])];
            let Some(found) = table.find(looking.hash, looking.candidates, &looking.key) else {
                match table.was_turned_away(looking.hash) {
                    true => outcome.evicted += 1,
                    false => outcome.new += 1,
                }
                missed.push(position as u8);
                continue;
            };
            flight.decision = cached::unpack(&found.value, flight.headers.upper);
            if found.stamp != generation {
                if !self.worker.recent.spares(&looking.key, found.stamp)
                    && !validity::holds(&flight.key(), &flight.decision, found.stamp, self.tables)
                {
                    outcome.stale += 1;
                    missed.push(position as u8);
                    continue;
                }
                table.stamp(found.place, generation);
                outcome.restamped += 1;
            }
            outcome.hits += 1;
        }
        outcome
    }

    /// Decides packets, looking their policies up together.
    fn decide_missed(
        &self,
        missed: &[u8],
        list: &[u8],
        flights: &mut [Flight],
        keys: &mut ArrayVec<FlowKey, BATCH>,
    ) {
        let tables = self.tables;
        if missed.len() < TOGETHER || tables.lookup_engine() == LookupEngine::Linear {
            return self.decide_alone(missed, list, flights);
        }
        let flight_of = |position: u8| usize::from(list[usize::from(position)]);
        // Most often all are of one VRF.
        let mut left = missed;
        while let Some(&first) = left.first() {
            let vrf = flights[flight_of(first)].arrival.vrf;
            let others =
                left.iter().position(|&position| flights[flight_of(position)].arrival.vrf != vrf);
            let (run, rest) = left.split_at(others.unwrap_or(left.len()));
            left = rest;
            if tables.vrf(vrf).is_none_or(|vrf| !are_many(vrf)) {
                self.decide_alone(run, list, flights);
                continue;
            }
            keys.clear();
            keys.extend(
                run.iter().map(|&position| flights[usize::from(list[usize::from(position)])].key()),
            );
            let looked = Policies::look(tables, vrf, keys);
            for (number, (&position, key)) in run.iter().zip(keys.iter()).enumerate() {
                let decision = decide_by(key, tables, &looked.of(number), &mut ());
                flights[usize::from(list[usize::from(position)])].decision = decision;
            }
        }
    }

    /// Decides one packet after the other.
    fn decide_alone(&self, missed: &[u8], list: &[u8], flights: &mut [Flight]) {
        for &position in missed {
            let flight = &mut flights[usize::from(list[usize::from(position)])];
            flight.decision = decide_by(&flight.key(), self.tables, &Looked::default(), &mut ());
        }
    }

    /// Keeps what was decided.
    #[inline]
    fn keep<const KEY: usize>(
        &self,
        room: &mut Room<KEY>,
        missed: &[u8],
        list: &[u8],
        flights: &[Flight],
    ) {
        let Room { table: Some(table), packets, .. } = room else { return };
        let generation = self.tables.generation();
        for &position in missed {
            let (looking, at) = (&packets[usize::from(position)], list[usize::from(position)]);
            if let Some(value) = cached::pack(&flights[usize::from(at)].decision) {
                table.insert(looking.hash, &looking.key, generation, &value);
            }
        }
    }

    fn note<const KEY: usize>(
        &self,
        which: usize,
        room: &Room<KEY>,
        outcome: &Outcome,
        is_measured: bool,
    ) {
        let statistics = &self.worker.statistics.caches[which];
        statistics.hits.add(outcome.hits);
        statistics.restamped.add(outcome.restamped);
        statistics.missed_new.add(outcome.new);
        statistics.missed_stale.add(outcome.stale);
        statistics.missed_evicted.add(outcome.evicted);
        let Some(table) = &room.table else { return };
        statistics.inserted.set(table.counts.inserted);
        statistics.evicted.set(table.counts.evicted);
        statistics.refused.set(table.counts.refused);
        statistics.live.set(table.counts.live);
        statistics.occupied.set(table.counts.occupied);
        statistics
            .bypassing
            .set((room.mode == CacheMode::Auto && room.controller.is_bypassing()).into());
        if is_measured {
            let costs = room.controller.costs();
            statistics.probe_cost.set(costs.probe);
            statistics.decide_cost.set(costs.decide);
            statistics.insert_cost.set(costs.insert);
        }
    }
}

/// The policies of several packets of one VRF.
struct Policies<'t> {
    admission: Direction,
    admitting: ArrayVec<Option<&'t Arc<Policy>>, BATCH>,
    outbound: ArrayVec<Option<&'t Arc<Policy>>, BATCH>,
}

impl<'t> Policies<'t> {
    /// Looks up what most packets will be asked for; what else is wanted is looked up when it is.
    fn look(tables: &'t Tables, vrf: VrfId, keys: &[FlowKey]) -> Self {
        let mut policies = Self {
            admission: Direction::In,
            admitting: ArrayVec::new(),
            outbound: ArrayVec::new(),
        };
        let Some(spd) = tables.vrf(vrf).map(|vrf| &vrf.spd).filter(|spd| !spd.is_empty()) else {
            return policies;
        };
        if spd.policies(Direction::Fwd).len() > 0 {
            policies.admission = Direction::Fwd;
        }
        for (direction, found) in [
            (policies.admission, &mut policies.admitting),
            (Direction::Out, &mut policies.outbound),
        ] {
            // No policy is quickly not found, and one packet's turn is not worth everybody's.
            if spd.policies(direction).len() > 0 && keys.iter().any(|key| may_ask(key, direction)) {
                found.extend(keys.iter().map(|_| None));
                spd.lookup_batch(direction, keys, found);
            }
        }
        policies
    }

    fn of(&self, number: usize) -> Looked<'t> {
        Looked {
            admission: self.admitting.get(number).map(|found| (self.admission, *found)),
            outbound: self.outbound.get(number).copied(),
        }
    }
}

/// Whether deciding a packet may take a lookup in this direction's policies.
fn may_ask(key: &FlowKey, direction: Direction) -> bool {
    let is_ours = matches!(key.origin, Origin::Host | Origin::HostProtected);
    let is_esp = key.protocol == Protocol::ESP && matches!(key.upper, Upper::Spi(_));
    !is_esp && (direction == Direction::Out || !is_ours)
}

/// Whether there are so many policies that looking them up waits for memory, and several packets'
/// waits should overlap.
fn are_many(vrf: &Vrf) -> bool {
    Direction::ALL.iter().any(|direction| vrf.spd.policies(*direction).len() > NEAR)
}

/// Whether clear packets are the inbound SPD's, which is where there is no outbound one.
fn clear_is_inbound(vrf: &Vrf) -> bool {
    !vrf.spd.is_empty() && vrf.spd.policies(Direction::Out).len() == 0
}

fn is_esp(headers: &Headers) -> bool {
    headers.protocol == Protocol::ESP && matches!(headers.upper, Upper::Spi(_))
}
