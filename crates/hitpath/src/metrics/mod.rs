//! What is counted, as Prometheus reads it: `GET /metrics`.
//!
//! The families are in `families`, each with its name, its help and where its value is; the
//! page docs/metrics.md is held against them. Values are those of the replies that `hitpath show`
//! prints. Objects are listed one by one up to a limit, and beyond it not at all: a family that
//! had an arbitrary part of the SAs would be wrong in every sum.

mod families;
mod firewall;
mod text;

use api::{
    CacheReport, CacheTable, ConnectionStatistics, CostReport, DaemonView, DropView, FilterView,
    FlowView, NatPoolView, NextHopView, PolicyView, PortView, QdiscView, StageCost, StateView,
    VrfView, WorkerView,
};

use serde::Serialize;

pub(crate) use firewall::{FirewallRow, firewall_rows};
pub(crate) use text::Texts;

/// What is counted, at one moment.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) gateway: GatewayIs,
    pub(crate) objects: Vec<ObjectCount>,
    pub(crate) ports: Vec<PortView>,
    pub(crate) drops: Vec<DropView>,
    pub(crate) workers: Vec<WorkerView>,
    pub(crate) caches: CacheReport,
    pub(crate) costs: CostReport,
    pub(crate) vrfs: Vec<VrfView>,
    pub(crate) states: Vec<StateView>,
    pub(crate) policies: Vec<PolicyView>,
    pub(crate) next_hops: Vec<NextHopView>,
    pub(crate) qdiscs: Vec<QdiscView>,
    pub(crate) connections: ConnectionStatistics,
    pub(crate) pools: Vec<NatPoolView>,
    pub(crate) filters: Vec<FilterView>,
    pub(crate) flows: Vec<FlowView>,
    pub(crate) firewall: Vec<FirewallRow>,
}

/// The gateway's process.
#[derive(Debug, Default)]
pub(crate) struct GatewayIs {
    pub(crate) daemon: DaemonView,
    /// When it was started, in seconds since 1970.
    pub(crate) started: f64,
    /// When this was counted, in seconds of a clock that nobody sets.
    pub(crate) measured: f64,
}

/// How many objects of a kind there are.
#[derive(Debug, Serialize)]
pub(crate) struct ObjectCount {
    pub(crate) kind: &'static str,
    pub(crate) count: u64,
    /// Those without metrics of their own.
    pub(crate) left_out: u64,
}

/// What a stage of a worker has cost.
struct StageOf {
    worker: usize,
    stage: StageCost,
}

/// Packets that a table of the decision cache did not decide, by reason.
struct Miss {
    worker: usize,
    table: CacheTable,
    reason: &'static str,
    packets: u64,
}

impl ObjectCount {
    /// Counts objects of which `limit` may be listed, and says whether they are.
    pub(crate) fn of(kind: &'static str, count: u64, limit: usize) -> (Self, bool) {
        let is_listed = count <= limit as u64;
        let left_out = if is_listed { 0 } else { count };
        (Self { kind, count, left_out }, is_listed)
    }
}
