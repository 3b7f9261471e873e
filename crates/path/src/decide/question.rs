//! What decide asks the tables, and which change may alter an answer.
//!
//! A decision follows from its key and from the answers to some questions. An entry of the cache
//! holds while no change alters one of these answers; so each question that decide asks is here,
//! and [`Asked`] lists those that a decision was made from. A test holds the list against what
//! decide really asks.

use std::net::IpAddr;

use arrayvec::ArrayVec;
use conntrack::Named;
use packet::DropReason;
use pipeline::FlowPackets;
use tables::limit::MAX_LEAKS;
use tables::{
    Action, Change, FilterHook, FilterPlace, FilterTarget, IfId, NextHopId, RouteKind, RuleEntry,
    RuleFlow, SaIdentity, Scope, TableRef, Tables, Template,
};
use wire::{FlowKey, Origin, PortId, Protocol, SaSlot, Spi, Upper, VrfId};

use super::plain::is_ike;
use super::way::routed;
use super::{links, mss};
use crate::connection;
use crate::decision::{Decision, Verdict};

/// A question to the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Is there such a VRF?
    Vrf(VrfId),
    /// What is the route to an address, and which of its next hops do the flow's packets take?
    Route {
        /// In which VRF.
        vrf: VrfId,
        /// To where.
        address: IpAddr,
    },
    /// Which policy rules does the packet or an outer one match, and what is the route in the tables
    /// that they name?
    Rules(RuleFlow),
    /// What is the route to an address in any table, and what is by any VRF's ports? Stands for
    /// [`Question::Route`] and [`Question::Vrf`] where it is not known into which VRFs routes lead:
    /// by rules that ask for a mark, or by next hops in several VRFs.
    Elsewhere(IpAddr),
    /// Which policies of a VRF, or of an xfrm link in it, does the packet match, in any direction,
    /// and what is done without?
    Policies(VrfId),
    /// Which rules decide in the filters on the packet's way, in this VRF?
    Filters(VrfId),
    /// What do the flows of a VRF say?
    Flows(VrfId),
    /// Which SA is an ESP packet for?
    Sa {
        /// In which VRF.
        vrf: VrfId,
        /// The outer destination.
        destination: IpAddr,
        /// Its SPI.
        spi: Spi,
    },
    /// Whose slot is it that decrypted the packet, and is the SA with this SPI in it?
    Slot {
        /// The slot.
        slot: SaSlot,
        /// The SPI, if a policy names one.
        spi: Option<Spi>,
    },
    /// Which slot serves a template for packets of this scope?
    Tunnel(Scope, Template),
    /// Which next hop stands for an address on a link?
    OnLink(IpAddr),
    /// Is IKE for a VRF's own addresses asked policies?
    Ike(VrfId),
    /// Does a port listen to the destination?
    Listens(PortId),
}

/// More questions than one decision takes: of each of five routes, one for every VRF that leads the
/// packet on and one for that by which it leaves.
const MOST: usize = 24 + 5 * (MAX_LEAKS + 2);

/// The questions that a decision was made from.
pub(crate) struct Asked<'t> {
    key: FlowKey,
    /// What packets look like when they leave.
    after: FlowKey,
    /// `None` if that is no longer known, since a policy that it names is gone.
    questions: Option<ArrayVec<Question, MOST>>,
    /// What [`Question::Tunnel`] was answered; the outer `None` if the decision does not tell.
    tunnel: Option<Option<SaSlot>>,
    /// Which next hop the flow's packets take, if that is known.
    member: Option<NextHopId>,
    exit: Exit,
    may_leave_by_link: bool,
    is_translated: bool,
    tables: &'t Tables,
}

/// The port that a packet leaves by, as filters after routing are concerned.
enum Exit {
    /// It was dropped before that mattered.
    None,
    /// It leaves by this one.
    Port(PortId),
    /// It leaves by a tunnel.
    Protected {
        /// The xfrm link that it leaves by, whose filters it meets, if it does by one.
        link: Option<PortId>,
        /// The port that the outer packet leaves by, if that is known.
        outer: Option<PortId>,
    },
    /// Perhaps by one.
    Unknown,
}

