//! `hitpath top`: what passes, live.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::bail;
use clap::Args;

use crate::cli::{self, Global};
use crate::exit::Usage;
use crate::top::{self, LONGEST, SHORTEST, View};
use runtime::exit::Exit;

/// Show live what passes: ports, drops, SAs, the decision cache, connections, workers
///
/// Keys: 1 to 6 and Tab for the views, s to sort, r to reverse, / to filter, p to pause, + and -
/// for the time between frames, h for help, q to quit. If the daemon stops, the screen says so and goes on
/// when it is back. Colours are left out if NO_COLOR is set.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath top
  hitpath top sas -d 5                       security associations, every 5 seconds
  hitpath top -n 3                           three frames as plain text
  hitpath top drops --batch                  plain text without end, for a file or a pipe

The load of a worker is the share of its rounds that found packets. A rate is that of the time since
the frame before; the first frame as text comes after one such time.")]
pub(crate) struct Top {
    /// What to look at first
    #[arg(value_enum, default_value = "ports")]
    view: View,

    /// Seconds between frames, 0.1 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = delay)]
    delay: Duration,

    /// Print so many frames as plain text, and end
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    frames: Option<u64>,

    /// Print frames as plain text without end, or as many as -n says
    #[arg(short, long)]
    batch: bool,
}

impl Top {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        if global.json {
            bail!(Usage("top has no JSON; `hitpath -j show ports` and the like have".to_owned()));
        }
        if self.batch || self.frames.is_some() {
            return top::frames(global.socket(), self.view, self.delay, self.frames);
        }
        if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            bail!(Usage("top needs a terminal; --batch prints plain text".to_owned()));
        }
        top::live(global.socket(), self.view, self.delay, !cli::refuses_colour())
    }
}

fn delay(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("expected seconds from {} to {}", SHORTEST.as_secs_f32(), LONGEST.as_secs());
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    let delay = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    (SHORTEST..=LONGEST).contains(&delay).then_some(delay).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_bounded() {
        assert_eq!(delay("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "0.01", "3601", "-1", "nan", "inf", "1e300", "x"] {
            assert!(delay(wrong).is_err(), "{wrong}");
        }
    }
}
