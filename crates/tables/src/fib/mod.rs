//! Longest prefix match.
//!
//! The first two octets of an address are decided by one array read each (`level`), and what
//! follows by a tree bitmap with strides of six bits (`node`): a lookup of a /16 or less reads
//! two arrays, one of a /24 two nodes more. Everything is shared between copies: cloning a [`Fib`]
//! is constant work, and a change copies only what is between the root and the place that it
//! touches.

mod level;
mod node;

use core::fmt;
use core::ops::BitOr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use level::Level;
use node::Node;

/// What addresses are looked up by: `u32` for IPv4, `u128` for IPv6, the first bit of the address
/// in the highest place.
pub trait Key: Copy + Eq + fmt::Debug + BitOr<Output = Self> + sealed::Sealed {
    /// Bits in an address.
    const WIDTH: u8;
    /// All zeros.
    const ZERO: Self;
    /// The first octet.
    fn first(self) -> u8;
    /// The second octet.
    fn second(self) -> u8;
    /// What comes after the first two octets.
    fn tail(self) -> Self;
    /// Two octets, and then what `tail` begins with.
    fn with_tail(first: u8, second: u8, tail: Self) -> Self;
    /// The first six bits.
    fn head(self) -> usize;
    /// What comes after the first `strides` times six bits, which are fewer than all.
    fn after(self, strides: u8) -> Self;
    /// `strides` times six zeros, fewer than all, and then the address.
    fn behind(self, strides: u8) -> Self;
    /// How many bits are the same before the first that differs.
    fn shared(self, other: Self) -> u8;
    /// Whether the first `strides` times six bits, at least one and fewer than all, are the same.
    fn begins_with(self, other: Self, strides: u8) -> bool;
    /// Six bits, after `depth` times six zeros.
    fn from_chunk(chunk: usize, depth: u8) -> Self;
    /// The first `length` bits, then zeros.
    fn masked(self, length: u8) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

macro_rules! key {
    ($type:ty) => {
        impl Key for $type {
            const WIDTH: u8 = <$type>::BITS as u8;
            const ZERO: Self = 0;

            #[inline(always)]
            fn first(self) -> u8 {
                (self >> (Self::WIDTH - 8)) as u8
            }

            #[inline(always)]
            fn second(self) -> u8 {
                (self >> (Self::WIDTH - 16)) as u8
            }

            #[inline(always)]
            fn tail(self) -> Self {
                self << 16
            }

            fn with_tail(first: u8, second: u8, tail: Self) -> Self {
                let octets = Self::from(first) << 8 | Self::from(second);
                octets << (Self::WIDTH - 16) | tail >> 16
            }

            #[inline(always)]
            fn head(self) -> usize {
                (self >> (Self::WIDTH - node::STRIDE)) as usize
            }

            #[inline(always)]
            fn after(self, strides: u8) -> Self {
                self << (strides * node::STRIDE)
            }

            fn behind(self, strides: u8) -> Self {
                self >> (strides * node::STRIDE)
            }

            #[inline(always)]
            fn shared(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }

            #[inline(always)]
            fn begins_with(self, other: Self, strides: u8) -> bool {
                (self ^ other) >> ((Self::WIDTH - strides * node::STRIDE) % Self::WIDTH) == 0
            }

            fn from_chunk(chunk: usize, depth: u8) -> Self {
                // The last node's chunk reaches past the end of the address; those bits are zero.
                let left =
                    i32::from(Self::WIDTH) - i32::from(node::STRIDE) * (i32::from(depth) + 1);
                let chunk = chunk as Self;
                if left >= 0 { chunk << left } else { chunk >> -left }
            }

            fn masked(self, length: u8) -> Self {
                self & <$type>::MAX.checked_shl(u32::from(Self::WIDTH - length)).unwrap_or(0)
            }
        }
    };
}

key!(u32);
key!(u128);

/// How many lookups are prepared at a time: more than a processor waits for at once.
pub const TOGETHER: usize = 64;

/// Asks for the memory that lookups read, step by step, so that the waits overlap: for the first octet,
/// the second, the tree behind it, what that tree's first node leads to, and the value.
#[inline(always)]
pub(crate) fn prefetch<'t, K: Key + 't, V: Clone + 't>(
    lookups: impl Iterator<Item = (&'t Fib<K, V>, K)>,
) {
    let places: ArrayVec<_, TOGETHER> = lookups
        .take(TOGETHER)
        .map(|(fib, address)| {
            let place = &fib.root.pages[usize::from(address.first())];
            packet::prefetch(place);
            (place, address)
        })
        .collect();
    let pages: ArrayVec<_, TOGETHER> = places
        .iter()
        .filter_map(|&(place, address)| {
            let page = place.as_deref()?;
            packet::prefetch(&page.tail[usize::from(address.second())]);
            packet::prefetch(&page.tails);
            Some((page, address))
        })
        .collect();
    let trees: ArrayVec<_, TOGETHER> = pages
        .iter()
        .filter_map(|&(page, address)| {
            let tree = page.tails.get(page.tail_index(address.second()))?;
            prefetch_whole(tree);
            Some((tree, address.tail()))
        })
        .collect();
    trees.iter().filter_map(|(tree, rest)| tree.next(*rest)).for_each(prefetch_whole);
    trees.iter().filter_map(|(tree, rest)| tree.lookup(*rest)).for_each(prefetch_whole);
}

/// Asks for both ends of what may be in two cache lines.
#[inline(always)]
fn prefetch_whole<T>(value: &T) {
    packet::prefetch(value);
    packet::prefetch_at(core::slice::from_ref(value), 1);
}

/// A longest-prefix-match table whose copies are constant work.
#[derive(Clone)]
#[repr(C)]
pub struct Fib<K, V> {
    root: Arc<Root<K, V>>,
    length: usize,
}

/// Prefixes of up to 8 bits, and by the first octet those that are longer.
#[derive(Clone)]
struct Root<K, V> {
    level: Level<V>,
    /// None of them is empty.
    pages: [Option<Arc<Page<K, V>>>; 256],
}

/// Prefixes of 9 to 16 bits, and by the second octet those that are longer.
#[derive(Clone)]
struct Page<K, V> {
    level: Level<V>,
    /// By the second octet: the number among `tails` of the tree of longer prefixes, plus 1; 0 if
    /// there are none.
    tail: [u16; 256],
    /// Trees of what comes after the second octet, in its order. None of them is empty.
    tails: Arc<[Node<K, V>]>,
}

impl<K: Key, V: Clone> Fib<K, V> {
    /// An empty table.
    pub fn new() -> Self {
        let root = Root { level: Level::new(), pages: [const { None }; 256] };
        Self { root: Arc::new(root), length: 0 }
    }

