//! A live screen of what passes, for `hitpath top`.

mod ending;
mod sample;
mod screen;
mod terminal;
#[cfg(test)]
mod tests;
mod view;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGINT, SIGTERM};

use ending::Ending;
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

/// How long it takes at most until a signal is heeded, and a terminal that has gone is noticed.
const PERIOD: Duration = Duration::from_millis(100);

/// The screen, until the user quits, the process is told to end, or the terminal has gone.
///
/// # Errors
/// If the terminal cannot be used.
pub(crate) fn live(
    socket: &Path,
    view: View,
    delay: Duration,
    has_colour: bool,
) -> anyhow::Result<Exit> {
    let ending = Ending::with_terminal()?;
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
            if ending.is_asked_for() {
                return Ok(Exit::Done);
            }
            let left = next.saturating_duration_since(Instant::now());
            let wait = if screen.is_paused { PERIOD } else { left.min(PERIOD) };
            // crossterm is asked only while there is a terminal, of which it would not tell the end.
            if !terminal::has_input(wait)? && ending::has_gone() {
                return Ok(Exit::Done);
            }
            if event::poll(Duration::ZERO).context("reading keys")? {
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
    let ending = Ending::at(&[SIGINT, SIGTERM])?;
    let (mut before, mut used) = (None::<Sample>, Used::new());
    let mut left = count;
    // Rates need two samples; the first frame is of what came between them.
    let is_over = || ending.is_asked_for() || output::has_gone();
    while left != Some(0) && !is_over() {
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
        while left != Some(0) && Instant::now() < next && !is_over() {
            std::thread::sleep(PERIOD.min(next.saturating_duration_since(Instant::now())));
        }
    }
    Ok(Exit::Done)
}
