//! Several workers side by side, each with ports and a cache of its own, as one series.

use std::sync::Barrier;
use std::thread;

use super::measure::{Effort, Lookups, Meter, Sample, Series};
use super::rig::Rig;
use crate::daemon::affinity;

/// Workers that run at the same time, each on a processor of its own.
pub(super) struct Crew {
    name: String,
    rigs: Vec<Rig>,
    processors: Vec<usize>,
}

impl Crew {
    /// `rigs` on the last of `processors`, of which there are as many at least.
    pub(super) fn new(name: impl Into<String>, rigs: Vec<Rig>, processors: &[usize]) -> Self {
        let first = processors.len().saturating_sub(rigs.len());
        Self { name: name.into(), rigs, processors: processors[first..].to_vec() }
    }
}

#[cfg(test)]
impl Crew {
    /// Packets that each worker has taken in.
    pub(super) fn received(&self) -> Vec<u64> {
        self.rigs.iter().map(|rig| rig.worker().statistics().received.read()).collect()
    }
}

impl Series for Crew {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        self.rigs.iter_mut().try_for_each(|rig| rig.warm_up(meter, effort))
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        if let [rig] = &mut self.rigs[..] {
            return rig.run(meter, effort);
        }
        let ready = Barrier::new(self.rigs.len());
        let samples: Vec<anyhow::Result<Sample>> = thread::scope(|scope| {
            let runs: Vec<_> = self
                .rigs
                .iter_mut()
                .zip(&self.processors)
                .map(|(rig, &processor)| {
                    let ready = &ready;
                    scope.spawn(move || {
                        let pinned = affinity::pin(processor);
                        ready.wait();
                        pinned?;
                        rig.run(meter, effort)
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
        Ok(Sample { cycles_per_packet: self.rigs.len() as f64 / rate })
    }

    fn workers(&self) -> usize {
        self.rigs.len()
    }

    fn lookups(&self) -> Lookups {
        self.rigs.iter().map(Rig::lookups).fold(Lookups::default(), |sum, lookups| Lookups {
            hits: sum.hits + lookups.hits,
            packets: sum.packets + lookups.packets,
            stale: sum.stale + lookups.stale,
        })
    }
}
