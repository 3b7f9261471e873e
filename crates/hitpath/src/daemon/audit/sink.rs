//! Where records are written.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control::AuditLog;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use runtime::log;

use super::record::Record;

/// Where systemd-journald takes entries.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// What is written to a file at once, about.
const CHUNK: usize = 64 << 10;

/// A pipe takes so much at once or nothing (`PIPE_BUF`, pipe(7)), so that lines stay whole.
const PIECE: usize = 4096;

/// How long a record waits for a journal that does not read. Once one has waited in vain, the next
/// ones do not.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often it is looked whether a file was renamed or removed, and how long one that cannot be
/// opened is left alone.
const PERIOD: Duration = Duration::from_secs(1);

/// Who reads the file besides its owner: its group, as with other logs.
const MODE: u32 = 0o640;

/// Where records go.
pub(super) struct Sink {
    place: Place,
    /// Lines that are not written yet, and how many they are.
    lines: String,
    waiting: u64,
    entry: Vec<u8>,
    written: Written,
}

enum Place {
    Stderr,
    Journal(Journal),
    File(Rotated),
}

/// What became of records.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// So many were written.
    pub(super) written: u64,
    /// So many were not.
    pub(super) lost: u64,
    /// Why the last one of these was not.
    pub(super) error: Option<io::Error>,
}

impl Sink {
    /// Opens what the settings say; none if nothing is to be written.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub(super) fn open(log: &AuditLog) -> io::Result<Option<Self>> {
        Ok(match log {
            AuditLog::Off => None,
            AuditLog::Stderr => Some(Self::to(Place::Stderr)),
            AuditLog::Journal => Some(Self::journal(Path::new(JOURNAL))),
            AuditLog::Usual if stderr_is_journal() => Some(Self::journal(Path::new(JOURNAL))),
            AuditLog::Usual => Some(Self::to(Place::Stderr)),
            AuditLog::File(path) => {
                let file = open(path)?;
                let path = path.clone();
                let looked = Instant::now();
                Some(Self::to(Place::File(Rotated {
                    path,
                    file: Some(file),
                    is_torn: false,
                    looked,
                })))
            }
        })
    }

    fn journal(path: &Path) -> Self {
        let path = path.to_owned();
        Self::to(Place::Journal(Journal { path, socket: None, is_stuck: false }))
    }

    fn to(place: Place) -> Self {
        let (lines, entry) = (String::new(), Vec::new());
        Self { place, lines, waiting: 0, entry, written: Written::default() }
    }

    /// Where they go, in a word or as a path.
    pub(super) fn name(&self) -> String {
        match &self.place {
            Place::Stderr => "stderr".to_owned(),
            Place::Journal(_) => "journal".to_owned(),
            Place::File(file) => file.path.display().to_string(),
        }
    }

    /// Takes a record. It is written at [`Sink::flush`] at the latest.
    pub(super) fn put(&mut self, record: &Record, number: u64) {
        if let Place::Journal(journal) = &mut self.place {
            record.entry(number, &mut self.entry);
            match journal.send(&self.entry) {
                Ok(()) => self.written.written += 1,
                Err(error) => {
                    self.written.lost += 1;
                    self.written.error = Some(error);
                }
            }
            return;
        }
        let most = match self.place {
            Place::Stderr => PIECE,
            _ => CHUNK,
        };
        let before = self.lines.len();
        record.line(number, &mut self.lines);
        if self.lines.len() > most && before > 0 {
            let last = self.lines.split_off(before);
            self.write();
            self.lines = last;
        }
        self.waiting += 1;
    }

    /// Writes what was taken, and returns what became of it since this was called last.
    pub(super) fn flush(&mut self) -> Written {
        self.write();
        std::mem::take(&mut self.written)
    }

    /// Opens the file anew: the former one may have been renamed.
    pub(super) fn reopen(&mut self) {
        if let Place::File(file) = &mut self.place {
            file.reopen();
        }
    }

    fn write(&mut self) {
        let count = std::mem::take(&mut self.waiting);
        if count == 0 {
            return;
        }
        let lines = std::mem::take(&mut self.lines);
        let lost = match &mut self.place {
            Place::File(file) => file.write(lines.as_bytes()),
            _ if log::write_lines(lines.as_bytes()) => Ok(()),
            _ => Err((count, io::Error::other("nobody reads standard error"))),
        };
        match lost {
            Ok(()) => self.written.written += count,
            Err((lost, error)) => {
                self.written.written += count - lost;
                self.written.lost += lost;
                self.written.error = Some(error);
            }
        }
        // The buffer is used again.
        self.lines = lines;
        self.lines.clear();
    }
}

