//! Routing tables.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use types::TableId;
use wire::{IpPrefix, VrfId};

use crate::error::TableError;
use crate::fib::Fib;
use crate::limit::MAX_ROUTES;
use crate::route::{Route, RouteKind};

/// Names a routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableRef {
    /// That of a VRF.
    Vrf(VrfId),
    /// One that no VRF has, which exists as long as it has a route.
    Number(TableId),
}

impl From<VrfId> for TableRef {
    fn from(vrf: VrfId) -> Self {
        Self::Vrf(vrf)
    }
}

/// Routes by destination, the longest prefix first. A VRF has one with its own addresses in it; one
/// without a VRF has static routes alone.
#[derive(Clone)]
pub struct RoutingTable {
    own: Arc<BTreeSet<IpAddr>>,
    own_filter: Filter,
    /// Those whose routes lead out of the VRF whose table it is.
    leaks: Arc<BTreeSet<IpPrefix>>,
    /// From which address the gateway speaks to destinations of these prefixes. They are few, and no
    /// decision asks: they would make every route larger.
    sources: Arc<BTreeMap<IpPrefix, IpAddr>>,
    v4: Fib<u32, Route>,
    v6: Fib<u128, Route>,
}

impl RoutingTable {
    /// One without routes. Clones of it share their memory until they have some.
    pub(crate) fn new() -> Self {
        Self {
            own: Arc::default(),
            own_filter: Filter::default(),
            leaks: Arc::default(),
            sources: Arc::default(),
            v4: Fib::new(),
            v6: Fib::new(),
        }
    }

    /// The route to `destination`: the longest prefix, own addresses included.
    ///
    /// IPv6 link-local destinations have none but, where there is one, the default route's or
    /// another shorter prefix's: they are on every link, so the port that a packet came by or
    /// leaves by tells what they mean ([`crate::Port::listens_to`]).
    #[inline(always)]
    pub fn route(&self, destination: IpAddr) -> Option<&Route> {
        match destination {
            IpAddr::V4(address) => self.v4.lookup(address.to_bits()),
            IpAddr::V6(address) => self.v6.lookup(address.to_bits()),
        }
    }

    /// The route of exactly this prefix. Host bits are ignored.
    pub fn route_of(&self, prefix: IpPrefix) -> Option<&Route> {
        match prefix.address() {
            IpAddr::V4(address) => self.v4.get(address.to_bits(), prefix.length()),
            IpAddr::V6(address) => self.v6.get(address.to_bits(), prefix.length()),
        }
    }

    /// Whether `address` is an address or a subnet's broadcast address of a port of the VRF whose
    /// table it is. IPv6
    /// link-local addresses and multicast groups belong to one port: [`crate::Tables::is_local`]
    /// knows them.
    #[inline]
    pub fn is_local(&self, address: IpAddr) -> bool {
        matches!(
            self.route(address),
            Some(Route { kind: RouteKind::Local | RouteKind::Broadcast, .. })
        )
    }

    /// Whether `address` may be one for which [`RoutingTable::is_local`] holds. No is certain, and quick.
    #[inline(always)]
    pub fn may_be_local(&self, address: IpAddr) -> bool {
        self.own_filter.may_have(address)
    }

    /// See [`Fib::prefetch`].
    #[inline(always)]
    pub(crate) fn prefetch(&self, destination: IpAddr, step: usize) {
        match destination {
            IpAddr::V4(address) => self.v4.prefetch(address.to_bits(), step),
            IpAddr::V6(address) => self.v6.prefetch(address.to_bits(), step),
        }
    }

    /// Asks for the memory that [`RoutingTable::may_be_local`] will read, and for what leads to the
    /// routes.
    #[inline(always)]
    pub(crate) fn prefetch_for(&self, source: IpAddr) {
        packet::prefetch(&self.own_filter.0[place(source).0]);
        match source {
            IpAddr::V4(_) => packet::prefetch(&self.v4),
            IpAddr::V6(_) => packet::prefetch(&self.v6),
        }
    }

