//! What can be asked.

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::cache::SpdFilter;
use crate::conntrack::{ConnectionChange, ConnectionFilter, ConnectionQuery};
use crate::filter::{FilterId, FilterList, FilterSpec};
use crate::firewall::FirewallSpec;
use crate::flow::{FlowChanges, FlowFilter};
use crate::object::{
    AddressFilter, AddressId, AddressSpec, LinkChange, LinkFilter, LinkName, LinkSpec,
    NeighbourFilter, NeighbourId, NeighbourSpec, VrfChange, VrfName, VrfSpec,
};
use crate::policy::{Defaults, PolicyFilter, PolicyId, PolicyPage, PolicySpec};
use crate::qdisc::{QdiscFilter, QdiscId, QdiscSpec};
use crate::route::{RouteFilter, RouteId, RouteQuery, RouteSpec};
use crate::rule::RuleSpec;
use crate::state::{StateFlush, StateId, StateList, StateSpec};
use crate::tap::TapSpec;
use crate::trace::TraceSpec;

/// One request: `{"do": NAME, "with": {...}}`.
///
/// The name comes first in what this type writes, so that a reader takes keys straight from the
/// text and no copy of them is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", content = "with", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The version of the gateway.
    Version,
    /// All ports, with their statistics.
    Ports,
    /// The daemon's process.
    Daemon,
    /// The workers.
    Workers,
    /// Packets dropped, by reason.
    Drops,
    /// What the tables of the decision cache have done.
    Caches,
    /// What the stages of a packet's way cost. `Reply::Costs`.
    Costs,
    /// Policies in the order in which they are tried, what a lookup costs, and live entries of the
    /// decision cache.
    Spd(SpdFilter),
    /// Many changes at once.
    Batch(Batch),
    /// Read the configuration file again.
    Reload {
        /// Answer what would change, and change nothing.
        #[serde(default)]
        dry_run: bool,
    },
    /// How the gateway differs from its configuration file as it is now.
    Diff,
    /// What is in force, as a configuration file.
    Save {
        /// The name of a file for the keys of SAs, as the configuration is to have it. Without
        /// it, the configuration has no SAs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys_file: Option<String>,
    },
    /// What would happen to a packet, step by step. None is sent.
    Explain {
        /// The packet, as in `udp 192.0.2.1:5000 > 198.51.100.7:53 in lan`.
        packet: String,
    },

    /// Add an SA.
    StateAdd(StateSpec),
    /// Change an SA that exists.
    StateUpdate(StateSpec),
    /// Remove an SA.
    StateDelete(StateId),
    /// Show an SA.
    StateGet(StateId),
    /// Show SAs.
    StateList(StateList),
    /// Remove SAs.
    StateFlush(StateFlush),
    /// How many SAs there are.
    StateCount,

    /// Add a policy.
    PolicyAdd(PolicySpec),
    /// Add a policy, or change the one with its selector.
    PolicyUpdate(PolicySpec),
    /// Remove a policy.
    PolicyDelete(PolicyId),
    /// Show a policy.
    PolicyGet(PolicyId),
    /// Show policies.
    PolicyList(PolicyFilter),
    /// Show a page of the policies of one VRF or xfrm link and direction. `Reply::Policies`.
    PolicyPage(PolicyPage),
    /// Remove policies.
    PolicyFlush(PolicyFilter),
    /// How many policies there are.
    PolicyCount,
    /// How many policies of each direction there are. `Reply::PolicyCounts`.
    PolicyCountByDirection,
    /// Set what happens to packets that no policy matches.
    PolicySetDefault(Defaults),
    /// Show what happens to packets that no policy matches.
    PolicyGetDefault(VrfName),

    /// Add a route. Refused where there is one of the prefix with the same metric.
    RouteAdd(RouteSpec),
    /// Add a route, in place of those of the prefix with the same metric.
    RouteReplace(RouteSpec),
    /// Change a route that exists.
    RouteChange(RouteSpec),
    /// Remove a route.
    RouteDelete(RouteId),
    /// Which route a destination takes.
    RouteGet(RouteQuery),
    /// Show routes.
    RouteList(RouteFilter),
    /// Remove the routes that configuration or commands made.
    RouteFlush(RouteFilter),

    /// Add a policy rule. Refused if there is the same one.
    RuleAdd(RuleSpec),
    /// Remove the first policy rule that fits.
    RuleDelete(RuleSpec),
    /// Show policy rules, those of the gateway itself included.
    RuleList(RuleSpec),
    /// Remove the policy rules that fit.
    RuleFlush(RuleSpec),

    /// Show next hops, and what was sent by each.
    NextHopList,

    /// Add a permanent neighbour. Refused where it is known already.
    NeighbourAdd(NeighbourSpec),
    /// Add a permanent neighbour, in place of what was known.
    NeighbourReplace(NeighbourSpec),
    /// Forget a neighbour.
    NeighbourDelete(NeighbourId),
    /// Show a neighbour.
    NeighbourGet(NeighbourId),
    /// Show neighbours.
    NeighbourList(NeighbourFilter),
    /// Forget neighbours; permanent ones only where their state is named.
    NeighbourFlush(NeighbourFilter),

    /// Add an address to a port.
    AddressAdd(AddressSpec),
    /// Add an address to a port, where it is not there yet.
    AddressReplace(AddressSpec),
    /// Remove an address from a port.
    AddressDelete(AddressId),
    /// Show addresses.
    AddressList(AddressFilter),
    /// Remove addresses.
    AddressFlush(AddressFilter),

    /// Add a VLAN of a port.
    LinkAdd(LinkSpec),
    /// Remove a VLAN or a VRF.
    LinkDelete(LinkName),
    /// Change a port.
    LinkSet(LinkChange),
    /// Show ports and VRFs as links.
    LinkList(LinkFilter),

    /// Put a queueing discipline where there is none.
    QdiscAdd(QdiscSpec),
    /// Put a queueing discipline in the place of what is there.
    QdiscReplace(QdiscSpec),
    /// Change a queueing discipline that exists.
    QdiscChange(QdiscSpec),
    /// Remove a queueing discipline, and what stands under it.
    QdiscDelete(QdiscId),
    /// Show queueing disciplines.
    QdiscList(QdiscFilter),

    /// Add a VRF.
    VrfAdd(VrfSpec),
    /// Remove a VRF.
    VrfDelete(VrfName),
    /// Change a VRF.
    VrfSet(VrfChange),
    /// Show a VRF.
    VrfGet(VrfName),
    /// Show all VRFs.
    VrfList,

    /// Add a rule to a filter. Refused where there is one of the same preference.
    FilterAdd(FilterSpec),
    /// Add a rule to a filter, in place of the one of the same preference.
    FilterReplace(FilterSpec),
    /// Change a rule of a filter.
    FilterChange(FilterSpec),
    /// Remove a rule of a filter, or all of them.
    FilterDelete(FilterId),
    /// Show rules of filters.
    FilterList(FilterList),
    /// Add, change, remove or replace flows.
    FlowChange(FlowChanges),
    /// Show flows.
    FlowList(FlowFilter),
    /// Make the firewall this.
    FirewallReplace(Box<FirewallSpec>),
    /// Remove the firewall.
    FirewallDelete,
    /// Show the firewall.
    FirewallGet,
    /// Show a page of the connections.
    ConnectionList(ConnectionQuery),
    /// Show the connection of a tuple, of which everything is said.
    ConnectionGet(ConnectionFilter),
    /// Delete the connections of a page, and show them.
    ConnectionDelete(ConnectionQuery),
    /// Change the connections of a page, and show them as they are then.
    ConnectionUpdate(ConnectionChange),
    /// How many connections there are.
    ConnectionCount,
    /// What the connection table has done.
    ConnectionStatistics,
    /// How long connections may be unused. `Reply::TimeoutPolicies`.
    TimeoutList,
    /// `Reply::Expectations`.
    ExpectationList,
    /// Ends all expectations. `Reply::Count`.
    ExpectationFlush,
    /// Pools of addresses and ports for translated sources.
    NatPools,
    /// Add a tap. To be posted to [`crate::TAP_PATH`], and refused elsewhere.
    TapAdd(TapSpec),
    /// End a tap.
    TapDelete {
        /// Its number.
        id: u64,
    },
    /// Show taps, those that have ended lately included.
    TapList,
    /// Add a trace. To be posted to [`crate::TRACE_PATH`], and refused elsewhere.
    TraceAdd(TraceSpec),
    /// End a trace.
    TraceDelete {
        /// Its number.
        id: u64,
    },
    /// Show traces, those that have ended lately included.
    TraceList,
}

