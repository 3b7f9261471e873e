//! A pool of addresses and ports.

use core::net::IpAddr;
use core::ops::RangeInclusive;

use packet::KeyHasher;
use thiserror::Error;
use types::{Addresses, IpRange, Protocol};

use super::blocks::PortBlocks;
use super::dynamic::{BlockEvent, DynamicBlocks, MOST_BLOCKS};
use super::making_way::{Attempt, MakeWay};
use super::mappings::{Inside, Mappings, Outside};
use super::ports::Ports;
use crate::limits::Keyed;
use crate::refused::{RefusedOnes, RefusedSince};
use crate::sync::{AtomicU64, Ordering, allocate_zeroed, store};
use crate::table::Refused;
use crate::tuple::{Role, Tuple};
use std::hash::BuildHasher;

/// How a port is chosen, where it is not to be the packet's own (enum ovs_nat_attr of Linux's
/// openvswitch.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortChoice {
    /// By a keyed hash of addresses, ports and protocol: a connection that comes again gets the port
    /// that it had, if that is free (RFC 6056 section 3.3.3).
    Hash,
    /// At random each time.
    Random,
}

/// How a pool lends.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// The addresses, at most 65,536.
    pub addresses: IpRange,
    /// The ports. `None` keeps a port in its class, as Linux does: below 512, below 1,024, above.
    pub ports: Option<RangeInclusive<u16>>,
    /// Groups of destinations, a power of two up to 256. Destinations of different groups may share
    /// a port; each takes 8 KiB for each address and protocol.
    pub groups: u32,
    /// How the port is chosen. `None` keeps the source's own if that is free, and takes a random one
    /// otherwise.
    pub choice: Option<PortChoice>,
    /// Whether a source has one address for all its destinations.
    pub persistent: bool,
    /// Whether a source's address and port are mapped alike for all destinations (RFC 4787). Needs
    /// one group.
    pub endpoint_independent: bool,
    /// Port blocks by subscriber. Needs ports.
    pub blocks: Option<PortBlocks>,
    /// Blocks of so many ports that are assigned to sources when they need one. Needs ports.
    pub block_size: Option<u16>,
}

impl PoolSettings {
    /// Addresses whose ports are kept where that can be, shared by sixteen groups of destinations.
    pub fn new(addresses: IpRange) -> Self {
        Self {
            addresses,
            ports: None,
            groups: 16,
            choice: None,
            persistent: false,
            endpoint_independent: false,
            blocks: None,
            block_size: None,
        }
    }
}

/// Why a pool was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadPool {
    /// Too many addresses.
    #[error("the pool has more than 65,536 addresses")]
    Addresses,
    /// No power of two, or too large.
    #[error("{0} groups of destinations: a power of two up to 256 is right")]
    Groups(u32),
    /// Endpoint-independent mappings with several groups.
    #[error("endpoint-independent mapping needs one group of destinations, not {0}")]
    Shared(u32),
    /// A range without ports.
    #[error("the range of ports is empty")]
    Ports,
    /// Blocks without a range.
    #[error("port blocks need a range of ports")]
    Blocks,
    /// Blocks larger than the range, of no ports, too many, or of both kinds.
    #[error(
        "blocks of {0} ports: a pool has 1 to {MOST_BLOCKS} of them, each within the range of ports"
    )]
    BlockSize(u16),
    /// The system has not so much memory.
    #[error("no memory for the ports of the pool")]
    Memory,
}

/// Why no port was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotLent {
    /// All are in use.
    #[error("the NAT pool is exhausted")]
    Exhausted,
    /// All of the source's block are in use.
    #[error("the source's port block is exhausted")]
    Block,
    /// The source has no block.
    #[error("the source is no subscriber of the pool")]
    NoSubscriber,
    /// The pool has addresses of the other family.
    #[error("the pool has no address of the packet's family")]
    Family,
    /// The connection was refused for another reason than its tuple.
    #[error("{0}")]
    Refused(Refused),
}

/// What a pool has lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The packet's tuple with the new source.
    pub translated: Tuple,
    /// To be kept with the connection and given back when that has ended. Bits 48 to 60 are the caller's,
    /// to say which pool it is of. 0 if there is nothing to give back.
    pub binding: u64,
    /// [`crate::Connections::hash_of`] that tuple, if it is known.
    pub hash: Option<u64>,
}

