//! Connections that make way for others where a pool has no port left.

use types::Protocol;

use super::pool::{Lease, NotLent, PRESENT, Pool, SHARED_PORT, kind};
use crate::sync::Ordering;
use crate::table::Refused;
use crate::tuple::Tuple;

/// Makes a connection with what is lent.
pub(super) type Attempt<'a, T> = &'a mut dyn FnMut(&Lease) -> Result<T, Refused>;

/// Ends a connection whose packets have become one of these. Returns which, if there was one.
pub(super) type MakeWay<'a> = &'a mut dyn FnMut(&mut dyn Iterator<Item = Tuple>) -> Option<Tuple>;

/// Connections that are looked for, of which one may be closed.
const CLOSED: u32 = 32;

impl Pool {
    /// What the packet may become by this pool, or another one to the same destination has become: some of
    /// all, other ones each time that none is left. None where no connection is ever closed, and where a
    /// port is of a mapping, which other connections may have as well.
    pub fn sources_of(&self, zone: u16, tuple: &Tuple) -> impl Iterator<Item = Tuple> {
        let may_close = matches!(tuple.protocol, Protocol::TCP | Protocol::SCTP);
        let may_come = may_close && !self.settings.endpoint_independent;
        let place = may_come.then(|| self.foreseen(zone, tuple).ok()).flatten();
        place.into_iter().flat_map(move |(start, range, count)| {
            let ports = u32::from(*range.end()) - u32::from(*range.start()) + 1;
            let refused = [&self.exhausted, &self.block_full];
            let salt: u64 = refused.iter().map(|count| count.load(Ordering::Relaxed)).sum();
            let first = u32::from(self.some_port(tuple, &range, salt as u32) - range.start());
            (0..CLOSED.min(ports.saturating_mul(count))).filter_map(move |more| {
                let port = range.start() + ((first + more / count) % ports) as u16;
                tuple.with_source(self.address(self.behind(start, more % count))?, port)
            })
        })
    }

    /// Lends the source that a connection had which has made way: its port, or with others where they
    /// share it.
    pub(super) fn lend_this<T>(
        &self,
        zone: u16,
        (tuple, translated): (&Tuple, Tuple),
        attempt: Attempt<'_, T>,
    ) -> Result<T, NotLent> {
        let address = self.number(translated.addresses.source()).ok_or(NotLent::Family)?;
        let map = self.map(kind(tuple.protocol), address.into(), self.group(tuple));
        let ports = self.ports.get(map).ok_or(NotLent::Exhausted)?;
        let port = translated.source;
        self.within_block(zone, tuple, |_| {
            let is_own = ports.take(port);
            if !is_own && (self.settings.groups == 1 || self.has_blocks()) {
                return Err(self.none_left(tuple));
            }
            let shared = if is_own { 0 } else { SHARED_PORT };
            let binding = PRESENT | shared | (map as u64) << 16 | u64::from(port);
            attempt(&Lease { translated, binding, hash: None }).map_err(|why| {
                if is_own {
                    ports.give(port);
                }
                match why {
                    Refused::TupleTaken => self.none_left(tuple),
                    why => NotLent::Refused(why),
                }
            })
        })
    }
}
