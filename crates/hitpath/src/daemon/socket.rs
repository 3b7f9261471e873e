//! The control socket as a file: who may open it, and what was there before.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr, sockopt};
use nix::sys::stat::{Mode, fchmod};

/// The socket's file, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

/// What the control socket is called in errors, and who may connect to it.
pub(crate) const CONTROL: &str = "control socket (--socket)";
pub(crate) const PRIVATE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// Inode and time of making: a number alone is soon given to another file, and a change of mode
/// changes neither.
type Identity = (u64, i64, i64);

fn identity(path: &Path) -> io::Result<Identity> {
    fs::symlink_metadata(path).map(|file| (file.ino(), file.mtime(), file.mtime_nsec()))
}

/// Listens on `path`, which those can connect to whom `mode` lets (of the control socket: the
/// daemon's own user alone), from the first moment on. `what` says in errors what it is.
///
/// A socket that a dead daemon left is replaced.
///
/// # Errors
/// If a live daemon listens there, if something that is no socket is there, or if the
/// system refuses.
pub(crate) fn listen(
    path: &Path,
    what: &str,
    mode: Mode,
) -> anyhow::Result<(UnixListener, SocketFile)> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)
            .with_context(|| format!("making {} for the {what}", folder.display()))?;
    }
    // Two daemons that start at once must not take each other's new socket for a stale one.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let _lock = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| {
        folder.lock()?;
        Ok(folder)
    });
    let listener = match bind_private(path, mode) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            remove_stale(path, what)?;
            bind_private(path, mode)
        }
        result => result,
    };
    let listener = listener.with_context(|| format!("opening the {what} {}", path.display()))?;
    listener.set_nonblocking(true)?;
    // What the umask has taken from others than the owner.
    if mode != PRIVATE {
        fs::set_permissions(path, fs::Permissions::from_mode(mode.bits()))
            .with_context(|| format!("letting the group connect to {}", path.display()))?;
    }
    let identity = identity(path)?;
    Ok((listener, SocketFile { path: path.to_owned(), identity }))
}

/// The mode is set before the socket has a name: Linux hands it on to the file that bind(2) makes.
/// A chmod of the file would leave a moment in which anyone may connect, and the umask belongs to
/// all threads.
fn bind_private(path: &Path, mode: Mode) -> io::Result<UnixListener> {
    let socket =
        socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    fchmod(&socket, mode)?;
    socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    socket::listen(&socket, Backlog::new(1024)?)?;
    Ok(socket.into())
}

fn remove_stale(path: &Path, what: &str) -> anyhow::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        bail!("{} exists and is no socket; it is left alone: name another {what}", path.display());
    }
    match UnixStream::connect(path) {
        Ok(stream) => bail!(
            "a daemon already listens on {}: {}; stop it first, or name another {what}",
            path.display(),
            holder(&stream)
        ),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!(socket = %path.display(), "replacing the socket that an earlier daemon \
                left");
            fs::remove_file(path)
                .with_context(|| format!("removing the stale socket {}", path.display()))
        }
        Err(error) => {
            Err(error).with_context(|| format!("seeing who listens on {}", path.display()))
        }
    }
}

/// Who listens at the other end: its process, and what that was started with.
fn holder(stream: &UnixStream) -> String {
    let Ok(peer) = socket::getsockopt(stream, sockopt::PeerCredentials) else {
        return "the system does not say who".to_owned();
    };
    let arguments = fs::read(format!("/proc/{}/cmdline", peer.pid())).unwrap_or_default();
    let command = String::from_utf8_lossy(&arguments).trim_end_matches('\0').replace('\0', " ");
    match command.escape_debug().to_string() {
        empty if empty.is_empty() => format!("pid {}", peer.pid()),
        command => format!("pid {} ({command})", peer.pid()),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another daemon may have put its own socket there since.
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_may_connect_and_the_file_goes_with_the_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let (_listener, file) = listen(&path, CONTROL, PRIVATE).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_live_daemon_is_not_replaced_and_a_dead_one_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let (listener, file) = listen(&path, CONTROL, PRIVATE).unwrap();
        let error = listen(&path, CONTROL, PRIVATE).unwrap_err().to_string();
        assert!(error.contains("already listens"), "{error}");
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");

        // The daemon was killed and did not remove the file.
        std::mem::forget(file);
        drop(listener);
        let (_listener, _file) = listen(&path, CONTROL, PRIVATE).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(listen(&path, CONTROL, PRIVATE).unwrap_err().to_string().contains("no socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    #[test]
    fn another_daemons_socket_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let (listener, file) = listen(&path, CONTROL, PRIVATE).unwrap();
        drop(listener);
        let (_second, _second_file) = listen(&path, CONTROL, PRIVATE).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
