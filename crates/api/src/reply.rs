//! What is answered.

use core::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::batch::BatchReport;
use crate::cache::{CacheReport, PolicyAdded, SpdReport};
use crate::conntrack::{
    ConnectionPage, ConnectionStatistics, ExpectationView, NatPoolView, TimeoutPolicyView,
};
use crate::cost::CostReport;
use crate::daemon::DaemonView;
use crate::filter::FilterView;
use crate::firewall::{FirewallReport, FirewallView};
use crate::flow::{FlowReport, FlowView};
use crate::key::Key;
use crate::link::LinkView;
use crate::object::{AddressView, DropView, NeighbourView, PortView, VrfView, WorkerView};
use crate::policy::{DefaultActionView, PolicyCounts, PolicyView};
use crate::qdisc::QdiscView;
use crate::route::{NextHopView, RouteView};
use crate::rule::RuleView;
use crate::state::StateView;
use crate::tap::TapView;
use crate::trace::TraceView;

/// The answer to a request that was carried out: `{"is": NAME, "of": ...}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", content = "of", rename_all = "snake_case")]
pub enum Reply {
    /// It was done, and there is nothing to say.
    Done,
    /// It was done, and somebody should know this.
    Warned(String),
    /// It was done; so many objects were concerned.
    Count(u64),
    /// How many policies there are.
    PolicyCounts(PolicyCounts),
    /// A policy was added, or changed.
    PolicyAdded(PolicyAdded),
    /// What came of many changes.
    Batch(BatchReport),
    /// Version of the gateway and of the interface.
    Version {
        /// The gateway's.
        gateway: String,
        /// The interface's: [`crate::VERSION`].
        interface: u32,
    },
    /// The daemon's process.
    Daemon(DaemonView),
    /// Ports.
    Ports(Vec<PortView>),
    /// Workers.
    Workers(Vec<WorkerView>),
    /// Drops.
    Drops(Vec<DropView>),
    /// What the tables of the decision cache have done.
    Caches(CacheReport),
    /// What the stages of a packet's way cost.
    Costs(CostReport),
    /// Security policy databases.
    Spd(SpdReport),
    /// What a reload changed, or would change; or what is in force and not in the file, and the
    /// other way round.
    Difference(Difference),
    /// What is in force, as a configuration file.
    Saved(SavedConfiguration),
    /// What would happen to a packet.
    Explained(Vec<Stage>),
    /// SAs.
    States(Vec<StateView>),
    /// Policies.
    Policies(Vec<PolicyView>),
    /// Default actions.
    Defaults(DefaultActionView),
    /// Routes.
    Routes(Vec<RouteView>),
    /// Policy rules.
    Rules(Vec<RuleView>),
    /// Next hops.
    NextHops(Vec<NextHopView>),
    /// Neighbours.
    Neighbours(Vec<NeighbourView>),
    /// Addresses.
    Addresses(Vec<AddressView>),
    /// Queueing disciplines.
    Qdiscs(Vec<QdiscView>),
    /// VRFs.
    Vrfs(Vec<VrfView>),
    /// Ports and VRFs as links.
    Links(Vec<LinkView>),
    /// Rules of filters.
    Filters(Vec<FilterView>),
    /// Flows were changed.
    FlowsChanged(FlowReport),
    /// Flows.
    Flows(Vec<FlowView>),
    /// The firewall was changed.
    FirewallChanged(FirewallReport),
    /// The firewall; nothing if there is none.
    Firewall(Option<Box<FirewallView>>),
    /// A page of the connections.
    Connections(ConnectionPage),
    /// What the connection table has done.
    ConnectionStatistics(ConnectionStatistics),
    /// Timeouts, those of zones without a policy first; nothing if no connections are tracked.
    TimeoutPolicies(Vec<TimeoutPolicyView>),
    /// Connections that are expected.
    Expectations(Vec<ExpectationView>),
    /// Pools for translated sources.
    NatPools(Vec<NatPoolView>),
    /// Taps.
    Taps(Vec<TapView>),
    /// Traces.
    Traces(Vec<TraceView>),
}

/// What is in force, as a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedConfiguration {
    /// The file.
    pub text: String,
    /// The keys that it names by number, from 1, if they were asked for: the lines of the file of
    /// keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Key>,
    /// The word by which it knows the file of its keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_id: Option<String>,
    /// What a file cannot say, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// Why a request was not carried out. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{message}{}", .hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default())]
pub struct Refusal {
    /// What kind of reason.
    pub code: RefusalCode,
    /// What was wrong.
    pub message: String,
    /// What would be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Kinds of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The request makes no sense (HTTP 400).
    Invalid,
    /// It makes sense, and the gateway cannot do it yet (HTTP 501).
    Unsupported,
    /// What it names does not exist (HTTP 404).
    NotFound,
    /// What it adds exists already (HTTP 409).
    Exists,
    /// Something else depends on what it removes or changes (HTTP 409).
    InUse,
    /// A table is full (HTTP 507).
    Full,
    /// The system refused (HTTP 500).
    System,
    /// The system has refused to keep a change that is in force: it is kept once there is room, and
    /// undone if the gateway ends before (HTTP 500).
    NotKept,
}

/// What a reload changed, or would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Each change.
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What happened to the object.
    pub change: ChangeKind,
    /// What it is: `port`, `route`, `policy`, ...
    pub object: String,
    /// Which one, and what is different, as a person reads it.
    pub text: String,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It is different.
    Modified,
    /// It will be different when the gateway is started again, and is not before.
    AtRestart,
}

/// A stage of what happens to a packet, or would happen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// What is looked at or done: `vrf`, `route`, `policy`, `size`, ...
    pub stage: String,
    /// What came of it, in a sentence for people.
    pub text: String,
    /// The same for programs, each thing by its name.
    #[serde(flatten)]
    pub members: Map<String, Value>,
}

impl Stage {
    /// The members in a text of JSON; none if it is no object.
    pub fn read(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The stage for programs: by its members, as the sentence is for people.
    pub fn as_object(&self) -> Value {
        let mut object = Map::new();
        object.insert("stage".to_owned(), self.stage.clone().into());
        object.extend(self.members.clone());
        Value::Object(object)
    }
}

impl Refusal {
    /// A refusal without a hint.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// The same with a word on what would be right.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl RefusalCode {
    /// The HTTP status that goes with it.
    pub const fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::NotFound => 404,
            Self::Exists | Self::InUse => 409,
            Self::System | Self::NotKept => 500,
            Self::Unsupported => 501,
            Self::Full => 507,
        }
    }
}

impl Difference {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// One line for each change, without an end of line behind the last: `+ route main 10.0.0.0/8 via
/// 192.0.2.1`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, change) in self.changes.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{change}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.change {
            ChangeKind::Added => write!(f, "+ {} {}", self.object, self.text),
            ChangeKind::Removed => write!(f, "- {} {}", self.object, self.text),
            ChangeKind::Modified => write!(f, "~ {} {}", self.object, self.text),
            ChangeKind::AtRestart => {
                write!(f, "! {} {} (when the gateway is started again)", self.object, self.text)
            }
        }
    }
}
