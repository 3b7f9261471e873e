//! The device under test: one worker with two memory ports, and traffic both ways. What is compared
//! are tables: they are published to the same worker one after the other, so that the memory of its
//! ports, buffers and caches is the same. By where that lies, two workers differ by more than VRFs
//! cost.

use anyhow::{bail, ensure};
use flow::{Associativity, CacheMode, CacheSettings, CacheTable};
use io::memory::{self, MemoryHandle, MemoryOptions};
use packet::{BATCH, Port, Time};
use path::{TapReader, Worker, WorkerSettings};
use tables::{Publisher, Tables};

use super::frames::{Flow, Template, Transport, Use};
use super::layout::{Layout, Side};
use super::setup::{self, LOOP, Setup};
use crate::dut::{self, SETTLING, dropped};
use crate::frame::Family;
use crate::measure::{Effort, Lookups, Meter, Sample, Stopwatch};
use crate::topology::{IN, OUT};
use crate::traffic::{Spread, Traffic};

/// How packets follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pattern {
    /// Full segments one way, and an acknowledgement for every second one the other way
    Stream,
    /// A request, then its response, one packet at a time
    Rr,
}

/// What a worker's traffic is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub pattern: Pattern,
    pub transport: Transport,
    pub family: Family,
    pub flows: u32,
    /// Where a second tenant has traffic that is not measured, it comes before one of so many
    /// rounds; never if 0.
    pub others_every: u64,
}

/// Time that passes from one round to the next: enough for a token bucket to fill.
const ROUND: u64 = 1_000_000;

/// Bytes of copies for taps: more than a round makes.
const COPIES: usize = 4 << 20;

/// How often a worker is called at most until everything is out: a packet that takes the detour
/// comes in twice.
const POLLS: usize = 4;

/// The worker, its ports, and where its traffic is.
pub(crate) struct Device {
    workload: Workload,
    worker: Worker,
    handles: [MemoryHandle; 2],
    /// The ends of the cable while it is not plugged in.
    cable: Vec<Box<dyn Port>>,
    /// Where copies for taps come out. The gateway has a thread that takes them.
    copies: TapReader,
    publisher: Publisher,
    layout: Layout,
    has_loop: bool,
    has_other: bool,
    templates: [Template; 2],
    traffic: [Traffic; 2],
    frame: Vec<u8>,
    rounds: u64,
    /// Whether callgrind counts.
    is_counted: bool,
    /// Which of its tables the decision cache has at all.
    cached: [bool; 4],
    /// Packets of the first tenants, and of the second one where it has traffic of its own.
    pub(crate) sent: [u64; 2],
    /// Copies for taps.
    pub(crate) copied: u64,
}

impl Device {
    /// One without tables.
    ///
    /// # Errors
    /// If there is no memory for its cache.
    pub(crate) fn new(
        workload: Workload,
        caches: [CacheSettings; 4],
        ticks: fn() -> u64,
    ) -> anyhow::Result<Self> {
        let (client, client_handle) = memory::port(MemoryOptions::ethernet("in", IN), 2 * BATCH);
        let (server, server_handle) = memory::port(MemoryOptions::ethernet("out", OUT), 2 * BATCH);
        let [near, far] = LOOP.map(|id| MemoryOptions::ethernet("loop", id));
        let (near, far) = memory::pair(near, far, memory::DEFAULT_DEPTH);
        let (events, _) = rtrb::RingBuffer::new(16);
        let (_, probes) = rtrb::RingBuffer::new(16);
        let settings = WorkerSettings {
            index: 0,
            // A queueing discipline may hold a quarter.
            buffers: 16 * BATCH,
            seed: [1; 32],
            caches,
            ticks,
            large_buffers: 0,
        };
        let publisher = Publisher::new(Tables::new(1, 1));
        let mut worker = Worker::new(&settings, publisher.shared().reader(), events, probes)?;
        let (writer, copies) = path::tap_ring(COPIES);
        worker.set_taps(writer);
        worker.attach(IN, Box::new(client));
        worker.attach(OUT, Box::new(server));
        let Workload { pattern, transport, family, .. } = workload;
        let uses = match pattern {
            Pattern::Stream => [Use::Segment, Use::Ack],
            Pattern::Rr => [Use::Message; 2],
        };
        let template = |at: usize| {
            Template::new(family, transport, uses[at], setup::mac(Side::BOTH[at].port()))
        };
        let links = super::layout::Links::Untagged;
        Ok(Self {
            workload,
            worker,
            handles: [client_handle, server_handle],
            cable: vec![Box::new(near), Box::new(far)],
            copies,
            publisher,
            layout: Layout { tenants: 1, links, overlap: false, half: 1 },
            has_loop: false,
            has_other: false,
            templates: [template(0), template(1)],
            traffic: [Traffic::new(1, Spread::UNIFORM, 1), Traffic::new(1, Spread::UNIFORM, 2)],
            frame: Vec::new(),
            rounds: 0,
            is_counted: false,
            cached: caches.map(|cache| cache.mode != CacheMode::Off),
            sent: [0; 2],
            copied: 0,
        })
    }