impl<'t> Asked<'t> {
    /// Of a decision about a flow. They may be more than were asked, never fewer.
    pub(crate) fn new(key: &FlowKey, decision: &Decision, tables: &'t Tables) -> Self {
        let tunnel = match decision.verdict() {
            Verdict::Protect(slot, _) => Some(Some(slot)),
            Verdict::Drop(DropReason::EspNoOutboundSa) => Some(None),
            _ => None,
        };
        let after = after(key, decision, tables);
        let questions = after.as_ref().and_then(|after| questions(key, after, decision, tables));
        let after = after.unwrap_or(*key);
        let member = match decision.verdict() {
            // The way back of a SYN may be by another one.
            Verdict::Forward(next_hop) if back(key, tables).is_none() => Some(next_hop),
            _ => None,
        };
        let exit = match decision.verdict() {
            Verdict::Output(port) => Exit::Port(port),
            // If the id names another next hop by now, a change says so that concerns the decision.
            Verdict::Forward(next_hop) => {
                tables.next_hop(next_hop).map_or(Exit::Unknown, |hop| Exit::Port(hop.port))
            }
            Verdict::Protect(_, next_hop) => Exit::Protected {
                link: links::exit(decision.outbound(), tables).map(|link| link.id),
                outer: tables.next_hop(next_hop).map(|hop| hop.port),
            },
            Verdict::Drop(DropReason::FilterEgress)
            | Verdict::Refuse(DropReason::FilterEgress, _) => Exit::Unknown,
            _ => Exit::None,
        };
        let may_leave_by_link = matches!(
            decision.verdict(),
            Verdict::Protect(..) | Verdict::Drop(_) | Verdict::Refuse(..)
        );
        let is_translated = decision.is_translated();
        Self {
            key: *key,
            after,
            questions,
            tunnel,
            member,
            exit,
            may_leave_by_link,
            is_translated,
            tables,
        }
    }

    /// Whether a change may have altered one of the answers.
    pub(crate) fn concern(&self, change: &Change) -> bool {
        let Some(questions) = &self.questions else { return true };
        if let Change::Rule(rule) = change {
            // The packet may have asked rules that are all gone. From where to where an outer one went
            // then is not looked for.
            let is_of_own = matches!(rule.selects.entry, None | Some(RuleEntry::Own));
            let leaves_outer = || questions.iter().any(|it| matches!(it, Question::Tunnel(..)));
            let has_outer = || leaves_outer() || back(&self.key, self.tables).is_some();
            let routed = [routed(&self.after, &self.key), self.key];
            let flows = routed.map(|key| links::rule_flow(&key, self.tables));
            let is_met = flows.iter().any(|flow| rule.selects.matches_but_mark(flow));
            return is_of_own && has_outer() || is_met;
        }
        if let Change::Tap(target) = change {
            return self.meets_tap(*target);
        }
        questions.iter().any(|question| self.concerns(change, question))
    }

    /// The questions, if they are known.
    #[cfg(test)]
    pub(crate) fn questions(&self) -> Option<&[Question]> {
        self.questions.as_deref()
    }

