//! A hash map that is copied in constant time, with a keyed hash: a sender cannot aim at a bucket.
//!
//! A compressed hash-array mapped prefix-tree (Steindorfer, Vinju, "Optimizing Hash-Array Mapped
//! Tries for Fast and Lean Immutable JVM Collections", 2015): cloning shares everything, a change
//! copies only the nodes between the root and the place that it touches.
//!
//! The hash is multilinear with secret multipliers (Lemire, Kaser, "Strongly Universal String
//! Hashing is Fast", 2014): two keys that are chosen without knowing the secret collide with a
//! probability of 2^-64. A hash takes a few multiplications.

use std::sync::Arc;

use siphasher::sip::SipHasher13;

use crate::fib::{rank, with_inserted, with_removed};

/// Levels of six bits each that use up the hash. What is deeper has one hash, and is a list.
const LEVELS: u32 = 11;

/// What a [`Map`] looks things up by.
pub(crate) trait MapKey: Copy + Eq {
    /// `[u64; N]`, N at most [`MAX_WORDS`].
    type Words: AsRef<[u64]>;
    /// What is hashed. Equal keys have equal words; the reverse is only desirable.
    fn to_words(&self) -> Self::Words;
}

/// The most words that a key may have.
const MAX_WORDS: usize = 12;

/// The secret multipliers.
#[derive(Clone)]
struct Hasher {
    offset: u128,
    multipliers: [u128; MAX_WORDS],
}

impl Hasher {
    fn new(secret: u64) -> Self {
        let expand = SipHasher13::new_with_keys(secret, 0);
        let half = |number: usize| u128::from(expand.hash(&number.to_le_bytes()));
        let number = |index: usize| half(2 * index) << 64 | half(2 * index + 1);
        Self { offset: number(MAX_WORDS), multipliers: core::array::from_fn(number) }
    }

    #[inline(always)]
    fn hash<K: MapKey>(&self, key: &K) -> u64 {
        const { assert!(size_of::<K::Words>() <= MAX_WORDS * size_of::<u64>()) };
        let words = key.to_words();
        let terms = words.as_ref().iter().zip(&self.multipliers);
        let sum = terms
            .fold(self.offset, |sum, (&word, &by)| sum.wrapping_add(by.wrapping_mul(word.into())));
        (sum >> 64) as u64
    }
}

/// A persistent hash map.
#[derive(Clone)]
pub(crate) struct Map<K, V> {
    hasher: Hasher,
    root: Node<K, V>,
    length: usize,
}

#[derive(Clone)]
struct Node<K, V> {
    /// Which chunks of the hash have one entry, here.
    single: u64,
    /// Which have several, in a child.
    several: u64,
    entries: Arc<[(K, V)]>,
    nodes: Arc<[Self]>,
}

impl<K: MapKey, V: Clone> Map<K, V> {
    /// An empty map, keyed with `secret`.
    pub(crate) fn new(secret: u64) -> Self {
        Self { hasher: Hasher::new(secret), root: Node::default(), length: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    // Inlined where the key still is in registers: one that was just written in parts is slow to
    // read as a whole.
    #[inline(always)]
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let mut rest = self.hash(key);
        let mut node = &self.root;
        for _ in 0..LEVELS {
            let chunk = (rest & 63) as usize;
            if node.single & (1 << chunk) != 0 {
                let (found, value) = &node.entries[rank(node.single, chunk)];
                return (found == key).then_some(value);
            }
            if node.several & (1 << chunk) == 0 {
                return None;
            }
            node = &node.nodes[rank(node.several, chunk)];
            rest >>= 6;
        }
        node.entries.iter().find(|(found, _)| found == key).map(|(_, value)| value)
    }

    /// The value of `key`, to change.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.get(key)?;
        let mut rest = self.hash(key);
        let mut node = &mut self.root;
        for _ in 0..LEVELS {
            let chunk = (rest & 63) as usize;
            if node.single & (1 << chunk) != 0 {
                let at = rank(node.single, chunk);
                return Some(&mut Arc::make_mut(&mut node.entries)[at].1);
            }
            let at = rank(node.several, chunk);
            node = &mut Arc::make_mut(&mut node.nodes)[at];
            rest >>= 6;
        }
        let at = node.entries.iter().position(|(found, _)| found == key)?;
        Some(&mut Arc::make_mut(&mut node.entries)[at].1)
    }

    /// Sets the value of `key`. Returns the one it had.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(&key) {
            return Some(core::mem::replace(old, value));
        }
        self.length += 1;
        let Self { hasher, root, .. } = self;
        root.insert(&|key| hasher.hash(key), 0, key, value);
        None
    }

    /// Removes `key`. Returns its value.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.get(key)?.clone();
        self.length -= 1;
        self.root.remove(self.hash(key), 0, key);
        Some(value)
    }

    /// Every entry, in an order that depends on the secret.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        let mut nodes = vec![&self.root];
        let mut entries = self.root.entries.iter();
        core::iter::from_fn(move || {
            loop {
                if let Some(entry) = entries.next() {
                    return Some(entry);
                }
                let node = nodes.pop()?;
                nodes.extend(node.nodes.iter());
                entries = nodes.last().map_or([].iter(), |next| next.entries.iter());
            }
        })
    }

    #[inline(always)]
    fn hash(&self, key: &K) -> u64 {
        self.hasher.hash(key)
    }
}

impl<K, V> Default for Node<K, V> {
    fn default() -> Self {
        Self { single: 0, several: 0, entries: Arc::default(), nodes: Arc::default() }
    }
}

