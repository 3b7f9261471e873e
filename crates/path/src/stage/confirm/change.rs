//! What a decision asks of connections: that one is made, or written.

use conntrack::nat::{Lease, NotLent};
use conntrack::{Connections, Handle, Named, New, Packet as Seen, Reference, Refused, Tuple};
use packet::{DropReason, Time};
use pipeline::NatNew;

use super::Confirming;
use crate::connection::{self, Before, Change, NewSource};

/// What became of what a decision asks of connections.
pub(super) enum Changed {
    /// It asks for nothing.
    Nothing,
    /// It is done, and concerns this packet no more.
    Made,
    /// This connection is made, and has counted the packet, which is to be decided again as it is
    /// translated, or for its other connections.
    MadeAndGoesOn(Handle),
    /// A connection's mark, label or helper is written, which has another handle since, and the packet to be
    /// decided again.
    Written(Handle),
    /// The packet is to be decided again.
    DecideAgain,
    /// The packet is dropped.
    Refused(DropReason),
}

/// Why there is no new connection.
pub(crate) enum NotMade {
    Exists,
    /// Its packets would look like those of another one.
    Taken,
    Dropped(DropReason),
}

impl From<Refused> for NotMade {
    fn from(why: Refused) -> Self {
        match why {
            Refused::Exists | Refused::NotExpected => Self::Exists,
            Refused::Full | Refused::BucketFull => Self::Dropped(DropReason::ConnectionFull),
            Refused::Limit(_) => Self::Dropped(DropReason::ConnectionLimit),
            Refused::TupleTaken => Self::Taken,
            Refused::NotNew | Refused::Tuples => Self::Dropped(DropReason::FlowUnsupported),
        }
    }
}

impl Confirming<'_, '_> {
    /// Does what a decision asks of connections.
    pub(super) fn change(
        &self,
        change: Option<&Change>,
        (packet, length): (&Seen, u32),
        connections: &Connections,
    ) -> Changed {
        let now = self.decider.now();
        match change {
            None => Changed::Nothing,
            Some(&Change::Write { handle, mark, label, helper }) => {
                match connections.set_all(handle, mark, label, helper) {
                    Some(handle) => Changed::Written(handle),
                    // Another worker has changed it meanwhile.
                    None => Changed::DecideAgain,
                }
            }
            Some(&Change::End { handle }) => {
                let mut ended = |ended: &[_]| self.decider.connection_ended(ended);
                match connections.remove(handle, now, &mut ended) {
                    true => Changed::Refused(DropReason::ConnectionRerouted),
                    // Another worker has ended it meanwhile.
                    false => Changed::DecideAgain,
                }
            }
            Some(Change::Make { new, destination, source, expected, instead_of, has_more }) => {
                if let Some(handle) = *instead_of {
                    let mut ended = |ended: &[_]| self.decider.connection_ended(ended);
                    connections.remove(handle, now, &mut ended);
                }
                let goes_on = destination.is_some()
                    || source.is_some()
                    || expected.is_some()
                    || instead_of.is_some()
                    || new.helper != 0
                    || *has_more;
                let packet = (packet, length);
                let made = match expected {
                    Some(expected) => self.make_expected(new, expected, packet, connections),
                    None => {
                        let nat = (destination.as_deref(), source.as_ref());
                        self.make(new, nat, packet, connections)
                    }
                };
                match made {
                    // What it is translated to is known now, and its helper reads this packet too.
                    Ok(handle) if goes_on => Changed::MadeAndGoesOn(handle),
                    Ok(_) => Changed::Made,
                    Err(NotMade::Exists) => Changed::DecideAgain,
                    Err(NotMade::Taken) => Changed::Refused(DropReason::ConnectionTaken),
                    Err(NotMade::Dropped(why)) => Changed::Refused(why),
                }
            }
        }
    }

    /// Makes a connection that is as is said, and translated so.
    #[inline(always)]
    pub(in crate::stage) fn commit(
        &self,
        (new, lease): (&New, &Lease),
        packet: (&Seen, u32),
        connections: &Connections,
    ) -> Result<Handle, Refused> {
        let mut ended = |ended: &[_]| self.decider.connection_ended(ended);
        connections.commit_translated(new, lease, packet, self.decider.now(), &mut ended)
    }

