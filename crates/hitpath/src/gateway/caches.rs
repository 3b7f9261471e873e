//! The decision cache: from what is configured to what workers are made with, and from what they
//! count to what users see.

use api::{
    CacheCosts, CacheMisses, CacheReport, CacheState, CacheTable, CacheView, FlowCacheEntries,
    WorkerCache,
};
use control::IpsecSettings;
use flow::{Associativity, CacheSettings, CacheStatistics};

use runtime::clock;

/// The tables of each worker, in flow's terms.
pub(crate) fn settings(ipsec: &IpsecSettings) -> [CacheSettings; 4] {
    CacheTable::ALL.map(|table| {
        let said = ipsec.cache(table);
        CacheSettings {
            mode: said.mode,
            buckets: said.buckets,
            associativity: if ipsec.associativity == 1 {
                Associativity::Direct
            } else {
                Associativity::Four
            },
        }
    })
}

/// What the tables of workers have done: `counted` has those of each worker.
pub(crate) fn report(ipsec: &IpsecSettings, counted: &[&[CacheStatistics; 4]]) -> CacheReport {
    let workers = counted.iter().enumerate().flat_map(|(worker, tables)| {
        tables.iter().zip(CacheTable::ALL).map(move |(table, name)| WorkerCache {
            worker,
            cache: Sum::new(name).with(table).view(ipsec),
        })
    });
    let totals = CacheTable::ALL.map(|name| {
        let of_table = counted.iter().map(|tables| &tables[name as usize]);
        of_table.fold(Sum::new(name), Sum::with).view(ipsec)
    });
    CacheReport { workers: workers.collect(), totals: totals.into() }
}

/// Live entries by table.
pub(crate) fn live(counted: &[&[CacheStatistics; 4]]) -> Vec<FlowCacheEntries> {
    let entries =
        |table: CacheTable| counted.iter().map(|tables| tables[table as usize].live.read()).sum();
    CacheTable::ALL.map(|table| FlowCacheEntries { table, entries: entries(table) }).into()
}

/// One table of several workers.
struct Sum {
    table: CacheTable,
    tables: u64,
    bypassing: u64,
    buckets: u64,
    bytes: u64,
    occupied: u64,
    hits: u64,
    misses: CacheMisses,
    restamped: u64,
    inserted: u64,
    evicted: u64,
    refused: u64,
    live: u64,
    look: Mean,
    decide: Mean,
    keep: Mean,
}

/// The mean of some measurements.
#[derive(Default)]
struct Mean {
    nanoseconds: f64,
    count: u32,
}

impl Sum {
    fn new(table: CacheTable) -> Self {
        Self {
            table,
            tables: 0,
            bypassing: 0,
            buckets: 0,
            bytes: 0,
            occupied: 0,
            hits: 0,
            misses: CacheMisses::default(),
            restamped: 0,
            inserted: 0,
            evicted: 0,
            refused: 0,
            live: 0,
            look: Mean::default(),
            decide: Mean::default(),
            keep: Mean::default(),
        }
    }

    fn with(mut self, counted: &CacheStatistics) -> Self {
        self.tables += 1;
        self.bypassing += counted.bypassing.read();
        self.buckets += counted.buckets.read();
        self.bytes += counted.bytes.read();
        self.occupied += counted.occupied.read();
        self.hits += counted.hits.read();
        self.misses.new += counted.missed_new.read();
        self.misses.stale += counted.missed_stale.read();
        self.misses.evicted += counted.missed_evicted.read();
        self.misses.bypassed += counted.bypassed.read();
        self.restamped += counted.restamped.read();
        self.inserted += counted.inserted.read();
        self.evicted += counted.evicted.read();
        self.refused += counted.refused.read();
        self.live += counted.live.read();
        self.look.add(counted.probe_cost.read());
        self.decide.add(counted.decide_cost.read());
        self.keep.add(counted.insert_cost.read());
        self
    }

