//! Handing snapshots from the one writer to the workers.

use std::collections::BTreeSet;
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

/// The VRFs whose routes [`Publisher::settle`] lays out at once, which takes about 0.2 ms for a table
/// of 2,000 routes.
pub(crate) const SETTLED: usize = 512;

/// The single writer's side.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<ArcSwap<Tables>>,
    /// Snapshots that a worker may still hold. The last reference is always dropped here, so no
    /// worker ever frees one.
    retired: Vec<Arc<Tables>>,
    /// The VRFs without the spans of routes that they should have, by number.
    without_spans: BTreeSet<u32>,
    /// The first of these that is to be given some.
    next_without: u32,
}

impl Publisher {
    /// Publishes the first snapshot. What led to it is no change of it.
    pub fn new(mut tables: Tables) -> Self {
        tables.log.forget(tables.generation);
        tables.lineage = Arc::default();
        tables.judge_parsing(None);
        tables.make_spans(tables.without_spans(None));
        tables.policy_generation = tables.policy_generation.min(tables.generation);
        tables.restart_vrfs(tables.generation);
        let shared = Arc::new(ArcSwap::from_pointee(tables));
        Self { shared, retired: Vec::new(), without_spans: BTreeSet::new(), next_without: 0 }
    }

    /// What workers read from.
    pub fn shared(&self) -> Shared {
        Shared(Arc::clone(&self.shared))
    }

    /// The current snapshot.
    pub fn current(&self) -> Arc<Tables> {
        self.shared.load_full()
    }

    /// Makes `tables` the current snapshot, with the next generation number. If it is not a changed
    /// clone of the current one, its log does not have all changes since that one, and is emptied.
    pub fn publish(&mut self, mut tables: Tables) {
        let current = self.shared.load();
        let generation = current.generation + 1;
        let descends = tables.generation == current.generation
            && Arc::ptr_eq(&tables.lineage, &current.lineage);
        if !descends {
            tables.log.forget(generation);
            tables.policy_generation = generation;
            tables.restart_vrfs(generation);
            tables.lineage = Arc::clone(&current.lineage);
        }
        tables.generation = generation;
        tables.judge_parsing(Some(&current));
        let before = Some(&**current).filter(|_| descends);
        self.without_spans.append(&mut tables.without_spans(before));
        drop(current);
        self.retired.push(self.shared.swap(Arc::new(tables)));
        self.reap();
    }

    /// Where VRFs are many, makes the spans of routes that have changed, of 512 VRFs at most,
    /// and publishes them. To be called some times a second. Meanwhile lookups find the same without
    /// spans, and routes that change one by one are not laid out anew as a whole for each of them.
    pub fn settle(&mut self) {
        if self.without_spans.is_empty() {
            return;
        }
        let (from, all) = (self.next_without, &self.without_spans);
        let in_turn = all.range(from..).chain(all.range(..from)).copied();
        let some: Vec<u32> = in_turn.take(SETTLED).collect();
        some.iter().for_each(|vrf| _ = self.without_spans.remove(vrf));
        self.next_without = some.last().map_or(0, |last| last + 1);
        let mut tables = Tables::clone(&self.current());
        tables.make_spans(some);
        self.publish(tables);
    }

    /// Frees retired snapshots that no worker holds any more. Call now and then; publishing does
    /// too.
    pub fn reap(&mut self) {
        self.retired.retain(|tables| Arc::strong_count(tables) > 1);
    }

