//! Who is on a link, and at which Ethernet address.

use std::collections::HashMap;
use std::net::IpAddr;

use wire::Mac;

/// The most neighbours a port keeps.
pub const MAX_NEIGHBOURS: usize = 65_536;

/// The resolved neighbours of one port. Their ages and states are the control thread's business; what is here may be used.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    entries: HashMap<IpAddr, Mac>,
}

impl Neighbours {
    /// The Ethernet address of `address`.
    #[inline]
    pub fn lookup(&self, address: IpAddr) -> Option<Mac> {
        self.entries.get(&address).copied()
    }
}
