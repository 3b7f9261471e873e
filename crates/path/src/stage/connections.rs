//! Connections: every decision that was made for a connection is held against it, in the order of the
//! packets, whether it was found in the cache or made a moment ago.
//!
//! If the decision is right, the connection is updated. If not, the packet is decided again. What a
//! decision asks of connections is done here too, so that the next packet finds it.

use arrayvec::ArrayVec;
use conntrack::nat::NotLent;
use conntrack::{
    Connections, Direction, Handle, Hit, Named, New, Packet as Seen, Reference, Refused, Tracked,
    Tuple,
};
use packet::{DropReason, Time};
use pipeline::NatNew;
use wire::Protocol;
use wire::common::Facts;

use crate::batch::{FOREIGN, Packets, Record};
use crate::cache::lookup::{Family, V4, V6};
use crate::cache::{Cache, key};
use crate::connection::{self, Before, Change, NewSource};
use crate::decide::{Decider, Looked};
use crate::decision::{Decision, Verdict};
use crate::extension::{Asked, Copied, Extension, Extensions, Further, MOST_CONNECTIONS};
use crate::pairs::Pairs;
use crate::stage::helper::{self, Helped};
use crate::statistics::WorkerStatistics;

/// A packet is decided again so often at most: others may change its connection meanwhile, but not for
/// ever. Each of its connections may be replaced and made.
pub(crate) const TRIES: usize = 2 * MOST_CONNECTIONS + 2;

/// What is needed to hold decisions against connections.
pub(crate) struct Confirming<'a, 't> {
    pub cache: &'a mut Cache,
    pub decider: Decider<'t>,
    pub extensions: &'a mut Extensions,
    pub statistics: &'a WorkerStatistics,
}

/// Holds the decisions of a batch against their connections.
pub(crate) fn confirm(
    batch: &mut Packets,
    connections: &Connections,
    confirming: &mut Confirming<'_, '_>,
) {
    let count = batch.len();
    for (record, asked) in batch.records[..count].iter().zip(&confirming.extensions.asked[..]) {
        connections.prefetch(record.decision.reference());
        if record.decision.is_passing() {
            foresee(asked, confirming.decider, connections);
        }
    }
    if !confirming.extensions.pairs.is_empty() {
        prefetch_seconds(batch, connections, &confirming.extensions.pairs);
    }
    let (mut at, now) = (0, confirming.decider.now());
    while at < count {
        let (done, counted) = updated(batch, at, connections, (&confirming.extensions.pairs, now));
        at += done;
        if at < count {
            confirming.confirm(batch, at, connections, counted);
            confirming.name_translating(batch, at);
            at += 1;
        }
    }
}

/// Asks for the memory of second connections.
#[inline(never)]
fn prefetch_seconds(batch: &Packets, connections: &Connections, pairs: &Pairs) {
    let records = || batch.records[..batch.len()].iter().zip(0..);
    let paired = || records().filter(|(record, _)| record.decision.is_paired());
    for (record, at) in paired() {
        match record.facts.is(Facts::V6) {
            false => pairs.prefetch(&record.key, &record.decision),
            true => pairs.prefetch(&batch.v6[at], &record.decision),
        }
    }
    for (record, at) in paired() {
        if let Some(second) = second_of((record, &batch.v6[..], at), pairs) {
            connections.prefetch(second);
        }
    }
}

/// Asks for the memory in which the source of a new connection will be translated.
#[inline(never)]
fn foresee(asked: &Asked, decider: Decider<'_>, connections: &Connections) {
    if let Some(Change::Make { new, source: Some(source), destination: None, .. }) = &asked.change
        && let Some((_, pool)) = decider.nat_pool(source)
        && let Some(translated) = pool.pool.foresee(&new.original)
    {
        let hash = connections.hash_of(new.zone, &translated.reversed());
        connections.prefetch_hash(hash);
    }
}

