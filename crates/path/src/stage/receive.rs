//! Receive: from a port into the lane, the link header checked and stripped.
//!
//! Exits: `link_truncated`, `link_not_for_us`, `link_source`, `link_protocol`, `link_vlan`,
//! `not_unicast`, `ip_version`, `ip_truncated`, and the ARP handler's.

use packet::{Batch, DropReason, LinkKind, Packet};
use tables::Port;
use wire::ethernet::{self, EtherType};
use wire::{Origin, PortId};

use crate::host::arp;
use crate::lane::{Arrival, Lane};
use crate::worker::Round;

impl Round<'_> {
    /// Receives one batch from port `id`. Answers how many packets came, ARP and dropped frames
    /// included.
    pub(crate) fn receive(&mut self, id: PortId, lane: &mut Lane) -> usize {
        let Some(attached) = &mut self.worker.ports[usize::from(id.0)] else { return 0 };
        let mut batch = Batch::new();
        let count = match attached.port.receive(self.now, &mut self.worker.pool, &mut batch) {
            Ok(count) => count,
            Err(error) => {
                attached.fail(error);
                batch.len()
            }
        };
        if count == 0 {
            return 0;
        }
        self.worker.statistics.batches.add(1);
        self.worker.statistics.received.add(count as u64);
        let tables = self.tables;
        let Some(port) = tables.port(id).filter(|port| port.spec.up) else {
            batch.drain(..).for_each(|packet| self.drop(packet, DropReason::PortDown));
            return count;
        };
        let arrival = Arrival { vrf: port.spec.vrf, origin: Origin::Port(id) };
        match port.spec.link {
            LinkKind::Ip => {
                lane.arrivals.extend(batch.iter().map(|_| arrival));
                lane.packets = batch;
            }
            LinkKind::Ethernet => {
                for packet in batch.drain(..) {
                    self.frame(port, packet, arrival, lane);
                }
            }
        }
        count
    }

    #[inline]
    fn frame(&mut self, port: &Port, mut packet: Packet, arrival: Arrival, lane: &mut Lane) {
        let Some(header) = ethernet::Header::parse(packet.bytes()) else {
            return self.drop(packet, DropReason::LinkTruncated);
        };
        if header.source.is_group() {
            return self.drop(packet, DropReason::LinkSource);
        }
        let group = header.destination.is_group();
        if !group && header.destination != port.spec.mac {
            return self.drop(packet, DropReason::LinkNotForUs);
        }
        packet.strip(ethernet::HEADER_LENGTH);
        let version = packet.bytes().first().map(|octet| octet >> 4);
        match (header.ether_type, version) {
            (EtherType::IPV4, Some(4)) | (EtherType::IPV6, Some(6)) => {}
            (EtherType::IPV4 | EtherType::IPV6, Some(_)) => {
                return self.drop(packet, DropReason::IpVersion);
            }
            (EtherType::IPV4 | EtherType::IPV6, None) => {
                return self.drop(packet, DropReason::IpTruncated);
            }
            (EtherType::ARP, _) => return arp::receive(self, port, packet, header.source),
            (other, _) if other.is_vlan() => return self.drop(packet, DropReason::LinkVlan),
            _ => return self.drop(packet, DropReason::LinkProtocol),
        }
        // A unicast packet in a group frame is nobody's to forward (RFC 1122 section 3.3.6), and
        // broadcasts are not forwarded (RFC 2644) nor of any use to us.
        if group && !is_multicast(packet.bytes()) {
            return self.drop(packet, DropReason::NotUnicast);
        }
        // The lane was empty and has room for a batch.
        if let Err(packet) = lane.push(packet, arrival) {
            self.drop(packet, DropReason::NoBuffer);
        }
    }
}

fn is_multicast(packet: &[u8]) -> bool {
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => packet.get(16).is_some_and(|octet| octet >> 4 == 0xe),
        Some(6) => packet.get(24) == Some(&0xff),
        _ => false,
    }
}
