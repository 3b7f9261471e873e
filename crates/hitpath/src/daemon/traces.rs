//! Traces between workers and clients: the thread that empties the workers' rings makes lines of JSON
//! of them, which the server sends to each trace's client.
//!
//! Nothing here waits for a client. What does not fit into a trace's bounded queue is lost and
//! counted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{
    Refusal, RefusalCode, RunState, Stage, TraceEvent, TraceLosses, TraceSpec, TraceView,
    TracedLater, TracedPacket,
};
use axum::body::Bytes;
use packet::Time;
use path::TapRecord;
use tables::Trace;
use tokio::sync::mpsc;

use super::taps::{HEARTBEAT, LAST, TapStream, absent, has_room};

/// Packets and other events that may wait for a client.
const WAITING: usize = 256;

/// How long a packet that waits is heard of. What a worker had to tell of it may have been lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most parts of packets that wait, and the most that have ended before their packet was told of.
const MAX_TICKETS: usize = 1024;

/// Traces that have ended and are still shown.
const ENDED: usize = 16;

/// All traces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Arc<Mutex<Hub>>);

#[derive(Debug, Default)]
struct Hub {
    last: u64,
    feeds: BTreeMap<u64, Feed>,
    /// By ticket: a packet that waits, or a fragment of it.
    waiting: BTreeMap<u64, Waiting>,
    /// By ticket: what ended at another worker before its packet was told of.
    early: BTreeMap<u64, Early>,
    ended: VecDeque<TraceView>,
}

/// Of which packets somebody wants to know how they end.
#[derive(Debug)]
struct Waiting {
    since: Time,
    /// Traces, and the packet's number in each.
    of: Vec<(u64, u32)>,
}

/// What became of a packet that waited.
#[derive(Debug)]
struct Early {
    came: Time,
    later: TracedLater,
}

/// A trace, and the way to its client.
#[derive(Debug)]
struct Feed {
    spec: TraceSpec,
    sender: mpsc::Sender<Bytes>,
    /// Once it is in the tables.
    trace: Option<Arc<Trace>>,
    told: u32,
    /// What of its packets waits.
    waiting: usize,
    /// When the client last heard something.
    heard: Time,
}

impl Traces {
    /// Prepares a trace, and gives it its number. It begins once it is in the tables.
    ///
    /// # Errors
    /// There are as many as there may be.
    pub(crate) fn open(&self, spec: &mut TraceSpec) -> Result<TapStream, Refusal> {
        let mut hub = self.hub();
        if hub.feeds.len() >= tables::MAX_TRACES {
            let most = tables::MAX_TRACES;
            let message = format!("there are {most} traces already, and there may not be more");
            return Err(Refusal::new(RefusalCode::Full, message));
        }
        hub.last += 1;
        spec.id = hub.last;
        let (sender, receiver) = mpsc::channel(WAITING + LAST);
        let feed = Feed {
            spec: TraceSpec { program: Vec::new(), ..spec.clone() },
            sender,
            trace: None,
            told: 0,
            waiting: 0,
            heard: Time(0),
        };
        hub.feeds.insert(spec.id, feed);
        Ok(TapStream::new(receiver))
    }

    /// Whether somebody waits for the packets of a trace that is to begin.
    pub(crate) fn is_open(&self, id: u64) -> bool {
        let is_open = |feed: &Feed| feed.trace.is_none() && !feed.sender.is_closed();
        self.hub().feeds.get(&id).is_some_and(is_open)
    }

    /// A trace is in the tables.
    pub(crate) fn begin(&self, trace: &Arc<Trace>) {
        if let Some(feed) = self.hub().feeds.get_mut(&trace.spec.id) {
            feed.trace = Some(Arc::clone(trace));
        }
    }

    /// A trace has ended, or never began. Returns whether it was there.
    pub(crate) fn end(&self, id: u64, why: &str) -> bool {
        let mut hub = self.hub();
        let Some(feed) = hub.feeds.remove(&id) else { return false };
        if let Some(trace) = &feed.trace {
            let end = TraceEvent::End { why: why.to_owned(), losses: losses(trace) };
            send_last(&feed.sender, &end);
            if hub.ended.len() == ENDED {
                hub.ended.pop_front();
            }
            let state = RunState::Ended;
            hub.ended.push_back(TraceView { state, ended: Some(why.to_owned()), ..feed.view(id) });
            tracing::info!(trace = id, packets = feed.told, "the trace has ended: {why}");
        }
        for waiting in hub.waiting.values_mut() {
            waiting.of.retain(|(trace, _)| *trace != id);
        }
        true
    }