    /// Snapshots that wait for a worker to let go.
    pub fn retired(&self) -> usize {
        self.retired.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use wire::VrfId;

    use super::*;
    use crate::log::Change;
    use crate::policy::{DefaultAction, Direction};

    #[test]
    fn each_publication_has_the_next_generation() {
        let mut publisher = Publisher::new(Tables::new(1, 0));
        let mut reader = publisher.shared().reader();
        assert_eq!(reader.load().generation(), 0);
        for generation in 1..4 {
            // Whatever the clone's own generation is.
            publisher.publish(Tables::new(1, 0));
            assert_eq!(reader.load().generation(), generation);
            assert_eq!(publisher.current().generation(), generation);
        }
    }

    #[test]
    fn the_log_leads_from_one_snapshot_to_the_next() {
        let mut publisher = Publisher::new(Tables::new(1, 0));
        let mut twin = Tables::clone(&publisher.current());
        let mut tables = twin.clone();
        let id = tables.add_vrf("a").unwrap();
        twin.add_vrf("b").unwrap();
        publisher.publish(tables);
        assert_eq!(
            publisher.current().changes_since(0).unwrap().collect::<Vec<_>>(),
            [&Change::Vrf(id)]
        );
        assert_eq!(publisher.current().changes_since(1).unwrap().count(), 0);
        // This one knows nothing of the publication in between, and neither do tables of another
        // descent.
        for stranger in [twin, Tables::new(1, 0)] {
            let before = publisher.current().generation();
            publisher.publish(stranger);
            assert!(publisher.current().changes_since(before).is_none());
            assert_eq!(publisher.current().policy_generation(), before + 1);
            assert_eq!(publisher.current().changes_since(before + 1).unwrap().count(), 0);
        }
    }

    /// What else was cloned from the same tables does not know what they had become when they were
    /// published first, nor what another publisher did.
    #[test]
    fn a_publisher_begins_a_descent_of_its_own() {
        let mut tables = Tables::new(1, 0);
        let before = tables.clone();
        tables.add_vrf("a").unwrap();
        let mut other = Publisher::new(tables.clone());
        let mut publisher = Publisher::new(tables);
        publisher.publish(before);
        assert!(publisher.current().changes_since(0).is_none());
        let theirs = Tables::clone(&other.current());
        other.publish(theirs.clone());
        publisher.publish(Tables::clone(&other.current()));
        assert!(publisher.current().changes_since(1).is_none());
    }

    /// Or the first publication after it would seem to change everything.
    #[test]
    fn what_led_to_the_first_snapshot_is_no_change_of_it() {
        let mut tables = Tables::new(1, 0);
        tables.add_vrf("a").unwrap();
        tables.set_default_action(VrfId::MAIN, Direction::Out, DefaultAction::Accept).unwrap();
        let mut publisher = Publisher::new(tables);
        assert_eq!(publisher.current().policy_generation(), 0);
        let mut tables = Tables::clone(&publisher.current());
        let id = tables.add_vrf("b").unwrap();
        publisher.publish(tables);
        assert_eq!(
            publisher.current().changes_since(0).unwrap().collect::<Vec<_>>(),
            [&Change::Vrf(id)]
        );
        assert_eq!(publisher.current().policy_generation(), 0);
    }

    #[test]
    fn a_worker_never_drops_the_last_reference() {
        let mut publisher = Publisher::new(Tables::new(1, 0));
        let mut reader = publisher.shared().reader();
        let first = Arc::downgrade(reader.load());
        publisher.publish(Tables::new(1, 0));
        assert_eq!(publisher.retired(), 1, "the reader still has it");
        reader.load();
        assert!(first.upgrade().is_some(), "the reader let go, and it is still there");
        publisher.reap();
        assert_eq!(publisher.retired(), 0);
        assert!(first.upgrade().is_none(), "the publisher freed it");
    }

    #[test]
    fn snapshots_nobody_holds_are_freed_when_publishing() {
        let mut publisher = Publisher::new(Tables::new(1, 0));
        for _ in 0..10 {
            let tables = Tables::clone(&publisher.current());
            publisher.publish(tables);
            assert_eq!(publisher.retired(), 0);
        }
    }

    #[test]
    fn workers_see_whole_snapshots_in_order() {
        let mut publisher = Publisher::new(Tables::new(1, 0));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                let mut reader = publisher.shared().reader();
                let done = &done;
                scope.spawn(move || {
                    let mut last = 0;
                    while !done.load(Ordering::Relaxed) {
                        let tables = reader.load();
                        assert!(tables.generation() >= last);
                        last = tables.generation();
                        // As many VRFs as publications, and `main`.
                        assert_eq!(tables.vrfs().count() as u64, last + 1);
                    }
                });
            }
            for number in 0..500 {
                let mut tables = Tables::clone(&publisher.current());
                tables.add_vrf(&format!("vrf{number}")).unwrap();
                publisher.publish(tables);
            }
            done.store(true, Ordering::Relaxed);
        });
        publisher.reap();
        assert_eq!(publisher.retired(), 0);
    }
}
