//! The source that a packet gets mostly, which is known before it is lent: its own port at an address that
//! follows from its ends.

use super::pool::{Lease, NotLent, PRESENT, Pool, kind};
use crate::sync::Ordering;
use crate::table::{Connections, Refused};
use crate::tuple::Tuple;

/// Where a pool has the port that a packet keeps if that is free. It is of this pool, and of a packet with
/// this tuple in this zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Likely {
    /// The number of the address.
    address: u32,
    /// Which of the pool's [`Pool::ports`].
    map: u32,
    /// [`Connections::hash_of`] what the packet becomes.
    hash: u64,
}

impl Likely {
    fn translated(&self, pool: &Pool, tuple: &Tuple) -> Option<Tuple> {
        tuple.with_source(pool.address(self.address)?, tuple.source)
    }
}

impl Pool {
    /// The source that a packet gets if its port is free there. `None` where that is not known without
    /// looking.
    pub fn likely(&self, zone: u16, tuple: &Tuple, connections: &Connections) -> Option<Likely> {
        let settings = &self.settings;
        if self.has_blocks() || settings.endpoint_independent || !tuple.has_ports() {
            return None;
        }
        if !self.may_keep(tuple, &self.range(tuple)) {
            return None;
        }
        let address = self.start(tuple);
        let map = self.map(kind(tuple.protocol), address, self.group(tuple)) as u32;
        let likely = Likely { address, map, hash: 0 };
        let translated = likely.translated(self, tuple)?;
        Some(Likely { hash: connections.hash_of(zone, &translated), ..likely })
    }

    /// Asks for the memory that is written to when a packet gets its likely source.
    pub fn prefetch_likely(&self, likely: &Likely, tuple: &Tuple, connections: &Connections) {
        if let Some(ports) = self.ports.get(likely.map as usize) {
            ports.prefetch(tuple.source);
        }
        connections.prefetch_hash(likely.hash);
    }

    /// As [`Pool::lend`], where the packet's likely source is known.
    ///
    /// # Errors
    /// As [`Pool::lend`].
    #[inline]
    pub fn lend_likely<T>(
        &self,
        (zone, likely): (u16, &Likely),
        tuple: &Tuple,
        mut attempt: impl FnMut(&Lease) -> Result<T, Refused>,
        mut make_way: impl FnMut(&mut dyn Iterator<Item = Tuple>) -> Option<Tuple>,
    ) -> Result<T, NotLent> {
        let ports = self.ports.get(likely.map as usize);
        let (Some(ports), Some(translated)) = (ports, likely.translated(self, tuple)) else {
            return self.lend_any(zone, tuple, false, (&mut attempt, &mut make_way));
        };
        if !ports.take(tuple.source) {
            return self.lend_any(zone, tuple, false, (&mut attempt, &mut make_way));
        }
        let binding = PRESENT | u64::from(likely.map) << 16 | u64::from(tuple.source);
        match attempt(&Lease { translated, binding, hash: Some(likely.hash) }) {
            // The port is given back there.
            Err(Refused::TupleTaken) => {
                self.lend_any(zone, tuple, true, (&mut attempt, &mut make_way))
            }
            Err(why) => {
                ports.give(tuple.source);
                Err(NotLent::Refused(why))
            }
            Ok(made) => {
                self.lent.fetch_add(1, Ordering::Relaxed);
                Ok(made)
            }
        }
    }
}