/// A file that others rename while it is written.
struct Rotated {
    path: PathBuf,
    file: Option<File>,
    /// The last line is there in part.
    is_torn: bool,
    /// When it was last looked whether it is still the file of this path.
    looked: Instant,
}

impl Rotated {
    /// Adds lines. Returns how many of them are lost, if any are.
    fn write(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let count = |lines: &[u8]| lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
        if self.looked.elapsed() >= PERIOD && !self.is_same() {
            self.reopen();
        }
        let Some(file) = &mut self.file else {
            return Err((count(lines), io::Error::other("the file cannot be opened")));
        };
        // What is there in part is no part of the next one.
        if self.is_torn {
            match file.write(b"\n") {
                Ok(1) => self.is_torn = false,
                Ok(_) => return Err((count(lines), io::ErrorKind::WriteZero.into())),
                Err(error) => return Err((count(lines), error)),
            }
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(0) => return Err((count(rest), io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    self.is_torn = rest[written - 1] != b'\n';
                    rest = &rest[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((count(rest), error)),
            }
        }
        Ok(())
    }

    fn is_same(&mut self) -> bool {
        self.looked = Instant::now();
        let is = self.file.as_ref().and_then(|file| file.metadata().ok());
        let there = std::fs::symlink_metadata(&self.path).ok();
        let name = |found: std::fs::Metadata| (found.dev(), found.ino());
        is.is_some() && is.map(name) == there.map(name)
    }

    fn reopen(&mut self) {
        self.looked = Instant::now();
        match open(&self.path) {
            Ok(file) => (self.file, self.is_torn) = (Some(file), false),
            Err(error) => {
                let path = self.path.display();
                // One that was open before still takes records.
                match &self.file {
                    Some(_) => tracing::error!("{path}: {error}; the file as it was is written on"),
                    None => tracing::error!("{path}: {error}; the audit log is not written"),
                }
            }
        }
    }
}

/// Opens a file to add to it, and makes it if there is none.
fn open(path: &Path) -> io::Result<File> {
    let options = || {
        let mut options = OpenOptions::new();
        // A link could lead anywhere, and a FIFO without a reader would be waited for.
        options.append(true).mode(MODE).custom_flags(O_NOFOLLOW | O_NONBLOCK);
        options
    };
    match options().create_new(true).open(path) {
        Ok(file) => {
            // Whatever the umask says. A file that was there keeps what it has.
            file.set_permissions(Permissions::from_mode(MODE))?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let file = options().open(path)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("this is no regular file"));
            }
            Ok(file)
        }
        Err(error) => Err(error),
    }
}

/// The way to systemd-journald.
struct Journal {
    path: PathBuf,
    socket: Option<UnixDatagram>,
    /// The last entry waited in vain.
    is_stuck: bool,
}

impl Journal {
    fn send(&mut self, entry: &[u8]) -> io::Result<()> {
        let mut sent = self.try_send(entry);
        // Another journald has taken its place.
        if matches!(&sent, Err(error) if error.kind() != io::ErrorKind::WouldBlock) {
            self.socket = None;
            sent = self.try_send(entry);
        }
        self.is_stuck = sent.is_err();
        sent
    }

    fn try_send(&mut self, entry: &[u8]) -> io::Result<()> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                socket.connect(&self.path)?;
                none.insert(socket)
            }
        };
        match socket.send(entry) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.is_stuck => {
                let mut waits = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
                poll(&mut waits, PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::ZERO))?;
                socket.send(entry).map(drop)
            }
            sent => sent.map(drop),
        }
    }
}

