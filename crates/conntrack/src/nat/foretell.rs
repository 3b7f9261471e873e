//! Whether a pool would lend.

use super::dynamic::Foreseen;
use super::pool::{Choice, Lease, NotLent, Pool, has_ports, inside, kind};
use crate::table::Refused;
use crate::tuple::Tuple;

impl Pool {
    /// Whether [`Pool::lend`] would find a source for a packet now, if it is told of each that another
    /// connection has. Nothing is lent, and nothing counted.
    ///
    /// # Errors
    /// There is no free source.
    pub fn would_lend(
        &self,
        zone: u16,
        tuple: &Tuple,
        is_taken: impl Fn(&Tuple) -> bool,
    ) -> Result<(), NotLent> {
        if self.first.is_ipv6() != tuple.addresses.is_v6() {
            return Err(NotLent::Family);
        }
        let place = match self.dynamic.as_ref().filter(|_| has_ports(tuple)) {
            None => self.choice(tuple)?,
            Some(dynamic) => match dynamic.foresee(zone, tuple.addresses.source()) {
                Foreseen::Has(address, range) => (address, range, 1),
                Foreseen::Gets => return Ok(()),
                Foreseen::Nothing => return Err(NotLent::Exhausted),
            },
        };
        if self.settings.endpoint_independent && has_ports(tuple) {
            return match self.would_map(zone, tuple, place) {
                Some(translated) if !is_taken(&translated) => Ok(()),
                _ => Err(self.none_left(tuple)),
            };
        }
        let mut attempt = |lease: &Lease| match is_taken(&lease.translated) {
            true => Err(Refused::TupleTaken),
            // As if it could not be made for another reason: the port goes back.
            false => Err::<(), _>(Refused::Full),
        };
        match self.lend_source(tuple, place, false, &mut attempt) {
            Err(NotLent::Refused(_)) | Ok(()) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// What a packet becomes by its mapping, or would by the one that it would get.
    fn would_map(&self, zone: u16, tuple: &Tuple, place: Choice) -> Option<Tuple> {
        let outside = self.mappings.outside(inside(zone, tuple)).or_else(|| {
            let outside = self.take_outside(tuple, place)?;
            let (_, address, port) = outside;
            self.ports.get(self.map(kind(tuple.protocol), address.into(), 0))?.give(port);
            Some(outside)
        })?;
        self.behind_mapping(tuple, outside)
    }
}
