//! `hitpath firewall`: zones and what may pass between them.

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, bail};
use api::{FirewallSpec, Request};
use clap::{Args, Subcommand};
use control::Diagnostic;
use control::config;
use control::render::Options;
use serde_json::json;

use crate::cli::Global;
use crate::verbs::check::diagnostic;
use crate::{client, gateway, view};
use runtime::exit::Exit;
use runtime::output;

/// The firewall: zones, and what may pass from one to another
///
/// It is `[firewall]` of the configuration file, and becomes match-action flows, which `hitpath
/// flow show` prints. Connections that are there are judged by a changed firewall at once: those
/// that it does not allow, or translates otherwise, fall.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath firewall                           zones, policies, and what they have counted
  hitpath firewall check gw.toml             is it right, and which rules never match?
  hitpath firewall replace fw.toml           make it what [firewall] of a file says, in one step
  hitpath firewall delete                    remove it: its VRFs route again
  hitpath firewall save > fw.toml            what is in force, as a file
  hitpath flow show | grep firewall          the flows that it became")]
pub(crate) struct Firewall {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show zones and policies, with what they have counted
    #[command(visible_alias = "list")]
    Show,
    /// Check files: what is wrong, and which rules never match, as others come first
    ///
    /// Of a file that has nothing but `[firewall]`, names of ports are not looked at. Exits with 1 if
    /// a file is wrong or a rule never matches.
    Check {
        /// The files, or - for standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Make the firewall what `[firewall]` of a file says; other sections are passed over
    Replace {
        /// The file, or - for standard input
        #[arg(value_name = "FILE")]
        file: String,
        /// Do not wait until the change is on the disk: it is in force, and lost with power
        #[arg(long)]
        no_sync: bool,
    },
    /// Remove the firewall: the VRFs that it is in route again
    Delete {
        /// Do not wait until the change is on the disk: it is in force, and lost with power
        #[arg(long)]
        no_sync: bool,
    },
    /// Print the firewall as a configuration file has it
    Save,
}

/// The longest file.
const MAX_FILE: u64 = api::MAX_BATCH_BYTES as u64;

impl Firewall {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match self.command.as_ref().unwrap_or(&Command::Show) {
            Command::Show => ask(global, &Request::FirewallGet, true),
            Command::Delete { no_sync } => ask(global, &Request::FirewallDelete, !no_sync),
            Command::Replace { file, no_sync } => {
                let spec = read(file)?;
                ask(global, &Request::FirewallReplace(Box::new(spec)), !no_sync)
            }
            Command::Save => match client::ask(global.socket(), &Request::FirewallGet)? {
                api::Reply::Firewall(view) if global.json => {
                    let spec = view.map(|view| view.spec);
                    output::json(&json!(spec))?;
                    Ok(if spec.is_some() { Exit::Done } else { Exit::Refused })
                }
                api::Reply::Firewall(Some(view)) => {
                    output::text(&config::firewall_text(&view.spec))?;
                    Ok(Exit::Done)
                }
                api::Reply::Firewall(None) => {
                    output::say("there is no firewall");
                    Ok(Exit::Refused)
                }
                other => Err(client::unexpected(&other)),
            },
            Command::Check { files } => check(files, global.json),
        }
    }
}

fn ask(global: &Global, request: &Request, sync: bool) -> anyhow::Result<Exit> {
    let body = serde_json::to_vec(request)?;
    let is_long = body.len() > api::MAX_REQUEST_BYTES;
    let path = if is_long { api::BATCH_PATH } else { api::PATH };
    let reply = client::ask_in_parts(global.socket(), &client::path(path, sync), &[&body])?;
    view::print_with(request, &reply, global.json, Options::default())?;
    Ok(Exit::Done)
}

/// The text of a file, or of standard input.
fn text_of(name: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = match name {
        "-" => std::io::stdin().lock().take(MAX_FILE + 1).read_to_string(&mut text),
        name => std::fs::File::open(name)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text)),
    };
    read.with_context(|| format!("reading {name}"))?;
    if text.len() as u64 > MAX_FILE {
        bail!("{name} has more than {MAX_FILE} bytes");
    }
    Ok(text)
}

fn read(name: &str) -> anyhow::Result<FirewallSpec> {
    let text = text_of(name)?;
    match config::load_firewall(name, &text) {
        Ok((Some(spec), notes)) => {
            notes.iter().for_each(|note| output::say(&note.to_string()));
            Ok(spec)
        }
        Ok((None, _)) => {
            bail!("{name} has no [firewall]; `firewall delete` removes it")
        }
        Err(wrong) => bail!(wrong.to_string()),
    }
}

/// What is wrong with files, and which rules never match.
fn check(files: &[PathBuf], as_json: bool) -> anyhow::Result<Exit> {
    let (mut wrong, mut errors, mut notes) = (0, Vec::new(), Vec::new());
    // Those of which the names of ports and VRFs were not looked at.
    let mut alone = Vec::new();
    for file in files {
        let name = file.display().to_string();
        let text = text_of(&name)?;
        // One with ports is a configuration, whose names are known.
        let is_whole = text.lines().any(|line| line.trim_start().starts_with("[[port]]"));
        if !is_whole {
            alone.push(name.clone());
        }
        let found = match is_whole {
            true => match gateway::check_bytes(file, text.as_bytes()) {
                Ok(config) => Ok((config.firewall, config.notes)),
                Err(gateway::ConfigError::Wrong(wrong)) => Err(wrong),
                Err(other) => return Err(other.into()),
            },
            false => config::load_firewall(&name, &text),
        };
        match found {
            Ok((None, _)) => {
                wrong += 1;
                let (message, hint) = ("there is no [firewall]".to_owned(), None);
                errors.push(Diagnostic { file: name, line: 1, column: 1, message, hint });
            }
            Ok((Some(_), found)) => notes.extend(found),
            Err(found) => {
                wrong += 1;
                errors.extend(found.0);
            }
        }
    }
    let never = |note: &&Diagnostic| {
        note.message.contains("never match a packet")
            || note.message.contains("never matches a packet")
    };
    let shadowed = notes.iter().filter(never).count();
    if as_json {
        let all = |list: &[Diagnostic]| list.iter().map(diagnostic).collect::<Vec<_>>();
        output::json(&json!({
            "files": files.len(),
            "wrong": wrong,
            "names_not_looked_at": alone,
            "diagnostics": all(&errors),
            "notes": all(&notes),
        }))?;
    } else {
        for line in errors.iter().chain(&notes) {
            output::line(&line.to_string())?;
        }
        if wrong == 0 && shadowed == 0 {
            files.iter().try_for_each(|file| {
                let name = file.display().to_string();
                let more = match alone.contains(&name) {
                    true => " (it has no [[port]]: the names of ports and VRFs were not looked at)",
                    false => "",
                };
                output::line(&format!("{name}: right, every rule can match{more}"))
            })?;
        }
    }
    Ok(if wrong == 0 && shadowed == 0 { Exit::Done } else { Exit::Refused })
}
