//! `hitpath bench compare`: this bench and that of another build, run in turn.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use runtime::affinity;
use runtime::exit::Exit;
use runtime::output;
use serde::Serialize;
use serde_json::Value;

use crate::context::Context;
use crate::core_state::{CoreState, runs_that_count};
use crate::measure::percentile;
use crate::text;

/// Compare with the bench of another build
///
/// Runs an experiment of this program and of the other one in turn, A B A B, and prints the ratio
/// of their medians for each row. What is measured is `--quick`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hitpath bench compare old/hitpath-bench spd-out --indexes 1,1000 --actions bypass
  hitpath bench compare --pairs 60 /usr/bin/hitpath forward")]
pub(crate) struct Options {
    /// The other program: a hitpath-bench, or a hitpath that has the verb bench
    #[arg(value_name = "OTHER")]
    other: PathBuf,
    /// The experiment, with its options
    #[arg(
        value_name = "EXPERIMENT",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    experiment: Vec<String>,
    /// How often each is run
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(5..=10_000))]
    pairs: u32,
}

/// How many resamples an interval is made from.
const RESAMPLES: usize = 4000;

/// Cycles per packet of the rows of one run, by the rows' names; and what the core was like.
struct Run {
    rows: BTreeMap<String, (f64, CoreState)>,
}

/// What came of one row.
#[derive(Debug, Serialize)]
struct Compared {
    row: String,
    /// Cycles per packet of this program. Median.
    this: f64,
    /// Of the other one.
    other: f64,
    /// This by the other: less than 1 is better.
    ratio: f64,
    /// The ratio lies between these with a probability of 95 %.
    low: f64,
    high: f64,
    /// How many pairs count.
    pairs: usize,
    core: CoreState,
}

/// Compares, and prints what came of it.
///
/// # Errors
/// If one of the programs fails, or they have no row in common.
pub(crate) fn run(options: &Options, as_json: bool) -> anyhow::Result<Exit> {
    let this = std::env::current_exe().context("finding this program")?;
    let context = Context::new(true, as_json)?;
    let bar = context.bar(2 * u64::from(options.pairs), "compare");
    let mut pairs = Vec::new();
    for _ in 0..options.pairs {
        let one = |program: &Path| {
            let run = measured(&context, program, &options.experiment);
            bar.inc(1);
            run
        };
        pairs.push((one(&this)?, one(&options.other)?));
    }
    bar.finish_and_clear();
    let compared = compare(&pairs);
    ensure!(!compared.is_empty(), "the two programs have no row of the same name and parameters");
    if as_json {
        output::json(&compared)?;
    } else {
        output::text(&render(&compared, &pairs))?;
    }
    Ok(Exit::Done)
}

/// One run of a program, done again a few times if the core was not alone around it.
fn measured(context: &Context, program: &Path, experiment: &[String]) -> anyhow::Result<Run> {
    let run = context.monitor.steadily(&context.meter, usize::MAX, || {
        // Processors are inherited, and the program is to have them all.
        affinity::restrict(&context.processors)?;
        let report = report(program, experiment);
        if let Some(&last) = context.processors.last() {
            affinity::pin(last)?;
        }
        report
    })?;
    let around = run.looks.state(context.monitor.best());
    rows(&run.result, around).with_context(|| program.display().to_string())
}

/// What a program printed as JSON.
fn report(program: &Path, experiment: &[String]) -> anyhow::Result<Value> {
    let mut command = Command::new(program);
    let is_bench =
        program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("hitpath-bench"));
    if !is_bench {
        command.arg("bench");
    }
    command.args(experiment).args(["--quick", "-j"]).stdin(Stdio::null());
    let ended = command.output().with_context(|| format!("starting {}", program.display()))?;
    if !ended.status.success() {
        let error = String::from_utf8_lossy(&ended.stderr);
        bail!("{} failed ({}): {}", program.display(), ended.status, error.trim());
    }
    serde_json::from_slice(&ended.stdout)
        .with_context(|| format!("{} printed no JSON", program.display()))
}

