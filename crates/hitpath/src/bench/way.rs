//! The series of the policy experiments: which engine looks policies up, and whether decisions are
//! remembered.

use flow::{Associativity, CacheMode, CacheSettings, CacheTable};
use tables::{LookupEngine, Tables};

/// A way to find a packet's policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub name: &'static str,
    pub engine: LookupEngine,
    cache: Option<(CacheMode, Associativity)>,
}

/// What was published and what we do, each without and with its cache. The published cache is
/// direct-mapped and always on.
pub(super) const WAYS: [Way; 4] = [
    Way { name: "linear", engine: LookupEngine::Linear, cache: None },
    Way {
        name: "linear+cache",
        engine: LookupEngine::Linear,
        cache: Some((CacheMode::On, Associativity::Direct)),
    },
    Way { name: "fast", engine: LookupEngine::Fast, cache: None },
    Way {
        name: "fast+cache",
        engine: LookupEngine::Fast,
        cache: Some((CacheMode::Auto, Associativity::Four)),
    },
];

impl Way {
    /// The same tables, looked up this way.
    pub(super) fn tables(&self, tables: &Tables) -> Tables {
        let mut tables = tables.clone();
        tables.set_lookup_engine(self.engine);
        tables
    }

    /// The worker's caches: `buckets` for each of `used`, none for the others.
    pub(super) fn caches(&self, used: &[CacheTable], buckets: u32) -> [CacheSettings; 4] {
        caches(self.cache, used, buckets)
    }
}

/// A cache of this kind with `buckets` for each of `used`, none for the others.
pub(super) fn caches(
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
pub(super) enum Mode {
    Off,
    On,
    Auto,
}

impl Mode {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Auto => "auto",
        }
    }

    /// None where there is to be no cache.
    pub(super) const fn mode(self) -> Option<CacheMode> {
        match self {
            Self::Off => None,
            Self::On => Some(CacheMode::On),
            Self::Auto => Some(CacheMode::Auto),
        }
    }
}
