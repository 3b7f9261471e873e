//! What to test and measure with: rule sets like real ones, headers for them, flows, and the file
//! formats of ClassBench (Taylor and Turner, "ClassBench: A Packet Classification Benchmark",
//! 2005).
//!
//! Nothing here reads a clock or asks the system for randomness: equal arguments give equal
//! results, on every machine that computes `f64::ln`, `exp` and `powf` alike.
#![forbid(unsafe_code)]

pub mod classbench;
pub mod flows;
pub mod rules;
mod splitmix;
pub mod trace;