    /// Prefixes in the table.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether it is a copy of `other`, and neither has changed since: what several have is never
    /// changed in place. Constant work.
    #[inline(always)]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    /// The value of the longest prefix that holds `address`.
    #[inline(always)]
    pub fn lookup(&self, address: K) -> Option<&V> {
        if let Some(page) = &self.root.pages[usize::from(address.first())] {
            let tail = page.tails.get(page.tail_index(address.second()));
            let found = tail.and_then(|tail| tail.lookup(address.tail()));
            let found = found.or_else(|| page.level.lookup(address.second()));
            if found.is_some() {
                return found;
            }
        }
        self.root.level.lookup(address.first())
    }

    /// The value of exactly the prefix of the first `length` bits of `prefix`.
    ///
    /// # Panics
    /// If `length` is more than the address has bits; so do [`Fib::insert`] and [`Fib::remove`].
    pub fn get(&self, prefix: K, length: u8) -> Option<&V> {
        assert!(length <= K::WIDTH);
        let (first, second) = (prefix.first(), prefix.second());
        if length <= 8 {
            return self.root.level.get(level::number(first, length));
        }
        let page = self.root.pages[usize::from(first)].as_ref()?;
        if length <= 16 {
            return page.level.get(level::number(second, length - 8));
        }
        page.tails.get(page.tail_index(second))?.get(prefix.tail(), length - 16)
    }

    /// Sets the value of a prefix. Returns the one it had. Bits of `prefix` past `length` are
    /// ignored.
    pub fn insert(&mut self, prefix: K, length: u8, value: V) -> Option<V> {
        assert!(length <= K::WIDTH);
        let old = Arc::make_mut(&mut self.root).insert(prefix, length, value);
        self.length += usize::from(old.is_none());
        old
    }

    /// Removes a prefix. Returns the value it had.
    pub fn remove(&mut self, prefix: K, length: u8) -> Option<V> {
        // Looking first leaves shared parts shared if there is nothing to remove.
        self.get(prefix, length)?;
        self.length -= 1;
        Arc::make_mut(&mut self.root).remove(prefix, length)
    }

    /// Every prefix with its length and value, in order of address, shorter ones first.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter { stack: vec![Frame::Root { root: &self.root, number: 1 }] }
    }
}

