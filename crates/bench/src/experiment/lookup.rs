//! `hitpath bench lookup`: what it costs to find a packet's policy, by engine, rule set and size;
//! what an engine takes in memory; and how long it takes to build and to change.

mod count;
mod flows;
mod source;
mod update;
mod view;

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use serde_json::json;
use tables::{Action, Direction, LookupEngine, Policy, PolicySpec, Selector, Spd, Tables};
use wire::{FlowKey, VrfId};

use crate::context::Context;
use crate::core_state::Steadily;
use crate::measure::{Batches, Series, Stopwatch};
use crate::row::Row;
use crate::text;
use flows::{FlowLookups, Flows};
use source::{Named, Set};
pub(crate) use view::{charts, render, targets};

const NAME: &str = "lookup";

/// Headers that the fast engine looks up at once.
const BATCH: usize = packet::BATCH;

/// What is to be measured.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Kinds of rule sets: acl, acl2, fw, fw4, ipc, nested (like published ones), chains (prefixes
    /// deeper in one another than published), spd (with what only security policies have)
    /// [default: acl, fw, ipc, nested, spd; quickly without the last]
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    sets: Option<Vec<Named>>,
    /// How many rules [default: 10,100,1000,10000,100000; quickly without the last]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sizes: Option<Vec<u32>>,
    /// Address families [default: both; quickly ipv4]
    #[arg(long, value_delimiter = ',', value_enum)]
    families: Option<Vec<super::spd_out::Kind>>,
    /// How many headers, each the first packet of a flow [default: 1000000; quickly 100000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    headers: Option<u32>,
    /// Measure the rules of FILE, in ClassBench's format, and check every answer against trying one
    /// rule after the other
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sets", "sizes", "families"])]
    rules: Option<PathBuf>,
    /// Look up the headers of FILE, in ClassBench's format, instead of ones made from the rules
    #[arg(long, value_name = "FILE", requires = "rules")]
    trace: Option<PathBuf>,
}

/// Every set, with each engine.
pub(crate) fn run(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let headers =
        options.headers.unwrap_or(if context.quick { 100_000 } else { 1_000_000 }) as usize;
    if let Some(rules) = &options.rules {
        let set = source::read(rules, options.trace.as_deref(), headers)?;
        // Somebody else's rules: every answer is checked.
        let checks = set.headers.len();
        return measure(context, &set, checks);
    }
    let mut rows = Vec::new();
    for set in source::choose(
        context.quick,
        options.sets.as_deref(),
        options.sizes.as_deref(),
        options.families.as_deref(),
    ) {
        let bar = context.bar(1, &format!("{NAME}: making {set}"));
        let made = set.make(headers);
        bar.finish_and_clear();
        // As many as take about a second.
        let checks = (20_000_000 / made.rules.len().max(1)).clamp(100, 20_000);
        rows.extend(measure(context, &made, checks)?);
    }
    Ok(rows)
}

