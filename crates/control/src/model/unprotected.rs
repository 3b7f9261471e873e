//! What whoever removes policies is told: a VRF that is closed now, or packets that leave in clear.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Refusal, Reply, Request};
use packet::Time;
use tables::{Action, Policy, Scope, Tables, UpperSelector, Vrf};
use types::{
    Addresses, DefaultAction, Direction, FlowKey, FragmentClass, Origin, PacketFields, Protocol,
    Upper,
};

use super::Draft;
use super::routes::listed;
use super::security::find_policy;

impl Draft<'_> {
    /// Carries a request out. Whoever takes the last policy of a VRF is told that it is closed now, and
    /// whoever takes one that protected packets that these leave in clear.
    pub(super) fn carry_out(&mut self, request: Request, now: Time) -> Result<Reply, Refusal> {
        if !matches!(
            request,
            Request::PolicyDelete(_) | Request::PolicyFlush(_) | Request::VrfSet(_)
        ) {
            return self.change(request, now);
        }
        // A copy of all tables would have each of them copied by the next change.
        let was_closed: BTreeSet<_> = closed(&self.tables).map(|vrf| vrf.id).collect();
        let concerned: Vec<_> = match &request {
            Request::PolicyDelete(id) => {
                let index = find_policy(&self.tables, self.desired, id).ok();
                let policy = index.and_then(|index| self.tables.policy_of_index(index));
                policy.cloned().into_iter().collect()
            }
            Request::PolicyFlush(_) => outbound(&self.tables).cloned().collect(),
            _ => Vec::new(),
        };
        let reply = self.change(request, now)?;
        let is_closed = closed(&self.tables).filter(|vrf| !was_closed.contains(&vrf.id));
        let mut doubts: Vec<_> = is_closed.map(|vrf| closed_by(&vrf.name)).collect();
        doubts.extend(let_out(&concerned, &self.tables));
        if doubts.is_empty() {
            return Ok(reply);
        }
        let removed = match reply {
            Reply::Count(count) => format!("{count} removed. "),
            _ => String::new(),
        };
        Ok(Reply::Warned(removed + &doubts.join(". ")))
    }
}

/// The VRFs that are IPsec gateways without policies.
pub(super) fn closed(tables: &Tables) -> impl Iterator<Item = &Vrf> {
    tables.vrfs().filter(|vrf| vrf.is_closed())
}

/// What is said of a VRF that is closed.
fn closed_by(vrf: &str) -> String {
    format!(
        "VRF {vrf} is an IPsec gateway and has no policies: it forwards nothing across its \
         boundary now. A policy opens it, or `hitpath vrf set {vrf} ipsec auto` if it is to be a \
         plain router"
    )
}

/// The outbound policies of VRFs.
fn outbound(tables: &Tables) -> impl Iterator<Item = &Arc<Policy>> {
    let of_vrfs = tables.spds().filter(|(scope, _)| matches!(scope, Scope::Vrf(_)));
    of_vrfs.flat_map(|(_, spd)| spd.policies(Direction::Out))
}

/// What is said of those of these policies that are gone, if packets that they protected pass in clear now.
fn let_out(concerned: &[Arc<Policy>], after: &Tables) -> Option<String> {
    let lets_out = |policy: &&Arc<Policy>| {
        let is_gone = after.policy_of_index(policy.index).is_none();
        let Scope::Vrf(vrf) = policy.spec.scope() else { return false };
        let is_outbound = policy.spec.direction == Direction::Out;
        let of_vrf = after.vrf(vrf).filter(|vrf| is_gone && is_outbound && !vrf.is_closed());
        let is_protected = matches!(policy.spec.action, Action::Protect(_));
        let (Some(vrf), true, Some(key)) = (of_vrf, is_protected, a_packet_of(policy)) else {
            return false;
        };
        match vrf.spd.lookup(Direction::Out, &key) {
            Some(behind) => behind.spec.action == Action::Bypass,
            None => vrf.spd.default_action(Direction::Out) == DefaultAction::Accept,
        }
    };
    let gone: Vec<_> = concerned.iter().filter(lets_out).collect();
    let first = gone.first()?;
    let of = |policy: &Policy| match after.vrf_name(policy.spec.vrf) {
        Some(name) if name != api::MAIN_VRF => format!(" vrf {name}"),
        _ => String::new(),
    };
    let told: Vec<_> =
        gone.iter().map(|policy| policy.spec.selector.to_string() + &of(policy)).collect();
    Some(format!(
        "what was protected leaves in clear now where a route leads on: {}; `xfrm policy add {}{} \
         dir out action block priority {}` keeps it in",
        listed(&told),
        first.spec.selector,
        of(first),
        u32::MAX
    ))
}

/// One of the packets that a policy is for. If it is for every protocol, the packet is of 253 (for
/// experiments, RFC 3692), which hardly any other policy names.
fn a_packet_of(policy: &Policy) -> Option<FlowKey> {
    let selector = &policy.spec.selector;
    let protocol = selector.protocol.unwrap_or(Protocol(253));
    let upper = match selector.upper {
        UpperSelector::Ports { source, destination } => {
            Upper::Ports { source: source.first(), destination: destination.first() }
        }
        UpperSelector::Icmp { kind, code } => {
            Upper::Icmp { kind: kind.0, code: code.0, identifier: 0 }
        }
        UpperSelector::Any if protocol.has_ports() => Upper::Ports { source: 0, destination: 0 },
        UpperSelector::Any => Upper::None,
    };
    Some(FlowKey {
        vrf: policy.spec.vrf,
        origin: Origin::Host,
        addresses: Addresses::new(selector.source.first(), selector.destination.first())?,
        protocol,
        fragment: FragmentClass::Whole,
        upper,
        fields: PacketFields::NONE,
    })
}
