//! `hitpath bench xfrm`: an ESP tunnel, by workers, flows and sizes, with the decision cache off,
//! on and left to itself; and the same without encryption, which would hide what the cache costs.

mod plan;
mod view;

use anyhow::ensure;
use flow::{Associativity, CacheMode, CacheTable};
use serde_json::json;
use tables::{Action, Direction, Publisher, Tables};
use wire::Spi;

use crate::context::Context;
use crate::dut::{Clear, Dut};
use crate::frame::{Family, Frame};
use crate::measure::Series;
use crate::parallel::Parallel;
use crate::row::Row;
use crate::text;
use crate::topology::{self, IN, STATION, Tunnel};
use crate::traffic::{Spread, Traffic};
use crate::variant;
pub(crate) use plan::Options;
use plan::{Case, Protection};
pub(crate) use view::{charts, render, targets};

const NAME: &str = "xfrm";

/// Flows of one worker are so far from those of the next.
const APART: u64 = 1 << 28;

/// Every case with each kind of cache.
pub(crate) fn run(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let processors = &context.processors;
    let cases = options.cases(context.quick, processors.len());
    let most = cases.iter().map(|case| case.workers).max().unwrap_or_default();
    ensure!(
        most <= processors.len(),
        "{most} workers need as many processors, and there are {}",
        processors.len()
    );
    let mut rows = Vec::new();
    for case in cases {
        rows.extend(measure(context, options, &case, processors)?);
    }
    Ok(rows)
}

fn measure(
    context: &Context,
    options: &Options,
    case: &Case,
    processors: &[usize],
) -> anyhow::Result<Vec<Row>> {
    let mut series: Vec<Box<dyn Series>> = Vec::new();
    for &mode in &options.caches() {
        let name = format!("cache {mode}");
        let duts = duts(&name, mode, options.buckets, case, tables(case)?)?;
        series.push(Box::new(Parallel::new(name, duts, processors)));
    }
    let costs = context.measure(&case.to_string(), &mut series)?;
    let rows = series.iter().zip(costs).map(|(series, cost)| {
        let parameters = json!({
            "algorithm": case.protection.name(), "workers": case.workers, "flows_per_worker": case.flows_shown(),
            "traffic": case.traffic.to_string(), "frame_bytes": case.bytes, "policies": case.policies,
            "family": "ipv4", "buckets": options.buckets,
        });
        Row::new(NAME, series.name(), parameters, Some(case.bytes), cost)
    });
    Ok(rows.collect())
}

/// One dut for each worker; they share the tables, and with them the SA.
fn duts(
    name: &str,
    mode: CacheMode,
    buckets: u32,
    case: &Case,
    tables: Tables,
) -> anyhow::Result<Vec<Dut>> {
    let shared = Publisher::new(tables).shared();
    let cache = (mode != CacheMode::Off).then_some((mode, Associativity::Four));
    (0..case.workers)
        .map(|worker| {
            let traffic = Traffic::new(case.flows, case.traffic, worker as u64)
                .beginning_at(worker as u64 * APART);
            let feed = Clear {
                frame: Frame::new(Family::V4, case.bytes, STATION, topology::mac(IN)),
                traffic,
            };
            Dut::new(
                name,
                worker,
                shared.reader(),
                variant::caches(cache, &[CacheTable::V4Outbound], buckets),
                feed,
            )
        })
        .collect()
}

fn tables(case: &Case) -> anyhow::Result<Tables> {
    let mut tables = topology::tables(case.workers)?;
    let action = match case.protection {
        Protection::Bypass => Action::Bypass,
        Protection::Esp(algorithm) => {
            let tunnel = Tunnel::out(algorithm);
            tunnel.add_sa(&mut tables, Spi(0x1000))?;
            tunnel.protect()
        }
    };
    topology::add_unmatched_policies(
        &mut tables,
        Direction::Out,
        false,
        case.policies as usize - 1,
        Action::Bypass,
    )?;
    tables.add_policy(topology::policy_for_all(Direction::Out, false, 2, action)?)?;
    Ok(tables)
}

impl Case {
    /// The number of flows; if each packet begins one, there is none.
    fn flows_shown(&self) -> serde_json::Value {
        if self.traffic == Spread::FLOOD { json!("new") } else { json!(self.flows) }
    }
}

impl core::fmt::Display for Case {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { protection, bytes, workers, flows, traffic, policies } = self;
        let flows = text::grouped(&flows.to_string());
        write!(
            f,
            "{NAME} {}, {bytes} bytes, {workers} x {flows} {traffic}, {policies} policies",
            protection.name()
        )
    }
}

#[cfg(test)]
mod tests {
    use esp::Algorithm;
    use wire::VrfId;

    use super::*;

    #[test]
    fn every_packet_of_every_worker_goes_the_way_it_should() {
        let usable = Context::tiny().processors;
        let workers = usable.len().min(2);
        for protection in [Protection::Bypass, Protection::Esp(Algorithm::AesGcm128)] {
            for mode in [CacheMode::Off, CacheMode::On, CacheMode::Auto] {
                let case = Case {
                    protection,
                    bytes: 200,
                    workers,
                    flows: 50,
                    traffic: Spread::UNIFORM,
                    policies: 3,
                };
                let tables = tables(&case).unwrap();
                let context = Context::tiny();
                let duts = duts("", mode, 64, &case, tables.clone()).unwrap();
                let mut parallel = Parallel::new("", duts, &usable);
                assert!(
                    parallel.run(&context.meter, context.effort).unwrap().cycles_per_packet > 0.0
                );
                let policies = tables.vrf(VrfId::MAIN).unwrap().spd.policies(Direction::Out);
                let counts: Vec<u64> = policies.map(|policy| policy.counters.read().0).collect();
                let received = parallel.received();
                assert!(
                    received.len() == workers && received.iter().all(|packets| *packets >= 256)
                );
                assert_eq!(counts, [0, 0, received.iter().sum()]);
                assert_eq!(parallel.workers(), workers);
            }
        }
    }

    #[test]
    fn workers_have_flows_of_their_own() {
        let case = Case {
            protection: Protection::Bypass,
            bytes: 64,
            workers: 2,
            flows: 10,
            traffic: Spread::FLOOD,
            policies: 1,
        };
        assert_eq!(case.flows_shown(), json!("new"));
        let flows = |worker: u64| {
            let mut traffic = Traffic::new(10, Spread::FLOOD, worker).beginning_at(worker * APART);
            (0..1000).map(|_| traffic.next_flow()).collect::<std::collections::HashSet<_>>()
        };
        assert!(flows(0).is_disjoint(&flows(1)));
    }
}
