//! The worker: one thread's loop over its queue of every port.

mod traced;

use std::os::fd::RawFd;
use std::sync::Arc;

use flow::{
    CacheSettings, CacheTooLarge, EdgeQueue, FairLimiter, FragmentUpper, Guarantee, NeighbourQueue,
    Reassembly,
};
use packet::{BATCH, Batch, Pages, Pool, Port, PortError, Time};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{Event, HighestShares, Probe, Reader, Tables};
use wire::PortId;

use crate::batch::{Packets, Queues};
use crate::cache::Cache;
use crate::cost::{Early, Pace, Stopwatch, Timed, Watch};
use crate::decide::{Decider, Locality, Megaflows};
use crate::extension::Extensions;
use crate::follower::Follower;
use crate::host::resolve;
use crate::outputs::{Attached, Buffers, Neighbours, Objects, Outputs, Ports, Sent};
use crate::pairs::Pairs;
use crate::stage::apply::{Applier, State, apply};
use crate::stage::confirm::{Confirming, confirm};
use crate::stage::open::{self, Opener, Unstored};
use crate::stage::parse::{Parser, parse_frames, parse_packets};
use crate::stage::queue::{self, Handover, Queueing};
use crate::stage::receive::{drop_of_down, receive};
use crate::stage::seal::seal;
use crate::stage::waiting;
use crate::statistics::WorkerStatistics;
use crate::tap::TapWriter;

/// ICMP errors a worker may send: this many a second, and so many at once (RFC 1812 section
/// 4.3.2.8, RFC 4443 section 2.4 (f)).
const ERROR_RATE: u64 = 1000;
const ERROR_BURST: u64 = 100;

/// Events to the control thread that each VRF may tell, this many a second and at once, while other
/// VRFs tell very many.
const EVENT_RATE: u64 = 64;

/// One of so many large buffers is for packets that wait for neighbours, and as many are for those
/// whose sequence numbers are not stored. Queueing disciplines have half of the buffers, and
/// reassembly 16: so all that wait leave some for what comes in.
const WAITING_LARGE: usize = 8;

/// What a worker needs to know when it is made.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Its number, from 0.
    pub index: usize,
    /// How many packets of up to [`packet::MAX_FRAME`] bytes it may hold at once.
    pub buffers: usize,
    /// How many larger ones besides.
    pub large_buffers: usize,
    /// Seeds its randomness: IVs, and the secrets of its tables. From the system's generator, or
    /// for a replay from the user.
    pub seed: [u8; 32],
    /// The tables of its decision cache, by [`flow::CacheTable`].
    pub caches: [CacheSettings; 4],
    /// Reads a clock that ticks fast and steadily, such as the time-stamp counter: by it the worker
    /// finds out whether the cache pays.
    pub ticks: fn() -> u64,
}

/// One worker. All of its memory is allocated when it is made.
pub struct Worker {
    index: usize,
    pool: Pool,
    ports: Ports,
    statistics: Arc<WorkerStatistics>,
    cache: Cache,
    extensions: Extensions,
    taps: Option<TapWriter>,
    follower: Follower,
    traffic: Traffic,
    /// What the stages hand to each other, empty between rounds but for frames that were put off.
    frames: Box<Batch>,
    /// The port that `frames` came from, if there were newer tables when they had come.
    put_off: Option<PortId>,
    batch: Packets,
    queues: Queues,
    events: rtrb::Producer<Event>,
    probes: rtrb::Consumer<Probe>,
    reader: Reader,
    /// The snapshot of the last round.
    before: Option<Arc<Tables>>,
    /// Which rounds are timed, and by which clock.
    pace: Pace,
    ticks: fn() -> u64,
}

/// What traffic builds, and what the worker draws from for packets of its own.
struct Traffic {
    waiting: NeighbourQueue,
    unstored: EdgeQueue<Unstored>,
    queueing: Queueing,
    reassembly: Reassembly,
    fragments: FragmentUpper,
    /// Of ICMP errors.
    errors: FairLimiter,
    /// Events that each VRF may always tell.
    guaranteed: Guarantee,
    /// The VRFs that may not have all of these.
    highest_shares: HighestShares,
    randomness: StdRng,
    /// Of outer IPv4 headers.
    identification: u16,
    policy_runs: u32,
    tagged_runs: u32,
    /// When connections were left whose deadlines had come.
    connections_due: Option<Time>,
}

