//! Taps between workers and clients: a thread takes copies out of the workers' rings and makes a
//! pcapng file of them for each tap, which the server sends to its client.
//!
//! Nothing here waits for a client. Each tap has a bounded queue; what does not fit is lost and
//! counted. The daemon opens no file: the client writes, with its user's rights.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{Refusal, RefusalCode, RunState, TapSpec, TapView};
use axum::body::Bytes;
use hyper::body::{Body, Frame};
use io::pcap::pcapng::{self, EnhancedPacket};
use packet::Time;
use path::{TapDirection, TapReader, TapRecord};
use runtime::clock::Clock;
use tables::Tap;
use tokio::sync::mpsc;

use super::traces::Traces;

/// Bytes of each worker's ring of copies. Pages of it are used when something is in them.
pub(crate) const RING: usize = 4 << 20;

/// Bytes that are sent to a client together, and how many of these may wait for it.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 32;

/// Room of a client's queue that is kept for how its tap or trace ends: what was counted as copied
/// is sent, and the reason with it, however slow the client is.
pub(super) const LAST: usize = 1;

/// How often the rings are emptied while there are taps, and while there are none.
const PERIOD: Duration = Duration::from_millis(5);
const IDLE_PERIOD: Duration = Duration::from_millis(100);

/// What the system's clock may gain or lose on the workers' before it is followed, in nanoseconds.
const DRIFT: u64 = 100_000;

/// Copies taken from one worker before others have their turn.
const AT_ONCE: usize = 4096;

/// How often a client hears of its tap though no packet comes: only by writing is it noticed that
/// it has gone.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);

/// The most interfaces of one file. Packets of further ones are said to be of the first.
const MAX_INTERFACES: usize = 32_768;

/// Taps that have ended and are still shown.
const ENDED: usize = 16;

/// The most taps that begin or are there.
const MAX_FEEDS: usize = tables::MAX_TAPS;

/// All taps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taps(Arc<Mutex<Hub>>);

#[derive(Debug, Default)]
struct Hub {
    last: u64,
    feeds: BTreeMap<u64, Feed>,
    ended: VecDeque<TapView>,
}

/// A tap, and the way to its client.
#[derive(Debug)]
struct Feed {
    spec: TapSpec,
    sender: mpsc::Sender<Bytes>,
    /// Once it is in the tables.
    tap: Option<Arc<Tap>>,
    interfaces: BTreeMap<String, u32>,
    chunk: Vec<u8>,
    /// Losses that the client knows of.
    told: u64,
    /// When the client last heard something.
    heard: Time,
}

/// What a client of a tap or a trace is sent, as it comes to be.
#[derive(Debug)]
pub(crate) struct TapStream {
    pub(super) receiver: mpsc::Receiver<Bytes>,
}

impl TapStream {
    pub(super) fn new(receiver: mpsc::Receiver<Bytes>) -> Self {
        Self { receiver }
    }
}

