//! Policy rules: which routing tables are asked for a packet's route, and in which order.
//!
//! Each address family has a list. The first rules are those that the gateway has by itself: a
//! packet for an own address of its VRF is the gateway's, and [`own_priority`] is where the table of
//! its VRF is asked. A rule whose table has no route lets the next one decide.

use std::collections::BTreeMap;
use std::net::IpAddr;

use types::{Dscp, IpPrefix, MarkBits, PortRange, TableId};
use wire::{FlowKey, Origin, PacketFields, PortId, Protocol, Upper, VrfId};

/// Where the table of the VRF `main` is asked, for packets of `main`.
pub const MAIN_PRIORITY: u32 = 32_766;

/// Where the tables of other VRFs are asked, for packets of theirs.
pub const L3MDEV_PRIORITY: u32 = 1000;

/// Where the table of a packet's own VRF is asked.
pub const fn own_priority(vrf: VrfId) -> u32 {
    match vrf.0 {
        0 => MAIN_PRIORITY,
        _ => L3MDEV_PRIORITY,
    }
}

/// Where a packet comes from, as rules tell them apart (`iif`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleEntry {
    /// By this port.
    Port(PortId),
    /// By a port of this VRF, or decrypted in it.
    Vrf(VrfId),
    /// From the gateway itself (`lo`): what it sends, and the outer packets of tunnels.
    Own,
}

/// Which packets a rule is for. What is `None` is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSelector {
    /// Their sources, of the rule's family.
    pub source: IpPrefix,
    /// Their destinations, of the same.
    pub destination: IpPrefix,
    /// Where they come from.
    pub entry: Option<RuleEntry>,
    /// The VRF in which the gateway itself sends them (`oif`).
    pub sent_in: Option<VrfId>,
    /// The mark that filters have given them. Outer packets of tunnels have mark 0.
    pub mark: MarkBits,
    /// Their protocol.
    pub protocol: Option<Protocol>,
    /// Their source ports.
    pub source_ports: Option<PortRange>,
    /// Their destination ports.
    pub destination_ports: Option<PortRange>,
    /// Their DSCP.
    pub dscp: Option<Dscp>,
}

/// What a rule does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// The route is in this table, if it has one.
    Table {
        /// Which table.
        table: TableId,
        /// Routes with prefixes of this length and shorter ones do not count.
        suppress: Option<u8>,
    },
    /// The route is in the table of the packet's VRF, if that is another one than `main`.
    L3mdev,
    /// The first rule of this priority is the next one.
    Goto {
        /// Of another rule, behind this one.
        priority: u32,
        /// Whether there is one. If there is none, the next rule decides.
        is_resolved: bool,
    },
    /// There is no route, and the sender is told so.
    Unreachable,
    /// The packet is prohibited, and the sender is told so.
    Prohibit,
    /// The packet is dropped.
    Blackhole,
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its place in the order, smaller first. Rules with the same one are asked in the order in which
    /// they were added, and behind those of the gateway.
    pub priority: u32,
    /// Which packets.
    pub selects: RuleSelector,
    /// What happens to them.
    pub action: RuleAction,
}

/// A packet as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleFlow {
    /// Its VRF.
    pub vrf: VrfId,
    /// The port that it came by, if it came in clear.
    pub port: Option<PortId>,
    /// Whether it is the gateway's own.
    pub is_own: bool,
    /// Its source.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its source and destination port, if it has some.
    pub ports: Option<(u16, u16)>,
    /// Its DSCP.
    pub dscp: Dscp,
}

impl RuleFlow {
    /// Of a flow.
    pub fn of(key: &FlowKey) -> Self {
        let port = match key.origin {
            Origin::Port(port) => Some(port),
            _ => None,
        };
        let is_own =
            matches!(key.origin, Origin::Host | Origin::HostError(_) | Origin::HostProtected);
        let ports = match key.upper {
            Upper::Ports { source, destination } => Some((source, destination)),
            _ => None,
        };
        Self {
            vrf: key.vrf,
            port,
            is_own,
            source: key.addresses.source(),
            destination: key.addresses.destination(),
            protocol: key.protocol,
            ports,
            dscp: key.fields.dscp(),
        }
    }

    /// Of the outer packets of a tunnel in `vrf` that protect such packets.
    pub fn outer(inner: &FlowKey, vrf: VrfId, source: IpAddr, destination: IpAddr) -> Self {
        Self {
            vrf,
            port: None,
            is_own: true,
            source,
            destination,
            protocol: Protocol::ESP,
            ports: None,
            dscp: inner.fields.dscp(),
        }
    }
}

