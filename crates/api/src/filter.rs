//! Filters of ports and VRFs.

use serde::{Deserialize, Serialize};
use types::{
    DscpSelector, FilterHook, FilterProtocol, FilterVerdict, IpRange, MarkBits, OctetRange,
    PortRange, Protocol, RejectWith, TcpFlagsSelector,
};

use crate::object::Origin;
use crate::policy::Selector;

/// Whose filter it is: `{"dev": NAME}` or `{"vrf": NAME}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterTarget {
    /// Of packets that come or leave by the port; in requests also by the name of a VRF, if no port
    /// has that name.
    Dev(String),
    /// Of packets that are routed in the VRF.
    Vrf(String),
}

/// A rule of a filter, to add or to change one to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterSpec {
    /// Whose filter.
    pub target: FilterTarget,
    /// When the filter sees packets.
    pub hook: FilterHook,
    /// Its place in the order, 1 to 65535, smaller first. Without it, the gateway takes 49152 for
    /// the first rule of a filter, and one less than the smallest for each further one, as tc does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pref: Option<u32>,
    /// Packets of which family. Without it, that follows from the addresses and from the protocol
    /// of the selector, and is both if neither says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<FilterProtocol>,
    /// Which packets. What is absent is not looked at.
    #[serde(default)]
    pub selector: Selector,
    /// Packets that filters before have given such a mark. Packets begin with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<MarkBits>,
    /// What becomes of them.
    pub action: FilterVerdict,
    /// How the sender of a rejected packet is told: of action `reject` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_with: Option<RejectWith>,
    /// What the mark becomes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_mark: Option<MarkBits>,
    /// Whether packets are logged, within a rate limit.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub log: bool,
}

/// Names a rule of a filter, or all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterId {
    /// Whose filter.
    pub target: FilterTarget,
    /// When it sees packets.
    pub hook: FilterHook,
    /// The rule, or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pref: Option<u32>,
    /// Those for packets of such a family alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<FilterProtocol>,
}

/// Which rules are to be shown. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterList {
    /// Those of one port or VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<FilterTarget>,
    /// Those of one hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<FilterHook>,
    /// Those of one preference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pref: Option<u32>,
    /// Those for packets of such a family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<FilterProtocol>,
}

/// A rule as it is. Members that tc has too have its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterView {
    /// Whose filter.
    pub target: FilterTarget,
    /// When it sees packets.
    pub hook: FilterHook,
    /// Packets of which family.
    pub protocol: FilterProtocol,
    /// Its place in the order, smaller first.
    pub pref: u32,
    /// tc's name of filters with these keys: `flower`.
    pub kind: String,
    /// What it matches and does.
    pub options: FilterOptions,
    /// Who asked for it.
    pub origin: Origin,
}

/// What a rule matches and does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterOptions {
    /// What it matches.
    pub keys: FilterKeys,
    /// What it does, in this order.
    pub actions: Vec<FilterActionView>,
}

/// What a rule matches. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterKeys {
    /// Upper-layer protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_proto: Option<Protocol>,
    /// Source addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_ip: Option<IpRange>,
    /// Destination addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_ip: Option<IpRange>,
    /// Source ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_port: Option<PortRange>,
    /// Destination ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_port: Option<PortRange>,
    /// ICMP or ICMPv6 types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<OctetRange>,
    /// ICMP or ICMPv6 codes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<OctetRange>,
    /// TCP flags: `FLAGS/MASK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_flags: Option<TcpFlagsSelector>,
    /// DSCP, where tc has the whole octet as `ip_tos`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<DscpSelector>,
    /// TTL or hop limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_ttl: Option<u8>,
    /// The mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<MarkBits>,
}

impl FilterKeys {
    /// What a rule with this selector and mark matches.
    pub fn of(selector: &Selector, mark: Option<MarkBits>) -> Self {
        let &Selector {
            source,
            destination,
            protocol,
            source_ports,
            destination_ports,
            icmp_type,
            icmp_code,
            dscp,
            tcp_flags,
            ttl,
        } = selector;
        Self {
            ip_proto: protocol,
            src_ip: source,
            dst_ip: destination,
            src_port: source_ports,
            dst_port: destination_ports,
            icmp_type,
            icmp_code,
            tcp_flags,
            dscp,
            ip_ttl: ttl,
            mark,
        }
    }
}

/// An action of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterActionView {
    /// Its place, from 1.
    pub order: u32,
    /// `skbedit` sets the mark, `log` logs, `gact` has the verdict and the counters.
    pub kind: String,
    /// What the mark becomes, of `skbedit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<MarkBits>,
    /// What becomes of packets.
    pub control_action: ControlAction,
    /// What it has counted, of `gact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<FilterStatistics>,
}

/// What becomes of a packet behind an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlAction {
    /// `pass`, `drop` or `reject`, and `pipe` if the next action comes.
    #[serde(rename = "type")]
    pub kind: String,
    /// How the sender of a rejected packet is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<RejectWith>,
}

/// What a rule has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterStatistics {
    /// Bytes of the packets that it decided, without link headers.
    pub bytes: u64,
    /// Packets that it decided.
    pub packets: u64,
    /// How many of them were dropped.
    pub drops: u64,
}
