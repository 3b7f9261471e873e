//! A configuration and its keys, each written whole or not at all, by somebody who may be root, in
//! folders that others may write to.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::geteuid;
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, XattrFlags, fchmod, fcntl_setfl, fgetxattr, fsetxattr,
    openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::place::{Found, Place, is_same, kind};

/// Where Linux keeps who else may use a file (acl(5)).
const ACL: &str = "system.posix_acl_access";

/// The largest extended attribute (xattr(7)).
const MOST_XATTR: usize = 64 << 10;

/// How a file is opened that is there: it is no link, and nothing is waited for.
const TO_WRITE: OFlags = OFlags::WRONLY
    .union(OFlags::APPEND)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// What a name stands for, open and judged. Nothing is written yet.
pub(super) enum Target {
    /// A file that is replaced, or made.
    File(Box<Replaced>),
    /// A pipe, a device, or an open file of ours.
    Stream(File),
}

/// A file that is replaced, or made.
pub(super) struct Replaced {
    /// Open for reading, so that it can be synced.
    folder: File,
    name: OsString,
    path: PathBuf,
    old: Option<Old>,
    access: Access,
}

/// A file that is there.
struct Old {
    found: Metadata,
    acl: Option<Vec<u8>>,
}

/// Whose a file is, and who may read it.
#[derive(Clone, Copy)]
enum Access {
    /// A configuration: one that is there keeps its owner and its mode.
    Open,
    /// Keys, for their owner alone: this user and group, if we may give them away. One that is there
    /// keeps its owner, who must be that user, root or we.
    Secret(Option<(u32, u32)>),
}

/// Opens what is to become a configuration.
///
/// # Errors
/// It is a folder, is not to be written to by us, or is what somebody else has planted.
pub(super) fn configuration(path: &Path) -> anyhow::Result<Target> {
    let place = Place::find(path)?;
    let old = match &place.found {
        Found::Nothing => None,
        Found::Descriptor => return descriptor(&place).map(Target::Stream),
        Found::File(found) => {
            if let Some(stream) = own_stream(|own| is_same(own, found))? {
                return Ok(Target::Stream(stream));
            }
            match found.file_type() {
                kind if kind.is_file() => Some(open_old(&place, found)?),
                kind if kind.is_fifo() || kind.is_char_device() => {
                    return blocking(open_old(&place, found)?).map(Target::Stream);
                }
                _ => bail!(
                    "{} is {}, and a configuration is written to none",
                    place.path.display(),
                    kind(found)
                ),
            }
        }
    };
    let file = Replaced::new(place, old.as_ref(), Access::Open)?;
    Ok(Target::File(Box::new(file)))
}

/// Opens what is to become a file of keys. `reader` is the user, with a group, who is to read it.
///
/// # Errors
/// As [`configuration`], and if it is no file, or one whose owner would read the keys.
pub(super) fn keys(path: &Path, reader: Option<(u32, u32)>) -> anyhow::Result<Replaced> {
    let place = Place::find(path)?;
    let shown = place.path.display();
    let old = match &place.found {
        Found::Nothing => None,
        Found::File(found) if found.is_file() => {
            check_reader(&place.path, found, reader)?;
            Some(open_old(&place, found)?)
        }
        Found::File(found) => {
            bail!("{shown} is {}, and keys are written to files alone", kind(found))
        }
        Found::Descriptor => bail!("{shown} is an open file, and keys are written to new ones"),
    };
    Replaced::new(place, old.as_ref(), Access::Secret(reader))
}

/// Refuses keys for a file whose owner would read them.
fn check_reader(path: &Path, old: &Metadata, reader: Option<(u32, u32)>) -> anyhow::Result<()> {
    let owner = old.uid();
    let may_read =
        [0, geteuid().as_raw()].contains(&owner) || reader.is_some_and(|(user, _)| user == owner);
    if !may_read {
        bail!(
            "{} belongs to user {owner}, who would read the keys: remove it, or give another name",
            path.display()
        );
    }
    Ok(())
}

/// Opens the file that was found, and no other one that has its name by now.
fn open_old(place: &Place, found: &Metadata) -> anyhow::Result<File> {
    let path = place.path.display();
    let opened = openat(&place.folder, &place.name, TO_WRITE | OFlags::NOFOLLOW, Mode::empty());
    let file = match opened.map(File::from) {
        Ok(file) => file,
        Err(Errno::NXIO) if found.file_type().is_fifo() => {
            bail!("nobody reads the FIFO {path}: start its reader first")
        }
        Err(Errno::ACCESS) => bail!(
            "{path} belongs to user {} and has mode {:04o}: you may not write to it",
            found.uid(),
            found.mode() & 0o7777
        ),
        Err(error) => return Err(error).with_context(|| path.to_string()),
    };
    if !is_same(&file.metadata()?, found) {
        bail!("{path} is another file than a moment ago: somebody exchanges it");
    }
    Ok(file)
}

