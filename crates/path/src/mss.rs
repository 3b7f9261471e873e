//! How large the MSS may be that a SYN announces, by the ports on its way and by what is as large
//! as its way there and back.
//!
//! Nothing of this is in a decision but that the packet is a SYN and where the way back leads, so a
//! port's clamp or MTU may change without making decisions anew.

use tables::MssClamp;
use wire::{Origin, PortId, SaSlot, ipv4, ipv6, tcp};

use crate::encapsulation::inner_limit;
use crate::extension::MssWay;
use crate::outputs::Objects;

/// The way of a SYN, as it was decided.
#[derive(Clone, Copy)]
pub(crate) struct SynWay {
    pub origin: Origin,
    pub is_v6: bool,
    /// The port that it, or its outer packet, leaves by.
    pub exit: PortId,
    /// The SA that encrypts it, if one does.
    pub slot: Option<SaSlot>,
    /// The largest packet that may go this way, before it is encrypted.
    pub limit: u16,
    pub mss: MssWay,
}

/// The largest MSS that the SYN may announce; `None` if no port on its way clamps.
///
/// As with `TCPMSS --clamp-mss-to-pmtu` of Linux, the smaller of both ways counts: what the
/// announced segments take to come, and what the answer's, which has the same way, take to go.
pub(crate) fn most(way: &SynWay, objects: Objects<'_>) -> Option<u16> {
    let clamps = ports(way, objects).filter_map(|port| match objects.port(port)?.spec.mss {
        MssClamp::Off => None,
        MssClamp::Most(most) => Some(most),
        MssClamp::Pmtu => {
            let limit = back(way, objects).map_or(way.limit, |back| back.min(way.limit));
            let ip = if way.is_v6 { ipv6::HEADER_LENGTH } else { ipv4::HEADER_LENGTH };
            Some(limit.saturating_sub((ip + tcp::HEADER_LENGTH) as u16))
        }
    });
    clamps.min()
}

/// The ports through which the SYN comes and leaves: in clear, by an xfrm link, and inside ESP.
fn ports(way: &SynWay, objects: Objects<'_>) -> impl Iterator<Item = PortId> {
    let link_of = move |slot| objects.xfrm_link(objects.slot(slot)?.identity.if_id?);
    let entry = match way.origin {
        Origin::Port(port) => [Some(port), None],
        Origin::Sa(slot) => {
            let back = way.mss.back.and_then(|back| objects.next_hop(back));
            [link_of(slot).map(|link| link.id), back.map(|hop| hop.port)]
        }
        Origin::Host | Origin::HostError(_) | Origin::HostProtected => [None, None],
    };
    let link = way.slot.and_then(link_of).map(|link| link.id);
    entry.into_iter().chain([link, Some(way.exit)]).flatten()
}

/// The largest packet that may go the other way, if that is known.
fn back(way: &SynWay, objects: Objects<'_>) -> Option<u16> {
    match way.origin {
        Origin::Port(port) => Some(objects.port(port)?.spec.mtu),
        Origin::Sa(slot) => Some(tunnel_limit(objects, slot, objects.next_hop(way.mss.back?)?.mtu)),
        Origin::Host | Origin::HostError(_) | Origin::HostProtected => None,
    }
}

/// The largest packet that fits the tunnel of a slot where outer packets have at most `mtu` bytes.
/// Without an SA that is `mtu`.
pub(crate) fn tunnel_limit(objects: Objects<'_>, slot: SaSlot, mtu: u16) -> u16 {
    let Some(sa) = objects.outbound(slot) else { return mtu };
    let limit = inner_limit(sa, mtu);
    match sa.spec.identity.if_id {
        None => limit,
        Some(if_id) => objects.xfrm_link(if_id).map_or(limit, |link| limit.min(link.spec.mtu)),
    }
}
