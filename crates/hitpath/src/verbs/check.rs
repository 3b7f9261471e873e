//! `hitpath check`: is this configuration right?

use std::path::PathBuf;

use clap::Args;
use control::Diagnostic;
use serde_json::{Value, json};

use crate::cli::Global;
use crate::gateway::{self, ConfigError};
use runtime::exit::Exit;
use runtime::output;

/// Check configuration files without running them
///
/// Prints every error of every file at once, with file, line and column, what is wrong and what
/// would be right. Exits with 0 if all files are right, with 1 otherwise. Of a right file it
/// says what is worth a word: numbers that are rounded, policies that defeat their lookup, policies
/// that never match a packet.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath check gw.toml
  hitpath check -j /etc/hitpath/*.toml       diagnostics for an editor")]
pub(crate) struct Check {
    /// The files to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Check {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let (mut wrong, mut diagnostics, mut notes) = (0, Vec::new(), Vec::new());
        for file in &self.files {
            let result = gateway::check(file);
            if result.is_err() {
                wrong += 1;
            }
            match result {
                Ok(config) if global.json => notes.extend(config.notes.iter().map(diagnostic)),
                Ok(config) => {
                    for note in &config.notes {
                        output::line(&note.to_string())?;
                    }
                    let (count, ports) = (
                        config.ports.len(),
                        if config.ports.len() == 1 { "port" } else { "ports" },
                    );
                    output::line(&format!("{}: right, {count} {ports}", file.display()))?;
                }
                Err(ConfigError::Wrong(errors)) if !global.json => {
                    output::line(&errors.to_string())?;
                }
                Err(ConfigError::Wrong(errors)) => {
                    diagnostics.extend(errors.0.iter().map(diagnostic));
                }
                Err(error @ ConfigError::Unreadable { .. }) if !global.json => {
                    output::line(&error.to_string())?;
                }
                Err(ConfigError::Unreadable { file, problem }) => diagnostics.push(json!({
                    "file": file,
                    "line": null,
                    "column": null,
                    "message": problem,
                    "hint": null,
                })),
            }
        }
        if global.json {
            output::json(&json!({
                "files": self.files.len(),
                "wrong": wrong,
                "diagnostics": diagnostics,
                "notes": notes,
            }))?;
        }
        Ok(if wrong == 0 { Exit::Done } else { Exit::Refused })
    }
}

fn diagnostic(diagnostic: &Diagnostic) -> Value {
    json!({
        "file": diagnostic.file,
        "line": diagnostic.line,
        "column": diagnostic.column,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    })
}
