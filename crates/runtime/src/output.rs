//! What users see: text for people, JSON for programs.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde::Serialize;

/// Whether the reader of standard output has gone away.
static HAS_GONE: AtomicBool = AtomicBool::new(false);

/// What poll(2) tells of an end that nobody is at the other end of.
const GONE: PollFlags = PollFlags::POLLHUP.union(PollFlags::POLLERR);

/// Prints `text` to standard output. A reader that has gone away (`hitpath ... | head`) is no
/// error; who has more to print asks [`has_gone`].
pub fn text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            HAS_GONE.store(true, Ordering::Relaxed);
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Whether nobody reads what is printed any more: the reader of the pipe or the terminal has gone.
pub fn has_gone() -> bool {
    HAS_GONE.load(Ordering::Relaxed) || is_hung_up(io::stdout().as_fd())
}

/// Whether nobody is at the other end of a pipe or a terminal. Of a file, somebody always is.
pub fn is_hung_up(end: BorrowedFd<'_>) -> bool {
    // Both are told whether they are asked for or not (poll(2)).
    let mut asked = [PollFd::new(end, PollFlags::empty())];
    let told = nix::poll::poll(&mut asked, PollTimeout::ZERO);
    told.is_ok() && asked[0].revents().is_some_and(|it| it.intersects(GONE))
}

/// Prints `text` with a line end to standard output.
pub fn line(line: &str) -> anyhow::Result<()> {
    text(&format!("{line}\n"))
}

/// Prints `value` as JSON to standard output.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Says something in one line on standard error. If that is closed, nobody wants to know.
pub fn say(what: &str) {
    let _ = writeln!(io::stderr(), "hitpath: {what}");
}

/// Prints an error to standard error: its causes in one line, or `{"error": ...}`.
pub fn report(error: &anyhow::Error, as_json: bool) {
    let message = causes(error);
    if as_json {
        // Nothing is left to be done if standard error itself is closed.
        let _ = writeln!(io::stderr(), "{}", serde_json::json!({ "error": message }));
    } else {
        say(&message);
    }
}

/// An error and its causes in one line. Some errors tell their cause themselves; it is not said
/// again.
fn causes(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message.push_str(": ");
            message.push_str(&cause);
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn a_pipe_without_a_reader_is_hung_up() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!is_hung_up(writer.as_fd()));
        drop(reader);
        assert!(is_hung_up(writer.as_fd()));
        assert!(!is_hung_up(tempfile::tempfile().unwrap().as_fd()));
    }

    #[test]
    fn every_cause_is_said_once() {
        let file = || io::Error::from(io::ErrorKind::NotFound);
        let told = format!("a.pcap: {}", file());
        let error = Err::<(), _>(file()).context(told.clone()).context("reading").unwrap_err();
        assert_eq!(causes(&error), format!("reading: {told}"));
        assert_eq!(causes(&anyhow!("no")), "no");
    }
}