/// Updates the connections of packets from a position on, up to the first whose decision is wrong or
/// asks for more. Returns how many packets these are, and the place of the connection that has counted
/// that one nevertheless.
#[inline(never)]
fn updated(
    batch: &mut Packets,
    from: usize,
    connections: &Connections,
    (pairs, now): (&Pairs, Time),
) -> (usize, Option<u32>) {
    let count = batch.len();
    let Packets { packets, records, v6, .. } = batch;
    let rows = records[from..count].iter_mut().zip(&packets[from..]).zip(from..);
    let mut done = 0;
    for ((record, packet), at) in rows {
        let decision = &record.decision;
        if decision.wants_more() {
            if !decision.wants_second() {
                break;
            }
            match updated_both((record, &v6[..], at), packet.bytes(), connections, (pairs, now)) {
                Ok(by) => record.decision = by,
                Err(counted) => return (done, counted),
            }
            done += 1;
            continue;
        }
        let reference = decision.reference();
        if reference != Reference::NONE {
            if !reference.is_connection() {
                break;
            }
            let facts = record.facts;
            let read = sums(record, &v6[..], at);
            let bytes = packet.bytes();
            let usual = connection::hit_usual(connections, reference, bytes, facts, read, now);
            let hit = usual.unwrap_or_else(|| {
                let seen = connection::read_words(bytes, facts, read.0, read.1);
                connections.hit(reference, &seen, facts.total_length().into(), now)
            });
            if hit == Hit::Stale {
                break;
            }
        }
        done += 1;
    }
    (done, None)
}

/// The second connection of a packet's decision.
#[inline(always)]
fn second_of(
    (record, v6, at): (&Record, &[[u64; key::V6]], usize),
    pairs: &Pairs,
) -> Option<Reference> {
    match record.facts.is(Facts::V6) {
        false => pairs.find(&record.key, &record.decision),
        true => pairs.find(&v6[at], &record.decision),
    }
}

/// Updates both connections of a packet, none if its decision is wrong. Returns the decision with the
/// connection that translates the packet; or the place of the one that has counted it all the same, as
/// the other was changed in this moment.
#[inline(never)]
fn updated_both(
    (record, v6, at): (&Record, &[[u64; key::V6]], usize),
    packet: &[u8],
    connections: &Connections,
    (pairs, now): (&Pairs, Time),
) -> Result<Decision, Option<u32>> {
    let (decision, facts) = (record.decision, record.facts);
    let (first, second) = (decision.reference(), second_of((record, v6, at), pairs).ok_or(None)?);
    let (addresses, protocol) = sums(record, v6, at);
    let seen = connection::read_words(packet, facts, addresses, protocol);
    let length = u32::from(facts.total_length());
    if !connections.holds(second, &seen, now) {
        return Err(None);
    }
    let hit = |reference| connections.hit(reference, &seen, length, now);
    if hit(first) == Hit::Stale {
        return Err(None);
    }
    if hit(second) == Hit::Stale {
        return Err(match first.named() {
            Named::Connection(handle, ..) => Some(handle.index),
            _ => None,
        });
    }
    Ok(decision.by(second))
}

/// What a packet's checksum needs of its key: the sum of its addresses, and its protocol.
#[inline(always)]
fn sums(record: &Record, v6: &[[u64; key::V6]], at: usize) -> (u64, Protocol) {
    let (addresses, class) = match record.facts.is(Facts::V6) {
        false => (key::address_sum(&record.key), record.key[key::V4 - 2]),
        true => (key::address_sum(&v6[at]), v6[at][key::V6 - 2]),
    };
    (addresses, Protocol((class >> 8) as u8))
}

