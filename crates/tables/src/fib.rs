//! Longest prefix match.
//!
//! A tree bitmap (Eatherton, Varghese, Dittia, "Tree Bitmap: Hardware/Software IP Lookups with
//! Incremental Updates", 2004) with strides of 6 bits, shared between copies: cloning a [`Fib`] is
//! constant work, and a change copies only the nodes between the root and the place that it
//! touches.
//!
//! The node at depth `d` holds the prefixes of `6 d + 1` to `6 d + 6` bits (the root `/0` as well)
//! as a bitmap, and its children side by side, so a lookup of a /24 reads four nodes and then the
//! value. Below the root, nodes that would have one child and no prefix are left out, and the node
//! behind them knows the bits that they would have decided: a lonely /128 is one node and not
//! twenty-two.

use core::fmt;
use core::ops::BitOr;
use std::sync::Arc;

/// Address bits that one node decides.
const STRIDE: u8 = 6;

/// What addresses are looked up by: `u32` for IPv4, `u128` for IPv6, the first bit of the address
/// in the highest place.
pub trait Key: Copy + Eq + fmt::Debug + BitOr<Output = Self> + sealed::Sealed {
    /// Bits in an address.
    const WIDTH: u8;
    /// All zeros.
    const ZERO: Self;
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
            fn head(self) -> usize {
                (self >> (Self::WIDTH - STRIDE)) as usize
            }

            #[inline(always)]
            fn after(self, strides: u8) -> Self {
                self << (strides * STRIDE)
            }

            fn behind(self, strides: u8) -> Self {
                self >> (strides * STRIDE)
            }

            #[inline(always)]
            fn shared(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }

            #[inline(always)]
            fn begins_with(self, other: Self, strides: u8) -> bool {
                (self ^ other) >> ((Self::WIDTH - strides * STRIDE) % Self::WIDTH) == 0
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
    /// Skips nothing.
    root: Node<K, V>,
    length: usize,
}

/// Prefixes are numbered as in a heap: 1 is the node itself, `2 n` and `2 n + 1` are `n` with a bit
/// more, 64 to 127 have all six.
#[derive(Clone)]
struct Node<K, V> {
    /// Which prefixes have a value.
    prefixes: u128,
    /// Which six-bit chunks have a child.
    children: u64,
    /// The children, in order.
    nodes: Arc<[Self]>,
    /// The values, in the prefixes' order.
    values: Arc<[V]>,
    /// The bits that an address must have in the strides between the parent and this node; zeros
    /// behind.
    skipped: K,
    /// How many strides those are.
    skip: u8,
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
        Self { root: Node::new(K::ZERO, 0), length: 0 }
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
    #[inline(always)]
    pub fn lookup(&self, address: K) -> Option<&V> {
        let mut node = &self.root;
        let mut rest = address;
        let mut longest = None;
        loop {
            // Full tables skip little: the test is cheaper than what it saves.
            if node.skip != 0 {
                if !rest.begins_with(node.skipped, node.skip) {
                    break;
                }
                rest = rest.after(node.skip);
            }
            let chunk = rest.head();
            let holding = node.prefixes & HOLDING[chunk];
            if holding != 0 {
                longest = Some((node, holding));
            }
            if node.children & (1 << chunk) == 0 {
                break;
            }
            node = &node.nodes[rank(node.children, chunk)];
            rest = rest.after(1);
        }
        let (node, holding) = longest?;
        Some(&node.values[node.last_rank(holding)])
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
            (rest, left) = (rest.after(1), left - STRIDE);
            if left <= node.skip * STRIDE && node.skip > 0
                || rest.shared(node.skipped) < node.skip * STRIDE
            {
                return None;
            }
            (rest, left) = (rest.after(node.skip), left - node.skip * STRIDE);
        }
        let number = prefix_number(rest, left);
        (node.prefixes & (1 << number) != 0).then(|| &node.values[node.value_rank(number)])
    }

    /// Sets the value of a prefix. Returns the one it had. Bits of `prefix` past `length` are
    /// ignored.
    pub fn insert(&mut self, prefix: K, length: u8, value: V) -> Option<V> {
        assert!(length <= K::WIDTH);
        let old = self.root.insert(prefix, length, value);
        self.length += usize::from(old.is_none());
        old
    }

    /// Removes a prefix. Returns the value it had.
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
    node: &'a Node<K, V>,
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
                let base = prefix | child.skipped.behind(depth + 1);
                self.stack.push(Frame {
                    node: child,
                    base,
                    depth: depth + 1 + child.skip,
                    number: 1,
                });
            }
            if node.prefixes & (1 << number) != 0 {
                return Some((
                    prefix,
                    depth * STRIDE + length,
                    &node.values[node.value_rank(number)],
                ));
            }
        }
        None
    }
}

