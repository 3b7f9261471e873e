//! A packet whose decision is wrong, or asks for more than that its connection counts it.

use arrayvec::ArrayVec;
use conntrack::{
    Connections, CtState, Direction, Handle, Hit, Named, Packet as Seen, Reference, Tracked,
};
use packet::{DropReason, Time};
use wire::common::Facts;

use super::change::{self, Changed};
use super::{Confirming, second_of, sums};
use crate::batch::{FOREIGN, Packets};
use crate::cache::lookup::{Family, V4, V6};
use crate::connection::{self, Before, Change};
use crate::decide::Looked;
use crate::decision::{Decision, Verdict};
use crate::extension::{Copied, Extension, Further, MOST_CONNECTIONS};
use crate::stage::helper::{self, Helped};

/// A packet makes and changes connections so often at most: each of its own may be replaced and made.
pub(crate) const TRIES: usize = 2 * MOST_CONNECTIONS + 2;

/// A packet is decided again so often at most: other workers may change its connection with each of their
/// packets, and every time while this one is decided, but not for ever.
const MOST_AGAIN: usize = 64;

impl Confirming<'_, '_> {
    /// `before` is the place of a connection that has counted the packet.
    pub(super) fn confirm(
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
        let hitting = Hitting { connections, packet: &packet, length, now };
        let mut course = Course::default();
        course.counted.extend(before);
        for _ in 0..MOST_AGAIN {
            if course.made.is_full() || course.changed.is_full() {
                break;
            }
            match self.step(batch, at, hitting, &mut course) {
                Step::Done => return,
                Step::Decided => {}
                Step::DecideAgain => self.decide_again(batch, at, &course.changed),
                Step::Refused(why) => {
                    self.take_back(&course.made, connections);
                    let decision = &mut batch.records[at].decision;
                    *decision = Decision::new(Verdict::Drop(why), None, None).instead_of(decision);
                    return;
                }
            }
            course.was_decided = true;
        }
        self.take_back(&course.made, connections);
        batch.records[at].decision = Decision::drop(DropReason::ConnectionGone);
    }