impl Body for TapStream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.receiver.poll_recv(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

impl Taps {
    /// Prepares a tap, and gives it its number. It begins once it is in the tables.
    ///
    /// # Errors
    /// There are as many as there may be.
    pub(crate) fn open(&self, spec: &mut TapSpec) -> Result<TapStream, Refusal> {
        let mut hub = self.hub();
        if hub.feeds.len() >= MAX_FEEDS {
            let message = format!("there are {MAX_FEEDS} taps already, and there may not be more");
            return Err(Refusal::new(RefusalCode::Full, message));
        }
        hub.last += 1;
        spec.id = hub.last;
        let (sender, receiver) = mpsc::channel(CHUNKS + LAST);
        let feed = Feed {
            spec: TapSpec { program: Vec::new(), ..spec.clone() },
            sender,
            tap: None,
            interfaces: BTreeMap::new(),
            chunk: Vec::new(),
            told: 0,
            heard: Time(0),
        };
        hub.feeds.insert(spec.id, feed);
        Ok(TapStream { receiver })
    }

    /// Whether somebody waits for the packets of a tap that is to begin.
    pub(crate) fn is_open(&self, id: u64) -> bool {
        self.hub().feeds.get(&id).is_some_and(|feed| feed.tap.is_none() && !feed.sender.is_closed())
    }

    /// A tap is in the tables. Its file begins.
    pub(crate) fn begin(&self, tap: &Arc<Tap>) {
        if let Some(feed) = self.hub().feeds.get_mut(&tap.spec.id) {
            let application = concat!("hitpath ", env!("CARGO_PKG_VERSION"));
            pcapng::section(&mut feed.chunk, application);
            feed.tap = Some(Arc::clone(tap));
            let name = match &feed.spec.target {
                api::TapTarget::Port(name) => name.clone(),
                api::TapTarget::Vrf(name) => format!("vrf {name}"),
            };
            feed.interface(&name);
        }
    }

    /// A tap has ended, or never began. Returns whether it was there.
    pub(crate) fn end(&self, id: u64, why: &str) -> bool {
        let mut hub = self.hub();
        let Some(mut feed) = hub.feeds.remove(&id) else { return false };
        if feed.tap.is_some() {
            feed.tell_losses(wall_time(), Some(why));
            feed.send_last();
            if hub.ended.len() == ENDED {
                hub.ended.pop_front();
            }
            let state = RunState::Ended;
            hub.ended.push_back(TapView { state, ended: Some(why.to_owned()), ..feed.view() });
            tracing::info!(tap = id, "the tap has ended: {why}");
        }
        true
    }

    /// The refusal of a tap that [`Taps::end`] has not found.
    pub(crate) fn absent(&self, id: u64) -> Refusal {
        let hub = self.hub();
        let ended = hub.ended.iter().map(|view| (view.id, view.ended.as_ref()));
        absent("tap", id, hub.last, ended)
    }

    /// Ends all.
    pub(crate) fn end_all(&self, why: &str) {
        let ids: Vec<u64> = self.hub().feeds.keys().copied().collect();
        ids.into_iter().for_each(|id| _ = self.end(id, why));
    }

    /// The taps that have begun; if their client has gone, with the reason: it has all its packets, or
    /// nobody knows.
    pub(crate) fn begun(&self) -> Vec<(u64, Option<&'static str>)> {
        let hub = self.hub();
        let why = |(id, feed): (&u64, &Feed)| {
            let copied = feed.tap.as_ref()?.meter.copied();
            let has_all = feed.spec.count.is_some_and(|count| copied >= count);
            let why = if has_all { "that many were wanted" } else { "its client has gone" };
            Some((*id, feed.sender.is_closed().then_some(why)))
        };
        hub.feeds.iter().filter_map(why).collect()
    }

    /// Forgets those that never began and that nobody waits for.
    pub(crate) fn forget_unbegun(&self) {
        self.hub().feeds.retain(|_, feed| feed.tap.is_some() || !feed.sender.is_closed());
    }

    /// All that there are, and those that have ended lately.
    pub(crate) fn views(&self) -> Vec<TapView> {
        let hub = self.hub();
        let running = hub.feeds.values().filter(|feed| feed.tap.is_some()).map(Feed::view);
        hub.ended.iter().cloned().chain(running).collect()
    }

    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    fn view(&self) -> TapView {
        let count = |counter: fn(&tables::TapMeter) -> u64| {
            self.tap.as_ref().map_or(0, |tap| counter(&tap.meter))
        };
        TapView {
            id: self.spec.id,
            state: RunState::Running,
            tap: self.spec.clone(),
            copied: count(tables::TapMeter::copied),
            limited: count(tables::TapMeter::limited),
            lost: count(tables::TapMeter::lost),
            ended: None,
        }
    }

    /// The number of an interface in the file.
    fn interface(&mut self, name: &str) -> u32 {
        if let Some(number) = self.interfaces.get(name) {
            return *number;
        }
        if self.interfaces.len() >= MAX_INTERFACES {
            return 0;
        }
        let number = self.interfaces.len() as u32;
        let snaplen = self.tap.as_ref().map_or(0, |tap| tap.spec.snaplen);
        pcapng::interface(&mut self.chunk, name, snaplen);
        self.interfaces.insert(name.to_owned(), number);
        number
    }

    /// Adds a packet, or counts it as lost. `offset` makes a wall-clock time of the record's.
    fn packet(&mut self, record: &TapRecord<'_>, offset: u64) {
        let Some(tap) = self.tap.clone() else { return };
        if self.chunk.len() >= CHUNK && !self.send() {
            return tap.meter.count_lost();
        }
        let interface = self.interface(record.interface);
        let lost = tap.meter.lost();
        pcapng::packet(
            &mut self.chunk,
            &EnhancedPacket {
                interface,
                time: offset.wrapping_add(record.time.0),
                length: record.length,
                bytes: record.bytes,
                is_outbound: record.direction == TapDirection::Outbound,
                dropped: lost - self.told,
                comment: record.comment,
            },
        );
        self.told = lost;
        tap.meter.count_copied();
    }

    fn tell_losses(&mut self, time: u64, why: Option<&str>) {
        if let Some(tap) = &self.tap {
            let (copied, lost) = (tap.meter.copied(), tap.meter.lost());
            pcapng::statistics(&mut self.chunk, 0, time, (copied + lost, lost), why);
        }
    }

    /// Sends what there is. Returns false if the client has too much before it.
    fn send(&mut self) -> bool {
        has_room(&self.sender) && self.send_last()
    }

    /// The same into the room that is kept for the end.
    fn send_last(&mut self) -> bool {
        match self.sender.try_reserve() {
            Ok(place) => {
                place.send(Bytes::from(std::mem::take(&mut self.chunk)));
                true
            }
            Err(mpsc::error::TrySendError::Full(())) => false,
            // The tap is about to end.
            Err(mpsc::error::TrySendError::Closed(())) => {
                self.chunk.clear();
                true
            }
        }
    }
}

/// Whether a client's queue has room beside that for the end.
pub(super) fn has_room(sender: &mpsc::Sender<Bytes>) -> bool {
    sender.is_closed() || sender.capacity() > LAST
}

/// The refusal of a tap or trace, `what`, that is not there. `ended` has the numbers of those that
/// have ended lately, and the reasons.
pub(super) fn absent<'e>(
    what: &str,
    id: u64,
    last: u64,
    mut ended: impl Iterator<Item = (u64, Option<&'e String>)>,
) -> Refusal {
    let message = match ended.find(|(ended, _)| *ended == id) {
        Some((_, Some(why))) => format!("{what} {id} has ended: {why}"),
        // Of one that never began, its command was told why.
        _ if (1..=last).contains(&id) => format!("{what} {id} has ended"),
        _ => format!("there is no {what} {id}"),
    };
    Refusal::new(RefusalCode::NotFound, message).with_hint(format!("hitpath {what} show"))
}

/// Starts the thread that empties the workers' rings. It ends with the process.
///
/// # Errors
/// If the system gives no thread.
pub(crate) fn start(
    mut readers: Vec<TapReader>,
    (taps, traces): (Taps, Traces),
    clock: Clock,
) -> std::io::Result<()> {
    let mut wall = Wall { clock, offset: 0 };
    let run = move || loop {
        let (is_used, is_full) = empty(&mut readers, (&taps, &traces), &mut wall);
        match (is_used, is_full) {
            (_, true) => thread::yield_now(),
            (true, false) => thread::sleep(PERIOD),
            (false, false) => thread::sleep(IDLE_PERIOD),
        }
    };
    thread::Builder::new().name("taps".into()).spawn(run).map(drop)
}

/// Takes copies and traces out of the rings. Returns whether somebody wants any, and whether more
/// wait.
fn empty(
    readers: &mut [TapReader],
    (taps, traces): (&Taps, &Traces),
    wall: &mut Wall,
) -> (bool, bool) {
    let mut hub = taps.hub();
    let (now, offset) = wall.look();
    let wall = offset.wrapping_add(now.0);
    let mut is_full = false;
    for (worker, reader) in readers.iter_mut().enumerate() {
        let mut left = AT_ONCE;
        while left > 0 {
            let Some(record) = reader.read() else { break };
            // Of one that has ended, nobody wants it.
            let time = offset.wrapping_add(record.time.0);
            if record.direction == TapDirection::Traced {
                traces.packet(&record, worker, time);
            } else if record.direction == TapDirection::Ended {
                traces.ended_later(&record, worker, time);
            } else if let Some(feed) = hub.feeds.get_mut(&record.tap) {
                feed.packet(&record, offset);
            }
            left -= 1;
        }
        is_full |= left == 0;
    }
    for feed in hub.feeds.values_mut().filter(|feed| feed.tap.is_some()) {
        if feed.chunk.is_empty() && now.since(feed.heard) >= HEARTBEAT {
            feed.tell_losses(wall, None);
        }
        if !feed.chunk.is_empty() && feed.send() {
            feed.heard = now;
        }
    }
    traces.look_after(now);
    (!hub.feeds.is_empty() || traces.are_there(), is_full)
}

/// Makes times since 1970 of the workers' times.
struct Wall {
    clock: Clock,
    /// From the workers' time to that since 1970.
    offset: u64,
}

impl Wall {
    /// The workers' time, and what makes times since 1970 of such.
    ///
    /// That is steady while the system's clock is. If it were taken anew each time, copies of one
    /// packet for several taps, which may be read at different times, would have different times,
    /// and packets of one file times in the wrong order.
    fn look(&mut self) -> (Time, u64) {
        let (before, wall, after) = (self.clock.now(), wall_time(), self.clock.now());
        let offset = wall.wrapping_sub(before.0);
        let is_off = offset.wrapping_sub(self.offset).cast_signed().unsigned_abs() > DRIFT;
        // The thread may have been made to wait between the clocks.
        let is_exact = after.since(before).as_nanos() < u128::from(DRIFT);
        if is_off && (is_exact || self.offset == 0) {
            self.offset = offset;
        }
        (after, self.offset)
    }
}

/// Nanoseconds since 1970.
fn wall_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use tables::{FilterTarget, TapMeter, TapPoints};
    use wire::VrfId;

    fn begun(taps: &Taps) -> (Arc<Tap>, TapStream) {
        let target = api::TapTarget::Vrf("main".into());
        let mut spec = TapSpec {
            id: 0,
            target,
            points: vec![],
            snaplen: None,
            rate: None,
            count: Some(2),
            filter: None,
            program: vec![],
        };
        let stream = taps.open(&mut spec).unwrap();
        let spec = tables::TapSpec {
            id: spec.id,
            target: FilterTarget::Vrf(VrfId::MAIN),
            points: TapPoints::default(),
            snaplen: 100,
            rate: None,
            program: None,
        };
        let tap = Arc::new(Tap { spec, meter: TapMeter::default() });
        taps.begin(&tap);
        (tap, stream)
    }

    fn record(tap: u64, bytes: &[u8]) -> TapRecord<'_> {
        TapRecord {
            tap,
            time: Time(5),
            direction: TapDirection::Inbound,
            interface: "wan",
            comment: "vrf main",
            length: bytes.len() as u32,
            bytes,
        }
    }

    #[test]
    fn a_client_that_has_what_it_wanted_has_not_just_gone() {
        let taps = Taps::default();
        for (packets, why) in [(1, "its client has gone"), (2, "that many were wanted")] {
            let (tap, stream) = begun(&taps);
            let id = tap.spec.id;
            for _ in 0..packets {
                taps.hub().feeds.get_mut(&id).unwrap().packet(&record(id, &[0x45]), 0);
            }
            assert_eq!(taps.begun(), [(id, None)]);
            drop(stream);
            assert_eq!(taps.begun(), [(id, Some(why))]);
            assert!(taps.end(id, why));
        }
    }

    #[test]
    fn a_client_that_does_not_read_loses_packets_and_no_memory_grows() {
        let taps = Taps::default();
        let (tap, mut stream) = begun(&taps);
        let bytes = [0; 1000];
        for _ in 0..10_000 {
            let mut hub = taps.hub();
            hub.feeds.get_mut(&tap.spec.id).unwrap().packet(&record(tap.spec.id, &bytes), 0);
        }
        assert_eq!(tap.meter.copied() + tap.meter.lost(), 10_000);
        assert!(tap.meter.lost() > 5000, "{}", tap.meter.lost());
        let mut waiting = 0;
        while let Ok(chunk) = stream.receiver.try_recv() {
            assert!(chunk.len() < CHUNK + 2000);
            waiting += chunk.len();
        }
        assert!(waiting <= CHUNKS * (CHUNK + 2000));
        // It reads again, and is told.
        let mut hub = taps.hub();
        let feed = hub.feeds.get_mut(&tap.spec.id).unwrap();
        feed.packet(&record(tap.spec.id, &bytes), 0);
        assert_eq!(feed.told, tap.meter.lost());
    }

    #[test]
    fn a_client_that_is_slow_gets_all_that_was_copied_and_the_reason() {
        let taps = Taps::default();
        let (tap, mut stream) = begun(&taps);
        let id = tap.spec.id;
        for _ in 0..10_000 {
            taps.hub().feeds.get_mut(&id).unwrap().packet(&record(id, &[0x5a; 1000]), 0);
        }
        let lost = tap.meter.lost();
        assert!(lost > 5000, "the queue is full");
        assert!(taps.end(id, "deleted by command"));
        let mut file = Vec::new();
        while let Ok(chunk) = stream.receiver.try_recv() {
            file.extend_from_slice(&chunk);
        }
        let begins = |bytes: &&[u8]| bytes[0] != 0x5a && bytes[1..] == [0x5a; 100];
        let in_file = file.windows(101).filter(begins).count();
        assert_eq!((in_file as u64, tap.meter.lost()), (10_000 - lost, lost));
        assert!(file.windows(18).any(|part| part == b"deleted by command"));
    }

    #[test]
    fn one_that_has_ended_is_not_said_to_have_never_been() {
        let taps = Taps::default();
        let (tap, _stream) = begun(&taps);
        let says = |id: u64| taps.absent(id).message;
        assert_eq!(says(tap.spec.id + 1), "there is no tap 2");
        assert!(taps.end(tap.spec.id, "its client has gone"));
        assert_eq!(says(tap.spec.id), "tap 1 has ended: its client has gone");
        for _ in 0..ENDED {
            let (tap, _stream) = begun(&taps);
            assert!(taps.end(tap.spec.id, "deleted by command"));
        }
        assert_eq!(says(tap.spec.id), "tap 1 has ended");
        assert_eq!(says(0), "there is no tap 0");
    }

    #[test]
    fn times_of_the_system_follow_its_clock_and_not_the_scheduler() {
        let mut wall = Wall { clock: Clock::start(), offset: 0 };
        // The first look may have been interrupted.
        let first = (0..100).map(|_| wall.look().1).last().unwrap();
        assert!(first > 0);
        // It is taken anew at most once, if the system's clock was set right meanwhile.
        let offsets: BTreeSet<u64> = (0..10_000).map(|_| wall.look().1).collect();
        assert!(offsets.len() <= 2, "{offsets:?}");
        // The clock was set.
        wall.offset -= 10 * DRIFT;
        while wall.look().1 == first - 10 * DRIFT {}
        assert!(wall.look().1.abs_diff(first) <= 2 * DRIFT);
    }

    #[test]
    fn a_tap_ends_with_its_client_and_its_file_with_the_tap() {
        let taps = Taps::default();
        let (first, stream) = begun(&taps);
        let (second, mut other) = begun(&taps);
        assert_eq!(taps.begun(), [(first.spec.id, None), (second.spec.id, None)]);
        drop(stream);
        let gone = Some("its client has gone");
        assert_eq!(taps.begun(), [(first.spec.id, gone), (second.spec.id, None)]);
        assert!(taps.end(second.spec.id, "deleted"));
        assert!(!taps.end(second.spec.id, "deleted"));
        let file = other.receiver.try_recv().unwrap();
        assert!(file.windows(7).any(|part| part == b"deleted"));
        assert!(other.receiver.try_recv().is_err());
        let views = taps.views();
        assert_eq!(views[0].ended.as_deref(), Some("deleted"));
        assert_eq!(views.len(), 2);
    }
}
