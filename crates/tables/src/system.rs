//! Addresses that the system's own stack has beside the gateway.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::snapshot::Tables;

/// Which addresses the stack of the system has that the gateway runs on. Of one that both have,
/// nobody but the system knows who listens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemAddresses {
    /// These.
    Known(BTreeSet<IpAddr>),
    /// It could not be found out: it may have any.
    Unknown,
}

/// None. So it is in replays and tests, where no packet reaches the system.
impl Default for SystemAddresses {
    fn default() -> Self {
        Self::Known(BTreeSet::new())
    }
}

/// What is delivered is asked about for each packet, and not decided, so that no change has to be
/// noted.
impl Tables {
    /// Whether the system's own stack has this address, or may have it.
    pub fn is_systems(&self, address: IpAddr) -> bool {
        match &*self.system_addresses {
            SystemAddresses::Known(addresses) => addresses.contains(&address),
            SystemAddresses::Unknown => true,
        }
    }

    /// Says which addresses the system's own stack has. Returns whether these are others than before.
    pub fn set_system_addresses(&mut self, addresses: SystemAddresses) -> bool {
        let is_other = *self.system_addresses != addresses;
        if is_other {
            self.system_addresses = Arc::new(addresses);
        }
        is_other
    }
}
