//! Security policies (RFC 4301 section 4.4.1).

use core::fmt;
use std::net::IpAddr;

pub(crate) use types::IfId;
use types::station::check_station;
pub use types::{DefaultAction, Direction, FieldsSelector, PolicySlot};
use types::{DscpSelector, TcpFlagsSelector};
use wire::{Addresses, FlowKey, IpRange, PortRange, Protocol, Spi, Upper, VrfId};

use crate::counters::FlowCounters;
use crate::error::{SelectorError, TunnelError};
use crate::map::MapKey;

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

/// Which packets a policy is for, with nothing left unsaid: users write one in which parts may be
/// absent, and control fills those in.
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
    /// TCP flags, DSCP, TTL or hop limit.
    pub fields: FieldsSelector,
}

impl Selector {
    /// Whether it selects all that another one does, as far as one is compared with the other part by part.
    pub fn covers(&self, other: &Self) -> bool {
        let upper = match (self.upper, other.upper) {
            (UpperSelector::Any, _) => true,
            // It also selects packets whose ports are not to be seen.
            (_, UpperSelector::Any) => false,
            (one, other) => {
                let mut pairs = one.bounds().into_iter().zip(other.bounds());
                one.is_like(other)
                    && pairs.all(|((from, to), (first, last))| from <= first && last <= to)
            }
        };
        let is_of_protocol = self.protocol.is_none() || self.protocol == other.protocol;
        let is_of_fields = self.fields == FieldsSelector::ANY || self.fields == other.fields;
        let has =
            |all: IpRange, part: IpRange| all.contains(part.first()) && all.contains(part.last());
        is_of_protocol
            && is_of_fields
            && upper
            && has(self.source, other.source)
            && has(self.destination, other.destination)
    }

    /// The destinations to which it selects all that its sources send, if it does.
    pub fn all_to(&self) -> Option<IpRange> {
        let selects_all = self.protocol.is_none()
            && self.upper == UpperSelector::Any
            && self.fields == FieldsSelector::ANY;
        selects_all.then_some(self.destination)
    }

    /// Whether a packet may be selected by both. TCP flags, DSCP and TTL are not looked at.
    pub fn overlaps(&self, other: &Self) -> bool {
        let meet = |one: IpRange, other: IpRange| {
            one.contains(other.first()) || other.contains(one.first())
        };
        let is_of_protocol = match (self.protocol, other.protocol) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let upper = match (self.upper, other.upper) {
            (UpperSelector::Any, _) | (_, UpperSelector::Any) => true,
            (one, other) => {
                let mut pairs = one.bounds().into_iter().zip(other.bounds());
                one.is_like(other) && pairs.all(|((a, b), (c, d))| a <= d && c <= b)
            }
        };
        is_of_protocol
            && upper
            && meet(self.source, other.source)
            && meet(self.destination, other.destination)
    }
}

impl UpperSelector {
    /// Whether both are of the same protocols' headers.
    fn is_like(&self, other: Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(&other)
    }

    /// Lowest and highest of its two numbers.
    fn bounds(&self) -> [(u16, u16); 2] {
        match *self {
            Self::Any => [(0, u16::MAX); 2],
            Self::Ports { source, destination } => {
                [source, destination].map(|range| (range.first(), range.last()))
            }
            Self::Icmp { kind, code } => [kind, code].map(|(a, b)| (a.into(), b.into())),
        }
    }
}

/// In iproute2's words, without what selects every packet.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, protocol, upper, fields } = self;
        write!(f, "src {source} dst {destination}")?;
        if let Some(protocol) = protocol {
            write!(f, " proto {protocol}")?;
        }
        match upper {
            UpperSelector::Any => {}
            UpperSelector::Ports { source, destination } => {
                for (word, ports) in [("sport", source), ("dport", destination)] {
                    if !ports.is_all() {
                        write!(f, " {word} {ports}")?;
                    }
                }
            }
            UpperSelector::Icmp { kind, code } => {
                for (word, (first, last)) in [("type", *kind), ("code", *code)] {
                    match (first, last) {
                        (0, u8::MAX) => {}
                        _ if first == last => write!(f, " {word} {first}")?,
                        _ => write!(f, " {word} {first}-{last}")?,
                    }
                }
            }
        }
        let (value, mask) = (fields.value(), fields.mask());
        if let Ok(dscp) = DscpSelector::new(value.dscp().bits(), mask.dscp().bits()) {
            write!(f, " dscp {dscp}")?;
        }
        if let Ok(flags) = TcpFlagsSelector::new(value.tcp_flags(), mask.tcp_flags()) {
            write!(f, " tcp-flags {flags}")?;
        }
        if mask.hop_limit() != 0 {
            let word = if source.is_v6() { "hoplimit" } else { "ttl" };
            write!(f, " {word} {}", value.hop_limit())?;
        }
        Ok(())
    }
}

impl Selector {
    /// Every packet of the family of `addresses`.
    pub fn all_of(addresses: &Addresses) -> Self {
        let range = if addresses.is_v6() { IpRange::ALL_V6 } else { IpRange::ALL_V4 };
        let (upper, fields) = (UpperSelector::Any, FieldsSelector::ANY);
        Self { source: range, destination: range, protocol: None, upper, fields }
    }

