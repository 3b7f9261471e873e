//! ARP (RFC 826): answers for our own addresses, and learns who answers us.
//!
//! Exits: `arp_malformed`, `arp_not_for_us`.

use std::net::IpAddr;

use packet::{DropReason, Packet};
use tables::{Event, Port};
use wire::Mac;
use wire::arp::{self, Operation};
use wire::ethernet::EtherType;

use crate::outputs::Outputs;

/// An ARP packet, its link header stripped. `from` is the frame's source.
pub(crate) fn receive(outputs: &mut Outputs<'_>, port: &Port, packet: Packet, from: Mac) {
    let Ok(message) = arp::Packet::parse(packet.bytes()) else {
        return outputs.drop(packet, DropReason::ArpMalformed);
    };
    // Whoever speaks in our name, or in another station's, is not believed.
    if port.owns(message.sender_ip.into()) || message.sender_mac != from {
        return outputs.drop(packet, DropReason::ArpMalformed);
    }
    let for_us = port.owns(message.target_ip.into());
    let solicited = for_us && message.operation == Operation::Reply;
    learn(outputs, port, message.sender_ip.into(), message.sender_mac, solicited);
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

/// Passes on what was heard of a neighbour: always when it answers us, and when a known one
/// announces another address. Strangers who ask are not remembered, or anybody could fill the queue
/// of news with them.
pub(crate) fn learn(
    outputs: &mut Outputs<'_>,
    port: &Port,
    address: IpAddr,
    mac: Mac,
    solicited: bool,
) {
    let is_news = port.neighbours.lookup(address).is_some_and(|known| known != mac);
    if (solicited || is_news) && !address.is_unspecified() {
        outputs.tell(Event::NeighbourSeen { port: port.id, address, mac, solicited });
    }
}
