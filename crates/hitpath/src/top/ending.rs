//! When the screen ends: at a signal, or once the terminal has gone.

use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use runtime::exit::Exit;
use runtime::output::is_hung_up;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{PERIOD, terminal};

/// How long a screen may still take that is to end while its terminal is there. A daemon that does
/// not reply takes two seconds of it.
const GRACE: Duration = Duration::from_secs(3);

/// Whether the screen is to end.
#[derive(Debug)]
pub(super) struct Ending(Arc<AtomicBool>);

impl Ending {
    /// Heeds these signals.
    pub(super) fn at(signals: &[i32]) -> anyhow::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for &signal in signals {
            signal_hook::flag::register(signal, Arc::clone(&asked)).context("heeding signals")?;
        }
        Ok(Self(asked))
    }

    /// Heeds signals and the terminal. The process ends by itself if the screen does not: writing to
    /// a terminal that takes nothing waits for ever, and crossterm reads one that has gone for ever.
    pub(super) fn with_terminal() -> anyhow::Result<Self> {
        let ending = Self::at(&[SIGINT, SIGTERM, SIGHUP])?;
        let asked = Arc::clone(&ending.0);
        let watch = move || {
            while !asked.load(Ordering::Relaxed) && !has_gone() {
                thread::sleep(PERIOD);
            }
            asked.store(true, Ordering::Relaxed);
            let end = Instant::now() + GRACE;
            while Instant::now() < end && !has_gone() {
                thread::sleep(PERIOD);
            }
            // The screen may have noticed by itself.
            thread::sleep(3 * PERIOD);
            terminal::give_back_input();
            std::process::exit(Exit::Done as i32);
        };
        thread::Builder::new()
            .name("ending".to_owned())
            .spawn(watch)
            .context("starting a thread")?;
        Ok(ending)
    }

    pub(super) fn is_asked_for(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether the terminal has gone.
pub(super) fn has_gone() -> bool {
    is_hung_up(stdin().as_fd()) || is_hung_up(stdout().as_fd())
}