impl Request {
    /// Whether it changes nothing, whatever the answer.
    pub const fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Version
                | Self::Ports
                | Self::Daemon
                | Self::Workers
                | Self::Drops
                | Self::Caches
                | Self::Costs
                | Self::Spd(_)
                | Self::Reload { dry_run: true }
                | Self::Diff
                | Self::Save { .. }
                | Self::Explain { .. }
                | Self::StateGet(_)
                | Self::StateList(_)
                | Self::StateCount
                | Self::PolicyGet(_)
                | Self::PolicyList(_)
                | Self::PolicyPage(_)
                | Self::PolicyCount
                | Self::PolicyCountByDirection
                | Self::PolicyGetDefault(_)
                | Self::RouteGet(_)
                | Self::RouteList(_)
                | Self::RuleList(_)
                | Self::NextHopList
                | Self::NeighbourGet(_)
                | Self::NeighbourList(_)
                | Self::AddressList(_)
                | Self::LinkList(_)
                | Self::VrfGet(_)
                | Self::QdiscList(_)
                | Self::VrfList
                | Self::FilterList(_)
                | Self::FlowList(_)
                | Self::FirewallGet
                | Self::ConnectionList(_)
                | Self::ConnectionGet(_)
                | Self::ConnectionCount
                | Self::ConnectionStatistics
                | Self::TimeoutList
                | Self::ExpectationList
                | Self::NatPools
                | Self::TapList
                | Self::TraceList
        )
    }
}
