//! Parse: every IP packet is judged, and its flow named.
//!
//! Exits: every reason of [`wire::Malformed`], `fragment_unknown`, `esp_nested`, and the neighbour
//! discovery handler's.

use packet::DropReason;
use wire::{FragmentClass, Headers, Origin, Protocol, Upper};

use crate::host::nd;
use crate::lane::{Arrival, Flights, Lane};
use crate::worker::Round;

/// How often a packet may come out of ESP and go through the stages again. A tunnel in a tunnel
/// takes two.
const MAX_DEPTH: usize = 4;

impl Round<'_> {
    pub(crate) fn parse(&mut self, lane: &mut Lane, batch: &mut Flights, depth: usize) {
        let Lane { packets, arrivals } = lane;
        for (mut packet, arrival) in packets.drain(..).zip(arrivals.drain(..)) {
            let flight = &mut batch.flights[batch.packets.len()];
            if let Err(why) = wire::headers::parse_into(packet.bytes(), &mut flight.headers) {
                self.drop(packet, why.into());
                continue;
            }
            let headers = &flight.headers;
            if depth > MAX_DEPTH {
                self.drop(packet, DropReason::EspNested);
                continue;
            }
            packet.truncate(usize::from(headers.total_length));
            if let Origin::Port(port) = arrival.origin
                && is_neighbour_discovery(headers)
                && self.tables.is_local(arrival.vrf, port, headers.addresses.destination())
            {
                nd::receive(self, port, packet, headers);
                continue;
            }
            flight.arrival = arrival;
            if headers.fragment.class != FragmentClass::Whole
                && self.virtual_reassembly(&mut flight.headers, arrival).is_err()
            {
                self.drop(packet, DropReason::FragmentUnknown);
                continue;
            }
            batch.packets.push(packet);
        }
    }

    /// Gives later fragments the ports of their datagram's first, in VRFs whose policies may ask
    /// for them.
    fn virtual_reassembly(&mut self, headers: &mut Headers, arrival: Arrival) -> Result<(), ()> {
        let Some(vrf) = self.tables.vrf(arrival.vrf).filter(|vrf| !vrf.spd.is_empty()) else {
            return Ok(());
        };
        if vrf.is_local(headers.addresses.destination()) {
            return Ok(());
        }
        let key = headers.key(arrival.vrf, arrival.origin);
        let identification = headers.fragment.identification;
        if key.fragment == FragmentClass::First {
            self.worker.fragment_upper.learn(self.now, &key, identification, key.upper);
        } else {
            headers.upper =
                self.worker.fragment_upper.recall(self.now, &key, identification).ok_or(())?;
        }
        Ok(())
    }
}

/// Router and neighbour solicitations, advertisements and redirects (RFC 4861 section 4).
fn is_neighbour_discovery(headers: &Headers) -> bool {
    headers.protocol == Protocol::ICMPV6
        && matches!(headers.upper, Upper::Icmp { kind: 133..=137, .. })
}
