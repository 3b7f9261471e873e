//! What workers do, what their caches hold, and what that costs.

use api::{CacheMisses, CostReport, CounterView, WorkerCache, WorkerCost, WorkerView};

use super::super::{Miss, StageOf};
use super::{Group, counter, flag, gauge, number};

pub(in crate::metrics) static WORKERS: Group<WorkerView> = Group {
    labels: &["worker"],
    of: |it| vec![it.index.to_string()],
    families: &[
        gauge(
            "worker_processor",
            |it| number(it.processor? as u64),
            "The processor that the worker is pinned to.",
        ),
        counter("worker_dropped", |it| Some(it.drops), "Packets dropped."),
    ],
};

/// What a worker counts that is no counter, as it goes down as well.
pub(in crate::metrics) const WORKER_GAUGE: &str = "held";

/// The name of the family of a worker's counter, which `hitpath show workers` has under its own.
pub(in crate::metrics) fn worker_family(counter: &str) -> String {
    format!("worker_{counter}")
}

/// Reads a worker's counter, to be used where the families are not known before.
pub(in crate::metrics) fn worker_value(worker: &WorkerView, name: &str) -> Option<u64> {
    let is = |counter: &&CounterView| counter.name == name;
    worker.counters.iter().find(is).map(|counter| counter.value)
}

pub(in crate::metrics) static CACHES: Group<WorkerCache> = Group {
    labels: &["worker", "table"],
    of: |it| vec![it.worker.to_string(), it.cache.table.to_string()],
    families: &[
        gauge(
            "cache_in_use",
            |it| flag(it.cache.state == api::CacheState::InUse),
            "Whether the table is looked into: it is neither off nor bypassed as it did not pay.",
        ),
        gauge("cache_buckets", |it| number(it.cache.buckets), "Flows that the table can hold."),
        gauge("cache_bytes", |it| number(it.cache.bytes), "Memory of the table."),
        gauge(
            "cache_occupied_buckets",
            |it| number(it.cache.occupied),
            "Buckets in use, by stale entries as well.",
        ),
        gauge(
            "cache_live_entries",
            |it| number(it.cache.live),
            "Entries made or found valid since the last change of a policy.",
        ),
        counter(
            "cache_hits",
            |it| Some(it.cache.hits),
            "Packets whose decision was found and valid.",
        ),
        counter(
            "cache_restamped",
            |it| Some(it.cache.restamped),
            "Hits whose entry was older than the tables and not touched by a change since.",
        ),
        counter("cache_inserted", |it| Some(it.cache.inserted), "Entries written."),
        counter(
            "cache_replaced",
            |it| Some(it.cache.evicted),
            "Entries written in the place of a live one.",
        ),
        counter(
            "cache_refused",
            |it| Some(it.cache.refused),
            "Decisions not kept, because what they would have replaced is in use.",
        ),
        gauge(
            "cache_look_seconds",
            |it| seconds(it.cache.costs.look_ns),
            "What looking whether a flow is known costs a packet, as last measured.",
        ),
        gauge(
            "cache_decide_seconds",
            |it| seconds(it.cache.costs.decide_ns),
            "What deciding costs a packet, as last measured.",
        ),
        gauge(
            "cache_keep_seconds",
            |it| seconds(it.cache.costs.keep_ns),
            "What keeping a decision costs, as last measured.",
        ),
        gauge(
            "cache_saved_seconds",
            |it| seconds(it.cache.costs.saved_ns),
            "What the table saves a packet on average; negative where it costs more than it saves.",
        ),
    ],
};

fn seconds(nanoseconds: Option<f64>) -> Option<f64> {
    nanoseconds.map(|it| it / 1e9)
}

pub(in crate::metrics) static MISSES: Group<Miss> = Group {
    labels: &["worker", "table", "reason"],
    of: |it| vec![it.worker.to_string(), it.table.to_string(), it.reason.to_owned()],
    families: &[counter(
        "cache_misses",
        |it| Some(it.packets),
        "Packets that were decided, by the reason why no entry decided them.",
    )],
};

/// Of the processor's time-stamp counter, of which a second has `cycles_per_second`.
pub(in crate::metrics) static COST_CLOCK: Group<CostReport> = Group {
    labels: &[],
    of: |_| Vec::new(),
    families: &[gauge(
        "stage_cycles_per_second",
        |it| Some(it.cycles_per_second),
        "Cycles that a second has, of those that stages are timed in: the time-stamp counter's.",
    )],
};

pub(in crate::metrics) static COSTS: Group<WorkerCost> = Group {
    labels: &["worker"],
    of: |it| vec![it.worker.to_string()],
    families: &[
        counter(
            "timed_rounds",
            |it| Some(it.cost.rounds),
            "Rounds with packets of which each stage was timed: one in about 256.",
        ),
        counter(
            "timed_idle_rounds",
            |it| Some(it.cost.idle_rounds),
            "Rounds that were timed and had no packet.",
        ),
        counter(
            "timed_idle_cycles",
            |it| Some(it.cost.idle_cycles),
            "Cycles of timed rounds that had no packet.",
        ),
    ],
};

pub(in crate::metrics) static STAGES: Group<StageOf> = Group {
    labels: &["worker", "stage"],
    of: |it| vec![it.worker.to_string(), it.stage.stage.clone()],
    families: &[
        counter(
            "stage_calls",
            |it| Some(it.stage.calls),
            "How often the stage had packets, in timed rounds.",
        ),
        counter("stage_packets", |it| Some(it.stage.packets), "Its packets, in timed rounds."),
        counter(
            "stage_cycles",
            |it| Some(it.stage.cycles),
            "What the stage took, in timed rounds with packets.",
        ),
    ],
};

/// The misses of a table, by reason.
pub(in crate::metrics) fn misses(of: &WorkerCache) -> [Miss; 4] {
    let CacheMisses { new, stale, evicted, bypassed } = of.cache.misses;
    let reasons = [("new", new), ("stale", stale), ("evicted", evicted), ("bypassed", bypassed)];
    reasons.map(|(reason, packets)| Miss {
        worker: of.worker,
        table: of.cache.table,
        reason,
        packets,
    })
}
