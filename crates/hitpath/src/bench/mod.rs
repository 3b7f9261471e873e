//! `hitpath bench`: what a packet costs, on the machine it is run on.

mod esp;
mod forward;
mod measure;

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use crate::cli::Global;
use crate::exit::Exit;
use crate::output;
use crate::view::table;
use measure::{Cost, Effort};

/// Measure what a packet costs on this machine
///
/// Series are run in turn, A B A B, and the median of the runs is printed with the least and the most. Cycles are those of the
/// time-stamp counter. Compare within one run; machines, and their moods, differ.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath bench forward
  hitpath bench forward --flows 1,100000
  hitpath bench esp --quick
  hitpath bench all --json-file results.json
  hitpath bench esp -j")]
pub(crate) struct Bench {
    #[command(subcommand)]
    experiment: Experiment,
    /// Fewer and shorter runs: a glance, not a figure to quote
    #[arg(long, global = true)]
    quick: bool,
    /// Write the rows as JSON to FILE as well
    #[arg(long, value_name = "FILE", global = true)]
    json_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
enum Experiment {
    /// Plain forwarding, memory port to memory port, 64-byte frames, beside the ports alone
    Forward {
        /// How many flows, each a series of its own
        #[arg(long, value_delimiter = ',', default_value = "1,1000,100000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        flows: Vec<u32>,
    },
    /// ESP by algorithm and size, beside what the library alone costs for the same bytes
    Esp {
        /// Payload (inner packet) sizes in bytes
        #[arg(long, value_delimiter = ',', default_value = "64,1400", value_parser = clap::value_parser!(u16).range(1..=1800))]
        sizes: Vec<u16>,
    },
    /// Everything, as each is by default
    All,
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Row {
    experiment: &'static str,
    series: String,
    parameters: Value,
    #[serde(flatten)]
    cost: Cost,
    /// Of payload for ESP, of frames for forwarding.
    gbps: f64,
}

impl Row {
    fn new(experiment: &'static str, series: String, parameters: Value, bytes: usize, cost: Cost) -> Self {
        let gbps = cost.mpps * bytes as f64 * 8.0 / 1000.0;
        Self { experiment, series, parameters, cost, gbps }
    }
}

/// A progress bar on a terminal, otherwise nothing.
struct Progress {
    hidden: bool,
}

impl Progress {
    fn over(&self, steps: u64, what: &str) -> impl FnMut() + use<> {
        let bar = if self.hidden { ProgressBar::hidden() } else { ProgressBar::new(steps) };
        if let Ok(style) = ProgressStyle::with_template("{msg:40} [{bar:30}] {pos}/{len}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        move || {
            bar.inc(1);
            if bar.position() == steps {
                bar.finish_and_clear();
            }
        }
    }
}

impl Bench {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let effort = Effort::new(self.quick);
        let progress = Progress { hidden: global.json };
        let rows = match &self.experiment {
            Experiment::Forward { flows } => forward::run(effort, flows, &progress)?,
            Experiment::Esp { sizes } => {
                let sizes: Vec<_> = sizes.iter().map(|&size| usize::from(size)).collect();
                esp::run(effort, &sizes, &progress)?
            }
            Experiment::All => {
                let mut rows = forward::run(effort, &[1, 1000, 100_000], &progress)?;
                rows.extend(esp::run(effort, &[64, 1400], &progress)?);
                rows
            }
        };
        if let Some(path) = &self.json_file {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            serde_json::to_writer_pretty(BufWriter::new(file), &rows)?;
        }
        if global.json {
            output::json(&rows)?;
        } else {
            output::text(&render(&rows))?;
        }
        Ok(Exit::Done)
    }
}

fn render(rows: &[Row]) -> String {
    let mut text = "Per packet; cycles of the time-stamp counter, medians of interleaved runs.\n".to_owned();
    let (esp, forward): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.experiment == "esp");
    if !forward.is_empty() {
        text.push_str(&render_forward(&forward));
    }
    if !esp.is_empty() {
        text.push_str(&esp::render(&esp));
    }
    text
}

fn render_forward(rows: &[&Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let cost = &row.cost;
            let cycles =
                [cost.cycles_per_packet, cost.cycles_min, cost.cycles_max].map(|cycles| format!("{cycles:.0}"));
            let rates = [format!("{:.1}", cost.ns_per_packet), format!("{:.2}", cost.mpps), format!("{:.2}", row.gbps)];
            let name = [format!("forward {} bytes, {}", row.parameters["frame_bytes"], row.series)];
            name.into_iter().chain(cycles).chain(rates).collect()
        })
        .collect();
    table(&["SERIES", "CYCLES", "MIN", "MAX", "NS", "MPPS", "GBIT/S"], &cells)
}
