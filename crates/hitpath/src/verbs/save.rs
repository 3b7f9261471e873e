//! `hitpath save`: what is in force, as a configuration file.

mod file;
mod place;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use api::{Key, Reply, Request, SavedConfiguration};
use clap::Args;
use zeroize::Zeroizing;

use self::file::{Replaced, Target};
use crate::cli::Global;
use crate::client;
use crate::gateway::KEYS_ID;
use runtime::exit::Exit;
use runtime::output;

/// Write what is in force as a configuration file
///
/// `hitpath check` accepts the file, and `hitpath run` makes the same gateway of it. SAs are in it
/// with --keys alone: their keys are then in FILE.keys, of mode 0600, which the file names. Both have
/// the same `keys-id`, and `run`, `check` and `reload` refuse a file with keys of another one. What no
/// file can say, as a route whose link is gone or a rule about a port that is gone, is left out,
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
        // What cannot be written to is refused before anybody is asked for keys.
        let target = match &self.file {
            Some(file) => Some(file::configuration(file).with_context(|| writing(file))?),
            None => None,
        };
        let keys_target = match (&keys, &target) {
            (Some(path), Some(file)) => Some(open_keys(path, file, global)?),
            _ => None,
        };
        let saved = match client::ask(global.socket(), &Request::Save { keys_file })? {
            Reply::Saved(saved) => saved,
            other => return Err(client::unexpected(&other)),
        };
        let SavedConfiguration { text, keys: of_sas, keys_id, left_out } = &saved;
        let written = match (target, keys_target) {
            (None, _) if global.json => Ok(Vec::new()),
            (None, _) => output::text(text).map(|()| Vec::new()),
            (Some(Target::Stream(mut stream)), _) => {
                stream.write_all(text.as_bytes()).map(|()| Vec::new()).map_err(Into::into)
            }
            (Some(Target::File(file)), None) => file.write(text.as_bytes()),
            (Some(Target::File(file)), Some(keys)) => {
                let lines = lines(of_sas, keys_id.as_deref());
                file.write_with_keys(text.as_bytes(), &keys, lines.as_bytes())
            }
        };
        let notes = match &self.file {
            Some(file) => written.with_context(|| writing(file))?,
            None => written?,
        };
        notes.iter().for_each(|note| output::say(note));
        if global.json {
            let text = self.file.is_none().then_some(text);
            output::json(&serde_json::json!({ "file": self.file, "keys": keys, "text": text,
                "left_out": left_out }))?;
        } else {
            left_out.iter().for_each(|line| output::say(&format!("left out: {line}")));
        }
        // A gateway with this file would let other packets pass.
        let decides = |line: &String| line.starts_with("flow ") || line.starts_with("policy ");
        Ok(if left_out.iter().any(decides) { Exit::Refused } else { Exit::Done })
    }
}

fn writing(path: &Path) -> String {
    format!("writing {}", path.display())
}

/// Opens the file for the keys of a configuration.
fn open_keys(path: &Path, file: &Target, global: &Global) -> anyhow::Result<Replaced> {
    let Target::File(file) = file else {
        bail!("{}: keys are beside a file, and FILE is none", writing(path));
    };
    // The daemon has to read it.
    let daemon = fs::metadata(global.socket()).ok();
    let daemon = daemon.map(|socket| (socket.uid(), socket.gid()));
    let keys = file::keys(path, daemon).with_context(|| writing(path))?;
    if keys.is_same(file)? {
        bail!("{}: it is the configuration itself: remove it", writing(path));
    }
    Ok(keys)
}

/// The lines of a file of keys.
fn lines(keys: &[Key], id: Option<&str>) -> Zeroizing<String> {
    let first = id.map(|id| format!("{KEYS_ID}{id}\n")).unwrap_or_default();
    let mut text = Zeroizing::new(first);
    text.reserve(keys.iter().map(|key| 3 + 2 * key.bytes().len()).sum());
    for key in keys {
        text.push_str(&key.to_hex());
        text.push('\n');
    }
    text
}
