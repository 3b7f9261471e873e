//! Apply: does to each packet what was decided.
//!
//! Exits: the reason decided, `hop_limit`, `too_big`, `source_route`, and those of the stages
//! behind it.

use flow::Reassembled;
use packet::{DropReason, Packet};
use tables::PolicySlot;
use wire::{Headers, Origin, SaSlot, ipv4, ipv6};

use crate::decision::{EthernetHeader, Exit, LinkHeader, Verdict};
use crate::encapsulation::Inner;
use crate::host::{self, errors::Complaint};
use crate::lane::{Arrival, Flight, Flights, Onward, Opening, Sealing};
use crate::worker::Round;

/// So many changes of the policy from packet to packet, in the batch before, make two passes for
/// the counters' memory worth it.
const MANY: u32 = 16;

/// Packets of a batch one after the other that count for one policy. Written once for all, as the
/// next addition would wait for the last.
#[derive(Clone, Copy, Default)]
struct Tally {
    policy: Option<PolicySlot>,
    packets: u64,
    bytes: u64,
}

impl Round<'_> {
    pub(crate) fn apply(&mut self, batch: &mut Flights, onward: &mut Onward) {
        let Flights { packets, flights } = batch;
        if self.worker.policy_runs >= MANY {
            self.prefetch_counters(&flights[..packets.len()]);
        }
        let (mut inbound, mut outbound, mut runs) = (Tally::default(), Tally::default(), 0);
        for (mut packet, flight) in packets.drain(..).zip(flights.iter()) {
            let decision = &flight.decision;
            let bytes = u64::from(flight.headers.total_length);
            self.count(&mut inbound, decision.inbound, bytes, &mut runs);
            self.count(&mut outbound, decision.outbound, bytes, &mut runs);
            match &decision.verdict {
                Verdict::Forward(exit) => self.send_on(packet, flight, None, exit, onward),
                Verdict::Protect(slot, exit) => {
                    self.send_on(packet, flight, Some(*slot), exit, onward)
                }
                Verdict::Decrypt(slot, spi) => {
                    packet.strip(usize::from(flight.headers.upper_offset));
                    let order = onward.opening.len() as u16;
                    let outer_traffic_class = flight.headers.traffic_class;
                    onward.opening.push(Opening {
                        packet,
                        slot: *slot,
                        spi: *spi,
                        order,
                        outer_traffic_class,
                    });
                }
                Verdict::Drop(reason) => self.drop(packet, *reason),
                Verdict::Refuse(reason, refusal) => {
                    self.complain(&packet, flight, Complaint::Unreachable(*refusal), onward);
                    self.drop(packet, *reason);
                }
                Verdict::Reassemble => self.reassemble(packet, flight, onward),
                Verdict::Deliver => host::deliver(self, packet, flight, onward),
            }
        }
        self.count_all(inbound);
        self.count_all(outbound);
        self.worker.policy_runs = runs;
    }

    /// Counts a packet for a policy.
    #[inline(always)]
    fn count(&self, tally: &mut Tally, policy: Option<PolicySlot>, bytes: u64, runs: &mut u32) {
        if tally.policy != policy {
            *runs += 1;
            self.count_all(core::mem::take(tally));
            tally.policy = policy;
        }
        tally.packets += 1;
        tally.bytes += bytes;
    }

    fn count_all(&self, tally: Tally) {
        if let Some(counters) = tally.policy.and_then(|slot| self.tables.counters_in(slot)) {
            counters.add(self.worker.index, tally.packets, tally.bytes);
        }
    }

    /// Asks for all that counting a batch's packets will touch, so that the waits overlap.
    #[inline]
    fn prefetch_counters(&self, flights: &[Flight]) {
        let slots = || {
            let decisions = flights.iter().map(|flight| &flight.decision);
            decisions.flat_map(|decision| [decision.inbound, decision.outbound]).flatten()
        };
        slots().for_each(|slot| self.tables.prefetch_policy(slot));
        for counters in slots().filter_map(|slot| self.tables.counters_in(slot)) {
            counters.prefetch(self.worker.index);
        }
    }

    /// Forwards a packet, in clear or by an SA.
    #[inline]
    fn send_on(
        &mut self,
        mut packet: Packet,
        flight: &Flight,
        slot: Option<SaSlot>,
        exit: &Exit,
        onward: &mut Onward,
    ) {
        let headers = &flight.headers;
        if matches!(flight.arrival.origin, Origin::Port(_) | Origin::Sa(_)) {
            if headers.hop_limit <= 1 {
                self.complain(&packet, flight, Complaint::HopLimit, onward);
                return self.drop(packet, DropReason::HopLimit);
            }
            if headers.has_options && is_source_routed(packet.bytes()) {
                return self.drop(packet, DropReason::SourceRoute);
            }
            decrement_hop_limit(packet.bytes_mut());
        }
        if headers.total_length > exit.limit {
            return self.oversize(packet, flight, slot, exit, onward);
        }
        self.leave(packet, headers, slot, exit, onward);
    }

    /// The last step of a packet that fits its way, or whose tunnel must carry it in any case.
    #[inline]
    pub(crate) fn leave(
        &mut self,
        packet: Packet,
        headers: &Headers,
        slot: Option<SaSlot>,
        exit: &Exit,
        onward: &mut Onward,
    ) {
        let Some(slot) = slot else {
            self.worker.statistics.forwarded.add(1);
            return self.emit(packet, exit);
        };
        if onward.sealing.is_full() {
            self.seal(&mut onward.sealing);
        }
        let order = onward.sealing.len() as u16;
        let is_oversize = packet.len() > usize::from(exit.limit);
        let dont_fragment = headers.dont_fragment && !is_oversize;
        let inner = Inner { traffic_class: headers.traffic_class, dont_fragment };
        onward.sealing.push(Sealing { packet, slot, order, inner, is_oversize, exit: *exit });
    }

    /// Puts the link header in front and the packet into the port's outgoing batch; or lets it wait
    /// for its next hop.
    #[inline]
    pub(crate) fn emit(&mut self, mut packet: Packet, exit: &Exit) {
        match &exit.link {
            LinkHeader::None => {}
            LinkHeader::Ethernet(header) => {
                match packet.prepend(EthernetHeader::LENGTH).and_then(|room| room.first_chunk_mut())
                {
                    Some(room) => header.write(room),
                    None => return self.drop(packet, DropReason::EspNoRoom),
                }
            }
            LinkHeader::Unresolved(next_hop) => return self.wait_for(exit.port, *next_hop, packet),
        }
        self.outgoing(packet, exit.port);
    }

    /// Puts a finished frame into the port's outgoing batch.
    #[inline]
    pub(crate) fn outgoing(&mut self, packet: Packet, port: wire::PortId) {
        let Some(Some(attached)) = self.worker.ports.get_mut(usize::from(port.0)) else {
            return self.drop(packet, DropReason::PortDown);
        };
        attached.outgoing.push(packet);
        if attached.outgoing.is_full() {
            self.transmit(port);
        }
    }

    fn reassemble(&mut self, packet: Packet, flight: &Flight, onward: &mut Onward) {
        let (headers, key) = (&flight.headers, &flight.key());
        let (_, waiting) = self.worker.reassembly.waiting();
        let outcome =
            self.worker.reassembly.push(self.now, key, headers, packet, &mut self.worker.pool);
        let (_, still_waiting) = self.worker.reassembly.waiting();
        let statistics = &self.worker.statistics;
        // What neither waits nor was dropped nor goes on was joined, or was there already.
        let gone_on = match &outcome {
            Reassembled::Complete(_) => 1,
            Reassembled::Held => 0,
            Reassembled::Dropped { reason, fragments } => {
                statistics.drops.add(*reason, *fragments);
                *fragments
            }
        };
        statistics
            .consumed
            .add((waiting as u64 + 1).saturating_sub(still_waiting as u64 + gone_on));
        if let Reassembled::Complete(packet) = outcome {
            statistics.reassembled.add(1);
            self.again(&mut onward.again, packet, Arrival { vrf: key.vrf, origin: key.origin });
        }
    }
}

#[inline]
fn decrement_hop_limit(packet: &mut [u8]) {
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => wire::checksum::decrement_ttl_v4(packet),
        _ => ipv6::decrement_hop_limit(packet),
    }
}

fn is_source_routed(packet: &[u8]) -> bool {
    ipv4::source_routed(packet) || ipv6::source_routed(packet)
}
