//! Maps in the order of their keys whose copies are cheap.

use core::borrow::Borrow;
use core::fmt;

use rpds::RedBlackTreeMapSync;

/// A map in the order of its keys. A copy is constant work, and a change copies what is between the root
/// and the entry, and no other entry.
pub(super) struct Tree<K: Ord, V>(RedBlackTreeMapSync<K, V>);

/// Entries in order.
pub(super) type Iter<'t, K, V> = <&'t RedBlackTreeMapSync<K, V> as IntoIterator>::IntoIter;

impl<K: Ord, V> Tree<K, V> {
    pub(super) fn new() -> Self {
        Self(RedBlackTreeMapSync::new_sync())
    }

    pub(super) fn len(&self) -> usize {
        self.0.size()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    pub(super) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// The value of a key, to change.
    pub(super) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q> + Clone,
        V: Clone,
    {
        self.0.get_mut(key)
    }

    /// Changes the value of a key. If there is none, it begins as the default.
    pub(super) fn change_or_add(&mut self, key: K, change: impl FnOnce(&mut V))
    where
        K: Clone,
        V: Clone + Default,
    {
        if let Some(value) = self.get_mut(&key) {
            return change(value);
        }
        let mut value = V::default();
        change(&mut value);
        self.insert(key, value);
    }

    /// Sets the value of a key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.0.insert_mut(key, value);
    }

    /// Removes a key. Returns its value.
    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let gone = self.get(key)?.clone();
        self.0.remove_mut(key);
        Some(gone)
    }

    /// Every entry, in order.
    pub(super) fn iter(&self) -> Iter<'_, K, V> {
        self.0.iter()
    }

    /// The entries of this key and of larger ones, in order.
    pub(super) fn from(&self, key: K) -> impl Iterator<Item = (&K, &V)> {
        self.0.range(key..)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values()
    }
}

impl<'t, K: Ord, V> IntoIterator for &'t Tree<K, V> {
    type Item = (&'t K, &'t V);
    type IntoIter = Iter<'t, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Tree<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl<K: Ord, V> Default for Tree<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord, V> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for Tree<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The value of a key that is there.
#[cfg(test)]
impl<V> core::ops::Index<&str> for Tree<String, V> {
    type Output = V;

    fn index(&self, key: &str) -> &V {
        self.get(key).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static COPIED: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(Debug, PartialEq)]
    struct Counted(u32);

    impl Clone for Counted {
        fn clone(&self) -> Self {
            COPIED.set(COPIED.get() + 1);
            Self(self.0)
        }
    }

    #[test]
    fn a_change_of_a_copy_copies_no_other_entry() {
        let tree: Tree<u32, Counted> = (0..100_000).map(|key| (key, Counted(key))).collect();
        let mut copy = tree.clone();
        copy.insert(500, Counted(1));
        copy.insert(200_000, Counted(1));
        assert_eq!(COPIED.get(), 0);
        assert_eq!(copy.remove(&600), Some(Counted(600)));
        copy.get_mut(&700).unwrap().0 = 1;
        assert_eq!(COPIED.get(), 2);
        assert_eq!((tree.get(&600), copy.get(&600)), (Some(&Counted(600)), None));
        assert_eq!((tree.get(&700), copy.get(&700)), (Some(&Counted(700)), Some(&Counted(1))));
        let from: Vec<u32> = copy.from(99_998).map(|(key, _)| *key).collect();
        assert_eq!(from, [99_998, 99_999, 200_000]);
    }
}
