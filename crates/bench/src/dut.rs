//! The whole way: a worker between two memory ports, fed and drained outside the measured time.

use anyhow::{Context, bail, ensure};
use flow::{CacheMode, CacheSettings};
use io::memory::{self, MemoryHandle, MemoryOptions};
use packet::{BATCH, DropReason, Time};
use path::{Worker, WorkerSettings};
use tables::{Publisher, Reader, Tables};

use crate::frame::Frame;
use crate::measure::{Effort, Lookups, Meter, Sample, Series, Stopwatch};
use crate::topology::{IN, OUT};
use crate::traffic::Traffic;

/// So many times as long as a run a worker is left to itself before it is measured.
pub(crate) const SETTLING: u64 = 20;

/// What comes in.
pub(crate) trait Feed: Send {
    /// Puts a batch of frames in.
    ///
    /// # Errors
    /// If it has no more, or the port has no room.
    fn fill(&mut self, input: &mut MemoryHandle) -> anyhow::Result<()>;

    /// How many packets it takes until every flow was there once.
    fn once_through(&self) -> u64;
}

/// Clear packets.
pub(crate) struct Clear {
    pub(crate) frame: Frame,
    pub(crate) traffic: Traffic,
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
pub(crate) struct Dut {
    name: String,
    feed: Box<dyn Feed>,
    input: MemoryHandle,
    worker: Worker,
    out: MemoryHandle,
    /// Which of its tables the decision cache has at all.
    cached: [bool; 4],
}

impl Dut {
    /// A dut of its own that reads `tables`.
    ///
    /// # Errors
    /// If there is no memory for its cache.
    pub(crate) fn alone(
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
    /// If there is no memory for its cache.
    pub(crate) fn new(
        name: impl Into<String>,
        index: usize,
        reader: Reader,
        caches: [CacheSettings; 4],
        feed: impl Feed + 'static,
    ) -> anyhow::Result<Self> {
        let (worker, [input, out]) = worker(index, reader, caches)?;
        let cached = caches.map(|cache| cache.mode != CacheMode::Off);
        Ok(Self { name: name.into(), feed: Box::new(feed), input, worker, out, cached })
    }

    /// A batch in, the worker's round, which alone is measured, and the batch out. Returns how many
    /// packets that was.
    ///
    /// # Errors
    /// If not every packet that came in went out.
    pub(crate) fn round(&mut self, stopwatch: &mut Stopwatch<'_>) -> anyhow::Result<u64> {
        self.feed.fill(&mut self.input)?;
        stopwatch.start();
        let mut received = self.worker.poll(Time(0));
        // Tables were changed meanwhile: their round is the next one.
        if self.worker.has_put_off() {
            received = received.and_then(|_| self.worker.poll(Time(0)));
        }
        stopwatch.stop();
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
        bail!(
            "of {BATCH} packets {received} were received and {sent} sent; dropped so far: {}",
            dropped(&self.worker)
        )
    }

    /// Takes in every flow once, and then packets as they come in a run, until a cache that adapts
    /// can have done so.
    ///
    /// # Errors
    /// As [`Dut::round`].
    pub(crate) fn settle(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        let all = Effort {
            packets: self.feed.once_through(),
            longest: std::time::Duration::MAX,
            ..effort
        };
        meter.run(all, |stopwatch| self.round(stopwatch))?;
        let long = Effort {
            packets: SETTLING * effort.packets,
            longest: SETTLING as u32 * effort.longest,
            ..effort
        };
        meter.run(long, |stopwatch| self.round(stopwatch))?;
        Ok(())
    }

    /// What its decision cache has done.
    pub(crate) fn lookups(&self) -> Lookups {
        lookups(&self.worker, self.cached)
    }

    /// The worker, for what else it tells.
    #[cfg(test)]
    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }
}

impl Series for Dut {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        self.settle(meter, effort)
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        meter.run(effort, |stopwatch| self.round(stopwatch))
    }

    fn lookups(&self) -> Lookups {
        self.lookups()
    }
}

/// Worker number `index` between two memory ports, [`IN`] and [`OUT`], and their other ends.
///
/// # Errors
/// If there is no memory for its cache.
pub(crate) fn worker(
    index: usize,
    reader: Reader,
    caches: [CacheSettings; 4],
) -> anyhow::Result<(Worker, [MemoryHandle; 2])> {
    let (receiver, input) = memory::port(MemoryOptions::ethernet("in", IN), 2 * BATCH);
    let (sender, out) = memory::port(MemoryOptions::ethernet("out", OUT), 2 * BATCH);
    let (events, _) = rtrb::RingBuffer::new(16);
    let (_, probes) = rtrb::RingBuffer::new(16);
    let settings = WorkerSettings {
        index,
        buffers: 4 * BATCH,
        seed: [1; 32],
        caches,
        ticks: runtime::clock::ticks,
        large_buffers: 0,
    };
    let mut worker = Worker::new(&settings, reader, events, probes)?;
    worker.attach(IN, Box::new(receiver));
    worker.attach(OUT, Box::new(sender));
    Ok((worker, [input, out]))
}

/// What a worker has dropped so far, with the reasons.
pub(crate) fn dropped(worker: &Worker) -> String {
    let drops = &worker.statistics().drops;
    let why: Vec<String> = DropReason::ALL
        .iter()
        .filter(|reason| drops.read(**reason) > 0)
        .map(|reason| format!("{} {}", drops.read(*reason), reason.name()))
        .collect();
    why.join(", ")
}

/// What a worker's decision cache has done, of those tables that it has at all.
pub(crate) fn lookups(worker: &Worker, cached: [bool; 4]) -> Lookups {
    let tables = &worker.statistics().caches;
    tables.iter().zip(cached).filter(|(_, cached)| *cached).fold(
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
