//! Signals become messages.

use std::sync::mpsc::SyncSender;
use std::thread;

use anyhow::Context;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM,
};
use signal_hook::iterator::Signals;

use crate::daemon::Message;

/// Signals that would end a process that does not catch them, and that mean nothing here.
const IGNORED: [i32; 6] = [SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO];

/// Sends SIGHUP, SIGTERM, SIGINT and SIGQUIT on to the control thread, from a thread of its own.
/// Others do nothing.
///
/// # Errors
/// If the system gives no thread or refuses to hand signals over.
pub(crate) fn forward(control: SyncSender<Message>) -> anyhow::Result<()> {
    let caught = [SIGHUP, SIGTERM, SIGINT, SIGQUIT].into_iter().chain(IGNORED);
    let mut signals = Signals::new(caught).context("catching signals")?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                let message = match signal {
                    SIGHUP => Message::Reload { is_prepared: false },
                    signal if IGNORED.contains(&signal) => {
                        let name = signal_hook::low_level::signal_name(signal).unwrap_or("?");
                        tracing::info!("{name} is ignored");
                        continue;
                    }
                    _ => Message::Stop,
                };
                if control.send(message).is_err() {
                    return;
                }
            }
        })
        .context("starting the signal thread")?;
    Ok(())
}
