//! The gateway as a host on its links: ARP, neighbour discovery, echo, and ICMP errors.

pub(crate) mod arp;
mod echo;
pub(crate) mod errors;
pub(crate) mod nd;
pub(crate) mod resolve;

use packet::{DropReason, Packet};
use wire::{FlowKey, Origin, Protocol, Upper, icmpv4, icmpv6};

use crate::host::errors::Complaint;
use crate::lane::{Arrival, Flight, Onward};
use crate::worker::Round;

/// A packet for the gateway itself.
///
/// Exits: `local_icmp`, `local_no_listener`.
pub(crate) fn deliver(round: &mut Round<'_>, packet: Packet, flight: &Flight, onward: &mut Onward) {
    match (flight.headers.protocol, flight.headers.upper) {
        (Protocol::ICMP, Upper::Icmp { kind: icmpv4::ECHO_REQUEST, .. })
        | (Protocol::ICMPV6, Upper::Icmp { kind: icmpv6::ECHO_REQUEST, .. }) => {
            echo::reply(round, packet, flight, onward);
        }
        (Protocol::ICMP | Protocol::ICMPV6, _) => round.drop(packet, DropReason::LocalIcmp),
        (Protocol::TCP, _) => round.drop(packet, DropReason::LocalNoListener),
        (Protocol::UDP | Protocol::UDP_LITE, _) => {
            round.complain(&packet, flight, Complaint::Port, onward);
            round.drop(packet, DropReason::LocalNoListener);
        }
        _ => {
            round.complain(&packet, flight, Complaint::Protocol, onward);
            round.drop(packet, DropReason::LocalNoListener);
        }
    }
}

/// How the gateway's own answer to a packet of the flow `key` enters the stages.
fn answer_to(key: &FlowKey) -> Arrival {
    let origin = match key.origin {
        Origin::Port(_) | Origin::Host => Origin::Host,
        Origin::Sa(_) | Origin::HostProtected => Origin::HostProtected,
    };
    Arrival { vrf: key.vrf, origin }
}
