//! The gateway as a host on its links: ARP, neighbour discovery, echo, and ICMP errors.

pub(crate) mod arp;
mod echo;
pub(crate) mod errors;
pub(crate) mod nd;
pub(crate) mod resolve;

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
    match (known.key.protocol, known.key.upper) {
        (Protocol::ICMP, Upper::Icmp { kind: icmpv4::ECHO_REQUEST, .. })
        | (Protocol::ICMPV6, Upper::Icmp { kind: icmpv6::ECHO_REQUEST, .. }) => {
            echo::reply(applier, packet, known, queues);
        }
        (Protocol::ICMP | Protocol::ICMPV6, Upper::Spi(_)) => {
            applier.end::<true>(packet, known, DropReason::LocalEspError);
        }
        (Protocol::ICMP | Protocol::ICMPV6, _) => {
            applier.end::<true>(packet, known, DropReason::LocalIcmp);
        }
        (Protocol::UDP, Upper::Ports { destination, .. }) if IKE.contains(&destination) => {
            applier.end::<true>(packet, known, DropReason::LocalIke);
        }
        _ if is_left_to_system(applier, known) => {
            applier.end::<true>(packet, known, DropReason::LocalLeftToSystem);
        }
        // RFC 9293 section 3.10.7.1.
        (Protocol::TCP, _) => {
            applier.tell_sender(&packet, known, IcmpError::Unreachable(Refusal::TcpReset), queues);
            applier.end::<true>(packet, known, DropReason::LocalNoListener);
        }
        // RFC 1122 section 4.1.3.1.
        (Protocol::UDP | Protocol::UDP_LITE, _) => {
            applier.tell_sender(&packet, known, IcmpError::Unreachable(Refusal::Port), queues);
            applier.end::<true>(packet, known, DropReason::LocalNoListener);
        }
        _ => {
            applier.tell_sender(&packet, known, IcmpError::Protocol, queues);
            applier.end::<true>(packet, known, DropReason::LocalNoListener);
        }
    }
}

/// Whether somebody may listen at the system's own stack, which has the address and the packet too. It
/// does not have what was decrypted.
fn is_left_to_system(applier: &Applier<'_, '_>, known: &Known) -> bool {
    matches!(known.key.origin, Origin::Port(_))
        && applier.neighbours.outputs.objects.is_systems(known.key.addresses.destination())
}

/// How the gateway's own answer to a packet of the flow `key` enters the stages.
fn answer_to(key: &FlowKey) -> Arrival {
    let origin = match key.origin {
        Origin::Port(_) | Origin::Host | Origin::HostError(_) => Origin::Host,
        Origin::Sa(_) | Origin::HostProtected => Origin::HostProtected,
    };
    Arrival::new(key.vrf, origin)
}

/// How the gateway's own ICMP error about a packet of the flow `key` enters the stages.
fn error_about(key: &FlowKey) -> Arrival {
    let Arrival { vrf, origin, .. } = answer_to(key);
    let origin = match key.origin {
        Origin::Port(port) => Origin::HostError(port),
        _ => origin,
    };
    Arrival::new(vrf, origin)
}
