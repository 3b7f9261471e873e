//! Policy rules.

use serde::{Deserialize, Serialize};
use types::{DscpSelector, Family, IpPrefix, PortRange, Protocol};

use crate::object::Origin;

/// What a policy rule does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    /// The route is in the routing table of this number, if it has one.
    Table(u32),
    /// The route is in the routing table of this VRF, if it has one.
    Vrf(String),
    /// The route is in the table of the packet's own VRF, if that is another one than `main`.
    L3mdev,
    /// The first rule of this priority is the next one.
    Goto(u32),
    /// The sender is told that the destination is unreachable.
    Unreachable,
    /// The sender is told that the packet is prohibited.
    Prohibit,
    /// The packet is dropped.
    Blackhole,
}

/// A policy rule; or, of those to remove or to show, what they have to say. What is absent is not
/// looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Of which address family. IPv4 if nothing says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Its place in the order. Chosen in front of all others if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpPrefix>,
    /// The destinations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<IpPrefix>,
    /// The port or the VRF that packets come by; `lo` for the gateway's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iif: Option<String>,
    /// The VRF in which the gateway itself sends them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oif: Option<String>,
    /// Their mark, and which of its bits matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fwmark: Option<(u32, u32)>,
    /// Their protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipproto: Option<Protocol>,
    /// Their source ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<PortRange>,
    /// Their destination ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<PortRange>,
    /// Their DSCP, with all its bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<DscpSelector>,
    /// What happens to them. A rule that is added without it asks the table of VRF main, as with
    /// iproute2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<RuleAction>,
    /// Routes of the table with prefixes of this length and shorter ones do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_prefixlength: Option<u8>,
}

/// A policy rule as it is, in the words of `ip -json rule`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleView {
    /// Of which address family.
    pub family: Family,
    /// Its place in the order.
    pub priority: u32,
    /// The sources: an address, or `all`.
    pub src: String,
    /// The length of their prefix, unless they are all or one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srclen: Option<u8>,
    /// The destinations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<String>,
    /// The length of their prefix, unless they are one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dstlen: Option<u8>,
    /// The mark, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fwmark: Option<String>,
    /// Which of its bits matter, unless all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fwmask: Option<String>,
    /// The port or the VRF that packets come by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iif: Option<String>,
    /// Whether there is no such port or VRF now, so that the rule is not asked.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub iif_detached: bool,
    /// The VRF in which the gateway itself sends them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oif: Option<String>,
    /// Whether there is no such VRF now, so that the rule is not asked.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub oif_detached: bool,
    /// The protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipproto: Option<String>,
    /// The source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// The first of the source ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport_start: Option<u16>,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport_end: Option<u16>,
    /// The destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
    /// The first of the destination ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport_start: Option<u16>,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport_end: Option<u16>,
    /// The DSCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<String>,
    /// The table: `local`, `main`, or its number; the name of its VRF if that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Whether there is no such VRF now, so that the rule is not asked.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub table_detached: bool,
    /// Routes of the table with prefixes of this length and shorter ones do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_prefixlen: Option<u8>,
    /// Whether the table is that of the packet's VRF.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub l3mdev: bool,
    /// The priority of the next rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goto: Option<u32>,
    /// Whether there is no such rule, so that the one behind this decides.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub unresolved: bool,
    /// `unreachable`, `prohibit` or `blackhole`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Who asked for it.
    pub origin: Origin,
}
