//! Gateways that are the same but for their caches.

use std::time::Duration;

use flow::{CacheSettings, CacheStatistics};
use io::memory::{self, MemoryHandle, MemoryOptions};
use packet::{DropReason, Time};
use path::{Arriving, Fate, TapDirection, TapReader, Worker, WorkerSettings, WorkerStatistics};
use tables::{Event, LookupEngine, NextHopId, Publisher, Tables};
use wire::{Mac, Origin, PacketFields, PortId};

use crate::clock;
use crate::fixture::frame;
use crate::world::{Act, QUEUES, World, port_link, port_vlan};

const STATION: Mac = Mac([2, 0xee, 0, 0, 0, 1]);
const BUFFERS: usize = 2048;
/// Bytes of copies for taps: enough for all of some packets.
const COPIES: usize = 1 << 22;

/// A gateway with its own tables, made from the same events as the others'.
pub(crate) struct Twin {
    workers: Vec<Working>,
    publisher: Publisher,
    world: World,
    now: Time,
}

/// A worker with a queue of every port.
struct Working {
    worker: Worker,
    handles: Vec<MemoryHandle>,
    events: rtrb::Consumer<Event>,
    taps: TapReader,
}

/// A copy for a tap: its tap, which way it goes, its port, what was decided, its length and its bytes.
type Copy = (u64, TapDirection, String, String, u32, Vec<u8>);

/// Packets that a worker gets at once, with the ports that they come by.
pub(crate) type Batch<'p> = (usize, &'p [(PortId, Vec<u8>)]);

/// Without the publication since when the event's port is what it is: gateways with spans have others.
fn without_since(mut event: Event) -> Event {
    if let Event::NeighbourSeen { since, .. }
    | Event::NeighbourSilent { since, .. }
    | Event::AddressConflict { since, .. } = &mut event
    {
        *since = 0;
    }
    event
}

/// All that can be seen of a gateway after some packets.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// By port, of each worker.
    frames: Vec<Vec<Vec<u8>>>,
    drops: Vec<(DropReason, u64)>,
    statistics: [u64; 13],
    /// Packets and bytes of every policy that ever was.
    policies: Vec<(u64, u64)>,
    /// And of every filter's rule that ever was.
    filter_rules: Vec<(u64, u64)>,
    /// And of every SA, and its errors.
    sas: Vec<[(u64, u64); 2]>,
    /// And of every next hop that is there.
    next_hops: Vec<(NextHopId, (u64, u64))>,
    /// And of every queueing discipline that ever was: sent, dropped, waiting, marked.
    qdiscs: Vec<[u64; 6]>,
    /// Of every sub-port, received and sent.
    vlans: Vec<[(u64, u64); 2]>,
    /// Of every flow: packets and bytes.
    flows: Vec<(u64, u64)>,
    /// Every connection.
    connections: Vec<conntrack::Connection>,
    /// What helpers expect.
    expectations: Vec<conntrack::Expectation>,
    events: Vec<Event>,
    /// Every copy for a tap, in order.
    pub(crate) copies: Vec<Copy>,
    held: usize,
}

impl Working {
    fn new(index: usize, caches: [CacheSettings; 4], publisher: &Publisher) -> Self {
        let (events_in, events) = rtrb::RingBuffer::new(4096);
        let (_, probes_out) = rtrb::RingBuffer::new(1);
        let settings = WorkerSettings {
            index,
            buffers: BUFFERS,
            seed: [7 + index as u8; 32],
            caches,
            ticks: clock::ticks,
            large_buffers: 64,
            // Few, so that packets are looked up alone and together.
        };
        let mut worker =
            Worker::new(&settings, publisher.shared().reader(), events_in, probes_out).unwrap();
        let (writer, taps) = path::tap_ring(COPIES);
        worker.set_taps(writer);
        let handles = (0..QUEUES)
            .map(PortId)
            .map(|id| {
                let options =
                    MemoryOptions { link: port_link(id), ..MemoryOptions::ethernet("", id) };
                let (port, handle) = memory::port(options, 1024);
                worker.attach(id, Box::new(port));
                handle
            })
            .collect();
        Self { worker, handles, events, taps }
    }

