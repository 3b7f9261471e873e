//! `hitpath man`: man pages from the same definitions as the help.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use crate::cli::Cli;
use runtime::exit::Exit;
use runtime::output;

/// Print the man page, or write one for every verb into a folder
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath man | man -l -                     read it now
  hitpath man /usr/local/share/man/man1      install hitpath.1, hitpath-run.1, hitpath-xfrm.1 ...")]
pub(crate) struct Man {
    /// Where to write hitpath.1 and a page for every verb; made if it does not exist
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match &self.folder {
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(Cli::command()).render(&mut page)?;
                output::text(&String::from_utf8(page)?)?;
            }
            Some(folder) => {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("making {}", folder.display()))?;
                clap_mangen::generate_to(Cli::command(), folder)
                    .with_context(|| format!("writing man pages to {}", folder.display()))?;
            }
        }
        Ok(Exit::Done)
    }
}
