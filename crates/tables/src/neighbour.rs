//! Who is on a link, and at which Ethernet address.

use core::fmt;
use std::net::IpAddr;

use wire::Mac;

use crate::map::{Map, MapKey};

/// The most neighbours a port keeps.
pub const MAX_NEIGHBOURS: usize = 65_536;

/// The resolved neighbours of one port. Their ages and states are the control thread's business;
/// what is here may be used.
#[derive(Clone)]
pub struct Neighbours {
    entries: Map<IpAddr, Mac>,
}

impl Neighbours {
    pub(crate) fn new(secret: u64) -> Self {
        Self { entries: Map::new(secret) }
    }

    /// The Ethernet address of `address`.
    #[inline(always)]
    pub fn lookup(&self, address: IpAddr) -> Option<Mac> {
        self.entries.get(&address).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every neighbour, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, Mac)> {
        self.entries.iter().copied()
    }

    pub(crate) fn set(&mut self, address: IpAddr, mac: Mac) {
        self.entries.insert(address, mac);
    }

    pub(crate) fn remove(&mut self, address: IpAddr) -> Option<Mac> {
        self.entries.remove(&address)
    }
}

/// In order of address.
impl fmt::Debug for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut entries: Vec<_> = self.iter().collect();
        entries.sort_unstable();
        f.debug_map().entries(entries).finish()
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