    /// Makes a connection whose destination and source are translated so.
    fn make(
        &self,
        new: &New,
        (destination, source): (Option<&NatNew>, Option<&NewSource>),
        (packet, length): (&Seen, u32),
        connections: &Connections,
    ) -> Result<Handle, NotMade> {
        let decider = self.decider;
        if destination.is_none() && source.is_none() {
            let mut ended = |ended: &[_]| decider.connection_ended(ended);
            let made = connections.commit(new, packet, length, decider.now(), &mut ended);
            return made.map_err(NotMade::from);
        }
        let commit = |lease: &Lease| self.commit((new, lease), (packet, length), connections);
        let pool = source.and_then(|source| decider.nat_pool(source));
        let make_way = |translated: &mut dyn Iterator<Item = Tuple>| {
            let mut ended = |ended: &[_]| decider.connection_ended(ended);
            connections.end_closed(new.zone, translated, decider.now(), &mut ended)
        };
        // With the destination translated already.
        let with_source = |to: &Tuple| {
            let Some((id, pool)) = pool else {
                let try_source = |from: &Tuple| commit(&Lease::of(*from)).map_err(NotMade::from);
                let keeps = source.is_some_and(|source| source.nat.addresses.is_none());
                let others = || {
                    let mut made = connection::other_ports(to).map(|from| try_source(&from));
                    made.find(|made| !matches!(made, Err(NotMade::Taken)))
                };
                return match try_source(to) {
                    Err(NotMade::Taken) if keeps => others()
                        .or_else(|| {
                            let all = &mut core::iter::once(*to).chain(connection::other_ports(to));
                            make_way(all).map(|from| try_source(&from))
                        })
                        .unwrap_or(Err(NotMade::Dropped(DropReason::NatExhausted))),
                    made => made,
                };
            };
            let commit =
                |lease: &Lease| commit(&Lease { binding: id.binding(lease.binding), ..*lease });
            let likely = source.and_then(|source| source.likely.as_ref());
            let lent = match likely.filter(|_| destination.is_none()) {
                Some(likely) => {
                    let again = || pool.pool.likely(new.zone, to, connections);
                    debug_assert_eq!(Some(*likely), again());
                    pool.pool.lend_likely((new.zone, likely), to, commit, make_way)
                }
                None => pool.pool.lend_making_way(new.zone, to, commit, make_way),
            };
            lent.map_err(|why| match why {
                NotLent::Refused(refused) => refused.into(),
                NotLent::Exhausted | NotLent::Block | NotLent::NoSubscriber | NotLent::Family => {
                    NotMade::Dropped(DropReason::NatExhausted)
                }
            })
        };
        let Some(destination) = destination else { return with_source(&new.original) };
        for to in connection::destinations(destination, &new.original) {
            match with_source(&to) {
                Err(NotMade::Taken) => {}
                other => return other,
            }
        }
        Err(NotMade::Dropped(DropReason::NatExhausted))
    }
}

/// Whether flows might see of a connection, once the packet has made it, what they did not see before.
/// `reads_opened` says whether they read marks and labels of connections that packets open.
#[inline(always)]
pub(super) fn is_seen_later(change: &Change, reads_opened: impl FnOnce() -> bool) -> bool {
    match change {
        Change::Make { new, instead_of, .. } => {
            let is_other = new.master.is_some() || instead_of.is_some();
            is_other || (new.mark != 0 || new.label != 0) && reads_opened()
        }
        Change::Write { .. } => true,
        Change::End { .. } => false,
    }
}

/// What flows have seen of a connection that they ask to change, if they would see something else behind it.
/// Of one that is made, its place is not known here.
#[cold]
#[inline(never)]
pub(super) fn seen_before(
    change: &Change,
    reference: &Reference,
    connections: &Connections,
    now: Time,
) -> Option<Before> {
    let found = |index: u32| connections.connection(index, now);
    match change {
        Change::Write { handle, .. } => {
            let found = found(handle.index)?;
            let (mark, label) = (found.mark, found.label);
            Some(Before { index: handle.index, state: None, mark, label })
        }
        Change::Make { new, instead_of, .. } => {
            // One that was expected has those of its master, until it is written.
            let master = new.master.and_then(found);
            let (mark, label) = master.map_or((0, 0), |master| (master.mark, master.label));
            let state = match (instead_of, reference.named()) {
                (Some(old), Named::Connection(handle, _, state)) if handle.index == old.index => {
                    Some(state)
                }
                _ => None,
            };
            let is_seen = new.mark != mark || new.label != label || state.is_some();
            is_seen.then_some(Before { index: 0, state, mark, label })
        }
        Change::End { .. } => None,
    }
}