impl Traffic {
    /// From now on no VRF takes more than its highest share of what VRFs share.
    fn limit(&mut self, highest: &HighestShares) {
        if Arc::ptr_eq(&self.highest_shares, highest) {
            return;
        }
        self.highest_shares = HighestShares::clone(highest);
        self.waiting.limit(highest);
        self.unstored.limit(highest);
        self.reassembly.limit(highest);
        self.fragments.limit(highest);
        self.errors.limit(highest);
    }
}

impl Worker {
    /// A worker without ports.
    ///
    /// # Errors
    /// The system does not give the memory for a table of the decision cache.
    pub fn new(
        settings: &WorkerSettings,
        reader: Reader,
        events: rtrb::Producer<Event>,
        probes: rtrb::Consumer<Probe>,
    ) -> Result<Self, CacheTooLarge> {
        let mut randomness = StdRng::from_seed(settings.seed);
        let secret = rand::Rng::next_u64(&mut randomness);
        let cache = Cache::new(&settings.caches, &mut randomness, settings.ticks)?;
        let megaflows = Megaflows::new(&settings.caches, secret);
        let pairs = Pairs::new(&settings.caches, secret)?;
        let statistics = Arc::<WorkerStatistics>::default();
        cache.describe(&statistics.caches);
        let waiting_large = settings.large_buffers / WAITING_LARGE;
        Ok(Self {
            index: settings.index,
            pool: Pool::with_large(settings.buffers, settings.large_buffers),
            ports: Vec::new(),
            statistics,
            cache,
            extensions: Extensions::new(megaflows, pairs),
            taps: None,
            follower: Follower::default(),
            traffic: Traffic {
                waiting: NeighbourQueue::new(settings.buffers / 4, waiting_large),
                unstored: EdgeQueue::new(settings.buffers / 4, waiting_large),
                queueing: Queueing::new(
                    settings.index,
                    settings.buffers,
                    settings.large_buffers,
                    secret,
                ),
                reassembly: Reassembly::new(secret),
                fragments: FragmentUpper::new(secret),
                errors: FairLimiter::new(ERROR_RATE, ERROR_BURST, secret),
                guaranteed: Guarantee::new(EVENT_RATE, EVENT_RATE),
                highest_shares: HighestShares::default(),
                randomness,
                identification: 0,
                policy_runs: 0,
                tagged_runs: 0,
                connections_due: None,
            },
            frames: Box::default(),
            put_off: None,
            batch: Packets::default(),
            queues: Queues::default(),
            events,
            probes,
            reader,
            before: None,
            pace: Pace::default(),
            ticks: settings.ticks,
        })
    }

    /// Decides each packet that its decision cache does not know, and takes nothing from megaflows: to
    /// measure what that saves.
    pub fn decide_each(&mut self) {
        self.extensions.megaflows.switch_off();
    }

    /// Takes over a queue of port `id`.
    pub fn attach(&mut self, id: PortId, port: Box<dyn Port>) {
        let index = usize::from(id.0);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        self.ports[index] = Some(Attached::new(port));
        // A packet may have waited for a neighbour on the port before.
        self.traffic.waiting.ask_put_off();
    }

    /// Joins the rings by which workers hand frames to those whose queueing disciplines they are for.
    /// Without, a worker drops frames for another one's.
    pub fn join(&mut self, handover: Handover) {
        self.traffic.queueing.join(handover);
    }

    /// Calls `wake` with the number of each worker to which frames were handed since this was last
    /// called, so that it has to be woken if it sleeps.
    pub fn take_handed_over(&mut self, wake: impl FnMut(usize)) {
        self.traffic.queueing.take_handed_over(wake);
    }

    /// Gives back the queue of port `id`.
    pub fn detach(&mut self, id: PortId) -> Option<Box<dyn Port>> {
        let mut attached = self.ports.get_mut(usize::from(id.0))?.take()?;
        if self.put_off == Some(id) {
            self.put_off = None;
            let Self { pool, statistics, follower, .. } = self;
            drop_of_down(&mut self.frames, &mut Buffers { pool, statistics, follower });
        }
        self.pool.give_all(attached.outgoing.drain(..));
        Some(attached.port)
    }

