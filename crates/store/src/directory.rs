//! The directory itself: made, held against others, locked.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use thiserror::Error;

use crate::frame::Damage;

/// The state directory cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The system refuses.
    #[error(
        "state directory {}: {doing}: {error} (another one by state-directory in [gateway], or \
        state-directory = \"off\", with which changes by command end with the gateway)",
        path.display()
    )]
    System {
        /// The directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// Another process runs on it.
    #[error(
        "state directory {} is in use by {holder} (stop that one, or give this one a directory of \
        its own by state-directory in [gateway])",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// By whom.
        holder: String,
    },
    /// Others could read keys, or change what will be in force.
    #[error("state directory {} {problem}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A file is not what was written.
    #[error(
        "{}: {problem} (`hitpath state repair {folder}` keeps what can be read and says what is \
        lost, `hitpath state drop {folder}` begins with the configuration file alone)",
        file.display(), folder = folder.display()
    )]
    Damaged {
        /// The directory.
        folder: PathBuf,
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The log is missing.
    #[error(
        "{folder}/log is missing, and a gateway has run here, which {traces} tells: what commands \
        had changed is lost, and without it packets might leave in clear that were to be protected \
        (put the log back, if there is a copy; `hitpath state drop {folder}` begins with the \
        configuration file alone)",
        folder = folder.display()
    )]
    Missing {
        /// The directory.
        folder: PathBuf,
        /// The files that tell.
        traces: String,
    },
    /// A record is not what was written.
    #[error(
        "{}: damaged (what can be read of it is text: mend by hand what it tells of, then remove it)",
        file.display()
    )]
    Record {
        /// The file.
        file: PathBuf,
    },
}

/// The file that is locked while somebody uses the directory.
const LOCK: &str = "lock";

/// A state directory that no other process uses, as long as there is a clone of this.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    /// Locked until it is closed.
    _lock: Arc<File>,
}

impl Directory {
    /// Makes the directory, with mode 0700, if it is not there, and locks it. `holder` is what
    /// others are told of this process.
    ///
    /// # Errors
    /// If the system refuses, if others may use it, or if another process does.
    pub fn open(path: &Path, holder: &str) -> Result<Self, StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(system(path, "making it"))?;
        Self::lock(path, holder)
    }

    /// The same, of a directory that a gateway has used. Nothing is made.
    ///
    /// # Errors
    /// As [`Directory::open`], and if no gateway has used it.
    pub fn open_used(path: &Path, holder: &str) -> Result<Self, StoreError> {
        match fs::symlink_metadata(path.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let problem = format!("is no gateway's: it has no file `{LOCK}`");
                Err(StoreError::Open { path: path.to_owned(), problem })
            }
            Err(error) => Err(system(path, "looking at it")(error)),
            Ok(_) => Self::lock(path, holder),
        }
    }

    fn lock(path: &Path, holder: &str) -> Result<Self, StoreError> {
        let system = |doing| system(path, doing);
        let found = fs::metadata(path).map_err(system("looking at it"))?;
        let wrong = |problem: String| Err(StoreError::Open { path: path.to_owned(), problem });
        let own = rustix::process::geteuid().as_raw();
        if found.uid() != own {
            return wrong(format!(
                "belongs to user {}, and the gateway runs as {own} (chown {own} {})",
                found.uid(),
                path.display()
            ));
        }
        if found.mode() & 0o077 != 0 {
            return wrong(format!(
                "has mode {:04o}, so that others may use it (chmod 0700 {})",
                found.mode() & 0o7777,
                path.display()
            ));
        }
        let mut lock = private()
            .read(true)
            .create(true)
            .truncate(false)
            // A link would lead elsewhere, and a pipe would be waited for.
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(path.join(LOCK))
            .map_err(system("opening its lock"))?;
        if !lock.metadata().map_err(system("looking at its lock"))?.is_file() {
            return wrong(format!("has a `{LOCK}` that is no file (remove it)"));
        }
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut who = String::new();
                let _ = (&lock).take(4096).read_to_string(&mut who);
                let who = who.trim();
                let holder = if who.is_empty() { "another process" } else { who };
                let holder = holder.replace(char::is_control, "?");
                return Err(StoreError::InUse { path: path.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(system("locking it")(error)),
        }
        // Who holds it is told to others as far as the disk has room for it.
        let _ = lock.set_len(0).and_then(|()| {
            lock.write_all(format!("process {}: {holder}\n", std::process::id()).as_bytes())
        });
        Ok(Self { path: path.to_owned(), _lock: Arc::new(lock) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn system(&self, doing: &'static str) -> impl Fn(io::Error) -> StoreError + use<> {
        let path = self.path.clone();
        move |error| StoreError::System { path: path.clone(), doing, error }
    }

    pub(crate) fn damaged(&self, name: &str, problem: &(impl ToString + ?Sized)) -> StoreError {
        let (folder, file) = (self.path.clone(), self.file(name));
        StoreError::Damaged { folder, file, problem: problem.to_string() }
    }

    pub(crate) fn damage(&self, name: &str) -> impl Fn(Damage) -> StoreError {
        move |damage| self.damaged(name, &damage)
    }

    /// Makes names that were given and taken survive power loss.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Overwrites a file's contents and removes it, as far as the system does.
    pub(crate) fn wipe(&self, name: &str) -> io::Result<()> {
        let path = self.file(name);
        let mut file = OpenOptions::new().write(true).open(&path)?;
        let mut left = file.metadata()?.len();
        let zeros = [0; 4096];
        while left > 0 {
            let length = left.min(zeros.len() as u64);
            file.write_all(&zeros[..length as usize])?;
            left -= length;
        }
        file.sync_data()?;
        fs::remove_file(path)
    }

    /// The numbers of its files of keys.
    pub(crate) fn generations(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("keys."));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        Ok(numbers)
    }
}

fn system(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    move |error| StoreError::System { path: path.to_owned(), doing, error }
}

/// To write a file that nobody else may read.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_made_for_its_owner_alone_and_used_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let first = Directory::open(&path, "hitpath run, socket /x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let error = Directory::open(&path, "second").unwrap_err().to_string();
        let holder = format!("in use by process {}: hitpath run, socket /x", std::process::id());
        assert!(error.contains(&holder), "{error}");
        drop(first);
        Directory::open(&path, "third").unwrap();
    }

    #[test]
    fn what_no_gateway_has_used_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let error = Directory::open_used(folder.path(), "").unwrap_err().to_string();
        assert!(error.contains("is no gateway's"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(Directory::open(folder.path(), "").unwrap());
        Directory::open_used(folder.path(), "").unwrap();
    }

    #[test]
    fn what_others_may_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = Directory::open(folder.path(), "").unwrap_err().to_string();
        assert!(error.contains("mode 0755") && error.contains("chmod 0700"), "{error}");
    }

    #[test]
    fn what_cannot_be_made_is_told_with_what_would_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Directory::open(&file.join("x"), "").unwrap_err().to_string();
        assert!(error.contains("state-directory = \"off\""), "{error}");
    }
}