impl RuleSelector {
    /// Whether a packet is meant, whatever its mark is.
    pub fn matches_but_mark(&self, flow: &RuleFlow) -> bool {
        let enters = match self.entry {
            None => true,
            Some(RuleEntry::Port(port)) => flow.port == Some(port),
            Some(RuleEntry::Vrf(vrf)) => !flow.is_own && flow.vrf == vrf,
            Some(RuleEntry::Own) => flow.is_own,
        };
        let within = |range: Option<PortRange>, port: fn((u16, u16)) -> u16| {
            range.is_none_or(|range| flow.ports.is_some_and(|ports| range.contains(port(ports))))
        };
        enters
            && self.sent_in.is_none_or(|vrf| flow.is_own && flow.vrf == vrf)
            && self.source.contains(flow.source)
            && self.destination.contains(flow.destination)
            && self.protocol.is_none_or(|protocol| protocol == flow.protocol)
            && within(self.source_ports, |ports| ports.0)
            && within(self.destination_ports, |ports| ports.1)
            && self.dscp.is_none_or(|dscp| dscp == flow.dscp)
    }

    /// Whether a packet with this mark is meant.
    pub fn matches(&self, flow: &RuleFlow, mark: u32) -> bool {
        self.mark.matches(mark) && self.matches_but_mark(flow)
    }
}

impl Rule {
    /// Whether it is about IPv6.
    pub fn is_v6(&self) -> bool {
        self.selects.source.address().is_ipv6()
    }

    /// What of packets it reads: bits of optional fields, and whether upper-layer fields.
    fn reads(&self) -> (PacketFields, bool) {
        let selects = &self.selects;
        let dscp = selects.dscp.map_or(PacketFields::NONE, |_| PacketFields::DSCP);
        (dscp, selects.source_ports.is_some() || selects.destination_ports.is_some())
    }
}

/// Every rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// By family and priority.
    all: Vec<Rule>,
    /// Positions of those that may concern packets of any VRF.
    everywhere: [Vec<u32>; 2],
    /// Positions of those that concern packets of one VRF alone.
    of_vrf: BTreeMap<VrfId, [Vec<u32>; 2]>,
}

impl Rules {
    /// In their order. `vrf_of` is the VRF of a port.
    pub(crate) fn new(mut all: Vec<Rule>, vrf_of: impl Fn(PortId) -> Option<VrfId>) -> Self {
        all.sort_by_key(|rule| (rule.is_v6(), rule.priority));
        let targets: Vec<_> = all.iter().map(|rule| (rule.is_v6(), rule.priority)).collect();
        for rule in &mut all {
            let is_v6 = rule.is_v6();
            if let RuleAction::Goto { priority, is_resolved } = &mut rule.action {
                *is_resolved = [MAIN_PRIORITY, L3MDEV_PRIORITY].contains(priority)
                    || targets.binary_search(&(is_v6, *priority)).is_ok();
            }
        }
        let mut rules = Self { all, ..Self::default() };
        for (at, rule) in (0..).zip(&rules.all) {
            let family = usize::from(rule.is_v6());
            let vrf = match rule.selects.entry {
                None | Some(RuleEntry::Own) => None,
                Some(RuleEntry::Vrf(vrf)) => Some(vrf),
                Some(RuleEntry::Port(port)) => vrf_of(port),
            };
            match vrf {
                None => rules.everywhere[family].push(at),
                Some(vrf) => rules.of_vrf.entry(vrf).or_default()[family].push(at),
            }
        }
        rules
    }

    pub(crate) fn all(&self) -> &[Rule] {
        &self.all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those of a family that may concern packets of a VRF, in their order.
    pub(crate) fn of(&self, vrf: VrfId, is_v6: bool) -> impl Iterator<Item = &Rule> {
        let family = usize::from(is_v6);
        let own = self.of_vrf.get(&vrf).map_or(&[][..], |own| &own[family]);
        let (mut left, mut right) = (&self.everywhere[family][..], own);
        core::iter::from_fn(move || {
            let side = match (left.first(), right.first()) {
                (Some(one), Some(other)) if one < other => &mut left,
                (Some(_), None) => &mut left,
                (_, Some(_)) => &mut right,
                (None, None) => return None,
            };
            let (at, rest) = side.split_first()?;
            *side = rest;
            self.all.get(*at as usize)
        })
    }

    /// Whether a VRF's packets are asked rules, and what of them is read.
    pub(crate) fn features(&self, vrf: VrfId) -> (bool, (PacketFields, bool)) {
        let all = [false, true].into_iter().flat_map(|is_v6| self.of(vrf, is_v6));
        all.fold((false, (PacketFields::NONE, false)), |(_, (bits, upper)), rule| {
            let (more, more_upper) = rule.reads();
            (true, (bits | more, upper | more_upper))
        })
    }

    /// The VRFs that have rules of their own; `None` if there are rules for all.
    pub(crate) fn vrfs(&self) -> Option<impl Iterator<Item = VrfId>> {
        let is_for_all = self.everywhere.iter().any(|family| !family.is_empty());
        (!is_for_all).then(|| self.of_vrf.keys().copied())
    }
}

/// The rules of `new` and `old` that are not at the same place from the beginning or from the end.
pub(crate) fn differing<'r>(old: &'r [Rule], new: &'r [Rule]) -> impl Iterator<Item = &'r Rule> {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[same..], &new[same..]);
    let last = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    old[..old.len() - last].iter().chain(&new[..new.len() - last])
}
