//! What every way of running the gateway has in common: live, in a replay, in a demonstration.

mod caches;
mod counted;
mod inline;
mod request_handler;
pub(crate) mod twin;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use control::{Config, Diagnostic, Diagnostics};
use thiserror::Error;

pub(crate) use caches::settings as cache_settings;
pub(crate) use counted::Counted;
pub(crate) use inline::{Gateway, RING, TICK};
pub(crate) use request_handler::RequestHandler;

/// The longest configuration file that is read, in bytes.
const MAX_CONFIG: u64 = 64 << 20;

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
    read(file, control::load)
}

/// As [`load`], with notes that may take seconds to find.
///
/// # Errors
/// As [`load`].
pub(crate) fn check(file: &Path) -> Result<Config, ConfigError> {
    read(file, control::config::check)
}

fn read(
    file: &Path,
    load: impl FnOnce(&str, &str) -> Result<Config, Diagnostics>,
) -> Result<Config, ConfigError> {
    let unreadable = |problem: String| ConfigError::Unreadable { file: file.to_owned(), problem };
    let mut bytes = Vec::new();
    // Devices and pipes do not say how much there is to come.
    let opened = File::open(file).map(|file| file.take(MAX_CONFIG + 1));
    opened
        .and_then(|mut reader| reader.read_to_end(&mut bytes))
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > MAX_CONFIG {
        return Err(unreadable(format!(
            "more than the {MAX_CONFIG} bytes that a configuration may have"
        )));
    }
    let name = file.display().to_string();
    match str::from_utf8(&bytes) {
        Ok(text) => load(&name, text).map_err(ConfigError::Wrong),
        Err(error) => {
            Err(ConfigError::Wrong(Diagnostics(vec![no_text(name, &bytes[..error.valid_up_to()])])))
        }
    }
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
