//! Instructions per packet, counted by callgrind: this program runs itself under valgrind, once for
//! each gateway.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use super::device::Pattern;
use super::{Comparison, Line, Options, Rows};
use crate::context::Context;

/// More VRFs or VLANs are counted as so many: what a packet takes does not depend on it, and
/// making them does.
const MOST: u16 = 100;

/// Counts, and keeps what was counted.
pub(super) struct Count {
    routes: u32,
    others_every: u32,
    known: BTreeMap<Vec<String>, f64>,
    /// Valgrind is not there, or does not work.
    has_failed: bool,
}

impl Count {
    pub(super) fn new(options: &Options) -> Self {
        let Options { routes, others_every, .. } = *options;
        Self { routes, others_every, known: BTreeMap::new(), has_failed: false }
    }

    /// Instructions per packet of both gateways; `None` if there is no valgrind.
    ///
    /// # Errors
    /// If it is there and counts nothing.
    pub(super) fn both(
        &mut self,
        context: &Context,
        line: Line,
        comparison: &Comparison,
        flows: u32,
    ) -> anyhow::Result<Option<[f64; 2]>> {
        let bar = context.bar(2, &format!("vrf, {}: instructions", comparison.series));
        let [mut base, mut this] = [None; 2];
        for (which, counted) in [("base", &mut base), ("this", &mut this)] {
            *counted = self.one(line, comparison, flows, which)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(base.zip(this).map(|(base, this)| [base, this]))
    }

    fn one(
        &mut self,
        line: Line,
        comparison: &Comparison,
        flows: u32,
        which: &str,
    ) -> anyhow::Result<Option<f64>> {
        let arguments = self.arguments(line, comparison, flows, which);
        if let Some(known) = self.known.get(&arguments) {
            return Ok(Some(*known));
        }
        if self.has_failed {
            return Ok(None);
        }
        let program = std::env::current_exe().context("finding this program")?;
        let run = Command::new("valgrind")
            .args(["--tool=callgrind", "--toggle-collect=*vrf::device::measured*"])
            .arg("--callgrind-out-file=/dev/null")
            .arg(program)
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output();
        let Ok(run) = run else {
            self.has_failed = true;
            return Ok(None);
        };
        let told = String::from_utf8_lossy(&run.stderr);
        if !run.status.success() {
            bail!("valgrind {} failed: {}", arguments.join(" "), told.trim());
        }
        let pattern = line.shape.workload(line.kind.family(), flows, 0).pattern;
        let packets = rounds(pattern) * packets_per_round(pattern);
        let counted = collected(&told).context("callgrind has counted nothing")?;
        let counted = counted as f64 / packets as f64;
        self.known.insert(arguments, counted);
        Ok(Some(counted))
    }

    fn arguments(
        &self,
        line: Line,
        comparison: &Comparison,
        flows: u32,
        which: &str,
    ) -> Vec<String> {
        let word = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map_or_else(String::new, |value| value.get_name().to_owned())
        };
        let mut all: Vec<String> = ["vrf", "--only", which, "--rows", comparison.rows.name()]
            .into_iter()
            .map(str::to_owned)
            .collect();
        let mut add = |name: &str, value: String| all.extend([name.to_owned(), value]);
        add("--traffic", word(&|| line.shape.to_possible_value()));
        add("--families", word(&|| line.kind.to_possible_value()));
        add("--cache", word(&|| line.cache.to_possible_value()));
        add("--routes", self.routes.to_string());
        add("--others-every", self.others_every.to_string());
        match comparison.rows {
            Rows::Features => {
                add("--configurations", comparison.configuration.clone());
                add("--flows", flows.to_string());
            }
            Rows::Vrfs => {
                add("--vrfs", comparison.vrfs.min(MOST).to_string());
                add("--many-flows", flows.to_string());
            }
            Rows::Vlans => {
                add("--vlans", comparison.vlans.min(MOST).to_string());
                add("--many-flows", flows.to_string());
            }
        }
        all
    }
}

/// What callgrind says that it has collected.
fn collected(told: &str) -> Option<u64> {
    let (_, rest) = told.split_once("Collected : ")?;
    let digits = rest.split(|digit: char| !digit.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|count| *count > 0)
}

/// Rounds that are counted.
pub(super) const fn rounds(pattern: Pattern) -> u64 {
    match pattern {
        Pattern::Stream => 16,
        Pattern::Rr => 512,
    }
}

const fn packets_per_round(pattern: Pattern) -> u64 {
    super::device::packets_per_round(pattern)
}

/// Time for a worker that must do the same each time.
pub(super) fn steady_ticks() -> u64 {
    thread_local!(static TICKS: Cell<u64> = const { Cell::new(0) });
    TICKS.with(|ticks| {
        ticks.set(ticks.get() + 1000);
        ticks.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callgrind_has_collected_is_found() {
        let told = "==7== Events    : Ir\n==7== Collected : 12345\n==7== \n";
        assert_eq!(collected(told), Some(12345));
        assert_eq!(collected("==7== Collected : 0\n"), None);
        assert_eq!(collected("valgrind: command not found"), None);
    }
}
