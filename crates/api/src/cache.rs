//! The decision cache, and the databases whose lookups it saves.

use core::fmt;

use serde::{Deserialize, Serialize};
use types::{CacheMode, CacheTable, DefaultAction, Direction, LookupEngine};

use crate::policy::PolicyView;
use crate::{is_false, is_zero};

/// What the tables of the decision cache have done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    /// By worker and table.
    pub workers: Vec<WorkerCache>,
    /// By table, all workers together: buckets, bytes and counts are added up, costs are means over
    /// the packets they were caused by.
    pub totals: Vec<CacheView>,
}

/// What a worker's table has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerCache {
    /// The worker's number, from 0.
    pub worker: usize,
    /// Its table.
    #[serde(flatten)]
    pub cache: CacheView,
}

/// What a table has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheView {
    /// Which one.
    pub table: CacheTable,
    /// When it is used.
    pub mode: CacheMode,
    /// Whether it is. In totals, [`CacheState::Mixed`] where workers differ.
    pub state: CacheState,
    /// How many flows it can hold.
    pub buckets: u64,
    /// How many places each flow may have.
    pub associativity: u32,
    /// Its memory in bytes.
    pub bytes: u64,
    /// Buckets in use, by stale entries as well.
    pub occupied: u64,
    /// Packets whose decision was found and valid.
    pub hits: u64,
    /// Hits, of all packets of the table, bypassed ones included: from 0 to 1. Absent before the
    /// first packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    /// Packets that were decided, by reason.
    pub misses: CacheMisses,
    /// Of the hits, those whose entry was older than the tables and no change since touched it: it
    /// was stamped anew.
    pub restamped: u64,
    /// Entries written.
    pub inserted: u64,
    /// Of those, the ones that took a live entry's place.
    pub evicted: u64,
    /// Decisions that were not kept, because what they would have replaced is in use.
    pub refused: u64,
    /// Live entries, as `hitpath show spd` counts them.
    pub live: u64,
    /// What looking, deciding and keeping cost, as far as measured.
    pub costs: CacheCosts,
}

/// Whether a table is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// It is switched off.
    Off,
    /// It is used.
    InUse,
    /// It did not pay, and is not looked into but for samples.
    Bypassed,
    /// Some workers use it, some do not.
    Mixed,
}

/// Packets that were decided, by the reason why no entry decided them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheMisses {
    /// The flow was not known.
    pub new: u64,
    /// A change may have touched the flow.
    pub stale: u64,
    /// The flow had to give way to others, or had come before and found no place.
    pub evicted: u64,
    /// Nobody looked, because the cache did not pay.
    pub bypassed: u64,
}

/// What the cache's work costs in nanoseconds for each packet, and saves. Absent where nothing was
/// measured yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheCosts {
    /// Looking whether the flow is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_ns: Option<f64>,
    /// Deciding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decide_ns: Option<f64>,
    /// Keeping a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_ns: Option<f64>,
    /// What a packet that was looked up has saved on average: deciding for each hit, less looking
    /// for each packet and keeping for each entry written. Negative where the cache costs more than
    /// it saves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_ns: Option<f64>,
}

/// Which databases `spd` shows. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpdFilter {
    /// Those of one VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Those of one direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Without their policies, which `Request::PolicyPage` shows page by page.
    #[serde(default, skip_serializing_if = "is_false")]
    pub heads: bool,
}

/// Security policy databases, and how many flows the cache knows of what they have decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpdReport {
    /// By VRF and direction.
    pub spds: Vec<SpdView>,
    /// By table of the cache, all workers together.
    pub flow_cache: Vec<FlowCacheEntries>,
}

/// The policies of one VRF and direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpdView {
    /// What a lookup costs.
    #[serde(flatten)]
    pub bound: SpdBound,
    /// What the policies were compiled to, where they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiled: Option<CompiledView>,
    /// Why they could not be compiled as they are now, if that failed. What was compiled before is
    /// used as long as it can be, and the index otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compiled: Option<String>,
    /// What happens to packets that no policy matches, where the VRF has policies.
    pub default: DefaultAction,
    /// The policies in the order in which they are tried.
    pub list: Vec<PolicyView>,
}

