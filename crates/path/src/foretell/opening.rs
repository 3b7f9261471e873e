//! The connection that a packet would open, and what the packet would become by it.

use conntrack::nat::NotLent;
use conntrack::{Connections, Expectation, Named, New, Refused, Tuple};
use packet::{DropReason, Time};
use pipeline::NatNew;

use super::Foretelling;
use crate::connection::{self, Change, Imagined, NewSource};
use crate::decide::trace::{Step, Trace};
use crate::decision::Decision;
use crate::stage::helper::ports_of_expected;

/// A connection that is not there yet, and that the packet opens.
#[derive(Clone, Copy, Debug)]
pub struct Opened<'a> {
    /// Its zone.
    pub zone: u16,
    /// What its packets look like, as they come.
    pub original: Tuple,
    /// How its destination is translated.
    pub destination: Option<&'a NatNew>,
    /// How its source is.
    pub source: Option<&'a NatNew>,
    /// Whether it was expected, and is translated as that says.
    pub is_expected: bool,
    /// Whether the packet is decided again once the connection is there: what it becomes is known
    /// then, or it opens or changes more of them in other zones.
    pub is_decided_again: bool,
    /// What its packets become, if they are translated. A port that is chosen at random may be another
    /// one by the time that the packet comes.
    pub translated: Option<Tuple>,
    /// Whether a closed connection ends for it, as its pool has no other port.
    pub ends_closed: bool,
    /// Why it is refused, so that the packet is dropped: the table is full, or a limit reached.
    pub refused: Option<Refused>,
    /// Why its source gets no port, the same.
    pub not_lent: Option<NotLent>,
}

/// What opening a connection has become.
pub(super) enum Opening {
    /// Nothing that the decision does not know.
    Nothing,
    /// It is refused.
    Refused(DropReason),
    /// The packet is decided again with this.
    Again(Imagined),
}

/// Why a connection cannot be made as is asked for.
enum NotMade {
    /// Its tuple is another one's.
    Taken,
    NotLent(NotLent),
}

impl<T: Trace> Foretelling<'_, '_, T> {
    /// The connection that the packet opens. Tells the verdict too, if the packet is not decided again.
    pub(super) fn opens(
        &mut self,
        change: Option<&Change>,
        decision: &Decision,
        now: Time,
    ) -> Opening {
        let tables = self.tables;
        let Some(Change::Make { new, destination, source, expected, instead_of, has_more }) =
            change
        else {
            self.tell_verdict(decision);
            return Opening::Nothing;
        };
        let Some(connections) = tables.connections() else {
            self.tell_verdict(decision);
            return Opening::Nothing;
        };
        // Either ends for the packet: this one before it gets its source, and one that has closed and is
        // opened anew once the packet has it.
        let ended = instead_of.or(match decision.reference().named() {
            Named::Renewed(handle, ..) => Some(handle),
            _ => None,
        });
        let refused = match instead_of {
            None => connections.would_refuse(new, now),
            Some(_) => None,
        };
        let is_taken = |tuple: &Tuple| {
            let found = connections.lookup(new.zone, &tuple.reversed(), now);
            found.is_some_and(|(found, _)| ended.is_none_or(|ended| ended.index != found.index))
        };
        let made = match expected {
            Some(expected) => self.as_expected(new, expected, connections, (&is_taken, now)),
            None => {
                let ended = instead_of.and_then(|old| connections.connection(old.index, now));
                let given_back = ended.map(|ended| ended.reply.reversed());
                let nat = (destination.as_deref(), source.as_ref());
                let is_closed = |tuple: &Tuple| connections.closed(new.zone, tuple, now).is_some();
                self.as_asked(new, nat, given_back.as_ref(), (&is_taken, &is_closed))
            }
        };
        let translated = made.as_ref().ok().copied();
        // What a decision assumes before the connection is there.
        let assumed = match destination {
            Some(nat) => connection::destinations(nat, &new.original).next(),
            None => Some(new.original),
        };
        let is_decided_again = source.is_some()
            || expected.is_some()
            || *has_more
            || instead_of.is_some() && destination.is_some()
            || translated.is_some() && translated != assumed;
        let not_lent = match made {
            Err(NotMade::NotLent(why)) if refused.is_none() => Some(why),
            _ => None,
        };
        let translated = translated.filter(|tuple| *tuple != new.original && refused.is_none());
        let ends_closed = translated.is_some_and(|tuple| {
            let closed = connections.closed(new.zone, &tuple, now);
            closed.is_some_and(|closed| ended.is_none_or(|ended| ended.index != closed.index))
        });
        let opened = Opened {
            zone: new.zone,
            original: new.original,
            destination: destination.as_deref(),
            source: source.as_ref().map(|source| &*source.nat),
            is_expected: expected.is_some(),
            is_decided_again,
            translated,
            ends_closed,
            refused,
            not_lent,
        };
        let opening = match (refused, made) {
            (Some(Refused::Limit(_)), _) => Opening::Refused(DropReason::ConnectionLimit),
            (Some(_), _) => Opening::Refused(DropReason::ConnectionFull),
            (None, Err(NotMade::NotLent(_))) => Opening::Refused(DropReason::NatExhausted),
            (None, Err(NotMade::Taken)) => Opening::Refused(DropReason::ConnectionTaken),
            (None, Ok(_)) if !is_decided_again => Opening::Nothing,
            (None, Ok(translated)) => {
                let (zone, original) = (new.zone, new.original);
                Opening::Again(Imagined { zone, original, translated })
            }
        };
        if matches!(opening, Opening::Nothing) {
            self.tell_verdict(decision);
        }
        self.trace.step(|| Step::Opens(opened));
        opening
    }

