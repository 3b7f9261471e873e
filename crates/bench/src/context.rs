//! What every experiment is given.

use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use runtime::affinity;

use crate::core_state::CoreMonitor;
use crate::measure::{self, Cost, Effort, Meter, Series};

/// How much is to be measured, and who is told how far it is.
pub(crate) struct Context {
    pub(crate) meter: Meter,
    pub(crate) monitor: CoreMonitor,
    pub(crate) effort: Effort,
    /// A glance is enough.
    pub(crate) quick: bool,
    /// Nobody watches.
    pub(crate) silent: bool,
    /// The processors that may be used. The first thread runs on the last.
    pub(crate) processors: Vec<usize>,
}

/// How long the core is looked at before anything is measured.
const CALIBRATION: Duration = Duration::from_millis(300);

impl Context {
    /// Keeps the calling thread on its processor from now on.
    ///
    /// # Errors
    /// If the system says nothing of its processors.
    pub(crate) fn new(quick: bool, silent: bool) -> anyhow::Result<Self> {
        let processors = affinity::usable()?;
        // The first has more of the system's own work.
        if let Some(&last) = processors.last() {
            affinity::pin(last)?;
        }
        let meter = Meter::new();
        let monitor = CoreMonitor::new(&meter, CALIBRATION);
        Ok(Self { meter, monitor, effort: Effort::new(quick), quick, silent, processors })
    }

    /// Measures `series` against each other.
    ///
    /// # Errors
    /// Those of the series.
    pub(crate) fn measure(
        &self,
        what: &str,
        series: &mut [Box<dyn Series + '_>],
    ) -> anyhow::Result<Vec<Cost>> {
        self.measure_with(self.effort, what, series)
    }

    /// The same with another effort.
    ///
    /// # Errors
    /// Those of the series.
    pub(crate) fn measure_with(
        &self,
        effort: Effort,
        what: &str,
        series: &mut [Box<dyn Series + '_>],
    ) -> anyhow::Result<Vec<Cost>> {
        let bar = self.bar(measure::steps(series.len(), effort), what);
        let costs = measure::measure(&self.meter, &self.monitor, series, effort, || bar.inc(1));
        bar.finish_and_clear();
        if let Ok(costs) = &costs {
            for (series, cost) in series.iter().zip(costs) {
                let (name, mark) = (series.name(), cost.core.mark());
                self.tell(&format!(
                    "{what}: {name} {:.1}{mark} cycles a packet",
                    cost.cycles_per_packet
                ));
            }
        }
        costs
    }

    /// Says on standard error what was found, before all is done: a long run can be followed, and is
    /// not for nothing if it is stopped.
    pub(crate) fn tell(&self, what: &str) {
        if !self.silent {
            // If that is closed, nobody wants to know.
            let _ = writeln!(std::io::stderr(), "{what}");
        }
    }

    /// A progress bar on a terminal, otherwise nothing.
    pub(crate) fn bar(&self, steps: u64, what: &str) -> ProgressBar {
        let bar = if self.silent { ProgressBar::hidden() } else { ProgressBar::new(steps) };
        if let Ok(style) = ProgressStyle::with_template("{msg:48} [{bar:30}] {pos}/{len}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar
    }
}

#[cfg(test)]
impl Context {
    /// As little as can be.
    pub(crate) fn tiny() -> Self {
        let effort = Effort { runs: 1, packets: 1, longest: Duration::from_secs(10) };
        let processors = affinity::usable().unwrap_or_default();
        let meter = Meter::new();
        let monitor = CoreMonitor::new(&meter, Duration::ZERO);
        Self { meter, monitor, effort, quick: true, silent: true, processors }
    }
}
