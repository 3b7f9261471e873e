//! `hitpath save`: what is in force, as a configuration file.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{self as unix, MetadataExt, OpenOptionsExt, PermissionsExt};
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
            // The daemon has to read it.
            let daemon = fs::metadata(global.socket()).ok();
            let daemon = daemon.map(|socket| (socket.uid(), socket.gid()));
            write(path, text.as_bytes(), 0o600, daemon)?;
        }
        match &self.file {
            Some(file) => write(file, text.as_bytes(), 0o666, None)?,
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

/// Writes a file, all of it or nothing. One that is there keeps its owner and its mode, as far as `mode`
/// allows; a new one belongs to `owner`, if we may give it away. What is no file, as a pipe or a terminal,
/// is written to.
fn write(path: &Path, bytes: &[u8], mode: u32, owner: Option<(u32, u32)>) -> anyhow::Result<()> {
    let doing = || format!("writing {}", path.display());
    // Behind links, so that they stay.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(path).ok();
    if old.as_ref().is_some_and(|old| !old.is_file() && !old.is_dir()) {
        let mut file = OpenOptions::new().write(true).open(path).with_context(doing)?;
        return file.write_all(bytes).with_context(doing);
    }
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
    let own = || match (&old, owner) {
        (Some(old), _) => {
            unix::fchown(&file, Some(old.uid()), Some(old.gid()))?;
            file.set_permissions(Permissions::from_mode(old.mode() & mode))
        }
        (None, Some((user, group))) => match unix::fchown(&file, Some(user), Some(group)) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            given => given,
        },
        (None, None) => Ok(()),
    };
    let owned = own();
    let written = owned.and_then(|()| file.write_all(bytes)).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&new, path)).with_context(doing).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, symlink};

    use super::*;

    #[test]
    fn what_is_there_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o777;
        // A new file, and one that is there with a mode of its own.
        write(&at("new"), b"one", 0o600, None).unwrap();
        assert_eq!((fs::read(at("new")).unwrap(), mode("new")), (b"one".to_vec(), 0o600));
        fs::write(at("old"), "before").unwrap();
        fs::set_permissions(at("old"), Permissions::from_mode(0o640)).unwrap();
        write(&at("old"), b"two", 0o666, None).unwrap();
        assert_eq!((fs::read(at("old")).unwrap(), mode("old")), (b"two".to_vec(), 0o640));
        // Keys are for their owner alone.
        write(&at("old"), b"key", 0o600, None).unwrap();
        assert_eq!(mode("old"), 0o600);
        symlink("old", at("link")).unwrap();
        write(&at("link"), b"three", 0o666, None).unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read(at("old")).unwrap(), b"three");
        // Nothing is left beside them.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        // No device is replaced, and what it says is said.
        write(Path::new("/dev/null"), b"four", 0o666, None).unwrap();
        let full = write(Path::new("/dev/full"), b"five", 0o666, None).unwrap_err();
        assert!(full.to_string().contains("writing /dev/full"), "{full}");
        for device in ["/dev/null", "/dev/full"] {
            assert!(fs::metadata(device).unwrap().file_type().is_char_device(), "{device}");
        }
    }
}
