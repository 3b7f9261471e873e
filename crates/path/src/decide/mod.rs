//! The only code that consults policy.

use std::net::IpAddr;
use std::sync::Arc;

use packet::{DropReason, LinkKind};
use tables::{
    Action, DefaultAction, Direction, Policy, PolicySlot, Route, RouteKind, Slot, Tables, Vrf,
};
use wire::{FlowKey, FragmentClass, Origin, PortId, Protocol, SaSlot, Spi, Upper, VrfId};

use crate::decision::{Decision, EthernetHeader, Exit, LinkHeader, Refusal, Verdict};
use crate::encapsulation;
use crate::trace::{Step, Trace};

/// Decides what happens to the packets of the flow that `key` names. Reads the tables and changes
/// nothing.
///
/// The order is: destination, route, inbound policy, outbound policy, SA, neighbour.
///
/// - A packet that came in clear must be let in by an `in` or `fwd` policy or let out by an `out`
///   policy, and be forbidden by none (RFC 4301 section 5: a packet crosses the boundary in one
///   direction, and that direction's policies decide). A clear packet that an inbound protect
///   policy covers is dropped.
/// - A decrypted packet must match an inbound protect policy whose template admits the SA that
///   decrypted it (RFC 4301 section 5.2, step 4).
/// - A VRF without policies is left alone.
pub fn decide(key: &FlowKey, tables: &Tables, trace: &mut impl Trace) -> Decision {
    decide_by(key, tables, &Looked::default(), trace)
}

/// The policies of a packet, as far as they were looked up before, together with those of other
/// packets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Looked<'t> {
    /// Of the packet's way in: `in` or `fwd`, and what was found.
    pub admission: Option<(Direction, Option<&'t Arc<Policy>>)>,
    /// Of its way out.
    pub outbound: Option<Option<&'t Arc<Policy>>>,
}

/// The same as [`decide()`], where some of the policies were looked up before.
#[inline(always)]
pub(crate) fn decide_by<'t>(
    key: &FlowKey,
    tables: &'t Tables,
    looked: &Looked<'t>,
    trace: &mut impl Trace,
) -> Decision {
    trace.step(|| Step::Key(key));
    let decision = match tables.vrf(key.vrf) {
        Some(vrf) => Deciding { key, tables, vrf, looked, trace }.decide(),
        None => Decision::drop(DropReason::PortDown),
    };
    trace.step(|| Step::Verdict { decision: &decision, port: exit_port(&decision, tables) });
    decision
}

/// Its functions are inlined into one: an address handed over by reference is written in parts and
/// read as a whole, and the processor waits for that, five times a packet.
struct Deciding<'k, 'a, T> {
    key: &'k FlowKey,
    tables: &'a Tables,
    vrf: &'a Vrf,
    looked: &'k Looked<'a>,
    trace: &'k mut T,
}

/// How the inbound check ended.
enum Admission {
    /// A policy lets the packet in, or there is nothing to check.
    Admitted(Option<PolicySlot>),
    /// No policy matched a clear packet: an outbound policy must let it out.
    Unmatched,
}

