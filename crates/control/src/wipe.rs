//! Wiping what functions that have returned left on the stack.
//!
//! It does not only stay there: a value is moved with those of its bytes that mean nothing, such as
//! an `Option` that is `None`, and these are what the stack held before. So what a key has left
//! there may get into a table, and live as long as that.

use zeroize::Zeroize;

/// Overwrites the stack below the caller's frame, deeper than what reads and handles keys. Keys and
/// what engines make of them are moved about, and each move leaves a copy there.
pub fn wipe_stack() {
    wipe::<{ 128 << 10 >> 3 }>();
}

/// The same, as deep as making an SA goes.
pub(crate) fn wipe_stack_of_sa() {
    wipe::<{ 32 << 10 >> 3 }>();
}

#[inline(never)]
fn wipe<const WORDS: usize>() {
    let mut area = [0_u64; WORDS];
    area.zeroize();
    std::hint::black_box(&mut area);
}
