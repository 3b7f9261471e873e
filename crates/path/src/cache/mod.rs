//! The decision cache: what was decided for a flow, and whether it still holds.
//!
//! [`flow::Table`] maps words to words and knows nothing of what they mean. This folder does: the
//! [`key`] of a flow, how a batch is looked up and kept ([`lookup`]), and which change makes which
//! entry invalid ([`validity`], with [`recent`] in front of it). Entries with an [`Extension`] are
//! looked through now and then ([`sweep`]).
//!
//! [`Extension`]: crate::Extension

pub(crate) mod key;
pub(crate) mod lookup;
pub(crate) mod recent;
pub(crate) mod sweep;
pub(crate) mod validity;

use arrayvec::ArrayVec;
use flow::{
    CacheMode, CacheSettings, CacheStatistics, CacheTable, CacheTooLarge, Candidate, Controller,
    Plan, Table,
};
use packet::BATCH;
use rand::Rng;
use tables::Tables;

use self::lookup::{Family, V4, V6};
pub(crate) use self::recent::Recent;
use crate::batch::{Packets, table_of};
use crate::decision::Decision;

/// Words of a place: key, generation and decision, in whole cache lines.
pub(crate) const PLACE_V4: usize = 8;
pub(crate) const PLACE_V6: usize = 16;

/// A worker's tables, and what they need while a batch is looked up.
pub(crate) struct Cache {
    pub v4: [Half<{ key::V4 }, PLACE_V4>; 2],
    pub v6: [Half<{ key::V6 }, PLACE_V6>; 2],
    pub scratch: Scratch,
    /// Of the snapshot that the worker uses.
    pub recent: Recent,
    /// Reads a clock that ticks fast and steadily.
    pub ticks: fn() -> u64,
}

/// What is noted of a batch while it is looked up.
pub(crate) struct Scratch {
    /// By position in the batch: the hash of a packet's key, and the place that its flow may be in.
    pub hashes: Box<[u64; BATCH]>,
    pub candidates: Box<[Candidate; BATCH]>,
    /// For each table, the positions of its packets in the batch, if not all are of one.
    pub lists: [ArrayVec<u8, BATCH>; 4],
}

/// One family's table for one direction, and what goes with it.
pub(crate) struct Half<const KEY: usize, const PLACE: usize> {
    /// None if it is switched off.
    pub table: Option<Table<KEY, PLACE>>,
    pub mode: CacheMode,
    pub controller: Controller,
}

impl Cache {
    pub(crate) fn new(
        settings: &[CacheSettings; 4],
        secrets: &mut impl Rng,
        ticks: fn() -> u64,
    ) -> Result<Self, CacheTooLarge> {
        use CacheTable::{V4Inbound, V4Outbound, V6Inbound, V6Outbound};
        let [a, b, c, d] = settings;
        Ok(Self {
            v4: [Half::new(V4Outbound, a, secrets)?, Half::new(V4Inbound, b, secrets)?],
            v6: [Half::new(V6Outbound, c, secrets)?, Half::new(V6Inbound, d, secrets)?],
            scratch: Scratch {
                hashes: Box::new([0; BATCH]),
                candidates: Box::new([Candidate::NONE; BATCH]),
                lists: Default::default(),
            },
            recent: Recent::new(),
            ticks,
        })
    }

    /// What is known of the flow of a packet, valid or not: the generation and the decision.
    #[cold]
    pub(crate) fn entry(&mut self, batch: &Packets, at: usize) -> Option<(u64, Decision)> {
        match table_of(batch.records[at].facts) {
            table @ 0..2 => self.v4[table].entry(V4::key(batch, at as u8)),
            table => self.v6[table - 2].entry(V6::key(batch, at as u8)),
        }
    }

    /// Tells how large each table is.
    pub(crate) fn describe(&self, statistics: &[CacheStatistics; 4]) {
        let sizes = |size: Option<(u32, u64)>| size.unwrap_or_default();
        let all = [
            sizes(self.v4[0].size()),
            sizes(self.v4[1].size()),
            sizes(self.v6[0].size()),
            sizes(self.v6[1].size()),
        ];
        for ((buckets, bytes), statistics) in all.into_iter().zip(statistics) {
            statistics.buckets.set(buckets.into());
            statistics.bytes.set(bytes);
        }
    }

    /// Takes note of a new snapshot. A change of a policy sets the counts of live entries to zero,
    /// even if no packet comes to show it.
    pub(crate) fn snapshot_changed(&mut self, tables: &Tables, statistics: &[CacheStatistics; 4]) {
        self.recent.advance(tables);
        let generation = tables.policy_generation();
        let [v4_out, v4_in] = self.v4.each_mut().map(|half| half.live(generation));
        let [v6_out, v6_in] = self.v6.each_mut().map(|half| half.live(generation));
        for (statistics, live) in statistics.iter().zip([v4_out, v4_in, v6_out, v6_in]) {
            statistics.live.set(live);
        }
    }
}

impl<const KEY: usize, const PLACE: usize> Half<KEY, PLACE> {
    fn new(
        which: CacheTable,
        settings: &CacheSettings,
        secrets: &mut impl Rng,
    ) -> Result<Self, CacheTooLarge> {
        let secret = secrets.next_u64();
        let table = match settings.mode {
            CacheMode::Off => None,
            CacheMode::On | CacheMode::Auto => Some(Table::new(which, settings, secret)?),
        };
        let controller = Controller::new(table.as_ref().map_or(0, Table::buckets));
        Ok(Self { table, mode: settings.mode, controller })
    }

    fn entry(&mut self, key: &[u64; KEY]) -> Option<(u64, Decision)> {
        let mut open = self.table.as_mut()?.open();
        let hash = open.hash(key);
        let found = open.find(hash, open.any_candidate(hash), key)?;
        Some((found.stamp, Decision::from_words(open.value(found.place))))
    }

    fn size(&self) -> Option<(u32, u64)> {
        self.table.as_ref().map(|table| (table.buckets(), table.bytes()))
    }

    fn live(&mut self, generation: u64) -> u64 {
        let Some(table) = &mut self.table else { return 0 };
        table.policies_changed(generation);
        table.counts.live
    }

    /// What to do with the table's part of a batch.
    #[inline]
    pub(crate) fn plan(&mut self, packets: u64) -> Plan {
        match (&self.table, self.mode) {
            (None, _) | (_, CacheMode::Off) => Plan::Bypass,
            (Some(_), CacheMode::Auto) => self.controller.plan(packets),
            // Measured for whoever wants to see what it saves.
            (Some(_), CacheMode::On) => match self.controller.plan(packets) {
                Plan::Measure | Plan::Sample => Plan::Measure,
                Plan::Use | Plan::Bypass => Plan::Use,
            },
        }
    }
}