fn measure(context: &Context, set: &Set, checks: usize) -> anyhow::Result<Vec<Row>> {
    let bar = context.bar(3, &format!("{NAME}: building {}", set.name));
    let linear = Built::new(set, LookupEngine::Linear)?;
    bar.inc(1);
    let mut fast = Built::new(set, LookupEngine::Fast)?;
    let index = fast.tables.clone();
    bar.inc(1);
    check(context, set, &linear.tables, &index, checks.min(1000))?;
    fast.compile();
    check(context, set, &linear.tables, &fast.tables, checks)?;
    let updates = if context.quick { 300 } else { 2000 };
    let changes = [&linear.tables, &fast.tables].map(|tables| {
        context.monitor.steadily(&context.meter, usize::MAX, || update::measure(tables, updates))
    });
    let [linear_changes, fast_changes] = changes;
    let changes = [linear_changes?, fast_changes?];
    bar.finish_and_clear();
    check(context, set, &linear.tables, &changes[1].result.tables, checks.min(1000))?;
    let flows = Flows::new(context, set, &linear.tables, (checks, updates))?;

    // A linear search of many rules is slow, and a run is not to be.
    let few = if set.rules.len() > 5000 { 16 } else { BATCH };
    let mut series: Vec<Box<dyn Series + '_>> = vec![
        Box::new(Lookups {
            name: "linear",
            how: How::Linear(few),
            tables: &linear.tables,
            headers: &set.headers,
            next: 0,
        }),
        Box::new(Lookups {
            name: "index, one by one",
            how: How::Single,
            tables: &index,
            headers: &set.headers,
            next: 0,
        }),
        Box::new(Lookups {
            name: "index",
            how: How::Batch,
            tables: &index,
            headers: &set.headers,
            next: 0,
        }),
        Box::new(Lookups {
            name: "fast, one by one",
            how: How::Single,
            tables: &fast.tables,
            headers: &set.headers,
            next: 0,
        }),
        Box::new(Lookups {
            name: "fast",
            how: How::Batch,
            tables: &fast.tables,
            headers: &set.headers,
            next: 0,
        }),
    ];
    if let Some(flows) = &flows {
        let (pipeline, headers) = (flows.built.tables.pipeline(), &set.headers[..]);
        series.push(Box::new(FlowLookups { pipeline, headers, next: 0 }));
    }
    let costs = context.measure(&format!("{NAME}, {}", set.name), &mut series)?;
    let rows = series.iter().zip(costs).enumerate().map(|(at, (series, cost))| {
        let parameters = json!({
            "set": set.kind, "rules": set.rules_shown, "policies": set.rules.len(), "headers": set.headers.len(),
            "family": set.family,
        });
        let row = Row::new(NAME, series.name(), parameters, None, cost);
        // All headers are too many for a linear search.
        let few = &set.headers[..checks.min(set.headers.len())];
        match at {
            0 => row
                .with(linear.found(context, &changes[0]))
                .and(count::found(&linear.tables, set, few)),
            2 => row.with(count::found(&index, set, &set.headers)),
            4 => row
                .with(fast.found(context, &changes[1]))
                .and(count::found(&fast.tables, set, &set.headers)),
            5 => row.with(flows.as_ref().map_or(json!({}), |flows| flows.found(context))),
            _ => row,
        }
    });
    Ok(rows.collect())
}

/// Tables with the rules of a set as outbound policies, and what it took to make them.
struct Built {
    tables: Tables,
    seconds: f64,
    bytes: usize,
    /// What compiling took, if that was done.
    compiled_seconds: f64,
}

impl Built {
    fn new(set: &Set, engine: LookupEngine) -> anyhow::Result<Self> {
        let before = crate::HEAP.current_usage();
        let begin = Instant::now();
        let mut tables = Tables::new(1, 1);
        tables.set_lookup_engine(engine);
        for (priority, selector) in (1..).zip(&set.rules) {
            tables.add_policy(policy(priority, *selector))?;
        }
        let seconds = begin.elapsed().as_secs_f64();
        let bytes = crate::HEAP.current_usage().saturating_sub(before);
        Ok(Self { tables, seconds, bytes, compiled_seconds: 0.0 })
    }

    fn compile(&mut self) {
        let (before, begin) = (crate::HEAP.current_usage(), Instant::now());
        self.tables.compile();
        self.compiled_seconds = begin.elapsed().as_secs_f64();
        self.bytes += crate::HEAP.current_usage().saturating_sub(before);
    }

    fn found(&self, context: &Context, changes: &Steadily<update::Changes>) -> serde_json::Value {
        let bound = spd(&self.tables).map(|spd| spd.bound(Direction::Out)).unwrap_or_default();
        let mut found = json!({
            "build_ms": 1000.0 * self.seconds,
            "memory_bytes": self.bytes,
            "most_probes": bound.probes,
            "most_policies_compared": bound.policies,
            "compile_ms": 1000.0 * self.compiled_seconds,
            "trees": self.trees(),
            "changes_core": changes.looks.state(context.monitor.best()),
        });
        if let (Some(found), serde_json::Value::Object(changes)) =
            (found.as_object_mut(), changes.result.found())
        {
            found.extend(changes);
        }
        found
    }
}

