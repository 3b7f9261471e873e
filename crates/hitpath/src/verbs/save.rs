//! `hitpath save`: what is in force, as a configuration file.

mod file;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use api::{Reply, Request, SavedConfiguration};
use clap::Args;
use zeroize::Zeroizing;

use self::file::Access;
use crate::cli::Global;
use crate::client;
use runtime::exit::Exit;
use runtime::output;

/// Write what is in force as a configuration file
///
/// `hitpath check` accepts the file, and `hitpath run` makes the same gateway of it. SAs are in it
/// with --keys alone: their keys are then in FILE.keys, of mode 0600, which the file names. What
/// no file can say, as a route whose link is gone or a rule about a port that is gone, is left out,
/// told on standard error, and a comment in the file.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath save                               to standard output
  hitpath save gw.toml
  hitpath save --keys gw.toml                with SAs; keys are in gw.toml.keys")]
pub(crate) struct Save {
    /// The file; standard output if it is not given
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Write SAs too, and their keys to FILE.keys
    #[arg(long, requires = "file")]
    keys: bool,
}

impl Save {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let keys = self.file.as_ref().filter(|_| self.keys).map(|file| {
            let mut path = file.clone().into_os_string();
            path.push(".keys");
            PathBuf::from(path)
        });
        let keys_file = match keys.as_deref().and_then(Path::file_name).map(|name| name.to_str()) {
            None => None,
            Some(Some(name)) => Some(name.to_owned()),
            Some(None) => bail!("a configuration file cannot name {keys:?}: it is not UTF-8"),
        };
        let saved = match client::ask(global.socket(), &Request::Save { keys_file })? {
            Reply::Saved(saved) => saved,
            other => return Err(client::unexpected(&other)),
        };
        let SavedConfiguration { text, keys: of_sas, left_out } = &saved;
        // Both are written before either is in its place, so that they fit each other.
        let mut written = Vec::new();
        if let Some(path) = &keys {
            let mut text = Zeroizing::new(String::new());
            text.reserve(of_sas.iter().map(|key| 3 + 2 * key.bytes().len()).sum());
            for key in of_sas {
                text.push_str(&key.to_hex());
                text.push('\n');
            }
            // The daemon has to read it.
            let daemon = fs::metadata(global.socket()).ok();
            let daemon = daemon.map(|socket| (socket.uid(), socket.gid()));
            written.push(file::write(path, text.as_bytes(), Access::Secret(daemon))?);
        }
        match &self.file {
            Some(file) => written.push(file::write(file, text.as_bytes(), Access::Open)?),
            None if global.json => {}
            None => output::text(text)?,
        }
        written.into_iter().try_for_each(file::Written::commit)?;
        if global.json {
            let text = self.file.is_none().then_some(text);
            output::json(&serde_json::json!({ "file": self.file, "keys": keys, "text": text,
                "left_out": left_out }))?;
        } else {
            left_out.iter().for_each(|line| output::say(&format!("left out: {line}")));
        }
        Ok(Exit::Done)
    }
}