impl Lease {
    /// A tuple that nobody has lent.
    pub const fn of(translated: Tuple) -> Self {
        Self { translated, binding: 0, hash: None }
    }
}

/// What a pool has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Ports that were lent.
    pub lent: u64,
    /// Ports that were given back.
    pub returned: u64,
    /// Connections that got none, as the pool has none left.
    pub exhausted: u64,
    /// Connections that got none, as their source's block has none left.
    pub block_full: u64,
    /// Connections that got none, as their source is no subscriber.
    pub no_subscriber: u64,
}

/// A pool. Its ports are bits, so none is searched for one by one.
pub struct Pool {
    pub(super) settings: PoolSettings,
    pub(super) first: IpAddr,
    addresses: u32,
    pub(super) ports: Box<[Ports]>,
    /// For each of `ports`, the last destination for which no shared port was found, an odd number, or is
    /// being looked for, an even one.
    in_vain: Box<[AtomicU64]>,
    pub(super) mappings: Mappings,
    pub(super) dynamic: Option<DynamicBlocks>,
    keyed: Keyed,
    hasher: KeyHasher,
    pub(super) lent: AtomicU64,
    returned: AtomicU64,
    pub(super) exhausted: AtomicU64,
    pub(super) block_full: AtomicU64,
    no_subscriber: AtomicU64,
    full_blocks: RefusedSince<(u16, IpAddr)>,
}

/// The address to begin with, the ports, and how many addresses to try.
pub(super) type Choice = (u32, RangeInclusive<u16>, u32);

/// TCP, UDP, and everything else with ports or identifiers.
const KINDS: u32 = 3;

/// Addresses that are tried for a connection.
const ADDRESSES: u32 = 64;
/// Free ports that are tried at one address: another connection may have the tuple nevertheless.
const FREE: u32 = 16;
/// Ports in use that are tried at one address, for a destination that does not use them.
const SHARED: u32 = 128;

/// Bits of a binding.
pub(super) const PRESENT: u64 = 1 << 63;
const MAPPED: u64 = 1 << 62;
pub(super) const SHARED_PORT: u64 = 1 << 61;