    /// What a packet becomes whose destination and source are translated so; as confirm makes it.
    /// `given_back` is what packets became of the connection that ends for it.
    fn as_asked(
        &self,
        new: &New,
        (destination, source): (Option<&NatNew>, Option<&NewSource>),
        given_back: Option<&Tuple>,
        (is_taken, is_closed): (&impl Fn(&Tuple) -> bool, &impl Fn(&Tuple) -> bool),
    ) -> Result<Tuple, NotMade> {
        // One that is not translated is not there, as it would have been found.
        if destination.is_none() && source.is_none() {
            return Ok(new.original);
        }
        let free = |tuple: &Tuple| !is_taken(tuple);
        let pool = source.and_then(|source| self.tables.nat_pool(source.pool?));
        let exhausted = NotMade::NotLent(NotLent::Exhausted);
        let with_source = |to: &Tuple| match pool {
            Some(pool) => {
                let lent = pool.pool.would_lend(new.zone, to, given_back, is_taken, is_closed);
                lent.map_err(NotMade::NotLent)
            }
            None if free(to) => Ok(*to),
            None if source.is_some_and(|source| source.nat.addresses.is_none()) => {
                let other = connection::other_ports(to).find(free);
                let other = other.or_else(|| connection::other_ports(to).find(is_closed));
                other.ok_or(NotMade::NotLent(NotLent::Exhausted))
            }
            None => Err(NotMade::Taken),
        };
        let Some(destination) = destination else { return with_source(&new.original) };
        let made = connection::destinations(destination, &new.original).map(|to| with_source(&to));
        let mut made = made.filter(|made| !matches!(made, Err(NotMade::Taken)));
        made.next().unwrap_or(Err(exhausted))
    }

    /// The same of one that was announced.
    fn as_expected(
        &self,
        new: &New,
        expected: &Expectation,
        connections: &Connections,
        (is_taken, now): (&impl Fn(&Tuple) -> bool, Time),
    ) -> Result<Tuple, NotMade> {
        let exhausted = || NotMade::NotLent(NotLent::Exhausted);
        let to = match expected.translated {
            None => Some(new.original),
            Some((address, port)) => new.original.with_destination(address, port),
        };
        let to = to.ok_or_else(exhausted)?;
        let Some(source) = expected.translated_source else {
            return if is_taken(&to) { Err(NotMade::Taken) } else { Ok(to) };
        };
        let master = connections.connection(expected.master.index, now);
        let pool = master.and_then(|master| self.tables.nat_pool_of_binding(master.binding));
        if let Some(pool) = pool.and_then(|id| self.tables.nat_pool(id)) {
            match pool.pool.would_lend_at(new.zone, source, &to, is_taken) {
                Ok(translated) => return Ok(translated),
                // It is none of the pool's addresses.
                Err(NotLent::Family) => {}
                Err(why) => return Err(NotMade::NotLent(why)),
            }
        }
        let tuples = ports_of_expected(to.source).map_while(|port| to.with_source(source, port));
        tuples.into_iter().find(|tuple| !is_taken(tuple)).ok_or_else(exhausted)
    }
}