/// Standard output or error, if it is the one sought.
fn own_stream(is_sought: impl Fn(&Metadata) -> bool) -> io::Result<Option<File>> {
    for own in [io::stdout().as_fd(), io::stderr().as_fd()] {
        let own = File::from(own.try_clone_to_owned()?);
        if is_sought(&own.metadata()?) {
            return Ok(Some(own));
        }
    }
    Ok(None)
}

/// A descriptor of ours by its name in `/proc/self/fd`. What is behind it may be a file that others
/// append to, so that it is written to as it is.
fn descriptor(place: &Place) -> anyhow::Result<File> {
    match place.name.to_str() {
        Some("1") => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        Some("2") => Ok(io::stderr().as_fd().try_clone_to_owned()?.into()),
        _ => {
            let opened = openat(&place.folder, &place.name, TO_WRITE, Mode::empty());
            blocking(opened.with_context(|| place.path.display().to_string())?.into())
        }
    }
}

/// The same file, whose reader is waited for when it is full.
fn blocking(file: File) -> anyhow::Result<File> {
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

impl Replaced {
    fn new(place: Place, old: Option<&File>, access: Access) -> anyhow::Result<Self> {
        let Place { folder, name, path, found: _ } = place;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&folder, ".", flags, Mode::empty()).with_context(|| {
            format!("{}: its folder cannot be read, and so not be synced", path.display())
        })?;
        let old = old.map(|old| Ok::<_, io::Error>(Old { found: old.metadata()?, acl: acl(old)? }));
        Ok(Self { folder: folder.into(), name, path, old: old.transpose()?, access })
    }

    /// Whether both are one file, or will be.
    ///
    /// # Errors
    /// The system refuses to say it.
    pub(super) fn is_same(&self, other: &Self) -> io::Result<bool> {
        let is_one_file = self.old.as_ref().zip(other.old.as_ref());
        Ok(is_one_file.is_some_and(|(one, other)| is_same(&one.found, &other.found))
            || self.name == other.name
                && is_same(&self.folder.metadata()?, &other.folder.metadata()?))
    }

    /// Replaces the file. Returns what is worth a note.
    ///
    /// # Errors
    /// It is as it was, or is not known to survive a crash.
    pub(super) fn write(&self, bytes: &[u8]) -> anyhow::Result<Vec<String>> {
        let _undisturbed = Undisturbed::begin()?;
        let mut notes = Vec::new();
        let new = self.write_beside(bytes, &mut notes)?;
        new.put()?;
        self.sync()?;
        Ok(notes)
    }

    /// Replaces a configuration and its keys, both or neither. Returns what is worth a note.
    ///
    /// # Errors
    /// They are as they were, unless the error says something else.
    pub(super) fn write_with_keys(
        &self,
        bytes: &[u8],
        keys: &Self,
        of_keys: &[u8],
    ) -> anyhow::Result<Vec<String>> {
        let _undisturbed = Undisturbed::begin()?;
        let mut notes = Vec::new();
        let new_keys = keys.write_beside(of_keys, &mut notes)?;
        let new = self.write_beside(bytes, &mut notes)?;
        new_keys.exchange()?;
        // First, so that a crash may leave new keys and the former configuration, which are told by
        // `keys-id`, and never the other way round.
        let placed = keys.sync().and_then(|()| new.put());
        if let Err(error) = placed {
            new_keys.put_back().with_context(|| format!("{error:#}"))?;
            return Err(error);
        }
        self.sync()?;
        Ok(notes)
    }

    /// Writes a file of a name that nobody knows, beside its place.
    fn write_beside(&self, bytes: &[u8], notes: &mut Vec<String>) -> anyhow::Result<Beside<'_>> {
        let name = format!(".hitpath{:016x}", rand::random::<u64>());
        let is_for_all = self.old.is_none() && matches!(self.access, Access::Open);
        let mode = Mode::from_raw_mode(if is_for_all { 0o666 } else { 0o600 });
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, &name, flags, mode).with_context(|| {
            format!("{} is replaced by a new file, for which its folder has no place", self.shown())
        })?;
        let beside = Beside { at: self, name };
        let mut write = |mut file: File| {
            self.give_away(&file, notes)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write(file.into()).with_context(|| self.shown())?;
        Ok(beside)
    }

    /// Gives a new file the owner and the mode that it is to have, as far as we may.
    fn give_away(&self, file: &File, notes: &mut Vec<String>) -> io::Result<()> {
        let owner = match (&self.old, self.access) {
            (Some(Old { found, .. }), _) => Some((found.uid(), found.gid())),
            (None, Access::Secret(reader)) => reader,
            (None, Access::Open) => None,
        };
        let Some((user, group)) = owner else { return Ok(()) };
        let is_given = is_allowed(fchown(file, Some(user), Some(group)))?;
        let has_group = is_given || is_allowed(fchown(file, None, Some(group)))?;
        if !is_given {
            notes.push(format!(
                "{} is yours, of user {}: only root may give it to user {user}, group {group}",
                self.shown(),
                geteuid()
            ));
        }
        let Some(old) = &self.old else { return Ok(()) };
        let mut mode = old.found.mode() & self.access.most();
        if !has_group {
            // What the group may that it had is not for ours, unless all others may.
            mode &= 0o707 | (mode & 0o007) << 3;
        }
        fchmod(file, Mode::from_raw_mode(mode))?;
        match (&old.acl, self.access) {
            (Some(acl), Access::Open) if has_group => {
                Ok(fsetxattr(file, ACL, acl, XattrFlags::empty())?)
            }
            _ => Ok(()),
        }
    }

    /// Makes sure that no crash undoes what has a name in its folder.
    fn sync(&self) -> anyhow::Result<()> {
        self.folder.sync_all().with_context(|| {
            format!("{} is written, and may be lost in a crash: syncing its folder", self.shown())
        })
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

impl Access {
    /// The most that others may.
    const fn most(self) -> u32 {
        match self {
            Self::Open => 0o666,
            Self::Secret(_) => 0o600,
        }
    }
}

/// A file that is beside its place: a new one, or the former one.
struct Beside<'r> {
    at: &'r Replaced,
    name: String,
}

