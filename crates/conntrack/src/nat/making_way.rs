//! Connections that make way for others where a pool has no port left.

use super::pool::{Lease, Pool, has_ports};
use crate::sync::Ordering;
use crate::table::Refused;
use crate::tuple::Tuple;

/// Makes a connection with what is lent.
pub(super) type Attempt<'a, T> = &'a mut dyn FnMut(&Lease) -> Result<T, Refused>;

/// Ends a connection whose packets have become one of these. Returns whether there was one.
pub(super) type MakeWay<'a> = &'a mut dyn FnMut(&mut dyn Iterator<Item = Tuple>) -> bool;

/// Connections that are looked for, of which one may be closed.
const CLOSED: u32 = 32;

impl Pool {
    /// What the packet may become by this pool, or another one to the same destination has become: some of
    /// all, other ones each time that none is left.
    pub fn sources_of(&self, zone: u16, tuple: &Tuple) -> impl Iterator<Item = Tuple> {
        let place = self.foreseen(zone, tuple).ok().filter(|_| has_ports(tuple));
        place.into_iter().flat_map(move |(start, range, count)| {
            let ports = u32::from(*range.end()) - u32::from(*range.start()) + 1;
            let salt = self.exhausted.load(Ordering::Relaxed) as u32;
            let first = u32::from(self.some_port(tuple, &range, salt) - range.start());
            (0..CLOSED.min(ports.saturating_mul(count))).filter_map(move |more| {
                let port = range.start() + ((first + more / count) % ports) as u16;
                tuple.with_source(self.address(self.behind(start, more % count))?, port)
            })
        })
    }
}
