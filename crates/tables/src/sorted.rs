//! Lists in order whose copies are cheap.

use std::sync::Arc;

/// Entries that are copied together when one of them changes. Twice as many are split.
const CHUNK: usize = 64;

/// What a [`Sorted`] list is ordered by.
pub(crate) trait Keyed: Clone {
    type Key: Ord + Copy;
    /// No two entries of a list have the same.
    fn key(&self) -> Self::Key;
}

/// Entries in the order of their keys. A copy shares all of them; a change copies one chunk.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<T> {
    /// None is empty.
    chunks: Vec<Arc<Vec<T>>>,
    length: usize,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), length: 0 }
    }
}

impl<T: Keyed> Sorted<T> {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn get(&self, key: T::Key) -> Option<&T> {
        let (chunk, place) = self.find(key);
        self.chunks.get(chunk)?.get(place.ok()?)
    }

    /// Puts an entry into its place, instead of the one of the same key. Returns that.
    pub(crate) fn set(&mut self, entry: T) -> Option<T> {
        let (at, place) = self.find(entry.key());
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Arc::new(vec![entry]));
            self.length += 1;
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match place {
            Ok(place) => return Some(core::mem::replace(&mut chunk[place], entry)),
            Err(place) => chunk.insert(place, entry),
        }
        self.length += 1;
        if chunk.len() > 2 * CHUNK {
            let rest = chunk.split_off(CHUNK);
            self.chunks.insert(at + 1, Arc::new(rest));
        }
        None
    }

    pub(crate) fn remove(&mut self, key: T::Key) -> Option<T> {
        let (at, place) = self.find(key);
        let place = place.ok()?;
        let chunk = Arc::make_mut(self.chunks.get_mut(at)?);
        let gone = chunk.remove(place);
        if chunk.is_empty() {
            self.chunks.remove(at);
        }
        self.length -= 1;
        Some(gone)
    }

    /// Every entry, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Those of this key and larger ones, in order.
    pub(crate) fn from(&self, key: T::Key) -> impl Iterator<Item = &T> {
        let (at, place) = self.find(key);
        let place = place.unwrap_or_else(|place| place);
        let first = self.chunks.get(at).map_or(&[][..], |chunk| &chunk[place..]);
        let rest = self.chunks.get(at + 1..).unwrap_or_default();
        first.iter().chain(rest.iter().flat_map(|chunk| chunk.iter()))
    }

    /// The chunk that a key belongs to, the first whose last entry is not before it, else the last
    /// one; and its place there.
    fn find(&self, key: T::Key) -> (usize, Result<usize, usize>) {
        let is_before = |chunk: &Arc<Vec<T>>| chunk.last().is_some_and(|last| last.key() < key);
        let at = self.chunks.partition_point(is_before).min(self.chunks.len().saturating_sub(1));
        let place = match self.chunks.get(at) {
            Some(chunk) => chunk.binary_search_by_key(&key, Keyed::key),
            None => Err(0),
        };
        (at, place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    impl Keyed for (u16, u8) {
        type Key = u16;
        fn key(&self) -> u16 {
            self.0
        }
    }

    proptest! {
        /// As a tree of the standard library, whatever is put in and taken out.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0..400u16, any::<u8>(), 0..4u8), 0..2000)) {
            let (mut list, mut model) = (Sorted::default(), BTreeMap::new());
            for (key, value, what) in steps {
                let before = list.clone();
                let was: Vec<_> = model.clone().into_iter().collect();
                match what {
                    0 => prop_assert_eq!(
                        list.remove(key).map(|(_, value)| value),
                        model.remove(&key)
                    ),
                    _ => prop_assert_eq!(
                        list.set((key, value)).map(|(_, value)| value),
                        model.insert(key, value)
                    ),
                }
                prop_assert_eq!(before.iter().copied().collect::<Vec<_>>(), was);
                prop_assert_eq!(list.len(), model.len());
                prop_assert_eq!(list.is_empty(), model.is_empty());
                prop_assert_eq!(list.get(key).map(|entry| &entry.1), model.get(&key));
                let from: Vec<_> = model.range(key..).map(|(key, value)| (*key, *value)).collect();
                prop_assert_eq!(list.from(key).copied().collect::<Vec<_>>(), from);
                prop_assert!(list.chunks.iter().all(|it| (1..=2 * CHUNK).contains(&it.len())));
            }
        }
    }

    /// In an ordinary order of adding, chunks are at least half full.
    #[test]
    fn a_change_copies_one_chunk() {
        let mut list = Sorted::default();
        (0..10_000u16).for_each(|key| _ = list.set((key, 0)));
        assert!(list.chunks.len() <= 10_000 / CHUNK + 1);
        let before = list.clone();
        list.set((5000, 1));
        let shared = list.chunks.iter().zip(&before.chunks);
        assert_eq!(shared.filter(|(now, was)| !Arc::ptr_eq(now, was)).count(), 1);
    }
}
