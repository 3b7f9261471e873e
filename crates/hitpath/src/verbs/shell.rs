//! `hitpath shell`: the verbs interactively.

use clap::Args;

use crate::cli::Global;
use runtime::exit::Exit;

/// Talk to the gateway in an interactive shell, with completion of every word and history
///
/// Lines are verbs with their words, without `hitpath` in front, and may have words in quotes, as
/// in a file for `batch`. An error ends nothing; Ctrl-C ends the command that runs, or begins
/// another line; Ctrl-D, `exit` and `quit` leave. Lines are remembered in
/// $XDG_STATE_HOME/hitpath/history (~/.local/state/hitpath/history), but for those with keys or
/// with a blank in front.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath shell
  hitpath                                    the same, at a terminal
  hitpath --socket /run/other.sock shell     with another daemon")]
pub(crate) struct Shell {}

impl Shell {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        crate::shell::run(global)
    }
}
