//! From which address the gateway tells a sender what became of its packet.

use std::net::IpAddr;

use tables::{Action, Direction, RouteKind, Tables};
use wire::{
    Addresses, FlowKey, FragmentClass, IpPrefix, Origin, PacketFields, PortId, Protocol, Upper,
    VrfId, icmpv4, icmpv6,
};

use crate::decision::Decision;

/// Whether one of the addresses is the broadcast address of one of the VRF's networks: then nobody
/// is told anything (RFC 1122 section 3.2.2, RFC 1812 section 4.3.2.7).
pub(crate) fn has_broadcast(vrf: VrfId, addresses: &Addresses, tables: &Tables) -> bool {
    let kind = |address| Some(tables.vrf(vrf)?.route(address)?.kind);
    [addresses.source(), addresses.destination()]
        .into_iter()
        .any(|address| kind(address) == Some(RouteKind::Broadcast))
}

/// So many addresses of a VRF are tried.
const MOST_TRIED: usize = 64;

/// The address of ours from which an ICMP error is sent to `peer`, of whose packet it is not known which
/// policy admitted it: one from which a tunnel leads there, if there is one, so that the other end lets
/// it in; otherwise what [`Tables::source_in`] says.
pub(crate) fn source_to(vrf: VrfId, port: PortId, peer: IpAddr, tables: &Tables) -> Option<IpAddr> {
    let by_port = tables.source_in(vrf, port, peer);
    let spd = &tables.vrf(vrf)?.spd;
    if spd.count(Direction::Out) == 0 {
        return by_port;
    }
    let is_protected = |own: &IpAddr| {
        let (addresses, protocol, kind) = match (*own, peer) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => (
                Addresses::V4 { source, destination },
                Protocol::ICMP,
                icmpv4::DESTINATION_UNREACHABLE,
            ),
            (IpAddr::V6(source), IpAddr::V6(destination)) => (
                Addresses::V6 { source, destination },
                Protocol::ICMPV6,
                icmpv6::DESTINATION_UNREACHABLE,
            ),
            _ => return false,
        };
        let key = FlowKey {
            vrf,
            origin: Origin::HostProtected,
            addresses,
            protocol,
            upper: Upper::Icmp { kind, code: 0, identifier: 0 },
            fragment: FragmentClass::Whole,
            fields: PacketFields::NONE,
        };
        let found = spd.lookup(Direction::Out, &key);
        found.is_some_and(|policy| matches!(policy.spec.action, Action::Protect(_)))
    };
    let mut own = own_addresses(vrf, tables).take(MOST_TRIED);
    by_port.filter(is_protected).or_else(|| own.find(is_protected)).or(by_port)
}

/// The addresses of ours in a VRF that a tunnel may have: link-local ones of IPv6 are not in the FIB.
fn own_addresses(vrf: VrfId, tables: &Tables) -> impl Iterator<Item = IpAddr> {
    let own = tables.ports_of(vrf).flat_map(|port| &port.spec.addresses).map(IpPrefix::address);
    own.filter(move |own| tables.vrf(vrf).is_some_and(|vrf| vrf.is_local(*own)))
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
        own_addresses(key.vrf, tables).find(|own| inside.contains(*own))
    };
    match key.origin {
        Origin::Sa(_) => match tables.port(port).and_then(|port| port.spec.if_id) {
            Some(_) => by_port().or_else(covered),
            // Where filters or flows refuse it, no inbound policy was asked.
            None => covered().or_else(|| source_to(key.vrf, port, key.addresses.source(), tables)),
        },
        Origin::Port(_) | Origin::Host | Origin::HostError(_) | Origin::HostProtected => by_port(),
    }
}