    /// Becomes another gateway, and handles each flow both ways once.
    ///
    /// # Errors
    /// As [`Device::round`].
    pub(crate) fn become_like(&mut self, setup: &Setup, meter: &Meter) -> anyhow::Result<()> {
        self.publisher.publish(setup.tables.clone());
        if setup.has_loop != self.has_loop {
            match setup.has_loop {
                true => {
                    for (id, port) in LOOP.into_iter().zip(self.cable.drain(..)) {
                        self.worker.attach(id, port);
                    }
                }
                false => {
                    self.cable = LOOP.iter().filter_map(|id| self.worker.detach(*id)).collect();
                }
            }
        }
        self.layout = setup.layout;
        (self.has_loop, self.has_other) = (setup.has_loop, setup.has_other);
        self.warm_up(meter)
    }

    /// Handles each flow both ways once, so that what a run finds near does not depend on what the
    /// gateway beside it did.
    ///
    /// # Errors
    /// As [`Device::round`].
    pub(crate) fn warm_up(&mut self, meter: &Meter) -> anyhow::Result<()> {
        let flows = self.workload.flows.into();
        self.traffic = [1, 2].map(|seed| Traffic::new(flows, Spread::UNIFORM, seed));
        let mut stopwatch = meter.stopwatch();
        while self.traffic.iter().any(|traffic| traffic.once_through() > 0) {
            self.round(&mut stopwatch)?;
        }
        Ok(())
    }

    /// Goes on until a cache that adapts can have done so, however long that takes.
    ///
    /// # Errors
    /// As [`Device::round`].
    pub(crate) fn settle(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        let mut stopwatch = meter.stopwatch();
        let mut done = 0;
        while done < SETTLING * effort.packets {
            done += self.round(&mut stopwatch)?;
        }
        Ok(())
    }

