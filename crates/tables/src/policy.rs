//! Security policies (RFC 4301 section 4.4.1).

use core::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use wire::{Addresses, FlowKey, IpRange, PortRange, Protocol, Spi, Upper, VrfId};

use crate::counters::FlowCounters;

/// Which lookup a policy takes part in, in Linux's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Packets for the gateway itself; and forwarded ones too where the VRF has no `fwd` policy.
    In,
    /// Packets that leave.
    Out,
    /// Packets that came in and are forwarded.
    Fwd,
}

impl Direction {
    /// All three, in iproute2's numbering.
    pub const ALL: [Self; 3] = [Self::In, Self::Out, Self::Fwd];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Fwd => "fwd",
        })
    }
}

/// What happens to a packet that no policy matches, in a VRF that has policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultAction {
    /// Discard (RFC 4301 section 5.1, step 3a).
    #[default]
    Block,
    /// Let it pass in clear, as Linux does unless told otherwise.
    Accept,
}

/// Upper-layer part of a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpperSelector {
    /// Anything, packets whose upper-layer fields cannot be seen included.
    Any,
    /// Port ranges.
    Ports {
        /// Source ports.
        source: PortRange,
        /// Destination ports.
        destination: PortRange,
    },
    /// ICMP type and code ranges.
    Icmp {
        /// Lowest and highest type.
        kind: (u8, u8),
        /// Lowest and highest code.
        code: (u8, u8),
    },
}

/// Which packets a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Source addresses.
    pub source: IpRange,
    /// Destination addresses, of the same family.
    pub destination: IpRange,
    /// Upper-layer protocol, or any.
    pub protocol: Option<Protocol>,
    /// Upper-layer fields.
    pub upper: UpperSelector,
}

impl Selector {
    /// Whether the packet that `key` names is selected.
    ///
    /// A port or ICMP range other than [`UpperSelector::Any`] does not match a packet in which the field is not to be seen.
    #[inline]
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.source.contains(key.addresses.source())
            && self.destination.contains(key.addresses.destination())
            && self.protocol.is_none_or(|protocol| protocol == key.protocol)
            && match (self.upper, key.upper) {
                (UpperSelector::Any, _) => true,
                (UpperSelector::Ports { source, destination }, Upper::Ports { source: from, destination: to }) => {
                    source.contains(from) && destination.contains(to)
                }
                (UpperSelector::Icmp { kind, code }, Upper::Icmp { kind: k, code: c, .. }) => {
                    kind.0 <= k && k <= kind.1 && code.0 <= c && c <= code.1
                }
                _ => false,
            }
    }
}

/// Which SAs a protect policy uses, in the sense of iproute2's `tmpl`. ESP in tunnel mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    /// The tunnel's source, or any.
    pub source: Option<IpAddr>,
    /// The tunnel's destination.
    pub destination: IpAddr,
    /// Links policies and SAs; 0 is any.
    pub reqid: u32,
    /// One SA only, or any.
    pub spi: Option<Spi>,
}

/// What a policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Let pass in clear.
    Bypass,
    /// Drop.
    Discard,
    /// Outbound: encrypt with an SA of the template. Inbound: must have been decrypted by one.
    Protect(Template),
}

/// A policy as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PolicySpec {
    /// The VRF whose packets it is for.
    pub vrf: VrfId,
    /// Which lookup it takes part in.
    pub direction: Direction,
    /// Smaller wins; ties go to the one added first (Linux's order).
    pub priority: u32,
    /// Which packets.
    pub selector: Selector,
    /// What happens to them.
    pub action: Action,
}

/// A policy in the SPD.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its number, unique while the gateway runs. Shown as `index`, and never given to another policy.
    pub index: u32,
    /// As it was asked for.
    pub spec: PolicySpec,
    /// Packets and bytes that it decided, kept when the policy is updated.
    pub counters: Arc<FlowCounters>,
}

impl Template {
    /// Whether SAs of this identity serve the template.
    pub fn admits(&self, identity: &crate::SaIdentity) -> bool {
        self.destination == identity.destination
            && self.source.is_none_or(|source| source == identity.source)
            && (self.reqid == 0 || self.reqid == identity.reqid)
    }
}

/// The selector that matches every packet of one family.
impl Selector {
    /// Every packet of the family of `addresses`.
    pub fn all_of(addresses: &Addresses) -> Self {
        let range = if addresses.is_v6() { IpRange::ALL_V6 } else { IpRange::ALL_V4 };
        Self { source: range, destination: range, protocol: None, upper: UpperSelector::Any }
    }
}
