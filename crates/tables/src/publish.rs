//! Handing snapshots from the one writer to the workers.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use crate::snapshot::Tables;

/// The place where the current snapshot hangs.
#[derive(Debug)]
pub struct Shared(Arc<ArcSwap<Tables>>);

impl Shared {
    /// A reader for one worker.
    pub fn reader(&self) -> Reader {
        Reader(Cache::new(Arc::clone(&self.0)))
    }
}

/// A worker's hold on the snapshot.
#[derive(Debug)]
pub struct Reader(Cache<Arc<ArcSwap<Tables>>, Arc<Tables>>);

impl Reader {
    /// The current snapshot. One load of a shared pointer while nothing has changed; never waits.
    #[inline]
    pub fn load(&mut self) -> &Arc<Tables> {
        self.0.load()
    }
}

/// The single writer's side.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<ArcSwap<Tables>>,
    /// Snapshots that a worker may still hold. The last reference is always dropped here, so no worker ever frees one.
    retired: Vec<Arc<Tables>>,
}

impl Publisher {
    /// Publishes the first snapshot.
    pub fn new(tables: Tables) -> Self {
        Self { shared: Arc::new(ArcSwap::from_pointee(tables)), retired: Vec::new() }
    }

    /// What workers read from.
    pub fn shared(&self) -> Shared {
        Shared(Arc::clone(&self.shared))
    }

    /// The current snapshot.
    pub fn current(&self) -> Arc<Tables> {
        self.shared.load_full()
    }

    /// Makes `tables` the current snapshot, with the next generation number.
    pub fn publish(&mut self, mut tables: Tables) {
        tables.generation = self.shared.load().generation + 1;
        self.retired.push(self.shared.swap(Arc::new(tables)));
        self.reap();
    }

    /// Frees retired snapshots that no worker holds any more. Call now and then; publishing does too.
    pub fn reap(&mut self) {
        self.retired.retain(|tables| Arc::strong_count(tables) > 1);
    }

    /// Snapshots that wait for a worker to let go.
    pub fn retired(&self) -> usize {
        self.retired.len()
    }
}
