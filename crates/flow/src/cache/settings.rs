//! What a decision cache is to be like.

use core::fmt;

/// When a table of the cache is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// Never: every packet is decided.
    Off,
    /// Always.
    On,
    /// While it pays: the worker measures what a hit saves against what looking and keeping cost.
    #[default]
    Auto,
}

/// How many places a flow may have in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Associativity {
    /// One: flows of one bucket overwrite each other, as in the SPD flow caches of VPP.
    Direct,
    /// Four: a new flow takes the place of one that was not used lately.
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

/// A worker's tables. Which one a flow is in follows from its key: its family, and which SPD has
/// the last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheTable {
    /// IPv4 that leaves, or is forwarded in clear.
    V4Outbound,
    /// IPv4 ESP for the gateway, and what was decrypted.
    V4Inbound,
    /// IPv6 that leaves, or is forwarded in clear.
    V6Outbound,
    /// IPv6 ESP for the gateway, and what was decrypted.
    V6Inbound,
}

impl CacheTable {
    /// All four.
    pub const ALL: [Self; 4] =
        [Self::V4Outbound, Self::V4Inbound, Self::V6Outbound, Self::V6Inbound];

    /// `ipv4-outbound`, `ipv4-inbound`, ...: as in the names of the settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4Outbound => "ipv4-outbound",
            Self::V4Inbound => "ipv4-inbound",
            Self::V6Outbound => "ipv6-outbound",
            Self::V6Inbound => "ipv6-inbound",
        }
    }
}

impl fmt::Display for CacheTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Auto => "auto",
        })
    }
}
