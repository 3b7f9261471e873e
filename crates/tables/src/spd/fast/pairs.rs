//! Sets of pairs of a source's level and a destination's level.
//!
//! A set is one block of eight by eight bits, or four of them where there are more than eight
//! levels: a byte for a level of one address, and in it a bit for each level of the other.

use super::filter::Levels;
use super::level::Family;

/// Adds the pairs of `level` with each of `others`.
#[inline(always)]
pub(super) fn add<A: Family>(pairs: &mut A::Pairs, level: usize, others: Levels) {
    let pairs = pairs.as_mut();
    let byte = 8 * (level & 7);
    if A::WIDE {
        let row = 2 * (level >> 3 & 1);
        pairs[row] |= u64::from(others & 0xff) << byte;
        pairs[row + 1] |= u64::from(others >> 8) << byte;
    } else {
        pairs[0] |= u64::from(others & 0xff) << byte;
    }
}

/// Leaves those in `sources`, whose bytes are sources' levels, that are also in `destinations`,
/// whose bytes are destinations' levels.
#[inline(always)]
pub(super) fn both<A: Family>(sources: &mut A::Pairs, destinations: &A::Pairs) {
    let (sources, destinations) = (sources.as_mut(), destinations.as_ref());
    sources[0] &= transposed(destinations[0]);
    if A::WIDE {
        sources[1] &= transposed(destinations[2]);
        sources[2] &= transposed(destinations[1]);
        sources[3] &= transposed(destinations[3]);
    }
}

/// Calls `each` with the levels of every pair, the highest first.
#[inline(always)]
pub(super) fn each<A: Family>(pairs: A::Pairs, mut each: impl FnMut(usize, usize)) {
    let pairs = pairs.as_ref();
    for block in (0..if A::WIDE { 4 } else { 1 }).rev() {
        let mut left = pairs[block];
        while left != 0 {
            let bit = 63 - left.leading_zeros() as usize;
            left ^= 1 << bit;
            each(8 * (block / 2) + bit / 8, 8 * (block % 2) + bit % 8);
        }
    }
}

/// Rows for columns in eight rows of eight bits (Warren, "Hacker's Delight", 7-3).
#[inline(always)]
fn transposed(mut bits: u64) -> u64 {
    for (shift, mask) in
        [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)]
    {
        let swapped = (bits ^ bits >> shift) & mask;
        bits ^= swapped ^ swapped << shift;
    }
    bits
}