impl Confirming<'_, '_> {
    /// `before` is the place of a connection that has counted the packet.
    fn confirm(
        &mut self,
        batch: &mut Packets,
        at: usize,
        connections: &Connections,
        before: Option<u32>,
    ) {
        let (facts, now) = (batch.records[at].facts, self.decider.now());
        let (addresses, protocol) = sums(&batch.records[at], &batch.v6[..], at);
        let asked = batch.records[at].decision.is_passing();
        let read = asked.then(|| self.extensions.asked[at].packet).flatten();
        let packet = read.unwrap_or_else(|| {
            connection::read_words(batch.packets[at].bytes(), facts, addresses, protocol)
        });
        let length = u32::from(facts.total_length());
        // The connections that have counted the packet, and those that it has made.
        let (mut counted, mut made) = (Counted::new(), ArrayVec::<Handle, TRIES>::new());
        counted.extend(before);
        let mut changed = ArrayVec::<Before, TRIES>::new();
        let mut was_decided = false;
        for _ in 0..TRIES {
            let decision = batch.records[at].decision;
            let reference = decision.reference();
            let adjusted = match decision.is_helped() {
                true => helper::acknowledging(connections, reference, &packet),
                false => None,
            };
            let as_received = &packet;
            let packet = adjusted.as_ref().unwrap_or(as_received);
            let hit = Hitting { connections, packet, length, now };
            let is_right = match decision.is_of_several() {
                false => hit.one(reference, &mut counted),
                true => {
                    let further = self.further(batch, at);
                    further.is_some_and(|further| hit.all(&further, reference, &mut counted))
                }
            };
            if is_right {
                let asked = decision.is_passing().then(|| &self.extensions.asked[at]);
                let change = asked.and_then(|asked| asked.change.as_ref()).filter(|change| {
                    let opens = matches!(change, Change::Make { .. });
                    !(opens && goes_no_further(&decision, self.extension(&decision), facts))
                        || self.leaves_as_copy(&decision, facts)
                });
                // What is to be written is read before.
                let written = match change {
                    Some(change @ Change::Write { .. }) => {
                        seen_before(change, &reference, connections, now)
                    }
                    _ => None,
                };
                match self.change(change, (packet, length), connections) {
                    Changed::Nothing => {
                        if !made.is_empty() && self.ends_behind(&decision, facts) {
                            self.take_back(&made, connections);
                        }
                        if was_decided {
                            self.cache.keep(batch, at, self.decider, self.statistics);
                        }
                        if !decision.is_helped() || decision.is_dropped() {
                            return;
                        }
                        match self.help(batch, at, packet, connections) {
                            Helped::Done => return,
                            Helped::DecideAgain => {}
                            Helped::Refused(why) => {
                                self.take_back(&made, connections);
                                let ended = Decision::new(Verdict::Drop(why), None, None);
                                batch.records[at].decision = ended.instead_of(&decision);
                                return;
                            }
                        }
                    }
                    Changed::Made => return,
                    Changed::MadeAndGoesOn(handle) => {
                        if let Some(change) = change.filter(|change| is_seen_later(change)) {
                            if let Change::Make { instead_of: Some(old), .. } = change {
                                counted.retain(|index| *index != old.index);
                            }
                            let seen = seen_before(change, &reference, connections, now);
                            changed.extend(seen.map(|it| Before { index: handle.index, ..it }));
                        }
                        _ = counted.try_push(handle.index);
                        _ = made.try_push(handle);
                        let found =
                            connections.track_found(handle, Direction::Original, as_received, now);
                        if changed.is_empty()
                            && let Some(found) = found
                            && self.decide_opened(batch, at, as_received, found)
                        {
                            was_decided = true;
                            continue;
                        }
                    }
                    Changed::Written => changed.extend(written),
                    Changed::DecideAgain => {}
                    Changed::Refused(why) => {
                        self.take_back(&made, connections);
                        let ended = Decision::new(Verdict::Drop(why), None, None);
                        batch.records[at].decision = ended.instead_of(&decision);
                        return;
                    }
                }
            }
            self.decide_again(batch, at, &changed);
            was_decided = true;
        }
        self.take_back(&made, connections);
        batch.records[at].decision = Decision::drop(DropReason::ConnectionGone);
    }

