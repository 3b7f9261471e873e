//! Security policies.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use types::{
    DefaultAction, Direction, DscpSelector, Family, IpRange, OctetRange, PolicyAction, PolicyName,
    PortRange, Protocol, SaMode, TcpFlagsSelector,
};

use crate::object::Origin;
use crate::state::Counters;
use crate::{is_zero, main_vrf};

/// Which packets a policy is for. What is absent is not looked at.
///
/// Where one of the addresses is given, the other is every address of the same family; where none
/// is, both are every IPv4 address, as with iproute2. The tables have a selector of their own, in
/// which what is absent here is filled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// Source addresses: `ADDRESS`, `PREFIX` or `FIRST-LAST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpRange>,
    /// Destination addresses: `ADDRESS`, `PREFIX` or `FIRST-LAST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpRange>,
    /// Upper-layer protocol, by name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Source ports, of a protocol that has ports: `PORT` or `FIRST-LAST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<PortRange>,
    /// Destination ports, of a protocol that has ports: `PORT` or `FIRST-LAST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_ports: Option<PortRange>,
    /// ICMP or ICMPv6 types: `TYPE` or `FIRST-LAST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<OctetRange>,
    /// ICMP or ICMPv6 codes: `CODE` or `FIRST-LAST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<OctetRange>,
    /// DSCP: `NAME`, `NUMBER` or `VALUE/MASK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<DscpSelector>,
    /// TCP flags, of protocol TCP: `FLAGS/MASK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_flags: Option<TcpFlagsSelector>,
    /// TTL of IPv4, hop limit of IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
}

/// A policy to add, or to change an existing one to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// The VRF whose packets it is for.
    #[serde(default = "main_vrf")]
    pub vrf: String,
    /// Links it with an xfrm link, whose packets it is for; 0 is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub if_id: u32,
    /// Which lookup it takes part in.
    pub direction: Direction,
    /// Which packets it is for.
    #[serde(default)]
    pub selector: Selector,
    /// Smaller wins; ties go to the one added first.
    #[serde(default)]
    pub priority: u32,
    /// What happens to the packets.
    pub action: PolicyAction,
    /// Which SAs protect them: of action `protect`, and of it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// What it is called. Several policies may have the same name, as the directions of one tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PolicyName>,
}

/// Which SAs a protect policy uses: ESP in tunnel mode. The tables' template is the same without
/// the mode and without an SPI of 0, which is iproute2's word for any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The VRF of the outer packets; that of the policy if none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// The tunnel's source, or any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The tunnel's destination.
    pub destination: IpAddr,
    /// One SA alone, or any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spi: Option<u32>,
    /// The reqid that SAs must have; 0 is any.
    #[serde(default)]
    pub reqid: u32,
    /// Tunnel, until there are others.
    #[serde(default)]
    pub mode: SaMode,
}

/// Names one policy: by its index, or by its selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyId {
    /// The VRF whose packets it is for.
    #[serde(default = "main_vrf")]
    pub vrf: String,
    /// Links it with an xfrm link, whose packets it is for; 0 is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub if_id: u32,
    /// Which lookup it takes part in.
    pub direction: Direction,
    /// Its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Its selector, where no index is given.
    #[serde(default)]
    pub selector: Selector,
}

/// Which policies are meant. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFilter {
    /// Those of one VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Those for packets of one address family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Those of one direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The one with this index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Those with one action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<PolicyAction>,
    /// Those with one priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Those of the xfrm link with this `if_id`; 0: those of no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_id: Option<u32>,
    /// Those of one name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PolicyName>,
    /// Those whose selector has the parts given here.
    #[serde(default)]
    pub selector: Selector,
}

/// The most policies of one page.
pub const MAX_POLICY_PAGE: u32 = 4096;

/// A page of the policies of one VRF or xfrm link and direction, in the order in which they are tried.
/// There are no more behind one that is not full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyPage {
    /// The VRF whose packets they are for.
    #[serde(default = "main_vrf")]
    pub vrf: String,
    /// Links them with an xfrm link, whose packets they are for; 0 is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub if_id: u32,
    /// Which lookup they take part in.
    pub direction: Direction,
    /// Behind this one; from the first on if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<PolicyPlace>,
    /// So many at most, from 1 to [`MAX_POLICY_PAGE`].
    pub most: u32,
}

/// Where a policy stood among others. Policies that come and go from page to page are shown or not,
/// and all others once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyPlace {
    /// Its index.
    pub index: u32,
    /// Its priority: if it is gone, those of higher ones are behind it, and of the same those that
    /// were added later.
    pub priority: u32,
}

/// A policy as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyView {
    /// Its number, unique while the gateway runs.
    pub index: u32,
    /// Its place among the policies of its direction, from 1: they are tried in this order.
    /// Absent where a policy is told by itself.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub position: u32,
    /// As it was asked for, with all addresses said.
    #[serde(flatten)]
    pub spec: PolicySpec,
    /// Who asked for it.
    pub origin: Origin,
    /// Packets and bytes that it decided.
    #[serde(flatten)]
    pub traffic: Counters,
}

/// How many policies there are, of VRFs and xfrm links together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyCounts {
    /// Of direction in.
    #[serde(rename = "in")]
    pub inbound: u64,
    /// Of direction out.
    #[serde(rename = "out")]
    pub outbound: u64,
    /// Of direction fwd.
    #[serde(rename = "fwd")]
    pub forward: u64,
}

/// Sets default actions of one VRF. What is absent stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// The VRF.
    #[serde(default = "main_vrf")]
    pub vrf: String,
    /// Of direction in.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub inbound: Option<DefaultAction>,
    /// Of direction out.
    #[serde(default, rename = "out", skip_serializing_if = "Option::is_none")]
    pub outbound: Option<DefaultAction>,
    /// Of direction fwd.
    #[serde(default, rename = "fwd", skip_serializing_if = "Option::is_none")]
    pub forward: Option<DefaultAction>,
}

/// Default actions of one VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultActionView {
    /// The VRF.
    pub vrf: String,
    /// Of direction in.
    #[serde(rename = "in")]
    pub inbound: DefaultAction,
    /// Of direction out.
    #[serde(rename = "out")]
    pub outbound: DefaultAction,
    /// Of direction fwd.
    #[serde(rename = "fwd")]
    pub forward: DefaultAction,
}
