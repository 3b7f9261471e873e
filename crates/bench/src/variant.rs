//! The series of the policy experiments: which engine looks policies up, and whether decisions are
//! remembered.

use flow::{Associativity, CacheMode, CacheSettings, CacheTable};
use tables::{LookupEngine, Tables};

/// A way to find a packet's policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub name: &'static str,
    pub engine: LookupEngine,
    cache: Option<(CacheMode, Associativity)>,
}

/// What was published and what we do, each without and with its cache. The published cache is
/// direct-mapped and always on.
pub(crate) const VARIANTS: [Variant; 4] = [
    Variant { name: "linear", engine: LookupEngine::Linear, cache: None },
    Variant {
        name: "linear+cache",
        engine: LookupEngine::Linear,
        cache: Some((CacheMode::On, Associativity::Direct)),
    },
    Variant { name: "fast", engine: LookupEngine::Fast, cache: None },
    Variant {
        name: "fast+cache",
        engine: LookupEngine::Fast,
        cache: Some((CacheMode::Auto, Associativity::Four)),
    },
];

impl Variant {
    /// The same tables, looked up this way.
    pub(crate) fn tables(&self, tables: &Tables) -> Tables {
        let mut tables = tables.clone();
        tables.set_lookup_engine(self.engine);
        // As the daemon does soon after policies have come.
        tables.compile();
        tables
    }

    /// The worker's caches: `buckets` for each of `used`, none for the others.
    pub(crate) fn caches(&self, used: &[CacheTable], buckets: u32) -> [CacheSettings; 4] {
        caches(self.cache, used, buckets)
    }
}

/// A cache of this kind with `buckets` for each of `used`, none for the others.
pub(crate) fn caches(
    cache: Option<(CacheMode, Associativity)>,
    used: &[CacheTable],
    buckets: u32,
) -> [CacheSettings; 4] {
    CacheTable::ALL.map(|table| match cache {
        Some((mode, associativity)) if used.contains(&table) => {
            CacheSettings { mode, buckets, associativity }
        }
        _ => CacheSettings::OFF,
    })
}

/// When the decision cache is used, as users name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    Off,
    On,
    Auto,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Auto => "auto",
        }
    }

    /// None if there is to be no cache.
    pub(crate) const fn mode(self) -> Option<CacheMode> {
        match self {
            Self::Off => None,
            Self::On => Some(CacheMode::On),
            Self::Auto => Some(CacheMode::Auto),
        }
    }
}
