//! Routes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use types::{Family, IpPrefix, RouteKind, RouteProtocol};

use crate::main_vrf;
use crate::object::Origin;

/// A route to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// The VRF whose packets it is for.
    #[serde(default = "main_vrf")]
    pub vrf: String,
    /// Its routing table, by number; that of `vrf` if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The destinations; no bits beyond the prefix length.
    pub destination: IpPrefix,
    /// What it does: `unicast`, `blackhole`, `unreachable` or `prohibit`.
    #[serde(default)]
    pub kind: RouteKind,
    /// The next hop, of the destination's family. Of kind `unicast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The port. Where absent, the one on whose link the next hop is. Of kind `unicast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The VRF of the port, if it is another one than the route's: packets leave there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_vrf: Option<String>,
    /// Whether the next hop is on the port's link though no prefix of the port's addresses holds it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub onlink: bool,
    /// Whether the next hop is on no link, and is reached by another route of the same table.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub recursive: bool,
    /// The gateway's own address in the route's VRF from which it speaks to the destinations. Of
    /// kind `unicast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefsrc: Option<IpAddr>,
    /// The VRF whose table says where packets go, in place of a next hop and a port. Of kind
    /// `unicast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nexthop_vrf: Option<String>,
    /// Several next hops in place of one, as of a multipath route with Linux: each flow goes by one
    /// of them. Of kind `unicast`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nexthops: Vec<MemberSpec>,
    /// Of several routes of one prefix, the one with the lowest is used.
    #[serde(default)]
    pub metric: u32,
    /// Who made it, which is only shown. If it is absent: `static` of the configuration file,
    /// `boot` of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<RouteProtocol>,
}

impl RouteSpec {
    /// The route that Linux makes of this one: several next hops of which there is one are an
    /// ordinary route by that one.
    #[must_use]
    pub fn with_own_way(mut self) -> Self {
        let is_free = self.via.is_none() && self.port.is_none();
        if let Some(one) = only_one(&mut self.nexthops, is_free) {
            (self.via, self.port) = (one.gateway, one.dev);
            (self.port_vrf, self.onlink) = (one.port_vrf, one.onlink);
        }
        self
    }
}

impl RouteId {
    /// The same of the route that is named.
    #[must_use]
    pub fn with_own_way(mut self) -> Self {
        let is_free = self.via.is_none() && self.port.is_none();
        if let Some(one) = only_one(&mut self.nexthops, is_free) {
            (self.via, self.port) = (one.gateway, one.dev);
        }
        self
    }
}

/// Takes the next hop of a route that has one alone, and no other way.
fn only_one(nexthops: &mut Vec<MemberSpec>, is_free: bool) -> Option<MemberSpec> {
    if is_free && nexthops.len() == 1 { nexthops.pop() } else { None }
}

/// One of several next hops of a route, with the names that iproute2 has for its parts in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberSpec {
    /// Its address, of the destination's family. Where absent, the destinations themselves are on
    /// the port's link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The port. Where absent, the one on whose link the next hop is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// The VRF of the port, if it is another one than the route's: packets leave there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_vrf: Option<String>,
    /// Whether the next hop is on the port's link though no prefix of the port's addresses holds it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub onlink: bool,
    /// Its share of the flows is this much of the sum of all weights; 1 to 256.
    #[serde(default = "one")]
    pub weight: u16,
}

fn one() -> u16 {
    1
}

/// Names the route to remove: of those that have every part given, the one with the lowest metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteId {
    /// The VRF.
    #[serde(default = "main_vrf")]
    pub vrf: String,
    /// Its routing table, by number; that of `vrf` if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The destinations.
    pub destination: IpPrefix,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<RouteKind>,
    /// Its next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Its port, or the VRF whose table says where packets go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The VRF whose table says where packets go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nexthop_vrf: Option<String>,
    /// Its next hops, if it has several: all of them, in any order. A weight of 1 is any, as with
    /// Linux.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nexthops: Vec<MemberSpec>,
    /// Its metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<RouteProtocol>,
}

/// Asks which route a destination takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteQuery {
    /// The VRF.
    #[serde(default = "main_vrf")]
    pub vrf: String,
    /// Its routing table, by number; that of `vrf` if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The destination.
    pub destination: IpAddr,
    /// The packet's source, which policy rules may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
    /// The port or VRF that the packet comes by; absent for one that the gateway itself sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iif: Option<String>,
    /// The packet's mark.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mark: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Which routes are meant. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteFilter {
    /// Those of one VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Those of one routing table, by number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Those of one address family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Those of one prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpPrefix>,
    /// Those inside a prefix (iproute2's `root`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<IpPrefix>,
    /// Those that hold a prefix (iproute2's `match`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holding: Option<IpPrefix>,
    /// Those of one kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<RouteKind>,
    /// Those of one maker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<RouteProtocol>,
    /// Those of one port, by which at least one of their next hops is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Those by one next hop, alone or among others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Also those of kind local and broadcast, and those of tables that no VRF has, which are left
    /// out otherwise.
    #[serde(default)]
    pub all: bool,
}

/// A route as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteView {
    /// The VRF whose packets it is for; absent if no VRF has its table.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vrf: String,
    /// Its routing table.
    #[serde(default)]
    pub table: u32,
    /// The destinations.
    pub destination: IpPrefix,
    /// What it does.
    pub kind: RouteKind,
    /// The next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The VRF of the port, if it is another one than the route's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_vrf: Option<String>,
    /// The VRF whose table says where packets go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nexthop_vrf: Option<String>,
    /// Whether its next hop is said to be on the port's link.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub onlink: bool,
    /// Whether its next hop is reached by another route of the same table.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub recursive: bool,
    /// The next hops on links that its recursive next hop comes to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolved: Vec<MemberView>,
    /// Why its recursive next hop comes to nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
    /// The gateway's own address from which the route says that it speaks to the destinations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefsrc: Option<IpAddr>,
    /// The gateway's own address on that port from which it sends to destinations of this route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The next hops, if it has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nexthops: Vec<MemberView>,
    /// Of several routes of one prefix, the one with the lowest is used.
    pub metric: u32,
    /// Whether packets take it: of the usable ones of its prefix, it has the lowest metric.
    pub active: bool,
    /// Whether packets could take it: it sends nowhere, or its port is up and reaches the next hop.
    /// Of several next hops, one is enough.
    pub usable: bool,
    /// Who asked for it.
    pub origin: Origin,
    /// Who made it, by iproute2's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<RouteProtocol>,
}

/// One of several next hops of a route, as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    /// Its address, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The port, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// The VRF of the port, if it is another one than the route's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_vrf: Option<String>,
    /// Its share of the flows is this much of the sum of all weights.
    pub weight: u16,
    /// `onlink` if it is said to be on the port's link. `dead` if no flow takes it while another one
    /// is there: its port is down, or does not reach it.
    pub flags: Vec<String>,
}

/// A next hop, and what was sent by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHopView {
    /// Names it as long as it exists; later, another one may get the number.
    pub id: u32,
    /// The VRF of its port.
    pub vrf: String,
    /// The port.
    pub port: String,
    /// Its address. `null` if it stands for all destinations on the link that have none of their
    /// own.
    pub address: Option<IpAddr>,
    /// `resolved`, `pending` (its Ethernet address is not known), `on-link` (every destination is
    /// asked for its own), `down`.
    pub state: String,
    /// The largest IP packet in bytes.
    pub mtu: u16,
    /// IP packets sent to it since it came.
    pub packets: u64,
    /// Their bytes, without link headers.
    pub bytes: u64,
}
