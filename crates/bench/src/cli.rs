//! The command line, and how the rows of an experiment are shown and judged.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, FromArgMatches, Parser, Subcommand};
use runtime::exit::Exit;
use runtime::output;

use crate::compare;
use crate::context::Context;
use crate::core_state::CoreState;
use crate::experiment::{churn, conntrack, esp, forward, lookup, spd_in, spd_out, vrf, xfrm};
use crate::plot::Chart;
use crate::row::{Report, Row};
use crate::target::{self, Target};

/// Measure what a packet costs on this machine
///
/// Series are run in turn, A B A B, in one process, and the median of the runs is printed with the
/// least and the most. Cycles are those of the time-stamp counter. Compare within one run;
/// machines, and their states, differ. Nothing is needed but memory: no root, no network.
///
/// Only what came out counts: a series that loses a packet ends the bench. The tables are in the
/// shape of the published ones and, if there are such, with their figures, and are Markdown.
#[derive(Debug, Parser)]
#[command(
    name = "hitpath-bench",
    bin_name = "hitpath bench",
    version,
    disable_help_subcommand = true,
    max_term_width = 120,
    after_help = "\
Examples:
  hitpath bench all --quick                            a glance at everything, in minutes
  hitpath bench spd-out --json spd.json --plot plots   the outbound SPD, every row and a plot of it
  hitpath bench spd-out --indexes 1,1000 --actions bypass
  hitpath bench lookup --rules acl1_10k --trace acl1_10k_trace
  hitpath bench xfrm --algorithms bypass --flows 4,1000000 --traffic uniform,zipf-0.99,flood
  hitpath bench vrf --quick --rows features
  hitpath bench forward --flows 1,100000
  hitpath bench esp --quick -j                         rows as JSON on standard output
  hitpath bench compare old/hitpath-bench forward      this build beside another, in turn"
)]
pub(crate) struct Bench {
    #[command(subcommand)]
    experiment: Experiment,
    /// Fewer and shorter runs: a glance, not a figure to quote
    #[arg(long, global = true)]
    quick: bool,
    /// Write every row, and the machine, as JSON to FILE as well
    #[arg(long = "json", id = "json_file", value_name = "FILE", global = true)]
    json_file: Option<PathBuf>,
    /// Draw the plots into DIR, as SVG
    #[arg(long, value_name = "DIR", global = true)]
    plot: Option<PathBuf>,
    /// Exit with 1 if a target is not reached
    #[arg(long, global = true)]
    strict: bool,
    /// Print JSON instead of text
    // hitpath's option without its long name, which here takes a file.
    #[arg(short = 'j', id = "json", global = true, action = clap::ArgAction::SetTrue)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum Experiment {
    /// Packets that leave: which policy they match, how many flows they are of, with and without
    /// cache
    SpdOut(spd_out::Options),
    /// Packets that come in by a tunnel: which policy they match once decrypted, with and without
    /// cache
    SpdIn(spd_in::Options),
    /// An ESP tunnel by workers, flows and sizes, with the cache off, on and left to itself; and
    /// without encryption
    Xfrm(xfrm::Options),
    /// A VRF and its features, of no VRF; many VRFs and VLANs, of one: streams and requests with
    /// responses, TCP and UDP
    Vrf(vrf::Options),
    /// The published stateful firewall, and NAT, both directions: by connections, with the cache off,
    /// as published, on and left to itself, also through eight tables with 1,000 flows; what opening a
    /// connection costs; and what established ones keep of their rate under attack
    Conntrack(conntrack::Options),
    /// Forwarding while policies change, and while SAs are rekeyed: how long a change takes, and
    /// what it costs the others
    Churn(churn::Options),
    /// Finding a packet's policy, by engine, rule set and size: time, memory, building, changes; or
    /// in rules of your own
    Lookup(lookup::Options),
    /// Plain forwarding, memory port to memory port, 64-byte frames, beside the ports alone
    Forward(forward::Options),
    /// ESP by algorithm and size, beside what the library alone costs for the same bytes
    Esp(esp::Options),
    /// Everything, as each is by default
    All,
    Compare(compare::Options),
}

/// How the rows of one experiment are shown and judged.
struct View {
    experiment: &'static str,
    render: fn(&[&Row]) -> String,
    charts: fn(&[&Row]) -> Vec<Chart>,
    targets: fn(&[&Row]) -> Vec<Target>,
}

const VIEWS: [View; 9] = [
    View {
        experiment: "forward",
        render: forward::render,
        charts: |_| Vec::new(),
        targets: |_| Vec::new(),
    },
    View {
        experiment: "spd-out",
        render: spd_out::render,
        charts: spd_out::charts,
        targets: spd_out::targets,
    },
    View {
        experiment: "spd-in",
        render: spd_in::render,
        charts: spd_in::charts,
        targets: spd_in::targets,
    },
    View { experiment: "xfrm", render: xfrm::render, charts: xfrm::charts, targets: xfrm::targets },
    View { experiment: "vrf", render: vrf::render, charts: vrf::charts, targets: vrf::targets },
    View {
        experiment: "conntrack",
        render: conntrack::render,
        charts: conntrack::charts,
        targets: conntrack::targets,
    },
    View {
        experiment: "churn",
        render: churn::render,
        charts: churn::charts,
        targets: churn::targets,
    },
    View {
        experiment: "lookup",
        render: lookup::render,
        charts: lookup::charts,
        targets: lookup::targets,
    },
    View {
        experiment: "esp",
        render: esp::render,
        charts: |_| Vec::new(),
        targets: |_| Vec::new(),
    },
];

