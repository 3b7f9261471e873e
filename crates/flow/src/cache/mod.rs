//! The decision cache: what was decided for a flow, kept in a table of fixed size.
//!
//! A table maps the words of a key to the words of a value, and knows nothing of what they mean.
//! Its user says for which generation of the policies a value was made, and decides whether it
//! still holds.

mod controller;
mod memory;
mod settings;
mod statistics;
mod table;

pub use controller::{Controller, Costs, Measurement, Plan};
pub use memory::Memory;
pub use settings::{Associativity, CacheMode, CacheSettings, CacheTable};
pub use statistics::CacheStatistics;
pub use table::{CacheTooLarge, Candidate, Counts, Found, Open, Place, Table, Value};
