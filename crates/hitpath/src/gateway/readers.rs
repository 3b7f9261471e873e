//! Files with secrets that others than their owner may read. That is said once of each, until its
//! mode or its content changes: a file is read anew for each reload.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What files were like when that was last said of them.
static SAID: Mutex<BTreeMap<PathBuf, State>> = Mutex::new(BTreeMap::new());

/// What a change of a file changes.
#[derive(PartialEq, Eq)]
struct State {
    mode: u32,
    inode: (u64, u64),
    written: (i64, i64),
}

impl State {
    fn of(found: &Metadata) -> Self {
        Self {
            mode: found.mode(),
            inode: (found.dev(), found.ino()),
            written: (found.mtime(), found.mtime_nsec()),
        }
    }
}

/// Its permissions, `0644`, if others than its owner may read or change it.
pub(super) fn mode_for_others(file: &Path) -> Option<String> {
    wrong_mode(&file.metadata().ok()?)
}

/// The same, if that was not said yet of the file as it is.
pub(super) fn news(file: &Path) -> Option<String> {
    let found = file.metadata().ok()?;
    let mode = wrong_mode(&found);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    match &mode {
        None => {
            said.remove(file);
            None
        }
        Some(_) => {
            let is = State::of(&found);
            let is_news = said.get(file) != Some(&is);
            said.insert(file.to_owned(), is);
            mode.filter(|_| is_news)
        }
    }
}

fn wrong_mode(found: &Metadata) -> Option<String> {
    let mode = found.mode();
    (mode & 0o077 != 0).then(|| format!("{:04o}", mode & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_mode_is_news_once_until_it_or_the_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gw.keys");
        fs::write(&file, "0x00\n").unwrap();
        let set = |mode| fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        set(0o600);
        assert_eq!(news(&file), None);
        set(0o644);
        assert_eq!(news(&file).as_deref(), Some("0644"));
        assert_eq!(news(&file), None);
        set(0o640);
        assert_eq!(news(&file).as_deref(), Some("0640"));
        set(0o600);
        assert_eq!(news(&file), None);
        set(0o640);
        assert_eq!(news(&file).as_deref(), Some("0640"));
        // Others may read what is written to it later.
        let later = SystemTime::now() + Duration::from_secs(5);
        fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        assert_eq!(news(&file).as_deref(), Some("0640"));
        assert_eq!(news(&file), None);
        assert_eq!(mode_for_others(&file).as_deref(), Some("0640"));
        fs::remove_file(&file).unwrap();
        assert_eq!(news(&file), None);
    }
}
