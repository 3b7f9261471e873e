//! Everything that a decision consults, as one immutable snapshot.
//!
//! [`Tables`] is cheap to clone: its parts are shared, and a change copies only the part that it
//! touches. The control thread clones the current snapshot, changes the clone (each change is
//! checked and either done or refused), and publishes it; dropping the clone instead undoes
//! everything. Workers load the snapshot once per batch and never wait.
#![forbid(unsafe_code)]

pub mod bpf;
mod cells;
mod counters;
mod error;
mod event;
pub mod fib;
mod filter;
mod flows;
mod group;
pub mod limit;
mod log;
mod map;
mod names;
mod neighbour;
mod next_hop;
mod numbers;
mod policy;
mod port;
mod publish;
mod qdisc;
mod registry;
mod route;
mod routing_table;
mod rule;
mod sad;
mod slots;
mod snapshot;
mod sorted;
mod sought;
mod source;
mod spans;
mod spd;
mod system;
mod tap;
mod trace;
mod tunnel_ends;
mod vlan;
mod vrf;
mod xfrm_link;

pub use cells::{Cell, CellCounters, CellId, WorkerCells};
pub use classifier::{Effort, Refused, Statistics as TreeStatistics};
pub use counters::FlowCounters;
pub use error::{NotAPeer, SelectorError, TableError, TunnelError};
pub use event::{Event, LoggedBy, LoggedPacket, Probe};
pub use filter::{
    CompiledFilter, Filter, FilterAction, FilterMatch, FilterPlace, FilterRule, FilterSpec,
    FilterTarget,
};
pub use flows::{FlowError, FlowLog, FlowMeter, MAX_NAT_POOLS, NatPool, PoolId, Wall};
pub use group::{FlowHash, Group, GroupId, MAX_MEMBERS, MAX_WEIGHT, Member, PathKey};
pub use log::Change;
pub use neighbour::{MAX_NEIGHBOURS, Neighbours};
pub use next_hop::{
    LinkHeader, MAX_LINK_HEADER, NextHop, NextHopCounters, NextHopId, NextHopState,
};
pub use pipeline::{FlowId, Pipeline};
pub use policy::{
    Action, DefaultAction, Direction, FieldsSelector, Policy, PolicyHandle, PolicySlot, PolicySpec,
    Scope, Selector, Template, UpperSelector, check_tunnel,
};
pub use port::{Port, PortSpec};
pub use publish::{Publisher, Reader, Shared};
pub use qdisc::{PlacedQdisc, Qdisc, QdiscCounters, QdiscDevice, QdiscHandle, QdiscNode, Qdiscs};
pub use route::{MemberSpec, Route, RouteKind, RouteSpec};
pub use routing_table::{RoutingTable, TableRef};
pub use rule::{
    L3MDEV_PRIORITY, MAIN_PRIORITY, Rule, RuleAction, RuleEntry, RuleFlow, RuleId, RuleSelector,
    own_priority,
};
pub use sad::{Sa, SaIdentity, SaSpec, Sad, Slot};
pub use snapshot::{Boundary, Ruled, Tables, VrfFeatures};
pub use sought::Sought;
pub use spd::{
    Compiled, LookupBound, LookupCount, LookupEngine, LookupReason, LookupStructure, PolicyHeader,
    ShadowedSelectors, Shown, Spd, V4_WORDS, V6_WORDS, Wanted, shadowed_selectors, upper_words,
};
pub use system::SystemAddresses;
pub use tap::{MAX_SNAPLEN, MAX_TAPS, Tap, TapMeter, TapPoints, TapSet, TapSpec};
pub use trace::{
    MAX_TRACED, MAX_TRACED_WAITING, MAX_TRACES, Trace, TraceSpec, TraceTicket, TracedWaiting,
};
pub use types::{
    Dscp, FilterHook, FilterSlot, FilterVerdict, HighestShares, IfId, Ike, Ipsec, MarkBits,
    MssClamp, PolicyName, RejectWith, ReversePath, Share, Side, TableId, VlanId, VlanProtocol,
    VlanTag,
};
pub use vlan::{NotAVlanParent, Vlan, VlanCounters, VlanDirectory, VlanPort, VlanTable};
pub use vrf::{Vrf, VrfParsing};
