//! A worker's decision cache: a table for each family and direction.

use arrayvec::ArrayVec;
use flow::{
    CacheMode, CacheSettings, CacheStatistics, CacheTable, CacheTooLarge, Candidates, Controller,
    Plan, Table,
};
use packet::BATCH;
use rand::Rng;
use wire::FlowKey;

/// The tables, and room for what one batch needs to know while it is decided.
pub(crate) struct Caches {
    pub v4: [Room<3>; 2],
    pub v6: [Room<6>; 2],
    /// For each packet of the batch, its table.
    pub tables: Box<[u8; BATCH]>,
    /// For each table, the packets of the batch that are its, where not all are of one.
    pub lists: [ArrayVec<u8, BATCH>; 4],
    /// Keys of packets whose policies are looked up together.
    pub keys: ArrayVec<FlowKey, BATCH>,
}

/// One table, and what goes with it.
pub(crate) struct Room<const KEY: usize> {
    /// None where it is switched off.
    pub table: Option<Table<KEY>>,
    pub mode: CacheMode,
    pub controller: Controller,
    /// By position in the list.
    pub packets: Box<[Looking<KEY>; BATCH]>,
}

/// What is known of a packet while its flow is looked up.
#[derive(Clone, Copy)]
pub(crate) struct Looking<const KEY: usize> {
    pub key: [u64; KEY],
    pub hash: u64,
    pub candidates: Candidates,
}

impl Caches {
    pub(crate) fn new(
        settings: &[CacheSettings; 4],
        secrets: &mut impl Rng,
    ) -> Result<Self, CacheTooLarge> {
        use CacheTable::{V4Inbound, V4Outbound, V6Inbound, V6Outbound};
        let [a, b, c, d] = settings;
        Ok(Self {
            v4: [Room::new(V4Outbound, a, secrets)?, Room::new(V4Inbound, b, secrets)?],
            v6: [Room::new(V6Outbound, c, secrets)?, Room::new(V6Inbound, d, secrets)?],
            tables: Box::new([0; BATCH]),
            lists: Default::default(),
            keys: ArrayVec::new(),
        })
    }

    /// Tells how large each table is.
    pub(crate) fn describe(&self, statistics: &[CacheStatistics; 4]) {
        let sizes = |room: Option<(u32, u64)>| room.unwrap_or_default();
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
}

impl<const KEY: usize> Room<KEY> {
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
        let nothing = Looking { key: [0; KEY], hash: 0, candidates: Candidates::default() };
        let controller = Controller::new(table.as_ref().map_or(0, Table::buckets));
        Ok(Self { table, mode: settings.mode, controller, packets: Box::new([nothing; BATCH]) })
    }

    fn size(&self) -> Option<(u32, u64)> {
        self.table.as_ref().map(|table| (table.buckets(), table.bytes()))
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