    /// Writes copies for taps into a ring from now on. Without one they are lost.
    pub fn set_taps(&mut self, writer: TapWriter) {
        self.taps = Some(writer);
    }

    /// The queue of port `id`.
    pub fn port(&self, id: PortId) -> Option<&dyn Port> {
        Some(&*self.ports.get(usize::from(id.0))?.as_ref()?.port)
    }

    /// The queue of port `id`, to feed or drain in replays and tests.
    pub fn port_mut(&mut self, id: PortId) -> Option<&mut (dyn Port + 'static)> {
        Some(&mut *self.ports.get_mut(usize::from(id.0))?.as_mut()?.port)
    }

    /// One round: receive from every port, handle, transmit, and whatever is due by now. Returns how
    /// many packets came in.
    ///
    /// No packet meets tables that had been replaced before it was received: if there are newer ones
    /// then, it is put off to the next round, which counts it again.
    ///
    /// # Errors
    /// A port that is lost for good, with its number. Everything else went on; detach the port and
    /// call again.
    pub fn poll(&mut self, now: Time) -> Result<usize, (PortId, PortError)> {
        let tables = Arc::clone(self.reader.load());
        let received = match self.pace.is_due() {
            false => self.round(&tables, now, &mut ()),
            true => self.timed_round(&tables, now),
        };
        self.statistics.rounds.add(1);
        if received == 0 {
            self.statistics.idle_rounds.add(1);
            self.statistics.held.set(self.held() as u64);
        } else {
            self.pace.busy();
        }
        for (id, attached) in (0..).map(PortId).zip(&mut self.ports) {
            if let Some(error) = attached.as_mut().and_then(|attached| attached.failed.take()) {
                return Err((id, error));
            }
        }
        Ok(received)
    }

    /// Whether packets wait for the next round, as there were newer tables when they had come.
    pub const fn has_put_off(&self) -> bool {
        self.put_off.is_some()
    }

    /// Whether a port has packets that wait for buffers, which no descriptor tells.
    pub fn waits_for_buffers(&self) -> bool {
        self.ports.iter().flatten().any(|attached| attached.port.waits_for_buffers())
    }

