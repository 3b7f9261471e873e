//! The stations on a link and their Ethernet addresses.

use core::fmt;
use std::net::IpAddr;

use wire::Mac;

use crate::map::{Map, MapKey};
use crate::next_hop::NextHopId;

/// The most neighbours a port keeps.
pub const MAX_NEIGHBOURS: usize = 65_536;

/// The neighbours of one port: those that are known, and those that a route leads to. Each has a
/// next hop. The control thread keeps their ages and states; an address that is here may be used.
#[derive(Clone)]
pub struct Neighbours {
    entries: Map<IpAddr, Neighbour>,
    /// How many of them have an Ethernet address.
    known: usize,
}

/// One neighbour: its address is known, or a route leads to it, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) next_hop: NextHopId,
    /// Its Ethernet address, if it is known.
    pub(crate) mac: Option<Mac>,
    /// How many routes lead to it.
    pub(crate) routes: u32,
}

impl Neighbours {
    pub(crate) fn new(secret: u64) -> Self {
        Self { entries: Map::new(secret), known: 0 }
    }

    /// The Ethernet address of `address`.
    #[inline(always)]
    pub fn lookup(&self, address: IpAddr) -> Option<Mac> {
        self.entries.get(&address)?.mac
    }

    /// The next hop of `address`, if it is known or a route leads to it.
    #[inline(always)]
    pub fn next_hop(&self, address: IpAddr) -> Option<NextHopId> {
        self.entries.get(&address).map(|neighbour| neighbour.next_hop)
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.known
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every one that is known, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, Mac)> {
        self.all().filter_map(|(address, neighbour)| Some((*address, neighbour.mac?)))
    }

    /// Every one, known or not, in no useful order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &(IpAddr, Neighbour)> {
        self.entries.iter()
    }

    pub(crate) fn get(&self, address: IpAddr) -> Option<&Neighbour> {
        self.entries.get(&address)
    }

    pub(crate) fn set(&mut self, address: IpAddr, neighbour: Neighbour) {
        self.known += usize::from(neighbour.mac.is_some());
        let old = self.entries.insert(address, neighbour);
        self.known -= usize::from(old.is_some_and(|old| old.mac.is_some()));
    }

    pub(crate) fn remove(&mut self, address: IpAddr) {
        let old = self.entries.remove(&address);
        self.known -= usize::from(old.is_some_and(|old| old.mac.is_some()));
    }
}

/// In order of address.
impl fmt::Debug for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut entries: Vec<_> = self.all().collect();
        entries.sort_unstable_by_key(|(address, _)| *address);
        f.debug_map().entries(entries.into_iter().map(|entry| (&entry.0, &entry.1))).finish()
    }
}

impl MapKey for IpAddr {
    type Words = [u64; 2];

    #[inline(always)]
    fn to_words(&self) -> [u64; 2] {
        let bits = match self {
            Self::V4(address) => address.to_ipv6_mapped().to_bits(),
            Self::V6(address) => address.to_bits(),
        };
        [(bits >> 64) as u64, bits as u64]
    }
}