impl Beside<'_> {
    /// Puts it into its place.
    fn put(&self) -> anyhow::Result<()> {
        let Replaced { folder, name, .. } = self.at;
        renameat(folder, &self.name, folder, name).with_context(|| self.at.shown())
    }

    /// Puts it into its place, and the former one, if there is one, beside that.
    fn exchange(&self) -> anyhow::Result<()> {
        let Replaced { folder, name, old, .. } = self.at;
        if old.is_none() {
            return self.put();
        }
        renameat_with(folder, &self.name, folder, name, RenameFlags::EXCHANGE).with_context(|| {
            format!("{}: exchanging it (remove it, and try again)", self.at.shown())
        })
    }

    /// Undoes [`Beside::exchange`].
    fn put_back(self) -> anyhow::Result<()> {
        let Replaced { folder, name, old, .. } = self.at;
        let shown = self.at.shown();
        if old.is_none() {
            return unlinkat(folder, name, AtFlags::empty())
                .with_context(|| format!("{shown} is of no configuration: it cannot be removed"));
        }
        let back = renameat_with(folder, &self.name, folder, name, RenameFlags::EXCHANGE);
        back.map_err(|error| {
            let message = format!(
                "{shown} is of no configuration: the former one, {} beside it, cannot be put back",
                self.name
            );
            // It keeps its name.
            std::mem::forget(self);
            anyhow!(error).context(message)
        })
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        // The new one is in its place, or nobody wants it any more.
        let _ = unlinkat(&self.at.folder, &self.name, AtFlags::empty());
    }
}

/// While this is there, no signal but SIGKILL ends the process, which would leave a file beside its
/// place. A signal that has come ends it then.
struct Undisturbed(SigSet);

impl Undisturbed {
    fn begin() -> anyhow::Result<Self> {
        Ok(Self(SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?))
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        let _ = self.0.thread_set_mask();
    }
}

/// Whether the system lets us give a file away. Only root may, and only to whom its user namespace
/// knows (user_namespaces(7)).
fn is_allowed(given: io::Result<()>) -> io::Result<bool> {
    let errno = |error: &io::Error| Errno::from_io_error(error);
    match given {
        Err(error) if matches!(errno(&error), Some(Errno::PERM | Errno::INVAL)) => Ok(false),
        given => given.map(|()| true),
    }
}

/// Who else may use a file, if that is said of it.
fn acl(file: &File) -> io::Result<Option<Vec<u8>>> {
    let mut acl = vec![0; MOST_XATTR];
    match fgetxattr(file, ACL, &mut acl) {
        Ok(length) => {
            acl.truncate(length);
            Ok(Some(acl))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
