//! Decide: for every packet, what happens to it.

use arrayvec::ArrayVec;
use packet::BATCH;

use crate::decision::Decision;
use crate::lane::Flight;
use crate::worker::Round;

impl Round<'_> {
    pub(crate) fn decide(&mut self, flights: &ArrayVec<Flight, BATCH>, decisions: &mut ArrayVec<Decision, BATCH>) {
        decisions.extend(flights.iter().map(|flight| crate::decide(&flight.key, self.tables, &mut ())));
        self.worker.statistics.decided.add(flights.len() as u64);
    }
}