/// The rows of a report. Programs from before rows had a core's state have the one `around` them.
fn rows(report: &Value, around: CoreState) -> anyhow::Result<Run> {
    let all = report["rows"].as_array().context("the report has no rows")?;
    let costs = all.iter().filter(|row| row["kind"] == "cost");
    let rows = costs.map(|row| {
        let cycles = row["cycles_per_packet"].as_f64().context("a row has no cycles_per_packet")?;
        let core = match row["core"].as_str() {
            None | Some("alone") => around,
            Some("shared") => CoreState::Shared,
            Some(_) => CoreState::Mixed,
        };
        Ok((name(row), (cycles, core)))
    });
    Ok(Run { rows: rows.collect::<anyhow::Result<_>>()? })
}

/// A row by what was measured, with what.
fn name(row: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut name = format!("{} {}", text(&row["experiment"]), text(&row["series"]));
    for (parameter, value) in row["parameters"].as_object().into_iter().flatten() {
        name += &format!(" {parameter}={}", text(value));
    }
    name
}

/// The rows that every run has.
fn compare(pairs: &[(Run, Run)]) -> Vec<Compared> {
    let Some((first, _)) = pairs.first() else { return Vec::new() };
    let mut compared = Vec::new();
    for row in first.rows.keys() {
        let both = pairs.iter().map(|(this, other)| {
            let ((a, a_core), (b, b_core)) = (this.rows.get(row)?, other.rows.get(row)?);
            let core = if a_core == b_core { *a_core } else { CoreState::Mixed };
            Some(((*a, *b), core))
        });
        let Some(both) = both.collect::<Option<Vec<_>>>() else { continue };
        let (cycles, states): (Vec<(f64, f64)>, Vec<CoreState>) = both.into_iter().unzip();
        let (counts, core) = runs_that_count(&states);
        let cycles: Vec<(f64, f64)> = cycles
            .into_iter()
            .zip(counts)
            .filter(|(_, counts)| *counts)
            .map(|(pair, _)| pair)
            .collect();
        let (low, high) = interval(&cycles);
        let (this, other) =
            (median(cycles.iter().map(|pair| pair.0)), median(cycles.iter().map(|pair| pair.1)));
        let row = row.clone();
        compared.push(Compared {
            row,
            this,
            other,
            ratio: this / other,
            low,
            high,
            pairs: cycles.len(),
            core,
        });
    }
    compared
}

/// The 95 % interval of the ratio of medians, by the bootstrap: pairs are drawn anew many times,
/// and of the ratios the middle 95 % are taken (Efron and Tibshirani, 1993, chapter 13). The same
/// pairs give the same interval.
pub(crate) fn interval(pairs: &[(f64, f64)]) -> (f64, f64) {
    let mut random = StdRng::seed_from_u64(1);
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn: Vec<(f64, f64)> =
                (0..pairs.len()).map(|_| pairs[random.random_range(0..pairs.len())]).collect();
            median(drawn.iter().map(|pair| pair.0)) / median(drawn.iter().map(|pair| pair.1))
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    (percentile(&ratios, 0.025), percentile(&ratios, 0.975))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 0.5)
}

