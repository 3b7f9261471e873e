//! Routing tables.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use types::TableId;
use wire::{IpPrefix, VrfId};

use crate::error::TableError;
use crate::fib::{self, Fib};
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
#[repr(C)]
pub struct RoutingTable {
    // What packets are decided by, see `Vrf`.
    own_bits: FewBits,
    v4: Fib<u32, Route>,
    pub(crate) v6: Fib<u128, Route>,
    /// Where there are too many for the few bits.
    own_filter: Option<Filter>,
    own: Arc<BTreeSet<IpAddr>>,
    /// Those whose routes lead out of the VRF whose table it is.
    leaks: Arc<BTreeSet<IpPrefix>>,
    /// From which address the gateway speaks to destinations of these prefixes. They are few, and no
    /// decision asks: they would make every route larger.
    sources: Arc<BTreeMap<IpPrefix, IpAddr>>,
}

impl RoutingTable {
    /// One without routes. Clones of it share their memory until they have some.
    pub(crate) fn new() -> Self {
        Self {
            own_bits: FewBits::default(),
            v4: Fib::new(),
            v6: Fib::new(),
            own_filter: None,
            own: Arc::default(),
            leaks: Arc::default(),
            sources: Arc::default(),
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
        let hash = hash(address);
        self.own_bits.may_have(hash)
            && self.own_filter.as_ref().is_none_or(|filter| filter.may_have(hash))
    }

    /// The routes of each family.
    pub(crate) fn fibs(&self) -> (&Fib<u32, Route>, &Fib<u128, Route>) {
        (&self.v4, &self.v6)
    }

    /// See [`fib::prefetch`].
    #[inline(always)]
    pub(crate) fn prefetch<'t>(lookups: impl Iterator<Item = (&'t Self, IpAddr)> + Clone) {
        fib::prefetch(lookups.clone().filter_map(|(table, destination)| match destination {
            IpAddr::V4(address) => Some((&table.v4, address.to_bits())),
            IpAddr::V6(_) => None,
        }));
        fib::prefetch(lookups.filter_map(|(table, destination)| match destination {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some((&table.v6, address.to_bits())),
        }));
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
        if self.route_of(route.prefix) == Some(&route) {
            return Ok(());
        }
        self.check_room(route.prefix)?;
        if matches!(route.kind, RouteKind::Local | RouteKind::Broadcast) {
            Arc::make_mut(&mut self.own).insert(route.prefix.address());
            self.own_bits.note(hash(route.prefix.address()));
            match &mut self.own_filter {
                Some(filter) if self.own.len() <= filter.most() => {
                    filter.note(hash(route.prefix.address()));
                }
                None if self.own.len() <= FewBits::MOST => {}
                filter => *filter = Some(Filter::of(&self.own)),
            }
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
            self.own_bits = FewBits::default();
            self.own.iter().for_each(|own| self.own_bits.note(hash(*own)));
            self.own_filter = (self.own.len() > FewBits::MOST).then(|| Filter::of(&self.own));
        }
        removed
    }
}

/// One bit for the hash of each of a VRF's own and broadcast addresses. Where they are few, it settles
/// nearly every packet's source, and stands beside what is read of the VRF anyway.
#[derive(Clone, Copy, Default)]
struct FewBits(u64);

impl FewBits {
    /// More addresses have a [`Filter`] besides.
    const MOST: usize = 64 / BITS;

    fn note(&mut self, hash: u64) {
        self.0 |= 1 << (hash >> (64 - 6));
    }

    #[inline(always)]
    fn may_have(self, hash: u64) -> bool {
        self.0 >> (hash >> (64 - 6)) & 1 == 1
    }
}

/// The same with [`BITS`] bits for each address at least, as of a VRF with thousands of VLANs.
#[derive(Clone)]
struct Filter(Arc<[u64]>);

/// Bits for each address, one of which is set.
const BITS: usize = 16;

impl Filter {
    fn of(own: &BTreeSet<IpAddr>) -> Self {
        let words = (own.len() * BITS).div_ceil(64).next_power_of_two();
        let mut filter = Self((0..words).map(|_| 0).collect());
        own.iter().for_each(|own| filter.note(hash(*own)));
        filter
    }

    /// How many addresses it has room for.
    fn most(&self) -> usize {
        self.0.len() * 64 / BITS
    }

    fn note(&mut self, hash: u64) {
        let (word, bit) = self.place(hash);
        Arc::make_mut(&mut self.0)[word] |= 1 << bit;
    }

    #[inline(always)]
    fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        self.0.get(word).is_none_or(|word| word >> bit & 1 == 1)
    }

    /// By the highest bits of a hash. The number of words is a power of two.
    #[inline(always)]
    fn place(&self, hash: u64) -> (usize, u32) {
        let place = hash >> (64 - 6 - self.0.len().trailing_zeros());
        ((place / 64) as usize, (place % 64) as u32)
    }
}

/// A multiplicative hash (Knuth), of which the highest bits are the best. A sender who aims at it
/// wins one lookup in the FIB.
#[inline(always)]
fn hash(address: IpAddr) -> u64 {
    let number = match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits >> 64) as u64 ^ (bits as u64).rotate_left(32)
        }
    };
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Every route.
impl fmt::Debug for RoutingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.routes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn own_addresses_are_told_from_others_however_many_there_are() {
        let address = |number: u32| IpAddr::from(Ipv4Addr::from_bits(10 << 24 | number << 2 | 1));
        let mut table = RoutingTable::new();
        let mut own = 0;
        for count in [0, 1, 4, 5, 100, 8000, 5, 4, 0] {
            for number in own..count {
                let prefix = IpPrefix::host(address(number));
                table.set(Route { prefix, kind: RouteKind::Local }).unwrap();
            }
            for number in count..own {
                table.remove(IpPrefix::host(address(number))).unwrap();
            }
            own = count;
            assert!((0..own).all(|number| table.may_be_local(address(number))));
            let others =
                (0..10_000).map(|number: u32| IpAddr::from(Ipv4Addr::from_bits(number * 977)));
            let taken = others.filter(|other| table.may_be_local(*other)).count();
            assert!(taken < 1000, "{own}: {taken} of 10,000");
        }
    }
}
