//! Several workers side by side, each with ports and a cache of its own, as one series.

use std::sync::Barrier;
use std::thread;

use crate::dut::Dut;
use crate::measure::{Effort, Lookups, Meter, Sample, Series};
use runtime::affinity;

/// Workers that run at the same time, each on a processor of its own.
pub(crate) struct Parallel {
    name: String,
    duts: Vec<Dut>,
    processors: Vec<usize>,
}

impl Parallel {
    /// `duts` on the last of `processors`, of which there are as many at least.
    pub(crate) fn new(name: impl Into<String>, duts: Vec<Dut>, processors: &[usize]) -> Self {
        let first = processors.len().saturating_sub(duts.len());
        Self { name: name.into(), duts, processors: processors[first..].to_vec() }
    }
}

#[cfg(test)]
impl Parallel {
    /// Packets that each worker has taken in.
    pub(crate) fn received(&self) -> Vec<u64> {
        self.duts.iter().map(|dut| dut.worker().statistics().received.read()).collect()
    }
}

impl Series for Parallel {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        self.duts.iter_mut().try_for_each(|dut| dut.warm_up(meter, effort))
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        if let [dut] = &mut self.duts[..] {
            return dut.run(meter, effort);
        }
        let ready = Barrier::new(self.duts.len());
        let samples: Vec<anyhow::Result<Sample>> = thread::scope(|scope| {
            let runs: Vec<_> = self
                .duts
                .iter_mut()
                .zip(&self.processors)
                .map(|(dut, &processor)| {
                    let ready = &ready;
                    scope.spawn(move || {
                        let pinned = affinity::pin(processor);
                        ready.wait();
                        pinned?;
                        dut.run(meter, effort)
                    })
                })
                .collect();
            let join = |run: thread::ScopedJoinHandle<'_, anyhow::Result<Sample>>| {
                run.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a worker's thread has ended")))
            };
            runs.into_iter().map(join).collect()
        });
        // Rates add up, so that what a packet takes a worker is the harmonic mean.
        let mut rate = 0.0;
        for sample in samples {
            rate += 1.0 / sample?.cycles_per_packet;
        }
        Ok(Sample { cycles_per_packet: self.duts.len() as f64 / rate })
    }

    fn workers(&self) -> usize {
        self.duts.len()
    }

    fn lookups(&self) -> Lookups {
        self.duts.iter().map(Dut::lookups).fold(Lookups::default(), |sum, lookups| Lookups {
            hits: sum.hits + lookups.hits,
            packets: sum.packets + lookups.packets,
            stale: sum.stale + lookups.stale,
        })
    }
}
