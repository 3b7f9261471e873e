//! The text, in both of the formats that Prometheus reads.

use core::fmt::{self, Write};
use std::sync::Arc;

use api::{CounterView, WorkerView};
use axum::body::Bytes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::families::{
    self, BUILD, CACHES, CONNECTIONS, COST_CLOCK, COSTS, DROPS, FILTERS, FIREWALL, FLOWS, Family,
    GATEWAY, Group, MISSES, NEXT_HOPS, Number, OBJECTS, POLICIES, POOLS, PORT_INFO, PORTS, QDISCS,
    STAGES, STATES, VRFS, WORKER_GAUGE, WORKERS,
};
use super::{Measured, StageOf};

/// In front of every name.
const PREFIX: &str = "hitpath";

/// What is counted, as text.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    openmetrics: Bytes,
    classic: Bytes,
}

impl Texts {
    /// What OpenMetrics is called in a request and its reply.
    const OPENMETRICS: &str = "application/openmetrics-text";

    /// The text of what was measured.
    ///
    /// # Errors
    /// None that is known: writing to memory succeeds.
    pub(crate) fn of(measured: Arc<Measured>) -> Result<Self, fmt::Error> {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(Shared(measured)));
        let mut openmetrics = String::new();
        text::encode(&mut openmetrics, &registry)?;
        let classic = classic(&openmetrics)?;
        Ok(Self { openmetrics: openmetrics.into(), classic: classic.into() })
    }

    /// The text for who accepts `accept`, and its media type.
    pub(crate) fn accepted(&self, accept: &str) -> (&'static str, Bytes) {
        if accept.contains(Self::OPENMETRICS) {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            return (kind, self.openmetrics.clone());
        }
        ("text/plain; version=0.0.4; charset=utf-8", self.classic.clone())
    }
}

/// The same in Prometheus' own text format, in which a counter's name ends as its sample's does.
fn classic(openmetrics: &str) -> Result<String, fmt::Error> {
    let mut text = String::with_capacity(openmetrics.len());
    let mut lines = openmetrics.lines().peekable();
    while let Some(line) = lines.next() {
        // The type follows the help.
        let kind = lines.peek().and_then(|next| next.strip_prefix("# TYPE "));
        match (line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')), kind) {
            (Some((name, help)), Some(kind)) => {
                let total = if kind.ends_with(" counter") { "_total" } else { "" };
                let kind = kind.rsplit(' ').next().unwrap_or_default();
                writeln!(text, "# HELP {name}{total} {help}\n# TYPE {name}{total} {kind}")?;
                lines.next();
            }
            _ if line == "# EOF" => {}
            _ => writeln!(text, "{line}")?,
        }
    }
    Ok(text)
}

/// What others hand out as well.
#[derive(Debug)]
struct Shared(Arc<Measured>);

impl Collector for Shared {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Measured { gateway, objects, ports, drops, workers, caches, costs, vrfs, .. } =
            &*self.0;
        let Measured { states, policies, next_hops, qdiscs, connections, pools, .. } = &*self.0;
        let Measured { filters, flows, firewall, .. } = &*self.0;
        let to = &mut to;
        encode(to, &BUILD, &[gateway])?;
        encode(to, &GATEWAY, &[gateway])?;
        encode(to, &OBJECTS, &each(objects))?;
        encode(to, &DROPS, &each(drops))?;
        encode(to, &PORT_INFO, &each(ports))?;
        encode(to, &PORTS, &each(ports))?;
        encode(to, &WORKERS, &each(workers))?;
        encode_counters(to, workers)?;
        encode(to, &CACHES, &each(&caches.workers))?;
        let misses: Vec<_> = caches.workers.iter().flat_map(families::misses).collect();
        encode(to, &MISSES, &each(&misses))?;
        encode(to, &COST_CLOCK, &[costs])?;
        encode(to, &COSTS, &each(&costs.workers))?;
        let stages = costs.workers.iter().flat_map(|of| {
            of.cost.stages.iter().map(|stage| StageOf { worker: of.worker, stage: stage.clone() })
        });
        encode(to, &STAGES, &each(&stages.collect::<Vec<_>>()))?;
        encode(to, &VRFS, &each(vrfs))?;
        encode(to, &STATES, &each(states))?;
        encode(to, &POLICIES, &each(policies))?;
        encode(to, &NEXT_HOPS, &each(next_hops))?;
        encode(to, &QDISCS, &each(qdiscs))?;
        encode(to, &CONNECTIONS, &[connections])?;
        encode(to, &POOLS, &each(pools))?;
        encode(to, &FILTERS, &each(filters))?;
        encode(to, &FLOWS, &each(flows))?;
        encode(to, &FIREWALL, &each(firewall))
    }
}

fn each<T>(objects: &[T]) -> Vec<&T> {
    objects.iter().collect()
}

