//! Transmit: what a port is to send goes out; and packets that waited for a neighbour go on.
//!
//! Exits: `neighbour_queue_full`, `neighbour_table_full`, `neighbour_unresolved`,
//! `reassembly_timeout`; what a port could not send is in the port's own statistics.

use std::cell::RefCell;
use std::net::IpAddr;

use flow::{Held, NeighbourQueue};
use packet::{DropReason, Packet};
use tables::Event;
use wire::{Mac, PortId};

use crate::decision::EthernetHeader;
use crate::host::resolve;
use crate::lane::{Lanes, Onward};
use crate::worker::Round;

impl Round<'_> {
    /// Sends the outgoing batch of port `id`.
    pub(crate) fn transmit(&mut self, id: PortId) {
        let Some(attached) = &mut self.worker.ports[usize::from(id.0)] else { return };
        if attached.outgoing.is_empty() {
            return;
        }
        if let Err(error) =
            attached.port.transmit(self.now, &mut self.worker.pool, &mut attached.outgoing)
        {
            self.worker.statistics.drops.add(DropReason::PortDown, attached.outgoing.len() as u64);
            self.worker.pool.give_all(attached.outgoing.drain(..));
            attached.fail(error);
        }
    }

    /// Keeps a packet until its next hop answers.
    pub(crate) fn wait_for(&mut self, port: PortId, next_hop: IpAddr, packet: Packet) {
        let Some(queue) = &mut self.worker.neighbours else {
            return self.drop(packet, DropReason::NeighbourQueueFull);
        };
        match queue.hold(self.now, port, next_hop, packet) {
            Held::Ask => resolve::ask(self, port, next_hop),
            Held::Waiting => {}
            Held::Refused(packet, reason) => self.drop(packet, reason),
        }
    }

    /// Sends what waited for neighbours that are known now.
    pub(crate) fn resume_waiting(&mut self) {
        let Some(mut queue) = self.worker.neighbours.take() else { return };
        let tables = self.tables;
        let lookup = |port, address| tables.port(port)?.neighbours.lookup(address);
        queue.take_resolved(lookup, |port, next_hop, mac, packet| {
            self.resume(port, next_hop, mac, packet)
        });
        self.worker.neighbours = Some(queue);
    }

    fn resume(&mut self, port: PortId, next_hop: IpAddr, mac: Mac, mut packet: Packet) {
        let Some(source) = self.tables.port(port).map(|port| port.spec.mac) else {
            return self.drop(packet, DropReason::PortDown);
        };
        match packet.prepend(EthernetHeader::LENGTH).and_then(|room| room.first_chunk_mut()) {
            Some(room) => EthernetHeader::new(mac, source, next_hop.is_ipv6()).write(room),
            None => return self.drop(packet, DropReason::EspNoRoom),
        }
        self.outgoing(packet, port);
    }

    /// Whatever is due: questions asked again, packets given up.
    pub(crate) fn timers(&mut self, lanes: &mut Lanes) {
        self.neighbour_timers(&mut lanes.onward);
        self.stages(lanes);
        let now = self.now;
        if self.worker.reassembly.next_deadline().is_some_and(|deadline| deadline <= now) {
            let statistics = &self.worker.statistics;
            let dropped =
                |fragments| statistics.drops.add(DropReason::ReassemblyTimeout, fragments);
            self.worker.reassembly.expire(now, &mut self.worker.pool, dropped);
        }
    }

    fn neighbour_timers(&mut self, onward: &mut Onward) {
        let now = self.now;
        let due =
            |queue: &NeighbourQueue| queue.next_deadline().is_some_and(|deadline| deadline <= now);
        let Some(mut queue) = self.worker.neighbours.take_if(|queue| due(queue)) else { return };
        let round = RefCell::new(&mut *self);
        queue.advance(
            now,
            |port, next_hop| resolve::ask(&mut round.borrow_mut(), port, next_hop),
            |port, next_hop, packet| {
                let round = &mut *round.borrow_mut();
                round.tell(Event::NeighbourSilent { port, address: next_hop });
                round.complain_unanswered(&packet, onward);
                round.drop(packet, DropReason::NeighbourUnresolved);
            },
        );
        self.worker.neighbours = Some(queue);
    }
}