    fn view(&self, ipsec: &IpsecSettings) -> CacheView {
        let mode = ipsec.cache(self.table).mode;
        CacheView {
            table: self.table,
            mode,
            state: match self.bypassing {
                _ if mode == api::CacheMode::Off => CacheState::Off,
                0 => CacheState::InUse,
                all if all == self.tables => CacheState::Bypassed,
                _ => CacheState::Mixed,
            },
            buckets: self.buckets,
            associativity: ipsec.associativity,
            bytes: self.bytes,
            occupied: self.occupied,
            hits: self.hits,
            hit_ratio: ratio(self.hits, self.hits + self.misses.total()),
            misses: self.misses,
            restamped: self.restamped,
            inserted: self.inserted,
            evicted: self.evicted,
            refused: self.refused,
            live: self.live,
            costs: self.costs(),
        }
    }

    fn costs(&self) -> CacheCosts {
        let [look_ns, decide_ns, keep_ns] = [&self.look, &self.decide, &self.keep].map(Mean::value);
        let misses = self.misses.total() - self.misses.bypassed;
        let saved_ns = match (ratio(self.hits, self.hits + misses), look_ns, decide_ns) {
            (Some(hits), Some(look), Some(decide)) => {
                Some(hits * decide - look - (1.0 - hits) * keep_ns.unwrap_or_default())
            }
            _ => None,
        };
        CacheCosts { look_ns, decide_ns, keep_ns, saved_ns }
    }
}

impl Mean {
    /// Adds ticks for 1024 packets; 0 was not measured.
    fn add(&mut self, ticks: u64) {
        if ticks > 0 {
            self.nanoseconds += clock::nanoseconds(ticks) / 1024.0;
            self.count += 1;
        }
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.nanoseconds / f64::from(self.count))
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_reaches_the_workers() {
        assert_eq!(settings(&IpsecSettings::default()), [CacheSettings::default(); 4]);
        assert_eq!(control::CacheSettings::MAX_BUCKETS, CacheSettings::MAX_BUCKETS);
        let mut ipsec = IpsecSettings { associativity: 1, ..IpsecSettings::default() };
        ipsec.caches[CacheTable::V6Outbound as usize] =
            control::CacheSettings { mode: api::CacheMode::On, buckets: 64 };
        let made = settings(&ipsec)[CacheTable::V6Outbound as usize];
        let wanted = CacheSettings {
            mode: flow::CacheMode::On,
            buckets: 64,
            associativity: Associativity::Direct,
        };
        assert_eq!(made, wanted);
    }

    #[test]
    fn workers_are_added_up_and_a_saving_follows_from_costs() {
        let mut ipsec = IpsecSettings::default();
        ipsec.caches[1].mode = api::CacheMode::Off;
        let workers: [[CacheStatistics; 4]; 2] = Default::default();
        for (worker, hits) in workers.iter().zip([60, 20]) {
            worker[0].hits.add(hits);
            worker[0].missed_new.add(5);
            worker[0].missed_stale.add(3);
            worker[0].missed_evicted.add(2);
            worker[0].bypassed.add(100);
            worker[0].live.add(7);
            worker[0].buckets.add(8);
            worker[0].probe_cost.add(1024 * 10);
            worker[0].decide_cost.add(1024 * 100);
        }
        workers[1][0].bypassing.add(1);
        let report = report(&ipsec, &[&workers[0], &workers[1]]);
        assert_eq!(report.workers.len(), 8);
        assert_eq!((report.workers[4].worker, report.workers[4].cache.hits), (1, 20));
        assert_eq!(report.workers[4].cache.state, CacheState::Bypassed);
        let total = &report.totals[0];
        assert_eq!(
            (total.hits, total.buckets, total.live, total.state),
            (80, 16, 14, CacheState::Mixed)
        );
        assert_eq!(total.misses, CacheMisses { new: 10, stale: 6, evicted: 4, bypassed: 200 });
        assert!((total.hit_ratio.unwrap() - 80.0 / 300.0).abs() < 1e-9);
        let costs = total.costs;
        let (look, decide) = (costs.look_ns.unwrap(), costs.decide_ns.unwrap());
        assert!((decide / look - 10.0).abs() < 1e-6);
        assert!((costs.saved_ns.unwrap() - (0.8 * decide - look)).abs() < 1e-6);
        assert_eq!(report.totals[1].state, CacheState::Off);
        assert_eq!(
            (report.totals[1].hit_ratio, report.totals[1].costs),
            (None, CacheCosts::default())
        );
        assert_eq!(
            live(&[&workers[0], &workers[1]])[0],
            FlowCacheEntries { table: CacheTable::V4Outbound, entries: 14 }
        );
    }
}