    fn concerns(&self, change: &Change, question: &Question) -> bool {
        match (change, *question) {
            (Change::Vrf(changed), Question::Vrf(vrf) | Question::Route { vrf, .. }) => {
                *changed == vrf
            }
            (Change::Policy { scope, selector }, Question::Policies(vrf)) => {
                let is_asked = match scope {
                    Scope::Vrf(changed) => *changed == vrf,
                    Scope::Link(if_id) => self.may_meet(*if_id),
                };
                is_asked && (selector.matches(&self.key) || selector.matches(&self.after))
            }
            (Change::Flows { vrf: changed, packets }, Question::Flows(vrf)) => {
                // What translations make of the packet on its way is not looked for.
                let may_meet =
                    |packets: &FlowPackets| self.is_translated || packets.may_have(&self.key);
                *changed == vrf && packets.as_ref().is_none_or(may_meet)
            }
            (Change::Filter { vrf: changed, place, selector }, Question::Filters(vrf)) => {
                let may_leave_there = || {
                    let key_vrf = self.tables.vrf(self.key.vrf);
                    place.hook == FilterHook::Egress
                        && key_vrf.is_some_and(|vrf| vrf.features.leaves_elsewhere())
                };
                (*changed == vrf || may_leave_there())
                    && (selector.matches(&self.key) || selector.matches(&self.after))
                    && self.meets(place)
            }
            (Change::Route { table, prefix }, Question::Route { vrf, address }) => {
                *table == TableRef::Vrf(vrf) && prefix.contains(address)
            }
            (Change::Route { table, prefix }, Question::Rules(flow)) => {
                prefix.contains(flow.destination) && self.tables.rules_ask(&flow, Some(*table))
            }
            (Change::Vrf(vrf), Question::Rules(flow)) => {
                self.tables.rules_ask(&flow, Some(TableRef::Vrf(*vrf)))
                    || self.tables.rules_ask(&flow, None)
            }
            (Change::Route { prefix, .. }, Question::Elsewhere(address)) => {
                prefix.contains(address)
            }
            (Change::Vrf(_), Question::Elsewhere(_)) => true,
            (Change::Member { prefix, next_hop, up, .. }, Question::Elsewhere(address)) => {
                self.may_take(*next_hop, *up) && prefix.contains(address)
            }
            // No other member's flows move if one goes down. Which one a dropped packet took, or one
            // that leaves by a tunnel, is not known; on which side that is may matter.
            (Change::Member { table, prefix, next_hop, up }, Question::Route { vrf, address }) => {
                self.may_take(*next_hop, *up)
                    && *table == TableRef::Vrf(vrf)
                    && prefix.contains(address)
            }
            (Change::Member { table, prefix, next_hop, up }, Question::Rules(flow)) => {
                self.may_take(*next_hop, *up)
                    && prefix.contains(flow.destination)
                    && self.tables.rules_ask(&flow, Some(*table))
            }
            (Change::NextHop { address: changed, .. }, Question::OnLink(address)) => {
                *changed == address
            }
            (Change::Port(changed), Question::Listens(port)) => *changed == port,
            (Change::Ike(changed), Question::Ike(vrf)) => *changed == vrf,
            (Change::Sa { identity, spi: changed, .. }, Question::Sa { vrf, destination, spi }) => {
                identity.vrf == vrf && identity.destination == destination && *changed == spi
            }
            (
                Change::Sa { slot: changed, spi, is_slot, .. },
                Question::Slot { slot, spi: named },
            ) => *changed == slot && (*is_slot || named == Some(*spi)),
            // The tunnel must still lead to the same slot.
            (Change::Sa { identity, .. }, Question::Tunnel(scope, template)) => {
                template.admits(scope, identity)
                    && self.tunnel != Some(self.tables.resolve(scope, &template))
            }
            // Listed so that whoever adds a kind of change sees what it must be held against.
            (
                Change::Vrf(_)
                | Change::Policy { .. }
                | Change::Filter { .. }
                | Change::Flows { .. }
                | Change::Tap(_)
                | Change::Route { .. }
                | Change::NextHop { .. }
                | Change::Member { .. }
                | Change::Port(_)
                | Change::Ike(_)
                | Change::Rule(_)
                | Change::Sa { .. },
                _,
            ) => false,
        }
    }

    /// Whether packets of the flow may meet the policies of an xfrm link. Which one a dropped packet
    /// was to leave by is not known. If the link came to another VRF since, a change says so that
    /// concerns the decision.
    fn may_meet(&self, if_id: IfId) -> bool {
        let Some(link) = self.tables.xfrm_link(if_id) else { return false };
        let came_by_it = || {
            let Origin::Sa(slot) = self.key.origin else { return false };
            let slot = self.tables.sad().slot(slot);
            slot.is_none_or(|slot| slot.identity.if_id == Some(if_id))
        };
        let key_vrf = self.tables.vrf(self.key.vrf);
        let is_near = link.spec.vrf == self.key.vrf
            // Rules and routes lead to links of other VRFs.
            || key_vrf.is_some_and(|vrf| vrf.features.leaves_elsewhere());
        is_near && (self.may_leave_by_link || came_by_it())
    }

    /// Whether it may matter to the flow that a next hop of a multipath route went down or came up.
    fn may_take(&self, next_hop: NextHopId, up: bool) -> bool {
        let is_by = |member| {
            // The port's own stands for the neighbours on its link.
            let port = self.tables.next_hop(next_hop).filter(|it| it.address.is_none());
            port.is_some_and(|own| {
                self.tables.next_hop(member).is_none_or(|it| it.port == own.port)
            })
        };
        up || self.member.is_none_or(|member| member == next_hop || is_by(member))
    }

