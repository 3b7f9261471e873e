//! The terminal, which is given back as it was, however the process ends.

use std::io::{Stdout, Write, stdin, stdout};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::panic;
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};

use super::screen::Screen;

/// A terminal whose whole screen is drawn on.
pub(super) struct Terminal {
    /// Never dropped: it would say on standard error that a terminal that has gone cannot be used.
    terminal: ManuallyDrop<ratatui::Terminal<CrosstermBackend<Stdout>>>,
}

impl Terminal {
    /// Takes the terminal.
    pub(super) fn take() -> anyhow::Result<Self> {
        // A panic's message would be lost on the screen that is left.
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        enable_raw_mode().context("taking the terminal")?;
        let begun = execute!(stdout(), EnterAlternateScreen, cursor::Hide)
            .map_err(anyhow::Error::from)
            .and_then(|()| Ok(ratatui::Terminal::new(CrosstermBackend::new(stdout()))?));
        match begun {
            Ok(terminal) => Ok(Self { terminal: ManuallyDrop::new(terminal) }),
            Err(error) => {
                give_back();
                Err(error.context("taking the terminal"))
            }
        }
    }

    pub(super) fn draw(&mut self, screen: &Screen) -> anyhow::Result<()> {
        self.terminal.draw(|frame| screen.draw(frame)).context("drawing the screen")?;
        Ok(())
    }

    /// What is on the screen may be something else's: it is drawn anew.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        execute!(stdout(), Clear(ClearType::All)).context("drawing the screen")?;
        // `clear` of ratatui would ask where the cursor is, which not every terminal replies to.
        self.terminal.swap_buffers();
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Waits for keys. Returns whether there are some, in a terminal that is there.
pub(super) fn has_input(wait: Duration) -> anyhow::Result<bool> {
    let input = stdin();
    let mut asked = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
    match poll(&mut asked, wait) {
        // The size has changed, or a signal says that this is the end.
        Err(Errno::EINTR) => Ok(false),
        told => {
            told.context("waiting for keys")?;
            Ok(asked[0].revents() == Some(PollFlags::POLLIN))
        }
    }
}

/// Gives back how keys are read, for which nothing has to be written.
pub(super) fn give_back_input() {
    let _ = disable_raw_mode();
}

/// Gives the terminal back. If that fails, it has gone.
fn give_back() {
    give_back_input();
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = stdout().flush();
}
