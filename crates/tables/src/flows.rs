//! Match-action tables, connections and NAT pools, as the snapshot has them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conntrack::nat::{Pool, PoolSettings};
use conntrack::{Connections, Ended};
use packet::Time;
use pipeline::{FlowId, NatEnd, NatNew, Pipeline, PortChoice};
use thiserror::Error;
use wire::{PortId, VrfId};

use crate::counters::FlowCounters;
use crate::map::{Map, MapKey};

impl MapKey for FlowId {
    type Words = [u64; 1];

    fn to_words(&self) -> Self::Words {
        [self.0.into()]
    }
}

/// What a flow has counted.
#[derive(Debug)]
pub struct FlowMeter {
    /// Packets and bytes.
    pub counters: FlowCounters,
    /// When it was made.
    pub created: Time,
    /// When it was used last, in nanoseconds.
    pub(crate) used: AtomicU64,
}

impl FlowMeter {
    /// Counts packets, the last of which came at `last`.
    pub fn count(&self, worker: usize, packets: u64, bytes: u64, last: Time) {
        self.counters.add(worker, packets, bytes);
        self.used.fetch_max(last.0, Ordering::Relaxed);
    }

    /// When a packet last matched it; when it was made, if none did.
    pub fn used(&self) -> Time {
        Time(self.used.load(Ordering::Relaxed))
    }
}

/// Names a NAT pool. One more than its number is in the bindings of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolId(u16);

/// The most NAT pools: a binding has 13 bits for them.
pub const MAX_NAT_POOLS: usize = (1 << 13) - 1;

/// Where a binding has the pool.
const POOL_SHIFT: u32 = 48;

/// A NAT pool, and what it is for.
pub struct NatPool {
    /// What the flows ask for.
    pub spec: NatNew,
    /// Lends ports.
    pub pool: Pool,
}

/// Why flows are not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FlowError {
    /// A pool was not made.
    #[error("{0}")]
    Pool(#[from] conntrack::nat::BadPool),
    /// A helper is asked for.
    #[error("`alg` is not supported: no helper reads FTP or TFTP yet")]
    Helper,
    /// A translation of sources without addresses.
    #[error("`nat(src)` needs addresses: say `nat(src=FIRST-LAST)`")]
    NoAddresses,
    /// There are too many.
    #[error("there are {MAX_NAT_POOLS} NAT pools already, which is the most")]
    Pools,
}

/// The flows of all VRFs, and what they need.
#[derive(Clone)]
pub(crate) struct Flows {
    pub(crate) pipeline: Pipeline,
    pub(crate) meters: Map<FlowId, Arc<FlowMeter>>,
    /// The ports that flows send frames by, by VRF.
    pub(crate) joined: Arc<BTreeMap<VrfId, Arc<[PortId]>>>,
    /// One table for all workers, the same in all snapshots once it is there.
    pub(crate) connections: Option<Arc<Connections>>,
    /// By number. One stays as long as the gateway runs, as connections may hold ports of it.
    pools: Arc<Vec<Arc<NatPool>>>,
    secret: u64,
}

impl Flows {
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            pipeline: Pipeline::new(),
            meters: Map::new(secret),
            joined: Arc::default(),
            connections: None,
            pools: Arc::default(),
            secret,
        }
    }

    /// Makes the pools that the flows ask for, as far as they are not there.
    pub(crate) fn make_pools(&mut self, pipeline: &Pipeline) -> Result<(), FlowError> {
        if pipeline.asks_for_helpers() {
            return Err(FlowError::Helper);
        }
        for new in pipeline.translations().filter(|new| new.end == NatEnd::Source) {
            if new.addresses.is_none() {
                return Err(FlowError::NoAddresses);
            }
            let Some(settings) = settings(new).filter(|_| self.pool_of(new).is_none()) else {
                continue;
            };
            if self.pools.len() >= MAX_NAT_POOLS {
                return Err(FlowError::Pools);
            }
            let number = self.pools.len() as u64;
            let secret = [self.secret.rotate_left(17) ^ number, self.secret ^ number << 32];
            let pool = NatPool { spec: new.clone(), pool: Pool::new(settings, secret)? };
            Arc::make_mut(&mut self.pools).push(Arc::new(pool));
        }
        Ok(())
    }

    /// There are few kinds of pools, and each is compared quickly.
    pub(crate) fn pool_of(&self, new: &NatNew) -> Option<PoolId> {
        let place = self.pools.iter().position(|pool| pool.spec == *new)?;
        Some(PoolId(place as u16))
    }

    pub(crate) fn pool(&self, PoolId(number): PoolId) -> Option<&NatPool> {
        self.pools.get(usize::from(number)).map(|pool| &**pool)
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = &NatPool> {
        self.pools.iter().map(|pool| &**pool)
    }

    /// Gives back what a connection had of a pool.
    pub(crate) fn ended(&self, ended: &Ended) {
        let binding = ended.connection.binding;
        let number = (binding >> POOL_SHIFT) as usize & MAX_NAT_POOLS;
        if let Some(pool) = number.checked_sub(1).and_then(|number| self.pools.get(number)) {
            pool.pool.give(binding);
        }
    }
}

impl PoolId {
    /// A lease's binding with the pool.
    pub fn binding(self, lease: u64) -> u64 {
        match lease {
            0 => 0,
            lease => lease | (u64::from(self.0) + 1) << POOL_SHIFT,
        }
    }
}

/// How a pool for a translation lends, if it takes one.
fn settings(new: &NatNew) -> Option<PoolSettings> {
    Some(PoolSettings {
        ports: new.ports.map(|(first, last)| first..=last),
        random: new.choice == Some(PortChoice::Random),
        persistent: new.persistent,
        ..PoolSettings::new(new.addresses?)
    })
}
