//! Where a path leads. Each step is looked up once, by descriptors, so that what is judged is what
//! is used: others may exchange what has a name at any time.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use nix::unistd::geteuid;
use rustix::fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, fstatfs, openat, readlinkat};
use rustix::io::Errno;

/// As many links may lead to one another as Linux follows.
const MOST_LINKS: usize = 40;

/// Everybody may make files in such a folder.
const FOR_EVERYBODY: u32 = 0o002;

/// The number of the root of procfs, whose links have a text that leads on. What other links of
/// procfs lead to need not have a name (proc_pid_fd(5)).
const PROC_ROOT: u64 = 1;

/// The descriptors of this process and of this thread.
const DESCRIPTORS: [&str; 2] = ["/proc/self/fd", "/proc/thread-self/fd"];

/// The end of a path.
pub(super) struct Place {
    /// Its folder (`O_PATH`).
    pub(super) folder: File,
    pub(super) name: OsString,
    pub(super) found: Found,
    /// Where that is, for people.
    pub(super) path: PathBuf,
}

/// What is at the end of a path.
pub(super) enum Found {
    Nothing,
    /// It may be anything but a link and a folder.
    File(Metadata),
    /// A descriptor of this process.
    Descriptor,
}

impl Place {
    /// Follows `path`, and the links in it that belong to root or to us.
    ///
    /// # Errors
    /// It leads nowhere, to a folder, or through what somebody else has planted.
    pub(super) fn find(path: &Path) -> anyhow::Result<Self> {
        // The last component of `new/` is `new`.
        if path.as_os_str().is_empty() || path.as_os_str().as_bytes().ends_with(b"/") {
            bail!("this names no file: give the name of one");
        }
        let mut walk = Walk::begin(path)?;
        while let Some(name) = walk.ahead.pop() {
            let is_last = walk.ahead.is_empty();
            let path = walk.path.join(&name);
            let step = match open_step(&walk.folder, &name) {
                Ok(step) => step,
                Err(Errno::NOENT) if is_last => return Ok(walk.end(name, path, Found::Nothing)),
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            };
            let found = step.metadata().with_context(|| path.display().to_string())?;
            if found.is_symlink() {
                if walk.is_descriptor(&step, &path)? {
                    return Ok(walk.end(name, path, Found::Descriptor));
                }
                walk.follow(&step, &found, &path)?;
            } else if found.is_dir() {
                (walk.folder, walk.path) = (step, path);
            } else if is_last {
                check_planted(&walk.folder, &found, &path)?;
                return Ok(walk.end(name, path, Found::File(found)));
            } else {
                bail!("{} is {}, and no folder", path.display(), kind(&found));
            }
        }
        bail!("{} is a folder: give the name of a file", walk.path.display());
    }
}

/// A path that has been followed as far as `folder`.
struct Walk {
    folder: File,
    path: PathBuf,
    /// What is left of it, the next step last.
    ahead: Vec<OsString>,
    links: usize,
}

impl Walk {
    fn begin(path: &Path) -> anyhow::Result<Self> {
        let folder = open_folder(".").context("the current folder")?;
        let mut walk = Self { folder, path: PathBuf::new(), ahead: Vec::new(), links: 0 };
        walk.add(path)?;
        Ok(walk)
    }

    fn add(&mut self, path: &Path) -> anyhow::Result<()> {
        if path.is_absolute() {
            self.folder = open_folder("/").context("/")?;
            self.path = PathBuf::from("/");
        }
        let steps = path.components().rev();
        self.ahead.extend(steps.filter_map(|step| match step {
            Component::Normal(_) | Component::ParentDir => Some(step.as_os_str().to_owned()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        }));
        Ok(())
    }

    fn follow(&mut self, link: &File, found: &Metadata, path: &Path) -> anyhow::Result<()> {
        self.links += 1;
        if self.links > MOST_LINKS {
            bail!("{}: more than {MOST_LINKS} links lead to one another", path.display());
        }
        if ![0, geteuid().as_raw()].contains(&found.uid()) {
            bail!(
                "{} is a link that belongs to user {}, and may lead anywhere: remove it, or write \
                 elsewhere",
                path.display(),
                found.uid()
            );
        }
        // Of the link that is open, whatever has its name by now.
        let to = readlinkat(link, "", Vec::new()).with_context(|| path.display().to_string())?;
        self.add(Path::new(OsStr::from_bytes(to.as_bytes())))
    }

    /// Whether a link in the folder is a descriptor of ours.
    fn is_descriptor(&self, link: &File, path: &Path) -> anyhow::Result<bool> {
        let is_in_proc = fstatfs(link)?.f_type == PROC_SUPER_MAGIC;
        let folder = self.folder.metadata()?;
        if !is_in_proc || folder.ino() == PROC_ROOT {
            return Ok(false);
        }
        let is_folder = |own: &str| std::fs::metadata(own).is_ok_and(|own| is_same(&own, &folder));
        if !(self.ahead.is_empty() && DESCRIPTORS.into_iter().any(is_folder)) {
            bail!(
                "{} leads to what may have another name or none: give a name outside of /proc",
                path.display()
            );
        }
        Ok(true)
    }

    fn end(self, name: OsString, path: PathBuf, found: Found) -> Place {
        Place { folder: self.folder, name, found, path }
    }
}

/// Whether these are of one file.
pub(super) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// What a file is, in words.
pub(super) fn kind(found: &Metadata) -> &'static str {
    match found.file_type() {
        kind if kind.is_file() => "a file",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() => "a character device",
        kind if kind.is_block_device() => "a block device",
        _ => "a link",
    }
}

/// Refuses a file that somebody else has put into a folder that is everybody's, who might read what
/// is written to it. As Linux does if `fs.protected_regular` and `fs.protected_fifos` are on
/// (proc_sys_fs(5)).
fn check_planted(folder: &File, found: &Metadata, path: &Path) -> anyhow::Result<()> {
    let folder = folder.metadata()?;
    let owners = [geteuid().as_raw(), folder.uid()];
    if folder.mode() & FOR_EVERYBODY != 0 && !owners.contains(&found.uid()) {
        bail!(
            "{} belongs to user {}, in a folder that everybody may write to: remove it, or write \
             elsewhere",
            path.display(),
            found.uid()
        );
    }
    Ok(())
}

fn open_folder(path: &str) -> rustix::io::Result<File> {
    openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map(File::from)
}

fn open_step(folder: &File, name: &OsStr) -> rustix::io::Result<File> {
    openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .map(File::from)
}
