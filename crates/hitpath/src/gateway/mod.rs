//! What every way of running the gateway has in common: live, in a replay, in a demonstration.

mod caches;
mod costs;
mod counted;
#[cfg(test)]
mod in_memory;
mod inline;
mod readers;
#[cfg(test)]
mod recursive_law;
mod request_handler;
pub(crate) mod twin;

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use api::Key;
use control::{Config, Diagnostic, Diagnostics, ReadKeys};
use nix::libc::O_NONBLOCK;
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::daemon::bearer;

pub(crate) use caches::settings as cache_settings;
pub(crate) use counted::Counted;
#[cfg(test)]
pub(crate) use in_memory::InMemory;
pub(crate) use inline::{Gateway, RING, TICK};
pub(crate) use request_handler::{Protection, RequestHandler};

/// The longest configuration file that is read, in bytes.
const MAX_CONFIG: u64 = 64 << 20;

/// How the first line of a file of keys begins that says of which configuration it is.
pub(crate) const KEYS_ID: &str = "# keys-id ";

/// A configuration file cannot be used.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    /// It cannot be read.
    #[error("{}: {problem}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        problem: String,
    },
    /// It says what cannot be.
    #[error("the configuration is wrong:\n{0}")]
    Wrong(Diagnostics),
}

/// Reads and checks a configuration file.
///
/// # Errors
/// If it cannot be read, or with everything that is wrong with it.
pub(crate) fn load(file: &Path) -> Result<Config, ConfigError> {
    load_with_digest(file).map(|(config, _)| config)
}

/// As [`load`], with notes that may take seconds to find.
///
/// # Errors
/// As [`load`].
pub(crate) fn check(file: &Path) -> Result<Config, ConfigError> {
    check_bytes(file, &read(file)?)
}

/// The same of what was read of a file.
///
/// # Errors
/// As [`load`].
pub(crate) fn check_bytes(file: &Path, bytes: &[u8]) -> Result<Config, ConfigError> {
    let check_token = |token: &Path, section: &str| {
        let token = beside(file, token);
        let text = read_secret(&token).map_err(|error| error.to_string())?;
        let is_right = bearer::line(&text).is_some();
        is_right.then_some(()).ok_or_else(|| bearer::wrong(&token, section))
    };
    let check = |name: &str, text: &str, read_keys: ReadKeys<'_>| {
        control::config::check(name, text, read_keys, &check_token)
    };
    let (mut config, _) = load_by(check, file, bytes)?;
    config.notes.extend(readable_keys(file, &config));
    Ok(config)
}

/// As [`load`], with a digest of what was read.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_with_digest(file: &Path) -> Result<(Config, String), ConfigError> {
    load_by(control::load_with_keys, file, &read(file)?)
}

fn load_by(
    load: impl FnOnce(&str, &str, ReadKeys<'_>) -> Result<Config, Diagnostics>,
    file: &Path,
    bytes: &[u8],
) -> Result<(Config, String), ConfigError> {
    let name = file.display().to_string();
    let Ok(text) = str::from_utf8(bytes) else {
        let good = str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
        return Err(ConfigError::Wrong(Diagnostics(vec![no_text(name, &bytes[..good])])));
    };
    let digest = RefCell::new(Sha256::new_with_prefix(bytes));
    let read_keys = |path: &Path, id: Option<&str>| {
        let path = beside(file, path);
        let keys = read(&path).map_err(|error| error.to_string())?;
        digest.borrow_mut().update(&keys);
        warn_of_readers(&path);
        keys_of(&keys, id).map_err(|why| format!("{}{why}", path.display()))
    };
    let config = load(&name, text, &read_keys).map_err(ConfigError::Wrong)?;
    let digest = digest.into_inner().finalize();
    let hex = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok((config, format!("sha256:{hex}")))
}

/// The keys of a file whose first line says `id`, or what is wrong with it. Neither word is said
/// again: it may be a key in the wrong place.
fn keys_of(bytes: &[u8], id: Option<&str>) -> Result<Vec<Key>, String> {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    let found = lines.first().and_then(|line| line.strip_prefix(KEYS_ID.as_bytes()));
    match (found, id) {
        (None, None) => {}
        (Some(found), Some(id)) if found.trim_ascii() == id.as_bytes() => {}
        _ => {
            return Err(": these are the keys of another configuration: the first line is not \
                        `# keys-id ` with what keys-id says here (`hitpath save --keys` writes \
                        both; if they belong together, neither needs it)"
                .to_owned());
        }
    }
    let key = |(at, line): (usize, &&[u8])| {
        let key = str::from_utf8(line).ok().and_then(|line| line.trim().parse().ok());
        let wrong = || format!(":{}: each line is a key in hexadecimal, with 0x in front", at + 1);
        key.ok_or_else(wrong)
    };
    lines.iter().enumerate().skip(usize::from(found.is_some())).map(key).collect()
}

/// Where a file is that the configuration `file` names: beside it, unless it says where.
pub(crate) fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().map_or_else(|| path.to_owned(), |folder| folder.join(path))
}

