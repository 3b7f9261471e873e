//! Wiping what functions that have returned left on the stack.

use zeroize::Zeroize;

/// What is wiped, in words of 8 bytes: deeper than what handles keys.
const WORDS: usize = (128 << 10) / 8;

/// Overwrites the stack below the caller's frame. Keys and what engines make of them are moved
/// about while an SA is made, and each move leaves a copy there.
#[inline(never)]
pub(super) fn wipe_stack() {
    let mut area = [0_u64; WORDS];
    area.zeroize();
    std::hint::black_box(&mut area);
}