/// Writes the families of a group. A family that no object has is left out.
fn encode<T>(
    to: &mut DescriptorEncoder<'_>,
    group: &Group<T>,
    objects: &[&T],
) -> Result<(), fmt::Error> {
    let labels: Vec<Labels> = objects
        .iter()
        .map(|object| group.labels.iter().copied().zip((group.of)(object)).collect())
        .collect();
    for Family { name, help, value } in group.families {
        let values = objects.iter().zip(&labels);
        let values = values.filter_map(|(it, labels)| Some((labels, value.read(it)?)));
        encode_family(to, name, help, value.kind(), values)?;
    }
    Ok(())
}

/// Writes what workers count beside drops and the decision cache. What that is, they say.
fn encode_counters(
    to: &mut DescriptorEncoder<'_>,
    workers: &[WorkerView],
) -> Result<(), fmt::Error> {
    let labels: Vec<Labels> =
        workers.iter().map(|worker| vec![("worker", worker.index.to_string())]).collect();
    for CounterView { name, meaning, .. } in workers.first().map_or(&[][..], |one| &one.counters) {
        let (kind, number): (_, fn(u64) -> Number) = match name == WORKER_GAUGE {
            true => (MetricType::Gauge, Number::of),
            false => (MetricType::Counter, Number::Count),
        };
        let value = |worker| families::worker_value(worker, name).map(number);
        let values = workers.iter().zip(&labels);
        let values = values.filter_map(|(worker, labels)| Some((labels, value(worker)?)));
        encode_family(to, &families::worker_family(name), meaning, kind, values)?;
    }
    Ok(())
}

type Labels = Vec<(&'static str, String)>;

fn encode_family<'l>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    values: impl Iterator<Item = (&'l Labels, Number)>,
) -> Result<(), fmt::Error> {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let mut family = to.encode_descriptor(name, help, None, kind)?;
    for (labels, number) in values {
        match labels.is_empty() {
            true => encode_number(&mut family, &number)?,
            false => encode_number(&mut family.encode_family(labels)?, &number)?,
        }
    }
    Ok(())
}

fn encode_number(metric: &mut MetricEncoder<'_>, number: &Number) -> Result<(), fmt::Error> {
    match number {
        Number::Count(value) => metric.encode_counter::<NoLabelSet, _, f64>(value, None),
        Number::Amount(value) => metric.encode_gauge(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{GatewayIs, ObjectCount};

    fn measured() -> Measured {
        let drop = |reason: &str, packets| api::DropView {
            reason: reason.into(),
            meaning: "why".into(),
            packets,
        };
        let statistics = path::WorkerStatistics::default();
        statistics.forwarded.add(7);
        let counters = statistics.entries().map(|(name, meaning, value)| CounterView {
            name: name.into(),
            meaning: meaning.into(),
            value,
        });
        Measured {
            gateway: GatewayIs { started: 1.5, ..GatewayIs::default() },
            objects: vec![ObjectCount::of("sa", 5, 4).0],
            drops: vec![drop("no_route", 3), drop("a\"b\\c", u64::MAX)],
            workers: vec![WorkerView { counters: counters.collect(), ..WorkerView::default() }],
            ..Measured::default()
        }
    }

    fn texts() -> (String, String) {
        let texts = Texts::of(measured().into()).unwrap();
        let text = |accept| {
            let (kind, text) = texts.accepted(accept);
            (kind, String::from_utf8(text.to_vec()).unwrap())
        };
        // What a Prometheus server sends.
        let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4";
        let (open, classic) = (text(accept), text("*/*"));
        assert!(open.0.starts_with("application/openmetrics-text; version=1.0.0"));
        assert!(classic.0.starts_with("text/plain; version=0.0.4"));
        (open.1, classic.1)
    }

    #[test]
    fn counters_end_in_total_in_both_formats() {
        let (open, classic) = texts();
        let help = "Packets dropped, by reason.";
        assert!(open.contains(&format!(
            "# HELP hitpath_dropped_packets {help}\n# TYPE hitpath_dropped_packets counter\n\
            hitpath_dropped_packets_total{{reason=\"no_route\"}} 3\n"
        )));
        assert!(open.ends_with("\n# EOF\n"));
        assert!(classic.contains(&format!(
            "# HELP hitpath_dropped_packets_total {help}\n\
            # TYPE hitpath_dropped_packets_total counter\n\
            hitpath_dropped_packets_total{{reason=\"no_route\"}} 3\n\
            hitpath_dropped_packets_total{{reason=\"a\\\"b\\\\c\"}} 18446744073709551615\n"
        )));
        assert!(!classic.contains("# EOF") && !classic.contains("# UNIT"));
        for text in [&open, &classic] {
            assert!(text.contains("hitpath_start_time_seconds 1.5\n"), "{text}");
            assert!(text.contains("hitpath_objects_left_out{kind=\"sa\"} 5.0\n"), "{text}");
            assert!(text.contains("hitpath_worker_forwarded_total{worker=\"0\"} 7\n"), "{text}");
            assert!(text.contains("hitpath_worker_held{worker=\"0\"} 0"), "{text}");
            // No object has it.
            assert!(!text.contains("hitpath_port_up") && !text.contains("hitpath_sa_packets"));
        }
        let samples = |text: &str| {
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(samples(&open), samples(&classic));
    }
}