    /// Holds the decision of a packet against its connections, and does what it asks of them.
    #[inline(always)]
    fn step(
        &mut self,
        batch: &mut Packets,
        at: usize,
        as_received: Hitting<'_>,
        course: &mut Course,
    ) -> Step {
        let (decision, facts) = (batch.records[at].decision, batch.records[at].facts);
        let reference = decision.reference();
        let Hitting { connections, length, now, .. } = as_received;
        let adjusted = match decision.is_helped() {
            true => helper::acknowledging(connections, reference, as_received.packet),
            false => None,
        };
        let packet = adjusted.as_ref().unwrap_or(as_received.packet);
        let hitting = Hitting { packet, ..as_received };
        // It is counted once it is known to leave.
        let is_refused = decision.is_refused_behind() && !self.leaves_as_copy(&decision, facts);
        let further = match decision.is_of_several() {
            false => Some(Further::NONE),
            true => self.further(batch, at),
        };
        let is_right = match &further {
            None => false,
            Some(further) if is_refused => hitting.holds(further, reference, &course.counted),
            Some(further) if further.is_none() => hitting.one(reference, &mut course.counted),
            Some(further) => hitting.all(further, reference, &mut course.counted),
        };
        if !is_right {
            return Step::DecideAgain;
        }
        let is_final = is_refused && decision.is_holding();
        if is_final {
            let further = further.unwrap_or(Further::NONE);
            further.all(reference).for_each(|(reference, _)| hitting.note_invalid(reference));
        }
        let asked = (decision.is_passing() && !is_final).then(|| &self.extensions.asked[at]);
        let change = asked.and_then(|asked| asked.change.as_ref()).filter(|change| {
            let is_idle = match change {
                Change::Make { .. } => {
                    goes_no_further(&decision, self.extension(&decision), facts)
                        && !self.leaves_as_copy(&decision, facts)
                }
                // Its sender would hear of a hop limit that ends here.
                Change::End { .. } => {
                    facts.is(FOREIGN) || !facts.is(Facts::OWN) && facts.hop_limit() <= 1
                }
                Change::Write { .. } => false,
            };
            !is_idle
        });
        // What is to be written is read before.
        let written = match change {
            Some(change @ Change::Write { .. }) => {
                change::seen_before(change, &reference, connections, now)
            }
            _ => None,
        };
        match self.change(change, (packet, length), connections) {
            Changed::Nothing => {
                if !course.made.is_empty() && self.ends_behind(&decision, facts) {
                    self.take_back(&course.made, connections);
                }
                if course.was_decided {
                    self.cache.keep(batch, at, self.decider, self.statistics);
                }
                if !decision.is_helped() || decision.is_dropped() {
                    return Step::Done;
                }
                match self.help(batch, at, packet, connections) {
                    Helped::Done => Step::Done,
                    Helped::DecideAgain => Step::DecideAgain,
                    Helped::Refused(why) => Step::Refused(why),
                }
            }
            Changed::Made => Step::Done,
            Changed::MadeAndGoesOn(handle) => {
                let reads_opened = || self.decider.reads_opened(at as u8, batch);
                if let Some(change) =
                    change.filter(|change| change::is_seen_later(change, reads_opened))
                {
                    if let Change::Make { instead_of: Some(old), .. } = change {
                        course.counted.retain(|index| *index != old.index);
                    }
                    let seen = change::seen_before(change, &reference, connections, now);
                    course.changed.extend(seen.map(|it| Before { index: handle.index, ..it }));
                }
                _ = course.counted.try_push(handle.index);
                _ = course.made.try_push(handle);
                let packet = as_received.packet;
                let found = connections.track_found(handle, Direction::Original, packet, now);
                // What is known of packets that open holds for what was made, and not for another mark.
                if course.changed.is_empty()
                    && let Some(found) = found
                    && found.connection == Some((handle, Direction::Original))
                    && self.decide_opened(batch, at, packet, found)
                {
                    return Step::Decided;
                }
                Step::DecideAgain
            }
            Changed::Written(handle) => {
                let made = course.made.iter_mut().find(|made| made.index == handle.index);
                made.into_iter().for_each(|made| *made = handle);
                course.changed.extend(written);
                Step::DecideAgain
            }
            Changed::DecideAgain => Step::DecideAgain,
            Changed::Refused(why) => Step::Refused(why),
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
    pub(super) fn name_translating(&self, batch: &mut Packets, at: usize) {
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

    /// Whether neither a packet nor a copy of it leaves, as what comes behind the flows says, or as apply
    /// drops it whatever was decided. It opens no connection.
    fn ends_behind(&self, decision: &Decision, facts: Facts) -> bool {
        let is_dropped = decision.is_refused_behind()
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

/// What has become of a packet in confirm so far.
#[derive(Default)]
struct Course {
    /// The places of connections that have counted the packet.
    counted: Counted,
    /// The connections that it has made.
    made: ArrayVec<Handle, TRIES>,
    /// What flows have seen of those that it has changed.
    changed: ArrayVec<Before, TRIES>,
    /// Whether it has a decision that the cache did not have.
    was_decided: bool,
}

/// How a packet goes on in confirm.
enum Step {
    Done,
    /// It was decided again.
    Decided,
    DecideAgain,
    /// It is dropped, and what it has made goes.
    Refused(DropReason),
}

/// What is needed to hold a decision against its connections.
#[derive(Clone, Copy)]
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
            Named::Absent(..) | Named::Renewed(..) => None,
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
        let mut all = further.all(first).map(|(reference, _)| reference);
        self.holds(further, first, counted) && all.all(|reference| self.one(reference, counted))
    }

    /// Counts a packet that no connection counts, if it is invalid.
    fn note_invalid(&self, reference: Reference) {
        if let Named::Connection(_, _, CtState::INVALID) | Named::Absent(_, CtState::INVALID) =
            reference.named()
        {
            self.connections.note_invalid();
        }
    }

    /// Whether a decision that was made for these is right. None of them counts the packet.
    fn holds(&self, further: &Further, first: Reference, counted: &Counted) -> bool {
        let holds = |reference: Reference| match reference.named() {
            Named::Untracked | Named::Related(..) => true,
            Named::Connection(handle, ..) if counted.contains(&handle.index) => true,
            _ => self.connections.holds(reference, self.packet, self.now),
        };
        further.all(first).map(|(reference, _)| reference).all(holds)
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
