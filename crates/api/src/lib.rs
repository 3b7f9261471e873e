//! What is said over the control socket.
//!
//! The gateway serves HTTP on a Unix socket. `POST` to [`PATH`] carries one
//! [`Request`] as JSON and is answered with a [`Reply`] (status 200) or a [`Refusal`] (the status
//! of its [`RefusalCode`]):
//!
//! ```sh
//! curl --unix-socket /run/hitpath/control.sock http://hitpath/v1 -d '{"do":"ports"}'
//! curl --unix-socket /run/hitpath/control.sock http://hitpath/v1 \
//!     -d '{"do":"route_add","with":{"destination":"10.0.0.0/8","via":"192.0.2.1"}}'
//! ```
//!
//! One [`Request::Batch`] carries many changes. To [`BATCH_PATH`] it may be longer than
//! [`MAX_REQUEST_BYTES`].
//!
//! Members that a request does not know are refused, never ignored. Objects are named as users name
//! them: VRFs and ports by name, SAs by destination and SPI, policies by selector or index.
#![forbid(unsafe_code)]

mod batch;
mod cache;
mod conntrack;
mod cost;
mod daemon;
mod filter;
mod firewall;
mod flow;
mod key;
mod link;
mod monitor;
mod object;
mod policy;
mod qdisc;
mod reply;
mod request;
mod route;
mod rule;
mod shown;
mod state;
mod tap;
#[cfg(test)]
mod tests;
mod trace;

pub use batch::{Batch, BatchRefusal, BatchReport, BatchWarning, MAX_BATCH, OnRefusal};
pub use cache::{
    CacheCosts, CacheMisses, CacheReport, CacheState, CacheView, CompiledView, FamilyTrees,
    FlowCacheEntries, PolicyAdded, SpdBound, SpdFilter, SpdReport, SpdView, WorkerCache,
};
pub use conntrack::{
    ConnectionChange, ConnectionChangeKind, ConnectionEvent, ConnectionEventSpec, ConnectionFilter,
    ConnectionPage, ConnectionQuery, ConnectionStatistics, ConnectionStatus, ConnectionView,
    ExpectationView, MAX_CONNECTION_PAGE, NatFilter, NatPoolView, TimeoutPolicyView, TupleFilter,
    TupleView,
};
pub use cost::{Cost, CostReport, StageCost, WorkerCost};
pub use daemon::{AuditView, DaemonView, KeptView};
pub use filter::{
    ControlAction, FilterActionView, FilterId, FilterKeys, FilterList, FilterOptions, FilterSpec,
    FilterStatistics, FilterTarget, FilterView,
};
pub use firewall::{
    FirewallAction, FirewallCount, FirewallReport, FirewallRuleSpec, FirewallSpec, FirewallView,
    ForwardSpec, GATEWAY_ZONE, Masquerade, ServiceSpec, SnatSpec, ZonePolicySpec, ZoneSpec,
};
pub use flow::{FlowChange, FlowChanges, FlowCommand, FlowFilter, FlowReport, FlowView};
pub use key::{Key, KeyTextError};
pub use link::{LinkCounts, LinkData, LinkInfo, LinkStatistics, LinkView};
pub use monitor::{MonitorEvent, MonitorObject, MonitorSpec, MonitorView};
pub use object::{
    AddressFilter, AddressId, AddressSpec, AddressView, CounterView, DeviceStatistics, DropView,
    InterfaceState, LinkChange, LinkFilter, LinkName, LinkSpec, NeighbourCounts, NeighbourFilter,
    NeighbourId, NeighbourSpec, NeighbourState, NeighbourView, Origin, PortStatistics, PortView,
    RingView, VrfChange, VrfName, VrfSpec, VrfView, WorkerView,
};
pub use policy::{
    DefaultActionView, Defaults, MAX_POLICY_PAGE, PolicyCounts, PolicyFilter, PolicyId, PolicyPage,
    PolicyPlace, PolicySpec, PolicyView, Selector, Template,
};
pub use qdisc::{FlowQueueStatistics, QdiscFilter, QdiscId, QdiscOptions, QdiscSpec, QdiscView};
pub use reply::{
    Change, ChangeKind, Difference, Refusal, RefusalCode, Reply, SavedConfiguration, Stage,
};
pub use request::Request;
pub use route::{
    MemberSpec, MemberView, NextHopView, RouteFilter, RouteId, RouteQuery, RouteSpec, RouteView,
};
pub use rule::{RuleAction, RuleSpec, RuleView};
pub use shown::{may_be_key, shown, without_keys};
pub use state::{
    Aead, AlgorithmView, Authentication, Counters, Encryption, StateFilter, StateFlush, StateId,
    StateList, StateSpec, StateView,
};
pub use tap::{RunState, TapPoint, TapSpec, TapTarget, TapView};
pub use trace::{
    DEFAULT_TRACE_COUNT, DEFAULT_TRACE_RATE, MAX_TRACE_COUNT, TraceEvent, TraceLosses, TraceSpec,
    TraceView, TracedLater, TracedPacket,
};
// The vocabulary of requests and replies, for those who write them.
pub use types::{
    CacheMode, CacheTable, DefaultAction, Direction, Family, FilterHook, FilterProtocol,
    FilterVerdict, Ike, Ipsec, LookupEngine, MarkBits, MssClamp, OctetRange, PolicyAction,
    RejectWith, ReversePath, RouteKind, SaFlag, SaMode, Side,
};

/// Version of the interface. Within one version, members are only ever added.
pub const VERSION: u32 = 1;

/// Where requests are posted to.
pub const PATH: &str = "/v1";

/// Where a [`Batch`], or a [`Request::FlowChange`] or [`Request::FirewallReplace`], is posted to
/// that is longer than other requests may be.
pub const BATCH_PATH: &str = "/v1/batch";

/// Where a [`TapSpec`] is posted to.
pub const TAP_PATH: &str = "/v1/tap";

/// Where a [`TraceSpec`] is posted to.
pub const TRACE_PATH: &str = "/v1/trace";

/// Where a [`ConnectionEventSpec`] is posted to.
pub const CONNTRACK_PATH: &str = "/v1/conntrack";

/// Where a [`MonitorSpec`] is posted to.
pub const MONITOR_PATH: &str = "/v1/monitor";

/// Where metrics are to be had by GET, as Prometheus reads them.
pub const METRICS_PATH: &str = "/metrics";

/// Behind [`PATH`] or [`BATCH_PATH`] and a `?`: the answer does not wait until the change would
/// survive power loss.
pub const NO_SYNC: &str = "sync=no";

/// The longest request in bytes.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The longest request to [`BATCH_PATH`] in bytes.
pub const MAX_BATCH_BYTES: usize = 64 << 20;

/// The VRF that is meant where none is named.
pub const MAIN_VRF: &str = "main";

pub(crate) fn main_vrf() -> String {
    MAIN_VRF.to_owned()
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}
