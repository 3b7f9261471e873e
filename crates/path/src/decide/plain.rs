//! The way of a packet through a VRF: its source, its route, its policies. What features add to it stands
//! beside.

use std::net::IpAddr;
use std::sync::Arc;

use packet::DropReason;
use tables::{
    Action, DefaultAction, Direction, GroupId, Ike, NextHopId, Policy, PolicySlot, Route,
    RouteKind, RuleAction, RuleFlow, SaIdentity, Scope, Side, Slot, Spd, TableRef, Tables,
    Template, Vrf,
};
use wire::{FlowKey, FragmentClass, Origin, Protocol, Spi, Upper, VrfId};

use super::question::Question;
use super::quoted::AsQuoted;
use super::trace::{FoundPolicy, Step, Trace, WithoutPolicies};
use super::way::{
    Way, clear, crosses, entry_side, exit_port, exit_side, judge_source, led_on, next_hop, one_of,
    routed, tell_route, told_of,
};
use super::{KeyView, LookedUp, links};
use crate::decision::{Decision, Refusal, Verdict};

/// Its functions are inlined into one: an address handed over by reference is written in parts and
/// read as a whole, and the processor waits for that, five times a packet.
pub(super) struct Deciding<'k, 'a, K, T, M> {
    pub(super) key: K,
    pub(super) tables: &'a Tables,
    pub(super) vrf: &'a Vrf,
    pub(super) looked_up: &'k LookedUp<'a>,
    pub(super) trace: &'k mut T,
    pub(super) mark: M,
}

/// The mark of a packet in a VRF with filters, rules or xfrm links; `()` in others, which so have
/// nothing of what rules and links ask for.
pub(super) trait Mark: Copy {
    /// Whether packets may leave or enter by xfrm links.
    const LINKS: bool;
    /// If the packet's VRF may have rules.
    fn mark(self) -> Option<u32>;
    /// The packet as it was received, if it leaves with other addresses or ports.
    fn received(&self) -> Option<&FlowKey>;
    /// Whose policies of this direction are asked, if not the packet's as it is now.
    fn judged(&self, _: Direction) -> Option<&FlowKey> {
        None
    }
}

impl Mark for () {
    const LINKS: bool = false;

    #[inline(always)]
    fn mark(self) -> Option<u32> {
        None
    }

    #[inline(always)]
    fn received(&self) -> Option<&FlowKey> {
        None
    }
}

impl Mark for u32 {
    const LINKS: bool = true;

    #[inline(always)]
    fn mark(self) -> Option<u32> {
        Some(self)
    }

    #[inline(always)]
    fn received(&self) -> Option<&FlowKey> {
        None
    }
}

/// Of a packet that is translated: its mark, and what it was when it was received.
#[derive(Clone, Copy)]
pub(super) struct Translated<'q> {
    pub(super) mark: u32,
    pub(super) received: FlowKey,
    /// If policies judge it by what it quotes.
    pub(super) quoted: Option<&'q AsQuoted>,
}

impl Mark for Translated<'_> {
    const LINKS: bool = true;

    fn mark(self) -> Option<u32> {
        Some(self.mark)
    }

    fn received(&self) -> Option<&FlowKey> {
        Some(&self.received)
    }

    fn judged(&self, direction: Direction) -> Option<&FlowKey> {
        match (self.quoted, direction) {
            (Some(quoted), Direction::Out) => Some(&quoted.leaving),
            (Some(quoted), _) => Some(&quoted.received),
            (None, Direction::Out) => None,
            (None, _) => Some(&self.received),
        }
    }
}

/// How the inbound check ended.
pub(super) enum Admission {
    /// A policy lets the packet in, or there is nothing to check.
    Admitted(Option<PolicySlot>),
    /// No policy matched a clear packet from a port of which nobody says on which side it is: an
    /// outbound policy must protect it.
    Unmatched,
}

/// UDP ports of IKE, and of IKE and ESP behind a NAT (RFC 7296 section 2, RFC 3948).
pub(crate) const IKE: [u16; 2] = [500, 4500];

