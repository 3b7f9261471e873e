//! `hitpath save`: what is in force, as a configuration file.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use api::{Reply, Request, SavedConfiguration};
use clap::Args;
use zeroize::Zeroizing;

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
        if let Some(path) = &keys {
            let mut text = Zeroizing::new(String::new());
            text.reserve(of_sas.iter().map(|key| 3 + 2 * key.bytes().len()).sum());
            for key in of_sas {
                text.push_str(&key.to_hex());
                text.push('\n');
            }
            write(path, text.as_bytes(), 0o600)?;
        }
        match &self.file {
            Some(file) => write(file, text.as_bytes(), 0o666)?,
            None if global.json => {}
            None => output::text(text)?,
        }
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

/// Writes a file, all of it or nothing.
fn write(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let doing = || format!("writing {}", path.display());
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // One that is left of a run before may have another mode.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&new)
        .with_context(doing)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&new, path)).with_context(doing).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}
