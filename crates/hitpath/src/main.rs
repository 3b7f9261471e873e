//! hitpath: a software security gateway. One binary is the daemon, its client and the tools around
//! them.
#![forbid(unsafe_code)]

mod batch;
mod cli;
mod client;
mod complete;
mod daemon;
mod demo;
mod exit;
mod explain;
mod gateway;
mod ip_options;
mod kernel;
mod metrics;
mod page;
mod replay;
mod shell;
mod suggest;
mod top;
mod usage;
mod verbs;
mod view;

use std::alloc::System;
use std::process::ExitCode;

use runtime::output;
use zeroizing_alloc::ZeroAlloc;

use crate::cli::Cli;

/// Wipes what is freed. Keys pass through many hands: parsers, the HTTP library, growing vectors.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

fn main() -> ExitCode {
    let cli = Cli::from_command_line();
    cli.start_logging();
    match cli.command.run(&cli.global) {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::report(&error, cli.global.json);
            exit::of(&error).into()
        }
    }
}
