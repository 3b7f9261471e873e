//! A live screen of what passes, for `hitpath top`.

mod sample;
mod screen;
mod terminal;
#[cfg(test)]
mod tests;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use runtime::exit::Exit;
use runtime::output;
use sample::Sample;
use screen::{Asked, Screen};
use terminal::Terminal;
pub(crate) use view::View;
use view::{Table, Used};

/// The shortest and the longest time that a frame stays.
pub(crate) const SHORTEST: Duration = Duration::from_millis(100);
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);

/// How long it takes at most until a signal is heeded.
const PERIOD: Duration = Duration::from_millis(100);

/// The screen, until the user quits or the process is told to end.
///
/// # Errors
/// If the terminal cannot be used.
pub(crate) fn live(
    socket: &Path,
    view: View,
    delay: Duration,
    has_colour: bool,
) -> anyhow::Result<Exit> {
    let stopped = heed_signals()?;
    let mut screen = Screen::new(view, delay, has_colour);
    let mut terminal = Terminal::take()?;
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next && !screen.is_paused {
            let begun = Instant::now();
            screen.take(Sample::take(socket, screen.view));
            // A daemon with a great many objects is not kept busy by those who watch.
            next = Instant::now() + screen.delay.max(begun.elapsed() * 4);
        }
        terminal.draw(&screen)?;
        loop {
            if stopped.load(Ordering::Relaxed) {
                return Ok(Exit::Done);
            }
            let left = next.saturating_duration_since(Instant::now());
            let wait = if screen.is_paused { PERIOD } else { left.min(PERIOD) };
            if event::poll(wait).context("reading keys")? {
                break;
            }
            if Instant::now() >= next && !screen.is_paused {
                break;
            }
        }
        // Everything that waits, so that a key that is held does not lag behind.
        while event::poll(Duration::ZERO).context("reading keys")? {
            match event::read().context("reading keys")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                    if is_control && key.code == KeyCode::Char('l') {
                        terminal.clear()?;
                    }
                    match screen.key(key) {
                        Asked::Leave => return Ok(Exit::Done),
                        Asked::Sample => screen.take(Sample::take(socket, screen.view)),
                        Asked::Nothing => {}
                    }
                }
                _ => {}
            }
        }
    }
}

/// Frames as plain text, for scripts: `count` of them, or without end.
///
/// # Errors
/// If no daemon answers.
pub(crate) fn frames(
    socket: &Path,
    view: View,
    delay: Duration,
    count: Option<u64>,
) -> anyhow::Result<Exit> {
    let stopped = heed_signals()?;
    let (mut before, mut used) = (None::<Sample>, Used::new());
    let mut left = count;
    // Rates need two samples; the first frame is of what came between them.
    while left != Some(0) && !stopped.load(Ordering::Relaxed) {
        let sample = Sample::take(socket, view)?;
        if let Some(before) = &before {
            let mut table = Table::new(view, &sample, Some(before), &mut used);
            let (by, from_highest) = view.sorted_at_first();
            table.arrange("", by, from_highest);
            output::line(&screen::text(&table))?;
            left = left.map(|left| left - 1);
        }
        before = Some(sample);
        let next = Instant::now() + delay;
        while left != Some(0) && Instant::now() < next && !stopped.load(Ordering::Relaxed) {
            std::thread::sleep(PERIOD.min(next.saturating_duration_since(Instant::now())));
        }
    }
    Ok(Exit::Done)
}

fn heed_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).context("heeding signals")?;
    }
    Ok(stopped)
}