    /// A packet comes in by a port.
    fn push(&mut self, tables: &Tables, id: PortId, packet: &[u8]) {
        let own = tables.port(id).map_or(Mac([2, 0, 0, 0, 0, 0]), |port| port.spec.mac);
        let mut bytes = match port_link(id) {
            packet::LinkKind::Ethernet => frame(own, STATION, packet),
            packet::LinkKind::Ip => packet.to_vec(),
        };
        let mut queue = id;
        while let Some(vlan) = port_vlan(queue) {
            let (protocol, number) = (vlan.tag.protocol.ether_type(), vlan.tag.id.number());
            bytes.splice(12..12, protocol.to_be_bytes().into_iter().chain(number.to_be_bytes()));
            queue = vlan.parent;
        }
        // A full cable is full in all gateways.
        let _ = self.handles[usize::from(queue.0)].push(&bytes);
    }

    /// Handles what has come; what leaves is sorted by the worker's ports.
    fn poll(&mut self, now: Time, frames: &mut [Vec<Vec<u8>>], copies: &mut Vec<Copy>) {
        loop {
            let received = self.worker.poll(now).unwrap();
            for (frames, handle) in frames.iter_mut().zip(&mut self.handles) {
                frames.extend(std::iter::from_fn(|| handle.pop()));
            }
            while let Some(copy) = self.taps.read() {
                let (interface, comment) = (copy.interface.to_owned(), copy.comment.to_owned());
                let bytes = copy.bytes.to_vec();
                copies.push((copy.tap, copy.direction, interface, comment, copy.length, bytes));
            }
            if received == 0 {
                return;
            }
        }
    }
}

impl Twin {
    pub(crate) fn new(engine: LookupEngine, caches: [CacheSettings; 4]) -> Self {
        Self::of(1, engine, caches)
    }

    /// A gateway of so many workers.
    pub(crate) fn of(workers: usize, engine: LookupEngine, caches: [CacheSettings; 4]) -> Self {
        let world = World::of(workers, engine);
        let publisher = Publisher::new(world.tables.clone());
        let workers = (0..workers).map(|index| Working::new(index, caches, &publisher)).collect();
        Self { workers, publisher, world, now: Time(1_000_000_000) }
    }

    /// It lays routes out as if its VRFs were many.
    pub(crate) fn with_spans(mut self) -> Self {
        self.change(|world| world.tables.set_few_vrfs(0));
        self.publisher.settle();
        self
    }

    /// See [`World::found_in_spans`].
    pub(crate) fn found_in_spans(&self) -> [usize; 2] {
        World::found_in_spans(&self.publisher.current())
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Does some things to the tables and publishes them.
    pub(crate) fn publish(&mut self, acts: &[Act]) {
        self.world.now = self.now;
        self.change(|world| acts.iter().for_each(|act| world.apply(act)));
        // Packets come before routes that have changed are laid out anew, or after.
        if acts.len().is_multiple_of(2) {
            self.publisher.settle();
        }
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut World)) {
        self.world.tables = Tables::clone(&self.publisher.current());
        change(&mut self.world);
        self.publisher.publish(self.world.tables.clone());
    }

    /// After some time, packets come in by their ports, all at once.
    pub(crate) fn receive(&mut self, milliseconds: u64, packets: &[(PortId, Vec<u8>)]) -> Seen {
        self.receive_by(milliseconds, &[(0, packets)])
    }

