//! Policies in order, tried one after the other.

use std::sync::Arc;

use classifier::Observer;

use super::cells::{Best, Entry};
use crate::spd::Place;
use crate::spd::selector::{Address, Probe};

/// Policies in order, in chunks that snapshots share.
#[derive(Clone)]
pub(super) struct Ordered<A> {
    /// None is empty.
    chunks: Vec<Arc<Vec<Entry<A>>>>,
    length: u32,
}

/// Policies of a chunk at most.
const CHUNK: usize = 64;

impl<A: Address> Ordered<A> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), length: 0 }
    }

    pub(super) fn len(&self) -> u32 {
        self.length
    }

    /// Finds the first that matches, unless one before it is known.
    #[inline]
    pub(super) fn first<'a>(
        &'a self,
        probe: &Probe<A>,
        best: &mut Best<'a, A>,
        observer: &mut impl Observer,
    ) {
        for entry in self.chunks.iter().flat_map(|chunk| chunk.iter()) {
            if entry.place.rank() > best.rank {
                return;
            }
            observer.compare(|| 1);
            if entry.selector.matches_all(probe) {
                *best = Best { rank: entry.place.rank(), entry: Some(entry) };
                return;
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<A>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    pub(super) fn insert(&mut self, entry: Entry<A>) {
        self.length += 1;
        let number = self.chunk(entry.place);
        let Some(chunk) = self.chunks.get_mut(number) else {
            self.chunks.push(Arc::new(vec![entry]));
            return;
        };
        let chunk = Arc::make_mut(chunk);
        let at = chunk.partition_point(|other| other.place < entry.place);
        chunk.insert(at, entry);
        if chunk.len() > CHUNK {
            // Behind the last one a chunk of its own begins, so that policies added in order fill
            // their chunks.
            let rest = chunk.split_off(if at == CHUNK { CHUNK } else { CHUNK / 2 });
            self.chunks.insert(number + 1, Arc::new(rest));
        }
    }

    pub(super) fn remove(&mut self, place: Place) {
        let number = self.chunk(place);
        let Some(chunk) = self.chunks.get_mut(number) else { return };
        let Ok(at) = chunk.binary_search_by_key(&place, |entry| entry.place) else { return };
        self.length -= 1;
        let chunk = Arc::make_mut(chunk);
        chunk.remove(at);
        let left = chunk.len();
        if left == 0 {
            self.chunks.remove(number);
        } else if self.chunks.get(number + 1).is_some_and(|next| left + next.len() <= CHUNK / 2) {
            let next = self.chunks.remove(number + 1);
            Arc::make_mut(&mut self.chunks[number]).extend(next.iter().cloned());
        }
    }

    /// The number of the chunk where the place is or belongs.
    fn chunk(&self, place: Place) -> usize {
        self.chunks.partition_point(|chunk| chunk[0].place <= place).saturating_sub(1)
    }
}
