//! `hitpath reload`: the daemon reads its configuration again.

use api::{Reply, Request};
use clap::Args;

use crate::cli::Global;
use crate::client;
use runtime::exit::Exit;
use runtime::output;

/// Have the daemon read its configuration file again
///
/// The difference is applied, all of it or none, and printed: `+` is new, `-` is gone, `~` is
/// different, `!` needs a restart.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath reload --dry-run                   what would change?
  hitpath reload")]
pub(crate) struct Reload {
    /// Print what would change, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

impl Reload {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match client::ask(global.socket(), &Request::Reload { dry_run: self.dry_run })? {
            Reply::Difference(difference) if global.json => output::json(&difference)?,
            Reply::Difference(difference) if difference.is_empty() => {
                output::line("nothing is different")?;
            }
            Reply::Difference(difference) => output::line(&difference.to_string())?,
            other => return Err(client::unexpected(&other)),
        }
        Ok(Exit::Done)
    }
}
