//! `hitpath run`: the daemon.

use std::path::PathBuf;

use clap::Args;

use crate::cli::Global;
use crate::daemon;
use runtime::exit::Exit;

/// Run the gateway of a configuration file
///
/// Checks the file, opens its ports, starts its workers and the control socket, and prints `ready`
/// when packets pass. SIGHUP, or `hitpath reload`, reads the file again and applies the difference,
/// all of it or none. SIGTERM and SIGINT stop it cleanly.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath run --config gw.toml
  hitpath run --config gw.toml --socket /run/hitpath/east.sock
  kill -HUP $(pidof hitpath)                 read the file again")]
pub(crate) struct Run {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

impl Run {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        daemon::run(&self.config, global.socket_override())
    }
}