    /// Whether the packet that `key` names is selected.
    ///
    /// A port or ICMP range other than [`UpperSelector::Any`] does not match a packet in which the
    /// field is not to be seen, and neither do TCP flags: where a TCP packet's ports are known, its
    /// flags are.
    #[inline]
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.source.contains(key.addresses.source())
            && self.destination.contains(key.addresses.destination())
            && self.protocol.is_none_or(|protocol| protocol == key.protocol)
            && match (self.upper, key.upper) {
                (UpperSelector::Any, _) => true,
                (
                    UpperSelector::Ports { source, destination },
                    Upper::Ports { source: from, destination: to },
                ) => source.contains(from) && destination.contains(to),
                (UpperSelector::Icmp { kind, code }, Upper::Icmp { kind: k, code: c, .. }) => {
                    kind.0 <= k && k <= kind.1 && code.0 <= c && c <= code.1
                }
                _ => false,
            }
            && self.fields.matches(key.fields)
            && (!self.fields.asks_tcp_flags() || matches!(key.upper, Upper::Ports { .. }))
    }

    /// Refuses what no packet can be.
    ///
    /// # Errors
    /// What does not go together.
    pub fn check(&self) -> Result<(), SelectorError> {
        let (source, destination, protocol) = (self.source, self.destination, self.protocol);
        if source.is_v6() != destination.is_v6() {
            return Err(SelectorError::Families { from: source, to: destination });
        }
        if self.fields.asks_tcp_flags() && protocol != Some(Protocol::TCP) {
            return Err(SelectorError::TcpFlags(protocol));
        }
        let icmp = if source.is_v6() { Protocol::ICMPV6 } else { Protocol::ICMP };
        match self.upper {
            UpperSelector::Any => Ok(()),
            UpperSelector::Ports { .. } if protocol.is_some_and(Protocol::has_ports) => Ok(()),
            UpperSelector::Ports { .. } => Err(SelectorError::Ports(protocol)),
            UpperSelector::Icmp { .. } if protocol != Some(icmp) => {
                Err(SelectorError::Icmp { protocol, expected: icmp })
            }
            UpperSelector::Icmp { kind, .. } if kind.0 > kind.1 => {
                Err(SelectorError::Reversed("types"))
            }
            UpperSelector::Icmp { code, .. } if code.0 > code.1 => {
                Err(SelectorError::Reversed("codes"))
            }
            UpperSelector::Icmp { .. } => Ok(()),
        }
    }
}

/// Which SAs a protect policy uses, in the sense of iproute2's `tmpl`. ESP in tunnel mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    /// The VRF of the outer packets; that of the policy if none is said.
    pub vrf: Option<VrfId>,
    /// The tunnel's source, or any.
    pub source: Option<IpAddr>,
    /// The tunnel's destination.
    pub destination: IpAddr,
    /// Links policies and SAs; 0 is any.
    pub reqid: u32,
    /// One SA only, or any.
    pub spi: Option<Spi>,
}

/// What a policy does: users' [`types::PolicyAction`], with the template that protecting needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Let pass in clear.
    Bypass,
    /// Drop.
    Discard,
    /// Outbound: encrypt with an SA of the template. Inbound: must have been decrypted by one.
    Protect(Template),
}

/// Whose packets policies are for. An SA serves the policies of one scope alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Those of a VRF.
    Vrf(VrfId),
    /// Those that leave or enter by the xfrm link with this `if_id`, and no others.
    Link(IfId),
}

impl Scope {
    pub(crate) fn of(vrf: VrfId, if_id: Option<IfId>) -> Self {
        if_id.map_or(Self::Vrf(vrf), Self::Link)
    }

    /// The link's `if_id`.
    pub const fn if_id(self) -> Option<IfId> {
        match self {
            Self::Vrf(_) => None,
            Self::Link(if_id) => Some(if_id),
        }
    }

    /// No two scopes have one word.
    pub(crate) fn to_word(self) -> u64 {
        match self {
            Self::Vrf(vrf) => vrf.0.into(),
            Self::Link(if_id) => 1 << 32 | u64::from(if_id.number()),
        }
    }
}

impl From<VrfId> for Scope {
    fn from(vrf: VrfId) -> Self {
        Self::Vrf(vrf)
    }
}

/// What a policy is configured to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PolicySpec {
    /// The VRF whose packets it is for. With an `if_id`, only that of the outer packets, if the
    /// template says none.
    pub vrf: VrfId,
    /// The xfrm link whose packets it is for, instead of those of a VRF.
    pub if_id: Option<IfId>,
    /// Which lookup it takes part in.
    pub direction: Direction,
    /// Smaller wins; ties go to the one added first (Linux's order).
    pub priority: u32,
    /// Which packets.
    pub selector: Selector,
    /// What happens to them.
    pub action: Action,
}

