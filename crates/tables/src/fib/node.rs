//! A tree bitmap (Eatherton, Varghese, Dittia, "Tree Bitmap: Hardware/Software IP Lookups with
//! Incremental Updates", 2004) with strides of six bits.
//!
//! The node at depth `d` holds the prefixes of `6 d + 1` to `6 d + 6` bits (the tree's first node
//! that of no bits as well) as a bitmap, and its children side by side. Nodes that would have one
//! child and no prefix are left out, and the node behind them knows the bits that they would have
//! decided: a lonely /128 is one node and not nineteen.

use std::sync::Arc;

use super::{Key, rank, with_inserted, with_removed};

/// Address bits that one node decides.
pub(super) const STRIDE: u8 = 6;

/// Prefixes are numbered as in a heap: 1 is the node itself, `2 n` and `2 n + 1` are `n` with a bit
/// more, 64 to 127 have all six.
#[derive(Clone)]
pub(super) struct Node<K, V> {
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

/// By prefix: itself and those that it holds.
const HELD: [u128; 128] = {
    let mut held = [0; 128];
    let mut number = 127;
    while number > 0 {
        held[number] = 1 << number;
        if number < 64 {
            held[number] |= held[2 * number] | held[2 * number + 1];
        }
        number -= 1;
    }
    held
};

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
    /// An empty node in the place where a prefix of the first `length` bits of `rest` belongs,
    /// with everything before it skipped.
    pub(super) fn leading_to(rest: K, length: u8) -> Self {
        let skip = strides_before(length);
        Self::new(rest.masked(skip * STRIDE), skip)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.prefixes == 0 && self.children == 0
    }

    /// The value of the longest prefix that holds an address which goes on with `rest`.
    #[inline(always)]
    pub(super) fn lookup(&self, mut rest: K) -> Option<&V> {
        let mut node = self;
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

    /// The node that [`Node::lookup`] reads after this one, unless what it skips says otherwise.
    #[inline(always)]
    pub(super) fn next(&self, rest: K) -> Option<&Self> {
        let chunk = rest.after(self.skip).head();
        (self.children & (1 << chunk) != 0).then(|| &self.nodes[rank(self.children, chunk)])
    }

    /// The value of exactly the prefix of the first `length` bits of `rest`.
    pub(super) fn get(&self, rest: K, length: u8) -> Option<&V> {
        let (mut node, mut rest, mut left) = (self, rest, length);
        loop {
            let skipped = node.skip * STRIDE;
            if node.skip > 0 && (left <= skipped || rest.shared(node.skipped) < skipped) {
                return None;
            }
            (rest, left) = (rest.after(node.skip), left - skipped);
            if left <= STRIDE {
                return node.value(prefix_number(rest, left));
            }
            let chunk = rest.head();
            if node.children & (1 << chunk) == 0 {
                return None;
            }
            node = &node.nodes[rank(node.children, chunk)];
            (rest, left) = (rest.after(1), left - STRIDE);
        }
    }

    /// The value of the prefix of this number.
    pub(super) fn value(&self, number: u32) -> Option<&V> {
        (self.prefixes & (1 << number) != 0).then(|| &self.values[self.value_rank(number)])
    }

    /// Whether there is a prefix that the one of this number holds, here or behind.
    pub(super) fn has_under(&self, number: u32) -> bool {
        let held = HELD[number as usize];
        self.prefixes & held != 0 || self.children & (held >> 64) as u64 != 0
    }

    /// The child behind the prefix of this number, which has all six bits.
    pub(super) fn child(&self, number: u32) -> Option<&Self> {
        let chunk = number as usize - (1 << STRIDE);
        (self.children & (1 << chunk) != 0).then(|| &self.nodes[rank(self.children, chunk)])
    }

    #[cfg(test)]
    pub(super) fn children(&self) -> &[Self] {
        &self.nodes
    }

    /// What is decided in front of this node, which is at `depth` behind `base`, and how deep it is
    /// with what it skips.
    pub(super) fn skipped_from(&self, base: K, depth: u8) -> (K, u8) {
        (base | self.skipped.behind(depth), depth + self.skip)
    }

    pub(super) fn insert(&mut self, rest: K, length: u8, value: V) -> Option<V> {
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
                self.nodes = with_inserted(&self.nodes, at, Self::leading_to(rest, length));
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

    /// The prefix is there: [`super::Fib::remove`] has looked.
    pub(super) fn remove(&mut self, rest: K, length: u8) -> Option<V> {
        let (rest, length) = (rest.after(self.skip), length - self.skip * STRIDE);
        if length > STRIDE {
            let chunk = rest.head();
            let at = rank(self.children, chunk);
            let child = &mut Arc::make_mut(&mut self.nodes)[at];
            let removed = child.remove(rest.after(1), length - STRIDE);
            if child.is_empty() {
                self.children &= !(1 << chunk);
                self.nodes = with_removed(&self.nodes, at);
            }
            self.join();
            return removed;
        }
        let number = prefix_number(rest, length);
        let at = self.value_rank(number);
        self.prefixes &= !(1 << number);
        let removed = self.values[at].clone();
        self.values = with_removed(&self.values, at);
        self.join();
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

    /// Becomes the only child, if there is only one and no prefix.
    fn join(&mut self) {
        if self.prefixes != 0 || !self.children.is_power_of_two() {
            return;
        }
        let mut child = self.nodes[0].clone();
        let chunk = K::from_chunk(self.children.trailing_zeros() as usize, self.skip);
        child.skipped = self.skipped | chunk | child.skipped.behind(self.skip + 1);
        child.skip += self.skip + 1;
        *self = child;
    }
}

/// The prefix of this number in a node at `depth` behind `base`, and how many of the node's bits
/// it has.
pub(super) fn prefix<K: Key>(number: u32, base: K, depth: u8) -> (K, u8) {
    let length = number.ilog2() as u8;
    let chunk = (number as usize) << (STRIDE - length) & 63;
    (base | K::from_chunk(chunk, depth), length)
}

/// How many strides come before the one that a prefix of this length ends in.
const fn strides_before(length: u8) -> u8 {
    length.saturating_sub(1) / STRIDE
}

/// The number within its node of the prefix of the first `length` bits, at most six, of `rest`.
fn prefix_number<K: Key>(rest: K, length: u8) -> u32 {
    (64 + rest.head() as u32) >> (STRIDE - length)
}