impl Built {
    /// What the policies were compiled to, by family.
    fn trees(&self) -> serde_json::Value {
        let compiled = spd(&self.tables).and_then(|spd| spd.compiled(Direction::Out));
        let Some(compiled) = compiled.and_then(|(mut layers, _)| layers.next()) else {
            return json!(null);
        };
        let families = ["ipv4", "ipv6"].into_iter().zip(compiled.statistics());
        families
            .map(|(family, trees)| {
                let trees = match trees {
                    Ok(built) => json!({
                        "policies": built.trees,
                        "bytes": built.bytes,
                        "most_nodes": built.steps,
                        "most_policies_compared": built.compared * built.lanes,
                    }),
                    Err(refused) => json!({ "refused": refused.to_string() }),
                };
                (family.to_owned(), trees)
            })
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

fn policy(priority: u32, selector: Selector) -> PolicySpec {
    PolicySpec {
        vrf: VrfId::MAIN,
        direction: Direction::Out,
        if_id: None,
        priority,
        selector,
        action: Action::Bypass,
    }
}

fn spd(tables: &Tables) -> Option<&Spd> {
    tables.vrf(VrfId::MAIN).map(|vrf| &*vrf.spd)
}

/// Looks up some headers with each engine, one by one and in batches.
///
/// # Errors
/// If an answer is not that of the linear search, with the first of them.
fn check(
    context: &Context,
    set: &Set,
    linear: &Tables,
    fast: &Tables,
    headers: usize,
) -> anyhow::Result<()> {
    let (Some(linear), Some(fast)) = (spd(linear), spd(fast)) else { return Ok(()) };
    let headers = &set.headers[..headers.min(set.headers.len())];
    let bar = context.bar(headers.len() as u64, &format!("{NAME}: checking {}", set.name));
    let position = |found: Option<&Arc<Policy>>| found.map(|policy| policy.spec.priority);
    let (mut wrong, mut first) = (0_u64, None);
    for batch in headers.chunks(BATCH) {
        let mut found = [None; BATCH];
        fast.lookup_keys(Direction::Out, batch, &mut found[..batch.len()]);
        for (key, batched) in batch.iter().zip(found) {
            let right =
                position(linear.lookup_linear(Direction::Out, key).map(|(_, policy)| policy));
            let (single, batched) = (position(fast.lookup(Direction::Out, key)), position(batched));
            if (single, batched) != (right, right) {
                wrong += 1;
                first.get_or_insert((*key, right, single, batched));
            }
        }
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    let Some((key, right, single, batched)) = first else { return Ok(()) };
    let rule = |position: Option<u32>| {
        position.map_or_else(|| "no rule".to_owned(), |rule| format!("rule {rule}"))
    };
    bail!(
        "{}: {wrong} of {} answers differ from the linear search; the first is for {key:?}: {} is \
        right, one by one finds {}, in \
         batches {}",
        set.name,
        text::grouped(&headers.len().to_string()),
        rule(right),
        rule(single),
        rule(batched)
    );
}

/// Looks up one header after the other.
struct Lookups<'a> {
    name: &'static str,
    how: How,
    tables: &'a Tables,
    headers: &'a [FlowKey],
    next: usize,
}

enum How {
    /// One rule after the other, so many headers between two looks at the clock.
    Linear(usize),
    Single,
    Batch,
}

impl Batches for Lookups<'_> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn batch(&mut self, stopwatch: &mut Stopwatch<'_>) -> u64 {
        let Some(spd) = spd(self.tables) else { return 0 };
        let most = if let How::Linear(few) = self.how { few } else { BATCH };
        if self.next >= self.headers.len() {
            self.next = 0;
        }
        let keys = &self.headers[self.next..(self.next + most).min(self.headers.len())];
        self.next += keys.len();
        let mut found = [None; BATCH];
        stopwatch.start();
        match self.how {
            How::Linear(_) => {
                for (key, found) in keys.iter().zip(&mut found) {
                    *found = spd.lookup(Direction::Out, key);
                }
            }
            How::Single => {
                for (key, found) in keys.iter().zip(&mut found) {
                    *found = spd.lookup(Direction::Out, key);
                }
            }
            How::Batch => spd.lookup_keys(Direction::Out, keys, &mut found[..keys.len()]),
        }
        black_box(&found);
        stopwatch.stop();
        keys.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Options {
        use clap::{Args, FromArgMatches};
        let command = Options::augment_args(clap::Command::new("lookup").no_binary_name(true));
        Options::from_arg_matches(&command.get_matches_from(text.split(' '))).unwrap()
    }

