//! What decide asks the tables, and which change may alter an answer.
//!
//! A decision follows from its key and from the answers to some questions. An entry of the cache
//! holds while no change alters one of these answers; so each question that decide asks is here,
//! and [`Asked`] lists those that a decision was made from. A test holds the list against what
//! decide really asks.

use std::net::IpAddr;

use arrayvec::ArrayVec;
use packet::DropReason;
use tables::{Action, Change, FilterHook, FilterPlace, FilterTarget, NextHopId, Tables, Template};
use wire::{FlowKey, Origin, PortId, Protocol, SaSlot, Spi, Upper, VrfId};

use crate::decide::is_ike;
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
    /// Which policies of a VRF does the packet match, in any direction, and what is done without?
    Policies(VrfId),
    /// Which rules decide in the filters on the packet's way, in this VRF?
    Filters(VrfId),
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
    /// Which slot serves a template for packets of this VRF?
    Tunnel(VrfId, Template),
    /// Which next hop stands for an address on a link?
    OnLink(IpAddr),
    /// Is IKE for a VRF's own addresses asked policies?
    Ike(VrfId),
    /// Does a port listen to the destination?
    Listens(PortId),
}

/// More questions than one decision takes.
const MOST: usize = 14;

/// The questions that a decision was made from.
pub(crate) struct Asked<'t> {
    key: FlowKey,
    /// `None` if that is no longer known, since a policy that it names is gone.
    questions: Option<ArrayVec<Question, MOST>>,
    /// What [`Question::Tunnel`] was answered; the outer `None` if the decision does not tell.
    tunnel: Option<Option<SaSlot>>,
    /// Which next hop the flow's packets take, if that is known.
    member: Option<NextHopId>,
    exit: Exit,
    tables: &'t Tables,
}

/// The port that a packet leaves by, as filters after routing are concerned.
enum Exit {
    /// It was dropped before that mattered.
    None,
    /// It leaves by this one.
    Port(PortId),
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
        let questions = questions(key, decision, tables);
        let member = match decision.verdict() {
            Verdict::Forward(next_hop) => Some(next_hop),
            _ => None,
        };
        let exit = match decision.verdict() {
            // If the id names another next hop by now, a change says so that concerns the decision.
            Verdict::Forward(next_hop) | Verdict::Protect(_, next_hop) => {
                tables.next_hop(next_hop).map_or(Exit::Unknown, |hop| Exit::Port(hop.port))
            }
            Verdict::Drop(DropReason::FilterEgress)
            | Verdict::Refuse(DropReason::FilterEgress, _) => Exit::Unknown,
            _ => Exit::None,
        };
        Self { key: *key, questions, tunnel, member, exit, tables }
    }

    /// Whether a change may have altered one of the answers.
    pub(crate) fn concern(&self, change: &Change) -> bool {
        let Some(questions) = &self.questions else { return true };
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
            (Change::Policy { vrf: changed, selector }, Question::Policies(vrf)) => {
                *changed == vrf && selector.matches(&self.key)
            }
            (Change::Filter { vrf: changed, place, selector }, Question::Filters(vrf)) => {
                *changed == vrf && selector.matches(&self.key) && self.meets(place)
            }
            (Change::Route { vrf: changed, prefix }, Question::Route { vrf, address }) => {
                *changed == vrf && prefix.contains(address)
            }
            // No other member's flows move if one goes down. Which one a dropped packet took, or one
            // that leaves by a tunnel, is not known; on which side that is may matter.
            (
                Change::Member { vrf: changed, prefix, next_hop, up },
                Question::Route { vrf, address },
            ) => {
                let is_concerned = match up {
                    true => true,
                    false => self.member.is_none_or(|member| member == *next_hop),
                };
                is_concerned && *changed == vrf && prefix.contains(address)
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
            (Change::Sa { identity, .. }, Question::Tunnel(vrf, template)) => {
                template.admits(vrf, identity)
                    && self.tunnel != Some(self.tables.resolve(vrf, &template))
            }
            // Listed so that whoever adds a kind of change sees what it must be held against.
            (
                Change::Vrf(_)
                | Change::Policy { .. }
                | Change::Filter { .. }
                | Change::Route { .. }
                | Change::NextHop { .. }
                | Change::Member { .. }
                | Change::Port(_)
                | Change::Ike(_)
                | Change::Sa { .. },
                _,
            ) => false,
        }
    }

    /// Whether packets of the flow meet a filter of their VRF.
    fn meets(&self, place: &FilterPlace) -> bool {
        match (place.hook, place.target, &self.exit) {
            (FilterHook::Ingress, FilterTarget::Port(port), _) => {
                self.key.origin == Origin::Port(port)
            }
            (FilterHook::Ingress, FilterTarget::Vrf(_), _) => true,
            (FilterHook::Egress, _, Exit::None) => false,
            (FilterHook::Egress, FilterTarget::Port(port), Exit::Port(exit)) => port == *exit,
            (FilterHook::Egress, _, _) => true,
        }
    }
}

fn questions(
    key: &FlowKey,
    decision: &Decision,
    tables: &Tables,
) -> Option<ArrayVec<Question, MOST>> {
    let destination = key.addresses.destination();
    let mut all = ArrayVec::new();
    all.push(Question::Vrf(key.vrf));
    all.push(Question::Policies(key.vrf));
    all.push(Question::Filters(key.vrf));
    all.push(Question::Route { vrf: key.vrf, address: destination });
    all.push(Question::OnLink(destination));
    if let Upper::Spi(spi) = key.upper
        && key.protocol == Protocol::ESP
    {
        all.push(Question::Sa { vrf: key.vrf, destination, spi });
    }
    let is_sent_on = matches!(decision.verdict(), Verdict::Forward(_) | Verdict::Protect(..));
    if is_ike(key) && !is_sent_on {
        all.push(Question::Ike(key.vrf));
    }
    // What a policy of this slot in the tables protects by; the outer `None` if there is none.
    let template = |slot| match tables.policy_in(slot)?.spec.action {
        Action::Protect(template) => Some(Some(template)),
        Action::Bypass | Action::Discard => Some(None),
    };
    match key.origin {
        Origin::Port(port) => {
            all.push(Question::Listens(port));
            if tables.boundary(port).judges_sources {
                let source = key.addresses.source();
                all.push(Question::Route { vrf: key.vrf, address: source });
            }
        }
        Origin::Sa(slot) => {
            let template = match decision.inbound() {
                Some(policy) => template(policy)?,
                None => None,
            };
            let spi = template.and_then(|template| template.spi);
            all.push(Question::Slot { slot, spi });
        }
        Origin::Host | Origin::HostError(_) | Origin::HostProtected => {}
    }
    if let Some(policy) = decision.outbound()
        && let Some(template) = template(policy)?
    {
        all.push(Question::Tunnel(key.vrf, template));
        all.push(Question::OnLink(template.destination));
        let vrf = template.outer_vrf(key.vrf);
        all.push(Question::Vrf(vrf));
        all.push(Question::Route { vrf, address: template.destination });
    }
    Some(all)
}
