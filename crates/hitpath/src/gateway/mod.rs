//! What every way of running the gateway has in common: live, in a replay, in a demonstration.

mod counted;
mod desk;
mod inline;
pub(crate) mod twin;

use std::fs;
use std::path::{Path, PathBuf};

use control::{Config, Diagnostics};
use thiserror::Error;

pub(crate) use counted::Counted;
pub(crate) use desk::Desk;
pub(crate) use inline::{Gateway, RING, TICK};

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
/// Where it cannot be read, or with everything that is wrong with it.
pub(crate) fn load(file: &Path) -> Result<Config, ConfigError> {
    let unreadable = |problem: String| ConfigError::Unreadable { file: file.to_owned(), problem };
    let length = fs::metadata(file).map_err(|error| unreadable(error.to_string()))?.len();
    if length > MAX_CONFIG {
        return Err(unreadable(format!("{length} bytes are more than the {MAX_CONFIG} that a configuration may have")));
    }
    let text = fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    control::load(&file.display().to_string(), &text).map_err(ConfigError::Wrong)
}