impl<K, V> Node<K, V> {
    fn new(skipped: K, skip: u8) -> Self {
        Self {
            prefixes: 0,
            children: 0,
            nodes: Arc::default(),
            values: Arc::default(),
            skipped,
            skip,
        }
    }

    /// Where among the values that of the last of `these` prefixes stands, of which there are some.
    ///
    /// As [`Node::value_rank`], by halves: a prefix of all six bits, or a shorter one.
    #[inline(always)]
    fn last_rank(&self, these: u128) -> usize {
        let (long, short) = ((these >> 64) as u64, these as u64);
        let (all_long, all_short) = ((self.prefixes >> 64) as u64, self.prefixes as u64);
        let before = |bits: u64, last: u64| {
            let below = (1u64 << (63 - last.leading_zeros() % 64)) - 1;
            (bits & below).count_ones() as usize
        };
        match long {
            0 => before(all_short, short),
            long => all_short.count_ones() as usize + before(all_long, long),
        }
    }

    /// Where among the values that of prefix `number` stands, or would stand.
    #[inline]
    fn value_rank(&self, number: u32) -> usize {
        (self.prefixes & ((1 << number) - 1)).count_ones() as usize
    }
}

impl<K: Key, V: Clone> Node<K, V> {
    fn insert(&mut self, rest: K, length: u8, value: V) -> Option<V> {
        let shared =
            (rest.shared(self.skipped) / STRIDE).min(strides_before(length)).min(self.skip);
        if shared < self.skip {
            self.split(shared);
        }
        let (rest, length) = (rest.after(self.skip), length - self.skip * STRIDE);
        if length > STRIDE {
            let chunk = rest.head();
            let at = rank(self.children, chunk);
            let (rest, length) = (rest.after(1), length - STRIDE);
            if self.children & (1 << chunk) == 0 {
                self.children |= 1 << chunk;
                let skip = strides_before(length);
                self.nodes =
                    with_inserted(&self.nodes, at, Self::new(rest.masked(skip * STRIDE), skip));
            }
            return Arc::make_mut(&mut self.nodes)[at].insert(rest, length, value);
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
    fn remove(&mut self, rest: K, length: u8) -> Option<V> {
        let (rest, length) = (rest.after(self.skip), length - self.skip * STRIDE);
        if length > STRIDE {
            let chunk = rest.head();
            let at = rank(self.children, chunk);
            let child = &mut Arc::make_mut(&mut self.nodes)[at];
            let removed = child.remove(rest.after(1), length - STRIDE);
            if child.prefixes == 0 && child.children == 0 {
                self.children &= !(1 << chunk);
                self.nodes = with_removed(&self.nodes, at);
            } else if child.prefixes == 0 && child.children.is_power_of_two() {
                *child = child.joined();
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

    /// Puts a node in front of this one that skips `strides` strides only, and this one behind it.
    fn split(&mut self, strides: u8) {
        let mut front = Self::new(self.skipped.masked(strides * STRIDE), strides);
        front.children = 1 << self.skipped.after(strides).head();
        core::mem::swap(self, &mut front);
        let mut behind = front;
        behind.skip -= strides + 1;
        behind.skipped = behind.skipped.after(strides + 1);
        self.nodes = Arc::new([behind]);
    }

    /// The only child, in this node's place; there is no prefix here.
    fn joined(&self) -> Self {
        let mut child = self.nodes[0].clone();
        let chunk = K::from_chunk(self.children.trailing_zeros() as usize, self.skip);
        child.skipped = self.skipped | chunk | child.skipped.behind(self.skip + 1);
        child.skip += self.skip + 1;
        child
    }
}

/// How many strides come before the one that a prefix of this length ends in.
const fn strides_before(length: u8) -> u8 {
    length.saturating_sub(1) / STRIDE
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
        assert!(fib.is_empty() && fib.root.children == 0, "empty nodes are taken away");
    }

    #[test]
    fn lonely_prefixes_are_one_node_again_after_company() {
        let mut fib = Fib::<u128, _>::new();
        let nodes = |fib: &Fib<u128, u8>| {
            let mut nodes = vec![&fib.root];
            let mut count = 0;
            while let Some(node) = nodes.pop() {
                count += 1;
                nodes.extend(node.nodes.iter());
            }
            count
        };
        fib.insert(1, 128, 0);
        assert_eq!(nodes(&fib), 2);
        let company = [(2, 128), (1, 64), (1 << 90, 128), (1, 125)];
        for (prefix, length) in company {
            fib.insert(prefix, length, 1);
        }
        assert!(nodes(&fib) > 2);
        for (prefix, length) in company {
            assert_eq!(fib.remove(prefix, length), Some(1));
            assert_eq!(fib.lookup(1), Some(&0));
        }
        assert_eq!(nodes(&fib), 2);
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