impl<K: MapKey, V: Clone> Node<K, V> {
    /// Adds a key that is not there.
    fn insert(&mut self, hash: &impl Fn(&K) -> u64, depth: u32, key: K, value: V) {
        if depth == LEVELS {
            self.entries = with_inserted(&self.entries, self.entries.len(), (key, value));
            return;
        }
        let chunk = chunk(hash(&key), depth);
        let bit = 1 << chunk;
        if self.several & bit != 0 {
            let at = rank(self.several, chunk);
            Arc::make_mut(&mut self.nodes)[at].insert(hash, depth + 1, key, value);
        } else if self.single & bit != 0 {
            let at = rank(self.single, chunk);
            let (other, others) = self.entries[at].clone();
            let mut child = Self::default();
            child.insert(hash, depth + 1, other, others);
            child.insert(hash, depth + 1, key, value);
            self.entries = with_removed(&self.entries, at);
            self.single &= !bit;
            self.nodes = with_inserted(&self.nodes, rank(self.several, chunk), child);
            self.several |= bit;
        } else {
            self.entries = with_inserted(&self.entries, rank(self.single, chunk), (key, value));
            self.single |= bit;
        }
    }

    /// Removes a key that is there.
    fn remove(&mut self, hash: u64, depth: u32, key: &K) {
        if depth == LEVELS {
            if let Some(at) = self.entries.iter().position(|(found, _)| found == key) {
                self.entries = with_removed(&self.entries, at);
            }
            return;
        }
        let chunk = chunk(hash, depth);
        let bit = 1 << chunk;
        if self.single & bit != 0 {
            self.entries = with_removed(&self.entries, rank(self.single, chunk));
            self.single &= !bit;
            return;
        }
        let at = rank(self.several, chunk);
        let child = &mut Arc::make_mut(&mut self.nodes)[at];
        child.remove(hash, depth + 1, key);
        // A child of one entry is not needed: the entry takes its place.
        if child.nodes.is_empty() && child.entries.len() <= 1 {
            let last = child.entries.first().cloned();
            self.nodes = with_removed(&self.nodes, at);
            self.several &= !bit;
            if let Some(last) = last {
                self.entries = with_inserted(&self.entries, rank(self.single, chunk), last);
                self.single |= bit;
            }
        }
    }
}

fn chunk(hash: u64, depth: u32) -> usize {
    (hash >> (6 * depth) & 63) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use wire::{Addresses, Protocol, VrfId};

    use super::*;
    use crate::policy::{Direction, Selector, SelectorKey};

    /// A key of as many words as there may be.
    impl MapKey for [u64; MAX_WORDS] {
        type Words = Self;
        fn to_words(&self) -> Self {
            *self
        }
    }

    #[test]
    fn every_word_of_a_key_is_hashed() {
        let hasher = Hasher::new(7);
        for at in 0..MAX_WORDS {
            let mut key = [5; MAX_WORDS];
            key[at] = 6;
            assert_ne!(hasher.hash(&key), hasher.hash(&[5; MAX_WORDS]), "word {at}");
        }
    }

    /// A provider's tenants have policies with the same selectors.
    #[test]
    fn policies_that_differ_by_vrf_direction_and_protocol_do_not_collide() {
        let [source, destination] = [[0; 4], [0; 4]].map(Into::into);
        let all = Selector::all_of(&Addresses::V4 { source, destination });
        let keys = (0..500).flat_map(|vrf| {
            Direction::ALL.into_iter().flat_map(move |direction| {
                [6, 17].map(|protocol| SelectorKey {
                    scope: VrfId(vrf).into(),
                    direction,
                    selector: Selector { protocol: Some(Protocol(protocol)), ..all },
                })
            })
        });
        let hasher = Hasher::new(7);
        let hashes: BTreeSet<_> = keys.map(|key| hasher.hash(&key)).collect();
        assert_eq!(hashes.len(), 3000);
    }

    /// Hashes only `0`, so that keys that differ in `1` alone collide in every bit.
    impl MapKey for (u8, u8) {
        type Words = [u64; 1];
        fn to_words(&self) -> [u64; 1] {
            [self.0.into()]
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn is_a_map(
            secret: u64,
            steps in proptest::collection::vec((any::<Option<u16>>(), prop_oneof![any::<u8>(), 0u8..3], 0u8..4), 0..600),
        ) {
            let mut map = Map::new(secret);
            let mut naive = BTreeMap::new();
            let mut snapshots = Vec::new();
            for (count, &(value, spread, same)) in steps.iter().enumerate() {
                let key = (spread, same);
                match value {
                    Some(value) => prop_assert_eq!(map.insert(key, value), naive.insert(key, value)),
                    None => {
                        prop_assert_eq!(map.remove(&key), naive.remove(&key));
                        if let Some(key) = naive.keys().nth(count % naive.len().max(1)).copied() {
                            prop_assert_eq!(map.remove(&key), naive.remove(&key));
                        }
                    }
                }
                if let (Some(new), Some(old)) = (map.get_mut(&(same, spread)), naive.get_mut(&(same, spread))) {
                    *new = 1;
                    *old = 1;
                }
                if count % 50 == 0 {
                    snapshots.push((map.clone(), naive.clone()));
                }
            }
            snapshots.push((map, naive));
            for (map, naive) in snapshots {
                prop_assert_eq!(map.len(), naive.len());
                let mut listed: Vec<_> = map.iter().copied().collect();
                listed.sort_unstable();
                prop_assert_eq!(listed, naive.clone().into_iter().collect::<Vec<_>>());
                for key in (0..=255).flat_map(|spread| (0..4).map(move |same| (spread, same))) {
                    prop_assert_eq!(map.get(&key), naive.get(&key));
                }
            }
        }
    }
}