    /// Every route, IPv4 first, in order of address, shorter prefixes first.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.v4.iter().map(|(_, _, route)| route).chain(self.v6.iter().map(|(_, _, route)| route))
    }

    /// How many routes there are.
    pub fn route_count(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Sets the route of its prefix, which has no host bits.
    pub(crate) fn set(&mut self, route: Route) -> Result<(), TableError> {
        self.check_room(route.prefix)?;
        if matches!(route.kind, RouteKind::Local | RouteKind::Broadcast) {
            Arc::make_mut(&mut self.own).insert(route.prefix.address());
            self.own_filter.note(route.prefix.address());
        }
        let length = route.prefix.length();
        match route.prefix.address() {
            IpAddr::V4(address) => self.v4.insert(address.to_bits(), length, route),
            IpAddr::V6(address) => self.v6.insert(address.to_bits(), length, route),
        };
        Ok(())
    }

    /// Refuses a route of `prefix` if there may be no more routes.
    pub(crate) fn check_room(&self, prefix: IpPrefix) -> Result<(), TableError> {
        if self.route_count() >= MAX_ROUTES && self.route_of(prefix).is_none() {
            return Err(TableError::Limit { what: "routes of a table", limit: MAX_ROUTES });
        }
        Ok(())
    }

    /// The prefixes whose routes lead out of the VRF whose table it is, in order.
    pub fn leaks(&self) -> impl Iterator<Item = IpPrefix> {
        self.leaks.iter().copied()
    }

    /// Whether there is one of [`RoutingTable::leaks`].
    pub(crate) fn has_leaks(&self) -> bool {
        !self.leaks.is_empty()
    }

    /// Says whether the route of a prefix leads out of the VRF.
    pub(crate) fn note_leak(&mut self, prefix: IpPrefix, leaks: bool) {
        if self.leaks.contains(&prefix) != leaks {
            let all = Arc::make_mut(&mut self.leaks);
            _ = if leaks { all.insert(prefix) } else { all.remove(&prefix) };
        }
    }

    /// From which address the route to a destination says that the gateway speaks to it.
    pub fn source_to(&self, destination: IpAddr) -> Option<IpAddr> {
        if self.sources.is_empty() {
            return None;
        }
        self.source_of(self.route(destination)?.prefix)
    }

    /// The same of the route of exactly this prefix.
    pub fn source_of(&self, prefix: IpPrefix) -> Option<IpAddr> {
        self.sources.get(&prefix).copied()
    }

    /// Says from which address the gateway speaks to destinations of a prefix.
    pub(crate) fn set_source(&mut self, prefix: IpPrefix, source: Option<IpAddr>) {
        if self.source_of(prefix) != source {
            let all = Arc::make_mut(&mut self.sources);
            _ = match source {
                Some(source) => all.insert(prefix, source),
                None => all.remove(&prefix),
            };
        }
    }

    pub(crate) fn remove(&mut self, prefix: IpPrefix) -> Option<Route> {
        self.set_source(prefix, None);
        self.note_leak(prefix, false);
        let removed = match prefix.address() {
            IpAddr::V4(address) => self.v4.remove(address.to_bits(), prefix.length()),
            IpAddr::V6(address) => self.v6.remove(address.to_bits(), prefix.length()),
        };
        if let Some(Route { kind: RouteKind::Local | RouteKind::Broadcast, prefix }) = removed {
            Arc::make_mut(&mut self.own).remove(&prefix.address());
            self.own_filter = Filter::default();
            self.own.iter().for_each(|own| self.own_filter.note(*own));
        }
        removed
    }
}

/// One bit for the hash of each of a VRF's own and broadcast addresses. It settles nearly every
/// packet's source in one read.
#[derive(Clone, Default)]
struct Filter([u64; FILTER]);

/// Words of the filter.
const FILTER: usize = 16;

impl Filter {
    fn note(&mut self, address: IpAddr) {
        let (word, bit) = place(address);
        self.0[word] |= 1 << bit;
    }

    #[inline(always)]
    fn may_have(&self, address: IpAddr) -> bool {
        let (word, bit) = place(address);
        self.0[word] >> bit & 1 == 1
    }
}

/// Where an address stands in the filter: by a multiplicative hash (Knuth). A sender who aims at it
/// wins one lookup in the FIB.
#[inline(always)]
fn place(address: IpAddr) -> (usize, u32) {
    let number = match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits >> 64) as u64 ^ (bits as u64).rotate_left(32)
        }
    };
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - (FILTER * 64).ilog2());
    (hash as usize / 64 % FILTER, (hash % 64) as u32)
}

/// Every route.
impl fmt::Debug for RoutingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.routes()).finish()
    }
}
