//! The decision cache.

mod settings;
mod statistics;

pub use settings::{Associativity, CacheMode, CacheSettings, CacheTable};
pub use statistics::CacheStatistics;
