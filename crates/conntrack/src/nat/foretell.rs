//! What a pool would lend.

use std::net::IpAddr;

use super::pool::{Choice, Lease, NotLent, Pool, inside, kind};
use crate::table::Refused;
use crate::tuple::Tuple;

impl Pool {
    /// What a packet would become if [`Pool::lend`] were asked now, and were told of each tuple that
    /// another connection has. Nothing is lent, and nothing counted. `given_back` is what packets became
    /// of a connection that ends before, whose source and port are free then. `is_closed` says which
    /// tuples are those of connections that would make way.
    ///
    /// # Errors
    /// There is no free source.
    pub fn would_lend(
        &self,
        zone: u16,
        tuple: &Tuple,
        given_back: Option<&Tuple>,
        is_taken: impl Fn(&Tuple) -> bool,
        is_closed: impl Fn(&Tuple) -> bool,
    ) -> Result<Tuple, NotLent> {
        let lent = self.would_lend_free(zone, tuple, given_back, is_taken);
        match lent {
            // It gets what comes back.
            Err(NotLent::Exhausted | NotLent::Block) => {
                self.sources_of(zone, tuple).find(is_closed).map_or(lent, Ok)
            }
            lent => lent,
        }
    }

    fn would_lend_free(
        &self,
        zone: u16,
        tuple: &Tuple,
        given_back: Option<&Tuple>,
        is_taken: impl Fn(&Tuple) -> bool,
    ) -> Result<Tuple, NotLent> {
        if self.first.is_ipv6() != tuple.addresses.is_v6() {
            return Err(NotLent::Family);
        }
        let place = self.foreseen(zone, tuple)?;
        if self.settings.endpoint_independent && tuple.has_ports() {
            let translated = self.would_map(zone, tuple, place);
            return translated.filter(|it| !is_taken(it)).ok_or_else(|| self.none_left(tuple));
        }
        if let Some(kept) = given_back.and_then(|source| self.kept(tuple, source, &place))
            && !is_taken(&kept)
        {
            return Ok(kept);
        }
        let mut found = None;
        let result =
            self.lend_source((zone, tuple), place, false, &mut noting(&mut found, is_taken));
        found.ok_or_else(|| result.err().unwrap_or_else(|| self.none_left(tuple)))
    }

    /// The same of [`Pool::lend_at`].
    ///
    /// # Errors
    /// As [`Pool::lend_at`].
    pub fn would_lend_at(
        &self,
        zone: u16,
        address: IpAddr,
        tuple: &Tuple,
        is_taken: impl Fn(&Tuple) -> bool,
    ) -> Result<Tuple, NotLent> {
        let number = self.number(address).ok_or(NotLent::Family)?;
        let (at, range, _) = self.foreseen(zone, tuple)?;
        if self.has_blocks() && tuple.has_ports() && at != u32::from(number) {
            return Err(NotLent::Block);
        }
        let mut found = None;
        let ports = (&range, false);
        self.at_address(number.into(), (zone, tuple), ports, &mut noting(&mut found, is_taken));
        found.ok_or_else(|| self.none_left(tuple))
    }

    /// The places where a source may have its port, or would.
    pub(super) fn foreseen(&self, zone: u16, tuple: &Tuple) -> Result<Choice, NotLent> {
        let Some(dynamic) = self.dynamic.as_ref().filter(|_| tuple.has_ports()) else {
            return self.choice(tuple);
        };
        let foreseen = dynamic.foresee(zone, tuple.addresses.source());
        let (address, range) = foreseen.ok_or(NotLent::Exhausted)?;
        Ok((address, range, 1))
    }

    /// What a packet becomes that gets the source of another one, as it keeps its own port with the address
    /// that is tried first.
    fn kept(&self, tuple: &Tuple, of: &Tuple, (address, range, _): &Choice) -> Option<Tuple> {
        let source = of.addresses.source();
        let is_first = self.address(*address) == Some(source) && of.source == tuple.source;
        let keeps = is_first && tuple.has_ports() && self.may_keep(tuple, range);
        keeps.then(|| tuple.with_source(source, tuple.source)).flatten()
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

/// An attempt that makes no connection and notes the tuple of the first that could be made. It fails
/// then for another reason than that, so that the port goes back.
fn noting(
    found: &mut Option<Tuple>,
    is_taken: impl Fn(&Tuple) -> bool,
) -> impl FnMut(&Lease) -> Result<(), Refused> {
    move |lease| {
        if is_taken(&lease.translated) {
            return Err(Refused::TupleTaken);
        }
        *found = Some(lease.translated);
        Err(Refused::Full)
    }
}