/// Whether standard error is connected to the journal (systemd.exec(5), `$JOURNAL_STREAM`).
fn stderr_is_journal() -> bool {
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else { return false };
    let Ok(found) = nix::sys::stat::fstat(io::stderr().as_fd()) else { return false };
    stream.to_str() == Some(&format!("{}:{}", found.st_dev, found.st_ino))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::record::Priority;
    use super::*;

    fn record(text: &str) -> Record {
        Record::now("test", Priority::Info).with("text", text.to_owned())
    }

    fn file_in(folder: &Path) -> (PathBuf, Sink) {
        let path = folder.join("audit.log");
        let sink = Sink::open(&AuditLog::File(path.clone())).unwrap().unwrap();
        (path, sink)
    }

    #[test]
    fn a_file_is_made_for_owner_and_group_and_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut sink) = file_in(folder.path());
        sink.put(&record("one"), 1);
        assert_eq!(sink.flush().written, 1);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, MODE);
        let (_, mut sink) = file_in(folder.path());
        sink.put(&record("two"), 1);
        sink.flush();
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
    }

    #[test]
    fn a_link_and_a_fifo_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(Sink::open(&AuditLog::File(link)).is_err());
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(Sink::open(&AuditLog::File(fifo)).is_err());
    }

    #[test]
    fn what_a_full_disk_takes_in_part_is_no_part_of_the_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut sink) = file_in(folder.path());
        let Place::File(file) = &mut sink.place else { panic!() };
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let good = file.file.replace(full).unwrap();
        (0..3).for_each(|number| sink.put(&record("lost"), number));
        let written = sink.flush();
        assert_eq!((written.written, written.lost), (0, 3));
        assert_eq!(written.error.unwrap().raw_os_error(), Some(nix::libc::ENOSPC));
        let Place::File(file) = &mut sink.place else { panic!() };
        file.file.replace(good);
        file.file.as_ref().unwrap().write_all(b"a part").unwrap();
        file.is_torn = true;
        sink.put(&record("there"), 4);
        assert_eq!(sink.flush().written, 1);
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0] == "a part" && lines[1].contains("seq=4"), "{text}");
    }

    #[test]
    fn a_file_that_was_renamed_is_opened_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut sink) = file_in(folder.path());
        sink.put(&record("old"), 1);
        sink.flush();
        fs::rename(&path, folder.path().join("audit.log.1")).unwrap();
        sink.reopen();
        sink.put(&record("new"), 2);
        sink.flush();
        assert!(fs::read_to_string(&path).unwrap().contains("new"));
        // Without being told, it is seen after a second.
        fs::remove_file(&path).unwrap();
        let Place::File(file) = &mut sink.place else { panic!() };
        file.looked = Instant::now() - PERIOD;
        sink.put(&record("newer"), 3);
        sink.flush();
        assert!(fs::read_to_string(&path).unwrap().contains("newer"));
    }

    #[test]
    fn a_journal_gets_an_entry_for_each_and_may_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut sink = Sink::journal(&path);
        sink.put(&record("nobody"), 1);
        assert_eq!(sink.flush().lost, 1);
        for _ in 0..2 {
            let _ = fs::remove_file(&path);
            let journal = UnixDatagram::bind(&path).unwrap();
            sink.put(&record("somebody"), 2);
            assert_eq!(sink.flush().written, 1);
            let mut entry = [0; 4096];
            let length = journal.recv(&mut entry).unwrap();
            let entry = String::from_utf8_lossy(&entry[..length]);
            assert!(entry.contains("HITPATH_TEXT=somebody\n"), "{entry}");
        }
    }

    #[test]
    fn a_journal_that_does_not_read_costs_the_entry_and_little_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journal = UnixDatagram::bind(&path).unwrap();
        let mut sink = Sink::journal(&path);
        let begin = Instant::now();
        (0..20_000).for_each(|number| sink.put(&record("much"), number));
        let written = sink.flush();
        assert!(written.lost > 0 && written.written > 0, "{written:?}");
        assert!(begin.elapsed() < Duration::from_secs(5));
        let mut entry = [0; 4096];
        for _ in 0..written.written {
            journal.recv(&mut entry).unwrap();
        }
        sink.put(&record("again"), 1);
        assert_eq!(sink.flush().written, 1);
    }
}