    #[test]
    fn there_is_a_row_for_each_engine_set_and_size() {
        let options =
            options("--sets acl,nested,spd --sizes 10,300 --families ipv4,ipv6 --headers 500");
        let rows = run(&Context::tiny(), &options).unwrap();
        assert_eq!(rows.len(), 3 * 2 * 2 * 6);
        for row in rows.iter().filter(|row| ["linear", "fast", "flows"].contains(&&*row.series)) {
            for what in
                ["build_ms", "insert_us_p50", "insert_us_p99", "delete_us_p99", "delete_us_max"]
            {
                assert!(row.found(what).unwrap() > 0.0, "{what}: {row:?}");
            }
            // Other tests give back what they took meanwhile, so that it may be anything.
            assert!(row.found("memory_bytes").is_some());
        }
        for row in &rows {
            let counted = row.found("probes_mean").is_some();
            let is_counted = !row.series.ends_with("one by one") && row.series != "flows";
            assert_eq!(counted, is_counted, "{row:?}");
            let structure = row.text_found("structure").unwrap_or_default();
            let is = |name: &str| structure.starts_with(&format!("{name}: "));
            let many = row.number("policies") > Some(32.0);
            match &*row.series {
                "linear" => assert!(is("scan"), "{row:?}"),
                "index" => assert!(is(if many { "index" } else { "scan" }), "{row:?}"),
                "fast" => assert!(is(if many { "trees" } else { "scan" }), "{row:?}"),
                _ => continue,
            }
            assert!(row.found("compared_mean") > Some(0.0), "{row:?}");
            assert!(row.found("compared_most") >= row.found("compared_mean"), "{row:?}");
            assert!(row.found("probes_most") >= row.found("probes_mean"), "{row:?}");
            if many && row.series == "fast" {
                let trees = &row.found["trees"][&row.text("family")];
                let most = |what: &str| trees[what].as_f64();
                assert!(row.found("probes_most") <= most("most_nodes"), "{row:?}");
                assert!(row.found("compared_most") <= most("most_policies_compared"), "{row:?}");
            }
        }
        let rows: Vec<&Row> = rows.iter().collect();
        let text = render(&rows);
        assert!(text.contains("trees: the policies are compiled"), "{text}");
        assert!(text.contains("| spd") && text.contains("best published"), "{text}");
        assert!(!targets(&rows).is_empty() && charts(&rows).len() == 6);
    }

    #[test]
    fn files_are_measured_and_every_answer_checked() {
        let folder = tempfile::tempdir().unwrap();
        let (rules, trace) = (folder.path().join("rules"), folder.path().join("trace"));
        std::fs::write(
            &rules,
            "@192.0.2.0/24 198.51.100.0/24 0 : 65535 80 : 80 \
            0x06/0xFF\n@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n",
        )
        .unwrap();
        std::fs::write(&trace, "192.0.2.1 198.51.100.7 40000 80 6\n10.0.0.1 10.0.0.2 1 2 17\n")
            .unwrap();
        let line = format!("--rules {} --trace {}", rules.display(), trace.display());
        let rows = run(&Context::tiny(), &options(&line)).unwrap();
        assert_eq!(
            (rows.len(), rows[0].number("policies"), rows[0].number("headers")),
            (6, Some(2.0), Some(2.0))
        );
        std::fs::write(&rules, "not a rule\n").unwrap();
        let error = run(&Context::tiny(), &options(&line)).unwrap_err();
        assert!(format!("{error:#}").contains("rules"), "{error:#}");
    }

    #[test]
    fn a_wrong_answer_is_found() {
        let set = source::choose(true, Some(&["acl".parse().unwrap()]), Some(&[50]), None)
            .remove(0)
            .make(200);
        let right = Built::new(&set, LookupEngine::Linear).unwrap().tables;
        let mut wrong = right.clone();
        let index = spd(&right).unwrap().policies(Direction::Out).next().unwrap().index;
        check(&Context::tiny(), &set, &right, &wrong, 200).unwrap();
        wrong.remove_policy(index).unwrap();
        let error = check(&Context::tiny(), &set, &right, &wrong, 200).unwrap_err().to_string();
        assert!(
            error.contains("differ from the linear search") && error.contains("rule 1 is right"),
            "{error}"
        );
    }
}
