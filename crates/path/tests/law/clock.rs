//! A clock by which looking and deciding take as long as the test likes.

use std::cell::Cell;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static COSTS: Cell<[u64; 2]> = const { Cell::new([1, 1]) };
}

/// What looking a batch up and deciding what was not found take from now on.
pub(crate) fn set_costs(look: u64, decide: u64) {
    COSTS.set([look, decide]);
}

/// A worker reads it four times for a batch: before it looks, when it has looked, when it has decided, and when it has kept.
pub(crate) fn ticks() -> u64 {
    let [look, decide] = COSTS.get();
    let step = match CALLS.get() % 4 {
        1 => look,
        2 => decide,
        _ => 1,
    };
    CALLS.set(CALLS.get() + 1);
    NOW.set(NOW.get() + step);
    NOW.get()
}
