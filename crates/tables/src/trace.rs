//! Traces: who wants to know which way packets take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use packet::Time;

use crate::bpf::Program;
use crate::error::TableError;
use crate::snapshot::Tables;
use crate::tap::is_within;

/// The most traces at once.
pub const MAX_TRACES: usize = 8;

/// The most packets of a trace.
pub const MAX_TRACED: u32 = 10_000;

/// What a trace is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpec {
    /// Its number, unique while the gateway runs.
    pub id: u64,
    /// So many packets, and then it has ended.
    pub count: u32,
    /// At most so many a second.
    pub rate: u32,
    /// Those alone that it matches.
    pub program: Option<Program>,
}

/// The most packets of traces that are followed while they wait.
pub const MAX_TRACED_WAITING: usize = 256;

/// A packet of a trace that waits. Unique while the gateway runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceTicket(pub u64);

/// Which packets of traces wait, by their identity: where they are in memory. A packet has one owner
/// at a time, who alone reads and writes its place; so workers that hand a packet on need no lock.
#[derive(Debug)]
pub struct TracedWaiting {
    places: Box<[WaitingPlace]>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct WaitingPlace {
    /// Of the packet; none if 0.
    identity: AtomicUsize,
    ticket: AtomicU64,
    since: AtomicU64,
}

impl TracedWaiting {
    /// Without packets. Tickets begin with `first`.
    fn new(first: u64) -> Self {
        let places = (0..MAX_TRACED_WAITING).map(|_| WaitingPlace::default()).collect();
        Self { places, next: AtomicU64::new(first) }
    }

    /// A ticket for a packet that begins to wait. `None` if as many wait as may be followed.
    pub fn begin(&self, identity: usize, now: Time) -> Option<TraceTicket> {
        let ticket = TraceTicket(self.next.fetch_add(1, Ordering::Relaxed));
        self.put(identity, ticket, now).then_some(ticket)
    }

    /// Lets a packet wait on. Returns whether there was room.
    pub fn put(&self, identity: usize, ticket: TraceTicket, since: Time) -> bool {
        let is_taken = |place: &&WaitingPlace| {
            let (order, free) = (Ordering::Relaxed, 0);
            place.identity.compare_exchange(free, identity, order, order).is_ok()
        };
        let Some(place) = self.places.iter().find(is_taken) else { return false };
        place.ticket.store(ticket.0, Ordering::Relaxed);
        place.since.store(since.0, Ordering::Relaxed);
        true
    }

    /// A packet that waits is not followed any more. If it is let go at this moment, its ticket may
    /// still be told of.
    pub fn forget(&self, ticket: TraceTicket) {
        let is_its = |place: &&WaitingPlace| place.ticket.load(Ordering::Relaxed) == ticket.0;
        if let Some(place) = self.places.iter().find(is_its) {
            let identity = place.identity.load(Ordering::Relaxed);
            let (order, free) = (Ordering::Relaxed, 0);
            // Nothing to do if its owner was faster.
            let _ = place.identity.compare_exchange(identity, free, order, order);
        }
    }

    /// A packet waits no more. Returns its ticket and since when it waited, if it is followed.
    pub fn take(&self, identity: usize) -> Option<(TraceTicket, Time)> {
        let is_it = |place: &&WaitingPlace| place.identity.load(Ordering::Relaxed) == identity;
        let place = self.places.iter().find(is_it)?;
        let ticket = TraceTicket(place.ticket.load(Ordering::Relaxed));
        let since = Time(place.since.load(Ordering::Relaxed));
        // Whoever gets the place has it empty.
        place.identity.store(0, Ordering::Relaxed);
        Some((ticket, since))
    }
}

/// A trace.
#[derive(Debug)]
pub struct Trace {
    /// As it was asked for.
    pub spec: TraceSpec,
    left: AtomicU32,
    lost: AtomicU64,
    limited: AtomicU64,
    next: AtomicU64,
}

impl Trace {
    fn new(spec: TraceSpec) -> Self {
        let left = AtomicU32::new(spec.count);
        let (lost, limited, next) = Default::default();
        Self { spec, left, lost, limited, next }
    }

    /// Packets that it still wants.
    pub fn left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }

    /// Packets that were traced and whose trace found no room on its way to the client.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Packets that were left out because of the rate.
    pub fn limited(&self) -> u64 {
        self.limited.load(Ordering::Relaxed)
    }

