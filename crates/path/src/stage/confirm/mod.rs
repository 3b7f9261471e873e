//! Confirm: every decision that was made for a connection is held against it, in the order of the
//! packets, whether it was found in the cache or made a moment ago.
//!
//! If the decision is right, the connection is updated. If not, the packet is decided again
//! ([`again`]). What a decision asks of connections is done here too ([`change`]), so that the next
//! packet finds it.

mod again;
mod change;

use conntrack::{Connections, Hit, Named, Reference};
use packet::Time;
use wire::Protocol;
use wire::common::Facts;

pub(crate) use again::{TRIES, goes_no_further};
pub(super) use change::NotMade;

use crate::batch::{Packets, Record};
use crate::cache::{Cache, key};
use crate::connection::{self, Change};
use crate::decide::Decider;
use crate::decision::Decision;
use crate::extension::{Asked, Extensions};
use crate::pairs::Pairs;
use crate::statistics::WorkerStatistics;

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
    // Packets of VRFs without flows, though others have some. Many at once: mostly all are alike.
    let mut some = batch.records[..count].chunks(16);
    if some.all(|records| Decision::concern(records.iter().map(|it| &it.decision)) == 0) {
        return;
    }
    for (record, asked) in batch.records[..count].iter().zip(&mut confirming.extensions.asked[..]) {
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
            // It may leave with others from now on.
            batch.records[at].decision.confirmed();
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

/// Finds out what the source of a new connection will likely be translated to, and asks for the memory
/// that this takes.
#[inline(never)]
fn foresee(asked: &mut Asked, decider: Decider<'_>, connections: &Connections) {
    if let Some(Change::Make { new, source: Some(source), destination: None, .. }) =
        &mut asked.change
        && let Some((_, pool)) = decider.nat_pool(source)
    {
        source.likely = pool.pool.likely(new.zone, &new.original, connections);
        if let Some(likely) = &source.likely {
            pool.pool.prefetch_likely(likely, &new.original, connections);
        }
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