    /// The same by several workers, one batch after the other.
    pub(crate) fn receive_by(&mut self, milliseconds: u64, batches: &[Batch<'_>]) -> Seen {
        self.now = self.now + Duration::from_millis(milliseconds);
        let tables = self.publisher.current();
        let queues = usize::from(QUEUES);
        let frames = vec![Vec::new(); queues * self.workers.len()];
        let mut seen = Seen { frames, ..Seen::default() };
        let mut poll = |working: &mut Working, number: usize| {
            let frames = &mut seen.frames[number * queues..][..queues];
            working.poll(self.now, frames, &mut seen.copies);
        };
        for &(number, packets) in batches {
            let working = &mut self.workers[number];
            packets.iter().for_each(|(id, packet)| working.push(&tables, *id, packet));
            poll(working, number);
        }
        // Time passes for those as well to whom no packet came.
        if self.workers.len() > 1 {
            self.workers.iter_mut().zip(0..).for_each(|(working, number)| poll(working, number));
        }
        self.look(&mut seen);
        seen
    }

    fn statistics(&self) -> impl Iterator<Item = &WorkerStatistics> {
        self.workers.iter().map(|working| &**working.worker.statistics())
    }

    /// The sum of a number of all workers.
    fn sum(&self, number: impl Fn(&WorkerStatistics) -> u64) -> u64 {
        self.statistics().map(number).sum()
    }

    fn look(&mut self, seen: &mut Seen) {
        let counted =
            |reason: &DropReason| (*reason, self.sum(|statistics| statistics.drops.read(*reason)));
        seen.drops = DropReason::ALL.iter().map(counted).filter(|(_, count)| *count > 0).collect();
        for statistics in self.statistics() {
            let counters = [
                &statistics.received,
                &statistics.generated,
                &statistics.forwarded,
                &statistics.encrypted,
                &statistics.decrypted,
                &statistics.consumed,
                &statistics.echo_replies,
                &statistics.icmp_errors,
                &statistics.tcp_resets,
                &statistics.copied,
                &statistics.mss_clamped,
                &statistics.fragmented,
                &statistics.reassembled,
            ];
            for (sum, counter) in seen.statistics.iter_mut().zip(counters) {
                *sum += counter.read();
            }
        }
        seen.policies = self.world.policies.iter().map(|policy| policy.counters.read()).collect();
        let rules = self.world.filter_rules.iter();
        seen.filter_rules = rules.map(|rule| rule.counters.read()).collect();
        seen.sas = self.world.sas.iter().map(|sa| [sa.counters.read(), sa.errors.read()]).collect();
        let qdiscs = self.world.qdiscs.iter();
        seen.qdiscs = qdiscs
            .map(|qdisc| {
                let all = [
                    &qdisc.packets,
                    &qdisc.bytes,
                    &qdisc.drops,
                    &qdisc.backlog,
                    &qdisc.queued,
                    &qdisc.ecn_mark,
                ];
                all.map(packet::Counter::read)
            })
            .collect();
        let tables = self.publisher.current();
        let counters = |id| tables.next_hop_counters(id).unwrap().read();
        seen.next_hops = tables.next_hops().map(|(id, _)| (id, counters(id))).collect();
        let counters = tables.ports().filter_map(|port| tables.port_counters(port.id));
        seen.vlans = counters.map(|all| [all.received(), all.sent()]).collect();
        let counters = |id| tables.flow_meter(id).unwrap().counters.read();
        seen.flows =
            tables.pipeline().sorted().into_iter().map(|entry| counters(entry.id)).collect();
        seen.connections = self.connections();
        seen.expectations = tables.connections().unwrap().expectations();
        seen.expectations.sort_by_cached_key(|expected| format!("{expected:?}"));
        let events = |working: &mut Working| {
            std::iter::from_fn(|| working.events.pop().ok()).map(without_since).collect::<Vec<_>>()
        };
        seen.events = self.workers.iter_mut().flat_map(events).collect();
        seen.held = self.workers.iter().map(|working| working.worker.held()).sum();
    }

    /// What would become of a packet that comes by a port which is there and up.
    pub(crate) fn foretell(
        &self,
        port: PortId,
        packet: &[u8],
        trace: &mut impl path::Trace,
    ) -> Option<Fate> {
        let tables = self.publisher.current();
        let vrf = tables.port(port).filter(|port| port.spec.up)?.spec.vrf;
        let (origin, said) = (Origin::Port(port), PacketFields::ALL);
        let quotes_any_sequence = false;
        let arriving = Arriving { vrf, origin, packet, said, quotes_any_sequence, now: self.now };
        Some(path::foretell(&arriving, &tables, trace))
    }

    pub(crate) fn audit(&self) -> u64 {
        self.sum(audit)
    }

    /// Decisions that were taken from megaflows.
    pub(crate) fn by_megaflow(&self) -> u64 {
        self.sum(|statistics| statistics.decided_by_megaflow.read())
    }

    /// How often a worker has decided about a packet, also if it took what was decided about another.
    pub(crate) fn decided(&self, worker: usize) -> u64 {
        let statistics = self.workers[worker].worker.statistics();
        let all = [&statistics.decided, &statistics.decided_again, &statistics.decided_by_megaflow];
        all.map(packet::Counter::read).iter().sum()
    }

    /// How often a worker has decided again about a packet, as a connection was another one by then.
    pub(crate) fn decided_again(&self, worker: usize) -> u64 {
        self.workers[worker].worker.statistics().decided_again.read()
    }

    /// The connections that there are.
    pub(crate) fn connections(&self) -> Vec<conntrack::Connection> {
        let tables = self.publisher.current();
        let connections = tables.connections().unwrap();
        (0..8).filter_map(|index| connections.connection(index, self.now)).collect()
    }

    /// How many connections there are that a helper has expected.
    pub(crate) fn expected(&self) -> usize {
        self.connections().iter().filter(|one| one.master.is_some()).count()
    }

    /// How many TCP connections are established now.
    pub(crate) fn established(&self) -> usize {
        let all = self.connections().into_iter();
        all.filter(|one| one.state == conntrack::State::Established).count()
    }

    /// Hits, and packets that were decided without looking.
    pub(crate) fn looked(&self) -> (u64, u64) {
        let sum = |number: fn(&CacheStatistics) -> u64| {
            self.sum(|statistics| statistics.caches.iter().map(number).sum())
        };
        (sum(|cache| cache.hits.read()), sum(|cache| cache.bypassed.read()))
    }
}

/// Checks a worker's counters. Returns how many packets it has looked up or decided about.
fn audit(statistics: &WorkerStatistics) -> u64 {
    let (mut total, mut decided) = (0, 0);
    for c in &statistics.caches {
        let misses = c.missed_new.read() + c.missed_stale.read() + c.missed_evicted.read();
        decided += misses + c.bypassed.read();
        total += c.hits.read() + misses + c.bypassed.read();
        assert!(c.restamped.read() <= c.hits.read());
        assert!(c.live.read() <= c.occupied.read(), "{c:?}");
        assert!(c.occupied.read() <= c.buckets.read(), "{c:?}");
        let again = statistics.decided_again.read();
        assert!(c.inserted.read() + c.refused.read() <= misses + again, "{c:?}");
        assert!(c.evicted.read() <= c.inserted.read(), "{c:?}");
    }
    assert_eq!(decided, statistics.decided.read());
    total
}

impl Seen {
    /// What left, by port, in order, of one worker behind the other.
    pub(crate) fn frames(&self) -> &[Vec<Vec<u8>>] {
        &self.frames
    }

