//! The daemon: worker threads that move packets, the control thread that owns the tables, the
//! server on the control socket.
//!
//! ```text
//! clients --HTTP--> server --Letter--> control (main thread) --snapshot, commands, probes--> workers
//!                   signals --Message-->                     <--events, Lost, News---------
//! ```

mod control;
mod crew;
mod ports;
mod server;
mod signals;
mod socket;
mod worker;

use std::path::Path;
use std::sync::mpsc;

use anyhow::{Context, bail};
use wire::PortId;

use crate::gateway::{self, Desk};
use control::ControlThread;
use crew::Crew;
use runtime::clock::Clock;
use runtime::exit::Exit;
use runtime::output;
use server::Letter;

/// Messages that may wait for the control thread at once.
const INBOX: usize = 1024;

/// What wakes the control thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// A client asks.
    Letter(Box<Letter>),
    /// A worker has put events into its ring.
    News,
    /// A worker has lost a port for good.
    Lost {
        /// The port.
        port: PortId,
        /// What happened to it.
        error: String,
    },
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM or SIGINT.
    Stop,
}

/// Runs the gateway of the configuration `file` until it is told to stop. `socket` overrides the
/// configuration's control socket.
///
/// # Errors
/// Where the configuration is wrong, a port cannot be opened, or another daemon listens on the
/// control socket.
pub(crate) fn run(file: &Path, socket: Option<&Path>) -> anyhow::Result<Exit> {
    let config = gateway::load(file)?;
    config.notes.iter().for_each(|note| tracing::warn!("{note}"));
    let settings = config.gateway.clone();
    if config.ports.is_empty() {
        bail!("{}: the configuration has no port (add a [[port]] section)", file.display());
    }
    let clock = Clock::start();

    // First of all, so that a second daemon touches no port of the first one's.
    let socket = socket.unwrap_or(&settings.socket);
    let (listener, socket_file) = socket::listen(socket)?;

    let (sender, inbox) = mpsc::sync_channel(INBOX);
    signals::forward(sender.clone())?;
    let mut desk = Desk::new(::control::Control::new(settings.workers, rand::random()));
    let crew = Crew::start(&settings, &mut desk, clock, &sender).context("starting the workers")?;
    let mut control = ControlThread::new(file, desk, crew, clock);
    if let Err(error) = control.apply(config) {
        control.stop();
        return Err(error);
    }
    server::start(listener, sender)?;
    tracing::info!(socket = %socket.display(), workers = settings.workers, "running");
    output::line("ready")?;

    let exit = control.run(&inbox);
    drop(socket_file);
    Ok(exit)
}
