//! Longest prefix match.
//!
//! A tree bitmap (Eatherton, Varghese, Dittia, "Tree Bitmap: Hardware/Software IP Lookups with Incremental Updates", 2004)
//! with strides of 6 bits, shared between copies: cloning a [`Fib`] is constant work, and a change copies only the nodes
//! between the root and the place that it touches.
//!
//! The node at depth `d` holds the prefixes of `6 d + 1` to `6 d + 6` bits (the root `/0` as well) as a bitmap, and its
//! children side by side, so a lookup of a /24 reads four nodes and then the value.

use core::fmt;
use core::ops::BitOr;
use std::sync::Arc;

/// Address bits that one node decides.
const STRIDE: u8 = 6;

/// What addresses are looked up by: `u32` for IPv4, `u128` for IPv6, the first bit of the address in the highest place.
pub trait Key: Copy + Eq + fmt::Debug + BitOr<Output = Self> + sealed::Sealed {
    /// Bits in an address.
    const WIDTH: u8;
    /// All zeros.
    const ZERO: Self;
    /// The first six bits.
    fn head(self) -> usize;
    /// What comes after the first six bits.
    fn tail(self) -> Self;
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
            fn head(self) -> usize {
                (self >> (Self::WIDTH - STRIDE)) as usize
            }

            #[inline(always)]
            fn tail(self) -> Self {
                self << STRIDE
            }

