//! The worker: one thread's loop over its queue of every port.

use std::os::fd::RawFd;
use std::sync::Arc;

use flow::{CacheSettings, CacheTooLarge, FairLimiter, FragmentUpper, NeighbourQueue, Reassembly};
use packet::{Batch, DropReason, Packet, Pool, Port, PortError, Time};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{Event, Probe, Reader, Tables};
use wire::PortId;

use crate::caches::{Caches, Room};
use crate::host::resolve;
use crate::lane::{Lane, Lanes};
use crate::recent::Recent;
use crate::statistics::WorkerStatistics;

/// ICMP errors a worker may send: this many a second, and so many at once (RFC 1812 section
/// 4.3.2.8, RFC 4443 section 2.4 (f)).
const ERROR_RATE: u64 = 1000;
const ERROR_BURST: u64 = 100;

/// What a worker needs to know when it is made.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Its number, from 0.
    pub index: usize,
    /// How many packets it may hold at once.
    pub buffers: usize,
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
    pub(crate) index: usize,
    pub(crate) pool: Pool,
    pub(crate) ports: Vec<Option<Attached>>,
    pub(crate) randomness: StdRng,
    pub(crate) statistics: Arc<WorkerStatistics>,
    /// Away while its packets are sent on.
    pub(crate) neighbours: Option<NeighbourQueue>,
    pub(crate) reassembly: Reassembly,
    pub(crate) fragment_upper: FragmentUpper,
    pub(crate) errors: FairLimiter,
    /// Identification of outer IPv4 headers.
    pub(crate) identification: u16,
    reader: Reader,
    events: rtrb::Producer<Event>,
    probes: rtrb::Consumer<Probe>,
    generation: Option<u64>,
    /// Of that generation.
    pub(crate) recent: Recent,
    /// How often the policy changed from one packet of the last batch to the next.
    pub(crate) policy_runs: u32,
    /// Away while a batch is decided.
    pub(crate) caches: Option<Box<Caches>>,
    pub(crate) ticks: fn() -> u64,
    /// Away while a round uses them.
    lanes: Option<Box<Lanes>>,
}

/// A port's queue and what is to leave by it.
pub(crate) struct Attached {
    pub port: Box<dyn Port>,
    pub outgoing: Batch,
    failed: Option<PortError>,
}