    /// One run.
    ///
    /// # Errors
    /// As [`Device::round`].
    pub(crate) fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        meter.run(effort, |stopwatch| self.round(stopwatch))
    }

    /// So many rounds for callgrind, after as many that are not counted.
    ///
    /// # Errors
    /// As [`Device::round`].
    pub(crate) fn count(&mut self, rounds: u64, meter: &Meter) -> anyhow::Result<()> {
        let mut stopwatch = meter.stopwatch();
        for _ in 0..rounds {
            self.round(&mut stopwatch)?;
        }
        self.is_counted = true;
        (0..rounds).try_for_each(|_| self.round(&mut stopwatch).map(drop))
    }

    /// A batch of segments and their acknowledgements, or a request and its response. Only the
    /// worker's own time counts. Returns how many packets that was.
    ///
    /// # Errors
    /// If not every packet that came in went out on the other side.
    pub(crate) fn round(&mut self, stopwatch: &mut Stopwatch<'_>) -> anyhow::Result<u64> {
        self.rounds += 1;
        let every = self.workload.others_every;
        if self.has_other && every > 0 && self.rounds.is_multiple_of(every) {
            self.exchanges(1, None)?;
        }
        self.exchanges(0, Some(stopwatch))
    }

    fn exchanges(
        &mut self,
        tenant: u32,
        mut stopwatch: Option<&mut Stopwatch<'_>>,
    ) -> anyhow::Result<u64> {
        match self.workload.pattern {
            Pattern::Stream => self.exchange(tenant, [BATCH, BATCH / 2], stopwatch),
            Pattern::Rr => Ok(self.exchange(tenant, [1, 0], stopwatch.as_deref_mut())?
                + self.exchange(tenant, [0, 1], stopwatch)?),
        }
    }

    /// So many packets from clients and from servers, at once.
    fn exchange(
        &mut self,
        tenant: u32,
        counts: [usize; 2],
        mut stopwatch: Option<&mut Stopwatch<'_>>,
    ) -> anyhow::Result<u64> {
        for (at, side) in Side::BOTH.into_iter().enumerate() {
            for _ in 0..counts[at] {
                self.push(tenant, at, side)?;
            }
        }
        let now = Time(self.rounds * ROUND);
        let mut came = [0; 2];
        let tenant_is_measured = stopwatch.is_some();
        for _ in 0..if self.has_loop { POLLS } else { 1 } {
            if let Some(stopwatch) = &mut stopwatch {
                stopwatch.start();
            }
            let polled = match self.is_counted && tenant_is_measured {
                true => measured(&mut self.worker, now),
                false => self.worker.poll(now),
            };
            if let Some(stopwatch) = &mut stopwatch {
                stopwatch.stop();
            }
            polled.map_err(|(port, error)| anyhow::anyhow!("port {}: {error}", port.0))?;
            for (handle, came) in self.handles.iter_mut().zip(&mut came) {
                while handle.pop_with(|_| ()).is_some() {
                    *came += 1;
                }
            }
            if came == [counts[1], counts[0]] {
                break;
            }
        }
        while self.copies.read().is_some() {
            self.copied += 1;
        }
        if came != [counts[1], counts[0]] {
            self.complain(counts, came)?;
        }
        let count = (counts[0] + counts[1]) as u64;
        self.sent[tenant.min(1) as usize] += count;
        Ok(count)
    }

    fn push(&mut self, tenant: u32, at: usize, side: Side) -> anyhow::Result<()> {
        let number = self.traffic[at].next_flow();
        // Where the second tenant's traffic is not measured, what is measured is the first one's.
        let tenant = match self.has_other {
            true => tenant,
            false => (number % u64::from(self.layout.tenants)) as u32,
        };
        let template = &self.templates[at];
        let flow = Flow::of(&self.layout, template.family(), tenant, number);
        template.write(&flow, side, self.layout.vlan(tenant), &mut self.frame);
        ensure!(self.handles[at].push(&self.frame), "the port is full: it was not emptied");
        Ok(())
    }

    #[cold]
    fn complain(&self, counts: [usize; 2], came: [usize; 2]) -> anyhow::Result<()> {
        bail!(
            "of {} packets from clients {} came out, of {} from servers {}; dropped so far: {}",
            counts[0],
            came[1],
            counts[1],
            came[0],
            dropped(&self.worker)
        )
    }

    /// What its decision cache has done.
    pub(crate) fn lookups(&self) -> Lookups {
        dut::lookups(&self.worker, self.cached)
    }

    /// The worker, for what else it tells.
    #[cfg(test)]
    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }
}

/// Packets of the measured traffic in a round.
pub(crate) const fn packets_per_round(pattern: Pattern) -> u64 {
    match pattern {
        Pattern::Stream => (BATCH + BATCH / 2) as u64,
        Pattern::Rr => 2,
    }
}

/// What is counted. It keeps its name, by which callgrind finds it.
#[inline(never)]
fn measured(worker: &mut Worker, now: Time) -> Result<usize, (wire::PortId, packet::PortError)> {
    worker.poll(now)
}

/// A cache of `mode` for forwarded packets of the family, if any.
pub(crate) fn caches(family: Family, mode: Option<CacheMode>, buckets: u32) -> [CacheSettings; 4] {
    let used = match family {
        Family::V4 => CacheTable::V4Outbound,
        Family::V6 => CacheTable::V6Outbound,
    };
    crate::variant::caches(mode.map(|mode| (mode, Associativity::Four)), &[used], buckets)
}
