//! What users see: text for people, JSON for programs.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

/// Whether the reader of standard output has gone away.
static HAS_GONE: AtomicBool = AtomicBool::new(false);

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

/// Whether nobody reads what is printed any more, as the last that was printed has shown.
pub fn has_gone() -> bool {
    HAS_GONE.load(Ordering::Relaxed)
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
    fn every_cause_is_said_once() {
        let file = || io::Error::from(io::ErrorKind::NotFound);
        let told = format!("a.pcap: {}", file());
        let error = Err::<(), _>(file()).context(told.clone()).context("reading").unwrap_err();
        assert_eq!(causes(&error), format!("reading: {told}"));
        assert_eq!(causes(&anyhow!("no")), "no");
    }
}
