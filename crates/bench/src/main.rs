//! hitpath-bench: measures what a packet costs, with the workers and tables of the daemon.
//!
//! A program of its own, so that the daemon has none of its dependencies and keeps the system's
//! allocator.
#![forbid(unsafe_code)]

mod cli;
mod compare;
mod context;
mod core_state;
mod dut;
mod experiment;
mod frame;
mod measure;
mod pairs;
mod parallel;
mod plot;
mod published;
mod row;
mod sealed;
mod target;
mod text;
mod topology;
mod traffic;
mod variant;

use std::process::ExitCode;

use clap::Parser;
use peak_alloc::PeakAlloc;
use runtime::exit::Exit;
use runtime::output;

use crate::cli::Bench;

/// Counts what is allocated, so that `lookup` can tell what policies take. A packet's way allocates
/// nothing.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

fn main() -> ExitCode {
    let bench = Bench::parse();
    match bench.run() {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::report(&error, bench.as_json());
            Exit::Refused.into()
        }
    }
}
