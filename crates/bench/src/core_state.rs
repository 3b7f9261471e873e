//! Whether the core that is measured on was this thread's alone. A virtual processor is often one
//! of two hardware threads of a core; when the other one, which may be another guest's, has work,
//! everything here takes longer and no system call tells of it.
//!
//! Chains of additions through memory tell: each addition needs the one before it in its chain, so
//! that alone they take the same time at every look. Three chains side by side keep the core's
//! ports for stores busy, which the siblings share. (One chain leaves half of the core idle, and
//! takes 1.05 times as long while packets take 1.4 times.) How long they take is the processor's own
//! affair; so it is held against the quickest that this process has seen.

use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::measure::{Meter, percentile};

/// Up to so many times the quickest look is a core alone. Measured on a Zen 5: 1.00 to 1.03 times
/// alone, 1.38 to 1.95 times with a busy sibling.
const ALONE: f64 = 1.2;

/// How often a piece is measured in all until the core was this thread's alone.
const TRIES: usize = 3;

/// Chains side by side, additions to each in a step, steps in a measurement, and measurements in a
/// look, of which the median counts: about 40 microseconds, which an interruption cannot spoil.
const CHAINS: usize = 3;
const ADDITIONS: usize = 10;
const STEPS: u64 = 1000;
const MEASUREMENTS: usize = 9;

/// What a core was like while something was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CoreState {
    /// Nothing else had work on the core.
    Alone,
    /// Its other hardware thread was busy.
    Shared,
    /// Now this, now that.
    Mixed,
}

impl CoreState {
    /// What stands behind a figure in a table: nothing if the core was alone.
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Self::Alone => "",
            Self::Shared => " †",
            Self::Mixed => " ‡",
        }
    }

    /// What the marks mean, for under the tables.
    pub(crate) const LEGEND: &'static str = "\
        † the core's other hardware thread was busy meanwhile; ‡ it was now and then. Figures with \
        different marks, or with and without one, do not compare.\n";
}

/// Looks at the core: how many ticks a step of the chains takes.
#[derive(Debug)]
pub(crate) struct CoreMonitor {
    /// The quickest so far.
    best: Cell<f64>,
}

/// The core before and after a piece: ticks that a step took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Looks {
    pub before: f64,
    pub after: f64,
}

impl CoreMonitor {
    /// Looks at the core for a while, to find out what a quick step is.
    pub(crate) fn new(meter: &Meter, calibration: Duration) -> Self {
        let monitor = Self { best: Cell::new(f64::INFINITY) };
        let begin = Instant::now();
        while monitor.best.get().is_infinite() || begin.elapsed() < calibration {
            monitor.look(meter);
        }
        monitor
    }

    /// Ticks that a step of the chains takes now.
    pub(crate) fn look(&self, meter: &Meter) -> f64 {
        let mut measured = [0.0; MEASUREMENTS];
        for ticks in &mut measured {
            let mut stopwatch = meter.stopwatch();
            stopwatch.start();
            black_box(chains());
            stopwatch.stop();
            *ticks = stopwatch.total() as f64 / STEPS as f64;
        }
        measured.sort_by(f64::total_cmp);
        let ticks = percentile(&measured, 0.5);
        self.best.set(self.best.get().min(ticks));
        ticks
    }

    /// The fewest ticks that a step has taken so far.
    pub(crate) fn best(&self) -> f64 {
        self.best.get()
    }

