//! Traces: who wants to know which way packets take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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

    /// Adds a trace.
    ///
    /// # Errors
    /// [`TableError::Limit`].
    pub fn add_trace(&mut self, spec: TraceSpec) -> Result<(), TableError> {
        if self.traces.len() >= MAX_TRACES {
            return Err(TableError::Limit { what: "traces", limit: MAX_TRACES });
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