impl PolicySpec {
    /// Whose packets it is for.
    #[inline]
    pub fn scope(&self) -> Scope {
        Scope::of(self.vrf, self.if_id)
    }

    /// The same policy, said in the one way in which the tables have it: that of a link is in no
    /// VRF, and its template says that of the outer packets.
    pub(crate) fn canonical(self) -> Self {
        if self.if_id.is_none() {
            return self;
        }
        let action = match self.action {
            Action::Protect(template) => {
                let vrf = Some(template.vrf.unwrap_or(self.vrf));
                Action::Protect(Template { vrf, ..template })
            }
            other => other,
        };
        Self { vrf: VrfId::MAIN, action, ..self }
    }
}

/// Names a policy without holding it; any snapshot finds it in constant time. Slots are dense and
/// reused. The index never is, so it shows whether the slot still has the same policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PolicyHandle {
    /// Where [`crate::Tables::policy`] looks.
    pub slot: u32,
    /// The policy's index.
    pub index: u32,
}

impl PolicyHandle {
    /// The same without the index.
    pub const fn place(self) -> PolicySlot {
        PolicySlot(self.slot)
    }
}

/// A policy in the SPD.
///
/// It begins a cache line, so that its reference count is on another line: a change copies lists of
/// policies and writes the counts, while workers read the policies.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Policy {
    /// How decisions name it.
    pub handle: PolicyHandle,
    /// Its number, unique while the gateway runs. Shown as `index`, and never given to another
    /// policy.
    pub index: u32,
    /// As configured.
    pub spec: PolicySpec,
    /// Packets and bytes that it decided, kept when the policy is updated.
    pub counters: FlowCounters,
}

impl Template {
    /// The VRF of the outer packets, of a policy of this scope.
    #[inline]
    pub fn outer_vrf(&self, scope: impl Into<Scope>) -> VrfId {
        self.vrf.unwrap_or(match scope.into() {
            Scope::Vrf(vrf) => vrf,
            // The tables have no template of a link that says none.
            Scope::Link(_) => VrfId::MAIN,
        })
    }

    /// Whether SAs of this identity serve the template of a policy of this scope.
    pub fn admits(&self, scope: impl Into<Scope>, identity: &crate::SaIdentity) -> bool {
        let scope = scope.into();
        identity.scope() == scope
            && identity.vrf == self.outer_vrf(scope)
            && self.destination == identity.destination
            && self.source.is_none_or(|source| source == identity.source)
            && (self.reqid == 0 || self.reqid == identity.reqid)
    }

    /// Refuses ends and an SPI that no tunnel can have.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), TunnelError> {
        check_tunnel(self.source.unwrap_or(self.destination), self.destination, self.spi)
    }
}

/// Refuses tunnels between families, those to or from what is not one station, and SPI 0.
///
/// # Errors
/// What is wrong.
pub fn check_tunnel(
    source: IpAddr,
    destination: IpAddr,
    spi: Option<Spi>,
) -> Result<(), TunnelError> {
    for address in [source, destination] {
        check_station(address).map_err(|why| TunnelError::End { address, why })?;
    }
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(TunnelError::Families { from: source, to: destination });
    }
    if spi == Some(Spi(0)) { Err(TunnelError::SpiZero) } else { Ok(()) }
}

/// By what duplicates are found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SelectorKey {
    pub(crate) scope: Scope,
    pub(crate) direction: Direction,
    pub(crate) selector: Selector,
}

impl SelectorKey {
    pub(crate) fn of(spec: &PolicySpec) -> Self {
        Self { scope: spec.scope(), direction: spec.direction, selector: spec.selector }
    }
}

impl MapKey for SelectorKey {
    type Words = [u64; 12];

    fn to_words(&self) -> [u64; 12] {
        let Selector { source, destination, protocol, upper, fields: optional } = self.selector;
        let [[a, b], [c, d], [e, f], [g, h]] =
            [source.first(), source.last(), destination.first(), destination.last()]
                .map(|end| end.to_words());
        let (kind, fields) = match upper {
            UpperSelector::Any => (0, [0; 4]),
            UpperSelector::Ports { source, destination } => {
                (1, [source.first(), source.last(), destination.first(), destination.last()])
            }
            UpperSelector::Icmp { kind, code } => {
                (2, [kind.0, kind.1, code.0, code.1].map(u16::from))
            }
        };
        let fields = fields.into_iter().fold(0, |word, field| word << 16 | u64::from(field));
        let protocol = protocol.map_or(0, |protocol| 1 + u64::from(protocol.0));
        let rest = protocol << 16 | (self.direction as u64) << 8 | kind;
        let optional = u64::from(optional.value().bits()) << 32 | u64::from(optional.mask().bits());
        [a, b, c, d, e, f, g, h, fields, optional, rest, self.scope.to_word()]
    }
}

impl MapKey for IfId {
    type Words = [u64; 1];

    fn to_words(&self) -> [u64; 1] {
        [self.number().into()]
    }
}

impl MapKey for u32 {
    type Words = [u64; 1];

    fn to_words(&self) -> [u64; 1] {
        [(*self).into()]
    }
}