/// One round's view: the worker, the snapshot that the whole round uses, and the time.
pub(crate) struct Round<'a> {
    pub worker: &'a mut Worker,
    pub tables: &'a Tables,
    pub now: Time,
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
        let caches = Caches::new(&settings.caches, &mut randomness)?;
        let statistics = Arc::<WorkerStatistics>::default();
        caches.describe(&statistics.caches);
        Ok(Self {
            index: settings.index,
            pool: Pool::new(settings.buffers),
            ports: Vec::new(),
            statistics,
            neighbours: Some(NeighbourQueue::new(settings.buffers / 4)),
            reassembly: Reassembly::new(secret),
            fragment_upper: FragmentUpper::new(secret),
            errors: FairLimiter::new(ERROR_RATE, ERROR_BURST, secret),
            identification: 0,
            reader,
            events,
            probes,
            generation: None,
            recent: Recent::default(),
            policy_runs: 0,
            caches: Some(Box::new(caches)),
            ticks: settings.ticks,
            lanes: Some(Box::default()),
            randomness,
        })
    }

    /// Takes over a queue of port `id`.
    pub fn attach(&mut self, id: PortId, port: Box<dyn Port>) {
        let index = usize::from(id.0);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        self.ports[index] = Some(Attached { port, outgoing: Batch::new(), failed: None });
    }

    /// Gives back the queue of port `id`.
    pub fn detach(&mut self, id: PortId) -> Option<Box<dyn Port>> {
        let mut attached = self.ports.get_mut(usize::from(id.0))?.take()?;
        self.pool.give_all(attached.outgoing.drain(..));
        Some(attached.port)
    }

    /// The queue of port `id`.
    pub fn port(&self, id: PortId) -> Option<&dyn Port> {
        Some(&*self.ports.get(usize::from(id.0))?.as_ref()?.port)
    }

    /// The queue of port `id`, to feed or drain in replays and tests.
    pub fn port_mut(&mut self, id: PortId) -> Option<&mut (dyn Port + 'static)> {
        Some(&mut *self.ports.get_mut(usize::from(id.0))?.as_mut()?.port)
    }

    /// One round: receive from every port, handle, transmit, and whatever is due by now. Answers
    /// how many packets came in.
    ///
    /// # Errors
    /// A port that is lost for good, with its number. Everything else went on; detach the port and
    /// call again.
    pub fn poll(&mut self, now: Time) -> Result<usize, (PortId, PortError)> {
        let tables = Arc::clone(self.reader.load());
        let mut lanes = self.lanes.take().unwrap_or_default();
        let received = Round { worker: self, tables: &tables, now }.run(&mut lanes);
        self.lanes = Some(lanes);
        self.statistics.rounds.add(1);
        if received == 0 {
            self.statistics.idle_rounds.add(1);
        }
        for (id, attached) in (0..).map(PortId).zip(&mut self.ports) {
            if let Some(error) = attached.as_mut().and_then(|attached| attached.failed.take()) {
                return Err((id, error));
            }
        }
        Ok(received)
    }

    /// What becomes readable when packets wait.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.ports.iter().flatten().filter_map(|attached| attached.port.descriptor())
    }

    /// When [`Worker::poll`] wants to be called though no packet comes.
    pub fn next_deadline(&self) -> Option<Time> {
        [
            self.neighbours.as_ref().and_then(NeighbourQueue::next_deadline),
            self.reassembly.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// What it has done.
    pub fn statistics(&self) -> &Arc<WorkerStatistics> {
        &self.statistics
    }

    /// Packets that came in and that it holds now: fragments of incomplete datagrams, and what
    /// waits for a neighbour.
    pub fn held(&self) -> usize {
        let (datagrams, fragments) = self.reassembly.waiting();
        (self.pool.size() - self.pool.available()) - datagrams + fragments
    }
}

impl Round<'_> {
    /// Everything that a round does, in order.
    fn run(&mut self, lanes: &mut Lanes) -> usize {
        let mut total = 0;
        self.changes();
        for index in 0..self.worker.ports.len() {
            let id = PortId(index as u16);
            let received = self.receive(id, &mut lanes.onward.again);
            total += received;
            if received > 0 {
                self.stages(lanes);
            }
        }
        self.timers(lanes);
        for index in 0..self.worker.ports.len() {
            self.transmit(PortId(index as u16));
        }
        total
    }

    /// The way of a packet. `crate::graph` describes it.
    pub(crate) fn stages(&mut self, lanes: &mut Lanes) {
        for depth in 0.. {
            let Lanes { flights, onward } = lanes;
            if onward.again.is_empty() {
                break;
            }
            self.parse(&mut onward.again, flights, depth);
            self.decide(flights);
            self.apply(flights, onward);
            self.seal(&mut onward.sealing);
            self.open(&mut onward.opening, &mut onward.again);
        }
    }

    /// What the control thread changed or asked for since the last round.
    fn changes(&mut self) {
        while let Ok(probe) = self.worker.probes.pop() {
            resolve::probe(self, &probe);
        }
        let generation = Some(self.tables.generation());
        if self.worker.generation != generation {
            self.worker.generation = generation;
            self.worker.recent = Recent::of(self.tables);
            self.recount_live_entries();
            self.resume_waiting();
        }
    }

    /// A change of a policy sets the counts of live entries to zero, though no packet may come to
    /// show it.
    fn recount_live_entries(&mut self) {
        fn live<const KEY: usize>(room: &mut Room<KEY>, generation: u64) -> u64 {
            let Some(table) = &mut room.table else { return 0 };
            table.policies_changed(generation);
            table.counts.live
        }
        let Some(caches) = &mut self.worker.caches else { return };
        let generation = self.tables.policy_generation();
        let [v4_out, v4_in] = caches.v4.each_mut().map(|room| live(room, generation));
        let [v6_out, v6_in] = caches.v6.each_mut().map(|room| live(room, generation));
        for (statistics, live) in
            self.worker.statistics.caches.iter().zip([v4_out, v4_in, v6_out, v6_in])
        {
            statistics.live.set(live);
        }
    }

    /// Counts a packet as dropped and takes its buffer back.
    #[inline]
    pub(crate) fn drop(&mut self, packet: Packet, reason: DropReason) {
        self.worker.statistics.drops.add(reason, 1);
        self.worker.pool.give(packet);
    }

    /// Counts a packet as consumed and takes its buffer back.
    pub(crate) fn consume(&mut self, packet: Packet) {
        self.worker.statistics.consumed.add(1);
        self.worker.pool.give(packet);
    }

    /// An empty packet for something that the gateway says itself.
    pub(crate) fn new_packet(&mut self, port: PortId) -> Option<Packet> {
        let Some(mut packet) = self.worker.pool.take() else {
            self.worker.statistics.drops.add(DropReason::NoBuffer, 1);
            return None;
        };
        packet.set_port(port);
        self.worker.statistics.generated.add(1);
        Some(packet)
    }

    /// Tells the control thread.
    pub(crate) fn tell(&mut self, event: Event) {
        if self.worker.events.push(event).is_err() {
            self.worker.statistics.events_lost.add(1);
        }
    }

    /// Puts a packet into the stages (again).
    pub(crate) fn again(&mut self, lane: &mut Lane, packet: Packet, arrival: crate::lane::Arrival) {
        if let Err(packet) = lane.push(packet, arrival) {
            self.drop(packet, DropReason::NoBuffer);
        }
    }
}

impl Attached {
    pub(crate) fn fail(&mut self, error: PortError) {
        self.failed.get_or_insert(error);
    }
}