/// Warns of what `config`, the content of `file`, has that is no error, and of its keys if others may
/// read them and that is news.
pub(crate) fn warn_of(file: &Path, config: &Config) {
    config.notes.iter().for_each(|note| tracing::warn!("{note}"));
    if config.has_keys
        && let Some(mode) = readers::news(file)
    {
        tracing::warn!("{}", has_readable_keys(file, &mode));
    }
}

fn warn_of_readers(path: &Path) {
    if let Some(mode) = readers::news(path) {
        tracing::warn!(file = %path.display(), mode, "others may read this secret (chmod 0600)");
    }
}

/// The text of a file with a secret.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn read_secret(file: &Path) -> Result<Zeroizing<String>, ConfigError> {
    let bytes = read(file)?;
    warn_of_readers(file);
    let text = str::from_utf8(&bytes).map_err(|_| ConfigError::Unreadable {
        file: file.to_owned(),
        problem: "this is not text".to_owned(),
    })?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
    let unreadable = |problem: String| ConfigError::Unreadable { file: file.to_owned(), problem };
    let mut bytes = Zeroizing::new(Vec::new());
    // A file may grow while it is read.
    let opened = open_regular(file).map(|file| file.take(MAX_CONFIG + 1));
    opened
        .and_then(|mut reader| reader.read_to_end(&mut bytes))
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > MAX_CONFIG {
        return Err(unreadable(format!(
            "more than the {MAX_CONFIG} bytes that a configuration may have"
        )));
    }
    Ok(bytes)
}

/// A note if the file of `config` has keys, and others than its owner may read it. The file that
/// `keys-file` names is looked at where it is read.
fn readable_keys(file: &Path, config: &Config) -> Option<Diagnostic> {
    let mode = readers::mode_for_others(file).filter(|_| config.has_keys)?;
    Some(has_readable_keys(file, &mode))
}

fn has_readable_keys(file: &Path, mode: &str) -> Diagnostic {
    Diagnostic {
        file: file.display().to_string(),
        line: 1,
        column: 1,
        message: format!("it has keys, and others may read it (mode {mode})"),
        hint: Some("chmod 0600".to_owned()),
    }
}

/// Opens a regular file, and waits for nothing: a FIFO has no end until somebody writes to it, and
/// a device may have none at all.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    let what = match kind {
        kind if kind.is_file() => return Ok(file),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!("this is {what}; a configuration is a regular file")))
}

/// The file stops being text behind `good`.
fn no_text(file: String, good: &[u8]) -> Diagnostic {
    let line_start = good.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    Diagnostic {
        file,
        line: 1 + good.iter().filter(|&&byte| byte == b'\n').count(),
        column: 1 + String::from_utf8_lossy(&good[line_start..]).chars().count(),
        message: "this is not text".to_owned(),
        hint: Some("a TOML file is UTF-8".to_owned()),
    }
}
