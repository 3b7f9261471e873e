//! The bodies of the fuzz targets, one module each, and the seeds of their corpora.
//!
//! A body is a plain function of bytes that panics where a promise is broken. The crate it examines
//! includes the module in a test of its own, so that the committed corpus runs with every `cargo
//! test`.
#![forbid(unsafe_code)]

pub mod captures;
pub mod captures_seeds;
pub mod configuration;
pub mod configuration_seeds;
pub mod esp_open;
pub mod esp_open_seeds;
pub mod grammar;
pub mod grammar_seeds;
pub mod headers;
pub mod headers_seeds;
pub mod reassembly;
pub mod reassembly_seeds;
