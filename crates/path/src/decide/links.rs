//! What xfrm links ask of a decision: each is a boundary of its own.
//!
//! For all but the policies of its `if_id` a link is a port of the protected side.

use packet::DropReason;
use tables::{
    Action, DefaultAction, Direction, IfId, Policy, PolicySlot, Port, RuleFlow, Scope, Tables,
};
use wire::{FlowKey, Origin, PortId};

use super::question::Question;
use super::trace::{FoundPolicy, Step, Trace, WithoutPolicies};
use super::way::{Way, clear, crosses, exit_port};
use super::{Admission, Deciding, KeyView, Mark};
use crate::decision::{Decision, Verdict};

/// The xfrm link that packets of a flow entered by, if they did by one.
pub(crate) fn entry(key: impl KeyView, tables: &Tables) -> Option<(IfId, &Port)> {
    let Origin::Sa(slot) = key.origin() else { return None };
    let if_id = tables.sad().slot(slot)?.identity.if_id?;
    let link = tables.xfrm_link(if_id)?;
    // Otherwise it has moved since, and this is nobody's flow any more.
    (link.spec.vrf == key.vrf()).then_some((if_id, link))
}

/// What policy rules ask of a flow. What came by a link came by a port.
pub(super) fn rule_flow(key: &FlowKey, tables: &Tables) -> RuleFlow {
    let flow = RuleFlow::of(key);
    let port = flow.port.or_else(|| entry(*key, tables).map(|(_, link)| link.id));
    RuleFlow { port, ..flow }
}

/// The xfrm link that packets leave by which this policy protects, if they do by one.
pub(crate) fn exit(policy: Option<PolicySlot>, tables: &Tables) -> Option<&Port> {
    tables.xfrm_link(tables.policy_in(policy?)?.spec.if_id?)
}

/// The xfrm link that a way leads by, if it leads by one.
pub(super) fn port_of(way: Way, tables: &Tables) -> Option<PortId> {
    let port = tables.port(exit_port(way, tables)?)?;
    port.spec.if_id.map(|_| port.id)
}

impl<'a, K: KeyView, T: Trace, M: Mark> Deciding<'_, 'a, K, T, M> {
    pub(super) fn entry_link(&self) -> Option<(IfId, &'a Port)> {
        entry(self.key, self.tables)
    }

    pub(super) fn exit_link(&self, way: Way) -> Option<(IfId, &'a Port)> {
        let link = self.tables.port(exit_port(way, self.tables)?)?;
        Some((link.spec.if_id?, link))
    }

    /// Whose policies a packet meets on its way in.
    #[inline(always)]
    pub(super) fn entry_scope(&self) -> Scope {
        match self.entry_link() {
            Some((if_id, _)) if M::LINKS => Scope::Link(if_id),
            _ => Scope::Vrf(self.key.vrf()),
        }
    }

    /// The inbound check of what is not for us and came by a link.
    pub(super) fn admit_forwarded_of_link(&mut self) -> Result<Admission, Decision> {
        let spd = self.tables.spd(self.entry_scope());
        self.admit(spd.map_or(Direction::In, |spd| spd.of_forwarded()))
    }

    /// Nothing is looked up before for packets of links: they are the fewest.
    pub(super) fn policy_of_link(
        &mut self,
        if_id: IfId,
        direction: Direction,
    ) -> Option<&'a Policy> {
        let spd = self.tables.spd(Scope::Link(if_id));
        let flow = self.judged(direction);
        let tables = self.tables;
        let place = || FoundPolicy::of(tables, spd?, direction, &flow);
        let default = DefaultAction::Block;
        self.trace.step(|| Step::Policy { direction, found: place(), default });
        spd?.lookup(direction, &flow).map(|policy| &**policy)
    }

    /// For somebody else, by a link: encrypted as its policies say, or not at all.
    pub(super) fn leave_by_link(mut self, if_id: IfId, link: &'a Port) -> Decision {
        if !link.spec.up {
            self.trace.step(|| Step::Link { port: link, if_id, is_exit: true });
            return Decision::drop(DropReason::PortDown);
        }
        let is_closed = self.vrf.is_closed();
        let way = Way::OnLink(link.id, self.key.destination());
        if is_closed && self.entry_link().is_none() && crosses(self.key, way, self.tables) {
            self.trace.asks(|| Question::Policies(self.key.vrf()));
            let then = WithoutPolicies::Closed;
            self.trace.step(|| Step::NoPolicies { vrf: self.vrf, then });
            return Decision::drop(DropReason::IpsecClosed);
        }
        let admission = match self.admit_forwarded() {
            Ok(admission) => admission,
            Err(refused) => return refused,
        };
        let Admission::Admitted(inbound) = admission else {
            return Decision::drop(DropReason::PolicyNoMatch);
        };
        self.trace.step(|| Step::Link { port: link, if_id, is_exit: true });
        let scope = Scope::Link(if_id);
        let policy = self.policy(scope, Direction::Out);
        let outbound = policy.map(|policy| policy.handle.place());
        let verdict = match policy.map(|policy| policy.spec.action) {
            Some(Action::Protect(template)) => self.protect(scope, &template),
            Some(Action::Discard) => Verdict::Drop(DropReason::PolicyDiscard),
            Some(Action::Bypass) | None => Verdict::Drop(DropReason::PolicyNoMatch),
        };
        Decision::new(verdict, inbound, outbound)
    }

    /// By a link into a VRF without policies of its own.
    pub(super) fn come_by_link(mut self, way: Way, decision: &mut Decision) {
        match self.admit_forwarded() {
            Ok(admission) => {
                let crosses = self.vrf.is_closed() && crosses(self.key, way, self.tables);
                self.trace.step(|| {
                    let then = match self.vrf.is_closed() {
                        false => WithoutPolicies::NotAsked(Direction::Out),
                        true if crosses => WithoutPolicies::Closed,
                        true => WithoutPolicies::Stays,
                    };
                    Step::NoPolicies { vrf: self.vrf, then }
                });
                match crosses {
                    true => {
                        let closed = Verdict::Drop(DropReason::IpsecClosed);
                        *decision = Decision::new(closed, admission.policy(), None);
                    }
                    false => {
                        clear(way, admission.policy(), None, self.tables, self.trace, decision);
                    }
                }
            }
            Err(refused) => *decision = refused,
        }
    }
}