    /// Whether a tap sees packets of the flow.
    fn meets_tap(&self, target: FilterTarget) -> bool {
        let link = links::entry(self.key, self.tables).map(|(_, link)| link.id);
        let came_by_link = |port| link == Some(port);
        match (target, &self.exit) {
            (FilterTarget::Vrf(vrf), _) => self.key.vrf == vrf,
            (FilterTarget::Port(port), _) if self.key.origin == Origin::Port(port) => true,
            (FilterTarget::Port(port), Exit::Port(exit)) => port == *exit || came_by_link(port),
            (FilterTarget::Port(port), Exit::Protected { link, outer }) => {
                *link == Some(port) || outer.is_none_or(|outer| outer == port) || came_by_link(port)
            }
            (FilterTarget::Port(_), Exit::Unknown) => true,
            (FilterTarget::Port(port), Exit::None) => came_by_link(port),
        }
    }

    /// Whether packets of the flow meet a filter of their VRF, or of that by which they leave.
    fn meets(&self, place: &FilterPlace) -> bool {
        match (place.hook, place.target, &self.exit) {
            (FilterHook::Ingress, FilterTarget::Port(port), _) => {
                self.key.origin == Origin::Port(port)
                    || links::entry(self.key, self.tables).is_some_and(|(_, link)| link.id == port)
            }
            (FilterHook::Ingress, FilterTarget::Vrf(_), _) => true,
            (FilterHook::Egress, _, Exit::None) => false,
            (FilterHook::Egress, FilterTarget::Port(port), Exit::Port(exit)) => port == *exit,
            (FilterHook::Egress, FilterTarget::Port(port), Exit::Protected { link, .. }) => {
                *link == Some(port)
            }
            (FilterHook::Egress, _, _) => true,
        }
    }
}

/// What packets of a flow look like when they leave. `None` if that is not known any more, since the
/// connection has ended by which they are translated, or since flows write into them.
fn after(key: &FlowKey, decision: &Decision, tables: &Tables) -> Option<FlowKey> {
    if decision.is_rewritten() {
        return None;
    }
    if !decision.is_translated() {
        return Some(*key);
    }
    // What each of them makes of packets is not in the decision.
    if decision.is_of_several() {
        return None;
    }
    match decision.reference().named() {
        Named::Connection(handle, direction, _) => {
            let translation = tables.connections()?.translation(handle, direction)?;
            Some(connection::translated(key, &translation.tuple))
        }
        _ => None,
    }
}

fn questions(
    key: &FlowKey,
    after: &FlowKey,
    decision: &Decision,
    tables: &Tables,
) -> Option<ArrayVec<Question, MOST>> {
    let destination = after.addresses.destination();
    let mut all = ArrayVec::new();
    all.push(Question::Vrf(key.vrf));
    all.push(Question::Policies(key.vrf));
    all.push(Question::Filters(key.vrf));
    all.push(Question::Flows(key.vrf));
    all.push(Question::Route { vrf: key.vrf, address: destination });
    leaks(&mut all, key.vrf, destination, tables);
    all.push(Question::OnLink(destination));
    let is_ruled = tables.vrf(key.vrf).is_some_and(|vrf| vrf.features.is_ruled);
    let may_lead_on = tables.has_leaks() || tables.loose_tables().next().is_some();
    if is_ruled {
        all.push(Question::Rules(links::rule_flow(&routed(after, key), tables)));
        if may_lead_on {
            all.push(Question::Elsewhere(destination));
        }
    }
    // Flows may ask for the route before the destination is translated.
    let received = key.addresses.destination();
    if received != destination && tables.pipeline().asks_for_exit(key.vrf) {
        all.push(Question::Route { vrf: key.vrf, address: received });
        leaks(&mut all, key.vrf, received, tables);
        if is_ruled {
            all.push(Question::Rules(links::rule_flow(key, tables)));
            if may_lead_on {
                all.push(Question::Elsewhere(received));
            }
        }
    }
    if let Upper::Spi(spi) = key.upper
        && key.protocol == Protocol::ESP
    {
        all.push(Question::Sa { vrf: key.vrf, destination, spi });
    }
    if let Verdict::Output(port) = decision.verdict() {
        all.push(Question::Vrf(tables.port(port)?.spec.vrf));
    }
    let is_sent_on = matches!(decision.verdict(), Verdict::Forward(_) | Verdict::Protect(..));
    if is_ike(key) && !is_sent_on {
        all.push(Question::Ike(key.vrf));
    }
    // On which side the ports are that the route to a source leads to.
    if let Verdict::Drop(DropReason::SourceProtected | DropReason::ReversePath) = decision.verdict()
    {
        all.push(Question::Elsewhere(key.addresses.source()));
    }
    // What a policy of this slot in the tables protects by; the outer `None` if there is none.
    let template = |slot| {
        let spec = &tables.policy_in(slot)?.spec;
        match spec.action {
            Action::Protect(template) => Some(Some((spec.scope(), template))),
            Action::Bypass | Action::Discard => Some(None),
        }
    };
    match key.origin {
        Origin::Port(port) => {
            all.push(Question::Listens(port));
            if tables.boundary(port).judges_sources {
                let source = key.addresses.source();
                all.push(Question::Route { vrf: key.vrf, address: source });
                leaks(&mut all, key.vrf, source, tables);
            }
        }
        Origin::Sa(slot) => {
            let template = match decision.inbound() {
                Some(policy) => template(policy)?,
                None => None,
            };
            let spi = template.and_then(|(_, template)| template.spi);
            all.push(Question::Slot { slot, spi });
            if let Some((_, link)) = links::entry(*key, tables) {
                all.push(Question::Listens(link.id));
                if tables.boundary(link.id).judges_sources {
                    let source = key.addresses.source();
                    all.push(Question::Route { vrf: key.vrf, address: source });
                    leaks(&mut all, key.vrf, source, tables);
                }
            }
        }
        Origin::Host | Origin::HostError(_) | Origin::HostProtected => {}
    }
    if let Some(policy) = decision.outbound()
        && let Some((scope, template)) = template(policy)?
    {
        all.push(Question::Tunnel(scope, template));
        // If another SA served the template, a change of SAs says so.
        let sa = || tables.sad().outbound(tables.resolve(scope, &template)?);
        let source = || sa().map(|sa| sa.spec.identity.source);
        let vrf = template.outer_vrf(scope);
        outer_way(&mut all, key, (vrf, source, template.destination), tables);
    }
    // The way back of a SYN.
    if is_sent_on && let Some(tunnel) = back(key, tables) {
        let ends = (tunnel.vrf, || Some(tunnel.source), tunnel.destination);
        outer_way(&mut all, key, ends, tables);
    }
    Some(all)
}

