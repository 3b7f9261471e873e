//! `hitpath completions`: shell completions from the same definitions as the help.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use runtime::exit::Exit;
use runtime::output;

/// Print completions for a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath completions bash > /etc/bash_completion.d/hitpath
  hitpath completions zsh > ~/.zfunc/_hitpath
  hitpath completions fish > ~/.config/fish/completions/hitpath.fish")]
pub(crate) struct Completions {
    /// The shell to complete for
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "hitpath", &mut script);
        output::text(&String::from_utf8(script)?)?;
        Ok(Exit::Done)
    }
}
