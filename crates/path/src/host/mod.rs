//! The gateway as a host on its links: ARP, neighbour discovery, echo, and ICMP errors.

pub(crate) mod arp;
pub(crate) mod conflict;
pub(crate) mod echo;
pub(crate) mod errors;
pub(crate) mod nd;
pub(crate) mod resolve;

use std::net::IpAddr;

use packet::{DropReason, Packet};
use wire::{FlowKey, Origin, Protocol, Upper, icmpv4, icmpv6};

use crate::batch::{Arrival, Known, Queues};
use crate::decide::IKE;
use crate::decision::Refusal;
use crate::host::errors::IcmpError;
use crate::stage::apply::Applier;

/// A packet for the gateway itself.
///
/// Exits: `local_esp_error`, `local_icmp`, `local_ike`, `local_left_to_system`, `local_no_listener`.
#[cold]
pub(crate) fn deliver(
    applier: &mut Applier<'_, '_>,
    packet: Packet,
    known: &Known,
    queues: &mut Queues,
) {
    let objects = applier.neighbours.outputs.objects;
    match delivery(&known.key, |address| objects.is_systems(address)) {
        Delivery::Echo => echo::reply(applier, packet, known, queues),
        Delivery::Ends(reason) => applier.end::<true>(packet, known, reason),
        Delivery::Refused(error) => {
            applier.tell_sender(&packet, known, error, queues);
            applier.end::<true>(packet, known, DropReason::LocalNoListener);
        }
    }
}

/// What becomes of a packet for the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// An echo request, which is answered.
    Echo,
    /// It ends here, in silence.
    Ends(DropReason),
    /// Nobody listens, and the sender is told.
    Refused(IcmpError),
}

/// What becomes of a whole packet for the gateway itself. `is_systems` says of an address whether
/// the system's own stack has it, and the packet, too: somebody may listen there. It does not have
/// what was decrypted.
pub(crate) fn delivery(key: &FlowKey, is_systems: impl FnOnce(IpAddr) -> bool) -> Delivery {
    match (key.protocol, key.upper) {
        (Protocol::ICMP, Upper::Icmp { kind: icmpv4::ECHO_REQUEST, code: 0, .. })
        | (Protocol::ICMPV6, Upper::Icmp { kind: icmpv6::ECHO_REQUEST, code: 0, .. }) => {
            Delivery::Echo
        }
        (Protocol::ICMP | Protocol::ICMPV6, Upper::Spi(_)) => {
            Delivery::Ends(DropReason::LocalEspError)
        }
        (Protocol::ICMP | Protocol::ICMPV6, _) => Delivery::Ends(DropReason::LocalIcmp),
        (Protocol::UDP, Upper::Ports { destination, .. }) if IKE.contains(&destination) => {
            Delivery::Ends(DropReason::LocalIke)
        }
        _ if matches!(key.origin, Origin::Port(_)) && is_systems(key.addresses.destination()) => {
            Delivery::Ends(DropReason::LocalLeftToSystem)
        }
        // RFC 9293 section 3.10.7.1.
        (Protocol::TCP, _) => Delivery::Refused(IcmpError::Unreachable(Refusal::TcpReset)),
        // RFC 1122 section 4.1.3.1.
        (Protocol::UDP | Protocol::UDP_LITE, _) => {
            Delivery::Refused(IcmpError::Unreachable(Refusal::Port))
        }
        _ => Delivery::Refused(IcmpError::Protocol),
    }
}

/// How the gateway's own answer to a packet of the flow `key` enters the stages.
pub(crate) fn answer_to(key: &FlowKey) -> Arrival {
    let origin = match key.origin {
        Origin::Port(_) | Origin::Host | Origin::HostError(_) => Origin::Host,
        Origin::Sa(_) | Origin::HostProtected => Origin::HostProtected,
    };
    Arrival::new(key.vrf, origin)
}

/// How the gateway's own ICMP error about a packet of the flow `key` enters the stages.
pub(crate) fn error_about(key: &FlowKey) -> Arrival {
    let Arrival { vrf, origin, .. } = answer_to(key);
    let origin = match key.origin {
        Origin::Port(port) => Origin::HostError(port),
        _ => origin,
    };
    Arrival::new(vrf, origin)
}