impl<K: Key, V: Clone> Root<K, V> {
    fn insert(&mut self, prefix: K, length: u8, value: V) -> Option<V> {
        let first = prefix.first();
        if length <= 8 {
            return self.level.insert(level::number(first, length), value);
        }
        let page = self.pages[usize::from(first)].get_or_insert_with(|| Arc::new(Page::new()));
        Arc::make_mut(page).insert(prefix, length, value)
    }

    /// The prefix is there: [`Fib::remove`] has looked.
    fn remove(&mut self, prefix: K, length: u8) -> Option<V> {
        let first = prefix.first();
        if length <= 8 {
            return self.level.remove(level::number(first, length));
        }
        let place = &mut self.pages[usize::from(first)];
        let page = Arc::make_mut(place.as_mut()?);
        let removed = page.remove(prefix, length);
        if page.level.is_empty() && page.tails.is_empty() {
            *place = None;
        }
        removed
    }
}

impl<K: Key, V: Clone> Page<K, V> {
    fn new() -> Self {
        Self { level: Level::new(), tail: [0; 256], tails: Arc::default() }
    }

    fn insert(&mut self, prefix: K, length: u8, value: V) -> Option<V> {
        let second = prefix.second();
        if length <= 16 {
            return self.level.insert(level::number(second, length - 8), value);
        }
        let (rest, length) = (prefix.tail(), length - 16);
        if self.tail[usize::from(second)] == 0 {
            let before = self.tail[..usize::from(second)].iter().filter(|tail| **tail != 0).count();
            self.tails = with_inserted(&self.tails, before, Node::leading_to(rest, length));
            self.tail[usize::from(second)] = before as u16 + 1;
            self.tail[usize::from(second) + 1..]
                .iter_mut()
                .filter(|tail| **tail != 0)
                .for_each(|tail| *tail += 1);
        }
        let at = self.tail_index(second);
        Arc::make_mut(&mut self.tails)[at].insert(rest, length, value)
    }

    /// The prefix is there: [`Fib::remove`] has looked.
    fn remove(&mut self, prefix: K, length: u8) -> Option<V> {
        let second = prefix.second();
        if length <= 16 {
            return self.level.remove(level::number(second, length - 8));
        }
        let at = self.tail_index(second);
        let tail = &mut Arc::make_mut(&mut self.tails)[at];
        let removed = tail.remove(prefix.tail(), length - 16);
        if tail.is_empty() {
            self.tails = with_removed(&self.tails, at);
            self.tail[usize::from(second)] = 0;
            self.tail[usize::from(second) + 1..]
                .iter_mut()
                .filter(|tail| **tail != 0)
                .for_each(|tail| *tail -= 1);
        }
        removed
    }
}

impl<K, V> Page<K, V> {
    /// Where the tree behind an octet stands; past the end if there is none.
    #[inline(always)]
    fn tail_index(&self, second: u8) -> usize {
        usize::from(self.tail[usize::from(second)].wrapping_sub(1))
    }
}

impl<K: Key, V: Clone> Default for Fib<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key, V: Clone + fmt::Debug> fmt::Debug for Fib<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The prefixes of a [`Fib`]; see [`Fib::iter`].
pub struct Iter<'a, K, V> {
    stack: Vec<Frame<'a, K, V>>,
}

/// A prefix whose turn comes, by its number, and all that is under it.
enum Frame<'a, K, V> {
    Root {
        root: &'a Root<K, V>,
        number: u16,
    },
    Page {
        page: &'a Page<K, V>,
        first: u8,
        number: u16,
    },
    /// `at` are the first two octets, `base` what is decided above the node, without these.
    Node {
        node: &'a Node<K, V>,
        at: (u8, u8),
        base: K,
        depth: u8,
        number: u32,
    },
}

