//! What was measured, as it is written to a file and as it is printed.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::context::Context;
use crate::core_state::CoreState;
use crate::measure::Cost;
use crate::target::Target;

/// One line of the result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// `cost`, beside the rows of kind `target`.
    kind: &'static str,
    pub experiment: &'static str,
    pub series: String,
    /// What it was measured with.
    pub parameters: Map<String, Value>,
    #[serde(flatten)]
    pub cost: Cost,
    /// Of payload for ESP, of frames that came in for forwarding. None if there are no packets.
    pub gbps: Option<f64>,
    /// What else the experiment found.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub found: Map<String, Value>,
}

impl Row {
    /// `parameters` is an object. `bytes` is the length of a packet.
    pub(crate) fn new(
        experiment: &'static str,
        series: String,
        parameters: Value,
        bytes: Option<usize>,
        cost: Cost,
    ) -> Self {
        let gbps = bytes.map(|bytes| cost.mpps * bytes as f64 * 8.0 / 1000.0);
        Self {
            kind: "cost",
            experiment,
            series,
            parameters: object(parameters),
            cost,
            gbps,
            found: Map::new(),
        }
    }

    /// The same with what else was found, an object.
    pub(crate) fn with(self, found: Value) -> Self {
        Self { found: object(found), ..self }
    }

    /// The same with more of what else was found, an object.
    pub(crate) fn and(mut self, found: Value) -> Self {
        self.found.extend(object(found));
        self
    }

    /// Whether something of this row was measured while the core was not alone.
    pub(crate) fn is_marked(&self) -> bool {
        self.cost.core != CoreState::Alone
            || self.text_found("changes_core").is_some_and(|state| state != "alone")
    }

    /// What stands behind this row's figures, or its name, in a table.
    pub(crate) fn mark(&self) -> &'static str {
        self.cost.core.mark()
    }

    /// A parameter as text; empty if there is none.
    pub(crate) fn text(&self, parameter: &str) -> String {
        match self.parameters.get(parameter) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }

    /// A parameter as a number.
    pub(crate) fn number(&self, parameter: &str) -> Option<f64> {
        self.parameters.get(parameter)?.as_f64()
    }

    /// Something else that was found, as a number.
    pub(crate) fn found(&self, what: &str) -> Option<f64> {
        self.found.get(what)?.as_f64()
    }

    /// Something else that was found, as text.
    pub(crate) fn text_found(&self, what: &str) -> Option<String> {
        Some(self.found.get(what)?.as_str()?.to_owned())
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// A file of results.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    /// The version that was measured.
    hitpath: &'static str,
    /// When it was written, UTC.
    date: String,
    machine: Machine,
    /// Runs of each series and the most packets in one, unless a row says otherwise.
    runs: usize,
    packets_per_run: u64,
    rows: Vec<Line<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Cost(&'a Row),
    Target(&'a Target),
}

/// On what it was measured.
#[derive(Serialize)]
struct Machine {
    processor: String,
    /// Those that the process may use.
    processors: usize,
    memory_bytes: Option<u64>,
    kernel: String,
    tsc_ghz: f64,
    /// The fewest ticks that a step of the core monitor's chains has taken: a core alone.
    core_ticks_alone: f64,
}

impl<'a> Report<'a> {
    pub(crate) fn new(context: &Context, rows: &'a [Row], targets: &'a [Target]) -> Self {
        Self {
            hitpath: env!("CARGO_PKG_VERSION"),
            date: date(
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            ),
            machine: Machine::this(context),
            runs: context.effort.runs,
            packets_per_run: context.effort.packets,
            rows: rows.iter().map(Line::Cost).chain(targets.iter().map(Line::Target)).collect(),
        }
    }

    /// On what and when, in a line.
    pub(crate) fn heading(&self) -> String {
        let Machine { processor, processors, tsc_ghz, core_ticks_alone, .. } = &self.machine;
        let plural = if *processors == 1 { "" } else { "s" };
        format!(
            "{processor}, {processors} processor{plural}, time-stamp counter {tsc_ghz:.2} GHz, core \
            alone {core_ticks_alone:.1} ticks; \
            hitpath {}, {}; {} runs of up to {} \
             packets.\n",
            self.hitpath, self.date, self.runs, self.packets_per_run
        )
    }
}

impl Machine {
    fn this(context: &Context) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kilobytes = after(&read("/proc/meminfo"), "MemTotal");
        let memory = kilobytes.and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
        Self {
            processor: after(&read("/proc/cpuinfo"), "model name")
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: context.processors.len(),
            memory_bytes: memory.map(|kilobytes| kilobytes * 1024),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            tsc_ghz: 1.0 / context.meter.ns_per_tick(),
            core_ticks_alone: context.monitor.best(),
        }
    }
}

/// Seconds since 1970 as ISO 8601, by the days of 400-year eras that begin in March (Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
fn date(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let (month, day) =
        (if shifted < 10 { shifted + 3 } else { shifted - 9 }, day - (153 * shifted + 2) / 5 + 1);
    let year = era * 400 + year + u64::from(month <= 2);
    format!(
        "{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_795_305_600), "2026-11-22T00:00:00Z");
    }

    #[test]
    fn rows_have_every_name_that_the_file_promises() {
        let context = Context::tiny();
        let cost =
            Cost { hit_ratio: Some(0.5), ..Cost::of(&context.meter, vec![100.0, 200.0, 150.0], 1) };
        let rows = [Row::new("spd-out", "fast".into(), json!({ "index": 10 }), Some(64), cost)
            .with(json!({ "more": 1 }))];
        let targets = [Target::at_least("it is fast", 2.0, 1.0)];
        let report = Report::new(&context, &rows, &targets);
        let value = serde_json::to_value(&report).unwrap();
        for name in ["hitpath", "date", "machine", "runs", "rows"] {
            assert!(!value[name].is_null(), "{name}: {value}");
        }
        let row = &value["rows"][0];
        assert_eq!(
            (&row["kind"], &row["experiment"], &row["series"]),
            (&"cost".into(), &"spd-out".into(), &"fast".into())
        );
        assert_eq!(
            (&row["parameters"]["index"], &row["runs"], &row["hit_ratio"]),
            (&10.into(), &3.into(), &0.5.into())
        );
        assert_eq!(
            (&row["cycles_per_packet"], &row["cycles_min"], &row["cycles_max"]),
            (&150.0.into(), &100.0.into(), &200.0.into())
        );
        assert_eq!(row["found"]["more"], 1);
        assert_eq!((&row["core"], &row["repeated"]), (&"alone".into(), &0.into()));
        assert!(value["machine"]["core_ticks_alone"].as_f64().unwrap() > 0.0);
        let (mpps, gbps) = (row["mpps"].as_f64().unwrap(), row["gbps"].as_f64().unwrap());
        assert!(
            (gbps - mpps * 0.512).abs() < 1e-9
                && (row["ns_per_packet"].as_f64().unwrap() * mpps - 1000.0).abs() < 1e-6
        );
        let target = &value["rows"][1];
        assert_eq!((&target["kind"], &target["reached"]), (&"target".into(), &true.into()));
        assert!(report.heading().contains("GHz"));
    }
}
