//! The whole way: a worker between two memory ports, fed and drained outside the measured time.

use anyhow::{Context, bail, ensure};
use flow::{CacheMode, CacheSettings};
use io::memory::{self, MemoryHandle, MemoryOptions};
use packet::{BATCH, DropReason, Time};
use path::{Worker, WorkerSettings};
use tables::{Publisher, Reader, Tables};

use super::flow::Frame;
use super::measure::{Effort, Lookups, Meter, Sample, Series, Watch};
use super::traffic::Traffic;
use super::world::{IN, OUT};

/// So many times as long as a run a worker is left to itself before it is measured.
const SETTLING: u64 = 20;

/// What comes in.
pub(super) trait Feed: Send {
    /// Puts a batch of frames in.
    ///
    /// # Errors
    /// Where it has no more, or the port has no room.
    fn fill(&mut self, input: &mut MemoryHandle) -> anyhow::Result<()>;

    /// How many packets it takes until every flow was there once.
    fn once_through(&self) -> u64;
}

/// Clear packets.
pub(super) struct Clear {
    pub(super) frame: Frame,
    pub(super) traffic: Traffic,
}

impl Feed for Clear {
    fn fill(&mut self, input: &mut MemoryHandle) -> anyhow::Result<()> {
        for _ in 0..BATCH {
            ensure!(
                input.push(self.frame.of(self.traffic.next_flow())),
                "the port is full: it was not emptied"
            );
        }
        Ok(())
    }

    fn once_through(&self) -> u64 {
        self.traffic.once_through()
    }
}

/// A worker, what feeds it, and what takes away what it sends.
pub(super) struct Rig {
    name: String,
    feed: Box<dyn Feed>,
    input: MemoryHandle,
    worker: Worker,
    out: MemoryHandle,
    /// Which of its tables the decision cache has at all.
    cached: [bool; 4],
}

impl Rig {
    /// A rig of its own that reads `tables`.
    ///
    /// # Errors
    /// Where there is no memory for its cache.
    pub(super) fn alone(
        name: impl Into<String>,
        tables: Tables,
        caches: [CacheSettings; 4],
        feed: impl Feed + 'static,
    ) -> anyhow::Result<Self> {
        Self::new(name, 0, Publisher::new(tables).shared().reader(), caches, feed)
    }

    /// Worker number `index` of those that share the tables of `reader`.
    ///
    /// # Errors
    /// Where there is no memory for its cache.
    pub(super) fn new(
        name: impl Into<String>,
        index: usize,
        reader: Reader,
        caches: [CacheSettings; 4],
        feed: impl Feed + 'static,
    ) -> anyhow::Result<Self> {
        let (receiver, input) = memory::port(MemoryOptions::ethernet("in", IN), 2 * BATCH);
        let (sender, out) = memory::port(MemoryOptions::ethernet("out", OUT), 2 * BATCH);
        let (events, _) = rtrb::RingBuffer::new(16);
        let (_, probes) = rtrb::RingBuffer::new(16);
        let settings = WorkerSettings {
            index,
            buffers: 4 * BATCH,
            seed: [1; 32],
            caches,
            ticks: crate::clock::ticks,
        };
        let mut worker = Worker::new(&settings, reader, events, probes)?;
        worker.attach(IN, Box::new(receiver));
        worker.attach(OUT, Box::new(sender));
        let cached = caches.map(|cache| cache.mode != CacheMode::Off);
        Ok(Self { name: name.into(), feed: Box::new(feed), input, worker, out, cached })
    }

    /// A batch in, the worker's round, which alone is measured, and the batch out. Answers how many
    /// packets that was.
    ///
    /// # Errors
    /// Where not every packet that came in went out.
    pub(super) fn round(&mut self, watch: &mut Watch<'_>) -> anyhow::Result<u64> {
        self.feed.fill(&mut self.input)?;
        watch.start();
        let received = self.worker.poll(Time(0));
        watch.stop();
        let received =
            received.map_err(|(port, error)| anyhow::anyhow!("port {}: {error}", port.0))?;
        let mut sent = 0;
        while self.out.pop_with(|_| ()).is_some() {
            sent += 1;
        }
        if (received, sent) != (BATCH, BATCH) {
            self.complain(received, sent).with_context(|| format!("series '{}'", self.name))?;
        }
        Ok(sent as u64)
    }

    #[cold]
    fn complain(&self, received: usize, sent: usize) -> anyhow::Result<()> {
        let drops = &self.worker.statistics().drops;
        let why: Vec<String> = DropReason::ALL
            .iter()
            .filter(|reason| drops.read(**reason) > 0)
            .map(|reason| format!("{} {}", drops.read(*reason), reason.name()))
            .collect();
        bail!(
            "of {BATCH} packets {received} were received and {sent} sent; dropped so far: {}",
            why.join(", ")
        )
    }

    /// Takes in every flow once, and then packets as they come in a run, until a cache that adapts
    /// can have done so.
    ///
    /// # Errors
    /// As [`Rig::round`].
    pub(super) fn settle(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        let all = Effort {
            packets: self.feed.once_through(),
            longest: std::time::Duration::MAX,
            ..effort
        };
        meter.run(all, |watch| self.round(watch))?;
        let long = Effort {
            packets: SETTLING * effort.packets,
            longest: SETTLING as u32 * effort.longest,
            ..effort
        };
        meter.run(long, |watch| self.round(watch))?;
        Ok(())
    }

    /// What its decision cache has done.
    pub(super) fn lookups(&self) -> Lookups {
        let tables = &self.worker.statistics().caches;
        tables.iter().zip(self.cached).filter(|(_, cached)| *cached).fold(
            Lookups::default(),
            |sum, (table, _)| {
                let hits = table.hits.read();
                let stale = table.missed_stale.read();
                let others =
                    table.missed_new.read() + table.missed_evicted.read() + table.bypassed.read();
                Lookups {
                    hits: sum.hits + hits,
                    packets: sum.packets + hits + stale + others,
                    stale: sum.stale + stale,
                }
            },
        )
    }

    /// The worker, for what else it tells.
    #[cfg(test)]
    pub(super) fn worker(&self) -> &Worker {
        &self.worker
    }
}

impl Series for Rig {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        self.settle(meter, effort)
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        meter.run(effort, |watch| self.round(watch))
    }

    fn lookups(&self) -> Lookups {
        self.lookups()
    }
}
