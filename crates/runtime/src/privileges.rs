//! What a running gateway gives up: capabilities, new privileges, core dumps. And as whom commands of root
//! work on files of another user.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::{
    Gid, Uid, User as NixUser, getegid, geteuid, getgroups, setegid, seteuid, setgroups,
};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};

/// What ports need: raw packets, and interfaces.
const KEPT: CapabilitySet = CapabilitySet::NET_RAW.union(CapabilitySet::NET_ADMIN);

/// Gives up every capability but those that ports need, and for good: a program that this thread
/// or one that it starts would execute gains none. What is kept can be had only if the process has
/// it. Threads that run already are not changed.
///
/// # Errors
/// The system refuses.
pub fn give_up() -> anyhow::Result<()> {
    set_no_new_privs(true).context("giving up new privileges")?;
    let has = capabilities(None).context("asking for capabilities")?;
    let kept = has.permitted.intersection(KEPT);
    // Older kernels know no ambient capabilities.
    match clear_ambient_capability_set() {
        Err(error) if error != rustix::io::Errno::INVAL => {
            return Err(error).context("giving up ambient capabilities");
        }
        _ => {}
    }
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).context("giving up capabilities")
}

/// Names of the capabilities that the calling thread has, as capabilities(7) writes them.
pub fn kept() -> Vec<String> {
    let has = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    has.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}

/// Whether the calling thread may change the network of its namespace: CAP_NET_ADMIN.
pub fn may_change_network() -> bool {
    capabilities(None).is_ok_and(|has| has.effective.contains(CapabilitySet::NET_ADMIN))
}

/// A user, and the group that files of it are to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    uid: Uid,
    gid: Gid,
}

impl User {
    /// The one that `path` belongs to, if this process is root's and it is another. Root should not
    /// work on files of another user as itself: what it makes there the other could not use, and a
    /// symbolic link there would lead it anywhere.
    ///
    /// # Errors
    /// The system does not say whose it is.
    pub fn other_owner(path: &Path) -> anyhow::Result<Option<Self>> {
        let found = fs::metadata(path).with_context(|| path.display().to_string())?;
        let owner = Self { uid: Uid::from_raw(found.uid()), gid: Gid::from_raw(found.gid()) };
        Ok((geteuid().is_root() && !owner.uid.is_root()).then_some(owner))
    }

    /// Has this process, which is root's, act as this user until what is returned is dropped: on
    /// files, and with none of root's rights but, with `keeps_network`, that to change the network.
    /// It may have no other thread.
    ///
    /// # Errors
    /// The system refuses.
    pub fn act(self, keeps_network: bool) -> anyhow::Result<Acting> {
        let context = || format!("acting as user {self}");
        let kept = match keeps_network {
            true => CapabilitySet::NET_ADMIN,
            false => CapabilitySet::empty(),
        };
        let sets = capabilities(None).with_context(context)?;
        let groups = getgroups().with_context(context)?;
        let acting = Acting { group: getegid(), groups, sets };
        setgroups(&[self.gid]).with_context(context)?;
        setegid(self.gid).with_context(context)?;
        seteuid(self.uid).with_context(context)?;
        let effective = sets.permitted.intersection(kept);
        set_capabilities(None, CapabilitySets { effective, ..sets }).with_context(context)?;
        Ok(acting)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NixUser::from_uid(self.uid) {
            Ok(Some(user)) => write!(f, "{} ({})", user.name, self.uid),
            _ => write!(f, "{}", self.uid),
        }
    }
}

/// A process that acts as another user.
#[derive(Debug)]
pub struct Acting {
    /// What it had before.
    group: Gid,
    groups: Vec<Gid>,
    sets: CapabilitySets,
}

impl Drop for Acting {
    fn drop(&mut self) {
        // It is root's still, so that nothing refuses it; and if something did, it would have fewer
        // rights, not more.
        let _ = seteuid(Uid::from_raw(0));
        let _ = set_capabilities(None, self.sets);
        let _ = setegid(self.group);
        let _ = setgroups(&self.groups);
    }
}

/// Does something as the user that a directory belongs to, if that is another one: see
/// [`User::other_owner`] and [`User::act`].
///
/// # Errors
/// The system refuses, or what is done fails.
pub fn as_owner<T>(
    owner: Option<User>,
    keeps_network: bool,
    does: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    match owner {
        None => does(),
        Some(owner) => {
            let _acting = owner.act(keeps_network)?;
            does().with_context(|| format!("as user {owner}, whose directory it is"))
        }
    }
}

/// Keeps memory from being seen by others: no core dump, no tracing by processes of the same user,
/// and the files of /proc/PID belong to root.
///
/// # Errors
/// The system refuses.
pub fn hide_memory() -> anyhow::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0).context("forbidding core dumps")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("forbidding core dumps")
}

/// Keeps memory from being written to swap: pages are locked when they are first used. Keys are
/// in many places, those of cryptographic libraries among them, so all memory is locked.
///
/// # Errors
/// The system gives no right to lock memory without a limit. Nothing is locked then: with a limit,
/// later allocations would fail.
pub fn lock_memory() -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_MEMLOCK)?;
    let unlimited = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    if unlimited.is_err() && hard != RLIM_INFINITY {
        let message = format!("RLIMIT_MEMLOCK is {hard} bytes, and should be unlimited");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    if unlimited.is_err() {
        setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard)?;
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ports_need_is_kept() {
        std::thread::spawn(|| {
            give_up().unwrap();
            assert!(kept().iter().all(|name| ["CAP_NET_RAW", "CAP_NET_ADMIN"].contains(&&**name)));
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(status.contains("NoNewPrivs:\t1"), "{status}");
            let sets = capabilities(None).unwrap();
            assert!(KEPT.contains(sets.effective) && sets.inheritable.is_empty());
            // It is for good.
            let all = CapabilitySets { effective: CapabilitySet::all(), ..sets };
            set_capabilities(None, all).unwrap_err();
        })
        .join()
        .unwrap();
    }
}