            fn from_chunk(chunk: usize, depth: u8) -> Self {
                // The last node's chunk reaches past the end of the address; those bits are zero.
                let left = i32::from(Self::WIDTH) - i32::from(STRIDE) * (i32::from(depth) + 1);
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

/// A longest-prefix-match table whose copies are constant work.
#[derive(Clone)]
pub struct Fib<K, V> {
    root: Node<V>,
    length: usize,
    key: core::marker::PhantomData<K>,
}

/// Prefixes are numbered as in a heap: 1 is the node itself, `2 n` and `2 n + 1` are `n` with a bit more, 64 to 127 have all six.
#[derive(Clone)]
#[repr(C)]
struct Node<V> {
    /// Which prefixes have a value.
    prefixes: u128,
    /// Which six-bit chunks have a child.
    children: u64,
    /// The children, in order.
    nodes: Arc<[Self]>,
    /// The values, in the prefixes' order.
    values: Arc<[V]>,
}

/// By six-bit chunk: the prefixes that hold it. The longest has the highest number.
const HOLDING: [u128; 64] = {
    let mut holding = [0; 64];
    let mut chunk = 0;
    while chunk < 64 {
        let mut number = 64 + chunk;
        while number > 0 {
            holding[chunk] |= 1u128 << number;
            number >>= 1;
        }
        chunk += 1;
    }
    holding
};

impl<K: Key, V: Clone> Fib<K, V> {
    /// An empty table.
    pub fn new() -> Self {
        Self { root: Node::default(), length: 0, key: core::marker::PhantomData }
    }

    /// Prefixes in the table.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The value of the longest prefix that holds `address`.
    #[inline]
    pub fn lookup(&self, address: K) -> Option<&V> {
        let mut node = &self.root;
        let mut rest = address;
        let mut longest = None;
        loop {
            let chunk = rest.head();
            let holding = node.prefixes & HOLDING[chunk];
            if holding != 0 {
                longest = Some((node, holding));
            }
            if node.children & (1 << chunk) == 0 {
                break;
            }
            node = &node.nodes[rank(node.children, chunk)];
            rest = rest.tail();
        }
        let (node, holding) = longest?;
        Some(&node.values[node.value_rank(127 - holding.leading_zeros())])
    }

    /// The value of exactly the prefix of the first `length` bits of `prefix`.
    ///
    /// # Panics
    /// Where `length` is more than the address has bits; so do [`Fib::insert`] and [`Fib::remove`].
    pub fn get(&self, prefix: K, length: u8) -> Option<&V> {
        assert!(length <= K::WIDTH);
        let (mut node, mut rest, mut left) = (&self.root, prefix, length);
        while left > STRIDE {
            let chunk = rest.head();
            if node.children & (1 << chunk) == 0 {
                return None;
            }
            node = &node.nodes[rank(node.children, chunk)];
            rest = rest.tail();
            left -= STRIDE;
        }
        let number = prefix_number(rest, left);
        (node.prefixes & (1 << number) != 0).then(|| &node.values[node.value_rank(number)])
    }

    /// Gives a prefix a value and answers the one it had. Bits of `prefix` past `length` are ignored.
    pub fn insert(&mut self, prefix: K, length: u8, value: V) -> Option<V> {
        assert!(length <= K::WIDTH);
        let old = self.root.insert(prefix, length, value);
        self.length += usize::from(old.is_none());
        old
    }

    /// Removes a prefix and answers the value it had.
    pub fn remove(&mut self, prefix: K, length: u8) -> Option<V> {
        // Looking first leaves shared nodes shared where there is nothing to remove.
        self.get(prefix, length)?;
        self.length -= 1;
        self.root.remove(prefix, length)
    }

    /// Every prefix with its length and value, in order of address, shorter ones first.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter { stack: vec![Frame { node: &self.root, base: K::ZERO, depth: 0, number: 1 }] }
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

/// A prefix number of a node whose turn comes, and all that is under it.
struct Frame<'a, K, V> {
    node: &'a Node<V>,
    base: K,
    depth: u8,
    number: u32,
}

impl<'a, K: Key, V> Iterator for Iter<'a, K, V> {
    type Item = (K, u8, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(Frame { node, base, depth, number }) = self.stack.pop() {
            let length = number.ilog2() as u8;
            let chunk = (number as usize) << (STRIDE - length) & 63;
            let prefix = base | K::from_chunk(chunk, depth);
            if length < STRIDE {
                self.stack.push(Frame { node, base, depth, number: 2 * number + 1 });
                self.stack.push(Frame { node, base, depth, number: 2 * number });
            } else if node.children & (1 << chunk) != 0 {
                let child = &node.nodes[rank(node.children, chunk)];
                self.stack.push(Frame { node: child, base: prefix, depth: depth + 1, number: 1 });
            }
            if node.prefixes & (1 << number) != 0 {
                return Some((prefix, depth * STRIDE + length, &node.values[node.value_rank(number)]));
            }
        }
        None
    }
}

impl<V> Default for Node<V> {
    fn default() -> Self {
        Self { prefixes: 0, children: 0, nodes: Arc::default(), values: Arc::default() }
    }
}

impl<V> Node<V> {
    /// Where among the values that of prefix `number` stands, or would stand.
    #[inline]
    fn value_rank(&self, number: u32) -> usize {
        (self.prefixes & ((1 << number) - 1)).count_ones() as usize
    }
}

impl<V: Clone> Node<V> {
    fn insert<K: Key>(&mut self, rest: K, length: u8, value: V) -> Option<V> {
        if length > STRIDE {
            let chunk = rest.head();
            let at = rank(self.children, chunk);
            if self.children & (1 << chunk) == 0 {
                self.children |= 1 << chunk;
                self.nodes = with_inserted(&self.nodes, at, Self::default());
            }
            return Arc::make_mut(&mut self.nodes)[at].insert(rest.tail(), length - STRIDE, value);
        }
        let number = prefix_number(rest, length);
        let at = self.value_rank(number);
        if self.prefixes & (1 << number) != 0 {
            return Some(core::mem::replace(&mut Arc::make_mut(&mut self.values)[at], value));
        }
        self.prefixes |= 1 << number;
        self.values = with_inserted(&self.values, at, value);
        None
    }

    /// The prefix is there: [`Fib::remove`] has looked.
    fn remove<K: Key>(&mut self, rest: K, length: u8) -> Option<V> {
        if length > STRIDE {
            let chunk = rest.head();
            let at = rank(self.children, chunk);
            let child = &mut Arc::make_mut(&mut self.nodes)[at];
            let removed = child.remove(rest.tail(), length - STRIDE);
            if child.prefixes == 0 && child.children == 0 {
                self.children &= !(1 << chunk);
                self.nodes = with_removed(&self.nodes, at);
            }
            return removed;
        }
        let number = prefix_number(rest, length);
        let at = self.value_rank(number);
        self.prefixes &= !(1 << number);
        let removed = self.values[at].clone();
        self.values = with_removed(&self.values, at);
        Some(removed)
    }
}

/// The number within its node of the prefix of the first `length` bits, at most six, of `rest`.
fn prefix_number<K: Key>(rest: K, length: u8) -> u32 {
    (64 + rest.head() as u32) >> (STRIDE - length)
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
            let holding = self.0.iter().filter(|((prefix, length), _)| address.masked(*length) == *prefix);
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
    fn close_together<K: Key + Arbitrary + Not<Output = K> + BitXor<Output = K>>() -> impl Strategy<Value = K> {
        (any::<K>(), 0..=K::WIDTH, any::<bool>()).prop_map(|(noise, length, ones)| {
            let base = if ones { !K::ZERO } else { K::ZERO };
            // Keep `length` bits of the base, noise behind.
            base.masked(length) | (noise ^ noise.masked(length))
        })
    }

    fn steps<K: Key + Arbitrary>(addresses: impl Strategy<Value = K> + Clone) -> impl Strategy<Value = Vec<Step<K>>> {
        let length = || prop_oneof![4 => 0..=K::WIDTH, 1 => Just(0), 1 => Just(K::WIDTH), 1 => Just(K::WIDTH - 1)];
        let step = prop_oneof![
            6 => (addresses.clone(), length(), any::<u32>()).prop_map(|(k, l, v)| Step::Insert(k, l, v)),
            2 => (addresses, length()).prop_map(|(k, l)| Step::Remove(k, l)),
            1 => Just(Step::Snapshot),
        ];
        proptest::collection::vec(step, 0..120)
    }

    fn check<K: Key + Ord + Arbitrary>(steps: &[Step<K>], probes: &[K]) -> Result<(), TestCaseError> {
        let mut fib = Fib::new();
        let mut naive = Naive(BTreeMap::new());
        let mut snapshots = Vec::new();
        let same = |fib: &Fib<K, u32>, naive: &Naive<K>| {
            prop_assert_eq!(fib.len(), naive.0.len());
            let listed: Vec<_> = fib.iter().map(|(prefix, length, value)| ((prefix, length), *value)).collect();
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
                    prop_assert_eq!(fib.remove(prefix, length), naive.0.remove(&(prefix.masked(length), length)));
                    if let Some((prefix, length)) = naive.0.keys().nth(count % naive.0.len().max(1)).copied() {
                        prop_assert_eq!(fib.remove(prefix, length), naive.0.remove(&(prefix, length)));
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
        assert!(fib.is_empty() && fib.root.children == 0, "empty nodes are taken away");
    }

    #[test]
    fn removing_what_is_not_there_copies_nothing() {
        let mut fib = Fib::<u32, _>::new();
        fib.insert(0x0a00_0000, 24, ());
        let copy = fib.clone();
        assert_eq!(fib.remove(0x0a00_0000, 25), None);
        assert!(Arc::ptr_eq(&fib.root.nodes, &copy.root.nodes));
    }
}
