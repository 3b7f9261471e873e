//! Decide: for every packet, what happens to it.

use crate::lane::Flights;
use crate::worker::Round;

impl Round<'_> {
    pub(crate) fn decide(&mut self, batch: &mut Flights) {
        let Flights { packets, flights } = batch;
        for flight in &mut flights[..packets.len()] {
            flight.key = flight.headers.key(flight.arrival.vrf, flight.arrival.origin);
            flight.decision = crate::decide(&flight.key, self.tables, &mut ());
        }
        self.worker.statistics.decided.add(packets.len() as u64);
    }
}