impl Pool {
    /// A pool, with a secret that nobody outside knows. It takes memory as its ports are used first.
    ///
    /// # Errors
    /// The settings contradict each other, or there is not so much memory.
    pub fn new(settings: PoolSettings, secret: [u64; 2]) -> Result<Self, BadPool> {
        let (first, last) = (settings.addresses.first(), settings.addresses.last());
        let count = match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => (last.to_bits() - first.to_bits()).into(),
            (IpAddr::V6(first), IpAddr::V6(last)) => last.to_bits() - first.to_bits(),
            _ => u128::MAX,
        };
        let addresses = match u32::try_from(count) {
            Ok(count) if count < 65_536 => count + 1,
            _ => return Err(BadPool::Addresses),
        };
        let groups = settings.groups;
        if !groups.is_power_of_two() || groups > 256 {
            return Err(BadPool::Groups(groups));
        }
        if settings.endpoint_independent && groups != 1 {
            return Err(BadPool::Shared(groups));
        }
        if settings.ports.as_ref().is_some_and(RangeInclusive::is_empty) {
            return Err(BadPool::Ports);
        }
        let is_blocked = settings.blocks.is_some() || settings.block_size.is_some();
        if is_blocked && settings.ports.is_none() {
            return Err(BadPool::Blocks);
        }
        let maps = u64::from(addresses) * u64::from(KINDS * groups);
        let maps = usize::try_from(maps).map_err(|_| BadPool::Memory)?;
        let ports = allocate_zeroed(maps).ok_or(BadPool::Memory)?;
        let in_vain = allocate_zeroed(maps).ok_or(BadPool::Memory)?;
        let keyed = Keyed(secret);
        let mappings = Mappings::new(keyed);
        let dynamic = match (settings.block_size, &settings.ports) {
            (Some(size), Some(range)) => {
                let blocks = DynamicBlocks::new(range, size, addresses, keyed);
                let is_right = size > 0 && usize::from(size) <= range.len();
                let blocks = blocks.filter(|_| is_right && settings.blocks.is_none());
                Some(blocks.ok_or(BadPool::BlockSize(size))?)
            }
            _ => None,
        };
        let zero = || AtomicU64::new(0);
        Ok(Self {
            settings,
            first,
            addresses,
            ports,
            in_vain,
            mappings,
            dynamic,
            keyed,
            hasher: KeyHasher::new(secret),
            lent: zero(),
            returned: zero(),
            exhausted: zero(),
            block_full: zero(),
            no_subscriber: zero(),
            full_blocks: RefusedSince::new(),
        })
    }

    /// The memory that an address's ports take, once they are used for destinations of all groups.
    pub const fn bytes_of_address(groups: u32) -> usize {
        (KINDS * groups) as usize * (size_of::<Ports>() + size_of::<u64>())
    }

    /// What the pool has done.
    pub fn counts(&self) -> PoolCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PoolCounts {
            lent: load(&self.lent),
            returned: load(&self.returned),
            exhausted: load(&self.exhausted),
            block_full: load(&self.block_full),
            no_subscriber: load(&self.no_subscriber),
        }
    }

    /// Whose blocks had no port left since this was last asked, by zone and source.
    pub fn take_full_blocks(&self) -> RefusedOnes<(u16, IpAddr)> {
        self.full_blocks.take()
    }

    /// Lends a source for a packet whose destination is translated already. `attempt` makes the
    /// connection; if it says that the tuple is taken, another source is tried, and so a bounded
    /// number of times.
    ///
    /// # Errors
    /// There is no free source, or `attempt` fails for another reason.
    pub fn lend<T>(
        &self,
        zone: u16,
        tuple: &Tuple,
        attempt: impl FnMut(&Lease) -> Result<T, Refused>,
    ) -> Result<T, NotLent> {
        self.lend_making_way(zone, tuple, attempt, |_| None)
    }

    /// As [`Pool::lend`]. If no source is left, `make_way` is asked to end a connection whose packets have
    /// become one of these, and says which; that one is tried then.
    ///
    /// # Errors
    /// As [`Pool::lend`].
    pub fn lend_making_way<T>(
        &self,
        zone: u16,
        tuple: &Tuple,
        mut attempt: impl FnMut(&Lease) -> Result<T, Refused>,
        mut make_way: impl FnMut(&mut dyn Iterator<Item = Tuple>) -> Option<Tuple>,
    ) -> Result<T, NotLent> {
        self.lend_any(zone, tuple, false, (&mut attempt, &mut make_way))
    }

    /// As [`Pool::lend`]. `holds_own` says that the packet's own port at the first address is the caller's,
    /// and that its tuple turned out to be taken.
    #[inline(never)]
    pub(super) fn lend_any<T>(
        &self,
        zone: u16,
        tuple: &Tuple,
        holds_own: bool,
        (attempt, make_way): (Attempt<'_, T>, MakeWay<'_>),
    ) -> Result<T, NotLent> {
        let mut result = self.lend_once(zone, tuple, holds_own, attempt);
        let is_out = matches!(result, Err(NotLent::Exhausted | NotLent::Block));
        if is_out && let Some(translated) = make_way(&mut self.sources_of(zone, tuple)) {
            result = self.lend_this(zone, (tuple, translated), attempt);
        }
        self.count(zone, tuple, &result);
        result
    }

    fn lend_once<T>(
        &self,
        zone: u16,
        tuple: &Tuple,
        holds_own: bool,
        attempt: Attempt<'_, T>,
    ) -> Result<T, NotLent> {
        match (self.first, tuple.addresses.is_v6()) {
            (IpAddr::V4(_), true) | (IpAddr::V6(_), false) => Err(NotLent::Family),
            _ => self.within_block(zone, tuple, |place| {
                match self.settings.endpoint_independent && tuple.has_ports() {
                    true => self.lend_mapping(zone, tuple, place, attempt),
                    false => self.lend_source((zone, tuple), place, holds_own, attempt),
                }
            }),
        }
    }

    /// As [`Pool::lend`], at this address alone: what belongs to another connection leaves by the
    /// address of that.
    ///
    /// # Errors
    /// As [`Pool::lend`].
    pub fn lend_at<T>(
        &self,
        zone: u16,
        address: IpAddr,
        tuple: &Tuple,
        mut attempt: impl FnMut(&Lease) -> Result<T, Refused>,
    ) -> Result<T, NotLent> {
        let number = self.number(address).ok_or(NotLent::Family)?;
        let result = self.within_block(zone, tuple, |(at, range, _)| {
            // A block is one of one address.
            if self.has_blocks() && tuple.has_ports() && at != u32::from(number) {
                return Err(NotLent::Block);
            }
            let result =
                self.at_address(number.into(), (zone, tuple), (&range, false), &mut attempt);
            result.ok_or(self.none_left(tuple))?.map_err(NotLent::Refused)
        });
        self.count(zone, tuple, &result);
        result
    }

    fn count<T>(&self, zone: u16, tuple: &Tuple, result: &Result<T, NotLent>) {
        let counter = match result {
            // An address alone is not given back.
            Ok(_) if !tuple.has_ports() => return,
            Ok(_) => &self.lent,
            Err(NotLent::Refused(_)) => return,
            Err(NotLent::Exhausted | NotLent::Family) => &self.exhausted,
            Err(NotLent::NoSubscriber) => &self.no_subscriber,
            Err(NotLent::Block) => {
                self.full_blocks.note((zone, tuple.addresses.source()));
                &self.block_full
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Why there is no port at the places where a source may have one.
    pub(super) fn none_left(&self, tuple: &Tuple) -> NotLent {
        match self.has_blocks() && tuple.has_ports() {
            true => NotLent::Block,
            false => NotLent::Exhausted,
        }
    }

    /// Whether nothing is lent, and nothing that has happened to blocks waits to be asked for.
    pub fn is_idle(&self) -> bool {
        let PoolCounts { lent, returned, .. } = self.counts();
        lent == returned && self.dynamic.as_ref().is_none_or(DynamicBlocks::is_idle)
    }

    /// The ports that a source has, or may have.
    pub fn ports_of(&self, zone: u16, tuple: &Tuple) -> Option<RangeInclusive<u16>> {
        if let Some(dynamic) = self.dynamic.as_ref().filter(|_| tuple.has_ports()) {
            return dynamic.of(zone, tuple.addresses.source());
        }
        self.choice(tuple).ok().map(|(_, range, _)| range)
    }

    /// What has happened to blocks that are assigned since this was last asked, with the addresses
    /// that they are of, and how much of it was lost.
    pub fn take_block_events(&self) -> (Vec<(IpAddr, BlockEvent)>, u64) {
        let Some(dynamic) = &self.dynamic else { return (Vec::new(), 0) };
        let (events, lost) = dynamic.take_events();
        let of = |event: BlockEvent| Some((self.address(event.address)?, event));
        (events.into_iter().filter_map(of).collect(), lost)
    }

    /// The blocks that are assigned, `most` of them, each as if it was released now; and how many more
    /// there are.
    pub fn assigned_blocks(&self, most: usize) -> (Vec<(IpAddr, BlockEvent)>, usize) {
        let Some(dynamic) = &self.dynamic else { return (Vec::new(), 0) };
        let (blocks, more) = dynamic.assigned(most);
        let of = |event: BlockEvent| Some((self.address(event.address)?, event));
        (blocks.into_iter().filter_map(of).collect(), more)
    }

    /// Tries to lend at the places where the source may have its port: within its block if it is to
    /// have one. A block of which nothing is lent in the end is given back.
    pub(super) fn within_block<T>(
        &self,
        zone: u16,
        tuple: &Tuple,
        lend: impl FnOnce(Choice) -> Result<T, NotLent>,
    ) -> Result<T, NotLent> {
        let Some(dynamic) = self.dynamic.as_ref().filter(|_| tuple.has_ports()) else {
            return lend(self.choice(tuple)?);
        };
        let taken = dynamic.take(zone, tuple.addresses.source());
        let (address, range) = taken.ok_or(NotLent::Exhausted)?;
        let first = *range.start();
        let result = lend((address, range, 1));
        if result.is_err() {
            dynamic.give(address, first);
        }
        result
    }

    pub(super) fn lend_source<T>(
        &self,
        (zone, tuple): (u16, &Tuple),
        (start, range, count): Choice,
        holds_own: bool,
        attempt: &mut dyn FnMut(&Lease) -> Result<T, Refused>,
    ) -> Result<T, NotLent> {
        for more in 0..count {
            let (address, ports) = (self.behind(start, more), (&range, holds_own && more == 0));
            if let Some(result) = self.at_address(address, (zone, tuple), ports, attempt) {
                return result.map_err(NotLent::Refused);
            }
        }
        Err(self.none_left(tuple))
    }

    /// The address to begin with, the ports, and how many addresses to try.
    pub(super) fn choice(&self, tuple: &Tuple) -> Result<Choice, NotLent> {
        if let Some(blocks) = &self.settings.blocks {
            let taken = blocks.of(tuple.addresses.source());
            let (address, range) = taken.ok_or(NotLent::NoSubscriber)?;
            return Ok((address, range, 1));
        }
        Ok((self.start(tuple), self.range(tuple), self.addresses.min(ADDRESSES)))
    }

    /// The address to begin with, if there are no blocks.
    #[inline(always)]
    pub(super) fn start(&self, tuple: &Tuple) -> u32 {
        let hash = match self.settings.persistent {
            _ if self.addresses == 1 => return 0,
            true => self.hash_of(tuple, [u64::MAX, 0], 0),
            false => self.hash_of(tuple, [u64::MAX; 2], 0),
        };
        (((hash >> 32) * u64::from(self.addresses)) >> 32) as u32
    }

    /// The address so many behind another one, fewer than there are.
    pub(super) fn behind(&self, start: u32, more: u32) -> u32 {
        let address = start + more;
        address.checked_sub(self.addresses).unwrap_or(address)
    }

    pub(super) fn has_blocks(&self) -> bool {
        self.settings.blocks.is_some() || self.dynamic.is_some()
    }

    /// Whether a source keeps its port if it can. If nobody has said which ports there are, it keeps
    /// any, and its class is for those that must change.
    #[inline(always)]
    pub(super) fn may_keep(&self, tuple: &Tuple, range: &RangeInclusive<u16>) -> bool {
        let is_own = self.settings.choice.is_none();
        is_own && (self.settings.ports.is_none() || range.contains(&tuple.source))
    }

    pub(super) fn range(&self, tuple: &Tuple) -> RangeInclusive<u16> {
        match (&self.settings.ports, tuple.role, tuple.source) {
            (_, Role::Query | Role::Answer, _) => 0..=u16::MAX,
            (Some(range), ..) => range.clone(),
            (None, _, 0..512) => 1..=511,
            (None, _, 512..1024) => 600..=1023,
            (None, ..) => 1024..=u16::MAX,
        }
    }

    /// Tries ports of one address. `None` if there is none. If `holds_own`, the caller holds the packet's
    /// own and has tried it.
    pub(super) fn at_address<T>(
        &self,
        address: u32,
        (zone, tuple): (u16, &Tuple),
        (range, holds_own): (&RangeInclusive<u16>, bool),
        attempt: &mut dyn FnMut(&Lease) -> Result<T, Refused>,
    ) -> Option<Result<T, Refused>> {
        let ip = self.address(address)?;
        let mut attempt = |port: u16, binding: u64| {
            let translated = tuple.with_source(ip, port)?;
            match attempt(&Lease { translated, binding, hash: None }) {
                Err(Refused::TupleTaken) => None,
                result => Some(result),
            }
        };
        if !tuple.has_ports() {
            return attempt(tuple.source, 0);
        }
        let group = self.group(tuple);
        let map = self.map(kind(tuple.protocol), address, group);
        let ports = self.ports.get(map)?;
        let binding = |port: u16| PRESENT | (map as u64) << 16 | u64::from(port);
        // Ports whose tuple turned out to be taken. They are kept until the end, so that they are
        // not tried again.
        let mut held = [tuple.source; FREE as usize];
        let mut count = usize::from(holds_own);
        let mut result = None;
        let mut keeps = !holds_own && self.may_keep(tuple, range);
        let is_shared = self.settings.groups > 1 && !self.has_blocks();
        while count < held.len() {
            let is_own = core::mem::take(&mut keeps);
            let port = if is_own && ports.take(tuple.source) {
                Some(tuple.source)
            } else {
                // Its own port, in use by another destination of the group.
                if is_own && is_shared {
                    result = attempt(tuple.source, SHARED_PORT | binding(tuple.source));
                    if result.is_some() {
                        break;
                    }
                }
                ports.take_any(range, self.some_port(tuple, range, count as u32))
            };
            let Some(port) = port else { break };
            result = attempt(port, binding(port));
            if matches!(result, Some(Ok(_))) {
                break;
            }
            held[count] = port;
            count += 1;
            if result.is_some() {
                break;
            }
        }
        for port in held.into_iter().take(count) {
            ports.give(port);
        }
        if result.is_some() || !is_shared {
            return result;
        }
        self.at_shared_port(map, (zone, tuple), range, &mut attempt)
    }

    /// All ports are in use by destinations of the group; this one does perhaps not use all. After
    /// it was tried in vain, it is not tried for this destination until a port of the group comes
    /// back.
    fn at_shared_port<T>(
        &self,
        map: usize,
        (zone, tuple): (u16, &Tuple),
        range: &RangeInclusive<u16>,
        attempt: &mut impl FnMut(u16, u64) -> Option<Result<T, Refused>>,
    ) -> Option<Result<T, Refused>> {
        let destination = self.keyed.hash_one((zone, tuple.destination_end())) | 1;
        let in_vain = &self.in_vain[map];
        if in_vain.load(Ordering::Relaxed) == destination {
            return None;
        }
        // Who returns a port while it is looked for writes over this.
        let searched = destination & !1 | 2;
        in_vain.store(searched, Ordering::Relaxed);
        let count = u32::from(*range.end()) - u32::from(*range.start()) + 1;
        let start = u32::from(self.some_port(tuple, range, FREE) - range.start());
        // Steps that come by all ports, one after the other where they are few.
        let first = (u64::from(count) * 5 / 8) as u32 | 1;
        let step = (first..).find(|step| gcd(*step, count) == 1).unwrap_or(1);
        let found = (0..SHARED.min(count)).find_map(|more| {
            let at = (u64::from(start) + u64::from(more) * u64::from(step)) % u64::from(count);
            let port = range.start() + at as u16;
            attempt(port, PRESENT | SHARED_PORT | (map as u64) << 16 | u64::from(port))
        });
        if found.is_none() {
            let (was, order) = (searched, Ordering::Relaxed);
            _ = in_vain.compare_exchange(was, destination, order, order);
        }
        found
    }

    fn lend_mapping<T>(
        &self,
        zone: u16,
        tuple: &Tuple,
        place: Choice,
        attempt: &mut dyn FnMut(&Lease) -> Result<T, Refused>,
    ) -> Result<T, NotLent> {
        let inside = inside(zone, tuple);
        let outside = self.mappings.take(inside, || self.take_outside(tuple, place));
        let outside = outside.ok_or(self.none_left(tuple))?;
        let translated = self.behind_mapping(tuple, outside).ok_or(NotLent::Family)?;
        let (_, address, port) = outside;
        let map = self.map(kind(tuple.protocol), address.into(), 0);
        let binding = PRESENT | MAPPED | (map as u64) << 16 | u64::from(port);
        let result = attempt(&Lease { translated, binding, hash: None });
        if result.is_err() {
            self.unmap(outside);
        }
        result.map_err(|why| match why {
            Refused::TupleTaken => self.none_left(tuple),
            why => NotLent::Refused(why),
        })
    }

    /// Takes a port for a mapping, that of the source if possible.
    pub(super) fn take_outside(
        &self,
        tuple: &Tuple,
        (start, range, count): Choice,
    ) -> Option<Outside> {
        let kind = kind(tuple.protocol);
        (0..count).find_map(|more| {
            let address = self.behind(start, more);
            let ports = self.ports.get(self.map(kind, address, 0))?;
            let keeps = self.may_keep(tuple, &range);
            let port = match keeps && ports.take(tuple.source) {
                true => tuple.source,
                false => ports.take_any(&range, self.some_port(tuple, &range, 0))?,
            };
            Some((kind as u8, address as u16, port))
        })
    }

    pub(super) fn behind_mapping(
        &self,
        tuple: &Tuple,
        (_, address, port): Outside,
    ) -> Option<Tuple> {
        tuple.with_source(self.address(address.into())?, port)
    }

    /// Who is behind an outside address and port, if mappings are endpoint-independent: packets of
    /// anybody may be sent there (RFC 4787 section 5, endpoint-independent filtering).
    pub fn inside(
        &self,
        protocol: Protocol,
        address: IpAddr,
        port: u16,
    ) -> Option<(u16, IpAddr, u16)> {
        let number = self.number(address)?;
        let outside = (kind(protocol) as u8, number, port);
        let (zone, _, inside, port) = self.mappings.inside(outside)?;
        Some((zone, inside, port))
    }

    /// Asks for the memory that [`Pool::give`] will write to.
    pub fn prefetch(&self, binding: u64) {
        if let Some(ports) = self.ports.get((binding >> 16) as u32 as usize) {
            ports.prefetch(binding as u16);
        }
    }

    /// Takes back what was lent, when the connection has ended.
    pub fn give(&self, binding: u64) {
        if binding & PRESENT == 0 {
            return;
        }
        let (map, port) = ((binding >> 16) as u32 as usize, binding as u16);
        let Some(ports) = self.ports.get(map) else { return };
        self.returned.fetch_add(1, Ordering::Relaxed);
        store(&self.in_vain[map], 0, Ordering::Relaxed);
        let (kind, address) = (map as u32 % KINDS, map as u32 / (KINDS * self.settings.groups));
        if binding & MAPPED != 0 {
            self.unmap((kind as u8, address as u16, port));
        } else if binding & SHARED_PORT == 0 {
            ports.give(port);
        }
        // The port first: whoever gets the block has all of its ports.
        if let Some(dynamic) = &self.dynamic {
            dynamic.give(address, port);
        }
    }

    fn unmap(&self, outside: (u8, u16, u16)) {
        let (kind, address, port) = outside;
        if self.mappings.give(outside)
            && let Some(ports) = self.ports.get(self.map(kind.into(), address.into(), 0))
        {
            ports.give(port);
        }
    }

    pub(super) fn map(&self, kind: u32, address: u32, group: u32) -> usize {
        ((address * KINDS + kind) * self.settings.groups + group) as usize
    }

    #[inline(always)]
    pub(super) fn group(&self, tuple: &Tuple) -> u32 {
        let port = if tuple.role == Role::None { tuple.destination } else { 0 };
        let hash = self.hash_of(tuple, [0, u64::MAX], 1 << 16 | u64::from(port));
        hash as u32 & (self.settings.groups - 1)
    }

    /// A keyed hash of these bits of a packet's addresses, and of whatever else.
    #[inline(always)]
    fn hash_of(&self, tuple: &Tuple, [source, destination]: [u64; 2], more: u64) -> u64 {
        let [a, b, c, d] = tuple.address_words();
        match tuple.addresses {
            Addresses::V4 { .. } => {
                let bits = source << 32 | u64::from(destination as u32);
                self.hasher.hash(&[a & bits, more])
            }
            Addresses::V6 { .. } => {
                self.hasher.hash(&[a & source, b & source, c & destination, d & destination, more])
            }
        }
    }

    /// A port of the range that nobody outside can foretell (RFC 6056). By a hash it is the same one
    /// for the same tuple and salt, as long as there is the pool.
    pub(super) fn some_port(&self, tuple: &Tuple, range: &RangeInclusive<u16>, salt: u32) -> u16 {
        let count = u64::from(*range.end()) - u64::from(*range.start()) + 1;
        let lent = match self.settings.choice {
            Some(PortChoice::Hash) => 0,
            Some(PortChoice::Random) | None => self.lent.load(Ordering::Relaxed),
        };
        range.start() + (self.keyed.hash_one((tuple, salt, lent)) % count) as u16
    }

    pub(super) fn address(&self, number: u32) -> Option<IpAddr> {
        Some(match self.first {
            IpAddr::V4(first) => IpAddr::V4(first.to_bits().checked_add(number)?.into()),
            IpAddr::V6(first) => IpAddr::V6(first.to_bits().checked_add(number.into())?.into()),
        })
    }

    pub(super) fn number(&self, address: IpAddr) -> Option<u16> {
        let number = match (address, self.first) {
            (IpAddr::V4(address), IpAddr::V4(first)) => {
                address.to_bits().checked_sub(first.to_bits())?.into()
            }
            (IpAddr::V6(address), IpAddr::V6(first)) => {
                address.to_bits().checked_sub(first.to_bits())?
            }
            _ => return None,
        };
        u16::try_from(number).ok().filter(|number| u32::from(*number) < self.addresses)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The end that a mapping is of.
pub(super) fn inside(zone: u16, tuple: &Tuple) -> Inside {
    (zone, kind(tuple.protocol) as u8, tuple.addresses.source(), tuple.source)
}

pub(super) fn kind(protocol: Protocol) -> u32 {
    match protocol {
        Protocol::TCP => 0,
        Protocol::UDP => 1,
        _ => 2,
    }
}
