//! `hitpath release-interfaces`: what `run --own-interfaces` has taken from the kernel goes back.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use control::StateDirectory;
use store::{Directory, StoreError};

use crate::cli::Global;
use crate::daemon;
use crate::kernel::own::{self, Released};
use runtime::exit::Exit;
use runtime::output;
use runtime::privileges::{User, as_owner};

/// Give interfaces back to the kernel that `run --own-interfaces` has taken over
///
/// Puts back their addresses, the routes that were lost with them, and the kernel's settings, as
/// the state directory has them recorded. Addresses that were added since stay. Refused while a
/// gateway runs on them. As root, it works as the user that the directory belongs to. What cannot
/// be put back is told and stays recorded, so that it can be said again.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath release-interfaces
  hitpath release-interfaces /var/lib/hitpath-east   of another state directory
  hitpath release-interfaces --forget        some are gone, and will not be back")]
pub(crate) struct ReleaseInterfaces {
    /// The state directory
    #[arg(default_value = StateDirectory::DEFAULT, value_name = "DIRECTORY")]
    directory: PathBuf,

    /// The same, as `hitpath run` has it
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "directory")]
    state_directory: Option<PathBuf>,

    /// Forget interfaces that are gone, routes that the kernel refuses, and the record of another
    /// network namespace
    #[arg(long)]
    forget: bool,
}

impl ReleaseInterfaces {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let directory = self.state_directory.as_ref().unwrap_or(&self.directory);
        if !directory.is_dir() {
            bail!("there is no state directory {}", directory.display());
        }
        let owner = User::other_owner(directory)?;
        let opened = as_owner(owner, false, || {
            match Directory::open_used(directory, "hitpath release-interfaces") {
                Err(StoreError::InUse { path, holder }) => {
                    bail!("{holder} has state directory {}: stop that one first", path.display())
                }
                opened => Ok(opened?),
            }
        })?;
        let result = self.release(&opened, owner)?;
        if global.json {
            output::json(&result)?;
        } else {
            for name in &result.released {
                output::line(&format!("interface {name} is the kernel's again"))?;
            }
            result.notes.iter().chain(&result.failed).for_each(|what| output::say(what));
        }
        Ok(if result.failed.is_empty() { Exit::Done } else { Exit::Refused })
    }
    fn release(&self, directory: &Directory, owner: Option<User>) -> anyhow::Result<Released> {
        if self.forget
            && let Some(released) = as_owner(owner, false, || own::forget_elsewhere(directory))?
        {
            return Ok(released);
        }
        let taken = as_owner(owner, false, || own::taken(directory))?;
        // A gateway with another state directory may have them. Its claims and these are of the user
        // that their folder belongs to.
        let keeper = daemon::keeper_of_claims()?;
        let claims = as_owner(keeper, false, || daemon::claim_interfaces(&taken))?;
        let result = as_owner(owner, true, || own::release(directory, self.forget));
        as_owner(keeper, false, || {
            drop(claims);
            Ok(())
        })?;
        result
    }
}
