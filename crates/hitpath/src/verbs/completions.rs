//! `hitpath completions`: shell completions. Those of bash, zsh and fish ask `hitpath complete` at
//! each word, so that they know the words of every command and the names that there are.

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
  hitpath completions fish > ~/.config/fish/completions/hitpath.fish

Those of bash, zsh and fish complete every word, with names of ports, VRFs and the like from the
running daemon; those of other shells verbs and options.")]
pub(crate) struct Completions {
    /// The shell to complete for
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match self.shell {
            Shell::Bash => output::text(include_str!("completions/hitpath.bash"))?,
            Shell::Zsh => output::text(include_str!("completions/hitpath.zsh"))?,
            Shell::Fish => output::text(include_str!("completions/hitpath.fish"))?,
            shell => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "hitpath", &mut script);
                output::text(&String::from_utf8(script)?)?;
            }
        }
        Ok(Exit::Done)
    }
}
