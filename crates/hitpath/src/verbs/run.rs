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
/// all of it or none. SIGTERM and SIGINT stop it cleanly. What commands change is kept in the state
/// directory, and is there again after the next start; so are the sequence numbers of SAs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath run --config gw.toml
  hitpath run --config gw.toml --socket /run/hitpath/east.sock \\
      --state-directory /var/lib/hitpath-east
  hitpath run --config gw.toml --own-interfaces
  kill -HUP $(pidof hitpath)                 read the file again")]
pub(crate) struct Run {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// Where changes by command and sequence numbers are kept, or `off` [default: as the
    /// configuration says, or else /var/lib/hitpath for root and `off` for others]
    #[arg(long, value_name = "PATH")]
    state_directory: Option<PathBuf>,

    /// Take the interfaces of AF_PACKET ports over from the kernel
    ///
    /// Their addresses are removed and their forwarding and IPv6 are switched off in the kernel,
    /// which answers nothing on them any more. What programs of this machine lose by that is
    /// logged first: look at it by `hitpath check --live` before. It stays so when the daemon
    /// ends, however it ends; `hitpath release-interfaces` puts everything back.
    #[arg(long)]
    own_interfaces: bool,
}

impl Run {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        daemon::run(&daemon::Options {
            file: &self.config,
            socket: global.socket_override(),
            state: self.state_directory.as_deref(),
            own_interfaces: self.own_interfaces,
        })
    }
}