    /// What was dropped ever, by reason.
    pub(crate) fn drops(&self) -> &[(DropReason, u64)] {
        &self.drops
    }

    /// What was counted ever.
    pub(crate) fn statistics(&self) -> &[u64] {
        &self.statistics
    }

    /// What waits.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Where two gateways differ, with the packets in hex left out.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if self == other {
            return None;
        }
        let mut text = String::new();
        for (port, (one, two)) in self.frames.iter().zip(&other.frames).enumerate() {
            if one != two {
                let first = one.iter().zip(two).position(|(one, two)| one != two);
                text += &format!(
                    "port {port}: {} and {} frames, the first other one is {first:?}\n",
                    one.len(),
                    two.len()
                );
            }
        }
        if self.drops != other.drops {
            text += &format!("drops: {:?} and {:?}\n", self.drops, other.drops);
        }
        if self.policies != other.policies {
            let differ = self
                .policies
                .iter()
                .zip(&other.policies)
                .enumerate()
                .filter(|(_, (one, two))| one != two);
            text += &format!("policies: {:?}\n", differ.collect::<Vec<_>>());
        }
        if self.filter_rules != other.filter_rules {
            let (mine, theirs) = (&self.filter_rules, &other.filter_rules);
            text += &format!("rules of filters: {mine:?} and {theirs:?}\n");
        }
        if self.next_hops != other.next_hops {
            text += &format!("next hops: {:?} and {:?}\n", self.next_hops, other.next_hops);
        }
        if self.qdiscs != other.qdiscs {
            text += &format!("qdiscs: {:?} and {:?}\n", self.qdiscs, other.qdiscs);
        }
        if self.flows != other.flows {
            text += &format!("flows: {:?} and {:?}\n", self.flows, other.flows);
        }
        if self.connections != other.connections {
            let (mine, theirs) = (&self.connections, &other.connections);
            text += &format!("connections: {mine:#?} and {theirs:#?}\n");
        }
        if self.expectations != other.expectations {
            let (mine, theirs) = (&self.expectations, &other.expectations);
            text += &format!("expectations: {mine:#?} and {theirs:#?}\n");
        }
        if self.copies != other.copies {
            let mut pairs = self.copies.iter().zip(&other.copies);
            let first = pairs.find(|(one, two)| one != two);
            let counts = (self.copies.len(), other.copies.len());
            text += &format!("{counts:?} copies for taps, the first other one: {first:?}\n");
        }
        if self.sas != other.sas {
            text += &format!("SAs: {:?} and {:?}\n", self.sas, other.sas);
        }
        if self.vlans != other.vlans {
            text += &format!("VLANs: {:?} and {:?}\n", self.vlans, other.vlans);
        }
        if self.events != other.events {
            text += &format!("events: {:?} and {:?}\n", self.events, other.events);
        }
        if self.held != other.held {
            text += &format!("held: {} and {}\n", self.held, other.held);
        }
        Some(text + &format!("{:?} and {:?}", self.statistics, other.statistics))
    }
}
