//! Nodes of a tree, in 64 bits each.
//!
//! | bits | inner node | leaf |
//! |---|---|---|
//! | 0 | 0 | 1 |
//! | 1-7 | word of the header (1-4) | groups of rules |
//! | 8-31 | shift (8-12), bits (16-19) | the first rule's number |
//! | 32-63 | the first child | the first group |

use crate::rule::Header;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node(u64);

/// The bits of a header by which a node chooses a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) word: usize,
    pub(super) shift: u32,
    pub(super) bits: u32,
}

impl Window {
    /// The bits in their place.
    pub(super) fn mask(self) -> u32 {
        ((1 << self.bits) - 1) << self.shift
    }
}

impl Node {
    /// A leaf without rules.
    pub(super) const EMPTY: Self = Self(1);
    /// Groups that a leaf may have.
    pub(super) const MOST_GROUPS: usize = 127;
    /// Rules that may be numbered.
    pub(super) const MOST_RULES: usize = 1 << 24;

    pub(super) fn leaf(first_rule: u32, group: u32, groups: usize) -> Self {
        Self(1 | (groups as u64) << 1 | u64::from(first_rule) << 8 | u64::from(group) << 32)
    }

    pub(super) fn inner(window: Window, child: u32) -> Self {
        Self(
            (window.word as u64) << 1
                | u64::from(window.shift) << 8
                | u64::from(window.bits) << 16
                | u64::from(child) << 32,
        )
    }

    #[inline(always)]
    pub(super) fn is_leaf(self) -> bool {
        self.0 & 1 != 0
    }

    /// The position of the child that a header leads to.
    #[inline(always)]
    pub(super) fn child<const WORDS: usize>(self, header: &Header<WORDS>) -> usize {
        let word = header.0[(self.0 >> 1 & 15) as usize];
        let bits = (word >> (self.0 >> 8 & 31)) & !(u32::MAX << (self.0 >> 16 & 15));
        ((self.0 >> 32) as u32).wrapping_add(bits) as usize
    }

    /// Of a leaf: the first group.
    #[inline(always)]
    pub(super) fn group(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Of a leaf: how many groups there are.
    pub(super) fn groups(self) -> usize {
        (self.0 >> 1 & 0x7f) as usize
    }

    /// Of a leaf: whether there is a group.
    #[inline(always)]
    pub(super) fn has_groups(self) -> bool {
        self.0 & 0xfe != 0
    }

    /// Of a leaf with groups: the same without the first.
    #[inline(always)]
    pub(super) fn next_group(self) -> Self {
        Self(self.0.wrapping_add((1 << 32) - 2))
    }

    /// Of a leaf: whether it has rules, and the first may be before the one of this mark.
    #[inline(always)]
    pub(super) fn may_be_before(self, mark: u32) -> bool {
        let first = (self.0 >> 7) as u32 & 0x1ff_fffe;
        self.has_groups() & (first < mark)
    }
}