    /// The refusal of a trace that [`Traces::end`] has not found.
    pub(crate) fn absent(&self, id: u64) -> Refusal {
        let hub = self.hub();
        let ended = hub.ended.iter().map(|view| (view.id, view.ended.as_ref()));
        absent("trace", id, hub.last, ended)
    }

    /// All that there are, and those that have ended lately.
    pub(crate) fn views(&self) -> Vec<TraceView> {
        let hub = self.hub();
        let running = hub.feeds.iter().filter(|(_, feed)| feed.trace.is_some());
        hub.ended.iter().cloned().chain(running.map(|(id, feed)| feed.view(*id))).collect()
    }

    /// Ends all.
    pub(crate) fn end_all(&self, why: &str) {
        let ids: Vec<u64> = self.hub().feeds.keys().copied().collect();
        ids.into_iter().for_each(|id| _ = self.end(id, why));
    }

    /// The traces that have ended, with the reason: all their packets were told of to their end, or
    /// lost, or their client has gone. Those that never began are forgotten.
    pub(crate) fn ended(&self) -> Vec<(u64, &'static str)> {
        let mut hub = self.hub();
        hub.feeds.retain(|_, feed| feed.trace.is_some() || !feed.sender.is_closed());
        let why = |(id, feed): (&u64, &Feed)| {
            let trace = feed.trace.as_ref()?;
            let told = u64::from(feed.told) + trace.lost();
            match told >= u64::from(trace.spec.count) && feed.waiting == 0 {
                _ if feed.sender.is_closed() => Some((*id, "its client has gone")),
                true => Some((*id, "that many were wanted")),
                false => None,
            }
        };
        hub.feeds.iter().filter_map(why).collect()
    }

    /// Whether there are any.
    pub(super) fn are_there(&self) -> bool {
        !self.hub().feeds.is_empty()
    }

    /// Tells a client of a packet, or counts it as lost. `time` is in nanoseconds since 1970.
    pub(super) fn packet(&self, record: &TapRecord<'_>, worker: usize, time: u64) {
        let hub = &mut *self.hub();
        let Some(feed) = hub.feeds.get_mut(&record.tap) else { return };
        let Some(trace) = &feed.trace else { return };
        let event = TraceEvent::Packet(TracedPacket {
            number: feed.told + 1,
            time,
            worker: worker as u32,
            port: record.interface.to_owned(),
            length: record.length,
            stages: stages(record.comment),
        });
        if !send(&feed.sender, &event) {
            return trace.count_lost();
        }
        feed.told += 1;
        for ticket in record.tickets() {
            if let Some(Early { later, .. }) = hub.early.remove(&ticket) {
                let later = TracedLater { number: feed.told, ..later };
                send(&feed.sender, &TraceEvent::Later(later));
            } else if hub.waiting.len() < MAX_TICKETS || hub.waiting.contains_key(&ticket) {
                let new = || Waiting { since: record.time, of: Vec::new() };
                hub.waiting.entry(ticket).or_insert_with(new).of.push((record.tap, feed.told));
                feed.waiting += 1;
            }
        }
    }

    /// Tells clients what became of a packet that waited.
    pub(super) fn ended_later(&self, record: &TapRecord<'_>, worker: usize, time: u64) {
        let hub = &mut *self.hub();
        let worker = worker as u32;
        let later = TracedLater { number: 0, time, worker, later: stages(record.comment) };
        if hub.waiting.contains_key(&record.tap) {
            hub.finish(record.tap, &later);
        } else if hub.early.len() < MAX_TICKETS {
            hub.early.insert(record.tap, Early { came: record.time, later });
        }
    }