    /// Whether neither a packet nor a copy of it leaves, as what comes behind the flows says, or as apply
    /// drops it whatever was decided. It opens no connection.
    fn ends_behind(&self, decision: &Decision, facts: Facts) -> bool {
        let is_dropped = is_refused_behind(decision)
            || goes_no_further(decision, self.extension(decision), facts);
        is_dropped && !self.leaves_as_copy(decision, facts)
    }

    /// Whether a copy of a packet leaves.
    fn leaves_as_copy(&self, decision: &Decision, facts: Facts) -> bool {
        let number = decision.extension().filter(|_| decision.is_copied());
        let copies = number.map_or(&[][..], |number| self.extensions.copies_of(number));
        copies.iter().any(|Copied { decision, extension }| {
            !decision.is_dropped() && !goes_no_further(decision, Some(extension), facts)
        })
    }

    fn extension(&self, decision: &Decision) -> Option<&Extension> {
        decision.extension().map(|number| self.extensions.get(number))
    }

    /// Removes connections whose first packet is dropped.
    fn take_back(&self, made: &[Handle], connections: &Connections) {
        let mut ended = |ended: &[_]| self.decider.connection_ended(ended);
        for handle in made {
            connections.remove(*handle, self.decider.now(), &mut ended);
        }
    }

    /// The connections behind the first that a packet's decision was made for. `None` if they are not
    /// known any more.
    fn further(&self, batch: &Packets, at: usize) -> Option<Further> {
        let record = &batch.records[at];
        if record.decision.is_paired() {
            let second = second_of((record, &batch.v6[..], at), &self.extensions.pairs)?;
            // What they translate is in the decision.
            return Some(Further::of(
                [record.decision.reference(), second].map(|it| (it, false)).into_iter(),
            ));
        }
        Some(self.extension(&record.decision).map_or(Further::NONE, |extension| extension.further))
    }

    /// Has a decision for two connections name the one that translates the packet. It is that of the packet
    /// alone from here on.
    #[inline(always)]
    fn name_translating(&self, batch: &mut Packets, at: usize) {
        if !batch.records[at].decision.is_paired() {
            return;
        }
        let record = &batch.records[at];
        let second = second_of((record, &batch.v6[..], at), &self.extensions.pairs);
        batch.records[at].decision = match second {
            Some(second) => record.decision.by(second),
            // It must not leave untranslated.
            None => Decision::drop(DropReason::ConnectionGone).instead_of(&record.decision),
        };
    }

    /// As [`Self::decide_again`], of a packet that has opened a connection, of which connection tracking
    /// says this. False if the connection is of another zone than its VRF's, or not of the packet as it came.
    #[inline(always)]
    fn decide_opened(
        &mut self,
        batch: &mut Packets,
        at: usize,
        packet: &Seen,
        found: Tracked,
    ) -> bool {
        let (decider, place) = (self.decider, at as u8);
        let is_known = match batch.records[at].facts.is(Facts::V6) {
            true => decider.decide_opened::<_, V6>(place, &found, batch, self.extensions),
            false => decider.decide_opened::<_, V4>(place, &found, batch, self.extensions),
        };
        if is_known {
            self.statistics.decided_again.add(1);
            return true;
        }
        let change = self.extensions.asked[at].change.as_ref();
        let looked = own_hash(change, batch, at).and_then(|hash| Looked::new(hash, *packet, found));
        let Some(looked) = looked else { return false };
        self.decide_looked(batch, at, looked);
        true
    }

    /// As [`Self::decide_again`], where it is known what connection tracking says.
    fn decide_looked(&mut self, batch: &mut Packets, at: usize, looked: Looked) {
        let (decider, place) = (self.decider, at as u8);
        match batch.records[at].facts.is(Facts::V6) {
            true => decider.decide_looked::<_, V6>(place, looked, batch, self.extensions),
            false => decider.decide_looked::<_, V4>(place, looked, batch, self.extensions),
        }
        self.statistics.decided_again.add(1);
    }

