//! Longest prefix match.

/// A longest-prefix-match table with cheap copies.
#[derive(Clone, Debug)]
pub struct Fib<V> {
    entries: Vec<V>,
}