    /// What becomes readable when packets wait.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.ports.iter().flatten().filter_map(|attached| attached.port.descriptor())
    }

    /// When [`Worker::poll`] wants to be called though no packet comes.
    pub fn next_deadline(&self) -> Option<Time> {
        let Traffic { waiting, unstored, reassembly, queueing, connections_due, .. } =
            &self.traffic;
        let all = [
            waiting.next_deadline(),
            unstored.next_deadline(),
            reassembly.next_deadline(),
            queueing.next_deadline(),
            *connections_due,
        ];
        all.into_iter().flatten().min()
    }

    /// What it has done.
    pub fn statistics(&self) -> &Arc<WorkerStatistics> {
        &self.statistics
    }

    /// Packets that came in and that it holds now: fragments of incomplete datagrams, what waits for
    /// a neighbour or for its sequence number to be stored, and what waits in queueing disciplines.
    pub fn held(&self) -> usize {
        let (datagrams, fragments) = self.traffic.reassembly.waiting();
        (self.pool.size() - self.pool.available()) - datagrams + fragments
    }

    /// What pages the packets' memory is made of.
    pub fn pages(&self) -> Pages {
        self.pool.pages()
    }

    /// A round of which is noted what each stage costs. While there are traces, packets take the
    /// stages one by one, and it says nothing of what they cost without.
    #[cold]
    #[inline(never)]
    fn timed_round(&mut self, tables: &Arc<Tables>, now: Time) -> usize {
        if tables.is_traced() {
            return self.round(tables, now, &mut ());
        }
        let early = Early::new(self.ticks);
        let mut watch = Stopwatch::start(&early);
        let received = self.round(tables, now, &mut watch);
        watch.write(&self.statistics.costs, received > 0);
        if received > 0 {
            self.pace.timed();
        }
        received
    }

    /// Everything that a round does, in order.
    fn round<'e>(&mut self, tables: &Arc<Tables>, now: Time, watch: &mut impl Watch<'e>) -> usize {
        let is_new = self.before.as_ref().is_none_or(|is| is.generation() != tables.generation());
        let before = if is_new { self.before.replace(Arc::clone(tables)) } else { None };
        if is_new {
            self.cache.snapshot_changed(tables, &self.statistics.caches);
            self.traffic.limit(tables.highest_shares());
            self.follower.snapshot_changed(tables);
        }
        if let Some(before) = &before {
            // What was put off is of flows that may be gone.
            settle(&mut self.extensions, true, Objects::new(before, self.index));
        }
        let Self { index, pool, ports, statistics, cache, extensions, taps, reader, .. } = self;
        let (traffic, frames) = (&mut self.traffic, &mut self.frames);
        let (batch, queues) = (&mut self.batch, &mut self.queues);
        let objects = Objects::new(tables, *index);
        let mut buffers = Buffers { pool, statistics, follower: &mut self.follower };
        if is_new {
            traffic.queueing.snapshot_changed(objects, now, &mut buffers);
        }
        let (events, queueing) = (&mut self.events, &mut traffic.queueing);
        let (guaranteed, sent) = (&mut traffic.guaranteed, Sent::default());
        let early = watch.early();
        let mut outputs =
            Outputs { ports, buffers, events, guaranteed, objects, queueing, now, sent, early };
        watch.lap(Timed::Beside, 0);
        let handed_over = queue::exchange(&mut outputs);
        watch.lap(Timed::Queue, handed_over);
        let mut stages = Stages {
            tables,
            reader,
            locality: Locality::new(tables),
            decider: Decider::new(tables, now),
            neighbours: Neighbours { outputs, waiting: &mut traffic.waiting },
            fragments: &mut traffic.fragments,
            unstored: &mut traffic.unstored,
            cache,
            extensions,
            taps,
            state: State {
                reassembly: &mut traffic.reassembly,
                errors: &mut traffic.errors,
                randomness: &mut traffic.randomness,
                identification: &mut traffic.identification,
                policy_runs: &mut traffic.policy_runs,
                tagged_runs: &mut traffic.tagged_runs,
            },
            batch,
            queues,
        };
        while let Ok(probe) = self.probes.pop() {
            resolve::probe(&mut stages.neighbours.outputs, &probe);
        }
        if let Some(before) = before {
            let (reassembly, fragments) = (&mut *stages.state.reassembly, &mut *stages.fragments);
            let parted = (tables.ports_moved_since(&before), tables.vrfs_gone_since(&before));
            waiting::part(&mut stages.neighbours, reassembly, fragments, &parted);
        }
        if is_new {
            waiting::resume(&mut stages.neighbours);
        }
        // What comes meanwhile waits behind the others of its SA.
        if stages.unstored.next_deadline().is_some_and(|look| look <= now) {
            stages.release(watch);
        }
        watch.lap(Timed::Beside, 0);
        let received = stages.round(frames, &mut self.put_off, watch);
        if stages.extensions.is_to_settle(received >= BATCH, now) {
            stages.settle(true);
        }
        if stages.extensions.are_few_left() {
            stages.sweep();
        }
        let more_are_due = stages.expire_connections();
        if stages.neighbours.outputs.buffers.follower.has_ends() {
            stages.tell_ends();
        }
        stages.neighbours.outputs.write_counts();
        watch.lap(Timed::Beside, 0);
        self.traffic.connections_due = more_are_due.then_some(now);
        received + handed_over
    }
}

/// What the stages need, each of them a part, while one snapshot is used.
struct Stages<'a> {
    /// For traces; the stages have the parts of it that they may see.
    tables: &'a Tables,
    /// To see whether these are still the newest.
    reader: &'a mut Reader,
    locality: Locality<'a>,
    decider: Decider<'a>,
    neighbours: Neighbours<'a>,
    fragments: &'a mut FragmentUpper,
    unstored: &'a mut EdgeQueue<Unstored>,
    cache: &'a mut Cache,
    extensions: &'a mut Extensions,
    taps: &'a mut Option<TapWriter>,
    state: State<'a>,
    batch: &'a mut Packets,
    queues: &'a mut Queues,
}

