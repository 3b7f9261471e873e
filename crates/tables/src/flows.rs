//! Match-action tables, connections and NAT pools, as the snapshot has them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use conntrack::nat::{Pool, PoolSettings, PortBlocks};
use conntrack::{Connections, Ended};
use packet::Time;
use pipeline::{Action, Flow, FlowId, NatEnd, NatNew, Pipeline};
use thiserror::Error;
use wire::{IpRange, PortId, VrfId};

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
}

/// A flow that logs packets.
#[derive(Clone, Debug)]
pub struct FlowLog {
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// What its lines begin with.
    pub prefix: Arc<str>,
}

impl FlowLog {
    /// Of a flow that logs.
    pub(crate) fn of(flow: &Flow) -> Option<Self> {
        let prefix = flow.actions.iter().find_map(|action| match action {
            Action::Log(prefix) => Some(prefix.clone()),
            _ => None,
        })?;
        let &Flow { table, priority, cookie, .. } = flow;
        Some(Self { table, priority, cookie, prefix })
    }
}

impl FlowMeter {
    /// Counts packets, the last of which came at `last`.
    pub fn count(&self, worker: usize, packets: u64, bytes: u64, last: Time) {
        self.counters.add_at(worker, packets, bytes, last);
    }

    /// When a packet last matched it; when it was made, if none did.
    pub fn used(&self) -> Time {
        self.counters.last().max(self.created)
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
    pub spec: Arc<NatNew>,
    /// Lends ports.
    pub pool: Pool,
}

/// Why flows are not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FlowError {
    /// A pool was not made.
    #[error("{0}")]
    Pool(#[from] conntrack::nat::BadPool),
    /// Blocks of ports that are not there.
    #[error("{0}")]
    Blocks(#[from] conntrack::nat::BadBlocks),
    /// Too many subscribers, or of the other family.
    #[error("there may be 1 to 1048576 subscribers, of the family of `src`")]
    Subscribers,
    /// There are too many.
    #[error("there are {MAX_NAT_POOLS} NAT pools already, which is the most")]
    Pools,
}

/// NAT pools. One that no flow asks for any more stays until it has all its ports back.
#[derive(Clone, Default)]
struct Pools {
    /// By number.
    all: Vec<Option<Place>>,
    by_spec: HashMap<Arc<NatNew>, PoolId>,
    /// How many no flow asks for.
    left: usize,
    /// How many were made.
    made: u64,
    /// The number to begin with for the next one.
    next: usize,
}

#[derive(Clone)]
struct Place {
    pool: Arc<NatPool>,
    /// How many translations of flows ask for it.
    users: usize,
}

impl Place {
    fn is_idle(&self) -> bool {
        self.users == 0 && self.pool.pool.is_idle()
    }
}

impl Pools {
    fn get(&self, PoolId(number): PoolId) -> Option<&Arc<NatPool>> {
        Some(&self.all.get(usize::from(number))?.as_ref()?.pool)
    }

    /// One more asks for it. False if there is no such pool.
    fn ask(&mut self, new: &NatNew) -> bool {
        let Some(PoolId(number)) = self.by_spec.get(new) else { return false };
        if let Some(place) = &mut self.all[usize::from(*number)] {
            self.left -= usize::from(place.users == 0);
            place.users += 1;
        }
        true
    }

    /// One less does.
    fn leave(&mut self, new: &NatNew) {
        let Some(PoolId(number)) = self.by_spec.get(new) else { return };
        if let Some(place) = &mut self.all[usize::from(*number)] {
            place.users -= 1;
            self.left += usize::from(place.users == 0);
        }
    }

    /// Adds a pool that one asks for. The numbers of those that went last are taken last.
    fn add(&mut self, pool: NatPool) -> Result<(), FlowError> {
        let number = if self.all.len() < MAX_NAT_POOLS {
            self.all.push(None);
            self.all.len() - 1
        } else {
            let mut order = (self.next..MAX_NAT_POOLS).chain(0..self.next);
            order.find(|at| self.all[*at].is_none()).ok_or(FlowError::Pools)?
        };
        self.next = (number + 1) % MAX_NAT_POOLS;
        self.made += 1;
        self.by_spec.insert(Arc::clone(&pool.spec), PoolId(number as u16));
        self.all[number] = Some(Place { pool: Arc::new(pool), users: 1 });
        Ok(())
    }

    /// Drops those that no flow asks for and that have all their ports back.
    fn drop_idle(&mut self) {
        for place in &mut self.all {
            if let Some(is) = place.take_if(|is| is.is_idle()) {
                self.by_spec.remove(&is.pool.spec);
                self.left -= 1;
            }
        }
    }
}

/// What a VRF's firewall makes of packets that routes or rules lead to its ports from a VRF without
/// flows: none of its policies is about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wall {
    /// They are dropped.
    Drop,
    /// They are dropped, and their senders are told.
    Reject,
}

/// The flows of all VRFs, and what they need.
#[derive(Clone)]
pub(crate) struct Flows {
    pub(crate) pipeline: Pipeline,
    pub(crate) meters: Map<FlowId, Arc<FlowMeter>>,
    /// Of the flows that log packets.
    pub(crate) logs: Arc<BTreeMap<FlowId, FlowLog>>,
    /// The ports that flows send frames by, by VRF.
    pub(crate) joined: Arc<BTreeMap<VrfId, Arc<[PortId]>>>,
    /// The zones of the firewall that ports are in.
    pub(crate) zones: Arc<BTreeMap<PortId, u16>>,
    /// The VRFs that have a firewall.
    pub(crate) walls: Arc<BTreeMap<VrfId, Wall>>,
    /// One table for all workers, the same in all snapshots once it is there.
    pub(crate) connections: Option<Arc<Connections>>,
    pools: Arc<Pools>,
    secret: u64,
}

impl Flows {
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            pipeline: Pipeline::new(),
            meters: Map::new(secret),
            logs: Arc::default(),
            joined: Arc::default(),
            zones: Arc::default(),
            walls: Arc::default(),
            connections: None,
            pools: Arc::default(),
            secret,
        }
    }

    /// Makes the pools that flows which come ask for, as far as they are not there.
    pub(crate) fn make_pools<'a>(
        &mut self,
        flows: impl Iterator<Item = &'a Flow>,
    ) -> Result<(), FlowError> {
        for new in sources(flows) {
            let pools = Arc::make_mut(&mut self.pools);
            if pools.ask(new) {
                continue;
            }
            let Some(settings) = settings(new)? else { continue };
            let number = pools.made;
            let secret = [self.secret.rotate_left(17) ^ number, self.secret ^ number << 32];
            let pool = Pool::new(settings, secret)?;
            pools.add(NatPool { spec: Arc::clone(new), pool })?;
        }
        Ok(())
    }

    /// Flows that have asked for pools are gone.
    pub(crate) fn leave_pools<'a>(&mut self, flows: impl Iterator<Item = &'a Flow>) {
        for new in sources(flows) {
            Arc::make_mut(&mut self.pools).leave(new);
        }
    }

    /// Whether there are pools that no flow asks for and that have all their ports back.
    pub(crate) fn has_idle_pools(&self) -> bool {
        self.pools.left > 0 && self.pools.all.iter().flatten().any(Place::is_idle)
    }

    pub(crate) fn drop_idle_pools(&mut self) {
        Arc::make_mut(&mut self.pools).drop_idle();
    }

    pub(crate) fn pool_of(&self, new: &NatNew) -> Option<PoolId> {
        self.pools.by_spec.get(new).copied()
    }

    pub(crate) fn pool(&self, id: PoolId) -> Option<&NatPool> {
        self.pools.get(id).map(|pool| &**pool)
    }

    /// The pool that has lent what a connection's binding says.
    pub(crate) fn pool_of_binding(&self, binding: u64) -> Option<PoolId> {
        let number = (binding >> POOL_SHIFT) as usize & MAX_NAT_POOLS;
        let id = PoolId(number.checked_sub(1)? as u16);
        self.pools.get(id).map(|_| id)
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = (PoolId, &Arc<NatPool>)> {
        let places = (0..).zip(&self.pools.all);
        places.filter_map(|(number, place)| Some((PoolId(number), &place.as_ref()?.pool)))
    }

    /// Gives back what a connection had of a pool.
    pub(crate) fn ended(&self, ended: &[Ended]) {
        let lent = || {
            let lent = ended.iter().map(|end| end.binding).filter(|binding| *binding != 0);
            lent.filter_map(|binding| Some((self.pool(self.pool_of_binding(binding)?)?, binding)))
        };
        lent().for_each(|(pool, binding)| pool.pool.prefetch(binding));
        lent().for_each(|(pool, binding)| pool.pool.give(binding));
    }
}

