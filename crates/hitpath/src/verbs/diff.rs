//! `hitpath diff`: how the gateway differs from its configuration file.

use api::{Reply, Request};
use clap::Args;

use crate::cli::Global;
use crate::client;
use runtime::exit::Exit;
use runtime::output;

/// Show how the gateway differs from its configuration file
///
/// `+` is there and not in the file, `-` is in the file and not there, `~` is different: as the
/// file says it, then as it is. The file is read as it is now. Exits with 1 if there is a
/// difference.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath diff                               what have commands changed?
  hitpath diff -j
  hitpath diff || hitpath save gw.toml       take it over into a file")]
pub(crate) struct Diff {}

impl Diff {
    #[expect(clippy::unused_self, reason = "as the other verbs")]
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let difference = match client::ask(global.socket(), &Request::Diff)? {
            Reply::Difference(difference) => difference,
            other => return Err(client::unexpected(&other)),
        };
        if global.json {
            output::json(&difference)?;
        } else if !difference.is_empty() {
            output::line(&difference.to_string())?;
        }
        Ok(if difference.is_empty() { Exit::Done } else { Exit::Refused })
    }
}
