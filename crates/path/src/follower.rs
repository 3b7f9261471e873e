//! Packets of traces that wait, for a neighbour or in a queueing discipline: what becomes of them.
//!
//! Where packets begin to wait and where they cease to, one question is asked: whether there is a
//! trace. Packets that do not wait come by no such place.

use std::sync::Arc;

use packet::{DropReason, Packet, Time};
use tables::{Tables, TraceTicket, TracedWaiting};
use wire::PortId;

/// Bytes of a frame that are looked at: the longest link header, an IPv6 header and some of what
/// follows.
pub(crate) const HEAD: usize = 128;

/// A worker's part in following packets that wait.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    /// Those that are followed, of all workers. There while there are traces.
    waiting: Option<Arc<TracedWaiting>>,
    current: Current,
    begun: Vec<Waiting>,
    ends: Vec<End>,
}

/// Of which packet something begins to wait.
#[derive(Clone, Copy, Debug, Default)]
enum Current {
    /// None that a trace wants.
    #[default]
    Untraced,
    /// One that goes through the stages for a trace, or what it became.
    Traced,
    /// One that has waited elsewhere, and since when.
    Waited(TraceTicket, Time),
}

/// What became of a packet that waited.
#[derive(Debug)]
pub(crate) struct End {
    pub ticket: TraceTicket,
    pub since: Time,
    pub how: Ending,
}

#[derive(Debug)]
pub(crate) enum Ending {
    /// It leaves by this port's queue.
    Sent(Frame),
    Dropped {
        reason: DropReason,
        /// Whether its sender is sent an ICMP error.
        is_told: bool,
    },
}

/// A frame that leaves by a port's queue.
#[derive(Debug)]
pub(crate) struct Frame {
    pub queue: PortId,
    pub length: usize,
    /// Its beginning.
    pub head: Vec<u8>,
}

impl Frame {
    /// A frame in one piece, or a packet before its link header stands in front of it.
    pub(crate) fn new(queue: PortId, header: &[u8], packet: &[u8]) -> Self {
        let head = header.iter().chain(packet).take(HEAD).copied().collect();
        Self { queue, length: header.len() + packet.len(), head }
    }
}

/// A packet that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// None if it is not followed, as too many are.
    pub ticket: Option<TraceTicket>,
    /// Of which port, if it waits in a queueing discipline before one.
    pub queued_for: Option<PortId>,
}

/// What began to wait of a packet that went through the stages.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// What still waits.
    pub waiting: Vec<Waiting>,
    /// What does not by now.
    pub ends: Vec<End>,
}

impl Begun {
    /// What is followed of it.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = TraceTicket> {
        self.waiting.iter().filter_map(|waiting| waiting.ticket)
    }
}

impl Follower {
    /// Takes note of another snapshot's traces.
    pub(crate) fn snapshot_changed(&mut self, tables: &Tables) {
        self.waiting = tables.traced_waiting().cloned();
        if self.waiting.is_none() {
            self.ends = Vec::new();
        }
    }

    /// Whether there are traces.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.waiting.is_some()
    }

    /// From now on a packet goes through the stages that a trace may want.
    pub(crate) fn begin(&mut self) {
        self.current = Current::Traced;
    }

    /// It has gone through.
    pub(crate) fn finish(&mut self) -> Begun {
        self.current = Current::Untraced;
        let mut waiting = core::mem::take(&mut self.begun);
        let is_of =
            |end: &End, waiting: &Waiting| waiting.ticket.is_some_and(|it| it == end.ticket);
        let is_own = |end: &mut End| waiting.iter().any(|waiting| is_of(end, waiting));
        let ends: Vec<End> = self.ends.extract_if(.., is_own).collect();
        waiting.retain(|waiting| !ends.iter().any(|end| is_of(end, waiting)));
        Begun { waiting, ends }
    }

    /// Nobody wants to know of these after all. What they became meanwhile is not told either.
    pub(crate) fn forget(&mut self, unwanted: impl Iterator<Item = TraceTicket>) {
        for ticket in unwanted {
            self.waiting.iter().for_each(|waiting| waiting.forget(ticket));
        }
    }

    /// A packet begins to wait for a neighbour.
    #[inline(always)]
    pub(crate) fn waits(&mut self, packet: &Packet, now: Time) {
        if self.is_on() {
            self.follow(packet.identity(), None, now);
        }
    }

    /// A frame that is to leave by a port begins to wait in the first queueing discipline on its
    /// way.
    pub(crate) fn is_queued(&mut self, packet: &Packet, port: PortId, now: Time) {
        if self.is_on() {
            self.follow(packet.identity(), Some(port), now);
        }
    }

    #[cold]
    fn follow(&mut self, identity: usize, queued_for: Option<PortId>, now: Time) {
        let Some(waiting) = &self.waiting else { return };
        // Should it have come away from where it waited unnoticed, it is another packet by now.
        waiting.take(identity);
        match core::mem::take(&mut self.current) {
            Current::Untraced => {}
            Current::Traced => {
                self.current = Current::Traced;
                self.begun.push(Waiting { ticket: waiting.begin(identity, now), queued_for });
            }
            Current::Waited(ticket, since) => _ = waiting.put(identity, ticket, since),
        }
    }

    /// A packet that has waited is dropped.
    #[inline(always)]
    pub(crate) fn dropped(&mut self, packet: &Packet, reason: DropReason, is_told: bool) {
        if self.is_on() {
            self.ended(packet.identity(), || Ending::Dropped { reason, is_told });
        }
    }

    /// A packet that has waited is handed to a port's queue.
    #[cold]
    pub(crate) fn sent(&mut self, packet: &Packet, queue: PortId) {
        self.ended(packet.identity(), || Ending::Sent(Frame::new(queue, &[], packet.bytes())));
    }

    #[cold]
    fn ended(&mut self, identity: usize, how: impl FnOnce() -> Ending) {
        if let Some((ticket, since)) = self.waiting.as_ref().and_then(|it| it.take(identity)) {
            self.ends.push(End { ticket, since, how: how() });
        }
    }

    /// A packet that has waited goes on, and may wait elsewhere.
    #[cold]
    pub(crate) fn resume(&mut self, packet: &Packet) {
        self.current = match self.waiting.as_ref().and_then(|it| it.take(packet.identity())) {
            Some((ticket, since)) => Current::Waited(ticket, since),
            None => Current::Untraced,
        };
    }

    /// It has gone on. If it does not wait, `how` it ended.
    #[cold]
    pub(crate) fn resumed(&mut self, how: impl FnOnce() -> Ending) {
        if let Current::Waited(ticket, since) = core::mem::take(&mut self.current) {
            self.ends.push(End { ticket, since, how: how() });
        }
    }

    /// Whether something is to be told.
    #[inline(always)]
    pub(crate) fn has_ends(&self) -> bool {
        !self.ends.is_empty()
    }

    pub(crate) fn take_ends(&mut self) -> Vec<End> {
        core::mem::take(&mut self.ends)
    }
}