/// The translations of sources that flows ask for.
fn sources<'a>(flows: impl Iterator<Item = &'a Flow>) -> impl Iterator<Item = &'a Arc<NatNew>> {
    flows.flat_map(Flow::translations).filter(|new| new.end == NatEnd::Source)
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

/// The ports of blocks, if the flow does not say some: none of well-known services.
const BLOCK_PORTS: (u16, u16) = (1024, u16::MAX);

/// The most subscribers of a pool.
const MAX_SUBSCRIBERS: u128 = 1 << 20;

/// How a pool for a translation lends, if it takes one.
fn settings(new: &NatNew) -> Result<Option<PoolSettings>, FlowError> {
    let Some(addresses) = new.addresses else { return Ok(None) };
    let is_blocked = new.blocks.is_some();
    let ports = new.ports.or(is_blocked.then_some(BLOCK_PORTS));
    let usual = PoolSettings::new(addresses);
    let mut settings = PoolSettings {
        ports: ports.map(|(first, last)| first..=last),
        choice: new.choice,
        persistent: new.persistent,
        // One port for all destinations is not shared by them.
        groups: if new.endpoint_independent { 1 } else { groups_of(&addresses, usual.groups) },
        endpoint_independent: new.endpoint_independent,
        ..usual
    };
    let range = settings.ports.clone();
    if let (Some(blocks), Some(range)) = (&new.blocks, range) {
        match &blocks.subscribers {
            None => settings.block_size = Some(blocks.ports),
            Some(subscribers) => {
                let (first, count) = (subscribers.first(), count(subscribers));
                let is_right = first.is_ipv4() == addresses.first().is_ipv4();
                let count = count.filter(|count| is_right && *count <= MAX_SUBSCRIBERS);
                let subscribers = count.ok_or(FlowError::Subscribers)? as u32;
                let there = self::count(&addresses).unwrap_or(0).min(u32::MAX.into()) as u32;
                let blocks = PortBlocks::new(first, subscribers, &range, blocks.ports, there)?;
                settings.blocks = Some(blocks);
            }
        }
    }
    Ok(Some(settings))
}

