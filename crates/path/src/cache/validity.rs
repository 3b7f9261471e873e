//! Whether a decision made from an older snapshot is what [`crate::decide()`] would answer from
//! this one.

use std::net::IpAddr;

use tables::{Action, Change, Policy, RouteKind, SaIdentity, Tables};
use wire::{FlowKey, Origin, Protocol, SaSlot, Spi, Upper, VrfId};

use crate::decision::{Decision, Exit, Verdict};
use crate::encapsulation::inner_limit;

/// More changes than this are not gone through, so that the work is bounded; the flow is decided
/// anew.
pub(crate) const MOST_CHANGES: usize = 64;

/// Whether nothing that changed after `generation` concerns the flow. May say no where the answer
/// would be the same; never yes where it would not.
pub(crate) fn holds(key: &FlowKey, decision: &Decision, generation: u64, tables: &Tables) -> bool {
    let Some(changes) = tables.changes_since(generation) else { return false };
    let mut left = MOST_CHANGES;
    for change in changes {
        if left == 0 || concerns(change, key, decision, tables) {
            return false;
        }
        left -= 1;
    }
    true
}

fn concerns(change: &Change, key: &FlowKey, decision: &Decision, tables: &Tables) -> bool {
    match *change {
        Change::Policy { vrf, ref selector } => vrf == key.vrf && selector.matches(key),
        Change::Route { vrf, ref prefix } => {
            (vrf == key.vrf && prefix.contains(key.addresses.destination()))
                || tunnel(decision, tables)
                    .is_none_or(|end| end.is_some_and(|end| prefix.contains(end)))
        }
        Change::Neighbour { port, address } => decision.exit().is_some_and(|exit| {
            exit.port == port && next_hop(key, decision, tables) == Some(address)
        }),
        Change::Sa { ref identity, spi, slot, is_slot } => {
            sa_concerns(identity, spi, slot, is_slot, key, decision, tables)
        }
        Change::Port(port) => {
            key.origin == Origin::Port(port)
                || decision.exit().is_some_and(|exit| exit.port == port)
        }
        Change::Vrf(vrf) => vrf == key.vrf,
    }
}

/// The end of the tunnel that the outbound policy wants; the outer `None` where the policy is gone.
fn tunnel(decision: &Decision, tables: &Tables) -> Option<Option<IpAddr>> {
    let Some(slot) = decision.outbound else { return Some(None) };
    tables.policy_in(slot).map(|policy| match &policy.spec.action {
        Action::Protect(template) => Some(template.destination),
        Action::Bypass | Action::Discard => None,
    })
}

fn sa_concerns(
    identity: &SaIdentity,
    spi: Spi,
    slot: SaSlot,
    is_slot: bool,
    key: &FlowKey,
    decision: &Decision,
    tables: &Tables,
) -> bool {
    // What this slot's SAs decrypted. Another SA in the slot matters to a policy that names one.
    if key.origin == Origin::Sa(slot) && (is_slot || inbound_names(decision, tables, spi)) {
        return true;
    }
    if identity.vrf != key.vrf {
        return false;
    }
    // ESP for this very SA.
    if key.protocol == Protocol::ESP
        && key.upper == Upper::Spi(spi)
        && key.addresses.destination() == identity.destination
    {
        return true;
    }
    // What this tunnel's SAs protect: it must still lead to the same slot, and as large packets
    // fit.
    let Some(outbound) = decision.outbound else { return false };
    let Some(policy) = tables.policy_in(outbound) else { return true };
    match &policy.spec.action {
        Action::Protect(template) if template.admits(identity) => {
            !is_resolved_as_before(policy, key.vrf, decision, tables)
        }
        _ => false,
    }
}

fn inbound_names(decision: &Decision, tables: &Tables, spi: Spi) -> bool {
    let Some(slot) = decision.inbound else { return false };
    match tables.policy_in(slot).map(|policy| &policy.spec.action) {
        Some(Action::Protect(template)) => template.spi == Some(spi),
        Some(Action::Bypass | Action::Discard) => false,
        None => true,
    }
}

fn is_resolved_as_before(
    policy: &Policy,
    vrf: VrfId,
    decision: &Decision,
    tables: &Tables,
) -> bool {
    let (Action::Protect(template), Verdict::Protect(slot, exit)) =
        (&policy.spec.action, &decision.verdict)
    else {
        return false;
    };
    let (Some(sa), Some(port)) = (tables.sad().outbound(*slot), tables.port(exit.port)) else {
        return false;
    };
    tables.resolve(vrf, template) == Some(*slot) && inner_limit(sa, port.spec.mtu) == exit.limit
}

/// The next hop that a decision leads to. Where its route has changed since, another change says
/// so.
fn next_hop(key: &FlowKey, decision: &Decision, tables: &Tables) -> Option<IpAddr> {
    let (vrf, destination) = match decision.verdict {
        Verdict::Protect(slot, _) => {
            let identity = &tables.sad().slot(slot)?.identity;
            (identity.vrf, identity.destination)
        }
        _ => (key.vrf, key.addresses.destination()),
    };
    match tables.vrf(vrf)?.route(destination)?.kind {
        RouteKind::Connected { .. } => Some(destination),
        RouteKind::Via { next_hop, .. } => Some(next_hop),
        _ => None,
    }
}

impl Decision {
    /// The way out, where there is one.
    fn exit(&self) -> Option<&Exit> {
        match &self.verdict {
            Verdict::Forward(exit) | Verdict::Protect(_, exit) => Some(exit),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