    /// Counts a trace of a packet that was lost.
    pub fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it has a filter, which looks at what packets are.
    pub fn is_filtered(&self) -> bool {
        self.spec.program.is_some()
    }

    /// Whether it wants a packet by its filter, and more packets at all.
    pub fn matches(&self, packet: &[u8]) -> bool {
        self.left() > 0 && self.spec.program.as_ref().is_none_or(|program| program.matches(packet))
    }

    /// Takes a packet that [`Trace::matches`], unless it is one too many.
    pub fn take(&self, now: Time) -> bool {
        if !is_within(&self.next, self.spec.rate, now) {
            self.limited.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let one_less = |left: u32| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// Nothing is decided by traces, so none of these methods notes a change.
impl Tables {
    /// Whether there is a trace at all.
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        !self.traces.is_empty()
    }

    /// Every trace.
    pub fn traces(&self) -> &[Arc<Trace>] {
        &self.traces
    }

    /// Packets of traces that wait. There while there are traces.
    pub fn traced_waiting(&self) -> Option<&Arc<TracedWaiting>> {
        self.traced_waiting.as_ref().filter(|_| self.is_traced())
    }

    /// Adds a trace.
    ///
    /// # Errors
    /// [`TableError::Limit`].
    pub fn add_trace(&mut self, spec: TraceSpec) -> Result<(), TableError> {
        if self.traces.len() >= MAX_TRACES {
            return Err(TableError::Limit { what: "traces", limit: MAX_TRACES });
        }
        if self.traces.is_empty() {
            // What waited for former traces is followed no more. Numbers of traces are unique, and
            // with room between them those of tickets are.
            self.traced_waiting = Some(Arc::new(TracedWaiting::new(spec.id << 32)));
        }
        Arc::make_mut(&mut self.traces).push(Arc::new(Trace::new(spec)));
        Ok(())
    }

    /// Removes a trace. Returns whether it was there.
    pub fn remove_trace(&mut self, id: u64) -> bool {
        let is_there = self.traces.iter().any(|trace| trace.spec.id == id);
        if is_there {
            Arc::make_mut(&mut self.traces).retain(|trace| trace.spec.id != id);
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(id: u64, count: u32, rate: u32) -> TraceSpec {
        TraceSpec { id, count, rate, program: None }
    }

    #[test]
    fn a_trace_takes_as_many_packets_as_it_wants_and_no_faster_than_its_rate() {
        let trace = Trace::new(spec(1, 15, 100));
        let taken = |now| (0..50).filter(|_| trace.take(Time(now))).count();
        assert_eq!((taken(0), trace.left(), trace.limited()), (11, 4, 39));
        assert!(trace.matches(&[]));
        assert_eq!((taken(1_000_000_000), trace.left()), (4, 0));
        assert!(!trace.matches(&[]));
    }

    #[test]
    fn packets_that_wait_are_followed_in_bounded_room() {
        let waiting = TracedWaiting::new(7);
        let most = MAX_TRACED_WAITING;
        let tickets: Vec<_> = (1..=most).map(|at| waiting.begin(at, Time(5)).unwrap()).collect();
        assert_eq!(waiting.begin(most + 1, Time(5)), None);
        for (at, ticket) in (1..).zip(tickets) {
            assert_eq!(waiting.take(at), Some((ticket, Time(5))));
            assert_eq!(waiting.take(at), None);
        }
        let ticket = waiting.begin(9, Time(6)).unwrap();
        assert!(ticket.0 > 7 + most as u64);
        assert_eq!(waiting.take(9), Some((ticket, Time(6))));
        assert!(waiting.put(9, ticket, Time(6)));
        assert_eq!(waiting.take(9), Some((ticket, Time(6))));
    }

    #[test]
    fn traces_come_and_go_and_change_no_decision() {
        let mut tables = Tables::new(1, 0);
        for id in 0..MAX_TRACES as u64 {
            tables.add_trace(spec(id, 1, 1)).unwrap();
        }
        let error = tables.add_trace(spec(99, 1, 1)).unwrap_err();
        assert_eq!(error, TableError::Limit { what: "traces", limit: MAX_TRACES });
        for id in 0..MAX_TRACES as u64 {
            assert!(tables.is_traced() && tables.remove_trace(id) && !tables.remove_trace(id));
        }
        assert!(!tables.is_traced());
        assert_eq!(tables.latest_changes().count(), 0);
    }
}
