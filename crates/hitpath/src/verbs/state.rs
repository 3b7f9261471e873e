//! `hitpath state`: what commands have changed, as it lies on the disk.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use store::{Directory, Dropped};

use crate::cli::Global;
use crate::daemon::sequences::file;
use control::StateDirectory;
use runtime::exit::Exit;
use runtime::output;
use runtime::privileges::{User, as_owner};

/// Show, mend or drop what commands have changed
///
/// What commands change is kept in the state directory and made anew when the gateway starts. These
/// commands are for a gateway that is not running: while it runs, `hitpath diff` shows the same. As
/// root, they work as the user that the directory belongs to.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath state show                         what would be made anew?
  hitpath state repair                       a damaged log: keep what can be read
  hitpath state drop                         begin with the configuration file alone
  hitpath state forget-sequences             all SAs have new keys: count from 1 again
  hitpath state show /var/lib/hitpath-east   of another directory")]
pub(crate) struct State {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Print the commands that would be carried out; `~` is in front of those about objects of
    /// the configuration file
    Show(At),
    /// Keep of a damaged log what can be read
    ///
    /// The damaged log stays beside it. What could not be read is said by its place; look at
    /// `hitpath diff` once the gateway runs again. If anything is lost but a last write that was cut
    /// short, each VRF drops everything from the next start on, since flows and the firewall may be
    /// lost: the gateway's log names the flow to remove. VRFs without policies forward nothing across
    /// their boundary then, unless the configuration file says `ipsec = "off"` of them: `hitpath vrf
    /// set NAME ipsec auto` opens one. Where the configuration file says all, `hitpath state drop` is
    /// what you want.
    Repair(At),
    /// Forget all that commands have changed
    ///
    /// The log is moved aside; keys of SAs are removed from the disk. VRFs that had policies by
    /// command alone are plain routers from then on.
    Drop(At),
    /// Forget which sequence numbers keys have used
    ///
    /// For a file `sequences` that is lost or damaged, once all SAs have new keys: a key of before
    /// would send sequence numbers and IVs again, and accept old packets. What is left of the file
    /// is moved aside.
    ForgetSequences(At),
}

#[derive(Args, Debug)]
struct At {
    /// The state directory
    #[arg(default_value = StateDirectory::DEFAULT, value_name = "DIRECTORY")]
    directory: PathBuf,
}

impl State {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let (What::Show(At { directory })
        | What::Repair(At { directory })
        | What::Drop(At { directory })
        | What::ForgetSequences(At { directory })) = &self.what;
        if !directory.is_dir() {
            anyhow::bail!("there is no directory {}", directory.display());
        }
        as_owner(User::other_owner(directory)?, false, || {
            let opened = Directory::open_used(directory, "hitpath state")?;
            match self.what {
                What::Show(_) => show(&opened, global.json),
                What::Repair(_) => repair(&opened, global.json),
                What::Drop(_) => drop(&opened, global.json),
                What::ForgetSequences(_) => forget_sequences(&opened, global.json),
            }
        })
    }
}

fn show(directory: &Directory, is_json: bool) -> anyhow::Result<Exit> {
    let saved = directory.read()?.unwrap_or_default();
    if is_json {
        let commands: Vec<&str> = saved.changes.iter().flat_map(|text| text.lines()).collect();
        output::json(&json!({ "configuration": saved.configuration, "commands": commands,
            "keys": saved.keys.len(), "torn_bytes": saved.torn.len() }))?;
    } else {
        for text in &saved.changes {
            output::text(text)?;
        }
        if !saved.torn.is_empty() {
            let (bytes, at) = (saved.torn.len(), saved.torn.start);
            output::say(&format!("the last {bytes} bytes, from {at}, were not written whole"));
        }
    }
    Ok(Exit::Done)
}

fn repair(directory: &Directory, is_json: bool) -> anyhow::Result<Exit> {
    let repaired = directory.repair()?;
    if is_json {
        let lost: Vec<_> = repaired.lost.iter().map(|lost| [lost.start, lost.end]).collect();
        output::json(&json!({ "kept": repaired.changes, "lost_bytes": lost,
            "is_incomplete": repaired.is_incomplete, "has_lost_keys": repaired.has_lost_keys,
            "damaged_log": repaired.backup }))?;
        return Ok(Exit::Done);
    }
    output::line(&format!("{} commands kept", repaired.changes))?;
    for lost in &repaired.lost {
        output::line(&format!("bytes {} to {} could not be read", lost.start, lost.end))?;
    }
    if repaired.has_lost_keys {
        output::line("keys could not be read: SAs that had them do not come back")?;
    }
    output::line(&format!("the damaged log is {}", repaired.backup.display()))?;
    if repaired.is_incomplete {
        output::line(
            "policies, flows, filters and the firewall may be lost: from the next start on each VRF \
            drops everything, and the gateway's log names the flow to remove once they are there \
            again. VRFs without policies forward nothing across their boundary then, unless the \
            configuration file says ipsec = \"off\" of them; `hitpath vrf set NAME ipsec auto` opens \
            one that is a plain router. `hitpath state drop` begins with the configuration file alone",
        )?;
    }
    Ok(Exit::Done)
}

fn forget_sequences(directory: &Directory, is_json: bool) -> anyhow::Result<Exit> {
    let moved = file::forget(directory.path())?;
    if is_json {
        output::json(&json!({ "forgotten": moved }))?;
    } else {
        output::line(&match moved {
            Some(path) => format!("forgotten; the file is {} now", path.display()),
            None => "made; there was none".to_owned(),
        })?;
    }
    Ok(Exit::Done)
}

fn drop(directory: &Directory, is_json: bool) -> anyhow::Result<Exit> {
    let dropped = directory.put_aside()?;
    if is_json {
        let log = match &dropped {
            Dropped::Log(path) => Some(path),
            Dropped::Traces | Dropped::Nothing => None,
        };
        output::json(&json!({ "dropped_log": log }))?;
        return Ok(Exit::Done);
    }
    output::line(&match &dropped {
        Dropped::Log(path) => format!("dropped; the log is {} now, without keys", path.display()),
        Dropped::Traces => "the log was missing; there is one without changes now".to_owned(),
        Dropped::Nothing => "there is no log".to_owned(),
    })?;
    if dropped != Dropped::Nothing {
        output::line(
            "a VRF without policies and SAs in the configuration file forwards in clear from the \
            next start on, unless the file says ipsec = \"required\" of it",
        )?;
    }
    Ok(Exit::Done)
}
