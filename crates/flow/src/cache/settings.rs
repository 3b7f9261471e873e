//! What a decision cache is to be like.

pub use types::{CacheMode, CacheTable};

use super::controller;

/// How many places a flow may have in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Associativity {
    /// One: flows of one bucket overwrite each other, as in the SPD flow caches of VPP.
    Direct,
    /// Four, and four of a second set if these are taken: if all are, a new flow takes the place of one
    /// that was not used lately.
    #[default]
    Four,
}

/// One table of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// When it is used.
    pub mode: CacheMode,
    /// How many flows it can hold. Rounded up to a power of two.
    pub buckets: u32,
    /// How many places each has.
    pub associativity: Associativity,
}

impl CacheSettings {
    /// Buckets unless told otherwise.
    pub const DEFAULT_BUCKETS: u32 = 1 << 20;
    /// The most buckets.
    pub const MAX_BUCKETS: u32 = 1 << 30;

    /// No cache.
    pub const OFF: Self =
        Self { mode: CacheMode::Off, buckets: 1, associativity: Associativity::Four };

    /// Packets after which a table that is used if it pays, and does not, is given up: it may fill before.
    pub fn time_to_judge(&self) -> u64 {
        let buckets = u64::from(self.buckets).next_power_of_two();
        controller::time_to_fill(buckets) + controller::WINDOW
    }
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            mode: CacheMode::Auto,
            buckets: Self::DEFAULT_BUCKETS,
            associativity: Associativity::Four,
        }
    }
}