impl<'t> Stages<'t> {
    /// Every port's packets, what is due, and what the ports are to send. A round that begins with
    /// frames that were put off goes on behind their port, so that no port is passed over.
    fn round<'e>(
        &mut self,
        frames: &mut Box<Batch>,
        put_off: &mut Option<PortId>,
        watch: &mut impl Watch<'e>,
    ) -> usize {
        let ports = self.neighbours.outputs.ports.len();
        let (mut first, mut total) = (0, 0);
        if let Some(id) = put_off.take() {
            first = usize::from(id.0) + 1;
            total = frames.len();
            self.received(id, frames, watch);
        }
        for index in first..ports {
            let id = PortId(index as u16);
            let count = self.receive(id, frames);
            watch.lap(Timed::Receive, count);
            if count == 0 {
                continue;
            }
            total += count;
            if !core::ptr::eq(Arc::as_ptr(self.reader.load()), self.tables) {
                *put_off = Some(id);
                break;
            }
            self.received(id, frames, watch);
        }
        self.timers(watch);
        let left = queue::send(&mut self.neighbours.outputs);
        watch.lap(Timed::Queue, left);
        for index in 0..ports {
            let sent = self.neighbours.outputs.transmit(PortId(index as u16));
            watch.lap(Timed::Transmit, sent);
        }
        total
    }

    /// One batch from a port. Returns how many packets came.
    fn receive(&mut self, id: PortId, frames: &mut Batch) -> usize {
        let Outputs { ports, buffers, now, .. } = &mut self.neighbours.outputs;
        let Some(Some(attached)) = ports.get_mut(usize::from(id.0)) else { return 0 };
        receive(attached, *now, buffers, frames)
    }

    /// Handles what was received from a port.
    fn received<'e>(&mut self, id: PortId, frames: &mut Box<Batch>, watch: &mut impl Watch<'e>) {
        let Outputs { buffers, objects, .. } = &mut self.neighbours.outputs;
        match objects.port(id).filter(|port| port.spec.up) {
            None => drop_of_down(frames, buffers),
            Some(port) if self.tables.is_traced() => self.frames_with_traces(frames, port),
            Some(port) => self.frames(frames, port, watch),
        }
    }

    /// Handles frames of a port.
    #[inline(always)]
    fn frames<'e>(
        &mut self,
        frames: &mut Box<Batch>,
        port: &'t tables::Port,
        watch: &mut impl Watch<'e>,
    ) {
        let count = frames.len();
        let (fragments, neighbours) = (&mut *self.fragments, &mut self.neighbours);
        let mut parser = Parser { locality: self.locality, fragments, neighbours };
        parse_frames(frames, port, self.batch, &mut parser);
        watch.lap(Timed::Parse, count);
        self.stages(watch);
    }

    /// The way of a packet. [`crate::graph`] describes it.
    fn stages<'e>(&mut self, watch: &mut impl Watch<'e>) {
        for depth in 1.. {
            self.decide(watch);
            self.confirm(watch);
            self.apply(watch);
            self.seal(watch);
            self.open(watch);
            if self.queues.again.is_empty() {
                break;
            }
            self.parse(depth, watch);
        }
    }

    /// Looks for extensions that nothing in the cache has any more, a part at a time. No batch is on
    /// its way, so that no decision but those in the cache has one.
    #[cold]
    #[inline(never)]
    fn sweep(&mut self) {
        let now = self.neighbours.outputs.now;
        if let Some(from) = self.extensions.sweep_from(now) {
            let next = self.cache.sweep(from, self.decider, self.extensions);
            self.extensions.swept(now, next);
        }
    }

    /// Takes connections out whose deadlines have come, a bounded number each round, and always more
    /// than were opened since. Returns whether there may be more.
    #[inline(always)]
    fn expire_connections(&mut self) -> bool {
        /// Connections that are looked at.
        const BUDGET: u32 = 256;
        // Those that are left when the flows are gone, too.
        self.tables.connections().is_some_and(|connections| {
            let decider = self.decider;
            let mut ended = |ended: &[_]| decider.connection_ended(ended);
            let budget = BUDGET + connections.made_since();
            connections.expire(decider.now(), budget, &mut ended) >= budget
        })
    }

    fn decide<'e>(&mut self, watch: &mut impl Watch<'e>) {
        if !self.batch.is_empty() {
            let statistics = self.neighbours.outputs.buffers.statistics;
            if self.extensions.has_passed() {
                self.settle(false);
            }
            self.extensions.forget_passing();
            self.cache.decide(self.batch, self.decider, self.extensions, statistics);
            watch.lap(Timed::Decide, self.batch.len());
        }
    }

    /// See [`confirm`]. Without flows there are no connections.
    fn confirm<'e>(&mut self, watch: &mut impl Watch<'e>) {
        if let Some(connections) = self.decider.connections() {
            let statistics = self.neighbours.outputs.buffers.statistics;
            let (cache, decider) = (&mut *self.cache, self.decider);
            let extensions = &mut *self.extensions;
            let mut confirming = Confirming { cache, decider, extensions, statistics };
            confirm(self.batch, connections, &mut confirming);
            statistics.decided_by_megaflow.add(self.extensions.megaflows.taken());
            watch.lap(Timed::Confirm, self.batch.len());
        }
    }

    /// Flows count the packets that they have matched: all, or those alone whose decisions were for one
    /// packet.
    fn settle(&mut self, of_all: bool) {
        settle(self.extensions, of_all, self.neighbours.outputs.objects);
    }

    fn apply<'e>(&mut self, watch: &mut impl Watch<'e>) {
        let count = self.batch.len();
        let (batch, queues) = (&mut *self.batch, &mut *self.queues);
        let state = self.state.reborrow();
        let neighbours = &mut self.neighbours;
        let (extensions, taps) = (&mut *self.extensions, &mut *self.taps);
        let tapped = None;
        apply(batch, queues, &mut Applier { neighbours, state, extensions, taps, tapped });
        watch.lap(Timed::Apply, count);
    }

    fn seal<'e>(&mut self, watch: &mut impl Watch<'e>) {
        let sealing = &mut self.queues.sealing;
        if !sealing.is_empty() {
            let count = sealing.len();
            let state = self.state.reborrow();
            let neighbours = &mut self.neighbours;
            let (extensions, taps) = (&mut *self.extensions, &mut *self.taps);
            let tapped = None;
            seal(sealing, &mut Applier { neighbours, state, extensions, taps, tapped });
            watch.lap(Timed::Seal, count);
        }
    }

    fn open<'e>(&mut self, watch: &mut impl Watch<'e>) {
        if !self.queues.opening.is_empty() {
            let count = self.queues.opening.len();
            let (queues, mut opener) = self.opener();
            open::open(&mut queues.opening, &mut queues.again, &mut opener);
            watch.lap(Timed::Open, count);
        }
    }

    fn opener(&mut self) -> (&mut Queues, Opener<'_, 't>) {
        let Outputs { buffers, objects, events, now, .. } = &mut self.neighbours.outputs;
        let (objects, unstored, now) = (*objects, &mut *self.unstored, *now);
        (self.queues, Opener { objects, buffers, unstored, events, now })
    }

    /// Lets go on what waited until its sequence number may be accepted.
    #[cold]
    fn release<'e>(&mut self, watch: &mut impl Watch<'e>) {
        loop {
            let (queues, mut opener) = self.opener();
            let is_more = open::release(&mut queues.again, &mut opener);
            watch.lap(Timed::Open, 0);
            if !self.queues.again.is_empty() {
                self.parse(0, watch);
                self.stages(watch);
            }
            if !is_more {
                break;
            }
        }
    }

    /// Parses what comes from within: decrypted, made whole, or built here.
    fn parse<'e>(&mut self, depth: usize, watch: &mut impl Watch<'e>) {
        let count = self.queues.again.packets.len();
        let (fragments, neighbours) = (&mut *self.fragments, &mut self.neighbours);
        let mut parser = Parser { locality: self.locality, fragments, neighbours };
        parse_packets(&mut self.queues.again, depth, self.batch, &mut parser);
        watch.lap(Timed::Parse, count);
    }

    /// Whatever is due: questions asked again, packets given up.
    fn timers<'e>(&mut self, watch: &mut impl Watch<'e>) {
        let again = &mut self.queues.again;
        waiting::advance(&mut self.neighbours, self.locality, self.state.errors, again);
        watch.lap(Timed::Waiting, self.queues.again.packets.len());
        if !self.queues.again.is_empty() {
            self.parse(0, watch);
            self.stages(watch);
        }
        let Outputs { buffers, now, .. } = &mut self.neighbours.outputs;
        waiting::expire(self.state.reassembly, *now, buffers);
        watch.lap(Timed::Waiting, 0);
    }
}

/// See [`Extensions::settle`].
#[cold]
fn settle(extensions: &mut Extensions, of_all: bool, objects: Objects<'_>) {
    extensions.settle(of_all, |id, packets, bytes, last| {
        objects.count_flow(id, packets, bytes, last);
    });
}
