//! A file that is written whole or not at all, by somebody who may be root, in a folder that may be
//! everybody's.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{self as unix, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::unistd::geteuid;
use tempfile::{Builder, NamedTempFile};

/// What stands for an open file of ours. What is behind it may be a file that somebody appends to.
const DESCRIPTORS: [&str; 4] = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];

/// The bits of a folder in which everybody may make files, and nobody remove those of others.
const SHARED: u32 = 0o1002;

/// As many links may lead to one another as Linux follows.
const MOST_LINKS: usize = 40;

/// Whose a file is, and who may read it.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// A configuration: one that is there keeps its owner and its mode.
    Open,
    /// Keys, for their owner alone: this user and group, if we may give them away. One that is there
    /// keeps its owner, who must be that user, root or we.
    Secret(Option<(u32, u32)>),
}

impl Access {
    const fn mode(self) -> u32 {
        match self {
            Self::Open => 0o666,
            Self::Secret(_) => 0o600,
        }
    }
}

/// A file that is written, and not yet in its place.
pub(super) enum Written {
    Beside(NamedTempFile, PathBuf),
    /// It was no file, as a pipe or a terminal.
    There,
}

/// Writes what is to become a file. Nothing is changed until [`Written::commit`] but for what is no file.
///
/// # Errors
/// It cannot be written, or what is there is another user's, who could read it or lead us elsewhere.
pub(super) fn write(path: &Path, bytes: &[u8], access: Access) -> anyhow::Result<Written> {
    let doing = || format!("writing {}", path.display());
    check_links(path, 0).with_context(doing)?;
    let old = fs::metadata(path).ok();
    if let (Some(old), Access::Secret(owner)) = (&old, access) {
        check_reader(old, owner).with_context(doing)?;
    }
    let is_descriptor = DESCRIPTORS.iter().any(|descriptor| path.starts_with(descriptor));
    if is_descriptor || old.as_ref().is_some_and(|old| !old.is_file() && !old.is_dir()) {
        let mut file = OpenOptions::new().append(true).open(path).with_context(doing)?;
        file.write_all(bytes).with_context(doing)?;
        return Ok(Written::There);
    }
    // Behind links, so that they stay.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let beside = write_beside(&path, bytes, access, old.as_ref()).with_context(doing)?;
    Ok(Written::Beside(beside, path))
}

impl Written {
    /// Puts the file into its place.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(super) fn commit(self) -> anyhow::Result<()> {
        let Self::Beside(file, path) = self else { return Ok(()) };
        let doing = || format!("writing {}", path.display());
        file.persist(&path).with_context(doing)?;
        // Else a crash could undo it.
        File::open(folder_of(&path)).and_then(|folder| folder.sync_all()).with_context(doing)
    }
}

/// Writes a file of a name that nobody knows, beside its place.
fn write_beside(
    path: &Path,
    bytes: &[u8],
    access: Access,
    old: Option<&Metadata>,
) -> io::Result<NamedTempFile> {
    let mode = access.mode();
    let mut builder = Builder::new();
    let mut beside = builder
        .permissions(Permissions::from_mode(mode))
        .prefix(".hitpath")
        .tempfile_in(folder_of(path))?;
    let file = beside.as_file_mut();
    match (old, access) {
        (Some(old), _) => {
            unix::fchown(&*file, Some(old.uid()), Some(old.gid()))?;
            file.set_permissions(Permissions::from_mode(old.mode() & 0o7777 & mode))?;
        }
        (None, Access::Secret(Some((user, group)))) => {
            match unix::fchown(&*file, Some(user), Some(group)) {
                Err(error) if error.kind() != ErrorKind::PermissionDenied => return Err(error),
                _ => {}
            }
        }
        (None, _) => {}
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(beside)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Refuses keys for a file whose owner would read them.
fn check_reader(old: &Metadata, owner: Option<(u32, u32)>) -> anyhow::Result<()> {
    let reader = old.uid();
    let may_read =
        [0, geteuid().as_raw()].contains(&reader) || owner.is_some_and(|(user, _)| user == reader);
    if !may_read {
        bail!(
            "it is there and belongs to user {reader}, who would read the keys: remove it, or give \
             another name"
        );
    }
    Ok(())
}

/// Refuses to go through what somebody else has put into a folder that is everybody's: a link there may
/// lead to any file, and a file be read by whoever has made it. As Linux does if `fs.protected_symlinks`
/// and `fs.protected_regular` are on (proc_sys_fs(5)).
fn check_links(path: &Path, links: usize) -> anyhow::Result<()> {
    if links > MOST_LINKS {
        bail!("more than {MOST_LINKS} links lead to one another");
    }
    let path = std::path::absolute(path)?;
    let mut steps: Vec<&Path> = path.ancestors().collect();
    steps.reverse();
    for pair in steps.windows(2) {
        let [folder, step] = pair else { continue };
        // What is not there is nobody's.
        let Ok(found) = fs::symlink_metadata(step) else { continue };
        let is_last = *step == path;
        if found.is_symlink() || is_last && !found.is_dir() {
            let shared = fs::metadata(folder)?;
            let owners = [geteuid().as_raw(), shared.uid()];
            if shared.mode() & SHARED == SHARED && !owners.contains(&found.uid()) {
                bail!(
                    "{} belongs to user {}, in a folder that everybody may write to: remove it, or \
                     write elsewhere",
                    step.display(),
                    found.uid()
                );
            }
        }
        if found.is_symlink() {
            check_links(&folder.join(fs::read_link(step)?), links + 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, symlink};

    use super::*;

    fn save(path: &Path, bytes: &[u8], access: Access) -> anyhow::Result<()> {
        write(path, bytes, access)?.commit()
    }

    #[test]
    fn what_is_there_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o777;
        // A new file, and one that is there with a mode of its own.
        save(&at("new"), b"one", Access::Secret(None)).unwrap();
        assert_eq!((fs::read(at("new")).unwrap(), mode("new")), (b"one".to_vec(), 0o600));
        fs::write(at("old"), "before").unwrap();
        fs::set_permissions(at("old"), Permissions::from_mode(0o640)).unwrap();
        save(&at("old"), b"two", Access::Open).unwrap();
        assert_eq!((fs::read(at("old")).unwrap(), mode("old")), (b"two".to_vec(), 0o640));
        // Keys are for their owner alone.
        save(&at("old"), b"key", Access::Secret(None)).unwrap();
        assert_eq!(mode("old"), 0o600);
        symlink("old", at("link")).unwrap();
        save(&at("link"), b"three", Access::Open).unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read(at("old")).unwrap(), b"three");
        // A user's own file of any name stays, and nothing is left beside them.
        fs::write(at("old.new"), "mine").unwrap();
        write(&at("old"), b"four", Access::Open).unwrap();
        assert_eq!(fs::read(at("old")).unwrap(), b"three", "it is not in its place yet");
        save(&at("old"), b"four", Access::Open).unwrap();
        assert_eq!(fs::read(at("old.new")).unwrap(), b"mine");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
        // No device is replaced, and what it says is said.
        save(Path::new("/dev/null"), b"four", Access::Open).unwrap();
        let full = save(Path::new("/dev/full"), b"five", Access::Open).unwrap_err();
        assert!(full.to_string().contains("writing /dev/full"), "{full}");
        for device in ["/dev/null", "/dev/full"] {
            assert!(fs::metadata(device).unwrap().file_type().is_char_device(), "{device}");
        }
    }
}