impl<'a, K: Key, V: Clone> Iterator for Iter<'a, K, V> {
    type Item = (K, u8, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(frame) = self.stack.pop() {
            let found = match frame {
                Frame::Root { root, number } => {
                    let (octet, length) = level::prefix(number);
                    if length < 8 {
                        self.stack.push(Frame::Root { root, number: 2 * number + 1 });
                        self.stack.push(Frame::Root { root, number: 2 * number });
                    } else if let Some(page) = &root.pages[usize::from(octet)] {
                        self.stack.push(Frame::Page { page, first: octet, number: 1 });
                    }
                    let prefix = K::with_tail(octet, 0, K::ZERO);
                    root.level.get(number).map(|value| (prefix, length, value))
                }
                Frame::Page { page, first, number } => {
                    let (octet, length) = level::prefix(number);
                    if length < 8 {
                        self.stack.push(Frame::Page { page, first, number: 2 * number + 1 });
                        self.stack.push(Frame::Page { page, first, number: 2 * number });
                    } else if let Some(node) = page.tails.get(page.tail_index(octet)) {
                        let (base, depth) = node.skipped_from(K::ZERO, 0);
                        let at = (first, octet);
                        self.stack.push(Frame::Node { node, at, base, depth, number: 1 });
                    }
                    let prefix = K::with_tail(first, octet, K::ZERO);
                    page.level.get(number).map(|value| (prefix, 8 + length, value))
                }
                Frame::Node { node, at, base, depth, number } => {
                    let (prefix, length) = node::prefix(number, base, depth);
                    if length < node::STRIDE {
                        let halves = [2 * number + 1, 2 * number].into_iter();
                        self.stack.extend(
                            halves
                                .filter(|number| node.has_under(*number))
                                .map(|number| Frame::Node { node, at, base, depth, number }),
                        );
                    } else if let Some(child) = node.child(number) {
                        let (base, depth) = child.skipped_from(prefix, depth + 1);
                        self.stack.push(Frame::Node { node: child, at, base, depth, number: 1 });
                    }
                    let whole = K::with_tail(at.0, at.1, prefix);
                    let length = 16 + depth * node::STRIDE + length;
                    node.value(number).map(|value| (whole, length, value))
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// How many bits of `bitmap` are set below `position`.
#[inline]
pub(crate) fn rank(bitmap: u64, position: usize) -> usize {
    (bitmap & ((1 << position) - 1)).count_ones() as usize
}

/// `items` with `item` put in at `at`.
pub(crate) fn with_inserted<T: Clone>(items: &[T], at: usize, item: T) -> Arc<[T]> {
    let (before, after) = items.split_at(at);
    before.iter().cloned().chain(core::iter::once(item)).chain(after.iter().cloned()).collect()
}

/// `items` without the one at `at`.
pub(crate) fn with_removed<T: Clone>(items: &[T], at: usize) -> Arc<[T]> {
    let (before, after) = items.split_at(at);
    before.iter().cloned().chain(after[1..].iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use core::ops::{BitXor, Not};
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The table as everyone would write it first.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Naive<K>(BTreeMap<(K, u8), u32>);

    impl<K: Key + Ord> Naive<K> {
        fn lookup(&self, address: K) -> Option<u32> {
            let holding =
                self.0.iter().filter(|((prefix, length), _)| address.masked(*length) == *prefix);
            holding.max_by_key(|((_, length), _)| *length).map(|(_, value)| *value)
        }
    }

    #[derive(Clone, Debug)]
    enum Step<K> {
        Insert(K, u8, u32),
        Remove(K, u8),
        Snapshot,
    }

    /// Addresses that share long beginnings, so that prefixes nest.
    fn close_together<K: Key + Arbitrary + Not<Output = K> + BitXor<Output = K>>()
    -> impl Strategy<Value = K> {
        (any::<K>(), 0..=K::WIDTH, any::<bool>()).prop_map(|(noise, length, ones)| {
            let base = if ones { !K::ZERO } else { K::ZERO };
            // Keep `length` bits of the base, noise behind.
            base.masked(length) | (noise ^ noise.masked(length))
        })
    }

    fn steps<K: Key + Arbitrary>(
        addresses: impl Strategy<Value = K> + Clone,
    ) -> impl Strategy<Value = Vec<Step<K>>> {
        let length = || prop_oneof![4 => 0..=K::WIDTH, 1 => Just(0), 1 => Just(K::WIDTH), 1 => Just(K::WIDTH - 1)];
        let step = prop_oneof![
            6 => (addresses.clone(), length(), any::<u32>()).prop_map(|(k, l, v)| Step::Insert(k, l, v)),
            2 => (addresses, length()).prop_map(|(k, l)| Step::Remove(k, l)),
            1 => Just(Step::Snapshot),
        ];
        proptest::collection::vec(step, 0..120)
    }

    fn check<K: Key + Ord + Arbitrary>(
        steps: &[Step<K>],
        probes: &[K],
    ) -> Result<(), TestCaseError> {
        let mut fib = Fib::new();
        let mut naive = Naive(BTreeMap::new());
        let mut snapshots = Vec::new();
        let same = |fib: &Fib<K, u32>, naive: &Naive<K>| {
            prop_assert_eq!(fib.len(), naive.0.len());
            let listed: Vec<_> =
                fib.iter().map(|(prefix, length, value)| ((prefix, length), *value)).collect();
            prop_assert_eq!(listed, naive.0.clone().into_iter().collect::<Vec<_>>());
            let own = naive.0.keys().map(|(prefix, _)| *prefix);
            for probe in probes.iter().copied().chain(own) {
                prop_assert_eq!(fib.lookup(probe).copied(), naive.lookup(probe), "{:?}", probe);
            }
            for ((prefix, length), value) in &naive.0 {
                prop_assert_eq!(fib.get(*prefix, *length), Some(value));
            }
            Ok(())
        };
        // Remove what is there more often than chance would have it.
        for (count, step) in steps.iter().enumerate() {
            match *step {
                Step::Insert(prefix, length, value) => prop_assert_eq!(
                    fib.insert(prefix, length, value),
                    naive.0.insert((prefix.masked(length), length), value)
                ),
                Step::Remove(prefix, length) => {
                    prop_assert_eq!(
                        fib.remove(prefix, length),
                        naive.0.remove(&(prefix.masked(length), length))
                    );
                    if let Some((prefix, length)) =
                        naive.0.keys().nth(count % naive.0.len().max(1)).copied()
                    {
                        prop_assert_eq!(
                            fib.remove(prefix, length),
                            naive.0.remove(&(prefix, length))
                        );
                    }
                }
                Step::Snapshot => snapshots.push((fib.clone(), naive.clone())),
            }
        }
        snapshots.push((fib, naive));
        snapshots.iter().try_for_each(|(fib, naive)| same(fib, naive))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn ipv4_is_the_naive_table(
            steps in steps::<u32>(prop_oneof![any::<u32>(), close_together::<u32>()].boxed()),
            probes in proptest::collection::vec(prop_oneof![any::<u32>(), close_together::<u32>()], 40),
        ) {
            check(&steps, &probes)?;
        }

        #[test]
        fn ipv6_is_the_naive_table(
            steps in steps::<u128>(prop_oneof![any::<u128>(), close_together::<u128>()].boxed()),
            probes in proptest::collection::vec(prop_oneof![any::<u128>(), close_together::<u128>()], 40),
        ) {
            check(&steps, &probes)?;
        }
    }

    #[test]
    fn the_shortest_and_the_longest_prefix() {
        let mut fib = Fib::<u128, _>::new();
        assert_eq!(fib.lookup(7), None);
        fib.insert(0, 0, "default");
        fib.insert(7, 128, "host");
        assert_eq!((fib.lookup(7), fib.lookup(6)), (Some(&"host"), Some(&"default")));
        assert_eq!((fib.remove(0, 0), fib.remove(0, 0)), (Some("default"), None));
        assert_eq!((fib.lookup(7), fib.lookup(6)), (Some(&"host"), None));
        assert_eq!(fib.remove(7, 128), Some("host"));
        assert!(fib.is_empty() && fib.root.pages[0].is_none(), "empty pages are taken away");
    }

    #[test]
    fn lonely_prefixes_are_one_node_again_after_company() {
        let mut fib = Fib::<u128, _>::new();
        let nodes = |fib: &Fib<u128, u8>| {
            let page = fib.root.pages[0].as_ref().expect("a page");
            let mut nodes: Vec<_> = page.tails.iter().collect();
            let mut count = 0;
            while let Some(node) = nodes.pop() {
                count += 1;
                nodes.extend(node.children());
            }
            count
        };
        fib.insert(1, 128, 0);
        assert_eq!(nodes(&fib), 1);
        let company = [(2, 128), (1, 64), (1 << 90, 128), (1, 125)];
        for (prefix, length) in company {
            fib.insert(prefix, length, 1);
        }
        assert!(nodes(&fib) > 1);
        for (prefix, length) in company {
            assert_eq!(fib.remove(prefix, length), Some(1));
            assert_eq!(fib.lookup(1), Some(&0));
        }
        assert_eq!(nodes(&fib), 1);
    }

    #[test]
    fn removing_what_is_not_there_copies_nothing() {
        let mut fib = Fib::<u32, _>::new();
        fib.insert(0x0a00_0000, 24, ());
        let copy = fib.clone();
        assert_eq!(fib.remove(0x0a00_0000, 25), None);
        assert!(Arc::ptr_eq(&fib.root, &copy.root));
    }
}