fn render(compared: &[Compared], pairs: &[(Run, Run)]) -> String {
    let cells: Vec<Vec<String>> = compared
        .iter()
        .map(|row| {
            // An interval that has 1 in it shows no difference.
            let verdict = match (row.low, row.high) {
                (_, high) if high < 1.0 => "cheaper",
                (low, _) if low > 1.0 => "dearer",
                _ => "no difference seen",
            };
            vec![
                row.row.clone(),
                format!("{:.1}", row.this),
                format!("{:.1}", row.other),
                format!("{:.3}{}", row.ratio, row.core.mark()),
                format!("{:.3}-{:.3}", row.low, row.high),
                row.pairs.to_string(),
                verdict.to_owned(),
            ]
        })
        .collect();
    let heading = ["row", "cycles, this", "other", "this / other", "95 % interval", "pairs", ""];
    let mut out = text::title("compare: cycles per packet, medians of runs in turn");
    out += &text::table(&heading, &cells);
    let left_out = pairs.first().map_or(0, |(this, other)| {
        let only =
            |a: &Run, b: &Run| a.rows.keys().filter(|row| !b.rows.contains_key(*row)).count();
        only(this, other) + only(other, this)
    });
    if left_out > 0 {
        out += &format!("\n{left_out} rows are of one of the programs alone and left out.\n");
    }
    if compared.iter().any(|row| row.core != CoreState::Alone) {
        out += &format!("\n{}", CoreState::LEGEND);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(cycles: f64) -> Value {
        json!({ "rows": [
            { "kind": "cost", "experiment": "esp", "series": "seal", "parameters": { "bytes": 64 },
              "cycles_per_packet": cycles },
            { "kind": "target", "what": "it is fast" },
        ]})
    }

    fn pairs(this: &[f64], other: &[f64], core: CoreState) -> Vec<(Run, Run)> {
        let run = |cycles: &f64| rows(&report(*cycles), core).unwrap();
        this.iter().map(run).zip(other.iter().map(run)).collect()
    }

    #[test]
    fn medians_are_compared_row_by_row() {
        let (this, other) = ([90.0, 91.0, 89.0, 90.5, 500.0], [100.0, 101.0, 99.0, 100.5, 99.5]);
        let pairs = pairs(&this, &other, CoreState::Alone);
        let [row] = &compare(&pairs)[..] else { panic!("one row") };
        assert_eq!((row.row.as_str(), row.pairs), ("esp seal bytes=64", 5));
        assert_eq!((row.this, row.other, row.ratio), (90.5, 100.0, 0.905));
        assert!(row.low <= row.ratio && row.ratio <= row.high, "{row:?}");
        let same = interval(&[(7.0, 7.0), (8.0, 8.0), (9.0, 9.0)]);
        assert_eq!(same, (1.0, 1.0));
    }

    #[test]
    fn an_interval_tells_a_difference_from_none() {
        let noise = |at: usize| ((at * 37) % 11) as f64;
        let faster: Vec<_> = (0..30).map(|at| (90.0 + noise(at), 100.0 + noise(at + 5))).collect();
        assert!(interval(&faster).1 < 1.0);
        let same: Vec<_> = (0..30).map(|at| (100.0 + noise(at), 100.0 + noise(at + 5))).collect();
        let (low, high) = interval(&same);
        assert!(low <= 1.0 && 1.0 <= high, "{low} {high}");
    }

    #[test]
    fn a_shared_core_is_marked_and_rows_of_one_program_are_left_out() {
        let mut pairs = pairs(&[1.0; 5], &[2.0; 5], CoreState::Shared);
        pairs[0].0.rows.insert("esp open".into(), (1.0, CoreState::Alone));
        let compared = compare(&pairs);
        assert_eq!(compared.len(), 1);
        assert_eq!(compared[0].core, CoreState::Shared);
        let text = render(&compared, &pairs);
        assert!(text.contains("0.500 †") && text.contains("1 rows are"), "{text}");
        assert!(text.contains("cheaper"), "{text}");
    }

    #[test]
    fn a_program_that_fails_is_told_with_its_words() {
        let error = super::report(Path::new("/bin/false"), &[]).unwrap_err().to_string();
        assert!(error.contains("/bin/false failed"), "{error}");
        let error = super::report(Path::new("/bin/echo"), &["esp".into()]).unwrap_err();
        assert!(error.to_string().contains("printed no JSON"), "{error:#}");
        assert!(rows(&json!({}), CoreState::Alone).is_err());
    }
}
