//! What users see: text for people, JSON for programs.

use std::io::{self, Write};

use serde::Serialize;

/// Prints `text` to standard output. A reader that has gone away (`hitpath ... | head`) is no error.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints `text` with a line end to standard output.
pub(crate) fn line(line: &str) -> anyhow::Result<()> {
    text(&format!("{line}\n"))
}

/// Prints `value` as JSON to standard output.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Prints an error to standard error: its causes in one line, or `{"error": ...}`.
pub(crate) fn report(error: &anyhow::Error, as_json: bool) {
    let message = format!("{error:#}");
    // Nothing is left to be done where standard error itself is closed.
    let _ = if as_json {
        writeln!(io::stderr(), "{}", serde_json::json!({ "error": message }))
    } else {
        writeln!(io::stderr(), "hitpath: {message}")
    };
}
