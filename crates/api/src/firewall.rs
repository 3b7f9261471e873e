//! The firewall: zones, and what may pass from one to another.

use serde::{Deserialize, Serialize};
use types::{IpPrefix, IpRange};

use std::net::IpAddr;

/// The zone that the gateway's own addresses are.
pub const GATEWAY_ZONE: &str = "gateway";

/// What becomes of a packet that opens a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirewallAction {
    /// It passes, and so does all that belongs to its connection.
    Accept,
    /// It is dropped.
    #[default]
    Drop,
    /// It is dropped, and its sender is told.
    Reject,
}

impl FirewallAction {
    /// The actions by name.
    pub const WORDS: &[(&'static str, Self)] =
        &[("accept", Self::Accept), ("drop", Self::Drop), ("reject", Self::Reject)];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
            Self::Reject => "reject",
        }
    }
}

/// Which packets get the address of the port by which they leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Masquerade {
    /// Those of IPv4.
    Ipv4,
    /// Those of IPv6.
    Ipv6,
    /// All.
    Both,
}

impl Masquerade {
    /// The values by name.
    pub const WORDS: &[(&'static str, Self)] =
        &[("ipv4", Self::Ipv4), ("ipv6", Self::Ipv6), ("both", Self::Both)];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Both => "both",
        }
    }

    /// Whether packets of a family are translated.
    pub const fn is_for(self, v6: bool) -> bool {
        match self {
            Self::Ipv4 => !v6,
            Self::Ipv6 => v6,
            Self::Both => true,
        }
    }
}

/// A zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZoneSpec {
    /// Its name.
    pub name: String,
    /// Ports, xfrm links among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// VRFs: those of their ports that no other zone names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vrfs: Vec<String>,
    /// Networks behind tunnels that are no xfrm links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<IpPrefix>,
    /// The VRF of these networks; `main` if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networks_vrf: Option<String>,
    /// Which packets that leave into the zone get the address of their port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<Masquerade>,
    /// Connections that may come from the zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// Connections that may come from each of its addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections_per_source: Option<u32>,
}

impl ZoneSpec {
    /// Whether the connections that come from it are limited.
    pub fn is_limited(&self) -> bool {
        self.max_connections.is_some() || self.max_connections_per_source.is_some()
    }
}

/// A service with a name of the user's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceSpec {
    /// Its name.
    pub name: String,
    /// Protocols and ports, as in `tcp/8000-8010`; or other services.
    pub services: Vec<String>,
}

/// What may pass from some zones to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZonePolicySpec {
    /// Where packets come from.
    pub from: Vec<String>,
    /// Where they go to.
    pub to: Vec<String>,
    /// Tried in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FirewallRuleSpec>,
    /// What becomes of packets that match no rule.
    pub action: FirewallAction,
    /// Such packets are logged with this prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// A rule of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FirewallRuleSpec {
    /// Services; any if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// Sources; any if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpRange>,
    /// Destinations, behind the translation of a forwarded port; any if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<IpRange>,
    /// What becomes of the packets.
    pub action: FirewallAction,
    /// They are logged with this prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// A port that is forwarded to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardSpec {
    /// Zones from which the port can be reached.
    pub from: Vec<String>,
    /// Zones inside, from which it can be reached under the same address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hairpin: Vec<String>,
    /// Addresses to which packets go; those of the ports of `from` if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The ports, as in `tcp/8080`.
    pub service: String,
    /// Who may reach it; everybody if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpRange>,
    /// The host.
    pub to: IpAddr,
    /// Its port, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_port: Option<u16>,
    /// New connections are logged with this prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// Sources that are translated to fixed addresses, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SnatSpec {
    /// Where packets come from.
    pub from: Vec<String>,
    /// Where they go to.
    pub to: Vec<String>,
    /// Sources; any if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpRange>,
    /// Destinations; any if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<IpRange>,
    /// The addresses that sources become; without, they stay what they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<IpRange>,
    /// The ports to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<(u16, u16)>,
}

/// The whole firewall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FirewallSpec {
    /// What becomes of packets between zones that no policy names, and of those of no zone.
    pub default: FirewallAction,
    /// Such packets are logged with this prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Packets that belong to no connection and can open none are logged with this prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_invalid: Option<String>,
    /// Packets of connections whose route leads elsewhere now are logged with this prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_rerouted: Option<String>,
    /// The zones.
    pub zones: Vec<ZoneSpec>,
    /// Services with names of the user's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceSpec>,
    /// What may pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<ZonePolicySpec>,
    /// Ports that are forwarded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forwards: Vec<ForwardSpec>,
    /// Sources that are translated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub snats: Vec<SnatSpec>,
}

/// What a change of the firewall has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirewallReport {
    /// Flows that were added.
    pub added: u64,
    /// Flows that were removed.
    pub removed: u64,
    /// Connections that the new rules do not allow, and that were ended.
    pub fell: u64,
    /// Whether some connections are still to be judged.
    pub is_judging: bool,
}

/// Packets that opened connections, or tried to, and those of connections that were not answered yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirewallCount {
    /// Packets.
    pub packets: u64,
    /// Bytes of these, without link headers.
    pub bytes: u64,
}

/// The firewall, and what it has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirewallView {
    /// What it is.
    pub spec: FirewallSpec,
    /// Who asked for it.
    pub origin: crate::object::Origin,
    /// The flows that it became.
    pub flows: u64,
    /// The VRFs that it is in.
    pub vrfs: Vec<String>,
    /// By policy, the rules in order, and behind them the packets that match none.
    pub policies: Vec<Vec<FirewallCount>>,
    /// By forwarded port.
    pub forwards: Vec<FirewallCount>,
    /// By translation of sources.
    pub snats: Vec<FirewallCount>,
    /// By zone, packets that were masqueraded.
    pub masqueraded: Vec<FirewallCount>,
    /// By zone, connections that have come from it; none if no zone has a limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<u32>,
    /// Packets between zones that no policy names, and from or to no zone.
    pub unnamed: FirewallCount,
    /// Packets that belong to no connection and can open none.
    pub invalid: FirewallCount,
    /// Packets of connections whose route leads to another zone than when they began, or by another port
    /// than the one whose address they have.
    #[serde(default)]
    pub rerouted: FirewallCount,
    /// Connections that were ended by the last change.
    pub fell: u64,
    /// Whether some connections are still to be judged.
    pub is_judging: bool,
    /// What is worth a word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}