/// The policies of one VRF and direction, compiled to decision trees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompiledView {
    /// Of the IPv4 policies.
    pub ipv4: FamilyTrees,
    /// Of the IPv6 policies.
    pub ipv6: FamilyTrees,
    /// Policies that were added since; a lookup tries them, too.
    pub added: u64,
    /// Policies that were removed since. A packet whose first policy in the trees is one of them is
    /// looked up in the index.
    pub removed: u64,
}

/// The decision trees of one family's policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyTrees {
    /// Why there are none, where the index is asked instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Of each tree, its policies. Those that would stand in too many leaves of one stand in the
    /// next.
    pub trees: Vec<u64>,
    /// Bytes that they take.
    pub bytes: u64,
    /// The most nodes that a lookup reads, whatever the packet.
    pub worst_case_nodes: u64,
    /// The most policies that a lookup compares with the packet, whatever the packet.
    pub worst_case_policies: u64,
}

/// How much work a lookup in the policies of one VRF and direction can be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpdBound {
    /// The VRF; `main` of a link.
    pub vrf: String,
    /// The `if_id`, if they are the policies of an xfrm link; otherwise 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub if_id: u32,
    /// The direction.
    pub direction: Direction,
    /// How many policies there are.
    pub policies: u64,
    /// How the policy of a packet is found.
    pub engine: LookupEngine,
    /// The most places of the index that a lookup looks into, whatever the packet; 0 where policies
    /// are tried one after the other.
    pub worst_case_probes: u32,
    /// The most policies that a lookup compares with the packet, whatever the packet.
    pub worst_case_policies: u32,
    /// More policies to compare than this are too many.
    pub policies_limit: u32,
    /// Whether there are more: the policies defeat the lookup.
    pub over_limit: bool,
}

/// Live entries of one table of the decision cache, all workers together.
///
/// A fresh entry counts, and so does one over a stale entry; one over a live entry does not. A
/// change of a policy sets the count to zero, since from then on every entry is held against the
/// change before it is used; where it is not touched, it counts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCacheEntries {
    /// The table.
    pub table: CacheTable,
    /// Live entries.
    pub entries: u64,
}

/// What came of adding or changing a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyAdded {
    /// The policy's index.
    pub index: u32,
    /// The most places of the index that a lookup in the policies of its VRF and direction looks
    /// into from now on.
    pub worst_case_probes: u32,
    /// The most policies that such a lookup compares with the packet.
    pub worst_case_policies: u32,
    /// What somebody should know about these policies: that they defeat the lookup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl CacheMisses {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.new + self.stale + self.evicted + self.bypassed
    }
}

impl SpdBound {
    /// Whose policies they are: `vrf NAME` or `if_id ID`.
    pub fn owner(&self) -> String {
        match self.if_id {
            0 => format!("vrf {}", self.vrf),
            if_id => format!("if_id {if_id:#x}"),
        }
    }

    /// What somebody should know, where the policies defeat the lookup.
    pub fn warning(&self) -> Option<String> {
        let Self { policies, direction, worst_case_policies, policies_limit, .. } = self;
        let owner = self.owner();
        self.over_limit.then(|| {
            let hint = match self.engine {
                LookupEngine::Fast => "too many of them overlap for an index to tell them apart",
                LookupEngine::Linear => "with policy-lookup = \"fast\" in [ipsec] they need not",
            };
            format!(
                "of the {policies} policies of {owner}, direction {direction}, the first packet of \
                a flow may have to be compared with {worst_case_policies}, and more than \
                {policies_limit} are slow ({hint})"
            )
        })
    }
}

impl fmt::Display for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::InUse => "in use",
            Self::Bypassed => "bypassed",
            Self::Mixed => "mixed",
        })
    }
}
