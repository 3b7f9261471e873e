//! hitpath: a software security gateway. One binary is the daemon, its client and the tools around
//! them.
#![forbid(unsafe_code)]

mod batch;
mod bench;
mod cli;
mod client;
mod clock;
mod daemon;
mod demo;
mod exit;
mod explain;
mod gateway;
mod output;
mod replay;
mod verbs;
mod view;

use std::process::ExitCode;

use peak_alloc::PeakAlloc;

use crate::cli::Cli;
use crate::exit::Exit;

/// Counts what is allocated, for `hitpath bench lookup` to tell what policies take. A packet's way
/// allocates nothing.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

fn main() -> ExitCode {
    let cli = Cli::from_command_line();
    cli.start_logging();
    match cli.command.run(&cli.global) {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::report(&error, cli.global.json);
            Exit::of(&error).into()
        }
    }
}
