//! Where log lines go: to standard error, if that takes them.
//!
//! A log line must never end the program, nor hold it up. A line that cannot be written, because
//! the disk is full or the reader of a pipe is gone, is dropped and counted; so is one that a reader
//! who does not read has left no room for. The first line that gets through again says how many
//! were lost.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A pipe with room takes so much at once without waiting (`PIPE_BUF`, pipe(7)).
const PIECE: usize = 4096;

/// How long a line waits for a reader who is slow, not gone. Once it has waited in vain, the next
/// ones do not wait.
const PATIENCE: Duration = Duration::from_millis(100);

/// Lines that were dropped since the start.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The state of standard error. The lock keeps lines whole.
static STATE: Mutex<State> = Mutex::new(State { unsaid: 0, is_stuck: false });

struct State {
    /// Lines that were dropped since the last one that was written.
    unsaid: u64,
    /// The last line was dropped.
    is_stuck: bool,
}

/// How many log lines could not be written since the start.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Writes log lines to standard error. Each call of [`Write::write`] is a line, and succeeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write(&mut state(), io::stderr().as_fd(), line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes whole lines to standard error in one piece. Returns false if they, or some of them, could
/// not be written; that is the caller's to count.
pub fn write_lines(lines: &[u8]) -> bool {
    write_whole(&mut state(), io::stderr().as_fd(), lines).is_ok()
}

/// Says `line` on standard output, if that takes it. If not, it counts as a log line that could
/// not be written.
pub fn announce(line: &str) {
    // Its own state: that standard error is stuck says nothing of standard output.
    let mut own = State { unsaid: 0, is_stuck: false };
    write(&mut own, io::stdout().as_fd(), format!("{line}\n").as_bytes());
    state().unsaid += own.unsaid;
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(state: &mut State, to: BorrowedFd<'_>, line: &[u8]) {
    if write_whole(state, to, line).is_err() {
        state.unsaid += 1;
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

fn write_whole(state: &mut State, to: BorrowedFd<'_>, line: &[u8]) -> Result<(), Errno> {
    let patience = if state.is_stuck { Duration::ZERO } else { PATIENCE };
    let mut written = Ok(());
    if state.unsaid > 0 {
        let lost = format!("hitpath: {} log lines before this one were lost\n", state.unsaid);
        written = write_all(to, lost.as_bytes(), patience);
    }
    if written.is_ok() {
        state.unsaid = 0;
        written = write_all(to, line, patience);
    }
    state.is_stuck = written.is_err();
    written
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8], patience: Duration) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(to, PollFlags::POLLOUT)], timeout) {
            Ok(0) => return Err(Errno::EAGAIN),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let piece = &bytes[..bytes.len().min(PIECE)];
        match nix::unistd::write(to, piece) {
            Ok(0) => return Err(Errno::EIO),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Read;

    use super::*;

    fn empty() -> State {
        State { unsaid: 0, is_stuck: false }
    }

    #[test]
    fn a_full_disk_costs_the_line() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut state = empty();
        for lost in 1..=3 {
            write(&mut state, full.as_fd(), b"a line\n");
            assert_eq!((state.unsaid, state.is_stuck), (lost, true));
        }
    }

    #[test]
    fn a_closed_pipe_costs_the_line() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut state = empty();
        write(&mut state, writer.as_fd(), b"a line\n");
        assert_eq!(state.unsaid, 1);
    }

    #[test]
    fn a_reader_who_comes_back_is_told_of_what_was_lost() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut state = empty();
        let line = [b'x'; 1000];
        while state.unsaid < 3 {
            write(&mut state, writer.as_fd(), &line);
        }
        let mut read = vec![0; 60_000];
        reader.read_exact(&mut read).unwrap();
        write(&mut state, writer.as_fd(), b"back\n");
        assert_eq!((state.unsaid, state.is_stuck), (0, false));
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let end = "hitpath: 3 log lines before this one were lost\nback\n";
        assert!(rest.ends_with(end), "{}", &rest[rest.len().saturating_sub(100)..]);
    }
}
