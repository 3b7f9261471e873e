//! Asking who has a next hop's address.

use std::net::IpAddr;

use packet::LinkKind;
use tables::Probe;
use wire::ethernet::{self, EtherType};
use wire::ndp::{self, Message};
use wire::{Mac, PortId, arp};

use crate::outputs::Outputs;

/// Asks everyone on the port's link for `next_hop`. Returns false if the worker has no queue of the
/// port that the question could leave by: it may get one in a moment.
pub(crate) fn ask(outputs: &mut Outputs<'_>, port: PortId, next_hop: IpAddr) -> bool {
    let may_leave = outputs.objects.port(port).is_none_or(|port| outputs.may_send_from(port));
    if may_leave {
        question(outputs, port, next_hop, None);
    }
    may_leave
}

/// Asks a known neighbour whether it is still there.
pub(crate) fn probe(outputs: &mut Outputs<'_>, probe: &Probe) {
    question(outputs, probe.port, probe.address, Some(probe.mac));
}

fn question(outputs: &mut Outputs<'_>, port: PortId, next_hop: IpAddr, mac: Option<Mac>) {
    let objects = outputs.objects;
    let Some(port) = objects.port(port).filter(|port| port.spec.link == LinkKind::Ethernet) else {
        return;
    };
    objects.sought().ask(outputs.now, (port.id, port.since), next_hop);
    match (port.source_for(next_hop), next_hop) {
        (Some(IpAddr::V4(source)), IpAddr::V4(target)) => {
            let request = arp::Packet::request(port.spec.mac, source, target);
            outputs.send_frame(
                port,
                mac.unwrap_or(Mac::BROADCAST),
                EtherType::ARP,
                &request.to_bytes(),
            );
        }
        (Some(IpAddr::V6(source)), IpAddr::V6(target)) => {
            let message =
                Message::NeighbourSolicitation { target, source_link: Some(port.spec.mac) };
            let destination = if mac.is_some() { target } else { ndp::solicited_node(target) };
            let new = outputs.buffers.new_packet(port.id, ndp::MAX_PACKET);
            let Some(mut packet) = new else { return };
            let room = packet.append(ndp::MAX_PACKET).unwrap_or_default();
            let length = message.write_packet(source, destination, room).unwrap_or(0);
            packet.truncate(length);
            outputs.send_packet(
                port,
                mac.unwrap_or(ethernet::multicast_mac_v6(destination)),
                packet,
            );
        }
        // Without an address of the family, there is nobody to ask for the answer.
        _ => {}
    }
}
