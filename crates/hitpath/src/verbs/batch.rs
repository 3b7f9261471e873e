//! `hitpath batch`: many commands from a file.

use std::io::IsTerminal;
use std::path::PathBuf;

use api::OnRefusal;
use clap::Args;

use crate::batch::Load;
use crate::cli::Global;
use crate::ip_options::ShowOptions;
use runtime::exit::Exit;

/// Carry out a file of commands, as `ip -batch` does
///
/// A line is a command in iproute2's grammar, without `hitpath` in front. Blank lines and what
/// stands behind `#` are left out, a backslash at the end of a line continues it, words may stand
/// in quotes. Packets pass all the while, and see the tables before or after a change, never in
/// between.
///
/// The first command that is refused ends it with exit code 1 and its line; those before it stay
/// done. With --force the others are carried out all the same; with --atomic nothing is done unless
/// everything can be.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath batch policies.txt
  hitpath batch --atomic policies.txt        all of it, or nothing
  hitpath batch --force - < commands         as many as can be
  hitpath -j batch policies.txt              counts, errors and what lookups cost, as JSON

policies.txt:
  # two sites
  xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out action block
  route add 10.2.0.0/16 via 192.0.2.2")]
pub(crate) struct Batch {
    /// The file, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// All or nothing: one refused command leaves everything as it was
    ///
    /// The commands go to the daemon as one request, of 262,144 commands and 64 MiB at most.
    #[arg(short, long, conflicts_with = "force")]
    atomic: bool,

    /// Go on behind a command that is refused
    #[arg(short, long)]
    force: bool,

    /// Do not wait until the changes are on the disk: they are in force, and lost with power
    #[arg(long)]
    no_sync: bool,

    #[command(flatten)]
    show: ShowOptions,
}

impl Batch {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let on_refusal = match (self.atomic, self.force) {
            (true, _) => OnRefusal::Undo,
            (_, true) => OnRefusal::Continue,
            _ => OnRefusal::Stop,
        };
        Load {
            file: self.file.clone(),
            socket: global.socket(),
            sync: !self.no_sync,
            on_refusal,
            json: global.json,
            verbose: global.verbose > 0,
            look: self.show.look(std::io::stdout().is_terminal())?,
        }
        .run()
    }
}