impl Bench {
    /// Whether JSON is to be printed instead of text.
    pub(crate) fn as_json(&self) -> bool {
        self.json
    }

    /// Measures, and writes what was found where the options say.
    ///
    /// # Errors
    /// If a packet was lost, or a file cannot be written.
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let as_json = self.json;
        if let Experiment::Compare(options) = &self.experiment {
            return compare::run(options, as_json);
        }
        // What cannot be written is better known before than after.
        let json_file = self.json_file.as_deref().map(create).transpose()?;
        if let Some(folder) = &self.plot {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let context = Context::new(self.quick, as_json)?;
        let mut rows = self.experiment.run(&context)?;
        for row in &mut rows {
            row.cost.judge_again(context.monitor.best());
        }
        let is_marked = rows.iter().any(Row::is_marked);
        let targets: Vec<Target> =
            views(&rows).flat_map(|(view, rows)| (view.targets)(&rows)).collect();
        let report = Report::new(&context, &rows, &targets);
        if let Some(file) = json_file {
            serde_json::to_writer_pretty(BufWriter::new(file), &report)?;
        }
        if let Some(folder) = &self.plot {
            for mut chart in views(&rows).flat_map(|(view, rows)| (view.charts)(&rows)) {
                if is_marked {
                    chart.title += " (the core was not always alone, see the table)";
                }
                let path = folder.join(&chart.name).with_extension("svg");
                fs::write(&path, chart.svg())
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        if as_json {
            output::json(&report)?;
        } else {
            let tables: String = views(&rows).map(|(view, rows)| (view.render)(&rows)).collect();
            let legend = if is_marked { format!("\n{}", CoreState::LEGEND) } else { String::new() };
            output::text(&(report.heading() + &tables + &target::render(&targets) + &legend))?;
        }
        let short = targets.iter().any(|target| !target.reached);
        Ok(if self.strict && short { Exit::Refused } else { Exit::Done })
    }
}

impl Experiment {
    fn run(&self, context: &Context) -> anyhow::Result<Vec<Row>> {
        match self {
            Self::SpdOut(options) => spd_out::run(context, options),
            Self::SpdIn(options) => spd_in::run(context, options),
            Self::Xfrm(options) => xfrm::run(context, options),
            Self::Vrf(options) => vrf::run(context, options),
            Self::Conntrack(options) => conntrack::run(context, options),
            Self::Churn(options) => churn::run(context, options),
            Self::Lookup(options) => lookup::run(context, options),
            Self::Forward(options) => forward::run(context, options),
            Self::Esp(options) => esp::run(context, options),
            // It has no rows of its own.
            Self::Compare(_) => Ok(Vec::new()),
            Self::All => {
                let mut rows = forward::run(context, &by_default()?)?;
                rows.extend(spd_out::run(context, &by_default()?)?);
                rows.extend(spd_in::run(context, &by_default()?)?);
                rows.extend(xfrm::run(context, &by_default()?)?);
                rows.extend(vrf::run(context, &by_default()?)?);
                rows.extend(conntrack::run(context, &by_default()?)?);
                rows.extend(churn::run(context, &by_default()?)?);
                rows.extend(lookup::run(context, &by_default()?)?);
                rows.extend(esp::run(context, &by_default()?)?);
                Ok(rows)
            }
        }
    }
}

/// Those views that have rows, with their rows.
fn views(rows: &[Row]) -> impl Iterator<Item = (View, Vec<&Row>)> {
    VIEWS
        .into_iter()
        .map(|view| {
            let rows: Vec<&Row> =
                rows.iter().filter(|row| row.experiment == view.experiment).collect();
            (view, rows)
        })
        .filter(|(_, rows)| !rows.is_empty())
}

/// An experiment's options if the user gave none.
fn by_default<O: Args + FromArgMatches>() -> anyhow::Result<O> {
    let command = O::augment_args(clap::Command::new("bench").no_binary_name(true));
    Ok(O::from_arg_matches(&command.try_get_matches_from([""; 0])?)?)
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_takes_a_file_and_j_none() {
        let parse = |line: &str| Bench::try_parse_from(line.split(' ')).expect(line);
        for line in ["bench spd-out --json rows.json", "bench --json rows.json spd-out"] {
            let bench = parse(line);
            assert_eq!(
                (bench.json, bench.json_file.as_deref()),
                (false, Some(Path::new("rows.json"))),
                "{line}"
            );
        }
        for line in ["bench esp -j", "bench -j esp"] {
            let bench = parse(line);
            assert!(bench.json && bench.json_file.is_none(), "{line}");
        }
        let bench = parse("bench esp -j --json rows.json");
        assert!(bench.json && bench.json_file.is_some());
    }

    #[test]
    fn the_definitions_are_consistent() {
        use clap::CommandFactory;
        Bench::command().debug_assert();
    }

    #[test]
    fn every_experiment_has_options_by_default() {
        by_default::<spd_out::Options>().unwrap();
        by_default::<spd_in::Options>().unwrap();
        by_default::<xfrm::Options>().unwrap();
        by_default::<vrf::Options>().unwrap();
        by_default::<conntrack::Options>().unwrap();
        by_default::<churn::Options>().unwrap();
        by_default::<lookup::Options>().unwrap();
        by_default::<forward::Options>().unwrap();
        by_default::<esp::Options>().unwrap();
    }
}