    /// Decides a packet once more. Of connections that it has changed, flows see what they were before.
    fn decide_again(&mut self, batch: &mut Packets, at: usize, changed: &[Before]) {
        let (list, is_v6) = ([at as u8], batch.records[at].facts.is(Facts::V6));
        let (decider, [place]) = (self.decider, list);
        match (changed.is_empty(), is_v6) {
            (true, true) => decider.decide::<_, V6>(&list, batch, self.extensions),
            (true, false) => decider.decide::<_, V4>(&list, batch, self.extensions),
            (false, true) => decider.decide_after::<_, V6>(place, changed, batch, self.extensions),
            (false, false) => decider.decide_after::<_, V4>(place, changed, batch, self.extensions),
        }
        self.statistics.decided_again.add(1);
    }

    /// Does what a decision asks of connections.
    fn change(
        &self,
        change: Option<&Change>,
        (packet, length): (&Seen, u32),
        connections: &Connections,
    ) -> Changed {
        let now = self.decider.now();
        match change {
            None => Changed::Nothing,
            Some(&Change::Write { handle, mark, label, helper }) => {
                write(connections, handle, mark, label, helper);
                Changed::Written
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

    /// Makes a connection whose destination and source are translated so.
    fn make(
        &self,
        new: &New,
        (destination, source): (Option<&NatNew>, Option<&NewSource>),
        (packet, length): (&Seen, u32),
        connections: &Connections,
    ) -> Result<Handle, NotMade> {
        let (now, decider) = (self.decider.now(), self.decider);
        let commit = |new: &New| {
            connections
                .commit(new, packet, length, now, &mut |ended| decider.connection_ended(ended))
        };
        if destination.is_none() && source.is_none() {
            return commit(new).map_err(NotMade::from);
        }
        let pool = source.and_then(|source| decider.nat_pool(source));
        // With the destination translated already.
        let with_source = |to: &Tuple| {
            let Some((id, pool)) = pool else {
                let try_source = |from: &Tuple| {
                    commit(&New { translated: Some(*from), ..*new }).map_err(NotMade::from)
                };
                let keeps = source.is_some_and(|source| source.nat.addresses.is_none());
                return match try_source(to) {
                    Err(NotMade::Taken) if keeps => connection::other_ports(to)
                        .map(|from| try_source(&from))
                        .find(|made| !matches!(made, Err(NotMade::Taken)))
                        .unwrap_or(Err(NotMade::Dropped(DropReason::NatExhausted))),
                    made => made,
                };
            };
            let lent = pool.pool.lend(new.zone, to, |lease| {
                let (translated, binding) = (Some(lease.translated), id.binding(lease.binding));
                commit(&New { translated, binding, ..*new })
            });
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
#[inline(always)]
fn is_seen_later(change: &Change) -> bool {
    match change {
        Change::Make { new, instead_of, .. } => {
            new.mark != 0 || new.label != 0 || new.master.is_some() || instead_of.is_some()
        }
        Change::Write { .. } => true,
    }
}

/// What flows have seen of a connection that they ask to change, if they would see something else behind it.
/// Of one that is made, its place is not known here.
#[cold]
#[inline(never)]
fn seen_before(
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
    }
}

/// The hash of the tuple of a packet whose connection a change has made, if it was made in the zone of
/// the packet's VRF, and of the packet as it was received.
fn own_hash(change: Option<&Change>, batch: &Packets, at: usize) -> Option<u64> {
    let Some(Change::Make { new, .. }) = change else { return None };
    let record = &batch.records[at];
    let key = match record.facts.is(Facts::V6) {
        true => V6::flow(&batch.v6[at]),
        false => V4::flow(&record.key),
    };
    let is_own = new.zone == key.vrf.0 && connection::tuple(&key) == Some(new.original);
    new.hash.filter(|_| is_own)
}

/// What is needed to hold a decision against its connections.
struct Hitting<'a> {
    connections: &'a Connections,
    packet: &'a Seen,
    length: u32,
    now: Time,
}

/// The places of connections that have counted a packet.
type Counted = ArrayVec<u32, { 2 * MOST_CONNECTIONS }>;

impl Hitting<'_> {
    /// Whether a decision that was made for `reference` is right. If so, its connection has counted the
    /// packet.
    fn one(&self, reference: Reference, counted: &mut Counted) -> bool {
        let index = match reference.named() {
            // It was made for this very packet.
            Named::Untracked | Named::Related(..) => return true,
            Named::Absent(..) => None,
            // Its connection was made of this packet, or has changed since it has counted it.
            Named::Connection(handle, ..) if counted.contains(&handle.index) => return true,
            Named::Connection(handle, ..) => Some(handle.index),
        };
        let hit = self.connections.hit(reference, self.packet, self.length, self.now);
        let is_right = matches!(hit, Hit::Valid { .. });
        if let Some(index) = index.filter(|_| is_right) {
            _ = counted.try_push(index);
        }
        is_right
    }

    /// The same of several. No connection counts the packet unless all are right.
    fn all(&self, further: &Further, first: Reference, counted: &mut Counted) -> bool {
        let all = || further.all(first).map(|(reference, _)| reference);
        let holds = |reference: Reference| match reference.named() {
            Named::Untracked | Named::Related(..) => true,
            Named::Connection(handle, ..) if counted.contains(&handle.index) => true,
            _ => self.connections.holds(reference, self.packet, self.now),
        };
        all().all(holds) && all().all(|reference| self.one(reference, counted))
    }
}

/// Whether a packet is dropped by what comes behind the flows.
fn is_refused_behind(decision: &Decision) -> bool {
    match decision.verdict() {
        Verdict::Drop(why) | Verdict::Refuse(why, _) => !is_of_flows(why),
        _ => false,
    }
}

/// Whether apply drops a packet whatever was decided: its hop limit ends here, or it is to be routed and its
/// frame is for another station.
#[inline]
pub(crate) fn goes_no_further(
    decision: &Decision,
    extension: Option<&Extension>,
    facts: Facts,
) -> bool {
    if facts.is(FOREIGN) && decision.verdict().is_routed() {
        return true;
    }
    if !matches!(decision.verdict(), Verdict::Forward(_) | Verdict::Protect(..)) {
        return false;
    }
    let written = extension.and_then(|extension| extension.rewrite?.hop_limit);
    !facts.is(Facts::OWN) && written.unwrap_or(facts.hop_limit()) <= 1
}

/// Whether flows say so themselves, and not what comes behind them.
const fn is_of_flows(why: DropReason) -> bool {
    use DropReason as Why;
    matches!(
        why,
        Why::FlowDrop | Why::FlowMiss | Why::FlowResubmits | Why::FlowUnsupported | Why::FlowZones
    )
}

/// What became of what a decision asks of connections.
enum Changed {
    /// It asks for nothing.
    Nothing,
    /// It is done, and concerns this packet no more.
    Made,
    /// This connection is made, and has counted the packet, which is to be decided again as it is
    /// translated, or for its other connections.
    MadeAndGoesOn(Handle),
    /// A connection's mark, label or helper is written, and the packet to be decided again.
    Written,
    /// The packet is to be decided again.
    DecideAgain,
    /// The packet is dropped.
    Refused(DropReason),
}

/// Why there is no new connection.
pub(super) enum NotMade {
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

/// Writes bits of a connection's mark and label, and its helper.
fn write(
    connections: &Connections,
    handle: Handle,
    (mark, mark_bits): (u32, u32),
    (label, label_bits): (u128, u128),
    helper: u16,
) {
    let mut handle = Some(handle);
    if mark_bits != 0 {
        handle = handle.and_then(|handle| connections.set_mark(handle, mark, mark_bits));
    }
    if label_bits != 0 {
        handle = handle.and_then(|handle| connections.set_label(handle, label, label_bits));
    }
    if helper != 0 {
        handle.and_then(|handle| connections.set_helper(handle, helper));
    }
}
