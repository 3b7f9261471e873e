//! What the daemon gives up once it has started, and what it keeps for itself.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use anyhow::Context;
use control::Seccomp;
use runtime::claims::Claims;
use runtime::seccomp::Unlisted;
use runtime::{privileges, seccomp};

use crate::daemon::{ports, processors};
use crate::gateway::Protection;

/// Where daemons see each other's claims.
pub(super) const FOLDER: &str = "/run/hitpath";

/// The claims of this daemon. `config` is its configuration file. If there can be none, that is
/// said, and other daemons are not seen.
pub(super) fn claims(config: &Path) -> Claims {
    let config = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
    let holder = format!("pid {}, config {}", std::process::id(), config.display());
    let claims = Claims::new(Path::new(FOLDER), holder).unwrap_or_else(|error| {
        tracing::warn!(
            "{FOLDER}: {error}; whether other daemons use the same interfaces or \
            processors is not known"
        );
        Claims::default()
    });
    claims.remove_leftovers(&[ports::CLAIM, processors::CLAIM]);
    claims
}

/// Gives up what the daemon does not need to run, and hides its memory. `config` is its
/// configuration file.
///
/// # Errors
/// The system refuses.
pub(super) fn give_up(config: &Path) -> anyhow::Result<Protection> {
    // Needs a capability that is given up.
    let locked = privileges::lock_memory();
    if let Err(error) = &locked {
        tracing::warn!("memory with keys may be written to swap: {error}");
    }
    privileges::give_up()?;
    privileges::hide_memory()?;
    if let Err(error) = File::open(config)
        && error.kind() == io::ErrorKind::PermissionDenied
        && fs::symlink_metadata(config).is_ok()
    {
        tracing::warn!(
            "{}: a reload will not be able to read it, as the daemon has given up the \
            right to read the files of other users: make it belong to the daemon's user",
            config.display()
        );
    }
    Ok(Protection {
        capabilities: privileges::kept(),
        memory_locked: locked.is_ok(),
        seccomp: Seccomp::Off,
    })
}

/// Filters the system calls of all threads from now on.
///
/// # Errors
/// The system cannot.
pub(super) fn filter(protection: &mut Protection, wanted: Seccomp) -> anyhow::Result<()> {
    protection.seccomp = wanted;
    let unlisted = match wanted {
        Seccomp::Off => return Ok(()),
        Seccomp::Log => Unlisted::Log,
        Seccomp::On => Unlisted::Refuse,
    };
    seccomp::filter(unlisted).context("seccomp = \"off\" in [gateway] does without")
}
