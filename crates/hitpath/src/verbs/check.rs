//! `hitpath check`: is this configuration right?

mod places;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use api::{Reply, Request};
use clap::Args;
use control::{Config, Diagnostic, GatewaySettings};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::Global;
use crate::client;
use crate::exit::Usage;
use crate::gateway::{self, ConfigError, Gateway};
use crate::kernel::own;
use crate::kernel::seen::{self, Seen};
use runtime::affinity;
use runtime::exit::Exit;
use runtime::output;
use wire::IpRange;

/// Check configuration files without running them
///
/// Prints every error of every file at once, with file, line and column, what is wrong and what
/// would be right. Exits with 0 if all files are right, with 1 otherwise. Of a right file it
/// says what is worth a word: numbers that are rounded, policies that defeat their lookup, policies
/// that never match a packet, tunnels whose ends are not here or that no SA serves.
///
/// A gateway that runs with the file may refuse it all the same, for what commands have added: that
/// is for `hitpath reload --dry-run` to say, and the last line says so if such a gateway runs.
///
/// With --live it looks at this machine too: whether the kernel handles the packets of the ports'
/// interfaces besides the gateway, by which commands that ends, and what programs would lose by
/// `hitpath run --own-interfaces`; and whether the addresses, sockets and files that the daemon needs
/// can be had. Exits with 1 if one cannot, the kernel handles packets, or an interface or a processor
/// is missing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath check gw.toml
  hitpath check --live gw.toml               and is this machine ready for it?
  hitpath check -j /etc/hitpath/*.toml       diagnostics for an editor")]
pub(crate) struct Check {
    /// The files to check
    #[arg(required_unless_present = "config", value_name = "FILE")]
    files: Vec<PathBuf>,

    #[arg(short, long, hide = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Look at this machine's interfaces too
    #[arg(long)]
    live: bool,
}

impl Check {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        if let Some(file) = &self.config {
            let file = api::shown(&file.display().to_string());
            bail!(Usage(format!("give the FILE alone: hitpath check {file}")));
        }
        let (mut wrong, mut diagnostics, mut notes) = (0, Vec::new(), Vec::new());
        let (mut machine, mut running) = (Vec::new(), Vec::new());
        for file in &self.files {
            let result = gateway::check(file);
            let answering = result.as_ref().ok().and_then(|config| answering(config, global));
            let is_running = answering.as_ref().is_some_and(|other| is_same(file, other));
            if let Ok(config) = &result
                && self.live
            {
                machine.push(Machine::look(file, config, answering.is_some())?);
            }
            if is_running {
                running.push(file.clone());
            }
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
                    if is_running {
                        output::line(&format!("{}: {}", file.display(), ASK_THE_GATEWAY))?;
                    }
                    machine.last().map_or(Ok(()), Machine::print)?;
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
            let mut told = json!({
                "files": self.files.len(),
                "wrong": wrong,
                "diagnostics": diagnostics,
                "notes": notes,
                "running": running,
            });
            if self.live {
                told["live"] = json!(machine);
            }
            output::json(&told)?;
        }
        let is_ready = machine.iter().all(Machine::is_ready);
        Ok(if wrong == 0 && is_ready { Exit::Done } else { Exit::Refused })
    }
}

/// Said of the file of a gateway that runs.
const ASK_THE_GATEWAY: &str = "a gateway runs with it; what commands have added to that may stand \
    in the way of this file: `hitpath reload --dry-run` tells";

/// How long to wait for a gateway.
const PATIENCE: Duration = Duration::from_secs(2);

/// The file of the gateway that answers at a file's socket.
fn answering(config: &Config, global: &Global) -> Option<PathBuf> {
    let socket = global.socket_override().unwrap_or(&config.gateway.socket);
    match client::ask_within(socket, &Request::Daemon, PATIENCE) {
        Ok(Reply::Daemon(daemon)) => Some(daemon.config.into()),
        _ => None,
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let read = |file: &Path| file.canonicalize().ok();
    read(one).is_some_and(|one| read(other) == Some(one))
}

/// What this machine is like for a configuration.
#[derive(Serialize)]
struct Machine {
    file: PathBuf,
    /// Ports whose interfaces are not there.
    missing: Vec<String>,
    /// What is wrong with the processors that workers are to run on.
    processors: Option<String>,
    /// Addresses, sockets and files that cannot be had.
    places: Vec<String>,
    /// Interfaces whose packets the kernel handles too.
    kernel: Vec<Seen>,
    /// Addresses of the kernel to which sources are translated.
    translated: Vec<String>,
    /// What `run --own-interfaces` would end.
    losses: Vec<String>,
}

impl Machine {
    fn look(file: &Path, config: &Config, is_answering: bool) -> anyhow::Result<Self> {
        let missing = seen::missing(&config.ports)?
            .into_iter()
            .map(|(port, interface)| format!("port {port}: there is no interface {interface}"));
        Ok(Self {
            file: file.to_owned(),
            missing: missing.collect(),
            processors: wrong_processors(&config.gateway),
            places: places::wrong(&config.gateway, is_answering),
            kernel: seen::look(&config.ports)?,
            translated: seen::translated(&pools(config)?)?,
            losses: own::losses(&config.ports)?,
        })
    }

    fn is_ready(&self) -> bool {
        self.missing.is_empty()
            && self.processors.is_none()
            && self.places.is_empty()
            && self.kernel.is_empty()
            && self.translated.is_empty()
    }

    fn print(&self) -> anyhow::Result<()> {
        let mut all = self.missing.iter().chain(&self.processors).chain(&self.places);
        all.try_for_each(|line| output::line(line))?;
        self.kernel.iter().try_for_each(|seen| output::line(&seen.describe()))?;
        self.translated.iter().try_for_each(|line| output::line(line))?;
        let told = |loss| output::line(&format!("`hitpath run --own-interfaces` ends {loss}"));
        self.losses.iter().try_for_each(told)
    }
}

/// What sources become, by the flows of a configuration and its firewall.
fn pools(config: &Config) -> anyhow::Result<Vec<IpRange>> {
    let gateway = Gateway::without_packets(config.clone())?;
    let mut reader = gateway.handler().control.shared().reader();
    let pools = reader.load().nat_pools().filter_map(|(_, pool)| pool.spec.addresses);
    Ok(pools.collect())
}

fn wrong_processors(gateway: &GatewaySettings) -> Option<String> {
    let chosen = affinity::processors(gateway.workers, &gateway.processors);
    chosen.err().map(|error| format!("{error:#}"))
}

pub(crate) fn diagnostic(diagnostic: &Diagnostic) -> Value {
    json!({
        "file": diagnostic.file,
        "line": diagnostic.line,
        "column": diagnostic.column,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    })
}
