//! ARP (RFC 826): answers for our own addresses, and learns who was asked for.
//!
//! Exits: `address_conflict`, `arp_malformed`, `arp_not_for_us`.

use std::net::{IpAddr, Ipv4Addr};

use packet::{DropReason, Packet};
use tables::{Event, Port};
use wire::Mac;
use wire::arp::{self, Operation};
use wire::ethernet::EtherType;

use crate::host::conflict::{self, is_conflict};
use crate::outputs::Outputs;

/// An ARP packet, its link header stripped. `from` is the frame's source.
pub(crate) fn receive(outputs: &mut Outputs<'_>, port: &Port, packet: Packet, from: Mac) {
    let Ok(message) = arp::Packet::parse(packet.bytes()) else {
        return outputs.drop(packet, DropReason::ArpMalformed);
    };
    let sender = message.sender_ip.into();
    if is_conflict(port, sender, Some(message.sender_mac)) {
        if conflict::tell(outputs, port, sender, message.sender_mac) {
            announce(outputs, port, message.sender_ip);
        }
        return outputs.drop(packet, DropReason::AddressConflict);
    }
    // What we have sent ourselves is no news, and who speaks in another station's name is not
    // believed.
    if port.owns(sender) || message.sender_mac != from {
        return outputs.drop(packet, DropReason::ArpMalformed);
    }
    let for_us = port.owns(message.target_ip.into());
    learn(outputs, port, sender, message.sender_mac);
    match (message.operation, for_us) {
        (Operation::Request, true) => {
            let reply = message.reply(port.spec.mac);
            outputs.send_frame(port, message.sender_mac, EtherType::ARP, &reply.to_bytes());
            outputs.buffers.consume(packet);
        }
        (Operation::Reply, true) => outputs.buffers.consume(packet),
        (_, false) => outputs.drop(packet, DropReason::ArpNotForUs),
    }
}

/// Tells everyone on the link that we have an address (RFC 5227 section 1.1, ARP announcement).
fn announce(outputs: &mut Outputs<'_>, port: &Port, own: Ipv4Addr) {
    let message = arp::Packet::request(port.spec.mac, own, own);
    outputs.send_frame(port, Mac::BROADCAST, EtherType::ARP, &message.to_bytes());
}

/// Passes on what a station said of itself, if the gateway has asked for it, or if it is known and
/// has moved, as RFC 826 says and RFC 4861 section 7.2.5. Others are not remembered, neither those
/// who ask for us nor those who answer unasked: anybody could fill the table of neighbours.
pub(crate) fn learn(outputs: &mut Outputs<'_>, port: &Port, address: IpAddr, mac: Mac) {
    if address.is_unspecified() {
        return;
    }
    let statistics = outputs.buffers.statistics;
    let of = (port.id, port.since);
    let solicited = outputs.objects.sought().take(outputs.now, of, address);
    if !solicited {
        match port.neighbours.lookup(address) {
            Some(known) if known != mac => {}
            Some(_) => return,
            None => return statistics.neighbours_unasked.add(1),
        }
        let queue = outputs.ports.get_mut(usize::from(port.queue().0));
        let may_move =
            queue.and_then(Option::as_mut).is_some_and(|queue| queue.moves.allow(outputs.now));
        // VLANs of one port may be in several VRFs.
        if !may_move && !outputs.guaranteed.allow(outputs.now, port.spec.vrf) {
            return statistics.neighbour_moves_limited.add(1);
        }
    }
    let event = Event::NeighbourSeen { port: port.id, since: port.since, address, mac, solicited };
    outputs.tell(port.spec.vrf, event);
}
