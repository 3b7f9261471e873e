//! Traces between workers and clients: the thread that empties the workers' rings makes lines of JSON
//! of them, which the server sends to each trace's client.
//!
//! Nothing here waits for a client. What does not fit into a trace's bounded queue is lost and
//! counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{Refusal, RefusalCode, Step, TraceEvent, TraceLosses, TraceSpec, TracedPacket};
use axum::body::Bytes;
use packet::Time;
use path::TapRecord;
use tables::Trace;
use tokio::sync::mpsc;

use super::taps::{HEARTBEAT, TapStream};

/// Packets and other events that may wait for a client.
const WAITING: usize = 256;

/// All traces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Arc<Mutex<Hub>>);

#[derive(Debug, Default)]
struct Hub {
    last: u64,
    feeds: BTreeMap<u64, Feed>,
}

/// A trace, and the way to its client.
#[derive(Debug)]
struct Feed {
    sender: mpsc::Sender<Bytes>,
    /// Once it is in the tables.
    trace: Option<Arc<Trace>>,
    told: u32,
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
        let (sender, receiver) = mpsc::channel(WAITING);
        hub.feeds.insert(spec.id, Feed { sender, trace: None, told: 0, heard: Time(0) });
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

    /// A trace has ended, or never began.
    pub(crate) fn end(&self, id: u64, why: &str) {
        let feed = self.hub().feeds.remove(&id);
        if let Some(Feed { trace: Some(trace), sender, told, .. }) = feed {
            send(&sender, &TraceEvent::End { why: why.to_owned(), losses: losses(&trace) });
            tracing::info!(trace = id, packets = told, "the trace has ended: {why}");
        }
    }

    /// Ends all.
    pub(crate) fn end_all(&self, why: &str) {
        let ids: Vec<u64> = self.hub().feeds.keys().copied().collect();
        ids.into_iter().for_each(|id| self.end(id, why));
    }

    /// The traces that have ended, with the reason: all their packets were told of or lost, or their
    /// client has gone. Those that never began are forgotten.
    pub(crate) fn ended(&self) -> Vec<(u64, &'static str)> {
        let mut hub = self.hub();
        hub.feeds.retain(|_, feed| feed.trace.is_some() || !feed.sender.is_closed());
        let why = |(id, feed): (&u64, &Feed)| {
            let trace = feed.trace.as_ref()?;
            let told = u64::from(feed.told) + trace.lost();
            match told >= u64::from(trace.spec.count) {
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
        let mut hub = self.hub();
        let Some(feed) = hub.feeds.get_mut(&record.tap) else { return };
        let Some(trace) = &feed.trace else { return };
        let event = TraceEvent::Packet(TracedPacket {
            number: feed.told + 1,
            time,
            worker: worker as u32,
            port: record.interface.to_owned(),
            length: record.length,
            steps: steps(record.comment),
        });
        match send(&feed.sender, &event) {
            true => feed.told += 1,
            false => trace.count_lost(),
        }
    }

    /// Lets clients hear something that have not for a while: only by writing is it noticed that one
    /// has gone.
    pub(super) fn look_after(&self, now: Time) {
        for feed in self.hub().feeds.values_mut() {
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

fn losses(trace: &Trace) -> TraceLosses {
    TraceLosses { limited: trace.limited(), lost: trace.lost() }
}

/// Reads lines of a stage, a tab, and what it did.
fn steps(text: &str) -> Vec<Step> {
    let step = |line: &str| {
        let (step, text) = line.split_once('\t')?;
        Some(Step { step: step.to_owned(), text: text.to_owned() })
    };
    text.lines().filter_map(step).collect()
}

/// Returns whether there was room.
fn send(sender: &mpsc::Sender<Bytes>, event: &TraceEvent) -> bool {
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
        let mut spec = TraceSpec { id: 0, count: None, rate: None, program: vec![] };
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
            comment: "received\t98 bytes by wan\ndrop\tno_route: none",
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
        let steps: Vec<_> = packet.steps.iter().map(|it| (&it.step[..], &it.text[..])).collect();
        assert_eq!(steps, [("received", "98 bytes by wan"), ("drop", "no_route: none")]);
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
        let told = core::iter::from_fn(|| next(&mut stream)).count();
        assert_eq!(told, WAITING);
    }

    #[test]
    fn there_are_not_more_than_there_may_be() {
        let traces = Traces::default();
        let all: Vec<_> = (0..tables::MAX_TRACES).map(|_| begun(&traces, 1)).collect();
        let mut spec = TraceSpec { id: 0, count: None, rate: None, program: vec![] };
        assert!(traces.open(&mut spec).is_err());
        drop(all);
        traces.end_all("the gateway has stopped");
        assert!(!traces.are_there());
    }
}