/// The most memory that the ports of a pool's addresses take if all are used, as long as destinations have
/// any groups.
const MOST_MEMORY: u128 = 512 << 20;

/// Groups of destinations that may share a port: fewer where many addresses have ports enough.
fn groups_of(addresses: &IpRange, most: u32) -> u32 {
    let of_one = Pool::bytes_of_address(1) as u128 * count(addresses).unwrap_or(1);
    let mut groups = most;
    while groups > 1 && of_one * u128::from(groups) > MOST_MEMORY {
        groups /= 2;
    }
    groups
}

/// How many addresses a range has.
fn count(range: &IpRange) -> Option<u128> {
    match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            Some(u128::from(last.to_bits().checked_sub(first.to_bits())?) + 1)
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            last.to_bits().checked_sub(first.to_bits())?.checked_add(1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use pipeline::{Ct, Match, NatSpec, Number, Zone};

    use super::*;

    /// Translates to the address with this number. Of one group, its ports take little memory.
    fn translating(number: usize) -> Flow {
        let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number as u32));
        let new = NatNew {
            end: NatEnd::Source,
            addresses: Some(IpRange::new(address, address).unwrap()),
            ports: None,
            choice: None,
            persistent: false,
            endpoint_independent: true,
            blocks: None,
        };
        let nat = Some(NatSpec { new: Some(Arc::new(new)), twice: false });
        let ct = Ct { commit: true, zone: Zone::Number(Number::This(0)), nat, ..Ct::default() };
        Flow {
            vrf: VrfId::MAIN,
            table: 0,
            priority: 1,
            matches: Match::ANY,
            actions: vec![Action::Ct(Box::new(ct))],
            cookie: 0,
            idle_timeout: 0,
            hard_timeout: 0,
        }
    }

    fn pool_of(flows: &Flows, flow: &Flow) -> Option<PoolId> {
        flows.pool_of(flow.translations().next()?)
    }

    #[test]
    fn pools_are_found_by_what_they_are_for_and_are_so_many_at_most() {
        let mut flows = Flows::new(7);
        let all: Vec<Flow> = (0..=MAX_NAT_POOLS).map(translating).collect();
        let (first, last) = (&all[..1], &all[MAX_NAT_POOLS..]);
        flows.make_pools(all[..MAX_NAT_POOLS].iter()).unwrap();
        for (number, flow) in all[..MAX_NAT_POOLS].iter().enumerate() {
            let id = pool_of(&flows, flow).unwrap();
            assert_eq!(id, PoolId(number as u16));
            let pool = flows.pool(id).unwrap();
            assert_eq!(flow.translations().next(), Some(&pool.spec));
            assert_eq!(flows.pool_of_binding(id.binding(1)), Some(id));
        }
        // One that is there already is another one's too.
        flows.make_pools([translating(0)].iter().chain(first)).unwrap();
        assert_eq!(flows.make_pools(last.iter()), Err(FlowError::Pools));
        assert_eq!(pool_of(&flows, &last[0]), None);
        assert_eq!(flows.pools().count(), MAX_NAT_POOLS);
    }

    /// Lends a port; what it returns gives it back.
    fn lend(flows: &Flows, flow: &Flow) -> u64 {
        let id = pool_of(flows, flow).unwrap();
        let [source, destination] = ["192.0.2.7", "192.0.2.8"].map(|it| it.parse().unwrap());
        let addresses = types::Addresses::V4 { source, destination };
        let tuple = conntrack::Tuple::new(addresses, types::Protocol::UDP, 7, 53);
        let pool = &flows.pool(id).unwrap().pool;
        pool.lend(0, &tuple, |lease| Ok(id.binding(lease.binding))).unwrap()
    }

    #[test]
    fn a_pool_that_no_flow_asks_for_goes_with_its_last_port() {
        let mut flows = Flows::new(7);
        let (one, two) = ([translating(1)], [translating(2)]);
        flows.make_pools(one.iter().chain(&one).chain(&two)).unwrap();
        let bindings = [&one[0], &two[0]].map(|flow| lend(&flows, flow));
        // Another flow asks for it.
        flows.leave_pools(one.iter());
        flows.pool(pool_of(&flows, &one[0]).unwrap()).unwrap().pool.give(bindings[0]);
        assert!(!flows.has_idle_pools());
        // Nobody does: it stays as long as ports are lent.
        flows.leave_pools(two.iter());
        let gone = pool_of(&flows, &two[0]).unwrap();
        assert!(!flows.has_idle_pools());
        assert_eq!(flows.pool_of_binding(bindings[1]), Some(gone));
        // One that is asked for once more is the same.
        flows.make_pools(two.iter()).unwrap();
        assert_eq!(pool_of(&flows, &two[0]), Some(gone));
        flows.leave_pools(two.iter());
        flows.pool(gone).unwrap().pool.give(bindings[1]);
        assert!(flows.has_idle_pools());
        flows.drop_idle_pools();
        assert!(!flows.has_idle_pools() && flows.pool(gone).is_none());
        assert_eq!(flows.pool_of_binding(bindings[1]), None);
        assert_eq!((pool_of(&flows, &two[0]), flows.pools().count()), (None, 1));
    }

    #[test]
    fn however_many_came_and_went_there_is_room() {
        let mut flows = Flows::new(7);
        let stays = [translating(0)];
        flows.make_pools(stays.iter()).unwrap();
        let mut last = None;
        for number in 1..=2 * MAX_NAT_POOLS + 5 {
            let one = [translating(number)];
            flows.make_pools(one.iter()).unwrap();
            let id = pool_of(&flows, &one[0]);
            assert!(id != last && id != pool_of(&flows, &stays[0]));
            last = id;
            flows.leave_pools(one.iter());
            flows.drop_idle_pools();
        }
        assert_eq!(flows.pools().count(), 1);
    }

    #[test]
    fn large_pools_have_fewer_groups() {
        let range = |count: u32| {
            let [first, last] = [0, count - 1].map(|at| IpAddr::V4((0x0a00_0000 + at).into()));
            IpRange::new(first, last).unwrap()
        };
        let groups = |count| groups_of(&range(count), 16);
        assert_eq!([1, 256, 1024, 4096, 65_536].map(groups), [16, 16, 16, 4, 1]);
        for count in [1, 1000, 1024, 2000, 5000, 20_000] {
            let bytes = count as usize * Pool::bytes_of_address(groups(count));
            assert!(bytes as u128 <= MOST_MEMORY, "{count}");
        }
    }
}
