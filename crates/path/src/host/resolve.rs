//! Asking who has a next hop's address, and sending straight onto a link.

use std::net::IpAddr;

use packet::{DropReason, LinkKind, Packet};
use tables::{Port, Probe};
use wire::ethernet::{self, EtherType};
use wire::ndp::{self, Message};
use wire::{Mac, PortId, arp};

use crate::decision::EthernetHeader;
use crate::worker::Round;

/// Asks everyone on the port's link for `next_hop`.
pub(crate) fn ask(round: &mut Round<'_>, port: PortId, next_hop: IpAddr) {
    question(round, port, next_hop, None);
}

/// Asks a known neighbour whether it is still there.
pub(crate) fn probe(round: &mut Round<'_>, probe: &Probe) {
    question(round, probe.port, probe.address, Some(probe.mac));
}

fn question(round: &mut Round<'_>, port: PortId, next_hop: IpAddr, mac: Option<Mac>) {
    let tables = round.tables;
    let Some(port) = tables.port(port).filter(|port| port.spec.link == LinkKind::Ethernet) else {
        return;
    };
    match (port.source_for(next_hop), next_hop) {
        (Some(IpAddr::V4(source)), IpAddr::V4(target)) => {
            let request = arp::Packet::request(port.spec.mac, source, target);
            round.send_frame(
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
            let Some(mut packet) = round.new_packet(port.id) else { return };
            let room = packet.append(ndp::MAX_PACKET).unwrap_or_default();
            let length = message.write_packet(source, destination, room).unwrap_or(0);
            packet.truncate(length);
            round.send_packet(port, mac.unwrap_or(ethernet::multicast_mac_v6(destination)), packet);
        }
        // Without an address of the family, there is nobody to ask for the answer.
        _ => {}
    }
}

impl Round<'_> {
    /// Sends an IPv4 or IPv6 packet of our own to a station whose address is known.
    pub(crate) fn send_packet(&mut self, port: &Port, mac: Mac, mut packet: Packet) {
        let v6 = packet.bytes().first().is_some_and(|octet| octet >> 4 == 6);
        if port.spec.link == LinkKind::Ethernet {
            match packet.prepend(EthernetHeader::LENGTH).and_then(|room| room.first_chunk_mut()) {
                Some(room) => EthernetHeader::new(mac, port.spec.mac, v6).write(room),
                None => return self.drop(packet, DropReason::EspNoRoom),
            }
        }
        self.outgoing(packet, port.id);
    }

    /// Sends a frame of our own.
    pub(crate) fn send_frame(
        &mut self,
        port: &Port,
        mac: Mac,
        ether_type: EtherType,
        payload: &[u8],
    ) {
        let Some(mut packet) = self.new_packet(port.id) else { return };
        let header = ethernet::Header { destination: mac, source: port.spec.mac, ether_type };
        if packet.fill(&header.to_bytes())
            && let Some(room) = packet.append(payload.len())
        {
            room.copy_from_slice(payload);
        }
        packet.set_port(port.id);
        self.outgoing(packet, port.id);
    }

    /// Sends a packet of our own to a neighbour on the port's link, once its address is known.
    pub(crate) fn send_to_neighbour(&mut self, port: PortId, neighbour: IpAddr, packet: Packet) {
        let tables = self.tables;
        let Some(port) = tables.port(port) else { return self.drop(packet, DropReason::PortDown) };
        match port.neighbours.lookup(neighbour) {
            Some(mac) => self.send_packet(port, mac, packet),
            None if port.spec.link == LinkKind::Ip => self.outgoing(packet, port.id),
            None => self.wait_for(port.id, neighbour, packet),
        }
    }
}