impl<'a, K: KeyView, T: Trace, M: Mark> Deciding<'_, 'a, K, T, M> {
    #[inline(always)]
    pub(super) fn decide(mut self, decision: &mut Decision) {
        self.trace.step(|| Step::Vrf(self.vrf));
        if let Some(reason) = self.wrong_source() {
            *decision = Decision::drop(reason);
            return;
        }
        let destination = self.key.destination();
        if is_link_local_v6(destination) || destination.is_multicast() {
            *decision = self.on_link(destination);
            return;
        }
        if let Some(reason) = self.unroutable() {
            *decision = Decision::drop(reason);
            return;
        }
        let way = match self.route((self.key.vrf(), self.vrf), destination, None) {
            Some(RouteKind::Connected { port }) => Way::OnLink(port, destination),
            Some(RouteKind::Via { next_hop }) => Way::NextHop(next_hop),
            Some(RouteKind::Multipath { group }) => self.member(group, destination),
            None => Way::None,
            Some(RouteKind::Vrf { vrf }) => match self.led_on(vrf, destination) {
                Ok(way) => way,
                Err(verdict) => {
                    *decision = self.turn_away(verdict);
                    return;
                }
            },
            Some(other) => {
                *decision = self.not_forwarded(other);
                return;
            }
        };
        if M::LINKS {
            if let Some((if_id, link)) = self.exit_link(way) {
                *decision = self.leave_by_link(if_id, link);
                return;
            }
            if self.vrf.spd.is_empty() && self.entry_link().is_some() {
                self.come_by_link(way, decision);
                return;
            }
        }
        let was_protected = matches!(self.key.origin(), Origin::Sa(_) | Origin::HostProtected);
        if self.vrf.spd.is_empty() && !was_protected {
            self.trace.asks(|| Question::Policies(self.key.vrf()));
            self.trace.step(|| {
                let then = match self.vrf.is_closed() {
                    false => WithoutPolicies::Plain,
                    true if crosses(self.key, way, self.tables) => WithoutPolicies::Closed,
                    true => WithoutPolicies::Stays,
                };
                Step::NoPolicies { vrf: self.vrf, then }
            });
            if self.vrf.is_closed() && crosses(self.key, way, self.tables) {
                *decision = Decision::drop(DropReason::IpsecClosed);
                return;
            }
            return clear(way, None, None, self.tables, self.trace, decision);
        }
        self.forward(way, decision);
    }

    /// See [`one_of`].
    #[inline(always)]
    pub(super) fn member(&mut self, group: GroupId, destination: IpAddr) -> Way {
        match self.mark.received() {
            None => one_of(group, destination, self.key, None, self.tables, self.trace),
            Some(received) => {
                let key = routed(&self.key.flow(), received);
                one_of(group, destination, key, None, self.tables, self.trace)
            }
        }
    }

    /// See [`led_on`].
    #[inline(always)]
    pub(super) fn led_on(&mut self, into: VrfId, destination: IpAddr) -> Result<Way, Verdict> {
        match self.mark.received() {
            None => led_on(into, destination, (self.key, None), self.tables, self.trace),
            Some(received) => {
                let key = routed(&self.key.flow(), received);
                led_on(into, destination, (key, None), self.tables, self.trace)
            }
        }
    }

    /// The source as the packet was received with it.
    #[inline(always)]
    fn source(&self) -> IpAddr {
        match self.mark.received() {
            None => self.key.source(),
            Some(received) => received.addresses.source(),
        }
    }

    /// The flow whose policies of this direction are asked: inbound ones are about packets as they were
    /// received, outbound ones as they leave.
    #[inline(always)]
    pub(super) fn judged(&self, direction: Direction) -> FlowKey {
        self.mark.judged(direction).copied().unwrap_or_else(|| self.key.flow())
    }

    /// See [`entry_side`].
    #[inline(always)]
    fn entry_side(&self) -> Option<Side> {
        entry_side(self.key, self.tables)
    }

    /// Why a clear packet's source is none that its port may receive from.
    #[inline(always)]
    pub(super) fn wrong_source(&mut self) -> Option<DropReason> {
        let port = match self.key.origin() {
            Origin::Port(port) => port,
            Origin::Sa(_) if M::LINKS => self.entry_link()?.1.id,
            _ => return None,
        };
        let source = self.source();
        if self.vrf.may_be_local(source) && self.vrf.is_local(source) {
            return Some(DropReason::SourceOwn);
        }
        match self.tables.boundary(port).judges_sources {
            true => judge_source(port, source, self.vrf, self.tables, self.trace),
            false => None,
        }
    }

    /// By a route that leads nowhere else.
    fn not_forwarded(self, route: RouteKind) -> Decision {
        match route {
            RouteKind::Local => self.deliver(),
            RouteKind::Broadcast => Decision::drop(DropReason::NotUnicast),
            RouteKind::Blackhole => self.turn_away(Verdict::Drop(DropReason::RouteBlackhole)),
            RouteKind::Unreachable | RouteKind::NetworkUnreachable => {
                let how = told_of(route, self.key.destination());
                self.turn_away(Verdict::Refuse(DropReason::RouteUnreachable, how))
            }
            RouteKind::Prohibit => {
                self.turn_away(Verdict::Refuse(DropReason::RouteProhibit, Refusal::Prohibited))
            }
            // These lead elsewhere.
            RouteKind::Connected { .. }
            | RouteKind::Via { .. }
            | RouteKind::Multipath { .. }
            | RouteKind::Vrf { .. } => Decision::drop(DropReason::NoRoute),
        }
    }

    /// For an address or a group that means something on one link only: ours where the port that
    /// the packet came by listens to it.
    pub(super) fn on_link(self, destination: IpAddr) -> Decision {
        if let Origin::Port(port) = self.key.origin() {
            self.trace.asks(|| Question::Listens(port));
            self.trace.asks(|| Question::Route { vrf: self.key.vrf(), address: destination });
        }
        match self.key.origin() {
            Origin::Port(port) if self.tables.is_local(self.key.vrf(), port, destination) => {
                self.deliver()
            }
            _ if destination.is_multicast() => Decision::drop(DropReason::NotUnicast),
            _ => Decision::drop(DropReason::LinkLocal),
        }
    }

    /// Destinations and sources that no route is asked about.
    #[inline(always)]
    pub(super) fn unroutable(&mut self) -> Option<DropReason> {
        let (source, destination) = (self.source(), self.key.destination());
        let link_local = match (source, destination) {
            (_, IpAddr::V4(to)) if to.is_broadcast() => return Some(DropReason::NotUnicast),
            (IpAddr::V4(from), IpAddr::V4(to)) => from.is_link_local() || to.is_link_local(),
            (IpAddr::V6(from), _) => from.is_unicast_link_local() || from.is_unspecified(),
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        };
        // What was decrypted came by no link. Only the link-local addresses of IPv4 number the ends
        // of tunnels.
        let may_be_for_us = match self.key.origin() {
            Origin::Port(_) => true,
            Origin::Sa(_) => source.is_ipv4(),
            Origin::Host | Origin::HostError(_) | Origin::HostProtected => return None,
        };
        if !link_local {
            return None;
        }
        self.trace.asks(|| Question::Route { vrf: self.key.vrf(), address: destination });
        let for_us =
            || matches!(self.vrf.route(destination), Some(Route { kind: RouteKind::Local, .. }));
        (!(may_be_for_us && for_us())).then_some(DropReason::LinkLocal)
    }

    /// For one of our own addresses. ESP is what protects, and is not itself subject to policy;
    /// fragments are first made whole.
    fn deliver(mut self) -> Decision {
        if self.key.fragment() != FragmentClass::Whole {
            return Decision::new(Verdict::Reassemble, None, None);
        }
        if let Some(spi) = self.key.esp() {
            return self.decrypt(spi);
        }
        let is_exempt = self.is_about_own_esp() || self.may_be_ike() || self.came_from_inside();
        let policy = match is_exempt {
            true => None,
            false => match self.admit(Direction::In) {
                Ok(Admission::Admitted(policy)) => policy,
                Ok(Admission::Unmatched) => return Decision::drop(DropReason::PolicyNoMatch),
                Err(decision) => return decision,
            },
        };
        self.trace.step(|| Step::host(&self.key.flow(), self.tables));
        Decision::new(Verdict::Deliver, policy, None)
    }

    /// Whether a packet is an ICMP error about ESP that the gateway has sent, as parse has seen.
    /// Routers on a tunnel's way are in no policy.
    fn is_about_own_esp(&mut self) -> bool {
        let flow = self.key.flow();
        let Upper::Spi(spi) = flow.upper else { return false };
        let is_icmp = matches!(flow.protocol, Protocol::ICMP | Protocol::ICMPV6);
        if !is_icmp || !matches!(flow.origin, Origin::Port(_)) {
            return false;
        }
        self.trace.step(|| Step::AboutOwnEsp(spi));
        true
    }

    /// Whether a packet is IKE, and is asked no policy for that: tunnels need a key daemon.
    fn may_be_ike(&mut self) -> bool {
        if !is_ike(&self.key.flow()) {
            return false;
        }
        self.trace.asks(|| Question::Ike(self.key.vrf()));
        let is_bypassed = self.vrf.ike == Ike::Bypass;
        self.trace.step(|| Step::Ike { is_bypassed });
        is_bypassed
    }

    /// Whether a clear packet came by a port of the protected side, and so owes no inbound policy.
    #[inline(always)]
    fn came_from_inside(&mut self) -> bool {
        let is_inside = self.entry_side() == Some(Side::Protected);
        if is_inside {
            self.trace.step_if(|| match self.key.origin() {
                Origin::Port(port) => {
                    Some(Step::Inside { port: self.tables.port(port)?, is_exit: false })
                }
                _ => None,
            });
        }
        is_inside
    }

    fn decrypt(&mut self, spi: Spi) -> Decision {
        let (vrf, destination) = (self.key.vrf(), self.key.destination());
        self.trace.asks(|| Question::Sa { vrf, destination, spi });
        let sa = self.tables.sad().inbound(vrf, destination, spi);
        self.trace.step(|| Step::Sa { template: None, sa: sa.map(|sa| &**sa) });
        match sa {
            Some(sa) => Decision::new(Verdict::Decrypt(sa.slot), None, None),
            None => Decision::drop(DropReason::EspNoSa),
        }
    }

    /// For somebody else, by `way` if the packet leaves in clear.
    #[inline(always)]
    fn forward(mut self, way: Way, decision: &mut Decision) {
        let admission = match self.admit_forwarded() {
            Ok(admission) => admission,
            Err(refused) => {
                *decision = refused;
                return;
            }
        };
        let is_admitted = matches!(admission, Admission::Admitted(_));
        if self.tables.has_protected_ports() && exit_side(way, self.tables) == Some(Side::Protected)
        {
            let port = exit_port(way, self.tables);
            self.trace
                .step_if(|| Some(Step::Inside { port: self.tables.port(port?)?, is_exit: true }));
            match is_admitted {
                true => clear(way, admission.policy(), None, self.tables, self.trace, decision),
                false => *decision = Decision::drop(DropReason::PolicyNoMatch),
            }
            return;
        }
        let policy = self.policy(Scope::Vrf(self.key.vrf()), Direction::Out);
        let outbound = policy.map(|policy| policy.handle.place());
        let may_be_clear = is_admitted
            && match (self.key.origin(), policy) {
                // It says something of a packet that was protected.
                (Origin::HostProtected, _) => false,
                (_, Some(_)) => true,
                (Origin::Sa(_), None) if M::LINKS && self.entry_link().is_some() => {
                    self.accepts_unmatched()
                }
                (Origin::Sa(_), None) => {
                    self.accepts_unmatched()
                        || exit_side(way, self.tables) != Some(Side::Unprotected)
                }
                (Origin::HostError(port), None) => {
                    self.accepts_unmatched() || exit_port(way, self.tables) == Some(port)
                }
                (Origin::Port(_) | Origin::Host, None) => self.accepts_unmatched(),
            };
        match policy.map(|policy| policy.spec.action) {
            Some(Action::Protect(template)) => {
                let verdict = self.protect(Scope::Vrf(self.key.vrf()), &template);
                *decision = Decision::new(verdict, admission.policy(), outbound);
            }
            Some(Action::Discard) => {
                *decision = dropped(DropReason::PolicyDiscard, &admission, outbound);
            }
            Some(Action::Bypass) | None if may_be_clear => {
                clear(way, admission.policy(), outbound, self.tables, self.trace, decision);
            }
            Some(Action::Bypass) | None => {
                *decision = dropped(DropReason::PolicyNoMatch, &admission, outbound);
            }
        }
    }

    /// Whether a packet may leave that no outbound policy matches.
    #[inline(always)]
    pub(super) fn accepts_unmatched(&self) -> bool {
        self.vrf.spd.default_action(Direction::Out) == DefaultAction::Accept
    }

    /// For nobody, as the route says. Whom the inbound check refuses is not told even that.
    fn turn_away(mut self, verdict: Verdict) -> Decision {
        match self.admit_forwarded() {
            Ok(admission) => Decision::new(verdict, admission.policy(), None),
            Err(decision) => decision,
        }
    }

    /// The inbound check of what is not for us.
    #[inline(always)]
    pub(super) fn admit_forwarded(&mut self) -> Result<Admission, Decision> {
        match self.key.origin() {
            Origin::Host | Origin::HostError(_) | Origin::HostProtected => {
                Ok(Admission::Admitted(None))
            }
            Origin::Port(_) if self.came_from_inside() => Ok(Admission::Admitted(None)),
            Origin::Sa(_) if M::LINKS && self.entry_link().is_some() => {
                self.admit_forwarded_of_link()
            }
            Origin::Port(_) | Origin::Sa(_) => self.admit(self.vrf.spd.of_forwarded()),
        }
    }

    /// The inbound check. `Err` is the end of the packet.
    #[inline(always)]
    pub(super) fn admit(&mut self, direction: Direction) -> Result<Admission, Decision> {
        let decrypted_by = match self.key.origin() {
            Origin::Sa(slot) => Some(slot),
            Origin::Port(_) | Origin::Host | Origin::HostError(_) | Origin::HostProtected => None,
        };
        if self.vrf.spd.is_empty() && decrypted_by.is_none() {
            self.trace.asks(|| Question::Policies(self.key.vrf()));
            self.trace.step(|| {
                let then = match self.vrf.is_closed() {
                    true => WithoutPolicies::Stays,
                    false => WithoutPolicies::NotAsked(direction),
                };
                Step::NoPolicies { vrf: self.vrf, then }
            });
            return Ok(Admission::Admitted(None));
        }
        let refused = |reason, policy: &Policy| {
            Err(Decision::new(Verdict::Drop(reason), Some(policy.handle.place()), None))
        };
        let scope = self.entry_scope();
        let policy = self.policy(scope, direction);
        match (decrypted_by, policy) {
            (None, None) => match self.vrf.spd.default_action(direction) {
                DefaultAction::Accept => Ok(Admission::Admitted(None)),
                DefaultAction::Block if self.entry_side() == Some(Side::Unset) => {
                    Ok(Admission::Unmatched)
                }
                DefaultAction::Block => Err(Decision::drop(DropReason::PolicyNoMatch)),
            },
            (Some(_), None) => Err(Decision::drop(DropReason::PolicyWrongSelector)),
            (decrypted_by, Some(policy)) => match (policy.spec.action, decrypted_by) {
                (Action::Discard, _) => refused(DropReason::PolicyDiscard, policy),
                (Action::Bypass, None) => Ok(Admission::Admitted(Some(policy.handle.place()))),
                (Action::Bypass, Some(_)) => refused(DropReason::PolicyWrongSelector, policy),
                (Action::Protect(_), None) => refused(DropReason::PolicyClear, policy),
                (Action::Protect(template), Some(slot)) => {
                    // The key names the slot and not the SA: a template with an SPI is served while
                    // its SA is in the slot.
                    self.trace.asks(|| Question::Slot { slot, spi: template.spi });
                    let has = |slot: &Slot, spi| slot.sas.iter().any(|sa| sa.spec.spi == spi);
                    let slot = self
                        .tables
                        .sad()
                        .slot(slot)
                        .filter(|slot| template.admits(scope, &slot.identity));
                    match slot.is_some_and(|slot| template.spi.is_none_or(|spi| has(slot, spi))) {
                        true => Ok(Admission::Admitted(Some(policy.handle.place()))),
                        false => refused(DropReason::PolicyWrongSelector, policy),
                    }
                }
            },
        }
    }

    #[inline(always)]
    pub(super) fn policy(&mut self, scope: Scope, direction: Direction) -> Option<&'a Policy> {
        self.trace.asks(|| Question::Policies(self.key.vrf()));
        if M::LINKS
            && let Scope::Link(if_id) = scope
        {
            return self.policy_of_link(if_id, direction);
        }
        let spd = &self.vrf.spd;
        if self.mark.received().is_some() {
            let flow = self.judged(direction);
            return self.policy_of_flow(spd, &flow, direction);
        }
        let found = match (direction, self.looked_up) {
            (Direction::Out, LookedUp { outbound: Some(found), .. }) => *found,
            (_, LookedUp { admission: Some((of, found)), .. }) if *of == direction => *found,
            _ if spd.count(direction) == 0 => None,
            _ => look_up(spd, direction, self.key),
        };
        let found = found.map(|policy| &**policy);
        // Which one it is in the order of trying is known to the linear engine alone.
        let (tables, flow) = (self.tables, self.key);
        let place = || FoundPolicy::of(tables, spd, direction, &flow.flow());
        self.trace.step(|| Step::Policy {
            direction,
            found: place(),
            default: spd.default_action(direction),
        });
        found
    }

    /// The policy of a flow that is not what the packet looks like now.
    #[cold]
    #[inline(never)]
    fn policy_of_flow(
        &mut self,
        spd: &'a Spd,
        flow: &FlowKey,
        direction: Direction,
    ) -> Option<&'a Policy> {
        self.trace.step(|| Step::Policy {
            direction,
            found: FoundPolicy::of(self.tables, spd, direction, flow),
            default: spd.default_action(direction),
        });
        spd.lookup(direction, flow).map(|policy| &**policy)
    }

    /// The route of the packet, or of an outer packet from an address of ours, in the table of this VRF.
    #[inline(always)]
    pub(super) fn route(
        &mut self,
        (id, vrf): (VrfId, &'a Vrf),
        destination: IpAddr,
        outer: Option<IpAddr>,
    ) -> Option<RouteKind> {
        self.trace.asks(|| Question::Route { vrf: id, address: destination });
        if let Some(mark) = self.mark.mark()
            && vrf.features.is_ruled
        {
            return self.ruled_route(vrf, destination, outer, mark);
        }
        let found = || (id.into(), vrf.route(destination));
        tell_route(destination, found, self.tables, self.trace);
        self.tables.route_kind((id, vrf), destination)
    }

    /// The same, where rules say which tables are asked.
    #[cold]
    #[inline(never)]
    fn ruled_route(
        &mut self,
        vrf: &'a Vrf,
        destination: IpAddr,
        outer: Option<IpAddr>,
        mark: u32,
    ) -> Option<RouteKind> {
        let (flow, mark) = match outer {
            Some(source) => (RuleFlow::outer(&self.key.flow(), vrf.id, source, destination), 0),
            None => {
                let flow = self.key.flow();
                let received = self.mark.received();
                let flow = received.map_or(flow, |received| routed(&flow, received));
                (links::rule_flow(&flow, self.tables), mark)
            }
        };
        self.trace.asks(|| Question::Rules(flow));
        let ruled = self.tables.ruled_route(vrf, &flow, mark);
        self.trace.step(|| Step::Rule { rule: ruled.rule, vrf });
        // Some rules say what becomes of the packet without a route.
        if ruled.route.is_some() || ruled.kind.is_none() {
            let table = || match ruled.rule.map(|rule| rule.action) {
                Some(RuleAction::Table { table, .. }) => TableRef::Number(table),
                _ => vrf.id.into(),
            };
            tell_route(destination, || (table(), ruled.route), self.tables, self.trace);
        }
        ruled.kind
    }

    /// The outer packet's way. It is ESP, so no policy is asked about it again.
    pub(super) fn protect(&mut self, scope: Scope, template: &Template) -> Verdict {
        self.trace.asks(|| Question::Tunnel(scope, *template));
        let slot = self.tables.resolve(scope, template);
        let sa = slot.and_then(|slot| self.tables.sad().outbound(slot)).map(|sa| &**sa);
        self.trace.step(|| Step::Sa { template: Some(template), sa });
        let (Some(slot), Some(sa)) = (slot, sa) else {
            return Verdict::Drop(DropReason::EspNoOutboundSa);
        };
        match self.outer_way(&sa.spec.identity) {
            Ok(next_hop) => Verdict::Protect(slot, next_hop),
            Err(verdict) => verdict,
        }
    }

    /// The way of outer packets from one end of a tunnel to the other.
    #[inline(always)]
    pub(super) fn outer_way(&mut self, tunnel: &SaIdentity) -> Result<NextHopId, Verdict> {
        let end = tunnel.destination;
        self.trace.asks(|| Question::Vrf(tunnel.vrf));
        let Some(vrf) = self.tables.vrf(tunnel.vrf) else {
            return Err(Verdict::Drop(DropReason::NoRoute));
        };
        let way = match self.route((tunnel.vrf, vrf), end, Some(tunnel.source)) {
            Some(RouteKind::Connected { port }) => Way::OnLink(port, end),
            Some(RouteKind::Via { next_hop }) => Way::NextHop(next_hop),
            Some(RouteKind::Multipath { group }) => {
                one_of(group, end, self.key, Some(tunnel), self.tables, self.trace)
            }
            Some(RouteKind::Blackhole) => return Err(Verdict::Drop(DropReason::RouteBlackhole)),
            Some(RouteKind::Prohibit) => {
                return Err(Verdict::Refuse(DropReason::RouteProhibit, Refusal::Prohibited));
            }
            Some(kind @ (RouteKind::Unreachable | RouteKind::NetworkUnreachable)) => {
                let how = told_of(kind, end);
                return Err(Verdict::Refuse(DropReason::RouteUnreachable, how));
            }
            Some(RouteKind::Vrf { vrf }) => {
                led_on(vrf, end, (self.key, Some(tunnel)), self.tables, self.trace)?
            }
            Some(RouteKind::Local | RouteKind::Broadcast) | None => Way::None,
        };
        // Outer packets do not go into another tunnel by an xfrm link.
        if vrf.features.any() && links::port_of(way, self.tables).is_some() {
            return Err(Verdict::Drop(DropReason::NoRoute));
        }
        next_hop(way, self.tables, self.trace)
    }
}

/// Whether a clear packet for the gateway itself is for a key daemon.
pub(super) fn is_ike(key: &FlowKey) -> bool {
    let Upper::Ports { destination, .. } = key.upper else { return false };
    matches!(key.origin, Origin::Port(_))
        && key.protocol == Protocol::UDP
        && key.fragment == FragmentClass::Whole
        && IKE.contains(&destination)
}

/// Apart, so that a packet that meets no policy does not have its key unpacked.
#[inline(never)]
fn look_up(spd: &Spd, direction: Direction, key: impl KeyView) -> Option<&Arc<Policy>> {
    spd.lookup(direction, &key.flow())
}

fn dropped(reason: DropReason, admission: &Admission, outbound: Option<PolicySlot>) -> Decision {
    Decision::new(Verdict::Drop(reason), admission.policy(), outbound)
}

impl Admission {
    pub(super) fn policy(&self) -> Option<PolicySlot> {
        match *self {
            Self::Admitted(policy) => policy,
            Self::Unmatched => None,
        }
    }
}

pub(super) fn is_link_local_v6(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
