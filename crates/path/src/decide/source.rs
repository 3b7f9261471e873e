//! From which address the gateway tells a sender what became of its packet.

use std::net::IpAddr;

use tables::{Action, RouteKind, Tables};
use wire::{Addresses, FlowKey, IpPrefix, Origin, PortId, VrfId};

use crate::decision::Decision;

/// Whether one of the addresses is the broadcast address of one of the VRF's networks: then nobody
/// is told anything (RFC 1122 section 3.2.2, RFC 1812 section 4.3.2.7).
pub(crate) fn has_broadcast(vrf: VrfId, addresses: &Addresses, tables: &Tables) -> bool {
    let kind = |address| Some(tables.vrf(vrf)?.route(address)?.kind);
    [addresses.source(), addresses.destination()]
        .into_iter()
        .any(|address| kind(address) == Some(RouteKind::Broadcast))
}

/// The address of ours from which an ICMP error about a packet is sent: if it came by a tunnel, one
/// that the tunnel's policy covers, so that the error may go back the same way; otherwise what
/// [`Tables::source_in`] says, which is of the port that it came by if that has one (RFC 1812
/// section 4.3.2.4). What came by an xfrm link came by a port.
///
/// `port` is the one that the packet came by. The policy is the one that the packet's own decision names: nothing is looked up.
pub(crate) fn source_of_error(
    key: &FlowKey,
    decision: &Decision,
    port: PortId,
    tables: &Tables,
) -> Option<IpAddr> {
    let by_port = || tables.source_in(key.vrf, port, key.addresses.source());
    let covered = || {
        let policy = tables.policy_in(decision.inbound()?)?;
        let Action::Protect(_) = policy.spec.action else { return None };
        let inside = policy.spec.selector.destination;
        let vrf = tables.vrf(key.vrf)?;
        let mut own =
            tables.ports_of(key.vrf).flat_map(|port| &port.spec.addresses).map(IpPrefix::address);
        // Link-local addresses are no tunnel's, and not in the FIB.
        own.find(|own| inside.contains(*own) && vrf.is_local(*own))
    };
    match key.origin {
        Origin::Sa(_) => match tables.port(port).and_then(|port| port.spec.if_id) {
            Some(_) => by_port().or_else(covered),
            None => covered().or_else(by_port),
        },
        Origin::Port(_) | Origin::Host | Origin::HostError(_) | Origin::HostProtected => by_port(),
    }
}