    /// Lets clients hear something that have not for a while: only by writing is it noticed that one
    /// has gone.
    pub(super) fn look_after(&self, now: Time) {
        let hub = &mut *self.hub();
        // The rings of all workers were read since then.
        hub.early.retain(|_, early| now.since(early.came) < HEARTBEAT);
        let forgotten = hub.waiting.iter().filter(|(_, it)| now.since(it.since) >= PATIENCE);
        for ticket in forgotten.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            let seconds = PATIENCE.as_secs();
            let text = format!("nothing was heard of it for {seconds} s");
            let members = [("seconds".to_owned(), seconds.into())].into_iter().collect();
            let step = Stage { stage: "unknown".to_owned(), text, members };
            hub.finish(ticket, &TracedLater { number: 0, time: 0, worker: 0, later: vec![step] });
        }
        for feed in hub.feeds.values_mut() {
            let Some(trace) = &feed.trace else { continue };
            if now.since(feed.heard) >= HEARTBEAT {
                feed.heard = now;
                send(&feed.sender, &TraceEvent::Status(losses(trace)));
            }
        }
    }

    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    /// Something that waited does so no more.
    fn finish(&mut self, ticket: u64, later: &TracedLater) {
        for (trace, number) in self.waiting.remove(&ticket).into_iter().flat_map(|it| it.of) {
            let Some(feed) = self.feeds.get_mut(&trace) else { continue };
            feed.waiting -= 1;
            let later = TraceEvent::Later(TracedLater { number, ..later.clone() });
            if !send(&feed.sender, &later)
                && let Some(trace) = &feed.trace
            {
                trace.count_lost();
            }
        }
    }
}

impl Feed {
    fn view(&self, id: u64) -> TraceView {
        TraceView {
            id,
            state: RunState::Running,
            trace: self.spec.clone(),
            told: self.told,
            waiting: self.waiting,
            losses: self.trace.as_deref().map(losses).unwrap_or_default(),
            ended: None,
        }
    }
}

fn losses(trace: &Trace) -> TraceLosses {
    TraceLosses { limited: trace.limited(), lost: trace.lost() }
}

/// Reads lines of a stage, what it did in a sentence, and the same as JSON, with tabs between.
fn stages(text: &str) -> Vec<Stage> {
    let stage = |line: &str| {
        let (stage, rest) = line.split_once('\t')?;
        let (text, members) = rest.split_once('\t').unwrap_or((rest, ""));
        let members = Stage::read(members);
        Some(Stage { stage: stage.to_owned(), text: text.to_owned(), members })
    };
    text.lines().filter_map(stage).collect()
}

/// Returns whether there was room, beside that for the end.
fn send(sender: &mpsc::Sender<Bytes>, event: &TraceEvent) -> bool {
    has_room(sender) && send_last(sender, event)
}

