//! What only one program may use at a time, by agreement of the programs: a locked file for each.
//!
//! A lock (flock(2)) ends with its process, however that ends. The file says who holds it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use thiserror::Error;

/// The longest word on a holder that is read, in bytes.
const MAX_HOLDER: u64 = 4096;

/// How many times a claim that is held is tried again, a millisecond apart.
const TRIES: usize = 10;

/// The claims of this process.
#[derive(Debug, Default)]
pub struct Claims {
    /// Without a folder, everything may be had.
    folder: Option<PathBuf>,
    holder: String,
    held: BTreeMap<String, Claim>,
}

/// Why something cannot be claimed.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// Somebody else has it.
    #[error("{holder}")]
    Held {
        /// Who, as the holder says it.
        holder: String,
    },
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Claims {
    /// Claims by files in `folder`, which is made if need be. `holder` is what others are told.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(folder: &Path, holder: String) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        Ok(Self { folder: Some(folder.to_owned()), holder, held: BTreeMap::new() })
    }

    /// Claims `name`, until it is released or the process ends. Returns false if this process has
    /// it already.
    ///
    /// # Errors
    /// Another process has it, or the system refuses.
    pub fn claim(&mut self, name: &str) -> Result<bool, ClaimError> {
        let Some(folder) = &self.folder else { return Ok(true) };
        if self.held.contains_key(name) {
            return Ok(false);
        }
        let claim = Claim::new(&folder.join(name), &self.holder)?;
        self.held.insert(name.to_owned(), claim);
        Ok(true)
    }

    /// Gives `name` back.
    pub fn release(&mut self, name: &str) {
        self.held.remove(name);
    }

    /// Removes what killed processes left of claims whose names begin with one of `prefixes`. What
    /// cannot be removed does no harm: it is free all the same.
    pub fn remove_leftovers(&self, prefixes: &[&str]) {
        let entries = self.folder.iter().flat_map(fs::read_dir).flatten().flatten();
        let is_claim = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            prefixes.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
                && entry.file_type().is_ok_and(|kind| kind.is_file())
        };
        for path in entries.filter(is_claim).map(|entry| entry.path()) {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
            let Ok(file) = options.open(&path) else { continue };
            // While it is locked, so that it is no other's.
            if file.try_lock().is_ok() && is_at(&file, &path) {
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Gives back what begins with `prefix`, unless `keep` says to keep it.
    pub fn retain(&mut self, prefix: &str, mut keep: impl FnMut(&str) -> bool) {
        self.held.retain(|name, _| !name.starts_with(prefix) || keep(name));
    }
}

/// A locked file, removed when it is given back.
#[derive(Debug)]
struct Claim {
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Claim {
    fn new(path: &Path, holder: &str) -> Result<Self, ClaimError> {
        let system = |source| ClaimError::System { path: path.to_owned(), source };
        let mut tries = 0;
        loop {
            // A link would lead elsewhere, and a pipe would be waited for.
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(O_NOFOLLOW | O_NONBLOCK)
                .open(path)
                .map_err(system)?;
            let found = file.metadata().map_err(system)?;
            if !found.is_file() || found.nlink() > 1 {
                return Err(system(io::Error::other("it is no file of its own (remove it)")));
            }
            match file.try_lock() {
                Ok(()) => {}
                // Another may be removing it, which holds it for a moment.
                Err(TryLockError::WouldBlock) if tries < TRIES => {
                    tries += 1;
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    let mut holder = String::new();
                    // What cannot be read is not said.
                    let _ = file.take(MAX_HOLDER).read_to_string(&mut holder);
                    let holder = match holder.trim() {
                        "" => "another process".to_owned(),
                        said => said.replace(char::is_control, "?"),
                    };
                    return Err(ClaimError::Held { holder });
                }
                Err(TryLockError::Error(source)) => return Err(system(source)),
            }
            // The one before may have removed the file between opening and locking it.
            if is_at(&file, path) {
                let written = file
                    .set_len(0)
                    .and_then(|()| file.rewind())
                    .and_then(|()| file.write_all(format!("{holder}\n").as_bytes()));
                // On a full disk, others are not told who it is.
                if let Err(error) = written {
                    tracing::warn!(file = %path.display(), %error, "a claim cannot name its holder");
                }
                return Ok(Self { path: path.to_owned(), _file: file });
            }
            tries += 1;
            if tries > TRIES {
                return Err(system(io::Error::other("others replace it all the time")));
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // While it is locked, so that it is no other's.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether `file` is the one that has this name.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(own), Ok(found)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (own.dev(), own.ino()) == (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_claim_is_refused_with_the_name_of_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let mut first = Claims::new(&path, "pid 1, config a.toml".to_owned()).unwrap();
        let mut second = Claims::new(&path, "pid 2".to_owned()).unwrap();
        assert!(first.claim("interface-1-wan").unwrap());
        assert!(!first.claim("interface-1-wan").unwrap());
        let refused = second.claim("interface-1-wan").unwrap_err();
        assert_eq!(refused.to_string(), "pid 1, config a.toml");
        second.claim("interface-2-wan").unwrap();
        first.release("interface-1-wan");
        second.claim("interface-1-wan").unwrap();
        second.claim("processor-0").unwrap();
        second.retain("interface-", |name| name.ends_with("2-wan"));
        first.claim("interface-1-wan").unwrap();
        assert!(first.claim("interface-2-wan").is_err());
        assert!(first.claim("processor-0").is_err());
        drop((first, second));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "a claim leaves nothing behind");
    }

    #[test]
    fn what_is_no_file_is_refused_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "precious").unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.path().join("processor-0")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("processor-1")).unwrap();
        nix::unistd::mkfifo(&folder.path().join("processor-2"), nix::sys::stat::Mode::S_IRWXU)
            .unwrap();
        let mut claims = Claims::new(folder.path(), "pid 2".to_owned()).unwrap();
        claims.remove_leftovers(&["processor-"]);
        for name in ["processor-0", "processor-1", "processor-2"] {
            let refused = claims.claim(name).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
        assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
        assert!(!folder.path().join("nowhere").exists());
    }

    #[test]
    fn what_a_dead_process_left_is_free() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("processor-0"), "pid 1").unwrap();
        let mut claims = Claims::new(folder.path(), "pid 2".to_owned()).unwrap();
        claims.claim("processor-0").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("processor-0")).unwrap(), "pid 2\n");
    }

    #[test]
    fn what_dead_processes_left_is_removed_and_what_is_held_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut living = Claims::new(folder.path(), "pid 1".to_owned()).unwrap();
        living.claim("interface-1-wan").unwrap();
        for left in ["interface-1-gone", "processor-7", "control.log"] {
            fs::write(folder.path().join(left), "pid 2").unwrap();
        }
        fs::create_dir(folder.path().join("interface-1-folder")).unwrap();
        let mut next = Claims::new(folder.path(), "pid 3".to_owned()).unwrap();
        next.remove_leftovers(&["interface-", "processor-"]);
        let names = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["control.log", "interface-1-folder", "interface-1-wan"]);
        assert!(next.claim("interface-1-wan").is_err());
    }

    #[test]
    fn without_a_folder_everything_may_be_had() {
        Claims::default().claim("interface-1-wan").unwrap();
    }
}
