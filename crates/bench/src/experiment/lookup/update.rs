//! How long it takes to delete a policy and to add one: the copy of the tables, the change, and its
//! publication.

use std::time::Instant;

use serde_json::{Value, json};
use tables::{Direction, PolicySpec, Publisher, Tables};

use super::spd;
use crate::measure::{interruptions, percentile};

/// What changes took, and the tables after them.
pub(crate) struct Changes {
    pub tables: Tables,
    inserts: Vec<f64>,
    deletes: Vec<f64>,
}

/// Deletes `count` policies, each somewhere else, and adds each again before the next. A worker
/// looks on.
///
/// # Errors
/// If a change is refused.
pub(crate) fn measure(tables: &Tables, count: usize) -> anyhow::Result<Changes> {
    let policies: Vec<PolicySpec> = spd(tables)
        .map(|spd| spd.policies(Direction::Out).map(|policy| policy.spec).collect())
        .unwrap_or_default();
    // An odd stride that shares no factor with most sizes, so that neighbours do not follow each
    // other.
    let choose = |tables: &Tables, turn: usize| {
        let spec = policies.get(turn.wrapping_mul(7919) % policies.len().max(1))?;
        let policy = tables.policy_of_selector(spec.vrf, spec.direction, &spec.selector);
        Some((*spec, policy.map(|policy| policy.index).unwrap_or_default()))
    };
    measure_by(tables, count, choose, |tables, (spec, index), insert| {
        if insert {
            tables.add_policy(*spec)?;
        } else {
            tables.remove_policy(*index)?;
        }
        Ok(())
    })
}

/// Has something deleted and added again `count` times, of which `choose` says what.
///
/// # Errors
/// If a change is refused.
pub(super) fn measure_by<T>(
    tables: &Tables,
    count: usize,
    choose: impl Fn(&Tables, usize) -> Option<T>,
    change: impl Fn(&mut Tables, &T, bool) -> anyhow::Result<()>,
) -> anyhow::Result<Changes> {
    let mut publisher = Publisher::new(tables.clone());
    let mut worker = publisher.shared().reader();
    let (mut inserts, mut deletes) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for turn in 0..count {
        let Some(chosen) = choose(worker.load(), turn) else { break };
        for (insert, took) in [(false, &mut deletes), (true, &mut inserts)] {
            let (before, begin) = (interruptions(), Instant::now());
            let mut tables = Tables::clone(&publisher.current());
            change(&mut tables, &chosen, insert)?;
            publisher.publish(tables);
            let microseconds = begin.elapsed().as_secs_f64() * 1e6;
            // What took long because the system gave the processor to another thread says nothing,
            // but one figure there must be.
            if interruptions() == before || took.is_empty() {
                took.push(microseconds);
            }
            worker.load();
        }
    }
    inserts.sort_by(f64::total_cmp);
    deletes.sort_by(f64::total_cmp);
    Ok(Changes { tables: Tables::clone(&publisher.current()), inserts, deletes })
}

impl Changes {
    /// Median, 99th percentile and the longest, of each kind, in microseconds.
    pub(crate) fn found(&self) -> Value {
        let of = |sorted: &[f64]| [0.5, 0.99, 1.0].map(|part| percentile(sorted, part));
        let ([insert_p50, insert_p99, insert_max], [delete_p50, delete_p99, delete_max]) =
            (of(&self.inserts), of(&self.deletes));
        json!({
            "insert_us_p50": insert_p50, "insert_us_p99": insert_p99, "insert_us_max": insert_max,
            "delete_us_p50": delete_p50, "delete_us_p99": delete_p99, "delete_us_max": delete_max,
        })
    }
}