/// Returns whether there was room.
fn send_last(sender: &mpsc::Sender<Bytes>, event: &TraceEvent) -> bool {
    let Ok(mut line) = serde_json::to_vec(event) else { return false };
    line.push(b'\n');
    sender.try_send(Bytes::from(line)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use path::TapDirection;
    use tables::Tables;

    fn begun(traces: &Traces, count: u32) -> (u64, TapStream) {
        let mut spec = TraceSpec { id: 0, count: None, rate: None, filter: None, program: vec![] };
        let stream = traces.open(&mut spec).unwrap();
        assert!(traces.is_open(spec.id));
        let mut tables = Tables::new(1, 0);
        let inner = tables::TraceSpec { id: spec.id, count, rate: 1, program: None };
        tables.add_trace(inner).unwrap();
        traces.begin(&tables.traces()[0]);
        assert!(!traces.is_open(spec.id));
        (spec.id, stream)
    }

    fn record(tap: u64) -> TapRecord<'static> {
        TapRecord {
            tap,
            time: Time(5),
            direction: TapDirection::Traced,
            interface: "wan",
            comment: "received\t98 bytes by wan\t{\"length\":98}\ndrop\tno_route: none\t{",
            length: 98,
            bytes: &[],
        }
    }

    fn next(stream: &mut TapStream) -> Option<TraceEvent> {
        let line = stream.receiver.try_recv().ok()?;
        Some(serde_json::from_slice(&line).unwrap())
    }

    #[test]
    fn a_client_is_told_of_its_packets_and_of_the_end() {
        let traces = Traces::default();
        let (id, mut stream) = begun(&traces, 2);
        let (other, mut none) = begun(&traces, 2);
        traces.packet(&record(id), 1, 77);
        assert_eq!(traces.ended(), []);
        let Some(TraceEvent::Packet(packet)) = next(&mut stream) else { panic!("no packet") };
        assert_eq!((packet.number, packet.time, packet.worker), (1, 77, 1));
        let stages: Vec<_> = packet.stages.iter().map(|it| (&it.stage[..], &it.text[..])).collect();
        assert_eq!(stages, [("received", "98 bytes by wan"), ("drop", "no_route: none")]);
        assert_eq!(packet.stages[0].members["length"], 98);
        assert!(packet.stages[1].members.is_empty());
        traces.packet(&record(id), 1, 78);
        assert_eq!(traces.ended(), [(id, "that many were wanted")]);
        traces.end(id, "that many were wanted");
        assert!(matches!(next(&mut stream), Some(TraceEvent::Packet(_))));
        let end = next(&mut stream);
        assert!(matches!(end, Some(TraceEvent::End { why, .. }) if why == "that many were wanted"));
        assert_eq!(next(&mut none), None);
        drop(none);
        assert_eq!(traces.ended(), [(other, "its client has gone")]);
    }

    #[test]
    fn what_a_client_does_not_read_is_lost_and_counted() {
        let traces = Traces::default();
        let (id, mut stream) = begun(&traces, 1000);
        (0..1000).for_each(|_| traces.packet(&record(id), 0, 0));
        // It has ended all the same.
        assert_eq!(traces.ended(), [(id, "that many were wanted")]);
        // Why it has ended is told also who is slow.
        assert!(traces.end(id, "that many were wanted"));
        let mut told: Vec<_> = core::iter::from_fn(|| next(&mut stream)).collect();
        assert!(matches!(told.pop(), Some(TraceEvent::End { losses, .. }) if losses.lost == 744));
        assert_eq!(told.len(), WAITING);
        assert_eq!(traces.absent(id).message, "trace 1 has ended: that many were wanted");
        assert_eq!(traces.absent(id + 1).message, "there is no trace 2");
    }

    #[test]
    fn a_trace_ends_when_what_waits_has_ended() {
        let traces = Traces::default();
        let (id, mut stream) = begun(&traces, 1);
        let (other, mut others) = begun(&traces, 1);
        let tickets = [7_u64, 8].map(u64::to_le_bytes).concat();
        let end = TapRecord {
            tap: 7,
            direction: TapDirection::Ended,
            comment: "waited\t3.000 s\ndrop\tneighbour_unresolved: nobody",
            ..record(id)
        };
        // One part ends at another worker before the packet is told of.
        traces.ended_later(&TapRecord { tap: 8, ..end }, 1, 99);
        traces.packet(&TapRecord { bytes: &tickets, ..record(id) }, 0, 77);
        traces.packet(&TapRecord { bytes: &tickets[..8], ..record(other) }, 0, 77);
        assert!(matches!(next(&mut stream), Some(TraceEvent::Packet(_))));
        let Some(TraceEvent::Later(later)) = next(&mut stream) else { panic!("no end") };
        assert_eq!((later.number, later.time, later.worker, later.later.len()), (1, 99, 1, 2));
        assert_eq!(traces.ended(), []);
        assert_eq!((traces.views()[0].told, traces.views()[0].waiting), (1, 1));
        traces.ended_later(&end, 0, 100);
        assert!(matches!(next(&mut stream), Some(TraceEvent::Later(_))));
        assert!(matches!(next(&mut others), Some(TraceEvent::Packet(_))));
        assert!(matches!(next(&mut others), Some(TraceEvent::Later(_))));
        assert_eq!(traces.ended().len(), 2);
        assert!(traces.end(id, "that many were wanted") && !traces.end(id, "again"));
        assert_eq!(traces.views()[0].ended.as_deref(), Some("that many were wanted"));

        // Nothing is heard of it.
        let (id, mut stream) = begun(&traces, 1);
        traces.packet(&TapRecord { bytes: &tickets[..8], ..record(id) }, 0, 77);
        assert!(matches!(next(&mut stream), Some(TraceEvent::Packet(_))));
        traces.look_after(Time(5) + PATIENCE);
        let Some(TraceEvent::Later(later)) = next(&mut stream) else { panic!("no end") };
        assert_eq!(later.later[0].stage, "unknown");
        assert!(traces.ended().contains(&(id, "that many were wanted")));
    }

    #[test]
    fn there_are_not_more_than_there_may_be() {
        let traces = Traces::default();
        let all: Vec<_> = (0..tables::MAX_TRACES).map(|_| begun(&traces, 1)).collect();
        let mut spec = TraceSpec { id: 0, count: None, rate: None, filter: None, program: vec![] };
        assert!(traces.open(&mut spec).is_err());
        drop(all);
        traces.end_all("the gateway has stopped");
        assert!(!traces.are_there());
    }
}