impl<'a, T: Trace> Deciding<'_, 'a, T> {
    #[inline(always)]
    fn decide(mut self) -> Decision {
        self.trace.step(|| Step::Vrf(self.vrf));
        let destination = self.key.addresses.destination();
        if is_link_local_v6(destination) || destination.is_multicast() {
            return self.on_link(destination);
        }
        if let Some(reason) = self.unroutable() {
            return Decision::drop(reason);
        }
        let route = self.route(self.vrf, destination);
        match route.map(|route| route.kind) {
            Some(RouteKind::Local) => self.deliver(),
            Some(RouteKind::Broadcast) => Decision::drop(DropReason::NotUnicast),
            Some(RouteKind::Blackhole) => self.turn_away(Verdict::Drop(DropReason::RouteBlackhole)),
            Some(RouteKind::Unreachable) => self
                .turn_away(Verdict::Refuse(DropReason::RouteUnreachable, Refusal::HostUnreachable)),
            Some(RouteKind::Prohibit) => {
                self.turn_away(Verdict::Refuse(DropReason::RouteProhibit, Refusal::Prohibited))
            }
            Some(RouteKind::Connected { port }) => self.forward(Some((port, destination))),
            Some(RouteKind::Via { port, next_hop }) => self.forward(Some((port, next_hop))),
            None => self.forward(None),
        }
    }

    /// For an address or a group that means something on one link only: ours where the port that
    /// the packet came by listens to it.
    fn on_link(self, destination: IpAddr) -> Decision {
        match self.key.origin {
            Origin::Port(port) if self.tables.is_local(self.key.vrf, port, destination) => {
                self.deliver()
            }
            _ if destination.is_multicast() => Decision::drop(DropReason::NotUnicast),
            _ => Decision::drop(DropReason::LinkLocal),
        }
    }

    /// Destinations and sources that no route is asked about.
    #[inline(always)]
    fn unroutable(&self) -> Option<DropReason> {
        let (source, destination) = (self.key.addresses.source(), self.key.addresses.destination());
        let link_local = match (source, destination) {
            (_, IpAddr::V4(to)) if to.is_broadcast() => return Some(DropReason::NotUnicast),
            (IpAddr::V4(from), IpAddr::V4(to)) => from.is_link_local() || to.is_link_local(),
            (IpAddr::V6(from), _) => from.is_unicast_link_local() || from.is_unspecified(),
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        };
        // What was decrypted came by no link. Only the link-local addresses of IPv4 number the ends
        // of tunnels.
        let may_be_for_us = match self.key.origin {
            Origin::Port(_) => true,
            Origin::Sa(_) => source.is_ipv4(),
            Origin::Host | Origin::HostProtected => return None,
        };
        let for_us =
            || matches!(self.vrf.route(destination), Some(Route { kind: RouteKind::Local, .. }));
        (link_local && !(may_be_for_us && for_us())).then_some(DropReason::LinkLocal)
    }

    /// For one of our own addresses. ESP is what protects, and is not itself subject to policy;
    /// fragments are first made whole.
    fn deliver(mut self) -> Decision {
        if self.key.fragment != FragmentClass::Whole {
            return Decision { verdict: Verdict::Reassemble, inbound: None, outbound: None };
        }
        if let Upper::Spi(spi) = self.key.upper
            && self.key.protocol == Protocol::ESP
        {
            return self.decrypt(spi);
        }
        match self.admit(Direction::In) {
            Ok(Admission::Admitted(policy)) => self.local(policy),
            Ok(Admission::Unmatched) => Decision::drop(DropReason::PolicyNoMatch),
            Err(decision) => decision,
        }
    }

    fn local(&self, inbound: Option<PolicySlot>) -> Decision {
        let verdict = if self.key.fragment == FragmentClass::Whole {
            Verdict::Deliver
        } else {
            Verdict::Reassemble
        };
        Decision { verdict, inbound, outbound: None }
    }

    fn decrypt(&mut self, spi: Spi) -> Decision {
        let sa = self.tables.sad().inbound(self.key.vrf, self.key.addresses.destination(), spi);
        self.trace.step(|| Step::Sa { template: None, sa: sa.map(|sa| &**sa) });
        match sa {
            Some(sa) => {
                Decision { verdict: Verdict::Decrypt(sa.slot, spi), inbound: None, outbound: None }
            }
            None => Decision::drop(DropReason::EspNoSa),
        }
    }

    /// For somebody else, by `way` where the packet leaves in clear.
    #[inline(always)]
    fn forward(mut self, way: Option<(PortId, IpAddr)>) -> Decision {
        let admission = match self.admit_forwarded() {
            Ok(admission) => admission,
            Err(decision) => return decision,
        };
        if self.vrf.spd.is_empty() {
            return self.clear(way, &admission, None);
        }
        let Some(policy) = self.policy(Direction::Out) else {
            let admitted = match self.key.origin {
                Origin::HostProtected => false,
                _ => matches!(admission, Admission::Admitted(_)),
            };
            let accepted = self.vrf.spd.default_action(Direction::Out) == DefaultAction::Accept;
            return match admitted || accepted {
                true => self.clear(way, &admission, None),
                false => self.dropped(DropReason::PolicyNoMatch, &admission, None),
            };
        };
        let handle = Some(policy.handle.place());
        match policy.spec.action {
            Action::Discard => self.dropped(DropReason::PolicyDiscard, &admission, handle),
            Action::Bypass => self.clear(way, &admission, handle),
            Action::Protect(template) => match self.tables.resolve(self.key.vrf, &template) {
                None => {
                    self.trace.step(|| Step::Sa { template: Some(&template), sa: None });
                    self.dropped(DropReason::EspNoOutboundSa, &admission, handle)
                }
                Some(slot) => {
                    let sa = self.tables.sad().outbound(slot).map(|sa| &**sa);
                    self.trace.step(|| Step::Sa { template: Some(&template), sa });
                    let verdict = self.protect(slot);
                    Decision { verdict, inbound: admission.policy(), outbound: handle }
                }
            },
        }
    }

    /// For nobody, as the route says. Whom the inbound check refuses is not told even that.
    fn turn_away(mut self, verdict: Verdict) -> Decision {
        match self.admit_forwarded() {
            Ok(admission) => Decision { verdict, inbound: admission.policy(), outbound: None },
            Err(decision) => decision,
        }
    }

    /// The inbound check of what is not for us.
    #[inline(always)]
    fn admit_forwarded(&mut self) -> Result<Admission, Decision> {
        let direction = match self.vrf.spd.policies(Direction::Fwd).len() {
            0 => Direction::In,
            _ => Direction::Fwd,
        };
        match self.key.origin {
            Origin::Host | Origin::HostProtected => Ok(Admission::Admitted(None)),
            Origin::Port(_) | Origin::Sa(_) => self.admit(direction),
        }
    }

    /// The inbound check. `Err` is the end of the packet.
    #[inline]
    fn admit(&mut self, direction: Direction) -> Result<Admission, Decision> {
        let decrypted_by = match self.key.origin {
            Origin::Sa(slot) => Some(slot),
            Origin::Port(_) | Origin::Host | Origin::HostProtected => None,
        };
        let refused = |reason, policy: &Policy| Decision {
            verdict: Verdict::Drop(reason),
            inbound: Some(policy.handle.place()),
            outbound: None,
        };
        if self.vrf.spd.is_empty() && decrypted_by.is_none() {
            self.trace.step(|| Step::NoPolicies);
            return Ok(Admission::Admitted(None));
        }
        let policy = self.policy(direction);
        match (decrypted_by, policy) {
            (None, None) => match self.vrf.spd.default_action(direction) {
                DefaultAction::Accept => Ok(Admission::Admitted(None)),
                DefaultAction::Block => Ok(Admission::Unmatched),
            },
            (Some(_), None) => Err(Decision::drop(DropReason::PolicyWrongSelector)),
            (decrypted_by, Some(policy)) => match (policy.spec.action, decrypted_by) {
                (Action::Discard, _) => Err(refused(DropReason::PolicyDiscard, policy)),
                (Action::Bypass, None) => Ok(Admission::Admitted(Some(policy.handle.place()))),
                (Action::Bypass, Some(_)) => Err(refused(DropReason::PolicyWrongSelector, policy)),
                (Action::Protect(_), None) => Err(refused(DropReason::PolicyClear, policy)),
                (Action::Protect(template), Some(slot)) => {
                    // The key names the slot and not the SA: a template with an SPI is served while
                    // its SA is in the slot.
                    let has = |slot: &Slot, spi| slot.sas.iter().any(|sa| sa.spec.spi == spi);
                    let slot =
                        self.tables.sad().slot(slot).filter(|slot| template.admits(&slot.identity));
                    match slot.is_some_and(|slot| template.spi.is_none_or(|spi| has(slot, spi))) {
                        true => Ok(Admission::Admitted(Some(policy.handle.place()))),
                        false => Err(refused(DropReason::PolicyWrongSelector, policy)),
                    }
                }
            },
        }
    }

    #[inline]
    fn policy(&mut self, direction: Direction) -> Option<&'a Policy> {
        let spd = &self.vrf.spd;
        let found = match (direction, self.looked) {
            (Direction::Out, Looked { outbound: Some(found), .. }) => *found,
            (_, Looked { admission: Some((looked, found)), .. }) if *looked == direction => *found,
            _ => spd.lookup(direction, self.key),
        };
        let found = found.map(|policy| &**policy);
        // Which one it is in the order of trying is known to the linear engine alone.
        let place = || {
            spd.lookup_linear(direction, self.key).map(|(position, policy)| (position, &**policy))
        };
        self.trace.step(|| Step::Policy {
            direction,
            found: place(),
            default: spd.default_action(direction),
        });
        found
    }

    #[inline(always)]
    fn route(&mut self, vrf: &'a Vrf, destination: IpAddr) -> Option<&'a Route> {
        let route = vrf.route(destination);
        let port = || match route?.kind {
            RouteKind::Connected { port } | RouteKind::Via { port, .. } => self.tables.port(port),
            _ => None,
        };
        self.trace.step(|| Step::Route {
            destination,
            route,
            port: port().map(|port| &*port.spec.name),
        });
        route
    }

    #[inline(always)]
    fn clear(
        &mut self,
        way: Option<(PortId, IpAddr)>,
        admission: &Admission,
        outbound: Option<PolicySlot>,
    ) -> Decision {
        let verdict = match way {
            None => Verdict::Refuse(DropReason::NoRoute, Refusal::NoRoute),
            Some((port, next_hop)) => match self.exit(port, next_hop) {
                Ok(exit) => Verdict::Forward(exit),
                Err(reason) => Verdict::Drop(reason),
            },
        };
        Decision { verdict, inbound: admission.policy(), outbound }
    }

    /// The outer packet's way. It is ESP, so no policy is asked about it again.
    fn protect(&mut self, slot: SaSlot) -> Verdict {
        let Some(sa) = self.tables.sad().outbound(slot) else {
            return Verdict::Drop(DropReason::EspNoOutboundSa);
        };
        let identity = &sa.spec.identity;
        let Some(vrf) = self.outer_vrf(identity.vrf) else {
            return Verdict::Drop(DropReason::NoRoute);
        };
        let (port, next_hop) = match self.route(vrf, identity.destination).map(|route| route.kind) {
            Some(RouteKind::Connected { port }) => (port, identity.destination),
            Some(RouteKind::Via { port, next_hop }) => (port, next_hop),
            Some(RouteKind::Blackhole) => return Verdict::Drop(DropReason::RouteBlackhole),
            Some(RouteKind::Prohibit) => {
                return Verdict::Refuse(DropReason::RouteProhibit, Refusal::Prohibited);
            }
            Some(RouteKind::Unreachable) => {
                return Verdict::Refuse(DropReason::RouteUnreachable, Refusal::HostUnreachable);
            }
            Some(RouteKind::Local | RouteKind::Broadcast) | None => {
                return Verdict::Refuse(DropReason::NoRoute, Refusal::NoRoute);
            }
        };
        match self.exit(port, next_hop) {
            Ok(exit) => Verdict::Protect(
                slot,
                Exit { limit: encapsulation::inner_limit(sa, exit.limit), ..exit },
            ),
            Err(reason) => Verdict::Drop(reason),
        }
    }

    fn outer_vrf(&self, vrf: VrfId) -> Option<&'a Vrf> {
        if vrf == self.vrf.id { Some(self.vrf) } else { self.tables.vrf(vrf) }
    }

    #[inline(always)]
    fn exit(&mut self, port: PortId, next_hop: IpAddr) -> Result<Exit, DropReason> {
        let port =
            self.tables.port(port).filter(|port| port.spec.up).ok_or(DropReason::PortDown)?;
        let link = match port.spec.link {
            LinkKind::Ip => LinkHeader::None,
            LinkKind::Ethernet => {
                let mac = port.neighbours.lookup(next_hop);
                self.trace.step(|| Step::Neighbour { port: &port.spec.name, next_hop, mac });
                match mac {
                    Some(mac) => LinkHeader::Ethernet(EthernetHeader::new(
                        mac,
                        port.spec.mac,
                        next_hop.is_ipv6(),
                    )),
                    None => LinkHeader::Unresolved(next_hop),
                }
            }
        };
        Ok(Exit { port: port.id, limit: port.spec.mtu, link })
    }

    fn dropped(
        &self,
        reason: DropReason,
        admission: &Admission,
        outbound: Option<PolicySlot>,
    ) -> Decision {
        Decision { verdict: Verdict::Drop(reason), inbound: admission.policy(), outbound }
    }
}

impl Admission {
    fn policy(&self) -> Option<PolicySlot> {
        match *self {
            Self::Admitted(policy) => policy,
            Self::Unmatched => None,
        }
    }
}

fn is_link_local_v6(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn exit_port<'t>(decision: &Decision, tables: &'t Tables) -> Option<&'t str> {
    match decision.verdict {
        Verdict::Forward(exit) | Verdict::Protect(_, exit) => {
            tables.port(exit.port).map(|port| &*port.spec.name)
        }
        _ => None,
    }
}
