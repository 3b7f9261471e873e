//! Signals become messages.

use std::sync::mpsc::SyncSender;
use std::thread;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::daemon::Message;

/// Sends SIGHUP, SIGTERM and SIGINT on to the control thread, from a thread of its own.
///
/// # Errors
/// If the system gives no thread or refuses to hand signals over.
pub(crate) fn forward(control: SyncSender<Message>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT]).context("catching signals")?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                let message = if signal == SIGHUP { Message::Reload } else { Message::Stop };
                if control.send(message).is_err() {
                    return;
                }
            }
        })
        .context("starting the signal thread")?;
    Ok(())
}
