//! Security policies.

use core::fmt;
use core::str::FromStr;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use wire::{IpRange, PortRange, Protocol};

use crate::main_vrf;
use crate::object::{Family, Origin};
use crate::protocol;
use crate::state::{Counters, Mode};

/// Which lookup a policy takes part in, in Linux's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Packets for the gateway itself; and forwarded ones too where the VRF has no `fwd` policy.
    In,
    /// Packets that leave.
    Out,
    /// Packets that came in and are forwarded.
    Fwd,
}

/// Which packets a policy is for. What is absent is not looked at.
///
/// Where one of the addresses is given, the other is every address of the same family; where none
/// is, both are every IPv4 address, as with iproute2.
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
    #[serde(default, with = "protocol::optional", skip_serializing_if = "Option::is_none")]
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
}

/// An inclusive range of ICMP types or codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OctetRange {
    first: u8,
    last: u8,
}

/// A policy to add, or to change an existing one to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// The VRF whose packets it is for.
    #[serde(default = "main_vrf")]
    pub vrf: String,
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
}

/// What a policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyAction {
    /// Outbound: encrypt. Inbound: must have been encrypted.
    Protect,
    /// Let pass in clear.
    Bypass,
    /// Drop.
    Discard,
}

/// Which SAs a protect policy uses: ESP in tunnel mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
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
    pub mode: Mode,
}

/// Names one policy: by its index, or by its selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyId {
    /// The VRF whose packets it is for.
    #[serde(default = "main_vrf")]
    pub vrf: String,
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
    /// Those whose selector has the parts given here.
    #[serde(default)]
    pub selector: Selector,
}

/// A policy as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyView {
    /// Its number, unique while the gateway runs.
    pub index: u32,
    /// Its place among the policies of its direction, from 1: they are tried in this order.
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

/// What happens to packets that no policy matches, in a VRF that has policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultAction {
    /// They are dropped.
    Block,
    /// They pass in clear.
    Accept,
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

impl OctetRange {
    /// Everything.
    pub const ALL: Self = Self { first: 0, last: u8::MAX };

    /// From `first` to `last`, both inside; `None` where that is the wrong way round.
    pub const fn new(first: u8, last: u8) -> Option<Self> {
        if first > last { None } else { Some(Self { first, last }) }
    }

    /// The lowest.
    pub const fn first(self) -> u8 {
        self.first
    }

    /// The highest.
    pub const fn last(self) -> u8 {
        self.last
    }
}

/// `NUMBER`, or `FIRST-LAST`.
impl fmt::Display for OctetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for OctetRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let octet = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
            true => text
                .parse()
                .map_err(|_| "a number from 0 to 255 is needed, or a range of them as in 0-8"),
            false => Err("a number from 0 to 255 is needed, or a range of them as in 0-8"),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Self::new(octet(first)?, octet(last)?)
            .ok_or("the first of a range must not be greater than the last")
    }
}

impl Serialize for OctetRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OctetRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = OctetRange;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 255, or a range of them as in \"0-8\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OctetRange, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<OctetRange, E> {
                let octet = u8::try_from(number)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))?;
                Ok(OctetRange { first: octet, last: octet })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Direction {
    /// All three, in iproute2's order.
    pub const ALL: [Self; 3] = [Self::In, Self::Out, Self::Fwd];

    /// iproute2's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Fwd => "fwd",
        }
    }
}

impl PolicyAction {
    /// Its name in configuration and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Protect => "protect",
            Self::Bypass => "bypass",
            Self::Discard => "discard",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for PolicyAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for DefaultAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block => "block",
            Self::Accept => "accept",
        })
    }
}