/// The tunnel by which answers go to a decrypted SYN, where its MSS may be lowered.
fn back(key: &FlowKey, tables: &Tables) -> Option<SaIdentity> {
    let vrf = tables.vrf(key.vrf).filter(|vrf| vrf.features.is_clamped && mss::is_syn(key));
    vrf.and_then(|_| mss::tunnel_back(key, tables))
}

/// Lists what the way of a tunnel's outer packets in a VRF was made from, of which the source is
/// asked if there are rules.
fn outer_way(
    all: &mut ArrayVec<Question, MOST>,
    key: &FlowKey,
    (vrf, source, end): (VrfId, impl FnOnce() -> Option<IpAddr>, IpAddr),
    tables: &Tables,
) {
    all.push(Question::OnLink(end));
    all.push(Question::Vrf(vrf));
    all.push(Question::Route { vrf, address: end });
    leaks(all, vrf, end, tables);
    let is_ruled = tables.vrf(vrf).is_some_and(|vrf| vrf.features.is_ruled);
    if let Some(source) = is_ruled.then(source).flatten() {
        all.push(Question::Rules(RuleFlow::outer(key, vrf, source, end)));
        if tables.has_leaks() || tables.loose_tables().next().is_some() {
            all.push(Question::Elsewhere(end));
        }
    }
}

/// Lists the routes that lead on from that to `address` in the table of `vrf`, and the VRF of the
/// port that they lead to, as they are now. If a route was another one before, so was the first one
/// that has changed, which is listed in either case.
fn leaks(all: &mut ArrayVec<Question, MOST>, vrf: VrfId, address: IpAddr, tables: &Tables) {
    if tables.vrf(vrf).is_none_or(|vrf| !vrf.features.is_leaking) {
        return;
    }
    let mut last = None;
    for (number, (step, route)) in tables.leak_steps(vrf, address).enumerate() {
        if number > 0 {
            all.push(Question::Route { vrf: step.id, address });
        }
        last = route.map(|route| route.kind);
    }
    let port = match last {
        Some(RouteKind::Connected { port }) => Some(port),
        Some(RouteKind::Via { next_hop }) => tables.next_hop(next_hop).map(|it| it.port),
        Some(RouteKind::Multipath { .. }) => {
            all.push(Question::Elsewhere(address));
            None
        }
        _ => None,
    };
    if let Some(port) = port.and_then(|port| tables.port(port)).filter(|it| it.spec.vrf != vrf) {
        all.push(Question::Vrf(port.spec.vrf));
    }
}