    /// Does `piece`, with a look at the core before and after it, and again while the core was not
    /// alone, in all up to `tries` times or [`TRIES`], whichever is less. Returns the last result.
    ///
    /// # Errors
    /// Those of `piece`.
    pub(crate) fn steadily<T>(
        &self,
        meter: &Meter,
        tries: usize,
        mut piece: impl FnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<Steadily<T>> {
        let mut done = 0;
        loop {
            let before = self.look(meter);
            let result = piece()?;
            let looks = Looks { before, after: self.look(meter) };
            done += 1;
            if looks.state(self.best()) == CoreState::Alone || done >= tries.min(TRIES) {
                return Ok(Steadily { result, looks, repeated: done - 1 });
            }
        }
    }
}

/// What [`CoreMonitor::steadily`] has measured.
pub(crate) struct Steadily<T> {
    pub result: T,
    pub looks: Looks,
    /// How often it was done again.
    pub repeated: usize,
}

// Not inlined, so that it is the same code wherever the core is looked at.
#[inline(never)]
fn chains() -> u64 {
    let mut sums = [0_u64; CHAINS];
    for _ in 0..STEPS {
        for _ in 0..ADDITIONS {
            for sum in &mut sums {
                // Through memory, which keeps the compiler from adding them up by itself.
                *sum = black_box(*sum) + 1;
            }
        }
    }
    sums.iter().sum()
}

impl Looks {
    /// What the core was like, if the quickest step took `best` ticks.
    pub(crate) fn state(self, best: f64) -> CoreState {
        let alone = |ticks: f64| ticks <= ALONE * best;
        match (alone(self.before), alone(self.after)) {
            (true, true) => CoreState::Alone,
            (false, false) => CoreState::Shared,
            _ => CoreState::Mixed,
        }
    }
}

/// Which of several runs of one series count, and what the core was like in them: those with the
/// core alone if they are a third of all at least, otherwise all.
pub(crate) fn runs_that_count(states: &[CoreState]) -> (Vec<bool>, CoreState) {
    let alone = states.iter().filter(|state| **state == CoreState::Alone).count();
    if alone > 0 && 3 * alone >= states.len() {
        return (states.iter().map(|state| *state == CoreState::Alone).collect(), CoreState::Alone);
    }
    let all_shared = states.iter().all(|state| *state == CoreState::Shared);
    let state = if all_shared { CoreState::Shared } else { CoreState::Mixed };
    (vec![true; states.len()], state)
}

#[cfg(test)]
mod tests {
    use CoreState::{Alone, Mixed, Shared};

    use super::*;

    #[test]
    fn the_state_follows_from_both_looks_and_the_best_one() {
        // Ticks of a step as measured on two machines, each: best, alone, shared.
        for (best, warm, shared) in [(1.6, 1.8, 2.4), (10.7, 11.0, 15.0)] {
            let state = |before, after| Looks { before, after }.state(best);
            assert_eq!(state(best, best), Alone);
            assert_eq!(state(warm, best), Alone);
            assert_eq!(state(shared, shared), Shared);
            assert_eq!(state(best, shared), Mixed);
            assert_eq!(state(shared, warm), Mixed);
        }
        // What looked alone is not once a quicker step was seen.
        let looks = Looks { before: 2.4, after: 2.5 };
        assert_eq!((looks.state(2.4), looks.state(1.7)), (Alone, Shared));
    }

    #[test]
    fn runs_alone_count_if_there_are_enough() {
        let judge = |states: &[CoreState]| {
            let (count, state) = runs_that_count(states);
            (count.iter().filter(|counts| **counts).count(), state)
        };
        assert_eq!(judge(&[Alone; 5]), (5, Alone));
        assert_eq!(judge(&[Alone, Shared, Mixed]), (1, Alone));
        assert_eq!(judge(&[Alone, Shared, Shared, Shared]), (4, Mixed));
        assert_eq!(judge(&[Shared; 3]), (3, Shared));
        assert_eq!(judge(&[Shared, Mixed]), (2, Mixed));
    }

    #[test]
    fn a_piece_is_tried_again_a_few_times_and_no_more() {
        let meter = Meter::new();
        // No step is ever as quick as that: never alone.
        let never = CoreMonitor { best: Cell::new(f64::MIN_POSITIVE) };
        let mut done = 0;
        let mut piece = || {
            done += 1;
            Ok(done)
        };
        let last = never.steadily(&meter, 10, &mut piece).unwrap();
        assert_eq!((last.result, last.repeated), (TRIES, TRIES - 1));
        assert_eq!(last.looks.state(never.best()), Shared);
        assert_eq!(never.steadily(&meter, 1, &mut piece).unwrap().result, TRIES + 1);
        let error = never.steadily(&meter, 3, || anyhow::bail!("lost") as anyhow::Result<()>);
        assert!(error.is_err());
    }
}
